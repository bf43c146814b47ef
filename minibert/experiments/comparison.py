"""Compare runs: their curves, the options that differ, and the differences of their final metrics."""

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

from minibert.api.runs import Run
from minibert.base.errors import InputError
from minibert.base.files import atomic_text, page_path, require_intact
from minibert.base.foreign_names import explains_foreign_attributes
from minibert.base.options import PRETRAINING_FILE
from minibert.base.paths import path_of
from minibert.base.terminal import aligned, counted, printable
from minibert.experiments.run_names import short_names
from minibert.finetuning.examples import EvaluationData
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.running import DEV_PREDICTIONS, stored_predictions
from minibert.pretraining.options import PretrainOptions
from minibert.reports.held_out import METRICS as HELD_OUT_METRICS
from minibert.reports.markup import framed, rendered, shown
from minibert.reports.page import loss_unit, option_rows
from minibert.reports.pictures import AXES, Curve, Style, picture, points
from minibert.reports.results import REPORT, is_share, metric_name, metric_number
from minibert.tasks import metrics, registry
from minibert.tasks.metrics.intervals import ALIKE, Statistic, lowest_of
from minibert.tasks.stored import OPTIONS_FILE
from minibert.tasks.task import Task
from minibert.training.runlog import METRICS, read_metrics

LETTERS = "ABCDEFGH"  # one for each run; a plot of more could not be read
WIDTH = 80  # columns of a terminal
SAME = 1e-9  # how much a metric may differ when it is computed again
HELD_OUT = {"loss": "loss", "floor": "unigram", "perplexity": "perplexity", "accuracy": "accuracy"}
HELD_OUT_FORMS = {metric.name: metric.form for metric in HELD_OUT_METRICS}
LENGTH_FORMS = {"steps": ",.0f", "tokens": ",.0f", "minutes": ",.1f"}
FORMS = LENGTH_FORMS | {title: HELD_OUT_FORMS[name] for title, name in HELD_OUT.items()}
OTHER_TARGETS = (
    "No interval, as held-out targets differ: compare each loss with its own floor, their unigram entropy."
)
NO_LOSSES = (
    "No interval of held-out losses, as a run keeps only their mean, not that of each document; runs with "
    "several seeds tell how far they spread."
)
ABOUT_LOSSES = (
    "The loss is in nats and the accuracy in percent, both on all held-out targets. The floor is the unigram "
    "entropy of these targets: the loss of the best guess without context."
)
SMOOTHED = "Training losses are smoothed over a twentieth of each run."
ABOUT_STAGES = (
    "A gap is where a stage with longer sequences begins. During training, held-out losses may be measured "
    "on fewer targets than at the end."
)


