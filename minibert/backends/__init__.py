"""Engines by name, and the threads and memory that they are run with."""

import ctypes
import importlib.util
from typing import Any

from minibert.errors import InputError
from minibert.ops import Ops

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # as malloc.h numbers them
ENGINES = {"numpy": "the reference, plain NumPy"}


def create(name: str = "auto") -> Ops:
    """The engine of that name; "auto" takes the fastest there is.

    Raises
    ------
    InputError
        When there is no such engine.
    """
    if name in ("auto", "numpy"):
        return Ops()
    raise InputError(f"backend={name!r} is not an engine; use auto or one of {', '.join(ENGINES)}.")


def limit_threads(threads: int | None) -> Any:
    """Hold the matrix library at a number of threads; None leaves it at one for each core.

    Returns
    -------
    controller
        Keep it for as long as the limit shall hold; `.restore_original_limits()` lifts it.
    """
    if threads is None:
        return None
    if threads < 1:
        raise InputError(
            f"threads={threads} is not a positive number; leave it out for one thread a core."
        )
    import threadpoolctl

    return threadpoolctl.threadpool_limits(limits=threads)


def keep_freed_memory() -> bool:
    """Let the C library keep what NumPy frees for the next array, and not return it to the system.

    A training step makes and drops the same large arrays again and again; fresh pages for them cost a sixth
    of its time.

    Returns
    -------
    Whether the C library can do so; glibc can.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, or another system
        return False
    return bool(mallopt(M_TRIM_THRESHOLD, 1 << 30) and mallopt(M_MMAP_THRESHOLD, 1 << 25))


def blas_libraries() -> list[dict[str, Any]]:
    """What NumPy multiplies matrices with: name, version, architecture and threads of each library loaded."""
    if importlib.util.find_spec("threadpoolctl") is None:
        return []
    import threadpoolctl

    return threadpoolctl.threadpool_info()
