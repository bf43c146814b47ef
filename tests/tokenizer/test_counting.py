"""Counting words: what is counted, over threads and from files of any kind, and the mapping that holds it."""

import gzip
import hashlib
import lzma
import random
import signal
import threading
import time
import zlib
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from marks import examples, seldom

from minibert.base.errors import InputError
from minibert.data.corpus import embedded_corpus
from minibert.tokenizer import BasicTokenizer, counting, learn_vocab, native
from minibert.tokenizer.counting import WordCounts, count_files, count_words
from minibert.tokenizer.learner import OBJECTIVES

needs_c = pytest.mark.skipif(not native.available(), reason="the C core of the tokenizer is not installed")
CORES = ["python", pytest.param("c", marks=needs_c)]

TEXT = "The cat, the hät!\nTHE naïve 中文 ΟΔΟΣ.\r\n\tcat\x0bs\u2028x \u1e69\u0323\n"


def write(path, data):
    """A file, compressed as its name says."""
    pack = {".gz": gzip.compress, ".xz": lzma.compress}.get(path.suffix, bytes)
    path.write_bytes(pack(data))
    return path


@pytest.fixture
def small_pieces(monkeypatch):
    """Pieces of a few bytes, so that short texts are cut everywhere."""
    monkeypatch.setattr(counting, "PIECE_BYTES", 7)


# What is counted


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("rules", [{}, {"lower_case": False}, {"compat": "hf-slow"}, {"compat": "hf-fast"}])
def test_counting_words_is_tokenizing_and_counting(rules, core):
    tokenizer = BasicTokenizer(**rules)
    lines = [*TEXT.split("\n"), "", "the cat"]
    expected = Counter(word for line in lines for word in tokenizer.tokenize(line))
    assert count_words(lines, tokenizer, core=core) == expected
    assert count_words([line.encode() for line in lines], tokenizer, core=core) == expected


@needs_c
@settings(deadline=None, max_examples=examples(300))
@given(
    st.lists(
        st.text()
        | st.binary()
        | st.text("a\u0301\u03a3\u03c3.' \n\t\x0b\x85\u2028\ud800\u4e2d\ufffd\xad", max_size=20)
    ),
    st.sampled_from(["google", "hf-slow", "hf-fast"]),
    st.booleans(),
    st.integers(1, 6),
)
def test_both_engines_count_the_same(texts, compat, lower_case, max_chars):
    tokenizer = BasicTokenizer(lower_case, compat=compat)
    c, python = (
        count_words(texts, tokenizer, max_chars=max_chars, core=core, threads=1) for core in ("c", "python")
    )
    assert list(c.items()) == list(python.items())


@pytest.mark.thorough
@needs_c
@pytest.mark.parametrize("compat", seldom(["google", "hf-slow", "hf-fast"], "google"))
def test_both_engines_count_the_same_in_the_embedded_corpus(compat):
    tokenizer = BasicTokenizer(compat=compat)
    c, python = (
        count_files([embedded_corpus()], tokenizer, held_out=10, core=core) for core in ("c", "python")
    )
    assert list(c.words.items()) == list(python.words.items())
    assert list(c.held_out.items()) == list(python.held_out.items())
    assert c.n_bytes == python.n_bytes > 10_000_000 and c.n_invalid == python.n_invalid == 0


@pytest.mark.parametrize("core", CORES)
def test_special_tokens_are_no_words(core, tmp_path):
    text = "the [MASK]cat [SEP] [sep] [NEW]«Ö»[ MASK]\n[CLS][UNK][PAD]end"
    once = ("the", "cat", "sep", "new", "«", "o", "»", "mask", "end")
    expected = {"[": 3, "]": 3} | dict.fromkeys(once, 1)
    assert dict(count_words([text], BasicTokenizer(), core=core).items()) == expected
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    for held_out in (0, 2):
        found = count_files([tmp_path / "text.txt"], BasicTokenizer(), core=core, held_out=held_out)
        assert dict(Counter(dict(found.words.items())) + Counter(dict(found.held_out.items()))) == expected
    own = {"special_tokens": ["[NEW]", "«Ö»"]}
    fewer = dict(count_words([text], BasicTokenizer(), core=core, **own).items())
    assert "new" not in fewer and "«" not in fewer and fewer["mask"] == 2
    assert dict(count_words([text], BasicTokenizer(), core=core, special_tokens=()).items())["cls"] == 1


