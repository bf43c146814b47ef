"""Count the words of any amount of text.

Text comes in pieces of a few megabytes, each counted by the next free thread; memory grows with the number of
different words, not with the text. The result depends only on the text, not on the threads or the order of
the files: words are sorted by their UTF-8 bytes, which is the order of their code points.
"""

import re
import zlib
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from os.path import commonprefix
from pathlib import Path
from queue import SimpleQueue
from reprlib import repr as short
from typing import Any, NamedTuple, TypeVar

import numpy as np

from minibert.base.errors import InputError
from minibert.base.machine import cores
from minibert.base.reading import byte_pieces, decoded
from minibert.core.arrays import Array
from minibert.core.wordpiece import SPECIAL_TOKENS
from minibert.tokenizer import native
from minibert.tokenizer.encoding import whole_number
from minibert.tokenizer.normalize import MAX_CHARS, BasicTokenizer, split_at_whitespace

MAX_MODULUS = 1 << 31  # holding out one line in more than that would hold out none
PIECE_BYTES = 1 << 22  # text that is counted at once
LONGEST_STRETCH = 1 << 26  # text without any white space, which is kept in one piece
CRC_BYTES = 256  # the beginning of a line, which decides whether the line is held out
TRAINING, HELD_OUT, BY_LINE = 0, 1, 2  # which counter the words of a piece go to

Item = TypeVar("Item")
Made = TypeVar("Made")


class Piece(NamedTuple):
    """Some text for a counter."""

    data: bytes
    raw: bool = True  # whether the bytes are of unknown origin; False if they encode a str
    side: int = TRAINING
    path: str | Path = ""
    offset: int = 0  # the position of the first byte in its file
    position: int = 0  # how many bytes on the disk have been read up to here


@dataclass(eq=False, repr=False)
class WordCounts(Mapping[str, int]):
    """Map words to how often each occurs: a mapping that keeps a million words in three arrays.

    Attributes
    ----------
    data : bytes
        The W words in UTF-8, end to end, in ascending order (lone surrogates as "surrogatepass" encodes
        them).
    bounds : (W+1,) int64
        Word i is data[bounds[i]:bounds[i + 1]].
    counts : (W,) int64
        How often each occurs.

    Examples
    --------
    >>> counts = WordCounts.of({"b": 2, "a": 3})
    >>> list(counts.items()), counts["b"], counts.total()
    ([('a', 3), ('b', 2)], 2, 5)
    """

    data: bytes
    bounds: Array  # (W+1,) int64
    counts: Array  # (W,) int64

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> "WordCounts":
        """Copy the counts of any other mapping; return a WordCounts itself.

        Parameters
        ----------
        counts : mapping of str to int
            Words with how often each occurs, in any order.

        Returns
        -------
        WordCounts
            The same words in ascending order.

        Raises
        ------
        InputError
            When a word is not a string or a count is not an integer of 64 bits.
        """
        if isinstance(counts, WordCounts):
            return counts
        if not isinstance(counts, Mapping):
            raise InputError(f"{short(counts)} has no counts of words; give what count_words returns.")
        for word, count in counts.items():
            if not isinstance(word, str):
                raise InputError(f"the word {short(word)} is not a string; give strings with their counts.")
            if not isinstance(count, int | np.integer) or abs(int(count)) >= 1 << 63:
                raise InputError(f"the count of {word!r} is {count!r}; give integers below 2**63.")
        words = sorted(counts)
        data, bounds = native.end_to_end(words)
        counts_in_order = np.array([counts[word] for word in words], np.int64)
        return cls(data, bounds, counts_in_order)

    def total(self) -> int:
        """Return how many words there are, each counted as often as it occurs."""
        return sum(self.counts.tolist())

    def characters(self, first: int, last: int) -> tuple[Array, Array]:
        """Return the characters of some words.

        Parameters
        ----------
        first, last : int
            The index of the first word, and the index after the last.

        Returns
        -------
        codes : (n,) uint32
            Code points of the words, end to end.
        lengths : (last - first,) int64
            How many code points each word has.
        """
        bounds = self.bounds[first : last + 1]
        data = self.data[bounds[0] : bounds[-1]]
        text = data.decode("utf-8", "surrogatepass")
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
        # All bytes of a character except the first are 10xxxxxx.
        begins_character = (np.frombuffer(data, np.uint8) & 0xC0) != 0x80
        n_before = np.concatenate([[0], np.cumsum(begins_character)])
        lengths = np.diff(n_before[bounds - bounds[0]])
        return codes, lengths

    def __len__(self) -> int:
        return len(self.counts)

    def __iter__(self) -> Iterator[str]:
        for begin, end in pairwise(self.bounds.tolist()):
            yield self.data[begin:end].decode("utf-8", "surrogatepass")

    def __getitem__(self, word: str) -> int:
        if not isinstance(word, str):
            raise KeyError(word)
        encoded = word.encode("utf-8", "surrogatepass")
        at = bisect_left(range(len(self)), encoded, key=self._bytes)
        if at == len(self) or self._bytes(at) != encoded:
            raise KeyError(word)
        return int(self.counts[at])

    def items(self) -> Any:
        """Return an iterator over words with their counts, without look-ups."""
        return zip(self, self.counts.tolist(), strict=True)

    def __repr__(self) -> str:
        return f"<WordCounts: {self.total():,} words, {len(self):,} different>"

    def _bytes(self, at: int) -> bytes:
        """Return the word at an index, in UTF-8."""
        return self.data[self.bounds[at] : self.bounds[at + 1]]


