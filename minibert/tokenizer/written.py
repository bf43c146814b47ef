"""Count BERT's special tokens that are written out in data, and warn about them.

A "[SEP]" in a text becomes the piece [SEP], as in Hugging Face's tokenizers. In scraped text, or text about
BERT, that is seldom intended: code that reads data counts such tokens here, and warns once.
"""

from collections import Counter
from typing import Any

import numpy as np

from minibert.base.errors import warn
from minibert.base.terminal import counted
from minibert.core.arrays import Array
from minibert.core.wordpiece import SPECIAL_TOKENS
from minibert.tokenizer.encoding import BatchEncoding


class WrittenTokens:
    """Count BERT's special tokens in encoded texts, except the [CLS] and [SEP] that were put around them.

    Parameters
    ----------
    tokenizer : Tokenizer
        The tokenizer that encodes the texts.

    Attributes
    ----------
    counts : Counter of str
        How often each of [PAD], [CLS], [SEP] and [MASK] was written out.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._names = {tokenizer.ids[token]: token for token in SPECIAL_TOKENS if token != "[UNK]"}
        self._ids = np.array(list(self._names))
        self.counts: Counter[str] = Counter()

    # only (T,) bool
    def add(self, batch: BatchEncoding, only: Array | bool = True) -> None:
        """Count special tokens in more texts.

        Parameters
        ----------
        batch : BatchEncoding
            The texts, T pieces.
        only : (T,) bool, or True
            The pieces to look at; by default all.
        """
        written = np.isin(batch.ids, self._ids) & ~batch.special_tokens_mask & only
        self.counts.update(self._names[piece_id] for piece_id in batch.ids[written].tolist())

    def warn(self) -> None:
        """Warn about the special tokens, if any were counted."""
        if not self.counts:
            return
        names = ", ".join(f"{token} ({n:,})" for token, n in self.counts.most_common())
        warn(
            f"The text has {counted(self.counts.total(), 'special token')} written out: {names}. "
            "Each is read as the model's own, as transformers reads it. To read letters, begin with a folder "
            "of a model, or of `minibert vocab`, whose tokenizer_config.json has "
            '"split_special_tokens": true.'
        )


# ids (n,) -> (n,) bool
def is_control(tokenizer: Any, ids: Array) -> Array:
    """Find pieces that are not text to predict.

    Parameters
    ----------
    tokenizer : Tokenizer
        The tokenizer that made the ids.
    ids : (n,) int
        Ids of pieces.

    Returns
    -------
    (n,) bool
        True at [PAD], [CLS], [SEP] and [MASK].
    """
    control_ids = [tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id]
    return np.isin(ids, control_ids)
