"""mine.py: the reader's engine as a file, written by one notebook and read by the next."""

import ast
import inspect
import sys
import textwrap
from math import isfinite
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

from minibert.base.errors import InputError
from minibert.base.files import read_bytes
from minibert.course.judging import is_operation

FILE = Path("mine.py")
VERSION = "minibert course, version 1"
_HEAD = f'"""Your engine, operation by operation. Each notebook adds what it asked for ({VERSION})."""'
_SOURCE = "__course_source__"  # of functions that were read from a file, which may have changed since


def text_of(methods: dict[str, FunctionType]) -> str:
    """Return an engine of these methods, with the imports, constants and helpers that they use.

    Raise InputError when a method uses something of its notebook that can't be written down.
    """
    needed: dict[str, str] = {"Ops": "from minibert.core.ops import Ops"}
    for method in methods.values():
        _collect(method, needed)
    imports = sorted({one for one in needed.values() if one.startswith(("import ", "from "))})
    others = [one for one in needed.values() if one not in imports]
    bodies = [textwrap.indent(_source(method), "    ") for method in methods.values()]
    body = "\n\n".join(['class Mine(Ops):\n    name = "mine"', *bodies])
    return "\n\n\n".join([_HEAD + "\n\n" + "\n".join(imports), *others, body]) + "\n"


def read() -> dict[str, FunctionType]:
    """Read the methods of an engine that `text_of` wrote down; none where there is no file.

    Raise InputError when it can't be run, has no class `Mine`, or is of another version of the course.
    """
    if not FILE.exists():
        return {}
    module: dict[str, Any] = {"__name__": "mine"}
    try:
        tree = ast.parse(text := read_bytes(FILE).decode("utf-8"))
        if VERSION not in (ast.get_docstring(tree) or ""):
            raise InputError(f"it is not of {VERSION}")
        exec(compile(tree, str(FILE), "exec"), module)  # the reader's own code
        own = vars(module.get("Mine", SimpleNamespace()))
    except Exception as error:
        raise InputError(f"{FILE} can't be used: {type(error).__name__}: {error}.") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and (function := own.get(node.name) or module.get(node.name)):
            setattr(function, _SOURCE, textwrap.dedent(ast.get_source_segment(text, node, padded=True) or ""))
    return {name: one for name, one in own.items() if isinstance(one, FunctionType) and is_operation(name)}


def _source(function: FunctionType) -> str:
    return str(getattr(function, _SOURCE, None) or textwrap.dedent(inspect.getsource(function))).strip("\n")


def _collect(function: FunctionType, needed: dict[str, str]) -> None:
    """Add what a function uses, by name, to what has to stand above the class."""
    tree = ast.parse(_source(function))
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    local = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    local |= {node.id for node in names if isinstance(node.ctx, ast.Store)} | {function.__name__}
    for one in sorted({node.id for node in names} & set(function.__globals__) - local - set(needed)):
        value = function.__globals__[one]
        module, own = getattr(value, "__module__", None), getattr(value, "__name__", one)
        there = getattr(sys.modules.get(module or ""), own, None)
        if isinstance(value, ModuleType):
            needed[one] = f"import {own}" + ("" if own == one else f" as {one}")
        elif isinstance(value, FunctionType) and module in ("__main__", "mine"):
            _collect(value, needed)
            needed[one] = _source(value)
        elif isinstance(value, float):  # np.float64, too; inf and nan have no literal
            needed[one] = f"{one} = {float(value)!r}" if isfinite(value) else f"{one} = float('{value}')"
        elif value is None or type(value) in (bool, int, str):
            needed[one] = f"{one} = {value!r}"
        elif module and module not in ("__main__", "builtins", "mine") and there is value:
            needed[one] = f"from {module} import {own}" + ("" if own == one else f" as {one}")
        else:
            what = f"{function.__name__} uses {one}, which can't be kept ({type(value).__name__})"
            raise InputError(f"{what}; make it an argument, or compute it inside the function.")
