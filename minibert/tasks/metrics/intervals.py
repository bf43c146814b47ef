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

Statistic = Callable[[np.ndarray], float]


WILSON, BOOTSTRAP, ALIKE = "wilson", "bootstrap", "alike"  # how an interval was made
CORRELATIONS = ("matthews", "pearson", "spearman")  # metrics that go down to -1; others end at 0


class Interval(NamedTuple):
    """Where a metric would lie with other examples."""

    low: float
    high: float
    method: str  # WILSON, BOOTSTRAP, or ALIKE: Wilson's width, as all bootstrap samples were alike


@dataclass(frozen=True)
class Mean:
    """The mean of values, (n,) one for each example, as a statistic of the examples with some numbers."""

    values: np.ndarray

    def __call__(self, rows: np.ndarray) -> float:
        """Return the mean of these rows."""
        return float(self.values[rows].mean())

    @property
    def is_share(self) -> bool:
        """Whether each value says yes or no."""
        return bool(np.isin(self.values, (0, 1)).all())


def mean_of(values: np.ndarray) -> Mean:
    """Return the mean of values, (n,) one for each example, as a statistic to `interval` and `bootstrap`."""
    return Mean(np.asarray(values))


def wilson(right: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Return Wilson's interval of a share: `right` of `n` examples.

    It is where the share p may lie so that |right / n - p| is at most z standard deviations √(p (1 - p) / n).

    Parameters
    ----------
    right, n : how many examples are right, of how many; n at least 1.
    level : how often it holds the true share, between 0 and 1.

    Examples
    --------
    >>> [round(end, 3) for end in wilson(8, 8)], [round(end, 3) for end in wilson(0, 8)]
    ([0.676, 1.0], [0.0, 0.324])
    """
    z = NormalDist().inv_cdf((1 + level) / 2)
    share, spread = right / n, z * z / n
    middle = share + spread / 2
    half = z * math.sqrt(share * (1 - share) / n + spread / (4 * n))
    low, high = (middle - half) / (1 + spread), (middle + half) / (1 + spread)
    return (0.0 if right == 0 else low), (1.0 if right == n else high)


def interval(
    statistic: Statistic, n: int, lowest: float = 0.0, seed: int = 0, draws: int = 1000, level: float = 0.95
) -> Interval:
    """Return the interval of a metric over examples of the same kind as these.

    Parameters
    ----------
    statistic : the metric of the examples whose numbers it is given, (m,) int64; a `Mean` of yes and no is a
        share.
    n : how many examples there are.
    lowest : value that the metric can have; the highest is 1. -1 for correlations, else 0.
    seed, draws, level : as of `bootstrap`.

    Returns
    -------
    Both ends, not-a-number where the metric never is a number, and how they were found.

    Raises
    ------
    InputError
        As of `bootstrap`.
    """
    if isinstance(statistic, Mean) and statistic.is_share and n > 0:
        return Interval(*wilson(int(statistic.values.sum()), n, level), WILSON)
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
    Wilson's of as many examples that are all alike. Arguments, result and errors are those of `interval`.
    """
    ends, whole = paired_bootstrap(a, b, n, seed, draws, level), 1.0 - lowest
    return _not_a_point(*ends, n, (-whole, whole), whole, level)


def _not_a_point(
    low: float, high: float, n: int, bounds: tuple[float, float], whole: float, level: float
) -> Interval:
    """Return an interval of the bootstrap or, where it is a point, one around that within bounds."""
    if not high - low <= 1e-12 * whole:
        return Interval(low, high, BOOTSTRAP)
    width = whole * wilson(0, n, level)[1]
    return Interval(max(bounds[0], low - width), min(bounds[1], high + width), ALIKE)


def lowest_of(metric: str) -> float:
    """Return the lowest value that a metric can have, by its name."""
    return -1.0 if metric in CORRELATIONS else 0.0


def bootstrap(
    statistic: Statistic, n: int, seed: int = 0, draws: int = 1000, level: float = 0.95
) -> tuple[float, float]:
    """Return the percentile interval of a metric over examples that are drawn anew, with replacement.

    Draws for which the metric is not a number are left out; both ends are not-a-number where it never is one.

    Parameters
    ----------
    statistic : the metric of the examples whose numbers it is given, (n,) int64, some of them several times.
    n : how many examples there are.
    seed : of the draws; the same seed draws the same examples.
    draws : how often all n are drawn.
    level : the share of the draws that lies inside.

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
        raise InputError(f"draws={draws} makes no interval; give 1 or more, such as 1000.")
    if not 0 < level < 1:
        raise InputError(f"level={level:g} is no share of the draws between 0 and 1; give 0.95, for example.")
    rng = np.random.default_rng(seed)
    values = np.array([statistic(rng.integers(n, size=n)) for _ in range(draws)], np.float64)
    if not len(values := values[~np.isnan(values)]):
        return math.nan, math.nan
    low, high = np.percentile(values, [50 * (1 - level), 50 * (1 + level)])
    return float(low), float(high)


def paired_bootstrap(
    a: Statistic, b: Statistic, n: int, seed: int = 0, draws: int = 1000, level: float = 0.95
) -> tuple[float, float]:
    """Return the percentile interval of the difference a - b of two metrics on the same examples.

    Both are given the same draws, so what makes an example easy or hard for both cancels: the interval is
    narrower than those of a and b suggest. See `bootstrap` for parameters, errors and result.
    """
    return bootstrap(lambda rows: a(rows) - b(rows), n, seed, draws, level)
