"""A corpus's shards made in parts, read as one, and each machine's own slice of every batch."""

import dataclasses
import gzip
import itertools
import json
import random
import shutil

import numpy as np
import pytest
from command import ends_badly
from hypothesis import HealthCheck, given, settings, strategies as st
from marks import examples
from small_corpus import write_corpus

from minibert import cli
from minibert.base.errors import InputError, RunError
from minibert.data import instances as instances_module
from minibert.data.instances import InstanceOptions, Instances, Position, stream_slots
from minibert.data.shards.joined import (
    EndToEnd,
    JoinedShards,
    link_shards,
    missing_parts,
    open_shards,
    vocabulary_of,
)
from minibert.data.shards.parts import (
    Manifest,
    Part,
    files_of_part,
    finished_part,
    plan_part,
    write_part,
)
from minibert.data.shards.store import TokenShards, write_shards
from minibert.hub.checkpoint import checkpoints, latest
from minibert.pretraining import evaluation
from minibert.pretraining.objective import Pretraining
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.predict import evaluate
from minibert.pretraining.preparation import prepare_text
from minibert.pretraining.run import pretrain
from minibert.tokenizer import SPECIAL_TOKENS, Tokenizer
from minibert.training.runlog import SPEEDS, read_metrics

BINARY = ("tokens.bin", "sentences.bin", "documents.bin")


@pytest.fixture(scope="module", autouse=True)
def few_passes():
    """The held-out part of so small a text is read a few times only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "PASSES", 3)
        yield


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Files of different sizes; one has no text, one is compressed, one is large."""
    folder = tmp_path_factory.mktemp("text") / "corpus"
    folder.mkdir()
    for number, documents in enumerate((2, 5, 1, 9, 3, 1)):
        write_corpus(folder / f"{number}.txt", documents, 4 + number)
    (folder / "2b.txt").write_text("\n \n")
    (folder / "4b.txt.gz").write_bytes(gzip.compress((folder / "4.txt").read_bytes()))
    return folder


@pytest.fixture(scope="module")
def vocabulary(corpus, tmp_path_factory):
    """A folder with a vocabulary."""
    out = tmp_path_factory.mktemp("vocabulary") / "v"
    words = ["vocab", str(corpus), "--out", str(out), "--vocab-size", "90", "--held-out", "0"]
    assert cli.main([*words, "--no-comparison"]) == 0
    return out


def make(corpus, vocabulary, out, *parts):
    """`minibert data`, for every one of some parts, or for all of the corpus."""
    for part in parts or [None]:
        words = ["data", str(corpus), "--vocab", str(vocabulary), "--out", str(out)]
        assert cli.main([*words, *(["--part", part] if part else [])]) == 0
    return out


@pytest.fixture(scope="module")
def whole(corpus, vocabulary, tmp_path_factory):
    """The shards as one command makes them."""
    return make(corpus, vocabulary, tmp_path_factory.mktemp("whole") / "shards")


@pytest.fixture(scope="module")
def thirds(corpus, vocabulary, tmp_path_factory):
    """The same in three parts, the last made first."""
    return make(corpus, vocabulary, tmp_path_factory.mktemp("thirds") / "shards", "3/3", "1/3", "2/3")


