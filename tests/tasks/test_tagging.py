"""Tagging words: windows over documents, features, predictions, files."""

import gzip
import json
import warnings

import numpy as np
import pytest
from command import notice  # noqa: F401 (a fixture)
from hypothesis import example, given, strategies as st
from real_data import real_data
from small_entities import write_data, write_model, write_vocabulary

from minibert import Tokenizer, cli
from minibert.base.errors import InputError
from minibert.data import ner
from minibert.data.ner import TaggedSentence
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.run import finetune
from minibert.tasks import registry
from minibert.tasks.contexts import Window, longest_word, windows
from minibert.tasks.metrics import schemes
from minibert.tasks.metrics.entities import chunks
from minibert.tasks.tagging import NO_PIECE, Tagging, comparable, entities_text, tag_numbers
from minibert.tasks.words import word_spans

LABELS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
QUICK = {"epochs": 40.0, "learning_rates": (3e-3,), "batch_size": 4, "engine": "numpy", "max_length": 16}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return write_vocabulary(tmp_path_factory.mktemp("vocabulary"))


def sentence(text, document=0, tags=None):
    """Words between spaces; `tags` between spaces as well."""
    return TaggedSentence(tuple(text.split(" ")), None if tags is None else tuple(tags.split(" ")), document)


def features(task, examples, tokenizer, max_length=16, training=False, labels=LABELS):
    return list(task.features(examples, tokenizer, labels, max_length, training))


def words_of(feature, tokenizer):
    """The pieces of a window between [CLS] and [SEP]."""
    ids = feature.sequences[0].input_ids
    assert ids[0] == tokenizer.cls_id
    assert ids[-1] == tokenizer.sep_id
    return [tokenizer.vocab[i] for i in ids[1:-1]]


# Windows


def sentences_of(pieces):
    """Sentences as lists of how many pieces each word has."""
    return st.lists(st.lists(pieces, min_size=1, max_size=25), min_size=1, max_size=9)


documents = st.integers(1, 30).flatmap(
    lambda room: st.tuples(st.just(room), sentences_of(st.integers(0, longest_word(room))))
)


@given(documents)
@example((12, [[0, 0], [2] * 30, [0], [1, 2, 0]]))
def test_every_word_is_asked_about_once_in_order_in_a_window_that_fits(case):
    room, sentences = case
    pieces = np.concatenate([np.array(one) for one in sentences])
    found = windows(pieces, np.cumsum([len(one) for one in sentences]), room)
    asked = [word for window in found for word in range(window.first, window.last)]
    assert asked == list(range(len(pieces)))
    for begin, end, first, last in found:
        assert begin <= first < last <= end
        assert pieces[begin:end].sum() <= room


@given(documents)
def test_a_sentence_of_a_third_of_the_room_or_less_is_never_torn(case):
    room, sentences = case
    pieces = np.concatenate([np.array(one) for one in sentences])
    ends = np.cumsum([len(one) for one in sentences])
    slack = 2 * longest_word(room)  # windows begin and end with words
    borders = {window.last for window in windows(pieces, ends, room)} - set(ends.tolist())
    for border in borders:
        number = int(np.searchsorted(ends, border, side="right"))
        assert sum(sentences[number]) > room // 3 - slack


@given(st.integers(3, 40), st.integers(1, 300))
def test_words_are_tagged_where_they_have_most_context(room, n):
    found = windows(np.ones(n, int), np.array([n]), room)
    for window in found:
        for word in range(window.first, window.last):
            around = [min(word - w.begin, w.end - 1 - word) for w in found if w.begin <= word < w.end]
            at_border = word < window.begin + room // 2 and window.begin == 0
            at_border |= word >= window.end - room // 2 and window.end == n
            here = min(word - window.begin, window.end - 1 - word)
            assert at_border or here >= max(around) - 1  # an overlap may have no middle


def test_windows_overlap_by_a_third_and_end_with_sentences_where_they_meet():
    found = windows(np.ones(20, int), np.array([4, 9, 13, 20]), 12)
    assert found == [Window(0, 12, 0, 9), Window(8, 20, 9, 20)]
    assert windows(np.ones(20, int), np.array([20]), 12) == [Window(0, 12, 0, 10), Window(8, 20, 10, 20)]


def test_a_document_that_fits_is_one_window():
    assert windows(np.ones(12, int), np.array([4, 12]), 12) == [Window(0, 12, 0, 12)]


# Features


