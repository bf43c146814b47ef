"""Checkpoints: everything a run needs to go on exactly, in one safetensors file that is whole or not there.

Tensors `params`, `m`, `v` are the flat buffers; the header carries the rest as JSON (the model's
configuration, step, place in the data, options) and a checksum of each buffer.
"""

import json
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from minibert import bilstm
from minibert.config import BertConfig
from minibert.errors import InputError, RunError
from minibert.files import atomic_tensors
from minibert.params import PRETRAINING, Entry, FlatParameters, Head, Parameters, parameter_table
from minibert.terminal import emit

FORMAT = "minibert checkpoint 1"
HEADER = {"config": dict, "updates": int, "crc32": dict, "state": dict}  # what has to stand in it
_NAME = re.compile(r"step-(\d+)\.safetensors")


@dataclass(frozen=True)
class Checkpoint:
    """What stands in one file.

    Attributes
    ----------
    params : the parameters, of a BERT with its head or of a tagger of LSTMs.
    m, v : (N,) the optimizer's moments.
    updates : number of updates the optimizer has made.
    state : whatever the run stored beside them, as JSON gives it back.
    """

    params: FlatParameters
    m: np.ndarray
    v: np.ndarray
    updates: int
    state: dict[str, Any]


def checkpoint_path(folder: str | Path, step: int) -> Path:
    """Name of the checkpoint after `step` steps; names sort like the steps."""
    return Path(folder) / f"step-{step:09d}.safetensors"


def save_checkpoint(path: str | Path, params: FlatParameters, optimizer: Any, state: dict[str, Any]) -> None:
    """Write a checkpoint, atomically.

    Parameters
    ----------
    path : the file; see `checkpoint_path`.
    params : saved in their own dtype.
    optimizer : its `m`, `v` (N,) and `updates`.
    state : anything JSON can say.

    Raises
    ------
    RunError
        When the disk is full or the folder cannot be written; no part of a file is left behind.
    """
    tensors = {"params": params.flat, "m": np.asarray(optimizer.m), "v": np.asarray(optimizer.v)}
    header = {
        "format": FORMAT,
        **params.description,
        "updates": optimizer.updates,
        "crc32": {name: zlib.crc32(tensor) for name, tensor in tensors.items()},
        "state": state,
    }
    # One entry only: safetensors keeps no order among several, and the same run is to write the same bytes.
    atomic_tensors(path, tensors, {"minibert": json.dumps(header, sort_keys=True)})


def load_checkpoint(path: str | Path, config: Any = None) -> Checkpoint:
    """Read a checkpoint back, bit for bit.

    Parameters
    ----------
    path : the file.
    config : when given, the configuration that the checkpoint has to have.

    Raises
    ------
    InputError
        When the file is missing, truncated, altered, not a checkpoint of minibert, or of another
        configuration.
    """
    return _checkpoint(Path(path), config, *_read(Path(path)))


def _checkpoint(
    path: Path, config: Any, header: dict[str, Any], tensors: dict[str, np.ndarray]
) -> Checkpoint:
    is_tagger = header["config"].get("model_type") == bilstm.MODEL_TYPE
    stored = (bilstm.BilstmConfig if is_tagger else BertConfig).from_dict(header["config"])
    if config is not None and stored != config:
        there, here = stored.to_dict(), config.to_dict()
        names = [name for name in here if here[name] != there.get(name)]
        differing = "; ".join(f"{name}={there.get(name)!r} there, {here[name]!r} here" for name in names)
        raise InputError(
            f"{path} belongs to another configuration ({differing}); use the folder of that run."
        )
    flat = tensors["params"]
    try:
        if is_tagger:
            _require_count(flat, bilstm.parameter_table, stored, "depth")
            params = bilstm.BilstmParameters(stored, flat)
        else:
            head = Head(*header.get("head", PRETRAINING))  # files of version 0.1 know no other
            _require_count(flat, partial(parameter_table, head=head), stored, "num_hidden_layers")
            params = Parameters(stored, flat, head=head)
    except (ValueError, TypeError) as error:
        raise InputError(f"{path} is damaged: {error} Remove it or use an earlier one.") from error
    return Checkpoint(params, tensors["m"], tensors["v"], header["updates"], header["state"])


