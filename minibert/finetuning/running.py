"""One run of fine-tuning: one learning rate, one seed, the best epoch on dev kept.

A run folder holds `finetune.json` (the options), `metrics.jsonl` and, while it is on its way, `checkpoints/`
and `best/`, the model of the best epoch so far. When it is finished these two are gone and there are what
Hugging Face reads (`config.json`, `model.safetensors`, the tokenizer's files), `task.json`,
`dev_predictions.json`, `report.html` and, last of all, `report.json`.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minibert import heads, hub
from minibert.batch import TaskBatch
from minibert.checkpoint import Checkpoint, latest
from minibert.errors import InputError
from minibert.files import atomic_text, crc32_of, remove_leftovers
from minibert.finetuning.batches import lengths, outputs, require_finite, training_batches
from minibert.finetuning.best import BEST, best_epoch, check_resumed, note_epoch
from minibert.finetuning.models import start_from
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.preparation import Prepared, require_same_data
from minibert.finetuning.progress import Progress
from minibert.finetuning.results import mistakes_as_read, remove_spent, report_of, save_report
from minibert.finetuning.stored import OPTIONS_FILE, TaskFile
from minibert.flops import task_operations
from minibert.optim import Optimizer, optimizer_for, warmup_linear
from minibert.params import Parameters
from minibert.runlog import RunLog, say
from minibert.train import Gradients, Loop, State, train

CHECKPOINTS = "checkpoints"
MODEL_FILES = (hub.CONFIG_FILE, hub.WEIGHTS_FILE)
DEV_PREDICTIONS = "dev_predictions.json"


@dataclass(frozen=True)
class Run:
    """What the loop is to train, on what, and where to.

    Attributes
    ----------
    options : of a single run.
    prepared : task and data.
    ops : the engine.
    folder : of the run.
    peak : GFLOP/s of the machine, if known.
    show : tell the person watching how it goes.
    """

    options: FinetuneOptions
    prepared: Prepared
    ops: Any
    folder: Path
    peak: float | None = None
    show: bool = True

    @property
    def epoch_steps(self) -> int:
        """Steps of an epoch."""
        return -(-len(self.prepared.train) // self.options.batch_size)

    @property
    def total_steps(self) -> int:
        """Steps of the run."""
        wanted = max(1, round(self.options.epochs * self.epoch_steps))
        return min(wanted, self.options.max_steps or wanted)

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        o, total = self.options, self.total_steps
        return warmup_linear(step, total, round(total * o.warmup), o.learning_rate, o.google_decay)

    def start(self, checkpoint: Checkpoint | None = None) -> State:
        """A checkpoint's state; without one the weights of the model that is to be fine-tuned."""
        o, data = self.options, self.prepared
        if checkpoint is None:
            params, fresh = start_from(
                o.model, data.head, o.task, data.labels, o.dtype, o.dropout, o.seed, o.attention_dropout
            )
            plan = {"features": len(data.train), "data": data.fingerprint, "fresh": fresh}
            return State(params, self.optimizer(params), plan=plan)
        state = State(checkpoint.params, self.optimizer(checkpoint.params))
        state.restore(checkpoint)
        if state.plan["features"] != len(data.train) or state.params.head != data.head:
            raise InputError(
                f"{o.data} is not what the run in {self.folder} has begun with: there were "
                f"{state.plan['features']:,} features to learn from, now there are {len(data.train):,}; "
                "give it the same data."
            )
        # Runs that began before there were fingerprints have none.
        require_same_data(o.data, self.folder, state.plan.get("data", data.fingerprint), data.fingerprint)
        return state

    def optimizer(self, params: Parameters) -> Optimizer:
        """A new optimizer."""
        o = self.options
        return optimizer_for(params, **o.update_rule, begin=params.trained_from(o.freeze))

    def gradients(self, params: Parameters) -> Gradients:
        """What the loop calls for every micro-batch: forward, backward, the figures."""
        o, config, head = self.options, params.config, params.head
        rates = config.hidden_dropout_prob, config.attention_probs_dropout_prob

        def run(ops: Any, params: dict, grads: dict, batch: Any, step: Any) -> tuple[dict, dict[str, Any]]:
            drop = ops.dropout(batch, *rates, o.seed, step)
            with ops.step():
                loss, saved = heads.loss(ops, config, head, params, batch, drop, o.span_weight)
                grads = heads.loss_backward(ops, config, head, saved, params, grads, o.freeze)
                figures = {"loss": loss.loss}
                if head.kind in ("classify", "choice", "tag"):
                    scores = loss.logits.reshape(-1, batch.choices) if head.kind == "choice" else loss.logits
                    right = scores.argmax(1) == batch.labels
                    figures["accuracy"] = (batch.label_weights * right).sum()
            return grads, figures

        return run

    def operations(self, params: Parameters) -> Callable[[TaskBatch], float]:
        """What counts the useful operations of a batch."""
        config, head = params.config, params.head

        def count(batch: TaskBatch) -> float:
            read = {"span": batch.lengths, "tag": batch.row_counts}.get(head.kind, np.ones(batch.S, int))
            rows = None if head.lstm or config.is_decoder else read
            shape = int(read.sum()), head.outputs
            return task_operations(config, batch.lengths, rows, *shape, head.pooled, self.options.freeze)

        return count

    def look(self, state: State) -> dict[str, float]:
        """The figures of dev; the model is saved where they are the best so far."""
        data = self.prepared
        with Progress(int(lengths(data.dev).sum()), "tokens of dev", self.show) as progress:
            said = outputs(self.ops, state.params, data.dev, self.options.token_budget, progress.add)
        require_finite(said, state.step, self.options.learning_rate)
        tuned = data.task.tune(data.dev_examples, data.dev, said)
        predictions = data.task.predict(data.dev_examples, data.dev, said, data.labels, tuned)
        scores = data.task.score(data.dev_examples, predictions)
        found = {"scores": scores, "tuned": tuned, "predictions": predictions}

        def save(place: Path) -> None:
            hub.save_hf(place, state.params.config, state.params, self.names)

        return note_epoch(self.folder, state, self.epoch_steps, data.task.metric, found, save, self.show)

    @property
    def names(self) -> tuple[str, ...]:
        """What the outputs of the head are called, where Hugging Face has names for them."""
        return self.prepared.labels if self.prepared.head.kind in ("classify", "tag") else ()

    def headline(self, state: State) -> str:
        """What is about to happen."""
        o, data, config = self.options, self.prepared, state.params.config
        fresh = state.plan["fresh"]
        layers = f"{config.L} layers of {config.H}"
        frozen = "" if o.freeze is None else f", the embeddings and {o.freeze} of them frozen"
        return (
            f"{data.task.title}; {data.train_examples:,} examples to learn from, {len(data.dev_examples):,} "
            f"to measure on, at most {data.max_length} tokens.\n"
            f"{o.model}: {layers}{frozen}, {state.params.count() / 1e6:.1f}M parameters; "
            + (f"{' and '.join(fresh)} with initial values.\n" if fresh else "its output layer is kept.\n")
            + f"{o.epochs:g} epochs of {self.epoch_steps:,} steps of {o.batch_size}: {self.total_steps:,} "
            f"steps, learning rate {o.learning_rate:g}, seed {o.seed}." + self._measuring
        )

    @property
    def _measuring(self) -> str:
        """A line that warns where measuring takes longer than training, whose steps cost about three times
        as much for each token."""
        looks, dev = -(-self.total_steps // self.epoch_steps), int(lengths(self.prepared.dev).sum())
        learnt = round(self.total_steps * self.options.batch_size * lengths(self.prepared.train).mean())
        if looks * dev <= 3 * learnt:
            return ""
        times = f", {looks} times," if looks > 1 else ""
        return (
            f"\nMeasuring takes most of the time: {dev:,} tokens of dev{times} beside {learnt:,} to learn "
            "from; --dev-examples N measures on fewer."
        )


def run_once(run: Run, began: float) -> dict[str, Any]:
    """Train, measure after every epoch, and leave a finished folder behind; go on from a checkpoint in it.

    Parameters
    ----------
    run : what.
    began : `time.monotonic()` when the work began.

    Returns
    -------
    What `report.json` holds.
    """
    folder = run.folder
    if not (folder / OPTIONS_FILE).exists():
        run.options.save(folder / OPTIONS_FILE)
    remove_leftovers(folder, folder / CHECKPOINTS, folder / BEST)
    state = run.start(latest(folder / CHECKPOINTS, warn=say, numbers=2))
    if state.step < run.total_steps:
        check_resumed(folder, state, MODEL_FILES, say)
    if run.show:
        say(run.headline(state))
        if state.step:
            say(f"Going on from step {state.step:,}.")
    o, total = run.options, run.total_steps
    loop = Loop(
        total_steps=total,
        rate=run.rate,
        folder=folder / CHECKPOINTS,
        accumulate=o.accumulate,
        save_seconds=o.checkpoint_seconds,
        save_steps=o.checkpoint_steps,
        keep=o.keep,
        look_steps=run.epoch_steps,
        look_at_end=True,
        look=run.look,
        from_weights="",
        operations=run.operations(state.params),
    )
    with RunLog(folder, state.step, total, run.show, run.peak) as log:
        batches = training_batches(
            run.prepared.train, run.prepared.head, o.batch_size, o.seed, state.position
        )
        train(run.ops, state, batches, run.gradients(state.params), loop, log)
        if state.plan.get("looked") != total:  # earlier versions looked after the last checkpoint
            log.record(total, run.look(state))
    return _finish(run, state, began)


def _finish(run: Run, state: State, began: float) -> dict[str, Any]:
    """Make of the best model what the run leaves behind; can be done again when it was cut off."""
    folder, data = run.folder, run.prepared
    best = best_epoch(folder, state, MODEL_FILES)
    for name in MODEL_FILES:
        if (folder / BEST / name).exists():
            os.replace(folder / BEST / name, folder / name)
    data.tokenizer.save_pretrained(folder, state.params.config.P)
    columns, tuned = dict(run.options.columns), best.get("tuned", {})
    TaskFile(data.task.name, data.labels, data.max_length, columns, tuned).save(folder)
    predictions = best.pop("predictions")
    atomic_text(folder / DEV_PREDICTIONS, json.dumps(predictions, ensure_ascii=False) + "\n")
    facts = {
        "parameters": state.params.count(),
        "fresh": state.plan["fresh"],
        "train_examples": data.train_examples,
        "train_classes": data.train_classes,
        "steps": state.step,
        "tokens": state.tokens,
        "training_seconds": round(state.seconds, 1),
        "seconds": round(time.monotonic() - began, 1),
        "crc32": {name: crc32_of(folder / name) for name in MODEL_FILES},
    }
    if data.truncated:
        facts["truncated"] = data.truncated
    task, examples = data.task, data.dev_examples
    mistakes = mistakes_as_read(task, examples, predictions, data.tokenizer, data.max_length)
    report = report_of(task, data.labels, examples, predictions, mistakes, best["scores"])
    report |= {"best_epoch": best["epoch"], "best_step": best["step"]} | facts
    save_report(folder, run.options, task, examples, predictions, mistakes, report)
    remove_spent(folder)
    return report
