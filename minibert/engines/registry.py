"""Engines by name: their precisions, how to make them, and which is fastest on this machine."""

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
PORTABLE = "portable"  # the instruction set of `cpp` without vector instructions, as on ARM
JAX_MINIMUM = "0.7"  # oldest version of jax and jaxlib, as in pyproject.toml
DEVICES = ("cpu", "gpu", "tpu")  # what `force_device` accepts
_forced: dict[str, str | None] = {"device": None}  # the last argument of `force_device`


class _MissingEngine(InputError):
    """Report that a requirement of an engine is not installed."""


def _jax(threads: int, dtype: str, fsdp: bool = False, **extras: Any) -> Ops:
    """Make the JAX engine; XLA has threads of its own, so `threads` is not used."""
    _jax_devices()
    module = import_module("minibert.engines.jax.ops")
    return module.JaxOps(dtype, shard=fsdp, **extras)


def _jax_devices() -> Any:
    """Import the module of JAX's devices, and limit JAX to the forced kind of device, if there is one."""
    devices = _jax_module("devices")
    devices.use(_forced["device"])
    return devices


def _jax_module(name: str) -> Any:
    """Import a module that imports JAX, after checking that JAX is recent enough."""
    for library in ("jax", "jaxlib"):
        with suppress(metadata.PackageNotFoundError):  # the import below reports what is missing
            version = metadata.version(library)
            if _numbers(version) < _numbers(JAX_MINIMUM):
                raise InputError(
                    f"{library} {version} is older than {JAX_MINIMUM}, the oldest that minibert works with: "
                    "pip install -U jax jaxlib."
                )
    try:
        return import_module(f"minibert.engines.jax.{name}")
    except RuntimeError as error:  # JAX raises it if the version of jaxlib does not match
        raise InputError(f"JAX does not start ({error}): pip install -U jax jaxlib.") from None


def _numbers(version: str) -> list[int]:
    """Split `0.9.0.1` into numbers, up to the first part that is not a number, as in `0.10.0.dev7`."""
    parts = itertools.takewhile(str.isdecimal, version.split("."))
    return [int(part) for part in parts]


class Engine(NamedTuple):
    """One engine: what it is, and how to make it."""

    about: str
    make: Callable[..., Ops]  # called with threads, dtype and extras; ImportError if something is missing
    lacking: str  # what to install in that case
    dtypes: tuple[str, ...] = ("float32", "float64")  # the types that it computes in
    extras: tuple[str, ...] = ()  # its options that not all engines have


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
    """Make the engine with that name; "auto" takes the fastest that is installed.

    Parameters
    ----------
    name : str, default "auto"
        "auto" or one of `ENGINES`.
    threads : int or None
        Threads of the engine itself; None, the default, for one on each core. The threads of NumPy's matrix
        library are limited separately, by `limited_threads`.
    dtype : str, default "float32"
        "float32", "float64" or "bfloat16". The first two are the type of the parameters. With bfloat16, the
        operands of matrix products and the activations have that type, and parameters are float32.
    **extras : Any
        Options of a single engine; None and False count as not given. JAX has `device` (a name of
        `DEVICES`), `devices` (how many devices train; all by default), `fsdp` (whether parameters and
        moments are spread over them) and `recompute` (whether only the input of each layer is kept for
        backward).

    Returns
    -------
    Ops
        The engine: its methods are the operations of `minibert.core.ops`.

    Raises
    ------
    InputError
        When there is no such engine, it does not compute in that dtype or have that option, something that it
        needs is not installed, or the forced device does not exist.
    """
    return choose(name, threads, dtype, **extras)[0]


