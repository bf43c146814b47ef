"""Show what a lesson has to show: sentences, pictures, guesses, claims and the proof sheet."""

import html
import inspect
import io
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from minibert.base.errors import InputError
from minibert.course.comparing import BOUND, compare
from minibert.course.running import Rejected
from minibert.reports.markup import shown
from minibert.tasks.metrics.intervals import bootstrap, mean_of

MARKS = {"passed": "✓", "failed": "✗", "open": "·"}
NO_GUESS = "No guess yet: put it in place of the three dots and run the cell again."
COLOURS = {"passed": "#22863a", "failed": "#b85c00", "open": "inherit"}


def say(markdown: str) -> None:
    """Show a sentence, such as one with computed numbers, as Markdown.

    Parameters
    ----------
    markdown : str
        The sentence. It may be indented.
    """
    from IPython.display import Markdown, display

    display(Markdown(textwrap.dedent(markdown)))


def show(figure: Any, alt: str) -> None:
    """Show a matplotlib figure with its alternative text, and close it.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
    alt : str
        What the figure shows, for readers who can't see it.
    """
    import matplotlib.pyplot as plt
    from IPython.display import display

    file = io.BytesIO()
    facts = {"Description": alt, "Software": None}
    figure.savefig(file, format="png", bbox_inches="tight", metadata=facts)
    plt.close(figure)
    data = {"image/png": file.getvalue(), "text/plain": alt}
    display(data, raw=True, metadata={"image/png": {"alt": alt}})


def source(thing: Any) -> None:
    """Print the source of a part of minibert.

    Parameters
    ----------
    thing : function, method or class
        The part.
    """
    print(textwrap.dedent(inspect.getsource(thing)).rstrip())


def equal(name: str, left: Any, right: Any, tolerance: float = BOUND) -> None:
    """Compare both sides of an equation, and print how closely they agree.

    Parameters
    ----------
    name : str
        What the equation says.
    left, right : array
        Values of the two sides; of the same shape.
    tolerance : float
        Largest error that is allowed, relative to the largest value.

    Raises
    ------
    AssertionError
        When the sides differ.
    """
    try:
        error = compare(np.asarray(left), np.asarray(right), tolerance, "the left side")
    except Rejected as wrong:
        raise AssertionError(f"{name}: {wrong}") from None
    if error:
        print(f"{name}: both sides agree to {error:.0e}")
    else:
        print(f"{name}: both sides are the same")


class Guess:
    """A reader's guess, made before the cell that computes the answer.

    `Lesson.predict` makes one, which prints the question. A later cell calls `answer`.

    Parameters
    ----------
    question : str
        Question to print, with the choices.
    guess : Any
        The reader's guess; three dots if there is none yet.
    choices : sequence, default None
        Guesses to choose from; None: any guess.

    Raises
    ------
    InputError
        When the guess is not one of the choices.
    """

    def __init__(self, question: str, guess: Any, choices: Sequence[Any] | None = None) -> None:
        self.guess = guess
        if choices and guess is not ... and guess not in choices:
            known = ", ".join(map(repr, choices))
            raise InputError(f"{guess=} is not one of the choices; choose from {known}.", guess=guess)
        if choices:
            question += f" ({' / '.join(map(str, choices))})"
        print(question)
        if guess is ...:
            print(NO_GUESS)
        else:
            print(f"Your guess: {guess}")

    def answer(self, value: Any, because: str = "") -> None:
        """Print the answer next to the guess.

        Parameters
        ----------
        value : Any
            The answer.
        because : str
            A reason, which ends the sentence, with its full stop; "" for none.
        """
        form = ""
        if isinstance(value, int):
            form = ","
        elif isinstance(value, float):
            form = ".4g"
        sentence = f"It is {value:{form}}"
        if self.guess is not ...:
            sentence = f"You said {self.guess}. {sentence}"
        if because:
            print(f"{sentence}: {because}")
        else:
            print(f"{sentence}.")


