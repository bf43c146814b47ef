"""CRC-32C (Castagnoli), by which TensorFlow's checkpoints prove whole, in NumPy.

A cyclic redundancy check is linear over GF(2): that of two parts end to end is that of the first, moved past
the second part's length, XOR that of the second. So neighbouring 32-bit words are folded pairwise, all pairs
at once, then pairs of pairs, until one word is left; moving 16 bits past a given length is one table.
"""

import functools

import numpy as np

_POLYNOMIAL = 0x82F63B78  # reflected: the lowest bit comes first
_ONES = 0xFFFFFFFF
_FOLDS = 16
_CHUNK = 4 << _FOLDS  # bytes folded to one word at a time


def crc32c(data: bytes | memoryview) -> int:
    """Compute the checksum of RFC 3720, appendix B.4.

    Examples
    --------
    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    # Zeros in front change nothing; the four behind make room for the remainder, which begins as all ones.
    begin = -(len(data) + 4) % _CHUNK
    padded = np.zeros(begin + len(data) + 4, np.uint8)
    padded[begin:-4] = np.asarray(memoryview(data).cast("B"))
    padded[begin : begin + 4] ^= 255
    low, high = _tables(_FOLDS)
    word = 0
    for chunk in padded.view("<u4").reshape(-1, 1 << _FOLDS):
        word = int(low[word & 0xFFFF] ^ high[word >> 16]) ^ _fold(chunk)
    return word ^ _ONES


def masked(check: int) -> int:
    """Return how checks of data that may themselves hold checks are stored (LevelDB's log format)."""
    return ((check >> 15 | check << 17) + 0xA282EAD8) & _ONES


# words (2^k,) -> one word that has the same check
def _fold(words: np.ndarray) -> int:
    level = 0
    while len(words) > 1:
        low, high = _tables(level)
        halves = words.view("<u2")
        folded = low.take(halves[0::4].astype(np.intp))  # other indices would be converted, and slowly
        folded ^= high.take(halves[1::4].astype(np.intp))
        folded ^= words[1::2]
        words, level = folded, level + 1
    return int(words[0])


@functools.cache
def _tables(level: int) -> tuple[np.ndarray, np.ndarray]:
    """Tabulate, (65536,) twice, the lower and the upper half of a word, moved past 2^level words."""
    move = _move(level + 5)
    low, high = np.zeros((2, 1), "<u4")
    for of_low, of_high in zip(move[:16], move[16:], strict=True):
        low, high = np.concatenate([low, low ^ of_low]), np.concatenate([high, high ^ of_high])
    return low, high


@functools.cache
def _move(level: int) -> np.ndarray:
    """Tabulate (32,) what each bit of a remainder becomes when 2^level zero bits follow."""
    if not level:
        return np.array([_POLYNOMIAL, *(1 << bit for bit in range(31))], "<u4")
    half = _move(level - 1)
    return np.bitwise_xor.reduce((half[:, None] >> np.arange(32, dtype="<u4") & 1) * half, axis=1)
