"""The cells of an experiment: pre-trainings, fine-tunings and baselines, each with its result.

A `Plan` lists the cells of some tables, each once, with a cell before those that need it; `Cell.run` computes
the result.
"""

import shutil
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from minibert import hub
from minibert.base.errors import InputError, MissingFile, naming
from minibert.base.files import atomic_json
from minibert.base.json_files import read_json
from minibert.base.model_names import VOCABULARY_FILE, WEIGHTS_FILE, kept_steps
from minibert.base.options import MOST, PRETRAINING_FILE, RunOptions
from minibert.core.config import BertConfig
from minibert.data.corpus import embedded_corpus, find_files, sentences
from minibert.data.glue import TASKS as GLUE
from minibert.data.shards.joined import vocabulary_of
from minibert.data.shards.parts import Manifest, Part, finished_part, plan_part, write_part
from minibert.engines.flops import encoder_operations, step_operations
from minibert.experiments.baselines import strongest
from minibert.experiments.outcomes import measured
from minibert.experiments.scales import COLUMNS, MADE, Scale, Source, find_source
from minibert.experiments.tables import BERT, MODELS, SHARES, UNTRAINED, Column, Row, Table
from minibert.finetuning.examples import read_examples
from minibert.finetuning.frozen.activations import layers_of
from minibert.finetuning.models import open_model
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.predicting import predict_examples
from minibert.finetuning.run import finetune, predict
from minibert.finetuning.splitting import subset
from minibert.hub.vocabularies import read_tokenizer
from minibert.model.params import initialise
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.preparation import learn_vocabulary, watched
from minibert.pretraining.run import pretrain
from minibert.tasks import registry
from minibert.tasks.stored import OPTIONS_FILE

TEXT = "text"  # folder of the vocabulary and shards, which all pre-trainings share
ASKED = "vocabulary.json"  # the vocabulary size that was asked for; little text may yield fewer pieces
WITH_TEST = ("ner-sentences",)  # sources whose test files have labels
SUBMISSION = "submission"  # folder of answers for GLUE's server
TEST_SETS = {"mnli": ("mnli", "mnli-mm", "ax")}  # test sets of tasks that have several
CHECKPOINTS = (BERT, "ltr")  # models whose checkpoints Figure 5 measures
USUAL_LENGTH = 128  # tokens of an example to estimate the work with, if the options don't limit it
Result = dict[str, Any]


class Cell(NamedTuple):
    """One training or baseline."""

    name: str
    kind: str  # "pre-training", "fine-tuning" or "baseline"
    settings: Callable[[], Mapping[str, Any]]  # all that determines the result; call after `prepare_text`
    work: float  # floating-point operations, roughly
    run: Callable[[bool], Result]  # True: show progress
    needs: str = ""  # name of the cell that has to be run first


