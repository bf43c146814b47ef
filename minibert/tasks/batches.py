"""Make batches of features: for training in a new random order every epoch, for prediction by length."""

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
from minibert.model.head_kinds import KINDS, SIMILARITY
from minibert.model.params import Head, Parameters
from minibert.tasks import similarity_losses
from minibert.tasks.task import Features

Position = list[int]  # [epoch, how many features of it are used up]
Done: TypeAlias = Callable[[int], object]  # called with how much more is done, such as tokens


def nothing(done: int) -> None:
    """Take no notice of progress.

    Parameters
    ----------
    done : int
        How much more is done.
    """


# -> (n,)
def epoch_order(n: int, seed: int, epoch: int) -> np.ndarray:
    """Draw the order of n features in one epoch, the same on every machine.

    Parameters
    ----------
    n : int
        How many features there are.
    seed : int
        Seed of the run.
    epoch : int
        From 0. Each has an order of its own.

    Returns
    -------
    numpy.ndarray
        The numbers from 0 to n - 1, (n,): a function of seed and epoch alone.
    """
    return draws.permutation(np.arange(n), draws.key(seed, epoch))


# groups (n,) -> (n,)
def balanced_order(groups: np.ndarray, seed: int, epoch: int) -> np.ndarray:
    """Draw n features for one epoch, as many of each group.

    Of a group all are shown once before any is shown again, from one epoch to the next.

    Parameters
    ----------
    groups : numpy.ndarray
        The group of each feature, (n,) from 0 to K - 1; each group has at least one.
    seed : int
        Seed of the run.
    epoch : int
        From 0.

    Returns
    -------
    numpy.ndarray
        Numbers of features, (n,), in the order to show them. Where K does not divide n, the first groups
        have one more than the others.
    """
    n = len(groups)
    K = int(groups.max()) + 1
    chosen = []
    for group in range(K):
        members = np.flatnonzero(groups == group)
        count = n // K + (group < n % K)
        # All members in a row make a round; the epochs read on where the one before has stopped.
        first_round, begin = divmod(epoch * count, len(members))
        last_round = first_round + 1 + count // len(members)
        group_seed = draws.key(seed, group)
        rounds = [
            epoch_order(len(members), group_seed, number) for number in range(first_round, last_round + 1)
        ]
        order = np.concatenate(rounds)
        chosen.append(members[order[begin : begin + count]])
    return np.concatenate(chosen)[epoch_order(n, seed, epoch)]


