"""Similarity of texts that are read one by one: the cosine of their vectors, for comparison and search.

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
from minibert.tasks.metrics.intervals import Statistic, mean_of
from minibert.tasks.sentences import BLOCK, COLUMNS, CustomTexts
from minibert.tasks.task import Examples, Labels, Mistake, Outputs, Predictions, Tuned
from minibert.tasks.truncation import with_marks
from minibert.tokenizer.written import WrittenTokens

OFFICIAL, PAIRS = "stsb-similarity", "similar-pairs"
BASELINE = "TF-IDF of words"
Vectors = list[dict[str, float]]  # of words


class Similarity(CustomTexts):
    """Pairs with a score, -1 to 1. A prediction is `{"value": cosine}`; parameters are as for `CustomTexts`.

    Parameters
    ----------
    name : str
        "similarity" for a custom table, or "stsb-similarity".
    title : str
        A line for people.
    columns : mapping
        As of `CustomTexts`; the second text is by default in a column of the name "second".
    """

    kind = "cosine"
    numeric = True
    scored = ("spearman", "pearson")
    pair = True

    def __init__(self, name: str, title: str, columns: Mapping[str, Any]) -> None:
        super().__init__(name, title, {"second": "second"} | dict(columns))

    def read(self, data: Path, split: str) -> list[TextExample]:
        """Read the pairs of one split.

        Parameters
        ----------
        data : Path
            Folder of the tables, or of the official files, or a file.
        split : str
            "train", "dev" or "test".

        Returns
        -------
        list of TextExample
            With scores from -1 to 1; those of STS-B are divided by 5.

        Raises
        ------
        MissingColumn
            When there is no column of scores.
        InputError
            When a score is not a cosine; its place is named.
        """
        if self.name == OFFICIAL:
            examples = []
            for example in glue.read("stsb", data, split):
                if example.label is not None:
                    example = example._replace(label=float(example.label) / glue.HIGHEST_SCORE)
                examples.append(example)
            return examples
        try:
            examples = self._custom(data, split, numeric=True)
        except MissingColumn as error:
            if error.role != "label":
                raise
            advice = f"{error} For pairs without a score there is the task {PAIRS}."
            raise MissingColumn(advice, error.role, error.path, error.header) from error
        for example in examples:
            if example.label is not None and not -1 <= float(example.label) <= 1:
                problem = f"the label {example.label:g} is not a cosine, from -1 to 1"
                advice = "divide all labels by the highest possible one."
                raise InputError(f"{problem}; {advice}", where=self.place(example))
        return examples

    def features(
        self,
        examples: Iterable[TextExample],
        tokenizer: Any,
        labels: Labels,
        max_length: int,
        training: bool,
    ) -> Iterator[Feature]:
        """Yield the two sequences of each pair.

        Parameters
        ----------
        examples : iterable of TextExample
            In their order, which `Feature.example` counts from 0.
        tokenizer : Tokenizer
            That of the model.
        labels : tuple of str
            Not needed: (), as cosines are not classes.
        max_length : int
            Most tokens of a sequence, [CLS] and [SEP] included.
        training : bool
            Not needed: labels that are missing stay None.

        Yields
        ------
        Feature
            With the score of the pair as its label or, for pairs that belong together, with the numbers of
            both texts among all different ones.
        """
        source = iter(examples)
        rows = count()
        numbers: dict[str, int] = {}  # of different texts
        written = WrittenTokens(tokenizer)
        while block := list(islice(source, BLOCK)):
            texts: list[Any] = []
            for example in block:
                texts += (example.first, example.second)
            encoded = tokenizer.encode_batch(texts, max_length=max_length)
            written.add(encoded)
            sequences = (
                Sequence(encoding.ids, encoding.token_type_ids, cut=cut)
                for encoding, cut in zip(encoded, encoded.n_cut.tolist(), strict=True)
            )
            for example in block:
                label: Any = example.label
                if self.kind == "contrastive":
                    pair = (example.first, str(example.second))
                    label = tuple(numbers.setdefault(text, len(numbers)) for text in pair)
                yield Feature(tuple(islice(sequences, 2)), label, None, next(rows))
        written.warn()

    def predict(
        self,
        examples: Examples,
        features: Any,
        outputs: Outputs,
        labels: Labels,
        tuned: Tuned,
    ) -> list[dict[str, Any]]:
        """Return the cosine of every pair.

        Parameters
        ----------
        examples : sequence of TextExample
            As `read` returned them.
        features : sequence of Feature
            Not needed: the outputs are in the order of the examples.
        outputs : sequence of numpy.ndarray
            The vectors of both texts of each pair, (2,H), at length one.
        labels : tuple of str
            Not needed: (), as outputs are not classes.
        tuned : dict
            What `tune` chose on dev. Not needed.

        Returns
        -------
        list of dict
            `value`, -1 to 1.
        """
        predictions = []
        for vectors in outputs:
            products = np.prod(vectors, axis=0, dtype=np.float64)
            predictions.append({"value": float(products.sum())})
        return predictions

    def baselines(self, examples: Examples) -> dict[str, dict[str, float]]:
        """Score the cosines of the words' TF-IDF.

        Parameters
        ----------
        examples : sequence of TextExample
            As `read` returned them, each with its label.

        Returns
        -------
        dict
            Metrics, by the name of the baseline.
        """
        predictions = []
        first_vectors, second_vectors = _word_vectors(examples)
        for first, second in zip(first_vectors, second_vectors, strict=True):
            products = [weight * second.get(word, 0.0) for word, weight in first.items()]
            predictions.append({"value": sum(products)})
        return {BASELINE: self.score(examples, predictions)}

    def as_read(
        self,
        mistake: Mistake,
        example: TextExample,
        tokenizer: Any,
        max_length: int,
    ) -> Mistake:
        """Mark in a mistake where the model stopped reading each text.

        Parameters
        ----------
        mistake : Mistake
            One of `mistakes`.
        example : TextExample
            Which it was made of.
        tokenizer : Tokenizer
            That of the model.
        max_length : int
            Most tokens of a sequence, as the model has read it.

        Returns
        -------
        Mistake
            With both texts; of pairs that belong together with the first, which is what was asked.
        """
        texts = list(self.asked(example).values())
        if self.kind == "contrastive":
            texts = texts[:1]
        marked = [with_marks(tokenizer, max_length, text)[0] for text in texts]
        return mistake._replace(text="\n".join(marked))


class SimilarPairs(Similarity):
    """Pairs that belong together. A prediction is `{"value": cosine, "rank": r, "closest": text}`.

    The rank is that of a pair's second text among all different second texts that are measured, from 1, by
    their cosines with its first text; equal ones share their mean rank. Other second texts of the same first
    one are not wrong answers, and are left out. Pairs that are not known to belong together, such as those of
    `minibert classify`, have no rank.
    """

    kind = "contrastive"
    scored = ("accuracy", "mrr")
    needs_all_examples = True
    known = tuple(column for column in COLUMNS if column != "label")

    def read(self, data: Path, split: str) -> list[TextExample]:
        """Read the pairs of one split.

        Parameters
        ----------
        data : Path
            Folder of the tables, or a file.
        split : str
            "train", "dev" or "test".

        Returns
        -------
        list of TextExample
            Each with the label 1.0, the highest cosine.
        """
        return [example._replace(label=1.0) for example in self._custom(data, split, label=None)]

    def predict(
        self,
        examples: Examples,
        features: Any,
        outputs: Outputs,
        labels: Labels,
        tuned: Tuned,
    ) -> list[dict[str, Any]]:
        """Return cosine, rank and closest text of every pair.

        Parameters
        ----------
        examples : sequence of TextExample
            As `read` returned them.
        features : sequence of Feature
            Not needed: the outputs are in the order of the examples.
        outputs : sequence of numpy.ndarray
            The vectors of both texts of each pair, (2,H), at length one.
        labels : tuple of str
            Not needed: (), as outputs are not classes.
        tuned : dict
            What `tune` chose on dev. Not needed.

        Returns
        -------
        list of dict
            See `SimilarPairs`.
        """
        predictions = super().predict(examples, features, outputs, labels, tuned)
        if any(example.label is None for example in examples):
            return predictions
        numbers = _different(examples).values()
        second = np.stack([outputs[number][1] for number in numbers])

        def scores(number: int) -> np.ndarray:
            first = outputs[number][0]
            return second @ first

        ranked = _ranked(examples, scores)
        return [prediction | rank for prediction, rank in zip(predictions, ranked, strict=True)]

    def score(self, examples: Examples, predictions: Predictions) -> dict[str, float]:
        """Compute how often the right text is the closest, and the mean of 1 / rank.

        Parameters
        ----------
        examples : sequence of TextExample
            As `read` returned them.
        predictions : list of dict
            What `predict` made of the examples, in their order.

        Returns
        -------
        dict
            `accuracy` and `mrr`.
        """
        ranks = np.array([prediction["rank"] for prediction in predictions])
        accuracy = (ranks == 1).mean()
        mean_reciprocal_rank = (1 / ranks).mean()
        return {"accuracy": float(accuracy), "mrr": float(mean_reciprocal_rank)}

    def statistic(self, examples: Examples, predictions: Predictions) -> Statistic:
        """Return the accuracy as a function of examples, for its interval.

        Parameters
        ----------
        examples : sequence of TextExample
            As `read` returned them.
        predictions : list of dict
            What `predict` made of the examples, in their order.

        Returns
        -------
        Mean
            Of whether each text is the closest. Ranks are those among all texts, whichever examples are
            drawn.
        """
        right = [prediction["rank"] == 1 for prediction in predictions]
        return mean_of(np.array(right))

    def baselines(self, examples: Examples) -> dict[str, dict[str, float]]:
        """Score the ranks by the cosines of the words' TF-IDF.

        Parameters
        ----------
        examples : sequence of TextExample
            As `read` returned them.

        Returns
        -------
        dict
            Metrics, by the name of the baseline.
        """
        first, second = _word_vectors(examples)
        numbers = _different(examples).values()
        different = [second[number] for number in numbers]
        having = defaultdict(list)  # of each word the texts, with its weight there
        for place, vector in enumerate(different):
            for word, weight in vector.items():
                having[word].append((place, weight))

        def scores(number: int) -> np.ndarray:
            cosines = np.zeros(len(different))
            for word, weight in first[number].items():
                for place, other_weight in having.get(word, ()):
                    cosines[place] += weight * other_weight
            return cosines

        ranked = list(_ranked(examples, scores))
        return {BASELINE: self.score(examples, ranked)}

    def _mistakes(self, examples: Examples, predictions: Predictions) -> Iterator[Mistake]:
        """Yield wrong texts, worse if more texts are closer than the right one."""
        for number, (example, prediction) in enumerate(zip(examples, predictions, strict=True)):
            rank = prediction["rank"]
            if rank > 1:
                yield Mistake(example.first, example.second, prediction["closest"], rank, number)


def create(name: str, title: str, columns: Mapping[str, Any]) -> Similarity:
    """Make the task of that name.

    Parameters
    ----------
    name : str
        "similarity", "stsb-similarity" or "similar-pairs".
    title : str
        A line for people.
    columns : mapping
        What the columns of a custom table are called.

    Returns
    -------
    Similarity
        The task.
    """
    if name == PAIRS:
        return SimilarPairs(name, title, columns)
    return Similarity(name, title, columns)


def _different(examples: Examples) -> dict[str, int]:
    """Return the number of the first example with each different second text, in their order."""
    numbers: dict[str, int] = {}
    for number, example in enumerate(examples):
        numbers.setdefault(example.second, number)
    return numbers


# scores(number of an example) -> (C,) of its first text with each of C different second ones
def _ranked(examples: Examples, scores: Callable[[int], np.ndarray]) -> Iterator[dict[str, Any]]:
    """Yield rank and closest text of every example; see `SimilarPairs`."""
    texts = list(_different(examples))
    places = {text: place for place, text in enumerate(texts)}
    right = defaultdict(list)  # places of the second texts of each first one
    for example in examples:
        right[example.first].append(places[example.second])
    for number, example in enumerate(examples):
        cosines = scores(number)
        place = places[example.second]
        right_cosine = cosines[place]
        cosines[right[example.first]] = -np.inf
        n_above = int((cosines > right_cosine).sum())
        n_same = int((cosines == right_cosine).sum())
        closest = example.second
        if n_above:
            closest = texts[int(cosines.argmax())]
        rank = 1 + n_above + n_same / 2
        yield {"rank": rank, "closest": closest}


def _word_vectors(examples: Examples) -> tuple[Vectors, Vectors]:
    """Return TF-IDF vectors of first and second texts at length one.

    Words are counted, and weighted by 1 + log((1 + n) / (1 + texts that have it)) over all n texts, as
    scikit-learn's TfidfVectorizer does.
    """
    counts = []
    for example in examples:
        for text in (example.first, example.second):
            words = re.findall(r"\w\w+", text.lower())
            counts.append(Counter(words))
    texts_having: Counter[str] = Counter()
    for words_of_text in counts:
        texts_having.update(words_of_text.keys())
    weights = {}
    for word, n in texts_having.items():
        ratio = (1 + len(counts)) / (1 + n)
        weights[word] = 1 + math.log(ratio)
    vectors = []
    for words_of_text in counts:
        vector = {word: n * weights[word] for word, n in words_of_text.items()}
        squares = sum(value * value for value in vector.values())
        length = math.sqrt(squares) or 1.0
        vectors.append({word: value / length for word, value in vector.items()})
    return vectors[::2], vectors[1::2]