def _require_count(flat: np.ndarray, table: Callable[[Any], list[Entry]], config: Any, layers: str) -> None:
    """Raise ValueError when a buffer is not as long as a configuration asks for.

    From the second layer on all are alike, so two tables tell the length of any: a damaged header may ask for
    more layers than there is memory to list.
    """
    one, two = (sum(entry.size for entry in table(replace(config, **{layers: n}))) for n in (1, 2))
    count = one + (getattr(config, layers) - 1) * (two - one)
    if flat.shape != (count,):
        raise ValueError(f"params has shape {flat.shape}, but its configuration has {count:,} parameters.")


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and buffers of a checkpoint, checked."""
    try:
        with safe_open(path, framework="numpy") as file:
            text = (file.metadata() or {}).get("minibert")
            if text is not None:
                header = json.loads(text)
                tensors = {name: file.get_tensor(name) for name in ("params", "m", "v")}
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"{path} cannot be read as a checkpoint ({error}); remove it or use an earlier one."
        ) from error
    if text is None:
        raise InputError(
            f"{path} holds no training state; it is not a checkpoint of minibert. "
            "To start from its weights, use --init-from with its folder."
        )
    found = header.get("format") if isinstance(header, dict) else None
    if found != FORMAT:
        raise InputError(f"{path} has format {found!r}, not {FORMAT!r}; use the version that wrote it.")
    lacking = [name for name, kind in HEADER.items() if not isinstance(header.get(name), kind)]
    if lacking or len({(tensor.shape, tensor.dtype) for tensor in tensors.values()}) > 1:
        what = f"its header lacks {', '.join(lacking)}" if lacking else "its buffers are not alike"
        raise InputError(f"{path} is damaged: {what}; remove it or use an earlier one.")
    for name, tensor in tensors.items():
        if zlib.crc32(tensor) != header["crc32"].get(name):
            raise InputError(
                f"{path} is damaged: the checksum of {name} differs; remove it or use an earlier one."
            )
    return header, tensors


def checkpoints(folder: str | Path) -> list[Path]:
    """The checkpoints in a folder by step, the oldest first; whether they are whole is not looked at."""
    files = (path for path in Path(folder).glob("step-*.safetensors") if _NAME.fullmatch(path.name))
    return sorted(files, key=_step)


def _step(path: Path) -> int:
    return int(_NAME.fullmatch(path.name)[1])


def latest(folder: str | Path, config: Any = None, warn: Any = emit) -> Checkpoint | None:
    """The newest checkpoint that can be read; None when there is no checkpoint at all.

    Parameters
    ----------
    folder : where the checkpoints are.
    config : as for `load_checkpoint`.
    warn : called with one sentence for every damaged file that is passed over.

    Raises
    ------
    RunError
        When there are checkpoints and none can be read: better to stop than to start anew unasked.
    """
    paths = checkpoints(folder)
    for path in reversed(paths):
        try:
            found = _read(path)
        except InputError as error:
            warn(f"Passed over a damaged checkpoint: {error}")
        else:
            return _checkpoint(path, config, *found)
    if paths:
        raise RunError(
            f"None of the {len(paths)} checkpoints in {folder} can be read; start "
            "anew in another folder, with --init-from this one if its model is good."
        )
    return None


def prune(folder: str | Path, keep: int, step: int | None = None) -> None:
    """Remove all but the newest `keep` checkpoints (0: remove none).

    Parameters
    ----------
    folder : where the checkpoints are.
    keep : how many stay.
    step : where the run stands. Checkpoints of later steps do not count: they are damaged, or the run would
        have resumed from them.
    """
    if keep < 0:
        raise InputError(f"keep={keep} is negative; give the number of checkpoints to keep, or 0 for all.")
    done = [path for path in checkpoints(folder) if step is None or _step(path) <= step]
    for path in done[:-keep] if keep else []:
        path.unlink(missing_ok=True)
