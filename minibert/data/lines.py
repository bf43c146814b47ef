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

OPENING = re.compile(r"\[\s*(\{.*)?")  # beginning of an array of objects
JSON_LINES = (".jsonl", ".ndjson", ".json")
TABLES = {".csv": ",", ".tsv": "\t", ".tab": "\t"}  # the usual delimiter between columns, by suffix
DELIMITERS = ";,\t|"  # possible ones, where a table does not have the usual one
SHOWN_COLUMNS, SHOWN_CHARACTERS = 16, 24  # at most, of a header in an error
LARGEST = sys.float_info.max
LONGEST_CELL = 2**31 - 1  # characters
Row = tuple[int, list[str]]  # its line number, and its columns
_QUOTED = re.compile(r'(?s)"(?:[^"]|"")*"')  # a whole column, quoted as in CSV


def numbered_lines(
    file: str | Path, errors: str = "strict", ends: bool = False, in_memory: bool = True, **reading: Any
) -> Iterator[tuple[int, str]]:
    r"""Yield the lines of a UTF-8 file, counted from 1, without their line ends (\n, \r\n or \r).

    A vertical tab or U+2028 does not end a line. A byte order mark is dropped, and a compressed file
    decompressed.

    Parameters
    ----------
    file : str or Path
        The file, which may be compressed.
    errors : str, default "strict"
        What to do with bytes that are not UTF-8: raise an error or, with "replace", read U+FFFD.
    ends : bool, default False
        Whether to keep the line ends.
    in_memory : bool, default True
        As for `byte_pieces`.
    **reading
        Further arguments of `byte_pieces`.

    Yields
    ------
    int
        The line number.
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
    """Read the tab-separated columns of every line, with its line number, skipping blank lines.

    A quotation mark is an ordinary character, as in the files of GLUE.

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
        The line number.
    list of str
        The columns of the line.
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
    """Read the columns of every row of a table, with the line number of its first line.

    A quoted column may contain delimiters, line ends and doubled quotation marks, as in CSV. In tab-separated
    tables quotation marks have this meaning only if all columns that begin with one are quoted properly, as
    pandas and Excel write them; otherwise they are ordinary characters, and a warning says so if it matters.

    Parameters
    ----------
    file : str or Path
        The file, which may be compressed.
    delimiter : str
        One character.
    blank : bool, default False
        Whether to yield blank lines as rows without columns; by default they are skipped.
    in_memory : bool, default True
        As for `byte_pieces`. A tab-separated table is then held in memory as a whole; otherwise it is read up
        to three times, since all of its columns decide how it is quoted.
    progress : callable, optional
        As for `byte_pieces`; called while rows are yielded.
    **reading
        Further arguments of `numbered_lines`.

    Returns
    -------
    iterator of (int, list of str)
        The line number of each row's first line, and the columns of the row.

    Raises
    ------
    InputError
        When the file can't be read, or its delimiter is not a tab and quotation marks break the rules of CSV.
    """
    table: Iterable[Row]
    # With line ends, which quoted columns may contain.
    read = partial(numbered_lines, file, ends=True, in_memory=in_memory, **reading)
    if delimiter != "\t":
        table = _quoted_rows(file, (line for _, line in read(progress=progress)), delimiter)
    elif in_memory:
        lines = list(read(progress=progress))
        table = _tab_separated(file, lines, _is_quoted(file, lines.__iter__))
    else:
        table = _tab_separated(file, read(progress=progress), _is_quoted(file, read))
    return (row for row in table if row[1] or blank)


