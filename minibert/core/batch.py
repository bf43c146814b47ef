"""A batch: the tokens of all sequences in a row, without padding, and where each sequence begins.

Only attention and the heads need to know where one sequence ends and the next begins.
"""

import dataclasses
from collections import abc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from minibert.core.arrays import Integers
from minibert.core.config import BertConfig
from minibert.core.errors import InputError
from minibert.core.head_kinds import LABELS
from minibert.core.params import AnyHead

NOTHING = np.empty(0, np.int32)  # positions and labels of a sequence in which nothing is predicted


class Sequence(NamedTuple):
    """One sequence, `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`, and what to predict in it.

    Attributes
    ----------
    input_ids : (n,) integers, the ids of the pieces, masking already applied.
    token_type_ids : (n,) integers, 0 in segment A and 1 in segment B.
    masked_positions : (m,) integers, positions within the sequence, counted from its [CLS], ascending.
    masked_labels : (m,) integers, the original ids at these positions.
    next_sentence_label : 0 where B follows A in its document (IsNext), 1 where it does not (NotNext), -1
        where nothing is asked.
    cut : how many pieces, or texts, did not fit and were dropped.
    """

    input_ids: Integers
    token_type_ids: Integers
    masked_positions: Integers = NOTHING
    masked_labels: Integers = NOTHING
    next_sentence_label: int = -1
    cut: int = 0


class Feature(NamedTuple):
    """One input of a fine-tuned model: a sequence, or one sequence for each of several choices.

    Attributes
    ----------
    sequences : tuple of one `Sequence`, or of one for each choice.
    label : what the head is to answer: the number of a class or choice, a float, (start, end) of a span, or
        (n,) tags, one for each of `rows`. None: unknown.
    rows : (n,) integers, the positions that have a tag: the first piece of each word. None for other heads.
    example : index of the example that the feature was made from; a long paragraph gives several features.
    """

    sequences: tuple[Sequence, ...]
    label: Any = None
    rows: Integers | None = None
    example: int = 0


