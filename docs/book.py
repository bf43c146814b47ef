"""Run the chapters of the course with the official answers filled in: `make book`, part of `make docs`.

A chapter is run again when its source, or that of a chapter before it, has changed. When the package alone
has changed, a line says so: few of its changes can be seen in the book, and running all chapters takes long.
Each chapter runs in a folder of its own, which begins as a copy of the folder of the chapter before it, with
`mine.py` and what else readers carry along.
"""

import argparse
import hashlib
import os
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import nbformat

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # the package that the chapters stand beside, whichever is installed

from minibert.course.exercises import exercises, notebook_source  # noqa: E402
from minibert.course.lesson import OPEN  # noqa: E402
from minibert.course.showing import MARKS, NO_GUESS  # noqa: E402

PACKAGE = HERE.parent / "minibert"
BOOK = HERE.parent / "build" / "book"
PDF = "minibert-course.pdf"
CHAPTERS = [path.stem[:2] for path in sorted((HERE.parent / "notebooks").glob("[0-9][0-9]_*.py"))]

SOLVED_NOTE = """Every exercise of this chapter was run with its official answer, which is folded. To write
it yourself, lay out the notebooks with `minibert course FOLDER`."""
PDF_LINK = f'<a href="../{PDF}">All chapters as one PDF</a>.'
OPEN_NOTE = """The exercises of this chapter are open, and its outputs are those of a first run. `make
docs` builds a book in which all of them are solved."""
SOLUTION = "<details><summary>Solution {}</summary>"
MISTAKES = '<details class="mistakes">'  # whose table is laid out for a phone in _static/minibert.css
FOLDED_PICTURE = 20  # lines; the code of a picture that has more is folded


def solved(number: str) -> Any:
    """Return a chapter that is yet to be run, with the official answer below the stub of each exercise.

    Parameters
    ----------
    number : str
        Number of the chapter, such as "05".

    Returns
    -------
    nbformat.NotebookNode
        The cells of an answer and of its check are marked by `answer` and `check` in their metadata.
    """
    source = notebook_source(number)
    notebook = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    by_stub = {exercise.stub: exercise for exercise in exercises(source)}
    checks = {exercise.check: exercise.number for exercise in by_stub.values()}
    cells = []
    for cell in notebook.cells:
        cells.append(cell)
        if cell.cell_type != "code":
            continue
        cell.outputs, cell.execution_count, cell.metadata = [], None, {}
        if cell.source in checks:
            cell.metadata["check"] = checks[cell.source]
        if exercise := by_stub.get(cell.source):
            text = f"# Exercise {exercise.number}: the answer\n{exercise.solution.rstrip()}"
            answer = nbformat.v4.new_code_cell(text, metadata={"answer": exercise.number})
            cells.append(answer)
    notebook.cells = cells
    return notebook


def printed(cell: Any) -> str:
    """Return what a cell has printed."""
    return "".join(output.text for output in cell.get("outputs", []) if output.output_type == "stream")


def require_solved(notebook: Any, name: str) -> None:
    """Refuse a chapter with an exercise that is open or whose answer was rejected.

    Parameters
    ----------
    notebook : nbformat.NotebookNode
        The chapter, after its run.
    name : str
        Name of the chapter, for the error.

    Raises
    ------
    RuntimeError
        With the lines that say so.
    """
    lines = [line for cell in notebook.cells for line in printed(cell).splitlines()]
    wrong = [line for line in lines if OPEN in line or line.startswith(MARKS["failed"])]
    if wrong:
        raise RuntimeError(f"{name} is not solved by its own answers: {'; '.join(wrong)}.")


def run(number: str, folder: Path) -> Any:
    """Run a chapter with its answers.

    Parameters
    ----------
    number : str
        Number of the chapter, such as "05".
    folder : Path
        Folder to run it in, which may have what earlier chapters left.

    Returns
    -------
    nbformat.NotebookNode

    Raises
    ------
    RuntimeError
        When an exercise is not solved afterwards.
    """
    from nbclient import NotebookClient

    notebook = solved(number)
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(
        notebook, timeout=None, kernel_name="python3", resources=resources, record_timing=False
    ).execute()
    require_solved(notebook, number)
    return notebook


