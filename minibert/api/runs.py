"""Train from Python in one call: `pretrain` and `finetune`, which return a `Run`; and `load`."""

import html
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from minibert import engines
from minibert.api.calls import called_with
from minibert.api.corpora import texts_or_names
from minibert.api.loading import load as load
from minibert.base.errors import InputError, Interrupted, MissingFile
from minibert.base.foreign_names import ExplainsNames, explains_folder, explains_foreign_attributes
from minibert.base.json_files import read_json
from minibert.base.options import PRETRAINING_FILE, RunOptions, option
from minibert.base.paths import path_of
from minibert.base.reading import byte_pieces
from minibert.base.terminal import counted
from minibert.finetuning import run as finetuning
from minibert.finetuning.models import is_finetuned
from minibert.finetuning.options import FinetuneOptions
from minibert.model.ops import Ops
from minibert.pretraining import run as pretraining
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.preparation import name_of_texts
from minibert.reports.contents import FilledGap, FinetuneReport, HeldOutMetrics, PretrainReport
from minibert.reports.markup import framed
from minibert.reports.page import REPORT_FILE
from minibert.reports.results import REPORT, load_report, report_text
from minibert.tasks.stored import OPTIONS_FILE
from minibert.tokenizer import Tokenizer
from minibert.training.runlog import ON_LOG, OnLog, logger, read_metrics, takes_log

Report = TypeVar("Report", bound=Mapping[str, Any])
RUNS = Path("runs")  # where run folders are created if the user names none
CORPUS = (
    "one or more text files, folders or globs; or texts in memory, each of them a document: a list, an "
    "array, a column of a table, or a table with `column`"
)
BOOKS = "the books in the package"


