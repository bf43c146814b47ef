"""What the benchmarks predict without a model: by a rule, by naive Bayes, by TF-IDF."""

import numpy as np
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


def test_tf_idf_gives_the_cosine_of_two_texts():
    train = pairs([("the cat sat", "the dog ran", 0.1)])
    dev = pairs([("the cat", "The cat", 1.0), ("cat", "dog", 0.0), ("the cat", "the dog", 0.5)])
    predictions = METHODS["tf-idf"].predict(registry.create("stsb-similarity"), train, dev)
    idf = np.log(3 / 2) + 1  # of a word in one of the two training texts
    expected = [1.0, 0.0, 1 / (1 + idf**2)]
    assert [prediction["value"] for prediction in predictions] == pytest.approx(expected)


def test_rule_gives_the_mean_of_numbers():
    train = pairs([("a", "b", 1.0), ("a", "c", 4.0)])
    predictions = METHODS["rule"].predict(registry.create("stsb"), train, train)
    assert predictions == [{"value": 2.5}] * 2


def test_rule_finds_names_that_the_training_file_has():
    train = [TaggedSentence(("Ann", "met", "Bob"), ("B-PER", "O", "B-PER"), 0)]
    dev = [TaggedSentence(("Bob", "left", "Rome"), ("B-PER", "O", "B-LOC"), 0)]
    assert METHODS["rule"].predict(registry.create("ner"), train, dev) == [["B-PER", "O", "O"]]
