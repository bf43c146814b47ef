"""Read files line by line, with line numbers: tables, quoted or not, and JSON lines."""

import csv
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from minibert.base.errors import InputError, warn
from minibert.base.json_files import parse_json
from minibert.base.reading import Progress, byte_pieces, not_utf8, whole_lines
from minibert.base.terminal import counted

OPENING = re.compile(r"\[\s*(\{.*)?")  # of an array of objects
JSON_LINES = (".jsonl", ".ndjson", ".json")
DELIMITERS = ";,\t|"  # of tables
SHOWN_COLUMNS, SHOWN_CHARACTERS = 16, 24  # of a header in an error
LARGEST = sys.float_info.max
LONGEST_CELL = 2**31 - 1  # characters; a line may not be as long
Row = tuple[int, list[str]]  # the number of its line, and its columns
_QUOTED = re.compile(r'(?s)"(?:[^"]|"")*"')  # a whole column as CSV quotes it


def numbered_lines(
    file: str | Path, errors: str = "strict", ends: bool = False, in_memory: bool = True, **reading: Any
) -> Iterator[tuple[int, str]]:
    r"""Yield the lines of a UTF-8 file, counted from 1, without their ends (\n, \r\n or \r).

    A vertical tab or U+2028 ends none. A byte order mark is dropped, a compressed file decompressed.

    Parameters
    ----------
    file : str or Path
        The file, which may be compressed.
    errors : str, default "strict"
        What to do with bytes that are not UTF-8: raise an error or, with "replace", read U+FFFD.
    ends : bool, default False
        Whether to keep the ends of lines.
    in_memory : bool, default True
        As for `byte_pieces`.
    **reading
        Further arguments of `byte_pieces`.

    Yields
    ------
    int
        The number of the line.
    str
        The line.

    Raises
    ------
    InputError
        When the file can't be read, or is not UTF-8.
    """
    file = Path(file)
    parts = whole_lines(byte_pieces(file, in_memory=in_memory, **reading), file)
    lines = chain.from_iterable(part.splitlines(keepends=True) for part in parts)
    for number, line in enumerate(lines, 1):
        data = line
        if number == 1:
            data = line.removeprefix(b"\xef\xbb\xbf")
        try:
            text = data.decode(errors=errors)
        except UnicodeDecodeError as error:
            raise not_utf8(f"{file}, line {number}", error) from error
        if not ends:
            text = text.rstrip("\r\n")
        yield number, text


def rows(file: str | Path, errors: str = "strict", **reading: Any) -> Iterator[Row]:
    """Read the columns between tabs of every line, with its number; blank lines are passed over.

    A quotation mark is a character like any other, as in the files of GLUE.

    Parameters
    ----------
    file : str or Path
        The file, which may be compressed.
    errors : str, default "strict"
        As for `numbered_lines`.
    **reading
        Further arguments of `numbered_lines`.

    Yields
    ------
    int
        The number of the line.
    list of str
        Its columns.
    """
    for number, line in numbered_lines(file, errors, **reading):
        if line:
            yield number, line.split("\t")


def table_rows(
    file: str | Path,
    delimiter: str,
    blank: bool = False,
    in_memory: bool = True,
    progress: Progress = None,
    **reading: Any,
) -> Iterator[Row]:
    """Read the columns of every row of a table, with the number of its first line.

    A column within quotation marks may hold delimiters, line ends and doubled quotation marks, as in CSV.
    Between tabs that holds where all columns that begin with a quotation mark are quoted so, as pandas and
    Excel write them; otherwise quotation marks there are characters like any other, and a warning says so
    where it matters.

    Parameters
    ----------
    file : str or Path
        The file, which may be compressed.
    delimiter : str
        One character.
    blank : bool, default False
        Yield blank lines as rows without columns; else they are passed over.
    in_memory : bool, default True
        As of `byte_pieces`. A table between tabs is then in memory as a whole, or else read up to three
        times: how its columns are quoted is told by all of them.
    progress : callable, optional
        As of `byte_pieces`, of the time when rows are yielded.
    **reading
        Further arguments of `numbered_lines`.

    Returns
    -------
    iterator of (int, list of str)
        The number of the first line of each row, and its columns.

    Raises
    ------
    InputError
        When the file can't be read, or quotation marks between other delimiters than tabs are not CSV's.
    """
    table: Iterable[Row]
    # With the ends of lines, so that the places that errors name are those in the file's text.
    read = partial(numbered_lines, file, ends=True, in_memory=in_memory, **reading)
    if delimiter != "\t":
        table = _quoted_rows(file, (line for _, line in read(progress=progress)), delimiter)
    elif in_memory:
        lines = list(read(progress=progress))
        table = _between_tabs(file, lines, _quoting(file, lines.__iter__))
    else:
        table = _between_tabs(file, read(progress=progress), _quoting(file, read))
    return (row for row in table if row[1] or blank)


