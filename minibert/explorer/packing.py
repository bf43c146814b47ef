"""Pack models into the data of a page: weights in float16 or int8, the vocabulary, tables of Unicode."""

import base64
import os
from pathlib import Path
from reprlib import repr as short
from typing import Any, NamedTuple

import numpy as np

from minibert import hub
from minibert.api.base import Estimator
from minibert.ask.inference import Bert
from minibert.base.errors import InputError, MissingFile
from minibert.base.model_names import folder_of, locate, step_of
from minibert.core.arrays import Array
from minibert.hub.vocabularies import read_tokenizer
from minibert.model.head_kinds import KINDS
from minibert.model.params import Head, Parameters
from minibert.tokenizer import Tokenizer, unicode
from minibert.training.runlog import read_metrics

# Fields of the configuration that the scripts read.
FIELDS = "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size".split()
FIELDS += "max_position_embeddings type_vocab_size hidden_act layer_norm_eps".split()
PARTS = ("bert.pooler", "cls.predictions", "cls.seq_relationship", "classifier", "qa_outputs")
LARGEST_HALF = 65504  # the largest finite number in float16
LARGEST_INT8 = 127  # the largest magnitude of a weight in 8 bits
LOSS_STEPS = 20  # recorded steps over which the training loss is averaged
LAST = 0x110000  # one after the last code point of Unicode


class Model(NamedTuple):
    """A model to be packed into a page."""

    name: str
    step: int | None  # step of a run's checkpoint; None: the final model
    loss: float | None  # training loss around that step, if it was recorded
    params: Parameters
    missing: tuple[str, ...]  # Hugging Face's names of the tensors that still have their initial values
    labels: tuple[str, ...]
    tokenizer: Tokenizer

    @property
    def tensors(self) -> dict[str, Array]:
        """Return the trained tensors with Hugging Face's names and layout: weights are (outputs, inputs)."""
        tensors = hub.to_hf(self.params)
        lost = self.lost
        return {name: tensor for name, tensor in tensors.items() if not name.startswith(lost)}

    @property
    def lost(self) -> tuple[str, ...]:
        """Return the name prefixes of the pooler and heads that are left out because they lack training."""
        return tuple(part for part in PARTS if any(name.startswith(part) for name in self.missing))


def read_model(model: str | os.PathLike[str] | Bert | Estimator) -> Model:
    """Read a model, or take one from memory.

    Parameters
    ----------
    model : str, path, Bert or Estimator
        A folder or `RUN@STEP`, a `Bert`, or a fitted estimator.

    Returns
    -------
    Model

    Raises
    ------
    InputError
        When `hub.load` raises it, the scripts can't compute the head, there is no vocabulary, an estimator is
        not fitted, or `model` is none of these.
    """
    if isinstance(model, Bert):
        missing = model.missing
        # The scripts use the word embeddings as the decoder. A model with a separate decoder is therefore
        # shown without its head for masked words, although `Bert.from_pretrained` counts it as trained.
        if model.params.decoder is not None:
            names = hub.to_hf(model.params)
            missing += tuple(name for name in names if name.startswith("cls.predictions."))
        return Model(
            "Bert",
            step=None,
            loss=None,
            params=model.params,
            missing=missing,
            labels=(),
            tokenizer=model.tokenizer,
        )
    if isinstance(model, Estimator):
        return _of_estimator(model)
    if not isinstance(model, str | os.PathLike):
        advice = "give a folder, a Run, a Bert or an estimator"
        raise InputError(f"model={short(model)} can't be shown; {advice}.", model=model)
    model = os.fspath(model)
    _, params, report = hub.load(model)
    head = params.head
    _require_shown(head, f"'{model}'")
    folder, checkpoint = locate(model)
    step = None
    labels: tuple[str, ...] = ()
    if checkpoint is not None:
        step = step_of(checkpoint)
    elif head.kind in hub.LABELLED:
        labels = hub.load_labels(folder_of(model))
    return Model(
        Path(os.path.abspath(model)).name,
        step=step,
        tokenizer=read_tokenizer(model, params.config),
        loss=_loss(folder, step),
        params=params,
        missing=report.missing,
        labels=labels,
    )


