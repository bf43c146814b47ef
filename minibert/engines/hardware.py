"""What the machine has for an engine: threads, memory, instruction sets, and the speed that none exceeds."""

import ctypes
from contextlib import suppress
from importlib import import_module
from numbers import Integral
from typing import Any

import threadpoolctl

from minibert.base.errors import InputError
from minibert.base.machine import cores
from minibert.model.ops import Ops

MOST_THREADS = 4096  # that may be asked for
LOOK_SECONDS = 0.02  # to see in whether one thread is faster in bfloat16
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # as malloc.h numbers them


def _cpp() -> Any:
    """Import the kernels in C++; return None without them."""
    with suppress(ImportError):
        return import_module("minibert.engines.cpp.primitives")
    return None


def instruction_sets() -> list[str]:
    """List what MINIBERT_ISA may name, the fastest first; nothing without the kernels in C++."""
    return cpp.available() if (cpp := _cpp()) else []


def chosen_isa() -> str:
    """Return the instruction set that `cpp` would use; "" without the kernels in C++."""
    sets = instruction_sets()
    return _cpp().forced_isa() or sets[0] if sets else ""


def rate_of_one_thread(isa: str, dtype: str) -> float:
    """Measure GFLOP/s of one thread, from registers, with an instruction set."""
    return _cpp().multiply_add_rate(1, LOOK_SECONDS, dtype == "bfloat16", isa)


def peak(threads: int, dtype: str = "float32", seconds: float = 0.1, ops: Any = None) -> float | None:
    """Measure how fast this machine multiplies and adds at most, in GFLOP/s, a multiply-add being two.

    That is its processor from registers, whichever engine computes, or None without the kernels in C++, which
    measure it; but where JAX, as `ops`, computes on something else, all the devices in matrix products.

    So many `threads` do so at once, on a core each; more than there are cores are no faster. `dtype` is
    "float32", "float64" or "bfloat16" (added to float32; float32's own on processors without). It takes these
    `seconds`; more where other programs are busy, whose share does not lower the result.
    """
    if ops is not None and ops.name == "jax":
        devices = import_module("minibert.engines.jax.devices")
        if devices.platform() != "cpu":
            count = ops.runtime.mesh.size if ops.runtime.mesh else 1
            return count * devices.matmul_rate(dtype, devices.QUICK_SECONDS, devices.LARGE)
    if not (cpp := _cpp()):
        return None
    rate = cpp.multiply_add_rate(min(threads, cores()), seconds, narrow=dtype == "bfloat16")
    return rate / 2 if dtype == "float64" else rate  # half as many numbers in a vector


def limited_threads(threads: int | None, ops: Ops | None = None) -> threadpoolctl.threadpool_limits:
    """Hold the matrix library at a number of threads, from now on or until the end of a `with` block.

    None leaves it at one for each core. An engine `ops` with threads of its own was made with that number,
    and calls the matrix library from them: each call gets one thread.
    """
    require_threads(threads)
    own = ops is not None and ops.name in ("cpp", "numba")
    return threadpoolctl.threadpool_limits(limits=1 if own else threads and int(threads))


def require_threads(threads: int | None) -> None:
    """Raise InputError where this is no number of threads."""
    is_whole = isinstance(threads, Integral) and not isinstance(threads, bool)
    if threads is not None and not (is_whole and 1 <= threads <= MOST_THREADS):
        what = f"more than {MOST_THREADS:,}" if is_whole and threads > 1 else "not a positive whole number"
        raise InputError(f"$threads is {what}; leave it out for one thread a core.", threads=threads)


def keep_freed_memory() -> bool:
    """Let the C library keep what NumPy frees for the next array; return whether it can, as glibc does."""
    try:  # fresh pages for the large arrays that a training step makes and drops cost a sixth of its time
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, or another system
        return False
    return bool(mallopt(M_TRIM_THRESHOLD, 1 << 30) and mallopt(M_MMAP_THRESHOLD, 1 << 25))


def blas_libraries() -> list[dict[str, Any]]:
    """Describe what NumPy multiplies matrices with: name, version, architecture and threads of each."""
    return threadpoolctl.threadpool_info()
