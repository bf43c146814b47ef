"""The engine in C++, operation by operation: float32 arrays go to the kernels of csrc/kernels.

An operation goes to the kernels when its arrays are float32 and laid out as the kernels take them; float64,
complex numbers and odd layouts fall through to NumPy, with the same results and no copy made in silence.

With `dtype="bfloat16"` matrix products round their operands to bfloat16 and add up in float32. Parameters,
gradients of parameters, statistics and losses stay float32. NumPy knows no bfloat16: such an array is carried
as uint16, the upper halves of floats.
"""

import os
from collections import namedtuple
from typing import Any

import numpy as np

import minibert.engines.cpp._kernels as _kernels
from minibert.base.errors import InputError
from minibert.core.arrays import Array, Saved
from minibert.core.ops import AdamRule, random
from minibert.core.ops.primitives import EmbeddingSaved, LinearSaved, TanhSaved
from minibert.model.ops import Ops

# What is kept where it is not what the reference keeps.
CppGeluSaved = namedtuple("CppGeluSaved", "x")
CppLayerNormSaved = namedtuple("CppLayerNormSaved", "x mean rstd gamma")
CppAttentionSaved = namedtuple("CppAttentionSaved", "q k v cu_seqlens y softmax causal dropped")
CppCrossEntropySaved = namedtuple("CppCrossEntropySaved", "gradient")
Draws = namedtuple("Draws", "rows place")  # row keys; (site, threshold)

FLOAT, INDEX, BFLOAT16 = np.dtype(np.float32), np.dtype(np.int32), np.dtype(np.uint16)
empty = _kernels.empty
available = _kernels.available  # instruction sets, the fastest first


def multiply_add_rate(threads: int, seconds: float, narrow: bool, isa: str = "") -> float:
    """Measure GFLOP/s of multiply-adds from registers, by the fastest instruction set or a given one."""
    return _kernels.Engine(isa, threads).multiply_add_rate(seconds, narrow)


def forced_isa() -> str:
    """Return the instruction set that MINIBERT_ISA names, the one variable that the library reads, or ""."""
    isa = os.environ.get("MINIBERT_ISA", "")
    if isa and isa not in available():
        raise InputError(f"MINIBERT_ISA={isa!r} can't run here; choose from {', '.join(available())}.")
    return isa


