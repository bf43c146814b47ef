"""Evaluate a trained run on a text, and make the guesses that its report shows."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from minibert import engines
from minibert.ask.gaps import require_masked_lm
from minibert.ask.inference import Bert
from minibert.base.errors import InputError, warn
from minibert.base.model_names import CONFIG_FILE, folder_of
from minibert.base.options import PRETRAINING_FILE
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

MOST_PIECES = 24  # in an example sentence
DOCUMENT = 20_000  # words after which a document is cut when whole words are measured
COMPARED = 16_000  # words of held-out text on which two models are compared; 15% of them are guessed
SAME_WORDS = 0.01  # at most this share of the guessed words may be unknown to one of two compared models


def held_out_gaps(text: Text, positions: int) -> Iterator[tuple[str, str]]:
    """Yield held-out sentences with [MASK] in place of a word near the middle, and that word.

    Each document gives one sentence at most; the word has three letters or more and is one piece.

    Parameters
    ----------
    text : Text
        The text, with its held-out documents.
    positions : int
        The longest sequence that the model reads.

    Yields
    ------
    sentence, word : str
    """
    tokenizer = text.tokenizer
    most = min(MOST_PIECES, positions - 2)

    def is_word(ids: np.ndarray, position: int) -> bool:
        word = tokenizer.vocab[ids[position]]
        return len(word) >= 3 and word.isalpha() and not tokenizer.continuation[ids[position + 1]]

    for document in text.held_out_ids:
        tokens, ends = text.shards.document(int(document))
        for begin, end in pairwise([0, *ends]):
            ids = tokens[begin:end]
            middle = (end - begin) // 2
            if not 6 <= len(ids) <= most:
                continue
            words = [position for position in range(len(ids) - 1) if is_word(ids, position)]
            if words:
                nearest = min(words, key=lambda position: abs(position - middle))
                word = tokenizer.vocab[ids[nearest]]
                ids[nearest] = tokenizer.mask_id
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
) -> HeldOut:
    """Evaluate a run on its held-out text, like its report if that had time for all targets, or on a corpus.

    Parameters
    ----------
    run : str or Path
        A run folder, `RUN@STEP`, or with a corpus any Hugging Face BERT folder.
    corpus : tuple of str
        Files, folders or globs, which are read completely; by default the documents that the run held out. A
        single document, and documents of one sentence each, are measured without next sentences; so is a
        model with only one segment.
    layout, column : str, default "auto" and "text"
        Layout and column of the corpus, as for `PretrainOptions`.
    seq_length : int, optional
        Length of the sequences; by default the longest of the run, or 128 for other BERTs.
    targets : int, default 20,000
        Number of [MASK] positions to score.
    engine : str, default "auto"
        The engine that computes.
    threads : int, optional
        Number of threads.
    show : bool, default False
        Whether to show progress.

    Returns
    -------
    HeldOut
        Without `shuffled_loss` for a left-to-right model.

    Raises
    ------
    InputError
        When the folder has no model, or neither held-out documents nor a corpus are there; when `seq_length`
        exceeds the model's positions, or `targets` is less than 1.
    """
    if targets < 1:
        raise InputError(f"{targets=} leaves nothing to score; give at least 1.", targets=targets)
    with _loaded(run, corpus, layout, column, engine, threads) as (model, text, options):
        config, ops, tree = model.config, model.ops, model.params.tree
        length = seq_length
        if length is None:
            length = options.longest if options else min(128, config.P)
        if length > config.P:
            message = f"seq_length={length!r} is longer than the model's {config.P} positions; choose less."
            raise InputError(message, seq_length=length)
        mask_id = None if config.is_decoder else text.tokenizer.mask_id
        instances = text.held_out(length, _is_paired(model, text, options), config.is_decoder)
        batches = list(evaluation.evaluation_batches(instances, mask_id, targets))
        special_ids = None if mask_id is None else text.tokenizer.special_ids

        def scored(batches: Iterable[Batch]) -> HeldOut:
            return evaluation.score(ops, config, tree, batches, mask_id)

        metrics = evaluation.score_with_shuffled(scored, batches, special_ids, show)
        text_unigram = evaluation.entropy_of_counts(text.piece_counts())
    return replace(metrics, text_unigram=text_unigram)


def _is_paired(model: Bert, text: Text, options: PretrainOptions | None) -> bool:
    """Return whether next sentences are measured, too: if both the model and the text have pairs."""
    if options is not None and not options.next_sentence:
        return False
    counts = text.shards.sentence_counts[text.held_out_ids]
    if len(counts) < 2 or counts.max() < 2:
        return False
    return not model.missing and model.config.type_vocab_size > 1


def evaluate_words(
    run: str | Path,
    corpus: tuple[str, ...] = (),
    *,
    layout: str = "auto",
    column: str = "text",
    engine: str = "auto",
    threads: int | None = None,
) -> WordLoss:
    """Evaluate a run on whole words, in nats per byte.

    Parameters
    ----------
    run : str or Path
        As for `evaluate`.
    corpus : tuple of str
        As for `evaluate`.
    layout, column : str, default "auto" and "text"
        Layout and column of the corpus.
    engine : str, default "auto"
        The engine that computes.
    threads : int, optional
        Number of threads.

    Returns
    -------
    WordLoss

    Raises
    ------
    InputError
        For the same reasons as `evaluate`.
    """
    with _loaded(run, corpus, layout, column, engine, threads, _short) as (model, text, _):
        return score_words(model.ops, model.config, model.params.tree, text)


def compare_words(
    run: str | Path,
    other: str | Path,
    *,
    threads: int | None = None,
) -> tuple[WordLoss, WordLoss] | None:
    """Evaluate a run and another model on the same whole words, the first of those that the run has held out.

    Parameters
    ----------
    run : str or Path
        The run folder.
    other : str or Path
        The other model, whose vocabulary may differ.
    threads : int, optional
        Number of threads.

    Returns
    -------
    (WordLoss, WordLoss) or None
        Those of the run and of the other model; None if the two know different words.

    Raises
    ------
    InputError
        When the run has no held-out documents, or one of the models can't guess words.
    """
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "held-out.txt"
        with _loaded(run, threads=threads) as (_, text, _):
            lines = _held_out_lines(text, COMPARED)
            path.write_text("\n".join(lines), encoding="utf-8", newline="\n")
        ours, theirs = (
            evaluate_words(model, (str(path),), layout="sentences", threads=threads) for model in (run, other)
        )
    if abs(ours.words - theirs.words) > SAME_WORDS * ours.words:
        return None
    return ours, theirs


def _held_out_lines(text: Text, words: int) -> Iterator[str]:
    """Yield held-out sentences, and an empty line after each document, until there are enough words."""
    for document in text.held_out_ids:
        tokens, ends = text.shards.document(int(document))
        for begin, end in pairwise([0, *ends]):
            yield text.tokenizer.decode(tokens[begin:end])
        yield ""
        words -= int((~text.tokenizer.continuation[tokens]).sum())
        if words <= 0:
            return


def _short(lines: Iterable[str | None]) -> Iterator[str | None]:
    """Cut documents after `DOCUMENT` words, since where shards would cut them depends on the vocabulary."""
    words = 0
    for line in lines:
        yield line
        words = 0 if line is None else words + len(line.split())
        if words >= DOCUMENT:
            yield None
            words = 0


def _warn_of_trained_text(corpus: Sequence[str], options: PretrainOptions, has_held_out: bool) -> None:
    """Warn if a corpus to evaluate on has the name of one that the run was trained on.

    A relative name in the options of the run may be that of a file in another folder.
    """
    trained = {Path(name).resolve(): Path(name).is_absolute() for name in options.corpus}
    same = [name for name in corpus if Path(name).resolve() in trained]
    if not same:
        return
    tells = "its loss there does not tell how it reads new text"
    what = f"The model was trained on '{same[0]}', so {tells}"
    if not trained[Path(same[0]).resolve()]:
        what = f"The model was trained on a text of this name, '{same[0]}'; if it was this one, {tells}"
    advice = "; leave out `corpus` to measure the documents that were held out" if has_held_out else ""
    warn(f"{what}{advice}.")


@contextmanager
def _loaded(
    run: str | Path,
    corpus: tuple[str, ...] = (),
    layout: str = "auto",
    column: str = "text",
    engine: str = "auto",
    threads: int | None = None,
    documents: Callable[[Iterable[str | None]], Iterable[str | None]] = iter,
) -> Iterator[tuple[Bert, Text, PretrainOptions | None]]:
    """Load a run and the text to evaluate it on, which `documents` may cut, for the duration of a block."""
    name = run
    run = folder_of(run)
    no_documents = InputError(f"'{run}' holds no held-out documents; name a corpus to evaluate on.")
    if not corpus and (run / CONFIG_FILE).exists() and not (run / "shards").exists():
        raise no_documents  # before the check of the heads, which may be missing as well
    model = Bert.from_pretrained(name, engine, threads=threads)
    require_masked_lm(model)
    if model.params.decoder is not None:
        what = (
            "has a decoder that is not its word embeddings, and losses of such a model are not measured here"
        )
        raise InputError(f"{name} {what}; ask it with minibert fill-mask and minibert score-text.")
    options = None
    if (run / PRETRAINING_FILE).exists():
        options = PretrainOptions.load(run / PRETRAINING_FILE)
        _warn_of_trained_text(corpus, options, (run / "shards").exists())
    with engines.limited_threads(threads, model.ops), tempfile.TemporaryDirectory() as scratch:
        if corpus:  # all of its documents count as held out
            lines = documents(sentences(corpus, layout, column))
            shards = write_shards(lines, model.tokenizer, Path(scratch) / "shards")
            every = np.arange(shards.n_documents)
            parts = every[:0], every
        elif options is None or not (run / "shards").exists():
            raise no_documents
        else:
            shards = open_shards(run / "shards", model.tokenizer)
            parts = split_documents(shards.n_documents, options.held_out, options.pairs)
        yield model, Text(model.tokenizer, shards, *parts), options
