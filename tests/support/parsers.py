"""The quick readers of binary formats, each with a small genuine file, for `make fuzz-readers`."""

import bz2
import gzip
import json
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import bundle_writer
import numpy as np
from readers import every_document, zstd
from safetensors import safe_open
from torch_files import archive, ended, older, storage, tensor

from minibert.base.reading import byte_pieces
from minibert.core.config import BertConfig
from minibert.data.corpus import sentences
from minibert.data.shards.store import META, _crc32_of_meta, write_shards
from minibert.finetuning.frozen.activations import _mapped, _new_file
from minibert.hub.checkpoint import load_checkpoint, save_checkpoint
from minibert.hub.hugging_face import read_tensors
from minibert.hub.pytorch.pickled import read_pickled
from minibert.hub.tensorflow.bundle import Bundle
from minibert.model.params import initialise
from minibert.tokenizer import Tokenizer

TEXT = b"A cat sat.\nIt purred.\n\nA dog ran.\n" * 3
SHAPE = (4, 3)  # of the array of activations
SHARDS = ("tokens.bin", "sentences.bin", "documents.bin")


class Parser(NamedTuple):
    """A small file, what reads it, and what makes its checksums good again after a mutation."""

    name: str
    file: str
    read: Callable[[Path], Any]  # called with the folder
    seal: Callable[[bytes], bytes] | None = None


# The genuine files


def write_small(small: Path) -> None:
    """Make them; `small` is beside the genuine files of the other readers."""
    small.mkdir()
    write_tensors(small / "tensors.safetensors")
    content = {"a.weight": tensor(), "epoch": 3, "b": tensor(storage("1", 4, "HalfStorage"), 1, (3,), (1,))}
    storages = {"0": np.arange(6, dtype="f4"), "1": np.arange(4, dtype="f2")}
    archive(small / "zip.bin", ended(content), storages)
    older(small / "older.bin", ended(content), storages)
    arrays = {"a/kernel": np.arange(6, dtype="f4").reshape(2, 3), "b": np.arange(3), "c": np.float32(1.5)}
    bundle_writer.write(small / "some", {name: np.asarray(value) for name, value in arrays.items()})
    config = BertConfig(
        vocab_size=8,
        hidden_size=4,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=4,
        max_position_embeddings=4,
    )
    params = initialise(config, 0)
    optimizer = SimpleNamespace(m=params.flat, v=params.flat, updates=3)
    state = {"step": 3, "position": [0, 3], "seconds": 1.25, "plan": {"total_steps": 4}}
    save_checkpoint(small / "step-000000003.safetensors", params, optimizer, state)
    (small / "text").write_bytes(TEXT)
    write_shards(
        sentences(small / "text"), Tokenizer.from_pretrained(small.parent / "model"), small / "shards"
    )
    _new_file(small / "layer.npy", np.dtype("f4"), SHAPE)[:] = 1
    (small / "text.bz2").write_bytes(bz2.compress(TEXT, 1))  # the least memory, and so the quickest
    for suffix, packer in {"gz": gzip, "xz": lzma, "zst": zstd}.items():
        (small / f"text.{suffix}").write_bytes(packer.compress(TEXT))


def write_tensors(path: Path) -> None:
    """One tensor of each type that is read, and one that is not."""
    sizes = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8}
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for kind, size in sizes.items():
        header[kind.lower()] = {"dtype": kind, "shape": [2, 3], "data_offsets": [at, at + 6 * size]}
        at += 6 * size
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(at))


# What reads them


def same_as_the_library(folder: Path) -> None:
    """Read tensors, and compare them with what `safetensors` reads."""
    path = folder / "small/tensors.safetensors"
    tensors, others = read_tensors(path)
    with safe_open(path, framework="numpy") as file:
        assert tensors.keys() | others.keys() == set(file.keys())
        for name, found in tensors.items():
            kind = file.get_slice(name).get_dtype()
            if kind != "BF16":  # which NumPy lacks
                expected = file.get_tensor(name)
                assert found.shape == expected.shape and found.tobytes() == expected.tobytes()


def every_tensor(folder: Path) -> None:
    bundle = Bundle(folder / "small/some")
    for name in bundle.entries:
        bundle.read(name)


def small_checkpoint(folder: Path) -> None:
    found = load_checkpoint(folder / "small/step-000000003.safetensors")
    assert found.params.flat.shape == found.m.shape == found.v.shape and found.updates == found.state["step"]