@dataclass(frozen=True)
class Plan:
    """The settings that all cells of an experiment share."""

    out: Path
    scale: Scale
    data: Path | None = None  # folder with the files of all tasks
    text: tuple[str, ...] = ()  # files of the corpus; empty: the books in the package
    model: str | None = None  # a trained BERT, instead of pre-training one
    _sources: dict[str, Source | None] = field(default_factory=dict, init=False, repr=False, compare=False)

    def prepare_text(self, show: bool = True) -> None:
        """Learn the vocabulary and write the shards, unless they exist already.

        Parameters
        ----------
        show : bool, default True
            Show a progress bar.

        Raises
        ------
        InputError
            When the folder has a vocabulary of another size, or a file of the text is missing or damaged.
        """
        files = find_files(self.text or embedded_corpus())
        layout = "auto" if self.text else "sentences"
        size = self.scale.pretraining["vocab_size"]
        size_file = self.out / ASKED
        folder = self.out / TEXT
        if (folder / VOCABULARY_FILE).exists():
            tokenizer = vocabulary_of(folder)
        else:
            atomic_json(size_file, {"vocab_size": size})
            tokenizer = learn_vocabulary(self.text, size, show=show)
        learnt_size: Any = tokenizer.vocab_size
        if size_file.exists():
            learnt_size = read_json(size_file).get("vocab_size")
        if learnt_size != size:
            what = f"was learnt for {learnt_size} pieces, and the scale {self.scale.name} asks for {size}"
            advice = "choose another `out`, or remove that folder if nothing of it is to be kept."
            raise InputError(f"The vocabulary in '{folder}' {what}; {advice}")
        planned, files_of_part = plan_part(files, Part(), layout, tokenizer)
        if not finished_part(folder, planned):
            stream = watched(sentences(files_of_part, layout), "writing shards", show)
            write_part(stream, tokenizer, folder, planned)

    def pretraining(self, model: str, seed: int) -> PretrainOptions:
        """Return the options of a pre-training; all read the same shards.

        Parameters
        ----------
        model : str
            A name of `MODELS`.
        seed : int

        Returns
        -------
        PretrainOptions
            With the recipe's values in place of None. Models in CHECKPOINTS keep every checkpoint.
        """
        options = {**self.scale.pretraining, **MODELS[model]}
        shape = options.pop("shape", "12-768-12")
        options["size"] = self.scale.shapes[shape]
        options["seed"] = seed
        options["shards"] = str(self.out / TEXT)
        options["vocab_size"] = PretrainOptions.vocab_size  # the shards bring one
        if model in CHECKPOINTS:
            options["keep"] = 0
            options["checkpoint_steps"] = max(1, round(min(SHARES) * options["steps"]))
        return PretrainOptions(**options).resolved()

    def folder(self, model: str, seed: int) -> Path:
        """Return the folder of a pre-training.

        Parameters
        ----------
        model : str
            A name of `MODELS`.
        seed : int

        Returns
        -------
        Path
            Inside `out`.
        """
        return self.out / "models" / f"{model}-seed{seed}"

    @cached_property
    def given(self) -> tuple[BertConfig, int]:
        """Return the configuration of `model`, and a checksum of its weights."""
        config, params, _ = hub.load(self.model or "")
        return config, zlib.crc32(np.asarray(params.flat).data)

    def brings(self, model: str) -> bool:
        """Return whether a row's model has the shape and vocabulary of the trained BERT `self.model`.

        Parameters
        ----------
        model : str
            Name of the row's model, one of `MODELS`.

        Returns
        -------
        bool
            False if there is no such BERT.
        """
        return bool(self.model) and model in (BERT, UNTRAINED)

    def source(self, column: Column) -> Source | None:
        """Return the source of a column's task.

        Parameters
        ----------
        column : Column

        Returns
        -------
        Source, or None
            None for held-out text, and for a task whose files are missing and that nothing can replace.
        """
        role = column.task
        if not column.held_out and role not in self._sources:
            has_read_books = not (self.text or self.model)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the training that reads them warns
                source = find_source(role, self.data, self.out / MADE, has_read_books)
            self._sources[role] = source
        return self._sources.get(role)

    def finetuning(self, row: Row, column: Column, seed: int) -> FinetuneOptions:
        """Return the options of a fine-tuning.

        Parameters
        ----------
        row : Row
            The model to fine-tune, and how.
        column : Column
            The task; not one that is `left_out`.
        seed : int
            Seed of the fine-tuning, and of the pre-training that it starts from.

        Returns
        -------
        FinetuneOptions
            Options of the scale for all tasks; those for this task, of the row, and of the column take
            precedence, in rising order.
        """
        source = self.source(column)
        assert source  # columns without a source are left out
        tasks = self.scale.tasks
        options = {**tasks[""], **tasks.get(column.task, {}), **row.finetuning, **column.finetuning}
        options["columns"] = COLUMNS.get(source.key, ())
        if options.get("feature_based"):  # frozen features have a recipe of their own
            options["learning_rates"] = None
            options["epochs"] = None
        start = str(self.folder(row.model, seed))
        if row.share < 1:
            start += f"@{round(row.share * self.scale.pretraining['steps'])}"
        if self.model and row.model == BERT:
            start = self.model
        return FinetuneOptions(source.task, str(source.data), start, seed=seed, **options)

    def columns(self, table: Table) -> list[Column]:
        """Return the columns of a table whose files exist; if several would measure the same, only the first.

        Parameters
        ----------
        table : Table

        Returns
        -------
        list of Column
            In the table's order.
        """
        left_out = self.left_out(table)
        return [column for column in table.columns if column.name not in left_out]

    def left_out(self, table: Table) -> dict[str, str]:
        """Explain why columns of a table are left out.

        Parameters
        ----------
        table : Table

        Returns
        -------
        dict of str
            Name of a column -> the reason, worded as the end of a sentence.
        """
        first_with: dict[Any, str] = {}
        why = {}
        for column in table.columns:
            key = self._key(column)
            task = column.task.upper()
            first = first_with.setdefault((key, column.split, *column.finetuning.items()), task)
            if not (column.held_out or self.source(column)):
                why[column.name] = "no files of its own, nor of what could stand in, left out"
            elif column.split == "test" and key not in WITH_TEST:
                why[column.name] = "what stands in has no test files with labels, left out"
            elif first != task:
                why[column.name] = f"no files of its own; the same examples as {first}'s column, left out"
        return why

    def cells(self, tables: Iterable[Table], seeds: Sequence[int]) -> list[Cell]:
        """List the cells of some tables, each once, one seed after the other.

        Parameters
        ----------
        tables : iterable of Table
            Iterated once for each seed, so not an iterator if there are several seeds.
        seeds : sequence of int

        Returns
        -------
        list of Cell
            Each cell follows the one that it needs.
        """
        by_name: dict[str, Cell] = {}
        for seed in seeds:
            for table in tables:
                for row in table.rows:
                    for cell in self._row_cells(row, self.columns(table), seed):
                        by_name.setdefault(cell.name, cell)
        return list(by_name.values())

    def _row_cells(self, row: Row, columns: Sequence[Column], seed: int) -> Iterator[Cell]:
        """Yield the cells of a row: its pre-training, then the baseline and the fine-tuning of each task."""
        if not (self.model and row.model == BERT):
            yield self._pretraining_cell(row.model, seed)
        for column in columns:
            if not column.held_out:
                yield self._baseline_cell(column)
                yield self._finetuning_cell(row, column, seed)

    def finetuning_name(self, row: Row, column: Column, seed: int) -> str:
        """Name the cell of a fine-tuning by its settings.

        Parameters
        ----------
        row : Row
        column : Column
        seed : int

        Returns
        -------
        str
            Such as "bert/mnli/seed0".
        """
        return f"{self.row_name(row, column)}/{self._key(column)}/seed{seed}"

    def row_name(self, row: Row, column: Column) -> str:
        """Name the model that is fine-tuned, and the options of row and column.

        Parameters
        ----------
        row : Row
        column : Column

        Returns
        -------
        str
            Such as "bert@5%" for a checkpoint after 5% of the steps, or "ltr+bilstm".
        """
        name = row.model
        if row.share < 1:
            name += f"@{row.share:.0%}"
        for option, value in {**row.finetuning, **column.finetuning}.items():
            name += f"+{option}" if value is True else f"+{value}"
        return name

    def baseline_name(self, column: Column) -> str:
        """Name the cell of a baseline that needs no model.

        Parameters
        ----------
        column : Column

        Returns
        -------
        str
            Such as "baseline/mnli".
        """
        return f"baseline/{self._key(column)}"

    def title(self, column: Column) -> str:
        """Describe the examples of a column.

        Parameters
        ----------
        column : Column

        Returns
        -------
        str
            For people; for a task that replaces the paper's, with the reason.
        """
        source = self.source(column)
        if source:
            return f"{source.title}. {source.missing}".removesuffix(". ")
        return "masked words of documents that were held out"

    def _key(self, column: Column) -> str:
        """Return the name of a column's examples in the results."""
        source = self.source(column)
        return source.key if source else column.task

    def _settings_of(self, model: str, seed: int) -> dict[str, Any]:
        """Return all that determines a model before fine-tuning: its options and text, or the given BERT."""
        if self.brings(model):
            config, checksum = self.given
            return {"model": model, "given": checksum, "config": config.to_dict()}
        manifest = Manifest.read(self.out / TEXT)
        settings = _settings(self.pretraining(model, seed), "corpus", "shards")
        settings["model"] = model
        settings["text"] = manifest.corpus_sha256, manifest.tokenizer_sha256
        return settings

    def _pretraining_cell(self, model: str, seed: int) -> Cell:
        """Return the cell of a pre-training, or of an untrained model."""
        options = self.pretraining(model, seed)
        folder = self.folder(model, seed)

        def run(show: bool) -> Result:
            if model == UNTRAINED:
                return self._untrained(options, folder)
            return _pretrained(options, folder, show)

        work = 0.0
        if model != UNTRAINED:
            work = self._work_of(options)
        return Cell(
            pretraining_name(model, seed),
            "pre-training",
            partial(self._settings_of, model, seed),
            work,
            run,
        )

    def _work_of(self, options: PretrainOptions) -> float:
        """Count the floating-point operations of a pre-training, as if every sequence had the full length."""
        config = options.model_config(self.scale.pretraining["vocab_size"])
        work = 0.0
        for stage in options.stages(options.steps or 0):
            sequences = options.tokens_per_step // stage.seq_length
            lengths = np.full(sequences, stage.seq_length)
            masked = lengths if options.left_to_right else lengths * options.masked_lm_prob
            steps = stage.end - stage.begin
            work += steps * step_operations(config, lengths, masked)
        return work

    def _untrained(self, options: PretrainOptions, folder: Path) -> Result:
        """Write a BERT with its initial weights."""
        if self.model:
            tokenizer = read_tokenizer(self.model)
            config, _ = self.given
        else:
            tokenizer = vocabulary_of(options.shards or "")
            config = options.model_config(tokenizer.vocab_size)
        params = initialise(config, options.seed)
        hub.save_hf(folder, config, params)
        tokenizer.save_pretrained(folder, config.P)
        return {"parameters": params.count(), "tokens": 0}

    def _finetuning_cell(self, row: Row, column: Column, seed: int) -> Cell:
        """Return the cell of a fine-tuning; raise InputError if the given BERT is too small for it."""
        options = self.finetuning(row, column, seed)
        name = self.finetuning_name(row, column, seed)
        source = self.source(column)
        assert source  # `finetuning` has checked it
        config = BertConfig.from_size(self.pretraining(row.model, seed).size or "tiny")
        if self.brings(row.model):
            config, _ = self.given
            with naming(f"{row.title} on {column.title}"):
                options.check_model(config.L, config.P, str(self.model))
                layers_of(options.feature_based or "last", config.L)
        folder = self.out / "cells" / name.replace("/", "-")
        submission = None
        if row.model == BERT and row.share == 1 and not row.finetuning:
            submission = self.out / SUBMISSION / f"seed{seed}"
        needs = pretraining_name(row.model, seed)
        if self.model and row.model == BERT:
            needs = ""

        def settings() -> dict[str, Any]:
            result = _settings(options.resolved(), "data", "model")
            result["start"] = self._settings_of(row.model, seed)
            result["share"] = row.share
            result["examples"] = source.fingerprint
            return result

        def run(show: bool) -> Result:
            if needs and not (self.folder(row.model, seed) / WEIGHTS_FILE).exists():
                # The pre-training's result is stored, but its folder was removed.
                self._pretraining_cell(row.model, seed).run(show)
            with_test = self._key(column) in WITH_TEST
            return _finetuned(options, folder, with_test, submission, show)

        # In units of a forward pass over all examples, an epoch costs 3 (a backward pass costs 2), and
        # measuring costs 1. An example is taken to fill half of the maximal length.
        half_length = (options.max_length or USUAL_LENGTH) // 2
        examples = min(options.train_examples or MOST, source.train)
        forward = examples * encoder_operations(config, np.array([half_length]))
        epochs: Any = options.resolved().epochs  # a single number, because a cell is not a sweep
        work = forward * (1 + 3 * (epochs or 1))
        return Cell(name, "fine-tuning", settings, work, run, needs)

    def _baseline_cell(self, column: Column) -> Cell:
        """Return the cell of a baseline that needs no model."""
        options = self.finetuning(Row("", BERT), column._replace(finetuning={}), 0)
        source = self.source(column)
        settings = {
            "task": options.task,
            "train_examples": options.train_examples,
            "dev_examples": options.dev_examples,
            "columns": options.columns,
            "examples": source.fingerprint if source else 0,
        }
        with_test = self._key(column) in WITH_TEST

        def run(show: bool) -> Result:
            return _baseline(options, with_test)

        return Cell(self.baseline_name(column), "baseline", lambda: settings, 0.0, run)


