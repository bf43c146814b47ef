"""GLUE's metrics of two sequences, gold and predicted, as scikit-learn and SciPy define them.

Both are (n,) labels, numbers or words; a correlation is of numbers, at least two. Where a metric is undefined
it is what those libraries return: 0 for F1 without a positive and for Matthews of one class only,
not-a-number for a correlation with something constant.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minibert.base.errors import InputError

Labels = Sequence[Any] | np.ndarray
Numbers = Sequence[float] | np.ndarray
TEXT = "USO"  # kinds of arrays that hold words


def accuracy(gold: Labels, predicted: Labels) -> float:
    """Return the share of examples whose label is right.

    Raise InputError, as every metric here, for no example, unequal lengths, or words on one side only.
    """
    gold, predicted = _aligned(gold, predicted)
    return float(np.mean(gold == predicted))


def f1(gold: Labels, predicted: Labels, positive: Any = 1) -> float:
    """Return the harmonic mean of precision and recall of one label.

    It is 2 TP / (2 TP + FP + FN), and 0 without a `positive` on either side; all other labels are the rest.
    """
    gold, predicted = _aligned(gold, predicted)
    if (gold.dtype.kind in TEXT) != isinstance(positive, str):
        raise InputError(f"{positive=} can't be among labels like {_first(gold)!r}; give one of the labels.")
    is_gold, is_predicted = gold == positive, predicted == positive
    marked = int(is_gold.sum() + is_predicted.sum())
    return 2 * int((is_gold & is_predicted).sum()) / marked if marked else 0.0


# gold predicted (n,K) -> (K,)
def label_f1(gold: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Return the F1 of each of K classes, any number of which apply to an example.

    Both are bool, whether a class applies; F1 is 0 for a class that there is on neither side.
    """
    marked = gold.sum(axis=0) + predicted.sum(axis=0)
    return 2 * (gold & predicted).sum(axis=0) / np.maximum(1, marked)


def macro_f1(gold: Labels, predicted: Labels) -> float:
    """Return the mean of the F1 of every label that occurs on either side, each counted alike."""
    table = confusion(gold, predicted)
    return float(np.mean(2 * np.diag(table) / (table.sum(axis=0) + table.sum(axis=1))))


def matthews(gold: Labels, predicted: Labels) -> float:
    """Compute Matthews' correlation coefficient of any number of classes, 0 where either side has one only.

    Gorodkin (2004), "Comparing two K-category assignments by a K-category correlation coefficient".
    """
    table = confusion(gold, predicted)
    # Covariances times n², as integers of Python: from n = 55,000 on their product outgrows 64 bits.
    n, right = int(table.sum()), int(np.trace(table))
    of_gold, of_predicted = table.sum(axis=1).tolist(), table.sum(axis=0).tolist()
    together = n * right - sum(g * p for g, p in zip(of_gold, of_predicted, strict=True))
    spread = (n * n - sum(g * g for g in of_gold)) * (n * n - sum(p * p for p in of_predicted))
    return together / math.sqrt(spread) if spread else 0.0


# -> (K,K) int64
def confusion(gold: Labels, predicted: Labels, labels: Labels | None = None) -> np.ndarray:
    """Return how often each label was taken for each.

    There is a row for each gold label and a column for each predicted one, in the order of `labels` (K,);
    without these of all that occur, sorted. Raise InputError when one is not among them.
    """
    gold, predicted = _aligned(gold, predicted)
    found, codes = np.unique(np.concatenate([gold, predicted]), return_inverse=True)
    if labels is not None:
        numbers = {label: number for number, label in enumerate(np.asarray(labels).tolist())}
        if unknown := [label for label in found.tolist() if label not in numbers]:
            unlike = f"{unknown[0]!r} is not among the labels {', '.join(map(str, numbers))}"
            raise InputError(f"{unlike}; give all labels that occur.")
        codes = np.array([numbers[label] for label in found.tolist()])[codes]
    K = len(found) if labels is None else len(numbers)
    rows, columns = codes[: len(gold)], codes[len(gold) :]
    return np.bincount(rows * K + columns, minlength=K * K).reshape(K, K)


def pearson(x: Numbers, y: Numbers) -> float:
    """Compute Pearson's correlation; not-a-number where either is constant or holds what is not finite."""
    x, y = _numbers(x, y)
    if not (np.isfinite(x).all() and np.isfinite(y).all()) or (x == x[0]).all() or (y == y[0]).all():
        return math.nan
    x, y = _direction(x), _direction(y)
    return float(np.clip(x @ y, -1, 1))


def spearman(x: Numbers, y: Numbers) -> float:
    """Compute Spearman's correlation: Pearson's of the ranks, equal values sharing their mean.

    Not-a-number where either is constant or holds not-a-number.
    """
    x, y = _numbers(x, y)
    return math.nan if np.isnan(x).any() or np.isnan(y).any() else pearson(_ranks(x), _ranks(y))


def mae(gold: Numbers, predicted: Numbers) -> float:
    """Compute the mean absolute error, in the unit of the numbers."""
    gold, predicted = _numbers(gold, predicted, 1)
    return float(np.abs(gold - predicted).mean())


def rmse(gold: Numbers, predicted: Numbers) -> float:
    """Compute the root of the mean squared error, in the unit of the numbers."""
    gold, predicted = _numbers(gold, predicted, 1)
    return float(np.sqrt(np.square(gold - predicted).mean()))


def r2(gold: Numbers, predicted: Numbers) -> float:
    """Compute the coefficient of determination, R²: the share of the variance that is predicted.

    It is 1 at best, 0 for the mean of `gold`, and below 0 for what is worse. Where `gold` is constant it is 1
    without an error, else 0.
    """
    gold, predicted = _numbers(gold, predicted, 1)
    rest, whole = np.square(gold - predicted).sum(), np.square(gold - gold.mean()).sum()
    return float(1 - rest / whole if whole else rest == 0)


def _direction(x: np.ndarray) -> np.ndarray:
    """Return the deviations from the mean at length 1, scaled first: no square overflows or vanishes."""
    x = x - x.mean()
    x /= np.abs(x).max()
    return x / np.linalg.norm(x)


def _ranks(x: np.ndarray) -> np.ndarray:
    _, which, counts = np.unique(x, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[which]


def _numbers(x: Numbers, y: Numbers, least: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Return both as float64, at least so many of each."""
    x, y = _aligned(x, y)
    if x.dtype.kind in TEXT:
        raise InputError(f"This metric is of numbers, and {_first(x)!r} is none; give numbers.")
    if len(x) < least:
        raise InputError("One pair of numbers has no correlation; give two at least.")
    return x.astype(np.float64), y.astype(np.float64)


def _aligned(gold: Labels, predicted: Labels) -> tuple[np.ndarray, np.ndarray]:
    gold, predicted = np.asarray(gold), np.asarray(predicted)
    if gold.ndim != 1 or gold.shape != predicted.shape:
        shapes = f"Gold and predicted values have the shapes {gold.shape} and {predicted.shape}"
        raise InputError(f"{shapes}; give one of each for every example.")
    if not len(gold):
        raise InputError("There is no example to score; give one at least.")
    if (gold.dtype.kind in TEXT) != (predicted.dtype.kind in TEXT):
        both = f"The gold label {_first(gold)!r} and the predicted {_first(predicted)!r}"
        raise InputError(f"{both} are a word and a number; give words on both sides, or numbers.")
    return gold, predicted


def _first(values: np.ndarray) -> Any:
    """Format a value as Python writes it: 'yes', not np.str_('yes')."""
    return values[:1].tolist()[0]