def sealed_documents(folder: Path) -> None:
    """Read shards whose meta.json has the checksums of what the other files hold now."""
    shards = folder / "small/shards"
    meta = json.loads((shards / META).read_text())
    for name in SHARDS:
        meta["crc32"][name] = zlib.crc32((shards / name).read_bytes())
    (shards / META).write_bytes(sealed_meta(json.dumps(meta).encode()))
    every_document(shards)


def unpacked(suffix: str) -> Parser:
    file = f"small/text.{suffix}"
    return Parser(f"packed.{suffix}", file, lambda at: [*byte_pieces(at / file)])


# Checksums


def sealed_table(data: bytes) -> bytes:
    """A sorted table whose blocks have the checksums of what is in them now."""
    table, at = bytearray(data), len(data) - 48
    place = _handle(data, _handle(data, at)[2])
    blocks = [place[:2]]
    begin, end = place[0], sum(place[:2])
    at, end = begin, end - 4 - 4 * int.from_bytes(data[end - 4 : end], "little")
    while at < end:
        shared, at = _number(data, at)
        fresh, at = _number(data, at)
        size, at = _number(data, at)
        blocks.append(_handle(data, at + fresh)[:2])
        at += fresh + size
    for begin, size in reversed(blocks):
        check = bundle_writer.masked(bundle_writer.crc32c(table[begin : begin + size + 1]))
        if begin + size + 5 <= len(data) - 48:
            table[begin + size + 1 : begin + size + 5] = check.to_bytes(4, "little")
    return bytes(table)


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while data[at] > 127:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
    return value | data[at] << shift, at + 1


def _handle(data: bytes, at: int) -> tuple[int, int, int]:
    offset, at = _number(data, at)
    size, at = _number(data, at)
    return offset, size, at


def sealed_checkpoint(data: bytes) -> bytes:
    """A checkpoint whose header has the checksums of what is in it now."""
    size = int.from_bytes(data[:8], "little")
    fields, tensors = json.loads(data[8 : 8 + size]), data[8 + size :]
    header = json.loads(fields["__metadata__"]["minibert"])
    header["crc32"] = {
        name: zlib.crc32(tensors[slice(*fields[name]["data_offsets"])]) for name in ("params", "m", "v")
    }
    header["crc32"]["header"] = zlib.crc32(json.dumps(header, sort_keys=True).encode())
    fields["__metadata__"]["minibert"] = json.dumps(header)
    text = json.dumps(fields).encode()
    return len(text).to_bytes(8, "little") + text + tensors


def sealed_meta(data: bytes) -> bytes:
    """The facts about shards with the checksum of what they say now."""
    meta = json.loads(data)
    meta["crc32"][META] = _crc32_of_meta(meta)
    return json.dumps(meta).encode()


def sealed_archive(data: bytes) -> bytes:
    """A zip archive whose members have the checksums of what is in them now."""
    archive, at = bytearray(data), data.find(b"PK\1\2")
    while 0 <= at < len(data) - 46:
        size = int.from_bytes(data[at + 20 : at + 24], "little")
        place = int.from_bytes(data[at + 42 : at + 46], "little")
        skipped = sum(int.from_bytes(data[place + i : place + i + 2], "little") for i in (26, 28))
        begin = place + 30 + skipped
        archive[at + 16 : at + 20] = zlib.crc32(data[begin : begin + size]).to_bytes(4, "little")
        at = data.find(b"PK\1\2", at + 46)
    return bytes(archive)


PARSERS = [
    Parser("safetensors", "small/tensors.safetensors", same_as_the_library),
    Parser("pickle", "small/zip.bin", lambda at: read_pickled(at / "small/zip.bin"), sealed_archive),
    Parser("older-pickle", "small/older.bin", lambda at: read_pickled(at / "small/older.bin")),
    Parser("table", "small/some.index", every_tensor, sealed_table),
    Parser("checkpoint", "small/step-000000003.safetensors", small_checkpoint, sealed_checkpoint),
    Parser(
        f"shards-{META}", f"small/shards/{META}", lambda at: every_document(at / "small/shards"), sealed_meta
    ),
    *(Parser(f"shards-{name}", f"small/shards/{name}", sealed_documents) for name in SHARDS),
    Parser(
        "npy", "small/layer.npy", lambda at: _mapped(at / "small/layer.npy", np.dtype("f4"), SHAPE).tobytes()
    ),
    *map(unpacked, ("gz", "xz", "bz2", "zst")),
]
