"""Randomness as a function: the same bits for the same place, in every engine, batch layout and shard.

A draw depends on (seed, step, site, row key, column) and on nothing else. The row key is (number of the
sequence in the global batch, position in the sequence); attention uses (query row key, head, key position).
Everything is 32-bit integer arithmetic on arrays: multiply, exclusive or, shift. A generator of this kind is
called counter-based (Salmon et al. 2011); the mixing steps are those of Chris Wellons' `lowbias32`, with a
second half of the key folded in between its rounds, so that two rows share no stretch of bits.
"""

from numbers import Integral
from typing import Any, NamedTuple

from minibert.core.arrays import Array

STREAMS = (0x243F6A88, 0x85A308D3)  # one for each half of the 64-bit key (digits of pi)
FIRST, SECOND = 0x7FEB352D, 0x846CA68B  # what the two rounds of lowbias32 multiply by
GOLDEN = 0x9E3779B9  # 2^32 / golden ratio: spreads consecutive counters over all bits
DRAWS = 1 << 16  # one 32-bit hash serves two draws of 16 bits
WORD = 0xFFFFFFFF


class Dropout(NamedTuple):
    """The source of one batch's dropout; `None` in its place means no dropout."""

    rate: float  # on embeddings and sublayer outputs
    attention_rate: float  # on attention probabilities
    rows: Array  # (T, 2) uint32: key of (seed, step, sequence, position)

    def at(self, rows: Array) -> "Dropout":
        """Return the dropout of some of the rows."""
        return self._replace(rows=self.rows[rows])


def mix(xp: Any, x: Array) -> Array:
    """Mix a 32-bit word: a bijection in which every input bit flips each output bit half of the time."""
    x = (x ^ (x >> 16)) * xp.uint32(FIRST)
    x = (x ^ (x >> 15)) * xp.uint32(SECOND)
    return x ^ (x >> 16)


def fold(xp: Any, key: Array, word: Array) -> Array:
    """Make a new key from a key (..., 2) and one more word (...)."""
    return mix(xp, mix(xp, key ^ word[..., None]) + xp.uint32(GOLDEN))


def words(xp: Any, *values: Any) -> list[Array]:
    """Return counters as (1,) words (NumPy warns of overflow in scalars only); high bits fold in."""
    folded = ([(int(v) ^ (int(v) >> 32)) & WORD] if isinstance(v, Integral) else v for v in values)
    return [xp.asarray(v, xp.uint32).reshape(-1) for v in folded]


# sequence (T,)  position (T,) -> (T,2)
def row_keys(xp: Any, seed: Any, step: Any, sequence: Array, position: Array) -> Array:
    """Return the key of every token of a batch at one step of training."""
    key = xp.asarray([STREAMS], xp.uint32)
    for word in (*words(xp, seed, step), xp.asarray(sequence, xp.uint32), xp.asarray(position, xp.uint32)):
        key = fold(xp, key, word)
    return key


# keys (..., 2) -> (..., columns) bool
def keep(xp: Any, keys: Array, columns: int, rate: float) -> Array:
    """Decide which columns of each row survive dropout: two neighbouring columns share one hash."""
    counters = xp.arange((columns + 1) // 2, dtype=xp.uint32) * xp.uint32(GOLDEN)
    x = keys[..., :1] + counters
    x = (x ^ (x >> 16)) * xp.uint32(FIRST) ^ keys[..., 1:]
    x = (x ^ (x >> 15)) * xp.uint32(SECOND)
    x = x ^ (x >> 16)
    halves = xp.arange(columns, dtype=xp.uint32) % 2 * xp.uint32(16)
    draws = (xp.repeat(x, 2, axis=-1)[..., :columns] >> halves) & xp.uint32(DRAWS - 1)
    return draws >= threshold(rate)


def threshold(rate: float) -> int:
    """Return the draw below which to drop: `rate` rounded to a multiple of 1/65,536, never to 1."""
    return min(round(rate * DRAWS), DRAWS - 1)


def kept_scale(rate: float) -> float:
    """Return the factor of the survivors, from the rounded rate, so that the expectation is exact."""
    return DRAWS / (DRAWS - threshold(rate))
