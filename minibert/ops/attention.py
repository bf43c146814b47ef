"""Attention within each sequence of a flat batch (Vaswani et al. 2017, section 3.2.1), forward and backward.

Sequences of equal length are stacked and handled by one batched matmul, so nothing is ever padded or masked
away. Only the causal option hides anything, by selecting, never by adding minus infinity.
"""

import math
from typing import Any

import numpy as np

from minibert.ops import random
from minibert.ops.primitives import Primitives, Saved


def equal_length_groups(cu_seqlens: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Sequences by length.

    Parameters
    ----------
    cu_seqlens : (S+1,) where sequences begin.

    Returns
    -------
    groups : one (sequences, length) array of row numbers for each length there is.
    back : (T,) the order that brings the rows of all groups, one after another, back to the batch's.
    """
    begins, lengths = cu_seqlens[:-1].astype(np.int64), np.diff(cu_seqlens)
    groups = [begins[lengths == n][:, None] + np.arange(n) for n in np.unique(lengths)]
    return groups, np.argsort(np.concatenate([rows.ravel() for rows in groups]))


class Attention(Primitives):
    """The attention primitive and the probabilities behind it."""

    # q k v (T,A,D) -> (T,A,D)
    def attention(
        self,
        q: Any,
        k: Any,
        v: Any,
        cu_seqlens: np.ndarray,
        causal: bool = False,
        drop: random.Dropout | None = None,
        site: Any = 0,
    ) -> tuple[Any, Saved]:
        """softmax(q k^T / sqrt(D)) v, each sequence and each head by itself; dropout on the probabilities.

        Parameters
        ----------
        q, k, v : queries, keys and values by token, head and dimension.
        cu_seqlens : (S+1,) where sequences begin.
        causal : a token sees itself and what stands before it.
        drop, site : where the random bits come from; the key is (query row key, head, key position).
        """
        groups, back = equal_length_groups(cu_seqlens)
        outputs, kept = [], []
        for rows in groups:
            p = self._probabilities(q, k, rows, causal)
            mask = self._probability_mask(p, rows, drop, site)
            outputs.append(_flat((p if mask is None else p * mask) @ _heads(v, rows)))
            kept.append((p,) if mask is None else (p, mask))
        return self.xp.concatenate(outputs)[back], (q, k, v, cu_seqlens, tuple(kept))

    # With s = q k^T / sqrt(D), p = softmax(s), m the dropout multipliers and y = (p m) v:
    #   dv = (p m)^T dy,  dp = (dy v^T) m,  ds = p (dp - sum_j dp_j p_j),
    #   dq = ds k / sqrt(D),  dk = ds^T q / sqrt(D)
    # Where the causal option hides a key its p is zero, hence its ds as well.
    # dy (T,A,D) -> dq dk dv (T,A,D)
    def attention_backward(self, dy: Any, saved: Saved) -> tuple[Any, Any, Any]:
        """Gradients of `attention`."""
        q, k, v, cu_seqlens, kept = saved
        groups, back = equal_length_groups(cu_seqlens)
        scale = 1 / math.sqrt(q.shape[-1])
        dq, dk, dv = [], [], []
        for rows, (p, *mask) in zip(groups, kept, strict=True):
            d_out = _heads(dy, rows)
            dropped = p * mask[0] if mask else p
            dp = d_out @ _turned(_heads(v, rows))
            dp = dp * mask[0] if mask else dp
            ds = p * (dp - (dp * p).sum(-1, keepdims=True)) * scale
            dq.append(_flat(ds @ _heads(k, rows)))
            dk.append(_flat(_turned(ds) @ _heads(q, rows)))
            dv.append(_flat(_turned(dropped) @ d_out))
        return tuple(self.xp.concatenate(parts)[back] for parts in (dq, dk, dv))

    # q k (T,A,D) -> one (A,n,n) for each sequence, in the order of the batch
    def attention_probabilities(
        self, q: Any, k: Any, cu_seqlens: np.ndarray, causal: bool = False
    ) -> list[Any]:
        """The attention maps, for looking at: row i of a map is what token i attends to and sums to one."""
        groups, _ = equal_length_groups(cu_seqlens)
        by_begin = {}
        for rows in groups:
            for first_row, p in zip(rows[:, 0], self._probabilities(q, k, rows, causal), strict=True):
                by_begin[int(first_row)] = p
        return [by_begin[begin] for begin in sorted(by_begin)]

    # -> (n,A,length,length)
    def _probabilities(self, q: Any, k: Any, rows: np.ndarray, causal: bool) -> Any:
        scores = _heads(q, rows) @ _turned(_heads(k, rows)) * (1 / math.sqrt(q.shape[-1]))
        if not causal:
            p = self.xp.exp(scores - scores.real.max(-1, keepdims=True))
            return p / p.sum(-1, keepdims=True)
        length = rows.shape[1]
        seen = np.tril(np.ones((length, length), bool))
        highest = self.xp.where(seen, scores.real, scores.real.min()).max(-1, keepdims=True)
        p = self.xp.where(seen, self.xp.exp(self.xp.where(seen, scores - highest, 0)), 0)
        return p / p.sum(-1, keepdims=True)

    # -> (n,A,length,length) multipliers or None
    def _probability_mask(self, p: Any, rows: np.ndarray, drop: random.Dropout | None, site: Any) -> Any:
        if drop is None or not drop.attention_rate:
            return None
        n, A, length, _ = p.shape
        keys = random.fold(self.xp, drop.rows, *random.words(self.xp, site))[rows]
        keys = random.fold(self.xp, keys[:, None], self.xp.arange(A, dtype=self.xp.uint32)[:, None])
        kept = random.keep(self.xp, keys, length, drop.attention_rate)
        return self.cast(kept, p.dtype) * random.kept_scale(drop.attention_rate)


# x (T,A,D)  rows (n,length) -> (n,A,length,D)
def _heads(x: Any, rows: np.ndarray) -> Any:
    return x[rows].swapaxes(1, 2)


# x (n,A,length,D) -> (n length,A,D)
def _flat(x: Any) -> Any:
    n, A, length, D = x.shape
    return x.swapaxes(1, 2).reshape(n * length, A, D)


# x (...,i,j) -> (...,j,i)
def _turned(x: Any) -> Any:
    return x.swapaxes(-1, -2)
