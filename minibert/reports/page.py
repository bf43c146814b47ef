"""`report.html`: what came of a fine-tuning, as one file that any browser shows, without network or scripts.

What it looks like stands in `templates/`; here is what it says.
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
from minibert.reports import results
from minibert.reports.markup import rendered, shown
from minibert.reports.pictures import Curve, picture, points
from minibert.reports.results import WORST, Measured, metric_name, metric_number
from minibert.tasks import metrics
from minibert.tasks.task import Mistake
from minibert.training.runlog import METRICS, read_metrics

REPORT_FILE = "report.html"
MOST_CLASSES = 40  # a row each in the confusion matrix; rarer ones share one
AT_ONCE = 600  # characters of a mistake that are seen without unfolding it


@dataclass(frozen=True)
class Facts:
    """What a report says; what is empty is left out of it."""

    report: Mapping[str, Any]  # `title`, `task`, `metric`, `scores`, and what else `report_of` measures
    model: str = ""  # what was started from
    options: Mapping[str, Any] = field(default_factory=dict)  # what was chosen for the training
    labels: Sequence[str] = ()  # classes in the order in which they are shown, if they come
    classes: tuple[Sequence[str], Sequence[str]] | None = None  # expected and found, of every example or word
    curve: Sequence[Mapping[str, float]] = ()  # lines of metrics.jsonl, with "loss", "dev_accuracy"
    mistakes: Sequence[Any] = ()  # the worst first: objects with `text`, `expected` and `found`
    sweep: str = ""  # tables of the sweep whose best run it is


def page(facts: Facts) -> str:
    """Write the report as one HTML document."""
    report, name, seconds = facts.report, facts.report["metric"], facts.report.get("training_seconds")
    best, interval, rows = report["scores"].get(name), report.get("interval"), results.metric_rows(report)
    head, rows = (rows[0], rows[1:]) if results.has_head(report) else ((), rows)
    cut = report.get("truncated", {}).get("warning", "")
    notes = [" ".join([*results.together(report), cut]).strip(), *results.remarks(report)]
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
        mistakes=facts.mistakes[:WORST],
        at_once=AT_ONCE,
        options=option_rows(facts.options),
    )


def duration(seconds: float) -> str:
    """Write a time in the unit that suits it."""
    if seconds < 100:
        return f"{seconds:.1f} seconds"
    return f"{seconds / 60:.1f} minutes" if seconds < 6000 else f"{seconds / 3600:.1f} hours"


def option_rows(options: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the names of options with their values as they were given."""
    return [(name, _short(value)) for name, value in options.items()]


def _short(value: Any) -> Any:
    """Write an option as it was given: 0.1 and not 0.1000, 12345 and not 12,345, text=review."""
    if isinstance(value, tuple):
        return tuple(f"{one[0]}={one[1]}" if isinstance(one, tuple) else _short(one) for one in value)
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if type(value) is int else value


def _curves(facts: Facts) -> list[dict[str, Any] | None]:
    """Draw the loss and the metric, one above the other over the same steps."""
    last, name = max((row["step"] for row in facts.curve), default=0), facts.report["metric"]
    number = partial(metric_number, name)
    more: dict[str, Any] = {"scale": 100.0 if results.is_share(name) else 1.0}
    interval, majority = facts.report.get("interval"), facts.report.get("majority")
    if interval is not None and np.isfinite(interval).all():
        more["band"] = *interval, f"{results.interval_name(facts.report)} of the best epoch"
    if majority is not None:
        same = majority["scores"][name]
        more["lines"] = [(same, f"always {majority['label']!r}: {number(same)}")]
        if bag := facts.report.get("bag_of_words"):
            of_words = bag["scores"][name]
            more["lines"].append((of_words, f"bag of words: {number(of_words)}"))
    of_dev = [Curve("metric", points(facts.curve, f"dev_{name}"), dots=True)]
    loss = picture("training loss", [Curve("loss", points(facts.curve, "loss"))], shown, last)
    metric = picture(f"{metric_name(name)} on dev", of_dev, number, last, **more)
    return [one for one in (loss, metric) if one]


