"""Divide examples into train and dev, and choose some of them: at random, but always the same ones."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from minibert.base.errors import InputError
from minibert.finetuning.balance import strata
from minibert.tasks.batches import epoch_order

# Which examples are chosen does not depend on the seed of a run: all runs learn from the same ones.
SUBSET_SEED = 0x5B5E7
SPLIT_SEED = 0x5917
# Attributes by which examples are grouped, each by the first one that it has. Groups are not divided.
GROUPED_BY = ("document", "context", "first")  # "first" groups pairs of texts only


def split(
    examples: list[Any],
    share: float,
    stratified: bool = False,
    instead: str = "give train and dev files",
) -> tuple[list[Any], list[Any]]:
    """Divide examples into train and dev at random, always in the same way; both keep their order.

    Sentences of one document, questions about one paragraph, and pairs with the same first text stay
    together. Copies of a single text do not.

    Parameters
    ----------
    examples : list
        Examples to divide.
    share : float
        Share of dev, above 0 and below 1.
    stratified : bool, default False
        Whether dev takes that share of each class, rounded by largest remainder, and never all examples of
        one. With pairs that share texts the shares are approximate.
    instead : str
        What the error advises to do in place of dividing.

    Returns
    -------
    train, dev : list

    Raises
    ------
    InputError
        When train or dev would be empty, or each example has a class of its own.
    """
    if stratified:
        groups = _grouped(examples, GROUPED_BY)
        held_out = set(_drawn_by_class(strata(examples), groups, share))
    else:
        count = round(share * len(examples))
        held_out = set(_drawn(examples, count, SPLIT_SEED, GROUPED_BY))
    if not 0 < len(held_out) < len(examples):
        if stratified:
            _require_classes(strata(examples))
        problem = f"split_dev={share!r} of {len(examples):,} examples leaves train or dev empty"
        why = _why_undivided(examples, stratified)
        raise InputError(f"{problem}; give another share{why}, or {instead}.", split_dev=share)
    train = [example for index, example in enumerate(examples) if index not in held_out]
    dev = [examples[index] for index in sorted(held_out)]
    return train, dev


def _require_classes(classes: Sequence[Any]) -> None:
    """Raise InputError if no class has two examples, as where the column of the classes is one of numbers."""
    if 2 < len(classes) == len(set(classes)):
        problem = f"Each of the {len(classes):,} examples has a class of its own, such as {classes[0]!r}"
        raise InputError(f"{problem}; check which column has the classes, or use `regress` for numbers.")


def _why_undivided(examples: list[Any], stratified: bool) -> str:
    """Say which examples stay together if that may have left a part empty; return "" otherwise."""
    if stratified:
        alone = "At least one example of each class stays in train"
        return f". {alone}, and pairs with one first text stay together; if no class has more, add examples"
    reason = {
        "document": "Sentences of one document are not divided: put lines -DOCSTART- between documents",
        "context": "Questions about one paragraph are not divided: add questions about other paragraphs",
        "first": "Pairs with the same first text are not divided: add pairs with other first texts",
    }
    if len(_grouped(examples, GROUPED_BY)) == len(examples):  # also where there is no example
        return ""
    name = next((name for name in GROUPED_BY if hasattr(examples[0], name)), None)
    return f". {reason[name]}" if name else ""


def _grouped(examples: list[Any], attributes: Sequence[str]) -> list[list[int]]:
    """Group examples that agree in the first of these attributes that they have; return their indices."""
    members: dict[Any, list[int]] = {}
    for index, example in enumerate(examples):
        name = next((name for name in attributes if hasattr(example, name)), None)
        if getattr(example, "second", "") is None:  # a single text is a group by itself
            name = None
        group = getattr(example, name) if name else index
        members.setdefault(group, []).append(index)
    return list(members.values())


def _drawn_by_class(classes: Sequence[Any], groups: list[list[int]], share: float) -> list[int]:
    """Draw whole groups at random, about a share of each class; return indices of examples.

    At least one example of each class is not drawn.
    """
    counts = Counter(classes)
    wanted = Counter({label: int(share * count) for label, count in counts.items()})
    missing = round(share * len(classes)) - wanted.total()
    by_remainder = sorted(counts, key=lambda label: wanted[label] - share * counts[label])
    for label in by_remainder[:missing]:
        wanted[label] = min(wanted[label] + 1, counts[label] - 1)
    drawn = []
    for group in epoch_order(len(groups), SPLIT_SEED, 0).tolist():
        group_classes = Counter(classes[index] for index in groups[group])
        if group_classes <= wanted:
            wanted -= group_classes
            drawn += groups[group]
    return drawn


def subset(examples: list[Any], count: int | None) -> list[Any]:
    """Choose some of the examples at random, always the same ones, and keep their order.

    Parameters
    ----------
    examples : list
        Examples to choose from.
    count : int or None
        How many to choose, or None for all. Documents are chosen as a whole, so there may be more.

    Returns
    -------
    list
    """
    if count is None or count >= len(examples):
        return examples
    drawn = sorted(_drawn(examples, count, SUBSET_SEED))
    return [examples[index] for index in drawn]


def _drawn(
    examples: list[Any],
    count: int,
    seed: int,
    attributes: Sequence[str] = ("document",),
) -> list[int]:
    """Draw at least `count` examples at random; return their indices.

    Examples that agree in one of the attributes, such as the sentences of a document, are drawn together.
    """
    drawn: list[int] = []
    groups = _grouped(examples, attributes)
    for group in epoch_order(len(groups), seed, 0).tolist():
        if len(drawn) >= count:
            break
        drawn += groups[group]
    return drawn
