"""Lay out the course: notebooks in which you write an engine and train a BERT with it.

Copies the notebooks into a folder, without their outputs. Open them in order with
Jupyter; the first cell of each says what it needs. What you write is judged at
once, and kept in mine.py beside the notebooks.

examples:
  minibert course my-course
  jupyter lab my-course
"""

import argparse
import json
from pathlib import Path
from typing import Any

from minibert.cli.shared.flags import add_json
from minibert.errors import InputError
from minibert.files import atomic_text
from minibert.terminal import emit, json_text, some_of


def add(parser: Any) -> None:
    """Add the flags of the command."""
    parser.add_argument("folder", metavar="DIR", help="where to put the notebooks; made if it is not there")
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Copy the notebooks, and say how to begin."""
    from minibert.course.exercises import notebook_folder

    folder = Path(arguments.folder)
    sources = sorted(notebook_folder().glob("[0-9][0-9]_*.ipynb"))
    if not sources:
        raise InputError(f"{notebook_folder()} has no notebooks; install minibert anew, from a checkout.")
    if there := [path.name for path in sources if (folder / path.name).exists()]:
        raise InputError(f"{folder} has {some_of(there)} already; choose another folder.")
    for path in sources:
        notebook = json.loads(path.read_text("utf-8"))
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                cell |= {"outputs": [], "execution_count": None}
        atomic_text(folder / path.name, json.dumps(notebook, ensure_ascii=False, indent=1) + "\n")
    if arguments.json:
        emit(json_text({"folder": str(folder), "notebooks": [path.name for path in sources]}))
    else:
        emit(f"{folder} has {len(sources)} notebooks. Begin with  jupyter lab {folder / sources[0].name}")
