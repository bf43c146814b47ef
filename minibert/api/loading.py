"""`load`: whatever a folder holds, as the object that is to be asked."""

from pathlib import Path
from typing import Any

from minibert import hub
from minibert.api.base import Estimator
from minibert.api.texts import MultilabelClassifier, TextClassifier, TextRegressor
from minibert.api.words import QuestionAnswerer, TokenTagger
from minibert.ask.inference import Bert
from minibert.base.errors import InputError, warn
from minibert.base.foreign_names import answers_foreign_arguments
from minibert.base.model_names import on_disk
from minibert.finetuning.foreign import is_foreign
from minibert.finetuning.models import Finetuned, is_finetuned
from minibert.tasks import registry
from minibert.tasks.stored import TAGGER_FILE, TASK_FILE, TaskFile

BY_KIND: dict[str, type[Estimator]] = {
    "classify": TextClassifier, "multilabel": MultilabelClassifier, "regress": TextRegressor,
    "tag": TokenTagger, "span": QuestionAnswerer,
}  # fmt: skip


@answers_foreign_arguments
def load(
    folder: str | Path,
    engine: str = "auto",
    *,
    threads: int | None = None,
    dtype: str = "float32",
) -> Any:
    """Load whatever a run has left in its folder.

    Parameters
    ----------
    folder : str or path
        "english", the model in the package; the folder of a run, or of a BERT in Hugging Face's or
        Google's format, fine-tuned with transformers or not; a name on the Hub, such as
        "google-bert/bert-base-uncased", of a model that Hugging Face's cache has (nothing is downloaded); or
        `RUN@STEP`, a checkpoint that a pre-training has kept.
    engine : str, default "auto"
        The engine by name.
    threads : int, optional
        Of the engine; one for each core when left out.
    dtype : str, default "float32"
        In which to compute; see `Bert.from_pretrained`.

    Returns
    -------
    Bert or Estimator
        A `Bert`; of what was fine-tuned, here or with transformers, the estimator that answers it, fitted.

    Raises
    ------
    InputError
        When the folder holds no whole model, or one that no estimator asks: the message names the command.
    """
    folder = on_disk(folder)
    if not is_finetuned(folder):
        if is_foreign(folder):
            return _of_transformers(folder, engine, threads, dtype)
        return Bert.from_pretrained(folder, engine, threads=threads, dtype=dtype)
    if not (folder / TASK_FILE).exists():
        if (folder / TAGGER_FILE).exists():
            raise InputError(f"{folder} holds LSTMs on a frozen BERT; use minibert predict.")
        raise InputError(f"{folder} holds an unfinished run; finish it with minibert finetune --resume.")
    stored = TaskFile.load(folder)
    task = registry.create(stored.task, stored.columns)
    if task.kind not in BY_KIND:
        raise InputError(f"{folder} was fine-tuned for {task.name}; ask it with minibert {task.command}.")
    return BY_KIND[task.kind].load(folder, engine, threads=threads, dtype=dtype)


def _of_transformers(folder: Path, engine: str, threads: int | None, dtype: str) -> Estimator:
    """Load a model that was fine-tuned with transformers as the estimator that answers it."""
    fitted = Finetuned.from_pretrained(folder, engine, threads=threads, dtype=dtype)
    kind = fitted.task.kind
    if kind not in BY_KIND:
        command = "minibert predict --task swag, hellaswag, copa or csqa, with --data"
        raise InputError(f"{folder} chooses among several endings; ask it with {command}.")
    if kind == "regress" and hub.fields_in(folder).get("problem_type") is None:
        what = f"{folder} has one output and no problem_type: its value is the logit, as the model gives it"
        warn(f"{what}; pipelines of transformers, and cross-encoders, show its logistic function.")
    return BY_KIND[kind].of_fitted(fitted, engine, threads=threads, dtype=dtype)