@dataclass(frozen=True)
class ComparedRun:
    """A run, finished or still training."""

    letter: str
    folder: Path
    options: PretrainOptions | FinetuneOptions
    lines: Sequence[dict[str, float]]  # the lines of metrics.jsonl
    report: Mapping[str, Any] | None  # None for a run that is not finished

    @property
    def kind(self) -> str:
        """Return the kind of the run; only runs of the same kind can be compared."""
        if isinstance(self.options, FinetuneOptions):
            return f"fine-tuning for {self.options.task}"
        return "pre-training"

    # -> (n,2)
    def points(self, name: str, by: str) -> np.ndarray:
        """Return the values recorded under a name, over steps, tokens or minutes.

        Parameters
        ----------
        name : str
            Name of a metric in `metrics.jsonl`.
        by : str
            "step", "tokens" or "minutes"; the latter two are interpolated between the steps at which they
            were recorded.

        Returns
        -------
        (n,2)
            Positions and values; n is 0 if nothing was recorded.
        """
        values = points(self.lines, name)
        positions = self._positions(values[:, 0], by)
        return np.stack([positions, values[: len(positions), 1]], 1)

    def breaks(self, by: str) -> list[float]:
        """Return where the stages of a finished pre-training begin, each with longer sequences.

        Parameters
        ----------
        by : str
            "step", "tokens" or "minutes".

        Returns
        -------
        list of float
            Positions on the axis; empty if there is one stage.
        """
        stages = (self.report or {}).get("stages", [])
        begins = np.array([begin for begin, _ in stages[1:]], float)
        return self._positions(begins, by).tolist()

    # steps (n,) -> (n,), or (0,) where nothing is recorded
    def _positions(self, steps: np.ndarray, by: str) -> np.ndarray:
        """Return where steps stand on the horizontal axis."""
        if by == "step":
            return steps
        progress = points(self.lines, "tokens" if by == "tokens" else "seconds")
        if not len(progress):
            return steps[:0]
        unit = 1 if by == "tokens" else 60
        return np.interp(steps, *progress.T) / unit

    def length(self) -> dict[str, float | None]:
        """Return steps, tokens and minutes; for a run that is still training, those recorded so far."""
        if self.report:
            steps, tokens = self.report["steps"], self.report["tokens"]
            seconds = self.report["training_seconds"]
        else:
            recorded = (line for line in reversed(self.lines) if {"tokens", "seconds"} <= line.keys())
            last: Mapping[str, Any] = next(recorded, {})
            steps, tokens = last.get("step"), last.get("tokens")
            seconds = last.get("seconds")
        minutes = None
        if seconds is not None:
            minutes = round(seconds / 60, 2)
        return {"steps": steps, "tokens": tokens, "minutes": minutes}


def compare(runs: Sequence[str | Path | Run[Any]], by: str = "step") -> "Comparison":
    """Compare runs side by side: either pre-trainings, or fine-tunings for the same task.

    Parameters
    ----------
    runs : sequence of Run or path
        Two to eight runs or their folders; they may still be training.
    by : str, default "step"
        What the curves are drawn over: "step", "tokens" or "minutes".

    Returns
    -------
    Comparison
        A notebook shows it as a page, `print` as tables; `to_json` has the numbers, `write` makes a page.

    Raises
    ------
    InputError
        When a folder contains no run, a damaged one or a sweep, or is named twice, runs are of different
        kinds, there are too few or too many of them, or `by` is unknown.
    """
    if isinstance(runs, str | Path | Run):
        given = str(Path(runs))
        second = "..." if by in AXES else repr(by)
        raise InputError(f"runs={given!r} is one run; give a list, compare([{given!r}, {second}]).")
    if by not in AXES:
        raise InputError(f"{by=} is unknown; choose one of {', '.join(AXES)}.", by=by)
    paths = [path_of(run, "run") for run in runs]
    if not 2 <= len(paths) <= len(LETTERS):
        raise InputError(f"{counted(len(paths), 'run')} can't be compared; name 2 to {len(LETTERS)}.")
    if len({path.resolve() for path in paths}) < len(paths):
        raise InputError("A run is named twice; name different ones.")
    compared = [read_run(path, letter) for letter, path in zip(LETTERS, paths, strict=False)]
    first, *others = compared
    for other in others:
        if first.kind != other.kind:
            what = f"'{first.folder}' is a {first.kind} and '{other.folder}' a {other.kind}"
            raise InputError(f"{what}, whose metrics can't be compared; name runs of one kind and task.")
    return Comparison(compared, by)


