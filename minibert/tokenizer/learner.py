"""Learning a WordPiece vocabulary: begin with characters, then merge neighbours until the vocabulary is full.

`core/wordpiece.py` shows the idea in plain Python. Here words become symbols, and merges become a vocabulary.
`Merger` in merging.py makes the merges, or its twin in C behind native.py.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from minibert.base.errors import InputError, warn
from minibert.base.terminal import counted
from minibert.core.arrays import Array
from minibert.core.wordpiece import SPECIAL_TOKENS
from minibert.tokenizer import native, unicode
from minibert.tokenizer.counting import WordCounts
from minibert.tokenizer.encoding import whole_number
from minibert.tokenizer.merging import Merger
from minibert.tokenizer.native import OBJECTIVES
from minibert.tokenizer.normalize import MAX_CHARS

MOST_UNUSED = 1_000_000
WORTH_TELLING = 0.01  # share of the words left out for their characters from which on a warning says so

PROGRESS_PIECES = 64  # pieces from one call of `progress` to the next
_TOGETHER = 1 << 16  # words, or characters, that are processed together
_N_FORMS = 2 * 0x110000  # each character has two forms: at the beginning of a word, and inside a word
_ALONE = unicode.PUNCTUATION | unicode.IDEOGRAPH  # characters that are always a word by themselves
_MAX_COUNT = 2**63 - 1
_MAX_TOTAL = 2.0**60  # characters in the text; the sum of two such numbers fits in 64 bits


def learn_vocab(
    word_counts: Mapping[str, int],
    vocab_size: int,
    *,
    objective: str = "likelihood",
    alphabet_limit: int = 1000,
    min_frequency: int = 2,
    unused: int = 0,
    user_tokens: Iterable[str] = (),
    progress: Callable[[int, int], None] | None = None,
    core: str = "auto",
) -> list[str]:
    """Learn a vocabulary of word pieces from words and their counts.

    Every word starts as its characters, all except the first marked with "##". Then the best pair of
    neighbouring pieces is joined everywhere, again and again. A letter that occurs in the text in only one of
    its two forms enters the vocabulary in both, so that any word of known letters can be written.

    With `objective="frequency"` (byte-pair encoding: Sennrich et al. 2016) the best pair is the one that
    occurs most often. With `objective="likelihood"` (WordPiece: Schuster and Nakajima 2012, Wu et al. 2016)
    it is the one whose merge raises the log-likelihood of the segmented text most, under a unigram model with
    p(u) = c(u) / N, where c(u) counts piece u and N counts all pieces:

        L = sum over u of c(u) log c(u)  -  N log N

    Joining the n occurrences of a, b makes c(a), c(b) and N smaller by n, and n pieces ab. With
    f(x) = x log x and f(0) = 0,

        dL = f(n) - [f(c(a)) - f(c(a) - n)] - [f(c(b)) - f(c(b) - n)] + [f(N) - f(N - n)]

    If b = a, both are taken from one count: f(c(a)) - f(c(a) - 2n) replaces the first two brackets. Because
    of the last bracket, every merge changes every gain. Before its merge ab does not occur: a string that is
    one piece was put together from the same parts everywhere, by the same merges. Neighbours are counted
    without overlap, from the left: `aaa` contains `aa` once.

    Among equal gains (rounded to 2**-16 nats), the pair wins whose left part comes first among alphabet and
    merges, then the one whose right part does. Logarithms use only + - * /. So the vocabulary depends only on
    the counts, never on the order of the words, the hash seed, the core or the processor. Merging goes on
    until the vocabulary is full, even at a loss.

    Parameters
    ----------
    word_counts : mapping of str to int
        How often each word occurs, as `count_words` and `count_files` return it. Words of more than 200
        characters, or with lone surrogates, are left out.
    vocab_size : int
        The number of pieces wanted, including special tokens.
    objective : {"likelihood", "frequency"}, default "likelihood"
        Which pair is the best.
    alphabet_limit : int, default 1000
        How many different characters to keep: the most frequent, in either form. Words with other characters
        are left out, as they will be [UNK] anyway; a warning says so if that is one word in a hundred or
        more.
    min_frequency : int, default 2
        A pair that occurs less often is never merged.
    unused : int, default 0
        The number of reserved pieces "[unused0]", "[unused1]", ... after the special tokens.
    user_tokens : iterable of str
        Custom pieces, after the unused ones; by default none. They do not change the merges; if a merge makes
        such a string, it does not enter the vocabulary a second time.
    progress : callable or None
        Called every 64 pieces with the number of pieces so far and `vocab_size`.
    core : {"auto", "c", "python"}, default "auto"
        Which core makes the merges; "auto" is C where its extension is built. Both give the same vocabulary.

    Returns
    -------
    list of str
        [PAD] [UNK] [CLS] [SEP] [MASK], the unused pieces, the user's, the sorted alphabet, and the merges in
        order: `vocab_size` pieces, or fewer if the text has no more pairs that occur `min_frequency` times.
        If the alphabet does not fit in, forms that do not occur in the text are left out, those of the rarest
        letters first.

    Raises
    ------
    InputError
        When there is no word, a word is not a string, an argument is out of range, not even the alphabet fits
        in, or the counts add up to more than 2**60 characters.

    References
    ----------
    M. Schuster and K. Nakajima, "Japanese and Korean voice search", ICASSP 2012.
    Y. Wu et al., "Google's neural machine translation system", 2016, arXiv:1609.08144.
    R. Sennrich et al., "Neural machine translation of rare words with subword units", ACL 2016.

    Examples
    --------
    >>> learn_vocab({"low": 5, "lower": 2}, 17, objective="frequency")[5:]
    ['##e', '##l', '##o', '##r', '##w', 'e', 'l', 'o', 'r', 'w', '##ow', 'low']
    """
    if objective not in OBJECTIVES:
        raise InputError(f"{objective=} is unknown; choose {' or '.join(OBJECTIVES)}.", objective=objective)
    whole_number("vocab_size", vocab_size, 1)
    whole_number("min_frequency", min_frequency, 1)
    whole_number("alphabet_limit", alphabet_limit, 1)
    min_frequency = min(int(min_frequency), _MAX_COUNT)  # no pair occurs more often
    vocab = first_pieces(unused, user_tokens)
    make_merger = native.Merger if native.choose(core) else Merger

    pieces, unseen, text = _segment(WordCounts.of(word_counts), alphabet_limit)
    taken = set(vocab)
    seen = [piece for piece in pieces if piece not in taken]
    unseen = [piece for piece in unseen if piece not in taken]
    room = vocab_size - len(vocab) - len(seen)
    if room < 0:
        needed = "special tokens"
        fewer = "keep fewer characters with minibert vocab --alphabet-limit"
        if unused > len(seen):
            needed = f"special tokens, {counted(unused, 'unused piece')}"
            fewer = f"for less than {unused=}"
        raise InputError(
            f"{vocab_size=} is too small: {needed} and alphabet alone take {vocab_size - room:,}"
            f"; give {vocab_size - room:,} or more, or {fewer}.",
            vocab_size=vocab_size,
            unused=unused,
        )
    vocab += sorted(seen + unseen[:room])
    taken.update(vocab)
    merger = make_merger(text, min_frequency, objective)
    del text  # frees its memory
    while len(vocab) < vocab_size:
        until_progress = PROGRESS_PIECES - len(vocab) % PROGRESS_PIECES
        wanted = min(until_progress, vocab_size - len(vocab))
        lefts, rights = merger.run(wanted)
        for left, right in zip(lefts.tolist(), rights.tolist(), strict=True):
            piece = pieces[left] + pieces[right].removeprefix("##")
            pieces.append(piece)
            if piece not in taken:
                taken.add(piece)
                vocab.append(piece)
        is_due = len(vocab) % PROGRESS_PIECES == 0 or len(vocab) == vocab_size
        if progress is not None and is_due:
            progress(len(vocab), vocab_size)
        if len(lefts) < wanted:
            break
    return vocab


def first_pieces(unused: int, user_tokens: Iterable[str]) -> list[str]:
    """Return the first pieces of every vocabulary: special tokens, unused pieces, the user's tokens.

    Parameters
    ----------
    unused : int
        The number of reserved pieces "[unused0]", "[unused1]", ...
    user_tokens : iterable of str, or str
        Custom pieces; a string is one piece.

    Returns
    -------
    list of str
        The pieces, each once.

    Raises
    ------
    InputError
        When `unused` is out of range, or a custom piece is empty, contains white space, or comes twice.
    """
    whole_number("unused", unused, 0)
    if unused > MOST_UNUSED:
        raise InputError(f"{unused=} is more than {MOST_UNUSED:,}; give fewer (BERT: 994).", unused=unused)
    pieces = [*SPECIAL_TOKENS, *(f"[unused{i}]" for i in range(unused))]
    seen = set(pieces)
    for token in [user_tokens] if isinstance(user_tokens, str) else user_tokens:
        if not isinstance(token, str) or not token or token.split() != [token]:
            message = f"user_token={token!r} is not a token; give a string without white space, not empty."
            raise InputError(message, user_token=token)
        if token in seen:
            message = f"user_token={token!r} is in the vocabulary already, or given twice; leave it out."
            raise InputError(message, user_token=token)
        seen.add(token)
        pieces.append(token)
    return pieces


def _segment(words: WordCounts, alphabet_limit: int) -> tuple[list[str], list[str], native.Symbols]:
    """Turn words that the tokenizer will be able to match into symbols, which are indices in the alphabet.

    Return the sorted alphabet; the forms of its letters that do not occur in the words, the most frequent
    letters first; and the words. Punctuation and ideographs, which are always words by themselves, have no
    "##" form.
    """
    kept = _alphabet(words, alphabet_limit)
    blocks, n_words = _usable_words(words, kept)
    n_kept_words = sum(int(block.counts.sum()) for block in blocks)
    is_full = len(kept) == alphabet_limit
    if n_kept_words == 0 and n_words and is_full:
        why = "every word has a character beyond the most frequent ones that it keeps"
        message = f"{alphabet_limit=} leaves no word to learn from, as {why}; raise it."
        raise InputError(message, alphabet_limit=alphabet_limit)
    if n_kept_words == 0:
        raise InputError("there is no word to learn a vocabulary from; give text with words in it.")
    if is_full and n_words - n_kept_words >= WORTH_TELLING * n_words:
        warn(
            f"{1 - n_kept_words / n_words:.1%} of the words become [UNK], as alphabet_limit={alphabet_limit} "
            "leaves out some of their characters; a higher one keeps them.",
            alphabet_limit=alphabet_limit,
        )
    occurs = np.zeros(_N_FORMS, bool)
    for block in blocks:
        occurs[block.forms] = True
    unseen = [_piece(form) for form in _unseen_forms(kept, occurs)]
    alphabet = sorted(np.flatnonzero(occurs).tolist(), key=_piece)
    symbol_of_form = np.zeros(_N_FORMS, np.int32)
    symbol_of_form[alphabet] = np.arange(len(alphabet))
    lengths = [block.lengths for block in blocks]
    counts = np.concatenate([block.counts for block in blocks])
    parts = [block.forms for block in blocks]
    del block, blocks  # frees their memory
    for i, part in enumerate(parts):
        parts[i] = symbol_of_form[part]  # one part at a time, so that not all are in memory twice
    symbols = np.concatenate(parts)
    bounds = np.concatenate([[0], *lengths]).cumsum()
    text = native.Symbols(symbols, bounds, counts, len(alphabet))
    return [_piece(form) for form in alphabet], unseen, text


class _Block(NamedTuple):
    """Some words, as forms of letters.

    A character with code point c is one piece at the beginning of a word, form 2c, and another one inside a
    word, form 2c + 1.
    """

    forms: Array  # (n,) int32, the forms of all words end to end
    lengths: Array  # (W,) int64, how many forms each word has
    counts: Array  # (W,) int64, how often each word occurs


def _usable_words(words: WordCounts, kept: Array) -> tuple[list[_Block], int]:
    """Return the words whose characters are all kept, and the number of all words.

    Words with a count of 0, empty words, and words longer than any tokenizer reads are neither returned nor
    counted.
    """
    is_kept = np.zeros(0x110000, bool)
    is_kept[kept] = True
    longest = max(MAX_CHARS.values())
    blocks = []
    n_words = 0
    for counts, codes, lengths in _blocks(words):
        usable = (counts > 0) & (lengths > 0) & (lengths <= longest)
        n_words += int(counts[usable].sum())
        ends = np.cumsum(lengths)
        n_kept_before = np.concatenate([[0], np.cumsum(is_kept[codes])])
        n_kept = np.diff(n_kept_before[ends], prepend=0)  # of each word
        usable &= n_kept == lengths
        usable_lengths = lengths[usable]
        usable_codes = codes[np.repeat(usable, lengths)].astype(np.int32)
        forms = 2 * usable_codes + 1
        begins = np.cumsum(usable_lengths) - usable_lengths
        forms[begins] -= 1
        blocks.append(_Block(forms, usable_lengths, counts[usable]))
    return blocks, n_words


def _unseen_forms(kept: Array, occurs: Array) -> Iterator[int]:
    """Yield forms that do not occur, of characters whose other form does, in the order of `kept`."""
    for code in kept.tolist():
        at_beginning = 2 * code
        inside = 2 * code + 1
        if occurs[inside] and not occurs[at_beginning]:
            yield at_beginning
        is_alone = bool(unicode.flags(code) & _ALONE)
        if occurs[at_beginning] and not occurs[inside] and not is_alone:
            yield inside


def _piece(form: int) -> str:
    """Return the piece that a form stands for."""
    character = chr(form // 2)
    return f"##{character}" if form % 2 else character


def _alphabet(words: WordCounts, limit: int) -> Array:  # -> (K,) code points
    """Find the most frequent characters, in descending order, without lone surrogates."""
    frequency = np.zeros(0x110000, np.int64)
    total = 0.0
    for counts, codes, lengths in _blocks(words):
        total += float(counts.astype(np.float64).clip(0) @ lengths)
        if total > _MAX_TOTAL:
            raise InputError("word_counts adds up to more than 2**60 characters; scale the counts down.")
        np.add.at(frequency, codes, np.repeat(counts.clip(0), lengths))
    codes = np.flatnonzero(frequency)
    by_frequency = np.lexsort((codes, -frequency[codes]))
    kept = codes[by_frequency][:limit]
    return kept[(kept < 0xD800) | (kept > 0xDFFF)]


def _blocks(words: WordCounts) -> Iterator[tuple[Array, Array, Array]]:
    """Yield the counts (W,), characters (n,) and lengths (W,) of some words at a time."""
    for first in range(0, len(words), _TOGETHER):
        last = min(first + _TOGETHER, len(words))
        yield words.counts[first:last], *words.characters(first, last)
