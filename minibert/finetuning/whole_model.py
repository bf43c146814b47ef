"""A run that trains the whole model: BERT with the task's output layer (Devlin et al. 2019, section 4)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minibert import hub
from minibert.base.errors import InputError
from minibert.core.arrays import Grads, Params, Saved
from minibert.core.config import BertConfig
from minibert.core.head_kinds import LABELS, SEQUENCES, TOKENS
from minibert.core.optim import Optimizer, optimizer_for
from minibert.engines.flops import task_operations
from minibert.engines.runtime import runtime_of
from minibert.finetuning.models import OUTPUT_LAYER, start_from
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.preparation import Prepared, prepare
from minibert.finetuning.running import Run
from minibert.hub.checkpoint import Checkpoint
from minibert.hub.sentence_transformers import write_modules
from minibert.model.batch import TaskBatch
from minibert.model.head_kinds import KINDS
from minibert.model.params import Head, Parameters
from minibert.model.targets import TARGETS, targets_of
from minibert.reports.results import learnt_text
from minibert.tasks.batches import functions_of, lengths, outputs, require_finite_outputs, training_batches
from minibert.tasks.stored import TaskFile
from minibert.training.loop import State
from minibert.training.runlog import Progress


@dataclass(frozen=True)
class HeadObjective:
    """The loss of a head on BERT, with dropout."""

    config: BertConfig
    head: Head
    seed: int  # of dropout
    span_weight: float  # of each of the losses of start and end
    frozen: int | None  # how many layers, and the embeddings with them, stay as they are; None: none

    def forward(self, ops: Any, params: Params, batch: Any, step: Any) -> tuple[dict[str, Any], Saved]:
        """Return the loss, the accuracy where outputs are classes, and what `backward` needs."""
        rates = self.config.hidden_dropout_prob, self.config.attention_probs_dropout_prob
        drop = ops.dropout(batch, *rates, self.seed, step)
        own = functions_of(self.head)
        loss, saved = own.loss(ops, self.config, self.head, params, batch, drop, self.span_weight)
        metrics = {"loss": loss.loss}
        kind = KINDS[self.head.kind]
        if kind.label_dtype == "int32" and not kind.label_shape:
            scores = loss.logits.reshape(-1, batch.choices * self.head.outputs)
            metrics["accuracy"] = (batch.label_weights * (scores.argmax(1) == batch.labels)).sum()
        return metrics, saved

    def backward(self, ops: Any, saved: Saved, params: Params, grads: Grads) -> Grads:
        """Add the gradient to the accumulators."""
        backward = functions_of(self.head).loss_backward
        return backward(ops, self.config, self.head, saved, params, grads, self.frozen)


class WholeRun(Run):
    """A run whose folder becomes one that Hugging Face reads, with `task.json` beside it."""

    FILES = (hub.CONFIG_FILE, hub.WEIGHTS_FILE)

    @staticmethod
    def prepare(options: FinetuneOptions, ops: Any, folder: Path, show: bool) -> Prepared:
        if (prepared := prepare(options)).head.kind != "contrastive":
            return prepared
        mesh: Any = getattr(runtime_of(ops), "mesh", None)
        # A pair is told from the others of its batch: there have to be some, and all of them in one place.
        if len(prepared.train) < 2:
            what = "has one pair to learn from, and none to tell it from; give more."
            raise InputError(f"{options.data} {what}")
        if options.batch_size == 1 or 1 in options.varied.get("batch_size", ()):
            why = "$batch_size leaves a pair no other to be told from; give 2 or more."
            raise InputError(why, batch_size=1)
        for name, parts in (("accumulate", options.accumulate > 1), ("devices", mesh is not None)):
            if parts:
                why = f"${name} would split the pairs of a batch, each contrasted with all others; give 1."
                raise InputError(why, **{name: getattr(options, name) or mesh.size})
        return prepared

    @property
    def epoch_size(self) -> int:
        return len(self.prepared.train)

    def initial(self) -> tuple[Parameters, dict[str, Any]]:
        o, data = self.options, self.prepared
        params, fresh = start_from(o, data.head, data.labels)
        plan = {"features": len(data.train), "data": data.fingerprint, "fresh": fresh}
        if data.targets is None:
            return params, plan
        if OUTPUT_LAYER not in fresh:
            data.targets.unfold(params)
        return params, plan | {TARGETS: list(data.targets)}

    def start(self, checkpoint: Checkpoint | None = None) -> State:
        if checkpoint is not None:
            then, now = checkpoint.state["plan"]["features"], len(self.prepared.train)
            params: Any = checkpoint.params
            if then != now or params.head != self.prepared.head:
                counts = f"{then:,} features to learn from, now there are {now:,}"
                raise self.other_data(f"there were {counts if then != now else 'other labels'}")
        state = super().start(checkpoint)
        if checkpoint is None and not self.prepared.head.outputs:  # vectors need no training to be compared
            task, examples = self.prepared.task, self.prepared.dev_examples
            state.plan["before"] = task.score(examples, self.predict(state)["predictions"])
        return state

    def optimizer(self, params: Parameters) -> Optimizer:
        o = self.options
        return optimizer_for(params, **o.update_rule, begin=params.trained_from(o.freeze))

    def batches(self, state: State) -> Iterator[tuple[TaskBatch, list[int]]]:
        o, data = self.options, self.prepared
        balance = data.groups, data.class_weights
        train = data.train
        if targets := targets_of(state.plan):
            train = [one._replace(label=targets.standardised(one.label)) for one in train]
        return training_batches(train, data.head, self.batch_size, o.seed, state.position, *balance)

    def objective(self, params: Parameters) -> HeadObjective:
        o = self.options
        return HeadObjective(params.config, params.head, o.seed, o.span_weight, o.freeze)

    def operations(self, params: Parameters) -> Callable[[Any], float]:
        config, head = params.config, params.head

        def count(batch: TaskBatch) -> float:
            every = {SEQUENCES: np.ones(batch.S, int), TOKENS: batch.lengths, LABELS: batch.row_counts}
            read = every[KINDS[head.kind].reads]
            rows = None if head.lstm or config.is_decoder else read
            shape = int(read.sum()), head.outputs
            return task_operations(config, batch.lengths, rows, *shape, head.pooled, self.options.freeze)

        return count

    def predict(self, state: State) -> dict[str, Any]:
        data, examples = self.prepared, self.prepared.dev_examples
        params: Any = state.params
        with Progress(int(lengths(data.dev).sum()), "tokens of dev", self.show) as progress:
            scores = outputs(self.ops, params, data.dev, self.options.token_budget, progress.add)
        require_finite_outputs(scores, state.step, self.options.learning_rate)
        if targets := targets_of(state.plan):
            scores = [targets.restored(one) for one in scores]
        tuned = data.task.tune(examples, data.dev, scores, data.labels)
        predictions = data.task.predict(examples, data.dev, scores, data.labels, tuned)
        return {"tuned": tuned, "predictions": predictions}

    def save(self, folder: Path, state: State) -> None:
        params: Any = state.params
        if targets := targets_of(state.plan):
            params = targets.folded(params)
        hub.save_hf(folder, params.config, params, self.prepared.labels)

    def deliver(self, state: State, best: dict[str, Any]) -> dict[str, Any]:
        data = self.prepared
        data.tokenizer.save_pretrained(self.folder, state.params.config.P)
        columns, tuned = dict(self.options.columns), best.get("tuned", {})
        long = data.task.long._asdict() if data.task.long else {}
        TaskFile(data.task.name, data.labels, data.max_length, columns, tuned, long).save(self.folder)
        found = {"fresh": state.plan["fresh"], "train_classes": data.train_classes}
        if not data.head.outputs:
            write_modules(self.folder, data.max_length)
            found["baselines"] = {"before training": state.plan["before"]}
        return found | ({"truncated": data.truncated} if data.truncated else {})

    def headline(self, state: State) -> str:
        o, data, config = self.options, self.prepared, state.params.config
        fresh = state.plan["fresh"]
        kept = "its output layer is kept" if data.head.outputs else "the mean of its last hidden states"
        frozen = "" if o.freeze is None else f", the embeddings and {o.freeze} of them frozen"
        times, dev = -(-self.total_steps // self.epoch_steps), int(lengths(data.dev).sum())
        learnt = round(self.total_steps * self.batch_size * lengths(data.train).mean())
        is_most = times * dev > 3 * learnt  # for each token, training costs about three times as much
        often = f", {times} times," if times > 1 else ""
        costs = f"{dev:,} tokens of dev{often} beside {learnt:,} to learn from"
        return (
            f"{data.task.title}; {learnt_text(data.train_tasks)}, {len(data.dev_examples):,} "
            f"to measure on, at most {data.max_length} tokens{' in a window' if data.task.long else ''}.\n"
            f"{o.model}: {config.L} layers of {config.H}{frozen}, {state.params.count() / 1e6:.1f}M "
            "parameters; "
            + "LSTMs below the output layer, which only minibert reads and not transformers; " * o.bilstm
            + "the last token is pooled, unlike in transformers; " * (config.is_decoder and data.head.pooled)
            + (f"{' and '.join(fresh)} with initial values.\n" if fresh else f"{kept}.\n")
            + self.plan_text
            + (f"\nMeasuring takes most of the time: {costs}; --dev-examples N measures on fewer." * is_most)
        )
