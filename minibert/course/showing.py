"""What a lesson shows: sentences, pictures with alternative text, guesses, claims and the proof sheet."""

import html
import inspect
import io
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from minibert.course.judging import BOUND
from minibert.errors import InputError
from minibert.metrics import bootstrap


def say(markdown: str) -> None:
    """Show a sentence with numbers in it as Markdown."""
    from IPython.display import Markdown, display

    display(Markdown(textwrap.dedent(markdown)))


def show(figure: Any, alt: str) -> None:
    """Show a matplotlib figure with its alternative text, and close it."""
    import matplotlib.pyplot as plt
    from IPython.display import display

    picture = io.BytesIO()
    figure.savefig(
        picture, format="png", bbox_inches="tight", metadata={"Description": alt, "Software": None}
    )
    plt.close(figure)
    data = {"image/png": picture.getvalue(), "text/plain": alt}
    display(data, raw=True, metadata={"image/png": {"alt": alt}})


def source(thing: Any) -> None:
    """Print the source of a function, method or class of minibert."""
    print(textwrap.dedent(inspect.getsource(thing)).rstrip())


def equal(name: str, left: Any, right: Any, tolerance: float = BOUND) -> None:
    """Compute an "=" of a derivation on both sides.

    Raises
    ------
    AssertionError
        When the sides differ by more than `tolerance`, relative to the largest value.
    """
    left, right = np.asarray(left), np.asarray(right)
    if left.shape != right.shape:
        raise AssertionError(
            f"{name}: the left side has the shape {left.shape}, the right side {right.shape}."
        )
    scale = max(float(np.abs(right).max(initial=0)), float(np.abs(left).max(initial=0)), 1e-300)
    error = float(np.abs(left - right).max(initial=0)) / scale
    if not error <= tolerance:
        raise AssertionError(f"{name}: the two sides differ by {error:.1e}, relative.")
    print(f"{name}: both sides agree to {error:.0e}" if error else f"{name}: both sides are the same")


class Guess:
    """A guess made before the cell that answers it."""

    def __init__(self, question: str, guess: Any, choices: Sequence[Any] | None = None) -> None:
        self.question, self.guess = question, guess
        if guess is ...:
            hint = f" ({' / '.join(map(str, choices))})" if choices else ""
            print(
                f"{question}{hint}\nNo guess yet: put it in place of the three dots and run the cell again."
            )
        elif choices and guess not in choices:
            raise InputError(
                f"guess={guess!r} is none of {', '.join(map(repr, choices))}; choose one of them."
            )
        else:
            print(f"{question}\nYour guess: {guess}")

    def answer(self, value: Any, because: str = "") -> None:
        """Tell what it is, and how far the guess is from it."""
        shown = f"{value:,.4g}" if isinstance(value, int | float | np.number) else str(value)
        if isinstance(value, int | np.integer):
            shown = f"{value:,}"
        text = f"It is {shown}{f': {because}' if because else '.'}"
        if self.guess is not ...:
            text = f"You said {self.guess}. {text}" if self.guess != value else f"You said so. {text}"
        print(text)


class Compared(NamedTuple):
    """One line of a claim: its mean, and the gain over the baseline with its 95% interval."""

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
    """What was claimed to have been learnt, beside the baseline and its negative controls."""

    text: str
    unit: str
    baseline: float
    lines: tuple[Compared, ...]  # ours first

    @property
    def holds(self) -> bool:
        """Tell whether ours is better than the baseline and no control is."""
        return self.lines[0].better and not any(line.better for line in self.lines[1:])

    def __str__(self) -> str:
        wide = max(len(line.who) for line in [*self.lines, Compared("baseline", 0, 0, 0, 0)])
        rows = [f"{'':{wide}}  {'mean':>8}  {'gain and its 95% interval':>26}  better?"]
        rows += [f"{'baseline':{wide}}  {self.baseline:8.3f}"]
        rows += [
            f"{one.who:{wide}}  {one.mean:8.3f}  {one.gain:+9.3f} [{one.low:+.3f}, {one.high:+.3f}]  "
            f"{'yes' if one.better else 'no'}"
            for one in self.lines
        ]
        verdict = "holds" if self.holds else "does not hold"
        return "\n".join([f"Claim ({self.unit}): {self.text}: {verdict}.", *rows])


def claim(
    text: str,
    ours: Any,
    baseline: Any,
    controls: Mapping[str, Any] | None = None,
    better: str = "lower",
    unit: str = "",
) -> Claim:
    """Compare what was learnt with the strongest trivial baseline; see `Lesson.claim`."""
    sign = {"lower": 1.0, "higher": -1.0}.get(better)
    if sign is None:
        raise InputError(f"better={better!r} is neither lower nor higher; give one of them.")
    floor = np.asarray(baseline, np.float64)
    lines = []
    for who, values in {"ours": ours, **(controls or {})}.items():
        values = np.asarray(values, np.float64)
        if values.shape != floor.shape or values.ndim != 1:
            raise InputError(
                f"{who} has values of shape {values.shape} and the baseline {floor.shape}; give one number an example."
            )
        gain = sign * (floor - values)
        low, high = bootstrap(lambda rows, gain=gain: gain[rows].mean(), len(gain))
        lines.append(Compared(who, values.mean(), gain.mean(), low, high))
    return Claim(text, unit, floor.mean(), tuple(lines))


class SheetRow(NamedTuple):
    """One operation of pre-training on the reader's proof sheet."""

    operation: str
    notebook: str
    state: str  # "yours", "wrong" or "open"
    about: str


class Sheet(list[SheetRow]):
    """The reader's proof sheet; a table in a notebook, text elsewhere."""

    MARKS = {"yours": "✓", "wrong": "✗", "open": "·"}

    def __str__(self) -> str:
        lines = [f"{self.MARKS[row.state]} {row.operation:32} {row.notebook}  {row.about}" for row in self]
        done = sum(row.state == "yours" for row in self)
        return "\n".join([*lines, f"{done} of {len(self)} operations are yours."])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        colours = {"yours": "#1a7f37", "wrong": "#b35900", "open": "inherit"}
        rows = [
            f'<tr style="color:{colours[row.state]}"><td>{self.MARKS[row.state]}</td>'
            f'<td style="text-align:left"><code>{row.operation}</code></td><td>{row.notebook}</td>'
            f'<td style="text-align:left">{html.escape(row.about)}</td></tr>'
            for row in self
        ]
        done = sum(row.state == "yours" for row in self)
        head = "<tr><th></th><th>operation</th><th>notebook</th><th>verdict</th></tr>"
        return f"<table>{head}{''.join(rows)}</table><p>{done} of {len(self)} operations are yours.</p>"
