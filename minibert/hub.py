"""Hugging Face folders in and out: `config.json` and `model.safetensors` of a `BertForPreTraining`.

Two things differ between the layouts. Their linear weights are (outputs, inputs), ours (inputs, outputs);
their query, key and value are three matrices, ours stand side by side in one.
"""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, deserialize, safe_open

from minibert.config import BertConfig
from minibert.errors import InputError
from minibert.files import atomic_tensors, atomic_text
from minibert.params import Entry, Parameters, parameter_table, reset

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
NATIVE_FLOATS = ("F64", "F32", "F16")  # those that NumPy knows, as safetensors calls them

# Our names to theirs. * is the number of a layer, {} stands for query, key and value.
_LAYER = "bert.encoder.layer.*"
NAMES = {
    "embeddings.word": "bert.embeddings.word_embeddings.weight",
    "embeddings.position": "bert.embeddings.position_embeddings.weight",
    "embeddings.segment": "bert.embeddings.token_type_embeddings.weight",
    "embeddings.gamma": "bert.embeddings.LayerNorm.weight",
    "embeddings.beta": "bert.embeddings.LayerNorm.bias",
    "layers.*.attention.qkv_weight": f"{_LAYER}.attention.self.{{}}.weight",
    "layers.*.attention.qkv_bias": f"{_LAYER}.attention.self.{{}}.bias",
    "layers.*.attention.output_weight": f"{_LAYER}.attention.output.dense.weight",
    "layers.*.attention.output_bias": f"{_LAYER}.attention.output.dense.bias",
    "layers.*.attention.gamma": f"{_LAYER}.attention.output.LayerNorm.weight",
    "layers.*.attention.beta": f"{_LAYER}.attention.output.LayerNorm.bias",
    "layers.*.feed_forward.in_weight": f"{_LAYER}.intermediate.dense.weight",
    "layers.*.feed_forward.in_bias": f"{_LAYER}.intermediate.dense.bias",
    "layers.*.feed_forward.out_weight": f"{_LAYER}.output.dense.weight",
    "layers.*.feed_forward.out_bias": f"{_LAYER}.output.dense.bias",
    "layers.*.feed_forward.gamma": f"{_LAYER}.output.LayerNorm.weight",
    "layers.*.feed_forward.beta": f"{_LAYER}.output.LayerNorm.bias",
    "pooler.weight": "bert.pooler.dense.weight",
    "pooler.bias": "bert.pooler.dense.bias",
    "mlm.weight": "cls.predictions.transform.dense.weight",
    "mlm.bias": "cls.predictions.transform.dense.bias",
    "mlm.gamma": "cls.predictions.transform.LayerNorm.weight",
    "mlm.beta": "cls.predictions.transform.LayerNorm.bias",
    "mlm.output_bias": "cls.predictions.bias",
    "nsp.weight": "cls.seq_relationship.weight",
    "nsp.bias": "cls.seq_relationship.bias",
}
# Second names of one tensor, which some files carry beside the first or in its place.
TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
# What a model fine-tuned for something else has lost.
HEADS = ("pooler", "mlm", "nsp")
# Names that a bare encoder begins with, and spellings of the first released checkpoints.
_SPELLINGS = (
    (re.compile(r"^(?=(embeddings|encoder|pooler)\.)"), "bert."),
    (re.compile(r"(?<=LayerNorm\.)gamma$"), "weight"),
    (re.compile(r"(?<=LayerNorm\.)beta$"), "bias"),
)


class LoadReport(NamedTuple):
    """What a checkpoint and the model did not have in common, under Hugging Face's names."""

    missing: tuple[str, ...]  # tensors of the pooler and the heads that the file lacks: freshly initialised
    unused: tuple[str, ...]  # floating-point tensors of the file that minibert has no place for


def to_hf(parameters: Parameters) -> dict[str, np.ndarray]:
    """Parameters, or gradients of them, under Hugging Face's names and in its layout: views of the buffer."""
    return {
        theirs: part for entry in parameters.table for theirs, part in _parts(entry, parameters[entry.name])
    }


def save_hf(folder: str | Path, config: BertConfig, params: Parameters) -> None:
    """Write a folder that `transformers.AutoModelForPreTraining.from_pretrained` loads as it is.

    Parameters
    ----------
    folder : made if it does not exist; a model that is there is replaced, each file in one step.
    config : the model's configuration.
    params : saved as float32, whatever their dtype: what every reader of such folders expects.

    Raises
    ------
    RunError
        When the disk is full or the folder cannot be written.
    """
    tensors = {name: np.ascontiguousarray(value, "<f4") for name, value in to_hf(params).items()}
    atomic_tensors(Path(folder) / WEIGHTS_FILE, tensors, {"format": "pt"})
    atomic_text(Path(folder) / CONFIG_FILE, json.dumps(config.to_dict(), indent=2) + "\n")


