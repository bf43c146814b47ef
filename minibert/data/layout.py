"""Spans laid end to end as N sequences of T tokens: `[CLS] A [SEP] B [SEP]`, or `[CLS] A [SEP]`."""

from dataclasses import dataclass, field

import numpy as np

from minibert.core.batch import NOTHING, Sequence
from minibert.data.shards.store import TokenShards
from minibert.tokenizer import Tokenizer
from minibert.tokenizer.encoding import ranges


@dataclass
class Block:
    """N sequences of T tokens, C of them text, and the M positions that are to be predicted."""

    input_ids: np.ndarray  # (T,) int32
    token_type_ids: np.ndarray  # (T,) int32
    begins: np.ndarray  # (N+1,) sequence n is begins[n]:begins[n+1]
    next_labels: list[int]  # N
    rows: np.ndarray  # (C,) the rows of T that are text, ascending
    sequence: np.ndarray  # (C,) the sequence that a row belongs to
    opening: np.ndarray  # (C,) bool: the first token of a span
    masked_positions: np.ndarray = field(default_factory=lambda: NOTHING)  # (M,) int32, within the sequence
    masked_labels: np.ndarray = field(default_factory=lambda: NOTHING)  # (M,) int32
    masked_begins: list[int] = field(default_factory=list)  # N+1

    def __post_init__(self) -> None:
        self._begins: list[int] = self.begins.tolist()

    def predict(self, chosen: np.ndarray, visible: np.ndarray) -> None:  # chosen (M,) of C  visible (M,)
        """Ask for the text at `chosen`, where `visible` is shown from now on."""
        rows, sequence = self.rows[chosen], self.sequence[chosen]
        self.masked_positions = (rows - self.begins[sequence]).astype(np.int32)
        self.masked_labels = self.input_ids[rows]
        self.masked_begins = [0, *np.cumsum(np.bincount(sequence, minlength=len(self.next_labels))).tolist()]
        self.input_ids[rows] = visible

    def predict_next_tokens(self) -> None:
        """Ask for the next token at every position but a sequence's last."""
        asked = np.ones(len(self.input_ids), bool)
        asked[self.begins[1:] - 1] = False
        lengths = np.diff(self.begins) - 1
        self.masked_positions = ranges(np.zeros_like(lengths), lengths).astype(np.int32)
        self.masked_labels = self.input_ids[np.flatnonzero(asked) + 1]
        self.masked_begins = [0, *np.cumsum(lengths).tolist()]

    def sequence_at(self, n: int) -> Sequence:
        """Return sequence n as views."""
        here = slice(self._begins[n], self._begins[n + 1])
        asked = slice(self.masked_begins[n], self.masked_begins[n + 1])
        ids, types = self.input_ids[here], self.token_type_ids[here]
        masked = self.masked_positions[asked], self.masked_labels[asked]
        return Sequence(ids, types, *masked, self.next_labels[n])

    def freeze(self) -> None:
        """Make the arrays read-only: sequences are views, and nobody should change a neighbour's tokens."""
        for array in (self.input_ids, self.token_type_ids, self.masked_positions, self.masked_labels):
            array.flags.writeable = False


# spans (N,5) int64, the fields of `minibert.data.nsp_spans.Spans`
def lay_out(shards: TokenShards, spans: np.ndarray, pairs: bool, tokenizer: Tokenizer) -> Block:
    """Fetch the tokens of N spans and put [CLS] and [SEP] around them; in `pairs` B has its own [SEP]."""
    a_begin, a_length, b_begin, b_length, next_labels = spans.T
    begins = np.concatenate([[0], np.cumsum(a_length + b_length + (3 if pairs else 2))])
    # A and B of each sequence in turn: how long, from where in the shards, to which row
    part_length = spans[:, (1, 3)].ravel()
    rows = ranges(np.stack([begins[:-1] + 1, begins[:-1] + a_length + 2], 1).ravel(), part_length)
    tokens = shards.tokens[ranges(spans[:, (0, 2)].ravel(), part_length)]
    shards.check_ids(tokens)
    opening = np.zeros(len(rows), bool)
    opening[(np.cumsum(part_length) - part_length)[part_length > 0]] = True

    input_ids = np.full(begins[-1], tokenizer.sep_id, np.int32)
    input_ids[begins[:-1]] = tokenizer.cls_id
    input_ids[rows] = tokens
    second = np.stack([a_length + 2, b_length + 1 if pairs else b_length], 1).ravel()  # tokens in A, in B
    token_type_ids = np.repeat(np.tile(np.array([0, 1], np.int32), len(spans)), second)
    sequence = np.repeat(np.arange(len(spans)), a_length + b_length)
    return Block(input_ids, token_type_ids, begins, next_labels.tolist(), rows, sequence, opening)
