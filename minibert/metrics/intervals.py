"""Bootstrap intervals: how far a metric would move with other examples of the same kind (Efron, 1979)."""

import math
from collections.abc import Callable

import numpy as np

from minibert.errors import InputError

Statistic = Callable[[np.ndarray], float]


def mean_of(values: np.ndarray) -> Statistic:
    """Return the mean of values, (n,) one for each example, as a statistic to `bootstrap`."""
    return lambda rows: float(values[rows].mean())


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