def assert_same_shards(one, other):
    for name in ("n_documents", "n_sentences", "n_tokens", "vocab_size", "vocab_sha256"):
        assert getattr(one, name) == getattr(other, name), name
    for name in ("token_ends", "sentence_ends", "document_lengths", "sentence_counts"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist(), name
    assert one.tokens[:].tolist() == other.tokens[:].tolist()
    assert one.sentence_lengths[:].tolist() == other.sentence_lengths[:].tolist()
    for index in range(one.n_documents):
        for a, b in zip(one.document(index), other.document(index), strict=True):
            assert a.dtype == b.dtype and a.tolist() == b.tolist()


# Parts


def test_files_go_to_the_part_in_whose_share_their_middle_lies(tmp_path):
    files = [tmp_path / name for name in "abcd"]
    for file in files:
        file.write_bytes(b"x" * 10)
    assert [files_of_part(files, Part(i, 3)) for i in (1, 2, 3)] == [files[:1], files[1:3], files[3:]]
    files[1].write_bytes(b"x" * 1000)
    assert [files_of_part(files, Part(i, 3)) for i in (1, 2, 3)] == [files[:1], files[1:2], files[2:]]
    assert files_of_part(files, Part()) == files


@settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=12), st.integers(1, 9))
def test_every_file_is_in_one_part_and_their_order_is_kept(tmp_path_factory, sizes, parts):
    folder = tmp_path_factory.mktemp("files")
    files = [folder / f"{number:02}" for number in range(len(sizes))]
    for file, size in zip(files, sizes, strict=True):
        file.write_bytes(b"x" * size)
    found = [files_of_part(files, Part(number, parts)) for number in range(1, parts + 1)]
    assert list(itertools.chain(*found)) == files
    # No share is off by more than the files that lie across its borders.
    for own in found:
        bytes_here = sum(file.stat().st_size for file in own)
        assert abs(bytes_here - sum(sizes) / parts) <= max(sizes)


@pytest.mark.parametrize(
    "text", ["0/3", "4/3", "1", "a/b", "1/0", "-1/2", "1/2/3", "1.5/2", "1/" + "9" * 20, ""]
)
def test_what_is_not_a_part_is_refused(text):
    with pytest.raises(InputError, match="part=.* is not possible; give I/N with I from 1 to N, such as 2/3"):
        Part.parse(text)


def test_the_result_does_not_depend_on_the_number_of_parts(corpus, vocabulary, whole, thirds, tmp_path):
    one = open_shards(whole)
    assert type(one) is TokenShards and one.n_documents == 24
    assert_same_shards(open_shards(thirds), one)
    many = make(corpus, vocabulary, tmp_path / "many", *(f"{number}/11" for number in range(1, 12)))
    assert_same_shards(open_shards(many), one)
    empty = [place.name for place in sorted(many.iterdir()) if not Manifest.read(place).documents]
    assert len(empty) >= 3  # eight files
    for folder in (thirds, many):  # together, the very bytes
        for name in BINARY[:2]:
            parts = (path.read_bytes() for path in sorted(folder.glob(f"*/{name}")))
            assert b"".join(parts) == (whole / name).read_bytes()


def test_a_part_says_what_it_is(corpus, thirds):
    told = json.loads((thirds / "00002-of-00003" / "part.json").read_text())
    files = files_of_part(sorted(corpus.iterdir()), Part(2, 3))
    assert (told["part"], told["parts"], told["layout"]) == (2, 3, "auto")
    assert told["files"] == [[file.name, file.stat().st_size] for file in files] and files
    assert told["documents"] == TokenShards(thirds / "00002-of-00003").n_documents


def test_the_command_says_what_is_there_and_what_is_not(corpus, vocabulary, tmp_path, capsys):
    out = tmp_path / "my shards"
    make(corpus, vocabulary, out, "2/3")
    first, second, layout, last = capsys.readouterr().out.splitlines()
    assert layout.startswith("Read as one sentence a line, ")
    assert first.startswith("Part 2/3, ") and first.endswith(" of 8 files:")
    assert second.startswith("9 documents, 63 sentences, ") and second.endswith("00002-of-00003")
    assert last == "Still to be made: part 1/3, 3/3."
    make(corpus, vocabulary, out, "1/3", "3/3")
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"All 3 parts are there: minibert pretrain --shards '{out}'"
    )
    make(corpus / "3.txt", vocabulary, tmp_path / "single", "1/2")
    text = capsys.readouterr().out
    assert "Part 1/2, 0 of 1 file:\nNo text: no file has its middle in this part's share" in text


