"""Count what a loop asks of memory: numbers read and written, and cache lines fetched.

A loop over a `Traced` array computes the same as over a NumPy array, one number at a time, while a simulated
cache counts. Unlike times, counts depend neither on the machine nor on what else runs on it.
"""

from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np

LINE = 64  # bytes of a cache line on nearly every processor


class Memory:
    """A memory with a fully associative cache, from which the least recently used line is evicted.

    Parameters
    ----------
    lines : int, default 16
        Number of lines of 64 bytes that fit into the cache.

    Attributes
    ----------
    fetched : int
        Number of lines that have been fetched into the cache so far.
    """

    def __init__(self, lines: int = 16) -> None:
        self.lines = lines
        self.fetched = 0
        self._cached: OrderedDict[tuple[int, int], None] = OrderedDict()
        self._arrays = 0

    def traced(self, values: Any) -> "Traced":
        """Put a copy of an array into this memory, at the beginning of a line.

        Parameters
        ----------
        values : array
            One or two axes; the copy is stored row by row.

        Returns
        -------
        Traced
        """
        self._arrays += 1
        return Traced(self, self._arrays, np.array(values, order="C"))

    def touch(self, array: int, line: int) -> bool:
        """Record an access to one cache line; on a miss, fetch it and evict the least recently used line.

        Writing an evicted line back is not counted.

        Parameters
        ----------
        array : int
            Number of the array in this memory.
        line : int
            Index of the line in the array.

        Returns
        -------
        bool
            Whether the line had to be fetched.
        """
        key = (array, line)
        if key in self._cached:
            self._cached.move_to_end(key)
            return False
        if len(self._cached) >= self.lines:
            self._cached.popitem(last=False)
        self._cached[key] = None
        self.fetched += 1
        return True


class Contents(NamedTuple):
    """What a `Traced` array holds: data alone, which another process can send."""

    values: np.ndarray
    reads: int
    writes: int
    fetches: np.ndarray
    fetched: int  # of its whole memory


class Traced:
    """An array that counts its reads and writes, and allows one number at a time; see `Memory.traced`.

    Parameters
    ----------
    memory : Memory
        Memory that holds the array.
    number : int
        Number of the array in this memory.
    values : array
        C-ordered, with one or two axes.

    Attributes
    ----------
    memory : Memory
        Memory that holds the array.
    values : array
        The current numbers.
    reads, writes : int
        How many numbers have been read and written so far.
    fetches : (lines,) int
        How often each line has been fetched so far.
    """

    def __init__(self, memory: Memory, number: int, values: np.ndarray) -> None:
        self.memory = memory
        self.values = values
        self.reads = 0
        self.writes = 0
        self.fetches = np.zeros(-(-values.nbytes // LINE), int)
        self._number = number

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the lengths of the axes."""
        return self.values.shape

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return self.values.size

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> Any:
        self._use(index)
        self.reads += 1
        return self.values[index].item()

    def __setitem__(self, index: Any, value: Any) -> None:
        self._use(index)
        self.writes += 1
        self.values[index] = value

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        """Read all numbers, one after another."""
        for index in np.ndindex(self.shape):
            self._use(index)
        self.reads += self.size
        return np.array(self.values, dtype)

    def contents(self) -> Contents:
        """Return the numbers and the counts of this array, and what its memory has fetched."""
        return Contents(self.values, self.reads, self.writes, self.fetches, self.memory.fetched)

    def restore(self, contents: Contents) -> None:
        """Take over the contents of a copy in another process.

        Parameters
        ----------
        contents : Contents
            What the cache holds is not among it: nothing is to be read or written afterwards.

        Raises
        ------
        ValueError
            When it has another shape, or counts that are not whole numbers.
        """
        values, reads, writes, fetches, fetched = contents
        if np.shape(values) != self.shape or np.shape(fetches) != self.fetches.shape:
            raise ValueError("an array has come back with another shape")
        if not all(isinstance(count, int) for count in (reads, writes, fetched)):
            raise ValueError("what was counted is not a whole number")
        self.values[...] = values
        self.fetches[...] = fetches
        self.reads, self.writes, self.memory.fetched = reads, writes, fetched

    def fetched_where(self) -> np.ndarray:
        """Return for each element how often its line has been fetched, in the shape of the array."""
        lines = np.arange(self.values.size) * self.values.itemsize // LINE
        return self.fetches[lines].reshape(self.values.shape)

    def _use(self, index: Any) -> None:
        """Use the line of the element at an index."""
        indices = index if isinstance(index, tuple) else (index,)
        are_integers = all(isinstance(along_axis, int | np.integer) for along_axis in indices)
        if len(indices) != self.values.ndim or not are_integers:
            axes = "one whole number" if self.values.ndim == 1 else "two whole numbers"
            raise IndexError(f"index {index!r} does not name a single number of this array; give {axes}")
        flat = 0
        for along_axis, length in zip(indices, self.values.shape, strict=True):
            if not 0 <= along_axis < length:
                raise IndexError(f"index {index!r} is outside an array of shape {self.values.shape}")
            flat = flat * length + int(along_axis)
        line = flat * self.values.itemsize // LINE
        if self.memory.touch(self._number, line):
            self.fetches[line] += 1
