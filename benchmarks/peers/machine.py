"""The machine: what it is, and its highest rates, measured by the small C++ program `rates.cpp`."""

import functools
import os
import platform
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from minibert.base.errors import RunError
from minibert.base.machine import cores

SOURCE = Path(__file__).with_name("rates.cpp")
COMPILERS = ("c++", "g++", "clang++")
FLAGS = ("-O3", "-std=c++17", "-ffp-contract=fast", "-pthread")
MILLISECONDS = 200  # of one measurement
QUIET = 0.15  # cores that others may keep busy


def description() -> str:
    """Processor and cores."""
    model = platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), model)
    return f"{model}, {cores()} cores, Python {platform.python_version()}"


def what_disturbs(seconds: float = 0.5) -> str | None:
    """A sentence when other programs keep cores busy while this one sleeps."""
    before = _busy_seconds()
    time.sleep(seconds)
    busy = (_busy_seconds() - before) / seconds
    if busy <= QUIET:
        return None
    return f"other programs keep {busy:.1f} cores busy; figures are noise until they have ended."


def _busy_seconds() -> float:
    """What all cores together have worked since the machine was started; 0 where the system does not tell."""
    if not Path("/proc/stat").exists():
        return 0.0
    user, nice, system, _, _, *interrupts = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


@functools.cache
def _program() -> tuple[Path, tempfile.TemporaryDirectory]:
    """`rates.cpp`, compiled; the folder goes when this process ends."""
    compiler = os.environ.get("CXX") or next(filter(shutil.which, COMPILERS), None)
    if compiler is None:
        raise RunError("measuring the peak needs a C++ compiler (g++ or clang++); install one or set CXX.")
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / "rates"
    done = subprocess.run(
        [*compiler.split(), *FLAGS, str(SOURCE), "-o", str(path)], stderr=subprocess.PIPE, text=True
    )
    if done.returncode:
        raise RunError(f"{compiler} could not compile {SOURCE.name}: {done.stderr[:500]}")
    return path, folder


def _ask(*words: object) -> str:
    path, _ = _program()
    done = subprocess.run([str(path), *map(str, words)], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


@functools.cache
def units() -> list[tuple[str, str]]:
    """(dtype, name) of every vector unit that multiplies and adds."""
    return [(dtype, name) for dtype, name in map(str.split, _ask("list").splitlines())]


def multiply_adds(dtype: str, name: str, threads: int, milliseconds: float = MILLISECONDS) -> float:
    """GFLOP/s of one vector unit, from registers; a multiply-add is two operations."""
    return float(_ask("fma", dtype, name, threads, milliseconds))


def peak(dtype: str, threads: int, milliseconds: float = MILLISECONDS) -> float | None:
    """GFLOP/s of the fastest unit for a dtype; None where the CPU has none of its own."""
    names = [name for kind, name in units() if kind == dtype]
    return max((multiply_adds(dtype, name, threads, milliseconds) for name in names), default=None)


def copying(n_bytes: int, threads: int, milliseconds: float = MILLISECONDS) -> float:
    """GB/s read and written while each thread copies so many bytes over and over."""
    return float(_ask("copy", n_bytes, threads, milliseconds))
