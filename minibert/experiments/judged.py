"""Turn results into tables: a mean with its interval for each row and column, and the verdicts."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from minibert.base.json_files import finite
from minibert.experiments.cells import Plan, Result, baseline_field, pretraining_name
from minibert.experiments.runner import Results
from minibert.experiments.scales import ROLES
from minibert.experiments.tables import NOTHING, TABLES, Column, Ordering, Row, Table
from minibert.experiments.verdicts import NOT_RUN, Estimate, Judge, Outcomes, Trainings, Verdict

MOST_SEEDS = 1000  # seeds from 0 to here are looked for in a folder


class Judged(NamedTuple):
    """A table with its results."""

    table: Table
    columns: list[Column]  # columns with data
    titles: dict[str, str]  # name of a column -> what its examples are, such as "SNLI, in place of MNLI"
    estimates: dict[tuple[str, str], Estimate]  # title of a row, name of a column -> result
    baselines: dict[str, tuple[str, float]]  # name of a column -> strongest trivial baseline and its score
    verdicts: list[tuple[Ordering, Verdict]]  # claims that the results can judge
    failed: dict[str, str]  # name of a cell -> why its training was given up
    seeds: tuple[int, ...]
    left_out: Mapping[str, str] = NOTHING  # title of a column without data -> why it was left out
    not_run: Sequence[tuple[Ordering, str]] = ()  # claims without a verdict, and why

    def paper(self, ordering: Ordering) -> tuple[float, float] | None:
        """Return the paper's figures for a claim.

        Parameters
        ----------
        ordering : Ordering

        Returns
        -------
        tuple of float, or None
            Its figures for the better and the worse row, as printed; None if it lacks either of them.
        """
        rows = {row.title: row for row in self.table.rows}
        better = rows[ordering.better].paper.get(ordering.column)
        worse = rows[ordering.worse].paper.get(ordering.column)
        if better is None or worse is None:
            return None
        return better, worse

    def average(self) -> str:
        """Write each row's average over the columns as a sentence; "" if the table has no averages.

        Rows without an estimate in some column are omitted. The trivial baselines are averaged, too.
        """
        if not self.table.averaged or not self.estimates:
            return ""
        names = dict.fromkeys(name for _, name in self.estimates)
        rows: dict[str, list[float]] = {}
        for row in self.table.rows:
            cells = [(row.title, name) for name in names]
            if all(cell in self.estimates for cell in cells):
                rows[row.title] = [self.estimates[cell].value for cell in cells]
        with_baseline = [name for name in names if name in self.baselines]
        rows["trivial baseline"] = [self.baselines[name][1] for name in with_baseline]
        averages = []
        for title, values in rows.items():
            if values:
                averages.append(f"{title} {100 * np.mean(values):.1f}")
        return f"Average of {', '.join(names)}: {', '.join(averages)}"

    def to_json(self) -> dict[str, Any]:
        """Return estimates, baselines and verdicts for JSON; infinite numbers become null."""
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
            "cells": finite(cells),
            "verdicts": finite(verdicts),
        }


def judge_all(plan: Plan, tables: Sequence[Table], results: Results, seeds: Sequence[int]) -> list[Judged]:
    """Judge the given tables, and those of earlier calls.

    An earlier call is recognised by a result that only one table of TABLES can have asked for: a row, or the
    examples of a column, that no other table has.

    Parameters
    ----------
    plan : Plan
    tables : sequence of Table
        Tables to judge with `seeds`.
    results : Results
        All results in the folder, including those of earlier calls.
    seeds : sequence of int

    Returns
    -------
    list of Judged
        In the order of TABLES, followed by given tables that are not among them. Tables of earlier calls are
        judged with all seeds in the folder.
    """
    name_parts_of = {name: _name_parts(plan, table) for name, table in TABLES.items()}
    number_of_tables = Counter[str]()
    for name_parts in name_parts_of.values():
        number_of_tables.update(name_parts)
    with_results = set[str]()  # parts of the names of cells that have a result
    for name in results.lines:
        with_results.update(name.split("/"))
    unambiguous = {part for part in with_results if number_of_tables[part] == 1}
    every_seed = [n for n in range(MOST_SEEDS) if f"seed{n}" in with_results]
    tables_by_name = {table.name: table for table in tables}
    chosen: dict[str, tuple[Table, Sequence[int]]] = {}
    for name, table in TABLES.items():
        if name in tables_by_name or name_parts_of[name] & unambiguous:
            chosen[name] = table, every_seed
    for name, table in tables_by_name.items():
        chosen[name] = table, seeds
    judged = []
    for table, seeds_of_table in chosen.values():
        judged.append(judge(plan, table, results, seeds_of_table))
    return judged


def _name_parts(plan: Plan, table: Table) -> set[str]:
    """Return all components that names of a table's cells can have, except seeds.

    A cell is called "bert+bilstm/snli/seed0", for example: a row of the table, then the data of a column. All
    data that may stand in for a column counts, because an earlier call may have had other data.
    """
    parts = set[str]()
    for column in table.columns:
        parts.update(plan.row_name(row, column) for row in table.rows)
        parts.update(ROLES.get(column.task, ()))
    return parts


def judge(plan: Plan, table: Table, results: Results, seeds: Sequence[int]) -> Judged:
    """Compute a table from the cells that have a result.

    Held-out text is judged by the negative loss in nats, so that higher is better; its estimates are given as
    perplexities.

    Parameters
    ----------
    plan : Plan
    table : Table
    results : Results
        Cells without a result are left out.
    seeds : sequence of int
        Seeds of the trainings to include.

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
    """Add a column's title and baseline and, if it has a training, its estimates and verdicts."""
    table, seeds = judged.table, judged.seeds
    judged.titles[column.name] = plan.title(column)
    rows = {}
    for row in table.rows:
        for _, cell, result in _cells(plan, row, column, results, seeds):
            if "failed" in result:
                judged.failed[cell] = result["failed"]
        trainings = _trainings(plan, row, column, results, seeds)
        if trainings:
            rows[row.title] = trainings
    floor = None
    if baseline := _baseline(plan, table, column, results, seeds):
        name, floor = baseline
        score = floor.score()
        if column.held_out:
            score = float(np.exp(-score))
        judged.baselines[column.name] = name, score
    if not rows:
        return  # no training has a result: there is nothing to judge
    judge = Judge(rows, floor, _pool(plan, table, column, results, seeds))
    for title in rows:
        estimate = judge.estimate(title)
        if column.held_out:
            estimate = _perplexity(estimate)
        judged.estimates[title, column.name] = estimate
    for ordering in table.orderings:
        if ordering.column == column.name and {ordering.better, ordering.worse} <= rows.keys():
            judged.verdicts.append((ordering, judge.compare(ordering.better, ordering.worse)))


