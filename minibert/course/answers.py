"""Read a student's answers from their notebooks and `mine.py` as text, without running any of it."""

import ast
import copy
import re
import symtable
from pathlib import Path
from typing import Any, NamedTuple

from minibert.base.errors import InputError
from minibert.base.files import read_bytes
from minibert.base.json_files import read_json
from minibert.course.exercises import cells, exercises, notebook_source, notebook_sources
from minibert.course.honesty import is_allowed_import, refused

MINE = "mine.py"
_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)  # raised by Python that can't be parsed
_NOT_PYTHON = re.compile(r"^[ \t]*[%!?].*$", re.M)  # lines that only Jupyter understands


class Found(NamedTuple):
    """A statement that binds a name at the top level of a notebook or of `mine.py`."""

    node: ast.stmt
    text: str  # Python, as in the file
    place: int  # position of the statement among all; they run in this order


class Pages(NamedTuple):
    """A notebook or `mine.py`, parsed."""

    file: str
    bindings: dict[str, Found] = {}  # by name the last statement that binds it
    functions: dict[str, Found] = {}  # by name the last definition that is not a stub, else the last stub
    broken: dict[str, str] = {}  # by name of a function what is wrong with its cell
    problem: str = ""  # why nothing of the file can be read


class Answer(NamedTuple):
    """A function that an exercise asks for, with everything that it uses.

    `answer_to` makes one; `grading` marks it at once, or gives it to `confined` to be called.
    """

    name: str
    file: str  # where it was found; "" if it was not
    text: str  # Python of the function and all that it uses; "" if nothing was written
    node: ast.FunctionDef | None
    imports: tuple[str, ...] = ()  # import statements in `text`, also those inside functions
    refused: str = ""  # why it is not judged; "" if it is
    problem: str = ""  # why it can't be judged; "" if it can

    @property
    def is_open(self) -> bool:
        """Tell whether there is nothing to judge."""
        return not (self.text or self.refused or self.problem)


def require_course(folder: Path) -> None:
    """Refuse a folder that is not of the course.

    Parameters
    ----------
    folder : Path
        A student's folder. An empty one is accepted: nothing was handed in.

    Raises
    ------
    InputError
        When there is no such folder, or it has files but no notebook of the course.
    """
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "is not there"
        raise InputError(f"{folder} {what}; give folders of the course, as students hand them in.")
    visible = [path for path in folder.iterdir() if not path.name.startswith(".")]
    if visible and not any(map(_is_of_course, visible)):
        first = notebook_source("01").stem
        advice = "give folders of the course, as students hand them in"
        raise InputError(f"{folder} has no notebook of the course, such as {first}.ipynb; {advice}.")


def _is_of_course(path: Path) -> bool:
    """Tell whether a file is `mine.py`, or has the name of a notebook of the course."""
    number, underscore, _ = path.name.partition("_")
    is_notebook = path.suffix == ".ipynb" and underscore and number in notebook_sources()
    return path.name == MINE or bool(is_notebook)


