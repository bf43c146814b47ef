"""Any number of classes for a text or a pair of texts, from tables of one's own: a yes or no for each class.

The model answers at [CLS] as for one class; each of its outputs goes through a logistic function by itself.
A class is found where its probability reaches a threshold, the one that gave the best F1 on dev.
"""

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from minibert.base.errors import InputError
from minibert.data.glue import TextExample
from minibert.data.tables import SEPARATOR
from minibert.tasks import metrics
from minibert.tasks.metrics.intervals import Statistic
from minibert.tasks.sentences import OwnTexts, in_order
from minibert.tasks.task import Examples, Labels, Mistake, Outputs, Predictions, Tuned

HALF = 0.5  # the threshold of a class that none was chosen for


class ManyLabels(OwnTexts):
    """The task; a prediction is `{"labels": [name, ...], "probabilities": {name: p}}`, p of every class."""

    kind = "multilabel"
    scored = ("macro_f1",)

    def names(self, example: TextExample) -> tuple[str, ...]:
        return example.label if isinstance(example.label, tuple) else ()

    def labels(self, examples: Examples) -> Labels:
        found = {name for example in examples for name in self.names(example)}
        if examples and not found:
            raise InputError("No example to learn from has any label; give some that have.")
        return in_order(found)

    # -> (K,)
    def _label(self, example: TextExample, numbers: dict[str, int], training: bool) -> Any:
        if example.label is None:
            return super()._label(example, numbers, training)
        if training:
            self._require_known(example, numbers)
        return np.array([float(name in self.names(example)) for name in numbers])

    def tune(self, examples: Examples, features: Any, outputs: Outputs, labels: Labels) -> Tuned:
        gold, chances = self._gold(examples, labels), _logistic(np.array(outputs))
        return {name: best_threshold(chances[:, k], gold[:, k]) for k, name in enumerate(labels)}

    def predict(
        self, examples: Examples, features: Any, outputs: Outputs, labels: Labels, tuned: Tuned
    ) -> list[dict[str, Any]]:
        return [_found(dict(zip(labels, _logistic(one).tolist(), strict=True)), tuned) for one in outputs]

    def score(self, examples: Examples, predictions: Predictions) -> dict[str, float]:
        """Compute F1 over all classes (micro), its mean over them (macro), each one's, and exact matches."""
        gold, found, labels = self._compared(examples, predictions)
        each = metrics.label_f1(gold, found)
        return {
            "macro_f1": float(each.mean()),
            "micro_f1": metrics.f1(gold.ravel(), found.ravel()),
            "exact_match": float((gold == found).all(axis=1).mean()),
            **{f"{name} (F1)": float(value) for name, value in zip(labels, each, strict=True)},
        }

    def statistic(self, examples: Examples, predictions: Predictions) -> Statistic:
        gold, found, _ = self._compared(examples, predictions)
        right, marked = (gold & found).astype(float), (gold + 0.0 + found)

        def macro_f1(rows: np.ndarray) -> float:
            times = np.bincount(rows, minlength=len(gold))
            both = times @ marked
            f1 = 2 * (times @ right) / np.maximum(1, both)
            seen = (both > 0) | ~marked.any(0)  # without the classes that no row drawn has
            return float(f1[seen].mean()) if seen.any() else math.nan

        return macro_f1

    def strongest_constant(self, examples: Examples, predictions: Predictions) -> tuple[str, Predictions]:
        """Return the best that one and the same answer for every text can do, and what to call it.

        Tried are the set of labels that comes most often and, of every number of labels, the most frequent.
        """
        labels = list(predictions[0]["probabilities"])
        sets = Counter(map(self.names, examples))
        counts = Counter(name for example in examples for name in self.names(example))
        often = sorted(labels, key=lambda name: -counts[name])
        tried = [list(sets.most_common(1)[0][0]), *(often[: n + 1] for n in range(len(often)))]
        answers = [
            [{"labels": one, "probabilities": {name: float(name in one) for name in labels}}] * len(examples)
            for one in tried
        ]
        best = max(answers, key=lambda one: self.score(examples, one)[self.metric])
        chosen = best[0]["labels"]
        return f"all {len(labels)} labels" if len(chosen) == len(labels) > 1 else shown(chosen), best

    def untuned(self, predictions: Predictions) -> list[dict[str, Any]]:
        """Return the predictions that a threshold of one half would have made."""
        return [_found(one["probabilities"], {}) for one in predictions]

    def write(self, folder: Path, split: str, examples: Examples, predictions: Predictions) -> list[Path]:
        """Write a table as for one class, with | between the classes of a text."""
        joined = [{"label": SEPARATOR.join(one["labels"])} for one in predictions]
        return super().write(folder, split, examples, joined)

    def _mistakes(self, examples: Examples, predictions: Predictions) -> Iterator[Mistake]:
        """Yield texts with a wrong class, the worse the less likely the right answers were."""
        for number, (example, prediction) in enumerate(zip(examples, predictions, strict=True)):
            expected, chances = set(self.names(example)), prediction["probabilities"]
            if wrong := expected.symmetric_difference(prediction["labels"]):
                right = [chances.get(name, 0.0) if name in expected else 1 - chances[name] for name in wrong]
                badness = -sum(math.log(max(chance, 1e-300)) for chance in right)
                text = "\n".join(filter(None, (example.first, example.second)))
                yield Mistake(text, shown(sorted(expected)), shown(prediction["labels"]), badness, number)

    # -> (n,K) (n,K) bool, K names
    def _compared(
        self, examples: Examples, predictions: Predictions
    ) -> tuple[np.ndarray, np.ndarray, list[str]]:
        self.require_labels(examples)
        labels = list(predictions[0]["probabilities"])
        labels += sorted({name for one in examples for name in self.names(one)} - {*labels})  # never learnt
        found = np.array([[name in one["labels"] for name in labels] for one in predictions])
        return self._gold(examples, labels), found, labels

    # -> (n,K) bool
    def _gold(self, examples: Examples, labels: Any) -> np.ndarray:
        return np.array([[name in self.names(example) for name in labels] for example in examples])


