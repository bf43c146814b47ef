"""What an answer may be made of: a judge of numbers can't see where they come from.

Allowed are NumPy, the standard library's mathematics, what a chapter imports from minibert for its
exercises, the reader's own helpers, and other operations through `self`. Not allowed are minibert's own
operations in any disguise, code made from text, files and modules found at run time, and the second routes
that the checks are made of. Copying the text of a solution can't be told from having written it.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from minibert.course.judging import is_operation
from minibert.model.ops import Ops

# Of the private methods those that blocks are asked to call, and what draws the bits of attention's dropout.
PRIVATE = ("_dropout", "_dropout_backward", "_linear_backward", "_norm_backward", "_probability_mask")
# What finds code, names or files while the program runs.
REFUSED = (
    "__base__ __bases__ __builtins__ __class__ __closure__ __code__ __dict__ __func__ __getattribute__ "
    "__globals__ __import__ __loader__ __mro__ __reduce__ __self__ __spec__ __subclasses__ __wrapped__ "
    "compile ctypes eval exec gc getattr globals importlib inspect linecache locals open os "
    "pathlib pickle setattr subprocess super sys vars"
).split()
# The same as attributes of a library that has imported them, and what frames and functions tell of others.
_INSIDE = frozenset(
    "attrgetter builtins ctypes ctypeslib f_back f_builtins f_code f_globals f_locals gc gi_frame importlib "
    "inspect linecache methodcaller os pathlib pickle subprocess sys tb_frame".split()
)
# The standard library's mathematics, and what it has for text and for collections.
ALLOWED = frozenset(
    "__future__ array bisect cmath collections copy dataclasses decimal enum fractions functools heapq "
    "itertools json math numbers numpy operator random re statistics string struct textwrap time typing "
    "unicodedata warnings".split()
)
# Modules of minibert that hold no answer.
MODULES = ("minibert.base", "minibert.core.config", "minibert.core.ops.erf")


def honest(function: FunctionType, checks: str = "", alone: tuple[str, ...] = ()) -> list[str]:
    """List the reasons why an answer is not its author's own work.

    Parameters
    ----------
    function : function
        The answer; its helpers are looked at as well.
    checks : str
        Python of the checks of its chapter; what they define may not be called.
    alone : tuple of str
        Names of operations that it may not call through `self`, besides itself.

    Returns
    -------
    list of str
        Sentences; empty for an answer that is allowed.
    """
    name = function.__name__
    routes = {
        node.name: _body(node) for node in ast.walk(ast.parse(checks)) if isinstance(node, ast.FunctionDef)
    }
    reasons: dict[str, None] = {}
    for one in _reached(function, set()):
        source = getattr(one, "__course_source__", None) or _source(one)
        if not source:
            reasons[f"{one.__name__} has no source that can be read."] = None
            continue
        tree = ast.parse(textwrap.dedent(source))
        if one is not function and _body(tree.body[0]) in routes.values():
            reasons[f"{one.__name__} is a route of the check."] = None
        for reason in (*refused(tree, name, alone), *_captured(one, tree)):
            reasons[reason] = None
    return list(reasons)


def is_allowed_import(name: str) -> bool:
    """Tell whether an answer may import this whatever its chapter imports.

    Parameters
    ----------
    name : str
        Of a module, or of something in one.

    Returns
    -------
    bool
    """
    root = name.partition(".")[0]
    is_inside = _INSIDE & set(name.split("."))
    return (root in ALLOWED and not is_inside) or name.startswith(MODULES)


def refused(tree: ast.AST, name: str, alone: tuple[str, ...] = ()) -> Iterator[str]:
    """Name what stands in the text of an answer and may not.

    Parameters
    ----------
    tree : AST
    name : str
        Of the answer.
    alone : tuple of str, default ()
        As of `honest`.

    Yields
    ------
    str
        A sentence.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield f"it defines a class, {node.name}."
        if isinstance(node, ast.Name) and node.id in REFUSED:
            yield f"it uses {node.id}."
        if isinstance(node, ast.Import):
            yield from (f"it imports {one.name}." for one in node.names if not is_allowed_import(one.name))
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if not all(is_allowed_import(f"{module}.{one.name}") for one in node.names):
                yield f"it imports {module}."
        if isinstance(node, ast.Attribute):
            if node.attr in _INSIDE or (node.attr in REFUSED and node.attr.startswith("__")):
                yield f"it uses {node.attr}."
            own = isinstance(node.value, ast.Name) and node.value.id == "self"
            private = node.attr.startswith("_") and node.attr not in PRIVATE
            if own and (private or node.attr in (name, *alone)):
                yield f"it calls self.{node.attr}."


def _captured(function: FunctionType, tree: ast.AST) -> Iterator[str]:
    """Name the operations of minibert among what a function holds, in whatever wrapping."""
    for name, value in _held(function, tree):
        if _is_reference(value, 0):
            yield f"{name} is an operation of minibert, or holds one."


def _held(function: FunctionType, tree: ast.AST) -> Iterator[tuple[str, Any]]:
    """List the values that a function uses: of global names, of a closure, of defaults."""
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    namespace = function.__globals__
    for name in sorted(used & namespace.keys()):
        yield name, namespace[name]
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        yield name, cell.cell_contents
    by_position = function.__defaults__ or ()
    by_name = function.__kwdefaults__ or {}
    for value in (*by_position, *by_name.values()):
        yield "a default", value


def _is_reference(value: Any, depth: int) -> bool:
    """Tell whether a value is an engine, a class of one, or an operation of one, or is made of such."""
    if depth > 3:
        return False
    if isinstance(value, Ops):
        return True
    if isinstance(value, type) and any(
        is_operation(key) and callable(one) for key, one in vars(value).items()
    ):
        return True
    if isinstance(value, type) and issubclass(value, Ops):
        return True
    module = getattr(value, "__module__", "") or ""
    if module.startswith("minibert.course"):  # the routes of checks
        return True
    if module.startswith("minibert.") and is_operation(getattr(value, "__name__", "")):
        return True
    if isinstance(value, ModuleType):
        return value.__name__.startswith("minibert") and not value.__name__.startswith(MODULES)
    inner = [getattr(value, name, None) for name in ("func", "__func__", "__wrapped__", "__self__")]
    if isinstance(value, dict):
        inner += list(value.values())
    elif isinstance(value, list | tuple | set):
        inner += list(value)
    return any(_is_reference(one, depth + 1) for one in inner if one is not None)


def _reached(function: FunctionType, seen: set[int]) -> Iterator[FunctionType]:
    """List a function and the functions of the reader's that it uses."""
    if id(function) in seen:
        return
    seen.add(id(function))
    yield function
    source = getattr(function, "__course_source__", None) or _source(function)
    if not source:
        return
    for _, value in _held(function, ast.parse(textwrap.dedent(source))):
        own = getattr(value, "__module__", "") in ("__main__", "mine")
        if isinstance(value, FunctionType) and own:
            yield from _reached(value, seen)


def _source(function: FunctionType) -> str:
    """Return the source of a function, or "" where there is none."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return ""


def _body(node: ast.AST) -> str:
    """Return what a function does, without its name and docstring."""
    if not isinstance(node, ast.FunctionDef):
        return ""
    body = node.body
    if ast.get_docstring(node) is not None:
        body = body[1:]
    return "\n".join(map(ast.dump, [node.args, *body]))