def load_hf(folder: str | Path, dtype: Any = np.float32) -> tuple[BertConfig, Parameters, LoadReport]:
    """Read the configuration and the weights of a BERT, one of minibert's or of Hugging Face's.

    Tensors may be float16, bfloat16, float32 or float64. Names may lack the prefix `bert.` and may use the
    spellings of early checkpoints (`LayerNorm.gamma`).

    Parameters
    ----------
    folder : has `config.json` and `model.safetensors`.
    dtype : of the parameters.

    Returns
    -------
    config : the model's configuration.
    params : its parameters; what the file lacks of the pooler and the heads has its initial value.
    report : which tensors that were, and which of the file's were of no use.

    Raises
    ------
    InputError
        When a file is missing, truncated or foreign; when tensors of the encoder are missing, or a shape is
        not the configuration's; when a weight is not a finite number.
    """
    folder = Path(folder)
    config = _read_config(folder / CONFIG_FILE)
    path = folder / WEIGHTS_FILE
    tensors = _canonical(path, _read_tensors(path))
    missing = _check(path, config, tensors)
    params = Parameters(config, dtype=dtype)
    for entry in params.table:
        for theirs, part in _parts(entry, params[entry.name]):
            if theirs in tensors:
                _fill(path, theirs, part, tensors.pop(theirs))
    reset(params, [ours for ours, _ in missing], seed=0)
    return config, params, LoadReport(tuple(theirs for _, theirs in missing), tuple(sorted(tensors)))


def _names(entry: Entry) -> list[str]:
    """Hugging Face's name of one of our parameters; three names for the joint projection of attention."""
    theirs = NAMES[re.sub(r"\d+", "*", entry.name)]
    if number := re.search(r"\d+", entry.name):
        theirs = theirs.replace("*", number[0])
    return [theirs.format(part) for part in ("query", "key", "value")] if "{}" in theirs else [theirs]


def _is_turned(entry: Entry) -> bool:
    """Whether it is the weight of a linear layer; the embeddings are tables, and alike in both layouts."""
    return entry.name.endswith("weight")


def _parts(entry: Entry, value: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Their names, each with the view of our array that it stands for."""
    names = _names(entry)
    parts = np.split(value, len(names), axis=-1)
    return [(name, part.T if _is_turned(entry) else part) for name, part in zip(names, parts, strict=True)]


def _shapes(entry: Entry) -> list[tuple[str, tuple[int, ...]]]:
    """Their names and shapes, with no array made: a configuration may ask for anything."""
    names = _names(entry)
    shape = (*entry.shape[:-1], entry.shape[-1] // len(names))
    return [(name, shape[::-1] if _is_turned(entry) else shape) for name in names]


def _read_config(path: Path) -> BertConfig:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); give the folder of a BERT.") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON ({error}); copy the model's folder again.") from error
    try:
        return BertConfig.from_dict(values)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _read_tensors(path: Path) -> dict[str, np.ndarray]:
    """The floating-point tensors of a safetensors file; others, such as position_ids, are left out.

    The library checks every length and offset of the header against the file before anything is read.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            kinds = {name: file.get_slice(name).get_dtype() for name in file.keys()}
            tensors = {name: file.get_tensor(name) for name, kind in kinds.items() if kind in NATIVE_FLOATS}
        if "BF16" in kinds.values():  # NumPy has no such type: the library gives the bytes
            stored = dict(deserialize(path.read_bytes()))
            tensors |= {name: _widened(**stored[name]) for name, kind in kinds.items() if kind == "BF16"}
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error}); {_advice(path.parent)}.") from error
    except SafetensorError as error:
        raise InputError(f"{path} is damaged or not a safetensors file ({error}); copy it again.") from error
    return tensors


def _widened(data: bytes, shape: list[int], dtype: str) -> np.ndarray:
    """bfloat16 to float32, of which it is the upper half."""
    return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4").reshape(shape)


def _advice(folder: Path) -> str:
    if any(folder.glob("pytorch_model*.bin")):
        return "convert pytorch_model.bin by saving the model again with a recent transformers"
    return f"expected the weights of a BERT in {WEIGHTS_FILE}"


def _canonical(path: Path, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors under their full modern names, tied ones once."""
    found: dict[str, np.ndarray] = {}
    for name, tensor in tensors.items():
        for pattern, replacement in _SPELLINGS:
            name = pattern.sub(replacement, name)
        if name in found:
            raise InputError(f"{path} has {name} twice, under two spellings; remove one of them.")
        found[name] = tensor
    for second, first in TIED.items():
        tensor = found.pop(second, None)
        if tensor is not None and not np.array_equal(found.setdefault(first, tensor), tensor):
            raise InputError(f"{path}: {second} differs from {first}; in BERT, and here, the two are one.")
    return found


def _check(path: Path, config: BertConfig, tensors: dict[str, np.ndarray]) -> list[tuple[str, str]]:
    """Compare with the configuration before memory is taken for it; both names of what is missing."""
    if config.L > len(tensors):
        raise InputError(
            f"{path} has {len(tensors)} tensors, too few for num_hidden_layers={config.L} of {CONFIG_FILE}; "
            "give the folder of one complete model."
        )
    missing = []
    for entry in parameter_table(config):
        for theirs, shape in _shapes(entry):
            if theirs not in tensors:
                missing.append((entry.name, theirs))
            elif tensors[theirs].shape != shape:
                raise InputError(
                    f"{path}: {theirs} has shape {tensors[theirs].shape}, {CONFIG_FILE} asks for {shape}; "
                    "the two files belong to different models."
                )
    lost = [theirs for ours, theirs in missing if not ours.startswith(HEADS)]
    if lost:
        shown = ", ".join(lost[:8]) + (f" and {len(lost) - 8} more" if len(lost) > 8 else "")
        raise InputError(f"{path} lacks these weights of the encoder: {shown}; give a complete BERT.")
    return missing


def _fill(path: Path, theirs: str, part: np.ndarray, tensor: np.ndarray) -> None:
    with np.errstate(over="ignore"):  # a float64 beyond float32 becomes infinite, which is refused
        part[...] = tensor
    if not np.isfinite(part).all():
        raise InputError(f"{path}: {theirs} has values that are not finite numbers; the model is damaged.")
