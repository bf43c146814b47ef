"""The output of a tokenizer: ids and their offsets, with long texts truncated or split into windows.

A core returns the pieces of many texts end to end. Everything here is arithmetic on where texts begin and end
in that array, without a loop over texts, and the same for every core.
"""

from collections.abc import Iterator
from dataclasses import InitVar, dataclass
from functools import cached_property
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from minibert.base.errors import InputError
from minibert.base.foreign_names import explains_foreign_attributes, no_attribute
from minibert.base.terminal import counted
from minibert.core.arrays import Array
from minibert.core.wordpiece import SPECIAL_TOKENS
from minibert.tokenizer.native import Alignment, Encoded

PAD = SPECIAL_TOKENS[0]
TRUNCATION = ("longest_first", "only_first", "only_second")

Pieces = list[str] | dict[int, str]  # by id


class LongPair(InputError):
    """Report which pair can't be cut to fit, and why.

    Parameters
    ----------
    pair : int
        The index of the pair, from 0.
    reason : str
        The rest of the sentence that begins with "pair N"; may name arguments, as in "max_length=8".
    **arguments
        The values of the arguments that the reason names.
    """

    def __init__(self, pair: int, reason: str, **arguments: Any) -> None:
        super().__init__(f"pair {pair} {reason}", **arguments)
        self.pair = pair
        self.reason = reason


MODEL_INPUTS = ("input_ids", "token_type_ids", "attention_mask")  # as Hugging Face calls them


class _Aligned:
    """The base of encodings: tokens and, if asked for, their spans in the text and indices of words.

    A model's inputs are also available under Hugging Face's names, as in a mapping: `encoded["input_ids"]`,
    `encoded.items()`, `dict(encoded)`.
    """

    _alignment: Alignment | None

    @property
    def input_ids(self) -> NDArray[np.int32]:
        """Return the ids in the form that a model reads."""
        raise NotImplementedError

    def __getitem__(self, name: Any) -> Any:
        """Return a model's input by its name."""
        raise NotImplementedError

    def __contains__(self, name: object) -> bool:
        return name in MODEL_INPUTS

    def keys(self) -> tuple[str, ...]:
        """Return the names of a model's inputs."""
        return MODEL_INPUTS

    def values(self) -> tuple[NDArray[np.int32], ...]:
        """Return a model's inputs, in the order of `keys`."""
        return tuple(self[name] for name in MODEL_INPUTS)

    def items(self) -> tuple[tuple[str, NDArray[np.int32]], ...]:
        """Return pairs of name and model input, in the order of `keys`."""
        return tuple((name, self[name]) for name in MODEL_INPUTS)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a model's input by its name, or a default.

        Parameters
        ----------
        name : str
            Such as "input_ids".
        default : object, optional
            What to return for any other name.

        Returns
        -------
        array, or the default
        """
        if name not in self:
            return default
        return self[name]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return `input_ids`, for `np.array(encoded)`."""
        return np.array(self.input_ids, dtype)

    @property
    def offsets(self) -> NDArray[np.int32]:
        """Return the offsets of each token in its text, (T,2) int32; InputError if not asked for."""
        return self._aligned[0]

    @property
    def word_ids(self) -> NDArray[np.int32]:
        """Return the index of each token's word, (T,) int32; InputError if not asked for."""
        return self._aligned[1]

    @property
    def _aligned(self) -> Alignment:
        if self._alignment is None:
            raise InputError("offsets and word_ids were not asked for; call encode_batch(..., offsets=True).")
        return self._alignment


