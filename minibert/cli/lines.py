"""Lines of text that commands read: of a file, or as they come on the standard input."""

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

from minibert.errors import InputError
from minibert.reading import PIECE_BYTES, byte_pieces, decoded, whole_lines

STANDARD_INPUT = "-"


def text_lines(file: str, told: Callable[[int], None] = lambda place: None) -> Iterator[str]:
    """The lines of a UTF-8 file, .gz and .xz too, or of the standard input; empty ones as well.

    Parameters
    ----------
    file : its name, "-" for the standard input.
    told : hears the place on the disk, in bytes; of the standard input nothing.

    Raises
    ------
    InputError
        When the file can't be read or is not UTF-8, or a line has more than 16 MiB.
    """
    if file == STANDARD_INPUT:
        # Line by line: what was typed is answered at once, and what stands before a bad byte is answered.
        name, pieces = "the standard input", iter(lambda: sys.stdin.buffer.readline(PIECE_BYTES), b"")
    else:
        name, pieces = file, byte_pieces(Path(file), progress=told)
    rest = ""
    for piece in decoded(chain(whole_lines(pieces, name), [b""]), name):
        *lines, rest = (rest + piece).split("\n")
        yield from lines
    if rest:
        yield rest


def refuse_file(text: str | None, instead: str) -> None:
    """Raise InputError where an argument that is taken for a text is the name of a file.

    Parameters
    ----------
    text : the argument, if there is one.
    instead : what to do; FILE in it becomes the name, as a shell wants it.
    """
    if text and os.path.isfile(text):
        instead = instead.replace("FILE", shlex.quote(text))
        raise InputError(f"{text} is a file, but a text is expected; {instead}.")
