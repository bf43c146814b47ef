"""Fine-tuned models on disk: a folder that Hugging Face reads, with the task in `task.json`."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from minibert import engines, hub
from minibert.ask.inference import FINETUNED
from minibert.base.errors import InputError, warn
from minibert.base.model_names import folder_of, on_disk
from minibert.base.paths import path_of
from minibert.core.arrays import Array
from minibert.core.config import BertConfig
from minibert.core.params import reset
from minibert.finetuning import foreign
from minibert.finetuning.frozen.feature_tagger import FeatureTagger
from minibert.finetuning.options import TOKEN_BUDGET, FinetuneOptions
from minibert.hub.names import LSTM
from minibert.hub.sentence_transformers import Normalize, read_modules
from minibert.hub.vocabularies import check_vocabulary
from minibert.model.head_kinds import KINDS, SIMILARITY
from minibert.model.params import Head, Parameters, precision_for
from minibert.model.positions import with_positions
from minibert.tasks import batches, registry
from minibert.tasks.stored import TAGGER_FILE, TASK_FILE, TaskFile
from minibert.tasks.task import Done, Features, Task, TrainedModel, ignore_progress
from minibert.tokenizer import Tokenizer

OUTPUT_LAYER = "output layer"  # what a run calls a head with initial values
HEAD = ("head.weight", "head.bias", "head.query")


def is_finetuned(folder: str | Path) -> bool:
    """Return whether a folder is that of a fine-tuning run, finished or not.

    Parameters
    ----------
    folder : str or Path
        Any folder.
    """
    return any((Path(folder) / name).exists() for name in FINETUNED)


def start_from(options: FinetuneOptions, head: Head, labels: Sequence[str]) -> tuple[Parameters, list[str]]:
    """Load the parameters that a fine-tuning run starts from, with the head of the task.

    A head in the model's folder is kept if it was trained for the same answers, see `keeps_head`.

    Parameters
    ----------
    options : FinetuneOptions
        Options of a single run: model, task, seed, dropout.
    head : Head
        Head of the task.
    labels : sequence of str
        Classes of the task.

    Returns
    -------
    params : Parameters
    fresh : list of str
        The parts that have initial values: "pooler", "LSTMs" or "output layer".
    """
    o = options
    config, params, report = hub.load(o.model, precision_for(o.dtype), head, o.seed)
    if o.extend_positions:
        params = with_positions(params, o.extend_positions, o.model)
        config = params.config
    if head.kind in SIMILARITY:
        _warn_of_modules(o.model, config, o.task)
    parts = {"pooler": "pooler", "lstm": "LSTMs"}
    fresh = [what for part, what in parts.items() if any(part in name for name in report.missing)]
    if head.outputs and not keeps_head(report, o.model, head, o.task, labels):
        reset(params, HEAD, o.seed)
        fresh.append(OUTPUT_LAYER)
    return Parameters(dataclasses.replace(config, **o.dropouts), params.flat, head=head), fresh


def _warn_of_modules(model: str | Path, config: BertConfig, task: str) -> None:
    """Warn if sentence-transformers makes a model's vectors in another way than they are trained here."""
    modules = read_modules(model, config)
    if modules is None:
        return
    others = [type(layer).__name__ for layer in modules.layers if not isinstance(layer, Normalize)]
    if modules.pools == ("mean",) and not others and not modules.not_done:
        return
    makes = " and ".join([f"the pool {', '.join(modules.pools)}", *others])
    warn(f"'{model}' makes its vectors by {makes}; {task} trains the mean of the last hidden states instead.")


