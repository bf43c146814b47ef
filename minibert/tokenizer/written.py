"""Special tokens of BERT that are written out in data: how often, and a sentence about it.

A "[SEP]" in a text is the piece [SEP], as in Hugging Face's tokenizers. In text that was scraped, or that is
about BERT, that is seldom meant: whoever reads data counts such tokens here, and warns once.
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
    """Counts BERT's special tokens in encoded texts, but for the [CLS] and [SEP] that were put around them.

    Parameters
    ----------
    tokenizer : the one that encodes the texts.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._names = {tokenizer.ids[token]: token for token in SPECIAL_TOKENS if token != "[UNK]"}
        self._ids = np.array(list(self._names))
        self.counts: Counter[str] = Counter()

    # only (T,) bool
    def add(self, batch: BatchEncoding, only: Array | bool = True) -> None:
        """Count those of more texts, at all places or at some."""
        found = np.isin(batch.ids, self._ids) & ~batch.special_tokens_mask & only
        self.counts.update(self._names[number] for number in batch.ids[found].tolist())

    def warn(self) -> None:
        """Say how many there were, if there was one."""
        if not self.counts:
            return
        named = ", ".join(f"{token} ({n:,})" for token, n in self.counts.most_common())
        what = f"The text has {counted(self.counts.total(), 'special token')} written out: {named}"
        how = "Each is read as the model's own, as transformers reads it"
        letters = '"split_special_tokens": true in the tokenizer_config.json of the model reads letters'
        warn(f"{what}. {how}; {letters}.")


# ids (n,) -> (n,) bool
def is_control(tokenizer: Any, ids: Array) -> Array:
    """Tell which pieces are [PAD], [CLS], [SEP] or [MASK], which are no text to predict."""
    return np.isin(ids, [tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id])
