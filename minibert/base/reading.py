"""Files as pieces of bytes or of text, compressed or not: a file needs no memory for its length.

What a compressed file unfolds to, or a pipe gives, is bounded where it is kept in memory, a line everywhere.
"""

import bz2
import codecs
import gzip
import io
import lzma
import math
import os
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from minibert.base.errors import InputError, MissingFile
from minibert.base.files import LARGEST_WHOLE, open_file

Progress = Callable[[int], None] | None  # hears of bytes that are read
PIECE_BYTES = 1 << 16  # read at once
WINDOW_BITS = 27  # bytes to decompress with, as a power of 2: twice what `xz -9` asks for, all of `zstd -22`
LONGEST_LINE = 1 << 24  # bytes; a file without line ends must not become one string
# What is kept of a compressed file has at most so many times its bytes, or so many: text becomes 3 to 20
# times as long, and a file made to fill the memory 1,000 to 7,000 times.
MOST_TIMES, LEAST_UNFOLDED = 100, 1 << 26
# How files begin that hold no UTF-8, what they are, and what to do.
_OTHERWISE = {
    b"PK\x03\x04": "a ZIP archive, as spreadsheets (.xlsx, .ods) and .docx are; save it as CSV or plain text",
    b"\xd0\xcf\x11\xe0": "a spreadsheet or document of an old Office; save it as CSV or plain text",
    b"%PDF-": "a PDF; save its text",
    b"PAR1\x15": "a Parquet file; save it as CSV or JSON Lines",
    b"\x1f\x8b": "compressed by gzip; let its name end in .gz",
    b"\xfd7zXZ\0": "compressed by xz; let its name end in .xz",
    b"BZh91AY&SY": "compressed by bzip2; let its name end in .bz2",
    b"\x28\xb5\x2f\xfd": "compressed by zstd; let its name end in .zst",
}
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_OTHERWISE |= dict.fromkeys(_UTF16_MARKS, "UTF-16; convert it, e.g. by iconv -f UTF-16 -t UTF-8")


def byte_pieces(
    file: Path, size: int = PIECE_BYTES, progress: Progress = None, kept: bool = False, streams: bool = True
) -> Iterator[bytes]:
    """Yield a file in pieces of at most `size` bytes, decompressed by its suffix; the last is empty.

    Raise MissingFile when there is no such file; InputError when the file can't be read, is a socket or a
    device, is damaged, begins as a file that is no text, such as a spreadsheet, or gives more than it may.

    Parameters
    ----------
    progress : hears how many bytes on the disk are read, compressed ones if they are; of a pipe nothing.
    kept : whether the caller keeps them, or what it makes of them, in memory. A compressed file may then give
        MOST_TIMES its size or LEAST_UNFOLDED bytes, whichever is more, and a pipe LARGEST_WHOLE.
    streams : read a pipe or a terminal, too.
    """
    try:
        with open_file(file, streams) as raw:
            packed = PACKED.get(file.suffix.lower())
            most = _most_kept(raw, packed is not None) if kept else math.inf
            given = 0
            for data in (packed or _plain)(raw, size):
                given += len(data)
                if given > most:
                    raise too_much(file, most)
                if progress and raw.seekable():
                    progress(raw.tell())
                for begin, what in _OTHERWISE.items() if given == len(data) else ():
                    if data.startswith(begin):
                        raise InputError(f"{file} is {what}.")
                yield data
            yield b""
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        needs_memory = "memory" in str(error).lower()  # "Memory usage limit", or zstd's "too much memory"
        too_large = f"needs over {1 << WINDOW_BITS - 20} MiB to unfold"
        what = too_large if needs_memory else "is damaged or cut short"
        raise InputError(f"{file} {what} ({error}); fetch or compress it again.") from error
    except ImportError as error:
        raise InputError(f"{file} needs backports.zstd to be read; pip install backports.zstd.") from error
    except OSError as error:
        kind = MissingFile if isinstance(error, FileNotFoundError) else InputError
        raise kind(f"{file} can't be read: {error.strerror or error}; check the file.") from error


def _most_kept(raw: BinaryIO, is_packed: bool) -> float:
    """Return how many bytes of a file may be kept: of a plain one all, as its size is there to see."""
    status = os.fstat(raw.fileno())
    if not stat.S_ISREG(status.st_mode):
        return LARGEST_WHOLE
    return max(LEAST_UNFOLDED, MOST_TIMES * status.st_size) if is_packed else math.inf


def too_much(source: str | Path, most: float) -> InputError:
    """Return the error of a source that gives more bytes than are kept in memory."""
    why = "too many to be kept in memory of a compressed file or a pipe"
    advice = "if they are meant, write them to a plain file and give that."
    return InputError(f"{source} gives more than {most:,} bytes, {why}; {advice}")


