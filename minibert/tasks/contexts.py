"""Choose the windows in which a document's words are tagged (Devlin et al. 2019, section 5.3).

A document that fits into one sequence is one window: the maximal document context. A longer one is split into
windows that overlap by at least a third and are spread evenly. Two neighbours divide the words of their
overlap at its middle, where a word has as much context in one window as in the other, or at the end of a
sentence near the middle.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

SHARED = 3  # two neighbouring windows share at least one part in so many of each


class Window(NamedTuple):
    """Words of a document, counted from its first word."""

    begin: int  # the window holds the words begin:end
    end: int
    first: int  # the words first:last are tagged in it
    last: int


def longest_word(room: int) -> int:
    """Return the most pieces of a word that a window reads, so that neighbours overlap.

    Parameters
    ----------
    room : int
        Number of pieces that fit into a window, without [CLS] and [SEP].

    Returns
    -------
    int
        Half of the smallest overlap of two windows, and at least 1.
    """
    return max(1, room // (2 * SHARED))


# pieces (n,)  ends (m,)
def windows(pieces: np.ndarray, ends: np.ndarray, room: int) -> list[Window]:
    """Lay the windows of one document; every word is tagged in exactly one of them.

    Parameters
    ----------
    pieces : numpy.ndarray
        Number of pieces of each word, (n,): from 0 to `longest_word(room)`.
    ends : numpy.ndarray
        Ends of sentences, (m,): the index of the word after the last one of each, ascending; the last is n.
    room : int
        Number of pieces that fit into a window, without [CLS] and [SEP].

    Returns
    -------
    list of Window
        In order; [] for a document without words.

    Examples
    --------
    >>> windows(np.array([1, 1, 1, 1, 1]), np.array([3, 5]), room=8)
    [Window(begin=0, end=5, first=0, last=5)]
    >>> windows(np.array([1, 1, 1, 1, 1]), np.array([3, 5]), room=4)
    [Window(begin=0, end=4, first=0, last=3), Window(begin=1, end=5, first=3, last=5)]
    """
    n = len(pieces)
    before = np.concatenate([[0], np.cumsum(pieces)])  # (n+1,) number of pieces before each word
    excess = int(before[-1]) - room
    if excess <= 0:
        return [Window(0, n, 0, n)] if n else []
    step = room - room // SHARED  # most pieces from the beginning of one window to that of the next
    n_more = -(-excess // step)  # windows after the first
    wanted = np.arange(n_more + 1) * excess // n_more  # number of pieces before each window
    begins = np.searchsorted(before, wanted)
    limits = before[begins] + room
    stops = np.searchsorted(before, limits, side="right") - 1
    borders = [0]
    for begin, stop in zip(begins[1:], stops, strict=False):  # where a window begins, the one before stops
        borders.append(_border(before, ends, begin, stop))
    borders.append(n)
    laid = []
    ranges = zip(begins.tolist(), stops.tolist(), pairwise(borders), strict=True)
    for begin, stop, (first, last) in ranges:
        if first < last:
            laid.append(Window(begin, stop, first, last))
    return laid


# before (n+1,)  ends (m,)
def _border(before: np.ndarray, ends: np.ndarray, begin: int, stop: int) -> int:
    """Return the end of a sentence, or of a word if there is none, nearest to the middle of an overlap."""
    lowest = np.searchsorted(ends, begin)
    highest = np.searchsorted(ends, stop, side="right")
    borders = ends[lowest:highest]
    if not len(borders):
        borders = np.arange(begin, stop + 1)
    twice_the_middle = before[begin] + before[stop]
    distances = np.abs(2 * before[borders] - twice_the_middle)
    return int(borders[distances.argmin()])
