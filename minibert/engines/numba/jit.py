"""Compile the loops of the Numba engine, cache their machine code, and distribute them over threads.

A kernel is a plain Python function over a range of rows, `begin` to `end`, whose annotations give its types.
Numba compiles it once for each precision, when it is first called, and caches the machine code in a file. A
kernel releases Python's lock while it runs, so a handful of ordinary threads can work on a list of ranges.

Numba's own threads (`parallel=True`, `prange`) are not used: compiling takes three times as long, idle
threads keep spinning, and the process must not fork once they have started.
"""

import functools
import hashlib
import inspect
import itertools
import os
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import numba
import numpy as np
from numba import types

from minibert.core.arrays import Array

F = TypeVar("F", bound=Callable[..., Any])

PRECISIONS = (np.dtype(np.float32), np.dtype(np.float64))
GRAIN = 1 << 16  # elements of a range: some 30 microseconds of work, ten times what it costs to start one

# A SystemError that Numba raises where it was refused memory and could not say so.
NO_REASON = "error return without exception set"

# Annotations of a kernel's arguments. Each holds a function from the precision `real` to Numba's type; int
# and bool do not depend on it.
Real = Annotated[Any, lambda real: real]
Row = Annotated[Array, lambda real: real[::1]]
Rows = Annotated[Array, lambda real: real[:, ::1]]
Heads = Annotated[Array, lambda real: real[:, :, ::1]]
Sums = Annotated[Array, lambda real: types.float64[::1]]
Ids = Annotated[Array, lambda real: types.int64[::1]]
Word = Annotated[Any, lambda real: types.uint32]
Keys = Annotated[Array, lambda real: types.uint32[:, ::1]]
HeadKeys = Annotated[Array, lambda real: types.uint32[:, :, ::1]]
PLAIN = {int: types.int64, bool: types.boolean}

# Rounding x * y + z once instead of twice is more precise, and twice as fast. It is the only freedom that the
# compiler has in every loop. In functions marked `sums`, which do nothing but add, it may add in any order.
CONTRACT = {"fastmath": {"contract"}, "error_model": "numpy", "nogil": True}
njit: Callable[[F], F] = numba.njit(**CONTRACT)
inline: Callable[[F], F] = numba.njit(**CONTRACT, forceinline=True)
sums: Callable[[F], F] = numba.njit(**CONTRACT | {"fastmath": {"contract", "reassoc"}}, forceinline=True)


class Compiled(NamedTuple):
    """One kernel in one precision, ready to run."""

    name: str
    dtype: np.dtype
    seconds: float  # how long it took to compile or load
    cached: bool  # whether it was read from a file, not compiled


class Kernel:
    """A function that is compiled for a precision when it is first called with arrays of that precision.

    Parameters
    ----------
    function : callable
        A loop over a range: its last parameters are `begin` and `end`, it returns nothing, and its
        annotations are the types above.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name = function.__name__
        annotations = inspect.get_annotations(function)
        self._types = [annotation for name, annotation in annotations.items() if name != "return"]
        self._ready: set[np.dtype] = set()
        self._one_at_a_time = threading.Lock()
        self._compiled = _cached(function)

    def __call__(self, *args: Any) -> None:
        """Run the kernel in the precision of its first argument, an array.

        Raises
        ------
        MemoryError
            When there is not enough memory to compile, load or run it.
        """
        dtype = args[0].dtype
        try:
            if dtype not in self._ready:
                self.prepare(dtype)
            self._compiled(*args)
        except SystemError as error:
            if NO_REASON not in str(error):
                raise
            raise MemoryError(f"the kernel {self.name} got none from the system") from error

    def prepare(self, dtype: np.dtype) -> Compiled:
        """Compile the kernel for a precision, or load its machine code.

        Parameters
        ----------
        dtype : np.dtype
            One of `PRECISIONS`.

        Returns
        -------
        Compiled
            How long that took; next to nothing if it was ready.
        """
        with self._one_at_a_time:
            began = time.perf_counter()
            hits = self._cache_hits()
            if dtype not in self._ready:
                self._compile(dtype)
            cached = self._cache_hits() > hits
            return Compiled(self.name, dtype, time.perf_counter() - began, cached)

    def _cache_hits(self) -> int:
        """Count how often machine code was read from a file."""
        return sum(self._compiled.stats.cache_hits.values())

    def _compile(self, dtype: np.dtype) -> None:
        """Compile for the types that the annotations give in this precision."""
        real = numba.from_dtype(dtype)
        arguments = []
        for annotation in self._types:
            if annotation in PLAIN:
                arguments.append(PLAIN[annotation])
            else:
                type_in = annotation.__metadata__[0]
                arguments.append(type_in(real))
        self._compiled.disable_compile(False)
        self._compiled.compile(tuple(arguments))
        self._compiled.disable_compile()  # from now on arguments of any other types are an error
        self._ready.add(dtype)


KERNELS: list[Kernel] = []


def kernel(function: Callable[..., Any]) -> Kernel:
    """Register one of the engine's loops as a kernel; a decorator.

    Parameters
    ----------
    function : callable
        A loop, as `Kernel` takes it.

    Returns
    -------
    Kernel
        The kernel, appended to `KERNELS`.
    """
    KERNELS.append(Kernel(function))
    return KERNELS[-1]


def folder() -> str | None:
    """Return the folder in which machine code is cached; None if it is not cached."""
    return KERNELS[0]._compiled.stats.cache_path


def is_warm() -> bool:
    """Return whether the cache has machine code compiled from the present sources."""
    path = folder()
    return bool(path and any(Path(path).glob("*.nbi")))


def _cached(function: Callable[..., Any]) -> Any:
    """Hand a function to Numba, which caches its machine code in a file.

    Numba compiles a function again when its file has changed, but not when the file of a function that it
    calls has. So the folder is named after a digest of all sources: a change in any of them leads to a new
    folder. Where Numba can't write there, it uses the user's cache folder; where it can't write there either,
    nothing is cached.
    """
    users_choice = numba.config.CACHE_DIR  # the value of NUMBA_CACHE_DIR
    base = Path(users_choice) if users_choice else Path(__file__).parent / "__pycache__"
    numba.config.CACHE_DIR = str(base / f"minibert-{_digest_of_sources()}")
    try:
        return numba.njit(**CONTRACT, cache=True)(function)
    except RuntimeError:
        _warn_that_nothing_is_cached()
        return numba.njit(**CONTRACT)(function)
    finally:
        numba.config.CACHE_DIR = users_choice


@functools.cache
def _digest_of_sources() -> str:
    """Return a digest of every source file that the machine code depends on."""
    this_package = Path(__file__).parent
    ops = Path(__file__).parents[2] / "core" / "ops"
    files = [*sorted(this_package.glob("*.py")), ops / "erf.py", ops / "dropout_bits.py"]
    sources = b"".join(file.read_bytes() for file in files)
    return hashlib.blake2b(sources, digest_size=8).hexdigest()


@functools.cache  # one warning for all kernels
def _warn_that_nothing_is_cached() -> None:
    """Warn that machine code can't be cached."""
    warnings.warn(
        f"The Numba engine compiles again in every process: neither {Path(__file__).parent} nor the cache "
        "folder of this user can be written to. Set NUMBA_CACHE_DIR to a folder that can.",
        stacklevel=2,
    )


