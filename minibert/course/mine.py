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
# What the last run uses beside operations, by the exercise that asks for it.
TOOLS = {
    "count_pairs": "01.2",
    "gain": "01.3",
    "pack": "02.4",
    "mask_tokens": "03.3",
    "learning_rate": "09.4",
    "train_step": "10.2",
}
VERSION = "minibert course, version 1"
_HEAD = f'"""Your engine, operation by operation. Each notebook adds what it asked for ({VERSION})."""'
_SOURCE = "__course_source__"  # of functions that were read from a file, which may have changed since


def text_of(methods: dict[str, FunctionType]) -> str:
    """Return an engine of these methods as Python, with the imports, constants and helpers that they use.

    Parameters
    ----------
    methods : dict of function
        By the names of the operations, in the order in which they are to stand; those of `TOOLS` become
        functions beside the engine.

    Returns
    -------
    str
        What `read` reads. A method that uses something of its notebook that can't be written down raises
        InputError.
    """
    needed: dict[str, str] = {"Ops": "from minibert.core.ops import Ops"}
    for name, method in methods.items():
        _collect(method, needed)
        if not is_operation(name):
            needed[name] = _source(method)
    imports = sorted({text for text in needed.values() if text.startswith(("import ", "from "))})
    others = [text for text in needed.values() if text not in imports]
    lines_of_imports = "\n".join(imports)
    head = f"{_HEAD}\n\n{lines_of_imports}"
    parts = ['class Mine(Ops):\n    name = "mine"']
    tools = [name for name in methods if not is_operation(name)]
    for name, method in methods.items():
        if name not in tools:
            parts.append(textwrap.indent(_source(method), "    "))
    engine = "\n\n".join(parts)
    named = [f"TOOLS = dict({', '.join(f'{name}={name}' for name in tools)})"] if tools else []
    return "\n\n\n".join([head, *others, engine, *named]) + "\n"


def read() -> dict[str, FunctionType]:
    """Read the methods of an engine that `text_of` wrote down.

    Returns
    -------
    dict of function
        By the names of the operations and of `TOOLS`; empty where there is no file, or nothing of both in it.

    Raises
    ------
    InputError
        When the file can't be run, or is of another version of the course.
    """
    if not FILE.exists():
        return {}
    module: dict[str, Any] = {"__name__": "mine"}
    try:
        text = read_bytes(FILE).decode("utf-8")
        tree = ast.parse(text)
        if VERSION not in (ast.get_docstring(tree) or ""):
            raise InputError(f"it is not of {VERSION}")
        exec(compile(tree, str(FILE), "exec"), module)  # the reader's own code
        methods = vars(module.get("Mine", SimpleNamespace())) | dict(module.get("TOOLS", {}))
    except Exception as error:
        raise InputError(f"{FILE} can't be used: {type(error).__name__}: {error}.") from None
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        function = methods.get(node.name) or module.get(node.name)
        if function:
            segment = ast.get_source_segment(text, node, padded=True) or ""
            setattr(function, _SOURCE, textwrap.dedent(segment))
    return {
        name: method
        for name, method in methods.items()
        if isinstance(method, FunctionType) and (is_operation(name) or name in TOOLS)
    }


def _source(function: FunctionType) -> str:
    """Return the source of a function, as it was when it was read."""
    source = getattr(function, _SOURCE, None)
    if not source:
        source = textwrap.dedent(inspect.getsource(function))
    return str(source).strip("\n")


def _collect(function: FunctionType, needed: dict[str, str]) -> None:
    """Add what a function uses, by name, to what has to stand above the class."""
    tree = ast.parse(_source(function))
    used = set()
    local = {function.__name__}
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            local.add(node.arg)
        if isinstance(node, ast.FunctionDef):
            local.add(node.name)
        if isinstance(node, ast.Name):
            used.add(node.id)
            if isinstance(node.ctx, ast.Store):
                local.add(node.id)
    for name in sorted(used & set(function.__globals__) - local):
        value = function.__globals__[name]
        module = getattr(value, "__module__", None)
        original = getattr(value, "__name__", name)  # what it is called where it was defined
        renamed = "" if original == name else f" as {name}"
        there = getattr(sys.modules.get(module or ""), original, None)
        before = needed.get(name)
        if isinstance(value, ModuleType):
            needed[name] = f"import {original}{renamed}"
        elif isinstance(value, FunctionType) and module in ("__main__", "mine"):
            if before != _source(value):
                _collect(value, needed)
            needed[name] = _source(value)
        elif isinstance(value, float):  # np.float64, too; inf and nan have no literal
            literal = repr(float(value)) if isfinite(value) else f"float('{value}')"
            needed[name] = f"{name} = {literal}"
        elif value is None or type(value) in (bool, int, str):
            needed[name] = f"{name} = {value!r}"
        elif module and module not in ("__main__", "builtins", "mine") and there is value:
            needed[name] = f"from {module} import {original}{renamed}"
        else:
            what = f"{function.__name__} uses {name}, which can't be kept ({type(value).__name__})"
            raise InputError(f"{what}; make it an argument, or compute it inside the function.")
        if before not in (None, needed[name]):
            what = (
                f"{function.__name__} uses {name}, which is another one than that of an operation before it"
            )
            raise InputError(f"{what}; give one of them another name, and check it again.")
