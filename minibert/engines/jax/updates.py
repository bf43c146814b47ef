"""LAMB over flat buffers for XLA: tensors that lie alike, layer after layer, are taken together.

A BERT-large has three hundred tensors. One by one, XLA would compile three hundred pieces of code for them;
layers are alike and follow one another, so a stretch of the buffer is a matrix with a row for each layer.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from minibert.arrays import Array

CHUNK = 4096  # numbers that are added up directly: one long sum in float32 loses digits
LONGEST = 64  # tensors of a layer, at most


class Stretch(NamedTuple):
    """Tensors side by side whose sizes repeat."""

    begin: int  # in the buffer
    end: int
    repeats: int  # how often all of `tensors` come, one after another
    tensors: tuple[tuple[int, bool], ...]  # size and whether it has weight decay, of each


def stretches(tensors: np.ndarray) -> list[Stretch]:
    """Gather tensors, rows [begin, end, decays] of (K,3) int64, into as few stretches as repeat.

    Examples
    --------
    >>> layers = [[0, 9, 1], [9, 13, 1], [13, 15, 0], [15, 19, 1], [19, 21, 0], [21, 24, 0]]
    >>> [(one.begin, one.repeats, one.tensors) for one in stretches(np.array(layers))]
    [(0, 1, ((9, True),)), (9, 2, ((4, True), (2, False))), (21, 1, ((3, False),))]
    """
    begins, kinds = tensors[:, 0].tolist(), [(end - begin, bool(one)) for begin, end, one in tensors.tolist()]
    joined = [False, *(tensors[1:, 0] == tensors[:-1, 1]).tolist()]  # to the one before
    result, at = [], 0
    while at < len(kinds):
        gap = next((i for i in range(at + 1, len(kinds)) if not joined[i]), len(kinds))
        period, repeats = max(
            ((one, _repeats(kinds[at:gap], one)) for one in range(1, min(LONGEST, gap - at) + 1)),
            key=lambda pair: (pair[1] > 1) * pair[0] * pair[1],
        )
        last = at + period * repeats - 1
        result.append(Stretch(begins[at], int(tensors[last, 1]), repeats, tuple(kinds[at : at + period])))
        at = last + 1
    return result


def _repeats(kinds: list[tuple[int, bool]], period: int) -> int:
    """Count how often the first `period` come one after another."""
    count = 1
    while kinds[count * period : (count + 1) * period] == kinds[:period]:
        count += 1
    return count


# params direction (N,)  tensors (K,3) -> params (N,)
def lamb(
    params: Array, direction: Array, tensors: np.ndarray, lr: Any, weight_decay: float, trust_ratio: Any
) -> Array:
    """Return the parameters after a step of `ops.lamb`, whose `direction` is Adam's."""
    changed, at = [], 0
    for one in stretches(tensors):
        x, u = (flat[one.begin : one.end].reshape(one.repeats, -1) for flat in (params, direction))
        columns, left = [], 0
        for size, decays in one.tensors:
            own, along = x[:, left : left + size], u[:, left : left + size]
            if decays:
                along = along + weight_decay * own
                along = trust_ratio(lengths(own), lengths(along)).astype(along.dtype)[:, None] * along
            columns.append(own - lr * along)
            left += size
        changed += [params[at : one.begin], jnp.concatenate(columns, axis=1).reshape(-1)]
        at = one.end
    return jnp.concatenate([*changed, params[at:]])


# x (R,n) -> (R,)
def lengths(x: Array) -> Array:
    """Return the Euclidean norm of each row; no square leaves the range of float32."""
    largest = jnp.abs(x).max(axis=1, initial=0)
    x = x / jnp.where(largest > 0, largest, 1)[:, None]
    return largest * jnp.sqrt(sums_of_squares(x))


# x (R,n) -> (R,)
def sums_of_squares(x: Array) -> Array:
    """Sum the squares of each row, as sums of sums."""
    whole = x.shape[1] // CHUNK * CHUNK
    squares = jnp.square(x[:, :whole]).reshape(len(x), -1, CHUNK).sum(2).sum(1)
    return squares + jnp.square(x[:, whole:]).sum(1)
