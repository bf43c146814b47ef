"""Pre-train a BERT on a text: the whole way in one file, to read from top to bottom.

    python -m minibert.core                                     the books in the package
    python -m minibert.core book.txt --minutes 2 --out model    your own text, one sentence per line

Every step is a function in this folder, in NumPy alone: documents and sentences, word pieces, pairs, masks, a
batch, forward, backward, update. `minibert pretrain` does the same with faster engines and more data.
"""

import argparse
import itertools
import lzma
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence as AnySequence
from contextlib import suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryFile
from typing import TypeAlias

import numpy as np

from minibert.core.batch import Batch, Sequence
from minibert.core.bert import encoder, pretraining_loss
from minibert.core.config import BertConfig
from minibert.core.draws import key
from minibert.core.folder import save_folder
from minibert.core.masks import choose_positions, replace_tokens
from minibert.core.ops import Ops
from minibert.core.optim import AdamW
from minibert.core.pairs import Document, Pair, contiguous_spans, sentence_pairs
from minibert.core.params import Parameters, initialise
from minibert.core.step import HostSteps, MaskedAndNext
from minibert.core.wordpiece import SPECIAL_TOKENS, encode, learn, split_words

Documents: TypeAlias = AnySequence[Document]

BOOKS = Path(__file__).parents[1] / "corpora" / "books.txt.xz"
PAD, UNK, CLS, SEP, MASK = range(len(SPECIAL_TOKENS))

SIZE = "2-128-4"  # layers, hidden size, heads
VOCAB_SIZE, COMMON_WORDS = 1_000, 2_000  # pieces, learnt from so many frequent words
STEPS, TOKENS_PER_STEP = 9_000, 400
LEARNING_RATE, WARMUP = 2e-3, 0.05  # the highest rate, and the share of the run over which it rises
# Tokens per sequence, and the share of the run at which this stage ends. Attention learns where to look more
# easily in short sequences, which have few tokens to choose from. From PAIR_LENGTH on there are two segments.
STAGES = ((10, 0.25), (16, 0.45), (32, 1.0))
PAIR_LENGTH = 32
MASKED_SHARE, SHORT_SHARE = 0.15, 0.1
HELD_OUT = 20  # every 20th document is held out
HELD_OUT_SEQUENCES = 1_000
SEED = 1
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}  # no text is repeated often
SENTENCES = (
    "The heaven and the [MASK].",
    "She was very [MASK] to see him.",
    "The white [MASK] swam round the ship.",
)


