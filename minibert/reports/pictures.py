"""Compute the coordinates of curves for the plot `templates/picture.svg.j2`.

`step_charts` has the plots that the pages of both kinds of runs share.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from minibert.base.terminal import counted
from minibert.reports.markup import shown
from minibert.reports.viz import smoothed

MOST_POINTS = 600  # points of a curve; if there are more, neighbours are averaged
MOST_EXACT = 200  # points of an exact curve; of more, so many at even distances are kept, and the extremes
LARGEST = 1e100  # larger values are left out, as are those that are not numbers
WIDTH, HEIGHT = 720.0, 368.0  # this and all other lengths are in the plot's own units
LEFT, RIGHT, TOP, BOTTOM = 64.0, 12.0, 40.0, 38.0  # margins around the plot, with the names of the axes
AXES = {  # the horizontal axes, and what is written below them
    "step": "training step",
    "tokens": "tokens read in training",
    "minutes": "minutes of training",
}
LEAPS = "a norm that leaps together with the loss is a sign of too high a learning rate."
FAR = 10.0  # a clip norm of more than so many times the largest norm is left out: it would flatten the plot
LETTER, LINE = 13.5, 24.0  # the most room that a letter and a line of text take on a small screen
# How a curve is drawn: smoothed, over its points drawn faintly; smoothed alone; as a line through its points,
# neither smoothed nor averaged; as a line with a dot at each point.
Style: TypeAlias = Literal["smoothed over points", "smoothed", "exact", "dots"]


class Frame(NamedTuple):
    """A rectangle of a picture, and the ranges of numbers that its sides stand for."""

    left: float
    top: float
    width: float
    height: float
    xs: tuple[float, float]
    ys: tuple[float, float]

    def x(self, value: Any) -> Any:
        """Return where on the horizontal axis numbers are.

        Parameters
        ----------
        value : float, or array of any shape
            Numbers in the range `xs`.

        Returns
        -------
        float or array
            Of the same shape.
        """
        return self.left + (value - self.xs[0]) / (self.xs[1] - self.xs[0]) * self.width

    def y(self, value: Any) -> Any:
        """Return where on the vertical axis numbers are.

        Parameters
        ----------
        value : float, or array of any shape
            Numbers in the range `ys`.

        Returns
        -------
        float or array
            Of the same shape.
        """
        return self.top + (self.ys[1] - value) / (self.ys[1] - self.ys[0]) * self.height

    @property
    def right(self) -> float:
        """Return where the rectangle ends on the right."""
        return self.left + self.width

    @property
    def bottom(self) -> float:
        """Return where the rectangle ends below."""
        return self.top + self.height

    def across(self, value: float) -> list[tuple[float, float]]:
        """Return both ends of a horizontal line.

        Parameters
        ----------
        value : float
            Number on the vertical axis.

        Returns
        -------
        list of (float, float)
        """
        y = self.y(value)
        return [(self.left, y), (self.right, y)]

    def upright(self, value: float) -> list[tuple[float, float]]:
        """Return both ends of a vertical line.

        Parameters
        ----------
        value : float
            Number on the horizontal axis.

        Returns
        -------
        list of (float, float)
        """
        x = self.x(value)
        return [(x, self.top), (x, self.bottom)]

    # points (n,2) -> (n,2)
    def places(self, points: Any) -> np.ndarray:
        """Return where in the picture points are.

        Parameters
        ----------
        points : (n,2) float
            Numbers on both axes.

        Returns
        -------
        (n,2) float
        """
        xs, ys = np.asarray(points, float).T
        return np.stack([self.x(xs), self.y(ys)], 1)


class Curve(NamedTuple):
    """Values over steps, tokens or minutes."""

    kind: str  # CSS class
    points: np.ndarray  # (n,2): positions and values
    name: str = ""  # needed if there are several curves
    style: Style = "smoothed over points"
    breaks: Sequence[float] = ()  # positions at which the smoothing restarts
    averaged: bool = False  # whether its points are means of neighbours; `picture` decides that


class Path(NamedTuple):
    """A line of a plot, and what a pointer shows at its points."""

    kind: str  # CSS class
    points: list[tuple[float, float]]  # coordinates
    name: str = ""  # of the curve; without a name the pointer shows nothing
    positions: str = ""  # of the points, separated by spaces
    values: str = ""  # as the positions


class StepChart(NamedTuple):
    """A plot, and the sentence above it."""

    sentence: str  # what to look at
    picture: dict[str, Any]  # as `picture` returns it


# -> (n,2)
def points(lines: Sequence[Mapping[str, float]], name: str) -> np.ndarray:
    """Return the values that were recorded under a name, with their steps.

    Parameters
    ----------
    lines : sequence of dict
        Lines of `metrics.jsonl`; those without the name are skipped.
    name : str
        Name of a metric.

    Returns
    -------
    (n,2) float
        A step and a value in each row.
    """
    points = [(line["step"], line[name]) for line in lines if name in line]
    return np.array(points, float).reshape(-1, 2)


def _positions(last: float, axis: str) -> list[float]:
    """Choose the numbers at a horizontal axis that ends at `last`: whole ones, where it counts steps."""
    positions = [tick for tick in ticks(0.0, last) if tick <= last]
    if axis == "step":
        return [tick for tick in positions if tick == int(tick)]
    return positions


def picture(
    title: str,
    curves: Sequence[Curve],
    words: Callable[[float], str],
    last: float | None = None,
    axis: str = "step",
    scale: float = 1.0,
    unit: str = "",
    band: tuple[float, float, str] | None = None,
    lines: Sequence[tuple[float, str]] = (),
    marks: Sequence[tuple[float, str]] = (),
) -> dict[str, Any] | None:
    """Plot curves over a common axis.

    The vertical axis covers not only the curves but also `band` and `lines`, so that differences which are
    small compared with these look small.

    Parameters
    ----------
    title : str
    curves : sequence of Curve
        Points that are not finite, or larger than LARGEST, are left out.
    words : callable
        Formats a value.
    last : float, default None
        Where the horizontal axis ends; None: at the last point.
    axis : str, default "step"
        Name of the horizontal axis: a key of AXES.
    scale : float, default 1.0
        Factor for the numbers at the vertical axis, such as 100 for percent.
    unit : str, default ""
        Unit of these numbers, which is written after the title above the vertical axis.
    band : (float, float, str), default None
        The ends of an interval, and its name.
    lines : sequence of (float, str)
        Horizontal lines: a value and its name.
    marks : sequence of (float, str)
        Vertical lines: a position on the axis and its name.

    Returns
    -------
    dict, or None
        What the template needs; None if no curve has a point that can be drawn.
    """
    lines = [line for line in lines if abs(line[0]) < LARGEST]
    curves = _drawable(curves)
    if not curves:
        return None
    shortest = 1.0 if axis == "step" else 1e-9
    last = max(shortest, last or max(curve.points[:, 0].max() for curve in curves))
    drawn = [path for curve in curves for path in _paths(curve, title)]
    heights = _heights(drawn, band, lines)
    positions = _positions(last, axis)
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    frame = Frame(LEFT, TOP, width, height, (0.0, last), (heights[0], heights[-1]))
    paths = [Path("line", frame.across(value)) for value, _ in lines]
    for position, _ in marks:
        if position:  # a mark at 0 coincides with the vertical axis
            paths.append(Path("rule", frame.upright(position)))
    for kind, points, name in drawn:
        paths.append(Path(kind, frame.places(points).tolist(), name, *_pointer_texts(points, words)))
    beside = list(_beside([(frame.y(value), name) for value, name in lines]))
    above = _above([(frame.x(position), name) for position, name in marks], beside)
    plot = {"left": LEFT, "right": frame.right, "top": TOP, "bottom": frame.bottom}
    return {
        "label": _label(title, curves, words, axis),
        "summary": [_summary(curve, title, words, axis) for curve in curves],
        "title": title,
        "axis": axis,
        "x_label": AXES[axis],
        "y_label": f"{title}, {unit}" if unit else title,
        "width": WIDTH,
        "height": HEIGHT,
        "plot": plot | {"values": heights, "last": last, "scale": scale},
        "heights": [(_tick(scale * tick), frame.y(tick)) for tick in heights],
        "places": [(_tick(position), frame.x(position)) for position in positions],
        "bands": [(frame.y(band[0]), frame.y(band[1]), band[2])] if band else [],
        "texts": [*beside, *above],
        "paths": paths,
        "dots": _dots(frame, curves, axis, words),
    }


def _dots(
    frame: Frame, curves: Sequence[Curve], axis: str, words: Callable[[float], str]
) -> list[tuple[str, float, float, str]]:
    """Draw the points of curves with dots, and of those with a single point, through which no line leads."""
    dots = []
    for curve in curves:
        if curve.style == "dots" or len(curve.points) == 1:
            for position, value in curve.points.tolist():
                label = _dot_name(curve, axis, position, words(value))
                dots.append((curve.kind, frame.x(position), frame.y(value), label))
    return dots


def _pointer_texts(points: np.ndarray, words: Callable[[float], str]) -> tuple[str, str]:
    """Write the positions of points, and their values, for the pointer to show."""
    positions = " ".join(_tick(position) for position in points[:, 0].tolist())
    values = " ".join(words(value) for value in points[:, 1].tolist())
    return positions, values


def _drawable(curves: Sequence[Curve]) -> list[Curve]:
    """Leave out points that can't be drawn, and curves without points; thin out the others."""
    drawable = []
    for curve in curves:
        is_inside = (np.abs(curve.points) < LARGEST).all(1)
        curve = curve._replace(points=curve.points[is_inside])
        if len(curve.points):
            drawable.append(_thinned(curve))
    return drawable


