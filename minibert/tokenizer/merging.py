"""Make the merges of `core/wordpiece.py` without counting the text again for each of them.

`native.Merger` is the twin in C. Stored gains serve as upper bounds, only words that contain a pair are
visited, and logarithms use only + - * /, which give the same bits on every machine.
"""

from collections import defaultdict
from itertools import pairwise

import numpy as np

from minibert.core.arrays import Array
from minibert.core.wordpiece import join, neighbours
from minibert.tokenizer.native import Symbols

# Gains are rounded to multiples of this many nats, so that pairs whose gains differ only in the last bits of
# a logarithm are equal, and the tie rule decides between them. A power of two makes the rounding exact.
_RESOLUTION = 2.0**-16
# More than the error of a computed gain, in nats for each occurrence of the pair.
_SLACK = 2.0**-40


class Merger:
    """Keep the segmented text, its pairs of neighbours, and the gain of joining each; see `learn_vocab`.

    Pairs get ids in the order in which they appear. What a merge needs to know of every pair is in NumPy
    arrays; the words that contain a pair are stored too, so that joining visits only those.

    Parameters
    ----------
    text : Symbols
        The words, as symbols.
    min_frequency : int
        A pair that occurs less often is never merged.
    objective : {"likelihood", "frequency"}
        Which pair is the best: the one with the largest gain in likelihood, or the most frequent.
    """

    def __init__(self, text: Symbols, min_frequency: int, objective: str) -> None:
        self.min_frequency = min_frequency
        self.objective = objective
        self.n_symbols = text.n_symbols
        self.symbol_counts = np.zeros(text.n_symbols, np.int64)
        self.pair_ids: dict[tuple[int, int], int] = {}
        self.pairs = np.zeros((2, 1024), np.int32)  # rows: left symbol, right symbol
        self.pair_counts = np.zeros(1024, np.int64)
        self.gains = np.full(1024, -np.inf)
        self.words_with: list[set[int]] = []  # pair id -> the words that contain it, or once did
        self.word_counts = text.counts.tolist()
        symbols = text.symbols.tolist()
        self.segmented = [symbols[begin:end] for begin, end in pairwise(text.bounds.tolist())]
        for word in range(len(self.segmented)):
            self._count_word(word)
        self.total = self.symbol_counts.sum()
        self._refresh(np.arange(len(self.pair_ids)))

    def _count_word(self, word: int) -> None:
        """Add the pieces and pairs of a word to the counts."""
        pieces = self.segmented[word]
        count = self.word_counts[word]
        for piece in pieces:
            self.symbol_counts[piece] += count
        for pair in neighbours(pieces):
            pair_id = self._pair_id(pair)
            self.pair_counts[pair_id] += count
            self.words_with[pair_id].add(word)

    def run(self, n_merges: int) -> tuple[Array, Array]:
        """Make up to `n_merges` more merges; fewer when no pair is left.

        Parameters
        ----------
        n_merges : int
            How many merges are wanted.

        Returns
        -------
        lefts, rights : (k,) int32
            The two parts of each merge. Counting all merges from 0, merge i makes the symbol
            `text.n_symbols` + i.
        """
        merges: list[Array] = []
        while len(merges) < n_merges:
            best = self._best_pair()
            if best is None:
                break
            merges.append(self.pairs[:, best].copy())
            self._merge(best)
        lefts, rights = np.array(merges, np.int32).reshape(-1, 2).T
        return lefts, rights

    def _merge(self, best: int) -> None:
        """Join a pair everywhere, and update counts and gains."""
        left, right = self.pairs[:, best].tolist()
        merged = self.n_symbols
        self.n_symbols += 1
        self.symbol_counts = _with_room(self.symbol_counts, merged, 0)
        n = self.pair_counts[best]
        self.total -= n
        self.symbol_counts[left] -= n
        self.symbol_counts[right] -= n
        self.symbol_counts[merged] += n
        changes: dict[tuple[int, int], int] = defaultdict(int)
        for word in self.words_with[best]:
            count = self.word_counts[word]
            before = self.segmented[word]
            after = join(before, (left, right), merged)
            self.segmented[word] = after
            if len(after) == len(before):
                continue  # an earlier merge removed the pair from this word
            for old_pair in neighbours(before):
                changes[old_pair] -= count
            for new_pair in neighbours(after):
                changes[new_pair] += count
                if merged in new_pair:
                    self.words_with[self._pair_id(new_pair)].add(word)
        self.words_with[best] = set()
        for pair, change in changes.items():
            self.pair_counts[self._pair_id(pair)] += change
        # The gain of a pair depends on the counts of its parts, three of which have changed.
        pairs = self.pairs[:, : len(self.pair_ids)]
        is_affected = np.isin(pairs, (left, right, merged)).any(axis=0)
        self._refresh(np.flatnonzero(is_affected))

    def _best_pair(self) -> int | None:
        """Find the pair with the largest gain; among equals, the one whose parts are the smallest symbols.

        A stored gain was right when it was computed. Since then only N may have changed. It has become
        smaller, and so has f(N) - f(N - n), because f is convex: a stored gain is an upper bound, up to its
        last bits. So the only gains to recompute are those not below the true gain of the pair that looks
        best.
        """
        apparent_best = np.argmax(self.gains, keepdims=True)
        if self.gains[apparent_best] == -np.inf:
            return None
        self._refresh(apparent_best)
        bounds = self.gains + (self.pair_counts * _SLACK + _RESOLUTION)
        candidates = np.flatnonzero(bounds >= self.gains[apparent_best])
        self._refresh(candidates)
        gains = self.gains[candidates]
        ties = candidates[gains == gains.max()]
        left, right = self.pairs[:, ties].astype(np.int64)
        return int(ties[np.argmin(left * self.n_symbols + right)])

    # pairs (K,)
    def _refresh(self, pairs: Array) -> None:
        """Recompute gains; that of a pair too rare to be merged is -inf."""
        is_frequent = self.pair_counts[pairs] >= self.min_frequency
        self.gains[pairs[~is_frequent]] = -np.inf
        self.gains[pairs[is_frequent]] = self._gain(pairs[is_frequent])

    # pairs (K,) -> (K,) float64
    def _gain(self, pairs: Array) -> Array:
        """Compute the gain of joining each pair, by the formula in `learn_vocab`."""
        n = self.pair_counts[pairs]
        if self.objective == "frequency":
            return n.astype(np.float64)
        left, right = self.pairs[:, pairs]
        # If both parts are the same piece, its count falls by 2 n.
        same = left == right
        lost_left = fall(self.symbol_counts[left], np.where(same, 2 * n, n))
        lost_right = np.where(same, 0.0, fall(self.symbol_counts[right], n))
        lost = lost_left + lost_right
        gain = n * logarithm(n) + fall(self.total, n) - lost
        return np.rint(gain / _RESOLUTION) * _RESOLUTION

    def _pair_id(self, pair: tuple[int, int]) -> int:
        """Return the id of a pair; a new pair gets a new id."""
        pair_id = self.pair_ids.get(pair)
        if pair_id is None:
            pair_id = len(self.words_with)
            self.pair_ids[pair] = pair_id
            self.words_with.append(set())
            self.pairs = _with_room(self.pairs, pair_id, 0)
            self.pair_counts = _with_room(self.pair_counts, pair_id, 0)
            self.gains = _with_room(self.gains, pair_id, -np.inf)
            self.pairs[:, pair_id] = pair
        return pair_id


