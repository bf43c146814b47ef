"""The engine in C++, whole sublayers at a time; `primitives` has the operations one at a time.

With `fuse=False` the kernels compute single operations under the reference's own blocks. Comparing numpy, cpp
unfused and cpp fused thus shows where a wrong gradient comes from.
"""

from collections import namedtuple
from typing import Any

import numpy as np

from minibert.core.arrays import Array, Grads, Params, Saved
from minibert.core.ops import Dropout
from minibert.core.ops.blocks import EMBEDDING_SITE, layer_sites
from minibert.engines.cpp.primitives import INDEX, CppPrimitives, contiguous, draws, empty, indices, laid_out

# What a fused block saves. A backward sees from the type whether a fused block or the reference's saved it.
CppEmbeddingBlockSaved = namedtuple("CppEmbeddingBlockSaved", "word position segment norm")
CppAttentionBlockSaved = namedtuple(
    "CppAttentionBlockSaved", "x chosen q k v cu_seqlens context softmax causal dropped norm"
)
CppFeedForwardBlockSaved = namedtuple("CppFeedForwardBlockSaved", "x u norm")
CppMaskedLmHeadSaved = namedtuple(
    "CppMaskedLmHeadSaved", "rows shape taken u inner normal mean rstd gradient table"
)
# If only some tokens have queries: the indices of their rows, where their sequences begin, and the rows.
ChosenSaved = namedtuple("ChosenSaved", "rows borders asking")
NormSaved = namedtuple("NormSaved", "total mean rstd dropped")  # total: the sum that is normalised

TABLES = ("word", "position", "segment")
LANES = 16  # elements of the widest vector; rows of the gradient of logits begin at multiples of it