def _heights(
    drawn: Sequence[tuple[str, np.ndarray, str]],
    band: tuple[float, float, str] | None,
    lines: Sequence[tuple[float, str]],
) -> list[float]:
    """Return the ticks of the vertical axis, which covers everything that is drawn."""
    values = [value for _, points, _ in drawn for value in points[:, 1]]
    if band:
        values += band[:2]
    values += [value for value, _ in lines]
    return ticks(*_value_range(np.array(values)))


def _label(title: str, curves: Sequence[Curve], words: Callable[[float], str], axis: str) -> str:
    """Describe a plot in a sentence, for screen readers."""
    ends = []
    for curve in curves:
        first = words(curve.points[0, 1])
        last = words(curve.points[-1, 1])
        ends.append(f"{curve.name} from {first} to {last}")
    return f"{title} over {axis.rstrip('s')}s, {'; '.join(ends).strip()}"


def _summary(curve: Curve, title: str, words: Callable[[float], str], axis: str) -> list[str]:
    """Return the row of a curve in the table that says in words what a plot shows: its ends and extremes."""
    values = curve.points[:, 1]
    cells = [_name(curve, title)]
    for index in (0, values.argmin(), values.argmax(), -1):
        position, value = curve.points[index].tolist()
        cells.append(f"{words(value)} ({axis} {_tick(position)})")
    return cells


