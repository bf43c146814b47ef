"""Compute the coordinates of the plot `templates/experiment.svg.j2`: a line for each row, or curves."""

import math
from typing import Any

from minibert.experiments.judged import Judged
from minibert.experiments.tables import UNTRAINED, Column, Row
from minibert.experiments.verdicts import Estimate
from minibert.reports.pictures import Frame, ticks

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


def _within(ends: tuple[float, float], value: float) -> float:
    """Return a value, or the end of an axis that it lies beyond."""
    return min(ends[1], max(ends[0], value))


def _words(row: Row, column: Column, estimate: Estimate) -> str:
    """Write what a pointer shows at the dot of an estimate."""
    return f"{row.title}: {number(column, estimate.value)}"


def _dots(cells: Cells, column: Column, axis: list[float], base: Line) -> dict[str, Any]:
    """Plot a line for each row: seeds as small dots, the estimate as a large one, its interval as a bar."""
    width, height = WIDTH - LEFT - RIGHT, ROW * len(cells)
    frame = Frame(LEFT, TOP, width, height, (axis[0], axis[-1]), (0.0, 1.0))
    paths = []
    texts = []
    dots = []
    for tick in axis:
        paths.append(("rule", frame.upright(tick)))
        texts.append((frame.x(tick), frame.bottom + 16, "middle", number(column, tick)))
    if base:
        value, words = base
        x = frame.x(_within(frame.xs, value))
        paths.append(("base", [(x, TOP - 6), (x, frame.bottom)]))
        if x > (LEFT + WIDTH) / 2:
            texts.append((x - 6, TOP - 10, "end", words))
        else:
            texts.append((x + 6, TOP - 10, "start", words))
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
            ends = (frame.x(_within(frame.xs, end)) for end in (estimate.low, estimate.high))
            paths.append(("bar", [(x, y) for x in ends]))
        for seed in estimate.seeds:
            dots.append(("seed", frame.x(seed), y + 6, 2.5, number(column, seed)))
        dots.append(("ours", frame.x(estimate.value), y, 4.5, _words(row, column, estimate)))
    return {"height": frame.bottom + 22, "paths": paths, "texts": texts, "dots": dots}


def _curves(cells: Cells, column: Column, axis: list[float], base: Line) -> dict[str, Any]:
    """Plot a curve for each model over the share of its steps, within the band of its intervals."""
    models = dict.fromkeys(row.model for row, _ in cells)
    frame = Frame(BESIDE, TOP, WIDTH - NAME_ROOM - BESIDE, HIGH, (0.0, 1.0), (axis[0], axis[-1]))
    # The untrained model is a level line, which also needs a point at step 0.
    starts = [(row._replace(share=0.0), estimate) for row, estimate in cells if row.model == UNTRAINED]
    cells = [*cells, *starts]
    paths, texts = _axes_of_curves(frame, cells, column, axis, base)
    dots = []
    ends = []  # of each curve, the height of its last point and its name
    for index, model in enumerate(models):
        points = [(row, estimate) for row, estimate in cells if estimate and row.model == model]
        points.sort(key=lambda point: point[0].share)
        if not points:
            continue
        kind = f"curve{index % 3}"
        paths += _curve(frame, kind, points)
        for row, estimate in points:
            dots.append((kind, frame.x(row.share), frame.y(estimate.value), 4, _words(row, column, estimate)))
        last_row, last_estimate = points[-1]
        ends.append((frame.y(last_estimate.value), last_row.title.split(",")[0]))
    last = -math.inf
    for y, title in sorted(ends):
        last = max(y + 4, last + 15)  # below the name before, where the two would overlap
        texts.append((frame.right + 10, last, "start", title))
    return {"height": frame.bottom + 42, "paths": paths, "texts": texts, "dots": dots}


def _axes_of_curves(
    frame: Frame, cells: Cells, column: Column, axis: list[float], base: Line
) -> tuple[list[Any], list[Any]]:
    """Draw the lines behind curves, and write the numbers at both axes."""
    paths = []
    texts = []
    for tick in axis:
        paths.append(("rule", frame.across(tick)))
        texts.append((BESIDE - 8, frame.y(tick) + 4, "end", number(column, tick)))
    for share in dict.fromkeys(row.share for row, _ in cells):
        texts.append((frame.x(share), frame.bottom + 16, "middle", f"{share:.0%}"))
    texts.append((frame.right, frame.bottom + 34, "end", "share of the steps"))
    if base:
        value = _within(frame.ys, base[0])
        paths.append(("base", frame.across(value)))
        texts.append((frame.right, frame.y(value) - 5, "end", base[1]))
    return paths, texts


def _curve(frame: Frame, kind: str, points: list[tuple[Row, Estimate]]) -> list[Any]:
    """Draw the curve of a model, and below it the band of those intervals that are known."""
    curve = []
    above = []
    below = []
    for row, estimate in points:
        x = frame.x(row.share)
        curve.append((x, frame.y(estimate.value)))
        if math.isfinite(estimate.high - estimate.low):
            above.append((x, frame.y(_within(frame.ys, estimate.high))))
            below.append((x, frame.y(_within(frame.ys, estimate.low))))
    paths = [(kind, curve)]
    if len(above) > 1:
        paths.insert(0, (f"band {kind}", [*above, *reversed(below)]))
    return paths
