"""Read the examples that a run learns from, and those that a finished model is asked about."""

import zlib
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from minibert.base.errors import InputError, MissingFile, warn
from minibert.base.json_files import read_json
from minibert.base.reading import suffix_of
from minibert.base.terminal import counted
from minibert.data.lines import JSON_LINES
from minibert.data.tables import DELIMITERS, MissingColumn
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.splitting import split, subset
from minibert.model.head_kinds import OF_CLASSES
from minibert.reports.results import load_report
from minibert.tasks import registry
from minibert.tasks.stored import OPTIONS_FILE
from minibert.tasks.task import Task

OWN_TABLES = registry.BY_KIND | {"cosine": "similarity"}  # by the kind of an official task
# Suffixes of custom tables. A .json file may be one, too, but the official files of SQuAD also end in .json.
TABLES = {*DELIMITERS, *JSON_LINES} - {".json"}
# The fields of examples that a model reads: those of texts, questions, sentences of words and choices.
INPUTS = ("first", "second", "question", "context", "words", "start", "endings")
TRAINED_TEXTS = "trained_texts.json"  # in the folder of a model: checksums of its training texts
MANY_TRAINED = 0.2  # of the examples to measure, from which share on a warning says so
ANSWERS = ("label", "tags", "answer")  # roles of the columns that hold labels


class Rows(NamedTuple):
    """Examples in memory, instead of those in the files that the options name.

    Errors call them "X" and "dev", as the arguments of an estimator's `fit` are called, and count rows from
    0.
    """

    train: list[Any]
    dev: list[Any] | None = None  # None: the share `split_dev` of `train`


def read_examples(
    task: Task,
    options: FinetuneOptions,
    rows: Rows | None = None,
) -> tuple[list[Any], list[Any]]:
    """Read the training examples and the dev set.

    Examples in memory are stored in the task's `rows`, so that its errors can name them.

    Parameters
    ----------
    task : Task
        The task of the examples.
    options : FinetuneOptions
        Say where the data are, and how many examples to take.
    rows : Rows, optional
        The examples, if they are in memory.

    Returns
    -------
    train, dev : list

    Raises
    ------
    InputError
        When the files can't be read, or a single file would have to be both train and dev without
        `split_dev`.
    """
    data = Path(options.data)
    if rows is None:
        _refuse_one_table(task, data)
    else:
        task.rows = {"X": rows.train, "dev": rows.dev or []}
    if rows is not None and rows.dev is not None:
        train, dev = rows.train, rows.dev
    elif options.split_dev is None:
        train, dev = _train_and_dev_files(task, data)
    else:
        stratified = options.stratified and task.kind in OF_CLASSES
        examples = _the_one_file(task, options) if rows is None else rows.train
        instead = "give train and dev files" if rows is None else "give dev"
        train, dev = split(examples, options.split_dev, stratified, instead)
    train = subset(train, options.train_examples)
    dev = subset(dev, options.dev_examples)
    return train, dev


def _train_and_dev_files(task: Task, data: Path) -> tuple[list[Any], list[Any]]:
    """Read a folder's train and dev files; where one is missing, the error says what can be done without."""
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
    try:
        dev = task.read(data, "dev")
    except MissingFile as error:
        advice = "Add one, or give split_dev=0.1 to evaluate on a part of the train file."
        raise MissingFile(f"{error} {advice}", **error.arguments, split_dev=0.1) from error
    return train, dev


def _refuse_one_table(task: Task, data: Path) -> None:
    """Raise InputError for a table as the data of a task that reads official files of its own."""
    own = OWN_TABLES.get(task.kind)
    if own and task.name not in registry.CUSTOM_TABLES and data.is_file() and suffix_of(data) in TABLES:
        what = f"'{data}' is a file, and {task.name} reads a folder of its official files"
        raise InputError(f"{what}; for a table of your own choose the task {own}.")


