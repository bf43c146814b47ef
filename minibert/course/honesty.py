"""Decide what an answer may be made of: the judges compare numbers, and can't see where they come from.

Allowed are NumPy, the standard library's mathematics, what a chapter imports from minibert for its exercises,
the reader's own helpers, and other operations through `self`. Forbidden are minibert's own operations in any
disguise, code made from text, files and modules found at run time, and the routes that a check compares the
answer with. A copied solution can't be told from one that the reader has written.
"""

import ast
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from minibert.course.judging import is_operation
from minibert.course.running import source_of
from minibert.model.ops import Ops

# Private methods that an answer may call: the blocks of an exercise need them.
PRIVATE = ("_dropout", "_dropout_backward", "_linear_backward", "_norm_backward", "_probability_mask")
# Modules that find code, files or objects while the program runs.
_FINDERS = "ctypes gc importlib inspect linecache os pathlib pickle subprocess sys"
# Names with that effect.
REFUSED = frozenset(
    "__base__ __bases__ __builtins__ __class__ __closure__ __code__ __dict__ __func__ __getattribute__ "
    "__globals__ __import__ __loader__ __mro__ __reduce__ __self__ __spec__ __subclasses__ __wrapped__ "
    f"compile eval exec getattr globals locals open setattr super vars {_FINDERS}".split()
)
# Attributes with that effect: modules that a library has imported, and what frames reveal about callers.
_INSIDE = frozenset(
    "attrgetter builtins ctypeslib f_back f_builtins f_code f_globals f_locals gi_frame methodcaller "
    f"tb_frame {_FINDERS}".split()
)
# Modules of the standard library that an answer may import: mathematics, text and collections.
ALLOWED = frozenset(
    "__future__ array bisect cmath collections copy dataclasses decimal enum fractions functools heapq "
    "itertools json math numbers numpy operator random re statistics string struct textwrap time typing "
    "unicodedata warnings".split()
)
# Attributes of the arrays that count, in chapter 16: an answer asks such an array for one number at a time.
COUNTING = frozenset("contents fetched fetched_where fetches memory reads restore values writes".split())
DEEPEST = 3  # levels of containers and wrappers that are searched for an operation of minibert's
# Modules of minibert that an answer may use, because no answer is in them.
MODULES = ("minibert.base", "minibert.core.config", "minibert.core.ops.erf")


def honest(function: FunctionType, checks: str = "") -> list[str]:
    """List the reasons why an answer is not its author's own work.

    Parameters
    ----------
    function : function
        The answer; the helpers that it uses are checked as well.
    checks : str
        Source of the checks of its chapter. An answer may not call the functions that these define.

    Returns
    -------
    list of str
        Sentences; empty if the answer is allowed.
    """
    name = function.__name__
    nodes = list(ast.walk(ast.parse(checks)))
    routes = [_body(node) for node in nodes if isinstance(node, ast.FunctionDef)]
    counts = any(isinstance(node, ast.Name) and node.id == "traced" for node in nodes)
    reasons: list[str] = []
    for used in _reached(function, set()):
        source = _source(used)
        if not source:
            reasons.append(f"{used.__name__} has no source that can be read.")
            continue
        tree = ast.parse(source)
        if used is not function and _body(tree.body[0]) in routes:
            reasons.append(f"{used.__name__} is a route of the check.")
        reasons += refused(tree, name)
        reasons += _captured(used, tree)
        if counts:
            reasons += _uncounted(tree)
    return list(dict.fromkeys(reasons))


def is_allowed_import(name: str) -> bool:
    """Tell whether an answer may import a name in every chapter.

    Parameters
    ----------
    name : str
        Dotted name of a module, or of something in one.

    Returns
    -------
    bool
    """
    root = name.partition(".")[0]
    is_inside = _INSIDE & set(name.split("."))
    return (root in ALLOWED and not is_inside) or name.startswith(MODULES)


