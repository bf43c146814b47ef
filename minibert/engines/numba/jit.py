"""How the Numba engine compiles its loops, keeps them, and shares them out to threads.

A kernel is a plain Python function over a range of rows, `begin` to `end`, whose annotations say its types.
Numba compiles it once for each precision, when it is first called, and keeps the machine code in a file. It
lets go of Python's lock while it runs, so a handful of ordinary threads can work on a list of ranges.

Numba's own threads (`parallel=True`, `prange`) are not used: they compile three times as long, keep spinning
when they have nothing to do, and the process may not fork once they have begun.
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
GRAIN = 1 << 16  # elements of a range: some 30 microseconds of work, ten times what it costs to begin one

# The type of an argument of a kernel, by the precision `real`; int and bool stand for themselves.
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

# x * y + z in one rounding instead of two is nearer to the truth, and twice as fast. It is the only licence
# that all loops have; `sums` may also add in any order, and is for functions that do nothing but add.
CONTRACT = {"fastmath": {"contract"}, "error_model": "numpy", "nogil": True}
njit: Callable[[F], F] = numba.njit(**CONTRACT)
inline: Callable[[F], F] = numba.njit(**CONTRACT, forceinline=True)
sums: Callable[[F], F] = numba.njit(**CONTRACT | {"fastmath": {"contract", "reassoc"}}, forceinline=True)


class Compiled(NamedTuple):
    """One kernel in one precision, ready to run."""

    name: str
    dtype: np.dtype
    seconds: float  # that it took
    cached: bool  # read from a file, not compiled


class Kernel:
    """A function that is compiled for a precision when it is first called with arrays of it.

    Parameters
    ----------
    function : callable
        A loop over a range: it ends in `begin` and `end`, returns nothing, and its annotations are the types
        above.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name = function.__name__
        annotations = inspect.get_annotations(function)
        self._types = [annotation for name, annotation in annotations.items() if name != "return"]
        self._ready: set[np.dtype] = set()
        self._one_at_a_time = threading.Lock()
        self._compiled = _kept(function)

    def __call__(self, *args: Any) -> None:
        """Run the kernel; the first argument is an array, whose precision is used."""
        dtype = args[0].dtype
        if dtype not in self._ready:
            self.prepare(dtype)
        self._compiled(*args)

    def prepare(self, dtype: np.dtype) -> Compiled:
        """Compile the kernel for a precision, or load its machine code.

        Parameters
        ----------
        dtype : np.dtype
            One of `PRECISIONS`.

        Returns
        -------
        Compiled
            How long that took, next to nothing where it was ready.
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
        """Compile for the types that the annotations give in this precision, and for no others."""
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
        self._compiled.disable_compile()  # types that were not foreseen are an error from now on
        self._ready.add(dtype)


KERNELS: list[Kernel] = []


def kernel(function: Callable[..., Any]) -> Kernel:
    """Register one of the loops that the engine is made of; a decorator.

    Parameters
    ----------
    function : callable
        As for `Kernel`.

    Returns
    -------
    Kernel
        The last of `KERNELS` from now on.
    """
    KERNELS.append(Kernel(function))
    return KERNELS[-1]


def folder() -> str | None:
    """Return the folder in which machine code is kept, None where it is not."""
    return KERNELS[0]._compiled.stats.cache_path


def is_warm() -> bool:
    """Return whether machine code of these sources exists."""
    path = folder()
    return bool(path and any(Path(path).glob("*.nbi")))


def _kept(function: Callable[..., Any]) -> Any:
    """Hand a function to Numba, which keeps its machine code in a file.

    Numba compiles anew when the file of a function has changed, not when what the function calls has; a
    folder named after all sources does. Where it can't write there, it takes the user's cache, or none.
    """
    chosen = numba.config.CACHE_DIR  # the value of NUMBA_CACHE_DIR
    base = Path(chosen) if chosen else Path(__file__).parent / "__pycache__"
    numba.config.CACHE_DIR = str(base / f"minibert-{_sources()}")
    try:
        return numba.njit(**CONTRACT, cache=True)(function)
    except RuntimeError:
        _warn_that_nothing_is_kept()
        return numba.njit(**CONTRACT)(function)
    finally:
        numba.config.CACHE_DIR = chosen


@functools.cache
def _sources() -> str:
    """Return a digest of every source that takes part in what is compiled."""
    here = Path(__file__).parent
    ops = Path(__file__).parents[2] / "core" / "ops"
    files = [*sorted(here.glob("*.py")), ops / "erf.py", ops / "random.py"]
    sources = b"".join(file.read_bytes() for file in files)
    return hashlib.blake2b(sources, digest_size=8).hexdigest()


@functools.cache  # once is enough
def _warn_that_nothing_is_kept() -> None:
    warnings.warn(
        f"The Numba engine compiles anew in every process: neither {Path(__file__).parent} nor the cache "
        "folder of this user can be written to. Set NUMBA_CACHE_DIR to a folder that can.",
        stacklevel=2,
    )


class Threads:
    """A few threads that work on a list of ranges. The result does not depend on who takes which range.

    Parameters
    ----------
    count : int
        How many, the calling thread among them; they begin when they are first needed.
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
            A `Kernel`, or anything else that lets go of Python's lock. An error of it is raised here.
        ranges : list of (int, int)
            Beginnings and ends; no two ranges may write to the same memory.
        *args : Any
            What comes before the range.
        """
        left = deque(ranges)

        def work() -> None:
            while True:
                try:
                    begin, end = left.popleft()
                except IndexError:
                    return
                kernel(*args, begin, end)

        helpers = min(self.count, len(ranges)) - 1
        others = [self._executor().submit(work) for _ in range(helpers)]
        work()
        for other in others:
            other.result()

    def _executor(self) -> ThreadPoolExecutor:
        """Return the threads of this process, started when first needed."""
        if self._pool is None or self._process != os.getpid():  # threads do not come along into a fork
            self._pool = ThreadPoolExecutor(self.count - 1, thread_name_prefix="numba engine")
            self._process = os.getpid()
        return self._pool


def cut(count: int, width: int = 1, multiple: int = 1) -> list[tuple[int, int]]:
    """Split rows into ranges of about the same work, depending on the shape alone.

    Parameters
    ----------
    count : int
        How many rows, or columns, there are.
    width : int
        Elements of each, or however many amount to the same work; 1 by default.
    multiple : int
        Of what the lengths of ranges are a multiple, but for the last; 1 by default.

    Returns
    -------
    list of (int, int)
        Beginnings and ends, in order; `GRAIN` elements each, or somewhat more.
    """
    units = max(1, -(-GRAIN // max(1, width * multiple)))
    step = units * multiple
    return [(begin, min(begin + step, count)) for begin in range(0, count, step)]


def cut_tasks(work: np.ndarray) -> list[tuple[int, int]]:
    """Split tasks into ranges of about the same work.

    Parameters
    ----------
    work : (N,) whole numbers
        How much work each task is, in elements; there is at least one task.

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
