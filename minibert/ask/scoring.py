"""Score how likely texts are under a pre-trained model: the pseudo-log-likelihood of pieces and words."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from reprlib import repr as short
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minibert.ask.gaps import Masked, check_length, require_masked_lm, token_logits
from minibert.ask.inference import Bert
from minibert.base.errors import InputError
from minibert.tokenizer import Encoding, Tokenizer
from minibert.tokenizer.written import WrittenTokens

TEXTS_AT_ONCE = 256  # tokenised together
LARGEST_EXPONENT = 700.0  # exp of it is about 1e304, close to the largest float64
Word = tuple[str, list[tuple[str, float]]]  # the word as it is written in the text; its pieces with log p


@dataclass(frozen=True)
class TextScore:
    """The (pseudo-)log-likelihood of a text, in nats.

    Attributes
    ----------
    text : str
        The text as it was given.
    words : list of (str, list of (str, float))
        Each word as it is written, and its pieces, each with its log p in nats.
    """

    text: str
    words: list[Word]

    @property
    def log_probabilities(self) -> NDArray[np.float64]:
        """Return (n,) float64, log p of each piece in nats, without [CLS] and [SEP]."""
        return np.array([value for _, pieces in self.words for _, value in pieces])

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON: the sum and the mean over the text, and the sum over each word.

        Returns
        -------
        dict
            `text`; `log_probability`, the sum over the pieces; `tokens`, their number; `mean`; `perplexity`,
            which is exp(-mean); and `words`, each with its own sum.
        """
        values = self.log_probabilities
        mean = float(values.mean())
        words = []
        for word, pieces in self.words:
            total = sum(value for _, value in pieces)
            words.append({"word": word, "log_probability": total, "pieces": pieces})
        return {
            "text": self.text,
            "log_probability": float(values.sum()),
            "tokens": len(values),
            "mean": mean,
            # The pseudo-perplexity; for a left-to-right model, the perplexity.
            "perplexity": math.exp(min(-mean, LARGEST_EXPONENT)),
            "words": words,
        }


def score_texts(model: Bert, texts: Iterable[str], within_word: str = "token") -> Iterator[TextScore]:
    """Yield the pseudo-log-likelihood of each text: log p of every piece, given all others.

    Each piece is replaced by [MASK] in turn and predicted from the others (Salazar et al. 2020). A
    left-to-right model reads a text only once, and its scores follow the chain rule.

    Parameters
    ----------
    model : Bert
        A pre-trained model that has its vocabulary.
    texts : iterable of str
        The texts, which are read while the scores are computed. A [MASK] in a text is read as plain text.
    within_word : str, default "token"
        "token" masks one piece at a time. A rare word then seems too likely, since its other pieces give it
        away. "l2r" masks the pieces to the right within the same word as well (Kauf & Ivanova 2023).

    Yields
    ------
    TextScore
        The score of each text, in order.

    Raises
    ------
    InputError
        When `within_word` is unknown, or the model has no vocabulary or no trained masked-LM head; during
        the iteration, when a text has no pieces or is longer than the model's positions.
    """
    if isinstance(texts, str):
        raise InputError(f"texts={short(texts)} is one text; give a list of them.")
    if within_word not in ("token", "l2r"):
        raise InputError(f"{within_word=} is unknown; choose token or l2r.", within_word=within_word)
    require_masked_lm(model)
    return _scores(model, model.tokenizer, iter(texts), within_word)


def _scores(
    model: Bert,
    tokenizer: Tokenizer,
    texts: Iterator[str],
    within_word: str,
) -> Iterator[TextScore]:
    """Yield the scores of texts, after `score_texts` has checked its arguments."""
    written = WrittenTokens(tokenizer)
    while chunk := list(islice(texts, TEXTS_AT_ONCE)):
        batch = tokenizer.encode_batch(chunk, offsets=True)
        written.add(batch)
        encodings = list(batch)
        for text, encoding in zip(chunk, encodings, strict=True):
            if len(encoding) < 3:  # [CLS] and [SEP] alone
                raise InputError(f"{short(text)} has no piece to score; give a text with words in it.")
            check_length(model, text, len(encoding))
        masked = (_masked(model, encoding, tokenizer.mask_id, within_word) for encoding in encodings)
        all_logits = token_logits(model, chain.from_iterable(masked))
        rows = chain.from_iterable(all_logits)
        for text, encoding in zip(chunk, encodings, strict=True):
            n_pieces = len(encoding) - 2  # without [CLS] and [SEP]
            words = _words(text, encoding, islice(rows, n_pieces))
            yield TextScore(text, words)
    written.warn()


def _words(
    text: str,
    encoding: Encoding,
    rows: Iterator[np.ndarray],
) -> list[Word]:
    """Return the words of a text with log p of their pieces; `rows` are the logits (V,) of each piece."""
    word_ids = encoding.word_ids
    words: list[Word] = []
    for position, row in enumerate(rows, 1):  # [CLS] is at position 0
        row = row - row.max()
        log_total = np.log(np.exp(row).sum())
        piece = encoding.ids[position]
        log_probability = float(row[piece] - log_total)
        word = word_ids[position]
        if word != word_ids[position - 1]:
            spans = encoding.offsets[word_ids == word]
            begin = spans[0, 0]
            end = spans[-1, 1]
            words.append((text[begin:end], []))
        _, pieces = words[-1]
        pieces.append((encoding.tokens[position], log_probability))
    return words


def _masked(model: Bert, encoding: Encoding, mask_id: int, within_word: str) -> Iterator[Masked]:
    """Yield the sequences in which each piece of a text is predicted, in order."""
    positions = range(1, len(encoding) - 1)  # without [CLS] and [SEP]
    if model.config.is_decoder:  # it predicts each piece from those before, so nothing needs a mask
        yield encoding.ids, positions
        return
    for position in positions:
        ids = encoding.ids.copy()
        ids[position] = mask_id
        if within_word == "l2r":
            same_word = encoding.word_ids[position:] == encoding.word_ids[position]
            ids[position:][same_word] = mask_id
        yield ids, [position]
