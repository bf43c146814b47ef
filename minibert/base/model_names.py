"""Find a model by its name: a folder, a model in the package, a name on the Hub, or `RUN@STEP`.

A name on the Hub is found if the model is in Hugging Face's cache. `RUN@STEP` is a checkpoint that a
pre-training run has kept.
"""

import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from minibert.base.bundled_models import BUNDLED, DEFAULT, bundled_folder, not_installed
from minibert.base.errors import InputError, MissingFile, did_you_mean, warn
from minibert.base.json_files import fits, parse_json
from minibert.base.paths import path_of
from minibert.base.reading import byte_pieces

# The files of a model, as Hugging Face calls them.
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
VOCABULARY_FILE = "vocab.txt"
TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
# Files of a model, whose checksums are in the report of a run.
MODEL_FILES = (CONFIG_FILE, WEIGHTS_FILE, VOCABULARY_FILE, TOKENIZER_FILE, TOKENIZER_CONFIG_FILE)
TF_CONFIG_FILE = "bert_config.json"  # Google's name for config.json
MODULES_FILE = "modules.json"  # marks a folder of sentence-transformers
CHECKPOINTS = "checkpoints"  # in the folder of a run
_STEP = re.compile(r"step-(\d+)\.safetensors")
_SHOWN = 12  # most steps that an error lists
_HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")  # such as google-bert/bert-base-uncased


class Place(NamedTuple):
    """Where a model is."""

    folder: Path  # has the vocabulary; it need not exist
    checkpoint: Path | None = None  # the file with the weights; None: those in the folder


def hub_cache() -> Path:
    """Return the folder in which Hugging Face's tools keep downloaded models.

    Returns
    -------
    Path
        Determined by the same environment variables; it need not exist.
    """
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if folder := os.environ.get(variable):
            return Path(folder).expanduser()
    home = os.environ.get("HF_HOME")
    if not home:
        home = os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(home).expanduser() / "hub"


def on_disk(model: str | os.PathLike[str], argument: str = "folder", is_checked: bool = True) -> Path:
    """Find the folder of a model by its name in the package, or on the Hub if it is in Hugging Face's cache.

    Nothing is downloaded. A folder or file of the same name takes precedence, with a warning if it hides a
    model in the package; then the package, then the cache. The cache has a folder for each model; in it,
    `refs/main` names a commit, and `snapshots/COMMIT` has the files.

    Parameters
    ----------
    model : str or path
        A name such as "english" or "google-bert/bert-base-uncased", or any other name of a model.
    argument : str, default "folder"
        The argument that gave it, for the error.
    is_checked : bool, default True
        Compare the files of a model in the package with their digests.

    Returns
    -------
    Path
        The folder in the package, or the snapshot; or the name as a path if neither has such a model.

    Raises
    ------
    InputError
        When the name is not a string or a path, or a model in the package is damaged.
    """
    path = path_of(model, argument)
    name = os.fspath(model)
    if os.path.exists(name):
        if name in BUNDLED and isinstance(model, str):
            reason = f"'{name}' is read from the working directory, not the model of that name in the package"
            warn(f"{reason}; write './{name}' if that is meant, or rename it.")
        return path
    if folder := bundled_folder(name, is_checked):
        return folder
    if not _HUB_NAME.fullmatch(name) or ".." in name or "--" in name:
        return path
    folder = hub_cache() / f"models--{name.replace('/', '--')}"
    # The Hub allows neither ".." nor "--" in a name; in the cache, "--" stands for "/".
    try:
        # A damaged reference, or a pipe in its place, may neither fill the memory nor wait.
        reference = b"".join(byte_pieces(folder / "refs" / "main", in_memory=True, streams=False))
    except InputError:
        return path
    commit = reference.decode("ascii", "replace").strip()
    snapshot = folder / "snapshots" / commit
    if not re.fullmatch("[0-9a-f]{40}", commit) or not snapshot.is_dir():
        return path
    return snapshot


