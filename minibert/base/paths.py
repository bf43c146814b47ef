"""Convert the names of files and folders that users give to paths."""

import errno
import os
from pathlib import Path
from reprlib import repr as short
from typing import Any

from minibert.base.errors import InputError


def path_of(given: Any, name: str = "folder") -> Path:
    """Return the path that a user means; a leading ~ is the home folder, as in a shell.

    Parameters
    ----------
    given : str or path
        The name of a file or a folder, which need not exist.
    name : str, default "folder"
        The argument that gave it, for the error.

    Returns
    -------
    Path

    Raises
    ------
    InputError
        When something else is given, such as None or a number, or "", which would mean the working folder; or
        when the name is longer than the system allows.
    """
    if isinstance(given, str) and not given:
        raise InputError(f"{name}='' names no file or folder; give one.", **{name: given})
    try:
        path = Path(os.path.expanduser(given))
    except TypeError:
        what = f"{name}={short(given)} is not a path"
        raise InputError(f"{what}; give the name of a file or a folder.", **{name: given}) from None
    if is_too_long(path):
        what = f"{name}={short(str(given))} is longer than the name of a file or a folder can be"
        raise InputError(f"{what}; give a shorter one.", **{name: given})
    return path


def is_too_long(path: Path) -> bool:
    """Return whether the system refuses a path for its length.

    Parameters
    ----------
    path : Path
        The path of a file or a folder, which need not exist.

    Returns
    -------
    bool
    """
    try:
        os.stat(path)
    except OSError as error:
        return error.errno == errno.ENAMETOOLONG
    except ValueError:  # a null byte, of which whoever opens it complains
        pass
    return False
