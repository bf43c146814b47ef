"""The output layers of fine-tuning, forward and backward (Devlin et al. 2019, section 4 and appendix B).

One linear layer on the encoder is all a task adds. What it reads, and what its outputs are compared with:

    classify   pooled [CLS], dropout   (S,K)   softmax over K classes
    regress    pooled [CLS], dropout   (S,1)   squared error
    choice     pooled [CLS], dropout   (S,1)   softmax over the c sequences of an example
    span       every token             (T,2)   two softmaxes over the tokens of a sequence: start and end
    tag        first pieces, dropout   (N,K)   softmax over K tags

Under causal attention, that of the paper's left-to-right ablation, [CLS] has seen nothing but itself: there
the last token is pooled instead, as in GPT (Radford et al. 2018). With `head.lstm` two bidirectional LSTMs
stand between the encoder and these layers: the row "+ BiLSTM" of the paper's Table 5.

Pure functions, as in `bert.py`: `ops` does the arithmetic, `head` says which of these it is.
"""

from typing import Any, NamedTuple

import numpy as np

from minibert import bert
from minibert.batch import TaskBatch
from minibert.config import BertConfig
from minibert.params import Head

Tree = dict[str, Any]


class HeadLoss(NamedTuple):
    """The loss of one batch and what it is made of."""

    loss: Any  # sum of label_weights x nll
    nll: Any  # (len(labels),) nats, or squared error; for a span the mean (or sum) of start and end
    logits: Any  # (S,K), (S,1), (T,2) or (N,K)


def head_site(config: BertConfig) -> int:
    """The dropout site in front of the output layer, the one after those of the encoder."""
    return 3 * config.L + 1


# -> (S,K), (S,1), (T,2) or (N,K)
def logits(
    ops: Any, config: BertConfig, head: Head, params: Tree, batch: TaskBatch, drop: Any = None
) -> tuple[Any, Any]:
    """Scores of the output layer, before any softmax."""
    rows = _rows_read(config, head, batch)
    x, saved_encoder = bert.encoder(ops, config, params, batch, drop, _encoder_rows(config, head, rows))
    scores, saved = _output_layer(ops, config, head, x, rows, params, batch, drop)
    return scores, (saved_encoder, *saved)


# dlogits (S,K), (S,1), (T,2) or (N,K) -> grads
def logits_backward(
    ops: Any,
    config: BertConfig,
    head: Head,
    dlogits: Any,
    saved: Any,
    params: Tree,
    grads: Tree,
    frozen: int | None = None,
) -> Tree:
    """Gradients of `logits`, added to `grads`, which is consumed and returned."""
    saved_encoder, saved_lstm, saved_rows, saved_drop, saved_linear = saved
    dx, dweight, dbias = ops.linear_backward(dlogits, saved_linear)
    own = {
        "weight": ops.accumulate(grads["head"]["weight"], dweight),
        "bias": ops.accumulate(grads["head"]["bias"], dbias),
    }
    grads = grads | {"head": own}
    if saved_drop:
        dx = dx * saved_drop[0]
    if head.pooled:
        dx, pooler = ops.pooler_backward(dx, saved_rows, params["pooler"], grads["pooler"])
        grads = grads | {"pooler": pooler}
    elif head.kind == "tag":
        dx = ops.take_rows_backward(dx, saved_rows)
    if head.lstm:
        dx, lstm = ops.bilstm_block_backward(dx, saved_lstm, params["lstm"], grads["lstm"])
        grads = grads | {"lstm": lstm}
    return bert.encoder_backward(ops, config, dx, saved_encoder, params, grads, frozen)


# -> loss, nll (len(labels),), logits (S,K), (S,1), (T,2) or (N,K), and what is saved
def loss(
    ops: Any,
    config: BertConfig,
    head: Head,
    params: Tree,
    batch: TaskBatch,
    drop: Any = None,
    span_weight: float = 0.5,
) -> tuple[HeadLoss, Any]:
    """The task's loss of one batch.

    Parameters
    ----------
    ops, config, head, params : the engine, the model and its weights.
    batch : with labels.
    drop : source of dropout, or None.
    span_weight : factor of each of the two losses of a span: 0.5 gives their mean, as in Google's code, 1
        their sum, as in the paper.
    """
    scores, saved = logits(ops, config, head, params, batch, drop)
    weights = ops.cast(batch.label_weights, scores.real.dtype)
    if head.kind == "span":
        starts, ends = batch.labels.T
        start_nll, saved_start = ops.segment_softmax_cross_entropy(scores[:, 0], batch.cu_seqlens, starts)
        end_nll, saved_end = ops.segment_softmax_cross_entropy(scores[:, 1], batch.cu_seqlens, ends)
        nll, saved_loss = span_weight * (start_nll + end_nll), (saved_start, saved_end)
        return HeadLoss((weights * nll).sum(), nll, scores), (saved, saved_loss, span_weight * weights)
    if head.kind == "regress":
        nll, saved_loss = ops.mean_squared_error(scores[:, 0], ops.cast(batch.labels, scores.real.dtype))
    elif head.kind == "choice":
        nll, saved_loss = ops.softmax_cross_entropy(scores.reshape(-1, batch.choices), batch.labels)
    else:
        nll, saved_loss = ops.softmax_cross_entropy(scores, batch.labels)
    return HeadLoss((weights * nll).sum(), nll, scores), (saved, saved_loss, weights)


