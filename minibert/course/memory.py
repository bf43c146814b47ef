"""Count what a loop asks of memory: numbers read and written, and the cache lines that had to be fetched.

A loop that is given a `Traced` array instead of a NumPy array computes the same, number by number, while a
simulated cache looks on. Counts do not depend on the machine or on who else uses it, as times do.
"""

from collections import OrderedDict
from typing import Any

import numpy as np

LINE = 64  # bytes of a cache line, on nearly every processor


class Memory:
    """A fully associative cache: the line that was not used for longest makes room for a new one.

    Parameters
    ----------
    lines : int, default 16
        How many lines of 64 bytes the cache has room for.

    Attributes
    ----------
    fetched : int
        Lines that had to be brought into the cache so far.
    """

    def __init__(self, lines: int = 16) -> None:
        self.lines = lines
        self.fetched = 0
        self._cached: OrderedDict[tuple[int, int], None] = OrderedDict()
        self._arrays = 0

    def traced(self, values: Any) -> "Traced":
        """Put an array into this memory, at the beginning of a line.

        Parameters
        ----------
        values : array
            Of one or two axes; it is copied, row by row.

        Returns
        -------
        Traced
        """
        self._arrays += 1
        return Traced(self, self._arrays, np.array(values, order="C"))

    def touch(self, array: int, line: int) -> bool:
        """Use a line.

        Parameters
        ----------
        array : int
            The number of the array.
        line : int
            Of its lines which one.

        Returns
        -------
        bool
            Whether it had to be fetched.
        """
        place = (array, line)
        if place in self._cached:
            self._cached.move_to_end(place)
            return False
        if len(self._cached) >= self.lines:
            self._cached.popitem(last=False)
        self._cached[place] = None
        self.fetched += 1
        return True


class Traced:
    """An array of which one number at a time is read or written, and counted.

    Parameters
    ----------
    memory : Memory
        Whose cache it uses.
    number : int
        Which array of this memory it is.
    values : array
        C-ordered, of one or two axes.

    Attributes
    ----------
    memory : Memory
        As given.
    values : array
        The numbers as they are now.
    reads, writes : int
        How many numbers were read and written so far.
    fetches : (lines,) int
        How often each line was fetched.
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
        """Return how many numbers there are."""
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
        return np.array(self.values, dtype)

    def fetched_where(self) -> np.ndarray:
        """Return for each number how often its line was fetched, in the shape of the array."""
        places = np.arange(self.values.size) * self.values.itemsize // LINE
        return self.fetches[places].reshape(self.values.shape)

    def _use(self, index: Any) -> None:
        """Look up where in memory a number lies, and use its line."""
        places = index if isinstance(index, tuple) else (index,)
        if len(places) != self.values.ndim or not all(isinstance(one, int | np.integer) for one in places):
            axes = "one whole number" if self.values.ndim == 1 else "two whole numbers"
            raise IndexError(f"index {index!r}: a number of this array is asked for with {axes}")
        flat = 0
        for place, length in zip(places, self.values.shape, strict=True):
            if not 0 <= place < length:
                raise IndexError(f"index {index!r} is outside an array of shape {self.values.shape}")
            flat = flat * length + int(place)
        line = flat * self.values.itemsize // LINE
        if self.memory.touch(self._number, line):
            self.fetches[line] += 1
