"""The operations that BERT is made of, forward and backward, written by hand.

Every forward returns its result and `saved`, the arrays that its backward needs; every backward takes the
gradient of the loss with respect to the result, dy, and returns new arrays with the gradients of the inputs.
Only `embedding_backward` adds to an array that it is given: most rows of a table have no gradient.

Nothing here branches on the value of an array, and everything is holomorphic: `x * x`, never `abs`;
comparisons look at `.real` only. Complex arrays therefore carry exact derivatives through all of it (see
`gradcheck`).

Read next: `attention`, `losses`, and then `blocks`, which is made of these.
"""

import math
from collections import namedtuple
from typing import Any

import numpy as np

from minibert.core.arrays import Array, Grads, Saved
from minibert.core.ops import dropout_bits
from minibert.core.ops.erf import erfc

# What each forward keeps. An engine that keeps something else defines its own types, so that a backward can
# tell from the type which engine made what it is given.
LinearSaved = namedtuple("LinearSaved", "x weight")
GeluSaved = namedtuple("GeluSaved", "x cdf")
TanhSaved = namedtuple("TanhSaved", "y")
LayerNormSaved = namedtuple("LayerNormSaved", "x_hat rstd gamma")
EmbeddingSaved = namedtuple("EmbeddingSaved", "ids")
TakeRowsSaved = namedtuple("TakeRowsSaved", "rows x")


