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
    """A guess: one word for a gap."""

    token: str
    probability: float

    @property
    def log_probability(self) -> float:
        """In nats; of a word of several pieces the sum over them; -inf for a probability of 0."""
        if not self.probability:
            return -math.inf
        return math.log(self.probability)


Guesses = list[Guess]  # the likeliest first
Pieces = tuple[int, ...]
Begun = tuple[Pieces, int]  # the first pieces of a word, and how many it has in all
Ask = Callable[[Iterable[Begun]], Iterator[Array]]


def fill_texts(
    model: Any,
    texts: list[str],
    top: int = 5,
    *,
    targets: Iterable[str] | None = None,
    pieces: int = 1,
) -> list[list[Guesses]]:
    """Predict every [MASK] of each text; a left-to-right model uses only the text before it.

    A word of k pieces takes the place of k [MASK]s, which are filled from left to right: its probability is
    the product of those of its pieces, each given the ones before it and [MASK]s for those after. Each gap
    of a text is asked about by itself; the others stay one [MASK].

    Parameters
    ----------
    model : Bert
        A trained one that has its vocabulary.
    texts : list of str
        With [MASK] written out wherever a word is wanted; special tokens in them, and in the targets, are
        one piece even where the tokenizer has `split_special_tokens`.
    top : int, default 5
        How many guesses for each gap.
    targets : iterable of str, optional
        Words that are asked about; the guesses are these, all of them. None: the whole vocabulary.
    pieces : int, default 1
        Most pieces of a guess. For each k up to it, words of k pieces are looked for by a beam search of
        width `top`: a first piece, and k - 1 that begin with "##". All are ordered by their probabilities,
        which take k as given: they compare words of one length best, and favour short ones.

    Returns
    -------
    list of list of list of Guess
        For each text, for each [MASK] in it, the guesses, the likeliest first.

    Raises
    ------
    InputError
        When a text has no [MASK], or is longer than the model's positions; when a target is not in the
        vocabulary or is given twice; when targets are given with `pieces`, or a number is below 1; when the
        model has no trained masked-LM head, or no vocabulary.
    """
    if isinstance(texts, str):
        raise InputError(f"texts={short(texts)} is one text; give a list of them.")
    numbers: dict[str, Any] = {"top": top, "pieces": pieces}
    for name, value in numbers.items():
        if not isinstance(value, int | np.integer) or value < 1:
            problem = f"{name}={value!r} is not possible"
            raise InputError(f"{problem}; give a whole number, 1 or more.", **{name: value})
    tokenizer = model.tokenizer
    words = {} if targets is None else _target_ids(tokenizer, targets)
    if words and pieces > 1:
        problem = f"{pieces=} is for free guesses, but `targets` names the words"
        raise InputError(f"{problem}; leave one of them out.", pieces=pieces, targets=targets)
    require_masked_lm(model)
    sequences = [tokenizer(text, special=True).ids for text in texts]
    places = [np.flatnonzero(ids == tokenizer.mask_id).tolist() for ids in sequences]
    longest_word = max([pieces, *map(len, words.values())])
    for text, ids, gaps in zip(texts, sequences, places, strict=True):
        if not gaps:
            raise InputError(f"{text!r} has no [MASK]; write [MASK] where a word is to be guessed.")
        check_length(model, text, len(ids) + longest_word - 1)
    if not words and pieces == 1:
        all_logits = token_logits(model, zip(sequences, places, strict=True))
        return [[_best(tokenizer, row, top) for row in _probabilities(logits)] for logits in all_logits]

    def guesses(ids: Array, gap: int) -> Guesses:
        ask = partial(_next_pieces, model, ids, gap)
        if words:
            return _of_targets(ask, words)
        return _likeliest(ask, tokenizer, top, pieces)

    return [[guesses(ids, gap) for gap in gaps] for ids, gaps in zip(sequences, places, strict=True)]


def _best(tokenizer: Tokenizer, row: Array, top: int) -> Guesses:
    """Return the likeliest pieces of a row of probabilities (V,)."""
    guesses = []
    for piece in _largest(row, top):
        token = tokenizer.vocab[piece]
        guesses.append(Guess(token, float(row[piece])))
    return guesses


