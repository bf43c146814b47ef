"""The feature-based approach (Devlin et al. 2019, section 5.3): LSTMs on a frozen BERT's vectors of words.

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
from minibert.core.batch import Feature
from minibert.core.params import precision_for
from minibert.finetuning.frozen.activations import COMBINATIONS, Layers, WordVectors, activations, layers_of
from minibert.finetuning.frozen.feature_tagger import WEIGHTS_FILE, TaggerFile, save_tagger, scores_of
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.preparation import Prepared, Rows, read_labelled
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
    """Sentences, and the frozen encoder that makes vectors of their words; `train` are the examples.

    Attributes
    ----------
    model : Bert
        The encoder.
    lacking : tuple of str
        Hugging Face's names of what the encoder has no weights for.
    layers : Layers
        The hidden states that the tagger reads.
    folder : Path
        For vectors that do not fit into memory.
    show : bool
        Whether to show progress.
    """

    model: Bert
    lacking: tuple[str, ...]  # Hugging Face's names of what the encoder has no weights for
    layers: Layers  # the hidden states that the tagger reads
    folder: Path  # for vectors that do not fit into memory
    show: bool

    @cached_property
    def vectors(self) -> list[WordVectors]:
        """Return the encoder's vectors of the words of train and dev, computed when first needed."""
        parts = self.train, self.dev_examples

        def windows(examples: Any) -> list[Feature]:
            made = self.task.features(examples, self.tokenizer, self.labels, self.max_length, training=False)
            return list(made)

        features = list(map(windows, parts))
        bounds = list(map(sentence_bounds, parts))
        numbers = sorted(self.layers.numbers)
        return activations(self.model, features, bounds, numbers, self.folder, self.show)


