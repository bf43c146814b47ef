"""The forms a TensorFlow checkpoint's index is made of: check sums, sorted tables; lies in them."""

import tracemalloc
from contextlib import suppress

import bundle_writer
import numpy as np
import pytest
from bundle_writer import block, table
from hypothesis import given, settings, strategies as st
from marks import examples

from minibert.hub.tensorflow import checksums, sstable

RANDOM = np.random.default_rng(5)


# The check sum


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),  # this and the next three: RFC 3720, appendix B.4
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_check_sum_of_published_examples(data, expected):
    assert checksums.crc32c(data) == expected


@pytest.mark.parametrize("length", [*range(1, 20), 63, 64, 65, 1000, 4099])
def test_check_sum_equals_the_one_of_the_independent_writer(length):
    data = RANDOM.bytes(length)
    assert checksums.crc32c(data) == bundle_writer.crc32c(data)


def test_check_sum_of_parts_longer_than_what_is_folded_at_once(monkeypatch):
    data = RANDOM.bytes(700)
    expected = bundle_writer.crc32c(data)
    for folds in (0, 3, 6):
        monkeypatch.setattr(checksums, "_FOLDS", folds)
        monkeypatch.setattr(checksums, "_CHUNK", 4 << folds)
        assert checksums.crc32c(data) == expected
        assert checksums.crc32c(memoryview(data)[: 8 << folds]) == bundle_writer.crc32c(data[: 8 << folds])


def test_stored_check_sums_are_rotated():
    assert checksums.masked(0xE3069283) == 0xC78AB0E5


# The table


@pytest.mark.parametrize("per_block", [1, 3, 1000])
def test_tables_of_the_independent_writer_are_read(per_block):
    entries = [(b"", b"header"), *((b"layer_%03d/kernel" % number, b"x" * number) for number in range(40))]
    assert sstable.read_table(table(entries, per_block)) == dict(entries)


@pytest.mark.parametrize(("kind", "how"), [(b"\1", "by Snappy"), (b"\x07", "in the unknown way 7")])
def test_compressed_tables_are_refused_with_a_reason(kind, how):
    with pytest.raises(ValueError, match=f"a block is compressed {how}; save the checkpoint again"):
        sstable.read_table(table([(b"", b"header")], kind=kind))


@pytest.mark.parametrize(
    "entries",
    [
        [(b"b", b""), (b"a", b"")],
        [(b"a", b""), (b"a", b"")],
        [(b"a" * 5000, b"")],
    ],
    ids=["descending", "twice", "long"],
)
def test_tables_with_impossible_keys_are_refused(entries):
    with pytest.raises(ValueError):
        sstable.read_table(table(entries))


def test_a_key_may_have_4096_bytes_and_blocks_may_be_empty():
    entries = [(b"a" * 4095, b"x"), (b"a" * 4096, b"y")]
    assert sstable.read_table(table(entries)) == dict(entries)
    with pytest.raises(ValueError, match="an entry is longer than it can be"):
        sstable.read_table(table([*entries, (b"a" * 4097, b"z")]))
    assert sstable.read_table(table([])) == {}


def test_a_file_and_its_entries_unfolded_may_be_as_long_as_the_limit(monkeypatch):
    assert sstable.LIMIT == 4 << 20
    entries = [
        (b"a" * 500 + b"%03d" % number, b"x") for number in range(40)
    ]  # written without what keys share
    data, unfolded = table(entries), sum(len(key) + len(value) for key, value in entries)
    for limit, refusal in (
        (len(data), "more than any index$"),
        (unfolded, "unfolds to more than any index has"),
    ):
        monkeypatch.setattr(sstable, "LIMIT", limit)
        if limit == unfolded:
            assert sstable.read_table(data) == dict(entries)
        monkeypatch.setattr(sstable, "LIMIT", limit - 1)
        with pytest.raises(ValueError, match=refusal):
            sstable.read_table(data)


@pytest.mark.parametrize("value", [0, 127, 128, 300, 2**32, 2**63, 2**64 - 1])
def test_whole_numbers_are_read_up_to_64_bits_wherever_they_stand(value):
    stored = bundle_writer.varint(value)
    assert sstable.read_varint(b"\x80" + stored + b"\1", 1) == (value, 1 + len(stored))
    with pytest.raises(ValueError, match="a number does not end"):
        sstable.read_varint(stored[:-1] + bytes([stored[-1] | 128]), 0)


def test_whole_numbers_of_more_than_64_bits_are_refused():
    for data in (bundle_writer.varint(2**64), b"\x80" * 10 + b"\0"):
        with pytest.raises(ValueError, match="a number does not end"):
            sstable.read_varint(data, 0)


def test_fields_of_each_kind_are_read_with_their_numbers():
    message = bundle_writer.field(1, 300) + bundle_writer.field(20, b"text")
    message += bundle_writer.varint(3 * 8 + 1) + bytes(range(1, 9))  # eight bytes
    message += bundle_writer.varint(4 * 8 + 5) + bytes(range(1, 5))  # four
    expected = [(1, 300), (20, b"text"), (3, 0x0807060504030201), (4, 0x04030201)]
    assert list(sstable.fields(message)) == expected
    with pytest.raises(ValueError, match="a field is longer than its message"):
        list(sstable.fields(message[:-1]))
    with pytest.raises(ValueError, match="a field has the unknown wire type 3"):
        list(sstable.fields(bundle_writer.varint(5 * 8 + 3)))


# What is refused


@settings(max_examples=examples(200))
@given(data=st.data())
def test_damage_behind_right_check_sums_raises_nothing_but_a_value_error(data):
    entries = [(b"", bundle_writer.header()), *((b"x%d" % number, bytes(number)) for number in range(20))]
    content = bytearray(block(entries))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with suppress(ValueError):
        list(sstable._entries(bytes(content)))


def packed(content, count):
    """A table of one data block that is given whole, named in the index as often as asked for."""
    stored = content + b"\0"
    stored += bundle_writer.masked(checksums.crc32c(stored)).to_bytes(4, "little")
    handle = bundle_writer.varint(0) + bundle_writer.varint(len(content))
    index = block([(b"%09d" % number, handle) for number in range(count)]) + b"\0"
    index += bundle_writer.masked(checksums.crc32c(index)).to_bytes(4, "little")
    place = bundle_writer.varint(len(stored)) + bundle_writer.varint(len(index) - 5)
    return stored + index + (place + place).ljust(40, b"\0") + bundle_writer.MAGIC


FIRST = b"\0\xff\x1f\0" + b"a" * 4095  # a key, and then others that share all of it but the last byte
LATER = b"".join(b"\xfe\x1f\2\0%c%c" % (98 + n // 256, n % 256) for n in range(9000))


@pytest.mark.parametrize(
    "data",
    [
        packed(block([]), 5_000),
        packed(FIRST + LATER + bytes(4) + b"\1\0\0\0", 1),
        packed(b"\xff\xff\xff\x7f" * 1000 + b"\0\0\0\0", 1),
        bytes(sstable.LIMIT + 1),
    ],
    ids=["one-block-often", "long-keys", "long-lengths", "long-file"],
)
def test_small_files_that_would_unfold_to_much_are_refused_in_little_memory(data):
    tracemalloc.start()
    try:
        with pytest.raises(ValueError):
            sstable.read_table(data)
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()
