"""The best epoch of a run so far: its files are kept in `best/` until the run delivers them.

The plan of the run, which is in every checkpoint, holds the checksums of these files. They are compared
before anything is delivered, and therefore before anything is deleted.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from minibert.base.errors import InputError
from minibert.base.files import atomic_json, crc32_of
from minibert.base.json_files import read_json
from minibert.training.loop import State
from minibert.training.runlog import logger

BEST, BEST_FILE = "best", "dev.json"
CHECKSUMS = "best_crc32"  # key in the plan
FIELDS = {"step": int, "epoch": float, "scores": dict[str, float], "predictions": list}  # in BEST_FILE
ADVICE = "put an intact copy there and continue with resume=True, or start again in another `out`"


def save_best(place: Path, epoch: dict[str, Any], save: Callable[[Path], None]) -> dict[str, int]:
    """Write the best epoch so far.

    Parameters
    ----------
    place : Path
        Folder for it.
    epoch : dict
        What to store about the epoch, for JSON.
    save : callable
        Writes the model's files into a folder.

    Returns
    -------
    dict of str to int
        Checksums (CRC-32) of the files, by name.
    """
    atomic_json(place / BEST_FILE, epoch, indent=None)  # first: it says which step the other files are from
    save(place)
    return {path.name: crc32_of(path) for path in sorted(place.glob("[!.]*"))}


def check_resumed(folder: Path, state: State, names: Sequence[str]) -> None:
    """Warn, before a resumed run trains on, if the best epoch is damaged that its checkpoint knows.

    If a later epoch has replaced it since then, that epoch will be trained again, and the earlier one is
    forgotten.

    Parameters
    ----------
    folder : Path
        Folder of the run.
    state : State
        State of its last checkpoint; its plan may be changed.
    names : sequence of str
        Names of the model's files.
    """
    if "best" not in state.plan:
        return
    try:
        if stored_epoch(folder)["step"] > state.step:
            del state.plan["best"]
            state.plan.pop("best_step", None)
        else:
            best_epoch(folder, state, names)
    except InputError as error:
        logger.warning(f"{error} The run goes on, since a later epoch may be better.")


def best_epoch(folder: Path, state: State, names: Sequence[str]) -> dict[str, Any]:
    """Return what is stored about the best epoch, after checking that its files are unchanged.

    If an earlier delivery was interrupted, a file of the model may already be in the folder of the run.

    Parameters
    ----------
    folder : Path
        Folder of the run.
    state : State
        A state whose plan has the checksums.
    names : sequence of str
        Names of the model's files.

    Returns
    -------
    dict
        What was given to `save_best`.

    Raises
    ------
    InputError
        When a file is missing or was altered; nothing is deleted then.
    """
    checksums = state.plan.get(CHECKSUMS, {})
    for name in (*names, BEST_FILE):
        kept = folder / BEST / name
        delivered = folder / name
        path = delivered if delivered.exists() and not kept.exists() else kept
        wrong = "" if path.is_file() else "is missing"
        if not wrong and crc32_of(path) != checksums.get(name):
            wrong = "is damaged: its checksum differs"
        if wrong:
            raise InputError(f"{path} {wrong}, so the best epoch can't be delivered; {ADVICE}.")
    return stored_epoch(folder)


def stored_epoch(folder: Path) -> dict[str, Any]:
    """Return what is stored about the best epoch, without looking at the files of its model.

    Parameters
    ----------
    folder : Path
        Folder of the run.

    Returns
    -------
    dict
        What was given to `save_best`.

    Raises
    ------
    InputError
        When the file is missing, or not JSON with these fields.
    """
    return read_json(folder / BEST / BEST_FILE, FIELDS, ADVICE, largest=sys.maxsize)  # any number of examples
