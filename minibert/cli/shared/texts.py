"""Read the texts that a command answers: from the command line, from files, or from the standard input."""

import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

from minibert.base.errors import InputError
from minibert.base.reading import PIECE_BYTES, Progress, byte_pieces, decoded, not_utf8, whole_lines
from minibert.base.terminal import emit, json_text, printable
from minibert.base.texts import answers_in_place, is_blank, refuse_empty

STANDARD_INPUT = "-"
ONE_A_LINE = "texts from the terminal, one per line"
LINES_AT_ONCE = 64  # lines of a file that are answered together
Item = TypeVar("Item")
Answer = TypeVar("Answer")
Ask = Callable[[list[Item]], Iterable[Answer]]


def add_texts(
    parser: Any,
    text: str = "a text, or more",
    pairs: str = "",
    blank: str = "a blank line has an empty answer",
) -> None:
    """Add TEXT and --file.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of the command.
    text : str, default "a text, or more"
        Help of TEXT.
    pairs : str, default ""
        What the help of --file says about pairs, after "one per line".
    blank : str
        What it says about blank lines.
    """
    text = f"{text} (default: the lines of the standard input)"
    parser.add_argument("texts", nargs="*", metavar="TEXT", help=text)
    text = f"a file of texts, one per line{pairs}; {blank}; -: the standard input; "
    text += "compressed files too; repeat the flag for more"
    parser.add_argument("--file", action="append", metavar="FILE", help=text)