def prepare(
    options: FinetuneOptions,
    ops: Any,
    folder: Path,
    show: bool,
    rows: Rows | None = None,
) -> PreparedVectors:
    """Read model and data, before anything is written.

    Parameters
    ----------
    options : FinetuneOptions
        Options of the run, or of a sweep.
    ops : Ops
        The engine.
    folder : Path
        Folder of the run, where vectors may be kept.
    show : bool
        Whether to show progress.
    rows : Rows, optional
        The examples, where they are in memory.

    Returns
    -------
    PreparedVectors

    Raises
    ------
    InputError
        When the task does not tag words, or model or data can't be used.
    """
    task = registry.create(options.task, dict(options.columns))
    if not isinstance(task, Tagging):
        given = options.feature_based
        message = (
            f"feature_based={given!r} is for tasks that tag words, which {task.name} does not; leave it out."
        )
        raise InputError(message, feature_based=given)
    config, params, report = hub.load(options.model, precision_for(options.dtype), PRETRAINING)
    options.check_model(config.L, config.P, options.model)
    tokenizer = read_tokenizer(options.model, config)
    layers = layers_of(options.feature_based or "", config.L)
    train, known = read_labelled(task, options, rows)
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
    """The loss of LSTMs on frozen vectors, with dropout.

    Attributes
    ----------
    config : BilstmConfig
        Their shape, and the rate of dropout.
    seed : int
        Seed of dropout.
    """

    config: BilstmConfig
    seed: int

    def forward(
        self,
        ops: Any,
        params: Params,
        batch: Any,
        step: Any,
    ) -> tuple[dict[str, Any], Saved]:
        """Return loss and accuracy, and what `backward` needs.

        Parameters
        ----------
        ops : Ops
            The engine.
        params : dict
            The parameters of the LSTMs, as a tree.
        batch : VectorBatch
            As the engine takes it.
        step : int
            Which dropout is drawn for.

        Returns
        -------
        metrics : dict
            "loss" and "accuracy".
        saved : Saved
        """
        drop = ops.dropout(batch, self.config.dropout, 0.0, self.seed, step)
        loss, saved = bilstm.loss(ops, self.config, params, batch, drop)
        right = loss.logits.argmax(1) == batch.labels
        accuracy = (batch.label_weights * right).sum()
        return {"loss": loss.loss, "accuracy": accuracy}, saved

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
            What `forward` kept.
        params : dict
            The parameters of the LSTMs, as a tree.
        grads : dict
            The accumulators, consumed.

        Returns
        -------
        dict
            The accumulators with the gradient added.
        """
        _, grads = bilstm.loss_backward(ops, self.config, saved, params, grads, frozen=True)
        return grads


class FeatureBasedRun(Run):
    """A run that trains a tagger on the layers that `feature_based` of the options names."""

    prepared: PreparedVectors
    FILES = (WEIGHTS_FILE,)
    prepare = staticmethod(prepare)

    @property
    def config(self) -> BilstmConfig:
        """Return the tagger's shape."""
        o, data = self.options, self.prepared
        inputs, mixed = data.layers.shape(data.model.config.H)
        return BilstmConfig(inputs, len(data.labels), o.width, mixed=mixed, dropout=o.dropout)

    @property
    def epoch_size(self) -> int:
        """Return the number of sentences with words, which an epoch shows once each."""
        return len(self._learnt)

    @property
    def _learnt(self) -> np.ndarray:
        """The numbers of the sentences that have words."""
        return np.flatnonzero(np.diff(sentence_bounds(self.prepared.train)))

    def initial(self) -> tuple[BilstmParameters, dict[str, Any]]:
        """Return LSTMs with initial values, and the plan: the checksum of the data."""
        return bilstm.initialise(self.config, self.options.seed), {"data": self.prepared.fingerprint}

    def batches(self, state: State) -> Iterator[tuple[VectorBatch, Position]]:
        """Yield endless batches, every epoch in another order, with the position after each.

        Parameters
        ----------
        state : State
            Where the run stands.
        """
        data = self.prepared
        learnt = self._learnt
        vectors, _ = data.vectors
        all_tags = tag_numbers(data.train, data.labels)
        tags_of = np.split(all_tags, vectors.bounds[1:-1])
        order = drawn(len(learnt), self.batch_size, self.options.seed, state.position)
        for places, after in order:
            inputs = []
            tags = []
            for number in learnt[places].tolist():
                inputs.append(vectors.sentence(number, *data.layers))
                tags.append(tags_of[number])
            yield VectorBatch.pack_vectors(inputs, tags), after

    def objective(self, params: BilstmParameters) -> LstmObjective:
        """Return the loss of the LSTMs.

        Parameters
        ----------
        params : BilstmParameters
            Theirs.
        """
        return LstmObjective(params.config, self.options.seed)

    def predict(self, state: State) -> dict[str, Any]:
        """Return the predictions of dev: the tags of every sentence.

        Parameters
        ----------
        state : State
            With the parameters to predict with.
        """
        params: Any = state.params
        _, vectors = self.prepared.vectors
        scores = scores_of(self.ops, params, vectors, self.prepared.layers)
        require_finite_outputs([scores], state.step, self.options.learning_rate)
        predictions = predicted_tags(scores, vectors.seen, vectors.bounds, self.prepared.labels)
        return {"predictions": predictions}

    def save(self, folder: Path, state: State) -> None:
        """Write the weights of the LSTMs.

        Parameters
        ----------
        folder : Path
            Where to write.
        state : State
            With the parameters.
        """
        params: Any = state.params
        save_tagger(folder, params)

    def deliver(self, state: State, best: dict[str, Any]) -> dict[str, Any]:
        """Write the frozen BERT, the tokenizer and `tagger.json`.

        Parameters
        ----------
        state : State
            The last one.
        best : dict
            What was kept of the best epoch.

        Returns
        -------
        dict
            "feature_based" and "width".
        """
        o = self.options
        data = self.prepared
        folder = self.folder
        hub.save_hf(folder, data.model.config, data.model.params, omit=data.lacking)
        data.tokenizer.save_pretrained(folder, data.model.config.P)
        stored = TaggerFile(
            data.task.name,
            data.labels,
            data.max_length,
            tuple(dict(o.columns).items()),
            o.feature_based or "",
            self.config.to_dict(),
        )
        stored.save(folder)
        return {"feature_based": o.feature_based, "width": o.width}

    def headline(self, state: State) -> str:
        """Describe task, data and layers in a few lines, for the person watching.

        Parameters
        ----------
        state : State
            State of the run, before its first or next step.
        """
        o, config, data = self.options, self.config, self.prepared
        title = COMBINATIONS[o.feature_based or ""].title
        millions = state.params.count() / 1e6
        return (
            f"{data.task.title}; {learnt_text(data.train_tasks, 'sentence')}, "
            f"{len(data.dev_examples):,} in dev.\n"
            f"{title} of {o.model}, frozen; on it {config.depth} BiLSTMs of "
            f"{config.width} in each direction, {millions:.1f}M parameters.\n"
            f"{self.plan_text}"
        )
