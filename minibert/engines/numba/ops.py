"""The engine in Numba: how fast the reference's Python becomes when a compiler reads it.

The loops are in rows.py (one row at a time) and products.py (attention and matmul); jit.py compiles them and
runs them in threads. This file maps each operation of the reference to a loop. Large matmuls stay with NumPy,
whose library is as fast. So does every array that is not float32 or float64, contiguous and writable: complex
arrays, for example, fall through to the reference.

Results do not depend on the number of threads: ranges of rows depend on the shape alone, and sums over rows
are added up range by range, in order. Large matmuls are split in the same way, and the library multiplies
each range in one thread (`engines.limited_threads`): its own threads would round differently.
"""

import math
from collections import namedtuple
from typing import Any, NamedTuple

import numpy as np

from minibert.core.arrays import Array, Saved
from minibert.core.ops import AdamRule, dropout_bits
from minibert.core.ops.primitives import EmbeddingSaved, LinearSaved
from minibert.core.ops.updates import spans
from minibert.engines.numba import products, rows as loops
from minibert.engines.numba.jit import GRAIN, PRECISIONS, Threads, cut, cut_tasks, is_warm
from minibert.model.ops import Ops

COLUMNS = 64  # the fewest in a range of columns: rows of 256 bytes are still read at full speed
FEW, LONG = 128, 256  # at most so many rows, and sums at least so long: our matmul is faster, see products.py
BLOCK = 1 << 23  # multiply-adds that the library does in one call, a fraction of a millisecond

# What operations save for backward, where that differs from the reference.
NumbaGeluSaved = namedtuple("NumbaGeluSaved", "slope")
NumbaLayerNormSaved = namedtuple("NumbaLayerNormSaved", "x mean rstd gamma")
# q itself is kept for its shape (T,A,D), which its flat memory in `given` does not have.
NumbaAttentionSaved = namedtuple("NumbaAttentionSaved", "q given largest inverse")
NumbaCrossEntropySaved = namedtuple("NumbaCrossEntropySaved", "logits labels largest inverse")
NumbaDropoutSaved = namedtuple("NumbaDropoutSaved", "keys threshold scale")
# The arguments that both kernels of attention begin with, after dy of backward; in their order.
Given = namedtuple("Given", "q k v pitch borders causal keys threshold kept_scale scale")


class HeadRows(NamedTuple):
    """An array (T,A,D) as the kernels of attention take it: flat memory with a row for each token."""

    memory: np.ndarray  # (..,), from the first element to the last
    pitch: int  # elements from the beginning of a row to that of the next, at least A D
    shape: tuple[int, ...]  # (T,A,D)
    dtype: np.dtype


