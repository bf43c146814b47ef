"""How alike two texts are, each read by itself: the cosine of their vectors, to compare and to search by.

Two texts are two sequences, `[CLS] first [SEP]` and `[CLS] second [SEP]`. From pairs with a score the model
learns the score (`similarity`, `stsb-similarity`); from pairs that belong together (`similar-pairs`) it
learns which second text is each first one's. `similarity_losses.py` has the mathematics.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np

from minibert.base.errors import InputError
from minibert.core.batch import Feature, Sequence
from minibert.data import glue
from minibert.data.glue import TextExample
from minibert.data.tables import MissingColumn
from minibert.tasks.cuts import with_marks
from minibert.tasks.metrics.intervals import Statistic, mean_of
from minibert.tasks.sentences import BLOCK, COLUMNS, OwnTexts
from minibert.tasks.task import Examples, Labels, Mistake, Outputs, Predictions, Tuned
from minibert.tokenizer.written import WrittenTokens

OFFICIAL, PAIRS = "stsb-similarity", "similar-pairs"
BASELINE = "TF-IDF of words"
Vectors = list[dict[str, float]]  # of words


class Similarity(OwnTexts):
    """Pairs with a score, -1 to 1. A prediction is `{"value": cosine}`; parameters are as for `OwnTexts`."""

    kind = "cosine"
    numeric = True
    scored = ("spearman", "pearson")
    pair = True

    def __init__(self, name: str, title: str, columns: Mapping[str, Any]) -> None:
        super().__init__(name, title, {"second": "second"} | dict(columns))

    def read(self, data: Path, split: str) -> list[TextExample]:
        if self.name == OFFICIAL:
            highest, found = glue.HIGHEST_SCORE, glue.read("stsb", data, split)
            return [e if e.label is None else e._replace(label=float(e.label) / highest) for e in found]
        try:
            found = self._own(data, split, numeric=True)
        except MissingColumn as error:
            if error.role != "label":
                raise
            advice = f"{error} Pairs without a score are what the task {PAIRS} learns from."
            raise MissingColumn(advice, error.role, error.path, error.header) from error
        for example in found:
            if example.label is not None and not -1 <= float(example.label) <= 1:
                what = f"{self.place(example)} has the label {example.label:g}, expected a cosine, -1 to 1"
                raise InputError(f"{what}; divide all of them by the highest there can be.")
        return found

    def features(
        self, examples: Iterable[TextExample], tokenizer: Any, labels: Labels, max_length: int, training: bool
    ) -> Iterator[Feature]:
        examples, rows = iter(examples), count()
        numbers: dict[str, int] = {}  # of different texts
        written = WrittenTokens(tokenizer)
        while block := list(islice(examples, BLOCK)):
            texts = [text for example in block for text in (example.first, example.second)]
            encoded = tokenizer.encode_batch(texts, max_length=max_length)
            written.add(encoded)
            cuts = encoded.n_cut.tolist()
            every = (Sequence(o.ids, o.token_type_ids, cut=n) for o, n in zip(encoded, cuts, strict=True))
            for example in block:
                label: Any = example.label
                if self.kind == "contrastive":
                    pair = (example.first, str(example.second))
                    label = tuple(numbers.setdefault(text, len(numbers)) for text in pair)
                yield Feature(tuple(islice(every, 2)), label, None, next(rows))
        written.warn()

    def predict(
        self, examples: Examples, features: Any, outputs: Outputs, labels: Labels, tuned: Tuned
    ) -> list[dict[str, Any]]:
        return [{"value": float(np.prod(pair, axis=0, dtype=np.float64).sum())} for pair in outputs]

    def baselines(self, examples: Examples) -> dict[str, dict[str, float]]:
        pairs = zip(*_word_vectors(examples), strict=True)
        values = [sum(w * other.get(word, 0.0) for word, w in one.items()) for one, other in pairs]
        return {BASELINE: self.score(examples, [{"value": value} for value in values])}

    def as_read(self, mistake: Mistake, example: TextExample, tokenizer: Any, max_length: int) -> Mistake:
        texts = list(self.asked(example).values())[: 1 if self.kind == "contrastive" else 2]
        return mistake._replace(text="\n".join(with_marks(tokenizer, max_length, t)[0] for t in texts))


class SimilarPairs(Similarity):
    """Pairs that belong together. A prediction is `{"value": cosine, "rank": r, "closest": text}`.

    The rank is that of a pair's second text among all different second texts that are measured, from 1, by
    their cosines with its first text; equal ones share their mean rank. Other second texts of the same first
    one are no wrong answers, and are left out. Pairs of which nobody says that they belong together, as those
    of `minibert classify`, have no rank.
    """

    kind = "contrastive"
    scored = ("accuracy", "mrr")
    together = True
    known = tuple(column for column in COLUMNS if column != "label")

    def read(self, data: Path, split: str) -> list[TextExample]:
        return [one._replace(label=1.0) for one in self._own(data, split, label=None)]  # the highest cosine

    def predict(
        self, examples: Examples, features: Any, outputs: Outputs, labels: Labels, tuned: Tuned
    ) -> list[dict[str, Any]]:
        found = super().predict(examples, features, outputs, labels, tuned)
        if any(example.label is None for example in examples):
            return found
        vectors = np.stack([outputs[number][1] for number in _different(examples).values()])
        ranked = _ranked(examples, lambda number: vectors @ outputs[number][0])
        return [one | more for one, more in zip(found, ranked, strict=True)]

    def score(self, examples: Examples, predictions: Predictions) -> dict[str, float]:
        ranks = np.array([one["rank"] for one in predictions])
        return {"accuracy": float((ranks == 1).mean()), "mrr": float((1 / ranks).mean())}

    def statistic(self, examples: Examples, predictions: Predictions) -> Statistic:
        return mean_of(np.array([one["rank"] == 1 for one in predictions]))

    def baselines(self, examples: Examples) -> dict[str, dict[str, float]]:
        first, second = _word_vectors(examples)
        different = [second[number] for number in _different(examples).values()]
        having = defaultdict(list)  # of each word the texts, with its weight there
        for place, vector in enumerate(different):
            for word, weight in vector.items():
                having[word].append((place, weight))

        def scores(number: int) -> np.ndarray:
            found = np.zeros(len(different))
            for word, weight in first[number].items():
                for place, other in having.get(word, ()):
                    found[place] += weight * other
            return found

        return {BASELINE: self.score(examples, list(_ranked(examples, scores)))}

    def _mistakes(self, examples: Examples, predictions: Predictions) -> Iterator[Mistake]:
        """Yield wrong texts, the worse the more others are closer than the right one."""
        for number, (example, one) in enumerate(zip(examples, predictions, strict=True)):
            if one["rank"] > 1:
                yield Mistake(example.first, example.second, one["closest"], one["rank"], number)


def create(name: str, title: str, columns: Mapping[str, Any]) -> Similarity:
    """Make the task of that name."""
    return (SimilarPairs if name == PAIRS else Similarity)(name, title, columns)


def _different(examples: Examples) -> dict[str, int]:
    """Return the number of the first example with each different second text, in their order."""
    found: dict[str, int] = {}
    for number, example in enumerate(examples):
        found.setdefault(example.second, number)
    return found


# scores(number of an example) -> (C,) of its first text with each of C different second ones
def _ranked(examples: Examples, scores: Callable[[int], np.ndarray]) -> Iterator[dict[str, Any]]:
    """Yield rank and closest text of every example; see `SimilarPairs`."""
    texts = list(_different(examples))
    places = {text: place for place, text in enumerate(texts)}
    right = defaultdict(list)  # places of the second texts of each first one
    for example in examples:
        right[example.first].append(places[example.second])
    for number, example in enumerate(examples):
        others = scores(number)
        own = others[places[example.second]]
        others[right[example.first]] = -np.inf
        above, same = int((others > own).sum()), int((others == own).sum())
        closest = texts[int(others.argmax())] if above else example.second
        yield {"rank": 1 + above + same / 2, "closest": closest}


def _word_vectors(examples: Examples) -> tuple[Vectors, Vectors]:
    """Return TF-IDF vectors of first and second texts at length one.

    Words are counted, and weighted by 1 + log((1 + n) / (1 + texts that have it)) over all n texts, as
    scikit-learn's TfidfVectorizer does.
    """
    texts = [text for example in examples for text in (example.first, example.second)]
    counts = [Counter(re.findall(r"\w\w+", text.lower())) for text in texts]
    having = Counter(word for one in counts for word in one)
    weights = {word: 1 + math.log((1 + len(texts)) / (1 + n)) for word, n in having.items()}
    vectors = []
    for one in counts:
        vector = {word: n * weights[word] for word, n in one.items()}
        length = math.sqrt(sum(value * value for value in vector.values())) or 1.0
        vectors.append({word: value / length for word, value in vector.items()})
    return vectors[::2], vectors[1::2]
