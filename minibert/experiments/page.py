"""What the experiments found, for people: `tables.txt` for a terminal, `index.html` for any browser.

Times and the machine stand on the page alone: the same results make the same `tables.txt`.
"""

import math
import platform
import shlex
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

from minibert import __version__
from minibert.base.files import atomic_text
from minibert.base.terminal import aligned
from minibert.experiments.cells import Plan
from minibert.experiments.judged import Judged
from minibert.experiments.plots import drawn, number
from minibert.experiments.runner import Results
from minibert.experiments.tables import Column, Ordering
from minibert.experiments.verdicts import NOT_RUN, Outcomes, effect_text
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
    paper = ". Ours, and (the paper's)" * any(not title for title, _ in rows[1:])
    rows.append(("Trivial baseline", [value for value, _ in _trivial(judged)]))
    names = [wrap(name, 14) for _, name in _trivial(judged)]
    rows += [("", list(words)) for words in zip_longest(*names, fillvalue="")]
    lines = [f"{table.name}: {table.title}{paper}", ""]
    lines += aligned(((title, *cells) for title, cells in rows), left=1)
    below = [f"{one.title}: {judged.titles.get(one.name, '')}" for one in columns]
    below += [f"Seeds: {', '.join(map(str, judged.seeds))}", judged.average()]
    below += [f"{title}: {why}" for title, why in judged.left_out.items()]
    below += [f"{claim}: {answer}{rest}" for claim, answer, rest, _ in _answers(judged)]
    below += [f"Given up: {cell}. {why}" for cell, why in judged.failed.items()] + [table.note]
    lines += ["", *(line for one in below for line in wrap(one, WIDTH, subsequent_indent="  "))]
    return shown("\n".join(lines))


def write(out: Path, plan: Plan, results: Results, judged: Sequence[Judged]) -> Path:
    """Write `tables.txt` and `index.html` into a folder, and return the path of the page."""
    atomic_text(out / TEXT, "\n\n\n".join(map(table_text, judged)) + "\n")
    times, spent = list(results.times.values()), dict[str, list[float]]()
    for one in times:
        spent.setdefault(one["kind"], []).append(one["seconds"])
    trained = [(name, line["result"]) for name, line in results.lines.items() if "tokens" in line["result"]]
    page = rendered(
        "experiments.html.j2",
        title=f"The paper's experiments at the scale {plan.scale.name}",
        plan=plan,
        command=_command(plan, judged),
        tables=[_described(plan, results, one) for one in judged],
        trained=[(name, *map(one.get, ("parameters", "tokens", "steps"))) for name, one in trained],
        spent=[(kind, len(seconds), f"{sum(seconds) / 60:,.1f}") for kind, seconds in spent.items()],
        cores=", ".join(map(str, sorted({one["cores"] for one in times}))) or "–",
        machine=f"{platform.system()}, {platform.machine()}",
        versions=f"minibert {__version__}, Python {platform.python_version()}, NumPy {np.__version__}",
    )
    atomic_text(out / PAGE, page)
    return out / PAGE


def _described(plan: Plan, results: Results, judged: Judged) -> dict[str, Any]:
    """Return what the page says of a table."""
    columns = judged.columns
    rows = {
        row.title: [(_ours(judged, row.title, one), _paper(one, row.paper.get(one.name))) for one in columns]
        for row in judged.table.rows
    }
    found = [(one.title, judged.titles.get(one.name), _examples(plan, results, one)) for one in columns]
    return {
        "judged": judged,
        "columns": found,
        "rows": rows,
        "paper": any(figure for cells in rows.values() for _, figure in cells),
        "trivial": _trivial(judged),
        "verdicts": _answers(judged),
        "pictures": [drawn(judged, one) for one in columns],
    }


def _trivial(judged: Judged) -> list[tuple[str, str]]:
    """Write the score of each column's baseline, and its name."""
    found = [(one, judged.baselines.get(one.name)) for one in judged.columns]
    return [(number(one, best[1]), best[0]) if best else ("-", "") for one, best in found]


def _examples(plan: Plan, results: Results, column: Column) -> int | None:
    """Count what a column is measured on; None where that is not known."""
    result = results.lines.get(plan.baseline_name(column), {}).get("result", {})
    found = len(Outcomes.from_json(result[column.split]).values) if column.split in result else 0
    return found if found > 1 else None  # a correlation is one value of all


def _ours(judged: Judged, row: str, column: Column) -> str:
    """Write an estimate as "71.2 ±1.3"; one seed has no interval."""
    if (found := judged.estimates.get((row, column.name))) is None:
        return "-"
    half = (found.high - found.low) / 2
    return number(column, found.value) + (f" ±{number(column, half)}" if math.isfinite(half) else "")


def _paper(column: Column, figure: float | None) -> str:
    return "" if figure is None else f"({figure:.{1 + column.held_out}f})"


def _claimed(judged: Judged, ordering: Ordering) -> str:
    """Write a claim with the paper's figures, such as "84.4 > 83.9", where it has some."""
    column, paper = next(one for one in judged.table.columns if one.name == ordering.column), ""
    if figures := judged.paper(ordering):
        better, worse = (_paper(column, one).strip("()") for one in figures)
        sign = ">" if figures[0] > figures[1] else "<" if figures[0] < figures[1] else "="
        paper = f" (paper {better} {sign} {worse}{', ours in nats' * column.held_out})"
    return f"{ordering.better} > {ordering.worse} on {column.title.split(' (')[0]}{paper}"


def _answers(judged: Judged) -> list[tuple[str, str, str, str]]:
    """List all claims with their answers, the effect or why there is none, and why the paper claims them."""
    percent = {one.name: not one.held_out for one in judged.columns}
    found = [(one, v.answer, f", {effect_text(v, percent[one.column])}") for one, v in judged.verdicts]
    found += [(one, NOT_RUN, f", {why}") for one, why in judged.not_run]
    return [(_claimed(judged, one), answer, rest, one.why) for one, answer, rest in found]


def _command(plan: Plan, judged: Sequence[Judged]) -> str:
    """Return the command line that makes this page."""
    names, seeds = [one.table.name for one in judged], max(len(one.seeds) for one in judged)
    words = ["minibert", "reproduce", *names, "--scale", plan.scale.name, "--seeds", str(seeds)]
    words += ["--data", str(plan.data)] if plan.data else []
    words += [word for one in plan.text for word in ("--text", one)]
    words += ["--model", plan.model] if plan.model else []
    return shlex.join([*words, "--out", str(plan.out)])
