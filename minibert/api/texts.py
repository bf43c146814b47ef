"""`TextClassifier`, `MultilabelClassifier`, `TextRegressor`: classes, or a number, for a text or a pair."""

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from reprlib import repr as short
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from minibert import engines
from minibert.api.base import Estimator
from minibert.api.calls import documented
from minibert.api.inputs import column, column_names, is_missing, target_rows, targets, text_pairs
from minibert.base.errors import InputError, warn
from minibert.base.options import option
from minibert.data.glue import TextExample
from minibert.data.tables import SEPARATOR
from minibert.finetuning.explaining import Explanation, explain
from minibert.finetuning.models import Finetuned
from minibert.finetuning.options import BalanceArguments, WindowArguments
from minibert.model.ops import Ops
from minibert.model.params import Head, Parameters
from minibert.tasks import registry
from minibert.tasks.metrics import r2
from minibert.tasks.multilabel import HALF
from minibert.tokenizer import Tokenizer


@dataclass(eq=False, repr=False)
class _OfTexts(Estimator, WindowArguments):
    """Read texts and pairs of texts: what the estimators of this module have in common."""

    text: str = option("text", "column of the texts in a table")
    second: str | None = option(None, "column of the second texts, where there are pairs", default="")
    label: str = option("label", "column of the labels")

    def _examples(self, X: Any, y: Any = None, labelled: bool = False) -> list[TextExample]:
        pairs = text_pairs(X, self.text, self.second)
        are_pairs = pairs[0][1] is not None
        learnt = (y or self.label) if y is None or isinstance(y, str) else None
        for role, name in (("second", self.second), ("text", self.text)):
            if labelled and name is not None and name == learnt and column_names(X) is not None:
                named: dict[str, Any] = {role: name}
                what = f"{role}={name!r} is the column that is to be learnt"
                raise InputError(f"{what}; name another, or leave it out.", **named)
        if getattr(self, "_pairs", None) not in (None, are_pairs):  # None: either will do
            such = "single texts" if are_pairs else "pairs of texts"
            raise InputError(f"This {type(self).__name__} was trained on {such}; give it those.")
        answers: list[Any] = [None] * len(pairs)
        if labelled:
            answers = self._answers(X, y, len(pairs))
            if all(second == answer for (_, second), answer in zip(pairs, answers, strict=True)):
                advice = "give the texts alone, such as table['text']."
                warn(f"The second text of every row is its label, so that nothing is left to learn; {advice}")
            if not self.__sklearn_is_fitted__():
                self._pairs: bool | None = are_pairs
        examples = []
        for number, ((first, second), answer) in enumerate(zip(pairs, answers, strict=True)):
            examples.append(TextExample(str(number), first, second, answer))
        return examples

    @abstractmethod
    def _answers(self, X: Any, y: Any, n: int) -> list[Any]:
        """Return what is expected of each of n rows, as examples have it."""

    def _row(self, example: TextExample) -> dict[str, Any]:
        row: dict[str, Any] = {"text": example.first}
        if example.second is not None:
            row["second"] = example.second
        row["label"] = example.label
        return row

    def _learn_stored(self, stored: dict[str, Any]) -> None:
        self._pairs = self.model_.pair

    def explain(self, text: str | tuple[str, str], answer: Any = None) -> Explanation:
        """Compute what each word of a text speaks for an answer: the gradient of its score times the input.

        Parameters
        ----------
        text : str or tuple of two str
            One text, or a pair.
        answer : object, optional
            The class to explain, one of `classes_`; None: the likeliest. A number has no classes.

        Returns
        -------
        Explanation
            `words`, each with its score in nats of the log-odds of the class, or in units of the number. In a
            notebook it is shown as the coloured text, with a sentence on what a score does not mean.

        Raises
        ------
        InputError
            When there is no such class, several texts are given, or the text takes more than one window.

        Examples
        --------
        >>> classifier.explain("a fine film").top(1)  # doctest: +SKIP
        [Word(word='fine', score=1.84)]
        """
        model = self.model_
        if not isinstance(text, str | tuple):
            what = "several" if isinstance(text, Iterable) else "not a text"
            raise InputError(f"text={short(text)} is {what}; give one text, or a pair as a tuple.")
        [example] = self._examples([text])
        name = None if answer is None else str(answer).strip()
        with engines.limited_threads(self.threads, model.ops):
            return explain(model, example, name)


