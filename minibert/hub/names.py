"""Translate between our parameters and Hugging Face's names and layout.

The layouts differ in two ways. Linear weights are (outputs, inputs) in theirs and (inputs, outputs) in ours;
query, key and value are three matrices in theirs and the columns of one matrix in ours.
"""

import re
from collections.abc import Iterator

import numpy as np

from minibert.core.folder import NAMES as NAMES, hugging_face_names
from minibert.core.params import Entry
from minibert.model.head_kinds import KINDS
from minibert.model.params import Head, Parameters

# Second names of a tensor, which some files have in addition to the first or instead of it.
DECODER = "cls.predictions.decoder.weight"
DECODER_BIAS = "cls.predictions.decoder.bias"
TIED = {DECODER: "bert.embeddings.word_embeddings.weight", DECODER_BIAS: "cls.predictions.bias"}
MASKED_LM = "cls.predictions."  # how the names of the masked-LM head begin
LINEAR = "weight"  # how our names of linear weights end; embeddings have the same layout in both
REPLACEABLE = ("pooler", "mlm", "nsp", "lstm", "head")  # parts that a model for another purpose may lack
# The query of attention over windows has no name in Hugging Face: our name, and the one in files.
QUERY = "head.query"
POOL_QUERY = "classifier.query"
# How the names of LSTM parameters begin. Hugging Face has no counterpart, so they keep names and layout.
LSTM = "lstm."
# The prefix that a bare encoder lacks, and spellings of the first released checkpoints.
SPELLINGS = (
    (re.compile(r"^(?=(embeddings|encoder|pooler)\.)"), "bert."),
    (re.compile(r"(?<=LayerNorm\.)gamma$"), "weight"),
    (re.compile(r"(?<=LayerNorm\.)beta$"), "bias"),
)


def to_hf(parameters: Parameters) -> dict[str, np.ndarray]:
    """Return parameters, or gradients, with Hugging Face's names and layout.

    Parameters
    ----------
    parameters : Parameters
        Parameters of a BERT with its head.

    Returns
    -------
    dict of str to array
        Views of the buffer: writing into them changes the parameters.
    """
    return {theirs: part for _, theirs, part in parts(parameters)}


def parts(parameters: Parameters) -> Iterator[tuple[str, str, np.ndarray]]:
    """Pair every Hugging Face tensor with the matching part of our parameters.

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
    """List the tensors of a model without making arrays, since a configuration may ask for any size.

    Parameters
    ----------
    table : list of Entry
        The parameters of the model.
    head : Head
        The head on its encoder.

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
    """Return Hugging Face's names for the weight and bias of a task's output layer.

    Parameters
    ----------
    head : Head
        A head with an output layer; that of pre-training has none.

    Returns
    -------
    tuple of two str
        For example "classifier.weight" and "classifier.bias".
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
