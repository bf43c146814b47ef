"""The results of a run or an evaluation: metrics with intervals, as JSON, as text and as a page."""

import shutil
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, get_type_hints

import numpy as np

from minibert.base.errors import InputError, MissingFile, warn
from minibert.base.json_files import read_json, schema_error
from minibert.base.terminal import aligned, counted, duration, printable
from minibert.reports.contents import Baseline, Baselines, Constant, Evaluation, FinetuneReport
from minibert.tasks import metrics, submissions
from minibert.tasks.bag_of_words import BagOfWords
from minibert.tasks.metrics.intervals import ALIKE, WILSON, lowest_of, mean_of
from minibert.tasks.multilabel import ManyLabels
from minibert.tasks.task import Labels, Mistake, Predictions, Task

REPORT = "report.json"
SPENT = ("checkpoints", "best", "activations")  # folders that a run needs only until it is finished
REQUIRED = (  # fields that a report has in any case; the others are checked where they are there
    *"title metric page examples steps tokens seed learning_rate best_epoch training_seconds seconds".split(),
    *("scores", "interval"),
)
SETTING = {"learning_rate": float, "batch_size": int, "epochs": float}  # what a sweep can vary
RUN = {"learning_rate": float, "seed": int, "folder": str}  # required in each run of a sweep
ADVICE = "restore it, or remove it and resume the run, which then trains from the beginning"
WORST = 10  # how many mistakes are shown
IN_A_LINE = 3  # how many metrics fit in a line
CLASSES_IN_A_LINE = 6  # how many classes fit in a line
ERRORS = tuple(name for name, row in metrics.METRICS.items() if not row.is_share)
PLAIN = ("total", "thresh", *ERRORS)  # endings of the names of metrics that are not between 0 and 1


def is_share(name: str) -> bool:
    """Return whether a metric is best read as a percentage.

    Parameters
    ----------
    name : str
        Name of the metric, such as "accuracy" or "best_thresh".

    Returns
    -------
    bool
        False for counts, thresholds and errors of predicted numbers.
    """
    return not name.endswith(PLAIN)


def metric_name(name: str) -> str:
    """Write the name of a metric for people.

    Parameters
    ----------
    name : str
        Name with underscores, of which the name of a class may be a part.

    Returns
    -------
    str
        The name with spaces, without characters that a terminal should not print.
    """
    return printable(name.replace("_", " "))


