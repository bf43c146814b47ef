"""Compute a frozen BERT's vectors of words once, for all training on them (Table 7 of the paper).

The vector of a word is that of its first piece, in the window in which the word is tagged.
"""

import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from minibert.ask.inference import Bert, layer_numbers
from minibert.base.errors import InputError
from minibert.base.files import crc32_of, open_file, require_intact, write_folder_atomically
from minibert.base.json_files import read_json
from minibert.core.batch import Batch, Feature
from minibert.finetuning.frozen.features import TOKEN_BUDGET, write_header
from minibert.tasks.batches import lengths, token_budget_batches
from minibert.tasks.tagging import NO_PIECE
from minibert.tasks.task import Done, ignore_progress
from minibert.training.runlog import Progress, info_if

MOST_MEMORY = 1 << 30  # most bytes to hold in memory; more go to the disk
FILE = "layer-{:02d}.npy"  # file of a hidden state, by its index
CHECKSUMS = "crc32.json"  # file with the checksums of these files


class Combination(NamedTuple):
    """A row of Table 7."""

    title: str  # as in the table
    layers: str | tuple[int, ...]  # an argument for `layer_numbers`
    mixed: bool = False  # whether learnt weights mix the layers; otherwise they are side by side


COMBINATIONS = {
    "embeddings": Combination("Embeddings", "embeddings"),
    "second-to-last": Combination("Second-to-Last Hidden", (-2,)),
    "last": Combination("Last Hidden", (-1,)),
    "sum-last-4": Combination("Weighted Sum Last Four Hidden", (-4, -3, -2, -1), mixed=True),
    "concat-last-4": Combination("Concat Last Four Hidden", (-4, -3, -2, -1)),
    "sum-all": Combination("Weighted Sum All Layers", "all", mixed=True),
}


class Layers(NamedTuple):
    """The hidden states that a tagger reads."""

    numbers: tuple[int, ...]  # indices of the hidden states
    mixed: bool  # whether learnt weights mix them; otherwise they are side by side

    def shape(self, H: int) -> tuple[int, int]:
        """Return `inputs` and `mixed` for the configuration of the tagger.

        Parameters
        ----------
        H : int
            Width of the BERT.
        """
        if self.mixed:
            return H, len(self.numbers)
        return len(self.numbers) * H, 0


def layers_of(name: str, count: int) -> Layers:
    """Return the hidden states of a model that a combination reads.

    Parameters
    ----------
    name : str
        One of `COMBINATIONS`.
    count : int
        Number of the model's layers.

    Returns
    -------
    Layers

    Raises
    ------
    InputError
        When there is no such combination, or the model has fewer layers.

    Examples
    --------
    >>> layers_of("concat-last-4", 12).numbers, layers_of("sum-all", 3).numbers
    ((9, 10, 11, 12), (1, 2, 3))
    """
    if name not in COMBINATIONS:
        known = ", ".join(COMBINATIONS)
        raise InputError(f"feature_based={name!r} is unknown; choose one of {known}.", feature_based=name)
    _, layers, mixed = COMBINATIONS[name]
    if not isinstance(layers, str) and count < len(layers):
        wanted = len(layers)
        takes = f"feature_based={name!r} takes {wanted} layers, and the model has {count}"
        raise InputError(f"{takes}; choose another combination.", feature_based=name)
    return Layers(layer_numbers(layers, count), mixed)


@dataclass(frozen=True)
class WordVectors:
    """Hidden states at the T words of S sentences.

    Attributes
    ----------
    layers : mapping of int to (T,H)
        Vectors by the index of the hidden state.
    bounds : (S+1,)
        Sentence s has the words bounds[s]:bounds[s+1].
    seen : (T,) bool
        False for a word without pieces, whose vectors are those of [CLS].
    """

    layers: Mapping[int, np.ndarray]
    bounds: np.ndarray
    seen: np.ndarray

    def sentence(self, number: int, numbers: Sequence[int], mixed: bool) -> np.ndarray:
        """Return some layers of a sentence of n words.

        Parameters
        ----------
        number : int
            Index of the sentence.
        numbers : sequence of int
            Indices of N hidden states.
        mixed : bool
            Whether the tagger mixes the layers.

        Returns
        -------
        (n,N H)
            Layers side by side; or (N,n,H) for a tagger that mixes them.
        """
        words = slice(*self.bounds[number : number + 2])
        parts = [self.layers[layer][words] for layer in numbers]
        return np.stack(parts) if mixed else np.concatenate(parts, axis=-1)


def word_vectors(
    model: Bert,
    features: Sequence[Feature],
    bounds: np.ndarray,
    numbers: Sequence[int],
    layers: Mapping[int, np.ndarray] | None = None,
    done: Done = ignore_progress,
) -> WordVectors:
    """Run the encoder over windows, and keep some hidden states at the first piece of every word.

    Parameters
    ----------
    model : Bert
        The encoder.
    features : sequence of Feature
        Windows that ask about every word once, in order, as `Tagging.features` makes them for prediction.
    bounds : (S+1,)
        Where the sentences begin among the words.
    numbers : sequence of int
        Indices of the hidden states.
    layers : mapping of int to (T,H), optional
        Arrays to fill; by default new ones.
    done : callable
        Called with the number of tokens after each batch.

    Returns
    -------
    WordVectors
    """
    counts = [0 if feature.rows is None else len(feature.rows) for feature in features]
    first = np.cumsum(counts) - counts
    if layers is None:
        shape = (int(bounds[-1]), model.config.H)
        layers = {number: np.empty(shape, model.params.flat.dtype) for number in numbers}
    for windows in token_budget_batches(lengths(features), TOKEN_BUDGET):
        batch = Batch.pack([features[window].sequences[0] for window in windows])
        row_parts, word_parts = [], []
        for begin, window in zip(batch.cu_seqlens[:-1], windows, strict=True):
            row_parts.append(begin + features[window].rows)
            word_parts.append(np.arange(first[window], first[window] + counts[window]))
        rows = np.concatenate(row_parts)
        words = np.concatenate(word_parts)
        for number, state in zip(layers, model.hidden_states(batch, layers), strict=True):
            layers[number][words] = state[rows]
        done(batch.T)
    return WordVectors(layers, bounds, _seen(features))