def test_a_finished_part_is_left_as_it_is(corpus, vocabulary, tmp_path, capsys, monkeypatch):
    for part in (None, "1/2"):
        out = make(corpus, vocabulary, tmp_path / str(part).replace("/", "-"), *([part] if part else []))
        before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
        capsys.readouterr()
        monkeypatch.chdir(corpus.parent)  # seen from elsewhere it is the same corpus
        make(corpus.name, vocabulary, out, *([part] if part else []))
        assert (
            "already has them, from files of the same names and sizes and the same vocabulary:"
            in capsys.readouterr().out
        )
        assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before


def test_without_a_vocabulary_one_is_learned_for_a_whole_corpus_only(corpus, tmp_path, capsys):
    out = tmp_path / "shards"
    for _ in range(2):  # the second time it is there
        assert cli.main(["data", str(corpus), "--out", str(out)]) == 0
    tokenizer = vocabulary_of(out)
    assert "animal" not in tokenizer.vocab and "horse" in tokenizer.vocab
    assert open_shards(out, tokenizer).n_documents == 24
    capsys.readouterr()
    line = ends_badly(capsys, 2, "data", str(corpus), "--out", str(tmp_path / "x"), "--part", "1/2")
    assert "--part 1/2 needs --vocab" in line and "minibert vocab CORPUS --out DIR" in line
    assert not (tmp_path / "x").exists()


def test_shards_keep_case_where_that_is_asked_for(corpus, vocabulary, tmp_path):
    words = ["data", str(corpus), "--vocab", str(vocabulary / "vocab.txt"), "--cased"]
    for _ in range(2):  # made, then found there
        assert cli.main([*words, "--out", str(tmp_path / "shards")]) == 0
    assert not Tokenizer.from_pretrained(tmp_path / "shards").lower_case


def test_parts_of_something_else_are_refused(corpus, vocabulary, whole, thirds, tmp_path, capsys):
    out = tmp_path / "shards"
    shutil.copytree(thirds, out)
    before = sorted(path.name for path in out.iterdir())
    base = ["--vocab", str(vocabulary), "--out", str(out)]

    def refused(*words):
        line = ends_badly(capsys, 2, "data", *words)
        assert sorted(path.name for path in out.iterdir()) == before
        return line

    cased = tmp_path / "cased"
    Tokenizer.from_pretrained(vocabulary, lower_case=False).save_pretrained(cased)
    assert "was made with another corpus" in refused(str(corpus / "1.txt"), *base, "--part", "2/3")
    assert "was made with the layout auto instead of prose" in refused(
        str(corpus), *base, "--part", "2/3", "--layout", "prose"
    )
    assert "was made with another vocabulary" in refused(
        str(corpus), "--vocab", str(cased), "--out", str(out), "--part", "2/3"
    )
    assert "holds part 1/3, which can't stand beside part 1/4" in refused(str(corpus), *base, "--part", "1/4")
    assert "holds parts of token shards (3 of 3); go on with --part" in refused(str(corpus), *base)
    whole_out = ["--vocab", str(vocabulary), "--out", str(whole)]
    assert "holds something else than parts" in refused(str(corpus), *whole_out, "--part", "1/3")
    assert "was made with another corpus" in refused(str(corpus / "1.txt"), *whole_out)
    assert "--show needs whole shards" in refused(str(corpus), *base, "--part", "1/3", "--show", "1")


@pytest.mark.parametrize("failure", [InputError("bad text"), KeyboardInterrupt(), OSError(28, "No space")])
def test_a_part_that_fails_leaves_nothing_and_clears_up_after_a_killed_one(
    corpus, vocabulary, tmp_path, failure
):
    out = tmp_path / "shards"
    left = out / ".00001-of-00002.dead_123.tmp"
    other = out / ".00002-of-00002.busy_123.tmp"  # another job's, which is at work
    for folder in (left, other):
        folder.mkdir(parents=True)
    tokenizer = Tokenizer.from_pretrained(vocabulary)
    planned, _ = plan_part(sorted(corpus.iterdir()), Part(1, 2), "auto", tokenizer)
    assert finished_part(out, planned) is None

    def stream():
        yield "the cat sleeps"
        raise failure

    with pytest.raises(RunError if isinstance(failure, OSError) else type(failure)):
        write_part(stream(), tokenizer, out, planned)
    assert list(out.iterdir()) == [other]


