"""`minibert tokenize`: columns, JSON and ids; lines of anything; what is given wrongly."""

import contextlib
import gzip
import io
import json
import lzma
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command import PATIENCE, notice, start, without_notice  # noqa: F401 (a fixture)

from minibert import cli
from minibert.base.errors import InputError
from minibert.base.reading import decoded
from minibert.cli import tokenize
from minibert.tokenizer import SPECIAL_TOKENS


@pytest.fixture(scope="module")
def vocab(tmp_path_factory):
    """A small uncased vocabulary."""
    path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    letters = "abcdefghijklmnopqrstuvwxyz"
    pieces = ["the", "cat", "cafe", "##s", "un", "##aff", "##able", "中", ".", *letters]
    path.write_text("\n".join([*SPECIAL_TOKENS, *pieces]) + "\n", encoding="utf-8")
    return str(path)


def tokenized(capsys, *words):
    assert cli.main(["tokenize", *words]) == 0
    return capsys.readouterr().out


def typed(monkeypatch, data):
    """Let `data` be the standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


@pytest.mark.parametrize(
    ("text", "columns"),
    [("ab", 2), ("ñ", 1), ("n\u0303", 1), ("我", 2), ("ｱ", 1), ("Ａ", 2), ("🙂", 2), ("##한", 4)],
)
def test_columns_are_those_that_a_terminal_takes(text, columns):
    assert tokenize._columns(text) == columns


@pytest.mark.parametrize("length", [59, 60, 61, 500])
def test_of_a_long_word_sixty_characters_are_shown(vocab, capsys, length):
    word = ("é" * 60 + "x" * 440)[:length]
    [line] = [line for line in tokenized(capsys, "--vocab", vocab, f"the {word}").splitlines() if "é" in line]
    assert line.split()[:3] == ["[UNK]", "1", f"4:{4 + length}"]
    assert line.split()[3] == (word if length <= 60 else "é" * 60 + "…")


def test_tokenize_prints_pieces_ids_and_offsets_in_columns(vocab, capsys):
    text = tokenized(capsys, "--vocab", vocab, "The Cafés: 中\x1b", "unaffable")
    assert (
        text
        == """\
piece              id  offset     text
[CLS]               2
the                 5   0:3       The
cafe                7   4:8       Café
##s                 8   8:9       s
[UNK]               1   9:10      :
中                 12  11:12      中
[SEP]               3

