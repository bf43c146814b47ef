"""Judge whether one row of a table is better than another, from a few trainings each on the same examples.

Other seeds and other examples would give another difference. Seeds: two rows with 3 to 5 say too little, so
what the additive model rows + seeds leaves is pooled over the column, with its degrees of freedom for t; it
counts at least half of what the two rows leave, and at least their flips, examples that change from seed to
seed. Examples: the spread of the mean over seeds, less the flips, which seeds have counted. The interval
reaches to the root of (t se_seeds)^2 + (1.96 se_examples)^2 (Howe 1974). Nothing is drawn at random.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Self

import numpy as np

from minibert.base.errors import InputError

DIGITS = {"mean": "01", "f1": "0123456789"}  # of the values that JSON has as one string
NOT_RUN = "not run"  # in place of an answer
NODES, WEIGHTS = np.polynomial.legendre.leggauss(32)
Trainings = Mapping[str, Mapping[int, "Outcomes"]]  # by row and seed
Interval = tuple[float, float, float, float]  # a mean, its ends, and what is told from 0 with 80% power


class Outcomes(NamedTuple):
    """What a metric is computed from, example by example, of one training."""

    kind: str  # "mean": the metric is the mean of the values; "f1": micro F1 of counts
    values: np.ndarray  # "mean": (n,) float64; "f1": (n,3) int64: right, found, expected
    groups: tuple[int, ...] = ()  # sizes of groups of neighbours that are alike, sentences of a document

    def score(self, rows: Any = None) -> float:
        """Return the metric of all examples, or of those numbered, some of them several times."""
        values = self.values if rows is None else self.values[rows]
        if self.kind == "mean":
            return float(values.mean())
        right, found, expected = values.sum(axis=0).tolist()
        return 2 * right / (found + expected) if found + expected else 0.0

    def parts(self, grouped: bool = True) -> np.ndarray:
        """Return (n,), or one a group: the mean is the metric (F1 to first order), the spread its noise."""
        parts = self.values
        if self.kind == "f1":
            score, marked = self.score(), self.values[:, 1] + self.values[:, 2]
            parts = score + (2 * self.values[:, 0] - score * marked) / (marked.mean() or 1.0)
        if not self.groups or not grouped:
            return parts
        begins, mean = np.cumsum((0, *self.groups[:-1])), parts.mean()
        return mean + np.add.reduceat(parts - mean, begins) * (len(self.groups) / len(parts))

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads."""
        digits, flat = DIGITS[self.kind], self.values.ravel().tolist()
        short = set(flat) <= set(range(len(digits)))
        found = {"kind": self.kind, "values": "".join(digits[int(x)] for x in flat) if short else flat}
        return found | ({"groups": list(self.groups)} if self.groups else {})

    @classmethod
    def from_json(cls, found: Any) -> Self:
        """Return the outcomes that `to_json` was given; raise InputError when this is none of its results."""
        with suppress(KeyError, OverflowError, TypeError, ValueError):
            kind, given, groups = found["kind"], found["values"], tuple(found.get("groups", ()))
            flat = [DIGITS[kind].index(x) for x in given] if isinstance(given, str) else given
            values = np.array(flat, np.int64).reshape(-1, 3) if kind == "f1" else np.array(flat, np.float64)
            if kind == "f1" and (values.min() < 0 or (values[:, :1] > values).any()):
                raise ValueError("counts")
            if groups and (min(groups) < 1 or sum(groups) != len(values)):
                raise ValueError("groups")
            if len(values) and np.isfinite(values).all() and cls(kind, values).to_json()["values"] == given:
                return cls(kind, values, groups)
        raise InputError(f"{found!r:.60} are no outcomes; give a kind and values as Outcomes.to_json does.")


class Estimate(NamedTuple):
    """How good a row is: the mean over seeds and its 95% interval, without ends for one seed."""

    value: float
    low: float
    high: float
    seeds: tuple[float, ...]


class Verdict(NamedTuple):
    """Whether one row is better than another; below two common seeds all but `effect` is infinite."""

    answer: str  # "yes", "no" (the reverse shows), "undecided", "at the floor"
    effect: float  # better - worse, over common seeds
    low: float  # its 95% interval
    high: float
    smallest: float  # the effect that is seen with 80% power at this noise


