"""Token shards: a corpus as ids in a folder, written in constant memory, read through a memory map.

    tokens.bin     every token, uint16 (uint32 beyond 65,536 pieces)
    sentences.bin  tokens in each sentence, uint16
    documents.bin  for each document where it ends: (tokens, sentences) before that point, two uint64
    meta.json      version, counts, the SHA-256 of the vocabulary that the ids belong to, and the CRC-32 of
                   every file; the one for meta.json itself covers everything in it except the CRC-32s

Numbers are little-endian. English takes about 2.1 bytes a token.
"""

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from minibert.base.errors import InputError, MissingFile
from minibert.base.files import crc32_of, write_folder_atomically
from minibert.base.json_files import read_json, schema_error
from minibert.core.arrays import Array
from minibert.data.corpus import EmptyCorpusError
from minibert.tokenizer import BatchEncoding, Tokenizer
from minibert.tokenizer.counting import in_order
from minibert.tokenizer.written import WrittenTokens

FORMAT = "minibert-shards"
VERSION = 1
META = "meta.json"
COUNTS = ("tokens", "sentences", "documents", "vocab_size")
FIELDS = dict.fromkeys(COUNTS, int) | {"vocab_sha256": str, "crc32": dict[str, int]}
LONGEST_SENTENCE = (1 << 16) - 1  # tokens, which uint16 can count; a longer sentence is stored in parts
LONGEST_DOCUMENT = 1 << 17  # tokens; a longer one is stored as several, which bounds the memory of a reader
BUFFERED = 1 << 20  # characters that are encoded together
GROUPS_AHEAD = 2  # besides the group being read: one being encoded, one waiting to be written
Stream: TypeAlias = Iterable[str | None]  # sentences, with None between documents
Group: TypeAlias = tuple[list[str], list[int]]  # sentences; how many precede each border between documents


def vocabulary_hash(vocab: Iterable[str]) -> str:
    """Hash the pieces, one a line (SHA-256), to tell vocabularies apart.

    Parameters
    ----------
    vocab : iterable of str
        The pieces in the order of their ids.

    Returns
    -------
    str
        64 hexadecimal digits.
    """
    lines = "\n".join(vocab)
    return hashlib.sha256(lines.encode("utf-8", "surrogatepass")).hexdigest()


def write_shards(stream: Stream, tokenizer: Tokenizer, folder: str | Path) -> "TokenShards":
    """Tokenize a corpus into a folder of shards. The folder appears when it is complete, or not at all.

    Sentences without tokens and documents without sentences are left out; a document of more than 131,072
    tokens becomes several, cut between sentences.

    Parameters
    ----------
    stream : iterable of str or None
        Sentences with None between documents, such as a `data.corpus.SentenceStream`.
    tokenizer : Tokenizer
        Turns sentences into the ids that are written, without [CLS] and [SEP].
    folder : str or Path
        It must not exist, or must be empty.

    Returns
    -------
    TokenShards
        The shards, opened.

    Raises
    ------
    InputError
        When the folder is not empty; an `EmptyCorpusError` when the corpus has no token.
    RunError
        When the disk is full or the folder can't be written.
    """
    folder = Path(folder)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise InputError(f"folder={str(folder)!r} exists and is not an empty folder; name another.")
    write_folder_atomically(folder, lambda place: fill_with_shards(stream, tokenizer, place))
    return TokenShards(folder, tokenizer)


