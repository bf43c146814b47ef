"""The C core of the tokenizer (csrc/wordpiece) as Python objects: bytes go in, NumPy arrays come out.

This is the only file that knows cffi. The Python twin of each object is named in its docstring.
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
_OFFSETS, _SPECIAL, _RAW = 1, 2, 4
_NO_MEMORY, _TOO_LONG = -1, -2

# Slices of a batch, in characters: a smaller one is not worth a thread, a larger one leaves the cache.
_SMALL_SLICE, _LARGE_SLICE = 1 << 16, 1 << 21
_SLICES = 4  # at least, for each thread: they end at different times

# Of n pieces: (n, 2) int32, code points of the text; (n,) int32, number of the word in its text.
Alignment = tuple[Array, Array]


class Pieces(NamedTuple):
    """What a core matches words against."""

    vocab: list[str]
    basic_tokenizer: BasicTokenizer
    unk_id: int
    special_ids: list[int]  # where one begins another, the longer one first
    max_input_chars_per_word: int


class Wanted(NamedTuple):
    """How many texts become ids end to end."""

    offsets: bool = False  # find places in the text and numbers of words
    special: bool = False  # keep special tokens that are written out whole
    first_id: int = -1  # before every `period`-th text, unless negative
    last_id: int = -1  # after each text, unless negative
    period: int = 1


class Symbols(NamedTuple):
    """Words as numbers, of which merges are learned."""

    symbols: Array  # (n,) int32, those of all words end to end, each below `n_symbols`
    bounds: Array  # (W + 1,) int64: word i is symbols[bounds[i]:bounds[i + 1]]
    counts: Array  # (W,) int64, how often each word occurs
    n_symbols: int  # size of the alphabet


class Encoded(NamedTuple):
    """Many texts as ids, end to end; what both cores give."""

    ids: Array  # (n,) int32
    bounds: Array  # (N+1,) int64: ids of text i are bounds[i]:bounds[i+1]
    alignment: Alignment | None  # at wrapping ids 0 0 and -1
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
    """Tell whether the extension can be imported, without a warning."""
    with warnings.catch_warnings(action="ignore"):
        found = load() is not None
    if not found:
        load.cache_clear()  # so that whoever needs it is told
    return found


def choose(core: str) -> bool:
    """Tell whether `core` ("auto", "c" or "python") means the C core; refuse "c" where it is not built."""
    if core not in ("auto", "c", "python"):
        raise InputError(f"core={core!r} is unknown; choose auto, c or python.")
    if core == "c" and not available():
        hint = "install a C compiler and Python's headers, then reinstall minibert, or choose core='python'."
        raise InputError(f"core='c' needs the C core of the tokenizer, which is not built here; {hint}")
    return core != "python" and load() is not None


class Core:
    """Pieces by longest match, as `greedy.GreedyCore` finds them; its rules are those of `BasicTokenizer`."""

    def __init__(self, given: Pieces) -> None:
        self._module = module = load()
        vocab, basic_tokenizer, unk_id, special_ids, max_chars = given
        self._new, self._unpack, self._encode = module.ffi.new, module.ffi.unpack, module.lib.wp_encode_text
        rules = _rules(module, basic_tokenizer), min(max_chars, 2**31 - 1)
        special, kept = (unk_id, special_ids, len(special_ids)), _strings(module, basic_tokenizer.never_split)
        if not (pointer := module.lib.wp_tokenizer_new(*rules, *_strings(module, vocab), *special, *kept)):
            longest = max(vocab, key=len)
            raise InputError(
                f"the vocabulary of {len(vocab)} pieces does not fit into the C core: there is not enough "
                f"memory, or its pieces are too many and too long (the longest: {len(longest)} characters); "
                "choose core='python'."
            )
        self._tokenizer = module.ffi.gc(pointer, module.lib.wp_tokenizer_free)

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Return the ids of one text."""
        data = text.encode("utf-8", "surrogatepass")
        ids = self._new("int32_t[]", len(data))
        n = self._encode(self._tokenizer, data, len(data), _SPECIAL if special else 0, ids)
        if n < 0:
            raise _failure(n)
        return self._unpack(ids, n)

    def encode_texts(
        self, texts: Sequence[str | bytes], wanted: Wanted, threads: int | None = None
    ) -> Encoded:
        """Encode many texts, as `GreedyCore.encode_texts` does: slices of them on several threads."""
        raw = bool(texts) and isinstance(texts[0], bytes)
        flags = _OFFSETS * wanted.offsets + _SPECIAL * wanted.special + _RAW * raw
        threads = cores() if threads is None else threads
        encode = functools.partial(self._encode_slice, flags=flags, wrapping=wanted[2:])
        slices = list(_slices(texts, wanted.period, threads))
        if threads == 1 or len(slices) <= 1:
            return _concatenated(list(map(encode, slices)) or [encode(texts)])
        with ThreadPoolExecutor(min(threads, len(slices))) as pool:
            return _concatenated(list(pool.map(encode, slices)))

    def _encode_slice(
        self, texts: Sequence[str | bytes], flags: int, wrapping: tuple[int, int, int]
    ) -> Encoded:
        ffi, lib = self._module.ffi, self._module.lib
        data, bounds = end_to_end(texts)
        given = data, _int64(self._module, bounds), len(texts)
        if not (pointer := lib.wp_encode_texts(self._tokenizer, *given, flags, *wrapping)):
            raise _failure(_TOO_LONG if np.diff(bounds).max(initial=0) >= 2**31 else _NO_MEMORY)
        result = ffi.gc(pointer, lib.wp_result_free)
        n = result.n_ids
        ids = self._taken(result, "ids", n, np.int32)
        bounds = self._taken(result, "bounds", len(texts) + 1, np.int64)
        alignment = None
        if flags & _OFFSETS:
            offsets = self._taken(result, "offsets", 2 * n, np.int32).reshape(-1, 2)
            alignment = offsets, self._taken(result, "words", n, np.int32)
        return Encoded(ids, bounds, alignment, result.n_invalid)

    def _taken(self, result: Any, field: str, count: int, dtype: type) -> Array:
        """Take an array of a result without a copy: the result gives it up, the array frees it."""
        ffi = self._module.ffi
        pointer = ffi.gc(getattr(result, field), self._module.lib.wp_release)
        setattr(result, field, ffi.NULL)
        return np.frombuffer(ffi.buffer(pointer, count * np.dtype(dtype).itemsize), dtype)


