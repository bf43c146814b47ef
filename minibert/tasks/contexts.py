"""Where the windows lie through which a document's words are tagged (Devlin et al. 2019, section 5.3).

A document that fits into one sequence is one window: the maximal document context. A longer one gets windows
that overlap by a third at least, spread evenly. Two neighbours meet in the middle of what they share, for
there a word has as much around it in one as in the other; or at the end of a sentence that is near it.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

SHARED = 3  # one part in so many of a window stands in the next one too, at least


class Window(NamedTuple):
    """Words of a document, counted from its first one."""

    begin: int  # the window has the words from `begin` up to `end`
    end: int
    first: int  # and is asked about those from `first` up to `last`
    last: int


def longest_word(room: int) -> int:
    """Return the most pieces of a word that a window of so much room reads: neighbours then overlap."""
    return max(1, room // (2 * SHARED))


# pieces (n,)  ends (m,)
def windows(pieces: np.ndarray, ends: np.ndarray, room: int) -> list[Window]:
    """Lay the windows of one document, in order; every word is asked about in one of them.

    Each word has from 0 to `longest_word(room)` pieces, a window at most `room`. `ends` of sentences are
    numbers of the words behind their last ones; the last is n.

    Examples
    --------
    >>> windows(np.array([1, 1, 1, 1, 1]), np.array([3, 5]), room=8)
    [Window(begin=0, end=5, first=0, last=5)]
    >>> windows(np.array([1, 1, 1, 1, 1]), np.array([3, 5]), room=4)
    [Window(begin=0, end=4, first=0, last=3), Window(begin=1, end=5, first=3, last=5)]
    """
    n = len(pieces)
    before = np.concatenate([[0], np.cumsum(pieces)])  # (n+1,) pieces in front of each word
    if (over := int(before[-1]) - room) <= 0:
        return [Window(0, n, 0, n)] if n else []
    count = 1 - (-over // (room - room // SHARED))
    begins = np.searchsorted(before, np.arange(count) * over // (count - 1))
    stops = np.searchsorted(before, before[begins] + room, side="right") - 1
    overlaps = zip(begins[1:], stops, strict=False)
    borders = [0, *(_border(before, ends, begin, stop) for begin, stop in overlaps), n]
    return [
        Window(int(begin), int(stop), first, last)
        for begin, stop, (first, last) in zip(begins, stops, pairwise(borders), strict=True)
        if first < last
    ]


# before (n+1,)  ends (m,)
def _border(before: np.ndarray, ends: np.ndarray, begin: int, stop: int) -> int:
    """Return the end of a sentence, or of a word where there is none, nearest to the middle of an overlap."""
    borders = ends[np.searchsorted(ends, begin) : np.searchsorted(ends, stop, side="right")]
    if not len(borders):
        borders = np.arange(begin, stop + 1)
    return int(borders[np.abs(2 * before[borders] - before[begin] - before[stop]).argmin()])
