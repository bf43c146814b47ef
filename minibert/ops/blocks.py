"""The sublayers of BERT (Devlin et al. 2019, section 3), each a few lines of primitives.

A block's backward takes the block's parameters and their gradient accumulators and returns dx with the
accumulators. Dropout sites are numbered through the network: 0 behind the embeddings, then three to a layer.
"""

from collections.abc import Callable
from typing import Any

from minibert.ops.attention import Attention
from minibert.ops.losses import Losses
from minibert.ops.primitives import Saved
from minibert.ops.random import Dropout

EMBEDDING_SITE = 0


def layer_sites(layer: Any) -> tuple[Any, Any, Any]:
    """Dropout sites of a layer: attention probabilities, attention output, feed-forward output."""
    return 3 * layer + 1, 3 * layer + 2, 3 * layer + 3


class Blocks(Attention, Losses):
    """Embeddings, attention, feed-forward, pooler and masked-LM head.

    `config` is anything with the fields of a `BertConfig`; `params` and `grads` are the dictionaries of one
    block, as `Parameters.tree` holds them.
    """

    # input_ids token_type_ids positions (T,) -> (T,H)
    def embedding_block(
        self, batch: Any, params: dict, config: Any, drop: Dropout | None
    ) -> tuple[Any, Saved]:
        """dropout(LayerNorm(word + position + segment))."""
        word, saved_word = self.embedding(batch.input_ids, params["word"])
        position, saved_position = self.embedding(batch.positions, params["position"])
        segment, saved_segment = self.embedding(batch.token_type_ids, params["segment"])
        x, saved_norm = self.layer_norm(
            word + position + segment, params["gamma"], params["beta"], config.layer_norm_eps
        )
        y, saved_drop = self._dropout(x, drop, EMBEDDING_SITE)
        return y, (saved_word, saved_position, saved_segment, saved_norm, saved_drop)

    # dy (T,H) -> grads
    def embedding_block_backward(self, dy: Any, saved: Saved, params: dict, grads: dict) -> dict:
        """Gradients of the three tables and the LayerNorm."""
        saved_word, saved_position, saved_segment, saved_norm, saved_drop = saved
        dx, grads = self._norm_backward(self._dropout_backward(dy, saved_drop), saved_norm, grads)
        return grads | {
            "word": self.embedding_backward(dx, saved_word, grads["word"]),
            "position": self.embedding_backward(dx, saved_position, grads["position"]),
            "segment": self.embedding_backward(dx, saved_segment, grads["segment"]),
        }

    # x (T,H) -> (T,H), or (R,H) with rows (R,)
    def attention_block(
        self,
        x: Any,
        params: dict,
        cu_seqlens: Any,
        config: Any,
        drop: Dropout | None,
        layer: Any,
        rows: Any = None,
    ) -> tuple[Any, Saved]:
        """LayerNorm(x + dropout(output(attention(query(x), key(x), value(x))))).

        With `rows`, which ascend, only these tokens are computed; every token still serves as key and value.
        """
        attention_site, output_site, _ = layer_sites(layer)
        T, H = x.shape
        qkv, saved_qkv = self.linear(x, params["qkv_weight"], params["qkv_bias"])
        q, k, v = qkv.reshape(T, 3, config.A, config.D).swapaxes(0, 1)
        context, saved_attention = self.attention(
            q, k, v, cu_seqlens, config.is_decoder, drop, attention_site
        )
        context, saved_rows = context.reshape(T, H), ()
        if rows is not None:
            context, saved_rows = self.take_rows(context, rows)
            x, _ = self.take_rows(x, rows)
            drop = None if drop is None else drop.at(rows)
        out, saved_out = self.linear(context, params["output_weight"], params["output_bias"])
        out, saved_drop = self._dropout(out, drop, output_site)
        y, saved_norm = self.layer_norm(x + out, params["gamma"], params["beta"], config.layer_norm_eps)
        return y, (saved_qkv, saved_attention, saved_rows, saved_out, saved_drop, saved_norm)

    # dy (T,H) or (R,H) -> dx (T,H), grads
    def attention_block_backward(self, dy: Any, saved: Saved, params: dict, grads: dict) -> tuple[Any, dict]:
        """Gradients of `attention_block`; dx adds up the residual path and the one through attention."""
        saved_qkv, saved_attention, saved_rows, saved_out, saved_drop, saved_norm = saved
        d_sum, grads = self._norm_backward(dy, saved_norm, grads)
        d_out = self._dropout_backward(d_sum, saved_drop)
        d_context, grads = self._linear_backward(d_out, saved_out, grads, "output_weight", "output_bias")
        if saved_rows:
            d_context = self.take_rows_backward(d_context, saved_rows)
            d_sum = self.take_rows_backward(d_sum, saved_rows)
        T, H = d_context.shape
        dq, dk, dv = self.attention_backward(d_context.reshape(saved_attention[0].shape), saved_attention)
        d_qkv = self.xp.concatenate([d.reshape(T, H) for d in (dq, dk, dv)], axis=1)
        dx, grads = self._linear_backward(d_qkv, saved_qkv, grads, "qkv_weight", "qkv_bias")
        return d_sum + dx, grads

    # x (T,H) -> (T,H)
    def feed_forward_block(
        self, x: Any, params: dict, config: Any, drop: Dropout | None, layer: Any
    ) -> tuple[Any, Saved]:
        """LayerNorm(x + dropout(W2 gelu(W1 x)))."""
        *_, output_site = layer_sites(layer)
        inner, saved_in = self.linear(x, params["in_weight"], params["in_bias"])
        inner, saved_gelu = self.gelu(inner, config.gelu_form)
        out, saved_out = self.linear(inner, params["out_weight"], params["out_bias"])
        out, saved_drop = self._dropout(out, drop, output_site)
        y, saved_norm = self.layer_norm(x + out, params["gamma"], params["beta"], config.layer_norm_eps)
        return y, (saved_in, saved_gelu, saved_out, saved_drop, saved_norm)

    # dy (T,H) -> dx (T,H), grads
    def feed_forward_block_backward(
        self, dy: Any, saved: Saved, params: dict, grads: dict, config: Any
    ) -> tuple[Any, dict]:
        """Gradients of `feed_forward_block`."""
        saved_in, saved_gelu, saved_out, saved_drop, saved_norm = saved
        d_sum, grads = self._norm_backward(dy, saved_norm, grads)
        d_out = self._dropout_backward(d_sum, saved_drop)
        d_inner, grads = self._linear_backward(d_out, saved_out, grads, "out_weight", "out_bias")
        d_inner = self.gelu_backward(d_inner, saved_gelu, config.gelu_form)
        dx, grads = self._linear_backward(d_inner, saved_in, grads, "in_weight", "in_bias")
        return d_sum + dx, grads

    # x (T,H)  first_rows (S,) -> (S,H)
    def pooler(self, x: Any, first_rows: Any, params: dict) -> tuple[Any, Saved]:
        """tanh(W x + b) of each sequence's [CLS]."""
        first, saved_rows = self.take_rows(x, first_rows)
        y, saved_linear = self.linear(self.widen(first), params["weight"], params["bias"])
        y, saved_tanh = self.tanh(y)
        return y, (saved_rows, saved_linear, saved_tanh)

    # dy (S,H) -> dx (T,H), grads
    def pooler_backward(self, dy: Any, saved: Saved, params: dict, grads: dict) -> tuple[Any, dict]:
        """Gradients of `pooler`."""
        saved_rows, saved_linear, saved_tanh = saved
        dy = self.tanh_backward(dy, saved_tanh)
        d_first, grads = self._linear_backward(dy, saved_linear, grads, "weight", "bias")
        return self.take_rows_backward(d_first, saved_rows), grads

    # x (T,H)  rows (M,)  table (V,H) -> (M,V)
    def masked_lm_logits(self, x: Any, rows: Any, params: dict, table: Any, config: Any) -> tuple[Any, Saved]:
        """Scores of every vocabulary entry at some rows: dense, GELU, LayerNorm, then the tied embedding."""
        x, saved_rows = self.take_rows(x, rows)
        x, saved_linear = self.linear(self.widen(x), params["weight"], params["bias"])
        x, saved_gelu = self.gelu(x, config.gelu_form)
        x, saved_norm = self.layer_norm(x, params["gamma"], params["beta"], config.layer_norm_eps)
        logits, saved_decoder = self.linear(x, table.T, params["output_bias"])
        return logits, (saved_rows, saved_linear, saved_gelu, saved_norm, saved_decoder)

    # x (T,H)  rows labels (M,)  table (V,H) -> nll (M,)  predicted (M,)
    def masked_lm_head(
        self, x: Any, rows: Any, labels: Any, params: dict, table: Any, config: Any
    ) -> tuple[tuple[Any, Any], Saved]:
        """-log probability of the label at each masked row, and the entry that scores highest there.

        Logits exist for masked rows only. `table` is the word embedding itself; its gradient is accumulated
        here as well as in `embedding_block_backward`.
        """
        logits, saved = self.masked_lm_logits(x, rows, params, table, config)
        nll, saved_loss = self.softmax_cross_entropy(logits, labels)
        return (nll, logits.real.argmax(-1)), (*saved, saved_loss)

    # dnll (M,)  dtable (V,H) -> dx (T,H), grads, dtable
    def masked_lm_head_backward(
        self, dnll: Any, saved: Saved, params: dict, grads: dict, dtable: Any, config: Any
    ) -> tuple[Any, dict, Any]:
        """Gradients of `masked_lm_head`."""
        saved_rows, saved_linear, saved_gelu, saved_norm, saved_decoder, saved_loss = saved
        dlogits = self.softmax_cross_entropy_backward(dnll, saved_loss)
        dx, dtable_turned, dbias = self.linear_backward(dlogits, saved_decoder)
        dtable = self.accumulate(dtable, dtable_turned.T)
        grads = grads | {"output_bias": self.accumulate(grads["output_bias"], dbias)}
        dx, grads = self._norm_backward(dx, saved_norm, grads)
        dx = self.gelu_backward(dx, saved_gelu, config.gelu_form)
        dx, grads = self._linear_backward(dx, saved_linear, grads, "weight", "bias")
        return self.take_rows_backward(dx, saved_rows), grads, dtable

    def layers(self, block: Callable, params: list[dict], x: Any) -> tuple[Any, Saved]:
        """x through all layers: `block(x, params of one layer, its number) -> x, saved`."""
        kept = []
        for number, one in enumerate(params):
            x, saved = block(x, one, number)
            kept.append(saved)
        return x, tuple(kept)

    def layers_backward(
        self,
        block_backward: Callable,
        dy: Any,
        saved: Saved,
        params: list[dict],
        grads: list[dict],
        first: int = 0,
    ) -> tuple[Any, list[dict]]:
        """dy back through the layers, from the last down to `first`.

        `block_backward(dy, saved, params, grads) -> dx, grads` goes back through one of them. Layers
        below `first` are not touched, and their accumulators are returned as they are.
        """
        finished = []
        above = (reversed(one[first:]) for one in (saved, params, grads))
        for kept, one, one_grads in zip(*above, strict=True):
            dy, one_grads = block_backward(dy, kept, one, one_grads)
            finished.append(one_grads)
        return dy, [*grads[:first], *finished[::-1]]

    def _linear_backward(
        self, dy: Any, saved: Saved, grads: dict, weight: str, bias: str
    ) -> tuple[Any, dict]:
        dx, dweight, dbias = self.linear_backward(dy, saved)
        return dx, grads | {
            weight: self.accumulate(grads[weight], dweight),
            bias: self.accumulate(grads[bias], dbias),
        }

    def _norm_backward(self, dy: Any, saved: Saved, grads: dict) -> tuple[Any, dict]:
        dx, dgamma, dbeta = self.layer_norm_backward(dy, saved)
        return dx, grads | {
            "gamma": self.accumulate(grads["gamma"], dgamma),
            "beta": self.accumulate(grads["beta"], dbeta),
        }

    def _dropout(self, x: Any, drop: Dropout | None, site: Any) -> tuple[Any, Saved]:
        if drop is None or not drop.rate:
            return x, ()
        mask = self.dropout_mask(drop, site, x.shape[-1], x.dtype)
        return x * mask, (mask,)

    def _dropout_backward(self, dy: Any, saved: Saved) -> Any:
        return dy * saved[0] if saved else dy
