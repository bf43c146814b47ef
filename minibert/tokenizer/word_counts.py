"""Hold words and how often each occurs, a million of them in three arrays."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from reprlib import repr as short
from typing import Any

import numpy as np

from minibert.arrays import Array
from minibert.errors import InputError
from minibert.tokenizer import native


@dataclass(eq=False, repr=False)
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

    data: bytes
    bounds: Array
    counts: Array

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> "WordCounts":
        """Copy the counts of any other mapping; return a WordCounts itself.

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
        """Count all words, each as often as it occurs."""
        return sum(self.counts.tolist())

    def characters(self, first: int, last: int) -> tuple[Array, Array]:
        """Return code points of words first:last end to end (n,), and how many each has (last - first,)."""
        begin = self.bounds[first]
        data = self.data[begin : self.bounds[last]]
        codes = data.decode("utf-8", "surrogatepass").encode("utf-32-le", "surrogatepass")
        begins_character = (np.frombuffer(data, np.uint8) & 0xC0) != 0x80
        n_before = np.concatenate([[0], np.cumsum(begins_character)])
        return np.frombuffer(codes, "<u4"), np.diff(n_before[self.bounds[first : last + 1] - begin])

    def __len__(self) -> int:
        return len(self.counts)

    def __iter__(self) -> Iterator[str]:
        borders = pairwise(self.bounds.tolist())
        return (self.data[begin:end].decode("utf-8", "surrogatepass") for begin, end in borders)

    def __getitem__(self, word: str) -> int:
        wanted = word.encode("utf-8", "surrogatepass") if isinstance(word, str) else b""
        place = bisect_left(range(len(self)), wanted, key=self._bytes)
        if not isinstance(word, str) or place == len(self) or self._bytes(place) != wanted:
            raise KeyError(word)
        return int(self.counts[place])

    def items(self) -> Any:
        """Yield words with their counts, without looking each of them up."""
        return zip(self, self.counts.tolist(), strict=True)

    def __repr__(self) -> str:
        return f"<WordCounts: {self.total():,} words, {len(self):,} different>"

    def _bytes(self, place: int) -> bytes:
        return self.data[self.bounds[place] : self.bounds[place + 1]]
