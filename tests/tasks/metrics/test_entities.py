"""Chunks and their figures as conlleval counts them, by hand and as recorded; `minibert score conll`."""

import json
import warnings

import numpy as np
import pytest
from command import ends_badly, notice  # noqa: F401 (a fixture)
from hypothesis import given, strategies as st
from real_data import real_data

from minibert import cli
from minibert.base.errors import InputError
from minibert.tasks.metrics import bootstrap
from minibert.tasks.metrics.entities import Chunk, chunks, conlleval, f1_of, report, sentence_counts
from minibert.tasks.metrics.schemes import as_kept, scheme_named

OUTSIDE = "O"
tags = st.sampled_from(["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "E-LOC", "S-PER"])
tagged = st.lists(st.lists(st.tuples(tags, tags), max_size=12), min_size=1, max_size=5).filter(any)
SCHEME = "BIOES"  # of these, whichever are drawn


@st.composite
def sentences(draw):
    """The length of a sentence, and chunks in it that do not overlap."""
    found, place = [], 0
    for _ in range(draw(st.integers(0, 5))):
        start = place + draw(st.integers(0, 2))
        place = start + draw(st.integers(1, 3))
        found.append(Chunk(draw(st.sampled_from(["PER", "LOC", "B-side"])), start, place))
    return place + draw(st.integers(0, 2)), found


def touching(chunk, other):
    """Whether `other` is of the same type and begins right behind."""
    return other is not None and chunk.end == other.start and chunk.kind == other.kind


def iob1(before, chunk, after):
    return "B" if touching(before or Chunk("", 0, -1), chunk) else "I", "I", "I"


def iob2(before, chunk, after):
    return "B", "I", "I"


def ioe1(before, chunk, after):
    return "I", "I", "E" if touching(chunk, after) else "I"


def ioe2(before, chunk, after):
    return "I", "I", "E"


def bioes(before, chunk, after):
    return "B", "I", "E"


def bilou(before, chunk, after):
    return "B", "I", "L"


def written(scheme, length, found):
    """The tags of a sentence with these chunks."""
    tags = [OUTSIDE] * length
    for before, chunk, after in zip([None, *found], found, [*found[1:], None], strict=False):
        first, inner, last = scheme(before, chunk, after)
        prefixes = [first, *[inner] * (chunk.end - chunk.start - 2), last]
        if chunk.end - chunk.start == 1:
            single = {bioes: "S", bilou: "U", ioe1: last, ioe2: last}
            prefixes = [single.get(scheme, first)]
        tags[chunk.start : chunk.end] = [f"{prefix}-{chunk.kind}" for prefix in prefixes]
    return tags


# Chunks


@pytest.mark.parametrize("scheme", [iob1, iob2, ioe1, ioe2, bioes, bilou])
@given(sentence=sentences())
def test_chunks_are_read_back_from_every_scheme(scheme, sentence):
    length, found = sentence
    assert chunks(written(scheme, length, found)) == found


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ("O", []),
        ("", []),
        ("I-A I-A B-A O I-B", ["A 0 2", "A 2 3", "B 4 5"]),
        ("B-A I-B I-B", ["A 0 1", "B 1 3"]),  # another type begins another chunk
        ("I-A O-A I-A", ["A 0 1", "A 2 3"]),  # outside, whatever stands behind the hyphen
        ("B-A E-A B-A E-A", ["A 0 2", "A 2 4"]),
        ("B-A E-A I-A E-A B-A", ["A 0 2", "A 2 4", "A 4 5"]),  # without S, as conlleval has it
        ("S-A I-A O B-A", ["A 0 1", "A 1 2", "A 3 4"]),  # S is one word, whatever stands beside it
        ("I-A U-A I-A", ["A 0 1", "A 1 2", "A 2 3"]),
        ("B-A L-A I-A", ["A 0 2", "A 2 3"]),  # L ends
        ("U-A U-A B-A I-A L-A", ["A 0 1", "A 1 2", "A 2 5"]),
        ("B-A M-A E-A W-A", ["A 0 3", "A 3 4"]),
        ("B-A M-A E-A S-A", ["A 0 3", "A 3 4"]),
        ("B-x-y I-x-y I-x", ["x-y 0 2", "x 2 3"]),  # the first hyphen counts
        ("B I O I", [" 0 2", " 3 4"]),  # tags without types
        ("B M E S B E", [" 0 3", " 3 4", " 4 6"]),
        ("B M E W W", [" 0 3", " 3 4", " 4 5"]),
        ("NOUN VERB", []),  # no tags of chunks
    ],
)
def test_chunks_by_hand(tags, found):
    assert [f"{chunk.kind} {chunk.start} {chunk.end}" for chunk in chunks(tags.split())] == found


