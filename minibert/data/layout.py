"""Lay spans end to end as N sequences of T tokens in all: `[CLS] A [SEP] B [SEP]`, or `[CLS] A [SEP]`."""

from dataclasses import dataclass, field

import numpy as np

from minibert.core.batch import NOTHING, Sequence
from minibert.data.shards.store import TokenShards
from minibert.tokenizer import Tokenizer
from minibert.tokenizer.encoding import ranges


@dataclass
class Block:
    """N sequences of T tokens in all, C of them text, with M positions to predict.

    `lay_out` makes it without positions; `predict` or `predict_next_tokens` sets them, and `freeze` ends the
    changes. Then `sequence_at` returns the sequences.
    """

    input_ids: np.ndarray  # (T,) int32
    token_type_ids: np.ndarray  # (T,) int32
    begins: np.ndarray  # (N+1,) sequence n is begins[n]:begins[n+1]
    next_labels: list[int]  # N
    rows: np.ndarray  # (C,) the indices, among the T, of the tokens that are text, ascending
    sequence: np.ndarray  # (C,) the sequence that each belongs to
    opening: np.ndarray  # (C,) bool: whether it is the first token of a span
    masked_positions: np.ndarray = field(default_factory=lambda: NOTHING)  # (M,) int32, within the sequence
    masked_labels: np.ndarray = field(default_factory=lambda: NOTHING)  # (M,) int32
    masked_begins: list[int] = field(default_factory=list)  # N+1

    def __post_init__(self) -> None:
        self._begins: list[int] = self.begins.tolist()

    def predict(self, chosen: np.ndarray, visible: np.ndarray) -> None:
        """Make the tokens at some positions the targets, and replace them in the input.

        Parameters
        ----------
        chosen : (M,) int64
            Indices of the positions among the C tokens of text, ascending.
        visible : (M,) int
            The ids that the model sees there.
        """
        rows = self.rows[chosen]
        sequence = self.sequence[chosen]
        self.masked_positions = (rows - self.begins[sequence]).astype(np.int32)
        self.masked_labels = self.input_ids[rows]
        counts = np.bincount(sequence, minlength=len(self.next_labels))
        self.masked_begins = [0, *np.cumsum(counts).tolist()]
        self.input_ids[rows] = visible

    def predict_next_tokens(self) -> None:
        """Make the next token the target of every position except the last of a sequence."""
        is_asked = np.ones(len(self.input_ids), bool)
        is_asked[self.begins[1:] - 1] = False
        counts = np.diff(self.begins) - 1
        from_zero = np.zeros_like(counts)
        self.masked_positions = ranges(from_zero, counts).astype(np.int32)
        self.masked_labels = self.input_ids[np.flatnonzero(is_asked) + 1]
        self.masked_begins = [0, *np.cumsum(counts).tolist()]

    def sequence_at(self, n: int) -> Sequence:
        """Return a sequence as views.

        Parameters
        ----------
        n : int
            Index of the sequence, from 0 to N - 1.

        Returns
        -------
        Sequence
            Its tokens, and its positions to predict once they have been chosen.
        """
        tokens = slice(self._begins[n], self._begins[n + 1])
        masked = slice(self.masked_begins[n], self.masked_begins[n + 1])
        return Sequence(
            self.input_ids[tokens],
            self.token_type_ids[tokens],
            self.masked_positions[masked],
            self.masked_labels[masked],
            self.next_labels[n],
        )

    def freeze(self) -> None:
        """Make the arrays read-only, since sequences are views of shared arrays."""
        for array in (self.input_ids, self.token_type_ids, self.masked_positions, self.masked_labels):
            array.flags.writeable = False


def lay_out(shards: TokenShards, spans: np.ndarray, pairs: bool, tokenizer: Tokenizer) -> Block:
    """Fetch the tokens of N spans and put [CLS] and [SEP] around them.

    Parameters
    ----------
    shards : TokenShards
        The text.
    spans : (N,5) int64
        The fields of `minibert.data.nsp_spans.Spans`.
    pairs : bool
        Whether there is a span B, with a [SEP] after it.
    tokenizer : Tokenizer
        Tokenizer of the shards, for the ids of [CLS] and [SEP].

    Returns
    -------
    Block
        A block without positions to predict.
    """
    a_begin, a_length, b_begin, b_length, next_labels = spans.T
    special = 3 if pairs else 2
    begins = np.concatenate([[0], np.cumsum(a_length + b_length + special)])

    # A and B of each sequence in turn: length, beginning in the shards, beginning among the T rows.
    part_length = spans[:, (1, 3)].ravel()
    part_source = spans[:, (0, 2)].ravel()
    a_row = begins[:-1] + 1  # after [CLS]
    b_row = begins[:-1] + a_length + 2  # after [CLS] A [SEP]
    part_row = np.stack([a_row, b_row], 1).ravel()
    rows = ranges(part_row, part_length)
    tokens = shards.tokens[ranges(part_source, part_length)]
    shards.check_ids(tokens)
    part_first = np.cumsum(part_length) - part_length  # among the C rows
    opening = np.zeros(len(rows), bool)
    opening[part_first[part_length > 0]] = True

    input_ids = np.full(begins[-1], tokenizer.sep_id, np.int32)
    input_ids[begins[:-1]] = tokenizer.cls_id
    input_ids[rows] = tokens

    a_size = a_length + 2  # [CLS] A [SEP]
    b_size = b_length + 1 if pairs else b_length  # B [SEP]
    sizes = np.stack([a_size, b_size], 1).ravel()
    segments = np.array([0, 1], np.int32)
    token_type_ids = np.repeat(np.tile(segments, len(spans)), sizes)
    sequence = np.repeat(np.arange(len(spans)), a_length + b_length)
    return Block(input_ids, token_type_ids, begins, next_labels.tolist(), rows, sequence, opening)
