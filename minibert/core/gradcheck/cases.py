"""Cases of the gradient check: an operation or a loss, with inputs to call it on.

Sizes are awkward on purpose (nothing divides anything, sequences of one token, nothing masked), and every row
of a loss has its own weight, so that no fault goes unnoticed.
"""

import dataclasses
from collections import abc
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from minibert.core.batch import Batch, Feature, Sequence, TaskBatch
from minibert.core.config import BertConfig
from minibert.core.head_kinds import LABELS
from minibert.core.ops import Ops
from minibert.core.params import PRETRAINING, FlatParameters, Parameters, ones

Arrays = dict[str, Any]
Drop = Callable[..., Any] | None  # (ops, batch) -> dropout; None: no dropout


class Size(NamedTuple):
    """A shape to check at: the lengths of the sequences, and the dimensions of the model by their letters."""

    lengths: tuple[int, ...]
    H: int
    A: int
    F: int
    V: int
    M: int


SIZES = {
    "ugly": Size((1, 2, 7, 13, 7, 31), H=24, A=3, F=37, V=99, M=9),
    "aligned": Size((16, 16, 16, 16), H=32, A=2, F=64, V=128, M=8),
}


class Case(NamedTuple):
    """One operation, its arguments, and how to call it and its backward."""

    operation: str  # a method of `Ops`, or the name of a loss
    variant: str  # what is particular about this case
    inputs: Arrays  # float64; their gradients are returned
    params: Arrays  # float64, by name; their gradients are accumulated
    forward: Callable[..., tuple[Any, Any]]  # (ops, inputs, tree of params) -> y, saved
    backward: Callable[..., tuple[Any, Any]]  # (ops, dy, saved, params, grads) -> gradients of inputs, grads
    unseen: tuple[str, ...] = ()  # arguments that do not affect the result, whatever their value
    reference: Ops = Ops()  # the engine that is differentiated: plain NumPy with all operations of the case

    @property
    def label(self) -> str:
        """Return the name of the case, as printed in the table of errors."""
        return f"{self.operation} {self.variant}".strip()

    @property
    def arguments(self) -> Arrays:
        """Return inputs and parameters together."""
        return self.inputs | self.params


def random_batch(
    size: Size,
    M: int,
    rng: np.random.Generator,
    next_sentence: bool = True,
) -> Batch:
    """Draw tokens with M masked positions; the sequences are unlabelled, IsNext and NotNext in turn.

    Parameters
    ----------
    size : shape, with the lengths of the sequences.
    M : number of masked positions, at most the number of tokens.
    rng : source of all draws.
    next_sentence : whether sequences have next-sentence labels.
    """
    T = sum(size.lengths)
    begins = np.cumsum([0, *size.lengths])
    masked = rng.permutation(T)[:M]
    sequences = []
    for number, (begin, length) in enumerate(zip(begins, size.lengths, strict=False)):
        within = masked[(masked >= begin) & (masked < begin + length)]
        positions = np.sort(within) - begin
        ids = rng.integers(size.V, size=length)
        segments = np.arange(length) * 2 // length
        labels = rng.integers(size.V, size=len(positions))
        order = number % 3 - 1 if next_sentence else -1
        sequences.append(Sequence(ids, segments, positions, labels, order))
    return unevenly_weighted(Batch.pack(sequences), rng, "masked_weights", "next_sentence_weights")


def unevenly_weighted(batch: Any, rng: np.random.Generator, *names: str) -> Any:
    """Return a copy of a batch in which every row of a loss has a different weight.

    Parameters
    ----------
    batch : the batch; weights of zero stay zero.
    rng : source of the draws.
    *names : names of the fields with weights.
    """
    uneven = {}
    for name in names:
        weights = getattr(batch, name)
        uneven[name] = weights * rng.uniform(0.5, 1.5, len(weights))
    return dataclasses.replace(batch, **uneven)