@pytest.mark.parametrize(
    ("scheme", "tags", "found"),
    [
        ("BIOES", "S-A S-A I-A", ["A 0 1", "A 1 2"]),  # an entity has a beginning and an end
        ("BIOES", "I-A S-A B-A I-A", ["A 1 2"]),
        ("BIOES", "B-A E-A I-A E-A", ["A 0 2"]),
        ("BIOES", "B-A I-B E-A B-A E-A", ["A 3 5"]),  # which are of one type
        ("BILOU", "B-A U-A L-A", ["A 1 2"]),
        ("BILOU", "B-A B-A L-A L-A", ["A 1 3"]),
    ],
)
def test_entities_of_a_known_scheme_are_whole(scheme, tags, found):
    whole = chunks(tags.split(), scheme_named(scheme))
    assert [f"{chunk.kind} {chunk.start} {chunk.end}" for chunk in whole] == found


BIO = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "O", "B-ORG"]] * 50
WHOLE = [["B-PER", "E-PER", "O", "S-LOC"], ["S-LOC", "O", "S-ORG"]] * 50
STRAYS = ["S-PER", "E-PER", "E-MAIL", "L-PER", "U-PER"]


def strayed(sentences, *strays):
    """The sentences, the first of which have one more word with such a tag."""
    return [[*tags, *strays[n : n + 1]] for n, tags in enumerate(sentences)]


@pytest.mark.parametrize("side", ["gold", "predicted", "both"])
@pytest.mark.parametrize("strays", [*[[stray] for stray in STRAYS], ["S-PER", "E-MAIL"]], ids=str)
def test_a_stray_tag_changes_no_scheme(strays, side):
    outside = ["O"] * len(strays)
    gold = strayed(BIO, *(outside if side == "predicted" else strays))
    predicted = strayed(BIO, *(outside if side == "gold" else strays))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        figures = conlleval(gold, predicted)
        counts = sentence_counts(gold, predicted)
    n = len(strays)
    expected = {"gold": (200 + n, 200), "predicted": (200, 200 + n), "both": (200 + n, 200 + n)}[side]
    correct = 200 + n * (side == "both")
    assert (figures["gold"], figures["found"], figures["correct"]) == (*expected, correct)
    assert counts.sum(axis=0).tolist() == [*expected, correct]
    told = [str(one.message) for one in caught]
    assert len(told) == (side != "predicted")
    n_broken = 250 + n - strays.count("S-PER") - strays.count("U-PER")
    of_tags = f"{n_broken} of {250 + n} gold tags of entities belong to no complete entity"
    assert not told or (told[0].startswith(of_tags) and f"{strays[0][0]} (1)" in told[0])


def test_a_few_broken_entities_leave_a_scheme_strict():
    gold = [*WHOLE, ["B-PER", "O"]]
    with pytest.warns(UserWarning, match=r"^1 of 251 gold tags of entities .* in BIOES, so"):
        figures = conlleval(gold, [*WHOLE, ["S-PER", "O"]])
    assert (figures["gold"], figures["found"], figures["correct"]) == (200, 201, 200)
    figures = conlleval(WHOLE, [["B-PER"] * len(tags) for tags in WHOLE])
    assert (figures["gold"], figures["found"]) == (200, 0)
    with pytest.warns(UserWarning, match="S .*; all are read as conlleval reads them"):
        figures = conlleval(mixed := WHOLE[:80] + BIO[80:], mixed)  # of two sources: too many are broken
    assert figures["gold"] == 200


def test_beginnings_and_ends_without_single_words_are_read_as_conlleval_does():
    mixed = [["B-A", "I-A", "O", "I-A", "E-A", "I-A"], ["B-A", "E-A"]] * 20
    with pytest.warns(UserWarning, match="^100 of 140 gold"):
        assert conlleval(mixed, mixed)["gold"] == 80
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert conlleval([["B-A", "E-A"]], [["B-A", "O"]])["found"] == 1
        assert conlleval([["I-A", "E-A", "I-A"]], [["I-A", "O", "E-A"]])["gold"] == 2