def delimiter_in(file: str | Path, usual: str, names: Iterable[str]) -> str:
    """Recognise the delimiter of a table: the usual one, unless its header shows another.

    In much of Europe spreadsheets write .csv with semicolons.

    Parameters
    ----------
    file : str or Path
        The file, which may be compressed.
    usual : str
        What its suffix stands for.
    names : iterable of str
        Names of the columns that are looked for: a header that is one of them has no delimiter in it.

    Returns
    -------
    str
        One character.

    Raises
    ------
    InputError
        When the file can't be read.
    """
    lines = (line for _, line in numbered_lines(file, in_memory=False) if line.strip())
    header = next(lines, "")
    name = _without_quotes(header) if _is_whole(header) else header
    if usual in header or name in names:
        return usual
    return other_delimiter(header, usual) or usual


def other_delimiter(line: str, usual: str) -> str:
    """Return another delimiter that splits a line which does not have the usual one.

    Parameters
    ----------
    line : str
        The first of a table.
    usual : str
        The delimiter that is not in it.

    Returns
    -------
    str
        The most frequent one of DELIMITERS; "" where there is none.
    """
    sign = max((sign for sign in DELIMITERS if sign != usual), key=line.count)
    return sign if sign in line else ""


def _quoted_rows(file: str | Path, lines: Iterable[str], delimiter: str) -> Iterator[Row]:
    """Read rows as CSV, strictly; a blank line is a row without columns."""
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    first = 1  # line of the row that is being read
    while True:
        limit = csv.field_size_limit(LONGEST_CELL)  # of the whole process: not to be left so
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise InputError(
                f"{error}; a column that holds a delimiter, a line end or a quotation "
                'mark is written within "…", its quotation marks doubled.',
                where=f"{file}, line {first}",
            ) from error
        finally:
            csv.field_size_limit(limit)
        if row is None:
            return
        yield first, row
        first = reader.line_num + 1


def _quoting(file: str | Path, read: Callable[[], Iterator[tuple[int, str]]]) -> str:
    """Recognise from all lines of a tab-separated table how its columns are quoted.

    Parameters
    ----------
    file : str or Path
        As a warning names it.
    read : callable
        Returns all lines with their numbers, each time that it is called.

    Returns
    -------
    str
        "none", the marks are text; "columns", each within its line; "csv", with tabs or line ends in them.
    """
    widths = set()
    whole = bare = 0  # columns that are quoted, and the first line with one that only begins so
    for number, line in read():
        row = _cells(line)
        if row:
            widths.add(len(row))
        for cell in row:
            if not cell.startswith('"'):
                continue
            if _is_whole(cell):
                whole += 1
            else:
                bare = bare or number
    if not whole and not bare:
        return "none"
    if len(widths) == 1 and not bare:
        return "columns"
    if len(widths) > 1 or widths == {1}:  # a column in quotation marks may hold a tab or a line end
        with suppress(InputError):
            quoted = _quoted_rows(file, (line for _, line in read()), "\t")
            if len({len(row) for _, row in quoted if row}) == 1:
                return "csv"
    if whole and bare:
        warn(
            f"{file}: a column of line {bare:,} begins with a quotation mark and does not end with "
            f"one, so that the quotation marks around {counted(whole, 'other column')} are taken as text, "
            "too; quote all columns that begin with one as CSV does, or none."
        )
    return "none"


def _between_tabs(file: str | Path, lines: Iterable[tuple[int, str]], quoting: str) -> Iterator[Row]:
    """Yield rows between tabs, quoted as `_quoting` has found."""
    if quoting == "csv":
        yield from _quoted_rows(file, (line for _, line in lines), "\t")
        return
    for number, line in lines:
        row = _cells(line)
        if quoting == "columns":
            row = list(map(_without_quotes, row))
        yield number, row


