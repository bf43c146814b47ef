"""Checkpoints: everything a run needs to go on exactly, in one safetensors file that is whole or not there.

Tensors `params`, `m`, `v` are the flat buffers; the header carries the rest as JSON (the model's
configuration, step, place in the data, options) and a checksum of each buffer and of itself.
"""

import json
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from minibert.base.errors import InputError, RunError
from minibert.base.files import atomic_tensors, open_file, writing
from minibert.base.json_files import parse_json
from minibert.base.model_names import kept_steps, step_of
from minibert.base.terminal import emit
from minibert.core.config import BertConfig
from minibert.core.params import Entry, FlatParameters
from minibert.model import bilstm
from minibert.model.params import PRETRAINING, Head, Parameters, parameter_table

FORMAT = "minibert checkpoint 1"
HEADER = {"config": dict, "updates": int, "crc32": dict, "state": dict}  # what has to stand in it
BUFFERS = ("params", "m", "v")


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


# What a run may store beside the buffers, and what each of them has to be.
STATE: dict[str, Callable[[Any], bool]] = {
    "step": _is_count,
    "position": lambda x: x is None or all(map(_is_count, x if isinstance(x, list) else [x])),
    "seconds": lambda x: type(x) in (int, float) and 0 <= x < math.inf,
    "tokens": _is_count,
    "plan": lambda x: isinstance(x, dict),
}


@dataclass(frozen=True)
class Checkpoint:
    """What stands in one file."""

    params: FlatParameters  # of a BERT with its head or of a tagger of LSTMs
    m: np.ndarray  # (N,) the optimizer's moments
    v: np.ndarray
    updates: int  # how many the optimizer has made
    state: dict[str, Any]  # what the run stored beside them, some or all of `STATE`, as JSON gives it back


def checkpoint_path(folder: str | Path, step: int) -> Path:
    """Name the checkpoint after `step` steps; names sort like the steps."""
    return Path(folder) / f"step-{step:09d}.safetensors"


def save_checkpoint(path: str | Path, params: FlatParameters, optimizer: Any, state: dict[str, Any]) -> None:
    """Write a checkpoint, atomically; raise RunError when the disk is full or the folder cannot be written.

    Dtypes are kept. `optimizer` has `m`, `v` (N,) and `updates`; `state` has `step` and more of `STATE`.
    """
    tensors = dict(zip(BUFFERS, map(np.asarray, (params.flat, optimizer.m, optimizer.v)), strict=True))
    header = {"format": FORMAT, **params.description, "updates": optimizer.updates, "state": state}
    header["crc32"] = {name: zlib.crc32(tensor.data) for name, tensor in tensors.items()}
    header["crc32"]["header"] = _checksum(json.loads(json.dumps(header)))  # as a reader has it
    # One entry only: safetensors keeps no order among several, and the same run is to write the same bytes.
    atomic_tensors(path, tensors, {"minibert": json.dumps(header, sort_keys=True)})


def _checksum(header: dict[str, Any]) -> int:
    """Compute the checksum of a header's values, however they are spelt; its own must not be among them."""
    return zlib.crc32(json.dumps(header, sort_keys=True).encode())


def load_checkpoint(
    path: str | Path, config: Any = None, warn: Callable[[str], Any] = emit, numbers: int | None = None
) -> Checkpoint:
    """Read a checkpoint back, bit for bit.

    Raise InputError when the file is missing, truncated, altered, no checkpoint of minibert, or of another
    `config` or count of `numbers` in its position than are given. `warn` hears of a header without checksum.
    """
    path = Path(path)
    header, tensors = _contents(path)
    try:
        signed = _require_whole(header, tensors)
        _require_state(path, header, numbers)
        params = _parameters(header, tensors["params"])
    except (ValueError, TypeError, RecursionError) as error:
        reason = str(error).rstrip(".")
        raise InputError(f"{path} is damaged: {reason}; remove it or use an earlier one.") from error
    if not signed:
        old = f"{path} is of an earlier version, which kept no checksum of step, position and configuration"
        warn(f"{old}; they are taken as they stand there.")
    _require_config(path, params.config, config)
    return Checkpoint(params, tensors["m"], tensors["v"], header["updates"], header["state"])


def _require_config(path: Path, stored: Any, config: Any) -> None:
    """Raise InputError when a checkpoint is of another configuration than the one that is given."""
    if config is not None and stored != config:
        there, here = stored.to_dict(), config.to_dict()
        names = [name for name in here if here[name] != there.get(name)]
        differing = "; ".join(f"{name}={there.get(name)!r} there, {here[name]!r} here" for name in names)
        raise InputError(f"{path} is of another configuration ({differing}); use the folder of that run.")