class CountedFiles(NamedTuple):
    """The results of `count_files`."""

    words: WordCounts  # those to learn from
    held_out: WordCounts  # those to measure on; empty with held_out=0
    n_bytes: int  # size of the text, after decompression
    n_invalid: int  # stretches of bytes that were not UTF-8, each read as U+FFFD, which cleaning deletes


def count_words(
    texts: Iterable[str | bytes],
    basic_tokenizer: BasicTokenizer,
    *,
    max_chars: int | None = None,
    threads: int | None = None,
    core: str = "auto",
    special_tokens: Iterable[str] = SPECIAL_TOKENS,
) -> WordCounts:
    """Count how often each of the words occurs that `basic_tokenizer` makes of the texts.

    Memory grows with the number of different words, not with the length of the text.

    Parameters
    ----------
    texts : iterable of str or bytes
        Any number of separate texts: no word continues from one to the next. Bytes are UTF-8; invalid ones
        are read as U+FFFD.
    basic_tokenizer : BasicTokenizer
        The rules; its compat mode also sets the word limit.
    max_chars : int or None
        Words of more characters are not counted, as a tokenizer turns them into [UNK]; by default the limit
        of the compat mode (200 for "google", 100 for the others).
    threads : int or None
        How many threads count at once; by default one for each core that this process may use. The Python
        core uses one.
    core : {"auto", "c", "python"}, default "auto"
        Which core counts; "auto" is C where the extension is built and there is no never_split.
    special_tokens : iterable of str
        Tokens that are left out wherever they are written in the text; by default BERT's five.

    Returns
    -------
    WordCounts
        The counts, the same for any number of threads and either core.

    Raises
    ------
    InputError
        When a text is neither str nor bytes, an argument is out of range, or core="c" is not available.

    Examples
    --------
    >>> count_words(["The cat, the hat."], BasicTokenizer())["the"]
    2
    """
    if isinstance(texts, str | bytes):
        raise InputError(f"texts={short(texts)} is one text; give a list of them.")
    if not isinstance(texts, Iterable):
        raise InputError(f"texts={short(texts)} is not a list of texts; give strings or bytes.")
    special = _finder_of(special_tokens, basic_tokenizer)
    pieces = pieces_of_texts(texts)
    return _counted(pieces, basic_tokenizer, max_chars, threads, core, special=special).words


