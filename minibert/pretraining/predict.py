"""What a trained run predicts: guesses for [MASK], and its metrics on a text."""

import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence as Many
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from reprlib import repr as short
from typing import Any, NamedTuple

import numpy as np

from minibert import engines
from minibert.arrays import Array
from minibert.data.corpus import sentences
from minibert.data.instances import split_documents
from minibert.data.shards.joined import open_shards
from minibert.data.shards.store import write_shards
from minibert.errors import InputError
from minibert.inference import Bert, check_vocabulary
from minibert.model_names import folder_of
from minibert.pretraining import evaluation
from minibert.pretraining.evaluation import TARGETS, HeldOut
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.preparation import Text
from minibert.pretraining.scoring import check_length, require_masked_lm, token_logits
from minibert.pretraining.whole_words import WordLoss, score_words
from minibert.tokenizer import Tokenizer

MOST_PIECES = 24  # in a sentence that is an example


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
    model: Bert,
    tokenizer: Tokenizer,
    texts: Many[str],
    top: int = 5,
    *,
    targets: Many[str] = (),
    pieces: int = 1,
) -> list[list[Guesses]]:
    """Predict every [MASK] of each text; a model trained left to right knows what is before it.

    A word of k pieces takes the place of k [MASK]s, which are filled from left to right: its probability is
    the product of those of its pieces, each given the ones before it and [MASK]s for those behind. Each gap
    of a text is asked about by itself; the others stay one [MASK].

    Parameters
    ----------
    model, tokenizer : a trained BERT and its vocabulary.
    texts : with [MASK] written out wherever a word is wanted.
    top : how many guesses for each.
    targets : words that are asked about; the guesses are these, all of them. None: the whole vocabulary.
    pieces : most pieces of a guess. For each k up to it, words of k pieces are looked for by a beam search of
        width `top`: a first piece, and k - 1 that begin with "##". All are ordered by their probabilities,
        which take k as given: they compare words of one length best, and favour short ones.

    Raises
    ------
    InputError
        When a text has no [MASK], or is longer than the model's positions; when a target has no pieces in the
        vocabulary or is given twice; when the model has no trained masked-LM head; when the vocabulary is
        larger than the model's. It may be smaller: some models are padded to a round number of ids.
    """
    if isinstance(texts, str):
        raise InputError(f"texts={short(texts)} is one text; give a list of them.")
    for name, value in {"top": top, "pieces": pieces}.items():
        if value < 1:
            raise InputError(f"${name} asks for no guess; give at least 1.", **{name: value})
    if targets and pieces > 1:
        raise InputError("$pieces is for guesses, but targets were given; leave one out.", pieces=pieces)
    words = _target_ids(tokenizer, targets)
    check_vocabulary(model.config, tokenizer)
    require_masked_lm(model)
    found = [tokenizer(text, special=True).ids for text in texts]
    places = [np.flatnonzero(ids == tokenizer.mask_id).tolist() for ids in found]
    wider = max([pieces, *map(len, words.values())]) - 1
    for text, ids, gaps in zip(texts, found, places, strict=True):
        if not gaps:
            raise InputError(f"{text!r} has no [MASK]; write [MASK] where a word is to be guessed.")
        check_length(model, text, len(ids) + wider)
    if not words and pieces == 1:
        logits = token_logits(model, tokenizer, zip(found, places, strict=True))
        return [[_best(tokenizer, row, top) for row in _probabilities(rows)] for rows in logits]

    def guesses(ids: Array, gap: int) -> Guesses:
        ask = partial(_next_pieces, model, tokenizer, ids, gap)
        return _of_targets(ask, words) if words else _likeliest(ask, tokenizer, top, pieces)

    return [[guesses(ids, gap) for gap in gaps] for ids, gaps in zip(found, places, strict=True)]


def fill_masks(model: Bert, tokenizer: Tokenizer, text: str, top: int = 5, **asked: Any) -> list[Guesses]:
    """Predict every [MASK] in one text; arguments and errors are those of `fill_texts`."""
    return fill_texts(model, tokenizer, [text], top, **asked)[0]


def _best(tokenizer: Tokenizer, row: Array, top: int) -> Guesses:
    best = np.argsort(-row, kind="stable")[:top]
    return [Guess(tokenizer.vocab[piece], float(row[piece])) for piece in best]


def _next_pieces(
    model: Bert, tokenizer: Tokenizer, ids: Array, gap: int, begun: Iterable[Begun]
) -> Iterator[Array]:
    """Yield for each begun word the probabilities (V,) of the piece behind those that it has."""
    asked = (
        (
            np.array([*ids[:gap], *has, *[tokenizer.mask_id] * (k - len(has)), *ids[gap + 1 :]]),
            [gap + len(has)],
        )
        for has, k in begun
    )
    return (_probabilities(logits)[0] for logits in token_logits(model, tokenizer, asked))


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


def _target_ids(tokenizer: Tokenizer, targets: Many[str]) -> dict[str, Pieces]:
    """Return the pieces of each target."""
    if isinstance(targets, str):
        raise InputError("$targets is one string; give a list of words.", targets=targets)
    targets = [word.strip() for word in targets]
    words = {word: tuple(tokenizer.encode(word)) for word in targets}
    for number, word in enumerate(targets):
        if not words[word] or tokenizer.unk_id in words[word]:
            raise InputError(
                f"$targets: {word!r} has no pieces in the vocabulary; leave it out.", targets=targets
            )
        if word in targets[:number]:
            raise InputError(f"$targets: {word!r} is given twice; give it once.", targets=targets)
    return words


