"""Record what each example contributes to a metric, so that differences can be tested later."""

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
    """Return how the metric is computed from values of single examples, and these values.

    Parameters
    ----------
    task : Task
    examples : sequence
        Labelled examples.
    predictions : sequence
        One prediction for each example.

    Returns
    -------
    kind : str
        "mean": 0 or 1 for accuracy (for MRPC and QQP, too), and the F1 of each question. "f1": the counts of
        entities in each sentence. "": the metric can't be computed from values of single examples, as
        Matthews' and other correlations.
    values : list
        For each example a number or, with "f1", [right, found, expected]; empty with "".
    """
    if isinstance(task, Tagging):
        counts = sentence_counts(*comparable(examples, predictions))  # expected, found, right
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
    """Return what dependent examples share: the document, paragraph, or first text; None for single texts."""
    if getattr(example, "second", "") is None:
        return None
    for name in ("document", "context"):
        if hasattr(example, name):
            return getattr(example, name)
    return getattr(example, "first", None)


def measured(task: Task, examples: Examples, predictions: Predictions) -> Outcomes:
    """Return the values to judge: those of `outcomes`, or the metric itself if single examples have none.

    Parameters
    ----------
    task : Task
    examples : sequence
        Labelled examples.
    predictions : sequence
        One prediction for each example.

    Returns
    -------
    Outcomes
        With groups where neighbours share a document, paragraph or first text, unless the examples of one
        such source are scattered.
    """
    kind, values = outcomes(task, examples, predictions)
    if not kind:
        kind = "mean"
        values = [task.score(examples, predictions)[task.metric]]
    runs = []  # neighbours that share a source: the source, and how many they are
    for source, neighbours in groupby(map(_source, examples)):
        runs.append((source, len(list(neighbours))))
    sources = {source for source, _ in runs}
    is_contiguous = None not in sources and len(sources) == len(runs)
    has_values = len(values) == len(examples)
    groups: list[int] = []
    if is_contiguous and has_values and len(runs) < len(examples):
        groups = [count for _, count in runs]
    return Outcomes(kind, np.asarray(values), tuple(groups))
