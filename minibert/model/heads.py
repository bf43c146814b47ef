"""The output layers of `core/heads.py`, after LSTMs or over the pooled windows of a long text.

With `head.lstm` there are two bidirectional LSTMs between the encoder and the output layer, as in the row
"+ BiLSTM" of the paper's Table 5. With `head.pool` an example consists of several windows, whose pooled [CLS]
are combined into one vector. For a head with neither these functions do what the core's do.
"""

from collections import namedtuple

from minibert.core import bert, heads
from minibert.core.arrays import Array, Grads, Params, Saved
from minibert.core.config import BertConfig
from minibert.core.heads import HeadLoss, LogitsSaved, LossSaved
from minibert.core.ops import Dropout
from minibert.model.batch import TaskBatch
from minibert.model.ops import Ops
from minibert.model.params import Head

OutputSaved = namedtuple("OutputSaved", "lstm rows pool dropout linear")  # None where a head has no such part


# -> (S,K), (E,K), (S,1), (T,2) or (N,K)
def logits(
    ops: Ops,
    config: BertConfig,
    head: Head,
    params: Params,
    batch: TaskBatch,
    drop: Dropout | None = None,
) -> tuple[Array, Saved]:
    """Compute the scores of the output layer, before any softmax.

    Parameters
    ----------
    ops : Ops
        The engine.
    config : BertConfig
        The shape of the encoder.
    head : Head
        The head on top.
    params : dict
        Tree of parameters.
    batch : TaskBatch
        The tokens, and the ones that the head reads.
    drop : Dropout or None
        Source of dropout.

    Returns
    -------
    scores : (S,K), (E,K), (S,1), (T,2) or (N,K)
        Depending on the kind of head.
    saved : Saved
        What encoder and output layer kept.
    """
    rows, places = _last_layer_rows(ops, config, head, batch)
    x, saved_encoder = bert.encoder(ops, config, params, batch, drop, rows)
    scores, saved = _output_layer(ops, config, head, x, places, params, batch, drop)
    return scores, LogitsSaved(saved_encoder, saved)


# dlogits (S,K), (E,K), (S,1), (T,2) or (N,K) -> grads
def logits_backward(
    ops: Ops,
    config: BertConfig,
    head: Head,
    dlogits: Array,
    saved: Saved,
    params: Params,
    grads: Grads,
    frozen: int | None = None,
) -> Grads:
    """Add the gradients of `logits` to `grads`, which is consumed and returned.

    Parameters
    ----------
    ops : Ops
        The engine.
    config : BertConfig
        The shape of the encoder.
    head : Head
        The head on top.
    dlogits : array
        Gradient of the scores, in their shape.
    saved : Saved
        What `logits` kept.
    params, grads : dict
        Trees of parameters and accumulators.
    frozen : int or None
        How many of the lowest layers get no gradient, nor do the embeddings. None: nothing is frozen.

    Returns
    -------
    dict
        The accumulators with the gradients added.
    """
    output = saved.output
    dx, dweight, dbias = ops.linear_backward(dlogits, output.linear)
    head_grads = ops.add_gradients(grads["head"], weight=dweight, bias=dbias)
    if output.dropout is not None:
        dx = dx * output.dropout.mask
    if head.pool:
        dx, dquery = ops.pool_windows_backward(dx, output.pool)
        if dquery is not None:
            head_grads = ops.add_gradients(head_grads, query=dquery)
    dx, grads = heads.read_backward(ops, head, dx, output.rows, params, grads | {"head": head_grads})
    if head.lstm:
        dx, lstm = ops.bilstm_block_backward(dx, output.lstm, params["lstm"], grads["lstm"])
        grads = grads | {"lstm": lstm}
    return bert.encoder_backward(ops, config, dx, saved.encoder, params, grads, frozen)