def _the_one_file(task: Task, options: FinetuneOptions) -> list[Any]:
    """Read the only labelled file, dev or train; raise InputError if there are both, or none."""
    data = Path(options.data)
    labelled = []  # the examples of each file
    lacking = []  # why the others could not be used
    for part in ("dev", "train"):
        try:
            labelled.append(task.read(data, part))
        except (MissingFile, MissingColumn) as error:  # other errors are raised: the file is damaged
            if isinstance(error, MissingColumn) and error.role not in ANSWERS:
                raise
            lacking.append(error)
        if data.is_file() and labelled:
            break
    if len(labelled) == 2:
        share = options.split_dev
        problem = f"'{data}' has a train and a dev file, and split_dev={share!r} divides one file"
        raise InputError(f"{problem}; leave it out, or name one of the two files.", split_dev=share)
    if not labelled:
        raise min(lacking, key=lambda error: isinstance(error, MissingFile))
    return labelled[0]


class EvaluationData:
    """The examples that a fine-tuned model is asked about: never, by mistake, those that it was trained on.

    If the run divided its data by `split_dev`, "train" and "dev" are these parts, also where the data are
    given: the same path, or a copy of the file, whose columns may have other names.

    Parameters
    ----------
    task : Task
        The task to ask.
    folder : Path
        Folder of the model.
    data : str, Path or None
        A folder of the task's files, or one file; None for the data that the model was fine-tuned on.
    split : str
        "train", "dev" or "test".

    Raises
    ------
    InputError
        When the options in the folder are damaged.

    Examples
    --------
    >>> EvaluationData(registry.create("rte"), Path("runs/rte"), "glue", "dev").source
    'glue, dev'
    """

    def __init__(self, task: Task, folder: Path, data: str | Path | None, split: str) -> None:
        self._task = task
        self._folder = folder
        self._data = None if data is None else Path(data)
        self._split = split
        self._options: FinetuneOptions | None = None  # those of the run, if the folder is that of one
        if (folder / OPTIONS_FILE).exists():
            self._options = FinetuneOptions.load(folder / OPTIONS_FILE)

    @cached_property
    def _is_divided(self) -> bool:
        """Whether `data` are the file that the run divided, or a copy; to find out, both are read."""
        data, options = self._data, self._options
        if data is None or options is None or options.split_dev is None:
            return False
        if data.resolve() == Path(options.data).resolve():
            return True
        try:
            return data.is_file() and self._task.read(data, "dev") == _the_one_file(
                _own_task(options), options
            )
        except InputError:  # it is raised again where the data are read
            return False

    @property
    def source(self) -> str:
        """What errors and reports call the examples: the data and, unless it is a whole file, the split."""
        data, split = self._data, self._split
        if data is None:
            return f"the data of {self._folder}, {split}"
        is_whole_file = data.is_file() and (split == "test" or not self._is_divided)
        return str(data) if is_whole_file else f"{data}, {split}"

    def read(self, same_task: bool) -> list[Any]:
        """Read the examples.

        Parameters
        ----------
        same_task : bool
            Whether the model was fine-tuned for this task.

        Returns
        -------
        list

        Raises
        ------
        InputError
            When the files can't be read, the test part of divided data is asked for, or divided data have
            changed since the run divided them.

        Notes
        -----
        In the folder of a run, the first row that applies decides:

        `data` is given, and the run did not divide it   the split of `data`
        "test", and the run's data are one file          InputError
        "test"                                           the split of the run's data
        the run divided its data                         its train or dev part
        "dev", for the task of the model                 its dev set, by which it chose the best epoch
        otherwise                                        the split of the run's data
        """
        task, folder, split, options = self._task, self._folder, self._split, self._options
        if options is None and self._data is None:
            raise InputError(f"'{folder}' does not say what it was fine-tuned on; give the data.")
        if self._data is not None and not self._is_divided:
            return task.read(self._data, split)
        assert options is not None  # since there are no other data, or the run divided them
        if self._data is None and not Path(options.data).exists():
            advice = "give their present folder as `data`."
            raise InputError(
                f"The data that '{folder}' was fine-tuned on, '{options.data}', are not there; {advice}"
            )
        data = self._data or Path(options.data)
        if split == "test" and data.is_file():
            what = f"is the file that '{folder}' was trained on, and it has no test part"
            advice = "give another file, or ask for dev, the part that was held out."
            raise InputError(f"'{data}' {what}; {advice}")
        if split == "test" or (options.split_dev is None and (split == "train" or not same_task)):
            return task.read(Path(options.data), split)
        if options.split_dev is not None and same_task:
            return _divided(task, folder, options, data, split)
        train, dev = read_examples(task, options)
        return dev if split == "dev" else train


