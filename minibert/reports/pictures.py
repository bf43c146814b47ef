"""Where everything of some curves stands in `templates/picture.svg.j2`."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from minibert.reports.viz import smoothed

MOST_POINTS = 600  # of a curve; more are averaged
LARGEST = 1e100  # of a value; a larger one is no more drawn than one that is not a number
WIDTH, HEIGHT = 720.0, 300.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 12.0, 12.0, 38.0  # beside the plot itself
LETTER, LINE = 12.0, 20.0  # what a letter and a line of text may take on a small screen


class Curve(NamedTuple):
    """Values over steps, or over tokens or minutes."""

    kind: str  # its class in the style of the page
    points: np.ndarray  # (n,2)
    name: str = ""  # where there are several
    dots: bool = False  # a dot for each point; else a smoothed curve
    faint: bool = True  # draw every point, too, where they are smoothed
    breaks: Sequence[float] = ()  # where the smoothing begins anew


# -> (n,2)
def points(lines: Sequence[Mapping[str, float]], name: str) -> np.ndarray:
    """Return steps and what was recorded of them under a name, of lines of `metrics.jsonl`."""
    found = [(line["step"], line[name]) for line in lines if name in line]
    return np.array(found, float).reshape(-1, 2)


def picture(
    title: str,
    curves: Sequence[Curve],
    words: Callable[[float], str],
    last: float | None = None,
    axis: str = "step",
    scale: float = 1.0,
    band: tuple[float, float, str] | None = None,
    lines: Sequence[tuple[float, str]] = (),
    marks: Sequence[tuple[float, str]] = (),
) -> dict[str, Any] | None:
    """Draw curves above one axis, which ends at `last`; None where they have no point that can be drawn.

    The numbers at the other axis are `scale` times the values, which `words` writes out; it holds the ends of
    the interval `band` and the values of `lines`, each with its name: what is small beside them is small in
    the picture. A mark is a name at a place of the first axis.
    """
    lines = [one for one in lines if abs(one[0]) < LARGEST]
    curves = [one._replace(points=one.points[(np.abs(one.points) < LARGEST).all(1)]) for one in curves]
    curves = [_thinned(one) for one in curves if len(one.points)]
    if not curves:
        return None
    last = max(1.0 if axis == "step" else 1e-9, last or max(one.points[:, 0].max() for one in curves))
    drawn = [path for one in curves for path in _paths(one)]
    shown = [value for _, points in drawn for value in points[:, 1]]
    heights = ticks(*_room(np.array([*shown, *(band or ())[:2], *(value for value, _ in lines)])))
    places = [one for one in ticks(0.0, last) if one <= last and (axis != "step" or one == int(one))]
    low, high = heights[0], heights[-1]

    def x(place: Any) -> Any:
        return LEFT + place / last * (WIDTH - LEFT - RIGHT)

    def y(value: Any) -> Any:
        return TOP + (high - value) / (high - low) * (HEIGHT - TOP - BOTTOM)

    paths = [("line", [(LEFT, y(value)), (WIDTH - RIGHT, y(value))]) for value, _ in lines]
    paths += [("rule", [(x(place), TOP), (x(place), HEIGHT - BOTTOM)]) for place, _ in marks if place]
    paths += [(kind, np.stack([x(points[:, 0]), y(points[:, 1])], 1).tolist()) for kind, points in drawn]
    dots = []
    for one in curves:
        for place, value in one.points.tolist() if one.dots else ():
            name = f"{one.name}, " * bool(one.name) + f"{axis} {_tick(place)}"
            dots.append((one.kind, x(place), y(value), f"{name}: {words(value)}"))
    ends = [f"{one.name} from {words(one.points[0, 1])} to {words(one.points[-1, 1])}" for one in curves]
    return {
        "label": f"{title} over {axis.rstrip('s')}s, {'; '.join(ends).strip()}",
        "title": title,
        "axis": axis,
        "width": WIDTH,
        "height": HEIGHT,
        "left": LEFT,
        "right": WIDTH - RIGHT,
        "bottom": HEIGHT - BOTTOM,
        "heights": [(_tick(scale * tick), y(tick)) for tick in heights],
        "places": [(_tick(place), x(place)) for place in places],
        "bands": [(y(band[0]), y(band[1]), band[2])] if band else [],
        "texts": [*_beside([(y(value), name) for value, name in lines])]
        + [*_above([(x(place), name) for place, name in marks])],
        "paths": paths,
        "dots": dots,
    }


def _parts(curve: Curve) -> list[np.ndarray]:
    """Divide the points of a curve where its smoothing begins anew."""
    found = np.split(curve.points, np.searchsorted(curve.points[:, 0], curve.breaks, side="right"))
    return [part for part in found if len(part)]


def _thinned(curve: Curve) -> Curve:
    """Average neighbours where there are more than MOST_POINTS."""
    if (count := len(curve.points)) <= MOST_POINTS:
        return curve
    parts = [np.array_split(part, max(1, MOST_POINTS * len(part) // count)) for part in _parts(curve)]
    return curve._replace(points=np.array([few.mean(0) for part in parts for few in part]))


def _paths(curve: Curve) -> list[tuple[str, np.ndarray]]:
    if curve.dots:
        return [(curve.kind, curve.points)]
    window = max(1, len(curve.points) // 20)
    smooth = (np.stack([part[:, 0], smoothed(part[:, 1], window)], 1) for part in _parts(curve))
    return [(f"{curve.kind} raw", curve.points)] * curve.faint + [(curve.kind, one) for one in smooth]


def _beside(lines: Sequence[tuple[float, str]]) -> Any:
    """Write the name of each line at its right end: above it, or where another is close above, below."""
    before = -math.inf
    for y, name in sorted(lines):
        yield WIDTH - RIGHT, y + LINE - 5 if y - before < LINE else y - 5, "end", name
        before = y


def _above(marks: Sequence[tuple[float, str]]) -> Any:
    """Write the name of each mark beside its line, lower where another one stands."""
    ends: list[float] = []  # of the last name of each row
    for x, name in marks:
        row = next((number for number, end in enumerate(ends) if end <= x), len(ends))
        ends[row : row + 1] = [x + LETTER * (len(name) + 1)]
        yield x + 4, TOP + LINE * (row + 0.6), "start", name


def _room(values: np.ndarray) -> tuple[float, float]:
    """Return lowest and highest, apart even where all are the same."""
    low, high = float(values.min()), float(values.max())
    apart = 0.0 if high - low > 1e-9 * max(abs(low), abs(high)) else max(0.1 * abs(high), 1e-3)
    return low - apart, high + apart


def ticks(low: float, high: float) -> list[float]:
    """Round numbers, some five of them, the outer ones at or beyond both ends.

    Examples
    --------
    >>> ticks(0.31, 0.93)
    [0.2, 0.4, 0.6, 0.8, 1.0]
    """
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(one * power for one in (1.0, 2.0, 5.0, 10.0) if one * power >= 0.999 * rough)
    numbers = range(math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9) + 1)
    return [float(f"{number * step:.12g}") for number in numbers]


def _tick(value: float) -> str:
    if abs(value) >= 1e6:
        return f"{value / 1e6:,g}M"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"
