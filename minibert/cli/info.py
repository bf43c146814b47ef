"""Show what this machine and this installation offer, or prepare it.

Prints versions, cores, the matrix library, the engines, the tokenizer and the
optional libraries; for one engine also its instruction set, its threads, and
the machine's peak rate of floating-point operations with so many threads.

With --warm-up it compiles the loops of the engine numba and keeps the machine
code, so that the first step of a run does not wait for it; what was compiled
before is only read. Machine code is kept where Numba's NUMBA_CACHE_DIR says, or
beside the package's own files or, where these can't be written to, in the
user's cache folder.

examples:
  minibert info
  minibert info --warm-up float32
  minibert info --threads 1 --json
"""

import functools
import importlib.util
import platform
import warnings
from argparse import ArgumentParser, Namespace
from importlib import import_module, metadata
from typing import Any

import numpy as np

from minibert import __version__, engines
from minibert.base.errors import InputError
from minibert.base.machine import cores
from minibert.base.terminal import counted, emit, json_text
from minibert.cli.shared.flags import JSON, add_engine, add_flag, add_switches
from minibert.data.corpus import embedded_corpus
from minibert.tokenizer import native
from minibert.tokenizer.unicode import UNICODE_VERSION

REQUIRED = ("numpy", "numba", "cffi", "safetensors", "shtab", "tqdm", "threadpoolctl")
EXTRAS = {"matplotlib": "pictures", "tensorboardX": "TensorBoard events", "jax": "accelerators, many devices"}


def add(parser: ArgumentParser) -> None:
    add_engine(parser, device=False)
    text = "compile the loops of the engine numba, in one precision or (both, the default)"
    add_flag(parser, "--warm-up", text, nargs="?", const="both", choices=("both", "float32", "float64"))
    add_switches(parser, json=JSON)


def run(arguments: Namespace) -> None:
    if arguments.warm_up:
        _warm_up(arguments.warm_up, arguments.json)
        return
    facts = information(arguments.engine, arguments.threads)
    if arguments.json:
        emit(json_text(facts))
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        lines = [f"{n}: {v}" for n, v in value.items()] if isinstance(value, dict) else [value]
        for first, line in zip([name] + [""] * len(lines), lines, strict=False):
            emit(f"{first:<{width}}  {line}")


def _warm_up(dtype: str, as_json: bool) -> None:
    """Compile the loops of the engine numba for one precision or "both", and say so loop by loop."""
    engines.create("numba")  # or the sentence that says what is missing
    from minibert.engines.numba.jit import KERNELS, PRECISIONS, folder

    wanted = [(one, kind) for kind in PRECISIONS if dtype in ("both", kind.name) for one in KERNELS]
    show: Any = (lambda *text, **how: None) if as_json else functools.partial(emit, flush=True)
    done = []
    for number, (one, kind) in enumerate(wanted, start=1):
        show(f"{number:>2}/{len(wanted)}  {one.name:<31}{kind.name}", end="  ")
        done.append(one.prepare(kind))
        show(f"{'read' if done[-1].cached else 'compiled':<8} {done[-1].seconds:6.2f} s")
    seconds, compiled = sum(one.seconds for one in done), sum(not one.cached for one in done)
    where = f"kept in {folder()}" if folder() else "kept nowhere"
    show(f"{compiled} compiled, {len(done) - compiled} read in {seconds:.1f} s, {where}")
    if as_json:
        loops = [one._asdict() | {"dtype": one.dtype.name} for one in done]
        emit(json_text({"loops": loops, "seconds": seconds, "folder": folder()}))


def information(engine: str = "auto", threads: int | None = None) -> dict[str, Any]:
    """Return everything that `minibert info` prints, by heading; most of it about this engine."""
    path, absent = embedded_corpus(), "missing: install minibert again"
    return {
        "minibert": __version__,
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "machine": f"{platform.system()} {platform.machine()}, {counted(cores(), 'core')} for this process",
        "libraries": {name: _version(name) or "missing: pip install " + name for name in REQUIRED},
        "matrix library": _blas(),
        "engines": {name: _engine(name) for name in ("auto", *engines.ENGINES)},
        "engine": _chosen(engine, threads),
        "devices of JAX": _jax_devices(),
        "tokenizer": _tokenizer(),
        "extras": {name: _version(name) or f"not installed, for {what}" for name, what in EXTRAS.items()},
        "corpus": f"{path.name}, {path.stat().st_size / 1e6:.1f} MB compressed" if path.exists() else absent,
    }


def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None


def _blas() -> str:
    """Name the libraries under NumPy's matrix products as they were loaded, or how NumPy was built."""
    loaded = [
        f"{one['internal_api']} {one.get('version') or ''} ({one.get('architecture', 'unknown')}), "
        + counted(one["num_threads"], "thread")
        for one in engines.blas_libraries()
        if one.get("user_api") == "blas"
    ]
    built = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    return "; ".join(loaded) or f"{built.get('name', 'unknown')} {built.get('version', '')}".strip()


def _engine(name: str) -> str:
    """Return what an engine would compute with, or what it lacks."""
    try:
        _, text = engines.choose(name)
    except InputError as error:
        return f"not available: {error}"
    return text if name == "auto" else f"ready ({text.partition(': ')[2]})"


def _chosen(name: str, threads: int | None) -> dict[str, Any]:
    """Describe the engine that `--engine` chooses, and how fast the machine lets it be."""
    ops: Any = engines.create(name, threads)
    threads = threads or cores()
    facts: dict[str, Any] = {"name": ops.name, "threads": threads}
    if sets := engines.instruction_sets():
        if ops.name == "cpp":
            facts["instruction set"] = ops._run.isa
        facts["instruction sets available"] = ", ".join(sets)
    for dtype in ("float32", "bfloat16"):
        peak = engines.peak(threads, dtype)
        title = f"peak in {dtype}, GFLOP/s"
        facts[title] = round(peak, 1) if peak else "not measured: it needs the kernels in C++"
    return facts


def _jax_devices() -> dict[str, str] | str:
    """Return what JAX would compute on, or why on nothing; it is only imported where it is installed."""
    if importlib.util.find_spec("jax") is None:
        return f"not installed: {engines.TABLE['jax'].lacking}"
    try:
        return import_module("minibert.engines.jax.devices").devices()
    except (ImportError, RuntimeError) as error:  # ours, or JAX's of a jaxlib of another version
        return f"none: {error}"


def _tokenizer() -> str:
    """Return which core the tokenizer has and, if it is the one in Python, why."""
    native.load.cache_clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        core = native.load()
    text = f"core in {'C' if core else 'Python'}, Unicode {UNICODE_VERSION}"
    return text + "".join(f"; {warning.message}" for warning in caught)
