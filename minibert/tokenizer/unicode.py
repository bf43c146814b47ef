"""What one version of Unicode says about characters: classes, lower-casing, canonical (de)composition.

The facts come from `unicode-15.0.0.txt` beside this file, never from the running Python, so that words and
ids are the same on every Python. `csrc/wordpiece/unicode.c` is the twin in C, made from the same file.
Lower-casing is section 3.13 of the Unicode Standard, (de)composition its Annex 15.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

UNICODE_VERSION = "15.0.0"
TABLE = Path(__file__).with_name(f"unicode-{UNICODE_VERSION}.txt")

# What `flags` tells of a character, as in csrc/wordpiece/unicode.h.
CONTROL = 1  # cleaning deletes it: Cc (not tab and line ends), Cf, U+FFFD
SPACE = 2  # words end at it: tab, line ends, Zs, U+2028 and U+2029
PUNCTUATION = 4  # P, and all ASCII that is no letter, digit, space or control: a word of its own
NONSPACING = 8  # Mn: what is left of an accent
IDEOGRAPH = 16  # in the CJK blocks that Google's code lists: a word of its own
LATE_IDEOGRAPH = 32  # those of them that Hugging Face's tokenizer in Rust leaves alone
PRIVATE = 64  # Co
UNASSIGNED = 128  # Cn
SURROGATE = 256  # Cs
CASED = 512
CASE_IGNORABLE = 1024
SEGMENT_START = 2048  # its decomposition begins with a starter that composes with nothing before it
INERT = 4096  # a segment start that NFC leaves as it is
LOWERS = 8192  # has another lower case
DECOMPOSES = 16384  # NFD changes it

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
_LATE_IDEOGRAPHS = ((0x2B820, 0x2B91F),)

# Hangul syllables are computed: 19 leading consonants, 21 vowels, 27 trailing consonants or none.
_SYLLABLES, _LEADING, _VOWELS, _TRAILING = 0xAC00, 0x1100, 0x1161, 0x11A7
_N_LEADING, _N_VOWELS, _N_TRAILING = 19, 21, 28
_N_SYLLABLES = _N_LEADING * _N_VOWELS * _N_TRAILING

_Ranges = list[tuple[int, int]]


class UnicodeData:
    """The table as the functions below use it, and `unicode_tables.py` does.

    Attributes
    ----------
    starts, flags : code points from `starts[i]` up to `starts[i + 1]` have `flags[i]`.
    combining : code point -> canonical combining class, where that is not 0.
    lower : code point -> lower case without context, where it is another.
    decompositions : code point -> full canonical decomposition, without Hangul.
    compositions : two characters -> the one they are put together to, without Hangul.
    """

    def __init__(self):
        sections = _read(TABLE)
        self.combining = {
            code: int(value)
            for first, last, _, value in sections["Combining_Class"]
            for code in range(first, last + 1)
        }
        self.lower: dict[int, str] = {}
        for first, last, step, value in sections["Lowercase"]:
            image = _spell(value)
            for code in range(first, last + 1, step):
                self.lower[code] = image if code == first else chr(ord(image) + code - first)
        pairs = {code: _spell(value) for code, _, _, value in sections["Decomposition"]}
        self.decompositions = {code: _decompose_fully(chr(code), pairs) for code in pairs}
        excluded = {
            code for first, last, *_ in sections["Composition_Exclusion"] for code in range(first, last + 1)
        }
        self.compositions = {
            pair: chr(code)
            for code, pair in pairs.items()
            if code not in excluded
            and len(pair) == 2
            and code not in self.combining
            and ord(pair[0]) not in self.combining
        }
        self.starts, self.flags = _overlay(self._flagged(sections))

    def _flagged(self, sections) -> dict[int, _Ranges]:
        """Find the ranges that have each flag."""
        spans = {name: [(first, last) for first, last, *_ in items] for name, items in sections.items()}
        tab_and_ends = _runs([0x09, 0x0A, 0x0D])
        ascii_marks = [code for code in range(0x21, 0x7F) if not chr(code).isalnum()]
        composes = {ord(pair[1]) for pair in self.compositions}
        composes.update(range(_VOWELS, _VOWELS + _N_VOWELS))
        composes.update(range(_TRAILING + 1, _TRAILING + _N_TRAILING))
        no_start = {*self.combining, *composes} | {
            code
            for code, to in self.decompositions.items()
            if ord(to[0]) in self.combining or ord(to[0]) in composes
        }
        composed = set(self.compositions.values())
        changes = {code for code in self.decompositions if chr(code) not in composed}
        return {
            CONTROL: _without(spans["Cc"], tab_and_ends) + spans["Cf"] + [(0xFFFD, 0xFFFD)],
            SPACE: tab_and_ends + spans["Zs"] + spans["Zl"] + spans["Zp"],
            PUNCTUATION: _runs({*ascii_marks, *(code for a, b in spans["P"] for code in range(a, b + 1))}),
            NONSPACING: spans["Mn"],
            IDEOGRAPH: list(_IDEOGRAPHS),
            LATE_IDEOGRAPH: list(_LATE_IDEOGRAPHS),
            PRIVATE: spans["Co"],
            UNASSIGNED: spans["Cn"],
            SURROGATE: spans["Cs"],
            CASED: spans["Cased"],
            CASE_IGNORABLE: spans["Case_Ignorable"],
            LOWERS: _runs(self.lower),
            DECOMPOSES: _runs(self.decompositions) + [(_SYLLABLES, _SYLLABLES + _N_SYLLABLES - 1)],
            SEGMENT_START: _gaps(_runs(no_start)),
            INERT: _gaps(_runs(no_start | changes)),
        }


def _read(path: Path) -> dict[str, list[tuple[int, int, int, str]]]:
    """Read sections: name -> entries of first and last code point, step, value."""
    sections: dict[str, list[tuple[int, int, int, str]]] = defaultdict(list)
    entry = re.compile(r"([0-9A-F]+)(?:-([0-9A-F]+))?(/2)?(?:=(\S+))?")
    name = ""
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line.startswith("@"):
            name = line.split()[1]
        elif not line.startswith("#"):
            sections[name] += [
                (int(first, 16), int(last or first, 16), 2 if step else 1, value)
                for first, last, step, value in entry.findall(line)
            ]
    return sections


def _spell(codes: str) -> str:
    return "".join(chr(int(code, 16)) for code in codes.split("+"))


def _decompose_fully(text: str, pairs: dict[int, str]) -> str:
    return "".join(_decompose_fully(pairs[ord(c)], pairs) if ord(c) in pairs else c for c in text)


def _runs(codes: Iterable[int]) -> _Ranges:
    runs: _Ranges = []
    for code in sorted(codes):
        if runs and runs[-1][1] == code - 1:
            runs[-1] = runs[-1][0], code
        else:
            runs.append((code, code))
    return runs


def _gaps(runs: _Ranges) -> _Ranges:
    """Return all code points that lie in none of `runs`, which are in order."""
    begins = [0] + [last + 1 for _, last in runs]
    ends = [first - 1 for first, _ in runs] + [0x10FFFF]
    return [(begin, end) for begin, end in zip(begins, ends, strict=True) if begin <= end]


def _overlay(flagged: dict[int, _Ranges]) -> tuple[list[int], list[int]]:
    """Find where flags change, and to what. The ranges of one flag do not overlap."""
    toggles: dict[int, int] = defaultdict(int)
    for flag, spans in flagged.items():
        for first, last in spans:
            toggles[first] ^= flag
            toggles[last + 1] ^= flag
    starts = sorted(start for start, toggle in toggles.items() if toggle and start <= 0x10FFFF)
    current, kinds = 0, []
    for start in starts:
        current ^= toggles[start]
        kinds.append(current)
    return starts, kinds


@cache
def data() -> UnicodeData:
    """Read the table when it is first needed."""
    return UnicodeData()


def flags(code: int) -> int:
    """Return what there is to know of a code point: the constants above, added up."""
    tables = data()
    return tables.flags[bisect_right(tables.starts, code) - 1]


class CharacterTable(dict):
    """A table for `str.translate` that works out a character when it first meets it.

    It is bounded by the size of Unicode; ordinary text touches a few hundred characters.
    """

    def __init__(self, rule: Callable[[str], str]):
        super().__init__()
        self.rule = rule

    def __missing__(self, code: int) -> str:
        self[code] = replacement = self.rule(chr(code))
        return replacement


def lower(text: str, *, final_sigma: bool = True) -> str:
    """Lower-case `text`, as `str.lower` of a Python with this Unicode.

    Parameters
    ----------
    final_sigma : lower-case a capital sigma at the end of a word to the final one; else always to the medial.
    """
    if text.isascii():
        return text.lower()
    if final_sigma and "Σ" in text:
        text = "".join("ς" if c == "Σ" and ends_word(text, at) else c for at, c in enumerate(text))
    return text.translate(_lower_table())


def ends_word(text: str, at: int) -> bool:
    """Tell whether the letter at `at` has a letter before it and none after it (Final_Sigma).

    Letters are what has case; apostrophes, accents and the like in between do not count.
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
    """Return the lower case of a character anywhere, the medial one of a capital sigma."""
    return data().lower.get(ord(character), character)


