"""Metrics that compare two sequences, gold and predicted, as scikit-learn and SciPy define them.

Both are (n,) labels, which are numbers or words; correlations are for numbers, at least two. An undefined
metric has the value that those libraries return: 0 for F1 without a positive and for Matthews' coefficient of
a single class, not-a-number for a correlation with a constant.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from minibert.base.errors import InputError

Labels = Sequence[Any] | np.ndarray
Numbers = Sequence[float] | np.ndarray
TEXT = "USO"  # `dtype.kind` of arrays that hold words


def accuracy(gold: Labels, predicted: Labels) -> float:
    """Return the share of examples whose label is right.

    Parameters
    ----------
    gold, predicted : sequence
        Labels, (n,) both, numbers or words.

    Returns
    -------
    float
        From 0 to 1.

    Raises
    ------
    InputError
        Like every metric here: when there is no example, the lengths differ, or only one side has words.
    """
    gold, predicted = _aligned(gold, predicted)
    return float(np.mean(gold == predicted))


def f1(gold: Labels, predicted: Labels, positive: Any = 1) -> float:
    """Return the harmonic mean of precision and recall of one label: 2 TP / (2 TP + FP + FN).

    Parameters
    ----------
    gold, predicted : sequence
        Labels, (n,) both, numbers or words.
    positive : object, default 1
        The positive label; all others are negative.

    Returns
    -------
    float
        From 0 to 1; 0 if neither side has the positive label.

    Raises
    ------
    InputError
        When `positive` is a number among words, or a word among numbers; also for the reasons of `accuracy`.
    """
    gold, predicted = _aligned(gold, predicted)
    if (gold.dtype.kind in TEXT) != isinstance(positive, str):
        problem = f"{positive=} can't be among labels like {_first(gold)!r}"
        raise InputError(f"{problem}; give one of the labels.", positive=positive)
    is_gold = gold == positive
    is_predicted = predicted == positive
    marked = int(is_gold.sum() + is_predicted.sum())
    if not marked:
        return 0.0
    right = int((is_gold & is_predicted).sum())
    return 2 * right / marked


# gold predicted (n,K) -> (K,)
def label_f1(gold: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Return the F1 of each of K classes, any number of which apply to an example.

    Parameters
    ----------
    gold, predicted : numpy.ndarray
        Whether each class applies, (n,K) bool.

    Returns
    -------
    numpy.ndarray
        (K,) float64; 0 for a class that neither side has.
    """
    marked = gold.sum(axis=0) + predicted.sum(axis=0)
    right = (gold & predicted).sum(axis=0)
    return 2 * right / np.maximum(1, marked)


def macro_f1(gold: Labels, predicted: Labels) -> float:
    """Return the unweighted mean of the F1 of every label that occurs on either side.

    Parameters
    ----------
    gold, predicted : sequence
        Labels, (n,) both, numbers or words.

    Returns
    -------
    float
        From 0 to 1.
    """
    table = confusion(gold, predicted)
    right = np.diag(table)
    marked = table.sum(axis=0) + table.sum(axis=1)
    return float(np.mean(2 * right / marked))


def matthews(gold: Labels, predicted: Labels) -> float:
    """Compute Matthews' correlation coefficient for any number of classes.

    Gorodkin (2004), "Comparing two K-category assignments by a K-category correlation coefficient".

    Parameters
    ----------
    gold, predicted : sequence
        Labels, (n,) both, numbers or words.

    Returns
    -------
    float
        From -1 to 1; 0 if either side has a single class.
    """
    table = confusion(gold, predicted)
    # Covariances times n², as Python's integers: their product exceeds 64 bits from n = 55,000 on.
    n = int(table.sum())
    right = int(np.trace(table))
    of_gold = table.sum(axis=1).tolist()
    of_predicted = table.sum(axis=0).tolist()
    by_chance = sum(g * p for g, p in zip(of_gold, of_predicted, strict=True))
    covariance = n * right - by_chance
    gold_spread = n * n - sum(g * g for g in of_gold)
    spread = gold_spread * (n * n - sum(p * p for p in of_predicted))
    if not spread:
        return 0.0
    return covariance / math.sqrt(spread)


# -> (K,K) int64
def confusion(gold: Labels, predicted: Labels, labels: Labels | None = None) -> np.ndarray:
    """Count how often each label was predicted as each label.

    Parameters
    ----------
    gold, predicted : sequence
        Labels, (n,) both, numbers or words.
    labels : sequence, optional
        The order of rows and columns, (K,). By default all labels that occur, sorted.

    Returns
    -------
    numpy.ndarray
        (K,K) int64: a row for each gold label, a column for each predicted label.

    Raises
    ------
    InputError
        When a label is not in `labels`; also for the reasons of `accuracy`.
    """
    gold, predicted = _aligned(gold, predicted)
    both = np.concatenate([gold, predicted])
    unique, codes = np.unique(both, return_inverse=True)
    K = len(unique)
    if labels is not None:
        occurring = unique.tolist()
        wanted = np.asarray(labels).tolist()
        indices = {label: index for index, label in enumerate(wanted)}
        unknown = [label for label in occurring if label not in indices]
        if unknown:
            problem = f"{unknown[0]!r} is not among the labels {', '.join(map(str, indices))}"
            raise InputError(f"{problem}; give all labels that occur.")
        new_codes = np.array([indices[label] for label in occurring])
        codes = new_codes[codes]
        K = len(indices)
    rows = codes[: len(gold)]
    columns = codes[len(gold) :]
    counts = np.bincount(rows * K + columns, minlength=K * K)
    return counts.reshape(K, K)