def baseline_field(split: str) -> str:
    """Return the field that names the strongest baseline, in the result of a baseline's cell.

    Parameters
    ----------
    split : str
        "dev" or "test".

    Returns
    -------
    str
    """
    return "baseline" if split == "dev" else f"baseline of {split}"


def pretraining_name(model: str, seed: int) -> str:
    """Name the cell of a pre-training.

    Parameters
    ----------
    model : str
        A name of `MODELS`.
    seed : int

    Returns
    -------
    str
        Such as "bert/seed0".
    """
    return f"{model}/seed{seed}"


def _settings(options: Any, *paths: str) -> dict[str, Any]:
    """Return the options that determine a training's result, without those that are paths of files."""
    irrelevant = RunOptions.FREE | RunOptions.MACHINE | set(paths)
    return {name: value for name, value in asdict(options).items() if name not in irrelevant}


def _pretrained(options: PretrainOptions, folder: Path, show: bool) -> Result:
    """Pre-train, and keep only the checkpoints that Figure 5 needs."""
    stored = folder / PRETRAINING_FILE
    report = pretrain(options, folder, resume=stored.exists(), show=show)
    result: Result = {}
    for name in ("loss", "text_unigram", "accuracy", "next_accuracy", "next_majority"):
        result[name] = report["held_out"][name]
    for name in ("parameters", "tokens", "steps"):
        result[name] = report[name]
    if not options.keep:
        wanted = {round(share * report["steps"]) for share in SHARES}
        for step, path in kept_steps(folder / "checkpoints"):
            if step not in wanted:
                path.unlink()
    result["dtype"] = PretrainOptions.load(stored).dtype  # the one that "auto" chose
    result["seconds"] = report["training_seconds"]
    return result


