"""The exercises of a notebook, read from its source: stub, check, hints, solution and usual mistakes."""

import ast
import re
import sysconfig
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import minibert
from minibert.errors import InputError

_CELL = re.compile(r"^# %%(.*)\n", re.M)
_NUMBER = re.compile(r"# Exercise (\d\d\.\d+)")
_FOLDED = re.compile(r"<details><summary>(.*?)</summary>(.*?)</details>", re.S)
_CODE = re.compile(r"```python\n(.*?)```", re.S)
_MISTAKE = re.compile(r"^\| `(.*?)` \| `(.*?)` \| (.*) \|$", re.M)


class Mistake(NamedTuple):
    """A way to get an exercise wrong: a replacement in its solution, and what to tell who wrote it."""

    instead_of: str
    written: str
    sentence: str


class Exercise(NamedTuple):
    """One exercise, with everything that its notebook says about it."""

    number: str  # such as 05.2
    title: str
    stub: str
    check: str
    hints: tuple[str, ...]
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
    """A cell of a notebook: "markdown" or "code", and its text."""

    kind: str
    text: str


def notebook_folder() -> Path:
    """Return where the notebooks are: beside the package in a checkout, with shared data when installed."""
    checkout = Path(minibert.__file__).parents[1] / "notebooks"
    installed = Path(sysconfig.get_path("data")) / "share" / "minibert" / "notebooks"
    return checkout if checkout.is_dir() else installed


def notebook_source(number: str) -> Path:
    """Return the source of the notebook with this number, such as 05."""
    paths = sorted(notebook_folder().glob("[0-9][0-9]_*.py"))
    for path in paths:
        if path.name.startswith(f"{number}_"):
            return path
    known = ", ".join(path.name[:2] for path in paths) or "none"
    raise InputError(f"number={number!r} is no notebook of the course; choose from {known}.")


def cells(path: Path) -> list[Cell]:
    """Read the cells of a notebook in the percent format."""
    _, *parts = _CELL.split(path.read_text("utf-8"))
    result = []
    for kind, text in zip(parts[::2], parts[1::2], strict=True):
        if "[markdown]" in kind:
            text = re.sub(r"^# ?", "", text, flags=re.M)
        result.append(Cell("markdown" if "[markdown]" in kind else "code", text.strip("\n")))
    return result


def exercises(path: Path) -> list[Exercise]:
    """List the exercises of a notebook, in order."""
    every = cells(path)
    prose = "\n".join(cell.text for cell in every if cell.kind == "markdown")
    titles = dict(re.findall(r"^#+ Exercise (\d\d\.\d+) (.*)$", prose, re.M))
    places = [n for n, cell in enumerate(every) if cell.kind == "code" and _NUMBER.match(cell.text)]
    return [_exercise(every[at:end], titles) for at, end in pairwise([*places, len(every)])]


def _exercise(part: list[Cell], titles: dict[str, str]) -> Exercise:
    """Read the exercise that begins with the first of these cells."""
    stub, *behind = part
    number = _NUMBER.match(stub.text)[1]
    check = next((cell.text for cell in behind if cell.kind == "code"), "")
    folded = _FOLDED.findall("\n".join(cell.text for cell in behind if cell.kind == "markdown"))
    hints = tuple(text.strip() for name, text in folded if name.startswith("Hint"))
    solved = next((text for name, text in folded if name == f"Solution {number}"), "")
    code = _CODE.search(solved)
    mistakes = tuple(
        Mistake(*(one.replace(r"\|", "|").strip() for one in row)) for row in _MISTAKE.findall(solved)
    )
    return Exercise(
        number, titles.get(number, ""), stub.text, check, hints, code[1] if code else "", mistakes
    )
