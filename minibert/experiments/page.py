"""What the experiments found, for people: `tables.txt` for a terminal, `index.html` for any browser.

Times and the machine stand on the page alone: the same results make the same `tables.txt`.
"""

import math
import platform
import shlex
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

from minibert import __version__
from minibert.experiments.cells import Plan
from minibert.experiments.judged import Judged
from minibert.experiments.plots import drawn, number
from minibert.experiments.runner import Results
from minibert.experiments.tables import Column, Ordering
from minibert.experiments.verdicts import Outcomes, Verdict, verdict_text
from minibert.files import atomic_text
from minibert.reports.markup import rendered, shown

PAGE, TEXT, WIDTH = "index.html", "tables.txt", 110


def table_text(judged: Judged) -> str:
    """Lay a table out for a terminal: under each of our figures the paper's, in brackets."""
    table, columns = judged.table, judged.columns
    rows = [("", [one.title for one in columns])]
    for row in table.rows:
        rows.append((row.title, [_ours(judged, row.title, one) for one in columns]))
        if any(one.name in row.paper for one in columns):
            rows.append(("", [_paper(one, row.paper.get(one.name)) for one in columns]))
    best = [judged.baselines.get(one.name) for one in columns]
    rows.append(
        ("Trivial baseline", [number(c, b[1]) if b else "-" for c, b in zip(columns, best, strict=True)])
    )
    names = [wrap(b[0], 14) if b else [] for b in best]
    rows += [("", list(words)) for words in zip_longest(*names, fillvalue="")]
    first = max(len(title) for title, _ in rows)
    widths = [max(map(len, column)) for column in zip(*(cells for _, cells in rows), strict=True)]
    lines = [f"{table.name}: {table.title}. Ours, and (the paper's)", ""]
    for title, cells in rows:
        found = (f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        lines.append("  ".join((f"{title:<{first}}", *found)).rstrip())
    below = [f"{one.title}: {judged.titles.get(one.name, '')}" for one in columns]
    below.append(f"Seeds: {', '.join(map(str, judged.seeds))}")
    below.append(judged.average())
    below += [_sentence(judged, *one) for one in judged.verdicts]
    below += [f"Given up: {cell}. {why}" for cell, why in judged.failed.items()] + [table.note]
    lines += ["", *(line for one in below for line in wrap(one, WIDTH, subsequent_indent="  "))]
    return shown("\n".join(lines))


def orderings_markdown(judged: Sequence[Judged]) -> str:
    """Return all orderings as a table of Markdown: the paper's figures, our means, and the verdict."""
    rows: list[tuple[str, ...]] = [("Table", "Ordering", "Paper", "Here", "Verdict"), ("---",) * 5]
    for one in judged:
        for ordering, verdict in one.verdicts:
            title = f"{ordering.better} > {ordering.worse} on {_name(_column(one, ordering))}"
            here = (_ours(one, row, _column(one, ordering)) for row in (ordering.better, ordering.worse))
            found = verdict_text("", verdict, not _column(one, ordering).held_out)
            cells = (
                one.table.name,
                title,
                _claim(one, ordering) or "–",
                ", ".join(here),
                found.removeprefix(": "),
            )
            rows.append(tuple(map(_plain, cells)))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def write(out: Path, plan: Plan, results: Results, judged: Sequence[Judged]) -> Path:
    """Write `tables.txt` and `index.html` into a folder, and return the path of the page."""
    atomic_text(out / TEXT, "\n\n\n".join(map(table_text, judged)) + "\n")
    times = list(results.times.values())
    kinds = dict.fromkeys(one["kind"] for one in times)
    spent = [(kind, sum(one["kind"] == kind for one in times), _minutes(times, kind)) for kind in kinds]
    trained = [(name, line["result"]) for name, line in results.lines.items() if "tokens" in line["result"]]
    page = rendered(
        "experiments.html.j2",
        scale=plan.scale,
        text=plan.text,
        model=plan.model,
        command=_command(plan, judged),
        tables=[_described(plan, results, one) for one in judged],
        trained=[
            (name, *(one.get(key) for key in ("parameters", "tokens", "steps"))) for name, one in trained
        ],
        spent=spent,
        cores=", ".join(map(str, sorted({one["cores"] for one in times}))) or "–",
        machine=f"{platform.system()}, {platform.machine()}",
        versions=f"minibert {__version__}, Python {platform.python_version()}, NumPy {np.__version__}",
    )
    atomic_text(out / PAGE, page)
    return out / PAGE


def _described(plan: Plan, results: Results, judged: Judged) -> dict[str, Any]:
    """Return what the page says of a table."""
    columns, verdicts = judged.columns, []
    for ordering, verdict in judged.verdicts:
        verdicts.append((verdict.answer, _sentence(judged, ordering, verdict), ordering.why))
    rows = [
        (
            row.title,
            [(_ours(judged, row.title, one), _paper(one, row.paper.get(one.name))) for one in columns],
        )
        for row in judged.table.rows
    ]
    trivial = [judged.baselines.get(one.name) for one in columns]
    return {
        "table": judged.table,
        "columns": [
            (one.title, judged.titles.get(one.name), _examples(plan, results, one)) for one in columns
        ],
        "rows": rows,
        "trivial": [
            (number(c, b[1]), b[0]) if b else ("-", "") for c, b in zip(columns, trivial, strict=True)
        ],
        "average": judged.average(),
        "pictures": [drawn(judged, one) for one in columns],
        "verdicts": verdicts,
        "failed": judged.failed,
        "seeds": judged.seeds,
    }


def _examples(plan: Plan, results: Results, column: Column) -> int | None:
    """Count what a column is measured on; None where that is not known."""
    name = None if column.held_out else plan.baseline_name(column)
    if name is None or name not in results or column.split not in results[name]:
        return None
    found = len(Outcomes.from_json(results[name][column.split]).values)
    return found if found > 1 else None  # a correlation is one value of all


def _ours(judged: Judged, row: str, column: Column) -> str:
    """Write an estimate as "71.2 ±1.3"; one seed has no interval."""
    if (found := judged.estimates.get((row, column.name))) is None:
        return "-"
    half = (found.high - found.low) / 2
    return number(column, found.value) + (f" ±{number(column, half)}" if math.isfinite(half) else "")


def _paper(column: Column, figure: float | None) -> str:
    digits = 2 if column.held_out else 1
    return "" if figure is None else f"({figure:.{digits}f})"


def _claim(judged: Judged, ordering: Ordering) -> str:
    """Write the paper's figures as "84.4 > 83.9"; nothing where it has none."""
    if not (figures := judged.paper(ordering)):
        return ""
    better, worse = (_paper(_column(judged, ordering), one).strip("()") for one in figures)
    return f"{better} {'>' if figures[0] > figures[1] else '<' if figures[0] < figures[1] else '='} {worse}"


def _sentence(judged: Judged, ordering: Ordering, verdict: Verdict) -> str:
    column, claim = _column(judged, ordering), _claim(judged, ordering)
    nats = ", ours in nats" if column.held_out else ""
    title = f"{ordering.better} > {ordering.worse} on {_name(column)}" + f" (paper {claim}{nats})" * bool(
        claim
    )
    return verdict_text(title, verdict, not nats)


def _column(judged: Judged, ordering: Ordering) -> Column:
    return next(one for one in judged.columns if one.name == ordering.column)


def _name(column: Column) -> str:
    return column.title.split(" (")[0]


def _plain(text: str) -> str:
    """Write text so that it stays one cell of Markdown."""
    return " ".join(shown(text).split()).replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")


def _minutes(times: Iterable[dict[str, Any]], kind: str) -> str:
    return f"{sum(one['seconds'] for one in times if one['kind'] == kind) / 60:,.1f}"


def _command(plan: Plan, judged: Sequence[Judged]) -> str:
    """Return the command line that makes this page."""
    names, seeds = [one.table.name for one in judged], max(len(one.seeds) for one in judged)
    words = ["minibert", "reproduce", *names, "--scale", plan.scale.name, "--seeds", str(seeds)]
    words += ["--data", str(plan.data)] if plan.data else []
    words += [word for one in plan.text for word in ("--text", one)]
    words += ["--model", plan.model] if plan.model else []
    return shlex.join([*words, "--out", str(plan.out)])
