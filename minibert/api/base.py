"""The base class of all estimators: parameters, `fit`, `save`, and scikit-learn's protocol.

An estimator is a dataclass that holds the options of a fine-tuning run. `fit` does what `minibert finetune`
does, but with examples in memory, and loads the result. Whatever holds for that command holds here as well.
"""

import json
import os
import sys
import tempfile
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np

from minibert import engines
from minibert.api.calls import explains_unknown_arguments
from minibert.api.inputs import GENERATORS, plain, seed_of
from minibert.api.parameters import Parameterised
from minibert.ask.inference import lay_out, require_no_other
from minibert.base.errors import (
    DivergedError,
    InputError,
    Interrupted,
    naming,
    warn,
)
from minibert.base.files import atomic_json, atomic_text, crc32_of, sole_writer
from minibert.base.foreign_names import ExplainsNames, explains_foreign_attributes
from minibert.base.json_files import read_json
from minibert.base.options import PRETRAINING_FILE, option
from minibert.base.paths import path_of
from minibert.base.reading import byte_pieces
from minibert.finetuning.examples import TRAINED_TEXTS, Rows, trained_texts, warn_of_trained_texts
from minibert.finetuning.models import Finetuned
from minibert.finetuning.options import FinetuneArguments, FinetuneOptions
from minibert.finetuning.predicting import predict_examples
from minibert.finetuning.preparation import bag_of_words_in
from minibert.finetuning.run import finetune, resolved
from minibert.model.ops import Ops
from minibert.reports.contents import Evaluation, FinetuneReport
from minibert.reports.results import REPORT, Measured, load_report, measured_text, report_of, trivial_remark
from minibert.tasks import registry
from minibert.tasks.stored import OPTIONS_FILE, TAGGER_FILE, TASK_FILE
from minibert.tasks.truncation import Truncation, warn_of_truncation
from minibert.training.runlog import ON_LOG, OnLog, takes_log

ESTIMATOR_FILE = "estimator.json"  # parameters and classes, in the folder of a saved model
Metrics = TypeVar("Metrics", bound=Evaluation)


class ReadableMetrics(dict[str, Any]):
    """The metrics of a model, which print as a table."""

    def __repr__(self) -> str:
        return measured_text(self)


def _readable(metrics: Metrics) -> Metrics:
    """Return the metrics as a dictionary that prints as a table."""
    return cast(Metrics, ReadableMetrics(metrics))


class NotFitted(InputError, AttributeError):
    """Report that an estimator was used before it was fitted or loaded."""


