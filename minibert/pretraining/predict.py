"""What a trained run predicts: guesses for [MASK], and its metrics on a text."""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from minibert import engines
from minibert.data.corpus import sentences
from minibert.data.instances import split_documents
from minibert.data.shards.joined import open_shards
from minibert.data.shards.store import write_shards
from minibert.errors import InputError
from minibert.inference import Bert, check_vocabulary
from minibert.pretraining import evaluation
from minibert.pretraining.evaluation import TARGETS, HeldOut
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.preparation import Text
from minibert.tokenizer import Tokenizer

MOST_PIECES = 24  # in a sentence that is an example


class Guess(NamedTuple):
    """One piece for a gap."""

    token: str
    probability: float


Guesses = list[Guess]  # the likeliest first


def fill_masks(model: Bert, tokenizer: Tokenizer, text: str, top: int = 5) -> list[Guesses]:
    """Predict every [MASK] in a text; a model trained left to right knows what is before it.

    Parameters
    ----------
    model, tokenizer : a trained BERT and its vocabulary.
    text : with [MASK] written out wherever a word is wanted.
    top : how many guesses for each.

    Raises
    ------
    InputError
        When the text has no [MASK], or is longer than the model's positions; when the model has no trained
        masked-LM head; when the vocabulary is larger than the model's. It may be smaller: some models are
        padded to a round number of ids.
    """
    if top < 1:
        raise InputError("$top asks for no guess; give at least 1.", top=top)
    check_vocabulary(model.config, tokenizer)
    _require_masked_lm(model)
    encoding = tokenizer(text, special=True)
    rows = np.flatnonzero(encoding.ids == tokenizer.mask_id)
    if not len(rows):
        raise InputError(f"{text!r} has no [MASK]; write [MASK] where a word is to be guessed.")
    asked = rows - 1 if model.config.is_decoder else rows  # left to right, each token predicts the next
    logits = model.masked_lm_logits(encoding, asked)[:, : tokenizer.vocab_size].astype(np.float64)
    probabilities = np.exp(logits - logits.max(-1, keepdims=True))
    probabilities /= probabilities.sum(-1, keepdims=True)
    best = np.argsort(-probabilities, axis=-1, kind="stable")[:, :top]
    return [
        [Guess(tokenizer.vocab[piece], float(row[piece])) for piece in pieces]
        for row, pieces in zip(probabilities, best, strict=True)
    ]


def _require_masked_lm(model: Bert) -> None:
    lacking = [name for name in model.missing if name.startswith("cls.predictions")]
    if lacking or model.params.head.kind != "pretraining":
        raise InputError(
            "This model has no trained masked-LM head, so its guesses would be noise; use one that was "
            "pre-trained, such as the model that it was fine-tuned from."
        )


def fill_mask(
    run: str | Path, text: str, top: int = 5, engine: str = "auto", threads: int | None = None
) -> list[Guesses]:
    """Run `fill_masks` with the model in a run folder, or in a Hugging Face folder; it raises the same."""
    model = Bert.from_pretrained(run, engine, threads=threads)
    return fill_masks(model, Tokenizer.from_pretrained(run), text, top)


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
    run : a run folder, or with a corpus any Hugging Face BERT folder.
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
    run = Path(run)
    no_documents = InputError(f"{run} holds no held-out documents; name a corpus to evaluate on.")
    if not corpus and (run / "config.json").exists() and not (run / "shards").exists():
        raise no_documents  # before a word about heads that are not there either
    model = Bert.from_pretrained(run, engine, threads=threads)
    config, ops, tree = model.config, model.ops, model.params.tree
    tokenizer = Tokenizer.from_pretrained(run)
    check_vocabulary(model.config, tokenizer)
    _require_masked_lm(model)
    options = PretrainOptions.load(run / "training.json") if (run / "training.json").exists() else None
    length = (options.longest if options else min(128, config.P)) if seq_length is None else seq_length
    if length > config.P:
        raise InputError(
            f"$seq_length is longer than the model's {config.P} positions; choose less.", seq_length=length
        )
    mask_id = None if config.is_decoder else tokenizer.mask_id
    paired = options is None or options.next_sentence
    with engines.limited_threads(threads, ops), tempfile.TemporaryDirectory() as scratch:
        if corpus:  # all of whose documents are held out
            shards = write_shards(sentences(corpus, layout), tokenizer, Path(scratch) / "shards")
            every = np.arange(shards.n_documents)
            parts = every[:0], every
        elif options is None or not (run / "shards").exists():
            raise no_documents
        else:
            shards = open_shards(run / "shards", tokenizer)
            parts = split_documents(shards.n_documents, options.held_out, options.pairs)
        text = Text(tokenizer, shards, *parts)
        counts = shards.sentence_counts[text.held_out_ids]
        paired = paired and len(counts) > 1 and counts.max() > 1 and not model.missing
        instances = text.held_out(length, paired, config.is_decoder)
        batches = list(evaluation.evaluation_batches(instances, mask_id, targets))
        plain = evaluation.score(ops, config, tree, batches, mask_id)
        plain = replace(plain, text_unigram=evaluation.entropy_of_counts(text.piece_counts()))
        shuffled = evaluation.score_shuffled(ops, config, tree, batches, tokenizer.special_ids, mask_id)
    return plain, shuffled
