"""Text to WordPiece ids and back, and learning the vocabulary for it: the fast twin of `core/wordpiece.py`.

Read `wordpiece` first: `Tokenizer`, by the C core (`native`) or by Python (`normalize` and `greedy`), with
the same results. `learner` learns a vocabulary, and `formats` reads and writes its files.
"""

from minibert.core.wordpiece import SPECIAL_TOKENS
from minibert.tokenizer.counting import WordCounts, count_files, count_words
from minibert.tokenizer.encoding import TRUNCATION, BatchEncoding, Encoding
from minibert.tokenizer.learner import learn_vocab
from minibert.tokenizer.normalize import COMPAT, BasicTokenizer
from minibert.tokenizer.wordpiece import CASED, Tokenizer, text_rules

__all__ = [
    "CASED",
    "COMPAT",
    "SPECIAL_TOKENS",
    "TRUNCATION",
    "BasicTokenizer",
    "BatchEncoding",
    "Encoding",
    "Tokenizer",
    "WordCounts",
    "count_files",
    "count_words",
    "learn_vocab",
    "text_rules",
]
