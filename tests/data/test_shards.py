"""Token shards: what goes in comes out, whole or not at all, in little memory and few bytes."""

import hashlib
import json
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from marks import examples
from mutations import spoiled

from minibert.base.errors import InputError, RunError
from minibert.data.corpus import embedded_corpus, sentences
from minibert.data.shards import store as shards_module
from minibert.data.shards.store import (
    LONGEST_DOCUMENT,
    LONGEST_SENTENCE,
    TokenShards,
    write_shards,
)
from minibert.tokenizer import SPECIAL_TOKENS, Tokenizer

LETTERS = [*SPECIAL_TOKENS, *"abcdefgh", *(f"##{letter}" for letter in "abcdefgh"), "."]


@pytest.fixture
def tokenizer():
    return Tokenizer(LETTERS)


def encoded(tokenizer, documents):
    bare = {"add_special_tokens": False}
    return [[tokenizer.encode(sentence, **bare) for sentence in document] for document in documents]


def stream_of(documents):
    for number, document in enumerate(documents):
        if number:
            yield None
        yield from document


def read_back(shards):
    for index in range(shards.n_documents):
        tokens, ends = shards.document(index)
        assert tokens.dtype == np.int32
        yield [part.tolist() for part in np.split(tokens, ends[:-1])]


def test_special_tokens_in_a_text_are_counted_once(tmp_path):
    tokenizer = Tokenizer([*LETTERS, "[DRUG]"], additional_special_tokens=["[DRUG]"])
    text = ["a [SEP] b", "[DRUG] [MASK][SEP]"]
    told = r"3 special tokens written out: \[SEP\] \(2\), \[MASK\] \(1\)\. Each"
    with pytest.warns(UserWarning, match=told):
        shards = write_shards(iter(text), tokenizer, tmp_path / "shards")
    drug = tokenizer.ids["[DRUG]"]
    assert list(read_back(shards)) == [[[5, 3, 6], [drug, 4, 3]]]


def test_a_text_without_special_tokens_has_no_warning(tmp_path, tokenizer, recwarn):
    write_shards(iter(["a b", "[sep] c"]), tokenizer, tmp_path / "shards")
    assert not recwarn


def test_what_is_written_is_read(tmp_path, tokenizer):
    documents = [["ab c.", "d."], ["e f g."], ["a", "b", "c"]]
    shards = write_shards(stream_of(documents), tokenizer, tmp_path / "shards")
    assert list(read_back(shards)) == encoded(tokenizer, documents)
    assert list(read_back(TokenShards(tmp_path / "shards"))) == encoded(tokenizer, documents)
    assert (shards.n_documents, shards.n_sentences, shards.n_tokens) == (3, 6, 13)
    assert shards.vocab_size == len(LETTERS)
    assert shards.document_lengths.tolist() == [6, 4, 3]
    assert shards.sentence_counts.tolist() == [2, 1, 3]


@settings(
    max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.none() | st.text(alphabet="ab. ", max_size=12), max_size=30))
def test_any_stream_is_kept_but_for_what_is_empty(tmp_path_factory, tokenizer, stream):
    documents = [[]]
    for sentence in stream:
        if sentence is None:
            documents.append([])
        elif tokenizer.tokenize(sentence):
            documents[-1].append(sentence)
    documents = [document for document in documents if document]
    folder = tmp_path_factory.mktemp("any") / "shards"
    if documents:
        assert list(read_back(write_shards(stream, tokenizer, folder))) == encoded(tokenizer, documents)
    else:
        with pytest.raises(InputError, match="has no tokens"):
            write_shards(stream, tokenizer, folder)
        assert not list(folder.parent.iterdir())


def test_buffers_are_emptied_in_the_middle_without_a_trace(tmp_path, tokenizer, monkeypatch):
    documents = [["ab c."] * 7, ["d e f."] * 5, ["a"] * 30]
    monkeypatch.setattr(shards_module, "BUFFERED", 4)
    shards = write_shards(stream_of(documents), tokenizer, tmp_path / "shards")
    assert list(read_back(shards)) == encoded(tokenizer, documents)


