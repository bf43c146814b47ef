"""Precision, recall and F1 of tagged chunks by the rules of the CoNLL shared tasks' script, conlleval.

A chunk is right when its first word, its last word and its type are. Where chunks begin and end the scheme of
the tags says, see `schemes`: IOB1, IOB2, IOE1, IOE2 and tags of theirs that contradict each other get the
script's numbers, BIOES, BILOU and the like those of seqeval's strict mode. A tag without a hyphen that is
none of the letters of a scheme is outside.
"""

import operator
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from minibert.base.errors import InputError
from minibert.tasks.metrics.schemes import (
    OUTSIDE,
    Chunk,
    Scheme,
    letter_of,
    read_chunks,
    scheme_named,
    scheme_of,
)

__all__ = ["OUTSIDE", "Chunk", "Scheme", "both_schemes", "chunks", "conlleval", "f1_of", "report"]
__all__ += ["sentence_counts"]
Sentences = Sequence[Sequence[str]]


def chunks(tags: Sequence[str], scheme: Scheme | None = None) -> list[Chunk]:
    """Return the chunks of a sentence.

    Parameters
    ----------
    tags : O, or a letter of the scheme with a hyphen and a type.
    scheme : of the tags; None tells it from their letters. A sentence has few of them: where the scheme is
        known, give it.

    Raises
    ------
    InputError
        When no scheme has all letters of the tags.

    Examples
    --------
    >>> chunks(["B-PER", "I-PER", "O", "I-LOC", "B-LOC"])
    [Chunk(kind='PER', start=0, end=2), Chunk(kind='LOC', start=3, end=4), Chunk(kind='LOC', start=4, end=5)]
    >>> chunks(["U-PER", "U-PER", "B-LOC", "L-LOC"])
    [Chunk(kind='PER', start=0, end=1), Chunk(kind='PER', start=1, end=2), Chunk(kind='LOC', start=2, end=4)]
    """
    return read_chunks(tags, scheme_of([tags]) if scheme is None else scheme)


def both_schemes(gold: Sentences, predicted: Sentences) -> tuple[Scheme, Scheme]:
    """Return the schemes of gold and of predicted tags; raise InputError where one is unknown.

    Predicted tags are of the scheme of the gold ones where that has all their letters: a model that has never
    predicted where an entity ends has predicted no entity. Else they are of their own.
    """
    expected = scheme_of(gold)
    if any(letter_of(tag) for tags in gold for tag in tags):
        return expected, scheme_of(predicted, expected)
    return (found := scheme_of(predicted)), found


def conlleval(gold: Sentences, predicted: Sentences, scheme: str | None = None) -> dict[str, Any]:
    """Compute the metrics of conlleval, in percent.

    Parameters
    ----------
    gold, predicted : the tags of each sentence; the two need not be of one scheme.
    scheme : of both, such as "BIOES" or "BILOU" (`schemes.NAMES`). None tells that of each side from the
        letters of its tags.

    Returns
    -------
    `accuracy` (of tags), `precision`, `recall`, `f1`, each 0 where it would be divided by nothing; `words`;
    `gold`, `found`, `correct`: how many chunks there are, were found, were found rightly; `types`: the same
    of each type, but for `accuracy` and `words`.

    Raises
    ------
    InputError
        Without any word, for unequal numbers of tags, or when a scheme is not known.
    """
    counts: list[Counter[str]] = [Counter(), Counter(), Counter()]  # by type: gold, found, correct
    for sides in _compared(gold, predicted, scheme):
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


def sentence_counts(gold: Sentences, predicted: Sentences, scheme: str | None = None) -> np.ndarray:
    """Count what F1 is made of, sentence by sentence, for intervals; arguments and errors are `conlleval`'s.

    Return (S,3) int64: chunks that there are, were found, were found rightly; `f1_of` takes any rows of it.
    So `bootstrap(lambda rows: f1_of(counts[rows]), len(counts))` is the interval over sentences.
    """
    return np.array([list(map(len, sides)) for sides in _compared(gold, predicted, scheme)], np.int64)


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


def _compared(
    gold: Sentences, predicted: Sentences, scheme: str | None = None
) -> Iterator[tuple[set[Chunk], ...]]:
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
    expected_scheme, found_scheme = (
        both_schemes(gold, predicted) if scheme is None else 2 * [scheme_named(scheme)]
    )
    pairs = (
        (set(read_chunks(a, expected_scheme)), set(read_chunks(b, found_scheme)))
        for a, b in zip(gold, predicted, strict=True)
    )
    return ((expected, found, expected & found) for expected, found in pairs)
