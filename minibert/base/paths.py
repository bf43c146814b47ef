"""What users give as the name of a file or a folder, as a path."""

import os
from pathlib import Path
from reprlib import repr as short
from typing import Any

from minibert.base.errors import InputError


def path_of(given: Any, name: str = "folder") -> Path:
    """Return the path that a user means, with ~ at its beginning as the home folder, as in a shell.

    Parameters
    ----------
    given : str or path
        The name of a file or a folder, there or not.
    name : str, default "folder"
        The argument by which it was given, for the error.

    Returns
    -------
    Path

    Raises
    ------
    InputError
        When it is something else, such as None or a number.
    """
    try:
        return Path(os.path.expanduser(given))
    except TypeError:
        what = f"{name}={short(given)} is not a path"
        raise InputError(f"{what}; give the name of a file or a folder.", **{name: given}) from None
