"""A student's answers, read from their notebooks and `mine.py` as text: nothing of these is run here."""

import ast
import copy
import re
import symtable
from pathlib import Path
from typing import Any, NamedTuple

from minibert.base.errors import InputError
from minibert.base.files import read_bytes
from minibert.base.json_files import read_json
from minibert.course.exercises import cells, exercises, notebook_folder, notebook_source
from minibert.course.honesty import is_allowed_import, refused

MINE = "mine.py"
_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)  # of Python that can't be parsed
_NOT_PYTHON = re.compile(r"^[ \t]*[%!?].*$", re.M)  # lines that only Jupyter understands


class Found(NamedTuple):
    """What a notebook or `mine.py` binds to a name at its top level."""

    node: ast.stmt
    text: str  # Python, as it stands there
    place: int  # statements are run in this order


class Pages(NamedTuple):
    """A notebook or `mine.py`, parsed."""

    file: str
    bindings: dict[str, Found]  # the last of each name
    functions: dict[str, Found]  # the last that is not open, else the last; methods of `mine.py`
    broken: dict[str, str]  # what is wrong with the cell that defines a function, by its name
    problem: str = ""  # why none of it can be read


class Answer(NamedTuple):
    """A function that an exercise asks for, with all that it uses."""

    name: str
    file: str  # where it was found; "" for none
    text: str  # Python; "" where nothing was written
    node: ast.FunctionDef | None
    imports: tuple[str, ...] = ()  # statements, its functions' too
    refused: str = ""  # why it is not judged
    problem: str = ""  # why it can't be

    @property
    def is_open(self) -> bool:
        """Tell whether there is nothing to judge."""
        return not (self.text or self.refused or self.problem)


def require_course(folder: Path) -> None:
    """Refuse what is not a folder of the course.

    Parameters
    ----------
    folder : Path
        Of a student. One with nothing in it passes: nothing was handed in.

    Raises
    ------
    InputError
        When there is no such folder, or none of the course's notebooks in it.
    """
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "is not there"
        raise InputError(f"{folder} {what}; give folders of the course, as students hand them in.")
    visible = [path for path in folder.iterdir() if not path.name.startswith(".")]
    known = [path.name for path in visible if path.name == MINE or _chapter_of(path)]
    if visible and not known:
        first = sorted(notebook_folder().glob("01_*.py"))[0].stem
        advice = "give folders of the course, as students hand them in"
        raise InputError(f"{folder} has no notebook of the course, such as {first}.ipynb; {advice}.")


def _chapter_of(path: Path) -> str:
    """Return the number of the chapter that a notebook is of, or ""."""
    number = path.name[:2]
    is_ours = path.suffix == ".ipynb" and list(notebook_folder().glob(f"{number}_*.py"))
    return number if is_ours and re.match(r"\d\d_", path.name) else ""


