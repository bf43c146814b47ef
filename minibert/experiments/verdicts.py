"""Judge whether one row of a table is better than another, from a few trainings of each on the same examples.

The effect is a mean over S seeds and n examples. Both are samples, so its confidence interval has two
standard errors. Let x[s,i] be what example i contributes under seed s to the metric of a row (`estimate`), or
to the difference of two rows (`compare`), and split it as in a two-way analysis of variance:

    x[s,i]        = mean + seed[s] + example[i] + rest[s,i]
    interaction   = sum(rest^2) / ((S - 1) (n - 1) n)                     answers that flip from seed to seed
    observed      = sum(seed^2) / (S - 1)                                 variance between these seeds
    se_seeds^2    = max(pooled, (pooled + observed) / 2, interaction) / S
    se_examples^2 = max(0, sum(example^2) / ((n - 1) n) - interaction / S)
    half          = sqrt((t[0.975] se_seeds)^2 + (1.96 se_examples)^2)    (Howe 1974)
    interval      = mean - half ... mean + half
    smallest      = half + sqrt((t[0.80] se_seeds)^2 + (0.84 se_examples)^2)

`smallest` is the effect that would be detected with a power of 80%. The interaction is subtracted from
se_examples because the variance between seeds already includes it.

Three to five seeds are too few to estimate the variance between seeds from two rows alone, so `pooled` comes
from the scores of all rows of the column. With `residual` the sum of squares that the additive model
score = row + seed leaves, on f degrees of freedom, and `within` the one that score = row leaves, on g:

    two rows     pooled = 2 residual / f, and t has f degrees of freedom
    one row      pooled = within / g, and t has the degrees of freedom of Satterthwaite (1946):
                 within^2 / ((within - residual)^2 / (g - f) + residual^2 / f)

Where n - 1, g - f or f is zero, one takes its place, and t has at least one degree of freedom. Nothing is
drawn at random.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, NamedTuple, Self

import numpy as np

from minibert.base.errors import InputError

DIGITS = {"mean": "01", "f1": "0123456789"}  # values that are stored in JSON as one string of digits
NOT_RUN = "not run"  # instead of an answer
DECIMALS = 12  # results are rounded to so many, or rounding errors would decide between equal rows
Trainings = Mapping[str, Mapping[int, "Outcomes"]]  # by row and seed
# The mean, both ends of its interval, and the smallest effect that is detected with 80% power.
Interval = tuple[float, float, float, float]
NORMAL_975 = 1.959964  # quantile of the normal distribution for a 95% interval
NORMAL_80 = 0.841621  # quantile of the normal distribution for a power of 80%


class Outcomes(NamedTuple):
    """The values that a metric is computed from, for each example of one training."""

    kind: str  # "mean": the metric is the mean of the values; "f1": it is the micro F1 of counts
    values: np.ndarray  # "mean": (n,) float64; "f1": (n,3) int64: right, predicted, expected
    groups: tuple[int, ...] = ()  # sizes of groups of dependent neighbours, such as sentences of a document

    def score(self, rows: Any = None) -> float:
        """Return the metric of all examples, or of some.

        Parameters
        ----------
        rows : (k,) int, default None
            Indices of the examples, which may repeat; None: each example once.

        Returns
        -------
        float
            The mean, or micro F1 between 0 and 1; F1 is 0.0 where nothing is predicted or expected.
        """
        values = self.values if rows is None else self.values[rows]
        if self.kind == "mean":
            return float(values.mean())
        right, predicted, expected = values.sum(axis=0).tolist()
        if not predicted + expected:
            return 0.0
        return 2 * right / (predicted + expected)

    def parts(self) -> np.ndarray:
        """Return what each example contributes: the mean is the metric, the spread its sampling noise.

        Micro F1 is not a mean over examples; its parts are those of its linearisation. The examples of a
        group are added up, because they are not independent.

        Returns
        -------
        (n,) float64
            One part for each example, or one for each group.
        """
        parts = self.values
        if self.kind == "f1":
            score = self.score()
            marked = self.values[:, 1] + self.values[:, 2]
            excess = 2 * self.values[:, 0] - score * marked
            parts = score + excess / (marked.mean() or 1.0)
        if not self.groups:
            return parts
        begins = np.cumsum((0, *self.groups[:-1]))
        mean = parts.mean()
        sums = np.add.reduceat(parts - mean, begins)
        return mean + sums * (len(self.groups) / len(parts))

    def to_json(self) -> dict[str, Any]:
        """Convert to what `from_json` reads: values that are digits as one string, others as a list."""
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
        """Restore outcomes from the result of `to_json`.

        Parameters
        ----------
        stored : dict
            A result of `to_json`, after a round trip through JSON.

        Returns
        -------
        Outcomes

        Raises
        ------
        InputError
            When `to_json` can't have written it: fields are missing, counts are impossible, or groups don't
            add up to the number of examples.
        """
        with suppress(KeyError, OverflowError, TypeError, ValueError):
            kind = stored["kind"]
            stored_values = stored["values"]
            groups = tuple(stored.get("groups", ()))
            flat = stored_values
            if isinstance(stored_values, str):
                flat = [DIGITS[kind].index(x) for x in stored_values]
            if kind == "f1":
                values = np.array(flat, np.int64).reshape(-1, 3)
                if values.min() < 0 or (values[:, :1] > values).any():
                    raise ValueError("counts")
            else:
                values = np.array(flat, np.float64)
            if groups and (min(groups) < 1 or sum(groups) != len(values)):
                raise ValueError("groups")
            if len(values) and np.isfinite(values).all():
                written_again = cls(kind, values).to_json()["values"]
                if written_again == stored_values:
                    return cls(kind, values, groups)
        raise InputError(f"{stored!r:.60} are not outcomes; give a kind and values as Outcomes.to_json does.")


class Estimate(NamedTuple):
    """The result of one row: the mean over seeds and its 95% interval, infinite for a single seed."""

    value: float
    low: float
    high: float
    seeds: tuple[float, ...]  # the metric of each seed


class Verdict(NamedTuple):
    """Whether one row is better than another; with fewer than two common seeds only `effect` is finite."""

    answer: str  # "yes", "no" (it is significantly worse), "undecided" or "at the floor"
    effect: float  # the better row minus the worse one, averaged over common seeds
    low: float  # lower end of the 95% interval of the effect
    high: float
    smallest: float  # the smallest effect that would be detected with 80% power at this noise


class SumOfSquares(NamedTuple):
    """The squares that a linear model leaves unexplained."""

    total: float
    freedom: int  # degrees of freedom


class Judge:
    """Compare the rows of one column of a table with each other and with its strongest trivial baseline.

    The variance between seeds is estimated from the trainings in `pool`; the module's docstring has the
    equations.

    Parameters
    ----------
    rows : dict of dict of Outcomes
        Outcomes by row and seed, all on the same examples.
    floor : Outcomes, default None
        Outcomes of the strongest trivial baseline. Two rows neither of which beats it are "at the floor".
    pool : dict of dict of Outcomes, default None
        Trainings from which to estimate the variance between seeds; None: `rows`.

    Raises
    ------
    InputError
        When a row has no training, or the outcomes are not on the same examples.
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
        if len({outcomes.groups for outcomes in everything}) > 1:
            raise InputError("Outcomes of one column differ in their groups; give the same examples.")
        self._parts = {
            row: {seed: outcomes.parts() for seed, outcomes in seeds.items()} for row, seeds in rows.items()
        }
        self._floor = floor.parts() if floor else None
        self._within, self._residual = _noise_of_seeds(rows if pool is None else pool)

    def estimate(self, row: str) -> Estimate:
        """Estimate the metric of a row from all of its seeds.

        Parameters
        ----------
        row : str
            Name of the row.

        Returns
        -------
        Estimate
            With infinite ends where the row has a single seed.
        """
        parts = self._stacked(row, row)
        value, low, high, _ = self._row_interval(parts)
        return Estimate(value, low, high, tuple(parts.mean(axis=1).tolist()))

    def compare(self, better: str, worse: str) -> Verdict:
        """Decide whether one row is better than another, paired by seed and by example.

        Parameters
        ----------
        better, worse : str
            Names of the rows; the claim is that `better` is better.

        Returns
        -------
        Verdict
            "yes" or "no" where the interval of the effect excludes zero.
        """
        first = self._stacked(better, worse)
        second = self._stacked(worse, better)
        common = self._parts[better].keys() & self._parts[worse].keys()
        if len(common) < 2:
            return Verdict("undecided", float(first.mean() - second.mean()), -math.inf, math.inf, math.inf)
        residual, freedom = self._residual
        # The variance of a difference is twice the variance of one training.
        interval = _interval(first - second, 2 * residual / freedom, freedom)
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
        _, low, _, _ = self._row_interval(self._stacked(row, row) - self._floor)
        return low > 0

    # -> (S,n)
    def _stacked(self, row: str, other: str) -> np.ndarray:
        """Stack a row's trainings that share a seed with another row, or all of them if none does."""
        seeds = self._parts[row]
        common = seeds.keys() & self._parts[other].keys()
        return np.stack([seeds[seed] for seed in sorted(common or seeds)])

    # parts (S,n)
    def _row_interval(self, parts: np.ndarray) -> Interval:
        """Return the interval of the mean of one row."""
        if len(parts) < 2:
            return float(parts.mean()), -math.inf, math.inf, math.inf
        # `within` sums what a seed does to all rows alike and what it does to each row by itself;
        # Satterthwaite (1946) gives the degrees of freedom of such a sum.
        within, freedom = self._within
        residual, residual_freedom = self._residual
        common_to_rows = (within - residual) ** 2 / max(1, freedom - residual_freedom)
        specific_to_row = residual**2 / max(1, residual_freedom)
        denominator = common_to_rows + specific_to_row
        effective_freedom = 1.0
        if denominator:
            effective_freedom = max(1.0, within**2 / denominator)
        return _interval(parts, within / freedom, effective_freedom)