def _finetuned(
    options: FinetuneOptions, folder: Path, with_test: bool, submission: Path | None, show: bool
) -> Result:
    """Fine-tune, and keep only the values of the metric and GLUE's answers."""
    options = options.resolved()  # the paper's rate and dropout for any model, as in the cell's settings
    report = finetune(options, folder, resume=(folder / OPTIONS_FILE).exists(), show=show)
    model = open_model(folder)
    result = {name: report[name] for name in ("task", "metric", "best_epoch")}
    result["seconds"] = report["training_seconds"]  # including those before an interruption
    for split in ("dev", "test") if with_test else ("dev",):
        examples = _measured_on(model.task, options, split)
        predictions = list(predict_examples([model], examples))
        result[split] = measured(model.task, examples, predictions).to_json()
    if submission and options.task in GLUE:
        for test_set in TEST_SETS.get(options.task, (options.task,)):
            # Left by a call that was stopped before the cell's result was stored.
            (submission / f"{test_set}-test.jsonl").unlink(missing_ok=True)
            with suppress(MissingFile):
                predict([folder], options.data, "test", submission, task=test_set)
    shutil.rmtree(folder)
    return result


def _baseline(options: FinetuneOptions, with_test: bool) -> Result:
    """Predict by the strongest trivial rule; keep its name and the values of the metric."""
    task = registry.create(options.task, dict(options.columns))
    train, _ = read_examples(task, options)
    result: Result = {}
    for split in ("dev", "test") if with_test else ("dev",):
        examples = _measured_on(task, options, split)
        name, predictions = strongest(task, train, examples, task.labels(train))
        result[baseline_field(split)] = name
        result[split] = measured(task, examples, predictions).to_json()
    return result


def _measured_on(task: Any, options: FinetuneOptions, split: str) -> list[Any]:
    """Read the examples of a split to measure on, at most `dev_examples`."""
    if split == "dev":
        return read_examples(task, options)[1]
    return subset(task.read(Path(options.data), split), options.dev_examples)
