"""Cut texts and files of any length into pieces of a few megabytes that end between words."""

import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from reprlib import repr as short
from typing import NamedTuple, TypeVar

from minibert.errors import InputError
from minibert.reading import byte_pieces

PIECE_BYTES = 1 << 22  # of text, counted at once
LONGEST_STRETCH = 1 << 26  # bytes without any white space, which are held together
CRC_BYTES = 256  # of a line, by which it is held out or not
TRAINING, HELD_OUT, BY_LINE = 0, 1, 2  # where the words of a piece go

Item, Made = TypeVar("Item"), TypeVar("Made")


class Piece(NamedTuple):
    """Some text on its way to a counter."""

    data: bytes
    raw: bool = True  # bytes of unknown origin, otherwise those of a str
    side: int = TRAINING
    path: Path | None = None
    offset: int = 0  # of the first byte in its file
    position: int = 0  # how much was read up to here, in bytes on the disk


def pieces_of_texts(texts: Iterable[str | bytes]) -> Iterator[Piece]:
    """Join texts with line ends until a piece is full."""
    waiting: list[str | bytes] = []
    size = 0
    for number, text in enumerate(texts):
        if not isinstance(text, str | bytes):
            raise InputError(
                f"texts[{number}]={short(text)} is {type(text).__name__}; give strings or bytes."
            )
        if waiting and (size > PIECE_BYTES // 2 or isinstance(text, bytes) != isinstance(waiting[0], bytes)):
            yield _piece_of(waiting)
            waiting, size = [], 0
        waiting.append(text)
        size += len(text) + 1
    if waiting:
        yield _piece_of(waiting)


def _piece_of(texts: list[str | bytes]) -> Piece:
    if isinstance(texts[0], bytes):
        return Piece(b"\n".join(texts), raw=True)
    return Piece("\n".join(texts).encode("utf-8", "surrogatepass"), raw=False)


def pieces_of_file(file: Path, held_out: int) -> Iterator[Piece]:
    """Cut a file into pieces that end after white space; where lines decide, after a line end.

    A line that is longer than a piece comes in several, which say on which side it falls.
    """
    separators = b"\n" if held_out else b" \n\t\r"
    waiting: list[bytes] = []  # what follows the last separator so far
    side = BY_LINE if held_out else TRAINING
    offset = position = 0

    def taken(data: bytes) -> Piece:
        nonlocal offset
        offset += len(data)
        return Piece(data, True, side, file, offset - len(data), position)

    def read_up_to(place: int) -> None:
        nonlocal position
        position = place

    for block in byte_pieces(file, PIECE_BYTES, read_up_to):
        if held_out and side != BY_LINE:  # in the middle of a long line
            end = block.find(b"\n") + 1
            if end:
                yield taken(b"".join([*waiting, block[:end]]))
                waiting, block, side = [], block[end:], BY_LINE
        cut = _last(block, separators if side == BY_LINE or not held_out else b" \t\r")
        if cut:
            yield taken(b"".join([*waiting, block[:cut]]))
            waiting = []
        waiting.append(block[cut:])
        if sum(map(len, waiting)) > LONGEST_STRETCH:
            raise InputError(
                f"{file} has more than {LONGEST_STRETCH >> 20} MiB without any white space, from offset "
                f"{offset:,} of the text on; check that it is text, or put line ends into it."
            )
        if side == BY_LINE and sum(map(len, waiting)) >= max(PIECE_BYTES, CRC_BYTES):
            line = b"".join(waiting)
            waiting = [line]
            side = HELD_OUT if zlib.crc32(line[:CRC_BYTES]) % held_out == 0 else TRAINING
    if any(waiting):
        yield taken(b"".join(waiting))


def _last(block: bytes, separators: bytes) -> int:
    """Return the end of a block's last separator; 0 if it has none."""
    return 1 + max(block.rfind(separator) for separator in separators)


def in_order(
    work: Callable[[Item], Made], items: Iterable[Item], threads: int, ahead: int
) -> Iterator[tuple[Item, Made]]:
    """Yield items in order with what is made of each; threads work off up to `ahead` of them meanwhile."""
    pool = ThreadPoolExecutor(threads)
    under_way: deque[tuple[Item, Future[Made]]] = deque()
    try:
        for item in items:
            under_way.append((item, pool.submit(work, item)))
            if len(under_way) > ahead:
                first, future = under_way.popleft()
                yield first, future.result()
        for first, future in under_way:
            yield first, future.result()
    finally:
        pool.shutdown(cancel_futures=True)  # what runs is done in a moment


def size_of(file: Path) -> int:
    """Return the bytes of a file on the disk."""
    try:
        return file.stat().st_size
    except OSError as error:
        raise InputError(f"{file} can't be read: {error.strerror or error}; check the file.") from error


def not_utf8(piece: Piece) -> InputError:
    """Return the error that names the first byte of a piece that is not UTF-8."""
    try:
        piece.data.decode("utf-8")
    except UnicodeDecodeError as error:
        where = piece.offset + error.start
        return InputError(
            f"{piece.path} is not UTF-8: byte 0x{piece.data[error.start]:02x} at offset {where:,} of the "
            "text; convert it, e.g. with iconv -t UTF-8."
        )
    raise AssertionError("two decoders of UTF-8 differ")
