"""Builds the C core, `minibert.tokenizer._wordpiece`, from wordpiece.h and the C files beside this one."""

import subprocess
import sys
from pathlib import Path

from cffi import FFI

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
TABLE = ROOT / "minibert" / "tokenizer" / "unicode-15.0.0.txt"
SOURCES = sorted(HERE.glob("*.c"))


def ffi_builder(build: Path) -> FFI:
    """The extension, ready to be compiled; the Unicode tables are written into `build` as a header."""
    build.mkdir(parents=True, exist_ok=True)
    script = HERE / "unicode_tables.py"
    subprocess.run([sys.executable, str(script), str(TABLE), str(build / "unicode_tables.h")], check=True)
    ffi = FFI()
    declarations = (HERE / "wordpiece.h").read_text(encoding="utf-8").splitlines()
    ffi.cdef("\n".join(line for line in declarations if not line.startswith("#")))
    ffi.set_source(
        "minibert.tokenizer._wordpiece",
        '#include "wordpiece.h"',
        sources=[str(path.relative_to(ROOT)) for path in SOURCES],
        include_dirs=[str(HERE.relative_to(ROOT)), str(build)],
        depends=[str(path.relative_to(ROOT)) for path in (*HERE.glob("*.h"), *HERE.glob("*.py"), TABLE)],
        # The learner's logarithms have the same bits everywhere only without fused multiply-adds.
        extra_compile_args=["/O2"] if sys.platform == "win32" else ["-O3", "-std=c11", "-ffp-contract=off"],
    )
    return ffi