def test_a_document_of_one_sentence_is_asked_about_as_the_sentence_alone(tokenizer):
    examples = [sentence("anna lives in rome", 0), sentence("the film is good", 1)]
    together, alone = (
        features(task, examples, tokenizer) for task in (Tagging("ner"), Tagging("ner", by_document=False))
    )
    assert len(together) == len(alone) == 2
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_array_equal(one.sequences[0].input_ids, other.sequences[0].input_ids)
        np.testing.assert_array_equal(one.rows, other.rows)


def test_sentences_stand_among_those_of_their_document_only(tokenizer):
    texts = [("anna lives in rome .", 0), ("the film is good .", 0), ("ben is in oslo .", 1), ("a song", 1)]
    examples = [sentence(*one) for one in texts]
    found = features(Tagging("ner"), examples, tokenizer)
    assert [words_of(one, tokenizer) for one in found] == [
        "anna lives in rome . the film is good .".split(),
        "ben is in oslo . a song".split(),
    ]
    assert [one.example for one in found] == [0, 2]
    alone = features(Tagging("ner", by_document=False), examples, tokenizer)
    assert [" ".join(words_of(one, tokenizer)) for one in alone] == [text for text, _ in texts]
    assert [one.example for one in alone] == [0, 1, 2, 3]


def test_rows_are_first_pieces_and_labels_their_tags():
    tokenizer = Tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "rom", "##e", "is", "be", "##n"])
    (found,) = features(Tagging(), [sentence("Ben is rome", tags="B-PER O B-LOC")], tokenizer, training=True)
    assert words_of(found, tokenizer) == ["be", "##n", "is", "rom", "##e"]
    assert found.rows.tolist() == [1, 3, 4]
    assert found.label.tolist() == [3, 0, 1]
    assert found.sequences[0].token_type_ids.tolist() == [0] * 7


def test_a_sentence_longer_than_a_sequence_gets_windows_with_most_context(tokenizer):
    words = [
        "anna",
        "ben",
        "rome",
        "oslo",
        "film",
        "book",
        "good",
        "fine",
        "bad",
        "is",
        "was",
        "the",
        "a",
        "in",
    ]
    found = features(Tagging(by_document=False), [sentence(" ".join(words))], tokenizer, max_length=11)
    assert [words_of(one, tokenizer) for one in found] == [words[:9], words[5:]]
    asked = [[words_of(one, tokenizer)[row - 1] for row in one.rows] for one in found]
    assert asked == [words[:7], words[7:]]


def test_a_word_without_pieces_is_not_learnt_from_and_keeps_its_place(tokenizer):
    task = Tagging()
    examples = [sentence("anna \x01 rome", tags="B-PER B-PER B-LOC"), sentence("\x01", 1, tags="O")]
    learnt = features(task, examples, tokenizer, training=True)
    assert [one.rows.tolist() for one in learnt] == [[1, 2]]
    assert learnt[0].label.tolist() == [3, 1]
    asked = features(task, examples, tokenizer)
    assert [one.rows.tolist() for one in asked] == [[1, NO_PIECE, 2], [NO_PIECE]]
    said = [np.eye(5)[[3, 3, 1]], np.eye(5)[[3]]]
    assert task.predict(examples, asked, said, LABELS, {}) == [["B-PER", "O", "B-LOC"], ["O"]]


def test_a_word_of_very_many_pieces_leaves_room_for_others():
    tokenizer = Tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "x", "##x", "in"])
    found = features(Tagging(), [sentence(f"in {'x' * 150} in")], tokenizer, max_length=20)
    assert [words_of(one, tokenizer) for one in found] == [["in", "x", "##x", "##x", "in"]]


def test_a_sentence_without_words_has_no_tags(tokenizer):
    examples = [TaggedSentence((), None, 0), sentence("rome", 1), TaggedSentence((), None, 1)]
    asked = features(Tagging(), examples, tokenizer)
    assert Tagging().predict(examples, asked, [np.eye(5)[[1]]], LABELS, {}) == [[], ["B-LOC"], []]