def _with_missing(kind: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields in their order, and after them, as None, those of a TypedDict that are missing."""
    missing = kind.__required_keys__ - fields.keys()
    return fields | dict.fromkeys(sorted(missing))


@explains_foreign_attributes
@dataclass(frozen=True)
class Run(Generic[Report], metaclass=ExplainsNames):
    """A finished run: its folder, its report and its model; a notebook shows its page.

    Attributes
    ----------
    folder : Path
    report : dict
        The contents of `report.json`: a PretrainReport, or a FinetuneReport.
    """

    folder: Path
    report: Report

    @explains_folder("minibert.Run.open")
    def __init__(self, folder: Path, report: Report) -> None:
        vars(self).update(folder=folder, report=report)  # a frozen dataclass refuses assignments

    @classmethod
    def open(cls, folder: str | Path) -> "Run[Any]":
        """Open the finished run in a folder, as `pretrain` or `finetune` returned it.

        Parameters
        ----------
        folder : str or path
            The folder of a pre-training or fine-tuning run.

        Returns
        -------
        Run

        Raises
        ------
        InputError
            When the folder holds no finished run, or its report is damaged.
        """
        folder = path_of(folder)
        absent = InputError(f"'{folder}' holds no finished run (report.json is missing); name one.")
        if is_finetuned(folder):
            finetuned: Any = load_report(folder)
            if finetuned is None:
                raise absent
            return cls(folder, finetuned)
        try:
            report = read_json(folder / REPORT, PretrainReport, "let resume=True write it again")
        except MissingFile as error:
            raise absent from error
        pretrained: Any = _with_missing(PretrainReport, report)
        if pretrained["held_out"] is not None:
            pretrained["held_out"] = _with_missing(HeldOutMetrics, pretrained["held_out"])
        pretrained["examples"] = [_with_missing(FilledGap, example) for example in report["examples"]]
        return cls(folder, pretrained)

    @cached_property
    def model(self) -> Any:
        """The model of the run, loaded by `minibert.load`: a `Bert`, or the estimator for its task."""
        return load(self.folder)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the run."""
        return Tokenizer.from_pretrained(self.folder)

    def metrics(self) -> list[dict[str, float]]:
        """Return the metrics that were recorded during training.

        Returns
        -------
        list of dict
            One dictionary for each line of `metrics.jsonl`: numbers by name, such as "step" and "mlm_loss".

        Raises
        ------
        InputError
            When the file is missing or can't be read.
        """
        return read_metrics(self.folder)

    def __str__(self) -> str:
        if is_finetuned(self.folder):
            return report_text(self.report)
        return pretraining.report_text(self.report)

    def __repr__(self) -> str:
        if "held_out" in self.report:
            held_out = self.report["held_out"]
            result = f"held-out loss {held_out['loss']:.3f}" if held_out else "not measured"
        else:
            metric = self.report["metric"]
            result = f"{metric} {self.report['scores'][metric]:.3f} on dev"
        return f"Run({str(self.folder)!r}, {counted(self.report['steps'], 'step')}, {result})"

    def _repr_html_(self) -> str:
        """Show `report.html` in a frame; without that file, show what `print` does."""
        try:
            page = b"".join(byte_pieces(self.folder / REPORT_FILE, streams=False)).decode("utf-8", "replace")
        except InputError:
            return f"<pre>{html.escape(str(self))}</pre>"
        return framed(page, repr(self))

    def __fspath__(self) -> str:
        """Return the folder, so that a run can be used wherever a path is expected."""
        return str(self.folder)


@dataclass(kw_only=True)
class _Call:
    """The arguments of `pretrain` and `finetune` that are not stored as options of the run."""

    given: ClassVar[frozenset[str]] = frozenset()  # names of the arguments that the user gave

    out: str | Path | None = option(None, "the run folder", default="a new one in `runs`")
    resume: bool = option(False, "resume the run in that folder, exactly where it stopped")
    show: bool = option(True, "show progress: a bar in a notebook or terminal, lines elsewhere")
    ops: Ops | None = option(
        None,
        "a custom engine object, instead of `engine`",
        (('an engine object, or one by its name, such as engine="numpy"', lambda x: isinstance(x, Ops)),),
        default="none",
    )
    on_log: OnLog | None = option(
        None,
        'called with the number of a step and its metrics, such as {"train/loss": 2.5}; if it raises '
        "minibert.StopTraining, the run ends with that step, finished like any other",
        ((ON_LOG, takes_log),),
        default="nothing is called",
    )
    device: str | None = option(
        None, "kind of device for the engine jax: cpu, gpu or tpu", default="the best that JAX finds"
    )


@dataclass(kw_only=True)
class PretrainCall(_Call, PretrainOptions):
    """Arguments of `pretrain`."""

    corpus: Any = field(default=(), kw_only=False, metadata={"help": CORPUS, "default": BOOKS})
    trace: bool = option(False, "print where the time of the steps went, and write it to `trace.json`")

    texts: ClassVar[list[str] | None] = None  # the corpus, if it is in memory

    def __post_init__(self) -> None:
        texts, names = texts_or_names(self.corpus, self.column)
        if isinstance(names, list) and not names:  # what glob.glob returns if nothing matches
            raise InputError("corpus=[] names no file; give one, or leave it out for the books.", corpus=[])
        if texts is not None:
            vars(self)["texts"] = texts
            names = name_of_texts(texts)
        object.__setattr__(self, "corpus", names)
        super().__post_init__()


@dataclass(kw_only=True)
class FinetuneCall(_Call, FinetuneOptions):
    """Arguments of `finetune`."""


def _run(
    call: Any,
    kind: type[RunOptions],
    stored: str,
    sources: Iterable[str],
    train: Callable[..., Any],
) -> Run[Any]:
    """Train with the arguments of a call; `stored` is the file that holds the options in a run folder."""
    folder = run_folder(call.out, call.resume, sources, stored)
    values = {field.name: getattr(call, field.name) for field in fields(kind)}
    if call.resume:
        given = {name: value for name, value in values.items() if name in call.given and value is not None}
        options = kind.resumed(folder / stored, **given)
    else:
        options = kind(**values)
    if call.show and call.out is None:
        logger.info(f"Run folder: {folder}.")
    settings = {name: getattr(call, name) for name in ("resume", "show", "ops", "on_log")}
    try:
        engines.force_device(call.device)
        return Run(folder, train(options, folder, **settings))
    except KeyboardInterrupt:
        if not (folder / stored).exists():
            raise Interrupted("Stopped before the run began; nothing is kept.") from None
        arguments = f"out={str(folder)!r}, resume=True"
        resuming_call = f"the same call with {arguments}"
        if kind is PretrainOptions:  # whose options are all stored in the folder
            resuming_call = f"minibert.pretrain({arguments})"
        raise Interrupted(f"Stopped and saved in {folder}; {resuming_call} resumes it.") from None
    finally:
        engines.force_device(None)  # the model that the run returns, and other runs, may use any device


@called_with(PretrainCall)
def pretrain(call: PretrainCall) -> Run[PretrainReport]:
    """Pre-train a BERT on text, as the command `minibert pretrain` does, and return the run.

    Ctrl-C, or a notebook's interrupt button, saves the run; the same call with `resume=True` resumes it.

    Returns
    -------
    Run
        The finished run, with the model as `.model`, its vocabulary as `.tokenizer`, the metrics in
        `.report`, and the files in `.folder`.

    Raises
    ------
    InputError
        When an argument, the text, the vocabulary or the folder can't be used.
    RunError
        When the loss is not a number, or the disk is full.
    KeyboardInterrupt
        After Ctrl-C; the message, which is all that a notebook shows, says where the run is saved and how to
        resume it.

    Examples
    --------
    >>> run = pretrain("books/", minutes=8)  # doctest: +SKIP
    >>> run.model.encode("Call me Ishmael.")  # doctest: +SKIP
    Encoded(3 × (6, 128), pooled (1, 128))
    """
    text = ["texts"] if call.texts else call.corpus or filter(None, [call.shards])
    train = partial(pretraining.pretrain, trace=call.trace, texts=call.texts)
    return _run(call, PretrainOptions, PRETRAINING_FILE, text, train)


@called_with(FinetuneCall)
def finetune(call: FinetuneCall) -> Run[FinetuneReport]:
    """Fine-tune a model on the files of a task, as the command `minibert finetune` does.

    For data in memory, use `TextClassifier` or another estimator.

    Returns
    -------
    Run
        The finished run: `.model` is the estimator for the task (multiple choice, similarity and models on
        frozen features have only commands), the metrics are in `.report`, and the files in `.folder`.

    Raises
    ------
    InputError
        When an argument, the data, the model or the folder can't be used.
    RunError
        When the loss is not a number, or the disk is full.
    """
    return _run(call, FinetuneOptions, OPTIONS_FILE, [call.task], finetuning.finetune)


def run_folder(
    out: str | Path | None,
    resume: bool,
    sources: Iterable[str],
    stored: str = PRETRAINING_FILE,
) -> Path:
    """Choose the folder of a run: `out`, or else a new one in `runs/` or, to resume, the latest one there.

    Parameters
    ----------
    out : str or path, optional
        The folder that the user named.
    resume : bool
        Whether to resume a run.
    sources : iterable of str
        The files to train on. A new folder is named after the first: a file or folder without its suffixes,
        or the folder of a glob. Without sources, it is named "books".
    stored : str, default "training.json"
        The file of options that runs of this kind have in their folders.

    Returns
    -------
    Path

    Raises
    ------
    InputError
        When there is no run in `runs/` to resume.
    """
    if out is not None:
        return path_of(out, "out")
    if not resume:
        name = _name_of_source(next(iter(sources), None))
        names = (name if number == 1 else f"{name}-{number}" for number in count(1))
        return next(RUNS / name for name in names if not (RUNS / name).exists())
    started = sorted(RUNS.glob(f"*/{stored}"), key=lambda path: path.stat().st_mtime)
    if not started:
        raise InputError("There is no run in runs/ to resume; name its folder with out='runs/...'.")
    return started[-1].parent


def _name_of_source(source: str | None) -> str:
    """Return the last part of a path that has a stem and no glob pattern, without its suffixes."""
    if not source:
        return "books"
    parts = Path(os.path.abspath(source)).parts[1:]  # "." has a name, too
    stems = [part.split(".")[0] for part in parts if not set(part) & set("*?[]")]
    return next(filter(None, reversed(stems)), "books")
