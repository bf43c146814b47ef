"""Lines of text that commands read: of a file, or as they come on the standard input."""

import sys
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

from minibert.reading import decoded, text_pieces

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
        When the file can't be read or is not UTF-8.
    """
    if file == STANDARD_INPUT:
        # Line by line: what was typed is answered at once, and what stands before a bad byte is answered.
        pieces = decoded(chain(sys.stdin.buffer, [b""]), "the standard input")
    else:
        pieces = text_pieces(Path(file), told)
    rest = ""
    for piece in pieces:
        *lines, rest = (rest + piece).split("\n")
        yield from lines
    if rest:
        yield rest
