"""Show what this machine and this installation offer.

Prints versions, cores, the matrix library, the engines, the tokenizer and the
optional libraries; for one engine also its instruction set, its threads, and
the machine's peak rate of floating-point operations with so many threads.

examples:
  minibert info
  minibert info --threads 1 --json
"""

import argparse
import importlib.util
import platform
import warnings
from importlib import import_module, metadata
from typing import Any

import numpy as np

from minibert import __version__, engines
from minibert.cli.shared.flags import add_engine, add_json
from minibert.data.corpus import embedded_corpus
from minibert.errors import InputError
from minibert.machine import cores
from minibert.terminal import emit, json_text
from minibert.tokenizer import native
from minibert.tokenizer.unicode import UNICODE_VERSION

REQUIRED = ("numpy", "numba", "cffi", "safetensors", "tqdm", "threadpoolctl")
PEAKS = ("float32", "bfloat16")
EXTRAS = {
    "matplotlib": "pictures",
    "tensorboardX": "TensorBoard events",
    "jax": "accelerators and many devices",
}


def add(parser: Any) -> None:
    """Add the flags of the command."""
    add_engine(parser, device=False)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Look around, and print."""
    facts = information(arguments.engine, arguments.threads)
    if arguments.json:
        emit(json_text(facts))
        return 0
    width = max(map(len, facts))
    for name, value in facts.items():
        lines = [f"{n}: {v}" for n, v in value.items()] if isinstance(value, dict) else [value]
        for first, line in zip([name] + [""] * len(lines), lines, strict=False):
            emit(f"{first:<{width}}  {line}")
    return 0


def information(engine: str = "auto", threads: int | None = None) -> dict[str, Any]:
    """Return everything that `minibert info` prints, by heading; most of it about this engine."""
    return {
        "minibert": __version__,
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "machine": f"{platform.system()} {platform.machine()}, {cores()} cores for this process",
        "libraries": {name: _version(name) or "missing: pip install " + name for name in REQUIRED},
        "matrix library": _blas(),
        "engines": {name: _engine(name) for name in ("auto", *engines.ENGINES)},
        "engine": _chosen(engine, threads),
        "devices of JAX": _jax_devices(),
        "tokenizer": _tokenizer(),
        "extras": {
            name: _version(name) or f"not installed; needed for {what}" for name, what in EXTRAS.items()
        },
        "corpus": _corpus(),
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
        f"{one['num_threads']} thread{'s' * (one['num_threads'] != 1)}"
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
    for dtype in PEAKS:
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
    name = "core in C" if core else "core in Python"
    return f"{name}, Unicode {UNICODE_VERSION}" + "".join(f"; {warning.message}" for warning in caught)


def _corpus() -> str:
    path = embedded_corpus()
    if not path.exists():
        return "missing: install minibert again"
    return f"{path.name}, {path.stat().st_size / 1e6:.1f} MB compressed"