def read_notebook(folder: Path, number: str) -> Pages:
    """Read a student's notebook of a chapter.

    Parameters
    ----------
    folder : Path
        The student's folder.
    number : str
        Number of the chapter, such as "05".

    Returns
    -------
    Pages
        With a `problem` if there is no such notebook, or it can't be read.
    """
    name = f"{notebook_source(number).stem}.ipynb"
    path = folder / name
    if not path.exists():
        others = sorted(folder.glob(f"{number}_*.ipynb"))
        if not others:
            return Pages(name, problem=f"{name} is not there")
        path = others[0]
    try:
        notebook = read_json(path)
        texts = [_source_of(cell) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    except (InputError, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error).replace(str(path), path.name)
        return Pages(path.name, problem=f"{path.name} can't be read: {reason}")
    except (TypeError, KeyError):
        return Pages(path.name, problem=f"{path.name} is not a notebook")
    return _pages(path.name, texts)


def read_mine(folder: Path) -> Pages:
    """Read a student's `mine.py`: the methods of its class, and what they use.

    Parameters
    ----------
    folder : Path
        The student's folder.

    Returns
    -------
    Pages
    """
    path = folder / MINE
    if not path.exists():
        return Pages(MINE, problem=f"{MINE} is not there")
    try:
        text = read_bytes(path).decode("utf-8")
        tree = ast.parse(text)
    except (InputError, OSError, *_UNREADABLE) as error:
        return Pages(MINE, problem=f"{MINE} can't be read: {error}")
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
    """Return the text of a cell, which a notebook stores in one piece or line by line."""
    source = cell["source"]
    return source if isinstance(source, str) else "".join(map(str, source))


def _pages(file: str, texts: list[str]) -> Pages:
    """Collect the statements of a notebook's cells, in order, by the names that they bind."""
    bindings: dict[str, Found] = {}
    functions: dict[str, Found] = {}
    broken: dict[str, str] = {}
    place = 0
    for text in texts:
        text = _NOT_PYTHON.sub("", text)
        try:
            tree = ast.parse(text)
        except _UNREADABLE as error:
            for name in re.findall(r"^def\s+(\w+)", text, re.M):
                broken[name] = _syntax_error(error)
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


def _syntax_error(error: Exception) -> str:
    """Write what is wrong with a cell that can't be parsed, and where."""
    line = getattr(error, "lineno", None)
    where = f", line {line} of the cell" if line else ""
    reason = getattr(error, "msg", None) or str(error) or type(error).__name__
    return f"a syntax error: {reason}{where}"


def _segment(text: str, node: Any) -> str:
    """Return the source of a statement and its decorators, dedented to the top level."""
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
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names]
    if isinstance(node, ast.Assign | ast.AnnAssign):
        names = [part for part in ast.walk(node) if isinstance(part, ast.Name)]
        return [name.id for name in names if isinstance(name.ctx, ast.Store)]
    return []


def _is_stub(node: ast.FunctionDef) -> bool:
    """Tell whether the body of a function is only a docstring and three dots, or `pass`."""
    for statement in node.body:
        is_constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not (is_constant or isinstance(statement, ast.Pass)):
            return False
    return True


class Given(NamedTuple):
    """What the course's own notebook of a chapter allows in answers, and has itself."""

    allowed: set[str]  # what its solutions import from minibert, such as "minibert.core.batch.Batch"
    statements: set[str]  # all statements of its cells that bind a name: these are not a student's answers


def answer_to(name: str, notebook: Pages, mine: Pages, given: Given) -> Answer:
    """Find the answer to one function of an exercise.

    Parameters
    ----------
    name : str
        Name of the function.
    notebook : Pages
        The student's notebook. Its last definition counts, as if the cells were run from top to bottom.
    mine : Pages
        The student's mine.py, which counts where the notebook has no answer.
    given : Given
        What the chapter allows, and has itself.

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
    """Return an answer with the statements that it needs, or with the reasons why it is refused."""
    bindings = {**pages.bindings, name: found}
    helpers = [statement for statement in reached_by(found, bindings) if statement is not found]
    text = "\n".join([*(helper.text for helper in helpers), found.text]) + "\n"
    statements = [found, *helpers]
    imports: list[str] = []
    reasons: list[str] = []
    for statement in statements:
        for node in ast.walk(statement.node):
            if isinstance(node, ast.Import | ast.ImportFrom):
                imports.append(ast.unparse(node))
        reasons += _reasons_against(statement.node, name, statements, given)
    assert isinstance(found.node, ast.FunctionDef)
    return Answer(
        name,
        pages.file,
        text,
        found.node,
        imports=tuple(dict.fromkeys(imports)),
        refused="; ".join(dict.fromkeys(reasons)),
    )


def _reasons_against(node: ast.stmt, name: str, statements: list[Found], given: Given) -> list[str]:
    """List why one of the statements of an answer is not allowed."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        used = {used for statement in statements for used in _used(statement.node)}
        imported = _imported(node, used)
        forbidden = [each for each in imported if not is_allowed_import(each) and each not in given.allowed]
        return [_reason_against_import(each, node, statements) for each in forbidden]
    if not isinstance(node, ast.ClassDef):
        return list(refused(node, name))
    reasons = []
    bases = {ast.unparse(base) for base in node.bases}
    if bases - {"NamedTuple"}:
        reasons.append(f"it uses a class, {node.name}, that inherits from another one.")
    return [*reasons, *refused(ast.Module(node.body, []), name)]


