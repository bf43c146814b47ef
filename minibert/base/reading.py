"""Read files in pieces of bytes or text, compressed or not, in memory that does not grow with the file.

There is a limit on what a compressed file or a pipe may give if that is kept in memory, and on every line.
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
from minibert.base.files import LARGEST_WHOLE, open_file, pieces_of

Progress = Callable[[int], None] | None  # called with the number of bytes read so far
PIECE_BYTES = 1 << 16  # read at once
WINDOW_BITS = 27  # log2 of the bytes for decompression: twice what `xz -9` needs, as much as `zstd -22`
LONGEST_LINE = 1 << 24  # bytes; a file without line ends must not become one string
# Limits on the content of a compressed file that is kept in memory: a multiple of the file's size, and a size
# that is always allowed. Text becomes 3 to 20 times as long, a file made to fill the memory 1,000 to 7,000.
MOST_TIMES, LEAST_UNFOLDED = 100, 1 << 26
# How files that are not UTF-8 text begin, what they are, and what to do.
_OTHERWISE = {
    b"PK\x03\x04": "a ZIP archive, as spreadsheets (.xlsx, .ods) and .docx are; unpack it, or save such a "
    "document as CSV or plain text",
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
    file: Path,
    size: int = PIECE_BYTES,
    progress: Progress = None,
    in_memory: bool = False,
    streams: bool = True,
) -> Iterator[bytes]:
    """Yield a file in pieces of at most `size` bytes, decompressed by its suffix; the last is empty.

    Parameters
    ----------
    file : Path
        The file; its suffix says how it is compressed.
    size : int, default 64 KiB
        Most bytes in a piece.
    progress : function of an int, optional
        Called with the number of bytes read from the disk, before decompression; never for a pipe.
    in_memory : bool, default False
        The caller keeps the bytes, or what it makes of them, in memory. A compressed file may then give
        MOST_TIMES its size or LEAST_UNFOLDED bytes, whichever is more, and a pipe LARGEST_WHOLE.
    streams : bool, default True
        Read a pipe or a terminal as well.

    Yields
    ------
    bytes

    Raises
    ------
    MissingFile
        When there is no such file.
    InputError
        When the file can't be read, is a socket or a device, is damaged, is clearly not text (a spreadsheet,
        for instance), or gives more than is allowed.
    """
    try:
        with open_file(file, streams) as raw:
            packed = PACKED.get(file.suffix.lower())
            most = _most_kept(raw, packed is not None) if in_memory else math.inf
            given = 0
            for data in (packed or pieces_of)(raw, size):
                is_first = given == 0
                given += len(data)
                if given > most:
                    raise too_much(file, most)
                if progress and raw.seekable():
                    progress(raw.tell())
                if is_first:
                    _refuse_otherwise(file, data)
                yield data
            yield b""
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        what = "is damaged or cut short"
        if "memory" in str(error).lower():  # "Memory usage limit", or zstd's "too much memory"
            what = f"needs over {1 << WINDOW_BITS - 20} MiB to unfold"
        raise InputError(f"{file} {what} ({error}); fetch or compress it again.") from error
    except ImportError as error:
        raise InputError(f"{file} needs backports.zstd to be read; pip install backports.zstd.") from error
    except FileNotFoundError as error:
        raise MissingFile(f"There is no file '{file}'; check its name.") from error
    except OSError as error:
        raise InputError(f"{file} can't be read: {error.strerror or error}; check the file.") from error


def _refuse_otherwise(file: Path, data: bytes) -> None:
    """Raise InputError if a file begins like a format that is not UTF-8 text."""
    for begin, what in _OTHERWISE.items():
        if data.startswith(begin):
            raise InputError(f"{file} is {what}.")


def _most_kept(raw: BinaryIO, is_packed: bool) -> float:
    """Return how many bytes of a file may be kept in memory; of a plain file, all."""
    status = os.fstat(raw.fileno())
    if not stat.S_ISREG(status.st_mode):
        return LARGEST_WHOLE
    if not is_packed:
        return math.inf
    return max(LEAST_UNFOLDED, MOST_TIMES * status.st_size)


def too_much(source: str | Path, most: float) -> InputError:
    """Return the error for a source that gives more bytes than may be kept in memory.

    Parameters
    ----------
    source : str or path
        What is being read, for the message.
    most : float
        Most bytes that are allowed.

    Returns
    -------
    InputError
        For the caller to raise.
    """
    why = "too many to be kept in memory of a compressed file or a pipe"
    advice = "if they are meant, write them to a plain file and give that."
    return InputError(f"{source} gives more than {most:,} bytes, {why}; {advice}")


def _of_streams(
    raw: BinaryIO,
    size: int,
    decompressor: Callable[[], Any],
    padding: bytes = b"",
) -> Iterator[bytes]:
    """Decompress concatenated streams, with padding between them or without.

    `lzma.LZMAFile` lets a file of 90 kB take 500 MB, and silently stops at zeros between streams;
    `bz2.BZ2File` silently stops at anything else between them.
    """
    data = raw.read(size)
    unfolded = b""
    while True:
        decoder = decompressor()
        while not decoder.eof:
            try:
                unfolded += decoder.decompress(data, size - len(unfolded))
            except MemoryError:
                raise
            except Exception as error:  # OSError, LZMAError or ZstdError
                raise EOFError(str(error)) from error
            if len(unfolded) == size:
                yield unfolded
                unfolded = b""
            if not decoder.eof:
                data = raw.read(size) if decoder.needs_input else b""
                if decoder.needs_input and not data:
                    raise EOFError("it ends in the middle")
        data = decoder.unused_data.lstrip(padding)
        while not data and (more := raw.read(size)):
            data = more.lstrip(padding)
        if not data:
            break
    if unfolded:
        yield unfolded


def _zstd() -> Any:
    try:
        from compression import zstd  # Python 3.14 or newer
    except ImportError:
        from backports import zstd
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: WINDOW_BITS})


_xz = partial(lzma.LZMADecompressor, memlimit=1 << WINDOW_BITS)
PACKED: dict[str, Callable[[BinaryIO, int], Iterator[bytes]]] = {
    ".gz": lambda raw, size: pieces_of(gzip.GzipFile(fileobj=raw), size),
    ".xz": partial(_of_streams, decompressor=_xz, padding=b"\0"),
    ".bz2": partial(_of_streams, decompressor=bz2.BZ2Decompressor),
    ".zst": partial(_of_streams, decompressor=_zstd),
}


def suffix_of(file: Path) -> str:
    """Return the suffix of a file in lower case, without that of its compression.

    Parameters
    ----------
    file : Path
        The file; only its name matters.

    Returns
    -------
    str
        ".txt" for a.TXT.gz; "" if there is none.
    """
    for suffix in reversed(file.suffixes):
        if suffix.lower() not in PACKED:
            return suffix.lower()
    return ""


def whole_lines(pieces: Iterable[bytes], source: str | Path, returns: bool = True) -> Iterator[bytes]:
    r"""Yield the bytes in pieces that end at the end of a line.

    Parameters
    ----------
    pieces : iterable of bytes
        Pieces of any length.
    source : str or path
        Where the bytes are from, for the error.
    returns : bool, default True
        A \r alone ends a line as well.

    Yields
    ------
    bytes
        One or more whole lines; the last line may lack its end.

    Raises
    ------
    InputError
        When a line has more than LONGEST_LINE bytes.
    """
    waiting: list[bytes] = []
    size = 0  # bytes waiting
    number = 1  # of the line that they belong to
    for piece in pieces:
        cut = piece.rfind(b"\n") + 1
        if returns:
            cut = max(cut, piece.rfind(b"\r", 0, -1) + 1)  # a \r at the end may be half of \r\n
        if cut:
            lines = b"".join([*waiting, piece[:cut]])
            yield lines
            number += lines.count(b"\n")
            if returns:
                number += lines.count(b"\r") - lines.count(b"\r\n")
            waiting = []
            size = 0
        waiting.append(piece[cut:])
        size += len(piece) - cut
        if size > LONGEST_LINE:
            advice = "a file of lines is expected: break it into lines, e.g. with fold -s."
            message = f"the line has more than {LONGEST_LINE >> 20} MiB; {advice}"
            raise InputError(message, where=f"{source}, line {number}")
    if last := b"".join(waiting):
        yield last


def decoded(pieces: Iterable[bytes], source: str | Path, offset: int = 0) -> Iterator[str]:
    r"""Decode UTF-8 in pieces, with \r\n and \r as \n, and without a byte order mark.

    Parameters
    ----------
    pieces : iterable of bytes
        Pieces of any length; an empty one is the last.
    source : str or path
        Where the bytes are from, for the error.
    offset : int, default 0
        Bytes before the first piece, for the error.

    Yields
    ------
    str

    Raises
    ------
    InputError
        When the bytes are not UTF-8; the error names the first wrong one.
    """
    utf8 = codecs.getincrementaldecoder("utf-8")()
    decoder = io.IncrementalNewlineDecoder(utf8, translate=True)
    done = offset
    for data in pieces:
        held_back = len(utf8.getstate()[0])  # bytes of a character that continues in this piece
        try:
            text = decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            raise not_utf8(source, error, done - held_back) from error
        yield text.removeprefix("\ufeff") if done == 0 else text
        done += len(data)


def not_utf8(
    source: str | Path,
    error: UnicodeDecodeError,
    before: int | None = None,
    instead: str = "",
) -> InputError:
    """Return the error for bytes that are not UTF-8.

    Parameters
    ----------
    source : str or path
        What is being read, for the message.
    error : UnicodeDecodeError
        Python's error.
    before : int, optional
        Bytes of the text before those of `error`; by default, the message gives no position.
    instead : str, default ""
        More advice, at the end of the message.

    Returns
    -------
    InputError
        For the caller to raise; the encoding is guessed to be UTF-16 or CP1252.
    """
    data = error.object
    at = error.start
    place = ""
    if before is not None:
        place = f" at offset {before + at:,} of the text"
    is_utf16 = b"\0" in data or data.startswith(_UTF16_MARKS)
    encoding = "UTF-16" if is_utf16 else "CP1252"
    advice = f"convert it, e.g. by iconv -f {encoding} -t UTF-8{instead}."
    return InputError(f"{source} is not UTF-8: byte 0x{data[at]:02x}{place}; {advice}")
