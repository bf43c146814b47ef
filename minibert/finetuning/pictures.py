"""A curve over steps as SVG, written by hand."""

import math
from collections.abc import Callable

import numpy as np

from minibert.finetuning.markup import plain
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
    told: Callable[[float], str],
    band: tuple[float, float, str] | None = None,
    line: tuple[float, str] | None = None,
) -> str:
    """One curve: every step faintly and smoothed, or a dot for every look.

    The axis holds band and line, too: what is small beside them is small in the picture.

    Parameters
    ----------
    last : the last step.
    scale : of the numbers at the axis.
    told : a value in words.
    band : low and high end of an interval, and what it is.
    line : a value to compare with, and what it is.
    """
    dots = name == "metric"
    if len(points) > MOST_POINTS:
        points = np.array([part.mean(0) for part in np.array_split(points, MOST_POINTS)])
    shown = [*points[:, 1], *(band or ())[:2], *(line or ())[:1]]
    lows = ticks(*_room(np.array(shown)))
    begins = [tick for tick in ticks(0.0, max(last, 1.0)) if tick == int(tick) and tick <= last]
    low, high = lows[0], lows[-1]

    # (n,2) -> (n,2)
    def place(at: np.ndarray) -> np.ndarray:
        x = LEFT + at[:, 0] / max(last, 1.0) * (WIDTH - LEFT - RIGHT)
        return np.stack([x, TOP + (high - at[:, 1]) / (high - low) * (HEIGHT - TOP - BOTTOM)], 1)

    marks = []
    for tick, (_, y) in zip(lows, place(np.array([(0.0, tick) for tick in lows])), strict=True):
        marks.append(f'<path class="rule" d="M{LEFT:.1f} {y:.1f}H{WIDTH - RIGHT:.1f}"/>')
        marks.append(
            f'<text x="{LEFT - 8:.1f}" y="{y + 4:.1f}" text-anchor="end">{_tick(scale * tick)}</text>'
        )
    for tick, (x, _) in zip(begins, place(np.array([(tick, low) for tick in begins])), strict=True):
        y = HEIGHT - BOTTOM + 16
        marks.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{_tick(tick)}</text>')
    marks.append(
        f'<text x="{WIDTH - RIGHT:.1f}" y="{HEIGHT - 6:.1f}" text-anchor="end">step</text>'
        f'<text x="{LEFT:.1f}" y="{HEIGHT - 6:.1f}">{plain(title)}</text>'
    )
    if band:
        (_, low_y), (_, high_y) = place(np.array([(0.0, band[0]), (0.0, band[1])]))
        marks.append(
            f'<rect class="band" x="{LEFT:.1f}" y="{high_y:.1f}" width="{WIDTH - LEFT - RIGHT:.1f}" '
            f'height="{low_y - high_y:.1f}"></rect>'
            f'<text x="{LEFT + 6:.1f}" y="{low_y - 5:.1f}">{plain(band[2])}</text>'
        )
    if line:
        ends = place(np.array([(0.0, line[0]), (max(last, 1.0), line[0])]))
        marks.append(_path("line", ends))
        marks.append(
            f'<text x="{ends[1, 0]:.1f}" y="{ends[1, 1] - 5:.1f}" text-anchor="end">{plain(line[1])}</text>'
        )
    if dots:
        marks.append(_path("metric", place(points)))
        for (step, value), (x, y) in zip(points, place(points), strict=True):
            said = f"step {step:,.0f}: {told(float(value))}"
            marks.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{said}</title></circle>')
    else:
        smooth = smoothed(points[:, 1], max(1, len(points) // 20))
        marks.append(_path("loss raw", place(points)))
        marks.append(_path("loss", place(np.stack([points[:, 0], smooth], 1))))
    label = f"{plain(title)} over steps, from {told(float(points[0, 1]))} to {told(float(points[-1, 1]))}"
    return (
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{label}">\n'
        + "\n".join(marks)
        + "\n</svg>"
    )


# at (n,2)
def _path(kind: str, at: np.ndarray) -> str:
    return f'<path class="{kind}" d="M' + "L".join(f"{x:.1f} {y:.1f}" for x, y in at) + '"/>'


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
