"""The operations BERT is made of, forward and backward, by hand.

Every forward returns its result and `saved`, the arrays that its backward needs; every backward takes the
gradient of the loss with respect to the result, dy, and returns fresh gradients of the inputs. Nothing here
branches on the value of an array, and everything is holomorphic: `x * x`, never `abs`; comparisons look at
`.real` only. Complex arrays therefore carry exact derivatives through all of it (see `gradcheck`).
"""

import math
from collections import namedtuple
from typing import Any

import numpy as np

from minibert.core.arrays import Array, Grads, Saved
from minibert.core.ops import random
from minibert.core.ops.erf import erfc

# What each forward keeps. An engine that keeps something else has types of its own: by its type, a backward
# knows whose residual it is given.
LinearSaved = namedtuple("LinearSaved", "x weight")
GeluSaved = namedtuple("GeluSaved", "x cdf")
TanhSaved = namedtuple("TanhSaved", "y")
LayerNormSaved = namedtuple("LayerNormSaved", "x_hat rstd gamma")
EmbeddingSaved = namedtuple("EmbeddingSaved", "ids")
TakeRowsSaved = namedtuple("TakeRowsSaved", "rows x")


class Primitives:
    """Dense operations and gathers over one array library, `xp`: NumPy or one with the same functions."""

    def __init__(self, xp: Any = np) -> None:
        self.xp = xp

    def cast(self, x: Array, dtype: Any) -> Array:
        """Convert to another precision: the one place where it changes."""
        return self.xp.asarray(x).astype(dtype)

    def upcast(self, x: Array) -> Array:
        """Return activations in at least float32, where an engine keeps its own in a lower precision."""
        return x

    def accumulate(self, total: Array, extra: Array) -> Array:
        """Add to an accumulator, which is consumed and returned: in place for NumPy, a new array for JAX."""
        total += extra
        return total

    def add_gradients(self, grads: Grads, **fresh: Array) -> Grads:
        """Add gradients to the accumulators of the same names."""
        return grads | {name: self.accumulate(grads[name], gradient) for name, gradient in fresh.items()}

    # a (M,K)  b (K,N) -> (M,N)
    def _product(self, a: Array, b: Array) -> Array:
        """Return a @ b, which an engine may override with something faster."""
        return a @ b

    # x (T,K)  weight (K,N)  bias (N,) -> (T,N)
    def linear(self, x: Array, weight: Array, bias: Array) -> tuple[Array, Saved]:
        """Return x @ weight + bias."""
        return x @ weight + bias, LinearSaved(x, weight)

    # y = x W + b:  dx = dy W^T,  dW = x^T dy,  db = sum of dy over the rows
    # dy (T,N) -> dx (T,K)  dweight (K,N)  dbias (N,)
    def linear_backward(self, dy: Array, saved: Saved) -> tuple[Array, Array, Array]:
        """Return the gradients of `linear`."""
        return dy @ saved.weight.T, saved.x.T @ dy, dy.sum(0)

    # x (...) -> (...)
    def gelu(self, x: Array, form: str) -> tuple[Array, Saved]:
        """Return x Phi(x), Phi the normal distribution function (Hendrycks & Gimpel 2016).

        Parameters
        ----------
        x : any shape.
        form : "erf", the exact function, or "tanh", the approximation
            0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) of BERT's later releases.
        """
        if form == "erf":
            cdf = 0.5 * self._erfc(x * -math.sqrt(0.5))
        else:
            cdf = 0.5 + 0.5 * self.xp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))
        return x * cdf, GeluSaved(x, cdf)

    def _erfc(self, x: Array) -> Array:
        return erfc(self.xp, x)

    # y = x c(x), c the cdf, hence dy/dx = c + x c'(x), where
    #   erf:   c' = exp(-x^2 / 2) / sqrt(2 pi)
    #   tanh:  c' = 2 c (1 - c) u'(x),  u = sqrt(2/pi) (x + 0.044715 x^3),  as (1 - tanh^2)/2 = 2 c (1 - c)
    # dy (...) -> dx (...)
    def gelu_backward(self, dy: Array, saved: Saved, form: str) -> Array:
        """Return the gradient of `gelu`."""
        x, cdf = saved.x, saved.cdf
        if form == "erf":
            slope = self.xp.exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
        else:
            slope = 2 * cdf * (1 - cdf) * (math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x))
        return dy * (cdf + x * slope)

    # x (...) -> (...)
    def tanh(self, x: Array) -> tuple[Array, Saved]:
        """Return the hyperbolic tangent."""
        y = self.xp.tanh(x)
        return y, TanhSaved(y)

    # dy (...) -> dx (...)
    def tanh_backward(self, dy: Array, saved: Saved) -> Array:
        """Return dx = dy (1 - y^2)."""
        return dy * (1 - saved.y * saved.y)

    # x (T,H)  gamma (H,)  beta (H,) -> (T,H)
    def layer_norm(self, x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Array, Saved]:
        """Return gamma (x - mean) / sqrt(variance + eps) + beta over each row (Ba et al. 2016)."""
        centred = x - x.mean(-1, keepdims=True)
        rstd = 1 / self.xp.sqrt((centred * centred).mean(-1, keepdims=True) + eps)
        x_hat = centred * rstd
        return x_hat * gamma + beta, LayerNormSaved(x_hat, rstd, gamma)

    # x_hat = (x - mean) rstd with rstd = 1/sqrt(var + eps), and g = dy gamma the gradient of x_hat. Mean and
    # variance both depend on x: the first takes out the mean of g, the second the part of g along x_hat:
    #   dx = rstd (g - mean(g) - x_hat mean(g x_hat))
    # dy (T,H) -> dx (T,H)  dgamma (H,)  dbeta (H,)
    def layer_norm_backward(self, dy: Array, saved: Saved) -> tuple[Array, Array, Array]:
        """Return the gradients of `layer_norm`."""
        x_hat, g = saved.x_hat, dy * saved.gamma
        dx = saved.rstd * (g - g.mean(-1, keepdims=True) - x_hat * (g * x_hat).mean(-1, keepdims=True))
        return dx, (dy * x_hat).sum(0), dy.sum(0)

    # ids (T,)  table (V,H) -> (T,H)
    def embedding(self, ids: Array, table: Array) -> tuple[Array, Saved]:
        """Look up rows of a table by number."""
        return table[ids], EmbeddingSaved(ids)

    # dy (T,H)  dtable (V,H) -> dtable (V,H)
    def embedding_backward(self, dy: Array, saved: Saved, dtable: Array) -> Array:
        """Add every row of dy to the row of the table that it came from; the accumulator is returned."""
        return self.scatter_add(dtable, saved.ids, dy)

    # total (V,H)  ids (T,)  rows (T,H) -> (V,H)
    def scatter_add(self, total: Array, ids: Array, rows: Array) -> Array:
        """Add rows to those of a table: total[ids[t]] += rows[t], equal ids adding up; in place for NumPy.

        Equal ids are brought together and summed first: many times faster than `np.add.at`.
        """
        if not len(ids):
            return total
        order = np.argsort(ids, kind="stable")
        ascending = ids[order]
        begins = np.flatnonzero(np.concatenate([[True], ascending[1:] != ascending[:-1]]))
        total[ascending[begins]] += np.add.reduceat(rows[order], begins, axis=0)
        return total

    # x (T,H)  rows (M,) -> (M,H)
    def take_rows(self, x: Array, rows: Array) -> tuple[Array, Saved]:
        """Take some rows of x, in its dtype: the masked positions, the [CLS] of each sequence."""
        return x[rows], TakeRowsSaved(rows, x)

    # dy (M,H) -> (T,H)
    def take_rows_backward(self, dy: Array, saved: Saved) -> Array:
        """Put the rows of dy back where they were taken, zeros elsewhere."""
        return self.scatter_add(self.xp.zeros_like(saved.x), saved.rows, dy)

    # token_sequences positions (T,), from the batch -> row keys (T,2)
    def dropout(
        self, batch: Any, rate: float, attention_rate: float, seed: Any, step: Any
    ) -> random.Dropout | None:
        """Return the source of a batch's dropout at one training step, or None when both rates are zero.

        Parameters
        ----------
        batch : its `token_sequences` and `positions` name each row, whatever the layout of the batch.
        rate, attention_rate : probabilities of dropping an element.
        seed, step : what makes this run and this step different from others.
        """
        if not rate and not attention_rate:
            return None
        return random.Dropout(rate, attention_rate, self._row_keys(batch, seed, step))

    # -> (T,2)
    def _row_keys(self, batch: Any, seed: Any, step: Any) -> Array:
        return random.row_keys(self.xp, seed, step, batch.token_sequences, batch.positions)

    # -> (T,columns) of `dtype`: 0 where dropped, 1 / (1 - rate) elsewhere
    def dropout_mask(self, drop: random.Dropout, site: int, columns: int, dtype: Any) -> Array:
        """Draw the multipliers of dropout at one place in the network (Srivastava et al. 2014)."""
        keys = random.fold(self.xp, drop.rows, *random.words(self.xp, site))
        kept = random.keep(self.xp, keys, columns, drop.rate)
        return self.cast(kept, dtype) * random.kept_scale(drop.rate)
