r"""Print text safely: characters that control a terminal, or are invisible, are shown as escapes.

Names, labels, vocabularies and texts come from files, and a file may hold anything: ESC begins commands to
the terminal, U+202E reverses the rest of a line, a line end begins a new row. All output of the commands goes
through `emit`, and their messages about progress through the handler of `runlog`, so that what is in a file
can only appear as text. A pipe gets the same bytes as a terminal.
"""

import codecs
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TextIO

# Control characters except line ends and tabs, lone surrogates, the separators U+2028 and U+2029, and format
# characters (Cf), which reorder text or are invisible. Not among them: the joiners U+180E, U+200C and U+200D,
# which the spelling of Mongolian, Persian and the languages of India needs, and emoji; characters that are
# visible despite their category, such as U+06DD; and U+E0100 to U+E01EF, which select variants of ideographs.
_UNSEEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff"
    "\ufff0-\ufffb\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"
)
_IN_TEXT = re.compile(f"[{_UNSEEN}]")
_IN_LINE = re.compile(f"[\t\n{_UNSEEN}]")


def printable(text: str) -> str:
    r"""Return a text as one printable line, with Python's escapes for all other characters.

    Line ends and tabs are escaped too, so that a text from a file stays in its line or column.

    Parameters
    ----------
    text : str
        Any text.

    Returns
    -------
    str

    Examples
    --------
    >>> print(printable("a\x1b[31m\tb\u202e"))
    a\x1b[31m\tb\u202e
    """
    return _escaped(text, _IN_LINE, ascii)


def printable_text(text: str) -> str:
    """Return a text with escapes for unprintable characters; line ends and tabs stay.

    Parameters
    ----------
    text : str
        One line or several.

    Returns
    -------
    str
    """
    return _escaped(text, _IN_TEXT, ascii)


def emit(text: str = "", end: str = "\n", file: TextIO | None = None, flush: bool = False) -> None:
    """Print a text, one line or several, to the standard output or another stream.

    Parameters
    ----------
    text : str, default ""
        The text; `printable_text` is applied first.
    end : str, default a line end
        What follows it.
    file : text stream, optional
        By default, the standard output.
    flush : bool, default False
        Flush the stream afterwards.
    """
    print(printable_text(text), end=end, file=file, flush=flush)


def json_text(value: Any, indent: int | None = 2) -> str:
    r"""Return a value as JSON, with letters of all languages and escapes for unprintable characters.

    Parameters
    ----------
    value : object
        What `json.dumps` takes.
    indent : int, optional, default 2
        Spaces for each level; None: all on one line.

    Returns
    -------
    str

    Examples
    --------
    >>> print(json_text({"é": "\x9b\u202e"}, indent=None))
    {"é": "\u009b\u202e"}
    """
    return _escaped(json.dumps(value, indent=indent, ensure_ascii=False), _IN_TEXT, json.dumps)


def some_of(names: Sequence[str], most: int = 8) -> str:
    """List some names, separated by commas; of many, the first and how many more there are.

    Parameters
    ----------
    names : sequence of str
        The names.
    most : int, default 8
        How many to list.

    Returns
    -------
    str
        Such as "a, b and 3 more".
    """
    text = ", ".join(names[:most])
    more = len(names) - most
    if more > 0:
        text += f" and {more} more"
    return text


def duration(seconds: float) -> str:
    """Write a duration in a suitable unit.

    Parameters
    ----------
    seconds : float

    Returns
    -------
    str
        In seconds, minutes or hours.

    Examples
    --------
    >>> duration(3.21), duration(462), duration(7200)
    ('3.2 seconds', '7.7 minutes', '2.0 hours')
    """
    if seconds < 100:
        return f"{seconds:.1f} seconds"
    if seconds < 6000:
        return f"{seconds / 60:.1f} minutes"
    return f"{seconds / 3600:.1f} hours"


def aligned(rows: Iterable[Sequence[str]], left: int | None = None) -> list[str]:
    """Format rows as lines, with columns two spaces apart.

    Parameters
    ----------
    rows : iterable of sequence of str
        The cells of each row; all rows have the same number.
    left : int, optional
        How many columns are flush left; the others are flush right. None: all are flush left.

    Returns
    -------
    list of str
        A line for each row, without trailing spaces.

    Examples
    --------
    >>> aligned([("step", "loss"), ("7", "10.25")], left=1)
    ['step   loss', '7     10.25']
    """
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    n_left = len(widths[:left])
    cells = []
    for column, width in enumerate(widths):
        side = "<" if column < n_left else ">"
        cells.append(f"{{:{side}{width}}}")
    form = "  ".join(cells)
    return [form.format(*row).rstrip() for row in rows]


def listed(names: Sequence[str], before_last: str) -> str:
    """List names with commas, and with a word such as "or" before the last of several.

    Parameters
    ----------
    names : sequence of str
        One or more.
    before_last : str
        The word, "and" or "or".

    Returns
    -------
    str

    Examples
    --------
    >>> listed(("a", "b", "c"), "or")
    'a, b or c'
    """
    *others, last = names
    return f"{', '.join(others)} {before_last} {last}" if others else last


def counted(count: float, noun: str) -> str:
    """Return a number with its noun: "1 epoch", "2.5 epochs", "1,000 steps".

    Parameters
    ----------
    count : float
        The number; up to twelve digits are shown.
    noun : str
        The noun in the singular; its plural ends in s.

    Returns
    -------
    str
    """
    plural = "" if count == 1 else "s"
    return f"{count:,.12g} {noun}{plural}"


def write_what_can_be_written() -> None:
    r"""Make the standard output escape characters that its encoding lacks, as `\u20ac`."""
    out = sys.stdout
    # Python chooses "surrogateescape" in the locales C and C.UTF-8; it fails at half a surrogate pair.
    if getattr(out, "errors", None) in ("strict", "surrogateescape") and hasattr(out, "reconfigure"):
        codecs.register_error("minibert", _not_encoded)
        out.reconfigure(errors="minibert")


def flush_output() -> None:
    """Flush the standard output, while a failure can still be caught.

    Raises
    ------
    OSError
        If it can't be written: a full disk, a pipe that nobody reads. The rest is then discarded; otherwise
        Python would try again when the process ends, and end it with status 120.
    """
    _flush_or_discard(sys.stdout)


def flush_errors() -> None:
    """Flush the error stream; ignore failures, which nobody would see."""
    with suppress(OSError):
        _flush_or_discard(sys.stderr)


def _flush_or_discard(stream: TextIO) -> None:
    """Flush a stream; if that fails, lead it to where Python discards the rest when the process ends."""
    try:
        stream.flush()
    except OSError:
        with suppress(OSError):  # the stream is not a file
            descriptor = stream.fileno()
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, descriptor)
            os.close(null)
        raise


def _escaped(text: str, unseen: re.Pattern[str], quoted: Callable[[str], str]) -> str:
    """Escape what `unseen` matches; `quoted` returns an escape in quotation marks."""
    if text.isprintable():  # as most texts are; quick to check
        return text

    def escape(match: re.Match[str]) -> str:
        without_quotes = slice(1, -1)
        return quoted(match[0])[without_quotes]

    return unseen.sub(escape, text)


def _not_encoded(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)  # the handler is for writing only
    characters = error.object[error.start : error.end]
    digits = characters.encode("utf-16-be", "surrogatepass").hex()
    escapes = [f"\\u{digits[at : at + 4]}" for at in range(0, len(digits), 4)]
    return "".join(escapes), error.end
