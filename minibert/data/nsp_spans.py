"""Which tokens make a sequence: pairs of spans for next-sentence prediction, or contiguous spans.

Section 3.1 and appendix A.2 of the paper, with the habits of Google's create_pretraining_data.py that shape
the data. A span is known by where it begins among all tokens and how long it is; nothing is copied here.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple, TypeAlias

import numpy as np

from minibert.data.shards.store import TokenShards
from minibert.tokenizer.encoding import ranges

IS_NEXT, NOT_NEXT, NOT_ASKED = 0, 1, -1
DRAWS_OF_A_DOCUMENT = 10  # to hit another document than the current one; the tenth may still be the same
SENTENCES_KEPT = 1 << 22  # borders kept in memory, 16 MB

Ends: TypeAlias = "array[int]"  # of sentences


class Spans(NamedTuple):
    """The tokens of one sequence: span A, span B (empty when there is none), and whether B follows A."""

    a_begin: int
    a_length: int
    b_begin: int
    b_length: int
    label: int


@dataclass
class Borders:
    """Where the sentences of a document end, remembered: random next spans come back to documents."""

    shards: TokenShards
    longest: int | None = None  # a sentence of more tokens counts as several, of nearly equal lengths
    known: dict[int, tuple[int, Ends]] = field(default_factory=dict)
    size: int = 0

    def __call__(self, document: int) -> tuple[int, Ends]:
        """Return where a document begins among all tokens, and where its sentences end from there."""
        if (found := self.known.get(document)) is None:
            begin, ends = self.shards.sentences_of(document)
            if self.longest:
                ends = cut_sentences(ends, self.longest)
            found = begin, array("I", ends.astype(np.dtype("I")).tobytes())
            if self.size > SENTENCES_KEPT:
                self.known.clear()
                self.size = 0
            self.known[document] = found
            self.size += len(ends)
        return found


# ends (n,) -> (m,)
def cut_sentences(ends: np.ndarray, longest: int) -> np.ndarray:
    """Return the ends of sentences, those of more than `longest` tokens cut into nearly equal parts.

    Examples
    --------
    >>> cut_sentences(np.array([3, 10]), longest=4).tolist()
    [3, 6, 10]
    """
    ends = ends.astype(np.int64)
    begins = np.concatenate([[0], ends[:-1]])
    lengths = ends - begins
    parts = -(-lengths // longest)
    number = ranges(np.ones_like(parts), parts)  # 1 .. parts, in each sentence
    return np.repeat(begins, parts) + np.repeat(lengths, parts) * number // np.repeat(parts, parts)


def contiguous_spans(
    begin: int, length: int, room: int, short_seq_prob: float, rng: Random
) -> Iterator[Spans]:
    """Cut a document into spans of `room` tokens, now and then a shorter one; every token is in just one."""
    done = 0
    while done < length:
        size = min(_target(room, short_seq_prob, rng), length - done)
        yield Spans(begin + done, size, begin + done + size, 0, NOT_ASKED)
        done += size


def span_pairs(
    document: int, documents: list[int], borders: Borders, room: int, short_seq_prob: float, rng: Random
) -> Iterator[Spans]:
    """Pair spans of a document with what follows, or with a span from a random document of `documents`.

    Whole sentences are gathered up to the target length and split into A and B at a random border. Half of
    the time B comes from elsewhere, from a random sentence on, and the sentences that B would have been are
    used again. As in the released code, a single sentence as long as the target always gets a random B.
    """
    begin, ends = borders(document)
    last = len(ends) - 1
    first = done = 0  # sentences and tokens used up
    while first <= last:
        target = _target(room, short_seq_prob, rng)
        final = bisect_left(ends, done + target, first, last)
        middle = first + int(rng.random() * (final - first))  # the last sentence of A; B has at least one
        a_length = ends[middle] - done
        if final == first or rng.random() < 0.5:
            for _ in range(DRAWS_OF_A_DOCUMENT):
                if (other := documents[int(rng.random() * len(documents))]) != document:
                    break
            b_begin, b_length = _random_span(*borders(other), target - a_length, rng)
            label, first, used = NOT_NEXT, middle + 1, ends[middle]
        else:
            b_begin, b_length = begin + ends[middle], ends[final] - ends[middle]
            label, first, used = IS_NEXT, final + 1, ends[final]
        yield truncated(Spans(begin + done, a_length, b_begin, b_length, label), room, rng)
        done = used


def truncated(spans: Spans, room: int, rng: Random) -> Spans:
    """Shorten a pair to `room` tokens, one by one from the longer span (B when equal), front or back.

    A fair coin says from which side; tokens cut from the front are the heads among as many random bits.
    """
    a_begin, a, b_begin, b, label = spans
    excess = a + b - room
    if excess <= 0:
        return spans
    cut_a, cut_b = min(excess, max(0, a - b)), min(excess, max(0, b - a))  # down to equal lengths
    rest = excess - cut_a - cut_b
    cut_a, cut_b = cut_a + rest // 2, cut_b + (rest + 1) // 2
    a_begin += rng.getrandbits(cut_a).bit_count() if cut_a else 0
    b_begin += rng.getrandbits(cut_b).bit_count() if cut_b else 0
    return Spans(a_begin, a - cut_a, b_begin, b - cut_b, label)


def _target(room: int, short_seq_prob: float, rng: Random) -> int:
    """Return how many tokens to gather: all there is room for, or with `short_seq_prob` from 2 to that."""
    return 2 + int(rng.random() * (room - 1)) if rng.random() < short_seq_prob else room


def _random_span(begin: int, ends: Ends, wanted: int, rng: Random) -> tuple[int, int]:
    """Draw a span from a random sentence on, until `wanted` tokens are found or the document ends."""
    first = int(rng.random() * len(ends))
    start = ends[first - 1] if first else 0
    final = bisect_left(ends, start + wanted, first, len(ends) - 1)
    return begin + start, ends[final] - start
