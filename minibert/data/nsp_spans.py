"""Choose the tokens of a sequence: pairs of spans for next-sentence prediction, or contiguous spans.

This follows section 3.1 and appendix A.2 of the paper, and Google's create_pretraining_data.py in all that
shapes the data. A span is its beginning among all tokens and its length; nothing is copied here.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple, TypeAlias

import numpy as np

from minibert.core.pairs import DRAWS_OF_A_DOCUMENT, IS_NEXT, NOT_ASKED, NOT_NEXT, target_length
from minibert.data.shards.store import TokenShards
from minibert.tokenizer.encoding import ranges

SENTENCES_KEPT = 1 << 22  # sentences whose ends are cached, in 16 MB

Ends: TypeAlias = "array[int]"  # the ends of sentences


class Spans(NamedTuple):
    """The tokens of one sequence: span A, span B (empty if there is none), and whether B follows A."""

    a_begin: int
    a_length: int
    b_begin: int
    b_length: int
    label: int


@dataclass
class Borders:
    """A cache of where the sentences of documents end; random next spans look up many documents."""

    shards: TokenShards
    longest: int | None = None  # a sentence of more tokens counts as several, of nearly equal lengths
    known: dict[int, tuple[int, Ends]] = field(default_factory=dict)
    size: int = 0

    def __call__(self, document: int) -> tuple[int, Ends]:
        """Return where a document begins among all tokens, and where its sentences end, relative to that."""
        cached = self.known.get(document)
        if cached is not None:
            return cached
        begin, ends = self.shards.sentences_of(document)
        if self.longest:
            ends = cut_sentences(ends, self.longest)
        if self.size > SENTENCES_KEPT:
            self.known.clear()
            self.size = 0
        borders = begin, array("I", ends.astype(np.dtype("I")).tobytes())
        self.known[document] = borders
        self.size += len(ends)
        return borders


def cut_sentences(ends: np.ndarray, longest: int) -> np.ndarray:
    """Return the ends of sentences after cutting those of more than `longest` tokens into nearly equal parts.

    Parameters
    ----------
    ends : (n,) int
        Tokens up to the end of each sentence.
    longest : int
        The most tokens of a part.

    Returns
    -------
    (m,) int64
        Tokens up to the end of each part, m >= n.

    Examples
    --------
    >>> cut_sentences(np.array([3, 10]), longest=4).tolist()
    [3, 6, 10]
    """
    ends = ends.astype(np.int64)
    begins = np.concatenate([[0], ends[:-1]])
    lengths = ends - begins
    parts = -(-lengths // longest)
    ordinal = ranges(np.ones_like(parts), parts)  # 1 to the number of parts, in each sentence
    before = np.repeat(begins, parts)
    length = np.repeat(lengths, parts)
    return before + length * ordinal // np.repeat(parts, parts)


def contiguous_spans(
    begin: int, length: int, room: int, short_seq_prob: float, rng: Random
) -> Iterator[Spans]:
    """Cut a document into spans of `room` tokens, some shorter; every token is in exactly one span.

    Parameters
    ----------
    begin : int
        Index of the document's first token among all tokens.
    length : int
        Number of tokens of the document.
    room : int
        The most tokens of a span.
    short_seq_prob : float
        The share of spans that have a random shorter length.
    rng : Random
        The document's own source of random numbers, for all draws.

    Yields
    ------
    Spans
        Spans with an empty B, in the order of the document; the last may be shorter.
    """
    done = 0
    while done < length:
        size = min(target_length(room, short_seq_prob, rng), length - done)
        yield Spans(begin + done, size, begin + done + size, 0, NOT_ASKED)
        done += size


def span_pairs(
    document: int, documents: list[int], borders: Borders, room: int, short_seq_prob: float, rng: Random
) -> Iterator[Spans]:
    """Pair spans of a document with what follows, or with a span from a random document of `documents`.

    Whole sentences are gathered up to the target length and split into A and B at a random border. Half of
    the time B is replaced by text of another document, from a random sentence on, and the sentences that B
    had are used again. As in the released code, a single sentence as long as the target always gets a random
    B.

    Parameters
    ----------
    document : int
        Index of the document in the shards.
    documents : list of int
        Indices of the documents that a random B may come from, this one included.
    borders : Borders
        The cache of where sentences end.
    room : int
        The most tokens of A and B together.
    short_seq_prob : float
        The share of pairs that have a random shorter target.
    rng : Random
        The document's own source of random numbers, for all draws.

    Yields
    ------
    Spans
        In the order of their A.
    """
    begin, ends = borders(document)
    last = len(ends) - 1
    first = 0  # the first sentence that is not used up
    done = 0  # tokens used up
    while first <= last:
        # Sentences `first` to `final` are gathered; `middle` is the last of A, and B has at least one.
        target = target_length(room, short_seq_prob, rng)
        final = bisect_left(ends, done + target, first, last)
        middle = first + int(rng.random() * (final - first))
        a_begin = begin + done
        a_length = ends[middle] - done
        if final == first or rng.random() < 0.5:
            label = NOT_NEXT
            other_begin, other_ends = borders(_other_document(document, documents, rng))
            b_begin, b_length = _random_span(other_begin, other_ends, target - a_length, rng)
            last_used = middle
        else:
            label = IS_NEXT
            b_begin = begin + ends[middle]
            b_length = ends[final] - ends[middle]
            last_used = final
        yield truncated(Spans(a_begin, a_length, b_begin, b_length, label), room, rng)
        first = last_used + 1
        done = ends[last_used]


def _other_document(document: int, documents: list[int], rng: Random) -> int:
    """Draw one of `documents` other than `document`, or `document` itself if all attempts fail."""
    for _ in range(DRAWS_OF_A_DOCUMENT):
        other = documents[int(rng.random() * len(documents))]
        if other != document:
            break
    return other


def truncated(spans: Spans, room: int, rng: Random) -> Spans:
    """Shorten a pair to `room` tokens, one by one from the longer span (B if equal), at its front or back.

    A coin decides for each token. All coins of a span are tossed at once, as random bits: the number of ones
    is how many tokens the front loses.

    Parameters
    ----------
    spans : Spans
        A pair.
    room : int
        The most tokens of both together.
    rng : Random
        Source of the coins; nothing is drawn if nothing is cut.

    Returns
    -------
    Spans
        The shortened pair; the pair itself if it fits.
    """
    a_begin, a_length, b_begin, b_length, label = spans
    excess = a_length + b_length - room
    if excess <= 0:
        return spans
    # First the longer span is cut to the length of the other, then both in turn, B first.
    a_cut = min(excess, max(0, a_length - b_length))
    b_cut = min(excess, max(0, b_length - a_length))
    rest = excess - a_cut - b_cut
    a_cut += rest // 2
    b_cut += (rest + 1) // 2
    if a_cut:
        a_begin += rng.getrandbits(a_cut).bit_count()
    if b_cut:
        b_begin += rng.getrandbits(b_cut).bit_count()
    return Spans(a_begin, a_length - a_cut, b_begin, b_length - b_cut, label)


def _random_span(begin: int, ends: Ends, wanted: int, rng: Random) -> tuple[int, int]:
    """Return begin and length of a span from a random sentence on, of `wanted` tokens or until the end."""
    first = int(rng.random() * len(ends))
    start = 0
    if first:
        start = ends[first - 1]
    last = len(ends) - 1
    final = bisect_left(ends, start + wanted, first, last)
    return begin + start, ends[final] - start
