"""Read LevelDB's sorted string table, the format of a TensorFlow checkpoint's index.

A table has keys and values in blocks.

A block is a list of entries, each of which shares the beginning of its key with the entry before, and ends
with the offsets of the entries that share nothing. After each block come its kind of compression, here none,
and a CRC-32C. The file ends with the position of the index of the blocks, and a magic number
(leveldb/doc/table_format.md).
"""

from collections.abc import Iterable, Iterator

from minibert.hub.tensorflow.checksums import crc32c, masked

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # kinds of fields in the format of Protocol Buffers
_MAGIC = 0xDB4775248B80FB57.to_bytes(8, "little")
_FOOTER, _TRAILER = 48, 5  # bytes
_PLAIN = 0  # no compression of a block; TensorFlow writes an index so since its release 1.2
LIMIT = 4 << 20  # most bytes of a file, of a block, and of all entries; an index has some ten thousand
_KEY_LIMIT = 4096


def read_table(data: bytes) -> dict[bytes, bytes]:
    """Read a table.

    Parameters
    ----------
    data : bytes
        The whole file.

    Returns
    -------
    dict of bytes to bytes
        Values by keys, in the order of the keys.

    Raises
    ------
    ValueError
        When the file is not a complete table, or larger than any index.
    """
    if len(data) > LIMIT:
        raise ValueError(f"it has {len(data)} bytes, more than any index")
    if len(data) < _FOOTER or data[-8:] != _MAGIC:
        raise ValueError("it does not end as such a file does")
    at = len(data) - _FOOTER
    for _ in range(2):  # the first position is that of the metaindex, which an index does not use
        offset, at = read_varint(data, at)
        size, at = read_varint(data, at)
    table: dict[bytes, bytes] = {}
    last = b""  # the last key
    end = 0  # where the last block ends
    total = 0  # bytes of all entries
    for _, handle in _entries(_block(data, offset, size)):
        offset, at = read_varint(handle, 0)
        size, _ = read_varint(handle, at)
        if offset < end:
            raise ValueError("its blocks are out of order")
        end = offset + size + _TRAILER
        for key, value in _entries(_block(data, offset, size)):
            total += len(key) + len(value)
            if table and key <= last:
                raise ValueError("its keys are out of order")
            if total > LIMIT:
                raise ValueError("it unfolds to more than any index has")
            table[key] = value
            last = key
    return table


def _block(data: bytes, offset: int, size: int) -> bytes:
    """Return a block after comparing its checksum."""
    end = offset + size
    if end + _TRAILER > len(data) - _FOOTER:
        raise ValueError("a block reaches beyond the end")
    kind = data[end]
    check = masked(crc32c(data[offset : end + 1]))
    if check.to_bytes(4, "little") != data[end + 1 : end + _TRAILER]:
        raise ValueError("a block does not match its checksum")
    if kind != _PLAIN:
        how = f"compressed in the unknown way {kind}"
        if kind == 1:
            how = "compressed by Snappy"
        raise ValueError(f"a block is {how}; save the checkpoint again with TensorFlow 1.2 or later")
    return data[offset:end]


def _entries(block: bytes) -> Iterable[tuple[bytes, bytes]]:
    """Yield keys and values of a block."""
    n_restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 - 4 * n_restarts
    if len(block) < 4 or end < 0:
        raise ValueError("a block is shorter than it claims")
    key = b""
    at = 0
    while at < end:
        shared, at = read_varint(block, at)
        fresh, at = read_varint(block, at)
        size, at = read_varint(block, at)
        if shared > len(key) or shared + fresh > _KEY_LIMIT or at + fresh + size > end:
            raise ValueError("an entry is longer than it can be")
        key = key[:shared] + block[at : at + fresh]
        yield key, block[at + fresh : at + fresh + size]
        at += fresh + size


# Protocol Buffers' wire format, as much of it as an index needs: varints and fields by number


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a whole number of up to 64 bits, seven to a byte from the lowest on.

    Parameters
    ----------
    data : bytes
        Bytes that contain the number.
    at : int
        Index of its first byte.

    Returns
    -------
    tuple of two int
        The number, and the index of the byte after it.

    Raises
    ------
    ValueError
        When it runs beyond the end of `data`, or beyond 64 bits.
    """
    value = 0
    for number, byte in enumerate(data[at : at + 10]):
        value |= (byte & 127) << 7 * number
        if byte < 128 and value < 1 << 64:
            return value, at + number + 1
    raise ValueError("a number does not end")


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Read the fields of a message.

    Parameters
    ----------
    message : bytes
        The whole message.

    Yields
    ------
    tuple
        Number and value of a field: a whole number, or the bytes of a string or message.

    Raises
    ------
    ValueError
        When a field runs beyond the end, or has a wire type other than 0, 1, 2 and 5. Types 3 and 4, groups,
        are obsolete, and there are no others.
    """
    at = 0
    while at < len(message):
        key, at = read_varint(message, at)
        wire_type = key & 7
        if wire_type == _VARINT:
            value, at = read_varint(message, at)
            yield key >> 3, value
            continue
        if wire_type == _BYTES:
            size, at = read_varint(message, at)
        elif wire_type in (_FIXED32, _FIXED64):
            size = 4 if wire_type == _FIXED32 else 8
        else:
            raise ValueError(f"a field has the unknown wire type {wire_type}")
        part = message[at : at + size]
        at += size
        if at > len(message):
            raise ValueError("a field is longer than its message")
        yield key >> 3, part if wire_type == _BYTES else int.from_bytes(part, "little")
