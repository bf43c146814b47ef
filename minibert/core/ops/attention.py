"""Attention within each sequence of a flat batch (Vaswani et al. 2017, section 3.2.1), forward and backward.

Sequences of equal length are stacked and handled by one batched matmul, so nothing is ever padded or masked
away. Only the causal option hides anything, by selecting, never by adding minus infinity.

Read next: `blocks`, where attention becomes a sublayer of BERT.
"""

import math
from collections import namedtuple
from itertools import pairwise

import numpy as np

from minibert.core.arrays import Array, Saved
from minibert.core.ops import dropout_bits
from minibert.core.ops.primitives import Primitives

AttentionSaved = namedtuple("AttentionSaved", "q k v cu_seqlens groups")
# For each group of equal-length sequences: probabilities and dropout multipliers (`mask`, None without any).
GroupSaved = namedtuple("GroupSaved", "p mask")


def equal_length_groups(cu_seqlens: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Group sequences by length, so that each group is one array without padding.

    Parameters
    ----------
    cu_seqlens : (S+1,) where sequences begin; the last entry is T.

    Returns
    -------
    groups : list of (sequences, length) row indices, one array for each length there is, shortest first.
    back : (T,) the order that brings the concatenated rows of all groups back into the order of the batch.
    """
    begins = cu_seqlens[:-1].astype(np.int64)
    lengths = np.diff(cu_seqlens)
    groups = []
    for length in np.unique(lengths):
        first_rows = begins[lengths == length]
        groups.append(first_rows[:, None] + np.arange(length))
    order = np.concatenate([rows.ravel() for rows in groups])
    back = np.argsort(order)
    return groups, back


class Attention(Primitives):
    """Scaled dot-product attention (Vaswani et al. 2017, section 3.2.1), and its probabilities alone."""

    # q k v (T,A,D) -> (T,A,D)
    def attention(
        self,
        q: Array,
        k: Array,
        v: Array,
        cu_seqlens: np.ndarray,
        causal: bool = False,
        drop: dropout_bits.Dropout | None = None,
        site: int = 0,
    ) -> tuple[Array, Saved]:
        """Return softmax(q k^T / sqrt(D)) v in each sequence and each head; dropout on the probabilities.

        This is equation 1 of Vaswani et al. (2017), scaled dot-product attention.

        Parameters
        ----------
        q, k, v : (T,A,D) queries, keys and values by token, head and dimension.
        cu_seqlens : (S+1,) where sequences begin.
        causal : whether a token sees only itself and the tokens before it.
        drop, site : where the random bits come from; the key is (query row key, head, key position).

        Returns
        -------
        y : (T,A,D).
        saved : q, k, v, cu_seqlens, and for each group of equal-length sequences its probabilities and
            dropout multipliers.
        """
        groups, back = equal_length_groups(cu_seqlens)
        outputs, kept = [], []
        for rows in groups:
            p = self._probabilities(q, k, rows, causal)
            mask = self._probability_mask(p, rows, drop, site)  # dropout multipliers: 0 or 1/(1 - rate)
            dropped = p if mask is None else p * mask
            outputs.append(_flat(dropped @ _heads(v, rows)))
            kept.append(GroupSaved(p, mask))
        return self.xp.concatenate(outputs)[back], AttentionSaved(q, k, v, cu_seqlens, tuple(kept))

    # With s = q k^T / sqrt(D), p = softmax(s), m the dropout multipliers and y = (p m) v:
    #   dv = (p m)^T dy,  dp = (dy v^T) m,  ds = p (dp - sum_j dp_j p_j),
    #   dq = ds k / sqrt(D),  dk = ds^T q / sqrt(D)
    # Where the causal option hides a key, its p is zero, hence its ds as well.
    # dy (T,A,D) -> dq dk dv (T,A,D)
    def attention_backward(self, dy: Array, saved: Saved) -> tuple[Array, Array, Array]:
        """Return the gradients of `attention`.

        Parameters
        ----------
        dy : (T,A,D) gradient of y.
        saved : what `attention` kept.

        Returns
        -------
        dq, dk, dv : (T,A,D).
        """
        groups, back = equal_length_groups(saved.cu_seqlens)
        scale = 1 / math.sqrt(saved.q.shape[-1])
        dq, dk, dv = [], [], []
        for rows, kept in zip(groups, saved.groups, strict=True):
            p, mask = kept.p, kept.mask
            d_out = _heads(dy, rows)
            dropped = p if mask is None else p * mask
            dp = d_out @ _heads(saved.v, rows).mT
            dp = dp if mask is None else dp * mask
            ds = p * (dp - (dp * p).sum(-1, keepdims=True)) * scale
            dq.append(_flat(ds @ _heads(saved.k, rows)))
            dk.append(_flat(ds.mT @ _heads(saved.q, rows)))
            dv.append(_flat(dropped.mT @ d_out))
        return tuple(self.xp.concatenate(parts)[back] for parts in (dq, dk, dv))

    # q k (T,A,D) -> one (A,n,n) for each sequence, in the order of the batch
    def attention_probabilities(
        self,
        q: Array,
        k: Array,
        cu_seqlens: np.ndarray,
        causal: bool = False,
    ) -> list[Array]:
        """Return the attention maps: row i of a map is what token i attends to, and sums to one.

        Parameters
        ----------
        q, k : (T,A,D) queries and keys.
        cu_seqlens : (S+1,) where sequences begin.
        causal : whether a token sees only itself and the tokens before it.

        Returns
        -------
        list of (A,n,n), one for each sequence of n tokens, in the order of the batch.
        """
        sequences = [np.arange(begin, end)[None] for begin, end in pairwise(cu_seqlens.tolist())]
        return [self._probabilities(q, k, rows, causal)[0] for rows in sequences]

    # -> (n,A,length,length)
    def _probabilities(
        self,
        q: Array,
        k: Array,
        rows: np.ndarray,
        causal: bool,
    ) -> Array:
        keys = _heads(k, rows).mT
        scores = _heads(q, rows) @ keys * (1 / math.sqrt(q.shape[-1]))
        if causal:
            seen = np.tri(rows.shape[1], dtype=bool)
            scores = self.xp.where(seen, scores, -np.inf)
        p = self.xp.exp(scores - scores.real.max(-1, keepdims=True))
        return p / p.sum(-1, keepdims=True)

    # -> (n,A,length,length) dropout multipliers, or None without dropout
    def _probability_mask(
        self,
        p: Array,
        rows: np.ndarray,
        drop: dropout_bits.Dropout | None,
        site: int,
    ) -> Array:
        if drop is None or not drop.attention_rate:
            return None
        n, A, length, _ = p.shape
        xp = self.xp
        keys = dropout_bits.fold(xp, drop.rows, *dropout_bits.words(xp, site))[rows]  # one for each query row
        heads = xp.arange(A, dtype=xp.uint32)
        keys = dropout_bits.fold(xp, keys[:, None], heads[:, None])
        kept = dropout_bits.keep(xp, keys, length, drop.attention_rate)
        return self.cast(kept, p.dtype) * dropout_bits.kept_scale(drop.attention_rate)


# x (T,A,D)  rows (n,length) -> (n,A,length,D)
def _heads(x: Array, rows: np.ndarray) -> Array:
    return x[rows].swapaxes(1, 2)


# x (n,A,length,D) -> (n length,A,D)
def _flat(x: Array) -> Array:
    n, A, length, D = x.shape
    return x.swapaxes(1, 2).reshape(n * length, A, D)
