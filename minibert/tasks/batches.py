"""Features to batches: in a new random order every epoch to learn from, by length to predict."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np

from minibert.base.errors import DivergedError
from minibert.core import draws
from minibert.core.arrays import Array, Params
from minibert.core.config import BertConfig
from minibert.core.head_kinds import SEQUENCES
from minibert.core.heads import split_outputs
from minibert.engines.runtime import runtime_of
from minibert.model import heads
from minibert.model.batch import TaskBatch
from minibert.model.head_kinds import KINDS
from minibert.model.params import Head, Parameters
from minibert.tasks import similarity_losses
from minibert.tasks.task import Features

Position = list[int]  # [epoch, how many features of it are used up]
Done: TypeAlias = Callable[[int], object]  # called with how much more is done, such as tokens


def nothing(done: int) -> None:
    """Take no notice of progress."""


# -> (n,)
def epoch_order(n: int, seed: int, epoch: int) -> np.ndarray:
    """Draw the order of n features in one epoch: a function of seed and epoch, the same on every machine."""
    return draws.permutation(np.arange(n), draws.key(seed, epoch))


# groups (n,) -> (n,)
def balanced_order(groups: np.ndarray, seed: int, epoch: int) -> np.ndarray:
    """Draw n features for one epoch, as many of each group; a function of seed and epoch.

    Of a group all are shown once before any is shown again, from one epoch to the next.
    """
    n, K, found = len(groups), int(groups.max()) + 1, []
    for group in range(K):
        members, count = np.flatnonzero(groups == group), n // K + (group < n % K)
        first, begin = divmod(epoch * count, len(members))
        rounds = range(first, first + 2 + count // len(members))
        order = np.concatenate([epoch_order(len(members), draws.key(seed, group), one) for one in rounds])
        found.append(members[order[begin : begin + count]])
    return np.concatenate(found)[epoch_order(n, seed, epoch)]


def drawn(
    n: int, batch_size: int, seed: int, position: Position | None = None, groups: Array | None = None
) -> Iterator[tuple[list[int], Position]]:
    """Yield batches of the numbers below n from a position on, without end, and the position after each.

    Every epoch shows each of them once, in an order of its own, or where there are `groups` (n,) as many of
    each group; its last batch has what is left.
    """
    epoch, used = position or [0, 0]
    while True:
        order = epoch_order(n, seed, epoch) if groups is None else balanced_order(groups, seed, epoch)
        while used < n:
            chosen = order[used : used + batch_size].tolist()
            used += len(chosen)
            yield chosen, [epoch, used] if used < n else [epoch + 1, 0]
        epoch, used = epoch + 1, 0


def training_batches(
    features: Features,
    head: Head,
    batch_size: int,
    seed: int,
    position: Position | None = None,
    groups: np.ndarray | None = None,
    weights: np.ndarray | None = None,
) -> Iterator[tuple[TaskBatch, Position]]:
    """Yield endless batches from a position on, with the position after each.

    They are not sorted by length: without padding that would save nothing, and make each batch too uniform.
    Of `groups` (n,) epochs show as many each, and not all features once; for `weights` (K,) see `weighted`.
    """
    for chosen, after in drawn(len(features), batch_size, seed, position, groups):
        batch = TaskBatch.pack_features([features[i] for i in chosen], head)
        yield batch if weights is None else weighted(batch, head, weights), after


# weights (K,)
def weighted(batch: TaskBatch, head: Head, weights: np.ndarray) -> TaskBatch:
    """Weigh the classes of a whole batch in its loss.

    The loss is that of PyTorch's `CrossEntropyLoss(weight=weights)`, whose mean is weighted too; where
    several classes apply, that of `BCEWithLogitsLoss(pos_weight=weights)`.
    """
    if head.kind == "multilabel":
        return dataclasses.replace(batch, labels=batch.labels * weights)
    own = weights[batch.labels] * (batch.label_weights > 0)
    return dataclasses.replace(batch, label_weights=own / own.sum())


# -> (n,)
def lengths(features: Features) -> np.ndarray:
    """Count the tokens of each feature, all its sequences together."""
    if (known := getattr(features, "lengths", None)) is not None:  # of features that are made when asked for
        return np.asarray(known)
    return np.array([sum(len(s.input_ids) for s in f.sequences) for f in features], np.int64)


# tokens (n,) -> arrays of numbers of features
def token_budget_batches(tokens: np.ndarray, budget: int) -> list[np.ndarray]:
    """Group features to predict together: neighbours in length, the longest first.

    A batch has at most `budget` tokens; a longer feature is one by itself. With the longest first, a model
    that does not fit into memory is found out at once, and the time left is not underestimated.
    """
    order = np.argsort(-tokens, kind="stable")
    batches, begin, size = [], 0, 0
    for at, length in enumerate(tokens[order].tolist()):
        if at > begin and size + length > budget:
            batches.append(order[begin:at])
            begin, size = at, 0
        size += length
    return [*batches, order[begin:]] if len(order) else []


def outputs(
    ops: Any, params: Parameters, features: Features, budget: int, done: Done = nothing
) -> list[Array]:
    """Compute the scores of every feature, in their order, in batches of up to `budget` tokens."""
    found: list[Any] = [None] * len(features)
    tokens = lengths(features)
    tree = runtime_of(ops).to_device(params.tree)
    for numbers in token_budget_batches(tokens, budget):
        batch = TaskBatch.pack_features([features[i] for i in numbers.tolist()], params.head)
        params.config.warn_untrained(int(batch.lengths.max()))
        scores = batch_outputs(ops, params.config, params.head, tree, batch)
        for number, one in zip(numbers.tolist(), scores, strict=True):
            found[number] = one
        done(int(tokens[numbers].sum()))
    return found


# -> one array for each example: (K,), (1,), (n,2), (rows,K) or (c,); (2,H) of texts that are read one by one
def batch_outputs(ops: Any, config: BertConfig, head: Head, params: Params, batch: TaskBatch) -> list[Array]:
    """Return the scores of every example of a batch by itself; no dropout, nothing kept for backward."""
    runtime = runtime_of(ops)
    scores = runtime.call(ops, functions_of(head).scores_of, (config, head), params, runtime.prepare(batch))
    if head.kind in similarity_losses.KINDS:
        return list(runtime.in_order(scores, batch, SEQUENCES).reshape(batch.E, batch.choices, -1))
    scores = runtime.in_order(scores, batch, "examples" if head.pool else KINDS[head.kind].reads)
    return split_outputs(scores, head, batch)


def functions_of(head: Head) -> Any:
    """Return the module with `loss`, `loss_backward` and `scores_of` of a head."""
    return similarity_losses if head.kind in similarity_losses.KINDS else heads


def require_finite_outputs(outputs: Iterable[np.ndarray], step: int, rate: float) -> None:
    """Raise DivergedError when what a model says of dev after a step is not finite.

    The loss shows such parameters only one step later, and after the last step there is none.
    """
    if not all(np.isfinite(one).all() for one in outputs):
        found = f"what the model says of dev is no finite number, with learning rates of up to {rate:.2e}"
        advice = "Start again in another --out with a lower one or a longer warm-up."
        raise DivergedError(f"After step {step} {found}. {advice}")
