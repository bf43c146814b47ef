"""The operations BERT is made of, forward and backward, by hand.

Every forward returns its result and `saved`, the arrays that its backward needs; every backward takes the
gradient of the loss with respect to the result, dy, and returns fresh gradients of the inputs. Nothing here
branches on the value of an array, and everything is holomorphic: `x * x`, never `abs`; comparisons look at
`.real` only. Complex arrays therefore carry exact derivatives through all of it (see `gradcheck.py`).
"""

import math
from functools import partial
from typing import Any, Self

import numpy as np

from minibert.ops import random
from minibert.ops.erf import erfc

Saved = tuple[Any, ...]


class Primitives:
    """Dense operations and gathers over one array library.

    Parameters
    ----------
    xp : the array library, NumPy or one with the same functions.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        made = super().__new__(cls)
        made._made_with = args, kwargs
        return made

    def __init__(self, xp: Any = np) -> None:
        self.xp = xp

    def __deepcopy__(self, _: dict) -> "Primitives":
        return self  # copies of a model share their engine

    def __reduce__(self) -> tuple:
        # Threads, compiled code and memory stay in this process: another one makes an engine of its own.
        args, kwargs = self._made_with
        return partial(type(self), **kwargs), args

    def cast(self, x: Any, dtype: Any) -> Any:
        """The one place where precision changes."""
        return self.xp.asarray(x).astype(dtype)

    def widen(self, x: Any) -> Any:
        """Activations in at least float32, where an engine keeps its own in a lower precision."""
        return x

    def accumulate(self, total: Any, extra: Any) -> Any:
        """Accumulators are consumed and returned: NumPy adds in place, immutable arrays make a new one."""
        total += extra
        return total

    # x (T,K)  weight (K,N)  bias (N,) -> (T,N)
    def linear(self, x: Any, weight: Any, bias: Any) -> tuple[Any, Saved]:
        """x @ weight + bias."""
        return x @ weight + bias, (x, weight)

    # y = x W + b:  dx = dy W^T,  dW = x^T dy,  db = sum of dy over the rows
    # dy (T,N) -> dx (T,K)  dweight (K,N)  dbias (N,)
    def linear_backward(self, dy: Any, saved: Saved) -> tuple[Any, Any, Any]:
        """Gradients of `linear`."""
        x, weight = saved
        return dy @ weight.T, x.T @ dy, dy.sum(0)

    # x (...) -> (...)
    def gelu(self, x: Any, form: str) -> tuple[Any, Saved]:
        """x Phi(x), Phi the normal distribution function (Hendrycks & Gimpel 2016).

        Parameters
        ----------
        x : any shape.
        form : "erf", the exact function, or "tanh", the approximation
            0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) of BERT's later releases.
        """
        if form == "erf":
            cdf = 0.5 * erfc(self.xp, x * -math.sqrt(0.5))
        else:
            cdf = 0.5 + 0.5 * self.xp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))
        return x * cdf, (x, cdf)

    # y = x c(x), c the cdf, hence dy/dx = c + x c'(x), where
    #   erf:   c' = exp(-x^2 / 2) / sqrt(2 pi)
    #   tanh:  c' = 2 c (1 - c) u'(x),  u = sqrt(2/pi) (x + 0.044715 x^3),  as (1 - tanh^2)/2 = 2 c (1 - c)
    # dy (...) -> dx (...)
    def gelu_backward(self, dy: Any, saved: Saved, form: str) -> Any:
        """Gradient of `gelu`."""
        x, cdf = saved
        if form == "erf":
            slope = self.xp.exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
        else:
            slope = 2 * cdf * (1 - cdf) * (math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x))
        return dy * (cdf + x * slope)

    # x (...) -> (...)
    def tanh(self, x: Any) -> tuple[Any, Saved]:
        """Hyperbolic tangent."""
        y = self.xp.tanh(x)
        return y, (y,)

    # dy (...) -> dx (...)
    def tanh_backward(self, dy: Any, saved: Saved) -> Any:
        """dx = dy (1 - y^2)."""
        (y,) = saved
        return dy * (1 - y * y)

    # x (T,H)  gamma (H,)  beta (H,) -> (T,H)
    def layer_norm(self, x: Any, gamma: Any, beta: Any, eps: float) -> tuple[Any, Saved]:
        """gamma (x - mean) / sqrt(variance + eps) + beta over each row (Ba et al. 2016)."""
        centred = x - x.mean(-1, keepdims=True)
        inverse = 1 / self.xp.sqrt((centred * centred).mean(-1, keepdims=True) + eps)
        normal = centred * inverse
        return normal * gamma + beta, (normal, inverse, gamma)

    # n = (x - mean) r with r = 1/sqrt(var + eps), and g = dy gamma the gradient of n. Mean and variance both
    # depend on x: the first takes out the mean of g, the second the part of g along n:
    #   dx = r (g - mean(g) - n mean(g n))
    # dy (T,H) -> dx (T,H)  dgamma (H,)  dbeta (H,)
    def layer_norm_backward(self, dy: Any, saved: Saved) -> tuple[Any, Any, Any]:
        """Gradients of `layer_norm`."""
        normal, inverse, gamma = saved
        along = dy * normal
        g = dy * gamma
        dx = inverse * (g - g.mean(-1, keepdims=True) - normal * (g * normal).mean(-1, keepdims=True))
        return dx, along.sum(0), dy.sum(0)

    # ids (T,)  table (V,H) -> (T,H)
    def embedding(self, ids: Any, table: Any) -> tuple[Any, Saved]:
        """Rows of a table by number."""
        return table[ids], (ids,)

    # dy (T,H)  dtable (V,H) -> dtable (V,H)
    def embedding_backward(self, dy: Any, saved: Saved, dtable: Any) -> Any:
        """Add every row of dy to the row of the table that it came from; the accumulator is returned."""
        (ids,) = saved
        return self.scatter_add(dtable, ids, dy)

    # total (V,H)  ids (T,)  rows (T,H) -> (V,H)
    def scatter_add(self, total: Any, ids: Any, rows: Any) -> Any:
        """total[ids[t]] += rows[t] for every t, equal ids adding up; in place for NumPy.

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
    def take_rows(self, x: Any, rows: Any) -> tuple[Any, Saved]:
        """Some rows of x, as precise as x: the masked positions, the [CLS] of each sequence."""
        return x[rows], (rows, x)

    # dy (M,H) -> (T,H)
    def take_rows_backward(self, dy: Any, saved: Saved) -> Any:
        """Zero wherever no row was taken."""
        rows, x = saved
        return self.scatter_add(self.xp.zeros_like(x), rows, dy)

    # sequence_index (S,), lengths and positions from the batch -> row keys (T,2)
    def dropout(
        self, batch: Any, rate: float, attention_rate: float, seed: Any, step: Any
    ) -> random.Dropout | None:
        """The source of a batch's dropout at one training step, or None when both rates are zero.

        Parameters
        ----------
        batch : its `sequence_index` and `positions` name each row, whatever the layout of the batch.
        rate, attention_rate : probabilities of dropping an element.
        seed, step : what makes this run and this step different from others.
        """
        if not rate and not attention_rate:
            return None
        return random.Dropout(
            rate,
            attention_rate,
            random.row_keys(self.xp, seed, step, batch.token_sequences, batch.positions),
        )

    # -> (T,columns) of `dtype`: 0 where dropped, 1 / (1 - rate) elsewhere
    def dropout_mask(self, drop: random.Dropout, site: Any, columns: int, dtype: Any) -> Any:
        """Multipliers of dropout at one place in the network (Srivastava et al. 2014), drawn anew."""
        keys = random.fold(self.xp, drop.rows, *random.words(self.xp, site))
        kept = random.keep(self.xp, keys, columns, drop.rate)
        return self.cast(kept, dtype) * random.kept_scale(drop.rate)
