"""Show what this machine and installation offer; compile in advance.

Prints versions, cores, the matrix library, the engines, the tokenizer and the
optional libraries; for one engine also its instruction set, its threads, and
the machine's peak rate of floating-point operations with that many threads.

With --warm-up, it compiles the loops of the engine numba in advance, so that
the first step of a run need not wait; loops that are already compiled are only
loaded. The machine code is stored in NUMBA_CACHE_DIR if that is set, otherwise
next to the package's files or, if these are read-only, in the user's cache.

examples:
  minibert info
  minibert info --warm-up float32
  minibert info --threads 1 --json
"""

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

REQUIRED = ("numpy", "numba", "cffi", "jinja2", "safetensors", "shtab", "tqdm", "threadpoolctl")
EXTRAS = {"matplotlib": "pictures", "tensorboardX": "TensorBoard events", "jax": "accelerators, many devices"}


def add(parser: ArgumentParser) -> None:
    """Add the flags of the command.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of this command.
    """
    add_engine(parser, device=False)
    text = "compile the loops of the engine numba, for one precision or both (default: both)"
    add_flag(parser, "--warm-up", text, nargs="?", const="both", choices=("both", "float32", "float64"))
    add_switches(parser, json=JSON)


def run(arguments: Namespace) -> None:
    """Print what is installed, or compile the loops.

    Parameters
    ----------
    arguments : Namespace
        What the flags of `add` were parsed to.
    """
    if arguments.warm_up:
        _warm_up(arguments.warm_up, arguments.json)
        return
    facts = information(arguments.engine, arguments.threads)
    if arguments.json:
        emit(json_text(facts))
        return
    width = max(map(len, facts))
    for heading, value in facts.items():
        lines = [value]
        if isinstance(value, dict):
            lines = [f"{name}: {part}" for name, part in value.items()]
        for index, line in enumerate(lines):
            label = heading if index == 0 else ""
            emit(f"{label:<{width}}  {line}")


def _warm_up(dtype: str, as_json: bool) -> None:
    """Compile the loops of the engine numba, for one precision or "both", and print each."""
    engines.create("numba")  # raises an error that says what is missing, if anything
    from minibert.engines.numba.jit import KERNELS, PRECISIONS, folder

    precisions = [precision for precision in PRECISIONS if dtype in ("both", precision.name)]
    wanted = [(kernel, precision) for precision in precisions for kernel in KERNELS]

    def show(text: str, end: str = "\n") -> None:
        if not as_json:
            emit(text, end=end, flush=True)

    done = []
    for number, (kernel, precision) in enumerate(wanted, start=1):
        show(f"{number:>2}/{len(wanted)}  {kernel.name:<31}{precision.name}", end="  ")
        loop = kernel.prepare(precision)
        done.append(loop)
        how = "read" if loop.cached else "compiled"
        show(f"{how:<8} {loop.seconds:6.2f} s")
    seconds = sum(loop.seconds for loop in done)
    n_compiled = sum(not loop.cached for loop in done)
    where = f"kept in {folder()}" if folder() else "kept nowhere"
    show(f"{n_compiled} compiled, {len(done) - n_compiled} read in {seconds:.1f} s, {where}")
    if as_json:
        loops = [loop._asdict() | {"dtype": loop.dtype.name} for loop in done]
        emit(json_text({"loops": loops, "seconds": seconds, "folder": folder()}))


def information(engine: str = "auto", threads: int | None = None) -> dict[str, Any]:
    """Collect everything that `minibert info` prints, by heading.

    Parameters
    ----------
    engine : str, default "auto"
        The name of the engine to describe.
    threads : int, optional
        Number of threads of the engine; by default, one for each core.

    Returns
    -------
    dict
        By heading, a text, or a dict of texts and numbers.
    """
    path = embedded_corpus()
    corpus = "missing: install minibert again"
    if path.exists():
        corpus = f"{path.name}, {path.stat().st_size / 1e6:.1f} MB compressed"
    system = f"{platform.system()} {platform.machine()}"
    return {
        "minibert": __version__,
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "machine": f"{system}, {counted(cores(), 'core')} for this process",
        "libraries": {name: _version(name) or f"missing: pip install {name}" for name in REQUIRED},
        "matrix library": _blas(),
        "engines": {name: _engine(name) for name in ("auto", *engines.ENGINES)},
        "engine": _chosen(engine, threads),
        "devices of JAX": _jax_devices(),
        "tokenizer": _tokenizer(),
        "extras": {name: _version(name) or f"not installed, for {what}" for name, what in EXTRAS.items()},
        "corpus": corpus,
    }


def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None


def _blas() -> str:
    """Name the loaded libraries that compute NumPy's matrix products, or what NumPy was built with."""
    loaded = []
    for library in engines.blas_libraries():
        if library.get("user_api") == "blas":
            version = library.get("version") or ""
            architecture = library.get("architecture", "unknown")
            threads = counted(library["num_threads"], "thread")
            loaded.append(f"{library['internal_api']} {version} ({architecture}), {threads}")
    if loaded:
        return "; ".join(loaded)
    built = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    return f"{built.get('name', 'unknown')} {built.get('version', '')}".strip()


def _engine(name: str) -> str:
    """Say what an engine would compute with, or what it lacks."""
    try:
        _, text = engines.choose(name)
    except InputError as error:
        return f"not available: {error}"
    return text if name == "auto" else f"ready ({text.partition(': ')[2]})"


def _chosen(name: str, threads: int | None) -> dict[str, Any]:
    """Describe the engine that `--engine` chooses, and the peak rate of the machine."""
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
    """Say what JAX would compute on, or why it can't; it is only imported if it is installed."""
    if importlib.util.find_spec("jax") is None:
        return f"not installed: {engines.TABLE['jax'].lacking}"
    try:
        return import_module("minibert.engines.jax.devices").devices()
    except (ImportError, RuntimeError) as error:  # ours, or JAX's about a jaxlib of another version
        return f"none: {error}"


def _tokenizer() -> str:
    """Say which core the tokenizer uses and, if that is Python, why."""
    native.load.cache_clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        core = native.load()
    text = f"core in {'C' if core else 'Python'}, Unicode {UNICODE_VERSION}"
    return text + "".join(f"; {warning.message}" for warning in caught)
