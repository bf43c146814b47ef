"""Snappy's block format, read only: what some checkpoints compress their index with (google/snappy, 2011)."""

from minibert.hub.wire import read_varint


def decompress(data: bytes, limit: int) -> bytes:
    """The uncompressed bytes: literals, and copies of what has come out already.

    Parameters
    ----------
    data : one block.
    limit : more bytes than these are refused.

    Raises
    ------
    ValueError
        When the block is damaged or longer than `limit`.
    """
    length, at = read_varint(data, 0)
    if length > limit:
        raise ValueError(f"a compressed block claims {length} bytes")
    out = bytearray()
    while at < len(data):
        tag = data[at]
        kind, at = tag & 3, at + 1
        if not kind:
            size = (tag >> 2) + 1
            if size > 60:  # 61 to 64 say in how many bytes the size stands
                width = size - 60
                size, at = int.from_bytes(data[at : at + width], "little") + 1, at + width
            out += data[at : at + size]
            at += size
        else:
            width = (1, 2, 4)[kind - 1]
            offset = int.from_bytes(data[at : at + width], "little")
            size = (tag >> 2) + 1
            if kind == 1:
                size, offset = (tag >> 2 & 7) + 4, offset | tag >> 5 << 8
            at += width
            if not 0 < offset <= len(out):
                raise ValueError("a compressed block copies from before its beginning")
            begin = len(out) - offset
            if offset < size:  # a copy that reaches into itself repeats
                out += (bytes(out[begin:]) * (size // offset + 1))[:size]
            else:
                out += out[begin : begin + size]
        if at > len(data) or len(out) > length:
            raise ValueError("a compressed block does not end where it should")
    if len(out) != length:
        raise ValueError("a compressed block is shorter than it claims")
    return bytes(out)
