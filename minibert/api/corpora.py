"""What is given as a corpus in Python: names of files, or texts in memory, each of which is a document."""

import os
import re
from collections.abc import Iterable, Mapping
from reprlib import repr as short
from typing import Any

from minibert.api.inputs import column, column_names, is_missing, listed
from minibert.base.errors import InputError, warn
from minibert.base.terminal import counted

LONGEST_NAME = 255  # bytes, of a file on most systems
LOOKED_AT = 1000  # of many texts, to tell whether they are names
FILE = re.compile(r"\.(txt|jsonl|ndjson|json|csv|tsv|tab|xml|gz|bz2|xz|zst|md)$", re.IGNORECASE)
# Chinese, Japanese, Korean, Thai and their neighbours, which need no blanks between words.
WITHOUT_BLANKS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ud7ff\uf900-\ufaff\uff00-\uffef]"
)
ENDS = tuple(".!?…。！？")  # of sentences


def texts_or_names(corpus: Any, name: str = "text") -> tuple[list[str], None] | tuple[None, Any]:
    """Tell texts in memory from names of files.

    Of a list of strings it is texts when most of them read as such: they have several words or lines, are
    longer than any name, or end a sentence, and no file has that name.

    Parameters
    ----------
    corpus : str, path, or what can be gone through
        One name; or names, or texts: in a list, a tuple, a generator, an array, a column of pandas, polars
        or `datasets`, or a table of these, of which a column is taken.
    name : str, default "text"
        The column of a table, or of rows that are dictionaries. A table of one column needs no name.

    Returns
    -------
    texts : list of str or None
        Missing and empty ones are left out, with a warning; None where the corpus is names.
    names : as given, or a list, or None
        What the names were; None where the corpus is texts.

    Raises
    ------
    InputError
        When a table has no such column, or a text is of another type than a string.
    """
    if isinstance(corpus, str | os.PathLike) or (isinstance(corpus, tuple) and not corpus):
        return None, corpus
    if column_names(corpus) is not None:
        return _cleaned(_from_table(corpus, name)), None
    if isinstance(corpus, bytes) or not isinstance(corpus, Iterable):
        return None, corpus
    is_set = isinstance(corpus, set | frozenset)
    rows = list(corpus) if is_set else listed(corpus, "corpus")
    if rows and all(isinstance(row, Mapping) for row in rows):
        cells = [_cell(row, name, number) for number, row in enumerate(rows)]
        return _cleaned(cells), None
    if any(isinstance(row, os.PathLike) for row in rows):
        return None, rows
    looked_at = rows[:LOOKED_AT]
    if not any(map(_is_text, looked_at)):
        return None, rows
    present = [row for row in looked_at if not is_missing(row)]
    n_texts = sum(map(_is_text, present))
    if n_texts <= len(present) / 2:
        return None, rows
    if is_set:
        raise InputError("corpus is a set, which has no order; give a list.")
    return _cleaned(rows), None


def _from_table(table: Any, name: str) -> list[Any]:
    """Return the column of a table; raise InputError for several tables in one."""
    names = column_names(table) or {}
    is_several = isinstance(table, Mapping) and names
    if is_several and all(column_names(part) for part in table.values()):
        splits = ", ".join(names)
        first = next(iter(names))
        raise InputError(f"corpus is several tables ({splits}); give one, such as corpus[{first!r}].")
    if name not in names and len(names) == 1:
        (name,) = names
    return column(table, name, "column")


def _cell(row: Mapping[str, Any], name: str, number: int) -> Any:
    if name not in row and len(row) == 1:
        (name,) = row
    if name not in row:
        there = ", ".join(map(str, row)) or "none"
        raise InputError(
            f"Row {number:,} of corpus has no column={name!r}, only {there}; name one.", column=name
        )
    return row[name]


def _is_text(value: Any) -> bool:
    """Tell whether a string reads as a text, and not as the name of a file, a folder or a glob."""
    if not isinstance(value, str):
        return False
    if "\n" in value or "\0" in value or len(value.encode(errors="replace")) > LONGEST_NAME:
        return True
    if FILE.search(value) or os.path.exists(value):
        return False
    stripped = value.strip()
    words = stripped.split()
    if len(words) > 1:
        return True
    if os.sep in value or any(sign in value for sign in "*["):
        return False
    return stripped.endswith(ENDS) or bool(WITHOUT_BLANKS.search(stripped))


def _cleaned(rows: list[Any]) -> list[str]:
    """Return the texts among rows that have words, with a warning of others."""
    texts = []
    for number, row in enumerate(rows):
        if is_missing(row):
            continue
        if not isinstance(row, str):
            kind = type(row).__name__
            raise InputError(f"Text {number:,} of corpus is {short(row)}, of type {kind}; give strings.")
        if row.strip():
            texts.append(row)
    if not texts:
        raise InputError(f"corpus is {counted(len(rows), 'text')}, none of which has words; give others.")
    if len(texts) < len(rows):
        n_left_out = len(rows) - len(texts)
        verb = "is" if n_left_out == 1 else "are"
        warn(f"Of {len(rows):,} texts, {n_left_out:,} {verb} missing or empty, and left out.")
    return texts
