"""Similarity of texts that are read one at a time: the cosine of their vectors, for comparison and search.

Two texts are two sequences, `[CLS] first [SEP]` and `[CLS] second [SEP]`. From pairs with a score the model
learns to predict the score (`similarity`, `stsb-similarity`). From pairs that belong together
(`similar-pairs`) it learns to find the second text of each first one. The losses are in
`similarity_losses.py`.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count, islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from minibert.base.errors import InputError
from minibert.core.batch import Feature
from minibert.data import glue
from minibert.data.glue import TextExample
from minibert.data.tables import MissingColumn
from minibert.tasks.metrics.intervals import Statistic, mean_of
from minibert.tasks.sentences import BLOCK, COLUMNS, CustomTexts
from minibert.tasks.task import Examples, Labels, Mistake, Outputs, Predictions, Tuned
from minibert.tasks.truncation import sequences_of, with_marks
from minibert.tokenizer.written import WrittenTokens

OFFICIAL, PAIRS = "stsb-similarity", "similar-pairs"
BASELINE = "TF-IDF of words"
Vectors = list[dict[str, float]]  # for each text, the weights of its words


class Similarity(CustomTexts):
    """Pairs of texts with a score from -1 to 1. A prediction is `{"value": cosine}`.

    Parameters
    ----------
    name : str
        "similarity" for a custom table, or "stsb-similarity".
    title : str
        A one-line description.
    columns : mapping
        Names of the columns by their role, see `CustomTexts`. The default column of the second text is
        "second".
    """

    kind = "cosine"
    numeric = True
    scored = ("spearman", "pearson")
    pair = True
    reading: ClassVar[dict[str, Any]] = {"numeric": True}

    def __init__(self, name: str, title: str, columns: Mapping[str, Any]) -> None:
        super().__init__(name, title, {"second": "second"} | dict(columns))

    def read(self, data: Path, split: str) -> list[TextExample]:
        """Read the pairs of one split.

        Returns
        -------
        list of TextExample
            Pairs with scores from -1 to 1; those of STS-B are divided by 5.

        Raises
        ------
        MissingColumn
            When there is no column of scores.
        InputError
            When a score is not a cosine; the error says where it is.
        """
        if self.name == OFFICIAL:
            examples = []
            for example in glue.read("stsb", data, split):
                if example.label is not None:
                    example = example._replace(label=float(example.label) / glue.HIGHEST_SCORE)
                examples.append(example)
            return examples
        try:
            examples = super().read(data, split)
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
        """Yield the two sequences of each pair. A missing label stays None, in training as well.

        Yields
        ------
        Feature
            With the score of the pair as its label or, for pairs that belong together, with the indices of
            both texts among all distinct ones.
        """
        source = iter(examples)
        indices = count()
        text_indices: dict[str, int] = {}  # of distinct texts, in the order of their first occurrence
        written = WrittenTokens(tokenizer)
        while block := list(islice(source, BLOCK)):
            texts: list[Any] = []
            for example in block:
                texts += (example.first, example.second)
            encoded = tokenizer.encode_batch(texts, max_length=max_length)
            written.add(encoded)
            sequences = sequences_of(encoded)
            for example in block:
                target = self._target(example, text_indices)
                yield Feature(tuple(islice(sequences, 2)), target, None, next(indices))
        written.warn()

    def _target(self, example: TextExample, text_indices: dict[str, int]) -> Any:
        """Return what the loss compares the two vectors of a pair with: here its score.

        A subclass may need to know which texts are the same: `text_indices` holds the index of every text so
        far, and is filled in place.
        """
        return example.label

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
        outputs : sequence of numpy.ndarray
            The vectors of both texts of each pair, (2,H), of length one.

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
        """Score the cosines of the words' TF-IDF vectors."""
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
        """Mark in a mistake where the model stopped reading each text."""
        texts = self.asked(example).values()
        marked = [with_marks(tokenizer, max_length, text)[0] for text in texts]
        return mistake._replace(text="\n".join(marked))


