"""The interface of a downstream task: reading, features, decoding, scoring and writing.

    files -> examples -> features -> (the model) -> outputs -> predictions -> scores, files, mistakes

Everything that is specific to a task is a method of its `Task`; the code that trains, predicts and reports
treats all tasks alike.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from minibert.base.errors import InputError
from minibert.core.arrays import Array
from minibert.core.batch import Feature
from minibert.core.config import BertConfig
from minibert.model.head_kinds import KINDS
from minibert.model.params import Head
from minibert.tasks.long_texts import LongTexts
from minibert.tasks.metrics.intervals import Statistic
from minibert.tokenizer import Tokenizer

SPLITS = ("train", "dev", "test")
Labels: TypeAlias = tuple[str, ...]  # classes or tags in the order of the outputs; () without classes
Examples: TypeAlias = Sequence[Any]  # what a task reads: `TextExample`, `Question` and the like
Features: TypeAlias = Sequence[Feature]  # a list, or a sequence that makes each feature when it is indexed
Outputs: TypeAlias = Sequence[Array]  # the scores of each feature
Tuned: TypeAlias = dict[str, float]  # values chosen on dev and stored with the model, such as a threshold
Predictions: TypeAlias = Sequence[Any]  # one for each example, usually a dictionary; JSON can hold it
Classes: TypeAlias = tuple[Sequence[str], Sequence[str]]  # expected classes, predicted classes
Done: TypeAlias = Callable[[int], object]  # called with the work done since the last call, such as tokens


def ignore_progress(done: int) -> None:
    """Ignore progress: the default where a callback is optional.

    Parameters
    ----------
    done : int
        Work done since the last call.
    """


def as_sequence(features: Iterable[Feature]) -> Features:
    """Return features as a sequence: unchanged if they are one, else in a list.

    Parameters
    ----------
    features : iterable of Feature
    """
    return features if isinstance(features, Sequence) else list(features)


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


def surprise(probability: float) -> float:
    """Return -log p, which orders mistakes: the less likely the right answer was, the worse.

    Parameters
    ----------
    probability : float
        Probability p of the right answer, from 0 to 1.

    Returns
    -------
    float
        In nats; finite for p = 0, too.
    """
    return -math.log(max(probability, 1e-300))


class Mistake(NamedTuple):
    """A wrong prediction, for a person to look at."""

    text: str  # the input, as a person reads it
    expected: str
    found: str
    severity: float  # mistakes are sorted by it; larger is worse
    example: int = 0  # index of the example
    probabilities: list[float] | None = None  # of the expected and the found answer, where it is one


class Task(ABC):
    """One downstream task: how to read its files, what to feed the model, and how to score its answers.

    A subclass sets the attributes `name`, `kind`, `metric` and `title`, and implements the abstract methods.
    The other methods have a default that suits most tasks.

    The docstrings here are the contract. That of an overriding method describes only what is specific to the
    subclass: a section that it leaves out is as documented here.
    """

    name: str  # as on the command line
    kind: str  # kind of the head
    metric: str  # key of `score` by which models are chosen; larger is better
    title: str  # a one-line description
    max_length: int = 128  # most tokens in a sequence by default, [CLS] and [SEP] included
    pair: bool | None = None  # whether an example is a pair of texts; None: the data decide
    second_is_optional: bool = False  # whether a custom table may, but need not, have a column "second"
    command: str = "predict"  # subcommand of minibert that predicts with such a model
    label_field: str = "label"  # attribute of an example with its label, None where that is unknown
    long: LongTexts | None = None  # how to split long texts into windows; None: the task splits or truncates
    standardise: bool = False  # whether numeric labels are scaled to mean 0 and standard deviation 1
    rows: Mapping[str, Examples] = {}  # examples in memory, by their name in errors; {}: read from files
    needs_all_examples: bool = False  # whether the prediction for an example depends on the other examples

    @abstractmethod
    def read(self, data: Path, split: str) -> list[Any]:
        """Read the examples of one split.

        Parameters
        ----------
        data : Path
            Folder of the official files, or of tables; most tasks accept the file itself, too.
        split : str
            "train", "dev" or "test".

        Returns
        -------
        list
            Examples of the task's own type, in the order of the file.

        Raises
        ------
        InputError
            When the file is missing, or does not belong to this task.
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
            () for tasks without classes. Without examples, the labels that the task itself fixes, if any.
        """
        return ()

    def head(self, labels: Labels) -> Head:
        """Return the head of the model.

        Parameters
        ----------
        labels : tuple of str
            The classes or tags. Each has an output, unless the kind of head has a fixed number of outputs.

        Returns
        -------
        Head
            A head of the task's kind; if `long` is set, it pools the windows of a text.
        """
        fixed = KINDS[self.kind].outputs
        count = len(labels) if fixed is None else fixed
        pool = self.long.pool if self.long else ""
        return Head(self.kind, count, pool=pool)

    def names(self, example: Any) -> tuple[Any, ...]:
        """Return the classes that label the text of an example.

        Parameters
        ----------
        example : object
            One of the examples that `read` returned.

        Returns
        -------
        tuple
            () for tasks that do not classify texts. An unknown class is None.
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
        """Yield the model's input for each example.

        Parameters
        ----------
        examples : iterable
            Examples in order, which `Feature.example` counts from 0. They may be iterated only once.
        tokenizer : Tokenizer
            The model's tokenizer.
        labels : tuple of str
            The model's classes or tags, in the order of its outputs; () without classes.
        max_length : int
            Most tokens in a sequence, [CLS] and [SEP] included.
        training : bool
            Whether the features are for training. If so, every label has to be known, and examples from which
            nothing can be learnt may be left out.

        Yields
        ------
        Feature
            One for each example, or several where a document or a paragraph is split into windows.
        """

    def warn_unknown(self, examples: Examples, labels: Labels) -> None:
        """Warn of examples whose label the model does not know, because they count as mistakes.

        Parameters
        ----------
        examples : sequence
            The examples to score.
        labels : tuple of str
            The model's classes or tags.
        """
        return

    def check_dev(self, examples: Examples, labels: Labels) -> None:
        """Warn of, or refuse, dev examples whose label no training example has; called before a run.

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
            One of the examples that `read` returned.

        Returns
        -------
        bool
            False if the attribute that `label_field` names is None.
        """
        return getattr(example, self.label_field) is not None

    def require_labels(self, examples: Examples) -> None:
        """Refuse examples without a label to score predictions against.

        Parameters
        ----------
        examples : sequence
            The examples to score, with the attributes `id` and `label`.

        Raises
        ------
        InputError
            When a label is None; the error names the first such example.
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
        """Choose values on the dev set to store with the model, such as the threshold for "no answer".

        Parameters
        ----------
        examples : sequence
            The dev set, with labels.
        features : sequence of Feature
            The model's inputs for the dev set.
        outputs : sequence of numpy.ndarray
            The scores of each feature.
        labels : tuple of str
            The model's classes or tags.

        Returns
        -------
        dict
            Values by name, which `predict` receives as `tuned`; {} if there is nothing to choose.
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
        """Turn the model's outputs into a prediction for every example.

        Parameters
        ----------
        examples : sequence
            The examples, as `read` returned them. Labels need not be known.
        features : sequence of Feature
            The model's inputs for them.
        outputs : sequence of numpy.ndarray
            The scores of each feature.
        labels : tuple of str
            The model's classes or tags, in the order of its outputs; () without classes.
        tuned : dict
            What `tune` chose on dev.

        Returns
        -------
        list
            One prediction for each example, in the same order. JSON can hold them.
        """

    @abstractmethod
    def score(self, examples: Examples, predictions: Predictions) -> dict[str, float]:
        """Compute the official metrics.

        Parameters
        ----------
        examples : sequence
            Examples with labels.
        predictions : sequence
            The predictions that `predict` made for them, in the same order.

        Returns
        -------
        dict
            Metrics by name; percentages are given as fractions of one. Models are chosen by the key `metric`.
        """

    @abstractmethod
    def statistic(self, examples: Examples, predictions: Predictions) -> Statistic:
        """Return the metric that selects models as a function of examples, for its confidence interval.

        Parameters
        ----------
        examples : sequence
            Examples with labels.
        predictions : sequence
            The predictions that `predict` made for them, in the same order.

        Returns
        -------
        callable
            Takes indices of examples, with repeats, (m,) int64, and returns the metric over these examples.
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
            Name of the split or of a custom table, which may be part of the names of the files.
        examples : sequence
            The examples. Labels need not be known.
        predictions : sequence
            The predictions that `predict` made for them, in the same order.

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
            Examples with labels.
        predictions : sequence
            The predictions that `predict` made for them, in the same order.

        Returns
        -------
        list of Mistake
            Sorted by `severity`; equally bad ones stay in the order of the examples.
        """
        return sorted(self._mistakes(examples, predictions), key=lambda mistake: -mistake.severity)

    @abstractmethod
    def _mistakes(self, examples: Examples, predictions: Predictions) -> Iterator[Mistake]:
        """Yield every wrong prediction, in the order of the examples."""

    def baselines(self, examples: Examples) -> dict[str, dict[str, float]]:
        """Score a baseline that needs no model, for comparison.

        Parameters
        ----------
        examples : sequence
            Examples with labels.

        Returns
        -------
        dict
            By the name of the baseline, metrics as `score` returns them; {} for tasks without a baseline.
        """
        return {}

    def constant(self, examples: Examples) -> float | None:
        """Return the constant that predicts these examples best.

        Parameters
        ----------
        examples : sequence
            Examples with labels.

        Returns
        -------
        float or None
            None for tasks whose answer is not a number.
        """
        return None

    def asked(self, example: Any) -> dict[str, Any]:
        """Return the input texts to write next to the prediction in JSON: those of a custom table, by role.

        Parameters
        ----------
        example : object
            One of the examples that `read` returned.

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
        """Mark in a mistake where the model stopped reading, for tasks that truncate texts.

        Parameters
        ----------
        mistake : Mistake
            One of `mistakes`.
        example : object
            The example that was predicted wrongly.
        tokenizer : Tokenizer
            The model's tokenizer.
        max_length : int
            Most tokens in a sequence that the model has read.

        Returns
        -------
        Mistake
            With marks in its text; the same mistake for tasks that truncate nothing.
        """
        return mistake

    def classes(self, examples: Examples, predictions: Predictions) -> Classes | None:
        """Return expected and predicted classes for a confusion matrix.

        Parameters
        ----------
        examples : sequence
            Examples with labels.
        predictions : sequence
            The predictions that `predict` made for them, in the same order.

        Returns
        -------
        tuple of two sequences, or None
            Expected and predicted classes, for each example or word; None for tasks without such a matrix.
        """
        return None


@dataclass(frozen=True)
class TrainedModel(ABC):
    """A trained model for a task: a whole one (`Finetuned`), or LSTMs on a frozen one (`FeatureTagger`).

    Attributes
    ----------
    folder : Path
        Where it was loaded from.
    task : Task
        The task that it answers.
    labels : Labels
        The classes, in the order of the outputs.
    tuned : Tuned
        What was chosen on dev, such as thresholds.
    max_length : int
        Length in pieces at which a text is cut.
    pair : bool or None
        Whether it reads pairs of texts; None for models of transformers, which read single texts and pairs,
        and for LSTMs on frozen layers, which read words.
    tokenizer : Tokenizer
    ops : Ops
        The engine.
    """

    folder: Path
    task: Task
    labels: Labels
    tuned: Tuned
    max_length: int
    pair: bool | None
    tokenizer: Tokenizer
    ops: Any

    @property
    @abstractmethod
    def config(self) -> BertConfig:
        """Return the configuration of the encoder."""

    @property
    @abstractmethod
    def head(self) -> Head:
        """Return the layer on top of the encoder: its kind, and its number of outputs."""

    def features(self, examples: Sequence[Any]) -> Features:
        """Make the features of some examples.

        Parameters
        ----------
        examples : sequence
            Examples of the model's task.
        """
        made = self.task.features(examples, self.tokenizer, self.labels, self.max_length, training=False)
        return as_sequence(made)

    @abstractmethod
    def outputs(self, features: Any, done: Done = ignore_progress) -> list[Array]:
        """Compute the scores of each feature.

        Parameters
        ----------
        features : sequence of Feature
            Features that the method `features` made.
        done : callable
            Called with the number of tokens after each batch.

        Returns
        -------
        list of arrays
            One for each feature.
        """
