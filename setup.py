"""Where native extensions are declared; everything else about the package stands in pyproject.toml.

They are optional: without a compiler the installation is pure Python, and `minibert info` says what that
costs. With MINIBERT_PURE=1 nothing is compiled, and the wheel is one for every platform.
"""

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from setuptools import setup


def recipe(folder: str, lost: str) -> Any:
    """Import the module csrc/FOLDER/build.py, or return None where it lacks a library."""
    path = Path(__file__).parent / "csrc" / folder / "build.py"
    spec = importlib.util.spec_from_file_location(f"{folder}_build", path)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        print(f"minibert: building without {lost}: {error}", file=sys.stderr)
        return None
    return module


extensions, commands = [], {}
compiled = os.environ.get("MINIBERT_PURE", "") in ("", "0")
if compiled and (wordpiece := recipe("wordpiece", "the C core of the tokenizer")):
    build = Path("build") / "wordpiece"
    extension = wordpiece.ffi_builder(build).distutils_extension(tmpdir=str(build), verbose=False)
    extension.optional = True
    extensions.append(extension)
if compiled and (kernels := recipe("kernels", "the kernels in C++")):
    extensions.append(kernels.extension())
    commands["build_ext"] = kernels.BuildKernels

lessons = [str(path) for path in sorted(Path("notebooks").glob("*_*.*")) if path.suffix in (".py", ".ipynb")]
# `pip install --editable` then writes a path into site-packages, which type checkers and editors follow; by
# default it installs a hook of imports, which they don't run.
editable = {"editable_wheel": {"mode": "compat"}}
setup(
    ext_modules=extensions,
    cmdclass=commands,
    data_files=[("share/minibert/notebooks", lessons)],
    options=editable,
)