def count_files(
    paths: Iterable[str | Path],
    basic_tokenizer: BasicTokenizer,
    *,
    held_out: int = 0,
    strict: bool = False,
    max_chars: int | None = None,
    threads: int | None = None,
    core: str = "auto",
    progress: Callable[[int, int], None] | None = None,
    read: Callable[..., Iterator[bytes]] = byte_pieces,
    special_tokens: Iterable[str] = SPECIAL_TOKENS,
) -> CountedFiles:
    """Count the words of text files of any size, plain or compressed.

    Files are read as bytes in pieces that end at white space, so memory does not depend on the length of a
    file; a stretch without any white space is kept in one piece, up to 64 MiB. About `2 * threads` pieces of
    4 MiB are in memory at once.

    Parameters
    ----------
    paths : iterable of str or Path
        Files; see `minibert.data.corpus.find_files` for folders and globs. Their order makes no difference.
    basic_tokenizer, max_chars, threads, core, special_tokens
        As for `count_words`.
    held_out : int, default 0
        0, or a number m from 2 to 2**31: about one line in m is counted as held out, namely those whose
        CRC-32 (of at most the first 256 bytes, without the line end) is a multiple of m. Equal lines always
        fall on the same side, so repeated text is never on both.
    strict : bool, default False
        Whether to raise at the first byte that is not UTF-8, instead of counting invalid stretches.
    progress : callable or None
        Called from the calling thread with the bytes processed and their total, both on the disk.
    read : callable
        A function that reads a file in blocks, with the arguments of `byte_pieces`, the default.

    Returns
    -------
    CountedFiles
        Words to learn from and words held out.

    Raises
    ------
    InputError
        For a file that is missing or damaged, or has a longer stretch without white space; for an argument
        out of range; under `strict` for bytes that are not UTF-8, with the file and the offset of the first
        one (after decompression).
    """
    files = [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]
    is_possible = isinstance(held_out, int | np.integer) and (held_out == 0 or 2 <= held_out <= MAX_MODULUS)
    if not is_possible:
        raise InputError(f"{held_out=} is not possible; give 2 to 2**31, or 0 for none.", held_out=held_out)
    try:
        sizes = [file.stat().st_size for file in files]
    except OSError as error:
        raise InputError(f"{error.filename} can't be read: {error.strerror}; check the file.") from error

    def pieces() -> Iterator[Piece]:
        before = 0
        for file, size in zip(files, sizes, strict=True):
            for piece in pieces_of_file(file, held_out, read):
                yield piece._replace(position=before + piece.position)
            before += size

    def done(piece: Piece, n_invalid: int) -> None:
        if n_invalid and strict:
            deque(decoded([piece.data, b""], piece.path, piece.offset), 0)  # raises, and says where
        if progress is not None:
            progress(piece.position, sum(sizes))

    special = _finder_of(special_tokens, basic_tokenizer)
    counts = _counted(pieces(), basic_tokenizer, max_chars, threads, core, held_out, done, special)
    if progress is not None:
        progress(sum(sizes), sum(sizes))
    return counts


def _counted(
    pieces: Iterable[Piece],
    basic_tokenizer: BasicTokenizer,
    max_chars: int | None,
    threads: int | None,
    core: str,
    held_out: int = 0,
    done: Callable[[Piece, int], None] = lambda *_: None,
    special: re.Pattern[bytes] | None = None,
) -> CountedFiles:
    """Count in threads, each with its own two counters; `done` is called for each piece, in order."""
    if max_chars is None:
        max_chars = MAX_CHARS[basic_tokenizer.compat]
    whole_number("max_chars", max_chars, 1)
    if threads is not None:
        whole_number("threads", threads, 1)
    if core == "c" and basic_tokenizer.never_split:
        raise InputError("core='c' counts no words of never_split; choose core='python'.")
    in_c = native.choose(core) and not basic_tokenizer.never_split
    new_counter: type[native.Counter] | type[PythonCounter] = native.Counter if in_c else PythonCounter
    if not in_c:
        threads = 1  # Python runs one thread at a time anyway
    elif threads is None:
        threads = cores()
    free: SimpleQueue[tuple[Any, Any]] = SimpleQueue()  # counters of training words and of held-out words
    for _ in range(threads):
        training_counter = new_counter(basic_tokenizer, max_chars)
        held_out_counter = new_counter(basic_tokenizer, max_chars)
        free.put((training_counter, held_out_counter))

    def count(piece: Piece) -> int:
        data = piece.data if special is None else special.sub(b" ", piece.data)
        counters = free.get()
        try:
            if piece.side == BY_LINE:
                return counters[TRAINING].count_split(counters[HELD_OUT], held_out, data, piece.raw)
            return counters[piece.side].count(data, piece.raw)
        finally:
            free.put(counters)

    n_bytes = n_invalid = 0
    with closing(in_order(count, pieces, threads, 2 * threads)) as counted:
        for piece, invalid in counted:
            n_bytes += len(piece.data)
            n_invalid += invalid
            done(piece, invalid)
    words, held_out_words = free.get()
    for _ in range(threads - 1):
        counters = free.get()  # the memory of the previous ones is freed
        words.add(counters[TRAINING])
        held_out_words.add(counters[HELD_OUT])
    return CountedFiles(
        words=WordCounts(*words.export()),
        held_out=WordCounts(*held_out_words.export()),
        n_bytes=n_bytes,
        n_invalid=n_invalid,
    )


