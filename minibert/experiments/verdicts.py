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
from importlib.util import find_spec
from typing import Any, NamedTuple, Self

import numpy as np

from minibert.base.errors import InputError

DIGITS = {"mean": "01", "f1": "0123456789"}  # of the values that JSON has as one string
NOT_RUN = "not run"  # in place of an answer
Trainings = Mapping[str, Mapping[int, "Outcomes"]]  # by row and seed
# A mean, the ends of its interval, and the effect that is seen with 80% power.
Interval = tuple[float, float, float, float]
Squares = tuple[float, int]  # a sum of squares, and its degrees of freedom
NORMAL_975 = 1.959964  # quantiles of the normal distribution: of a 95% interval,
NORMAL_80 = 0.841621  # and of a power of 80%


class Outcomes(NamedTuple):
    """The values that a metric is computed from, for each example of one training."""

    kind: str  # "mean": the metric is the mean of the values; "f1": micro F1 of counts
    values: np.ndarray  # "mean": (n,) float64; "f1": (n,3) int64: right, predicted, expected
    groups: tuple[int, ...] = ()  # sizes of groups of neighbours that are alike, sentences of a document

    def score(self, rows: Any = None) -> float:
        """Return the metric of all examples, or of some.

        Parameters
        ----------
        rows : (k,) int, default None
            Numbers of the examples, some of them several times; None for all, once each.

        Returns
        -------
        float
            The mean, or micro F1 as a share of one: 0.0 where nothing is predicted or expected.
        """
        values = self.values if rows is None else self.values[rows]
        if self.kind == "mean":
            return float(values.mean())
        right, predicted, expected = values.sum(axis=0).tolist()
        if not predicted + expected:
            return 0.0
        return 2 * right / (predicted + expected)

    def parts(self, grouped: bool = True) -> np.ndarray:
        """Return numbers whose mean is the metric, and whose spread is its noise.

        Micro F1 is not a mean of its examples; its parts are those of the metric to first order.

        Parameters
        ----------
        grouped : bool, default True
            Join the examples of each group, where there are groups, as they are not independent.

        Returns
        -------
        (n,) float64
            One for each example, or one for each group.
        """
        parts = self.values
        if self.kind == "f1":
            score = self.score()
            marked = self.values[:, 1] + self.values[:, 2]
            excess = 2 * self.values[:, 0] - score * marked
            parts = score + excess / (marked.mean() or 1.0)
        if not self.groups or not grouped:
            return parts
        begins = np.cumsum((0, *self.groups[:-1]))
        mean = parts.mean()
        sums = np.add.reduceat(parts - mean, begins)
        return mean + sums * (len(self.groups) / len(parts))

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads: small whole numbers as a string of digits, others as a list."""
        digits = DIGITS[self.kind]
        flat = self.values.ravel().tolist()
        values: Any = flat
        if set(flat) <= set(range(len(digits))):
            values = "".join(digits[int(x)] for x in flat)
        result = {"kind": self.kind, "values": values}
        if self.groups:
            result["groups"] = list(self.groups)
        return result

    @classmethod
    def from_json(cls, stored: Any) -> Self:
        """Return the outcomes from the result of `to_json`.

        Parameters
        ----------
        stored : dict
            A result of `to_json`, as JSON gives it back.

        Returns
        -------
        Outcomes

        Raises
        ------
        InputError
            When this is none of its results: fields are missing, counts can't be, or groups don't add up.
        """
        with suppress(KeyError, OverflowError, TypeError, ValueError):
            kind = stored["kind"]
            given = stored["values"]
            groups = tuple(stored.get("groups", ()))
            flat = given
            if isinstance(given, str):
                flat = [DIGITS[kind].index(x) for x in given]
            if kind == "f1":
                values = np.array(flat, np.int64).reshape(-1, 3)
                if values.min() < 0 or (values[:, :1] > values).any():
                    raise ValueError("counts")
            else:
                values = np.array(flat, np.float64)
            if groups and (min(groups) < 1 or sum(groups) != len(values)):
                raise ValueError("groups")
            if len(values) and np.isfinite(values).all() and cls(kind, values).to_json()["values"] == given:
                return cls(kind, values, groups)
        raise InputError(f"{stored!r:.60} are not outcomes; give a kind and values as Outcomes.to_json does.")


class Estimate(NamedTuple):
    """The result of a row: the mean over seeds and its 95% interval, without ends for one seed."""

    value: float
    low: float
    high: float
    seeds: tuple[float, ...]  # the metric of each


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

    Parameters
    ----------
    rows : dict of dict of Outcomes
        By row and seed; all of the same examples.
    floor : Outcomes, default None
        Of the strongest trivial baseline: rows of which none is better are "at the floor".
    pool : dict of dict of Outcomes, default None
        Trainings that tell how much seeds change this column; None: `rows`.

    Raises
    ------
    InputError
        When a row has no training, or the outcomes are not of the same examples.
    """

    def __init__(self, rows: Trainings, floor: Outcomes | None = None, pool: Trainings | None = None) -> None:
        if not rows or not all(rows.values()):
            raise InputError(f"rows={list(rows)}: one has no training; give at least one of each.")
        everything: list[Outcomes] = []
        for trainings in (rows, pool or {}):
            for seeds in trainings.values():
                everything += seeds.values()
        if floor is not None:
            everything.append(floor)
        shapes = {(outcomes.kind, outcomes.values.shape) for outcomes in everything}
        if len(shapes) > 1:
            raise InputError(f"Outcomes of one column are {sorted(shapes)}; give the same examples.")
        # Results of earlier versions know no groups: then each example counts for itself everywhere.
        grouped = len({outcomes.groups for outcomes in everything}) == 1
        self._parts = {
            row: {seed: outcomes.parts(grouped) for seed, outcomes in seeds.items()}
            for row, seeds in rows.items()
        }
        self._floor = floor.parts(grouped) if floor else None
        self._within, self._residual = _noise_of_seeds(rows if pool is None else pool)

    def estimate(self, row: str) -> Estimate:
        """Return the estimate of a row.

        Parameters
        ----------
        row : str
            Its name.

        Returns
        -------
        Estimate
            Of all seeds of the row; infinite ends where there is one seed alone.
        """
        parts = self._stacked(row, row)
        value, low, high, _ = self._of_row(parts)
        return Estimate(value, low, high, tuple(parts.mean(axis=1).tolist()))

    def compare(self, better: str, worse: str) -> Verdict:
        """Return whether one row is better than another, paired by seed and by example.

        Parameters
        ----------
        better, worse : str
            Names of the rows: the claim is that `better` is ahead.

        Returns
        -------
        Verdict
            "yes" or "no" where the interval of the effect lies on one side of zero.
        """
        first = self._stacked(better, worse)
        second = self._stacked(worse, better)
        common = self._parts[better].keys() & self._parts[worse].keys()
        if len(common) < 2:
            return Verdict("undecided", float(first.mean() - second.mean()), -math.inf, math.inf, math.inf)
        squares, freedom = self._residual
        # The variance of a difference is twice that of a training.
        interval = _interval(first - second, 2 * squares / freedom, freedom)
        _, low, high, _ = interval
        answer = "undecided"
        if low > 0:
            answer = "yes"
        elif high < 0:
            answer = "no"
        if self._floor is not None and not (self._is_above_floor(better) or self._is_above_floor(worse)):
            answer = "at the floor"
        return Verdict(answer, *interval)

    def _is_above_floor(self, row: str) -> bool:
        """Return whether the whole interval of a row lies above the trivial baseline."""
        _, low, _, _ = self._of_row(self._stacked(row, row) - self._floor)
        return low > 0

    def _stacked(self, row: str, other: str) -> np.ndarray:
        """Return (S,n), a row's trainings with the seeds of another row, or all without another row."""
        seeds = self._parts[row]
        common = seeds.keys() & self._parts[other].keys()
        return np.stack([seeds[seed] for seed in sorted(common or seeds)])

    # parts (S,n)
    def _of_row(self, parts: np.ndarray) -> Interval:
        """Return the interval of one row by itself."""
        if len(parts) < 2:
            return float(parts.mean()), -math.inf, math.inf, math.inf
        # What seeds do to all rows and what they do to each are summed by Satterthwaite's rule (1946).
        squares, freedom = self._within
        residual, residual_freedom = self._residual
        of_all_rows = (squares - residual) ** 2 / max(1, freedom - residual_freedom)
        of_each_row = residual**2 / max(1, residual_freedom)
        denominator = of_all_rows + of_each_row
        effective_freedom = 1.0
        if denominator:
            effective_freedom = max(1.0, squares**2 / denominator)
        return _interval(parts, squares / freedom, effective_freedom)


