"""The trained models in the package: folders of `minibert/pretrained`, known by their names."""

import hashlib
from functools import cache
from pathlib import Path

from minibert.base.errors import InputError
from minibert.base.files import open_file

DEFAULT = "english"  # which answers where a command is given no model
BUNDLED = (DEFAULT,)
FOLDER = Path(__file__).resolve().parents[1] / "pretrained"
DIGESTS_FILE = "SHA256SUMS"  # beside the files of a model, as sha256sum writes and checks it


def bundled_folder(name: str) -> Path | None:
    """Return the folder of a model in the package, whose files are checked once in a process.

    Parameters
    ----------
    name : str
        Any name of a model.

    Returns
    -------
    Path or None
        None where no bundled model is called so, or this installation lacks it.

    Raises
    ------
    InputError
        When a file of the model is missing, or not the one that was packed.
    """
    folder = FOLDER / name
    if name not in BUNDLED or not folder.is_dir():
        return None
    _check_digests(folder)
    return folder


@cache
def _check_digests(folder: Path) -> None:
    """Raise InputError unless every file that `DIGESTS_FILE` lists is there and has its digest."""
    for line in _contents(folder / DIGESTS_FILE).decode("utf-8", "replace").splitlines():
        expected, _, file = line.partition("  ")
        path = folder / file
        if hashlib.sha256(_contents(path)).hexdigest() != expected:
            raise _damaged(path, "its SHA-256 is not the recorded one")


def _contents(path: Path) -> bytes:
    """Return the bytes of a file; raise InputError if it is missing."""
    if not path.is_file():
        raise _damaged(path, "it is missing")
    with open_file(path) as opened:
        return opened.read()


def _damaged(path: Path, why: str) -> InputError:
    return InputError(f"{path}, part of a model in the package, is damaged: {why}; install minibert again.")


def not_installed(name: str) -> str:
    """Return the sentence about a model that belongs to the package, but is missing in this installation.

    Parameters
    ----------
    name : str
        One of `BUNDLED`.

    Returns
    -------
    str
    """
    how = (
        f"install it from a checkout with minibert/{FOLDER.name}/{name}, which make {name} trains and writes"
    )
    return f"This installation of minibert lacks its model '{name}'; {how}."
