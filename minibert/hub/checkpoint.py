"""Checkpoints: everything that a run needs to resume exactly, in one safetensors file, complete or absent.

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
    """Return whether a value of JSON is a whole number from 0 on."""
    return type(value) is int and value >= 0


def _is_position(value: Any) -> bool:
    """Return whether a value is a place in the data: None, a count, or a list of counts."""
    if value is None:
        return True
    counts = value if isinstance(value, list) else [value]
    return all(map(_is_count, counts))


# What a run may store beside the buffers, and what each of them has to be.
STATE: dict[str, Callable[[Any], bool]] = {
    "step": _is_count,
    "position": _is_position,
    "seconds": lambda x: type(x) in (int, float) and 0 <= x < math.inf,
    "tokens": _is_count,
    "plan": lambda x: isinstance(x, dict),
}


@dataclass(frozen=True)
class Checkpoint:
    """Hold the contents of one checkpoint.

    Attributes
    ----------
    params : FlatParameters
        Parameters of a BERT with its head or of a tagger of LSTMs, N numbers.
    m, v : (N,) float
        The optimizer's moments.
    updates : int
        How many the optimizer has made.
    state : dict
        What the run stored beside them, some or all of `STATE`, as JSON gives it back.
    """

    params: FlatParameters
    m: np.ndarray  # (N,)
    v: np.ndarray  # (N,)
    updates: int
    state: dict[str, Any]


def checkpoint_path(folder: str | Path, step: int) -> Path:
    """Name the checkpoint after a number of steps; names sort like the steps.

    Parameters
    ----------
    folder : str or Path
        Where the checkpoints of a run lie.
    step : int
        How many steps the run has made.

    Returns
    -------
    Path
        As in step-000000100.safetensors.
    """
    return Path(folder) / f"step-{step:09d}.safetensors"


def save_checkpoint(path: str | Path, params: FlatParameters, optimizer: Any, state: dict[str, Any]) -> None:
    """Write a checkpoint, atomically, its dtypes kept.

    Parameters
    ----------
    path : str or Path
        The file, as `checkpoint_path` names it.
    params : FlatParameters
        The parameters, N numbers.
    optimizer : Optimizer
        Its moments `m` and `v`, (N,), and its count of `updates` are stored.
    state : dict
        "step" and more of `STATE`.

    Raises
    ------
    RunError
        When the disk is full or the folder cannot be written.
    """
    tensors = {
        "params": np.asarray(params.flat),
        "m": np.asarray(optimizer.m),
        "v": np.asarray(optimizer.v),
    }
    header = {"format": FORMAT, **params.description, "updates": optimizer.updates, "state": state}
    header["crc32"] = {name: zlib.crc32(tensor.data) for name, tensor in tensors.items()}
    as_read = json.loads(json.dumps(header))
    header["crc32"]["header"] = _checksum(as_read)
    # One entry only: safetensors keeps no order among several, and the same run is to write the same bytes.
    atomic_tensors(path, tensors, {"minibert": json.dumps(header, sort_keys=True)})


def _checksum(header: dict[str, Any]) -> int:
    """Compute the checksum of a header's values, however they are formatted, without its own checksum."""
    return zlib.crc32(json.dumps(header, sort_keys=True).encode())


def load_checkpoint(
    path: str | Path, config: Any = None, warn: Callable[[str], Any] = emit, numbers: int | None = None
) -> Checkpoint:
    """Read a checkpoint back, bit for bit.

    Parameters
    ----------
    path : str or Path
        The file.
    config : BertConfig, BilstmConfig or None
        The configuration that it must have; any by default.
    warn : callable
        Called with a sentence when the header has no checksum of itself, as in files of earlier versions.
    numbers : int or None
        How many numbers its position in the data must have, where it has one; any by default.

    Returns
    -------
    Checkpoint
        What `save_checkpoint` was given.

    Raises
    ------
    InputError
        When the file is missing, truncated, altered, not a checkpoint of minibert, or of another
        configuration or position.
    """
    path = Path(path)
    header, tensors = _contents(path)
    try:
        has_own_checksum = _require_whole(header, tensors)
        _require_state(path, header, numbers)
        params = _parameters(header, tensors["params"])
    except (ValueError, TypeError, RecursionError) as error:
        reason = str(error).rstrip(".")
        raise InputError(f"{path} is damaged: {reason}; remove it or use an earlier one.") from error
    if not has_own_checksum:
        old = f"{path} is of an earlier version, which has no checksum of step, position and configuration"
        warn(f"{old}; they are taken as they are.")
    _require_config(path, params.config, config)
    return Checkpoint(params, tensors["m"], tensors["v"], header["updates"], header["state"])


def _require_config(path: Path, stored: Any, config: Any) -> None:
    """Raise InputError when a checkpoint is of another configuration than the one that is given."""
    if config is None or stored == config:
        return
    there = stored.to_dict()
    here = config.to_dict()
    differences = []
    for name in here:
        if here[name] != there.get(name):
            differences.append(f"{name}={there.get(name)!r} there, {here[name]!r} here")
    listed = "; ".join(differences)
    raise InputError(f"{path} is of another configuration ({listed}); use the folder of that run.")


