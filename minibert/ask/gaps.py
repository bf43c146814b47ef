"""Fill gaps: the pieces and words that a BERT's masked-LM head predicts for each [MASK] of a text."""

import math
from collections import abc, defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from reprlib import repr as short
from typing import Any, NamedTuple

import numpy as np

from minibert.base.errors import InputError
from minibert.base.foreign_names import explains_foreign_attributes
from minibert.core.arrays import Array
from minibert.core.batch import Batch, Sequence
from minibert.tokenizer import Tokenizer

BATCH_TOKENS = 4096  # computed together, so that memory does not grow with the number of texts
MAX_LOGITS = 1 << 24  # computed together: 64 MiB in float32
Masked = tuple[np.ndarray, abc.Sequence[int]]  # the ids of a sequence (n,), and the positions to predict


@explains_foreign_attributes
class Guess(NamedTuple):
    """A word for a gap, with its probability.

    Attributes
    ----------
    token : str
        The word, or one of its pieces.
    probability : float
        From 0 to 1; for a word of several pieces the product of theirs.
    """

    token: str
    probability: float

    @property
    def log_probability(self) -> float:
        """The log of the probability, in nats; -inf if it is 0. For several pieces, this is a sum."""
        if not self.probability:
            return -math.inf
        return math.log(self.probability)


Guesses = list[Guess]  # the likeliest first
Pieces = tuple[int, ...]  # the ids of the pieces of a word
Prefix = tuple[Pieces, int]  # the first pieces of a word, and its number of pieces in all
NextPieces = Callable[
    [Iterable[Prefix]], Iterator[Array]
]  # probabilities (V,) of the piece after each prefix


