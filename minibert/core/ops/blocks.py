"""The sublayers of BERT (Devlin et al. 2019, section 3), each a few lines of primitives.

The backward of a block takes its parameters and their gradient accumulators, and returns dx with the
accumulators. Dropout sites are numbered through the network: 0 after the embeddings, then three per layer.
"""

from collections import namedtuple
from collections.abc import Callable
from typing import Any

from minibert.core.arrays import Array, Grads, Params, Saved
from minibert.core.ops.attention import Attention
from minibert.core.ops.dropout_bits import Dropout
from minibert.core.ops.losses import Losses

EMBEDDING_SITE = 0

# What forward saves for backward, one field per primitive: None without dropout, or without chosen rows.
EmbeddingBlockSaved = namedtuple("EmbeddingBlockSaved", "word position segment norm dropout")
AttentionBlockSaved = namedtuple("AttentionBlockSaved", "qkv attention rows output dropout norm")
FeedForwardBlockSaved = namedtuple("FeedForwardBlockSaved", "inner gelu output dropout norm")
PoolerSaved = namedtuple("PoolerSaved", "rows linear tanh")
MaskedLmLogitsSaved = namedtuple("MaskedLmLogitsSaved", "rows linear gelu norm decoder")
MaskedLmHeadSaved = namedtuple("MaskedLmHeadSaved", "logits loss")
DropoutSaved = namedtuple("DropoutSaved", "mask")


def layer_sites(layer: int) -> tuple[int, int, int]:
    """Return the dropout sites of a layer: attention probabilities, attention output, feed-forward output.

    Parameters
    ----------
    layer : index of the layer, from 0.
    """
    return 3 * layer + 1, 3 * layer + 2, 3 * layer + 3