def fill_with_shards(stream: Stream, tokenizer: Tokenizer, place: Path) -> int:
    """Fill a folder as `write_shards` does.

    Parameters
    ----------
    stream : iterable of str or None
        Sentences with None between documents.
    tokenizer : Tokenizer
        Turns sentences into the ids that are written.
    place : Path
        The folder, which exists.

    Returns
    -------
    int
        How many documents were written.

    Raises
    ------
    EmptyCorpusError
        When the corpus has no token; the files in the folder are then empty.
    """
    written = WrittenTokens(tokenizer)

    def encode(group: Group) -> BatchEncoding:
        sentences, _ = group
        return tokenizer.encode_batch(sentences, add_special_tokens=False, threads=1)

    with ExitStack() as stack:
        names = ("tokens.bin", "sentences.bin", "documents.bin")
        files = [stack.enter_context(open(place / name, "wb")) for name in names]
        writer = _Writer(files, token_type(tokenizer.vocab_size))
        # A second thread encodes while this one reads.
        encoded = in_order(encode, _groups(stream), threads=1, ahead=GROUPS_AHEAD)
        for (_, borders), batch in encoded:
            written.add(batch)
            writer.add(batch.ids, batch.cu_seqlens, borders)
        writer.close()
    if not writer.n_documents:
        raise EmptyCorpusError("The corpus has no tokens; give files with text in them.")
    written.warn()
    meta: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "tokens": writer.n_tokens,
        "sentences": writer.n_sentences,
        "documents": writer.n_documents,
        "vocab_size": tokenizer.vocab_size,
        "vocab_sha256": vocabulary_hash(tokenizer.vocab),
    }
    meta["crc32"] = writer.crc32 | {META: _crc32_of_meta(meta)}
    (place / META).write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8", newline="\n")
    return writer.n_documents


def _crc32_of_meta(meta: dict[str, Any]) -> int:
    """Return the checksum of everything in meta.json except the checksums."""
    rest = {name: value for name, value in meta.items() if name != "crc32"}
    text = json.dumps(rest, sort_keys=True)
    return zlib.crc32(text.encode())


def _groups(stream: Stream) -> Iterator[Group]:
    """Yield groups of sentences to encode together: about BUFFERED characters, or less in the last group."""
    sentences: list[str] = []
    borders: list[int] = []
    waiting = 0  # characters in `sentences`
    for sentence in stream:
        if sentence is None:
            borders.append(len(sentences))
            continue
        sentences.append(sentence)
        waiting += len(sentence)
        if waiting >= BUFFERED:
            yield sentences, borders
            sentences = []
            borders = []
            waiting = 0
    yield sentences, borders


def token_type(vocab_size: int) -> np.dtype:
    """Return the narrowest type that holds every id; it is the type on the disk.

    Parameters
    ----------
    vocab_size : int
        Number of ids.

    Returns
    -------
    dtype
        uint16 up to 65,536 pieces, else uint32, little-endian.
    """
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


class _Writer:
    """Writes the three growing files, and keeps their checksums and counts, for `fill_with_shards`."""

    def __init__(self, files: Sequence[BinaryIO], dtype: np.dtype):
        self.files = files
        self.dtype = dtype
        self.crc32 = {Path(file.name).name: 0 for file in files}
        self.n_tokens = self.n_sentences = self.n_documents = 0
        self.begin = 0  # tokens before the current document

    # ids (n,)  ends (k + 1,) from 0 to n  borders (d,)
    def add(self, ids: np.ndarray, ends: np.ndarray, borders: list[int]) -> None:
        """Write sentences; `borders` has how many of them precede each border between documents."""
        ends = self.n_tokens + ends.astype(np.int64)
        stops = ends[borders].tolist()
        too_long = np.flatnonzero(np.diff(ends) > LONGEST_SENTENCE)  # for uint16: they are stored in parts
        parts = [np.arange(ends[i], ends[i + 1], LONGEST_SENTENCE) for i in too_long]
        ends = np.unique(np.concatenate([ends, *parts]))  # drops sentences without tokens
        documents: list[int] = []
        for stop in stops:
            self._cut_document(stop, ends, documents)
            if stop > self.begin:
                self.begin = stop
                documents.append(stop)
        self._cut_document(self.n_tokens + len(ids), ends, documents)  # the last document may continue
        sentence_ends = self.n_sentences + np.searchsorted(ends, documents)
        self._write(ids, np.diff(ends), documents, sentence_ends)

    def _cut_document(self, stop: int, ends: np.ndarray, documents: list[int]) -> None:
        """Cut the current document, up to `stop`, while it is too long; add the cuts to `documents`."""
        while stop - self.begin > LONGEST_DOCUMENT:
            sentence = np.searchsorted(ends, self.begin + LONGEST_DOCUMENT, "right") - 1
            self.begin = int(ends[sentence])
            documents.append(self.begin)

    def close(self) -> None:
        """End the last document."""
        if self.n_tokens > self.begin:
            nothing = np.array([], int)
            self._write(nothing, nothing, [self.n_tokens], [self.n_sentences])

    def _write(self, ids: np.ndarray, lengths: np.ndarray, token_ends: Any, sentence_ends: Any) -> None:
        """Append to the three files, and bring checksums and counts up to date."""
        documents = np.stack([token_ends, sentence_ends], axis=1)
        arrays = [ids.astype(self.dtype), lengths.astype("<u2"), documents.astype("<u8")]
        for file, array in zip(self.files, arrays, strict=True):
            data = array.tobytes()
            name = Path(file.name).name
            # Computed from memory, not read back: it tells when the disk has stored something else.
            self.crc32[name] = zlib.crc32(data, self.crc32[name])
            file.write(data)
        self.n_tokens += len(ids)
        self.n_sentences += len(lengths)
        self.n_documents += len(token_ends)


