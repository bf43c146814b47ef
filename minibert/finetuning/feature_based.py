"""The feature-based approach (Devlin et al. 2019, section 5.3): LSTMs on what a frozen BERT makes of words.

    windows -> hidden states at first pieces, once -> some layers -> two BiLSTMs over a sentence -> tags

The finished folder holds the frozen BERT as Hugging Face reads it, `tagger.json` and `tagger.safetensors`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from minibert import hub
from minibert.ask.inference import Bert
from minibert.base.errors import InputError
from minibert.core.arrays import Grads, Params, Saved
from minibert.core.params import precision_for
from minibert.finetuning.frozen.activations import COMBINATIONS, Layers, WordVectors, activations, layers_of
from minibert.finetuning.frozen.feature_tagger import WEIGHTS_FILE, TaggerFile, save_tagger, scores_of
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.preparation import Prepared, read_labelled
from minibert.finetuning.running import Run
from minibert.hub.vocabularies import read_tokenizer
from minibert.model import bilstm
from minibert.model.batch import VectorBatch
from minibert.model.bilstm import BilstmConfig, BilstmParameters
from minibert.model.params import PRETRAINING
from minibert.reports.results import learnt_text
from minibert.tasks import registry
from minibert.tasks.batches import Position, drawn, require_finite_outputs
from minibert.tasks.tagging import Tagging, predicted_tags, sentence_bounds, tag_numbers
from minibert.training.loop import State

ACTIVATIONS = "activations"


@dataclass(frozen=True)
class PreparedVectors(Prepared):
    """Sentences, and the frozen encoder that makes vectors of their words; `train` are the examples."""

    model: Bert
    lacking: tuple[str, ...]  # Hugging Face's names of what the encoder has no weights for
    layers: Layers  # the hidden states that the tagger reads
    folder: Path  # for vectors that do not fit into memory
    show: bool

    @cached_property
    def vectors(self) -> list[WordVectors]:
        """What the encoder makes of the words of train and dev; computed when it is first asked for."""
        parts, how = (self.train, self.dev_examples), (self.tokenizer, self.labels, self.max_length)
        asked = [list(self.task.features(part, *how, training=False)) for part in parts]
        bounds = list(map(sentence_bounds, parts))
        return activations(self.model, asked, bounds, sorted(self.layers.numbers), self.folder, self.show)


def prepare(options: FinetuneOptions, ops: Any, folder: Path, show: bool) -> PreparedVectors:
    """Read model and data; raise InputError for whatever is wrong with them before anything is written."""
    task = registry.create(options.task, dict(options.columns))
    if not isinstance(task, Tagging):
        message = f"$feature_based is for tags of words, and {task.name} has none; leave it out."
        raise InputError(message, feature_based=options.feature_based)
    config, params, report = hub.load(options.model, precision_for(options.dtype), PRETRAINING)
    options.check_model(config.L, config.P, options.model)
    tokenizer = read_tokenizer(options.model, config)
    layers = layers_of(options.feature_based or "", config.L)
    train, known = read_labelled(task, options)
    return PreparedVectors(
        **known,
        tokenizer=tokenizer,
        max_length=options.max_length or min(task.max_length, config.P),
        train=train,
        model=Bert(config, params, ops),
        lacking=report.missing,
        layers=layers,
        folder=folder / ACTIVATIONS,
        show=show,
    )


@dataclass(frozen=True)
class LstmObjective:
    """The loss of LSTMs on frozen vectors, with dropout."""

    config: BilstmConfig
    seed: int

    def forward(self, ops: Any, params: Params, batch: Any, step: Any) -> tuple[dict[str, Any], Saved]:
        """Return loss and accuracy, and what `backward` needs."""
        drop = ops.dropout(batch, self.config.dropout, 0.0, self.seed, step)
        loss, saved = bilstm.loss(ops, self.config, params, batch, drop)
        right = loss.logits.argmax(1) == batch.labels
        return {"loss": loss.loss, "accuracy": (batch.label_weights * right).sum()}, saved

    def backward(self, ops: Any, saved: Saved, params: Params, grads: Grads) -> Grads:
        """Add the gradient to the accumulators."""
        return bilstm.loss_backward(ops, self.config, saved, params, grads, frozen=True)[1]


class FeatureBasedRun(Run):
    """A run that trains a tagger on the layers that `feature_based` of the options names."""

    prepared: PreparedVectors
    FILES = (WEIGHTS_FILE,)
    prepare = staticmethod(prepare)

    @property
    def config(self) -> BilstmConfig:
        """The tagger's shape."""
        o, data = self.options, self.prepared
        inputs, mixed = data.layers.shape(data.model.config.H)
        return BilstmConfig(inputs, len(data.labels), o.width, mixed=mixed, dropout=o.dropout)

    @property
    def epoch_size(self) -> int:
        return len(self._learnt)

    @property
    def _learnt(self) -> np.ndarray:
        """Numbers of the sentences that have words."""
        return np.flatnonzero(np.diff(sentence_bounds(self.prepared.train)))

    def initial(self) -> tuple[BilstmParameters, dict[str, Any]]:
        return bilstm.initialise(self.config, self.options.seed), {"data": self.prepared.fingerprint}

    def batches(self, state: State) -> Iterator[tuple[VectorBatch, Position]]:
        data, learnt, vectors = self.prepared, self._learnt, self.prepared.vectors[0]
        tags = np.split(tag_numbers(data.train, data.labels), vectors.bounds[1:-1])

        def packed(chosen: list[int]) -> VectorBatch:
            inputs = [vectors.sentence(one, *data.layers) for one in chosen]
            return VectorBatch.pack_vectors(inputs, [tags[one] for one in chosen])

        order = drawn(len(learnt), self.batch_size, self.options.seed, state.position)
        return ((packed(learnt[places].tolist()), after) for places, after in order)

    def objective(self, params: BilstmParameters) -> LstmObjective:
        return LstmObjective(params.config, self.options.seed)

    def predict(self, state: State) -> dict[str, Any]:
        params: Any = state.params
        vectors = self.prepared.vectors[1]
        scores = scores_of(self.ops, params, vectors, self.prepared.layers)
        require_finite_outputs([scores], state.step, self.options.learning_rate)
        return {"predictions": predicted_tags(scores, vectors.seen, vectors.bounds, self.prepared.labels)}

    def save(self, folder: Path, state: State) -> None:
        params: Any = state.params
        save_tagger(folder, params)

    def deliver(self, state: State, best: dict[str, Any]) -> dict[str, Any]:
        folder, o, data = self.folder, self.options, self.prepared
        hub.save_hf(folder, data.model.config, data.model.params, omit=data.lacking)
        data.tokenizer.save_pretrained(folder, data.model.config.P)
        shape = o.columns, o.feature_based or "", self.config.to_dict()
        TaggerFile(data.task.name, data.labels, data.max_length, *shape).save(folder)
        return {"feature_based": o.feature_based, "width": o.width}

    def headline(self, state: State) -> str:
        o, config, data = self.options, self.config, self.prepared
        title = COMBINATIONS[o.feature_based or ""].title
        return (
            f"{data.task.title}; {learnt_text(data.train_tasks, 'sentence')}, "
            f"{len(data.dev_examples):,} to measure on.\n"
            f"{title} of {o.model}, frozen; on it {config.depth} BiLSTMs of "
            f"{config.width} in each direction, {state.params.count() / 1e6:.1f}M parameters.\n"
            + self.plan_text
        )
