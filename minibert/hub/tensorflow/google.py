"""Read Google's TensorFlow checkpoints of BERT: `bert_config.json` next to `bert_model.ckpt.*`.

Their linear weights are called kernels and are (inputs, outputs), like ours. In between, tensors take Hugging
Face's names and layout, for which all checks are written.
"""

import re
from glob import escape
from pathlib import Path
from typing import Any

import numpy as np

from minibert.base.errors import InputError
from minibert.base.files import read_bytes
from minibert.base.model_names import config_in
from minibert.core.arrays import Array
from minibert.core.config import BertConfig
from minibert.hub.loading import LoadReport, Source, load_source, read_config
from minibert.hub.tensorflow.bundle import FLOATS, Bundle
from minibert.model.params import Head, Parameters

CHECKPOINT = "bert_model.ckpt"
# Tensors that Google's code does not keep in a layer, with Hugging Face's names. None of them is transposed.
_OUTPUTS = {
    "cls/predictions/output_bias": "cls.predictions.bias",
    "cls/seq_relationship/output_weights": "cls.seq_relationship.weight",
    "cls/seq_relationship/output_bias": "cls.seq_relationship.bias",
    "cls/squad/output_weights": "qa_outputs.weight",
    "cls/squad/output_bias": "qa_outputs.bias",
    "output_weights": "classifier.weight",
    "output_bias": "classifier.bias",
    "output_query": "classifier.query",  # the query of attention over windows, which Google's code ignores
}
_WORD = "bert/embeddings/word_embeddings"
_WORD_2 = "bert/embeddings/word_embeddings_2"  # the second factor, if there are two
_MAPPING = "bert/encoder/embedding_hidden_mapping_in/"  # widens embeddings after they were normalised


def find_checkpoint(source: str | Path) -> Path | None:
    """Find the path of a checkpoint's files without their endings.

    Parameters
    ----------
    source : str or Path
        That path itself, the index file, or a folder. In a folder it is `bert_model.ckpt` or, if training has
        left others, the one that the file `checkpoint` names.

    Returns
    -------
    Path or None
        None if there is no checkpoint.

    Raises
    ------
    InputError
        When there are several and nothing says which to take.
    """
    source = Path(source)
    if source.name and source.with_name(f"{source.name}.index").is_file():
        return source
    if source.suffix == ".index" and source.is_file():
        return source.with_suffix("")
    names = sorted(path.name.removesuffix(".index") for path in source.glob("*.index") if path.is_file())
    if len(names) > 1 and CHECKPOINT in names:
        names = [CHECKPOINT]
    if len(names) > 1 and (source / "checkpoint").is_file():
        text = read_bytes(source / "checkpoint").decode(errors="replace")
        match = re.search(r'^model_checkpoint_path: "(.*)"', text, re.M)
        if match and Path(match[1]).name in names:
            names = [Path(match[1]).name]
    if len(names) > 1:
        raise InputError(
            f"'{source}' has checkpoints {', '.join(names)}; name one, as in {source / names[0]}."
        )
    return source / names[0] if names else None


def check_index(source: str | Path) -> None:
    """Check that data files of a checkpoint have their index.

    Parameters
    ----------
    source : str or Path
        A folder, or the path of a checkpoint's files without their endings.

    Raises
    ------
    InputError
        When an index is missing. Nothing happens if there are no data files.
    """
    source = Path(source)
    ending = ".data-?????-of-?????"
    paths = sorted(source.glob(f"*{ending}"))
    if not paths:
        paths = sorted(source.parent.glob(f"{escape(source.name)}{ending}"))
    for path in paths:
        index = path.with_suffix(".index")
        if not index.exists():
            raise InputError(f"{index} is missing beside {path.name}; copy it, too.")


