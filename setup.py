"""Where native extensions are declared; everything else about the package stands in pyproject.toml.

They are optional: without a compiler the installation is pure Python, and `minibert info` says what that
costs. With MINIBERT_PURE=1 nothing is compiled, and the wheel is one for every platform.
"""

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_ext import build_ext


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


def without_outputs(notebook: Path) -> str:
    """Write a copy of a notebook without its outputs, which `minibert course` leaves out; return its path."""
    contents = json.loads(notebook.read_text("utf-8"))
    for cell in contents["cells"]:
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
    copy = Path("build") / "notebooks" / notebook.name
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(json.dumps(contents, ensure_ascii=False, indent=1) + "\n", "utf-8")
    return str(copy)


extensions, builders = [], []
compiled = os.environ.get("MINIBERT_PURE", "") in ("", "0")
if compiled and (wordpiece := recipe("wordpiece", "the C core of the tokenizer")):
    build = Path("build") / "wordpiece"
    extension = wordpiece.ffi_builder(build).distutils_extension(tmpdir=str(build), verbose=False)
    extension.optional = True
    extensions.append(extension)
    builders.append(wordpiece.BuildWordpiece)
if compiled and (kernels := recipe("kernels", "the kernels in C++")):
    extensions.append(kernels.extension())
    builders.append(kernels.BuildKernels)


class BuildExtensions(*builders, build_ext):
    """`build_ext` with what each recipe adds to it."""


lessons = [str(path) for path in sorted(Path("notebooks").glob("*_*.py"))]
lessons += [without_outputs(path) for path in sorted(Path("notebooks").glob("*_*.ipynb"))]
# `pip install --editable` then writes a path into site-packages, which type checkers and editors follow; by
# default it installs a hook of imports, which they don't run.
editable = {"editable_wheel": {"mode": "compat"}}
setup(
    ext_modules=extensions,
    cmdclass={"build_ext": BuildExtensions},
    data_files=[("share/minibert/notebooks", lessons)],
    options=editable,
)