def metric_number(name: str, value: float) -> str:
    """Write the value of a metric for people, in percent if it is a share.

    Parameters
    ----------
    name : str
        Name of the metric.
    value : float
        Its value in a result of `Task.score`.

    Returns
    -------
    str

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
    """Write the first few metrics in one line.

    Counts, thresholds and errors are left out.

    Parameters
    ----------
    scores : dict of float

    Returns
    -------
    str
        At most IN_A_LINE metrics, because some tasks have one for every type of answer.
    """
    shares = []
    for name, value in scores.items():
        if is_share(name):
            shares.append(f"{metric_name(name)} {metric_number(name, value)}")
    return ", ".join(shares[:IN_A_LINE])


class Measured(NamedTuple):
    """The predictions of a model, and everything that is needed to report its metrics."""

    task: Task
    labels: Labels
    examples: Sequence[Any]
    predictions: Predictions  # one for each example
    bag_of_words: BagOfWords | None = None  # for classes of texts: trained on the same examples as the model
    tuned: Mapping[str, float] = MappingProxyType({})  # what the model chose on dev, such as thresholds

    def mistakes(self, tokenizer: Any, max_length: int) -> list[Mistake]:
        """Return every mistake, the worst first.

        Parameters
        ----------
        tokenizer : Tokenizer
        max_length : int
            How many tokens of a sequence the model reads.

        Returns
        -------
        list of Mistake
            In the first WORST, a mark shows where the model stopped reading.
        """
        mistakes = self.task.mistakes(self.examples, self.predictions)
        for index, mistake in enumerate(mistakes[:WORST]):
            example = self.examples[mistake.example]
            mistakes[index] = self.task.as_read(mistake, example, tokenizer, max_length)
        return mistakes


def report_of(
    measured: Measured, mistakes: Sequence[Mistake], scores: Mapping[str, float] | None = None
) -> Evaluation:
    """Evaluate predictions: metrics, a 95% interval, baselines and the worst mistakes, for JSON.

    A new field is declared in `contents.Evaluation`.

    Parameters
    ----------
    measured : Measured
    mistakes : sequence of Mistake
        The worst first; the first WORST are kept.
    scores : dict of float, default None
        The metrics, if they have been computed already; None: compute them.

    Returns
    -------
    dict
        The fields of `report.json` that do not depend on a run, including those of `compared_with_majority`
        and `compared_with_constant`.
    """
    task, labels, examples, predictions, *_ = measured
    statistic = task.statistic(examples, predictions)
    low, high, method = metrics.interval(statistic, len(examples), lowest_of(task.metric))
    if scores is None:
        scores = task.score(examples, predictions)
    report: Evaluation = {
        "task": task.name,
        "title": task.title,
        "metric": task.metric,
        "scores": dict(scores),
        "interval": [low, high],  # 95% interval of the main metric
        "interval_method": method,
        "examples": len(examples),
        "labels": list(labels),
        "mistakes": [mistake._asdict() for mistake in mistakes[:WORST]],
    }
    baselines = task.baselines(examples)
    if baselines:
        report["baselines"] = baselines
    return {**report, **compared_with_majority(measured), **compared_with_constant(measured)}


def compared_with_constant(measured: Measured) -> Baselines:
    """Compare predicted numbers with a constant, the mean.

    Parameters
    ----------
    measured : Measured

    Returns
    -------
    dict
        Empty for tasks that don't predict numbers. Else `constant`: the mean of the examples' numbers as
        `value`, the `scores` of predicting it for every example, and whether it `is_beaten`, that is, whether
        the model's mean squared error is smaller by a bootstrap over the examples.
    """
    task, _, examples, predictions, *_ = measured
    value = task.constant(examples)
    if value is None:
        return {}
    gold = np.array([example.label for example in examples], np.float64)
    errors = np.square(gold - [prediction["value"] for prediction in predictions])
    errors_of_mean = np.square(gold - value)
    gain, _ = metrics.bootstrap(mean_of(errors_of_mean - errors), len(examples))
    same = [{"value": value}] * len(examples)
    constant: Constant = {
        "value": value,
        "scores": dict(task.score(examples, same)),
        "is_beaten": bool(gain > 0),
    }
    return {"constant": constant}


def compared_with_majority(measured: Measured) -> Baselines:
    """Compare predicted classes of texts with the most frequent class and with a bag of words.

    Parameters
    ----------
    measured : Measured

    Returns
    -------
    dict
        Empty for tasks that don't classify texts. Else:

        - `macro_f1`: that of the model;
        - `classes`: the number of examples of each class;
        - `majority`: the most frequent `label`, with the `scores` and `macro_f1` of predicting it for every
          example; for tasks with several classes for a text, the strongest constant answer;
        - `bag_of_words`: the `scores` and `macro_f1` of naive Bayes over words, if `measured` has one;
        - `untuned`: for tasks with several classes for a text, the scores with a threshold of one half;
        - `thresholds`: for such tasks, the threshold of each class, a probability.
    """
    task, labels, examples, predictions, bag, tuned = measured
    expected: Sequence[str]
    if isinstance(task, ManyLabels):
        label, constant = task.strongest_constant(examples, predictions)
        expected = [name for example in examples for name in example.label]
        macro_f1 = task.score(examples, predictions)["macro_f1"]
        constant_macro_f1 = task.score(examples, constant)["macro_f1"]
    else:
        classes = task.classes(examples, predictions)
        if task.kind != "classify" or classes is None:
            return {}
        expected, predicted = classes
        constant = submissions.majority(examples, len(examples))
        label = constant[0]["label"]
        macro_f1 = metrics.macro_f1(expected, predicted)
        constant_macro_f1 = metrics.macro_f1(expected, len(expected) * [label])
    result: Baselines = {
        "macro_f1": macro_f1,
        "classes": {**dict.fromkeys(labels, 0), **Counter(expected)},
        "majority": {
            "label": label,
            "scores": dict(task.score(examples, constant)),
            "macro_f1": constant_macro_f1,
        },
    }
    if bag is not None:
        result["bag_of_words"] = _bag_of_words_scores(task, examples, bag)
    if isinstance(task, ManyLabels):
        result["untuned"] = task.score(examples, task.untuned(predictions))
        result["thresholds"] = task.thresholds(labels, tuned)
    return result


def _bag_of_words_scores(task: Task, examples: Sequence[Any], bag: BagOfWords) -> Baseline:
    """Return the `scores` and `macro_f1` of a bag of words."""
    predictions = bag.predictions(examples)
    scores = dict(task.score(examples, predictions))
    if "macro_f1" in scores:
        return {"scores": scores, "macro_f1": scores["macro_f1"]}
    expected, predicted = task.classes(examples, predictions) or ((), ())
    return {"scores": scores, "macro_f1": metrics.macro_f1(expected, predicted)}


def load_report(folder: Path) -> dict[str, Any] | None:
    """Read a finished run's report, and update its paths to where the run is now.

    Parameters
    ----------
    folder : Path
        Folder of the run, which may have been moved.

    Returns
    -------
    dict, or None
        None if the run is not finished.

    Raises
    ------
    InputError
        When the report is damaged.
    """
    path = folder / REPORT
    try:
        report = read_json(path, advice=ADVICE)
    except MissingFile:
        return None
    wrong = next(filter(None, _problems(report)), None)
    if wrong:
        raise InputError(f"{path} can't be read: {wrong}; {ADVICE}.")
    report["folder"] = str(folder)
    report["page"] = str(folder / Path(report["page"]).name)
    for run in report.get("runs", ()):
        run["folder"] = str(folder / Path(run["folder"]).name)
    return report


def _problems(report: dict[str, Any]) -> Iterator[str | None]:
    """Yield of each part of a report what is wrong with it; None if nothing is.

    The first problem ends the check: parts that come later rest on those before.
    """
    kinds = get_type_hints(FinetuneReport) | {"interval": tuple[float, float]}
    yield schema_error(
        report, {name: kind for name, kind in kinds.items() if name in report or name in REQUIRED}
    )
    scored: dict[str, Any] = {"scores": {report["metric"]: float}}
    yield schema_error(report, scored)
    # Baselines need the same metrics as the model.
    same_metrics = {"scores": dict.fromkeys(report["scores"], float)}
    if "constant" in report:
        yield schema_error(report["constant"], same_metrics)
    if "majority" in report:
        yield schema_error(report, {"macro_f1": float, "majority": same_metrics})
    if "bag_of_words" in report:
        yield schema_error(report, {"bag_of_words": same_metrics})
    runs = report.get("runs", [report])
    if all("failed" in run for run in runs):
        yield "'runs' has none that is finished"
    for run in runs:
        fields: dict[str, Any] = dict(RUN)
        if "failed" not in run:
            fields |= scored | {"best_epoch": float}
        fields |= {name: SETTING[name] for name in run if name in SETTING}
        yield schema_error(run, fields)


def finished_report(folder: Path) -> dict[str, Any] | None:
    """Return the report of a finished run; remove its temporary files, if any are left.

    Parameters
    ----------
    folder : Path

    Returns
    -------
    dict, or None
        See `load_report`.
    """
    report = load_report(folder)
    if report is not None:
        remove_spent(folder)
    return report


def remove_spent(folder: Path) -> None:
    """Remove files that a run needs only while it trains; warn if that fails.

    Parameters
    ----------
    folder : Path
        Folder of a finished run.
    """
    for path in (folder / name for name in SPENT):
        try:
            if path.exists():
                shutil.rmtree(path)
        except OSError as error:
            kept = f"{path} could not be removed ({error.strerror or error})"
            warn(f"{kept}; the run needs it no longer, so remove it yourself.")


def measured_text(report: Mapping[str, Any]) -> str:
    """Write the metrics on some examples for a terminal, with the interval of the main metric.

    Parameters
    ----------
    report : dict
        A result of `report_of`.

    Returns
    -------
    str
        Several lines.
    """
    return "\n".join([headline(report), *metric_lines(report)])


def headline(report: Mapping[str, Any]) -> str:
    """Say what was measured or predicted: the task, how many examples, and which part of a divided table.

    Parameters
    ----------
    report : dict
        A result of `report_of`; if its examples may be a part of a table, with its `source` and `split`.

    Returns
    -------
    str
    """
    text = f"{report['title']}, {counted(report['examples'], 'example')}"
    if "source" not in report:
        return text
    # The source of a whole file is its name; any other source ends with the split.
    split = report["split"]
    data = Path(report["source"].removesuffix(f", {split}"))
    source = data.name if str(data) == report["source"] else split
    text += f" of {printable(source)}"
    if source == split and data.is_file():
        use = "held out" if split == "dev" else "trained on"
        text += f", the part of {printable(data.name)} that was {use}"
    return text


def metric_lines(report: Mapping[str, Any]) -> list[str]:
    """Write a line for each metric, then the remarks and, for classes, how many examples each has.

    Parameters
    ----------
    report : dict
        A result of `report_of`; the interval and the name of the main metric may be missing, both together.

    Returns
    -------
    list of str
    """
    interval = report.get("interval")
    rows = []
    for name, *numbers in metric_rows(report):
        rows.append((name, *(f"{number:>7}" for number in numbers)))
    lines = []
    for line, (name, *_) in zip(aligned(rows, left=1), rows, strict=True):
        if interval and name == metric_name(report["metric"]):
            low, high = (metric_number(report["metric"], end) for end in interval)
            line += f"   {interval_name(report)}: {low} to {high}"
        lines.append(f"  {line}")
    for remark in remarks(report):
        lines.append(f"  {remark}")
    if "classes" in report:
        lines.append(f"  {_counts(report)}")
    return lines


def metric_rows(report: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the metrics of the model and of its baselines as a table.

    Parameters
    ----------
    report : dict
        A result of `report_of`.

    Returns
    -------
    list of tuple of str
        A row for each metric: its name, the model's value, and those of the baselines in the report: the
        majority, a bag of words and untuned thresholds, or the mean of numbers. With baselines, a header row
        comes first (`has_head`).
    """
    columns = {"model": report["scores"]}
    constant = report.get("constant")
    majority = report.get("majority")
    if constant is not None:
        columns[f"always {constant['value']:.6g}"] = constant["scores"]
    elif majority is not None:
        columns["model"] = _with_macro_f1(report)
        columns[f"always {majority['label']!r}"] = _with_macro_f1(majority)
        if bag := report.get("bag_of_words"):
            columns["bag of words"] = _with_macro_f1(bag)
        if untuned := report.get("untuned"):
            columns["threshold 0.5"] = untuned
    rows: list[tuple[str, ...]] = []
    if len(columns) > 1:
        rows.append(("", *columns))
    for name in columns["model"]:
        numbers = [metric_number(name, scores[name]) for scores in columns.values()]
        rows.append((metric_name(name), *numbers))
    return rows


