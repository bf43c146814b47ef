"""Models fine-tuned with transformers: their task is in `config.json`, as they have no `task.json`."""

from pathlib import Path
from typing import NamedTuple

from minibert import hub
from minibert.ask.inference import FINETUNED
from minibert.base.errors import InputError
from minibert.base.json_files import read_json
from minibert.base.model_names import TOKENIZER_CONFIG_FILE
from minibert.core.config import BertConfig
from minibert.hub import LoadReport
from minibert.model.params import Parameters, precision_for
from minibert.tasks import registry
from minibert.tasks.stored import TaskFile
from minibert.tasks.task import Task

TASKS = registry.BY_KIND | {"choice": "swag"}  # the task of a model by the kind of its head
SHORTEST = 4  # tokens: the smallest `max_length` that `task.json` may name


class Foreign(NamedTuple):
    """A model that was fine-tuned with transformers, as `read_foreign` loads it."""

    folder: Path
    stored: TaskFile  # what its `task.json` would say
    config: BertConfig
    params: Parameters
    report: LoadReport  # which weights are missing, and which are not used


def read_foreign(folder: str | Path, dtype: str = "float32") -> Foreign | None:
    """Load a model that was fine-tuned with transformers.

    Parameters
    ----------
    folder : str or Path
        Folder with `config.json` and weights, or with Google's files.
    dtype : str, default "float32"
        Data type to compute in, see `Bert.from_pretrained`.

    Returns
    -------
    Foreign or None
        None if minibert fine-tuned the model, or if its only head is that of pre-training.

    Raises
    ------
    InputError
        When the model can't be loaded, or two of its labels have the same name.
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
        unnamed = tuple(f"LABEL_{index}" for index in range(head.outputs))
        labels = hub.load_labels(folder) or unnamed
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        what = f"'{folder}' has the label {twice[0]!r} for two outputs"
        raise InputError(f"{what}; give each its own name, in id2label of its config.json.")
    task = registry.create(TASKS[head.kind])
    longest = _longest(folder, config)
    length = min(longest, task.max_length) if head.kind == "span" else longest
    stored = TaskFile(task.name, labels, max(SHORTEST, length))
    return Foreign(folder, stored, config, params, report)


def is_foreign(folder: str | Path) -> bool:
    """Return whether a folder holds a model that was fine-tuned with transformers.

    The configuration normally names the class of the model. If it does not, the weights are read, and the
    names of their tensors tell.

    Parameters
    ----------
    folder : str or Path
        Folder of a model that minibert did not fine-tune.

    Returns
    -------
    bool

    Raises
    ------
    InputError
        When the weights have to be read and can't be.
    """
    kind = hub.kind_in_config(folder)
    if kind is None:
        return read_foreign(folder) is not None
    return kind in TASKS


def task_for(model: Foreign, task: Task | None) -> Task:
    """Choose the task to ask a model: the given one, or else the task of its head.

    A pair of texts is optional for a model of transformers', so `second_is_optional` of the task is set.

    Parameters
    ----------
    model : Foreign
        The model.
    task : Task or None
        Another task to ask, with a head of the same kind; None for the task of the model's head.

    Returns
    -------
    Task
        `task` itself, or a new one. If the task has fixed labels, the model's labels are the same set; the
        model's order is used.

    Raises
    ------
    InputError
        When the task needs a head of another kind, or other labels.
    """
    stored = model.stored
    if task is None:
        task = registry.create(stored.task)
    if task.kind != model.params.head.kind:
        problem = f"The model in '{model.folder}' has a head for {stored.task}"
        raise InputError(f"{problem}, which has other answers than {task.name}; choose another model.")
    fixed_labels = task.labels(())
    if fixed_labels and set(fixed_labels) != set(stored.labels):
        problem = f"The model in '{model.folder}' names its labels {', '.join(stored.labels)}"
        expected = f"{task.name} has {', '.join(fixed_labels)}"
        advice = "if they mean these, rename them in id2label of its config.json."
        raise InputError(f"{problem}, and {expected}; {advice}")
    task.second_is_optional = True
    return task


def _longest(folder: Path, config: BertConfig) -> int:
    """Return the most tokens of a sequence: what the tokenizer's file says, at most the model's positions."""
    path = folder / TOKENIZER_CONFIG_FILE
    length = read_json(path).get("model_max_length") if path.is_file() else None
    if not isinstance(length, int | float) or not length >= SHORTEST:  # NaN is not less either
        return config.P
    return int(min(length, config.P))