def _finder_of(special_tokens: Iterable[str], basic_tokenizer: BasicTokenizer) -> re.Pattern[bytes] | None:
    """Return a pattern for special tokens in UTF-8, except words that are never split; None without any."""
    tokens = [token for token in special_tokens if token not in basic_tokenizer.never_split]
    if not tokens:
        return None
    encoded = [token.encode("utf-8", "surrogatepass") for token in tokens]
    longest_first = sorted(encoded, key=len, reverse=True)
    # The common prefix comes first in the pattern: searching for it is many times faster than for
    # alternatives.
    n_common = len(commonprefix(longest_first))
    beginning = longest_first[0][:n_common]
    endings = b"|".join(re.escape(token[n_common:]) for token in longest_first)
    return re.compile(re.escape(beginning) + b"(?:" + endings + b")")


class PythonCounter:
    """Count words, in readable form; `native.Counter` is the twin in C.

    Parameters
    ----------
    basic_tokenizer : BasicTokenizer
        The rules that make words of text.
    max_chars : int
        Words of more characters are not counted.
    """

    def __init__(self, basic_tokenizer: BasicTokenizer, max_chars: int):
        self._basic_tokenizer = basic_tokenizer
        self._max_chars = max_chars
        self._words: Counter[str] = Counter()

    def count(self, data: bytes, raw: bool = True) -> int:
        """Count the words of a text.

        Parameters
        ----------
        data : bytes
            The text in UTF-8.
        raw : bool, default True
            Bytes of unknown origin; False for those of a str, whose lone surrogates are allowed.

        Returns
        -------
        int
            How many stretches were not UTF-8; 0 unless `raw`.
        """
        text = data.decode("utf-8", "replace" if raw else "surrogatepass")
        # The stretches between spaces repeat so often that each different one is tokenised only once.
        for chunk, times in Counter(split_at_whitespace(text)).items():
            for word in self._basic_tokenizer.tokenize(chunk):
                if len(word) <= self._max_chars:
                    self._words[word] += times
        if not raw:
            return 0
        # Every U+FFFD stands for an invalid stretch, except those that the text itself contains.
        return text.count("\ufffd") - data.count(b"\xef\xbf\xbd")

    def count_split(self, held_out: "PythonCounter", modulus: int, data: bytes, raw: bool = True) -> int:
        """Count as `count` does, except lines whose CRC-32 is a multiple of `modulus`: count those elsewhere.

        Parameters
        ----------
        held_out : PythonCounter
            The counter for those lines.
        modulus : int
            About one line in `modulus` is held out.
        data, raw
            As for `count`.

        Returns
        -------
        int
            How many stretches were not UTF-8; 0 unless `raw`.
        """
        training_lines: list[bytes] = []
        held_out_lines: list[bytes] = []
        for line in data.split(b"\n"):
            if zlib.crc32(line[:CRC_BYTES]) % modulus == 0:
                held_out_lines.append(line)
            else:
                training_lines.append(line)
        n_invalid = self.count(b"\n".join(training_lines), raw)
        return n_invalid + held_out.count(b"\n".join(held_out_lines), raw)

    def export(self) -> tuple[bytes, Array, Array]:
        """Return words end to end in the order of their bytes, borders (n+1,) and counts (n,)."""
        words = WordCounts.of(self._words)
        return words.data, words.bounds, words.counts


