"""The engine in C++: float32 arithmetic by the kernels of csrc/kernels, everything else by the reference.

An operation goes to the kernels when its arrays are float32 and laid out as the kernels take them; float64,
complex numbers and odd layouts fall through to NumPy, with the same results and no copy made in silence.

With `fuse=False` the kernels stand under the reference's own blocks. A wrong gradient is then found in one
run: numpy, cpp unfused, cpp fused.
"""

from typing import Any

import numpy as np

from minibert.backends import _kernels
from minibert.errors import InputError
from minibert.ops import Ops, random
from minibert.ops.blocks import EMBEDDING_SITE, layer_sites
from minibert.ops.primitives import Saved

FLOAT, INDEX = np.dtype(np.float32), np.dtype(np.int32)
LANES = 16  # floats in the widest vector: rows of logits begin at multiples of it
empty = _kernels.empty


class CppPrimitives(Ops):
    """Operation by operation."""

    def __init__(self, xp: Any = np, threads: int = 1, isa: str = "") -> None:
        super().__init__(xp)
        try:
            self._run = _kernels.Engine(isa, threads)
        except ValueError as error:
            raise InputError(str(error)) from None

    @property
    def _details(self) -> str:
        count = f"{self._run.threads} thread" + ("s" if self._run.threads > 1 else "")
        return f"{self._run.isa} of {', '.join(_kernels.available())}, {count}"

    def accumulate(self, total: Any, extra: Any) -> Any:
        """total += extra, in place."""
        if not _whole(total, extra) or total.shape != extra.shape:
            return super().accumulate(total, extra)
        self._run.accumulate(total, extra)
        return total

    # x (T,K)  weight (K,N)  bias (N,) -> (T,N)
    def linear(self, x: Any, weight: Any, bias: Any) -> tuple[Any, Saved]:
        """x @ weight + bias."""
        if not (_matrices(x, weight) and _whole(bias)):
            return super().linear(x, weight, bias)
        y = empty((x.shape[0], weight.shape[1]))
        self._run.linear(x, weight, bias, y)
        return y, (x, weight)

    # dy (T,N) -> dx (T,K)  dweight (K,N)  dbias (N,)
    def linear_backward(self, dy: Any, saved: Saved) -> tuple[Any, Any, Any]:
        """Gradients of `linear`."""
        x, weight = saved
        if not (_matrices(x, weight) and _whole(dy)):
            return super().linear_backward(dy, saved)
        dx, dweight, dbias = empty(x.shape), empty(weight.shape), empty(weight.shape[1:])
        self._run.gemm(dy, weight.T, dx, False)
        self._run.gemm(x.T, dy, dweight, False)
        self._run.column_sums(dy, None, dbias, False)
        return dx, dweight, dbias

    # x (...) -> (...)
    def gelu(self, x: Any, form: str) -> tuple[Any, Saved]:
        """x Phi(x); backward computes Phi anew, so only x is kept."""
        if not _whole(x):
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
        self._run.gelu_backward(_in_one_piece(dy), x, dx, form == "tanh")
        return dx

    # x (...) -> (...)
    def tanh(self, x: Any) -> tuple[Any, Saved]:
        """Hyperbolic tangent."""
        if not _whole(x):
            return super().tanh(x)
        y = empty(x.shape)
        self._run.tanh(x, y)
        return y, (y,)

    def tanh_backward(self, dy: Any, saved: Saved) -> Any:
        """dx = dy (1 - y^2)."""
        (y,) = saved
        if not _whole(dy, y):
            return super().tanh_backward(dy, saved)
        dx = empty(y.shape)
        self._run.tanh_backward(dy, y, dx)
        return dx

    # x (T,H)  gamma (H,)  beta (H,) -> (T,H)
    def layer_norm(self, x: Any, gamma: Any, beta: Any, eps: float) -> tuple[Any, Saved]:
        """gamma (x - mean) / sqrt(variance + eps) + beta; kept are x, mean and 1 / sqrt(variance + eps)."""
        if not _whole(x, gamma, beta) or x.ndim != 2:
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
        self._run.layer_norm_backward(_in_one_piece(dy), x, mean, inverse, gamma, dx, dgamma, dbeta, False)
        return dx, dgamma, dbeta

    # ids (T,)  table (V,H) -> (T,H)
    def embedding(self, ids: Any, table: Any) -> tuple[Any, Saved]:
        """Rows of a table by number."""
        return self._rows(ids, table), (ids,)

    # x (T,H)  rows (M,) -> (M,H)
    def take_rows(self, x: Any, rows: Any) -> tuple[Any, Saved]:
        """Some rows of x: the masked positions, the [CLS] of each sequence."""
        return self._rows(rows, x), (rows, x)

    def _rows(self, ids: Any, table: Any) -> Any:
        if not (_indices(ids) and _whole(table) and table.ndim == 2):
            return table[ids]
        out = empty((len(ids), table.shape[1]))
        self._run.gather(ids, table, out)
        return out

    # total (V,H)  ids (T,)  rows (T,H) -> (V,H)
    def scatter_add(self, total: Any, ids: Any, rows: Any) -> Any:
        """total[ids[t]] += rows[t] for every t, in the order of t, in place."""
        if not (_indices(ids) and _whole(total, rows) and total.ndim == 2):
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
        if not (all(map(_heads, (q, k, v))) and _indices(cu_seqlens)):
            return super().attention(q, k, v, cu_seqlens, causal, drop, site)
        y, softmax = empty(q.shape), empty((q.shape[0] * q.shape[1], 2))
        dropped = _dropped(drop, drop.attention_rate if drop else 0.0, site)
        self._run.attention(q, k, v, cu_seqlens, bool(causal), dropped, y, softmax)
        return y, (q, k, v, cu_seqlens, y, softmax, np.asarray(bool(causal)), dropped)

    # dy (T,A,D) -> dq dk dv (T,A,D)
    def attention_backward(self, dy: Any, saved: Saved) -> tuple[Any, Any, Any]:
        """Gradients of `attention`."""
        if len(saved) == 5:  # the reference's own
            return super().attention_backward(dy, saved)
        q, k, v, cu_seqlens, y, softmax, causal, dropped = saved
        dq, dk, dv = (empty(q.shape) for _ in "qkv")
        dy = dy if _heads(dy) else _in_one_piece(dy)
        self._run.attention_backward(
            dy, q, k, v, cu_seqlens, bool(causal), dropped, y, softmax, dq, dk, dv
        )
        return dq, dk, dv

    # logits (N,K)  labels (N,) -> (N,)
    def softmax_cross_entropy(self, logits: Any, labels: Any) -> tuple[Any, Saved]:
        """-log softmax(logits)[label] of every row, in nats."""
        ids = _as_indices(labels)
        if ids is None or not _whole(logits) or logits.ndim != 2:
            return super().softmax_cross_entropy(logits, labels)
        probabilities, nll = empty(logits.shape), empty(logits.shape[:1])
        np.copyto(probabilities, logits)
        self._run.softmax_cross_entropy(probabilities, ids, nll, np.empty(len(ids), INDEX))
        return nll, (probabilities, ids)

    # dnll (N,) -> dlogits (N,K)
    def softmax_cross_entropy_backward(self, dnll: Any, saved: Saved) -> Any:
        """Gradient of `softmax_cross_entropy`; the probabilities become it."""
        probabilities, labels = saved
        if not (_whole(dnll, probabilities) and _indices(labels)):
            return super().softmax_cross_entropy_backward(dnll, saved)
        self._run.softmax_cross_entropy_backward(probabilities, labels, dnll)
        return probabilities

    # -> (T,columns) of `dtype`: 0 where dropped, 1 / (1 - rate) elsewhere
    def dropout_mask(self, drop: random.Dropout, site: Any, columns: int, dtype: Any) -> Any:
        """Multipliers of dropout at one place in the network."""
        if np.dtype(dtype) != FLOAT or not drop.rate:
            return super().dropout_mask(drop, site, columns, dtype)
        mask = empty((len(drop.rows), columns))
        mask.fill(1)
        self._run.dropout(mask, mask, _dropped(drop, drop.rate, site))
        return mask

    def _dropout(self, x: Any, drop: random.Dropout | None, site: Any) -> tuple[Any, Saved]:
        if drop is None or not drop.rate or not _whole(x):
            return super()._dropout(x, drop, site)
        y, dropped = empty(x.shape), _dropped(drop, drop.rate, site)
        self._run.dropout(x, y, dropped)
        return y, dropped

    def _dropout_backward(self, dy: Any, saved: Saved) -> Any:
        if len(saved) < 2:  # the reference's own
            return super()._dropout_backward(dy, saved)
        dx = empty(dy.shape)
        self._run.dropout(_in_one_piece(dy), dx, saved)
        return dx

    # grads (N,) -> scalar
    def global_norm(self, grads: Any) -> Any:
        """Euclidean norm of all gradients together, summed in double precision."""
        if not _whole(grads) or grads.ndim != 1:
            return super().global_norm(grads)
        return self._run.global_norm(grads)

    # params grads m v (N,)  decayed (K,2) -> params m v (N,)
    def adamw(
        self,
        params: Any,
        grads: Any,
        m: Any,
        v: Any,
        decayed: np.ndarray,
        *,
        lr: float,
        step: int,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        bias_correction: bool = True,
        clip: float = 1.0,
    ) -> tuple[Any, Any, Any]:
        """One step of AdamW in one sweep over memory."""
        if not (_whole(params, grads, m, v) and params.ndim == 1 and decayed.dtype == np.int64):
            return super().adamw(
                params,
                grads,
                m,
                v,
                decayed,
                lr=lr,
                step=step,
                beta1=beta1,
                beta2=beta2,
                eps=eps,
                weight_decay=weight_decay,
                bias_correction=bias_correction,
                clip=clip,
            )
        scales = (1 / (1 - beta1**step), 1 / (1 - beta2**step)) if bias_correction else (1.0, 1.0)
        self._run.adamw(params, grads, m, v, decayed, lr, beta1, beta2, eps, weight_decay, *scales, clip)
        return params, m, v