def in_parts(stream, tokenizer, longest_sentence, longest_document):
    """What the shards of a stream should hold, worked out sentence by sentence."""
    documents = [[]]
    for sentence in stream:
        ids = [] if sentence is None else tokenizer.encode(sentence, add_special_tokens=False)
        if sentence is None:
            documents.append([])
        for begin in range(0, len(ids), longest_sentence):
            part = ids[begin : begin + longest_sentence]
            if sum(map(len, documents[-1])) + len(part) > longest_document:
                documents.append([])
            documents[-1].append(part)
    return [document for document in documents if document]


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.none() | st.text(alphabet="ab. ", max_size=12), max_size=40), st.integers(1, 30))
def test_limits_cut_where_a_writer_sentence_by_sentence_would(tmp_path_factory, tokenizer, stream, buffered):
    stream.append("a")
    expected = in_parts(stream, tokenizer, 3, 7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards_module, "LONGEST_SENTENCE", 3)
        patch.setattr(shards_module, "LONGEST_DOCUMENT", 7)
        patch.setattr(shards_module, "BUFFERED", buffered)
        shards = write_shards(stream, tokenizer, tmp_path_factory.mktemp("any") / "shards")
    assert list(read_back(shards)) == expected


def test_wide_vocabularies_are_stored_in_four_bytes(tmp_path):
    vocab = [*LETTERS, *(f"x{number}" for number in range(70_000))]
    tokenizer = Tokenizer(vocab)
    shards = write_shards(["x69999 a x3", None, "b"], tokenizer, tmp_path / "shards")
    assert shards.document(0)[0].tolist() == [tokenizer.ids[piece] for piece in ("x69999", "a", "x3")]
    assert (tmp_path / "shards" / "tokens.bin").stat().st_size == 4 * 4


def test_overlong_sentences_and_documents_are_stored_in_parts(tmp_path, tokenizer):
    shards = write_shards(["a " * (LONGEST_SENTENCE + 10)] * 3, tokenizer, tmp_path / "shards")
    assert shards.n_tokens == 3 * (LONGEST_SENTENCE + 10)
    assert shards.document_lengths.tolist() == [LONGEST_SENTENCE + 10] * 3  # two would be over the limit
    assert 2 * (LONGEST_SENTENCE + 10) > LONGEST_DOCUMENT
    assert int(shards.sentence_lengths.max()) == LONGEST_SENTENCE
    assert set(shards.tokens) == {tokenizer.ids["a"]}


def test_a_taken_folder_is_refused_and_left_alone(tmp_path, tokenizer):
    folder = tmp_path / "shards"
    folder.mkdir()
    write_shards(["a", "b"], tokenizer, folder)  # an empty one is as good as none
    before = sorted((file.name, file.read_bytes()) for file in folder.iterdir())
    with pytest.raises(InputError, match="exists and is not an empty folder"):
        write_shards(["c"], tokenizer, folder)
    assert sorted((file.name, file.read_bytes()) for file in folder.iterdir()) == before


@pytest.mark.parametrize("failure", [InputError("bad text"), KeyboardInterrupt(), OSError(28, "No space")])
def test_a_failure_on_the_way_leaves_nothing(tmp_path, tokenizer, failure):
    def stream():
        yield "a b c"
        raise failure

    expected = RunError if isinstance(failure, OSError) else type(failure)
    with pytest.raises(expected):
        write_shards(stream(), tokenizer, tmp_path / "shards")
    assert list(tmp_path.iterdir()) == []


