"""Text to WordPiece ids and back, and learning the vocabulary for it."""

from minibert.tokenizer.counting import CountedFiles, count_files, count_words
from minibert.tokenizer.encoding import TRUNCATION, BatchEncoding, Encoding
from minibert.tokenizer.learner import OBJECTIVES, learn_vocab
from minibert.tokenizer.normalize import COMPAT, MAX_CHARS, BasicTokenizer
from minibert.tokenizer.simple import SPECIAL_TOKENS
from minibert.tokenizer.word_counts import WordCounts
from minibert.tokenizer.wordpiece import CASED, Tokenizer

__all__ = [
    "CASED",
    "COMPAT",
    "MAX_CHARS",
    "OBJECTIVES",
    "SPECIAL_TOKENS",
    "TRUNCATION",
    "BasicTokenizer",
    "BatchEncoding",
    "CountedFiles",
    "Encoding",
    "Tokenizer",
    "WordCounts",
    "count_files",
    "count_words",
    "learn_vocab",
]
