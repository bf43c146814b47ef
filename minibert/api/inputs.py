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
    """Return the names of the columns of a table, each with what it is there; None for what is not a table.

    Parameters
    ----------
    data : object
        As a user gave it.

    Returns
    -------
    dict or None
        By the name as a string.

    Examples
    --------
    >>> column_names({"text": ["a", "b"], 1: [0, 1]}), column_names(["a", "b"])
    ({'text': 'text', '1': 1}, None)
    """
    names = getattr(data, "column_names", None)  # of datasets.Dataset
    if names is None:
        names = getattr(data, "columns", None)  # of pandas and polars
    if isinstance(data, Mapping):
        names = data
    if names is None or callable(names):
        return None
    return {str(name): name for name in names}


def column(data: Any, name: str, role: str) -> list[Any]:
    """Return a column of a table.

    Parameters
    ----------
    data : table
        For which `column_names` has names.
    name : str
        Of the column.
    role : str
        The argument by which the name was given, for the error.

    Returns
    -------
    list

    Raises
    ------
    InputError
        When there is none of the name, there are two, or the table is a lazy one.
    """
    if callable(getattr(data, "collect", None)):
        raise InputError("The table is a lazy one; give what its collect() returns.")
    name = str(name)
    names = column_names(data) or {}
    if name not in names:
        there = ", ".join(names) or "none"
        message = f"The table has no column for {role}={name!r}, only {there}; name one of these."
        raise InputError(message, **{role: name})
    values = data[names[name]]
    if column_names(values) is not None:  # as pandas has it
        raise InputError(f"The table has two columns named {name!r}; rename one.")
    return listed(values, role)


def listed(values: Any, name: str) -> list[Any]:
    """Return what is given one after another as a list, of an array its rows.

    Parameters
    ----------
    values : iterable, array or column
        Of NumPy, pandas, polars, pyarrow or another library.
    name : str
        Of the argument, for the error.

    Returns
    -------
    list

    Raises
    ------
    InputError
        For one text, a set, a sparse matrix, and whatever can't be gone through.
    """
    if isinstance(values, str | bytes):
        raise InputError(f"{name}={short(values)} is one text; give a list of them.")
    if hasattr(values, "toarray"):
        instead = "texts" if name == "X" else f"{name}.toarray()"
        raise InputError(f"{name} is a sparse matrix; give {instead}.")
    if isinstance(values, set | frozenset):
        raise InputError(f"{name} is a set, which has no order; give a list.")
    methods = ("tolist", "to_list", "to_pylist")  # of NumPy and pandas, polars, pyarrow
    method = next((method for method in methods if hasattr(values, method)), "")
    if method:
        rows = getattr(values, method)()
    elif isinstance(values, Iterable):
        rows = list(values)
    elif hasattr(values, "__array__"):
        rows = np.asarray(values).tolist()
    else:
        raise InputError(f"{name}={short(values)} is not a list; give one, an array, or a column of a table.")
    if not isinstance(rows, list):
        raise InputError(f"{name}={short(values)} is a single value; give a list of them.")
    return rows


def text_pairs(data: Any, text: str, second: str | None, *roles: str) -> list[tuple[str, str | None]]:
    """Return texts, each with its second one or None, of a list or of these columns of a table.

    Parameters
    ----------
    data : list, array, column or table
        Texts, or pairs of texts as lists or tuples; a table of one column needs no names.
    text : str
        The column of a table with the texts.
    second : str, optional
        The column with the second ones; None for single texts.
    *roles : str
        What the arguments `text` and `second` are called by the user, for the errors; so, when left out.

    Returns
    -------
    list of (str, str or None)
        All with a second text, or none.

    Raises
    ------
    InputError
        When there is no text, or a row is none; it names the row, counted from 0.
    """
    first_role, second_role = roles or ("text", "second")
    names = column_names(data)
    if names is None:
        rows = listed(data, "X")
        if rows and all(isinstance(row, list | tuple) and len(row) == 1 for row in rows):
            rows = [row[0] for row in rows]  # a matrix of one column
    else:
        if text not in names and len(names) == 1:
            (text,) = names
        rows = column(data, text, first_role)
        if second is not None:
            seconds = column(data, second, second_role)
            if len(rows) != len(seconds):
                both = f"{len(rows):,} texts and {len(seconds):,} of {second_role}={second!r}"
                raise InputError(f"The table has {both}; give each text one.", **{second_role: second})
            rows = list(zip(rows, seconds, strict=True))
    if not rows:
        raise InputError("X has no row; give at least one text.")
    pairs = [_text_pair(row, number) for number, row in enumerate(rows)]
    is_single = pairs[0][1] is None
    for number, pair in enumerate(pairs):
        if (pair[1] is None) != is_single:
            raise InputError(f"X mixes texts and pairs of texts (row {number:,}); give all or none a second.")
    return pairs


def _text_pair(row: Any, number: int) -> tuple[str, str | None]:
    """Return a row as a text and its second one; raise InputError where it is neither."""
    where = f"Row {number:,} of X"
    if not isinstance(row, list | tuple):
        return _text(row, where), None
    if len(row) != 2:
        raise InputError(f"{where} has {len(row)} parts; give a text, or a pair of texts.")
    first, second = row
    return _text(first, where), _text(second, where)


