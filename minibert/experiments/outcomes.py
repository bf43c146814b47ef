"""What a metric of the paper's tables is computed from, example by example: for tests of differences."""

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
    """Return how the metric is made of values, and the value of each example.

    "mean": 0 or 1 for accuracy, of MRPC and QQP as well; for questions their F1. "f1": the numbers of
    entities of a sentence, [right, found, expected]. "" and none where a metric is not made of such values:
    Matthews' and other correlations.
    """
    if isinstance(task, Tagging):
        return "f1", sentence_counts(*comparable(examples, predictions))[:, ::-1].tolist()
    if isinstance(task, Sentences) and task.kind == "classify" and "accuracy" in task.scored:
        return "mean", [float(p["label"] == e.label) for e, p in zip(examples, predictions, strict=True)]
    if isinstance(task, Choices | Answering):
        value = task.statistic(examples, predictions)
        return "mean", [value(np.array([row])) for row in range(len(examples))]
    return "", []


def _source(example: Any) -> Any:
    """Return what makes examples alike: one document, paragraph, or first text of pairs; None for none."""
    name = next((name for name in ("document", "context") if hasattr(example, name)), "first")
    return None if getattr(example, "second", "") is None else getattr(example, name, None)


def measured(task: Task, examples: Examples, predictions: Predictions) -> Outcomes:
    """Return what is judged: `outcomes`, or the metric itself where it has no value of a single example."""
    kind, values = outcomes(task, examples, predictions)
    if not kind:
        kind, values = "mean", [task.score(examples, predictions)[task.metric]]
    groups: list[int] = []
    runs = [(source, len(list(own))) for source, own in groupby(map(_source, examples))]
    if None not in (sources := dict(runs)) and len(sources) == len(runs) < len(examples) == len(values):
        groups = [count for _, count in runs]
    return Outcomes(kind, np.asarray(values), tuple(groups))
