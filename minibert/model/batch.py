"""Batches that only the product needs: of several processes, of windows of long texts, of vectors."""

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
    """One machine's part of a batch, weighted by itself; the limits of the whole batch fix the shapes."""

    parts: int  # how many there are
    sequences: int  # in the global batch
    longest: int  # tokens of a sequence, at most
    most_masked: int  # positions to predict in a sequence, at most
    asks: bool  # whether the global batch has a question of next sentences

    @property
    def asks_next(self) -> bool:
        """Whether any sequence of the global batch has a next-sentence label."""
        return self.asks


@dataclass(frozen=True)
class TaskBatch(core.TaskBatch):
    """What a task of fine-tuning asks about a batch; an example may be several windows of a long text."""

    windows: Any = None  # of long texts: (E,W) int32, the numbers of each one's sequences, -1 behind them

    @property
    def first_sequences(self) -> np.ndarray:  # (E,)
        """The number of each example's first sequence."""
        return super().first_sequences if self.windows is None else self.windows[:, 0]

    @classmethod
    def pack_features(  # type: ignore[override]
        cls, features: abc.Sequence[Feature], head: Head
    ) -> Self:
        """Lay the sequences of features end to end, as one global batch; with `head.pool` as windows."""
        if not head.pool:
            return super().pack_features(features, head)
        if not features:
            raise InputError("features=[] makes no batch; give at least one.")
        counts = np.array([len(feature.sequences) for feature in features])[:, None]
        places = np.arange(counts.max())
        begins = np.cumsum(counts)[:, None] - counts
        windows = np.where(places < counts, places + begins, -1).astype(np.int32)
        batch = Batch.pack([sequence for feature in features for sequence in feature.sequences])
        return cls._with_labels(batch, batch.cu_seqlens[windows[:, 0]], features, head, windows=windows)

    def take(self, first: int, last: int) -> Self:
        part = super().take(first, last)
        if self.windows is None:
            return part
        begin = int(self.windows[first, 0])
        return dataclasses.replace(part, windows=np.maximum(self.windows[first:last] - begin, -1))


@dataclass(frozen=True)
class VectorBatch(TaskBatch):
    """A batch to be tagged whose tokens are vectors: the hidden states of a frozen encoder."""

    vectors: np.ndarray = dataclasses.field(kw_only=True)  # (T,I), or (N,T,I) where N layers are to be mixed

    @classmethod
    def pack_vectors(
        cls,
        vectors: abc.Sequence[np.ndarray],
        labels: abc.Sequence[np.ndarray | None],
        rows: abc.Sequence[np.ndarray] | None = None,
    ) -> "VectorBatch":
        """Lay sequences of vectors, (n,I), or (N,n,I) where N layers are to be mixed, end to end.

        Each has as `labels` the tags of its `rows`, None where they are not known; without `rows` all of its
        vectors have a tag.
        """
        lengths = [one.shape[-2] for one in vectors]
        rows = [np.arange(n) for n in lengths] if rows is None else rows
        features = [
            Feature((Sequence(np.zeros(n, np.int32), np.zeros(n, np.int32)),), label, own)
            for n, label, own in zip(lengths, labels, rows, strict=True)
        ]
        batch = TaskBatch.pack_features(features, Head("tag", 1))
        return cls(**vars(batch), vectors=np.concatenate(vectors, axis=-2))

    def take(self, first: int, last: int) -> Self:
        begin, end = int(self.cu_seqlens[first]), int(self.cu_seqlens[last])
        return dataclasses.replace(super().take(first, last), vectors=self.vectors[..., begin:end, :])
