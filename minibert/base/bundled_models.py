"""The trained models in the package: folders of `minibert/pretrained`, known by their names."""

from functools import cache
from pathlib import Path, PurePosixPath

from minibert.base.errors import InputError
from minibert.base.files import sha256_of
from minibert.base.reading import byte_pieces, whole_lines

DEFAULT = "english"  # which answers where a command is given no model
BUNDLED = (DEFAULT,)
ATTRIBUTIONS = {  # what whoever passes on a model that began with one of these should say
    DEFAULT: "english, a model of minibert, was trained on text of the English Wikipedia by its authors "
    "(https://en.wikipedia.org, CC BY-SA) and on books in the public domain."
}
FOLDER = Path(__file__).resolve().parents[1] / "pretrained"
DIGESTS_FILE = "SHA256SUMS"  # beside the files of a model, as sha256sum writes and checks it


def bundled_folder(name: str, is_checked: bool = True) -> Path | None:
    """Return the folder of a model in the package, whose files are checked once in a process.

    Parameters
    ----------
    name : str
        Any name of a model.
    is_checked : bool, default True
        Compare the files with their digests.

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
    if is_checked:
        _check_digests(folder)
    return folder


@cache
def _check_digests(folder: Path) -> None:
    """Raise InputError unless every file that `DIGESTS_FILE` lists is there and has its digest."""
    digests = listed_digests(_present(folder / DIGESTS_FILE))
    for name, expected in digests.items():
        path = _present(folder / name)
        if sha256_of(path) != expected:
            raise _damaged(path, "its SHA-256 is not the recorded one")


def listed_digests(path: Path) -> dict[str, str]:
    """Read a list of digests, as sha256sum writes it.

    Parameters
    ----------
    path : Path
        The list.

    Returns
    -------
    dict of str to str
        The SHA-256 of each file, by its name, in the order of the list.

    Raises
    ------
    InputError
        When the list can't be read.
    """
    digests = {}
    for block in whole_lines(byte_pieces(path, streams=False), path):
        for line in filter(str.strip, block.decode("utf-8", "replace").splitlines()):
            digest, _, name = line.partition(" ")
            digests[str(PurePosixPath(name[1:]))] = digest.lower()  # after a space or, if binary, a star
    return digests


def _present(path: Path) -> Path:
    """Return the path of a file; raise InputError if it is missing."""
    if not path.is_file():
        raise _damaged(path, "it is missing")
    return path


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
