"""Evaluate a masked language model on text that it has not seen, the same way everywhere.

The held-out loss is the mean negative log-likelihood, in nats, of the tokens that were replaced by [MASK],
and of those only: a model that merely copies its input can be right about a target that is left visible. It
is reported with metrics of models that make no use of context: the entropy of the same targets (the best that
any constant guess can do), the entropy of the whole text's pieces (the best that a guess can do in the long
run; that of a few thousand targets is lower, since rare pieces are missing among them), and the model's own
loss with the context tokens of each sequence shuffled.

The standard error of the loss says how its mean would vary over other documents of the same kind. Targets of
one document are more alike than targets of two, and a small text is read several times with new masks, so
documents are counted and not targets (Liang and Zeger 1986).
"""

from collections import abc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np

from minibert.base.errors import InputError
from minibert.core.arrays import Array, Params
from minibert.core.batch import Batch, Sequence
from minibert.core.bert import pretraining_loss
from minibert.core.config import BertConfig
from minibert.data.instances import Instances
from minibert.data.nsp_spans import Spans
from minibert.engines.runtime import runtime_of
from minibert.training.runlog import Progress

SHUFFLING_SEED = 20181011
# [MASK] positions that are scored for a held-out loss. With hundreds of documents its standard error is then
# about 0.02 nats; with few it is larger, however many positions there are (`HeldOut.standard_error`).
TARGETS = 20_000
PASSES = 20  # a small held-out text is read at most that often, with new masks each time, to reach them
BATCH_TOKENS = 4096
MOST_NATS = 700.0  # exp of more would overflow to infinity, which JSON does not have
_EMPTY, _NOWHERE = np.zeros((3, 0)), np.zeros(0, np.int64)


@dataclass(frozen=True)
class HeldOut:
    """Metrics of one evaluation; losses in nats."""

    loss: float  # masked-LM loss on [MASK] positions
    unigram: float  # entropy of the same targets, the floor of a model without context
    accuracy: float  # share of those positions whose token is the most likely one
    targets: int  # number of those positions
    next_loss: float | None  # next-sentence prediction; None when no sequence has a pair
    next_accuracy: float | None
    # The accuracy of always giving the more frequent answer. In short sequences most first spans are a whole
    # chunk, and what follows such a chunk is random by the rules of Google's code.
    next_majority: float | None
    sequences: int  # number of sequences read
    tokens: int
    text_unigram: float | None = None  # entropy of the whole text's pieces, if they are known
    standard_error: float | None = None  # of the loss, over documents; None if only one was read
    documents: int | None = None  # number of documents with targets, if known
    shuffled_loss: float | None = None  # with the contexts of the targets shuffled, if that was measured

    @property
    def perplexity(self) -> float:
        """Return exp(loss), with the loss capped at `MOST_NATS`."""
        return float(np.exp(min(self.loss, MOST_NATS)))

    def to_dict(self) -> dict[str, Any]:
        """Return all metrics for JSON; `nats_under_unigram` says how much the model gains from context."""
        metrics = asdict(self)
        metrics["perplexity"] = self.perplexity
        metrics["nats_under_unigram"] = self.unigram - self.loss
        return metrics


@dataclass(frozen=True)
class HeldOutBatch(Batch):
    """A batch that knows the document of each target."""

    documents: np.ndarray  # (M,) int64, indices of documents in the shards

    def take(self, first: int, last: int) -> Self:
        """Return sequences `first` to `last` (exclusive), with the documents of their targets.

        Parameters
        ----------
        first, last : int
            Indices of sequences in this batch.
        """
        begin = self.cu_seqlens[first]
        end = self.cu_seqlens[last]
        rows = self.masked_rows
        is_taken = (begin <= rows) & (rows < end)
        taken = super().take(first, last)
        return replace(taken, documents=self.documents[is_taken])


def evaluation_batches(
    instances: Instances, mask_id: int | None, targets: int = TARGETS
) -> Iterator[HeldOutBatch]:
    """Yield batches until there are `targets` scored positions, or the text was read `PASSES` times.

    Parameters
    ----------
    instances : Instances
        Instances of held-out text.
    mask_id : int or None
        The id that scored positions show; None to score all targets.
    targets : int, default 20,000
        Number of scored positions to reach.

    Yields
    ------
    HeldOutBatch
        Batches of some 4,096 tokens.
    """
    waiting: list[Sequence] = []
    documents: list[np.ndarray] = []
    n_scored = size = 0
    ends = instances.shards.token_ends
    for sequence, position, spans in instances.located():
        if position.epoch >= PASSES or n_scored >= targets:
            break
        waiting.append(sequence)
        places = _places(sequence, spans, instances.options.left_to_right)
        documents.append(np.searchsorted(ends, places, side="right"))
        size += len(sequence.input_ids)
        visible = sequence.input_ids[sequence.masked_positions]
        n_scored += int(scored_positions(visible, mask_id).sum())
        if size >= BATCH_TOKENS:
            yield _packed(waiting, documents)
            waiting, documents, size = [], [], 0
    if waiting:
        yield _packed(waiting, documents)


