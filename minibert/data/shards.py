"""Token shards: a corpus as ids in a folder, written in constant memory, read through a memory map.

    tokens.bin     every token, uint16 (uint32 from 65,536 pieces on)
    sentences.bin  tokens in each sentence, uint16
    documents.bin  for each document where it ends: (tokens, sentences) before that point, two uint64
    meta.json      version, counts, and the SHA-256 of the vocabulary that the ids belong to

Numbers are little-endian. With English sentences that is about 2.1 bytes a token.
"""

import hashlib
import json
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

import numpy as np

from minibert.data.corpus import SentenceStream
from minibert.errors import InputError
from minibert.files import write_folder_atomically
from minibert.tokenizer import Tokenizer

FORMAT = "minibert-shards"
VERSION = 1
LONGEST_SENTENCE = (1 << 16) - 1  # what uint16 can count; a longer one is stored in parts
LONGEST_DOCUMENT = 1 << 17  # tokens; a longer one is stored as several, which bounds the memory of a reader
BUFFERED = 1 << 20  # tokens gathered before they are written

Progress = Callable[[int, int | None], None]


def vocabulary_hash(vocab: Iterable[str]) -> str:
    """SHA-256 of the pieces, one a line: it tells vocabularies apart."""
    return hashlib.sha256("\n".join(vocab).encode("utf-8", "surrogatepass")).hexdigest()


def write_shards(
    stream: Iterable[str | None], tokenizer: Tokenizer, folder: str | Path, progress: Progress | None = None
) -> "TokenShards":
    """Tokenize a corpus into a folder of shards. The folder appears when it is complete, or not at all.

    Sentences without tokens and documents without sentences are left out. A document of more than 131,072
    tokens becomes several, cut between sentences.

    Parameters
    ----------
    stream : sentences with None between documents, as `minibert.data.corpus.sentences` gives them.
    tokenizer : its `encode` makes the ids.
    folder : a name that is free, or an empty folder.
    progress : called about every million tokens with (bytes read, bytes in total) of the corpus's files; with
        (characters read, None) when the stream is not a `SentenceStream`.

    Returns
    -------
    The shards, opened.

    Raises
    ------
    InputError
        When the corpus holds no token, or `folder` holds something already.
    RunError
        When the disk is full or the folder can't be written.
    """
    folder = Path(folder)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise InputError(f"folder={str(folder)!r} holds something already; remove it or name another.")
    write_folder_atomically(folder, lambda place: _write(stream, tokenizer, place, progress))
    return TokenShards(folder, tokenizer)


def _write(
    stream: Iterable[str | None], tokenizer: Tokenizer, place: Path, progress: Progress | None
) -> None:
    with (
        open(place / "tokens.bin", "wb") as tokens,
        open(place / "sentences.bin", "wb") as sentences,
        open(place / "documents.bin", "wb") as documents,
    ):
        writer = _Writer(tokens, sentences, documents, token_type(tokenizer.vocab_size))
        characters, told = 0, 0
        for sentence in stream:
            if sentence is None:
                writer.end_document()
                continue
            characters += len(sentence)
            writer.add_sentence(tokenizer.encode(sentence))
            if progress and writer.n_tokens - told >= BUFFERED:
                told = writer.n_tokens
                progress(*_how_far(stream, characters))
        writer.end_document()
        writer.flush()
    if not writer.n_documents:
        raise InputError("The corpus holds no token; give files with text in them.")
    if progress:
        progress(*_how_far(stream, characters))
    meta = {
        "format": FORMAT,
        "version": VERSION,
        "tokens": writer.n_tokens,
        "sentences": writer.n_sentences,
        "documents": writer.n_documents,
        "vocab_size": tokenizer.vocab_size,
        "vocab_sha256": vocabulary_hash(tokenizer.vocab),
    }
    (place / "meta.json").write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")


