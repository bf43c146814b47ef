"""Builds the C core, `minibert.tokenizer._wordpiece`, from wordpiece.h and the C files beside this one."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from cffi import FFI
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
TABLE = ROOT / "minibert" / "tokenizer" / "unicode-15.0.0.txt"
SOURCES = sorted(HERE.glob("*.c"))
NAME = "minibert.tokenizer._wordpiece"
# The learner's logarithms have the same bits everywhere only without fused multiply-adds; MSVC makes none by
# itself.
FLAGS = ["-O3", "-std=c11", "-ffp-contract=off"]
FLAGS_OF_MSVC = ["/O2"]


def ffi_builder(build: Path) -> FFI:
    """The extension, ready to be compiled; the Unicode tables are written into `build` as a header."""
    build.mkdir(parents=True, exist_ok=True)
    script = HERE / "unicode_tables.py"
    subprocess.run([sys.executable, str(script), str(TABLE), str(build / "unicode_tables.h")], check=True)
    ffi = FFI()
    declarations = (HERE / "wordpiece.h").read_text(encoding="utf-8").splitlines()
    ffi.cdef("\n".join(line for line in declarations if not line.startswith("#")))
    ffi.set_source(
        NAME,
        '#include "wordpiece.h"',
        sources=[str(path.relative_to(ROOT)) for path in SOURCES],
        include_dirs=[str(HERE.relative_to(ROOT)), str(build)],
        depends=[str(path.relative_to(ROOT)) for path in (*HERE.glob("*.h"), *HERE.glob("*.py"), TABLE)],
        extra_compile_args=FLAGS,
    )
    return ffi


class BuildWordpiece(build_ext):
    """`build_ext` with other flags for MSVC; MinGW, which Windows has as well, knows those of GCC."""

    def build_extension(self, ext: Any) -> None:
        """Compile and link one extension."""
        if ext.name == NAME and self.compiler.compiler_type == "msvc":
            ext.extra_compile_args = FLAGS_OF_MSVC
        super().build_extension(ext)
