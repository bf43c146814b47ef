"""Losses of pairs of texts that are read one by one: cosines of mean vectors (Reimers & Gurevych 2019).

A text's vector is the mean of its last hidden states, at length one. What cosines are compared with:

    cosine        the pair's own cosine c   (E,)    squared error of c and the pair's score
    contrastive   all cosines, times 20     (E,E)   softmax over the second texts of the batch, of which the
                                                    pair's own is right (Henderson et al. 2017, section 4.3)

The functions are those of `core/heads.py`, which this takes the place of: such a head has no output layer
and no weights, and no dropout beyond the encoder's. Everything is holomorphic, and written for any array
library: `batch` is flat tokens, or the rows of an engine that pads.
"""

from collections import namedtuple

from minibert.core import bert
from minibert.core.arrays import Array, Grads, Params, Saved
from minibert.core.config import BertConfig
from minibert.core.heads import HeadLoss
from minibert.core.ops import Dropout
from minibert.model.batch import TaskBatch
from minibert.model.ops import Ops
from minibert.model.params import Head

KINDS = ("cosine", "contrastive")  # of heads
SCALE = 20.0  # of cosines in the softmax, as MultipleNegativesRankingLoss of sentence-transformers has it
NEVER = -1e9  # in place of the score of a text that is no wrong answer: its exponential is zero

MeanSaved = namedtuple("MeanSaved", "sequences shares")
UnitSaved = namedtuple("UnitSaved", "unit length")
PairLossSaved = namedtuple("PairLossSaved", "encoder mean unit loss dnll compared")


# x (T,H) -> (S,H)
def mean_pool(ops: Ops, x: Array, batch: TaskBatch) -> tuple[Array, Saved]:
    """Return the mean of each sequence's rows; pads, which some engines have between sequences, have none."""
    xp, first, last = ops.xp, batch.first_rows, batch.last_rows
    tokens = xp.arange(len(x))
    sequences = xp.searchsorted(first, tokens, side="right") - 1  # of each row
    inside = tokens <= last[sequences]
    shares = ops.cast(inside / (last - first + 1)[sequences], x.real.dtype)[:, None]
    return xp.add.reduceat(x * shares, first, axis=0), MeanSaved(sequences, shares)


# dmeans (S,H) -> dx (T,H)
def mean_pool_backward(dmeans: Array, saved: Saved) -> Array:
    """Return the gradient of `mean_pool`: each row gets its share."""
    return dmeans[saved.sequences] * saved.shares


# x (S,H) -> (S,H)
def unit(ops: Ops, x: Array) -> tuple[Array, Saved]:
    """Return each row at length one."""
    length = ops.xp.sqrt((x * x).sum(-1, keepdims=True))
    y = x / length
    return y, UnitSaved(y, length)


# y = x / |x| and d|x| = y dx:  dx = (dy - y (y dy)) / |x|
# dy (S,H) -> dx (S,H)
def unit_backward(dy: Array, saved: Saved) -> Array:
    """Return the gradient of `unit`, which has no part along the row itself."""
    y = saved.unit
    return (dy - y * (y * dy).sum(-1, keepdims=True)) / saved.length


# -> (S,H)
def scores_of(ops: Ops, config: BertConfig, head: Head, params: Params, batch: TaskBatch) -> Array:
    """Compute the vector of each sequence, at length one; no dropout, nothing kept for backward."""
    (x,) = bert.hidden_states(ops, config, (config.L,), params, batch)
    return unit(ops, mean_pool(ops, x, batch)[0])[0]


# -> loss, nll (E,), cosines (E,) or 20 x (E,E), and what is saved
def loss(
    ops: Ops,
    config: BertConfig,
    head: Head,
    params: Params,
    batch: TaskBatch,
    drop: Dropout | None = None,
    span_weight: float = 0.5,
) -> tuple[HeadLoss, Saved]:
    """Compute the loss of one batch of pairs; arguments are those of `heads.loss`.

    Second texts of other pairs with the same first text, or that are the same text, are no wrong answers.
    """
    xp, compared = ops.xp, None
    x, saved_encoder = bert.encoder(ops, config, params, batch, drop)
    means, saved_mean = mean_pool(ops, ops.upcast(x), batch)
    y, saved_unit = unit(ops, means)  # (S,H)
    first, second = y[::2], y[1::2]
    weights = ops.cast(batch.label_weights, y.real.dtype)
    if head.kind == "cosine":
        scores = (first * second).sum(-1)
        nll, saved_loss = ops.squared_error(scores, ops.cast(batch.labels, y.real.dtype))
    else:
        labels, own = batch.labels, xp.arange(len(first), dtype=batch.labels.dtype)
        alike = (labels[:, None] == labels).any(-1)  # (E,E)
        compared = (~alike & (batch.label_weights > 0)) | (own[:, None] == own)  # no pads
        scores = xp.where(compared, SCALE * xp.einsum("ih,jh->ij", first, second), NEVER)
        nll, saved_loss = ops.softmax_cross_entropy(scores, own)
    saved = PairLossSaved(saved_encoder, saved_mean, saved_unit, saved_loss, weights, compared)
    return HeadLoss((weights * nll).sum(), nll, scores), saved


# With s_ij = u_i v_j:  du_i = sum_j ds_ij v_j,  dv_j = sum_i ds_ij u_i
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
    """Add the gradients of `loss` to `grads`, which is consumed and returned; see `heads.loss_backward`."""
    xp, y = ops.xp, saved.unit.unit
    first, second = y[::2], y[1::2]
    if head.kind == "cosine":
        ds = ops.squared_error_backward(saved.dnll, saved.loss)[:, None]
        dfirst, dsecond = ds * second, ds * first
    else:
        ds = SCALE * xp.where(saved.compared, ops.softmax_cross_entropy_backward(saved.dnll, saved.loss), 0)
        dfirst, dsecond = xp.einsum("ij,jh->ih", ds, second), xp.einsum("ij,ih->jh", ds, first)
    dy = xp.stack([dfirst, dsecond], axis=1).reshape(y.shape)
    dx = mean_pool_backward(unit_backward(dy, saved.unit), saved.mean)
    return bert.encoder_backward(ops, config, dx, saved.encoder, params, grads, frozen)