[CLS]               2
un                  9  0:2        un
##aff              10  2:5        aff
##able             11  5:9        able
[SEP]               3
"""
    )


def test_tokenize_tells_everything_as_json(vocab, capsys):
    line = tokenized(capsys, "--json", "--pair", "The cats", "a [MASK]", "--vocab", vocab)
    assert json.loads(line) == {
        "source": 0,
        "tokens": ["[CLS]", "the", "cat", "##s", "[SEP]", "a", "[MASK]", "[SEP]"],
        "ids": [2, 5, 6, 8, 3, 14, 4, 3],
        "token_type_ids": [0, 0, 0, 0, 0, 1, 1, 1],
        "offsets": [[0, 0], [0, 3], [4, 7], [7, 8], [0, 0], [0, 1], [2, 8], [0, 0]],
        "word_ids": [-1, 0, 1, 1, -1, 0, 1, -1],
        "special_tokens_mask": [1, 0, 0, 0, 1, 0, 0, 1],
    }


def test_tokenize_reads_lines_of_files_and_of_the_standard_input(vocab, capsys, monkeypatch, tmp_path):
    data = "the cats\r\n\nCafé\nun".encode()
    expected = "2 5 6 8 3\n2 3\n2 7 3\n2 9 3\n"
    (tmp_path / "a.txt").write_bytes(data)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(data))
    (tmp_path / "a.txt.xz").write_bytes(lzma.compress(data))
    for name in ("a.txt", "a.txt.gz", "a.txt.xz"):
        assert tokenized(capsys, "--vocab", vocab, "--ids", "--file", str(tmp_path / name)) == expected
    typed(monkeypatch, data)
    assert tokenized(capsys, "--vocab", vocab, "--ids") == expected
    typed(monkeypatch, b"cat\n")
    both = tokenized(capsys, "--vocab", vocab, "--ids", "--file", "-", "--file", str(tmp_path / "a.txt"))
    assert both == "2 6 3\n" + expected


def test_a_byte_order_mark_is_not_counted_in_offsets(vocab, capsys, tmp_path):
    file = tmp_path / "a.txt"
    for mark in (b"", b"\xef\xbb\xbf"):
        file.write_bytes(mark + b"the cat\r\nthe")
        lines = tokenized(capsys, "--vocab", vocab, "--file", str(file), "--json").splitlines()
        assert [json.loads(line)["offsets"] for line in lines] == [
            [[0, 0], [0, 3], [4, 7], [0, 0]],
            [[0, 0], [0, 3], [0, 0]],
        ]


def test_tokenize_numbers_windows_by_the_line_they_are_of(vocab, capsys, monkeypatch):
    typed(monkeypatch, b"a\nb c d e\n")
    lines = tokenized(capsys, "--vocab", vocab, "--json", "--max-length", "4", "--stride", "1").splitlines()
    found = [json.loads(line) for line in lines]
    assert [one["source"] for one in found] == [0, 1, 1, 1]
    assert [one["tokens"][1:-1] for one in found] == [["a"], ["b", "c"], ["c", "d"], ["d", "e"]]


def test_tokenize_gives_a_blank_line_of_pairs_no_pieces(vocab, capsys, monkeypatch):
    typed(monkeypatch, "a\tb\n\n\u3000 \nb\ta\n".encode())
    found = tokenized(capsys, "--vocab", vocab, "--ids", "--pair", "--bare").splitlines()
    assert [len(line.split()) for line in found] == [2, 0, 0, 2]


def test_tokenize_parts_windows_with_a_blank_line(vocab, capsys):
    text = tokenized(capsys, "--vocab", vocab, "--max-length", "3", "--stride", "0", "a b", "c")
    header, *sequences = text.split("\n[CLS]")
    assert header.startswith("piece")
    assert [sequence.split()[1] for sequence in sequences] == ["a", "b", "c"]
    assert text.count("\n\n") == 2


def test_tokenize_passes_every_option_on(vocab, capsys, monkeypatch):
    assert tokenized(capsys, "--vocab", vocab, "--ids", "--bare", "The cat") == "5 6\n"
    assert tokenized(capsys, "--vocab", vocab, "--ids", "--bare", "The cat", "--cased") == "1 6\n"
    long = "a" * 150
    assert len(tokenized(capsys, "--vocab", vocab, "--ids", "--bare", long).split()) == 1  # no ##a
    typed(monkeypatch, b"a b c\td e f\n")
    cut = tokenized(capsys, *f"--vocab {vocab} --ids --pair --max-length 7 --truncation only_first".split())
    assert cut == "2 14 3 17 18 19 3\n"
    for core in ("python", "auto"):
        assert tokenized(capsys, "--vocab", vocab, "--ids", "Cafés", "--core", core) == "2 7 8 3\n"


def test_tokenize_replaces_what_is_not_utf8_and_says_so_at_the_end(vocab, capsys, monkeypatch):
    data = b"caf\xc3\xa9s\nc\xffat \xe2\x82\nthe\n"
    typed(monkeypatch, data)
    assert cli.main(["tokenize", "--vocab", vocab, "--ids", "--bare"]) == 0
    output, errors = capsys.readouterr()
    assert output == "7 8\n6\n5\n"
    assert errors.startswith("minibert: The text is not UTF-8 in 2 places;")
    assert errors.count("\n") == 1
    typed(monkeypatch, data)
    assert cli.main(["tokenize", "--vocab", vocab, "--ids", "--strict"]) == 2
    error = capsys.readouterr().err
    assert "the standard input is not UTF-8: byte 0xff at offset 8 of the text; convert it" in error
    assert "iconv -f CP1252 -t UTF-8, or leave out --strict." in error


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_text_in_utf16_is_named_as_that(vocab, capsys, monkeypatch, encoding):
    data = "caf\xe9s\nthe\n".encode(encoding)
    typed(monkeypatch, data)
    assert cli.main(["tokenize", "--vocab", vocab, "--ids", "--strict"]) == 2
    assert "convert it, e.g. by iconv -f UTF-16 -t UTF-8, or leave" in capsys.readouterr().err
    with pytest.raises(InputError, match="convert it, e.g. by iconv -f UTF-16 -t UTF-8"):
        "".join(decoded([data, b""], "text"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--vocab {vocab} --pair one", "two by two, not 1"),
        ("--vocab {vocab} one --file two.txt", "give one of them"),
        ("--vocab {vocab} --file nowhere.txt", "There is no file 'nowhere.txt'; check its name"),
        ("--vocab nowhere one", "There is no folder 'nowhere', and minibert downloads nothing"),
        ("--vocab {vocab} one --max-length 1", "--max-length 1"),
        ("--vocab {vocab} one --max-length 4 --stride 2", "give less, or raise --max-length."),
        (
            "--vocab {vocab} one --stride 2",
            "--stride 2 makes windows of .* give one, such as --max-length 128",
        ),
        (
            "--vocab {vocab} a b a cats --pair --max-length 5 --truncation only_first",
            "Pair 2 does not fit --max-length 5: with --truncation only_first the other text keeps all its 2 "
            "pieces, which leaves 0; raise that length, or truncate longest_first",
        ),
        ("--vocab {vocab} one --threads 0", "--threads 0"),
    ],
)
def test_tokenize_says_what_it_was_given_wrongly(vocab, capsys, words, message):
    with contextlib.suppress(SystemExit):
        assert cli.main(["tokenize", *words.format(vocab=vocab).split()]) == 2
    errors = capsys.readouterr().err
    assert re.search(message, errors) and errors.count("\n") == 1


def test_tokenize_needs_a_tab_in_the_lines_of_pairs(vocab, capsys, monkeypatch):
    typed(monkeypatch, b"a\tb\nc d\n")
    assert cli.main(["tokenize", "--vocab", vocab, "--pair", "--ids"]) == 2
    assert "Line 2 of the standard input has no tab" in capsys.readouterr().err


def test_tokenize_counts_the_lines_of_each_file_anew(vocab, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(tokenize, "GROUP_BYTES", 8)  # several blocks of each file
    fitting, long = tmp_path / "fitting.tsv", tmp_path / "long.tsv"
    fitting.write_bytes(b"a\tb\n" * 9)
    words = f"--vocab {vocab} --pair --ids --max-length 5 --file {fitting} --file {long}".split()
    long.write_bytes(b"a\tb\n" * 3 + b"c\n")
    assert cli.main(["tokenize", *words]) == 2
    assert f"Line 4 of {long} has no tab" in capsys.readouterr().err
    long.write_bytes(b"a\tb\n" * 3 + b"a\tb c\n")
    assert cli.main(["tokenize", *words, "--truncation", "only_first"]) == 2
    assert f"Line 4 of {long} does not fit --max-length 5: " in capsys.readouterr().err


def test_tokenize_answers_each_line_at_once_and_ends_quietly_when_nobody_reads(vocab):
    process = start("tokenize", "--vocab", vocab, "--ids", stdin=subprocess.PIPE)
    for line, ids in (("the cat\n", "2 5 6 3\n"), ("a\n", "2 14 3\n")):
        process.stdin.write(line)
        process.stdin.flush()
        assert process.stdout.readline() == ids
    process.stdout.close()
    _, errors = process.communicate("a b c\n" * 200_000, timeout=PATIENCE)
    assert process.returncode == 1
    assert without_notice(errors) == ""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from Linux's /proc")
def test_tokenize_takes_the_same_memory_for_ten_times_the_lines(vocab, tmp_path):
    def peak(lines):
        path = tmp_path / "lines.txt"
        path.write_bytes(b"the cats of the cafe\n" * lines)
        program = (
            "import re, sys; from minibert import cli; "
            f"cli.main(['tokenize', '--vocab', {vocab!r}, '--ids', '--file', {str(path)!r}]); "
            "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1], file=sys.stderr)"
        )
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert run.stdout.count("\n") == lines
        return int(without_notice(run.stderr)) / 1000  # MB

    # From 150,000 lines on every buffer is full; the file alone grows by 28 MB.
    assert peak(1_500_000) - peak(150_000) < 14


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from Linux's /proc")
@pytest.mark.parametrize(
    ("flags", "times"),
    [
        (("--ids",), 12),
        pytest.param(("--json",), 40, marks=pytest.mark.slow),
        pytest.param((), 60, marks=pytest.mark.slow),
    ],
)
def test_tokenize_takes_a_small_multiple_of_the_memory_of_a_long_line(vocab, flags, times, tmp_path):
    def peak(mib):
        path = tmp_path / "line.txt"
        path.write_bytes(b"a " * (mib << 19))
        program = (
            "import re, sys; from minibert import cli; "
            f"cli.main(['tokenize', '--vocab', {vocab!r}, *{flags!r}, '--file', {str(path)!r}]); "
            "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1], file=sys.stderr)"
        )
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        return int(without_notice(run.stderr)) / 1024  # MiB

    # Every second byte is a piece. All of them held as strings take 46 bytes, as rows of a table 103.
    assert peak(5) - peak(1) < times * 4
