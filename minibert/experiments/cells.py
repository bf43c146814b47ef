"""What an experiment consists of: pre-trainings, fine-tunings and baselines, each a cell with its result.

A `Plan` lists the cells of some tables, each once and what others need first; `Cell.run` returns the result.
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
from minibert.base.model_names import kept_steps
from minibert.base.options import MOST, RunOptions
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
from minibert.finetuning.frozen.activations import layers_of
from minibert.finetuning.models import open_model
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.predicting import predict_examples
from minibert.finetuning.preparation import read_examples, subset
from minibert.finetuning.run import finetune, predict
from minibert.hub.vocabularies import read_tokenizer
from minibert.model.params import initialise
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.preparation import learn_vocabulary, watched
from minibert.pretraining.run import pretrain
from minibert.tasks import registry
from minibert.tasks.stored import OPTIONS_FILE

TEXT = "text"  # the folder of vocabulary and shards, which all pre-trainings share
ASKED = "vocabulary.json"  # says for how many pieces the vocabulary was learnt; of little text it has fewer
WITH_TEST = ("ner-sentences",)  # sources whose test files have labels
SUBMISSION = "submission"  # the folder of answers for GLUE's server
TEST_SETS = {"mnli": ("mnli", "mnli-mm", "ax")}  # test sets of the task, where these are several
CHECKPOINTS = (BERT, "ltr")  # models that are measured on the way
Result = dict[str, Any]


class Cell(NamedTuple):
    """One training or baseline."""

    name: str
    kind: str  # "pre-training", "fine-tuning" or "baseline"
    settings: Callable[[], Mapping[str, Any]]  # what the result is a function of, once there is a text
    work: float  # floating-point operations, roughly
    run: Callable[[bool], Result]  # tells how it goes, where it is asked to
    needs: str = ""  # the cell that goes before


@dataclass(frozen=True)
class Plan:
    """What all cells of an experiment share."""

    out: Path
    scale: Scale
    data: Path | None = None  # the folder of all tasks' files
    text: tuple[str, ...] = ()  # the corpus; none: the books in the package
    model: str | None = None  # a trained BERT in place of the one that would be pre-trained
    _sources: dict[str, Source | None] = field(default_factory=dict, init=False, repr=False, compare=False)

    def prepare_text(self, show: bool = True) -> None:
        """Learn the vocabulary and write the shards, if they are not there already."""
        files, layout = find_files(self.text or embedded_corpus()), "auto" if self.text else "sentences"
        size, asked, there = self.scale.pretraining["vocab_size"], self.out / ASKED, self.out / TEXT
        if not (is_there := (there / "vocab.txt").exists()):
            atomic_json(asked, {"vocab_size": size})
        tokenizer = vocabulary_of(there) if is_there else learn_vocabulary(self.text, size, show=show)
        learnt = read_json(asked).get("vocab_size") if asked.exists() else tokenizer.vocab_size
        if learnt != size:
            what = f"was learnt for {learnt} pieces, and the scale {self.scale.name} asks for {size}"
            advice = "choose another --out, or remove that folder if nothing of it is to be kept."
            raise InputError(f"The vocabulary in {there} {what}; {advice}")
        planned, own = plan_part(files, Part(), layout, tokenizer)
        if not finished_part(self.out / TEXT, planned):
            stream = watched(sentences(own, layout), "writing shards", show)
            write_part(stream, tokenizer, self.out / TEXT, planned)

    def pretraining(self, model: str, seed: int) -> PretrainOptions:
        """Return the options of a pre-training; all read the same shards."""
        given = {**self.scale.pretraining, **MODELS[model]}
        size, steps = self.scale.shapes[given.pop("shape", "12-768-12")], given["steps"]
        given["vocab_size"] = PretrainOptions.vocab_size  # the shards bring one
        if model in CHECKPOINTS:
            given |= {"keep": 0, "checkpoint_steps": max(1, round(min(SHARES) * steps))}
        return PretrainOptions(size=size, seed=seed, shards=str(self.out / TEXT), **given).resolved()

    def folder(self, model: str, seed: int) -> Path:
        """Return where a model of `MODELS` is pre-trained."""
        return self.out / "models" / f"{model}-seed{seed}"

    @cached_property
    def given(self) -> tuple[BertConfig, int]:
        """The configuration of `model`, and a checksum of its weights."""
        config, params, _ = hub.load(self.model or "")
        return config, zlib.crc32(np.asarray(params.flat).data)

    def brings(self, model: str) -> bool:
        """Tell whether a row of this model has the shape and vocabulary of the `model` that was given."""
        return bool(self.model) and model in (BERT, UNTRAINED)

    def source(self, column: Column) -> Source | None:
        """Return where a column's task is; None where its files are missing and nothing stands in."""
        found = self._sources
        if not column.held_out and (role := column.task) not in found:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the training that reads them warns
                found[role] = find_source(role, self.data, self.out / MADE, not (self.text or self.model))
        return found.get(column.task)

    def finetuning(self, row: Row, column: Column, seed: int) -> FinetuneOptions:
        """Return the options of a fine-tuning."""
        source = self.source(column)
        assert source  # or the column would have been left out
        tasks = self.scale.tasks
        own = {**tasks[""], **tasks.get(column.task, {}), **row.finetuning, **column.finetuning}
        own["columns"] = COLUMNS.get(source.key, ())
        if own.get("feature_based"):  # its own recipe
            own |= {"learning_rates": None, "epochs": None}
        step = f"@{round(row.share * self.scale.pretraining['steps'])}" if row.share < 1 else ""
        start = self.model if self.model and row.model == BERT else f"{self.folder(row.model, seed)}{step}"
        return FinetuneOptions(source.task, str(source.data), start, seed=seed, **own)

    def columns(self, table: Table) -> list[Column]:
        """Return the columns of a table that there are files for; of those with the same files the first."""
        return [one for one in table.columns if one.name not in self.left_out(table)]

    def left_out(self, table: Table) -> dict[str, str]:
        """Say of the other columns, by name, why they are left out."""
        found, why = dict[Any, str](), {}
        for one in table.columns:
            first = found.setdefault((self._key(one), one.split, *one.finetuning.items()), one.task.upper())
            if not (one.held_out or self.source(one)):
                why[one.name] = "no files of its own, nor of what could stand in, left out"
            elif one.split == "test" and self._key(one) not in WITH_TEST:
                why[one.name] = "what stands in has no test files with labels, left out"
            elif first != one.task.upper():
                why[one.name] = f"no files of its own; the same examples as {first}'s column, left out"
        return why

    def cells(self, tables: Iterable[Table], seeds: Sequence[int]) -> list[Cell]:
        """List the cells of some tables, each once, a seed after the other."""
        found: dict[str, Cell] = {}
        for seed in seeds:
            for table in tables:
                for row in table.rows:
                    for cell in self._of_row(row, self.columns(table), seed):
                        found.setdefault(cell.name, cell)
        return list(found.values())

    def _of_row(self, row: Row, columns: Sequence[Column], seed: int) -> Iterator[Cell]:
        if not (self.model and row.model == BERT):
            yield self._pretraining_cell(row.model, seed)
        for column in columns:
            if not column.held_out:
                yield self._baseline_cell(column)
                yield self._finetuning_cell(row, column, seed)

    def finetuning_name(self, row: Row, column: Column, seed: int) -> str:
        """Name the cell of a fine-tuning by what makes it differ from others."""
        return f"{self.row_name(row, column)}/{self._key(column)}/seed{seed}"

    def row_name(self, row: Row, column: Column) -> str:
        """Name what of it is the row's, and how it is fine-tuned."""
        own = {**row.finetuning, **column.finetuning}
        how = "".join(f"+{name}" if value is True else f"+{value}" for name, value in own.items())
        return f"{row.model}{f'@{row.share:.0%}' * (row.share < 1)}{how}"

    def baseline_name(self, column: Column) -> str:
        """Name the cell of what needs no model."""
        return f"baseline/{self._key(column)}"

    def title(self, column: Column) -> str:
        """Say what the examples of a column are."""
        if source := self.source(column):
            return f"{source.title}. {source.missing}".removesuffix(". ")
        return "masked words of documents that were held out"

    def _key(self, column: Column) -> str:
        source = self.source(column)
        return source.key if source else column.task

    def _settings_of(self, model: str, seed: int) -> dict[str, Any]:
        if self.brings(model):
            config, checksum = self.given
            return {"model": model, "given": checksum, "config": config.to_dict()}
        made = Manifest.read(self.out / TEXT)
        text = made.corpus_sha256, made.tokenizer_sha256
        return _settings(self.pretraining(model, seed), "corpus", "shards") | {"model": model, "text": text}

    def _pretraining_cell(self, model: str, seed: int) -> Cell:
        options, folder = self.pretraining(model, seed), self.folder(model, seed)
        name, settings, work = pretraining_name(model, seed), partial(self._settings_of, model, seed), 0.0
        if model == UNTRAINED:
            return Cell(name, "pre-training", settings, work, lambda show: self._untrained(options, folder))
        config = options.model_config(self.scale.pretraining["vocab_size"])
        for stage in options.stages(options.steps or 0):
            lengths = np.full(options.tokens_per_step // stage.seq_length, stage.seq_length)
            masked = lengths if options.left_to_right else lengths * options.masked_lm_prob
            work += (stage.end - stage.begin) * step_operations(config, lengths, masked)
        return Cell(name, "pre-training", settings, work, lambda show: _pretrained(options, folder, show))

    def _untrained(self, options: PretrainOptions, folder: Path) -> Result:
        """Write a BERT with its initial values."""
        tokenizer = read_tokenizer(self.model) if self.model else vocabulary_of(options.shards or "")
        config = self.given[0] if self.model else options.model_config(tokenizer.vocab_size)
        params = initialise(config, options.seed)
        hub.save_hf(folder, config, params)
        tokenizer.save_pretrained(folder, config.P)
        return {"parameters": params.count(), "tokens": 0}

    def _finetuning_cell(self, row: Row, column: Column, seed: int) -> Cell:
        options, name = self.finetuning(row, column, seed), self.finetuning_name(row, column, seed)
        source = self.source(column)
        assert source  # or there would be no options
        length, examples = (options.max_length or 128) // 2, min(options.train_examples or MOST, source.train)
        config = BertConfig.from_size(self.pretraining(row.model, seed).size or "tiny")
        if self.brings(row.model):
            config = self.given[0]
            with naming(f"{row.title} on {column.title}"):
                options.check_model(config.L, config.P, f"--model {self.model}")
                layers_of(options.feature_based or "last", config.L)
        once = examples * encoder_operations(config, np.array([length]))
        folder = self.out / "cells" / name.replace("/", "-")
        whole = row.model == BERT and row.share == 1 and not row.finetuning
        submission = self.out / SUBMISSION / f"seed{seed}" if whole else None
        needs = "" if self.model and row.model == BERT else pretraining_name(row.model, seed)

        def settings() -> dict[str, Any]:
            own = {"start": self._settings_of(row.model, seed), "share": row.share}
            return _settings(options.resolved(), "data", "model") | own | {"examples": source.fingerprint}

        def run(show: bool) -> Result:
            if needs and not (self.folder(row.model, seed) / "model.safetensors").exists():
                self._pretraining_cell(row.model, seed).run(show)  # its result alone was kept
            return _finetuned(options, folder, self._key(column) in WITH_TEST, submission, show)

        epochs: Any = options.resolved().epochs  # one number: a cell is no sweep
        return Cell(name, "fine-tuning", settings, once * (1 + 3 * (epochs or 1)), run, needs)

    def _baseline_cell(self, column: Column) -> Cell:
        options = self.finetuning(Row("", BERT), column._replace(finetuning={}), 0)
        keys = ("task", "train_examples", "dev_examples", "columns")
        settings = {key: getattr(options, key) for key in keys}
        settings["examples"] = source.fingerprint if (source := self.source(column)) else 0
        name, with_test = self.baseline_name(column), self._key(column) in WITH_TEST
        return Cell(name, "baseline", lambda: settings, 0.0, lambda show: _baseline(options, with_test))


def pretraining_name(model: str, seed: int) -> str:
    """Name the cell of a pre-training."""
    return f"{model}/seed{seed}"


def _settings(options: Any, *places: str) -> dict[str, Any]:
    """Return what a training is a function of, without where its files are."""
    free = RunOptions.FREE | RunOptions.MACHINE | set(places)
    return {name: value for name, value in asdict(options).items() if name not in free}


def _pretrained(options: PretrainOptions, folder: Path, show: bool) -> Result:
    """Pre-train; of checkpoints on the way only those that Figure 5 looks at stay."""
    stored = folder / "training.json"
    report = pretrain(options, folder, resume=stored.exists(), show=show)
    names = ("loss", "text_unigram", "accuracy", "next_accuracy", "next_majority")
    found = {name: report["held_out"][name] for name in names}
    found |= {name: report[name] for name in ("parameters", "tokens", "steps")}
    for step, path in [] if options.keep else kept_steps(folder / "checkpoints"):
        if step not in {round(share * report["steps"]) for share in SHARES}:
            path.unlink()
    dtype = PretrainOptions.load(stored).dtype  # what auto came to
    return found | {"dtype": dtype, "seconds": report["training_seconds"]}


def _finetuned(
    options: FinetuneOptions, folder: Path, with_test: bool, submission: Path | None, show: bool
) -> Result:
    """Fine-tune, keep what the metric is computed from and GLUE's answers, and nothing else."""
    options = options.resolved()  # at the recipe's rate, whatever the width: what the cell's settings say
    report = finetune(options, folder, resume=(folder / OPTIONS_FILE).exists(), show=show)
    model = open_model(folder)
    result = {name: report[name] for name in ("task", "metric", "best_epoch")}
    result["seconds"] = report["training_seconds"]  # of all sittings, as above
    for split in ("dev", "test")[: 1 + with_test]:
        examples = _measured_on(model.task, options, split)
        result[split] = measured(model.task, examples, list(predict_examples([model], examples))).to_json()
    if submission and options.task in GLUE:
        for asked in TEST_SETS.get(options.task, (options.task,)):
            with suppress(MissingFile):
                predict([folder], options.data, "test", submission, task=asked)
    shutil.rmtree(folder)
    return result


def _baseline(options: FinetuneOptions, with_test: bool) -> Result:
    """Answer without a model."""
    task = registry.create(options.task, dict(options.columns))
    train, _ = read_examples(task, options)
    result: Result = {}
    for split in ("dev", "test")[: 1 + with_test]:
        examples = _measured_on(task, options, split)
        name, predictions = strongest(task, train, examples, task.labels(train))
        result["baseline" if split == "dev" else f"baseline of {split}"] = name
        result[split] = measured(task, examples, predictions).to_json()
    return result


def _measured_on(task: Any, options: FinetuneOptions, split: str) -> list[Any]:
    if split == "dev":
        return read_examples(task, options)[1]
    return subset(task.read(Path(options.data), split), options.dev_examples)