class CppPrimitives(Ops):
    """Operation by operation; shapes are those of `minibert.core.ops`."""

    def __init__(self, threads: int = 1, isa: str = "", dtype: str = "float32") -> None:
        super().__init__()
        self._narrow = dtype == "bfloat16"
        self._kept = BFLOAT16 if self._narrow else FLOAT  # of activations
        self._accumulators: np.ndarray | None = None  # what `zero` was last given
        self._cleared = False  # whether AdamW has set them to zero
        try:
            self._run = _kernels.Engine(isa or forced_isa(), threads, self._narrow)
        except ValueError as error:
            raise InputError(str(error)) from None
        self.has_int8 = self._run.has_int8

    @property
    def _details(self) -> str:
        count = f"{self._run.threads} thread" + ("s" if self._run.threads > 1 else "")
        dtype = "in bfloat16, " if self._narrow else ""
        return f"{dtype}instruction set {self._run.isa} (available: {', '.join(available())}), {count}"

    def upcast(self, x: Array) -> Array:
        if not self._is_narrow(x):
            return x
        bits = x.astype(np.uint32)
        bits <<= 16
        return bits.view(FLOAT)

    def _is_narrow(self, x: Array) -> bool:
        """Tell whether x is an activation in bfloat16; to a float32 engine uint16 is something else."""
        return self._narrow and x.dtype == BFLOAT16

    def accumulate(self, total: Array, extra: Array) -> Array:
        if not contiguous(total, extra) or total.shape != extra.shape:
            return super().accumulate(total, extra)
        self._run.accumulate(total, extra)
        return total

    def keep(self, weight: Array, int8: bool = False) -> None:
        """Lay a read-only matrix out as products read it, a second time in memory; quantized with `int8`."""
        if _matrices(weight):
            self._run.keep(weight, int8)

    def linear(self, x: Array, weight: Array, bias: Array) -> tuple[Array, Saved]:
        x = self.upcast(x)
        if not (_matrices(x, weight) and contiguous(bias)):
            return super().linear(x, weight, bias)
        y = empty((x.shape[0], weight.shape[1]))
        self._run.linear(x, weight, bias, y)
        return y, LinearSaved(x, weight)

    def linear_backward(self, dy: Array, saved: Saved) -> tuple[Array, Array, Array]:
        x, weight = saved.x, saved.weight
        if not (_matrices(x, weight) and contiguous(dy)):
            return super().linear_backward(dy, saved)
        dx, dweight, dbias = empty(x.shape), empty(weight.shape), empty(weight.shape[1:])
        self._run.gemm(dy, weight.T, dx, False)
        self._run.gemm(x.T, dy, dweight, False)
        self._run.column_sums(dy, None, dbias, False)
        return dx, dweight, dbias

    def _product(self, a: Array, b: Array) -> Array:
        if not _matrices(a, b):
            return super()._product(a, b)
        out = empty((a.shape[0], b.shape[1]))
        self._run.gemm(a, b, out, False)
        return out

    def gelu(self, x: Array, form: str) -> tuple[Array, Saved]:
        """Return x Phi(x); backward computes Phi anew, so only x is kept."""
        if not contiguous(x):
            return super().gelu(x, form)
        y = empty(x.shape)
        self._run.gelu(x, y, form == "tanh")
        return y, CppGeluSaved(x)

    def gelu_backward(self, dy: Array, saved: Saved, form: str) -> Array:
        if not isinstance(saved, CppGeluSaved):
            return super().gelu_backward(dy, saved, form)
        dx = empty(saved.x.shape)
        self._run.gelu_backward(laid_out(dy), saved.x, dx, form == "tanh")
        return dx

    def tanh(self, x: Array) -> tuple[Array, Saved]:
        if not contiguous(x):
            return super().tanh(x)
        y = empty(x.shape)
        self._run.tanh(x, y)
        return y, TanhSaved(y)

    def tanh_backward(self, dy: Array, saved: Saved) -> Array:
        if not contiguous(dy, saved.y):
            return super().tanh_backward(dy, saved)
        dx = empty(saved.y.shape)
        self._run.tanh_backward(dy, saved.y, dx)
        return dx

    def layer_norm(self, x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Array, Saved]:
        if not contiguous(x, gamma, beta) or x.ndim != 2:
            return super().layer_norm(x, gamma, beta, eps)
        y, mean, rstd = empty(x.shape), empty(x.shape[:1]), empty(x.shape[:1])
        self._run.layer_norm(x, gamma, beta, eps, y, mean, rstd)
        return y, CppLayerNormSaved(x, mean, rstd, gamma)

    def layer_norm_backward(self, dy: Array, saved: Saved) -> tuple[Array, Array, Array]:
        if not isinstance(saved, CppLayerNormSaved):
            return super().layer_norm_backward(dy, saved)
        x, mean, rstd, gamma = saved.x, saved.mean, saved.rstd, saved.gamma
        dx, dgamma, dbeta = empty(x.shape), empty(gamma.shape), empty(gamma.shape)
        self._run.layer_norm_backward(laid_out(dy), x, mean, rstd, gamma, dx, dgamma, dbeta, False)
        return dx, dgamma, dbeta

    def embedding(self, ids: Array, table: Array) -> tuple[Array, Saved]:
        if not (indices(ids) and contiguous(table) and table.ndim == 2):
            return super().embedding(ids, table)
        out = empty((len(ids), table.shape[1]))
        self._run.gather(ids, table, out)
        return out, EmbeddingSaved(ids)

    # dy (M,H) -> dx (T,H)
    def take_rows_backward(self, dy: Array, saved: Saved) -> Array:
        """Put the rows of dy back where they were taken; float32 also where x was not."""
        dtype = FLOAT if self._is_narrow(saved.x) else saved.x.dtype
        return self.scatter_add(np.zeros(saved.x.shape, dtype), saved.rows, dy)

    def scatter_add(self, total: Array, ids: Array, rows: Array) -> Array:
        """Add rows to those of a table, total[ids[t]] += rows[t], in the order of t, in place."""
        if not (indices(ids) and contiguous(total, rows) and total.ndim == 2):
            return super().scatter_add(total, ids, rows)
        self._run.scatter_add(ids, rows, total)
        return total

    def attention(
        self, q: Array, k: Array, v: Array, cu_seqlens: np.ndarray, causal: bool = False,
        drop: random.Dropout | None = None, site: int = 0,
    ) -> tuple[Array, Saved]:  # fmt: skip
        """Return softmax(q k^T / sqrt(D)) v; of each softmax only its maximum and its sum are kept."""
        if not (all(map(_heads, (q, k, v))) and indices(cu_seqlens)):
            return super().attention(q, k, v, cu_seqlens, causal, drop, site)
        y, softmax = empty(q.shape), empty((q.shape[0] * q.shape[1], 2))
        dropped = draws(drop, drop.attention_rate if drop else 0.0, site)
        self._run.attention(q, k, v, cu_seqlens, bool(causal), dropped, y, softmax)
        return y, CppAttentionSaved(q, k, v, cu_seqlens, y, softmax, np.asarray(bool(causal)), dropped)

    def attention_backward(self, dy: Array, saved: Saved) -> tuple[Array, Array, Array]:
        if not isinstance(saved, CppAttentionSaved):
            return super().attention_backward(dy, saved)
        q, k, v, y, softmax = saved.q, saved.k, saved.v, saved.y, saved.softmax
        borders, causal, dropped = saved.cu_seqlens, bool(saved.causal), saved.dropped
        dq, dk, dv = (empty(q.shape) for _ in "qkv")
        dy = dy if _heads(dy) else laid_out(dy)
        self._run.attention_backward(dy, q, k, v, borders, causal, dropped, y, softmax, dq, dk, dv)
        return dq, dk, dv

    def softmax_cross_entropy(self, logits: Array, labels: Array) -> tuple[Array, Saved]:
        ids = labels if indices(labels) else np.asarray(labels).astype(INDEX)  # wraps what does not fit
        if not (contiguous(logits) and logits.ndim == 2 and ids.ndim == 1 and np.array_equal(ids, labels)):
            return super().softmax_cross_entropy(logits, labels)
        gradient, nll = empty(logits.shape), empty(logits.shape[:1])
        np.copyto(gradient, logits)
        self._run.softmax_cross_entropy(gradient, ids, nll, np.empty(len(ids), INDEX))
        return nll, CppCrossEntropySaved(gradient)

    def softmax_cross_entropy_backward(self, dnll: Array, saved: Saved) -> Array:
        """Return the gradient of `softmax_cross_entropy`, which has computed that of each row's nll."""
        if not isinstance(saved, CppCrossEntropySaved):
            return super().softmax_cross_entropy_backward(dnll, saved)
        return saved.gradient * laid_out(dnll)[:, None]

    def _dropout(self, x: Array, drop: random.Dropout | None, site: int) -> tuple[Array, Saved]:
        if drop is None or not drop.rate or not contiguous(x):
            return super()._dropout(x, drop, site)
        y, dropped = empty(x.shape), draws(drop, drop.rate, site)
        self._run.dropout(x, y, dropped)
        return y, dropped

    def _dropout_backward(self, dy: Array, saved: Saved) -> Array:
        if not isinstance(saved, Draws):
            return super()._dropout_backward(dy, saved)
        dx = empty(dy.shape)
        self._run.dropout(laid_out(dy), dx, saved)
        return dx

    def zero(self, grads: Array) -> None:
        """Set accumulators to zero, unless the AdamW of the step before has left them so."""
        if not (grads is self._accumulators and self._cleared):
            self._run.clear(grads) if contiguous(grads) and grads.ndim == 1 else super().zero(grads)
        self._accumulators, self._cleared = grads, False

    def global_norm(self, grads: Array) -> Array:
        """Return the Euclidean norm of all gradients together, summed in double precision."""
        if not contiguous(grads) or grads.ndim != 1:
            return super().global_norm(grads)
        return self._run.global_norm(grads)

    def adamw(
        self, params: Array, grads: Array, m: Array, v: Array, decayed: np.ndarray, rule: AdamRule
    ) -> tuple[Array, Array, Array]:
        """Take one step of AdamW in one sweep over memory, which leaves the accumulators at zero."""
        if not (contiguous(params, grads, m, v) and params.ndim == 1 and decayed.dtype == np.int64):
            return super().adamw(params, grads, m, v, decayed, rule)
        m_scale, v_scale = rule.corrections
        ours = grads is self._accumulators
        names = ("lr", "beta1", "beta2", "eps", "weight_decay", "clip")
        numbers = {name: getattr(rule, name) for name in names} | {"m_scale": m_scale, "v_scale": v_scale}
        self._run.adamw(params, grads, m, v, decayed, **numbers, clears=ours)
        self._cleared = ours
        return params, m, v

    def _orthogonal(self, x: Array) -> Array:
        if x.dtype != FLOAT:
            return super()._orthogonal(x)
        tall = x.shape[0] > x.shape[1]
        wide = np.array(x.T if tall else x, order="C")
        self._run.orthogonalise(wide)
        return wide.T if tall else wide


