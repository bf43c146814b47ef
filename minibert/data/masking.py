"""Which positions are to be predicted, and what stands there instead (section 3.1 of the paper, Table 8).

Many sequences at once: N sequences with C candidate positions altogether, those that are not [CLS] or [SEP].
"""

from typing import TypeAlias

import numpy as np

from minibert.core.draws import below, draw, uniform

POSITION_BITS = 16  # sequences of up to 65,535 tokens
DRAW_BITS = 24
Rates: TypeAlias = tuple[float, float, float]  # of MASK, SAME and RND, in the order of the paper's Table 8
# Counters of the draws of a sequence: which positions, what to do there, which token.
CHOICE, ACTION, TOKEN = (which << POSITION_BITS for which in range(3))


# keys (N,)  sequence (C,)  position (C,)  count (N,) -> (C,) bool
def choose_positions(
    keys: np.ndarray, sequence: np.ndarray, position: np.ndarray, count: np.ndarray
) -> np.ndarray:
    """Choose `count` of each sequence's candidates, uniformly; all of a sequence that has fewer."""
    order = _random_order(keys, sequence, position)
    chosen = np.zeros(len(order), bool)
    chosen[order[_rank(sequence) < count[sequence]]] = True
    return chosen


# keys (N,)  sequence (C,)  position (C,)  head (C,) bool  count (N,) -> (C,) bool
def choose_words(
    keys: np.ndarray, sequence: np.ndarray, position: np.ndarray, head: np.ndarray, count: np.ndarray
) -> np.ndarray:
    """Choose whole words: all pieces of a word or none, at most `count` pieces a sequence.

    As in the released code, words come up in random order; one with more pieces than are left is passed over.
    """
    word = np.cumsum(head) - 1  # (C,) the word that a candidate belongs to
    pieces = np.bincount(word)
    sequence_of = sequence[head]
    order = _random_order(keys, sequence_of, position[head])
    rank = _rank(sequence_of)
    left = count.copy()
    chosen = np.zeros(len(pieces), bool)
    by_rank = np.argsort(rank, kind="stable")  # every sequence's first word, then every one's second, ...
    for turn in np.split(by_rank, np.cumsum(np.bincount(rank))[:-1]):
        words = order[turn]
        words = words[pieces[words] <= left[sequence_of[words]]]
        left[sequence_of[words]] -= pieces[words]  # one word of a sequence in each turn: no index twice
        chosen[words] = True
    return chosen[word]


# original (M,)  keys (M,)  position (M,) -> (M,) int32
def visible_tokens(
    original: np.ndarray, keys: np.ndarray, position: np.ndarray, rates: Rates, mask_id: int, vocab_size: int
) -> np.ndarray:
    """Choose what the model sees at masked positions: [MASK], the same token or a random one.

    A random token is any of the vocabulary, special ones and the original included.
    """
    action = uniform(draw(keys, ACTION + position))
    token = below(draw(keys, TOKEN + position), vocab_size)
    mask, same, _ = rates
    return np.where(action < mask, mask_id, np.where(action < mask + same, original, token)).astype(np.int32)


# keys (N,)  sequence (C,)  position (C,) -> (C,) int64
def _random_order(keys: np.ndarray, sequence: np.ndarray, position: np.ndarray) -> np.ndarray:
    """Order candidates at random within their sequence, sequences as they were."""
    # Sequence, draw and position make one number; no two are equal, so every sort gives the same order.
    bits = draw(keys[sequence], CHOICE + position) >> (64 - DRAW_BITS)
    high = sequence.astype(np.uint64) << (DRAW_BITS + POSITION_BITS)
    return np.argsort(high | (bits << POSITION_BITS) | position.astype(np.uint64))


# sequence (C,) -> (C,) int64
def _rank(sequence: np.ndarray) -> np.ndarray:
    """Count 0, 1, 2, ... within each run of the same sequence."""
    begins = np.flatnonzero(np.diff(sequence, prepend=-1))
    return np.arange(len(sequence)) - np.repeat(begins, np.diff(begins, append=len(sequence)))