def fill_texts(
    model: Any,
    texts: list[str],
    top: int = 5,
    *,
    targets: Iterable[str] | None = None,
    pieces: int = 1,
) -> list[list[Guesses]]:
    """Predict every [MASK] of each text; a left-to-right model uses only the text before it.

    A word of k pieces replaces k [MASK]s, which are filled from left to right. Its probability is the product
    of the probabilities of its pieces, each given the pieces before it and [MASK]s for those after it. Each
    gap of a text is predicted separately, while the others remain a single [MASK].

    Parameters
    ----------
    model : Bert
        A trained model that has its vocabulary.
    texts : list of str
        Texts with [MASK] in the place of each missing word. Special tokens, in texts and targets, are read
        as single pieces even if the tokenizer has `split_special_tokens`.
    top : int, default 5
        Number of guesses for each gap.
    targets : iterable of str, optional
        The words to compare, all of which are returned. None: the whole vocabulary.
    pieces : int, default 1
        Most pieces of a guess. For each k up to this number, words of k pieces (a first piece, and k - 1 that
        begin with "##") are found by a beam search of width `top`. All are sorted by their probabilities,
        which are conditional on k: they are best compared among words of one length, and favour short ones.

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
    counts: dict[str, Any] = {"top": top, "pieces": pieces}
    for name, value in counts.items():
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
    all_gaps = [np.flatnonzero(ids == tokenizer.mask_id).tolist() for ids in sequences]
    longest_word = max([pieces, *map(len, words.values())])
    for text, ids, gaps in zip(texts, sequences, all_gaps, strict=True):
        if not gaps:
            raise InputError(f"{text!r} has no [MASK]; write [MASK] where a word is to be guessed.")
        check_length(model, text, len(ids) + longest_word - 1)
    if not words and pieces == 1:
        all_logits = token_logits(model, zip(sequences, all_gaps, strict=True))
        return [[_best(tokenizer, row, top) for row in _probabilities(logits)] for logits in all_logits]

    def guesses(ids: Array, gap: int) -> Guesses:
        next_pieces = partial(_next_pieces, model, ids, gap)
        if words:
            return _score_targets(next_pieces, words)
        return _likeliest_words(next_pieces, tokenizer, top, pieces)

    return [[guesses(ids, gap) for gap in gaps] for ids, gaps in zip(sequences, all_gaps, strict=True)]


def _best(tokenizer: Tokenizer, row: Array, top: int) -> Guesses:
    """Return the likeliest pieces, given their probabilities (V,)."""
    guesses = []
    for piece in _largest(row, top):
        token = tokenizer.vocab[piece]
        guesses.append(Guess(token, float(row[piece])))
    return guesses


def _largest(row: Array, count: int) -> list[int]:
    """Return the indices of the largest values of a row, the largest first; equal values keep their order."""
    order = np.argsort(-row, kind="stable")
    indices: list[int] = order[:count].tolist()
    return indices


def _by_probability(guesses: Guesses) -> Guesses:
    return sorted(guesses, key=lambda guess: -guess.probability)


def _next_pieces(
    model: Any,
    ids: Array,
    gap: int,
    prefixes: Iterable[Prefix],
) -> Iterator[Array]:
    """Yield the probabilities (V,) of the next piece of each incomplete word in a gap."""
    mask_id = model.tokenizer.mask_id
    before = ids[:gap]
    after = ids[gap + 1 :]

    def masked(prefix: Pieces, k: int) -> Masked:
        masks = [mask_id] * (k - len(prefix))
        sequence = np.array([*before, *prefix, *masks, *after])
        return sequence, [gap + len(prefix)]

    for logits in token_logits(model, (masked(prefix, k) for prefix, k in prefixes)):
        [row] = _probabilities(logits)
        yield row


def _score_targets(next_pieces: NextPieces, words: dict[str, Pieces]) -> Guesses:
    """Return words with their probabilities, the likeliest first; compute each common prefix only once."""
    continued = defaultdict(list)  # for each prefix, the words that have it, with the next piece of each
    for word, pieces in words.items():
        k = len(pieces)
        for n, piece in enumerate(pieces):
            prefix = pieces[:n]
            continued[prefix, k].append((word, piece))
    probabilities = dict.fromkeys(words, 1.0)
    rows = next_pieces(continued)
    for having, row in zip(continued.values(), rows, strict=True):
        for word, piece in having:
            probabilities[word] *= float(row[piece])
    guesses = [Guess(word, probability) for word, probability in probabilities.items()]
    return _by_probability(guesses)


def _likeliest_words(
    next_pieces: NextPieces,
    tokenizer: Tokenizer,
    top: int,
    most_pieces: int,
) -> Guesses:
    """Search for the likeliest words of up to `most_pieces` pieces."""
    probabilities: dict[str, float] = {}
    for k in range(1, most_pieces + 1):
        for pieces, probability in _beam_search(next_pieces, tokenizer, top, k):
            if k == 1:
                word = tokenizer.vocab[pieces[0]]
            else:
                word = tokenizer.decode(pieces)
            # If a word can be split in several ways, the likeliest split counts.
            probabilities[word] = max(probability, probabilities.get(word, 0.0))
    guesses = [Guess(word, probability) for word, probability in probabilities.items()]
    return _by_probability(guesses)[:top]


def _beam_search(
    next_pieces: NextPieces,
    tokenizer: Tokenizer,
    top: int,
    k: int,
) -> list[tuple[Pieces, float]]:
    """Return the `top` likeliest words of k pieces, with their probabilities."""
    continues = tokenizer.continuation
    starts = ~continues
    starts[list(tokenizer.special_ids)] = False
    beam: list[tuple[Pieces, float]] = [((), 1.0)]
    for n in range(k):
        allowed = continues if n else starts
        rows = next_pieces([(prefix, k) for prefix, _ in beam])
        candidates: list[tuple[Pieces, float]] = []
        for (prefix, probability), row in zip(beam, rows, strict=True):
            if k > 1:  # a single piece may be any of the vocabulary, as without `pieces`
                row = np.where(allowed, row, 0)
            for piece in _largest(row, top):
                if row[piece]:
                    candidates.append(((*prefix, piece), probability * float(row[piece])))
        candidates.sort(key=lambda candidate: -candidate[1])
        beam = candidates[:top]
    return beam


# (m,V) -> (m,V)
def _probabilities(logits: Array) -> Array:
    probabilities = np.exp(logits - logits.max(-1, keepdims=True))
    probabilities /= probabilities.sum(-1, keepdims=True)
    return probabilities


def _target_ids(tokenizer: Tokenizer, targets: Iterable[str]) -> dict[str, Pieces]:
    """Return the pieces of each target; raise InputError for a target that can't be predicted."""
    if isinstance(targets, str):
        raise InputError(f"{targets=} is one string; give a list of words.", targets=targets)
    targets = list(targets)
    not_strings = [short(word) for word in targets if not isinstance(word, str)]
    if not_strings:
        raise InputError(f"{targets=}: {not_strings[0]} is not a string; give words.", targets=targets)
    if not targets:
        raise InputError(f"{targets=} has no word; give one, or leave it out.", targets=targets)
    targets = [word.strip() for word in targets]
    if "" in targets:
        raise InputError("`targets` has an empty word; leave it out.", targets=targets)
    words: dict[str, Pieces] = {}
    for word in targets:
        if word in words:
            raise InputError(f"{targets=}: {word!r} is given twice; give it once.", targets=targets)
        words[word] = tuple(tokenizer.encode(word, add_special_tokens=False, special=True))
        if not words[word] or tokenizer.unk_id in words[word]:
            raise InputError(f"{targets=}: {word!r} is not in the vocabulary; leave it out.", targets=targets)
    return words


