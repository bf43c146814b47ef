"""The C core of the tokenizer (csrc/wordpiece) as Python objects: bytes go in, NumPy arrays come out.

Only this file uses cffi. The docstring of each object names its Python twin.
"""

import functools
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from minibert.base.errors import InputError, warn
from minibert.base.machine import cores
from minibert.core.arrays import Array
from minibert.tokenizer.normalize import COMPAT, BasicTokenizer

OBJECTIVES = ("likelihood", "frequency")  # in C, 0 and 1
_OFFSETS, _SPECIAL, _RAW = 1, 2, 4  # flags of the C functions
_NO_MEMORY, _TOO_LONG = -1, -2  # their errors
_MOST_INT = 2**31 - 1

# Slices of a batch, in characters: a smaller one is not worth a thread, a larger one exceeds the cache.
_SMALL_SLICE, _LARGE_SLICE = 1 << 16, 1 << 21
_SLICES = 4  # the fewest for each thread, so that all threads finish at about the same time

# For n pieces: their spans in code points of the text, (n, 2) int32; the indices of their words in the text,
# (n,) int32.
Alignment = tuple[Array, Array]


class Pieces(NamedTuple):
    """What a core is made from: the vocabulary to match words against, and the rules."""

    vocab: list[str]
    basic_tokenizer: BasicTokenizer
    unk_id: int
    special_ids: list[int]  # a token that begins with another one comes before it
    max_input_chars_per_word: int


class Wanted(NamedTuple):
    """How to encode texts: whether with offsets, and which ids to put around them."""

    offsets: bool = False  # whether to find the spans of pieces and the indices of words
    special: bool = False  # whether special tokens that are written out are kept whole
    first_id: int = -1  # the id before every `period`-th text; negative for none
    last_id: int = -1  # the id after each text; negative for none
    period: int = 1


class Symbols(NamedTuple):
    """Words as sequences of numbers, from which merges are learnt."""

    symbols: Array  # (n,) int32, the symbols of all words end to end, each below `n_symbols`
    bounds: Array  # (W + 1,) int64: word i is symbols[bounds[i]:bounds[i + 1]]
    counts: Array  # (W,) int64, how often each word occurs
    n_symbols: int  # size of the alphabet


class Encoded(NamedTuple):
    """Many texts as ids, end to end; the result of both cores."""

    ids: Array  # (n,) int32
    bounds: Array  # (N+1,) int64: text i is ids[bounds[i]:bounds[i + 1]]
    alignment: Alignment | None  # the ids put around texts have the span (0, 0) and the word -1
    n_invalid: int  # stretches of bytes that were not UTF-8


@functools.cache
def load() -> Any:
    """Import the extension; return None, with one warning, where it was not built."""
    try:
        return import_module("minibert.tokenizer._wordpiece")
    except ImportError as error:
        warn(
            f"the C core of the tokenizer is not available ({error}): its Python twin gives the same "
            "results, many times slower; install a C compiler and Python's headers, then reinstall minibert."
        )
        return None


def available() -> bool:
    """Return whether the extension can be imported, without a warning."""
    with warnings.catch_warnings(action="ignore"):
        is_built = load() is not None
    if not is_built:
        load.cache_clear()  # the next call of `load` then warns
    return is_built


def choose(core: str) -> bool:
    """Return whether an argument selects the C core.

    Parameters
    ----------
    core : {"auto", "c", "python"}
        "auto" is the C core where it is built; where it is not, the first call warns.

    Returns
    -------
    bool
        True for the C core, False for the Python core.

    Raises
    ------
    InputError
        When the name is unknown, or for "c" where the extension is not built.
    """
    if core not in ("auto", "c", "python"):
        raise InputError(f"core={core!r} is unknown; choose auto, c or python.")
    if core == "c" and not available():
        hint = "install a C compiler and Python's headers, then reinstall minibert, or choose core='python'."
        raise InputError(f"core='c' needs the C core of the tokenizer, which is not built here; {hint}")
    return core != "python" and load() is not None