def test_a_failure_while_encoding_leaves_nothing_and_stops_reading(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(shards_module, "BUFFERED", 4)
    read = []

    def encode_batch(texts, **_):
        raise MemoryError

    def stream():
        for number in range(1000):
            read.append(number)
            yield "a b c"

    monkeypatch.setattr(tokenizer, "encode_batch", encode_batch)
    with pytest.raises(MemoryError):
        write_shards(stream(), tokenizer, tmp_path / "shards")
    assert list(tmp_path.iterdir()) == []
    assert len(read) < 10


def test_another_vocabulary_is_refused(tmp_path, tokenizer):
    write_shards(["a b"], tokenizer, tmp_path / "shards")
    TokenShards(tmp_path / "shards", tokenizer)
    other = Tokenizer([*LETTERS[:-1], "!"])
    with pytest.raises(InputError, match="were made with another vocabulary"):
        TokenShards(tmp_path / "shards", other)


@pytest.mark.parametrize("name", ["tokens.bin", "sentences.bin", "documents.bin"])
@pytest.mark.parametrize("fault", ["missing", "short", "long"])
def test_a_file_of_the_wrong_size_is_noticed_on_opening(tmp_path, tokenizer, name, fault):
    write_shards(["a b", "c", None, "d"], tokenizer, tmp_path / "shards")
    file = tmp_path / "shards" / name
    data = file.read_bytes()
    file.unlink()
    if fault != "missing":
        file.write_bytes(data[:-2] if fault == "short" else data + b"\0\0")
    with pytest.raises(InputError, match=name if fault == "missing" else f"{name} has .* bytes where"):
        TokenShards(tmp_path / "shards")


def signed(folder, **changes):
    """The shards with other values in meta.json, and the checksums of the files that are there."""
    meta = json.loads((folder / "meta.json").read_text()) | changes
    meta.pop("crc32")
    sums = {"meta.json": zlib.crc32(json.dumps(meta, sort_keys=True).encode())}
    for file in folder.glob("*.bin"):
        sums[file.name] = zlib.crc32(file.read_bytes())
    (folder / "meta.json").write_text(json.dumps(meta | {"crc32": sums}))


def test_shards_without_checksums_are_refused(tmp_path, tokenizer):
    write_shards(stream_of([["ab c.", "d."], ["e f g."]]), tokenizer, tmp_path / "shards")
    meta = tmp_path / "shards" / "meta.json"
    fields = json.loads(meta.read_text())
    assert sorted(fields.pop("crc32")) == ["documents.bin", "meta.json", "sentences.bin", "tokens.bin"]
    meta.write_text(json.dumps(fields, indent=2) + "\n")
    with pytest.raises(InputError, match="in meta.json 'crc32' is missing"):
        TokenShards(tmp_path / "shards")


@pytest.mark.parametrize("name", ["tokens.bin", "sentences.bin", "documents.bin", "meta.json"])
def test_any_other_bit_is_noticed(tmp_path, tokenizer, name):
    write_shards(stream_of([["ab c.", "d."], ["e f g."]]), tokenizer, tmp_path / "shards")
    file = tmp_path / "shards" / name
    sound = file.read_bytes()
    meaning = json.loads(sound) if name == "meta.json" else sound
    for place in range(8 * len(sound)):
        data = bytearray(sound)
        data[place // 8] ^= 1 << place % 8
        file.write_bytes(data)
        try:
            TokenShards(tmp_path / "shards")
        except InputError:
            continue
        fields = json.loads(data)  # white space, or the name "crc32", without which nothing is compared
        assert name == "meta.json" and ("crc32" not in fields or fields == meaning)


def test_a_part_of_the_tokens_in_another_place_is_noticed(tmp_path, tokenizer):
    write_shards(stream_of([["ab c.", "d."], ["e f g."]] * 40), tokenizer, tmp_path / "shards")
    file = tmp_path / "shards" / "tokens.bin"
    sound = file.read_bytes()
    for data in [*spoiled(sound, "tokens.bin", 600), sound[8:] + sound[:8], bytes(len(sound))]:
        if data != sound:
            file.write_bytes(data)
            with pytest.raises(
                InputError, match="are damaged: (the checksum of tokens.bin differs|.* bytes)"
            ):
                TokenShards(tmp_path / "shards")


@pytest.mark.parametrize(
    "change, words",
    [
        ({"format": "other"}, "holds no token shards"),
        ({"version": 2}, "version 2, this minibert reads 1"),
        ({"tokens": -4}, "tokens=-4 in meta.json is not a count"),
        ({"documents": 1.5}, "in meta.json 'documents' is 1.5, expected a whole number"),
        ({"sentences": 10**18}, "sentences.bin has 6 bytes where"),
        ({"vocab_size": True}, "'vocab_size' is True"),
        ({"vocab_sha256": None}, "'vocab_sha256' is None, expected a string"),
    ],
)
def test_a_foreign_or_altered_description_is_noticed(tmp_path, tokenizer, change, words):
    write_shards(["a b", "c", None, "d"], tokenizer, tmp_path / "shards")
    signed(tmp_path / "shards", **change)
    with pytest.raises(InputError, match=words):
        TokenShards(tmp_path / "shards")


@pytest.mark.parametrize("text", ["", "[]", "{", "{}", "[" * 100_000, None])
def test_a_folder_of_something_else_is_noticed(tmp_path, text):
    if text is not None:
        (tmp_path / "meta.json").write_text(text)
    words = "holds no token shards" if text in ("{}", None) else "meta.json can't be read"
    with pytest.raises(InputError, match=words):
        TokenShards(tmp_path)


def test_contents_that_contradict_each_other_are_noticed(tmp_path, tokenizer):
    write_shards(["a b", "c", None, "d"], tokenizer, tmp_path / "shards")
    folder = tmp_path / "shards"

    def altered(name, values, dtype):
        original = (folder / name).read_bytes()
        (folder / name).write_bytes(np.array(values, dtype).tobytes())
        signed(folder)
        try:
            for index in range(TokenShards(folder).n_documents):
                TokenShards(folder).document(index)
        finally:
            (folder / name).write_bytes(original)
            signed(folder)

    with pytest.raises(InputError, match="don't add up"):
        altered("sentences.bin", [1, 1, 1], "<u2")
    with pytest.raises(InputError, match="don't add up"):
        altered("sentences.bin", [3, 0, 1], "<u2")
    with pytest.raises(InputError, match=r"ends in documents\.bin do not rise to tokens=4 of meta\.json"):
        altered("documents.bin", [3, 2, 3, 3], "<u8")
    with pytest.raises(InputError, match=r"ends in documents\.bin do not rise to tokens=4 of meta\.json"):
        altered("documents.bin", [2**63, 2, 4, 3], "<u8")
    for sentence_ends in ([3, 3], [0, 3], [4, 3], [2, 2]):  # the tokens' own ends are sound
        words = r"ends in documents\.bin do not rise to sentences=3 of meta\.json"
        with pytest.raises(InputError, match=words):
            altered("documents.bin", [3, sentence_ends[0], 4, sentence_ends[1]], "<u8")
    with pytest.raises(InputError, match="token 999 is outside its vocabulary"):
        altered("tokens.bin", [5, 6, 999, 8], "<u2")
    with pytest.raises(InputError, match="document=2 is not one of the 2"):
        TokenShards(folder).document(2)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("layout", "sha256"),  # those of minibert 0.1.0, which wrote them sentence by sentence
    [
        ("sentences", "4bea5b6503796f38a5cbf91af45cebd53066c4ab2e72696973a19a885fbd8629"),
        ("paragraphs", "68d57044a97ea73fb57e23245f709fdadc485b84252b926021d37f2e17b9cecf"),
    ],
)
def test_the_embedded_books_take_at_most_2_2_bytes_a_token_always_the_same(tmp_path, layout, sha256):
    words = set(" ".join(s for s in sentences(embedded_corpus(), "sentences") if s).lower().split())
    tokenizer = Tokenizer([*LETTERS, *sorted(words - set(LETTERS))[:20_000]])
    shards = write_shards(sentences(embedded_corpus(), layout), tokenizer, tmp_path / "shards")
    size = sum(file.stat().st_size for file in shards.folder.iterdir())
    assert shards.n_tokens > 2_000_000
    assert size / shards.n_tokens <= 2.2
    files = b"".join(file.read_bytes() for file in sorted(shards.folder.glob("*.bin")))
    assert hashlib.sha256(files).hexdigest() == sha256


# VmHWM and not getrusage: on Linux the latter counts the memory of the parent that started the process.
WRITE = r"""
import re, sys
from minibert.data.corpus import sentences
from minibert.data.shards.store import write_shards
from minibert.tokenizer import Tokenizer
corpus, vocab, folder = sys.argv[1:]
shards = write_shards(sentences(corpus, "sentences"), Tokenizer.from_pretrained(vocab), folder)
print(re.search(r"VmHWM:\s+(\d+) kB", open("/proc/self/status").read())[1], shards.n_tokens)
"""


def corpus_of(path, megabytes):
    """The embedded books again and again, each round with words of its own, so that no cache helps."""
    text = "\n".join("" if s is None else s for s in sentences(embedded_corpus(), "sentences")) + "\n\n"
    with open(path, "w", encoding="utf-8") as file:
        turn = 0
        while file.tell() < megabytes * 1_000_000:
            file.write(text.replace("the ", f"the{turn} ")[: megabytes * 1_000_000 - file.tell()])
            turn += 1


def peak_and_size(tmp_path, megabytes):
    """Peak memory in MB, and bytes on the disk a token."""
    corpus, vocab, folder = (tmp_path / f"{megabytes}.{name}" for name in ("txt", "vocab", "shards"))
    corpus_of(corpus, megabytes)
    words = {word for s in sentences(corpus, "sentences") if s for word in s.lower().split()}
    letters = sorted({letter for word in words for letter in word})
    inside = [f"##{letter}" for letter in letters]
    pieces = dict.fromkeys([*SPECIAL_TOKENS, *letters, *inside, *sorted(words)])
    vocab.write_text("\n".join(list(pieces)[:8192]) + "\n", encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-c", WRITE, corpus, vocab, folder], capture_output=True, text=True, check=True
    )
    peak, n_tokens = map(int, run.stdout.split())
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{megabytes} MB: peak {peak / 1000:.1f} MB, {size / n_tokens:.3f} bytes a token")
    return peak / 1000, size / n_tokens


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from Linux's /proc")
@pytest.mark.parametrize("small, large", [(4, 20), (20, 100)], ids=["20 MB", "100 MB"])
def test_five_times_the_corpus_takes_the_same_memory(tmp_path, small, large):
    first, second = peak_and_size(tmp_path, small), peak_and_size(tmp_path, large)
    assert second[0] - first[0] < 20
    assert first[1] <= 2.2 and second[1] <= 2.2