def given_texts(
    arguments: Namespace,
    instead: str = "name it with --file FILE",
    progress: Progress = None,
) -> Iterable[str | None]:
    """Return the texts of the command line or, if there are none, the lines of files or the standard input.

    A blank line is not a text. It is None here, in whichever file it stands, so that every command gives it
    an empty answer, and later answers stay beside their lines.

    Parameters
    ----------
    arguments : Namespace
        Arguments of a command that uses `add_texts`. Its `begun` is set to the files begun so far, each with
        how many lines precede it, for messages about a line.
    instead : str
        What the error advises if a text is the name of a file.
    progress : function of an int, optional
        Called with the position in the file on the disk, in bytes; never for the standard input.

    Returns
    -------
    iterable of str or None
        Lines are read on demand; None for a blank one.

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
    return arguments.texts or _lines_of_files(arguments, progress)


def _lines_of_files(arguments: Namespace, progress: Progress) -> Iterator[str | None]:
    """Yield the lines of all files, None for a blank one; `arguments.begun` gets where each file begins."""
    arguments.begun = []
    before = 0
    for file in arguments.file or [STANDARD_INPUT]:
        arguments.begun.append((before, file))
        for line in text_lines(file, progress):
            before += 1
            yield None if is_blank(line) else line


def _place(arguments: Namespace, number: int) -> str:
    """Return where a line is, for a message: its file, and its number there.

    Parameters
    ----------
    arguments : Namespace
        Its `begun` is what `_lines_of_files` has noted.
    number : int
        Number of the line among those of all files, from 1.
    """
    before, file = next(begun for begun in reversed(arguments.begun) if begun[0] < number)
    line = f"line {number - before:,}"
    return line if file == STANDARD_INPUT else f"{printable(file)}, {line}"


def text_lines(file: str, progress: Progress = None) -> Iterator[str]:
    """Yield the lines, including empty ones, of a UTF-8 file (compressed too) or the standard input.

    Raises InputError when the file can't be read or is not UTF-8, or a line has more than 16 MiB.

    Parameters
    ----------
    file : str
        Its name, or `STANDARD_INPUT`.
    progress : function of an int, optional
        Called with the position in the file on the disk, in bytes; never for the standard input.

    Yields
    ------
    str
        A line without its end.
    """
    if file == STANDARD_INPUT:
        # Line by line, so that a typed line is answered at once, as are the lines before an invalid byte.
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
    texts: Iterable[Item | None],
    ask: Ask[Item, Answer],
    at_once: int = LINES_AT_ONCE,
) -> Iterator[Answer | None]:
    """Yield the answer to each text that a command was given.

    Texts on the command line are answered together, lines of files in groups of `at_once`, and lines of the
    standard input one by one as they arrive. The answer to a blank line is None. For another line that can't
    be answered it is None as well, a message on the error stream says why, and the command's status is 1.

    Parameters
    ----------
    arguments : Namespace
        Arguments of a command that uses `add_texts`; its `status` is changed.
    texts : iterable
        What to answer: one item for each text of `given_texts`, and None for each None.
    ask : function of a list
        Answers each item. `ask([])` raises the errors that do not depend on the texts.
    at_once : int, default 64
        Lines of files that are answered together.

    Yields
    ------
    answer or None
    """
    list(ask([]))
    if arguments.texts:
        yield from ask([text for text in texts if text is not None])
        return
    if STANDARD_INPUT in (arguments.file or [STANDARD_INPUT]):
        at_once = 1
    lines = iter(texts)
    number = 1
    while group := list(islice(lines, at_once)):
        yield from _answered(arguments, ask, group, number)
        number += len(group)


def _answered(
    arguments: Namespace, ask: Ask[Item, Answer], lines: list[Item | None], number: int
) -> list[Answer | None]:
    """Answer lines, the first of which has this number, together; if that fails, one by one."""
    try:
        return list(answers_in_place(lines, lambda texts: ask(list(texts)), None))
    except InputError as error:
        if len(lines) < 2:
            arguments.status = 1
            emit(f"minibert: {_place(arguments, number)}: {printable(str(error))}", file=sys.stderr)
            return [None]
        singly: list[Answer | None] = []
        for n, line in enumerate(lines, number):
            singly += _answered(arguments, ask, [line], n)
        return singly


def emit_answers(
    answers: Iterable[Answer | None],
    facts: Callable[[Answer], Any],
    text: Callable[[Answer], str],
    as_json: bool,
    separated: bool = True,
) -> None:
    """Print answers as they arrive: with --json an object for each, otherwise its text.

    Parameters
    ----------
    answers : iterable of answer or None
        None for a line that has no answer, which is shown as null or as an empty line.
    facts : function of an answer
        Returns what --json prints.
    text : function of an answer
        Returns its lines.
    as_json : bool
        Whether --json was given.
    separated : bool, default True
        Whether an empty line stands between two texts.
    """
    for number, answer in enumerate(answers):
        if as_json:
            emit(json_text(None if answer is None else facts(answer), indent=None), flush=True)
            continue
        shown = "" if answer is None else text(answer)
        if separated and number > 0:
            shown = f"\n{shown}"
        emit(shown, flush=True)


def as_utf8(data: bytes, name: str, begin: int = 0, instead: str = "") -> str:
    """Decode bytes.

    Parameters
    ----------
    data : bytes
        A text, or part of one.
    name : str
        Where they are from, for the error.
    begin : int, default 0
        Bytes that precede them there.
    instead : str, default ""
        More advice, for the end of the error.

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
    """Say on a terminal that the command is waiting for input.

    Parameters
    ----------
    what : str
        What the command reads.
    """
    if sys.stdin.buffer.isatty():
        end = "Ctrl-Z and Enter" if os.name == "nt" else "Ctrl-D"
        emit(f"minibert: reading {what}; end with {end}", file=sys.stderr)


def refuse_file(text: str | None, instead: str) -> None:
    """Refuse a text that is the name of a file.

    Parameters
    ----------
    text : str, optional
        The text as it was given; None and "" pass.
    instead : str
        What the error advises; the name replaces FILE.

    Raises
    ------
    InputError
        When a file of this name exists.
    """
    if text and os.path.isfile(text):
        instead = instead.replace("FILE", shlex.quote(text))
        raise InputError(f"'{text}' is a file, but a text is expected; {instead}.")


def refuse_folders(texts: Sequence[str], model: str | None, how: str = "a model with --model") -> None:
    """Refuse a text that is a folder where no model was named: the folder was meant as the model.

    Parameters
    ----------
    texts : sequence of str
        The texts on the command line.
    model : str or None
        The model that the command line names, if any.
    how : str
        What to name instead.

    Raises
    ------
    InputError
        When no model was named and a text is the path of a folder.
    """
    for text in texts if model is None else ():
        if os.path.isdir(text):
            raise InputError(f"'{text}' is a folder, but a text is expected; name {how}.")