def main() -> None:
    """Read a text, learn pieces, tokenize, train, evaluate on held-out text, and fill in some masks."""
    about = "Pre-train a BERT on a text, in NumPy alone."
    parser = argparse.ArgumentParser(prog="python -m minibert.core", description=about)
    parser.add_argument("text", nargs="?", type=Path, default=BOOKS, help="blank lines divide its documents")
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument("--steps", type=above_zero(int), default=STEPS, help="updates (default: %(default)s)")
    extent.add_argument(
        "--minutes", type=above_zero(float), help="length of the training, instead of --steps"
    )
    parser.add_argument("--out", type=Path, help="folder to write the model to")
    options = parser.parse_args()

    # Text: documents are lists of sentences, first of words, then of pieces.
    documents = read_documents(options.text)
    if options.out:
        make_folder(options.out)  # now, as a model without a folder would be lost
    counts = Counter(word for document in documents for sentence in document for word in sentence)
    report(f"{len(documents):,} documents, {counts.total():,} words.")
    report(f"Learning {VOCAB_SIZE:,} pieces of the {COMMON_WORDS:,} most frequent words: some 20 seconds.")
    vocab = learn(dict(counts.most_common(COMMON_WORDS)), VOCAB_SIZE)
    ids = {piece: number for number, piece in enumerate(vocab)}
    encoded = [[encode_words(sentence, ids) for sentence in document] for document in documents]
    training = [document for number, document in enumerate(encoded, 1) if number % HELD_OUT]
    held_out = encoded[HELD_OUT - 1 :: HELD_OUT]

    # Model: its output bias starts at the log-frequencies of the pieces, which saves a hundred steps.
    log_unigram = log_frequencies(training, len(vocab))
    config = BertConfig.from_size(SIZE, vocab_size=len(vocab), max_position_embeddings=128, **NO_DROPOUT)
    params = initialise(config, SEED)
    params["mlm.output_bias"][...] = log_unigram
    optimizer = AdamW(params.flat, params.decayed)
    steps = HostSteps(Ops(), params, optimizer, MaskedAndNext(config, SEED))
    report(f"{params.count():,} parameters, {sum(map(token_count, training)):,} tokens of text")

    # Training, until it is done or Ctrl-C.
    streams = {length: sequences(training, length, SEED, len(vocab)) for length, _ in STAGES}
    begin = reported = time.monotonic()
    step = tokens = 0
    with suppress(KeyboardInterrupt):
        while (done := progress(options, step, time.monotonic() - begin)) < 1:
            length = next(length for length, until in STAGES if done < until)
            batch = Batch.pack(list(itertools.islice(streams[length], TOKENS_PER_STEP // length)))
            rate = LEARNING_RATE * min(done / WARMUP, (1 - done) / (1 - WARMUP))  # a rise, then a decay to 0
            metrics = steps.step((batch,), step, rate)
            step, tokens = step + 1, tokens + batch.T
            now = time.monotonic()
            if now - reported > 2:
                left = (now - begin) * (1 - done) / max(done, 1e-9)
                speed = tokens / (now - begin)
                rates = f"{speed:,.0f} tokens/s  {left:.0f} s left"
                loss = metrics["mlm_loss"]
                report(f"step {step:,}  {length} tokens  loss {loss:.2f}  {rates}")
                reported = now

    # Results on text that the model has not seen.
    loss, unigram, count = held_out_loss(config, params, held_out, log_unigram)
    report(f"{step:,} steps, {tokens:,} tokens.")
    report(f"On {count:,} hidden tokens of other documents: {loss:.2f} nats,")
    report(f"{unigram - loss:.2f} under the {unigram:.2f} that the frequencies of the pieces alone give.")
    for sentence in SENTENCES:
        report(f"  {sentence}\n      {'  '.join(guesses(config, params, sentence, vocab))}")
    if options.out:
        save_folder(options.out, config, params, vocab)
        report(f"The model is in {options.out}.")


def above_zero(kind: type[int] | type[float]) -> Callable[[str], float]:
    """Return an argparse type for numbers above 0.

    Parameters
    ----------
    kind : type
        int or float.

    Returns
    -------
    callable
        Converts a string to the number; raises ArgumentTypeError if it is not a number above 0.
    """

    def read(text: str) -> float:
        try:
            number = kind(text)
        except ValueError:
            number = 0
        if not number > 0:
            raise argparse.ArgumentTypeError(f"{text!r} is not possible; give a number above 0")
        return number

    return read


def read_documents(path: Path) -> list[list[list[str]]]:
    """Read the documents of a text, xz-compressed or not: lists of sentences, which are lists of words.

    Parameters
    ----------
    path : UTF-8 text with one sentence per line and blank lines between documents, and line ends of any
        system; a text without blank lines is cut into documents of fifty sentences.

    Raises
    ------
    SystemExit
        When the file is not such a text, or has fewer than forty documents, too few to hold any out.
    """
    opened = lzma.open if path.suffix == ".xz" else open
    try:
        with opened(path, "rt", encoding="utf-8-sig") as file:
            text = file.read()
    except (OSError, EOFError, lzma.LZMAError, UnicodeDecodeError) as error:
        raise SystemExit(f"{path} cannot be read ({error}); give a text in UTF-8.") from error
    parts = [document.splitlines() for document in re.split(r"\n\s*\n", text)]
    if len(parts) < 2:
        lines = parts[0]
        parts = [lines[begin : begin + 50] for begin in range(0, len(lines), 50)]
    documents = []
    for part in parts:
        document = [split_words(line) for line in part]
        document = [words for words in document if words]
        if document:
            documents.append(document)
    if len(documents) < 2 * HELD_OUT:
        raise SystemExit(f"{path} has {len(documents)} documents; give a text of at least {2 * HELD_OUT}.")
    return documents


def make_folder(folder: Path) -> None:
    """Make a folder unless it exists, and check that files can be written into it.

    Parameters
    ----------
    folder : the folder; its parents are made as well.

    Raises
    ------
    SystemExit
        When it cannot be made, or is closed to writing.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()
    except OSError as error:
        raise SystemExit(f"{folder} cannot be written to ({error.strerror}); name another folder.") from error


def encode_words(words: list[str], ids: dict[str, int]) -> list[int]:
    """Cut the words of a sentence into pieces, and return their ids.

    Parameters
    ----------
    words : words of one sentence.
    ids : id of each piece.
    """
    return [piece for word in words for piece in encode(word, ids)]


# -> (V,)
def log_frequencies(documents: Documents, vocab_size: int) -> np.ndarray:
    """Return the log-frequency of each piece in a text, after adding one to every count.

    Parameters
    ----------
    documents : lists of sentences of ids.
    vocab_size : V, number of pieces.

    Returns
    -------
    (V,) nats, all below zero.
    """
    counts = np.ones(vocab_size)
    for document in documents:
        for sentence in document:
            np.add.at(counts, sentence, 1)
    return np.log(counts / counts.sum())


def token_count(document: Document) -> int:
    """Count the pieces of a document.

    Parameters
    ----------
    document : sentences of ids.
    """
    return sum(map(len, document))


def sequences(
    documents: Documents,
    length: int,
    seed: int,
    vocab_size: int,
) -> Iterator[Sequence]:
    """Yield shuffled sequences of at most `length` tokens forever, with new pairs and masks in every epoch.

    Parameters
    ----------
    documents : lists of sentences of ids.
    length : most tokens in a sequence, including special tokens.
    seed : seed of all draws.
    vocab_size : number of ids from which random tokens are drawn.

    Yields
    ------
    Sequence with masked positions and their labels.
    """
    rng = Random(key(seed, length))
    pool: list[Sequence] = []  # so that neighbours in the text don't end up in one batch
    for epoch in itertools.count():
        for number in rng.sample(range(len(documents)), len(documents)):
            document_key = key(seed, length, epoch, number)
            pairs = spans(documents, number, length, Random(document_key))
            for place, pair in enumerate(pairs):
                pool.append(hide(pair, key(document_key, place), vocab_size))
            while len(pool) > 4_000:
                place = rng.randrange(len(pool))
                pool[place], pool[-1] = pool[-1], pool[place]
                yield pool.pop()


def spans(
    documents: Documents,
    number: int,
    length: int,
    rng: Random,
) -> Iterator[Pair]:
    """Divide a document into pairs of segments or, for short sequences, into single segments.

    Parameters
    ----------
    documents : all documents; half of the time segment B comes from another one.
    number : index of the document to divide.
    length : most tokens in a sequence, including special tokens.
    rng : source of all draws.
    """
    if length < PAIR_LENGTH:
        return contiguous_spans(documents[number], length - 2, SHORT_SHARE, rng)
    return sentence_pairs(number, documents, length - 3, SHORT_SHARE, rng)


def hide(pair: Pair, draw_key: int, vocab_size: int) -> Sequence:
    """Lay out `[CLS] A [SEP] B [SEP]`, choose 15% of its positions and mask the tokens there.

    Parameters
    ----------
    pair : the segments; without a segment B there is no second [SEP].
    draw_key : key that determines all draws.
    vocab_size : number of ids from which random tokens are drawn.
    """
    segment_a = [CLS, *pair.a, SEP]
    segment_b = [*pair.b, SEP] if pair.b else []
    ids = np.array(segment_a + segment_b)
    segments = np.repeat([0, 1], [len(segment_a), len(segment_b)])
    candidates = np.flatnonzero((ids != CLS) & (ids != SEP))
    n_masked = max(1, round(MASKED_SHARE * len(ids)))
    positions = choose_positions(draw_key, candidates, n_masked)
    labels = ids[positions]
    ids[positions] = replace_tokens(draw_key, labels, positions, MASK, vocab_size)
    return Sequence(ids, segments, positions, labels, pair.label)


def progress(options: argparse.Namespace, step: int, seconds: float) -> float:
    """Return the share of the training that is done, measured in minutes or in steps.

    Parameters
    ----------
    options : options of the command line: `minutes`, or else `steps`.
    step : number of updates so far.
    seconds : seconds of training so far.

    Returns
    -------
    float, 1 or more at the end.
    """
    if options.minutes:
        return seconds / (60 * options.minutes)
    return step / options.steps


def held_out_loss(
    config: BertConfig,
    params: Parameters,
    documents: Documents,
    log_unigram: np.ndarray,
) -> tuple[float, float, int]:
    """Return the masked-LM loss on held-out text, next to that of the frequencies of the pieces alone.

    Parameters
    ----------
    config, params : the model.
    documents : documents that it was not trained on.
    log_unigram : (V,) log-frequencies of the pieces in the training text.

    Returns
    -------
    loss : float, nats per masked token, from the model.
    unigram : float, nats per masked token, from the frequencies alone.
    count : int, number of masked tokens.
    """
    stream = sequences(documents, STAGES[-1][0], SEED, config.V)
    losses, labels = [], []
    for _ in range(HELD_OUT_SEQUENCES // 50):
        batch = Batch.pack(list(itertools.islice(stream, 50)))
        result, _ = pretraining_loss(Ops(), config, params.tree, batch)
        losses.append(result.mlm_nll)
        labels.append(batch.masked_labels)
    targets = np.concatenate(labels)
    loss = np.concatenate(losses).mean()
    unigram = -log_unigram[targets].mean()
    return float(loss), float(unigram), len(targets)


def guesses(
    config: BertConfig,
    params: Parameters,
    sentence: str,
    vocab: list[str],
) -> list[str]:
    """Return the five most probable pieces at the [MASK] of a sentence, with their probabilities.

    Parameters
    ----------
    config, params : the model.
    sentence : text with one "[MASK]".
    vocab : pieces, in the order of their ids.

    Returns
    -------
    list of five strings, such as "sea 12%".
    """
    ids = {piece: number for number, piece in enumerate(vocab)}
    before, after = [encode_words(split_words(part), ids) for part in sentence.split("[MASK]")]
    tokens = np.array([CLS, *before, MASK, *after, SEP])
    position = np.array([1 + len(before)])
    segments = np.zeros_like(tokens)
    batch = Batch.pack([Sequence(tokens, segments, position, tokens[position])])
    ops = Ops()
    tree = params.tree
    x, _ = encoder(ops, config, tree, batch)
    logits, _ = ops.masked_lm_logits(x, batch.masked_rows, tree["mlm"], tree["embeddings"]["word"], config)
    probabilities = np.exp(logits[0] - logits[0].max())
    probabilities /= probabilities.sum()
    best = np.argsort(-probabilities)[:5]
    return [f"{vocab[number]} {probabilities[number]:.0%}" for number in best]


def report(line: str) -> None:
    """Print a line immediately, without buffering.

    Parameters
    ----------
    line : the text.
    """
    print(line, flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:  # before or after the training, which ends with its results instead
        sys.exit(130)
