"""The nine tasks of GLUE and its diagnostic set, from the files as distributed (Wang et al. 2019, "GLUE").

All are tab-separated tables without quoting, and no two tasks have the same columns: CoLA has a header only
in its test file, MRPC's begins with a byte order mark, STS-B's score is the last of ten columns, MNLI's label
the last of twelve or sixteen. The labels of the test files are not public.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from minibert.base.errors import InputError, MissingFile, warn
from minibert.base.reading import PACKED
from minibert.base.terminal import counted
from minibert.data.lines import number_in, numbered_lines, rows, shown
from minibert.data.places import where_to_get

HIGHEST_SCORE = 5.0  # in STS-B, for equal meaning; the lowest is 0


class TextExample(NamedTuple):
    """A sentence or a pair of sentences, and its label."""

    id: str
    first: str
    second: str | None  # None where the task has one sentence
    label: Any  # the name of a class, a tuple of several names, a score, or None where unknown


@dataclass(frozen=True)
class GlueTask:
    """A task of GLUE: its folder, its files and their columns."""

    name: str  # name on the command line
    title: str  # official name, also that of its folder
    sentences: tuple[str, ...]  # names of the columns with sentences, one or two
    label: str  # name of the column with labels
    labels: tuple[str, ...]  # the classes, in the order of the outputs; () for a score
    metrics: tuple[str, ...]  # metrics of the leaderboard, the main one first
    files: Mapping[str, tuple[str, ...]]  # possible names of each split's file; the first is preferred
    ids: tuple[str, ...] = ("index",)  # columns that form the id; if missing, "index" or the row's index
    folders: tuple[str, ...] = ()  # other names of the folder; case, hyphens and underscores are ignored
    bare: tuple[str, ...] = ()  # columns of train and dev files that have no header
    broken_rows: bool = False  # whether official files have rows with too few columns, which everyone skips

    @property
    def pair(self) -> bool:
        """Whether there are two sentences."""
        return len(self.sentences) == 2


_MICROSOFT = "msr_paraphrase_train.txt"
_ONE = ("sentence",)
_TWO = ("sentence1", "sentence2")
_BINARY = ("0", "1")
_ENTAILED = ("entailment", "not_entailment")
_INFERENCE = ("entailment", "neutral", "contradiction")
_ACCURACY = ("accuracy",)
_BOTH = ("f1", "accuracy")
_PLAIN = {"train": ("train.tsv",), "dev": ("dev.tsv",), "test": ("test.tsv",)}
_MRPC = {split: (f"{split}.tsv", _MICROSOFT) for split in ("train", "dev")}
_MRPC["test"] = ("test.tsv", "msr_paraphrase_test.txt")
_AX = {"test": ("diagnostic.tsv", "AX.tsv")}
_COLA = ("source", "label", "star", "sentence")
_DUPLICATE = ("question1", "question2")
_PARAPHRASE = ("#1 String", "#2 String")


def _mnli(name: str, title: str, half: str) -> GlueTask:
    files = {"train": ("train.tsv",), "dev": (f"dev_{half}.tsv",), "test": (f"test_{half}.tsv",)}
    return GlueTask(name, title, _TWO, "gold_label", _INFERENCE, _ACCURACY, files, folders=("MNLI",))


_ALL = (
    GlueTask("cola", "CoLA", _ONE, "label", _BINARY, ("matthews",), _PLAIN, bare=_COLA),
    GlueTask("sst2", "SST-2", _ONE, "label", _BINARY, _ACCURACY, _PLAIN),
    GlueTask("mrpc", "MRPC", _PARAPHRASE, "Quality", _BINARY, _BOTH, _MRPC, ids=("#1 ID", "#2 ID")),
    GlueTask("stsb", "STS-B", _TWO, "score", (), ("spearman", "pearson"), _PLAIN),
    GlueTask("qqp", "QQP", _DUPLICATE, "is_duplicate", _BINARY, _BOTH, _PLAIN, ids=("id",), broken_rows=True),
    _mnli("mnli", "MNLI-m", "matched"),
    _mnli("mnli-mm", "MNLI-mm", "mismatched"),
    GlueTask("qnli", "QNLI", ("question", "sentence"), "label", _ENTAILED, _ACCURACY, _PLAIN),
    GlueTask("rte", "RTE", _TWO, "label", _ENTAILED, _ACCURACY, _PLAIN),
    GlueTask("wnli", "WNLI", _TWO, "label", _BINARY, _ACCURACY, _PLAIN),
    GlueTask("ax", "AX", _TWO, "label", _INFERENCE, ("matthews",), _AX, folders=("diagnostic", "MNLI")),
)
TASKS: dict[str, GlueTask] = {task.name: task for task in _ALL}


def read(task: str, folder: str | Path, split: str) -> list[TextExample]:
    """Read the examples of one split of a task of GLUE, in the order of its file.

    Text is read literally. A warning counts rows of QQP that are skipped because they have too few columns.
    MRPC may also be as Microsoft distributes it, in msr_paraphrase_train.txt and msr_paraphrase_test.txt; dev
    is then the pairs in GLUE's file dev_ids.tsv, and train is the rest.

    Parameters
    ----------
    task : str
        A key of `TASKS`. The dev and test files of mnli are the matched ones, those of mnli-mm the
        mismatched.
    folder : str or Path
        The folder of the task, or its parent with the folders of all tasks. Files may be compressed.
    split : str
        "train", "dev" or "test"; ax has "test" only.

    Returns
    -------
    list of TextExample
        The examples; in "test" every label is None.

    Raises
    ------
    InputError
        When the task or the split is unknown, or a file has another layout; a `MissingFile` when it does not
        exist.
    """
    spec = _known(task)
    if split not in _PLAIN:
        raise InputError(f"split={split!r} is unknown; choose from {', '.join(_PLAIN)}.")
    if split not in spec.files:
        raise InputError(f"{spec.title} has no split {split!r}, only {', '.join(spec.files)}.")
    file = find_file(Path(folder), spec.files[split], (spec.title, *spec.folders), spec.title, spec.name)
    examples = _examples(spec, file, split)
    if not file.name.startswith(_MICROSOFT):
        return examples
    list_of_dev = file.parent / "dev_ids.tsv"
    if not list_of_dev.is_file():
        if split == "dev":
            raise MissingFile(
                f"{file.parent} has no dev.tsv, and no dev_ids.tsv that says which pairs of {file.name} are "
                "dev; add one of them."
            )
        warn(f"{file.parent} has no dev_ids.tsv: every pair of {file.name} is train.")
        return examples
    dev = {"-".join(line.split()) for _, line in numbered_lines(list_of_dev)}
    return [example for example in examples if (example.id in dev) == (split == "dev")]


def read_file(task: str, file: str | Path) -> list[TextExample]:
    """Read the examples of one file laid out like the task's dev file, whatever its name.

    Parameters
    ----------
    task : str
        A key of `TASKS`.
    file : str or Path
        The file, which may be compressed.

    Returns
    -------
    list of TextExample
        The examples, as `read` returns them.

    Raises
    ------
    InputError
        As for `read`.
    """
    return _examples(_known(task), Path(file), "dev")


def _known(task: str) -> GlueTask:
    if task not in TASKS:
        raise InputError(f"task={task!r} is not one of GLUE's; choose from {', '.join(TASKS)}.")
    return TASKS[task]


def find_file(
    folder: Path, names: tuple[str, ...], folders: tuple[str, ...], title: str, task: str | None = None
) -> Path:
    """Find the first of `names`, compressed or not, in a folder or in one of `folders` inside it.

    Parameters
    ----------
    folder : Path
        Where to look first.
    names : tuple of str
        Possible names of the file; the first one that exists is taken.
    folders : tuple of str
        Names of folders inside; case, hyphens and underscores are ignored.
    title : str
        Title of the task, for errors, which say where to get its files.
    task : str, optional
        Name of the task, where it differs from the title.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    InputError
        When the folder does not exist; a `MissingFile` when no such file does.
    """
    place = where_to_get(task or title)
    if not folder.is_dir():
        raise InputError(f"There is no folder '{folder}'; name the folder with the files of {title}{place}.")
    usual = {_squeezed(name) for name in folders}
    inside = sorted(child for child in folder.iterdir() if _squeezed(child.name) in usual)
    for parent, name, end in product((folder, *inside), names, ("", *PACKED)):
        file = parent / (name + end)
        if file.is_file():
            return file
    raise MissingFile(
        f"There is no {' or '.join(names)} in '{folder}', nor in a folder {' or '.join(folders)} inside it; "
        f"name the folder with the files of {title}{place}."
    )


def _squeezed(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _examples(spec: GlueTask, file: Path, split: str) -> list[TextExample]:
    table = rows(file)
    if spec.bare and split != "test":
        header = list(spec.bare)
    else:
        _, header = next(table, (0, []))
    wanted = list(spec.sentences)
    if split != "test":
        wanted.append(spec.label)
    if missing := [name for name in wanted if name not in header]:
        problem = f"it has no column {shown(missing)}, its header is {shown(header) or 'empty'}"
        raise InputError(
            f"{file} is not the {split} file of {spec.title}: {problem}; check the task and the folder."
        )
    ids = [name for name in spec.ids if name in header]
    if "index" in header:
        ids = ["index"]
    labels = {label: label for label in spec.labels}
    scores = (0.0, HIGHEST_SCORE)
    examples = []
    broken = []  # lines with too few columns
    for number, (line, row) in enumerate(table):
        where = f"{file}, line {line}"
        if spec.broken_rows and len(row) < len(header):
            broken.append(line)
            continue
        if len(row) != len(header):
            raise InputError(
                f"{counted(len(row), 'column')} between tabs, not the {len(header)} of {spec.title} "
                f"({shown(header)}); check the task and the folder, or fetch the file again.",
                where=where,
            )
        cells = dict(zip(header, row, strict=True))
        id = "-".join(cells[name] for name in ids) or str(number)
        first = cells[spec.sentences[0]]
        second = cells[spec.sentences[1]] if spec.pair else None
        label = None
        if split != "test":
            label = label_in(cells[spec.label], labels, scores, where, spec.title)
        examples.append(TextExample(id, first, second, label))
    if broken:
        warn(
            f"{file}: {len(broken):,} of {number + 1:,} rows lack columns and are left out, "
            f"the first in line {broken[0]}."
        )
    if not examples:
        raise InputError(f"{file} has a header and no rows; fetch it again.")
    return examples


def label_in(
    text: str, labels: Mapping[str, str | None], scores: tuple[float, float], where: str, title: str = ""
) -> str | float | None:
    """Convert a label of a file to one of the task, or to a score.

    Parameters
    ----------
    text : str
        The label in the file.
    labels : mapping from str to str or None
        From the labels of the file to those of the task; empty for scores.
    scores : tuple of two floats
        The lowest and the highest score.
    where : str
        The position in the file, with which an error begins.
    title : str, optional
        Title of the task, for the error.

    Returns
    -------
    str, float or None
        The label or the score; None only if `labels` has it.

    Raises
    ------
    InputError
        When the text is neither.
    """
    if text in labels:
        return labels[text]
    lowest, highest = scores
    if labels:
        expected = f"one of {', '.join(labels)}"
    else:
        score = number_in(text, lowest, highest)
        if score is not None:
            return score
        expected = f"a number from {lowest:g} to {highest:g}"
    label = "label"
    check = "the folder"
    if title:
        label = f"label of {title}"
        check = "the task and the folder"
    raise InputError(f"the {label} is {expected}, not {text[:60]!r}; check {check}.", where=where)
