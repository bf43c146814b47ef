"""Score how likely texts are to a pre-trained model: the pseudo-log-likelihood of pieces and words."""

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
Word = tuple[str, list[tuple[str, float]]]  # as it stands in the text; its pieces with log p


@dataclass(frozen=True)
class TextScore:
    """The (pseudo-)log-likelihood of a text, in nats."""

    text: str
    words: list[Word]

    @property
    def log_probabilities(self) -> NDArray[np.float64]:
        """(n,) float64, log p of each piece; [CLS] and [SEP] are not among them."""
        return np.array([value for _, pieces in self.words for _, value in pieces])

    def to_dict(self) -> dict[str, Any]:
        """Return sums and means, and each word with the sum over its pieces, for JSON."""
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
            "perplexity": math.exp(min(-mean, 700.0)),  # pseudo-, but for left to right
            "words": words,
        }


def score_texts(model: Bert, texts: Iterable[str], within_word: str = "token") -> Iterator[TextScore]:
    """Yield the pseudo-log-likelihood of each text: log p of every piece, given all others.

    Each piece is replaced by [MASK] in turn and predicted from the rest (Salazar et al. 2020). A model that
    was trained left to right reads a text once; its scores are those of the chain rule.

    Parameters
    ----------
    model : Bert
        A pre-trained one that has its vocabulary.
    texts : iterable of str
        What to score, read as it is scored; a [MASK] written in them is plain text.
    within_word : str, default "token"
        "token" masks one piece at a time. The other pieces of a rare word give it away, which then seems too
        likely; "l2r" masks those to the right within the word as well (Kauf & Ivanova 2023).

    Yields
    ------
    TextScore
        Of each text, in order.

    Raises
    ------
    InputError
        When `within_word` is neither, or the model has no vocabulary or no trained masked-LM head; while the
        scores are gone through, when a text has no piece or is longer than the model's positions.
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
    written = WrittenTokens(tokenizer)
    while group := list(islice(texts, TEXTS_AT_ONCE)):
        batch = tokenizer.encode_batch(group, offsets=True)
        written.add(batch)
        encodings = list(batch)
        for text, encoding in zip(group, encodings, strict=True):
            if len(encoding) < 3:
                raise InputError(f"{short(text)} has no piece to score; give a text with words in it.")
            check_length(model, text, len(encoding))
        masked = (_masked(model, encoding, tokenizer.mask_id, within_word) for encoding in encodings)
        all_logits = token_logits(model, chain.from_iterable(masked))
        rows = chain.from_iterable(all_logits)
        for text, encoding in zip(group, encodings, strict=True):
            n_pieces = len(encoding) - 2
            words = _words(text, encoding, islice(rows, n_pieces))
            yield TextScore(text, words)
    written.warn()


def _words(
    text: str,
    encoding: Encoding,
    rows: Iterator[np.ndarray],
) -> list[Word]:
    """Return the words of a text with log p of their pieces, whose logits (V,) come one after another."""
    word_ids = encoding.word_ids
    words: list[Word] = []
    for place, row in enumerate(rows, 1):
        row = row - row.max()
        log_total = np.log(np.exp(row).sum())
        piece = encoding.ids[place]
        log_probability = float(row[piece] - log_total)
        word = word_ids[place]
        if word != word_ids[place - 1]:
            spans = encoding.offsets[word_ids == word]
            begin = spans[0, 0]
            end = spans[-1, 1]
            words.append((text[begin:end], []))
        _, pieces = words[-1]
        pieces.append((encoding.tokens[place], log_probability))
    return words


def _masked(model: Bert, encoding: Encoding, mask_id: int, within_word: str) -> Iterator[Masked]:
    """Yield the masked sequences for the score of a text; each piece is asked for once, in order."""
    inner = range(1, len(encoding) - 1)
    if model.config.is_decoder:
        yield encoding.ids, inner
        return
    for place in inner:
        ids = encoding.ids.copy()
        ids[place] = mask_id
        if within_word == "l2r":
            same_word = encoding.word_ids[place:] == encoding.word_ids[place]
            ids[place:][same_word] = mask_id
        yield ids, [place]
