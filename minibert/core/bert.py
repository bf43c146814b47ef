"""BERT: the encoder and the pre-training loss, forward and backward (Devlin et al. 2019, section 3).

All functions are pure. `ops` does the arithmetic, `config` has the shapes, `params` and `grads` are trees of
arrays as in `Parameters.tree`, `batch` has the tokens in a row, `drop` is the source of dropout or None. The
loss is

    mean over masked positions of -log p(token)  +  mean over sequences of -log p(IsNext or NotNext).
"""

from collections import namedtuple
from functools import partial
from typing import NamedTuple

from minibert.core.arrays import Array, Grads, Params, Saved
from minibert.core.batch import Batch
from minibert.core.config import BertConfig
from minibert.core.ops import Dropout, Ops

LayerSaved = namedtuple("LayerSaved", "attention feed_forward")
EncoderSaved = namedtuple("EncoderSaved", "embeddings layers")
PretrainingSaved = namedtuple("PretrainingSaved", "encoder mlm pooler nsp nsp_loss mlm_weights nsp_weights")


class PretrainingLoss(NamedTuple):
    """The loss of one batch, its two parts, and the contribution and prediction of each row."""

    loss: Array  # mlm_loss + nsp_loss
    mlm_loss: Array  # sum of masked_weights x mlm_nll
    nsp_loss: Array
    mlm_nll: Array  # (M,) nats
    mlm_predicted: Array  # (M,) vocabulary ids
    nsp_nll: Array  # (S,) nats; meaningless where next_sentence_labels is -1
    nsp_predicted: Array  # (S,) 0 IsNext, 1 NotNext


# x (T,H) -> (T,H), or (R,H) with rows (R,)
def encoder_layer(
    ops: Ops,
    config: BertConfig,
    x: Array,
    params: Params,
    batch: Batch,
    drop: Dropout | None,
    number: int,
    rows: Array | None = None,
) -> tuple[Array, Saved]:
    """Compute one layer: attention, then feed-forward. With `rows`, only these tokens, which attend to all.

    Parameters
    ----------
    ops, config : the engine, and the shape of the model.
    x : (T,H) input of the layer.
    params : the layer's parameters.
    batch : the batch, for the borders of its sequences.
    drop : source of dropout, or None.
    number : index of the layer, from 0.
    rows : (R,) the tokens to compute, ascending. None: all.

    Returns
    -------
    y : (T,H), or (R,H) with `rows`.
    saved : what both sublayers kept.
    """
    attention, feed_forward = params["attention"], params["feed_forward"]
    x, saved_attention = ops.attention_block(x, attention, batch.cu_seqlens, config, drop, number, rows)
    if drop is not None and rows is not None:
        drop = drop.at(rows)
    x, saved_feed_forward = ops.feed_forward_block(x, feed_forward, config, drop, number)
    return x, LayerSaved(saved_attention, saved_feed_forward)


# dy (T,H), or (R,H) with rows -> dx (T,H), grads
def encoder_layer_backward(
    ops: Ops,
    config: BertConfig,
    dy: Array,
    saved: Saved,
    params: Params,
    grads: Grads,
) -> tuple[Array, Grads]:
    """Add the gradients of `encoder_layer` to `grads`.

    Parameters
    ----------
    ops, config : the engine, and the shape of the model.
    dy : (T,H) or (R,H), gradient of y.
    saved : what `encoder_layer` kept.
    params, grads : the layer's parameters and their accumulators, which are consumed.

    Returns
    -------
    dx : (T,H).
    grads : the accumulators with the gradients added.
    """
    dy, feed_forward = ops.feed_forward_block_backward(
        dy, saved.feed_forward, params["feed_forward"], grads["feed_forward"], config
    )
    dx, attention = ops.attention_block_backward(dy, saved.attention, params["attention"], grads["attention"])
    return dx, {"attention": attention, "feed_forward": feed_forward}


