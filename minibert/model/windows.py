"""Pool the windows of a long text: their mean, their maximum, or a mean weighted by attention."""

from collections import namedtuple
from typing import Any

from minibert.core.arrays import Array, Saved
from minibert.core.ops.blocks import Blocks

PoolWindowsSaved = namedtuple("PoolWindowsSaved", "x windows query weights")


class Windows(Blocks):
    """Operations over the windows of an example."""

    # x (S,H)  windows (E,W)  query (H,) or None -> (E,H)
    def pool_windows(self, x: Array, windows: Array, how: str, query: Any = None) -> tuple[Array, Saved]:
        """Return the mean, the max or, by softmax(x·query), a weighted mean over each row of `windows`."""
        xp, each, real = self.xp, x[windows], windows >= 0
        if how == "max":
            largest = xp.where(real[..., None], each.real, -xp.inf).argmax(1)
            weights = xp.arange(windows.shape[1])[:, None] == largest[:, None]  # (E,W,H)
        else:
            scores = xp.zeros_like(each[..., 0]) if query is None else (each * query).sum(-1)
            shifted = scores - xp.where(real, scores.real, -xp.inf).max(1, keepdims=True)
            # All are zero in pads, which have no window.
            e = xp.where(real, xp.exp(xp.where(real, shifted, 0)), 0)
            weights = (e / (e.sum(1, keepdims=True) + ~real.any(1, keepdims=True)))[..., None]  # (E,W,1)
        return (weights * each).sum(1), PoolWindowsSaved(x, windows, query, weights)

    # y = sum w x: dx = w dy. Attention: w = softmax(s), s = x·q: ds = w (x·dy - y·dy), dx += ds q, dq = ds x
    # dy (E,H) -> dx (S,H)  dquery (H,) or None
    def pool_windows_backward(self, dy: Array, saved: Saved) -> tuple[Array, Array | None]:
        """Return the gradients of `pool_windows`; ties go to the first window."""
        each, weights, dy, dquery = saved.x[saved.windows], saved.weights, dy[:, None], None
        d_each = weights * dy
        if saved.query is not None:
            along = (each * dy).sum(-1, keepdims=True)
            dscores = weights * (along - (weights * along).sum(1, keepdims=True))
            d_each, dquery = d_each + dscores * saved.query, (dscores * each).sum((0, 1))
        dx, rows = self.xp.zeros_like(saved.x), self.xp.maximum(saved.windows, 0).reshape(-1)
        return self.scatter_add(dx, rows, d_each.reshape(len(rows), -1)), dquery
