"""Write `report.html` of a fine-tuning: one file for any browser, without network.

This module computes the contents; the layout is in `templates/`.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from minibert.base.files import atomic_json, atomic_text
from minibert.base.terminal import duration
from minibert.model.head_kinds import SQUARED
from minibert.reports import results
from minibert.reports.doctor import Finding, Record, examine
from minibert.reports.markup import rendered, shown
from minibert.reports.pictures import Curve, StepChart, picture, points, step_charts
from minibert.reports.results import WORST, Measured, metric_name, metric_number
from minibert.tasks import metrics
from minibert.tasks.task import Mistake
from minibert.training.runlog import METRICS, read_metrics

REPORT_FILE = "report.html"
MOST_CLASSES = 40  # classes with a row of their own in the confusion matrix; rarer ones share a row
AT_ONCE = 600  # characters of a mistake that are visible without unfolding it


@dataclass(frozen=True)
class Facts:
    """The contents of a report; empty parts are left out."""

    report: Mapping[str, Any]  # `title`, `task`, `metric`, `scores`, and other fields of `report_of`
    model: str = ""  # the model that was fine-tuned
    options: Mapping[str, Any] = field(default_factory=dict)  # options of the training
    labels: Sequence[str] = ()  # the order in which to show classes
    # Expected and predicted classes, one for each example or word.
    classes: tuple[Sequence[str], Sequence[str]] | None = None
    curve: Sequence[Mapping[str, float]] = ()  # lines of metrics.jsonl, with "loss", "dev_accuracy"
    mistakes: Sequence[Mistake] = ()  # the worst first
    loss_unit: str = ""  # unit of the loss in `curve`
    sweep: str = ""  # the tables of a sweep, if this is its best run
    findings: Sequence[Finding] = ()  # what is wrong with the training


def page(facts: Facts) -> str:
    """Write the report as one HTML document.

    Parameters
    ----------
    facts : Facts

    Returns
    -------
    str
    """
    report = facts.report
    name = report["metric"]
    best = report["scores"].get(name)
    interval = report.get("interval")
    seconds = report.get("training_seconds")
    head: tuple[str, ...] = ()
    rows = results.metric_rows(report)
    if results.has_head(report):
        head, *rows = rows
    truncation = report.get("truncated", {}).get("warning", "")
    about_examples = " ".join([*results.trained_together(report), truncation]).strip()
    notes = [about_examples, *results.remarks(report)]
    return rendered(
        "report.html.j2",
        title=report["title"],
        facts=facts,
        duration=None if seconds is None else duration(seconds),
        value=None if best is None else metric_number(name, best),
        metric=metric_name(name),
        interval_name=results.interval_name(report),
        interval=interval and [metric_number(name, end) for end in interval],
        notes=list(filter(None, notes)),
        metrics={"head": head, "rows": rows},
        pictures=_curves(facts),
        confusion=_confusion(facts),
        step_charts=_step_charts(facts),
        mistakes=[(mistake, *_shares(mistake)) for mistake in facts.mistakes[:WORST]],
        at_once=AT_ONCE,
        options=option_rows(facts.options),
    )


def loss_unit(kind: str) -> str:
    """Return the unit of the loss of a head.

    Parameters
    ----------
    kind : str
        A kind of head, one of `KINDS`.

    Returns
    -------
    str
        "nats" for a cross-entropy; "" for a squared difference.
    """
    return "" if kind in SQUARED else "nats"


def _shares(mistake: Mistake) -> tuple[str, str]:
    """Write the probabilities of the expected and the found answer in percent; "" where there are none."""
    if mistake.probabilities is None:
        return "", ""
    expected, found = (f"{100 * probability:.1f}%" for probability in mistake.probabilities)
    return expected, found


def option_rows(options: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the names of options with their values as the user wrote them.

    Parameters
    ----------
    options : dict

    Returns
    -------
    list of (str, Any)
        Names and values; numbers are text, such as "0.1" rather than "0.1000".
    """
    return [(name, _short(value)) for name, value in options.items()]


