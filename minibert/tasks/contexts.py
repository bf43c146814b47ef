"""Choose the windows in which a document's words are tagged (Devlin et al. 2019, section 5.3).

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
    """Return the most pieces of a word that a window reads: neighbours then overlap.

    Parameters
    ----------
    room : int
        Pieces of a window, without [CLS] and [SEP].

    Returns
    -------
    int
        Half of what two windows share at least, and at least 1.
    """
    return max(1, room // (2 * SHARED))


# pieces (n,)  ends (m,)
def windows(pieces: np.ndarray, ends: np.ndarray, room: int) -> list[Window]:
    """Lay the windows of one document; every word is asked about in one of them.

    Parameters
    ----------
    pieces : numpy.ndarray
        Of each word, (n,): from 0 to `longest_word(room)`.
    ends : numpy.ndarray
        Ends of sentences, (m,): the number of the word after the last one of each, ascending; the last is n.
    room : int
        Most pieces of a window, without [CLS] and [SEP].

    Returns
    -------
    list of Window
        In order; [] for a document without a word.

    Examples
    --------
    >>> windows(np.array([1, 1, 1, 1, 1]), np.array([3, 5]), room=8)
    [Window(begin=0, end=5, first=0, last=5)]
    >>> windows(np.array([1, 1, 1, 1, 1]), np.array([3, 5]), room=4)
    [Window(begin=0, end=4, first=0, last=3), Window(begin=1, end=5, first=3, last=5)]
    """
    n = len(pieces)
    before = np.concatenate([[0], np.cumsum(pieces)])  # (n+1,) pieces in front of each word
    excess = int(before[-1]) - room
    if excess <= 0:
        return [Window(0, n, 0, n)] if n else []
    step = room - room // SHARED  # most pieces from the beginning of one window to that of the next
    n_more = -(-excess // step)  # windows after the first
    wanted = np.arange(n_more + 1) * excess // n_more  # pieces in front of each
    begins = np.searchsorted(before, wanted)
    limits = before[begins] + room
    stops = np.searchsorted(before, limits, side="right") - 1
    borders = [0]
    for begin, stop in zip(begins[1:], stops, strict=False):  # of a window, and of the one before
        borders.append(_border(before, ends, begin, stop))
    borders.append(n)
    laid = []
    places = zip(begins.tolist(), stops.tolist(), pairwise(borders), strict=True)
    for begin, stop, (first, last) in places:
        if first < last:
            laid.append(Window(begin, stop, first, last))
    return laid


# before (n+1,)  ends (m,)
def _border(before: np.ndarray, ends: np.ndarray, begin: int, stop: int) -> int:
    """Return the end of a sentence, or of a word where there is none, nearest to the middle of an overlap."""
    lowest = np.searchsorted(ends, begin)
    highest = np.searchsorted(ends, stop, side="right")
    borders = ends[lowest:highest]
    if not len(borders):
        borders = np.arange(begin, stop + 1)
    twice_the_middle = before[begin] + before[stop]
    distances = np.abs(2 * before[borders] - twice_the_middle)
    return int(borders[distances.argmin()])
