"""The output layers of fine-tuning, forward and backward (Devlin et al. 2019, section 4 and appendix B).

A task adds just one linear layer to the encoder. What it reads, its outputs, and its loss:

    classify   pooled [CLS], dropout   (S,K)   softmax over K classes
    multilabel pooled [CLS], dropout   (S,K)   K sigmoids: whether each class applies
    regress    pooled [CLS], dropout   (S,1)   squared error
    choice     pooled [CLS], dropout   (S,1)   softmax over the c sequences of an example
    span       every token             (T,2)   two softmaxes over the tokens of a sequence: start and end
    tag        first pieces, dropout   (N,K)   softmax over K tags

Under causal attention, as in the paper's left-to-right ablation, [CLS] attends to nothing but itself, so the
last token is pooled instead, as in GPT (Radford et al. 2018). `model/heads.py` puts LSTMs between encoder and
head, or pools the windows of a long text.

All functions are pure, as in `bert.py`: `ops` does the arithmetic, `head` is one of the kinds above.
"""

from collections import namedtuple
from typing import NamedTuple

import numpy as np

from minibert.core import bert
from minibert.core.arrays import Array, Grads, Params, Saved
from minibert.core.batch import TaskBatch
from minibert.core.config import BertConfig
from minibert.core.head_kinds import CHOICES, LABELS, SEQUENCES, SIGMOIDS, SOFTMAX, SPANS, SQUARES, TOKENS
from minibert.core.ops import Dropout, Ops
from minibert.core.ops.blocks import DropoutSaved
from minibert.core.params import AnyHead

# What forward saves for backward; None for a part that a head does not have.
LossSaved = namedtuple("LossSaved", "logits loss dnll")
LogitsSaved = namedtuple("LogitsSaved", "encoder output")
OutputSaved = namedtuple("OutputSaved", "rows dropout linear")
SpanSaved = namedtuple("SpanSaved", "start end")


class HeadLoss(NamedTuple):
    """The loss of one batch, that of each label, and the scores."""

    loss: Array  # sum of label_weights x nll
    nll: Array  # (len(labels),) nats, or squared error; for a span, the mean (or sum) for start and end
    logits: Array  # (S,K), (S,1), (T,2) or (N,K)


# -> (S,K), (S,1), (T,2) or (N,K)
def logits(
    ops: Ops,
    config: BertConfig,
    head: AnyHead,
    params: Params,
    batch: TaskBatch,
    drop: Dropout | None = None,
) -> tuple[Array, Saved]:
    """Compute the scores of the output layer, before any softmax (Devlin et al. 2019, section 4).

    Parameters
    ----------
    ops, config, head : the engine, the shape of the encoder, and the head on top.
    params : tree of parameters.
    batch : the tokens, and the ones that the head reads.
    drop : source of dropout, or None.

    Returns
    -------
    scores : (S,K), (S,1), (T,2) or (N,K), depending on the kind of head.
    saved : what encoder and output layer kept.
    """
    rows, places = last_layer_rows(ops, config, head, batch)
    x, saved_encoder = bert.encoder(ops, config, params, batch, drop, rows)
    scores, saved = _output_layer(ops, config, head, x, places, params, batch, drop)
    return scores, LogitsSaved(saved_encoder, saved)


# dlogits (S,K), (S,1), (T,2) or (N,K) -> grads
def logits_backward(
    ops: Ops,
    config: BertConfig,
    head: AnyHead,
    dlogits: Array,
    saved: Saved,
    params: Params,
    grads: Grads,
    frozen: int | None = None,
) -> Grads:
    """Add the gradients of `logits` to `grads`, which is consumed and returned.

    Parameters
    ----------
    ops, config, head : as for `logits`.
    dlogits : gradient of the scores, in their shape.
    saved : what `logits` kept.
    params, grads : trees of parameters and accumulators.
    frozen : how many of the lowest layers get no gradient, nor do the embeddings. None: nothing is frozen.

    Returns
    -------
    grads : the tree with the gradients added.
    """
    output = saved.output
    dx, dweight, dbias = ops.linear_backward(dlogits, output.linear)
    head_grads = ops.add_gradients(grads["head"], weight=dweight, bias=dbias)
    if output.dropout is not None:
        dx = dx * output.dropout.mask
    dx, grads = read_backward(ops, head, dx, output.rows, params, grads | {"head": head_grads})
    return bert.encoder_backward(ops, config, dx, saved.encoder, params, grads, frozen)