class SimilarPairs(Similarity):
    """Pairs that belong together. A prediction is `{"value": cosine, "rank": r, "closest": text}`.

    The second texts of all examples are candidates for the answer to a first text, except its other right
    answers. The rank is that of the pair's own second text by the cosine with the first text, from 1;
    candidates with the same cosine share their mean rank. `closest` is the pair's own second text at rank 1,
    else the closest of its rivals, even where that is only as close.

    Pairs that are not known to belong together, such as those given to `minibert classify`, have no rank.
    """

    kind = "contrastive"
    scored = ("accuracy", "mrr")
    needs_all_examples = True
    known = tuple(column for column in COLUMNS if column != "label")
    reading: ClassVar[dict[str, Any]] = {"label": None}

    def read(self, data: Path, split: str) -> list[TextExample]:
        """Read the pairs of one split.

        Parameters
        ----------
        data : Path
            A folder with one table for each split, see `custom_file`, or a table.
        split : str
            "train", "dev" or "test".

        Returns
        -------
        list of TextExample
            Pairs that belong together, each with the label 1.0, the highest cosine.
        """
        return [example._replace(label=1.0) for example in super().read(data, split)]

    def _target(self, example: TextExample, text_indices: dict[str, int]) -> tuple[int, ...]:
        """Return the indices of both texts among all distinct ones: equal texts are not told apart."""
        pair = (example.first, str(example.second))
        return tuple(text_indices.setdefault(text, len(text_indices)) for text in pair)

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
        outputs : sequence of numpy.ndarray
            The vectors of both texts of each pair, (2,H), of length one.

        Returns
        -------
        list of dict
            See `SimilarPairs`.
        """
        predictions = super().predict(examples, features, outputs, labels, tuned)
        if any(example.label is None for example in examples):
            return predictions
        indices = _first_occurrences(examples).values()
        second = np.stack([outputs[index][1] for index in indices])

        def cosines(index: int) -> np.ndarray:
            first = outputs[index][0]
            return second @ first

        ranked = _ranked(examples, cosines)
        return [prediction | rank for prediction, rank in zip(predictions, ranked, strict=True)]

    def score(self, examples: Examples, predictions: Predictions) -> dict[str, float]:
        """Compute how often the right text is the closest (`accuracy`), and the mean of 1 / rank (`mrr`)."""
        ranks = np.array([prediction["rank"] for prediction in predictions])
        accuracy = (ranks == 1).mean()
        mean_reciprocal_rank = (1 / ranks).mean()
        return {"accuracy": float(accuracy), "mrr": float(mean_reciprocal_rank)}

    def statistic(self, examples: Examples, predictions: Predictions) -> Statistic:
        """Return the accuracy as a function of examples, for its confidence interval.

        Returns
        -------
        Mean
            Whether each right text is the closest. Ranks are those among all candidates, whichever examples
            are drawn.
        """
        right = [prediction["rank"] == 1 for prediction in predictions]
        return mean_of(np.array(right))

    def baselines(self, examples: Examples) -> dict[str, dict[str, float]]:
        """Score the ranks by the cosines of the words' TF-IDF vectors."""
        first, second = _word_vectors(examples)
        candidates = [second[index] for index in _first_occurrences(examples).values()]
        texts_by_word = defaultdict(list)  # for each word, the candidates that have it, and its weights there
        for candidate, vector in enumerate(candidates):
            for word, weight in vector.items():
                texts_by_word[word].append((candidate, weight))

        def cosines(index: int) -> np.ndarray:
            sums = np.zeros(len(candidates))
            for word, weight in first[index].items():
                for candidate, other_weight in texts_by_word.get(word, ()):
                    sums[candidate] += weight * other_weight
            return sums

        ranked = list(_ranked(examples, cosines))
        return {BASELINE: self.score(examples, ranked)}

    def _mistakes(self, examples: Examples, predictions: Predictions) -> Iterator[Mistake]:
        """Yield pairs with a rival as close as the right text; the more rivals, the worse."""
        for index, (example, prediction) in enumerate(zip(examples, predictions, strict=True)):
            rank = prediction["rank"]
            if rank > 1:
                yield Mistake(example.first, example.second, prediction["closest"], rank, index)

    def as_read(
        self,
        mistake: Mistake,
        example: TextExample,
        tokenizer: Any,
        max_length: int,
    ) -> Mistake:
        """Mark in a mistake where the model stopped reading the first text: the second is the answer."""
        question = example._replace(second=None)
        return super().as_read(mistake, question, tokenizer, max_length)


def create(name: str, title: str, columns: Mapping[str, Any]) -> Similarity:
    """Make a task by its name.

    Parameters
    ----------
    name : str
        "similarity", "stsb-similarity" or "similar-pairs".
    title : str
        A one-line description.
    columns : mapping
        Names of the columns of a custom table, by their role.

    Returns
    -------
    Similarity
        The task.
    """
    if name == PAIRS:
        return SimilarPairs(name, title, columns)
    return Similarity(name, title, columns)


def _first_occurrences(examples: Examples) -> dict[str, int]:
    """Return the distinct second texts in order, each with the index of the first example that has it."""
    indices: dict[str, int] = {}
    for index, example in enumerate(examples):
        indices.setdefault(example.second, index)
    return indices


# cosines(index of an example) -> (C,) of its first text with each of C distinct second texts
def _ranked(examples: Examples, cosines: Callable[[int], np.ndarray]) -> Iterator[dict[str, Any]]:
    """Yield rank and closest text of every example; see `SimilarPairs`."""
    texts = list(_first_occurrences(examples))
    positions = {text: position for position, text in enumerate(texts)}
    answers = defaultdict(list)  # for each first text, the positions of all its second texts
    for example in examples:
        answers[example.first].append(positions[example.second])
    for index, example in enumerate(examples):
        rivals = cosines(index)
        right_cosine = rivals[positions[example.second]]
        rivals[answers[example.first]] = -np.inf
        n_above = int((rivals > right_cosine).sum())
        n_same = int((rivals == right_cosine).sum())
        rank = 1 + n_above + n_same / 2
        closest = example.second
        if rank > 1:
            closest = texts[int(rivals.argmax())]
        yield {"rank": rank, "closest": closest}


def _word_vectors(examples: Examples) -> tuple[Vectors, Vectors]:
    """Return TF-IDF vectors of first and second texts, of length one.

    Words are counted and weighted by 1 + log((1 + n) / (1 + texts that have the word)), for n texts in all,
    as scikit-learn's TfidfVectorizer does.
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
