"""Counting words: any amount of text to its different words and how often each occurs.

Text comes in pieces of a few megabytes, each counted by the next free thread; memory grows with the number of
different words, not with the text. The result depends on the text alone: words stand in the order of their
UTF-8 bytes, which is that of their code points, whatever the threads and the order of the files.
"""

from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from minibert.tokenizer.normalize import BasicTokenizer


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
        """The same counts as any other mapping's; itself if it is a WordCounts already."""
        raise NotImplementedError

    def total(self) -> int:
        """Number of words, each as often as it occurs."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.counts)

    def __iter__(self) -> Iterator[str]:
        raise NotImplementedError

    def __getitem__(self, word: str) -> int:
        raise NotImplementedError

    def items(self) -> ItemsView[str, int]:
        raise NotImplementedError


class CountedFiles(NamedTuple):
    """What `count_files` found."""

    words: WordCounts  # to learn from
    held_out: WordCounts  # to measure on; empty with held_out=0
    n_bytes: int  # of text, after decompression
    n_invalid: int  # stretches of bytes that were not UTF-8, each read as U+FFFD, which cleaning deletes


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
    threads : how many count at once; by default as many as there are processors to run on.
    engine : "c", "python", or "auto": C where the extension is built and there is no never_split.

    Examples
    --------
    >>> count_words(["The cat, the hat."], BasicTokenizer())["the"]
    2
    """
    raise NotImplementedError


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
    stretch without any white space is held whole. About `2 * threads` pieces of 4 MiB are under way at once.

    Parameters
    ----------
    paths : files, see `minibert.data.corpus.find_files` for folders and globs. Their order changes nothing.
    basic_tokenizer, max_chars, threads, engine : as for `count_words`.
    held_out : 0, or a number m >= 2: one line of m is counted as held out, namely that whose CRC-32 (of at
        most its first 256 bytes, without the line end) is a multiple of m. The same line falls on the same
        side wherever it stands, so text that is repeated is never on both.
    strict : raise at the first byte that is not UTF-8, instead of counting such stretches.
    progress : called from the calling thread with the bytes worked off and their total, both on the disk.

    Raises
    ------
    InputError
        A file that is missing or damaged, an argument out of range; under `strict`, bytes that are not UTF-8,
        with the file and the offset of the first one (after decompression).
    """
    raise NotImplementedError