class Core:
    """Find pieces by longest match, as `greedy.GreedyCore` does; the rules are those of `BasicTokenizer`.

    Parameters
    ----------
    given : Pieces
        The vocabulary and the rules.

    Raises
    ------
    InputError
        When the vocabulary is too large for the C core or for memory.
    """

    def __init__(self, given: Pieces) -> None:
        self._module = module = load()
        self._new = module.ffi.new
        self._unpack = module.ffi.unpack
        self._encode = module.lib.wp_encode_text
        vocab = given.vocab
        basic_tokenizer = given.basic_tokenizer
        pointer = module.lib.wp_tokenizer_new(
            _rules(module, basic_tokenizer),
            min(given.max_input_chars_per_word, _MOST_INT),
            *_strings(module, vocab),
            given.unk_id,
            given.special_ids,
            len(given.special_ids),
            *_strings(module, basic_tokenizer.never_split),
        )
        if not pointer:
            longest = max(vocab, key=len)
            raise InputError(
                f"the vocabulary of {len(vocab)} pieces does not fit into the C core: there is not enough "
                f"memory, or its pieces are too many and too long (the longest: {len(longest)} characters); "
                "choose core='python'."
            )
        self._tokenizer = module.ffi.gc(pointer, module.lib.wp_tokenizer_free)

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Return the ids of one text.

        Parameters
        ----------
        text : str
            The text; lone surrogates are allowed.
        special : bool, default False
            Whether special tokens that are written out in it are kept whole.

        Returns
        -------
        list of int
            Ids of its pieces, without [CLS] and [SEP].

        Raises
        ------
        InputError
            When the text has more than 2**31 - 1 bytes in UTF-8.
        MemoryError
            When there is not enough memory.
        """
        data = text.encode("utf-8", "surrogatepass")
        ids = self._new("int32_t[]", len(data))
        n = self._encode(self._tokenizer, data, len(data), _SPECIAL if special else 0, ids)
        if n < 0:
            raise _failure(n)
        return self._unpack(ids, n)

    def encode_texts(
        self, texts: Sequence[str | bytes], wanted: Wanted, threads: int | None = None
    ) -> Encoded:
        """Encode many texts, as `GreedyCore.encode_texts` does, in slices on several threads.

        Parameters
        ----------
        texts : sequence of str or of bytes
            All of one type; bytes are UTF-8.
        wanted : Wanted
            What to find, and which ids to put around each text.
        threads : int or None
            How many threads share the work; by default one for each core.

        Returns
        -------
        Encoded
            In the order of the texts, for any number of threads.
        """
        flags = 0
        if wanted.offsets:
            flags |= _OFFSETS
        if wanted.special:
            flags |= _SPECIAL
        if texts and isinstance(texts[0], bytes):
            flags |= _RAW
        if threads is None:
            threads = cores()
        wrapping = wanted.first_id, wanted.last_id, wanted.period
        encode = functools.partial(self._encode_slice, flags=flags, wrapping=wrapping)
        slices = list(_slices(texts, wanted.period, threads))
        if not slices:
            return encode(texts)
        if threads == 1 or len(slices) == 1:
            return _join_slices([encode(part) for part in slices])
        with ThreadPoolExecutor(min(threads, len(slices))) as pool:
            return _join_slices(list(pool.map(encode, slices)))

    def _encode_slice(
        self, texts: Sequence[str | bytes], flags: int, wrapping: tuple[int, int, int]
    ) -> Encoded:
        """Encode texts in one thread."""
        ffi, lib = self._module.ffi, self._module.lib
        data, bounds = end_to_end(texts)
        pointer = lib.wp_encode_texts(
            self._tokenizer, data, _int64(self._module, bounds), len(texts), flags, *wrapping
        )
        if not pointer:
            longest = np.diff(bounds).max(initial=0)
            raise _failure(_TOO_LONG if longest > _MOST_INT else _NO_MEMORY)
        result = ffi.gc(pointer, lib.wp_result_free)
        n = result.n_ids
        ids = self._array_from(result, "ids", n, np.int32)
        bounds = self._array_from(result, "bounds", len(texts) + 1, np.int64)
        alignment = None
        if flags & _OFFSETS:
            offsets = self._array_from(result, "offsets", 2 * n, np.int32).reshape(-1, 2)
            word_ids = self._array_from(result, "words", n, np.int32)
            alignment = offsets, word_ids
        return Encoded(ids, bounds, alignment, result.n_invalid)

    def _array_from(self, result: Any, field: str, count: int, dtype: type) -> Array:
        """Take an array out of a result without a copy; from then on the array owns the memory."""
        ffi = self._module.ffi
        pointer = ffi.gc(getattr(result, field), self._module.lib.wp_release)
        setattr(result, field, ffi.NULL)
        n_bytes = count * np.dtype(dtype).itemsize
        return np.frombuffer(ffi.buffer(pointer, n_bytes), dtype)


class Counter:
    """Count words, as `counting.PythonCounter` does; one thread at a time writes.

    Parameters
    ----------
    basic_tokenizer : BasicTokenizer
        The rules that make words of text.
    max_chars : int
        Words of more characters are not counted.
    """

    def __init__(self, basic_tokenizer: BasicTokenizer, max_chars: int) -> None:
        self._module = module = load()
        rules = _rules(module, basic_tokenizer)
        pointer = _checked(module.lib.wp_counter_new(rules, min(max_chars, _MOST_INT)))
        self._counter = module.ffi.gc(pointer, module.lib.wp_counter_free)

    def count(self, data: bytes, raw: bool = True) -> int:
        """Count the words of a text.

        Parameters
        ----------
        data : bytes
            The text in UTF-8.
        raw : bool, default True
            Whether the bytes are of unknown origin; False if they encode a str, whose lone surrogates are
            allowed.

        Returns
        -------
        int
            How many stretches were not UTF-8; 0 unless `raw`.
        """
        flags = _RAW if raw else 0
        return _counted(self._module.lib.wp_count(self._counter, data, len(data), flags))

    def count_split(self, held_out: "Counter", modulus: int, data: bytes, raw: bool = True) -> int:
        """Count as `count` does, except lines whose CRC-32 is a multiple of `modulus`: count those elsewhere.

        Parameters
        ----------
        held_out : Counter
            The counter for those lines.
        modulus : int
            About one line in `modulus` is held out.
        data, raw
            As for `count`.

        Returns
        -------
        int
            How many stretches were not UTF-8; 0 unless `raw`.

        Raises
        ------
        InputError
            When `modulus` is not positive.
        """
        if modulus < 1:  # the C core would divide by it
            raise InputError(f"modulus={modulus} is not a positive number; 2 holds out every second line.")
        flags = _RAW if raw else 0
        n_invalid = self._module.lib.wp_count_split(
            self._counter, held_out._counter, modulus, data, len(data), flags
        )
        return _counted(n_invalid)

    def add(self, other: "Counter") -> None:
        """Add the counts of another counter.

        Parameters
        ----------
        other : Counter
            A counter with the same rules; it is not changed.
        """
        _counted(self._module.lib.wp_counter_add(self._counter, other._counter))

    def export(self) -> tuple[bytes, Array, Array]:
        """Return words end to end in the order of their bytes, borders (n+1,) int64 and counts (n,) int64."""
        ffi, lib = self._module.ffi, self._module.lib
        n_words = _counted(lib.wp_counter_n_words(self._counter))
        n_bytes = _counted(lib.wp_counter_n_bytes(self._counter))
        words = bytearray(n_bytes)
        bounds = np.empty(n_words + 1, np.int64)
        counts = np.empty(n_words, np.int64)
        status = lib.wp_counter_export(
            self._counter,
            ffi.from_buffer("char[]", words),
            _int64(self._module, bounds),
            _int64(self._module, counts),
        )
        _counted(status)
        return bytes(words), bounds, counts


class Merger:
    """Make the merges of a vocabulary, as `merging.Merger` does, with the same arguments.

    Parameters
    ----------
    text : Symbols
        The words, as symbols.
    min_frequency : int
        A pair that occurs less often is never merged.
    objective : {"likelihood", "frequency"}
        Which pair is the best.
    """

    def __init__(self, text: Symbols, min_frequency: int, objective: str) -> None:
        self._module = module = load()
        symbols = np.ascontiguousarray(text.symbols, np.int32)
        pointer = module.lib.wp_learner_new(
            module.ffi.from_buffer("int32_t[]", symbols),
            _int64(module, text.bounds),
            _int64(module, text.counts),
            len(text.counts),
            text.n_symbols,
            min_frequency,
            OBJECTIVES.index(objective),
        )
        self._learner = module.ffi.gc(_checked(pointer), module.lib.wp_learner_free)

    def run(self, n_merges: int) -> tuple[Array, Array]:
        """Make up to `n_merges` more merges, as `merging.Merger.run` does.

        Parameters
        ----------
        n_merges : int
            How many merges are wanted.

        Returns
        -------
        lefts, rights : (k,) int32
            The two parts of each merge; k is less than `n_merges` when no pair is left.
        """
        lefts, rights = np.empty((2, n_merges), np.int32)
        n = self._module.lib.wp_learner_run(
            self._learner,
            n_merges,
            self._module.ffi.from_buffer("int32_t[]", lefts),
            self._module.ffi.from_buffer("int32_t[]", rights),
        )
        n = _counted(n)
        return lefts[:n], rights[:n]


def _rules(module: Any, basic: BasicTokenizer) -> Any:
    """Return the rules as a struct of C."""
    mode = COMPAT.index(basic.compat)  # WP_GOOGLE ...
    fields = basic.lower_case, basic.strip_accents, basic.tokenize_chinese_chars, mode
    return module.ffi.new("wp_rules *", fields)


def end_to_end(texts: Sequence[Any]) -> tuple[bytes, Array]:
    """Join texts as UTF-8.

    Parameters
    ----------
    texts : sequence of N str or bytes
        All of one type; lone surrogates are written as "surrogatepass" writes them.

    Returns
    -------
    data : bytes
        The texts, one directly after the other.
    bounds : (N+1,) int64
        Text i is data[bounds[i]:bounds[i + 1]].
    """
    if texts and isinstance(texts[0], str):
        texts = [text.encode("utf-8", "surrogatepass") for text in texts]
    n_texts = len(texts)
    lengths = np.fromiter(map(len, texts), np.int64, n_texts)
    bounds = np.zeros(n_texts + 1, np.int64)
    np.cumsum(lengths, out=bounds[1:])
    return b"".join(texts), bounds


def _strings(module: Any, texts: Sequence[str]) -> tuple[bytes, Any, int]:
    """Return strings as the C core takes them: all of them end to end, their borders, and their number."""
    data, bounds = end_to_end(texts)
    return data, _int64(module, bounds), len(texts)


def _slices(texts: Sequence[str | bytes], period: int, threads: int) -> Iterator[Sequence[str | bytes]]:
    """Split texts into slices of whole periods, enough of them for all threads."""
    n_texts = len(texts)
    lengths = np.fromiter(map(len, texts), np.int64, n_texts)
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if n_texts else 0
    n_for_threads = min(threads * _SLICES, total // _SMALL_SLICE)
    n_for_cache = total // _LARGE_SLICE
    n_slices = max(n_for_cache, n_for_threads, 1)
    # Where slices of equal length would end, in characters.
    targets = np.linspace(0, total, n_slices + 1)[1:-1]
    cuts = np.searchsorted(ends, targets)
    cuts -= cuts % period
    borders = np.unique([0, *cuts, n_texts])
    for first, last in pairwise(borders.tolist()):
        yield texts[first:last]


def _join_slices(parts: list[Encoded]) -> Encoded:
    """Join the results of slices. Only bounds are shifted: offsets and words count from the start of a text.

    Either all parts have an alignment, or none.
    """
    if len(parts) == 1:
        return parts[0]
    bounds = [np.zeros(1, np.int64)]
    before = 0
    for part in parts:
        bounds.append(part.bounds[1:] + before)
        before += len(part.ids)
    alignment = None
    alignments = [part.alignment for part in parts if part.alignment is not None]
    if alignments:
        offsets = np.concatenate([offsets for offsets, _ in alignments])
        word_ids = np.concatenate([word_ids for _, word_ids in alignments])
        alignment = offsets, word_ids
    ids = np.concatenate([part.ids for part in parts])
    n_invalid = sum(part.n_invalid for part in parts)
    return Encoded(ids, np.concatenate(bounds), alignment, n_invalid)


def _int64(module: Any, array: Array) -> Any:
    """Return a pointer to an array for C; the array must outlive the call."""
    return module.ffi.from_buffer("int64_t[]", array)


def _checked(pointer: Any) -> Any:
    """Return a pointer; raise MemoryError when it is NULL."""
    if not pointer:
        raise _failure(_NO_MEMORY)
    return pointer


def _counted(status: int) -> int:
    """Return the count that a C function returned; raise the error that a negative one stands for."""
    if status < 0:
        raise _failure(status)
    return status


def _failure(status: int) -> Exception:
    """Return the error that a status of the C core stands for."""
    if status == _TOO_LONG:
        return InputError("a text has more than 2,147,483,647 bytes; cut it into several.")
    return MemoryError("there is not enough memory for the tokenizer.")
