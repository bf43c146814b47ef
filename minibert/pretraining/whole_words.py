"""Measure the masked-LM loss of whole words in nats per byte, to compare models with different vocabularies.

The usual loss at a [MASK] is that of one piece, and longer pieces are harder to guess. Here all pieces of a
word are [MASK], and the words are the same whatever the vocabulary: text is cut into windows of WINDOW words,
15% of which are drawn; the negative log-likelihoods of their pieces are added up and divided by their bytes.
The number of [MASK]s still reveals how many pieces a word has.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from minibert.base.errors import InputError
from minibert.core.arrays import Array
from minibert.core.batch import Batch, Sequence
from minibert.core.config import BertConfig
from minibert.pretraining import evaluation
from minibert.pretraining.preparation import HELD_OUT_SEED, Text
from minibert.tokenizer import Tokenizer

WINDOW = 32  # words of a document that are read together
SHARE = 0.15  # of the words in a window are guessed
WORDS = 10_000  # to guess; a short text has fewer


@dataclass(frozen=True)
class WordLoss:
    """How well the words of a text are guessed."""

    nats_per_byte: float
    words: int  # number of words guessed
    bytes: int  # their bytes in UTF-8, after the tokenizer's normalisation
    pieces: int  # their pieces


def score_words(
    ops: Any,
    config: BertConfig,
    params: Any,
    text: Text,
) -> WordLoss:
    """Measure the loss of whole words on the held-out documents of a text, in nats per byte.

    Words that are [UNK] are read but not guessed; a window that is too long for the model loses its end. The
    draws depend only on how many words there are, so two vocabularies are tested on the same words.

    Parameters
    ----------
    ops : Ops
        The engine.
    config : BertConfig
        The shape of the model.
    params : dict
        Parameters of the model, as a tree.
    text : Text
        The text, cut by the model's tokenizer.

    Returns
    -------
    WordLoss

    Raises
    ------
    InputError
        When there is nothing to guess, or the model reads from left to right.
    """
    if config.is_decoder:
        raise InputError(
            "A left-to-right model can't fill a [MASK]; measure whole words with a masked model."
        )
    guessed: list[int] = []  # the bytes of each word
    batches = list(_batches(text, config.P, guessed))
    if not guessed:
        raise InputError("The text has no words to guess, other than [UNK]; give more.")
    metrics = evaluation.score(ops, config, params, batches, text.tokenizer.mask_id)
    n_pieces = metrics.targets
    n_bytes = sum(guessed)
    return WordLoss(metrics.loss * n_pieces / n_bytes, len(guessed), n_bytes, n_pieces)


def _batches(text: Text, positions: int, guessed: list[int]) -> Iterator[Batch]:
    """Yield windows with [MASK] for words until there are enough; add the bytes of the words to `guessed`."""
    waiting: list[Sequence] = []
    n_targets = 0
    for tokens, borders, draws in _windows(text):
        if n_targets >= WORDS:
            break
        n_words = len(borders) - 1
        count = max(1, round(SHARE * n_words))
        drawn = np.sort(draws.permutation(n_words)[:count])
        n_targets += len(drawn)
        waiting.append(_masked(text.tokenizer, tokens, borders, drawn, positions - 2, guessed))
        if sum(len(sequence.input_ids) for sequence in waiting) >= evaluation.BATCH_TOKENS:
            yield Batch.pack(waiting)
            waiting = []
    if waiting:
        yield Batch.pack(waiting)


# -> tokens (n,) of a document, borders (w+1,) of words in them
def _windows(text: Text) -> Iterator[tuple[np.ndarray, np.ndarray, np.random.Generator]]:
    """Yield the windows of a text, its documents in random order, each with its own source of draws."""
    order = np.random.default_rng(HELD_OUT_SEED).permutation(text.held_out_ids)
    for document in order.tolist():
        tokens, _ = text.shards.document(document)
        begins_word = ~text.tokenizer.continuation[tokens]
        borders = np.append(np.flatnonzero(begins_word), len(tokens))
        n_words = len(borders) - 1
        for first in range(0, n_words, WINDOW):
            last = first + WINDOW
            draws = np.random.default_rng([HELD_OUT_SEED, document, first])
            yield tokens, borders[first : last + 1], draws


# tokens (n,)  borders (w+1,) of words in them  drawn (k,)
def _masked(
    tokenizer: Tokenizer,
    tokens: Array,
    borders: Array,
    drawn: Array,
    room: int,
    guessed: list[int],
) -> Sequence:
    """Return [CLS] words [SEP] with the drawn words as [MASK]; words beyond the room are left out."""
    begin = borders[0]
    end = borders[borders - begin <= room][-1]
    ids = np.array([tokenizer.cls_id, *tokens[begin:end], tokenizer.sep_id], np.int32)
    rows: list[int] = []
    skipped = tokenizer.special_ids  # [UNK], and special tokens that are written in the text
    for first, last in zip(borders[drawn], borders[drawn + 1], strict=True):
        if last <= end and tokens[first] not in skipped:
            word = tokenizer.decode(tokens[first:last])
            guessed.append(len(word.encode()))
            rows += range(1 + first - begin, 1 + last - begin)
    labels = ids[rows]
    ids[rows] = tokenizer.mask_id
    return Sequence(ids, np.zeros_like(ids), np.array(rows, np.int32), labels)
