"""Learn a WordPiece vocabulary by counting pairs, and cut words by longest match, in plain Python.

In `tokenizer/`, normalize.py finds the same words, merging.py makes the same merges and greedy.py cuts the
same pieces, on text of any size and in any script; tests hold all three against this file.

    vocab = learn(Counter(split_words(text)), vocab_size=1000)
    ids = {piece: number for number, piece in enumerate(vocab)}
    decode(encode("unaffable", ids), vocab)                     # "unaffable"
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import log
from typing import TypeVar

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
UNK = SPECIAL_TOKENS.index("[UNK]")
ROUNDING = 2**16  # gains are rounded to multiples of 1 / ROUNDING nats
Symbol = TypeVar("Symbol", str, int)


def split_words(text: str) -> list[str]:
    """Return the words of a text, in lower case and without accents; a punctuation mark is a word.

    Parameters
    ----------
    text : any text.

    Examples
    --------
    >>> split_words("Élan, 2 times!")
    ['elan', ',', '2', 'times', '!']
    """
    decomposed = unicodedata.normalize("NFD", text.lower())
    bare = "".join(letter for letter in decomposed if unicodedata.category(letter) != "Mn")
    return re.findall(r"[^\W_]+|\S", bare)


def learn(
    word_counts: Mapping[str, int],
    vocab_size: int,
    objective: str = "likelihood",
    min_frequency: int = 2,
) -> list[str]:
    """Return a vocabulary: special tokens, then the alphabet, then the pieces in the order they were merged.

    Each word starts as its letters; all but the first are marked with "##". Then the best pair of neighbours
    is joined everywhere, again and again: the most frequent pair ("frequency", byte-pair encoding), or the
    one that raises the likelihood of the text most ("likelihood", WordPiece).

    Parameters
    ----------
    word_counts : how often each word occurs.
    vocab_size : how many pieces to learn; the result has fewer if no pair is left to join.
    objective : "likelihood" or "frequency".
    min_frequency : pairs that occur less often are not joined.

    Returns
    -------
    list of pieces; the index of a piece is its id.
    """
    words = []  # the pieces of each word, and how often it occurs
    for word, n in word_counts.items():
        inside = ["##" + letter for letter in word[1:]]
        words.append(([word[0], *inside], n))
    first_pieces = sorted({piece for pieces, _ in words for piece in pieces})
    number = {piece: i for i, piece in enumerate(first_pieces)}
    letters = {piece.removeprefix("##") for piece in number}
    vocab = [*SPECIAL_TOKENS, *sorted(letters | {"##" + letter for letter in letters})]
    while len(vocab) < vocab_size:
        counts: Counter[str] = Counter()
        pairs: Counter[tuple[str, str]] = Counter()
        for pieces, n in words:
            for piece in pieces:
                counts[piece] += n
            for pair in neighbours(pieces):
                pairs[pair] += n
        gains = {pair: n for pair, n in pairs.items() if n >= min_frequency}
        if objective == "likelihood":
            gains = {pair: round(gain(pair, n, counts) * ROUNDING) for pair, n in gains.items()}
        if not gains:
            break
        # Ties go to the pair with the older left part, then to the one with the older right part.
        best = min(gains, key=lambda pair: (-gains[pair], number[pair[0]], number[pair[1]]))
        merged = best[0] + best[1].removeprefix("##")
        words = [(join(pieces, best, merged), n) for pieces, n in words]
        number[merged] = len(number)
        vocab.append(merged)
    return vocab


def gain(pair: tuple[str, str], n: int, counts: Counter[str]) -> float:
    """Return how much joining all n occurrences of a pair adds to the log-likelihood of the text.

    With p(u) = c(u) / N for each piece u, the log-likelihood is L = sum over u of f(c(u)) - f(N), where
    f(x) = x log x. Joining subtracts n from the counts of both parts (2 n if the parts are equal) and from N,
    and adds a new piece with the count n.

    Parameters
    ----------
    pair : the two pieces.
    n : how often they occur side by side.
    counts : how often each piece occurs.

    Returns
    -------
    float, nats.
    """

    def f(x: int) -> float:
        return x * log(x) if x else 0.0

    total = counts.total()
    parts = Counter(pair).items()  # two parts once each, or one part twice
    lost = sum(f(counts[part]) - f(counts[part] - times * n) for part, times in parts)
    return f(n) - lost + f(total) - f(total - n)


def neighbours(symbols: Sequence[Symbol]) -> Iterator[tuple[Symbol, Symbol]]:
    """Yield pairs of neighbours from the left, without overlaps of equal pairs: `aaa` contains `aa` once.

    Parameters
    ----------
    symbols : pieces, or their ids.

    Yields
    ------
    pairs of symbols.
    """
    last = None
    for pair in pairwise(symbols):
        last = None if pair == last else pair
        if last is not None:
            yield pair


def join(
    symbols: Sequence[Symbol],
    pair: tuple[Symbol, Symbol],
    merged: Symbol,
) -> list[Symbol]:
    """Return the symbols with `merged` in place of each pair, from the left.

    Parameters
    ----------
    symbols : pieces, or their ids.
    pair : the two symbols to join.
    merged : the symbol that replaces them.
    """
    joined: list[Symbol] = []
    for symbol in symbols:
        if joined and (joined[-1], symbol) == pair:
            joined[-1] = merged
        else:
            joined.append(symbol)
    return joined


def encode(word: str, ids: Mapping[str, int]) -> list[int]:
    """Cut a word from the left, each time taking the longest piece that fits; if none does, it is [UNK].

    Parameters
    ----------
    word : a word as `split_words` returns it.
    ids : the id of each piece.

    Returns
    -------
    list of ids.
    """
    pieces = []
    begin = 0
    while begin < len(word):
        mark = "##" if begin else ""
        ends = range(len(word), begin, -1)  # the longest first
        end = next((end for end in ends if mark + word[begin:end] in ids), None)
        if end is None:
            return [UNK]
        pieces.append(ids[mark + word[begin:end]])
        begin = end
    return pieces


def decode(pieces: Sequence[int], vocab: Sequence[str]) -> str:
    """Join pieces into words again, with a space between words.

    Parameters
    ----------
    pieces : ids of the pieces.
    vocab : list of pieces; the index of a piece is its id.
    """
    return " ".join(vocab[number] for number in pieces).replace(" ##", "")
