"""Precision, recall and F1 of tagged chunks by the rules of the CoNLL shared tasks' script, conlleval.

A chunk is right if its first word, its last word and its type are right. The scheme of the tags says where
chunks begin and end, see `schemes`. IOB1, IOB2, IOE1, IOE2, and tags in them that contradict each other, get
the script's numbers; BIOES, BILOU and the like, if the tags follow them, those of seqeval's strict mode. A
tag without a hyphen that is not a letter of a scheme is outside.
"""

import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from minibert.base.errors import InputError, warn
from minibert.tasks.metrics.schemes import (
    OUTSIDE,
    SCHEMES,
    Chunk,
    Scheme,
    as_kept,
    kept,
    letter_of,
    read_chunks,
    scheme_named,
    scheme_of,
    tags_without_scheme,
    unknown_scheme,
)

__all__ = ["OUTSIDE", "Chunk", "Scheme", "Schemes", "both_schemes", "chunks", "conlleval", "f1_of"]
__all__ += ["report", "sentence_counts"]
Sentences = Sequence[Sequence[str]]


class Schemes(NamedTuple):
    """The schemes of gold and of predicted tags."""

    gold: Scheme
    predicted: Scheme


def chunks(tags: Sequence[str], scheme: Scheme | None = None) -> list[Chunk]:
    """Return the chunks of a sentence.

    Parameters
    ----------
    tags : sequence of str
        Tags: O, or a letter of the scheme with a hyphen and a type.
    scheme : Scheme, optional
        Scheme of the tags. By default it is recognised from the tags; give it if it is known, since one
        sentence has few of them.

    Returns
    -------
    list of Chunk
        In order.

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
    return read_chunks(tags, as_kept(scheme_of([tags]), [tags]) if scheme is None else scheme)


def both_schemes(
    gold: Sentences,
    predicted: Sentences,
    detect: Callable[..., Scheme] = scheme_of,
) -> Schemes:
    """Return the schemes of gold and of predicted tags.

    Gold and predicted tags are strict only if they follow their scheme, see `as_kept`. Predicted tags are
    read in the scheme of the gold tags if that has all their letters: a model that never predicts where an
    entity ends has predicted no entity. Otherwise they have their own scheme. Gold tags without an entity are
    read in the scheme of the predicted tags.

    Parameters
    ----------
    gold, predicted : sequence of sequences of str
        The tags of each sentence.
    detect : callable, optional
        Recognises a scheme by the letters of the tags; like `scheme_of`, it may be given a preferred one.

    Returns
    -------
    Schemes

    Raises
    ------
    InputError
        When no scheme has all letters of one side.
    """
    gold_scheme = as_kept(detect(gold), gold)
    if any(letter_of(tag) for tags in gold for tag in tags):
        predicted_scheme = detect(predicted, gold_scheme)
        if predicted_scheme.name == gold_scheme.name:
            return Schemes(gold_scheme, gold_scheme)
        return Schemes(gold_scheme, as_kept(predicted_scheme, predicted))
    predicted_scheme = as_kept(detect(predicted), predicted)
    return Schemes(predicted_scheme, predicted_scheme)


def _warn_of_tags(gold: Sentences, predicted: Sentences, gold_scheme: Scheme) -> None:
    """Warn of tags that may be meant as those of entities, and of gold tags in no complete entity."""
    suspicious: set[str] = set()
    for sentences in (gold, predicted):
        suspicious.update(tags_without_scheme({tag for tags in sentences for tag in tags}))
    if suspicious:
        problem = unknown_scheme(sorted(suspicious))
        warn(f"{problem}; they count as outside. Rename them if they mark entities.")
    scheme = next(known for known in SCHEMES if known.name == gold_scheme.name)
    if not scheme.is_strict:  # in IOB and IOE any sequence of tags makes complete entities
        return
    total, broken, _ = kept(gold, scheme)
    if not broken:
        return
    problem = f"{broken.total():,} of {total:,} gold tags of entities belong to no complete entity"
    if gold_scheme.is_strict:
        warn(f"{problem} in {scheme.name}, so that they do not count. Correct them if they are errors.")
        return
    counts = Counter(letter for tags in gold for tag in tags if (letter := letter_of(tag)))
    letters = ", ".join(f"{letter} ({count:,})" for letter, count in counts.most_common())
    effect = "all are read as conlleval reads them. Correct the rare ones"
    warn(f"{problem} in {scheme.name}, whose letters they have: {letters}; {effect}.")


def conlleval(
    gold: Sentences,
    predicted: Sentences,
    scheme: str | Schemes | None = None,
) -> dict[str, Any]:
    """Compute the metrics of conlleval, in percent.

    Parameters
    ----------
    gold, predicted : sequence of sequences of str
        The tags of each sentence; the schemes of the two may differ.
    scheme : str or Schemes, optional
        Scheme of both, such as "BIOES" or "BILOU" (`schemes.NAMES`), in which entities have to be complete.
        Or the scheme of each side; by default those that `both_schemes` recognises. Unless it is a name,
        warnings count gold tags that are not in a complete entity, and name tags that follow no scheme.

    Returns
    -------
    dict
        `accuracy` (of tags), `precision`, `recall` and `f1`, each 0 if its denominator is 0; `words`; `gold`,
        `found` and `correct`: the numbers of chunks that are expected, predicted, and predicted correctly;
        `types`: the same for each type, except `accuracy` and `words`.

    Raises
    ------
    InputError
        When there is no word, the numbers of tags differ, or the scheme is not known.
    """
    n_gold: Counter[str] = Counter()  # number of chunks by type
    n_found: Counter[str] = Counter()
    n_correct: Counter[str] = Counter()
    for expected, predicted_chunks, correct in _compared(gold, predicted, scheme, warns=True):
        n_gold.update(chunk.kind for chunk in expected)
        n_found.update(chunk.kind for chunk in predicted_chunks)
        n_correct.update(chunk.kind for chunk in correct)
    words = 0
    right = 0
    for gold_tags, predicted_tags in zip(gold, predicted, strict=True):
        words += len(gold_tags)
        right += sum(map(operator.eq, gold_tags, predicted_tags))
    types = {}
    for kind in sorted(n_gold | n_found):
        types[kind] = _rates(n_gold[kind], n_found[kind], n_correct[kind])
    return {
        "accuracy": 100 * right / words,
        **_rates(n_gold.total(), n_found.total(), n_correct.total()),
        "words": words,
        "types": types,
    }


def _rates(gold: int, predicted: int, correct: int) -> dict[str, Any]:
    """Return precision, recall and F1, and the counts that they are made of."""
    precision = 100 * correct / predicted if predicted else 0.0
    recall = 100 * correct / gold if gold else 0.0
    f1 = 2 * precision * recall / (precision + recall) if correct else 0.0
    return {
        "precision": precision,
        "recall": recall,
        "f1": f1,
        "gold": gold,
        "found": predicted,
        "correct": correct,
    }


def sentence_counts(
    gold: Sentences,
    predicted: Sentences,
    scheme: str | Schemes | None = None,
) -> np.ndarray:
    """Count, sentence by sentence, what F1 is made of, for confidence intervals.

    `bootstrap(lambda rows: f1_of(counts[rows]), len(counts))` is the interval over sentences.

    Parameters
    ----------
    gold, predicted : sequence of sequences of str
        The tags of each sentence, see `conlleval`.
    scheme : str or Schemes, optional
        Scheme of both, or of each side, see `conlleval`.

    Returns
    -------
    numpy.ndarray
        (S,3) int64: chunks that are expected, predicted, and predicted correctly. `f1_of` takes any rows of
        it.
    """
    rows = []
    for expected, predicted_chunks, correct in _compared(gold, predicted, scheme):
        rows.append([len(expected), len(predicted_chunks), len(correct)])
    return np.array(rows, np.int64)


def f1_of(counts: np.ndarray) -> float:
    """Compute F1 from the counts of some sentences.

    Parameters
    ----------
    counts : numpy.ndarray
        Rows that `sentence_counts` returned, (n,3).

    Returns
    -------
    float
        In percent.
    """
    return _rates(*counts.sum(axis=0).tolist())["f1"]


def report(metrics: Mapping[str, Any]) -> str:
    """Format what `conlleval` returned as the script conlleval prints it.

    For tags without types the script may print their only line twice; here it is printed once.

    Parameters
    ----------
    metrics : mapping
        Metrics that the function `conlleval` returned.

    Returns
    -------
    str
        A line of counts, one for all chunks, and one for each type.
    """
    template = "processed {words} tokens with {gold} phrases; found: {found} phrases; correct: {correct}."
    lines = [
        template.format(**metrics),
        f"accuracy: {metrics['accuracy']:6.2f}%; {_row(metrics)}",
    ]
    for kind, row in metrics["types"].items():
        lines.append(f"{kind:>17}: {_row(row)}  {row['found']}")
    return "\n".join(lines)


def _row(metrics: Mapping[str, Any]) -> str:
    """Format precision, recall and F1."""
    return "precision: {precision:6.2f}%; recall: {recall:6.2f}%; FB1: {f1:6.2f}".format(**metrics)


def _compared(
    gold: Sentences,
    predicted: Sentences,
    scheme: str | Schemes | None = None,
    warns: bool = False,
) -> Iterator[tuple[set[Chunk], ...]]:
    """Return the chunks of each sentence: expected, predicted, and predicted correctly."""
    if len(gold) != len(predicted):
        advice = "give the same sentences."
        raise InputError(f"There are {len(gold):,} gold and {len(predicted):,} predicted sentences; {advice}")
    for number, (gold_tags, predicted_tags) in enumerate(zip(gold, predicted, strict=True), start=1):
        if len(gold_tags) != len(predicted_tags):
            counts = f"Sentence {number:,} has {len(gold_tags)} gold and {len(predicted_tags)} predicted tags"
            raise InputError(f"{counts}; give one of each for every word.")
    if not any(map(len, gold)):
        raise InputError("There is no word to score; give one sentence at least.")
    if isinstance(scheme, str):
        named = scheme_named(scheme)
        schemes = Schemes(named, named)
    else:
        schemes = scheme or both_schemes(gold, predicted)
        if warns:
            _warn_of_tags(gold, predicted, schemes.gold)

    def compared(gold_tags: Sequence[str], predicted_tags: Sequence[str]) -> tuple[set[Chunk], ...]:
        """Compare the chunks of one sentence."""
        expected = set(read_chunks(gold_tags, schemes.gold))
        predicted_chunks = set(read_chunks(predicted_tags, schemes.predicted))
        return expected, predicted_chunks, expected & predicted_chunks

    return (compared(*tags) for tags in zip(gold, predicted, strict=True))
