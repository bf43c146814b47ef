"""Guesses for gaps: what a BERT with its masked-LM head expects at each [MASK] of a text."""

import math
from collections import abc
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from reprlib import repr as short
from typing import Any, NamedTuple

import numpy as np

from minibert.base.errors import InputError
from minibert.core.arrays import Array
from minibert.core.batch import Batch, Sequence
from minibert.tokenizer import Tokenizer

BATCH_TOKENS = 4096  # computed at once, so that activations take little memory whatever the number of texts
LOGITS = 1 << 24  # computed at once: 64 MiB in float32
Masked = tuple[np.ndarray, abc.Sequence[int]]  # the ids of a sequence (n,), and positions to predict in it


class Guess(NamedTuple):
    """One word for a gap."""

    token: str
    probability: float

    @property
    def log_probability(self) -> float:
        """In nats; of a word of several pieces the sum over them."""
        return math.log(self.probability) if self.probability else -math.inf


Guesses = list[Guess]  # the likeliest first
Pieces = tuple[int, ...]
Begun = tuple[Pieces, int]  # the first pieces of a word, and how many it has in all
Ask = Callable[[Iterable[Begun]], Iterator[Array]]


def fill_texts(
    model: Any, texts: list[str], top: int = 5, *, targets: Iterable[str] | None = None, pieces: int = 1
) -> list[list[Guesses]]:
    """Predict every [MASK] of each text; a model trained left to right knows only what is before it.

    A word of k pieces takes the place of k [MASK]s, which are filled from left to right: its probability is
    the product of those of its pieces, each given the ones before it and [MASK]s for those behind. Each gap
    of a text is asked about by itself; the others stay one [MASK].

    Raise InputError when a text has no [MASK], or is longer than the model's positions; when a target is not
    in the vocabulary or is given twice; when the model has no trained masked-LM head, or no vocabulary.

    Parameters
    ----------
    model : a trained BERT that has its vocabulary.
    texts : with [MASK] written out wherever a word is wanted.
    top : how many guesses for each.
    targets : words that are asked about; the guesses are these, all of them. None: the whole vocabulary.
    pieces : most pieces of a guess. For each k up to it, words of k pieces are looked for by a beam search of
        width `top`: a first piece, and k - 1 that begin with "##". All are ordered by their probabilities,
        which take k as given: they compare words of one length best, and favour short ones.
    """
    if isinstance(texts, str):
        raise InputError(f"texts={short(texts)} is one text; give a list of them.")
    for name, value in {"top": top, "pieces": pieces}.items():
        if not isinstance(value, int | np.integer) or value < 1:
            raise InputError(f"${name} is not possible; give a whole number, 1 or more.", **{name: value})
    tokenizer = model.tokenizer
    words = {} if targets is None else _target_ids(tokenizer, targets)
    if words and pieces > 1:
        raise InputError("$pieces is for guesses, but targets were given; leave one out.", pieces=pieces)
    require_masked_lm(model)
    found = [tokenizer(text).ids for text in texts]
    places = [np.flatnonzero(ids == tokenizer.mask_id).tolist() for ids in found]
    wider = max([pieces, *map(len, words.values())]) - 1
    for text, ids, gaps in zip(texts, found, places, strict=True):
        if not gaps:
            raise InputError(f"{text!r} has no [MASK]; write [MASK] where a word is to be guessed.")
        check_length(model, text, len(ids) + wider)
    if not words and pieces == 1:
        logits = token_logits(model, zip(found, places, strict=True))
        return [[_best(tokenizer, row, top) for row in _probabilities(rows)] for rows in logits]

    def guesses(ids: Array, gap: int) -> Guesses:
        ask = partial(_next_pieces, model, ids, gap)
        return _of_targets(ask, words) if words else _likeliest(ask, tokenizer, top, pieces)

    return [[guesses(ids, gap) for gap in gaps] for ids, gaps in zip(found, places, strict=True)]


def _best(tokenizer: Tokenizer, row: Array, top: int) -> Guesses:
    best = np.argsort(-row, kind="stable")[:top]
    return [Guess(tokenizer.vocab[piece], float(row[piece])) for piece in best]


def _next_pieces(model: Any, ids: Array, gap: int, begun: Iterable[Begun]) -> Iterator[Array]:
    """Yield for each begun word the probabilities (V,) of the piece behind those that it has."""

    def masked(has: Pieces, k: int) -> Masked:
        waiting = [model.tokenizer.mask_id] * (k - len(has))
        return np.array([*ids[:gap], *has, *waiting, *ids[gap + 1 :]]), [gap + len(has)]

    found = token_logits(model, (masked(*one) for one in begun))
    return (_probabilities(logits)[0] for logits in found)


