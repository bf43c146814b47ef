"""More pieces for a vocabulary that a model was trained with: words that are given, or learned from text.

New pieces stand behind the old ones, whose ids stay. A word is cut otherwise than before only if one of its
pieces then is new: at each place the longest piece is taken, and where that is an old one, it was the longest
before, too. A new whole word is taken wherever a word begins with it, as "cat" in "catalogue": `vocab.txt`
has no mark for pieces that end a word. `changed_words` tells which words of a text that concerns.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from minibert.base.errors import InputError
from minibert.base.terminal import some_of
from minibert.core.wordpiece import SPECIAL_TOKENS
from minibert.tokenizer import native
from minibert.tokenizer.counting import WordCounts
from minibert.tokenizer.encoding import whole_number
from minibert.tokenizer.merging import Merger
from minibert.tokenizer.wordpiece import Tokenizer

MOST_WRONG = 20  # words that an error names


class NewPiece(NamedTuple):
    """A piece for the end of a vocabulary."""

    piece: str
    replaces: list[int]  # ids of the old pieces whose place it takes


class NewWords(NamedTuple):
    """What a list of words brings to a vocabulary."""

    pieces: list[NewPiece]
    known: list[str]  # words that are pieces already, as they are written in the list
    repeated: int  # words that stood further up already


def checked_words(tokenizer: Tokenizer, words: Iterable[tuple[str, str]]) -> NewWords:
    """Return words as new pieces, each as the tokenizer reads it in a text: lower-cased, without accents.

    Words that are pieces already, and those that come again, are left out and counted.

    Parameters
    ----------
    tokenizer : whose vocabulary gets them.
    words : where each stands, such as "words.txt, line 3", and the word.

    Raises
    ------
    InputError
        When words are too long, or would never be found in a text, as they have a space, or the tokenizer
        splits them: all are named at once. When there is no word, or none that is new.
    """
    found: dict[str, NewPiece] = {}
    known: list[str] = []
    wrong: list[str] = []
    repeated = 0
    most = tokenizer.max_input_chars_per_word
    for where, word in words:
        parts = tokenizer.basic_tokenizer.tokenize(word)
        piece = parts[0] if len(parts) == 1 else word
        if word in tokenizer.ids or piece in tokenizer.ids:
            known.append(word)
        elif piece in found:
            repeated += 1
        elif len(parts) != 1:
            becomes = f"becomes {', '.join(map(repr, parts))}" if parts else "vanishes"
            wrong.append(f"{where}: {word!r} is no word as the tokenizer reads text, where it {becomes}")
        elif len(piece) > most:
            wrong.append(f"{where}: a word of over {most} characters is [UNK]")
        else:
            found[piece] = NewPiece(piece, tokenizer.encode(piece, add_special_tokens=False))
    if wrong:
        advice = "give one word a line, without spaces and punctuation; --special-token takes any string"
        more = f"; and {len(wrong) - MOST_WRONG:,} more" if len(wrong) > MOST_WRONG else ""
        raise InputError(f"{'; '.join(wrong[:MOST_WRONG])}{more}; {advice}.")
    if known and not found:
        there = some_of([repr(word) for word in known])
        raise InputError(f"The vocabulary has {there} already, and no other word is given; give new ones.")
    if not found:
        raise InputError("There is no word to add; give a file with one word a line.")
    return NewWords(list(found.values()), known, repeated)


def checked_special_tokens(tokenizer: Tokenizer, tokens: Iterable[str]) -> list[NewPiece]:
    """Return special tokens as new pieces, but for those that are pieces already.

    Parameters
    ----------
    tokenizer : whose vocabulary gets them.
    tokens : any strings, such as "[DRUG]" or "«Ort»", that are one piece wherever they stand in a text.

    Raises
    ------
    InputError
        When one is not a string, is empty, or begins or ends with white space or holds a line end.
    """
    found: dict[str, NewPiece] = {}
    for token in tokens:
        if not isinstance(token, str) or not token or token != token.strip() or "\n" in token:
            what = f"{token!r} can't be a special token"
            raise InputError(f"{what}; give a string without white space around it, such as '[DRUG]'.")
        if token not in tokenizer.ids:
            pieces = tokenizer.encode(token, add_special_tokens=False) or [tokenizer.unk_id]
            found[token] = NewPiece(token, pieces)
    return list(found.values())


def learn_pieces(tokenizer: Tokenizer, words: WordCounts, n: int, *, core: str = "auto") -> list[NewPiece]:
    """Learn pieces from words and their counts: `learn_vocab`, gone on with from a vocabulary that there is.

    Words begin as the pieces that the tokenizer cuts them into, not as characters; then the two neighbours
    are joined whose merge raises the likelihood of the text most, again and again. Words that are [UNK] are
    left out. There are fewer than `n` where no more neighbours occur twice. Raise InputError
    when `n` is no positive whole number, or not one piece can be learned.
    """
    whole_number("n", n, 1)
    batch = tokenizer.encode_batch(list(words), add_special_tokens=False)
    lengths = np.diff(batch.cu_seqlens)
    firsts = np.append(batch.ids, tokenizer.unk_id)[batch.cu_seqlens[:-1]]
    known = (lengths > 0) & (firsts != tokenizer.unk_id) & (words.counts > 0)
    bounds = np.concatenate([[0], lengths[known].cumsum()])
    symbols = batch.ids[np.repeat(known, lengths)].astype(np.int32)
    text = native.Symbols(symbols, bounds, words.counts[known], tokenizer.vocab_size)
    merger = (native.Merger if native.choose(core) else Merger)(text, 2, "likelihood")
    every = [NewPiece(piece, [number]) for number, piece in enumerate(tokenizer.vocab)]  # symbols
    found: dict[str, NewPiece] = {}
    while len(found) < n:
        lefts, rights = merger.run(n - len(found))
        for left, right in zip(lefts.tolist(), rights.tolist(), strict=True):
            first, second = every[left], every[right]
            joined = first.piece + second.piece.removeprefix("##")
            every.append(NewPiece(joined, first.replaces + second.replaces))
            found.setdefault(joined, every[-1])
        if not len(lefts):
            break
    if not found:
        raise InputError("The text has no two pieces side by side in a word twice; give more text.")
    return list(found.values())


def extended(tokenizer: Tokenizer, pieces: Iterable[NewPiece], special: Iterable[str] = ()) -> Tokenizer:
    """Return a tokenizer with further pieces behind those of another, and its options.

    Parameters
    ----------
    tokenizer : the other one.
    pieces : the new pieces, in order.
    special : which pieces are to be special tokens, new ones or old ones, beside those that are.
    """
    state = tokenizer.__getstate__()
    unmatched = [""] * (tokenizer.vocab_size - len(state["vocab"]))  # added tokens, no pieces of words
    vocab = [*state["vocab"], *unmatched, *(one.piece for one in pieces)]
    names = [*tokenizer.special_tokens, *special][len(SPECIAL_TOKENS) :]
    names = [name for name in dict.fromkeys(names) if name not in SPECIAL_TOKENS]
    return Tokenizer(**state | {"vocab": vocab, "additional_special_tokens": names})


def lone_characters(tokenizer: Tokenizer) -> list[str]:
    """Return characters that go on words inside of pieces, and have no "##" piece of their own.

    Without any, no word becomes [UNK] that was not; with some, what follows a new piece may be left over.
    """
    pieces = (piece for piece in tokenizer.vocab if not piece.startswith("["))
    inside = {c for piece in pieces for c in (piece[2:] if piece.startswith("##") else piece[1:])}
    return sorted(c for c in inside if f"##{c}" not in tokenizer.ids)


def changed_words(before: Tokenizer, after: Tokenizer, words: WordCounts) -> list[dict[str, Any]]:
    """Find words that two tokenizers cut differently: `word`, `times`, `before` and `after`, by `times`."""
    every = (
        {"word": word, "times": n, "before": before.tokenize(word), "after": after.tokenize(word)}
        for word, n in words.items()
    )
    return sorted((one for one in every if one["before"] != one["after"]), key=lambda one: -one["times"])
