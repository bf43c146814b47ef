"""The properties of characters in one version of Unicode: classes, lower case, (de)composition.

The data come from `unicode-15.0.0.txt` next to this file, never from the running Python, so that words and
ids are the same on every Python. Two twins use the same data: `csrc/wordpiece/unicode.c` in C, and
`explorer/static/tokenizer.js` in JavaScript. Lower-casing follows section 3.13 of the Unicode Standard,
(de)composition its Annex 15.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from functools import cache, lru_cache
from itertools import accumulate, groupby, pairwise
from operator import xor
from pathlib import Path

UNICODE_VERSION = "15.0.0"
TABLE = Path(__file__).with_name(f"unicode-{UNICODE_VERSION}.txt")

# The bits of `flags`, the same as in csrc/wordpiece/unicode.h.
CONTROL = 1  # cleaning deletes it: Cc (not tab and line ends), Cf, U+FFFD
SPACE = 2  # words end at it: tab, line ends, Zs, U+2028 and U+2029
PUNCTUATION = 4  # P, and all ASCII that is not a letter, digit, space or control: a word of its own
NONSPACING = 8  # Mn: an accent that decomposition separates from its letter, for example
IDEOGRAPH = 16  # in the CJK blocks that Google's code lists: a word of its own
LATE_IDEOGRAPH = 32  # an IDEOGRAPH that Hugging Face's tokenizer in Rust does not make a word of its own
PRIVATE = 64  # Co
UNASSIGNED = 128  # Cn
SURROGATE = 256  # Cs
CASED = 512
CASE_IGNORABLE = 1024
SEGMENT_START = 2048  # its decomposition begins with a starter that composes with nothing before it
INERT = 4096  # a segment start that NFC leaves as it is
LOWERS = 8192  # its lower case is a different character
DECOMPOSES = 16384  # NFD changes it

# Hangul is not in the table. A syllable is computed from its parts: 19 leading consonants, 21 vowels, and 27
# trailing consonants or none.
_SYLLABLES, _LEADING, _VOWELS, _TRAILING = 0xAC00, 0x1100, 0x1161, 0x11A7
_N_LEADING, _N_VOWELS, _N_TRAILING = 19, 21, 28
_N_SYLLABLES = _N_LEADING * _N_VOWELS * _N_TRAILING


class UnicodeData:
    """The table, parsed for the functions below and for `unicode_tables.py`.

    Attributes
    ----------
    combining : dict of int to int
        Code point -> canonical combining class, where that is not 0.
    lower : dict of int to str
        Code point -> its lower case regardless of context, where that differs.
    decompositions : dict of int to str
        Code point -> its full canonical decomposition, where it has one; Hangul is left out.
    compositions : dict of str to str
        Two characters -> the one that they compose to; Hangul is left out.
    starts, flags : lists of int
        Code points from `starts[i]` to just before `starts[i + 1]` have `flags[i]`, a sum of the constants
        above.
    """

    def __init__(self) -> None:
        sections = _read(TABLE)
        self.combining: dict[int, int] = {}
        for first, last, _, value in sections["Combining_Class"]:
            for code in range(first, last + 1):
                self.combining[code] = int(value)
        self.lower: dict[int, str] = {}
        for first, last, step, value in sections["Lowercase"]:
            lower_of_first = _spell(value)
            self.lower[first] = lower_of_first
            for code in range(first + step, last + 1, step):
                # Every upper case in a range is equally far from its lower case.
                self.lower[code] = chr(ord(lower_of_first) + code - first)
        self.decompositions = {code: _spell(value) for code, _, _, value in sections["Decomposition"]}
        self.compositions = {_spell(value): chr(code) for code, _, _, value in sections["Composition"]}
        toggles: dict[int, int] = defaultdict(int)  # code point -> flags that begin or cease to hold there
        for name, ranges in sections.items():
            if name.startswith("Flag"):
                flag = int(name.removeprefix("Flag"))
                for first, last, _, _ in ranges:
                    toggles[first] ^= flag
                    toggles[last + 1] ^= flag
        self.starts = sorted(start for start, toggle in toggles.items() if toggle and start <= 0x10FFFF)
        self.flags = list(accumulate((toggles[start] for start in self.starts), xor))


def _read(path: Path) -> dict[str, list[tuple[int, int, int, str]]]:
    """Read the sections of the table: name -> entries (first code point, last code point, step, value)."""
    sections: dict[str, list[tuple[int, int, int, str]]] = defaultdict(list)
    entry = re.compile(r"([0-9A-F]+)(?:-([0-9A-F]+))?(/2)?(?:=(\S+))?")
    name = ""
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line.startswith("@"):
            name = line[2:]
        elif not line.startswith("#"):
            for first, last, every_second, value in entry.findall(line):
                step = 2 if every_second else 1
                sections[name].append((int(first, 16), int(last or first, 16), step, value))
    return sections


def _spell(codes: str) -> str:
    """Convert code points in hexadecimal, such as "0041+0301", to the characters."""
    return "".join(chr(int(code, 16)) for code in codes.split("+"))


data = cache(UnicodeData)  # the table, read when it is first needed


@lru_cache(1 << 14)
def flags(code: int) -> int:
    """Return the properties of a code point.

    Parameters
    ----------
    code : int
        The code point, 0 to 0x10FFFF.

    Returns
    -------
    int
        The sum of the constants above that apply.
    """
    tables = data()
    return tables.flags[bisect_right(tables.starts, code) - 1]


def lower_at(text: str, at: int, final_sigma: bool = True) -> str:
    """Lower-case one character of a text, as `str.lower` does in a Python with this version of Unicode.

    Parameters
    ----------
    text : str
        The text.
    at : int
        The index of the character.
    final_sigma : bool, default True
        Whether a capital sigma at the end of a word becomes `ς`, as the Unicode Standard says; otherwise `σ`.

    Returns
    -------
    str
        One or more characters.
    """
    if text[at] == "Σ" and final_sigma and ends_word(text, at):
        return "ς"
    return lower_character(text[at])


def ends_word(text: str, at: int) -> bool:
    """Return whether a letter has a letter before it and none after it (Final_Sigma).

    A letter here is any cased character. Characters between them that are case-ignorable, such as apostrophes
    and accents, are skipped.

    Parameters
    ----------
    text : str
        The text.
    at : int
        The index of the letter.

    Returns
    -------
    bool
        True at the end of a word of two letters or more.
    """
    before, after = at - 1, at + 1
    while before >= 0 and flags(ord(text[before])) & CASE_IGNORABLE:
        before -= 1
    if before < 0 or not flags(ord(text[before])) & CASED:
        return False
    while after < len(text) and flags(ord(text[after])) & CASE_IGNORABLE:
        after += 1
    return after == len(text) or not flags(ord(text[after])) & CASED


def lower_character(character: str) -> str:
    """Return the lower case of a character, whatever its neighbours.

    Parameters
    ----------
    character : str
        One character.

    Returns
    -------
    str
        One or more characters; for a capital sigma the medial `σ`.
    """
    return data().lower.get(ord(character), character)


def nfd(text: str) -> str:
    """Decompose every character of a text, with marks in canonical order (NFD).

    Parameters
    ----------
    text : str
        Any text.

    Returns
    -------
    str
        The decomposed text.
    """
    decomposed = "".join(map(decompose, text))
    ordered: list[str] = []
    for is_starter, run in groupby(decomposed, lambda character: combining_class(character) == 0):
        if is_starter:
            ordered.extend(run)
        else:
            ordered.append(in_order(run))
    return "".join(ordered)


def decompose(character: str) -> str:
    """Return the full canonical decomposition of a character.

    Parameters
    ----------
    character : str
        One character.

    Returns
    -------
    str
        One or more characters; itself if it has no decomposition.
    """
    index = ord(character) - _SYLLABLES
    if 0 <= index < _N_SYLLABLES:
        leading, rest = divmod(index, _N_VOWELS * _N_TRAILING)
        vowel, trailing = divmod(rest, _N_TRAILING)
        parts = chr(_LEADING + leading) + chr(_VOWELS + vowel)
        return parts + chr(_TRAILING + trailing) if trailing else parts
    return data().decompositions.get(ord(character), character)


def combining_class(character: str) -> int:
    """Return the canonical combining class of a character.

    Parameters
    ----------
    character : str
        One character.

    Returns
    -------
    int
        0 for a starter. Adjacent marks of different classes may be reordered.
    """
    return data().combining.get(ord(character), 0)


def in_order(marks: Iterable[str]) -> str:
    """Put marks in canonical order.

    Parameters
    ----------
    marks : iterable of str
        Characters that are not starters.

    Returns
    -------
    str
        The marks, sorted by class; marks of the same class keep their order.
    """
    return "".join(sorted(marks, key=combining_class))


def nfc(text: str) -> str:
    """Decompose a text, then compose it as far as possible (NFC).

    Parameters
    ----------
    text : str
        Any text.

    Returns
    -------
    str
        The composed text.
    """
    return compose(nfd(text))


def segments(text: str) -> Iterable[tuple[int, int]]:
    """Split a text into stretches that NFC changes independently of each other, if at all.

    Parameters
    ----------
    text : str
        Any text.

    Returns
    -------
    iterable of tuples of two int
        Where each begins and ends; together they cover the text.
    """
    borders = {0, len(text)}
    for at, character in enumerate(text):
        if flags(ord(character)) & SEGMENT_START:
            borders.add(at)
    return pairwise(sorted(borders))


def compose(text: str) -> str:
    """Compose decomposed text: join each character with the last starter unless one in between blocks it.

    Parameters
    ----------
    text : str
        Text in NFD.

    Returns
    -------
    str
        The same in NFC.
    """
    composed: list[str] = []
    starter = -1  # the index in `composed` of the last starter
    last_class = 0  # the combining class of the last character in `composed`
    for character in text:
        character_class = combining_class(character)
        adjoins = starter == len(composed) - 1
        is_blocked = not (adjoins or last_class < character_class)
        composite = ""
        if starter >= 0 and not is_blocked:
            composite = compose_pair(composed[starter], character)
        if composite:
            composed[starter] = composite
            continue
        if character_class == 0:
            starter = len(composed)
        last_class = character_class
        composed.append(character)
    return "".join(composed)


def compose_pair(first: str, second: str) -> str:
    """Return the primary composite of two characters.

    Parameters
    ----------
    first, second : str
        A starter and the character to join to it.

    Returns
    -------
    str
        One character, or "" if there is none.
    """
    leading = ord(first) - _LEADING
    vowel = ord(second) - _VOWELS
    if 0 <= leading < _N_LEADING and 0 <= vowel < _N_VOWELS:
        return chr(_SYLLABLES + (leading * _N_VOWELS + vowel) * _N_TRAILING)
    index = ord(first) - _SYLLABLES
    trailing = ord(second) - _TRAILING
    has_no_trailing = 0 <= index < _N_SYLLABLES and index % _N_TRAILING == 0
    if has_no_trailing and 0 < trailing < _N_TRAILING:
        return chr(ord(first) + trailing)
    return data().compositions.get(first + second, "")
