"""Rare classes: weights of classes in the loss, and epochs that show every class equally often."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from minibert.base.errors import InputError
from minibert.finetuning.options import BALANCED, FinetuneOptions, weights_by_name
from minibert.tasks.task import Labels, Task

KINDS = ("classify", "multilabel")  # of heads whose outputs are classes of texts


def check_balance(options: FinetuneOptions, task: Task) -> None:
    """Raise InputError where classes are to be balanced and the task has none for a whole text."""
    for name in ("class_weights", "sampling"):
        if (value := getattr(options, name)) is not None and task.kind not in KINDS:
            message = f"${name} is for classes of texts, and {task.name} has none; leave it out."
            raise InputError(message, **{name: value})


# -> (K,) float64, or None
def class_weights(options: FinetuneOptions, task: Task, examples: Sequence[Any], labels: Labels) -> Any:
    """Return the weight of each class in the loss, 1 where none is named; None where all weigh the same.

    "balanced" is n / (K x examples of the class), as scikit-learn has it; where several classes apply to a
    text, it is the number of texts without the class by that of those with it.
    """
    if options.class_weights is None:
        return None
    counts = Counter(name for example in examples for name in task.names(example))
    if options.class_weights == BALANCED:
        n, found = len(examples), [max(1, counts[name]) for name in labels]
        several = task.kind == "multilabel"
        return np.array([max(1, n - one) / one if several else n / (len(labels) * one) for one in found])
    given = weights_by_name(options.class_weights)
    if unknown := [name for name in given if name not in labels]:
        what = f"{unknown[0]!r}, which is no class of the examples to learn from"
        message = f"$class_weights names {what}; there are {', '.join(labels[:16])}."
        raise InputError(message, class_weights=options.class_weights)
    return np.array([given.get(name, 1.0) for name in labels])


def strata(examples: Sequence[Any]) -> list[Any]:
    """Return the class of each example; of several the rarest, None where there is none."""
    names = [one.label if isinstance(one.label, tuple) else (one.label,) for one in examples]
    counts = Counter(name for each in names for name in each)
    return [min(each, key=lambda name: (counts[name], name), default=None) for each in names]


# -> (n,) int64, or None
def groups(options: FinetuneOptions, examples: Sequence[Any]) -> Any:
    """Return the numbers of the classes of which every epoch shows equally many; None: it shows all once."""
    if options.sampling != BALANCED:
        return None
    found = strata(examples)
    number = {name: at for at, name in enumerate(sorted(set(found), key=lambda name: (name is None, name)))}
    return np.array([number[name] for name in found])