def _packed(sequences: list[Sequence], documents: list[np.ndarray]) -> HeldOutBatch:
    return HeldOutBatch(**vars(Batch.pack(sequences)), documents=np.concatenate(documents))


# -> (m,) int64
def _places(sequence: Sequence, spans: Spans, left_to_right: bool) -> np.ndarray:
    """Return the indices of the targets of `[CLS] A [SEP] B [SEP]` among the tokens of the shards."""
    positions = sequence.masked_positions.astype(np.int64)
    if left_to_right:  # the target is the next token; that of the last one of A is [SEP], which counts as A's
        return spans.a_begin + np.minimum(positions, spans.a_length - 1)
    in_a = positions - 1  # after [CLS]
    in_b = in_a - spans.a_length - 1  # after the first [SEP]
    return np.where(in_a < spans.a_length, spans.a_begin + in_a, spans.b_begin + in_b)


# visible (M,) -> (M,) bool
def scored_positions(visible: np.ndarray, mask_id: int | None) -> np.ndarray:
    """Return which predicted positions count: those that show [MASK]; all if `mask_id` is None.

    Parameters
    ----------
    visible : (M,) int32
        The ids that the model sees at the predicted positions.
    mask_id : int or None
        Id of [MASK].

    Returns
    -------
    (M,) bool
    """
    if mask_id is None:
        return np.ones(len(visible), bool)
    return visible == mask_id


def score(
    ops: Any,
    config: BertConfig,
    params: Params,
    batches: Iterable[Batch],
    mask_id: int | None,
) -> HeldOut:
    """Score a model on batches.

    Parameters
    ----------
    ops : Ops
        The engine.
    config : BertConfig
        The shape of the model.
    params : dict
        Parameters of the model, as a tree.
    batches : iterable of Batch
        Held-out text; with `HeldOutBatch`, the standard error is computed, too.
    mask_id : int or None
        Id of [MASK]: only targets that show it are scored. None scores every target, as a left-to-right
        model needs.

    Returns
    -------
    HeldOut

    Raises
    ------
    InputError
        When no position is scored, or a batch does not fit the model.
    """
    runtime = runtime_of(ops)
    tree = runtime.to_device(params)
    masked = [_EMPTY]  # for targets: rows of negative log-likelihood, prediction and label
    pairs = [_EMPTY]  # for sequences: the same three rows
    documents = [_NOWHERE]  # the document of each target
    sequences = tokens = 0
    for batch in batches:
        batch.validate(config)
        mlm, nsp = runtime.call(ops, per_position, (config,), tree, runtime.prepare(batch))
        scored = scored_positions(batch.input_ids[batch.masked_rows], mask_id)
        mlm = [runtime.in_order(values, batch, "masked") for values in mlm]
        masked.append(np.array([*mlm, batch.masked_labels], np.float64)[:, scored])
        if isinstance(batch, HeldOutBatch):
            documents.append(batch.documents[scored])
        nsp = [runtime.in_order(values, batch, "sequences") for values in nsp]
        labels = batch.next_sentence_labels
        pairs.append(np.array([*nsp, labels], np.float64)[:, labels >= 0])
        sequences += batch.S
        tokens += batch.T
    nll, predicted, targets = np.concatenate(masked, axis=1)
    next_nll, next_predicted, next_labels = np.concatenate(pairs, axis=1)
    if not len(targets):
        raise InputError("The text is too short for any [MASK]; give more or longer documents.")
    next_loss = next_accuracy = next_majority = None
    if len(next_labels):
        counts = np.bincount(next_labels.astype(int))
        next_loss = float(next_nll.mean())
        next_accuracy = float((next_predicted == next_labels).mean())
        next_majority = float(counts.max() / len(next_labels))
    error = n_documents = None
    document_of = np.concatenate(documents)
    if len(document_of) == len(nll):  # unless some batch did not know its documents
        error = standard_error(nll, document_of)
        n_documents = len(np.unique(document_of))
    return HeldOut(
        loss=float(nll.mean()),
        unigram=entropy_of_counts(np.bincount(targets.astype(int))),
        accuracy=float((predicted == targets).mean()),
        targets=len(targets),
        next_loss=next_loss,
        next_accuracy=next_accuracy,
        next_majority=next_majority,
        sequences=sequences,
        tokens=tokens,
        standard_error=error,
        documents=n_documents,
    )


