"""The values of each example that a metric is computed from, for tests of differences."""

from itertools import groupby
from typing import Any

import numpy as np

from minibert.experiments.verdicts import Outcomes
from minibert.tasks.answering import Answering
from minibert.tasks.choices import Choices
from minibert.tasks.metrics.entities import sentence_counts
from minibert.tasks.sentences import Sentences
from minibert.tasks.tagging import Tagging, comparable
from minibert.tasks.task import Examples, Predictions, Task


def outcomes(task: Task, examples: Examples, predictions: Predictions) -> tuple[str, list[Any]]:
    """Return how the metric is computed from values, and the value of each example.

    Parameters
    ----------
    task : Task
    examples : sequence
        Labelled ones.
    predictions : sequence
        One of each example.

    Returns
    -------
    kind : str
        "mean": 0 or 1 for accuracy, of MRPC and QQP as well; for questions their F1. "f1": the numbers of
        entities of a sentence. "" where a metric is not made of such values: Matthews' and other
        correlations.
    values : list
        A number, or with "f1" [right, found, expected], of each example; none with "".
    """
    if isinstance(task, Tagging):
        expected, predicted = comparable(examples, predictions)
        counts = sentence_counts(expected, predicted)  # expected, found, right
        return "f1", counts[:, ::-1].tolist()
    values = []
    if isinstance(task, Sentences) and task.kind == "classify" and "accuracy" in task.scored:
        for example, prediction in zip(examples, predictions, strict=True):
            is_right = prediction["label"] == example.label
            values.append(float(is_right))
        return "mean", values
    if isinstance(task, Choices | Answering):
        metric_of = task.statistic(examples, predictions)
        for row in range(len(examples)):
            values.append(metric_of(np.array([row])))
        return "mean", values
    return "", []


def _source(example: Any) -> Any:
    """Return the groups of dependent examples: by document, paragraph, or first text; None for none."""
    if getattr(example, "second", "") is None:
        return None
    for name in ("document", "context"):
        if hasattr(example, name):
            return getattr(example, name)
    return getattr(example, "first", None)


def measured(task: Task, examples: Examples, predictions: Predictions) -> Outcomes:
    """Return the values to judge: `outcomes`, or the metric itself if single examples have no value.

    Parameters
    ----------
    task : Task
    examples : sequence
        Labelled ones.
    predictions : sequence
        One of each example.

    Returns
    -------
    Outcomes
        With groups where neighbours have one document, paragraph or first text, and no two groups the same.
    """
    kind, values = outcomes(task, examples, predictions)
    if not kind:
        kind = "mean"
        values = [task.score(examples, predictions)[task.metric]]
    runs = []
    for source, alike in groupby(map(_source, examples)):
        runs.append((source, len(list(alike))))
    sources = dict(runs)
    groups: list[int] = []
    if None not in sources and len(sources) == len(runs) < len(examples) == len(values):
        groups = [count for _, count in runs]
    return Outcomes(kind, np.asarray(values), tuple(groups))
