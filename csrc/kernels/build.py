"""Builds the kernels in C++: `minibert.backends._kernels`, every kernel once for each instruction set.

The sources that are compiled once know nothing of instruction sets; `dispatch.cpp` chooses among them at run
time, so that one wheel serves every processor of its architecture.
"""

import os
import platform
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pybind11
from setuptools import Extension
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError
from setuptools.modified import newer_group

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
OWN = (Path(__file__), ROOT / "setup.py")
ONCE = ("threads.cpp", "memory.cpp", "dispatch.cpp", "bindings.cpp")
KERNELS = (
    *("attention.cpp", "attention_backward.cpp", "blocks.cpp", "cross_entropy.cpp", "gemm.cpp"),
    *("layer_norm.cpp", "peak.cpp", "rowwise.cpp", "table.cpp", "updates.cpp"),
)
# Sums may be contracted to fused multiply-adds; nothing else may change what the source says.
FLAGS = ["-std=c++17", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fvisibility=hidden", "-g0"]
WARNINGS = ["-Wall", "-Wextra"]
AVX2 = ["-mavx2", "-mfma"]
AVX512 = [
    *("-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw"),
    *(*AVX2, "-mprefer-vector-width=512"),
]
ON_X86 = {
    "portable": [],
    "avx2": AVX2,
    "avx512": AVX512,
    "avx512_bf16": [*AVX512, "-mavx512bf16"],
}
AMX = [*AVX512, "-mavx512bf16", "-mamx-tile", "-mamx-bf16"]  # where a process can ask for it, which is Linux
MACROS = {"avx2": "MB_X86", "amx": "MB_AMX"}  # by which dispatch.cpp knows of them
NAME = "minibert.backends._kernels"


def instruction_sets() -> dict[str, list[str]]:
    """What to compile for, by name, with the flags of the compiler."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return {"portable": []}
    return ON_X86 | ({"amx": AMX} if platform.system() == "Linux" else {})


def extension() -> Extension:
    """The extension as setuptools takes it, optional; `BuildKernels` adds the kernels themselves."""
    return Extension(
        NAME,
        sources=[str((HERE / name).relative_to(ROOT)) for name in ONCE],
        include_dirs=[pybind11.get_include()],
        define_macros=[(name, "1") for isa, name in MACROS.items() if isa in instruction_sets()],
        depends=[str(path.relative_to(ROOT)) for path in (*HERE.glob("*.h"), *HERE.glob("*.cpp"), *OWN)],
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
            here = str(ROOT / self.get_ext_filename(NAME))
            if self.editable_mode and not self.force and not newer_group(ext.depends, here, "newer"):
                # Built before, for an installation with other extras.
                self.mkpath(str(Path(self.get_ext_fullpath(NAME)).parent))
                self.copy_file(here, self.get_ext_fullpath(NAME))
                return
            ext.extra_objects = self._kernels(ext)
        super().build_extension(ext)

    def _kernels(self, ext: Any) -> list[str]:
        jobs = [(isa, flags, name) for isa, flags in instruction_sets().items() for name in KERNELS]

        def compiled(job: tuple[str, list[str], str]) -> list[str]:
            isa, flags, name = job
            return self.compiler.compile(
                [str((HERE / name).relative_to(ROOT))],
                output_dir=str(Path(self.build_temp) / isa),
                macros=[("MB_ISA", isa)],
                extra_postargs=[*FLAGS, *WARNINGS, *flags],
                depends=ext.depends,
            )

        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:  # each may take half a gigabyte
            return [path for paths in pool.map(compiled, jobs) for path in paths]
