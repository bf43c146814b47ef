"""Where everything of a picture stands in `templates/experiment.svg.j2`: a row each, or curves."""

import math
from typing import Any

from minibert.experiments.judged import Judged
from minibert.experiments.tables import UNTRAINED, Column
from minibert.experiments.verdicts import Estimate
from minibert.reports.pictures import ticks

WIDTH, LEFT, RIGHT, TOP, ROW = 720.0, 240.0, 20.0, 26.0, 24.0
HIGH = 230.0  # of curves
BESIDE, LETTERS = 64.0, 26  # left of curves; of a row's title


def number(column: Column, value: float) -> str:
    """Write shares in percent, perplexities as they are."""
    return f"{value:.2f}" if column.held_out else f"{100 * value:.1f}"


def drawn(judged: Judged, column: Column) -> dict[str, Any] | None:
    """Draw a column: curves where rows are checkpoints on the way, else a line for each row."""
    rows = [(row, judged.estimates.get((row.title, column.name))) for row in judged.table.rows]
    found = [one for _, one in rows if one]
    if not found:
        return None
    base = judged.baselines.get(column.name)
    axis = _axis(found, base[1] if base else math.nan)
    label = f"{column.title}: " + "; ".join(f"{row.title} {number(column, e.value)}" for row, e in rows if e)
    off = " (off the scale)" * bool(base and not axis[0] <= base[1] <= axis[-1])
    line = (base[1], f"{base[0]}: {number(column, base[1])}{off}") if base else None
    draw = _curves if any(row.share < 1 for row, _ in rows) else _dots
    return {"title": column.title, "label": label, "width": WIDTH} | draw(rows, column, axis, line)


def _axis(found: list[Estimate], base: float) -> list[float]:
    """Return round numbers that hold all points, and of intervals and the baseline what is not far off."""
    points = [x for one in found for x in (one.value, *one.seeds)]
    room = max(max(points) - min(points), 0.02 * abs(max(points)), 1e-3)
    points += [base] * (min(points) - 4 * room < base < max(points) + 4 * room)
    low, high = min(points), max(points)
    room = max(high - low, room)
    low, high = (low + high - room) / 2, (low + high + room) / 2  # of a single point, too
    ends = [x for one in found for x in (one.low, one.high) if math.isfinite(x)]
    lowest = max(low - room, min([low, *ends]))
    return ticks(lowest, max(high + 0.1 * room, min(high + room, max([high, *ends]))))


def _dots(rows: Any, column: Column, axis: list[float], base: Any) -> dict[str, Any]:
    def x(value: float) -> float:
        share = (value - axis[0]) / (axis[-1] - axis[0])
        return LEFT + min(1.0, max(0.0, share)) * (WIDTH - LEFT - RIGHT)

    bottom = TOP + ROW * len(rows)
    paths = [("rule", [(x(tick), TOP), (x(tick), bottom)]) for tick in axis]
    texts = [(x(tick), bottom + 16, "middle", number(column, tick)) for tick in axis]
    dots = []
    if base:
        paths.append(("base", [(x(base[0]), TOP - 6), (x(base[0]), bottom)]))
        right = x(base[0]) > (LEFT + WIDTH) / 2
        texts.append((x(base[0]) + (-6 if right else 6), TOP - 10, "end" if right else "start", base[1]))
    for place, (row, one) in enumerate(rows):
        y = TOP + ROW * (place + 0.5)
        title = row.title if len(row.title) <= LETTERS else row.title[: LETTERS - 1] + "…"
        texts.append((LEFT - 10, y + 4, "end", title if one else f"{title}: no result"))
        if one is None:
            continue
        if math.isfinite(one.high - one.low):
            paths.append(("bar", [(x(one.low), y), (x(one.high), y)]))
        dots += [("seed", x(seed), y + 6, 2.5, number(column, seed)) for seed in one.seeds]
        dots.append(("ours", x(one.value), y, 4.5, f"{row.title}: {number(column, one.value)}"))
    return {"height": bottom + 22, "paths": paths, "texts": texts, "dots": dots}


def _curves(rows: Any, column: Column, axis: list[float], base: Any) -> dict[str, Any]:
    right, bottom = WIDTH - 70, TOP + HIGH
    rows += [(row._replace(share=0.0), one) for row, one in rows if row.model == UNTRAINED]  # a level line

    def x(share: float) -> float:
        return BESIDE + share * (right - BESIDE)

    def y(value: float) -> float:
        share = (value - axis[0]) / (axis[-1] - axis[0])
        return bottom - min(1.0, max(0.0, share)) * HIGH

    paths = [("rule", [(BESIDE, y(tick)), (right, y(tick))]) for tick in axis]
    texts = [(BESIDE - 8, y(tick) + 4, "end", number(column, tick)) for tick in axis]
    shares = dict.fromkeys(row.share for row, _ in rows)
    texts += [(x(share), bottom + 16, "middle", f"{share:.0%}") for share in shares]
    texts.append((right, bottom + 34, "end", "share of the steps"))
    if base:
        paths.append(("base", [(BESIDE, y(base[0])), (right, y(base[0]))]))
        texts.append((right, y(base[0]) - 5, "end", base[1]))
    dots, ends = [], []
    for place, model in enumerate(dict.fromkeys(row.model for row, _ in rows)):
        kind = f"curve{place % 3}"
        own = sorted((r for r in rows if r[1] and r[0].model == model), key=lambda r: r[0].share)
        band = [(row.share, one) for row, one in own if math.isfinite(one.high - one.low)]
        around = [(x(s), y(e.high)) for s, e in band] + [(x(s), y(e.low)) for s, e in reversed(band)]
        paths += [(f"band {kind}", around)] * (len(band) > 1)
        paths += [(kind, [(x(row.share), y(one.value)) for row, one in own])] * bool(own)
        for row, one in own:
            dots.append((kind, x(row.share), y(one.value), 4, f"{row.title}: {number(column, one.value)}"))
        ends += [(y(own[-1][1].value), own[-1][0].title.split(",")[0])] if own else []
    last = -math.inf
    for height, title in sorted(ends):
        last = max(height + 4, last + 15)
        texts.append((right + 10, last, "start", title))
    return {"height": bottom + 42, "paths": paths, "texts": texts, "dots": dots}