def random_task_batch(
    size: Size,
    head: Any,
    rng: np.random.Generator,
    tagged: float = 0.4,
    borders: abc.Sequence[int] | None = None,
    label_limit: int | None = None,
    batches: type[TaskBatch] = TaskBatch,
) -> TaskBatch:
    """Draw tokens and labels for a head: pairs of sequences for a choice, tags for some of the tokens.

    Parameters
    ----------
    size : shape, with the lengths of the sequences.
    head : the head that the labels are for.
    rng : source of all draws.
    tagged : share of the tokens that have a tag.
    borders : (E+1,) index of each example's first sequence, then S. None: one sequence per example, two for a
        choice.
    label_limit : upper bound of labels that consist of several integers. None: the length of the sequence.
    batches : class of the batch.
    """
    kind = head.spec

    def sequence(length: int) -> Sequence:
        ids = rng.integers(size.V, size=length)
        return Sequence(ids, np.arange(length) * 2 // length)

    def label(length: int, rows: Any) -> Any:
        if kind.label_shape == (0,):
            applies = rng.random(head.outputs) < 0.5
            return applies * rng.uniform(0.5, 1.5, head.outputs)
        if kind.label_shape:
            return np.sort(rng.integers(label_limit or length, size=kind.label_shape))
        if kind.reads == LABELS:
            return rng.integers(head.outputs, size=len(rows))
        if kind.label_dtype == "int32":
            return rng.integers(max(2, head.outputs))
        return rng.standard_normal()

    if borders is None:
        together = 2 if head.kind == "choice" else 1
        borders = range(0, len(size.lengths) + 1, together)
    features = []
    for begin, end in pairwise(borders):
        lengths = size.lengths[begin:end]
        rows = None
        if kind.reads == LABELS:
            rows = np.flatnonzero(rng.random(lengths[0]) < tagged)
        features.append(Feature(tuple(map(sequence, lengths)), label(lengths[0], rows), rows))
    return unevenly_weighted(batches.pack_features(features, head), rng, "label_weights")


def config_of(size: Size, **fields: Any) -> BertConfig:
    """Configure a model of two layers of a size, unless `fields` say otherwise.

    Parameters
    ----------
    size : the dimensions of the model.
    **fields : other values for fields of `BertConfig`.
    """
    shape = {
        "hidden_size": size.H,
        "num_attention_heads": size.A,
        "intermediate_size": size.F,
        "vocab_size": size.V,
        "max_position_embeddings": max(size.lengths),
        "num_hidden_layers": 2,
    }
    return BertConfig(**shape | fields)


def random_parameters(
    config: BertConfig,
    rng: np.random.Generator,
    head: Any = PRETRAINING,
    kind: type[Parameters] = Parameters,
) -> Parameters:
    """Draw parameters in general position: no bias is zero, no scale is one, activations are of order one.

    Parameters
    ----------
    config : the shape of the encoder.
    rng : source of all draws.
    head : the head on top; the heads of pre-training by default.
    kind : class of the parameters.

    Returns
    -------
    parameters, in float64.
    """
    return in_general_position(kind(config, dtype=np.float64, head=head), rng)


def in_general_position(parameters: FlatParameters, rng: np.random.Generator) -> Any:
    """Draw the values of parameters in general position: no bias is zero, and no scale is one.

    Parameters
    ----------
    parameters : changed in place, and returned.
    rng : source of all draws.
    """
    parameters.flat[:] = 0.3 * rng.standard_normal(len(parameters.flat))
    for entry in parameters.table:
        if entry.initial is ones:
            parameters[entry.name][...] += 1
    return parameters


def dropout_of(ops: Any, batch: Batch) -> Any:
    """Draw the dropout of a batch, at two different rates so that mixing them up is noticed.

    Parameters
    ----------
    ops : the engine that draws.
    batch : the batch.
    """
    return ops.dropout(batch, 0.1, 0.2, seed=3, step=11)