def pieces_of_texts(texts: Iterable[str | bytes]) -> Iterator[Piece]:
    """Join texts with line ends until a piece is full.

    Parameters
    ----------
    texts : iterable of str or bytes
        Any number of texts.

    Yields
    ------
    Piece
        Several texts, all str or all bytes, of about 2 MiB together; a longer text is a piece by itself.

    Raises
    ------
    InputError
        When a text is neither str nor bytes.
    """
    waiting: list[bytes] = []
    size, raw = 0, True
    for number, text in enumerate(texts):
        if not isinstance(text, str | bytes):
            raise InputError(f"texts[{number}]={short(text)} is {type(text).__name__}; give str or bytes.")
        if waiting and (size > PIECE_BYTES // 2 or isinstance(text, bytes) != raw):
            yield Piece(b"\n".join(waiting), raw)
            waiting = []
            size = 0
        size += len(text) + 1
        raw = isinstance(text, bytes)
        if isinstance(text, str):
            text = text.encode("utf-8", "surrogatepass")
        waiting.append(text)
    if waiting:
        yield Piece(b"\n".join(waiting), raw)


def pieces_of_file(file: Path, held_out: int, read: Callable[..., Any] = byte_pieces) -> Iterator[Piece]:
    """Split a file into pieces that end after white space; with `held_out` after a line, if that is shorter.

    Parameters
    ----------
    file : Path
        The file, plain or compressed.
    held_out : int
        The modulus by which lines are held out, or 0. Where a line is longer than a piece, each of its pieces
        goes where the line goes.
    read : callable
        A function that reads the file in blocks, as `byte_pieces` does.

    Yields
    ------
    Piece
        A piece, with its offset in the text and its position on the disk.

    Raises
    ------
    InputError
        When a stretch of more than 64 MiB has no white space.
    """
    separators = b"\n" if held_out else b" \n\t\r"
    waiting: list[bytes] = []  # the text after the last separator so far
    side = BY_LINE if held_out else TRAINING
    offset = position = 0

    def taken(data: bytes) -> Piece:
        nonlocal offset
        offset += len(data)
        return Piece(data, True, side, file, offset - len(data), position)

    def read_up_to(place: int) -> None:
        nonlocal position
        position = place

    for block in read(file, PIECE_BYTES, read_up_to):
        in_line = held_out and side != BY_LINE  # in a long line, which began in an earlier block
        if in_line and (end := block.find(b"\n") + 1):
            yield taken(b"".join([*waiting, block[:end]]))
            waiting = []
            block = block[end:]
            side = BY_LINE
        ends = separators if side == BY_LINE or not held_out else b" \t\r"
        if cut := 1 + max(map(block.rfind, ends)):  # where the last separator ends; 0 if there is none
            yield taken(b"".join([*waiting, block[:cut]]))
            waiting = []
        waiting.append(block[cut:])
        if sum(map(len, waiting)) > LONGEST_STRETCH:
            raise InputError(
                f"{file} has more than {LONGEST_STRETCH >> 20} MiB without any white space, from offset "
                f"{offset:,} of the text on; check that it is text, or put line ends into it."
            )
        if side == BY_LINE and sum(map(len, waiting)) >= max(PIECE_BYTES, CRC_BYTES):
            waiting = [b"".join(waiting)]
            side = HELD_OUT if zlib.crc32(waiting[0][:CRC_BYTES]) % held_out == 0 else TRAINING
    if any(waiting):
        yield taken(b"".join(waiting))


def in_order(
    work: Callable[[Item], Made], items: Iterable[Item], threads: int, ahead: int
) -> Generator[tuple[Item, Made], None, None]:
    """Process items in threads, and yield the results in order.

    Parameters
    ----------
    work : callable
        The function that processes an item, in a thread.
    items : iterable
        The items, read one by one as results are taken.
    threads : int
        How many threads work.
    ahead : int
        How many items may be in progress beyond the one whose result comes next.

    Yields
    ------
    tuple
        The item, and the result of `work` for it. An exception in `work` is raised where its result would
        come.
    """
    pool = ThreadPoolExecutor(threads)
    under_way: deque[tuple[Item, Future[Made]]] = deque()
    try:
        for item in items:
            under_way.append((item, pool.submit(work, item)))
            if len(under_way) > ahead:
                first, future = under_way.popleft()
                yield first, future.result()
        for first, future in under_way:
            yield first, future.result()
    finally:
        pool.shutdown(cancel_futures=True)  # waits only for the few items that are running
