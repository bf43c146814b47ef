"""Protocol Buffers' wire format, as much of it as TensorFlow's index needs: varints and fields by number."""

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a whole number of up to 64 bits, seven to a byte from the lowest on, and where it ends.

    Raises
    ------
    ValueError
        When it runs over the end of `data`, or over 64 bits.
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

    Raises
    ------
    ValueError
        When a field runs over the end, or is of a kind that was never common.
    """
    at = 0
    while at < len(message):
        key, at = read_varint(message, at)
        kind = key & 7
        if kind == _VARINT:
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