def _name(curve: Curve, title: str) -> str:
    """Return what to call the points of a curve in a plot with that title."""
    name = curve.name or title
    if curve.averaged:
        return f"{name}, means of neighbours"
    return name


def _dot_name(curve: Curve, axis: str, position: float, value: str) -> str:
    """Return the label of a dot: the name of its curve if it has one, its position and its value."""
    label = f"{axis} {_tick(position)}: {value}"
    if curve.name:
        return f"{curve.name}, {label}"
    return label


def _parts(curve: Curve) -> list[np.ndarray]:
    """Divide the points of a curve where its smoothing restarts."""
    borders = np.searchsorted(curve.points[:, 0], curve.breaks, side="right")
    return [part for part in np.split(curve.points, borders) if len(part)]


def _thinned(curve: Curve) -> Curve:
    """Average neighbouring points if there are more than MOST_POINTS; of an exact curve keep MOST_EXACT."""
    count = len(curve.points)
    if curve.style == "exact":
        values = curve.points[:, 1]
        even = np.linspace(0, count - 1, min(count, MOST_EXACT)).round().astype(int)
        kept = np.union1d(even, [values.argmin(), values.argmax()])
        return curve._replace(points=curve.points[kept])
    if count <= MOST_POINTS:
        return curve
    means = []
    for part in _parts(curve):
        points_of_part = max(1, MOST_POINTS * len(part) // count)
        means += [neighbours.mean(0) for neighbours in np.array_split(part, points_of_part)]
    return curve._replace(points=np.array(means), averaged=True)


def _paths(curve: Curve, title: str) -> list[tuple[str, np.ndarray, str]]:
    """Return the lines of a curve with CSS classes and names: smoothed, unless it has dots or is exact.

    Where smoothing changes nothing, the points themselves have no name: the pointer would tell them twice.
    """
    name = _name(curve, title)
    if curve.style in ("exact", "dots"):
        return [(curve.kind, curve.points, name)]
    window = max(1, len(curve.points) // 20)
    name_of_means = f"{curve.name or title}, smoothed" if window > 1 else name
    paths = []
    if curve.style == "smoothed over points":
        paths.append((f"{curve.kind} raw", curve.points, name if window > 1 else ""))
    for part in _parts(curve):
        means = smoothed(part[:, 1], window)
        paths.append((curve.kind, np.stack([part[:, 0], means], 1), name_of_means))
    return paths


def _beside(lines: Sequence[tuple[float, str]]) -> Any:
    """Write the name of each line at its right end: above it, or below it if another line is close above."""
    before = -math.inf
    for y, name in sorted(lines):
        is_close = y - before < LINE
        height = y + LINE - 5 if is_close else y - 5
        yield WIDTH - RIGHT, height, "end", name
        before = y


def _above(marks: Sequence[tuple[float, str]], beside: Sequence[Any]) -> Any:
    """Write the name of each mark next to its line, lower down if it would overlap another name.

    Parameters
    ----------
    marks : sequence of (float, str)
        Where each line is, and its name.
    beside : sequence of (float, float, str, str)
        The names of horizontal lines, as `_beside` yields them.

    Yields
    ------
    (float, float, str, str)
        As from `_beside`.
    """
    ends: dict[int, float] = {}  # row -> where its last name ends
    taken = [(right - LETTER * len(name), y) for right, y, _, name in beside]
    for x, name in marks:
        end = x + LETTER * (len(name) + 1)
        for row in itertools.count():
            height = TOP + LINE * (row + 0.6)
            is_taken = any(begin < end and abs(y - height) < LINE for begin, y in taken)
            if ends.get(row, 0.0) <= x and not is_taken:
                break
        ends[row] = end
        yield x + 4, height, "start", name


def _value_range(values: np.ndarray) -> tuple[float, float]:
    """Return the lowest and the highest value, or an interval around them if all are the same."""
    low = float(values.min())
    high = float(values.max())
    if high - low > 1e-9 * max(abs(low), abs(high)):
        return low, high
    margin = max(0.1 * abs(high), 1e-3)
    return low - margin, high + margin


def ticks(low: float, high: float) -> list[float]:
    """Return about five round numbers, the first and last of them at or beyond the ends.

    Parameters
    ----------
    low, high : float
        The ends, low < high.

    Returns
    -------
    list of float
        Multiples of 1, 2 or 5 times a power of ten.

    Examples
    --------
    >>> ticks(0.31, 0.93)
    [0.2, 0.4, 0.6, 0.8, 1.0]
    """
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    round_steps = [multiple * power for multiple in (1.0, 2.0, 5.0, 10.0)]
    step = next(size for size in round_steps if size >= 0.999 * rough)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def _tick(value: float) -> str:
    """Format a number on an axis."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:,g}M"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:g}"


def step_charts(
    lines: Sequence[Mapping[str, float]],
    last: float,
    clip_norm: float | None = None,
    warmup: int | None = None,
    breaks: Sequence[float] = (),
    marks: Sequence[tuple[float, str]] = (),
) -> list[StepChart]:
    """Plot the norm of the gradient with the clip norm, and the learning rate.

    Parameters
    ----------
    lines : sequence of dict
        Lines of `metrics.jsonl`.
    last : float
        The step at which the horizontal axis ends.
    clip_norm : float, default None
        Largest norm that is not cut; 0: no limit; None: not known.
    warmup : int, default None
        Number of steps in which the rate rises; None: not known.
    breaks : sequence of float
        Steps at which the smoothing of the norm restarts.
    marks : sequence of (float, str)
        Vertical lines in the plot of the norm: a step and its name.

    Returns
    -------
    list of StepChart
        Without those of which nothing was recorded.
    """
    norms = points(lines, "gradient_norm")
    rates = points(lines, "learning_rate")
    limits = []
    if clip_norm and not _is_far_above(clip_norm, norms):
        limits = [(clip_norm, f"clip norm: {clip_norm:g}")]
    norm_curve = Curve("loss", norms, breaks=breaks)
    rate_curve = Curve("loss", rates, style="exact")
    of_norms = picture("gradient norm", [norm_curve], shown, last, lines=limits, marks=marks)
    of_rates = picture("learning rate", [rate_curve], "{:.3g}".format, last)
    charts = []
    if of_norms:
        charts.append(StepChart(_about_norms(norms, clip_norm, last), of_norms))
    if of_rates:
        charts.append(StepChart(_about_rates(rates, warmup), of_rates))
    return charts


# norms (n,2)
def _is_far_above(clip_norm: float, norms: np.ndarray) -> bool:
    """Return whether a clip norm is so high that it never clips, and would flatten the plot of the norms."""
    return clip_norm > FAR * norms[:, 1].max(initial=0.0)


# norms (n,2)
def _about_norms(norms: np.ndarray, clip_norm: float | None, last: float) -> str:
    """Say what the clip norm does, at how many steps it does so, and which norms are a bad sign.

    The steps are counted only if all of them were read, not some of a long run that is still training.
    """
    if clip_norm is None:
        return f"The norm of the gradient at each step: {LEAPS}"
    if not clip_norm:
        return f"No gradient is scaled down, as the run has no clip norm; {LEAPS}"
    if _is_far_above(clip_norm, norms):
        far = f"The clip norm of {clip_norm:g} is more than {FAR:g} times the largest of these norms"
        return f"{far} and is not drawn; {LEAPS}"
    cut = "Where the norm is above the dashed clip norm, the gradient is scaled down to it"
    if len(norms) == last:
        n_cut = np.count_nonzero(norms[:, 1] > clip_norm)
        times = f"{n_cut:,}" if n_cut else "none"
        cut += f", here at {times} of {counted(len(norms), 'step')}"
    return f"{cut}; {LEAPS}"


# rates (n,2)
def _about_rates(rates: np.ndarray, warmup: int | None) -> str:
    """Say how the learning rate goes, and why it begins low."""
    if warmup is None or len(rates) < 2:
        return "The learning rate of each step."
    if not warmup:
        return "Without a warm-up, the learning rate is highest at the first step, and falls towards zero."
    first_steps = "first step" if warmup == 1 else f"first {warmup:,} steps"
    rises = f"The learning rate rises to its peak in the warm-up, the {first_steps}"
    return f"{rises}, while the averages of the optimizer rest on few gradients; then it falls towards zero."
