"""The notebooks of the course, run in this process: with stubs, solutions, or an exercise done wrong."""

import ast
import copy
import linecache
import random
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from minibert.course.exercises import Exercise, cells, definitions, exercises, notebook_folder

MAGIC = re.compile(r"^%.*$", re.M)
_numbers = count()


def notebooks() -> list[Path]:
    """The sources of the notebooks."""
    return sorted(notebook_folder().glob("[0-9][0-9]_*.py"))


def execute(text: str, namespace: dict[str, Any], name: str = "cell") -> None:
    """Run code as a cell, so that the source of its functions can be found as in a notebook."""
    file = f"<{name} {next(_numbers)}>"
    text = MAGIC.sub("", text)
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), namespace)


def execute_definitions(path: Path, namespace: dict[str, Any]) -> None:
    """Run the imports and definitions of a notebook, but for those that need what it computes."""
    for node in ast.parse(definitions(path)).body:
        try:
            execute(ast.unparse(node), namespace)
        except NameError:
            continue


class Walk:
    """One way through a notebook: every code cell in order, exercises solved or left open."""

    def __init__(self, path: Path, solved: bool) -> None:
        self.path, self.solved = path, solved
        self.namespace: dict[str, Any] = {"__name__": "__main__"}
        self.exercises = {one.stub: one for one in exercises(path)}

    def __iter__(self) -> Iterator[Exercise | None]:
        """Run the cells; yield each exercise when all before it has run, and None behind every other cell."""
        for number, (is_code, text) in enumerate(cells(self.path)):
            if not is_code:
                continue
            exercise = self.exercises.get(text)
            if exercise:
                yield exercise
                text = exercise.solution if self.solved else text
            execute(text, self.namespace, f"{self.path.stem}, cell {number}")
            if not exercise:
                yield None

    def run(self) -> Any:
        """Run them all, and return the lesson."""
        for _ in self:
            pass
        return self.namespace["lesson"]

    def before(self, texts: set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Run the cells; yield each of these texts with the names that there are just before it."""
        for number, (is_code, text) in enumerate(cells(self.path)):
            if text in texts:
                yield text, self.namespace
            if is_code:
                solved = self.exercises[text].solution if text in self.exercises and self.solved else text
                execute(solved, self.namespace, f"{self.path.stem}, cell {number}")

    def verdicts(self, exercise: Exercise, code: str) -> list[Any]:
        """Judge other code in an exercise's place; nothing of it stays."""
        lesson = self.namespace["lesson"]
        before, own = len(lesson.verdicts), dict(lesson.mine)
        namespace = dict(self.namespace)
        execute(code, namespace, "exercise")
        execute(exercise.check, namespace, "check")
        found, lesson.mine = lesson.verdicts[before:], own
        del lesson.verdicts[before:]
        return found

    def accepts(self, exercise: Exercise, code: str) -> bool:
        """Tell whether everything that is asked for passes."""
        try:
            return all(one.state == "passed" for one in self.verdicts(exercise, code))
        except Exception:  # code that can't even be defined, or checked
            return False


class Mutant(NamedTuple):
    """A solution with one small change."""

    change: str  # what was there -> what is there now
    line: str  # where
    code: str

    @property
    def entry(self) -> str:
        """Return how it is named in the list of equivalent mutants."""
        return f"`{self.change}` in `{self.line}`"


SWAPPED = {
    ast.Add: [ast.Sub], ast.Sub: [ast.Add], ast.Mult: [ast.Div], ast.Div: [ast.Mult], ast.MatMult: [],
    ast.FloorDiv: [ast.Mult], ast.Pow: [ast.Mult], ast.Mod: [ast.FloorDiv],
    ast.Lt: [ast.LtE, ast.GtE], ast.LtE: [ast.Lt, ast.Gt], ast.Gt: [ast.GtE, ast.LtE],
    ast.GtE: [ast.Gt, ast.Lt],
    ast.Eq: [ast.NotEq], ast.NotEq: [ast.Eq], ast.In: [ast.NotIn], ast.NotIn: [ast.In], ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is], ast.And: [ast.Or], ast.Or: [ast.And],
}  # fmt: skip


def mutants(code: str) -> list[Mutant]:
    """Every small change: sign, axis, transpose, dropped term, factor, off by one, order, lost statement."""
    tree = ast.parse(code)
    found = {}
    for place, node in enumerate(ast.walk(tree)):
        for new in variants(node):
            changed = copy.deepcopy(tree)
            target = list(ast.walk(changed))[place]
            try:
                text = ast.unparse(ast.fix_missing_locations(Replaced(target, new).visit(changed)))
            except Exception:
                continue
            if text != ast.unparse(tree):
                now = ast.unparse(new) if new else "nothing"
                found.setdefault(text, Mutant(f"{ast.unparse(node)} -> {now}", _line(code, node), text))
    return list(found.values())