@documented
@dataclass(eq=False, repr=False)
class TextClassifier(_OfTexts, BalanceArguments):
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
        ops: Ops | None = None,
    ) -> "TextClassifier":
        """Return a fitted classifier of parameters that were trained elsewhere, in a custom loop.

        Parameters
        ----------
        params : Parameters
            A BERT with a head of kind "classify".
        tokenizer : Tokenizer
            Its vocabulary.
        classes : sequence (K,)
            In the order of the head's outputs.
        max_length : int, optional
            Longest sequence, [CLS] and [SEP] included; None: 128, or all positions of the model.
        pairs : bool, default False
            Whether it was trained on pairs of texts.
        ops : Ops, optional
            The engine; the fastest there is when left out.

        Returns
        -------
        TextClassifier

        Raises
        ------
        InputError
            When these are not parameters, or the head is another one or has not an output for each class.
        """
        if not isinstance(params, Parameters):
            what = f"params={short(params)} are not Parameters"
            raise InputError(f"{what}; give those of initialise(..., head=...).")
        if params.head != Head(cls.TASK, len(classes)):
            head = f"a head {params.head.kind!r} of {params.head.outputs} outputs"
            other = f"not one for each of {len(classes)} classes; give those of a classifier."
            raise InputError(f"params have {head}, {other}")
        self = cls("")
        self.classes_ = np.array(classes)
        self._pairs = pairs
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
        is_float = isinstance(value, float)
        if is_float and not (math.isfinite(value) and value.is_integer()):
            return "is continuous and so not a class; a TextRegressor learns numbers"
        if not isinstance(value, str | int | float):
            return "is not a single string, number or bool"
        if not str(value).strip():
            return "is empty"
        return ""

    def _answers(self, X: Any, y: Any, n: int) -> list[Any]:
        labels = targets(target_rows(X, y, self.label, n), self._wrong)
        return self._named(list(enumerate(labels)))

    def _named(self, labels: list[tuple[int, Any]]) -> list[str]:
        """Return what files call labels, each given with its row; of the first, learn the classes."""
        if not hasattr(self, "classes_"):
            self._learn_classes(labels)
        names = dict(zip(self.classes_.tolist(), self._labels, strict=True))  # 1, 1.0 and True are equal
        if not self.__sklearn_is_fitted__():
            for row, value in labels:
                if value not in names:
                    what = f"Row {row:,} of y has the label {value!r}"
                    raise InputError(f"{what}, which no training row has; correct it, or add rows of it.")
        return [names.get(value, str(value).strip()) for _, value in labels]

    def _learn_classes(self, labels: list[tuple[int, Any]]) -> None:
        """Set `classes_` to the different ones of some labels, which have to be of one type."""
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

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the likeliest class of each text.

        Parameters
        ----------
        X : list, array, column or table
            As for `fit`.

        Returns
        -------
        array (n,) of the type of `classes_`.
        """
        chosen = self.predict_proba(X).argmax(1)  # before `classes_`, which there is only after `fit`
        return self.classes_[chosen]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class.

        Parameters
        ----------
        X : list, array, column or table
            As for `fit`.

        Returns
        -------
        array (n,K) float64, in the order of `classes_`.
        """
        predictions = self._predictions(self._examples(X))
        names = self._labels
        rows = []
        for prediction in predictions:
            probabilities = prediction["probabilities"]
            rows.append([probabilities.get(name, 0.0) for name in names])
        return np.array(rows)

    def score(self, X: Any, y: Any = None) -> float:
        """Return the accuracy.

        Parameters
        ----------
        X : list, array, column or table
            As for `fit`.
        y : list, array, column or str, optional
            The class of each row, as for `fit`.

        Returns
        -------
        float
            From 0 to 1.
        """
        examples = self._examples(X, y, labelled=True)
        predictions = self._predictions(examples)
        is_right = []
        for example, prediction in zip(examples, predictions, strict=True):
            is_right.append(example.label == prediction["label"])
        return float(np.mean(is_right))

    def _stored(self) -> dict[str, Any]:
        return super()._stored() | {"classes": self.classes_.tolist()}

    def _learn_stored(self, stored: dict[str, Any]) -> None:
        super()._learn_stored(stored)
        classes = stored.get("classes")
        if not isinstance(classes, list) or not all(isinstance(name, str | int | float) for name in classes):
            classes = []
        self.classes_ = np.array(classes)
        if not set(self.model_.labels) <= set(self._labels):
            self.classes_ = np.array(self.model_.labels)


