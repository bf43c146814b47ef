"""Compute a BERT's vectors of tokens or of whole texts, from any layers.

    texts -> pieces -> batches of similar length -> hidden states -> pool -> vectors in order

Texts are read one after another, and vectors are written in chunks: a corpus of any length needs little
memory.
"""

import json
import math
from array import array
from collections import abc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from minibert.ask.inference import (
    Bert,
    Encoded,
    layer_numbers,
    prompt_tokens_of,
    unit_rows,
    warn_of_cut_texts,
    with_prompt,
)
from minibert.base.errors import InputError
from minibert.base.files import write_atomically
from minibert.base.paths import path_of
from minibert.base.texts import answers_in_place
from minibert.core.batch import Batch, Sequence
from minibert.model.pools import POOLS
from minibert.tasks.batches import token_budget_batches
from minibert.tokenizer.written import WrittenTokens

FORMATS = (".npy", ".jsonl")
TEXTS_AT_ONCE = 64  # number of texts to tokenise together
CHUNK_TOKENS = 1 << 16  # most tokens to sort by length together
CHUNK_BYTES = 1 << 27  # most memory for their vectors
TOKEN_BUDGET = 4096  # most tokens in a batch
Texts = str | bytes | tuple[str | bytes, str | bytes]  # a pair is read as one sequence


