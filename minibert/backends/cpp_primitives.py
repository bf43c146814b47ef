"""The engine in C++, operation by operation: float32 arrays go to the kernels of csrc/kernels.

An operation goes to the kernels when its arrays are float32 and laid out as the kernels take them; float64,
complex numbers and odd layouts fall through to NumPy, with the same results and no copy made in silence.

With `dtype="bfloat16"` matrix products round their operands to bfloat16 and add up in float32. Parameters,
gradients of parameters, statistics and losses stay float32. NumPy knows no bfloat16: such an array is carried
as uint16, the upper halves of floats.
"""

from typing import Any

import numpy as np

from minibert.backends import _kernels
from minibert.errors import InputError
from minibert.ops import AdamRule, Ops, random
from minibert.ops.primitives import Saved

FLOAT, INDEX, BFLOAT16 = np.dtype(np.float32), np.dtype(np.int32), np.dtype(np.uint16)
empty = _kernels.empty
available = _kernels.available  # instruction sets, the fastest first


def multiply_add_rate(threads: int, seconds: float, narrow: bool, isa: str = "") -> float:
    """GFLOP/s of multiply-adds from registers, by the fastest instruction set there is or another."""
    return _kernels.Engine(isa, threads).multiply_add_rate(seconds, narrow)


class CppPrimitives(Ops):
    """Operation by operation."""

    def __init__(self, xp: Any = np, threads: int = 1, isa: str = "", dtype: str = "float32") -> None:
        super().__init__(xp)
        self._narrow = dtype == "bfloat16"
        self._cleared: np.ndarray | None = None  # accumulators that AdamW has set to zero
        try:
            self._run = _kernels.Engine(isa, threads, self._narrow)
        except ValueError as error:
            raise InputError(str(error)) from None

    @property
    def _details(self) -> str:
        count = f"{self._run.threads} thread" + ("s" if self._run.threads > 1 else "")
        dtype = "in bfloat16, " if self._narrow else ""
        return f"{dtype}instruction set {self._run.isa} (available: {', '.join(available())}), {count}"

    def widen(self, x: Any) -> Any:
        """An array as float32, if it is one of bfloat16."""
        if not self._is_narrow(x):
            return x
        bits = x.astype(np.uint32)
        bits <<= 16
        return bits.view(FLOAT)

    def _is_narrow(self, x: Any) -> bool:
        """Whether x is an activation in bfloat16; a float32 engine makes none, so uint16 is left alone."""
        return self._narrow and x.dtype == BFLOAT16

    def accumulate(self, total: Any, extra: Any) -> Any:
        """total += extra, in place."""
        if not whole(total, extra) or total.shape != extra.shape:
            return super().accumulate(total, extra)
        self._run.accumulate(total, extra)
        return total

    # x (T,K)  weight (K,N)  bias (N,) -> (T,N)
    def linear(self, x: Any, weight: Any, bias: Any) -> tuple[Any, Saved]:
        """x @ weight + bias."""
        x = self.widen(x)
        if not (_matrices(x, weight) and whole(bias)):
            return super().linear(x, weight, bias)
        y = empty((x.shape[0], weight.shape[1]))
        self._run.linear(x, weight, bias, y)
        return y, (x, weight)

    # dy (T,N) -> dx (T,K)  dweight (K,N)  dbias (N,)
    def linear_backward(self, dy: Any, saved: Saved) -> tuple[Any, Any, Any]:
        """Gradients of `linear`."""
        x, weight = saved
        if not (_matrices(x, weight) and whole(dy)):
            return super().linear_backward(dy, saved)
        dx, dweight, dbias = empty(x.shape), empty(weight.shape), empty(weight.shape[1:])
        self._run.gemm(dy, weight.T, dx, False)
        self._run.gemm(x.T, dy, dweight, False)
        self._run.column_sums(dy, None, dbias, False)
        return dx, dweight, dbias

    # a (M,K)  b (K,N) -> (M,N)
    def _product(self, a: Any, b: Any) -> Any:
        """a @ b, any strides."""
        if not _matrices(a, b):
            return super()._product(a, b)
        out = empty((a.shape[0], b.shape[1]))
        self._run.gemm(a, b, out, False)
        return out

    # x (...) -> (...)
    def gelu(self, x: Any, form: str) -> tuple[Any, Saved]:
        """x Phi(x); backward computes Phi anew, so only x is kept."""
        if not whole(x):
            return super().gelu(x, form)
        y = empty(x.shape)
        self._run.gelu(x, y, form == "tanh")
        return y, (x,)

    def gelu_backward(self, dy: Any, saved: Saved, form: str) -> Any:
        """Gradient of `gelu`."""
        if len(saved) == 2:  # the reference's own
            return super().gelu_backward(dy, saved, form)
        (x,) = saved
        dx = empty(x.shape)
        self._run.gelu_backward(in_one_piece(dy), x, dx, form == "tanh")
        return dx

    # x (...) -> (...)
    def tanh(self, x: Any) -> tuple[Any, Saved]:
        """Hyperbolic tangent."""
        if not whole(x):
            return super().tanh(x)
        y = empty(x.shape)
        self._run.tanh(x, y)
        return y, (y,)

    def tanh_backward(self, dy: Any, saved: Saved) -> Any:
        """dx = dy (1 - y^2)."""
        (y,) = saved
        if not whole(dy, y):
            return super().tanh_backward(dy, saved)
        dx = empty(y.shape)
        self._run.tanh_backward(dy, y, dx)
        return dx

    # x (T,H)  gamma (H,)  beta (H,) -> (T,H)
    def layer_norm(self, x: Any, gamma: Any, beta: Any, eps: float) -> tuple[Any, Saved]:
        """gamma (x - mean) / sqrt(variance + eps) + beta; kept are x, mean and 1 / sqrt(variance + eps)."""
        if not whole(x, gamma, beta) or x.ndim != 2:
            return super().layer_norm(x, gamma, beta, eps)
        y, mean, inverse = empty(x.shape), empty(x.shape[:1]), empty(x.shape[:1])
        self._run.layer_norm(x, gamma, beta, eps, y, mean, inverse)
        return y, (x, mean, inverse, gamma)

    # dy (T,H) -> dx (T,H)  dgamma (H,)  dbeta (H,)
    def layer_norm_backward(self, dy: Any, saved: Saved) -> tuple[Any, Any, Any]:
        """Gradients of `layer_norm`."""
        if len(saved) == 3:  # the reference's own
            return super().layer_norm_backward(dy, saved)
        x, mean, inverse, gamma = saved
        dx, dgamma, dbeta = empty(x.shape), empty(gamma.shape), empty(gamma.shape)
        self._run.layer_norm_backward(in_one_piece(dy), x, mean, inverse, gamma, dx, dgamma, dbeta, False)
        return dx, dgamma, dbeta

    # ids (T,)  table (V,H) -> (T,H)
    def embedding(self, ids: Any, table: Any) -> tuple[Any, Saved]:
        """Rows of a table by number."""
        return self._rows(ids, table), (ids,)

    # x (T,H)  rows (M,) -> (M,H)
    def take_rows(self, x: Any, rows: Any) -> tuple[Any, Saved]:
        """Some rows of x, as precise as x: the masked positions, the [CLS] of each sequence."""
        return x[rows] if self._is_narrow(x) else self._rows(rows, x), (rows, x)

    # dy (M,H) -> dx (T,H)
    def take_rows_backward(self, dy: Any, saved: Saved) -> Any:
        """Zero wherever no row was taken; float32 also where x was not."""
        rows, x = saved
        if not self._is_narrow(x):
            return super().take_rows_backward(dy, saved)
        return self.scatter_add(np.zeros(x.shape, FLOAT), rows, dy)

    def _rows(self, ids: Any, table: Any) -> Any:
        if not (indices(ids) and whole(table) and table.ndim == 2):
            return table[ids]
        out = empty((len(ids), table.shape[1]))
        self._run.gather(ids, table, out)
        return out

    # total (V,H)  ids (T,)  rows (T,H) -> (V,H)
    def scatter_add(self, total: Any, ids: Any, rows: Any) -> Any:
        """total[ids[t]] += rows[t] for every t, in the order of t, in place."""
        if not (indices(ids) and whole(total, rows) and total.ndim == 2):
            return super().scatter_add(total, ids, rows)
        self._run.scatter_add(ids, rows, total)
        return total

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
        """softmax(q k^T / sqrt(D)) v; of each softmax only its maximum and its sum are kept."""
        if not (all(map(_heads, (q, k, v))) and indices(cu_seqlens)):
            return super().attention(q, k, v, cu_seqlens, causal, drop, site)
        y, softmax = empty(q.shape), empty((q.shape[0] * q.shape[1], 2))
        dropped = draws(drop, drop.attention_rate if drop else 0.0, site)
        self._run.attention(q, k, v, cu_seqlens, bool(causal), dropped, y, softmax)
        return y, (q, k, v, cu_seqlens, y, softmax, np.asarray(bool(causal)), dropped)

    # dy (T,A,D) -> dq dk dv (T,A,D)
    def attention_backward(self, dy: Any, saved: Saved) -> tuple[Any, Any, Any]:
        """Gradients of `attention`."""
        if len(saved) == 5:  # the reference's own
            return super().attention_backward(dy, saved)
        q, k, v, cu_seqlens, y, softmax, causal, dropped = saved
        dq, dk, dv = (empty(q.shape) for _ in "qkv")
        dy = dy if _heads(dy) else in_one_piece(dy)
        self._run.attention_backward(dy, q, k, v, cu_seqlens, bool(causal), dropped, y, softmax, dq, dk, dv)
        return dq, dk, dv

    # logits (N,K)  labels (N,) -> (N,)
    def softmax_cross_entropy(self, logits: Any, labels: Any) -> tuple[Any, Saved]:
        """-log softmax(logits)[label] of every row, in nats."""
        ids = as_indices(labels)
        if ids is None or not whole(logits) or logits.ndim != 2:
            return super().softmax_cross_entropy(logits, labels)
        gradient, nll = empty(logits.shape), empty(logits.shape[:1])
        np.copyto(gradient, logits)
        self._run.softmax_cross_entropy(gradient, ids, nll, np.empty(len(ids), INDEX))
        return nll, (gradient,)

    # dnll (N,) -> dlogits (N,K)
    def softmax_cross_entropy_backward(self, dnll: Any, saved: Saved) -> Any:
        """Gradient of `softmax_cross_entropy`, which has computed that of each row's nll."""
        if len(saved) == 2:  # the reference's own
            return super().softmax_cross_entropy_backward(dnll, saved)
        (gradient,) = saved
        self._run.scale_rows(gradient, in_one_piece(dnll))
        return gradient

    # -> (T,columns) of `dtype`: 0 where dropped, 1 / (1 - rate) elsewhere
    def dropout_mask(self, drop: random.Dropout, site: Any, columns: int, dtype: Any) -> Any:
        """Multipliers of dropout at one place in the network."""
        if np.dtype(dtype) != FLOAT or not drop.rate:
            return super().dropout_mask(drop, site, columns, dtype)
        mask = empty((len(drop.rows), columns))
        mask.fill(1)
        self._run.dropout(mask, mask, draws(drop, drop.rate, site))
        return mask

    def _dropout(self, x: Any, drop: random.Dropout | None, site: Any) -> tuple[Any, Saved]:
        if drop is None or not drop.rate or not whole(x):
            return super()._dropout(x, drop, site)
        y, dropped = empty(x.shape), draws(drop, drop.rate, site)
        self._run.dropout(x, y, dropped)
        return y, dropped

    def _dropout_backward(self, dy: Any, saved: Saved) -> Any:
        if len(saved) < 2:  # the reference's own
            return super()._dropout_backward(dy, saved)
        dx = empty(dy.shape)
        self._run.dropout(in_one_piece(dy), dx, saved)
        return dx

    # (N,)
    def _clear(self, flat: Any) -> None:
        if flat is self._cleared:
            self._cleared = None
        elif whole(flat) and flat.ndim == 1:
            self._run.clear(flat)
        else:
            super()._clear(flat)

    # grads (N,) -> scalar
    def global_norm(self, grads: Any) -> Any:
        """Euclidean norm of all gradients together, summed in double precision."""
        if not whole(grads) or grads.ndim != 1:
            return super().global_norm(grads)
        return self._run.global_norm(grads)

    # params grads m v (N,)  decayed (K,2) -> params m v (N,)
    def adamw(
        self, params: Any, grads: Any, m: Any, v: Any, decayed: np.ndarray, rule: AdamRule
    ) -> tuple[Any, Any, Any]:
        """One step of AdamW in one sweep over memory, which leaves the engine's own accumulators at zero."""
        if not (whole(params, grads, m, v) and params.ndim == 1 and decayed.dtype == np.int64):
            return super().adamw(params, grads, m, v, decayed, rule)
        lr, _, *numbers, _, clip = rule
        ours = self._gradients is not None and grads is self._gradients.flat
        self._run.adamw(params, grads, m, v, decayed, lr, *numbers, *rule.corrections, clip, ours)
        self._cleared = grads if ours else None
        return params, m, v


