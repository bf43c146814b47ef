"""How good a masked language model is on text it has not seen, measured the same way everywhere.

The held-out loss is the mean negative log-likelihood, in nats, of the tokens that were replaced by [MASK],
and of those only: a model that merely copies its input can be right about a target that is left visible.
Beside it stand metrics of a model with no use for context: the entropy of those very targets (the best that
any constant guess can do), the entropy of the whole text's pieces (the best that a guess can do in the long
run; that of a few thousand targets is lower, as rare pieces are missing among them), and its own loss with
the context tokens of each sequence shuffled.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from minibert.arrays import Array, Params
from minibert.data.instances import Instances
from minibert.engines.runtime import runtime_of
from minibert.errors import InputError
from minibert.model.batch import Batch
from minibert.model.bert import pretraining_loss
from minibert.model.config import BertConfig

SHUFFLING_SEED = 20181011
TARGETS = 20_000  # [MASK] positions that make a held-out loss: its standard error is then about 0.02 nats
PASSES = 20  # of a small held-out text, with new masks each time, to reach them
BATCH_TOKENS = 4096
_EMPTY = np.zeros((3, 0))


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
    sequences: int  # how many were read
    tokens: int
    text_unigram: float | None = None  # entropy of the whole text's pieces, where these are known

    @property
    def perplexity(self) -> float:
        """exp(loss), of at most 700 nats: JSON has no infinity."""
        return float(np.exp(min(self.loss, 700.0)))

    def to_dict(self) -> dict[str, Any]:
        """Return all metrics, for JSON; what context is worth to the model is `nats_under_unigram`."""
        return asdict(self) | {"perplexity": self.perplexity, "nats_under_unigram": self.unigram - self.loss}


def evaluation_batches(instances: Instances, mask_id: int | None, targets: int = TARGETS) -> Iterator[Batch]:
    """Yield batches until there are `targets` scored positions, or the text was read `PASSES` times."""
    waiting, found, size = [], 0, 0
    for sequence, position in instances.stream():
        if position.epoch >= PASSES or found >= targets:
            break
        assert sequence is not None  # it is for other machines only
        waiting.append(sequence)
        size += len(sequence.input_ids)
        found += int(scored_positions(sequence.input_ids[sequence.masked_positions], mask_id).sum())
        if size >= BATCH_TOKENS:
            yield Batch.pack(waiting)
            waiting, size = [], 0
    if waiting:
        yield Batch.pack(waiting)


# visible (M,) -> (M,) bool
def scored_positions(visible: np.ndarray, mask_id: int | None) -> np.ndarray:
    """Return which predicted positions count: those that show [MASK]; all if `mask_id` is None."""
    return np.ones(len(visible), bool) if mask_id is None else visible == mask_id


def score(
    ops: Any, config: BertConfig, params: Params, batches: Iterable[Batch], mask_id: int | None
) -> HeldOut:
    """Score a model on batches; `mask_id` None scores every target, as a left-to-right model needs it."""
    runtime = runtime_of(ops)
    tree = runtime.to_device(params)
    masked, pairs = [_EMPTY], [_EMPTY]  # rows of negative log-likelihood, prediction and label
    sequences = tokens = 0
    for batch in batches:
        batch.validate(config)
        mlm, nsp = runtime.call(ops, per_position, (config,), tree, runtime.prepare(batch))
        scored = scored_positions(batch.input_ids[batch.masked_rows], mask_id)
        mlm = [runtime.in_order(one, batch, "masked") for one in mlm]
        masked.append(np.array([*mlm, batch.masked_labels], np.float64)[:, scored])
        nsp = [runtime.in_order(one, batch, "sequences") for one in nsp]
        labels = batch.next_sentence_labels
        pairs.append(np.array([*nsp, labels], np.float64)[:, labels >= 0])
        sequences, tokens = sequences + batch.S, tokens + batch.T
    nll, predicted, targets = np.concatenate(masked, axis=1)
    next_nll, next_predicted, next_labels = np.concatenate(pairs, axis=1)
    if not len(targets):
        raise InputError("The text has no position that shows [MASK]; give more or longer documents.")
    paired, counts = len(next_labels) > 0, np.bincount(next_labels.astype(int))
    return HeldOut(
        loss=float(nll.mean()),
        unigram=entropy_of_counts(np.bincount(targets.astype(int))),
        accuracy=float((predicted == targets).mean()),
        targets=len(targets),
        next_loss=float(next_nll.mean()) if paired else None,
        next_accuracy=float((next_predicted == next_labels).mean()) if paired else None,
        next_majority=float(counts.max() / len(next_labels)) if paired else None,
        sequences=sequences,
        tokens=tokens,
    )


# -> nll predicted (M,), nll predicted (S,)
def per_position(
    ops: Any, config: BertConfig, params: Params, batch: Batch
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Compute losses of both heads, at every masked position and of every sequence, and the likeliest."""
    loss, _ = pretraining_loss(ops, config, params, batch)
    return (loss.mlm_nll, loss.mlm_predicted), (loss.nsp_nll, loss.nsp_predicted)


def shuffle_contexts(batches: Iterable[Batch], special_ids: Iterable[int]) -> Iterator[Batch]:
    """Yield the same batches with the ordinary tokens of each sequence in another order.

    Special tokens and predicted positions stay in place. A model that uses word order does worse on these.
    """
    special = np.array(list(special_ids))
    for number, batch in enumerate(batches):
        movable = ~np.isin(batch.input_ids, special)
        movable[batch.masked_rows] = False
        rows = np.flatnonzero(movable)
        sequence = np.searchsorted(batch.cu_seqlens, rows, side="right")
        draws = np.random.default_rng([SHUFFLING_SEED, number]).random(len(rows))
        input_ids = batch.input_ids.copy()
        input_ids[rows] = input_ids[rows[np.argsort(sequence + draws)]]  # at random within each sequence
        yield replace(batch, input_ids=input_ids)


# counts (V,) -> nats
def entropy_of_counts(counts: np.ndarray) -> float:
    """Compute the entropy of the distribution that some counts give, in nats."""
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())
