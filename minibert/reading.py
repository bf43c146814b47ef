"""Files as pieces of bytes or of text, plain, .gz or .xz: a file needs no memory for its length."""

import codecs
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from minibert.errors import InputError

PIECE_BYTES = 1 << 16  # read at once


def byte_pieces(
    file: Path, size: int = PIECE_BYTES, progress: Callable[[int], None] | None = None
) -> Iterator[bytes]:
    """The bytes of a file in pieces of at most `size`, decompressed if it is a .gz or .xz; the last is empty.

    Parameters
    ----------
    progress : hears how many bytes on the disk are read, compressed ones if they are; of a pipe nothing.

    Raises
    ------
    InputError
        When the file can't be read, or is damaged.
    """
    try:
        with open(file, "rb") as raw, _decompressed(file, raw) as stream:
            while data := stream.read(size):
                if progress and raw.seekable():
                    progress(raw.tell())
                yield data
            yield b""
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise InputError(f"{file} is damaged or cut short ({error}); fetch or compress it again.") from error
    except OSError as error:
        raise InputError(f"{file} can't be read: {error.strerror or error}; check the file.") from error


def _decompressed(file: Path, raw: BinaryIO) -> BinaryIO:
    if file.suffix.lower() == ".gz":
        return gzip.GzipFile(fileobj=raw)
    if file.suffix.lower() == ".xz":
        return lzma.LZMAFile(raw)
    return raw


def text_pieces(file: Path, progress: Callable[[int], None]) -> Iterator[str]:
    """The characters of a file in pieces, as `decoded`; `progress` hears the place on the disk."""
    return decoded(byte_pieces(file, progress=progress), file)


def decoded(pieces: Iterable[bytes], source: str | Path) -> Iterator[str]:
    """The characters of UTF-8 in pieces, \\r\\n and \\r as \\n, without a byte order mark.

    Parameters
    ----------
    pieces : of any length; an empty one is the last.
    source : what the message of an error calls it.

    Raises
    ------
    InputError
        When it is not UTF-8.
    """
    utf8 = codecs.getincrementaldecoder("utf-8")()
    decoder = io.IncrementalNewlineDecoder(utf8, translate=True)
    done = 0
    for data in pieces:
        held_back = len(utf8.getstate()[0])  # the beginning of a character cut by the border of the piece
        try:
            text = decoder.decode(data)
            if not data:
                text += decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            raise InputError(
                f"{source} is not UTF-8: byte 0x{error.object[error.start]:02x} at offset "
                f"{done - held_back + error.start:,} of the text; convert it, e.g. with iconv -t UTF-8."
            ) from error
        yield text.removeprefix("\ufeff") if done == 0 else text
        done += len(data)
