"""Data sets that replace tasks of GLUE whose files are hard to get, with the labels of those tasks.

    quora    for QQP: pairs of the same questions, in the split of Wang et al. 2017 (BiMPM)
    snli     for MNLI: Bowman et al. 2015
    scitail  for QNLI, also similar to RTE: Khot et al. 2018
    sick     for MNLI, sick-score for STS-B: Marelli et al. 2014
    qnli     for itself: its dev file divided, where the train file is missing

Where only dev and test files are available, "train" is the test file: scores on dev stay valid, and there is
no "test".
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from minibert.base.errors import InputError, naming, warn
from minibert.base.terminal import counted
from minibert.data import glue
from minibert.data.glue import TextExample, find_file, label_in
from minibert.data.lines import rows, shown

STAYS_DEV = 5  # one in five examples stays dev, where a dev file is divided


class StandIn(NamedTuple):
    """Data that can replace a task of GLUE."""

    task: str  # key of glue.TASKS
    folder: str
    files: dict[str, str]  # the file of each split
    columns: str  # their roles: first, second, label, id (by default the index of the row), - for none
    labels: Mapping[str, str | None]  # label in the file -> label of the task, None: skip; {} for scores
    header: tuple[str, ...] = ()
    damaged: bool = False  # whether the file has bytes that are not UTF-8


_SICK = ("pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment")
_SICK_FILES = {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}
_SICK_LABELS = {"ENTAILMENT": "entailment", "NEUTRAL": "neutral", "CONTRADICTION": "contradiction"}
_QUORA_FILES = {"train": "bimpm_test.tsv", "dev": "bimpm_dev.tsv"}
_QUORA_LABELS = {"0": "0", "1": "1"}
_SNLI_LABELS = {"0": "entailment", "1": "neutral", "2": "contradiction", "-": None}
_SCITAIL_LABELS = {"0": "entailment", "1": "not_entailment"}
_PLAIN_FILES = {"train": "test.txt", "dev": "dev.txt"}

STAND_INS: dict[str, StandIn] = {
    "quora": StandIn("qqp", "quora", _QUORA_FILES, "label first second id", _QUORA_LABELS, damaged=True),
    "snli": StandIn("mnli", "snli", _PLAIN_FILES, "first second label", _SNLI_LABELS),
    "scitail": StandIn("qnli", "scitail", _PLAIN_FILES, "first second label", _SCITAIL_LABELS),
    "sick": StandIn("mnli", "sick", _SICK_FILES, "id first second - label", _SICK_LABELS, _SICK),
    "sick-score": StandIn("stsb", "sick", _SICK_FILES, "id first second label -", {}, _SICK),
}


def read(name: str, folder: str | Path, split: str) -> list[TextExample]:
    """Read one split of a stand-in, in the order of its file, with the labels of the task that it replaces.

    Warnings count pairs of SNLI that are skipped because annotators disagreed (label "-"), and pairs of Quora
    with bytes that are not UTF-8, which are read as U+FFFD. "qnli" divides QNLI's dev file by question: those
    whose CRC-32 is a multiple of 5 are "dev", the others "train". Scores of SICK are from 1 to 5; its "test"
    has labels.

    Parameters
    ----------
    name : str
        A key of `STAND_INS`, or "qnli".
    folder : str or Path
        The folder of the data, or its parent.
    split : str
        "train", "dev" or, for SICK, "test".

    Returns
    -------
    list of TextExample
        The examples, with the labels of the task.

    Raises
    ------
    InputError
        When the name or the split is unknown, or a file is missing or has another layout.
    """
    spec = STAND_INS.get(name)
    if spec is None and name != "qnli":
        raise InputError(f"name={name!r} is not a stand-in; choose from {', '.join(STAND_INS)}, qnli.")
    splits = spec.files if spec else ("train", "dev")
    if split not in splits:
        raise InputError(f"The stand-in {name} has no split {split!r}, only {', '.join(splits)}.")
    if spec:
        file = find_file(Path(folder), (spec.files[split],), (spec.folder,), name)
        return _examples(spec, file)
    # Outside of `naming`, which would hide a MissingFile from a caller who looks in several folders.
    examples = glue.read("qnli", folder, "dev")
    with naming(str(folder)):
        return divided(examples, split, lambda example: example.first)


def divided(examples: Sequence[Any], split: str, text_of: Callable[[Any], str]) -> list[Any]:
    """Divide a labelled file into train and dev (a fifth) by the CRC-32 of a text of each example.

    Parameters
    ----------
    examples : sequence
        Examples of the file.
    split : str
        "train" or "dev".
    text_of : callable
        Returns the text of an example; examples with the same text are in the same split.

    Returns
    -------
    list
        The examples of the split, in their order.

    Raises
    ------
    InputError
        When the split is unknown, or would be empty.
    """
    if split not in ("train", "dev"):
        raise InputError(f"A divided file has no split {split!r}, only train, dev.")
    chosen = []
    for example in examples:
        checksum = zlib.crc32(text_of(example).encode("utf-8", "surrogatepass"))
        is_dev = checksum % STAYS_DEV == 0
        if is_dev == (split == "dev"):
            chosen.append(example)
    if not chosen:
        raise InputError(f"Of {len(examples)} examples none becomes {split}; too few to be divided.")
    return chosen


def _examples(spec: StandIn, file: Path) -> list[TextExample]:
    table = rows(file, errors="replace" if spec.damaged else "strict")
    if spec.header:
        _, header = next(table, (0, []))
        if tuple(header) != spec.header:
            raise InputError(
                f"{file} has the header {shown(header) or '(none)'}, expected {shown(spec.header)}; "
                "check the folder."
            )
    examples = []
    dropped = damaged = 0
    columns = spec.columns.split()
    for number, (line, row) in enumerate(table):
        if len(row) != len(columns):
            raise InputError(
                f"{counted(len(row), 'column')} between tabs, expected {len(columns)}; check the folder.",
                where=f"{file}, line {line}",
            )
        cells = {"id": str(number)} | dict(zip(columns, row, strict=True))
        label = label_in(cells["label"], spec.labels, (1.0, 5.0), f"{file}, line {line}")
        if label is None:
            dropped += 1
            continue
        first = cells["first"]
        second = cells["second"]
        examples.append(TextExample(cells["id"], first, second, label))
        if spec.damaged and "\ufffd" in first + second:
            damaged += 1
    if not examples:
        raise InputError(f"{file} has no examples; check the file.")
    if dropped:
        warn(f"{file}: left out {counted(dropped, 'pair')} without a label.")
    if damaged:
        warn(f"{file}: bytes of {counted(damaged, 'pair')} are not UTF-8 and are read as U+FFFD.")
    return examples
