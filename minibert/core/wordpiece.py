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
    """Return special tokens, the alphabet and the pieces that merging its letters makes, in this order.

    Each word starts as its letters, those inside it marked with "##". Then the best pair of neighbours is
    joined everywhere, again and again: the most frequent pair ("frequency", byte-pair encoding), or the one
    that makes the text likeliest ("likelihood", WordPiece).

    Parameters
    ----------
    word_counts : how often each word occurs.
    vocab_size : pieces to end with; fewer where no pair is left to join.
    objective : "likelihood" or "frequency".
    min_frequency : pairs that occur less often are not joined.

    Returns
    -------
    list of pieces, by their ids.
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
        # Among equal gains the pair comes first whose left part, then whose right part, is older.
        best = min(gains, key=lambda pair: (-gains[pair], number[pair[0]], number[pair[1]]))
        merged = best[0] + best[1].removeprefix("##")
        words = [(join(pieces, best, merged), n) for pieces, n in words]
        number[merged] = len(number)
        vocab.append(merged)
    return vocab


def gain(pair: tuple[str, str], n: int, counts: Counter[str]) -> float:
    """Return what joining all n occurrences of a pair adds to the log-likelihood of the text.

    With p(u) = c(u) / N for each piece u, that is L = sum over u of f(c(u)) - f(N) where f(x) = x log x.
    Joining takes n off both counts (2 n off the one, where the parts are equal) and off N, and adds n new.

    Parameters
    ----------
    pair : the two pieces.
    n : how often they stand side by side.
    counts : how often each piece occurs.

    Returns
    -------
    float, nats.
    """

    def f(x: int) -> float:
        return x * log(x) if x else 0.0

    total = counts.total()
    parts = Counter(pair).items()  # two, or one of them twice
    lost = sum(f(counts[part]) - f(counts[part] - times * n) for part, times in parts)
    return f(n) - lost + f(total) - f(total - n)


def neighbours(symbols: Sequence[Symbol]) -> Iterator[tuple[Symbol, Symbol]]:
    """Yield pairs of neighbours from the left, without overlap: `aaa` holds `aa` once.

    Parameters
    ----------
    symbols : pieces, or their numbers.

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
    symbols : pieces, or their numbers.
    pair : the two to join.
    merged : what takes their place.
    """
    joined: list[Symbol] = []
    for symbol in symbols:
        if joined and (joined[-1], symbol) == pair:
            joined[-1] = merged
        else:
            joined.append(symbol)
    return joined


def encode(word: str, ids: Mapping[str, int]) -> list[int]:
    """Cut a word into the longest piece that begins it, the longest "##" piece that goes on, …; or [UNK].

    Parameters
    ----------
    word : as `split_words` makes it.
    ids : number of each piece.

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
    """Join pieces to words again, with a space between words.

    Parameters
    ----------
    pieces : their ids.
    vocab : the pieces, by their ids.
    """
    return " ".join(vocab[number] for number in pieces).replace(" ##", "")
