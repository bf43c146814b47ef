"""What the benchmarks predict without a model: by a rule, by naive Bayes, by TF-IDF."""

import pytest
from peers.word_methods import METHODS

from minibert.data.glue import TextExample
from minibert.data.ner import TaggedSentence
from minibert.tasks import registry

TRAIN = [("a fine film", "good"), ("a dull film", "bad"), ("fine music", "good"), ("fine", "good")]


def texts(rows):
    return [TextExample(str(number), text, None, label) for number, (text, label) in enumerate(rows)]


def pairs(rows):
    return [TextExample(str(number), *row) for number, row in enumerate(rows)]


@pytest.mark.parametrize(
    ("method", "expected"),
    [("rule", ["good", "good"]), ("naive-bayes", ["bad", "good"]), ("tf-idf", ["bad", "good"])],
)
def test_only_methods_that_count_words_read_the_text(method, expected):
    task = registry.create("classify")
    dev = texts([("dull, dull", "bad"), ("fine", "good")])
    predictions = METHODS[method].predict(task, texts(TRAIN), dev)
    assert [prediction["label"] for prediction in predictions] == expected


def test_tf_idf_compares_the_letters_of_two_texts():
    dev = pairs([("The cat", "the cat", 1.0), ("sits", "dog", 0.0), ("the cats", "the cat", 0.8)])
    predictions = METHODS["tf-idf"].predict(registry.create("stsb-similarity"), [], dev)
    same, other, alike = (prediction["value"] for prediction in predictions)
    assert same == pytest.approx(1)
    assert other == 0
    assert 0.5 < alike < 0.99


def test_rule_gives_the_mean_of_numbers():
    train = pairs([("a", "b", 1.0), ("a", "c", 4.0)])
    predictions = METHODS["rule"].predict(registry.create("stsb"), train, train)
    assert predictions == [{"value": 2.5}] * 2


def test_rule_finds_names_that_the_training_file_has():
    train = [TaggedSentence(("Ann", "met", "Bob"), ("B-PER", "O", "B-PER"), 0)]
    dev = [TaggedSentence(("Bob", "left", "Rome"), ("B-PER", "O", "B-LOC"), 0)]
    assert METHODS["rule"].predict(registry.create("ner"), train, dev) == [["B-PER", "O", "O"]]