def stored_vectors(
    model: Bert,
    features: Sequence[Feature],
    bounds: np.ndarray,
    numbers: Sequence[int],
    folder: Path,
    done: Done = ignore_progress,
) -> WordVectors:
    """Compute `word_vectors` into a `.npy` file for each layer, in a folder that appears when complete.

    Parameters
    ----------
    model : Bert
        The encoder.
    features : sequence of Feature
        As for `word_vectors`.
    bounds : (S+1,)
        As for `word_vectors`.
    numbers : sequence of int
        As for `word_vectors`.
    folder : Path
        Folder for the files. If it exists, its files are used.
    done : callable
        Called with the number of tokens after each batch.

    Returns
    -------
    WordVectors
        Its arrays are read from the files as they are needed.

    Raises
    ------
    InputError
        When the folder belongs to other data or another model, or was altered.
    """
    shape = (int(bounds[-1]), model.config.H)
    dtype = model.params.flat.dtype
    files = [FILE.format(number) for number in numbers]

    def fill(temporary: Path) -> None:
        layers = {}
        for number, name in zip(numbers, files, strict=True):
            layers[number] = _new_file(temporary / name, dtype, shape)
        word_vectors(model, features, bounds, numbers, layers, done)
        for layer in layers.values():
            layer.flush()
        checksums = {name: crc32_of(temporary / name) for name in files}
        (temporary / CHECKSUMS).write_text(json.dumps(checksums), encoding="utf-8", newline="\n")

    if not folder.exists():
        write_folder_atomically(folder, fill)
    else:
        checksums = read_json(folder / CHECKSUMS, advice=f"remove {folder}")
        require_intact(folder, {name: checksums.get(name, -1) for name in files})
    layers = {}
    for number, name in zip(numbers, files, strict=True):
        layers[number] = _mapped(folder / name, dtype, shape)
    return WordVectors(layers, bounds, _seen(features))


def activations(
    model: Bert,
    parts: Sequence[Sequence[Feature]],
    bounds: Sequence[np.ndarray],
    numbers: Sequence[int],
    folder: Path,
    show: bool = True,
) -> list[WordVectors]:
    """Compute the vectors for several lists of sentences, in memory up to `MOST_MEMORY`, else in the folder.

    Parameters
    ----------
    model : Bert
        The encoder.
    parts : sequence
        The windows of each list, see `word_vectors`.
    bounds : sequence of (S+1,)
        For each list, where its sentences begin among the words.
    numbers : sequence of int
        Indices of the hidden states.
    folder : Path
        Folder for vectors that do not fit into memory.
    show : bool, default True
        Whether to say how large they are, and to show progress.

    Returns
    -------
    list of WordVectors
    """
    H = model.config.H
    words = sum(int(ends[-1]) for ends in bounds)
    size = words * H * len(numbers) * model.params.flat.itemsize
    is_stored = size > MOST_MEMORY
    what = f"Activations of {words:,} words, {len(numbers)} x {H} numbers each"
    place = f"in {folder}" if is_stored else "in memory"
    info_if(show)(f"{what}: {size / 1e6:,.0f} MB {place}.")
    tokens = sum(int(lengths(part).sum()) for part in parts)
    vectors = []
    with Progress(tokens, "tokens", show) as progress:
        for number, (part, ends) in enumerate(zip(parts, bounds, strict=True)):
            if is_stored:
                part_folder = folder / f"{number}"
                vectors.append(stored_vectors(model, part, ends, numbers, part_folder, progress.add))
            else:
                vectors.append(word_vectors(model, part, ends, numbers, done=progress.add))
    return vectors


# -> (T,) bool
def _seen(features: Sequence[Feature]) -> np.ndarray:
    """Return whether each word to tag has a piece."""
    seen = [feature.rows != NO_PIECE for feature in features]
    return np.concatenate([np.empty(0, bool), *seen])


def _new_file(file: Path, dtype: "np.dtype[Any]", shape: tuple[int, int]) -> Any:
    """Make an array in a file, with its space reserved: a full disk would kill the process later."""
    array = np.lib.format.open_memmap(file, "w+", dtype, shape)
    if hasattr(os, "posix_fallocate"):
        with open(file, "r+b") as raw:
            os.posix_fallocate(raw.fileno(), 0, file.stat().st_size)
    return array


def _mapped(file: Path, dtype: "np.dtype[Any]", shape: tuple[int, int]) -> np.ndarray:
    """Return the array in a file of `_new_file`, whose header is known beforehand and not parsed."""
    header = io.BytesIO()
    begin = write_header(header, shape, dtype)
    try:
        with open_file(file) as raw:
            if raw.read(begin) == header.getvalue():
                return np.memmap(file, dtype, "r", begin, shape)
    except (OSError, ValueError) as error:  # NumPy raises a ValueError if the file is too short
        raise InputError(f"{file} can't be read ({error}); remove '{file.parent}'.") from error
    other = f"{file} does not hold {dtype} {shape}"
    raise InputError(f"{other}: it is damaged, or from other data or another model; remove '{file.parent}'.")
