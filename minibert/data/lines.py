"""Files of rows, one line after another and each with its number: tables, quoted or not, and JSON lines."""

import csv
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from minibert.base.errors import InputError, warn
from minibert.base.json_files import parse_json
from minibert.base.reading import byte_pieces, not_utf8, whole_lines
from minibert.base.terminal import counted

JSON_LINES = (".jsonl", ".ndjson", ".json")
SHOWN_COLUMNS, SHOWN_CHARACTERS = 16, 24  # of a header in an error
LARGEST = sys.float_info.max
LONGEST_CELL = 2**31 - 1  # characters; a line may not be as long
Row = tuple[int, list[str]]  # the number of its line, and its columns
_QUOTED = re.compile(r'(?s)"(?:[^"]|"")*"')  # a whole column as CSV quotes it


def numbered_lines(
    file: str | Path, errors: str = "strict", ends: bool = False, kept: bool = True, **reading: Any
) -> Iterator[tuple[int, str]]:
    r"""Yield the lines of a UTF-8 file, counted from 1, without their ends (\n, \r\n or \r).

    A vertical tab or U+2028 ends none. A byte order mark is dropped, a compressed file decompressed. Bytes
    that are not UTF-8 are an error or, with errors="replace", U+FFFD; `ends` keeps the ends. `kept` and
    `reading` are further arguments of `byte_pieces`.
    """
    file = Path(file)
    parts = whole_lines(byte_pieces(file, kept=kept, **reading), file)
    for number, line in enumerate((line for part in parts for line in part.splitlines(keepends=True)), 1):
        data = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        try:
            text = data.decode(errors=errors)
        except UnicodeDecodeError as error:
            raise not_utf8(f"{file}, line {number}", error) from error
        yield number, text if ends else text.rstrip("\r\n")


def rows(file: str | Path, errors: str = "strict", **reading: Any) -> Iterator[Row]:
    """Read the columns between tabs of every line, with its number; blank lines are passed over.

    A quotation mark is a character like any other, as in the files of GLUE. `reading` goes to
    `numbered_lines`.
    """
    for number, line in numbered_lines(file, errors, **reading):
        if line:
            yield number, line.split("\t")


def table_rows(file: str | Path, delimiter: str, blank: bool = False, **reading: Any) -> Iterator[Row]:
    """Read the columns of every row of a table, with the number of its first line.

    A column within quotation marks may hold delimiters, line ends and doubled quotation marks, as in CSV.
    Between tabs that holds where all columns that begin with a quotation mark are quoted so, as pandas and
    Excel write them; otherwise quotation marks there are characters like any other, and a warning says so
    where it matters.

    Parameters
    ----------
    file : which may be compressed.
    delimiter : one character.
    blank : yield blank lines as rows without columns; else they are passed over.
    reading : further arguments of `numbered_lines`.

    Raises
    ------
    InputError
        When the file can't be read, or quotation marks between other delimiters than tabs are not CSV's.
    """
    lines = numbered_lines(file, ends=True, **reading)  # errors name places in such text
    if delimiter == "\t":
        found = _between_tabs(Path(file), list(lines))
    else:
        found = _quoted_rows(file, (line for _, line in lines), delimiter)
    return (row for row in found if row[1] or blank)


def _quoted_rows(file: str | Path, lines: Iterable[str], delimiter: str) -> Iterator[Row]:
    """Read rows as CSV, strictly; a blank line is a row without columns."""
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    first = 1  # line of the row that is being read
    while True:
        limit = csv.field_size_limit(LONGEST_CELL)  # of the whole process: not to be left so
        try:
            row = next(reader, None)
        except csv.Error as error:
            what = "a column that holds a delimiter, a line end or a quotation mark is written within"
            how = '"…", its quotation marks doubled.'
            raise InputError(f"{file}, line {first}: {error}; {what} {how}") from error
        finally:
            csv.field_size_limit(limit)
        if row is None:
            return
        yield first, row
        first = reader.line_num + 1


def _between_tabs(file: Path, lines: list[tuple[int, str]]) -> Iterable[Row]:
    """Read rows between tabs; whether columns are quoted is told by all of them together."""
    bare = [(number, text.split("\t") if (text := line.rstrip("\r\n")) else []) for number, line in lines]
    filled = [row for _, row in bare if row]
    if not any(cell.startswith('"') for row in filled for cell in row):
        return bare
    is_even = len({len(row) for row in filled}) == 1
    unquoted = [number for number, row in bare if not all(map(_is_whole, row))]
    if is_even and not unquoted:
        return [(number, list(map(_without_quotes, row))) for number, row in bare]
    if not is_even or len(filled[0]) == 1:  # a column in quotation marks may hold a tab or a line end
        with suppress(InputError):
            quoted = list(_quoted_rows(file, (line for _, line in lines), "\t"))
            if len({len(row) for _, row in quoted if row}) == 1:
                return quoted
    whole = sum(_QUOTED.fullmatch(cell) is not None for row in filled for cell in row)
    if whole and unquoted:
        bare_one = f"a column of line {unquoted[0]:,} begins with a quotation mark and does not end with one"
        taken = f"so that the quotation marks around {counted(whole, 'other column')} are taken as text, too"
        warn(f"{file}: {bare_one}, {taken}; quote all columns that begin with one as CSV does, or none.")
    return bare


def _is_whole(cell: str) -> bool:
    """Tell whether a column has no quotation mark at its beginning, or is quoted as in CSV."""
    return not cell.startswith('"') or _QUOTED.fullmatch(cell) is not None


def _without_quotes(cell: str) -> str:
    return cell[1:-1].replace('""', '"') if cell.startswith('"') else cell


def json_lines(file: str | Path, **reading: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the object on every line of a JSON Lines file with the line's number, but no blank lines."""
    for number, line in numbered_lines(file, **reading):
        if not line.strip():
            continue
        try:
            value = parse_json(line)
        except ValueError as error:
            what = f"{file}, line {number} is not JSON ({error})"
            raise InputError(f"{what}; one object a line is expected.") from error
        if not isinstance(value, dict):
            kind = type(value).__name__
            raise InputError(f"{file}, line {number} is a JSON {kind}; one object a line is expected.")
        yield number, value


_NEEDED = object()


def field_of(thing: Any, key: str, kind: type | tuple[type, ...], where: str, default: Any = _NEEDED) -> Any:
    """Return `thing[key]`, of an object of JSON, if it is of the kind that is expected there."""
    if not isinstance(thing, dict):
        raise InputError(f"{where} is a JSON {type(thing).__name__}, expected an object with {key!r}.")
    value = thing.get(key)
    if value is None and default is not _NEEDED:
        return default
    if value is None:
        raise InputError(f"{where} has no {key!r}, its keys are {shown(list(thing))}; check the layout.")
    if not isinstance(value, kind):
        expected = kind[0] if isinstance(kind, tuple) else kind
        raise InputError(f"{where}: {key!r} is of type {type(value).__name__}, expected {expected.__name__}.")
    return value


def number_in(text: str, lowest: float = -LARGEST, highest: float = LARGEST) -> float | None:
    """Return the number that a text is, if it is a finite one in these bounds."""
    with suppress(ValueError):
        if lowest <= (value := float(text)) <= highest:
            return value
    return None


def shown(header: list[str] | tuple[str, ...]) -> str:
    """Format a header for an error: not too long, whatever stands there."""
    names = [name if len(name) <= SHOWN_CHARACTERS else f"{name[:SHOWN_CHARACTERS]}…" for name in header]
    return ", ".join(names[:SHOWN_COLUMNS]) + (", …" if len(names) > SHOWN_COLUMNS else "")