def nfd(text: str) -> str:
    """Decompose every character of `text`, with marks in canonical order."""
    if text.isascii():
        return text
    return _unordered().sub(lambda marks: in_order(marks[0]), text.translate(_decomposition_table()))


def decompose(character: str) -> str:
    """Return the full canonical decomposition of a character; itself if it has none."""
    index = ord(character) - _SYLLABLES
    if 0 <= index < _N_SYLLABLES:
        leading, rest = divmod(index, _N_VOWELS * _N_TRAILING)
        vowel, trailing = divmod(rest, _N_TRAILING)
        parts = chr(_LEADING + leading) + chr(_VOWELS + vowel)
        return parts + chr(_TRAILING + trailing) if trailing else parts
    return data().decompositions.get(ord(character), character)


def combining_class(character: str) -> int:
    """Return 0 for a starter; marks of different classes may change places."""
    return data().combining.get(ord(character), 0)


def in_order(marks: str) -> str:
    """Sort characters that are no starters by class; those of one class stay in their order."""
    return "".join(sorted(marks, key=combining_class))


def nfc(text: str) -> str:
    """Decompose `text`, then put it together as far as it goes."""
    if text.isascii():
        return text
    return _unsettled().sub(lambda segment: compose(nfd(segment[0])), text)


def unsettled_segments(text: str) -> Iterable[re.Match]:
    """Find the stretches of `text` that NFC may change; each changes on its own."""
    return _unsettled().finditer(text)


