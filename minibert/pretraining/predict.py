"""What a trained run predicts: its metrics on a text, and the gaps that its report shows guesses for."""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from minibert import engines
from minibert.ask.gaps import require_masked_lm
from minibert.ask.inference import Bert
from minibert.base.errors import InputError
from minibert.base.model_names import folder_of
from minibert.core.batch import Batch
from minibert.data.corpus import sentences
from minibert.data.instances import split_documents
from minibert.data.shards.joined import open_shards
from minibert.data.shards.store import write_shards
from minibert.pretraining import evaluation
from minibert.pretraining.evaluation import TARGETS, HeldOut
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.preparation import Text
from minibert.pretraining.whole_words import WordLoss, score_words

MOST_PIECES = 24  # in a sentence that is an example
DOCUMENT = 20_000  # words, after which one ends where whole words are measured


def held_out_gaps(text: Text, positions: int) -> Iterator[tuple[str, str]]:
    """Yield held-out sentences with [MASK] in place of a word near the middle, and that word.

    One of each document; the word has three letters or more and is one piece. The model has `positions`.
    """
    tokenizer = text.tokenizer
    most = min(MOST_PIECES, positions - 2)

    def is_word(ids: np.ndarray, place: int) -> bool:
        word = tokenizer.vocab[ids[place]]
        return len(word) >= 3 and word.isalpha() and not tokenizer.continuation[ids[place + 1]]

    for document in text.held_out_ids:
        tokens, ends = text.shards.document(int(document))
        for begin, end in pairwise([0, *ends]):
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
    column: str = "text",
    seq_length: int | None = None,
    targets: int = TARGETS,
    engine: str = "auto",
    threads: int | None = None,
    show: bool = False,
) -> tuple[HeldOut, HeldOut | None]:
    """Evaluate a run on its held-out text, as its report does if it had time for all targets, or on a corpus.

    Return the metrics, and those of the same sequences with their contexts shuffled: None left to right.
    Raise InputError when the folder holds no model, or no held-out documents while no corpus is given; when
    `seq_length` is longer than the model's positions.

    Parameters
    ----------
    run : a run folder, `RUN@STEP`, or with a corpus any Hugging Face BERT folder.
    corpus : files, folders or globs, read whole; none: the documents that the run held out. One document
        alone, and documents of one sentence each, are measured without next sentences; so is a model that
        knows one segment only.
    layout, column : of the corpus.
    seq_length : of the sequences; when left out, the longest of the run, or for a BERT from elsewhere 128.
    targets : how many [MASK] positions to score.
    engine, threads : what computes.
    show : show how much is done.
    """
    if targets < 1:
        raise InputError("$targets leaves nothing to score; give at least 1.", targets=targets)
    with _measured(run, (corpus, layout, column), engine, threads) as (model, text, options):
        config, ops, tree = model.config, model.ops, model.params.tree
        length = (options.longest if options else min(128, config.P)) if seq_length is None else seq_length
        if length > config.P:
            message = f"$seq_length is longer than the model's {config.P} positions; choose less."
            raise InputError(message, seq_length=length)
        mask_id = None if config.is_decoder else text.tokenizer.mask_id
        counts = text.shards.sentence_counts[text.held_out_ids]
        paired = options is None or options.next_sentence
        paired = paired and len(counts) > 1 and counts.max() > 1 and not model.missing
        paired = paired and config.type_vocab_size > 1
        instances = text.held_out(length, paired, config.is_decoder)
        batches = list(evaluation.evaluation_batches(instances, mask_id, targets))
        special_ids = None if mask_id is None else text.tokenizer.special_ids

        def scored(batches: Iterable[Batch]) -> HeldOut:
            return evaluation.score(ops, config, tree, batches, mask_id)

        plain, shuffled = evaluation.score_with_shuffled(scored, batches, special_ids, show)
        plain = replace(plain, text_unigram=evaluation.entropy_of_counts(text.piece_counts()))
    return plain, shuffled


def evaluate_words(
    run: str | Path,
    corpus: tuple[str, ...] = (),
    *,
    layout: str = "auto",
    column: str = "text",
    engine: str = "auto",
    threads: int | None = None,
) -> WordLoss:
    """Evaluate a run on whole words, in nats per byte; arguments and errors as with `evaluate`."""
    with _measured(run, (corpus, layout, column), engine, threads, _short) as (model, text, _):
        return score_words(model.ops, model.config, model.params.tree, text)


def _short(lines: Iterable[str | None]) -> Iterator[str | None]:
    """End a document after `DOCUMENT` words; where shards would divide one depends on the vocabulary."""
    words = 0
    for line in lines:
        yield line
        words = 0 if line is None else words + len(line.split())
        if words >= DOCUMENT:
            yield None
            words = 0


@contextmanager
def _measured(
    run: str | Path,
    text: tuple[tuple[str, ...], str, str],
    engine: str,
    threads: int | None,
    documents: Callable[[Iterable[str | None]], Iterable[str | None]] = iter,
) -> Iterator[tuple[Bert, Text, PretrainOptions | None]]:
    """Load a run and the text that it is to be measured on, for as long as a block takes."""
    name, run, corpus = run, folder_of(run), text[0]
    no_documents = InputError(f"{run} holds no held-out documents; name a corpus to evaluate on.")
    if not corpus and (run / "config.json").exists() and not (run / "shards").exists():
        raise no_documents  # before a word about heads that are not there either
    model = Bert.from_pretrained(name, engine, threads=threads)
    require_masked_lm(model)
    if model.params.decoder is not None:
        what = "has a decoder that is not its word embeddings, by which losses are not measured here"
        raise InputError(f"{name} {what}; ask it with minibert fill-mask and minibert score-text.")
    options = PretrainOptions.load(run / "training.json") if (run / "training.json").exists() else None
    with engines.limited_threads(threads, model.ops), tempfile.TemporaryDirectory() as scratch:
        if corpus:  # all of whose documents are held out
            shards = write_shards(documents(sentences(*text)), model.tokenizer, Path(scratch) / "shards")
            every = np.arange(shards.n_documents)
            parts = every[:0], every
        elif options is None or not (run / "shards").exists():
            raise no_documents
        else:
            shards = open_shards(run / "shards", model.tokenizer)
            parts = split_documents(shards.n_documents, options.held_out, options.pairs)
        yield model, Text(model.tokenizer, shards, *parts), options
