"""Compute the strongest trivial baseline of a task, to compare models with.

Of a few rules the one that is best on dev by what is judged is taken, which favours it, and is meant to.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np

from minibert.experiments.outcomes import measured
from minibert.tasks.bag_of_words import WORD, NaiveBayes, features_of, words_of
from minibert.tasks.metrics.entities import OUTSIDE, chunks
from minibert.tasks.task import Examples, Labels, Predictions, Task

COMMON = 100  # most frequent words, of which no answer is made
Named = Iterator[tuple[str, Predictions]]


def strongest(task: Task, train: Examples, dev: Examples, labels: Labels) -> tuple[str, Predictions]:
    """Return the baseline that is best on dev.

    Parameters
    ----------
    task : Task
        Its kind says which rules are tried.
    train : sequence
        Labelled examples, from which the rules are made.
    dev : sequence
        Labelled examples, to choose a rule by; not empty.
    labels : tuple of str
        The classes, for a task that has them.

    Returns
    -------
    name : str
    predictions : sequence
        Of each example of `dev`.
    """
    makers = {
        "classify": _classes,
        "regress": _numbers,
        "choice": _choices,
        "span": _spans,
        "tag": _tags,
    }
    make = makers[task.kind]
    predictions = dict(make(train, dev, labels))

    def score(name: str) -> float:
        return measured(task, dev, predictions[name]).score()

    best = max(predictions, key=score)
    return best, predictions[best]


def _cosine(first: str, second: str) -> float:
    """Return the cosine of the counts of two texts' words; 0.0 where one has none."""
    a = Counter(words_of(first))
    b = Counter(words_of(second))
    squares_of_a = sum(n * n for n in a.values())
    squares_of_b = sum(n * n for n in b.values())
    length = math.sqrt(squares_of_a * squares_of_b)
    if not length:
        return 0.0
    product = sum(n * b[word] for word, n in a.items())
    return product / length


def _classes(train: Examples, dev: Examples, labels: Labels) -> Named:
    """Yield each class as the answer to everything, and naive Bayes of three kinds of features."""
    for label in labels:
        yield f"always {label}", [{"label": label}] * len(dev)
    classes = [labels.index(example.label) for example in train]
    kinds = ("shared words", "words", "words and word pairs")
    for longest, what in enumerate(kinds):
        known = [features_of(example, longest) for example in train]
        asked = [features_of(example, longest) for example in dev]
        bayes = NaiveBayes(known, classes, len(labels))
        best = bayes.log_probabilities(asked).argmax(axis=1)
        yield f"naive Bayes of {what}", [{"label": labels[k]} for k in best]


def _numbers(train: Examples, dev: Examples, labels: Labels) -> Named:
    """Yield the mean, and for pairs the cosine of their words on the scale of train's numbers."""
    values = [float(example.label) for example in train]
    yield "mean of train", [{"value": float(np.mean(values))}] * len(dev)
    if dev[0].second is not None:
        low = min(values)
        width = max(values) - low
        predictions = []
        for example in dev:
            cosine = _cosine(example.first, example.second)
            predictions.append({"value": low + width * cosine})
        yield "cosine of the words", predictions


def _choices(train: Examples, dev: Examples, labels: Labels) -> Named:
    """Yield each place among the endings, and the ending with most words of the context."""
    for k in range(len(dev[0].endings)):
        yield f"always number {k + 1}", [{"choice": k}] * len(dev)
    choices = []
    for example in dev:
        cosines = [_cosine(example.context, ending) for ending in example.endings]
        choices.append({"choice": int(np.argmax(cosines))})
    yield "cosine of the words", choices


def _tags(train: Examples, dev: Examples, labels: Labels) -> Named:
    """Yield the usual tag of each word, and the entities of train wherever they stand."""
    tags = Counter[str]()
    words: dict[Any, Counter[str]] = defaultdict(Counter)  # tags of each
    phrases: dict[Any, Counter[str]] = defaultdict(Counter)  # types of each
    for example in train:
        tags.update(example.tags)
        for word, tag in zip(example.words, example.tags, strict=True):
            words[word][tag] += 1
        for kind, begin, end in chunks(example.tags):
            phrases[example.words[begin:end]][kind] += 1
    usual = _most_frequent(tags)
    tag_of = {word: _most_frequent(counts) for word, counts in words.items()}
    kinds = {phrase: _most_frequent(counts) for phrase, counts in phrases.items()}
    by_word = []
    by_phrase = []
    for example in dev:
        by_word.append([tag_of.get(word, usual) for word in example.words])
        by_phrase.append(_entities(example.words, kinds))
    yield "most frequent tag of each word", by_word
    yield "entities of train", by_phrase


def _most_frequent(counts: Counter[str]) -> str:
    """Return the most frequent item, of several the first."""
    return counts.most_common(1)[0][0]


def _entities(words: tuple[str, ...], kinds: dict[Any, str]) -> list[str]:
    """Tag the entities of train, left to right, longest first: the baseline of CoNLL-2003's shared task."""
    tags = [OUTSIDE] * len(words)
    longest = max(map(len, kinds), default=0)
    begin = 0
    while begin < len(words):
        last = min(len(words), begin + longest)
        ends = (end for end in range(last, begin, -1) if words[begin:end] in kinds)
        end = next(ends, 0)
        if end:
            kind = kinds[words[begin:end]]
            inside = [f"I-{kind}"] * (end - begin - 1)
            tags[begin:end] = [f"B-{kind}", *inside]
        begin = max(end, begin + 1)
    return tags


def _spans(train: Examples, dev: Examples, labels: Labels) -> Named:
    """Yield the empty answer, and what stands near the words of the question in the context."""
    yield "no answer", [{"id": example.id, "text": ""} for example in dev]
    counts = Counter[str]()
    for example in train:
        counts.update(words_of(example.context))
    common = dict(counts.most_common(COMMON))
    for what, names in (("words", False), ("names and numbers", True)):
        answers = []
        for example in dev:
            text = _nearest(example.question, example.context, common, names)
            answers.append({"id": example.id, "text": text})
        yield f"{what} near the question's", answers


def _nearest(question: str, context: str, common: dict[str, int], names: bool) -> str:
    """Choose words in a row, of those neither common nor in the question, near to the question's.

    A word of the question counts log(1 + 1/n) where the context has it n times, as in the sliding window of
    Richardson et al. (2013), by the root of its distance. With `names` those with capitals or digits only.
    """
    places = list(WORD.finditer(context))
    words = [place[0].lower() for place in places]
    asked = {word for word in words_of(question) if word.isalnum()}
    counts = Counter(words)
    weights = np.array([math.log1p(1 / counts[word]) if word in asked else 0.0 for word in words])

    def may_answer(word: str, as_written: str) -> bool:
        if not word.isalnum() or word in asked or word in common:
            return False
        return not (names and as_written.islower())

    fit = [may_answer(word, place[0]) for word, place in zip(words, places, strict=True)]
    numbers = np.arange(len(words))
    best, text = -1.0, ""
    begin = 0
    for fits, row in groupby(fit):
        end = begin + len(list(row))
        distances = np.maximum(1, np.maximum(begin - numbers, numbers - end + 1))
        score = (weights / np.sqrt(distances)).sum()
        if fits and score > best:
            best = score
            text = context[places[begin].start() : places[end - 1].end()]
        begin = end
    return text
