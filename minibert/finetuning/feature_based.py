"""The feature-based approach (Devlin et al. 2019, section 5.3): LSTMs on word vectors of a frozen BERT.

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
from minibert.data.ner import TaggedSentence
from minibert.finetuning.examples import Rows
from minibert.finetuning.frozen.activations import COMBINATIONS, Layers, WordVectors, activations, layers_of
from minibert.finetuning.frozen.feature_tagger import WEIGHTS_FILE, TaggerFile, save_tagger, scores_of
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.preparation import Prepared, read_labelled
from minibert.finetuning.running import Run
from minibert.hub.vocabularies import read_tokenizer
from minibert.model import bilstm
from minibert.model.batch import VectorBatch
from minibert.model.bilstm import BilstmConfig, BilstmParameters
from minibert.model.params import PRETRAINING, precision_for
from minibert.reports.results import learnt_text
from minibert.tasks import registry
from minibert.tasks.batches import Position, drawn, require_finite_outputs
from minibert.tasks.tagging import Tagging, predicted_tags, sentence_bounds, tag_numbers
from minibert.training.loop import State

ACTIVATIONS = "activations"


@dataclass(frozen=True)
class PreparedVectors(Prepared):
    """The data of a run, and the frozen encoder that turns words into vectors.

    There are no features of a whole model: `train` and `dev` stay empty.

    Attributes
    ----------
    train_examples : list of TaggedSentence
        The training examples.
    model : Bert
        The encoder.
    lacking : tuple of str
        Hugging Face's names of the tensors that the encoder's folder does not have.
    layers : Layers
        The hidden states that the tagger reads.
    folder : Path
        Where to store vectors that do not fit into memory.
    show : bool
        Whether to show progress.
    """

    train_examples: list[TaggedSentence]
    model: Bert
    lacking: tuple[str, ...]
    layers: Layers
    folder: Path
    show: bool

    @cached_property
    def vectors(self) -> list[WordVectors]:
        """Return the encoder's vectors of the words of train and dev, computed at the first access."""
        data = self.data
        parts = self.train_examples, data.dev_examples

        def windows(examples: list[TaggedSentence]) -> list[Feature]:
            made = data.task.features(examples, self.tokenizer, data.labels, self.max_length, training=False)
            return list(made)

        features = list(map(windows, parts))
        bounds = list(map(sentence_bounds, parts))
        layers = sorted(self.layers.numbers)
        return activations(self.model, features, bounds, layers, self.folder, self.show)


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
        Folder of the run, where vectors may be stored.
    show : bool
        Whether to show progress.
    rows : Rows, optional
        The examples, if they are in memory.

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
        problem = f"feature_based={given!r} is for tasks that tag words, which {task.name} does not"
        raise InputError(f"{problem}; leave it out.", feature_based=given)
    config, params, report = hub.load(options.model, precision_for(options.dtype), PRETRAINING)
    options.check_model(config.L, config.P, options.model)
    tokenizer = read_tokenizer(options.model, config)
    layers = layers_of(options.feature_based or "", config.L)
    train_examples, data = read_labelled(task, options, rows)
    return PreparedVectors(
        data=data,
        tokenizer=tokenizer,
        max_length=options.max_length or min(task.max_length, config.P),
        train_examples=train_examples,
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
        Shape of the LSTMs, and the rate of dropout.
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
            Parameters of the LSTMs, as a tree.
        batch : VectorBatch
            A batch in the engine's form.
        step : int
            Index of the training step: every step draws its own dropout mask.

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
            What `forward` saved.
        params : dict
            Parameters of the LSTMs, as a tree.
        grads : dict
            The accumulators, which may be overwritten.

        Returns
        -------
        dict
            The accumulators with the gradient added.
        """
        _, grads = bilstm.loss_backward(ops, self.config, saved, params, grads, frozen=True)
        return grads


class FeatureBasedRun(Run):
    """A run that trains a tagger on the layers that the option `feature_based` names."""

    prepared: PreparedVectors
    FILES = (WEIGHTS_FILE,)
    prepare = staticmethod(prepare)

    @property
    def config(self) -> BilstmConfig:
        """Return the shape of the tagger."""
        o, prepared = self.options, self.prepared
        inputs, mixed = prepared.layers.shape(prepared.model.config.H)
        labels = prepared.data.labels
        assert o.dropout is not None  # since the options were resolved
        return BilstmConfig(inputs, len(labels), o.width, mixed=mixed, dropout=o.dropout)

    @property
    def epoch_size(self) -> int:
        """Return the number of sentences with words; an epoch shows each once."""
        return len(self._trained_on)

    @property
    def _trained_on(self) -> np.ndarray:
        """The indices of the sentences that have words."""
        return np.flatnonzero(np.diff(sentence_bounds(self.prepared.train_examples)))

    def initial(self) -> tuple[BilstmParameters, dict[str, Any]]:
        """Return LSTMs with initial values, and the plan, which holds the checksum of the data."""
        return bilstm.initialise(self.config, self.options.seed), {"data": self.prepared.data.fingerprint}

    def batches(self, state: State) -> Iterator[tuple[VectorBatch, Position]]:
        """Yield endless batches, each epoch in another order, with the position after each batch.

        Parameters
        ----------
        state : State
            The state to go on from.
        """
        prepared = self.prepared
        data = prepared.data
        trained_on = self._trained_on
        vectors, _ = prepared.vectors
        tags = np.split(tag_numbers(prepared.train_examples, data.labels), vectors.bounds[1:-1])

        def packed(sentences: list[int]) -> VectorBatch:
            inputs = [vectors.sentence(index, *prepared.layers) for index in sentences]
            return VectorBatch.pack_vectors(inputs, [tags[index] for index in sentences])

        order = drawn(len(trained_on), self.batch_size, self.options.seed, state.position)
        return ((packed(trained_on[chosen].tolist()), after) for chosen, after in order)

    def objective(self, params: BilstmParameters) -> LstmObjective:
        """Return the loss of the LSTMs.

        Parameters
        ----------
        params : BilstmParameters
            Parameters of the LSTMs.
        """
        return LstmObjective(params.config, self.options.seed)

    def predict(self, state: State) -> dict[str, Any]:
        """Return the predictions for dev: the tags of every sentence.

        Parameters
        ----------
        state : State
            The state whose parameters predict.
        """
        params: Any = state.params
        _, vectors = self.prepared.vectors
        scores = scores_of(self.ops, params, vectors, self.prepared.layers)
        require_finite_outputs([scores], state.step, self.options.learning_rate)
        predictions = predicted_tags(scores, vectors.seen, vectors.bounds, self.prepared.data.labels)
        return {"predictions": predictions}

    def save(self, folder: Path, state: State) -> None:
        """Write the weights of the LSTMs.

        Parameters
        ----------
        folder : Path
            Where to write.
        state : State
            The state with these weights.
        """
        params: Any = state.params
        save_tagger(folder, params)

    def deliver(self, state: State, best: dict[str, Any]) -> dict[str, Any]:
        """Write the frozen BERT, the tokenizer and `tagger.json`.

        Parameters
        ----------
        state : State
            The last state of the run.
        best : dict
            What was stored for the best epoch.

        Returns
        -------
        dict
            "feature_based" and "width".
        """
        o = self.options
        prepared = self.prepared
        data = prepared.data
        model = prepared.model
        folder = self.folder
        hub.save_hf(folder, model.config, model.params, omit=prepared.lacking)
        prepared.tokenizer.save_pretrained(folder, model.config.P)
        stored = TaggerFile(
            data.task.name,
            data.labels,
            prepared.max_length,
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
        o, config, data = self.options, self.config, self.prepared.data
        title = COMBINATIONS[o.feature_based or ""].title
        millions = state.params.count() / 1e6
        return (
            f"{data.task.title}; {learnt_text(data.train_tasks, 'sentence')}, "
            f"{len(data.dev_examples):,} in dev.\n"
            f"{title} of {o.model}, frozen; on it {config.depth} BiLSTMs of "
            f"{config.width} in each direction, {millions:.1f}M parameters.\n"
            f"{self.plan_text}"
        )