def choose(
    name: str = "auto",
    threads: int | None = None,
    dtype: str = "float32",
    **extras: Any,
) -> tuple[Ops, str]:
    """Make an engine, as `create` does; also return a sentence that says which it is and why.

    Parameters
    ----------
    name : str, default "auto"
        "auto" or one of `ENGINES`, as for `create`.
    threads : int or None
        Threads of the engine itself; None, the default, for one on each core.
    dtype : str
        "float32" (the default), "float64" or "bfloat16".
    **extras : Any
        Options of a single engine, as for `create`.

    Returns
    -------
    tuple of Ops and str
        The engine, and the sentence.

    Raises
    ------
    InputError
        As for `create`; also when no installed engine computes in the dtype.

    Examples
    --------
    >>> choose("numpy")[1]
    'numpy: the reference, plain NumPy'
    """
    require_threads(threads)
    if name not in ("auto", *TABLE):
        known = ", ".join(TABLE)
        raise InputError(f"engine={name!r} is not an engine; use auto or one of {known}.", engine=name)
    able = [engine for engine in TABLE if dtype in TABLE[engine].dtypes]
    if not able:
        raise InputError(f"{dtype=} is not one to compute in; use float32, bfloat16 or float64.", dtype=dtype)
    if name not in ("auto", *able):
        message = f"engine={name!r} does not compute in {dtype=}; choose from {', '.join(able)}."
        raise InputError(message, dtype=dtype, engine=name)
    options = {}
    for option, value in extras.items():
        if value is not None and value is not False:
            options[option] = value
    _require_meant(name, options)
    if name == "auto":
        return _fastest(threads, dtype, able)
    ops = _make(name, threads, dtype, options)
    return ops, _described(ops)


def _fastest(threads: int | None, dtype: str, able: list[str]) -> tuple[Ops, str]:
    """Make the fastest of the engines that are `able` to compute in a dtype; say why it was chosen.

    The order is fixed, except where `cpp` has no vector instructions: there, a trial of a step decides.
    """
    trial = {}
    if chosen_isa() == PORTABLE:
        trial = _trial(threads, dtype)
    quickest_first = sorted(trial, key=trial.__getitem__)
    missing = []
    for name in [*quickest_first, *FASTEST_FIRST]:
        if name not in able:
            continue
        try:
            ops = _make(name, threads, dtype, {})
        except _MissingEngine as error:
            missing.append(str(error))
            continue
        return ops, _described(ops) + _reason(trial, missing)
    raise InputError(f"No engine that computes in {dtype} is installed. {' '.join(missing)}")


def _reason(trial: dict[str, float], missing: list[str]) -> str:
    """Continue the description of an engine with the reason for choosing it."""
    if trial:
        steps = [f"{1000 * seconds:.0f} ms with {engine}" for engine, seconds in trial.items()]
        return f", the fastest here: a small step took {', '.join(steps)}"
    if missing:
        return f"; {' '.join(missing).removesuffix('.')}"
    return ", the fastest engine installed"


def choose_for(options: Any, custom: Ops | None) -> tuple[Ops, str]:
    """Make the engine that the options of a run name, unless the user passes one; return a sentence about it.

    Parameters
    ----------
    options : Any
        Options of a run, with the attributes `engine`, `threads`, `dtype` and `extras` (a dictionary).
    custom : Ops or None
        An engine that the user made; None to make one.

    Returns
    -------
    tuple of Ops and str
        The engine, and a sentence about it, as from `choose`.
    """
    if custom is not None:
        return custom, f"{type(custom).__name__}, yours"
    return choose(options.engine, options.threads, options.dtype, **options.extras)


@functools.cache
def _trial(threads: int | None, dtype: str) -> dict[str, float]:
    """Time one real step with the portable kernels of `cpp`, and with NumPy's library, which may be faster.

    Return seconds by the name of the engine; nothing for a dtype that NumPy does not have.
    """
    if dtype not in TABLE["numpy"].dtypes:
        return {}
    trial = import_module("minibert.engines.trial")
    seconds = {}
    for name in ("cpp", "numpy"):
        ops = _make(name, threads, dtype, {})
        with limited_threads(threads, ops):
            seconds[name] = trial.seconds_per_step(ops, dtype)
    return seconds


def resolve_auto(options: Any) -> Any:
    """Decide the options that depend on this machine before they are stored, so that resumed runs agree.

    They are `dtype="auto"` and, where it needs a trial of two engines, `engine="auto"`.

    Parameters
    ----------
    options : dataclass
        Options of a run, with the fields `engine`, `threads` and `dtype`.

    Returns
    -------
    dataclass
        The options with these two fields decided; the same object if there was nothing to decide.
    """
    if options.dtype == "auto":
        options = dataclasses.replace(options, dtype=quickest_dtype(options.engine))
    if options.engine == "auto" and chosen_isa() == PORTABLE:
        seconds = _trial(options.threads, options.dtype)
        fastest = min(seconds, key=seconds.__getitem__, default="auto")
        options = dataclasses.replace(options, engine=fastest)
    return options