def test_missing_and_foreign_parts_are_named(corpus, vocabulary, thirds, tmp_path):
    out = tmp_path / "shards"
    shutil.copytree(thirds, out)
    shutil.rmtree(out / "00002-of-00003")
    with pytest.raises(InputError, match=r"lacks part 2/3 of its token shards; make what is missing"):
        open_shards(out)
    shutil.rmtree(out / "00001-of-00003")
    with pytest.raises(InputError, match=r"lacks part 1/3, 2/3 of"):
        open_shards(out)
    assert missing_parts([Part(3, 20)]) == "1/20, 2/20, 4/20, 5/20, 6/20, 7/20 and 13 more"
    make(corpus, vocabulary, tmp_path / "halves", "1/2")
    shutil.copytree(tmp_path / "halves" / "00001-of-00002", out / "00001-of-00002")
    with pytest.raises(InputError, match="holds parts of . and of .; keep those of one N"):
        open_shards(out)
    for name in ("00001-of-00002", "00003-of-00003"):
        shutil.rmtree(out / name)
    make(corpus / "3.txt", vocabulary, out, "1/3", "2/3", "3/3")
    shutil.rmtree(out / "00003-of-00003")
    shutil.copytree(thirds / "00003-of-00003", out / "00003-of-00003")
    with pytest.raises(InputError, match="00003-of-00003' was made with another corpus"):
        open_shards(out)
    (out / "00003-of-00003" / "part.json").write_text("{}")
    with pytest.raises(InputError, match="part.json is of another format or version; make that part again"):
        open_shards(out)
    with pytest.raises(InputError, match="holds no token shards with a vocabulary; make them with"):
        vocabulary_of(tmp_path / "nowhere")


def test_parts_without_any_text_are_refused_when_they_are_opened(vocabulary, tmp_path):
    (tmp_path / "a.txt").write_text(" \n")
    out = make(tmp_path / "a.txt", vocabulary, tmp_path / "shards", "1/2", "2/2")
    with pytest.raises(InputError, match="The 2 parts in .* hold no token; make them of files with text"):
        open_shards(out)


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_arrays_end_to_end_are_one_array(lengths, rng):
    whole = np.arange(100, 100 + sum(lengths), dtype=np.uint16)
    joined = EndToEnd(np.split(whole, np.cumsum(lengths)[:-1]))
    assert len(joined) == len(whole)
    places = np.array([rng.randrange(len(whole)) for _ in range(rng.randrange(12))], np.int64)
    assert joined[places].tolist() == whole[places].tolist() and joined[places].dtype == whole.dtype
    for _ in range(6):
        begin, end = rng.randrange(len(whole) + 2), rng.randrange(len(whole) + 2)
        assert joined[begin:end].tolist() == whole[begin:end].tolist()
        assert joined[begin:end:3].tolist() == whole[begin:end:3].tolist()
    assert joined[:].tolist() == whole.tolist()


def test_parts_are_mapped_and_not_read_in(thirds):
    shards = open_shards(thirds)
    assert isinstance(shards, JoinedShards)
    for array in (*shards.tokens.arrays, *shards.sentence_lengths.arrays):
        assert not array.flags.owndata and not array.flags.writeable
    assert shards.tokens[0:3].base is not None  # a view where one part has all of it


# Training on them


@pytest.fixture(scope="module")
def options():
    """A short run with everything that is drawn at random."""
    return dict(
        seq_length="8:0.5,16:0.5", batch_size=8, max_positions=16, steps=8, evaluations=2, held_out=0.2,
        dropout=0.1, engine="numpy", accumulate=2,
    )  # fmt: skip


