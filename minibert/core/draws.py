"""Random draws without a state: each is a hash of what it belongs to, so nothing is stored or replayed.

The hash is the finaliser of SplitMix64 (Steele, Lea and Flood 2014), in whole numbers only: every machine and
every version of NumPy draws the same.
"""

import numpy as np

GOLDEN = 0x9E3779B97F4A7C15  # 2**64 / golden ratio: consecutive counters fall far apart


def key(*numbers: int) -> int:
    """Return one 64-bit key from whole numbers; their order matters."""
    found = 0
    for number in numbers:
        found = int(mix(np.array([(found + GOLDEN + number) & (2**64 - 1)], np.uint64))[0])
    return found


def mix(x: np.ndarray) -> np.ndarray:  # (...) uint64 -> (...) uint64
    """Scramble bits: a change of one changes half of the others."""
    x = (x ^ (x >> 30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> 27)) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> 31)


def draw(keys: np.ndarray, counters: np.ndarray | int) -> np.ndarray:  # (n,) uint64, (n,) -> (n,) uint64
    """Draw 64 random bits for each key and counter."""
    return mix(keys + np.asarray(counters, np.uint64) * np.uint64(GOLDEN))


def uniform(bits: np.ndarray) -> np.ndarray:  # (n,) uint64 -> (n,) float64
    """Turn random bits into numbers in [0, 1)."""
    return (bits >> 11) * 2.0**-53


def below(bits: np.ndarray, limit: int) -> np.ndarray:  # (n,) uint64 -> (n,) int64
    """Turn random bits into whole numbers in [0, limit), limit up to 2**32."""
    return (((bits >> 32) * np.uint64(limit)) >> 32).astype(np.int64)


def permutation(names: np.ndarray, key: int) -> np.ndarray:  # (n,) whole numbers -> (n,) int64
    """Return an order of the places of `names` that depends on the key and the names."""
    return np.argsort(draw(np.full(len(names), key, np.uint64), names), kind="stable")