def drawn(
    n: int,
    batch_size: int,
    seed: int,
    position: Position | None = None,
    groups: Array | None = None,
) -> Iterator[tuple[list[int], Position]]:
    """Yield batches of the numbers below n, without end, and the position after each.

    Every epoch shows each number once, in an order of its own; its last batch has what is left.

    Parameters
    ----------
    n : int
        How many features there are, at least one.
    batch_size : int
        Of every batch but the last of an epoch.
    seed : int
        Seed of the run.
    position : list of int, optional
        [epoch, how many features of it are used up] to go on from. The beginning by default.
    groups : numpy.ndarray, optional
        The group of each feature, (n,): epochs then show as many of each group, see `balanced_order`.

    Yields
    ------
    list of int
        The numbers of one batch.
    list of int
        The position after it, to be kept in a checkpoint.
    """
    epoch, used = position or [0, 0]
    while True:
        order = epoch_order(n, seed, epoch) if groups is None else balanced_order(groups, seed, epoch)
        while used < n:
            chosen = order[used : used + batch_size].tolist()
            used += len(chosen)
            yield chosen, [epoch, used] if used < n else [epoch + 1, 0]
        epoch += 1
        used = 0


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

    Parameters
    ----------
    features : sequence of Feature
        The training examples, with their labels.
    head : Head
        That they are for.
    batch_size : int
        Features of a batch; the last one of an epoch has what is left.
    seed : int
        Seed of the run.
    position : list of int, optional
        [epoch, how many features of it are used up] to go on from. The beginning by default.
    groups : numpy.ndarray, optional
        The group of each feature, (n,): epochs then show as many of each group, and not all features once.
    weights : numpy.ndarray, optional
        Weights of the classes in the loss, (K,), see `weighted`.

    Yields
    ------
    TaskBatch
        One batch.
    list of int
        The position after it.
    """
    for numbers, after in drawn(len(features), batch_size, seed, position, groups):
        chosen = [features[number] for number in numbers]
        batch = TaskBatch.pack_features(chosen, head)
        if weights is not None:
            batch = weighted(batch, head, weights)
        yield batch, after


# weights (K,)
def weighted(batch: TaskBatch, head: Head, weights: np.ndarray) -> TaskBatch:
    """Weigh the classes of a whole batch in its loss.

    Parameters
    ----------
    batch : TaskBatch
        With labels.
    head : Head
        Head of the kind "classify", or "multilabel" where several classes may apply.
    weights : numpy.ndarray
        Weights of the classes, (K,).

    Returns
    -------
    TaskBatch
        The same texts, whose loss is that of PyTorch's `CrossEntropyLoss(weight=weights)`, whose mean is
        weighted too; where several classes apply, that of `BCEWithLogitsLoss(pos_weight=weights)`.
    """
    if head.kind == "multilabel":
        return dataclasses.replace(batch, labels=batch.labels * weights)
    example_weights = weights[batch.labels] * (batch.label_weights > 0)
    return dataclasses.replace(batch, label_weights=example_weights / example_weights.sum())


# -> (n,)
def lengths(features: Features) -> np.ndarray:
    """Count the tokens of each feature, all its sequences together.

    Parameters
    ----------
    features : sequence of Feature
        Where it has an attribute `lengths`, no feature is made for the count.

    Returns
    -------
    numpy.ndarray
        Tokens, (n,).
    """
    known = getattr(features, "lengths", None)  # of features that are made when asked for
    if known is not None:
        return np.asarray(known)
    counts = [sum(len(sequence.input_ids) for sequence in feature.sequences) for feature in features]
    return np.array(counts, np.int64)


# tokens (n,) -> arrays of numbers of features
def token_budget_batches(tokens: np.ndarray, budget: int) -> list[np.ndarray]:
    """Group features to predict together: neighbours in length, the longest first.

    With the longest first, a model that does not fit into memory is found out at once, and the time left is
    not underestimated.

    Parameters
    ----------
    tokens : numpy.ndarray
        Tokens of each feature, (n,).
    budget : int
        Most tokens of a batch; a longer feature is a batch by itself.

    Returns
    -------
    list of numpy.ndarray
        Numbers of features, each in one of the batches; [] for no feature.
    """
    order = np.argsort(-tokens, kind="stable")
    batches = []
    begin = 0
    size = 0
    for place, length in enumerate(tokens[order].tolist()):
        if place > begin and size + length > budget:
            batches.append(order[begin:place])
            begin = place
            size = 0
        size += length
    if len(order):
        batches.append(order[begin:])
    return batches


def outputs(
    ops: Any,
    params: Parameters,
    features: Features,
    budget: int,
    done: Done = nothing,
) -> list[Array]:
    """Compute the scores of every feature, in batches of similar length.

    Parameters
    ----------
    ops : Ops
        The operations of an engine.
    params : Parameters
        Parameters of the model, with its config and head.
    features : sequence of Feature
        What is asked.
    budget : int
        Most tokens of a batch, see `token_budget_batches`.
    done : callable, optional
        Called after each batch with the number of its tokens.

    Returns
    -------
    list of numpy.ndarray
        The scores of each feature, in the order of the features; shapes are those of `batch_outputs`.
    """
    results: list[Any] = [None] * len(features)
    tokens = lengths(features)
    tree = runtime_of(ops).to_device(params.tree)
    for numbers in token_budget_batches(tokens, budget):
        chosen = [features[number] for number in numbers.tolist()]
        batch = TaskBatch.pack_features(chosen, params.head)
        params.config.warn_untrained(int(batch.lengths.max()))
        scores = batch_outputs(ops, params.config, params.head, tree, batch)
        for number, feature_scores in zip(numbers.tolist(), scores, strict=True):
            results[number] = feature_scores
        done(int(tokens[numbers].sum()))
    return results


# -> one array for each example: (K,), (1,), (n,2), (rows,K) or (c,); (2,H) of texts that are read one by one
def batch_outputs(
    ops: Any,
    config: BertConfig,
    head: Head,
    params: Params,
    batch: TaskBatch,
) -> list[Array]:
    """Return the scores of every example of a batch by itself; no dropout, nothing kept for backward.

    Parameters
    ----------
    ops : Ops
        The operations of an engine.
    config : BertConfig
        Sizes of the model.
    head : Head
        What stands on the encoder.
    params : dict
        The tree of parameters, where the engine wants it.
    batch : TaskBatch
        Labels are not needed.

    Returns
    -------
    list of numpy.ndarray
        One array for each example: (K,) of classes, (1,) of a number, (n,2) of the tokens of a window,
        (rows,K) of tagged words or (c,) of choices; (2,H) of two texts that are read one by one.
    """
    runtime = runtime_of(ops)
    scores_of = functions_of(head).scores_of
    scores = runtime.call(ops, scores_of, (config, head), params, runtime.prepare(batch))
    if head.kind in SIMILARITY:
        vectors = runtime.in_order(scores, batch, SEQUENCES)
        return list(vectors.reshape(batch.E, batch.choices, -1))
    order = "examples" if head.pool else KINDS[head.kind].reads
    scores = runtime.in_order(scores, batch, order)
    return split_outputs(scores, head, batch)


def functions_of(head: Head) -> Any:
    """Return the module with `loss`, `loss_backward` and `scores_of` of a head.

    Parameters
    ----------
    head : Head
        What stands on the encoder.

    Returns
    -------
    module
        `similarity_losses` for texts that are compared by their vectors, else `model.heads`.
    """
    return similarity_losses if head.kind in SIMILARITY else heads


def require_finite_outputs(outputs: Iterable[np.ndarray], step: int, rate: float) -> None:
    """Refuse outputs of dev after a step that are not finite.

    The loss shows such parameters only one step later, and after the last step there is none.

    Parameters
    ----------
    outputs : iterable of numpy.ndarray
        The scores of each feature.
    step : int
        The last one before them, for the message.
    rate : float
        Highest learning rate of the run, for the message.

    Raises
    ------
    DivergedError
        When a score is infinite or not-a-number.
    """
    if not all(np.isfinite(scores).all() for scores in outputs):
        problem = f"the scores of dev are not finite, at learning rates of up to {rate:.2e}"
        advice = "Start again in another folder, with a lower rate or a longer warm-up."
        raise DivergedError(f"After step {step} {problem}. {advice}")
