"""What a BERT makes of texts, as it is: vectors of tokens or of whole texts, from any layers.

    texts -> pieces -> batches of neighbours in length -> hidden states -> pool -> vectors in order

Texts are read one after another and vectors written in chunks: a corpus of any length needs little memory.
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
    with_prompt,
)
from minibert.base.errors import InputError, warn
from minibert.base.files import write_atomically
from minibert.core.batch import Batch, Sequence
from minibert.tasks.batches import token_budget_batches
from minibert.tokenizer.written import WrittenTokens

POOLS = ("cls", "mean", "max", "pooled", "none")
FORMATS = (".npy", ".jsonl")
TEXTS_AT_ONCE = 64  # tokenised together
CHUNK_TOKENS = 1 << 16  # sorted by length together, fewer where their vectors would take more than
CHUNK_BYTES = 1 << 27
TOKEN_BUDGET = 4096  # of a batch
Texts = str | bytes | tuple[str | bytes, str | bytes]  # a pair is read as one sequence


@dataclass
class Extractor:
    """Vectors of texts, by one model.

    Raise InputError when there is no such layer or pool, no vocabulary, or no room for sequences so long.
    """

    model: Bert
    # Which hidden states, side by side in this order: their numbers (0 what leaves the embeddings, 1 to L the
    # layers, negative ones from the end), in a list or with commas between; "all", the layers 1 to L;
    # "embeddings", number 0.
    layers: str | int | abc.Sequence[int] = -1
    # What of a text: its [CLS] ("cls"), the mean of all its tokens, [CLS] and [SEP] included ("mean"), their
    # largest numbers ("max"), the pooler's output ("pooled", of the last layer only, and left to right of the
    # last token), or every token ("none"). None: of the last layer what a folder of sentence-transformers
    # makes of it, where the model is from one, and the mean otherwise.
    pool: str | None = None
    # Longer texts lose their end. None: as such a folder says, or the model's positions.
    max_length: int | None = None
    normalize: bool = False  # make each vector of length 1, so that a product of two is their cosine
    numbers: tuple[int, ...] = field(init=False)  # of the hidden states
    cut: int = field(init=False, default=0)  # how many texts have lost their end so far

    def __post_init__(self) -> None:
        config, self.tokenizer = self.model.config, self.model.tokenizer
        self.numbers = layer_numbers(self.layers, config.L)
        self._reading = self.model.modules
        self._modules = self._reading if self.pool is None and self.numbers == (config.L,) else None
        if self.pool is None and self._modules is None:
            self.pool = "mean"
        if self.pool is not None and self.pool not in POOLS:
            raise InputError(f"$pool is unknown; choose one of {', '.join(POOLS)}.", pool=self.pool)
        if self.pool == "pooled" and any("pooler" in name for name in self.model.missing):
            raise InputError("$pool: this model has no pooler; choose another pool.", pool=self.pool)
        if self.pool == "pooled" and self.numbers != (config.L,):
            given = {"pool": self.pool, "layers": self.layers}
            raise InputError("$pool reads the last layer; leave out $layers.", **given)
        if self.pool == "cls" and config.is_decoder:
            why = "is the same vector for every text: left to right, [CLS] sees only itself"
            raise InputError(f"pool='cls' {why}; choose 'mean' or 'pooled'.")
        if self.max_length is None:
            self.max_length = config.P if self._reading is None else self._reading.max_length
        if not 2 <= self.max_length <= config.P:
            advice = f"give 2, for [CLS] and [SEP], up to the {config.P} positions of the model."
            raise InputError(f"$max_length is not possible; {advice}", max_length=self.max_length)

    @property
    def width(self) -> int:
        """Numbers in a vector."""
        if self._modules is not None:
            return self._modules.width(self.model.config.H)
        return len(self.numbers) * self.model.config.H

    def stream(self, texts: Iterable[Texts]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield of each text its pieces (n,) and vector (width,), or with pool "none" vectors (n,width)."""
        for chunk in self._chunks(texts):
            lengths = np.array([len(one.input_ids) for one in chunk])
            found: dict[int, np.ndarray] = {}
            for numbers in token_budget_batches(lengths, TOKEN_BUDGET):
                batch = Batch.pack([chunk[n] for n in numbers])
                found |= zip(numbers.tolist(), self._pooled(batch), strict=True)
            yield from ((one.input_ids, found[number]) for number, one in enumerate(chunk))

    def _chunks(self, texts: Iterable[Texts]) -> Iterator[list[Sequence]]:
        """Yield lists of texts as sequences, as many as are sorted by length together."""
        size = 4 * self.width if self.pool == "none" else 1
        most = min(CHUNK_TOKENS, max(TOKEN_BUDGET, CHUNK_BYTES // size))
        chunk: list[Sequence] = []
        source, tokens = iter(texts), 0
        written = WrittenTokens(self.tokenizer)
        while group := list(islice(source, TEXTS_AT_ONCE)):
            pairs = [one for one in group if isinstance(one, tuple)]
            if pairs and len(pairs) < len(group):
                raise InputError("Some texts are pairs and others are not; give a second one to all or none.")
            if any(len(one) != 2 for one in pairs):
                raise InputError("A tuple holds other than two texts; give pairs.")
            if self._reading is not None and self._reading.prompt:
                group = [with_prompt(self._reading.prompt, _as_text(one)) for one in group]
                pairs = [one for one in group if isinstance(one, tuple)]
            parts = tuple(zip(*pairs, strict=True)) if pairs else (group,)
            encoded = self.tokenizer.encode_batch(*parts, max_length=self.max_length)
            written.add(encoded)
            self.cut += int((encoded.n_cut > 0).sum())
            for encoding in encoded:
                if chunk and tokens + len(encoding) > most:
                    yield chunk
                    chunk, tokens = [], 0
                chunk.append(Sequence(encoding.ids, encoding.token_type_ids))
                tokens += len(encoding)
        if chunk:
            yield chunk
        written.warn()

    # -> S of (width,) or (n,width)
    def _pooled(self, batch: Batch) -> list[np.ndarray]:
        """Compute hidden states of every sequence side by side, pooled; each an array of its own."""
        states = np.concatenate(self.model.hidden_states(batch, self.numbers), axis=-1)
        if self.pool == "none":
            return np.split(unit_rows(states) if self.normalize else states, batch.cu_seqlens[1:-1])
        if self._modules is not None:
            prompt_tokens = prompt_tokens_of(self.tokenizer, self._modules)
            made = Encoded([states], None, None, batch.cu_seqlens, None, self._modules, prompt_tokens)
            return list(made.vectors(None, self.normalize))
        pooled = None
        if self.pool == "pooled":
            rows = batch.last_rows if self.model.config.is_decoder else batch.first_rows  # as classifiers do
            pooled = np.asarray(self.model.ops.pooler(states, rows, self.model.params.tree["pooler"])[0])
        return list(Encoded([states], None, pooled, batch.cu_seqlens).vectors(self.pool, self.normalize))


def _as_text(text: Texts) -> Any:
    """Return a text, or both of a pair, as strings."""
    if isinstance(text, tuple):
        return tuple(map(_as_text, text))
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


def write_features(extractor: Extractor, texts: Iterable[Texts], out: str | Path) -> dict[str, int]:
    """Write vectors of texts to a file, which appears when all are there.

    `out` is a `.npy`, one array with a row for each text; with pool "none" one for each token, and beside it
    NAME.cu_seqlens.npy (S+1,): text s is rows cu_seqlens[s]:cu_seqlens[s+1]. Or it is a `.jsonl`, a line for
    each text: {"vector": [...]}, or {"tokens": [...], "vectors": [[...], ...]}. Texts are read once.

    Return how many `texts`, `tokens` and numbers in a vector (`width`) there are, and how many texts were
    `cut`. Raise InputError when the file is to be of another kind; RunError when the disk is full; nothing is
    left behind.
    """
    out = Path(out)
    check_format(out)
    lengths = array("q")  # of texts: eight bytes for each are all that grows with them

    def counted() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for ids, vector in extractor.stream(texts):
            lengths.append(len(ids))
            yield ids, vector

    def write(path: Path) -> None:
        if out.suffix == ".npy":
            rows = (vector for _, vector in counted())
            _write_rows(path, rows, (extractor.width,), extractor.model.params.flat.dtype)
            borders_file(out).unlink(missing_ok=True)  # of the rows that these replace
        else:
            with open(path, "w", encoding="utf-8", newline="\n") as file:
                file.writelines(_line(ids, vector, extractor.tokenizer.vocab) for ids, vector in counted())

    write_atomically(out, write)
    if out.suffix == ".npy" and extractor.pool == "none":
        borders = np.concatenate([[0], np.cumsum(np.array(lengths, np.int64))])
        write_atomically(borders_file(out), lambda path: _write_rows(path, [borders], (), borders.dtype))
    if extractor.cut:
        warn(f"{extractor.cut:,} texts are longer than {extractor.max_length} pieces and lost their end.")
    return {"texts": len(lengths), "tokens": sum(lengths), "width": extractor.width, "cut": extractor.cut}


def check_format(out: Path) -> None:
    """Raise InputError when features can't be written as such a file."""
    if out.suffix not in FORMATS:
        raise InputError("$out is no file of features; give it the suffix .npy or .jsonl.", out=str(out))
    if out.is_dir():
        raise InputError("$out is a folder; name a file in it.", out=str(out))


def borders_file(out: Path) -> Path:
    """Name the file that says which rows of `out` belong to which text."""
    return out.with_suffix(".cu_seqlens.npy")


def _write_rows(path: Path, rows: Iterable[np.ndarray], shape: tuple[int, ...], dtype: Any) -> None:
    """Write an array some rows of a shape at a time: how many there are is written at the end.

    Not by `tofile`, nor by `np.save`, which calls it: a disk that is full goes unnoticed there.
    """
    with open(path, "wb") as file:
        begin = write_header(file, (0, *shape), dtype)
        for some in rows:
            file.write(some.astype(dtype, copy=False).tobytes())
        count = (file.tell() - begin) // (math.prod(shape) * dtype.itemsize)
        file.seek(0)
        write_header(file, (count, *shape), dtype)


def write_header(file: BinaryIO, shape: tuple[int, ...], dtype: "np.dtype[Any]") -> int:
    """Write a header of `.npy` with room for any number of rows; return where the data begins."""
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, described)
    return file.tell()


def _line(ids: np.ndarray, vector: np.ndarray, vocab: abc.Sequence[str]) -> str:
    if vector.ndim == 1:
        return f'{{"vector": {_numbers(vector)}}}\n'
    tokens = json.dumps([vocab[i] for i in ids.tolist()], ensure_ascii=False)
    rows = ", ".join(map(_numbers, vector))
    return f'{{"tokens": {tokens}, "vectors": [{rows}]}}\n'


def _numbers(vector: np.ndarray) -> str:
    """Write as JSON, in as few digits as tell these numbers from their neighbours in float32."""
    digits = 9 if vector.dtype == np.float32 else 17
    return "[" + ", ".join(f"{value:.{digits}g}" for value in vector.tolist()) + "]"