# -> loss, nll (len(labels),), logits (S,K), (E,K), (S,1), (T,2) or (N,K), and what is saved
def loss(
    ops: Ops,
    config: BertConfig,
    head: Head,
    params: Params,
    batch: TaskBatch,
    drop: Dropout | None = None,
    span_weight: float = 0.5,
) -> tuple[HeadLoss, Saved]:
    """Compute the loss of a task on one batch, as `core.heads.loss` does.

    Parameters
    ----------
    ops : Ops
        The engine.
    config : BertConfig
        The shape of the encoder.
    head : Head
        The head on top.
    params : dict
        Tree of parameters.
    batch : TaskBatch
        Tokens and labels, with the weights of the global batch.
    drop : Dropout or None
        Source of dropout.
    span_weight : float, default 0.5
        Factor of each of the two losses of a span, those of start and end.

    Returns
    -------
    result : HeadLoss
        The loss, that of each label, and the scores.
    saved : Saved
        What `logits` and the loss kept.
    """
    scores, saved = logits(ops, config, head, params, batch, drop)
    result, saved_loss, dnll = heads.loss_of_logits(ops, head, scores, batch, span_weight)
    return result, LossSaved(saved, saved_loss, dnll)


# -> grads, the tree of all parameters
def loss_backward(
    ops: Ops,
    config: BertConfig,
    head: Head,
    saved: Saved,
    params: Params,
    grads: Grads,
    frozen: int | None = None,
) -> Grads:
    """Add the gradients of `loss` to `grads`, which is consumed and returned.

    Parameters
    ----------
    ops : Ops
        The engine.
    config : BertConfig
        The shape of the encoder.
    head : Head
        The head on top.
    saved : Saved
        What `loss` kept.
    params, grads : dict
        Trees of parameters and accumulators.
    frozen : int or None
        How many of the lowest layers get no gradient, nor do the embeddings. None: nothing is frozen.

    Returns
    -------
    dict
        The accumulators with the gradients added.
    """
    dlogits = heads.loss_of_logits_backward(ops, head, saved.dnll, saved.loss)
    return logits_backward(ops, config, head, dlogits, saved.logits, params, grads, frozen)


# -> (S,K), (E,K), (S,1), (T,2) or (N,K)
def scores_of(
    ops: Ops,
    config: BertConfig,
    head: Head,
    params: Params,
    batch: TaskBatch,
) -> Array:
    """Compute `logits` without dropout and without keeping anything for backward.

    Parameters
    ----------
    ops : Ops
        The engine.
    config : BertConfig
        The shape of the encoder.
    head : Head
        The head on top.
    params : dict
        Tree of parameters.
    batch : TaskBatch
        The tokens, and the ones that the head reads.

    Returns
    -------
    (S,K), (E,K), (S,1), (T,2) or (N,K)
        Depending on the kind of head.
    """
    rows, places = _last_layer_rows(ops, config, head, batch)
    (x,) = bert.hidden_states(ops, config, (config.L,), params, batch, rows)
    scores, _ = _output_layer(ops, config, head, x, places, params, batch, None)
    return scores


# -> (R,) rows of the batch, or None for all; (R,) indices into them, or None for all
def _last_layer_rows(
    ops: Ops,
    config: BertConfig,
    head: Head,
    batch: TaskBatch,
) -> tuple[Array | None, Array | None]:
    """Return what `core.heads.last_layer_rows` does, except that LSTMs need all rows."""
    if head.lstm:
        return None, heads.rows_read(config, head, batch)
    return heads.last_layer_rows(ops, config, head, batch)


# x (T,H) or (R,H)  places (R,) or None -> (S,K), (E,K), (S,1), (T,2) or (N,K)
def _output_layer(
    ops: Ops,
    config: BertConfig,
    head: Head,
    x: Array,
    places: Array | None,
    params: Params,
    batch: TaskBatch,
    drop: Dropout | None,
) -> tuple[Array, Saved]:
    """Apply LSTMs, pooler, pooling of windows and dropout, where the head has them, and the output layer."""
    saved_lstm = saved_pool = None
    if head.lstm:
        site = heads.dropout_site(config) + 1
        x, saved_lstm = ops.bilstm_block(ops.upcast(x), params["lstm"], batch.cu_seqlens, drop, site)
    read, saved_rows = heads.read(ops, head, x, places, params)
    rows = heads.rows_read(config, head, batch)
    if head.pool:
        query = params["head"].get("query")
        read, saved_pool = ops.pool_windows(read, batch.windows, head.pool, query)
        rows = rows[batch.windows[:, 0]]  # dropout is drawn for the first window
    scores, saved_drop, saved_linear = heads.output_scores(ops, config, read, rows, params["head"], drop)
    return scores, OutputSaved(saved_lstm, saved_rows, saved_pool, saved_drop, saved_linear)