@pytest.mark.parametrize("tags", [["B_PER", "I_PER", "O"], ["b:PER", "O"], ["PER_B", "O"]])
def test_tags_that_are_none_of_entities_are_named(tags):
    outside = ["O"] * len(tags)
    for gold, predicted in ((tags, tags), (tags, outside), (outside, tags)):
        with pytest.warns(UserWarning, match=f"^The tags {tags[0]}.* follow no scheme .* count as outside"):
            assert conlleval([gold], [predicted])["gold"] == 0


def test_predicted_tags_are_of_the_gold_scheme():
    # A model that has not learnt where entities end has found none.
    figures = conlleval([["U-A", "B-A", "L-A"]], [["B-A", "B-A", "I-A"]])
    assert (figures["gold"], figures["found"]) == (2, 0)
    figures = conlleval([["B-A", "B-A", "I-A"]], [["U-A", "B-A", "L-A"]])  # their own, where they have others
    assert (figures["gold"], figures["found"], figures["correct"]) == (2, 2, 2)
    figures = conlleval([["O", "O"]], [["B-A", "L-A"]])
    assert (figures["gold"], figures["found"]) == (0, 1)


@pytest.mark.parametrize("tags", [["X-PER", "O"], ["S-PER", "U-PER"], ["NOUN-x", "O"], ["PER-B", "O"]])
def test_an_unknown_scheme_is_named(tags):
    with pytest.raises(InputError, match=rf"{tags[0]}.* no scheme that is known: IOB \(O B I\), IOE"):
        conlleval([tags], [["O", "O"]])
    with pytest.raises(InputError, match="no scheme that is known"):
        chunks(tags)
    with pytest.raises(InputError, match="scheme='BIX' is not known; choose from IOB, IOE, BIOES"):
        conlleval([["O"]], [["O"]], "BIX")


# Figures


def test_figures_by_hand():
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "O", "B-ORG"]]
    predicted = [["B-PER", "I-PER", "O", "B-PER"], ["B-LOC", "I-LOC", "B-ORG"]]
    figures = conlleval(gold, predicted)
    # Right are the person and the organisation; the second sentence's place is a word too long.
    assert figures == {
        "accuracy": 100 * 5 / 7,
        "precision": 50.0,
        "recall": 50.0,
        "f1": 50.0,
        "gold": 4,
        "found": 4,
        "correct": 2,
        "words": 7,
        "types": {
            "LOC": {"precision": 0.0, "recall": 0.0, "f1": 0.0, "gold": 2, "found": 1, "correct": 0},
            "ORG": {"precision": 100.0, "recall": 100.0, "f1": 100.0, "gold": 1, "found": 1, "correct": 1},
            "PER": {
                "precision": 50.0,
                "recall": 100.0,
                "f1": pytest.approx(200 / 3),
                "gold": 1,
                "found": 2,
                "correct": 1,
            },
        },
    }


def test_chunks_do_not_reach_into_the_next_sentence():
    figures = conlleval([["B-PER"], ["I-PER"]], [["B-PER"], ["B-PER"]])
    assert (figures["gold"], figures["found"], figures["correct"]) == (2, 2, 2)
    assert figures["accuracy"] == 50


def test_nothing_found_and_nothing_to_find_are_zeros():
    nothing = {"precision": 0.0, "recall": 0.0, "f1": 0.0}
    for gold, predicted in ((["O", "O"], ["O", "O"]), (["B-A", "O"], ["O", "O"]), (["O"], ["B-A"])):
        assert conlleval([gold], [predicted]).items() >= nothing.items()


@given(tagged)
def test_sides_change_places_with_precision_and_recall(sentences):
    gold = [[tag for tag, _ in sentence] for sentence in sentences]
    predicted = [[tag for _, tag in sentence] for sentence in sentences]
    figures, turned = conlleval(gold, predicted, SCHEME), conlleval(predicted, gold, SCHEME)
    for name, other in {"precision": "recall", "gold": "found", "f1": "f1", "accuracy": "accuracy"}.items():
        assert figures[name] == pytest.approx(turned[other], rel=1e-14)
        assert figures["types"].keys() == turned["types"].keys()
    assert figures["correct"] == sum(row["correct"] for row in figures["types"].values())
    itself = conlleval(gold, gold, SCHEME)
    assert itself["correct"] == itself["gold"] == itself["found"] == figures["gold"]


