"""Compute the coordinates of the plot `templates/experiment.svg.j2`: a line for each row, or curves."""

import math
from typing import Any

from minibert.experiments.judged import Judged
from minibert.experiments.tables import UNTRAINED, Column, Row
from minibert.experiments.verdicts import Estimate
from minibert.reports.pictures import ticks

WIDTH = 720.0  # this and all other lengths are in the plot's own units
LEFT, RIGHT, TOP = 240.0, 20.0, 26.0  # margins of a plot of dots; the left one holds the titles of rows
ROW = 24.0  # height of a row
LETTERS = 26  # longest title of a row that fits
HIGH = 230.0  # height of curves
BESIDE = 64.0  # left margin of curves
NAME_ROOM = 70.0  # right margin of curves, for their names
Cells = list[tuple[Row, Estimate | None]]  # the cells of a column, one for each row
Line = tuple[float, str] | None  # the baseline's value and its label


def number(column: Column, value: float) -> str:
    """Format a metric in percent, or a perplexity as it is.

    Parameters
    ----------
    column : Column
    value : float
        A metric between 0 and 1; for a column of held-out text, a perplexity.

    Returns
    -------
    str
    """
    if column.held_out:
        return f"{value:.2f}"
    return f"{100 * value:.1f}"


def drawn(judged: Judged, column: Column) -> dict[str, Any] | None:
    """Plot a column: as curves if rows are checkpoints of a pre-training, else as a line for each row.

    Parameters
    ----------
    judged : Judged
    column : Column
        One of its columns.

    Returns
    -------
    dict, or None
        What the template needs, in units of the plot; None if no row has an estimate.
    """
    cells = [(row, judged.estimates.get((row.title, column.name))) for row in judged.table.rows]
    estimates = [estimate for _, estimate in cells if estimate]
    if not estimates:
        return None
    name, baseline = judged.baselines.get(column.name, ("", math.nan))
    axis = _axis(estimates, baseline)
    values = [f"{row.title} {number(column, estimate.value)}" for row, estimate in cells if estimate]
    line = None
    if column.name in judged.baselines:
        text = f"{name}: {number(column, baseline)}"
        if not axis[0] <= baseline <= axis[-1]:
            text += " (off the scale)"
        line = baseline, text
    draw = _curves if any(row.share < 1 for row, _ in cells) else _dots
    return {
        "title": column.title,
        "label": f"{column.title}: {'; '.join(values)}",
        "width": WIDTH,
        **draw(cells, column, axis, line),
    }


def _axis(estimates: list[Estimate], baseline: float) -> list[float]:
    """Return the ticks of an axis that covers all points, and intervals and the baseline as far as is useful.

    A baseline far from all points is off the scale, and on each side the axis extends beyond the points by at
    most their range, which cuts longer intervals off. Otherwise the points would be squeezed together.
    """
    points = []
    ends = []
    for estimate in estimates:
        points += [estimate.value, *estimate.seeds]
        ends += [end for end in (estimate.low, estimate.high) if math.isfinite(end)]
    span = max(max(points) - min(points), 0.02 * abs(max(points)), 1e-3)
    if min(points) - 4 * span < baseline < max(points) + 4 * span:
        points.append(baseline)
    low = min(points)
    high = max(points)
    span = max(high - low, span)
    twice_centre = low + high
    low = (twice_centre - span) / 2  # also gives a single point some room
    high = (twice_centre + span) / 2
    lowest_end = min([low, *ends])
    highest_end = max([high, *ends])
    lowest = max(low - span, lowest_end)
    highest = max(high + 0.1 * span, min(high + span, highest_end))
    return ticks(lowest, highest)


def _share_of(axis: list[float], value: float) -> float:
    """Return the position of a value on an axis, from 0 to 1, clipped at the ends."""
    share = (value - axis[0]) / (axis[-1] - axis[0])
    return min(1.0, max(0.0, share))