def _noise_of_seeds(rows: Trainings) -> tuple[Squares, Squares]:
    """Return the variation over seeds: the squares within rows, and the residual of the model rows + seeds.

    A row that has collapsed to one answer has no noise, and would hide that of the others: it is left out,
    where the others alone say something.
    """
    cells = []
    steady = set()
    for row, seeds in rows.items():
        scores = {seed: outcomes.score() for seed, outcomes in seeds.items()}
        cells += [(row, seed, score) for seed, score in scores.items()]
        if len(set(scores.values())) == 1:
            steady.add(row)
    noisy = cells
    if len(rows) - len(steady) >= 2:
        noisy = [cell for cell in cells if cell[0] not in steady]
    within, residual = _squares_of(noisy)
    if not (within[1] and residual[1]):
        within, residual = _squares_of(cells)
    return within, residual


def _squares_of(cells: list[tuple[str, int, float]]) -> tuple[Squares, Squares]:
    """Return the residuals of scores (row, seed, score) after rows, and after rows and seeds."""
    columns = zip(*cells, strict=True)
    rows, seeds, scores = map(np.array, columns)
    within = _unexplained(scores, rows)
    residual = _unexplained(scores, rows, seeds)
    return within, residual


# scores (n,), each factor (n,)
def _unexplained(scores: np.ndarray, *factors: np.ndarray) -> Squares:
    """Return the sum of squares that an additive model of factors leaves, and its degrees of freedom."""
    columns = [factor[:, None] == np.unique(factor) for factor in factors]
    design = np.hstack(columns).astype(np.float64)
    fitted, _, rank, _ = np.linalg.lstsq(design, scores)
    left = scores - design @ fitted
    squares = float((left**2).sum())
    freedom = len(scores) - int(rank)
    return squares, freedom