def delimiter_in(file: str | Path, usual: str, names: Iterable[str]) -> str:
    """Detect the delimiter of a table: the usual one, unless its header has another.

    In much of Europe, spreadsheets write .csv files with semicolons.

    Parameters
    ----------
    file : str or Path
        The file, which may be compressed.
    usual : str
        The usual delimiter for the suffix of the file.
    names : iterable of str
        Names of the columns to be read: a header that equals one of them is a single column.

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
    name = header
    if header.startswith('"') and _is_whole(header):
        name = header[1:-1].replace('""', '"')
    if usual in header or name in names:
        return usual
    return other_delimiter(header, usual) or usual


def other_delimiter(line: str, usual: str) -> str:
    """Return another delimiter that splits a line which does not have the usual one.

    Parameters
    ----------
    line : str
        The first line of a table.
    usual : str
        The usual delimiter, which is not in the line.

    Returns
    -------
    str
        The most frequent one of DELIMITERS; "" if the line has none.
    """
    sign = max((sign for sign in DELIMITERS if sign != usual), key=line.count)
    return sign if sign in line else ""


def _quoted_rows(file: str | Path, lines: Iterable[str], delimiter: str) -> Iterator[Row]:
    """Read rows as strict CSV; a blank line is a row without columns."""
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    first = 1  # first line of the current row
    while True:
        limit = csv.field_size_limit(LONGEST_CELL)  # a setting of the whole process, so it is restored
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


def _is_quoted(file: str | Path, read: Callable[[], Iterator[tuple[int, str]]]) -> bool:
    """Detect, from all lines of a tab-separated table, whether its columns are quoted as in CSV.

    Parameters
    ----------
    file : str or Path
        The file, for a warning.
    read : callable
        Returns an iterator over all lines with their numbers, every time it is called.

    Returns
    -------
    bool
        False if quotation marks are text, or there are none.
    """
    widths = set()
    whole = bare = 0  # properly quoted columns; first line with a column that only begins with a mark
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
        return False
    if len(widths) == 1 and not bare:
        return True
    if len(widths) > 1 or widths == {1}:  # quoted columns may contain tabs or line ends
        with suppress(InputError):
            quoted = _quoted_rows(file, (line for _, line in read()), "\t")
            if len({len(row) for _, row in quoted if row}) == 1:
                return True
    if whole and bare:
        warn(
            f"{file}: a column of line {bare:,} begins with a quotation mark and does not end with "
            f"one, so that the quotation marks around {counted(whole, 'other column')} are taken as text, "
            "too; quote all columns that begin with one as CSV does, or none."
        )
    return False


def _tab_separated(file: str | Path, lines: Iterable[tuple[int, str]], is_quoted: bool) -> Iterator[Row]:
    """Yield the rows of a tab-separated table, whose columns are quoted as in CSV or not at all."""
    if is_quoted:
        return _quoted_rows(file, (line for _, line in lines), "\t")
    return ((number, _cells(line)) for number, line in lines)


def _cells(line: str) -> list[str]:
    """Split a line at its tabs; a blank line has no cells."""
    text = line.rstrip("\r\n")
    return text.split("\t") if text else []


def _is_whole(cell: str) -> bool:
    """Return whether a column is unquoted, or quoted as in CSV."""
    return not cell.startswith('"') or _QUOTED.fullmatch(cell) is not None


def json_lines(file: str | Path, **reading: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the object on every line of a JSON Lines file, with its line number, skipping blank lines.

    Parameters
    ----------
    file : str or Path
        The file, which may be compressed.
    **reading
        Further arguments of `numbered_lines`.

    Yields
    ------
    int
        The line number, from 1.
    dict from str to Any
        The object.

    Raises
    ------
    InputError
        When the file can't be read, or a line is not a JSON object.
    """
    is_first = True
    for number, line in numbered_lines(file, **reading):
        if not line.strip():
            continue
        if is_first and OPENING.fullmatch(line.strip()):
            advice = "write each object on a line of its own, without brackets and commas."
            raise InputError(f"{file} is one JSON array; {advice}")
        try:
            value = parse_json(line)
        except ValueError as error:
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
        A value from JSON, which may not be an object.
    key : str
        The key to look up.
    kind : type or tuple of types
        Types that the value may have; an error names the first.
    where : str
        The position in the file, with which an error begins.
    default : Any, optional
        Returned if the key is missing or its value is null; without a default that is an error.

    Returns
    -------
    Any
        The value.

    Raises
    ------
    InputError
        When `thing` is not an object, or the value is missing or has another type.
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
    """Parse a number that is finite and within bounds.

    Parameters
    ----------
    text : str
        Text such as "3.8".
    lowest, highest : float
        The bounds, inclusive; by default those of finite numbers.

    Returns
    -------
    float or None
        The number; None for any other text.
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
        The first 16 names, separated by commas and cut to 24 characters, with … for what is left out.
    """
    names = []
    for name in header[:SHOWN_COLUMNS]:
        if len(name) > SHOWN_CHARACTERS:
            name = f"{name[:SHOWN_CHARACTERS]}…"
        names.append(name)
    if len(header) > SHOWN_COLUMNS:
        names.append("…")
    return ", ".join(names)
