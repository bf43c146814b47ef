"""Custom files instead of a task's official ones: which file of a folder to read, and how."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from minibert.base.errors import InputError, MissingFile
from minibert.base.reading import PACKED
from minibert.base.terminal import listed
from minibert.data.tables import MissingColumn

ENDINGS = (".csv", ".tsv", ".jsonl")  # suffixes of tables


def matching(folder: Path, pattern: str) -> list[Path]:
    """Return the files whose names match a pattern; compressed ones come last.

    Parameters
    ----------
    folder : Path
        Where to look; folders in it are searched only if the pattern says so.
    pattern : str
        A pattern for `Path.glob`, without the suffix of compressed files.

    Returns
    -------
    list of Path
        In alphabetical order for every kind of compression.
    """
    paths: list[Path] = []
    for ending in ("", *PACKED):
        paths += sorted(folder.glob(pattern + ending))
    return [path for path in paths if path.is_file()]


def check_columns(task: str, columns: Iterable[str], known: Sequence[str]) -> None:
    """Refuse columns that a task's tables do not have.

    Parameters
    ----------
    task : str
        Name of the task, for the message.
    columns : iterable of str
        Roles of columns that were given, such as "text".
    known : sequence of str
        Roles that columns may have.

    Raises
    ------
    InputError
        When a role is not known; the error lists those that are.
    """
    if unknown := [column for column in columns if column not in known]:
        problem = f"{unknown[0]!r} in `columns` is not a column of {task}"
        raise InputError(f"{problem}; choose from {', '.join(known)}.", columns=unknown)


def read_custom(
    read: Callable[..., Any], path: Path, split: str, columns: dict[str, Any], unlabelled: dict[str, Any]
) -> Any:
    """Read the table of a split; that of "test" may lack its labels.

    Whether or not a table has a column of labels, its first row is read as a header in the same way.

    Parameters
    ----------
    read : callable
        A reader of `data.tables`, called with `columns` as arguments.
    path : Path
        The table.
    split : str
        "train", "dev" or "test".
    columns : dict
        Arguments for `read`, such as the names of columns by their role.
    unlabelled : dict
        For "test", arguments that replace those in `columns` if the column of one of these roles is missing.

    Returns
    -------
    object
        Whatever `read` returns.

    Raises
    ------
    MissingColumn
        When a column is missing that the split needs.
    """
    try:
        return read(path, **columns)
    except MissingColumn as error:  # a column with empty cells is another error
        if split != "test" or error.role not in unlabelled:
            raise
        return read(path, **columns | unlabelled | {"header": error.header})


def custom_file(data: Path, split: str, other: Sequence[str] = ()) -> Path:
    """Find the table of one split in a folder of custom ones; a path to a file is taken as it is.

    Parameters
    ----------
    data : Path
        The folder, or a file.
    split : str
        "train", "dev" or "test".
    other : sequence of str, optional
        File names that are allowed as well as the split's name with one of `ENDINGS`.

    Returns
    -------
    Path
        The only file that matches, compressed or not.

    Raises
    ------
    InputError
        When there is no such folder, or more than one file matches.
    MissingFile
        When no file matches.
    """
    data = Path(data)
    if data.is_file():
        return data
    if not data.is_dir():
        raise InputError(f"There is no file or folder '{data}'; name the one with your tables.")
    known = [split + ending for ending in ENDINGS]
    known += other
    paths = [path for name in known for path in matching(data, name)]
    if len(paths) == 1:
        return paths[0]
    expected = f"one file of the split {split!r}: {listed(known, 'or')}."
    if paths:
        names = " and ".join(path.name for path in paths)
        raise InputError(f"'{data}' has {names}; there should be {expected}")
    content = f"has no {split}.csv"
    others = [path.name for path in sorted(data.glob(f"{split}.*")) if path.is_file()]
    if others:
        content += f" but {' and '.join(others)}"
    raise MissingFile(f"'{data}' {content}; there should be {expected}")