def _with_macro_f1(part: Mapping[str, Any]) -> dict[str, float]:
    """Return the scores of a report, or of a baseline in it, including the macro F1."""
    scores: dict[str, float] = part["scores"] | {"macro_f1": part["macro_f1"]}
    return scores


def interval_name(report: Mapping[str, Any]) -> str:
    """Describe how the interval of a report was computed.

    Parameters
    ----------
    report : dict
        A result of `report_of`.

    Returns
    -------
    str
    """
    method = report.get("interval_method")
    if method == WILSON:
        return "95% interval (Wilson)"
    if method == ALIKE:
        return f"95% interval (Wilson's width for {counted(report['examples'], 'example')} all alike)"
    return "95% of bootstrap samples"


def has_head(report: Mapping[str, Any]) -> bool:
    """Return whether the first of `metric_rows` is a header.

    Parameters
    ----------
    report : dict
        A result of `report_of`.

    Returns
    -------
    bool
    """
    return "majority" in report or "constant" in report


def remarks(report: Mapping[str, Any]) -> list[str]:
    """Write sentences about the metrics: whether a simple baseline is as good, and what baselines score.

    Parameters
    ----------
    report : dict
        A result of `report_of`.

    Returns
    -------
    list of str
    """
    notes = [trivial_remark(report), bag_of_words_remark(report), thresholds_remark(report)]
    for name, scores in report.get("baselines", {}).items():
        notes.append(f"{name}: {metrics_text(scores)}.")
    return [note for note in notes if note]


