"""What a model is named by: its folder, or `RUN@STEP`, a checkpoint that a pre-training run has kept."""

import re
from pathlib import Path
from typing import Any, NamedTuple

from minibert.base.errors import InputError, MissingFile
from minibert.base.json_files import fits, parse_json
from minibert.base.reading import byte_pieces

MODULES_FILE = "modules.json"  # of a folder of sentence-transformers
CHECKPOINTS = "checkpoints"  # in the folder of a run
_STEP = re.compile(r"step-(\d+)\.safetensors")
_SHOWN = 12  # steps in an error


class Place(NamedTuple):
    """Where a model lies."""

    folder: Path  # with its vocabulary; it need not be there
    checkpoint: Path | None = None  # whose weights are meant; None: those of the folder


def locate(model: str | Path) -> Place:
    """Return where the model lies that a name stands for; a folder whose own name has an @ comes first.

    In an older folder of sentence-transformers that is a folder within it. Raise InputError when the run of
    `RUN@STEP` has kept no such step, or the list of modules of such a folder is damaged.
    """
    run, _, step = str(model).rpartition("@")
    if not run or Path(model).exists() or not Path(run).is_dir():
        return Place(_encoder_folder(Path(model)))
    kept = {str(number): path for number, path in kept_steps(Path(run) / CHECKPOINTS)}
    if step not in kept:
        some = [*kept] if len(kept) <= _SHOWN else [*[*kept][: _SHOWN // 2], "…", *[*kept][-_SHOWN // 2 :]]
        choice = f"choose from {', '.join(some)} (minibert pretrain --keep 0 keeps every checkpoint)"
        none = f"it has no checkpoints, so name {run} itself"
        raise InputError(f"{run} has kept no step {step!r}; {choice if kept else none}.")
    return Place(Path(run), kept[step])


def modules_in(folder: Path) -> list[dict[str, Any]]:
    """Read the list of modules of a folder of sentence-transformers.

    Parameters
    ----------
    folder : that may be one.

    Returns
    -------
    list of objects with `type` and `path`, the BERT first; [] where the folder has no such list.

    Raises
    ------
    InputError
        When the list is damaged.
    """
    path = folder / MODULES_FILE
    if not path.is_file():
        return []
    try:
        found = parse_json(b"".join(byte_pieces(path, kept=True, streams=False)).decode("utf-8-sig"))
        is_list = isinstance(found, list) and found
        if not is_list or not all(fits(one, {"type": str, "path": str}) for one in found):
            raise ValueError("expected a list of objects with 'type' and 'path'")
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{path} can't be read ({error}); copy the model's folder again.") from error
    modules: list[dict[str, Any]] = found
    return modules


def _encoder_folder(folder: Path) -> Path:
    """Return where the BERT of a folder lies: in it or, in an old one of sentence-transformers, within it."""
    path = next((module["path"] for module in modules_in(folder)), "")
    is_plain = path and Path(path).name == path and path != ".."
    return folder / path if is_plain and (folder / path).is_dir() else folder


def folder_of(model: str | Path) -> Path:
    """Return the folder with a model's vocabulary; a TensorFlow checkpoint is named by its path."""
    folder = locate(model).folder
    index = folder.parent / f"{folder.name}.index"
    return folder.parent if folder.is_file() or index.is_file() else folder


def kept_steps(folder: str | Path) -> list[tuple[int, Path]]:
    """List steps and paths of the checkpoints in a folder, in order; one being written is not there yet."""
    numbered = ((step_of(path), path) for path in Path(folder).glob("step-*.safetensors"))
    return sorted((step, path) for step, path in numbered if step is not None)


def step_of(checkpoint: Path) -> int | None:
    """Return the step in the name of a checkpoint; None where the name has none."""
    named = _STEP.fullmatch(checkpoint.name)
    return int(named[1]) if named else None


def no_such_model(model: str | Path) -> MissingFile:
    """Return the error of a name that is no folder, perhaps that of a model on Hugging Face's hub."""
    name, is_file = str(model), Path(model).is_file()
    there = f"{name} is a file" if is_file else f"There is no folder {name}, and minibert downloads nothing"
    may_be_theirs = re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", name) and not is_file
    if may_be_theirs and not ("/" in name and Path(name).parent.is_dir()):
        place = Path(name).name
        fetch = f"fetch it with Hugging Face's tool, hf download {name} --local-dir {place}, and name {place}"
        return MissingFile(f"{there}; if it is a model on the Hub, {fetch}.")
    return MissingFile(f"{there}; give the folder of a run, or of a BERT of Hugging Face's or Google's.")
