"""What a file may ask for: bounded memory, linear time, and no waiting for what is no file."""

import ast
import bz2
import gzip
import io
import json
import lzma
import os
import re
import signal
import socket
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import google_folder
import numpy as np
import pytest
from command import ends_badly
from hypothesis import assume, given, strategies as st
from paths import PACKAGE
from small_tasks import write_model

from minibert import Tokenizer, cli, hub
from minibert.base import files, reading
from minibert.base.errors import InputError
from minibert.base.files import open_file, read_bytes
from minibert.base.reading import _OTHERWISE, LEAST_UNFOLDED, LONGEST_LINE, byte_pieces, whole_lines
from minibert.cli.shared.texts import text_lines
from minibert.data import ner, tables
from minibert.data.corpus import embedded_corpus
from minibert.data.json_items import array_items
from minibert.data.lines import numbered_lines
from minibert.data.shards.joined import open_shards
from minibert.data.shards.parts import Manifest
from minibert.data.shards.store import TokenShards
from minibert.finetuning.frozen import activations, feature_tagger
from minibert.finetuning.options import FinetuneOptions
from minibert.hub.checkpoint import load_checkpoint
from minibert.model.bilstm import BilstmConfig
from minibert.pretraining.options import PretrainOptions
from minibert.reports.results import load_report
from minibert.tasks import registry
from minibert.tasks.stored import TaskFile
from minibert.training.runlog import read_metrics

needs_fifo = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")


# Compressed files


@given(st.lists(st.tuples(st.binary(max_size=99), st.integers(0, 9), st.booleans()), min_size=1))
def test_xz_streams_end_to_end_are_all_read_in_pieces_of_one_size(tmp_path_factory, streams):
    content = b"".join(data * 99 for data, _, _ in streams)
    assume(not content.startswith(tuple(_OTHERWISE)))
    file = tmp_path_factory.mktemp("xz") / "a.xz"
    file.write_bytes(b"".join(lzma.compress(data * 99) + bytes(4 * zeros) for data, zeros, _ in streams))
    *found, last = byte_pieces(file, 100)
    assert b"".join(found) == content and last == b""
    assert all(len(piece) == 100 for piece in found[:-1])


def test_xz_cut_short_or_followed_by_something_else_is_damaged(tmp_path):
    file, whole = tmp_path / "a.xz", lzma.compress(os.urandom(10_000))
    for damaged in (b"", whole[:-1], whole[:5000], whole + b"more"):
        file.write_bytes(damaged)
        with pytest.raises(InputError, match=r"a\.xz is damaged or cut short \(.*\); fetch or compress it"):
            list(byte_pieces(file))


def zstd():
    try:
        from compression import zstd
    except ImportError:
        zstd = pytest.importorskip("backports.zstd")
    return zstd


@pytest.mark.parametrize("suffix", [".bz2", ".zst"])
def test_bz2_and_zst_are_read_in_pieces_and_damaged_ones_refused(suffix, tmp_path):
    compress = bz2.compress if suffix == ".bz2" else zstd().compress
    file, content = tmp_path / f"a{suffix}", os.urandom(300_000)
    first, second = compress(content), compress(b"more" * 100_000)
    file.write_bytes(first + compress(b"") + second)
    *found, last = byte_pieces(file, 1000)
    assert b"".join(found) == content + b"more" * 100_000 and last == b""
    assert all(len(piece) == 1000 for piece in found[:-1])
    for damaged in (
        b"",
        first[:-1],
        first[:5000],
        first + b"no stream",
        first[:4] + b"\xff" * 99 + first[103:],
    ):
        file.write_bytes(damaged)
        with pytest.raises(InputError, match=r"a\.\w+ is damaged or cut short \(.*\); fetch or compress it"):
            list(byte_pieces(file))
    file.write_bytes(compress(bytes(LEAST_UNFOLDED + 1)))
    with pytest.raises(InputError, match="gives more than 67,108,864 bytes"):
        list(byte_pieces(file, in_memory=True))


