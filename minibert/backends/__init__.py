"""Engines by name, the threads and memory that they are run with, and the speed that none of them exceeds."""

import ctypes
import dataclasses
import functools
import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module, metadata
from typing import Any, NamedTuple

from minibert.errors import InputError, Stopped
from minibert.machine import cores
from minibert.ops import Ops

MOST_THREADS = 4096  # that may be asked for
PEAK_SECONDS = 0.1  # to measure the machine's peak in
BFLOAT16_ISAS = ("amx", "avx512_bf16")  # instruction sets that multiply bfloat16
LOOK_SECONDS = 0.02  # to see in whether they do it faster
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # as malloc.h numbers them
JAX_MINIMUM = "0.7"  # of jax and jaxlib, as in pyproject.toml
DEVICES = ("cpu", "gpu", "tpu")  # what `force_device` may be told
_forced: dict[str, str] = {}  # what `force_isa` and `force_device` were told


class _MissingEngine(InputError):
    """What an engine needs is not installed."""


def _numpy(threads: int, dtype: str) -> Ops:
    return Ops()


def _cpp(threads: int, dtype: str) -> Ops:
    cpp_ops = import_module("minibert.backends.cpp_ops")
    return cpp_ops.CppOps(threads=threads, isa=_forced.get("isa", ""), dtype=dtype)


def _numba(threads: int, dtype: str) -> Ops:
    return import_module("minibert.backends.numba_ops").NumbaOps(threads=threads)


def _jax(threads: int, dtype: str, fsdp: bool = False, **extras: Any) -> Ops:
    _jax_devices()
    shard = {"shard": True} if fsdp else {}
    return import_module("minibert.backends.jax_ops").JaxOps(dtype, **extras, **shard)


def _jax_devices() -> Any:
    """The module that knows JAX's devices, once JAX is told which to use."""
    found = _jax_module("jax_devices")
    found.use(_forced.get("device"))
    return found


def _jax_module(name: str) -> Any:
    """A module that imports JAX; whether JAX is recent enough is checked first."""
    for library in ("jax", "jaxlib"):
        _require_version(library, JAX_MINIMUM)
    try:
        return import_module(f"minibert.backends.{name}")
    except RuntimeError as error:  # as JAX complains of a jaxlib of another version
        raise InputError(f"JAX does not start ({error}): pip install -U jax jaxlib.") from None


def _require_version(library: str, least: str) -> None:
    try:
        version = metadata.version(library)
    except metadata.PackageNotFoundError:  # which importing it will tell, if it is true
        return
    if _numbers(version) < _numbers(least):
        raise InputError(
            f"{library} {version} is older than {least}, the oldest that minibert works with: "
            "pip install -U jax jaxlib."
        )


def _numbers(version: str) -> list[int]:
    """`0.9.0.1` as numbers; from the first part that is none on, as in `0.10.0.dev7`, nothing counts."""
    return [int(part) for part in itertools.takewhile(str.isdecimal, version.split("."))]


class Engine(NamedTuple):
    """One engine: what it is, and how it comes to be."""

    about: str
    make: Callable[..., Ops]  # of threads, a dtype and its extras; ImportError where something is missing
    lacking: str  # what to do then
    dtypes: tuple[str, ...] = ("float32", "float64")
    extras: tuple[str, ...] = ()  # what it alone can be told


TABLE = {
    "numpy": Engine("the reference, plain NumPy", _numpy, ""),
    "cpp": Engine(
        "kernels in C++ for float32 and bfloat16",
        _cpp,
        "install a C++ compiler (GCC 11 or later, or Clang) and Python's headers, then reinstall minibert",
        ("float32", "bfloat16", "float64"),
    ),
    "numba": Engine("loops compiled by Numba for float32 and float64", _numba, "pip install numba"),
    "jax": Engine(
        "the reference compiled by XLA, for accelerators",
        _jax,
        "pip install jax, or jax[cuda13] for a GPU",
        ("float32", "bfloat16", "float64"),
        ("device", "devices", "fsdp", "recompute"),
    ),
}
ENGINES = {name: engine.about for name, engine in TABLE.items()}
FASTEST_FIRST = ("cpp", "numba", "numpy")
OWN_THREADS = ("cpp", "numba")  # engines that share out their work themselves


def create(name: str = "auto", threads: int | None = None, dtype: str = "float32", **extras: Any) -> Ops:
    """The engine of that name; "auto" takes the fastest there is.

    Parameters
    ----------
    name : "auto" or one of `ENGINES`.
    threads : of the engine itself; one for each core when left out. NumPy's are `limit_threads`'s matter.
    dtype : "float32", "float64" or "bfloat16". The first two are those of the parameters; bfloat16 is that of
        the operands of matrix products and of activations, with parameters in float32.
    extras : options of a single engine; None and False count as not given. For JAX `devices`, how many train
        (all there are, when left out), `fsdp`, whether parameters and moments are spread over them, and
        `recompute`, whether only the input of each layer is kept for backward.

    Raises
    ------
    InputError
        When there is no such engine, it does not compute in that dtype, or what it needs is not installed;
        when it has no such option, or the device that was forced is not there.
    """
    return choose(name, threads, dtype, **extras)[0]


