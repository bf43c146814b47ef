"""Files as pieces of bytes or of text, plain, .gz or .xz: a file needs no memory for its length."""

import codecs
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
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
    progress : hears how many bytes on the disk are read, compressed ones if they are.

    Raises
    ------
    InputError
        When the file can't be read, or is damaged.
    """
    try:
        with open(file, "rb") as raw, _decompressed(file, raw) as stream:
            while data := stream.read(size):
                if progress:
                    progress(raw.tell())
                yield data
            yield b""
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise InputError(f"{file} is damaged or cut short ({error}); fetch or compress it again.") from error
    except OSError as error:
        raise InputError(f"{file} can't be read: {error.strerror or error}; check the file.") from error


def _decompressed(file: Path, raw: BinaryIO) -> BinaryIO:
    if file.suffix == ".gz":
        return gzip.GzipFile(fileobj=raw)
    if file.suffix == ".xz":
        return lzma.LZMAFile(raw)
    return raw


def text_pieces(file: Path, progress: Callable[[int], None]) -> Iterator[str]:
    """The characters of a file in pieces, \\r\\n and \\r as \\n; `progress` hears the place on the disk."""
    utf8 = codecs.getincrementaldecoder("utf-8")()
    decoder = io.IncrementalNewlineDecoder(utf8, translate=True)
    done = 0
    for data in byte_pieces(file, progress=progress):
        held_back = len(utf8.getstate()[0])  # the beginning of a character cut by the border of the piece
        try:
            text = decoder.decode(data)
            if not data:
                text += decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            raise InputError(
                f"{file} is not UTF-8: byte 0x{error.object[error.start]:02x} at offset "
                f"{done - held_back + error.start:,} of the text; convert it, e.g. with iconv -t UTF-8."
            ) from error
        yield text.removeprefix("\ufeff") if done == 0 else text
        done += len(data)
