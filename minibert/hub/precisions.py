"""Floating-point numbers as files hold them: bfloat16, which NumPy lacks, is the upper half of float32."""

import numpy as np

from minibert.base.errors import InputError

STORED = ("float32", "float16", "bfloat16")


# (...) uint16 -> (...) float32
def widened(halves: np.ndarray) -> np.ndarray:
    """Convert bfloat16 to float32, exactly."""
    return (halves.astype("<u4") << 16).view("<f4")


def narrowed(name: str, values: np.ndarray, dtype: str) -> np.ndarray:
    """Copy as contiguous little-endian in one of `STORED`, rounded to nearest even; bfloat16 as uint16."""
    if dtype not in STORED:
        raise InputError(f"dtype={dtype!r} cannot be stored; use one of {', '.join(STORED)}.")
    with np.errstate(over="ignore"):
        result = np.ascontiguousarray(values, "<f2" if dtype == "float16" else "<f4")
    if dtype == "bfloat16":
        bits = result.view("<u4")
        result = ((bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) >> 16).astype("<u2")
    finite = np.isfinite(widened(result) if dtype == "bfloat16" else result).all()
    if not finite and np.isfinite(values).all():
        raise InputError(f"{name} has values beyond the range of {dtype}; store it as float32.")
    return result