# The portable logarithm

# log 2 in two parts; the first ends in zero bits, so that whole multiples of it are exact.
_LOG_2 = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_SQRT_HALF = 0.70710678118654757
_INVERSE_ODD = [1.0 / odd for odd in range(3, 26, 2)]


# count (K,) int64  n (K,) int64 -> (K,) float64
def fall(count: Array, n: Array) -> Array:
    """Compute f(count) - f(count - n) for f(x) = x log x without subtracting nearly equal numbers.

    The difference is n log(count) + rest log(count / rest) with rest = count - n. Where n is small compared
    to the rest, the second logarithm is computed as 2 atanh(n / (count + rest)).

    Parameters
    ----------
    count : (K,) int64, or one number
        Counts of at least 1.
    n : (K,) int64
        Numbers from 0 to `count`.

    Returns
    -------
    (K,) float64
        The differences; f(0) is 0.
    """
    rest = count - n
    log_count = logarithm(count)
    where_small = 2.0 * _atanh(n.astype(np.float64) / (count + rest))
    where_large = np.where(rest > 0, log_count - logarithm(rest), 0.0)
    log_ratio = np.where(n <= rest // 2, where_small, where_large)
    return n * log_count + rest * log_ratio


# (K,) int64 or float64 -> (K,) float64
def logarithm(x: Array) -> Array:
    """Compute log(x) for x >= 1: x = m 2^e, sqrt(1/2) <= m < sqrt(2), log m = 2 atanh((m - 1) / (m + 1)).

    The relative error is below 2**-51. The C core does the same operations in the same order
    (csrc/wordpiece/logarithm.h): change both or neither.

    Parameters
    ----------
    x : (K,) int64 or float64
        Numbers of at least 1; results for smaller ones are meaningless.

    Returns
    -------
    (K,) float64
        Natural logarithms, in nats, with the same bits on every machine.
    """
    m, exponent = np.frexp(np.asarray(x, np.float64))
    is_low = m < _SQRT_HALF
    m = np.where(is_low, m * 2.0, m)
    e = (exponent - is_low).astype(np.float64)
    log_m = 2.0 * _atanh((m - 1.0) / (m + 1.0))
    return e * _LOG_2[0] + (log_m + e * _LOG_2[1])


def _atanh(s: Array) -> Array:
    """Sum s + s^3/3 + s^5/5 + ..., with enough terms for |s| <= 1/5."""
    z = s * s
    total = _INVERSE_ODD[-1]
    for inverse in reversed(_INVERSE_ODD[:-1]):
        total = total * z + inverse
    return s + s * (z * total)


def _with_room(array: Array, index: int, fill: float) -> Array:
    """Return `array` if its last axis has `index`; otherwise a copy of twice the length."""
    if index < array.shape[-1]:
        return array
    return np.concatenate([array, np.full_like(array, fill)], axis=-1)
