"""The best epoch of a run so far: its files, kept in `best/` until the run delivers them.

The plan of the run, which every checkpoint holds, has the checksums of these files. They are compared before
anything is delivered, and so before anything is deleted.
"""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from minibert.errors import InputError
from minibert.files import atomic_text, crc32_of
from minibert.json_files import read_json
from minibert.reports.results import metrics_text
from minibert.training.loop import State
from minibert.training.runlog import say

BEST, BEST_FILE = "best", "dev.json"
CHECKSUMS = "best_crc32"  # in the plan; runs that began before there were any have none
FIELDS = {"step": int, "epoch": float, "scores": dict[str, float], "predictions": list}  # of BEST_FILE
ADVICE = "put an intact copy there and go on with --resume, or start again in another --out"


def note_epoch(
    folder: Path,
    state: State,
    epoch_steps: int,
    metric: str,
    found: dict[str, Any],
    save: Callable[[Path], None],
    show: bool,
) -> dict[str, float]:
    """Keep the model of an epoch where it is the best so far.

    Parameters
    ----------
    folder : of the run.
    state : after the epoch; its plan keeps score and checksums of the best one.
    epoch_steps : steps of an epoch.
    metric : the one that decides.
    found : what is kept beside the model: `scores`, `predictions` and whatever else it takes to deliver it.
    save : writes the model into a folder.
    show : write the metrics to the error stream.

    Returns
    -------
    The metrics of dev, for the record.
    """
    epoch, scores = round(state.step / epoch_steps, 2), found["scores"]
    before = state.plan.get("best")
    is_best = before is None or scores[metric] > before
    state.plan["looked"] = state.step
    if is_best:
        place = folder / BEST
        text = json.dumps({"step": state.step, "epoch": epoch} | found, ensure_ascii=False)
        atomic_text(place / BEST_FILE, text + "\n")  # first: from here on the files are those of this step
        save(place)
        names = sorted(path.name for path in place.glob("[!.]*"))
        state.plan |= {"best": scores[metric], CHECKSUMS: {name: crc32_of(place / name) for name in names}}
    if show:
        remark = ", the best so far" if is_best and before is not None else ""
        say(f"Epoch {epoch:g}: {metrics_text(scores)} on dev{remark}.")
    return {f"dev_{name}": value for name, value in scores.items()}


def check_resumed(folder: Path, state: State, names: Sequence[str], warn: Callable[[str], None]) -> None:
    """See, before a resumed run trains on, whether the best epoch that its checkpoint knows is still there.

    Where a later epoch has taken its place after the checkpoint, that epoch comes again, and the earlier one
    is forgotten. Where it is damaged, a warning says so: a better epoch may yet take its place.

    Parameters
    ----------
    folder, names : as for `best_epoch`.
    state : as restored.
    warn : called with a sentence.
    """
    if "best" not in state.plan:
        return
    try:
        if _read(folder / BEST / BEST_FILE)["step"] > state.step:
            del state.plan["best"]
        else:
            best_epoch(folder, state, names)
    except InputError as error:
        warn(f"{error} The run goes on, since a later epoch may be better.")


def best_epoch(folder: Path, state: State, names: Sequence[str]) -> dict[str, Any]:
    """Return what was found of the best epoch, once all its files have proved to be as they were written.

    Parameters
    ----------
    folder : of the run; a file may lie there already, where its delivery was cut off.
    state : of the run.
    names : of the model's files.

    Raises
    ------
    InputError
        When a file is missing or was altered; nothing has been deleted then.
    """
    checksums = state.plan.get(CHECKSUMS, {})
    for name in (*names, BEST_FILE):
        path = _where(folder, name)
        if not path.is_file():
            raise _undeliverable(path, "is missing")
        if name in checksums and crc32_of(path) != checksums[name]:
            raise _undeliverable(path, "is damaged: its checksum differs")
    return _read(folder / BEST / BEST_FILE)


def _where(folder: Path, name: str) -> Path:
    """Where a file of the best model is: in `best/`, or delivered already."""
    kept, delivered = folder / BEST / name, folder / name
    return delivered if delivered.exists() and not kept.exists() else kept


def _read(path: Path) -> dict[str, Any]:
    return read_json(path, FIELDS, ADVICE, largest=sys.maxsize)  # as much as there are examples


def _undeliverable(path: Path, what: str) -> InputError:
    return InputError(f"{path} {what}, so the best epoch can't be delivered; {ADVICE}.")