def _cells(line: str) -> list[str]:
    """Split a line at its tabs; a blank line has no cells."""
    text = line.rstrip("\r\n")
    return text.split("\t") if text else []


def _is_whole(cell: str) -> bool:
    """Return whether a column is unquoted, or quoted as in CSV."""
    return not cell.startswith('"') or _QUOTED.fullmatch(cell) is not None


def _without_quotes(cell: str) -> str:
    if not cell.startswith('"'):
        return cell
    return cell[1:-1].replace('""', '"')


def json_lines(file: str | Path, **reading: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the object on every line of a JSON Lines file with the line's number, but no blank lines.

    Parameters
    ----------
    file : str or Path
        The file, which may be compressed.
    **reading
        Further arguments of `numbered_lines`.

    Yields
    ------
    int
        The number of the line, from 1.
    dict from str to Any
        The object.

    Raises
    ------
    InputError
        When the file can't be read, or a line is not an object of JSON.
    """
    is_first = True
    for number, line in numbered_lines(file, **reading):
        if not line.strip():
            continue
        try:
            value = parse_json(line)
        except ValueError as error:
            if is_first and OPENING.fullmatch(line.strip()):
                advice = "write each object on a line of its own, without brackets and commas."
                raise InputError(f"{file} is one JSON array over several lines; {advice}") from error
            raise InputError(
                f"not JSON ({error}); each line has to be a JSON object.", where=f"{file}, line {number}"
            ) from error
        if not isinstance(value, dict):
            kind = type(value).__name__
            raise InputError(
                f"a JSON {kind}; each line has to be a JSON object.", where=f"{file}, line {number}"
            )
        is_first = False
        yield number, value


_NEEDED = object()


def field_of(thing: Any, key: str, kind: type | tuple[type, ...], where: str, default: Any = _NEEDED) -> Any:
    """Return `thing[key]` of a JSON object, if it has the expected type.

    Parameters
    ----------
    thing : Any
        Read from JSON, which may not be an object.
    key : str
        What is looked up.
    kind : type or tuple of types
        What the value has to be; an error names the first.
    where : str
        The place in the file, with which an error begins.
    default : Any, optional
        Returned where there is no such key, or null; that is an error when it is left out.

    Returns
    -------
    Any
        The value.

    Raises
    ------
    InputError
        When `thing` is not an object, or the value is missing or of another kind.
    """
    if not isinstance(thing, dict):
        raise InputError(f"a JSON {type(thing).__name__}, expected an object with {key!r}.", where=where)
    value = thing.get(key)
    if value is None and default is not _NEEDED:
        return default
    if value is None:
        message = f"there is no {key!r}, the keys are {shown(list(thing))}; check the layout."
        raise InputError(message, where=where)
    if not isinstance(value, kind):
        expected = kind[0] if isinstance(kind, tuple) else kind
        raise InputError(
            f"{key!r} is of type {type(value).__name__}, expected {expected.__name__}.", where=where
        )
    return value


def number_in(text: str, lowest: float = -LARGEST, highest: float = LARGEST) -> float | None:
    """Return the number that a text stands for, if it is finite and within bounds.

    Parameters
    ----------
    text : str
        Such as "3.8".
    lowest, highest : float
        The bounds, themselves included; by default those of finite numbers.

    Returns
    -------
    float or None
        None for any other text.
    """
    with suppress(ValueError):
        value = float(text)
        if lowest <= value <= highest:
            return value
    return None


def shown(header: list[str] | tuple[str, ...]) -> str:
    """Format a header for an error, shortened if it is long.

    Parameters
    ----------
    header : list or tuple of str
        Names of columns, or keys.

    Returns
    -------
    str
        The first 16 names of up to 24 characters with commas between them, and … for what is left out.
    """
    names = []
    for name in header[:SHOWN_COLUMNS]:
        if len(name) > SHOWN_CHARACTERS:
            name = f"{name[:SHOWN_CHARACTERS]}…"
        names.append(name)
    if len(header) > SHOWN_COLUMNS:
        names.append("…")
    return ", ".join(names)
