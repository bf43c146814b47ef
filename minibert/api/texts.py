"""`TextClassifier`, `MultilabelClassifier`, `TextRegressor`: classes or a number for a text or a pair."""

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from reprlib import repr as short
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from minibert import engines
from minibert.api.base import Estimator
from minibert.api.calls import explains_arguments, explains_unknown_arguments
from minibert.api.inputs import (
    column,
    column_names,
    is_missing,
    refuse_matrix,
    target_rows,
    targets,
    text_pairs,
)
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
from minibert.tasks.metrics import accuracy, r2
from minibert.tasks.multilabel import HALF
from minibert.tokenizer import Tokenizer


@dataclass(eq=False, repr=False)
class _TextEstimator(Estimator, WindowArguments):
    """The base class of the estimators in this module, which reads texts and pairs of texts."""

    text: str = option("text", "column of the texts in a table")
    second: str | None = option(None, "column of the second texts, for pairs", default="")
    label: str = option("label", "column of the labels")

    def _examples(self, X: Any, y: Any = None, labelled: bool = False) -> list[TextExample]:
        pairs = text_pairs(X, self.text, self.second)
        are_pairs = pairs[0][1] is not None
        if labelled and column_names(X) is not None and (y is None or isinstance(y, str)):
            self._refuse_label_as_text(y or self.label)
        if getattr(self, "_pairs", None) not in (None, are_pairs):  # None: both will do
            expected = "single texts" if are_pairs else "pairs of texts"
            raise InputError(f"This {type(self).__name__} was trained on {expected}; give it those.")
        answers: list[Any] = [None] * len(pairs)
        if labelled:
            answers = self._answers(X, y, len(pairs))
            if all(second == answer for (_, second), answer in zip(pairs, answers, strict=True)):
                advice = "give the texts alone, such as table['text']."
                warn(f"The second text of every row is its label, so that nothing is left to learn; {advice}")
            if not self.__sklearn_is_fitted__():
                self._pairs: bool | None = are_pairs
        examples = []
        for index, ((first, second), answer) in enumerate(zip(pairs, answers, strict=True)):
            examples.append(TextExample(str(index), first, second, answer))
        return examples

    def _refuse_label_as_text(self, label: str) -> None:
        """Raise InputError if the column of the labels is also read as a text."""
        for role, name in (("second", self.second), ("text", self.text)):
            if name == label:
                arguments: dict[str, Any] = {role: name}
                what = f"{role}={name!r} is the column of the labels"
                raise InputError(f"{what}; name another, or leave it out.", **arguments)

    @abstractmethod
    def _answers(self, X: Any, y: Any, n: int) -> list[Any]:
        """Return the label of each of n rows, in the form that examples have."""

    def _row(self, example: TextExample) -> dict[str, Any]:
        row: dict[str, Any] = {"text": example.first}
        if example.second is not None:
            row["second"] = example.second
        row["label"] = example.label
        return row

    def _set_stored(self, stored: dict[str, Any]) -> None:
        self._pairs = self.model_.pair

    @explains_unknown_arguments
    def explain(self, text: str | tuple[str, str], answer: Any = None) -> Explanation:
        """Compute how much each word of a text contributes to an answer: gradient times input.

        Shrikumar et al. (2017) describe the method. A score is the slope at this text, and not what would
        happen without the word.

        Parameters
        ----------
        text : str or tuple of two str
            One text, or a pair.
        answer : object, optional
            The class to explain, one of `classes_`; None: the likeliest one. Leave it out for a regressor.

        Returns
        -------
        Explanation
            Its `words`, each with a score: nats of the log-odds of the class, or units of the predicted
            number. A notebook shows the text in colours, with a sentence on what a score does not mean.

        Raises
        ------
        InputError
            When there is no such class, `text` is several texts, or it takes more than one window.

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


@explains_arguments
@dataclass(eq=False, repr=False)
class TextClassifier(_TextEstimator, BalanceArguments):
    """Predict a class for a text or a pair of texts.

    Attributes
    ----------
    classes_ : (K,) the classes, in the order of the columns of `predict_proba`.
    report_ : metrics of the best epoch, as in a run's `report.json`.

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
        """Return a fitted classifier from parameters that were trained elsewhere, such as in a custom loop.

        Parameters
        ----------
        params : Parameters
            The parameters of a BERT with a head of kind "classify".
        tokenizer : Tokenizer
            The tokenizer of the model.
        classes : sequence (K,)
            The classes, in the order of the head's outputs.
        max_length : int, optional
            Most tokens of a sequence, [CLS] and [SEP] included; None: 128, or the number of positions of the
            model if that is less.
        pairs : bool, default False
            Whether the model was trained on pairs of texts.
        ops : Ops, optional
            The engine; None: the fastest one available.

        Returns
        -------
        TextClassifier

        Raises
        ------
        InputError
            When `params` are not parameters, or their head is of another kind or size.
        """
        if not isinstance(params, Parameters):
            what = f"params={short(params)} are not Parameters"
            raise InputError(f"{what}; give those of initialise(..., head=...).")
        if params.head != Head(cls.TASK, len(classes)):
            head = f"params have a head of kind {params.head.kind!r} with {params.head.outputs} outputs"
            needed = f"the {len(classes)} classes need one of kind {cls.TASK!r} with {len(classes)}"
            raise InputError(f"{head}, and {needed}; give the parameters of a classifier.")
        self = cls("")
        self.classes_ = np.array(classes)
        self._pairs = pairs
        task = registry.create(cls.TASK, {"second": "second"} if pairs else {})
        ops = engines.create() if ops is None else ops
        if max_length is None:
            max_length = min(128, params.config.P)
        names = tuple(self._labels)
        self._fitted = Finetuned(Path(), task, names, {}, max_length, pairs, tokenizer, ops, params)
        self._trained_texts = frozenset()  # they are not known
        return self

    @property
    def _labels(self) -> list[str]:
        """The classes as strings without surrounding spaces, as files and the model have them."""
        return [str(value).strip() for value in self.classes_.tolist()]

    def _wrong(self, value: Any) -> str:
        """Return what is wrong with a value of y; "" if nothing is."""
        if not isinstance(value, str | int | float) or _is_continuous(value):
            return "is not a string, a whole number or a bool"
        if not str(value).strip():
            return "is empty"
        return ""

    def _answers(self, X: Any, y: Any, n: int) -> list[Any]:
        rows = target_rows(X, y, self.label, n)
        refuse_matrix(
            rows, "for one-hot rows give np.argmax(y, axis=1), for several labels use MultilabelClassifier."
        )
        for index, value in enumerate(rows):
            if _is_continuous(value) and not is_missing(value):
                what = f"Row {index:,} of y, {value}, is continuous and not a class"
                raise InputError(f"{what}; TextRegressor learns numbers.")
        labels = targets(rows, self._wrong)
        return self._names_of(list(enumerate(labels)))

    def _names_of(self, labels: list[tuple[int, Any]]) -> list[str]:
        """Return labels, given with the indices of their rows, as strings; the first call sets `classes_`."""
        if not hasattr(self, "classes_"):
            self._set_classes(labels)
        names = dict(zip(self.classes_.tolist(), self._labels, strict=True))  # 1, 1.0 and True are equal
        if not self.__sklearn_is_fitted__():
            for row, value in labels:
                if value not in names:
                    what = f"Row {row:,} of y has the label {value!r}"
                    raise InputError(f"{what}, which no training row has; correct it, or add rows of it.")
        return [names.get(value, str(value).strip()) for _, value in labels]

    def _set_classes(self, labels: list[tuple[int, Any]]) -> None:
        """Set `classes_` to the distinct labels; raise InputError if these are of several types."""
        examples_of_types: dict[type, str] = {}
        by_name: dict[str, Any] = {}
        for row, value in labels:
            first = by_name.setdefault(str(value).strip(), value)
            examples_of_types.setdefault(type(value), f"{short(value)} in row {row:,}")
            if len(examples_of_types) > 1:
                values = " and ".join(examples_of_types.values())
                raise InputError(f"y has {values}; give labels of one type.")
            if first != value:
                raise InputError(f"y has both {short(first)} and {short(value)}; give them one name.")
        self.classes_: NDArray[Any] = np.unique(np.array(list(by_name.values())))

    @explains_unknown_arguments
    def predict(self, X: Any) -> NDArray[Any]:
        """Return the likeliest class of each text.

        Parameters
        ----------
        X : list, array, column or table
            As for `fit`.

        Returns
        -------
        array (n,) of the type of `classes_`.

        Raises
        ------
        InputError
            When nothing is fitted yet, or a row can't be used; the message names the row.
        """
        best = self.predict_proba(X).argmax(1)  # raises NotFitted if there are no `classes_` yet
        return self.classes_[best]

    @explains_unknown_arguments
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class.

        Parameters
        ----------
        X : list, array, column or table
            As for `fit`.

        Returns
        -------
        array (n,K) float64, in the order of `classes_`.

        Raises
        ------
        InputError
            When nothing is fitted yet, or a row can't be used; the message names the row.
        """
        predictions = self._predictions(self._examples(X))
        names = self._labels
        rows = []
        for prediction in predictions:
            probabilities = prediction["probabilities"]
            rows.append([probabilities.get(name, 0.0) for name in names])
        return np.array(rows)

    @explains_unknown_arguments
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

        Raises
        ------
        InputError
            When there is no label, or a row can't be used; the message names the row.
        """
        examples = self._measured_examples(X, y)
        labels = [example.label for example in examples]
        predicted = [prediction["label"] for prediction in self._predictions(examples)]
        return accuracy(labels, predicted)

    def _stored(self) -> dict[str, Any]:
        return super()._stored() | {"classes": self.classes_.tolist()}

    def _set_stored(self, stored: dict[str, Any]) -> None:
        super()._set_stored(stored)
        classes = stored.get("classes")
        if not isinstance(classes, list) or not all(isinstance(name, str | int | float) for name in classes):
            classes = []
        self.classes_ = np.array(classes)
        if not set(self.model_.labels) <= set(self._labels):
            self.classes_ = np.array(self.model_.labels)


