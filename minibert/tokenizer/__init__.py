"""Text to WordPiece ids and back, and learning the vocabulary for it."""

from minibert.tokenizer.learner import OBJECTIVES, count_words, learn_vocab
from minibert.tokenizer.normalize import BasicTokenizer
from minibert.tokenizer.wordpiece import MAX_CHARS_PER_WORD, SPECIAL_TOKENS, Encoding, Tokenizer

__all__ = [
    "MAX_CHARS_PER_WORD",
    "OBJECTIVES",
    "SPECIAL_TOKENS",
    "BasicTokenizer",
    "Encoding",
    "Tokenizer",
    "count_words",
    "learn_vocab",
]
