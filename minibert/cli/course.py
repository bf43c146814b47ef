"""Lay out the course, and grade it: notebooks to write your BERT in.

Copies the notebooks into a folder, without their outputs. Open them in order
with Jupyter; the first cell of each says what it needs. What you write is
checked at once, and saved to mine.py next to the notebooks. --progress tells
which exercises in such a folder are right.

There are three commands for teachers, which take the place of the folder (for a
folder with such a name, write ./grade):

`grade` marks the folders that students hand in, each as the course laid it
out. It reads every exercise from the notebook, without running the notebook,
and judges it with questions drawn from --seed: the same seed gives the same
marks, and nobody who does not know it can prepare for them. Answers run in
processes of their own, without access to files, and with 10 seconds and 1 GiB
for an exercise. The marks are right, wrong, refused (not the student's own
work; the reason is given), missing, timed out and crashed. The table in --csv
has a line for each folder and exercise. It is rewritten after each folder, so
Ctrl-C keeps what was graded.

`notes` prints the usual mistakes in each exercise, with its difficulty and the
minutes that it takes; `glossary` prints the terms of all chapters. Both print
Markdown.

examples:
  minibert course my-course
  jupyter lab my-course
  minibert course my-course --progress
  minibert course grade handed-in/* --seed 42 --csv marks.csv
  minibert course notes 05 06
  minibert course glossary
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from minibert.base.errors import InputError
from minibert.base.files import atomic_json, atomic_text, require_folder
from minibert.base.json_files import read_json
from minibert.base.terminal import aligned, counted, emit, json_text, printable, some_of
from minibert.cli.shared.flags import JSON, QUIET, add_flag, add_switches

WORDS = ("grade", "notes", "glossary")  # take the place of a folder


def add(parser: ArgumentParser) -> None:
    """Add the flags of the command, and its usage lines.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of this command.
    """
    parser.usage = (
        "minibert course DIR [--progress] [--seed N] [--json]\n"
        "       minibert course grade DIR [DIR ...] --seed N --csv FILE [--quiet] [--json]\n"
        "       minibert course notes [CHAPTER ...]\n"
        "       minibert course glossary"
    )
    text = "where to put the notebooks; created if it does not exist. Or grade, notes or glossary"
    parser.add_argument("folder", metavar="DIR", help=text)
    text = "the folders to grade, or the chapters to print notes on, such as 05 (default: all)"
    parser.add_argument("folders", metavar="DIR|CHAPTER", nargs="*", default=[], help=text)
    add_switches(parser, progress="judge the exercises in DIR, and print how many are right in each chapter")
    text = "seed of the questions (with --progress, by default: different ones each time)"
    add_flag(parser, "--seed N", text, type=int)
    add_flag(parser, "--csv FILE", "the table of marks that `grade` writes; an existing file is replaced")
    add_switches(parser, quiet=QUIET, json=JSON)


def run(arguments: Namespace) -> None:
    """Lay out the course, or do what the word in place of the folder says.

    Parameters
    ----------
    arguments : Namespace
        What the flags of `add` were parsed to.

    Raises
    ------
    InputError
        When flags or folders don't belong to what is to be done, or can't be used.
    """
    word = arguments.folder if arguments.folder in WORDS else ""
    is_given = {
        "progress": arguments.progress,
        "seed": arguments.seed is not None,
        "csv": arguments.csv,
        "json": arguments.json,
    }
    laying_out = ("progress", "seed", "json") if arguments.progress else ("json",)
    taken = {"grade": ("seed", "csv", "json"), "": laying_out}.get(word, ())
    for name, value in is_given.items():
        if value and name not in taken:
            where = f"course {word}" if word else "laying out the course"
            raise InputError(f"`{name}` is not for {where}; leave it out.")
    if arguments.folders and not word:
        names = some_of(arguments.folders)
        raise InputError(f"{names}: the course is laid out in one folder; give {arguments.folder} alone.")
    if word == "grade":
        _grade(arguments)
    elif word == "notes":
        from minibert.course.notes import instructors_notes

        emit(instructors_notes(arguments.folders))
    elif word == "glossary":
        from minibert.course.notes import glossary

        if arguments.folders:
            raise InputError(f"{some_of(arguments.folders)}: the glossary is of all chapters; give none.")
        emit(glossary())
    elif arguments.progress:
        _show_progress(arguments)
    else:
        _lay_out(arguments)


def _lay_out(arguments: Namespace) -> None:
    """Copy the notebooks into the folder."""
    from minibert.course.exercises import notebook_folder

    folder = Path(arguments.folder)
    sources = sorted(notebook_folder().glob("[0-9][0-9]_*.ipynb"))
    if not sources:
        raise InputError(f"{notebook_folder()} has no notebooks; reinstall minibert from a checkout.")
    existing = [path.name for path in sources if (folder / path.name).exists()]
    if existing:
        raise InputError(f"'{folder}' has {some_of(existing)} already; choose another folder.")
    require_folder(folder, "another folder")
    for path in sources:
        notebook = read_json(path)
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                cell |= {"outputs": [], "execution_count": None}
        atomic_json(folder / path.name, notebook, indent=1)
    if arguments.json:
        emit(json_text({"folder": str(folder), "notebooks": [path.name for path in sources]}))
    else:
        first = folder / sources[0].name
        emit(f"{folder} has {len(sources)} notebooks. Begin with  jupyter lab {first}")


def _show_progress(arguments: Namespace) -> None:
    """Judge the exercises of one folder, and print how many are right in each chapter."""
    from minibert.course.answers import require_course
    from minibert.course.grading import any_seed, chapters, count_exercises, grade
    from minibert.course.notes import plans
    from minibert.training.runlog import Progress

    folder = Path(arguments.folder)
    require_course(folder)
    seed = any_seed() if arguments.seed is None else arguments.seed
    with Progress(count_exercises(), "exercises", not arguments.quiet) as progress:
        marks = grade(folder, seed, progress.add)
    if arguments.json:
        emit(json_text({"folder": str(folder), "seed": seed, "marks": [mark._asdict() for mark in marks]}))
        return
    rows = []
    for plan in plans(chapters()):
        of_chapter = [mark for mark in marks if mark.chapter == plan.number]
        is_right = [mark.mark == "right" for mark in of_chapter]
        minutes = sum(task.minutes for task, right in zip(plan.tasks, is_right, strict=True) if not right)
        rest = f"about {minutes} minutes left" if minutes else ""
        rows.append((plan.number, printable(plan.title), f"{sum(is_right)} of {len(is_right)}", rest))
    for line in aligned(rows):
        emit(line)
    for mark in marks:
        if mark.mark not in ("right", "missing"):
            emit(f"{mark.exercise} {mark.mark}: {printable(mark.message)}")
    n_right = sum(mark.mark == "right" for mark in marks)
    emit(f"{n_right} of {counted(len(marks), 'exercise')} are right (seed {seed}).")


def _grade(arguments: Namespace) -> None:
    """Mark the folders of students; write the table after each folder."""
    from minibert.course.answers import require_course
    from minibert.course.grading import Mark, count_exercises, grade
    from minibert.training.runlog import Progress, logger

    folders = [Path(folder) for folder in arguments.folders]
    if not folders:
        raise InputError("Grading needs the folders of students; give one or more.")
    if arguments.seed is None or not arguments.csv:
        raise InputError("Grading needs `seed` and `csv`; give both.")
    table = Path(arguments.csv)
    if table.is_dir():
        raise InputError(f"csv={arguments.csv!r} is a folder; name a file in it.", csv=arguments.csv)
    require_folder(table.parent, "another `csv`")
    for folder in folders:
        require_course(folder)
    marks: list[Mark] = []
    by_folder: dict[str, list[Mark]] = {}
    with Progress(len(folders) * count_exercises(), "exercises", not arguments.quiet) as progress:
        try:
            for folder in folders:
                graded = grade(folder, arguments.seed, progress.add)
                by_folder[str(folder)] = graded
                marks += graded
                atomic_text(table, _csv_of(marks))
                if not arguments.quiet:
                    logger.info(_summary(str(folder), graded))
        except KeyboardInterrupt:
            logger.info(f"{table} has {counted(len(by_folder), 'folder')} of {len(folders)}.")
            raise
    if arguments.json:
        result = {"seed": arguments.seed, "csv": str(table), "marks": [mark._asdict() for mark in marks]}
        emit(json_text(result))
    else:
        _print_table(by_folder)
        emit(f"{table} has {counted(len(marks), 'line')} (seed {arguments.seed}).")


def _summary(folder: str, marks: list[Any]) -> str:
    """Summarise the marks of a folder in one line: how often each was given."""
    from minibert.course.grading import tally

    seconds = sum(mark.seconds for mark in marks)
    counts = ", ".join(f"{count} {name}" for name, count in tally(marks))
    return f"{printable(folder)}: {counts} of {counted(len(marks), 'exercise')}, {seconds:.0f} seconds"


def _print_table(by_folder: dict[str, list[Any]]) -> None:
    """Print how much of each chapter is right, the totals, and what a teacher should look at."""
    from minibert.course.grading import chapters

    numbers = chapters()
    rows = [["", *numbers, "right"]]
    for folder, marks in by_folder.items():
        row = [printable(folder)]
        for number in numbers:
            is_right = [mark.mark == "right" for mark in marks if mark.chapter == number]
            row.append(f"{sum(is_right)}/{len(is_right)}")
        n_right = sum(mark.mark == "right" for mark in marks)
        rows.append([*row, f"{n_right}/{len(marks)}"])
    for line in aligned(rows, 1):
        emit(line)
    for folder, marks in by_folder.items():
        emit(_summary(folder, marks))
        for mark in marks:
            if mark.mark in ("refused", "timed out", "crashed"):
                emit(f"  {mark.exercise} {mark.mark}: {printable(mark.message)}")


def _csv_of(marks: list[Any]) -> str:
    """Return marks as CSV; a spreadsheet takes no cell for a formula."""
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("folder", "chapter", "exercise", "mark", "message", "seconds"))
    for mark in marks:
        cells = [printable(cell) if isinstance(cell, str) else cell for cell in mark]
        for column, cell in enumerate(cells):
            if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@")):
                cells[column] = f"'{cell}"
        writer.writerow(cells)
    return text.getvalue()
