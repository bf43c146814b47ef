"""Warn of what a tokenizer strips from a text in other scripts, if that is much.

Uncased BERT strips accents by the rule that takes the nonspacing marks of a decomposed text away: the accent
of "é", and so the vowel signs of Hindi and Thai, the tones of Vietnamese, the voicing of Japanese kana.
"""

import re
from functools import cache

from minibert.base.errors import warn
from minibert.tokenizer import BasicTokenizer
from minibert.tokenizer.unicode import NONSPACING, data, decompose, flags

MUCH = 0.05  # share of the characters; of French 4% have an accent, of Hindi, Thai and Vietnamese 10 to 25%
MOST = 1 << 24  # characters that are looked at
LAST = 0x110000  # after the last code point


class MarkCounts:
    """Counts characters that lose a mark by the rules of a tokenizer.

    Parameters
    ----------
    basic_tokenizer : BasicTokenizer
        Whose rules they are.
    """

    def __init__(self, basic_tokenizer: BasicTokenizer) -> None:
        self._basic_tokenizer = basic_tokenizer
        self._characters = self._marked = 0
        self._example = ""

    def add(self, text: str) -> None:
        """Count those of further text, until 16 Mi characters have been read.

        Parameters
        ----------
        text : str
            A part of the text, cut between words.
        """
        if not self._basic_tokenizer.strip_accents or self._characters > MOST:
            return
        self._characters += len(text) - text.count(" ")
        if text.isascii():
            return
        marked = len(_marked().findall(text))
        self._marked += marked
        if marked and not self._example:
            self._example = next(word for word in text.split() if _marked().search(word))[:20]

    def warn(self) -> None:
        """Warn of what is stripped, if that is a considerable share of the text."""
        if self._marked <= MUCH * self._characters:
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
    """Match a character that stripping accents removes, or removes a mark from."""
    codes = {code for code in range(LAST) if flags(code) & NONSPACING}
    for code in data().decompositions:
        if any(map(_is_mark, decompose(chr(code)))):
            codes.add(code)
    characters = map(chr, sorted(codes))
    return re.compile(f"[{''.join(map(re.escape, characters))}]")


def _is_mark(character: str) -> bool:
    return bool(flags(ord(character)) & NONSPACING)
