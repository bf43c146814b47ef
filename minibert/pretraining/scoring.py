"""How likely a pre-trained model finds texts: the pseudo-log-likelihood of every piece, word and sentence."""

import math
from collections.abc import Iterable, Iterator, Sequence as Many
from dataclasses import dataclass
from itertools import chain, islice
from reprlib import repr as short
from typing import Any

import numpy as np

from minibert.errors import InputError
from minibert.inference import BATCH_TOKENS, Bert, check_vocabulary
from minibert.model.batch import Batch, Sequence
from minibert.tokenizer import Encoding, Tokenizer

LOGITS = 1 << 24  # computed at once: 64 MiB in float32
TEXTS_AT_ONCE = 256  # tokenised together
WITHIN_WORD = ("token", "l2r")
Masked = tuple[np.ndarray, Many[int]]  # the ids of a sequence (n,), and positions to predict in it


@dataclass(frozen=True)
class TextScore:
    """The (pseudo-)log-likelihood of a text, in nats."""

    text: str
    words: list[tuple[str, list[tuple[str, float]]]]  # as they stand in the text; their pieces with log p

    @property
    def log_probabilities(self) -> np.ndarray:
        """(n,) float64, log p of each piece; [CLS] and [SEP] are not among them."""
        return np.array([value for _, pieces in self.words for _, value in pieces])

    def to_dict(self) -> dict[str, Any]:
        """Return sums and means, and each word with the sum over its pieces, for JSON."""
        values = self.log_probabilities
        return {
            "text": self.text,
            "log_probability": float(values.sum()),
            "tokens": len(values),
            "mean": float(values.mean()),
            "perplexity": math.exp(min(-float(values.mean()), 700.0)),  # pseudo-, but for left to right
            "words": [
                {"word": word, "log_probability": sum(value for _, value in pieces), "pieces": pieces}
                for word, pieces in self.words
            ],
        }


def score_texts(
    model: Bert, tokenizer: Tokenizer, texts: Iterable[str], within_word: str = "token"
) -> Iterator[TextScore]:
    """Yield the pseudo-log-likelihood of each text: log p of every piece, given all others.

    Each piece is replaced by [MASK] in turn and predicted from the rest (Salazar et al. 2020). A model that
    was trained left to right reads a text once; its scores are those of the chain rule.

    Parameters
    ----------
    model, tokenizer : a pre-trained BERT and its vocabulary.
    texts : what to score; a [MASK] written in them is plain text.
    within_word : "token" masks one piece at a time. The other pieces of a rare word give it away, which then
        seems too likely; "l2r" masks those to the right within the word as well (Kauf & Ivanova 2023).

    Raises
    ------
    InputError
        When `within_word` is neither, a text has no piece or is longer than the model's positions, the
        vocabulary is larger than the model's, or the model has no trained masked-LM head.
    """
    if isinstance(texts, str):
        raise InputError(f"texts={short(texts)} is one text; give a list of them.")
    if within_word not in WITHIN_WORD:
        raise InputError("$within_word is unknown; choose token or l2r.", within_word=within_word)
    check_vocabulary(model.config, tokenizer)
    require_masked_lm(model)
    return _scores(model, tokenizer, iter(texts), within_word)


def _scores(model: Bert, tokenizer: Tokenizer, texts: Iterator[str], within_word: str) -> Iterator[TextScore]:
    while group := list(islice(texts, TEXTS_AT_ONCE)):
        encoded = list(tokenizer.encode_batch(group, offsets=True))
        for text, one in zip(group, encoded, strict=True):
            if len(one) < 3:
                raise InputError(f"{short(text)} has no piece to score; give a text with words in it.")
            check_length(model, text, len(one))
        masked = (_masked(model, one, tokenizer.mask_id, within_word) for one in encoded)
        rows = chain.from_iterable(token_logits(model, tokenizer, chain.from_iterable(masked)))
        for text, one in zip(group, encoded, strict=True):
            words: list[tuple[str, list[tuple[str, float]]]] = []
            for place, row in enumerate(islice(rows, len(one) - 2), 1):
                row = row - row.max()
                value = float(row[one.ids[place]] - np.log(np.exp(row).sum()))
                if one.word_ids[place] != one.word_ids[place - 1]:
                    ends = one.offsets[one.word_ids == one.word_ids[place]]
                    words.append((text[ends[0, 0] : ends[-1, 1]], []))
                words[-1][1].append((one.tokens[place], value))
            yield TextScore(text, words)


def _masked(model: Bert, one: Encoding, mask_id: int, within_word: str) -> Iterator[Masked]:
    """Yield what has to be read for the score of a text: in all, each piece is asked for once, in order."""
    inner = range(1, len(one) - 1)
    if model.config.is_decoder:
        yield one.ids, inner
        return
    for place in inner:
        ids = one.ids.copy()
        ids[place] = mask_id
        if within_word == "l2r":
            ids[place:][one.word_ids[place:] == one.word_ids[place]] = mask_id
        yield ids, [place]


# -> for each sequence (len(positions), V) float64
def token_logits(model: Bert, tokenizer: Tokenizer, asked: Iterable[Masked]) -> Iterator[np.ndarray]:
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
        logits = model.masked_lm_logits(batch, wanted)[:, : tokenizer.vocab_size].astype(np.float64)
        yield from np.split(logits, np.cumsum(counts)[:-1])


def check_length(model: Bert, text: str, length: int) -> None:
    """Raise InputError when a text makes a longer sequence than the model has positions."""
    if length > model.config.P:
        raise InputError(
            f"{short(text)} has {length:,} tokens with [CLS] and [SEP], longer than the model's "
            f"{model.config.P} positions; shorten it, or give its sentences one by one."
        )


def require_masked_lm(model: Bert) -> None:
    """Raise InputError when a model has no trained masked-LM head."""
    lacking = [name for name in model.missing if name.startswith("cls.predictions")]
    if lacking or model.params.head.kind != "pretraining":
        raise InputError(
            "This model has no trained masked-LM head, so its guesses would be noise; use one that was "
            "pre-trained, such as the model that it was fine-tuned from."
        )
