"""Hugging Face folders in and out: `config.json` beside `model.safetensors` or `pytorch_model.bin`."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from minibert.base.errors import InputError
from minibert.base.files import atomic_json, atomic_tensors, open_file
from minibert.base.json_files import parse_json, read_json
from minibert.base.terminal import counted
from minibert.core.config import BertConfig
from minibert.hub.loading import COPY_AGAIN, LoadReport, Source, Tensors, labels_of, load_source, read_config
from minibert.hub.names import DECODER, DECODER_BIAS, MASKED_LM, to_hf
from minibert.hub.precisions import narrowed, widened
from minibert.model.head_kinds import KINDS
from minibert.model.params import Head, Parameters

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
PICKLED_FILE = "pytorch_model.bin"
INDEX = ".index.json"  # behind either name: which of several files each tensor is in
WEIGHTS = tuple(name + end for name in (WEIGHTS_FILE, PICKLED_FILE) for end in ("", INDEX))  # in this order
LABELLED = [name for name, kind in KINDS.items() if kind.names_outputs]  # in the configuration
Reader = Callable[[Path], tuple[Tensors, dict[str, str]]]  # -> tensors, names and types of others
# Floating-point types as safetensors calls them, and how their bytes are read; NumPy has no bfloat16.
FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


def save_hf(
    folder: str | Path,
    config: BertConfig,
    params: Parameters,
    labels: Sequence[str] = (),
    *,
    dtype: str = "float32",
    omit: Collection[str] = (),
) -> None:
    """Write a folder that `transformers` loads as it is: `AutoModelForPreTraining` or the task's own class.

    Raise InputError when the labels are not as many as the outputs, or a weight is beyond the range of
    float16; RunError when the disk is full or the folder cannot be written.

    Parameters
    ----------
    folder : made if it does not exist; a model that is there is replaced, each file in one step.
    config, params : of the model, with any head. LSTMs below it, as `finetune --bilstm` trains them, are read
        by minibert only: `transformers` knows none, leaves them out and computes something else.
    labels : names of the outputs of a head of one of the kinds in `LABELLED`; numbers when left out.
    dtype : "float32", which every reader of such folders expects, "float16" or "bfloat16".
    omit : Hugging Face's names of tensors to leave out: what only has its initial value. A masked-LM head
        with a decoder of its own, `params.decoder`, is written all the same.
    """
    folder = Path(folder)
    if params.decoder is not None:
        omit = [name for name in omit if not name.startswith(MASKED_LM)]
    fields = fields_of(config, params.head, labels, omit)
    tensors = {name: value for name, value in to_hf(params).items() if name not in omit}
    if params.decoder is not None and params.head.kind == "pretraining":
        tensors[DECODER], tensors[DECODER_BIAS] = params.decoder, params["mlm.output_bias"]
        fields["tie_word_embeddings"] = False
    stored = {name: narrowed(name, value, dtype) for name, value in tensors.items()}
    atomic_tensors(folder / WEIGHTS_FILE, stored, {"format": "pt"})
    atomic_json(folder / CONFIG_FILE, fields if dtype == "float32" else fields | {"dtype": dtype})


def fields_of(
    config: BertConfig, head: Head, labels: Sequence[str] = (), omit: Collection[str] = ()
) -> dict[str, Any]:
    """Return the fields of a `config.json` that tell `transformers` which of its models this is."""
    if labels and (head.kind not in LABELLED or len(labels) != head.outputs):
        what = f"{counted(len(labels), 'label')} {'does' if len(labels) == 1 else 'do'} not fit"
        what += f" a head of kind {head.kind!r} with {counted(head.outputs, 'output')}"
        raise InputError(f"{what}; give one for each class or tag, and none to other heads.")
    if len(set(labels)) < len(labels):
        raise InputError(f"labels={list(labels)} name two classes alike; give each a name of its own.")
    kind = KINDS[head.kind]
    fields = config.to_dict() | {"architectures": [kind.architecture]}
    if head.kind == "pretraining" and "cls.predictions.bias" in omit:
        fields["architectures"] = ["BertModel"]
    elif head.kind == "pretraining" and "cls.seq_relationship.bias" in omit:
        fields["architectures"] = ["BertForMaskedLM"]
    if kind.names_outputs:
        names = labels or [f"LABEL_{number}" for number in range(head.outputs)]
        fields["id2label"] = {str(number): name for number, name in enumerate(names)}
        fields["label2id"] = {name: number for number, name in enumerate(names)}
    if kind.problem_type and (head.outputs > 1 or head.kind != "classify"):
        fields["problem_type"] = kind.problem_type
    return fields


def load_hf(
    folder: str | Path, dtype: Any = np.float32, head: Head | None = None, seed: int = 0
) -> tuple[BertConfig, Parameters, LoadReport]:
    """Read a BERT of minibert's or of Hugging Face's; the rest as with `hub.load`.

    Tensors may be float16, bfloat16, float32 or float64, their names those of early checkpoints
    (`LayerNorm.gamma`), without the prefix `bert.` too. `model.safetensors` goes before `pytorch_model.bin`.
    """
    folder = Path(folder)
    fields = read_config(folder / CONFIG_FILE)
    if (path := weights_in(folder)) is None:
        raise InputError(f"{folder} has no weights; give a folder with {WEIGHTS_FILE} or {PICKLED_FILE}.")
    read: Reader = read_tensors
    if path.name.startswith(PICKLED_FILE):
        from minibert.hub.pytorch.pickled import read_pickled as read
    tensors, others = _read_parts(path, read) if path.name.endswith(INDEX) else read(path)
    return load_source(Source(path, folder / CONFIG_FILE, fields, tensors, others), dtype, head, seed)


def load_labels(folder: str | Path) -> tuple[str, ...]:
    """Load the labels that a fine-tuned model was saved with, in the order of its outputs, if it has any."""
    folder = Path(folder)
    paths = (folder / name for name in (CONFIG_FILE, "bert_config.json"))
    path = next((path for path in paths if path.exists()), folder / CONFIG_FILE)
    return labels_of(read_config(path), path)


def weights_in(folder: Path) -> Path | None:
    """Return the file that the weights of a folder are read from, if there is one."""
    return next((folder / name for name in WEIGHTS if (folder / name).exists()), None)


def _read_parts(index: Path, read: Reader) -> tuple[Tensors, dict[str, str]]:
    """Read weights in several files, each tensor from the file in which the index has it."""
    places = read_json(index, {"weight_map": dict[str, str]}, COPY_AGAIN)["weight_map"]
    tensors: Tensors = {}
    others: dict[str, str] = {}
    for name in sorted(set(places.values())):
        if Path(name).name != name:
            raise InputError(f"{index} names the file {name!r}, not one of its folder; get the model anew.")
        held = [tensor for tensor, place in places.items() if place == name]
        found, unread = read(index.parent / name)
        tensors |= {tensor: found[tensor] for tensor in held if tensor in found}
        others |= {tensor: unread[tensor] for tensor in held if tensor in unread}
        if lost := [tensor for tensor in held if tensor not in found and tensor not in unread]:
            lacking = f"lacks {lost[0]}, which {index.name} says it has"
            raise InputError(f"{index.parent / name} {lacking}; {COPY_AGAIN}.")
    return tensors, others


def read_tensors(path: Path) -> tuple[Tensors, dict[str, str]]:
    """Read the floating-point tensors of a safetensors file; of others, such as position_ids, only the types.

    The library checks the header against the file. The tensors are views of the file mapped into memory.
    """
    try:
        open_file(path).close()  # the library says only that a file is not there
        with safe_open(path, framework="numpy") as file:
            kinds = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
        data = np.memmap(path, np.uint8, mode="r")
        begin = 8 + int.from_bytes(data[:8].tobytes(), "little")
        header, tensors = parse_json(data[8:begin].tobytes().decode()), {}
        for name, kind in kinds.items():
            if kind in FLOATS:
                first, last = header[name]["data_offsets"]
                flat = data[begin + first : begin + last].view(FLOATS[kind])
                tensors[name] = (widened(flat) if kind == "BF16" else flat).reshape(header[name]["shape"])
    except InputError:  # which says what the file is
        raise
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error}); {COPY_AGAIN}.") from error
    except (SafetensorError, ValueError) as error:  # a ValueError is NumPy's, of a shape it can't have
        raise InputError(f"{path} is damaged or not a safetensors file ({error}); copy it again.") from error
    return tensors, {name: kind for name, kind in kinds.items() if name not in tensors}
