"""GLUE's submission files: one table for each task, named and spelt as the server wants it."""

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
    folder: str | Path,
    task: str,
    split: str,
    examples: Sequence[TextExample],
    predictions: Predictions,
) -> Path:
    """Write the table of a task, such as `RTE.tsv`, or `RTE-dev.tsv` for another split than "test".

    Parameters
    ----------
    folder : str or Path
        Where to write.
    task : str
        Name of a task of GLUE. The name of any other task becomes that of the file.
    split : str
        "train", "dev" or "test".
    examples : sequence of TextExample
        The examples. Labels need not be known.
    predictions : sequence of dict
        One with `label` or `value` for each example.

    Returns
    -------
    Path
        The file. Below a header it has the official index of each example and the answer: classes as in the
        training files, scores of STS-B clipped to 0 .. 5.
    """
    name = TASKS[task].title if task in TASKS else task
    if split != "test":
        name += f"-{split}"
    path = Path(folder) / f"{name}.tsv"
    lines = ["index\tprediction"]
    for index, prediction in zip(indices(examples), predictions, strict=True):
        lines.append(f"{index}\t{_answer(prediction)}")
    atomic_text(path, "\n".join(lines) + "\n")
    return path


def indices(examples: Sequence[TextExample]) -> list[str]:
    """Return the official index of each example.

    Parameters
    ----------
    examples : sequence of TextExample
        All examples of a file, in order.

    Returns
    -------
    list of str
        The `id` of each example if all of them are numbers, or else its row, from 0.
    """
    ids = [example.id for example in examples]
    if all(index.isdigit() for index in ids):
        return ids
    return [str(row) for row in range(len(ids))]


def _answer(prediction: dict[str, Any]) -> str:
    """Return an answer as the table spells it."""
    if "value" in prediction:
        return f"{min(max(prediction['value'], 0.0), HIGHEST_SCORE):.3f}"
    return prediction["label"]


def pack(folder: str | Path, tables: Sequence[str | Path]) -> Path:
    """Put tables that `write` wrote into `submission.zip`, the one file that GLUE's server takes.

    The same tables make the same bytes, whatever their order. A warning names tasks without a table.

    Parameters
    ----------
    folder : str or Path
        Where to write.
    tables : sequence of str or Path
        Tables with the names that GLUE's server wants. They may lie in different folders.

    Returns
    -------
    Path
        The archive.

    Raises
    ------
    InputError
        When there is no table, or one does not belong to a test set of GLUE, is given twice, or can't be
        read.
    """
    path = Path(folder) / "submission.zip"
    known = [f"{task.title}.tsv" for task in TASKS.values()]
    names = [Path(table).name for table in tables]
    wrong = [name for name in names or [""] if name not in known or names.count(name) > 1]
    if wrong:
        problem = f"tables: {wrong[0]!r} is not a table of GLUE's test sets, or is given twice"
        raise InputError(f"{problem}; give {', '.join(known)}, each once.")
    contents = {}
    for table in map(Path, tables):
        contents[table.name] = b"".join(byte_pieces(table, in_memory=True))

    def write_zip(temporary: Path) -> None:
        with zipfile.ZipFile(temporary, "w") as archive:
            for name in known:
                if name in contents:
                    info = zipfile.ZipInfo(name)  # with the date 1980-01-01
                    info.create_system = 3
                    info.external_attr = 0o644 << 16
                    archive.writestr(info, contents[name])

    write_atomically(path, write_zip)
    if missing := [name for name in known if name not in contents]:
        warn(f"{path} lacks {', '.join(missing)}, which GLUE's server expects as well.")
    return path


def majority(examples: Sequence[TextExample], count: int) -> list[dict[str, Any]]:
    """Return the most frequent class of some examples as the prediction for others.

    The paper submitted it for WNLI, whose dev set is made so that models do worse (Devlin et al. 2019,
    appendix B.1).

    Parameters
    ----------
    examples : sequence of TextExample
        Examples with classes as labels.
    count : int
        How many predictions to return.

    Returns
    -------
    list of dict
        The same prediction `count` times. Among equally frequent classes it is the alphabetically first.

    Raises
    ------
    InputError
        When a label is a number, or unknown.
    """
    counts = Counter(example.label for example in examples)
    has_scores = any(isinstance(label, float) for label in counts)
    if has_scores or None in counts:
        raise InputError("There is no most frequent class where examples have scores or no labels at all.")
    label = min(counts, key=lambda name: (-counts[name], name))
    prediction = {"label": label, "probabilities": {label: 1.0}}
    return [prediction] * count