def read_run(folder: Path, letter: str = LETTERS[0]) -> ComparedRun:
    """Read one run, finished or not.

    Parameters
    ----------
    folder : Path
        Folder of the run.
    letter : str, default "A"
        What tables and curves call it.

    Returns
    -------
    ComparedRun

    Raises
    ------
    InputError
        When the folder contains no run, a damaged one, one without steps, or a whole sweep.
    """
    if not folder.is_dir():
        raise InputError(f"'{folder}' is not a folder; name that of a run.", runs=str(folder))
    kinds: dict[str, Any] = {PRETRAINING_FILE: PretrainOptions, OPTIONS_FILE: FinetuneOptions}
    name = next((name for name in kinds if (folder / name).exists()), None)
    if name is None:
        advice = "name a folder that minibert pretrain or finetune has written."
        what = f"'{folder}' holds no run (neither {' nor '.join(kinds)} is there)"
        raise InputError(f"{what}; {advice}", runs=str(folder))
    options = kinds[name].load(folder / name)
    if name == OPTIONS_FILE:
        runs = options.resolved().runs()
        if len(runs) > 1:
            advice = f"name some of these, such as {folder / next(iter(runs))}."
            raise InputError(f"'{folder}' holds a sweep of {len(runs)} runs; {advice}", runs=str(folder))
    report = None
    if (folder / REPORT).exists():
        report = Run.open(folder).report
    elif not (folder / METRICS).exists():
        what = f"The run in '{folder}' has no steps yet ({METRICS} is missing)"
        raise InputError(f"{what}; wait until it trains, or resume it.", runs=str(folder))
    return ComparedRun(letter, folder, options, read_metrics(folder), report)


def _task_of(run: ComparedRun) -> Task | None:
    """Return the task of a fine-tuning; None for a pre-training."""
    options = run.options
    if isinstance(options, PretrainOptions):
        return None
    return registry.create(options.task, dict(options.columns))


