"""The output of a tokenizer: ids and their offsets, with long texts cut or in windows.

A core gives the pieces of many texts end to end. Everything here is arithmetic on where texts begin and
end in that row: no loop over texts, and the same for every core.
"""

from collections.abc import Iterator
from dataclasses import InitVar, dataclass
from functools import cached_property
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from minibert.base.errors import InputError
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
        Number of the pair, from 0.
    reason : str
        The rest of the sentence that begins with "pair N"; may name arguments, as in "max_length=8".
    **arguments
        Values of the arguments that the reason names.
    """

    def __init__(self, pair: int, reason: str, **arguments: Any) -> None:
        super().__init__(f"pair {pair} {reason}", **arguments)
        self.pair = pair
        self.reason = reason


MODEL_INPUTS = ("input_ids", "token_type_ids", "attention_mask")  # as Hugging Face calls them


class _Aligned:
    """Hold tokens with, if they were asked for, their places in the text and the numbers of their words.

    What a model reads is there by Hugging Face's names, too, as in a mapping: `encoded["input_ids"]`,
    `encoded.items()`, `dict(encoded)`.
    """

    _alignment: Alignment | None

    @property
    def input_ids(self) -> NDArray[np.int32]:
        """Return the ids as a model reads them."""
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
        """Return a model's input by its name, or `default`."""
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
        """Return the number of each token's word, (T,) int32; InputError if not asked for."""
        return self._aligned[1]

    @property
    def _aligned(self) -> Alignment:
        if self._alignment is None:
            raise InputError("offsets and word_ids were not asked for; call encode_batch(..., offsets=True).")
        return self._alignment


@dataclass(eq=False, repr=False)
class Encoding(_Aligned):
    """Hold a text, or a pair of texts, as the model reads it: `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`.

    Attributes
    ----------
    ids : (n,) int32
        Ids of the pieces.
    token_type_ids : (n,) int32
        0 up to the first [SEP], 1 after it.
    tokens : list of str
        The n pieces.
    input_ids, attention_mask : (n,) int32
        The ids and as many ones, as Hugging Face calls them.
    offsets : (n,2) int32
        The first character of the text that a piece comes from and the one after the last (code points; in a
        pair, those of its own text). (0, 0) at [CLS] and [SEP].
    word_ids : (n,) int32
        Number of the word in its text, a punctuation mark being one; -1 at [CLS], [SEP].
    special_tokens_mask : (n,) bool
        True at the [CLS] and [SEP] that were put around the text.
    n_first : int
        Ids up to the first [SEP], itself included.
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
        """Return a model's input, (n,) int32, by Hugging Face's name of it."""
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
        return [self._vocab[number] for number in self.ids.tolist()]

    @cached_property
    def special_tokens_mask(self) -> NDArray[np.bool_]:
        """Return True at the [CLS] and [SEP] that were put around the text, (n,) bool."""
        mask = np.zeros(len(self.ids), bool)
        if self._wrapped:
            mask[[0, self.n_first - 1, -1]] = True
        return mask

    def __reduce__(self) -> tuple[Any, ...]:
        # The tokenizer stays at home: what it would be asked for later is found now.
        vocab = _pieces_of(self.ids, self._vocab)
        return Encoding, (self.ids, self.n_first, self._wrapped, vocab, self._alignment)


class TextEncoding(Encoding):
    """Hold a whole text as `[CLS] A [SEP]`: even its ids become an array only when they are asked for.

    Parameters
    ----------
    pieces : list of int
        Ids of the text, without [CLS] and [SEP].
    tokenizer : Tokenizer
        The one that made them, which is asked again for offsets.
    text : str
        The text.
    special : bool
        Whether special tokens written out in it were kept whole.
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
            raise AttributeError(name)
        return self.__dict__[name]