def _of_estimator(estimator: Estimator) -> Model:
    """Take the model from a fitted estimator."""
    name = type(estimator).__name__
    fitted = estimator.model_
    _require_shown(fitted.head, f"This {name}")
    labels: tuple[str, ...] = ()
    if fitted.head.kind in hub.LABELLED:
        labels = tuple(fitted.labels)
    return Model(
        name,
        step=None,
        loss=None,
        params=fitted.params,
        missing=(),
        labels=labels,
        tokenizer=fitted.tokenizer,
    )


def _require_shown(head: Head, whose: str) -> None:
    """Raise InputError for a head that the scripts can't compute."""
    if not (head.lstm or head.pool):
        return
    what = "a head that joins the windows of long texts"
    if head.lstm:
        what = "LSTMs on its encoder"
    raise InputError(f"{whose} has {what}, which a page can't compute; show the model it was tuned from.")


def _loss(folder: Path, step: int | None) -> float | None:
    """Return the mean training loss of the last recorded steps up to `step`; None if there is no record."""
    try:
        lines = read_metrics(folder)
    except MissingFile:
        return None
    losses = []
    for line in lines:
        if "loss" in line and (step is None or line["step"] <= step):
            losses.append(line["loss"])
    loss = np.mean(losses[-LOSS_STEPS:] or [np.nan])
    return float(loss) if np.isfinite(loss) else None


def packed_checkpoint(model: Model, int8: bool) -> dict[str, Any]:
    """Return a model in the form that the scripts read.

    Parameters
    ----------
    model : Model
    int8 : bool
        Round its matrices to 8 bits instead of float16.

    Returns
    -------
    dict
        The configuration, the tensors (see `packed_tensor`), the task of the head, and as `error` how much
        rounding changed the weights.
    """
    config = model.params.config
    head = model.params.head
    tensors = {name: packed_tensor(tensor, int8) for name, tensor in model.tensors.items()}
    fields = {name: getattr(config, name) for name in FIELDS}
    outputs = KINDS[head.kind].outputs  # None: one output for each class
    classes: list[str] = []
    if outputs is None:
        classes = list(model.labels) or [f"LABEL_{index}" for index in range(head.outputs)]
    task = None
    if outputs != 0 and not model.lost:
        task = {"kind": head.kind, "labels": classes}
    return {
        "name": model.name,
        "step": model.step,
        "loss": model.loss,
        "config": fields | {"gelu": config.gelu_form, "causal": config.is_decoder},
        "tensors": tensors,
        "error": _error(model.tensors, tensors),
        "task": task,
    }


def packed_tensor(tensor: Array, int8: bool) -> dict[str, Any]:
    """Round a tensor to float16, or a matrix to 8 bits with a float32 scale for each row.

    Parameters
    ----------
    tensor : array
        Values beyond the range of float16 are clipped to it.
    int8 : bool
        Round matrices to 8 bits.

    Returns
    -------
    dict
        `shape`, `kind` ("f16" or "i8"), `data` and, for 8 bits, `scale`, the latter two in base64.
    """
    shape = list(tensor.shape)
    if not int8 or tensor.ndim != 2:
        half = tensor.clip(-LARGEST_HALF, LARGEST_HALF).astype("<f2")
        return {"shape": shape, "kind": "f16", "data": _base64(half)}
    largest = np.abs(tensor).max(1, keepdims=True)
    scale = (largest / LARGEST_INT8).astype("<f4")
    divisor = np.where(scale > 0, scale, 1)  # avoids 0 / 0 in a row of zeros
    whole = np.rint(tensor / divisor).clip(-LARGEST_INT8, LARGEST_INT8).astype(np.int8)
    return {
        "shape": shape,
        "kind": "i8",
        "data": _base64(whole),
        "scale": _base64(scale),
    }


def unpacked(packed: dict[str, Any]) -> Array:
    """Restore a tensor from its packed form, as the scripts do.

    Parameters
    ----------
    packed : dict
        A result of `packed_tensor`.

    Returns
    -------
    array float32
        The rounded tensor, in its original shape.
    """
    shape = packed["shape"]
    data = base64.b64decode(packed["data"])
    if packed["kind"] == "f16":
        half = np.frombuffer(data, "<f2")
        return half.astype(np.float32).reshape(shape)
    whole = np.frombuffer(data, np.int8).reshape(shape)
    scale = np.frombuffer(base64.b64decode(packed["scale"]), "<f4")
    return whole * scale[:, None]


