"""What a tokenizer returns: ids, where they stand in the text, and how long texts are cut or windowed.

A core gives the pieces of many texts end to end. Everything here is arithmetic on where texts begin and
end in that row: no loop over texts, and the same for every core.
"""

from collections.abc import Iterator
from dataclasses import InitVar, dataclass
from functools import cached_property
from typing import Any, NamedTuple, overload

import numpy as np

from minibert.base.errors import InputError
from minibert.base.terminal import counted
from minibert.core.arrays import Array
from minibert.core.wordpiece import SPECIAL_TOKENS
from minibert.tokenizer.native import Alignment, Encoded

PAD = SPECIAL_TOKENS[0]
TRUNCATION = ("longest_first", "only_first", "only_second")

Pieces = list[str] | dict[int, str]  # by id


class LongPair(InputError):
    """Pair number `pair`, from 0, can't be cut to fit, for a `reason`."""

    def __init__(self, pair: int, reason: str, **arguments: Any) -> None:
        super().__init__(f"pair {pair} {reason}", **arguments)
        self.pair, self.reason = pair, reason


MODEL_INPUTS = ("input_ids", "token_type_ids", "attention_mask")  # as Hugging Face calls them


class _Aligned:
    """Tokens with, if they were asked for, their places in the text and the numbers of their words.

    What a model reads is there by Hugging Face's names, too: `encoded["input_ids"]`, `dict(encoded)`.
    """

    input_ids: Array

    _alignment: Alignment | None

    def keys(self) -> tuple[str, ...]:
        """Return the names of what a model reads."""
        return MODEL_INPUTS

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Return `input_ids`, for `np.array(encoded)`."""
        return np.array(self.input_ids, dtype)

    @property
    def offsets(self) -> Array:
        return self._aligned[0]

    @property
    def word_ids(self) -> Array:
        return self._aligned[1]

    @property
    def _aligned(self) -> Alignment:
        if self._alignment is None:
            raise InputError("offsets and word_ids were not asked for; call encode_batch(..., offsets=True).")
        return self._alignment


@dataclass(eq=False, repr=False)
class Encoding(_Aligned):
    """A text, or a pair of texts, as the model reads it: `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`.

    Attributes
    ----------
    ids : (n,) int32.
    token_type_ids : (n,) int32, 0 up to the first [SEP], 1 after it.
    tokens : n pieces.
    input_ids, attention_mask : (n,) int32, the ids and as many ones, as Hugging Face calls them.
    offsets : (n,2) int32, the first character of the text that a piece comes from and the one after the last
        (code points; in a pair, those of its own text). (0, 0) at [CLS] and [SEP].
    word_ids : (n,) int32, number of the word in its text, a punctuation mark being one; -1 at [CLS], [SEP].
    special_tokens_mask : (n,) bool, True at the [CLS] and [SEP] that were put around the text.
    n_first : ids up to the first [SEP].
    """

    ids: Array
    n_first: int
    _wrapped: bool
    _vocab: Pieces
    _alignment: Alignment | None

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"Encoding({' '.join(self.tokens)})"

    def __getitem__(self, name: str) -> Array:
        """Return what a model reads, (n,) int32, by the name that Hugging Face gives it."""
        return getattr(self, _known_name(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    @property
    def input_ids(self) -> Array:
        return self.ids

    @property
    def attention_mask(self) -> Array:
        return np.ones(len(self.ids), np.int32)

    @cached_property
    def token_type_ids(self) -> Array:
        types = np.zeros(len(self.ids), np.int32)
        types[self.n_first :] = 1
        return types

    @cached_property
    def tokens(self) -> list[str]:
        return [self._vocab[i] for i in self.ids.tolist()]

    @cached_property
    def special_tokens_mask(self) -> Array:
        mask = np.zeros(len(self.ids), bool)
        if self._wrapped:
            mask[[0, self.n_first - 1, -1]] = True
        return mask

    def __reduce__(self) -> tuple[Any, ...]:
        # The tokenizer stays at home: what it would be asked for later is found now.
        vocab = _pieces_of(self.ids, self._vocab)
        return Encoding, (self.ids, self.n_first, self._wrapped, vocab, self._alignment)


class TextEncoding(Encoding):
    """A whole text as `[CLS] A [SEP]`: even its ids become an array only when they are asked for."""

    def __init__(self, pieces: list[int], tokenizer: Any, text: str, special: bool) -> None:
        self.n_first, self._wrapped, self._vocab = len(pieces) + 2, True, tokenizer.vocab
        self._pieces, self._tokenizer, self._text, self._special = pieces, tokenizer, text, special

    def __len__(self) -> int:
        return self.n_first

    def __getattr__(self, name: str) -> Any:
        if name == "ids":
            self.ids = np.array([self._tokenizer.cls_id, *self._pieces, self._tokenizer.sep_id], np.int32)
        elif name == "_alignment":
            found = self._tokenizer.encode_batch([self._text], offsets=True, special=self._special)
            self._alignment = found.offsets, found.word_ids
        else:
            raise AttributeError(name)
        return self.__dict__[name]


@dataclass(eq=False, repr=False)
class BatchEncoding(_Aligned):
    """S sequences end to end, without padding, as `Batch` has them.

    `batch[i]` is one of them as an `Encoding` of views, and `for encoding in batch` goes through all.

    Attributes
    ----------
    ids : (T,) int32.
    cu_seqlens : (S+1,) int32, sequence s is ids[cu_seqlens[s]:cu_seqlens[s+1]].
    token_type_ids : (T,) int32, 0 up to the first [SEP] of a sequence, 1 after it.
    offsets, word_ids : (T,2) and (T,) int32, as in `Encoding`; they must be asked for.
    special_tokens_mask : (T,) bool.
    input_ids, attention_mask : (S,n) int32, the same ids a row for each sequence, filled up with [PAD] to the
        longest, and ones where they are no [PAD]: what a model wants that pads.
    source : (S,) int64, number of the text (or pair) that each sequence is of: several windows share one.
    n_cut : (S,) int64, pieces of its text (or pair) that there was no room for; 0 where windows hold all.
    n_invalid : stretches of bytes that were not UTF-8 in texts given as bytes, each read as U+FFFD.
    """

    encoded: InitVar[Encoded]
    cu_seqlens: Array
    _seconds: Array | None  # (S,) where the second text of each pair begins
    source: Array
    n_cut: Array
    _wrapped: bool
    _vocab: Pieces

    def __post_init__(self, encoded: Encoded) -> None:
        self.ids, _, self._alignment, self.n_invalid = encoded
        if (n := self.cu_seqlens[-1]) >= 2**31:
            raise InputError(f"the texts have {n:,} pieces, more than 32 bits count; encode parts.")
        self.cu_seqlens = self.cu_seqlens.astype(np.int32)

    def __len__(self) -> int:
        return len(self.cu_seqlens) - 1

    def __repr__(self) -> str:
        return f"BatchEncoding({counted(len(self), 'sequence')}, {counted(len(self.ids), 'id')})"

    @overload
    def __getitem__(self, number: str) -> Array: ...

    @overload
    def __getitem__(self, number: int) -> Encoding: ...

    def __getitem__(self, number: int | str) -> Encoding | Array:
        """Return one sequence by its number, or by Hugging Face's name what a model that pads reads.

        Raise InputError for another name, IndexError for a number that is none of the sequences.

        Parameters
        ----------
        number : number of a sequence, from the end where negative; or "input_ids", "attention_mask" or
            "token_type_ids": (S,n) int32, a row for each sequence, filled up to the longest.
        """
        if isinstance(number, str):
            if _known_name(number) == "token_type_ids":
                return self._rows(self.token_type_ids, 0)
            return getattr(self, number)
        if not -len(self) <= number < len(self):
            raise IndexError(f"number={number} is not one of the {len(self)} sequences.")
        number %= len(self)
        begin, end = self.cu_seqlens[number : number + 2].tolist()
        n_first = end - begin if self._seconds is None else int(self._seconds[number]) - begin
        alignment = self._alignment and (self.offsets[begin:end], self.word_ids[begin:end])
        return Encoding(self.ids[begin:end], n_first, self._wrapped, self._vocab, alignment)

    def __iter__(self) -> Iterator[Encoding]:
        return map(self.__getitem__, range(len(self)))

    @property
    def attention_mask(self) -> Array:
        lengths = np.diff(self.cu_seqlens)
        return (np.arange(lengths.max(initial=0)) < lengths[:, None]).astype(np.int32)

    @property
    def input_ids(self) -> Array:
        return self._rows(self.ids, self._pad_id)

    # values (T,) -> (S,n)
    def _rows(self, values: Array, padding: int) -> Array:
        """Lay the sequences out as rows that are filled up to the longest."""
        mask = self.attention_mask
        rows = np.full(mask.shape, padding, np.int32)
        rows[mask == 1] = values
        return rows

    @property
    def _pad_id(self) -> int:
        numbered = enumerate(self._vocab) if isinstance(self._vocab, list) else self._vocab.items()
        return next(number for number, piece in numbered if piece == PAD)

    @cached_property
    def token_type_ids(self) -> Array:
        types = np.zeros(len(self.ids), np.int32)
        if self._seconds is not None:
            types[ranges(self._seconds, self.cu_seqlens[1:] - self._seconds)] = 1
        return types

    @cached_property
    def special_tokens_mask(self) -> Array:
        mask = np.zeros(len(self.ids), bool)
        if self._wrapped:
            mask[self.cu_seqlens[:-1]] = mask[self.cu_seqlens[1:] - 1] = True
            if self._seconds is not None:
                mask[self._seconds - 1] = True
        return mask

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_vocab": _pieces_of(self.ids, self._vocab) | {self._pad_id: PAD}}


def _known_name(name: Any) -> str:
    """Return the name of what a model reads; raise InputError for anything else."""
    if name not in MODEL_INPUTS:
        raise InputError(f"{name!r} is not what a tokenizer returns; ask for {', '.join(MODEL_INPUTS)}.")
    return str(name)


class Limit(NamedTuple):
    """How long a sequence may become, and what is done with a longer one; see `Tokenizer.encode_batch`.

    `odd_to_longer` tells which text keeps the odd piece when both are cut: the longer one (the second, when
    both are equally long) as in Hugging Face's `tokenizers`, or the first, as in Google's code.
    """

    max_length: int
    truncation: str = "longest_first"
    stride: int | None = None
    odd_to_longer: bool = False

    @classmethod
    def of(
        cls, max_length: int | None, truncation: str, stride: int | None, extra: int, pairs: bool, compat: str
    ) -> "Limit | None":
        """Return the limit that arguments of `Tokenizer` ask for, with so many extra ids; or None."""
        given = {"max_length": max_length, "truncation": truncation, "stride": stride}
        if truncation not in TRUNCATION:
            raise InputError(f"truncation={truncation!r} is unknown; choose one of {', '.join(TRUNCATION)}.")
        if truncation == "only_second" and not pairs:
            raise InputError("$truncation needs pairs; give them, or choose only_first.", **given)
        if max_length is None:
            if stride is not None:
                message = "$stride makes windows of a length that is not told; give one, such as $max_length."
                raise InputError(message, stride=stride, max_length=128)
            return None
        whole_number("max_length", max_length, 0)
        if (room := max_length - extra) < 0:
            raise InputError(f"$max_length has no room for special tokens; give at least {extra}.", **given)
        if stride is not None:
            whole_number("stride", stride, 0)
            if pairs and truncation == "longest_first":
                needed = "choose truncation only_first or only_second with it."
                raise InputError(f"$stride makes windows of one text of a pair; {needed}", **given)
            if stride >= room:
                small = f"leaves no new piece to a window that has room for {room}"
                raise InputError(f"$stride {small}; give less, or raise $max_length.", **given)
        return cls(max_length, truncation, stride, odd_to_longer=compat == "hf-fast")

    # first (N,) second (N,) -> (N,) (N,)
    def shares(self, first: Array, second: Array, room: int) -> tuple[Array, Array]:
        """Return how many pieces of each text a sequence keeps, of `first` and `second` many."""
        if self.truncation == "longest_first":
            odd = first > second if self.odd_to_longer else True
            half = room // 2 + (room % 2) * odd
            kept = np.minimum(first, np.maximum(half, room - second))
            return kept, np.minimum(second, room - kept)
        shortened, other = (first, second) if self.truncation == "only_first" else (second, first)
        left = room - other
        needed = min(room, (self.stride or 0) + 1)  # one new piece: a text that is cut never becomes empty
        if len(bad := np.flatnonzero((shortened > left) & (left < needed))):
            pair = bad[0]
            windows = " for windows with $stride" if self.stride is not None else ""
            whole = f"with $truncation the other text keeps all its {other[pair]} pieces, which leaves"
            advice = "raise that length, or truncate longest_first."
            reason = f"does not fit $max_length: {whole} {max(0, left[pair])}{windows}; {advice}"
            raise LongPair(int(pair), reason, **self._asdict())
        kept = np.minimum(shortened, left)
        return (kept, other) if self.truncation == "only_first" else (other, kept)


def lay_out(
    encoded: Encoded, pairs: bool, wrapped: bool, limit: Limit | None, vocab: Pieces
) -> BatchEncoding:
    """Make sequences within the limit of a core's pieces, which have [CLS] and [SEP] if `wrapped`."""
    borders = encoded.bounds[:: 2 if pairs else 1]
    seconds = encoded.bounds[1::2] if pairs else None
    n_cut = np.zeros(len(borders) - 1, np.int64)
    if limit is None or not np.any(np.diff(borders) > limit.max_length):
        return BatchEncoding(encoded, borders, seconds, np.arange(len(n_cut)), n_cut, wrapped, vocab)
    begins, lengths, source = _windows(encoded.bounds, pairs, wrapped, limit)
    small = np.int32 if lengths.sum() < 2**31 and len(encoded.ids) < 2**31 else np.int64  # many times faster
    rows = ranges(begins.ravel().astype(small), lengths.ravel().astype(small))
    ends = np.cumsum(lengths).reshape(lengths.shape)  # of each stretch, in the new row
    if (alignment := encoded.alignment) is not None:
        alignment = alignment[0].take(rows, axis=0), alignment[1].take(rows)
    cut = encoded._replace(ids=encoded.ids.take(rows), alignment=alignment)
    seconds = ends[:, (lengths.shape[1] - 1) // 2] if pairs else None  # behind A, or behind its [SEP]
    n_cut = np.diff(borders) - lengths.sum(1) if limit.stride is None else np.zeros(len(source), np.int64)
    return BatchEncoding(cut, np.concatenate([[0], ends[:, -1]]), seconds, source, n_cut, wrapped, vocab)


# bounds (N+1,) -> (S,k) (S,k) (S,)
def _windows(bounds: Array, pairs: bool, wrapped: bool, limit: Limit) -> tuple[Array, Array, Array]:
    """Find every sequence, `[CLS] A [SEP] B [SEP]`, as k stretches: where they begin, how long; its text."""
    step = 2 if pairs else 1
    begins, ends = bounds[:-1:step], bounds[step::step]
    middles = bounds[1::2] if pairs else ends  # where the second text begins
    first, second = middles - begins - 2 * wrapped, ends - middles - wrapped * pairs
    kept_first, kept_second = limit.shares(first, second, limit.max_length - wrapped * (2 + pairs))

    along_second = limit.truncation == "only_second"
    length, window = (second, kept_second) if along_second else (first, kept_first)
    n_windows = np.ones(len(begins), np.int64)
    if limit.stride is not None:
        over = length > window
        n_windows[over] -= -(length - window)[over] // (window - limit.stride)[over]
    source = np.repeat(np.arange(len(begins)), n_windows)
    number = np.arange(len(source)) - np.repeat(np.cumsum(n_windows) - n_windows, n_windows)
    start = number * (window[source] - (limit.stride or 0))
    start_first, start_second = (0 * start, start) if along_second else (start, 0 * start)

    one = np.full_like(source, 1)
    stretches = [  # of each sequence, where it begins and how long it is
        (begins[source], one),
        (begins[source] + wrapped + start_first, np.minimum(kept_first[source], first[source] - start_first)),
        (middles[source] - 1, one),
        (middles[source] + start_second, np.minimum(kept_second[source], second[source] - start_second)),
        (ends[source] - 1, one),
    ]
    chosen = stretches[: 5 if pairs else 3] if wrapped else stretches[1 : 4 if pairs else 2 : 2]
    return np.stack([s[0] for s in chosen], 1), np.stack([s[1] for s in chosen], 1), source


def ranges(begins: Array, lengths: Array) -> Array:  # (n,) (n,) -> (sum of lengths,)
    """List begin, begin + 1, ... `length` numbers for each; all integers are of one type."""
    before = np.cumsum(lengths, dtype=lengths.dtype) - lengths
    return np.repeat(begins - before, lengths) + np.arange(lengths.sum(), dtype=lengths.dtype)


def whole_number(name: str, value: Any, least: int) -> None:
    """Refuse what is not a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise InputError(f"${name} is not possible; give a whole number, at least {least}.", **{name: value})


def _pieces_of(ids: Array, vocab: Pieces) -> dict[int, str]:
    """Return as much of a vocabulary as some ids need."""
    return {i: vocab[i] for i in np.unique(ids).tolist()}
