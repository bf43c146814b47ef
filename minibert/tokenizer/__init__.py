"""Text to WordPiece ids and back, and learning the vocabulary for it."""

from minibert.tokenizer.encoding import TRUNCATION, BatchEncoding, Encoding
from minibert.tokenizer.learner import OBJECTIVES, count_words, learn_vocab
from minibert.tokenizer.normalize import COMPAT, BasicTokenizer
from minibert.tokenizer.wordpiece import MAX_CHARS_PER_WORD, SPECIAL_TOKENS, Tokenizer

__all__ = [
    "COMPAT",
    "MAX_CHARS_PER_WORD",
    "OBJECTIVES",
    "SPECIAL_TOKENS",
    "TRUNCATION",
    "BasicTokenizer",
    "BatchEncoding",
    "Encoding",
    "Tokenizer",
    "count_words",
    "learn_vocab",
]
