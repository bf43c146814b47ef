"""Lay out the course: notebooks in which you write your own BERT.

Copies the notebooks into a folder, without their outputs. Open them in order
with Jupyter; the first cell of each says what it needs. What you write is
checked at once, and saved to mine.py beside the notebooks.

examples:
  minibert course my-course
  minibert course my-course --json
  jupyter lab my-course
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from minibert.base.errors import InputError
from minibert.base.files import atomic_json, require_folder
from minibert.base.json_files import read_json
from minibert.base.terminal import emit, json_text, some_of
from minibert.cli.shared.flags import JSON, add_switches


def add(parser: ArgumentParser) -> None:
    """Add the flags of the command.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of this command.
    """
    parser.add_argument(
        "folder", metavar="DIR", help="where to put the notebooks; created if it does not exist"
    )
    add_switches(parser, json=JSON)


def run(arguments: Namespace) -> None:
    """Copy the notebooks into the folder.

    Parameters
    ----------
    arguments : Namespace
        What the flags of `add` were parsed to.

    Raises
    ------
    InputError
        When there are none to copy, the folder has one already, or can't be written.
    """
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
