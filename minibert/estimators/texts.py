"""`TextClassifier`, `MultilabelClassifier`, `TextRegressor`: classes, or a number, for a text or a pair."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from minibert import engines
from minibert.data.glue import TextExample
from minibert.errors import InputError
from minibert.estimators.base import Estimator, documented
from minibert.estimators.inputs import target_rows, targets, text_pairs
from minibert.finetuning.models import Finetuned
from minibert.model.params import Head, Parameters
from minibert.tasks import registry
from minibert.tokenizer import Tokenizer


@dataclass(eq=False, repr=False)
class _OfTexts(Estimator):
    """What the two have in common: how texts and pairs of them are read."""

    text: str = "text"
    second: str | None = None
    label: str = "label"
    long: str = "cut"
    stride: int | None = None
    pool: str | None = None
    most_windows: int | None = None

    def _examples(self, X: Any, y: Any = None, labelled: bool = False) -> list[TextExample]:
        pairs = text_pairs(X, self.text, self.second)
        are_pairs = pairs[0][1] is not None
        learnt = getattr(self, "_pairs", are_pairs)
        if learnt != are_pairs and self.__sklearn_is_fitted__():
            such = "pairs of texts" if learnt else "single texts"
            raise InputError(f"This {type(self).__name__} has learnt from {such}; give it such.")
        wanted = self._targets(X, y, len(pairs)) if labelled else [None] * len(pairs)
        return [
            TextExample(str(number), first, other, None if label is None else self._name(label))
            for number, ((first, other), label) in enumerate(zip(pairs, wanted, strict=True))
        ]

    def _targets(self, X: Any, y: Any, n: int) -> list[Any]:
        return targets(target_rows(X, y, self.label, n), self._wrong)

    def _row(self, example: TextExample) -> dict[str, Any]:
        second = {} if example.second is None else {"second": example.second}
        return {"text": example.first, **second, "label": example.label}

    def _learn_names(self, examples: Sequence[TextExample], y: Sequence[Any]) -> None:
        self._pairs = examples[0].second is not None

    def _wrong(self, value: Any) -> str:
        """Return what is wrong with a value of y; "" if nothing is."""
        return ""

    def _name(self, value: Any) -> str | float:
        """Return a value of y as an example has it."""
        return str(value)


@documented
@dataclass(eq=False, repr=False)
class TextClassifier(_OfTexts):
    """A class for a text or a pair of texts.

    Attributes
    ----------
    classes_ : (K,) the classes in the order of the columns of `predict_proba`.
    report_ : figures of the best epoch, as `report.json` of a run has them.

    Examples
    --------
    >>> classifier = TextClassifier("runs/books", epochs=2)
    >>> classifier
    TextClassifier('runs/books', epochs=2)
    >>> classifier.fit(["a fine film", "a dull one"], ["good", "bad"])  # doctest: +SKIP
    """

    class_weights: str | None = None
    sampling: str | None = None

    KIND: ClassVar[str] = "classifier"
    TASK: ClassVar[str] = "classify"

    @classmethod
    def of(
        cls,
        params: Parameters,
        tokenizer: Tokenizer,
        classes: Sequence[Any],
        max_length: int = 128,
        pairs: bool = False,
        ops: Any = None,
    ) -> "TextClassifier":
        """Return a fitted classifier of parameters that were trained elsewhere, in a loop of one's own.

        Parameters
        ----------
        params, tokenizer : a BERT with a head of kind "classify", and its vocabulary.
        classes : (K,) in the order of the head's outputs.
        max_length : longest sequence, [CLS] and [SEP] included.
        pairs : whether it was trained on pairs of texts.
        ops : the engine; the fastest there is when left out.

        Raises
        ------
        InputError
            When the head is another one, or has not an output for each class.
        """
        if params.head != Head("classify", len(classes)):
            head = f"a head {params.head.kind!r} of {params.head.outputs} outputs"
            other = f"not one for each of {len(classes)} classes; give those of a classifier."
            raise InputError(f"params have {head}, {other}")
        self = cls("")
        self.classes_, self._pairs = np.array(classes), pairs
        task = registry.create("classify", {"second": "second"} if pairs else {})
        labels, ops = tuple(map(str, self.classes_.tolist())), engines.create() if ops is None else ops
        self._fitted = Finetuned(Path(), task, labels, {}, max_length, tokenizer, params, ops)
        return self

    def _wrong(self, value: Any) -> str:
        if isinstance(value, float) and not (math.isfinite(value) and value.is_integer()):
            return "is continuous and so no class; a TextRegressor learns numbers"
        if isinstance(value, list | tuple | dict | set):
            return "is no single label"
        return "" if str(value).strip() else "is empty"

    def _learn_names(self, examples: Sequence[TextExample], y: Sequence[Any]) -> None:
        super()._learn_names(examples, y)
        given: dict[str, Any] = {}
        for value in y:
            if type(before := given.setdefault(str(value), value)) is not type(value):
                raise InputError(f"y has both {before!r} and {value!r}; give labels of one type.")
        if len({isinstance(value, str) for value in given.values()}) == 2:
            raise InputError("y has both strings and other labels; give labels of one type.")
        self.classes_ = np.unique(np.array(list(given.values())))

    def _require_known(self, dev: Sequence[TextExample]) -> None:
        known = {str(value) for value in self.classes_.tolist()}
        for number, example in enumerate(dev):
            if example.label not in known:
                found = f"Row {number:,} of dev has the label {example.label!r}"
                raise InputError(f"{found}, which no row to learn from has; correct it, or add rows of it.")

    def predict(self, X: Any) -> np.ndarray:
        """Return the likeliest class of each text, (n,) of the type of `classes_`."""
        chosen = self.predict_proba(X).argmax(1)  # before `classes_`, which there is only after `fit`
        return self.classes_[chosen]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class, (n,K) float64 in the order of `classes_`."""
        found = self._predictions(self._examples(X))
        names = [str(value) for value in self.classes_.tolist()]
        return np.array([[one["probabilities"][name] for name in names] for one in found])

    def score(self, X: Any, y: Any = None) -> float:
        """Return the accuracy."""
        return float(self.evaluate(X, y)["scores"]["accuracy"])

    def _names(self) -> dict[str, Any]:
        return {"classes": self.classes_.tolist()}

    def _learn_stored(self, stored: dict[str, Any]) -> None:
        names = stored.get("classes")
        if not isinstance(names, list) or not all(isinstance(one, str | int | float) for one in names):
            names = []
        if sorted(map(str, names)) != sorted(self._model.labels):
            names = list(self._model.labels)
        self.classes_ = np.array(names)


