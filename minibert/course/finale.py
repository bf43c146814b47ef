"""What the last run of the course is made of beside the engine, put together from the reader's functions."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from minibert.core.batch import Batch
from minibert.core.wordpiece import ROUNDING, SPECIAL_TOKENS, join

ASKED = 64  # pairs whose gain is asked before each join: it grows with the frequency of a pair
LEAST = 2  # occurrences of a pair that is joined
Pair = tuple[str, str]


def learn_pieces(
    words: Mapping[str, int],
    size: int,
    count_pairs: Callable[..., Mapping[Pair, int]],
    gain: Callable[..., float],
    asked: int = ASKED,
) -> list[str]:
    """Learn a vocabulary with somebody's count of pairs and gain of a join.

    As `minibert.core.wordpiece.learn`, but that only words with a joined pair are counted anew, and only the
    most frequent pairs are asked for their gain.

    Parameters
    ----------
    words : dict of int
        How often each word occurs.
    size : int
        Pieces to end with; fewer where no pair is left to join.
    count_pairs : function
        Of exercise 01.2: [(pieces, how often)] -> {pair: how often}.
    gain : function
        Of exercise 01.3: counts of pieces, pair, how often -> nats.
    asked : int, default 64
        How many of the most frequent pairs are asked before each join.

    Returns
    -------
    list of str
        Pieces, by their ids.
    """
    text = [([word[0], *("##" + letter for letter in word[1:])], n) for word, n in words.items()]
    counts: Counter[str] = Counter()
    pairs: Counter[Pair] = Counter()
    homes: dict[Pair, set[int]] = defaultdict(set)  # the words that a pair is in, or was

    def count(place: int, sign: int) -> None:
        pieces, n = text[place]
        for piece in pieces:
            counts[piece] += sign * n
        for pair, times in count_pairs([text[place]]).items():
            pairs[pair] += sign * times
            homes[pair].add(place)

    for place in range(len(text)):
        count(place, 1)
    number = {piece: i for i, piece in enumerate(sorted(counts))}
    letters = {piece.removeprefix("##") for piece in number}
    vocab = [*SPECIAL_TOKENS, *sorted(letters | {"##" + letter for letter in letters})]
    while len(vocab) < size:
        frequent = [(pair, n) for pair, n in pairs.most_common(asked) if n >= LEAST]
        if not frequent:
            break
        gains = {pair: round(gain(counts, pair, n) * ROUNDING) for pair, n in frequent}
        best = min(gains, key=lambda pair: (-gains[pair], number[pair[0]], number[pair[1]]))
        merged = best[0] + best[1].removeprefix("##")
        for place in sorted(homes.pop(best)):
            count(place, -1)
            pieces, n = text[place]
            text[place] = (join(pieces, best, merged), n)
            count(place, 1)
        number[merged] = len(number)
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
    """Hide the targets of a batch anew and lay it out anew, with somebody's functions.

    Where the targets are and which sequences these are stays as it is.

    Parameters
    ----------
    batch : Batch
        Masked by minibert.
    mask_id, vocab_size : int
        Id of [MASK], and number of ids to draw random pieces from.
    rng : numpy.random.Generator
        Decides what a target shows.
    mask_tokens : function, default None
        Of exercise 03.3; None: targets show what they showed.
    pack : function, default None
        Of exercise 02.4; None: the batch stays laid out as it is.

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
        ids, positions, cu_seqlens = (np.asarray(one, np.int32) for one in pack(sequences))
        batch = replace(batch, input_ids=ids, positions=positions, cu_seqlens=cu_seqlens)
    return batch