def trivial_remark(report: Mapping[str, Any]) -> str:
    """Write a sentence if a model is not significantly better than a constant answer.

    That is, for classes, if its interval includes or lies below the majority's metric; for numbers, if its
    squared errors are not smaller than those of the mean (`compared_with_constant`).

    Parameters
    ----------
    report : dict
        A result of `report_of`.

    Returns
    -------
    str
        A sentence, or "".
    """
    constant = report.get("constant")
    if constant is not None:
        if constant["is_beaten"]:
            return ""
        answer = f"the mean of these examples, {constant['value']:.6g}"
    else:
        majority = report.get("majority")
        interval = report.get("interval")
        if majority is None or interval is None or majority["scores"][report["metric"]] < interval[0]:
            return ""
        answer = repr(majority["label"])
    return f"Not better than always answering {answer}, as far as these examples show."


def thresholds_remark(report: Mapping[str, Any]) -> str:
    """Write from which probabilities on the classes were predicted, where several may apply.

    Parameters
    ----------
    report : dict
        A result of `report_of`, or of `predict`.

    Returns
    -------
    str
        A sentence with at most CLASSES_IN_A_LINE classes, or "".
    """
    thresholds = report.get("thresholds", {})
    names = list(thresholds)
    parts = [f"{name!r} from {thresholds[name]:.3f}" for name in names[:CLASSES_IN_A_LINE]]
    if rest := len(names) - len(parts):
        parts.append(f"and {rest:,} more {'class' if rest == 1 else 'classes'}")
    return f"Thresholds of the probabilities: {', '.join(parts)}." if parts else ""


