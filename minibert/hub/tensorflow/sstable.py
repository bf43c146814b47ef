"""LevelDB's sorted string table, the form of a TensorFlow checkpoint's index: keys and values in blocks.

A block is entries that share the beginning of their key with the one before, and at its end the places of
those that share nothing. Behind each block stand how it is compressed, here not at all, and a CRC-32C. The
file ends with where the index of the blocks is, and a magic number (leveldb/doc/table_format.md).
"""

from collections.abc import Iterable, Iterator

from minibert.hub.tensorflow.checksums import crc32c, masked

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # kinds of fields in the format of Protocol Buffers
_MAGIC = 0xDB4775248B80FB57.to_bytes(8, "little")
_FOOTER, _TRAILER = 48, 5  # bytes
_PLAIN = 0  # how a block is compressed: not at all, as TensorFlow writes an index since its release 1.2
_RESTART_INTERVAL = 16  # entries that lean on each other
LIMIT = 4 << 20  # bytes of a file, of a block, and of all entries; an index has some ten thousand
_KEY_LIMIT = 4096


def read_table(data: bytes) -> dict[bytes, bytes]:
    """Read values by keys, in the order of the keys; ValueError is raised when the file is no whole table."""
    if len(data) > LIMIT:
        raise ValueError(f"it has {len(data)} bytes, more than any index")
    if len(data) < _FOOTER or data[-8:] != _MAGIC:
        raise ValueError("it does not end as such a file does")
    at = len(data) - _FOOTER
    for _ in range(2):  # first that of blocks about blocks, of which there are none
        offset, at = read_varint(data, at)
        size, at = read_varint(data, at)
    table: dict[bytes, bytes] = {}
    last, end, total = b"", 0, 0
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


def write_table(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Encode a table of one block, its keys ascending, as TensorFlow writes an index of up to 256 kB."""
    entries, out = list(entries), bytearray()

    def append(block: bytes) -> bytes:
        """Return where the block is."""
        handle = varint(len(out)) + varint(len(block))
        block += bytes([_PLAIN])
        out.extend(block + masked(crc32c(block)).to_bytes(4, "little"))
        return handle

    data = append(_packed(entries))
    about = append(_packed([]))
    index = append(_packed([(_successor(entries[-1][0]), data)]))
    return bytes(out) + (about + index).ljust(_FOOTER - 8, b"\0") + _MAGIC


def _block(data: bytes, offset: int, size: int) -> bytes:
    end = offset + size
    if end + _TRAILER > len(data) - _FOOTER:
        raise ValueError("a block reaches beyond the end")
    kind = data[end]
    if masked(crc32c(data[offset : end + 1])).to_bytes(4, "little") != data[end + 1 : end + _TRAILER]:
        raise ValueError("a block does not match its checksum")
    if kind != _PLAIN:
        how = "compressed by Snappy" if kind == 1 else f"compressed in the unknown way {kind}"
        raise ValueError(f"a block is {how}; save the checkpoint again with TensorFlow 1.2 or later")
    return data[offset:end]


def _entries(block: bytes) -> Iterable[tuple[bytes, bytes]]:
    end = len(block) - 4 - 4 * int.from_bytes(block[-4:], "little")
    if len(block) < 4 or end < 0:
        raise ValueError("a block is shorter than it claims")
    key, at = b"", 0
    while at < end:
        shared, at = read_varint(block, at)
        fresh, at = read_varint(block, at)
        size, at = read_varint(block, at)
        if shared > len(key) or shared + fresh > _KEY_LIMIT or at + fresh + size > end:
            raise ValueError("an entry is longer than it can be")
        key = key[:shared] + block[at : at + fresh]
        yield key, block[at + fresh : at + fresh + size]
        at += fresh + size


def _packed(entries: list[tuple[bytes, bytes]]) -> bytes:
    out, restarts, last = bytearray(), [0], b""
    for number, (key, value) in enumerate(entries):
        shared = 0
        if number % _RESTART_INTERVAL:
            while shared < min(len(key), len(last)) and key[shared] == last[shared]:
                shared += 1
        elif number:
            restarts.append(len(out))
        out += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        last = key
    return bytes(out) + b"".join(place.to_bytes(4, "little") for place in (*restarts, len(restarts)))


def _successor(key: bytes) -> bytes:
    """Return a short key that does not come before this one."""
    for at, byte in enumerate(key):
        if byte < 255:
            return key[:at] + bytes([byte + 1])
    return key


# Protocol Buffers' wire format, as much of it as an index needs: varints and fields by number


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a whole number of up to 64 bits, seven to a byte from the lowest on, and where it ends.

    ValueError is raised when it runs over the end of `data`, or over 64 bits.
    """
    value = 0
    for number, byte in enumerate(data[at : at + 10]):
        value |= (byte & 127) << 7 * number
        if byte < 128 and value < 1 << 64:
            return value, at + number + 1
    raise ValueError("a number does not end")


def varint(value: int) -> bytes:
    """Encode a whole number as `read_varint` reads it."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield numbers and values of a message's fields: whole numbers, or bytes of strings and messages.

    ValueError is raised when a field runs over the end, or is of a kind that was never common.
    """
    at = 0
    while at < len(message):
        key, at = read_varint(message, at)
        if (kind := key & 7) == _VARINT:
            value, at = read_varint(message, at)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            size, at = read_varint(message, at)
        elif kind in (_FIXED32, _FIXED64):
            size = 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"a field is of the unknown kind {kind}")
        part, at = message[at : at + size], at + size
        if at > len(message):
            raise ValueError("a field is longer than its message")
        yield key >> 3, part if kind == _BYTES else int.from_bytes(part, "little")


def number_field(number: int, value: int) -> bytes:
    """Encode a field with a whole number; nothing for 0, which is what a missing one means."""
    return varint(number << 3 | _VARINT) + varint(value) if value else b""


def bytes_field(number: int, value: bytes) -> bytes:
    """Encode a field with a message in it."""
    return varint(number << 3 | _BYTES) + varint(len(value)) + value


def fixed32_field(number: int, value: int) -> bytes:
    """Encode a field with four bytes."""
    return varint(number << 3 | _FIXED32) + value.to_bytes(4, "little")
