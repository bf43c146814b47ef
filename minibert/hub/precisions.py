"""Convert numbers to and from the precisions of files; bfloat16, which NumPy lacks, is half of a float32."""

import numpy as np

from minibert.base.errors import InputError

STORED = ("float32", "float16", "bfloat16")


# (...) uint16 -> (...) float32
def widened(halves: np.ndarray) -> np.ndarray:
    """Convert bfloat16 to float32, exactly.

    Parameters
    ----------
    halves : (...) uint16
        The bits of the numbers.

    Returns
    -------
    (...) float32
        The same numbers.
    """
    return (halves.astype("<u4") << 16).view("<f4")


def narrowed(name: str, values: np.ndarray, dtype: str) -> np.ndarray:
    """Return numbers as they are stored: contiguous and little-endian, rounded to nearest even.

    Parameters
    ----------
    name : str
        Name of the tensor, for the error.
    values : (...) float
        The numbers.
    dtype : {"float32", "float16", "bfloat16"}
        Precision of the file.

    Returns
    -------
    (...) float32, float16 or, for bfloat16, uint16
        The numbers, or their bits for bfloat16; float32 is copied only if it has to be.

    Raises
    ------
    InputError
        When `dtype` is not one of these, or a finite number is beyond its range.
    """
    if dtype not in STORED:
        raise InputError(f"dtype={dtype!r} cannot be stored; use one of {', '.join(STORED)}.", dtype=dtype)
    with np.errstate(over="ignore"):
        result = np.ascontiguousarray(values, "<f2" if dtype == "float16" else "<f4")
    if dtype == "bfloat16":
        bits = result.view("<u4")
        last_bit = (bits >> 16) & 1  # the last bit of the upper half; a tie goes to the number where it is 0
        rounded = bits + (last_bit + np.uint32(0x7FFF))
        result = (rounded >> 16).astype("<u2")
    numbers = widened(result) if dtype == "bfloat16" else result
    if not np.isfinite(numbers).all() and np.isfinite(values).all():
        raise InputError(f"{name} has values beyond the range of {dtype}; store it as float32.")
    return result