class Blocks(Attention, Losses):
    """Embeddings, attention, feed-forward, pooler and masked-LM head.

    `config` is anything with the fields of a `BertConfig`. `params` and `grads` are the dictionaries of one
    block in `Parameters.tree`.
    """

    # input_ids token_type_ids positions (T,) -> (T,H)
    def embedding_block(
        self,
        batch: Any,
        params: Params,
        config: Any,
        drop: Dropout | None,
    ) -> tuple[Array, Saved]:
        """Return dropout(LayerNorm(word + position + segment)) (Devlin et al. 2019, Figure 2).

        Parameters
        ----------
        batch : `input_ids`, `token_type_ids` and `positions`, each (T,).
        params : "word" (V,H), "position" (P,H), "segment", "gamma" and "beta" (H,).
        config : the configuration, for its `layer_norm_eps`.
        drop : the dropout of the batch, or None.

        Returns
        -------
        y : (T,H).
        saved : the ids, what the LayerNorm kept, and the dropout mask.
        """
        word, saved_word = self.embedding(batch.input_ids, params["word"])
        position, saved_position = self.embedding(batch.positions, params["position"])
        segment, saved_segment = self.embedding(batch.token_type_ids, params["segment"])
        x = word + position + segment
        x, saved_norm = self.layer_norm(x, params["gamma"], params["beta"], config.layer_norm_eps)
        y, saved_drop = self._dropout(x, drop, EMBEDDING_SITE)
        return y, EmbeddingBlockSaved(saved_word, saved_position, saved_segment, saved_norm, saved_drop)

    # dy (T,H) -> grads
    def embedding_block_backward(
        self,
        dy: Array,
        saved: Saved,
        params: Params,
        grads: Grads,
    ) -> Grads:
        """Add the gradients of the three tables and the LayerNorm.

        Parameters
        ----------
        dy : (T,H) gradient of y.
        saved : what `embedding_block` kept.
        params : as for the forward, for engines that do not keep the weights in `saved`.
        grads : accumulators by the same names, consumed.

        Returns
        -------
        dict, the accumulators with the gradients added.
        """
        dx, grads = self._norm_backward(self._dropout_backward(dy, saved.dropout), saved.norm, grads)
        return grads | {
            "word": self.embedding_backward(dx, saved.word, grads["word"]),
            "position": self.embedding_backward(dx, saved.position, grads["position"]),
            "segment": self.embedding_backward(dx, saved.segment, grads["segment"]),
        }

    # x (T,H) -> (T,H), or (R,H) with rows (R,)
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
        """Return LayerNorm(x + dropout(output(attention(q, k, v)))), with q, k and v linear in x.

        This is multi-head attention with its residual (Vaswani et al. 2017, sections 3.1 and 3.2.2).

        With `rows`, only these tokens are computed; every token still serves as key and value.

        Parameters
        ----------
        x : (T,H) input of the layer.
        params : "qkv_weight" (H,3H) and its bias, "output_weight" (H,H) and its bias, "gamma", "beta".
        cu_seqlens : (S+1,) first row of each sequence, then T.
        config : the configuration, for the shapes, `is_decoder` and `layer_norm_eps`.
        drop, layer : the dropout of the batch or None, and the index of the layer, which gives its sites.
        rows : (R,) the rows of x to compute, ascending. None: all.

        Returns
        -------
        y : (T,H), or (R,H) with `rows`, which select from the residual path, too.
        saved : what each primitive kept.
        """
        attention_site, output_site, _ = layer_sites(layer)
        T, H = x.shape
        qkv, saved_qkv = self.linear(x, params["qkv_weight"], params["qkv_bias"])
        q, k, v = qkv.reshape(T, 3, config.A, config.D).swapaxes(0, 1)
        context, saved_attention = self.attention(
            q, k, v, cu_seqlens, config.is_decoder, drop, attention_site
        )
        context = context.reshape(T, H)
        saved_rows = None
        if rows is not None:
            context, saved_rows = self.take_rows(context, rows)
            x, _ = self.take_rows(x, rows)
            drop = None if drop is None else drop.at(rows)
        out, saved_out = self.linear(context, params["output_weight"], params["output_bias"])
        out, saved_drop = self._dropout(out, drop, output_site)
        y, saved_norm = self.layer_norm(x + out, params["gamma"], params["beta"], config.layer_norm_eps)
        saved = AttentionBlockSaved(saved_qkv, saved_attention, saved_rows, saved_out, saved_drop, saved_norm)
        return y, saved

    # dy (T,H) or (R,H) -> dx (T,H), grads
    def attention_block_backward(
        self,
        dy: Array,
        saved: Saved,
        params: Params,
        grads: Grads,
    ) -> tuple[Array, Grads]:
        """Add the gradients of `attention_block`; dx is the sum over the residual path and attention.

        Parameters
        ----------
        dy : (T,H), or (R,H) where only some rows were computed.
        saved : what `attention_block` kept.
        params : as for the forward, for engines that do not keep the weights in `saved`.
        grads : accumulators by the same names, consumed.

        Returns
        -------
        dx : (T,H).
        grads : the accumulators with the gradients added.
        """
        d_sum, grads = self._norm_backward(dy, saved.norm, grads)
        d_out = self._dropout_backward(d_sum, saved.dropout)
        d_context, grads = self._linear_backward(d_out, saved.output, grads, "output_weight", "output_bias")
        if saved.rows is not None:
            d_context = self.take_rows_backward(d_context, saved.rows)
            d_sum = self.take_rows_backward(d_sum, saved.rows)
        T, H = d_context.shape
        d_context = d_context.reshape(saved.attention.q.shape)
        dq, dk, dv = self.attention_backward(d_context, saved.attention)
        d_qkv = self.xp.concatenate([d.reshape(T, H) for d in (dq, dk, dv)], axis=1)
        dx, grads = self._linear_backward(d_qkv, saved.qkv, grads, "qkv_weight", "qkv_bias")
        return d_sum + dx, grads

    # x (T,H) -> (T,H)
    def feed_forward_block(
        self,
        x: Array,
        params: Params,
        config: Any,
        drop: Dropout | None,
        layer: int,
    ) -> tuple[Array, Saved]:
        """Return LayerNorm(x + dropout(W2 gelu(W1 x + b1) + b2)).

        This is the feed-forward sublayer of Vaswani et al. (2017, section 3.3), with GELU in place of ReLU.

        Parameters
        ----------
        x : (T,H).
        params : "in_weight" (H,F), "in_bias", "out_weight" (F,H), "out_bias", "gamma", "beta".
        config : the configuration, for its `gelu_form` and `layer_norm_eps`.
        drop, layer : the dropout of the batch or None, and the index of the layer, which gives its site.

        Returns
        -------
        y : (T,H).
        saved : what each primitive kept.
        """
        *_, output_site = layer_sites(layer)
        inner, saved_in = self.linear(x, params["in_weight"], params["in_bias"])
        inner, saved_gelu = self.gelu(inner, config.gelu_form)
        out, saved_out = self.linear(inner, params["out_weight"], params["out_bias"])
        out, saved_drop = self._dropout(out, drop, output_site)
        y, saved_norm = self.layer_norm(x + out, params["gamma"], params["beta"], config.layer_norm_eps)
        return y, FeedForwardBlockSaved(saved_in, saved_gelu, saved_out, saved_drop, saved_norm)

    # dy (T,H) -> dx (T,H), grads
    def feed_forward_block_backward(
        self,
        dy: Array,
        saved: Saved,
        params: Params,
        grads: Grads,
        config: Any,
    ) -> tuple[Array, Grads]:
        """Add the gradients of `feed_forward_block`.

        Parameters
        ----------
        dy : (T,H) gradient of y.
        saved : what `feed_forward_block` kept.
        params : as for the forward, for engines that do not keep the weights in `saved`.
        grads : accumulators by the same names, consumed.
        config : the configuration, for its `gelu_form`.

        Returns
        -------
        dx : (T,H).
        grads : the accumulators with the gradients added.
        """
        d_sum, grads = self._norm_backward(dy, saved.norm, grads)
        d_out = self._dropout_backward(d_sum, saved.dropout)
        d_inner, grads = self._linear_backward(d_out, saved.output, grads, "out_weight", "out_bias")
        d_inner = self.gelu_backward(d_inner, saved.gelu, config.gelu_form)
        dx, grads = self._linear_backward(d_inner, saved.inner, grads, "in_weight", "in_bias")
        return d_sum + dx, grads

    # x (T,H)  first_rows (S,) -> (S,H)
    def pooler(self, x: Array, first_rows: Array, params: Params) -> tuple[Array, Saved]:
        """Return tanh(W x + b) of each sequence's [CLS].

        The paper calls [CLS] the aggregate of a sequence (Devlin et al. 2019, section 3); this layer on top
        is that of its released code.

        Parameters
        ----------
        x : (T,H) output of the last layer.
        first_rows : (S,) the row of each [CLS].
        params : "weight" (H,H) and "bias" (H,).

        Returns
        -------
        y : (S,H).
        saved : what each primitive kept.
        """
        first, saved_rows = self.take_rows(x, first_rows)
        y, saved_linear = self.linear(self.upcast(first), params["weight"], params["bias"])
        y, saved_tanh = self.tanh(y)
        return y, PoolerSaved(saved_rows, saved_linear, saved_tanh)

    # dy (S,H) -> dx (T,H), grads
    def pooler_backward(
        self,
        dy: Array,
        saved: Saved,
        params: Params,
        grads: Grads,
    ) -> tuple[Array, Grads]:
        """Add the gradients of `pooler`.

        Parameters
        ----------
        dy : (S,H) gradient of y.
        saved : what `pooler` kept.
        params : as for the forward, for engines that do not keep the weights in `saved`.
        grads : accumulators by the same names, consumed.

        Returns
        -------
        dx : (T,H), zero except in the first rows.
        grads : the accumulators with the gradients added.
        """
        dy = self.tanh_backward(dy, saved.tanh)
        d_first, grads = self._linear_backward(dy, saved.linear, grads, "weight", "bias")
        return self.take_rows_backward(d_first, saved.rows), grads

    # x (T,H)  rows (M,)  table (V,H) -> (M,V)
    def masked_lm_logits(
        self,
        x: Array,
        rows: Array,
        params: Params,
        table: Array,
        config: Any,
    ) -> tuple[Array, Saved]:
        """Score every vocabulary entry at some rows: linear, GELU, LayerNorm, then the tied embedding.

        The paper has a softmax over the vocabulary (Devlin et al. 2019, section 3.1); the layer below it and
        the tying are those of its released code.

        Parameters
        ----------
        x : (T,H) output of the last layer.
        rows : (M,) the rows of x to score.
        params : "weight" (H,H), "bias", "gamma", "beta" (H,) and "output_bias" (V,).
        table : (V,H) the word embedding.
        config : the configuration, for its `gelu_form` and `layer_norm_eps`.

        Returns
        -------
        logits : (M,V).
        saved : what each primitive kept.
        """
        x, saved_rows = self.take_rows(x, rows)
        x, saved_linear = self.linear(self.upcast(x), params["weight"], params["bias"])
        x, saved_gelu = self.gelu(x, config.gelu_form)
        x, saved_norm = self.layer_norm(x, params["gamma"], params["beta"], config.layer_norm_eps)
        logits, saved_decoder = self.linear(x, table.T, params["output_bias"])
        return logits, MaskedLmLogitsSaved(saved_rows, saved_linear, saved_gelu, saved_norm, saved_decoder)

    # x (T,H)  rows labels (M,)  table (V,H) -> nll (M,)  predicted (M,)
    def masked_lm_head(
        self,
        x: Array,
        rows: Array,
        labels: Array,
        params: Params,
        table: Array,
        config: Any,
    ) -> tuple[tuple[Array, Array], Saved]:
        """Return -log p(label) at each masked row, and the vocabulary entry with the highest score there.

        It is the masked LM of Devlin et al. (2019, section 3.1). Logits are computed for masked rows only.
        `table` is the word embedding itself, so its gradient is accumulated both in this head's backward and
        in `embedding_block_backward`.

        Parameters
        ----------
        x : (T,H) output of the last layer.
        rows : (M,) the masked rows.
        labels : (M,) the original ids at these rows.
        params, table, config : as for `masked_lm_logits`.

        Returns
        -------
        (nll, predicted) : (M,) nats, and (M,) vocabulary ids.
        saved : what the logits and the loss kept.
        """
        logits, saved_logits = self.masked_lm_logits(x, rows, params, table, config)
        nll, saved_loss = self.softmax_cross_entropy(logits, labels)
        return (nll, logits.real.argmax(-1)), MaskedLmHeadSaved(saved_logits, saved_loss)

    # dnll (M,)  dtable (V,H) -> dx (T,H), grads, dtable
    def masked_lm_head_backward(
        self,
        dnll: Array,
        saved: Saved,
        params: Params,
        grads: Grads,
        dtable: Array,
        config: Any,
    ) -> tuple[Array, Grads, Array]:
        """Add the gradients of `masked_lm_head`.

        Parameters
        ----------
        dnll : (M,) gradient of each masked row's loss.
        saved : what `masked_lm_head` kept.
        params : as for the forward, for engines that do not keep the weights in `saved`.
        grads : accumulators by the same names, consumed.
        dtable : (V,H) accumulator of the word embedding, consumed.
        config : the configuration, for its `gelu_form`.

        Returns
        -------
        dx : (T,H), zero except in the masked rows.
        grads, dtable : the accumulators with the gradients added.
        """
        dlogits = self.softmax_cross_entropy_backward(dnll, saved.loss)
        saved = saved.logits
        dx, dtable_transposed, dbias = self.linear_backward(dlogits, saved.decoder)
        dtable = self.accumulate(dtable, dtable_transposed.T)
        grads = self.add_gradients(grads, output_bias=dbias)
        dx, grads = self._norm_backward(dx, saved.norm, grads)
        dx = self.gelu_backward(dx, saved.gelu, config.gelu_form)
        dx, grads = self._linear_backward(dx, saved.linear, grads, "weight", "bias")
        return self.take_rows_backward(dx, saved.rows), grads, dtable

    # x (T,H) -> (T,H), or (R,H) where the last layer computes R rows only
    def layers(
        self,
        layer: Callable[..., Any],
        params: list[Params],
        x: Array,
    ) -> tuple[Array, Saved]:
        """Pass x through all layers, one after another.

        Parameters
        ----------
        layer : computes one layer, as `layer(x, params of the layer, its index) -> x, saved`.
        params : the trees of parameters, one for each layer.
        x : (T,H) output of the embeddings.

        Returns
        -------
        x : (T,H), or (R,H) where the last layer computes R rows only.
        saved : what each layer kept.
        """
        kept = []
        for number, layer_params in enumerate(params):
            x, saved = layer(x, layer_params, number)
            kept.append(saved)
        return x, tuple(kept)

    # dy (T,H) or (R,H) -> dx (T,H), grads
    def layers_backward(
        self,
        layer_backward: Callable[..., Any],
        dy: Array,
        saved: Saved,
        params: list[Params],
        grads: list[Grads],
        first: int = 0,
    ) -> tuple[Array, list[Grads]]:
        """Propagate dy back through the layers, from the last down to `first`.

        The accumulators of layers below `first` are returned unchanged.

        Parameters
        ----------
        layer_backward : backward of one layer, as `layer_backward(dy, saved, params, grads) -> dx, grads`.
        dy : (T,H) or (R,H), gradient of what the last layer returned.
        saved : what `layers` kept.
        params, grads : parameters and accumulators, one tree for each layer.
        first : index of the lowest layer to go through. 0: all.

        Returns
        -------
        dx : (T,H) gradient of the input of layer `first`.
        grads : list of trees, with the gradients added.
        """
        grads = list(grads)
        for number in reversed(range(first, len(params))):
            dy, grads[number] = layer_backward(dy, saved[number], params[number], grads[number])
        return dy, grads

    # dy (T,N) -> dx (T,K), grads
    def _linear_backward(
        self,
        dy: Array,
        saved: Saved,
        grads: Grads,
        weight: str,
        bias: str,
    ) -> tuple[Array, Grads]:
        dx, dweight, dbias = self.linear_backward(dy, saved)
        return dx, self.add_gradients(grads, **{weight: dweight, bias: dbias})

    # dy (T,H) -> dx (T,H), grads
    def _norm_backward(self, dy: Array, saved: Saved, grads: Grads) -> tuple[Array, Grads]:
        dx, dgamma, dbeta = self.layer_norm_backward(dy, saved)
        return dx, self.add_gradients(grads, gamma=dgamma, beta=dbeta)

    # x (T,H) -> (T,H)
    def _dropout(self, x: Array, drop: Dropout | None, site: int) -> tuple[Array, Saved]:
        if drop is None or not drop.rate:
            return x, None
        mask = self.dropout_mask(drop, site, x.shape[-1], x.dtype)
        return x * mask, DropoutSaved(mask)

    # dy (T,H) -> dx (T,H)
    def _dropout_backward(self, dy: Array, saved: Saved) -> Array:
        return dy if saved is None else dy * saved.mask
