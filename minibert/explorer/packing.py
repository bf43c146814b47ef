"""From models to the page's data: weights rounded to float16 or int8, vocabulary, tables of Unicode."""

import base64
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from minibert import hub
from minibert.ask.inference import Bert
from minibert.base.errors import InputError, MissingFile
from minibert.base.model_names import folder_of, locate, step_of
from minibert.core.arrays import Array
from minibert.hub.vocabularies import read_tokenizer
from minibert.model.head_kinds import KINDS
from minibert.model.params import Parameters
from minibert.tokenizer import Tokenizer, unicode
from minibert.training.runlog import read_metrics

# Fields of the configuration that the scripts read.
FIELDS = "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size".split()
FIELDS += "max_position_embeddings type_vocab_size hidden_act layer_norm_eps".split()
PARTS = ("bert.pooler", "cls.predictions", "cls.seq_relationship", "classifier", "qa_outputs")
LARGEST_HALF = 65504  # of float16
LAST = 0x110000  # behind the last code point


class Model(NamedTuple):
    """A model on its way into a page."""

    name: str
    step: int | None  # of a checkpoint of a run; None: the model at its end
    loss: float | None  # of training, about that step
    params: Parameters
    missing: tuple[str, ...]  # Hugging Face's names of what only has its initial value
    labels: tuple[str, ...]
    tokenizer: Tokenizer

    @property
    def tensors(self) -> dict[str, Array]:
        """What was trained, under Hugging Face's names and in its layout: weights (outputs, inputs)."""
        return {name: one for name, one in hub.to_hf(self.params).items() if not name.startswith(self.lost)}

    @property
    def lost(self) -> tuple[str, ...]:
        """How the names begin of pooler and heads that were not trained, or not all of them."""
        return tuple(part for part in PARTS if any(name.startswith(part) for name in self.missing))


def read_model(model: str | os.PathLike[str] | Bert) -> Model:
    """Read a model by its name, a folder or `RUN@STEP`; or take one that is there already.

    Raise InputError as `hub.load`, for a head that the scripts can't compute, and without a vocabulary.
    """
    if isinstance(model, Bert):
        missing = model.missing
        if model.params.decoder is not None:  # which the scripts don't know
            missing += tuple(name for name in hub.to_hf(model.params) if name.startswith("cls.predictions."))
        return Model("Bert", None, None, model.params, missing, (), model.tokenizer)
    if not isinstance(model, str | os.PathLike):
        raise InputError(f"A {type(model).__name__} can't be shown; save it and give the folder, or a Bert.")
    model = os.fspath(model)
    _, params, report = hub.load(model)
    head = params.head
    if head.lstm or head.pool:
        what = "LSTMs on its encoder" if head.lstm else "a head that joins the windows of long texts"
        raise InputError(f"{model} has {what}, which a page can't compute; show the model it was tuned from.")
    folder, checkpoint = locate(model)
    step = None if checkpoint is None else step_of(checkpoint)
    labels = hub.load_labels(folder_of(model)) if head.kind in hub.LABELLED and checkpoint is None else ()
    name, tokenizer = Path(os.path.abspath(model)).name, read_tokenizer(model, params.config)
    return Model(name, step, _loss(folder, step), params, report.missing, labels, tokenizer)


def _loss(folder: Path, step: int | None) -> float | None:
    """Return the mean of the training loss of the last 20 steps up to one; None where there is no record."""
    try:
        lines = read_metrics(folder)
    except MissingFile:
        return None
    known = [line for line in lines if "loss" in line and (step is None or line["step"] <= step)]
    loss = np.mean([line["loss"] for line in known[-20:]] or [np.nan])
    return float(loss) if np.isfinite(loss) else None


def packed_checkpoint(model: Model, int8: bool) -> dict[str, Any]:
    """Return a model as the scripts read it, and how much rounding changed its weights."""
    config, head = model.params.config, model.params.head
    tensors = {name: packed_tensor(tensor, int8) for name, tensor in model.tensors.items()}
    fields = {name: getattr(config, name) for name in FIELDS}
    outputs = KINDS[head.kind].outputs  # None: one for each class
    classes = list(model.labels) or [f"LABEL_{number}" for number in range(head.outputs)]
    task = {"kind": head.kind, "labels": classes if outputs is None else []}
    return {
        "name": model.name,
        "step": model.step,
        "loss": model.loss,
        "config": fields | {"gelu": config.gelu_form, "causal": config.is_decoder},
        "tensors": tensors,
        "error": _error(model.tensors, tensors),
        "task": task if outputs != 0 and not model.lost else None,
    }