def keeps_head(
    report: hub.LoadReport,
    model: str | Path,
    head: Head,
    task: str,
    labels: Sequence[str],
) -> bool:
    """Return whether a model's head has the right size and was trained for the same answers.

    Heads for spans always match. Those for classes match if the classes have the same names, unless these are
    mere numbers. Those for numbers match if the task is the same, or has the same answers.

    Parameters
    ----------
    report : LoadReport
        Which tensors the model's folder lacks for this head.
    model : str or Path
        The model's folder.
    head : Head
        Head of the task.
    task : str
        Name of the task.
    labels : sequence of str
        Classes of the task.

    Raises
    ------
    InputError
        When the file that says what the model is for can't be read.
    """
    if any("pooler" not in name for name in report.missing):
        return False
    folder = folder_of(model)
    known: Sequence[str] = ()  # labels of the model
    if (folder / TASK_FILE).exists():
        stored = TaskFile.load(folder)
        known = stored.labels
        if known == tuple(labels) and stored.task == task:
            return True
        if head.kind == "regress" and not registry.same_answers(stored.task, task):
            return False
    elif KINDS[head.kind].outputs is None:
        known = hub.load_labels(folder)
    named = not any(label.isdigit() or label.startswith("LABEL_") for label in known)
    return named and tuple(known) == tuple(labels)


@dataclass(frozen=True, repr=False)
class Finetuned(TrainedModel):
    """A fine-tuned model, for inference; `from_pretrained` makes one of a folder.

    Attributes
    ----------
    params : Parameters
        Weights of the encoder and of its head. The other attributes are those of `TrainedModel`.
    """

    params: Parameters

    @classmethod
    def from_pretrained(
        cls,
        folder: str | Path,
        engine: str = "auto",
        *,
        threads: int | None = None,
        dtype: str = "float32",
        task: Task | None = None,
    ) -> "Finetuned":
        """Load a finished model, whether minibert or transformers fine-tuned it.

        A folder of transformers has no `task.json`: its `config.json` says what the head is for, and names
        the labels in `id2label`.

        Parameters
        ----------
        folder : str or Path
            Folder of the model.
        engine : str, default "auto"
            The engine, see `Bert.from_pretrained`.
        threads : int, optional
            Number of threads.
        dtype : str, default "float32"
            Precision of matrix products.
        task : Task, optional
            Another task to ask, such as the mismatched half of MNLI, for a model of MNLI, or a custom table.
            The table has a column "text" and, for a model of pairs, "second". A model of transformers'
            answers any task with the same kind of head, and with the same labels if the task fixes them.

        Returns
        -------
        Finetuned

        Raises
        ------
        InputError
            When there is no finished fine-tuned model in the folder, or it can't answer `task`.
        """
        folder = on_disk(folder)
        if not folder.is_dir():
            raise InputError(f"There is no folder '{folder}'; name one that minibert finetune has written.")
        if dtype == "auto":
            dtype = engines.quickest_dtype(engine)
        from_transformers = foreign.read_foreign(folder, dtype)
        if from_transformers is not None:
            task = foreign.task_for(from_transformers, task)
            _, stored, config, params, report = from_transformers
        else:
            stored = TaskFile.load(folder)
            task = _task_for(folder, stored, task)
            head = task.head(stored.labels)
            precision = precision_for(dtype)
            config, params, report = hub.load(folder, precision, head)
            if any(name.startswith(LSTM) for name in report.unused):
                config, params, report = hub.load(folder, precision, head._replace(lstm=True))
        ops = engines.create(engine, threads, dtype)
        tokenizer = Tokenizer.from_pretrained(folder)
        if report.missing:
            raise _incomplete(folder, task, stored, report)
        check_vocabulary(config, tokenizer, folder)
        stored.check_positions(folder, config.P)
        return cls(
            folder=folder,
            task=task,
            labels=stored.labels,
            tuned=dict(stored.tuned),
            max_length=stored.max_length,
            pair=stored.pair if from_transformers is None else None,
            tokenizer=tokenizer,
            ops=ops,
            params=params,
        )

    @property
    def config(self) -> BertConfig:
        """Return the model's configuration."""
        return self.params.config

    @property
    def head(self) -> Head:
        """Return the layer on top of the encoder: its kind, and its number of outputs."""
        return self.params.head

    def __repr__(self) -> str:
        millions = self.params.count() / 1e6
        return f"Finetuned({self.task.name!r}, {millions:.1f}M parameters, {self.ops.name})"

    def save_pretrained(self, folder: str | Path, columns: Mapping[str, str] | None = None) -> None:
        """Write the model as a folder that the commands, `from_pretrained` and `transformers` load.

        Parameters
        ----------
        folder : str or Path
            Where to write; files of these names are replaced.
        columns : mapping of str to str, optional
            Names of the columns, by their role, in tables that the commands are given. By default they are
            those of the tables that the model was trained on.
        """
        folder = path_of(folder)
        hub.save_hf(folder, self.config, self.params, self.labels)
        self.tokenizer.save_pretrained(folder, self.config.P)
        if self.pair is None:  # a model of transformers': without the file it is read as one again
            (folder / TASK_FILE).unlink(missing_ok=True)
            return
        if columns is None:
            columns = getattr(self.task, "columns", {})
        columns = {name: str(column) for name, column in columns.items()}
        long = self.task.long._asdict() if self.task.long else {}
        stored = TaskFile(self.task.name, self.labels, self.max_length, columns, self.tuned, long)
        stored.save(folder)

    def outputs(self, features: Features, done: Done = ignore_progress) -> list[Array]:
        return batches.outputs(self.ops, self.params, features, TOKEN_BUDGET, done)


