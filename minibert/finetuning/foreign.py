"""Models that were fine-tuned with transformers: `config.json` says what their task is, not `task.json`."""

from pathlib import Path
from typing import NamedTuple

from minibert import hub
from minibert.ask.inference import FINETUNED
from minibert.base.errors import InputError
from minibert.base.json_files import read_json
from minibert.base.model_names import TOKENIZER_CONFIG_FILE
from minibert.core.config import BertConfig
from minibert.core.params import precision_for
from minibert.hub import LoadReport
from minibert.model.params import Parameters
from minibert.tasks import registry
from minibert.tasks.stored import TaskFile
from minibert.tasks.task import Task

# The task that asks a model with a head of each kind.
TASKS = {
    "classify": "classify",
    "multilabel": "multilabel",
    "regress": "regress",
    "tag": "tag",
    "span": "qa",
    "choice": "swag",
}
SHORTEST = 4  # tokens of the longest sequence, as `task.json` has it


class Foreign(NamedTuple):
    """A model that was fine-tuned with transformers."""

    folder: Path
    stored: TaskFile  # what a `task.json` of it would say
    loaded: tuple[BertConfig, Parameters, LoadReport]


def read_foreign(folder: str | Path, dtype: str = "float32") -> Foreign | None:
    """Load a model that was fine-tuned with transformers.

    Parameters
    ----------
    folder : str or Path
        With `config.json` and weights, or Google's files.
    dtype : str, default "float32"
        In which to compute, as of `Bert.from_pretrained`.

    Returns
    -------
    Foreign or None
        None where the folder is one of minibert's fine-tuning, or holds no head but of pre-training.

    Raises
    ------
    InputError
        When the model can't be loaded, or its labels can't be told apart.
    """
    folder = Path(folder)
    if any((folder / name).exists() for name in FINETUNED) or hub.weights_of(folder) is None:
        return None
    config, params, report = hub.load(folder, precision_for(dtype))
    head = params.head
    if head.kind not in TASKS:
        return None
    labels: tuple[str, ...] = ()
    if head.kind in hub.LABELLED and head.kind != "regress":
        unnamed = tuple(f"LABEL_{number}" for number in range(head.outputs))
        labels = hub.load_labels(folder) or unnamed
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        what = f"'{folder}' has the label {twice[0]!r} for two outputs"
        raise InputError(f"{what}; give each its own name, in id2label of its config.json.")
    task = registry.create(TASKS[head.kind])
    longest = _longest(folder, config)
    length = min(longest, task.max_length) if head.kind == "span" else longest
    stored = TaskFile(task.name, labels, max(SHORTEST, length))
    return Foreign(folder, stored, (config, params, report))


def is_foreign(folder: str | Path) -> bool:
    """Return whether a folder holds a model with an output layer of transformers' fine-tuning.

    Parameters
    ----------
    folder : str or Path
        Folder of a model, not one of minibert's fine-tuning.

    Returns
    -------
    bool
        Where its configuration names no class of transformers', the tensors tell, and are read for it.

    Raises
    ------
    InputError
        When they can't be read.
    """
    kind = hub.kind_in_config(folder)
    if kind is None:
        return read_foreign(folder) is not None
    return kind in TASKS


def task_for(theirs: Foreign, task: Task | None) -> Task:
    """Return what a model is asked: the task of its head, or another one of the same kind.

    Parameters
    ----------
    theirs : Foreign
        The model.
    task : Task or None
        What to ask in place of that.

    Returns
    -------
    Task
        Of a task that names its labels the model's have the same names, in any order.

    Raises
    ------
    InputError
        When the task needs a head of another kind, or other labels.
    """
    stored = theirs.stored
    _, params, _ = theirs.loaded
    if task is None:
        task = registry.create(stored.task)
    if task.kind != params.head.kind:
        what = f"The model in '{theirs.folder}' has a head for {stored.task}"
        raise InputError(f"{what}, which has other answers than {task.name}; choose another model.")
    official = task.labels(())
    if official and {*official} != {*stored.labels}:
        named = f"The model in '{theirs.folder}' names its labels {', '.join(stored.labels)}"
        wanted = f"{task.name} has {', '.join(official)}"
        advice = "if they mean these, rename them in id2label of its config.json."
        raise InputError(f"{named}, and {wanted}; {advice}")
    if hasattr(task, "second_is_optional"):
        task.second_is_optional = True
    return task


def _longest(folder: Path, config: BertConfig) -> int:
    """Return most tokens of a sequence: as the tokenizer's file says, at most the model's positions."""
    path = folder / TOKENIZER_CONFIG_FILE
    length = read_json(path).get("model_max_length") if path.is_file() else None
    if not isinstance(length, int | float) or length < SHORTEST:
        return config.P
    return int(min(length, config.P))
