"""Intervals: how far a metric would move with other examples of the same kind.

A share of examples, such as accuracy, has Wilson's interval (1927, "Probable inference, the law of
succession, and statistical inference"), any other metric that of the bootstrap (Efron, 1979). The bootstrap
can only draw examples that are there: where all of them are right, every sample is, and its interval would be
a point. There the interval is as wide as Wilson's of as many examples that are all alike.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from minibert.base.errors import InputError
from minibert.tasks.metrics.scores import METRICS

Statistic = Callable[[np.ndarray], float]


WILSON, BOOTSTRAP, ALIKE = "wilson", "bootstrap", "alike"  # how an interval was made


class Interval(NamedTuple):
    """The interval of a metric over other samples of examples."""

    low: float
    high: float
    method: str  # WILSON, BOOTSTRAP, or ALIKE: Wilson's width, as all bootstrap samples were alike


@dataclass(frozen=True)
class Mean:
    """The mean of values as a statistic of the examples with some numbers.

    Parameters
    ----------
    values : numpy.ndarray
        One for each example, (n,).
    """

    values: np.ndarray

    def __call__(self, rows: np.ndarray) -> float:
        """Return the mean of these rows."""
        return float(self.values[rows].mean())

    @property
    def is_share(self) -> bool:
        """Whether each value says yes or no."""
        return bool(np.isin(self.values, (0, 1)).all())


def mean_of(values: np.ndarray) -> Mean:
    """Return the mean of values as a statistic to `interval` and `bootstrap`.

    Parameters
    ----------
    values : array_like
        One for each example, (n,); where all of them are 0 or 1, or bool, their mean is a share.

    Returns
    -------
    Mean
        To be called with numbers of examples.
    """
    return Mean(np.asarray(values))


def wilson(right: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Return Wilson's interval of a share: `right` of `n` examples.

    It is where the share p may lie so that |right / n - p| is at most z standard deviations √(p (1 - p) / n).

    Parameters
    ----------
    right : int
        How many examples are right.
    n : int
        Of how many, at least 1.
    level : float, default 0.95
        How often it holds the true share, between 0 and 1.

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
    draws: int = 1000,
    level: float = 0.95,
) -> Interval:
    """Return the interval of a metric over examples of the same kind as these.

    Parameters
    ----------
    statistic : callable
        The metric of the examples whose numbers it is given, (m,) int64; a `Mean` of yes and no is a share.
    n : int
        How many examples there are.
    lowest : float, default 0
        Value that the metric can have; the highest is 1. It is -1 for correlations.
    seed : int, default 0
        As of `bootstrap`.
    draws : int, default 1000
        As of `bootstrap`.
    level : float, default 0.95
        As of `bootstrap`.

    Returns
    -------
    Interval
        Both ends, not-a-number where the metric never is a number, and how they were found.

    Raises
    ------
    InputError
        As of `bootstrap`.
    """
    if isinstance(statistic, Mean) and statistic.is_share and n > 0:
        right = int(statistic.values.sum())
        return Interval(*wilson(right, n, level), WILSON)
    ends = bootstrap(statistic, n, seed, draws, level)
    return _not_a_point(*ends, n, (lowest, 1.0), 1.0 - lowest, level)


def paired_interval(
    a: Statistic,
    b: Statistic,
    n: int,
    lowest: float = 0.0,
    seed: int = 0,
    draws: int = 1000,
    level: float = 0.95,
) -> Interval:
    """Return the interval of the difference a - b of two metrics on the same examples.

    That is `paired_bootstrap`'s or, where no sample tells the difference from another one, as wide as
    Wilson's of as many examples that are all alike.

    Parameters
    ----------
    a, b : callable
        The metrics of the examples whose numbers they are given, (m,) int64.
    n : int
        How many examples there are.
    lowest : float, default 0
        Value that each metric can have; the highest is 1.
    seed : int, default 0
        As of `bootstrap`.
    draws : int, default 1000
        As of `bootstrap`.
    level : float, default 0.95
        As of `bootstrap`.

    Returns
    -------
    Interval
        As of `interval`.

    Raises
    ------
    InputError
        As of `bootstrap`.
    """
    ends = paired_bootstrap(a, b, n, seed, draws, level)
    whole = 1.0 - lowest
    return _not_a_point(*ends, n, (-whole, whole), whole, level)


def _not_a_point(
    low: float,
    high: float,
    n: int,
    bounds: tuple[float, float],
    whole: float,
    level: float,
) -> Interval:
    """Return an interval of the bootstrap or, where it is a point, one around that within bounds."""
    if not high - low <= 1e-12 * whole:
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
        Its name.

    Returns
    -------
    float
        That of the table `METRICS`; 0 where it is not there, as shares of SQuAD's and of tags are not.
    """
    return METRICS[metric].lowest if metric in METRICS else 0.0


def bootstrap(
    statistic: Statistic,
    n: int,
    seed: int = 0,
    draws: int = 1000,
    level: float = 0.95,
) -> tuple[float, float]:
    """Return the percentile interval of a metric over examples that are drawn anew, with replacement.

    Parameters
    ----------
    statistic : callable
        The metric of the examples whose numbers it is given, (n,) int64, some of them several times.
    n : int
        How many examples there are.
    seed : int, default 0
        Seed of the draws; the same seed draws the same examples.
    draws : int, default 1000
        How often all n are drawn. Draws for which the metric is not a number are left out.
    level : float, default 0.95
        The share of the draws that lies inside, between 0 and 1.

    Returns
    -------
    tuple of float
        Both ends; not-a-number where the metric never is a number.

    Raises
    ------
    InputError
        When there is no example, no draw, or `level` is not a share.

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

    Both are given the same draws, so what makes an example easy or hard for both cancels: the interval is
    narrower than those of a and b suggest.

    Parameters
    ----------
    a, b : callable
        The metrics of the examples whose numbers they are given, (n,) int64.
    n : int
        How many examples there are.
    seed : int, default 0
        Seed of the draws.
    draws : int, default 1000
        How often all n are drawn.
    level : float, default 0.95
        The share of the draws that lies inside.

    Returns
    -------
    tuple of float
        As of `bootstrap`.

    Raises
    ------
    InputError
        As of `bootstrap`.
    """
    return bootstrap(lambda rows: a(rows) - b(rows), n, seed, draws, level)
