"""Checkpoints: Hugging Face folders in and out, Google's for TensorFlow in, without TensorFlow.

Read this file first: `load` is how every room gets a model. `loading` turns tensors with Hugging Face's names
into parameters, and `checkpoint` stores all that a run needs to resume.
"""

from pathlib import Path
from typing import Any

import numpy as np

from minibert.base.errors import InputError
from minibert.base.model_names import CONFIG_FILE, WEIGHTS_FILE, config_in, locate, no_such_model
from minibert.core.config import BertConfig
from minibert.hub import hugging_face
from minibert.hub.checkpoint import checkpoint_config, load_checkpoint
from minibert.hub.hugging_face import LABELLED, load_hf, load_labels, save_hf
from minibert.hub.loading import (
    LoadReport,
    Source,
    Tensors,
    config_of,
    full_name,
    kind_named,
    load_source,
    read_config,
)
from minibert.hub.names import to_hf
from minibert.hub.tensorflow.google import (
    check_index,
    find_checkpoint,
    load_tf,
)
from minibert.model.params import Head, Parameters
from minibert.model.targets import targets_of

__all__ = [
    "CONFIG_FILE",
    "LABELLED",
    "WEIGHTS_FILE",
    "LoadReport",
    "encoder_tensors",
    "fields_in",
    "hidden_size",
    "kind_in_config",
    "load",
    "load_hf",
    "load_labels",
    "load_tf",
    "save_hf",
    "to_hf",
    "weights_of",
]


def weights_of(source: str | Path) -> Path | None:
    """Return the path of the weights that `load` would read.

    Parameters
    ----------
    source : str or Path
        As for `load`.

    Returns
    -------
    Path or None
        A file, or for a TensorFlow checkpoint the path without endings; None if there are no weights.
    """
    folder, checkpoint = locate(source)
    return checkpoint or hugging_face.weights_in(folder) or find_checkpoint(folder)


def encoder_tensors(source: str | Path) -> Tensors:
    """Read the tensors of a model without making parameters of them.

    A file of safetensors is only mapped into memory: what is not used is not read.

    Parameters
    ----------
    source : str or Path
        As for `load`.

    Returns
    -------
    dict of str to array
        Tensors by Hugging Face's names, in the precision of the file; those of the encoder have their full
        modern names.

    Raises
    ------
    InputError
        When there is no such model, or its file is damaged.
    """
    weights = weights_of(source)
    if weights is None or weights.name not in hugging_face.WEIGHTS:
        return to_hf(load(source)[1])
    tensors, _ = hugging_face.read_weights(weights)
    return {full_name(name): tensor for name, tensor in tensors.items()}


def stored_config(source: str | Path) -> BertConfig | None:
    """Read the configuration of a BERT, without its weights.

    Parameters
    ----------
    source : str or Path
        As for `load`.

    Returns
    -------
    BertConfig or None
        The shape; None if there is no BERT that can be read (`load` says why).
    """
    try:
        weights = weights_of(source)
        if weights is None:
            return None
        if weights == locate(source).checkpoint:
            return checkpoint_config(weights)
        is_tensorflow = weights.name not in hugging_face.WEIGHTS
        config_path = weights.with_name(CONFIG_FILE)
        if is_tensorflow:
            config_path = config_in(weights.parent, is_tensorflow=True)
        return config_of(read_config(config_path))
    except InputError:
        return None


def fields_in(source: str | Path) -> dict[str, Any]:
    """Return the fields of the configuration of a model.

    Parameters
    ----------
    source : str or Path
        As for `load`.

    Returns
    -------
    dict
        The fields as the file has them; {} if there is no file.

    Raises
    ------
    InputError
        When the file is damaged.
    """
    folder = locate(source).folder
    if not folder.is_dir():
        folder = folder.parent
    path = config_in(folder)
    return read_config(path) if path.is_file() else {}


def kind_in_config(source: str | Path) -> str | None:
    """Return the kind of head that the configuration of a model names, before its weights are read.

    Parameters
    ----------
    source : str or Path
        As for `load`.

    Returns
    -------
    str or None
        "pretraining" for a checkpoint of a run, or if there is no configuration; None if the configuration
        does not name a class of transformers, so that only the tensors can tell.

    Raises
    ------
    InputError
        When the configuration is damaged.
    """
    fields = fields_in(source)
    if not fields or locate(source).checkpoint:
        return "pretraining"
    return kind_named(fields)


def load(
    source: str | Path, dtype: Any = np.float32, head: Head | None = None, seed: int = 0
) -> tuple[BertConfig, Parameters, LoadReport]:
    """Read a BERT that minibert, Hugging Face or Google (with TensorFlow) saved.

    Tensors of the pooler and the head that the file lacks have their initial values. A masked-LM head whose
    decoder is not the word embeddings counts as missing; `params.decoder` is that decoder. The report says
    which tensors are missing, which tensors of the file were not used, and which were changed. A warning
    counts unused tensors in the encoder, such as adapters or layers beyond those of the configuration.

    Parameters
    ----------
    source : str or Path
        A folder with `config.json` and `model.safetensors` or `pytorch_model.bin` (or several files and an
        index); a folder with `bert_config.json` and `bert_model.ckpt.*`, or the path of the latter without
        its endings; or `RUN@STEP`, the checkpoint of that step in the folder of a run.
    dtype : NumPy dtype, default float32
        Precision of the parameters.
    head : Head or None
        The head to put on the encoder. By default the saved one, recognised by the architecture that the
        configuration names or, if it names none, by the tensors.
    seed : int, default 0
        Seed of the initial values of missing tensors.

    Returns
    -------
    config : BertConfig
        The configuration in the file.
    params : Parameters
        The weights, with the head.
    report : LoadReport
        The differences between the file and the model.

    Raises
    ------
    InputError
        When a file is missing, truncated, hostile or foreign, or a run has not kept that step; when tensors
        of the encoder are missing, a shape does not match the configuration, or a weight is not finite.
    """
    path = weights_of(source)
    place = locate(source)
    if path is not None and path == place.checkpoint:
        checkpoint = load_checkpoint(path)
        params = checkpoint.params
        if not isinstance(params, Parameters):
            raise InputError(f"{path} holds LSTMs on a frozen BERT and no BERT; name the model below them.")
        targets = targets_of(checkpoint.state.get("plan", {}))
        if targets:
            params = targets.folded(params)
        fields = hugging_face.fields_of(params.config, params.head)
        return load_source(Source(path, path, fields, to_hf(params), {}), dtype, head, seed)
    if path is None:
        check_index(source)
        if not Path(source).is_dir():
            raise no_such_model(source)
    is_tensorflow = path is not None and path.name not in hugging_face.WEIGHTS
    read = load_tf if is_tensorflow else load_hf
    return read(place.folder, dtype, head, seed)