# -> loss, nll (len(labels),), logits (S,K), (S,1), (T,2) or (N,K), and what is saved
def loss(
    ops: Ops,
    config: BertConfig,
    head: AnyHead,
    params: Params,
    batch: TaskBatch,
    drop: Dropout | None = None,
    span_weight: float = 0.5,
) -> tuple[HeadLoss, Saved]:
    """Compute the loss of a task on one batch (Devlin et al. 2019, section 4).

    Parameters
    ----------
    ops, config, head : the engine, the shape of the encoder, and the head on top.
    params : tree of parameters.
    batch : tokens and labels, with the weights of the global batch.
    drop : source of dropout, or None.
    span_weight : factor of each of the two losses of a span: 0.5 gives their mean, as in Google's code, 1
        their sum, as in the paper.

    Returns
    -------
    result : the loss, that of each label, and the scores.
    saved : what `logits` and the loss kept.
    """
    scores, saved = logits(ops, config, head, params, batch, drop)
    result, saved_loss, dnll = loss_of_logits(ops, head, scores, batch, span_weight)
    return result, LossSaved(saved, saved_loss, dnll)


# -> grads, the tree of all parameters
def loss_backward(
    ops: Ops,
    config: BertConfig,
    head: AnyHead,
    saved: Saved,
    params: Params,
    grads: Grads,
    frozen: int | None = None,
) -> Grads:
    """Add the gradients of `loss` to `grads`, which is consumed and returned.

    Parameters
    ----------
    ops, config, head : as for `loss`.
    saved : what `loss` kept.
    params, grads : trees of parameters and accumulators.
    frozen : how many of the lowest layers get no gradient, nor do the embeddings. None: nothing is frozen.

    Returns
    -------
    grads : the tree with the gradients added.
    """
    dlogits = loss_of_logits_backward(ops, head, saved.dnll, saved.loss)
    return logits_backward(ops, config, head, dlogits, saved.logits, params, grads, frozen)


# logits (S,K), (S,1), (T,2) or (N,K) -> loss, what is saved of it, dnll (len(labels),)
def loss_of_logits(
    ops: Ops,
    head: AnyHead,
    scores: Array,
    batch: TaskBatch,
    span_weight: float,
) -> tuple[HeadLoss, Saved, Array]:
    """Compare the scores of the output layer with the labels.

    Parameters
    ----------
    ops, head : the engine, and the kind of head.
    scores : (S,K), (S,1), (T,2) or (N,K), as `logits` returns them.
    batch : the batch, for its labels and their weights.
    span_weight : as for `loss`.

    Returns
    -------
    result : the loss, that of each label, and the scores.
    saved : what the loss kept.
    dnll : (len(labels),) gradient of the loss with respect to the loss of each label; for a span, with
        respect to those of its start and of its end.

    Raises
    ------
    NotImplementedError : when the loss of the head is not one of these.
    """
    weights = dnll = ops.cast(batch.label_weights, scores.real.dtype)
    loss = head.spec.loss
    if loss == SPANS:
        starts, ends = batch.labels.T
        start_nll, saved_start = ops.segment_softmax_cross_entropy(scores[:, 0], batch.cu_seqlens, starts)
        end_nll, saved_end = ops.segment_softmax_cross_entropy(scores[:, 1], batch.cu_seqlens, ends)
        nll, saved_loss = span_weight * (start_nll + end_nll), SpanSaved(saved_start, saved_end)
        dnll = span_weight * weights  # for start and for end
    elif loss == SQUARES:
        nll, saved_loss = ops.squared_error(scores[:, 0], ops.cast(batch.labels, scores.real.dtype))
    elif loss == SIGMOIDS:
        nll, saved_loss = ops.sigmoid_cross_entropy(scores, ops.cast(batch.labels, scores.real.dtype))
    elif loss == CHOICES:
        nll, saved_loss = ops.softmax_cross_entropy(scores.reshape(-1, batch.choices), batch.labels)
    elif loss == SOFTMAX:
        nll, saved_loss = ops.softmax_cross_entropy(scores, batch.labels)
    else:
        raise NotImplementedError(f"The loss {loss!r} of the head kind {head.kind!r} has no formula here.")
    return HeadLoss((weights * nll).sum(), nll, scores), saved_loss, dnll


