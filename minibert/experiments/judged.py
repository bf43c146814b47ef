"""From results to tables: a mean with its interval for each row and column, and the verdicts."""

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
    """A table with its results."""

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
        """Return the paper's figures for a claim.

        Parameters
        ----------
        ordering : Ordering

        Returns
        -------
        tuple of float, or None
            Its figures for the better row and the worse, as printed; None where it lacks one of them.
        """
        rows = {row.title: row for row in self.table.rows}
        better = rows[ordering.better].paper.get(ordering.column)
        worse = rows[ordering.worse].paper.get(ordering.column)
        if better is None or worse is None:
            return None
        return better, worse

    def average(self) -> str:
        """Return the averages of rows over the columns as a sentence, "" where the table asks for none.

        Of the rows that have an estimate in every column, and of the trivial baselines.
        """
        if not self.table.averaged or not self.estimates:
            return ""
        names = dict.fromkeys(name for _, name in self.estimates)
        rows: dict[str, list[float]] = {}
        for row in self.table.rows:
            cells = [(row.title, name) for name in names]
            if all(cell in self.estimates for cell in cells):
                rows[row.title] = [self.estimates[cell].value for cell in cells]
        known = [name for name in names if name in self.baselines]
        rows["trivial baseline"] = [self.baselines[name][1] for name in known]
        averages = []
        for title, values in rows.items():
            if values:
                averages.append(f"{title} {100 * np.mean(values):.1f}")
        return f"Average of {', '.join(names)}: {', '.join(averages)}"

    def to_json(self) -> dict[str, Any]:
        """Return estimates, baselines and verdicts for JSON, with null for what is infinite with one seed."""
        cells = []
        for (row, column), estimate in self.estimates.items():
            cells.append({"row": row, "column": column, **estimate._asdict()})
        verdicts: list[dict[str, Any]] = []
        for ordering, verdict in self.verdicts:
            verdicts.append(ordering._asdict() | verdict._asdict())
        for ordering, why in self.not_run:
            verdicts.append(ordering._asdict() | {"answer": NOT_RUN, "reason": why})
        return {
            "baselines": self.baselines,
            "failed": self.failed,
            "seeds": self.seeds,
            "table": self.table.name,
            "columns": self.titles,
            "left_out": dict(self.left_out),
            "cells": [_finite(fields) for fields in cells],
            "verdicts": [_finite(fields) for fields in verdicts],
        }