def test_zst_that_asks_for_much_memory_is_refused(tmp_path):
    """By its header, whatever is in it: windows of 128 MiB, as `zstd --ultra -22` has, and of 256 MiB."""
    zst, file = zstd(), tmp_path / "a.zst"
    for bits, is_read in ((27, True), (28, False)):
        options = {zst.CompressionParameter.window_log: bits, zst.CompressionParameter.content_size_flag: 0}
        packer = zst.ZstdCompressor(options=options)
        file.write_bytes(packer.compress(b"text") + packer.flush())
        if is_read:
            assert b"".join(byte_pieces(file)) == b"text"
        else:
            with pytest.raises(
                InputError, match="a.zst needs over 128 MiB to unfold .*; fetch or compress it"
            ):
                list(byte_pieces(file))


def test_without_its_library_a_zst_says_what_to_install(tmp_path, monkeypatch):
    for name in ("compression", "backports"):
        monkeypatch.setitem(sys.modules, name, None)
    (tmp_path / "a.txt.zst").write_bytes(b"")
    with pytest.raises(InputError, match=r"a\.txt\.zst needs backports\.zstd to be read; pip install backp"):
        list(byte_pieces(tmp_path / "a.txt.zst"))


def test_xz_that_asks_for_much_memory_is_refused(tmp_path):
    """Its dictionary has 256 MiB, which would be filled; files of `xz -9` have one of 64 MiB."""
    filters = {size: [{"id": lzma.FILTER_LZMA2, "dict_size": size << 20, "preset": 0}] for size in (64, 256)}
    file = tmp_path / "a.xz"
    file.write_bytes(lzma.compress(b"text", filters=filters[64]))
    assert b"".join(byte_pieces(file)) == b"text"
    file.write_bytes(lzma.compress(b"text", filters=filters[256]))
    with pytest.raises(
        InputError, match=r"a\.xz needs over 128 MiB to unfold .*; fetch or compress it again"
    ):
        list(byte_pieces(file))


def bomb(path, text, ends=("", "")):
    """A file that unfolds to a little more than may be kept, in text of that pattern."""
    times = LEAST_UNFOLDED // len(text) + 1
    data = (ends[0] + text * times + ends[1]).encode()
    packed = gzip.compress(data, 9) if path.suffix == ".gz" else lzma.compress(data, preset=0)
    assert len(packed) * reading.MOST_TIMES < len(data)
    path.write_bytes(packed)
    return path


WORDS = "word " * 4000
# Readers that keep what they read; each with the name of a file, a pattern, and what stands around.
KEPT = {
    "table": (tables.read_texts, "a.tsv.xz", f"{WORDS}\tx\n", ("text\tlabel\n", "")),
    "table in gz": (tables.read_texts, "a.tsv.gz", f"{WORDS}\tx\n", ("text\tlabel\n", "")),
    "json lines": (tables.read_texts, "a.jsonl.xz", f'{{"text": "{WORDS}", "label": "x"}}\n'),
    "tags": (ner.read, "a.txt.xz", f"{'x' * 20_000} O\n"),
    "array": (
        lambda path: list(array_items(path, ("data",))),
        "a.xz",
        f'"{WORDS}", ',
        ('{"data": [', '""]}'),
    ),
}


@pytest.mark.thorough
@pytest.mark.parametrize("case", KEPT)
def test_what_is_kept_of_a_small_compressed_file_is_bounded(case, tmp_path):
    read, name, *content = KEPT[case]
    path = bomb(tmp_path / name, *content)
    with pytest.raises(
        InputError, match=f"^{re.escape(str(path))} gives more than 67,108,864 bytes, too many"
    ):
        read(path)


