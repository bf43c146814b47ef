"""The engine in C++, whole sublayers at a time; one operation at a time is the matter of `primitives`.

With `fuse=False` the kernels stand under the reference's own blocks. A wrong gradient is then found in one
run: numpy, cpp unfused, cpp fused.
"""

from collections import namedtuple
from typing import Any

import numpy as np

from minibert.core.arrays import Array, Grads, Params, Saved
from minibert.core.ops import Dropout
from minibert.core.ops.blocks import EMBEDDING_SITE, layer_sites
from minibert.engines.cpp.primitives import INDEX, CppPrimitives, contiguous, draws, empty, indices, laid_out

# What a fused block keeps; what the reference's own keep is told by its type.
CppEmbeddingBlockSaved = namedtuple("CppEmbeddingBlockSaved", "word position segment norm")
CppAttentionBlockSaved = namedtuple(
    "CppAttentionBlockSaved", "x chosen q k v cu_seqlens context softmax causal dropped norm"
)
CppFeedForwardBlockSaved = namedtuple("CppFeedForwardBlockSaved", "x u norm")
CppMaskedLmHeadSaved = namedtuple(
    "CppMaskedLmHeadSaved", "rows shape taken u inner normal mean rstd gradient table"
)
ChosenSaved = namedtuple("ChosenSaved", "rows borders asking")  # the rows alone that ask, where not all do
NormSaved = namedtuple("NormSaved", "total mean rstd dropped")  # total: the sum that is normalised

TABLES = ("word", "position", "segment")
LANES = 16  # in the widest vector: rows of the gradient of logits begin at multiples of it