@explains_foreign_attributes
@dataclass(eq=False, repr=False)
class Encoding(_Aligned):
    """A text, or a pair of texts, as the model reads it: `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`.

    Attributes
    ----------
    ids : (n,) int32
        Ids of the pieces.
    token_type_ids : (n,) int32
        0 up to the first [SEP], 1 after it.
    tokens : list of str
        The n pieces.
    input_ids, attention_mask : (n,) int32
        The ids, and as many ones, under Hugging Face's names.
    offsets : (n,2) int32
        Where the source of a piece begins and ends in the text (code points; for a pair, in the text that the
        piece comes from). (0, 0) at [CLS] and [SEP].
    word_ids : (n,) int32
        The index of the word in its text, where a punctuation mark is a word; -1 at [CLS] and [SEP].
    special_tokens_mask : (n,) bool
        True at the [CLS] and [SEP] that were put around the text.
    n_first : int
        The number of ids up to and including the first [SEP].
    """

    ids: NDArray[np.int32]
    n_first: int
    _wrapped: bool
    _vocab: Pieces
    _alignment: Alignment | None

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"Encoding({' '.join(self.tokens)})"

    def __getitem__(self, name: str) -> NDArray[np.int32]:
        """Return a model's input, (n,) int32, by Hugging Face's name for it."""
        return getattr(self, _known_name(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    @property
    def input_ids(self) -> NDArray[np.int32]:
        """Return the ids, (n,) int32."""
        return self.ids

    @property
    def attention_mask(self) -> NDArray[np.int32]:
        """Return a one for each id, (n,) int32: nothing is padded."""
        return np.ones(len(self.ids), np.int32)

    @cached_property
    def token_type_ids(self) -> NDArray[np.int32]:
        """Return 0 up to the first [SEP] and 1 after it, (n,) int32."""
        types = np.zeros(len(self.ids), np.int32)
        types[self.n_first :] = 1
        return types

    @cached_property
    def tokens(self) -> list[str]:
        """Return the n pieces."""
        return [self._vocab[piece_id] for piece_id in self.ids.tolist()]

    @cached_property
    def special_tokens_mask(self) -> NDArray[np.bool_]:
        """Return True at the [CLS] and [SEP] that were put around the text, (n,) bool."""
        mask = np.zeros(len(self.ids), bool)
        if self._wrapped:
            mask[[0, self.n_first - 1, -1]] = True
        return mask

    def __reduce__(self) -> tuple[Any, ...]:
        # The tokenizer is not pickled, so what would be computed from it later is computed now.
        vocab = _pieces_of(self.ids, self._vocab)
        return Encoding, (self.ids, self.n_first, self._wrapped, vocab, self._alignment)


class TextEncoding(Encoding):
    """A whole text as `[CLS] A [SEP]`, whose array of ids is made only when it is asked for.

    Parameters
    ----------
    pieces : list of int
        Ids of the text, without [CLS] and [SEP].
    tokenizer : Tokenizer
        The tokenizer that made them, which encodes the text again if offsets are asked for.
    text : str
        The text.
    special : bool
        Whether special tokens that are written out in it were kept whole.
    """

    def __init__(self, pieces: list[int], tokenizer: Any, text: str, special: bool) -> None:
        self.n_first = len(pieces) + 2
        self._wrapped = True
        self._vocab = tokenizer.vocab
        self._pieces = pieces
        self._tokenizer = tokenizer
        self._text = text
        self._special = special

    def __len__(self) -> int:
        return self.n_first

    def __getattr__(self, name: str) -> Any:
        if name == "ids":
            self.ids = np.array([self._tokenizer.cls_id, *self._pieces, self._tokenizer.sep_id], np.int32)
        elif name == "_alignment":
            batch = self._tokenizer.encode_batch([self._text], offsets=True, special=self._special)
            self._alignment = batch.offsets, batch.word_ids
        else:
            raise no_attribute(self, name)
        return self.__dict__[name]


@explains_foreign_attributes
@dataclass(eq=False, repr=False)
class BatchEncoding(_Aligned):
    """S sequences end to end, without padding, as in a `Batch`.

    `batch[i]` is one of them as an `Encoding` of views, `batch[i:j]` is a list of these, and
    `for encoding in batch` iterates over all. `keys`, `values`, `items`, `get` and `in` deal with the names
    of a model's inputs, as in a mapping.

    Attributes
    ----------
    ids : (T,) int32
        Ids of all sequences.
    cu_seqlens : (S+1,) int32
        Sequence s is ids[cu_seqlens[s]:cu_seqlens[s+1]].
    token_type_ids : (T,) int32
        0 up to the first [SEP] of a sequence, 1 after it.
    offsets, word_ids : (T,2) and (T,) int32
        As in `Encoding`; only if they were asked for.
    special_tokens_mask : (T,) bool
        As in `Encoding`.
    input_ids, attention_mask : (S,n) int32
        The same ids with a row for each sequence, padded with [PAD] to the longest, and ones where they are
        not [PAD]: the inputs of a model that reads padded rows.
    source : (S,) int64
        The index of the text (or pair) that each sequence comes from; several windows share one.
    n_cut : (S,) int64
        How many pieces of its text (or pair) were cut; 0 with windows, which contain all.
    n_invalid : int
        Stretches of bytes that were not UTF-8 in texts given as bytes, each read as U+FFFD.
    """

    encoded: InitVar[Encoded]
    cu_seqlens: NDArray[np.int32]
    _seconds: NDArray[np.int32] | None  # (S,) where the second text of each pair begins
    source: NDArray[np.int64]
    n_cut: NDArray[np.int64]
    _wrapped: bool
    _vocab: Pieces

    def __post_init__(self, encoded: Encoded) -> None:
        self.ids = encoded.ids
        self._alignment = encoded.alignment
        self.n_invalid = encoded.n_invalid
        n = self.cu_seqlens[-1]
        if n >= 2**31:
            raise InputError(f"the texts have {n:,} pieces, more than 32 bits count; encode parts.")
        self.cu_seqlens = self.cu_seqlens.astype(np.int32)

    def __len__(self) -> int:
        return len(self.cu_seqlens) - 1

    def __repr__(self) -> str:
        return f"BatchEncoding({counted(len(self), 'sequence')}, {counted(len(self.ids), 'id')})"

    @overload
    def __getitem__(self, number: str) -> NDArray[np.int32]: ...

    @overload
    def __getitem__(self, number: int) -> Encoding: ...

    @overload
    def __getitem__(self, number: slice) -> list[Encoding]: ...

    def __getitem__(self, number: int | slice | str) -> Encoding | list[Encoding] | NDArray[np.int32]:
        """Return one sequence by its index, or a padded model input by Hugging Face's name.

        Parameters
        ----------
        number : int, slice or str
            The index of a sequence, counted from the end if negative; a slice for several; or "input_ids",
            "attention_mask" or "token_type_ids".

        Returns
        -------
        Encoding, list of Encoding, or array
            The sequence, as views; those of a slice; or (S,n) int32, a row for each sequence, padded to the
            longest.

        Raises
        ------
        InputError
            For another name, or an argument of another type.
        IndexError
            For an index out of range.
        """
        if isinstance(number, str):
            if _known_name(number) == "token_type_ids":
                return self._rows(self.token_type_ids, 0)
            return getattr(self, number)
        if isinstance(number, slice):
            return [self[sequence] for sequence in range(len(self))[number]]
        if not isinstance(number, int | np.integer):
            choices = f"a whole number, a slice, or one of {', '.join(MODEL_INPUTS)}"
            raise InputError(f"{number!r} is not the number of a sequence; give {choices}.")
        if not -len(self) <= number < len(self):
            raise IndexError(f"number={number} is not one of the {len(self)} sequences.")
        number %= len(self)
        begin, end = self.cu_seqlens[number : number + 2].tolist()
        n_first = end - begin
        if self._seconds is not None:
            n_first = int(self._seconds[number]) - begin
        alignment = None
        if self._alignment is not None:
            offsets, word_ids = self._alignment
            alignment = offsets[begin:end], word_ids[begin:end]
        return Encoding(self.ids[begin:end], n_first, self._wrapped, self._vocab, alignment)

    def __iter__(self) -> Iterator[Encoding]:
        return map(self.__getitem__, range(len(self)))

    @property
    def attention_mask(self) -> NDArray[np.int32]:
        """Return a row for each sequence, with ones at its ids and zeros at padding, (S,n) int32."""
        lengths = np.diff(self.cu_seqlens)
        return (np.arange(lengths.max(initial=0)) < lengths[:, None]).astype(np.int32)

    @property
    def input_ids(self) -> NDArray[np.int32]:
        """Return a row of ids for each sequence, padded with [PAD], (S,n) int32."""
        return self._rows(self.ids, self._pad_id)

    # values (T,) -> (S,n)
    def _rows(self, values: Array, padding: int) -> NDArray[np.int32]:
        """Return the sequences as rows, padded to the longest."""
        mask = self.attention_mask
        rows = np.full(mask.shape, padding, np.int32)
        rows[mask == 1] = values
        return rows

    @property
    def _pad_id(self) -> int:
        numbered = enumerate(self._vocab) if isinstance(self._vocab, list) else self._vocab.items()
        return next(number for number, piece in numbered if piece == PAD)

    @cached_property
    def token_type_ids(self) -> NDArray[np.int32]:
        """Return 0 up to the first [SEP] of each sequence and 1 after it, (T,) int32."""
        types = np.zeros(len(self.ids), np.int32)
        if self._seconds is not None:
            types[ranges(self._seconds, self.cu_seqlens[1:] - self._seconds)] = 1
        return types

    @cached_property
    def special_tokens_mask(self) -> NDArray[np.bool_]:
        """Return True at each [CLS] and [SEP] that was put around a text, (T,) bool."""
        mask = np.zeros(len(self.ids), bool)
        if self._wrapped:
            mask[self.cu_seqlens[:-1]] = True
            mask[self.cu_seqlens[1:] - 1] = True
            if self._seconds is not None:
                mask[self._seconds - 1] = True
        return mask

    def __getstate__(self) -> dict[str, Any]:
        vocab = _pieces_of(self.ids, self._vocab) | {self._pad_id: PAD}
        return {**self.__dict__, "_vocab": vocab}


def _known_name(name: Any) -> str:
    """Return the name of a model's input; raise InputError for any other name."""
    if name not in MODEL_INPUTS:
        raise InputError(f"{name!r} is not what a tokenizer returns; ask for {', '.join(MODEL_INPUTS)}.")
    return str(name)


class Limit(NamedTuple):
    """The limit of a sequence's length, and how longer ones are cut; see `Tokenizer.encode_batch`.

    If both texts are cut and their common room is odd, one keeps a piece more. With `odd_to_longer` that is
    the longer text (the second, if both are equally long), as in Hugging Face's `tokenizers`; without, it is
    the first, as in Google's code.
    """

    max_length: int
    truncation: str = "longest_first"
    stride: int | None = None
    odd_to_longer: bool = False

    @classmethod
    def of(
        cls, max_length: int | None, truncation: str, stride: int | None, extra: int, pairs: bool, compat: str
    ) -> "Limit | None":
        """Return the limit that arguments of `Tokenizer.encode_batch` ask for.

        Parameters
        ----------
        max_length, truncation, stride
            Arguments of `Tokenizer.encode_batch`.
        extra : int
            How many [CLS] and [SEP] are put around a text or pair.
        pairs : bool
            Whether there are pairs.
        compat : str
            The tokenizer's mode; with "hf-fast" the longer text of a pair keeps the odd piece.

        Returns
        -------
        Limit or None
            The limit; None if `max_length` is None.

        Raises
        ------
        InputError
            When an argument is out of range, or contradicts another one.
        """
        given: dict[str, Any] = {"max_length": max_length, "truncation": truncation, "stride": stride}
        if isinstance(truncation, bool):
            advice = "leave it out: texts are cut where `max_length` is given."
            raise InputError(f"{truncation=} is not a way to cut; {advice}", truncation=truncation)
        if truncation not in TRUNCATION:
            raise InputError(f"truncation={truncation!r} is unknown; choose one of {', '.join(TRUNCATION)}.")
        if truncation == "only_second" and not pairs:
            raise InputError(f"{truncation=} needs pairs; give them, or choose only_first.", **given)
        if max_length is None:
            if stride is not None:
                message = f"{stride=} makes windows of an unknown length; give one, such as max_length=128."
                raise InputError(message, stride=stride, max_length=128)
            return None
        whole_number("max_length", max_length, 0)
        room = max_length - extra
        if room < 0:
            raise InputError(f"{max_length=} has no room for special tokens; give at least {extra}.", **given)
        if stride is not None:
            whole_number("stride", stride, 0)
            if pairs and truncation == "longest_first":
                needed = "choose truncation='only_first' or truncation='only_second' with it."
                raise InputError(f"{stride=} makes windows of one text of a pair; {needed}", **given)
            if stride >= room:
                small = f"is not less than the {room} pieces that a window has room for"
                raise InputError(f"{stride=} {small}; give less, or raise `max_length`.", **given)
        return cls(max_length, truncation, stride, odd_to_longer=compat == "hf-fast")

    # first (N,) second (N,) -> (N,) (N,)
    def shares(self, first: Array, second: Array, room: int) -> tuple[Array, Array]:
        """Return how many pieces of each text a sequence keeps.

        Parameters
        ----------
        first, second : (N,) int
            How many pieces the first and the second text of each pair have; 0 if there is no second text.
        room : int
            How many pieces a sequence has room for.

        Returns
        -------
        tuple of two (N,) int
            At most `first` and `second`, together at most `room`. With a stride, the pieces of one window.

        Raises
        ------
        LongPair
            When the text that stays whole leaves no room for a new piece of the other.
        """
        if self.truncation == "longest_first":
            return self._shorten_longest(first, second, room)
        cuts_first = self.truncation == "only_first"
        shortened, whole = (first, second) if cuts_first else (second, first)
        available = room - whole
        # At least one new piece: a text that is cut never becomes empty.
        needed = min(room, (self.stride or 0) + 1)
        too_long = np.flatnonzero((shortened > available) & (available < needed))
        if len(too_long):
            pair = int(too_long[0])
            windows = f" for windows with stride={self.stride}" if self.stride is not None else ""
            keeps = f"with truncation={self.truncation!r} the other text keeps all its {whole[pair]} pieces"
            leaves = f"which leaves {max(0, available[pair])}{windows}"
            advice = "raise that length, or truncate longest_first."
            reason = f"does not fit max_length={self.max_length}: {keeps}, {leaves}; {advice}"
            raise LongPair(pair, reason, **self._asdict())
        kept = np.minimum(shortened, available)
        return (kept, whole) if cuts_first else (whole, kept)

    def _shorten_longest(self, first: Array, second: Array, room: int) -> tuple[Array, Array]:
        """Return the shares if pieces are removed from the longer text, one by one."""
        first_gets_odd: Any = True
        if self.odd_to_longer:
            first_gets_odd = first > second
        half = room // 2 + (room % 2) * first_gets_odd
        kept = np.minimum(first, np.maximum(half, room - second))
        return kept, np.minimum(second, room - kept)


def lay_out(
    encoded: Encoded, pairs: bool, wrapped: bool, limit: Limit | None, vocab: Pieces
) -> BatchEncoding:
    """Make sequences within the limit from the pieces of a core.

    Parameters
    ----------
    encoded : Encoded
        The result of a core; in pairs, the second text follows the first.
    pairs : bool
        Whether two texts make a sequence.
    wrapped : bool
        Whether the ids have [CLS] and [SEP] around each text or pair.
    limit : Limit or None
        The limit; None cuts nothing.
    vocab : list of str
        The pieces by id.

    Returns
    -------
    BatchEncoding
        S sequences: one for each text or pair, or with a stride as many as windows are needed.
    """
    borders = encoded.bounds[:: 2 if pairs else 1]
    seconds = encoded.bounds[1::2] if pairs else None
    if limit is None or not np.any(np.diff(borders) > limit.max_length):
        n_texts = len(borders) - 1
        return BatchEncoding(
            encoded,
            borders,
            seconds,
            source=np.arange(n_texts),
            n_cut=np.zeros(n_texts, np.int64),
            _wrapped=wrapped,
            _vocab=vocab,
        )
    begins, lengths, source = _windows(encoded.bounds, pairs, wrapped, limit)
    fits_32_bits = lengths.sum() < 2**31 and len(encoded.ids) < 2**31
    index_type = np.int32 if fits_32_bits else np.int64  # int32 is many times faster
    rows = ranges(begins.ravel().astype(index_type), lengths.ravel().astype(index_type))
    alignment = None
    if encoded.alignment is not None:
        offsets, word_ids = encoded.alignment
        alignment = offsets.take(rows, axis=0), word_ids.take(rows)
    cut = encoded._replace(ids=encoded.ids.take(rows), alignment=alignment)
    ends = np.cumsum(lengths).reshape(lengths.shape)  # where each stretch ends in the new array
    if pairs:
        last_of_first = (lengths.shape[1] - 1) // 2  # the stretch A, or that of its [SEP]
        seconds = ends[:, last_of_first]
    n_cut = np.zeros(len(source), np.int64)
    if limit.stride is None:
        n_cut = np.diff(borders) - lengths.sum(1)
    return BatchEncoding(
        cut,
        np.concatenate([[0], ends[:, -1]]),
        seconds,
        source=source,
        n_cut=n_cut,
        _wrapped=wrapped,
        _vocab=vocab,
    )


# bounds (N+1,) -> (S,k) (S,k) (S,)
def _windows(bounds: Array, pairs: bool, wrapped: bool, limit: Limit) -> tuple[Array, Array, Array]:
    """Describe every sequence as k stretches: where they begin, how long they are, and the sequence's text.

    A sequence is [CLS] A [SEP] B [SEP]: k = 5 stretches, 3 without B, 2 or 1 without [CLS] and [SEP]. Even in
    a window from the middle of a text, [CLS] and [SEP] are taken from the beginning and end of the whole
    text.
    """
    step = 2 if pairs else 1
    begins = bounds[:-1:step]
    ends = bounds[step::step]
    middles = bounds[1::2] if pairs else ends  # where the second text begins
    n_special = 0
    first = middles - begins
    second = ends - middles
    if wrapped:
        n_special = 3 if pairs else 2
        first = first - 2
        second = second - (1 if pairs else 0)
    kept_first, kept_second = limit.shares(first, second, limit.max_length - n_special)

    along_second = limit.truncation == "only_second"  # which text windows move along
    length, window = (second, kept_second) if along_second else (first, kept_first)
    n_windows = np.ones(len(begins), np.int64)
    if limit.stride is not None:
        is_long = length > window
        uncovered = (length - window)[is_long]
        n_windows[is_long] += -(-uncovered // (window - limit.stride)[is_long])  # rounded up
    source = np.repeat(np.arange(len(begins)), n_windows)
    first_window = np.cumsum(n_windows) - n_windows
    window_index = np.arange(len(source)) - np.repeat(first_window, n_windows)  # within its text
    start = window_index * (window[source] - (limit.stride or 0))
    start_first = np.zeros_like(start) if along_second else start
    start_second = start if along_second else np.zeros_like(start)

    one = np.ones_like(source)
    length_first = np.minimum(kept_first[source], first[source] - start_first)
    length_second = np.minimum(kept_second[source], second[source] - start_second)
    begin_first = begins[source] + start_first
    if wrapped:
        begin_first = begin_first + 1
    stretches = [(begin_first, length_first)]
    if wrapped:
        cls = (begins[source], one)
        sep = (middles[source] - 1, one)
        stretches = [cls, *stretches, sep]
    if pairs:
        stretches.append((middles[source] + start_second, length_second))
        if wrapped:
            stretches.append((ends[source] - 1, one))
    stretch_begins, stretch_lengths = zip(*stretches, strict=True)
    return np.stack(stretch_begins, 1), np.stack(stretch_lengths, 1), source


# (n,) (n,) -> (sum of lengths,)
def ranges(begins: Array, lengths: Array) -> Array:
    """List the numbers begin, begin + 1, ..., begin + length - 1 of each range, one range after the other.

    Parameters
    ----------
    begins : (n,) int
        The first number of each range.
    lengths : (n,) int
        How many numbers each range has; of the same type as `begins`.

    Returns
    -------
    (sum of lengths,) int
        The numbers, of that type.
    """
    before = np.cumsum(lengths, dtype=lengths.dtype) - lengths
    return np.repeat(begins - before, lengths) + np.arange(lengths.sum(), dtype=lengths.dtype)


def whole_number(name: str, value: Any, least: int) -> None:
    """Raise InputError unless a value is a whole number of at least `least`.

    Parameters
    ----------
    name : str
        The name of the argument, for the error.
    value : any
        The value; NumPy's integers are whole numbers, True and False are not.
    least : int
        The smallest number allowed.

    Raises
    ------
    InputError
        When the value is something else.
    """
    is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_whole or value < least:
        message = f"{name}={value!r} is not possible; give a whole number, at least {least}."
        raise InputError(message, **{name: value})


def _pieces_of(ids: Array, vocab: Pieces) -> dict[int, str]:
    """Return the part of a vocabulary that some ids need."""
    return {piece_id: vocab[piece_id] for piece_id in np.unique(ids).tolist()}
