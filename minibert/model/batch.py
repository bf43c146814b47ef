"""Further batches: parts for several processes, windows of long texts, and vectors instead of tokens."""

import dataclasses
from collections import abc
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from minibert.core import batch as core
from minibert.core.batch import Batch, Feature, Sequence
from minibert.core.errors import InputError
from minibert.model.params import Head


@dataclass(frozen=True)
class BatchPart(Batch):
    """One process's part of a global batch, with weights of its own and shapes that fit every part.

    Attributes
    ----------
    parts : int
        Number of parts.
    sequences : int
        Number of sequences in the global batch.
    longest : int
        Most tokens in a sequence of the global batch.
    most_masked : int
        Most positions to predict in a sequence of the global batch.
    asks : bool
        Whether any sequence of the global batch has a next-sentence label.
    """

    parts: int
    sequences: int
    longest: int
    most_masked: int
    asks: bool

    @property
    def asks_next(self) -> bool:
        """Return whether any sequence of the global batch has a next-sentence label."""
        return self.asks


@dataclass(frozen=True)
class TaskBatch(core.TaskBatch):
    """A batch for fine-tuning, with labels; an example may be several windows of a long text."""

    windows: Any = None  # for long texts: (E,W) int32, indices of each example's sequences, then -1

    @property
    def first_sequences(self) -> np.ndarray:  # (E,)
        """Return the index of each example's first sequence."""
        if self.windows is None:
            return super().first_sequences
        return self.windows[:, 0]

    @classmethod
    def pack_features(  # type: ignore[override]
        cls, features: abc.Sequence[Feature], head: Head
    ) -> Self:
        """Lay the sequences of features end to end, as one global batch; with `head.pool`, as windows.

        Parameters
        ----------
        features : sequence of Feature
            At least one.
        head : Head
            The head that the labels are for.

        Returns
        -------
        TaskBatch

        Raises
        ------
        InputError
            When there is no feature, or they don't fit together; see `core.batch.TaskBatch.pack_features`.
        """
        if not head.pool:
            return super().pack_features(features, head)
        if not features:
            raise InputError("features=[] makes no batch; give at least one.")
        counts = np.array([len(feature.sequences) for feature in features])[:, None]
        places = np.arange(counts.max())
        begins = np.cumsum(counts)[:, None] - counts
        windows = np.where(places < counts, places + begins, -1).astype(np.int32)
        batch = Batch.pack([sequence for feature in features for sequence in feature.sequences])
        first_rows = batch.cu_seqlens[windows[:, 0]]
        return cls._with_labels(batch, first_rows, features, head, windows=windows)

    def take(self, first: int, last: int) -> Self:
        """Return examples `first` to `last` (exclusive), with the weights and indices of the global batch.

        Parameters
        ----------
        first, last : int
            Indices of examples in this batch.
        """
        part = super().take(first, last)
        if self.windows is None:
            return part
        begin = int(self.windows[first, 0])
        windows = np.maximum(self.windows[first:last] - begin, -1)
        return dataclasses.replace(part, windows=windows)


@dataclass(frozen=True)
class VectorBatch(TaskBatch):
    """A batch for tagging, with vectors instead of tokens: the hidden states of a frozen encoder."""

    vectors: np.ndarray = dataclasses.field(kw_only=True)  # (T,I), or (N,T,I) to mix N layers

    @classmethod
    def pack_vectors(
        cls,
        vectors: abc.Sequence[np.ndarray],
        labels: abc.Sequence[np.ndarray | None],
        rows: abc.Sequence[np.ndarray] | None = None,
    ) -> "VectorBatch":
        """Lay sequences of vectors end to end.

        Parameters
        ----------
        vectors : sequence of (n,I)
            The vectors of each sequence; (N,n,I) to mix N layers.
        labels : sequence of (m,) or None
            The tags of each sequence; None where they are unknown.
        rows : sequence of (m,), optional
            Indices of the vectors that have a tag, for each sequence; all by default.

        Returns
        -------
        VectorBatch
        """
        lengths = [sequence.shape[-2] for sequence in vectors]
        if rows is None:
            rows = [np.arange(n) for n in lengths]
        features = []
        for n, label, tagged in zip(lengths, labels, rows, strict=True):
            nothing = np.zeros(n, np.int32)  # in place of ids and segments
            features.append(Feature((Sequence(nothing, nothing),), label, tagged))
        batch = TaskBatch.pack_features(features, Head("tag", 1))
        return cls(**vars(batch), vectors=np.concatenate(vectors, axis=-2))

    def take(self, first: int, last: int) -> Self:
        """Return sequences `first` to `last` (exclusive), with their vectors.

        Parameters
        ----------
        first, last : int
            Indices of sequences in this batch.
        """
        begin = int(self.cu_seqlens[first])
        end = int(self.cu_seqlens[last])
        vectors = self.vectors[..., begin:end, :]
        return dataclasses.replace(super().take(first, last), vectors=vectors)