def bag_of_words_remark(report: Mapping[str, Any]) -> str:
    """Write a sentence if a bag of words lies within the model's interval, or above it.

    Parameters
    ----------
    report : dict
        A result of `report_of`.

    Returns
    -------
    str
        A sentence, or "".
    """
    bag = report.get("bag_of_words")
    interval = report.get("interval")
    if bag is None or interval is None:
        return ""
    score = bag["scores"][report["metric"]]
    low, high = interval
    if score < low:
        return ""
    if score > high:
        return "A bag of words (naive Bayes) is better: is BERT worth it here?"
    return (
        "Not better than a bag of words (naive Bayes), as far as these examples show: is BERT worth it here?"
    )


def _counts(report: Mapping[str, Any]) -> str:
    """Write how many examples each of the most frequent classes has, and had in training."""
    measured = report["classes"]
    trained = report.get("train_classes")
    names = sorted(measured, key=lambda name: -measured[name])
    counts = []
    for name in names[:CLASSES_IN_A_LINE]:
        count = f"{name!r} {measured[name]:,}"
        if trained is not None:
            count += f" ({trained.get(name, 0):,})"
        counts.append(count)
    what = "examples measured"
    if trained is not None:
        what += " (and learnt from)"
    text = f"{what}: {', '.join(counts)}"
    rest = len(names) - len(counts)
    if rest:
        text += f", and {rest:,} more {'class' if rest == 1 else 'classes'}"
    return text


def report_text(report: Mapping[str, Any]) -> str:
    """Write the report of a run, or of a sweep, for a person.

    Parameters
    ----------
    report : dict
        A result of `load_report`.

    Returns
    -------
    str
        Several lines for a terminal.
    """
    counts = length_text(report)
    if report["training_seconds"]:  # a very short training is rounded to 0.0
        speed = report["tokens"] / report["training_seconds"]
        counts += f", {speed:,.0f} tokens/s"
    setting = ", ".join(f"{metric_name(name)} {report[name]:.12g}" for name in SETTING if name in report)
    lines = [
        measured_text(report),
        f"The best epoch on dev was {report['best_epoch']:g}; {setting}, seed {report['seed']}.",
        *trained_together(report),
        f"{counts}; {duration(report['seconds'])} for this command.",
    ]
    if "runs" in report:
        lines += ["", sweep_text(report), ""]
    lines.append(f"Run folder: {report['folder']}")
    lines.append(f"Report: {report['page']}")
    return "\n".join(lines)


def length_text(report: Mapping[str, Any]) -> str:
    """Write how many steps a run took, and how many tokens it read.

    Parameters
    ----------
    report : dict
        A report with `steps` and `tokens`.

    Returns
    -------
    str
    """
    return f"{counted(report['steps'], 'step')}, {counted(report['tokens'], 'token')}"


