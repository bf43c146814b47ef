"""Write and read checkpoints: all that a run needs to resume exactly, in one safetensors file.

The file is complete or absent. Its tensors `params`, `m` and `v` are the flat buffers. Its header has the
rest as JSON (the model's configuration, step, position in the data, options) and a checksum of each buffer
and of itself.
"""

import json
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from minibert.base.errors import InputError, RunError
from minibert.base.files import atomic_tensors, open_file, writing
from minibert.base.json_files import fits, parse_json
from minibert.base.model_names import kept_steps, step_of
from minibert.base.terminal import emit
from minibert.core.config import BertConfig
from minibert.core.params import Entry, FlatParameters
from minibert.model import bilstm
from minibert.model.params import Head, Parameters, parameter_table

FORMAT = "minibert checkpoint 1"
HEADER = {"config": dict, "updates": int, "crc32": dict, "state": dict}  # required fields and their types
BUFFERS = ("params", "m", "v")
# Fields of the plan of a pre-training: of its timetable, and metrics of its weights before the first step.
PLAN: dict[str, Any] = {
    "total_steps": int,
    "timetable": list[tuple[float, float]],
    "replanned": tuple[int, int],
    "held_out_before": {"loss": float, "accuracy": float, "next_accuracy": float | None, "targets": int},
}


def _is_count(value: Any) -> bool:
    """Return whether a JSON value is a whole number of at least 0."""
    return type(value) is int and value >= 0


def _is_position(value: Any) -> bool:
    """Return whether a JSON value is a position in the data: None, a count, or a list of counts."""
    if value is None:
        return True
    counts = value if isinstance(value, list) else [value]
    return all(map(_is_count, counts))


def _is_plan(value: Any) -> bool:
    """Return whether a JSON value is the plan of a run, whose fields in `PLAN` may be missing."""
    if not isinstance(value, dict) or value.get("timetable") == []:
        return False
    return all(fits(value[name], kind) for name, kind in PLAN.items() if name in value)


# The fields that the state of a run may have, each with a function that checks its value.
STATE: dict[str, Callable[[Any], bool]] = {
    "step": _is_count,
    "position": _is_position,
    "seconds": lambda x: type(x) in (int, float) and 0 <= x < math.inf,
    "tokens": _is_count,
    "plan": _is_plan,
}


@dataclass(frozen=True)
class Checkpoint:
    """Hold the contents of one checkpoint.

    Attributes
    ----------
    params : FlatParameters
        N parameters of a BERT with its head, or of an LSTM tagger.
    m, v : (N,) float
        The optimizer's moments.
    updates : int
        Number of updates that the optimizer has made.
    state : dict
        The state of the run, with some or all fields of `STATE`, as read from JSON.
    """

    params: FlatParameters
    m: np.ndarray  # (N,)
    v: np.ndarray  # (N,)
    updates: int
    state: dict[str, Any]


def checkpoint_path(folder: str | Path, step: int) -> Path:
    """Return the path of the checkpoint of a step; the paths sort like the steps.

    Parameters
    ----------
    folder : str or Path
        Folder of the checkpoints of a run.
    step : int
        Number of steps that the run has made.

    Returns
    -------
    Path
        For example step-000000100.safetensors in the folder.
    """
    return Path(folder) / f"step-{step:09d}.safetensors"


def save_checkpoint(path: str | Path, params: FlatParameters, optimizer: Any, state: dict[str, Any]) -> None:
    """Write a checkpoint atomically, keeping dtypes.

    Parameters
    ----------
    path : str or Path
        The file, as `checkpoint_path` names it.
    params : FlatParameters
        The N parameters.
    optimizer : Optimizer
        Its moments `m` and `v`, (N,), and its number of `updates` are stored.
    state : dict
        The state of the run: "step" and other fields of `STATE`.

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
    # Only one entry: safetensors keeps no order among several, and the same run must write the same bytes.
    atomic_tensors(path, tensors, {"minibert": json.dumps(header, sort_keys=True)})


def _checksum(header: dict[str, Any]) -> int:
    """Compute the checksum of a header's values, which does not depend on their formatting."""
    return zlib.crc32(json.dumps(header, sort_keys=True).encode())


def load_checkpoint(path: str | Path, config: Any = None, numbers: int | None = None) -> Checkpoint:
    """Read a checkpoint back, bit for bit.

    Parameters
    ----------
    path : str or Path
        The file.
    config : BertConfig, BilstmConfig or None
        The configuration that it must have; by default any.
    numbers : int or None
        How many numbers its position in the data must have, if it has a position; by default any.

    Returns
    -------
    Checkpoint
        What `save_checkpoint` was given.

    Raises
    ------
    InputError
        When the file is missing, truncated, altered, not a checkpoint of minibert, or has another
        configuration or another kind of position.
    """
    path = Path(path)
    header, tensors = _contents(path)
    with _reporting_damage(path):
        _require_header(header)
        _require_tensors(header, tensors)
        _require_state(path, header, numbers)
        params = _parameters(header, tensors["params"])
    _require_config(path, params.config, config)
    return Checkpoint(params, tensors["m"], tensors["v"], header["updates"], header["state"])


def checkpoint_config(path: str | Path) -> BertConfig | None:
    """Read the configuration of a checkpoint from its header, without the buffers.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    BertConfig or None
        None for the LSTMs of a tagger.

    Raises
    ------
    InputError
        When the file is missing, its header is damaged, or it is not a checkpoint of minibert.
    """
    path = Path(path)
    header, _ = _contents(path, buffers=())
    with _reporting_damage(path):
        _require_header(header)
        return None if _is_bilstm(header) else BertConfig.from_dict(header["config"])