class CppOps(CppPrimitives):
    """Every operation of the reference, float32 in C++.

    A fused block keeps what its backward can't compute anew at once, and no more; its backward is free to
    overwrite what was kept, and adds weight gradients to their accumulators inside the matrix product.

    Parameters
    ----------
    xp : NumPy; the reference underneath computes with it.
    threads : of the kernels' own pool. Results have the same bits for any number of them.
    isa : the instruction set, by name; the best one that the processor has when empty.
    fuse : whole sublayers in a few passes over memory, not one pass for each operation.
    """

    name = "cpp"

    def __init__(self, xp: Any = np, threads: int = 1, isa: str = "", fuse: bool = True) -> None:
        super().__init__(xp, threads, isa)
        self._fuse = fuse

    # input_ids token_type_ids positions (T,) -> (T,H)
    def embedding_block(
        self, batch: Any, params: dict, config: Any, drop: random.Dropout | None
    ) -> tuple[Any, Saved]:
        """dropout(LayerNorm(word + position + segment)) in one pass."""
        ids = (batch.input_ids, batch.positions, batch.token_type_ids)
        if not (self._fuse and _whole(*params.values()) and all(map(_indices, ids))):
            return super().embedding_block(batch, params, config, drop)
        T, H = len(batch.input_ids), params["word"].shape[1]
        total, y, mean, inverse = empty((T, H)), empty((T, H)), empty((T,)), empty((T,))
        dropped = _dropped(drop, drop.rate if drop else 0.0, EMBEDDING_SITE)
        word, positions, segments = ids
        self._run.embedding_layer_norm(
            word,
            params["word"],
            positions,
            params["position"],
            segments,
            params["segment"],
            params["gamma"],
            params["beta"],
            config.layer_norm_eps,
            dropped,
            total,
            y,
            mean,
            inverse,
        )
        return y, (*ids, total, mean, inverse, dropped)

    # dy (T,H) -> grads
    def embedding_block_backward(self, dy: Any, saved: Saved, params: dict, grads: dict) -> dict:
        """Gradients of the three tables and the LayerNorm."""
        if len(saved) == 5:  # the reference's own
            return super().embedding_block_backward(dy, saved, params, grads)
        word, positions, segments, total, mean, inverse, dropped = saved
        dsum = empty(total.shape)
        self._run.embedding_layer_norm_backward(
            _in_one_piece(dy),
            total,
            mean,
            inverse,
            params["gamma"],
            dropped,
            dsum,
            grads["gamma"],
            grads["beta"],
        )
        for name, ids in (("word", word), ("position", positions), ("segment", segments)):
            self._run.scatter_add(ids, dsum, grads[name])
        return grads

    # x (T,H) -> (T,H)
    def attention_block(
        self, x: Any, params: dict, cu_seqlens: Any, config: Any, drop: random.Dropout | None, layer: Any
    ) -> tuple[Any, Saved]:
        """LayerNorm(x + dropout(output(attention(query(x), key(x), value(x)))))."""
        if not (self._fuse and _whole(x, *params.values()) and _indices(cu_seqlens)):
            return super().attention_block(x, params, cu_seqlens, config, drop, layer)
        attention_site, output_site, _ = layer_sites(layer)
        T, H = x.shape
        qkv, context = empty((T, 3 * H)), empty((T, config.A, config.D))
        self._run.linear(x, params["qkv_weight"], params["qkv_bias"], qkv)
        softmax, causal = empty((T * config.A, 2)), bool(config.is_decoder)
        dropped = _dropped(drop, drop.attention_rate if drop else 0.0, attention_site)
        q, k, v = _in_three(qkv, context)
        self._run.attention(q, k, v, cu_seqlens, causal, dropped, context, softmax)
        out = empty((T, H))
        self._run.gemm(context.reshape(T, H), params["output_weight"], out, False)
        y, kept = self._norm(x, out, "output_bias", params, config, drop, output_site)
        return y, (x, qkv, cu_seqlens, context, softmax, np.asarray(causal), dropped, *kept)

    # dy (T,H) -> dx (T,H), grads
    def attention_block_backward(self, dy: Any, saved: Saved, params: dict, grads: dict) -> tuple[Any, dict]:
        """Gradients of `attention_block`."""
        if len(saved) == 5:  # the reference's own
            return super().attention_block_backward(dy, saved, params, grads)
        x, qkv, cu_seqlens, context, softmax, causal, dropped, *kept = saved
        dx, d_out, spare = self._norm_gradient(dy, kept, "output_bias", params, grads)
        self._run.gemm(context.reshape(x.shape).T, d_out, grads["output_weight"], True)
        d_context = spare.reshape(context.shape)
        self._run.gemm(d_out, params["output_weight"].T, spare, False)
        d_qkv = empty(qkv.shape)
        self._run.attention_backward(
            d_context,
            *_in_three(qkv, context),
            cu_seqlens,
            bool(causal),
            dropped,
            context,
            softmax,
            *_in_three(d_qkv, context),
        )
        self._linear_gradient(d_qkv, x, params, grads, "qkv_weight", "qkv_bias", dx)
        return dx, grads

    # x (T,H) -> (T,H)
    def feed_forward_block(
        self, x: Any, params: dict, config: Any, drop: random.Dropout | None, layer: Any
    ) -> tuple[Any, Saved]:
        """LayerNorm(x + dropout(W2 gelu(W1 x))). What gelu makes is not kept: its backward makes it again."""
        if not (self._fuse and _whole(x, *params.values())):
            return super().feed_forward_block(x, params, config, drop, layer)
        *_, output_site = layer_sites(layer)
        T, F = len(x), params["in_bias"].shape[0]
        u, inner, out = empty((T, F)), empty((T, F)), empty(x.shape)
        self._run.linear_gelu(x, params["in_weight"], params["in_bias"], config.gelu_form == "tanh", u, inner)
        self._run.gemm(inner, params["out_weight"], out, False)
        y, kept = self._norm(x, out, "out_bias", params, config, drop, output_site)
        return y, (x, u, *kept)

    # dy (T,H) -> dx (T,H), grads
    def feed_forward_block_backward(
        self, dy: Any, saved: Saved, params: dict, grads: dict, config: Any
    ) -> tuple[Any, dict]:
        """Gradients of `feed_forward_block`."""
        if len(saved) == 5:  # the reference's own
            return super().feed_forward_block_backward(dy, saved, params, grads, config)
        x, u, *kept = saved
        dx, d_out, _ = self._norm_gradient(dy, kept, "out_bias", params, grads)
        du = empty(u.shape)
        self._run.linear_gelu_backward(d_out, params["out_weight"].T, config.gelu_form == "tanh", u, du)
        self._run.gemm(u.T, d_out, grads["out_weight"], True)  # u is gelu(u) by now
        self._linear_gradient(du, x, params, grads, "in_weight", "in_bias", dx)
        return dx, grads

    # x (T,H)  rows labels (M,)  table (V,H) -> nll (M,)  predicted (M,)
    def masked_lm_head(
        self, x: Any, rows: Any, labels: Any, params: dict, table: Any, config: Any
    ) -> tuple[tuple[Any, Any], Saved]:
        """-log probability of the label at each masked row, and the entry that scores highest there.

        One (M,V) array in all: logits become probabilities in place, and in backward their own gradient.
        """
        fits = _whole(x, table, *params.values()) and _indices(rows) and _indices(labels)
        if not (self._fuse and fits):
            return super().masked_lm_head(x, rows, labels, params, table, config)
        (V, H), M = table.shape, len(rows)
        taken, u, inner, normal = (empty((M, H)) for _ in range(4))
        mean, inverse, nll, predicted = empty((M,)), empty((M,)), empty((M,)), np.empty(M, INDEX)
        self._run.gather(rows, x, taken)
        self._run.linear_gelu(taken, params["weight"], params["bias"], config.gelu_form == "tanh", u, inner)
        gamma, beta = params["gamma"], params["beta"]
        self._run.layer_norm(inner, gamma, beta, config.layer_norm_eps, normal, mean, inverse)
        logits = empty((M, -(-V // LANES) * LANES))[:, :V]
        self._run.linear(normal, table.T, params["output_bias"], logits)
        self._run.softmax_cross_entropy(logits, labels, nll, predicted)
        saved = (rows, labels, np.array(x.shape), taken, u, inner, normal, mean, inverse, logits, table)
        return (nll, predicted), saved

    # dnll (M,)  dtable (V,H) -> dx (T,H), grads, dtable
    def masked_lm_head_backward(
        self, dnll: Any, saved: Saved, params: dict, grads: dict, dtable: Any, config: Any
    ) -> tuple[Any, dict, Any]:
        """Gradients of `masked_lm_head`."""
        if len(saved) == 6:  # the reference's own
            return super().masked_lm_head_backward(dnll, saved, params, grads, dtable, config)
        rows, labels, shape, taken, u, inner, normal, mean, inverse, logits, table = saved
        self._run.softmax_cross_entropy_backward(logits, labels, _in_one_piece(dnll))
        self._run.gemm(logits.T, normal, dtable, True)
        self._run.column_sums(logits, None, grads["output_bias"], True)
        d, gamma, beta = empty(u.shape), grads["gamma"], grads["beta"]
        self._run.gemm(logits, table, d, False)
        self._run.layer_norm_backward(d, inner, mean, inverse, params["gamma"], d, gamma, beta, True)
        self._run.gelu_backward(d, u, d, config.gelu_form == "tanh")
        self._run.gemm(taken.T, d, grads["weight"], True)
        self._run.column_sums(d, None, grads["bias"], True)
        self._run.gemm(d, params["weight"].T, taken, False)
        dx = empty(tuple(shape.tolist()))
        dx.fill(0)
        self._run.scatter_add(rows, taken, dx)
        return dx, grads, dtable

    # x out (T,H) -> (T,H)
    def _norm(
        self, x: Any, out: Any, bias: str, params: dict, config: Any, drop: random.Dropout | None, site: Any
    ) -> tuple[Any, Saved]:
        """LayerNorm(x + dropout(out + bias)), the end of a sublayer; out becomes the sum, which is kept."""
        y, mean, inverse = empty(x.shape), empty(x.shape[:1]), empty(x.shape[:1])
        dropped = _dropped(drop, drop.rate if drop else 0.0, site)
        gamma, beta, eps = params["gamma"], params["beta"], config.layer_norm_eps
        self._run.dropout_residual_layer_norm(
            x, out, params[bias], dropped, gamma, beta, eps, out, y, mean, inverse
        )
        return y, (out, mean, inverse, dropped)

    # dy (T,H) -> dx d_out (T,H), and the memory of the sum, which is free now
    def _norm_gradient(
        self, dy: Any, saved: Saved, bias: str, params: dict, grads: dict
    ) -> tuple[Any, Any, Any]:
        """Gradients of `_norm`: past the sublayer, and of what came out of it."""
        total, mean, inverse, dropped = saved
        dx = empty(total.shape)
        d_out = empty(total.shape) if dropped else None
        self._run.dropout_residual_layer_norm_backward(
            _in_one_piece(dy),
            total,
            mean,
            inverse,
            params["gamma"],
            dropped,
            dx,
            d_out,
            grads["gamma"],
            grads["beta"],
            grads[bias],
        )
        return dx, dx if d_out is None else d_out, total

    # dy (T,N)  x dx (T,K)
    def _linear_gradient(
        self, dy: Any, x: Any, params: dict, grads: dict, weight: str, bias: str, dx: Any
    ) -> None:
        """All gradients of x @ weight + bias, each added to where it belongs."""
        self._run.gemm(x.T, dy, grads[weight], True)
        self._run.column_sums(dy, None, grads[bias], True)
        self._run.gemm(dy, params[weight].T, dx, True)


def _whole(*arrays: Any) -> bool:
    """Whether all are float32 in one piece."""
    return all(type(a) is np.ndarray and a.dtype == FLOAT and a.flags.c_contiguous for a in arrays)


def _matrices(*arrays: Any) -> bool:
    """Whether all are float32 with two dimensions; any strides will do."""
    return all(type(a) is np.ndarray and a.dtype == FLOAT and a.ndim == 2 for a in arrays)


def _indices(x: Any) -> bool:
    """Whether x is a line of int32 in one piece."""
    return type(x) is np.ndarray and x.dtype == INDEX and x.ndim == 1 and x.flags.c_contiguous


def _as_indices(x: Any) -> Any:
    """A few whole numbers as int32, None where they are something else or do not fit."""
    if _indices(x):
        return x
    narrow = np.asarray(x).astype(INDEX)
    return narrow if narrow.ndim == 1 and np.array_equal(narrow, x) else None


def _in_one_piece(dy: Any) -> Any:
    """A gradient from outside as float32 in one piece; that of a block of this engine is so already."""
    return np.ascontiguousarray(dy, FLOAT)


def _heads(x: Any) -> bool:
    """Whether x (T,A,D) is float32 and the heads of a token lie side by side, tokens perhaps apart."""
    if type(x) is not np.ndarray or x.dtype != FLOAT or x.ndim != 3:
        return False
    _, A, D = x.shape
    along, across, within = x.strides
    return (within == 4 or D == 1) and (across == 4 * D or A == 1) and along >= 4 * A * D


# qkv (T,3H)  context (T,A,D) -> q k v (T,A,D), views
def _in_three(qkv: Any, context: Any) -> list[Any]:
    T, A, D = context.shape
    parts = qkv.reshape(T, 3, A, D)
    return [parts[:, i] for i in range(3)]


def _dropped(drop: random.Dropout | None, rate: float, site: Any) -> Saved:
    """What a kernel draws the same bits from again: row keys and (site, threshold); () for no dropout."""
    if drop is None or not rate:
        return ()
    [word] = random.words(np, site)
    return drop.rows, np.array([word[0], random.threshold(rate)], np.uint32)