@given(tagged)
def test_counts_of_sentences_make_the_figure_of_any_of_them(sentences):
    gold = [[tag for tag, _ in sentence] for sentence in sentences]
    predicted = [[tag for _, tag in sentence] for sentence in sentences]
    counts = sentence_counts(gold, predicted, SCHEME)
    figures = conlleval(gold, predicted, SCHEME)
    assert counts.sum(axis=0).tolist() == [figures["gold"], figures["found"], figures["correct"]]
    rows = np.array([0, 0, len(sentences) - 1])
    drawn = [gold[row] for row in rows], [predicted[row] for row in rows]
    if any(map(len, drawn[0])):
        assert f1_of(counts[rows]) == conlleval(*drawn, SCHEME)["f1"]


def test_interval_over_sentences_surrounds_the_figure():
    gold = [["B-A", "O"], ["B-A", "I-A"]] * 50
    predicted = [["B-A", "O"], ["B-A", "O"]] * 50
    counts = sentence_counts(gold, predicted)
    low, high = bootstrap(lambda rows: f1_of(counts[rows]), len(counts))
    # One chunk on each side of every sentence: F1 is the share of right ones among 100 sentences.
    assert (low, high) == (pytest.approx(40.2, abs=1.5), pytest.approx(59.8, abs=1.5))


@pytest.mark.parametrize(
    ("gold", "predicted", "message"),
    [
        ([["O"]], [["O"], ["O"]], "1 gold and 2 predicted sentences"),
        ([["O"], ["O", "O"]], [["O"], ["O"]], "Sentence 2 has 2 gold and 1 predicted tags"),
        ([], [], "no word"),
        ([[]], [[]], "no word"),
    ],
)
def test_tags_that_do_not_fit_together_are_refused(gold, predicted, message):
    with pytest.raises(InputError, match=message):
        conlleval(gold, predicted)
    with pytest.raises(InputError, match=message):
        sentence_counts(gold, predicted)


# The text, and minibert score conll

