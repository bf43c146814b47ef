"""`TextClassifier`, `MultilabelClassifier`, `TextRegressor`: classes, or a number, for a text or a pair."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from reprlib import repr as short
from typing import Any, ClassVar

import numpy as np

from minibert import engines
from minibert.api.base import Estimator, documented
from minibert.api.inputs import column, column_names, is_missing, target_rows, targets, text_pairs
from minibert.base.errors import InputError
from minibert.data.glue import TextExample
from minibert.finetuning.models import Finetuned
from minibert.model.params import Head, Parameters
from minibert.tasks import registry
from minibert.tasks.metrics import r2
from minibert.tokenizer import Tokenizer


@dataclass(eq=False, repr=False)
class _OfTexts(Estimator):
    """Read texts and pairs of texts: what the estimators of this module have in common."""

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
        if getattr(self, "_pairs", None) not in (None, are_pairs):  # None: either will do
            such = "single texts" if are_pairs else "pairs of texts"
            raise InputError(f"This {type(self).__name__} was trained on {such}; give it those.")
        answers: list[Any] = [None] * len(pairs)
        if labelled:
            answers = self._answers(X, y, len(pairs))
            if not self.__sklearn_is_fitted__():
                self._pairs: bool | None = are_pairs
        rows = enumerate(zip(pairs, answers, strict=True))
        return [TextExample(str(number), *pair, answer) for number, (pair, answer) in rows]

    @abstractmethod
    def _answers(self, X: Any, y: Any, n: int) -> list[Any]:
        """Return what is expected of each of n rows, as examples have it."""

    def _row(self, example: TextExample) -> dict[str, Any]:
        second = {} if example.second is None else {"second": example.second}
        return {"text": example.first, **second, "label": example.label}

    def _learn_stored(self, stored: dict[str, Any]) -> None:
        self._pairs = self._model.pair


@documented
@dataclass(eq=False, repr=False)
class TextClassifier(_OfTexts):
    """Predict a class for a text or a pair of texts.

    Attributes
    ----------
    classes_ : (K,) the classes in the order of the columns of `predict_proba`.
    report_ : metrics of the best epoch, as `report.json` of a run has them.

    Examples
    --------
    >>> classifier = TextClassifier("runs/books", epochs=2)
    >>> classifier
    TextClassifier('runs/books', epochs=2)
    >>> classifier.fit(["a fine film", "a dull one"] * 10, ["good", "bad"] * 10)  # doctest: +SKIP
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
        max_length: int | None = None,
        pairs: bool = False,
        ops: Any = None,
    ) -> "TextClassifier":
        """Return a fitted classifier of parameters that were trained elsewhere, in a loop of one's own.

        Parameters
        ----------
        params, tokenizer : a BERT with a head of kind "classify", and its vocabulary.
        classes : (K,) in the order of the head's outputs.
        max_length : longest sequence, [CLS] and [SEP] included; None: 128, or all positions of the model.
        pairs : whether it was trained on pairs of texts.
        ops : the engine; the fastest there is when left out.

        Raises
        ------
        InputError
            When the head is another one, or has not an output for each class.
        """
        if params.head != Head(cls.TASK, len(classes)):
            head = f"a head {params.head.kind!r} of {params.head.outputs} outputs"
            other = f"not one for each of {len(classes)} classes; give those of a classifier."
            raise InputError(f"params have {head}, {other}")
        self = cls("")
        self.classes_, self._pairs = np.array(classes), pairs
        task = registry.create(cls.TASK, {"second": "second"} if pairs else {})
        ops = engines.create() if ops is None else ops
        longest = min(128, params.config.P) if max_length is None else max_length
        names = tuple(self._labels)
        self._fitted = Finetuned(Path(), task, names, {}, longest, pairs, tokenizer, params, ops)
        return self

    @property
    def _labels(self) -> list[str]:
        """What files and the model call the classes: without blanks at their ends."""
        return [str(value).strip() for value in self.classes_.tolist()]

    def _wrong(self, value: Any) -> str:
        """Return what is wrong with a value of y; "" if nothing is."""
        if isinstance(value, float) and not (math.isfinite(value) and value.is_integer()):
            return "is continuous and so no class; a TextRegressor learns numbers"
        if not isinstance(value, str | int | float):
            return "is no single string, number or bool"
        return "" if str(value).strip() else "is empty"

    def _answers(self, X: Any, y: Any, n: int) -> list[Any]:
        return self._named(list(enumerate(targets(target_rows(X, y, self.label, n), self._wrong))))

    def _named(self, labels: list[tuple[int, Any]]) -> list[str]:
        """Return what files call labels, each given with its row; of the first, learn the classes."""
        if not hasattr(self, "classes_"):
            kinds: dict[type, str] = {}
            by_name: dict[str, Any] = {}
            for row, value in labels:
                before = by_name.setdefault(str(value).strip(), value)
                if type(value) not in kinds:
                    kinds[type(value)] = f"{short(value)} in row {row:,}"
                if len(kinds) > 1:
                    raise InputError(f"y has {' and '.join(kinds.values())}; give labels of one type.")
                if before != value:
                    raise InputError(f"y has both {short(before)} and {short(value)}; give them one name.")
            self.classes_ = np.unique(np.array(list(by_name.values())))
        names = dict(zip(self.classes_.tolist(), self._labels, strict=True))  # 1, 1.0 and True are equal
        for row, value in () if self.__sklearn_is_fitted__() else labels:
            if value not in names:
                found = f"Row {row:,} of dev has the label {value!r}"
                raise InputError(f"{found}, which no row to learn from has; correct it, or add rows of it.")
        return [names.get(value, str(value).strip()) for _, value in labels]

    def predict(self, X: Any) -> np.ndarray:
        """Return the likeliest class of each text, (n,) of the type of `classes_`."""
        chosen = self.predict_proba(X).argmax(1)  # before `classes_`, which there is only after `fit`
        return self.classes_[chosen]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class, (n,K) float64 in the order of `classes_`."""
        found = [one["probabilities"] for one in self._predictions(self._examples(X))]
        names = self._labels
        return np.array([[one.get(name, 0.0) for name in names] for one in found])

    def score(self, X: Any, y: Any = None) -> float:
        """Return the accuracy."""
        examples = self._examples(X, y, labelled=True)
        found = [one["label"] for one in self._predictions(examples)]
        return float(np.mean([one.label == label for one, label in zip(examples, found, strict=True)]))

    def _stored(self) -> dict[str, Any]:
        return super()._stored() | {"classes": self.classes_.tolist()}

    def _learn_stored(self, stored: dict[str, Any]) -> None:
        super()._learn_stored(stored)
        names = stored.get("classes")
        are_names = isinstance(names, list) and all(isinstance(one, str | int | float) for one in names)
        self.classes_ = np.array(names if are_names else [])
        if not set(self._model.labels) <= set(self._labels):
            self.classes_ = np.array(self._model.labels)


@documented
@dataclass(eq=False, repr=False)
class MultilabelClassifier(TextClassifier):
    """Predict any number of classes for a text or a pair of texts.

    A row of y is a list of labels, empty where none applies; or y is a matrix (n,K) of zeros and ones, whose
    columns are the classes 0 to K-1, those of a table by their names; one that no row has is never predicted.

    Attributes
    ----------
    classes_ : (K,) the classes in the order of the columns of `predict` and `predict_proba`.
    report_ : metrics of the best epoch, as `report.json` of a run has them.
    """

    TASK: ClassVar[str] = "multilabel"

    def _answers(self, X: Any, y: Any, n: int) -> list[Any]:
        if len(names := column_names(y) or {}) > 1:
            y = np.array(list(zip(*(column(y, name, "y") for name in names), strict=False)))
        rows, classes = target_rows(X, y, self.label, n), list[Any]()
        lists, known = [row for row in rows if isinstance(row, list)], hasattr(self, "classes_")
        is_binary = all(value in (0, 1) for row in lists for value in row)
        if getattr(y, "ndim", 1) == 2 and column_names(y) is None:
            if not is_binary:
                raise InputError("y is a matrix with other values than 0 and 1; give these, or label lists.")
            classes = list(names) or (self.classes_.tolist() if known else [*range(len(rows[0]))])
            if (k := len(rows[0])) != len(classes):
                raise InputError(f"y has {k} columns, and there are {len(classes)} classes; give each one.")
            rows = [[name for name, applies in zip(classes, row, strict=True) if applies] for row in rows]
        elif not known and len(lists) == n and is_binary and len({*map(len, lists)}) == 1 < len(lists[0]):
            raise InputError("y has lists of zeros and ones; where they are a matrix, give np.array(y).")
        found = targets(rows, self._wrong)
        labels = [(row, label) for row, several in enumerate(found) for label in several]
        called = iter(self._named([*labels, *enumerate(classes)]))  # a class of a matrix needs no row
        return [tuple(sorted(islice(called, len(row)))) for row in found]

    def _wrong(self, value: Any) -> str:
        if not isinstance(value, list | set):
            return "is no list of labels"
        names = [str(label).strip() for label in value]
        if twice := next((name for name in names if names.count(name) > 1), None):
            return f"names the label {twice!r} more than once"
        check = super()._wrong
        found = ("is missing" if is_missing(label) else check(label) for label in value)
        return next((f"has a label that {wrong}" for wrong in found if wrong), "")

    def _row(self, example: TextExample) -> dict[str, Any]:
        return super()._row(example) | {"label": list(example.label or ())}

    def predict(self, X: Any) -> np.ndarray:
        """Return which classes apply to each text, (n,K) of zeros and ones."""
        found = [set(one["labels"]) for one in self._predictions(self._examples(X))]
        names = self._labels
        return np.array([[int(name in one) for name in names] for one in found])

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean of the classes' F1 (macro)."""
        return Estimator.score(self, X, y)


@documented
@dataclass(eq=False, repr=False)
class TextRegressor(_OfTexts):
    """Predict a number for a text or a pair of texts."""

    KIND: ClassVar[str] = "regressor"
    TASK: ClassVar[str] = "regress"

    def _wrong(self, value: Any) -> str:
        with suppress(OverflowError, TypeError, ValueError):
            if math.isfinite(float(value)):
                return ""
        return "is no finite number"

    def _answers(self, X: Any, y: Any, n: int) -> list[Any]:
        return list(map(float, targets(target_rows(X, y, self.label, n), self._wrong)))

    def predict(self, X: Any) -> np.ndarray:
        """Return the number of each text, (n,) float64."""
        return np.array([one["value"] for one in self._predictions(self._examples(X))], np.float64)

    def score(self, X: Any, y: Any = None) -> float:
        """Return R², as scikit-learn does: 1 at best, 0 for the mean of y, or errors in a constant y."""
        examples = self._examples(X, y, labelled=True)
        wanted, found = [one.label for one in examples], [one["value"] for one in self._predictions(examples)]
        return r2(wanted, found)