def digest(*parts: bytes) -> str:
    """Return the SHA-256 of parts in a row, in hexadecimal."""
    return hashlib.sha256(b"".join(parts)).hexdigest()


def package_digest() -> str:
    """Return a digest of the package that chapters run with: its Python, compiled code and data."""
    files = [path for path in sorted(PACKAGE.rglob("*")) if path.is_file() and path.suffix != ".pyc"]
    texts = [f"{path.relative_to(PACKAGE)} {digest(path.read_bytes())}\n" for path in files]
    return digest("".join(texts).encode())


def processor_seconds() -> float:
    """Return how many seconds processors have worked for finished children of this process."""
    times = os.times()
    return times.children_user + times.children_system


def make(numbers: list[str], into: Path = BOOK) -> list[str]:
    """Run the chapters that have changed since they were last run, or follow one that has.

    Parameters
    ----------
    numbers : list of str
        Numbers of the chapters, in order. Each begins with what the one before it in the list has left.
    into : Path
        Folder to which the notebooks are written.

    Returns
    -------
    list of str
        Numbers of those that were run.
    """
    key, before, ran, older = "", None, [], []
    package = package_digest()
    for number in numbers:
        source = notebook_source(number)
        folder, path = into / number, into / f"{source.stem}.ipynb"
        key = digest(key.encode(), source.read_bytes())
        kept = nbformat.read(path, as_version=4).metadata if path.is_file() else {}
        if kept.get("made_from") != key:
            print(f"minibert: running chapter {number} with its answers", flush=True)
            began, busy = time.monotonic(), processor_seconds()
            path.unlink(missing_ok=True)  # what an interrupted run leaves in the folder counts as unfinished
            shutil.rmtree(folder, ignore_errors=True)
            if before:
                shutil.copytree(before, folder)
            folder.mkdir(parents=True, exist_ok=True)
            notebook = run(number, folder)
            notebook.metadata |= {"made_from": key, "made_with": package}
            nbformat.write(notebook, path)
            taken, busy = time.monotonic() - began, processor_seconds() - busy
            print(f"minibert: chapter {number} took {taken:.0f} s, {busy:.0f} s of a processor", flush=True)
            ran.append(number)
        elif kept.get("made_with") != package:
            older.append(number)
        before = folder
    if older:
        print(f"minibert: the package has changed since these chapters were run: {', '.join(older)}")
        print(f"minibert: remove {into} to run them all again")
    return ran


def presented(notebook: Any) -> Any:
    """Lay a solved chapter out for readers: task, hints, the answer folded, what came of it, common mistakes.

    Parameters
    ----------
    notebook : nbformat.NotebookNode
        The chapter after its run, which is changed.

    Returns
    -------
    nbformat.NotebookNode
        The code of checks, questions and long pictures is folded as well.
    """
    cells: list[Any] = []
    for cell in notebook.cells:
        if found := re.search(SOLUTION.format(r"(\d\d\.\d+)"), cell.source):
            answers = [place for place, each in enumerate(cells) if each.metadata.get("answer") == found[1]]
            hints, mistakes = divided(cell.source, found[1])
            cells.insert(answers[0], nbformat.v4.new_markdown_cell(hints))
            cell.source = mistakes
        elif "answer" in cell.metadata:
            fold(cell, "answer", "Show the answer")
        elif "check" in cell.metadata:
            fold(cell, "check", "Show how it is judged")
        elif NO_GUESS in printed(cell):
            fold(cell, "question", "Show the cell")
        elif "course.show(" in cell.source and cell.source.count("\n") >= FOLDED_PICTURE:
            fold(cell, "picture", "Show the code of the picture")
        for output in cell.get("outputs", []):
            if output.output_type == "stream":
                output.text = output.text.replace(NO_GUESS, "Guess before you read on.")
        cells.append(cell)
    notebook.cells = cells
    return notebook