def test_tags_that_are_not_known_stop_the_learning_only(tokenizer):
    strange = [sentence("rome is good", tags="B-GPE O O")]
    with pytest.raises(InputError, match="'B-GPE' between sentences 1 and 1 is not one of the model's 5"):
        features(Tagging(), strange, tokenizer, training=True)
    with pytest.raises(InputError, match="'rome' has no tags"):
        features(Tagging(), [sentence("rome")], tokenizer, training=True)
    with pytest.warns(UserWarning, match=r"1 of 3 words .* B-GPE \(1\); the first is in sentence 1"):
        Tagging().warn_unknown(strange, LABELS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert features(Tagging(), strange, tokenizer)[0].label is None


# Labels, figures, files


def test_labels_are_complete_for_entities_and_as_they_are_for_other_tags():
    entities = [sentence("a b c", tags="I-PER O B-LOC")]
    assert Tagging().labels(entities) == LABELS
    assert Tagging("tag").labels([sentence("a b", tags="VB NN")]) == ("NN", "VB")
    assert Tagging("tag").labels([sentence("a b c", tags="VB O NN")]) == ("O", "NN", "VB")
    assert Tagging().labels([]) == ()
    assert tag_numbers(entities, LABELS).tolist() == [4, 0, 1]


GOLD = [sentence("Anna Smith left Rome", tags="B-PER I-PER O B-LOC"), sentence("Oslo", tags="B-LOC")]
FOUND = [["B-PER", "O", "O", "B-LOC"], ["O"]]


def test_figures_are_those_of_conlleval_as_shares():
    scores = Tagging().score(GOLD, FOUND)
    assert scores["precision"] == pytest.approx(1 / 2)
    assert scores["recall"] == pytest.approx(1 / 3)
    assert scores["f1"] == pytest.approx(0.4)
    assert scores["accuracy"] == pytest.approx(3 / 5)
    assert scores["f1_LOC"] == pytest.approx(2 / 3)
    assert Tagging().statistic(GOLD, FOUND)(np.array([0, 0, 1])) == pytest.approx(2 * 2 / (4 + 5))


def test_f1_of_tags_without_o_is_accuracy():
    gold = [sentence("a b c d", tags="NN VB NN IN")]
    scores = Tagging("tag").score(gold, [["NN", "NN", "NN", "IN"]])
    assert scores["f1"] == scores["accuracy"] == pytest.approx(3 / 4)


def test_predictions_are_columns_that_the_scorer_reads(tmp_path):
    (path,) = Tagging().write(tmp_path, "dev", GOLD, FOUND)
    assert path.read_text("utf-8").splitlines()[:3] == ["Anna B-PER B-PER", "Smith I-PER O", "left O O"]
    for column, tags in ((2, [one.tags for one in GOLD]), (3, [tuple(one) for one in FOUND])):
        read = ner.read(path, tags=column)
        assert [one.words for one in read] == [one.words for one in GOLD]
        assert [one.tags for one in read] == tags
    (path,) = Tagging().write(tmp_path, "test", [sentence("a\u00a0b")], [["O"]])
    assert path.read_text("utf-8") == "a_b O\n\n"


def test_the_worst_sentences_stand_first_among_mistakes():
    whole = [*GOLD, sentence("right", tags="O")]
    mistakes = Tagging().mistakes(whole, [*FOUND, ["O"]])
    assert [one.text for one in mistakes] == ["Anna Smith left Rome", "Oslo"]
    assert mistakes[0].expected == "PER Anna Smith; LOC Rome"
    assert mistakes[0].found == "PER Anna; LOC Rome"
    assert mistakes[1].found == "none"
    assert Tagging().classes(GOLD, FOUND) == (
        ["PER", "PER", "O", "LOC", "LOC"],
        ["PER", "O", "O", "LOC", "O"],
    )
    assert entities_text(("a", "b"), chunks(["O", "B-X"])) == "X b"


def test_a_folder_without_the_files_is_refused(tmp_path):
    with pytest.raises(InputError, match="There is no eng.testa or valid.txt or .*, nor in a folder ner or"):
        Tagging().read(tmp_path, "dev")
    (tmp_path / "conll2003").mkdir()
    (tmp_path / "conll2003" / "valid.txt.gz").write_bytes(gzip.compress(b"Anna B-PER\nsat O\n"))
    assert [one.words for one in Tagging().read(tmp_path, "dev")] == [("Anna", "sat")]


def test_tasks_come_by_name():
    assert registry.create("ner").by_document
    assert not registry.create("ner-sentences").by_document
    assert registry.create("tag", {"words": "1"}).columns == {"words": "1"}


def test_tags_that_no_label_stands_for_are_counted_aloud(tokenizer):
    task = Tagging("tag")
    examples = [sentence("anna", 0, "NN"), sentence("a b c", 1, "XY NN XY"), sentence("anna", 2, "VB")]
    told = r"3 of 5 words .* the model does not know: XY \(2\), VB \(1\); the first is in sentence 2\."
    with pytest.warns(UserWarning, match=told):
        task.warn_unknown(examples, ("NN", "JJ"))
    with pytest.warns(UserWarning, match=r"t7 \(1\) and 2 more; the first is in sentence 1\."):
        task.warn_unknown([sentence(10 * "a ", 0, " ".join(f"t{n}" for n in range(10)))], ("NN",))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = features(task, examples, tokenizer, labels=("NN", "JJ"))
        task.warn_unknown([sentence("anna", 0, "NN"), sentence("b", 1)], ("NN",))
    assert [one.label is None for one in found] == [False, True, True]


def test_tags_that_were_never_learnt_are_missed_and_change_nothing_else():
    gold = [sentence("a b c", 0, "B-PER I-PER O"), sentence("d e", 1, "B-LOC O")]
    found = [["B-PER", "I-PER", "O"], ["B-LOC", "O"]]
    for tags, words, kind in (("B-NEW I-NEW", "f g", "NEW"), ("0", "f", "0"), ("NEW", "f", "NEW")):
        more, said = [*gold, sentence(words, 2, tags)], [*found, ["O"] * len(words.split())]
        scores = Tagging().score(more, said)
        assert scores["precision"] == 1.0 and scores["recall"] == pytest.approx(2 / 3)
        assert scores["f1_PER"] == scores["f1_LOC"] == 1.0 and scores[f"f1_{kind}"] == 0.0
        assert Tagging().statistic(more, said)(np.arange(3)) == pytest.approx(scores["f1"])
        [mistake] = Tagging().mistakes(more, said)
        assert (mistake.expected, mistake.found) == (f"{kind} {words}", "none")
        assert Tagging().classes(more, said)[0][5] == kind
    assert Tagging().score([sentence("a", 0, "O")], [["NN"]])["precision"] == 0.0


@pytest.mark.parametrize("tags", ["B-PER L-PER O U-LOC U-LOC", "B-PER E-PER O S-LOC S-LOC"])
def test_entities_are_scored_in_their_scheme(tags):
    gold = [sentence("Anna Smith left Rome Oslo", 0, tags)]
    one, two, outside, *_ = tags.split()
    scores = Tagging("tag").score(gold, [tags.split()])
    assert scores["f1"] == scores["f1_PER"] == scores["f1_LOC"] == 1.0
    found = [[one, two, outside, "O", tags.split()[4]]]  # Rome is missed
    scores = Tagging("tag").score(gold, found)
    assert (scores["precision"], scores["recall"]) == (1.0, pytest.approx(2 / 3))
    [mistake] = Tagging("tag").mistakes(gold, found)
    assert (mistake.expected, mistake.found) == (
        "PER Anna Smith; LOC Rome; LOC Oslo",
        "PER Anna Smith; LOC Oslo",
    )
    assert Tagging("tag").classes(gold, found)[0] == ["PER", "PER", "O", "LOC", "LOC"]


STRAYS = ["S-PER", "E-PER", "E-MAIL", "L-PER", "U-PER"]


@pytest.mark.parametrize("side", ["gold", "predicted", "both"])
@pytest.mark.parametrize("stray", STRAYS)
def test_a_stray_tag_leaves_all_other_entities(stray, side):
    gold = [*GOLD * 20, sentence("Anna", tags="O" if side == "predicted" else stray)]
    found = [*[list(one.tags) for one in GOLD * 20], ["O" if side == "gold" else stray]]
    task = Tagging("tag")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scores = task.score(gold, found)
        assert task.statistic(gold, found)(np.arange(len(gold))) == pytest.approx(scores["f1"])
        mistakes = list(task.mistakes(gold, found))
        chosen = comparable(gold, found).schemes
    assert scores["recall"] == pytest.approx(60 / 61 if side == "gold" else 1)
    assert scores["precision"] == pytest.approx(60 / 61 if side == "predicted" else 1)
    assert len(mistakes) == (side != "both")
    assert (chosen.gold == chosen.predicted) == (side == "both" or side == "gold")
    assert not chosen.gold.is_strict and not chosen.predicted.is_strict
    told = [str(one.message) for one in caught]
    assert len(told) == (side != "predicted")
    assert all(" of 81 gold tags of entities belong to no complete entity" in one for one in told)


def test_schemes_are_chosen_before_other_tags_become_entities():
    gold = [sentence("a b c", tags="B-PER E-PER O"), sentence("d e", tags="S-LOC NOUN")]
    sides = comparable(gold, [["B-PER", "I-PER", "O"], ["B-LOC", "NOUN"]])
    assert sides.schemes.gold == sides.schemes.predicted == schemes.scheme_named("BIOES")
    assert (sides.gold[1], sides.predicted[1]) == (["S-LOC", "S-NOUN"], ["B-LOC", "S-NOUN"])


@pytest.mark.parametrize(
    ("labels", "is_strict"),
    [
        ("O B-PER I-PER B-LOC I-LOC", False),
        ("O B-PER I-PER B-LOC I-LOC S-PER", False),
        ("O B-PER I-PER B-LOC I-LOC E-MAIL", False),
        ("O B-PER I-PER B-LOC I-LOC E-MAIL S-PER", False),
        ("O B-PER I-PER B-LOC L-LOC U-LOC", False),
        ("O B-PER I-PER E-PER S-PER S-LOC", True),
        ("O B-PER I-PER L-PER U-PER", True),
    ],
)
def test_entities_of_a_text_need_to_be_whole_only_where_they_can(labels, is_strict):
    scheme = schemes.entity_scheme(labels.split())
    assert scheme.is_strict == is_strict
    assert len(chunks(["B-PER", "O", "O", "B-LOC"], scheme)) == (0 if is_strict else 2)


@pytest.mark.parametrize("tags", ["X-PER O", "B_PER O", "PER-B O", "b-per O", "S-PER U-PER O"])
def test_tags_of_an_unknown_scheme_are_named(tags):
    first = sorted(tags.split()[:-1])[0]
    with pytest.warns(UserWarning, match=f"The tags {first}.* follow no scheme that is known: IOB"):
        Tagging("tag").labels([sentence(" ".join("abc"[: len(tags.split())]), 0, tags)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Tagging("tag").labels([sentence("a b c", 0, "U-PER B-PER O"), sentence("a b", 0, "L-PER I-PER")])
        Tagging("tag").labels([sentence("a b", 0, "V-INF NN")])  # parts of speech


def test_own_files_are_tables_of_words_and_tags(tmp_path, tokenizer):
    (tmp_path / "train.csv").write_text("text,pos\nrome is good,NN VB JJ\nanna,NN\n", "utf-8")
    (tmp_path / "test.csv").write_text("text\nthe film\n", "utf-8")
    task = registry.create("tag", {"words": "text", "tags": "pos"})
    examples = task.read(tmp_path, "train")
    assert examples == [sentence("rome is good", 0, "NN VB JJ"), sentence("anna", 1, "NN")]
    labels = task.labels(examples)
    found = features(task, examples, tokenizer, training=True, labels=labels)
    assert [[labels[i] for i in one.label] for one in found] == [["NN", "VB", "JJ"], ["NN"]]
    assert task.read(tmp_path, "test") == [sentence("the film")]
    with pytest.raises(InputError, match="no column 'text'"):
        registry.create("tag", {"words": "text", "tags": "1"}).read(
            _written(tmp_path / "x", "a,b\n"), "train"
        )
    with pytest.raises(
        InputError, match=r"'word' in `columns` is not a column of tag; choose from words, tags"
    ):
        registry.create("tag", {"word": "text"})


@pytest.mark.parametrize("name", ["train.txt", "train.conll.gz", "train.bio"])
def test_own_files_may_have_a_word_a_line(tmp_path, name):
    write = gzip.open if name.endswith(".gz") else open
    with write(tmp_path / name, "wt", encoding="utf-8") as file:
        file.write("rome NN\nis VB\n\nanna NN\n")
    task = registry.create("tag")
    assert [one.words for one in task.read(tmp_path, "train")] == [("rome", "is"), ("anna",)]
    with pytest.raises(InputError, match=r"has no dev.csv; .* of the split 'dev': dev.csv, .* valid.txt, "):
        task.read(tmp_path, "dev")
    (tmp_path / "train.csv").touch()
    with pytest.raises(InputError, match=f"has train.csv and {name}; there should be one"):
        task.read(tmp_path, "train")


def _written(folder, text):
    folder.mkdir()
    (folder / "train.csv").write_text(text, "utf-8")
    return folder


# Real data


@pytest.mark.thorough
@pytest.mark.parametrize(("split", "n_words", "n_sentences"), [("dev", 51362, 3250), ("test", 46435, 3453)])
def test_real_documents_are_asked_about_word_by_word(split, n_words, n_sentences):
    tokenizer = Tokenizer.from_pretrained(real_data("vocab/bert-base-uncased/vocab.txt"))
    task = Tagging()
    examples = task.read(real_data("ner"), split)
    assert len(examples) == n_sentences
    found = features(task, examples, tokenizer, max_length=128, labels=task.labels(examples))
    rows = np.concatenate([one.rows for one in found])
    assert len(rows) == n_words
    assert (rows != NO_PIECE).all()
    assert max(len(one.sequences[0].input_ids) for one in found) <= 128
    tags = np.concatenate([one.label for one in found])
    np.testing.assert_array_equal(tags, tag_numbers(examples, task.labels(examples)))
    firsts = np.concatenate([one.sequences[0].input_ids[one.rows] for one in found])
    words = tokenizer.encode_batch([w for one in examples for w in one.words], add_special_tokens=False)
    np.testing.assert_array_equal(firsts, words.ids[words.cu_seqlens[:-1]])


# From files to tags


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A model that has learnt who is a person and what is a place."""
    folder = tmp_path_factory.mktemp("ner")
    data, model = write_data(folder / "data"), write_model(folder / "model")
    options = FinetuneOptions(task="ner", data=data, model=model, **QUICK)
    report = finetune(options, folder / "run", show=False)
    return folder / "run", report


def test_a_tiny_model_learns_who_and_where(run):
    folder, report = run
    assert report["scores"]["f1"] == 1.0
    assert json.loads((folder / "task.json").read_text("utf-8"))["labels"] == list(LABELS)


def test_command_tags_a_text(run, capsys):
    assert (
        cli.main(
            ["tag", "--model", str(run[0]), "Anna lives in Rome", "the film is here", "--engine", "numpy"]
        )
        == 0
    )
    assert capsys.readouterr().out.splitlines() == [
        "Anna   B-PER",
        "lives  O",
        "in     O",
        "Rome   B-LOC",
        "",
        "PER  Anna",
        "LOC  Rome",
        "",
        "the   O",
        "film  O",
        "is    O",
        "here  O",
    ]


def test_command_tells_places_as_json(run, capsys):
    assert (
        cli.main(["tag", "--model", str(run[0]), "Anna lives in  Rome", "--json", "--engine", "numpy"]) == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert found["entities"] == [
        {"type": "PER", "text": "Anna", "begin": 0, "end": 4},
        {"type": "LOC", "text": "Rome", "begin": 15, "end": 19},
    ]
    assert [word["word"] for word in found["words"]] == ["Anna", "lives", "in", "Rome"]


def test_command_tags_the_lines_of_a_file(run, capsys, tmp_path):
    (tmp_path / "letters.txt").write_text("Anna\n \nthe film\n\n")
    words = [
        "tag",
        "--model",
        str(run[0]),
        "--file",
        str(tmp_path / "letters.txt"),
        "--json",
        "--engine",
        "numpy",
    ]
    assert cli.main(words) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    words_of_lines = [one and [word["word"] for word in one["words"]] for one in found]
    assert words_of_lines == [["Anna"], None, ["the", "film"], None]  # two of them are blank
    assert cli.main([*words, "Rome"]) == 2
    assert "Texts and --file were both given; give one of them." in capsys.readouterr().err


def test_command_refuses_a_model_of_something_else(tmp_path, capsys):
    assert cli.main(["tag", "--model", str(write_model(tmp_path / "model")), "a"]) == 2
    assert "no fine-tuned model" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Anna Smith's film.", ["Anna", "Smith", "'s", "film", "."]),
        ("the U.S. and AT&T", ["the", "U.S.", "and", "AT&T"]),
        ("all-rounder, 1,000.5 at 10:30", ["all-rounder", ",", "1,000.5", "at", "10:30"]),
        ("yes... -- (no), a,b", ["yes", "...", "--", "(", "no", ")", ",", "a", ",", "b"]),
        ("'quoted' rock 'n' roll", ["'", "quoted", "'", "rock", "'", "n", "'", "roll"]),
        ("\u6771\u4eac is", ["\u6771", "\u4eac", "is"]),
        ("", []),
        (" \x01 ", []),
    ],
)
def test_text_is_split_as_the_words_of_conll(tokenizer, text, words):
    assert [text[begin:end] for begin, end in word_spans(tokenizer, text)] == words