# -> (T,H), or (R,H) with rows (R,)
def encoder(
    ops: Ops,
    config: BertConfig,
    params: Params,
    batch: Batch,
    drop: Dropout | None = None,
    rows: Array | None = None,
) -> tuple[Array, Saved]:
    """Compute the embeddings, then L layers of attention and feed-forward (Devlin et al. 2019, section 3).

    Parameters
    ----------
    ops, config : the engine, and the shape of the model.
    params : tree of parameters.
    batch : the tokens.
    drop : source of dropout, or None.
    rows : (R,) the tokens that the heads read, ascending; the last layer computes only these. None: all.

    Returns
    -------
    x : (T,H), or (R,H) with `rows`.
    saved : what the embeddings and the layers kept.
    """
    x, saved_embedding = ops.embedding_block(batch, params["embeddings"], config, drop)

    def layer(x: Array, layer_params: Params, number: int) -> tuple[Array, Saved]:
        read = rows if number == config.L - 1 else None
        return encoder_layer(ops, config, x, layer_params, batch, drop, number, read)

    x, saved_layers = ops.layers(layer, params["layers"], x)
    return x, EncoderSaved(saved_embedding, saved_layers)


# dy (T,H), or (R,H) -> grads
def encoder_backward(
    ops: Ops,
    config: BertConfig,
    dy: Array,
    saved: Saved,
    params: Params,
    grads: Grads,
    frozen: int | None = None,
) -> Grads:
    """Add the gradients of all layers and the embeddings to `grads`.

    Parameters
    ----------
    ops, config : the engine, and the shape of the model.
    dy : (T,H) or (R,H), gradient of what `encoder` returned.
    saved : what `encoder` kept.
    params, grads : trees of parameters and accumulators.
    frozen : how many of the lowest layers get no gradient, nor do the embeddings. None: nothing is frozen.

    Returns
    -------
    grads : the tree with the gradients added.
    """
    layer_backward = partial(encoder_layer_backward, ops, config)
    dx, layers = ops.layers_backward(
        layer_backward, dy, saved.layers, params["layers"], grads["layers"], frozen or 0
    )
    if frozen is not None:
        return grads | {"layers": layers}
    embeddings = ops.embedding_block_backward(dx, saved.embeddings, params["embeddings"], grads["embeddings"])
    return grads | {"embeddings": embeddings, "layers": layers}


# -> (T,H) for each of numbers; the last layer's (R,H) with rows (R,)
def hidden_states(
    ops: Ops,
    config: BertConfig,
    numbers: tuple[int, ...],
    params: Params,
    batch: Batch,
    rows: Array | None = None,
) -> list[Array]:
    """Compute some of the hidden states, without dropout and keeping nothing for backward.

    Parameters
    ----------
    ops, config : the engine, and the shape of the model.
    numbers : which states: 0 is the output of the embeddings, n that of the n-th layer. Layers above the
        highest of them are not computed.
    params : tree of parameters.
    batch : the tokens.
    rows : (R,) the tokens to compute in the last layer, ascending. None: all.

    Returns
    -------
    list of (T,H), one for each of `numbers`, in their order; the last layer's (R,H) with `rows`.
    """
    x, _ = ops.embedding_block(batch, params["embeddings"], config, None)
    states = {0: ops.upcast(x)} if 0 in numbers else {}
    for number, layer_params in enumerate(params["layers"][: max(numbers)]):
        read = rows if number == config.L - 1 else None
        x, _ = encoder_layer(ops, config, x, layer_params, batch, None, number, read)
        if number + 1 in numbers:
            states[number + 1] = ops.upcast(x)
    return [states[number] for number in numbers]


# x (T,H), the layer's input -> (A,n,n) for each sequence
def attention_maps(
    ops: Ops,
    config: BertConfig,
    x: Array,
    params: Params,
    batch: Batch,
) -> list[Array]:
    """Compute the attention probabilities of one layer, which the attention block does not always keep.

    Parameters
    ----------
    ops, config : the engine, and the shape of the model.
    x : (T,H) input of the layer.
    params : the layer's parameters.
    batch : the batch, for the borders of its sequences.

    Returns
    -------
    list of (A,n,n), one for each sequence, with n its number of tokens.
    """
    qkv, _ = ops.linear(x, params["attention"]["qkv_weight"], params["attention"]["qkv_bias"])
    q, k, _ = qkv.reshape(-1, 3, config.A, config.D).swapaxes(0, 1)
    return ops.attention_probabilities(q, k, batch.cu_seqlens, config.is_decoder)