def _text(value: Any, where: str) -> str:
    """Return a cell as a string of Python's; raise InputError when it is not a text with words in it."""
    if is_missing(value):
        raise InputError(f"{where} is missing ({value!r}); leave the row out, or fill it.")
    if not isinstance(value, str):
        raise InputError(f"{where} is {short(value)}, of type {type(value).__name__}; give strings.")
    if not value.strip():
        raise InputError(f"{where} is empty; give a text with words in it.")
    return str(value)


def word_rows(data: Any, words: str) -> list[list[str]]:
    """Return the words of each row, of a list of lists or a column of a table.

    Parameters
    ----------
    data : list of lists, or table
        A table of one column needs no name.
    words : str
        The column of a table with a list in each row.

    Returns
    -------
    list of list of str

    Raises
    ------
    InputError
        When there is no row, or one is not a list of words; it names the row, counted from 0.
    """
    names = column_names(data)
    if names is None:
        rows = listed(data, "X")
    else:
        if len(names) == 1:
            (words,) = names
        rows = column(data, words, "words")
    if not rows:
        raise InputError("X has no row; give at least one sentence.")
    for number, row in enumerate(rows):
        if isinstance(row, str) or not isinstance(row, Sequence | np.ndarray) or not len(row):
            raise InputError(f"Row {number:,} of X is {short(row)}; give a list of words, at least one.")
    sentences = []
    for number, row in enumerate(rows):
        sentences.append([_text(word, f"A word in row {number:,} of X") for word in row])
    return sentences


def target_rows(X: Any, y: Any, name: str, n: int, role: str = "label") -> list[Any]:
    """Return what is expected of each of `n` rows.

    Parameters
    ----------
    X : list or table
        Where y is a column of it.
    y : list, column, table of one column, or str
        A string names a column of X; so does None, by `name`.
    name : str
        The column of X by default.
    n : int
        How many rows there are.
    role : str, default "label"
        The argument by which `name` was given, for the error.

    Returns
    -------
    list
        In the types of JSON, as `plain` makes them.

    Raises
    ------
    InputError
        For no such column, several columns, or more or fewer than `n` rows.
    """
    if y is None and column_names(X) is None:
        raise InputError("This requires y to be passed, but the target y is None; give a value for each row.")
    if isinstance(y, str) and column_names(X) is None:
        raise InputError(f"{y=} names a column, but X is not a table; give a value for each row.", y=y)
    names = list(column_names(y) or ())
    if len(names) > 1:
        raise InputError(f"y is a table with the columns {', '.join(names)}; give one of them.")
    if names:
        X = y
        y = names[0]
    in_table = y is None or isinstance(y, str)
    rows = column(X, y or name, role) if in_table else listed(y, "y")
    if len(rows) != n:
        raise InputError(f"X has {n:,} rows and y {len(rows):,}; give one label for each row.")
    return list(map(plain, rows))


def class_names(data: Any, name: str) -> list[str]:
    """Return the class names that a table of `datasets` records for a column of class numbers.

    Taggers need them, whose words have lists of numbers; texts are classified by whatever y holds.

    Parameters
    ----------
    data : object
        A table; only one of `datasets` has `features`.
    name : str
        The column, of numbers or of lists of numbers.

    Returns
    -------
    list of str
        In the order of the numbers; [] if none are recorded.
    """
    features = getattr(data, "features", None)
    if not isinstance(features, Mapping):
        return []
    feature = features.get(name)
    of_items = getattr(feature, "feature", feature)  # a column of lists wraps that of their items
    names = getattr(of_items, "names", None)
    return list(names) if isinstance(names, list | tuple) else []


def targets(rows: Sequence[Any], check: Callable[[Any], str]) -> list[Any]:
    """Return the values of y, checked.

    Parameters
    ----------
    rows : sequence
        The values.
    check : function
        Says what is wrong with a value, "" where nothing is.

    Returns
    -------
    list

    Raises
    ------
    InputError
        For the first that is missing or wrong; it names the row, counted from 0.
    """
    for row, value in enumerate(rows):
        wrong = "is missing" if is_missing(value) else check(value)
        if wrong:
            raise InputError(f"Row {row:,} of y {wrong} ({short(value)}); correct it, or leave the row out.")
    return list(rows)


def plain(value: Any) -> Any:
    """Return a value in the types of JSON, where it is of NumPy or has tuples in it.

    Parameters
    ----------
    value : object
        Whatever is of another type stays as it is.

    Returns
    -------
    object
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value


def is_missing(value: Any) -> bool:
    """Tell whether a cell of a table is empty: None, NaN, or pandas' NA.

    Parameters
    ----------
    value : object
        Of the cell.

    Returns
    -------
    bool
    """
    if isinstance(value, float | np.floating) and math.isnan(value):
        return True
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def seed_of(random_state: Any) -> int:
    """Return the seed of a run.

    Parameters
    ----------
    random_state : int, generator of NumPy's, or None
        A whole number is the seed, from a generator it is drawn, None is 0.

    Returns
    -------
    int
        0 or more.

    Raises
    ------
    InputError
        For anything else.
    """
    if isinstance(random_state, GENERATORS):
        draw = random_state.integers if hasattr(random_state, "integers") else random_state.randint
        return int(draw(2**31 - 1))
    is_whole = isinstance(random_state, int | np.integer | None)
    if not is_whole or (random_state or 0) < 0:
        message = f"{random_state=} is not a seed; give a whole number, 0 or more, or a generator of NumPy's."
        raise InputError(message, random_state=random_state)
    return int(random_state or 0)
