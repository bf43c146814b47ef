"""What came of a run or a measurement: metrics with intervals, as JSON, as text and as a page to look at."""

import shutil
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from minibert.base.errors import InputError, MissingFile, warn
from minibert.base.json_files import misfit, read_json
from minibert.base.terminal import aligned, counted, printable
from minibert.tasks import metrics, submissions
from minibert.tasks.bag_of_words import BagOfWords
from minibert.tasks.metrics.intervals import ALIKE, WILSON, lowest_of, mean_of
from minibert.tasks.multilabel import ManyLabels
from minibert.tasks.task import Labels, Mistake, Predictions, Task

REPORT = "report.json"
SPENT = ("checkpoints", "best", "activations")  # what a run has in its folder until it is finished
FIELDS = {
    **dict.fromkeys(("title", "metric", "page"), str),
    **dict.fromkeys(("examples", "steps", "tokens", "seed"), int),
    **dict.fromkeys(("learning_rate", "best_epoch", "training_seconds", "seconds"), float),
    "scores": dict[str, float],
    "interval": tuple[float, float],
}
SETTING = {"learning_rate": float, "batch_size": int, "epochs": float}  # of a run in a sweep
MORE = {  # of some reports
    **dict.fromkeys(("crc32", "classes", "train_classes", "train_tasks"), dict[str, int]),
    "majority": {"label": str, "macro_f1": float},
    "bag_of_words": {"macro_f1": float},
    "constant": {"value": float, "scores": dict[str, float], "is_beaten": bool},
    "baselines": dict[str, dict[str, float]],
    "untuned": dict[str, float],
    "interval_method": str,
    "runs": list[dict],  # type: ignore[type-arg]  # of a sweep
    **SETTING,
}
RUN = {"learning_rate": float, "seed": int, "folder": str}
ADVICE = "restore it, or remove it and let --resume train again from the beginning"
WORST = 10  # mistakes that are shown
NUMBERS = {  # of held-out text
    "loss": "loss, nats",
    "standard_error": "its standard error, by document",
    "unigram": "unigram entropy of the targets: the best guess without context",
    "text_unigram": "unigram entropy of the whole text",
    "shuffled_loss": "loss with the context shuffled",
    "perplexity": "perplexity",
}
SHARES = {
    "accuracy": "accuracy",
    "next_accuracy": "next-sentence accuracy",
    "next_majority": "always the more frequent answer",
}
HELD_OUT = dict.fromkeys((*NUMBERS, *SHARES), float | None)  # of any version
IN_A_LINE, CLASSES_IN_A_LINE = 3, 6  # metrics, classes
PLAIN = ("total", "thresh", "rmse", "mae")  # how metrics end that are no shares of one


def is_share(name: str) -> bool:
    """Tell whether a metric is best read as a percentage."""
    return not name.endswith(PLAIN)


def metric_name(name: str) -> str:
    """Name a metric as terminal and page do."""
    return printable(name.replace("_", " "))


def metric_number(name: str, value: float) -> str:
    """Write a metric as people read it: shares of one in percent.

    Examples
    --------
    >>> metric_number("accuracy", 0.9128), metric_number("total", 11873.0), metric_number("best_thresh", -2.5)
    ('91.28', '11,873', '-2.5')
    """
    if name == "r2":
        return f"{value:.4f}"
    if is_share(name):
        return f"{100 * value:.2f}"
    if value == round(value, 0) or 1e5 <= abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:g}"


def metrics_text(scores: Mapping[str, float]) -> str:
    """Write the first shares in one line, R² too; some tasks have a metric for every type of answer."""
    shares = [f"{metric_name(n)} {metric_number(n, value)}" for n, value in scores.items() if is_share(n)]
    return ", ".join(shares[:IN_A_LINE])


