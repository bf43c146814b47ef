"""From models to the page's data: weights rounded to float16 or int8, vocabulary, tables of Unicode."""

import base64
import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from minibert import hub
from minibert.arrays import Array
from minibert.errors import InputError, MissingFile
from minibert.inference import Bert
from minibert.model.head_kinds import KINDS
from minibert.model.params import Parameters
from minibert.model_names import folder_of, locate, step_of
from minibert.tokenizer import SPECIAL_TOKENS, Tokenizer, unicode
from minibert.training.runlog import read_metrics
from minibert.vocabularies import read_tokenizer

SMOOTHED = 20  # steps that the loss of a checkpoint is the mean of
# Fields of the configuration that the scripts read.
FIELDS = (
    "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size max_position_embeddings "
    "type_vocab_size hidden_act layer_norm_eps"
).split()
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

    Raise InputError as `hub.load`, when its head is one that the scripts can't compute, and when it has no
    vocabulary.
    """
    if isinstance(model, Bert):
        return Model("Bert", None, None, model.params, model.missing, (), model.tokenizer)
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
    """Return the mean of the training loss over the last steps up to one; None where there is no record."""
    try:
        lines = read_metrics(folder)
    except MissingFile:
        return None
    known = [line for line in lines if "loss" in line and (step is None or line["step"] <= step)]
    loss = np.mean([line["loss"] for line in known[-SMOOTHED:]] or [np.nan])
    return float(loss) if np.isfinite(loss) else None


def packed_checkpoint(model: Model, int8: bool) -> dict[str, Any]:
    """Return a model as the scripts read it, and how much rounding changed its weights."""
    config, head = model.params.config, model.params.head
    tensors = {name: packed_tensor(tensor, int8) for name, tensor in model.tensors.items()}
    fields = {name: getattr(config, name) for name in FIELDS}
    answers = KINDS[head.kind].outputs != 0 and not model.lost
    return {
        "name": model.name,
        "step": model.step,
        "loss": model.loss,
        "config": fields | {"gelu": config.gelu_form, "causal": config.is_decoder},
        "tensors": tensors,
        "error": _error(model.tensors, tensors),
        "task": {"kind": head.kind, "labels": _labels(model)} if answers else None,
    }


def _labels(model: Model) -> list[str]:
    """Return a name for each output of a head that has one for each class."""
    head = model.params.head
    if KINDS[head.kind].outputs is not None:
        return []
    return list(model.labels) or [f"LABEL_{number}" for number in range(head.outputs)]


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
    deleted, apart = basic.deleted, basic.apart
    flags: dict[str, Callable[[int], bool]] = {
        "deleted": lambda flag: bool(flag & deleted),
        "space": lambda flag: bool(flag & unicode.SPACE),
        "alone": lambda flag: flag & apart == unicode.IDEOGRAPH,
        "punctuation": lambda flag: bool(flag & unicode.PUNCTUATION),
        "nonspacing": lambda flag: bool(flag & unicode.NONSPACING),
        "cased": lambda flag: bool(flag & unicode.CASED),
        "case_ignorable": lambda flag: bool(flag & unicode.CASE_IGNORABLE),
        "segment_start": lambda flag: bool(flag & unicode.SEGMENT_START),
    }
    of_class: dict[int, list[int]] = defaultdict(list)
    for code, value in tables.combining.items():
        of_class[value].append(code)
    decomposes = basic.strip_accents or basic.composes
    by_character = {chr(code): image for code, image in tables.decompositions.items()}
    special = sorted((*SPECIAL_TOKENS, *tokenizer.additional_special_tokens), key=len, reverse=True)
    return {
        "lower": {chr(code): image for code, image in tables.lower.items()} if basic.lower_case else {},
        "lower_case": basic.lower_case,
        "strip_accents": basic.strip_accents,
        "composes": basic.composes,
        "final_sigma": basic.final_sigma,
        "odd_to_longer": tokenizer.compat == "hf-fast",
        "max_input_chars_per_word": tokenizer.max_input_chars_per_word,
        "special": special,
        "never_split": list(basic.never_split),
        "classes": {name: _borders(tables, test) for name, test in flags.items()},
        "combining": {str(value): _steps(_ends(codes)) for value, codes in of_class.items()},
        "decompositions": by_character if decomposes else {},
        "compositions": tables.compositions if basic.composes else {},
    }


def _borders(tables: unicode.UnicodeData, test: Callable[[int], bool]) -> list[int]:
    """Return where code points with some flags begin and end, each as the distance from the one before."""
    ranges = pairwise([*tables.starts, LAST])
    belongs = [(start, test(flags)) for (start, _), flags in zip(ranges, tables.flags, strict=True)]
    changes = pairwise([(0, False), *belongs, (LAST, False)])
    return _steps(start for (_, before), (start, after) in changes if before != after)


def _ends(codes: list[int]) -> Iterable[int]:
    """Yield where the ranges of code points begin and have ended."""
    there = {*codes}
    return sorted([*(c for c in there if c - 1 not in there), *(c + 1 for c in there if c + 1 not in there)])


def _steps(borders: Iterable[int]) -> list[int]:
    return [border - before for before, border in pairwise([0, *borders])]