def _short(value: Any) -> Any:
    """Write an option as the user wrote it: 0.1, not 0.1000; 12345, not 12,345; text=review."""
    if isinstance(value, tuple):
        parts = []
        for part in value:
            if isinstance(part, tuple):
                parts.append(f"{part[0]}={part[1]}")
            else:
                parts.append(_short(part))
        return tuple(parts)
    if isinstance(value, float):
        return f"{value:g}"
    if type(value) is int:
        return str(value)
    return value


def _curves(facts: Facts) -> list[dict[str, Any] | None]:
    """Plot the loss above the metric, over the same steps."""
    report = facts.report
    name = report["metric"]
    number = partial(metric_number, name)
    interval = report.get("interval")
    band = None
    if interval is not None and np.isfinite(interval).all():
        band = *interval, f"{results.interval_name(report)} of the best epoch"
    lines = []
    majority = report.get("majority")
    if majority is not None:
        score = majority["scores"][name]
        lines.append((score, f"always {majority['label']!r}: {number(score)}"))
        if bag := report.get("bag_of_words"):
            score = bag["scores"][name]
            lines.append((score, f"bag of words: {number(score)}"))
    last = _last_step(facts)
    losses = Curve("loss", points(facts.curve, "loss"))
    of_dev = Curve("metric", points(facts.curve, f"dev_{name}"), style="dots")
    loss = picture("training loss", [losses], shown, last, unit=facts.loss_unit)
    metric = picture(
        f"{metric_name(name)} on dev",
        [of_dev],
        number,
        last,
        scale=100.0 if results.is_share(name) else 1.0,
        unit="%" if results.is_share(name) else "",
        band=band,
        lines=lines,
    )
    return [drawn for drawn in (loss, metric) if drawn]


def _step_charts(facts: Facts) -> list[StepChart]:
    """Plot the gradient norm and the learning rate, over the same steps as the loss."""
    last = _last_step(facts)
    share = facts.options.get("warmup")
    warmup = None if share is None else round(last * share)
    return step_charts(facts.curve, last, facts.options.get("clip_norm"), warmup)


def _last_step(facts: Facts) -> float:
    """Return the last step that was recorded; 0 if none was."""
    return max((line["step"] for line in facts.curve), default=0)


def _confusion(facts: Facts) -> dict[str, Any] | None:
    """Tabulate the confusion matrix, and precision, recall and F1 of each class; None without classes."""
    if facts.classes is None or not len(facts.classes[0]):
        return None
    trained = facts.report.get("train_classes", {})
    names, counts = _counted(*facts.classes, facts.labels, trained)
    each = [_class_row(name, i, counts, trained) for i, name in enumerate(names)]
    names, counts = _most_frequent(names, counts)
    expected = np.maximum(1, counts.sum(1, keepdims=True))
    shares = counts / expected
    rows = []
    for i, name in enumerate(names):
        cells = [_cell(int(counts[i, j]), float(shares[i, j]), i == j) for j in range(len(names))]
        rows.append((name, cells))
    head = ["class", "precision", "recall", "F1"]
    if trained:
        head.append("learnt from")
    head += ["expected", "found"]
    return {"names": names, "rows": rows, "each": each, "head": tuple(head)}


def _cell(count: int, share: float, right: bool) -> tuple[str, str, int]:
    """Return the kind of a cell of the confusion matrix, how dark it is, and its count."""
    if right:
        kind, tone = "right", share
    else:
        kind, tone = "wrong", math.sqrt(share)  # makes even a few mistakes visible
    if tone > 0.5:
        kind += " strong"
    return kind, f"{tone:.3f}", count


# counts (K,K)
def _class_row(name: str, i: int, counts: np.ndarray, trained: Mapping[str, int]) -> list[Any]:
    """Return the table row of a class: its precision, recall and F1, and its counts."""
    expected = int(counts[i].sum())
    predicted = int(counts[:, i].sum())
    right = int(counts[i, i])
    row: list[Any] = [
        name,
        _share(right, predicted),  # precision
        _share(right, expected),  # recall
        _share(2 * right, expected + predicted),  # F1
    ]
    if trained:
        row.append(trained.get(name, 0))
    return [*row, expected, predicted]