# Tags that contradict each other are in it, and a document's first line, which the script takes for a word.
TAGGED = """\
-DOCSTART- -X- O O

EU NNP I-ORG B-ORG
rejects VBZ O O
German JJ I-MISC I-MISC
call NN O I-MISC
Peter NNP I-PER B-PER
Blackburn NNP I-PER I-PER

BRUSSELS NNP I-LOC I-ORG
-X- -X- -X- -X-
Mr. NNP I-PER O
Smith NNP B-PER I-PER
of IN O O
New NNP I-LOC B-LOC
York NNP I-LOC I-ORG
City NNP I-LOC I-LOC
"""
# What the script itself printed for it.
RECORDED = """\
processed 14 tokens with 7 phrases; found: 8 phrases; correct: 3.
accuracy:  42.86%; precision:  37.50%; recall:  42.86%; FB1:  40.00
              LOC: precision:   0.00%; recall:   0.00%; FB1:   0.00  2
             MISC: precision:   0.00%; recall:   0.00%; FB1:   0.00  1
              ORG: precision:  33.33%; recall: 100.00%; FB1:  50.00  3
              PER: precision: 100.00%; recall:  66.67%; FB1:  80.00  2
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tagged.txt"
    path.write_text(TAGGED, encoding="utf-8")
    return str(path)


def columns(tmp_path, name, text, *kept):
    """A file with some columns of another."""
    lines = (line.split() for line in text.splitlines())
    path = tmp_path / name
    path.write_text("\n".join("\t".join(line[n] for n in kept) if line else "" for line in lines) + "\n")
    return str(path)


def test_score_prints_what_conlleval_prints(file, capsys):
    assert cli.main(["score", "conll", file]) == 0
    text = capsys.readouterr().out
    official, below = text.split("\n\n")
    assert official + "\n" == RECORDED
    assert below.startswith("4 sentences; in percent, with 95% intervals\n  f1 ")


def test_score_tells_the_figures_as_json(file, capsys):
    assert cli.main(["score", "conll", file, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    low, high = figures.pop("intervals")["f1"]
    assert 0 <= low <= figures["f1"] <= high <= 100
    assert report(figures) + "\n" == RECORDED


def test_score_of_two_files_knows_documents_and_schemes(tmp_path, capsys):
    text = TAGGED.replace("-X- -X- -X- -X-", "")
    gold, predicted = columns(tmp_path, "gold", text, 0, 1, 2), columns(tmp_path, "predicted", text, 0, 3)
    assert cli.main(["score", "conll", gold, predicted, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert report(figures).splitlines()[2:] == RECORDED.splitlines()[2:]  # precision, recall, F1 of each type
    assert figures["words"] == 13
    bio = "B-ORG O B-MISC O B-PER I-PER B-LOC B-PER B-PER O B-LOC I-LOC I-LOC".split()
    found = "B-ORG O B-MISC I-MISC B-PER I-PER B-ORG O B-PER O B-LOC B-ORG B-LOC".split()
    assert figures["accuracy"] == 100 * sum(map(str.__eq__, bio, found)) / 13


@pytest.mark.parametrize("odd", ["S-A", "O"])
def test_score_of_two_files_changes_the_scheme_of_both_or_of_neither(odd, tmp_path, capsys):
    text = f"a I-A I-A\nb I-A I-A\nc I-B {odd}\n"
    gold, predicted = columns(tmp_path, "gold", text, 0, 1), columns(tmp_path, "predicted", text, 0, 2)
    assert cli.main(["score", "conll", gold, predicted, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == 100 * 2 / 3


def test_score_of_two_files_reads_bioes(tmp_path, capsys):
    text = "a O O\nb S-A S-A\nc B-A S-A\nd E-A E-A\n"
    gold, predicted = columns(tmp_path, "gold", text, 0, 1), columns(tmp_path, "predicted", text, 0, 2)
    assert cli.main(["score", "conll", gold, predicted, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert (figures["gold"], figures["found"], figures["correct"]) == (2, 2, 1)  # E alone ends nothing


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no line with tags"),
        ("-X- O O\n\n", "has no line with tags"),
        ("a O O\nb O\n", "line 2: 2 columns, not 3"),
        ("a O\nb O\n", "line 1: 2 columns, not 3"),  # words with one tag each: nothing to compare it with
        ("a\n", "line 1: 1 column, not 3"),
    ],
)
def test_score_refuses_a_broken_file_of_tags(tmp_path, capsys, text, message):
    (tmp_path / "tagged.txt").write_text(text)
    assert message in ends_badly(capsys, cli.BAD_INPUT, "score", "conll", str(tmp_path / "tagged.txt"))


def test_score_refuses_two_files_of_different_words(tmp_path, capsys):
    text = TAGGED.replace("-X- -X- -X- -X-", "")
    gold = columns(tmp_path, "gold", text, 0, 2)
    other = columns(tmp_path, "other", text.replace("York", "Amsterdam"), 0, 3)
    message = ends_badly(capsys, cli.BAD_INPUT, "score", "conll", gold, other)
    assert "Sentence 3 is 'Mr. Smith of New York City'" in message
    assert "'Mr. Smith of New Amsterdam City'" in message
    words = columns(tmp_path, "words", text, 0)
    assert "words without a tag" in ends_badly(capsys, cli.BAD_INPUT, "score", "conll", gold, words)
    shorter = columns(tmp_path, "shorter", text.split("BRUSSELS")[0], 0, 3)
    assert "Sentence 2 is 'BRUSSELS'" in ends_badly(capsys, cli.BAD_INPUT, "score", "conll", gold, shorter)


@pytest.mark.parametrize(("name", "words", "entities"), [("testa", 51578, 5942), ("testb", 46666, 5648)])
def test_score_counts_the_words_and_entities_of_conll_2003(name, words, entities, tmp_path, capsys):
    lines = real_data(f"ner/eng.{name}").read_text(encoding="utf-8").splitlines()
    file = tmp_path / "twice.txt"  # the gold tag is the predicted one, too
    file.write_text("".join(f"{line} {line.split()[-1]}\n" if line.strip() else "\n" for line in lines))
    assert cli.main(["score", "conll", str(file)]) == 0
    text = capsys.readouterr().out
    assert text.startswith(
        f"processed {words} tokens with {entities} phrases; found: {entities} phrases; correct: {entities}.\n"
        "accuracy: 100.00%; precision: 100.00%; recall: 100.00%; FB1: 100.00\n"
    )


@pytest.mark.parametrize(("each", "strict"), [(20, True), (10, True), (9, False)])
def test_letters_that_fit_no_other_scheme_are_strict_unless_they_are_strays(each, strict):
    """No entity but those of one word is complete, so it is the number of each fault that decides."""
    sentences = [["S-A"], ["B-A", "O"], ["O", "E-A"]] * each
    assert as_kept(scheme_named(SCHEME), sentences).is_strict is strict


@pytest.mark.parametrize(("complete", "strict"), [(40, True), (170, False), (199, True)])
def test_faults_are_strays_below_a_tenth_of_the_tags(complete, strict):
    """22 tags are in no complete entity: too many to be strays among 62, few enough among 192."""
    sentences = [["S-A"]] * complete + [["B-A", "O"], ["O", "E-A"]] * 11
    assert as_kept(scheme_named(SCHEME), sentences).is_strict is strict
