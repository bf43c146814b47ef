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
DECODER = "cls.predictions.decoder.weight"
DECODER_BIAS = "cls.predictions.decoder.bias"
TIED = {DECODER: "bert.embeddings.word_embeddings.weight", DECODER_BIAS: "cls.predictions.bias"}
MASKED_LM = "cls.predictions."  # as the names of the masked-LM head begin
LINEAR = "weight"  # as ours of linear layers end; embeddings are tables, alike in both layouts
REPLACEABLE = ("pooler", "mlm", "nsp", "lstm", "head")  # what a model for something else may have lost
# Of attention over windows, which Hugging Face has no name for either: ours, and that in files.
QUERY = "head.query"
POOL_QUERY = "classifier.query"
# As the parameters of LSTMs begin, which Hugging Face has no counterpart of: they keep names and layout.
LSTM = "lstm."
# Names that a bare encoder begins with, and spellings of the first released checkpoints.
SPELLINGS = (
    (re.compile(r"^(?=(embeddings|encoder|pooler)\.)"), "bert."),
    (re.compile(r"(?<=LayerNorm\.)gamma$"), "weight"),
    (re.compile(r"(?<=LayerNorm\.)beta$"), "bias"),
)


def to_hf(parameters: Parameters) -> dict[str, np.ndarray]:
    """Return parameters, or gradients, under Hugging Face's names and in its layout.

    Parameters
    ----------
    parameters : Parameters
        Parameters of a BERT with its head.

    Returns
    -------
    dict of str to array
        Views of the buffer: what is written into them changes the parameters.
    """
    return {theirs: part for _, theirs, part in parts(parameters)}


def parts(parameters: Parameters) -> Iterator[tuple[str, str, np.ndarray]]:
    """Pair every tensor of Hugging Face's with the matching part of our parameters.

    Parameters
    ----------
    parameters : Parameters
        Parameters of a BERT with its head.

    Yields
    ------
    tuple
        Our name, their name, and a view of our array in their layout.
    """
    for entry in parameters.table:
        names = _theirs(entry, parameters.head)
        columns = np.split(parameters[entry.name], len(names), axis=-1)
        for theirs, part in zip(names, columns, strict=True):
            if entry.name.endswith(LINEAR):
                part = part.T
            yield entry.name, theirs, part


def shapes(table: list[Entry], head: Head) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """List the tensors of a model with no array made: a configuration may ask for anything.

    Parameters
    ----------
    table : list of Entry
        The parameters of the model.
    head : Head
        What stands on its encoder.

    Yields
    ------
    tuple
        Our name, their name and their shape.
    """
    for entry in table:
        names = _theirs(entry, head)
        *outer, width = entry.shape
        shape = (*outer, width // len(names))
        if entry.name.endswith(LINEAR):
            shape = shape[::-1]
        for theirs in names:
            yield entry.name, theirs, shape


def head_names(head: Head) -> tuple[str, str]:
    """Return Hugging Face's names of weight and bias of a task's output layer.

    Parameters
    ----------
    head : Head
        One that has such a layer, any but that of pre-training.

    Returns
    -------
    tuple of two str
        As in "classifier.weight" and "classifier.bias".
    """
    layer = KINDS[head.kind].output_layer
    return f"{layer}.weight", f"{layer}.bias"


def _theirs(entry: Entry, head: Head) -> list[str]:
    """Return Hugging Face's name of a parameter; three for the joint projection of attention."""
    if entry.name.startswith(LSTM):
        return [entry.name]
    if entry.name == QUERY:
        return [POOL_QUERY]
    if entry.name.startswith("head."):
        weight, bias = head_names(head)
        return [bias if entry.name == "head.bias" else weight]
    return hugging_face_names(entry.name)
