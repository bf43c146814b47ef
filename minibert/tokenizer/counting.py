"""Counting words: any amount of text to its different words and how often each occurs.

Text comes in pieces of a few megabytes, each counted by the next free thread; memory grows with the number of
different words, not with the text. The result depends on the text alone: words stand in the order of their
UTF-8 bytes, which is that of their code points, whatever the threads and the order of the files.
"""

import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from reprlib import repr as short
from typing import NamedTuple

import numpy as np

from minibert.errors import InputError
from minibert.machine import cores
from minibert.reading import byte_pieces
from minibert.tokenizer import native
from minibert.tokenizer.normalize import MAX_CHARS, BasicTokenizer, split_at_whitespace

PIECE_BYTES = 1 << 22  # of text, counted at once
LONGEST_STRETCH = 1 << 26  # bytes without any white space, which are held together
CRC_BYTES = 256  # of a line, by which it is held out or not
MAX_MODULUS = 1 << 31  # one line of more than that is none
_TRAINING, _HELD_OUT, _BY_LINE = 0, 1, 2  # where the words of a piece go


class WordCounts(Mapping[str, int]):
    """Words and how often each occurs: a mapping that keeps a million words in three arrays.

    Parameters
    ----------
    data : UTF-8 of the words, end to end, in ascending order (lone surrogates as "surrogatepass" has them).
    bounds : (W + 1,) int64, word i is `data[bounds[i]:bounds[i + 1]]`.
    counts : (W,) int64.

    Examples
    --------
    >>> counts = WordCounts.of({"b": 2, "a": 3})
    >>> list(counts.items()), counts["b"], counts.total()
    ([('a', 3), ('b', 2)], 2, 5)
    """

    def __init__(self, data: bytes, bounds: np.ndarray, counts: np.ndarray):
        self.data = data
        self.bounds = bounds
        self.counts = counts

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> "WordCounts":
        """The same counts as any other mapping's; itself if it is a WordCounts already.

        Raises
        ------
        InputError
            When a word is no string or a count no integer of 64 bits.
        """
        if isinstance(counts, WordCounts):
            return counts
        if not isinstance(counts, Mapping):
            raise InputError(f"{short(counts)} tells no counts of words; give what count_words gives.")
        for word in counts:
            if not isinstance(word, str):
                raise InputError(f"the word {short(word)} is no string; give strings with their counts.")
        words = sorted(counts)
        for word in words:
            if not isinstance(counts[word], int | np.integer) or abs(int(counts[word])) >= 1 << 63:
                raise InputError(
                    f"the count of {word!r} is {counts[word]!r}; give whole numbers below 2**63."
                )
        return cls(*native.end_to_end(words), np.array([counts[word] for word in words], np.int64))

    def total(self) -> int:
        """Number of words, each as often as it occurs."""
        return sum(self.counts.tolist())

    def characters(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        """Code points of words first:last, end to end (n,), and how many each word has (last - first,)."""
        begin = self.bounds[first]
        data = self.data[begin : self.bounds[last]]
        codes = data.decode("utf-8", "surrogatepass").encode("utf-32-le", "surrogatepass")
        begins_character = (np.frombuffer(data, np.uint8) & 0xC0) != 0x80
        n_before = np.concatenate([[0], np.cumsum(begins_character)])
        return np.frombuffer(codes, "<u4"), np.diff(n_before[self.bounds[first : last + 1] - begin])

    def __len__(self) -> int:
        return len(self.counts)

    def __iter__(self) -> Iterator[str]:
        return (self._word(begin, end) for begin, end in pairwise(self.bounds.tolist()))

    def __getitem__(self, word: str) -> int:
        wanted = word.encode("utf-8", "surrogatepass") if isinstance(word, str) else None
        low, high = 0, len(self) if wanted is not None else 0
        while low < high:
            middle = (low + high) // 2
            found = self.data[self.bounds[middle] : self.bounds[middle + 1]]
            if found == wanted:
                return int(self.counts[middle])
            low, high = (middle + 1, high) if found < wanted else (low, middle)
        raise KeyError(word)

    def items(self) -> Iterable[tuple[str, int]]:
        return _Items(self)

    def __repr__(self) -> str:
        return f"<WordCounts: {self.total():,} words, {len(self):,} different>"

    def _word(self, begin: int, end: int) -> str:
        return self.data[begin:end].decode("utf-8", "surrogatepass")


class _Items:
    """The pairs of a WordCounts, one after the other without looking each word up."""

    def __init__(self, words: WordCounts):
        self._words = words

    def __len__(self) -> int:
        return len(self._words)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return zip(self._words, self._words.counts.tolist(), strict=True)


class CountedFiles(NamedTuple):
    """What `count_files` found."""

    words: WordCounts  # to learn from
    held_out: WordCounts  # to measure on; empty with held_out=0
    n_bytes: int  # of text, after decompression
    n_invalid: int  # stretches of bytes that were not UTF-8, each read as U+FFFD, which cleaning deletes


class _Piece(NamedTuple):
    """Some text on its way to a counter."""

    data: bytes
    raw: bool = True  # bytes of unknown origin, otherwise those of a str
    side: int = _TRAINING
    path: Path | None = None
    offset: int = 0  # of the first byte in its file
    position: int = 0  # how much was read up to here, in bytes on the disk


def count_words(
    texts: Iterable[str | bytes],
    basic_tokenizer: BasicTokenizer,
    *,
    max_chars: int | None = None,
    threads: int | None = None,
    engine: str = "auto",
) -> WordCounts:
    """How often each word occurs, words being what `basic_tokenizer` makes of the texts.

    Memory grows with the number of different words, not with the length of the text.

    Parameters
    ----------
    texts : any number of texts, each on its own: no word runs from one to the next. Bytes are UTF-8; what is
        not is read as U+FFFD.
    basic_tokenizer : the rules; its compat mode also gives the word limit.
    max_chars : words of more characters are not counted, a tokenizer makes [UNK] of them; by default the
        limit of the compat mode (200 for "google", 100 for the others).
    threads : how many count at once; by default as many as there are cores for this process.
    engine : "c", "python", or "auto": C where the extension is built and there is no never_split.

    Raises
    ------
    InputError
        When a text is neither str nor bytes, an argument is out of range, or engine="c" is asked for where it
        can't be had.

    Examples
    --------
    >>> count_words(["The cat, the hat."], BasicTokenizer())["the"]
    2
    """
    if isinstance(texts, str | bytes):
        raise InputError(f"texts={short(texts)} is one text; give a list of them.")
    if not isinstance(texts, Iterable):
        raise InputError(f"texts={short(texts)} is no list of texts; give strings or bytes.")
    with _Counting(basic_tokenizer, 0, max_chars, threads, engine) as counting:
        for piece in _pieces_of_texts(texts):
            counting.take(piece)
        return counting.result().words


def count_files(
    paths: Iterable[str | Path],
    basic_tokenizer: BasicTokenizer,
    *,
    held_out: int = 0,
    strict: bool = False,
    max_chars: int | None = None,
    threads: int | None = None,
    engine: str = "auto",
    progress: Callable[[int, int], None] | None = None,
) -> CountedFiles:
    """Count the words of text files of any size: plain, .gz or .xz.

    Files are read as bytes in pieces that end at white space, so a file needs no memory for its length; a
    stretch without any white space is held whole, up to 64 MiB. About `2 * threads` pieces of 4 MiB are under
    way at once.

    Parameters
    ----------
    paths : files, see `minibert.data.corpus.find_files` for folders and globs. Their order changes nothing.
    basic_tokenizer, max_chars, threads, engine : as for `count_words`.
    held_out : 0, or a number m from 2 to 2**31: one line of m is counted as held out, namely that whose
        CRC-32 (of at most its first 256 bytes, without the line end) is a multiple of m. The same line falls
        on the same side wherever it stands, so text that is repeated is never on both.
    strict : raise at the first byte that is not UTF-8, instead of counting such stretches.
    progress : called from the calling thread with the bytes worked off and their total, both on the disk.

    Raises
    ------
    InputError
        A file that is missing or damaged, or has a longer stretch without white space; an argument out of
        range; under `strict`, bytes that are not UTF-8, with the file and the offset of the first one (after
        decompression).
    """
    files = [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]
    if not isinstance(held_out, int | np.integer) or held_out > MAX_MODULUS:
        raise InputError(f"held_out={held_out!r} is not possible; give a whole number up to 2**31, or 0.")
    if held_out == 1 or held_out < 0:
        raise InputError(f"held_out={held_out} leaves no text to learn from; give 2 or more, or 0 for none.")
    total = sum(_size(file) for file in files)
    done = 0
    with _Counting(basic_tokenizer, held_out, max_chars, threads, engine, strict) as counting:
        for file in files:
            for piece in _pieces_of_file(file, held_out):
                position = counting.take(piece)
                if progress is not None and position is not None:
                    progress(done + position, total)
            counting.finish()
            done += _size(file)
            if progress is not None:
                progress(done, total)
        return counting.result()


# From texts and files to pieces


def _pieces_of_texts(texts: Iterable[str | bytes]) -> Iterator[_Piece]:
    """Texts with a line end between them, until a piece is full."""
    waiting: list[str | bytes] = []
    size = 0
    for number, text in enumerate(texts):
        if not isinstance(text, str | bytes):
            raise InputError(
                f"texts[{number}]={short(text)} is {type(text).__name__}; give strings or bytes."
            )
        if waiting and (size > PIECE_BYTES // 2 or isinstance(text, bytes) != isinstance(waiting[0], bytes)):
            yield _piece_of(waiting)
            waiting, size = [], 0
        waiting.append(text)
        size += len(text) + 1
    if waiting:
        yield _piece_of(waiting)


def _piece_of(texts: list[str | bytes]) -> _Piece:
    if isinstance(texts[0], bytes):
        return _Piece(b"\n".join(texts), raw=True)
    return _Piece("\n".join(texts).encode("utf-8", "surrogatepass"), raw=False)


def _pieces_of_file(file: Path, held_out: int) -> Iterator[_Piece]:
    """A file in pieces that end after white space; where lines decide, after a line end.

    A line that is longer than a piece comes in several, which say on which side it falls.
    """
    separators = b"\n" if held_out else b" \n\t\r"
    waiting: list[bytes] = []  # what follows the last separator so far
    side = _BY_LINE if held_out else _TRAINING
    offset = position = 0

    def taken(data: bytes) -> _Piece:
        nonlocal offset
        offset += len(data)
        return _Piece(data, True, side, file, offset - len(data), position)

    def read_up_to(place: int) -> None:
        nonlocal position
        position = place

    for block in byte_pieces(file, PIECE_BYTES, read_up_to):
        if held_out and side != _BY_LINE:  # in the middle of a long line
            end = block.find(b"\n") + 1
            if end:
                yield taken(b"".join([*waiting, block[:end]]))
                waiting, block, side = [], block[end:], _BY_LINE
        cut = _last(block, separators if side == _BY_LINE or not held_out else b" \t\r")
        if cut:
            yield taken(b"".join([*waiting, block[:cut]]))
            waiting = []
        waiting.append(block[cut:])
        if sum(map(len, waiting)) > LONGEST_STRETCH:
            raise InputError(
                f"{file} has more than {LONGEST_STRETCH >> 20} MiB without any white space, from offset "
                f"{offset:,} of the text on; check that it is text, or put line ends into it."
            )
        if side == _BY_LINE and sum(map(len, waiting)) >= max(PIECE_BYTES, CRC_BYTES):
            line = b"".join(waiting)
            waiting = [line]
            side = _HELD_OUT if zlib.crc32(line[:CRC_BYTES]) % held_out == 0 else _TRAINING
    if any(waiting):
        yield taken(b"".join(waiting))


def _last(block: bytes, separators: bytes) -> int:
    """Where the part of a block ends that ends with a separator; 0 if it has none."""
    return 1 + max(block.rfind(separator) for separator in separators)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError as error:
        raise InputError(f"{file} can't be read: {error.strerror or error}; check the file.") from error


# From pieces to counts


class _Counting:
    """Pieces counted over threads, each with a counter of its own; the counters are added up in the end."""

    def __init__(
        self,
        basic_tokenizer: BasicTokenizer,
        held_out: int,
        max_chars: int | None,
        threads: int | None,
        engine: str,
        strict: bool = False,
    ):
        if threads is not None and threads < 1:
            raise InputError(f"threads={threads} is too small; give 1 or more.")
        if max_chars is None:
            max_chars = MAX_CHARS[basic_tokenizer.compat]
        if max_chars < 1:
            raise InputError(f"max_chars={max_chars} is too small; give 1 or more.")
        in_c = native.choose(engine)
        if in_c and basic_tokenizer.never_split:
            if engine == "c":
                raise InputError("engine='c' counts no words of never_split; choose engine='python'.")
            in_c = False
        if in_c:
            rules = {
                name: getattr(basic_tokenizer, name)
                for name in ("lower_case", "strip_accents", "tokenize_chinese_chars", "compat")
            }
            self._new_counter = lambda: native.Counter(**rules, max_chars=min(max_chars, 2**31 - 1))
        else:
            threads = 1  # Python counts with one at a time anyway
            self._new_counter = lambda: PythonCounter(basic_tokenizer, max_chars)
        threads = threads or cores()
        self._held_out = held_out
        self._strict = strict
        self._counters = [(self._new_counter(), self._new_counter()) for _ in range(threads)]
        self._free: SimpleQueue = SimpleQueue()
        for pair in self._counters:
            self._free.put(pair)
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._under_way: deque[tuple[_Piece, Future]] = deque()
        self._n_bytes = self._n_invalid = 0

    def __enter__(self) -> "_Counting":
        return self

    def __exit__(self, *_) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)  # what runs is done in a moment

    def take(self, piece: _Piece) -> int | None:
        """Count a piece, perhaps later; where in its file the counting stands now, if it went on."""
        if self._pool is None:
            return self._done(piece, self._count(piece))
        self._under_way.append((piece, self._pool.submit(self._count, piece)))
        return self._take_out() if len(self._under_way) > 2 * len(self._counters) else None

    def finish(self) -> None:
        """Wait for what is under way."""
        while self._under_way:
            self._take_out()

    def result(self) -> CountedFiles:
        self.finish()
        words, held_out = self._counters[0]
        self._free = SimpleQueue()  # forgets the counters
        while len(self._counters) > 1:
            other = self._counters.pop()
            words.add(other[0])
            held_out.add(other[1])
            del other  # before the next one is added
        return CountedFiles(
            WordCounts(*words.export()), WordCounts(*held_out.export()), self._n_bytes, self._n_invalid
        )

    def _count(self, piece: _Piece) -> int:
        pair = self._free.get()
        try:
            if piece.side == _BY_LINE:
                return pair[0].count_split(pair[1], self._held_out, piece.data, piece.raw)
            return pair[piece.side].count(piece.data, piece.raw)
        finally:
            self._free.put(pair)

    def _take_out(self) -> int:
        piece, future = self._under_way.popleft()
        return self._done(piece, future.result())

    def _done(self, piece: _Piece, n_invalid: int) -> int:
        if n_invalid and self._strict:
            raise _not_utf8(piece)
        self._n_invalid += n_invalid
        self._n_bytes += len(piece.data)
        return piece.position


def _not_utf8(piece: _Piece) -> InputError:
    try:
        piece.data.decode("utf-8")
    except UnicodeDecodeError as error:
        where = piece.offset + error.start
        return InputError(
            f"{piece.path} is not UTF-8: byte 0x{piece.data[error.start]:02x} at offset {where:,} of the "
            "text; convert it, e.g. with iconv -t UTF-8."
        )
    raise AssertionError("two decoders of UTF-8 differ")


class PythonCounter:
    """The readable twin of `native.Counter`."""

    def __init__(self, basic_tokenizer: BasicTokenizer, max_chars: int):
        self._basic_tokenizer = basic_tokenizer
        self._max_chars = max_chars
        self._words: Counter[str] = Counter()

    def count(self, data: bytes, raw: bool = True) -> int:
        """Count the words of a text; returns how many stretches of it were not UTF-8."""
        text = data.decode("utf-8", "replace" if raw else "surrogatepass")
        # What stands between spaces repeats itself so often that each form of it is split only once.
        for chunk, times in Counter(split_at_whitespace(text)).items():
            for word in self._basic_tokenizer.tokenize(chunk):
                if len(word) <= self._max_chars:
                    self._words[word] += times
        return text.count("\ufffd") - data.count(b"\xef\xbf\xbd") if raw else 0

    def count_split(self, held_out: "PythonCounter", modulus: int, data: bytes, raw: bool = True) -> int:
        """As `count`, but lines whose CRC-32 is a multiple of `modulus` go into `held_out`."""
        sides: tuple[list[bytes], list[bytes]] = ([], [])
        for line in data.split(b"\n"):
            sides[zlib.crc32(line[:CRC_BYTES]) % modulus == 0].append(line)
        return self.count(b"\n".join(sides[0]), raw) + held_out.count(b"\n".join(sides[1]), raw)

    def add(self, other: "PythonCounter") -> None:
        """Add the counts of another counter."""
        self._words.update(other._words)

    def export(self) -> tuple[bytes, np.ndarray, np.ndarray]:
        """The words end to end in the order of their bytes, where each begins and ends, and the counts."""
        words = WordCounts.of(self._words)
        return words.data, words.bounds, words.counts
