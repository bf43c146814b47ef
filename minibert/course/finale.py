"""Put together the vocabulary and the batches of the course's last run from the reader's functions."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from minibert.core.batch import Batch
from minibert.core.wordpiece import ROUNDING, SPECIAL_TOKENS, join

ASKED = 64  # pairs compared before each join, the most frequent ones: the gain grows with the frequency
LEAST = 2  # times that a pair has to occur to be joined
Pair = tuple[str, str]


def learn_pieces(
    words: Mapping[str, int],
    size: int,
    count_pairs: Callable[..., Mapping[Pair, int]],
    gain: Callable[..., float],
    asked: int = ASKED,
) -> list[str]:
    """Learn a vocabulary with given functions that count pairs and compute the gain of a join.

    It differs from `minibert.core.wordpiece.learn` in two ways, for speed: after a join it counts only the
    words with the joined pair again, and it compares the gains of the most frequent pairs only.

    Parameters
    ----------
    words : dict of int
        How often each word occurs.
    size : int
        Number of pieces to learn; there are fewer if no pair is left to join.
    count_pairs : function
        The function of exercise 01.2: it takes a list of (pieces of a word, how often the word occurs), and
        returns how often each pair occurs.
    gain : function
        The function of exercise 01.3: it takes the counts of pieces, a pair, and how often the pair occurs,
        and returns the gain in nats.
    asked : int, default 64
        How many of the most frequent pairs are compared before each join.

    Returns
    -------
    list of str
        Pieces in the order of their ids.
    """
    text = [([word[0], *("##" + letter for letter in word[1:])], n) for word, n in words.items()]
    counts: Counter[str] = Counter()
    pairs: Counter[Pair] = Counter()
    words_with: dict[Pair, set[int]] = defaultdict(set)  # indices of the words that have a pair, or had it

    def count(word: int, sign: int) -> None:
        pieces, n = text[word]
        for piece in pieces:
            counts[piece] += sign * n
        for pair, times in count_pairs([text[word]]).items():
            pairs[pair] += sign * times
            words_with[pair].add(word)

    for word in range(len(text)):
        count(word, 1)
    rank = {piece: i for i, piece in enumerate(sorted(counts))}  # decides between pairs of equal gain
    letters = {piece.removeprefix("##") for piece in rank}
    vocab = [*SPECIAL_TOKENS, *sorted(letters | {"##" + letter for letter in letters})]
    while len(vocab) < size:
        frequent = [(pair, n) for pair, n in pairs.most_common(asked) if n >= LEAST]
        if not frequent:
            break
        gains = {pair: round(gain(counts, pair, n) * ROUNDING) for pair, n in frequent}
        best = min(gains, key=lambda pair: (-gains[pair], rank[pair[0]], rank[pair[1]]))
        merged = best[0] + best[1].removeprefix("##")
        for word in sorted(words_with.pop(best)):
            count(word, -1)
            pieces, n = text[word]
            text[word] = (join(pieces, best, merged), n)
            count(word, 1)
        rank[merged] = len(rank)
        vocab.append(merged)
    return vocab


def masked_and_packed(
    batch: Batch,
    mask_id: int,
    vocab_size: int,
    rng: np.random.Generator,
    mask_tokens: Callable[..., Any] | None = None,
    pack: Callable[..., Any] | None = None,
) -> Batch:
    """Mask the targets of a batch again, and pack its sequences again, with given functions.

    The targets and the sequences stay the same.

    Parameters
    ----------
    batch : Batch
        A batch that minibert has masked.
    mask_id, vocab_size : int
        Id of [MASK], and number of ids from which random pieces are drawn.
    rng : numpy.random.Generator
        Decides what the model sees in place of each target.
    mask_tokens : function, default None
        The function of exercise 03.3; None: the masking stays as it is.
    pack : function, default None
        The function of exercise 02.4; None: the layout stays as it is.

    Returns
    -------
    Batch
    """
    if mask_tokens is not None:
        ids = batch.input_ids.copy()
        ids[batch.masked_rows] = batch.masked_labels
        chosen = np.zeros(batch.T, bool)
        chosen[batch.masked_rows] = True
        random_ids = rng.integers(vocab_size, size=batch.T)
        seen, labels = mask_tokens(ids, chosen, rng.random(batch.T), random_ids, mask_id)
        batch = replace(
            batch, input_ids=np.asarray(seen, np.int32), masked_labels=np.asarray(labels, np.int32)
        )
    if pack is not None:
        sequences = np.split(batch.input_ids, batch.cu_seqlens[1:-1])
        ids, positions, cu_seqlens = (np.asarray(array, np.int32) for array in pack(sequences))
        batch = replace(batch, input_ids=ids, positions=positions, cu_seqlens=cu_seqlens)
    return batch