@dataclass
class Extractor:
    """Turns texts into vectors with one model.

    Parameters
    ----------
    model : Bert
        The model.
    layers : str, int or sequence of int, default -1
        The hidden states to put side by side, in this order. They are given by index (0 for the output of the
        embeddings, 1 to L for the layers, negative indices from the end), in a list or separated by commas;
        "all" means the layers 1 to L, "embeddings" index 0.
    pool : str, optional
        How to make one vector of a text: that of [CLS] ("cls"), the mean of all its tokens, with [CLS] and
        [SEP] ("mean"), their maximum ("max"), the output of the pooler ("pooled"; only for the last layer,
        and for the last token of a model that reads left to right), or one vector for each token ("none"). By
        default it is the mean; but for the last layer of a model from a folder of sentence-transformers, it
        is what that folder says.
    max_length : int, optional
        Most tokens of a text; longer ones lose their end. By default what such a folder says, or the number
        of positions of the model.
    normalize : bool, default False
        Whether to scale each vector to length 1, so that the product of two is their cosine.

    Attributes
    ----------
    numbers : tuple of int
        Indices of the hidden states.
    cut : int
        How many texts have lost their end so far.

    Raises
    ------
    InputError
        When there is no such layer or pool, no vocabulary, or `max_length` does not fit the model.
    """

    model: Bert
    layers: str | int | abc.Sequence[int] = -1
    pool: str | None = None
    max_length: int | None = None
    normalize: bool = False
    numbers: tuple[int, ...] = field(init=False)
    cut: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        config = self.model.config
        self.tokenizer = self.model.tokenizer
        self.numbers = layer_numbers(self.layers, config.L)
        self._reading = self.model.modules
        self._modules = None
        if self.pool is None and self.numbers == (config.L,):
            self._modules = self._reading
        if self.pool is None and self._modules is None:
            self.pool = "mean"
        if self.pool is not None and self.pool not in POOLS:
            known = ", ".join(POOLS)
            raise InputError(f"pool={self.pool!r} is unknown; choose one of {known}.", pool=self.pool)
        if self.pool == "pooled" and any("pooler" in name for name in self.model.missing):
            why = "needs a pooler, which this model lacks; choose another pool."
            raise InputError(f"pool='pooled' {why}", pool=self.pool)
        if self.pool == "pooled" and self.numbers != (config.L,):
            given: dict[str, Any] = {"pool": self.pool, "layers": self.layers}
            message = f"pool='pooled' reads the last layer; leave out layers={self.layers!r}."
            raise InputError(message, **given)
        if self.pool == "cls" and config.is_decoder:
            why = "is the same vector for every text: left to right, [CLS] sees only itself"
            raise InputError(f"pool='cls' {why}; choose mean or pooled.", pool=self.pool)
        if self.max_length is None:
            self.max_length = config.P if self._reading is None else self._reading.max_length
        if not 2 <= self.max_length <= config.P:
            advice = f"give 2 ([CLS] and [SEP] alone) to {config.P}, the model's positions."
            message = f"max_length={self.max_length!r} is not possible; {advice}"
            raise InputError(message, max_length=self.max_length)

    @property
    def width(self) -> int:
        """Return the length of a vector."""
        if self._modules is not None:
            return self._modules.width(self.model.config.H)
        return len(self.numbers) * self.model.config.H

    def stream(self, texts: Iterable[Texts]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the pieces and the vector of each text, in order.

        Parameters
        ----------
        texts : iterable
            Strings, or pairs of them; a few are read at a time.

        Yields
        ------
        ids : (n,) int32
        vector : (width,)
            With pool "none", (n,width).

        Raises
        ------
        InputError
            When a text is empty or not a string, or has more pieces than the model has positions.
        """
        for chunk in self._chunks(texts):
            lengths = np.array([len(sequence.input_ids) for sequence in chunk])
            vectors: dict[int, np.ndarray] = {}  # by the index of the text in the chunk
            for indices in token_budget_batches(lengths, TOKEN_BUDGET):
                batch = Batch.pack([chunk[index] for index in indices])
                vectors |= zip(indices.tolist(), self._pooled(batch), strict=True)
            for index, sequence in enumerate(chunk):
                yield sequence.input_ids, vectors[index]

    def _chunks(self, texts: Iterable[Texts]) -> Iterator[list[Sequence]]:
        """Yield lists of texts as sequences, each as long as can be sorted by length at once."""
        size = 4 * self.width if self.pool == "none" else 1
        most = min(CHUNK_TOKENS, max(TOKEN_BUDGET, CHUNK_BYTES // size))
        chunk: list[Sequence] = []
        tokens = 0
        source = iter(texts)
        written = WrittenTokens(self.tokenizer)
        while group := list(islice(source, TEXTS_AT_ONCE)):
            encoded = self._encoded(group)
            written.add(encoded)
            self.cut += int((encoded.n_cut > 0).sum())
            for encoding in encoded:
                if chunk and tokens + len(encoding) > most:
                    yield chunk
                    chunk = []
                    tokens = 0
                chunk.append(Sequence(encoding.ids, encoding.token_type_ids))
                tokens += len(encoding)
        if chunk:
            yield chunk
        written.warn()

    def _encoded(self, texts: list[Texts]) -> Any:
        """Return the encodings of some texts, with the prompt before them if the model has one."""
        pairs = [text for text in texts if isinstance(text, tuple)]
        if pairs and len(pairs) < len(texts):
            raise InputError("Some texts are pairs and others are not; give a second one to all or none.")
        if any(len(pair) != 2 for pair in pairs):
            raise InputError("A tuple does not have two texts; give pairs.")
        if self._reading is not None and self._reading.prompt:
            texts = [with_prompt(self._reading.prompt, _as_text(text)) for text in texts]
            pairs = [text for text in texts if isinstance(text, tuple)]
        parts = tuple(zip(*pairs, strict=True)) if pairs else (texts,)
        return self.tokenizer.encode_batch(*parts, max_length=self.max_length)

    # -> S of (width,) or (n,width)
    def _pooled(self, batch: Batch) -> list[np.ndarray]:
        """Compute the pooled hidden states of every sequence, layers side by side, as separate arrays."""
        states = np.concatenate(self.model.hidden_states(batch, self.numbers), axis=-1)
        borders = batch.cu_seqlens
        if self.pool == "none":
            rows = unit_rows(states) if self.normalize else states
            return np.split(rows, borders[1:-1])
        if self._modules is not None:
            prompt_tokens = prompt_tokens_of(self.tokenizer, self._modules)
            encoded = Encoded([states], None, None, borders, None, self._modules, prompt_tokens)
            return list(encoded.vectors(None, self.normalize))
        pooled = None
        if self.pool == "pooled":
            model = self.model
            read = batch.last_rows if model.config.is_decoder else batch.first_rows  # as for classifiers
            output, _ = model.ops.pooler(states, read, model.params.tree["pooler"])
            pooled = np.asarray(output)
        return list(Encoded([states], None, pooled, borders).vectors(self.pool, self.normalize))


def _as_text(text: Texts) -> Any:
    """Return a text, or both texts of a pair, as strings."""
    if isinstance(text, tuple):
        return tuple(map(_as_text, text))
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


def write_features(extractor: Extractor, texts: Iterable[Texts | None], out: str | Path) -> dict[str, int]:
    """Write vectors of texts to a file, which appears when it is complete.

    Parameters
    ----------
    extractor : Extractor
        Makes the vectors.
    texts : iterable
        Strings, or pairs of them; None for a line that is not a text. Read once.
    out : str or Path
        The file. A `.npy` holds one array with a row for each text. With pool "none" it has a row for each
        token, and NAME.cu_seqlens.npy (S+1,) next to it says that text s has the rows
        cu_seqlens[s]:cu_seqlens[s+1]. A `.jsonl` has a line for each text: {"vector": [...]}, or
        {"tokens": [...], "vectors": [[...], ...]}. In the place of None it has null, a `.npy` a row of NaN;
        with pool "none" there is no token.

    Returns
    -------
    dict of str to int
        The numbers of `texts`, of those that are None (`blank`) and of `tokens`, the length of a vector
        (`width`), and how many texts were `cut`.

    Raises
    ------
    InputError
        When the file has another suffix.
    RunError
        When the disk is full; nothing is left behind.
    """
    out = path_of(out, "out")
    check_format(out)
    width = extractor.width
    lengths = array("q")  # of the texts; only this grows with their number, by eight bytes each

    def counted() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        no_ids = np.zeros(0, np.int32)
        no_vector = np.full((0, width) if extractor.pool == "none" else (width,), np.nan)
        stream: Any = extractor.stream
        for ids, vector in answers_in_place(texts, stream, (no_ids, no_vector)):
            lengths.append(len(ids))
            yield ids, vector

    def write(path: Path) -> None:
        if out.suffix == ".npy":
            rows = (vector for _, vector in counted())
            _write_rows(path, rows, (width,), extractor.model.params.flat.dtype)
            borders_file(out).unlink(missing_ok=True)  # it belonged to the file that is replaced
        else:
            vocab = extractor.tokenizer.vocab
            with open(path, "w", encoding="utf-8", newline="\n") as file:
                file.writelines(_line(ids, vector, vocab) for ids, vector in counted())

    write_atomically(out, write)
    if out.suffix == ".npy" and extractor.pool == "none":
        ends = np.cumsum(np.array(lengths, np.int64))
        borders = np.concatenate([[0], ends])
        write_atomically(borders_file(out), lambda path: _write_rows(path, [borders], (), borders.dtype))
    warn_of_cut_texts(extractor.cut, f"{extractor.max_length} tokens")
    return {
        "texts": len(lengths),
        "blank": lengths.count(0),
        "tokens": sum(lengths),
        "width": width,
        "cut": extractor.cut,
    }


def check_format(out: Path) -> None:
    """Check that features can be written to a file.

    Parameters
    ----------
    out : Path
        The file.

    Raises
    ------
    InputError
        When it has another suffix, or is a folder.
    """
    if out.suffix not in FORMATS:
        raise InputError(
            f"'{out}' is not a file of features; give it the suffix .npy or .jsonl.", out=str(out)
        )
    if out.is_dir():
        raise InputError(f"'{out}' is a folder; name a file in it.", out=str(out))


def borders_file(out: Path) -> Path:
    """Return the file that says which rows of `out` belong to which text.

    Parameters
    ----------
    out : Path
        A `.npy` file.
    """
    return out.with_suffix(".cu_seqlens.npy")


def _write_rows(
    path: Path,
    rows: Iterable[np.ndarray],
    shape: tuple[int, ...],
    dtype: Any,
) -> None:
    """Write an array a few rows at a time; their number goes into the header at the end.

    `tofile`, and `np.save`, which calls it, would not notice a full disk.
    """
    with open(path, "wb") as file:
        begin = write_header(file, (0, *shape), dtype)
        for part in rows:
            file.write(part.astype(dtype, copy=False).tobytes())
        count = (file.tell() - begin) // (math.prod(shape) * dtype.itemsize)
        file.seek(0)
        write_header(file, (count, *shape), dtype)


def write_header(file: BinaryIO, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> int:
    """Write the header of a `.npy` file; its length does not depend on the number of rows.

    Parameters
    ----------
    file : binary file
        Open at its beginning.
    shape : tuple of int
        Shape of the array.
    dtype : dtype
        Data type of the array.

    Returns
    -------
    int
        Where the data begin.
    """
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.tell()


def _line(ids: np.ndarray, vector: np.ndarray, vocab: abc.Sequence[str]) -> str:
    if vector.ndim == 1 and not len(ids):
        return '{"vector": null}\n'
    if vector.ndim == 1:
        return f'{{"vector": {_numbers(vector)}}}\n'
    tokens = json.dumps([vocab[i] for i in ids.tolist()], ensure_ascii=False)
    rows = ", ".join(map(_numbers, vector))
    return f'{{"tokens": {tokens}, "vectors": [{rows}]}}\n'


def _numbers(vector: np.ndarray) -> str:
    """Write a vector as JSON, with as few digits as distinguish each number from its neighbours."""
    digits = 9 if vector.dtype == np.float32 else 17
    numbers = ", ".join(f"{value:.{digits}g}" for value in vector.tolist())
    return f"[{numbers}]"