def _line(code: str, node: Any) -> str:
    return code.splitlines()[node.lineno - 1].strip()


class Replaced(ast.NodeTransformer):
    """Puts a node in another's place; nothing where there is none."""

    def __init__(self, target: ast.AST, new: ast.AST | None) -> None:
        self.target, self.new = target, new

    def visit(self, node: ast.AST) -> Any:
        if node is self.target:
            return self.new if self.new is not None else ast.Pass()
        return self.generic_visit(node)


def variants(node: ast.AST) -> Iterator[ast.AST | None]:
    """Yield what may stand in a node's place, each a small change; None deletes a statement."""

    def but(**fields: Any) -> Any:
        new = copy.deepcopy(node)
        for name, value in fields.items():
            setattr(new, name, value)
        return new

    if isinstance(node, ast.BinOp):
        yield from (but(op=op()) for op in SWAPPED.get(type(node.op), []))
        if isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div):
            yield from (copy.deepcopy(node.left), copy.deepcopy(node.right))
        if isinstance(node.op, ast.MatMult | ast.Sub | ast.Div):
            yield but(left=copy.deepcopy(node.right), right=copy.deepcopy(node.left))
    elif isinstance(node, ast.BoolOp):
        yield from (but(op=op()) for op in SWAPPED[type(node.op)])
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield from (but(ops=[op()]) for op in SWAPPED.get(type(node.ops[0]), []))
    elif isinstance(node, ast.UnaryOp):
        yield copy.deepcopy(node.operand)
    elif isinstance(node, ast.Attribute) and node.attr == "T":
        yield copy.deepcopy(node.value)
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield from (ast.Constant(node.value + 1), ast.Constant(node.value - 1))
        if node.value not in (0, 1, -1):
            yield ast.Constant(node.value * 2)
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load) and len(node.elts) > 1:
        yield but(elts=[*copy.deepcopy(node.elts[1:]), copy.deepcopy(node.elts[0])])
    elif isinstance(node, ast.AugAssign | ast.Expr) and not (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ):
        yield None
    elif isinstance(node, ast.IfExp):
        yield from (copy.deepcopy(node.body), copy.deepcopy(node.orelse))


def sample(found: list[Mutant], share: float, seed: int) -> list[Mutant]:
    """Draw a share of the mutants, one at least."""
    return random.Random(seed).sample(found, max(1, round(share * len(found)))) if share < 1 else found


def wrongly_shaped(exercise: Exercise) -> str:
    """The solution, with an axis more on every array that a function returns."""
    wrap = """
def _with_an_axis(function):
    import functools
    import numpy as np

    def wrong(value):
        if isinstance(value, tuple) and not hasattr(value, "_fields"):
            return tuple(wrong(one) for one in value)
        if isinstance(value, list):
            return [value]
        if isinstance(value, dict):
            return {name: wrong(one) for name, one in value.items()}
        if isinstance(value, (int, float, np.ndarray, np.generic)):
            return np.asarray(value)[None]
        return [value]

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return wrong(function(*args, **kwargs))

    return wrapper

"""
    lines = [f"{name} = _with_an_axis({name})" for name in exercise.functions]
    return "\n".join([exercise.solution, wrap, *lines])


def equations(code: str) -> list[ast.Call]:
    """The calls of `course.equal` in a cell."""
    return [
        node
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "course.equal"
    ]


def without_a_term(code: str) -> list[Mutant]:
    """A cell with a term or factor less in what its equations are computed from, once for each there is."""
    tree = ast.parse(code)
    needed = {one.id for call in equations(code) for one in ast.walk(call) if isinstance(one, ast.Name)}
    computed = []
    for statement in reversed(tree.body):  # from the equations up to what they are made of
        text = ast.unparse(statement)
        stored = {
            n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        stored |= {statement.name} if isinstance(statement, ast.FunctionDef) else set()
        if "course.equal" in text or (stored & needed and "plt." not in text):
            computed.append(statement)
            needed |= {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)}
    found = []
    for node in [one for statement in computed for one in ast.walk(statement)]:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub) and _is_a_sum(node):
            place = list(ast.walk(tree)).index(node)
            changed = copy.deepcopy(tree)
            target = list(ast.walk(changed))[place]
            changed = ast.fix_missing_locations(Replaced(target, copy.deepcopy(node.left)).visit(changed))
            change = f"{ast.unparse(node)} -> {ast.unparse(node.left)}"
            found.append(Mutant(change, _line(code, node), ast.unparse(changed)))
    return found


def _is_a_sum(node: ast.BinOp) -> bool:
    """Tell whether this may be a sum of the derivation: not of strings, whole numbers or lists."""
    parts = list(ast.walk(node))
    plain = isinstance(node.right, ast.Constant) and isinstance(node.right.value, int)
    return not plain and not any(isinstance(one, ast.List | ast.JoinedStr) for one in parts)