@dataclass(frozen=True)
class Batch:
    """T tokens of S sequences in a row, with M positions to predict (NumPy arrays in host memory).

    Weights are 1 / (count in the whole global batch), so the losses and gradients of micro-batches and
    shards simply add up.

    Attributes
    ----------
    input_ids, token_type_ids : (T,) int32
        The id of each token, and the segment that it is in.
    positions : (T,) int32
        Position within the sequence.
    cu_seqlens : (S+1,) int32
        Sequence s is rows cu_seqlens[s]:cu_seqlens[s+1].
    sequence_index : (S,) uint32
        Index in the global batch: half of the dropout row key.
    masked_rows, masked_labels : (M,) int32
        Indices into the T tokens, and the ids to predict there.
    masked_weights : (M,) float64
        1 / M of the global batch.
    next_sentence_labels : (S,) int32
        0 IsNext, 1 NotNext, -1 where there is no label.
    next_sentence_weights : (S,) float64
        1 / (labels in the global batch), 0 where there is no label.
    """

    input_ids: NDArray[np.int32]
    token_type_ids: NDArray[np.int32]
    positions: NDArray[np.int32]
    cu_seqlens: NDArray[np.int32]
    sequence_index: NDArray[np.uint32]
    masked_rows: NDArray[np.int32]
    masked_labels: NDArray[np.int32]
    masked_weights: NDArray[np.float64]
    next_sentence_labels: NDArray[np.int32]
    next_sentence_weights: NDArray[np.float64]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.S} sequences, {self.T} tokens)"

    @property
    def T(self) -> int:
        """Return the number of tokens."""
        return len(self.input_ids)

    @property
    def S(self) -> int:
        """Return the number of sequences."""
        return len(self.cu_seqlens) - 1

    @property
    def M(self) -> int:
        """Return the number of masked positions."""
        return len(self.masked_rows)

    @property
    def E(self) -> int:
        """Return the number of examples, the units into which a batch can be split."""
        return self.S

    @property
    def begins(self) -> Integers:
        """Return (E,) integers, the first row of each example."""
        return self.first_rows

    @property
    def asks_next(self) -> bool:
        """Return whether any sequence has a next-sentence label."""
        return bool(self.next_sentence_weights.any())

    @property
    def lengths(self) -> Integers:
        """Return (S,) integers, the number of tokens of each sequence."""
        return np.diff(self.cu_seqlens)

    @property
    def first_rows(self) -> Integers:
        """Return (S,) integers, the row of each sequence's first token, [CLS]."""
        return self.cu_seqlens[:-1]

    @property
    def masked_counts(self) -> Integers:
        """Return (S,) integers, the number of masked positions of each sequence."""
        sequences = np.searchsorted(self.cu_seqlens, self.masked_rows, side="right") - 1
        return np.bincount(sequences, minlength=self.S)

    @property
    def last_rows(self) -> Integers:
        """Return (S,) integers, the row of each sequence's last token."""
        return self.cu_seqlens[1:] - 1

    @property
    def token_sequences(self) -> NDArray[np.uint32]:
        """Return (T,) uint32, the index in the global batch of the sequence that each token is in."""
        return np.repeat(self.sequence_index, self.lengths)

    @classmethod
    def pack(cls, sequences: abc.Sequence[Sequence], first: int = 0) -> "Batch":
        """Lay sequences end to end, as a global batch or as part of one.

        Parameters
        ----------
        sequences : at least one. The weights are those of a global batch of just these sequences.
        first : index of the first sequence in the global batch.

        Returns
        -------
        Batch

        Raises
        ------
        InputError
            When there is no sequence, or when one of them is empty, has parts of different lengths, has a
            masked position outside its tokens, or holds anything other than rows of 32-bit integers.
        """
        if not sequences:
            raise InputError("sequences=[] makes no batch; give at least one sequence.")
        lengths = np.array([len(sequence.input_ids) for sequence in sequences])
        if not lengths.all():
            raise InputError(f"Sequence {int(lengths.argmin())} is empty; give it at least [CLS] and [SEP].")
        for number, sequence in enumerate(sequences):
            _check_paired(sequence, number, "input_ids", "token_type_ids")
            _check_paired(sequence, number, "masked_positions", "masked_labels")
        begins = np.concatenate([[0], np.cumsum(lengths)])
        positions = np.arange(begins[-1]) - np.repeat(begins[:-1], lengths)

        masked = _joined(sequences, "masked_positions")
        counts = [len(sequence.masked_positions) for sequence in sequences]
        within = np.repeat(lengths, counts)  # length of the sequence around each masked position
        bad = np.flatnonzero((masked < 0) | (masked >= within))
        if len(bad):
            problem = f"masked_positions has {masked[bad[0]]} in a sequence of {within[bad[0]]} tokens"
            raise InputError(f"{problem}; count from its [CLS], which is 0.")
        masked_rows = (masked + np.repeat(begins[:-1], counts)).astype(np.int32)

        given_labels = [sequence.next_sentence_label for sequence in sequences]
        next_labels = whole_numbers("next_sentence_label", given_labels)
        asked = next_labels >= 0
        return cls(
            input_ids=_joined(sequences, "input_ids"),
            token_type_ids=_joined(sequences, "token_type_ids"),
            positions=positions.astype(np.int32),
            cu_seqlens=begins.astype(np.int32),
            sequence_index=np.arange(first, first + len(sequences), dtype=np.uint32),
            masked_rows=masked_rows,
            masked_labels=_joined(sequences, "masked_labels"),
            masked_weights=np.full(len(masked_rows), 1.0 / max(1, len(masked_rows))),
            next_sentence_labels=next_labels,
            next_sentence_weights=asked / max(1, int(asked.sum())),
        )

    def take(self, first: int, last: int) -> Self:
        """Return examples `first` to `last` (exclusive), with the weights and indices of the global batch.

        Parameters
        ----------
        first, last : indices of examples in this batch.

        Returns
        -------
        Batch of `last - first` examples.
        """
        begin = int(self.cu_seqlens[first])
        end = int(self.cu_seqlens[last])
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

    def split(self, parts: int) -> Iterator[Self]:
        """Return micro-batches of nearly equal size, whose losses and gradients sum to this batch's.

        Parameters
        ----------
        parts : how many micro-batches, from 1 to the number of examples.

        Returns
        -------
        iterator of Batch

        Raises
        ------
        InputError
            When `parts` is outside that range.
        """
        if not 1 <= parts <= self.E:
            raise InputError(f"parts={parts} does not split {self.E} examples; choose from 1 to {self.E}.")
        borders = [self.E * part // parts for part in range(parts + 1)]
        return map(self.take, borders, borders[1:])

    def validate(self, config: BertConfig) -> None:
        """Check every index against the shape of the model, and warn of positions that were not trained.

        Parameters
        ----------
        config : the shape of the model.

        Raises
        ------
        InputError
            When an id is outside the vocabulary or the segments, a masked row is outside the batch, a
            next-sentence label is unknown, or a sequence has more tokens than the model has positions.
        """
        tokenize = "tokenize with this model's own vocabulary"
        segments = "give segments that it has"
        if config.type_vocab_size == 1:
            segments = "the model knows one segment only, so give single texts, not pairs"
        for name, values, limit, field, advice in (
            ("input_ids", self.input_ids, config.V, "vocab_size", tokenize),
            ("masked_labels", self.masked_labels, config.V, "vocab_size", tokenize),
            ("token_type_ids", self.token_type_ids, config.type_vocab_size, "type_vocab_size", segments),
            ("masked_rows", self.masked_rows, self.T, "the number of tokens", "count rows from 0"),
        ):
            bad = np.flatnonzero((values < 0) | (values >= limit))
            if len(bad):
                problem = f"{name}[{bad[0]}]={values[bad[0]]} is outside 0..{limit - 1} ({field}={limit})"
                raise InputError(f"{problem}; {advice}.")
        labels = self.next_sentence_labels
        bad = np.flatnonzero((labels < -1) | (labels > 1))
        if len(bad):
            label = f"next_sentence_labels[{bad[0]}]={labels[bad[0]]}"
            raise InputError(f"{label} is unknown; give 0 (IsNext), 1 (NotNext) or -1 (not asked).")
        longest = int(self.positions.max()) + 1
        if longest > config.P:
            raise InputError(
                f"A sequence of {longest} tokens is longer than the model's {config.P} positions; "
                f"shorten the input or pre-train with max_positions={longest!r}.",
                max_positions=longest,
            )
        config.warn_untrained(longest)


@dataclass(frozen=True)
class TaskBatch(Batch):
    """A batch with the labels of a fine-tuning task: E examples of `choices` sequences each.

    `labels` depends on the kind of head: "classify" and "choice" (E,) int32; "regress" (E,) float64;
    "multilabel" (E,K) float64, 0 where a class does not apply, else 1 or the weight of that class; "span"
    (E,2) int32, first and last position of the answer in the sequence, both 0 where the sequence does not
    contain it; "tag" (N,) int32, one for each of `label_rows`. `pack_features` makes a batch; the fields
    that are not listed here are those of `Batch`.

    Attributes
    ----------
    labels : array as above, zero where the label is unknown.
    label_weights : (len(labels),) float64, 1 / (known labels in the global batch), 0 where it is unknown.
    label_rows : (N,) int32, indices of the tokens that have a tag; (0,) for other heads.
    row_counts : (E,) int32, how many of `label_rows` each example has.
    choices : how many sequences each example has.
    """

    labels: np.ndarray
    label_weights: np.ndarray
    label_rows: np.ndarray
    row_counts: np.ndarray
    choices: int = 1

    @property
    def E(self) -> int:
        """Return the number of examples."""
        return len(self.row_counts)

    @property
    def first_sequences(self) -> np.ndarray:
        """Return (E,) integers, the index of each example's first sequence."""
        return np.arange(0, self.S, self.choices)

    @property
    def begins(self) -> Integers:
        """Return (E,) integers, the first row of each example."""
        return self.first_rows[self.first_sequences]

    @classmethod
    def pack_features(cls, features: abc.Sequence[Feature], head: AnyHead) -> Self:
        """Lay the sequences of features end to end, as one global batch.

        Parameters
        ----------
        features : at least one, all with the same number of sequences.
        head : the head that the labels are for.

        Returns
        -------
        TaskBatch

        Raises
        ------
        InputError
            When there is no feature, when features differ in their number of sequences or one of them in its
            numbers of tags and rows, or when a label or row that should be an integer is not.
        """
        if not features:
            raise InputError("features=[] makes no batch; give at least one.")
        choices = len(features[0].sequences)
        for number, feature in enumerate(features):
            count = len(feature.sequences)
            if count != choices:
                counts = f"Feature {number} has {count} sequences and feature 0 has {choices}"
                raise InputError(f"{counts}; put examples with equally many choices into a batch.")
        batch = Batch.pack([sequence for feature in features for sequence in feature.sequences])
        return cls._with_labels(batch, batch.cu_seqlens[:-1:choices], features, head, choices=choices)

    @classmethod
    def _with_labels(
        cls,
        batch: Batch,
        begins: np.ndarray,
        features: abc.Sequence[Feature],
        head: AnyHead,
        **fields: Any,
    ) -> Self:
        """Add the labels of features to their packed tokens; `begins` (E,) is each example's first row."""
        rows = [
            NOTHING if feature.rows is None else whole_numbers("rows", feature.rows) for feature in features
        ]
        for number, (feature, tagged) in enumerate(zip(features, rows, strict=True)):
            n = len(feature.sequences[0].input_ids)
            outside = tagged[(tagged < 0) | (tagged >= n)]
            if len(outside):
                problem = f"Feature {number} has a label for row {outside[0]} in a sequence of {n} tokens"
                raise InputError(f"{problem}; count from its [CLS], which is 0.")
        labels, known = _labels(features, rows, head)
        if head.spec.label_dtype == "int32" and (labels < 0).any():
            raise InputError(f"A label is {labels.min()}; give 0 or more, and None where it is not known.")
        label_rows = [begin + tagged for begin, tagged in zip(begins, rows, strict=True)]
        return cls(
            **vars(batch),
            labels=labels,
            label_weights=known / max(1, int(known.sum())),
            label_rows=np.concatenate(label_rows).astype(np.int32),
            row_counts=np.array([len(tagged) for tagged in rows], np.int32),
            **fields,
        )

    def take(self, first: int, last: int) -> Self:
        """Return examples `first` to `last` (exclusive), with the weights and indices of the global batch.

        Parameters
        ----------
        first, last : indices of examples in this batch.

        Returns
        -------
        TaskBatch of `last - first` examples.
        """
        borders = np.append(self.first_sequences, self.S)
        begin, end = borders[[first, last]].tolist()
        before = np.concatenate([[0], np.cumsum(self.row_counts)])
        tagged = slice(before[first], before[last])
        labelled = tagged if len(self.label_rows) else slice(first, last)
        return dataclasses.replace(
            super().take(begin, end),
            labels=self.labels[labelled],
            label_weights=self.label_weights[labelled],
            label_rows=self.label_rows[tagged] - self.cu_seqlens[begin],
            row_counts=self.row_counts[first:last],
        )


def _check_paired(
    sequence: Sequence,
    number: int,
    first: str,
    second: str,
) -> None:
    """Check that two parts of a sequence are equally long."""
    n = len(getattr(sequence, first))
    m = len(getattr(sequence, second))
    if n != m:
        raise InputError(f"Sequence {number} has {n} {first} and {m} {second}; give one for each.")


# -> (n,) int32
def _joined(sequences: abc.Sequence[Sequence], name: str) -> np.ndarray:
    """Concatenate one part of all sequences, as int32."""
    parts = [getattr(sequence, name) for sequence in sequences]
    for number, part in enumerate(parts):
        if np.ndim(part) != 1:
            raise InputError(f"{name} of sequence {number} has shape {np.shape(part)}; give a row of them.")
    return whole_numbers(name, np.concatenate(parts))


# given (...) -> (...) int32
def whole_numbers(name: str, given: Any) -> np.ndarray:
    """Convert numbers to int32.

    Parameters
    ----------
    name : what the error calls them.
    given : the numbers, an array or anything that NumPy makes one of.

    Raises
    ------
    InputError
        When one of them is not an integer, or is too large for 32 bits.
    """
    given = np.asarray(given)
    if given.dtype.kind in "biuf" or not given.size:
        with np.errstate(invalid="ignore"):
            numbers = given.astype(np.int32)
        wrong = given[numbers != given].tolist()
    else:
        wrong = [value for value in given.ravel().tolist() if not isinstance(value, int)] or given.tolist()
    if wrong:
        raise InputError(f"{name} has {wrong[0]!r}, which is not an integer of at most 32 bits; check it.")
    return numbers


# -> labels, and whether each of them is known
def _labels(
    features: abc.Sequence[Feature], rows: list[np.ndarray], head: AnyHead
) -> tuple[np.ndarray, np.ndarray]:
    """Collect the labels of all features, with zeros for unknown ones."""
    given = [feature.label for feature in features]
    known = [label is not None for label in given]
    kind = head.spec
    if kind.reads == LABELS:
        counts = [len(tagged) for tagged in rows]
        for number, (count, label) in enumerate(zip(counts, given, strict=True)):
            if label is not None and len(label) != count:
                raise InputError(f"Feature {number} has {len(label)} tags and {count} rows; give as many.")
        tags = [
            np.zeros(count) if label is None else label for count, label in zip(counts, given, strict=True)
        ]
        return whole_numbers("label", np.concatenate(tags)), np.repeat(known, counts)
    unknown = np.zeros([size or head.outputs for size in kind.label_shape], int)
    labels = np.array([unknown if label is None else label for label in given])
    if kind.label_dtype == "int32":
        return whole_numbers("label", labels), np.array(known)
    return labels.astype(np.float64), np.array(known)