def _largest(row: Array, count: int) -> list[int]:
    """Return the positions of the largest values of a row, largest first; of equal values the first."""
    order = np.argsort(-row, kind="stable")
    places: list[int] = order[:count].tolist()
    return places


def _by_probability(guesses: Guesses) -> Guesses:
    return sorted(guesses, key=lambda guess: -guess.probability)


def _next_pieces(
    model: Any,
    ids: Array,
    gap: int,
    begun: Iterable[Begun],
) -> Iterator[Array]:
    """Yield the probabilities (V,) of the next piece of each incomplete word."""
    mask_id = model.tokenizer.mask_id
    before = ids[:gap]
    after = ids[gap + 1 :]

    def masked(prefix: Pieces, k: int) -> Masked:
        n_known = len(prefix)
        waiting = [mask_id] * (k - n_known)
        sequence = np.array([*before, *prefix, *waiting, *after])
        return sequence, [gap + n_known]

    asked = (masked(prefix, k) for prefix, k in begun)
    for logits in token_logits(model, asked):
        [row] = _probabilities(logits)
        yield row


def _of_targets(ask: Ask, words: dict[str, Pieces]) -> Guesses:
    """Return words with their probabilities; a common beginning is computed once."""
    begun: dict[Begun, None] = {}
    for pieces in words.values():
        for n in range(len(pieces)):
            begun[pieces[:n], len(pieces)] = None
    rows = dict(zip(begun, ask(begun), strict=True))
    guesses = []
    for word, pieces in words.items():
        probabilities = []
        for n, piece in enumerate(pieces):
            row = rows[pieces[:n], len(pieces)]
            probabilities.append(float(row[piece]))
        probability = math.prod(probabilities)
        guesses.append(Guess(word, probability))
    return _by_probability(guesses)


def _likeliest(
    ask: Ask,
    tokenizer: Tokenizer,
    top: int,
    most: int,
) -> Guesses:
    """Search for the likeliest words of up to so many pieces."""
    probabilities: dict[str, float] = {}
    for k in range(1, most + 1):
        for pieces, probability in _beam_search(ask, tokenizer, top, k):
            if k == 1:
                word = tokenizer.vocab[pieces[0]]
            else:
                word = tokenizer.decode(pieces)
            # A word cut in two ways counts as the likelier one.
            before = probabilities.get(word, 0.0)
            probabilities[word] = max(probability, before)
    guesses = [Guess(word, probability) for word, probability in probabilities.items()]
    return _by_probability(guesses)[:top]


def _beam_search(
    ask: Ask,
    tokenizer: Tokenizer,
    top: int,
    k: int,
) -> list[tuple[Pieces, float]]:
    """Return the `top` likeliest words of k pieces, each with its probability."""
    continues = tokenizer.continuation
    starts = ~continues
    starts[list(tokenizer.special_ids)] = False
    beam: list[tuple[Pieces, float]] = [((), 1.0)]
    for n in range(k):
        allowed = continues if n else starts
        rows = ask([(prefix, k) for prefix, _ in beam])
        longer: list[tuple[Pieces, float]] = []
        for (prefix, probability), row in zip(beam, rows, strict=True):
            if k > 1:
                row = np.where(allowed, row, 0)
            for piece in _largest(row, top):
                if not row[piece]:
                    continue
                pieces = (*prefix, piece)
                longer.append((pieces, probability * float(row[piece])))
        longer.sort(key=lambda candidate: -candidate[1])
        beam = longer[:top]
    return beam


# (m,V) -> (m,V)
def _probabilities(logits: Array) -> Array:
    probabilities = np.exp(logits - logits.max(-1, keepdims=True))
    probabilities /= probabilities.sum(-1, keepdims=True)
    return probabilities


