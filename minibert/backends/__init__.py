"""Engines by name."""

import importlib.util
from typing import Any

from minibert.errors import InputError
from minibert.ops import Ops

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


def blas_libraries() -> list[dict[str, Any]]:
    """What NumPy multiplies matrices with: name, version, architecture and threads of each library loaded."""
    if importlib.util.find_spec("threadpoolctl") is None:
        return []
    import threadpoolctl

    return threadpoolctl.threadpool_info()
