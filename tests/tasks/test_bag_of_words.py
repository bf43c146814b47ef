"""The bag of words: naive Bayes of one class, and of each label, and predictions as a task has them."""

import numpy as np
import pytest

from minibert.data.glue import TextExample
from minibert.tasks.bag_of_words import BagOfWords, NaiveBayes, NaiveBayesOfEach, features_of
from minibert.tasks.registry import create

ROWS = [["a", "b", "a"], ["b", "c"], ["c", "c", "d"], ["a"], ["e", "b"], []]
LABELS = [(0,), (1, 2), (2,), (0, 2), (), (1,)]
ASKED = [["a", "c"], ["b", "z", "e", "e"], [], ["d", "a", "a", "b"]]


def examples(*rows):
    return [TextExample(str(n), first, second, label) for n, (first, second, label) in enumerate(rows)]


def test_each_label_has_a_naive_bayes_of_two_classes():
    odds = NaiveBayesOfEach(ROWS, LABELS, 3).log_odds(ASKED)
    for k in range(3):
        both = NaiveBayes(ROWS, [int(k in labels) for labels in LABELS], 2).log_probabilities(ASKED)
        assert odds[:, k] == pytest.approx(both[:, 1] - both[:, 0])


def test_probabilities_of_classes_are_those_of_bayes_rule():
    """p(x) = 1/2 · 2/4 and p(y) = 1/2 · 1/4 for the word a, seen once with x; b once with y."""
    (found,) = NaiveBayes([["a"], ["b"]], [0, 1], 2).log_probabilities([["a", "unseen"]])
    assert np.exp(found) == pytest.approx([1 / 2 * 2 / 3, 1 / 2 * 1 / 3])


def test_a_text_without_any_word_has_the_prior():
    found = NaiveBayes([[], [], []], [0, 1, 1], 2).log_probabilities([["a"]])
    assert np.exp(found) == pytest.approx(np.array([[1 / 3, 2 / 3]]))


def test_a_class_follows_from_its_words():
    train = examples(("A good film", None, "1"), ("a bad film", None, "0"), ("GOOD!", None, "1"))
    bag = BagOfWords(train, ("0", "1"))
    assert bag.predictions(examples(("good", None, None), ("bad, bad", None, None))) == [
        {"label": "1"},
        {"label": "0"},
    ]


def test_several_classes_are_scored_as_their_task_scores_them():
    texts = [
        ("ball goal goal", None, ("sport",)),
        ("vote vote", None, ("law",)),
        ("goal vote", None, ("law", "sport")),
    ]
    train = examples(*texts)
    labels = ("law", "sport")
    found = BagOfWords(train, labels, several=True).predictions(train)
    assert [one["labels"] for one in found] == [["sport"], ["law"], ["law", "sport"]]
    assert create("multilabel").score(train, found)["macro_f1"] == 1


def test_words_of_a_pair_are_apart_and_shared_ones_count():
    (pair,) = examples(("a b", "b c", "x"))
    assert features_of(pair) == [(0, "a"), (0, "b"), (1, "b"), (1, "c"), 3, "b"]
    assert features_of(pair, 0) == [3]
    assert features_of(pair, 2)[2:3] == [(0, "a", "b")]