def locate(model: str | Path) -> Place:
    """Find the model that a name stands for; a folder whose name contains an @ takes precedence.

    In older folders of sentence-transformers, the model is in a subfolder.

    Parameters
    ----------
    model : str or path
        A folder, a model in the package, a name on the Hub, or `RUN@STEP`.

    Returns
    -------
    Place
        Whether there is a model is not checked.

    Raises
    ------
    InputError
        When the run of `RUN@STEP` has not kept that step, or a model in the package or the folder's list of
        modules is damaged.
    """
    path = path_of(model)
    run, _, step = str(path).rpartition("@")
    if not run or path.exists() or not Path(run).is_dir():
        return Place(_encoder_folder(on_disk(model)))
    kept = {str(number): path for number, path in kept_steps(Path(run) / CHECKPOINTS)}
    if step in kept:
        return Place(Path(run), kept[step])
    if not kept:
        raise InputError(f"'{run}' has no checkpoint of step {step!r}, nor any other; name '{run}' itself.")
    steps = list(kept)
    if len(steps) > _SHOWN:
        steps = [*steps[: _SHOWN // 2], "…", *steps[-_SHOWN // 2 :]]
    choice = f"choose from {', '.join(steps)} (minibert pretrain --keep 0 keeps every checkpoint)"
    raise InputError(f"'{run}' has no checkpoint of step {step!r}; {choice}.")


def config_in(folder: Path, is_tensorflow: bool = False) -> Path:
    """Return the path of the configuration of the model in a folder.

    Parameters
    ----------
    folder : path
        The folder.
    is_tensorflow : bool, default False
        The weights are Google's, whose own configuration takes precedence over Hugging Face's.

    Returns
    -------
    path
        The first that exists; the preferred one if neither does.
    """
    names = [CONFIG_FILE, TF_CONFIG_FILE]
    if is_tensorflow:
        names.reverse()
    paths = [folder / name for name in names]
    return next((path for path in paths if path.is_file()), paths[0])


def modules_in(folder: Path) -> list[dict[str, Any]]:
    """Read the list of modules of a folder of sentence-transformers.

    Parameters
    ----------
    folder : Path
        The folder.

    Returns
    -------
    list of dict
        Objects with `type` and `path`, the BERT first; [] if the folder has no such list.

    Raises
    ------
    InputError
        When the list is damaged.
    """
    path = folder / MODULES_FILE
    if not path.is_file():
        return []
    try:
        data = b"".join(byte_pieces(path, in_memory=True, streams=False))
        modules = parse_json(data.decode("utf-8-sig"))
        is_list = isinstance(modules, list) and modules
        if not is_list or not all(fits(module, {"type": str, "path": str}) for module in modules):
            raise ValueError("expected a list of objects with 'type' and 'path'")
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{path} can't be read ({error}); copy the model's folder again.") from error
    listed: list[dict[str, Any]] = modules
    return listed


def _encoder_folder(folder: Path) -> Path:
    """Return the folder of the BERT: this folder or, in old sentence-transformers, a subfolder."""
    modules = modules_in(folder)
    if not modules:
        return folder
    path = modules[0]["path"]
    is_plain = path and Path(path).name == path and path != ".."
    if is_plain and os.path.isdir(folder / path):  # also False for a name that is too long
        return folder / path
    return folder


def folder_of(model: str | Path) -> Path:
    """Return the folder that has a model's vocabulary.

    Parameters
    ----------
    model : str or path
        A folder, `RUN@STEP`, or the path of a TensorFlow checkpoint.

    Returns
    -------
    Path
    """
    folder = locate(model).folder
    index = folder.parent / f"{folder.name}.index"
    is_checkpoint = folder.is_file() or index.is_file()
    return folder.parent if is_checkpoint else folder


def kept_steps(folder: str | Path) -> list[tuple[int, Path]]:
    """List the finished checkpoints in a folder, in order of their steps.

    Parameters
    ----------
    folder : str or path
        The folder of a run's checkpoints; it need not exist.

    Returns
    -------
    list of (int, Path)
        The step and the file of each.
    """
    numbered = ((step_of(path), path) for path in Path(folder).glob("step-*.safetensors"))
    return sorted((step, path) for step, path in numbered if step is not None)


def step_of(checkpoint: Path) -> int | None:
    """Return the step in the name of a checkpoint.

    Parameters
    ----------
    checkpoint : Path
        A file such as step-100.safetensors.

    Returns
    -------
    int or None
        None if the name has no step.
    """
    named = _STEP.fullmatch(checkpoint.name)
    return int(named[1]) if named else None


def no_such_model(model: str | Path) -> MissingFile:
    """Return the error for a model's name that is not a folder; it may be a name on Hugging Face's hub.

    Parameters
    ----------
    model : str or path
        The name as it was given.

    Returns
    -------
    MissingFile
        For the caller to raise. It says how to get a model of the package or the hub, or which may be meant.
    """
    path = Path(model)
    if path.is_relative_to(Path.cwd()):  # options hold absolute paths; names on the Hub are short
        path = path.relative_to(Path.cwd())
    name = str(path)
    if name in BUNDLED:
        return MissingFile(not_installed(name))
    is_file = path.is_file()
    there = f"There is no folder {name!r}, and minibert downloads nothing"
    if is_file:
        there = f"{name!r} is a file"
    in_package = {bundled: f"{bundled}, a model in the package" for bundled in BUNDLED}
    if question := did_you_mean(name.lower(), in_package, cutoff=0.8):
        return MissingFile(f"{there}; {question}")
    if path.parts[:1] == ("runs",):  # where the documents' commands write
        return MissingFile(f"{there}; `make pretrain` trains runs/books, and {DEFAULT} is in the package.")
    may_be_on_hub = _HUB_NAME.fullmatch(name) and not is_file
    if may_be_on_hub and not ("/" in name and Path(name).parent.is_dir()):
        fetch = f"download it into Hugging Face's cache first: hf download {name}"
        return MissingFile(f"{there}; if it is a model on the Hugging Face Hub, {fetch}.")
    return MissingFile(f"{there}; give the folder of a run, or of a BERT of Hugging Face's or Google's.")
