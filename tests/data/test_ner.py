"""Reader of CoNLL-2003: counts and content of the real files, IOB1 to BIO and back, bad input."""

from collections import Counter

import pytest
from hypothesis import given, strategies as st
from real_data import FIXTURES, real_data

from minibert.base.errors import InputError
from minibert.data import ner
from minibert.data.ner import TaggedSentence, to_bio

ODD = {"eng.train": [(10227, "Atlanta", "I-MISC", "B-MISC"), (11569, "Urdu-speaking", "I-MISC", "B-MISC")]}
TAGS = st.lists(st.sampled_from(["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]), max_size=12)


def to_iob1(tags):
    """The inverse of `to_bio`: B- only directly behind an entity of the same type."""
    before = ["O", *tags]
    return [
        f"I-{tag[2:]}" if tag[0] == "B" and before[i][2:] != tag[2:] else tag for i, tag in enumerate(tags)
    ]


def write(folder, text, name="a.conll"):
    (folder / name).write_bytes(text.encode())
    return folder / name


def raw(path):
    """Sentences as lists of split lines, read another way."""
    blocks = path.read_text().replace("-DOCSTART-", "\n-DOCSTART-").split("\n\n")
    blocks = [[line.split(" ") for line in block.split("\n") if line] for block in blocks]
    return [block for block in blocks if block and block[0][0] != "-DOCSTART-"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name, sentences, words, entities, documents",
    [
        ("eng.train", 14041, 203621, 23499, 946),
        ("eng.testa", 3250, 51362, 5942, 216),
        ("eng.testb", 3453, 46435, 5648, 231),
    ],
)
def test_real_files_have_their_counts_and_become_iob1_again(name, sentences, words, entities, documents):
    path = real_data(f"ner/{name}")
    found = ner.read(path)
    assert len(found) == sentences
    assert sum(len(sentence.words) for sentence in found) == words
    assert sum(tag[0] == "B" for sentence in found for tag in sentence.tags) == entities
    numbers = [sentence.document for sentence in found]
    assert numbers == sorted(numbers) and set(numbers) == set(range(documents))
    written = raw(path)
    assert [list(sentence.words) for sentence in found] == [[row[0] for row in rows] for rows in written]
    odd = [
        (i, row[0], tag, row[3])
        for i, (sentence, rows) in enumerate(zip(found, written, strict=True))
        for tag, row in zip(to_iob1(sentence.tags), rows, strict=True)
        if tag != row[3]
    ]
    # The makers wrote B- twice where IOB1 has I-.
    assert odd == ODD.get(name, [])


@pytest.mark.thorough
def test_real_entities_by_type():
    found = ner.read(real_data("ner/eng.train"))
    counts = Counter(tag for sentence in found for tag in sentence.tags if tag[0] == "B")
    # The published table of the shared task.
    assert counts == {"B-LOC": 7140, "B-MISC": 3438, "B-ORG": 6321, "B-PER": 6600}


@pytest.mark.thorough
def test_real_sentences_first_last_and_neighbouring_entities():
    train = ner.read(real_data("ner/eng.train"))
    assert train[0].words[:4] == ("EU", "rejects", "German", "call")
    assert train[0].tags[:3] == ("B-ORG", "O", "B-MISC")
    assert train[-1] == TaggedSentence(("Swansea", "1", "Lincoln", "2"), ("B-ORG", "O", "B-ORG", "O"), 945)
    tests = ner.read(real_data("ner/eng.testb"))
    assert tests[1].tags == ("B-PER", "I-PER") and tests[1].document == 0
    rivers = next(sentence for sentence in tests if "Quequen" in sentence.words)
    assert rivers.tags == ("B-LOC", "I-LOC", "B-LOC", "B-LOC", "B-LOC", "I-LOC")
    iowa = next(sentence for sentence in tests if sentence.words[:2] == ("Iowa-S", "Minn"))
    assert iowa.tags[:3] == ("B-LOC", "B-LOC", "O")


def test_documents_begin_where_the_file_says():
    assert ner.read(FIXTURES / "ner" / "eng.train") == [
        TaggedSentence(
            ("Ann", "Gray", "lit", "the", "Willow", "Point", "lamps", "."),
            ("B-PER", "I-PER", "O", "O", "B-LOC", "B-LOC", "O", "O"),
            0,
        ),
        TaggedSentence(("Ham", "Rovers", "won"), ("B-LOC", "B-ORG", "O"), 0),
        TaggedSentence(("Rain",), ("O",), 1),
    ]


@given(TAGS)
def test_bio_and_back(tags):
    bio = list(to_bio(tags))
    assert list(to_bio(bio)) == bio and list(to_bio(to_iob1(bio))) == bio
    assert [tag[2:] for tag in bio] == [tag[2:] for tag in tags]
    starts = [
        i for i, tag in enumerate(tags) if tag[0] == "B" or (tag[0] == "I" and ["O", *tags][i][2:] != tag[2:])
    ]
    assert [i for i, tag in enumerate(bio) if tag[0] == "B"] == starts


def test_columns_delimiters_comments_and_line_ends(tmp_path):
    text = "# id 1\nNew York\tB-LOC\n#\tO\n\n\n# two\n\u00a0\tO\nHam\tI-LOC"
    expected = [
        TaggedSentence(("New York", "#"), ("B-LOC", "O"), 0),
        TaggedSentence(("\u00a0", "Ham"), ("O", "B-LOC"), 0),
    ]
    assert ner.read(write(tmp_path, text)) == expected
    assert ner.read(write(tmp_path, "\ufeff" + text.replace("\n", "\r\n"))) == expected
    assert ner.read(write(tmp_path, "# O\n1 O\n"))[0].words == ("#", "1")  # a word, not a comment
    assert ner.read(write(tmp_path, "Ham\nwon\n")) == [TaggedSentence(("Ham", "won"), None, 0)]
    turned = write(tmp_path, "-DOCSTART-\n\nO x Ham\nO x won\n-DOCSTART-\n-DOCSTART-\nI-LOC x Aln\n")
    assert ner.read(turned, words=-1, tags=1) == [
        TaggedSentence(("Ham", "won"), ("O", "O"), 0),
        TaggedSentence(("Aln",), ("B-LOC",), 1),
    ]
    assert ner.read(turned, words=3, tags=None)[1] == TaggedSentence(("Aln",), None, 1)


def test_other_tags_are_taken_as_they_are(tmp_path):
    path = write(tmp_path, "# SYM\nDogs NNS\nbark I-X\n")
    assert ner.read(path, entities=False)[0].tags == ("SYM", "NNS", "I-X")


@pytest.mark.parametrize(
    "text, options, sentence",
    [
        ("a O\nb X O\n", {}, r"line 2: 3 columns where the lines before have 2; each line has"),
        ("a O\nb NN\n", {}, r"line 2: the tag 'NN' is neither O nor B-TYPE nor I-TYPE"),
        ("a O\nb B-\n", {}, r"line 2: the tag 'B-' is neither"),
        ("sentence\tlabel\nfine\t1\n", {}, r"line 1: the tag 'label' is neither"),
        ("a O\n", {"words": 3}, r"line 1: there is no column 3, only 2; give another"),
        ("a O\n", {"tags": 0}, r"line 1: there is no column 0, only 2; give another"),
        ("\n-DOCSTART- O\n\n# a\n", {}, r"no sentence was found"),
    ],
)  # fmt: skip
def test_a_file_that_is_wrong_is_refused_with_its_line(tmp_path, text, options, sentence):
    with pytest.raises(InputError, match=sentence):
        ner.read(write(tmp_path, text), **options)


def test_text_that_is_not_utf_8_and_a_missing_file(tmp_path):
    (tmp_path / "a").write_bytes(b"a O\n\xff O\n")
    with pytest.raises(InputError, match=r"line 2 is not UTF-8: byte 0xff; convert"):
        ner.read(tmp_path / "a")
    with pytest.raises(InputError, match="There is no file '"):
        ner.read(tmp_path / "b")
