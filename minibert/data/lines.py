"""Files of rows, one line after another and each with its number: tables, quoted or not, and JSON lines."""

import csv
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from minibert.errors import InputError
from minibert.json_files import parse_json
from minibert.reading import byte_pieces, whole_lines

SHOWN_COLUMNS, SHOWN_CHARACTERS = 16, 24  # of a header in an error
LARGEST = sys.float_info.max


def numbered_lines(file: str | Path, errors: str = "strict", ends: bool = False) -> Iterator[tuple[int, str]]:
    r"""Yield the lines of a UTF-8 file, counted from 1, without their ends (\n, \r\n or \r).

    Only these end a line: a vertical tab or U+2028 within a sentence doesn't. A byte order mark is dropped,
    .gz and .xz are decompressed. Bytes that are not UTF-8 are an error or, with errors="replace", U+FFFD;
    with `ends` lines keep theirs.
    """
    file = Path(file)
    number = 0
    for lines in whole_lines(byte_pieces(file, kept=True), file):
        for line in lines.splitlines(keepends=True):
            number += 1
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            try:
                text = line.decode(errors=errors)
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{file}, line {number} is not UTF-8 (byte 0x{error.object[error.start]:02x}); "
                    "convert the file, e.g. by iconv -f CP1252 -t UTF-8."
                ) from error
            yield number, text if ends else text.rstrip("\r\n")


def rows(file: str | Path, delimiter: str = "\t", errors: str = "strict") -> Iterator[tuple[int, list[str]]]:
    """Read the columns of every row of a table, with the number of its line; blank lines are passed over.

    Between tabs a quotation mark is a character like any other, as in the files of GLUE. Any other delimiter
    means CSV: a column within quotation marks may hold delimiters, line ends and doubled quotation marks.
    """
    if delimiter == "\t":
        return ((number, line.split("\t")) for number, line in numbered_lines(file, errors) if line)
    return _quoted_rows(file, delimiter, errors)


def _quoted_rows(file: str | Path, delimiter: str, errors: str) -> Iterator[tuple[int, list[str]]]:
    lines = (line for _, line in numbered_lines(file, errors, ends=True))  # errors name places in such text
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    first = 1  # line of the row that is being read
    try:
        for row in reader:
            if row:
                yield first, row
            first = reader.line_num + 1
    except csv.Error as error:
        raise InputError(
            f"{file}, line {first}: {error}; a column that holds a delimiter, a line end or a quotation mark "
            f'is written within "…", its quotation marks doubled, and has at most '
            f"{csv.field_size_limit():,} characters."
        ) from error


def json_lines(file: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the object on every line of a JSON Lines file with the line's number, but no blank lines."""
    for number, line in numbered_lines(file):
        if not line.strip():
            continue
        try:
            value = parse_json(line)
        except ValueError as error:
            raise InputError(
                f"{file}, line {number} is not JSON ({error}); one object a line is expected."
            ) from error
        if not isinstance(value, dict):
            kind = type(value).__name__
            raise InputError(f"{file}, line {number} is a JSON {kind}; one object a line is expected.")
        yield number, value


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
