"""Write the results of experiments: `tables.txt` for a terminal, `index.html` for any browser.

Only the page contains times and the machine, so that the same results always give the same `tables.txt`.
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

PAGE, TEXT = "index.html", "tables.txt"
WIDTH = 110  # columns of the text
NAME_WIDTH = 14  # columns of a baseline's name, which is wrapped


def table_text(judged: Judged) -> str:
    """Format a table for a terminal, with the paper's figures in brackets below ours.

    Parameters
    ----------
    judged : Judged

    Returns
    -------
    str
        The table, what its examples are, and the paper's claims with our verdicts. Notes wrap at WIDTH.
    """
    table, columns = judged.table, judged.columns
    rows = [("", [column.title for column in columns])]
    title = f"{table.name}: {table.title}"
    for row, cells in _rows(judged).items():
        rows.append((row, [ours for ours, _ in cells]))
        papers = [paper for _, paper in cells]
        if any(papers):
            rows.append(("", papers))
    trivial = _trivial(judged)
    rows.append(("Trivial baseline", [value for value, _ in trivial]))
    names = [wrap(name, NAME_WIDTH) for _, name in trivial]
    for words in zip_longest(*names, fillvalue=""):
        rows.append(("", list(words)))
    if _has_paper(judged):
        title += ". Ours, and (the paper's)"
    lines = [title, ""]
    lines += aligned(((name, *cells) for name, cells in rows), left=1)
    lines.append("")
    for sentence in _sentences(judged):
        lines += wrap(sentence, WIDTH, subsequent_indent="  ")
    return shown("\n".join(lines))


def _sentences(judged: Judged) -> list[str]:
    """List the notes below a table, some of them possibly empty."""
    sentences = []
    for column in judged.columns:
        sentences.append(f"{column.title}: {judged.titles.get(column.name, '')}")
    sentences.append(f"Seeds: {', '.join(map(str, judged.seeds))}")
    sentences.append(judged.average())
    for title, why in judged.left_out.items():
        sentences.append(f"{title}: {why}")
    for claim, answer, rest, _ in _answers(judged):
        sentences.append(f"{claim}: {answer}{rest}")
    for cell, why in judged.failed.items():
        sentences.append(f"Given up: {cell}. {why}")
    sentences.append(judged.table.note)
    return sentences


def write(out: Path, plan: Plan, results: Results, judged: Sequence[Judged]) -> Path:
    """Write `tables.txt` and `index.html`.

    Parameters
    ----------
    out : Path
        Folder to write them to.
    plan : Plan
        Its scale, and the command that runs it, are shown on the page.
    results : Results
        Source of the times, the number of cores, and the list of pre-trained models.
    judged : sequence of Judged
        The tables in the order in which to show them; at least one.

    Returns
    -------
    Path
        Path of the page.
    """
    tables = [table_text(table) for table in judged]
    atomic_text(out / TEXT, "\n\n\n".join(tables) + "\n")
    times = list(results.times.values())
    seconds_of: dict[str, list[float]] = {}
    for cell in times:
        seconds_of.setdefault(cell["kind"], []).append(cell["seconds"])
    spent = []
    for kind, seconds in seconds_of.items():
        spent.append((kind, len(seconds), f"{sum(seconds) / 60:,.1f}"))
    trained = []
    for name, line in results.lines.items():
        result = line["result"]
        if "tokens" in result:
            trained.append((name, result.get("parameters"), result["tokens"], result.get("steps")))
    cores = sorted({cell["cores"] for cell in times})
    page = rendered(
        "experiments.html.j2",
        title=f"The paper's experiments at the scale {plan.scale.name}",
        plan=plan,
        command=_command(plan, judged),
        tables=[_described(plan, results, table) for table in judged],
        trained=trained,
        spent=spent,
        cores=", ".join(map(str, cores)) or "–",
        machine=f"{platform.system()}, {platform.machine()}",
        versions=f"minibert {__version__}, Python {platform.python_version()}, NumPy {np.__version__}",
    )
    atomic_text(out / PAGE, page)
    return out / PAGE


def _described(plan: Plan, results: Results, judged: Judged) -> dict[str, Any]:
    """Return what the page's template needs to show a table."""
    columns = []
    for column in judged.columns:
        examples = _examples(plan, results, column)
        columns.append((column.title, judged.titles.get(column.name), examples))
    return {
        "judged": judged,
        "columns": columns,
        "rows": _rows(judged),
        "paper": _has_paper(judged),
        "trivial": _trivial(judged),
        "verdicts": _answers(judged),
        "pictures": [drawn(judged, column) for column in judged.columns],
    }


