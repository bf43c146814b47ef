"""Rare classes: weights of classes in the loss, and epochs that show every class equally often."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from minibert.base.errors import InputError
from minibert.finetuning.options import BALANCED, FinetuneOptions, weights_by_name
from minibert.model.head_kinds import OF_CLASSES
from minibert.tasks.task import Labels, Task


def check_balance(options: FinetuneOptions, task: Task) -> None:
    """Refuse to balance classes for a task that does not classify whole texts, and to balance them twice.

    Parameters
    ----------
    options : FinetuneOptions
        Options of the run.
    task : Task
        The task.

    Raises
    ------
    InputError
        When the options balance classes, and the task has none; when they do so both in the loss and in the
        batches.
    """
    if options.class_weights == options.sampling == BALANCED:
        both = {"class_weights": BALANCED, "sampling": BALANCED}
        what = "class_weights='balanced' and sampling='balanced' both even out the classes"
        raise InputError(f"{what}; give one of them.", **both)
    for name in ("class_weights", "sampling"):
        value = getattr(options, name)
        if value is not None and task.kind not in OF_CLASSES:
            what = f"{name}={value!r} is for tasks that classify texts, which {task.name} does not"
            message = f"{what}; leave it out."
            raise InputError(message, **{name: value})


# -> (K,) float64, or None
def class_weights(
    options: FinetuneOptions,
    task: Task,
    examples: Sequence[Any],
    labels: Labels,
) -> Any:
    """Return the weight of each class in the loss, 1 for classes that are not named.

    "balanced" is n / (K x examples of the class), as in scikit-learn. If several classes can apply to a text,
    it is the number of texts without the class divided by the number of texts with it.

    Parameters
    ----------
    options : FinetuneOptions
        Options of the run.
    task : Task
        Says which classes an example has.
    examples : sequence
        The training examples.
    labels : tuple of str
        The K classes, in order.

    Returns
    -------
    (K,) float64 or None
        None if the options give no weights.

    Raises
    ------
    InputError
        When a weight is given for something that is not a class.
    """
    weights: Any = options.class_weights  # normalised to a string
    if weights is None:
        return None
    counts = Counter(name for example in examples for name in task.names(example))
    if weights == BALANCED:
        n = len(examples)
        with_class = [max(1, counts[name]) for name in labels]
        if task.kind == "multilabel":
            return np.array([max(1, n - count) / count for count in with_class])
        return np.array([n / (len(labels) * count) for count in with_class])
    given = weights_by_name(weights)
    unknown = [name for name in given if name not in labels]
    if unknown:
        what = f"`class_weights` names {unknown[0]!r}, which is not a class of the training examples"
        raise InputError(f"{what}; the classes are {', '.join(labels[:16])}.", class_weights=weights)
    return np.array([given.get(name, 1.0) for name in labels])


def strata(examples: Sequence[Any]) -> list[Any]:
    """Return the class of each example: the rarest if there are several, None if there is none.

    Parameters
    ----------
    examples : sequence
        Examples with an attribute `label`: a name, several names, or None.

    Returns
    -------
    list of str or None
        One for each example.
    """
    classes = []  # for each example
    for example in examples:
        label = example.label
        classes.append(label if isinstance(label, tuple) else (label,))
    counts = Counter(name for names in classes for name in names)
    return [min(names, key=lambda name: (counts[name], name), default=None) for names in classes]


# -> (n,) int64, or None
def groups(options: FinetuneOptions, examples: Sequence[Any]) -> Any:
    """Return the class of each training example, if epochs are to draw equally many of every class.

    Parameters
    ----------
    options : FinetuneOptions
        Options of the run.
    examples : sequence
        The training examples.

    Returns
    -------
    (n,) int64 or None
        Index of each example's class among the sorted classes; None if epochs show every example once.
    """
    if options.sampling != BALANCED:
        return None
    names = strata(examples)
    ordered = sorted(set(names), key=lambda name: (name is None, name))
    indices = {name: index for index, name in enumerate(ordered)}
    return np.array([indices[name] for name in names])