def _require_meant(name: str, extras: dict[str, Any]) -> None:
    """Raise InputError when an option is given that the engine does not have."""
    forced = {option: value for option, value in _forced.items() if value is not None}
    given = extras | forced
    for option, value in given.items():
        engines = [engine for engine in TABLE if option in TABLE[engine].extras]
        if not engines:
            raise TypeError(f"{option!r} is not an option of an engine.")
        if name not in engines:
            able = " or ".join(f"engine={engine!r}" for engine in engines)
            message = f"{option}={value!r} is for {able}; leave it out, or choose that engine."
            raise InputError(message, **{option: value})


def _make(name: str, threads: int | None, dtype: str, extras: dict[str, Any]) -> Ops:
    """Make an engine; raise _MissingEngine, which says what to install, if something is missing."""
    engine = TABLE[name]
    try:
        return engine.make(threads or cores(), dtype, **extras)
    except ImportError as error:
        message = f"engine={name!r} is not installed ({error}): {engine.lacking}."
        raise _MissingEngine(message, engine=name) from None


def _described(ops: Ops) -> str:
    """Describe an engine: its name, what it is, and its own details, such as the number of threads."""
    description = f"{ops.name}: {TABLE[ops.name].about}"
    details = getattr(ops, "_details", "")
    if details:
        description += f", {details}"
    return description


def force_device(name: str | None) -> None:
    """Make JAX, which must not have started yet, compute on a certain kind of device.

    Parameters
    ----------
    name : str or None
        One of `DEVICES`; None lets JAX choose. Making the engine fails if there is no such device.
    """
    _forced["device"] = name


def join(coordinator: str, processes: int | None = None, process_id: int | None = None) -> None:
    """Join the processes that train together with JAX, which must not have computed anything yet.

    Parameters
    ----------
    coordinator : str
        HOST:PORT where process 0 listens; or "auto" if the environment of a cluster provides everything.
    processes : int or None
        How many processes train together; None if the environment says so.
    process_id : int or None
        The index of this process, from 0; None if the environment says so.

    Raises
    ------
    InputError
        When JAX is not installed, or the address can't be used.
    RunError
        When the other processes do not join.
    """
    try:
        _jax_module("cluster").join(coordinator, processes, process_id)
    except ImportError as error:
        lacking = TABLE["jax"].lacking
        raise _MissingEngine(f"engine='jax' is not installed ({error}): {lacking}.", engine="jax") from None


@contextmanager
def abort_peers_on_error() -> Iterator[None]:
    """Stop the other processes too if this block, in which all of them compute together, fails in this one.

    Yields
    ------
    None
        Control to the block. An error passes through. The others are not told about `Stopped`, which all
        processes raise at the same time.
    """
    try:
        yield
    except Stopped:
        raise
    except BaseException as error:
        if cluster := sys.modules.get("minibert.engines.jax.cluster"):
            cluster.leave(error)
        raise


def quickest_dtype(name: str = "auto") -> str:
    """Choose "bfloat16" for an engine if the hardware multiplies faster in it, else "float32".

    Processors are measured: some have the instruction, but take twice as long for it.

    Parameters
    ----------
    name : str
        "auto" (the default), which means `cpp` here, or one of `ENGINES`. Only `cpp` and `jax` compute in
        bfloat16.

    Returns
    -------
    str
        "bfloat16" or "float32".

    Examples
    --------
    >>> quickest_dtype("numpy")
    'float32'
    """
    if name == "jax":
        try:
            platform = _jax_devices().platform()
        except ImportError:  # `choose` reports it later
            return "float32"
        return "float32" if platform == "cpu" else "bfloat16"
    isa = ""
    if name in ("auto", "cpp"):
        isa = chosen_isa()
    if isa not in BFLOAT16_ISAS:
        return "float32"
    return max("float32", "bfloat16", key=lambda dtype: rate_of_one_thread(isa, dtype))
