"""Data as they come: lists, arrays, columns of pandas, tables of pandas, polars, `datasets`, dictionaries.

None of these libraries is imported. A column is whatever can be gone through; a table is whatever has columns
by name.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from reprlib import repr as short
from typing import Any

import numpy as np

from minibert.base.errors import InputError

GENERATORS = np.random.Generator | np.random.RandomState


def column_names(data: Any) -> dict[str, Any] | None:
    """Return the names of the columns of a table, each with what it is there; None for what is no table.

    Examples
    --------
    >>> column_names({"text": ["a", "b"], 1: [0, 1]}), column_names(["a", "b"])
    ({'text': 'text', '1': 1}, None)
    """
    names = getattr(data, "column_names", None)  # of datasets.Dataset; of pandas and polars the next
    names = getattr(data, "columns", None) if names is None else names
    names = data if isinstance(data, Mapping) else names
    return None if names is None or callable(names) else {str(name): name for name in names}


def column(data: Any, name: str, role: str) -> list[Any]:
    """Return a column of a table; raise InputError when it has none of the name, given as argument `role`."""
    if callable(getattr(data, "collect", None)):
        raise InputError("The table is a lazy one; give what its collect() returns.")
    if (name := str(name)) not in (names := column_names(data) or {}):
        there = ", ".join(names) or "none"
        message = f"The table has no column for ${role}, only {there}; name one of these."
        raise InputError(message, **{role: name})
    values = data[names[name]]
    if column_names(values) is not None:  # as pandas has it
        raise InputError(f"The table has two columns named {name!r}; rename one.")
    return listed(values, role)


def listed(values: Any, name: str) -> list[Any]:
    """Return what is given one after another as a list, of an array its rows; InputError for all else."""
    if isinstance(values, str | bytes):
        raise InputError(f"{name}={short(values)} is one text; give a list of them.")
    if hasattr(values, "toarray"):
        instead = "texts" if name == "X" else f"{name}.toarray()"
        raise InputError(f"{name} is a sparse matrix; give {instead}.")
    if isinstance(values, set | frozenset):
        raise InputError(f"{name} is a set, which has no order; give a list.")
    methods = ("tolist", "to_list", "to_pylist")  # of NumPy and pandas, polars, pyarrow
    if method := next((one for one in methods if hasattr(values, one)), ""):
        found = getattr(values, method)()
    elif isinstance(values, Iterable):
        found = list(values)
    elif hasattr(values, "__array__"):
        found = np.asarray(values).tolist()
    else:
        raise InputError(f"{name}={short(values)} is no list; give one, an array, or a column of a table.")
    if not isinstance(found, list):
        raise InputError(f"{name}={short(values)} is a single value; give a list of them.")
    return found


def text_pairs(data: Any, text: str, second: str | None, *roles: str) -> list[tuple[str, str | None]]:
    """Return texts, each with its second one or None, of a list or of these columns of a table.

    A table of one column needs no names. Raise InputError when there is no text, or a row is none; it names
    the row, counted from 0, and the columns by their `roles`, "text" and "second" when left out.
    """
    first, other = roles or ("text", "second")
    if (names := column_names(data)) is None:
        rows = listed(data, "X")
        if rows and all(isinstance(row, list | tuple) and len(row) == 1 for row in rows):
            rows = [row[0] for row in rows]  # a matrix of one column
    else:
        if text not in names and len(names) == 1:
            (text,) = names
        rows = column(data, text, first)
        if second is not None:
            seconds = column(data, second, other)
            if len(rows) != len(seconds):
                both = f"{len(rows):,} texts and {len(seconds):,} of ${other}"
                raise InputError(f"The table has {both}; give each text one.", **{other: second})
            rows = list(zip(rows, seconds, strict=True))
    if not rows:
        raise InputError("X has no row; give at least one text.")
    found = [_text_pair(row, number) for number, row in enumerate(rows)]
    for number, pair in enumerate(found):
        if (pair[1] is None) != (found[0][1] is None):
            raise InputError(f"X mixes texts and pairs of texts (row {number:,}); give all or none a second.")
    return found


def _text_pair(row: Any, number: int) -> tuple[str, str | None]:
    texts = tuple(row) if isinstance(row, list | tuple) else (row, None)
    if len(texts) != 2:
        raise InputError(f"Row {number:,} of X has {len(texts)} parts; give a text, or a pair of texts.")
    for one in texts[: 1 if texts[1] is None and not isinstance(row, list | tuple) else 2]:
        _require_text(one, f"Row {number:,} of X")
    return texts


def _require_text(value: Any, where: str) -> None:
    if is_missing(value):
        raise InputError(f"{where} is missing ({value!r}); leave the row out, or fill it.")
    if not isinstance(value, str):
        raise InputError(f"{where} is {short(value)}, of type {type(value).__name__}; give strings.")
    if not value.strip():
        raise InputError(f"{where} is empty; give a text with words in it.")


def word_rows(data: Any, words: str) -> list[list[str]]:
    """Return the words of each row, of a list of lists or a column of a table; errors as of `text_pairs`."""
    names = column_names(data)
    words = words if names is None or len(names) > 1 else next(iter(names), words)
    rows = listed(data, "X") if names is None else column(data, words, "words")
    if not rows:
        raise InputError("X has no row; give at least one sentence.")
    for number, row in enumerate(rows):
        if isinstance(row, str) or not isinstance(row, Sequence | np.ndarray) or not len(row):
            raise InputError(f"Row {number:,} of X is {short(row)}; give a list of words, at least one.")
        for word in row:
            _require_text(word, f"A word in row {number:,} of X")
    return [list(row) for row in rows]


def target_rows(X: Any, y: Any, name: str, n: int, role: str = "label") -> list[Any]:
    """Return what is expected of each of `n` rows: `y`, a list or a column of the table X, by default `name`.

    Of a table y it is the only column. Raise InputError for no such column, or more or fewer than `n`.
    """
    if y is None and column_names(X) is None:
        raise InputError("This requires y to be passed, but the target y is None; give a value for each row.")
    if len(names := list(column_names(y) or ())) > 1:
        raise InputError(f"y is a table with the columns {', '.join(names)}; give one of them.")
    if names:
        X, y = y, names[0]
    rows = column(X, y or name, role) if y is None or isinstance(y, str) else listed(y, "y")
    if len(rows) != n:
        raise InputError(f"X has {n:,} rows and y {len(rows):,}; give one label for each row.")
    return list(map(plain, rows))


def class_names(data: Any, name: str) -> list[str]:
    """Return the names of the classes that a column of `datasets` has numbers of; [] where it knows none.

    Parameters
    ----------
    data : a table; only one of `datasets` has `features`.
    name : of the column, of numbers or of lists of them.
    """
    features = getattr(data, "features", None)
    feature = features.get(name) if isinstance(features, Mapping) else None
    names = getattr(getattr(feature, "feature", feature), "names", None)
    return list(names) if isinstance(names, list | tuple) else []


def targets(rows: Sequence[Any], check: Callable[[Any], str]) -> list[Any]:
    """Return the values of y, each of which `check` says what is wrong with, "" where nothing is."""
    for row, value in enumerate(rows):
        if wrong := "is missing" if is_missing(value) else check(value):
            raise InputError(f"Row {row:,} of y {wrong} ({short(value)}); correct it, or leave the row out.")
    return list(rows)


def plain(value: Any) -> Any:
    """Return a value in the types of JSON, where it is of NumPy or has tuples in it."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    return list(map(plain, value)) if isinstance(value, list | tuple) else value


def is_missing(value: Any) -> bool:
    """Tell whether a cell of a table is empty: None, NaN, or pandas' NA."""
    is_nan = isinstance(value, float | np.floating) and math.isnan(value)
    return value is None or is_nan or type(value).__name__ in ("NAType", "NaTType")


def seed_of(random_state: Any) -> int:
    """Return the seed of a run: a whole number as it is, one drawn from a generator, 0 for None."""
    if isinstance(random_state, GENERATORS):
        draw = random_state.integers if hasattr(random_state, "integers") else random_state.randint
        return int(draw(2**31 - 1))
    if not isinstance(random_state, int | np.integer | None) or (random_state or 0) < 0:
        message = "$random_state is no seed; give a whole number, 0 or more, or a generator of NumPy's."
        raise InputError(message, random_state=random_state)
    return int(random_state or 0)