class CppOps(CppPrimitives):
    """Every operation of the reference, float32 in C++; shapes are those of `minibert.core.ops`.

    With `fuse`, whole sublayers take a few passes over memory, not one pass for each operation. A fused block
    saves only what its backward can't quickly recompute. Its backward may overwrite what was saved, and adds
    weight gradients to their accumulators inside the matrix product. With bfloat16 as the `dtype` of
    operands, fused blocks also keep their activations, and pass them to each other, in bfloat16; sums are
    accumulated in float32, and gradients pass from block to block in float32.

    Parameters
    ----------
    threads : int, default 1
        Threads of the kernels' own pool. Results have the same bits for any number.
    isa : str
        The instruction set, by name; "", the default, for that of MINIBERT_ISA or else the fastest.
    fuse : bool
        Whether whole blocks have kernels (the default), or only operations.
    dtype : str, default "float32"
        "bfloat16" to round the operands of matrix products; anything else leaves them float32.

    Raises
    ------
    InputError
        When the instruction set does not exist here, or the number of threads is not possible.
    """

    name = "cpp"

    def __init__(self, threads: int = 1, isa: str = "", fuse: bool = True, dtype: str = "float32") -> None:
        super().__init__(threads, isa, dtype)
        self._fuse = fuse

    def _activations(self, *shape: int) -> Array:
        """Allocate memory for activations, in the type in which they are kept."""
        return empty(shape, self._narrow)

    def _fits(self, x: Array, params: Params) -> bool:
        """Return whether the fused kernels accept a sublayer with these arrays."""
        return self._fuse and contiguous(*params.values()) and contiguous(x, dtype=self._kept)

    def embedding_block(
        self,
        batch: Any,
        params: Params,
        config: Any,
        drop: Dropout | None,
    ) -> tuple[Array, Saved]:
        """Return dropout(LayerNorm(word + position + segment)), as `Blocks.embedding_block` does.

        Parameters
        ----------
        batch : Batch
            T tokens with their positions and segments.
        params : dict
            The three tables, `gamma` and `beta`.
        config : BertConfig
            Has `layer_norm_eps`.
        drop : Dropout or None
            The source of dropout; None for none.

        Returns
        -------
        tuple of (T,H) array and CppEmbeddingBlockSaved
            The result; the indices into the tables, the sum, and mean and 1 / deviation of its rows.
        """
        ids = batch.input_ids, batch.positions, batch.token_type_ids
        if not (self._fuse and contiguous(*params.values()) and all(map(indices, ids))):
            return super().embedding_block(batch, params, config, drop)
        word, position, segment = ids
        T = len(word)
        H = params["word"].shape[1]
        total = self._activations(T, H)
        y = self._activations(T, H)
        mean = empty((T,))
        rstd = empty((T,))
        dropped = draws(drop, drop.rate if drop else 0.0, EMBEDDING_SITE)
        self._run.embedding_layer_norm(
            word,
            params["word"],
            position,
            params["position"],
            segment,
            params["segment"],
            params["gamma"],
            params["beta"],
            config.layer_norm_eps,
            dropped,
            total,
            y,
            mean,
            rstd,
        )
        return y, CppEmbeddingBlockSaved(*ids, NormSaved(total, mean, rstd, dropped))

    def embedding_block_backward(self, dy: Array, saved: Saved, params: Params, grads: Grads) -> Grads:
        """Add the gradients of the three tables and the LayerNorm, in place.

        Parameters
        ----------
        dy : (T,H) array
            Gradient of the result.
        saved : CppEmbeddingBlockSaved or EmbeddingBlockSaved
            What `embedding_block` kept.
        params, grads : dict
            Parameters of the block, and their gradient accumulators.

        Returns
        -------
        dict
            The accumulators.
        """
        if not isinstance(saved, CppEmbeddingBlockSaved):
            return super().embedding_block_backward(dy, saved, params, grads)
        total, mean, rstd, dropped = saved.norm
        dsum = empty(total.shape)
        self._run.embedding_layer_norm_backward(
            laid_out(dy),
            total,
            mean,
            rstd,
            params["gamma"],
            dropped,
            dsum,
            grads["gamma"],
            grads["beta"],
        )
        for name in TABLES:
            self._run.scatter_add(getattr(saved, name), dsum, grads[name])
        return grads

    def attention_block(
        self,
        x: Array,
        params: Params,
        cu_seqlens: Any,
        config: Any,
        drop: Dropout | None,
        layer: int,
        rows: Array | None = None,
    ) -> tuple[Array, Saved]:
        """Return LayerNorm(x + dropout(output(attention(query(x), key(x), value(x))))), for `rows` only.

        Parameters
        ----------
        x : (T,H) array
            Activations; with bfloat16 as uint16.
        params : dict
            `qkv_weight`, `qkv_bias`, `output_weight`, `output_bias`, `gamma` and `beta`.
        cu_seqlens : (S+1,) int32
            Where sequences begin.
        config : BertConfig
            Has the sizes, `is_decoder` and `layer_norm_eps`.
        drop : Dropout or None
            The source of dropout, on the probabilities and on the output; None for none.
        layer : int
            The index of the layer, which determines the dropout sites.
        rows : (R,) int32 or None
            The tokens to compute, ascending; None, the default, for all. Every token serves as key and value
            in either case.

        Returns
        -------
        tuple of (T,H) or (R,H) array and CppAttentionBlockSaved
            The result; what its backward needs.
        """
        fits = self._fits(x, params) and indices(cu_seqlens)
        if rows is not None:
            # The kernels need ascending rows, and have no causal attention with them.
            ascends = indices(rows) and bool((rows[1:] >= rows[:-1]).all())
            fits = fits and not config.is_decoder and ascends
        if not fits:
            return super().attention_block(self.upcast(x), params, cu_seqlens, config, drop, layer, rows)
        attention_site, output_site, _ = layer_sites(layer)
        asking, chosen, borders = x, None, None
        if rows is None:
            q, k, v = self._queries_keys_values(x, params, config)
        else:
            asking, _ = self.take_rows(x, rows)
            borders = np.searchsorted(rows, cu_seqlens).astype(INDEX)
            chosen = ChosenSaved(rows, borders, asking)
            drop = None if drop is None else drop.at(rows)
            q, k, v = self._queries_of_some(asking, x, params, config)
        context = self._activations(*q.shape)
        softmax = empty((len(asking) * config.A, 2))
        dropped = draws(drop, drop.attention_rate if drop else 0.0, attention_site)
        causal = bool(config.is_decoder)
        self._run.attention(q, k, v, cu_seqlens, causal, dropped, context, softmax, borders)
        out = empty(asking.shape)
        self._run.gemm(context.reshape(out.shape), params["output_weight"], out, False)
        y, norm = self._norm(asking, out, "output_bias", params, config, drop, output_site)
        saved = CppAttentionBlockSaved(
            x,
            chosen,
            q,
            k,
            v,
            cu_seqlens,
            context,
            softmax,
            np.asarray(causal),
            dropped,
            norm,
        )
        return y, saved

    # x (T,H) -> q k v (T,A,D), parts of one array
    def _queries_keys_values(self, x: Array, params: Params, config: Any) -> tuple[Array, Array, Array]:
        """Compute queries, keys and values of all tokens, in one product."""
        T, H = x.shape
        weight = params["qkv_weight"]
        bias = params["qkv_bias"]
        qkv = self._activations(T, 3, config.A, config.D)
        rows = qkv.reshape(T, 3 * H)
        self._run.linear(x, weight, bias, rows)
        q, k, v = qkv.swapaxes(0, 1)
        return q, k, v

    # asking (R,H)  x (T,H) -> q (R,A,D)  k v (T,A,D)
    def _queries_of_some(
        self,
        asking: Array,
        x: Array,
        params: Params,
        config: Any,
    ) -> tuple[Array, Array, Array]:
        """Compute queries of the rows `asking`, and keys and values of all tokens."""
        T, H = x.shape
        weight = params["qkv_weight"]
        bias = params["qkv_bias"]
        q = self._activations(len(asking), config.A, config.D)
        kv = self._activations(T, 2, config.A, config.D)
        self._run.linear(asking, weight[:, :H], bias[:H], q.reshape(-1, H))
        self._run.linear(x, weight[:, H:], bias[H:], kv.reshape(T, 2 * H))
        k, v = kv.swapaxes(0, 1)
        return q, k, v

    def attention_block_backward(
        self,
        dy: Array,
        saved: Saved,
        params: Params,
        grads: Grads,
    ) -> tuple[Array, Grads]:
        """Add the gradients of `attention_block`, in place; what was saved is overwritten.

        Parameters
        ----------
        dy : (T,H) or (R,H) array
            Gradient of the result.
        saved : CppAttentionBlockSaved or AttentionBlockSaved
            What `attention_block` kept.
        params, grads : dict
            Parameters of the block, and their gradient accumulators.

        Returns
        -------
        tuple of (T,H) array and dict
            Gradient of x, over the residual path and through attention; the accumulators.
        """
        if not isinstance(saved, CppAttentionBlockSaved):
            return super().attention_block_backward(dy, saved, params, grads)
        x, context = saved.x, saved.context
        T, H = x.shape
        _, A, D = context.shape
        dx, d_out, spare = self._norm_gradient(dy, saved.norm, "output_bias", params, grads)
        self._run.gemm(context.reshape(-1, H).T, d_out, grads["output_weight"], True)
        self._run.linear(d_out, params["output_weight"].T, None, spare)
        d_context = spare.reshape(context.shape)
        weight = params["qkv_weight"]
        d_weight = grads["qkv_weight"]
        d_bias = grads["qkv_bias"]
        if saved.chosen is None:
            d_qkv = self._activations(T, 3, A, D)
            dq, dk, dv = d_qkv.swapaxes(0, 1)
            self._attention_gradient(d_context, saved, dq, dk, dv, None)
            self._linear_gradient(d_qkv.reshape(T, -1), x, weight, d_weight, d_bias, dx)
            return dx, grads
        rows, borders, asking = saved.chosen
        dq = self._activations(*saved.q.shape)
        d_kv = self._activations(T, 2, A, D)
        dk, dv = d_kv.swapaxes(0, 1)
        self._attention_gradient(d_context, saved, dq, dk, dv, borders)
        self._linear_gradient(dq.reshape(-1, H), asking, weight[:, :H], d_weight[:, :H], d_bias[:H], dx)
        d_asking = dx
        dx = empty((T, H))
        dx.fill(0)
        self._run.scatter_add(rows, d_asking, dx)
        self._linear_gradient(d_kv.reshape(T, -1), x, weight[:, H:], d_weight[:, H:], d_bias[H:], dx)
        return dx, grads

    # d_context dq (R,A,D)  dk dv (T,A,D)  borders (S+1,) or None
    def _attention_gradient(
        self,
        d_context: Array,
        saved: Saved,
        dq: Array,
        dk: Array,
        dv: Array,
        borders: Array | None,
    ) -> None:
        """Write the gradients of queries, keys and values; `borders` are those of the rows with queries."""
        self._run.attention_backward(
            d_context,
            saved.q,
            saved.k,
            saved.v,
            saved.cu_seqlens,
            bool(saved.causal),
            saved.dropped,
            saved.context,
            saved.softmax,
            dq,
            dk,
            dv,
            borders,
        )

    def feed_forward_block(
        self,
        x: Array,
        params: Params,
        config: Any,
        drop: Dropout | None,
        layer: int,
    ) -> tuple[Array, Saved]:
        """Return LayerNorm(x + dropout(W2 gelu(W1 x))). Backward recomputes the output of gelu.

        Parameters
        ----------
        x : (T,H) array
            Activations; with bfloat16 as uint16.
        params : dict
            `in_weight`, `in_bias`, `out_weight`, `out_bias`, `gamma` and `beta`.
        config : BertConfig
            Has `gelu_form` and `layer_norm_eps`.
        drop : Dropout or None
            The source of dropout on the output; None for none.
        layer : int
            The index of the layer, which determines the dropout site.

        Returns
        -------
        tuple of (T,H) array and CppFeedForwardBlockSaved
            The result; x, W1 x, and what the LayerNorm saves.
        """
        if not self._fits(x, params):
            return super().feed_forward_block(self.upcast(x), params, config, drop, layer)
        *_, output_site = layer_sites(layer)
        T = len(x)
        F = params["in_bias"].shape[0]
        by_tanh = config.gelu_form == "tanh"
        u = self._activations(T, F)
        inner = self._activations(T, F)
        out = empty(x.shape)
        self._run.linear_gelu(x, params["in_weight"], params["in_bias"], by_tanh, u, inner)
        self._run.gemm(inner, params["out_weight"], out, False)
        y, norm = self._norm(x, out, "out_bias", params, config, drop, output_site)
        return y, CppFeedForwardBlockSaved(x, u, norm)

    def feed_forward_block_backward(
        self,
        dy: Array,
        saved: Saved,
        params: Params,
        grads: Grads,
        config: Any,
    ) -> tuple[Array, Grads]:
        """Add the gradients of `feed_forward_block`, in place; what was saved is overwritten.

        Parameters
        ----------
        dy : (T,H) array
            Gradient of the result.
        saved : CppFeedForwardBlockSaved or FeedForwardBlockSaved
            What `feed_forward_block` kept.
        params, grads : dict
            Parameters of the block, and their gradient accumulators.
        config : BertConfig
            Has `gelu_form`.

        Returns
        -------
        tuple of (T,H) array and dict
            Gradient of x, over the residual path and through the products; the accumulators.
        """
        if not isinstance(saved, CppFeedForwardBlockSaved):
            return super().feed_forward_block_backward(dy, saved, params, grads, config)
        x, u = saved.x, saved.u
        by_tanh = config.gelu_form == "tanh"
        dx, d_out, _ = self._norm_gradient(dy, saved.norm, "out_bias", params, grads)
        du = self._activations(*u.shape)
        self._run.linear_gelu_backward(d_out, params["out_weight"].T, by_tanh, u, du)
        # The kernel above has overwritten u with gelu(u), which the gradient of the weight needs.
        self._run.gemm(u.T, d_out, grads["out_weight"], True)
        self._linear_gradient(du, x, params["in_weight"], grads["in_weight"], grads["in_bias"], dx)
        return dx, grads

    def masked_lm_head(
        self,
        x: Array,
        rows: Array,
        labels: Array,
        params: Params,
        table: Array,
        config: Any,
    ) -> tuple[tuple[Array, Array], Saved]:
        """Return losses and guesses at the masked rows, as `Blocks.masked_lm_head` does.

        There is only one (M,V) array, because the logits are overwritten with the gradient of the losses. Nor
        does backward scale that array by the gradient that it is given for each row: it scales the much
        smaller matrices that the array is multiplied with.

        Parameters
        ----------
        x : (T,H) array
            The output of the encoder; with bfloat16 as uint16.
        rows, labels : (M,) int32
            The rows whose token is to be predicted, and the id of the right token.
        params : dict
            `weight`, `bias`, `gamma`, `beta` and `output_bias`.
        table : (V,H) array
            The word embedding, whose weights the decoder shares.
        config : BertConfig
            Has `gelu_form` and `layer_norm_eps`.

        Returns
        -------
        tuple of two (M,) arrays, and CppMaskedLmHeadSaved
            -log probability of each label in nats, and the entry that scores highest; what backward needs.
        """
        if not (self._fits(x, params) and contiguous(table) and indices(rows) and indices(labels)):
            return super().masked_lm_head(x, rows, labels, params, table, config)
        M = len(rows)
        V, H = table.shape
        taken = empty((M, H))
        u = empty((M, H))
        inner = empty((M, H))
        normal = empty((M, H))
        mean = empty((M,))
        rstd = empty((M,))
        nll = empty((M,))
        predicted = np.empty(M, INDEX)
        by_tanh = config.gelu_form == "tanh"
        gamma = params["gamma"]
        beta = params["beta"]
        self._run.gather(rows, x, taken)
        self._run.linear_gelu(taken, params["weight"], params["bias"], by_tanh, u, inner)
        self._run.layer_norm(inner, gamma, beta, config.layer_norm_eps, normal, mean, rstd)
        row_size = -(-V // LANES) * LANES
        gradient = self._activations(M, row_size)[:, :V]
        bias = params["output_bias"]
        self._run.linear_softmax_cross_entropy(normal, table.T, bias, labels, gradient, nll, predicted)
        saved = CppMaskedLmHeadSaved(
            rows,
            np.array(x.shape),
            taken,
            u,
            inner,
            normal,
            mean,
            rstd,
            gradient,
            table,
        )
        return (nll, predicted), saved

    def masked_lm_head_backward(
        self,
        dnll: Array,
        saved: Saved,
        params: Params,
        grads: Grads,
        dtable: Array,
        config: Any,
    ) -> tuple[Array, Grads, Array]:
        """Add the gradients of `masked_lm_head`, in place; what was saved is overwritten.

        Parameters
        ----------
        dnll : (M,) array
            Gradient of the losses.
        saved : CppMaskedLmHeadSaved or MaskedLmHeadSaved
            What `masked_lm_head` kept.
        params, grads : dict
            Parameters of the head, and their gradient accumulators.
        dtable : (V,H) array
            The accumulator of the word embedding.
        config : BertConfig
            Has `gelu_form`.

        Returns
        -------
        tuple of (T,H) array, dict and (V,H) array
            Gradient of x; the accumulators of the head and of the word embedding.
        """
        if not isinstance(saved, CppMaskedLmHeadSaved):
            return super().masked_lm_head_backward(dnll, saved, params, grads, dtable, config)
        rows, shape, taken, u, inner, normal, mean, rstd, gradient, table = saved
        dnll = laid_out(dnll)
        d = empty(u.shape)
        self._run.column_sums(gradient, dnll, grads["output_bias"], True)
        self._run.gemm(gradient, table, d, False)
        self._run.scale_rows(d, dnll)
        self._run.scale_rows(normal, dnll)
        self._run.gemm(gradient.T, normal, dtable, True)
        self._run.layer_norm_backward(
            d,
            inner,
            mean,
            rstd,
            params["gamma"],
            d,
            grads["gamma"],
            grads["beta"],
            True,
        )
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
        self,
        x: Array,
        out: Array,
        bias: str,
        params: Params,
        config: Any,
        drop: Dropout | None,
        site: int,
    ) -> tuple[Array, Saved]:
        """Return LayerNorm(x + dropout(out + bias)), the end of a sublayer; the sum is saved."""
        y = self._activations(*x.shape)
        mean = empty(x.shape[:1])
        rstd = empty(x.shape[:1])
        total = self._activations(*x.shape) if self._narrow else out
        dropped = draws(drop, drop.rate if drop else 0.0, site)
        self._run.dropout_residual_layer_norm(
            x,
            out,
            params[bias],
            dropped,
            params["gamma"],
            params["beta"],
            config.layer_norm_eps,
            total,
            y,
            mean,
            rstd,
        )
        return y, NormSaved(total, mean, rstd, dropped)

    # dy (T,H) -> dx d_out (T,H), and the array of the sum, which may now be overwritten
    def _norm_gradient(
        self,
        dy: Array,
        saved: Saved,
        bias: str,
        params: Params,
        grads: Grads,
    ) -> tuple[Array, Array, Array]:
        """Return the gradients of `_norm`: of x by the residual path, and of the output of the sublayer."""
        total, mean, rstd, dropped = saved
        d_out = None
        if dropped or self._narrow:
            d_out = self._activations(*total.shape)
        dx = empty(total.shape)
        self._run.dropout_residual_layer_norm_backward(
            laid_out(dy),
            total,
            mean,
            rstd,
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
    def _linear_gradient(
        self,
        dy: Array,
        x: Array,
        weight: Array,
        d_weight: Array,
        d_bias: Array,
        dx: Array,
    ) -> None:
        """Add the gradients of x @ weight + bias to their accumulators."""
        self._run.gemm(x.T, dy, d_weight, True)
        self._run.column_sums(dy, None, d_bias, True)
        self._run.gemm(dy, weight.T, dx, True)
