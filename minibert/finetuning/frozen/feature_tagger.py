"""A tagger of LSTMs with its frozen BERT: how it is stored, loaded and used."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short
from typing import Any

import numpy as np

from minibert.ask.inference import Bert
from minibert.base.errors import InputError
from minibert.base.files import atomic_tensors
from minibert.core.arrays import Params
from minibert.core.batch import Feature
from minibert.core.config import BertConfig
from minibert.core.heads import split_outputs
from minibert.engines.runtime import runtime_of
from minibert.finetuning.frozen.activations import COMBINATIONS, Layers, WordVectors, layers_of, word_vectors
from minibert.hub.hugging_face import read_tensors
from minibert.model import bilstm
from minibert.model.batch import VectorBatch
from minibert.model.bilstm import BilstmConfig, BilstmParameters
from minibert.model.params import Head
from minibert.tasks import registry
from minibert.tasks.batches import token_budget_batches
from minibert.tasks.stored import TAGGER_FILE, Stored
from minibert.tasks.tagging import sentence_bounds
from minibert.tasks.task import Done, TrainedModel, ignore_progress

WEIGHTS_FILE = "tagger.safetensors"
WORD_BUDGET = 2048  # most words in a batch


@dataclass(frozen=True)
class TaggerFile(Stored):
    """What `tagger.json` says about the tagger in its folder."""

    columns: tuple[tuple[str, str], ...]
    combination: str
    config: dict  # type: ignore[type-arg]  # configuration of the LSTMs

    FILE = TAGGER_FILE
    ADVICE = "train the tagger again"

    def _wrong(self) -> str | None:
        wrong = super()._wrong()
        if wrong:
            return wrong
        if registry.create(self.task).kind != "tag":
            return f"'task' is {self.task!r}, expected the name of a task that tags words"
        if self.combination not in COMBINATIONS:
            return f"'combination' is {short(self.combination)}, expected one of {', '.join(COMBINATIONS)}"
        try:
            BilstmConfig.from_dict(self.config)
        except InputError as error:
            return str(error).rstrip(".")
        return None


def save_tagger(folder: Path, params: BilstmParameters) -> None:
    """Write the weights of a tagger into a folder.

    Parameters
    ----------
    folder : Path
        Where to write; made if it does not exist.
    params : BilstmParameters
        The weights, which are written in float32.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: np.ascontiguousarray(value, "<f4") for name, value in params.items()}
    atomic_tensors(folder / WEIGHTS_FILE, tensors, {"format": "pt"})


def load_tagger(folder: Path, config: BilstmConfig) -> BilstmParameters:
    """Read the weights of a tagger from a folder.

    Parameters
    ----------
    folder : Path
        Folder with `tagger.safetensors`.
    config : BilstmConfig
        Shape of the tagger.

    Returns
    -------
    BilstmParameters

    Raises
    ------
    InputError
        When the file is missing, damaged, or has other shapes.
    """
    path = folder / WEIGHTS_FILE
    tensors, _ = read_tensors(path)
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    fits = config.depth <= len(shapes)  # otherwise its table, perhaps a huge one, is not even made
    if fits:
        fits = shapes == {entry.name: entry.shape for entry in bilstm.parameter_table(config)}
    if not fits:
        raise InputError(f"{path} has other tensors than {TAGGER_FILE} says; {TaggerFile.ADVICE}.")
    params = BilstmParameters(config)
    for name, value in params.items():
        value[...] = tensors[name]
        if not np.isfinite(value).all():
            raise InputError(f"{name} has numbers that are not finite; {TaggerFile.ADVICE}.", where=str(path))
    return params


# -> (T,K)
def scores_of(
    ops: Any,
    params: BilstmParameters,
    vectors: WordVectors,
    layers: Layers,
) -> np.ndarray:
    """Compute the scores of every word.

    Parameters
    ----------
    ops : Ops
        The engine.
    params : BilstmParameters
        Parameters of the LSTMs.
    vectors : WordVectors
        Vectors of T words.
    layers : Layers
        The hidden states that the tagger reads.

    Returns
    -------
    (T,K)
    """
    bounds = vectors.bounds
    tree = runtime_of(ops).to_device(params.tree)
    scores = np.empty((int(bounds[-1]), params.config.outputs), params.flat.dtype)
    with_words = np.flatnonzero(np.diff(bounds))
    for chosen in token_budget_batches(np.diff(bounds)[with_words], WORD_BUDGET):
        sentences = with_words[chosen].tolist()
        inputs = [vectors.sentence(index, *layers) for index in sentences]
        batch = VectorBatch.pack_vectors(inputs, [None] * len(inputs))
        by_sentence = batch_scores(ops, params.config, tree, batch)
        for index, rows in zip(sentences, by_sentence, strict=True):
            scores[bounds[index] : bounds[index + 1]] = rows
    return scores


