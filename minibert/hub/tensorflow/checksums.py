"""CRC-32C (Castagnoli), by which TensorFlow's checkpoints prove whole, in NumPy.

A cyclic redundancy check is linear over GF(2): that of two parts end to end is that of the first, moved past
the second part's length, XOR that of the second. So neighbouring 32-bit words are folded pairwise, all pairs
at once, then pairs of pairs, until one word is left; moving 16 bits past a given length is one table.
"""

import functools

import numpy as np

_POLYNOMIAL = 0x82F63B78  # reflected: the lowest bit comes first
_ONES = 0xFFFFFFFF
_FOLDS = 18
_CHUNK = 4 << _FOLDS  # bytes folded to one word at a time
_MASK_DELTA = 0xA282EAD8


def crc32c(data: bytes | memoryview) -> int:
    """Compute the checksum of RFC 3720, appendix B.4.

    Examples
    --------
    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    view = memoryview(data).cast("B")
    begin = len(view) % _CHUNK
    word = _fold(_padded(view[:begin])) if begin else 0
    while begin < len(view):
        chunk = np.frombuffer(view[begin : begin + _CHUNK], "<u4")
        low, high = _tables(_FOLDS)
        word = int(low[word & 0xFFFF] ^ high[word >> 16]) ^ _fold(chunk)
        begin += _CHUNK
    return _moved(word, 4) ^ _moved(_ONES, len(view)) ^ _ONES


def masked(check: int) -> int:
    """Return how checks of data that may themselves hold checks are stored (LevelDB's log format)."""
    return ((check >> 15 | check << 17) + _MASK_DELTA) & _ONES


def _padded(part: memoryview) -> np.ndarray:
    """Pad to (2^k,) words: zeros in front change nothing."""
    words = np.zeros(1 << max(0, (len(part) - 1).bit_length() - 2), "<u4")
    words.view(np.uint8)[-len(part) :] = np.frombuffer(part, np.uint8)
    return words


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
    bits = half[:, None] >> np.arange(32, dtype="<u4") & 1
    return np.bitwise_xor.reduce(bits * half, axis=1)


def _moved(word: int, count: int) -> int:
    """Return a remainder after `count` zero bytes more."""
    for level in range(count.bit_length()):
        if count >> level & 1:
            move = _move(level + 3)
            word = int(np.bitwise_xor.reduce(move[[bit for bit in range(32) if word >> bit & 1]]))
    return word
