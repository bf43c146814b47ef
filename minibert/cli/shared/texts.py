"""Texts that commands answer: of the command line, lines of files, or what comes on the standard input."""

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from minibert.errors import InputError
from minibert.reading import PIECE_BYTES, byte_pieces, decoded, whole_lines

STANDARD_INPUT = "-"
Progress = Callable[[int], None] | None


def add_texts(parser: Any, text: str = "a text, or more", pairs: str = "") -> None:
    """Add TEXT, which is `text`, and --file, whose help speaks of `pairs`."""
    text = f"{text} (default: the lines of the standard input)"
    parser.add_argument("texts", nargs="*", metavar="TEXT", help=text)
    text = f"a file of texts, one on each line{pairs}, .gz and .xz too; -: standard input; repeat it for more"
    parser.add_argument("--file", action="append", metavar="FILE", help=text)


def given_texts(
    arguments: argparse.Namespace, instead: str = "name it with --file FILE", progress: Progress = None
) -> Iterable[str]:
    """Return the texts of the command line or, without any, the lines of files or of the standard input.

    Parameters
    ----------
    arguments : with `texts` and `file`, as `add_texts` has them.
    instead : what to do with a file that is given as a text; FILE in it becomes the name.
    progress : called with the place in the file on the disk, in bytes; for the standard input never.

    Raises
    ------
    InputError
        When there are both, or a text is the name of a file.
    """
    if arguments.texts and arguments.file:
        raise InputError("Texts and --file were both given; give one of them.")
    for text in arguments.texts:
        refuse_file(text, instead)
    files = arguments.file or [STANDARD_INPUT]
    return arguments.texts or chain.from_iterable(text_lines(file, progress) for file in files)


def text_lines(file: str, progress: Progress = None) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, .gz and .xz too, or of the standard input; empty ones as well.

    Raises
    ------
    InputError
        When the file can't be read or is not UTF-8, or a line has more than 16 MiB.
    """
    if file == STANDARD_INPUT:
        # Line by line: what was typed is answered at once, and what stands before a bad byte is answered.
        name, pieces = "the standard input", iter(lambda: sys.stdin.buffer.readline(PIECE_BYTES), b"")
    else:
        name, pieces = file, byte_pieces(Path(file), progress=progress)
    rest = ""
    for piece in decoded(chain(whole_lines(pieces, name), [b""]), name):
        *lines, rest = (rest + piece).split("\n")
        yield from lines
    if rest:
        yield rest


def refuse_file(text: str | None, instead: str) -> None:
    """Raise InputError where an argument that is taken for a text is the name of a file.

    It says what to do `instead`; FILE in that becomes the name, as a shell wants it.
    """
    if text and os.path.isfile(text):
        instead = instead.replace("FILE", shlex.quote(text))
        raise InputError(f"{text} is a file, but a text is expected; {instead}.")
