"""Check every gradient of the core, and print the error of each: `python -m minibert.core.gradcheck`."""

import sys

import numpy as np

from minibert.core.gradcheck.cases import SIZES, Case, Size, config_of, random_batch, random_parameters
from minibert.core.gradcheck.complex_step import gradient_errors, worst
from minibert.core.gradcheck.losses import pretraining_losses, task_losses
from minibert.core.gradcheck.operations import heads, primitives, sublayers
from minibert.core.ops import Ops

BOUND = 1e-10  # the rounding of some sixty operations; a wrong term shows as 1e-3 or more


def cases(size: Size, seed: int = 0) -> list[Case]:
    """Build every operation and every loss of the core at one size, with random inputs.

    Parameters
    ----------
    size : the shape to check at.
    seed : seed of all inputs.
    """
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


def main() -> int:
    """Print the largest error of each operation; return 1 if any is above the bound, else 0."""
    wrong = checked = 0
    for name, size in SIZES.items():
        for case in cases(size):
            error = worst(gradient_errors(Ops(), case).values())
            checked += 1
            wrong += not error <= BOUND
            print(f"{case.label:48} {name:8} {error:8.1e} {'ok' if error <= BOUND else 'FAIL'}")
    print(f"{checked - wrong} of {checked} gradients are those of the complex step, within {BOUND:.0e}.")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