def refused(tree: ast.AST, name: str) -> Iterator[str]:
    """List what the text of an answer contains and may not contain.

    Parameters
    ----------
    tree : AST
        Syntax tree of the answer, or of a helper.
    name : str
        Name of the answer.

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
            names = [alias.name for alias in node.names]
            yield from (f"it imports {imported}." for imported in names if not is_allowed_import(imported))
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if not all(is_allowed_import(f"{module}.{alias.name}") for alias in node.names):
                yield f"it imports {module}."
        if isinstance(node, ast.Attribute):
            if node.attr in _INSIDE or (node.attr in REFUSED and node.attr.startswith("__")):
                yield f"it uses {node.attr}."
            is_of_self = isinstance(node.value, ast.Name) and node.value.id == "self"
            is_private = node.attr.startswith("_") and node.attr not in PRIVATE
            if is_of_self and (is_private or node.attr == name):
                yield f"it calls self.{node.attr}."


def _uncounted(tree: ast.AST) -> Iterator[str]:
    """List what an answer asks of an array that counts, other than one number at a time, or its size."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (node.attr in COUNTING or node.attr.startswith("_")):
            yield f"it uses {node.attr}, which is for the judge; ask an array for one number at a time."


def _captured(function: FunctionType, tree: ast.AST) -> Iterator[str]:
    """List the operations of minibert among the values that a function uses, however they are wrapped."""
    for name, value in _held(function, tree):
        if _is_reference(value, depth=0):
            yield f"{name} is an operation of minibert, or holds one."


def _held(function: FunctionType, tree: ast.AST) -> Iterator[tuple[str, Any]]:
    """List the values that a function uses: global names, variables of a closure, and defaults."""
    global_names = function.__globals__
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for name in sorted(used & set(global_names)):
        yield name, global_names[name]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield name, cell.cell_contents
    for value in function.__defaults__ or ():
        yield "a default", value
    for value in (function.__kwdefaults__ or {}).values():
        yield "a default", value


def _is_reference(value: Any, depth: int) -> bool:
    """Tell whether a value is an engine, its class or one of its operations, or contains or wraps one."""
    if depth > DEEPEST:
        return False
    if isinstance(value, Ops) or (isinstance(value, type) and _is_engine_class(value)):
        return True
    module = getattr(value, "__module__", "") or ""
    if module.startswith("minibert.course"):  # a route of a check
        return True
    if module.startswith("minibert.") and is_operation(getattr(value, "__name__", "")):
        return True
    if isinstance(value, ModuleType):
        return value.__name__.startswith("minibert") and not value.__name__.startswith(MODULES)
    wrapped = [getattr(value, name, None) for name in ("func", "__func__", "__wrapped__", "__self__")]
    contents: list[Any] = []
    if isinstance(value, dict):
        contents = list(value.values())
    elif isinstance(value, list | tuple | set):
        contents = list(value)
    return any(_is_reference(inner, depth + 1) for inner in [*wrapped, *contents] if inner is not None)


def _is_engine_class(kind: type) -> bool:
    """Tell whether a class is `Ops` or made of it, or defines a method with the name of an operation."""
    if issubclass(kind, Ops):
        return True
    return any(is_operation(name) and callable(member) for name, member in vars(kind).items())


def _reached(function: FunctionType, seen: set[int]) -> Iterator[FunctionType]:
    """List a function, and those of the reader's functions that it uses, directly or not."""
    if id(function) in seen:
        return
    seen.add(id(function))
    yield function
    source = _source(function)
    if not source:
        return
    for _, value in _held(function, ast.parse(source)):
        is_readers = getattr(value, "__module__", "") in ("__main__", "mine")
        if isinstance(value, FunctionType) and is_readers:
            yield from _reached(value, seen)


def _source(function: FunctionType) -> str:
    """Return the source of a function, or "" where there is none."""
    try:
        return source_of(function)
    except (OSError, TypeError):
        return ""


def _body(node: ast.AST) -> str:
    """Return a text that is the same for two functions that differ only in name and docstring."""
    if not isinstance(node, ast.FunctionDef):
        return ""
    body = node.body
    if ast.get_docstring(node) is not None:
        body = body[1:]
    return "\n".join(map(ast.dump, [node.args, *body]))
