"""A run that trains the whole model: BERT with the task's output layer (Devlin et al. 2019, section 4)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
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
from minibert.finetuning.examples import Rows
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
from minibert.tokenizer.report import piece_facts
from minibert.training.loop import State
from minibert.training.runlog import Progress

SAMPLED = 500  # training examples whose pieces the report counts
TRAINING_COST = 3  # a token takes about three times as long in training as in prediction


@dataclass(frozen=True)
class HeadObjective:
    """The loss of a head on BERT, with dropout.

    Attributes
    ----------
    config : BertConfig
        Shape of the encoder, and its rates of dropout.
    head : Head
        The output layer.
    seed : int
        Seed of dropout.
    span_weight : float
        Weight of each of the losses of start and end.
    frozen : int or None
        Number of lowest layers that, with the embeddings, are not trained; None to train everything.
    """

    config: BertConfig
    head: Head
    seed: int
    span_weight: float
    frozen: int | None

    def forward(
        self,
        ops: Any,
        params: Params,
        batch: Any,
        step: Any,
    ) -> tuple[dict[str, Any], Saved]:
        """Return the loss, the accuracy if there is a single class, and what `backward` needs.

        Parameters
        ----------
        ops : Ops
            The engine.
        params : dict
            The parameters, as a tree.
        batch : TaskBatch
            A batch in the engine's form.
        step : int
            Index of the training step: every step draws its own dropout mask.

        Returns
        -------
        metrics : dict
            "loss", and perhaps "accuracy".
        saved : Saved
        """
        rates = self.config.hidden_dropout_prob, self.config.attention_probs_dropout_prob
        drop = ops.dropout(batch, *rates, self.seed, step)
        loss_of = functions_of(self.head).loss
        loss, saved = loss_of(ops, self.config, self.head, params, batch, drop, self.span_weight)
        metrics = {"loss": loss.loss}
        kind = KINDS[self.head.kind]
        if kind.label_dtype == "int32" and not kind.label_shape:
            scores = loss.logits.reshape(-1, batch.choices * self.head.outputs)
            right = scores.argmax(1) == batch.labels
            metrics["accuracy"] = (batch.label_weights * right).sum()
        return metrics, saved

    def backward(
        self,
        ops: Any,
        saved: Saved,
        params: Params,
        grads: Grads,
    ) -> Grads:
        """Add the gradient to the accumulators.

        Parameters
        ----------
        ops : Ops
            The engine.
        saved : Saved
            What `forward` saved.
        params : dict
            The parameters, as a tree.
        grads : dict
            The accumulators, which may be overwritten.

        Returns
        -------
        dict
            The accumulators with the gradient added.
        """
        backward = functions_of(self.head).loss_backward
        return backward(ops, self.config, self.head, saved, params, grads, self.frozen)


class WholeRun(Run):
    """A run whose folder becomes a model that Hugging Face reads, with `task.json` next to it."""

    FILES = (hub.CONFIG_FILE, hub.WEIGHTS_FILE)

    @staticmethod
    def prepare(
        options: FinetuneOptions,
        ops: Any,
        folder: Path,
        show: bool,
        rows: Rows | None = None,
    ) -> Prepared:
        """Read model and data; for pairs that are contrasted within a batch, check that batches can be whole.

        Parameters
        ----------
        options : FinetuneOptions
            Options of the run, or of a sweep.
        ops : Ops
            The engine.
        folder : Path
            Folder of the run; not used here.
        show : bool
            Whether to show progress; not used here.
        rows : Rows, optional
            The examples, if they are in memory.

        Returns
        -------
        Prepared

        Raises
        ------
        InputError
            When model or data can't be used, or a batch of pairs would hold only one of them, or be split.
        """
        prepared = prepare(options, rows)
        if prepared.data.head.kind == "contrastive":
            _require_whole_batches(options, ops, prepared)
        return prepared

    @property
    def epoch_size(self) -> int:
        """Return the number of features; an epoch shows each once."""
        return len(self.prepared.train)

    def initial(self) -> tuple[Parameters, dict[str, Any]]:
        """Return the model with the task's head, and the plan.

        The plan says which parts are new, and how numeric labels are standardised.
        """
        prepared = self.prepared
        data = prepared.data
        params, fresh = start_from(self.options, data.head, data.labels)
        plan = {"features": len(prepared.train), "data": data.fingerprint, "fresh": fresh}
        if prepared.targets is None:
            return params, plan
        if OUTPUT_LAYER not in fresh:
            prepared.targets.unfold(params)
        return params, plan | {TARGETS: list(prepared.targets)}

    def start(self, checkpoint: Checkpoint | None = None) -> State:
        """Return the state of a checkpoint or, without one, that of a new run.

        If the task compares vectors, the plan of a new run holds their scores before training.

        Parameters
        ----------
        checkpoint : Checkpoint, optional
            The checkpoint to go on from.

        Raises
        ------
        InputError
            When the run began with other data.
        """
        if checkpoint is not None:
            before = checkpoint.state["plan"]["features"]
            now = len(self.prepared.train)
            params: Any = checkpoint.params
            if before != now:
                raise self.other_data(
                    f"there were {before:,} training examples or windows, now there are {now:,}"
                )
            if params.head != self.prepared.data.head:
                raise self.other_data("there were other labels")
        state = super().start(checkpoint)
        data = self.prepared.data
        if checkpoint is None and not data.head.outputs:  # vectors can be compared without any training
            predictions = self.predict(state)["predictions"]
            state.plan["before"] = data.task.score(data.dev_examples, predictions)
        return state

    def optimizer(self, params: Parameters) -> Optimizer:
        """Return a new optimizer of the layers that are not frozen.

        Parameters
        ----------
        params : Parameters
            Parameters of the whole model.
        """
        o = self.options
        return optimizer_for(params, **o.update_rule, begin=params.trained_from(o.freeze))

    def batches(self, state: State) -> Iterator[tuple[TaskBatch, list[int]]]:
        """Yield endless batches, each epoch in another order, with the position after each batch.

        Parameters
        ----------
        state : State
            The state to go on from.
        """
        prepared = self.prepared
        data = prepared.data
        train = prepared.train
        targets = targets_of(state.plan)
        if targets:
            train = [feature._replace(label=targets.standardised(feature.label)) for feature in train]
        return training_batches(
            train,
            data.head,
            self.batch_size,
            self.options.seed,
            state.position,
            prepared.groups,
            prepared.class_weights,
        )

    def objective(self, params: Parameters) -> HeadObjective:
        """Return the loss of the head.

        Parameters
        ----------
        params : Parameters
            Parameters of the whole model.
        """
        o = self.options
        return HeadObjective(params.config, params.head, o.seed, o.span_weight, o.freeze)

    def operations(self, params: Parameters) -> Callable[[Any], float]:
        """Return a function that counts the useful operations of a batch.

        Parameters
        ----------
        params : Parameters
            Parameters of the whole model.
        """
        config, head = params.config, params.head

        def count(batch: TaskBatch) -> float:
            counts = {SEQUENCES: np.ones(batch.S, int), TOKENS: batch.lengths, LABELS: batch.row_counts}
            read = counts[KINDS[head.kind].reads]
            rows = None if head.lstm or config.is_decoder else read
            n_rows = int(read.sum())
            freeze = self.options.freeze
            return task_operations(config, batch.lengths, rows, n_rows, head.outputs, head.pooled, freeze)

        return count

    def predict(self, state: State) -> dict[str, Any]:
        """Return the predictions for dev, and the values that were tuned on it, such as a threshold.

        Parameters
        ----------
        state : State
            The state whose parameters predict.
        """
        prepared = self.prepared
        data = prepared.data
        examples = data.dev_examples
        params: Any = state.params
        tokens = int(lengths(prepared.dev).sum())
        with Progress(tokens, "tokens of dev", self.show) as progress:
            scores = outputs(self.ops, params, prepared.dev, self.options.token_budget, progress.add)
        require_finite_outputs(scores, state.step, self.options.learning_rate)
        targets = targets_of(state.plan)
        if targets:
            scores = [targets.restored(standardised) for standardised in scores]
        tuned = data.task.tune(examples, prepared.dev, scores, data.labels)
        predictions = data.task.predict(examples, prepared.dev, scores, data.labels, tuned)
        return {"tuned": tuned, "predictions": predictions}

    def save(self, folder: Path, state: State) -> None:
        """Write configuration and weights as Hugging Face reads them. Numbers are predicted unscaled.

        Parameters
        ----------
        folder : Path
            Where to write.
        state : State
            The state with these weights.
        """
        params: Any = state.params
        targets = targets_of(state.plan)
        if targets:
            params = targets.folded(params)
        hub.save_hf(folder, params.config, params, self.prepared.data.labels)

    def deliver(self, state: State, best: dict[str, Any]) -> dict[str, Any]:
        """Write tokenizer and `task.json`, and for a model of vectors the files of sentence-transformers.

        Parameters
        ----------
        state : State
            The last state of the run.
        best : dict
            What was stored for the best epoch.

        Returns
        -------
        dict
            "fresh", "train_classes" and "text"; "targets", "baselines" and "truncated" if there are any.
        """
        prepared = self.prepared
        data = prepared.data
        prepared.tokenizer.save_pretrained(self.folder, state.params.config.P)
        columns = dict(self.options.columns)
        tuned = best.get("tuned", {})
        long = data.task.long._asdict() if data.task.long else {}
        stored = TaskFile(data.task.name, data.labels, prepared.max_length, columns, tuned, long)
        stored.save(self.folder)
        report = {"fresh": state.plan["fresh"], "train_classes": prepared.train_classes}
        report["text"] = piece_facts(self._piece_counts(), prepared.tokenizer)
        if targets := prepared.targets:
            distances = [abs(targets.standardised(feature.label)) for feature in prepared.train]
            report["targets"] = targets._asdict() | {"farthest": max(distances)}
        if not data.head.outputs:
            write_modules(self.folder, prepared.max_length)
            report["baselines"] = {"before training": state.plan["before"]}
        if prepared.truncated:
            report["truncated"] = prepared.truncated
        return report

    # -> (V,) int64
    def _piece_counts(self) -> np.ndarray:
        """Count the pieces of the first training examples."""
        counts = np.zeros(self.prepared.tokenizer.vocab_size, np.int64)
        for feature in islice(self.prepared.train, SAMPLED):
            for sequence in feature.sequences:
                np.add.at(counts, sequence.input_ids, 1)
        return counts

    def headline(self, state: State) -> str:
        """Describe task, data and model in a few lines, for the person watching.

        Parameters
        ----------
        state : State
            State of the run, before its first or next step.
        """
        prepared = self.prepared
        data = prepared.data
        window = " in a window" if data.task.long else ""
        task_text = (
            f"{data.task.title}; {learnt_text(data.train_tasks)}, {len(data.dev_examples):,} in dev, "
            f"at most {prepared.max_length} tokens{window}."
        )
        lines = [task_text, self._model_text(state), self.plan_text]
        evaluations = -(-self.total_steps // self.epoch_steps)
        dev_tokens = int(lengths(prepared.dev).sum())
        train_tokens = round(self.total_steps * self.batch_size * lengths(prepared.train).mean())
        if evaluations * dev_tokens > TRAINING_COST * train_tokens:
            often = f", {evaluations} times," if evaluations > 1 else ""
            costs = f"{dev_tokens:,} tokens of dev{often} beside {train_tokens:,} of train"
            lines.append(f"Measuring takes most of the time: {costs}. Fewer dev examples would take less.")
        return "\n".join(lines)

    def _model_text(self, state: State) -> str:
        """Describe what is trained: the model, its head, and which parts are new."""
        o, head, config = self.options, self.prepared.data.head, state.params.config
        frozen = "" if o.freeze is None else f", the embeddings and {o.freeze} of them frozen"
        millions = state.params.count() / 1e6
        parts = [f"{o.model}: {config.L} layers of {config.H}{frozen}, {millions:.1f}M parameters"]
        if o.bilstm:
            parts.append("LSTMs below the output layer, which only minibert reads and not transformers")
        if config.is_decoder and head.pooled:
            parts.append("the last token is pooled, unlike in transformers")
        fresh = state.plan["fresh"]
        if fresh:
            parts.append(f"{' and '.join(fresh)} with initial values")
        elif head.outputs:
            parts.append("its output layer is kept")
        else:
            parts.append("the mean of its last hidden states")
        return f"{'; '.join(parts)}."


def _require_whole_batches(options: FinetuneOptions, ops: Any, prepared: Prepared) -> None:
    """Raise InputError if a pair would not be contrasted with all others of its batch."""
    mesh: Any = getattr(runtime_of(ops), "mesh", None)
    if len(prepared.train) < 2:
        problem = f"'{options.data}' has one training pair, and no other to compare it with"
        raise InputError(f"{problem}; give more.")
    if options.batch_size == 1 or 1 in options.varied.get("batch_size", ()):
        message = "batch_size=1 leaves a pair no other to be compared with; give 2 or more."
        raise InputError(message, batch_size=1)
    splits = {"accumulate": options.accumulate > 1, "devices": mesh is not None}
    for name, does_split in splits.items():
        if does_split:
            value = getattr(options, name) or mesh.size
            problem = f"{name}={value!r} would split the pairs of a batch, each contrasted with all others"
            raise InputError(f"{problem}; give 1.", **{name: value})