class Primitives:
    """Dense operations and gathers on the arrays of one library, `xp`.

    Parameters
    ----------
    xp : module, the array library: `numpy`, or one with the same functions, such as `jax.numpy`.
    """

    def __init__(self, xp: Any = np) -> None:
        self.xp = xp

    def cast(self, x: Array, dtype: Any) -> Array:
        """Convert to another precision; nothing else changes precision.

        Parameters
        ----------
        x : array of any shape.
        dtype : the dtype of the result, which is a copy even if `x` has this dtype already.

        Returns
        -------
        array of the same shape.
        """
        return self.xp.asarray(x).astype(dtype)

    def upcast(self, x: Array) -> Array:
        """Return activations in at least float32, for engines that store them in a lower precision.

        Parameters
        ----------
        x : activations of any shape.

        Returns
        -------
        array of the same shape; here `x` itself, as NumPy computes in the precision of the parameters.
        """
        return x

    def accumulate(self, total: Array, extra: Array) -> Array:
        """Add to an accumulator: in place with NumPy, into a new array with JAX.

        Parameters
        ----------
        total : the accumulator, consumed: only the result may be used afterwards.
        extra : what to add, of the same shape.

        Returns
        -------
        array, the sum.
        """
        total += extra
        return total

    def add_gradients(self, grads: Grads, **fresh: Array) -> Grads:
        """Add gradients to the accumulators of the same names.

        Parameters
        ----------
        grads : accumulators by name, consumed.
        **fresh : the gradients to add, by the names of their accumulators.

        Returns
        -------
        dict, `grads` with these names replaced by the sums.
        """
        sums = {name: self.accumulate(grads[name], gradient) for name, gradient in fresh.items()}
        return grads | sums

    # a (M,K)  b (K,N) -> (M,N)
    def _product(self, a: Array, b: Array) -> Array:
        """Return a @ b, which an engine may override with something faster."""
        return a @ b

    # x (T,K)  weight (K,N)  bias (N,) -> (T,N)
    def linear(self, x: Array, weight: Array, bias: Array) -> tuple[Array, Saved]:
        """Return x @ weight + bias.

        Parameters
        ----------
        x : (T,K) activations.
        weight : (K,N), inputs by outputs.
        bias : (N,).

        Returns
        -------
        y : (T,N).
        saved : x and weight; the bias has no part in any gradient.
        """
        return x @ weight + bias, LinearSaved(x, weight)

    # y = x W + b:  dx = dy W^T,  dW = x^T dy,  db = sum of dy over the rows
    # dy (T,N) -> dx (T,K)  dweight (K,N)  dbias (N,)
    def linear_backward(self, dy: Array, saved: Saved) -> tuple[Array, Array, Array]:
        """Return the gradients of `linear`.

        Parameters
        ----------
        dy : (T,N) gradient of y.
        saved : what `linear` kept.

        Returns
        -------
        dx : (T,K).
        dweight : (K,N).
        dbias : (N,).
        """
        return dy @ saved.weight.T, saved.x.T @ dy, dy.sum(0)

    # x (...) -> (...)
    def gelu(self, x: Array, form: str) -> tuple[Array, Saved]:
        """Return x Phi(x), where Phi is the normal distribution function (Hendrycks & Gimpel 2016).

        Parameters
        ----------
        x : array of any shape.
        form : "erf", the exact function, or "tanh", the approximation
            0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) of BERT's later releases.

        Returns
        -------
        y : as x.
        saved : x and Phi(x).
        """
        if form == "erf":
            cdf = 0.5 * self._erfc(x * -math.sqrt(0.5))
        else:
            cdf = 0.5 + 0.5 * self.xp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))
        return x * cdf, GeluSaved(x, cdf)

    # y = x c(x), c the cdf, hence dy/dx = c + x c'(x), where
    #   erf:   c' = exp(-x^2 / 2) / sqrt(2 pi)
    #   tanh:  c' = 2 c (1 - c) u'(x),  u = sqrt(2/pi) (x + 0.044715 x^3),  as (1 - tanh^2)/2 = 2 c (1 - c)
    # dy (...) -> dx (...)
    def gelu_backward(self, dy: Array, saved: Saved, form: str) -> Array:
        """Return the gradient of `gelu`.

        Parameters
        ----------
        dy : gradient of y, of its shape.
        saved : what `gelu` kept.
        form : the form that `gelu` was called with.

        Returns
        -------
        dx : as dy.
        """
        x, cdf = saved.x, saved.cdf
        if form == "erf":
            slope = self.xp.exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
        else:
            slope = 2 * cdf * (1 - cdf) * (math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x))
        return dy * (cdf + x * slope)

    def _erfc(self, x: Array) -> Array:
        return erfc(self.xp, x)

    # x (...) -> (...)
    def tanh(self, x: Array) -> tuple[Array, Saved]:
        """Return the hyperbolic tangent.

        Parameters
        ----------
        x : array of any shape.

        Returns
        -------
        y : as x.
        saved : y, from which the derivative is computed.
        """
        y = self.xp.tanh(x)
        return y, TanhSaved(y)

    # dy (...) -> dx (...)
    def tanh_backward(self, dy: Array, saved: Saved) -> Array:
        """Return dx = dy (1 - y^2).

        Parameters
        ----------
        dy : gradient of y, of its shape.
        saved : what `tanh` kept.

        Returns
        -------
        dx : as dy.
        """
        return dy * (1 - saved.y * saved.y)

    # x (T,H)  gamma (H,)  beta (H,) -> (T,H)
    def layer_norm(
        self,
        x: Array,
        gamma: Array,
        beta: Array,
        eps: float,
    ) -> tuple[Array, Saved]:
        """Return gamma (x - mean) / sqrt(variance + eps) + beta over each row (Ba et al. 2016).

        Parameters
        ----------
        x : (T,H) activations.
        gamma, beta : (H,) scale and shift.
        eps : constant added to the variance, in which the sum of squares is divided by H, not by H - 1.

        Returns
        -------
        y : (T,H).
        saved : x_hat (T,H), rstd (T,1) and gamma; x itself is not needed.
        """
        centred = x - x.mean(-1, keepdims=True)
        variance = (centred * centred).mean(-1, keepdims=True)
        rstd = 1 / self.xp.sqrt(variance + eps)
        x_hat = centred * rstd
        return x_hat * gamma + beta, LayerNormSaved(x_hat, rstd, gamma)

    # x_hat = c rstd with c = x - mean(x), rstd = 1/sqrt(var + eps), var = mean(c^2). The gradient of x_hat is
    # g = dy gamma. It reaches c twice. Directly: g rstd. And through the variance: as
    #   d rstd / d var = -rstd^3 / 2,  d var / d c = 2 c / H,
    # the gradient of rstd, sum(g c), becomes sum(g c) (-rstd^3 / 2) (2 c / H) = -rstd^3 c mean(g c), which is
    # -rstd x_hat mean(g x_hat), as c rstd = x_hat in both places. So dc = rstd (g - x_hat mean(g x_hat)).
    # Then c = x - mean(x) subtracts the mean of dc, in which x_hat vanishes, as the mean of x_hat is zero:
    #   dx = dc - mean(dc) = rstd (g - mean(g) - x_hat mean(g x_hat))
    # dy (T,H) -> dx (T,H)  dgamma (H,)  dbeta (H,)
    def layer_norm_backward(self, dy: Array, saved: Saved) -> tuple[Array, Array, Array]:
        """Return the gradients of `layer_norm`.

        Parameters
        ----------
        dy : (T,H) gradient of y.
        saved : what `layer_norm` kept.

        Returns
        -------
        dx : (T,H).
        dgamma, dbeta : (H,).
        """
        x_hat = saved.x_hat
        g = dy * saved.gamma
        along = (g * x_hat).mean(-1, keepdims=True)
        dx = saved.rstd * (g - g.mean(-1, keepdims=True) - x_hat * along)
        return dx, (dy * x_hat).sum(0), dy.sum(0)

    # ids (T,)  table (V,H) -> (T,H)
    def embedding(self, ids: Array, table: Array) -> tuple[Array, Saved]:
        """Look up rows of a table by index.

        Parameters
        ----------
        ids : (T,) row indices.
        table : (V,H).

        Returns
        -------
        y : (T,H).
        saved : the ids.
        """
        return table[ids], EmbeddingSaved(ids)

    # dy (T,H)  dtable (V,H) -> dtable (V,H)
    def embedding_backward(self, dy: Array, saved: Saved, dtable: Array) -> Array:
        """Add each row of dy to the gradient of the table row that was looked up.

        Parameters
        ----------
        dy : (T,H) gradient of the rows looked up.
        saved : what `embedding` kept.
        dtable : (V,H) accumulator, consumed.

        Returns
        -------
        dtable : (V,H) the accumulator with the rows added.
        """
        return self.scatter_add(dtable, saved.ids, dy)

    # total (V,H)  ids (T,)  rows (T,H) -> (V,H)
    def scatter_add(self, total: Array, ids: Array, rows: Array) -> Array:
        """Add rows to the rows of a table: total[ids[t]] += rows[t] for every t; in place with NumPy.

        Rows with equal ids are sorted together and summed first, many times faster than `np.add.at`.

        Parameters
        ----------
        total : (V,H) accumulator, consumed.
        ids : (T,) index of the row of `total` that each row is added to.
        rows : (T,H).

        Returns
        -------
        total : (V,H).
        """
        if not len(ids):
            return total
        order = np.argsort(ids, kind="stable")
        ascending = ids[order]
        is_new = np.concatenate([[True], ascending[1:] != ascending[:-1]])
        begins = np.flatnonzero(is_new)
        total[ascending[begins]] += np.add.reduceat(rows[order], begins, axis=0)
        return total

    # x (T,H)  rows (M,) -> (M,H)
    def take_rows(self, x: Array, rows: Array) -> tuple[Array, Saved]:
        """Take some rows of x, such as the masked positions or the [CLS] of each sequence.

        Parameters
        ----------
        x : (T,H).
        rows : (M,) row indices.

        Returns
        -------
        y : (M,H), with the dtype of x.
        saved : the row indices, and x for its shape and dtype.
        """
        return x[rows], TakeRowsSaved(rows, x)

    # dy (M,H) -> (T,H)
    def take_rows_backward(self, dy: Array, saved: Saved) -> Array:
        """Put the rows of dy back where they were taken from, with zeros elsewhere.

        Parameters
        ----------
        dy : (M,H) gradient of the rows taken.
        saved : what `take_rows` kept.

        Returns
        -------
        dx : (T,H).
        """
        return self.scatter_add(self.xp.zeros_like(saved.x), saved.rows, dy)

    # token_sequences positions (T,), from the batch -> row keys (T,2)
    def dropout(
        self,
        batch: Any,
        rate: float,
        attention_rate: float,
        seed: Any,
        step: Any,
    ) -> dropout_bits.Dropout | None:
        """Return the source of a batch's dropout at one training step, or None when both rates are zero.

        Parameters
        ----------
        batch : the batch; its `token_sequences` and `positions` identify each row, whatever the layout.
        rate, attention_rate : probabilities of dropping an element, in [0, 1).
        seed, step : seed of the run, and index of the step.

        Returns
        -------
        Dropout, with the rates and the keys of the T rows, or None.
        """
        if not rate and not attention_rate:
            return None
        return dropout_bits.Dropout(rate, attention_rate, self._row_keys(batch, seed, step))

    # -> (T,2)
    def _row_keys(self, batch: Any, seed: Any, step: Any) -> Array:
        return dropout_bits.row_keys(self.xp, seed, step, batch.token_sequences, batch.positions)

    # -> (T,columns) of `dtype`: 0 where dropped, 1 / (1 - rate) elsewhere
    def dropout_mask(
        self,
        drop: dropout_bits.Dropout,
        site: int,
        columns: int,
        dtype: Any,
    ) -> Array:
        """Draw the multipliers of dropout at one place in the network (Srivastava et al. 2014).

        Parameters
        ----------
        drop : the source of the batch's dropout, with T rows.
        site : index of the place in the network.
        columns : how many elements a row has.
        dtype : dtype of the multipliers.

        Returns
        -------
        mask : (T,columns), 0 where dropped and 1 / (1 - rate) elsewhere.
        """
        keys = dropout_bits.fold(self.xp, drop.rows, *dropout_bits.words(self.xp, site))
        kept = dropout_bits.keep(self.xp, keys, columns, drop.rate)
        return self.cast(kept, dtype) * dropout_bits.kept_scale(drop.rate)