def _divided(task: Task, folder: Path, options: FinetuneOptions, data: Path, split: str) -> list[Any]:
    """Read the train or dev part of the data that a run divided, by the columns of the training.

    If the task has other columns than the run, its examples are those in the same rows.
    """
    own = _own_task(options)
    examples = _the_one_file(own, options)
    train, dev = read_examples(own, options, Rows(examples))
    _require_unchanged(folder, data, dev)
    part = dev if split == "dev" else train
    if _columns(task) == _columns(own):
        return part
    others = _the_one_file(task, replace(options, data=str(data)))
    if len(others) != len(examples):
        what = f"'{data}' has {len(others):,} examples with these columns, and '{folder}' divided"
        raise InputError(f"{what} {len(examples):,}; leave out `columns`, or give other data.")
    row_of = {id(example): row for row, example in enumerate(examples)}
    return [others[row_of[id(example)]] for example in part]


def _own_task(options: FinetuneOptions) -> Task:
    """Return the task of a run, with the columns of its training."""
    return registry.create(options.task, dict(options.columns))


def _columns(task: Task) -> dict[str, Any]:
    """Return the columns that a task was given; {} for official files, which have their own."""
    return getattr(task, "columns", {})


def _require_unchanged(folder: Path, data: Path, dev: list[Any]) -> None:
    """Raise InputError if data have changed since a run divided them.

    Which examples are in dev depends on all of them, so the dev part of changed data has trained ones in it.
    """
    report = load_report(folder) or {}
    if "dev_crc32" in report and report["dev_crc32"] != fingerprint(dev):
        what = f"'{data}' has changed since '{folder}' was trained on it, so its dev part is another one"
        raise InputError(f"{what}, with trained examples in it; restore the file, or give other data.")


def fingerprint(*parts: Sequence[Any]) -> int:
    """Return a checksum of labels and examples, which depends on their order.

    Parameters
    ----------
    *parts : sequences
        Labels or examples; equal ones have the same `repr`.

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


def text_checksums(examples: Iterable[Any]) -> list[int]:
    """Return a checksum of what a model reads of each example, without labels and names of columns.

    Parameters
    ----------
    examples : iterable
        Examples of any task.

    Returns
    -------
    list of int
        CRC-32.
    """
    texts = ([getattr(example, name, None) for name in INPUTS] for example in examples)
    return [zlib.crc32(repr(text).encode("utf-8", "surrogatepass")) for text in texts]


def trained_texts(*folders: Path) -> frozenset[int]:
    """Return the checksums of the texts that models were trained on, where their folders hold them.

    Parameters
    ----------
    *folders : Path
        Folders of fine-tuned models.

    Returns
    -------
    frozenset of int

    Raises
    ------
    InputError
        When a file of checksums is damaged.
    """
    advice = "remove it: it only serves to recognise texts of the training"
    checksums: set[int] = set()
    for folder in folders:
        path = folder / TRAINED_TEXTS
        if path.exists():
            checksums.update(read_json(path, {"crc32": list[int]}, advice)["crc32"])
    return frozenset(checksums)


def warn_of_trained_texts(examples: Sequence[Any], trained: Set[int], when: str = "was") -> None:
    """Warn if a model was, or is now, trained on the texts of many of the examples that it is measured on.

    Parameters
    ----------
    examples : sequence
        The examples to measure.
    trained : set of int
        As `trained_texts` returns it.
    when : {"was", "is"}, default "was"
        "is" before the training.
    """
    count = sum(checksum in trained for checksum in text_checksums(examples))
    if count and count >= MANY_TRAINED * len(examples):
        what = f"The model {when} trained on the texts of {count:,} of {counted(len(examples), 'example')}"
        warn(f"{what}, so its scores say little about new texts; measure it on others.")
