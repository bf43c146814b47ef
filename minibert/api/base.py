"""What all estimators have in common: parameters, `fit`, `save`, and the protocol of scikit-learn.

An estimator is a dataclass of the options of a fine-tuning run. `fit` runs what `minibert finetune` runs,
with examples in memory, and loads the result; whatever that command promises holds here, too.
"""

import json
import os
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np

from minibert import engines
from minibert.api.inputs import GENERATORS, plain, seed_of
from minibert.api.parameters import Parameterised
from minibert.ask.inference import RUN, lay_out, require_no_other
from minibert.base.errors import (
    DivergedError,
    InputError,
    Interrupted,
    naming,
    warn,
)
from minibert.base.files import atomic_json, atomic_text, sole_writer
from minibert.base.json_files import read_json
from minibert.base.options import option
from minibert.base.paths import path_of
from minibert.base.reading import byte_pieces
from minibert.finetuning.examples import Rows
from minibert.finetuning.models import Finetuned
from minibert.finetuning.options import FinetuneArguments, FinetuneOptions
from minibert.finetuning.predicting import predict_examples
from minibert.finetuning.preparation import bag_of_words_in
from minibert.finetuning.run import finetune, resolved
from minibert.model.ops import Ops
from minibert.reports.contents import Evaluation, FinetuneReport
from minibert.reports.results import REPORT, Measured, load_report, measured_text, report_of, trivial_remark
from minibert.tasks import registry
from minibert.tasks.stored import OPTIONS_FILE, TAGGER_FILE
from minibert.tasks.truncation import Truncation, warn_of_truncation
from minibert.training.runlog import OnLog

ESTIMATOR_FILE = "estimator.json"  # parameters and classes, beside a model
Metrics = TypeVar("Metrics", bound=Evaluation)


class ReadableMetrics(dict[str, Any]):
    """Metrics of a model, printed as a table."""

    def __repr__(self) -> str:
        return measured_text(self)


def _readable(metrics: Metrics) -> Metrics:
    """Return metrics as a dictionary that shows them as a person reads them."""
    return cast(Metrics, ReadableMetrics(metrics))


class NotFitted(InputError, AttributeError):
    """An estimator was asked before it was fitted or loaded."""