@pytest.mark.parametrize("core", CORES)
def test_words_longer_than_the_limit_are_not_counted(core):
    texts = ["a" * 100 + " " + "b" * 101, "c" * 200 + " " + "d" * 201, "\u00e9" * 200]
    cased = BasicTokenizer(lower_case=False)
    assert set(count_words(texts, cased, core=core)) == {"a" * 100, "b" * 101, "c" * 200, "\u00e9" * 200}
    fast = BasicTokenizer(compat="hf-fast")
    assert set(count_words(texts, fast, core=core)) == {"a" * 100}
    assert set(count_words(["abc ab"], cased, max_chars=2, core=core)) == {"ab"}


@pytest.mark.parametrize("core", CORES)
def test_surrogates_are_characters_of_a_string_and_invalid_in_bytes(core):
    assert count_words(["a\ud800b"], BasicTokenizer(), core=core) == {"a\ud800b": 1}
    surrogate = "a\ud800b".encode("utf-8", "surrogatepass")
    assert count_words([surrogate, "a\ud800b"], BasicTokenizer(), core=core) == {"ab": 1, "a\ud800b": 1}


def test_never_split_words_are_counted_by_the_python_engine():
    tokenizer = BasicTokenizer(never_split=["[MASK]"])
    assert count_words(["A [MASK] [mask]"], tokenizer) == {"a": 1, "[MASK]": 1, "[": 1, "mask": 1, "]": 1}


@pytest.mark.parametrize("core", CORES)
def test_no_text_has_no_words(core, tmp_path):
    empty = write(tmp_path / "empty.txt", b"")
    for words in (
        count_words([], BasicTokenizer(), core=core),
        count_words(["", " \n"], BasicTokenizer(), core=core),
        count_files([empty], BasicTokenizer(), core=core).words,
    ):
        assert len(words) == 0 and words.total() == 0 and list(words) == []


# Files


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("suffix", [".txt", ".txt.gz", ".txt.xz"])
def test_files_are_counted_as_their_text(tmp_path, small_pieces, suffix, core):
    data = (TEXT * 50).encode()
    file = write(tmp_path / f"text{suffix}", data)
    tokenizer = BasicTokenizer()
    counted = count_files([file, file], tokenizer, core=core, threads=2)
    assert counted.words == Counter(tokenizer.tokenize(TEXT * 100))
    assert counted.n_bytes == 2 * len(data) and counted.n_invalid == 0
    assert len(counted.held_out) == 0


@pytest.mark.parametrize("core", CORES)
@given(
    st.lists(
        st.sampled_from([b"a", b"bb ", b"\n", b"ccc", b" d", b"\r\n", b"\xff", b"\xc3", b"\xa9", b"z " * 150])
    )
)
@settings(deadline=None, max_examples=examples(100))
def test_lines_are_held_out_whole_by_their_crc(tmp_path_factory, core, parts):
    data = b"".join(parts)
    file = write(tmp_path_factory.mktemp("split") / "text.txt", data)
    sides = {True: [], False: []}
    for line in data.split(b"\n"):
        sides[zlib.crc32(line[:256]) % 3 == 0].append(line)
    piece_bytes = counting.PIECE_BYTES
    counting.PIECE_BYTES = 7
    try:
        counted = count_files([file], BasicTokenizer(), held_out=3, core=core, threads=2)
    finally:
        counting.PIECE_BYTES = piece_bytes
    assert counted.words == count_words([b"\n".join(sides[False])], BasicTokenizer(), core=core)
    assert counted.held_out == count_words([b"\n".join(sides[True])], BasicTokenizer(), core=core)
    invalid = data.decode("utf-8", "replace").count("\ufffd")
    assert counted.n_bytes == len(data) and counted.n_invalid == invalid


@pytest.mark.parametrize("core", CORES)
def test_only_the_first_256_bytes_of_a_line_decide(tmp_path, monkeypatch, core):
    # Lines longer than a piece: which side they fall on is known before their end is read.
    monkeypatch.setattr(counting, "PIECE_BYTES", 1000)
    lines = [f"{i} word{i} ".encode() * 40 + b"tail " * 700 for i in range(30)]
    file = write(tmp_path / "long.txt", b"\n".join(lines))
    counted = count_files([file], BasicTokenizer(), held_out=4, core=core)
    held_out = [i for i, line in enumerate(lines) if zlib.crc32(line[:256]) % 4 == 0]
    assert 0 < len(held_out) < 30
    assert counted.held_out["tail"] == 700 * len(held_out)
    assert counted.words["tail"] == 700 * (30 - len(held_out))
    assert [counted.held_out.get(f"word{i}", 0) for i in range(30)] == [
        40 if i in held_out else 0 for i in range(30)
    ]


