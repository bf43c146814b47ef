"""Files of rows, one line after another and each with its number: tables, quoted or not, and JSON lines."""

import csv
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from minibert.errors import InputError
from minibert.json_files import parse_json
from minibert.reading import byte_pieces, not_utf8, whole_lines

JSON_LINES = (".jsonl", ".ndjson", ".json")
SHOWN_COLUMNS, SHOWN_CHARACTERS = 16, 24  # of a header in an error
LARGEST = sys.float_info.max


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


def rows(
    file: str | Path, delimiter: str = "\t", errors: str = "strict", **reading: Any
) -> Iterator[tuple[int, list[str]]]:
    """Read the columns of every row of a table, with the number of its line; blank lines are passed over.

    Between tabs a quotation mark is a character like any other, as in the files of GLUE. Any other delimiter
    means CSV: a column within quotation marks may hold delimiters, line ends and doubled quotation marks.
    `reading` is for `numbered_lines`.
    """
    if delimiter == "\t":
        lines_of_file = numbered_lines(file, errors, **reading)
        yield from ((number, line.split("\t")) for number, line in lines_of_file if line)
        return
    # Errors name places in such text.
    lines = (line for _, line in numbered_lines(file, errors, ends=True, **reading))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    first = 1  # line of the row that is being read
    try:
        for row in reader:
            if row:
                yield first, row
            first = reader.line_num + 1
    except csv.Error as error:
        what = "a column that holds a delimiter, a line end or a quotation mark is written within"
        how = f'"…", its quotation marks doubled, and has at most {csv.field_size_limit():,} characters.'
        raise InputError(f"{file}, line {first}: {error}; {what} {how}") from error


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
