"""Naive Bayes over the words of a text: how well texts can be classified without a BERT.

It is multinomial, with one added to every count (Manning, Raghavan and Schütze, "Introduction to Information
Retrieval", section 13.2). It takes seconds, and on many sets of short texts it is hard to beat; reports show
its score next to the model's.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from minibert.tasks import multilabel
from minibert.tasks.task import Examples, Labels, Predictions

WORD = re.compile(r"\w+|[^\w\s]")


def words_of(text: str) -> list[str]:
    """Return the words and punctuation marks of a text.

    Parameters
    ----------
    text : str
        A text of any length.

    Returns
    -------
    list of str
        In lower case, in order.
    """
    return WORD.findall(text.lower())


def features_of(example: Any, longest: int = 1) -> list[Hashable]:
    """Return the features of a text or a pair of texts that naive Bayes counts.

    Parameters
    ----------
    example : TextExample
        A text or a pair. Its label is not read.
    longest : int, default 1
        Length of the longest n-grams; 0 for none.

    Returns
    -------
    list
        The n-grams of each text, those of a second text kept apart. For a pair also the words that both texts
        have, and their share of all the words, in tenths; with `longest` 0, only that share.
    """
    texts = (example.first, example.second)
    sides = [words_of(text) for text in texts if text is not None]
    features: list[Hashable] = []
    for side, words in enumerate(sides):
        for n in range(1, longest + 1):
            for begin in range(len(words) - n + 1):
                features.append((side, *words[begin : begin + n]))
    if len(sides) == 2:
        first, second = map(set, sides)
        shared = first & second
        either = first | second
        features.append(10 * len(shared) // max(1, len(either)))
        if longest:
            features += sorted(shared)
    return features


class NaiveBayes:
    """Multinomial naive Bayes with one added to every count.

    Only features that occur are stored, so that many classes take no more memory than few.

    Parameters
    ----------
    rows : iterable of lists
        The features of each training example.
    classes : sequence of int
        The class of each example, from 0 to K-1.
    K : int
        Number of classes.
    """

    def __init__(
        self,
        rows: Iterable[Iterable[Hashable]],
        classes: Sequence[int],
        K: int,
    ) -> None:
        counts: dict[Hashable, Counter[int]] = defaultdict(Counter)
        totals = np.zeros(K)
        for row, k in zip(rows, classes, strict=True):
            for feature in row:
                counts[feature][k] += 1
                totals[k] += 1
        # log(count + 1) for each class in which a feature occurs; for the others it is 0.
        self._seen = {}
        for feature, by_class in counts.items():
            logarithms = [math.log(count + 1) for count in by_class.values()]
            self._seen[feature] = list(by_class), logarithms
        smoothed_totals = totals + len(counts)
        self._unseen = np.log(np.maximum(1, smoothed_totals))  # (K,) logarithm of the sum of a class's counts
        examples = np.bincount(classes, minlength=K)
        shares = np.maximum(examples, 1e-9) / len(classes)
        self._prior = np.log(shares)

    # -> (n,K)
    def log_probabilities(self, rows: Iterable[Iterable[Hashable]]) -> np.ndarray:
        """Return log p(class, features) for each example and class.

        Parameters
        ----------
        rows : iterable of lists
            The features of each example; those that never occurred in training are ignored.

        Returns
        -------
        numpy.ndarray
            (n,K) float64, natural logarithms.
        """
        result = []
        for row in rows:
            known = [self._seen[feature] for feature in row if feature in self._seen]
            scores = self._prior - len(known) * self._unseen
            for classes, logarithms in known:
                scores[classes] += logarithms
            result.append(scores)
        return np.array(result).reshape(len(result), len(self._prior))


class NaiveBayesOfEach:
    """A two-class naive Bayes for each of several labels: does the label apply to an example or not?

    It predicts the same as K objects `NaiveBayes`, but stores the counts of the features only once.

    Parameters
    ----------
    rows : iterable of lists
        The features of each training example.
    labels : sequence of sequences of int
        The labels that apply to each example, from 0 to K-1.
    K : int
        Number of labels.
    """

    def __init__(
        self,
        rows: Iterable[Iterable[Hashable]],
        labels: Sequence[Sequence[int]],
        K: int,
    ) -> None:
        everywhere: Counter[Hashable] = Counter()
        counts: dict[Hashable, Counter[int]] = defaultdict(Counter)
        totals = np.zeros(K)  # number of features in the examples with each label
        examples = np.zeros(K)  # number of examples with each label
        for row, applying in zip(rows, labels, strict=True):
            features = list(row)
            everywhere.update(features)
            columns = list(applying)
            totals[columns] += len(features)
            examples[columns] += 1
            for feature in features:
                counts[feature].update(applying)
        # For each feature, the log of the ratio of its counts with and without a label: first that of labels
        # that it never occurs with, then what the ratios of the other labels add to it.
        self._seen = {}
        for feature, count in everywhere.items():
            by_label = counts[feature]
            without = -math.log(count + 1)
            added = []
            for n in by_label.values():
                ratio = (n + 1) / (count - n + 1)
                added.append(math.log(ratio) - without)
            self._seen[feature] = without, list(by_label), added
        V = len(everywhere)
        other_totals = everywhere.total() - totals
        log_total = np.log(np.maximum(1, totals + V))
        log_other_total = np.log(np.maximum(1, other_totals + V))
        self._unseen = log_total - log_other_total
        other_examples = len(labels) - examples
        log_examples = np.log(np.maximum(examples, 1e-9))
        log_other_examples = np.log(np.maximum(other_examples, 1e-9))
        self._prior = log_examples - log_other_examples

    # -> (n,K)
    def log_odds(self, rows: Iterable[Iterable[Hashable]]) -> np.ndarray:
        """Return log p(label applies, features) - log p(it does not, features) for each example and label.

        Parameters
        ----------
        rows : iterable of lists
            The features of each example; those that never occurred in training are ignored.

        Returns
        -------
        numpy.ndarray
            (n,K) float64, natural logarithms.
        """
        result = []
        for row in rows:
            known = [self._seen[feature] for feature in row if feature in self._seen]
            without = sum(without for without, _, _ in known)
            scores = self._prior - len(known) * self._unseen + without
            for _, applying, added in known:
                scores[applying] += added
            result.append(scores)
        return np.array(result).reshape(len(result), len(self._prior))


class BagOfWords:
    """Naive Bayes over words that answers a task of text classification.

    Parameters
    ----------
    examples : sequence of TextExample
        The training examples, with labels: strings, or tuples of strings if several may apply.
    labels : tuple of str
        The classes.
    several : bool, default False
        Whether several classes may apply to a text.
    """

    def __init__(self, examples: Examples, labels: Labels, several: bool = False) -> None:
        rows = map(features_of, examples)
        numbers = {label: k for k, label in enumerate(labels)}
        self._labels = tuple(labels)
        self._bayes: NaiveBayes | NaiveBayesOfEach
        if several:
            applying = [[numbers[label] for label in example.label] for example in examples]
            self._bayes = NaiveBayesOfEach(rows, applying, len(labels))
        else:
            classes = [numbers[example.label] for example in examples]
            self._bayes = NaiveBayes(rows, classes, len(labels))

    def predictions(self, examples: Examples) -> Predictions:
        """Return predictions in the form in which a model of the task makes them.

        Parameters
        ----------
        examples : sequence of TextExample
            The examples. Labels need not be known.

        Returns
        -------
        list of dict
            `label`; if several classes may apply, `labels`, those with a probability of at least one half,
            and `probabilities`.
        """
        rows = map(features_of, examples)
        if isinstance(self._bayes, NaiveBayes):
            best = self._bayes.log_probabilities(rows).argmax(axis=1)
            return [{"label": self._labels[k]} for k in best]
        return [multilabel.prediction(scores, self._labels, {}) for scores in self._bayes.log_odds(rows)]