def fill_mask(
    run: str | Path, text: str, top: int = 5, engine: str = "auto", threads: int | None = None, **asked: Any
) -> list[Guesses]:
    """Run `fill_masks` with the model in a run folder, or in a Hugging Face folder; it raises the same."""
    model = Bert.from_pretrained(run, engine, threads=threads)
    return fill_masks(model, Tokenizer.from_pretrained(run), text, top, **asked)


def held_out_gaps(text: Text, positions: int) -> Iterator[tuple[str, str]]:
    """Yield held-out sentences with [MASK] in place of a word near the middle, and that word.

    One of each document; the word is of three letters or more and whole in the vocabulary. `positions` is the
    longest sequence of the model.
    """
    tokenizer = text.tokenizer
    most = min(MOST_PIECES, positions - 2)

    def is_word(ids: np.ndarray, place: int) -> bool:
        word = tokenizer.vocab[ids[place]]
        return len(word) >= 3 and word.isalpha() and not tokenizer.continuation[ids[place + 1]]

    for document in text.held_out_ids:
        tokens, ends = text.shards.document(int(document))
        for begin, end in pairwise(ends):
            ids, middle = tokens[begin:end], (end - begin) // 2
            places = range(len(ids) - 1) if 6 <= len(ids) <= most else ()
            if words := [place for place in places if is_word(ids, place)]:
                place = min(words, key=lambda place: abs(place - middle))
                word = tokenizer.vocab[ids[place]]
                ids[place] = tokenizer.mask_id
                yield tokenizer.decode(ids), word
                break


def evaluate(
    run: str | Path,
    corpus: tuple[str, ...] = (),
    *,
    layout: str = "auto",
    seq_length: int | None = None,
    targets: int = TARGETS,
    engine: str = "auto",
    threads: int | None = None,
) -> tuple[HeldOut, HeldOut | None]:
    """Evaluate a run on its held-out text, as its report does if it had time for all targets, or on a corpus.

    Parameters
    ----------
    run : a run folder, `RUN@STEP`, or with a corpus any Hugging Face BERT folder.
    corpus : files, folders or globs, read whole; none: the documents that the run held out. One document
        alone, and documents of one sentence each, are measured without next sentences.
    layout : of the corpus.
    seq_length : of the sequences; the longest that the run was trained on, when left out.
    targets : how many [MASK] positions to score.
    engine, threads : the engine.

    Returns
    -------
    The metrics, and those of the same sequences with their contexts shuffled; see `score_shuffled`.

    Raises
    ------
    InputError
        When the folder holds no model, or no held-out documents while no corpus is given; when `seq_length`
        is longer than the model's positions.
    """
    if targets < 1:
        raise InputError("$targets leaves nothing to score; give at least 1.", targets=targets)
    with _measured(run, corpus, layout, engine, threads) as (model, text, options):
        config, ops, tree = model.config, model.ops, model.params.tree
        length = (options.longest if options else min(128, config.P)) if seq_length is None else seq_length
        if length > config.P:
            raise InputError(
                f"$seq_length is longer than the model's {config.P} positions; choose less.",
                seq_length=length,
            )
        mask_id = None if config.is_decoder else text.tokenizer.mask_id
        counts = text.shards.sentence_counts[text.held_out_ids]
        paired = options is None or options.next_sentence
        paired = paired and len(counts) > 1 and counts.max() > 1 and not model.missing
        instances = text.held_out(length, paired, config.is_decoder)
        batches = list(evaluation.evaluation_batches(instances, mask_id, targets))
        plain = evaluation.score(ops, config, tree, batches, mask_id)
        plain = replace(plain, text_unigram=evaluation.entropy_of_counts(text.piece_counts()))
        shuffled = evaluation.score_shuffled(ops, config, tree, batches, text.tokenizer.special_ids, mask_id)
    return plain, shuffled


def evaluate_words(
    run: str | Path,
    corpus: tuple[str, ...] = (),
    *,
    layout: str = "auto",
    engine: str = "auto",
    threads: int | None = None,
) -> WordLoss:
    """Evaluate a run on whole words, in nats per byte; arguments and errors as with `evaluate`."""
    with _measured(run, corpus, layout, engine, threads) as (model, text, _):
        return score_words(model.ops, model.config, model.params.tree, text)


@contextmanager
def _measured(
    run: str | Path, corpus: tuple[str, ...], layout: str, engine: str, threads: int | None
) -> Iterator[tuple[Bert, Text, PretrainOptions | None]]:
    """Load a run and the text that it is to be measured on, for as long as a block takes."""
    name, run = run, folder_of(run)
    no_documents = InputError(f"{run} holds no held-out documents; name a corpus to evaluate on.")
    if not corpus and (run / "config.json").exists() and not (run / "shards").exists():
        raise no_documents  # before a word about heads that are not there either
    model = Bert.from_pretrained(name, engine, threads=threads)
    tokenizer = Tokenizer.from_pretrained(run)
    check_vocabulary(model.config, tokenizer)
    require_masked_lm(model)
    options = PretrainOptions.load(run / "training.json") if (run / "training.json").exists() else None
    with engines.limited_threads(threads, model.ops), tempfile.TemporaryDirectory() as scratch:
        if corpus:  # all of whose documents are held out
            shards = write_shards(sentences(corpus, layout), tokenizer, Path(scratch) / "shards")
            every = np.arange(shards.n_documents)
            parts = every[:0], every
        elif options is None or not (run / "shards").exists():
            raise no_documents
        else:
            shards = open_shards(run / "shards", tokenizer)
            parts = split_documents(shards.n_documents, options.held_out, options.pairs)
        yield model, Text(tokenizer, shards, *parts), options
