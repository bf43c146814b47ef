"""One-line faults in the sources of the package: where one can be, what it changes, and the file that has it.

Those in C and C++ are found by tokens (`native_faults`); these are the rules for Python. The operators are
those of the course, which spoil solutions of exercises, and a few for calls and branches. Words are no
fault: strings that are shown, docstrings and annotations stay as they are; a number or a condition within a
message does not. What is never run, because only type checkers read it, is left out; so are `strict=True` and
`frozen=True`, which assert what is always so.
"""

import ast
import copy
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import course
import native_faults
from paths import PACKAGE, ROOT, TESTS

EQUIVALENT = TESTS / "equivalent_mutants.md"
TYPE_ALIAS = re.compile(r"_?[A-Z]\w*[a-z]\w* = (?!Annotated\[)[\w.]+(?:\[| \|).*", re.DOTALL)
SWAPPED_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
KINDS = {
    ast.BinOp: "arithmetic",
    ast.BoolOp: "and/or",
    ast.Compare: "comparison",
    ast.Constant: "constant",
    ast.If: "other branch",
    ast.IfExp: "other branch",
    ast.While: "other branch",
    ast.UnaryOp: "not or sign",
}


class Fault(NamedTuple):
    """A change of one place in a file of the package."""

    file: str  # from the package's folder on, or from csrc/ on
    line: int
    operator: str
    before: str
    after: str
    source: str  # the whole file with the fault
    isa: str = ""  # the instruction set that kernels with the fault are compiled for
    text: str = ""  # of the whole line before, in Python

    @property
    def path(self) -> Path:
        """Return the file in a tree."""
        return Path(self.file) if self.file.startswith("csrc/") else Path("minibert") / self.file

    @property
    def entry(self) -> str:
        """Return how it is named in the list of equivalent mutants, wherever its line is."""
        line = f" in `{self.text}`" if self.text not in ("", self.before) else ""
        return " ".join(f"{self.file}: `{self.before} -> {self.after}`{line}".split())

    @property
    def room(self) -> str:
        """Return the room that it lies in, and of kernels the instruction set."""
        if self.file.startswith("csrc/"):
            return "/".join(filter(None, (self.file.split("/")[1], self.isa)))
        return self.file.partition("/")[0] if "/" in self.file else "minibert"


class Place(NamedTuple):
    """A node of a file that an operator fits."""

    key: str  # its line: the file, the text, and how often that was there before
    node: Any
    whole: Any  # what is written anew: the node, or the f-string around it


def variants(node: ast.AST) -> Iterator[ast.AST | None]:
    """Yield what may stand in a node's place, each a small change; None deletes a statement."""
    yield from course.variants(node)
    if isinstance(node, ast.Call):
        name, two = ast.unparse(node.func), node.args[:2]
        if name in SWAPPED_CALLS:
            yield ast.Call(ast.Name(SWAPPED_CALLS[name], ast.Load()), node.args, node.keywords)
        if len(two) == 2 and type(two[0]) is type(two[1]) and name != "isinstance":  # others fail at once
            yield ast.Call(node.func, [*reversed(two), *node.args[2:]], node.keywords)
    elif isinstance(node, ast.If | ast.While) and not isinstance(node.test, ast.Compare | ast.UnaryOp):
        yield ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name | ast.Tuple):
        yield None  # what is stored elsewhere is not


def operator(node: ast.AST, new: ast.AST | None) -> str:
    """Return the name of a change."""
    if new is None:
        return "statement deleted"
    if isinstance(node, ast.Call):
        return "arguments swapped" if node.args != new.args else "min/max"  # type: ignore[attr-defined]
    return KINDS.get(type(node), "order")


def keys_of(file: str, source: str) -> list[str]:
    """Return what each line of a file is known by: the file, the text, how often that was there before."""
    seen, keys = Counter[str](), []
    for line in source.splitlines():
        keys.append(f"{file} {line.strip()} {seen[line.strip()]}")
        seen[line.strip()] += 1
    return keys


def places(file: str, source: str) -> Iterator[Place]:
    """Yield the places of a file."""
    keys = keys_of(file, source)

    def look(node: Any, whole: Any) -> Iterator[Place]:
        if hasattr(node, "lineno") and next(variants(node), node) is not node:
            yield Place(keys[node.lineno - 1], node, whole or node)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "format_spec", "type"):  # the last: types that are caught
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not _has_no_fault(child):
                    yield from look(child, whole or (node if isinstance(node, ast.JoinedStr) else None))

    yield from look(ast.parse(source), None)


