"""The exercises of a notebook, read from its source: stub, check, solution and the usual mistakes."""

import ast
import re
import sysconfig
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import minibert
from minibert.base.errors import InputError
from minibert.base.files import read_bytes

_CELL = re.compile(r"^# %%(.*)\n", re.M)
_NUMBER = re.compile(r"# Exercise (\d\d\.\d+)")
_MAGIC = re.compile(r"^%.*$", re.M)
_DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign)
_CODE = re.compile(r"```python\n(.*?)```", re.S)
_MISTAKE = re.compile(r"^\| `(.*?)` \| `(.*?)` \| (.*) \|$", re.M)


class Mistake(NamedTuple):
    """A way to get an exercise wrong: a replacement in its solution, and what to tell who wrote it."""

    instead_of: str
    written: str
    sentence: str


class Exercise(NamedTuple):
    """What a notebook says of one exercise."""

    number: str  # such as 05.2
    stub: str
    check: str
    solution: str
    mistakes: tuple[Mistake, ...]

    @property
    def functions(self) -> list[str]:
        """Return the names of the functions that are asked for."""
        body = ast.parse(self.stub).body
        return [node.name for node in body if isinstance(node, ast.FunctionDef)]

    def mistaken(self, mistake: Mistake) -> str:
        """Return the solution with one mistake in it.

        Parameters
        ----------
        mistake : Mistake
            One of `mistakes`.

        Returns
        -------
        str
            Python.
        """
        return self.solution.replace(mistake.instead_of, mistake.written, 1)


class Cell(NamedTuple):
    """A cell of a notebook: whether it is code, and its text."""

    is_code: bool
    text: str


def notebook_folder() -> Path:
    """Return where the notebooks are: beside the package in a checkout, with shared data when installed."""
    checkout = Path(minibert.__file__).parents[1] / "notebooks"
    if (checkout / "00_tour.py").exists():
        return checkout
    return Path(sysconfig.get_path("data")) / "share/minibert/notebooks"


def notebook_source(number: str) -> Path:
    """Return the source of a notebook.

    Parameters
    ----------
    number : str
        Such as "05".

    Returns
    -------
    Path

    Raises
    ------
    InputError
        When the course has no notebook of this number.
    """
    paths = {path.name[:2]: path for path in sorted(notebook_folder().glob("[0-9][0-9]_*.py"))}
    if number not in paths:
        known = ", ".join(paths) or "none"
        raise InputError(f"{number=} is not a notebook of the course; choose from {known}.", number=number)
    return paths[number]


def cells(path: Path) -> list[Cell]:
    """Read the cells of a notebook.

    Parameters
    ----------
    path : Path
        Of its source, Python in the percent format.

    Returns
    -------
    list of Cell
        Prose without the marks of comments.
    """
    _, *parts = _CELL.split(read_bytes(path).decode("utf-8"))
    result = []
    for kind, text in zip(parts[::2], parts[1::2], strict=True):
        text = text.strip("\n")
        is_code = "[markdown]" not in kind
        if not is_code:
            text = re.sub(r"^# ?", "", text, flags=re.M)
        result.append(Cell(is_code, text))
    return result


def exercises(path: Path) -> list[Exercise]:
    """List the exercises of a notebook, in order.

    Parameters
    ----------
    path : Path
        Of its source.

    Returns
    -------
    list of Exercise
        From each cell of code that begins with the number of one, up to the next.
    """
    every = cells(path)
    places = [n for n, cell in enumerate(every) if cell.is_code and _NUMBER.match(cell.text)]
    return [_exercise(*every[begin:end]) for begin, end in pairwise([*places, len(every)])]


def definitions(path: Path, before: str | None = None) -> str:
    """Return what a notebook imports and defines, without anything that it runs.

    Parameters
    ----------
    path : Path
        Of its source.
    before : str
        The text of a cell, before which to end; None: the whole notebook.

    Returns
    -------
    str
        Python: imports, functions, classes, and names that are given a literal. Exercises
        are left out, and of their checks what they define is kept.
    """
    own = {exercise.stub for exercise in exercises(path)}
    kept = []
    for is_code, text in cells(path):
        if text == before:
            break
        if not is_code or text in own:
            continue
        for node in ast.parse(_MAGIC.sub("", text)).body:
            if isinstance(node, _DEFINITIONS) and not _runs(node):
                kept.append(ast.unparse(node))
    return "\n".join(kept)


def _runs(node: ast.stmt) -> bool:
    """Tell whether a definition calls or reads something while it is made."""
    if isinstance(node, ast.Assign):
        try:
            ast.literal_eval(node.value)
        except ValueError:
            return True
        return False
    if isinstance(node, ast.FunctionDef):
        defaults = [*node.args.defaults, *node.args.kw_defaults]
        return any(isinstance(part, ast.Name) for one in defaults if one for part in ast.walk(one))
    return False


def _exercise(stub: Cell, *following: Cell) -> Exercise:
    """Read an exercise from its first cell and those up to the next exercise."""
    number = _NUMBER.match(stub.text)[1]  # type: ignore[index]
    code = [cell.text for cell in following if cell.is_code]
    prose = "\n".join(cell.text for cell in following if not cell.is_code)
    _, _, after_summary = prose.partition(f"<summary>Solution {number}</summary>")
    details, _, _ = after_summary.partition("</details>")
    solution = _CODE.search(details)
    mistakes = []
    for row in _MISTAKE.findall(details):
        columns = [text.replace(r"\|", "|").strip() for text in row]
        mistakes.append(Mistake(*columns))
    return Exercise(
        number,
        stub=stub.text,
        check=code[0] if code else "",
        solution=solution[1] if solution else "",
        mistakes=tuple(mistakes),
    )