def contiguous(*arrays: Any, dtype: np.dtype = FLOAT) -> bool:
    """Tell whether all are contiguous and of one dtype, float32 in general."""
    return all(type(a) is np.ndarray and a.dtype == dtype and a.flags.c_contiguous for a in arrays)


def _matrices(*arrays: Any) -> bool:
    """Tell whether all are float32 with two dimensions; any strides will do."""
    return all(type(a) is np.ndarray and a.dtype == FLOAT and a.ndim == 2 for a in arrays)


def indices(x: Array) -> bool:
    """Tell whether x is one-dimensional, contiguous and of int32."""
    return type(x) is np.ndarray and x.dtype == INDEX and x.ndim == 1 and x.flags.c_contiguous


def laid_out(dy: Array) -> Array:
    """Return a gradient as contiguous float32; that of a block of this engine is so already."""
    return np.ascontiguousarray(dy, FLOAT)


def _heads(x: Array) -> bool:
    """Tell whether x (T,A,D) is float32 and the heads of a token lie side by side, tokens perhaps apart."""
    if type(x) is not np.ndarray or x.dtype != FLOAT or x.ndim != 3:
        return False
    _, A, D = x.shape
    along, across, within = x.strides
    return (within == 4 or D == 1) and (across == 4 * D or A == 1) and along >= 4 * A * D


def draws(drop: random.Dropout | None, rate: float, site: int) -> Draws | tuple[()]:
    """Return what a kernel draws the same bits from again; () for no dropout."""
    if drop is None or not rate:
        return ()
    [word] = random.words(np, site)
    return Draws(drop.rows, np.array([word[0], random.threshold(rate)], np.uint32))
