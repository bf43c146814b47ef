"""TensorFlow's checkpoint files written from their specifications, with every option.

Nothing of minibert is used, so that a misreading there cannot cancel out here: the CRC goes byte by byte, the
table has as many blocks and the checkpoint as many data files as a test asks for.
"""

import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np

MAGIC = bytes.fromhex("57fb808b247547db")
DTYPES = {"float32": 1, "float64": 2, "int32": 3, "int64": 9, "float16": 19}


def eight_bits(remainder):
    """Castagnoli's polynomial, a bit at a time."""
    for _ in range(8):
        remainder = remainder >> 1 ^ (0x82F63B78 if remainder & 1 else 0)
    return remainder


BYTES = [eight_bits(byte) for byte in range(256)]


def crc32c(data):
    """Castagnoli's, a byte at a time."""
    remainder = 0xFFFFFFFF
    for byte in data:
        remainder = remainder >> 8 ^ BYTES[remainder & 255 ^ byte]
    return remainder ^ 0xFFFFFFFF


def masked(crc):
    """As the files hold it."""
    return ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) % 2**32


def varint(value):
    """Seven bits to a byte, the lowest first."""
    groups = []
    while True:
        value, low = divmod(value, 128)
        groups.append(low)
        if not value:
            return bytes([*(group + 128 for group in groups[:-1]), groups[-1]])


def field(number, value):
    """Of a protocol buffer: a whole number, or bytes."""
    if isinstance(value, int):
        return varint(number * 8) + varint(value)
    return varint(number * 8 + 2) + varint(len(value)) + value


class Value(NamedTuple):
    """A tensor as a BundleEntryProto describes it; what is None is filled in."""

    array: np.ndarray
    shard: int = 0
    dtype: int | None = None
    size: int | None = None
    crc: int | None = None
    extra: bytes = b""


def block(entries, interval=16):
    """Keys and values with the beginnings that keys share left out."""
    out, restarts, last = b"", [], b""
    for number, (key, value) in enumerate(entries):
        shared = 0
        if number % interval == 0:
            restarts.append(len(out))
        else:
            while key[: shared + 1] == last[: shared + 1] and shared < len(last):
                shared += 1
        out += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        last = key
    restarts = restarts or [0]
    return out + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


def table(entries, per_block=1000, kind=b"\0"):
    """The whole file of sorted entries."""
    out, handles = b"", []
    groups = [entries[begin : begin + per_block] for begin in range(0, len(entries), per_block)]
    contents = [*map(block, groups), block([])]
    for number in range(len(contents) + 1):
        if number == len(contents):  # the index, when all the others have their places
            handles, about = handles[:-1], handles[-1]
            content = block([(group[-1][0], place) for group, place in zip(groups, handles, strict=True)], 1)
        else:
            content = contents[number]
        handles.append(varint(len(out)) + varint(len(content)))
        out += content + kind + struct.pack("<I", masked(crc32c(content + kind)))
    return out + (about + handles[-1]).ljust(40, b"\0") + MAGIC


def header(shards=1, big_endian=False):
    """The BundleHeaderProto."""
    return field(1, shards) + (field(2, 1) if big_endian else b"") + field(3, field(1, 1))


def write(prefix, tensors, shards=1, first=None, **options):
    """A checkpoint of arrays or `Value`s by name; `first` replaces the header."""
    data = [b""] * shards
    entries = [(b"", header(shards) if first is None else first)]
    for name in sorted(tensors, key=str.encode):
        value = tensors[name] if isinstance(tensors[name], Value) else Value(tensors[name])
        content = value.array.tobytes()
        dims = b"".join(field(2, field(1, size) if size else b"") for size in value.array.shape)
        dtype = DTYPES[value.array.dtype.name] if value.dtype is None else value.dtype
        entry = field(1, dtype) + field(2, dims)
        entry += (field(3, value.shard) if value.shard else b"") + field(4, len(data[value.shard]))
        entry += field(5, len(content) if value.size is None else value.size)
        crc = masked(crc32c(content)) if value.crc is None else value.crc
        entry += varint(6 * 8 + 5) + struct.pack("<I", crc) + value.extra
        entries.append((name.encode(), entry))
        data[value.shard] += content
    prefix = Path(prefix)
    prefix.with_name(f"{prefix.name}.index").write_bytes(table(entries, **options))
    for number, content in enumerate(data):
        prefix.with_name(f"{prefix.name}.data-{number:05}-of-{shards:05}").write_bytes(content)
