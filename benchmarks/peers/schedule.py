"""What all training steps have in common: the optimizer's numbers, and what a step returns."""

from typing import Any, NamedTuple

RATE = 1e-4
BETAS = (0.9, 0.999)
EPS = 1e-6
WEIGHT_DECAY = 0.01
CLIP_NORM = 1.0


class TrainingStep(NamedTuple):
    """What is known of a step once it is done; until then, on a device, what waits for it."""

    loss: Any  # becomes a float
    gradient_norm: Any  # before clipping

    def read(self) -> "TrainingStep":
        """The same as floats."""
        return TrainingStep(float(self.loss), float(self.gradient_norm))
