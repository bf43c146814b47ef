"""Prepare a run: read the data, check that model and data fit, make features of the examples."""

import warnings
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from minibert import hub
from minibert.base.errors import InputError, MissingFile, naming
from minibert.base.reading import suffix_of
from minibert.data.tables import MissingColumn
from minibert.finetuning.balance import check_balance, class_weights, groups, strata
from minibert.finetuning.models import as_sequence, keeps_head
from minibert.finetuning.options import MOST_WINDOWS, FinetuneOptions
from minibert.hub.vocabularies import read_tokenizer
from minibert.model.head_kinds import OF_CLASSES, POOLS
from minibert.model.params import Head
from minibert.model.targets import Targets
from minibert.tasks import registry
from minibert.tasks.bag_of_words import BagOfWords
from minibert.tasks.batches import epoch_order
from minibert.tasks.long_texts import LongTexts
from minibert.tasks.sentences import Sentences
from minibert.tasks.stored import OPTIONS_FILE
from minibert.tasks.task import Features, Labels, Task
from minibert.tasks.truncation import Truncation, warn_of_truncation
from minibert.tokenizer import Tokenizer

# The task of a person's own table, by the kind of an official one, and how the names of tables end.
OWN_TABLES = {
    "classify": "classify",
    "regress": "regress",
    "tag": "tag",
    "span": "qa",
    "cosine": "similarity",
}
TABLES = (".csv", ".tsv", ".tab", ".txt", ".jsonl", ".ndjson")

# Which examples are chosen does not depend on the seed of a run: runs with other seeds learn from the same.
SUBSET_SEED, SPLIT_SEED = 0x5B5E7, 0x5917
GROUPED_BY = (
    "document",
    "context",
    "first",
)  # what examples agree in that are not divided; the last of pairs
ANSWERS = ("label", "tags", "answer")  # roles of the columns with what is expected