@explains_foreign_attributes
@dataclass(eq=False, repr=False)
class Estimator(Parameterised, FinetuneArguments, metaclass=ExplainsNames):
    """Fine-tuning for data in memory; a subclass says what is learnt.

    Parameters are only checked by `fit`. They are the options of `minibert finetune` and have the same names,
    except that `seed` is `random_state`. An option that is None follows the recipe of the task.
    """

    model: str | os.PathLike[str] = field(
        metadata={"help": "what to start from: a run folder, a BERT from Hugging Face, or a fine-tuned model"}
    )
    _: KW_ONLY
    out: str | os.PathLike[str] | None = option(
        None, "the run folder", default="a temporary one, which is removed after `fit`"
    )
    verbose: bool = option(False, "show progress: a bar in a notebook or terminal, lines elsewhere")
    random_state: int | np.integer[Any] | np.random.Generator | np.random.RandomState | None = option(
        0, "the seed: an integer, or a NumPy generator from which one is drawn; None is 0"
    )
    ops: Ops | None = option(None, "a custom engine object, instead of `engine`", default="none")
    on_log: OnLog | None = option(
        None,
        "called with the number of a step and its metrics, by names such as train/loss; if it raises "
        "minibert.StopTraining, the run ends with that step, finished like any other",
        default="",
    )
    split_dev: float = option(
        0.1, "share of the examples to evaluate on; of each class, if there are classes"
    )

    KIND: ClassVar[str] = ""  # scikit-learn's name for this type of estimator
    TASK: ClassVar[str]  # the task of `minibert finetune` for custom tables

    # What is learnt

    @abstractmethod
    def _examples(self, X: Any, y: Any = None, labelled: bool = False) -> list[Any]:
        """Check some rows and return them as examples of the task; if `labelled`, with their labels.

        The first labelled rows that a classifier reads also define its classes.
        """

    @abstractmethod
    def _row(self, example: Any) -> dict[str, Any]:
        """Return an example as a row of a table, with the columns that its task expects."""

    # Fitting

    @explains_unknown_arguments
    def fit(self, X: Any, y: Any = None, *, dev: tuple[Any, Any] | None = None) -> Self:
        """Fine-tune the model on some data.

        After every epoch, the model is evaluated on examples that it is not trained on, and the best epoch is
        kept. Files are written to the folder `out`, which becomes a run folder like those of `minibert
        finetune`; without `out`, they are kept in a temporary folder until `fit` is done. Ctrl-C, or a
        notebook's interrupt button, saves the run; calling `fit` again with the same data resumes it.

        Parameters
        ----------
        X : list, array, column or table
            The texts; or a table (pandas, polars, `datasets`, a dictionary of columns). Parameters of the
            estimator name its columns.
        y : list, array, column or str, optional
            The label of each row; if X is a table, this can be the name of a column. A label is a class
            (`TextClassifier`), a list of classes (`MultilabelClassifier`), a number (`TextRegressor`), a list
            of tags (`TokenTagger`), or an answer, several or none (`QuestionAnswerer`).
        dev : tuple, optional
            X and y to evaluate on, instead of the share `split_dev` of the training examples.

        Returns
        -------
        Estimator
            The estimator itself, with the attribute `report_`: the contents of a run's `report.json`.

        Raises
        ------
        InputError
            When data, model, folder or a parameter can't be used; the message names the row.
        RunError
            When the loss is not a number, or the disk is full.
        KeyboardInterrupt
            After Ctrl-C; the message says whether the run was saved.
        """
        interrupted = vars(self).get("_scratch")
        try:
            return self._fit(X, y, dev)
        except BaseException as error:
            self._drop_scratch(error, interrupted)
            raise

    def _fit(self, X: Any, y: Any, dev: tuple[Any, Any] | None) -> Self:
        """Do the work of `fit`; may leave a temporary folder behind if it fails."""
        if self.ops is not None and not isinstance(self.ops, Ops):
            advice = 'give an engine object, or one by its name, such as engine="numpy"'
            raise InputError(f"ops={self.ops!r} is not valid; {advice}.", ops=self.ops)
        if not (self.on_log is None or takes_log(self.on_log)):
            raise InputError(f"on_log={self.on_log!r} is not valid; give {ON_LOG}.", on_log=self.on_log)
        learner = type(self)(**self.get_params())  # if this fails, an earlier fit of `self` stays intact
        rows = learner._training_rows(X, y, dev)
        texts = {"train": _as_lines(map(self._row, rows.train))}
        if rows.dev is not None:
            texts["dev"] = _as_lines(map(self._row, rows.dev))
        options, folder, resume = self._start_run(texts, list(self._row(rows.train[0])))
        report = self._train(rows, texts, options, folder, resume)
        fitted = Finetuned.from_pretrained(folder, self.engine, threads=self.threads, dtype=options.dtype)
        if self.ops is not None:
            fitted = replace(fitted, ops=self.ops)
        vars(self).update(vars(learner))
        self._fitted = fitted
        self._bag_of_words = bag_of_words_in(folder, fitted.labels, rows)
        self._trained_texts = trained_texts(folder)
        self._set_report(report)
        self._warned_of_cuts = "truncated" in report
        self._label_column = y if isinstance(y, str) else None
        atomic_json(folder / ESTIMATOR_FILE, self._stored())
        if scratch := vars(self).pop("_scratch", None):
            scratch.cleanup()
        if remark := trivial_remark(report):
            warn(f"{remark} Give more examples, more epochs or another rate.")
        return self

    def _training_rows(self, X: Any, y: Any, dev: tuple[Any, Any] | None) -> Rows:
        """Return the training examples, and the ones to evaluate on if `dev` is given."""
        train = self._examples(X, y, labelled=True)
        if dev is None:
            if len(train) < 2:
                raise InputError(
                    "X has one sample, and the model is measured on another; give more, or `dev`."
                )
            if self.split_dev is None:
                advice = "give a share, such as 0.1, or fit(X, y, dev=(X_dev, y_dev))."
                raise InputError(f"split_dev=None leaves nothing to measure on; {advice}", split_dev=None)
            return Rows(train)
        if isinstance(dev, float):
            advice = f"for a share of the examples, give split_dev={dev!r} to {type(self).__name__}(...)."
            raise InputError(f"{dev=} is not a tuple of X and y; {advice}", dev=dev, split_dev=dev)
        if not isinstance(dev, tuple) or len(dev) != 2:
            raise InputError("dev is not a tuple of X and y; give dev=(X_dev, y_dev).")
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
        """Fine-tune on `rows`, and write the same examples to files: `texts`, by name.

        The files are for the commands. Here they only tell whether an interrupted run had the same examples.
        """
        data = folder / "examples"
        if not resume and data.exists():
            what = f"{data} does not belong to a fine-tuning run"
            raise InputError(f"{what}; remove it, or choose another folder.")
        with sole_writer(data):  # which removes the folder at the end if it is empty
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
                advice = "call fit again with the same data to resume."
                raise Interrupted(f"Stopped and saved in {folder}; {advice}") from None
            finally:
                if not (folder / OPTIONS_FILE).exists():  # the run did not start
                    for name in texts:
                        (data / f"{name}.jsonl").unlink(missing_ok=True)

    def _drop_scratch(self, error: BaseException, interrupted: Any) -> None:
        """Remove the temporary folder of a `fit` that ended with an error, unless it can be resumed.

        `interrupted` is the folder of an earlier `fit` that was interrupted, or None. Bad input to a later
        `fit` does not remove it.
        """
        scratch = vars(self).get("_scratch")
        if scratch is None:
            return
        is_new = scratch is not interrupted
        has_started = (Path(scratch.name) / OPTIONS_FILE).exists()
        cannot_resume = isinstance(error, InputError) or not has_started
        if isinstance(error, DivergedError) or (is_new and cannot_resume):
            vars(self).pop("_scratch").cleanup()

    def _start_run(self, texts: dict[str, str], columns: list[str]) -> tuple[FinetuneOptions, Path, bool]:
        """Return the options of the run, its folder, and whether it resumes an interrupted run there."""
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
            except InputError:  # the interrupted run had other options: discard it and start again
                vars(self).pop("_scratch").cleanup()
                return self._start_run(texts, columns)
        return options, folder, resume

    def _folder(self, texts: dict[str, str]) -> tuple[Path, bool]:
        """Return the folder of the run, and whether a run on the same data was interrupted there."""
        scratch = getattr(self, "_scratch", None)
        out = self.out
        folder = None
        if out is not None:
            folder = path_of(out, "out")
        elif scratch is not None:
            folder = Path(scratch.name)
        has_run = folder is not None and (folder / OPTIONS_FILE).exists()
        if folder is not None and has_run:
            has_same_examples = _has_same_files(folder / "examples", texts)
            if has_same_examples and load_report(folder) is None:  # it is not finished
                return folder, True
        if folder is None or out is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="minibert-", ignore_cleanup_errors=True)
            return Path(self._scratch.name), False
        if has_run:
            raise InputError(
                f"out={str(out)!r} already holds a run; load it, or choose another folder.", out=str(out)
            )
        return folder, False

    # Predicting

    def _predictions(self, examples: Sequence[Any]) -> list[Any]:
        """Return the model's predictions for examples, whose labels it does not see."""
        model = self.model_
        no_label = {model.task.label_field: None}
        unlabelled = [example._replace(**no_label) for example in examples]
        cuts = Truncation(model.max_length, long=model.task.long)
        with engines.limited_threads(self.threads, model.ops):
            predictions = list(predict_examples([model], unlabelled, cuts=cuts, show=self.verbose))
        if not getattr(self, "_warned_of_cuts", False):  # warn once, `fit` included
            self._warned_of_cuts = bool(warn_of_truncation({"": cuts}, model.config.P))
        return predictions

    @property
    def model_(self) -> Finetuned:
        """The fine-tuned model itself, with its `params`, `tokenizer`, `labels` and engine `ops`.

        Raises
        ------
        InputError
            When the estimator is not fitted.
        """
        fitted: Finetuned | None = getattr(self, "_fitted", None)
        if fitted is None:
            raise NotFitted(f"This {type(self).__name__} is not fitted yet; call fit first, or load one.")
        return fitted

    def _measured_examples(self, X: Any, y: Any) -> list[Any]:
        """Return labelled examples to measure the model on; warn if it was trained on many of them."""
        examples = self._examples(X, y, labelled=True)
        warn_of_trained_texts(examples, self._trained_texts)
        return examples

    @explains_unknown_arguments
    def evaluate(self, X: Any, y: Any = None) -> Evaluation:
        """Compute the task's metrics on some rows, with a 95% confidence interval and the trivial baseline.

        Parameters
        ----------
        X : list, array, column or table
            As for `fit`.
        y : list, array, column or str, optional
            The label of each row, as for `fit`.

        Returns
        -------
        dict
            `scores` by name; `metric`, the name of the one that models are selected by, and its 95%
            confidence `interval`; `mistakes`, the worst first. For classes also the scores of two baselines:
            `majority`, which always predicts the most frequent class, and `bag_of_words`, naive Bayes over
            words, trained on the same examples if these are known. It prints as a table.

        Raises
        ------
        InputError
            When there is no label, or a row can't be used; the message names the row.
        """
        model = self.model_
        examples = self._measured_examples(X, y)
        model.task.warn_unknown(examples, model.labels)
        if not hasattr(self, "_bag_of_words"):  # a loaded model, perhaps from a run folder with examples
            self._bag_of_words = bag_of_words_in(model.folder, model.labels)
        predictions = self._predictions(examples)
        measured = Measured(model.task, model.labels, examples, predictions, self._bag_of_words, model.tuned)
        mistakes = measured.mistakes(model.tokenizer, model.max_length)
        return _readable(report_of(measured, mistakes))

    @explains_unknown_arguments
    def score(self, X: Any, y: Any = None) -> float:
        """Return the metric by which the best epoch is chosen, of predictions for some rows.

        For a `TokenTagger` it is the F1 of whole entities, for a `QuestionAnswerer` the F1 of the words of
        the answers, as SQuAD's official script counts them.

        Parameters
        ----------
        X : list, array, column or table
            As for `fit`.
        y : list, array, column or str, optional
            The label of each row, as for `fit`.

        Returns
        -------
        float
            From 0 to 1.

        Raises
        ------
        InputError
            When there is no label, or a row can't be used; the message names the row.
        """
        task = self.model_.task
        examples = self._measured_examples(X, y)
        scores = task.score(examples, self._predictions(examples))
        return float(scores[task.metric])

    def optimize_for_inference(self, int8: bool = False) -> Self:
        """Speed up predictions for a few short texts, as `Bert.optimize_for_inference` does.

        Parameters
        ----------
        int8 : bool, default False
            Quantise the layers, but not the head.

        Returns
        -------
        Estimator
            The estimator itself.

        Raises
        ------
        InputError
            When nothing is fitted yet, or the engine can't do it.
        """
        lay_out(self.model_.ops, self.model_.params, int8)
        return self

    # Saving and loading

    def save(self, folder: str | Path) -> None:
        """Write the fitted model to a folder that `minibert.load`, the commands and `transformers` can load.

        Parameters
        ----------
        folder : str or path
            The folder to write to, created if need be. It must not hold a run or another fine-tuned model.

        Raises
        ------
        InputError
            When nothing is fitted yet, or the folder holds a run or another fine-tuned model.
        """
        folder = path_of(folder)
        model = self.model_
        is_its_folder = model.folder.name and folder.resolve() == model.folder.resolve()
        require_no_other(folder, () if is_its_folder else (PRETRAINING_FILE, TAGGER_FILE, OPTIONS_FILE))
        atomic_json(folder / ESTIMATOR_FILE, self._stored())
        columns = {}  # the names of the columns in the user's tables
        for name, column in getattr(model.task, "columns", {}).items():
            columns[name] = getattr(self, name, None) or column
        if "label" in columns and getattr(self, "_label_column", None):
            columns["label"] = self._label_column
        model.save_pretrained(folder, columns)
        atomic_json(folder / TRAINED_TEXTS, {"crc32": sorted(self._trained_texts)}, indent=None)
        if hasattr(self, "report_"):
            # The names of the user's columns are in the task's file now.
            digests = self.report_.get("crc32", {}) | {TASK_FILE: crc32_of(folder / TASK_FILE)}
            atomic_json(
                folder / REPORT, {**self.report_, "folder": str(folder), "page": "", "crc32": digests}
            )
        else:
            (folder / REPORT).unlink(missing_ok=True)  # the report of a model that was here before

    def _stored(self) -> dict[str, Any]:
        """Return the contents of `estimator.json`."""
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
        """Load a model from a folder that `save`, `fit` with `out`, or `minibert finetune` has written.

        Parameters
        ----------
        folder : str or path
            The folder. It has to hold a finished model for the task of this class.
        engine : str, default "auto"
            The name of the engine.
        threads : int, optional
            Number of threads of the engine; None: one for each core.
        dtype : str, default "float32"
            The precision of the computation; see `Bert.from_pretrained`.

        Returns
        -------
        Estimator
            A fitted estimator of this class.

        Raises
        ------
        InputError
            When the folder, its model, the engine or the dtype can't be used, or the model is for another
            task.
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
        """Return an estimator that predicts with a loaded model.

        Parameters
        ----------
        fitted : Finetuned
            The model. Parameters that are stored in its folder become those of the estimator.
        engine : str, default "auto"
            The name of the engine that the model was loaded with.
        threads : int, optional
            The number of threads that it was loaded with.
        dtype : str, default "float32"
            The precision that it was loaded with.

        Returns
        -------
        Estimator
            A fitted estimator of this class.

        Raises
        ------
        InputError
            When the model is for another task, or a file in its folder is damaged.
        """
        folder = fitted.folder
        if fitted.task.kind != registry.create(cls.TASK).kind:
            what = f"'{folder}' was fine-tuned for {fitted.task.name}"
            raise InputError(f"{what}, which is not a task of {cls.__name__}; use minibert.load.")
        stored: dict[str, Any] = {}
        if (folder / ESTIMATOR_FILE).exists():
            stored = read_json(folder / ESTIMATOR_FILE, {"estimator": str, "parameters": {}}, "save it again")
        elif (folder / OPTIONS_FILE).exists():
            options = FinetuneOptions.load(folder / OPTIONS_FILE)
            stored = {"parameters": vars(options) | {"random_state": options.seed}}
        parameters = cls._known_parameters(fitted, stored.get("parameters", {}))
        self = cls(**{"model": str(folder)} | parameters, engine=engine, threads=threads, dtype=dtype)
        self._fitted = fitted
        self._trained_texts = trained_texts(folder)
        if (report := load_report(folder)) is not None:
            self._set_report(report)
        self._set_stored(stored)
        return self

    @classmethod
    def _known_parameters(cls, fitted: Finetuned, stored: dict[str, Any]) -> dict[str, Any]:
        """Choose the constructor arguments of a loaded estimator.

        Stored parameters take precedence over the columns of the model's task. Left out are columns that are
        numbers, because data in memory has names, and what `load` is given or what belongs to the old run.
        """
        names = {field.name for field in fields(cls)} - {"threads", "engine", "dtype", "out"}
        parameters = {}
        for name, column in getattr(fitted.task, "columns", {}).items():
            is_number = str(column).lstrip("-").isdigit()
            if not is_number:
                parameters[name] = column
        parameters |= stored
        known = {name: value for name, value in parameters.items() if name in names}
        if "split_dev" in known and known["split_dev"] is None:  # stored by a run that had dev files
            del known["split_dev"]
        return known

    def _set_report(self, report: dict[str, Any]) -> None:
        """Set `report_`, without the paths of files: the folder of `fit` may be temporary."""
        without_paths: Any = {name: value for name, value in report.items() if name not in ("folder", "page")}
        self.report_: FinetuneReport = _readable(without_paths)

    def _set_stored(self, stored: dict[str, Any]) -> None:
        """Set what a subclass stores in addition to the parameters."""
        return

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_scratch"}

    # scikit-learn's protocol

    def __sklearn_is_fitted__(self) -> bool:
        return getattr(self, "_fitted", None) is not None

    def __sklearn_tags__(self) -> Any:
        utils = sys.modules["sklearn.utils"]  # only scikit-learn calls this, so it is imported
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
    """Return whether a folder has exactly these files of examples, given by their names without .jsonl."""
    names = {path.stem for path in folder.glob("*.jsonl")}
    if names != texts.keys():
        return False
    for name, text in texts.items():
        data = b"".join(byte_pieces(folder / f"{name}.jsonl"))
        if data != text.encode():
            return False
    return True
