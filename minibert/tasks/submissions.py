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
    folder: str | Path,
    task: str,
    split: str,
    examples: Sequence[TextExample],
    predictions: Predictions,
) -> Path:
    """Write `RTE.tsv`, or `RTE-dev.tsv` of another split than "test".

    Parameters
    ----------
    folder : str or Path
        Where to write.
    task : str
        Name of a task of GLUE, or of another one, whose name is then that of the file.
    split : str
        "train", "dev" or "test".
    examples : sequence of TextExample
        Labels need not be known.
    predictions : sequence of dict
        With `label` or `value`, one for each example.

    Returns
    -------
    Path
        The file. Below a header stand the official index of each example and its answer: classes are spelled
        as in the training files, scores of STS-B are clipped to 0 .. 5.
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
        Examples of a whole file, in its order.

    Returns
    -------
    list of str
        The `id` of each where all of these are numbers, or else its row from 0.
    """
    ids = [example.id for example in examples]
    if all(index.isdigit() for index in ids):
        return ids
    return [str(row) for row in range(len(ids))]


def _answer(prediction: dict[str, Any]) -> str:
    if "value" in prediction:
        return f"{min(max(prediction['value'], 0.0), HIGHEST_SCORE):.3f}"
    return prediction["label"]


def pack(folder: str | Path, tables: Sequence[str | Path]) -> Path:
    """Put tables that `write` has written into `submission.zip`, the one file that GLUE's server takes.

    The same tables make the same bytes, whatever their order. Tasks whose tables are missing are named in a
    warning.

    Parameters
    ----------
    folder : str or Path
        Where to write.
    tables : sequence of str or Path
        Named as GLUE's server wants them; they may lie in different folders.

    Returns
    -------
    Path
        The archive.

    Raises
    ------
    InputError
        When there is no table, one is of no test set of GLUE, given twice, or can't be read.
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
                    info = zipfile.ZipInfo(name)  # of 1980-01-01
                    info.create_system = 3
                    info.external_attr = 0o644 << 16
                    archive.writestr(info, contents[name])

    write_atomically(path, write_zip)
    if missing := [name for name in known if name not in contents]:
        warn(f"{path} lacks {', '.join(missing)}, which GLUE's server expects as well.")
    return path


def majority(examples: Sequence[TextExample], count: int) -> list[dict[str, Any]]:
    """Return the most frequent class of some examples, as the prediction for others.

    It is what the paper submitted for WNLI, whose dev set is made so that models do worse than it (Devlin et
    al. 2019, appendix B.1).

    Parameters
    ----------
    examples : sequence of TextExample
        With classes as labels.
    count : int
        How many predictions are wanted.

    Returns
    -------
    list of dict
        The same prediction `count` times; of classes that are as frequent, the first by the alphabet.

    Raises
    ------
    InputError
        When a label is a number or is not known.
    """
    counts = Counter(example.label for example in examples)
    has_scores = any(isinstance(label, float) for label in counts)
    if has_scores or None in counts:
        raise InputError("There is no most frequent class where examples have scores or no labels at all.")
    label = min(counts, key=lambda name: (-counts[name], name))
    prediction = {"label": label, "probabilities": {label: 1.0}}
    return [prediction] * count
