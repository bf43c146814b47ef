"""Engines by name: what each is and computes, how it comes to be, and which is the fastest here."""

import dataclasses
import functools
import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module, metadata
from typing import Any, NamedTuple

from minibert.base.errors import InputError, Stopped
from minibert.base.machine import cores
from minibert.engines.hardware import chosen_isa, limited_threads, rate_of_one_thread, require_threads
from minibert.model.ops import Ops

BFLOAT16_ISAS = ("amx", "avx512_bf16")  # instruction sets that multiply bfloat16
PORTABLE = "portable"  # of `cpp` without vector instructions of its own, as on ARM
JAX_MINIMUM = "0.7"  # of jax and jaxlib, as in pyproject.toml
DEVICES = ("cpu", "gpu", "tpu")  # what `force_device` may be told
_forced: dict[str, str | None] = {"device": None}  # what `force_device` was told


class _MissingEngine(InputError):
    """What an engine needs is not installed."""


def _jax(threads: int, dtype: str, fsdp: bool = False, **extras: Any) -> Ops:
    _jax_devices()
    return import_module("minibert.engines.jax.ops").JaxOps(dtype, shard=fsdp, **extras)


def _jax_devices() -> Any:
    """Import the module that knows JAX's devices, and let JAX use those it shall."""
    found = _jax_module("devices")
    found.use(_forced["device"])
    return found


def _jax_module(name: str) -> Any:
    """Import a module that imports JAX, where JAX is recent enough."""
    for library in ("jax", "jaxlib"):
        with suppress(metadata.PackageNotFoundError):  # which is for the import to say
            version = metadata.version(library)
            if _numbers(version) < _numbers(JAX_MINIMUM):
                oldest = f"{JAX_MINIMUM}, the oldest that minibert works with"
                raise InputError(f"{library} {version} is older than {oldest}: pip install -U jax jaxlib.")
    try:
        return import_module(f"minibert.engines.jax.{name}")
    except RuntimeError as error:  # as JAX complains of a jaxlib of another version
        raise InputError(f"JAX does not start ({error}): pip install -U jax jaxlib.") from None


def _numbers(version: str) -> list[int]:
    """Split `0.9.0.1` into numbers; from a part on that is none, as in `0.10.0.dev7`, nothing counts."""
    return [int(part) for part in itertools.takewhile(str.isdecimal, version.split("."))]


class Engine(NamedTuple):
    """One engine: what it is, and how it comes to be."""

    about: str
    make: Callable[..., Ops]  # of threads, a dtype and its extras; ImportError where something is missing
    lacking: str  # what to do then
    dtypes: tuple[str, ...] = ("float32", "float64")
    extras: tuple[str, ...] = ()  # what it alone can be told