def _contents(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return header and buffers of a checkpoint, if it is one."""
    if path.is_dir():
        raise InputError(f"{path} is a folder and can't be a checkpoint; move it away or use an earlier one.")
    try:
        open_file(path).close()  # the library says only that a file is not there
        with safe_open(path, framework="numpy") as file:
            if (text := (file.metadata() or {}).get("minibert")) is not None:
                header = parse_json(text)
                tensors = {name: file.get_tensor(name) for name in BUFFERS}
    except InputError:  # which says what the file is
        raise
    except OSError as error:
        raise InputError(f"{path} can't be read ({error.strerror or error}); check the file.") from error
    except (SafetensorError, ValueError, RecursionError) as error:
        advice = "remove it or use an earlier one."
        raise InputError(f"{path} cannot be read as a checkpoint ({error}); {advice}") from error
    if text is None:
        advice = "it is not a checkpoint of minibert. To start from its weights, use --model with its folder."
        raise InputError(f"{path} holds no training state; {advice}")
    if (written := header.get("format") if isinstance(header, dict) else None) != FORMAT:
        raise InputError(f"{path} has format {written!r}, not {FORMAT!r}; use the version that wrote it.")
    return header, tensors


def _require_whole(header: dict[str, Any], tensors: dict[str, np.ndarray]) -> bool:
    """Raise ValueError when a header or a buffer is not what was written.

    Return whether the header has a checksum of its own; those of the first versions have none.
    """
    if lacking := [name for name, kind in HEADER.items() if not isinstance(header.get(name), kind)]:
        raise ValueError(f"its header lacks {', '.join(lacking)}")
    checksums = header["crc32"]
    own = checksums.pop("header", None)
    if own is not None and own != _checksum(header):
        raise ValueError("the checksum of its header differs")
    if checksums.keys() != set(BUFFERS):
        raise ValueError(f"it has checksums of {', '.join(checksums)}, expected {', '.join(BUFFERS)}")
    kinds = {(tensor.shape, tensor.dtype) for tensor in tensors.values()}
    if len(kinds) > 1 or tensors["m"].dtype not in (np.float32, np.float64):
        raise ValueError("its buffers are not alike, or no floating-point numbers")
    for name, tensor in tensors.items():
        if zlib.crc32(tensor.data) != checksums[name]:
            raise ValueError(f"the checksum of {name} differs")
    return own is not None


def _require_state(path: Path, header: dict[str, Any], numbers: int | None) -> None:
    """Raise ValueError when the state in a header is none that a run can be in, or not that of its name."""
    state = header["state"]
    for name, value in state.items():
        if name not in STATE or not STATE[name](value):
            raise ValueError(f"{name}={value!r:.60} in its state is nothing that a run stores")
    place = state.get("position")
    if None not in (numbers, place) and not (isinstance(place, list) and len(place) == numbers):
        raise ValueError(f"position={place!r:.60} in its state is not one of {numbers} numbers")
    step = state.get("step")
    if step != header["updates"] or step_of(path) not in (None, step):
        raise ValueError(f"its state is that of step {step}, after {header['updates']} updates")


def _parameters(header: dict[str, Any], flat: np.ndarray) -> FlatParameters:
    """Put a buffer under the names that its header means; ValueError or TypeError where it means none."""
    if header["config"].get("model_type") == bilstm.MODEL_TYPE:
        tagger = bilstm.BilstmConfig.from_dict(header["config"])
        _require_count(flat, bilstm.parameter_table, tagger, "depth")
        return bilstm.BilstmParameters(tagger, flat)
    config = BertConfig.from_dict(header["config"])
    head = header.get("head", PRETRAINING)  # files of version 0.1 know no other
    if not isinstance(head, list | tuple) or not 2 <= len(head) <= 4 or type(head[1]) is not int:
        raise ValueError(f"head={head!r:.60} is none")
    head = Head(*head)
    _require_count(flat, partial(parameter_table, head=head), config, "num_hidden_layers")
    return Parameters(config, flat, head=head)


def _require_count(flat: np.ndarray, table: Callable[[Any], list[Entry]], config: Any, layers: str) -> None:
    """Raise ValueError when a buffer is not as long as a configuration asks for.

    From the second layer on all are alike, so two tables tell the length of any: a damaged header may ask for
    more layers than there is memory to list.
    """
    one, two = (sum(entry.size for entry in table(replace(config, **{layers: n}))) for n in (1, 2))
    count = one + (getattr(config, layers) - 1) * (two - one)
    if flat.shape != (count,):
        raise ValueError(f"params has shape {flat.shape}, but its configuration has {count:,} parameters.")


def checkpoints(folder: str | Path) -> list[Path]:
    """List the checkpoints in a folder by step, the oldest first; whether they are whole is not checked."""
    return [path for _, path in kept_steps(folder)]


def latest(
    folder: str | Path, config: Any = None, warn: Any = emit, numbers: int | None = None
) -> Checkpoint | None:
    """Load the newest checkpoint that can be read; None when there is no checkpoint at all.

    The arguments are those of `load_checkpoint`; `warn` is called for every damaged file passed over, too.
    Raise RunError when there are checkpoints and none can be read: better to stop than to start anew unasked.
    """
    paths = checkpoints(folder)
    for path in reversed(paths):
        try:
            checkpoint = load_checkpoint(path, None, warn, numbers)
        except InputError as error:
            warn(f"Passed over a checkpoint that can't be used: {error}")
        else:
            _require_config(path, checkpoint.params.config, config)
            return checkpoint
    if paths:
        advice = f"start anew in another folder, with --model {Path(folder).parent} if its model is good."
        raise RunError(f"None of the {len(paths)} checkpoints in {folder} can be read; {advice}")
    return None


def prune(folder: str | Path, keep: int, step: int | None = None) -> None:
    """Remove all but the newest `keep` checkpoints (0: remove none).

    Those beyond `step`, where the run stands, do not count: it would have resumed there if they were whole.
    """
    done = [path for at, path in kept_steps(folder) if (step is None or at <= step) and path.is_file()]
    for path in done[:-keep] if keep else []:
        with writing(path, "removed"):
            path.unlink(missing_ok=True)