class Measured(NamedTuple):
    """Predictions of a model whose metrics are reported."""

    task: Task
    labels: Labels
    examples: Sequence[Any]
    predictions: Predictions  # one for each example
    bag_of_words: BagOfWords | None = None  # learnt from what the model learnt from, where texts have classes

    def mistakes(self, tokenizer: Any, max_length: int) -> list[Mistake]:
        """Return every mistake, the worst first; these have marks where the model stopped reading."""
        task, found = self.task, self.task.mistakes(self.examples, self.predictions)
        for place, one in enumerate(found[:WORST]):
            found[place] = task.as_read(one, self.examples[one.example], tokenizer, max_length)
        return found


def report_of(
    measured: Measured, mistakes: Sequence[Mistake], scores: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Return metrics, interval and the worst mistakes, for JSON; `scores` where they are known already."""
    task, labels, examples, predictions, _ = measured
    statistic = task.statistic(examples, predictions)
    low, high, method = metrics.interval(statistic, len(examples), lowest_of(task.metric))
    baselines = task.baselines(examples)
    report = {
        "task": task.name,
        "title": task.title,
        "metric": task.metric,
        "scores": dict(task.score(examples, predictions) if scores is None else scores),
        "interval": [low, high],  # 95%, of the metric
        "interval_method": method,
        "examples": len(examples),
        "labels": list(labels),
        "mistakes": [one._asdict() for one in mistakes[:WORST]],
    }
    compared = compared_with_majority(measured) | compared_with_constant(measured)
    return report | ({"baselines": baselines} if baselines else {}) | compared


def compared_with_constant(measured: Measured) -> dict[str, Any]:
    """Return what errors of predicted numbers are to be read beside; nothing for other tasks.

    That is `constant`: the mean of the examples' numbers as `value`, the `scores` of predicting it for every
    example, and whether it `is_beaten`: whether the model's squared errors are smaller with other examples,
    too, as far as a bootstrap tells.
    """
    task, _, examples, predictions, _ = measured
    if (value := task.constant(examples)) is None:
        return {}
    same = [{"value": value}] * len(examples)
    gold = np.array([example.label for example in examples], np.float64)
    errors = np.square(gold - [one["value"] for one in predictions])
    gain, _ = metrics.bootstrap(mean_of(np.square(gold - value) - errors), len(examples))
    constant = {"value": value, "scores": dict(task.score(examples, same)), "is_beaten": bool(gain > 0)}
    return {"constant": constant}


def compared_with_majority(measured: Measured) -> dict[str, Any]:
    """Return what metrics of classes of texts are to be read beside; nothing for other tasks.

    That is `macro_f1`; `classes`, how many examples each has; `majority`, the most frequent `label`, with the
    `scores` and `macro_f1` of predicting it for every example; and `bag_of_words`, the `scores` and
    `macro_f1` of naive Bayes over words, where it is known what the model has learnt from. Where several
    classes apply, `majority` is the strongest constant answer, and `untuned` has the scores with a threshold
    of one half.
    """
    task, labels, examples, predictions, bag = measured
    if isinstance(task, ManyLabels):
        label, same = task.strongest_constant(examples, predictions)
        expected: Sequence[str] = [name for one in examples for name in one.label]
        macro_f1, of_same = (task.score(examples, one)["macro_f1"] for one in (predictions, same))
        more = {"untuned": task.score(examples, task.untuned(predictions))}
    else:
        classes = task.classes(examples, predictions)
        if task.kind != "classify" or classes is None:
            return {}
        expected, found = classes
        same, more = submissions.majority(examples, len(examples)), {}
        label = same[0]["label"]
        macro_f1, of_same = (metrics.macro_f1(expected, one) for one in (found, len(expected) * [label]))
    return {
        "macro_f1": macro_f1,
        "classes": {**dict.fromkeys(labels, 0), **Counter(expected)},
        "majority": {"label": label, "scores": dict(task.score(examples, same)), "macro_f1": of_same},
        **({} if bag is None else {"bag_of_words": _of_words(task, examples, bag)}),
        **more,
    }


def _of_words(task: Task, examples: Sequence[Any], bag: BagOfWords) -> dict[str, Any]:
    """Return `scores` and `macro_f1` of a bag of words."""
    predictions = bag.predictions(examples)
    scores = dict(task.score(examples, predictions))
    if "macro_f1" in scores:
        return {"scores": scores, "macro_f1": scores["macro_f1"]}
    expected, found = task.classes(examples, predictions) or ((), ())
    return {"scores": scores, "macro_f1": metrics.macro_f1(expected, found)}


def load_report(folder: Path) -> dict[str, Any] | None:
    """Return a finished run's report, with paths to where it is now, or None; raise InputError if damaged."""
    try:
        report = read_json(folder / REPORT, FIELDS, ADVICE)
    except MissingFile:
        return None
    if wrong := _wrong(report):
        raise InputError(f"{folder / REPORT} can't be read: {wrong}; {ADVICE}.")
    report |= {"folder": str(folder), "page": str(folder / Path(report["page"]).name)}
    for one in report.get("runs", ()):
        one["folder"] = str(folder / Path(one["folder"]).name)
    return report


def _wrong(report: dict[str, Any]) -> str | None:
    """Return what is wrong with a report that has all of `FIELDS`; None if nothing is."""
    scored = {"scores": {report["metric"]: float}}
    if wrong := misfit(report, scored | {name: kind for name, kind in MORE.items() if name in report}):
        return wrong
    same = {"scores": dict.fromkeys(report["scores"], float)}
    if "constant" in report and (wrong := misfit(report["constant"], same)):
        return wrong
    if "majority" in report and (wrong := misfit(report, {"macro_f1": float, "majority": same})):
        return wrong
    if "bag_of_words" in report and (wrong := misfit(report, {"bag_of_words": same})):
        return wrong
    runs = report.get("runs", [report])
    if all("failed" in one for one in runs):
        return "'runs' has none that is finished"
    finished = RUN | scored | {"best_epoch": float}
    kinds = (
        (RUN if "failed" in one else finished) | {n: SETTING[n] for n in one if n in SETTING} for one in runs
    )
    return next(filter(None, map(misfit, runs, kinds)), None)


def finished_report(folder: Path) -> dict[str, Any] | None:
    """Return the report of a finished run, or None; remove what it was made with, if that is still there."""
    if (report := load_report(folder)) is not None:
        remove_spent(folder)
    return report


def remove_spent(folder: Path) -> None:
    """Remove what a run needs only on its way; warn where the system refuses."""
    for path in (folder / name for name in SPENT):
        try:
            if path.exists():
                shutil.rmtree(path)
        except OSError as error:
            kept = f"{path} could not be removed ({error.strerror or error})"
            warn(f"{kept}; the run needs it no longer, so remove it yourself.")


def held_out_rows(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the names of what was measured on held-out text and is known, with the numbers as text."""
    rows = [("targets", f"{found['targets']:,}")]
    for names, form in ((NUMBERS, ".3f"), (SHARES, ".1%")):
        rows += [(text, f"{found[name]:{form}}") for name, text in names.items() if found[name] is not None]
    return rows


def measured_text(report: Mapping[str, Any]) -> str:
    """Format the metrics of some examples, with the interval of the main one."""
    return "\n".join([f"{report['title']}, {counted(report['examples'], 'example')}", *metric_lines(report)])


def metric_lines(report: Mapping[str, Any]) -> list[str]:
    """Return a line for each metric; of classes also the metrics of the majority, and the counts of each."""
    interval, lines = report.get("interval"), []
    rows = [(name, *(f"{number:>7}" for number in numbers)) for name, *numbers in metric_rows(report)]
    for line, (name, *_) in zip(aligned(rows, left=1), rows, strict=True):
        lines.append(f"  {line}")
        if interval and name == metric_name(report["metric"]):
            low, high = (metric_number(report["metric"], end) for end in interval)
            lines[-1] += f"   {interval_name(report)}: {low} to {high}"
    lines += [f"  {remark}" for remark in remarks(report)]
    return [*lines, f"  {_counts(report)}"] if "classes" in report else lines


def metric_rows(report: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return names and metrics as text, under a head where others stand beside them.

    Those are, of classes, the majority's and, where the report has them, those of a bag of words and of
    untuned thresholds; of numbers, those of their mean.
    """
    scores, majority = report["scores"], report.get("majority")
    if (constant := report.get("constant")) is not None:
        both = scores, constant["scores"]
        rows = [(metric_name(name), *(metric_number(name, one[name]) for one in both)) for name in scores]
        return [("", "model", f"always {constant['value']:.6g}"), *rows]
    if majority is None:
        return [(metric_name(name), metric_number(name, value)) for name, value in scores.items()]
    columns = {
        "model": scores | {"macro_f1": report["macro_f1"]},
        f"always {majority['label']!r}": majority["scores"] | {"macro_f1": majority["macro_f1"]},
    }
    if bag := report.get("bag_of_words"):
        columns["bag of words"] = bag["scores"] | {"macro_f1": bag["macro_f1"]}
    if untuned := report.get("untuned"):
        columns["threshold 0.5"] = untuned
    rows = [
        (metric_name(name), *(metric_number(name, column[name]) for column in columns.values()))
        for name in columns["model"]
    ]
    return [("", *columns), *rows]


def interval_name(report: Mapping[str, Any]) -> str:
    """Return what the interval of a report is; reports of earlier versions have that of the bootstrap."""
    method = report.get("interval_method")
    if method == WILSON:
        return "95% interval (Wilson)"
    if method == ALIKE:
        return f"95% interval (Wilson's width for {counted(report['examples'], 'example')} all alike)"
    return "95% of bootstrap samples"


def has_head(report: Mapping[str, Any]) -> bool:
    """Tell whether the first of `metric_rows` says what stands in each column."""
    return "majority" in report or "constant" in report


def remarks(report: Mapping[str, Any]) -> list[str]:
    """Return sentences about the metrics: that what is simpler is as good, and what baselines reach."""
    baselines = report.get("baselines", {}).items()
    notes = [
        trivial_remark(report),
        bag_of_words_remark(report),
        *(f"{name}: {metrics_text(scores)}." for name, scores in baselines),
    ]
    return [note for note in notes if note]


def trivial_remark(report: Mapping[str, Any]) -> str:
    """Say so of a model that is no better than one and the same answer to everything.

    Of classes, that is one whose interval does not lie above the majority's metric; of numbers, one whose
    squared errors are not smaller than those of the mean.
    """
    constant = report.get("constant")
    if constant is not None:
        mean = f"the mean of these examples, {constant['value']:.6g}"
        worse = f"Not better than always answering {mean}, as far as these examples show."
        return "" if constant["is_beaten"] else worse
    majority, interval = report.get("majority"), report.get("interval")
    if majority is None or interval is None or majority["scores"][report["metric"]] < interval[0]:
        return ""
    return f"Not better than always answering {majority['label']!r}, as far as these examples show."


def bag_of_words_remark(report: Mapping[str, Any]) -> str:
    """Say so of a model whose interval does not lie above the metric of a bag of words."""
    bag, interval = report.get("bag_of_words"), report.get("interval")
    if bag is None or interval is None or bag["scores"][report["metric"]] < interval[0]:
        return ""
    if bag["scores"][report["metric"]] > interval[1]:
        return "A bag of words (naive Bayes) is better: is BERT worth it here?"
    return (
        "Not better than a bag of words (naive Bayes), as far as these examples show: is BERT worth it here?"
    )


def _counts(report: Mapping[str, Any]) -> str:
    """Return how many examples each of the most frequent classes has."""
    measured, learnt = report["classes"], report.get("train_classes")
    names = sorted(measured, key=lambda name: -measured[name])
    counts = [
        f"{name!r} {measured[name]:,}" + ("" if learnt is None else f" ({learnt.get(name, 0):,})")
        for name in names[:CLASSES_IN_A_LINE]
    ]
    rest = len(names) - len(counts)
    text = f"examples measured{'' if learnt is None else ' (and learnt from)'}: {', '.join(counts)}"
    return text + f", and {rest:,} more class{'es' * (rest > 1)}" * bool(rest)


def report_text(report: dict[str, Any]) -> str:
    """Write the report of a run, or of a sweep, for a person."""
    counts = length_text(report)
    if report["training_seconds"]:  # rounded: next to nothing can't be divided by
        counts += f", {report['tokens'] / report['training_seconds']:,.0f} tokens/s"
    setting = ", ".join(f"{metric_name(name)} {report[name]:.12g}" for name in SETTING if name in report)
    lines = [
        measured_text(report),
        f"The best epoch on dev was {report['best_epoch']:g}; {setting}, seed {report['seed']}.",
        *together(report),
        f"{counts}; {report['seconds'] / 60:.1f} minutes for this command.",
    ]
    if "runs" in report:
        lines += ["", sweep_text(report), ""]
    return "\n".join([*lines, f"Run folder: {report['folder']}", f"Report: {report['page']}"])


def length_text(report: Mapping[str, Any]) -> str:
    """Say how many steps a run had, and how many tokens in all."""
    return f"{counted(report['steps'], 'step')}, {counted(report['tokens'], 'token')}"


def learnt_text(tasks: Mapping[str, int], what: str = "example") -> str:
    """Say how many examples there are to learn from, and of several tasks how many of each."""
    each = ", ".join(f"{count:,} of {name}" for name, count in tasks.items())
    return f"{counted(sum(tasks.values()), what)} to learn from" + f" ({each})" * (len(tasks) > 1)


def together(report: Mapping[str, Any]) -> list[str]:
    """Say of a run that has learnt several tasks together how many examples of each it had."""
    tasks = report.get("train_tasks", {})
    return [f"{learnt_text(tasks)}."] * (len(tasks) > 1)


def settings(runs: Sequence[Mapping[str, Any]], metric: str) -> list[dict[str, Any]]:
    """Return of each setting of a sweep `mean` and `sd` of the metric over its `runs`; of one run no `sd`."""
    found: dict[Any, list[float]] = {}
    for run in (run for run in runs if "failed" not in run):
        setting = tuple((name, run[name]) for name in SETTING if name in run)
        found.setdefault(setting, []).append(run["scores"][metric])
    return [
        {**dict(setting), "runs": len(scores), "mean": statistics.mean(scores)}
        | ({"sd": statistics.stdev(scores)} if len(scores) > 1 else {})
        for setting, scores in found.items()
    ]


def sweep_text(report: Mapping[str, Any]) -> str:
    """Write the runs of a sweep and, where settings have several runs, means with standard deviations."""
    metric, runs = report["metric"], report["runs"]
    rows: list[Sequence[str]] = []
    for one in (means := settings(runs, metric)):
        spread = f" +- {metric_number(metric, one['sd'])}" if "sd" in one else ""
        rows.append([*_setting(one).values(), f"{one['runs']}", metric_number(metric, one["mean"]) + spread])
    text = sweep_table(runs, metric)
    if len(rows) < len(runs):
        head = [*_setting(means[0]), "runs", f"{metric}, mean +- s.d."]
        text += "\n\n" + "\n".join(aligned([head, *rows]))
    return text


def _setting(one: Mapping[str, Any]) -> dict[str, str]:
    """Return the setting of a run as text, by what its columns are called."""
    return {metric_name(name): f"{one[name]:.12g}" for name in SETTING if name in one}


def sweep_table(runs: Sequence[Mapping[str, Any]], metric: str) -> str:
    """Write a line for each run of a sweep: a star marks the best, a dash what a failed one lacks."""
    best = max((run for run in runs if "failed" not in run), key=lambda run: run["scores"][metric])
    rows = [[*_setting(best), "seed", metric, "best epoch", "folder"]]
    for run in runs:
        if "failed" in run:
            score = "failed", "-"
        else:
            star = " *" if run is best else ""
            score = metric_number(metric, run["scores"][metric]) + star, f"{run['best_epoch']:g}"
        rows.append([*_setting(run).values(), str(run["seed"]), *score, Path(run["folder"]).name])
    return "\n".join(aligned(rows))