def _how_far(stream: Iterable[str | None], characters: int) -> tuple[int, int | None]:
    if isinstance(stream, SentenceStream):
        return stream.bytes_read, stream.bytes_total
    return characters, None


def token_type(vocab_size: int) -> np.dtype:
    """The narrowest type on the disk that holds every id."""
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


class _Writer:
    """Three growing files and the counts; at most BUFFERED tokens and one sentence are held in memory."""

    def __init__(self, tokens: BinaryIO, sentences: BinaryIO, documents: BinaryIO, dtype: np.dtype):
        self.files = tokens, sentences, documents
        self.dtypes = dtype, np.dtype("<u2"), np.dtype("<u8")
        self.buffers = array("I"), array("H"), array("Q")  # at least 4, 2 and 8 bytes an item
        self.n_tokens = self.n_sentences = self.n_documents = 0
        self.begin = 0  # tokens before the current document

    def add_sentence(self, ids: list[int]) -> None:
        for start in range(0, len(ids), LONGEST_SENTENCE):
            part = ids[start : start + LONGEST_SENTENCE]
            if self.n_tokens + len(part) - self.begin > LONGEST_DOCUMENT:
                self.end_document()
            self.buffers[0].extend(part)
            self.buffers[1].append(len(part))
            self.n_tokens += len(part)
            self.n_sentences += 1
        if len(self.buffers[0]) >= BUFFERED:
            self.flush()

    def end_document(self) -> None:
        if self.n_tokens > self.begin:
            self.buffers[2].extend((self.n_tokens, self.n_sentences))
            self.n_documents += 1
            self.begin = self.n_tokens

    def flush(self) -> None:
        for file, buffer, dtype in zip(self.files, self.buffers, self.dtypes, strict=True):
            file.write(np.array(buffer, dtype).tobytes())
            del buffer[:]