# -> one (rows,K) for each sequence
def batch_scores(
    ops: Any,
    config: BilstmConfig,
    params: Params,
    batch: VectorBatch,
) -> list[np.ndarray]:
    """Return the scores for every sentence of a batch separately, without dropout.

    Parameters
    ----------
    ops : Ops
        The engine.
    config : BilstmConfig
        Shape of the tagger.
    params : dict
        Parameters of the tagger, as a tree.
    batch : VectorBatch
        Batch of sentences.

    Returns
    -------
    list of (n,K)
        One array for each sentence of n words.
    """
    runtime = runtime_of(ops)
    scores = runtime.call(ops, bilstm.scores_of, (config,), params, runtime.prepare(batch))
    scores = runtime.in_order(scores, batch, "labels")
    return split_outputs(scores, Head("tag", config.outputs), batch)


class Asked(list[Feature]):
    """Windows, with the bounds of the sentences whose words they ask about: LSTMs read whole sentences."""

    bounds: np.ndarray  # (S+1,)


@dataclass(frozen=True)
class FeatureTagger(TrainedModel):
    """A finished feature-based tagger."""

    model: Bert  # the frozen encoder
    params: BilstmParameters  # parameters of the LSTMs
    layers: Layers

    @classmethod
    def from_pretrained(
        cls,
        folder: str | Path,
        engine: str = "auto",
        *,
        threads: int | None = None,
        dtype: str = "float32",
    ) -> "FeatureTagger":
        """Load the folder of a feature-based run.

        Parameters
        ----------
        folder : str or Path
            Folder of the run.
        engine : str, default "auto"
            The engine, see `Bert.from_pretrained`.
        threads : int, optional
            Number of threads.
        dtype : str, default "float32"
            Precision of matrix products.

        Returns
        -------
        FeatureTagger

        Raises
        ------
        InputError
            When the folder does not hold a complete tagger.
        """
        folder = Path(folder)
        stored = TaggerFile.load(folder)
        model = Bert.from_pretrained(folder, engine, dtype=dtype, threads=threads)
        config = model.config
        stored.check_positions(folder, config.P)
        tagger_config = BilstmConfig.from_dict(stored.config)
        shape = tagger_config.inputs, tagger_config.mixed, tagger_config.outputs
        try:
            layers = layers_of(stored.combination, config.L)
        except InputError:  # the BERT has too few layers
            layers = Layers((), False)  # fits no shape, so that the next error is raised
        if shape != (*layers.shape(config.H), len(stored.labels)):
            raise InputError(f"{folder / TAGGER_FILE} is of a tagger on another BERT; {stored.ADVICE}.")
        task = registry.create(stored.task, dict(stored.columns))
        params = load_tagger(folder, tagger_config)
        labels, length = stored.labels, stored.max_length
        return cls(folder, task, labels, {}, length, None, model.tokenizer, model.ops, model, params, layers)

    @property
    def config(self) -> BertConfig:
        """Return the configuration of the frozen encoder."""
        return self.model.config

    @property
    def head(self) -> Head:
        """Return the head that a fine-tuned model with the same outputs would have."""
        return Head("tag", len(self.labels))

    def features(self, examples: Sequence[Any]) -> Asked:
        """Make the windows of some sentences.

        Parameters
        ----------
        examples : sequence
            Sentences.
        """
        asked = Asked(super().features(examples))
        asked.bounds = sentence_bounds(examples)
        return asked

    def outputs(self, features: Asked, done: Done = ignore_progress) -> list[np.ndarray]:
        """Compute the scores of each window's words.

        Parameters
        ----------
        features : Asked
            Windows that the method `features` made.
        done : callable
            Called with the number of tokens after each batch.

        Returns
        -------
        list of (n,K)
            One array for each window that asks about n words.
        """
        numbers = self.layers.numbers
        vectors = word_vectors(self.model, features, features.bounds, numbers, done=done)
        scores = scores_of(self.ops, self.params, vectors, self.layers)
        counts = []
        for feature in features:
            n_words = 0 if feature.rows is None else len(feature.rows)
            counts.append(n_words)
        ends = np.cumsum(counts, dtype=np.int64)
        *by_window, _ = np.split(scores, ends)
        return by_window
