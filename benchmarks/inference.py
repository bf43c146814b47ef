"""Encoding throughput: minibert's engines beside PyTorch and ONNX Runtime, in one run.

    python benchmarks/inference.py [--quick] [--size base] [--seq 128] [--batch 1 32] [--dtype float32 int8]
        [--lengths full phrases] [--threads 1 2] [--only cpp "ONNX Runtime"] [--rounds 5]
        [--json] [--rows FILE] [--write-results]

From ids to the last hidden states and the pooled vectors. Everyone is a process of its own with the same
weights, batch and number of threads; `cpp` is optimised for inference, as ONNX Runtime is. First, the
hidden states have to be the reference's; then everyone takes turns, and figures are medians of the rounds.
Shares are of the peak that is measured in the same rounds.
"""

import sys

import numpy as np
from peers import ways
from peers.bench import Case, Kind, main, parser
from peers.report import INFERENCE_LIMITS
from peers.work import Work

from minibert.engines.flops import encoder_operations, pooler_operations

SLOW = ("numpy", "numba")
PLAN = (
    Case(Work("base", 128, 32), without=SLOW),
    Case(Work("base", 128, 1)),
    Case(Work("base", 64, 32, "phrases"), without=SLOW),
)
QUICK = (Case(Work("tiny", 32, 4)), Case(Work("tiny", 64, 8, "phrases")))
# Largest difference in units of the largest value, and |x - right| / |right|. bfloat16 has eight bits and
# every layer rounds often; in int8 every product has an error of a percent or more.
TOLERANCES = {"float32": (1e-4, 1e-4), "bfloat16": (1e-1, 5e-2), "int8": (4e-1, 1.5e-1)}
NAMES = "hidden states", "pooled vectors"
MARK = "<!-- written by `python benchmarks/inference.py --write-results` -->"


def operations(work: Work) -> int:
    """Useful floating-point operations of encoding a batch."""
    config, lengths = work.config(0.0), work.sequence_lengths()
    return encoder_operations(config, lengths) + pooler_operations(config, len(lengths))


def complaint(found: tuple, expected: tuple, dtype: str) -> str | None:
    """What differs from the reference's hidden states and pooled vectors."""
    for name, one, other in zip(NAMES, found, expected, strict=True):
        if one.shape != other.shape:
            return f"its {name} have another shape"
        largest, norm = float(np.abs(one - other).max() / np.abs(other).max()), relative(one, other)
        if not (largest <= TOLERANCES[dtype][0] and norm <= TOLERANCES[dtype][1]):
            return f"its {name} are {largest:.2g} ({norm:.2g}) away from the reference's"
    return None


def relative(one: np.ndarray, other: np.ndarray) -> float:
    """|one - other| / |other|"""
    return float(np.linalg.norm(one - other) / np.linalg.norm(other))


def errors(found: tuple, expected: tuple) -> dict[str, float]:
    """Relative differences from the reference."""
    return {name: relative(*both) for name, *both in zip(NAMES, found, expected, strict=True)}


KIND = Kind(
    ways=ways.encoding(),
    plan=PLAN,
    quick=QUICK,
    dropout=0.0,
    kept_bytes=4,
    operations=operations,
    compare=complaint,
    errors=errors,
    limits=INFERENCE_LIMITS,
    mark=MARK,
)

if __name__ == "__main__":
    sys.exit(main(KIND, parser(__doc__.splitlines()[0], TOLERANCES).parse_args()))