# values (n,)  documents (n,)
def standard_error(values: np.ndarray, documents: np.ndarray) -> float | None:
    """Estimate the standard error of a mean whose values come from documents, several from each.

    With residuals e from the mean, it is 1/n times the root of G/(G-1) times the sum over the G documents of
    (sum of e in the document)^2. The values of one document may depend on each other in any way, and a
    document that is read several times counts no more than a longer one.

    Parameters
    ----------
    values : (n,) float64
        The values, for instance losses.
    documents : (n,) int64
        The index of the document of each value.

    Returns
    -------
    float or None
        None if there is only one document, which says nothing about others.

    References
    ----------
    Liang and Zeger (1986), Longitudinal data analysis using generalized linear models.

    Examples
    --------
    >>> standard_error(np.array([1.0, 1.0, 4.0, 4.0]), np.array([7, 7, 8, 8]))
    1.5
    """
    names, document = np.unique(documents, return_inverse=True)
    count = len(names)
    if count < 2:
        return None
    sums = np.bincount(document, values - values.mean())
    variance = count / (count - 1) * (sums @ sums)
    return float(np.sqrt(variance) / len(values))


def score_with_shuffled(
    scored: Callable[[Iterable[Batch]], HeldOut],
    batches: abc.Sequence[Batch],
    special_ids: Iterable[int] | None,
    show: bool = False,
) -> HeldOut:
    """Score batches as they are, and with the contexts of their targets shuffled.

    Parameters
    ----------
    scored : callable
        Scores batches.
    batches : sequence of Batch
        Held-out text.
    special_ids : iterable of int or None
        Ids that stay in place while the rest is shuffled; None, for a model trained left to right, shuffles
        nothing.
    show : bool, default False
        Whether to show progress.

    Returns
    -------
    HeldOut
        Without `shuffled_loss` if nothing was shuffled.
    """
    times = 1 if special_ids is None else 2
    total = times * sum(batch.T for batch in batches)
    with Progress(total, "tokens measured", show) as progress:

        def watched(batches: Iterable[Batch]) -> Iterator[Batch]:
            for batch in batches:
                yield batch
                progress.add(batch.T)

        metrics = scored(watched(batches))
        if special_ids is None:
            return metrics
        shuffled = scored(watched(shuffle_contexts(batches, special_ids)))
        return replace(metrics, shuffled_loss=shuffled.loss)


# -> nll predicted (M,), nll predicted (S,)
def per_position(
    ops: Any,
    config: BertConfig,
    params: Params,
    batch: Batch,
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Compute losses and predictions of both heads, at every masked position and for every sequence.

    Parameters
    ----------
    ops : Ops
        The engine.
    config : BertConfig
        The shape of the model.
    params : dict
        Parameters of the model, as a tree.
    batch : Batch
        The batch, in the form that the engine takes.

    Returns
    -------
    (nll, predicted) : (M,) each
        Losses of the masked-LM head, in nats, and the most likely ids.
    (nll, predicted) : (S,) each
        The same for the next-sentence head; meaningless for sequences without a pair.
    """
    loss, _ = pretraining_loss(ops, config, params, batch)
    return (loss.mlm_nll, loss.mlm_predicted), (loss.nsp_nll, loss.nsp_predicted)


def shuffle_contexts(batches: Iterable[Batch], special_ids: Iterable[int]) -> Iterator[Batch]:
    """Yield the same batches with the ordinary tokens of each sequence in another order.

    Special tokens and predicted positions stay in place. A model that uses word order does worse on these.

    Parameters
    ----------
    batches : iterable of Batch
        The batches, which are not changed.
    special_ids : iterable of int
        Ids of the special tokens.

    Yields
    ------
    Batch
        A shuffled copy; the order depends only on the index of the batch.
    """
    special = np.array(list(special_ids))
    for index, batch in enumerate(batches):
        movable = ~np.isin(batch.input_ids, special)
        movable[batch.masked_rows] = False
        rows = np.flatnonzero(movable)
        sequence = np.searchsorted(batch.cu_seqlens, rows, side="right")
        draws = np.random.default_rng([SHUFFLING_SEED, index]).random(len(rows))
        input_ids = batch.input_ids.copy()
        shuffled = rows[np.argsort(sequence + draws)]  # at random within each sequence
        input_ids[rows] = input_ids[shuffled]
        yield replace(batch, input_ids=input_ids)


# counts (V,) -> nats
def entropy_of_counts(counts: np.ndarray) -> float:
    """Compute the entropy of the distribution that counts give, in nats.

    Parameters
    ----------
    counts : (V,) int64
        Counts, at least one of them above 0.

    Returns
    -------
    float
        The entropy, from 0 to log V.
    """
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())
