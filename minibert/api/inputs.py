"""Read the data that users have: lists, arrays, and tables of pandas, polars, `datasets` or dictionaries.

None of these libraries is imported. A column is anything that can be iterated over; a table is anything that
has columns with names.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from reprlib import repr as short
from typing import Any

import numpy as np

from minibert.base.errors import InputError

GENERATORS = np.random.Generator | np.random.RandomState
TABLE_FILE = re.compile(r"^\S+\.(csv|tsv|json|jsonl|parquet)$")  # what is a file and no text
# What errors call a text of a pair, by the argument that names its column.
PARTS = {"text": "first text", "second": "second text", "question": "question", "context": "paragraph"}


def column_names(data: Any) -> dict[str, Any] | None:
    """Return the names of a table's columns, or None for anything else.

    Parameters
    ----------
    data : object
        What the user gave.

    Returns
    -------
    dict or None
        The columns' names as strings, each with the original name, which may be a number.

    Examples
    --------
    >>> column_names({"text": ["a", "b"], 1: [0, 1]}), column_names(["a", "b"])
    ({'text': 'text', '1': 1}, None)
    """
    names = getattr(data, "column_names", None)  # datasets.Dataset
    if names is None:
        names = getattr(data, "columns", None)  # pandas and polars
    if isinstance(data, Mapping):
        names = data
    if names is None or callable(names):
        return None
    return {str(name): name for name in names}


def column(data: Any, name: str, role: str, table: str = "X") -> list[Any]:
    """Return a column of a table.

    Parameters
    ----------
    data : table
        Anything for which `column_names` does not return None.
    name : str
        The name of the column.
    role : str
        The argument that gave the name, for the error.
    table : str, default "X"
        The argument that gave the table, for the error.

    Returns
    -------
    list

    Raises
    ------
    InputError
        When the table has no such column, or two of them, or is lazy, or the column is not a list.
    """
    if callable(getattr(data, "collect", None)):
        raise InputError("The table is lazy; give what its collect() returns.")
    name = str(name)
    names = column_names(data) or {}
    if name not in names:
        others = f"only {', '.join(names)}; name one of these" if names else "nor any other; fill it"
        raise InputError(f"The table has no column for {role}={name!r}, {others}.", **{role: name})
    values = data[names[name]]
    if column_names(values) is not None:  # what pandas returns for a repeated name
        raise InputError(f"The table has two columns named {name!r}; rename one.")
    return listed(values, f"{table}[{name!r}]")


def column_or_only(data: Any, name: str, role: str, table: str = "X") -> list[Any]:
    """Return a column of a table or, whatever its name, the only one.

    Parameters
    ----------
    data, name, role, table
        As for `column`.

    Returns
    -------
    list

    Raises
    ------
    InputError
        As by `column`.
    """
    names = column_names(data) or {}
    if len(names) == 1:
        (name,) = names
    return column(data, name, role, table)


def listed(values: Any, name: str) -> list[Any]:
    """Return the items of an iterable, or the rows of an array, as a list.

    Parameters
    ----------
    values : iterable, array or column
        A list, a generator, or an object of NumPy, pandas, polars, pyarrow or another library.
    name : str
        The name of the argument, for the error.

    Returns
    -------
    list

    Raises
    ------
    InputError
        For a single text, a set, a sparse matrix, a generator with nothing left, or anything else that can't
        be iterated over.
    """
    if isinstance(values, str) and TABLE_FILE.search(values):
        raise InputError(f"{name}={values!r} is the name of a file; read it, as with pandas.read_csv.")
    if isinstance(values, str | bytes):
        raise InputError(f"{name}={short(values)} is one text; give a list of them.")
    if hasattr(values, "toarray"):
        instead = "texts" if name == "X" else f"{name}.toarray()"
        raise InputError(f"{name} is a sparse matrix; give {instead}.")
    if isinstance(values, set | frozenset):
        raise InputError(f"{name} is a set, which has no order; give a list.")
    methods = ("tolist", "to_list", "to_pylist")  # NumPy and pandas; polars; pyarrow
    method = next((method for method in methods if hasattr(values, method)), "")
    if method:
        rows = getattr(values, method)()
    elif isinstance(values, Iterable):
        rows = list(values)
        if not rows and isinstance(values, Iterator):
            what = f"{name} is a generator that has nothing left, as if it was read before"
            raise InputError(f"{what}; make a list of it first.")
    elif hasattr(values, "__array__"):
        rows = np.asarray(values).tolist()
    else:
        raise InputError(f"{name}={short(values)} is not a list; give one, an array, or a column of a table.")
    if not isinstance(rows, list):
        raise InputError(f"{name}={short(values)} is a single value; give a list of them.")
    return rows


def text_pairs(data: Any, text: str, second: str | None, *roles: str) -> list[tuple[str, str | None]]:
    """Return texts or pairs of texts from a list, or from columns of a table.

    Parameters
    ----------
    data : list, array, column or table
        Texts, or pairs of texts as lists or tuples. If a table has only one column, its name does not matter.
    text : str
        The column of a table that has the texts.
    second : str, optional
        The column that has the second texts; None for single texts.
    *roles : str
        The user's names for the arguments `text` and `second`, for errors; by default these names.

    Returns
    -------
    list of (str, str or None)
        Every row has a second text, or none does.

    Raises
    ------
    InputError
        When there are no rows, or a row is not a text or a pair; the message names the row, counted from 0.
    """
    first_role, second_role = roles or ("text", "second")
    if column_names(data) is None:
        rows = listed(data, "X")
        if rows and all(isinstance(row, list | tuple) and len(row) == 1 for row in rows):
            rows = [row[0] for row in rows]  # a matrix of one column
    else:
        rows = column_or_only(data, text, first_role)
        if second is not None:
            seconds = column(data, second, second_role)
            if len(rows) != len(seconds):
                counts = f"{len(rows):,} texts and {len(seconds):,} in {second_role}={second!r}"
                raise InputError(f"The table has {counts}; give each text one.", **{second_role: second})
            rows = list(zip(rows, seconds, strict=True))
    if not rows:
        raise InputError("X has no row; give at least one text.")
    pairs = [_text_pair(row, index, first_role, second_role) for index, row in enumerate(rows)]
    is_single = pairs[0][1] is None
    for index, (_, second_text) in enumerate(pairs):
        if (second_text is None) != is_single:
            what = f"X mixes texts and pairs of texts (row {index:,})"
            raise InputError(f"{what}; give every row a second text, or none.")
    return pairs


def _text_pair(row: Any, index: int, *roles: str) -> tuple[str, str | None]:
    """Return a row as a text and its second text or None; raise InputError when it is neither."""
    if not isinstance(row, list | tuple):
        return _text(row, f"Row {index:,} of X"), None
    if len(row) != 2:
        raise InputError(f"Row {index:,} of X has {len(row)} parts; give a text, or a pair of texts.")
    first, second = (
        _text(part, f"The {PARTS[role]} in row {index:,} of X") for part, role in zip(row, roles, strict=True)
    )
    return first, second


def _text(value: Any, name: str) -> str:
    """Return a cell as a plain string; raise InputError, with its name, when it has no words."""
    if is_missing(value):
        raise InputError(f"{name} is missing ({value!r}); leave the row out, or fill it.")
    if isinstance(value, Mapping):
        raise InputError(f"{name} is a dictionary; make a table of the rows, pandas.DataFrame(rows).")
    if not isinstance(value, str):
        raise InputError(f"{name} is {short(value)}, of type {type(value).__name__}; give strings.")
    if not value.strip():
        raise InputError(f"{name} is empty; give a text with words in it.")
    return str(value)


def word_rows(data: Any, words: str) -> list[list[str]]:
    """Return the words of each row, from a list of lists or a column of a table.

    Parameters
    ----------
    data : list of lists, or table
        The rows. If a table has only one column, its name does not matter.
    words : str
        The column of a table that has a list of words in each row.

    Returns
    -------
    list of list of str

    Raises
    ------
    InputError
        When there are no rows, or a row is not a list of words; the message names the row, counted from 0.
    """
    rows = listed(data, "X") if column_names(data) is None else column_or_only(data, words, "words")
    if not rows:
        raise InputError("X has no row; give at least one sentence.")
    for index, row in enumerate(rows):
        if isinstance(row, str) or not isinstance(row, Sequence | np.ndarray) or not len(row):
            raise InputError(f"Row {index:,} of X is {short(row)}; give a list of words, at least one.")
    sentences = []
    for index, row in enumerate(rows):
        sentences.append([_text(word, f"A word in row {index:,} of X") for word in row])
    return sentences


def target_rows(X: Any, y: Any, name: str, n: int, role: str = "label") -> list[Any]:
    """Return the labels of `n` rows.

    Parameters
    ----------
    X : list or table
        The rows, which may have the labels in one of their columns.
    y : list, column, table of one column, str or None
        The labels. A string is the name of a column of X; None stands for the column `name`.
    name : str
        The column of X that has the labels by default.
    n : int
        The number of rows.
    role : str, default "label"
        The argument that gave `name`, for the error.

    Returns
    -------
    list
        The labels, in the types of JSON; see `plain`.

    Raises
    ------
    InputError
        When there is no such column, y has several columns, or it has more or fewer than `n` rows.
    """
    if y is None and column_names(X) is None:
        advice = "give a value for each row"
        if are_pairs(X):
            advice = "X has pairs, and if the second part is a label, give the labels as y"
        raise InputError(f"This requires y to be passed, but the target y is None; {advice}.")
    if isinstance(y, str) and column_names(X) is None:
        raise InputError(f"{y=} names a column, but X is not a table; give a value for each row.", y=y)
    names = list(column_names(y) or ())
    if len(names) > 1:
        raise InputError(f"y is a table with the columns {', '.join(names)}; give one of them.")
    if names:
        rows = column(y, names[0], role, "y")
    elif y is None or isinstance(y, str):
        rows = column(X, y or name, role)
    else:
        rows = listed(y, "y")
    if len(rows) != n:
        raise InputError(f"X has {n:,} rows and y {len(rows):,}; give one label for each row.")
    return list(map(plain, rows))


def are_pairs(X: Any) -> bool:
    """Return whether the rows are a list of tuples of two.

    Parameters
    ----------
    X : object

    Returns
    -------
    bool
    """
    return isinstance(X, list) and all(isinstance(row, tuple) and len(row) == 2 for row in X)


def refuse_matrix(rows: Sequence[Any], advice: str) -> None:
    """Check that y does not have a list of values in every row where one value is expected.

    Parameters
    ----------
    rows : sequence
        The values of y.
    advice : str
        What to do about rows of several values, as the end of a sentence.

    Raises
    ------
    InputError
        When every row is a list.
    """
    if not rows or not all(isinstance(row, list) for row in rows):
        return
    if all(len(row) == 1 for row in rows):
        raise InputError("y is a matrix of one column; give its values alone, np.ravel(y).")
    if not any(rows):
        raise InputError("y has no value in any row; give one for each row.")
    raise InputError(f"y is a matrix, with several values in each row; {advice}")


def class_names(data: Any, name: str) -> list[str]:
    """Return the names of classes that a table of `datasets` stores for a column of class indices.

    Only taggers need them, since their rows are lists of indices. Texts are classified by the values of y.

    Parameters
    ----------
    data : object
        A table; only those of `datasets` have an attribute `features`.
    name : str
        The name of a column of indices, or of lists of indices.

    Returns
    -------
    list of str
        The names, by index; [] if there are none.
    """
    features = getattr(data, "features", None)
    if not isinstance(features, Mapping):
        return []
    feature = features.get(name)
    item = getattr(feature, "feature", feature)  # the feature of a list contains that of its items
    names = getattr(item, "names", None)
    return list(names) if isinstance(names, list | tuple) else []


def targets(rows: Sequence[Any], check: Callable[[Any], str]) -> list[Any]:
    """Check the values of y and return them.

    Parameters
    ----------
    rows : sequence
        The values.
    check : function
        Returns what is wrong with a value, such as "is empty", or "" if nothing is.

    Returns
    -------
    list

    Raises
    ------
    InputError
        When a value is missing or wrong; the message names the first such row, counted from 0.
    """
    for index, value in enumerate(rows):
        wrong = "is missing" if is_missing(value) else check(value)
        if wrong:
            what = f"Row {index:,} of y {wrong} ({short(value)})"
            raise InputError(f"{what}; correct it, or leave the row out.")
    return list(rows)


def plain(value: Any) -> Any:
    """Convert arrays, NumPy's numbers and tuples to the types of JSON, also within lists and dictionaries.

    Parameters
    ----------
    value : object
        The value; any other type is left as it is.

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
    """Return whether a cell of a table is empty: None, NaN, or pandas' NA.

    Parameters
    ----------
    value : object
        The value of the cell.

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
    random_state : int, NumPy generator or None
        An integer is the seed itself. From a generator, a seed is drawn. None means 0.

    Returns
    -------
    int
        0 or more.

    Raises
    ------
    InputError
        When it is none of these.
    """
    if isinstance(random_state, GENERATORS):
        draw = random_state.integers if hasattr(random_state, "integers") else random_state.randint
        return int(draw(2**31 - 1))
    is_seed = isinstance(random_state, int | np.integer | None) and not isinstance(random_state, bool)
    if not is_seed or (random_state or 0) < 0:
        message = f"{random_state=} is not a seed; give a whole number, 0 or more, or a NumPy generator."
        raise InputError(message, random_state=random_state)
    return int(random_state or 0)
