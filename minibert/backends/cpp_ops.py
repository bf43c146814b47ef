"""The engine in C++, whole sublayers at a time; one operation at a time is the matter of `cpp_primitives`.

With `fuse=False` the kernels stand under the reference's own blocks. A wrong gradient is then found in one
run: numpy, cpp unfused, cpp fused.
"""

from typing import Any

import numpy as np

from minibert.backends.cpp_primitives import (
    INDEX,
    CppPrimitives,
    draws,
    empty,
    in_one_piece,
    indices,
    stored,
    whole,
)
from minibert.ops import random
from minibert.ops.blocks import EMBEDDING_SITE, layer_sites
from minibert.ops.primitives import Saved

LANES = 16  # in the widest vector: rows of the gradient of logits begin at multiples of it


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
    dtype : of the operands of matrix products, "float32" or "bfloat16". With bfloat16, fused blocks also keep
        their activations so, and hand them to each other; what they add up is float32, and so are gradients
        on their way from block to block.
    """

    name = "cpp"

    def __init__(
        self, xp: Any = np, threads: int = 1, isa: str = "", fuse: bool = True, dtype: str = "float32"
    ) -> None:
        super().__init__(xp, threads, isa, dtype)
        self._fuse = fuse

    def _activations(self, *shape: int) -> Any:
        """Memory for activations, in the precision in which they are kept."""
        return empty(shape, self._narrow)

    def _fits(self, x: Any, params: dict) -> bool:
        """Whether a sublayer with these arrays is one for the fused kernels."""
        return self._fuse and whole(*params.values()) and (stored(x) if self._narrow else whole(x))

    # input_ids token_type_ids positions (T,) -> (T,H)
    def embedding_block(
        self, batch: Any, params: dict, config: Any, drop: random.Dropout | None
    ) -> tuple[Any, Saved]:
        """dropout(LayerNorm(word + position + segment)) in one pass."""
        ids = (batch.input_ids, batch.positions, batch.token_type_ids)
        if not (self._fuse and whole(*params.values()) and all(map(indices, ids))):
            return super().embedding_block(batch, params, config, drop)
        T, H = len(batch.input_ids), params["word"].shape[1]
        total, y, mean, inverse = self._activations(T, H), self._activations(T, H), empty((T,)), empty((T,))
        dropped = draws(drop, drop.rate if drop else 0.0, EMBEDDING_SITE)
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
            in_one_piece(dy),
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

    # x (T,H) -> (T,H), or (R,H) with rows (R,)
    def attention_block(
        self,
        x: Any,
        params: dict,
        cu_seqlens: Any,
        config: Any,
        drop: random.Dropout | None,
        layer: Any,
        rows: Any = None,
    ) -> tuple[Any, Saved]:
        """LayerNorm(x + dropout(output(attention(query(x), key(x), value(x))))); queries of `rows` alone."""
        fits = self._fits(x, params) and indices(cu_seqlens)
        if not fits or (rows is not None and (config.is_decoder or not _ascending(rows))):
            return super().attention_block(self.widen(x), params, cu_seqlens, config, drop, layer, rows)
        attention_site, output_site, _ = layer_sites(layer)
        H, asking, borders, chosen = x.shape[1], x, None, ()
        if rows is not None:
            asking, _ = self.take_rows(x, rows)
            borders = np.searchsorted(rows, cu_seqlens).astype(INDEX)
            drop, chosen = None if drop is None else drop.at(rows), (rows, borders, asking)
        q, k, v = self._projected(x, asking, params, config)
        context, softmax = self._activations(*q.shape), empty((len(asking) * config.A, 2))
        dropped = draws(drop, drop.attention_rate if drop else 0.0, attention_site)
        causal = bool(config.is_decoder)
        self._run.attention(q, k, v, cu_seqlens, causal, dropped, context, softmax, borders)
        out = empty(asking.shape)
        self._run.gemm(context.reshape(-1, H), params["output_weight"], out, False)
        y, kept = self._norm(asking, out, "output_bias", params, config, drop, output_site)
        return y, (x, chosen, q, k, v, cu_seqlens, context, softmax, np.asarray(causal), dropped, *kept)

    # dy (T,H) or (R,H) -> dx (T,H), grads
    def attention_block_backward(self, dy: Any, saved: Saved, params: dict, grads: dict) -> tuple[Any, dict]:
        """Gradients of `attention_block`."""
        if len(saved) == 6:  # the reference's own
            return super().attention_block_backward(dy, saved, params, grads)
        x, chosen, q, k, v, cu_seqlens, context, softmax, causal, dropped, *kept = saved
        (T, H), (_, A, D) = x.shape, context.shape
        dx, d_out, spare = self._norm_gradient(dy, kept, "output_bias", params, grads)
        self._run.gemm(context.reshape(-1, H).T, d_out, grads["output_weight"], True)
        d_context = spare.reshape(context.shape)
        self._run.linear(d_out, params["output_weight"].T, None, spare)
        known = (d_context, q, k, v, cu_seqlens, bool(causal), dropped, context, softmax)
        weight, d_weight, d_bias = params["qkv_weight"], grads["qkv_weight"], grads["qkv_bias"]
        if not chosen:
            d_qkv = self._activations(T, 3, A, D)
            self._run.attention_backward(*known, *_side_by_side(d_qkv))
            self._linear_gradient(d_qkv.reshape(T, -1), x, weight, d_weight, d_bias, dx)
            return dx, grads
        rows, borders, asking = chosen
        dq, d_kv = self._activations(*q.shape), self._activations(T, 2, A, D)
        self._run.attention_backward(*known, dq, *_side_by_side(d_kv), borders)
        self._linear_gradient(dq.reshape(-1, H), asking, weight[:, :H], d_weight[:, :H], d_bias[:H], dx)
        d_asking, dx = dx, empty((T, H))
        dx.fill(0)
        self._run.scatter_add(rows, d_asking, dx)
        self._linear_gradient(d_kv.reshape(T, -1), x, weight[:, H:], d_weight[:, H:], d_bias[H:], dx)
        return dx, grads

    # x (T,H)  asking (R,H), x itself or some of its rows -> q (R,A,D)  k v (T,A,D)
    def _projected(self, x: Any, asking: Any, params: dict, config: Any) -> tuple[Any, ...]:
        """Queries of those that ask, keys and values of all."""
        (T, H), A, D, run = x.shape, config.A, config.D, self._run
        weight, bias = params["qkv_weight"], params["qkv_bias"]
        if asking is x:
            qkv = self._activations(T, 3, A, D)
            run.linear(x, weight, bias, qkv.reshape(T, 3 * H))
            return _side_by_side(qkv)
        q, kv = self._activations(len(asking), A, D), self._activations(T, 2, A, D)
        run.linear(asking, weight[:, :H], bias[:H], q.reshape(-1, H))
        run.linear(x, weight[:, H:], bias[H:], kv.reshape(T, 2 * H))
        return q, *_side_by_side(kv)

    # x (T,H) -> (T,H)
    def feed_forward_block(
        self, x: Any, params: dict, config: Any, drop: random.Dropout | None, layer: Any
    ) -> tuple[Any, Saved]:
        """LayerNorm(x + dropout(W2 gelu(W1 x))). What gelu makes is not kept: its backward makes it again."""
        if not self._fits(x, params):
            return super().feed_forward_block(self.widen(x), params, config, drop, layer)
        *_, output_site = layer_sites(layer)
        T, F = len(x), params["in_bias"].shape[0]
        u, inner, out = self._activations(T, F), self._activations(T, F), empty(x.shape)
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
        du = self._activations(*u.shape)
        self._run.linear_gelu_backward(d_out, params["out_weight"].T, config.gelu_form == "tanh", u, du)
        self._run.gemm(u.T, d_out, grads["out_weight"], True)  # u is gelu(u) by now
        self._linear_gradient(du, x, params["in_weight"], grads["in_weight"], grads["in_bias"], dx)
        return dx, grads

    # x (T,H)  rows labels (M,)  table (V,H) -> nll (M,)  predicted (M,)
    def masked_lm_head(
        self, x: Any, rows: Any, labels: Any, params: dict, table: Any, config: Any
    ) -> tuple[tuple[Any, Any], Saved]:
        """-log probability of the label at each masked row, and the entry that scores highest there.

        One (M,V) array in all: logits become the gradient of each row's nll in place. What backward is given
        for each row multiplies the few columns on both sides of it instead.
        """
        fits = self._fits(x, params) and whole(table) and indices(rows) and indices(labels)
        if not fits:
            return super().masked_lm_head(x, rows, labels, params, table, config)
        (V, H), M = table.shape, len(rows)
        taken, u, inner, normal = (empty((M, H)) for _ in range(4))
        mean, inverse, nll, predicted = empty((M,)), empty((M,)), empty((M,)), np.empty(M, INDEX)
        self._run.gather(rows, x, taken)
        self._run.linear_gelu(taken, params["weight"], params["bias"], config.gelu_form == "tanh", u, inner)
        gamma, beta = params["gamma"], params["beta"]
        self._run.layer_norm(inner, gamma, beta, config.layer_norm_eps, normal, mean, inverse)
        gradient = self._activations(M, -(-V // LANES) * LANES)[:, :V]
        self._run.linear_softmax_cross_entropy(
            normal, table.T, params["output_bias"], labels, gradient, nll, predicted
        )
        saved = (rows, np.array(x.shape), taken, u, inner, normal, mean, inverse, gradient, table)
        return (nll, predicted), saved

    # dnll (M,)  dtable (V,H) -> dx (T,H), grads, dtable
    def masked_lm_head_backward(
        self, dnll: Any, saved: Saved, params: dict, grads: dict, dtable: Any, config: Any
    ) -> tuple[Any, dict, Any]:
        """Gradients of `masked_lm_head`."""
        if len(saved) == 6:  # the reference's own
            return super().masked_lm_head_backward(dnll, saved, params, grads, dtable, config)
        rows, shape, taken, u, inner, normal, mean, inverse, gradient, table = saved
        dnll, d, gamma, beta = in_one_piece(dnll), empty(u.shape), grads["gamma"], grads["beta"]
        self._run.column_sums(gradient, dnll, grads["output_bias"], True)
        self._run.gemm(gradient, table, d, False)
        self._run.scale_rows(d, dnll)
        self._run.scale_rows(normal, dnll)
        self._run.gemm(gradient.T, normal, dtable, True)
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
        """LayerNorm(x + dropout(out + bias)), the end of a sublayer; the sum is kept, as float32 in out."""
        y, mean, inverse = self._activations(*x.shape), empty(x.shape[:1]), empty(x.shape[:1])
        total = self._activations(*x.shape) if self._narrow else out
        dropped = draws(drop, drop.rate if drop else 0.0, site)
        gamma, beta, eps = params["gamma"], params["beta"], config.layer_norm_eps
        self._run.dropout_residual_layer_norm(
            x, out, params[bias], dropped, gamma, beta, eps, total, y, mean, inverse
        )
        return y, (total, mean, inverse, dropped)

    # dy (T,H) -> dx d_out (T,H), and the memory of the sum, which is free now
    def _norm_gradient(
        self, dy: Any, saved: Saved, bias: str, params: dict, grads: dict
    ) -> tuple[Any, Any, Any]:
        """Gradients of `_norm`: of x, on the residual path, and of the output of the sublayer."""
        total, mean, inverse, dropped = saved
        dx = empty(total.shape)
        d_out = self._activations(*total.shape) if dropped or self._narrow else None
        self._run.dropout_residual_layer_norm_backward(
            in_one_piece(dy),
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

    # dy (T,N)  x dx (T,K)  weight d_weight (K,N)  d_bias (N,)
    def _linear_gradient(self, dy: Any, x: Any, weight: Any, d_weight: Any, d_bias: Any, dx: Any) -> None:
        """All gradients of x @ weight + bias, each added to where it belongs."""
        self._run.gemm(x.T, dy, d_weight, True)
        self._run.column_sums(dy, None, d_bias, True)
        self._run.gemm(dy, weight.T, dx, True)


# x (T,n,A,D) -> n of (T,A,D), views
def _side_by_side(x: Any) -> tuple[Any, ...]:
    return tuple(x[:, i] for i in range(x.shape[1]))


def _ascending(rows: Any) -> bool:
    """Whether these are row numbers as the kernels take them, none before one that is smaller."""
    return indices(rows) and bool((rows[1:] >= rows[:-1]).all())
