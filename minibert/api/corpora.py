"""Read the corpus that a caller from Python gives: names of files, or texts in memory, each a document."""

import glob
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from reprlib import repr as short
from typing import Any

from minibert.api.inputs import column_names, column_or_only, is_missing, listed
from minibert.base.errors import InputError, warn
from minibert.base.terminal import counted

LONGEST_NAME = 255  # most bytes in the name of a file, on most systems
SAMPLED = 1000  # how many strings are looked at to tell texts from names
FILE = re.compile(r"\.(txt|jsonl|ndjson|json|csv|tsv|tab|xml|gz|bz2|xz|zst|md)$", re.IGNORECASE)
# Chinese, Japanese, Korean, Thai and related scripts, which can be written without spaces between words.
WITHOUT_SPACES = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ud7ff\uf900-\ufaff\uff00-\uffef]"
)
SENTENCE_ENDS = tuple(".!?…。！？")
GLOB_SIGNS = "*["


def texts_or_names(corpus: Any, name: str = "text") -> tuple[list[str], None] | tuple[None, Any]:
    """Tell texts in memory from names of files.

    A list of strings is taken for texts if most of the strings look like texts: there is no file of that
    name, and the string has several words or lines, is longer than a name can be, or ends like a sentence.

    Parameters
    ----------
    corpus : str, path or iterable
        One name; or several names or texts, in a list, tuple, generator, array or column (pandas, polars,
        `datasets`); or a table with a column of texts.
    name : str, default "text"
        The column of a table, or the key if rows are dictionaries. If there is only one column, its name does
        not matter.

    Returns
    -------
    texts : list of str or None
        The texts, except for missing and empty ones, of which a warning tells; None if the corpus is names.
    names : object or None
        The names, as they were given or as a list; None if the corpus is texts.

    Raises
    ------
    InputError
        When the corpus is a single text or can't be iterated over, a table has no such column, or a text is
        not a string.
    """
    if isinstance(corpus, str):
        _refuse_single_text(corpus)
        return None, corpus
    if isinstance(corpus, os.PathLike) or (isinstance(corpus, tuple) and not corpus):
        return None, corpus
    if column_names(corpus) is not None:
        return _cleaned(_from_table(corpus, name)), None
    if isinstance(corpus, bytes) or not isinstance(corpus, Iterable):
        what = f"corpus={short(corpus)} is not a corpus"
        raise InputError(f"{what}; give the name of a file or a folder, or a list of texts.", corpus=corpus)
    is_set = isinstance(corpus, set | frozenset)
    rows = list(corpus) if is_set else listed(corpus, "corpus")
    if rows and all(isinstance(row, Mapping) for row in rows):
        cells = [_cell(row, name, index) for index, row in enumerate(rows)]
        return _cleaned(cells), None
    present = [row for row in rows[:SAMPLED] if not is_missing(row)]
    n_texts = sum(map(_is_text, present))
    has_paths = any(isinstance(row, os.PathLike) for row in rows)
    if has_paths or n_texts <= len(present) / 2:
        return None, _checked_names(rows)
    if is_set:
        raise InputError("corpus is a set, which has no order; give a list.")
    return _cleaned(rows), None


def _checked_names(rows: list[Any]) -> list[Any]:
    """Return names of files; raise InputError for anything that is neither a string nor a path."""
    for index, row in enumerate(rows):
        if not isinstance(row, str | os.PathLike):
            what = f"Item {index:,} of corpus is {short(row)}, of type {type(row).__name__}"
            raise InputError(f"{what}; give names of files, or texts.")
    return rows


def _refuse_single_text(corpus: str) -> None:
    """Raise InputError for a string that reads as a text, unless it could be a glob."""
    is_glob = any(sign in corpus for sign in GLOB_SIGNS)
    if not corpus or is_glob or not _is_text(corpus):
        return
    with suppress(ValueError):  # as in `_exists`
        if glob.glob(os.path.expanduser(corpus)):  # a question mark may end a sentence or be a glob's
            return
    what = f"corpus={short(corpus)} is not the name of a file or a folder"
    raise InputError(f"{what}; if it is a text, put it into a list of texts.", corpus=corpus)


def _from_table(table: Any, name: str) -> list[Any]:
    """Return a column of a table; raise InputError for a dictionary of tables."""
    names = column_names(table) or {}
    has_parts = isinstance(table, Mapping) and names
    if has_parts and all(column_names(part) for part in table.values()):
        splits = ", ".join(names)
        first = next(iter(names))
        raise InputError(f"corpus is several tables ({splits}); give one, such as corpus[{first!r}].")
    return column_or_only(table, name, "column", "corpus")


def _cell(row: Mapping[str, Any], name: str, index: int) -> Any:
    """Return the value of a row that has a name, or its only value."""
    if name not in row and len(row) == 1:
        (name,) = row
    if name not in row:
        existing = ", ".join(map(str, row)) or "none"
        raise InputError(
            f"Row {index:,} of corpus has no column={name!r}, only {existing}; name one.", column=name
        )
    return row[name]


def _is_text(value: Any) -> bool:
    """Return whether a string reads as a text rather than as the name of a file, a folder or a glob."""
    if not isinstance(value, str):
        return False
    if _exists(value):
        return False
    longest = max(len(part.encode(errors="replace")) for part in value.split(os.sep))
    if "\n" in value or "\0" in value or longest > LONGEST_NAME:
        return True
    if FILE.search(value):
        return False
    stripped = value.strip()
    words = stripped.split()
    if len(words) > 1:
        return True
    if os.sep in value or any(sign in value for sign in GLOB_SIGNS):
        return False
    return stripped.endswith(SENTENCE_ENDS) or bool(WITHOUT_SPACES.search(stripped))


def _exists(name: str) -> bool:
    """Return whether there is a file or a folder of a name, in which a leading ~ is the home folder."""
    try:
        return os.path.exists(os.path.expanduser(name))
    except ValueError:  # a character that no name has follows the ~
        return False


def _cleaned(rows: list[Any]) -> list[str]:
    """Return the texts that have words; warn if there are others."""
    texts = []
    for index, row in enumerate(rows):
        if is_missing(row):
            continue
        if not isinstance(row, str):
            kind = type(row).__name__
            raise InputError(f"Text {index:,} of corpus is {short(row)}, of type {kind}; give strings.")
        if row.strip():
            texts.append(row)
    if not texts:
        raise InputError(f"corpus is {counted(len(rows), 'text')}, none of which has words; give others.")
    n_left_out = len(rows) - len(texts)
    if n_left_out:
        verb = "is" if n_left_out == 1 else "are"
        warn(f"Of {len(rows):,} texts, {n_left_out:,} {verb} missing or empty, and left out.")
    return texts
