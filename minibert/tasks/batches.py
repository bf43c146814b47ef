"""Make batches of features: for training in a new random order every epoch, for prediction by length."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from minibert.base.errors import DivergedError
from minibert.core import draws, heads as core_heads
from minibert.core.arrays import Array, Params
from minibert.core.config import BertConfig
from minibert.core.head_kinds import SEQUENCES
from minibert.engines.runtime import runtime_of
from minibert.model import heads as model_heads
from minibert.model.batch import TaskBatch
from minibert.model.head_kinds import KINDS, SIMILARITY
from minibert.model.params import Head, Parameters
from minibert.tasks import similarity_losses
from minibert.tasks.task import Done, Features, ignore_progress

Position = list[int]  # [epoch, number of features already used in it]


# -> (n,)
def epoch_order(n: int, seed: int, epoch: int) -> np.ndarray:
    """Draw the order of n features in one epoch; it is the same on every machine.

    Parameters
    ----------
    n : int
        Number of features.
    seed : int
        Seed of the run.
    epoch : int
        Index of the epoch, from 0; each has its own order.

    Returns
    -------
    numpy.ndarray
        The indices 0 to n - 1, (n,), in an order that depends only on seed and epoch.
    """
    return draws.permutation(np.arange(n), draws.key(seed, epoch))


# groups (n,) -> (n,)
def balanced_order(groups: np.ndarray, seed: int, epoch: int) -> np.ndarray:
    """Draw n features for one epoch, equally many of each group.

    Every member of a group is shown once before any is shown again, across epochs as well.

    Parameters
    ----------
    groups : numpy.ndarray
        Group of each feature, (n,) from 0 to K - 1. No group is empty.
    seed : int
        Seed of the run.
    epoch : int
        Index of the epoch, from 0.

    Returns
    -------
    numpy.ndarray
        Indices of features, (n,), in the order to show them. If K does not divide n, the first groups have
        one more than the others.
    """
    n = len(groups)
    K = int(groups.max()) + 1
    chosen = []
    for group in range(K):
        members = np.flatnonzero(groups == group)
        count = n // K + (group < n % K)
        # A round is a random order of all members. Each epoch reads on where the one before stopped.
        first_round, begin = divmod(epoch * count, len(members))
        last_round = first_round + 1 + count // len(members)
        group_seed = draws.key(seed, group)
        rounds = range(first_round, last_round + 1)
        order = np.concatenate([epoch_order(len(members), group_seed, index) for index in rounds])
        chosen.append(members[order[begin : begin + count]])
    return np.concatenate(chosen)[epoch_order(n, seed, epoch)]


def drawn(
    n: int,
    batch_size: int,
    seed: int,
    position: Position | None = None,
    groups: Array | None = None,
) -> Iterator[tuple[list[int], Position]]:
    """Yield endless batches of the indices 0 to n - 1, with the position after each batch.

    Every epoch shows each index once, in its own order. The last batch of an epoch may be smaller.

    Parameters
    ----------
    n : int
        Number of features, at least one.
    batch_size : int
        Features in a batch.
    seed : int
        Seed of the run.
    position : list of int, optional
        Where to start: [epoch, number of features already used in it]. By default at the beginning.
    groups : numpy.ndarray, optional
        Group of each feature, (n,). Epochs then show equally many of each group, see `balanced_order`.

    Yields
    ------
    list of int
        The indices in one batch.
    list of int
        The position after it, for a checkpoint.
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
    """Yield endless batches from a position on, with the position after each batch.

    They are not sorted by length: without padding this would save nothing, and make a batch too uniform.

    Parameters
    ----------
    features : sequence of Feature
        The training examples, with labels.
    head : Head
        The head to train.
    batch_size : int
        Features in a batch; the last batch of an epoch may be smaller.
    seed : int
        Seed of the run.
    position : list of int, optional
        Where to start: [epoch, number of features already used in it]. By default at the beginning.
    groups : numpy.ndarray, optional
        Group of each feature, (n,). Epochs then draw equally many of each group, not every feature once.
    weights : numpy.ndarray, optional
        Weights of the classes in the loss, (K,), see `weighted`.

    Yields
    ------
    TaskBatch
        One batch.
    list of int
        The position after it.
    """
    for indices, after in drawn(len(features), batch_size, seed, position, groups):
        chosen = [features[index] for index in indices]
        batch = TaskBatch.pack_features(chosen, head)
        if weights is not None:
            batch = weighted(batch, head, weights)
        yield batch, after


# weights (K,)
def weighted(batch: TaskBatch, head: Head, weights: np.ndarray) -> TaskBatch:
    """Weight the classes in the loss of a whole batch.

    Parameters
    ----------
    batch : TaskBatch
        A batch with labels.
    head : Head
        Head of the kind "classify", or "multilabel" if several classes may apply.
    weights : numpy.ndarray
        Weights of the classes, (K,).

    Returns
    -------
    TaskBatch
        The same texts. Their loss is that of PyTorch's `CrossEntropyLoss(weight=weights)`, whose mean is
        weighted too; if several classes may apply, that of `BCEWithLogitsLoss(pos_weight=weights)`.
    """
    if head.kind == "multilabel":
        return dataclasses.replace(batch, labels=batch.labels * weights)
    example_weights = weights[batch.labels] * (batch.label_weights > 0)
    return dataclasses.replace(batch, label_weights=example_weights / example_weights.sum())