@pytest.fixture(scope="module")
def straight(corpus, vocabulary, options, tmp_path_factory):
    """A run straight from the corpus."""
    out = tmp_path_factory.mktemp("runs") / "straight"
    pretrain(PretrainOptions(corpus=(str(corpus),), vocab=str(vocabulary), **options), out, show=False)
    return out


def assert_same_run(out, other):
    for name in ("model.safetensors", "vocab.txt", "tokenizer_config.json", "config.json"):
        assert (out / name).read_bytes() == (other / name).read_bytes(), name
    found = [latest(run / "checkpoints") for run in (out, other)]
    assert checkpoints(out / "checkpoints")[-1].name == checkpoints(other / "checkpoints")[-1].name
    assert found[0].m.tobytes() == found[1].m.tobytes()
    timeless = [
        [line | dict.fromkeys(("seconds", *SPEEDS), 0) for line in read_metrics(run)] for run in (out, other)
    ]
    assert timeless[0] == timeless[1]


@pytest.mark.representatives(shards="thirds")
@pytest.mark.parametrize("shards", ["whole", "thirds"])
def test_a_run_on_shards_ends_with_the_bytes_of_one_straight_from_the_corpus(
    shards, straight, options, tmp_path, request
):
    folder = request.getfixturevalue(shards)
    pretrain(PretrainOptions(shards=str(folder), **options), tmp_path / "run", show=False)
    assert_same_run(tmp_path / "run", straight)
    assert [path.name for path in (tmp_path / "run" / "shards").iterdir()] == ["elsewhere.json"]


def test_a_link_to_shards_that_can_not_be_one_is_refused(tmp_path):
    told = {"documents": 1, "sentences": 1, "tokens": 1, "vocab_sha256": "", "folder": str(tmp_path)}
    link = tmp_path / "elsewhere.json"
    for wrong in (told | {"folder": 5}, told | {"tokens": "9"}, [], "[" * 100_000):
        link.write_text(wrong if isinstance(wrong, str) else json.dumps(wrong))
        with pytest.raises(InputError, match=r"elsewhere\.json can't be read.*; remove it, and name"):
            open_shards(tmp_path)
    link.write_text(json.dumps(told))
    with pytest.raises(InputError, match=r"elsewhere\.json names .*, which holds no shards but names"):
        open_shards(tmp_path)


@pytest.mark.thorough
def test_a_run_on_shards_is_measured_and_goes_on_wherever_they_are(
    thirds, straight, options, tmp_path, monkeypatch
):
    shards, run = tmp_path / "shards", tmp_path / "run"
    shutil.copytree(thirds, shards)
    monkeypatch.chdir(tmp_path)
    pretrain(PretrainOptions(shards="shards", checkpoint_steps=3, keep=0, **options), run, show=False)
    assert PretrainOptions.load(run / "training.json").shards == str(shards)
    monkeypatch.chdir(straight)
    figures = evaluate(run, targets=50, engine="numpy")
    assert figures == evaluate(straight, targets=50, engine="numpy")
    *_, before, last = checkpoints(run / "checkpoints")
    assert "step-000000006" in before.name
    last.unlink()  # as if the run had been killed in its last steps
    shards.rename(tmp_path / "moved")
    with pytest.raises(InputError, match="shards' is not there, .* or name their folder with `shards`"):
        evaluate(run, targets=50, engine="numpy")
    with pytest.raises(InputError, match="shards' is not there, .* or name their folder with `shards`"):
        pretrain(PretrainOptions.resumed(run / "training.json"), run, resume=True, show=False)
    resumed = PretrainOptions.resumed(run / "training.json", shards=str(tmp_path / "moved"))
    pretrain(resumed, run, resume=True, show=False)
    assert_same_run(run, straight)
    assert evaluate(run, targets=50, engine="numpy") == figures


