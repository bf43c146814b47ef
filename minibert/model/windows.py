"""Pool the windows of a long text: their mean, their maximum, or a mean weighted by attention."""

from collections import namedtuple
from typing import Any

from minibert.core.arrays import Array, Saved
from minibert.core.ops.blocks import Blocks

PoolWindowsSaved = namedtuple("PoolWindowsSaved", "x windows query weights")


class Windows(Blocks):
    """Operations over the windows of an example."""

    # x (S,H)  windows (E,W)  query (H,) or None -> (E,H)
    def pool_windows(
        self,
        x: Array,
        windows: Array,
        how: str,
        query: Any = None,
    ) -> tuple[Array, Saved]:
        """Return the mean, the max or, by softmax(x·query), a weighted mean over each row of `windows`.

        Parameters
        ----------
        x : (S,H)
            A vector for each window, such as its pooled [CLS].
        windows : (E,W) int32
            For each example the indices of its windows, then -1 as padding.
        how : str
            "mean", "max" or "attention".
        query : (H,) optional
            The query, for "attention" only.

        Returns
        -------
        y : (E,H)
            Zeros for an example without windows, which is only padding.
        saved : Saved
            x, windows, query, and the weights: (E,W,1), or (E,W,H) with "max".
        """
        xp = self.xp
        each = x[windows]  # (E,W,H)
        real = windows >= 0  # (E,W)
        if how == "max":
            largest = xp.where(real[..., None], each.real, -xp.inf).argmax(1)
            is_largest = xp.arange(windows.shape[1])[:, None] == largest[:, None]  # (E,W,H)
            weights = is_largest & real[..., None]
        else:
            if query is None:
                scores = xp.zeros_like(each[..., 0])
            else:
                scores = (each * query).sum(-1)
            highest = xp.where(real, scores.real, -xp.inf).max(1, keepdims=True)
            shifted = xp.where(real, scores - highest, 0)
            exponentials = xp.where(real, xp.exp(shifted), 0)
            total = exponentials.sum(1, keepdims=True)
            is_pad = ~real.any(1, keepdims=True)  # no windows, so the total is 0 and must not be divided by
            weights = exponentials / (total + is_pad)
            weights = weights[..., None]  # (E,W,1)
        return (weights * each).sum(1), PoolWindowsSaved(x, windows, query, weights)

    # y = sum w x: dx = w dy. Attention: w = softmax(s), s = x·q: ds = w (x·dy - y·dy), dx += ds q, dq = ds x
    # dy (E,H) -> dx (S,H)  dquery (H,) or None
    def pool_windows_backward(self, dy: Array, saved: Saved) -> tuple[Array, Array | None]:
        """Return the gradients of `pool_windows`; ties go to the first window.

        Parameters
        ----------
        dy : (E,H)
            Gradient of y.
        saved : Saved
            What `pool_windows` kept.

        Returns
        -------
        dx : (S,H)
        dquery : (H,) or None
            None without a query.
        """
        weights = saved.weights
        dy = dy[:, None]  # (E,1,H)
        dquery = None
        d_each = weights * dy
        if saved.query is not None:
            each = saved.x[saved.windows]
            along = (each * dy).sum(-1, keepdims=True)
            mean = (weights * along).sum(1, keepdims=True)
            dscores = weights * (along - mean)
            d_each = d_each + dscores * saved.query
            dquery = (dscores * each).sum((0, 1))
        rows = self.xp.maximum(saved.windows, 0).reshape(-1)
        dx = self.xp.zeros_like(saved.x)
        dx = self.scatter_add(dx, rows, d_each.reshape(len(rows), -1))
        return dx, dquery