TABLE = {
    "numpy": Engine("the reference, plain NumPy", lambda threads, dtype: Ops(), ""),
    "cpp": Engine(
        "kernels in C++ for float32 and bfloat16",
        lambda threads, dtype: import_module("minibert.engines.cpp.ops").CppOps(threads, dtype=dtype),
        "install a C++ compiler (GCC 11 or later, or Clang) and Python's headers, then reinstall minibert",
        ("float32", "bfloat16", "float64"),
    ),
    "numba": Engine(
        "loops compiled by Numba for float32 and float64",
        lambda threads, dtype: import_module("minibert.engines.numba.ops").NumbaOps(threads),
        "pip install numba",
    ),
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


def create(name: str = "auto", threads: int | None = None, dtype: str = "float32", **extras: Any) -> Ops:
    """Make the engine of that name; "auto" takes the fastest there is.

    Raise InputError when there is no such engine, it does not compute in that dtype, or what it needs is not
    installed; when it has no such option, or the device that was forced is not there.

    Parameters
    ----------
    name : "auto" or one of `ENGINES`.
    threads : of the engine itself; one for each core when left out. NumPy's are `limited_threads`'s matter.
    dtype : "float32", "float64" or "bfloat16". The first two are those of the parameters; bfloat16 is that of
        the operands of matrix products and of activations, with parameters in float32.
    extras : options of a single engine; None and False count as not given. For JAX `devices`, how many train
        (all there are, when left out), `fsdp`, whether parameters and moments are spread over them, and
        `recompute`, whether only the input of each layer is kept for backward.
    """
    return choose(name, threads, dtype, **extras)[0]


def choose(
    name: str = "auto", threads: int | None = None, dtype: str = "float32", **extras: Any
) -> tuple[Ops, str]:
    """Make the engine that `create` makes, and say in a sentence which it is and why.

    Examples
    --------
    >>> choose("numpy")[1]
    'numpy: the reference, plain NumPy'
    """
    require_threads(threads)
    if name not in ("auto", *TABLE):
        raise InputError(f"$engine is not an engine; use auto or one of {', '.join(TABLE)}.", engine=name)
    able = [one for one in TABLE if dtype in TABLE[one].dtypes]
    if not able:
        raise InputError("$dtype is not one to compute in; use float32, bfloat16 or float64.", dtype=dtype)
    if name not in ("auto", *able):
        message = f"$dtype is not one that $engine computes in; {', '.join(able)} can."
        raise InputError(message, dtype=dtype, engine=name)
    extras = {option: value for option, value in extras.items() if value is not None and value is not False}
    _require_meant(name, extras)
    if name != "auto":
        ops = _make(name, threads, dtype, extras)
        return ops, _described(ops)
    tried = _trial(threads, dtype) if chosen_isa() == PORTABLE else {}
    missing = []
    for one in [*sorted(tried, key=tried.__getitem__), *FASTEST_FIRST]:
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


def choose_for(options: Any, own: Ops | None) -> tuple[Ops, str]:
    """Make the engine that the options of a run name, unless the user has an `own` one; say which it is."""
    if own is not None:
        return own, f"{type(own).__name__}, yours"
    return choose(options.engine, options.threads, options.dtype, **options.extras)


@functools.cache
def _trial(threads: int | None, dtype: str) -> dict[str, float]:
    """Time one real step with portable kernels of `cpp`, and with NumPy's library, which may be faster."""
    trial = import_module("minibert.engines.trial")
    found = {}
    for name in ("cpp", "numpy") if dtype in TABLE["numpy"].dtypes else ():
        ops = _make(name, threads, dtype, {})
        with limited_threads(threads, ops):
            found[name] = trial.seconds_per_step(ops, dtype)
    return found


def settled(options: Any) -> Any:
    """Decide what the options of a run leave to this machine, as they are stored and resumed with.

    That is `dtype="auto"` and, where `engine="auto"` needs a trial of two engines, the faster one.
    """
    if options.dtype == "auto":
        options = dataclasses.replace(options, dtype=quickest_dtype(options.engine))
    if options.engine == "auto" and chosen_isa() == PORTABLE:
        tried = _trial(options.threads, options.dtype)
        options = dataclasses.replace(options, engine=min(tried, key=tried.__getitem__, default="auto"))
    return options


def _require_meant(name: str, extras: dict[str, Any]) -> None:
    """Raise InputError when an option is given that the engine of that name does not have."""
    forced = {option: value for option, value in _forced.items() if value is not None}
    for option, value in (extras | forced).items():
        hearing = [one for one in TABLE if option in TABLE[one].extras]
        if not hearing:
            raise TypeError(f"{option!r} is nothing that an engine can be told.")
        if name not in hearing:
            both = {option: value, "engine": " or ".join(hearing)}
            raise InputError(f"${option} is for $engine; leave it out or choose that.", **both)


def _make(name: str, threads: int | None, dtype: str, extras: dict[str, Any]) -> Ops:
    engine = TABLE[name]
    try:
        return engine.make(threads or cores(), dtype, **extras)
    except ImportError as error:
        raise _MissingEngine(f"$engine is not installed ({error}): {engine.lacking}.", engine=name) from None


def _described(ops: Ops) -> str:
    details = getattr(ops, "_details", "")
    return f"{ops.name}: {TABLE[ops.name].about}" + (f", {details}" if details else "")


def force_device(name: str | None) -> None:
    """Let JAX, which has not begun yet, compute on one of `DEVICES`; None lets it choose."""
    _forced["device"] = name


def join(coordinator: str, processes: int | None = None, process_id: int | None = None) -> None:
    """Make this process one of those that train together with JAX; nothing may have been computed with it.

    `coordinator` is HOST:PORT where process 0 listens, or "auto" where a cluster's own environment says all.
    Raise RunError when the others do not come, InputError when the address can't be used.
    """
    try:
        _jax_module("cluster").join(coordinator, processes, process_id)
    except ImportError as error:
        lacking = TABLE["jax"].lacking
        raise _MissingEngine(f"$engine is not installed ({error}): {lacking}.", engine="jax") from None


@contextmanager
def together() -> Iterator[None]:
    """Tell the other processes of an error in this one, in what they do together: they stop as well."""
    try:
        yield
    except Stopped:
        raise  # all of them, at the same time
    except BaseException as error:
        if cluster := sys.modules.get("minibert.engines.jax.cluster"):
            cluster.leave(error)
        raise


def quickest_dtype(name: str = "auto") -> str:
    """Choose "bfloat16" for an engine where what computes multiplies it faster, else "float32".

    Processors are measured: some have the instruction and need twice the time for it.

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
    isa = chosen_isa() if name in ("auto", "cpp") else ""
    if isa not in BFLOAT16_ISAS:
        return "float32"
    return max("float32", "bfloat16", key=lambda dtype: rate_of_one_thread(isa, dtype))
