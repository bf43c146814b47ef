"""Where everything of a curve over steps stands in `templates/picture.svg.j2`."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from minibert.viz import smoothed

MOST_POINTS = 600  # more are averaged
WIDTH, HEIGHT = 720.0, 250.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 12.0, 12.0, 38.0  # beside the plot itself


# points (n,2)
def picture(
    name: str,
    title: str,
    points: np.ndarray,
    last: float,
    scale: float,
    words: Callable[[float], str],
    band: tuple[float, float, str] | None = None,
    line: tuple[float, str] | None = None,
) -> dict[str, Any]:
    """One curve: every step faintly and smoothed, or a dot for every evaluation.

    The steps go to `last`. The numbers at the other axis are `scale` times the values, which `words` writes
    out; it holds the ends of the interval `band` and the value `line`, each with what it is, too: what is
    small beside them is small in the picture.
    """
    if len(points) > MOST_POINTS:
        points = np.array([part.mean(0) for part in np.array_split(points, MOST_POINTS)])
    shown = [*points[:, 1], *(band or ())[:2], *(line or ())[:1]]
    heights = ticks(*_room(np.array(shown)))
    steps = [tick for tick in ticks(0.0, max(last, 1.0)) if tick == int(tick) and tick <= last]
    low, high = heights[0], heights[-1]

    def x(step: Any) -> Any:
        return LEFT + step / max(last, 1.0) * (WIDTH - LEFT - RIGHT)

    def y(value: Any) -> Any:
        return TOP + (high - value) / (high - low) * (HEIGHT - TOP - BOTTOM)

    # (n,) -> n pairs
    def curve(values: np.ndarray) -> list[Any]:
        return np.stack([x(points[:, 0]), y(values)], 1).tolist()

    curves, dots = [("line", [(LEFT, y(line[0])), (WIDTH - RIGHT, y(line[0]))])] if line else [], []
    if name == "metric":
        curves.append(("metric", curve(points[:, 1])))
        dots = [(x(step), y(value), f"step {step:,.0f}: {words(value)}") for step, value in points.tolist()]
    else:
        smooth = smoothed(points[:, 1], max(1, len(points) // 20))
        curves += [("loss raw", curve(points[:, 1])), ("loss", curve(smooth))]
    return {
        "label": f"{title} over steps, from {words(float(points[0, 1]))} to {words(float(points[-1, 1]))}",
        "title": title,
        "width": WIDTH,
        "height": HEIGHT,
        "left": LEFT,
        "right": WIDTH - RIGHT,
        "bottom": HEIGHT - BOTTOM,
        "heights": [(_tick(scale * tick), y(tick)) for tick in heights],
        "steps": [(_tick(tick), x(tick)) for tick in steps],
        "bands": [(y(band[0]), y(band[1]), band[2])] if band else [],
        "lines": [(y(line[0]), line[1])] if line else [],
        "curves": curves,
        "dots": dots,
    }


def _room(values: np.ndarray) -> tuple[float, float]:
    """Lowest and highest, apart even where all are the same."""
    low, high = float(values.min()), float(values.max())
    apart = 0.0 if high - low > 1e-9 * max(abs(low), abs(high)) else max(0.1 * abs(high), 1e-3)
    return low - apart, high + apart


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers, some `about` of them, the outer ones at or beyond both ends.

    Examples
    --------
    >>> ticks(0.31, 0.93)
    [0.2, 0.4, 0.6, 0.8, 1.0]
    """
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(one * power for one in (1.0, 2.0, 5.0, 10.0) if one * power >= 0.999 * rough)
    numbers = range(math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9) + 1)
    return [float(f"{number * step:.12g}") for number in numbers]


def _tick(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"