def choose(
    name: str = "auto", threads: int | None = None, dtype: str = "float32", **extras: Any
) -> tuple[Ops, str]:
    """The engine that `create` gives, and a sentence that says which it is and why.

    Examples
    --------
    >>> choose("numpy")[1]
    'numpy: the reference, plain NumPy'
    """
    _require_positive(threads)
    if name not in ("auto", *TABLE):
        raise InputError(f"backend={name!r} is not an engine; use auto or one of {', '.join(TABLE)}.")
    able = [one for one in TABLE if dtype in TABLE[one].dtypes]
    if not able:
        raise InputError(f"dtype={dtype!r} is not one to compute in; use float32, bfloat16 or float64.")
    if name not in ("auto", *able):
        raise InputError(
            f"dtype={dtype!r} is not one that backend={name!r} computes in; {', '.join(able)} can."
        )
    extras = {option: value for option, value in extras.items() if value is not None and value is not False}
    _require_meant(name, extras)
    if name != "auto":
        ops = _make(name, threads, dtype, extras)
        return ops, _described(ops)
    tried = _trial(threads, dtype) if _kernels_are_portable() else {}
    missing = []
    for one in [*sorted(tried, key=tried.get), *FASTEST_FIRST]:
        if one not in able:
            continue
        try:
            ops = _make(one, threads, dtype, {})
        except _MissingEngine as error:
            missing.append(str(error))
            continue
        if tried:
            steps = ", ".join(f"{1000 * seconds:.0f} ms with {engine}" for engine, seconds in tried.items())
            return ops, f"{_described(ops)}, the fastest here: a small step took {steps}"
        why = f"; {' '.join(missing).removesuffix('.')}" if missing else ", the fastest engine installed"
        return ops, _described(ops) + why
    raise InputError(f"No engine that computes in {dtype} is installed. {' '.join(missing)}")


def _kernels_are_portable() -> bool:
    """Whether `cpp` would compute without vector instructions of its own, as on ARM."""
    sets = instruction_sets()
    return bool(sets) and (_forced.get("isa") or sets[0]) == "portable"


@functools.cache
def _trial(threads: int | None, dtype: str) -> dict[str, float]:
    """Seconds of one real step with `cpp`, whose kernels are the portable ones, and with NumPy's library.

    The library may have kernels for the processor that are several times as fast.
    """
    trial = import_module("minibert.backends.trial")
    found = {}
    for name in ("cpp", "numpy") if dtype in TABLE["numpy"].dtypes else ():
        ops = _make(name, threads, dtype, {})
        with limited_threads(threads, ops):
            found[name] = trial.seconds_per_step(ops, dtype)
    return found


def settled(options: Any) -> Any:
    """Options of a run with what they leave to this machine decided, as they are stored and gone on with.

    That is `dtype="auto"` and, where `backend="auto"` needs a trial of two engines, the faster one.
    """
    if options.dtype == "auto":
        options = dataclasses.replace(options, dtype=quickest_dtype(options.backend))
    if options.backend == "auto" and _kernels_are_portable():
        tried = _trial(options.threads, options.dtype)
        options = dataclasses.replace(options, backend=min(tried, key=tried.get, default="auto"))
    return options


def _require_meant(name: str, extras: dict[str, Any]) -> None:
    """Raise InputError when an option is given that the engine of that name does not have."""
    said = extras | ({"device": _forced["device"]} if "device" in _forced else {})
    for option, value in said.items():
        hearing = [one for one in TABLE if option in TABLE[one].extras]
        if not hearing:
            raise TypeError(f"{option!r} is nothing that an engine can be told.")
        if name not in hearing:
            raise InputError(
                f"{option}={value!r} is for backend={' or '.join(map(repr, hearing))}; leave it out or "
                "choose that."
            )


def _make(name: str, threads: int | None, dtype: str, extras: dict[str, Any]) -> Ops:
    engine = TABLE[name]
    try:
        return engine.make(threads or cores(), dtype, **extras)
    except ImportError as error:
        raise _MissingEngine(f"backend={name!r} is not installed ({error}): {engine.lacking}.") from None


def _described(ops: Ops) -> str:
    details = getattr(ops, "_details", "")
    return f"{ops.name}: {TABLE[ops.name].about}" + (f", {details}" if details else "")


def force_isa(name: str) -> None:
    """Let engines made from now on use this instruction set instead of the best one the processor has."""
    _forced["isa"] = name


def force_device(name: str | None) -> None:
    """Let JAX compute on this kind of device, one of `DEVICES`, and complain where there is none; None lets
    it choose. Once it has begun with one kind it stays there."""
    _forced.pop("device", None)
    if name is not None:
        _forced["device"] = name