def learnt_text(tasks: Mapping[str, int], what: str = "example") -> str:
    """Write how many training examples there are and, with several tasks, how many of each.

    Parameters
    ----------
    tasks : dict of int
        Name of a task -> number of examples.
    what : str, default "example"
        The noun to use, in the singular.

    Returns
    -------
    str
    """
    text = counted(sum(tasks.values()), f"training {what}")
    if len(tasks) > 1:
        each = ", ".join(f"{count:,} of {name}" for name, count in tasks.items())
        text += f" ({each})"
    return text


def trained_together(report: Mapping[str, Any]) -> list[str]:
    """Write how many examples each task had, if a run was trained on several tasks together.

    Parameters
    ----------
    report : dict
        A report, with `train_tasks` if there were several.

    Returns
    -------
    list of str
        One sentence, or none.
    """
    tasks = report.get("train_tasks", {})
    if len(tasks) > 1:
        return [f"{learnt_text(tasks)}."]
    return []


def settings(runs: Sequence[Mapping[str, Any]], metric: str) -> list[dict[str, Any]]:
    """Return the mean and the standard deviation of a metric for each setting of a sweep.

    Parameters
    ----------
    runs : sequence of dict
        `runs` of a report; those that failed are left out.
    metric : str
        Name of the metric.

    Returns
    -------
    list of dict
        For each setting: the fields of SETTING that the runs have, the number of its `runs`, and the `mean`
        and `sd` of the metric; a single run has no `sd`.
    """
    scores_of: dict[Any, list[float]] = {}
    for run in runs:
        if "failed" not in run:
            setting = tuple((name, run[name]) for name in SETTING if name in run)
            scores_of.setdefault(setting, []).append(run["scores"][metric])
    result = []
    for setting, scores in scores_of.items():
        row = {**dict(setting), "runs": len(scores), "mean": statistics.mean(scores)}
        if len(scores) > 1:
            row["sd"] = statistics.stdev(scores)
        result.append(row)
    return result


def sweep_text(report: Mapping[str, Any]) -> str:
    """Write the runs of a sweep and, if settings have several runs, their means and standard deviations.

    Parameters
    ----------
    report : dict
        Report of a sweep, with `runs`.

    Returns
    -------
    str
        One or two tables.
    """
    metric, runs = report["metric"], report["runs"]
    means = settings(runs, metric)
    rows: list[Sequence[str]] = []
    for row in means:
        mean = metric_number(metric, row["mean"])
        if "sd" in row:
            mean += f" +- {metric_number(metric, row['sd'])}"
        rows.append([*_setting(row).values(), f"{row['runs']}", mean])
    text = sweep_table(runs, metric)
    if len(rows) < len(runs):
        head = [*_setting(means[0]), "runs", f"{metric}, mean +- s.d."]
        text += "\n\n" + "\n".join(aligned([head, *rows]))
    return text


def _setting(run: Mapping[str, Any]) -> dict[str, str]:
    """Return the setting of a run as text: title of a column -> value."""
    return {metric_name(name): f"{run[name]:.12g}" for name in SETTING if name in run}


def sweep_table(runs: Sequence[Mapping[str, Any]], metric: str) -> str:
    """Write a line for each run of a sweep; a star marks the best run, a dash the values a failed run lacks.

    Parameters
    ----------
    runs : sequence of dict
        `runs` of a report; at least one of them has not failed.
    metric : str
        The metric to choose the best run by; of equally good runs, the first is taken.

    Returns
    -------
    str
    """
    finished = [run for run in runs if "failed" not in run]
    best = max(finished, key=lambda run: run["scores"][metric])
    rows = [[*_setting(best), "seed", metric, "best epoch", "folder"]]
    for run in runs:
        if "failed" in run:
            score, epoch = "failed", "-"
        else:
            score = metric_number(metric, run["scores"][metric])
            epoch = f"{run['best_epoch']:g}"
        if run is best:
            score += " *"
        name = Path(run["folder"]).name
        rows.append([*_setting(run).values(), str(run["seed"]), score, epoch, name])
    return "\n".join(aligned(rows))
