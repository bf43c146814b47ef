"""What a gradient check checks: every operation that has a backward, and every loss, with inputs to call it.

Sizes are ugly on purpose (nothing divides anything, sequences of one token, nothing masked), and every row of
a loss has a weight of its own: a fault must have nowhere to hide.
"""

import numpy as np

from minibert.gradcheck.losses import pretraining_losses, task_losses
from minibert.gradcheck.operations import heads, primitives, sublayers
from minibert.gradcheck.shapes import (
    SIZES,
    Arrays,
    Case,
    Size,
    config_of,
    dropout_of,
    random_batch,
    random_parameters,
    random_task_batch,
)

__all__ = [
    "SIZES",
    "Arrays",
    "Case",
    "Size",
    "cases",
    "config_of",
    "dropout_of",
    "random_batch",
    "random_parameters",
    "random_task_batch",
]


def cases(size: Size, seed: int = 0) -> list[Case]:
    """Build every operation and every loss at one size, with inputs drawn from `seed`."""
    rng = np.random.default_rng(seed)
    batch = random_batch(size, size.M, rng)
    parameters = random_parameters(config_of(size), rng)
    return [
        *primitives(size, batch, rng),
        *sublayers(size, batch, parameters, rng),
        *heads(size, batch, parameters, rng),
        *pretraining_losses(size, parameters, rng),
        *task_losses(size, rng),
    ]
