"""Hugging Face folders in and out: `config.json` beside `model.safetensors` or `pytorch_model.bin`."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from minibert.base.errors import InputError
from minibert.base.files import atomic_json, atomic_tensors, open_file
from minibert.base.json_files import parse_json, read_json
from minibert.base.model_names import CONFIG_FILE, WEIGHTS_FILE, config_in
from minibert.base.terminal import counted
from minibert.core.config import BertConfig
from minibert.hub.loading import COPY_AGAIN, LoadReport, Source, Tensors, labels_of, load_source, read_config
from minibert.hub.names import DECODER, DECODER_BIAS, MASKED_LM, to_hf
from minibert.hub.precisions import narrowed, widened
from minibert.model.head_kinds import KINDS
from minibert.model.params import Head, Parameters

PICKLED_FILE = "pytorch_model.bin"
INDEX = ".index.json"  # after either name: which of several files each tensor is in
WEIGHTS = tuple(name + end for name in (WEIGHTS_FILE, PICKLED_FILE) for end in ("", INDEX))  # the first wins
LABELLED = [name for name, kind in KINDS.items() if kind.names_outputs]  # labels are in the configuration
Reader = Callable[[Path], tuple[Tensors, dict[str, str]]]  # -> float tensors; names and types of the others
# Floating-point types by their names in safetensors, with the dtype to read them as; NumPy has no bfloat16.
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
    """Write a folder that `transformers` loads as it is: `AutoModelForPreTraining` or the class of the task.

    Parameters
    ----------
    folder : str or Path
        Made if it does not exist; a model in it is replaced, one file at a time, each atomically.
    config : BertConfig
        Configuration of the model.
    params : Parameters
        Parameters of the model, with any head. Only minibert reads the LSTMs that `finetune --bilstm` trains
        below a head: `transformers` leaves them out and computes something else.
    labels : sequence of str
        Names of the outputs of a head of one of the kinds in `LABELLED`; by default LABEL_0, LABEL_1, ...
    dtype : {"float32", "float16", "bfloat16"}, default "float32"
        Precision of the file; every reader of such folders understands "float32".
    omit : collection of str
        Tensors to leave out, by Hugging Face's names, because they only have their initial values; by default
        none. A masked-LM head with a separate decoder, `params.decoder`, is written all the same.

    Raises
    ------
    InputError
        When there are not as many labels as outputs, or a weight is beyond the range of float16.
    RunError
        When the disk is full or the folder cannot be written.
    """
    folder = Path(folder)
    if params.decoder is not None:
        omit = [name for name in omit if not name.startswith(MASKED_LM)]
    fields = fields_of(config, params.head, labels, omit)
    tensors = {name: value for name, value in to_hf(params).items() if name not in omit}
    if params.decoder is not None and params.head.kind == "pretraining":
        tensors[DECODER] = params.decoder
        tensors[DECODER_BIAS] = params["mlm.output_bias"]
        fields["tie_word_embeddings"] = False
    stored = {name: narrowed(name, value, dtype) for name, value in tensors.items()}
    if dtype != "float32":
        fields["dtype"] = dtype
    atomic_tensors(folder / WEIGHTS_FILE, stored, {"format": "pt"})
    atomic_json(folder / CONFIG_FILE, fields)


def fields_of(
    config: BertConfig, head: Head, labels: Sequence[str] = (), omit: Collection[str] = ()
) -> dict[str, Any]:
    """Return the fields of a `config.json` that tell `transformers` which of its models this is.

    Parameters
    ----------
    config : BertConfig
        Configuration of the encoder.
    head : Head
        The head on the encoder.
    labels, omit
        As for `save_hf`. If the masked-LM head or the next-sentence head of pre-training is omitted, the
        class is one without it.

    Returns
    -------
    dict
        The configuration with "architectures" and, depending on the kind of head, labels and problem type.

    Raises
    ------
    InputError
        When labels are given but not one for each output, or two of them are equal.
    """
    if labels and (head.kind not in LABELLED or len(labels) != head.outputs):
        verb = "does" if len(labels) == 1 else "do"
        outputs = counted(head.outputs, "output")
        raise InputError(
            f"{counted(len(labels), 'label')} {verb} not fit a head of kind {head.kind!r} with {outputs}; "
            "give one for each class or tag, and none to other heads."
        )
    if len(set(labels)) < len(labels):
        raise InputError(f"labels={list(labels)} gives two classes the same name; give each its own.")
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
    """Read a BERT that minibert or Hugging Face saved; see `hub.load`.

    Tensors may be float16, bfloat16, float32 or float64. They may have the names of early checkpoints
    (`LayerNorm.gamma`), and may lack the prefix `bert.`. `model.safetensors` takes precedence over
    `pytorch_model.bin`.

    Parameters
    ----------
    folder : str or Path
        The folder that has `config.json`.
    dtype, head, seed
        As for `hub.load`.

    Returns
    -------
    tuple of BertConfig, Parameters and LoadReport
        As from `hub.load`.

    Raises
    ------
    InputError
        When the folder has no weights, or for any reason that `hub.load` lists.
    """
    folder = Path(folder)
    fields = read_config(folder / CONFIG_FILE)
    path = weights_in(folder)
    if path is None:
        advice = f"give one with {WEIGHTS_FILE} or {PICKLED_FILE}."
        raise InputError(f"The folder '{folder}' has no weights of a model; {advice}")
    tensors, others = read_weights(path)
    source = Source(path, folder / CONFIG_FILE, fields, tensors, others)
    return load_source(source, dtype, head, seed)


def load_labels(folder: str | Path) -> tuple[str, ...]:
    """Load the labels that a fine-tuned model was saved with.

    Parameters
    ----------
    folder : str or Path
        The folder that has `config.json` or `bert_config.json`.

    Returns
    -------
    tuple of str
        Labels in the order of the outputs; () if the configuration has none.

    Raises
    ------
    InputError
        When there is no configuration, it is damaged, or its labels are not strings numbered from 0 on.
    """
    path = config_in(Path(folder))
    return labels_of(read_config(path), path)


def weights_in(folder: Path) -> Path | None:
    """Return the file that the weights of a folder are read from.

    Parameters
    ----------
    folder : Path
        The folder of a model.

    Returns
    -------
    Path or None
        The first of `WEIGHTS` that exists, which is an index if the weights are in several files; or None.
    """
    for name in WEIGHTS:
        if (folder / name).exists():
            return folder / name
    return None


def read_weights(path: Path) -> tuple[Tensors, dict[str, str]]:
    """Read the floating-point tensors of a model, whichever of `WEIGHTS` has them.

    Parameters
    ----------
    path : Path
        What `weights_in` returned.

    Returns
    -------
    tensors, others
        As from `read_tensors`.

    Raises
    ------
    InputError
        When a file cannot be read or is damaged.
    """
    read: Reader = read_tensors
    if path.name.startswith(PICKLED_FILE):
        from minibert.hub.pytorch.pickled import read_pickled as read
    return _read_parts(path, read) if path.name.endswith(INDEX) else read(path)


def _read_parts(index: Path, read: Reader) -> tuple[Tensors, dict[str, str]]:
    """Read weights in several files, each tensor from the file in which the index has it."""
    places = read_json(index, {"weight_map": dict[str, str]}, COPY_AGAIN)["weight_map"]
    tensors: Tensors = {}
    others: dict[str, str] = {}
    for name in sorted(set(places.values())):
        if Path(name).name != name:
            raise InputError(f"{index} names the file {name!r}, not one of its folder; get the model again.")
        part_tensors, part_others = read(index.parent / name)
        for tensor, place in places.items():
            if place != name:
                continue
            if tensor in part_tensors:
                tensors[tensor] = part_tensors[tensor]
            elif tensor in part_others:
                others[tensor] = part_others[tensor]
            else:
                lacking = f"lacks {tensor}, which {index.name} says it has"
                raise InputError(f"{index.parent / name} {lacking}; {COPY_AGAIN}.")
    return tensors, others


def read_tensors(path: Path) -> tuple[Tensors, dict[str, str]]:
    """Read the floating-point tensors of a safetensors file; of others, such as position_ids, only the types.

    The library `safetensors` checks the header against the file.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    tensors : dict of str to array
        Views of the file mapped into memory, in its precision; bfloat16 becomes float32, which is a copy.
    others : dict of str to str
        The types of the other tensors by name, as safetensors calls them.

    Raises
    ------
    InputError
        When the file cannot be read or is damaged.
    """
    try:
        open_file(path).close()  # raises an error that says more than the library's "not found"
        with safe_open(path, framework="numpy") as file:
            kinds = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
        data = np.memmap(path, np.uint8, mode="r")
        begin = 8 + int.from_bytes(data[:8].tobytes(), "little")
        header = parse_json(data[8:begin].tobytes().decode())
        tensors = {}
        for name, kind in kinds.items():
            if kind in FLOATS:
                first, last = header[name]["data_offsets"]
                flat = data[begin + first : begin + last].view(FLOATS[kind])
                if kind == "BF16":
                    flat = widened(flat)
                tensors[name] = flat.reshape(header[name]["shape"])
    except InputError:  # already says what is wrong; it is a ValueError, too
        raise
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error}); {COPY_AGAIN}.") from error
    except (SafetensorError, ValueError) as error:  # NumPy's ValueError: bytes that do not fit the shape
        raise InputError(f"{path} is damaged or not a safetensors file ({error}); copy it again.") from error
    return tensors, {name: kind for name, kind in kinds.items() if name not in tensors}
