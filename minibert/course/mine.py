"""Write the reader's engine to mine.py, and read what an earlier notebook has written there."""

import ast
import sys
import textwrap
from math import isfinite
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

from minibert.base.errors import InputError
from minibert.base.files import read_bytes
from minibert.course.judging import is_operation
from minibert.course.running import SOURCE, source_of

FILE = Path("mine.py")
# Functions that the last run uses in addition to operations, with the exercises that ask for them.
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


def text_of(methods: dict[str, FunctionType]) -> str:
    """Write Python of an engine with these methods, and of the imports, constants and helpers that they use.

    Parameters
    ----------
    methods : dict of function
        Methods by the names of the operations, in the order of the file. Those with a name of `TOOLS` become
        functions outside the engine.

    Returns
    -------
    str
        Python that `read` reads. InputError if a method uses a value of its notebook that can't be written.
    """
    needed: dict[str, str] = {"Ops": "from minibert.core.ops import Ops"}
    for name, method in methods.items():
        _collect(method, needed)
        if not is_operation(name):
            needed[name] = source_of(method)
    imports = sorted({text for text in needed.values() if text.startswith(("import ", "from "))})
    others = [text for text in needed.values() if text not in imports]
    lines_of_imports = "\n".join(imports)
    head = f"{_HEAD}\n\n{lines_of_imports}"
    parts = ['class Mine(Ops):\n    name = "mine"']
    tools = [name for name in methods if not is_operation(name)]
    for name, method in methods.items():
        if name not in tools:
            parts.append(textwrap.indent(source_of(method), "    "))
    engine = "\n\n".join(parts)
    entries = ", ".join(f"{name}={name}" for name in tools)
    table_of_tools = [f"TOOLS = dict({entries})"] if tools else []
    return "\n\n\n".join([head, *others, engine, *table_of_tools]) + "\n"


def read() -> dict[str, FunctionType]:
    """Read the methods and functions of a file that `text_of` wrote.

    Returns
    -------
    dict of function
        Functions by the names of the operations and of `TOOLS`; empty if there is no file, or none in it.

    Raises
    ------
    InputError
        When the file can't be run, or another version of the course wrote it.
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
            setattr(function, SOURCE, textwrap.dedent(segment))
    return {
        name: method
        for name, method in methods.items()
        if isinstance(method, FunctionType) and (is_operation(name) or name in TOOLS)
    }


def _collect(function: FunctionType, needed: dict[str, str]) -> None:
    """Add the definitions of all global names that a function uses to `needed`, by name."""
    for name in _global_names(function):
        value = function.__globals__[name]
        existing = needed.get(name)
        if _is_readers(value):
            if existing != source_of(value):
                _collect(value, needed)
            needed[name] = source_of(value)
        else:
            definition = _definition(name, value)
            if not definition:
                what = f"{function.__name__} uses {name}, which can't be kept ({type(value).__name__})"
                raise InputError(f"{what}; make it an argument, or compute it inside the function.")
            needed[name] = definition
        if existing not in (None, needed[name]):
            what = f"{function.__name__} uses {name}, which differs from the {name} of an earlier operation"
            raise InputError(f"{what}; give one of them another name, and check it again.")


def _global_names(function: FunctionType) -> list[str]:
    """List the global names that a function uses, in alphabetical order."""
    used = set()
    local = {function.__name__}
    for node in ast.walk(ast.parse(source_of(function))):
        if isinstance(node, ast.arg):
            local.add(node.arg)
        if isinstance(node, ast.FunctionDef):
            local.add(node.name)
        if isinstance(node, ast.Name):
            used.add(node.id)
            if isinstance(node.ctx, ast.Store):
                local.add(node.id)
    return sorted(used & set(function.__globals__) - local)


def _is_readers(value: Any) -> bool:
    """Tell whether a value is a function that the reader wrote, in a notebook or in mine.py."""
    return isinstance(value, FunctionType) and value.__module__ in ("__main__", "mine")


def _definition(name: str, value: Any) -> str:
    """Return the line of Python that defines `name` as `value`: an import, or an assignment of a literal.

    It is "" where no such line is known. It has to be one line, because `text_of` puts lines that begin as
    imports first.
    """
    module = getattr(value, "__module__", None)
    original_name = getattr(value, "__name__", name)
    renamed = "" if original_name == name else f" as {name}"
    if isinstance(value, ModuleType):
        return f"import {original_name}{renamed}"
    if isinstance(value, float):  # np.float64, too; infinity and NaN have no literal
        literal = repr(float(value)) if isfinite(value) else f"float('{value}')"
        return f"{name} = {literal}"
    if value is None or type(value) in (bool, int, str):
        return f"{name} = {value!r}"
    can_be_imported = getattr(sys.modules.get(module or ""), original_name, None) is value
    if module and module not in ("__main__", "builtins", "mine") and can_be_imported:
        return f"from {module} import {original_name}{renamed}"
    return ""