def compose(text: str) -> str:
    """Put decomposed text together: each character with the last starter, if nothing stands in between."""
    composed: list[str] = []
    starter, last_class = -1, 0
    for character in text:
        its_class = combining_class(character)
        if starter >= 0 and (starter == len(composed) - 1 or last_class < its_class):
            whole = compose_pair(composed[starter], character)
            if whole:
                composed[starter] = whole
                continue
        if not its_class:
            starter = len(composed)
        last_class = its_class
        composed.append(character)
    return "".join(composed)


def compose_pair(first: str, second: str) -> str:
    """Return the primary composite of two characters, "" if there is none."""
    leading, vowel = ord(first) - _LEADING, ord(second) - _VOWELS
    if 0 <= leading < _N_LEADING and 0 <= vowel < _N_VOWELS:
        return chr(_SYLLABLES + (leading * _N_VOWELS + vowel) * _N_TRAILING)
    index, trailing = ord(first) - _SYLLABLES, ord(second) - _TRAILING
    if 0 <= index < _N_SYLLABLES and index % _N_TRAILING == 0 and 0 < trailing < _N_TRAILING:
        return chr(ord(first) + trailing)
    return data().compositions.get(first + second, "")


@cache
def _lower_table() -> CharacterTable:
    return CharacterTable(lower_character)


@cache
def _decomposition_table() -> CharacterTable:
    return CharacterTable(decompose)


@cache
def _unordered() -> re.Pattern:
    """Match two or more characters in a row that are no starters."""
    return re.compile(f"[{_character_class(_runs(data().combining))}]{{2,}}")


@cache
def _unsettled() -> re.Pattern:
    """Match segments that are not one inert character: they hold more, or begin with one that changes."""
    tables = data()
    ends = [*tables.starts[1:], 0x110000]
    spans = list(zip(tables.starts, ends, tables.flags, strict=True))
    going_on = _character_class((start, end - 1) for start, end, kind in spans if not kind & SEGMENT_START)
    changing = _character_class(
        (start, end - 1) for start, end, kind in spans if kind & SEGMENT_START and not kind & INERT
    )
    return re.compile(f"[^{going_on}]?[{going_on}]+|[{changing}]")


def _character_class(spans: Iterable[tuple[int, int]]) -> str:
    return "".join(f"{re.escape(chr(first))}-{re.escape(chr(last))}" for first, last in spans)


def _without(spans: _Ranges, holes: _Ranges) -> _Ranges:
    removed = {code for first, last in holes for code in range(first, last + 1)}
    return _runs(code for first, last in spans for code in range(first, last + 1) if code not in removed)
