"""Lines of text that commands read: of a file, or as they come on the standard input."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from minibert.data.reading import text_pieces
from minibert.errors import InputError

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
        for number, line in enumerate(sys.stdin.buffer, start=1):
            try:
                yield line.decode().rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise InputError(
                    f"line {number:,} of the standard input is not UTF-8 (byte 0x{line[error.start]:02x}); "
                    "convert it, e.g. with iconv -t UTF-8."
                ) from None
        return
    rest = ""
    for piece in text_pieces(Path(file), told):
        *lines, rest = (rest + piece).split("\n")
        yield from lines
    if rest:
        yield rest
