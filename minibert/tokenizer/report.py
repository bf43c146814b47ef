"""Measure a vocabulary on text: pieces per word, unknown words, nats per byte.

The text is given as words with counts, so the cost depends on how many different words there are, not on how
long the text is.
"""

import math
from collections.abc import Iterable, Mapping
from itertools import islice, zip_longest
from typing import Any, NamedTuple

import numpy as np

from minibert.base.terminal import aligned, counted, printable
from minibert.core.wordpiece import SPECIAL_TOKENS
from minibert.tokenizer.counting import WordCounts
from minibert.tokenizer.wordpiece import Tokenizer

SHOWN = 10  # how many of the longest and of the rarest pieces are listed
TOGETHER = 1 << 16  # words that are segmented at once


class Segmented(NamedTuple):
    """Counts of words, and of the pieces that a tokenizer splits them into."""

    piece_counts: np.ndarray  # (V,) int64, how often each piece occurs
    n_words: int
    n_whole: int  # words that are one piece, and not [UNK]
    n_unknown: int  # words that are [UNK]
    n_bytes: int  # bytes of the words in UTF-8, without the spaces between them


def segmented(tokenizer: Tokenizer, words: WordCounts) -> Segmented:
    """Split words greedily, and count.

    Parameters
    ----------
    tokenizer : Tokenizer
        The tokenizer that splits them.
    words : WordCounts
        Words that its `basic_tokenizer` made.

    Returns
    -------
    Segmented
        Counts of pieces and words, each word as often as it occurs.
    """
    piece_counts = np.zeros(tokenizer.vocab_size, np.int64)
    n_whole = n_unknown = 0
    begin = 0
    remaining = iter(words)
    while texts := list(islice(remaining, TOGETHER)):
        counts = words.counts[begin : begin + len(texts)]
        begin += len(texts)
        batch = tokenizer.encode_batch(texts, add_special_tokens=False)
        lengths = np.diff(batch.cu_seqlens)
        np.add.at(piece_counts, batch.ids, np.repeat(counts, lengths))
        is_single = lengths == 1
        single_ids = batch.ids[batch.cu_seqlens[:-1][is_single]]
        single_counts = counts[is_single]
        is_known = single_ids != tokenizer.unk_id
        n_whole += int(single_counts[is_known].sum())
        n_unknown += int(single_counts[~is_known].sum())
    lengths_in_bytes = np.diff(words.bounds)
    return Segmented(
        piece_counts,
        n_words=int(words.counts.sum()),
        n_whole=n_whole,
        n_unknown=n_unknown,
        n_bytes=int((lengths_in_bytes * words.counts).sum()),
    )


def nats_per_byte(learned: Segmented, held_out: Segmented) -> float:
    """Return the cost of writing held-out text in pieces that are drawn independently.

    Let c(u) and h(u) be the counts of piece u in the text that was learnt from and in the held-out text,
    both split greedily; V the number of pieces, and B the number of bytes of the held-out words. The cost is

        - (1 / B) * sum over u of h(u) log p(u),      p(u) = (c(u) + 1) / (sum over v of c(v)  +  V)

    One is added to each count because a piece may occur only in the held-out text. Words are normalised and
    the spaces between them left out, equally for every vocabulary over the same words. A word that is [UNK]
    costs one piece whatever it says, so compare vocabularies that have the same alphabet.

    Parameters
    ----------
    learned : Segmented
        The text that was learnt from.
    held_out : Segmented
        The held-out text, with at least one byte, split by the same tokenizer.

    Returns
    -------
    float
        The cost in nats per byte of the held-out words.
    """
    counts = learned.piece_counts + 1.0
    log_p = np.log(counts) - math.log(counts.sum())
    return float(-(held_out.piece_counts * log_p).sum() / held_out.n_bytes)