def _of_targets(ask: Ask, words: dict[str, Pieces]) -> Guesses:
    """Return words with their probabilities."""
    begun = dict.fromkeys((has[:n], len(has)) for has in words.values() for n in range(len(has)))
    rows = dict(zip(begun, ask(begun), strict=True))
    guesses = [
        Guess(word, math.prod(float(rows[has[:n], len(has)][piece]) for n, piece in enumerate(has)))
        for word, has in words.items()
    ]
    return sorted(guesses, key=lambda guess: -guess.probability)


def _likeliest(ask: Ask, tokenizer: Tokenizer, top: int, most: int) -> Guesses:
    """Look for the likeliest words of up to so many pieces."""
    continues = tokenizer.continuation
    starts = ~continues
    starts[list(tokenizer.special_ids)] = False
    found: dict[str, float] = {}
    for k in range(1, most + 1):
        beam: list[tuple[Pieces, float]] = [((), 1.0)]
        for n in range(k):
            longer = []
            for (has, chance), row in zip(beam, ask([(has, k) for has, _ in beam]), strict=True):
                row = row if k == 1 else np.where(continues if n else starts, row, 0)
                best = np.argsort(-row, kind="stable")[:top].tolist()
                longer += [((*has, piece), chance * float(row[piece])) for piece in best if row[piece]]
            beam = sorted(longer, key=lambda one: -one[1])[:top]
        for has, chance in beam:  # a word cut in two ways counts as the likelier one
            word = tokenizer.vocab[has[0]] if k == 1 else tokenizer.decode(has)
            found[word] = max(chance, found.get(word, 0.0))
    return sorted((Guess(*one) for one in found.items()), key=lambda guess: -guess.probability)[:top]


# (m,V) -> (m,V)
def _probabilities(logits: Array) -> Array:
    probabilities = np.exp(logits - logits.max(-1, keepdims=True))
    probabilities /= probabilities.sum(-1, keepdims=True)
    return probabilities


def _target_ids(tokenizer: Tokenizer, targets: Iterable[str]) -> dict[str, Pieces]:
    """Return the pieces of each target."""
    if isinstance(targets, str):
        raise InputError("$targets is one string; give a list of words.", targets=targets)
    targets = list(targets)
    if strange := [short(word) for word in targets if not isinstance(word, str)]:
        raise InputError(f"$targets: {strange[0]} is no word; give strings.", targets=targets)
    if not targets:
        raise InputError("$targets has no word; give one, or leave it out.", targets=targets)
    targets = [word.strip() for word in targets]
    words = {word: tuple(tokenizer.encode(word, add_special_tokens=False)) for word in targets}
    for number, word in enumerate(targets):
        if not words[word] or tokenizer.unk_id in words[word]:
            raise InputError(f"$targets: {word!r} is not in the vocabulary; leave it out.", targets=targets)
        if word in targets[:number]:
            raise InputError(f"$targets: {word!r} is given twice; give it once.", targets=targets)
    return words


def token_logits(model: Any, asked: Iterable[Masked]) -> Iterator[np.ndarray]:
    """Yield scores of every piece at positions of each sequence, computed some thousand tokens at a time.

    Left to right they come from the token before each position.
    """
    asked = iter(asked)
    waiting = next(asked, None)
    while waiting:
        chunk: list[Masked] = []
        tokens = rows = 0
        while waiting and (not chunk or tokens < BATCH_TOKENS and rows * model.config.V < LOGITS):
            chunk.append(waiting)
            tokens, rows = tokens + len(waiting[0]), rows + len(waiting[1])
            waiting = next(asked, None)
        batch = Batch.pack([Sequence(ids, np.zeros(len(ids), np.int32)) for ids, _ in chunk])
        counts = [len(positions) for _, positions in chunk]
        places = np.concatenate([np.asarray(positions) for _, positions in chunk])
        wanted = places + np.repeat(batch.first_rows, counts) - model.config.is_decoder
        logits = model.masked_lm_logits(batch, wanted)[:, : model.tokenizer.vocab_size].astype(np.float64)
        yield from np.split(logits, np.cumsum(counts)[:-1])


def check_length(model: Any, text: str, length: int) -> None:
    """Raise InputError when a text makes a longer sequence than the model has positions."""
    if length > model.config.P:
        what = f"{short(text)} takes {length:,} tokens with [CLS] and [SEP]"
        more = f"more than the model's {model.config.P} positions"
        raise InputError(f"{what}, {more}; shorten it, or give its sentences one by one.")


def require_masked_lm(model: Any) -> None:
    """Raise InputError when a model has no trained masked-LM head."""
    lacking = [name for name in model.missing if name.startswith("cls.predictions")]
    if lacking or model.params.head.kind != "pretraining":
        advice = "use one that was pre-trained, such as the model that it was fine-tuned from."
        raise InputError(f"This model has no trained masked-LM head, so its guesses would be noise; {advice}")
