"""Describe the machine for engines: threads, memory, instruction sets, and the peak speed."""

import ctypes
from contextlib import suppress
from importlib import import_module
from numbers import Integral
from typing import Any

import threadpoolctl

from minibert.base.errors import InputError
from minibert.base.machine import cores
from minibert.model.ops import Ops

MOST_THREADS = 4096  # the most that may be asked for
LOOK_SECONDS = 0.02  # how long to measure whether one thread is faster in bfloat16
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # their values in malloc.h
KEPT_BYTES = 1 << 30  # freed memory that the C library may keep at the end of the heap
LARGEST_ON_HEAP = 1 << 25  # bytes; larger arrays get fresh pages


def _cpp() -> Any:
    """Import the kernels in C++; return None if they are not installed."""
    with suppress(ImportError):
        return import_module("minibert.engines.cpp.primitives")
    return None


def instruction_sets() -> list[str]:
    """List the possible values of MINIBERT_ISA, the fastest first; none without the kernels in C++."""
    cpp = _cpp()
    return cpp.available() if cpp else []


def chosen_isa() -> str:
    """Return the instruction set that `cpp` uses; "" without the kernels in C++."""
    sets = instruction_sets()
    if not sets:
        return ""
    return _cpp().forced_isa() or sets[0]


def rate_of_one_thread(isa: str, dtype: str) -> float:
    """Measure how fast one thread multiplies and adds in registers, with an instruction set.

    Parameters
    ----------
    isa : str
        One of `instruction_sets`; the kernels in C++ must be installed.
    dtype : str
        "float32" or "bfloat16", the type of the operands.

    Returns
    -------
    float
        GFLOP/s, a multiply-add counting as two operations.
    """
    return _cpp().multiply_add_rate(1, LOOK_SECONDS, dtype == "bfloat16", isa)


def peak(threads: int, dtype: str = "float32", seconds: float = 0.1, ops: Any = None) -> float | None:
    """Measure this machine's peak rate of multiply-adds, each counted as two operations.

    For every engine that computes on the processor, this is its rate in registers. If JAX computes on other
    devices, it is the rate of all of them in matrix products.

    Parameters
    ----------
    threads : int
        How many threads multiply at once, each on a core; more than there are cores are no faster.
    dtype : str
        "float32" (the default), "float64" or "bfloat16", which is accumulated in float32. On a processor
        without instructions for bfloat16, this is the rate of float32.
    seconds : float, default 0.1
        How long to measure a processor. It takes longer if other programs are busy, which does not lower the
        result.
    ops : Ops or None
        The engine that computes; only a JAX engine makes a difference.

    Returns
    -------
    float or None
        GFLOP/s; None for a processor without the kernels in C++, which measure it.
    """
    if ops is not None and ops.name == "jax":
        devices = import_module("minibert.engines.jax.devices")
        if devices.platform() != "cpu":
            mesh = ops.runtime.mesh
            count = mesh.size if mesh else 1
            return count * devices.matmul_rate(dtype, devices.QUICK_SECONDS, devices.LARGE)
    cpp = _cpp()
    if not cpp:
        return None
    narrow = dtype == "bfloat16"
    rate = cpp.multiply_add_rate(min(threads, cores()), seconds, narrow=narrow)
    if dtype == "float64":
        return rate / 2  # half as many numbers in a vector
    return rate


def limited_threads(threads: int | None, ops: Ops | None = None) -> threadpoolctl.threadpool_limits:
    """Limit the threads of NumPy's matrix library, from now on or until the end of a `with` block.

    Parameters
    ----------
    threads : int or None
        How many threads; None leaves the library at one for each core.
    ops : Ops or None
        The engine. An engine with its own threads (`cpp`, `numba`) was made with that number of threads and
        calls the matrix library from them: each call then gets one thread.

    Returns
    -------
    threadpoolctl.threadpool_limits
        The limits, which are already in force; as a context manager it lifts them at the end.

    Raises
    ------
    InputError
        When `threads` is not a valid number of threads.
    """
    require_threads(threads)
    limit = None if threads is None else int(threads)
    if ops is not None and ops.name in ("cpp", "numba"):
        limit = 1
    return threadpoolctl.threadpool_limits(limits=limit)


def require_threads(threads: int | None) -> None:
    """Check a number of threads.

    Parameters
    ----------
    threads : int or None
        A whole number of Python or NumPy from 1 to `MOST_THREADS`, or None.

    Raises
    ------
    InputError
        When it is anything else, such as a bool.
    """
    if threads is None:
        return
    is_whole = isinstance(threads, Integral) and not isinstance(threads, bool)
    if is_whole and 1 <= threads <= MOST_THREADS:
        return
    problem = "not a positive whole number"
    if is_whole and threads > 1:
        problem = f"more than {MOST_THREADS:,}"
    raise InputError(f"{threads=} is {problem}; leave it out for one thread a core.", threads=threads)


def keep_freed_memory() -> bool:
    """Make the C library keep memory that NumPy frees for the next array; return whether it can (glibc).

    Otherwise fresh pages for the large arrays that a training step makes and drops take a sixth of its time.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, or another system
        return False
    keeps_freed = mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
    return bool(keeps_freed and mallopt(M_MMAP_THRESHOLD, LARGEST_ON_HEAP))


def blas_libraries() -> list[dict[str, Any]]:
    """Describe NumPy's matrix libraries: name, version, architecture and threads of each."""
    return threadpoolctl.threadpool_info()
