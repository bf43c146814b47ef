"""Confidence intervals: how far a metric would move with other examples of the same kind.

A share of examples, such as accuracy, has Wilson's interval (1927, "Probable inference, the law of
succession, and statistical inference"); any other metric has that of the bootstrap (Efron, 1979). The
bootstrap can only draw examples that there are: if all of them are right, so is every sample, and the
interval is a point. In that case the interval is as wide as Wilson's for as many examples that are all alike.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from minibert.base.errors import InputError
from minibert.tasks.metrics.scores import METRICS

Statistic = Callable[[np.ndarray], float]  # takes indices of examples, with repeats, (m,) int64

WILSON, BOOTSTRAP, ALIKE = "wilson", "bootstrap", "alike"  # how an interval was computed


class Interval(NamedTuple):
    """The confidence interval of a metric over other samples of examples."""

    low: float
    high: float
    method: str  # WILSON, BOOTSTRAP, or ALIKE: Wilson's width, as all bootstrap samples were alike


@dataclass(frozen=True)
class Mean:
    """A statistic: the mean of the values at the given indices.

    Parameters
    ----------
    values : numpy.ndarray
        One value for each example, (n,).
    """

    values: np.ndarray

    # indices (m,) int64
    def __call__(self, indices: np.ndarray) -> float:
        """Return the mean of the values at these indices."""
        return float(self.values[indices].mean())

    @property
    def is_share(self) -> bool:
        """Whether every value is 0 or 1, so that their mean is a share."""
        return bool(np.isin(self.values, (0, 1)).all())


def mean_of(values: np.ndarray) -> Mean:
    """Return the mean of values as a statistic for `interval` and `bootstrap`.

    Parameters
    ----------
    values : array_like
        One value for each example, (n,). If all are 0 or 1, or bool, their mean is a share.

    Returns
    -------
    Mean
        Takes indices of examples, with repeats, and returns the mean of their values.
    """
    return Mean(np.asarray(values))


def wilson(right: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Return Wilson's interval of a share: `right` of `n` examples.

    It holds every share p for which |right / n - p| is at most z standard deviations √(p (1 - p) / n).

    Parameters
    ----------
    right : int
        How many examples are right.
    n : int
        How many examples there are, at least 1.
    level : float, default 0.95
        How often the interval holds the true share, between 0 and 1.

    Returns
    -------
    tuple of float
        Both ends, from 0 to 1.

    Examples
    --------
    >>> [round(end, 3) for end in wilson(8, 8)], [round(end, 3) for end in wilson(0, 8)]
    ([0.676, 1.0], [0.0, 0.324])
    """
    z = NormalDist().inv_cdf((1 + level) / 2)
    share = right / n
    spread = z * z / n
    middle = share + spread / 2
    variance = share * (1 - share) / n + spread / (4 * n)
    half = z * math.sqrt(variance)
    low = (middle - half) / (1 + spread)
    high = (middle + half) / (1 + spread)
    if right == 0:
        low = 0.0
    if right == n:
        high = 1.0
    return low, high


def interval(
    statistic: Statistic,
    n: int,
    lowest: float = 0.0,
    seed: int = 0,
    level: float = 0.95,
) -> Interval:
    """Return the confidence interval of a metric over examples of the same kind as these.

    Parameters
    ----------
    statistic : callable
        Takes indices of examples, with repeats, (m,) int64, and returns the metric over these examples. For a
        `Mean` of zeros and ones the interval is Wilson's.
    n : int
        How many examples there are.
    lowest : float, default 0
        Lowest value of the metric, such as -1 for correlations; the highest is 1.
    seed : int, default 0
        Seed of the draws, see `bootstrap`.
    level : float, default 0.95
        The share of the draws that the interval holds, see `bootstrap`.

    Returns
    -------
    Interval
        Both ends, and how they were computed. They are not-a-number if the metric is so for every draw.

    Raises
    ------
    InputError
        For the same reasons as `bootstrap`.
    """
    if isinstance(statistic, Mean) and statistic.is_share and n > 0:
        right = int(statistic.values.sum())
        return Interval(*wilson(right, n, level), WILSON)
    ends = bootstrap(statistic, n, seed, level=level)
    return _not_a_point(*ends, n, (lowest, 1.0), 1.0 - lowest, level)


