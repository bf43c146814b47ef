"""`load`: read whatever model a folder holds."""

from pathlib import Path
from typing import Any

from minibert import hub
from minibert.api.base import Estimator
from minibert.api.texts import MultilabelClassifier, TextClassifier, TextRegressor
from minibert.api.words import QuestionAnswerer, TokenTagger
from minibert.ask.inference import Bert
from minibert.base.errors import InputError, warn
from minibert.base.foreign_names import explains_foreign_arguments
from minibert.base.model_names import on_disk
from minibert.finetuning.foreign import is_foreign
from minibert.finetuning.models import Finetuned, is_finetuned
from minibert.tasks import registry
from minibert.tasks.stored import TAGGER_FILE, TASK_FILE, TaskFile

BY_KIND: dict[str, type[Estimator]] = {
    "classify": TextClassifier, "multilabel": MultilabelClassifier, "regress": TextRegressor,
    "tag": TokenTagger, "span": QuestionAnswerer,
}  # fmt: skip


@explains_foreign_arguments
def load(
    folder: str | Path,
    engine: str = "auto",
    *,
    threads: int | None = None,
    dtype: str = "float32",
) -> Any:
    """Load the model in a folder.

    Parameters
    ----------
    folder : str or path
        "english", the model in the package; the folder of a run of minibert, or of a BERT in Hugging Face's
        or Google's format, whether or not it was fine-tuned with transformers; or the name of a model on the
        Hub, such as "google-bert/bert-base-uncased", that is in Hugging Face's cache (nothing is downloaded);
        or `RUN@STEP`, a checkpoint that a pre-training run has kept.
    engine : str, default "auto"
        The name of the engine.
    threads : int, optional
        Number of threads of the engine; None: one for each core.
    dtype : str, default "float32"
        The precision of the computation; see `Bert.from_pretrained`.

    Returns
    -------
    Bert or Estimator
        A `Bert`; or, if the model was fine-tuned here or with transformers, the fitted estimator for its
        task.

    Raises
    ------
    InputError
        When the folder does not hold a complete model, or there is no estimator for its task; the message
        then names the command for it.
    """
    folder = on_disk(folder)
    if not is_finetuned(folder):
        if is_foreign(folder):
            return _of_transformers(folder, engine, threads, dtype)
        return Bert.from_pretrained(folder, engine, threads=threads, dtype=dtype)
    if not (folder / TASK_FILE).exists():
        if (folder / TAGGER_FILE).exists():
            raise InputError(f"'{folder}' holds LSTMs on a frozen BERT; use minibert predict.")
        raise InputError(f"'{folder}' holds an unfinished run; finish it with minibert finetune --resume.")
    stored = TaskFile.load(folder)
    task = registry.create(stored.task, stored.columns)
    if task.kind not in BY_KIND:
        raise InputError(f"'{folder}' was fine-tuned for {task.name}; use minibert {task.command}.")
    return BY_KIND[task.kind].load(folder, engine, threads=threads, dtype=dtype)


def _of_transformers(folder: Path, engine: str, threads: int | None, dtype: str) -> Estimator:
    """Load a model that was fine-tuned with transformers, as the estimator for its task."""
    fitted = Finetuned.from_pretrained(folder, engine, threads=threads, dtype=dtype)
    kind = fitted.task.kind
    if kind not in BY_KIND:
        command = "minibert predict --task swag, hellaswag, copa or csqa, with --data"
        raise InputError(f"'{folder}' is a multiple-choice model; use {command}.")
    if kind == "regress" and hub.fields_in(folder).get("problem_type") is None:
        what = f"'{folder}' has one output and no problem_type, so predictions are logits"
        warn(f"{what}; pipelines of transformers and cross-encoders return their logistic function.")
    return BY_KIND[kind].of_fitted(fitted, engine, threads=threads, dtype=dtype)
