"""Make sentence pairs for next-sentence prediction (Devlin et al. 2019, section 3.1 and appendix A.2).

A document is a list of sentences, a sentence a list of vocabulary ids. Where the paper is silent, this does
what Google's create_pretraining_data.py does. data/nsp_spans.py draws the same pairs from shards of any size,
and a test holds it against this file.
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple, TypeAlias

IS_NEXT, NOT_NEXT, NOT_ASKED = 0, 1, -1
DRAWS_OF_A_DOCUMENT = 10  # attempts to draw a document other than the current one; all of them may fail

Sentence: TypeAlias = Sequence[int]
Document: TypeAlias = Sequence[Sentence]


class Pair(NamedTuple):
    """The tokens of segment A, those of segment B, and whether B follows A in the text."""

    a: list[int]
    b: list[int]  # empty if the label is NOT_ASKED
    label: int  # IS_NEXT, NOT_NEXT or NOT_ASKED


def sentence_pairs(
    number: int,
    documents: Sequence[Document],
    room: int,
    short_seq_prob: float,
    rng: Random,
) -> Iterator[Pair]:
    """Yield the pairs of one document, from its first sentence to its last.

    Whole sentences are gathered up to a target length and divided into A and B at a random border. Half of
    the time B is replaced by text from another document; the sentences that it replaces are used again.

    Parameters
    ----------
    number : index of the document to divide.
    documents : all documents; half of the time B comes from another one.
    room : most tokens of a pair, without the special ones.
    short_seq_prob : share of the targets that are shorter than `room`.
    rng : source of all draws.

    Yields
    ------
    Pair, in the order of the text.
    """
    document = documents[number]
    first = 0  # the next sentence to use
    while first < len(document):
        target = target_length(room, short_seq_prob, rng)
        end = gathered_until(document, first, target)
        border = first + 1 + int(rng.random() * (end - first - 1))  # A has at least one sentence
        a = joined(document[first:border])
        if end - first == 1 or rng.random() < 0.5:
            other = another_document(number, documents, rng)
            pair = Pair(a, random_span(other, target - len(a), rng), NOT_NEXT)
            first = border
        else:
            pair = Pair(a, joined(document[border:end]), IS_NEXT)
            first = end
        yield truncated(pair, room, rng)


def contiguous_spans(
    document: Document,
    room: int,
    short_seq_prob: float,
    rng: Random,
) -> Iterator[Pair]:
    """Yield a document cut into spans of `room` tokens, some of them shorter, without a second segment.

    Parameters
    ----------
    document : its sentences.
    room : most tokens of a span, without the special ones.
    short_seq_prob : share of the spans that are shorter than `room`.
    rng : source of all draws.

    Yields
    ------
    Pair with an empty B.
    """
    tokens = joined(document)
    begin = 0
    while begin < len(tokens):
        end = begin + target_length(room, short_seq_prob, rng)
        yield Pair(tokens[begin:end], [], NOT_ASKED)
        begin = end


def target_length(room: int, short_seq_prob: float, rng: Random) -> int:
    """Draw how many tokens to gather: as many as there is room for, or sometimes fewer.

    Parameters
    ----------
    room : the most tokens.
    short_seq_prob : how often to draw a number from 2 to `room` instead, all equally likely.
    rng : source of the draws.
    """
    if rng.random() < short_seq_prob:
        return 2 + int(rng.random() * (room - 1))
    return room


def gathered_until(document: Document, first: int, target: int) -> int:
    """Return the end (exclusive) of the sentences from `first` on that have `target` tokens together.

    Parameters
    ----------
    document : its sentences.
    first : index of the sentence to begin with.
    target : tokens to reach.

    Returns
    -------
    int. The end of the document if it does not have that many tokens.
    """
    tokens = 0
    for number in range(first, len(document)):
        tokens += len(document[number])
        if tokens >= target:
            return number + 1
    return len(document)


def another_document(number: int, documents: Sequence[Document], rng: Random) -> Document:
    """Draw a document that is not document `number`, or give up after ten draws.

    Parameters
    ----------
    number : index of the document to avoid.
    documents : all documents.
    rng : source of the draws.

    Returns
    -------
    a document; if all draws fail, document `number` itself.
    """
    for _ in range(DRAWS_OF_A_DOCUMENT):
        other = int(rng.random() * len(documents))
        if other != number:
            break
    return documents[other]


def random_span(document: Document, wanted: int, rng: Random) -> list[int]:
    """Draw a sentence, and take it and what follows it until there are `wanted` tokens.

    Parameters
    ----------
    document : its sentences.
    wanted : tokens to reach; the last sentence stays whole, so there may be more.
    rng : source of the draw.

    Returns
    -------
    list of ids.
    """
    first = int(rng.random() * len(document))
    return joined(document[first : gathered_until(document, first, wanted)])


def truncated(pair: Pair, room: int, rng: Random) -> Pair:
    """Shorten a pair to `room` tokens, one by one from the longer segment; a coin says at which end.

    Parameters
    ----------
    pair : the pair to shorten.
    room : most tokens of both segments together.
    rng : source of the coins.
    """
    a, b, label = pair
    excess = len(a) + len(b) - room
    if excess <= 0:
        return pair
    from_a = min(excess, max(0, len(a) - len(b)))  # down to equal lengths,
    from_b = min(excess, max(0, len(b) - len(a)))
    rest = excess - from_a - from_b  # then from both in turn, from B first
    a = cut(a, from_a + rest // 2, rng)
    b = cut(b, from_b + (rest + 1) // 2, rng)
    return Pair(a, b, label)


def cut(tokens: list[int], count: int, rng: Random) -> list[int]:
    """Remove `count` tokens; for each a coin is tossed, and heads removes it from the front.

    Parameters
    ----------
    tokens : ids of a segment.
    count : how many to remove.
    rng : source of the coins.
    """
    front = rng.getrandbits(count).bit_count() if count else 0
    back = count - front
    return tokens[front : len(tokens) - back]


def joined(sentences: Sequence[Sentence]) -> list[int]:
    """Lay the tokens of sentences end to end.

    Parameters
    ----------
    sentences : lists of ids.
    """
    return [token for sentence in sentences for token in sentence]