def _incomplete(
    folder: Path,
    task: Task,
    stored: TaskFile,
    report: hub.LoadReport,
) -> InputError:
    """Make the error for a folder whose model lacks weights for its task."""
    _, params, _ = hub.load(folder)
    head, n = params.head, len(stored.labels)
    if head.kind == task.kind and head.outputs != n > 0:
        labels = "1 label" if n == 1 else f"{n} labels"
        both = f"{labels}, but the model beside it has {head.outputs} outputs"
        return InputError(f"{folder / TASK_FILE} names {both}; take both from one model.")
    lacking = ", ".join(report.missing)
    return InputError(f"'{folder}' lacks {lacking}; copy the whole folder of a fine-tuned model.")


def _task_for(folder: Path, stored: TaskFile, task: Task | None) -> Task:
    """Choose the task to ask a model of minibert's: its own, or another one with the same answers."""
    own_task = registry.create(stored.task, stored.columns, stored.long_texts)
    if task is None:
        return own_task
    means_the_same = task.name in registry.CUSTOM_TABLES or registry.same_answers(own_task.name, task.name)
    has_same_head = task.kind == own_task.kind or {task.kind, own_task.kind} <= set(SIMILARITY)
    has_same_labels = task.labels(()) in ((), stored.labels)
    if not (means_the_same and has_same_head and has_same_labels):
        trained = f"The model in '{folder}' was fine-tuned for {stored.task}"
        raise InputError(f"{trained}, which has other answers than {task.name}; choose another model.")
    if task.name == own_task.name:
        return own_task  # with the columns that it was trained on
    if task.name in ("classify", "regress") and own_task.pair:
        task = registry.create(task.name, {"second": "second"})
    task.long = own_task.long
    return task


def open_model(
    folder: str | Path,
    engine: str = "auto",
    *,
    threads: int | None = None,
    dtype: str = "float32",
    task: Task | None = None,
) -> TrainedModel:
    """Load a whole fine-tuned model, or LSTMs on a frozen one, from a folder.

    Parameters
    ----------
    folder : str or Path
        Folder of a fine-tuning run.
    engine : str, default "auto"
        The engine, see `Finetuned.from_pretrained`.
    threads : int, optional
        Number of threads.
    dtype : str, default "float32"
        Precision of matrix products.
    task : Task, optional
        Another task to ask a whole model.

    Returns
    -------
    TrainedModel
        A `Finetuned` or a `FeatureTagger`.

    Raises
    ------
    InputError
        When there is no finished model in the folder, or it can't answer `task`.
    """
    if not (path_of(folder) / TAGGER_FILE).exists():
        return Finetuned.from_pretrained(folder, engine, threads=threads, dtype=dtype, task=task)
    if task is not None:
        problem = f"The tagger in '{folder}' has one task only"
        raise InputError(f"{problem}; leave out task={task.name!r}.", task=task.name)
    return FeatureTagger.from_pretrained(folder, engine, threads=threads, dtype=dtype)
