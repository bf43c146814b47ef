"""Read the exercises of a notebook from its source: stub, check, solution and common mistakes."""

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
_MISTAKE = re.compile(r"^\| `(.*?)` \| (?:`(.*?)`|\*nothing\*) \| (.*) \|$", re.M)


class Mistake(NamedTuple):
    """A common way to get an exercise wrong, as a replacement in its solution."""

    instead_of: str  # part of the solution
    written: str  # the mistake in its place
    sentence: str  # what to tell a reader who makes it


class Exercise(NamedTuple):
    """An exercise as its notebook has it; each text is Python."""

    number: str  # such as 05.2
    stub: str
    check: str
    solution: str
    mistakes: tuple[Mistake, ...]

    @property
    def functions(self) -> list[str]:
        """Return the names of the functions that the exercise asks for."""
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
    """Return the folder of the notebooks: next to the package in a checkout, else in the shared data."""
    checkout = Path(minibert.__file__).parents[1] / "notebooks"
    if (checkout / "00_tour.py").exists():
        return checkout
    return Path(sysconfig.get_path("data")) / "share/minibert/notebooks"


def notebook_sources() -> dict[str, Path]:
    """Return the sources of all notebooks, in order, by their numbers, such as "05"."""
    paths = sorted(notebook_folder().glob("[0-9][0-9]_*.py"))
    return {path.name[:2]: path for path in paths}


def notebook_source(number: str) -> Path:
    """Return the source of a notebook.

    Parameters
    ----------
    number : str
        Number of the notebook, such as "05".

    Returns
    -------
    Path

    Raises
    ------
    InputError
        When the course has no notebook of this number.
    """
    paths = notebook_sources()
    if number not in paths:
        known = ", ".join(paths) or "none"
        raise InputError(f"{number=} is not a notebook of the course; choose from {known}.", number=number)
    return paths[number]


def cells(path: Path) -> list[Cell]:
    """Read the cells of a notebook.

    Parameters
    ----------
    path : Path
        The notebook's source, Python in the percent format.

    Returns
    -------
    list of Cell
        The text of Markdown cells is without comment signs.
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
        The notebook's source.

    Returns
    -------
    list of Exercise
        Each extends from the code cell that begins with its number to the next such cell.
    """
    all_cells = cells(path)
    borders = [index for index, cell in enumerate(all_cells) if cell.is_code and _NUMBER.match(cell.text)]
    borders.append(len(all_cells))
    return [_exercise(*all_cells[start:end]) for start, end in pairwise(borders)]


def definitions(path: Path, before: str | None = None) -> str:
    """Return what a notebook imports and defines, without anything that it computes.

    Parameters
    ----------
    path : Path
        The notebook's source.
    before : str
        Text of the cell at which to stop; None: the whole notebook.

    Returns
    -------
    str
        Python: imports, functions, classes, and assignments of literals. Stubs of exercises are left out, but
        what their checks define is kept.
    """
    stubs = {exercise.stub for exercise in exercises(path)}
    kept = []
    for is_code, text in cells(path):
        if text == before:
            break
        if not is_code or text in stubs:
            continue
        for node in ast.parse(_MAGIC.sub("", text)).body:
            if isinstance(node, _DEFINITIONS) and not _runs(node):
                kept.append(ast.unparse(node))
    return "\n".join(kept)


def _runs(node: ast.stmt) -> bool:
    """Tell whether a definition computes something: its value is not a literal, or a default is a name."""
    if isinstance(node, ast.Assign):
        try:
            ast.literal_eval(node.value)
        except ValueError:
            return True
        return False
    if isinstance(node, ast.FunctionDef):
        defaults = [*node.args.defaults, *node.args.kw_defaults]
        parts = [part for default in defaults if default for part in ast.walk(default)]
        return any(isinstance(part, ast.Name) for part in parts)
    return False


def _exercise(stub: Cell, *following: Cell) -> Exercise:
    """Read an exercise from its first cell, the stub, and all cells up to the next exercise."""
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
