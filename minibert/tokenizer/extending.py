"""More pieces for a vocabulary that a model was trained with: words that are given, or learned from text.

New pieces stand behind the old ones, whose ids stay. A word is cut otherwise than before only if one of its
pieces then is new: at each place the longest piece is taken, and where that is an old one, it was the longest
before, too. A new whole word is taken wherever a word begins with it, as "cat" in "catalogue": `vocab.txt`
has no mark for pieces that end a word. `changed_words` tells which words of a text that concerns.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from minibert.errors import InputError
from minibert.terminal import some_of
from minibert.tokenizer import native
from minibert.tokenizer.counting import WordCounts
from minibert.tokenizer.encoding import whole_number
from minibert.tokenizer.merging import Merger
from minibert.tokenizer.wordpiece import Tokenizer


class NewPiece(NamedTuple):
    """A piece for the end of a vocabulary."""

    piece: str
    replaces: list[int]  # ids of the old pieces whose place it takes


def checked_words(tokenizer: Tokenizer, words: Iterable[tuple[str, str]]) -> list[NewPiece]:
    """Return words as new pieces.

    With each word comes where it stands, such as "words.txt, line 3". Raise InputError when words are pieces
    already, in any case where the tokenizer lower-cases text; when a word comes twice, is too long, or would
    never be found in a text, as it has a space, or the tokenizer splits it or writes it otherwise; when there
    is no word.
    """
    found: dict[str, NewPiece] = {}
    first, there = "", []  # of words that are pieces already: where the first stands, and all of them
    for where, word in words:
        parts = tokenizer.basic_tokenizer.tokenize(word)
        if word in tokenizer.ids or (len(parts) == 1 and parts[0] in tokenizer.ids):
            how = "lower-cased" if parts == [word.lower()] else "read as"
            there.append(repr(word) + (f" ({how} {parts[0]!r})" if word not in tokenizer.ids else ""))
            first = first or where
            continue
        if word in found:
            raise InputError(f"{where}: {word!r} comes twice; take one of them out.")
        if parts != [word]:
            becomes = f"becomes {', '.join(map(repr, parts))}" if parts else "vanishes"
            what = f"{word!r} is no word as the tokenizer reads text, where it {becomes}"
            advice = "give one such word a line, without spaces and punctuation"
            if parts == [word.lower()]:
                advice = "write it so, as this tokenizer lower-cases text"
            raise InputError(f"{where}: {what}; {advice}.")
        if len(word) > tokenizer.max_input_chars_per_word:
            most = tokenizer.max_input_chars_per_word
            raise InputError(f"{where}: a word of over {most} characters is [UNK]; leave it out.")
        found[word] = NewPiece(word, tokenizer.encode(word))
    if there:
        known = some_of(list(dict.fromkeys(there)), most=50)
        raise InputError(f"{first}: the vocabulary has {known} already; take that out.")
    if not found:
        raise InputError("There is no word to add; give a file with one word a line.")
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


def extended(tokenizer: Tokenizer, pieces: Iterable[NewPiece]) -> Tokenizer:
    """Return a tokenizer with further pieces behind those of another, and its options."""
    state = tokenizer.__getstate__()
    return Tokenizer(**state | {"vocab": [*tokenizer.vocab, *(one.piece for one in pieces)]})


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
