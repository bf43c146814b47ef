"""Multi-label classification of texts or pairs of texts, from custom tables.

The model answers at [CLS] as for one class; each of its outputs goes through a logistic function by itself.
A class is predicted where its probability reaches a threshold, the one that gave the best F1 on dev.
"""

import math
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from minibert.base.errors import InputError
from minibert.data.glue import TextExample
from minibert.data.tables import SEPARATOR
from minibert.tasks import metrics
from minibert.tasks.metrics.intervals import Statistic
from minibert.tasks.sentences import CustomTexts, in_order
from minibert.tasks.task import Examples, Labels, Mistake, Outputs, Predictions, Tuned

HALF = 0.5  # the threshold of a class that none was chosen for


class ManyLabels(CustomTexts):
    """The task; a prediction is `{"labels": [name, ...], "probabilities": {name: p}}`, p of every class."""

    kind = "multilabel"
    scored = ("macro_f1",)

    def names(self, example: TextExample) -> tuple[str, ...]:
        """Return the classes that an example is labelled with.

        Parameters
        ----------
        example : TextExample
            One that `read` returned.

        Returns
        -------
        tuple of str
            () where none applies, or where they are not known.
        """
        return example.label if isinstance(example.label, tuple) else ()

    def labels(self, examples: Examples) -> Labels:
        """Name the classes in the order of the outputs.

        Parameters
        ----------
        examples : sequence of TextExample
            The training examples.

        Returns
        -------
        tuple of str
            Every class of the examples, sorted.

        Raises
        ------
        InputError
            When there are examples and none has any class.
        """
        names = {name for example in examples for name in self.names(example)}
        if examples and not names:
            raise InputError("No training example has a label; give some that do.")
        return in_order(names)

    # -> (K,)
    def _label(self, example: TextExample, numbers: dict[str, int], training: bool) -> Any:
        if example.label is None:
            return super()._label(example, numbers, training)
        if training:
            self._require_known(example, numbers)
        return np.array([float(name in self.names(example)) for name in numbers])

    def tune(
        self,
        examples: Examples,
        features: Any,
        outputs: Outputs,
        labels: Labels,
    ) -> Tuned:
        """Choose on dev the probability from which on each class is predicted.

        Parameters
        ----------
        examples : sequence of TextExample
            The dev set, with labels.
        features : sequence of Feature
            Not needed: the outputs are in the order of the examples.
        outputs : sequence of numpy.ndarray
            The scores of each example, (K,).
        labels : tuple of str
            The model's classes, in the order of its outputs.

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
        """Return the classes of every example whose probabilities reach their thresholds.

        Parameters
        ----------
        examples : sequence of TextExample
            As `read` returned them.
        features : sequence of Feature
            Not needed: the outputs are in the order of the examples.
        outputs : sequence of numpy.ndarray
            The scores of each example, (K,).
        labels : tuple of str
            The model's classes, in the order of its outputs.
        tuned : dict
            The threshold of each class; one half where it has none.

        Returns
        -------
        list of dict
            See `ManyLabels`.
        """
        predictions = []
        for scores in outputs:
            probabilities = dict(zip(labels, _logistic(scores).tolist(), strict=True))
            predictions.append(_prediction(probabilities, tuned))
        return predictions

    def score(self, examples: Examples, predictions: Predictions) -> dict[str, float]:
        """Compute F1 over all classes (micro), its mean over them (macro), each one's, and exact matches.

        Parameters
        ----------
        examples : sequence of TextExample
            As `read` returned them, each with its label.
        predictions : list of dict
            What `predict` made of the examples, in their order.

        Returns
        -------
        dict
            `macro_f1`, `micro_f1`, `exact_match` and "NAME (F1)" of each class.
        """
        gold, predicted, labels = self._compared(examples, predictions)
        each = metrics.label_f1(gold, predicted)
        scores = {
            "macro_f1": float(each.mean()),
            "micro_f1": metrics.f1(gold.ravel(), predicted.ravel()),
            "exact_match": float((gold == predicted).all(axis=1).mean()),
        }
        for name, value in zip(labels, each, strict=True):
            scores[f"{name} (F1)"] = float(value)
        return scores

    def statistic(self, examples: Examples, predictions: Predictions) -> Statistic:
        """Return the macro F1 as a function of examples, for its interval.

        Parameters
        ----------
        examples : sequence of TextExample
            As `read` returned them, each with its label.
        predictions : list of dict
            What `predict` made of the examples, in their order.

        Returns
        -------
        callable
            Takes numbers of examples, (m,) int64, some of them repeated. Classes that none of these has, nor
            was predicted to have, do not count.
        """
        gold, predicted, _ = self._compared(examples, predictions)
        right = (gold & predicted).astype(float)
        marked = gold + 0.0 + predicted

        is_empty = ~marked.any(0)  # classes that no example has at all

        def macro_f1(rows: np.ndarray) -> float:
            times = np.bincount(rows, minlength=len(gold))
            n_right = times @ right
            n_marked = times @ marked
            f1 = 2 * n_right / np.maximum(1, n_marked)
            seen = (n_marked > 0) | is_empty  # without the classes that no row drawn has
            if not seen.any():
                return math.nan
            return float(f1[seen].mean())

        return macro_f1

    def strongest_constant(
        self,
        examples: Examples,
        predictions: Predictions,
    ) -> tuple[str, Predictions]:
        """Return the best that one and the same answer for every text can do.

        Tried are the set of labels that comes most often and, of every number of labels, the most frequent.

        Parameters
        ----------
        examples : sequence of TextExample
            As `read` returned them, each with its label.
        predictions : list of dict
            A model's, whose classes are to be answered with; at least one.

        Returns
        -------
        str
            What to call it: the labels, or that they are all of them.
        list of dict
            The same prediction for every example.
        """
        labels = list(predictions[0]["probabilities"])
        names_of_each = [self.names(example) for example in examples]
        sets = Counter(names_of_each)
        counts = Counter(chain.from_iterable(names_of_each))
        most_common_set, _ = sets.most_common(1)[0]
        candidates = [list(most_common_set)]
        by_frequency = sorted(labels, key=lambda name: -counts[name])
        for n in range(len(by_frequency)):
            candidates.append(by_frequency[: n + 1])

        def answers(chosen: list[str]) -> list[dict[str, Any]]:
            probabilities = {name: float(name in chosen) for name in labels}
            answer = {"labels": chosen, "probabilities": probabilities}
            return [answer] * len(examples)

        def quality(chosen: list[str]) -> float:
            scores = self.score(examples, answers(chosen))
            return scores[self.metric]

        chosen = max(candidates, key=quality)
        best = answers(chosen)
        if len(chosen) == len(labels) > 1:
            return f"all {len(labels)} labels", best
        return shown(chosen), best

    def untuned(self, predictions: Predictions) -> list[dict[str, Any]]:
        """Return the predictions that a threshold of one half would have made.

        Parameters
        ----------
        predictions : sequence of dict
            Those of `predict`, whose probabilities count.

        Returns
        -------
        list of dict
            In the same order.
        """
        return [_prediction(prediction["probabilities"], {}) for prediction in predictions]

    def write(
        self,
        folder: Path,
        split: str,
        examples: Examples,
        predictions: Predictions,
    ) -> list[Path]:
        """Write a table as for one class, with | between the classes of a text.

        Parameters
        ----------
        folder : Path
            Where to write.
        split : str
            Name of the split, which is part of the file's name.
        examples : sequence of TextExample
            As `read` returned them.
        predictions : list of dict
            What `predict` made of the examples, in their order.

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
        """Yield texts with a wrong class, worse if the right answers were less likely."""
        for number, (example, prediction) in enumerate(zip(examples, predictions, strict=True)):
            expected = set(self.names(example))
            wrong = expected.symmetric_difference(prediction["labels"])
            if not wrong:
                continue
            probabilities = prediction["probabilities"]
            logarithms = []
            for name in wrong:
                right = probabilities.get(name, 0.0) if name in expected else 1 - probabilities[name]
                logarithms.append(math.log(max(right, 1e-300)))
            yield Mistake(
                text="\n".join(filter(None, (example.first, example.second))),
                expected=shown(sorted(expected)),
                found=shown(prediction["labels"]),
                severity=-sum(logarithms),
                example=number,
            )

    # -> (n,K) (n,K) bool, K names
    def _compared(
        self,
        examples: Examples,
        predictions: Predictions,
    ) -> tuple[np.ndarray, np.ndarray, list[str]]:
        """Return which classes apply to each example, which were predicted, and the names of all classes."""
        self.require_labels(examples)
        labels = list(predictions[0]["probabilities"])
        names = {name for example in examples for name in self.names(example)}
        labels += sorted(names - {*labels})  # never learnt
        predicted = [[name in prediction["labels"] for name in labels] for prediction in predictions]
        return self._gold(examples, labels), np.array(predicted), labels

    # -> (n,K) bool
    def _gold(self, examples: Examples, labels: Any) -> np.ndarray:
        rows = []
        for example in examples:
            names = self.names(example)
            rows.append([name in names for name in labels])
        return np.array(rows)


