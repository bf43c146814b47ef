"""The engine in C++, operation by operation: float32 arrays go to the kernels of csrc/kernels.

An operation goes to the kernels if its arrays are float32 and have the layout that the kernels need. Arrays
in float64, complex arrays and unusual layouts fall through to NumPy, with the same results and no silent
copy.

With `dtype="bfloat16"` matrix products round their operands to bfloat16 and accumulate in float32.
Parameters, gradients of parameters, statistics and losses stay float32. NumPy has no bfloat16: such an array
is stored as uint16, the upper halves of the floats.
"""

import os
from collections import namedtuple
from typing import Any

import numpy as np

import minibert.engines.cpp._kernels as _kernels
from minibert.base.errors import InputError
from minibert.core.arrays import Array, Saved
from minibert.core.ops import AdamRule, dropout_bits
from minibert.core.ops.primitives import EmbeddingSaved, LinearSaved, TanhSaved
from minibert.model.ops import Ops

# What operations save for backward, where that differs from the reference.
CppGeluSaved = namedtuple("CppGeluSaved", "x")
CppLayerNormSaved = namedtuple("CppLayerNormSaved", "x mean rstd gamma")
CppAttentionSaved = namedtuple("CppAttentionSaved", "q k v cu_seqlens y softmax causal dropped")
CppCrossEntropySaved = namedtuple("CppCrossEntropySaved", "gradient")
# What a kernel draws dropout from: the keys of rows (T,2), and (site, threshold).
Draws = namedtuple("Draws", "rows place")

FLOAT = np.dtype(np.float32)
INDEX = np.dtype(np.int32)
BFLOAT16 = np.dtype(np.uint16)
empty = _kernels.empty
available = _kernels.available  # instruction sets, the fastest first


def multiply_add_rate(threads: int, seconds: float, narrow: bool, isa: str = "") -> float:
    """Measure how fast the processor multiplies and adds, from registers.

    Parameters
    ----------
    threads : int
        How many threads multiply at once.
    seconds : float
        How long to measure.
    narrow : bool
        Whether operands are bfloat16, where the instruction set has instructions for them; else float32.
    isa : str
        The instruction set, by name; "", the default, for the fastest.

    Returns
    -------
    float
        GFLOP/s of all threads, a multiply-add counting as two operations.
    """
    return _kernels.Engine(isa, threads).multiply_add_rate(seconds, narrow)


def forced_isa() -> str:
    """Return the instruction set that the environment variable MINIBERT_ISA names, or "".

    Raises
    ------
    InputError
        When this processor, or the compiled library, does not have it.
    """
    isa = os.environ.get("MINIBERT_ISA", "")
    if isa and isa not in available():
        raise InputError(f"MINIBERT_ISA={isa!r} can't run here; choose from {', '.join(available())}.")
    return isa