def _noise_of_seeds(rows: Trainings) -> tuple[SumOfSquares, SumOfSquares]:
    """Return how much scores vary over seeds: what the models score = row and score = row + seed leave.

    A row that always gives the same answer does not vary, and including it would understate how much the
    others do. Such rows are left out if the others suffice for an estimate.
    """
    cells = []
    constant_rows = set()
    for row, seeds in rows.items():
        scores = {seed: outcomes.score() for seed, outcomes in seeds.items()}
        cells += [(row, seed, score) for seed, score in scores.items()]
        if len(set(scores.values())) == 1:
            constant_rows.add(row)
    varying = cells
    if len(rows) - len(constant_rows) >= 2:
        varying = [cell for cell in cells if cell[0] not in constant_rows]
    within, residual = _squares_of(varying)
    if not (within.freedom and residual.freedom):
        within, residual = _squares_of(cells)
    return within, residual


def _squares_of(cells: list[tuple[str, int, float]]) -> tuple[SumOfSquares, SumOfSquares]:
    """Fit the models score = row and score = row + seed to cells of row, seed and score."""
    columns = zip(*cells, strict=True)
    rows, seeds, scores = map(np.array, columns)
    within = _unexplained(scores, rows)
    residual = _unexplained(scores, rows, seeds)
    return within, residual


