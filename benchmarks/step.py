"""A whole pre-training step: minibert's engines beside PyTorch, Hugging Face and JAX, in one run.

    python benchmarks/step.py [--quick] [--size tiny mini] [--seq 128] [--batch 32] [--dtype float32]
        [--lengths full phrases] [--threads 1 2] [--engine jax "PyTorch tuned"] [--rounds 5]
        [--attention-dropout 0.1 0] [--device gpu] [--json] [--rows FILE] [--write-results]

A step is forward, backward, clipping and AdamW, with dropout 0.1, a vocabulary of 30,522 and 15% of the
positions masked. Everyone is a process of its own with the same weights, batch and number of threads. First,
without dropout, loss, gradient norm and the loss after an update have to be the reference's; then everyone
takes turns, and figures are medians of the rounds. Shares are of the peak measured in the same rounds. Of
JAX's device the MFU is shown as well: useful operations over those of its own fastest matrix products in the
same time. On a GPU that is everyone's share, everyone compiles at once, and the reference is asked for a few
sequences of the batch. Compiling is what the first step took longer than the others.
"""

import argparse
import sys

from peers import ways
from peers.bench import Case, Kind, main, parser
from peers.report import STEP_LIMITS
from peers.work import Work

from minibert.engines.flops import step_operations

SLOW = ("numpy", "Hugging Face")  # beyond mini
PLAN = (
    Case(Work("tiny", 128, 64)),
    Case(Work("mini", 128, 32)),
    Case(Work("small", 128, 32), without=SLOW),
    Case(Work("base", 128, 8), without=(*SLOW, "numba")),
    Case(Work("base", 128, 32), only=("cpp",)),
    Case(Work("mini", 512, 8), without=SLOW),
    Case(Work("tiny", 64, 256, "phrases"), without=SLOW),
    Case(Work("mini", 64, 128, "phrases"), without=SLOW),
)
COMPILED = ("PyTorch compiled",)  # takes a minute before it begins
QUICK = (Case(Work("tiny", 32, 4)), Case(Work("tiny", 64, 8, "phrases"), without=SLOW + COMPILED))
# Largest relative error of losses and of gradient norms. Losses in float32 differ by 1e-7 to 1e-6, norms by
# 1e-4, because PyTorch adds up millions of squares in float32. In bfloat16 it is 2e-3 and 5e-3 for base.
TOLERANCES = {"float32": (2e-6, 1e-3), "bfloat16": (5e-3, 5e-2)}
MARK = "<!-- written by `python benchmarks/step.py --write-results` -->"


def operations(work: Work) -> int:
    """Useful floating-point operations of a step."""
    config = work.config(0.0)
    return step_operations(config, work.sequence_lengths(), work.make_batch(config).masked_counts)


def figures(found: list, expected: list) -> dict[str, tuple[float, float]]:
    """What is compared of two steps and the reference's; the second loss shows what the update did."""
    (loss, norm), (after, _) = found
    (true_loss, true_norm), (true_after, _) = expected
    return {
        "loss": (loss, true_loss),
        "gradient norm": (norm, true_norm),
        "loss after an update": (after, true_after),
    }


def errors(found: list, expected: list) -> dict[str, float]:
    """Relative differences from the reference."""
    return {name: abs(one - other) / abs(other) for name, (one, other) in figures(found, expected).items()}


def complaint(found: list, expected: list, dtype: str) -> str | None:
    """What differs by more than it may."""
    close, near = TOLERANCES[dtype]
    for name, (one, other) in figures(found, expected).items():
        if not abs(one - other) <= (near if name == "gradient norm" else close) * abs(other):
            return f"its {name} is {one:.6g}, the reference's {other:.6g}"
    return None


KIND = Kind(
    ways=ways.training(),
    plan=PLAN,
    quick=QUICK,
    dropout=0.1,
    kept_bytes=16,
    operations=operations,
    compare=complaint,
    errors=errors,
    limits=STEP_LIMITS,
    mark=MARK,
)


def options() -> argparse.ArgumentParser:
    """Those of both benchmarks, and what concerns training."""
    found = parser(__doc__.splitlines()[0])
    found.add_argument("--attention-dropout", nargs="+", type=float, metavar="RATE", help="default: 0.1")
    found.add_argument("--device", choices=("cpu", "gpu"), help="gpu: JAX and PyTorch on the first one")
    return found


if __name__ == "__main__":
    sys.exit(main(KIND, options().parse_args()))
