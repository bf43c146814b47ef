"""Build the kernels in C++: `minibert.engines.cpp._kernels`, every kernel once for each instruction set.

The sources that are compiled once know nothing of instruction sets; `dispatch.cpp` chooses among them at run
time, so that one wheel serves every processor of its architecture. A set that is too much for the compiler is
left out.

The environment variable MINIBERT_BUILD_ISAS names the sets to compile beside the portable one, with commas:
"native" is the best that this machine runs, which compiles in half the time of all. By default it is all.
"""

import os
import platform
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pybind11
from setuptools import Extension
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError
from setuptools.modified import newer_group

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
OWN = (Path(__file__), ROOT / "setup.py")
ONCE = ("bindings.cpp", "threads.cpp", "memory.cpp")  # and dispatch.cpp, when it is known for what
# The first has all kinds of instructions in it, and tells whether the compiler can do a set. Of the others,
# what takes longest comes first.
FIRST = "peak.cpp"
KERNELS = (
    *("gemm.cpp", "attention_backward.cpp", "attention.cpp", "blocks.cpp", "cross_entropy.cpp"),
    *("layer_norm.cpp", "rowwise.cpp", "updates.cpp", "table.cpp"),
)
# Sums may be contracted to fused multiply-adds; nothing else may change what the source says.
FLAGS = ["-std=c++17", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fvisibility=hidden", "-g0"]
WARNINGS = ["-Wall", "-Wextra"]
# MinGW's GCC takes the stack for aligned to the width of its vectors, which that of Windows is not (GCC's bug
# 54412): the assembler has to write moves that need no alignment. One that lacks the flag is too old for all
# but the portable kernels. Clang aligns the stack itself.
UNALIGNED = "-Wa,-muse-unaligned-vector-move"
NAME, SETS = "minibert.engines.cpp._kernels", "MINIBERT_BUILD_ISAS"


def instruction_sets() -> dict[str, list[str]]:
    """Return the compiler's flags by instruction set, for this kind of machine, the slowest first."""
    sets: dict[str, list[str]] = {}
    for line in (HERE / "instruction_sets.mk").read_text().splitlines():
        if found := re.fullmatch(r"FLAGS_(\w+) :=(.*)", line):
            flags = re.sub(r"\$\(FLAGS_(\w+)\)", lambda other: " ".join(sets[other[1]]), found[2])
            sets[found[1]] = flags.split()
    return sets if platform.machine().lower() in ("x86_64", "amd64") else {"portable": sets["portable"]}


def asked() -> set[str]:
    """Return what `MINIBERT_BUILD_ISAS` names, by default all; SystemExit where it names another."""
    known = [*instruction_sets(), "native"]
    names = {name.strip() for name in os.environ.get(SETS, "").split(",")} - {""}
    if unknown := sorted(names - set(known)):
        sys.exit(f"minibert: {SETS} names {unknown[0]!r}; choose from {', '.join(known)}.")
    return names | {"portable"} if names else set(instruction_sets())


def extension() -> Extension:
    """Return the extension for setuptools, optional; `BuildKernels` adds the kernels themselves."""
    asked()
    sources = (path for ending in ("h", "cpp", "def", "mk") for path in HERE.glob(f"*.{ending}"))
    return Extension(
        NAME,
        sources=[str((HERE / "dispatch.cpp").relative_to(ROOT))],
        include_dirs=[pybind11.get_include()],
        depends=[str(path.relative_to(ROOT)) for path in (*sources, *OWN)],
        extra_compile_args=[*FLAGS, *WARNINGS, "-pthread"],
        extra_link_args=["-pthread"],
        language="c++",
        optional=True,
    )


class BuildKernels(build_ext):
    """`build_ext` that compiles one source under several sets of flags, one core each."""

    def build_extension(self, ext: Any) -> None:
        """Compile and link one extension."""
        if ext.name == NAME:
            if self.compiler.compiler_type == "msvc":
                raise CompileError("the kernels in C++ need GCC 11 or later, or Clang")
            if self._is_mingw():  # Python finds no DLLs of the compiler's
                ext.extra_link_args = [*ext.extra_link_args, "-static"]
            sets = self._sets()
            here = ROOT / self.get_ext_filename(NAME)
            if self.editable_mode and not self.force and not newer_group(ext.depends, str(here), "newer"):
                built = here.read_bytes()  # perhaps for an installation with other extras
                if all(f"{name}\0".encode() in built for name in sets):  # as dispatch.cpp knows them
                    self.mkpath(str(Path(self.get_ext_fullpath(NAME)).parent))
                    self.copy_file(str(here), self.get_ext_fullpath(NAME))
                    return
            able, ext.extra_objects = self._kernels(sets)
            self.force = True  # the extension that is there may have other sets
            ext.define_macros = [("MB_SETS", " ".join(f"MB_SET({name})" for name in reversed(able)))]
        super().build_extension(ext)

    def _sets(self) -> dict[str, list[str]]:
        """Return the instruction sets to compile for: what is asked for, and "native" by its name."""
        sets, wanted = instruction_sets(), asked()
        if "native" in wanted:
            wanted.add(next((name for name in reversed(sets) if self._runs(name, sets[name])), "portable"))
        return {name: flags for name, flags in sets.items() if name in wanted}

    def _is_mingw(self) -> bool:
        return bool(self.compiler.compiler_type == "mingw32")

    def _flags(self, flags: list[str]) -> list[str]:
        """Return what to tell the compiler beside the flags of an instruction set."""
        is_gcc = "clang" not in Path(self.compiler.compiler_cxx[0]).name
        unaligned = [UNALIGNED] if flags and is_gcc and self._is_mingw() else []
        return [*FLAGS, *WARNINGS, *flags, *unaligned]

    def _runs(self, isa: str, flags: list[str]) -> bool:
        """Tell whether this machine runs programs for an instruction set."""
        program = Path(self.build_temp) / f"probe-{isa}"
        try:
            objects = self._compile(isa, flags, "probe.cpp")
            self.compiler.link_executable(objects, str(program), target_lang="c++")
            return subprocess.run([program.absolute()], check=False).returncode == 0
        except (CompileError, LinkError, OSError):
            return False

    def _compile(self, isa: str, flags: list[str], name: str) -> list[str]:
        return self.compiler.compile(
            [str((HERE / name).relative_to(ROOT))],
            output_dir=str(Path(self.build_temp) / isa),
            macros=[("MB_ISA", isa)] if isa else [],
            include_dirs=[pybind11.get_include()] if not isa else [],
            extra_postargs=self._flags(flags),
        )

    def _kernels(self, sets: dict[str, list[str]]) -> tuple[list[str], list[str]]:
        """Compile all but dispatch.cpp; return the sets that the compiler can do, and the objects."""

        def first(isa: str) -> list[str]:
            try:
                return self._compile(isa, sets[isa], FIRST)
            except CompileError:
                if isa == "portable":
                    raise
                return []

        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:  # each may take half a gigabyte
            tried = dict(zip(sets, pool.map(first, sets), strict=True))
            able = [isa for isa, objects in tried.items() if objects]
            if refused := [isa for isa in sets if isa not in able]:
                text = ", ".join(refused)
                print(f"minibert: this compiler can't do {text}: no kernels for that", file=sys.stderr)
            jobs = [("", ["-pthread"], name) for name in ONCE]
            jobs += [(isa, sets[isa], name) for name in KERNELS for isa in able]
            compiled = list(pool.map(lambda job: self._compile(*job), jobs))
        return able, [path for paths in (*tried.values(), *compiled) for path in paths]
