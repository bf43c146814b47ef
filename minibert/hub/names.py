"""Hugging Face's names and layout of our parameters.

Two things differ between the layouts. Their linear weights are (outputs, inputs), ours (inputs, outputs);
their query, key and value are three matrices, ours stand side by side in one.
"""

import re
from collections.abc import Iterator

import numpy as np

from minibert.core.folder import NAMES as NAMES, hugging_face_names
from minibert.core.params import Entry
from minibert.model.head_kinds import KINDS
from minibert.model.params import Head, Parameters

# Second names of one tensor, which some files carry beside the first or in its place.
DECODER, DECODER_BIAS = "cls.predictions.decoder.weight", "cls.predictions.decoder.bias"
TIED = {DECODER: "bert.embeddings.word_embeddings.weight", DECODER_BIAS: "cls.predictions.bias"}
MASKED_LM = "cls.predictions."  # as the names of the masked-LM head begin
LINEAR = "weight"  # as ours of linear layers end; embeddings are tables, alike in both layouts
REPLACEABLE = ("pooler", "mlm", "nsp", "lstm", "head")  # what a model for something else may have lost
QUERY, POOL_QUERY = "head.query", "classifier.query"  # of attention over windows, which it has not either
# As the parameters of LSTMs begin, which Hugging Face has no counterpart of: they keep names and layout.
LSTM = "lstm."
# Names that a bare encoder begins with, and spellings of the first released checkpoints.
SPELLINGS = (
    (re.compile(r"^(?=(embeddings|encoder|pooler)\.)"), "bert."),
    (re.compile(r"(?<=LayerNorm\.)gamma$"), "weight"),
    (re.compile(r"(?<=LayerNorm\.)beta$"), "bias"),
)


def to_hf(parameters: Parameters) -> dict[str, np.ndarray]:
    """Return parameters, or gradients, under Hugging Face's names and in its layout: views of the buffer."""
    return {theirs: part for _, theirs, part in parts(parameters)}


def parts(parameters: Parameters) -> Iterator[tuple[str, str, np.ndarray]]:
    """Yield our name and theirs of every tensor, with the view of our array that it stands for."""
    for entry in parameters.table:
        names = _theirs(entry, parameters.head)
        for theirs, part in zip(names, np.split(parameters[entry.name], len(names), axis=-1), strict=True):
            yield entry.name, theirs, part.T if entry.name.endswith(LINEAR) else part


def shapes(table: list[Entry], head: Head) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Yield our name, theirs and their shape, with no array made: a configuration may ask for anything."""
    for entry in table:
        names = _theirs(entry, head)
        shape = (*entry.shape[:-1], entry.shape[-1] // len(names))
        for theirs in names:
            yield entry.name, theirs, shape[::-1] if entry.name.endswith(LINEAR) else shape


def head_names(head: Head) -> tuple[str, str]:
    """Return their names of weight and bias of a task's output layer."""
    layer = KINDS[head.kind].output_layer
    return f"{layer}.weight", f"{layer}.bias"


def _theirs(entry: Entry, head: Head) -> list[str]:
    """Return Hugging Face's name of a parameter; three for the joint projection of attention."""
    if entry.name.startswith(LSTM):
        return [entry.name]
    if entry.name == QUERY:
        return [POOL_QUERY]
    if entry.name.startswith("head."):
        return [head_names(head)[entry.name == "head.bias"]]
    return hugging_face_names(entry.name)
