"""From raw text to words: cleaning, Chinese characters, lower-casing, accents, punctuation.

The rules are those of `BasicTokenizer` in Google's `tokenization.py` (Devlin et al. 2018, released code),
with two modes for the deviations of Hugging Face's two tokenizers. `align` goes character by character and
tracks where each comes from; `tokenize` maps a whole text at once, by a table that `align` fills.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple

from minibert.base.errors import InputError
from minibert.tokenizer import unicode

COMPAT = ("google", "hf-slow", "hf-fast")
MAX_CHARS = {"google": 200, "hf-slow": 100, "hf-fast": 100}  # in a mode, a word of more characters is [UNK]

_DELETED = {
    "google": unicode.CONTROL,
    "hf-slow": unicode.CONTROL | unicode.PRIVATE | unicode.UNASSIGNED | unicode.SURROGATE,
    "hf-fast": unicode.CONTROL | unicode.PRIVATE,
}

# Python splits at some control characters that cleaning deletes: "a\x0bb" is the word "ab".
_DELETED_ASCII = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_SPACES = str.maketrans("\t\n\r", "   ")
_DELETED_SPACES = re.compile("[\x0b\x0c\x1c-\x1f\x85]")


class Word(NamedTuple):
    """A word, and for each of its characters the span of the original text that it comes from."""

    text: str
    begins: list[int]  # for each character, where its source begins, in code points
    ends: list[int]  # for each character, where its source ends
    kept: bool = False  # whether it is a word of never_split, which stays whole


class _Placed(NamedTuple):
    """A character during normalisation, with the span of its source."""

    character: str
    begin: int
    end: int


class BasicTokenizer:
    """Split text into normalised words and punctuation marks.

    A text is cleaned, and split at spaces and around CJK ideographs. Each part is lower-cased, decomposed
    (NFD), stripped of accents and split at punctuation marks, each of which is a word.

    Parameters
    ----------
    lower_case : bool, default True
        Lower-case every word (the uncased models).
    strip_accents : bool or None
        Drop combining marks after canonical decomposition (NFD); by default as `lower_case`.
    tokenize_chinese_chars : bool, default True
        Make a word of every CJK ideograph.
    compat : {"google", "hf-slow", "hf-fast"}, default "google"
        Whose words to make, by Unicode 15.0.0; docs/tokenizer.md has all differences in a table.

        - "google": those of the released code, `tokenization.py`.
        - "hf-slow": those of Hugging Face's transformers, in Python. Private, unassigned and surrogate
          characters are deleted too, and text is composed (NFC) before it is split.
        - "hf-fast": those of Hugging Face's tokenizers, in Rust. Private characters are deleted too, the
          256 ideographs U+2B820-2B91F are letters like others, and a capital sigma becomes medial everywhere.
    never_split : iterable of str
        Words that stay as they are where they have only spaces, ideographs or the ends of the text around
        them; by default none.

    Raises
    ------
    InputError
        When `compat` is unknown, a switch is neither True nor False, or `never_split` is not a collection of
        non-empty strings.

    Examples
    --------
    >>> BasicTokenizer().tokenize("Où est l'Été?")
    ['ou', 'est', 'l', "'", 'ete', '?']
    >>> BasicTokenizer().align("l'Été")[2]
    Word(text='ete', begins=[2, 3, 4], ends=[3, 4, 5], kept=False)
    """

    def __init__(
        self,
        lower_case: bool = True,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
        *,
        compat: str = "google",
        never_split: Iterable[str] = (),
    ) -> None:
        if compat not in COMPAT:
            raise InputError(f"compat={compat!r} is unknown; choose one of {', '.join(COMPAT)}.")
        is_list = isinstance(never_split, Iterable) and not isinstance(never_split, str)
        kept: tuple[Any, ...] = tuple(never_split) if is_list else (None,)
        if not all(isinstance(word, str) for word in kept):
            raise InputError(f"never_split={never_split!r} is not a list of words; give e.g. ['[MASK]'].")
        if "" in kept:
            raise InputError("never_split has an empty string, which is not a word; leave it out.")
        self.lower_case = _switch("lower_case", lower_case)
        strip_accents = self.lower_case if strip_accents is None else strip_accents
        self.strip_accents = _switch("strip_accents", strip_accents)
        self.tokenize_chinese_chars = _switch("tokenize_chinese_chars", tokenize_chinese_chars)
        self.compat = compat
        self.never_split: tuple[str, ...] = kept
        self._kept = frozenset(kept)
        self.deleted = _DELETED[compat]
        self.final_sigma = compat != "hf-fast"
        # An ideograph forms a word by itself if IDEOGRAPH is the only one of these flags that it has.
        self.apart = unicode.IDEOGRAPH * self.tokenize_chinese_chars
        if compat == "hf-fast":
            self.apart |= unicode.LATE_IDEOGRAPH
        # NFD undoes NFC, so NFC only matters if NFD does not follow, or to find words of never_split first.
        self.composes = compat == "hf-slow" and bool(kept or not self.strip_accents)
        self._alone = _Alone(self.align)

    def tokenize(self, text: str) -> list[str]:
        """Return the words of a text, each punctuation mark a word of its own.

        Parameters
        ----------
        text : str
            Any text.

        Returns
        -------
        list of str
            Normalised words, none of them empty: the same as those of `align`, many times faster.
        """
        if self._kept or self._needs_neighbours(text):
            return [word.text for word in self.align(text)]
        return text.translate(self._alone).split()

    def _needs_neighbours(self, text: str) -> bool:
        """Return whether the normal form of a character may depend on its neighbours."""
        if text.isascii():
            return False
        return self.composes or _looks_at_neighbours().search(text) is not None

    def align(self, text: str) -> list[Word]:
        """Tokenize, with the source of every character. This is the readable reference for offsets.

        Characters share a source where theirs can't be told apart: marks that canonical order rearranged, and
        characters that NFC changed together ("hf-slow").

        Parameters
        ----------
        text : str
            Any text.

        Returns
        -------
        list of Word
            The words of `tokenize`, with sources in code points of the text.
        """
        words = []
        for chunk in self._chunks(text):
            if self.composes:
                chunk = _compose(chunk)
            if _spell(chunk) in self._kept:
                words.append(_word(chunk)._replace(kept=True))
                continue
            if self.lower_case:
                chunk = self._lowered(chunk)
            if self.strip_accents:
                chunk = _strip_accents(chunk)
            words += map(_word, _split_at_punctuation(chunk))
        return words

    def normalize(self, text: str) -> tuple[str, Sequence[int], Sequence[int]]:
        """Return a text as it is before it is split, and the source of each of its characters.

        The text is cleaned; each space is " ", and ideographs that form words have spaces around them; it is
        lower-cased and stripped of accents as the switches say.

        Parameters
        ----------
        text : str
            Any text.

        Returns
        -------
        spelt : str
            The normalised text.
        begins, ends : sequences of int
            For each of its characters, where its source begins, in code points, and where it ends.
        """
        if text.isascii() and not _DELETED_ASCII.search(text):
            # A shortcut: every character keeps its position.
            spelt = text.translate(_SPACES)
            if self.lower_case:
                spelt = spelt.lower()
            return spelt, range(len(text)), range(1, len(text) + 1)
        placed = list(self._spaced(text))
        if self.composes:
            placed = _compose(placed)
        if self.lower_case:
            placed = self._lowered(placed)
        if self.strip_accents:
            placed = _strip_accents(placed)
        begins = [character.begin for character in placed]
        ends = [character.end for character in placed]
        return _spell(placed), begins, ends

    def _spaced(self, text: str) -> Iterator[_Placed]:
        """Clean text, replacing each space by " " and putting spaces around ideographs."""
        for at, character in enumerate(text):
            flags = unicode.flags(ord(character))
            if flags & self.deleted:
                continue
            if flags & unicode.SPACE:
                yield _Placed(" ", at, at + 1)
            elif flags & self.apart == unicode.IDEOGRAPH:
                yield from _expand(_Placed(character, at, at + 1), f" {character} ")
            else:
                yield _Placed(character, at, at + 1)

    def _lowered(self, chunk: list[_Placed]) -> list[_Placed]:
        """Lower-case characters, each in the context of its neighbours."""
        spelt = _spell(chunk)
        lowered: list[_Placed] = []
        for at, placed in enumerate(chunk):
            lowered += _expand(placed, unicode.lower_at(spelt, at, self.final_sigma))
        return lowered

    def _chunks(self, text: str) -> list[list[_Placed]]:
        """Clean text, and split it at spaces and around ideographs."""
        chunks: list[list[_Placed]] = [[]]
        for at, character in enumerate(text):
            flags = unicode.flags(ord(character))
            if flags & self.deleted:
                continue
            if flags & unicode.SPACE:
                chunks.append([])
            elif flags & self.apart == unicode.IDEOGRAPH:
                chunks += [[_Placed(character, at, at + 1)], []]
            else:
                chunks[-1].append(_Placed(character, at, at + 1))
        return [chunk for chunk in chunks if chunk]


class _Alone(dict[int, str]):
    """Map a character to its normal form, if that does not depend on its neighbours, for `str.translate`.

    The form is computed when the character first occurs.
    """

    def __init__(self, align: Callable[[str], list[Word]]) -> None:
        self.align = align

    def __missing__(self, code: int) -> str:
        words = [word.text for word in self.align(f"a{chr(code)}a")]
        between = " ".join(words)[1:-1]
        self[code] = between
        return between


@cache
def _looks_at_neighbours() -> re.Pattern[str]:
    """Match characters whose form depends on neighbours: capital sigma, and marks that only change order."""
    kept_marks = ""
    for code in unicode.data().combining:
        if not unicode.flags(code) & unicode.NONSPACING:
            kept_marks += chr(code)
    return re.compile(f"[Σ{kept_marks}]")


def _switch(name: str, value: bool) -> bool:
    """Return a switch as a bool; raise InputError when it is neither True nor False."""
    # NumPy's bool counts too; comparing names avoids importing NumPy for it.
    if type(value).__name__ not in ("bool", "bool_"):
        raise InputError(f"{name}={value!r} is neither True nor False; give one of these.")
    return bool(value)


def decoded(text: str | bytes) -> tuple[str, int]:
    """Decode a text, if it is bytes in UTF-8.

    Parameters
    ----------
    text : str or bytes
        Each invalid stretch of bytes is read as U+FFFD.

    Returns
    -------
    str
        The text.
    int
        How many stretches were invalid: U+FFFD that the bytes themselves contain do not count.
    """
    if isinstance(text, str):
        return text, 0
    string = text.decode("utf-8", "replace")
    return string, string.count("\ufffd") - text.count("\ufffd".encode())


def split_at_whitespace(text: str) -> list[str]:
    """Split raw text into chunks that can be tokenised independently, one after the other.

    Parameters
    ----------
    text : str
        Any text.

    Returns
    -------
    list of str
        The stretches between white space. Control characters that cleaning deletes, although Python splits at
        them, are removed first.
    """
    return _DELETED_SPACES.sub("", text).split()


def is_punctuation(character: str) -> bool:
    """Return whether a character is punctuation: by Unicode, or printable ASCII such as `$`.

    Parameters
    ----------
    character : str
        One character.

    Returns
    -------
    bool
        False for letters, digits, spaces and controls.
    """
    return bool(unicode.flags(ord(character)) & unicode.PUNCTUATION)


def _compose(chunk: list[_Placed]) -> list[_Placed]:
    """Compose (NFC). All characters of a segment that changes get the same source."""
    text = _spell(chunk)
    composed: list[_Placed] = []
    for begin, end in unicode.segments(text):
        segment = unicode.nfc(text[begin:end])
        if segment == text[begin:end]:
            composed += chunk[begin:end]
        else:
            source = _Placed("", chunk[begin].begin, chunk[end - 1].end)
            composed += _expand(source, segment)
    return composed


def _strip_accents(chunk: list[_Placed]) -> list[_Placed]:
    """Decompose (NFD) and drop nonspacing marks. Other marks that get reordered share one source."""
    decomposed: list[_Placed] = []
    for placed in chunk:
        decomposed += _expand(placed, unicode.decompose(placed.character))
    stripped: list[_Placed] = []
    for is_starter, run in groupby(decomposed, _is_starter):
        kept = [part for part in run if not unicode.flags(ord(part.character)) & unicode.NONSPACING]
        text = _spell(kept)
        ordered = text if is_starter else unicode.in_order(text)
        if ordered == text:
            stripped += kept
        else:
            source = _Placed("", kept[0].begin, kept[-1].end)
            stripped += _expand(source, ordered)
    return stripped


def _is_starter(placed: _Placed) -> bool:
    """Return whether a character is a starter, which canonical ordering does not move."""
    return unicode.combining_class(placed.character) == 0


def _split_at_punctuation(chunk: list[_Placed]) -> list[list[_Placed]]:
    """Split a chunk into words; each punctuation mark is one."""
    words: list[list[_Placed]] = [[]]
    for placed in chunk:
        if is_punctuation(placed.character):
            words += [[placed], []]
        else:
            words[-1].append(placed)
    return [word for word in words if word]


def _expand(source: _Placed, characters: str) -> list[_Placed]:
    """Return characters that all have the same source."""
    return [_Placed(character, source.begin, source.end) for character in characters]


def _spell(chunk: list[_Placed]) -> str:
    """Return the characters as a string."""
    return "".join(placed.character for placed in chunk)


def _word(chunk: list[_Placed]) -> Word:
    """Return the characters as a word."""
    begins = [placed.begin for placed in chunk]
    ends = [placed.end for placed in chunk]
    return Word(_spell(chunk), begins, ends)
