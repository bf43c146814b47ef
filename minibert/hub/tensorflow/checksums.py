"""CRC-32C (Castagnoli), the checksum that TensorFlow checkpoints carry, in NumPy.

A cyclic redundancy check is linear over GF(2): the check of two parts end to end is that of the first, moved
past the length of the second, XOR that of the second. So neighbouring 32-bit words are folded pairwise, all
pairs at once, then pairs of pairs, until one word is left. A table moves 16 bits past a given length.
"""

import functools

import numpy as np

_POLYNOMIAL = 0x82F63B78  # reflected: the lowest bit comes first
_ONES = 0xFFFFFFFF
_MASK_DELTA = 0xA282EAD8  # kMaskDelta of LevelDB
_FOLDS = 16  # each halves the number of words
_CHUNK = 4 << _FOLDS  # bytes that are folded to one word


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
    # Zeros in front change nothing; the four at the end make room for the remainder. The remainder begins as
    # all ones, so the first four bytes are inverted.
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
    """Mask a check the way it is stored, so that data may hold checks themselves (LevelDB's log format).

    Parameters
    ----------
    check : int
        A CRC-32C.

    Returns
    -------
    int
        The check, rotated right by 15 bits, plus a constant, modulo 2^32.
    """
    rotated = check >> 15 | check << 17
    return (rotated + _MASK_DELTA) & _ONES


# words (2^k,) -> one word that has the same check
def _fold(words: np.ndarray) -> int:
    """Fold neighbours pairwise until one word is left."""
    level = 0  # each word now stands for 2^level words of the data
    while len(words) > 1:
        low, high = _tables(level)
        # A pair of words is four halfwords, the lower half of a word first: 0::4 has the lower halves of the
        # first words of all pairs, 1::4 their upper halves. Indices of type intp avoid a slow conversion.
        halfwords = words.view("<u2")
        folded = low.take(halfwords[0::4].astype(np.intp))
        folded ^= high.take(halfwords[1::4].astype(np.intp))
        folded ^= words[1::2]
        words = folded
        level += 1
    return int(words[0])


@functools.cache
def _tables(level: int) -> tuple[np.ndarray, np.ndarray]:
    """Tabulate what the lower and the upper halfword of a word become past 2^level words: (65536,) each."""
    move = _move(level + 5)  # 2^level words are 2^(level + 5) bits
    return _sums(move[:16]), _sums(move[16:])


# bits (16,) -> (65536,)
def _sums(bits: np.ndarray) -> np.ndarray:
    """Tabulate what each halfword becomes: the XOR of what each of its bits becomes."""
    table = np.zeros(1, "<u4")
    for bit in bits:
        table = np.concatenate([table, table ^ bit])
    return table


@functools.cache
def _move(level: int) -> np.ndarray:
    """Tabulate what each bit of a remainder becomes when 2^level zero bits follow: (32,)."""
    if not level:  # one bit: the lowest leaves, and the polynomial is subtracted; the others move down
        shifted = [1 << bit for bit in range(31)]
        return np.array([_POLYNOMIAL, *shifted], "<u4")
    half = _move(level - 1)
    bits = half[:, None] >> np.arange(32, dtype="<u4") & 1
    return np.bitwise_xor.reduce(bits * half, axis=1)