class Counter:
    """Words and how often they occur, as `counting.PythonCounter` has them; one thread at a time writes."""

    def __init__(self, basic_tokenizer: BasicTokenizer, max_chars: int) -> None:
        self._module = module = load()
        rules = _rules(module, basic_tokenizer)
        pointer = _checked(module.lib.wp_counter_new(rules, min(max_chars, 2**31 - 1)))
        self._counter = module.ffi.gc(pointer, module.lib.wp_counter_free)

    def count(self, data: bytes, raw: bool = True) -> int:
        """Count the words of a text, of a string unless `raw`; return how many stretches were not UTF-8."""
        return _counted(self._module.lib.wp_count(self._counter, data, len(data), _RAW * raw))

    def count_split(self, held_out: "Counter", modulus: int, data: bytes, raw: bool = True) -> int:
        """Count as `count`, but lines whose CRC-32 is a multiple of `modulus` into `held_out`."""
        if modulus < 1:  # the C core would divide by it
            raise InputError(f"modulus={modulus} is not a positive number; 2 holds out every second line.")
        both = self._counter, held_out._counter
        return _counted(self._module.lib.wp_count_split(*both, modulus, data, len(data), _RAW * raw))

    def add(self, other: "Counter") -> None:
        """Add the counts of another counter."""
        _counted(self._module.lib.wp_counter_add(self._counter, other._counter))

    def export(self) -> tuple[bytes, Array, Array]:
        """Return words end to end in the order of their bytes, borders (n+1,) int64 and counts (n,) int64."""
        ffi, lib = self._module.ffi, self._module.lib
        n = _counted(lib.wp_counter_n_words(self._counter))
        words = bytearray(_counted(lib.wp_counter_n_bytes(self._counter)))
        bounds, counts = np.empty(n + 1, np.int64), np.empty(n, np.int64)
        places = ffi.from_buffer("char[]", words), _int64(self._module, bounds), _int64(self._module, counts)
        _counted(lib.wp_counter_export(self._counter, *places))
        return bytes(words), bounds, counts