@dataclass(eq=False, repr=False)
class Estimator(Parameterised, FinetuneArguments, ABC):
    """Fine-tuning for data in memory; the subclasses say what is learnt.

    Parameters are only looked at by `fit`. They are the options of `minibert finetune` under their names
    there, `seed` being `random_state`; what is None follows the recipe of the task.
    """

    model: str | os.PathLike[str] = field(
        metadata={"help": "what to start from: a run folder, a BERT of Hugging Face's, or a fine-tuned model"}
    )
    _: KW_ONLY
    out: str | os.PathLike[str] | None = option(
        None, "folder for the files of the run", default="a temporary one, until `fit` is done"
    )
    verbose: bool = option(False, "show progress: a bar in a notebook or terminal, otherwise lines")
    random_state: int | np.integer[Any] | np.random.Generator | np.random.RandomState | None = option(
        0, "a whole number; or a generator of NumPy's, which it is drawn from. None is 0"
    )
    ops: Ops | None = option(None, "an engine object of your own, in place of `engine`", default="none")
    on_log: OnLog | None = option(
        None,
        "called with the number of a step and what is recorded of it, by names such as train/loss; it may "
        "raise minibert.StopTraining, and the run ends with that step, finished like any other",
        default="",
    )
    split_dev: float = option(0.1, "share of the examples to measure on, of each class where there are some")

    KIND: ClassVar[str] = ""  # what scikit-learn calls it
    TASK: ClassVar[str]  # of one's own tables

    # What is learnt

    @abstractmethod
    def _examples(self, X: Any, y: Any = None, labelled: bool = False) -> list[Any]:
        """Return what a task reads of some rows, checked; if `labelled` with answers, learning classes."""

    @abstractmethod
    def _row(self, example: Any) -> dict[str, Any]:
        """Return an example as a line of a table, by the names of columns that its task expects."""

    # Fitting

    def fit(self, X: Any, y: Any = None, *, dev: tuple[Any, Any] | None = None) -> Self:
        """Fine-tune the model for some data.

        After every epoch it is measured on examples that it does not learn from, and the best epoch is kept.
        Files are kept in the folder `out`, which becomes a run folder as `minibert finetune` leaves it;
        without one in a temporary folder until `fit` is done. Ctrl-C, also a notebook's button to interrupt,
        saves the run: calling `fit` once more with the same data goes on from there.

        Parameters
        ----------
        X : list, array, column or table
            The texts; or a table (pandas, polars, `datasets`, a dictionary of columns) whose columns
            parameters of the estimator name.
        y : list, array, column or str, optional
            What is expected of each; for a table also the name of its column.
        dev : tuple, optional
            X and y to measure on, in place of the share `split_dev` of the training examples.

        Returns
        -------
        Estimator
            Itself, with `report_`: what `report.json` of a run holds.

        Raises
        ------
        InputError
            When data, model, folder or a parameter can't be used; the message names the row.
        RunError
            When the loss is not a number, or the disk is full.
        Interrupted
            After Ctrl-C; the message says whether the run was saved.
        """
        interrupted = vars(self).get("_scratch")
        try:
            return self._fit(X, y, dev)
        except BaseException as error:
            self._drop_scratch(error, interrupted)
            raise

    def _fit(self, X: Any, y: Any, dev: tuple[Any, Any] | None) -> Self:
        """Do what `fit` says; where that fails, a temporary folder may be left."""
        if self.ops is not None and not isinstance(self.ops, Ops):
            advice = 'give an engine object, or one by its name, such as engine="numpy"'
            raise InputError(f"ops={self.ops!r} is not valid; {advice}.", ops=self.ops)
        learner = type(self)(**self.get_params())  # what was fitted before stays so until this is
        rows = learner._training_rows(X, y, dev)
        texts = {"train": _as_lines(map(self._row, rows.train))}
        if rows.dev is not None:
            texts["dev"] = _as_lines(map(self._row, rows.dev))
        options, folder, resume = self._begun(texts, list(self._row(rows.train[0])))
        report = self._train(rows, texts, options, folder, resume)
        fitted = Finetuned.from_pretrained(folder, self.engine, threads=self.threads, dtype=options.dtype)
        if self.ops is not None:
            fitted = replace(fitted, ops=self.ops)
        vars(self).update(vars(learner))
        self._fitted = fitted
        self._bag_of_words = bag_of_words_in(folder, fitted.labels, rows)
        self._learn_report(report)
        self._warned_of_cuts = "truncated" in report
        self._asked = y if isinstance(y, str) else None
        atomic_json(folder / ESTIMATOR_FILE, self._stored())
        if scratch := vars(self).pop("_scratch", None):
            scratch.cleanup()
        if remark := trivial_remark(report):
            warn(f"{remark} Give more examples, more epochs or another rate.")
        return self

    def _training_rows(self, X: Any, y: Any, dev: tuple[Any, Any] | None) -> Rows:
        """Return the examples to learn from, and those to measure on where some are given."""
        train = self._examples(X, y, labelled=True)
        if dev is None:
            if len(train) < 2:
                raise InputError("X has one sample, and the model is measured on another; give more, or dev.")
            if self.split_dev is None:
                advice = "give a share, such as 0.1, or fit(X, y, dev=(X_dev, y_dev))."
                raise InputError(f"split_dev=None leaves nothing to measure on; {advice}", split_dev=None)
            return Rows(train)
        if not isinstance(dev, tuple) or len(dev) != 2:
            raise InputError("dev is not X and y; give a tuple of the two.")
        with naming("dev"):
            return Rows(train, self._examples(*dev, labelled=True))

    def _train(
        self,
        rows: Rows,
        texts: dict[str, str],
        options: FinetuneOptions,
        folder: Path,
        resume: bool,
    ) -> dict[str, Any]:
        """Run the fine-tuning with examples as `rows`, and keep them as files, `texts` by name.

        The files are for the commands; here they only tell whether an interrupted run had the same examples.
        """
        data = folder / "examples"
        if not resume and data.exists():
            raise InputError(f"{data} is of no run of fine-tuning; remove it, or choose another folder.")
        with sole_writer(data):  # the folder goes at the end if nothing is left in it
            try:
                for name, text in texts.items():
                    atomic_text(data / f"{name}.jsonl", text)
                return finetune(
                    options,
                    folder,
                    resume=resume,
                    show=self.verbose,
                    ops=self.ops,
                    on_log=self.on_log,
                    rows=rows,
                )
            except KeyboardInterrupt:
                if not (folder / OPTIONS_FILE).exists():
                    raise Interrupted("Stopped before the training began; nothing is kept.") from None
                advice = "call fit again with the same data and it goes on from there."
                raise Interrupted(f"Stopped and saved in {folder}; {advice}") from None
            finally:
                if not (folder / OPTIONS_FILE).exists():  # it has not begun
                    for name in texts:
                        (data / f"{name}.jsonl").unlink(missing_ok=True)

    def _drop_scratch(self, error: BaseException, interrupted: Any) -> None:
        """Remove the temporary folder of a `fit` that ended with an error, unless it can go on from there.

        `interrupted` is the folder of an earlier `fit`, if there is one: what is refused now leaves it there.
        """
        scratch = vars(self).get("_scratch")
        if scratch is None:
            return
        is_new = scratch is not interrupted
        is_begun = (Path(scratch.name) / OPTIONS_FILE).exists()
        is_refused = isinstance(error, InputError) or not is_begun
        if isinstance(error, DivergedError) or (is_new and is_refused):
            vars(self).pop("_scratch").cleanup()

    def _begun(self, texts: dict[str, str], columns: list[str]) -> tuple[FinetuneOptions, Path, bool]:
        """Return the options of the run, its folder, and whether the same was interrupted there."""
        folder, resume = self._folder(texts)
        stored = FinetuneOptions.load(folder / OPTIONS_FILE) if resume else None
        if stored and isinstance(self.random_state, GENERATORS):
            seed = stored.seed
        else:
            seed = seed_of(self.random_state)
        data = folder / "examples"
        split_dev: float | None = None
        if "dev" not in texts:
            data = data / "train.jsonl"
            split_dev = self.split_dev
        names = {field.name for field in fields(FinetuneOptions)} - {"model", "split_dev"}
        options = FinetuneOptions(
            self.TASK,
            str(data),
            self.model,  # type: ignore[arg-type]
            columns=tuple((name, name) for name in columns),
            split_dev=split_dev,
            seed=seed,
            **{name: value for name, value in self.get_params().items() if name in names},
        )
        if stored is not None and self.out is None:
            try:
                resolved(options, folder / OPTIONS_FILE).require_same_run(stored)
            except InputError:  # what was begun with other options is dropped
                vars(self).pop("_scratch").cleanup()
                return self._begun(texts, columns)
        return options, folder, resume

    def _folder(self, texts: dict[str, str]) -> tuple[Path, bool]:
        """Return the folder of the run, and whether one of the same data was interrupted there."""
        scratch = getattr(self, "_scratch", None)
        out = self.out
        if out == "":
            raise InputError(f"{out=} names no folder; give one, or leave it out.", out=out)
        folder = Path(".") if out is None else path_of(out, "out")
        if scratch and out is None:
            folder = Path(scratch.name)
        has_folder = scratch is not None or out is not None
        begun = has_folder and (folder / OPTIONS_FILE).exists()
        if begun and _has_same_files(folder / "examples", texts) and load_report(folder) is None:
            return folder, True
        if out is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="minibert-", ignore_cleanup_errors=True)
            return Path(self._scratch.name), False
        if begun:
            raise InputError(
                f"out={str(out)!r} already holds a run; load it, or choose another folder.", out=str(out)
            )
        return folder, False

    # Asking

    def _predictions(self, examples: Sequence[Any]) -> list[Any]:
        """Return what the model predicts of examples, whatever their labels are."""
        model = self.model_
        no_label = {model.task.label_field: None}
        bare = [example._replace(**no_label) for example in examples]
        cuts = Truncation(model.max_length, long=model.task.long)
        with engines.limited_threads(self.threads, model.ops):
            predictions = list(predict_examples([model], bare, cuts=cuts, show=self.verbose))
        if not getattr(self, "_warned_of_cuts", False):  # once, also by `fit`, is enough
            self._warned_of_cuts = bool(warn_of_truncation({"": cuts}, model.config.P))
        return predictions

    @property
    def model_(self) -> Finetuned:
        """Return the fine-tuned model itself: its `params`, `tokenizer`, `labels` and engine `ops`.

        Raises
        ------
        InputError
            When the estimator is not fitted.
        """
        fitted: Finetuned | None = getattr(self, "_fitted", None)
        if fitted is None:
            raise NotFitted(f"This {type(self).__name__} is not fitted yet; call fit first, or load one.")
        return fitted

    def evaluate(self, X: Any, y: Any = None) -> Evaluation:
        """Compute the task's metrics on some rows, with a 95% interval and the trivial baseline.

        Parameters
        ----------
        X : list, array, column or table
            As for `fit`.
        y : list, array, column or str, optional
            What is expected of each row, as for `fit`.

        Returns
        -------
        dict
            `scores` by name; `metric`, the one that models are chosen by, and its 95% `interval`; for classes
            `majority`, what the most frequent one would score, and `bag_of_words`, what naive Bayes over
            words does that has learnt from the same examples, where these are known; `mistakes`, the worst
            first. Printed, it is a table of the metrics.
        """
        model = self.model_
        examples = self._examples(X, y, labelled=True)
        model.task.warn_unknown(examples, model.labels)
        if not hasattr(self, "_bag_of_words"):  # loaded, from the folder of a run perhaps
            self._bag_of_words = bag_of_words_in(model.folder, model.labels)
        predictions = self._predictions(examples)
        measured = Measured(model.task, model.labels, examples, predictions, self._bag_of_words)
        mistakes = measured.mistakes(model.tokenizer, model.max_length)
        return _readable(report_of(measured, mistakes))

    def score(self, X: Any, y: Any = None) -> float:
        """Return the metric that models of the task are chosen by, of some rows.

        Parameters
        ----------
        X : list, array, column or table
            As for `fit`.
        y : list, array, column or str, optional
            What is expected of each row, as for `fit`.

        Returns
        -------
        float
        """
        task = self.model_.task
        examples = self._examples(X, y, labelled=True)
        scores = task.score(examples, self._predictions(examples))
        return float(scores[task.metric])

    def optimize_for_inference(self, int8: bool = False) -> Self:
        """Make answers to a few short texts fast, as `Bert.optimize_for_inference` does.

        Parameters
        ----------
        int8 : bool, default False
            Quantize the layers, not the head.

        Returns
        -------
        Estimator
            Itself.
        """
        lay_out(self.model_.ops, self.model_.params, int8)
        return self

    # Keeping

    def save(self, folder: str | Path) -> None:
        """Write the fitted model: a folder that `minibert.load`, the commands and `transformers` load.

        Parameters
        ----------
        folder : str or path
            Made if it is not there. One with a run or another fine-tuned model is refused.
        """
        folder = path_of(folder)
        model = self.model_
        is_its_folder = model.folder.name and folder.resolve() == model.folder.resolve()
        require_no_other(folder, () if is_its_folder else (RUN, TAGGER_FILE, OPTIONS_FILE))
        atomic_json(folder / ESTIMATOR_FILE, self._stored())
        named = {}  # columns by the names that they have in a person's tables
        for name, column in getattr(model.task, "columns", {}).items():
            named[name] = getattr(self, name, None) or column
        if "label" in named and getattr(self, "_asked", None):
            named["label"] = self._asked
        model.save_pretrained(folder, named)
        if hasattr(self, "report_"):
            atomic_json(folder / REPORT, {**self.report_, "folder": str(folder), "page": ""})
        else:
            (folder / REPORT).unlink(missing_ok=True)  # of another model

    def _stored(self) -> dict[str, Any]:
        """Return what `estimator.json` holds."""
        parameters = {}
        for name, value in self.get_params().items():
            value = os.fspath(value) if isinstance(value, os.PathLike) else plain(value)
            if isinstance(value, str | int | float | list | dict | None):
                parameters[name] = value
        return {"estimator": type(self).__name__, "parameters": parameters}

    @classmethod
    def load(
        cls,
        folder: str | Path,
        engine: str = "auto",
        *,
        threads: int | None = None,
        dtype: str = "float32",
    ) -> Self:
        """Load what `save`, `out` or `minibert finetune` has written.

        Parameters
        ----------
        folder : str or path
            With a finished model that answers what this class does; another one is refused.
        engine : str, default "auto"
            The engine by name.
        threads : int, optional
            Of the engine; one for each core when left out.
        dtype : str, default "float32"
            In which to compute; see `Bert.from_pretrained`.

        Returns
        -------
        Estimator
            Fitted, of this class.
        """
        fitted = Finetuned.from_pretrained(folder, engine, threads=threads, dtype=dtype)
        return cls.of_fitted(fitted, engine, threads=threads, dtype=dtype)

    @classmethod
    def of_fitted(
        cls,
        fitted: Finetuned,
        engine: str = "auto",
        *,
        threads: int | None = None,
        dtype: str = "float32",
    ) -> Self:
        """Return the estimator that asks a loaded model.

        Parameters
        ----------
        fitted : Finetuned
            The model, whose folder may say what it was fitted with.
        engine : str, default "auto"
            The engine that it was loaded with, by name; so are the next two.
        threads : int, optional
        dtype : str, default "float32"

        Returns
        -------
        Estimator
            Fitted, of this class.

        Raises
        ------
        InputError
            When the model answers something else, or a file beside it is damaged.
        """
        folder = fitted.folder
        if fitted.task.kind != registry.create(cls.TASK).kind:
            what = f"which a {cls.__name__} does not answer; use minibert.load."
            raise InputError(f"{folder} was fine-tuned for {fitted.task.name}, {what}")
        stored: dict[str, Any] = {}
        if (folder / ESTIMATOR_FILE).exists():
            stored = read_json(folder / ESTIMATOR_FILE, {"estimator": str, "parameters": {}}, "save it again")
        elif (folder / OPTIONS_FILE).exists():
            options = FinetuneOptions.load(folder / OPTIONS_FILE)
            stored = {"parameters": vars(options) | {"random_state": options.seed}}
        known = cls._known_parameters(fitted, stored.get("parameters", {}))
        self = cls(**{"model": str(folder)} | known, engine=engine, threads=threads, dtype=dtype)
        self._fitted = fitted
        if (report := load_report(folder)) is not None:
            self._learn_report(report)
        self._learn_stored(stored)
        return self

    @classmethod
    def _known_parameters(cls, fitted: Finetuned, stored: dict[str, Any]) -> dict[str, Any]:
        """Return parameters of this class: names of columns of the model's task, and what was stored."""
        names = {field.name for field in fields(cls)} - {"threads", "engine", "dtype", "out"}
        parameters = {}
        for name, column in getattr(fitted.task, "columns", {}).items():
            is_number = str(column).lstrip("-").isdigit()
            if not is_number:
                parameters[name] = column
        parameters |= stored
        known = {name: value for name, value in parameters.items() if name in names}
        if known.get("split_dev", 0) is None:
            del known["split_dev"]
        return known

    def _learn_report(self, report: dict[str, Any]) -> None:
        """Take over a report, without the places of files: those of `fit` may be gone."""
        kept: Any = {name: value for name, value in report.items() if name not in ("folder", "page")}
        self.report_: FinetuneReport = _readable(kept)

    def _learn_stored(self, stored: dict[str, Any]) -> None:
        """Take over what `_stored` of a subclass has beside the parameters."""
        return

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_scratch"}

    # scikit-learn's protocol

    def __sklearn_is_fitted__(self) -> bool:
        return getattr(self, "_fitted", None) is not None

    def __sklearn_tags__(self) -> Any:
        utils = sys.modules["sklearn.utils"]  # which has been imported by whoever asks for this
        return utils.Tags(
            estimator_type=self.KIND or None,
            target_tags=utils.TargetTags(required=True),
            classifier_tags=utils.ClassifierTags() if self.KIND == "classifier" else None,
            regressor_tags=utils.RegressorTags() if self.KIND == "regressor" else None,
            input_tags=utils.InputTags(one_d_array=True, two_d_array=False, string=True),
        )


def _as_lines(rows: Iterable[dict[str, Any]]) -> str:
    """Return rows as JSON lines."""
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    return "".join(lines)


def _has_same_files(folder: Path, texts: dict[str, str]) -> bool:
    """Tell whether a folder has these files of examples, by their names without .jsonl, and no others."""
    names = {path.stem for path in folder.glob("*.jsonl")}
    if names != texts.keys():
        return False
    for name, text in texts.items():
        data = b"".join(byte_pieces(folder / f"{name}.jsonl"))
        if data != text.encode():
            return False
    return True
