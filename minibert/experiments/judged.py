"""From results to what a table says: a mean with its interval for each row and column, and the verdicts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from minibert.experiments.cells import Plan, pretraining_name
from minibert.experiments.runner import Results
from minibert.experiments.scales import ROLES
from minibert.experiments.tables import NOTHING, TABLES, Column, Ordering, Row, Table
from minibert.experiments.verdicts import NOT_RUN, Estimate, Judge, Outcomes, Trainings, Verdict


class Judged(NamedTuple):
    """A table with what was found."""

    table: Table
    columns: list[Column]  # that there is data for
    titles: dict[str, str]  # by column, what its examples are: "SNLI, in place of MNLI"
    estimates: dict[tuple[str, str], Estimate]  # by titles of rows and names of columns
    baselines: dict[str, tuple[str, float]]  # by column, the strongest trivial one and its score
    verdicts: list[tuple[Ordering, Verdict]]  # of orderings whose column is there
    failed: dict[str, str]  # by cell, why its training was given up
    seeds: tuple[int, ...]
    left_out: Mapping[str, str] = NOTHING  # by title of other columns, why
    not_run: Sequence[tuple[Ordering, str]] = ()  # orderings without a verdict, and why

    def paper(self, ordering: Ordering) -> tuple[float, float] | None:
        """Return the paper's figures for the better row and the worse; None where it has none."""
        rows = {row.title: row for row in self.table.rows}
        figures = [rows[title].paper.get(ordering.column) for title in (ordering.better, ordering.worse)]
        return None if None in figures else (figures[0] or 0.0, figures[1] or 0.0)

    def average(self) -> str:
        """Say what rows come to on average over the columns, where the table asks for it."""
        if not self.table.averaged or not self.estimates:
            return ""
        names = dict.fromkeys(name for _, name in self.estimates)
        rows = {
            row.title: [self.estimates[row.title, name].value for name in names]
            for row in self.table.rows
            if all((row.title, name) in self.estimates for name in names)
        }
        rows["trivial baseline"] = [self.baselines[name][1] for name in names if name in self.baselines]
        found = (f"{title} {100 * np.mean(values):.1f}" for title, values in rows.items() if values)
        return f"Average of {', '.join(names)}: {', '.join(found)}"

    def to_json(self) -> dict[str, Any]:
        """Return estimates, baselines and verdicts for JSON."""
        cells = [{"row": row, "column": name, **one._asdict()} for (row, name), one in self.estimates.items()]
        verdicts = [one._asdict() | verdict._asdict() for one, verdict in self.verdicts]
        verdicts += [one._asdict() | {"answer": NOT_RUN, "reason": why} for one, why in self.not_run]
        for fields in (*cells, *verdicts):  # of what is infinite with one seed JSON has no number
            fields |= {k: None for k, x in fields.items() if isinstance(x, float) and not np.isfinite(x)}
        facts: dict[str, Any] = {"baselines": self.baselines, "failed": self.failed, "seeds": self.seeds}
        facts |= {"table": self.table.name, "columns": self.titles, "left_out": dict(self.left_out)}
        return facts | {"cells": cells, "verdicts": verdicts}


def judge_all(plan: Plan, asked: Sequence[Table], results: Results, seeds: Sequence[int]) -> list[Judged]:
    """Judge some tables, and those of TABLES with a row or examples in the folder that no other has."""
    marks = {
        name: {plan.row_name(row, column) for row in one.rows for column in one.columns}
        | {key for column in one.columns for key in ROLES.get(column.task, ())}
        for name, one in TABLES.items()
    }
    counts = Counter(mark for own in marks.values() for mark in own)
    parts = {part for name in results.lines for part in name.split("/")}
    own = {part for part in parts if counts[part] == 1}
    every = [n for n in range(1000) if f"seed{n}" in parts]
    given = {one.name: (one, seeds) for one in asked}
    found = {name: (one, every) for name, one in TABLES.items() if name in given or marks[name] & own} | given
    return [judge(plan, one, results, numbers) for one, numbers in found.values()]