class CppPrimitives(Ops):
    """Operations of the reference, each computed by a kernel; shapes are those of `minibert.core.ops`.

    Parameters
    ----------
    threads : int, default 1
        Threads of the kernels' own pool. Results have the same bits for any number.
    isa : str
        The instruction set, by name; "", the default, for that of MINIBERT_ISA or else the fastest.
    dtype : str, default "float32"
        "bfloat16" to round the operands of matrix products; anything else leaves them float32.

    Raises
    ------
    InputError
        When the instruction set does not exist here, or the number of threads is not possible.
    """

    def __init__(self, threads: int = 1, isa: str = "", dtype: str = "float32") -> None:
        super().__init__()
        self._narrow = dtype == "bfloat16"
        self._kept = BFLOAT16 if self._narrow else FLOAT  # the type in which activations are kept
        self._accumulators: np.ndarray | None = None  # the last argument of `zero`
        self._cleared = False  # whether AdamW has set them to zero since
        try:
            self._run = _kernels.Engine(isa or forced_isa(), threads, self._narrow)
        except ValueError as error:
            raise InputError(str(error)) from None
        self.has_int8 = self._run.has_int8

    @property
    def _details(self) -> str:
        """Describe precision, instruction set and threads, for the sentence about the engine."""
        count = f"{self._run.threads} thread"
        if self._run.threads > 1:
            count += "s"
        dtype = "in bfloat16, " if self._narrow else ""
        return f"{dtype}instruction set {self._run.isa} (available: {', '.join(available())}), {count}"

    def upcast(self, x: Array) -> Array:
        """Return activations in float32.

        Parameters
        ----------
        x : array
            Any shape; with bfloat16 as the engine's type, activations as uint16.

        Returns
        -------
        array
            An exact float32 copy of activations in bfloat16; any other array itself.
        """
        if not self._is_narrow(x):
            return x
        bits = x.astype(np.uint32)
        bits <<= 16
        return bits.view(FLOAT)

    def _is_narrow(self, x: Array) -> bool:
        """Return whether x holds bfloat16 activations; for a float32 engine uint16 means something else."""
        return self._narrow and x.dtype == BFLOAT16

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
        if not contiguous(total, extra) or total.shape != extra.shape:
            return super().accumulate(total, extra)
        self._run.accumulate(total, extra)
        return total

    def prepack(self, weight: Array, int8: bool = False) -> None:
        """Keep a second copy of a read-only matrix, in the layout in which products read it.

        Parameters
        ----------
        weight : (K,N) float32
            The right operand of many later products; an array of another kind is ignored.
        int8 : bool, default False
            Whether to quantise the copy, which needs a processor with instructions for it (`has_int8`).
        """
        if _matrices(weight):
            self._run.keep(weight, int8)

    def linear(self, x: Array, weight: Array, bias: Array) -> tuple[Array, Saved]:
        """Return x @ weight + bias, as `Primitives.linear` does.

        Parameters
        ----------
        x : (T,K) array
            Inputs.
        weight : (K,N) array
            The matrix, of any strides.
        bias : (N,) array
            Added to every row.

        Returns
        -------
        tuple of (T,N) array and LinearSaved
            The result in float32; x and the weight.
        """
        x = self.upcast(x)
        if not (_matrices(x, weight) and contiguous(bias)):
            return super().linear(x, weight, bias)
        y = empty((x.shape[0], weight.shape[1]))
        self._run.linear(x, weight, bias, y)
        return y, LinearSaved(x, weight)

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
            Gradients of x (T,K), weight (K,N) and bias (N,).
        """
        x, weight = saved.x, saved.weight
        if not (_matrices(x, weight) and contiguous(dy)):
            return super().linear_backward(dy, saved)
        dx = empty(x.shape)
        dweight = empty(weight.shape)
        dbias = empty(weight.shape[1:])
        self._run.gemm(dy, weight.T, dx, False)
        self._run.gemm(x.T, dy, dweight, False)
        self._run.column_sums(dy, None, dbias, False)
        return dx, dweight, dbias

    def _product(self, a: Array, b: Array) -> Array:
        """Return a @ b."""
        if not _matrices(a, b):
            return super()._product(a, b)
        out = empty((a.shape[0], b.shape[1]))
        self._run.gemm(a, b, out, False)
        return out

    def gelu(self, x: Array, form: str) -> tuple[Array, Saved]:
        """Return x Phi(x), as `Primitives.gelu` does; backward recomputes Phi, so only x is kept.

        Parameters
        ----------
        x : array
            Any shape.
        form : str
            "erf" or "tanh".

        Returns
        -------
        tuple of array and CppGeluSaved
            The result, and x.
        """
        if not contiguous(x):
            return super().gelu(x, form)
        y = empty(x.shape)
        self._run.gelu(x, y, form == "tanh")
        return y, CppGeluSaved(x)

    def gelu_backward(self, dy: Array, saved: Saved, form: str) -> Array:
        """Return the gradient of `gelu`.

        Parameters
        ----------
        dy : array
            Gradient of the result.
        saved : CppGeluSaved or GeluSaved
            What `gelu` kept.
        form : str
            The form that `gelu` was called with.

        Returns
        -------
        array
            Gradient of x.
        """
        if not isinstance(saved, CppGeluSaved):
            return super().gelu_backward(dy, saved, form)
        dx = empty(saved.x.shape)
        self._run.gelu_backward(laid_out(dy), saved.x, dx, form == "tanh")
        return dx

    def tanh(self, x: Array) -> tuple[Array, Saved]:
        """Return the hyperbolic tangent, as `Primitives.tanh` does.

        Parameters
        ----------
        x : array
            Any shape.

        Returns
        -------
        tuple of array and TanhSaved
            The result, and the result again, which is all that backward needs.
        """
        if not contiguous(x):
            return super().tanh(x)
        y = empty(x.shape)
        self._run.tanh(x, y)
        return y, TanhSaved(y)

    def tanh_backward(self, dy: Array, saved: Saved) -> Array:
        """Return the gradient of `tanh`.

        Parameters
        ----------
        dy : array
            Gradient of the result.
        saved : TanhSaved
            What `tanh` kept.

        Returns
        -------
        array
            Gradient of x.
        """
        if not contiguous(dy, saved.y):
            return super().tanh_backward(dy, saved)
        dx = empty(saved.y.shape)
        self._run.tanh_backward(dy, saved.y, dx)
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
        tuple of (T,H) array and CppLayerNormSaved
            The result; x itself, and mean and 1 / deviation of each row.
        """
        if not contiguous(x, gamma, beta) or x.ndim != 2:
            return super().layer_norm(x, gamma, beta, eps)
        y = empty(x.shape)
        mean = empty(x.shape[:1])
        rstd = empty(x.shape[:1])
        self._run.layer_norm(x, gamma, beta, eps, y, mean, rstd)
        return y, CppLayerNormSaved(x, mean, rstd, gamma)

    def layer_norm_backward(self, dy: Array, saved: Saved) -> tuple[Array, Array, Array]:
        """Return the gradients of `layer_norm`.

        Parameters
        ----------
        dy : (T,H) array
            Gradient of the result.
        saved : CppLayerNormSaved or LayerNormSaved
            What `layer_norm` kept.

        Returns
        -------
        tuple of three arrays
            Gradients of x (T,H), gamma (H,) and beta (H,).
        """
        if not isinstance(saved, CppLayerNormSaved):
            return super().layer_norm_backward(dy, saved)
        x, mean, rstd, gamma = saved.x, saved.mean, saved.rstd, saved.gamma
        dx = empty(x.shape)
        dgamma = empty(gamma.shape)
        dbeta = empty(gamma.shape)
        add = False
        self._run.layer_norm_backward(laid_out(dy), x, mean, rstd, gamma, dx, dgamma, dbeta, add)
        return dx, dgamma, dbeta

    def embedding(self, ids: Array, table: Array) -> tuple[Array, Saved]:
        """Look up rows of a table by index, as `Primitives.embedding` does.

        Parameters
        ----------
        ids : (T,) int32
            Indices of rows; integers of another type are left to NumPy.
        table : (V,H) array
            The table.

        Returns
        -------
        tuple of (T,H) array and EmbeddingSaved
            The rows, and their indices.
        """
        if not (indices(ids) and contiguous(table) and table.ndim == 2):
            return super().embedding(ids, table)
        out = empty((len(ids), table.shape[1]))
        self._run.gather(ids, table, out)
        return out, EmbeddingSaved(ids)

    # dy (M,H) -> dx (T,H)
    def take_rows_backward(self, dy: Array, saved: Saved) -> Array:
        """Put the rows of dy back where they were taken from, with zeros elsewhere.

        Parameters
        ----------
        dy : (M,H) array
            Gradient of the rows that were taken.
        saved : TakeRowsSaved
            What `take_rows` kept.

        Returns
        -------
        (T,H) array
            Gradient of x, in its type; float32 where x is in bfloat16.
        """
        dtype = FLOAT if self._is_narrow(saved.x) else saved.x.dtype
        dx = np.zeros(saved.x.shape, dtype)
        return self.scatter_add(dx, saved.rows, dy)

    def scatter_add(self, total: Array, ids: Array, rows: Array) -> Array:
        """Add rows to those of a table, total[ids[t]] += rows[t], in the order of t, in place.

        Parameters
        ----------
        total : (V,H) array
            The table.
        ids : (T,) int32
            Indices of rows, in which one may occur several times; integers of another type are left to NumPy.
        rows : (T,H) array
            What to add.

        Returns
        -------
        (V,H) array
            The table.
        """
        if not (indices(ids) and contiguous(total, rows) and total.ndim == 2):
            return super().scatter_add(total, ids, rows)
        self._run.scatter_add(ids, rows, total)
        return total

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
        cu_seqlens : (S+1,) int32
            Where sequences begin.
        causal : bool, default False
            Whether a token attends only to itself and the tokens before it.
        drop : Dropout or None
            The source of dropout on the probabilities; None, the default, for none.
        site : int, default 0
            The dropout site: a number that identifies this place in the network.

        Returns
        -------
        tuple of (T,A,D) array and CppAttentionSaved
            The result; the result again, the arguments, and for each softmax its maximum and 1 / its sum.
        """
        if not (all(map(_heads, (q, k, v))) and indices(cu_seqlens)):
            return super().attention(q, k, v, cu_seqlens, causal, drop, site)
        T, A, _ = q.shape
        y = empty(q.shape)
        softmax = empty((T * A, 2))
        dropped = draws(drop, drop.attention_rate if drop else 0.0, site)
        self._run.attention(q, k, v, cu_seqlens, bool(causal), dropped, y, softmax)
        return y, CppAttentionSaved(q, k, v, cu_seqlens, y, softmax, np.asarray(bool(causal)), dropped)

    def attention_backward(self, dy: Array, saved: Saved) -> tuple[Array, Array, Array]:
        """Return the gradients of `attention`; the probabilities are recomputed.

        Parameters
        ----------
        dy : (T,A,D) array
            Gradient of the result.
        saved : CppAttentionSaved or AttentionSaved
            What `attention` kept.

        Returns
        -------
        tuple of three (T,A,D) arrays
            Gradients of q, k and v.
        """
        if not isinstance(saved, CppAttentionSaved):
            return super().attention_backward(dy, saved)
        q, k, v, y = saved.q, saved.k, saved.v, saved.y
        causal = bool(saved.causal)
        dq, dk, dv = (empty(q.shape) for _ in "qkv")
        if not _heads(dy):
            dy = laid_out(dy)
        self._run.attention_backward(
            dy,
            q,
            k,
            v,
            saved.cu_seqlens,
            causal,
            saved.dropped,
            y,
            saved.softmax,
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
            Scores, which are not written to.
        labels : (N,) integers
            The right column of each row.

        Returns
        -------
        tuple of (N,) array and CppCrossEntropySaved
            Losses in nats; the gradient (N,K) of each row's loss, which the kernel computes along the way.
        """
        ids = labels
        if not indices(labels):
            ids = np.asarray(labels).astype(INDEX)  # values outside int32 wrap around, which is noticed below
        fits = contiguous(logits) and logits.ndim == 2 and ids.ndim == 1
        if not (fits and np.array_equal(ids, labels)):
            return super().softmax_cross_entropy(logits, labels)
        gradient = empty(logits.shape)
        nll = empty(logits.shape[:1])
        predicted = np.empty(len(ids), INDEX)
        np.copyto(gradient, logits)
        self._run.softmax_cross_entropy(gradient, ids, nll, predicted)
        return nll, CppCrossEntropySaved(gradient)

    def softmax_cross_entropy_backward(self, dnll: Array, saved: Saved) -> Array:
        """Return the gradient of `softmax_cross_entropy`, which has already computed that of each row's loss.

        Parameters
        ----------
        dnll : (N,) array
            Gradient of the losses.
        saved : CppCrossEntropySaved or CrossEntropySaved
            What `softmax_cross_entropy` kept.

        Returns
        -------
        (N,K) array
            Gradient of the logits.
        """
        if not isinstance(saved, CppCrossEntropySaved):
            return super().softmax_cross_entropy_backward(dnll, saved)
        return saved.gradient * laid_out(dnll)[:, None]

    def _dropout(self, x: Array, drop: dropout_bits.Dropout | None, site: int) -> tuple[Array, Saved]:
        """Apply dropout; only the keys are saved, from which backward draws the same bits again."""
        if drop is None or not drop.rate or not contiguous(x):
            return super()._dropout(x, drop, site)
        y = empty(x.shape)
        dropped = draws(drop, drop.rate, site)
        self._run.dropout(x, y, dropped)
        return y, dropped

    def _dropout_backward(self, dy: Array, saved: Saved) -> Array:
        """Return the gradient of `_dropout`, which is the same dropout of dy."""
        if not isinstance(saved, Draws):
            return super()._dropout_backward(dy, saved)
        dx = empty(dy.shape)
        self._run.dropout(laid_out(dy), dx, saved)
        return dx

    def zero(self, grads: Array) -> None:
        """Set accumulators to zero, unless AdamW has done so in the previous step.

        Parameters
        ----------
        grads : (N,) array
            The accumulators. If they are those of the last call and `adamw` has cleared them since, nothing
            is written.
        """
        if not (grads is self._accumulators and self._cleared):
            if contiguous(grads) and grads.ndim == 1:
                self._run.clear(grads)
            else:
                super().zero(grads)
        self._accumulators = grads
        self._cleared = False

    def global_norm(self, grads: Array) -> Array:
        """Return the Euclidean norm of all gradients together, summed in double precision.

        Parameters
        ----------
        grads : (N,) array
            The gradients.

        Returns
        -------
        float
            Their norm.
        """
        if not contiguous(grads) or grads.ndim != 1:
            return super().global_norm(grads)
        return self._run.global_norm(grads)

    def adamw(
        self,
        params: Array,
        grads: Array,
        m: Array,
        v: Array,
        decayed: np.ndarray,
        rule: AdamRule,
    ) -> tuple[Array, Array, Array]:
        """Take one step of AdamW in one pass over memory, as `Updates.adamw` does.

        If the gradients are the accumulators that `zero` was last given, the pass also sets them to zero.

        Parameters
        ----------
        params : (N,) array
            Parameters, changed in place.
        grads : (N,) array
            Gradients, consumed.
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
        if not (contiguous(params, grads, m, v) and params.ndim == 1 and decayed.dtype == np.int64):
            return super().adamw(params, grads, m, v, decayed, rule)
        m_scale, v_scale = rule.corrections
        clears = grads is self._accumulators
        self._run.adamw(
            params,
            grads,
            m,
            v,
            decayed,
            lr=rule.lr,
            beta1=rule.beta1,
            beta2=rule.beta2,
            eps=rule.eps,
            weight_decay=rule.weight_decay,
            clip=rule.clip,
            m_scale=m_scale,
            v_scale=v_scale,
            clears=clears,
        )
        self._cleared = clears
        return params, m, v

    def _orthogonal(self, x: Array) -> Array:
        """Bring the singular values of a matrix near 1; a tall matrix is transposed, as the kernel needs."""
        if x.dtype != FLOAT:
            return super()._orthogonal(x)
        is_tall = x.shape[0] > x.shape[1]
        wide = np.array(x.T if is_tall else x, order="C")
        self._run.orthogonalise(wide)
        return wide.T if is_tall else wide


def contiguous(*arrays: Any, dtype: np.dtype = FLOAT) -> bool:
    """Return whether all arguments are contiguous, aligned NumPy arrays of one type, which a kernel accepts.

    Parameters
    ----------
    *arrays : Any
        Arguments for a kernel.
    dtype : np.dtype
        The type; float32 by default.

    Returns
    -------
    bool
        False if any of them is something else, such as a subclass of NumPy's array.
    """
    return all(_is_aligned(x, dtype) and x.flags.c_contiguous for x in arrays)


def _is_aligned(x: Any, dtype: np.dtype = FLOAT) -> bool:
    """Return whether x is a NumPy array of this type whose elements all lie at multiples of their size."""
    return type(x) is np.ndarray and x.dtype == dtype and x.flags.aligned


def _matrices(*arrays: Any) -> bool:
    """Return whether all arguments are float32 matrices, of any strides."""
    return all(_is_aligned(x) and x.ndim == 2 for x in arrays)


def indices(x: Array) -> bool:
    """Return whether x is a contiguous vector of int32, which a kernel accepts as indices.

    Parameters
    ----------
    x : Any
        An argument for a kernel.

    Returns
    -------
    bool
        True if it has that type and layout; its values are not checked.
    """
    return contiguous(x, dtype=INDEX) and x.ndim == 1


def laid_out(dy: Array) -> Array:
    """Return a gradient as contiguous, aligned float32, as those from blocks of this engine already are.

    Parameters
    ----------
    dy : array
        Any shape, type and layout.

    Returns
    -------
    np.ndarray
        The argument itself if it is contiguous, aligned float32; otherwise a copy.
    """
    return np.require(dy, FLOAT, ["C", "A"])


def _heads(x: Array) -> bool:
    """Return whether x (T,A,D) is float32 and each token's heads are contiguous; gaps may separate tokens."""
    if not _is_aligned(x) or x.ndim != 3:
        return False
    _, A, D = x.shape
    token_stride, head_stride, element_stride = x.strides
    size = FLOAT.itemsize
    is_head_contiguous = element_stride == size or D == 1
    are_heads_adjacent = head_stride == size * D or A == 1
    return is_head_contiguous and are_heads_adjacent and token_stride >= size * A * D


def draws(drop: dropout_bits.Dropout | None, rate: float, site: int) -> Draws | tuple[()]:
    """Return what a kernel draws the bits of dropout from, the same each time.

    Parameters
    ----------
    drop : Dropout or None
        The source of the batch's dropout.
    rate : float
        The probability of dropping an element at this site.
    site : int
        The dropout site.

    Returns
    -------
    Draws or ()
        Row keys (T,2), and (site, threshold) as uint32; () for no dropout.
    """
    if drop is None or not rate:
        return ()
    [word] = dropout_bits.words(np, site)
    place = np.array([word[0], dropout_bits.threshold(rate)], np.uint32)
    return Draws(drop.rows, place)
