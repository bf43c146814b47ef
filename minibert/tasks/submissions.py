"""GLUE's submission files: one table for each task, named and spelled as the server wants it."""

import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minibert.base.errors import InputError, warn
from minibert.base.files import atomic_text, write_atomically
from minibert.base.reading import byte_pieces
from minibert.data.glue import HIGHEST_SCORE, TASKS, TextExample
from minibert.tasks.task import Predictions


def write(
    folder: str | Path, task: str, split: str, examples: Sequence[TextExample], predictions: Predictions
) -> Path:
    """Write `RTE.tsv`, or `RTE-dev.tsv` of another split than "test", and return its path.

    Below a header stand the official index of each example and its answer: classes are spelled as in the
    training files, scores of STS-B are clipped to 0 .. 5.
    """
    name = (TASKS[task].title if task in TASKS else task) + ("" if split == "test" else f"-{split}")
    path = Path(folder) / f"{name}.tsv"
    rows = [f"{index}\t{_answer(one)}" for index, one in zip(indices(examples), predictions, strict=True)]
    atomic_text(path, "\n".join(["index\tprediction", *rows]) + "\n")
    return path


def indices(examples: Sequence[TextExample]) -> list[str]:
    """Return the official index of each example: the one in the file, or else its row from 0."""
    own = [example.id for example in examples]
    return own if all(index.isdigit() for index in own) else [str(row) for row in range(len(own))]


def _answer(prediction: dict[str, Any]) -> str:
    if "value" in prediction:
        return f"{min(max(prediction['value'], 0.0), HIGHEST_SCORE):.3f}"
    return prediction["label"]


def pack(folder: str | Path, tables: Sequence[str | Path]) -> Path:
    """Put tables that `write` has written into `submission.zip`, the one file that GLUE's server takes.

    The same tables make the same bytes, whatever their order. Warn of tasks whose tables are missing. Raise
    InputError when a table is of no test set of GLUE, given twice, or can't be read.
    """
    path, known = Path(folder) / "submission.zip", [f"{task.title}.tsv" for task in TASKS.values()]
    names = [Path(table).name for table in tables]
    if wrong := [name for name in names or [""] if name not in known or names.count(name) > 1]:
        what = f"tables: {wrong[0]!r} is no table of GLUE's test sets, or is given twice"
        raise InputError(f"{what}; give {', '.join(known)}, each once.")
    contents = {Path(table).name: b"".join(byte_pieces(Path(table), kept=True)) for table in tables}

    def write_zip(temporary: Path) -> None:
        with zipfile.ZipFile(temporary, "w") as archive:
            for name in filter(contents.__contains__, known):
                info = zipfile.ZipInfo(name)  # of 1980-01-01
                info.create_system, info.external_attr = 3, 0o644 << 16
                archive.writestr(info, contents[name])

    write_atomically(path, write_zip)
    if missing := [name for name in known if name not in contents]:
        warn(f"{path} lacks {', '.join(missing)}, which GLUE's server is to have, too.")
    return path


def majority(examples: Sequence[TextExample], count: int) -> list[dict[str, Any]]:
    """Return the most frequent class of some examples, as the prediction for `count` others.

    It is what the paper submitted for WNLI, whose dev set is made so that models do worse than it. Raise
    InputError when the labels are not classes.
    """
    labels = Counter(example.label for example in examples)
    if None in labels or any(isinstance(label, float) for label in labels):
        raise InputError("There is no most frequent class where examples have scores or no labels at all.")
    label = min(labels, key=lambda one: (-labels[one], one))
    return [{"label": label, "probabilities": {label: 1.0}}] * count