def divided(text: str, number: str) -> tuple[str, str]:
    """Divide the cell below an exercise into what is read before its answer and what after it.

    Parameters
    ----------
    text : str
        Markdown, with hints, the solution, its common mistakes, and perhaps a derivation.
    number : str
        Number of the exercise.

    Returns
    -------
    hints, mistakes : str
        Without the solution's code, which is a cell of its own.
    """
    hints, _, below = text.partition(SOLUTION.format(number))
    below = re.sub(r"```python\n.*?```\n*", "", below, count=1, flags=re.S)
    return hints.rstrip(), f"{MISTAKES}<summary>Common mistakes</summary>{below}"


def fold(cell: Any, kind: str, prompt: str) -> None:
    """Fold the code of a cell.

    Parameters
    ----------
    cell : nbformat.NotebookNode
    kind : str
        What it is, which becomes a tag of the cell.
    prompt : str
        What opens it, such as "Show the answer".
    """
    cell.metadata["tags"] = ["hide-input", kind]
    cell.metadata["mystnb"] = {"code_prompt_show": prompt, "code_prompt_hide": prompt.replace("Show", "Hide")}


def with_note(notebook: Any, text: str) -> Any:
    """Put a note below the title of a chapter.

    Parameters
    ----------
    notebook : nbformat.NotebookNode
        The chapter, which is changed.
    text : str
        Markdown.

    Returns
    -------
    nbformat.NotebookNode
    """
    title, newline, rest = notebook.cells[0].source.partition("\n")
    notebook.cells[0].source = f"{title}\n\n```{{note}}\n{text}\n```\n{newline}{rest}"
    return notebook


NO_PRINTER = "there is no Chromium to print a PDF (Debian, Ubuntu: apt install chromium)"


def printer() -> str | None:
    """Find the Chromium that prints the PDF; return its path, or None if there is none."""
    return shutil.which("chromium") or shutil.which("google-chrome")


def joined(outputs: list[Any]) -> list[Any]:
    """Join texts that a cell printed one after another; pictures and tables between them keep their places.

    Parameters
    ----------
    outputs : list of nbformat.NotebookNode
        Outputs of a cell, of which the first of a row is changed.

    Returns
    -------
    list of nbformat.NotebookNode
    """
    kept: list[Any] = []
    for output in outputs:
        is_text = output.output_type == "stream"
        if is_text and kept and kept[-1].get("name") == output.name:
            kept[-1].text += output.text
        else:
            kept.append(output)
    return kept


def page(name: str, is_solved: bool, into: Path = BOOK) -> str:
    """Return a notebook as the site shows it.

    Parameters
    ----------
    name : str
        Name of the notebook, such as "05_gradients_you_can_trust.ipynb".
    is_solved : bool
        Whether to take the chapter of the book, if it was made.
    into : Path
        Folder of the book.

    Returns
    -------
    str
        JSON of the notebook.
    """
    path, note = into / name, OPEN_NOTE
    if is_solved and path.is_file():
        notebook, note = presented(nbformat.read(path, as_version=4)), SOLVED_NOTE
        if printer():
            note += f"\n{PDF_LINK}"
    else:
        notebook = nbformat.read(HERE.parent / "notebooks" / name, as_version=4)
        for cell in notebook.cells:
            cell.source = cell.source.replace("<details><summary>Solution", f"{MISTAKES}<summary>Solution")
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = joined(cell.outputs)
    if exercises(notebook_source(name[:2])):
        notebook = with_note(notebook, note)
    return nbformat.writes(notebook)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run chapters of the course with the official answers.")
    parser.add_argument("chapters", nargs="*", metavar="NN", help="numbers of chapters; default: all")
    parser.add_argument("--into", type=Path, default=BOOK, help="folder for the notebooks (build/book)")
    given = parser.parse_args()
    if not printer():
        print(f"minibert: {NO_PRINTER}")
    made = make(given.chapters or CHAPTERS, given.into.resolve())
    print(f"minibert: {len(made)} chapters were run; the others have not changed")
