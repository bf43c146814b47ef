"""From raw text to words: cleaning, Chinese characters, lower-casing, accents, punctuation.

The rules are those of `BasicTokenizer` in Google's `tokenization.py` (Devlin et al. 2018, released code).
Each rule looks at one character, so each step is a `str.translate` with a table that fills itself in.
The classes of characters are those of the running Python's `unicodedata`.
"""

import re
import unicodedata
from collections.abc import Callable

# Ideographs stand between spaces; Hangul, Hiragana and Katakana do not: they are written as words.
_IDEOGRAPHS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)

# Python splits at these control characters, the cleaning deletes them: "a\x0bb" is the word "ab".
_DELETED_SPACES = re.compile("[\x0b\x0c\x1c-\x1f\x85]")


class BasicTokenizer:
    """Splits text into normalised words and punctuation marks.

    Parameters
    ----------
    lower_case : lower-case every word (the uncased models).
    strip_accents : drop combining marks after canonical decomposition (NFD); by default as `lower_case`.
    chinese_characters : make a word of every CJK ideograph.

    Examples
    --------
    >>> BasicTokenizer().tokenize("Où est l'Été?")
    ['ou', 'est', 'l', "'", 'ete', '?']
    """

    def __init__(
        self, lower_case: bool = True, strip_accents: bool | None = None, chinese_characters: bool = True
    ):
        self.lower_case = lower_case
        self.strip_accents = lower_case if strip_accents is None else strip_accents
        self.chinese_characters = chinese_characters
        self._cleaned = _CharacterTable(clean_and_isolate if chinese_characters else clean)
        self._split = _CharacterTable(strip_and_split if self.strip_accents else split_punctuation)

    def tokenize(self, text: str) -> list[str]:
        """Words of `text` in order, none of them empty, each punctuation mark a word of its own."""
        # Lower-casing comes before the accents go: "İ" becomes "i" and a dot above, which is then dropped.
        # Google works word by word; no step looks across a space, so the whole text at once is the same.
        text = text.translate(self._cleaned)
        if self.lower_case:
            text = text.lower()
        if self.strip_accents:
            text = unicodedata.normalize("NFD", text)
        return text.translate(self._split).split()


def split_at_whitespace(text: str) -> list[str]:
    """Split raw text into chunks that tokenize independently: the tokens of `text` are theirs in a row."""
    if _DELETED_SPACES.search(text):
        text = _DELETED_SPACES.sub("", text)
    return text.split()


def clean(character: str) -> str:
    """Drop NUL, U+FFFD and control or format characters; make tab, line ends and every space a space."""
    if character in "\t\n\r":
        return " "
    category = unicodedata.category(character)
    if category in ("Cc", "Cf") or character == "\ufffd":
        return ""
    return " " if category == "Zs" else character


def clean_and_isolate(character: str) -> str:
    """As `clean`, with spaces around a CJK ideograph."""
    return f" {character} " if is_ideograph(character) else clean(character)


def split_punctuation(character: str) -> str:
    """Put spaces around a punctuation mark."""
    return f" {character} " if is_punctuation(character) else character


def strip_and_split(character: str) -> str:
    """As `split_punctuation`, dropping nonspacing marks: what is left of an accent after NFD."""
    return "" if unicodedata.category(character) == "Mn" else split_punctuation(character)


def is_ideograph(character: str) -> bool:
    """Whether `character` lies in one of the CJK ideograph blocks, those of 2018."""
    return any(first <= ord(character) <= last for first, last in _IDEOGRAPHS)


def is_punctuation(character: str) -> bool:
    """Whether `character` is Unicode punctuation or any printable ASCII that is no letter or digit.

    The ASCII symbols ``$ + < = > ^ ` | ~`` are punctuation here although Unicode files them elsewhere.
    """
    if character.isascii():
        return character.isprintable() and not character.isalnum() and character != " "
    return unicodedata.category(character).startswith("P")


class _CharacterTable(dict):
    """A table for `str.translate` that works out a character when it first meets it.

    It is bounded by the size of Unicode; ordinary text touches a few hundred characters.
    """

    def __init__(self, rule: Callable[[str], str]):
        super().__init__()
        self.rule = rule

    def __missing__(self, code: int) -> str:
        self[code] = replacement = self.rule(chr(code))
        return replacement
