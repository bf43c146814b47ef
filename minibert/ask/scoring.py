"""How likely a pre-trained model finds texts: the pseudo-log-likelihood of every piece, word and sentence."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from reprlib import repr as short
from typing import Any

import numpy as np

from minibert.ask.gaps import Masked, check_length, require_masked_lm, token_logits
from minibert.ask.inference import Bert
from minibert.base.errors import InputError
from minibert.tokenizer import Encoding, Tokenizer
from minibert.tokenizer.written import WrittenTokens

TEXTS_AT_ONCE = 256  # tokenised together


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


def score_texts(model: Bert, texts: Iterable[str], within_word: str = "token") -> Iterator[TextScore]:
    """Yield the pseudo-log-likelihood of each text: log p of every piece, given all others.

    Each piece is replaced by [MASK] in turn and predicted from the rest (Salazar et al. 2020). A model that
    was trained left to right reads a text once; its scores are those of the chain rule.

    Raise InputError when `within_word` is neither, a text has no piece or is longer than the model's
    positions, or the model has no vocabulary or no trained masked-LM head.

    Parameters
    ----------
    texts : what to score; a [MASK] written in them is plain text.
    within_word : "token" masks one piece at a time. The other pieces of a rare word give it away, which then
        seems too likely; "l2r" masks those to the right within the word as well (Kauf & Ivanova 2023).
    """
    if isinstance(texts, str):
        raise InputError(f"texts={short(texts)} is one text; give a list of them.")
    if within_word not in ("token", "l2r"):
        raise InputError("$within_word is unknown; choose token or l2r.", within_word=within_word)
    require_masked_lm(model)
    return _scores(model, model.tokenizer, iter(texts), within_word)


def _scores(model: Bert, tokenizer: Tokenizer, texts: Iterator[str], within_word: str) -> Iterator[TextScore]:
    written = WrittenTokens(tokenizer)
    while group := list(islice(texts, TEXTS_AT_ONCE)):
        batch = tokenizer.encode_batch(group, offsets=True)
        written.add(batch)
        encoded = list(batch)
        for text, one in zip(group, encoded, strict=True):
            if len(one) < 3:
                raise InputError(f"{short(text)} has no piece to score; give a text with words in it.")
            check_length(model, text, len(one))
        masked = (_masked(model, one, tokenizer.mask_id, within_word) for one in encoded)
        rows = chain.from_iterable(token_logits(model, chain.from_iterable(masked)))
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
    written.warn()


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
