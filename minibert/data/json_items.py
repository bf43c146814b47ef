"""Read a JSON object with a long array item by item, in the memory of one item and not of the file."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from minibert.base.errors import InputError
from minibert.base.reading import byte_pieces, decoded
from minibert.data.lines import shown

LOOKED_AHEAD = 1 << 16  # characters, at first
_DECODER = json.JSONDecoder()


def array_items(file: str | Path, names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Yield the items of those top-level arrays whose key is one of `names`, each with that key.

    Parameters
    ----------
    file : str or Path
        An object of JSON, which may be compressed.
    names : tuple of str
        Keys of arrays.

    Yields
    ------
    str
        The key.
    Any
        An item.

    Raises
    ------
    InputError
        When the file is not an object of JSON, is damaged, or has no such array.
    """
    text = _Text(Path(file))
    others: list[str] = []  # keys
    has_array = False
    first = text.peek()
    if first != "{":
        begins = f"begins with {first!r}" if first else "is empty"
        raise InputError(f"{file} {begins}, and an object of JSON is expected; check the name of the file.")
    for _ in text.between("{", "}"):
        key = text.value()
        if not isinstance(key, str):
            raise text.broken("a key within quotation marks")
        text.expect(":")
        if key in names and text.peek() == "[":
            has_array = True
            for _ in text.between("[", "]"):
                yield key, text.value()
        else:
            others.append(key)
            text.value()
    if text.peek():
        raise text.broken("the end of the file")
    if not has_array:
        wanted = " or ".join(map(repr, names))
        raise InputError(f"{file} has no array {wanted}, its keys are {shown(others)}; check the file.")


class _Text:
    """The characters of a file from the current position on, read as they are needed."""

    def __init__(self, file: Path):
        self.file = file
        self.pieces = filter(None, decoded(byte_pieces(file, in_memory=True), file))
        self.buffer = ""
        self.place = 0  # position in the buffer
        self.passed = 0  # characters that have left the buffer

    def peek(self) -> str:
        """Return the next character that is not a space; "" at the end of the file."""
        while True:
            while self.place < len(self.buffer):
                if self.buffer[self.place] not in " \t\n\r":
                    return self.buffer[self.place]
                self.place += 1
            if not self._more():
                return ""

    def expect(self, sign: str) -> None:
        """Pass over `sign`."""
        if self.peek() != sign:
            raise self.broken(repr(sign))
        self.place += 1

    def between(self, begin: str, end: str) -> Iterator[None]:
        """Skip two brackets and the commas between; yield before each item, for the caller to skip it."""
        self.expect(begin)
        if self.peek() != end:
            yield
            while self.peek() == ",":
                self.place += 1
                yield
        self.expect(end)

    def value(self) -> Any:
        """Return the value that begins at the current position."""
        self.peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self.buffer, self.place)
            except RecursionError as error:
                raise InputError(f"{self.file} is JSON nested too deeply; check the file.") from error
            except json.JSONDecodeError as error:
                place = self.passed + error.pos  # computed now, since reading further ahead changes it
                may_be_cut = error.msg.startswith("Unterminated") or error.pos + 16 > len(self.buffer)
                if may_be_cut and self._more():
                    continue
                raise InputError(
                    f"{self.file} is not JSON or cut short: {error.msg} at character {place:,}; "
                    "fetch it again."
                ) from error
            except ValueError as error:
                raise InputError(f"{self.file} is not JSON that can be read: {error}.") from error
            # A number may continue beyond the buffer: 1 | 2, 1. | 5, 1e | 9.
            if self.buffer[end : end + 1] not in ("", ".", "e", "E") or not self._more():
                self.place = end
                return value

    def _more(self) -> bool:
        """Read twice as far ahead, so that decoding again stays cheap; False at the end of the file."""
        rest = self.buffer[self.place :]
        more = ""
        while len(more) < max(LOOKED_AHEAD, len(rest)) and (piece := next(self.pieces, "")):
            more += piece
        self.passed += self.place
        self.place = 0
        self.buffer = rest + more
        return more != ""

    def broken(self, expected: str) -> InputError:
        """Return the error for a character that is not expected here."""
        character = self.peek()
        actual = repr(character) if character else "its end"
        return InputError(
            f"{self.file} is broken: at character {self.passed + self.place:,} {expected} is expected and "
            f"{actual} was found; fetch it again."
        )