# scores (n,), each factor (n,)
def _unexplained(scores: np.ndarray, *factors: np.ndarray) -> SumOfSquares:
    """Return the squares that an additive model of some factors leaves unexplained."""
    indicators = [factor[:, None] == np.unique(factor) for factor in factors]
    design = np.hstack(indicators).astype(np.float64)
    coefficients, _, rank, _ = np.linalg.lstsq(design, scores)
    residuals = scores - design @ coefficients
    total = float((residuals**2).sum())
    freedom = len(scores) - int(rank)
    return SumOfSquares(total, freedom)


# parts (S,n)
def _interval(parts: np.ndarray, pooled: float, freedom: float) -> Interval:
    """Return the interval of a mean over seeds and examples; the module's docstring has the equations.

    Parameters
    ----------
    parts : (S,n) float64
        At least two seeds.
    pooled : float
        Variance of one seed's mean, estimated from the whole column.
    freedom : float
        Degrees of freedom of `pooled`.

    Returns
    -------
    tuple of float
        The mean, the ends of its 95% interval, and the smallest effect that is detected with 80% power.
    """
    S, n = parts.shape
    pairs = max(1, n - 1) * n
    seed_means = parts.mean(axis=1)
    example_means = parts.mean(axis=0)
    mean = float(parts.mean())

    rest = parts - seed_means[:, None] - example_means + parts.mean()
    interaction = float((rest**2).sum()) / ((S - 1) * pairs)

    squares = (example_means - mean) ** 2
    spread = float(squares.sum()) / pairs
    variance_of_examples = max(0.0, spread - interaction / S)

    observed = float(seed_means.var(ddof=1))
    halfway = (pooled + observed) / 2
    variance_of_seeds = max(pooled, halfway, interaction) / S

    def combined(t: float, z: float) -> float:
        return math.sqrt(t * t * variance_of_seeds + z * z * variance_of_examples)

    half = combined(t_quantile(0.975, freedom), NORMAL_975)
    # An effect is detected in four samples of five if it exceeds `half` by its own 80% quantile.
    margin = combined(t_quantile(0.8, freedom), NORMAL_80)

    return (
        round(mean, DECIMALS),
        round(mean - half, DECIMALS),
        round(mean + half, DECIMALS),
        round(half + margin, DECIMALS),
    )


def t_quantile(share: float, freedom: float) -> float:
    """Return a quantile of Student's t.

    Parameters
    ----------
    share : float
        Share of the distribution below the quantile, between 0 and 1.
    freedom : float
        Degrees of freedom, at least 1; Satterthwaite's are not whole numbers.

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
        When it is not; the message says what to install.
    """
    if find_spec("scipy") is None:
        how = "pip install '.[experiments]' brings it"
        raise InputError(f"The intervals of verdicts need SciPy, which is not installed; {how}.")


def effect_text(verdict: Verdict, percent: bool = True) -> str:
    """Write the effect of a verdict with its interval, such as "+7.2 [5.1, 9.0]".

    Parameters
    ----------
    verdict : Verdict
    percent : bool, default True
        Write the effect in percentage points; False: as it is, with three decimals.

    Returns
    -------
    str
        An undecided verdict also states the effect that would have been detected.
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