@pytest.mark.parametrize("core", CORES)
def test_bytes_that_are_not_utf8_are_counted_or_refused_with_their_place(tmp_path, small_pieces, core):
    file = write(
        tmp_path / "text.txt.gz", b"good text \xf0\x9f\x98 and \xffbad\xc0\x80 \xef\xbf\xbd end\xe2\x82"
    )
    counted = count_files([file], BasicTokenizer(), core=core)
    assert counted.n_invalid == 5  # U+FFFD itself is none
    assert counted.words == {"good": 1, "text": 1, "and": 1, "bad": 1, "end": 1}
    for threads in (1, 4):
        with pytest.raises(InputError, match=r"text.txt.gz is not UTF-8: byte 0xf0 at offset 10 of the text"):
            count_files([file], BasicTokenizer(), strict=True, core=core, threads=threads)


@needs_c
def test_the_first_bad_byte_is_the_one_that_is_named(tmp_path, small_pieces):
    good = b"some words " * 20
    files = [write(tmp_path / f"{i}.txt", good + b"\xff " * i + good) for i in range(4)]
    for _ in range(5):
        with pytest.raises(InputError, match=r"1\.txt is not UTF-8: byte 0xff at offset 220 "):
            count_files(files, BasicTokenizer(), strict=True, threads=4)


@needs_c
def test_a_line_of_many_megabytes_without_a_space_is_one_long_word(tmp_path):
    file = write(tmp_path / "long.txt", b"a" * 30_000_000 + b" b " + b"c," * 5_000_000)
    counted = count_files([file], BasicTokenizer(), held_out=2)
    both = Counter(counted.words) + Counter(counted.held_out)
    assert both == {"b": 1, "c": 5_000_000, ",": 5_000_000}


def test_progress_counts_the_bytes_on_the_disk(tmp_path, small_pieces):
    files = [write(tmp_path / name, TEXT.encode() * 20) for name in ("a.txt", "b.txt.xz", "c.txt.gz")]
    total = sum(file.stat().st_size for file in files)
    for threads in (1, 3):
        done, totals = [], set()

        def note(so_far, of, done=done, totals=totals):
            done.append(so_far)
            totals.add(of)

        count_files(files, BasicTokenizer(), threads=threads, progress=note)
        assert totals == {total}
        assert done == sorted(done) and done[-1] == total and len(set(done)) > 5


def test_ctrl_c_ends_the_counting(tmp_path):
    file = write(tmp_path / "text.txt", TEXT.encode() * 200_000)
    before = threading.active_count()

    def interrupt(done, total):
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        count_files([file] * 3, BasicTokenizer(), progress=interrupt)
    deadline = time.monotonic() + 300
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before


# One result, whatever happens around it


@pytest.mark.thorough
@needs_c
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_threads_and_the_order_of_files_change_no_byte_of_the_vocabulary(tmp_path, objective):
    with lzma.open(embedded_corpus()) as stream:
        lines = stream.read(3_000_000).splitlines(keepends=True)
    files = [write(tmp_path / f"{i}.txt", b"".join(lines[i::6])) for i in range(6)]
    hashes = set()
    for run in range(20):
        shuffled = random.Random(run).sample(files, len(files))
        counted = count_files(shuffled, BasicTokenizer(), held_out=50, threads=(1, 2, 4)[run % 3])
        vocab = "\n".join(learn_vocab(counted.words, 3000, objective=objective))
        hashes.add(hashlib.sha256(vocab.encode() + counted.held_out.data).hexdigest())
    assert len(hashes) == 1


@needs_c
def test_many_different_chunks_of_few_words_are_worked_off_in_between():
    texts = (" ".join(f"{i},{k}" for k in range(1000)) for i in range(400))
    words = count_words(texts, BasicTokenizer())
    assert len(words) == 1001 and words[","] == 400_000 and words["7"] == 1400


# The mapping


@given(st.dictionaries(st.text(max_size=5), st.integers(0, 2**63 - 1)))
def test_word_counts_are_the_mapping_they_are_made_of(counts):
    words = WordCounts.of(counts)
    assert words == counts and dict(words) == counts and len(words) == len(counts)
    assert list(words) == sorted(counts) and list(words.items()) == sorted(counts.items())
    assert words.total() == sum(counts.values())
    assert all(words[word] == count for word, count in counts.items())
    assert "absent" not in words and words.get("absent", 0) == 0 and 3 not in words
    assert WordCounts.of(words) is words