def _target_ids(tokenizer: Tokenizer, targets: Iterable[str]) -> dict[str, Pieces]:
    """Return the pieces of each target."""
    if isinstance(targets, str):
        raise InputError(f"{targets=} is one string; give a list of words.", targets=targets)
    targets = list(targets)
    strange = [short(word) for word in targets if not isinstance(word, str)]
    if strange:
        raise InputError(f"{targets=}: {strange[0]} is not a string; give words.", targets=targets)
    if not targets:
        raise InputError(f"{targets=} has no word; give one, or leave it out.", targets=targets)
    targets = [word.strip() for word in targets]
    if "" in targets:
        raise InputError("`targets` has an empty word; leave it out.", targets=targets)
    words = {}
    for word in targets:
        words[word] = tuple(tokenizer.encode(word, add_special_tokens=False, special=True))
    for number, word in enumerate(targets):
        if not words[word] or tokenizer.unk_id in words[word]:
            raise InputError(f"{targets=}: {word!r} is not in the vocabulary; leave it out.", targets=targets)
        if word in targets[:number]:
            raise InputError(f"{targets=}: {word!r} is given twice; give it once.", targets=targets)
    return words


def token_logits(model: Any, asked: Iterable[Masked]) -> Iterator[np.ndarray]:
    """Yield scores of every piece at positions of each sequence, computed some thousand tokens at a time.

    Left to right they come from the token before each position.

    Parameters
    ----------
    model : Bert
        With a masked-LM head, and its vocabulary.
    asked : iterable of pairs
        The ids of a sequence, (n,), and the positions in it that are asked about, m of them.

    Yields
    ------
    array (m,V), float64
        The logits of one sequence, V being the pieces of the vocabulary.
    """
    asked = iter(asked)
    waiting = next(asked, None)
    while waiting:
        chunk: list[Masked] = []
        n_tokens = 0
        n_rows = 0
        while waiting:
            has_room = n_tokens < BATCH_TOKENS and n_rows * model.config.V < LOGITS
            if chunk and not has_room:
                break
            ids, positions = waiting
            chunk.append(waiting)
            n_tokens += len(ids)
            n_rows += len(positions)
            waiting = next(asked, None)
        yield from _chunk_logits(model, chunk)


def _chunk_logits(model: Any, chunk: list[Masked]) -> list[np.ndarray]:
    """Return the scores for some sequences, computed together."""
    sequences = []
    counts = []
    for ids, positions in chunk:
        segments = np.zeros(len(ids), np.int32)
        sequences.append(Sequence(ids, segments))
        counts.append(len(positions))
    batch = Batch.pack(sequences)
    places = np.concatenate([np.asarray(positions) for _, positions in chunk])
    first_rows = np.repeat(batch.first_rows, counts)
    wanted = places + first_rows - model.config.is_decoder
    logits = model.masked_lm_logits(batch, wanted)
    of_vocabulary = logits[:, : model.tokenizer.vocab_size]
    ends = np.cumsum(counts)
    return np.split(of_vocabulary.astype(np.float64), ends[:-1])


def check_length(model: Any, text: str, length: int) -> None:
    """Check that a text's sequence is no longer than the model's positions.

    Parameters
    ----------
    model : Bert
        Whose positions are counted.
    text : str
        Named in the error.
    length : int
        Its tokens, [CLS] and [SEP] included.

    Raises
    ------
    InputError
        When it is longer.
    """
    if length > model.config.P:
        what = f"{short(text)} takes {length:,} tokens with [CLS] and [SEP]"
        more = f"more than the model's {model.config.P} positions"
        raise InputError(f"{what}, {more}; shorten it, or give its sentences one by one.")


def require_masked_lm(model: Any) -> None:
    """Check that a model has a trained masked-LM head.

    Parameters
    ----------
    model : Bert
        Whose `missing` and head are looked at.

    Raises
    ------
    InputError
        When it has none: it was fine-tuned, or came without one.
    """
    lacking = [name for name in model.missing if name.startswith("cls.predictions")]
    if lacking or model.params.head.kind != "pretraining":
        advice = "use one that was pre-trained, such as the model that it was fine-tuned from."
        named = f"The model in '{model._folder}'" if model._folder else "This model"
        raise InputError(f"{named} has no trained masked-LM head, so its guesses would be noise; {advice}")