create = ManyLabels


def shown(names: Any) -> str:
    """Write labels for a person.

    Parameters
    ----------
    names : iterable of str
        Labels of one text.

    Returns
    -------
    str
        With | between them; "(none)" without any.
    """
    return SEPARATOR.join(names) or "(none)"


# probabilities (n,)  gold (n,) bool
def best_threshold(probabilities: np.ndarray, gold: np.ndarray) -> float:
    """Choose the probability from which on a class is predicted, so that its F1 is the highest.

    Parameters
    ----------
    probabilities : numpy.ndarray
        Probability that the class applies to each example, (n,).
    gold : numpy.ndarray
        Whether it does, (n,) bool.

    Returns
    -------
    float
        Halfway between two probabilities. Of several that are as good it is the one nearest to one half, and
        one half itself where that is as good, or where no example has the class.

    Examples
    --------
    >>> best_threshold(np.array([0.1, 0.2, 0.3, 0.4]), np.array([False, False, True, True]))
    0.25
    """
    order = np.argsort(-probabilities, kind="stable")
    ordered = np.append(probabilities[order], 0.0)
    right = np.cumsum(gold[order])
    n_found = np.arange(1, len(gold) + 1)
    f1 = 2 * right / (n_found + gold.sum())  # of the n most likely
    cuts = np.flatnonzero(ordered[:-1] > ordered[1:])  # between equal probabilities there is none
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
    return np.exp(-np.logaddexp(0, -np.asarray(scores, np.float64)))


def _prediction(probabilities: dict[str, float], tuned: Tuned) -> dict[str, Any]:
    """Return the prediction of an example."""
    labels = []
    for name, probability in probabilities.items():
        if probability >= tuned.get(name, HALF):
            labels.append(name)
    return {"labels": labels, "probabilities": probabilities}