class NumbaOps(Ops):
    """Primitives and updates compiled by Numba; blocks are the reference's, and shapes are those of `Ops`.

    Parameters
    ----------
    threads : int, default 1
        How many threads share the rows of an operation. They also call the matrix library, which gets one
        thread a call.
    """

    name = "numba"

    def __init__(self, threads: int = 1) -> None:
        super().__init__()
        self._threads = Threads(threads)

    @property
    def _details(self) -> str:
        """Describe the threads, and whether the loops are compiled yet, for the sentence about the engine."""
        details = f"{self._threads.count} thread"
        if self._threads.count > 1:
            details += "s"
        if not is_warm():
            details += ", still to be compiled (minibert info --warm-up does so)"
        return details

    def accumulate(self, total: Array, extra: Array) -> Array:
        """Add to an accumulator in place, as `Primitives.accumulate` does.

        Parameters
        ----------
        total : array
            The accumulator, of any shape; it is consumed.
        extra : array
            What to add, of the same shape.

        Returns
        -------
        array
            The accumulator.
        """
        if not (_fit(total, extra) and total.shape == extra.shape):
            return super().accumulate(total, extra)
        ranges = cut(total.size)
        self._threads.run(loops.add, ranges, total.reshape(-1), extra.reshape(-1))
        return total

    def linear(self, x: Array, weight: Array, bias: Array) -> tuple[Array, Saved]:
        """Return x @ weight + bias, the bias in place.

        Parameters
        ----------
        x : (T,K) array
            Inputs.
        weight : (K,N) array
            The matrix.
        bias : (N,) array
            Added to every row.

        Returns
        -------
        tuple of (T,N) array and LinearSaved
            The result; x and the weight.
        """
        saved = LinearSaved(x, weight)
        y = self._by_rows(x, weight.T)
        fit = y.ndim == 2 and _fit(y, bias)
        if not (fit and bias.shape == y.shape[1:]):
            return y + bias, saved
        self._threads.run(loops.add_bias, cut(*y.shape), y, bias)
        return y, saved

    def linear_backward(self, dy: Array, saved: Saved) -> tuple[Array, Array, Array]:
        """Return the gradients of `linear`.

        Parameters
        ----------
        dy : (T,N) array
            Gradient of the result.
        saved : LinearSaved
            What `linear` kept.

        Returns
        -------
        tuple of three arrays
            Gradients of x (T,K), weight (K,N) and bias (N,). If the weight is a transposed table, so is its
            gradient: that of the table is then contiguous.
        """
        x, weight = saved.x, saved.weight
        if not (dy.ndim == 2 and _fit(dy) and len(dy) == len(x)):
            return super().linear_backward(dy, saved)
        T, N = dy.shape
        dbias = np.empty(N, dy.dtype)
        self._threads.run(loops.column_sums, cut(N, T, COLUMNS), dy, dbias)
        if weight.T.flags.c_contiguous:
            dweight = self._product(dy.T, x).T
        else:
            dweight = self._product(x.T, dy)
        return self._by_rows(dy, weight), dweight, dbias

    # a (M,K)  b (N,K) -> (M,N)
    def _by_rows(self, a: Array, b: Array) -> Array:
        """Return a @ b.T, by our own loops for few rows and long sums."""
        if not a.ndim == b.ndim == 2:
            return self._product(a, b.T)
        suits_us = len(a) <= FEW and LONG <= a.shape[1] == b.shape[1]
        if not (suits_us and _fit(a, b)):
            return self._product(a, b.T)
        c = np.empty((len(a), len(b)), a.dtype)
        columns = cut(len(b), a.size // 16, products.TILE)
        self._threads.run(products.matmul, columns, a, b, c)
        return c

    # a (M,K)  b (K,N) -> (M,N)
    def _product(self, a: Array, b: Array) -> Array:
        """Return a @ b by NumPy's library, one range of rows after another."""
        if not a.ndim == b.ndim == 2:
            return a @ b
        c = np.empty((len(a), b.shape[1]), np.result_type(a, b))

        def rows(begin: int, end: int) -> None:
            np.matmul(a[begin:end], b, out=c[begin:end])

        width = b.size * GRAIN // BLOCK
        self._threads.run(rows, cut(len(a), width, FEW))
        return c

    def gelu(self, x: Array, form: str) -> tuple[Array, Saved]:
        """Return x Phi(x), as `Primitives.gelu` does; its slope, computed along the way, is kept.

        Parameters
        ----------
        x : array
            Any shape.
        form : str
            "erf" or "tanh".

        Returns
        -------
        tuple of array and NumbaGeluSaved
            The result, and its derivative.
        """
        if not _fit(x):
            return super().gelu(x, form)
        by_tanh = form == "tanh"
        y = np.empty_like(x)
        slope = np.empty_like(x)
        self._threads.run(
            loops.gelu,
            cut(x.size),
            x.reshape(-1),
            by_tanh,
            y.reshape(-1),
            slope.reshape(-1),
        )
        return y, NumbaGeluSaved(slope)

    def gelu_backward(self, dy: Array, saved: Saved, form: str) -> Array:
        """Return the gradient of `gelu`.

        Parameters
        ----------
        dy : array
            Gradient of the result.
        saved : NumbaGeluSaved or GeluSaved
            What `gelu` kept.
        form : str
            The form that `gelu` was called with.

        Returns
        -------
        array
            Gradient of x.
        """
        if not isinstance(saved, NumbaGeluSaved):
            return super().gelu_backward(dy, saved, form)
        slope = saved.slope
        dy = _laid_out(dy, slope)
        dx = np.empty_like(slope)
        self._threads.run(
            loops.multiply,
            cut(dy.size),
            dy.reshape(-1),
            slope.reshape(-1),
            dx.reshape(-1),
        )
        return dx

    def layer_norm(self, x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Array, Saved]:
        """Return gamma (x - mean) / sqrt(variance + eps) + beta, as `Primitives.layer_norm` does.

        Parameters
        ----------
        x : (T,H) array
            Rows to normalise.
        gamma, beta : (H,) arrays
            Scale and shift of every row.
        eps : float
            Added to the variance.

        Returns
        -------
        tuple of (T,H) array and NumbaLayerNormSaved
            The result; x itself, and mean and 1 / deviation of each row.
        """
        fit = x.ndim == 2 and _fit(x, gamma, beta)
        if not (fit and gamma.shape == beta.shape == x.shape[1:]):
            return super().layer_norm(x, gamma, beta, eps)
        y = np.empty_like(x)
        mean = np.empty(len(x), x.dtype)
        rstd = np.empty(len(x), x.dtype)
        rows = cut(*x.shape)
        self._threads.run(loops.layer_norm, rows, x, gamma, beta, eps, y, mean, rstd)
        return y, NumbaLayerNormSaved(x, mean, rstd, gamma)

    def layer_norm_backward(self, dy: Array, saved: Saved) -> tuple[Array, Array, Array]:
        """Return the gradients of `layer_norm`.

        Parameters
        ----------
        dy : (T,H) array
            Gradient of the result.
        saved : NumbaLayerNormSaved or LayerNormSaved
            What `layer_norm` kept.

        Returns
        -------
        tuple of three arrays
            Gradients of x (T,H), gamma (H,) and beta (H,).
        """
        if not isinstance(saved, NumbaLayerNormSaved):
            return super().layer_norm_backward(dy, saved)
        x = saved.x
        ranges = cut(*x.shape)
        dx = np.empty_like(x)
        dgamma, dbeta = np.empty((2, len(ranges), x.shape[1]), x.dtype)  # a row for each range
        self._threads.run(
            loops.layer_norm_backward,
            ranges,
            _laid_out(dy, x),
            *saved,
            _step(ranges),
            dx,
            dgamma,
            dbeta,
        )
        return dx, dgamma.sum(0), dbeta.sum(0)

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
        """Return softmax(q k^T / sqrt(D)) v in each sequence and head, as `Attention.attention` does.

        Parameters
        ----------
        q, k, v : (T,A,D) arrays
            Queries, keys and values; those of one token may be parts of one longer row.
        cu_seqlens : (S+1,) integers
            Where sequences begin.
        causal : bool, default False
            Whether a token attends only to itself and the tokens before it.
        drop : Dropout or None
            The source of dropout on the probabilities; None, the default, for none.
        site : int, default 0
            The dropout site: a number that identifies this place in the network.

        Returns
        -------
        tuple of (T,A,D) array and NumbaAttentionSaved
            The result; the arguments, and for each softmax its largest score and one over its sum.
        """
        operands = _rows_of_heads(q, k, v)
        dropout_covers_rows = drop is None or len(drop.rows) == len(q)
        if not (operands and _cover(cu_seqlens, len(q)) and dropout_covers_rows):
            return super().attention(q, k, v, cu_seqlens, causal, drop, site)
        q_rows, k_rows, v_rows = operands
        T, A, D = q.shape
        real = q.dtype.type
        borders = np.array(cu_seqlens, np.int64)
        keys, threshold, kept_scale = _head_keys(drop, A, site, real)
        given = Given(
            q_rows.memory,
            k_rows.memory,
            v_rows.memory,
            np.int64(q_rows.pitch),
            borders,
            np.bool_(causal),
            keys,
            threshold,
            kept_scale,
            real(1 / math.sqrt(D)),
        )
        y = np.empty((T, A, D), real)
        largest = np.empty((T, A), real)
        inverse = np.empty((T, A), real)
        self._threads.run(products.attention, _tasks(borders, A), *given, y, largest, inverse)
        return y, NumbaAttentionSaved(q, given, largest, inverse)

    def attention_backward(self, dy: Array, saved: Saved) -> tuple[Array, Array, Array]:
        """Return the gradients of `attention`; probabilities and dropout are recomputed.

        Parameters
        ----------
        dy : (T,A,D) array
            Gradient of the result.
        saved : NumbaAttentionSaved or AttentionSaved
            What `attention` kept.

        Returns
        -------
        tuple of three (T,A,D) arrays
            Gradients of q, k and v.
        """
        if not isinstance(saved, NumbaAttentionSaved):
            return super().attention_backward(dy, saved)
        q = saved.q
        tasks = _tasks(saved.given.borders, q.shape[1])
        dq, dk, dv = np.empty((3, *q.shape), q.dtype)
        self._threads.run(
            products.attention_backward,
            tasks,
            _laid_out(dy, q),
            *saved.given,
            saved.largest,
            saved.inverse,
            dq,
            dk,
            dv,
        )
        return dq, dk, dv

    def softmax_cross_entropy(self, logits: Array, labels: Array) -> tuple[Array, Saved]:
        """Return -log softmax(logits)[label] of every row, as `Losses.softmax_cross_entropy` does.

        Parameters
        ----------
        logits : (N,K) array
            Scores.
        labels : (N,) integers
            The right column of each row.

        Returns
        -------
        tuple of (N,) array and NumbaCrossEntropySaved
            Losses in nats; the arguments, and for each softmax its largest score and one over its sum.
        """
        fit = _fit(logits) and len(labels) == len(logits)
        if not (fit and _within(labels, logits.shape[1])):
            return super().softmax_cross_entropy(logits, labels)
        labels = np.array(labels, np.int64)
        nll, largest, inverse = np.empty((3, len(logits)), logits.dtype)
        rows = cut(*logits.shape)
        self._threads.run(loops.softmax_cross_entropy, rows, logits, labels, nll, largest, inverse)
        return nll, NumbaCrossEntropySaved(logits, labels, largest, inverse)

    def softmax_cross_entropy_backward(self, dnll: Array, saved: Saved) -> Array:
        """Return the gradient of `softmax_cross_entropy`.

        Parameters
        ----------
        dnll : (N,) array
            Gradient of the losses.
        saved : NumbaCrossEntropySaved or CrossEntropySaved
            What `softmax_cross_entropy` kept.

        Returns
        -------
        (N,K) array
            Gradient of the logits.
        """
        if not isinstance(saved, NumbaCrossEntropySaved):
            return super().softmax_cross_entropy_backward(dnll, saved)
        dnll = _laid_out(dnll, saved.largest)
        dlogits = np.empty_like(saved.logits)
        rows = cut(*dlogits.shape)
        self._threads.run(loops.softmax_cross_entropy_backward, rows, dnll, *saved, dlogits)
        return dlogits

    def embedding(self, ids: Array, table: Array) -> tuple[Array, Saved]:
        """Look up rows of a table by index, as `Primitives.embedding` does.

        Parameters
        ----------
        ids : (T,) integers
            Indices of rows.
        table : (V,H) array
            The table.

        Returns
        -------
        tuple of (T,H) array and EmbeddingSaved
            The rows, and their indices.
        """
        if not (table.ndim == 2 and _fit(table) and _within(ids, len(table))):
            return super().embedding(ids, table)
        y = np.empty((len(ids), table.shape[1]), table.dtype)
        rows = cut(*y.shape)
        indices = np.array(ids, np.int64)
        self._threads.run(loops.gather, rows, table, indices, y)
        return y, EmbeddingSaved(ids)

    def scatter_add(self, total: Array, ids: Array, rows: Array) -> Array:
        """Add rows to those of a table, total[ids[t]] += rows[t], one by one; threads share the columns.

        Parameters
        ----------
        total : (V,H) array
            The table, changed in place.
        ids : (T,) integers
            Indices of rows; an index may occur several times.
        rows : (T,H) array
            What to add.

        Returns
        -------
        (V,H) array
            The table.
        """
        fit = total.ndim == 2 and _fit(total, rows)
        fit = fit and rows.shape == (len(ids), *total.shape[1:])
        if not (fit and _within(ids, len(total))):
            return super().scatter_add(total, ids, rows)
        columns = cut(total.shape[1], len(ids), COLUMNS)
        indices = np.array(ids, np.int64)
        self._threads.run(loops.scatter_add, columns, total, indices, rows)
        return total

    def _dropout(self, x: Array, drop: dropout_bits.Dropout | None, site: int) -> tuple[Array, Saved]:
        """Apply dropout. Multipliers are drawn as they are needed, and again for backward from row keys."""
        if drop is None or not drop.rate:
            return x, None
        if not (x.ndim == 2 and _fit(x) and len(x) == len(drop.rows)):
            return super()._dropout(x, drop, site)
        source = _dropout_source(drop.rows, drop.rate, site, x.dtype.type)
        saved = NumbaDropoutSaved(*source)
        return self._dropout_backward(x, saved), saved

    def _dropout_backward(self, dy: Array, saved: Saved) -> Array:
        """Return the gradient of `_dropout`, which is the same dropout of dy."""
        if not isinstance(saved, NumbaDropoutSaved):
            return super()._dropout_backward(dy, saved)
        T = len(saved.keys)
        N = dy.shape[-1]
        dx = np.empty((T, N), saved.scale.dtype)
        dy = _laid_out(dy, dx)
        self._threads.run(loops.dropout, cut(T, N), dy, *saved, dx)
        return dx

    def global_norm(self, grads: Array) -> Array:
        """Return the Euclidean norm of all gradients together; squares are added in float64.

        Parameters
        ----------
        grads : (N,) array
            The gradients.

        Returns
        -------
        float
            Their norm.
        """
        if not (grads.ndim == 1 and _fit(grads)):
            return super().global_norm(grads)
        ranges = cut(len(grads))
        squares = np.zeros(len(ranges))
        self._threads.run(loops.sums_of_squares, ranges, grads, _step(ranges), squares)
        return math.sqrt(math.fsum(squares.tolist()))

    def adamw(
        self,
        params: Array,
        grads: Array,
        m: Array,
        v: Array,
        decayed: np.ndarray,
        rule: AdamRule,
    ) -> tuple[Array, Array, Array]:
        """Take one step of AdamW in one pass over the four buffers, as `Updates.adamw` does.

        Parameters
        ----------
        params : (N,) array
            Parameters, changed in place.
        grads : (N,) array
            Gradients.
        m, v : (N,) arrays
            First and second moment, changed in place.
        decayed : (K,2) int64
            Ranges [begin, end) that have weight decay.
        rule : AdamRule
            The hyperparameters of this step.

        Returns
        -------
        tuple of three (N,) arrays
            Parameters and both moments.
        """
        shapes = {buffer.shape for buffer in (params, grads, m, v)}
        inside = not decayed.size or (0 <= decayed.min() and decayed.max() <= len(params))
        fit = len(shapes) == params.ndim == 1 and _fit(params, grads, m, v)
        if not (fit and inside):
            return super().adamw(params, grads, m, v, decayed, rule)
        m_scale, v_scale = rule.corrections
        for decays, decay in ((False, 0.0), (True, rule.weight_decay)):
            ranges = []
            for begin, end, decays_here in spans(decayed, len(params)):
                if decays_here == decays:
                    ranges += [(begin + low, begin + high) for low, high in cut(end - begin)]
            self._threads.run(
                loops.adamw,
                ranges,
                params,
                m,
                v,
                grads,
                rule.clip,
                rule.beta1,
                1 - rule.beta1,
                rule.beta2,
                1 - rule.beta2,
                m_scale,
                v_scale,
                rule.eps,
                decay,
                rule.lr,
            )
        return params, m, v


def _fit(*arrays: Any) -> bool:
    """Return whether the loops accept these: contiguous, writable NumPy arrays of one supported precision."""
    dtype = arrays[0].dtype
    if dtype not in PRECISIONS:
        return False
    return all(isinstance(x, np.ndarray) and x.dtype == dtype and x.flags.carray for x in arrays)


def _laid_out(dy: Array, like: Array) -> Array:
    """Return a gradient as the loops accept it, with the shape and dtype of `like`; copied if need be."""
    if dy.shape == like.shape and dy.dtype == like.dtype and dy.flags.carray:
        return dy
    return np.array(np.broadcast_to(dy, like.shape), like.dtype, order="C")


# arrays (T,A,D)
def _rows_of_heads(*arrays: Array) -> list[HeadRows]:
    """View arrays as flat memory; return an empty list where one can't be, or where they differ in layout."""
    views = [_flat(x) for x in arrays]
    usable = [view for view in views if view is not None and _alike(view, views[0])]
    return usable if len(usable) == len(views) else []


# x (T,A,D)
def _flat(x: Array) -> HeadRows | None:
    """View an array as flat memory; None where a row is not contiguous, or rows overlap."""
    stride, remainder = divmod(x.strides[0], x.itemsize)
    row_size = x[0].size
    if remainder or stride < row_size or not _fit(x[:1]):
        return None
    size = (len(x) - 1) * stride + row_size
    memory = np.lib.stride_tricks.as_strided(x, (size,), (x.itemsize,))
    return HeadRows(memory, stride, x.shape, x.dtype)


def _alike(rows: HeadRows, others: HeadRows | None) -> bool:
    """Return whether two views have the same pitch, shape and dtype."""
    if others is None:
        return False
    return rows.pitch == others.pitch and rows.shape == others.shape and rows.dtype == others.dtype


# -> keys (T,2)  threshold scale, scalars
def _dropout_source(rows: Array, rate: float, site: int, real: Any) -> tuple[Array, Any, Any]:
    """Return what the loops draw dropout from: keys, the draw below which to drop, the factor of the rest."""
    keys = dropout_bits.fold(np, rows, *dropout_bits.words(np, site))
    threshold = np.uint32(dropout_bits.threshold(rate))
    return keys, threshold, real(dropout_bits.kept_scale(rate))


# -> keys (T,A,2), or (0,0,2) for no dropout  threshold scale, scalars
def _head_keys(
    drop: dropout_bits.Dropout | None,
    A: int,
    site: int,
    real: Any,
) -> tuple[Array, Any, Any]:
    """Return the same for dropout on the probabilities, with a key for each head of each query."""
    if drop is None or not drop.attention_rate:
        nothing = np.empty((0, 0, 2), np.uint32)
        return nothing, np.uint32(0), real(1)
    keys, threshold, scale = _dropout_source(drop.rows, drop.attention_rate, site, real)
    heads = np.arange(A, dtype=np.uint32)
    return dropout_bits.fold(np, keys[:, None], heads), threshold, scale


def _within(ids: Array, count: int) -> bool:
    """Return whether all of these are indices of rows; NumPy handles others, with its own error message."""
    ids = np.asarray(ids)
    return not ids.size or (0 <= ids.min() and ids.max() < count)


def _cover(cu_seqlens: np.ndarray, T: int) -> bool:
    """Return whether these are the borders of non-empty sequences that make up a batch of T rows."""
    lengths = np.diff(cu_seqlens)
    return len(lengths) > 0 and cu_seqlens[0] == 0 and cu_seqlens[-1] == T and lengths.min() > 0


def _step(ranges: list[tuple[int, int]]) -> int:
    """Return the number of rows in every range except the last."""
    return ranges[0][1] if ranges else 1


def _tasks(borders: np.ndarray, A: int) -> list[tuple[int, int]]:
    """Split the pairs (sequence, head) into ranges with about the same number of scores."""
    return cut_tasks(np.repeat(np.diff(borders) ** 2, A))