def _confusion(facts: Facts) -> dict[str, Any] | None:
    """Tabulate how often each class was found for each; with precision, recall and F1."""
    if facts.classes is None or not len(facts.classes[0]):
        return None
    learnt = facts.report.get("train_classes", {})
    names, counts = _counted(*facts.classes, facts.labels, learnt)
    each = [_of_class(name, i, counts, learnt) for i, name in enumerate(names)]
    names, counts = _most_frequent(names, counts)
    shares = counts / np.maximum(1, counts.sum(1, keepdims=True))
    rows = [
        (name, [_cell(int(counts[i, j]), float(shares[i, j]), i == j) for j in range(len(names))])
        for i, name in enumerate(names)
    ]
    head = ("class", "precision", "recall", "F1", *["learnt from"] * bool(learnt), "expected", "found")
    return {"names": names, "rows": rows, "each": each, "head": head}


def _cell(count: int, share: float, right: bool) -> tuple[str, str, int]:
    """Return the kind of a cell, how dark it is, and its number."""
    tone = share if right else math.sqrt(share)  # a few mistakes are to be seen, too
    return ("right" if right else "wrong") + (" strong" if tone > 0.5 else ""), f"{tone:.3f}", count


# counts (K,K)
def _of_class(name: str, i: int, counts: np.ndarray, learnt: Mapping[str, int]) -> list[Any]:
    """Return a class, its precision, recall and F1, and its counts."""
    expected, found, right = int(counts[i].sum()), int(counts[:, i].sum()), int(counts[i, i])
    shares = (right, found), (right, expected), (2 * right, expected + found)
    numbers = [metric_number("", part / whole) if whole else None for part, whole in shares]
    return [name, *numbers, *([learnt.get(name, 0)] if learnt else []), expected, found]


# -> (K,K)
def _counted(
    expected: Sequence[str], found: Sequence[str], labels: Sequence[str], learnt: Iterable[str] = ()
) -> tuple[list[str], np.ndarray]:
    """Count how often each class was found for each; classes not among `labels` come last."""
    there = {*expected, *found, *learnt}
    names = [*(label for label in labels if label in there), *sorted(there - {*labels})]
    number = {name: at for at, name in enumerate(names)}
    gold, predicted = ([number[name] for name in side] for side in (expected, found))
    return names, metrics.confusion(gold, predicted, range(len(names)))


# counts (K,K) -> at most MOST_CLASSES + 1 of both
def _most_frequent(names: list[str], counts: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Keep the classes that come most often, in the order they had; join the others to one."""
    rest = len(names) - MOST_CLASSES
    if rest <= 1:
        return names, counts
    often = np.argsort(-(counts.sum(0) + counts.sum(1)), kind="stable")
    kept = sorted(often[:MOST_CLASSES])
    place = np.full(len(names), MOST_CLASSES)
    place[kept] = np.arange(MOST_CLASSES)
    joined = np.zeros((MOST_CLASSES + 1, MOST_CLASSES + 1), counts.dtype)
    np.add.at(joined, (place[:, None], place[None, :]), counts)
    return [*(names[at] for at in kept), f"{rest:,} rarer classes"], joined


def facts_of(
    folder: Path, options: Any, measured: Measured, mistakes: Sequence[Mistake], report: Mapping[str, Any]
) -> Facts:
    """Return what the page of a run says that lies in a folder, with what `report.json` holds there."""
    names: dict[str, Any] = {one: Path(getattr(options, one)).name for one in ("data", "model")}
    names["also"] = tuple((name, Path(folder).name) for name, folder in options.also)
    named = dataclasses.asdict(options) | names
    classes = measured.task.classes(measured.examples, measured.predictions)
    curve = read_metrics(folder) if (folder / METRICS).exists() else ()
    return Facts(report, names["model"], named, measured.labels, classes, curve, mistakes)


def save_report(
    folder: Path, options: Any, measured: Measured, mistakes: Sequence[Mistake], report: dict[str, Any]
) -> None:
    """Write `report.html`, then `report.json`, which marks a run as finished; add both paths to `report`."""
    path = folder / REPORT_FILE
    atomic_text(path, page(facts_of(folder, options, measured, mistakes, report)))
    report |= {"learning_rate": options.learning_rate, "seed": options.seed}
    report |= {"folder": str(folder), "page": str(path)}
    atomic_json(folder / results.REPORT, report)