class TokenShards:
    """A folder of shards, mapped into memory, so that only the pages in use are read from the disk.

    Opening it reads every file once, at some 2 GB a second from the page cache, to compare its checksum.

    Parameters
    ----------
    folder : str or Path
        As `write_shards` made it.
    tokenizer : Tokenizer, optional
        If given, its vocabulary must be the one that the ids were made with.

    Attributes
    ----------
    folder : Path
        The folder.
    n_tokens, n_sentences, n_documents : int
        Sizes of the corpus.
    vocab_size : int
        Number of pieces in the vocabulary; every id is below it.
    vocab_sha256 : str
        The hash of the vocabulary: see `vocabulary_hash`.
    tokens : (n_tokens,) uint16 or uint32
        Every token.
    sentence_lengths : (n_sentences,) uint16
        Tokens in each sentence.
    token_ends, sentence_ends : (n_documents,) int64
        Tokens and sentences up to the end of each document.

    Raises
    ------
    InputError
        When the folder does not hold shards, is cut short or damaged, or belongs to another vocabulary.
    """

    def __init__(self, folder: str | Path, tokenizer: Tokenizer | None = None):
        self.folder = Path(folder)
        meta = self._read_meta()
        self.n_tokens: int = meta["tokens"]
        self.n_sentences: int = meta["sentences"]
        self.n_documents: int = meta["documents"]
        self.vocab_size: int = meta["vocab_size"]
        self.vocab_sha256: str = meta["vocab_sha256"]
        self._crc32: dict[str, int] = meta["crc32"]
        if tokenizer is not None:
            self.check_vocabulary(tokenizer)
        self.tokens: Array = self._map("tokens.bin", token_type(self.vocab_size), self.n_tokens)
        self.sentence_lengths: Array = self._map("sentences.bin", np.dtype("<u2"), self.n_sentences)
        ends = self._map("documents.bin", np.dtype("<u8"), 2 * self.n_documents)
        ends = ends.reshape(-1, 2).astype(np.int64)  # 16 bytes a document, in memory
        self.token_ends, self.sentence_ends = np.ascontiguousarray(ends.T)
        self._require_rising("tokens", self.token_ends, self.n_tokens)
        self._require_rising("sentences", self.sentence_ends, self.n_sentences)

    @property
    def document_lengths(self) -> np.ndarray:  # (n_documents,) int64
        """Tokens in each document."""
        return np.diff(self.token_ends, prepend=0)

    @property
    def sentence_counts(self) -> np.ndarray:  # (n_documents,) int64
        """Sentences in each document."""
        return np.diff(self.sentence_ends, prepend=0)

    def document(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the tokens of a document, and where in them each of its sentences ends.

        Parameters
        ----------
        index : int
            Index of the document, from 0.

        Returns
        -------
        tokens : (n,) int32
        ends : (k,) int64
            Ends of the k sentences, exclusive; the last is n.

        Raises
        ------
        InputError
            When there is no such document, or its sentences or tokens are damaged.
        """
        begin, ends = self.sentences_of(index)
        tokens = self.tokens[begin : begin + int(ends[-1])].astype(np.int32)
        self.check_ids(tokens)
        return tokens, ends

    def sentences_of(self, index: int) -> tuple[int, np.ndarray]:
        """Return where a document begins in `tokens`, and where its sentences end, counted from there.

        Parameters
        ----------
        index : int
            Index of the document, from 0.

        Returns
        -------
        begin : int
            Index in `tokens` of its first token.
        ends : (k,) int64
            Ends of its k sentences, exclusive, relative to `begin`.

        Raises
        ------
        InputError
            When there is no such document, or its sentences do not add up to its tokens.
        """
        if not 0 <= index < self.n_documents:
            raise InputError(f"document={index} is not one of the {self.n_documents} in '{self.folder}'.")
        begin = first = 0
        if index:
            begin = int(self.token_ends[index - 1])
            first = int(self.sentence_ends[index - 1])
        last = int(self.sentence_ends[index])
        lengths = self.sentence_lengths[first:last]
        ends = np.cumsum(lengths, dtype=np.int64)
        if begin + int(ends[-1]) != self.token_ends[index] or not lengths.all():
            raise self._damaged(f"the sentences of document {index} don't add up to its tokens")
        return begin, ends

    def check_ids(self, tokens: np.ndarray) -> None:
        """Check that tokens are ids of the vocabulary.

        Parameters
        ----------
        tokens : (n,) int
            Ids read from the shards.

        Raises
        ------
        InputError
            When an id is outside the vocabulary.
        """
        if tokens.size and int(tokens.max()) >= self.vocab_size:
            raise self._damaged(f"token {int(tokens.max())} is outside its vocabulary of {self.vocab_size}")

    def check_vocabulary(self, tokenizer: Tokenizer) -> None:
        """Check that the ids were made with the vocabulary of a tokenizer.

        Parameters
        ----------
        tokenizer : Tokenizer
            The tokenizer; the hashes of the vocabularies are compared.

        Raises
        ------
        InputError
            When they were made with another vocabulary.
        """
        if vocabulary_hash(tokenizer.vocab) != self.vocab_sha256:
            raise InputError(
                f"The token shards in '{self.folder}' were made with another vocabulary ({self.vocab_size} "
                f"pieces) than the tokenizer's ({tokenizer.vocab_size}); write them again, or give that one."
            )

    def _read_meta(self) -> dict[str, Any]:
        """Return the checked contents of meta.json; raise InputError if anything in it is wrong."""
        try:
            meta = read_json(self.folder / META, advice="write the shards again")
        except MissingFile:
            meta = {}
        if meta.get("format") != FORMAT:
            raise InputError(f"'{self.folder}' holds no token shards; make them with minibert data.")
        if meta.get("version") != VERSION:
            raise InputError(
                f"The token shards in '{self.folder}' have version {meta.get('version')!r}, "
                f"this minibert reads {VERSION}; write them again."
            )
        if wrong := schema_error(meta, FIELDS):
            raise self._damaged(f"in {META} {wrong}")
        for name in COUNTS:
            if meta[name] < 1:
                raise self._damaged(f"{name}={meta[name]} in {META} is not a count")
        if meta["crc32"].get(META) != _crc32_of_meta(meta):
            raise self._damaged(f"the checksum of {META} differs")
        return meta

    def _map(self, name: str, dtype: np.dtype, count: int) -> np.ndarray:
        """Return a file as an array, after comparing its size and checksum with what meta.json says."""
        path = self.folder / name
        try:
            size = path.stat().st_size
            # The file is read, not its map: pages of a map that were touched count as memory of this process.
            crc32 = crc32_of(path)
        except OSError as error:
            raise self._damaged(f"{name} can't be read ({error.strerror})") from error
        expected = count * dtype.itemsize
        if size != expected:
            raise self._damaged(f"{name} has {size:,} bytes where meta.json means {expected:,}")
        if crc32 != self._crc32.get(name):
            raise self._damaged(f"the checksum of {name} differs")
        return np.memmap(path, dtype, mode="r").view(np.ndarray)

    def _require_rising(self, what: str, ends: np.ndarray, total: int) -> None:
        """Raise InputError unless the ends of documents, (n_documents,), rise from 1 or more to the total."""
        if ends[-1] != total or ends[0] < 1 or np.any(np.diff(ends) < 1):
            raise self._damaged(f"the ends in documents.bin do not rise to {what}={total} of {META}")

    def _damaged(self, what: str) -> InputError:
        """Return the error for damage that `what` describes."""
        return InputError(f"The token shards in '{self.folder}' are damaged: {what}; write them again.")