@pytest.mark.thorough
def test_commands_bound_what_they_keep_of_a_small_compressed_file(tmp_path, capsys):
    path = str(bomb(tmp_path / "a.xz", "word " * 4000))
    gold = tmp_path / "gold.json"
    question = {"id": "1", "question": "q", "answers": [{"text": "a", "answer_start": 0}]}
    gold.write_text(json.dumps({"data": [{"paragraphs": [{"context": "a", "qas": [question]}]}]}))
    for words in (
        ("answer", "--model", "no-run", "Who?", "--file", path),
        ("score", "squad", str(gold), path),
    ):
        message = ends_badly(capsys, 2, *words)
        assert "gives more than 67,108,864 bytes, too many to be kept in memory" in message, words
        assert message.endswith("write them to a plain file and give that.\n")


@pytest.mark.thorough
def test_large_compressed_text_is_kept_and_any_that_is_read_in_pieces(tmp_path):
    books = embedded_corpus()
    assert sum(map(len, byte_pieces(books, in_memory=True))) > 3 * books.stat().st_size
    path = bomb(tmp_path / "a.txt.gz", "word " * 4000 + "\n")
    assert sum(map(len, byte_pieces(path))) > LEAST_UNFOLDED
    assert sum(1 for _ in text_lines(str(path))) > 3000


def test_what_is_kept_of_a_pipe_is_bounded(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(reading, "LARGEST_WHOLE", 100)
    monkeypatch.setattr("minibert.cli.answer.LARGEST_WHOLE", 100)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"word " * 21)))
    message = ends_badly(capsys, 2, "answer", "--model", "no-run", "Who?")
    assert "the standard input gives more than 100 bytes" in message
    if not hasattr(os, "mkfifo"):
        return
    os.mkfifo(tmp_path / "pipe")
    for lines, is_much in ((20, False), (21, True)):
        write = threading.Thread(target=_write, args=(tmp_path / "pipe", b"word\n" * lines), daemon=True)
        write.start()
        if is_much:
            with pytest.raises(
                InputError, match=r"pipe gives more than 100 bytes, .*; if they are meant, wri"
            ):
                list(numbered_lines(tmp_path / "pipe"))
        else:
            assert len(list(numbered_lines(tmp_path / "pipe"))) == lines
        write.join()


def _write(path, data):
    with suppress(BrokenPipeError):
        path.write_bytes(data)


# Lines


def test_a_line_of_more_than_16_mib_is_refused_by_its_number(tmp_path, monkeypatch, capsys):
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\r\ntwo\n" + b"a " * (LONGEST_LINE // 2 + 40_000))
    expected = "line 3: the line has more than 16 MiB; a file of lines is expected: break it into lines"
    for read in (numbered_lines, lambda path: text_lines(str(path))):
        with pytest.raises(InputError, match=re.escape(f"{path}, {expected}")):
            list(read(path))
    folder = write_model(tmp_path / "model")
    assert cli.main(["tokenize", "--vocab", str(folder), "--ids", "--file", str(path)]) == 2
    assert expected in capsys.readouterr().err
    for read in (
        lambda: cli.main(["tokenize", "--vocab", str(folder), "--ids"]),
        lambda: list(text_lines("-")),
    ):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
        with suppress(InputError):
            assert read() == 2
            assert f"the standard input, {expected}" in capsys.readouterr().err


@given(
    st.lists(st.sampled_from(["a", "bc", "\r", "\n", "\r\n", "é"]), max_size=20),
    st.integers(1, 5),
    st.booleans(),
)
def test_lines_are_whole_wherever_pieces_are_cut(parts, size, returns):
    data = "".join(parts).encode()
    pieces = [data[begin : begin + size] for begin in range(0, len(data), size)]
    found = list(whole_lines([*pieces, b""], "x", returns))
    assert b"".join(found) == data
    for block in found[:-1]:
        assert block.endswith((b"\n", b"\r") if returns else b"\n")
    lines = [line for block in found for line in block.splitlines(keepends=True)]
    if returns:
        assert lines == data.splitlines(keepends=True)


