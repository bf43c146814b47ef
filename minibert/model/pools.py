"""The pools that turn the hidden states of a text into one vector, for `features` and `Encoded.vectors`."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


# x (T,H)  cu_seqlens (S+1,) -> (S,H)
def first(x: np.ndarray, cu_seqlens: np.ndarray) -> np.ndarray:
    """Take the first token of each sequence.

    Parameters
    ----------
    x : (T,H) float
        Hidden states of all sequences, end to end.
    cu_seqlens : (S+1,) int
        Sequence s is rows cu_seqlens[s]:cu_seqlens[s+1].

    Returns
    -------
    (S,H) float
    """
    return x[cu_seqlens[:-1]]


# x (T,H)  cu_seqlens (S+1,) -> (S,H)
def mean(x: np.ndarray, cu_seqlens: np.ndarray) -> np.ndarray:
    """Average the tokens of each sequence, [CLS] and [SEP] included, in float64.

    Parameters
    ----------
    x, cu_seqlens
        As for `first`.

    Returns
    -------
    (S,H) float
    """
    total = np.add.reduceat(x, cu_seqlens[:-1], axis=0, dtype=np.float64)
    lengths = np.diff(cu_seqlens)
    return (total / lengths[:, None]).astype(x.dtype)


# x (T,H)  cu_seqlens (S+1,) -> (S,H)
def largest(x: np.ndarray, cu_seqlens: np.ndarray) -> np.ndarray:
    """Take the maximum over the tokens of each sequence, in each dimension, [CLS] and [SEP] included.

    Parameters
    ----------
    x, cu_seqlens
        As for `first`.

    Returns
    -------
    (S,H) float
    """
    return np.maximum.reduceat(x, cu_seqlens[:-1], axis=0)


class Pool(NamedTuple):
    """One way to make a vector of a text."""

    about: str  # its description in lists of pools
    vectors: Callable[[np.ndarray, np.ndarray], np.ndarray] | None  # None: it needs more than hidden states
    written_as: str = ""  # the field that `export` writes for sentence-transformers; "": it can't


POOLS = {
    "cls": Pool("[CLS]", first, "pooling_mode_cls_token"),
    "mean": Pool("the mean of its tokens", mean, "pooling_mode_mean_tokens"),
    "max": Pool("their maximum", largest),
    "pooled": Pool("the pooler's output", None),
    "none": Pool("every token", None),
}
OF_STATES = tuple(name for name, pool in POOLS.items() if pool.vectors)
WRITTEN = tuple(name for name, pool in POOLS.items() if pool.written_as)
