"""Warn when a tokenizer would strip many diacritics.

Uncased BERT strips accents by removing the nonspacing marks of the decomposed text: the accent of "é", but
also the vowel signs of Hindi and Thai, the tones of Vietnamese, and the voicing of Japanese kana.
"""

import re
from functools import cache

from minibert.base.errors import warn
from minibert.tokenizer import BasicTokenizer
from minibert.tokenizer.unicode import NONSPACING, data, decompose, flags

MANY_MARKED = 0.05  # share of the characters; it is 4% in French, 10 to 25% in Hindi, Thai and Vietnamese
MOST_CHARACTERS = 1 << 24  # counting stops after that many
CODE_POINTS = 0x110000


class MarkCounts:
    """Counts characters that lose a mark by the rules of a tokenizer.

    Parameters
    ----------
    basic_tokenizer : BasicTokenizer
        The rules; if they don't strip accents, nothing is counted.
    """

    def __init__(self, basic_tokenizer: BasicTokenizer) -> None:
        self._basic_tokenizer = basic_tokenizer
        self._characters = self._marked = 0
        self._example = ""

    def add(self, text: str) -> None:
        """Count the marked characters of further text, until 16 Mi characters have been read.

        Parameters
        ----------
        text : str
            A part of the text, cut between words.
        """
        if not self._basic_tokenizer.strip_accents or self._characters > MOST_CHARACTERS:
            return
        self._characters += len(text) - text.count(" ")
        if text.isascii():
            return
        marked = len(_marked().findall(text))
        self._marked += marked
        if marked and not self._example:
            self._example = next(word for word in text.split() if _marked().search(word))[:20]

    def warn(self) -> None:
        """Warn, with an example, if a considerable share of the characters loses a mark."""
        if self._marked <= MANY_MARKED * self._characters:  # also when nothing was counted: 0 <= 0
            return
        share = self._marked / self._characters
        becomes = " ".join(self._basic_tokenizer.tokenize(self._example))
        warn(
            f"{share:.0%} of the characters of the text lose a mark, as accents are stripped: "
            f"{self._example!r} is read as {becomes!r}. keep_accents=True leaves marks where they "
            "are, lower_case=False marks and capitals."
        )


@cache
def _marked() -> re.Pattern[str]:
    """Return a pattern that matches a character which stripping accents removes, or removes a mark from."""
    codes = {code for code in range(CODE_POINTS) if flags(code) & NONSPACING}
    for code in data().decompositions:
        if any(map(_is_mark, decompose(chr(code)))):
            codes.add(code)
    characters = map(chr, sorted(codes))
    return re.compile(f"[{''.join(map(re.escape, characters))}]")


def _is_mark(character: str) -> bool:
    return bool(flags(ord(character)) & NONSPACING)