class Merger:
    """The merges of `merging.Merger`, whose arguments these are."""

    def __init__(self, text: Symbols, min_frequency: int, objective: str) -> None:
        self._module = module = load()
        symbols = module.ffi.from_buffer("int32_t[]", np.ascontiguousarray(text.symbols, np.int32))
        given = symbols, _int64(module, text.bounds), _int64(module, text.counts), len(text.counts)
        how = text.n_symbols, min_frequency, OBJECTIVES.index(objective)
        pointer = module.lib.wp_learner_new(*given, *how)
        self._learner = module.ffi.gc(_checked(pointer), module.lib.wp_learner_free)

    def run(self, n_merges: int) -> tuple[Array, Array]:
        """Make up to `n_merges` more merges, as `merging.Merger.run` does."""
        lefts, rights = np.empty((2, n_merges), np.int32)
        places = (self._module.ffi.from_buffer("int32_t[]", one) for one in (lefts, rights))
        n = _counted(self._module.lib.wp_learner_run(self._learner, n_merges, *places))
        return lefts[:n], rights[:n]


def _rules(module: Any, basic: BasicTokenizer) -> Any:
    switches = basic.lower_case, basic.strip_accents, basic.tokenize_chinese_chars
    return module.ffi.new("wp_rules *", (*switches, COMPAT.index(basic.compat)))  # WP_GOOGLE ...


def end_to_end(texts: Sequence[Any]) -> tuple[bytes, Array]:
    """Join texts as UTF-8; return with them where each begins and ends: (N+1,) int64."""
    if texts and isinstance(texts[0], str):
        texts = [text.encode("utf-8", "surrogatepass") for text in texts]
    bounds = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=bounds[1:])
    return b"".join(texts), bounds


def _strings(module: Any, texts: Sequence[str]) -> tuple[bytes, Any, int]:
    """Return strings as the C core takes them: end to end, where each begins and ends, how many there are."""
    data, bounds = end_to_end(texts)
    return data, _int64(module, bounds), len(texts)


def _slices(texts: Sequence[str | bytes], period: int, threads: int) -> Iterator[Sequence[str | bytes]]:
    """Cut texts into slices of whole periods, enough of them for all threads."""
    ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
    total = int(ends[-1]) if len(texts) else 0
    n_slices = max(total // _LARGE_SLICE, min(threads * _SLICES, total // _SMALL_SLICE), 1)
    cuts = np.searchsorted(ends, np.linspace(0, total, n_slices + 1)[1:-1]) // period * period
    for first, last in pairwise(np.unique([0, *cuts, len(texts)]).tolist()):
        yield texts[first:last]


def _concatenated(parts: list[Encoded]) -> Encoded:
    if len(parts) == 1:
        return parts[0]
    bounds, before = [np.zeros(1, np.int64)], 0
    for part in parts:
        bounds.append(part.bounds[1:] + before)
        before += len(part.ids)
    alignment = None
    if aligned := [part.alignment for part in parts if part.alignment is not None]:
        offsets, words = map(np.concatenate, zip(*aligned, strict=True))
        alignment = offsets, words
    ids = np.concatenate([part.ids for part in parts])
    return Encoded(ids, np.concatenate(bounds), alignment, sum(part.n_invalid for part in parts))


def _int64(module: Any, array: Array) -> Any:
    return module.ffi.from_buffer("int64_t[]", array)


def _checked(pointer: Any) -> Any:
    if not pointer:
        raise _failure(_NO_MEMORY)
    return pointer


def _counted(status: int) -> int:
    if status < 0:
        raise _failure(status)
    return status


def _failure(status: int) -> Exception:
    if status == _TOO_LONG:
        return InputError("a text has more than 2,147,483,647 bytes; cut it into several.")
    return MemoryError("there is not enough memory for the tokenizer.")
