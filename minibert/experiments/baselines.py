"""The strongest trivial baseline of a task, for the metrics of models to be read beside.

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
    """Return the name of the baseline that is best on dev, and its predictions there."""
    makers = {"classify": _classes, "regress": _numbers, "choice": _choices, "span": _spans, "tag": _tags}
    found = dict(makers[task.kind](train, dev, labels))
    best = max(found, key=lambda name: measured(task, dev, found[name]).score())
    return best, found[best]


def _cosine(*texts: str) -> float:
    a, b = (Counter(words_of(text)) for text in texts)
    length = math.sqrt(sum(n * n for n in a.values()) * sum(n * n for n in b.values()))
    return sum(a[word] * b[word] for word in a) / length if length else 0.0


def _classes(train: Examples, dev: Examples, labels: Labels) -> Named:
    for label in labels:
        yield f"always {label}", [{"label": label}] * len(dev)
    classes = [labels.index(one.label) for one in train]
    for n, what in enumerate(("shared words", "words", "words and word pairs")):
        known, asked = ([features_of(one, n) for one in part] for part in (train, dev))
        best = NaiveBayes(known, classes, len(labels)).log_probabilities(asked).argmax(axis=1)
        yield f"naive Bayes of {what}", [{"label": labels[k]} for k in best]


def _numbers(train: Examples, dev: Examples, labels: Labels) -> Named:
    values = [float(one.label) for one in train]
    yield "mean of train", [{"value": float(np.mean(values))}] * len(dev)
    if dev[0].second is not None:
        low, width = min(values), max(values) - min(values)
        yield "cosine of the words", [{"value": low + width * _cosine(one.first, one.second)} for one in dev]


def _choices(train: Examples, dev: Examples, labels: Labels) -> Named:
    for k in range(len(dev[0].endings)):
        yield f"always number {k + 1}", [{"choice": k}] * len(dev)
    cosines = ([_cosine(one.context, ending) for ending in one.endings] for one in dev)
    yield "cosine of the words", [{"choice": int(np.argmax(row))} for row in cosines]


def _tags(train: Examples, dev: Examples, labels: Labels) -> Named:
    words: dict[Any, Counter[str]] = defaultdict(Counter)
    phrases: dict[Any, Counter[str]] = defaultdict(Counter)
    for one in train:
        for word, tag in zip(one.words, one.tags, strict=True):
            words[word][tag] += 1
        for kind, begin, end in chunks(one.tags):
            phrases[one.words[begin:end]][kind] += 1
    usual = Counter(tag for one in train for tag in one.tags).most_common(1)[0][0]
    tag_of, kinds = ({k: n.most_common(1)[0][0] for k, n in one.items()} for one in (words, phrases))
    yield "most frequent tag of each word", [[tag_of.get(word, usual) for word in one.words] for one in dev]
    yield "entities of train", [_entities(one.words, kinds) for one in dev]


def _entities(words: tuple[str, ...], kinds: dict[Any, str]) -> list[str]:
    """Tag the entities of train, left to right, longest first: the baseline of CoNLL-2003's shared task."""
    tags, begin, longest = [OUTSIDE] * len(words), 0, max(map(len, kinds), default=0)
    while begin < len(words):
        ends = range(min(len(words), begin + longest), begin, -1)
        if end := next((end for end in ends if words[begin:end] in kinds), 0):
            kind = kinds[words[begin:end]]
            tags[begin:end] = [f"B-{kind}"] + [f"I-{kind}"] * (end - begin - 1)
        begin = max(end, begin + 1)
    return tags


def _spans(train: Examples, dev: Examples, labels: Labels) -> Named:
    yield "no answer", [{"id": one.id, "text": ""} for one in dev]
    common = dict(Counter(word for one in train for word in words_of(one.context)).most_common(COMMON))
    for what, names in (("words", False), ("names and numbers", True)):
        found = ((one.id, _nearest(one.question, one.context, common, names)) for one in dev)
        yield f"{what} near the question's", [{"id": id, "text": text} for id, text in found]


def _nearest(question: str, context: str, common: dict[str, int], names: bool) -> str:
    """Choose words in a row, of those neither common nor in the question, near to the question's.

    A word of the question counts log(1 + 1/n) where the context has it n times, as in the sliding window of
    Richardson et al. (2013), by the root of its distance. With `names` those with capitals or digits only.
    """
    places = list(WORD.finditer(context))
    words, asked = [one[0].lower() for one in places], {*filter(str.isalnum, words_of(question))}
    counts, at, best, text, begin = Counter(words), np.arange(len(words)), -1.0, "", 0
    weights = np.array([math.log1p(1 / counts[word]) if word in asked else 0.0 for word in words])
    fit = [
        one.isalnum() and not (one in asked or one in common or (names and place[0].islower()))
        for one, place in zip(words, places, strict=True)
    ]
    for fits, row in groupby(fit):
        end = begin + len(list(row))
        score = (weights / np.sqrt(np.maximum(1, np.maximum(begin - at, at - end + 1)))).sum()
        if fits and score > best:
            best, text = score, context[places[begin].start() : places[end - 1].end()]
        begin = end
    return text