def _finite(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields with None for infinite numbers, which JSON lacks."""
    return {
        name: None if isinstance(value, float) and not np.isfinite(value) else value
        for name, value in fields.items()
    }


def judge_all(plan: Plan, asked: Sequence[Table], results: Results, seeds: Sequence[int]) -> list[Judged]:
    """Judge some tables, and those of TABLES with a row or examples in the folder that no other has.

    Parameters
    ----------
    plan : Plan
    asked : sequence of Table
        Judged with `seeds`.
    results : Results
        What there is in the folder, of earlier calls too.
    seeds : sequence of int

    Returns
    -------
    list of Judged
        In the order of TABLES, tables of earlier calls with all seeds that the folder has; others that are
        asked for come last.
    """
    marks = {name: _marks_of(plan, table) for name, table in TABLES.items()}
    counts = Counter[str]()
    for of_table in marks.values():
        counts.update(of_table)
    parts = set[str]()  # of the names of cells that have a result
    for name in results.lines:
        parts.update(name.split("/"))
    telling = {part for part in parts if counts[part] == 1}
    every_seed = [n for n in range(1000) if f"seed{n}" in parts]
    given = {table.name: table for table in asked}
    chosen: dict[str, tuple[Table, Sequence[int]]] = {}
    for name, table in TABLES.items():
        if name in given or marks[name] & telling:
            chosen[name] = table, every_seed
    for name, table in given.items():
        chosen[name] = table, seeds
    judged = []
    for table, numbers in chosen.values():
        judged.append(judge(plan, table, results, numbers))
    return judged


def _marks_of(plan: Plan, table: Table) -> set[str]:
    """Return the parts of cell names that belong to a table: its rows, and the examples of its columns."""
    marks = set[str]()
    for column in table.columns:
        marks.update(plan.row_name(row, column) for row in table.rows)
        marks.update(ROLES.get(column.task, ()))
    return marks


def judge(plan: Plan, table: Table, results: Results, seeds: Sequence[int]) -> Judged:
    """Compute a table from the cells that exist.

    Held-out text is judged by minus the loss in nats, so that more is better; its estimates are perplexities.

    Parameters
    ----------
    plan : Plan
    table : Table
    results : Results
        Cells without a result are left out.
    seeds : sequence of int
        The trainings of these count.

    Returns
    -------
    Judged
    """
    titles = {column.name: column.title for column in table.columns}
    why = plan.left_out(table)
    judged = Judged(
        table,
        columns=plan.columns(table),
        titles={},
        estimates={},
        baselines={},
        verdicts=[],
        failed={},
        seeds=tuple(seeds),
        left_out={titles[name]: reason for name, reason in why.items()},
    )
    for column in judged.columns:
        _judge_column(judged, plan, column, results)
    with_verdict = [ordering for ordering, _ in judged.verdicts]
    not_run = []
    for ordering in table.orderings:
        if ordering not in with_verdict:
            reason = why.get(ordering.column, _lacking(judged, ordering))
            not_run.append((ordering, reason))
    return judged._replace(not_run=not_run)


def _judge_column(judged: Judged, plan: Plan, column: Column, results: Results) -> None:
    """Add a column's title, baseline, estimates and verdicts; none of the last two without a training."""
    table = judged.table
    judged.titles[column.name] = plan.title(column)
    floor = _baseline(judged, plan, column, results)
    trainings = {row.title: _of_row(judged, plan, row, column, results) for row in table.rows}
    rows = {title: of_seeds for title, of_seeds in trainings.items() if of_seeds}
    if not rows:
        return  # every training of it was given up
    if column.held_out and column.name in judged.baselines:
        floor = Outcomes("mean", -np.log([judged.baselines[column.name][1]]))
    judge = Judge(rows, floor, _pool(judged, plan, table, column, results))
    for title in rows:
        estimate = judge.estimate(title)
        if column.held_out:
            estimate = _perplexity(estimate)
        judged.estimates[title, column.name] = estimate
    for ordering in table.orderings:
        if ordering.column == column.name and {ordering.better, ordering.worse} <= rows.keys():
            judged.verdicts.append((ordering, judge.compare(ordering.better, ordering.worse)))


def _baseline(judged: Judged, plan: Plan, column: Column, results: Results) -> Outcomes | None:
    """Return the outcomes of a column's trivial baseline, and note its name and score; None without one."""
    cell = plan.baseline_name(column)
    if cell not in results:
        return None
    field = f"baseline of {column.split}"
    # Results of dev, and of earlier versions, have one name for all splits.
    result = {field: results[cell]["baseline"]} | results[cell]
    outcomes = Outcomes.from_json(result[column.split])
    judged.baselines[column.name] = result[field], outcomes.score()
    return outcomes


def _lacking(judged: Judged, ordering: Ordering) -> str:
    """Say which rows of a claim have no result."""
    rows = []
    for row in (ordering.better, ordering.worse):
        if (row, ordering.column) not in judged.estimates:
            rows.append(row)
    reason = f"no result of {' and '.join(rows)}"
    if judged.failed:
        return f"{reason}, see what was given up"
    return reason


def _pool(judged: Judged, plan: Plan, table: Table, column: Column, results: Results) -> Trainings:
    """Collect the rows of all tables that have a column, to estimate its variation over seeds."""
    apart = judged._replace(failed={}, baselines={})  # what other tables' rows lack is not this one's to tell
    pool: dict[str, dict[int, Outcomes]] = {}
    untitled = column._replace(title="")
    for other in (table, *TABLES.values()):
        columns = [column._replace(title="") for column in other.columns]
        if untitled not in columns:
            continue
        for row in other.rows:
            trainings = _of_row(apart, plan, row, column, results)
            if trainings:
                name = row.model if column.held_out else plan.row_name(row, column)
                pool[name] = trainings
    return pool


def _of_row(judged: Judged, plan: Plan, row: Row, column: Column, results: Results) -> dict[int, Outcomes]:
    """Return the outcomes of a row by seed; note failed trainings, and the baseline of held-out text."""
    outcomes = {}
    for seed in judged.seeds:
        name = plan.finetuning_name(row, column, seed)
        if column.held_out:
            name = pretraining_name(row.model, seed)
        result = results.lines.get(name, {"result": {}})["result"]
        if "failed" in result:
            judged.failed[name] = result["failed"]
        elif column.held_out and "loss" in result and row.share == 1.0:
            outcomes[seed] = Outcomes("mean", np.array([-result["loss"]]))
            unigram = result.get("text_unigram")  # the best guess without context, in nats
            if unigram:
                judged.baselines.setdefault(column.name, ("unigram", float(np.exp(unigram))))
        elif column.split in result:
            outcomes[seed] = Outcomes.from_json(result[column.split])
    return outcomes


def _perplexity(estimate: Estimate) -> Estimate:
    """Turn an estimate of a negative loss into one of perplexity."""
    return Estimate(
        value=float(np.exp(-estimate.value)),
        low=float(np.exp(-estimate.high)),
        high=float(np.exp(-estimate.low)),
        seeds=tuple(float(np.exp(-seed)) for seed in estimate.seeds),
    )