@pytest.mark.parametrize("read", [numbered_lines, lambda file: text_lines(str(file))], ids=["rows", "texts"])
def test_a_long_line_is_read_in_linear_time(read, tmp_path):
    def seconds(lines):  # the same 14.4 MB, so that caches and fresh memory are the same
        file = tmp_path / f"{lines}.txt"
        file.write_bytes((b"a few words " * (1_200_000 // lines) + b"\n") * lines)
        return least_seconds(lambda: list(read(file)))

    assert seconds(1) / seconds(64) < 8  # linear: about 2; quadratic: over 30


def least_seconds(work, times=3):
    """CPU seconds, the least of some tries: others may be at work."""
    found = []
    for _ in range(times):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)


# What is no file


def test_a_device_or_a_socket_in_the_place_of_a_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    places = {}
    if os.path.exists("/dev/zero"):
        places["/dev/zero"] = "a device"
    if hasattr(socket, "AF_UNIX"):
        with socket.socket(socket.AF_UNIX) as one:
            one.bind("socket")
        places["socket"] = "a socket"
    for place, what in places.items():
        for read in (open_file, read_bytes, lambda path: open_file(path, streams=True)):
            with pytest.raises(OSError, match=f"it is {what}, and a file is expected"):
                read(place)
        with pytest.raises(
            InputError, match=f"{place} can't be read: it is {what}, and a file is expected; ch"
        ):
            next(byte_pieces(Path(place)))


def test_a_file_that_is_read_whole_has_a_largest_size(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LARGEST_WHOLE", 10)
    (tmp_path / "vocab.txt").write_bytes(b"[]" * 5)
    assert read_bytes(tmp_path / "vocab.txt") == b"[]" * 5
    (tmp_path / "vocab.txt").write_bytes(b"[]" * 6)
    with pytest.raises(
        InputError, match="vocab.txt can't be read .it has 12 bytes, and at most 10 are expected"
    ):
        Tokenizer.from_pretrained(tmp_path / "vocab.txt")


def _tagger_weights(folder):
    feature_tagger.load_tagger(folder, BilstmConfig(inputs=4, outputs=2))


# In whose place a named pipe is put: the file, and what reads it in a folder. Before comes what is removed.
REFUSED = {
    "config.json": hub.load,
    "model.safetensors": hub.load,
    "model.safetensors pytorch_model.bin": hub.load,
    "model.safetensors model.safetensors.index.json": hub.load,
    "config.json model.safetensors bert_model.ckpt.data-00000-of-00001": hub.load,
    "config.json model.safetensors bert_config.json": hub.load,
    "vocab.txt": Tokenizer.from_pretrained,
    "vocab.txt tokenizer.json": Tokenizer.from_pretrained,
    "tokenizer_config.json": Tokenizer.from_pretrained,
    "tokenizer.json tokenizer_config.json added_tokens.json": Tokenizer.from_pretrained,
    "task.json": TaskFile.load,
    "tagger.json": feature_tagger.TaggerFile.load,
    "tagger.safetensors": _tagger_weights,
    "finetune.json": lambda folder: FinetuneOptions.load(folder / "finetune.json"),
    "training.json": lambda folder: PretrainOptions.load(folder / "training.json"),
    "meta.json": TokenShards,
    "part.json": Manifest.read,
    "elsewhere.json": open_shards,
    "step-00000001.safetensors": lambda folder: load_checkpoint(folder / "step-00000001.safetensors"),
    "layer-00.npy": lambda folder: activations._mapped(folder / "layer-00.npy", np.dtype("f4"), (2, 3)),
}


@needs_fifo
@pytest.mark.parametrize("names", REFUSED)
def test_a_named_pipe_in_the_place_of_a_file_is_refused_at_once(names, tmp_path):
    write_model(tmp_path)
    if "bert_" in names:
        google_folder.write(tmp_path, *hub.load(tmp_path)[:2])
    *absent, name = names.split()
    for file in (*absent, name):
        (tmp_path / file).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    with in_time(), pytest.raises(InputError, match="it is a named pipe, and a file is expected"):
        REFUSED[names](tmp_path)


@needs_fifo
def test_the_record_of_a_run_is_no_named_pipe(tmp_path):
    for name in ("report.json", "metrics.jsonl"):
        os.mkfifo(tmp_path / name)
    with in_time():
        for read in (load_report, read_metrics):
            with pytest.raises(InputError, match="it is a named pipe, and a file is expected"):
                read(tmp_path)


@needs_fifo
@pytest.mark.parametrize("task", registry.TASKS)
def test_a_named_pipe_among_the_files_of_a_task_is_not_waited_for(task, tmp_path):
    for name in FILES_OF_TASKS:
        os.mkfifo(tmp_path / name)
    with in_time(), pytest.raises(InputError):
        registry.create(task).read(tmp_path, "train")


FILES_OF_TASKS = (
    *("train.tsv", "train.csv", "train.jsonl", "train.txt", "train.json", "eng.train", "train-v1.1.json"),
    *("train-v2.0.json", "hellaswag_train.jsonl", "train_rand_split.jsonl", "wikipedia-train.json"),
)


@contextmanager
def in_time(seconds=60):
    """Fail instead of waiting for ever; an OSError would be taken for one of reading."""

    def expire(*_):
        raise AssertionError("it still waits for somebody to write")

    before = signal.signal(signal.SIGALRM, expire)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# Who opens a file without `files.open_file`, and why nobody else can have put something in its place.
OWN = {
    "explorer/page": "scripts and styles of the package's",
    "base/machine": "files of the system's",
    "course/animations": "the player of the package's",
    "course/confined": "a file of the system's",
    "core/__main__": "what the core reads by itself",
    "tokenizer/unicode": "a table of the package's",
    "engines/numba/jit": "the package's own sources",
}


def test_files_are_opened_for_reading_in_one_place():
    for path in sorted(PACKAGE.rglob("*.py")):
        file = str(path.relative_to(PACKAGE).with_suffix(""))
        if file not in {"base/files", *OWN}:
            assert readings(path.read_text(encoding="utf-8")) == [], file


@pytest.mark.parametrize(
    "line", ["open(x)", "open(x, encoding=y)", "open(x, 'rb')", "p.read_text()", "p.read_bytes()", "p.open()"]
)
def test_a_planted_reading_is_found(line):
    assert readings(f"with suppress(OSError):\n    z = {line}") == [line]
    assert readings("open(x, 'wb')\nopen(x, mode)\np.write_text('')\nread_text(p)") == []


def readings(source):
    """The calls in a source that open a file to read it."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(ast.Attribute(attr="read_text" | "read_bytes")) | ast.Call(
                ast.Attribute(attr="open"), []
            ):
                found.append(node)
            case ast.Call(ast.Name("open"), [_]) | ast.Call(
                ast.Name("open"), [_, ast.Constant("r" | "rb" | "rt")]
            ):
                found.append(node)
    return list(map(ast.unparse, found))


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (gzip.compress(b"text"), "compressed by gzip; let its name end in .gz"),
        (bz2.compress(b"text"), "compressed by bzip2; let its name end in .bz2"),
        (lzma.compress(b"text"), "compressed by xz; let its name end in .xz"),
        ("text".encode("utf-16"), "UTF-16; convert it"),
        (b"%PDF-1.7", "a PDF; save its text"),
        (b"PK\x03\x04", "a ZIP archive"),
        (b"text with PK\x03\x04 and %PDF- in it", None),
    ],
    ids=["gzip", "bzip2", "xz", "UTF-16", "PDF", "ZIP", "text"],
)
def test_a_file_that_begins_like_another_format_is_refused_by_its_name(data, told, tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    if told is None:
        assert b"".join(byte_pieces(path)) == data
        return
    with pytest.raises(InputError, match=re.escape(f"a.txt is {told}")):
        list(byte_pieces(path))