def pearson(x: Numbers, y: Numbers) -> float:
    """Compute Pearson's correlation.

    Parameters
    ----------
    x, y : sequence of float
        (n,) both, at least two.

    Returns
    -------
    float
        From -1 to 1; not-a-number if either side is constant or has a value that is not finite.

    Raises
    ------
    InputError
        When there are fewer than two pairs, the lengths differ, or the values are words.
    """
    x, y = _numbers(x, y)
    is_finite = np.isfinite(x).all() and np.isfinite(y).all()
    if not is_finite or (x == x[0]).all() or (y == y[0]).all():
        return math.nan
    x = _direction(x)
    y = _direction(y)
    return float(np.clip(x @ y, -1, 1))


def spearman(x: Numbers, y: Numbers) -> float:
    """Compute Spearman's correlation: Pearson's of the ranks, where equal values share their mean rank.

    Parameters
    ----------
    x, y : sequence of float
        (n,) both, at least two.

    Returns
    -------
    float
        From -1 to 1; not-a-number if either side is constant or holds not-a-number.

    Raises
    ------
    InputError
        When there are fewer than two pairs, the lengths differ, or the values are words.
    """
    x, y = _numbers(x, y)
    if np.isnan(x).any() or np.isnan(y).any():
        return math.nan
    return pearson(_ranks(x), _ranks(y))


def mae(gold: Numbers, predicted: Numbers) -> float:
    """Compute the mean absolute error.

    Parameters
    ----------
    gold, predicted : sequence of float
        (n,) both, at least one.

    Returns
    -------
    float
        In the unit of the numbers.
    """
    gold, predicted = _numbers(gold, predicted, 1)
    errors = np.abs(gold - predicted)
    return float(errors.mean())


def rmse(gold: Numbers, predicted: Numbers) -> float:
    """Compute the root mean squared error.

    Parameters
    ----------
    gold, predicted : sequence of float
        (n,) both, at least one.

    Returns
    -------
    float
        In the unit of the numbers.
    """
    gold, predicted = _numbers(gold, predicted, 1)
    squares = np.square(gold - predicted)
    return float(np.sqrt(squares.mean()))


def r2(gold: Numbers, predicted: Numbers) -> float:
    """Compute the coefficient of determination, R²: the share of the variance that is predicted.

    Parameters
    ----------
    gold, predicted : sequence of float
        (n,) both, at least one.

    Returns
    -------
    float
        1 at best, 0 for predicting the mean of `gold`, negative for anything worse. If `gold` is constant, it
        is 1 without an error, else 0.
    """
    gold, predicted = _numbers(gold, predicted, 1)
    rest = np.square(gold - predicted).sum()
    whole = np.square(gold - gold.mean()).sum()
    if not whole:
        return float(rest == 0)
    return float(1 - rest / whole)


class Metric(NamedTuple):
    """A metric of gold and predicted values, and how to read it."""

    compute: Callable[[Any, Any], float]
    lowest: float = 0.0  # lowest possible value
    is_share: bool = True  # whether to show it as a percentage


METRICS = {
    "accuracy": Metric(accuracy),
    "f1": Metric(f1),
    "macro_f1": Metric(macro_f1),
    "matthews": Metric(matthews, lowest=-1.0),
    "pearson": Metric(pearson, lowest=-1.0),
    "spearman": Metric(spearman, lowest=-1.0),
    "r2": Metric(r2, lowest=-math.inf),
    "rmse": Metric(rmse, is_share=False),
    "mae": Metric(mae, is_share=False),
}


def _direction(x: np.ndarray) -> np.ndarray:
    """Return the deviations from the mean, scaled to length 1 in two steps so that no square overflows."""
    x = x - x.mean()
    x /= np.abs(x).max()
    return x / np.linalg.norm(x)


def _ranks(x: np.ndarray) -> np.ndarray:
    """Return the rank of each value, from 1; equal values share their mean rank."""
    _, which, counts = np.unique(x, return_inverse=True, return_counts=True)
    last_ranks = np.cumsum(counts)
    mean_ranks = last_ranks - (counts - 1) / 2
    return mean_ranks[which]


def _numbers(x: Numbers, y: Numbers, least: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Return both sequences as float64; refuse words, and fewer than `least` values."""
    x, y = _aligned(x, y)
    if x.dtype.kind in TEXT:
        raise InputError(f"This metric is for numbers, and {_first(x)!r} is not a number; give numbers.")
    if len(x) < least:
        raise InputError("One pair of numbers has no correlation; give two at least.")
    return x.astype(np.float64), y.astype(np.float64)


def _aligned(gold: Labels, predicted: Labels) -> tuple[np.ndarray, np.ndarray]:
    """Return both sequences as arrays; refuse other shapes, no value, and words on one side only."""
    gold = np.asarray(gold)
    predicted = np.asarray(predicted)
    if gold.ndim != 1 or gold.shape != predicted.shape:
        shapes = f"Gold and predicted values have the shapes {gold.shape} and {predicted.shape}"
        raise InputError(f"{shapes}; give one of each for every example.")
    if not len(gold):
        raise InputError("There is no example to score; give one at least.")
    if (gold.dtype.kind in TEXT) != (predicted.dtype.kind in TEXT):
        labels = f"The gold label {_first(gold)!r} and the predicted {_first(predicted)!r}"
        raise InputError(f"{labels} are a word and a number; give words on both sides, or numbers.")
    return gold, predicted


def _first(values: np.ndarray) -> Any:
    """Return the first value in Python's type, to format it as 'yes', not as np.str_('yes')."""
    return values[:1].tolist()[0]