def test_a_run_goes_on_with_its_own_shards_only(corpus, vocabulary, thirds, straight, options, tmp_path):
    run = tmp_path / "run"
    pretrain(PretrainOptions(shards=str(thirds), **options | {"steps": 2}), run, show=False)
    other = make(corpus / "3.txt", vocabulary, tmp_path / "other")
    resumed = PretrainOptions.resumed(run / "training.json", shards=str(other))
    with pytest.raises(InputError, match="are not those that the run began with: 9 documents"):
        pretrain(resumed, run, resume=True, show=False)
    with pytest.raises(InputError, match=r"The run cannot be resumed with corpus=\(\) \(the run has"):
        PretrainOptions.resumed(straight / "training.json", shards=str(thirds))
    with pytest.raises(InputError, match="holds token shards of its own"):
        link_shards(straight / "shards", open_shards(thirds))


@pytest.mark.parametrize(
    "given", [{"corpus": "a"}, {"layout": "prose"}, {"vocab": "v"}, {"vocab_size": 9}, {"lower_case": False}]
)
def test_shards_leave_nothing_to_say_about_text_and_vocabulary(given):
    with pytest.raises(InputError, match=f"so {next(iter(given))}=.* can't be given as well"):
        PretrainOptions(shards="s", **given)


def test_weights_of_another_vocabulary_are_not_trained_on_shards(straight, whole, vocabulary, tmp_path):
    pieces = Tokenizer.from_pretrained(vocabulary).vocab
    model = tmp_path / "model"
    shutil.copytree(straight, model)
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        (model / name).unlink()
    Tokenizer([*pieces[:-2], pieces[-1], pieces[-2]]).save_pretrained(model)
    with pytest.raises(InputError, match="were made with another vocabulary"):
        pretrain(
            PretrainOptions(shards=str(whole), model=str(model), steps=1, seq_length="8"),
            tmp_path / "run",
            show=False,
        )
    assert not (tmp_path / "run").exists()


# Slices of batches


WORDS = 4_000
NUMBERED = Tokenizer([*SPECIAL_TOKENS, *(f"w{number}" for number in range(WORDS))])


class Recorded(TokenShards):
    """Shards that remember which tokens were read."""

    def __init__(self, folder):
        super().__init__(folder)
        self.read = np.zeros(self.n_tokens, bool)
        self.tokens = Watching(self.tokens, self.read)


class Watching:
    def __init__(self, array, read):
        self.array, self.read = array, read

    def __getitem__(self, where):
        self.read[where] = True
        return self.array[where]


@pytest.fixture(scope="module")
def numbered(tmp_path_factory):
    """Shards in which every token occurs once, as a word of its own."""
    rng = random.Random(0)
    words = (f"w{number}" for number in itertools.count())
    text = []
    for _ in range(30):
        text += [" ".join(itertools.islice(words, rng.randint(1, 20))) for _ in range(rng.randint(2, 12))]
        text.append(None)
    return write_shards(text, NUMBERED, tmp_path_factory.mktemp("numbered") / "shards").folder


def as_key(sequence):
    return tuple(part.tobytes() if isinstance(part, np.ndarray) else part for part in sequence)


@pytest.mark.parametrize(
    "options",
    [{}, {"whole_word_mask": True}, {"left_to_right": True}, {"next_sentence": False, "dupe_factor": 2}],
    ids=["pairs", "whole words", "left to right", "copies"],
)
def test_slices_of_batches_are_the_batches(numbered, monkeypatch, options):
    monkeypatch.setattr(instances_module, "BLOCK_TOKENS", 700)
    shards = TokenShards(numbered)
    made = InstanceOptions(seq_length=24, **options)

    def instances():
        return Instances(shards, np.arange(shards.n_documents), NUMBERED, made)

    def some_batches(stream):
        return list(itertools.islice(stream, 7 * 60))

    for begin in (Position(0, 0, 0), Position(0, 1, 3)):
        whole = some_batches(instances().stream(begin))
        assert whole[-1][1].epoch >= 1
        shares = [
            some_batches(stream_slots(instances(), begin, 7, first, last))
            for first, last in ((0, 2), (2, 3), (3, 7))
        ]
        for number, (sequence, after) in enumerate(whole):
            sequences = [share[number][0] for share in shares]
            assert [share[number][1] for share in shares] == [after] * 3
            holder = next(i for i, last in enumerate((2, 3, 7)) if number % 7 < last)
            assert [i for i, made_here in enumerate(sequences) if made_here is not None] == [holder]
            assert as_key(sequences[holder]) == as_key(sequence)