class Judge:
    """One column of a table: trainings by row and seed, and the strongest trivial baseline beside them.

    What another seed would change is estimated from the trainings in `pool`, by default those of the rows.
    """

    def __init__(self, rows: Trainings, floor: Outcomes | None = None, pool: Trainings | None = None) -> None:
        if not rows or not all(rows.values()):
            raise InputError(f"rows={list(rows)}: one has no training; give at least one of each.")
        given = [one for part in (rows, pool or {}) for seeds in part.values() for one in seeds.values()]
        given += [floor] if floor is not None else []
        shapes = {(one.kind, one.values.shape) for one in given}
        if len(shapes) > 1:
            raise InputError(f"Outcomes of one column are {sorted(shapes)}; give the same examples.")
        # Results of earlier versions know no groups: then each example counts for itself everywhere.
        grouped = len({one.groups for one in given}) == 1
        self._parts = {name: {seed: one.parts(grouped) for seed, one in rows[name].items()} for name in rows}
        self._floor = floor.parts(grouped) if floor else None
        rows = rows if pool is None else pool
        cells = [(row, seed, one) for row, seeds in rows.items() for seed, one in seeds.items()]
        # A row that has collapsed to one answer has no noise, and would hide that of the others.
        steady = {row for row in rows if len({one.score() for one in rows[row].values()}) == 1}
        noisy = [cell for cell in cells if cell[0] not in steady or len(rows) - len(steady) < 2]
        for kept in (noisy, cells):  # all where the others alone say nothing of noise
            names, seeds = (np.array([cell[i] for cell in kept]) for i in (0, 1))
            scores = np.array([cell[2].score() for cell in kept])
            self._within, self._residual = _unexplained(scores, names), _unexplained(scores, names, seeds)
            if self._within[1] and self._residual[1]:
                break

    def estimate(self, row: str) -> Estimate:
        """Return how good a row is."""
        parts = self._stacked(row, row)
        return Estimate(*self._of_row(parts)[:3], tuple(parts.mean(axis=1).tolist()))

    def compare(self, better: str, worse: str) -> Verdict:
        """Return whether one row is better than another, paired by seed and by example."""
        first, second = self._stacked(better, worse), self._stacked(worse, better)
        if len(self._parts[better].keys() & self._parts[worse].keys()) < 2:
            return Verdict("undecided", float(first.mean() - second.mean()), -math.inf, math.inf, math.inf)
        squares, freedom = self._residual
        interval = _interval(first - second, 2 * squares / freedom, freedom)
        answer = "yes" if interval[1] > 0 else "no" if interval[2] < 0 else "undecided"
        if self._floor is not None:
            rows = (self._stacked(row, row) - self._floor for row in (better, worse))
            answer = answer if any(self._of_row(row)[1] > 0 for row in rows) else "at the floor"
        return Verdict(answer, *interval)

    def _stacked(self, row: str, other: str) -> np.ndarray:
        """Return (S,n), a row's trainings with the seeds that another has, or all where it has none."""
        seeds = self._parts[row]
        return np.stack([seeds[seed] for seed in sorted(seeds.keys() & self._parts[other].keys() or seeds)])

    def _of_row(self, parts: np.ndarray) -> Interval:
        if len(parts) < 2:
            return float(parts.mean()), -math.inf, math.inf, math.inf
        # What seeds do to all rows and what they do to each are summed by Satterthwaite's rule (1946).
        (squares, freedom), (residual, rest) = self._within, self._residual
        by_part = (squares - residual) ** 2 / max(1, freedom - rest) + residual**2 / max(1, rest)
        return _interval(parts, squares / freedom, max(1.0, squares**2 / by_part) if by_part else 1.0)


def _unexplained(scores: np.ndarray, *factors: np.ndarray) -> tuple[float, int]:
    """Return the sum of squares that an additive model of factors leaves, and its degrees of freedom."""
    design = np.hstack([factor[:, None] == np.unique(factor) for factor in factors]).astype(np.float64)
    fitted, _, rank, _ = np.linalg.lstsq(design, scores)
    return float(((scores - design @ fitted) ** 2).sum()), len(scores) - int(rank)


# parts (S,n)
def _interval(parts: np.ndarray, pooled: float, freedom: float) -> Interval:
    """Return the interval of a mean over seeds, each with the pooled variance, and over examples."""
    (seeds, n), of_seeds, of_examples = parts.shape, parts.mean(axis=1), parts.mean(axis=0)
    left, mean = parts - of_seeds[:, None] - of_examples + parts.mean(), float(parts.mean())
    flips = float((left**2).sum()) / ((seeds - 1) * max(1, n - 1) * n)
    examples = max(0.0, float(((of_examples - mean) ** 2).sum()) / (max(1, n - 1) * n) - flips / seeds)
    noise = max(pooled, (pooled + float(of_seeds.var(ddof=1))) / 2, flips) / seeds
    quantiles = (t_quantile(0.975, freedom), 1.959964), (t_quantile(0.8, freedom), 0.841621)
    half, more = (math.sqrt(t * t * noise + z * z * examples) for t, z in quantiles)
    value, low, high, seen = (round(x, 12) for x in (mean, mean - half, mean + half, half + more))
    return value, low, high, seen  # what rounding leaves of no difference decides nothing


def t_quantile(share: float, freedom: float) -> float:
    """Return Student's t above its median, by Newton's method from 0 for atan(t / sqrt(freedom))."""
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)
    angle = 0.0
    for _ in range(12):
        area = angle / 2 * float(WEIGHTS @ np.cos(angle / 2 * (NODES + 1)) ** (freedom - 1))
        angle += ((share - 0.5) / scale - area) / math.cos(angle) ** (freedom - 1)
    return math.sqrt(freedom) * math.tan(angle)


def effect_text(verdict: Verdict, percent: bool = True) -> str:
    """Return the effect of a verdict with its interval, such as "+7.2 [5.1, 9.0]"."""
    effect, low, high, smallest = (f"{100 * x:.1f}" if percent else f"{x:.3f}" for x in verdict[1:])
    ends = f" [{low}, {high}]"
    if verdict.answer == "undecided":
        seen = f"{ends}; an effect of about {smallest} would be seen in four of five"
        ends = "; one seed does not show how much seeds differ" if math.isinf(verdict.smallest) else seen
    return f"{'+' * (verdict.effect >= 0)}{effect}{ends}"