def _has_no_fault(node: ast.AST) -> bool:
    """Tell whether this only states something, to type checkers or whoever reads it."""
    if isinstance(node, ast.FunctionDef):
        return "overload" in [ast.unparse(one) for one in node.decorator_list]
    if isinstance(node, ast.AnnAssign):
        return ast.unparse(node.annotation) == "TypeAlias"
    if isinstance(node, ast.Assign):
        return bool(TYPE_ALIAS.fullmatch(ast.unparse(node)))
    if isinstance(node, ast.keyword):
        return node.arg in ("strict", "frozen")
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def planted(file: str, source: str, place: Place, new: Any) -> Fault | None:
    """Return a fault with the file that has it; None if that would not compile, or would be the same."""
    node = place.node
    target = node.test if isinstance(node, ast.If | ast.While) and new is not None else node
    after = "nothing" if new is None else ast.unparse(new)
    text = "pass" if new is None else f"({after})"
    written = target
    if place.whole is not node:
        written = place.whole
        own = copy.deepcopy(written, {id(target): target})
        text = ast.unparse(course.Replaced(target, new).visit(own))
    code = source.encode()
    lines = code.splitlines(keepends=True)
    begin = sum(map(len, lines[: written.lineno - 1])) + written.col_offset
    end = sum(map(len, lines[: written.end_lineno - 1])) + written.end_col_offset
    changed = (code[:begin] + text.encode() + code[end:]).decode()
    try:
        if ast.dump(ast.parse(changed)) == ast.dump(ast.parse(source)):
            return None
    except SyntaxError:
        return None
    line = source.splitlines()[node.lineno - 1].strip()
    return Fault(file, node.lineno, operator(node, new), ast.unparse(target), after, changed, text=line)


def faults(count: int, seed: int) -> Iterator[Fault]:
    """Yield faults of `count` lines of the package, one of each, in the order of the seed."""
    sources: dict[str, str] = {}
    lines: dict[str, list[tuple[str, Place]]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        file = path.relative_to(PACKAGE).as_posix()
        sources[file] = path.read_text("utf-8")
        for place in places(file, sources[file]):
            lines.setdefault(place.key, []).append((file, place))

    def possible(key: str, _: random.Random) -> Iterator[Callable[[], Fault | None]]:
        for file, place in lines[key]:
            for new in variants(place.node):
                yield lambda file=file, place=place, new=new: planted(file, sources[file], place, new)

    return drawn(count, seed, lines, possible)


def faults_in_c(count: int, seed: int, files: Iterable[str], sets: list[str]) -> Iterator[Fault]:
    """Yield faults of `count` lines of C and C++, one of each; one in a kernel is for one of the sets."""
    sources: dict[str, str] = {}
    lines: dict[str, list[tuple[str, native_faults.Edit]]] = {}
    for file in sorted(files):
        sources[file] = (ROOT / file).read_text("utf-8")
        keys = keys_of(file, sources[file])
        for edit in native_faults.edits(sources[file]):
            number = sources[file].count("\n", 0, edit.begin)
            lines.setdefault(keys[number], []).append((file, edit))

    def possible(key: str, draw: random.Random) -> Iterator[Callable[[], Fault | None]]:
        isa = draw.choice(sets)
        for file, edit in lines[key]:
            yield lambda file=file, edit=edit: edited(file, sources[file], edit, isa)

    return drawn(count, seed, lines, possible)


def edited(file: str, source: str, edit: native_faults.Edit, isa: str) -> Fault:
    """Return a fault in C or C++ with the file that has it."""
    changed = source[: edit.begin] + edit.text + source[edit.end :]
    number = source.count("\n", 0, edit.begin)
    before, after = (text.splitlines()[number].strip() for text in (source, changed))
    isa = isa if file.startswith("csrc/kernels/") else ""
    return Fault(file, number + 1, edit.operator, before, after, changed, isa)


def drawn(
    count: int,
    seed: int,
    keys: Iterable[str],
    possible: Callable[[str, random.Random], Iterable[Callable[[], Fault | None]]],
) -> Iterator[Fault]:
    """Yield a fault of each of `count` lines; `possible` makes those of a line.

    The place of a line in their order depends on its own text only, so the sample stays the same when other
    lines change, and a larger count goes on with it.
    """
    draws = {key: random.Random(f"{seed} {key}") for key in keys}
    equivalent, found = " ".join(EQUIVALENT.read_text("utf-8").split()), 0
    for key in sorted(draws, key=lambda key: draws[key].random()):
        ways = list(possible(key, draws[key]))
        draws[key].shuffle(ways)
        made = (make() for make in ways)
        fault = next((one for one in made if one and one.entry not in equivalent), None)
        if fault:
            yield fault
            found += 1
            if found == count:
                return