def _cells(
    plan: Plan, row: Row, column: Column, results: Results, seeds: Sequence[int]
) -> Iterator[tuple[int, str, Result]]:
    """Yield the seed, the name and the result of each cell of a row; the result is empty if there is none."""
    for seed in seeds:
        name = plan.finetuning_name(row, column, seed)
        if column.held_out:
            name = pretraining_name(row.model, seed)
        yield seed, name, results.get(name)


def _trainings(
    plan: Plan, row: Row, column: Column, results: Results, seeds: Sequence[int]
) -> dict[int, Outcomes]:
    """Return a row's outcomes by seed."""
    outcomes = {}
    for seed, _, result in _cells(plan, row, column, results, seeds):
        if column.held_out and "loss" in result and row.share == 1.0:
            outcomes[seed] = Outcomes("mean", np.array([-result["loss"]]))
        elif column.split in result:
            outcomes[seed] = Outcomes.from_json(result[column.split])
    return outcomes


def _baseline(
    plan: Plan, table: Table, column: Column, results: Results, seeds: Sequence[int]
) -> tuple[str, Outcomes] | None:
    """Return the name and the outcomes of a column's trivial baseline, if it is known.

    That of held-out text is the unigram entropy, the loss of the best guess without context, in nats.
    """
    if not column.held_out:
        result = results.get(plan.baseline_name(column))
        if not result:
            return None
        return result[baseline_field(column.split)], Outcomes.from_json(result[column.split])
    for row in table.rows:
        for _, _, result in _cells(plan, row, column, results, seeds):
            if row.share == 1.0 and result.get("text_unigram"):
                return "unigram", Outcomes("mean", -np.array([result["text_unigram"]]))
    return None


def _lacking(judged: Judged, ordering: Ordering) -> str:
    """Explain which rows of a claim have no result."""
    rows = []
    for row in (ordering.better, ordering.worse):
        if (row, ordering.column) not in judged.estimates:
            rows.append(row)
    reason = f"no result of {' and '.join(rows)}"
    if judged.failed:
        return f"{reason}, see what was given up"
    return reason


def _pool(plan: Plan, table: Table, column: Column, results: Results, seeds: Sequence[int]) -> Trainings:
    """Collect the rows of all tables with the same column, to estimate its variance between seeds."""
    pool: dict[str, dict[int, Outcomes]] = {}
    untitled = column._replace(title="")
    for other in (table, *TABLES.values()):
        columns = [column._replace(title="") for column in other.columns]
        if untitled not in columns:
            continue
        for row in other.rows:
            trainings = _trainings(plan, row, column, results, seeds)
            if trainings:
                name = row.model if column.held_out else plan.row_name(row, column)
                pool[name] = trainings
    return pool


def _perplexity(estimate: Estimate) -> Estimate:
    """Convert an estimate of the negative loss to perplexity."""
    return Estimate(
        value=float(np.exp(-estimate.value)),
        low=float(np.exp(-estimate.high)),
        high=float(np.exp(-estimate.low)),
        seeds=tuple(float(np.exp(-seed)) for seed in estimate.seeds),
    )