# parts (S,n)
def _interval(parts: np.ndarray, pooled: float, freedom: float) -> Interval:
    """Return the interval of a mean over seeds, each with the pooled variance, and over examples.

    With S seeds and n examples, and the parts split into mean + seed + example + rest:

        flips     what the rest contributes to the variance of one seed's mean
        examples  variance of the mean over examples, less the share of the flips in it
        noise     variance of the mean over seeds: the pooled one, but at least half of what these seeds show,
                  and at least the flips
        half      root of (t se_seeds)^2 + (1.96 se_examples)^2 (Howe 1974)
    """
    seeds, n = parts.shape
    pairs = max(1, n - 1) * n
    of_seeds = parts.mean(axis=1)
    of_examples = parts.mean(axis=0)
    mean = float(parts.mean())

    rest = parts - of_seeds[:, None] - of_examples + parts.mean()
    flips = float((rest**2).sum()) / ((seeds - 1) * pairs)

    squares = (of_examples - mean) ** 2
    spread = float(squares.sum()) / pairs
    examples = max(0.0, spread - flips / seeds)

    shown_here = float(of_seeds.var(ddof=1))
    pooled_and_shown = (pooled + shown_here) / 2
    noise = max(pooled, pooled_and_shown, flips) / seeds

    def reach(t: float, z: float) -> float:
        return math.sqrt(t * t * noise + z * z * examples)

    half = reach(t_quantile(0.975, freedom), NORMAL_975)
    # To be seen four times in five, an effect has to be larger than that by its own 80% quantile.
    more = reach(t_quantile(0.8, freedom), NORMAL_80)

    # What rounding leaves of no difference decides nothing.
    return (
        round(mean, 12),
        round(mean - half, 12),
        round(mean + half, 12),
        round(half + more, 12),
    )


def t_quantile(share: float, freedom: float) -> float:
    """Return a quantile of Student's t.

    Parameters
    ----------
    share : float
        Share of the distribution that lies below, between 0 and 1.
    freedom : float
        Degrees of freedom, at least 1; any number, as Satterthwaite's rule gives.

    Returns
    -------
    float

    Raises
    ------
    InputError
        When SciPy is not installed.
    """
    require_scipy()
    from scipy.special import stdtrit

    return float(stdtrit(freedom, share))


def require_scipy() -> None:
    """Check that SciPy is installed, without importing it.

    Raises
    ------
    InputError
        When it is not, with what to install.
    """
    if find_spec("scipy") is None:
        how = "pip install '.[experiments]' brings it"
        raise InputError(f"The intervals of verdicts need SciPy, which is not installed; {how}.")


def effect_text(verdict: Verdict, percent: bool = True) -> str:
    """Return the effect of a verdict with its interval, such as "+7.2 [5.1, 9.0]".

    Parameters
    ----------
    verdict : Verdict
    percent : bool, default True
        Write shares of one in percent; else as they are, with three places.

    Returns
    -------
    str
        With what would be seen where the verdict is undecided.
    """
    numbers = (f"{100 * x:.1f}" if percent else f"{x:.3f}" for x in verdict[1:])
    effect, low, high, smallest = numbers
    sign = "+" if verdict.effect >= 0 else ""
    if verdict.answer != "undecided":
        return f"{sign}{effect} [{low}, {high}]"
    if math.isinf(verdict.smallest):
        return f"{sign}{effect}; one seed does not show how much seeds differ"
    seen = f"an effect of about {smallest} would be seen in four of five"
    return f"{sign}{effect} [{low}, {high}]; {seen}"
