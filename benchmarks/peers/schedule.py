"""What all training steps have in common: the optimizer's numbers, and what a step returns."""

from typing import NamedTuple

RATE = 1e-4
BETAS = (0.9, 0.999)
EPS = 1e-6
WEIGHT_DECAY = 0.01
CLIP_NORM = 1.0


class TrainingStep(NamedTuple):
    """What is known of a step once it is done."""

    loss: float
    gradient_norm: float  # before clipping