@contextmanager
def _reporting_damage(path: Path) -> Iterator[None]:
    """Turn what the block finds wrong with a checkpoint into an InputError with advice."""
    try:
        yield
    except (ValueError, TypeError, RecursionError) as error:
        reason = str(error).rstrip(".")
        raise InputError(f"{path} is damaged: {reason}; remove it or use an earlier one.") from error


def _require_config(path: Path, stored: Any, config: Any) -> None:
    """Raise InputError when a checkpoint does not have the given configuration."""
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


def _contents(path: Path, buffers: Sequence[str] = BUFFERS) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return header and buffers of a checkpoint; raise InputError if the file is not one."""
    if path.is_dir():
        raise InputError(f"{path} is a folder and can't be a checkpoint; move it away or use an earlier one.")
    try:
        open_file(path).close()  # raises an error that says more than the library's "not found"
        with safe_open(path, framework="numpy") as file:
            text = (file.metadata() or {}).get("minibert")
            if text is not None:
                header = parse_json(text)
                tensors = {name: file.get_tensor(name) for name in buffers}
    except InputError:  # already says what is wrong; it is a ValueError, too
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


def _require_header(header: dict[str, Any]) -> None:
    """Raise ValueError when a header is not what was written; remove its own checksum from it."""
    lacking = [name for name, kind in HEADER.items() if not isinstance(header.get(name), kind)]
    if lacking:
        raise ValueError(f"its header lacks {', '.join(lacking)}")
    header_checksum = header["crc32"].pop("header", None)
    if header_checksum != _checksum(header):
        raise ValueError("the checksum of its header differs")


def _require_tensors(header: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
    """Raise ValueError when a buffer is not what was written."""
    checksums = header["crc32"]
    if checksums.keys() != set(BUFFERS):
        raise ValueError(f"it has checksums of {', '.join(checksums)}, expected {', '.join(BUFFERS)}")
    kinds = {(tensor.shape, tensor.dtype) for tensor in tensors.values()}
    if len(kinds) > 1 or tensors["m"].dtype not in (np.float32, np.float64):
        raise ValueError("its buffers are not alike, or not floating-point numbers")
    for name, tensor in tensors.items():
        if zlib.crc32(tensor.data) != checksums[name]:
            raise ValueError(f"the checksum of {name} differs")


def _require_state(path: Path, header: dict[str, Any], numbers: int | None) -> None:
    """Raise ValueError when the state in a header is impossible, or contradicts the file's name."""
    state = header["state"]
    for name, value in state.items():
        if name not in STATE or not STATE[name](value):
            raise ValueError(f"{name}={value!r:.60} in its state is not what a run stores")
    position = state.get("position")
    if numbers is not None and position is not None:
        has_numbers = isinstance(position, list) and len(position) == numbers
        if not has_numbers:
            raise ValueError(f"position={position!r:.60} in its state is not one of {numbers} numbers")
    step = state.get("step")
    if step != header["updates"] or step_of(path) not in (None, step):
        raise ValueError(f"its state is that of step {step}, after {header['updates']} updates")


def _parameters(header: dict[str, Any], flat: np.ndarray) -> FlatParameters:
    """Divide a buffer into parameters as its header says; raise ValueError or TypeError if it can't be."""
    if _is_bilstm(header):
        tagger = bilstm.BilstmConfig.from_dict(header["config"])
        _require_count(flat, bilstm.parameter_table, tagger, "depth")
        return bilstm.BilstmParameters(tagger, flat)
    config = BertConfig.from_dict(header["config"])
    stored = header.get("head")
    if not (isinstance(stored, list | tuple) and 2 <= len(stored) <= 4 and type(stored[1]) is int):
        raise ValueError(f"head={stored!r:.60} is not a head")
    head = Head(*stored)
    _require_count(flat, partial(parameter_table, head=head), config, "num_hidden_layers")
    return Parameters(config, flat, head=head)


def _is_bilstm(header: dict[str, Any]) -> bool:
    """Return whether a header is that of the LSTMs of a tagger."""
    return bool(header["config"].get("model_type") == bilstm.MODEL_TYPE)


def _require_count(flat: np.ndarray, table: Callable[[Any], list[Entry]], config: Any, layers: str) -> None:
    """Raise ValueError when a buffer does not have the length that a configuration asks for.

    All layers from the second on are alike, so the tables for one and two layers give the count for any
    number: a damaged header may name more layers than there is memory to list.
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
        Folder of the checkpoints of a run.

    Returns
    -------
    list of Path
        Checkpoints by step, the oldest first; [] if the folder does not exist.
    """
    return [path for _, path in kept_steps(folder)]


def latest(
    folder: str | Path, config: Any = None, warn: Any = emit, numbers: int | None = None
) -> Checkpoint | None:
    """Load the newest checkpoint that can be read; None if there is no checkpoint at all.

    Parameters
    ----------
    folder : str or Path
        Folder of the checkpoints of a run.
    config, numbers
        As for `load_checkpoint`.
    warn : callable
        Called with a sentence for every damaged file that is passed over.

    Returns
    -------
    Checkpoint or None
        The newest intact checkpoint.

    Raises
    ------
    InputError
        When that checkpoint has another configuration.
    RunError
        When there are checkpoints but none can be read: starting over must be the user's decision.
    """
    paths = checkpoints(folder)
    for path in reversed(paths):
        try:
            checkpoint = load_checkpoint(path, None, numbers)
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

    Checkpoints of steps after `step` do not count: the run would have resumed from them if they were intact.

    Parameters
    ----------
    folder : str or Path
        Folder of the checkpoints of a run.
    max_checkpoints : int
        How many to keep; 0 keeps all.
    step : int or None
        The current step of the run; by default all checkpoints count.
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
