"""The interface of a downstream task: reading, features, decoding, scoring and writing.

    files -> examples -> features -> (the model) -> outputs -> predictions -> scores, files, mistakes

Everything on the way that is particular to a task is a method of its `Task`; what trains, predicts and
reports treats all tasks alike.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from minibert.base.errors import InputError
from minibert.core.arrays import Array
from minibert.core.batch import Feature
from minibert.model.head_kinds import KINDS
from minibert.model.params import Head
from minibert.tasks.long_texts import LongTexts
from minibert.tasks.metrics.intervals import Statistic

SPLITS = ("train", "dev", "test")
Labels: TypeAlias = tuple[str, ...]  # of classes or tags in the order of the outputs; () without classes
Examples: TypeAlias = Sequence[Any]  # what a task reads: `TextExample`, `Question` and the like
Features: TypeAlias = Sequence[Feature]  # that can be asked for by number
Outputs: TypeAlias = Sequence[Array]  # scores of each feature
Tuned: TypeAlias = dict[str, float]  # chosen on dev and kept with the model, such as a threshold
Predictions: TypeAlias = Sequence[Any]  # one of each example, mostly a dictionary; JSON can say it
Classes: TypeAlias = tuple[Sequence[str], Sequence[str]]  # expected and predicted ones


# scores (K,) -> (K,) float64
def softmax(scores: Any) -> np.ndarray:
    """Turn the outputs of a head into probabilities.

    Parameters
    ----------
    scores : array_like
        One score for each class, (K,).

    Returns
    -------
    numpy.ndarray
        Probabilities, (K,) float64, whose sum is 1. The largest score is subtracted first, so that no
        exponential overflows.
    """
    wide = np.asarray(scores, np.float64)
    exponentials = np.exp(wide - wide.max(initial=-np.inf))
    return exponentials / exponentials.sum()


class Mistake(NamedTuple):
    """A prediction that is wrong, for a person to look at."""

    text: str  # what was asked, as a person reads it
    expected: str
    found: str
    severity: float  # larger is worse: what the mistakes are ordered by
    example: int = 0  # its number


class Task(ABC):
    """One downstream task: how its files are read, what a model is asked, and how answers are scored.

    A subclass fills in the attributes `name`, `kind`, `metric` and `title` and the abstract methods; the
    others have a default that suits most tasks.
    """

    name: str  # as the command line has it
    kind: str  # of its head
    metric: str  # the key of `score` that models are chosen by; larger is better
    title: str  # a line for people
    max_length: int = 128  # longest sequence by default, [CLS] and [SEP] included
    pair: bool | None = None  # whether a text is asked about with another one; None: where the data has one
    command: str = "predict"  # of minibert that asks such a model
    label_field: str = "label"  # of an example: what is expected of it, None where that is not known
    long: LongTexts | None = None  # how long texts become windows; None: as the task has them, or cut
    standardise: bool = False  # whether numbers are learnt at mean 0 and standard deviation 1
    rows: Mapping[str, Examples] = {}  # those in memory, by what errors call them; {}: they are from files
    needs_all_examples: bool = False  # whether a prediction depends on the other examples

    @abstractmethod
    def read(self, data: Path, split: str) -> list[Any]:
        """Read the examples of one split.

        Parameters
        ----------
        data : Path
            Folder of official files, or of tables; most tasks take the file itself, too.
        split : str
            "train", "dev" or "test".

        Returns
        -------
        list
            Examples of the task's own type, in the order of the file.

        Raises
        ------
        InputError
            When the file is missing or is not one of this task.
        """

    def labels(self, examples: Examples) -> Labels:
        """Name the classes or tags in the order of the outputs.

        Parameters
        ----------
        examples : sequence
            The training examples.

        Returns
        -------
        tuple of str
            () where outputs are not classes.
        """
        return ()

    def head(self, labels: Labels) -> Head:
        """Return the head of the model.

        Parameters
        ----------
        labels : tuple of str
            The classes or tags: where the kind of head has no fixed number of outputs, each has one.

        Returns
        -------
        Head
            Of the task's kind; it pools windows where `long` is given.
        """
        fixed = KINDS[self.kind].outputs
        count = len(labels) if fixed is None else fixed
        pool = self.long.pool if self.long else ""
        return Head(self.kind, count, pool=pool)

    def names(self, example: Any) -> tuple[Any, ...]:
        """Return the classes of texts that an example is labelled with.

        Parameters
        ----------
        example : object
            One that `read` returned.

        Returns
        -------
        tuple
            () for tasks without classes of texts. A class that is not known is None.
        """
        return ()

    @abstractmethod
    def features(
        self,
        examples: Iterable[Any],
        tokenizer: Any,
        labels: Labels,
        max_length: int,
        training: bool,
    ) -> Iterable[Feature]:
        """Yield what the model is asked about each example.

        Parameters
        ----------
        examples : iterable
            In their order, which `Feature.example` counts from 0. They may be read once only.
        tokenizer : Tokenizer
            That of the model.
        labels : tuple of str
            The model's classes or tags, in the order of its outputs.
        max_length : int
            Most tokens of a sequence, [CLS] and [SEP] included.
        training : bool
            Whether the features are for training: then every label has to be known, and examples that
            teach nothing may be left out.

        Yields
        ------
        Feature
            One for each example, or several where a document or a paragraph is read in windows.
        """

    def warn_unknown(self, examples: Examples, labels: Labels) -> None:
        """Warn of examples with a label that the model does not know: they count as mistakes.

        Parameters
        ----------
        examples : sequence
            Those to be measured.
        labels : tuple of str
            The model's classes or tags.
        """
        return

    def check_dev(self, examples: Examples, labels: Labels) -> None:
        """Warn, before a run, of dev examples with a label that no training example has; or refuse them.

        Parameters
        ----------
        examples : sequence
            The dev set.
        labels : tuple of str
            The classes or tags of the training examples.
        """
        self.warn_unknown(examples, labels)

    def warn_rare(self, train: Examples, dev: Examples, labels: Labels) -> None:
        """Warn of classes with too few training or dev examples.

        Parameters
        ----------
        train : sequence
            The training examples.
        dev : sequence
            The dev set.
        labels : tuple of str
            The classes.
        """
        return

    def is_labelled(self, example: Any) -> bool:
        """Return whether the label of an example is known.

        Parameters
        ----------
        example : object
            One that `read` returned.

        Returns
        -------
        bool
            False where the attribute that `label_field` names is None.
        """
        return getattr(example, self.label_field) is not None

    def require_labels(self, examples: Examples) -> None:
        """Refuse examples without a label to score predictions against.

        Parameters
        ----------
        examples : sequence
            Those to be scored, with the attributes `id` and `label`.

        Raises
        ------
        InputError
            When a label is None; the first such example is named.
        """
        for example in examples:
            if example.label is None:
                raise InputError(
                    "there is no label to score against; choose a labelled split.",
                    where=f"example {example.id}",
                )

    def tune(
        self,
        examples: Examples,
        features: Any,
        outputs: Outputs,
        labels: Labels,
    ) -> Tuned:
        """Choose on dev what is kept with the model, such as the threshold of "no answer".

        Parameters
        ----------
        examples : sequence
            The dev set, with labels.
        features : sequence of Feature
            What the model was asked about it.
        outputs : sequence of numpy.ndarray
            The scores of each feature.
        labels : tuple of str
            The model's classes or tags.

        Returns
        -------
        dict
            Numbers by name, which `predict` is given; {} where there is nothing to choose.
        """
        return {}

    @abstractmethod
    def predict(
        self,
        examples: Examples,
        features: Any,
        outputs: Outputs,
        labels: Labels,
        tuned: Tuned,
    ) -> list[Any]:
        """Make a prediction of every example.

        Parameters
        ----------
        examples : sequence
            Labels need not be known.
        features : sequence of Feature
            What the model was asked about them.
        outputs : sequence of numpy.ndarray
            The scores of each feature.
        labels : tuple of str
            The model's classes or tags, in the order of its outputs.
        tuned : dict
            What `tune` chose on dev.

        Returns
        -------
        list
            One prediction for each example, in their order, which JSON can hold.
        """

    @abstractmethod
    def score(self, examples: Examples, predictions: Predictions) -> dict[str, float]:
        """Compute the official metrics.

        Parameters
        ----------
        examples : sequence
            With labels.
        predictions : sequence
            What `predict` made of them, in their order.

        Returns
        -------
        dict
            Metrics by name, fractions of one where they are percentages of something. The key `metric` is the
            one that models are chosen by.
        """

    @abstractmethod
    def statistic(self, examples: Examples, predictions: Predictions) -> Statistic:
        """Return the metric that models are chosen by as a function of examples, for its interval.

        Parameters
        ----------
        examples : sequence
            With labels.
        predictions : sequence
            What `predict` made of them, in their order.

        Returns
        -------
        callable
            Takes numbers of examples, (m,) int64, some of them repeated, and returns the metric of these.
        """

    @abstractmethod
    def write(
        self,
        folder: Path,
        split: str,
        examples: Examples,
        predictions: Predictions,
    ) -> list[Path]:
        """Write the task's official files.

        Parameters
        ----------
        folder : Path
            Where to write.
        split : str
            Name of the split, which may be part of the files' names.
        examples : sequence
            Labels need not be known.
        predictions : sequence
            What `predict` made of them, in their order.

        Returns
        -------
        list of Path
            The files.
        """

    def mistakes(self, examples: Examples, predictions: Predictions) -> list[Mistake]:
        """Return every wrong prediction, the worst first.

        Parameters
        ----------
        examples : sequence
            With labels.
        predictions : sequence
            What `predict` made of them, in their order.

        Returns
        -------
        list of Mistake
            Ordered by `severity`; those that are equally bad stay in the order of the examples.
        """
        return sorted(self._mistakes(examples, predictions), key=lambda mistake: -mistake.severity)

    @abstractmethod
    def _mistakes(self, examples: Examples, predictions: Predictions) -> Iterator[Mistake]:
        """Yield every wrong prediction."""

    def baselines(self, examples: Examples) -> dict[str, dict[str, float]]:
        """Score a baseline that needs no model, for comparison.

        Parameters
        ----------
        examples : sequence
            With labels.

        Returns
        -------
        dict
            Metrics as `score` returns them, by the name of the baseline; {} for tasks without any.
        """
        return {}

    def constant(self, examples: Examples) -> float | None:
        """Return the constant number that predicts these examples best.

        Parameters
        ----------
        examples : sequence
            With labels.

        Returns
        -------
        float or None
            None for tasks whose answer is not a number.
        """
        return None

    def asked(self, example: Any) -> dict[str, Any]:
        """Return what is written beside the prediction in JSON: the texts of a custom table, by role.

        Parameters
        ----------
        example : object
            One that `read` returned.

        Returns
        -------
        dict
            {} for official files.
        """
        return {}

    def as_read(
        self,
        mistake: Mistake,
        example: Any,
        tokenizer: Any,
        max_length: int,
    ) -> Mistake:
        """Mark in a mistake where the model stopped reading; for tasks whose texts are cut.

        Parameters
        ----------
        mistake : Mistake
            One of `mistakes`.
        example : object
            Which it was made of.
        tokenizer : Tokenizer
            That of the model.
        max_length : int
            Most tokens of a sequence, as the model has read it.

        Returns
        -------
        Mistake
            The same one for tasks that cut nothing.
        """
        return mistake

    def classes(self, examples: Examples, predictions: Predictions) -> Classes | None:
        """Return expected and predicted classes for a confusion matrix.

        Parameters
        ----------
        examples : sequence
            With labels.
        predictions : sequence
            What `predict` made of them, in their order.

        Returns
        -------
        tuple of two sequences, or None
            A class for each example, or for each word; None where there is no such matrix.
        """
        return None