def token_logits(model: Any, sequences: Iterable[Masked]) -> Iterator[np.ndarray]:
    """Yield the logits of every piece at some positions of each sequence, a few thousand tokens at a time.

    A left-to-right model predicts a position from the token before it.

    Parameters
    ----------
    model : Bert
        A model that has a masked-LM head and its vocabulary.
    sequences : iterable of pairs
        The ids of each sequence, (n,), and m positions in it.

    Yields
    ------
    array (m,V), float64
        The logits for one sequence; V is the size of the vocabulary.
    """
    chunk: list[Masked] = []
    n_tokens = 0
    n_rows = 0
    for ids, positions in sequences:
        has_room = n_tokens < BATCH_TOKENS and n_rows * model.config.V < MAX_LOGITS
        if not has_room:
            yield from _chunk_logits(model, chunk)
            chunk = []
            n_tokens = 0
            n_rows = 0
        chunk.append((ids, positions))
        n_tokens += len(ids)
        n_rows += len(positions)
    if chunk:
        yield from _chunk_logits(model, chunk)


def _chunk_logits(model: Any, chunk: list[Masked]) -> list[np.ndarray]:
    """Return the logits for some sequences, which are computed together."""
    sequences = []
    counts = []
    for ids, positions in chunk:
        segments = np.zeros(len(ids), np.int32)
        sequences.append(Sequence(ids, segments))
        counts.append(len(positions))
    batch = Batch.pack(sequences)
    all_positions = np.concatenate([np.asarray(positions) for _, positions in chunk])
    first_rows = np.repeat(batch.first_rows, counts)
    rows = first_rows + all_positions - model.config.is_decoder
    logits = model.masked_lm_logits(batch, rows)
    logits = logits[:, : model.tokenizer.vocab_size]  # the embedding may have more rows
    ends = np.cumsum(counts)
    return np.split(logits.astype(np.float64), ends[:-1])


def check_length(model: Any, text: str, length: int) -> None:
    """Check that the model has enough positions for a text.

    Parameters
    ----------
    model : Bert
        The model.
    text : str
        The text, for the error.
    length : int
        Number of its tokens, [CLS] and [SEP] included.

    Raises
    ------
    InputError
        When the text is longer.
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
        The model.

    Raises
    ------
    InputError
        When it has none, because it was fine-tuned or its folder has no such head.
    """
    untrained = [name for name in model.missing if name.startswith("cls.predictions")]
    if untrained or model.params.head.kind != "pretraining":
        advice = "use one that was pre-trained, such as the model that it was fine-tuned from."
        named = f"The model in '{model._folder}'" if model._folder else "This model"
        raise InputError(f"{named} has no trained masked-LM head, so its guesses would be noise; {advice}")