class Rows(NamedTuple):
    """Examples in memory, in place of those in the files that the options name.

    Errors call them "X" and "dev", which are the arguments of an estimator's `fit`, and count rows from 0.
    """

    train: list[Any]
    dev: list[Any] | None = None  # the dev set; None: the share `split_dev` of `train`


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What all runs of a sweep have in common."""

    task: Task
    tokenizer: Tokenizer
    labels: tuple[str, ...]
    head: Head  # what stands on the encoder
    max_length: int
    train_tasks: dict[str, int]  # how many training examples each task has
    train_classes: dict[str, int] = field(default_factory=dict)  # of each class of texts, if there are any
    dev_examples: list[Any]
    train: Features
    dev: Features = ()
    fingerprint: int  # of labels and examples
    bag_of_words: BagOfWords | None = None  # learnt from the same examples; None where texts have no classes
    class_weights: np.ndarray | None = None  # (K,) of each class in the loss
    groups: np.ndarray | None = None  # (n,) of each example a class, of which epochs show equally many
    targets: Targets | None = None  # a common scale for numbers; None: they are learnt as they are
    truncated: dict[str, Any] = field(default_factory=dict)  # what was cut of texts, see `warn_of_truncation`


def prepare(options: FinetuneOptions, rows: Rows | None = None) -> Prepared:
    """Read model and data, and make features of the examples, before anything is written.

    Parameters
    ----------
    options : FinetuneOptions
        Options of the run, or of a sweep.
    rows : Rows, optional
        The examples, where they are in memory.

    Returns
    -------
    Prepared

    Raises
    ------
    InputError
        When anything is wrong with model or data, or they do not fit each other.
    """
    long = None
    if options.long == "windows":
        long = LongTexts(options.pool or POOLS[0], options.stride, options.most_windows or MOST_WINDOWS)
    task = registry.create(options.task, dict(options.columns), long)
    check_balance(options, task)
    train, known = read_labelled(task, options, rows)
    data, of_train, of_dev = _places(options, rows)
    dev = known["dev_examples"]
    labels = known["labels"]
    head = known["head"]
    weights = class_weights(options, task, train, labels)
    targets = None
    if task.standardise:
        with naming(of_train):
            targets = Targets.of([example.label for example in train])
    config, _, report = hub.load(options.model, head=head)
    if options.extend_positions:
        config = options.extended(config)
    options.check_model(config.L, config.P, options.model)
    tokenizer = read_tokenizer(options.model, config)
    keeps_head(report, options.model, head, task.name, labels)  # reads what says so
    max_length = options.max_length or min(task.max_length, config.P)
    task.long = task.long and task.long.resolved(max_length)
    with naming(of_train):
        features = as_sequence(task.features(train, tokenizer, labels, max_length, training=True))
    with naming(of_dev):
        dev_features = as_sequence(task.features(dev, tokenizer, labels, max_length, training=False))
    if not len(features):
        raise InputError(f"'{data}' has no examples to train {options.task} with.")
    if config.trained_length:  # for other models nothing is said, and no feature need be made already
        sequences = (sequence for feature in features for sequence in feature.sequences)
        config.warn_untrained(max(len(sequence.input_ids) for sequence in sequences))
    if config.type_vocab_size < 2 and features[0].sequences[0].token_type_ids.any():
        asks = f"{options.task} reads two texts at a time, but '{options.model}' knows one segment only"
        raise InputError(f"{asks} (type_vocab_size=1); give a model with two.")
    cuts = {
        "train": Truncation(max_length, features, task.long),
        "dev": Truncation(max_length, dev_features, task.long),
    }
    return Prepared(
        **known,
        train=features,
        dev=dev_features,
        tokenizer=tokenizer,
        max_length=max_length,
        train_classes=Counter(name for example in train for name in task.names(example)),
        bag_of_words=bag_of_words(task, train, known["labels"]),
        class_weights=weights,
        targets=targets,
        groups=groups(options, train),
        truncated=warn_of_truncation(cuts, config.P),
    )


def bag_of_words(task: Task, train: Sequence[Any], labels: Labels) -> BagOfWords | None:
    """Learn from the words of examples what a task asks; None where it does not ask for classes of texts.

    Parameters
    ----------
    task : Task
        What is asked.
    train : sequence
        The training examples.
    labels : tuple of str
        The classes.
    """
    if not isinstance(task, Sentences) or task.kind not in OF_CLASSES:
        return None
    return BagOfWords(train, labels, several=task.kind == "multilabel")


def bag_of_words_in(folder: Path, labels: Labels, rows: Rows | None = None) -> BagOfWords | None:
    """Learn from the words that the model in a folder was fine-tuned on.

    Parameters
    ----------
    folder : Path
        Folder of a run of fine-tuning.
    labels : tuple of str
        The classes of the model.
    rows : Rows, optional
        The examples of the run, where they are in memory.

    Returns
    -------
    BagOfWords or None
        None where the folder holds no run, or its data are no longer there or no longer those of its classes.
    """
    try:
        options = FinetuneOptions.load(folder / OPTIONS_FILE)
        task = registry.create(options.task, dict(options.columns))
        if not isinstance(task, Sentences) or task.kind not in OF_CLASSES:
            return None
        with warnings.catch_warnings(action="ignore"):  # given when the model learnt from them
            train, _ = read_examples(task, options, rows)
    except InputError:
        return None
    known = {name for example in train for name in task.names(example)}
    return bag_of_words(task, train, labels) if known <= set(labels) else None


def _places(options: FinetuneOptions, rows: Rows | None) -> tuple[str, str, str]:
    """Return what errors call the data, and with which place they begin in train and in dev."""
    if rows is not None:  # whose errors name the row
        return "", "", ""
    return options.data, f"{options.data}, train", f"{options.data}, dev"


def read_labelled(
    task: Task,
    options: FinetuneOptions,
    rows: Rows | None = None,
) -> tuple[list[Any], dict[str, Any]]:
    """Read the training examples, and what `Prepared` says of them and of dev.

    Classes with few examples are warned of.

    Parameters
    ----------
    task : Task
        What is asked.
    options : FinetuneOptions
        Where the data are, and how many examples to take.
    rows : Rows, optional
        The examples, where they are in memory.

    Returns
    -------
    train : list
        The examples, those of further tasks after the task's own.
    known : dict
        Fields of `Prepared`.

    Raises
    ------
    InputError
        When the data can't be read, examples of dev have no label, or nothing can be measured on them.
    """
    train, dev = read_examples(task, options, rows)
    data, of_train, of_dev = _places(options, rows)
    counts = Counter({task.name: len(train)})
    also: Any = options.also  # pairs, in whatever form they were given
    for name, folder in also:
        more = _of_other(task, name, folder, options)
        if more and hasattr(more[0], "document"):
            # Documents are numbered from 0 in every file, and there are fewer of them than examples.
            more = [example._replace(document=len(train) + example.document) for example in more]
        train, counts[name] = train + more, counts[name] + len(more)
    with naming(of_train):
        labels = tuple(task.labels(train))
    labelled = [task.is_labelled(example) for example in dev]
    if not all(labelled):
        n_unlabelled = labelled.count(False)
        first = labelled.index(False) + 1
        what = f"{n_unlabelled:,} of {len(dev):,} dev examples have no label to measure on"
        raise InputError(f"{what}, the first is number {first:,}; give dev with labels.", where=data)
    if task.kind in ("regress", "cosine") and len(dev) < 2:
        raise InputError("dev has one example, and a correlation needs two; give more.", where=data)
    with naming(of_dev):
        task.check_dev(dev, labels)
    task.warn_rare(train, dev, labels)
    return train, {
        "task": task,
        "labels": labels,
        "head": task.head(labels)._replace(lstm=options.bilstm),
        "dev_examples": dev,
        "train_tasks": dict(counts),
        "fingerprint": fingerprint(labels, train, dev),
    }


def _of_other(
    task: Task,
    name: str,
    folder: str,
    options: FinetuneOptions,
) -> list[Any]:
    """Read the training examples of another task, with the answers that `task` has."""
    alike = [other for other in registry.TASKS if registry.answers_as(other, task.name) is not None]
    other = registry.create(name) if name in alike else None
    if other is None or other.kind != task.kind:
        also = {name: folder}
        what = f"{task.name} can be trained together only with tasks that have the same answers"
        advice = f"name one of {', '.join(alike)}"
        if alike == [task.name]:
            advice = f"there is none but itself, so name {task.name} again or leave it out"
        raise InputError(f"{also=}: {what}; {advice}.", also=also)
    if name == task.name:
        other = registry.create(name, dict(options.columns))
    examples = subset(other.read(Path(folder), "train"), options.also_examples)
    scale = registry.RESCALED.get((name, task.name))
    if scale:
        factor, shift = scale
        return [example._replace(label=factor * example.label + shift) for example in examples]
    words = registry.answers_as(name, task.name) or {}
    if words:
        return [example._replace(label=words.get(example.label, example.label)) for example in examples]
    return examples


def fingerprint(*parts: Sequence[Any]) -> int:
    """Return a checksum of labels and examples in their order.

    Parameters
    ----------
    *parts : sequences
        Compared by their `repr`.

    Returns
    -------
    int
        CRC-32.
    """
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(b"\0", checksum)
        for item in part:
            data = repr(item).encode("utf-8", "surrogatepass")
            checksum = zlib.crc32(data, checksum)
    return checksum


def read_examples(
    task: Task,
    options: FinetuneOptions,
    rows: Rows | None = None,
) -> tuple[list[Any], list[Any]]:
    """Read the training examples and the dev set.

    Examples in memory become the task's `rows`, by which its errors name them.

    Parameters
    ----------
    task : Task
        What is asked.
    options : FinetuneOptions
        Where the data are, and how many examples to take.
    rows : Rows, optional
        The examples, where they are in memory.

    Returns
    -------
    train, dev : list

    Raises
    ------
    InputError
        When the files can't be read, or one file is to be both train and dev without `split_dev`.
    """
    data = Path(options.data)
    if rows is None:
        _refuse_one_table(task, data)
    if rows is not None:
        task.rows = {"X": rows.train, "dev": rows.dev or []}
    if rows is not None and rows.dev is not None:
        train, dev = rows.train, rows.dev
    elif options.split_dev is None:
        if data.is_file():
            advice = "say which share of it is for dev, such as split_dev=0.1"
            message = f"'{data}' is one file; {advice}, or name a folder with train and dev files."
            raise InputError(message, split_dev=0.1)
        try:
            train = task.read(data, "train")
        except MissingFile as error:
            other = f"{task.name}-dev"
            if other not in registry.TASKS:
                raise
            advice = f"Without a train file the task {other} learns from a part of the dev file."
            raise MissingFile(f"{error} {advice}", **error.arguments) from error
        dev = task.read(data, "dev")
    else:
        stratified = options.stratified and task.kind in OF_CLASSES
        examples = _the_one_file(task, options) if rows is None else rows.train
        instead = "give train and dev files" if rows is None else "give dev"
        train, dev = split(examples, options.split_dev, stratified, instead)
    train = subset(train, options.train_examples)
    dev = subset(dev, options.dev_examples)
    return train, dev


def _refuse_one_table(task: Task, data: Path) -> None:
    """Raise InputError for a table as the data of a task that reads official files of its own."""
    own = OWN_TABLES.get(task.kind)
    if own and task.name not in registry.CUSTOM_TABLES and data.is_file() and suffix_of(data) in TABLES:
        what = f"'{data}' is a file, and {task.name} reads a folder of its official files"
        raise InputError(f"{what}; for a table of your own choose the task {own}.")


def _the_one_file(task: Task, options: FinetuneOptions) -> list[Any]:
    """Read dev or, where there is none with labels, train; raise InputError where there are both."""
    data = Path(options.data)
    labelled, lacking = [], []
    for part in ("dev", "train"):
        try:
            labelled.append(task.read(data, part))
        except (MissingFile, MissingColumn) as error:  # what is damaged is not passed over
            if isinstance(error, MissingColumn) and error.role not in ANSWERS:
                raise
            lacking.append(error)
        if data.is_file() and labelled:
            break
    if len(labelled) == 2:
        share = options.split_dev
        both = f"a train and a dev file, and split_dev={share!r} divides one file"
        advice = "leave it out, or name one of the two files."
        raise InputError(f"'{data}' has {both}; {advice}", split_dev=share)
    if not labelled:
        raise min(lacking, key=lambda error: isinstance(error, MissingFile))
    return labelled[0]


def asked_examples(
    task: Task,
    folder: Path,
    data: str | Path | None,
    split: str,
    same_task: bool,
    labelled: bool = True,
) -> list[Any]:
    """Read what the model in a folder is asked about: never, by mistake, its training data.

    Of what the run has divided by `split_dev`, "dev" and "train" are its parts, also where it is named here.

    Parameters
    ----------
    task : Task
        What is asked.
    folder : Path
        Folder of the model.
    data : str, Path or None
        A folder of the task's files, or one file; None: those that the model was fine-tuned on.
    split : str
        "train", "dev" or "test".
    same_task : bool
        Whether the task is that of the model.
    labelled : bool, default True
        Whether a custom table has to have what is expected.

    Returns
    -------
    list

    Raises
    ------
    InputError
        When the files can't be read, or a divided one is asked for its test part.
    """
    try:
        return _asked(task, folder, data, split, same_task)
    except MissingColumn as error:
        if labelled or error.role not in ANSWERS:
            message = error.renaming or error.message  # columns are those of the training
            raise MissingColumn(message, error.role, error.path, error.header, error.where) from error
        return task.read(error.path, "test")  # which may lack it


def source_of(
    task: Task,
    folder: Path,
    data: str | Path | None,
    split: str,
) -> str:
    """Return which examples `asked_examples` reads, with the same arguments: a file's are of no split.

    Parameters
    ----------
    task : Task
        What is asked.
    folder : Path
        Folder of the model.
    data : str, Path or None
        As for `asked_examples`.
    split : str
        Likewise.

    Returns
    -------
    str
        As errors and reports name them.

    Examples
    --------
    >>> source_of(registry.create("rte"), Path("runs/rte"), "glue", "dev")
    'glue, dev'
    """
    if data is None:
        return f"the data of {folder}, {split}"
    if not Path(data).is_file():
        return f"{data}, {split}"
    options = FinetuneOptions.load(folder / OPTIONS_FILE) if (folder / OPTIONS_FILE).exists() else None
    is_part = options is not None and split != "test" and _is_divided(task, options, Path(data))
    return f"{data}, {split}" if is_part else str(data)


def _asked(
    task: Task,
    folder: Path,
    data: str | Path | None,
    split: str,
    same_task: bool,
) -> list[Any]:
    if not (folder / OPTIONS_FILE).exists():
        if data is None:
            raise InputError(f"'{folder}' does not say what it was fine-tuned on; give the data.")
        return task.read(Path(data), split)
    options = FinetuneOptions.load(folder / OPTIONS_FILE)
    if data is None and not Path(options.data).exists():
        advice = "give their present folder as `data`."
        raise InputError(
            f"The data that '{folder}' was fine-tuned on, '{options.data}', are not there; {advice}"
        )
    if data is not None and not _is_divided(task, options, Path(data)):
        return task.read(Path(data), split)
    if split == "test" and Path(data or options.data).is_file():
        what = f"is the file that '{folder}' was trained on, and it has no test part"
        advice = "give another file, or ask for dev, the part that was held out."
        raise InputError(f"'{data or options.data}' {what}; {advice}")
    if split == "test" or (options.split_dev is None and (split == "train" or not same_task)):
        return task.read(Path(options.data), split)
    return read_examples(task, options)[split == "dev"]  # the very ones that the best epoch was chosen by


def _is_divided(task: Task, options: FinetuneOptions, data: Path) -> bool:
    """Return whether a run has divided these data in two, by their path or as a copy of the file."""
    if options.split_dev is None:
        return False
    if data.resolve() == Path(options.data).resolve():
        return True
    try:
        return data.is_file() and task.read(data, "dev") == _the_one_file(task, options)
    except InputError:  # what is wrong is told where the data are read
        return False


def split(
    examples: list[Any],
    share: float,
    stratified: bool = False,
    instead: str = "give train and dev files",
) -> tuple[list[Any], list[Any]]:
    """Divide examples in two at random, always alike, each part in order: all but a share, and that share.

    Those of one document, about one paragraph, or pairs with the same first text come to the same part: what
    was read is not measured on.

    Parameters
    ----------
    examples : list
        To divide.
    share : float
        Share of the second part, above 0 and below 1.
    stratified : bool, default False
        Of each class the second part has its share, by largest remainder (of pairs that share texts, nearly),
        and never all examples.
    instead : str
        What to do in place of dividing, for the error.

    Returns
    -------
    train, dev : list

    Raises
    ------
    InputError
        When a part would be empty.
    """
    if stratified:
        members = _grouped(examples, GROUPED_BY)
        held_out = set(_drawn_by_class(strata(examples), members, share))
    else:
        count = round(share * len(examples))
        held_out = set(_drawn(examples, count, SPLIT_SEED, GROUPED_BY))
    if not 0 < len(held_out) < len(examples):
        empty = (
            f"split_dev={share!r} of {len(examples):,} examples leaves train or dev empty; give another share"
        )
        why = _why_undivided(examples, stratified)
        raise InputError(f"{empty}{why}, or {instead}.", split_dev=share)
    train = [example for number, example in enumerate(examples) if number not in held_out]
    dev = [examples[number] for number in sorted(held_out)]
    return train, dev


def _why_undivided(examples: list[Any], stratified: bool) -> str:
    """Say which examples stay together, where that is why there are not two parts; nothing otherwise."""
    if stratified:
        alone = "At least one example of each class stays in train"
        return f". {alone}, and pairs with one first text stay together; if no class has more, add examples"
    reason = {
        "document": "Sentences of one document are not divided: put lines -DOCSTART- between documents",
        "context": "Questions about one paragraph are not divided: add questions about other paragraphs",
        "first": "Pairs with the same first text are not divided: add pairs with other first texts",
    }
    if len(_grouped(examples, GROUPED_BY)) == len(examples):  # also where there are none
        return ""
    name = next((name for name in GROUPED_BY if hasattr(examples[0], name)), None)
    return f". {reason[name]}" if name else ""


def _grouped(examples: list[Any], groups: Sequence[str]) -> list[list[int]]:
    """Return the numbers of the examples that agree in the first of these attributes that they have."""
    members: dict[Any, list[int]] = {}
    for number, example in enumerate(examples):
        name = next((name for name in groups if hasattr(example, name)), None)
        if getattr(example, "second", "") is None:  # a text without a second one stands for itself
            name = None
        group = getattr(example, name) if name else number
        members.setdefault(group, []).append(number)
    return list(members.values())


def _drawn_by_class(classes: Sequence[Any], members: list[list[int]], share: float) -> list[int]:
    """Draw a share of each class at random, as numbers, groups as a whole; one example of each is left."""
    counts = Counter(classes)
    wanted = Counter({label: int(share * count) for label, count in counts.items()})
    missing = round(share * len(classes)) - wanted.total()
    by_remainder = sorted(counts, key=lambda label: wanted[label] - share * counts[label])
    for label in by_remainder[:missing]:
        wanted[label] = min(wanted[label] + 1, counts[label] - 1)
    drawn = []
    for group in epoch_order(len(members), SPLIT_SEED, 0).tolist():
        of_group = Counter(classes[number] for number in members[group])
        if of_group <= wanted:
            wanted -= of_group
            drawn += members[group]
    return drawn


def subset(examples: list[Any], count: int | None) -> list[Any]:
    """Choose so many of the examples at random, in their order: always the same, and all for None.

    Parameters
    ----------
    examples : list
        To choose from.
    count : int or None
        How many; more where documents are kept whole.

    Returns
    -------
    list
    """
    if count is None or count >= len(examples):
        return examples
    drawn = sorted(_drawn(examples, count, SUBSET_SEED))
    return [examples[number] for number in drawn]


def _drawn(
    examples: list[Any],
    count: int,
    seed: int,
    groups: Sequence[str] = ("document",),
) -> list[int]:
    """Draw `count` examples at random, as numbers.

    Where they have one of the attributes `groups`, those that agree in it are drawn together until there are
    enough: sentences of a document, which are shown with their neighbours.
    """
    drawn: list[int] = []
    members = _grouped(examples, groups)
    for group in epoch_order(len(members), seed, 0).tolist():
        if len(drawn) >= count:
            break
        drawn += members[group]
    return drawn
