"""Sentences that a person reads: each misuse beside what minibert says of it, in one file for each front.

A front is a module of this folder with `cases`, a function that gives, by name, what is called to get a text.
Its sentences stand in the file with its name and .txt, which a test compares; `make sentences` renews them.
"""

import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parent
FRONTS = tuple(name for name in ("command_line", "api") if (HERE / f"{name}.py").exists())
HEAD = "Misuses, each with its answer. Written by `make sentences`; read it, and mend what reads badly."


def sentences(cases: Mapping[str, Callable[[], str]], folder: Path) -> str:
    """Call every case, in a folder with its files, and put names and texts one below the other.

    What a case leaves in the folder is removed before the next.

    Parameters
    ----------
    cases : mapping of str to function
        By what a person would type, the function that does it and returns what they see.
    folder : Path
        With the files that they name; the working folder meanwhile. Its path is left out of the texts.

    Returns
    -------
    str
    """
    before = os.getcwd()
    os.chdir(folder)
    files = set(folder.iterdir())
    blocks = [HEAD]
    try:
        for name, call in cases.items():
            with warnings.catch_warnings():
                warnings.simplefilter("default")
                text = call()
            for path in set(folder.iterdir()) - files:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            for path in (folder.resolve(), folder):
                text = text.replace(f"{path}/", "").replace(str(path), ".")
            blocks.append(f"{name}\n{text.rstrip()}")
    finally:
        os.chdir(before)
    return "\n\n".join(blocks) + "\n"


def of_front(name: str, folder: Path) -> str:
    """Return the sentences of a front as they are now.

    Parameters
    ----------
    name : str
        One of `FRONTS`.
    folder : Path
        An empty one, for the files of `scene.py`.

    Returns
    -------
    str
    """
    import_module("scene").write(folder)
    return sentences(import_module(name).cases(), folder)


def file_of(name: str) -> Path:
    """Return where the sentences of a front stand."""
    return HERE / f"{name}.txt"


def main(names: Iterable[str]) -> None:
    """Write the sentences of some fronts anew, of all of them where none is named."""
    for name in names or FRONTS:
        with TemporaryDirectory() as folder:
            text = of_front(name, Path(folder))
        file_of(name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.path.append(str(HERE.parent / "support"))
    main(sys.argv[1:])
