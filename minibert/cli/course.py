"""Lay out the course, and grade it: notebooks to write your BERT in.

Copies the notebooks into a folder, without their outputs. Open them in order
with Jupyter; the first cell of each says what it needs. What you write is
checked at once, and saved to mine.py beside the notebooks. With --progress it
says of such a folder which exercises are right.

For teachers, three words in place of the folder (a folder of such a name is
./grade):

`grade` marks the folders that students hand in, each as the course laid it
out. Every exercise is read from the notebook, without running the notebook,
and judged with questions drawn from --seed: the same seed gives the same
marks, and who does not know it can't prepare for it. Answers run in processes
of their own, without files and with 10 seconds and 1 GiB for an exercise. The
marks are right, wrong, refused (not the student's own work; the reason is
given), missing, timed out and crashed. The table in --csv has a line for each
folder and exercise and is written anew after each folder, so Ctrl-C keeps what
was graded.

`notes` prints the usual mistakes of each exercise, with minutes and
difficulty, and `glossary` the words of all chapters, both as Markdown.

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

WORDS = ("grade", "notes", "glossary")  # instead of a folder


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
    text = "what to grade, or the chapters to print notes of, such as 05 (default: all)"
    parser.add_argument("folders", metavar="DIR|CHAPTER", nargs="*", help=text)
    add_switches(parser, progress="judge what is written in DIR, and say what is right in each chapter")
    text = "of the questions that are asked (default with --progress: others each time)"
    add_flag(parser, "--seed N", text, type=int)
    add_flag(parser, "--csv FILE", "the table of marks that `grade` writes; one that is there is replaced")
    add_switches(parser, quiet=QUIET, json=JSON)


def run(arguments: Namespace) -> None:
    """Lay the course out, or do what a word in place of the folder says.

    Parameters
    ----------
    arguments : Namespace
        What the flags of `add` were parsed to.

    Raises
    ------
    InputError
        When something that was given does not fit, or can't be used.
    """
    word = arguments.folder if arguments.folder in WORDS else ""
    given = {"progress": arguments.progress, "seed": arguments.seed is not None, "csv": arguments.csv}
    taken = {"grade": ("seed", "csv"), "": ("progress", "seed") if arguments.progress else ()}.get(word, ())
    for name, is_given in given.items():
        if is_given and name not in taken:
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
    there = [path.name for path in sources if (folder / path.name).exists()]
    if there:
        raise InputError(f"'{folder}' has {some_of(there)} already; choose another folder.")
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
    """Judge the exercises of one folder, and print how many of each chapter are right."""
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
        emit(json_text({"folder": str(folder), "seed": seed, "marks": [one._asdict() for one in marks]}))
        return
    rows = []
    for plan in plans(chapters()):
        own = [one for one in marks if one.chapter == plan.number]
        right = sum(one.mark == "right" for one in own)
        left = sum(task.minutes for task, one in zip(plan.tasks, own, strict=True) if one.mark != "right")
        rest = f"about {left} minutes left" if left else ""
        rows.append((plan.number, printable(plan.title), f"{right} of {len(own)}", rest))
    for line in aligned(rows):
        emit(line)
    for one in marks:
        if one.mark not in ("right", "missing"):
            emit(f"{one.exercise} {one.mark}: {printable(one.message)}")
    right = sum(one.mark == "right" for one in marks)
    emit(f"{right} of {counted(len(marks), 'exercise')} are right (seed {seed}).")


def _grade(arguments: Namespace) -> None:
    """Mark the folders of students; write the table after each."""
    from minibert.course.answers import require_course
    from minibert.course.grading import Mark, count_exercises, grade
    from minibert.training.runlog import Progress, logger

    folders = [Path(one) for one in arguments.folders]
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
                own = grade(folder, arguments.seed, progress.add)
                by_folder[str(folder)] = own
                marks += own
                atomic_text(table, _csv_of(marks))
                if not arguments.quiet:
                    logger.info(_summary(str(folder), own))
        except KeyboardInterrupt:
            logger.info(f"{table} has {counted(len(by_folder), 'folder')} of {len(folders)}.")
            raise
    if arguments.json:
        result = {"seed": arguments.seed, "csv": str(table), "marks": [one._asdict() for one in marks]}
        emit(json_text(result))
    else:
        _print_table(by_folder)
        emit(f"{table} has {counted(len(marks), 'line')} (seed {arguments.seed}).")


def _summary(folder: str, marks: list[Any]) -> str:
    """Return how often each mark was given to a folder, in a line."""
    from minibert.course.grading import tally

    seconds = sum(one.seconds for one in marks)
    counts = ", ".join(f"{count} {name}" for name, count in tally(marks))
    return f"{printable(folder)}: {counts} of {counted(len(marks), 'exercise')}, {seconds:.0f} seconds"


def _print_table(by_folder: dict[str, list[Any]]) -> None:
    """Print what of each chapter is right, the sums, and what a teacher has to look at."""
    from minibert.course.grading import chapters

    numbers = chapters()
    rows = [["", *numbers, "right"]]
    for folder, marks in by_folder.items():
        row = [printable(folder)]
        for number in numbers:
            own = [one.mark == "right" for one in marks if one.chapter == number]
            row.append(f"{sum(own)}/{len(own)}")
        right = sum(one.mark == "right" for one in marks)
        rows.append([*row, f"{right}/{len(marks)}"])
    for line in aligned(rows, 1):
        emit(line)
    for folder, marks in by_folder.items():
        emit(_summary(folder, marks))
        for one in marks:
            if one.mark in ("refused", "timed out", "crashed"):
                emit(f"  {one.exercise} {one.mark}: {printable(one.message)}")


def _csv_of(marks: list[Any]) -> str:
    """Return marks as a table; no cell of it is a formula where a spreadsheet opens it."""
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("folder", "chapter", "exercise", "mark", "message", "seconds"))
    for one in marks:
        cells = [printable(cell) if isinstance(cell, str) else cell for cell in one]
        for place, cell in enumerate(cells):
            if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@")):
                cells[place] = f"'{cell}"
        writer.writerow(cells)
    return text.getvalue()