class CppOps(CppPrimitives):
    """Every operation of the reference, float32 in C++; shapes are those of `minibert.core.ops`.

    With `fuse`, whole sublayers take a few passes over memory, not one pass for each operation. A fused block
    keeps what its backward can't compute anew at once, and no more; its backward is free to overwrite what
    was kept, and adds weight gradients to their accumulators inside the matrix product. With bfloat16 as the
    `dtype` of operands, fused blocks also keep their activations so, and hand them to each other; what they
    add up is float32, and so are gradients on their way from block to block.

    Results have the same bits for any number of `threads`, those of the kernels' own pool. `isa` is the
    instruction set, by name; when empty that of MINIBERT_ISA, or the best that the processor has.
    """

    name = "cpp"

    def __init__(self, threads: int = 1, isa: str = "", fuse: bool = True, dtype: str = "float32") -> None:
        super().__init__(threads, isa, dtype)
        self._fuse = fuse

    def _activations(self, *shape: int) -> Array:
        """Allocate memory for activations, in the precision in which they are kept."""
        return empty(shape, self._narrow)

    def _fits(self, x: Array, params: Params) -> bool:
        """Tell whether a sublayer with these arrays is one for the fused kernels."""
        return self._fuse and contiguous(*params.values()) and contiguous(x, dtype=self._kept)

    def embedding_block(
        self, batch: Any, params: Params, config: Any, drop: Dropout | None
    ) -> tuple[Array, Saved]:
        ids = batch.input_ids, batch.positions, batch.token_type_ids
        if not (self._fuse and contiguous(*params.values()) and all(map(indices, ids))):
            return super().embedding_block(batch, params, config, drop)
        T, H = len(batch.input_ids), params["word"].shape[1]
        total, y, mean, rstd = self._activations(T, H), self._activations(T, H), empty((T,)), empty((T,))
        dropped = draws(drop, drop.rate if drop else 0.0, EMBEDDING_SITE)
        tables = [one for name, own in zip(TABLES, ids, strict=True) for one in (own, params[name])]
        norm = params["gamma"], params["beta"], config.layer_norm_eps
        self._run.embedding_layer_norm(*tables, *norm, dropped, total, y, mean, rstd)
        return y, CppEmbeddingBlockSaved(*ids, NormSaved(total, mean, rstd, dropped))

    def embedding_block_backward(self, dy: Array, saved: Saved, params: Params, grads: Grads) -> Grads:
        if not isinstance(saved, CppEmbeddingBlockSaved):
            return super().embedding_block_backward(dy, saved, params, grads)
        total, mean, rstd, dropped = saved.norm
        gamma, sums = params["gamma"], (grads["gamma"], grads["beta"])
        dy, dsum = laid_out(dy), empty(total.shape)
        self._run.embedding_layer_norm_backward(dy, total, mean, rstd, gamma, dropped, dsum, *sums)
        for name in TABLES:
            self._run.scatter_add(getattr(saved, name), dsum, grads[name])
        return grads

    def attention_block(
        self, x: Array, params: Params, cu_seqlens: Any, config: Any, drop: Dropout | None, layer: int,
        rows: Array | None = None,
    ) -> tuple[Array, Saved]:  # fmt: skip
        """Return LayerNorm(x + dropout(output(attention(query(x), key(x), value(x))))), of `rows` alone."""
        fits = self._fits(x, params) and indices(cu_seqlens)
        if rows is not None:  # the kernels take them in order
            fits = fits and not config.is_decoder and indices(rows) and bool((rows[1:] >= rows[:-1]).all())
        if not fits:
            return super().attention_block(self.upcast(x), params, cu_seqlens, config, drop, layer, rows)
        attention_site, output_site, _ = layer_sites(layer)
        (T, H), A, D = x.shape, config.A, config.D
        weight, bias, asking, borders, chosen = params["qkv_weight"], params["qkv_bias"], x, None, None
        if rows is None:
            qkv = self._activations(T, 3, A, D)
            self._run.linear(x, weight, bias, qkv.reshape(T, 3 * H))
            q, k, v = qkv.swapaxes(0, 1)
        else:  # queries of those that ask, keys and values of all
            asking, _ = self.take_rows(x, rows)
            borders = np.searchsorted(rows, cu_seqlens).astype(INDEX)
            drop, chosen = None if drop is None else drop.at(rows), ChosenSaved(rows, borders, asking)
            q, kv = self._activations(len(asking), A, D), self._activations(T, 2, A, D)
            self._run.linear(asking, weight[:, :H], bias[:H], q.reshape(-1, H))
            self._run.linear(x, weight[:, H:], bias[H:], kv.reshape(T, 2 * H))
            k, v = kv.swapaxes(0, 1)
        context, softmax = self._activations(*q.shape), empty((len(asking) * config.A, 2))
        dropped = draws(drop, drop.attention_rate if drop else 0.0, attention_site)
        causal = bool(config.is_decoder)
        self._run.attention(q, k, v, cu_seqlens, causal, dropped, context, softmax, borders)
        out = empty(asking.shape)
        self._run.gemm(context.reshape(-1, H), params["output_weight"], out, False)
        y, norm = self._norm(asking, out, "output_bias", params, config, drop, output_site)
        saved = (x, chosen, q, k, v, cu_seqlens, context, softmax, np.asarray(causal), dropped, norm)
        return y, CppAttentionBlockSaved(*saved)

    def attention_block_backward(
        self, dy: Array, saved: Saved, params: Params, grads: Grads
    ) -> tuple[Array, Grads]:
        if not isinstance(saved, CppAttentionBlockSaved):
            return super().attention_block_backward(dy, saved, params, grads)
        x, q, k, v, context = saved.x, saved.q, saved.k, saved.v, saved.context
        (T, H), (_, A, D) = x.shape, context.shape
        dx, d_out, spare = self._norm_gradient(dy, saved.norm, "output_bias", params, grads)
        self._run.gemm(context.reshape(-1, H).T, d_out, grads["output_weight"], True)
        self._run.linear(d_out, params["output_weight"].T, None, spare)
        how = (saved.cu_seqlens, bool(saved.causal), saved.dropped)
        known = (spare.reshape(context.shape), q, k, v, *how, context, saved.softmax)
        weight, d_weight, d_bias = params["qkv_weight"], grads["qkv_weight"], grads["qkv_bias"]
        if saved.chosen is None:
            d_qkv = self._activations(T, 3, A, D)
            self._run.attention_backward(*known, *d_qkv.swapaxes(0, 1))
            self._linear_gradient(d_qkv.reshape(T, -1), x, weight, d_weight, d_bias, dx)
            return dx, grads
        rows, borders, asking = saved.chosen.rows, saved.chosen.borders, saved.chosen.asking
        dq, d_kv = self._activations(*q.shape), self._activations(T, 2, A, D)
        self._run.attention_backward(*known, dq, *d_kv.swapaxes(0, 1), borders)
        self._linear_gradient(dq.reshape(-1, H), asking, weight[:, :H], d_weight[:, :H], d_bias[:H], dx)
        d_asking, dx = dx, empty((T, H))
        dx.fill(0)
        self._run.scatter_add(rows, d_asking, dx)
        self._linear_gradient(d_kv.reshape(T, -1), x, weight[:, H:], d_weight[:, H:], d_bias[H:], dx)
        return dx, grads

    def feed_forward_block(
        self, x: Array, params: Params, config: Any, drop: Dropout | None, layer: int
    ) -> tuple[Array, Saved]:
        """Return LayerNorm(x + dropout(W2 gelu(W1 x))). What gelu makes is not kept but made again."""
        if not self._fits(x, params):
            return super().feed_forward_block(self.upcast(x), params, config, drop, layer)
        *_, output_site = layer_sites(layer)
        T, F = len(x), params["in_bias"].shape[0]
        u, inner, out = self._activations(T, F), self._activations(T, F), empty(x.shape)
        self._run.linear_gelu(x, params["in_weight"], params["in_bias"], config.gelu_form == "tanh", u, inner)
        self._run.gemm(inner, params["out_weight"], out, False)
        y, norm = self._norm(x, out, "out_bias", params, config, drop, output_site)
        return y, CppFeedForwardBlockSaved(x, u, norm)

    def feed_forward_block_backward(
        self, dy: Array, saved: Saved, params: Params, grads: Grads, config: Any
    ) -> tuple[Array, Grads]:
        if not isinstance(saved, CppFeedForwardBlockSaved):
            return super().feed_forward_block_backward(dy, saved, params, grads, config)
        x, u = saved.x, saved.u
        dx, d_out, _ = self._norm_gradient(dy, saved.norm, "out_bias", params, grads)
        du = self._activations(*u.shape)
        self._run.linear_gelu_backward(d_out, params["out_weight"].T, config.gelu_form == "tanh", u, du)
        self._run.gemm(u.T, d_out, grads["out_weight"], True)  # u is gelu(u) by now
        self._linear_gradient(du, x, params["in_weight"], grads["in_weight"], grads["in_bias"], dx)
        return dx, grads

    def masked_lm_head(
        self, x: Array, rows: Array, labels: Array, params: Params, table: Array, config: Any
    ) -> tuple[tuple[Array, Array], Saved]:
        """Return what the reference does, by one (M,V) array: logits become the gradient of the nll in place.

        What backward is given for each row multiplies the few columns on both sides of it instead.
        """
        if not (self._fits(x, params) and contiguous(table) and indices(rows) and indices(labels)):
            return super().masked_lm_head(x, rows, labels, params, table, config)
        (V, H), M = table.shape, len(rows)
        taken, u, inner, normal = (empty((M, H)) for _ in range(4))
        mean, rstd, nll, predicted = empty((M,)), empty((M,)), empty((M,)), np.empty(M, INDEX)
        self._run.gather(rows, x, taken)
        self._run.linear_gelu(taken, params["weight"], params["bias"], config.gelu_form == "tanh", u, inner)
        gamma, beta, bias = params["gamma"], params["beta"], params["output_bias"]
        self._run.layer_norm(inner, gamma, beta, config.layer_norm_eps, normal, mean, rstd)
        gradient = self._activations(M, -(-V // LANES) * LANES)[:, :V]
        self._run.linear_softmax_cross_entropy(normal, table.T, bias, labels, gradient, nll, predicted)
        saved = (rows, np.array(x.shape), taken, u, inner, normal, mean, rstd, gradient, table)
        return (nll, predicted), CppMaskedLmHeadSaved(*saved)

    def masked_lm_head_backward(
        self, dnll: Array, saved: Saved, params: Params, grads: Grads, dtable: Array, config: Any
    ) -> tuple[Array, Grads, Array]:
        if not isinstance(saved, CppMaskedLmHeadSaved):
            return super().masked_lm_head_backward(dnll, saved, params, grads, dtable, config)
        rows, shape, taken, u, inner, normal, mean, rstd, gradient, table = saved
        dnll, d, gamma, beta = laid_out(dnll), empty(u.shape), grads["gamma"], grads["beta"]
        self._run.column_sums(gradient, dnll, grads["output_bias"], True)
        self._run.gemm(gradient, table, d, False)
        self._run.scale_rows(d, dnll)
        self._run.scale_rows(normal, dnll)
        self._run.gemm(gradient.T, normal, dtable, True)
        self._run.layer_norm_backward(d, inner, mean, rstd, params["gamma"], d, gamma, beta, True)
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
        self, x: Array, out: Array, bias: str, params: Params, config: Any, drop: Dropout | None, site: int
    ) -> tuple[Array, Saved]:
        """Return LayerNorm(x + dropout(out + bias)), the end of a sublayer; the sum is kept."""
        y, mean, rstd = self._activations(*x.shape), empty(x.shape[:1]), empty(x.shape[:1])
        total = self._activations(*x.shape) if self._narrow else out
        dropped = draws(drop, drop.rate if drop else 0.0, site)
        how = params[bias], dropped, params["gamma"], params["beta"], config.layer_norm_eps
        self._run.dropout_residual_layer_norm(x, out, *how, total, y, mean, rstd)
        return y, NormSaved(total, mean, rstd, dropped)

    # dy (T,H) -> dx d_out (T,H), and the memory of the sum, which is free now
    def _norm_gradient(
        self, dy: Array, saved: Saved, bias: str, params: Params, grads: Grads
    ) -> tuple[Array, Array, Array]:
        """Return the gradients of `_norm`: of x, on the residual path, and of the output of the sublayer."""
        total, mean, rstd, dropped = saved
        d_out = self._activations(*total.shape) if dropped or self._narrow else None
        dy, dx = laid_out(dy), empty(total.shape)
        known = total, mean, rstd, params["gamma"], dropped
        sums = grads["gamma"], grads["beta"], grads[bias]
        self._run.dropout_residual_layer_norm_backward(dy, *known, dx, d_out, *sums)
        return dx, dx if d_out is None else d_out, total

    # dy (T,N)  x dx (T,K)  weight d_weight (K,N)  d_bias (N,)
    def _linear_gradient(
        self, dy: Array, x: Array, weight: Array, d_weight: Array, d_bias: Array, dx: Array
    ) -> None:
        """Add all gradients of x @ weight + bias, each to where it belongs."""
        self._run.gemm(x.T, dy, d_weight, True)
        self._run.column_sums(dy, None, d_bias, True)
        self._run.gemm(dy, weight.T, dx, True)