def vocabulary_report(
    tokenizer: Tokenizer,
    words: WordCounts,
    held_out: WordCounts,
    others: Mapping[str, Tokenizer] | None = None,
    user_tokens: Iterable[str] = (),
) -> dict[str, Any]:
    """Measure a vocabulary; the result can be written as JSON.

    Parameters
    ----------
    tokenizer : Tokenizer
        The vocabulary to report on.
    words : WordCounts
        Words of the text it was learnt from, which determine the probabilities and the rarest pieces.
    held_out : WordCounts
        Words of other text, on which everything else is measured; if it is empty, those values are None.
    others : mapping of str to Tokenizer, or None
        Vocabularies to compare with, by name; only their size and cost are reported.
    user_tokens : iterable of str
        Pieces that the user asked for, by default none. Like special tokens, they are left out of the lists
        of the longest, rarest and never used pieces.

    Returns
    -------
    dict
        - "vocab_size", and "words": {"learned_from", "different", "held_out"}.
        - "held_out": "coverage" (the share of words that are one piece), "unknown_words" (the share that is
          [UNK]), "pieces_per_word" and "nats_per_byte"; None when there is no held-out word.
        - "others": name -> {"vocab_size", "nats_per_byte"}.
        - "longest", "rarest": lists of {"piece", "count"}, ten each of the pieces of several characters that
          occur in `words`. Ties keep the order of the vocabulary.
        - "never_used": {"count", "pieces"}, how many pieces greedy matching never uses in `words`, and ten of
          them. Most were intermediate steps towards longer pieces.
    """
    learned = segmented(tokenizer, words)
    measured = segmented(tokenizer, held_out) if len(held_out) else None

    def compared(other: Tokenizer) -> dict[str, Any]:
        cost = None
        if measured is not None:
            cost = nats_per_byte(segmented(other, words), segmented(other, held_out))
        return {"vocab_size": other.vocab_size, "nats_per_byte": cost}

    given = {*SPECIAL_TOKENS, *tokenizer.additional_special_tokens, *user_tokens}
    counts = learned.piece_counts
    used: list[int] = []
    unused: list[str] = []
    for piece_id, piece in enumerate(tokenizer.vocab):
        if piece in given or not _is_merged(piece):
            continue
        if counts[piece_id]:
            used.append(piece_id)
        else:
            unused.append(piece)
    longest = sorted(used, key=lambda piece_id: -len(tokenizer.vocab[piece_id].removeprefix("##")))
    rarest = sorted(used, key=counts.__getitem__)

    def shown(piece_ids: list[int]) -> list[dict[str, Any]]:
        return [{"piece": tokenizer.vocab[i], "count": int(counts[i])} for i in piece_ids[:SHOWN]]

    return {
        "vocab_size": tokenizer.vocab_size,
        "words": {
            "learned_from": learned.n_words,
            "different": len(words),
            "held_out": 0 if measured is None else measured.n_words,
        },
        "held_out": None if measured is None else _held_out_metrics(learned, measured),
        "others": {name: compared(other) for name, other in (others or {}).items()},
        "longest": shown(longest),
        "rarest": shown(rarest),
        "never_used": {"count": len(unused), "pieces": unused[:SHOWN]},
    }


def _held_out_metrics(learned: Segmented, held_out: Segmented) -> dict[str, float]:
    """Return the metrics on text that was held out."""
    return {
        "coverage": held_out.n_whole / held_out.n_words,
        "pieces_per_word": int(held_out.piece_counts.sum()) / held_out.n_words,
        "unknown_words": held_out.n_unknown / held_out.n_words,
        "nats_per_byte": nats_per_byte(learned, held_out),
    }


def _is_merged(piece: str) -> bool:
    """Return whether a piece was merged, and is neither in the alphabet nor reserved."""
    is_reserved = piece.startswith("[unused") and piece.endswith("]")
    return len(piece.removeprefix("##")) > 1 and not is_reserved


def report_text(report: Mapping[str, Any]) -> str:
    """Write a report for people to read.

    Parameters
    ----------
    report : mapping
        The result of `vocabulary_report`.

    Returns
    -------
    str
        Several lines, without a line end after the last.
    """
    words = report["words"]
    held_out = report["held_out"]
    lines = [f"From {counted(words['learned_from'], 'word')}, {words['different']:,} different ones."]
    if held_out is None:
        lines.append("No line was held out to measure on.")
    else:
        rows = [
            ("coverage: words that are one piece", f"{held_out['coverage']:.2%}"),
            ("pieces per word", f"{held_out['pieces_per_word']:.4f}"),
            ("words that are [UNK]", f"{held_out['unknown_words']:.4%}"),
            ("nats per byte", f"{held_out['nats_per_byte']:.4f}"),
        ]
        for name, other in report["others"].items():
            cost = f"{other['nats_per_byte']:.4f} ({counted(other['vocab_size'], 'piece')})"
            rows.append((f"  of a vocabulary by {name}", cost))
        lines.append(f"On {counted(words['held_out'], 'word')} of lines that were held out:")
        lines += [f"  {name:<38}{value}" for name, value in rows]
    longest = ["the longest pieces", *map(_piece_text, report["longest"])]
    rarest = ["the rarest", *map(_piece_text, report["rarest"])]
    lines += aligned(zip_longest(longest, rarest, fillvalue=""))
    never_used = report["never_used"]
    lines.append(_never_used_text(never_used["count"], never_used["pieces"]))
    return "\n".join(lines)


def _piece_text(piece: Mapping[str, Any]) -> str:
    """Write a piece and how often it occurs."""
    return f"{printable(piece['piece'])} {piece['count']:,}"


def _never_used_text(count: int, pieces: list[str]) -> str:
    """Write how many pieces are never used, and some of them."""
    if not count:
        return "Every piece is used."
    verb = "is" if count == 1 else "are"
    such_as = ", such as" if count > len(pieces) else ""
    names = " ".join(map(printable, pieces))
    return f"{counted(count, 'piece')} {verb} never used{such_as}: {names}"


# counts (V,)
def piece_facts(counts: np.ndarray, tokenizer: Tokenizer) -> dict[str, float]:
    """Return how well a vocabulary suits a text, for the report of a run.

    Parameters
    ----------
    counts : (V,) int64
        How often each piece occurs.
    tokenizer : Tokenizer
        The tokenizer that cut the text.

    Returns
    -------
    dict
        "unknown", the share of [UNK]; "pieces_a_word"; and "vocabulary", the number of pieces.
    """
    text = np.array(counts)
    text[[index for index in tokenizer.special_ids if index != tokenizer.unk_id]] = 0
    total = max(1, int(text.sum()))
    words = max(1, int(text[~tokenizer.continuation].sum()))
    return {
        "unknown": int(text[tokenizer.unk_id]) / total,
        "pieces_a_word": total / words,
        "vocabulary": len(text),
    }