@documented
@dataclass(eq=False, repr=False)
class MultilabelClassifier(TextClassifier):
    """Any number of classes for a text or a pair of texts.

    A row of y is a list of labels, empty where none applies; or y is a matrix (n,K) of zeros and ones, whose
    columns are the classes 0 to K-1.

    Attributes
    ----------
    classes_ : (K,) the classes in the order of the columns of `predict` and `predict_proba`.
    report_ : figures of the best epoch, as `report.json` of a run has them.
    """

    TASK: ClassVar[str] = "multilabel"

    def _targets(self, X: Any, y: Any, n: int) -> list[Any]:
        rows = target_rows(X, y, self.label, n)
        if getattr(y, "ndim", 1) == 2:
            if any(value not in (0, 1) for row in rows for value in row):
                raise InputError("y is a matrix with other values than 0 and 1; give these, or label lists.")
            rows = [[number for number, applies in enumerate(row) if applies] for row in rows]
        wrong = "is no list of labels"
        return targets(rows, lambda row: "" if isinstance(row, list | tuple | set) else wrong)

    def _name(self, value: Any) -> Any:
        return tuple(sorted(map(str, value)))

    def _learn_names(self, examples: Sequence[TextExample], y: Sequence[Any]) -> None:
        super()._learn_names(examples, [label for row in y for label in row])

    def _require_known(self, dev: Sequence[TextExample]) -> None:
        apart = [example._replace(label=one) for example in dev for one in tuple(example.label or ())]
        super()._require_known(apart)

    def _row(self, example: TextExample) -> dict[str, Any]:
        return super()._row(example) | {"label": list(example.label or ())}

    def predict(self, X: Any) -> np.ndarray:
        """Return which classes apply to each text, (n,K) of zeros and ones."""
        found = [set(one["labels"]) for one in self._predictions(self._examples(X))]
        return np.array([[int(str(name) in one) for name in self.classes_.tolist()] for one in found])

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean of the classes' F1 (macro)."""
        return float(self.evaluate(X, y)["scores"]["macro_f1"])


@documented
@dataclass(eq=False, repr=False)
class TextRegressor(_OfTexts):
    """A number for a text or a pair of texts."""

    KIND: ClassVar[str] = "regressor"
    TASK: ClassVar[str] = "regress"

    def _wrong(self, value: Any) -> str:
        try:
            return "" if math.isfinite(float(value)) else "is no finite number"
        except (TypeError, ValueError):
            return "is no number"

    def _name(self, value: Any) -> float:
        return float(value)

    def predict(self, X: Any) -> np.ndarray:
        """Return the number of each text, (n,) float64."""
        return np.array([one["value"] for one in self._predictions(self._examples(X))], np.float64)

    def score(self, X: Any, y: Any = None) -> float:
        """Return R², the share of the variance of y that is explained: 1 at best, 0 for its mean."""
        examples = self._examples(X, y, labelled=True)
        wanted, found = [one.label for one in examples], [one["value"] for one in self._predictions(examples)]
        rest = np.square(np.subtract(wanted, found)).sum()
        return float(1 - rest / np.square(wanted - np.mean(wanted)).sum())
