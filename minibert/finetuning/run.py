"""Fine-tuning: from a model and a task's files to a folder that answers (Devlin et al. 2019, section 4).

    finetune   one run, or a sweep over learning rates and restarts whose best run on dev is kept
    evaluate   the official metrics of a fine-tuned model, with a confidence interval
    predict    the task's official files; several models are averaged
    classify   a model's answers for texts or pairs of texts

The folder of a run is described in `finetuning/running.py`. That of a sweep holds such a folder for each run,
and the files of the best run.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from reprlib import repr as short
from typing import Any, TypeAlias

from minibert import engines, hub
from minibert.base.errors import InputError
from minibert.base.files import RUN_FILES, require_folder, require_inside, sole_writer, write_atomically
from minibert.base.machine import cores
from minibert.base.model_names import CONFIG_FILE
from minibert.base.options import STORED, other_command
from minibert.base.paths import path_of
from minibert.base.reading import PACKED
from minibert.base.texts import refuse_empty
from minibert.data.glue import TextExample
from minibert.data.tables import MissingColumn
from minibert.finetuning.examples import (
    ANSWERS,
    EvaluationData,
    Rows,
    trained_texts,
    warn_of_trained_texts,
)
from minibert.finetuning.feature_based import FeatureBasedRun
from minibert.finetuning.models import Finetuned, open_model
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.predicting import averaged_tuned, check_ensemble, predict_examples
from minibert.finetuning.preparation import bag_of_words_in
from minibert.finetuning.running import Run, run_once
from minibert.finetuning.sweep import sweep
from minibert.finetuning.whole_model import WholeRun
from minibert.model.ops import Ops
from minibert.reports import results
from minibert.reports.contents import Evaluation, Prediction, Truncated
from minibert.reports.results import Measured
from minibert.tasks import registry, submissions
from minibert.tasks.multilabel import ManyLabels
from minibert.tasks.stored import OPTIONS_FILE
from minibert.tasks.task import Task, TrainedModel
from minibert.tasks.truncation import Truncation, warn_of_truncation
from minibert.training.runlog import OnLog, info_if

BY_MODEL = ("optimizer", "learning_rates", "dropout")  # options that the model's configuration answers
FILE_SUFFIXES = (".csv", ".json", ".jsonl", ".tsv", ".txt", ".zip")  # of what people take for a file
Folders: TypeAlias = str | Path | Sequence[str | Path]  # the folder of a model, or of several to average


def finetune(
    options: FinetuneOptions,
    out: str | Path,
    *,
    resume: bool = False,
    show: bool = True,
    began: float | None = None,
    ops: Ops | None = None,
    on_log: OnLog | None = None,
    rows: Rows | None = None,
) -> dict[str, Any]:
    """Fine-tune a model for a task and leave a finished folder.

    Parameters
    ----------
    options : FinetuneOptions
        What to do; the recipe of the task replaces every `None`.
    out : str or Path
        Folder of the run, or of the sweep.
    resume : bool, default False
        Go on exactly from the folder's last checkpoint; in a sweep, skip finished runs. The options have to
        agree with those that are stored in the folder.
    show : bool, default True
        Log how it goes, and show progress bars on the error stream.
    began : float, optional
        `time.monotonic()` when the command began; by default now.
    ops : Ops, optional
        A custom engine to use instead of the one that the options name. It computes in their `dtype`.
    on_log : callable, optional
        Called with the number of each step and its values, by names such as "train/loss".
    rows : Rows, optional
        The examples in memory, equal to those in the files that `options.data` names, which are then not
        read.

    Returns
    -------
    dict
        The contents of `report.json`; `reports.results.report_text` makes them readable.

    Raises
    ------
    InputError
        When options, data, model or folder can't be used, before anything is written; when a finished run of
        a sweep was altered.
    RunError
        When the loss is not a number (in a sweep, that of every run), or the disk is full.
    KeyboardInterrupt
        After Ctrl-C. Finished work is kept, and `resume` goes on from there.
    """
    out = path_of(out, "out")
    began = time.monotonic() if began is None else began
    options = resolved(options, out / OPTIONS_FILE if resume else None)
    run_class = FeatureBasedRun if options.feature_based else WholeRun
    runs = options.runs()
    with sole_writer(out):
        places = [out]
        if len(runs) > 1:
            places += [out / name for name in runs]
        for place in places:
            require_inside(place)
        if resume:
            options.require_same_run(FinetuneOptions.load(out / OPTIONS_FILE))
            report = results.finished_report(out)
            if report is not None:
                return report
        else:
            _require_unused(out, places)
        ops, engine = engines.choose_for(options, ops)
        engines.keep_freed_memory()
        with engines.limited_threads(options.threads, ops):
            prepared = run_class.prepare(options, ops, out, show, rows)  # once for all runs of a sweep
            peak = None
            if run_class is WholeRun:  # the operations of LSTMs are not counted
                peak = engines.peak(options.threads or cores(), options.dtype, ops=ops)
            info_if(show)(f"Engine {engine}.")

            def run(run_options: FinetuneOptions, folder: Path) -> Run:
                return run_class(run_options, prepared, ops, folder, peak, show, on_log)

            if len(runs) == 1:
                return run_once(run(options, out), began)[0]
            return sweep(options, run, out, show, began)


def _require_unused(out: Path, places: Sequence[Path]) -> None:
    """Raise InputError when a new run would overwrite another run, or other files."""
    if (out / OPTIONS_FILE).exists():
        advice = "resume it with resume=True, or choose another `out`."
        raise InputError(f"'{out}' already holds a run; {advice}")
    if command := other_command(out / OPTIONS_FILE):
        raise InputError(f"'{out}' holds a run of minibert {command}; choose another `out`.")
    for place in places:
        present = [name for name in RUN_FILES if (place / name).exists()]
        if present:
            raise InputError(
                f"'{place}' holds {', '.join(present)} of something that is not a run; choose another `out`."
            )


def resolved(options: FinetuneOptions, stored: Path | None = None) -> FinetuneOptions:
    """Fill in what options leave open: from the recipe of the task, the model's shape, and the machine.

    Parameters
    ----------
    options : FinetuneOptions
        The options.
    stored : Path or None, default None
        The options of a run to resume; its optimizer, learning rates and dropout are kept.

    Returns
    -------
    FinetuneOptions
        With nothing left open, as a run stores them.
    """
    if stored is not None and stored.exists():
        before = FinetuneOptions.load(stored)
        options = options.with_defaults(
            {name: getattr(before, name) for name in (*BY_MODEL, "attention_dropout")}
        )
    model = None
    if any(getattr(options, name) is None for name in BY_MODEL):
        model = hub.stored_config(options.model)
    return engines.resolve_auto(options.resolved(model))


class _EvaluationRequest:
    """The models to average, and the examples to ask them about, for `evaluate` and `predict`."""

    def __init__(
        self,
        folders: Folders,
        data: str | Path | None,
        split: str,
        task: str | None,
        columns: Mapping[str, str] | None,
        needs_labels: bool,
        **computing: Any,
    ) -> None:
        listed = [folders] if isinstance(folders, str | Path) else folders
        data = None if data is None else path_of(data, "data")
        other_task = None if task is None else registry.create(task)
        self.models = [open_model(folder, task=other_task, **computing) for folder in listed]
        check_ensemble(self.models)
        self.folders = [str(folder) for folder in listed]
        self.split = split
        self.first = first = self.models[0]
        self.cuts = Truncation(first.max_length, long=first.task.long)
        self.reader = first.task
        if columns:
            self.reader = _with_columns(first, data, columns)
        self._data = data
        self._same_task = task is None
        evaluation_data = EvaluationData(self.reader, first.folder, data, split)
        self.source = evaluation_data.source
        try:
            self.examples = evaluation_data.read(self._same_task)
        except MissingColumn as error:
            if needs_labels or error.role not in ANSWERS or error.role in (columns or {}):
                raise
            self.source = str(error.path)  # all of it, whatever the run has held out
            self.examples = self.reader.read(error.path, "test")  # a test file may lack the column
        first.task.warn_unknown(self.examples, first.labels)
        self.all_labelled = all(map(first.task.is_labelled, self.examples))
        if self.all_labelled and split != "train":
            warn_of_trained_texts(self.examples, trained_texts(*(model.folder for model in self.models)))

    @property
    def part(self) -> str:
        """Name the examples for the files of their predictions: by their file if it is a whole table."""
        source = Path(self.source)
        if self.first.task.name in registry.CUSTOM_TABLES and source.is_file():
            return Path(source.stem).stem if source.suffix.lower() in PACKED else source.stem
        return self.split

    def predictions(self, show: bool) -> Iterator[Any]:
        """Yield the prediction for each example."""
        return predict_examples(self.models, self.examples, show=show, source=self.source, cuts=self.cuts)

    def majority(self) -> Sequence[Any]:
        """Return for each example the most frequent class of the training examples."""
        first, data = self.first, self._data
        if first.head.kind != "classify":
            problem = f"majority=True is for one class of each text, which {first.task.name} does not predict"
            raise InputError(f"{problem}; leave it out.", majority=True)
        reader = self.reader
        if data is None or data.is_file():  # a single file has no train split
            reader, data = first.task, None
        train = EvaluationData(reader, first.folder, data, "train").read(self._same_task)
        return submissions.majority(train, len(self.examples))

    def measured(self, predictions: Sequence[Any]) -> Measured:
        """Return the predictions with what they are compared with."""
        first = self.first
        bag = bag_of_words_in(first.folder, first.labels)
        tuned = averaged_tuned(self.models)
        return Measured(first.task, first.labels, self.examples, predictions, bag, tuned)

    def truncated(self) -> Truncated:
        """Warn of texts that were cut, and return their counts for the report; {} if none were."""
        truncated = warn_of_truncation({self.split: self.cuts}, self.first.config.P)
        return {"truncated": truncated} if truncated else {}


def _with_columns(model: TrainedModel, data: Path | None, columns: Mapping[str, str]) -> Task:
    """Return the task of a model, which reads these columns of a custom table and the others as trained."""
    if data is None:
        raise InputError("`columns` is for another table; name that with `data`, or leave it out.")
    if "second" in columns and model.pair is False:
        what = f"The model in '{model.folder}' was fine-tuned for single texts"
        raise InputError(f"{what}; leave out second={columns['second']} of `columns`.")
    trained = getattr(model.task, "columns", {})
    task = registry.create(model.task.name, {**trained, **columns}, model.task.long)
    task.second_is_optional = model.task.second_is_optional
    return task


def evaluate(
    folders: Folders,
    data: str | Path | None = None,
    split: str = "dev",
    *,
    task: str | None = None,
    columns: Mapping[str, str] | None = None,
    engine: str = "auto",
    threads: int | None = None,
    dtype: str = "float32",
    show: bool = False,
) -> Evaluation:
    """Compute the official metrics of one fine-tuned model, or of several that are averaged.

    Parameters
    ----------
    folders : str, Path or sequence of them
        Folders of the models.
    data : str or Path, optional
        Folder of the task's files; by default that of the data that the model was fine-tuned on.
    split : str, default "dev"
        A split with labels.
    task : str, optional
        Another task to ask, with the same answers, such as "mnli-mm" for a model of "mnli".
    columns : mapping, optional
        Columns of the custom table `data` by their role, such as {"text": "review"}; also "delimiter" and
        "header". Those that are left out are those of the training.
    engine : str, default "auto"
        The engine.
    threads : int, optional
        Number of threads.
    dtype : str, default "float32"
        Precision of matrix products.
    show : bool, default False
        Show the progress on the error stream.

    Returns
    -------
    dict
        The metrics with a 95% confidence interval, for JSON; `measured_text` makes them readable.

    Raises
    ------
    InputError
        When a model is not fine-tuned or can't be averaged with the others, or the data belong to another
        task or have no labels.
    """
    request = _EvaluationRequest(
        folders, data, split, task, columns, True, engine=engine, threads=threads, dtype=dtype
    )
    first = request.first
    if not request.all_labelled:
        advice = "choose another, or use minibert predict."
        raise InputError(f"The split {split!r} has no labels to score against; {advice}")
    with engines.limited_threads(threads, first.ops):
        predictions = list(request.predictions(show))
    measured = request.measured(predictions)
    report = results.report_of(measured, measured.mistakes(first.tokenizer, first.max_length))
    return {
        **report,
        **request.truncated(),
        "split": split,
        "source": request.source,
        "models": request.folders,
    }


def predict(
    folders: Folders,
    data: str | Path | None,
    split: str,
    out: str | Path,
    *,
    task: str | None = None,
    columns: Mapping[str, str] | None = None,
    majority: bool = False,
    engine: str = "auto",
    threads: int | None = None,
    dtype: str = "float32",
    show: bool = False,
) -> dict[str, Any]:
    """Write the task's official files, and every prediction as a line of JSON.

    The files are named by the split or, for a custom table, by its file: `new_reviews_predictions.tsv`.

    Parameters
    ----------
    folders : str, Path or sequence of them
        Folders of the models.
    data : str or Path or None
        Folder of the task's files, or one file; None for the data that the model was fine-tuned on.
    split : str
        A split, with or without labels.
    out : str or Path
        Folder for the files.
    task : str, optional
        Another task to ask, as in `evaluate`; also "ax" for a model of "mnli".
    columns : mapping, optional
        Columns of the custom table `data` by their role, such as {"text": "review"}; also "delimiter" and
        "header". Those that are left out are those of the training.
    majority : bool, default False
        Always predict the most frequent class of the train file, as the paper did for WNLI.
    engine : str, default "auto"
        The engine.
    threads : int, optional
        Number of threads.
    dtype : str, default "float32"
        Precision of matrix products.
    show : bool, default False
        Show the progress on the error stream.

    Returns
    -------
    dict
        `files`; `scores` if the split has labels; `thresholds` if several classes may apply, for JSON.

    Raises
    ------
    InputError
        For the same reasons as `evaluate`, except that labels are not needed; when `out` is not a folder to
        write into, is that of a model, or holds such predictions.
    RunError
        When the disk is full. No file is left incomplete.
    """
    out = path_of(out, "out")
    if out.suffix.lower() in FILE_SUFFIXES and not out.exists():
        raise InputError(f"out={str(out)!r} looks like a file; name a folder.", out=str(out))
    if any((out / name).exists() for name in (CONFIG_FILE, *STORED)):
        raise InputError(f"out={str(out)!r} is the folder of a model; choose another.", out=str(out))
    require_folder(out)
    request = _EvaluationRequest(
        folders, data, split, task, columns, False, engine=engine, threads=threads, dtype=dtype
    )
    first = request.first
    answers: Iterable[Any] = request.majority() if majority else request.predictions(show)
    lines = out / f"{first.task.name}-{request.part}.jsonl"
    if lines.exists():
        raise InputError(f"'{out}' already holds predictions, {lines.name}; choose another `out`.")
    with engines.limited_threads(threads, first.ops):
        predictions, files = _write_predictions(request, answers, lines)
    report = {
        "task": first.task.name,
        "title": first.task.title,
        "split": split,
        "examples": len(predictions),
        "source": request.source,
        "models": request.folders,
        "files": [str(path) for path in (*files, lines)],
        "scores": first.task.score(request.examples, predictions) if request.all_labelled else None,
    }
    report |= request.truncated()
    if isinstance(first.task, ManyLabels):
        report["thresholds"] = first.task.thresholds(first.labels, averaged_tuned(request.models))
    if request.all_labelled:
        measured = request.measured(predictions)
        report |= results.compared_with_majority(measured) | results.compared_with_constant(measured)
    return report


def _write_predictions(
    request: _EvaluationRequest, answers: Iterable[Any], lines: Path
) -> tuple[list[Any], list[Path]]:
    """Write the answers into the file `lines`, as JSON, and the official files of the task beside it.

    Return the answers and the official files.
    """
    task, examples = request.first.task, request.examples
    predictions: list[Any] = []
    files: list[Path] = []

    def write(temporary: Path) -> None:
        # As `atomic_text`.
        with open(temporary, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            for example, prediction in zip(examples, answers, strict=True):
                predictions.append(prediction)
                row = _row_of(task, example, prediction)
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        # Before the lines get their name, which says that the folder holds predictions: an interrupted call
        # can be repeated.
        files.extend(task.write(lines.parent, request.part, examples, predictions))

    write_atomically(lines, write)
    return predictions, files


def _row_of(task: Task, example: Any, prediction: Any) -> dict[str, Any]:
    """Return what `predict` writes of an example: its id, what was asked, and the prediction."""
    row = {"id": example.id} if hasattr(example, "id") else {}
    row |= task.asked(example)
    return row | (prediction if isinstance(prediction, dict) else {"prediction": prediction})


def classify(
    model: Finetuned | str | Path,
    texts: Sequence[str | tuple[str, str | None]],
    *,
    engine: str = "auto",
    threads: int | None = None,
    cuts: Truncation | None = None,
) -> list[Prediction]:
    """Ask a fine-tuned model for the classes of some texts, or for their numbers.

    Parameters
    ----------
    model : Finetuned, str or Path
        A model whose task has one answer for a text, a class or a number; or its folder.
    texts : sequence
        Strings, or pairs of a text and a second text, which may be None.
    engine : str, default "auto"
        The engine, if a folder is given.
    threads : int, optional
        Number of threads of that engine, and of matrix products.
    cuts : Truncation, optional
        Counter for the texts that are cut, instead of a warning.

    Returns
    -------
    list of dict
        For each text `label`, or `labels` if several may apply, and `probabilities`; or `value`.

    Raises
    ------
    InputError
        When the model answers something else, a text is empty, or a second text is missing or not expected;
        when `texts` is a tuple of two strings, which may be a pair or two texts.
    """
    if isinstance(texts, str):
        raise InputError(f"texts={texts[:60]!r} is one text; give a list of them.")
    may_be_pair = (
        isinstance(texts, tuple) and len(texts) == 2 and all(isinstance(text, str) for text in texts)
    )
    if may_be_pair:
        what = f"texts={short(texts)} may be a pair or two texts"
        raise InputError(f"{what}; give [(first, second)] for the pair, or [first, second] for two texts.")
    if not isinstance(model, Finetuned):
        model = Finetuned.from_pretrained(model, engine, threads=threads)
    command = model.task.command
    if command != "classify":
        trained = f"The model in '{model.folder}' was fine-tuned for {model.task.name}"
        raise InputError(f"{trained}, which gives no class for a whole text; use minibert {command}.")
    examples = [_text_example(model, number, text) for number, text in enumerate(texts)]
    counted = Truncation(model.max_length, long=model.task.long) if cuts is None else cuts
    with engines.limited_threads(threads, model.ops):
        predictions = list(predict_examples([model], examples, cuts=counted))
    if cuts is None:
        warn_of_truncation({"": counted}, model.config.P)
    return predictions


def _text_example(model: Finetuned, number: int, text: Any) -> TextExample:
    """Return a text or a pair as an example; raise InputError if the model can't read it."""
    if isinstance(text, str):
        text = text, None
    if not isinstance(text, list | tuple) or len(text) != 2 or not isinstance(text[0], str):
        raise InputError(f"texts[{number}]={short(text)} is neither a text nor a pair; give strings.")
    first, second = text
    refuse_empty((first, second))
    if model.pair is not None and model.pair != (second is not None):
        wanted = "single texts; leave the second one out"
        if model.pair:
            wanted = "pairs of texts; give a second one"
        raise InputError(f"The model in '{model.folder}' was fine-tuned for {wanted}.")
    return TextExample(str(number), first, second, None)


def predicted_text(report: dict[str, Any]) -> str:
    """Format what `predict` did, for a person.

    Parameters
    ----------
    report : dict
        What `predict` returned.

    Returns
    -------
    str
        Several lines.
    """
    lines = [results.headline(report)]
    if report["scores"]:
        lines += results.metric_lines(report)
    else:
        lines += [f"  {remark}" for remark in results.remarks(report)]
    return "\n".join([*lines, *report["files"]])