def paired_interval(
    a: Statistic,
    b: Statistic,
    n: int,
    lowest: float = 0.0,
) -> Interval:
    """Return the 95% confidence interval of the difference a - b of two metrics on the same examples.

    It is that of `paired_bootstrap`. If all samples have the same difference, it is as wide as Wilson's for
    as many examples that are all alike.

    Parameters
    ----------
    a, b : callable
        Each takes indices of examples, with repeats, (m,) int64, and returns its metric over these examples.
    n : int
        How many examples there are.
    lowest : float, default 0
        Lowest value of each metric; the highest is 1.

    Returns
    -------
    Interval
        Both ends, and how they were computed, see `interval`.

    Raises
    ------
    InputError
        For the same reasons as `bootstrap`.
    """
    ends = paired_bootstrap(a, b, n)
    whole = 1.0 - lowest
    return _not_a_point(*ends, n, (-whole, whole), whole)


def _not_a_point(
    low: float,
    high: float,
    n: int,
    bounds: tuple[float, float],
    whole: float,
    level: float = 0.95,
) -> Interval:
    """Return the bootstrap's interval or, if that is a point, a wider one around it, within the bounds."""
    if not high - low <= 1e-12 * whole:  # also where they are not-a-number
        return Interval(low, high, BOOTSTRAP)
    _, share = wilson(0, n, level)
    width = whole * share
    lowest, highest = bounds
    return Interval(max(lowest, low - width), min(highest, high + width), ALIKE)


def lowest_of(metric: str) -> float:
    """Return the lowest value that a metric can have.

    Parameters
    ----------
    metric : str
        Name of the metric.

    Returns
    -------
    float
        The value in the table `METRICS`; 0 for others, such as the metrics of SQuAD and of tags.
    """
    return METRICS[metric].lowest if metric in METRICS else 0.0


def bootstrap(
    statistic: Statistic,
    n: int,
    seed: int = 0,
    draws: int = 1000,
    level: float = 0.95,
) -> tuple[float, float]:
    """Return the percentile interval of a metric over examples drawn with replacement.

    Parameters
    ----------
    statistic : callable
        Takes indices of examples, with repeats, (n,) int64, and returns the metric over these examples.
    n : int
        How many examples there are.
    seed : int, default 0
        Seed of the draws; the same seed draws the same examples.
    draws : int, default 1000
        How many samples of n examples to draw. Those for which the metric is not-a-number are left out.
    level : float, default 0.95
        The share of the draws that the interval holds, between 0 and 1.

    Returns
    -------
    tuple of float
        Both ends; not-a-number if the metric is so for every draw.

    Raises
    ------
    InputError
        When there is no example or no draw, or `level` is not between 0 and 1.

    Examples
    --------
    >>> right = np.array([1, 1, 0, 1] * 100)
    >>> low, high = bootstrap(lambda rows: right[rows].mean(), len(right))
    >>> 0.70 < low < 0.72 and 0.78 < high < 0.80
    True
    """
    if n < 1:
        raise InputError("There is no example to draw; give one at least.")
    if draws < 1:
        raise InputError(f"{draws=} makes no interval; give 1 or more, such as 1000.", draws=draws)
    if not 0 < level < 1:
        advice = "give a share of the draws, such as 0.95."
        raise InputError(f"{level=} is not between 0 and 1; {advice}", level=level)
    rng = np.random.default_rng(seed)
    values = np.array([statistic(rng.integers(n, size=n)) for _ in range(draws)], np.float64)
    values = values[~np.isnan(values)]
    if not len(values):
        return math.nan, math.nan
    low, high = np.percentile(values, [50 * (1 - level), 50 * (1 + level)])
    return float(low), float(high)


def paired_bootstrap(
    a: Statistic,
    b: Statistic,
    n: int,
    seed: int = 0,
    draws: int = 1000,
    level: float = 0.95,
) -> tuple[float, float]:
    """Return the percentile interval of the difference a - b of two metrics on the same examples.

    Both metrics see the same draws, so whatever makes an example easy or hard for both cancels out: the
    interval is narrower than the intervals of a and b suggest.

    Parameters
    ----------
    a, b : callable
        Each takes indices of examples, with repeats, (n,) int64, and returns its metric over these examples.
    n : int
        How many examples there are.
    seed : int, default 0
        Seed of the draws.
    draws : int, default 1000
        How many samples of n examples to draw.
    level : float, default 0.95
        The share of the draws that the interval holds.

    Returns
    -------
    tuple of float
        Both ends, see `bootstrap`.

    Raises
    ------
    InputError
        For the same reasons as `bootstrap`.
    """
    return bootstrap(lambda rows: a(rows) - b(rows), n, seed, draws, level)