create = ManyLabels


def shown(names: Any) -> str:
    """Write labels for a person."""
    return SEPARATOR.join(names) or "(none)"


# chances (n,)  gold (n,) bool
def best_threshold(chances: np.ndarray, gold: np.ndarray) -> float:
    """Choose the probability from which on a class is found so that its F1 is the highest.

    It lies halfway between two probabilities. Of several that are as good it is the one nearest to one half,
    and one half itself where that is as good, or where no example has the class.

    Examples
    --------
    >>> best_threshold(np.array([0.1, 0.2, 0.3, 0.4]), np.array([False, False, True, True]))
    0.25
    """
    order = np.argsort(-chances, kind="stable")
    ordered = np.append(chances[order], 0.0)
    f1 = 2 * np.cumsum(gold[order]) / (np.arange(1, len(gold) + 1) + gold.sum())  # of the n most likely
    cuts = np.flatnonzero(ordered[:-1] > ordered[1:])  # between equal probabilities there is none
    at_half = (chances >= HALF).sum()
    if not gold.any() or not len(cuts) or (at_half and f1[at_half - 1] == f1[cuts].max()):
        return HALF
    best = cuts[f1[cuts] == f1[cuts].max()]
    thresholds = (ordered[best] + ordered[best + 1]) / 2
    return float(thresholds[np.argmin(np.abs(thresholds - HALF))])


# scores (...) -> (...) float64
def _logistic(scores: Any) -> np.ndarray:
    return np.exp(-np.logaddexp(0, -np.asarray(scores, np.float64)))


def _found(chances: dict[str, float], tuned: Tuned) -> dict[str, Any]:
    labels = [name for name, chance in chances.items() if chance >= tuned.get(name, HALF)]
    return {"labels": labels, "probabilities": chances}
