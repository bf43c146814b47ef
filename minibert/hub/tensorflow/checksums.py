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

    Parameters
    ----------
    data : bytes or memoryview
        Any number of bytes.

    Returns
    -------
    int
        The CRC-32C, of 32 bits.

    Examples
    --------
    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    # Zeros in front change nothing; the four behind make room for the remainder, which begins as all ones.
    n_bytes = len(data)
    begin = -(n_bytes + 4) % _CHUNK
    padded = np.zeros(begin + n_bytes + 4, np.uint8)
    padded[begin:-4] = np.asarray(memoryview(data).cast("B"))
    padded[begin : begin + 4] ^= 255
    low, high = _tables(_FOLDS)
    word = 0
    for chunk in padded.view("<u4").reshape(-1, 1 << _FOLDS):
        moved = int(low[word & 0xFFFF] ^ high[word >> 16])
        word = moved ^ _fold(chunk)
    return word ^ _ONES


def masked(check: int) -> int:
    """Return how checks of data that may themselves hold checks are stored (LevelDB's log format).

    Parameters
    ----------
    check : int
        A CRC-32C.

    Returns
    -------
    int
        The same, turned by 15 bits, plus a constant: 32 bits.
    """
    turned = check >> 15 | check << 17
    return (turned + 0xA282EAD8) & _ONES


# words (2^k,) -> one word that has the same check
def _fold(words: np.ndarray) -> int:
    """Fold neighbours pairwise until one word is left."""
    level = 0
    while len(words) > 1:
        low, high = _tables(level)
        halves = words.view("<u2")
        folded = low.take(halves[0::4].astype(np.intp))  # other indices would be converted, and slowly
        folded ^= high.take(halves[1::4].astype(np.intp))
        folded ^= words[1::2]
        words = folded
        level += 1
    return int(words[0])


@functools.cache
def _tables(level: int) -> tuple[np.ndarray, np.ndarray]:
    """Tabulate, (65536,) twice, the lower and the upper half of a word, moved past 2^level words."""
    move = _move(level + 5)
    return _sums(move[:16]), _sums(move[16:])


# bits (16,) -> (65536,)
def _sums(bits: np.ndarray) -> np.ndarray:
    """Tabulate what a half of a word becomes: the XOR of what each of its bits becomes."""
    table = np.zeros(1, "<u4")
    for bit in bits:
        table = np.concatenate([table, table ^ bit])
    return table


@functools.cache
def _move(level: int) -> np.ndarray:
    """Tabulate (32,) what each bit of a remainder becomes when 2^level zero bits follow."""
    if not level:
        shifted = [1 << bit for bit in range(31)]
        return np.array([_POLYNOMIAL, *shifted], "<u4")
    half = _move(level - 1)
    bits = half[:, None] >> np.arange(32, dtype="<u4") & 1
    return np.bitwise_xor.reduce(bits * half, axis=1)