def whole(*arrays: Any) -> bool:
    """Whether all are float32 in one piece."""
    return all(type(a) is np.ndarray and a.dtype == FLOAT and a.flags.c_contiguous for a in arrays)


def stored(x: Any) -> bool:
    """Whether x is bfloat16 in one piece."""
    return type(x) is np.ndarray and x.dtype == BFLOAT16 and x.flags.c_contiguous


def _matrices(*arrays: Any) -> bool:
    """Whether all are float32 with two dimensions; any strides will do."""
    return all(type(a) is np.ndarray and a.dtype == FLOAT and a.ndim == 2 for a in arrays)


def indices(x: Any) -> bool:
    """Whether x is a line of int32 in one piece."""
    return type(x) is np.ndarray and x.dtype == INDEX and x.ndim == 1 and x.flags.c_contiguous


def as_indices(x: Any) -> Any:
    """A few whole numbers as int32, None where they are something else or do not fit."""
    if indices(x):
        return x
    narrow = np.asarray(x).astype(INDEX)
    return narrow if narrow.ndim == 1 and np.array_equal(narrow, x) else None


def in_one_piece(dy: Any) -> Any:
    """A gradient from outside as float32 in one piece; that of a block of this engine is so already."""
    return np.ascontiguousarray(dy, FLOAT)


def _heads(x: Any) -> bool:
    """Whether x (T,A,D) is float32 and the heads of a token lie side by side, tokens perhaps apart."""
    if type(x) is not np.ndarray or x.dtype != FLOAT or x.ndim != 3:
        return False
    _, A, D = x.shape
    along, across, within = x.strides
    return (within == 4 or D == 1) and (across == 4 * D or A == 1) and along >= 4 * A * D


def draws(drop: random.Dropout | None, rate: float, site: Any) -> Saved:
    """What a kernel draws the same bits from again: row keys and (site, threshold); () for no dropout."""
    if drop is None or not rate:
        return ()
    [word] = random.words(np, site)
    return drop.rows, np.array([word[0], random.threshold(rate)], np.uint32)
