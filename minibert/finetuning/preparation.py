"""Prepare a run: check that model and data fit, and make features of the examples."""

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from minibert import hub
from minibert.base.errors import InputError, naming
from minibert.core.config import BertConfig
from minibert.finetuning.balance import check_balance, class_weights, groups
from minibert.finetuning.examples import (
    Rows,
    fingerprint,
    read_examples,
    text_checksums,
    warn_of_trained_texts,
)
from minibert.finetuning.models import keeps_head
from minibert.finetuning.options import MOST_WINDOWS, FinetuneOptions
from minibert.finetuning.splitting import subset
from minibert.hub.vocabularies import read_tokenizer
from minibert.model.head_kinds import OF_CLASSES, POOLS, SQUARED
from minibert.model.params import Head
from minibert.model.targets import Targets
from minibert.tasks import registry
from minibert.tasks.bag_of_words import BagOfWords
from minibert.tasks.long_texts import LongTexts
from minibert.tasks.sentences import Sentences
from minibert.tasks.stored import OPTIONS_FILE
from minibert.tasks.task import Features, Labels, Task, as_sequence
from minibert.tasks.truncation import Truncation, warn_of_truncation
from minibert.tokenizer import Tokenizer


class Sources(NamedTuple):
    """What errors call the data of a run. Errors for examples in memory name the row instead."""

    data: str = ""
    train: str = ""
    dev: str = ""


