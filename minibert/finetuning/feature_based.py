"""The feature-based approach (Devlin et al. 2019, section 5.3): LSTMs on what a frozen BERT makes of words.

    windows -> hidden states at first pieces, once -> some layers -> two BiLSTMs over a sentence -> tags

A run folder holds `finetune.json` (the options), `metrics.jsonl` and, while it is on its way, `checkpoints/`,
`best/` and perhaps `activations/`. When it is finished there are instead the frozen BERT as Hugging Face
reads it, `tagger.json` and `tagger.safetensors`, `dev_predictions.json`, `report.html` and `report.json`.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minibert import backends, bilstm, hub
from minibert.batch import VectorBatch
from minibert.bilstm import BilstmConfig
from minibert.checkpoint import latest
from minibert.errors import InputError, naming
from minibert.files import atomic_text, crc32_of, remove_leftovers, require_own
from minibert.finetuning import registry
from minibert.finetuning.activations import (
    MOST_MEMORY,
    WordVectors,
    combination,
    numbers_of,
    size_of,
    stored_vectors,
    word_vectors,
)
from minibert.finetuning.batches import BEGINNING, epoch_order, lengths, require_finite
from minibert.finetuning.best import BEST, best_epoch, check_resumed, note_epoch
from minibert.finetuning.feature_tagger import WEIGHTS_FILE, TaggerFile, save_tagger, scores_of
from minibert.finetuning.models import check_vocabulary, read_tokenizer
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.preparation import fingerprint, read_examples, require_same_data
from minibert.finetuning.progress import Progress
from minibert.finetuning.results import finished_report, remove_spent, report_of, save_report
from minibert.finetuning.running import CHECKPOINTS, DEV_PREDICTIONS
from minibert.finetuning.stored import OPTIONS_FILE
from minibert.finetuning.tagging import Tagging, predicted_tags, sentence_bounds, tag_numbers
from minibert.model import Bert
from minibert.optim import optimizer_for, warmup_linear
from minibert.params import PRETRAINING, precision_for
from minibert.runlog import RunLog, say
from minibert.train import Gradients, Loop, State, train

ACTIVATIONS = "activations"


@dataclass(frozen=True)
class Lesson:
    """Sentences, and what the encoder has made of their words."""

    examples: Sequence[Any]
    vectors: WordVectors


@dataclass(frozen=True)
class Training:
    """A tagger that is to be trained: for what, on what, and where to.

    Attributes
    ----------
    options : of a single run; `feature_based` names the combination of layers.
    task, labels : what is learnt.
    train, dev : what from, and what is measured on.
    numbers : of the hidden states that the tagger reads.
    ops : the engine.
    folder : for checkpoints, metrics and the best tagger.
    show : tell the person watching how it goes.
    """

    options: FinetuneOptions
    task: Tagging
    labels: tuple[str, ...]
    train: Lesson
    dev: Lesson
    numbers: tuple[int, ...]
    ops: Any
    folder: Path
    show: bool = True

    @property
    def mixed(self) -> bool:
        """Whether layers are mixed by learnt weights."""
        return combination(self.options.feature_based).mixed

    @property
    def config(self) -> BilstmConfig:
        """The tagger's shape."""
        H = next(iter(self.train.vectors.layers.values())).shape[1]
        count = len(self.numbers)
        return BilstmConfig(
            inputs=H if self.mixed else count * H,
            outputs=len(self.labels),
            width=self.options.width,
            mixed=count if self.mixed else 0,
            dropout=self.options.dropout,
        )

    @property
    def epoch_steps(self) -> int:
        """Steps of an epoch."""
        return -(-len(self._learnt) // self.options.batch_size)

    @property
    def total_steps(self) -> int:
        """Steps of the run."""
        wanted = max(1, round(self.options.epochs * self.epoch_steps))
        return min(wanted, self.options.max_steps or wanted)

    @property
    def _learnt(self) -> np.ndarray:
        """Numbers of the sentences that have words."""
        return np.flatnonzero(np.diff(self.train.vectors.bounds))

    def fit(self) -> dict[str, Any]:
        """Train, going on from the last checkpoint in the folder if there is one.

        Returns
        -------
        What dev said of the best epoch: step, epoch, scores, predictions. The tagger of that epoch is in the
        folder `best`.
        """
        folder, o, total = self.folder, self.options, self.total_steps
        remove_leftovers(folder, folder / CHECKPOINTS, folder / BEST)
        state = self._start()
        if state.step < total:
            check_resumed(folder, state, [WEIGHTS_FILE], say)
        if self.show:
            say(self._headline(state))
        loop = Loop(
            total_steps=total,
            rate=lambda step: warmup_linear(
                step, total, round(total * o.warmup), o.learning_rate, o.google_decay
            ),
            folder=folder / CHECKPOINTS,
            accumulate=o.accumulate,
            save_seconds=o.checkpoint_seconds,
            save_steps=o.checkpoint_steps,
            keep=o.keep,
            look_steps=self.epoch_steps,
            look_at_end=True,
            look=self.look,
        )
        with RunLog(folder, state.step, total, self.show) as log:
            train(self.ops, state, self._batches(state.position), self.gradients(), loop, log)
            if state.plan.get("looked") != total:  # earlier versions looked after the last checkpoint
                log.record(total, self.look(state))
        found = best_epoch(folder, state, [WEIGHTS_FILE])
        done = {"steps": state.step, "tokens": state.tokens, "training_seconds": round(state.seconds, 1)}
        return found | done | {"parameters": state.params.count()}

    def _start(self) -> State:
        checkpoint = latest(self.folder / CHECKPOINTS, self.config, say, numbers=2)
        o = self.options
        params = bilstm.initialise(self.config, o.seed) if checkpoint is None else checkpoint.params
        now = fingerprint(self.labels, self.train.examples, self.dev.examples)
        state = State(params, optimizer_for(params, **o.update_rule), plan={"data": now})
        if checkpoint is not None:
            state.restore(checkpoint)
            require_same_data(o.data, self.folder, state.plan.get("data", now), now)
        return state

    def _batches(self, position: list[int] | None) -> Iterator[tuple[VectorBatch, list[int]]]:
        """Endless batches of sentences in a random order, a new one every epoch."""
        (epoch, used), learnt, size = position or BEGINNING, self._learnt, self.options.batch_size
        bounds, vectors = self.train.vectors.bounds, self.train.vectors
        tags = np.split(tag_numbers(self.train.examples, self.labels), bounds[1:-1])
        while True:
            order = learnt[epoch_order(len(learnt), self.options.seed, epoch)]
            while used < len(order):
                chosen = order[used : used + size].tolist()
                used += len(chosen)
                after = [epoch, used] if used < len(order) else [epoch + 1, 0]
                inputs = [vectors.sentence(one, self.numbers, self.mixed) for one in chosen]
                yield VectorBatch.pack_vectors(inputs, [tags[one] for one in chosen]), after
            epoch, used = epoch + 1, 0

    def gradients(self) -> Gradients:
        """What the loop calls for every micro-batch: forward, backward, the figures."""
        config, seed = self.config, self.options.seed

        def run(ops: Any, params: dict, grads: dict, batch: Any, step: Any) -> tuple[dict, dict[str, Any]]:
            drop = ops.dropout(batch, config.dropout, 0.0, seed, step)
            with ops.step():
                loss, saved = bilstm.loss(ops, config, params, batch, drop)
                _, grads = bilstm.loss_backward(ops, config, saved, params, grads, frozen=True)
                right = loss.logits.argmax(1) == batch.labels
                return grads, {"loss": loss.loss, "accuracy": (batch.label_weights * right).sum()}

        return run

    def look(self, state: State) -> dict[str, float]:
        """The figures of dev; the tagger is saved where they are the best so far."""
        predictions = self.predict(state)
        scores = self.task.score(self.dev.examples, predictions)
        found = {"scores": scores, "predictions": predictions}

        def save(place: Path) -> None:
            save_tagger(place, state.params)

        return note_epoch(self.folder, state, self.epoch_steps, self.task.metric, found, save, self.show)

    def predict(self, state: State) -> list[list[str]]:
        """The tags of dev."""
        vectors = self.dev.vectors
        scores = scores_of(self.ops, state.params, vectors, self.numbers, self.mixed)
        require_finite([scores], state.step, self.options.learning_rate)
        return predicted_tags(scores, vectors.seen, vectors.bounds, self.labels)

    def _headline(self, state: State) -> str:
        o, config = self.options, self.config
        there = f"; going on from step {state.step:,}" if state.step else ""
        return (
            f"{self.task.title}; {len(self.train.examples):,} sentences to learn from, "
            f"{len(self.dev.examples):,} to measure on.\n"
            f"{combination(o.feature_based).title} of {o.model}, frozen; on it {config.depth} BiLSTMs of "
            f"{config.width} in each direction, {state.params.count() / 1e6:.1f}M parameters.\n"
            f"{o.epochs:g} epochs of {self.epoch_steps:,} steps of {o.batch_size}: {self.total_steps:,} "
            f"steps, learning rate {o.learning_rate:g}, seed {o.seed}{there}."
        )


def run(
    options: FinetuneOptions, out: str | Path, *, resume: bool = False, show: bool = True
) -> dict[str, Any]:
    """Train a tagger on a frozen BERT and leave a finished folder behind.

    Parameters
    ----------
    options : of a single run, resolved; `feature_based` and `width` among them.
    out : the run folder.
    resume : go on with the run in it.
    show : tell the person watching how it goes.

    Returns
    -------
    What `report.json` holds.

    Raises
    ------
    InputError
        When options, data, model or folder can't be used.
    """
    folder, began = Path(out), time.monotonic()
    if resume and (report := finished_report(folder)):
        return report
    task = registry.create(options.task, dict(options.columns))
    if not isinstance(task, Tagging):
        raise InputError(f"feature_based={options.feature_based!r} tags words, which {task.name} does not.")
    ops, engine = backends.choose(options.backend, options.threads, options.dtype, **options.extras)
    model, tokenizer, lacking = load_frozen(options, ops)
    numbers = numbers_of(options.feature_based, model.config.L)
    train_examples, dev_examples = read_examples(task, options)
    with naming(f"{options.data}, train"):
        labels = task.labels(train_examples)
    with naming(f"{options.data}, dev"):
        task.labels(dev_examples)  # which complains of a sentence without tags
    task.tell_unknown(dev_examples, labels)
    max_length = options.max_length or min(task.max_length, model.config.P)
    _claim_folder(options, folder, resume)
    with backends.limited_threads(options.threads, ops):
        if show:
            say(f"Engine {engine}.")
        frozen = Frozen(model, tokenizer, task, labels, max_length, folder / ACTIVATIONS, show)
        train_vectors, dev_vectors = frozen.vectors([train_examples, dev_examples], numbers)
        training = Training(
            options,
            task,
            labels,
            Lesson(train_examples, train_vectors),
            Lesson(dev_examples, dev_vectors),
            numbers,
            ops,
            folder,
            show,
        )
        found = training.fit()
    return _finish(training, frozen, lacking, found, began)


def _finish(
    training: Training, frozen: "Frozen", lacking: tuple[str, ...], found: dict[str, Any], began: float
) -> dict[str, Any]:
    """Make of the best tagger what the run leaves behind; can be done again when it was cut off."""
    folder, options, task, labels = training.folder, training.options, training.task, training.labels
    config, dev_examples = frozen.model.config, training.dev.examples
    hub.save_hf(folder, config, frozen.model.params, omit=lacking)
    frozen.tokenizer.save_pretrained(folder, config.P)
    if (folder / BEST / WEIGHTS_FILE).exists():  # else it was moved before this was cut off
        os.replace(folder / BEST / WEIGHTS_FILE, folder / WEIGHTS_FILE)
    stored = TaggerFile(
        task.name,
        labels,
        frozen.max_length,
        options.columns,
        options.feature_based,
        training.config.to_dict(),
    )
    stored.save(folder)
    predictions = found.pop("predictions")
    atomic_text(folder / DEV_PREDICTIONS, json.dumps(predictions, ensure_ascii=False) + "\n")
    mistakes = task.mistakes(dev_examples, predictions)
    report = report_of(task, labels, dev_examples, predictions, mistakes, found.pop("scores"))
    report |= {"best_epoch": found.pop("epoch"), "best_step": found.pop("step")} | found
    report |= {
        "feature_based": options.feature_based,
        "width": options.width,
        "train_examples": len(training.train.examples),
        "seconds": round(time.monotonic() - began, 1),
        "crc32": {WEIGHTS_FILE: crc32_of(folder / WEIGHTS_FILE)},
    }
    save_report(folder, options, task, dev_examples, predictions, mistakes, report)
    remove_spent(folder)
    return report


def load_frozen(options: FinetuneOptions, ops: Any) -> tuple[Bert, Any, tuple[str, ...]]:
    """The encoder that stays as it is, its tokenizer, and Hugging Face's names of what it lacks."""
    config, params, report = hub.load(options.model, precision_for(options.dtype), PRETRAINING)
    options.check_model(config.L, config.P, options.model)
    tokenizer = read_tokenizer(options.model)
    check_vocabulary(config, tokenizer, options.model)
    return Bert(config, params, ops), tokenizer, report.missing


def _claim_folder(options: FinetuneOptions, folder: Path, resume: bool) -> None:
    """Leave the options of a new run in its folder; those of one that goes on have to agree."""
    require_own(folder)
    if resume:
        options.require_same_run(FinetuneOptions.load(folder / OPTIONS_FILE))
        return
    if (folder / OPTIONS_FILE).exists():
        raise InputError(f"{folder} already holds a run: go on with it by --resume, or choose another --out.")
    options.save(folder / OPTIONS_FILE)


@dataclass(frozen=True)
class Frozen:
    """An encoder that makes vectors of sentences, in memory where they fit, else on the disk.

    Attributes
    ----------
    model, tokenizer : the encoder.
    task, labels, max_length : how windows are laid.
    folder : for what does not fit into memory.
    show : tell the person watching how it goes.
    most_memory : bytes.
    """

    model: Bert
    tokenizer: Any
    task: Tagging
    labels: tuple[str, ...]
    max_length: int
    folder: Path
    show: bool = True
    most_memory: int = MOST_MEMORY

    def vectors(self, parts: Sequence[Sequence[Any]], numbers: Sequence[int]) -> list[WordVectors]:
        """The vectors of each list of sentences, all of which fit into memory together or none."""
        bounds = [sentence_bounds(examples) for examples in parts]
        asked = [
            list(self.task.features(examples, self.tokenizer, self.labels, self.max_length, training=False))
            for examples in parts
        ]
        words, H = sum(int(one[-1]) for one in bounds), self.model.config.H
        size = size_of(words, H, numbers, self.model.params.flat.dtype)
        stored = size > self.most_memory
        if self.show:
            place = f"in {self.folder}" if stored else "in memory"
            say(
                f"Activations of {words:,} words, {len(numbers)} x {H} numbers each: "
                f"{size / 1e6:,.0f} MB {place}."
            )
        total = sum(int(lengths(features).sum()) for features in asked)
        with Progress(total, "tokens", self.show) as progress:
            return [
                self._vectors(
                    features, ends, numbers, self.folder / str(number) if stored else None, progress.add
                )
                for number, (features, ends) in enumerate(zip(asked, bounds, strict=True))
            ]

    def _vectors(
        self,
        features: list[Any],
        bounds: np.ndarray,
        numbers: Sequence[int],
        folder: Path | None,
        done: Callable[[int], Any],
    ) -> WordVectors:
        if folder is None:
            return word_vectors(self.model, features, bounds, numbers, done=done)
        return stored_vectors(self.model, features, bounds, numbers, folder, done)