# -> grads, the tree of all parameters
def loss_backward(
    ops: Any,
    config: BertConfig,
    head: Head,
    saved: Any,
    params: Tree,
    grads: Tree,
    frozen: int | None = None,
) -> Tree:
    """Gradients of `loss`, added to `grads`, which is consumed and returned.

    With `frozen` = n, the embeddings and the first n layers get no gradient.
    """
    saved, saved_loss, weights = saved
    if head.kind == "span":
        both = [ops.segment_softmax_cross_entropy_backward(weights, one) for one in saved_loss]
        dlogits = ops.xp.stack(both, axis=1)
    elif head.kind == "regress":
        dlogits = ops.mean_squared_error_backward(weights, saved_loss)[:, None]
    elif head.kind == "choice":
        dlogits = ops.softmax_cross_entropy_backward(weights, saved_loss).reshape(-1, 1)
    else:
        dlogits = ops.softmax_cross_entropy_backward(weights, saved_loss)
    return logits_backward(ops, config, head, dlogits, saved, params, grads, frozen)


# -> one array for each example: (K,), (1,), (n,2), (rows,K) or (c,)
def outputs(ops: Any, config: BertConfig, head: Head, params: Tree, batch: TaskBatch) -> list[np.ndarray]:
    """The scores of every example of a batch by itself; no dropout, nothing kept for backward."""
    scores = ops.call(scores_of, (config, head), params, ops.prepare(batch))
    per = {"span": "tokens", "tag": "labels"}.get(head.kind, "sequences")
    return split_outputs(ops.restored(scores, batch, per), head, batch)


# -> (S,K), (S,1), (T,2) or (N,K)
def scores_of(ops: Any, config: BertConfig, head: Head, params: Tree, batch: TaskBatch) -> Any:
    """`logits` without dropout, and with nothing kept for backward."""
    rows = _rows_read(config, head, batch)
    wanted = _encoder_rows(config, head, rows)
    (x,) = bert.hidden_states(ops, config, (config.L,), params, batch, wanted)
    return _output_layer(ops, config, head, x, rows, params, batch, None)[0]


def split_outputs(scores: np.ndarray, head: Head, batch: TaskBatch) -> list[np.ndarray]:
    """The scores of a batch example by example, each an array of its own."""
    if head.kind == "choice":
        return [row.copy() for row in scores.reshape(-1, batch.choices)]
    if head.kind == "span":
        borders = batch.cu_seqlens[1:-1]
    elif head.kind == "tag":
        borders = np.cumsum(batch.row_counts)[:-1]
    else:
        return [row.copy() for row in scores]
    return [part.copy() for part in np.split(scores, borders)]


# -> (S,) or (N,), or None
def _rows_read(config: BertConfig, head: Head, batch: TaskBatch) -> Any:
    """The tokens that the output layer reads; None: all."""
    if head.pooled:
        return batch.last_rows if config.is_decoder else batch.first_rows
    return batch.label_rows if head.kind == "tag" else None


# rows (S,) or (N,) -> the same or None
def _encoder_rows(config: BertConfig, head: Head, rows: Any) -> Any:
    """The rows that the encoder computes to the end; None: all, as LSTMs and left-to-right models need."""
    return None if head.lstm or config.is_decoder else rows


# x (T,H) or (R,H) -> (S,K), (S,1), (T,2) or (N,K)
def _output_layer(
    ops: Any, config: BertConfig, head: Head, x: Any, rows: Any, params: Tree, batch: TaskBatch, drop: Any
) -> tuple[Any, Any]:
    """LSTMs, pooler, dropout and the output layer, as far as the head has them, on these rows."""
    saved_lstm, saved_rows, saved_drop, places = (), (), (), rows  # places: where these rows are in x
    if _encoder_rows(config, head, rows) is not None:
        places = ops.xp.arange(len(rows), dtype=rows.dtype)
    if head.lstm:
        site = head_site(config) + 1
        x, saved_lstm = ops.bilstm_block(ops.widen(x), params["lstm"], batch.cu_seqlens, drop, site)
    if head.pooled:
        read, saved_rows = ops.pooler(x, places, params["pooler"])
    elif head.kind == "tag":
        read, saved_rows = ops.take_rows(x, places)
        read = ops.widen(read)
    else:
        read = ops.widen(x)
    if rows is not None and drop is not None and drop.rate:
        mask = ops.dropout_mask(drop.at(rows), head_site(config), read.shape[-1], read.dtype)
        read, saved_drop = read * mask, (mask,)
    scores, saved_linear = ops.linear(read, params["head"]["weight"], params["head"]["bias"])
    return scores, (saved_lstm, saved_rows, saved_drop, saved_linear)
