"""What every downstream task answers: how it reads, asks, decodes, scores and writes.

    files -> examples -> features -> (the model) -> outputs -> predictions -> scores, files, mistakes

Everything on the way that is particular to a task is a method of its `Task`; what trains, predicts and
reports treats all tasks alike.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
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
    """Turn the outputs of a head into probabilities."""
    wide = np.asarray(scores, np.float64)
    chances = np.exp(wide - wide.max(initial=-np.inf))
    return chances / chances.sum()


class Mistake(NamedTuple):
    """A prediction that is wrong, for a person to look at."""

    text: str  # what was asked, as a person reads it
    expected: str
    found: str
    badness: float  # larger is worse: what the mistakes are ordered by
    example: int = 0  # its number


class Task(ABC):
    """One downstream task."""

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
    together: bool = False  # whether a prediction depends on the other examples

    @abstractmethod
    def read(self, data: Path, split: str) -> list[Any]:
        """Read the examples of "train", "dev" or "test" in a folder of official files.

        Raise InputError when the file is missing or is not one of this task.
        """

    def labels(self, examples: Examples) -> Labels:
        """Name the classes or tags in the order of the outputs; () where outputs are not classes."""
        return ()

    def head(self, labels: Labels) -> Head:
        """Say what stands on the encoder."""
        fixed = KINDS[self.kind].outputs
        pool = self.long.pool if self.long else ""
        return Head(self.kind, len(labels) if fixed is None else fixed, pool=pool)

    def names(self, example: Any) -> tuple[Any, ...]:
        """Return the classes of texts that an example is labelled with; () for tasks without them."""
        return ()

    @abstractmethod
    def features(
        self, examples: Iterable[Any], tokenizer: Any, labels: Labels, max_length: int, training: bool
    ) -> Iterable[Feature]:
        """Yield what the model is asked about each example; `Feature.example` counts the examples.

        When `training` the label has to be known; examples that teach nothing may be left out.
        """

    def warn_unknown(self, examples: Examples, labels: Labels) -> None:
        """Warn of examples whose label is none of the model's: they count as mistakes."""
        return

    def check_dev(self, examples: Examples, labels: Labels) -> None:
        """Warn of dev examples, before a run, whose label is not among those to learn; or refuse them."""
        self.warn_unknown(examples, labels)

    def warn_rare(self, train: Examples, dev: Examples, labels: Labels) -> None:
        """Warn of classes of texts with too few examples to be learnt or measured."""
        return

    def is_labelled(self, example: Any) -> bool:
        """Tell whether the label of an example is known."""
        return getattr(example, self.label_field) is not None

    def require_labels(self, examples: Examples) -> None:
        """Raise InputError when there is an example without a label to compare its prediction with."""
        for example in examples:
            if example.label is None:
                raise InputError(f"Example {example.id} has no label to score by; choose a labelled split.")

    def tune(self, examples: Examples, features: Any, outputs: Outputs, labels: Labels) -> Tuned:
        """Choose on dev what is kept with the model, such as the threshold of "no answer"."""
        return {}

    @abstractmethod
    def predict(
        self, examples: Examples, features: Any, outputs: Outputs, labels: Labels, tuned: Tuned
    ) -> list[Any]:
        """Make a prediction of every example."""

    @abstractmethod
    def score(self, examples: Examples, predictions: Predictions) -> dict[str, float]:
        """Compute the official metrics, as fractions of one where they are percentages of something."""

    @abstractmethod
    def statistic(self, examples: Examples, predictions: Predictions) -> Statistic:
        """Return the metric as a function of numbers of examples, some of them repeated, for its interval."""

    @abstractmethod
    def write(self, folder: Path, split: str, examples: Examples, predictions: Predictions) -> list[Path]:
        """Write the task's official files; return their paths."""

    def mistakes(self, examples: Examples, predictions: Predictions) -> list[Mistake]:
        """Return every wrong prediction, the worst first."""
        return sorted(self._mistakes(examples, predictions), key=lambda mistake: -mistake.badness)

    @abstractmethod
    def _mistakes(self, examples: Examples, predictions: Predictions) -> Iterator[Mistake]:
        """Yield every wrong prediction."""

    def baselines(self, examples: Examples) -> dict[str, dict[str, float]]:
        """Score what needs no model, by name, for the scores of one to be read beside."""
        return {}

    def constant(self, examples: Examples) -> float | None:
        """Return the number that predicts these examples best if it is said of each; None for other tasks."""
        return None

    def asked(self, example: Any) -> dict[str, Any]:
        """Return what stands beside the prediction in JSON: the texts of a table of one's own, by role."""
        return {}

    def as_read(self, mistake: Mistake, example: Any, tokenizer: Any, max_length: int) -> Mistake:
        """Mark in a mistake where the model stopped reading; for tasks whose texts are cut."""
        return mistake

    def classes(self, examples: Examples, predictions: Predictions) -> Classes | None:
        """Return expected and predicted classes for a confusion matrix; None where there is none."""
        return None
