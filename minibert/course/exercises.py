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
        return [node.name for node in ast.parse(self.stub).body if isinstance(node, ast.FunctionDef)]

    def mistaken(self, mistake: Mistake) -> str:
        """Return the solution with one mistake in it."""
        return self.solution.replace(mistake.instead_of, mistake.written, 1)


class Cell(NamedTuple):
    """A cell of a notebook: whether it is code, and its text."""

    is_code: bool
    text: str


def notebook_folder() -> Path:
    """Return where the notebooks are: beside the package in a checkout, with shared data when installed."""
    checkout = Path(minibert.__file__).parents[1] / "notebooks"
    there = (checkout / "00_tour.py").exists()
    return checkout if there else Path(sysconfig.get_path("data")) / "share/minibert/notebooks"


def notebook_source(number: str) -> Path:
    """Return the source of the notebook with this number, such as 05."""
    paths = {path.name[:2]: path for path in sorted(notebook_folder().glob("[0-9][0-9]_*.py"))}
    if number not in paths:
        known = ", ".join(paths) or "none"
        raise InputError(f"number={number!r} is no notebook of the course; choose from {known}.")
    return paths[number]


def cells(path: Path) -> list[Cell]:
    """Read the cells of a notebook in the percent format."""
    _, *parts = _CELL.split(read_bytes(path).decode("utf-8"))
    found = []
    for kind, text in zip(parts[::2], parts[1::2], strict=True):
        is_code, text = "[markdown]" not in kind, text.strip("\n")
        found.append(Cell(is_code, text if is_code else re.sub(r"^# ?", "", text, flags=re.M)))
    return found


def exercises(path: Path) -> list[Exercise]:
    """List the exercises of a notebook, in order."""
    every = cells(path)
    places = [n for n, cell in enumerate(every) if cell.is_code and _NUMBER.match(cell.text)]
    return [_exercise(*every[at:end]) for at, end in pairwise([*places, len(every)])]


def _exercise(stub: Cell, *behind: Cell) -> Exercise:
    number = _NUMBER.match(stub.text)[1]  # type: ignore[index]
    check = next((cell.text for cell in behind if cell.is_code), "")
    prose = "\n".join(cell.text for cell in behind if not cell.is_code)
    solved = prose.partition(f"<summary>Solution {number}</summary>")[2].partition("</details>")[0]
    code = _CODE.search(solved)
    rows = [[one.replace(r"\|", "|").strip() for one in row] for row in _MISTAKE.findall(solved)]
    return Exercise(number, stub.text, check, code[1] if code else "", tuple(Mistake(*row) for row in rows))
