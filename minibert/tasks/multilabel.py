"""Multi-label classification of texts or pairs of texts, from custom tables.

The model answers at [CLS], as for a single class, but each output goes through a logistic function of its
own. A class is predicted if its probability reaches a threshold: the one with the best F1 on dev.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from minibert.base.errors import InputError
from minibert.data.glue import TextExample
from minibert.data.tables import SEPARATOR
from minibert.tasks import metrics
from minibert.tasks.metrics.intervals import Statistic
from minibert.tasks.sentences import CustomTexts, in_order
from minibert.tasks.task import Examples, Labels, Mistake, Outputs, Predictions, Tuned, surprise

HALF = 0.5  # threshold of a class for which none was chosen


class ManyLabels(CustomTexts):
    """Any number of classes for each text.

    A prediction is `{"labels": [class, ...], "probabilities": {class: p}}`: the predicted classes, and the
    probability of every class.
    """

    kind = "multilabel"
    scored = ("macro_f1",)
    reading: ClassVar[dict[str, Any]] = {"several": True}

    def names(self, example: TextExample) -> tuple[str, ...]:
        """Return the classes of an example, () if none applies or they are unknown."""
        return example.label if isinstance(example.label, tuple) else ()

    def labels(self, examples: Examples) -> Labels:
        """Return all classes of the training examples, sorted.

        Raises
        ------
        InputError
            When there are examples, but none has any class.
        """
        classes = {name for example in examples for name in self.names(example)}
        if examples and not classes:
            raise InputError("no training example has a label; give some that do.")
        return in_order(classes)

    # -> (K,)
    def _label(self, example: TextExample, indices: dict[str, int], training: bool) -> Any:
        """Return 1 for each class that applies to an example and 0 for the others; None if it is unknown."""
        if example.label is None:
            return super()._label(example, indices, training)
        if training:
            self._require_known(example, indices)
        return np.array([float(name in self.names(example)) for name in indices])

    def tune(
        self,
        examples: Examples,
        features: Any,
        outputs: Outputs,
        labels: Labels,
    ) -> Tuned:
        """Choose the threshold of each class on dev.

        Returns
        -------
        dict
            The threshold of each class, see `best_threshold`.
        """
        gold = self._gold(examples, labels)
        probabilities = _logistic(np.array(outputs))
        thresholds = {}
        for k, name in enumerate(labels):
            thresholds[name] = best_threshold(probabilities[:, k], gold[:, k])
        return thresholds

    def predict(
        self,
        examples: Examples,
        features: Any,
        outputs: Outputs,
        labels: Labels,
        tuned: Tuned,
    ) -> list[dict[str, Any]]:
        """Return for every example the classes whose probabilities reach their thresholds.

        Parameters
        ----------
        outputs : sequence of numpy.ndarray
            The scores of each example, (K,).
        tuned : dict
            The threshold of each class; classes without one have one half.

        Returns
        -------
        list of dict
            See `ManyLabels`.
        """
        return [prediction(scores, labels, tuned) for scores in outputs]

    def score(self, examples: Examples, predictions: Predictions) -> dict[str, float]:
        """Compute micro F1, macro F1 (the mean over classes), the F1 of each class, and exact matches.

        Returns
        -------
        dict
            `macro_f1`, `micro_f1`, `exact_match` and "CLASS (F1)" for each class.
        """
        gold, predicted, classes = self._compared(examples, predictions)
        each = metrics.label_f1(gold, predicted)
        scores = {
            "macro_f1": float(each.mean()),
            "micro_f1": metrics.f1(gold.ravel(), predicted.ravel()),
            "exact_match": float((gold == predicted).all(axis=1).mean()),
        }
        for name, value in zip(classes, each, strict=True):
            scores[f"{name} (F1)"] = float(value)
        return scores

    def statistic(self, examples: Examples, predictions: Predictions) -> Statistic:
        """Return the macro F1 as a function of examples, for its confidence interval.

        Returns
        -------
        callable
            Takes indices of examples, with repeats, (m,) int64. The mean is over the classes that one of
            these examples has or was predicted to have.
        """
        gold, predicted, _ = self._compared(examples, predictions)
        right = (gold & predicted).astype(float)
        marked = gold + 0.0 + predicted
        is_empty = ~marked.any(0)  # classes that no example has or was predicted to have

        def macro_f1(indices: np.ndarray) -> float:
            """Return the macro F1 over the examples at some indices; not-a-number if no class counts."""
            times_drawn = np.bincount(indices, minlength=len(gold))
            n_right = times_drawn @ right
            n_marked = times_drawn @ marked
            f1 = 2 * n_right / np.maximum(1, n_marked)
            counts = (n_marked > 0) | is_empty  # leaves out classes that no drawn example is marked with
            if not counts.any():
                return math.nan
            return float(f1[counts].mean())

        return macro_f1

    def strongest_constant(
        self,
        examples: Examples,
        predictions: Predictions,
    ) -> tuple[str, Predictions]:
        """Return the same answer to every text with the best macro F1 that one can have, for comparison.

        It is all the classes that an example has, the most frequent first: each adds its own F1 to the mean.

        Parameters
        ----------
        examples : sequence of TextExample
            Examples with labels.
        predictions : list of dict
            The predictions of a model, at least one, whose classes can be answers.

        Returns
        -------
        str
            A name for this baseline: its classes, or that they are all classes.
        list of dict
            The same prediction for every example.
        """
        classes = list(predictions[0]["probabilities"])
        counts = Counter(chain.from_iterable(map(self.names, examples)))
        chosen = sorted((name for name in classes if counts[name]), key=lambda name: -counts[name])
        probabilities = {name: float(name in chosen) for name in classes}
        best = [{"labels": chosen, "probabilities": probabilities}] * len(examples)
        if len(chosen) == len(classes) > 1:
            return f"all {len(classes)} labels", best
        return shown(chosen), best

    @staticmethod
    def thresholds(labels: Labels, tuned: Mapping[str, float]) -> dict[str, float]:
        """Return the threshold of each class, a probability.

        Parameters
        ----------
        labels : sequence of str
            The classes.
        tuned : dict
            What `tune` chose; classes without a threshold have one half.

        Returns
        -------
        dict of str to float
        """
        return {name: tuned.get(name, HALF) for name in labels}

    def untuned(self, predictions: Predictions) -> list[dict[str, Any]]:
        """Return the predictions that a threshold of one half would have made.

        Parameters
        ----------
        predictions : sequence of dict
            Predictions that `predict` made; only their probabilities are read.

        Returns
        -------
        list of dict
            The new predictions, in the same order.
        """
        return [_chosen(prediction["probabilities"], {}) for prediction in predictions]

    def write(
        self,
        folder: Path,
        split: str,
        examples: Examples,
        predictions: Predictions,
    ) -> list[Path]:
        """Write a table as for a single class, with | between the classes of a text.

        Returns
        -------
        list of Path
            One file, see `Sentences.write`.
        """
        joined = []
        for prediction in predictions:
            label = SEPARATOR.join(prediction["labels"])
            joined.append({"label": label})
        return super().write(folder, split, examples, joined)

    def _mistakes(self, examples: Examples, predictions: Predictions) -> Iterator[Mistake]:
        """Yield texts with a missing or wrong class; the less likely the right answers were, the worse."""
        for index, (example, prediction) in enumerate(zip(examples, predictions, strict=True)):
            expected = set(self.names(example))
            wrong = expected.symmetric_difference(prediction["labels"])
            if not wrong:
                continue
            probabilities = prediction["probabilities"]
            surprises = []
            for name in wrong:
                right = probabilities.get(name, 0.0) if name in expected else 1 - probabilities[name]
                surprises.append(surprise(right))
            yield Mistake(
                text="\n".join(filter(None, (example.first, example.second))),
                expected=shown(sorted(expected)),
                found=shown(prediction["labels"]),
                severity=sum(surprises),
                example=index,
            )

    # -> (n,K) (n,K) bool, K classes
    def _compared(
        self,
        examples: Examples,
        predictions: Predictions,
    ) -> tuple[np.ndarray, np.ndarray, list[str]]:
        """Return which classes apply to each example, which were predicted, and what the columns stand for.

        The classes are those of the model, then any others that an example has.
        """
        self.require_labels(examples)
        classes = list(predictions[0]["probabilities"])
        expected = {name for example in examples for name in self.names(example)}
        classes += sorted(expected - {*classes})
        predicted = [[name in prediction["labels"] for name in classes] for prediction in predictions]
        return self._gold(examples, classes), np.array(predicted), classes

    # -> (n,K) bool
    def _gold(self, examples: Examples, classes: Sequence[str]) -> np.ndarray:
        """Return which classes apply to each example."""
        rows = []
        for example in examples:
            expected = self.names(example)
            rows.append([name in expected for name in classes])
        return np.array(rows)


create = ManyLabels


def shown(names: Iterable[str]) -> str:
    """Format classes for a person.

    Parameters
    ----------
    names : iterable of str
        Classes of one text.

    Returns
    -------
    str
        The classes with | between them; "(none)" if there are none.
    """
    return SEPARATOR.join(names) or "(none)"


# probabilities (n,)  gold (n,) bool
def best_threshold(probabilities: np.ndarray, gold: np.ndarray) -> float:
    """Choose the threshold of a class, with which its F1 is the highest.

    Parameters
    ----------
    probabilities : numpy.ndarray
        Probability of the class for each example, (n,).
    gold : numpy.ndarray
        Whether the class applies, (n,) bool.

    Returns
    -------
    float
        Halfway between two probabilities. Among equally good thresholds it is the nearest to one half, and
        exactly one half if that is as good, or if no example has the class.

    Examples
    --------
    >>> best_threshold(np.array([0.1, 0.2, 0.3, 0.4]), np.array([False, False, True, True]))
    0.25
    """
    order = np.argsort(-probabilities, kind="stable")
    ordered = np.append(probabilities[order], 0.0)
    right = np.cumsum(gold[order])
    n_found = np.arange(1, len(gold) + 1)
    f1 = 2 * right / (n_found + gold.sum())  # if the n most likely examples are predicted to have the class
    cuts = np.flatnonzero(ordered[:-1] > ordered[1:])  # no threshold separates equal probabilities
    if not gold.any() or not len(cuts):
        return HALF
    highest = f1[cuts].max()
    n_at_half = (probabilities >= HALF).sum()
    if n_at_half and f1[n_at_half - 1] == highest:
        return HALF
    best = cuts[f1[cuts] == highest]
    thresholds = (ordered[best] + ordered[best + 1]) / 2
    nearest = np.argmin(np.abs(thresholds - HALF))
    return float(thresholds[nearest])


# scores (...) -> (...) float64
def _logistic(scores: Any) -> np.ndarray:
    """Turn log-odds into probabilities; no exponential overflows."""
    return np.exp(-np.logaddexp(0, -np.asarray(scores, np.float64)))


# scores (K,)
def prediction(scores: Any, labels: Sequence[str], tuned: Tuned) -> dict[str, Any]:
    """Choose the classes whose probabilities reach their thresholds.

    Parameters
    ----------
    scores : array (K,)
        The log-odds of each class.
    labels : sequence of str
        The K classes.
    tuned : dict
        The threshold of each class; classes without one have one half.

    Returns
    -------
    dict
        See `ManyLabels`.
    """
    return _chosen(dict(zip(labels, _logistic(scores).tolist(), strict=True)), tuned)


def _chosen(probabilities: dict[str, float], tuned: Tuned) -> dict[str, Any]:
    """Return the prediction for an example."""
    labels = []
    for name, probability in probabilities.items():
        if probability >= tuned.get(name, HALF):
            labels.append(name)
    return {"labels": labels, "probabilities": probabilities}