# -> (n,)
def lengths(features: Features) -> np.ndarray:
    """Count the tokens of each feature, in all its sequences.

    Parameters
    ----------
    features : sequence of Feature
        If it has an attribute `lengths`, no feature has to be made for the count.

    Returns
    -------
    numpy.ndarray
        Number of tokens, (n,).
    """
    counted = getattr(features, "lengths", None)  # sequences that make features on demand have it
    if counted is not None:
        return np.asarray(counted)
    counts = [sum(len(sequence.input_ids) for sequence in feature.sequences) for feature in features]
    return np.array(counts, np.int64)


# tokens (n,) -> arrays of indices of features
def token_budget_batches(tokens: np.ndarray, budget: int) -> list[np.ndarray]:
    """Group features of similar length into batches for prediction, the longest first.

    That way a model that does not fit into memory fails at once, and the remaining time is not
    underestimated.

    Parameters
    ----------
    tokens : numpy.ndarray
        Number of tokens of each feature, (n,).
    budget : int
        Most tokens in a batch; a longer feature is a batch by itself.

    Returns
    -------
    list of numpy.ndarray
        Indices of features; every feature is in one of the batches. [] if there are no features.
    """
    order = np.argsort(-tokens, kind="stable")
    batches = []
    begin = 0
    size = 0
    for position, length in enumerate(tokens[order].tolist()):
        if position > begin and size + length > budget:
            batches.append(order[begin:position])
            begin = position
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
    done: Done = ignore_progress,
) -> list[Array]:
    """Compute the scores of every feature, in batches of similar length.

    Parameters
    ----------
    ops : Ops
        The operations of an engine.
    params : Parameters
        Parameters of the model, with its config and head.
    features : sequence of Feature
        The model's inputs.
    budget : int
        Most tokens in a batch, see `token_budget_batches`.
    done : callable, optional
        Called after each batch with the number of its tokens.

    Returns
    -------
    list of numpy.ndarray
        The scores of each feature, in the order of the features; see `batch_outputs` for the shapes.
    """
    results: list[Any] = [None] * len(features)
    tokens = lengths(features)
    tree = runtime_of(ops).to_device(params.tree)
    for indices in token_budget_batches(tokens, budget):
        chosen = [features[index] for index in indices.tolist()]
        batch = TaskBatch.pack_features(chosen, params.head)
        params.config.warn_untrained(int(batch.lengths.max()))
        scores = batch_outputs(ops, params.config, params.head, tree, batch)
        for index, feature_scores in zip(indices.tolist(), scores, strict=True):
            results[index] = feature_scores
        done(int(tokens[indices].sum()))
    return results


# -> one array for each example: (K,), (1,), (n,2), (rows,K) or (c,); (2,H) for two texts read one at a time
def batch_outputs(
    ops: Any,
    config: BertConfig,
    head: Head,
    params: Params,
    batch: TaskBatch,
) -> list[Array]:
    """Return the scores of every example of a batch, without dropout; nothing is saved for backward.

    Parameters
    ----------
    ops : Ops
        The operations of an engine.
    config : BertConfig
        Sizes of the model.
    head : Head
        The output layer.
    params : dict
        The tree of parameters, in the engine's memory.
    batch : TaskBatch
        A batch. Labels are not needed.

    Returns
    -------
    list of numpy.ndarray
        One array for each example: (K,) for classes, (1,) for a number, (n,2) for the tokens of a window,
        (rows,K) for tagged words or (c,) for choices; (2,H) for two texts that are read one at a time.
    """
    runtime = runtime_of(ops)
    scores_of = functions_of(head).scores_of
    scores = runtime.call(ops, scores_of, (config, head), params, runtime.prepare(batch))
    if head.kind in SIMILARITY:
        vectors = runtime.in_order(scores, batch, SEQUENCES)
        return list(vectors.reshape(batch.E, batch.choices, -1))
    order = "examples" if head.pool else KINDS[head.kind].reads
    scores = runtime.in_order(scores, batch, order)
    return core_heads.split_outputs(scores, head, batch)


def functions_of(head: Head) -> Any:
    """Return the module with `loss`, `loss_backward` and `scores_of` for a head.

    Parameters
    ----------
    head : Head
        The output layer.

    Returns
    -------
    module
        `similarity_losses` if texts are compared by their vectors, `model.heads` if the head has LSTMs or a
        pool of windows, else `core.heads`.
    """
    if head.kind in SIMILARITY:
        return similarity_losses
    return model_heads if head.lstm or head.pool else core_heads


def require_finite_outputs(outputs: Iterable[np.ndarray], step: int, rate: float) -> None:
    """Refuse scores of dev that are not finite.

    The loss shows such parameters only in the next step, and after the last step there is none.

    Parameters
    ----------
    outputs : iterable of numpy.ndarray
        The scores of each feature.
    step : int
        Number of steps taken, for the message.
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