def _dots(cells: Cells, column: Column, axis: list[float], base: Line) -> dict[str, Any]:
    """Plot a line for each row: seeds as small dots, the estimate as a large one, its interval as a bar."""

    def x(value: float) -> float:
        return LEFT + _share_of(axis, value) * (WIDTH - LEFT - RIGHT)

    bottom = TOP + ROW * len(cells)
    paths = []
    texts = []
    dots = []
    for tick in axis:
        paths.append(("rule", [(x(tick), TOP), (x(tick), bottom)]))
        texts.append((x(tick), bottom + 16, "middle", number(column, tick)))
    if base:
        across = x(base[0])
        paths.append(("base", [(across, TOP - 6), (across, bottom)]))
        if across > (LEFT + WIDTH) / 2:
            texts.append((across - 6, TOP - 10, "end", base[1]))
        else:
            texts.append((across + 6, TOP - 10, "start", base[1]))
    for index, (row, estimate) in enumerate(cells):
        y = TOP + ROW * (index + 0.5)
        title = row.title
        if len(title) > LETTERS:
            title = title[: LETTERS - 1] + "…"
        if estimate is None:
            texts.append((LEFT - 10, y + 4, "end", f"{title}: no result"))
            continue
        texts.append((LEFT - 10, y + 4, "end", title))
        if math.isfinite(estimate.high - estimate.low):
            bar = [(x(estimate.low), y), (x(estimate.high), y)]
            paths.append(("bar", bar))
        for seed in estimate.seeds:
            dots.append(("seed", x(seed), y + 6, 2.5, number(column, seed)))
        words = f"{row.title}: {number(column, estimate.value)}"
        dots.append(("ours", x(estimate.value), y, 4.5, words))
    return {"height": bottom + 22, "paths": paths, "texts": texts, "dots": dots}


def _curves(cells: Cells, column: Column, axis: list[float], base: Line) -> dict[str, Any]:
    """Plot a curve for each model over the share of its steps, within the band of its intervals."""
    right = WIDTH - NAME_ROOM
    bottom = TOP + HIGH
    starts = []
    for row, estimate in cells:
        if row.model == UNTRAINED:  # a level line, which also needs a point at step 0
            starts.append((row._replace(share=0.0), estimate))
    cells = [*cells, *starts]

    def x(share: float) -> float:
        return BESIDE + share * (right - BESIDE)

    def y(value: float) -> float:
        return bottom - _share_of(axis, value) * HIGH

    paths = []
    texts = []
    for tick in axis:
        height = y(tick)
        paths.append(("rule", [(BESIDE, height), (right, height)]))
        texts.append((BESIDE - 8, height + 4, "end", number(column, tick)))
    for share in dict.fromkeys(row.share for row, _ in cells):
        texts.append((x(share), bottom + 16, "middle", f"{share:.0%}"))
    texts.append((right, bottom + 34, "end", "share of the steps"))
    if base:
        height = y(base[0])
        paths.append(("base", [(BESIDE, height), (right, height)]))
        texts.append((right, height - 5, "end", base[1]))
    dots = []
    ends = []
    models = dict.fromkeys(row.model for row, _ in cells)
    for index, model in enumerate(models):
        kind = f"curve{index % 3}"
        points = [(row, estimate) for row, estimate in cells if estimate and row.model == model]
        points.sort(key=lambda point: point[0].share)
        if not points:
            continue
        curve = []
        above = []
        below = []
        for row, estimate in points:
            across = x(row.share)
            height = y(estimate.value)
            curve.append((across, height))
            words = f"{row.title}: {number(column, estimate.value)}"
            dots.append((kind, across, height, 4, words))
            if math.isfinite(estimate.high - estimate.low):
                above.append((across, y(estimate.high)))
                below.append((across, y(estimate.low)))
        if len(above) > 1:
            paths.append((f"band {kind}", [*above, *reversed(below)]))
        paths.append((kind, curve))
        last_row, last_estimate = points[-1]
        ends.append((y(last_estimate.value), last_row.title.split(",")[0]))
    # Write the names at the right ends, so that none overlaps another.
    last = -math.inf
    for height, title in sorted(ends):
        last = max(height + 4, last + 15)
        texts.append((right + 10, last, "start", title))
    return {"height": bottom + 42, "paths": paths, "texts": texts, "dots": dots}
