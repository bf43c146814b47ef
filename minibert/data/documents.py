"""Read files whose format separates documents: JSON lines, tables, dumps of Wikipedia."""

from collections.abc import Iterator
from pathlib import Path
from reprlib import repr as short

from minibert.base.errors import InputError, did_you_mean
from minibert.base.reading import PIECE_BYTES, Progress, byte_pieces, suffix_of
from minibert.base.terminal import counted
from minibert.data.lines import JSON_LINES, TABLES, delimiter_in, json_lines, shown, table_rows
from minibert.data.wikipedia import articles

DOCUMENTS = {
    "jsonl": "a document on each line, in JSON",
    "table": "a document in each row of a table",
    "wikipedia": "articles of a dump of Wikipedia",
}


def format_of(file: Path) -> str:
    """Recognise the format of a file by its suffix, compressed or not.

    Parameters
    ----------
    file : Path
        The file, which need not exist.

    Returns
    -------
    str
        A key of `DOCUMENTS`: dumps may have names such as .xml-p1p41242, too. "" for any other file.
    """
    suffix = suffix_of(file)
    if suffix in JSON_LINES:
        return "jsonl"
    if suffix in TABLES:
        return "table"
    if suffix.startswith(".xml"):
        return "wikipedia"
    return ""


def text_of(
    file: Path, size: int = PIECE_BYTES, progress: Progress = None, column: str = "text", warns: bool = False
) -> Iterator[bytes]:
    """Yield the text of a file in pieces; documents of other formats are separated by blank lines.

    Plain text is yielded as it is. Other formats have a paragraph on each line.

    Parameters
    ----------
    file : Path
        Plain text, JSON lines, a table or a dump of Wikipedia, as `format_of` tells by its name.
    size : int
        Approximate number of bytes in a piece.
    progress : callable, optional
        Called with the number of bytes of the file on the disk that have been read.
    column : str, default "text"
        Key of JSON lines, or column of tables, that has the text. For a table it may be a number, from 1, if
        no column has that name: the table then has no header.
    warns : bool, default False
        Warn of articles that are left out.

    Yields
    ------
    bytes
        UTF-8, in pieces of about that size; the last one is empty.

    Raises
    ------
    InputError
        When the file can't be read, or has no such column.
    """
    if not (form := format_of(file)):
        yield from byte_pieces(file, size, progress)
        return
    if form == "wikipedia":
        texts = articles(file, progress, warns)
    elif form == "table":
        texts = _cells(file, column, progress)
    else:
        texts = _texts(file, column, progress)
    waiting = bytearray()
    for text in texts:
        lines = "\n".join(filter(str.strip, text.splitlines()))
        waiting += f"{lines}\n\n".encode(errors="replace")  # JSON may have half of a surrogate pair
        if len(waiting) >= size:
            yield bytes(waiting)
            waiting.clear()
    yield from (bytes(waiting), b"")


def _cells(file: Path, column: str, progress: Progress) -> Iterator[str]:
    """Yield the cells of one column of a table, which is a name in its header or a number from 1."""
    delimiter = TABLES[suffix_of(file)]
    if not column.isdecimal():
        delimiter = delimiter_in(file, delimiter, [column])
    table = table_rows(file, delimiter, in_memory=False, progress=progress)
    first_line, header = next(table, (1, []))
    if not header:
        return
    if column in header:
        index = header.index(column)
    elif column.isdecimal() and 1 <= int(column) <= len(header):
        index = int(column) - 1
        yield header[index]
    else:
        raise _no_column(f"{file}, line {first_line}", column, header)
    for number, row in table:
        if len(row) != len(header):
            raise InputError(
                f"{counted(len(row), 'column')} where the first row has {len(header)}; put texts with "
                "delimiters or line ends in quotation marks, as CSV does, or give the texts as .jsonl.",
                where=f"{file}, line {number}",
            )
        yield row[index]


def _no_column(where: str, column: str, names: list[str]) -> InputError:
    flags = {name: f"column={name!r}" for name in names}
    near = did_you_mean(column, flags, "name the one that has the text with `column`.")
    return InputError(f"there is no column {column!r}, only {shown(names)}; {near}", where=where)


def _texts(file: Path, column: str, progress: Progress) -> Iterator[str]:
    for number, row in json_lines(file, in_memory=False, progress=progress):
        if column not in row:
            raise _no_column(f"{file}, line {number}", column, list(row))
        text = row[column]
        if not isinstance(text, str | None):
            raise InputError(
                f"{column!r} is {short(text)}, expected a text or null.", where=f"{file}, line {number}"
            )
        yield text or ""
