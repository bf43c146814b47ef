"""Learning a WordPiece vocabulary: begin with characters, then merge neighbours until the vocabulary is full.

simple.py has the idea in plain Python. Here words become symbols and merges a vocabulary; the merges are made
by `Merger` in merging.py, or by its twin in C behind native.py.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

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
WORTH_TELLING = 0.01  # of the words, that are left out for their characters

PROGRESS_PIECES = 64  # from one call of `progress` to the next
_TOGETHER = 1 << 16  # words, or characters, that are looked at together
_ALONE = unicode.PUNCTUATION | unicode.IDEOGRAPH
_MAX_COUNT = 2**63 - 1
_MAX_TOTAL = 2.0**60  # of characters in the text: a sum of two such numbers fits into 64 bits


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

    Every word starts as its characters, all but the first marked with "##". Then the best pair of
    neighbouring pieces is joined everywhere, again and again. A letter that the text has in one of the two
    forms only enters in the other as well, so that any word of known letters can be written.

    With `objective="frequency"` (byte-pair encoding: Sennrich et al. 2016) the best pair is the one that
    occurs most often. With `objective="likelihood"` (WordPiece: Schuster and Nakajima 2012, Wu et al. 2016)
    it is the one whose merge raises the log-likelihood of the segmented text most, under a unigram model with
    p(u) = c(u) / N, where c(u) counts piece u and N counts all pieces:

        L = sum over u of c(u) log c(u)  -  N log N

    Joining the n occurrences of a, b makes c(a), c(b) and N smaller by n, and n pieces ab. With
    f(x) = x log x and f(0) = 0,

        dL = f(n) - [f(c(a)) - f(c(a) - n)] - [f(c(b)) - f(c(b) - n)] + [f(N) - f(N - n)]

    If b = a, both are taken from one count: f(c(a)) - f(c(a) - 2n) stands in place of the first two brackets.
    The last bracket makes every gain move with every merge. Before its merge ab does not occur: a string that
    stands as one piece was put together from the same parts everywhere, by the same merges. Neighbours are
    counted without overlap, from the left: `aaa` holds `aa` once.

    Among equal gains (rounded to 2**-16 nats) the pair whose left part comes first among alphabet and merges
    is taken, then the one whose right part does. Logarithms are made of + - * / alone. So the vocabulary
    depends on the counts alone, never on the order of the words, the hash seed, the core or the processor.
    Merging goes on until the vocabulary is full, even at a loss.

    Raise InputError when there is no word, one is no string, an argument is out of range, the alphabet alone
    does not fit in, or the counts add up to more than 2**60 characters.

    Parameters
    ----------
    word_counts : word -> how often it occurs, what `count_words` and `count_files` give. Words of more than
        200 characters, or with lone surrogates, are left out.
    vocab_size : number of pieces wanted, special tokens included.
    objective : "likelihood" or "frequency".
    alphabet_limit : keep that many different characters, the most frequent, whatever their forms; words with
        others are left out, as they will be [UNK] anyway. A warning tells when that is one word in a hundred
        or more.
    min_frequency : a pair that occurs less often is never merged.
    unused : number of reserved pieces "[unused0]", "[unused1]", ... after the special tokens.
    user_tokens : pieces of your own, after the unused ones. They change no merge; what is merged to such a
        string does not stand in the vocabulary a second time.
    progress : called every 64 pieces with the number of pieces so far and `vocab_size`.
    core : "c", "python", or "auto": C where its extension is built. Both give the same vocabulary.

    Returns
    -------
    vocab : [PAD] [UNK] [CLS] [SEP] [MASK], the unused pieces, the user's, the alphabet sorted, the merges in
        order. `vocab_size` pieces, or fewer when the text has no more pairs that occur `min_frequency` times.
        Where not all of the alphabet fits in, forms that the text does not have are left out, those of the
        rarest letters first.

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
        raise InputError(f"$objective is unknown; choose {' or '.join(OBJECTIVES)}.", objective=objective)
    whole_number("vocab_size", vocab_size, 1)
    whole_number("min_frequency", min_frequency, 1)
    whole_number("alphabet_limit", alphabet_limit, 1)
    min_frequency = min(int(min_frequency), _MAX_COUNT)  # no pair occurs more often
    vocab = first_pieces(unused, user_tokens)
    make_merger = native.Merger if native.choose(core) else Merger

    pieces, unseen, text = _segment(WordCounts.of(word_counts), alphabet_limit)
    taken = set(vocab)
    seen, unseen = ([piece for piece in forms if piece not in taken] for forms in (pieces, unseen))
    if (room := vocab_size - len(vocab) - len(seen)) < 0:
        needed, fewer = "special tokens", "keep fewer characters (--alphabet-limit of minibert vocab)"
        if unused > len(seen):
            needed, fewer = f"special tokens, {counted(unused, 'unused piece')}", "for less than $unused"
        message = f"$vocab_size is too small: {needed} and alphabet alone take {vocab_size - room:,}"
        message += f"; ask for as many pieces, or {fewer}."
        raise InputError(message, vocab_size=vocab_size, unused=unused)
    vocab += sorted(seen + unseen[:room])
    taken.update(vocab)
    merger = make_merger(text, min_frequency, objective)
    del text  # for its memory
    while len(vocab) < vocab_size:
        wanted = min(PROGRESS_PIECES - len(vocab) % PROGRESS_PIECES, vocab_size - len(vocab))
        lefts, rights = merger.run(wanted)
        for left, right in zip(lefts.tolist(), rights.tolist(), strict=True):
            piece = pieces[left] + pieces[right].removeprefix("##")
            pieces.append(piece)
            if piece not in taken:
                taken.add(piece)
                vocab.append(piece)
        if progress is not None and (len(vocab) % PROGRESS_PIECES == 0 or len(vocab) == vocab_size):
            progress(len(vocab), vocab_size)
        if len(lefts) < wanted:
            break
    return vocab


def first_pieces(unused: int, user_tokens: Iterable[str]) -> list[str]:
    """Return what any vocabulary begins with: special tokens, unused ones, the user's."""
    whole_number("unused", unused, 0)
    if unused > MOST_UNUSED:
        raise InputError(f"$unused is more than {MOST_UNUSED:,}; give fewer (BERT: 994).", unused=unused)
    pieces = [*SPECIAL_TOKENS, *(f"[unused{i}]" for i in range(unused))]
    seen = set(pieces)
    for token in [user_tokens] if isinstance(user_tokens, str) else user_tokens:
        if not isinstance(token, str) or not token or token.split() != [token]:
            message = "$user_token is no token; give a string without white space, not empty."
            raise InputError(message, user_token=token)
        if token in seen:
            message = "$user_token is in the vocabulary already, or given twice; leave it out."
            raise InputError(message, user_token=token)
        seen.add(token)
        pieces.append(token)
    return pieces


