"""Precision, recall and F1 of tagged chunks by the rules of the CoNLL shared tasks' script, conlleval.

A chunk is right when its first word, its last word and its type are. Where chunks begin and end is read from
the tags as the script does (Tjong Kim Sang and Veenstra, 1999), so that IOB1, IOB2, IOE1, IOE2 and tags that
contradict each other get its numbers. Three things differ: S is a chunk of one word and B begins
one behind any tag, which makes BIOES right; and a tag without a hyphen, other than B, I, E and S, is outside.
"""

import operator
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from minibert.errors import InputError

Sentences = Sequence[Sequence[str]]
OUTSIDE = "O"


class Chunk(NamedTuple):
    """The words from `start` up to `end`, without it, and what they are: LOC, NP, or "" where no tag says."""

    kind: str
    start: int
    end: int


def chunks(tags: Sequence[str]) -> list[Chunk]:
    """Return the chunks of a sentence. Tags are O, or B, I, E or S with a hyphen and a type.

    Examples
    --------
    >>> chunks(["B-PER", "I-PER", "O", "I-LOC", "B-LOC"])
    [Chunk(kind='PER', start=0, end=2), Chunk(kind='LOC', start=3, end=4), Chunk(kind='LOC', start=4, end=5)]
    """
    found: list[Chunk] = []
    for place, (before, tag) in enumerate(pairwise([OUTSIDE, *tags, OUTSIDE])):
        if _is_outside(before):
            start = place
        elif _parted(before, tag):
            found.append(Chunk(_kind(before), start, place))
            start = place
    return found


@lru_cache(maxsize=4096)
def _parted(before: str, tag: str) -> bool:
    """Return whether the chunk that `before` is in has ended where `tag` stands."""
    is_border = _prefix(tag) in ("B", "S") or _prefix(before) in ("E", "S")
    return is_border or _is_outside(tag) or _kind(before) != _kind(tag)


@lru_cache(maxsize=4096)
def _is_outside(tag: str) -> bool:
    """Return whether a tag is O, or has neither prefix nor type, a part of speech perhaps."""
    return _prefix(tag) == OUTSIDE or (not _kind(tag) and _prefix(tag) not in ("B", "I", "E", "S"))


def _prefix(tag: str) -> str:
    return tag.partition("-")[0]


def _kind(tag: str) -> str:
    return tag.partition("-")[2]


def conlleval(gold: Sentences, predicted: Sentences) -> dict[str, Any]:
    """Compute the metrics of conlleval, in percent.

    Both sides have the tags of each sentence, and need not be of one scheme. Return `accuracy` (of tags),
    `precision`, `recall`, `f1`, each 0 where it would be divided by nothing; `words`; `gold`, `found`,
    `correct`: how many chunks there are, were found, were found rightly; `types`: the same of each type, but
    for `accuracy` and `words`. Raise InputError without any word, or for unequal numbers of tags.
    """
    counts: list[Counter[str]] = [Counter(), Counter(), Counter()]  # by type: gold, found, correct
    for sides in _compared(gold, predicted):
        for counter, of_sentence in zip(counts, sides, strict=True):
            counter.update(chunk.kind for chunk in of_sentence)
    words = sum(map(len, gold))
    right = sum(sum(map(operator.eq, *tags)) for tags in zip(gold, predicted, strict=True))
    types = {kind: _rates(*(counter[kind] for counter in counts)) for kind in sorted(counts[0] | counts[1])}
    rates = _rates(*(counter.total() for counter in counts))
    return {"accuracy": 100 * right / words, **rates, "words": words, "types": types}


def _rates(gold: int, found: int, correct: int) -> dict[str, Any]:
    precision = 100 * correct / found if found else 0.0
    recall = 100 * correct / gold if gold else 0.0
    f1 = 2 * precision * recall / (precision + recall) if correct else 0.0
    counts = {"gold": gold, "found": found, "correct": correct}
    return {"precision": precision, "recall": recall, "f1": f1, **counts}


def sentence_counts(gold: Sentences, predicted: Sentences) -> np.ndarray:
    """Count what F1 is made of, sentence by sentence, for intervals.

    Return (S,3) int64: chunks that there are, were found, were found rightly; `f1_of` takes any rows of it.
    So `bootstrap(lambda rows: f1_of(counts[rows]), len(counts))` is the interval over sentences.
    """
    return np.array([list(map(len, sides)) for sides in _compared(gold, predicted)], np.int64)


def f1_of(counts: np.ndarray) -> float:
    """Compute F1, in percent, of the sentences of which these are the counts, (n,3)."""
    return _rates(*counts.sum(axis=0).tolist())["f1"]


def report(metrics: Mapping[str, Any]) -> str:
    """Format what `conlleval` returned as conlleval prints it.

    For tags without types the script may print their one line twice; here it stands once.
    """
    first = "processed {words} tokens with {gold} phrases; found: {found} phrases; correct: {correct}."
    lines = [first.format(**metrics), f"accuracy: {metrics['accuracy']:6.2f}%; {_row(metrics)}"]
    lines += [f"{kind:>17}: {_row(row)}  {row['found']}" for kind, row in metrics["types"].items()]
    return "\n".join(lines)


def _row(metrics: Mapping[str, Any]) -> str:
    return "precision: {precision:6.2f}%; recall: {recall:6.2f}%; FB1: {f1:6.2f}".format(**metrics)


def _compared(gold: Sentences, predicted: Sentences) -> Iterator[tuple[set[Chunk], ...]]:
    """Return the chunks of each sentence that there are, were found, were found rightly."""
    if len(gold) != len(predicted):
        advice = "give the same ones."
        raise InputError(f"There are {len(gold):,} gold and {len(predicted):,} predicted sentences; {advice}")
    for number, (gold_tags, predicted_tags) in enumerate(zip(gold, predicted, strict=True), start=1):
        if len(gold_tags) != len(predicted_tags):
            found = f"Sentence {number:,} has {len(gold_tags)} gold and {len(predicted_tags)} predicted tags"
            raise InputError(f"{found}; give one of each for every word.")
    if not any(map(len, gold)):
        raise InputError("There is no word to score; give one sentence at least.")
    pairs = ((set(chunks(a)), set(chunks(b))) for a, b in zip(gold, predicted, strict=True))
    return ((expected, found, expected & found) for expected, found in pairs)