@given(st.lists(st.text(st.characters(), max_size=5), unique=True), st.data())
def test_characters_of_words_are_their_code_points(texts, data):
    words = WordCounts.of(dict.fromkeys(texts, 1))
    first = data.draw(st.integers(0, len(texts)))
    last = data.draw(st.integers(first, len(texts)))
    codes, lengths = words.characters(first, last)
    chosen = sorted(texts)[first:last]
    assert codes.tolist() == [ord(character) for word in chosen for character in word]
    assert lengths.tolist() == [len(word) for word in chosen] and lengths.dtype == np.int64


# Bad arguments


@pytest.mark.parametrize(
    "options, sentence",
    [
        ({"held_out": 1}, "held_out=1 is not possible; give 2 to 2..31, or 0"),
        ({"held_out": -3}, "held_out=-3 is not possible"),
        ({"held_out": 2**70}, f"held_out={2**70} is not possible; give 2 to 2..31"),
        ({"held_out": 2.5}, "held_out=2.5 is not possible"),
        ({"threads": 0}, "threads=0 is not possible; give a whole number, at least 1"),
        ({"max_chars": 0}, "max_chars=0 is not possible; give a whole number, at least 1"),
        ({"core": "rust"}, "core='rust' is unknown; choose auto, c or python"),
    ],
)
def test_impossible_arguments_get_a_sentence(tmp_path, options, sentence):
    with pytest.raises(InputError, match=sentence):
        count_files([write(tmp_path / "a.txt", b"a")], BasicTokenizer(), **options)


@pytest.mark.parametrize(
    "texts, sentence",
    [
        ("abc", "texts='abc' is one text; give a list of them"),
        (b"abc", "texts=b'abc' is one text"),
        (7, "texts=7 is not a list of texts"),
        (["a", None], r"texts\[1\]=None is NoneType; give str or bytes"),
        ([["a"]], r"texts\[0\]=\['a'\] is list"),
    ],
)
def test_what_is_no_list_of_texts_is_refused(texts, sentence):
    with pytest.raises(InputError, match=sentence):
        count_words(texts, BasicTokenizer())


@needs_c
def test_the_c_engine_refuses_words_that_are_never_split():
    with pytest.raises(InputError, match="core='c' counts no words of never_split; choose core='python'"):
        count_words(["a"], BasicTokenizer(never_split=["[MASK]"]), core="c")


@needs_c
def test_a_counter_in_c_holds_out_lines_of_a_positive_number_only():
    words, held_out = (native.Counter(BasicTokenizer(), 100) for _ in range(2))
    for modulus in (0, -2):
        with pytest.raises(InputError, match=f"modulus={modulus} is not a positive number"):
            words.count_split(held_out, modulus, b"one line\n")


@needs_c
def test_counts_of_one_counter_in_c_are_added_to_those_of_another():
    one, other = (native.Counter(BasicTokenizer(), 100) for _ in range(2))
    one.count(b"a b a")
    other.count(b"b c")
    one.add(other)
    for counter, words, counts in ((one, b"abc", [2, 2, 1]), (other, b"bc", [1, 1])):
        found, borders, numbers = counter.export()
        assert (bytes(found), borders.tolist(), numbers.tolist()) == (
            words,
            list(range(len(words) + 1)),
            counts,
        )


@pytest.mark.thorough
@pytest.mark.parametrize("held_out", [0, 20])
def test_a_stretch_without_white_space_has_a_longest_length(tmp_path, held_out):
    path, begin = tmp_path / "a.txt.xz", b"one two\n"
    path.write_bytes(lzma.compress(begin + b"a" * counting.LONGEST_STRETCH, preset=0))
    n_bytes = count_files(path, BasicTokenizer(), held_out=held_out).n_bytes
    assert n_bytes == len(begin) + counting.LONGEST_STRETCH
    path.write_bytes(lzma.compress(begin + b"a" * (counting.LONGEST_STRETCH + 1), preset=0))
    with pytest.raises(InputError, match="a.txt.xz has more than 64 MiB without .* from offset 8 of"):
        count_files(path, BasicTokenizer(), held_out=held_out)


def test_unreadable_files_get_a_sentence(tmp_path):
    with pytest.raises(InputError, match=r"none\.txt can't be read: No such file"):
        count_files([tmp_path / "none.txt"], BasicTokenizer())
    cut = tmp_path / "cut.txt.xz"
    cut.write_bytes(lzma.compress(b"text " * 1000)[:-20])
    with pytest.raises(InputError, match=r"cut\.txt\.xz is damaged or cut short"):
        count_files([cut], BasicTokenizer())
    with pytest.raises(InputError, match=r"plain\.txt\.gz is damaged or cut short"):
        (tmp_path / "plain.txt.gz").write_bytes(b"not compressed")
        count_files([tmp_path / "plain.txt.gz"], BasicTokenizer())
