"""What a vocabulary does to text: how many pieces a word takes, what is unknown, how many nats a byte costs.

Text is words with counts, so a report costs as much as the different words, however long the text is.
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

SHOWN = 10  # longest and rarest pieces
TOGETHER = 1 << 16  # words that are segmented at once


class Segmented(NamedTuple):
    """Words as a tokenizer cuts them."""

    piece_counts: np.ndarray  # (V,) int64, how often each piece occurs
    n_words: int
    n_whole: int  # of those, words that are one piece and not [UNK]
    n_unknown: int  # words that are [UNK]
    n_bytes: int  # of the words in UTF-8, the spaces between them not counted


def segmented(tokenizer: Tokenizer, words: WordCounts) -> Segmented:
    """Cut words of the tokenizer's `basic_tokenizer` greedily, and count."""
    piece_counts = np.zeros(tokenizer.vocab_size, np.int64)
    whole = unknown = begin = 0
    every = iter(words)
    while texts := list(islice(every, TOGETHER)):
        counts = words.counts[begin : begin + len(texts)]
        begin += len(texts)
        batch = tokenizer.encode_batch(texts, add_special_tokens=False)
        lengths = np.diff(batch.cu_seqlens)
        np.add.at(piece_counts, batch.ids, np.repeat(counts, lengths))
        single = lengths == 1
        known = batch.ids[batch.cu_seqlens[:-1][single]] != tokenizer.unk_id
        whole += int(counts[single][known].sum())
        unknown += int(counts[single][~known].sum())
    n_bytes = int((np.diff(words.bounds) * words.counts).sum())
    return Segmented(piece_counts, int(words.counts.sum()), whole, unknown, n_bytes)


def nats_per_byte(learned: Segmented, held_out: Segmented) -> float:
    """Return the cost of writing held-out text in pieces that are drawn independently.

    With c(u) and h(u) the counts of piece u in the text that was learned from and in the held-out text, both
    cut greedily, V pieces, and B bytes of held-out words,

        p(u) = (c(u) + 1) / (sum over v of c(v)  +  V),      - (1 / B) * sum over u of h(u) log p(u)

    One is added to each count because a piece may occur in the held-out text alone. Words are normalised and
    their spaces left out, which is the same for every vocabulary over the same words. A word that is [UNK]
    costs one piece whatever it says, so compare vocabularies that have the same alphabet.
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
    """Measure a vocabulary, ready for JSON.

    Parameters
    ----------
    tokenizer : the vocabulary to report on.
    words : of the text it was learned from; they give the probabilities and what is rare.
    held_out : words of other text; everything else is measured on it, and is None if it is empty.
    others : vocabularies to compare with, by name; only their size and cost are reported.
    user_tokens : pieces that were asked for; like special ones they are neither long, rare nor never used.

    Returns
    -------
    report :
        - "vocab_size", and "words": {"learned_from", "different", "held_out"}.
        - "held_out": "coverage" (the share of words that are one piece), "unknown_words" (the share that is
          [UNK]), "pieces_per_word" and "nats_per_byte"; None when there is no held-out word.
        - "others": name -> {"vocab_size", "nats_per_byte"}.
        - "longest", "rarest": ten each of the pieces of several characters that occur in `words`, {"piece",
          "count"}. Equal ones come in the order of the vocabulary.
        - "never_used": {"count", "pieces"}, those that greedy matching never uses in `words`, and ten of
          them. Most were steps on the way to longer pieces.
    """
    learned = segmented(tokenizer, words)
    measured = segmented(tokenizer, held_out) if len(held_out) else None

    def compared(other: Tokenizer) -> dict[str, Any]:
        cost = measured and nats_per_byte(segmented(other, words), segmented(other, held_out))
        return {"vocab_size": other.vocab_size, "nats_per_byte": cost}

    given = {*SPECIAL_TOKENS, *tokenizer.additional_special_tokens, *user_tokens}
    pieces = [i for i, piece in enumerate(tokenizer.vocab) if _is_merged(piece) and piece not in given]
    counts = learned.piece_counts
    used = [number for number in pieces if counts[number]]
    unused = [tokenizer.vocab[number] for number in pieces if not counts[number]]
    longest = sorted(used, key=lambda number: -len(tokenizer.vocab[number].removeprefix("##")))
    rarest = sorted(used, key=counts.__getitem__)

    def shown(numbers: list[int]) -> list[dict[str, Any]]:
        return [{"piece": tokenizer.vocab[i], "count": int(counts[i])} for i in numbers[:SHOWN]]

    n_measured = measured.n_words if measured else 0
    return {
        "vocab_size": tokenizer.vocab_size,
        "words": {"learned_from": learned.n_words, "different": len(words), "held_out": n_measured},
        "held_out": measured
        and {
            "coverage": measured.n_whole / measured.n_words,
            "pieces_per_word": int(measured.piece_counts.sum()) / measured.n_words,
            "unknown_words": measured.n_unknown / measured.n_words,
            "nats_per_byte": nats_per_byte(learned, measured),
        },
        "others": {name: compared(other) for name, other in (others or {}).items()},
        "longest": shown(longest),
        "rarest": shown(rarest),
        "never_used": {"count": len(unused), "pieces": unused[:SHOWN]},
    }


def _is_merged(piece: str) -> bool:
    """Tell whether a piece was put together: neither of the alphabet nor reserved."""
    return len(piece.removeprefix("##")) > 1 and not (piece.startswith("[unused") and piece.endswith("]"))


def report_text(report: Mapping[str, Any]) -> str:
    """Write a report for people."""
    words, held_out = report["words"], report["held_out"]
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
    columns = [
        [title, *(f"{printable(one['piece'])} {one['count']:,}" for one in report[name])]
        for title, name in (("the longest pieces", "longest"), ("the rarest", "rarest"))
    ]
    lines += aligned(zip_longest(*columns, fillvalue=""))
    count, pieces = (report["never_used"][name] for name in ("count", "pieces"))
    what = f"{counted(count, 'piece')} {'is' if count == 1 else 'are'}"
    some = f"{', such as' * (count > len(pieces))}: {' '.join(map(printable, pieces))}"
    lines.append(f"{what} never used{some}" if count else "Every piece is used.")
    return "\n".join(lines)