def _contents(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return header and buffers of a checkpoint, if it is one."""
    if path.is_dir():
        raise InputError(f"{path} is a folder and can't be a checkpoint; move it away or use an earlier one.")
    try:
        open_file(path).close()  # the library says only that a file is not there
        with safe_open(path, framework="numpy") as file:
            text = (file.metadata() or {}).get("minibert")
            if text is not None:
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
        advice = "it is not a checkpoint of minibert. To start from its weights, give its folder as `model`."
        raise InputError(f"{path} holds no training state; {advice}")
    written = header.get("format") if isinstance(header, dict) else None
    if written != FORMAT:
        raise InputError(f"{path} has format {written!r}, not {FORMAT!r}; use the version that wrote it.")
    return header, tensors


def _require_whole(header: dict[str, Any], tensors: dict[str, np.ndarray]) -> bool:
    """Raise ValueError when a header or a buffer is not what was written.

    Return whether the header has a checksum of its own; those of the first versions have none.
    """
    lacking = [name for name, kind in HEADER.items() if not isinstance(header.get(name), kind)]
    if lacking:
        raise ValueError(f"its header lacks {', '.join(lacking)}")
    checksums = header["crc32"]
    header_checksum = checksums.pop("header", None)
    if header_checksum is not None and header_checksum != _checksum(header):
        raise ValueError("the checksum of its header differs")
    if checksums.keys() != set(BUFFERS):
        raise ValueError(f"it has checksums of {', '.join(checksums)}, expected {', '.join(BUFFERS)}")
    kinds = {(tensor.shape, tensor.dtype) for tensor in tensors.values()}
    if len(kinds) > 1 or tensors["m"].dtype not in (np.float32, np.float64):
        raise ValueError("its buffers are not alike, or not floating-point numbers")
    for name, tensor in tensors.items():
        if zlib.crc32(tensor.data) != checksums[name]:
            raise ValueError(f"the checksum of {name} differs")
    return header_checksum is not None


def _require_state(path: Path, header: dict[str, Any], numbers: int | None) -> None:
    """Raise ValueError when the state in a header is impossible, or not that of the file's name."""
    state = header["state"]
    for name, value in state.items():
        if name not in STATE or not STATE[name](value):
            raise ValueError(f"{name}={value!r:.60} in its state is nothing that a run stores")
    position = state.get("position")
    if numbers is not None and position is not None:
        has_numbers = isinstance(position, list) and len(position) == numbers
        if not has_numbers:
            raise ValueError(f"position={position!r:.60} in its state is not one of {numbers} numbers")
    step = state.get("step")
    if step != header["updates"] or step_of(path) not in (None, step):
        raise ValueError(f"its state is that of step {step}, after {header['updates']} updates")


def _parameters(header: dict[str, Any], flat: np.ndarray) -> FlatParameters:
    """Name the parts of a buffer by its header; raise ValueError or TypeError if that is impossible."""
    if header["config"].get("model_type") == bilstm.MODEL_TYPE:
        tagger = bilstm.BilstmConfig.from_dict(header["config"])
        _require_count(flat, bilstm.parameter_table, tagger, "depth")
        return bilstm.BilstmParameters(tagger, flat)
    config = BertConfig.from_dict(header["config"])
    head = header.get("head", PRETRAINING)  # files of version 0.1 know no other
    is_head = isinstance(head, list | tuple) and 2 <= len(head) <= 4 and type(head[1]) is int
    if not is_head:
        raise ValueError(f"head={head!r:.60} is none")
    head = Head(*head)
    _require_count(flat, partial(parameter_table, head=head), config, "num_hidden_layers")
    return Parameters(config, flat, head=head)


def _require_count(flat: np.ndarray, table: Callable[[Any], list[Entry]], config: Any, layers: str) -> None:
    """Raise ValueError when a buffer does not have the length that a configuration asks for.

    From the second layer on all are alike, so two tables tell the length of any: a damaged header may ask for
    more layers than there is memory to list.
    """

    def count_with(n_layers: int) -> int:
        entries = table(replace(config, **{layers: n_layers}))
        return sum(entry.size for entry in entries)

    first = count_with(1)
    each_further = count_with(2) - first
    count = first + (getattr(config, layers) - 1) * each_further
    if flat.shape != (count,):
        raise ValueError(f"params has shape {flat.shape}, but its configuration has {count:,} parameters.")


def checkpoints(folder: str | Path) -> list[Path]:
    """List the checkpoints in a folder, without checking that they are intact.

    Parameters
    ----------
    folder : str or Path
        Where the checkpoints of a run lie.

    Returns
    -------
    list of Path
        By step, the oldest first; [] where there is no such folder.
    """
    return [path for _, path in kept_steps(folder)]


def latest(
    folder: str | Path, config: Any = None, warn: Any = emit, numbers: int | None = None
) -> Checkpoint | None:
    """Load the newest checkpoint that can be read; None when there is no checkpoint at all.

    Parameters
    ----------
    folder : str or Path
        Where the checkpoints of a run lie.
    config, numbers
        As for `load_checkpoint`.
    warn : callable
        As for `load_checkpoint`; called for every damaged file passed over, too.

    Returns
    -------
    Checkpoint or None
        The newest whole one.

    Raises
    ------
    InputError
        When that one is of another configuration.
    RunError
        When there are checkpoints and none can be read: better to stop than to start anew unasked.
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
        model = str(Path(folder).parent)
        advice = f"start a new run in another folder, with {model=} if that model is intact."
        raise RunError(f"None of the {len(paths)} checkpoints in '{folder}' can be read; {advice}")
    return None


def prune(folder: str | Path, max_checkpoints: int, step: int | None = None) -> None:
    """Remove all but the newest `max_checkpoints` checkpoints (0: remove none).

    Those beyond `step`, where the run stands, do not count: it would have resumed there if they were whole.

    Parameters
    ----------
    folder : str or Path
        Where the checkpoints of a run lie.
    max_checkpoints : int
        How many are kept; 0 keeps all.
    step : int or None
        Where the run stands; by default all checkpoints count.
    """
    if not max_checkpoints:
        return
    paths = []
    for number, path in kept_steps(folder):
        if (step is None or number <= step) and path.is_file():
            paths.append(path)
    for path in paths[:-max_checkpoints]:
        with writing(path, "removed"):
            path.unlink(missing_ok=True)