def _share(part: int, whole: int) -> str | None:
    """Write a share in percent; None if the whole is zero."""
    if not whole:
        return None
    return metric_number("", part / whole)


# -> (K,K)
def _counted(
    expected: Sequence[str], predicted: Sequence[str], labels: Sequence[str], trained: Iterable[str] = ()
) -> tuple[list[str], np.ndarray]:
    """Return the names of classes, those that are not in `labels` last, and their confusion matrix."""
    occurring = {*expected, *predicted, *trained}
    names = [label for label in labels if label in occurring]
    names += sorted(occurring - {*labels})
    index_of = {name: index for index, name in enumerate(names)}
    gold = [index_of[name] for name in expected]
    chosen = [index_of[name] for name in predicted]
    return names, metrics.confusion(gold, chosen, range(len(names)))


# counts (K,K) -> at most MOST_CLASSES + 1 of both
def _most_frequent(names: list[str], counts: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Keep the most frequent classes in their order; merge the others into one."""
    rest = len(names) - MOST_CLASSES
    if rest <= 1:
        return names, counts
    frequency = counts.sum(0) + counts.sum(1)
    by_frequency = np.argsort(-frequency, kind="stable")
    kept = sorted(by_frequency[:MOST_CLASSES])
    new_index = np.full(len(names), MOST_CLASSES)  # the last one is that of all rarer classes
    new_index[kept] = np.arange(MOST_CLASSES)
    merged = np.zeros((MOST_CLASSES + 1, MOST_CLASSES + 1), counts.dtype)
    np.add.at(merged, (new_index[:, None], new_index[None, :]), counts)
    kept_names = [names[index] for index in kept]
    return [*kept_names, f"{rest:,} rarer classes"], merged


def facts_of(
    folder: Path,
    options: Any,
    measured: Measured,
    mistakes: Sequence[Mistake],
    report: Mapping[str, Any],
    sweep: str = "",
) -> Facts:
    """Return the contents of a run's page, without what is wrong with the training.

    Parameters
    ----------
    folder : Path
        Folder of the run, with the record of its steps if there is one.
    options : FinetuneOptions
        The options to show; only the last part of each path is shown.
    measured : Measured
    mistakes : sequence of Mistake
        The worst first.
    report : dict
        The contents of `report.json`.
    sweep : str, default ""
        The tables of a sweep, if this is its best run.

    Returns
    -------
    Facts
    """
    model = Path(options.model).name
    named = dataclasses.asdict(options)
    named["data"] = Path(options.data).name
    named["model"] = model
    named["also"] = tuple((name, Path(data).name) for name, data in options.also)
    curve = read_metrics(folder) if (folder / METRICS).exists() else ()
    return Facts(
        report,
        model,
        options=named,
        labels=measured.labels,
        classes=measured.task.classes(measured.examples, measured.predictions),
        curve=curve,
        mistakes=mistakes,
        loss_unit=loss_unit(measured.task.kind),
        sweep=sweep,
    )


def save_report(
    folder: Path, options: Any, measured: Measured, mistakes: Sequence[Mistake], report: dict[str, Any]
) -> Sequence[Finding]:
    """Write `report.html`, and then `report.json`, whose existence marks a run as finished.

    Only then is the run examined, and the page written again if something is wrong with it.

    Parameters
    ----------
    folder : Path
        Folder of the run.
    options : FinetuneOptions
    measured : Measured
    mistakes : sequence of Mistake
        The worst first.
    report : dict
        The metrics; learning rate, seed and both paths are added to it.

    Returns
    -------
    sequence of Finding
        What is wrong with the training.
    """
    path = folder / REPORT_FILE
    facts = facts_of(folder, options, measured, mistakes, report)
    atomic_text(path, page(facts))
    report["learning_rate"] = options.learning_rate
    report["seed"] = options.seed
    report["folder"] = str(folder)
    report["page"] = str(path)
    atomic_json(folder / results.REPORT, report)
    findings = examine(Record(folder, options, facts.curve, report))
    if findings:
        atomic_text(path, page(dataclasses.replace(facts, findings=findings)))
    return findings