def packed_tensor(tensor: Array, int8: bool) -> dict[str, Any]:
    """Round a tensor to float16, a matrix with `int8` to 8 bits and a float32 scale for each row."""
    shape = list(tensor.shape)
    if not int8 or tensor.ndim != 2:
        half = tensor.clip(-LARGEST_HALF, LARGEST_HALF).astype("<f2")
        return {"shape": shape, "kind": "f16", "data": _base64(half)}
    scale = (np.abs(tensor).max(1, keepdims=True) / 127).astype("<f4")
    whole = np.rint(tensor / np.where(scale > 0, scale, 1)).clip(-127, 127).astype(np.int8)
    return {"shape": shape, "kind": "i8", "data": _base64(whole), "scale": _base64(scale)}


def unpacked(packed: dict[str, Any]) -> Array:
    """Return what the scripts compute with, in float32."""
    data = base64.b64decode(packed["data"])
    if packed["kind"] == "f16":
        return np.frombuffer(data, "<f2").astype(np.float32).reshape(packed["shape"])
    scale = np.frombuffer(base64.b64decode(packed["scale"]), "<f4")
    return np.frombuffer(data, np.int8).reshape(packed["shape"]) * scale[:, None]


def _error(exact: dict[str, Array], packed: dict[str, Any]) -> float:
    """Return the error of rounding as a share of the weights, both as root mean squares."""
    size = sum(float(np.vdot(one, one)) for one in exact.values())
    errors = (unpacked(packed[name]) - one for name, one in exact.items())
    return float(np.sqrt(sum(float(np.vdot(error, error)) for error in errors) / size)) if size else 0.0


def packed_size(model: Model, int8: bool) -> int:
    """Return how many characters the weights of a model take, before any is rounded."""
    tensors = model.tensors.values()
    sizes = (one.size + 4 * len(one) if int8 and one.ndim == 2 else 2 * one.size for one in tensors)
    return sum(size * 4 // 3 for size in sizes)


def _base64(array: Array) -> str:
    return base64.b64encode(array.tobytes()).decode("ascii")


def packed_tokenizer(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return what the scripts need to make the words and pieces that this tokenizer makes."""
    basic, tables = tokenizer.basic_tokenizer, unicode.data()
    flags = np.repeat(tables.flags, np.diff([*tables.starts, LAST]))  # of every code point
    marks = np.zeros(LAST, np.uint8)  # the combining classes
    marks[list(tables.combining)] = list(tables.combining.values())
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
    images = tables.decompositions if basic.strip_accents or basic.composes else {}
    added = tokenizer.added_tokens.values()
    if hard := [token.content for token in added if token.normalized or token.single_word]:
        what = f"The added token {hard[0]!r} is found in normalised text, or as a whole word only"
        raise InputError(f"{what}, which a page can't do; show the model it was added to.")
    kept = () if tokenizer.split_special_tokens else tokenizer.special_tokens
    kept += tuple(token.content for token in added if not token.special or kept)
    special = sorted(dict.fromkeys(kept), key=len, reverse=True)
    return {
        "lower": {chr(code): image for code, image in tables.lower.items()} if basic.lower_case else {},
        **{name: getattr(basic, name) for name in ("lower_case", "strip_accents", "composes", "final_sigma")},
        "odd_to_longer": tokenizer.compat == "hf-fast",
        "max_input_chars_per_word": tokenizer.max_input_chars_per_word,
        "special": special,
        "unmatched": tokenizer.unmatched,
        "never_split": list(basic.never_split),
        "classes": {name: _borders(belongs != 0) for name, belongs in classes.items()},
        "combining": {str(one): _borders(marks == one) for one in dict.fromkeys(tables.combining.values())},
        "decompositions": {chr(code): image for code, image in images.items()},
        "compositions": tables.compositions if basic.composes else {},
    }


# belongs (LAST,) bool
def _borders(belongs: Array) -> list[int]:
    """Return where code points of a class begin and have ended, each as the distance from the one before."""
    borders = np.flatnonzero(np.diff(belongs, prepend=False, append=False))
    return np.diff(borders, prepend=0).tolist()