def test_tokens_of_other_slices_are_never_read(numbered):
    def read_by(*slots):
        shards = Recorded(numbered)
        instances = Instances(
            shards,
            np.arange(shards.n_documents),
            NUMBERED,
            InstanceOptions(seq_length=24, next_sentence=False),
        )
        shards.read[:] = False
        own = set()
        for sequence, after in stream_slots(instances, Position(0, 0, 0), *slots):
            if sequence is not None:
                ids = sequence.input_ids.copy()
                ids[sequence.masked_positions] = sequence.masked_labels
                own |= set((ids[ids >= len(SPECIAL_TOKENS)] - len(SPECIAL_TOKENS)).tolist())
            if after.epoch:
                return own, set(np.flatnonzero(shards.read).tolist())
        raise AssertionError("the stream has no end")

    halves = [read_by(4, first, last) for first, last in ((0, 2), (2, 4))]
    for own, read in halves:
        assert read == own and own
    assert halves[0][1].isdisjoint(halves[1][1])
    everything, read = read_by(4, 0, 4)
    assert everything == read == halves[0][1] | halves[1][1] == set(range(TokenShards(numbered).n_tokens))


def test_stretches_of_a_batch_are_the_batch_wherever_a_run_goes_on(straight):
    options = PretrainOptions.load(straight / "training.json")
    task = Pretraining(options, prepare_text(options, straight, show=False), None)
    for at in (Position(0, 0, 0), Position(2, 0, 5)):
        whole, *parts = (
            list(itertools.islice(task.stage_batches(16, at, *part), 20))
            for part in ((0, 1), (0, 3), (1, 3), (2, 3))
        )
        for (batch, after), *own in zip(whole, *parts, strict=True):
            assert [position for _, position in own] == [after] * 3
            batches = [part for part, _ in own]
            for name in ("input_ids", "token_type_ids", "positions", "sequence_index", "masked_labels"):
                joined = np.concatenate([getattr(part, name) for part in batches])
                assert joined.tolist() == getattr(batch, name).tolist(), name


@pytest.mark.parametrize("objective", [{}, {"next_sentence": False}, {"left_to_right": True}])
def test_every_process_knows_the_limits_of_the_whole_batch(objective, straight):
    options = dataclasses.replace(PretrainOptions.load(straight / "training.json"), **objective)
    task = Pretraining(options, prepare_text(options, straight, show=False), None)
    most_tokens = most_masked = 0
    shares = ((0, 1), (0, 2), (1, 2))
    streams = [task.stage_batches(16, Position(0, 0, 0), *share) for share in shares]
    for (whole, _), *parts in itertools.islice(zip(*streams, strict=True), 20):
        masked, _ = np.histogram(whole.masked_rows, whole.cu_seqlens)
        most_tokens = max(most_tokens, whole.lengths.max())
        most_masked = max(most_masked, masked.max())
        for part, _ in parts:
            assert (part.parts, part.sequences) == (2, len(whole.lengths))
            assert part.asks_next == whole.asks_next
    assert part.longest == most_tokens
    assert most_masked <= part.most_masked <= most_masked + 1  # special tokens are not predicted


@pytest.mark.parametrize("part", [(4, 3, 3), (4, 0, 5), (4, -1, 2), (0, 0, 0)])
def test_slots_that_no_batch_has_are_refused(numbered, part):
    shards = TokenShards(numbered)
    with pytest.raises(InputError, match="are not slots of a batch"):
        next(stream_slots(Instances(shards, [0, 1], NUMBERED), Position(0, 0, 0), *part))