@dataclass(frozen=True)
class TaskData:
    """What the examples of a run say about the model to train, and the dev set to score it on."""

    task: Task
    labels: tuple[str, ...]  # classes or tags in the order of the outputs
    head: Head
    dev_examples: list[Any]
    train_tasks: dict[str, int]  # number of training examples of each task
    fingerprint: int  # checksum of labels and examples
    trained_texts: list[int]  # sorted checksums of the training texts


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What all runs of a sweep share: data and tokenizer, and features for whole models."""

    data: TaskData
    tokenizer: Tokenizer
    max_length: int
    train: Features = ()
    dev: Features = ()
    train_classes: dict[str, int] = field(default_factory=dict)  # number of training texts of each class
    bag_of_words: BagOfWords | None = None  # a baseline from the same examples; None without classes of texts
    class_weights: np.ndarray | None = None  # (K,) weight of each class in the loss
    # (n,) class of each training example; each epoch draws equally many of every class
    groups: np.ndarray | None = None
    targets: Targets | None = None  # how numeric labels are standardised; None: not at all
    truncated: dict[str, Any] = field(default_factory=dict)  # what was cut, see `warn_of_truncation`


def prepare(options: FinetuneOptions, rows: Rows | None = None) -> Prepared:
    """Read model and data, and make features of the examples, before anything is written.

    Parameters
    ----------
    options : FinetuneOptions
        Options of the run, or of a sweep.
    rows : Rows, optional
        The examples, if they are in memory.

    Returns
    -------
    Prepared

    Raises
    ------
    InputError
        When something is wrong with model or data, or they do not fit together.
    """
    task = registry.create(options.task, dict(options.columns), _long_texts(options))
    check_balance(options, task)
    train, data = read_labelled(task, options, rows)
    sources = _sources(options, rows)
    weights = class_weights(options, task, train, data.labels)
    targets = None
    if task.standardise:
        with naming(sources.train):
            targets = Targets.of([example.label for example in train])
    config, _, report = hub.load(options.model, head=data.head)
    if options.extend_positions:
        config = options.extended(config)
    options.check_model(config.L, config.P, options.model)
    tokenizer = read_tokenizer(options.model, config)
    # Only for its error: a damaged `task.json` is refused before anything is written.
    keeps_head(report, options.model, data.head, task.name, data.labels)
    max_length = options.max_length or min(task.max_length, config.P)
    task.long = task.long and task.long.resolved(max_length)
    with naming(sources.train):
        features = as_sequence(task.features(train, tokenizer, data.labels, max_length, training=True))
    with naming(sources.dev):
        made = task.features(data.dev_examples, tokenizer, data.labels, max_length, training=False)
        dev_features = as_sequence(made)
    if not len(features):
        raise InputError(f"'{sources.data}' has no examples to train {options.task} with.")
    _check_features(features, config, options)
    parts = {
        "train": Truncation(max_length, features, task.long),
        "dev": Truncation(max_length, dev_features, task.long),
    }
    return Prepared(
        data=data,
        tokenizer=tokenizer,
        max_length=max_length,
        train=features,
        dev=dev_features,
        train_classes=Counter(name for example in train for name in task.names(example)),
        bag_of_words=bag_of_words(task, train, data.labels),
        class_weights=weights,
        targets=targets,
        groups=groups(options, train),
        truncated=warn_of_truncation(parts, config.P),
    )


def _long_texts(options: FinetuneOptions) -> LongTexts | None:
    """Return how long texts are split into windows; None if they are cut."""
    if options.long != "windows":
        return None
    return LongTexts(options.pool or POOLS[0], options.stride, options.most_windows or MOST_WINDOWS)


def _check_features(features: Features, config: BertConfig, options: FinetuneOptions) -> None:
    """Warn of positions that were not trained; raise InputError for two segments where the model has one."""
    if config.trained_length:  # without it there is nothing to warn of, and no need to make every feature now
        sequences = (sequence for feature in features for sequence in feature.sequences)
        config.warn_untrained(max(len(sequence.input_ids) for sequence in sequences))
    if config.type_vocab_size < 2 and features[0].sequences[0].token_type_ids.any():
        problem = f"{options.task} reads two texts at a time, but '{options.model}' knows one segment only"
        raise InputError(f"{problem} (type_vocab_size=1); give a model with two.")


def bag_of_words(task: Task, train: Sequence[Any], labels: Labels) -> BagOfWords | None:
    """Fit the baseline of a task that classifies texts: the words of its training examples.

    Parameters
    ----------
    task : Task
        The task of the examples.
    train : sequence
        The training examples.
    labels : tuple of str
        The classes.

    Returns
    -------
    BagOfWords or None
        None if the task does not classify texts.
    """
    if not isinstance(task, Sentences) or task.kind not in OF_CLASSES:
        return None
    return BagOfWords(train, labels, several=task.kind == "multilabel")


def bag_of_words_in(folder: Path, labels: Labels, rows: Rows | None = None) -> BagOfWords | None:
    """Fit the same baseline on the training examples of a run.

    Parameters
    ----------
    folder : Path
        Folder of the run.
    labels : tuple of str
        The classes of its model.
    rows : Rows, optional
        The examples of the run, if they are in memory.

    Returns
    -------
    BagOfWords or None
        None if the folder is not that of a run, or its data are gone or have other classes now.
    """
    try:
        options = FinetuneOptions.load(folder / OPTIONS_FILE)
        task = registry.create(options.task, dict(options.columns))
        if not isinstance(task, Sentences) or task.kind not in OF_CLASSES:
            return None
        with warnings.catch_warnings(action="ignore"):  # the run has already shown them
            train, _ = read_examples(task, options, rows)
    except InputError:
        return None
    classes = {name for example in train for name in task.names(example)}
    return bag_of_words(task, train, labels) if classes <= set(labels) else None


def _sources(options: FinetuneOptions, rows: Rows | None) -> Sources:
    if rows is not None:
        return Sources()
    return Sources(options.data, f"{options.data}, train", f"{options.data}, dev")


def read_labelled(
    task: Task,
    options: FinetuneOptions,
    rows: Rows | None = None,
) -> tuple[list[Any], TaskData]:
    """Read and check the training examples and the dev set.

    A warning names classes with few examples.

    Parameters
    ----------
    task : Task
        The task of the run.
    options : FinetuneOptions
        Say where the data are, and how many examples to take.
    rows : Rows, optional
        The examples, if they are in memory.

    Returns
    -------
    train : list
        The training examples: those of the task, then those of the tasks to train together with it.
    data : TaskData

    Raises
    ------
    InputError
        When the data can't be read, a dev example has no label, or dev is too small to measure anything.
    """
    train, dev = read_examples(task, options, rows)
    sources = _sources(options, rows)
    counts = Counter({task.name: len(train)})
    also: Any = options.also  # normalised to pairs
    for name, folder in also:
        more = _of_other(task, name, folder, options)
        if more and hasattr(more[0], "document"):
            # Documents are counted from 0 in every file, and there are fewer of them than examples.
            more = [example._replace(document=len(train) + example.document) for example in more]
        train, counts[name] = train + more, counts[name] + len(more)
    with naming(sources.train):
        labels = tuple(task.labels(train))
    is_labelled = [task.is_labelled(example) for example in dev]
    if not all(is_labelled):
        n_unlabelled = is_labelled.count(False)
        first = is_labelled.index(False) + 1
        problem = f"{n_unlabelled:,} of {len(dev):,} dev examples have no label to measure on"
        advice = "give dev with labels."
        raise InputError(f"{problem}, the first is number {first:,}; {advice}", where=sources.data)
    if task.kind in SQUARED and len(dev) < 2:
        problem = "dev has one example, and a correlation needs two"
        raise InputError(f"{problem}; give more.", where=sources.data)
    with naming(sources.dev):
        task.check_dev(dev, labels)
    task.warn_rare(train, dev, labels)
    trained = set(text_checksums(train))
    warn_of_trained_texts(dev, trained, "is")
    data = TaskData(
        task=task,
        labels=labels,
        head=task.head(labels)._replace(lstm=options.bilstm),
        dev_examples=dev,
        train_tasks=dict(counts),
        fingerprint=fingerprint(labels, train, dev),
        trained_texts=sorted(trained),
    )
    return train, data


def _of_other(
    task: Task,
    name: str,
    folder: str,
    options: FinetuneOptions,
) -> list[Any]:
    """Read the training examples of another task, and translate their labels to those of `task`."""
    compatible = [other for other in registry.TASKS if registry.answers_as(other, task.name) is not None]
    other = registry.create(name) if name in compatible else None
    if other is None or other.kind != task.kind:
        also = {name: folder}
        problem = f"{task.name} can be trained together only with tasks that have the same answers"
        advice = f"name one of {', '.join(compatible)}"
        if compatible == [task.name]:
            advice = f"there is none but itself, so name {task.name} again or leave it out"
        raise InputError(f"{also=}: {problem}; {advice}.", also=also)
    if name == task.name:
        other = registry.create(name, dict(options.columns))
    examples = subset(other.read(Path(folder), "train"), options.also_examples)
    scale = registry.RESCALED.get((name, task.name))
    if scale:
        factor, shift = scale
        return [example._replace(label=factor * example.label + shift) for example in examples]
    translations = registry.answers_as(name, task.name) or {}
    if translations:
        return [
            example._replace(label=translations.get(example.label, example.label)) for example in examples
        ]
    return examples