class Threads:
    """A few threads that work on a list of ranges. Results do not depend on which thread takes which range.

    Parameters
    ----------
    count : int
        How many, including the calling thread; the others start when they are first needed.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool: ThreadPoolExecutor | None = None
        self._process = os.getpid()

    def run(self, kernel: Callable[..., Any], ranges: list[tuple[int, int]], *args: Any) -> None:
        """Call kernel(*args, begin, end) for every range; the calling thread works too.

        Parameters
        ----------
        kernel : callable
            A `Kernel`, or another function that releases Python's lock. An error in it is raised here.
        ranges : list of (int, int)
            Beginnings and ends; no two ranges may write to the same memory.
        *args : Any
            The arguments before the range.
        """
        waiting = deque(ranges)

        def work() -> None:
            while True:
                try:
                    begin, end = waiting.popleft()
                except IndexError:
                    return
                kernel(*args, begin, end)

        n_helpers = min(self.count, len(ranges)) - 1
        helpers = [self._executor().submit(work) for _ in range(n_helpers)]
        work()
        for helper in helpers:
            helper.result()

    def _executor(self) -> ThreadPoolExecutor:
        """Return the threads of this process, started when first needed."""
        # Threads do not survive a fork: the child process starts its own.
        if self._pool is None or self._process != os.getpid():
            self._pool = ThreadPoolExecutor(self.count - 1, thread_name_prefix="numba engine")
            self._process = os.getpid()
        return self._pool


def cut(count: int, width: int = 1, multiple: int = 1) -> list[tuple[int, int]]:
    """Split rows into ranges of about the same work, depending only on the shape.

    Parameters
    ----------
    count : int
        How many rows, or columns, there are.
    width : int
        Elements of each, or the number of elements that take as much work; 1 by default.
    multiple : int
        The length of every range except the last is a multiple of this; 1 by default.

    Returns
    -------
    list of (int, int)
        Beginnings and ends, in order; each range has `GRAIN` elements or somewhat more.
    """
    units = max(1, -(-GRAIN // max(1, width * multiple)))
    step = units * multiple
    return [(begin, min(begin + step, count)) for begin in range(0, count, step)]


def cut_tasks(work: np.ndarray) -> list[tuple[int, int]]:
    """Split tasks into ranges of about the same work.

    Parameters
    ----------
    work : (N,) whole numbers
        The work of each task, in elements; there is at least one task.

    Returns
    -------
    list of (int, int)
        Beginnings and ends, in order.
    """
    done = np.cumsum(work)
    thresholds = np.arange(GRAIN, done[-1], GRAIN)
    ends = np.searchsorted(done, thresholds) + 1
    edges = np.concatenate([[0], ends, [len(done)]])
    edges = np.unique(edges).tolist()
    return list(itertools.pairwise(edges))
