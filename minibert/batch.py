"""Batch: flat tokens and where sequences begin. No padding; only heads and attention look at borders."""

import dataclasses
from collections.abc import Iterator, Sequence as Many
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from minibert.config import BertConfig
from minibert.errors import InputError


class Sequence(NamedTuple):
    """One packed sequence, `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`, and what is to be predicted in it."""

    input_ids: np.ndarray  # (n,) vocabulary ids, masking already applied
    token_type_ids: np.ndarray  # (n,) 0 in segment A, 1 in segment B
    masked_positions: np.ndarray  # (m,) positions within the sequence, ascending
    masked_labels: np.ndarray  # (m,) the ids that stood there
    next_sentence_label: int = -1  # 0 IsNext, 1 NotNext, -1 not asked


@dataclass(frozen=True)
class Batch:
    """T tokens of S sequences in a row, with M positions to predict (NumPy arrays, host memory).

    Weights are 1 / (count in the whole global batch), so that losses and gradients of micro-batches and
    shards simply add up.
    """

    input_ids: np.ndarray  # (T,) int32
    token_type_ids: np.ndarray  # (T,) int32
    positions: np.ndarray  # (T,) int32, position within the sequence
    cu_seqlens: np.ndarray  # (S+1,) int32, sequence s is rows cu_seqlens[s]:cu_seqlens[s+1]
    sequence_index: np.ndarray  # (S,) uint32, number in the global batch: half of the dropout row key
    masked_rows: np.ndarray  # (M,) int32, rows of the flat T
    masked_labels: np.ndarray  # (M,) int32
    masked_weights: np.ndarray  # (M,) float64
    next_sentence_labels: np.ndarray  # (S,) int32, -1 where not asked
    next_sentence_weights: np.ndarray  # (S,) float64, 0 where not asked

    @property
    def T(self) -> int:
        """Tokens."""
        return len(self.input_ids)

    @property
    def S(self) -> int:
        """Sequences."""
        return len(self.cu_seqlens) - 1

    @property
    def M(self) -> int:
        """Masked positions."""
        return len(self.masked_rows)

    @classmethod
    def pack(cls, sequences: Many[Sequence]) -> "Batch":
        """Lay sequences end to end, as one global batch.

        Raises
        ------
        InputError
            When there is no sequence, one of them is empty, or its parts are not of equal length.
        """
        if not sequences:
            raise InputError("sequences=[] makes no batch; give at least one sequence.")
        lengths = np.array([len(sequence.input_ids) for sequence in sequences])
        if not lengths.all():
            raise InputError(
                f"Sequence {int(lengths.argmin())} is empty; give it at least [CLS] and [SEP]."
            )
        for number, sequence in enumerate(sequences):
            for one, other in (("input_ids", "token_type_ids"), ("masked_positions", "masked_labels")):
                counts = len(getattr(sequence, one)), len(getattr(sequence, other))
                if counts[0] != counts[1]:
                    raise InputError(
                        f"Sequence {number} has {counts[0]} {one} and {counts[1]} {other}; give as many."
                    )
        begins = np.concatenate([[0], np.cumsum(lengths)])
        rows = [start + np.asarray(s.masked_positions) for start, s in zip(begins, sequences, strict=False)]
        masked_rows = np.concatenate(rows).astype(np.int32)
        next_labels = np.array([s.next_sentence_label for s in sequences], np.int32)
        asked = next_labels >= 0
        return cls(
            input_ids=np.concatenate([s.input_ids for s in sequences]).astype(np.int32),
            token_type_ids=np.concatenate([s.token_type_ids for s in sequences]).astype(np.int32),
            positions=(np.arange(begins[-1]) - np.repeat(begins[:-1], lengths)).astype(np.int32),
            cu_seqlens=begins.astype(np.int32),
            sequence_index=np.arange(len(sequences), dtype=np.uint32),
            masked_rows=masked_rows,
            masked_labels=np.concatenate([s.masked_labels for s in sequences]).astype(np.int32),
            masked_weights=np.full(len(masked_rows), 1.0 / max(1, len(masked_rows))),
            next_sentence_labels=next_labels,
            next_sentence_weights=asked / max(1, int(asked.sum())),
        )

    def take(self, first: int, last: int) -> "Batch":
        """Sequences `first` to `last` (exclusive), with their weights and numbers in the global batch."""
        begin, end = int(self.cu_seqlens[first]), int(self.cu_seqlens[last])
        masked = (self.masked_rows >= begin) & (self.masked_rows < end)
        return dataclasses.replace(
            self,
            input_ids=self.input_ids[begin:end],
            token_type_ids=self.token_type_ids[begin:end],
            positions=self.positions[begin:end],
            cu_seqlens=self.cu_seqlens[first : last + 1] - self.cu_seqlens[first],
            sequence_index=self.sequence_index[first:last],
            masked_rows=self.masked_rows[masked] - np.int32(begin),
            masked_labels=self.masked_labels[masked],
            masked_weights=self.masked_weights[masked],
            next_sentence_labels=self.next_sentence_labels[first:last],
            next_sentence_weights=self.next_sentence_weights[first:last],
        )

    def split(self, parts: int) -> Iterator["Batch"]:
        """Micro-batches of about as many sequences each, whose losses and gradients sum to this batch's."""
        if not 1 <= parts <= self.S:
            raise InputError(
                f"parts={parts} does not split {self.S} sequences; choose from 1 to {self.S}."
            )
        borders = [self.S * part // parts for part in range(parts + 1)]
        for first, last in zip(borders, borders[1:], strict=False):
            yield self.take(first, last)

    def validate(self, config: BertConfig) -> None:
        """Check every index against the model it is meant for.

        Raises
        ------
        InputError
            When an id is outside the vocabulary or the segments, or a sequence is longer than the positions.
        """
        for name, values, limit, field in (
            ("input_ids", self.input_ids, config.V, "vocab_size"),
            ("masked_labels", self.masked_labels, config.V, "vocab_size"),
            ("token_type_ids", self.token_type_ids, config.type_vocab_size, "type_vocab_size"),
            ("masked_rows", self.masked_rows, self.T, "the number of tokens"),
        ):
            bad = np.flatnonzero((values < 0) | (values >= limit))
            if len(bad):
                raise InputError(
                    f"{name}[{bad[0]}]={values[bad[0]]} is outside 0..{limit - 1} ({field}={limit}); "
                    "was the text tokenized with this model's own vocabulary?"
                )
        labels = self.next_sentence_labels
        if len(bad := np.flatnonzero((labels < -1) | (labels > 1))):
            raise InputError(
                f"next_sentence_labels[{bad[0]}]={labels[bad[0]]} is none of 0 (IsNext), 1 (NotNext) and "
                "-1 (not asked)."
            )
        longest = int(self.positions.max()) + 1
        if longest > config.P:
            raise InputError(
                f"A sequence of {longest} tokens is longer than the model's {config.P} positions; "
                f"shorten the input or pre-train with max_position_embeddings={longest}."
            )