def _plain(raw: BinaryIO | gzip.GzipFile, size: int) -> Iterator[bytes]:
    return iter(lambda: raw.read(size), b"")


def _of_streams(
    raw: BinaryIO, size: int, decompressor: Callable[[], Any], padding: bytes = b""
) -> Iterator[bytes]:
    """Decompress streams end to end, with padding between them or without.

    `lzma.LZMAFile` lets a file of 90 kB take 500 MB, and silently ends where zeros stand between streams;
    `bz2.BZ2File` ends where anything else does.
    """
    data, found = raw.read(size), b""
    while True:
        decoder = decompressor()
        while not decoder.eof:
            try:
                found += decoder.decompress(data, size - len(found))
            except MemoryError:
                raise
            except Exception as error:  # of OSError, LZMAError and ZstdError each library has its own
                raise EOFError(str(error)) from error
            if len(found) == size:
                yield found
                found = b""
            if not decoder.eof:
                data = raw.read(size) if decoder.needs_input else b""
                if decoder.needs_input and not data:
                    raise EOFError("it ends in the middle")
        data = decoder.unused_data.lstrip(padding)
        while not data and (more := raw.read(size)):
            data = more.lstrip(padding)
        if not data:
            break
    if found:
        yield found


def _zstd() -> Any:
    try:
        from compression import zstd  # of Python 3.14
    except ImportError:
        from backports import zstd
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: WINDOW_BITS})


_xz = partial(lzma.LZMADecompressor, memlimit=1 << WINDOW_BITS)
PACKED: dict[str, Callable[[BinaryIO, int], Iterator[bytes]]] = {
    ".gz": lambda raw, size: _plain(gzip.GzipFile(fileobj=raw), size),
    ".xz": partial(_of_streams, decompressor=_xz, padding=b"\0"),
    ".bz2": partial(_of_streams, decompressor=bz2.BZ2Decompressor),
    ".zst": partial(_of_streams, decompressor=_zstd),
}


def suffix_of(file: Path) -> str:
    """Return the suffix of a file in small letters, whether it is compressed or not."""
    return next((end for end in reversed([one.lower() for one in file.suffixes]) if end not in PACKED), "")


def whole_lines(pieces: Iterable[bytes], source: str | Path, returns: bool = True) -> Iterator[bytes]:
    """Yield the bytes in pieces that end where a line does; if `returns`, a lone \\r ends one as well."""
    waiting: list[bytes] = []
    size, number = 0, 1  # of what waits; of the line that it belongs to
    for piece in pieces:
        cut = piece.rfind(b"\n") + 1
        if returns:
            cut = max(cut, piece.rfind(b"\r", 0, -1) + 1)  # one at the end may be half of \r\n
        if cut:
            lines = b"".join([*waiting, piece[:cut]])
            yield lines
            number += lines.count(b"\n") + returns * (lines.count(b"\r") - lines.count(b"\r\n"))
            waiting, size = [], 0
        waiting.append(piece[cut:])
        size += len(piece) - cut
        if size > LONGEST_LINE:
            advice = "a file of lines is expected: break it into lines, e.g. with fold -s."
            raise InputError(f"{source}, line {number} has more than {LONGEST_LINE >> 20} MiB; {advice}")
    if last := b"".join(waiting):
        yield last


def decoded(pieces: Iterable[bytes], source: str | Path, offset: int = 0) -> Iterator[str]:
    """Yield the characters of UTF-8 in pieces, \\r\\n and \\r as \\n, without a byte order mark.

    Pieces are of any length; an empty one is the last. Before the first are `offset` bytes, for the error.
    """
    utf8 = codecs.getincrementaldecoder("utf-8")()
    decoder = io.IncrementalNewlineDecoder(utf8, translate=True)
    done = offset
    for data in pieces:
        held_back = len(utf8.getstate()[0])  # the beginning of a character cut by the border of the piece
        try:
            text = decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            raise not_utf8(source, error, done - held_back) from error
        yield text.removeprefix("\ufeff") if done == 0 else text
        done += len(data)


def not_utf8(
    source: str | Path, error: UnicodeDecodeError, before: int | None = None, instead: str = ""
) -> InputError:
    """Return the error for bytes that are not UTF-8, with `before` others before them."""
    data, at = error.object, error.start
    place = "" if before is None else f" at offset {before + at:,} of the text"
    encoding = "UTF-16" if b"\0" in data or data.startswith(_UTF16_MARKS) else "CP1252"
    advice = f"convert it, e.g. by iconv -f {encoding} -t UTF-8{instead}."
    return InputError(f"{source} is not UTF-8: byte 0x{data[at]:02x}{place}; {advice}")
