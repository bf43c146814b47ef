"""Recipes: the default options of each size, and schedules of sequence lengths."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from minibert.base.errors import InputError
from minibert.core.config import SIZES, BertConfig
from minibert.data.instances import SHORTEST

MOST_LENGTHS = 100  # in a schedule
MINUTES = 8.0  # how long a run takes that is given neither minutes nor steps


class SizeRecipe(NamedTuple):
    """The default options of a size."""

    learning_rate: float
    seq_length: str | None  # lengths and shares; None: the entry of SCHEDULES that the run's tokens pay for
    batch_size: int  # sequences a step at the longest length; at shorter ones more, for as many tokens
    accumulate: int  # micro-batches a step, so that activations fit into memory
    warmup: float  # share of the steps
    dropout: float
    paper: bool  # Google's optimizer and decay, zero output bias
    threads: int | None  # threads of the matrix library; None: one for each core


# A short run is a race to leave the unigram plateau, and it stays there until it has learnt where to look:
# with uniform attention, a neighbour is one of many. In sequences of 8 to 10 tokens that takes 0.4M tokens of
# text, in those of 16 three times as many, and in those of 32 it had not happened after 1M. So the quick
# recipes begin with very short sequences and without pairs, with a high rate, few tokens a step (many
# updates), no dropout (each text is seen a few times at most), and the log-unigram as output bias, which
# saves the first hundred steps.
# `base` and larger are the paper's: 256 x 512 tokens a step, at length 128 for nine tenths of the steps.
# With these small matrices, NumPy's matrix library gains a fifth from a second thread on an idle machine, and
# loses far more by waiting on a busy one.
# Measured: `tiny` and `2-128-4`. `mini`, `small` and `medium` extend the same idea, and were not measured.
#                         rate  lengths          batch accumulate warm-up dropout paper threads
RECIPES = {
    "tiny":    SizeRecipe(2e-3, None,               32,   1,    0.10,   0.0,  False, 1),
    "2-128-4": SizeRecipe(2e-3, None,               32,   1,    0.05,   0.0,  False, None),
    "mini":    SizeRecipe(1e-3, None,               32,   1,    0.10,   0.0,  False, None),
    "small":   SizeRecipe(7e-4, None,               32,   2,    0.10,   0.1,  False, None),
    "medium":  SizeRecipe(4e-4, None,               64,   4,    0.10,   0.1,  False, None),
    "base":    SizeRecipe(1e-4, "128:0.9,512:0.1", 256,  64,    0.01,   0.1,  True,  None),
    "large":   SizeRecipe(1e-4, "128:0.9,512:0.1", 256, 128,    0.01,   0.1,  True,  None),
}  # fmt: skip

TRAINED_AS = {"12-1024-16": "base"}  # a row of the paper's Table 6, though it is as wide as large

# For a run that begins with trained weights. The README of Google's code advises this rate, a fifth of
# base's, for further pre-training of a released BERT; higher ones make it forget what it knows. Other sizes
# have a fifth of their own rate, too (see `further_rate`), and the dropout is that of the model.
FURTHER = SizeRecipe(2e-5, "128", 32, 1, 0.10, 0.1, False, None)
NEW_HEAD_RATE = 3e-4  # at least, if the weights have no masked-LM head: at 2e-5 a new one learns little


def recipe_for(size: str) -> SizeRecipe:
    """Return the recipe of a size: its own, or that of the named size whose width is nearest.

    Among equal widths the nearest depth decides; nearness is measured by ratios. Rates and dropout depend on
    the width of a BERT more than on its depth. The other rows of the paper's Table 6 are trained as base.

    Parameters
    ----------
    size : str
        One of `SIZES`, or L-H-A.

    Returns
    -------
    SizeRecipe
    """
    name = TRAINED_AS.get(size, size)
    if name in RECIPES:
        return RECIPES[name]
    config = BertConfig.from_size(size)

    def distance(name: str) -> tuple[float, float]:
        layers, width, _ = SIZES[name]
        return abs(math.log(config.H / width)), abs(math.log(config.L / layers))

    return RECIPES[min(SIZES, key=distance)]


def further_rate(model: BertConfig, new_head: bool = False) -> float:
    """Return the learning rate for training a model further: a fifth of the rate of its size.

    At Google's 2e-5, a small model hardly learns from 300 steps on another text (docs/getting-started.md).

    Parameters
    ----------
    model : BertConfig
        Shape of the trained weights.
    new_head : bool, default False
        Whether they have no trained masked-LM head.

    Returns
    -------
    float
    """
    rate = recipe_for(f"{model.L}-{model.H}-{model.A}").learning_rate / 5
    rate = float(f"{rate:.1e}")  # without the rounding of the division
    return max(rate, NEW_HEAD_RATE) if new_head else rate


class Schedule(NamedTuple):
    """Lengths of sequences with their shares of the steps, for a run of at least `tokens` tokens."""

    tokens: float
    lengths: str


# The least tokens of each row were measured (in the log: "lengths that the tokens pay for", "new positions").
# With fewer, the second row does not leave the plateau, the third learns less than the second, and the fourth
# less at 128 than the third at 64. The tokens of a step grow with the length, which suits longer runs, too.
SCHEDULES = (
    Schedule(0, "10:0.25,16:0.2,32:0.55"),
    Schedule(1.5e6, "10:0.25,16:0.2,32:0.25,64:0.3"),
    Schedule(6e6, "10:0.06,16:0.04,32:0.2,64:0.7"),
    Schedule(10e6, "10:0.06,16:0.04,32:0.2,64:0.3,128:0.4"),
)


def schedule_for(tokens: Callable[[int], float], positions: int) -> str:
    """Return the lengths of `SCHEDULES` that the tokens of a run pay for.

    A schedule that is longer than the model's `positions` is passed over, unless all are longer.

    Parameters
    ----------
    tokens : callable
        Function from the longest length of a schedule to the tokens of the whole run.
    positions : int
        The longest sequence that the model reads.

    Returns
    -------
    str
        As for `seq_length` of `PretrainOptions`.

    Examples
    --------
    >>> schedule_for(lambda longest: 30e6, 512)
    '10:0.06,16:0.04,32:0.2,64:0.3,128:0.4'
    """
    best = SCHEDULES[0]
    for schedule in SCHEDULES[1:]:
        longest = parse_lengths(schedule.lengths)[-1][0]
        if longest <= positions and tokens(longest) >= schedule.tokens:
            best = schedule
    return best.lengths


class Stage(NamedTuple):
    """Steps `begin` to `end` (exclusive) of a run, at one sequence length."""

    seq_length: int
    begin: int
    end: int


@dataclass(frozen=True)
class Timetable:
    """How far along its schedule a run is at each of its steps.

    Rates and lengths are laid out over a number of planned steps. If the clock shows that there is time for
    more of them, or for fewer, the rest of the schedule is stretched or shortened, and ends with the run. The
    knots are pairs (step, planned step), both ascending from (0, 0) to the end of the run and of the
    schedule, with straight lines between them.

    Examples
    --------
    >>> timetable = Timetable.of(100).rescheduled(end=140, from_step=20)
    >>> timetable.total, timetable.planned(20), timetable.planned(80), timetable.step_at(100)
    (140, 20.0, 60.0, 140)
    """

    knots: tuple[tuple[int, float], ...]

    @classmethod
    def of(cls, total: int) -> "Timetable":
        """Return the timetable of a run that follows its plan.

        Parameters
        ----------
        total : int
            Number of steps.
        """
        return cls(((0, 0), (total, total)))

    @property
    def total(self) -> int:
        """Return the number of steps of the run."""
        return int(self.knots[-1][0])

    @property
    def planned_total(self) -> int:
        """Return the number of steps of the schedule."""
        return int(self.knots[-1][1])

    def planned(self, step: int) -> float:
        """Return the position on the schedule that a step of the run has.

        Parameters
        ----------
        step : int
            A step of the run.

        Returns
        -------
        float
            Position in planned steps.
        """
        steps, positions = zip(*self.knots, strict=True)
        return float(np.interp(step, steps, positions))

    def step_at(self, position: float) -> int:
        """Return the step of the run at a position on the schedule; the inverse of `planned`.

        Parameters
        ----------
        position : float
            Position in planned steps.

        Returns
        -------
        int
            The nearest step.
        """
        steps, positions = zip(*self.knots, strict=True)
        return round(float(np.interp(position, positions, steps)))

    def rescheduled(self, end: int, from_step: int) -> "Timetable":
        """Return a timetable that is the same up to step `from_step` and then ends at step `end`.

        Parameters
        ----------
        end : int
            The new end of the run.
        from_step : int
            The step up to which nothing changes.

        Returns
        -------
        Timetable
        """
        passed = [knot for knot in self.knots if knot[0] < from_step]
        now = (from_step, self.planned(from_step))
        last = (end, self.planned_total)
        return Timetable((*passed, now, last))


def parse_lengths(text: str) -> list[tuple[int, float]]:
    """Read a schedule: one sequence length, or lengths with their shares of the steps, which sum to one.

    Parameters
    ----------
    text : str
        For example "128" or "128:0.9,512:0.1".

    Returns
    -------
    list of (int, float)
        Lengths and shares, in the order of the text.

    Raises
    ------
    InputError
        When the text has another form, a length below 5 or too many lengths, or the shares do not sum to 1.

    Examples
    --------
    >>> parse_lengths("128:0.9,512:0.1")
    [(128, 0.9), (512, 0.1)]
    """
    try:
        lengths = []
        for part in text.split(","):
            length, *share = part.split(":")
            lengths.append((int(length), float(*share) if share else 1.0))
    except (ValueError, TypeError):
        lengths = []
    shown = text[:60] if isinstance(text, str) else text
    given = f"seq_length={shown!r}"
    are_few = 1 <= len(lengths) <= MOST_LENGTHS
    if not are_few or not min(share for _, share in lengths) > 0:
        most = f"up to {MOST_LENGTHS} with shares that sum to 1, such as 16:0.4,32:0.6"
        raise InputError(f"{given} is not a schedule; give one length, or {most}.", seq_length=shown)
    if min(lengths)[0] < SHORTEST:
        raise InputError(f"{given} is too short; give at least {SHORTEST}.", seq_length=shown)
    total = sum(share for _, share in lengths)
    if not abs(total - 1) <= 1e-6:
        raise InputError(f"{given} has shares that sum to {total:g}; they must sum to 1.", seq_length=shown)
    return lengths