def _segment(words: WordCounts, alphabet_limit: int) -> tuple[list[str], list[str], native.Symbols]:
    """Turn words that the tokenizer will be able to match into symbols: places in the alphabet.

    With them come the alphabet, sorted, and those forms of its letters that the words do not have, the most
    frequent first. Of what always is a word of its own, punctuation and ideographs, there is no "##".
    """
    kept = _alphabet(words, alphabet_limit)
    is_kept = np.zeros(0x110000, bool)
    is_kept[kept] = True
    parts, lengths, counts = [], [], []
    n_words = n_kept_words = 0
    for block_counts, block_codes, block_lengths in _blocks(words):
        n_kept = np.concatenate([[0], np.cumsum(is_kept[block_codes])])[np.cumsum(block_lengths)]
        usable = (block_counts > 0) & (block_lengths > 0) & (block_lengths <= max(MAX_CHARS.values()))
        n_words += int(block_counts[usable].sum())
        usable &= np.diff(n_kept, prepend=0) == block_lengths
        n_kept_words += int(block_counts[usable].sum())
        lengths.append(block_lengths[usable])
        counts.append(block_counts[usable])
        # A character is one piece at the beginning of a word, another one further on: 2 code, 2 code + 1.
        parts.append(2 * block_codes[np.repeat(usable, block_lengths)].astype(np.int32) + 1)
        parts[-1][np.cumsum(lengths[-1]) - lengths[-1]] -= 1
    if n_kept_words == 0 and n_words and len(kept) == alphabet_limit:
        why = "every word has a character beyond the most frequent ones that it keeps"
        message = f"$alphabet_limit leaves no word to learn from, as {why}; raise it."
        raise InputError(message, alphabet_limit=alphabet_limit)
    if n_kept_words == 0:
        raise InputError("there is no word to learn a vocabulary from; give text with words in it.")
    if len(kept) == alphabet_limit and n_words - n_kept_words >= WORTH_TELLING * n_words:
        warn(
            f"{1 - n_kept_words / n_words:.1%} of the words become [UNK], as alphabet_limit={alphabet_limit} "
            "leaves out some of their characters; a higher --alphabet-limit of minibert vocab keeps them."
        )
    found = np.zeros(2 * 0x110000, bool)
    for part in parts:
        found[part] = True
    unseen = [
        _piece(form)
        for code in kept.tolist()
        for form in (2 * code, 2 * code + 1)
        if found[form ^ 1] and not found[form] and not (form % 2 and unicode.flags(code) & _ALONE)
    ]
    forms = sorted(np.flatnonzero(found).tolist(), key=_piece)
    number = np.zeros(2 * 0x110000, np.int32)
    number[forms] = np.arange(len(forms))
    for at, part in enumerate(parts):  # one by one: together they would be in memory twice
        parts[at] = number[part]
    symbols = np.concatenate(parts)
    bounds = np.concatenate([[0], *lengths]).cumsum()
    text = native.Symbols(symbols, bounds, np.concatenate(counts), len(forms))
    return list(map(_piece, forms)), unseen, text


def _piece(form: int) -> str:
    return ("##" if form % 2 else "") + chr(form // 2)


def _alphabet(words: WordCounts, limit: int) -> Array:  # -> (K,) code points
    """Find the most frequent characters, without lone surrogates."""
    frequency = np.zeros(0x110000, np.int64)
    total = 0.0
    for counts, codes, lengths in _blocks(words):
        total += float(counts.astype(np.float64).clip(0) @ lengths)
        if total > _MAX_TOTAL:
            raise InputError("word_counts adds up to more than 2**60 characters; scale the counts down.")
        np.add.at(frequency, codes, np.repeat(counts.clip(0), lengths))
    found = np.flatnonzero(frequency)
    kept = found[np.lexsort((found, -frequency[found]))][:limit]
    return kept[(kept < 0xD800) | (kept > 0xDFFF)]


def _blocks(words: WordCounts) -> Iterator[tuple[Array, Array, Array]]:
    """Yield counts, characters and lengths of some words at a time: (W,), (n,) and (W,)."""
    for first in range(0, len(words), _TOGETHER):
        last = min(first + _TOGETHER, len(words))
        yield words.counts[first:last], *words.characters(first, last)
