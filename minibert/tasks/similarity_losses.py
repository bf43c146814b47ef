"""Losses of pairs of texts that are read one at a time: cosines of mean vectors (Reimers & Gurevych 2019).

The vector of a text is the mean of its last hidden states, scaled to length one. The kinds of head differ in
what the cosines are compared with:

    cosine        the pair's own cosine c   (E,)    squared error of c and the pair's score
    contrastive   all cosines, times 20     (E,E)   softmax over the second texts of the batch, of which the
                                                    pair's own is right (Henderson et al. 2017, section 4.3)

The functions replace those of `core/heads.py`: such a head has no output layer and no weights, and no dropout
beyond the encoder's. Everything is holomorphic, and written for any array library: `batch` is flat tokens, or
the rows of an engine that pads.
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

SCALE = 20.0  # factor of cosines in the softmax, as in MultipleNegativesRankingLoss of sentence-transformers
NEVER = -1e9  # score of texts that are not wrong answers: its exponential is zero

MeanSaved = namedtuple("MeanSaved", "sequences shares")
UnitSaved = namedtuple("UnitSaved", "unit length")
PairLossSaved = namedtuple("PairLossSaved", "encoder mean unit loss dnll compared")


# x (T,H) -> (S,H)
def mean_pool(ops: Ops, x: Array, batch: TaskBatch) -> tuple[Array, Saved]:
    """Return the mean of each sequence's rows, without the padding that some engines have between them.

    Parameters
    ----------
    ops : Ops
        The operations of an engine.
    x : array
        Hidden states, (T,H).
    batch : TaskBatch
        The batch of these sequences.

    Returns
    -------
    means : array
        (S,H).
    saved : MeanSaved
        For `mean_pool_backward`: the sequence of each row, (T,), and its share, (T,1).
    """
    xp = ops.xp
    first = batch.first_rows
    last = batch.last_rows
    tokens = xp.arange(len(x))
    sequences = xp.searchsorted(first, tokens, side="right") - 1  # (T,) index of each row's sequence
    inside = tokens <= last[sequences]
    lengths = last - first + 1
    shares = ops.cast(inside / lengths[sequences], x.real.dtype)[:, None]
    means = xp.add.reduceat(x * shares, first, axis=0)
    return means, MeanSaved(sequences, shares)


# dmeans (S,H) -> dx (T,H)
def mean_pool_backward(dmeans: Array, saved: Saved) -> Array:
    """Return the gradient of `mean_pool`: each row gets its share.

    Parameters
    ----------
    dmeans : array
        Gradient of the means, (S,H).
    saved : MeanSaved
        What `mean_pool` saved.

    Returns
    -------
    array
        Gradient of the hidden states, (T,H).
    """
    return dmeans[saved.sequences] * saved.shares


# x (S,H) -> (S,H)
def unit(ops: Ops, x: Array) -> tuple[Array, Saved]:
    """Scale each row to length one.

    Parameters
    ----------
    ops : Ops
        The operations of an engine.
    x : array
        (S,H); no row is all zero.

    Returns
    -------
    y : array
        (S,H).
    saved : UnitSaved
        For `unit_backward`: the scaled rows, and their original lengths, (S,1).
    """
    length = ops.xp.sqrt((x * x).sum(-1, keepdims=True))
    y = x / length
    return y, UnitSaved(y, length)


# y = x / |x| and d|x| = y dx:  dx = (dy - y (y dy)) / |x|
# dy (S,H) -> dx (S,H)
def unit_backward(dy: Array, saved: Saved) -> Array:
    """Return the gradient of `unit`, which has no component along the row itself.

    Parameters
    ----------
    dy : array
        Gradient of the scaled rows, (S,H).
    saved : UnitSaved
        What `unit` saved.

    Returns
    -------
    array
        Gradient of the rows, (S,H).
    """
    y = saved.unit
    return (dy - y * (y * dy).sum(-1, keepdims=True)) / saved.length


# -> (S,H)
def scores_of(
    ops: Ops,
    config: BertConfig,
    head: Head,
    params: Params,
    batch: TaskBatch,
) -> Array:
    """Compute the vector of each sequence, of length one, without dropout; nothing is saved for backward.

    Parameters
    ----------
    ops : Ops
        The operations of an engine.
    config : BertConfig
        Sizes of the model.
    head : Head
        A head of one of the kinds in `SIMILARITY`.
    params : dict
        The tree of parameters.
    batch : TaskBatch
        Two sequences for each pair. Labels are not needed.

    Returns
    -------
    array
        (S,H).
    """
    (x,) = bert.hidden_states(ops, config, (config.L,), params, batch)
    means, _ = mean_pool(ops, x, batch)
    vectors, _ = unit(ops, means)
    return vectors


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
    """Compute the loss of one batch of pairs.

    The second text of another pair is not a wrong answer if the pairs have the same first text, or if it
    equals the right answer.

    Parameters
    ----------
    ops : Ops
        The operations of an engine.
    config : BertConfig
        Sizes of the model.
    head : Head
        Head of the kind "cosine" or "contrastive".
    params : dict
        The tree of parameters.
    batch : TaskBatch
        E pairs, two sequences each. Labels are scores, (E,), or the indices of both texts, (E,2).
    drop : Dropout, optional
        Dropout of the encoder; by default none.
    span_weight : float, default 0.5
        Ignored; `heads.loss` has it.

    Returns
    -------
    result : HeadLoss
        The weighted sum; the loss of each pair, (E,); and the cosines, (E,), or 20 times those of all first
        texts with all second texts, (E,E), with `NEVER` for pairs that are not compared.
    saved : PairLossSaved
        For `loss_backward`.
    """
    xp = ops.xp
    x, saved_encoder = bert.encoder(ops, config, params, batch, drop)
    means, saved_mean = mean_pool(ops, ops.upcast(x), batch)
    y, saved_unit = unit(ops, means)  # (S,H)
    first = y[::2]
    second = y[1::2]
    weights = ops.cast(batch.label_weights, y.real.dtype)
    compared = None
    if head.kind == "cosine":
        scores = (first * second).sum(-1)
        gold = ops.cast(batch.labels, y.real.dtype)
        nll, saved_loss = ops.squared_error(scores, gold)
    else:
        labels = batch.labels
        right = xp.arange(len(first), dtype=labels.dtype)  # (E,) index of each pair's second text
        alike = (labels[:, None] == labels).any(-1)  # (E,E) whether two pairs share a text
        wrong = ~alike & (batch.label_weights > 0)  # padding has no weight
        compared = wrong | (right[:, None] == right)
        cosines = xp.einsum("ih,jh->ij", first, second)
        scores = xp.where(compared, SCALE * cosines, NEVER)
        nll, saved_loss = ops.softmax_cross_entropy(scores, right)
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
    """Add the gradients of `loss` to `grads`.

    Parameters
    ----------
    ops : Ops
        The operations of an engine.
    config : BertConfig
        Sizes of the model.
    head : Head
        Head of the kind "cosine" or "contrastive".
    saved : PairLossSaved
        What `loss` saved.
    params : dict
        The tree of parameters.
    grads : dict
        The tree of their gradients, which may be overwritten.
    frozen : int, optional
        Number of lowest layers that, with the embeddings, get no gradient; by default all get one.

    Returns
    -------
    dict
        The tree of gradients, with those of the encoder added.
    """
    xp = ops.xp
    y = saved.unit.unit
    first = y[::2]
    second = y[1::2]
    if head.kind == "cosine":
        ds = ops.squared_error_backward(saved.dnll, saved.loss)[:, None]
        dfirst = ds * second
        dsecond = ds * first
    else:
        dscores = ops.softmax_cross_entropy_backward(saved.dnll, saved.loss)
        ds = SCALE * xp.where(saved.compared, dscores, 0)
        dfirst = xp.einsum("ij,jh->ih", ds, second)
        dsecond = xp.einsum("ij,ih->jh", ds, first)
    dy = xp.stack([dfirst, dsecond], axis=1).reshape(y.shape)
    dmeans = unit_backward(dy, saved.unit)
    dx = mean_pool_backward(dmeans, saved.mean)
    return bert.encoder_backward(ops, config, dx, saved.encoder, params, grads, frozen)