@documented
@dataclass(eq=False, repr=False)
class MultilabelClassifier(TextClassifier):
    """Predict any number of classes for a text or a pair of texts.

    A row of y is a list of labels, empty where none applies; or y is a matrix (n,K) of zeros and ones, whose
    columns are the classes 0 to K-1, those of a table by their names; one that no row has is never predicted.

    Attributes
    ----------
    classes_ : (K,) the classes in the order of the columns of `predict` and `predict_proba`.
    thresholds_ : (K,) the probability from which on each class applies, chosen for the best F1 on dev.
    report_ : metrics of the best epoch, as `report.json` of a run has them.
    """

    TASK: ClassVar[str] = "multilabel"

    def _answers(self, X: Any, y: Any, n: int) -> list[Any]:
        names = column_names(y) or {}
        if len(names) > 1:
            columns = [column(y, name, "y") for name in names]
            y = np.array(list(zip(*columns, strict=False)))
        rows = target_rows(X, y, self.label, n)
        lists = [row for row in rows if isinstance(row, list)]
        is_binary = all(value in (0, 1) for row in lists for value in row)
        classes: list[Any] = []
        if getattr(y, "ndim", 1) == 2 and column_names(y) is None:
            if not is_binary:
                raise InputError("y is a matrix with other values than 0 and 1; give these, or label lists.")
            classes = self._classes_of_matrix(rows, list(names))
            rows = [[name for name, applies in zip(classes, row, strict=True) if applies] for row in rows]
        elif not hasattr(self, "classes_") and len(lists) == n and is_binary and _are_of_one_length(lists):
            raise InputError("y has lists of zeros and ones; where they are a matrix, give np.array(y).")
        answers = targets(rows, self._wrong)
        for row, several in enumerate(answers):
            if any(SEPARATOR in str(label) for label in several):
                wrong = f"is {short(several)}, which holds something that is not a name"
                raise InputError(f"Row {row:,} of y {wrong}; give names that have no {SEPARATOR}.")
        labels = [(row, label) for row, several in enumerate(answers) for label in several]
        called = iter(self._named([*labels, *enumerate(classes)]))  # a class of a matrix needs no row
        return [tuple(sorted(islice(called, len(several)))) for several in answers]

    def _classes_of_matrix(self, rows: list[Any], names: list[Any]) -> list[Any]:
        """Return the class of each column of a matrix: its name, a class that is known, or its number."""
        k = len(rows[0])
        classes = names
        if not classes:
            classes = self.classes_.tolist() if hasattr(self, "classes_") else list(range(k))
        if k != len(classes):
            raise InputError(f"y has {k} columns, and there are {len(classes)} classes; give each one.")
        return classes

    def _wrong(self, value: Any) -> str:
        if not isinstance(value, list | set):
            return "is not a list of labels"
        names = [str(label).strip() for label in value]
        for name in names:
            if names.count(name) > 1:
                return f"names the label {name!r} more than once"
        for label in value:
            wrong = "is missing" if is_missing(label) else super()._wrong(label)
            if wrong:
                return f"has a label that {wrong}"
        return ""

    def _row(self, example: TextExample) -> dict[str, Any]:
        return super()._row(example) | {"label": list(example.label or ())}

    @property
    def thresholds_(self) -> NDArray[np.float64]:
        """The probability from which on each class applies, (K,): chosen for the best F1 on dev."""
        tuned = self.model_.tuned
        return np.array([tuned.get(name, HALF) for name in self._labels])

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return which classes apply to each text.

        Parameters
        ----------
        X : list, array, column or table
            As for `fit`.

        Returns
        -------
        array (n,K) of zeros and ones, in the order of `classes_`.
        """
        chosen = [set(prediction["labels"]) for prediction in self._predictions(self._examples(X))]
        names = self._labels
        return np.array([[int(name in labels) for name in names] for labels in chosen])

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean of the classes' F1 (macro).

        Parameters
        ----------
        X : list, array, column or table
            As for `fit`.
        y : list of lists, matrix or str, optional
            The classes of each row, as for `fit`.

        Returns
        -------
        float
        """
        return Estimator.score(self, X, y)


def _are_of_one_length(lists: list[list[Any]]) -> bool:
    """Tell whether several lists all have as many parts, more than one."""
    lengths = {len(row) for row in lists}
    return len(lengths) == 1 and len(lists[0]) > 1


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
        return "is not a finite number"

    def _answers(self, X: Any, y: Any, n: int) -> list[Any]:
        values = targets(target_rows(X, y, self.label, n), self._wrong)
        return list(map(float, values))

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the number of each text.

        Parameters
        ----------
        X : list, array, column or table
            As for `fit`.

        Returns
        -------
        array (n,) float64
        """
        predictions = self._predictions(self._examples(X))
        return np.array([prediction["value"] for prediction in predictions], np.float64)

    def score(self, X: Any, y: Any = None) -> float:
        """Return R², as scikit-learn does: 1 at best, 0 for the mean of y, or errors in a constant y.

        Parameters
        ----------
        X : list, array, column or table
            As for `fit`.
        y : list, array, column or str, optional
            The number of each row, as for `fit`.

        Returns
        -------
        float
        """
        examples = self._examples(X, y, labelled=True)
        wanted = [example.label for example in examples]
        predicted = [prediction["value"] for prediction in self._predictions(examples)]
        return r2(wanted, predicted)
