"""The scales of experiments: the model, its text, the tasks and their examples, and the number of seeds."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from minibert.base.errors import MissingFile
from minibert.experiments import smoke_tasks
from minibert.experiments.tables import SHAPES
from minibert.finetuning.examples import fingerprint
from minibert.tasks import registry

MADE = "made-tasks"  # folder of the tasks that are made from the books
# Tasks that can fill a column, in order of preference: the paper's own first, and last a task that is made
# from the books in the package.
ROLES = {
    "mnli": ("mnli", "snli", "sick", "pair"),
    "qqp": ("qqp", "quora", "pair"),
    "qnli": ("qnli", "qnli-dev", "pair"),
    "mrpc": ("mrpc", "pair"),
    "rte": ("rte", "pair"),
    "sst2": ("sst2", "sentence"),
    "cola": ("cola", "sentence"),
    "stsb": ("stsb", "sick-score"),
    "squad": ("squad1", "spans"),
    "ner": ("ner-sentences", "names"),
}
OF_BOOKS = {"pair": "classify", "sentence": "classify", "spans": "squad1", "names": "ner-sentences"}
COLUMNS = {"pair": (("second", "second"),)}  # option `columns` of tasks whose columns are not all recognised
PLACES = ("", "glue", "pairs", "squad", "ner")  # folders to search inside the folder of all data


class Scale(NamedTuple):
    """The size of all experiments: model, text, training, and number of seeds."""

    name: str
    about: str
    pretraining: Mapping[str, Any]  # options of pre-training
    shapes: Mapping[str, str]  # a shape of the paper -> the one at this scale, as layers-hidden-heads
    tasks: Mapping[str, Mapping[str, Any]]  # a column's task -> options of fine-tuning; "": for all tasks
    seeds: int  # default number of seeds


def _shrunk(*shapes: str) -> dict[str, str]:
    """Return the shapes that replace the paper's SHAPES at a scale, given in the same order."""
    return dict(zip(SHAPES, shapes, strict=True))


SCALES = {
    scale.name: scale
    for scale in (
        Scale(
            "smoke",
            "To see that everything runs; nothing is learnt",
            pretraining={
                "steps": 40,
                "seq_length": "16:0.5,32:0.5",
                "batch_size": 8,
                "vocab_size": 1000,
                "max_positions": 128,
                "evaluations": 1,
            },
            shapes=_shrunk("1-16-2", "2-16-1", "2-16-2", "4-32-2", "4-48-2", "6-48-2"),
            tasks={
                "": {
                    "train_examples": 64,
                    "dev_examples": 64,
                    "epochs": 1.0,
                    "max_length": 48,
                    "batch_size": 16,
                    "learning_rates": 1e-3,
                    "width": 16,
                },
                "squad": {"max_length": 96},
            },
            seeds=2,
        ),
        Scale(
            "laptop",
            "Meant for two cores and a night",
            pretraining={
                "steps": 8000,
                "batch_size": 32,
                "vocab_size": 8192,
                "max_positions": 256,
                "evaluations": 2,
                "seq_length": "10:0.06,16:0.04,32:0.2,64:0.7",
                "dtype": "auto",
            },
            shapes=_shrunk("1-96-3", "2-96-1", "2-96-3", "4-96-3", "4-128-4", "8-128-4"),
            tasks={
                "": {
                    "train_examples": 10000,
                    "epochs": 8.0,
                    "max_length": 64,
                    "batch_size": 32,
                    "learning_rates": 5e-4,
                    "width": 128,
                    "dtype": "auto",
                },
                "squad": {"max_length": 192, "dev_examples": 2000},
                "ner": {"learning_rates": 1e-3},
            },
            seeds=3,
        ),
        Scale(
            "day",
            "Four times the width and twenty times the tokens of laptop, on a machine with many cores",
            pretraining={
                "steps": 40000,
                "batch_size": 64,
                "vocab_size": 16384,
                "max_positions": 512,
                "evaluations": 5,
                "seq_length": "16:0.06,32:0.14,64:0.3,128:0.5",
            },
            shapes=_shrunk("1-384-12", "2-384-3", "2-384-12", "4-384-12", "4-512-16", "8-512-16"),
            tasks={
                "": {
                    "epochs": 3.0,
                    "max_length": 128,
                    "batch_size": 32,
                    "learning_rates": 1e-4,
                    "width": 384,
                },
                "squad": {"max_length": 384},
            },
            seeds=5,
        ),
    )
}


class Source(NamedTuple):
    """The task that fills a column, and its files."""

    key: str  # name in the results
    task: str  # name in the registry of tasks
    data: Path
    title: str  # for people; mentions if it replaces the paper's task
    fingerprint: int = 0  # checksum of the examples; 0 for tasks made from the books
    train: int = smoke_tasks.TRAIN  # number of training examples
    missing: str = ""  # why the paper's task is not used


def find_source(role: str, data: Path | None, made: Path, known: bool = True) -> Source | None:
    """Return the first task of a role whose files exist.

    Parameters
    ----------
    role : str
        A key of ROLES.
    data : Path, or None
        Folder of all data, in whose PLACES the files are searched; None if there is none.
    made : Path
        Folder of the tasks made from the books, which need not exist yet.
    known : bool, default True
        Whether BERT was pre-trained on the books, so that the title has to say so.

    Returns
    -------
    Source, or None
        None if there are no files and nothing is made for the role.

    Raises
    ------
    InputError
        When a file is damaged, as from `Task.read`.
    """
    missing = ""
    for name in ROLES[role]:
        stands_in = ""
        if name != ROLES[role][0]:
            stands_in = f", in place of {role.upper()}"
        if name in OF_BOOKS:
            read = ", which BERT has read" if known else ""
            title = f"{name} (made from the books{read}){stands_in}"
            return Source(name, OF_BOOKS[name], made / name, title, missing=missing)
        task = registry.create(name)
        for folder in [data / place for place in PLACES] if data else []:
            if not folder.is_dir():
                continue
            try:
                train = task.read(folder, "train")
                dev = task.read(folder, "dev")
            except MissingFile as error:
                missing = missing or str(error)
                continue
            about = registry.TASKS[name].about
            title = about.split(":")[0].split(", in place")[0]
            return Source(
                name,
                name,
                folder,
                title + stands_in,
                fingerprint=fingerprint(train, dev),
                train=len(train),
                missing=missing if stands_in else "",
            )
    return None
