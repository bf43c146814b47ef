"""Convert the names of files and folders that users give to paths."""

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
        When something else is given, such as None or a number, or "", which would mean the working folder.
    """
    if isinstance(given, str) and not given:
        raise InputError(f"{name}='' names no file or folder; give one.", **{name: given})
    try:
        return Path(os.path.expanduser(given))
    except TypeError:
        what = f"{name}={short(given)} is not a path"
        raise InputError(f"{what}; give the name of a file or a folder.", **{name: given}) from None