def join(coordinator: str, processes: int | None = None, process_id: int | None = None) -> None:
    """Make this process one of those that train together with JAX; nothing may have been computed with it.

    Parameters
    ----------
    coordinator : HOST:PORT where process 0 listens; "auto" where a cluster's own environment says all.
    processes : how many there are.
    process_id : the number of this one, from 0.

    Raises
    ------
    InputError
        When JAX is not installed, or what is said can't be used.
    RunError
        When the others do not come.
    """
    try:
        _jax_module("jax_cluster").join(coordinator, processes, process_id)
    except ImportError as error:
        raise _MissingEngine(f"backend='jax' is not installed ({error}): {TABLE['jax'].lacking}.") from None


@contextmanager
def together() -> Iterator[None]:
    """A context for what several processes do together: an error in this one is told to the others, and they
    stop as well."""
    try:
        yield
    except Stopped:
        raise  # all of them, at the same time
    except BaseException as error:
        if cluster := sys.modules.get("minibert.backends.jax_cluster"):
            cluster.leave(error)
        raise


def quickest_dtype(name: str = "auto") -> str:
    """The precision for an engine of that name: "bfloat16" where what computes multiplies it faster, else
    "float32". Processors are measured: some have the instruction and need twice the time for it. JAX is only
    looked at where it is the engine.

    Examples
    --------
    >>> quickest_dtype("numpy")
    'float32'
    """
    if name == "jax":
        try:
            return "float32" if _jax_devices().platform() == "cpu" else "bfloat16"
        except ImportError:  # of which `choose` complains
            return "float32"
    sets = instruction_sets()
    chosen = _forced.get("isa") or next(iter(sets), "")
    able = name in ("auto", "cpp") and chosen in BFLOAT16_ISAS and chosen in sets
    return "bfloat16" if able and _rate(chosen, "bfloat16") > _rate(chosen, "float32") else "float32"


def _rate(isa: str, dtype: str) -> float:
    """GFLOP/s of one thread, from registers."""
    cpp = import_module("minibert.backends.cpp_primitives")
    return cpp.multiply_add_rate(1, LOOK_SECONDS, dtype == "bfloat16", isa)


def instruction_sets() -> list[str]:
    """What `force_isa` may be told, the fastest first; nothing without the kernels in C++."""
    try:
        return import_module("minibert.backends.cpp_primitives").available()
    except ImportError:
        return []


def peak(
    threads: int, dtype: str = "float32", seconds: float = PEAK_SECONDS, ops: Ops | None = None
) -> float | None:
    """How fast this machine multiplies and adds at most: its processor from registers, whichever engine
    computes, but where JAX computes on something else, all the devices in matrix products.

    Parameters
    ----------
    threads : that do so at once, on a core each; more than there are cores are no faster.
    dtype : "float32", "float64" or "bfloat16" (added to float32; float32's own on processors without).
    seconds : it takes; more where other programs are busy, whose share does not lower the figure.
    ops : the engine that will compute.

    Returns
    -------
    GFLOP/s, a multiply-add being two; None without the kernels in C++, which measure it.
    """
    if ops is not None and ops.name == "jax" and (rate := _jax_devices().accelerator_rate(dtype)):
        mesh = getattr(ops, "_mesh", None)
        return rate * (mesh.size if mesh else 1)
    try:
        cpp = import_module("minibert.backends.cpp_primitives")
    except ImportError:
        return None
    rate = cpp.multiply_add_rate(min(threads, cores()), seconds, narrow=dtype == "bfloat16")
    return rate / 2 if dtype == "float64" else rate  # half as many numbers in a vector


def limit_threads(threads: int | None, ops: Ops | None = None) -> Any:
    """Hold the matrix library at a number of threads; None leaves it at one for each core.

    Parameters
    ----------
    threads : the one number that governs every pool.
    ops : the engine that will compute. One with threads of its own was made with that number, and calls the
        matrix library from them: each call gets one thread.

    Returns
    -------
    controller
        Keep it for as long as the limit shall hold; `.restore_original_limits()` lifts it.
    """
    _require_positive(threads)
    if ops is not None and ops.name in OWN_THREADS:
        threads = 1
    if threads is None:
        return None
    import threadpoolctl

    return threadpoolctl.threadpool_limits(limits=threads)


@contextmanager
def limited_threads(threads: int | None, ops: Ops | None = None) -> Iterator[None]:
    """Hold the matrix library at a number of threads, as `limit_threads` does, until the end of the block."""
    limit = limit_threads(threads, ops)
    try:
        yield
    finally:
        if limit is not None:
            limit.restore_original_limits()


def _require_positive(threads: int | None) -> None:
    if threads is not None and threads < 1:
        raise InputError(f"threads={threads} is not a positive number; leave it out for one thread a core.")
    if threads is not None and threads > MOST_THREADS:
        raise InputError(
            f"threads={threads} is more than {MOST_THREADS:,}; leave it out for one thread a core."
        )


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