@dataclass(eq=False, repr=False)
class BatchEncoding(_Aligned):
    """Hold S sequences end to end, without padding, as `Batch` has them.

    `batch[i]` is one of them as an `Encoding` of views, `batch[i:j]` is a list of these, and
    `for encoding in batch` goes through all. `keys`, `values`, `items`, `get` and `in` are about the names of
    what a model reads, as in a mapping.

    Attributes
    ----------
    ids : (T,) int32
        Ids of all sequences.
    cu_seqlens : (S+1,) int32
        Sequence s is ids[cu_seqlens[s]:cu_seqlens[s+1]].
    token_type_ids : (T,) int32
        0 up to the first [SEP] of a sequence, 1 after it.
    offsets, word_ids : (T,2) and (T,) int32
        As in `Encoding`; they must be asked for.
    special_tokens_mask : (T,) bool
        As in `Encoding`.
    input_ids, attention_mask : (S,n) int32
        The same ids a row for each sequence, filled up with [PAD] to the longest, and ones where they are not
        [PAD]: what a model wants that pads.
    source : (S,) int64
        Number of the text (or pair) that each sequence is of: several windows share one.
    n_cut : (S,) int64
        Pieces of its text (or pair) that there was no room for; 0 where windows hold all.
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
        """Return one sequence by its number, or a padded model input by Hugging Face's name.

        Parameters
        ----------
        number : int, slice or str
            Number of a sequence, from the end where negative; several, as a slice; or "input_ids",
            "attention_mask" or "token_type_ids".

        Returns
        -------
        Encoding, list of Encoding, or array
            The sequence, as views; those of a slice; or (S,n) int32, a row for each sequence, filled up to
            the longest.

        Raises
        ------
        InputError
            For another name, and for what is neither of these.
        IndexError
            For a number that is none of the sequences.
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
        """Return rows of ones where there is an id and of zeros where there is padding, (S,n) int32."""
        lengths = np.diff(self.cu_seqlens)
        return (np.arange(lengths.max(initial=0)) < lengths[:, None]).astype(np.int32)

    @property
    def input_ids(self) -> NDArray[np.int32]:
        """Return a row of ids for each sequence, filled up with [PAD], (S,n) int32."""
        return self._rows(self.ids, self._pad_id)

    # values (T,) -> (S,n)
    def _rows(self, values: Array, padding: int) -> NDArray[np.int32]:
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
    """Return the name of what a model reads; raise InputError for anything else."""
    if name not in MODEL_INPUTS:
        raise InputError(f"{name!r} is not what a tokenizer returns; ask for {', '.join(MODEL_INPUTS)}.")
    return str(name)


class Limit(NamedTuple):
    """Hold the limit of a sequence's length, and how longer ones are cut; see `Tokenizer.encode_batch`.

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
        """Return the limit that arguments of `Tokenizer.encode_batch` ask for.

        Parameters
        ----------
        max_length, truncation, stride
            Those arguments.
        extra : int
            How many [CLS] and [SEP] are put around a text or pair.
        pairs : bool
            Whether there are pairs.
        compat : str
            The tokenizer's; with "hf-fast" the longer text of a pair keeps the odd piece.

        Returns
        -------
        Limit or None
            None where `max_length` is None.

        Raises
        ------
        InputError
            When an argument is not possible, or not beside the others.
        """
        given: dict[str, Any] = {"max_length": max_length, "truncation": truncation, "stride": stride}
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
            How many pieces the first and the second text of each pair have; 0 where there is no second.
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
        left = room - whole
        needed = min(room, (self.stride or 0) + 1)  # one new piece: a text that is cut never becomes empty
        too_long = np.flatnonzero((shortened > left) & (left < needed))
        if len(too_long):
            pair = int(too_long[0])
            windows = f" for windows with stride={self.stride}" if self.stride is not None else ""
            kept = f"with truncation={self.truncation!r} the other text keeps all its {whole[pair]} pieces"
            leaves = f"which leaves {max(0, left[pair])}{windows}"
            advice = "raise that length, or truncate longest_first."
            reason = f"does not fit max_length={self.max_length}: {kept}, {leaves}; {advice}"
            raise LongPair(pair, reason, **self._asdict())
        kept = np.minimum(shortened, left)
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
    """Make sequences within the limit of a core's pieces.

    Parameters
    ----------
    encoded : Encoded
        What a core gave, a row of ids for each text; of pairs, the second text follows the first.
    pairs : bool
        Whether two texts make a sequence.
    wrapped : bool
        Whether the ids have [CLS] and [SEP] around each text or pair.
    limit : Limit or None
        What to cut; None cuts nothing.
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
    small = np.int32 if fits_32_bits else np.int64  # the first is many times faster
    rows = ranges(begins.ravel().astype(small), lengths.ravel().astype(small))
    alignment = None
    if encoded.alignment is not None:
        offsets, word_ids = encoded.alignment
        alignment = offsets.take(rows, axis=0), word_ids.take(rows)
    cut = encoded._replace(ids=encoded.ids.take(rows), alignment=alignment)
    ends = np.cumsum(lengths).reshape(lengths.shape)  # of each stretch, in the new row
    if pairs:
        last_of_first = (lengths.shape[1] - 1) // 2  # the stretch of A, or that of its [SEP]
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
    """Find every sequence as k stretches: where they begin, how long they are, of which text they are.

    A sequence is [CLS] A [SEP] B [SEP]: k = 5 stretches, 3 without B, 2 or 1 without [CLS] and [SEP]. [CLS]
    and [SEP] are those of the whole text, at its beginning and its end, also in a window from its middle.
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
    number = np.arange(len(source)) - np.repeat(first_window, n_windows)  # of the window in its text
    start = number * (window[source] - (limit.stride or 0))
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
        cls, sep = (begins[source], one), (middles[source] - 1, one)
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
        How many numbers each has; of the same type as `begins`.

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
        Name of the argument, for the error.
    value : any
        What was given; NumPy's integers are whole numbers, True and False are not.
    least : int
        The smallest number that is possible.

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
    return {number: vocab[number] for number in np.unique(ids).tolist()}