def _error(exact: dict[str, Array], packed: dict[str, Any]) -> float:
    """Return the relative rounding error: root mean square of the errors over that of the weights."""
    size = 0.0
    squares = 0.0
    for name, tensor in exact.items():
        error = unpacked(packed[name]) - tensor
        size += float(np.vdot(tensor, tensor))
        squares += float(np.vdot(error, error))
    return float(np.sqrt(squares / size)) if size else 0.0


def packed_size(model: Model, int8: bool) -> int:
    """Return how many characters the weights of a model take in a page.

    Parameters
    ----------
    model : Model
    int8 : bool
        See `packed_checkpoint`.

    Returns
    -------
    int
        Characters of base64, four for every three bytes.
    """
    characters = 0
    for tensor in model.tensors.values():
        size = 2 * tensor.size
        if int8 and tensor.ndim == 2:
            size = tensor.size + 4 * len(tensor)
        characters += size * 4 // 3
    return characters


def _base64(array: Array) -> str:
    """Write the bytes of an array in base64."""
    return base64.b64encode(array.tobytes()).decode("ascii")


def packed_tokenizer(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the data that the scripts need to tokenize in the same way as a tokenizer.

    Parameters
    ----------
    tokenizer : Tokenizer

    Returns
    -------
    dict
        The tokenizer's rules, and the tables of Unicode that they need; classes of code points are given by
        their `_borders`.

    Raises
    ------
    InputError
        When an added token is matched in a way that the scripts don't support.
    """
    basic = tokenizer.basic_tokenizer
    tables = unicode.data()
    lengths = np.diff([*tables.starts, LAST])
    flags = np.repeat(tables.flags, lengths)  # one for every code point
    classes = {
        "deleted": flags & basic.deleted,
        "space": flags & unicode.SPACE,
        "alone": flags & basic.apart == unicode.IDEOGRAPH,
        "punctuation": flags & unicode.PUNCTUATION,
        "nonspacing": flags & unicode.NONSPACING,
        "cased": flags & unicode.CASED,
        "case_ignorable": flags & unicode.CASE_IGNORABLE,
        "segment_start": flags & unicode.SEGMENT_START,
    }
    lower = tables.lower if basic.lower_case else {}
    decompositions = tables.decompositions if basic.strip_accents or basic.composes else {}
    return {
        "lower": {chr(code): image for code, image in lower.items()},
        "lower_case": basic.lower_case,
        "strip_accents": basic.strip_accents,
        "composes": basic.composes,
        "final_sigma": basic.final_sigma,
        "odd_to_longer": tokenizer.compat == "hf-fast",
        "max_input_chars_per_word": tokenizer.max_input_chars_per_word,
        "special": _kept_whole(tokenizer),
        "unmatched": tokenizer.unmatched,
        "never_split": list(basic.never_split),
        "classes": {name: _borders(belongs != 0) for name, belongs in classes.items()},
        "combining": _combining(tables.combining),
        "decompositions": {chr(code): image for code, image in decompositions.items()},
        "compositions": tables.compositions if basic.composes else {},
    }


def _kept_whole(tokenizer: Tokenizer) -> list[str]:
    """Return the special and added tokens that are kept whole in a text, the longest first."""
    added = tokenizer.added_tokens.values()
    for token in added:
        if token.normalized or token.single_word:
            what = f"The added token {token.content!r} is found in normalised text, or as a whole word only"
            raise InputError(f"{what}, which a page can't do; show the model it was added to.")
    special = () if tokenizer.split_special_tokens else tokenizer.special_tokens
    kept = [*special]
    kept += [token.content for token in added if not token.special or special]
    return sorted(dict.fromkeys(kept), key=len, reverse=True)


def _combining(classes: dict[int, int]) -> dict[str, list[int]]:
    """Return the borders of each combining class."""
    class_of = np.zeros(LAST, np.uint8)  # combining class of every code point
    class_of[list(classes)] = list(classes.values())
    return {str(value): _borders(class_of == value) for value in dict.fromkeys(classes.values())}


# belongs (LAST,) bool
def _borders(belongs: Array) -> list[int]:
    """Return where runs of a class of code points begin and end, as distances from the border before."""
    borders = np.flatnonzero(np.diff(belongs, prepend=False, append=False))
    return np.diff(borders, prepend=0).tolist()
