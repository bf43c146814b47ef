"""Random bits as a function of their place: the same in every engine, batch layout and shard.

A draw depends on (seed, step, site, row key, column) and on nothing else. The row key is (index of the
sequence in the global batch, position in the sequence); attention uses (query row key, head, key position).
Everything is 32-bit integer arithmetic on arrays: multiply, exclusive or, shift. Such a generator is called
counter-based (Salmon et al. 2011). The mixing steps are those of Chris Wellons' `lowbias32`, with the second
half of the key folded in between its rounds, so that no two rows have a run of bits in common.
"""

from numbers import Integral
from typing import Any, NamedTuple

from minibert.core.arrays import Array

STREAMS = (0x243F6A88, 0x85A308D3)  # initial values of the two halves of the key (digits of pi)
FIRST, SECOND = 0x7FEB352D, 0x846CA68B  # multipliers of the two rounds of lowbias32
GOLDEN = 0x9E3779B9  # 2^32 / golden ratio: spreads consecutive counters over all bits
DRAWS = 1 << 16  # one 32-bit hash serves two draws of 16 bits
WORD = 0xFFFFFFFF


class Dropout(NamedTuple):
    """The source of one batch's dropout; `None` in its place means no dropout."""

    rate: float  # for embeddings and sublayer outputs
    attention_rate: float  # for attention probabilities
    rows: Array  # (T, 2) uint32: the key of each row, made from (seed, step, sequence, position)

    def at(self, rows: Array) -> "Dropout":
        """Return the source of dropout for some of the rows.

        Parameters
        ----------
        rows : indices of the rows, in the order wanted.
        """
        return self._replace(rows=self.rows[rows])


def mix(xp: Any, x: Array) -> Array:
    """Mix a 32-bit word: a bijection in which each input bit flips each output bit half the time.

    Parameters
    ----------
    xp : module, the array library.
    x : uint32 array of any shape.

    Returns
    -------
    uint32 array of the same shape.
    """
    x = (x ^ (x >> 16)) * xp.uint32(FIRST)
    x = (x ^ (x >> 15)) * xp.uint32(SECOND)
    return x ^ (x >> 16)


def fold(xp: Any, key: Array, word: Array) -> Array:
    """Make a new key from a key (..., 2) and one more word (...).

    Parameters
    ----------
    xp : module, the array library.
    key : (...,2) uint32.
    word : (...) uint32; its axes broadcast with those of `key` before the last.

    Returns
    -------
    (...,2) uint32.
    """
    return mix(xp, mix(xp, key ^ word[..., None]) + xp.uint32(GOLDEN))


def words(xp: Any, *values: Any) -> list[Array]:
    """Return counters as (1,) uint32 words, with the high bits folded in.

    They are arrays because NumPy warns when a scalar overflows.

    Parameters
    ----------
    xp : module, the array library.
    *values : Python integers of up to 64 bits, or scalars of the array library.

    Returns
    -------
    list of (1,) uint32 arrays, one for each value.
    """
    result = []
    for value in values:
        if isinstance(value, Integral):
            number = int(value)
            value = [(number ^ (number >> 32)) & WORD]
        result.append(xp.asarray(value, xp.uint32).reshape(-1))
    return result


# sequence (T,)  position (T,) -> (T,2)
def row_keys(
    xp: Any,
    seed: Any,
    step: Any,
    sequence: Array,
    position: Array,
) -> Array:
    """Return the key of every token of a batch at one step of training.

    Parameters
    ----------
    xp : module, the array library.
    seed, step : seed of the run, and index of the step.
    sequence : (T,) index of each token's sequence in the global batch.
    position : (T,) position of each token in its sequence.

    Returns
    -------
    (T,2) uint32.
    """
    key = xp.asarray([STREAMS], xp.uint32)
    places = (xp.asarray(sequence, xp.uint32), xp.asarray(position, xp.uint32))
    for word in (*words(xp, seed, step), *places):
        key = fold(xp, key, word)
    return key


# keys (..., 2) -> (..., columns) bool
def keep(
    xp: Any,
    keys: Array,
    columns: int,
    rate: float,
) -> Array:
    """Decide which columns of each row survive dropout; two neighbouring columns share one hash.

    Parameters
    ----------
    xp : module, the array library.
    keys : (...,2) uint32, one key for each row.
    columns : how many elements a row has.
    rate : probability of dropping an element.

    Returns
    -------
    (...,columns) bool, True where an element survives.
    """
    counters = xp.arange((columns + 1) // 2, dtype=xp.uint32)
    x = keys[..., :1] + counters * xp.uint32(GOLDEN)
    x = (x ^ (x >> 16)) * xp.uint32(FIRST)
    x = x ^ keys[..., 1:]
    x = (x ^ (x >> 15)) * xp.uint32(SECOND)
    x = x ^ (x >> 16)
    hashes = xp.repeat(x, 2, axis=-1)[..., :columns]
    shifts = xp.arange(columns, dtype=xp.uint32) % 2 * xp.uint32(16)  # the lower half, then the upper
    draws = (hashes >> shifts) & xp.uint32(DRAWS - 1)
    return draws >= threshold(rate)


def threshold(rate: float) -> int:
    """Return the draw below which to drop: `rate` in units of 1/65,536, rounded, and always below 1.

    Parameters
    ----------
    rate : probability of dropping an element.
    """
    return min(round(rate * DRAWS), DRAWS - 1)


def kept_scale(rate: float) -> float:
    """Return the factor that scales survivors; it uses the rounded rate, so the expectation is exact.

    Parameters
    ----------
    rate : probability of dropping an element.
    """
    return DRAWS / (DRAWS - threshold(rate))
