"""What `minibert info` tells: the facts a bug report or a comparison of speeds needs."""

import importlib.util
import platform
import warnings
from importlib import import_module, metadata
from typing import Any

import numpy as np

from minibert import __version__, backends
from minibert.data.corpus import embedded_corpus
from minibert.errors import InputError
from minibert.machine import cores
from minibert.tokenizer import native
from minibert.tokenizer.unicode import UNICODE_VERSION

REQUIRED = ("numpy", "numba", "cffi", "safetensors", "tqdm", "threadpoolctl")
PEAKS = ("float32", "bfloat16")
EXTRAS = {
    "matplotlib": "pictures",
    "tensorboardX": "TensorBoard events",
    "jax": "accelerators and many devices",
}


def information(backend: str = "auto", threads: int | None = None) -> dict[str, Any]:
    """Everything `minibert info` prints, by heading; also what --json prints.

    Parameters
    ----------
    backend, threads : the engine that is told more of.
    """
    return {
        "minibert": __version__,
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "machine": f"{platform.system()} {platform.machine()}, {cores()} cores for this process",
        "libraries": {name: _version(name) or "missing: pip install " + name for name in REQUIRED},
        "matrix library": _blas(),
        "engines": {name: _engine(name) for name in ("auto", *backends.ENGINES)},
        "engine": _chosen(backend, threads),
        "devices of JAX": _jax_devices(),
        "tokenizer": _tokenizer(),
        "extras": {
            name: _version(name) or f"not installed; needed for {gift}" for name, gift in EXTRAS.items()
        },
        "corpus": _corpus(),
    }


def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None


def _blas() -> str:
    """The libraries under NumPy's matrix products as they were loaded, or how NumPy was built."""
    found = [
        f"{one['internal_api']} {one.get('version') or ''} ({one.get('architecture', 'unknown')}), "
        f"{one['num_threads']} thread{'s' * (one['num_threads'] != 1)}"
        for one in backends.blas_libraries()
        if one.get("user_api") == "blas"
    ]
    built = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    return "; ".join(found) or f"{built.get('name', 'unknown')} {built.get('version', '')}".strip()


def _engine(name: str) -> str:
    """What an engine would compute with, or what it lacks."""
    try:
        _, text = backends.choose(name)
    except InputError as error:
        return f"not available: {error}"
    return text if name == "auto" else f"ready ({text.partition(': ')[2]})"


def _chosen(name: str, threads: int | None) -> dict[str, Any]:
    """The engine that `--backend` chooses, and how fast the machine lets it be."""
    ops, found = backends.create(name, threads), {}
    if sets := backends.instruction_sets():
        if ops.name == "cpp":
            found["instruction set"] = ops._run.isa
        found["instruction sets available"] = ", ".join(sets)
    threads = threads or cores()
    found = {"name": ops.name, "threads": threads} | found
    for dtype in PEAKS:
        peak = backends.peak(threads, dtype)
        title = f"peak in {dtype}, GFLOP/s"
        found[title] = round(peak, 1) if peak else "not measured: it needs the kernels in C++"
    return found


def _jax_devices() -> dict[str, str] | str:
    """What JAX would compute on, or why on nothing. Where it is not there nothing tries to import it."""
    if importlib.util.find_spec("jax") is None:
        return f"not installed: {backends.TABLE['jax'].lacking}"
    try:
        return import_module("minibert.backends.jax_devices").devices()
    except (ImportError, RuntimeError) as error:  # ours, or JAX's of a jaxlib of another version
        return f"none: {error}"


def _tokenizer() -> str:
    """Which core the tokenizer has and, if it is the one in Python, why."""
    native.load.cache_clear()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        core = native.load()
    name = "core in C" if core else "core in Python"
    return f"{name}, Unicode {UNICODE_VERSION}" + "".join(f"; {warning.message}" for warning in said)


def _corpus() -> str:
    path = embedded_corpus()
    if not path.exists():
        return "missing: install minibert again"
    return f"{path.name}, {path.stat().st_size / 1e6:.1f} MB compressed"