@explains_foreign_attributes
@dataclass(frozen=True)
class Comparison:
    """The result of `compare`: `to_json`, `text` for a terminal and `write` for a browser.

    Attributes
    ----------
    runs : sequence of ComparedRun
        The runs, each with the letter that it has in tables and pictures.
    by : str
        What curves are drawn over, such as "step".
    """

    runs: Sequence[ComparedRun]
    by: str

    @cached_property
    def task(self) -> Task | None:
        """The task of fine-tunings; None for pre-trainings."""
        return _task_of(self.runs[0])

    @cached_property
    def options(self) -> dict[str, list[Any]]:
        """Options that differ, each with its value in every run."""
        options_of_runs = [dataclasses.asdict(run.options) for run in self.runs]
        names = dict.fromkeys(name for options in options_of_runs for name in options)
        differing = {}
        for name in names:
            first, *others = [options.get(name) for options in options_of_runs]
            if any(other != first for other in others):
                differing[name] = [first, *others]
        return differing

    @cached_property
    def labels(self) -> list[str]:
        """The letter and a short name of each run, which says what tells it apart, such as "A seed 0"."""
        options = {}
        for name, values in self._option_rows():
            options[name] = ["not given" if value is None else shown(value) for _, value in values]
        names = short_names([run.folder for run in self.runs], options)
        return [f"{run.letter} {name}" for run, name in zip(self.runs, names, strict=True)]

    @cached_property
    def figures(self) -> dict[str, dict[str, float | None]]:
        """Final metrics of each run by its letter, None where it has none, and how long it was trained."""
        return {run.letter: self._measured(run) | run.length() for run in self.runs}

    def _measured(self, run: ComparedRun) -> dict[str, float | None]:
        """Return the final metrics of a run, each None where it has none."""
        report = run.report or {}
        if self.task is None:
            held_out = report.get("held_out") or {}  # null if nothing was measured
            return {title: held_out.get(name) for title, name in HELD_OUT.items()}
        metric = self.task.metric
        scores = report.get("scores", {})
        low, high = report.get("interval", (None, None))
        return {metric: scores.get(metric), "low": low, "high": high}

    @cached_property
    def paired(self) -> tuple[list[dict[str, Any]], list[str]]:
        """Differences from the first run with their paired bootstrap intervals, and notes on missing ones."""
        if self.task is None:
            floors = {figures["floor"] for figures in self.figures.values()} - {None}
            return [], [NO_LOSSES if len(floors) <= 1 else OTHER_TARGETS]
        statistics = {}
        notes = []
        for run in self.runs:
            try:
                statistics[run.letter] = self._statistic(run)
            except InputError as error:
                notes.append(f"No interval with {run.letter}: {error}")
        first = self.runs[0].letter
        if first not in statistics:
            return [], notes  # there is nothing to compare the others with
        examples_of_first, metric_of_first = statistics.pop(first)
        differences = []
        for second, (examples, metric_of_second) in statistics.items():
            if examples != examples_of_first:
                notes.append(f"No interval of {second} - {first}: they were measured on different examples.")
                continue
            n = len(examples)
            every = np.arange(n)
            low, high, method = metrics.paired_interval(
                metric_of_second, metric_of_first, n, lowest_of(self.task.metric)
            )
            differences.append(
                {
                    "runs": [second, first],
                    "difference": metric_of_second(every) - metric_of_first(every),
                    "examples": n,
                    "interval": [low, high],
                    "interval_method": method,
                }
            )
        return differences, notes

    @staticmethod
    def _statistic(run: ComparedRun) -> tuple[list[Any], Statistic]:
        """Return the dev examples of a finished run, and its metric as a function of their indices."""
        task = _task_of(run)  # with the columns of its own table
        assert task is not None
        if run.report is None:
            raise InputError("it is not finished.")
        data = getattr(run.options, "data", "")
        if not os.path.exists(data):  # False as well of a name that is too long
            raise InputError(f"The data that it was fine-tuned on, '{data}', are not there.")
        checksum = run.report.get("crc32", {}).get(DEV_PREDICTIONS, -1)  # -1: no file has this checksum
        require_intact(run.folder, {DEV_PREDICTIONS: checksum}, "put a copy of it back, if there is one.")
        examples = EvaluationData(task, run.folder, None, "dev").read(same_task=True)
        predictions = stored_predictions(run.folder, len(examples))
        now = task.score(examples, predictions)[task.metric]
        then = run.report["scores"].get(task.metric, math.nan)
        if not abs(now - then) <= SAME:
            raise InputError(f"the data of '{run.folder}' are no longer those that it was measured on.")
        return examples, task.statistic(examples, predictions)

    def to_json(self) -> dict[str, Any]:
        """Return everything except the curves, for JSON.

        Returns
        -------
        dict
        """
        differences, notes = self.paired
        runs = []
        for run in self.runs:
            identity = {"run": run.letter, "folder": str(run.folder)}
            runs.append(identity | self.figures[run.letter])
        return {
            "runs": runs,
            "options": self.options,
            "differences": differences,
            "notes": notes,
        }

    def _rows(self) -> list[list[str]]:
        """Return the final metrics as text: a header row, and a row for each run."""
        head = ["", *map(metric_name, self.figures[LETTERS[0]])]
        rows = [head]
        for letter, figures in self.figures.items():
            row = [letter]
            for name, value in figures.items():
                row.append("-" if value is None else self._number(value, name))
            rows.append(row)
        return rows

    def _option_rows(self) -> list[tuple[str, list[tuple[str, Any]]]]:
        """Return each option that differs, with the letter and the value of every run."""
        letters = [run.letter for run in self.runs]
        rows = []
        for name, values in self.options.items():
            by_letter = dict(zip(letters, values, strict=True))
            rows.append((name, option_rows(by_letter)))
        return rows

    def _number(self, value: float, name: str = "") -> str:
        """Format a figure by its name; without a name, as a value of the task's metric."""
        if self.task and name not in LENGTH_FORMS:
            return metric_number(self.task.metric, value)
        return f"{value:{FORMS[name]}}"

    def _sentences(self) -> list[str]:
        """Write a sentence for each difference with its interval, and the notes on missing ones."""
        differences, notes = self.paired
        sentences = []
        for paired in differences:
            low, high = paired["interval"]
            names = " - ".join(paired["runs"])
            difference = self._number(paired["difference"])
            ends = f"from {self._number(low)} to {self._number(high)}"
            examples = counted(paired["examples"], "example")
            samples = f"95% of paired bootstrap samples of {examples}"
            if paired["interval_method"] == ALIKE:
                samples = f"95% interval (Wilson's width for {examples} all alike)"
            conclusion = "not told apart by these examples"
            if low > 0 or high < 0:
                conclusion = "another seed might reverse it"
            sentences.append(f"{names}: {difference}, {samples} {ends}; {conclusion}.")
        return sentences + notes

    def text(self) -> str:
        """Format it for a terminal, within 80 columns.

        Returns
        -------
        str
        """
        lines = []
        for run in self.runs:
            name = printable(str(run.folder))
            if len(name) > WIDTH - 3:
                name = "…" + name[4 - WIDTH :]
            lines.append(f"{run.letter}  {name}")
        lines += ["", *aligned(self._rows(), left=0)]
        folded = partial(wrap, width=WIDTH, subsequent_indent="    ", break_on_hyphens=False)
        sentences = self._sentences()
        if sentences:
            lines.append("")
        for sentence in sentences:
            lines += folded(printable(sentence))
        lines.append("")
        lines.append("Options that differ:" if self.options else "The options are the same.")
        for name, values in self._option_rows():
            each = ", ".join(f"{letter} {shown(value)}" for letter, value in values)
            lines += folded(printable(f"  {name}: {each}"))
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        """Show the page in a frame."""
        return framed(self._page(), f"Comparison of {len(self.runs)} runs")

    def write(self, path: str | Path) -> Path:
        """Write it as a page with the curves, which any browser shows.

        Parameters
        ----------
        path : path
            A name that ends in .html.

        Returns
        -------
        Path
            The path that was written.

        Raises
        ------
        InputError
            When the name ends otherwise, or its folder can't be written to.
        """
        path = page_path(path)
        atomic_text(path, self._page())
        return path

    def _about(self) -> tuple[str, str]:
        """Say what the columns of the final metrics are, and how the curves are drawn."""
        if self.task is None:
            return ABOUT_LOSSES, f"{SMOOTHED} {ABOUT_STAGES}"
        metric = metric_name(self.task.metric)
        unit = ", in percent" if is_share(self.task.metric) else ""
        return f"Low and high are the ends of the 95% interval of {metric}{unit}.", SMOOTHED

    def _page(self) -> str:
        """Return the page as HTML."""
        head, *rows = self._rows()
        about_metrics, about_curves = self._about()
        return rendered(
            "comparison.html.j2",
            title=f"Comparison of {len(self.runs)} runs",
            runs=[(f"run{index}", run, self.labels[index]) for index, run in enumerate(self.runs)],
            what=self.task.title if self.task else "pre-training",
            pictures=self._pictures(),
            head=head,
            rows=rows,
            about_metrics=about_metrics,
            about_curves=about_curves,
            differences=self._sentences(),
            options=[(name, *(value for _, value in values)) for name, values in self._option_rows()],
        )

    def _pictures(self) -> list[dict[str, Any] | None]:
        """Draw the training loss, and below it what was measured during training."""

        def drawn(
            title: str,
            name: str,
            style: Style,
            words: Any = "{:.3f}".format,
            scale: float = 1.0,
            unit: str = "",
        ) -> Any:
            curves = []
            for index, run in enumerate(self.runs):
                points = run.points(name, self.by)
                breaks = run.breaks(self.by)
                curves.append(Curve(f"run{index}", points, self.labels[index], style, breaks))
            return picture(title, curves, words, axis=self.by, scale=scale, unit=unit)

        if self.task is None:
            losses = drawn("training loss", "mlm_loss", "smoothed", unit="nats")
            return [losses, drawn("held-out loss", "held_out_loss", "dots", unit="nats")]
        metric = self.task.metric
        scale, unit = (100.0, "%") if is_share(metric) else (1.0, "")
        of_dev = drawn(f"{metric_name(metric)} on dev", f"dev_{metric}", "dots", self._number, scale, unit)
        return [drawn("training loss", "loss", "smoothed", shown, unit=loss_unit(self.task.kind)), of_dev]
