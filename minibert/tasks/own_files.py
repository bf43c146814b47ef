"""Files of one's own, in place of a task's official ones: which of a folder is meant, and how it is read."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from minibert.base.errors import InputError, MissingFile
from minibert.base.reading import PACKED
from minibert.data.tables import MissingColumn

ENDINGS = (".csv", ".tsv", ".jsonl")  # of tables


def matching(folder: Path, pattern: str) -> list[Path]:
    """Return the files whose names fit a pattern of `Path.glob`; those that are compressed come last."""
    places = (path for packed in ("", *PACKED) for path in sorted(folder.glob(pattern + packed)))
    return list(filter(Path.is_file, places))


def check_columns(task: str, columns: Iterable[str], known: Sequence[str]) -> None:
    """Raise InputError when columns are named that a task's tables do not have."""
    if unknown := [column for column in columns if column not in known]:
        raise InputError(f"$columns: {task} knows none but {', '.join(known)}.", columns=unknown)


def read_own(
    read: Callable[..., Any], path: Path, split: str, columns: dict[str, Any], unlabelled: dict[str, Any]
) -> Any:
    """Read the table of a split; that of "test" may lack its labels.

    The first row of a table is its header with the column of labels and without it. `read` is a reader of
    `data.tables` with `columns` as arguments; in "test", those of `unlabelled` replace them if a column named
    there is missing.
    """
    try:
        return read(path, **columns)
    except MissingColumn as error:  # a column with holes is another matter
        if split != "test" or error.role not in unlabelled:
            raise
        return read(path, **columns | unlabelled | {"header": error.header})


def own_file(data: Path, split: str, other: Sequence[str] = ()) -> Path:
    """Find the table of one split in a folder of one's own; a file is taken as it is.

    `other` are further names that are allowed. Raise InputError when there is none, or more than one.
    """
    data = Path(data)
    if data.is_file():
        return data
    if not data.is_dir():
        raise InputError(f"There is no file or folder {data}; name the one with your tables.")
    known = [*(split + ending for ending in ENDINGS), *other]
    found = [path for name in known for path in matching(data, name)]
    if len(found) != 1:
        there = f"has {' and '.join(path.name for path in found)}"
        if not found:
            others = [path.name for path in sorted(data.glob(f"{split}.*")) if path.is_file()]
            there = f"has no {split}.csv" + (f" but {' and '.join(others)}" if others else "")
        expected = f"one file of the split {split!r}: {', '.join(known[:-1])} or {known[-1]}."
        raise (InputError if found else MissingFile)(f"{data} {there}; there should be {expected}")
    return found[0]
