"""Extend the vocabulary of a trained model: with given words, or pieces learnt from text.

New pieces follow the old ones, which keep their ids. A word is split differently than before only if one of
its pieces is new: at each position the longest piece is taken, and if that is an old one, it was the longest
before, too. A new whole word also matches the beginning of longer words, as "cat" does in "catalogue",
because `vocab.txt` can't mark pieces that end a word. `changed_words` lists the words of a text that are
affected.
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

MOST_WRONG = 3  # the most words that an error names


class NewPiece(NamedTuple):
    """A piece to append to a vocabulary."""

    piece: str
    replaces: list[int]  # ids of the old pieces that it replaces


class NewWords(NamedTuple):
    """The new pieces from a list of words, and the words that were left out."""

    pieces: list[NewPiece]
    known: list[str]  # words that already are pieces, as they are written in the list
    repeated: int  # how many words repeat an earlier one


def checked_words(
    tokenizer: Tokenizer,
    words: Iterable[tuple[str, str]],
    special: Iterable[str] = (),
) -> NewWords:
    """Return words as new pieces, each as the tokenizer reads it in a text: lower-cased, without accents.

    Words that already are pieces, and repeated words, are left out and reported.

    Parameters
    ----------
    tokenizer : Tokenizer
        The tokenizer whose vocabulary is extended.
    words : iterable of tuples of two str
        Where each word comes from, such as "words.txt, line 3", and the word.
    special : iterable of str
        Special tokens that are added as well: a word that is one of them counts as known.

    Returns
    -------
    NewWords
        The new pieces in the order of the words; at least one, unless special tokens are added too.

    Raises
    ------
    InputError
        When words are too long, or would never match because they contain a space or the tokenizer splits
        them: one error names them all. When there is no word, or no new one.
    """
    pieces: dict[str, NewPiece] = {}
    known: list[str] = []
    wrong: list[str] = []
    repeated = 0
    existing = {*tokenizer.ids, *special}
    adds_special = len(existing) > len(tokenizer.ids)
    most = tokenizer.max_input_chars_per_word
    for where, word in words:
        parts = tokenizer.basic_tokenizer.tokenize(word)
        piece = parts[0] if len(parts) == 1 else word
        if word in existing or piece in existing:
            known.append(word)
        elif piece in pieces:
            repeated += 1
        elif len(parts) != 1:
            becomes = "vanishes"
            if parts:
                becomes = f"becomes {', '.join(map(repr, parts))}"
            wrong.append(f"{where}: {word!r} is not a word as the tokenizer reads text, where it {becomes}")
        elif len(piece) > most:
            wrong.append(f"{where}: a word of over {most} characters is [UNK]")
        else:
            pieces[piece] = NewPiece(piece, tokenizer.encode(piece, add_special_tokens=False))
    if wrong:
        faults = "; ".join(wrong[:MOST_WRONG])
        if len(wrong) > MOST_WRONG:
            faults += f"; and {len(wrong) - MOST_WRONG:,} more"
        advice = "give one word per line, without spaces or punctuation; `special_tokens` takes any strings"
        raise InputError(f"{faults}; {advice}.")
    if known and not pieces and not adds_special:
        names = some_of([repr(word) for word in known])
        raise InputError(f"The vocabulary has {names} already, and no other word is given; give new ones.")
    if not known and not pieces:
        raise InputError("There is no word to add; give a file with one word per line.")
    return NewWords(list(pieces.values()), known, repeated)


def checked_special_tokens(tokenizer: Tokenizer, tokens: Iterable[str]) -> list[NewPiece]:
    """Return special tokens as new pieces, except those that already are pieces.

    Parameters
    ----------
    tokenizer : Tokenizer
        The tokenizer whose vocabulary is extended.
    tokens : iterable of str
        Any strings, such as "[DRUG]" or "«Ort»", that are to be one piece wherever they occur in a text.

    Returns
    -------
    list of NewPiece
        The new pieces, each once, in order.

    Raises
    ------
    InputError
        When a token is not a string, is empty, begins or ends with white space, or contains a line end.
    """
    pieces: dict[str, NewPiece] = {}
    for token in tokens:
        if not isinstance(token, str) or not token or token != token.strip() or "\n" in token:
            what = f"{token!r} can't be a special token"
            raise InputError(f"{what}; give a string without white space around it, such as '[DRUG]'.")
        if token not in tokenizer.ids:
            ids = tokenizer.encode(token, add_special_tokens=False) or [tokenizer.unk_id]
            pieces[token] = NewPiece(token, ids)
    return list(pieces.values())


def learn_pieces(
    tokenizer: Tokenizer,
    words: WordCounts,
    n: int,
    *,
    special: Iterable[str] = (),
    core: str = "auto",
) -> list[NewPiece]:
    """Learn pieces from words and their counts, as `learn_vocab` does, starting from an existing vocabulary.

    Words start as the pieces that the tokenizer splits them into, not as characters. Then the pair of
    neighbours whose merge raises the likelihood of the text most is joined, again and again. Words that are
    [UNK] are left out.

    Parameters
    ----------
    tokenizer : Tokenizer
        The tokenizer whose vocabulary is extended.
    words : WordCounts
        Words of its `basic_tokenizer`, with how often each occurs.
    n : int
        How many pieces are wanted.
    special : iterable of str
        Special tokens that are added as well, and are not learnt a second time.
    core : {"auto", "c", "python"}, default "auto"
        Which core makes the merges; both give the same pieces.

    Returns
    -------
    list of NewPiece
        The new pieces in the order of the merges; fewer than `n` if no more neighbours occur twice.

    Raises
    ------
    InputError
        When `n` is not a positive whole number, or no piece can be learnt.
    """
    whole_number("n", n, 1)
    batch = tokenizer.encode_batch(list(words), add_special_tokens=False)
    lengths = np.diff(batch.cu_seqlens)
    # An empty last word would begin after the last id, so one more id is appended for it.
    first_ids = np.append(batch.ids, tokenizer.unk_id)[batch.cu_seqlens[:-1]]
    known = (lengths > 0) & (first_ids != tokenizer.unk_id) & (words.counts > 0)
    text = native.Symbols(
        symbols=batch.ids[np.repeat(known, lengths)].astype(np.int32),
        bounds=np.concatenate([[0], lengths[known].cumsum()]),
        counts=words.counts[known],
        n_symbols=tokenizer.vocab_size,
    )
    make_merger = native.Merger if native.choose(core) else Merger
    merger = make_merger(text, 2, "likelihood")
    symbols = [NewPiece(piece, [piece_id]) for piece_id, piece in enumerate(tokenizer.vocab)]
    learned: dict[str, NewPiece] = {}
    taken = {*special}
    while len(learned) < n:
        lefts, rights = merger.run(n - len(learned))
        for left, right in zip(lefts.tolist(), rights.tolist(), strict=True):
            first = symbols[left]
            second = symbols[right]
            piece = first.piece + second.piece.removeprefix("##")
            joined = NewPiece(piece, first.replaces + second.replaces)
            symbols.append(joined)
            if piece not in taken:
                learned.setdefault(piece, joined)
        if not len(lefts):
            break
    if not learned:
        raise InputError("The text has no two pieces side by side in a word twice; give more text.")
    return list(learned.values())


def extended(tokenizer: Tokenizer, pieces: Iterable[NewPiece], special: Iterable[str] = ()) -> Tokenizer:
    """Return a tokenizer with the options and pieces of another, followed by new pieces.

    Parameters
    ----------
    tokenizer : Tokenizer
        The tokenizer to extend; it is not changed.
    pieces : iterable of NewPiece
        The new pieces, in order.
    special : iterable of str
        Pieces, new or old, that become special tokens in addition to the present ones; by default none.

    Returns
    -------
    Tokenizer
        The extended tokenizer, in which old pieces keep their ids.
    """
    state = tokenizer.__getstate__()
    vocab = list(state["vocab"])
    vocab += [""] * (tokenizer.vocab_size - len(vocab))  # the ids of added tokens, which are not pieces
    vocab += [new.piece for new in pieces]
    names = dict.fromkeys([*tokenizer.special_tokens, *special])  # each once, in order
    additional = [name for name in names if name not in SPECIAL_TOKENS]
    state["vocab"] = vocab
    state["additional_special_tokens"] = additional
    return Tokenizer(**state)


def lone_characters(tokenizer: Tokenizer) -> list[str]:
    """Return characters that occur inside pieces, past the beginning of a word, but have no "##" piece.

    If there are none, a new piece can't turn a word into [UNK]. If there are some, it can: what follows the
    new piece in the word may have no pieces.

    Parameters
    ----------
    tokenizer : Tokenizer
        The tokenizer whose vocabulary is examined. Special and added tokens, which are not parts of words,
        are skipped, and so are other pieces that begin with "[".

    Returns
    -------
    list of str
        The characters, sorted.
    """
    inside: set[str] = set()
    whole = {*tokenizer.special_tokens, *(token.content for token in tokenizer.added_tokens.values())}
    for piece in tokenizer.vocab:
        if piece in whole:
            continue
        if piece.startswith("##"):
            inside.update(piece[2:])
        elif not piece.startswith("["):
            inside.update(piece[1:])
    return sorted(character for character in inside if f"##{character}" not in tokenizer.ids)


def changed_words(before: Tokenizer, after: Tokenizer, words: WordCounts) -> list[dict[str, Any]]:
    """Find words that two tokenizers split differently.

    Parameters
    ----------
    before, after : Tokenizer
        The two tokenizers.
    words : WordCounts
        The words of a text.

    Returns
    -------
    list of dict
        For each such word "word", "times" (how often it occurs), "before" and "after" (lists of pieces); the
        most frequent words first.
    """
    changed = []
    for word, times in words.items():
        old_pieces = before.tokenize(word)
        new_pieces = after.tokenize(word)
        if old_pieces != new_pieces:
            changed.append({"word": word, "times": times, "before": old_pieces, "after": new_pieces})
    return sorted(changed, key=lambda change: -change["times"])
