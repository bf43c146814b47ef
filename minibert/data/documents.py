"""Files that say where their documents begin and end, JSON lines and dumps of Wikipedia, as plain text."""

from collections.abc import Iterator
from pathlib import Path
from reprlib import repr as short

from minibert.data.lines import JSON_LINES, json_lines, shown
from minibert.data.wikipedia import articles
from minibert.errors import InputError, did_you_mean
from minibert.reading import PIECE_BYTES, Progress, byte_pieces, suffix_of

DOCUMENTS = {"jsonl": "a document on each line, in JSON", "wikipedia": "articles of a dump of Wikipedia"}


def format_of(file: Path) -> str:
    """Tell JSON lines and dumps, .xml-p1p41242 too, by the suffix; "" for any other file."""
    suffix = suffix_of(file)
    return "jsonl" if suffix in JSON_LINES else "wikipedia" if suffix.startswith(".xml") else ""


def text_of(
    file: Path, size: int = PIECE_BYTES, progress: Progress = None, column: str = "text", tells: bool = False
) -> Iterator[bytes]:
    """Yield text as `byte_pieces`; of JSON lines and dumps a paragraph a line, a blank one between documents.

    With `tells`, warn of articles that are left out.
    """
    if not (form := format_of(file)):
        yield from byte_pieces(file, size, progress)
        return
    waiting = bytearray()
    for text in _texts(file, column, progress) if form == "jsonl" else articles(file, progress, tells):
        lines = "\n".join(filter(str.strip, text.splitlines()))
        waiting += f"{lines}\n\n".encode(errors="replace")  # JSON may have half of a character
        if len(waiting) >= size:
            yield bytes(waiting)
            waiting.clear()
    yield from (bytes(waiting), b"")


def _texts(file: Path, column: str, progress: Progress) -> Iterator[str]:
    for number, row in json_lines(file, kept=False, progress=progress):
        if column not in row:
            near = did_you_mean(column, list(row), "name the one that has the text with --column.")
            has = f"has no column {column!r}, but {shown(list(row))}"
            raise InputError(f"{file}, line {number} {has}; {near}")
        if not isinstance(text := row[column], str | None):
            raise InputError(f"{file}, line {number}: {column!r} is {short(text)}, expected a text or null.")
        yield text or ""