def _reason_against_import(imported: str, node: ast.stmt, statements: list[Found]) -> str:
    """Say what an answer may not import; if it is minibert's, with the first line that uses it."""
    if not imported.startswith("minibert"):
        return f"it imports {imported}."
    bound = [name for name in _bound(node) if name in (imported.rpartition(".")[2], imported)]
    texts = [statement.text for statement in statements if statement.node is not node]
    for line in "\n".join(texts).split("\n"):
        if any(re.search(rf"\b{re.escape(name)}\b", line) for name in bound):
            return f"it uses minibert's own {imported}: {line.strip()}."
    return f"it uses minibert's own {imported}."


def reached_by(found: Found, bindings: dict[str, Found]) -> list[Found]:
    """List a statement and those that it needs, directly or not, in the order in which they are to be run.

    Parameters
    ----------
    found : Found
    bindings : dict of Found
        Statements of the same file by the names that they bind.

    Returns
    -------
    list of Found
    """
    reached = {id(found.node): found}
    waiting = [found]
    while waiting:
        for name in _used(waiting.pop().node):
            needed = bindings.get(name)
            if needed and id(needed.node) not in reached:
                reached[id(needed.node)] = needed
                waiting.append(needed)
    return sorted(reached.values(), key=lambda statement: statement.place)


def _used(node: ast.stmt) -> set[str]:
    """List the global names that a statement reads, except in annotations, which are not evaluated."""
    text = ast.unparse(_WithoutAnnotations().visit(copy.deepcopy(node)))
    waiting = [symtable.symtable(text, "<answer>", "exec")]
    used = set()
    while waiting:
        table = waiting.pop()
        is_top = table.get_type() == "module"
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (is_top or symbol.is_global()):
                used.add(symbol.get_name())
        waiting += table.get_children()
    return used


class _WithoutAnnotations(ast.NodeTransformer):
    """Remove annotations from a syntax tree."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(node.arg)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)


def _imported(node: ast.Import | ast.ImportFrom, used: set[str]) -> list[str]:
    """List the dotted names that a statement imports, if the names that it binds to them are used."""
    imported = []
    for alias in node.names:
        bound = alias.asname or alias.name.partition(".")[0]
        if bound in used:
            prefix = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            imported.append(f"{prefix}{alias.name}")
    return imported


def given_by(number: str) -> Given:
    """Read what the course's own notebook of a chapter allows in answers, and has itself.

    Parameters
    ----------
    number : str
        Number of the chapter.

    Returns
    -------
    Given
    """
    path = notebook_source(number)
    pages = _pages(path.name, [text for is_code, text in cells(path) if is_code])
    allowed: set[str] = set()
    for exercise in exercises(path):
        solution = _pages(path.name, [exercise.solution])
        for found in solution.bindings.values():
            reached = reached_by(found, pages.bindings | solution.bindings)
            used = {name for statement in reached for name in _used(statement.node)}
            for statement in reached:
                if isinstance(statement.node, ast.Import | ast.ImportFrom):
                    imported = _imported(statement.node, used)
                    allowed |= {name for name in imported if name.startswith("minibert")}
    statements = {ast.unparse(found.node) for found in pages.bindings.values()}
    return Given(allowed, statements)