@explains_arguments
@dataclass(eq=False, repr=False)
class MultilabelClassifier(TextClassifier):
    """Predict any number of classes for a text or a pair of texts.

    Each row of y is a list of labels, which is empty if none applies. Or y is a matrix (n,K) of zeros and
    ones, whose columns are the classes 0 to K-1, or a table of such columns, whose names are the classes. A
    class that no row has is never predicted.

    Attributes
    ----------
    classes_ : (K,) the classes, in the order of the columns of `predict` and `predict_proba`.
    thresholds_ : (K,) the lowest probability at which each class applies, chosen for the best F1 on dev.
    report_ : metrics of the best epoch, as in a run's `report.json`.
    """

    TASK: ClassVar[str] = "multilabel"

    def _answers(self, X: Any, y: Any, n: int) -> list[Any]:
        names = column_names(y) or {}
        if len(names) > 1:
            columns = {name: column(y, name, "y", "y") for name in names}
            for name, values in columns.items():
                if len(values) != n:
                    counts = f"X has {n:,} rows and y[{name!r}] {len(values):,}"
                    raise InputError(f"{counts}; give a zero or a one for each row.")
            y = np.array(list(zip(*columns.values(), strict=True)))
        rows = target_rows(X, y, self.label, n)
        lists = [row for row in rows if isinstance(row, list)]
        is_binary = all(value in (0, 1) for row in lists for value in row)
        classes: list[Any] = []
        if getattr(y, "ndim", 1) == 2 and column_names(y) is None:
            if not is_binary:
                raise InputError("y is a matrix with other values than 0 and 1; give these, or label lists.")
            classes = self._classes_of_matrix(rows, list(names))
            rows = [list(compress(classes, row)) for row in rows]
        elif not hasattr(self, "classes_") and len(lists) == n and is_binary and _are_of_one_length(lists):
            raise InputError("y has lists of zeros and ones; if they are a matrix, give np.array(y).")
        answers = targets(rows, self._wrong)
        for index, labels in enumerate(answers):
            if any(SEPARATOR in str(label) for label in labels):
                what = f"Row {index:,} of y is {short(labels)}, where a label contains {SEPARATOR}"
                raise InputError(f"{what}, which separates labels in files; give it another name.")
        labels_with_rows = [(index, label) for index, labels in enumerate(answers) for label in labels]
        labels_with_rows += enumerate(classes)  # a column of a matrix is a class even if no row has it
        pairs = zip(labels_with_rows, self._names_of(labels_with_rows), strict=True)
        name_of = {label: name for (_, label), name in pairs}
        return [tuple(sorted(name_of[label] for label in labels)) for labels in answers]

    def _classes_of_matrix(self, rows: list[Any], names: list[Any]) -> list[Any]:
        """Return the class of each column of a matrix: its name, else one of `classes_`, else its index."""
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
                return f"has the label {name!r} more than once"
        for label in value:
            wrong = "is missing" if is_missing(label) else super()._wrong(label)
            if wrong:
                return f"has a label that {wrong}"
        return ""

    def _row(self, example: TextExample) -> dict[str, Any]:
        return super()._row(example) | {"label": list(example.label or ())}

    @property
    def thresholds_(self) -> NDArray[np.float64]:
        """The lowest probability at which each class applies, (K,), chosen for the best F1 on dev."""
        tuned = self.model_.tuned
        return np.array([tuned.get(name, HALF) for name in self._labels])

    @explains_unknown_arguments
    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return which classes apply to each text.

        Parameters
        ----------
        X : list, array, column or table
            As for `fit`.

        Returns
        -------
        array (n,K) of zeros and ones, in the order of `classes_`.

        Raises
        ------
        InputError
            When nothing is fitted yet, or a row can't be used; the message names the row.
        """
        predictions = self._predictions(self._examples(X))
        names = self._labels
        rows = []
        for prediction in predictions:
            labels = set(prediction["labels"])
            rows.append([int(name in labels) for name in names])
        return np.array(rows)

    @explains_unknown_arguments
    def score(self, X: Any, y: Any = None) -> float:
        """Return the macro F1: the mean of the F1 of the model's classes.

        Parameters
        ----------
        X : list, array, column or table
            As for `fit`.
        y : list of lists, matrix or str, optional
            The classes of each row, as for `fit`.

        Returns
        -------
        float
            From 0 to 1.

        Raises
        ------
        InputError
            When there is no label, or a row can't be used; the message names the row.
        """
        return Estimator.score(self, X, y)  # not the accuracy of `TextClassifier.score`


def _is_continuous(value: Any) -> bool:
    """Return whether a value is a float that is not a whole number."""
    return isinstance(value, float) and not value.is_integer()


def _are_of_one_length(lists: list[list[Any]]) -> bool:
    """Return whether all lists have the same length, which is more than one."""
    lengths = {len(row) for row in lists}
    return len(lengths) == 1 and len(lists[0]) > 1


@explains_arguments
@dataclass(eq=False, repr=False)
class TextRegressor(_TextEstimator):
    """Predict a number for a text or a pair of texts."""

    KIND: ClassVar[str] = "regressor"
    TASK: ClassVar[str] = "regress"

    def _wrong(self, value: Any) -> str:
        with suppress(OverflowError, TypeError, ValueError):
            if math.isfinite(float(value)):
                return ""
        return "is not a finite number"

    def _answers(self, X: Any, y: Any, n: int) -> list[Any]:
        rows = target_rows(X, y, self.label, n)
        refuse_matrix(rows, "give one number for each row.")
        return list(map(float, targets(rows, self._wrong)))

    @explains_unknown_arguments
    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the predicted number for each text.

        Parameters
        ----------
        X : list, array, column or table
            As for `fit`.

        Returns
        -------
        array (n,) float64

        Raises
        ------
        InputError
            When nothing is fitted yet, or a row can't be used; the message names the row.
        """
        predictions = self._predictions(self._examples(X))
        return np.array([prediction["value"] for prediction in predictions], np.float64)

    @explains_unknown_arguments
    def score(self, X: Any, y: Any = None) -> float:
        """Return R² as scikit-learn does: 1 at best, 0 for predictions no better than the mean of y.

        If all values of y are equal, R² is 1 when every prediction is exact, and 0 otherwise. The best epoch
        is still chosen by the metric of the task, Spearman's correlation.

        Parameters
        ----------
        X : list, array, column or table
            As for `fit`.
        y : list, array, column or str, optional
            The number of each row, as for `fit`.

        Returns
        -------
        float
            1 at most; below 0 for predictions that are worse than the mean.

        Raises
        ------
        InputError
            When there is no label, or a row can't be used; the message names the row.
        """
        examples = self._measured_examples(X, y)
        labels = [example.label for example in examples]
        values = [prediction["value"] for prediction in self._predictions(examples)]
        return r2(labels, values)
