"""Draw random numbers without a state: each is a hash of what it is for, so nothing is stored or replayed.

The hash is the finaliser of SplitMix64 (Steele, Lea and Flood 2014), which uses whole numbers only: every
machine and every version of NumPy draws the same.
"""

import numpy as np

GOLDEN = 0x9E3779B97F4A7C15  # 2**64 / golden ratio: consecutive counters fall far apart


def key(*numbers: int) -> int:
    """Return one 64-bit key from whole numbers; their order matters.

    Parameters
    ----------
    *numbers : such as a seed and what the draws are for.

    Returns
    -------
    int below 2**64.
    """
    result = 0
    for number in numbers:
        total = (result + GOLDEN + number) & (2**64 - 1)
        result = int(mix(np.array([total], np.uint64))[0])
    return result


def mix(x: np.ndarray) -> np.ndarray:  # (...) uint64 -> (...) uint64
    """Scramble bits: a change of one changes half of the others.

    Parameters
    ----------
    x : (...) uint64.

    Returns
    -------
    (...) uint64.
    """
    x = (x ^ (x >> 30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> 27)) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> 31)


# keys (n,) uint64  counters (n,) -> (n,) uint64
def draw(keys: np.ndarray | int, counters: np.ndarray | int) -> np.ndarray:
    """Draw 64 random bits for each key and counter.

    Parameters
    ----------
    keys : (n,) uint64, or one key for all counters.
    counters : (n,) whole numbers, or one for all keys.

    Returns
    -------
    (n,) uint64.
    """
    return mix(keys + np.asarray(counters, np.uint64) * np.uint64(GOLDEN))


def uniform(bits: np.ndarray) -> np.ndarray:  # (n,) uint64 -> (n,) float64
    """Turn random bits into numbers in [0, 1).

    Parameters
    ----------
    bits : (n,) uint64, of which the upper 53 are used.

    Returns
    -------
    (n,) float64.
    """
    return (bits >> 11) * 2.0**-53


def below(bits: np.ndarray, limit: int) -> np.ndarray:  # (n,) uint64 -> (n,) int64
    """Turn random bits into whole numbers in [0, limit), limit up to 2**32.

    Parameters
    ----------
    bits : (n,) uint64, of which the upper 32 are used.
    limit : exclusive.

    Returns
    -------
    (n,) int64.
    """
    return (((bits >> 32) * np.uint64(limit)) >> 32).astype(np.int64)


def permutation(names: np.ndarray, key: int) -> np.ndarray:  # (n,) whole numbers -> (n,) int64
    """Return a random order of the indices of `names`, which depends only on the key and the names.

    Parameters
    ----------
    names : (n,) whole numbers, all different.
    key : the key.

    Returns
    -------
    (n,) int64.
    """
    return np.argsort(draw(key, names), kind="stable")