# -> losses, nll (M,) and (S,), predictions (M,) and (S,), and what is saved
def pretraining_loss(
    ops: Ops,
    config: BertConfig,
    params: Params,
    batch: Batch,
    drop: Dropout | None = None,
) -> tuple[PretrainingLoss, Saved]:
    """Compute the masked-LM and next-sentence loss of one batch.

    Parameters
    ----------
    ops, config : the engine, and the shape of the model.
    params : tree of parameters.
    batch : tokens, masked positions and labels, with the weights of the global batch.
    drop : source of dropout, or None.

    Returns
    -------
    result : the loss, its parts, and the contribution of each row.
    saved : what the encoder, the heads and the losses kept.
    """
    rows, first, masked = _last_layer_rows(ops, config, batch)
    x, saved_encoder = encoder(ops, config, params, batch, drop, rows)
    (mlm_nll, mlm_predicted), saved_mlm = ops.masked_lm_head(
        x, masked, batch.masked_labels, params["mlm"], params["embeddings"]["word"], config
    )
    pooled, saved_pooler = ops.pooler(x, first, params["pooler"])
    nsp_logits, saved_nsp = ops.linear(pooled, params["nsp"]["weight"], params["nsp"]["bias"])
    # A sequence without a next-sentence label has -1 and weight 0, so any valid label will do.
    nsp_nll, saved_nsp_loss = ops.softmax_cross_entropy(nsp_logits, batch.next_sentence_labels.clip(0))

    mlm_weights = ops.cast(batch.masked_weights, mlm_nll.dtype)
    nsp_weights = ops.cast(batch.next_sentence_weights, nsp_nll.dtype)
    mlm_loss = (mlm_weights * mlm_nll).sum()
    nsp_loss = (nsp_weights * nsp_nll).sum()
    result = PretrainingLoss(
        mlm_loss + nsp_loss, mlm_loss, nsp_loss, mlm_nll, mlm_predicted, nsp_nll, nsp_logits.real.argmax(-1)
    )
    return result, PretrainingSaved(
        saved_encoder, saved_mlm, saved_pooler, saved_nsp, saved_nsp_loss, mlm_weights, nsp_weights
    )


# -> grads, the tree of all parameters
def pretraining_loss_backward(
    ops: Ops,
    config: BertConfig,
    saved: Saved,
    params: Params,
    grads: Grads,
) -> Grads:
    """Add the gradients of `pretraining_loss` to `grads`, which is consumed and returned.

    The word embedding is used twice, in the embeddings and as the decoder of the masked-LM head, so two calls
    add to its one accumulator.

    Parameters
    ----------
    ops, config : the engine, and the shape of the model.
    saved : what `pretraining_loss` kept.
    params, grads : trees of parameters and accumulators.

    Returns
    -------
    grads : the tree with the gradients added.
    """
    d_logits = ops.softmax_cross_entropy_backward(saved.nsp_weights, saved.nsp_loss)
    d_pooled, d_weight, d_bias = ops.linear_backward(d_logits, saved.nsp)
    nsp = ops.add_gradients(grads["nsp"], weight=d_weight, bias=d_bias)
    dx, pooler = ops.pooler_backward(d_pooled, saved.pooler, params["pooler"], grads["pooler"])
    dx_mlm, mlm, word = ops.masked_lm_head_backward(
        saved.mlm_weights, saved.mlm, params["mlm"], grads["mlm"], grads["embeddings"]["word"], config
    )
    embeddings = grads["embeddings"] | {"word": word}
    grads = grads | {"nsp": nsp, "pooler": pooler, "mlm": mlm, "embeddings": embeddings}
    return encoder_backward(ops, config, dx + dx_mlm, saved.encoder, params, grads)


# -> (S+M,) rows of the batch, or None for all; (S,) and (M,) indices into them, for the two heads
def _last_layer_rows(
    ops: Ops,
    config: BertConfig,
    batch: Batch,
) -> tuple[Array | None, Array, Array]:
    """Return the tokens that the heads read in the last layer: the first of each sequence and the masked."""
    first, masked = batch.first_rows, batch.masked_rows
    if config.is_decoder or len(first) + len(masked) >= len(batch.positions):
        return None, first, masked
    rows = ops.xp.sort(ops.xp.concatenate([first, masked]))
    first_places = ops.xp.searchsorted(rows, first).astype(rows.dtype)
    masked_places = ops.xp.searchsorted(rows, masked).astype(rows.dtype)
    return rows, first_places, masked_places