def _rows(judged: Judged) -> dict[str, list[tuple[str, str]]]:
    """Return our figure and the paper's in each column, as text, by the title of the row."""
    rows = {}
    for row in judged.table.rows:
        cells = []
        for column in judged.columns:
            paper = _paper(column, row.paper.get(column.name))
            cells.append((_ours(judged, row.title, column), paper))
        rows[row.title] = cells
    return rows


def _has_paper(judged: Judged) -> bool:
    """Return whether the paper has a figure for one of the cells."""
    return any(column.name in row.paper for row in judged.table.rows for column in judged.columns)


def _trivial(judged: Judged) -> list[tuple[str, str]]:
    """Return the score of each column's baseline as text, and its name."""
    scores = []
    for column in judged.columns:
        if column.name in judged.baselines:
            name, score = judged.baselines[column.name]
            scores.append((number(column, score), name))
        else:
            scores.append(("-", ""))
    return scores


def _examples(plan: Plan, results: Results, column: Column) -> int | None:
    """Count the examples that a column is measured on; None if unknown."""
    result = results.get(plan.baseline_name(column))
    if column.split not in result:
        return None
    outcomes = Outcomes.from_json(result[column.split])
    count = len(outcomes.values)
    return count if count > 1 else None  # a correlation is one value for all examples


def _ours(judged: Judged, row: str, column: Column) -> str:
    """Write an estimate as "71.2 ±1.3", or as "71.2" for a single seed."""
    estimate = judged.estimates.get((row, column.name))
    if estimate is None:
        return "-"
    value = number(column, estimate.value)
    half = (estimate.high - estimate.low) / 2
    if math.isfinite(half):
        return f"{value} ±{number(column, half)}"
    return value


def _paper(column: Column, figure: float | None) -> str:
    """Write the paper's figure in brackets, with as many decimals as the paper; "" if it has none."""
    if figure is None:
        return ""
    decimals = 2 if column.held_out else 1
    return f"({figure:.{decimals}f})"


def _claimed(judged: Judged, ordering: Ordering) -> str:
    """Write a claim with the paper's figures, if it has any, such as "84.4 > 83.9"."""
    column = next(column for column in judged.table.columns if column.name == ordering.column)
    title = column.title.split(" (")[0]
    claim = f"{ordering.better} > {ordering.worse} on {title}"
    figures = judged.paper(ordering)
    if not figures:
        return claim
    sign = "="
    if figures[0] > figures[1]:
        sign = ">"
    elif figures[0] < figures[1]:
        sign = "<"
    better, worse = (_paper(column, figure).strip("()") for figure in figures)
    if column.held_out:
        return f"{claim} (paper {better} {sign} {worse}, ours in nats)"
    return f"{claim} (paper {better} {sign} {worse})"


def _answers(judged: Judged) -> list[tuple[str, str, str, str]]:
    """List every claim with its answer, the effect or why there is none, and the paper's argument for it."""
    percent = {column.name: not column.held_out for column in judged.columns}
    answers = []
    for ordering, verdict in judged.verdicts:
        effect = effect_text(verdict, percent[ordering.column])
        answers.append((_claimed(judged, ordering), verdict.answer, f", {effect}", ordering.why))
    for ordering, why in judged.not_run:
        answers.append((_claimed(judged, ordering), NOT_RUN, f", {why}", ordering.why))
    return answers


def _command(plan: Plan, judged: Sequence[Judged]) -> str:
    """Return the command line that reproduces this page."""
    names = [table.table.name for table in judged]
    seeds = max(len(table.seeds) for table in judged)
    words = ["minibert", "reproduce", *names]
    words += ["--scale", plan.scale.name]
    words += ["--seeds", str(seeds)]
    if plan.data:
        words += ["--data", str(plan.data)]
    for path in plan.text:
        words += ["--text", path]
    if plan.model:
        words += ["--model", plan.model]
    words += ["--out", str(plan.out)]
    return shlex.join(words)