# dnll (len(labels),) -> dlogits (S,K), (S,1), (T,2) or (N,K)
def loss_of_logits_backward(
    ops: Ops,
    head: AnyHead,
    dnll: Array,
    saved: Saved,
) -> Array:
    """Return the gradient of `loss_of_logits` with respect to the scores.

    Parameters
    ----------
    ops, head : the engine, and the kind of head.
    dnll : (len(labels),) as `loss_of_logits` returns it.
    saved : what the loss kept.

    Returns
    -------
    dlogits : gradient of the scores, in their shape.
    """
    loss = head.spec.loss
    if loss == SPANS:
        dscores = [ops.segment_softmax_cross_entropy_backward(dnll, end) for end in saved]
        return ops.xp.stack(dscores, axis=1)
    if loss == SQUARES:
        return ops.squared_error_backward(dnll, saved)[:, None]
    if loss == SIGMOIDS:
        return ops.sigmoid_cross_entropy_backward(dnll, saved)
    dlogits = ops.softmax_cross_entropy_backward(dnll, saved)
    return dlogits.reshape(-1, 1) if loss == CHOICES else dlogits


# -> (S,K), (S,1), (T,2) or (N,K)
def scores_of(
    ops: Ops,
    config: BertConfig,
    head: AnyHead,
    params: Params,
    batch: TaskBatch,
) -> Array:
    """Compute `logits` without dropout and without keeping anything for backward.

    Parameters
    ----------
    ops, config, head : the engine, the shape of the encoder, and the head on top.
    params : tree of parameters.
    batch : the tokens, and the ones that the head reads.

    Returns
    -------
    (S,K), (S,1), (T,2) or (N,K), depending on the kind of head.
    """
    rows, places = last_layer_rows(ops, config, head, batch)
    (x,) = bert.hidden_states(ops, config, (config.L,), params, batch, rows)
    scores, _ = _output_layer(ops, config, head, x, places, params, batch, None)
    return scores


def split_outputs(scores: np.ndarray, head: AnyHead, batch: TaskBatch) -> list[np.ndarray]:
    """Split the scores of a batch by example, into separate arrays.

    Parameters
    ----------
    scores : scores of a whole batch, as `scores_of` returns them.
    head, batch : the head and the batch that they come from.

    Returns
    -------
    list of E arrays: (K,) or (choices,) for a sequence-level head; otherwise (n,2) or (n,K), for the n rows
        of the example that were read.
    """
    reads = head.spec.reads
    if reads == SEQUENCES:
        return [row.copy() for row in scores.reshape(batch.E, -1)]
    ends = batch.cu_seqlens[1:] if reads == TOKENS else np.cumsum(batch.row_counts)
    borders = ends[:-1]
    return [part.copy() for part in np.split(scores, borders)]


# -> (S,) or (N,), or None
def rows_read(config: BertConfig, head: AnyHead, batch: TaskBatch) -> Array:
    """Return the rows of the tokens that the output layer reads, or None for all of them.

    Parameters
    ----------
    config, head : the shape of the encoder, and the head on top.
    batch : the tokens.

    Returns
    -------
    (S,) or (N,) indices of rows, or None.
    """
    if head.pooled:
        return batch.last_rows if config.is_decoder else batch.first_rows
    return batch.label_rows if head.spec.reads == LABELS else None


# -> (R,) rows of the batch, or None for all; (R,) indices into them, or None for all
def last_layer_rows(
    ops: Ops,
    config: BertConfig,
    head: AnyHead,
    batch: TaskBatch,
) -> tuple[Array | None, Array | None]:
    """Return the rows that the last layer computes, and where those that the head reads are among them.

    Only what is read is computed, except under causal attention.

    Parameters
    ----------
    ops, config, head : the engine, the shape of the encoder, and the head on top.
    batch : the tokens.

    Returns
    -------
    rows : (R,) indices of tokens. None: the last layer computes all.
    places : (R,) indices into what it computes. None: the head reads all.
    """
    rows = rows_read(config, head, batch)
    if rows is None or config.is_decoder:
        return None, rows
    return rows, ops.xp.arange(len(rows), dtype=rows.dtype)