class TokenShards:
    """A folder of shards, memory-mapped: opening costs nothing, and pages come in as they are read.

    Parameters
    ----------
    folder : what `write_shards` made.
    tokenizer : when given, checked to be the one that the ids were made with.

    Attributes
    ----------
    n_documents, n_sentences, n_tokens, vocab_size : counts.
    tokens : (n_tokens,) every token; `sentence_lengths` (n_sentences,) tokens in each sentence.
    token_ends, sentence_ends : (n_documents,) tokens and sentences up to the end of each document.

    Raises
    ------
    InputError
        When the folder is not one of shards, is cut short or damaged, or belongs to another vocabulary.
    """

    def __init__(self, folder: str | Path, tokenizer: Tokenizer | None = None):
        self.folder = Path(folder)
        meta = self._read_meta()
        self.n_tokens, self.n_sentences, self.n_documents = (
            meta[name] for name in ("tokens", "sentences", "documents")
        )
        self.vocab_size: int = meta["vocab_size"]
        self.vocab_sha256: str = meta["vocab_sha256"]
        if tokenizer is not None:
            self.check_vocabulary(tokenizer)
        self.tokens = self._map("tokens.bin", token_type(self.vocab_size), self.n_tokens)
        self.sentence_lengths = self._map("sentences.bin", np.dtype("<u2"), self.n_sentences)
        ends = self._map("documents.bin", np.dtype("<u8"), 2 * self.n_documents)
        ends = ends.reshape(-1, 2).astype(np.int64)  # 16 bytes a document, in memory
        self.token_ends, self.sentence_ends = np.ascontiguousarray(ends.T)
        self._check_ends(self.token_ends, self.n_tokens)
        self._check_ends(self.sentence_ends, self.n_sentences)

    @property
    def document_lengths(self) -> np.ndarray:  # (n_documents,) int64
        """Tokens in each document."""
        return np.diff(self.token_ends, prepend=0)

    @property
    def sentence_counts(self) -> np.ndarray:  # (n_documents,) int64
        """Sentences in each document."""
        return np.diff(self.sentence_ends, prepend=0)

    def document(self, index: int) -> tuple[np.ndarray, np.ndarray]:  # -> tokens (n,) int32, ends (k,) int64
        """The tokens of a document, and where each of its sentences ends in them.

        Raises
        ------
        InputError
            When there is no such document, or the folder's files contradict each other.
        """
        begin, ends = self.sentences_of(index)
        tokens = self.tokens[begin : begin + int(ends[-1])].astype(np.int32)
        self.check_ids(tokens)
        return tokens, ends

    def sentences_of(self, index: int) -> tuple[int, np.ndarray]:  # -> begin, ends (k,) int64
        """Where a document begins in `tokens`, and where each of its sentences ends, counted from there."""
        if not 0 <= index < self.n_documents:
            raise InputError(f"document={index} is none of the {self.n_documents} in {self.folder}.")
        begin = int(self.token_ends[index - 1]) if index else 0
        first = int(self.sentence_ends[index - 1]) if index else 0
        lengths = self.sentence_lengths[first : int(self.sentence_ends[index])]
        ends = np.cumsum(lengths, dtype=np.int64)
        if begin + int(ends[-1]) != self.token_ends[index] or not lengths.all():
            raise self._damaged(f"the sentences of document {index} don't add up to its tokens")
        return begin, ends

    def check_ids(self, tokens: np.ndarray) -> None:  # tokens (n,)
        """Raise InputError when a token is none of the vocabulary's."""
        if tokens.size and int(tokens.max()) >= self.vocab_size:
            raise self._damaged(f"token {int(tokens.max())} is outside its vocabulary of {self.vocab_size}")

    def check_vocabulary(self, tokenizer: Tokenizer) -> None:
        """Raise InputError when the ids were made with another vocabulary than the tokenizer's."""
        if vocabulary_hash(tokenizer.vocab) != self.vocab_sha256:
            raise InputError(
                f"The token shards in {self.folder} belong to another vocabulary ({self.vocab_size} pieces) "
                f"than the tokenizer's ({tokenizer.vocab_size}); write them again, or give the right one."
            )

    def _read_meta(self) -> dict:
        try:
            meta = json.loads((self.folder / "meta.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(
                f"{self.folder} holds no token shards (meta.json: {reason}); make them with write_shards."
            ) from error
        if not isinstance(meta, dict) or meta.get("format") != FORMAT:
            raise InputError(f"{self.folder} holds no token shards; make them with write_shards.")
        if meta.get("version") != VERSION:
            raise InputError(
                f"The token shards in {self.folder} have version {meta.get('version')!r}, "
                f"this minibert reads {VERSION}; write them again."
            )
        for name in ("tokens", "sentences", "documents", "vocab_size"):
            if type(meta.get(name)) is not int or meta[name] < 1:
                raise self._damaged(f"{name}={meta.get(name)!r} in meta.json is not a count")
        if not isinstance(meta.get("vocab_sha256"), str):
            raise self._damaged("meta.json lacks the vocabulary's SHA-256")
        return meta

    def _map(self, name: str, dtype: np.dtype, count: int) -> np.ndarray:
        """A file as an array, after its real size was compared with what meta.json says."""
        path = self.folder / name
        try:
            size = path.stat().st_size
        except OSError as error:
            raise self._damaged(f"{name} is missing") from error
        if size != count * dtype.itemsize:
            expected = count * dtype.itemsize
            raise self._damaged(f"{name} has {size:,} bytes where meta.json means {expected:,}")
        return np.memmap(path, dtype, mode="r").view(np.ndarray)

    def _check_ends(self, ends: np.ndarray, total: int) -> None:
        if ends[-1] != total or ends[0] < 1 or np.any(np.diff(ends) < 1):
            raise self._damaged("documents.bin does not rise to the counts of meta.json")

    def _damaged(self, what: str) -> InputError:
        return InputError(f"The token shards in {self.folder} are damaged: {what}; write them again.")
