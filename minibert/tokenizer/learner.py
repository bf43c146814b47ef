"""Learning a WordPiece vocabulary: begin with characters, then merge neighbours until the vocabulary is full.

Two rules for the next merge: the one that raises the likelihood of the text most (WordPiece: Schuster and
Nakajima 2012, Wu et al. 2016), or the most frequent pair (byte-pair encoding: Sennrich et al. 2016).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise

import numpy as np

from minibert.errors import InputError
from minibert.tokenizer.normalize import BasicTokenizer, split_at_whitespace
from minibert.tokenizer.wordpiece import MAX_CHARS_PER_WORD, SPECIAL_TOKENS

OBJECTIVES = ("likelihood", "frequency")

# Gains are rounded to multiples of this many nats: pairs that differ only in the last bits of a logarithm
# are equal, and the tie rule decides between them, not the processor. A power of two keeps that exact.
_RESOLUTION = 2.0**-16


def count_words(lines: Iterable[str], basic_tokenizer: BasicTokenizer) -> Counter[str]:
    """How often each word occurs, words being what `basic_tokenizer` makes of the lines.

    Memory grows with the number of different words, not with the length of the text.
    """
    chunks: Counter[str] = Counter()
    for line in lines:
        chunks.update(split_at_whitespace(line))
    words: Counter[str] = Counter()
    for chunk, count in chunks.items():
        for word in basic_tokenizer.tokenize(chunk):
            words[word] += count
    return words


def learn_vocab(
    word_counts: Mapping[str, int],
    vocab_size: int,
    *,
    objective: str = "likelihood",
    alphabet_limit: int = 1000,
    min_frequency: int = 2,
    unused: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[str]:
    """Learn a vocabulary of word pieces from words and their counts.

    Every word starts as its characters, all but the first marked with "##". Then the best pair of
    neighbouring pieces is joined everywhere, again and again.

    With `objective="frequency"` the best pair is the one that occurs most often. With
    `objective="likelihood"` it is the one whose merge raises the log-likelihood of the segmented text most,
    under a unigram model with p(u) = c(u) / N, where c(u) counts piece u and N counts all pieces:

        L = sum over u of c(u) log c(u)  -  N log N

    Joining the n occurrences of a, b makes c(a), c(b) and N smaller by n, and n pieces ab. With
    f(x) = x log x and f(0) = 0,

        dL = f(n) - [f(c(a)) - f(c(a) - n)] - [f(c(b)) - f(c(b) - n)] + [f(N) - f(N - n)]

    If b = a, both are taken from one count: f(c(a)) - f(c(a) - 2n) stands in place of the first two brackets.
    The last bracket makes every gain move with every merge. Before its merge ab does not occur: a string that
    stands as one piece was put together from the same parts everywhere, by the same merges. Neighbours are
    counted without overlap, from the left: `aaa` holds `aa` once.

    Among equal gains (rounded to 2**-16 nats) the pair whose left part comes first in the vocabulary is
    taken, then the one whose right part does. The vocabulary therefore depends on the counts alone, never on
    the order of the words or the hash seed. Merging goes on until the vocabulary is full, even at a loss.

    Parameters
    ----------
    word_counts : word -> how often it occurs; words as `BasicTokenizer` makes them, see `count_words`.
    vocab_size : number of pieces wanted, special tokens included.
    objective : "likelihood" or "frequency".
    alphabet_limit : keep that many different characters, the most frequent; words with others are left
        out, as they will be [UNK] anyway.
    min_frequency : a pair that occurs less often is never merged.
    unused : number of reserved pieces "[unused0]", "[unused1]", ... after the special tokens.
    progress : called every 64 pieces with the number of pieces so far and `vocab_size`.

    Returns
    -------
    vocab : [PAD] [UNK] [CLS] [SEP] [MASK], the unused pieces, the alphabet sorted, the merges in order.
        `vocab_size` pieces, or fewer when the text has no more pairs that occur `min_frequency` times.

    Raises
    ------
    InputError
        When there is no word, an argument is out of range, or the alphabet alone does not fit in.

    References
    ----------
    M. Schuster and K. Nakajima, "Japanese and Korean voice search", ICASSP 2012.
    Y. Wu et al., "Google's neural machine translation system", 2016, arXiv:1609.08144.
    R. Sennrich et al., "Neural machine translation of rare words with subword units", ACL 2016.

    Examples
    --------
    >>> learn_vocab({"low": 5, "lower": 2}, 12, objective="frequency")[5:]
    ['##e', '##o', '##r', '##w', 'l', '##ow', 'low']
    """
    if objective not in OBJECTIVES:
        raise InputError(f"objective={objective!r} is unknown; choose one of {', '.join(OBJECTIVES)}.")
    if min_frequency < 1:
        raise InputError(f"min_frequency={min_frequency} is too small; give 1 or more.")
    if alphabet_limit < 1:
        raise InputError(f"alphabet_limit={alphabet_limit} leaves no character; give 1 or more.")
    if unused < 0:
        raise InputError(f"unused={unused} is no number of pieces; give 0 or more.")
    words = _usable_words(word_counts, alphabet_limit)
    if not words:
        raise InputError("there is no word to learn a vocabulary from; give text with words in it.")
    vocab = _first_pieces(words, unused)
    if len(vocab) > vocab_size:
        raise InputError(
            f"vocab_size={vocab_size} is too small: special tokens and alphabet alone take {len(vocab)}; "
            "ask for more pieces or lower alphabet_limit."
        )
    merger = _Merger(words, min_frequency, objective)
    while len(vocab) < vocab_size:
        piece = merger.merge_best_pair()
        if piece is None:
            break
        vocab.append(piece)
        if progress is not None and (len(vocab) % 64 == 0 or len(vocab) == vocab_size):
            progress(len(vocab), vocab_size)
    return vocab


class _Merger:
    """The segmented text, the pairs of neighbours in it, and the gain of joining each.

    Pieces are numbered as in the vocabulary, alphabet first; pairs as they appear. What a merge asks of every
    pair sits in NumPy arrays, so that choosing costs a few passes over them; which words hold a pair is
    remembered, so that joining visits only those.
    """

    def __init__(self, words: dict[str, int], min_frequency: int, objective: str):
        self.min_frequency = min_frequency
        self.objective = objective
        self.pieces = sorted({piece for word in words for piece in _characters(word)})
        self.piece_counts = np.zeros(len(self.pieces), np.int64)
        self.pair_ids: dict[tuple[int, int], int] = {}
        self.pairs = np.zeros((2, 1024), np.int32)  # rows: left piece, right piece
        self.pair_counts = np.zeros(1024, np.int64)
        self.gains = np.full(1024, -np.inf)
        self.words_with: list[set[int]] = []  # pair -> the words that hold it, or once did
        self.word_counts = list(words.values())
        piece_ids = {piece: number for number, piece in enumerate(self.pieces)}
        self.segmented = [[piece_ids[piece] for piece in _characters(word)] for word in words]
        self._count()

    def merge_best_pair(self) -> str | None:
        """Join the best pair wherever it stands and return the piece it makes; None when no pair is left."""
        best = self._best_pair()
        if best is None:
            return None
        left, right = self.pairs[:, best].tolist()
        merged = self._new_piece(left, right)
        n = self.pair_counts[best]
        self.n_pieces -= n
        self.piece_counts[left] -= n
        self.piece_counts[right] -= n
        self.piece_counts[merged] += n
        changes: dict[tuple[int, int], int] = defaultdict(int)
        for word in self.words_with[best]:
            self._join_in_word(word, (left, right), merged, changes)
        self.words_with[best] = set()
        self._change_counts(changes)
        self._refresh(self._pairs_with(left, right, merged))
        return self.pieces[merged]

    def _best_pair(self) -> int | None:
        """The pair of the largest gain; among equals, the one whose parts have the smallest numbers.

        A stored gain was right when it was computed. Since then only N may have moved, downwards, and
        f(N) - f(N - n) falls with N because f is convex: a stored gain is an upper bound. So it is enough to
        compute anew those that are not below the true gain of the pair that looks best.
        """
        looks_best = np.argmax(self.gains, keepdims=True)
        if self.gains[looks_best] == -np.inf:
            return None
        self._refresh(looks_best)
        candidates = np.flatnonzero(self.gains >= self.gains[looks_best] - _RESOLUTION)
        self._refresh(candidates)
        gains = self.gains[candidates]
        ties = candidates[gains == gains.max()]
        left, right = self.pairs[:, ties].astype(np.int64)
        return int(ties[np.argmin(left * len(self.pieces) + right)])

    def _refresh(self, pairs: np.ndarray) -> None:  # pairs (K,)
        alive = self.pair_counts[pairs] >= self.min_frequency
        self.gains[pairs[~alive]] = -np.inf
        self.gains[pairs[alive]] = self._gain(pairs[alive])

    def _gain(self, pairs: np.ndarray) -> np.ndarray:  # pairs (K,) -> (K,) float64
        n = self.pair_counts[pairs].astype(np.float64)
        if self.objective == "frequency":
            return n
        left, right = self.pairs[:, pairs]
        c_left, c_right = self.piece_counts[left], self.piece_counts[right]
        # Where the two parts are one piece, it is that piece's count which loses 2 n.
        twice = np.where(left == right, 2 * n, n)
        lost = _fall(c_left, twice) + np.where(left == right, 0.0, _fall(c_right, n))
        gain = n * np.log(n) + _fall(self.n_pieces, n) - lost
        return np.round(gain / _RESOLUTION) * _RESOLUTION

    def _pairs_with(self, *pieces: int) -> np.ndarray:  # -> (K,)
        """The pairs whose gain depends on the count of one of `pieces`."""
        wanted = np.zeros(len(self.pieces), bool)
        wanted[list(pieces)] = True
        left, right = self.pairs[:, : len(self.pair_ids)]
        return np.flatnonzero(wanted[left] | wanted[right])

    def _join_in_word(
        self, word: int, pair: tuple[int, int], merged: int, changes: dict[tuple[int, int], int]
    ) -> None:
        """Join `pair` in one word, from the left, and add to `changes` what that does to the pair counts."""
        before = self.segmented[word]
        after = _join(before, pair, merged)
        if len(after) == len(before):
            return
        self.segmented[word] = after
        count = self.word_counts[word]
        for old in _neighbours(before):
            changes[old] -= count
        for new in _neighbours(after):
            changes[new] += count
            if merged in new:
                self.words_with[self._pair_id(new)].add(word)

    def _change_counts(self, changes: Mapping[tuple[int, int], int]) -> None:
        for pair, change in changes.items():
            number = self._pair_id(pair)
            self.pair_counts[number] += change

    def _count(self) -> None:
        """Count pieces and pairs of the text as it stands, and compute all gains."""
        changes: dict[tuple[int, int], int] = defaultdict(int)
        for word, (pieces, count) in enumerate(zip(self.segmented, self.word_counts, strict=True)):
            for piece in pieces:
                self.piece_counts[piece] += count
            for pair in _neighbours(pieces):
                changes[pair] += count
                self.words_with[self._pair_id(pair)].add(word)
        self.n_pieces = self.piece_counts.sum()
        self._change_counts(changes)
        self._refresh(np.arange(len(self.pair_ids)))

    def _new_piece(self, left: int, right: int) -> int:
        number = len(self.pieces)
        self.pieces.append(self.pieces[left] + self.pieces[right].removeprefix("##"))
        self.piece_counts = _with_room(self.piece_counts, number, 0)
        return number

    def _pair_id(self, pair: tuple[int, int]) -> int:
        number = self.pair_ids.get(pair)
        if number is None:
            number = self.pair_ids[pair] = len(self.words_with)
            self.words_with.append(set())
            self.pairs = _with_room(self.pairs, number, 0)
            self.pair_counts = _with_room(self.pair_counts, number, 0)
            self.gains = _with_room(self.gains, number, -np.inf)
            self.pairs[:, number] = pair
        return number


def _first_pieces(words: Iterable[str], unused: int) -> list[str]:
    alphabet = {piece for word in words for piece in _characters(word)}
    return [*SPECIAL_TOKENS, *(f"[unused{i}]" for i in range(unused)), *sorted(alphabet)]


def _characters(word: str) -> list[str]:
    return [word[0], *("##" + character for character in word[1:])]


def _neighbours(pieces: list[int]) -> Iterator[tuple[int, int]]:
    """Pairs of neighbours from the left; a pair that overlaps the same pair just counted is passed over."""
    counted = None
    for pair in pairwise(pieces):
        if pair == counted:
            counted = None
        else:
            counted = pair
            yield pair


def _join(pieces: list[int], pair: tuple[int, int], merged: int) -> list[int]:
    joined: list[int] = []
    joinable = False  # whether the last piece of `joined` is an original one
    for piece in pieces:
        if joinable and (joined[-1], piece) == pair:
            joined[-1] = merged
            joinable = False
        else:
            joined.append(piece)
            joinable = True
    return joined


def _fall(count: np.ndarray, n: np.ndarray) -> np.ndarray:  # count (K,)  n (K,) -> (K,)
    """f(count) - f(count - n) for f(x) = x log x, without subtracting two nearly equal numbers."""
    rest = count - n
    ratio = np.divide(n, count, where=rest > 0, out=np.zeros_like(n))
    return n * np.log(count) - rest * np.log1p(-ratio)


def _with_room(array: np.ndarray, index: int, fill: float) -> np.ndarray:
    """`array` itself if its last axis has a place `index`, otherwise a copy of twice the length."""
    if index < array.shape[-1]:
        return array
    return np.concatenate([array, np.full_like(array, fill)], axis=-1)


def _usable_words(word_counts: Mapping[str, int], alphabet_limit: int) -> dict[str, int]:
    """Words that the tokenizer will be able to match, in one fixed order."""
    characters: Counter[str] = Counter()
    for word, count in word_counts.items():
        for character in word:
            characters[character] += count
    frequent = sorted(characters, key=lambda character: (-characters[character], character))
    alphabet = {character for character in frequent[:alphabet_limit] if not "\ud800" <= character <= "\udfff"}
    return {
        word: word_counts[word]
        for word in sorted(word_counts)
        if word_counts[word] > 0 and 0 < len(word) <= MAX_CHARS_PER_WORD and alphabet.issuperset(word)
    }
