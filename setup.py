"""Where native extensions are declared; everything else about the package stands in pyproject.toml.

They are optional: without a compiler the installation is pure Python, and `minibert info` says what that costs.
"""

import importlib.util
import sys
from pathlib import Path

from setuptools import setup


def wordpiece():
    """The tokenizer's core in C, behind cffi."""
    path = Path(__file__).parent / "csrc" / "wordpiece" / "build.py"
    spec = importlib.util.spec_from_file_location("wordpiece_build", path)
    recipe = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(recipe)
    except ImportError as error:
        print(f"minibert: building without the C core of the tokenizer: {error}", file=sys.stderr)
        return []
    build = Path("build") / "wordpiece"
    extension = recipe.ffi_builder(build).distutils_extension(tmpdir=str(build), verbose=False)
    extension.optional = True
    return [extension]


setup(ext_modules=wordpiece())