class Compared(NamedTuple):
    """A line of a claim: a mean, and its gain over the baseline with the 95% confidence interval."""

    who: str
    mean: float
    gain: float
    low: float
    high: float

    @property
    def better(self) -> bool:
        """Tell whether the whole interval is on the better side."""
        return self.low > 0


class Claim(NamedTuple):
    """A claim that something was learnt, with the baseline and the negative controls."""

    text: str
    baseline: float
    lines: tuple[Compared, ...]  # ours first

    @property
    def holds(self) -> bool:
        """Tell whether ours is better than the baseline, and no control is."""
        return self.lines[0].better and not any(line.better for line in self.lines[1:])

    def __str__(self) -> str:
        rows = [f"Claim: {self.text}: {'holds' if self.holds else 'does not hold'}."]
        rows.append(f"{'':24}{'mean':>9}    gain and its 95% interval  better?")
        rows.append(f"{'baseline':24}{self.baseline:9.3f}")
        for line in self.lines:
            who, mean, gain, low, high = line
            better = "yes" if line.better else "no"
            rows.append(f"{who:24}{mean:9.3f}  {gain:+8.3f} [{low:+.3f}, {high:+.3f}]  {better}")
        return "\n".join(rows)


def claim(text: str, ours: Any, baseline: Any, controls: Mapping[str, Any], better: str, unit: str) -> Claim:
    """Compare what was learnt with the strongest trivial baseline; see `Lesson.claim`.

    Parameters
    ----------
    text : str
        The claim.
    ours, baseline : (n,) float
        A value for each example.
    controls : dict of (n,) float
        Values of negative controls by name.
    better : str
        Which values are better, "lower" or "higher".
    unit : str
        Unit of the values; "" for none.

    Returns
    -------
    Claim
        Intervals of the gains come from a bootstrap over the examples.

    Raises
    ------
    InputError
        When `better` is neither of the two, or an array does not have one number for each example.
    """
    if better not in ("lower", "higher"):
        raise InputError(f"{better=} is neither lower nor higher; give one of them.", better=better)
    floor = np.asarray(baseline, np.float64)
    lines = []
    for who, values in {"ours": ours, **controls}.items():
        values = np.asarray(values, np.float64)
        if values.shape != floor.shape or values.ndim != 1:
            raise InputError(f"{who}: {values.shape} values, not {floor.shape}; give one number an example.")
        gain = floor - values if better == "lower" else values - floor
        low, high = bootstrap(mean_of(gain), len(gain))
        lines.append(Compared(who, values.mean(), gain.mean(), low, high))
    if unit:
        text = f"{text} ({unit})"
    return Claim(text, floor.mean(), tuple(lines))


class Verdict(NamedTuple):
    """The result of judging one function."""

    place: str  # number of an exercise; on the proof sheet, of a notebook
    function: str
    state: str  # "passed", "failed" or "open"
    text: str

    def __str__(self) -> str:
        return f"{MARKS[self.state]} {self.place} {self.function}: {self.text}"


def _escaped(text: str) -> str:
    """Return a text as HTML that shows it, without characters that HTML forbids."""
    return html.escape(shown(text))


class Sheet(list[Verdict]):
    """The reader's proof sheet: a table in a notebook, text elsewhere."""

    def __repr__(self) -> str:
        return "\n".join([*map(str, self), self._last()])

    def _repr_html_(self) -> str:
        rows = []
        for verdict in self:
            cells = (
                f"<td>{MARKS[verdict.state]}</td>"
                f"<td>{_escaped(verdict.place)}</td>"
                f'<td style="text-align:left"><code>{_escaped(verdict.function)}</code></td>'
                f'<td style="text-align:left">{_escaped(verdict.text)}</td>'
            )
            rows.append(f'<tr style="color:{COLOURS[verdict.state]}">{cells}</tr>')
        return f"<table>{''.join(rows)}</table><p>{self._last()}</p>"

    def _last(self) -> str:
        passed = sum(verdict.state == "passed" for verdict in self)
        return f"{passed} of {len(self)} operations are yours."
