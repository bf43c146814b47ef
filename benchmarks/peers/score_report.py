"""Scores of fine-tuning on both sides as rows with paired intervals, and as Markdown for docs/results.md."""

import statistics
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from tokenizer_jobs.tables import table

from minibert.tasks import metrics
from minibert.tasks.task import Task

SIDES = {"minibert": "minibert", "huggingface": "Hugging Face"}
CLOSE = 1.0  # points
Statistic = Callable[[np.ndarray], float]
Row = dict[str, Any]


def figures(task: Task, examples: list[Any], predictions: list[Any]) -> dict[str, Statistic]:
    """What is shown of a task, over any of its examples."""
    if task.kind != "span":
        return {task.metric: task.statistic(examples, predictions)}
    texts = {one["id"]: one["text"] for one in predictions}
    scores = metrics.squad.question_scores(examples, texts, metrics.squad.V1)
    return {
        "EM": lambda rows: float(scores.exact[rows].mean()),
        "F1": lambda rows: float(scores.f1[rows].mean()),
    }


def compared(name: str, examples: int, sides: dict[str, list[dict[str, Statistic]]]) -> list[Row]:
    """A row for each figure of a task, in points.

    Parameters
    ----------
    name : of the task.
    examples : of dev.
    sides : of each side the figures of every seed; a side may have none.

    Returns
    -------
    rows : the figures of each side's seeds; with both sides there, the difference of their means, its paired
        95% interval over the examples, and the verdict.
    """
    rows, every = [], np.arange(examples)
    for figure in next((one for made in sides.values() for one in made), {}):
        row: Row = {"task": name, "figure": figure, "examples": examples}
        for side, made in sides.items():
            row[side] = [100 * one[figure](every) for one in made]
        if all(sides.get(side) for side in SIDES):
            ours, theirs = (mean_of([one[figure] for one in sides[side]]) for side in SIDES)
            row["difference"] = 100 * (ours(every) - theirs(every))
            row["interval"] = [100 * end for end in metrics.paired_bootstrap(ours, theirs, examples)]
            row["verdict"] = verdict(*row["interval"])
        rows.append(row)
    return rows


def mean_of(seeds: list[Statistic]) -> Statistic:
    """The mean over seeds of a figure."""
    return lambda rows: statistics.fmean(one(rows) for one in seeds)


def verdict(low: float, high: float) -> str:
    """Whether minibert's score is as good as Hugging Face's, in points."""
    if -CLOSE <= low and high <= CLOSE:
        return "as good: within 1 point"
    return "better" if low > 0 else "worse" if high < 0 else "not decided"


def grid(rows: Iterable[Row], titles: dict[str, str]) -> str:
    """A line for each figure.

    Parameters
    ----------
    titles : of the tasks by their names.
    """
    lines = []
    for row in rows:
        cells = [mean_and_deviation(row.get(side, [])) for side in SIDES]
        apart = ["", ""]
        if "verdict" in row:
            low, high = row["interval"]
            apart = [f"{row['difference']:+.2f} [{low:+.2f}, {high:+.2f}]", row["verdict"]]
        lines.append([f"{titles[row['task']]}, {row['figure']}", *cells, *apart])
    return table(f"|{'|'.join(SIDES.values())}|difference|verdict", iter(lines))


def mean_and_deviation(values: list[float]) -> str:
    if not values:
        return ""
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{spread}"
