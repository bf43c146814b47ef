"""Checkpoints: Hugging Face folders in and out, Google's for TensorFlow in, without TensorFlow."""

from pathlib import Path
from typing import Any

import numpy as np

from minibert.base.errors import InputError, warn
from minibert.base.model_names import CONFIG_FILE, WEIGHTS_FILE, config_in, locate, no_such_model
from minibert.core.config import BertConfig
from minibert.hub import hugging_face
from minibert.hub.checkpoint import load_checkpoint
from minibert.hub.hugging_face import LABELLED, load_hf, load_labels, save_hf
from minibert.hub.loading import LoadReport, Source, kind_named, load_source, read_config
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
        As of `load`.

    Returns
    -------
    Path or None
        A file, or of TensorFlow's checkpoints the path without endings; None where there are no weights.
    """
    folder, checkpoint = locate(source)
    return checkpoint or hugging_face.weights_in(folder) or find_checkpoint(folder)


def hidden_size(source: str | Path) -> int | None:
    """Read how wide a BERT is, without reading its weights where it has a configuration beside them.

    Parameters
    ----------
    source : str or Path
        As of `load`.

    Returns
    -------
    int or None
        The width H; None where there is no BERT that can be read, of which `load` says why.
    """
    try:
        weights = weights_of(source)
        if weights is None:
            return None
        if weights == locate(source).checkpoint:
            params = load_checkpoint(weights, warn=lambda text: None).params
            return params.config.H if isinstance(params, Parameters) else None
        is_tensorflow = weights.name not in hugging_face.WEIGHTS
        config_path = weights.with_name(CONFIG_FILE)
        if is_tensorflow:
            config_path = config_in(weights.parent, is_tensorflow=True)
        return BertConfig.from_dict(read_config(config_path)).H
    except InputError:
        return None


def fields_in(source: str | Path) -> dict[str, Any]:
    """Return the fields of the configuration of a model.

    Parameters
    ----------
    source : str or Path
        As of `load`.

    Returns
    -------
    dict
        As they stand in the file; {} where there is none.

    Raises
    ------
    InputError
        When it is damaged.
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
        As of `load`.

    Returns
    -------
    str or None
        "pretraining" for a checkpoint of a run, or where there is no configuration; None where it names no
        class of transformers': then only the tensors tell.

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
    """Read a BERT: one of minibert's, of Hugging Face's or of Google's for TensorFlow.

    What the file lacks of the pooler and the head has its initial value. A masked-LM head whose decoder is
    not the word embeddings counts as lacking; `params.decoder` is that decoder. The report says what is
    lacking, which tensors of the file were of no use, and which were changed. A warning counts those of no
    use that lie in the encoder, such as adapters or layers beyond the configuration's.

    Parameters
    ----------
    source : str or Path
        A folder with `config.json` and `model.safetensors` or `pytorch_model.bin` (or several files and an
        index), or one with `bert_config.json` and `bert_model.ckpt.*`; of the latter the path without its
        endings will do, too; or `RUN@STEP`, a checkpoint of that step in the folder of a run.
    dtype : NumPy dtype, default float32
        Precision of the parameters.
    head : Head or None
        What is to stand on the encoder. Left out, it is what was saved: by the architecture that the
        configuration names or, where it names none, by the tensors.
    seed : int, default 0
        Seed of the initial values of what the file lacks.

    Returns
    -------
    config : BertConfig
        The configuration in the file.
    params : Parameters
        The weights, with the head.
    report : LoadReport
        What file and model did not have in common.

    Raises
    ------
    InputError
        When a file is missing, truncated, hostile or foreign, or a run has not kept that step; when tensors
        of the encoder are missing, a shape is not the configuration's, or a weight is not a finite number.
    """
    path = weights_of(source)
    place = locate(source)
    if path is not None and path == place.checkpoint:
        checkpoint = load_checkpoint(path, warn=warn)
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
