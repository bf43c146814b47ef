"""The engine in Numba: how far a compiler goes that reads the same Python.

The loops are in rows.py (one row at a time) and products.py (attention and matmul); jit.py compiles them and
has the threads. Here each operation of the reference says which loop it is. NumPy keeps the large matmuls,
whose library is as fast, and everything that is not float32 or float64, contiguous and on its own, complex
arrays above all; they fall through to the reference.

Results do not depend on the number of threads: ranges of rows are cut by shape alone, and what is added up
over rows is added up range by range in order. Large matmuls are cut in the same way, and the library
multiplies each range in one thread (`engines.limited_threads`): its own threads would round differently.
"""

import math
from collections import namedtuple
from typing import Any

import numpy as np

from minibert.core.arrays import Array, Saved
from minibert.core.ops import AdamRule, random
from minibert.core.ops.primitives import EmbeddingSaved, LinearSaved
from minibert.core.ops.updates import spans
from minibert.engines.numba import products, rows as loops
from minibert.engines.numba.jit import GRAIN, PRECISIONS, Threads, cut, cut_tasks, is_warm
from minibert.model.ops import Ops

COLUMNS = 64  # of ranges of columns: rows of 256 bytes are still read at full speed
FEW, LONG = 128, 256  # rows up to which, and sums from which, our matmul is faster: see products.py
BLOCK = 1 << 23  # multiply-adds that the library does in one call, a fraction of a millisecond

# What is kept where it is not what the reference keeps.
NumbaGeluSaved = namedtuple("NumbaGeluSaved", "slope")
NumbaLayerNormSaved = namedtuple("NumbaLayerNormSaved", "x mean rstd gamma")
NumbaAttentionSaved = namedtuple("NumbaAttentionSaved", "q given largest inverse")
NumbaCrossEntropySaved = namedtuple("NumbaCrossEntropySaved", "logits labels largest inverse")
NumbaDropoutSaved = namedtuple("NumbaDropoutSaved", "keys threshold scale")
# Arguments of both kernels of attention, in their order.
Given = namedtuple("Given", "q k v pitch borders causal keys threshold kept_scale scale")


