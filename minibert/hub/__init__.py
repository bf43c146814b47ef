"""Checkpoints in and out: Hugging Face folders, and Google's TensorFlow checkpoints without TensorFlow."""

from pathlib import Path
from typing import Any

import numpy as np

from minibert.errors import InputError, warn
from minibert.hub import hugging_face
from minibert.hub.hugging_face import CONFIG_FILE, LABELLED, WEIGHTS_FILE, load_hf, load_labels, save_hf
from minibert.hub.loading import LoadReport, Source, load_source
from minibert.hub.names import to_hf
from minibert.hub.tensorflow.google import check_index, find_checkpoint, google_differences, load_tf, save_tf
from minibert.model.config import BertConfig
from minibert.model.params import Head, Parameters
from minibert.model.targets import targets_of
from minibert.model_names import locate, no_such_model
from minibert.training.checkpoint import load_checkpoint

__all__ = ["CONFIG_FILE", "LABELLED", "WEIGHTS_FILE", "LoadReport", "google_differences", "load", "load_hf"]
__all__ += ["load_labels", "load_tf", "save_hf", "save_tf", "to_hf", "weights_of"]


def weights_of(source: str | Path) -> Path | None:
    """Return the path of the weights that `load` would read, a file or a prefix of TensorFlow's, if any."""
    source, checkpoint = locate(source)
    return checkpoint or hugging_face.weights_in(source) or find_checkpoint(source)


def load(
    source: str | Path, dtype: Any = np.float32, head: Head | None = None, seed: int = 0
) -> tuple[BertConfig, Parameters, LoadReport]:
    """Read a BERT: one of minibert's, of Hugging Face's or of Google's for TensorFlow.

    What the file lacks of the pooler and the head has its initial value. The report says what that is, which
    tensors of the file were of no use, and which were changed. A warning counts those of no use that lie in
    the encoder, such as adapters or layers beyond the configuration's. Raise InputError when a file is
    missing, truncated, hostile or foreign, or a run has not kept that step; when tensors of the encoder are
    missing, a shape is not the configuration's, or a weight is not a finite number.

    Parameters
    ----------
    source : a folder with `config.json` and `model.safetensors` or `pytorch_model.bin` (or several files and
        an index), or one with `bert_config.json` and `bert_model.ckpt.*`; of the latter the path without its
        endings will do, too; or `RUN@STEP`, a checkpoint of that step in the folder of a run.
    head : what is to stand on the encoder. Left out, it is what was saved: by the architecture that the
        configuration names or, where it names none, by the tensors.
    dtype, seed : of the parameters, and of the initial values of what the file lacks.
    """
    path = weights_of(source)
    if path is not None and path == locate(source).checkpoint:
        checkpoint = load_checkpoint(path, warn=warn)
        params = checkpoint.params
        if not isinstance(params, Parameters):
            raise InputError(f"{path} holds LSTMs on a frozen BERT and no BERT; name the model below them.")
        if targets := targets_of(checkpoint.state.get("plan", {})):
            params = targets.folded(params)
        fields = hugging_face.fields_of(params.config, params.head)
        return load_source(Source(path, path, fields, to_hf(params), {}), dtype, head, seed)
    if path is None:
        check_index(source)
        if not Path(source).is_dir():
            raise no_such_model(source)
    is_tensorflow = path is not None and path.name not in hugging_face.WEIGHTS
    return (load_tf if is_tensorflow else load_hf)(source, dtype, head, seed)
