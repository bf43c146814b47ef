"""Choose the positions to predict (section 3.1 of the paper); `core/masks.py` has what the model sees there.

This works on many sequences at once: N sequences with C candidate positions in all. [CLS] and [SEP] are not
candidates.
"""

import numpy as np

from minibert.core.draws import draw
from minibert.core.masks import CHOICE, POSITION_BITS, TICKET_BITS


def choose_positions(
    keys: np.ndarray, sequence: np.ndarray, position: np.ndarray, count: np.ndarray
) -> np.ndarray:
    """Choose `count` of each sequence's candidates, uniformly; all of them if a sequence has fewer.

    Parameters
    ----------
    keys : (N,) uint64
        A random key for each sequence.
    sequence : (C,) int64
        The sequence of each candidate, ascending.
    position : (C,) int64
        The position of each candidate in its sequence.
    count : (N,) int64
        How many to choose in each sequence.

    Returns
    -------
    (C,) bool
        Which candidates are chosen.
    """
    order = _random_order(keys, sequence, position)
    chosen = np.zeros(len(order), bool)
    chosen[order[_rank(sequence) < count[sequence]]] = True
    return chosen


def choose_words(
    keys: np.ndarray, sequence: np.ndarray, position: np.ndarray, head: np.ndarray, count: np.ndarray
) -> np.ndarray:
    """Choose whole words: all pieces of a word or none, at most `count` pieces a sequence.

    As in the released code, words are tried in random order; one with more pieces than are left to choose is
    passed over.

    Parameters
    ----------
    keys : (N,) uint64
        A random key for each sequence.
    sequence : (C,) int64
        The sequence of each candidate, ascending.
    position : (C,) int64
        The position of each candidate in its sequence.
    head : (C,) bool
        Whether a candidate is the first piece of a word.
    count : (N,) int64
        The most pieces to choose in each sequence.

    Returns
    -------
    (C,) bool
        Which candidates are chosen.
    """
    word = np.cumsum(head) - 1  # (C,) the word of each candidate
    pieces = np.bincount(word)
    sequence_of = sequence[head]
    order = _random_order(keys, sequence_of, position[head])
    rank = _rank(sequence_of)
    left = count.copy()
    chosen = np.zeros(len(pieces), bool)
    by_rank = np.argsort(rank, kind="stable")  # the first word of every sequence, then the second ones, ...
    turn_ends = np.cumsum(np.bincount(rank))
    for turn in np.split(by_rank, turn_ends[:-1]):
        words = order[turn]
        fits = pieces[words] <= left[sequence_of[words]]
        words = words[fits]
        left[sequence_of[words]] -= pieces[words]  # no index occurs twice: a turn has one word of a sequence
        chosen[words] = True
    return chosen[word]


# keys (N,)  sequence (C,)  position (C,) -> (C,) int64
def _random_order(keys: np.ndarray, sequence: np.ndarray, position: np.ndarray) -> np.ndarray:
    """Shuffle candidates within each sequence, keeping the order of the sequences."""
    # Sequence, ticket and position make one number; no two are equal, so every sort gives the same order.
    tickets = draw(keys[sequence], CHOICE + position) >> (64 - TICKET_BITS)
    high = sequence.astype(np.uint64) << (TICKET_BITS + POSITION_BITS)
    return np.argsort(high | (tickets << POSITION_BITS) | position.astype(np.uint64))


# sequence (C,) -> (C,) int64
def _rank(sequence: np.ndarray) -> np.ndarray:
    """Count 0, 1, 2, ... within each run of the same sequence."""
    begins = np.flatnonzero(np.diff(sequence, prepend=-1))
    lengths = np.diff(begins, append=len(sequence))
    return np.arange(len(sequence)) - np.repeat(begins, lengths)