def load_tf(
    source: str | Path, dtype: Any = np.float32, head: Head | None = None, seed: int = 0
) -> tuple[BertConfig, Parameters, LoadReport]:
    """Read a BERT from a TensorFlow checkpoint, checking the CRC-32C of every tensor; see `hub.load`.

    Other tensors, such as optimizer slots, are not read, and are reported as unused. A word embedding in two
    factors is multiplied out. Unless the configuration says otherwise, `output_weights` belong to a
    classifier.

    Parameters
    ----------
    source : str or Path
        As for `find_checkpoint`.
    dtype, head, seed
        As for `hub.load`.

    Returns
    -------
    tuple of BertConfig, Parameters and LoadReport
        As from `hub.load`; the report has Google's names of tensors that were not used.

    Raises
    ------
    InputError
        When there is no checkpoint, or for any reason that `hub.load` lists.
    """
    prefix = find_checkpoint(source)
    if prefix is None:
        raise InputError(f"'{source}' has no index of a TensorFlow checkpoint; expected {CHECKPOINT}.index.")
    bundle = Bundle(prefix)
    _refuse_others(bundle)
    config_path = config_in(prefix.parent, is_tensorflow=True)
    fields = read_config(config_path)
    tensors = {}
    others = {}
    names = {}  # Google's names by Hugging Face's
    changed = []
    for name, entry in bundle.entries.items():
        theirs = _hugging_face_name(name)
        if theirs is None or name == _WORD_2:
            continue
        if entry.dtype not in FLOATS:
            others[theirs] = f"TensorFlow's type {entry.dtype}"
            continue
        if name == _WORD and _WORD_2 in bundle.entries:
            value, sentence = _multiplied(bundle)
            changed.append(sentence)
        else:
            value = bundle.read(name)
        if name.endswith("/kernel"):
            value = value.T
        tensors[theirs] = value
        names[theirs] = name
    checkpoint = Source(bundle.index, config_path, fields, tensors, others)
    config, params, report = load_source(checkpoint, dtype, head, seed)
    read = {*names.values(), _WORD_2}
    unused = [names[name] for name in report.unused]
    unused += [name for name in bundle.entries if name not in read]
    return config, params, LoadReport(report.missing, tuple(sorted(unused)), tuple(changed))


def _hugging_face_name(name: str) -> str | None:
    """Translate a name; None for tensors that are not part of a model, such as an optimizer's moments."""
    if name in _OUTPUTS:
        return _OUTPUTS[name]
    if not re.fullmatch(r"(bert|cls|electra|lstm)/.*(kernel|bias|gamma|beta|_embeddings|w_in|w_state)", name):
        return None
    name = re.sub(r"/layer_(\d+)/", r"/layer/\1/", name)
    name = re.sub(r"/(kernel|gamma)$", "/weight", name)
    name = re.sub(r"/beta$", "/bias", name)
    return re.sub(r"_embeddings$", "_embeddings/weight", name).replace("/", ".")


def _refuse_others(bundle: Bundle) -> None:
    """Raise InputError, with an explanation, for known kinds of checkpoints that are not Google's BERT."""
    if "_CHECKPOINTABLE_OBJECT_GRAPH" in bundle.entries:
        what = "a checkpoint of Keras objects, whose names are not those of Google's BERT"
        advice = "give one of those, or the model in Hugging Face's format."
        raise InputError(f"{bundle.index} is {what}; {advice}")
    if any(name.startswith(_MAPPING) for name in bundle.entries):
        what = f"normalises its embeddings before {_MAPPING}kernel widens them"
        advice = "a BERT normalises afterwards; give a model without that mapping."
        raise InputError(f"{bundle.index} {what}, which cannot be multiplied out: {advice}")


class _Product:
    """Represent a matrix by two factors, which are multiplied only when it is read as an array."""

    def __init__(self, first: np.ndarray, second: np.ndarray) -> None:
        self.first = first
        self.second = second
        self.shape = first.shape[0], second.shape[1]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        product = self.first.astype(np.float64) @ self.second.astype(np.float64)
        return product.astype(dtype or np.float64, copy=False)


def _multiplied(bundle: Bundle) -> tuple[Array, str]:
    """Multiply out a word embedding that is stored as two factors; return a sentence about it."""
    first = bundle.read(_WORD)
    second = bundle.read(_WORD_2)
    both = f"{_WORD} {first.shape} and {_WORD_2} {second.shape}"
    are_matrices = first.ndim == 2 and second.ndim == 2
    if not are_matrices or first.shape[1] != second.shape[0]:
        raise InputError(f"{both} do not fit together; give the files of one model.", where=str(bundle.index))
    return _Product(first, second), f"{both} were multiplied out"