def read_notebook(folder: Path, number: str) -> Pages:
    """Read a student's notebook of a chapter.

    Parameters
    ----------
    folder : Path
        Of the student.
    number : str
        Of the chapter, such as "05".

    Returns
    -------
    Pages
        With a `problem` where the notebook is missing, or is not one.
    """
    name = f"{notebook_source(number).stem}.ipynb"
    path = folder / name
    if not path.exists():
        others = sorted(folder.glob(f"{number}_*.ipynb"))
        if not others:
            return Pages(name, {}, {}, {}, f"{name} is not there")
        path = others[0]
    try:
        notebook = read_json(path)
        texts = [_source_of(cell) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    except (InputError, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error).replace(str(path), path.name)
        return Pages(path.name, {}, {}, {}, f"{path.name} can't be read: {reason}")
    except (TypeError, KeyError):
        return Pages(path.name, {}, {}, {}, f"{path.name} is not a notebook")
    return _pages(path.name, texts)


def read_mine(folder: Path) -> Pages:
    """Read a student's `mine.py`: the methods of its class, and what they use.

    Parameters
    ----------
    folder : Path
        Of the student.

    Returns
    -------
    Pages
    """
    path = folder / MINE
    if not path.exists():
        return Pages(MINE, {}, {}, {}, f"{MINE} is not there")
    try:
        text = read_bytes(path).decode("utf-8")
        tree = ast.parse(text)
    except (InputError, OSError, *_UNREADABLE) as error:
        return Pages(MINE, {}, {}, {}, f"{MINE} can't be read: {error}")
    pages = _pages(MINE, [text])
    methods = {}
    for node in tree.body:
        if not isinstance(node, ast.ClassDef) or node.name != "Mine":
            continue
        for method in node.body:
            if isinstance(method, ast.FunctionDef):
                segment = _segment(text, method)
                methods[method.name] = Found(method, segment, len(pages.bindings))
    return pages._replace(functions=methods)


def _source_of(cell: Any) -> str:
    """Return the text of a cell, which notebooks have in one piece or line by line."""
    source = cell["source"]
    return source if isinstance(source, str) else "".join(map(str, source))


def _pages(file: str, texts: list[str]) -> Pages:
    """Collect what the cells of a notebook bind, from the first to the last."""
    bindings: dict[str, Found] = {}
    functions: dict[str, Found] = {}
    broken: dict[str, str] = {}
    place = 0
    for text in texts:
        text = _NOT_PYTHON.sub("", text)
        try:
            tree = ast.parse(text)
        except _UNREADABLE as error:
            line = getattr(error, "lineno", None)
            where = f", line {line} of the cell" if line else ""
            reason = getattr(error, "msg", None) or str(error) or type(error).__name__
            for name in re.findall(r"^def\s+(\w+)", text, re.M):
                broken[name] = f"a syntax error: {reason}{where}"
            continue
        for node in tree.body:
            place += 1
            found = Found(node, _segment(text, node), place)
            for name in _bound(node):
                bindings[name] = found
            if isinstance(node, ast.FunctionDef):
                broken.pop(node.name, None)
                if not _is_stub(node) or node.name not in functions:
                    functions[node.name] = found
    return Pages(file, bindings, functions, broken)


def _segment(text: str, node: Any) -> str:
    """Return the lines of a statement, with its decorators, as if it stood at the top level."""
    decorators = [f"@{ast.unparse(decorator)}" for decorator in getattr(node, "decorator_list", [])]
    source = ast.get_source_segment(text, node, padded=True) or ast.unparse(node)
    lines = source.split("\n")
    margin = len(lines[0]) - len(lines[0].lstrip())
    dedented = []
    for line in lines:
        has_margin = line[:margin].isspace()
        dedented.append(line[margin:] if has_margin else line)
    return "\n".join(decorators + dedented)


def _bound(node: ast.stmt) -> list[str]:
    """List the names that a statement binds."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import):
        return [one.asname or one.name.partition(".")[0] for one in node.names]
    if isinstance(node, ast.ImportFrom):
        return [one.asname or one.name for one in node.names]
    if isinstance(node, ast.Assign | ast.AnnAssign):
        return [
            one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
        ]
    return []


def _is_stub(node: ast.FunctionDef) -> bool:
    """Tell whether a function has nothing but a docstring and three dots."""
    for one in node.body:
        is_constant = isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
        if not (is_constant or isinstance(one, ast.Pass)):
            return False
    return True


class Given(NamedTuple):
    """What the course's own notebook of a chapter says of answers to its exercises."""

    allowed: set[str]  # what its solutions import from minibert, such as "minibert.core.batch.Batch"
    statements: set[str]  # of its cells


def answer_to(name: str, notebook: Pages, mine: Pages, given: Given) -> Answer:
    """Find the answer to one function of an exercise.

    Parameters
    ----------
    name : str
        Of the function.
    notebook : Pages
        In which the last definition counts, as if it was run from top to bottom.
    mine : Pages
        Asked where the notebook has nothing.
    given : Given
        What its chapter had before.

    Returns
    -------
    Answer
    """
    if name in notebook.broken:
        return Answer(name, notebook.file, "", None, problem=f"its cell has {notebook.broken[name]}")
    for pages in (notebook, mine):
        found = pages.functions.get(name)
        if found and isinstance(found.node, ast.FunctionDef) and not _is_stub(found.node):
            return _with_what_it_uses(name, found, pages, given)
        bound = pages.bindings.get(name)
        is_stub = bound and isinstance(bound.node, ast.FunctionDef)
        if bound and not is_stub and ast.unparse(bound.node) not in given.statements:
            line = bound.text.partition("\n")[0]
            return Answer(name, pages.file, "", None, refused=f"it is not written as a function: {line}")
    return Answer(name, "", "", None)


def _with_what_it_uses(name: str, found: Found, pages: Pages, given: Given) -> Answer:
    """Return an answer with the statements that it needs, or with the reason why it is refused."""
    bindings = {**pages.bindings, name: found}
    reached = [one for one in reached_by(found, bindings) if one is not found]
    text = "\n".join([*(one.text for one in reached), found.text]) + "\n"
    imports: list[str] = []
    names = {name for one in [found, *reached] for name in _used(one.node)}
    reasons: dict[str, None] = {}
    for one in [found, *reached]:
        for node in ast.walk(one.node):
            if isinstance(node, ast.Import | ast.ImportFrom):
                imports.append(ast.unparse(node))
        if isinstance(one.node, ast.Import | ast.ImportFrom):
            for imported in _imported(one.node, names):
                if not is_allowed_import(imported) and imported not in given.allowed:
                    reasons[_of_an_import(imported, one.node, [found, *reached])] = None
        elif isinstance(one.node, ast.ClassDef):
            bases = {ast.unparse(base) for base in one.node.bases}
            if bases - {"NamedTuple"}:
                reasons[f"it uses a class, {one.node.name}, that is made of another."] = None
            for reason in refused(ast.Module(one.node.body, []), name):
                reasons[reason] = None
        else:
            for reason in refused(one.node, name):
                reasons[reason] = None
    assert isinstance(found.node, ast.FunctionDef)
    return Answer(
        name, pages.file, text, found.node, tuple(dict.fromkeys(imports)), refused="; ".join(reasons)
    )


def _of_an_import(imported: str, node: ast.stmt, every: list[Found]) -> str:
    """Say what an answer imports and may not, with the first line that uses it if that is minibert's."""
    if not imported.startswith("minibert"):
        return f"it imports {imported}."
    last_part = imported.rpartition(".")[2]
    names = [re.escape(name) for name in _bound(node) if name in (last_part, imported)]
    uses = re.compile(rf"\b({'|'.join(names)})\b")
    where = ""
    if names:
        lines = [line for found in every if found.node is not node for line in found.text.split("\n")]
        first = next(filter(uses.search, lines), None)
        if first is not None:
            where = f": {first.strip()}"
    return f"it uses minibert's own {imported}{where}."


def reached_by(found: Found, bindings: dict[str, Found]) -> list[Found]:
    """List a statement and those whose names it uses, in the order in which they are to be run.

    Parameters
    ----------
    found : Found
    bindings : dict of Found
        Of the file that it is from.

    Returns
    -------
    list of Found
    """
    every = {id(found.node): found}
    waiting = [found]
    while waiting:
        for name in _used(waiting.pop().node):
            other = bindings.get(name)
            if other and id(other.node) not in every:
                every[id(other.node)] = other
                waiting.append(other)
    return sorted(every.values(), key=lambda one: one.place)


def _used(node: ast.stmt) -> set[str]:
    """List the global names that a statement reads, but for those in annotations, which are not evaluated."""
    text = ast.unparse(_WithoutAnnotations().visit(copy.deepcopy(node)))
    waiting = [symtable.symtable(text, "<answer>", "exec")]
    used = set()
    while waiting:
        table = waiting.pop()
        is_top = table.get_type() == "module"
        for one in table.get_symbols():
            if one.is_referenced() and (is_top or one.is_global()):
                used.add(one.get_name())
        waiting += table.get_children()
    return used


class _WithoutAnnotations(ast.NodeTransformer):
    """Leaves annotations out."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(node.arg)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)


def _imported(node: ast.Import | ast.ImportFrom, used: set[str]) -> list[str]:
    """List what a statement imports, as far as its names are used."""
    found = []
    for one in node.names:
        bound = one.asname or one.name.partition(".")[0]
        if bound in used:
            found.append(f"{node.module}.{one.name}" if isinstance(node, ast.ImportFrom) else one.name)
    return found


def given_by(number: str) -> Given:
    """Read what the course's own notebook of a chapter says of answers.

    Parameters
    ----------
    number : str
        Of the chapter.

    Returns
    -------
    Given
    """
    path = notebook_source(number)
    every = [text for is_code, text in cells(path) if is_code]
    pages = _pages(path.name, every)
    allowed: set[str] = set()
    for exercise in exercises(path):
        solved = _pages(path.name, [exercise.solution])
        for found in solved.bindings.values():
            reached = reached_by(found, pages.bindings | solved.bindings)
            names = {name for one in reached for name in _used(one.node)}
            for one in reached:
                if isinstance(one.node, ast.Import | ast.ImportFrom):
                    allowed |= {name for name in _imported(one.node, names) if name.startswith("minibert")}
    statements = {ast.unparse(found.node) for found in pages.bindings.values()}
    return Given(allowed, statements)