def judge(plan: Plan, table: Table, results: Results, seeds: Sequence[int]) -> Judged:
    """Compute what a table says from the cells that there are.

    Held-out text is judged by minus the loss in nats, so that more is better; its estimates are perplexities.
    """
    titles, why = {one.name: one.title for one in table.columns}, plan.left_out(table)
    left_out = {titles[name]: reason for name, reason in why.items()}
    not_run: list[tuple[Ordering, str]] = []
    found = Judged(table, plan.columns(table), {}, {}, {}, [], {}, tuple(seeds), left_out, not_run)
    for column in found.columns:
        found.titles[column.name], floor = plan.title(column), None
        if (name := plan.baseline_name(column)) in results:
            result = {f"baseline of {column.split}": results[name]["baseline"]} | results[name]
            floor = Outcomes.from_json(result[column.split])
            found.baselines[column.name] = result[f"baseline of {column.split}"], floor.score()
        rows = {row.title: _of_row(found, plan, row, column, results) for row in table.rows}
        if not (rows := {title: seen for title, seen in rows.items() if seen}):
            continue  # every training of it was given up
        if column.held_out and column.name in found.baselines:
            floor = Outcomes("mean", -np.log([found.baselines[column.name][1]]))
        judged = Judge(rows, floor, _pool(found, plan, table, column, results))
        for title in rows:
            estimate = judged.estimate(title)
            found.estimates[title, column.name] = _perplexity(estimate) if column.held_out else estimate
        for ordering in table.orderings:
            if ordering.column == column.name and {ordering.better, ordering.worse} <= rows.keys():
                found.verdicts.append((ordering, judged.compare(ordering.better, ordering.worse)))
    for one in table.orderings:
        if one not in [ordering for ordering, _ in found.verdicts]:
            lacking = [row for row in (one.better, one.worse) if (row, one.column) not in found.estimates]
            reason = f"no result of {' and '.join(lacking)}" + ", see what was given up" * bool(found.failed)
            not_run.append((one, why.get(one.column, reason)))
    return found


def _pool(found: Judged, plan: Plan, table: Table, column: Column, results: Results) -> Trainings:
    """Collect what tells how much seeds change a column: the rows of all tables that have it."""
    apart = found._replace(failed={}, baselines={})
    pool: dict[str, dict[int, Outcomes]] = {}
    asked = column._replace(title="")
    for one in (table, *TABLES.values()):
        for row in one.rows if asked in [other._replace(title="") for other in one.columns] else ():
            if seen := _of_row(apart, plan, row, column, results):
                pool[row.model if column.held_out else plan.row_name(row, column)] = seen
    return pool


def _of_row(found: Judged, plan: Plan, row: Row, column: Column, results: Results) -> dict[int, Outcomes]:
    seen = {}
    for seed in found.seeds:
        name = plan.finetuning_name(row, column, seed)
        if column.held_out:
            name = pretraining_name(row.model, seed)
        result = results.lines.get(name, {"result": {}})["result"]
        if "failed" in result:
            found.failed[name] = result["failed"]
        elif column.held_out and "loss" in result and row.share == 1.0:
            seen[seed] = Outcomes("mean", np.array([-result["loss"]]))
            if unigram := result.get("text_unigram"):  # the best guess without context, in nats
                found.baselines.setdefault(column.name, ("unigram", float(np.exp(unigram))))
        elif column.split in result:
            seen[seed] = Outcomes.from_json(result[column.split])
    return seen


def _perplexity(estimate: Estimate) -> Estimate:
    value, high, low = (float(np.exp(-one)) for one in (estimate.value, estimate.low, estimate.high))
    return Estimate(value, low, high, tuple(float(np.exp(-one)) for one in estimate.seeds))