# x (T,H) or (R,H)  places (R,) or None -> (S,K), (S,1), (T,2) or (N,K)
def _output_layer(
    ops: Ops,
    config: BertConfig,
    head: AnyHead,
    x: Array,
    places: Array | None,
    params: Params,
    batch: TaskBatch,
    drop: Dropout | None,
) -> tuple[Array, Saved]:
    """Apply the pooler and dropout, where the head has them, and the output layer."""
    states, saved_rows = read(ops, head, x, places, params)
    rows = rows_read(config, head, batch)
    scores, saved_drop, saved_linear = output_scores(ops, config, states, rows, params["head"], drop)
    return scores, OutputSaved(saved_rows, saved_drop, saved_linear)


# x (T,H) or (R,H)  places (R,) or None -> (R,H)
def read(
    ops: Ops,
    head: AnyHead,
    x: Array,
    places: Array | None,
    params: Params,
) -> tuple[Array, Saved]:
    """Return what the output layer reads: the pooled [CLS], the rows with labels, or every row.

    Parameters
    ----------
    ops, head : the engine, and the kind of head.
    x : (T,H) hidden states, or (R,H) only those that the last layer has computed.
    places : (R,) the rows of x to read, as `last_layer_rows` returns them. None: all.
    params : tree of parameters.

    Returns
    -------
    read : (R,H).
    saved : what `read_backward` needs; None where every row is read.
    """
    if places is None:
        return ops.upcast(x), None
    if head.pooled:
        return ops.pooler(x, places, params["pooler"])
    taken, saved = ops.take_rows(x, places)
    return ops.upcast(taken), saved


# dread (R,H) -> dx (T,H) or (R,H), grads
def read_backward(
    ops: Ops,
    head: AnyHead,
    dread: Array,
    saved: Saved,
    params: Params,
    grads: Grads,
) -> tuple[Array, Grads]:
    """Return the gradient of the hidden states, and add the gradients of the pooler.

    Parameters
    ----------
    ops, head : the engine, and the kind of head.
    dread : (R,H) gradient of what was read.
    saved : what `read` kept.
    params, grads : trees of parameters and accumulators.

    Returns
    -------
    dx : gradient of the hidden states, in their shape.
    grads : the tree with the gradients added.
    """
    if saved is None:
        return dread, grads
    if head.pooled:
        dx, pooler = ops.pooler_backward(dread, saved, params["pooler"], grads["pooler"])
        return dx, grads | {"pooler": pooler}
    return ops.take_rows_backward(dread, saved), grads


# read (R,H)  rows (R,) or None -> (R,K)
def output_scores(
    ops: Ops,
    config: BertConfig,
    read: Array,
    rows: Array | None,
    params: Params,
    drop: Dropout | None,
) -> tuple[Array, Saved, Saved]:
    """Apply the linear layer of the head, after dropout unless the head reads every row.

    Parameters
    ----------
    ops, config : the engine, and the shape of the encoder.
    read : (R,H) what the head reads.
    rows : (R,) the tokens that were read, which fix the draws of dropout. None: all, without dropout.
    params : "weight" (H,K) and "bias" (K,).
    drop : source of dropout, or None.

    Returns
    -------
    scores : (R,K).
    saved_drop, saved_linear : what backward needs; `saved_drop` is None without dropout.
    """
    site = dropout_site(config)
    saved_drop = None
    if rows is not None and drop is not None and drop.rate:
        mask = ops.dropout_mask(drop.at(rows), site, read.shape[-1], read.dtype)
        read, saved_drop = read * mask, DropoutSaved(mask)
    scores, saved_linear = ops.linear(read, params["weight"], params["bias"])
    return scores, saved_drop, saved_linear


def dropout_site(config: BertConfig) -> int:
    """Return the dropout site before the output layer, which follows those of the encoder.

    Parameters
    ----------
    config : the shape of the encoder.
    """
    return 3 * config.L + 1