class NumbaOps(Ops):
    """Primitives and updates compiled by Numba, under the reference's own blocks; shapes are those of `Ops`.

    `threads` share the rows of an operation, and call the matrix library, which gets one thread a call.
    """

    name = "numba"

    def __init__(self, threads: int = 1) -> None:
        super().__init__()
        self._threads = Threads(threads)

    @property
    def _details(self) -> str:
        threads = f"{self._threads.count} thread" + ("s" if self._threads.count > 1 else "")
        return threads + ("" if is_warm() else ", still to be compiled (minibert info --warm-up does so)")

    def accumulate(self, total: Array, extra: Array) -> Array:
        if not (_fit(total, extra) and total.shape == extra.shape):
            return super().accumulate(total, extra)
        self._threads.run(loops.add, cut(total.size), total.reshape(-1), extra.reshape(-1))
        return total

    def linear(self, x: Array, weight: Array, bias: Array) -> tuple[Array, Saved]:
        """Return x @ weight + bias, the bias in place."""
        y = self._by_rows(x, weight.T)
        if not (y.ndim == 2 and _fit(y, bias) and bias.shape == y.shape[1:]):
            return y + bias, LinearSaved(x, weight)
        self._threads.run(loops.add_bias, cut(*y.shape), y, bias)
        return y, LinearSaved(x, weight)

    def linear_backward(self, dy: Array, saved: Saved) -> tuple[Array, Array, Array]:
        x, weight = saved.x, saved.weight
        if not (dy.ndim == 2 and _fit(dy) and len(dy) == len(x)):
            return super().linear_backward(dy, saved)
        dbias = np.empty(dy.shape[1], dy.dtype)
        self._threads.run(loops.column_sums, cut(dy.shape[1], len(dy), COLUMNS), dy, dbias)
        # A weight that is a table transposed gets its gradient so as well: the table's then lies row by row.
        dweight = self._product(dy.T, x).T if weight.T.flags.c_contiguous else self._product(x.T, dy)
        return self._by_rows(dy, weight), dweight, dbias

    # a (M,K)  b (N,K) -> (M,N)
    def _by_rows(self, a: Array, b: Array) -> Array:
        """Return a @ b.T, by our own loops for few rows and long sums."""
        if not (a.ndim == b.ndim == 2 and len(a) <= FEW and LONG <= a.shape[1] == b.shape[1] and _fit(a, b)):
            return self._product(a, b.T)
        c = np.empty((len(a), len(b)), a.dtype)
        self._threads.run(products.matmul, cut(len(b), a.size // 16, products.TILE), a, b, c)
        return c

    # a (M,K)  b (K,N) -> (M,N)
    def _product(self, a: Array, b: Array) -> Array:
        """Return a @ b by NumPy's library, range of rows by range."""
        if not a.ndim == b.ndim == 2:
            return a @ b
        c = np.empty((len(a), b.shape[1]), np.result_type(a, b))

        def rows(begin: int, end: int) -> None:
            np.matmul(a[begin:end], b, out=c[begin:end])

        self._threads.run(rows, cut(len(a), b.size * GRAIN // BLOCK, FEW))
        return c

    def gelu(self, x: Array, form: str) -> tuple[Array, Saved]:
        """Return x Phi(x); kept is its slope, found on the way."""
        if not _fit(x):
            return super().gelu(x, form)
        y, slope = np.empty_like(x), np.empty_like(x)
        row, results = x.reshape(-1), (y.reshape(-1), slope.reshape(-1))
        self._threads.run(loops.gelu, cut(x.size), row, form == "tanh", *results)
        return y, NumbaGeluSaved(slope)

    def gelu_backward(self, dy: Array, saved: Saved, form: str) -> Array:
        if not isinstance(saved, NumbaGeluSaved):
            return super().gelu_backward(dy, saved, form)
        dy, slope, dx = _laid_out(dy, saved.slope), saved.slope, np.empty_like(saved.slope)
        self._threads.run(loops.multiply, cut(dy.size), dy.reshape(-1), slope.reshape(-1), dx.reshape(-1))
        return dx

    def layer_norm(self, x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Array, Saved]:
        if not (x.ndim == 2 and _fit(x, gamma, beta) and gamma.shape == beta.shape == x.shape[1:]):
            return super().layer_norm(x, gamma, beta, eps)
        y, mean, rstd = np.empty_like(x), np.empty(len(x), x.dtype), np.empty(len(x), x.dtype)
        self._threads.run(loops.layer_norm, cut(*x.shape), x, gamma, beta, eps, y, mean, rstd)
        return y, NumbaLayerNormSaved(x, mean, rstd, gamma)

    def layer_norm_backward(self, dy: Array, saved: Saved) -> tuple[Array, Array, Array]:
        if not isinstance(saved, NumbaLayerNormSaved):
            return super().layer_norm_backward(dy, saved)
        x = saved.x
        dy, ranges, dx = _laid_out(dy, x), cut(*x.shape), np.empty_like(x)
        dgamma, dbeta = np.empty((2, len(ranges), x.shape[1]), x.dtype)
        self._threads.run(loops.layer_norm_backward, ranges, dy, *saved, _step(ranges), dx, dgamma, dbeta)
        return dx, dgamma.sum(0), dbeta.sum(0)

    def attention(
        self, q: Array, k: Array, v: Array, cu_seqlens: np.ndarray, causal: bool = False,
        drop: random.Dropout | None = None, site: int = 0,
    ) -> tuple[Array, Saved]:  # fmt: skip
        """Return softmax(q k^T / sqrt(D)) v; of each softmax only its largest score and its sum are kept."""
        memory: list[Any] = [_rows_of_heads(one) for one in (q, k, v)]
        alike = all(one is not None and one[1:] == memory[0][1:] for one in memory)
        if not (alike and _cover(cu_seqlens, len(q)) and (drop is None or len(drop.rows) == len(q))):
            return super().attention(q, k, v, cu_seqlens, causal, drop, site)
        T, A, D = q.shape
        borders, real = np.array(cu_seqlens, np.int64), q.dtype.type
        keys, threshold, scale = np.empty((0, 0, 2), np.uint32), np.uint32(0), real(1)
        if drop is not None and drop.attention_rate:
            keys, threshold, scale = _drawn(drop.rows, drop.attention_rate, site, real)
            keys = random.fold(np, keys[:, None], np.arange(A, dtype=np.uint32))  # (T,A,2)
        (q_row, pitch, _), (k_row, *_), (v_row, *_) = memory
        how = borders, np.bool_(causal), keys, threshold, scale, real(1 / math.sqrt(D))
        given = Given(q_row, k_row, v_row, np.int64(pitch), *how)
        y, largest, inverse = np.empty((T, A, D), real), np.empty((T, A), real), np.empty((T, A), real)
        self._threads.run(products.attention, _tasks(borders, A), *given, y, largest, inverse)
        return y, NumbaAttentionSaved(q, given, largest, inverse)

    def attention_backward(self, dy: Array, saved: Saved) -> tuple[Array, Array, Array]:
        """Return the gradients of `attention`; probabilities and dropout are made anew."""
        if not isinstance(saved, NumbaAttentionSaved):
            return super().attention_backward(dy, saved)
        q, kept = saved.q, (*saved.given, saved.largest, saved.inverse)
        dq, dk, dv = results = np.empty((3, *q.shape), q.dtype)
        tasks = _tasks(saved.given.borders, q.shape[1])
        self._threads.run(products.attention_backward, tasks, _laid_out(dy, q), *kept, *results)
        return dq, dk, dv

    def softmax_cross_entropy(self, logits: Array, labels: Array) -> tuple[Array, Saved]:
        """Return -log softmax(logits)[label] of every row; of each softmax its largest and sum are kept."""
        if not (_fit(logits) and len(labels) == len(logits) and _within(labels, logits.shape[1])):
            return super().softmax_cross_entropy(logits, labels)
        labels = np.array(labels, np.int64)
        nll, largest, inverse = results = np.empty((3, len(logits)), logits.dtype)
        self._threads.run(loops.softmax_cross_entropy, cut(*logits.shape), logits, labels, *results)
        return nll, NumbaCrossEntropySaved(logits, labels, largest, inverse)

    def softmax_cross_entropy_backward(self, dnll: Array, saved: Saved) -> Array:
        if not isinstance(saved, NumbaCrossEntropySaved):
            return super().softmax_cross_entropy_backward(dnll, saved)
        dnll, dlogits = _laid_out(dnll, saved.largest), np.empty_like(saved.logits)
        ranges = cut(*dlogits.shape)
        self._threads.run(loops.softmax_cross_entropy_backward, ranges, dnll, *saved, dlogits)
        return dlogits

    def embedding(self, ids: Array, table: Array) -> tuple[Array, Saved]:
        if not (table.ndim == 2 and _fit(table) and _within(ids, len(table))):
            return super().embedding(ids, table)
        y = np.empty((len(ids), table.shape[1]), table.dtype)
        self._threads.run(loops.gather, cut(*y.shape), table, np.array(ids, np.int64), y)
        return y, EmbeddingSaved(ids)

    def scatter_add(self, total: Array, ids: Array, rows: Array) -> Array:
        """Add rows to those of a table, total[ids[t]] += rows[t], one by one; threads share the columns."""
        shape = (len(ids), *total.shape[1:])
        if not (total.ndim == 2 and _fit(total, rows) and rows.shape == shape and _within(ids, len(total))):
            return super().scatter_add(total, ids, rows)
        columns = cut(total.shape[1], len(ids), COLUMNS)
        self._threads.run(loops.scatter_add, columns, total, np.array(ids, np.int64), rows)
        return total

    def _dropout(self, x: Array, drop: random.Dropout | None, site: int) -> tuple[Array, Saved]:
        """Drop, with multipliers drawn where they are needed, and again for backward; row keys are kept."""
        if drop is None or not drop.rate or not (x.ndim == 2 and _fit(x) and len(x) == len(drop.rows)):
            return super()._dropout(x, drop, site)
        saved = NumbaDropoutSaved(*_drawn(drop.rows, drop.rate, site, x.dtype.type))
        return self._dropout_backward(x, saved), saved

    def _dropout_backward(self, dy: Array, saved: Saved) -> Array:
        if not isinstance(saved, NumbaDropoutSaved):
            return super()._dropout_backward(dy, saved)
        dx = np.empty((len(saved.keys), dy.shape[-1]), saved.scale.dtype)
        self._threads.run(loops.dropout, cut(*dx.shape), _laid_out(dy, dx), *saved, dx)
        return dx

    def global_norm(self, grads: Array) -> Array:
        """Return the Euclidean norm of all gradients together; squares are added in float64."""
        if not (grads.ndim == 1 and _fit(grads)):
            return super().global_norm(grads)
        ranges = cut(len(grads))
        squares = np.zeros(len(ranges))
        self._threads.run(loops.sums_of_squares, ranges, grads, _step(ranges), squares)
        return math.sqrt(math.fsum(squares.tolist()))

    def adamw(
        self, params: Array, grads: Array, m: Array, v: Array, decayed: np.ndarray, rule: AdamRule
    ) -> tuple[Array, Array, Array]:
        """Take one step of AdamW in one sweep over the four buffers."""
        sizes = {one.shape for one in (params, grads, m, v)}
        inside = not decayed.size or (0 <= decayed.min() and decayed.max() <= len(params))
        if not (len(sizes) == params.ndim == 1 and inside and _fit(params, grads, m, v)):
            return super().adamw(params, grads, m, v, decayed, rule)
        betas = (rule.beta1, 1 - rule.beta1, rule.beta2, 1 - rule.beta2)
        numbers = (rule.clip, *betas, *rule.corrections, rule.eps)
        for decays, decay in ((False, 0.0), (True, rule.weight_decay)):
            own = [(begin, end) for begin, end, does in spans(decayed, len(params)) if does == decays]
            ranges = [(begin + low, begin + high) for begin, end in own for low, high in cut(end - begin)]
            self._threads.run(loops.adamw, ranges, params, m, v, grads, *numbers, decay, rule.lr)
        return params, m, v


def _fit(*arrays: Any) -> bool:
    """Tell whether the loops take these: one precision, contiguous, writable, of NumPy."""
    dtype = arrays[0].dtype
    return dtype in PRECISIONS and all(
        isinstance(one, np.ndarray) and one.dtype == dtype and one.flags.carray for one in arrays
    )


def _laid_out(dy: Array, like: Array) -> Array:
    """Return a gradient as the loops take it, shaped like another array; copied where it is not."""
    if dy.shape == like.shape and dy.dtype == like.dtype and dy.flags.carray:
        return dy
    return np.array(np.broadcast_to(dy, like.shape), like.dtype, order="C")


# x (T,A,D) -> memory (..,), pitch, what else has to agree
def _rows_of_heads(x: Array) -> tuple[np.ndarray, int, Any] | None:
    """Return the memory from the first number of x to its last, and how far apart its rows are there."""
    pitch, odd = divmod(x.strides[0], x.itemsize)
    if odd or pitch < x[0].size or not _fit(x[:1]):
        return None
    memory = np.lib.stride_tricks.as_strided(x, ((len(x) - 1) * pitch + x[0].size,), (x.itemsize,))
    return memory, pitch, (x.shape, x.dtype)


# -> (T,2)  threshold scale, numbers
def _drawn(rows: Array, rate: float, site: int, real: Any) -> tuple[Array, Any, Any]:
    """Return what the loops draw dropout from: keys, the draw below which to drop, the factor of the rest."""
    keys = random.fold(np, rows, *random.words(np, site))
    return keys, np.uint32(random.threshold(rate)), real(random.kept_scale(rate))


def _within(ids: Array, count: int) -> bool:
    """Tell whether these are row numbers; what is not is left to NumPy, which knows what to say about it."""
    ids = np.asarray(ids)
    return not ids.size or (0 <= ids.min() and ids.max() < count)


def _cover(cu_seqlens: np.ndarray, T: int) -> bool:
    """Tell whether these are borders of sequences that make up a batch of T rows."""
    lengths = np.diff(cu_seqlens)
    return len(lengths) > 0 and cu_seqlens[0] == 0 and cu_seqlens[-1] == T and lengths.min() > 0


def _step(ranges: list[tuple[int, int]]) -> int:
    """Return the number of rows in a range, all but the last."""
    return ranges[0][1] if ranges else 1


def _tasks(borders: np.ndarray, A: int) -> list[tuple[int, int]]:
    """Cut (sequence, head) into ranges of about as many scores each."""
    return cut_tasks(np.repeat(np.diff(borders) ** 2, A))
