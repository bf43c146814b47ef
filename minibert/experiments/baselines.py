"""Compute the strongest trivial baseline of a task, to compare models with.

A few rules are tried, and the one that scores best on the very examples that are judged is taken. That
favours the baseline, on purpose.
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

COMMON = 100  # how many of the most frequent words never form an answer
Named = Iterator[tuple[str, Predictions]]  # the name of a rule, and what it predicts for dev


def strongest(task: Task, train: Examples, dev: Examples, labels: Labels) -> tuple[str, Predictions]:
    """Return the baseline that is best on dev.

    Parameters
    ----------
    task : Task
        Its kind determines which rules are tried.
    train : sequence
        Labelled examples to derive the rules from.
    dev : sequence
        Labelled examples to choose a rule by; not empty.
    labels : tuple of str
        The classes, for a task that has them.

    Returns
    -------
    name : str
        Name of the rule.
    predictions : sequence
        One prediction for each example of `dev`.
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
    """Return the cosine similarity of the word counts of two texts; 0.0 if either has no words."""
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
    """Yield each class as a constant answer, and naive Bayes on three kinds of features."""
    for label in labels:
        yield f"always {label}", [{"label": label}] * len(dev)
    classes = [labels.index(example.label) for example in train]
    kinds = ("shared words", "words", "words and word pairs")
    for longest, what in enumerate(kinds):
        train_features = [features_of(example, longest) for example in train]
        dev_features = [features_of(example, longest) for example in dev]
        bayes = NaiveBayes(train_features, classes, len(labels))
        best = bayes.log_probabilities(dev_features).argmax(axis=1)
        yield f"naive Bayes of {what}", [{"label": labels[k]} for k in best]


def _numbers(train: Examples, dev: Examples, labels: Labels) -> Named:
    """Yield the mean and, for pairs, the cosine of their words rescaled to the range of train's numbers."""
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
    """Yield each position among the endings, and the ending whose words are most similar to the context's."""
    for k in range(len(dev[0].endings)):
        yield f"always number {k + 1}", [{"choice": k}] * len(dev)
    choices = []
    for example in dev:
        cosines = [_cosine(example.context, ending) for ending in example.endings]
        choices.append({"choice": int(np.argmax(cosines))})
    yield "cosine of the words", choices


def _tags(train: Examples, dev: Examples, labels: Labels) -> Named:
    """Yield the most frequent tag of each word, and the entities of train wherever they occur."""
    tags = Counter[str]()
    words: dict[Any, Counter[str]] = defaultdict(Counter)  # a word -> its tags
    phrases: dict[Any, Counter[str]] = defaultdict(Counter)  # an entity's words -> its types
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
    """Return the most frequent item; the first of several."""
    return counts.most_common(1)[0][0]


def _entities(words: tuple[str, ...], kinds: dict[Any, str]) -> list[str]:
    """Tag entities seen in train, longest match first: the baseline of the CoNLL-2003 shared task."""
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
    """Yield the empty answer, and words of the context that are near those of the question."""
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
    """Choose the run of candidate words of the context that is nearest to the words of the question.

    A candidate is neither common nor in the question and, with `names`, has a capital or a digit. A word of
    the question that occurs n times in the context has the weight log(1 + 1/n), as in the sliding window of
    Richardson et al. (2013), here divided by the square root of its distance.
    """
    matches = list(WORD.finditer(context))
    words = [match[0].lower() for match in matches]
    question_words = {word for word in words_of(question) if word.isalnum()}
    counts = Counter(words)
    weights = np.array([math.log1p(1 / counts[word]) if word in question_words else 0.0 for word in words])

    def may_answer(word: str, as_written: str) -> bool:
        if not word.isalnum() or word in question_words or word in common:
            return False
        return not (names and as_written.islower())

    candidates = [may_answer(word, match[0]) for word, match in zip(words, matches, strict=True)]
    positions = np.arange(len(words))
    best, text = -1.0, ""
    begin = 0
    for is_candidate, run in groupby(candidates):
        end = begin + len(list(run))
        distances = np.maximum(1, np.maximum(begin - positions, positions - end + 1))
        score = (weights / np.sqrt(distances)).sum()
        if is_candidate and score > best:
            best = score
            text = context[matches[begin].start() : matches[end - 1].end()]
        begin = end
    return text
