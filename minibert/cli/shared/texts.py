"""Texts that commands answer: of the command line, lines of files, or what comes on the standard input."""

import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

from minibert.base.errors import InputError
from minibert.base.reading import PIECE_BYTES, Progress, byte_pieces, decoded, not_utf8, whole_lines
from minibert.base.terminal import emit, printable
from minibert.base.texts import refuse_empty

STANDARD_INPUT = "-"
ONE_A_LINE = "texts from the terminal, one a line"
LINES_AT_ONCE = 64  # of files that are answered together
Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
Ask = Callable[[list[Asked]], Iterable[Answer]]


def add_texts(parser: Any, text: str = "a text, or more", pairs: str = "") -> None:
    """Add TEXT and --file.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of the command.
    text : str, default "a text, or more"
        What TEXT is, for its help.
    pairs : str, default ""
        What the help of --file says of pairs, after "one on each line".
    """
    text = f"{text} (default: the lines of the standard input)"
    parser.add_argument("texts", nargs="*", metavar="TEXT", help=text)
    text = (
        f"a file of texts, one per line{pairs}, also compressed; -: standard input; repeat the flag for more"
    )
    parser.add_argument("--file", action="append", metavar="FILE", help=text)


def given_texts(
    arguments: Namespace,
    instead: str = "name it with --file FILE",
    progress: Progress = None,
) -> Iterable[str]:
    """Return the texts of the command line or, without any, the lines of files or of the standard input.

    Parameters
    ----------
    arguments : Namespace
        Arguments of a command with `add_texts`.
    instead : str
        What the error advises where a text is the name of a file.
    progress : function of an int, optional
        Called with the place in the file on the disk, in bytes; for the standard input never.

    Returns
    -------
    iterable of str
        Lines are read as they are asked for.

    Raises
    ------
    InputError
        When there are both texts and files, or a text is empty or the name of a file.
    """
    if arguments.texts and arguments.file:
        raise InputError("Texts and --file were both given; give one of them.")
    for text in arguments.texts:
        refuse_file(text, instead)
        refuse_empty(text)
    files = arguments.file or [STANDARD_INPUT]
    return arguments.texts or chain.from_iterable(text_lines(file, progress) for file in files)


def text_lines(file: str, progress: Progress = None) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, compressed too, or of the standard input; empty ones as well.

    An InputError is raised when the file can't be read or is not UTF-8, or a line has more than 16 MiB.

    Parameters
    ----------
    file : str
        Its name, or `STANDARD_INPUT`.
    progress : function of an int, optional
        Called with the place in the file on the disk, in bytes; for the standard input never.

    Yields
    ------
    str
        Without the line end.
    """
    if file == STANDARD_INPUT:
        # Line by line: what was typed is answered at once, and what stands before a bad byte is answered.
        announce_typed_input(ONE_A_LINE)
        name = "the standard input"
        pieces = iter(lambda: sys.stdin.buffer.readline(PIECE_BYTES), b"")
    else:
        name = file
        pieces = byte_pieces(Path(file), progress=progress)
    rest = ""
    whole = chain(whole_lines(pieces, name), [b""])
    for piece in decoded(whole, name):
        *lines, rest = (rest + piece).split("\n")
        yield from lines
    if rest:
        yield rest


def answers(
    arguments: Namespace,
    texts: Iterable[Asked],
    ask: Ask[Asked, Answer],
    at_once: int = LINES_AT_ONCE,
) -> Iterator[Answer | None]:
    """Yield the answer to each text that a command was given.

    The texts of the command line are asked about together, lines of files so many at once, and those of the
    standard input one by one as they come. Of a line that can't be answered a message on the error stream
    says why, the answer is None, and the command's status 1.

    Parameters
    ----------
    arguments : Namespace
        Arguments of a command with `add_texts`; its `status` is changed.
    texts : iterable
        What is asked about, one for each text of `given_texts`.
    ask : function of a list
        Gives an answer to each; `ask([])` complains of what is wrong with all.
    at_once : int, default 64
        Lines of files that are asked about together.

    Yields
    ------
    answer or None
    """
    list(ask([]))
    if arguments.texts:
        yield from ask(list(texts))
        return
    if STANDARD_INPUT in (arguments.file or [STANDARD_INPUT]):
        at_once = 1
    lines = iter(texts)
    number = 1
    while group := list(islice(lines, at_once)):
        for answer in _tried(ask, group, number):
            arguments.status |= answer is None
            yield answer
        number += len(group)


def _tried(ask: Ask[Asked, Answer], lines: list[Asked], number: int) -> list[Answer | None]:
    """Ask about lines, the first of which has this number; where that fails, about each by itself."""
    try:
        return list(ask(lines))
    except InputError as error:
        if len(lines) < 2:
            emit(f"minibert: line {number:,}: {printable(str(error))}", file=sys.stderr)
            return [None]
        singly: list[Answer | None] = []
        for n, line in enumerate(lines, number):
            singly += _tried(ask, [line], n)
        return singly


def as_utf8(data: bytes, name: str, begin: int = 0, instead: str = "") -> str:
    """Decode bytes.

    Parameters
    ----------
    data : bytes
        A text, or a part of one.
    name : str
        Where it is from, for the error.
    begin : int, default 0
        Bytes that stand before it there.
    instead : str, default ""
        More advice, at the end of the error.

    Returns
    -------
    str

    Raises
    ------
    InputError
        At the first byte that is not UTF-8.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise not_utf8(name, error, begin, instead) from None


def announce_typed_input(what: str) -> None:
    """Say at a terminal that the command waits for what is typed.

    Parameters
    ----------
    what : str
        What it reads.
    """
    if sys.stdin.buffer.isatty():
        end = "Ctrl-Z and Enter" if os.name == "nt" else "Ctrl-D"
        emit(f"minibert: reading {what}; end with {end}", file=sys.stderr)


def refuse_file(text: str | None, instead: str) -> None:
    """Refuse a text that is the name of a file.

    Parameters
    ----------
    text : str, optional
        As it was given; None and "" pass.
    instead : str
        What the error advises, with the name for FILE.

    Raises
    ------
    InputError
        When there is such a file.
    """
    if text and os.path.isfile(text):
        instead = instead.replace("FILE", shlex.quote(text))
        raise InputError(f"'{text}' is a file, but a text is expected; {instead}.")
