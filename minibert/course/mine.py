"""mine.py: the reader's engine as a file, written by one notebook and read by the next."""

import ast
import importlib.util
import inspect
import math
import textwrap
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from minibert.course.judging import is_operation
from minibert.errors import InputError
from minibert.files import atomic_text

FILE = Path("mine.py")
VERSION = "minibert course, version 1"
_HEAD = f'"""Your engine, operation by operation. Each notebook adds what it asked for ({VERSION})."""'
_SOURCE = "__course_source__"  # of functions that were read from a file, which may have changed since


def write(methods: dict[str, FunctionType], path: Path = FILE) -> None:
    """Write an engine of these methods, with the imports, constants and helpers that they use.

    Raises
    ------
    InputError
        When a method uses something of its notebook that can't be written down.
    """
    needed: dict[str, str] = {"Ops": "from minibert.ops import Ops"}
    for name, method in methods.items():
        _collect(name, method, needed)
    imports = sorted(one for one in set(needed.values()) if one.startswith(("import ", "from ")))
    others = [one for one in needed.values() if not one.startswith(("import ", "from "))]
    bodies = [textwrap.indent(source_of(method), "    ") for method in methods.values()]
    body = "\n\n".join(['class Mine(Ops):\n    name = "mine"', *bodies])
    atomic_text(path, "\n\n\n".join([_HEAD + "\n\n" + "\n".join(imports), *others, body]) + "\n")


def read(path: Path = FILE) -> dict[str, FunctionType]:
    """Read the methods of an engine that `write` wrote; none where there is no file.

    Raises
    ------
    InputError
        When it is not Python, has no class `Mine`, or is of another version of the course.
    """
    if not path.exists():
        return {}
    try:
        text = path.read_text("utf-8")
        tree = ast.parse(text)
        if VERSION not in (ast.get_docstring(tree) or ""):
            raise InputError(f"{path} is not of this course ({VERSION}).")
        spec = importlib.util.spec_from_file_location("mine", path)
        module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
        exec(compile(tree, str(path), "exec"), vars(module))  # the reader's own code
        own = vars(vars(module)["Mine"])
    except SyntaxError as error:
        raise InputError(f"{path} is not Python: {error.msg} in line {error.lineno}.") from None
    except KeyError:
        raise InputError(f"{path} has no class Mine.") from None
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{path} can't be run: {type(error).__name__}: {error}.") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            function = own.get(node.name) or vars(module).get(node.name)
            if isinstance(function, FunctionType):
                lines = text.splitlines()[node.lineno - 1 : node.end_lineno]
                setattr(function, _SOURCE, textwrap.dedent("\n".join(lines)) + "\n")
    return {name: one for name, one in own.items() if isinstance(one, FunctionType) and is_operation(name)}


def source_of(function: FunctionType) -> str:
    """Return the text of a function, from the margin on."""
    return str(getattr(function, _SOURCE, None) or textwrap.dedent(inspect.getsource(function))).strip("\n")


def _collect(name: str, function: FunctionType, needed: dict[str, str]) -> None:
    """Add what a function uses, by name, to what has to stand above the class."""
    tree = ast.parse(source_of(function))
    used = sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)})
    for one in used:
        if one in needed or one not in function.__globals__:
            continue
        value = function.__globals__[one]
        if isinstance(value, FunctionType) and value.__module__ in ("__main__", "mine"):
            needed[one] = ""  # it may call itself
            _collect(one, value, needed)
            del needed[one]  # behind what it uses
        needed[one] = _statement(one, value, name)


def _statement(one: str, value: Any, user: str) -> str:
    """Write the statement that gives a name its value."""
    module = getattr(value, "__module__", None)
    if isinstance(value, ModuleType):
        same = value.__name__ == one
        return f"import {value.__name__}" if same else f"import {value.__name__} as {one}"
    if isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields"):
        if module in ("__main__", "mine"):
            return f'{one} = __import__("collections").namedtuple({one!r}, {" ".join(value._fields)!r})'
    elif isinstance(value, FunctionType) and module in ("__main__", "mine"):
        return source_of(value)
    elif isinstance(value, int | float | str | bool) and not (isinstance(value, float) and math.isnan(value)):
        return f"{one} = {value!r}"
    if module and module not in ("__main__", "builtins") and hasattr(value, "__name__"):
        return f"from {module} import {value.__name__}" + ("" if value.__name__ == one else f" as {one}")
    raise InputError(
        f"{user} uses {one}, {type(value).__name__} of this notebook, which mine.py can't hold; "
        "make it an argument, or compute it inside the function."
    )
