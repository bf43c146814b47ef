"""WordPiece: words to pieces by greedy longest match, and the `Tokenizer` around it.

The matching is that of Google's `tokenization.py` (Devlin et al. 2018, released code): the longest piece that
begins the word, then the longest "##" piece that goes on, and so forth; a word that can't be finished, or is
longer than the limit, is one [UNK].
"""

import json
import re
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from minibert.errors import InputError, RunError
from minibert.files import atomic_text
from minibert.tokenizer.normalize import BasicTokenizer, split_at_whitespace

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MAX_CHARS_PER_WORD = 200  # Google's; Hugging Face stops at 100

# Hugging Face's names in tokenizer_config.json, and ours.
_CONFIG_NAMES = {
    "do_lower_case": "lower_case",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "chinese_characters",
    "max_input_chars_per_word": "max_input_chars_per_word",
}
_SPECIAL_IN_TEXT = re.compile("(" + "|".join(map(re.escape, SPECIAL_TOKENS)) + ")")


class Encoding(NamedTuple):
    """A text, or a pair of texts, as the model reads it: `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`."""

    ids: np.ndarray  # (n,) int32
    token_type_ids: np.ndarray  # (n,) int32: 0 up to the first [SEP], 1 after it
    tokens: list[str]  # n pieces


class Tokenizer:
    """Text to WordPiece ids and back.

    Parameters
    ----------
    vocab : the pieces; the place of a piece is its id.
    lower_case : lower-case and strip accents (the uncased models).
    strip_accents : overrides what `lower_case` says about accents.
    chinese_characters : make a word of every CJK ideograph.
    max_input_chars_per_word : a longer word becomes [UNK].

    Raises
    ------
    InputError
        When the vocabulary is empty, repeats a piece or lacks one of the five special tokens.

    Examples
    --------
    >>> tokenizer = Tokenizer([*SPECIAL_TOKENS, "un", "##aff", "##able", "!"])
    >>> tokenizer.tokenize("Unaffable!")
    ['un', '##aff', '##able', '!']
    >>> tokenizer("unaffable").ids
    array([2, 5, 6, 7, 3], dtype=int32)
    """

    def __init__(
        self,
        vocab: Sequence[str],
        lower_case: bool = True,
        max_input_chars_per_word: int = MAX_CHARS_PER_WORD,
        *,
        strip_accents: bool | None = None,
        chinese_characters: bool = True,
    ):
        self.vocab = list(vocab)
        self.ids = _number(self.vocab)
        self.max_input_chars_per_word = max_input_chars_per_word
        self.basic_tokenizer = BasicTokenizer(lower_case, strip_accents, chinese_characters)
        self.special_ids = tuple(self.ids[token] for token in SPECIAL_TOKENS)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = self.special_ids
        self.continuation = np.array([piece.startswith("##") for piece in self.vocab])  # (V,) bool
        self._longest_piece = max(map(len, self.vocab))
        self._chunk_ids = _ChunkMemo(self._encode_chunk)

    @property
    def vocab_size(self) -> int:
        return len(self.vocab)

    @property
    def lower_case(self) -> bool:
        return self.basic_tokenizer.lower_case

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Ids of the pieces of `text`, without [CLS] and [SEP].

        Parameters
        ----------
        special : keep a special token that is written out in the text, such as "[MASK]", whole.
        """
        if special:
            parts = _SPECIAL_IN_TEXT.split(text)
            return [i for part in parts for i in self._encode_special(part) or self.encode(part)]
        # A chunk between spaces tokenizes alone, and chunks repeat: nearly all are answered from memory.
        return list(chain.from_iterable(map(self._chunk_ids.__getitem__, split_at_whitespace(text))))

    def tokenize(self, text: str, *, special: bool = False) -> list[str]:
        """The pieces of `text`; see `encode`."""
        return [self.vocab[i] for i in self.encode(text, special=special)]

    def __call__(
        self, text: str, pair: str | None = None, max_length: int | None = None, *, special: bool = False
    ) -> Encoding:
        """Encode one text or a pair for the model.

        Parameters
        ----------
        max_length : cut to at most this many ids, [CLS] and [SEP] included. Pieces go from the end of the
            longer text, one by one, and from the second when both are equally long (as in Google's code).

        Raises
        ------
        InputError
            When `max_length` has no room for the special tokens, or a text is not a string.
        """
        for name, value in (("text", text), ("pair", "" if pair is None else pair)):
            if not isinstance(value, str):
                raise InputError(
                    f"{name}={value!r} is not a string; encode several texts one by one."
                )
        first = self.encode(text, special=special)
        second = None if pair is None else self.encode(pair, special=special)
        if max_length is not None:
            first, second = _truncate(first, second, max_length)
        ids = [self.cls_id, *first, self.sep_id]
        n_first = len(ids)
        if second is not None:
            ids += [*second, self.sep_id]
        token_type_ids = np.zeros(len(ids), np.int32)
        token_type_ids[n_first:] = 1
        return Encoding(np.array(ids, np.int32), token_type_ids, [self.vocab[i] for i in ids])

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = False) -> str:
        """Join pieces into readable text: "##" pieces to what stands before them, a space elsewhere.

        Raises
        ------
        InputError
            When an id lies outside the vocabulary.
        """
        ids = [int(i) for i in ids]
        for i in ids:
            if not 0 <= i < self.vocab_size:
                raise InputError(
                    f"id {i} is outside the vocabulary of {self.vocab_size} pieces; "
                    "decode with the vocabulary that the ids were made with."
                )
        if skip_special_tokens:
            ids = [i for i in ids if i not in self.special_ids]
        return " ".join(self.vocab[i] for i in ids).replace(" ##", "")

    @classmethod
    def from_pretrained(cls, path: str | Path, **overrides) -> "Tokenizer":
        """Read a folder with `vocab.txt` and, if present, `tokenizer_config.json`; or a vocabulary file.

        A folder with a Hugging Face `tokenizer.json` in place of `vocab.txt` will do as well.

        Parameters
        ----------
        path : the folder, or the vocabulary file.
        overrides : arguments of `Tokenizer` that win over the folder's configuration. Without either, text
            is lower-cased.

        Raises
        ------
        InputError
            When a file is missing, is not UTF-8 or JSON, or does not hold a BERT vocabulary.
        """
        path = Path(path)
        options = _read_config(path / "tokenizer_config.json") if path.is_dir() else {}
        file = _vocab_file(path) if path.is_dir() else path
        vocab = _read_vocab_json(file) if file.suffix == ".json" else _read_vocab(file)
        try:
            return cls(vocab, **{**options, **overrides})
        except InputError as error:
            raise InputError(f"{file}: {error}") from error

    def save_pretrained(self, folder: str | Path, model_max_length: int = 512) -> None:
        """Write `vocab.txt` and `tokenizer_config.json`, which `transformers.AutoTokenizer` loads as well.

        Parameters
        ----------
        model_max_length : the number of positions of the model that goes with this vocabulary.
        """
        for number, piece in enumerate(self.vocab):
            if "\n" in piece or piece.endswith("\r"):
                raise InputError(
                    f"piece {number}, {piece!r}, holds a line end; vocab.txt needs one piece a line."
                )
        config = {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": self.lower_case,
            "strip_accents": self.basic_tokenizer.strip_accents,
            "tokenize_chinese_chars": self.basic_tokenizer.chinese_characters,
            "max_input_chars_per_word": self.max_input_chars_per_word,
            "model_max_length": model_max_length,
            **{f"{token.strip('[]').lower()}_token": token for token in SPECIAL_TOKENS},
        }
        vocab = Path(folder) / "vocab.txt"
        fresh = not vocab.exists()
        atomic_text(vocab, "".join(f"{piece}\n" for piece in self.vocab))
        try:
            atomic_text(Path(folder) / "tokenizer_config.json", json.dumps(config, indent=2) + "\n")
        except RunError:  # alone, a cased vocabulary would be read as an uncased one
            if fresh:
                vocab.unlink()
            raise

    def _encode_special(self, part: str) -> list[int]:
        return [self.ids[part]] if part in SPECIAL_TOKENS else []

    def _encode_chunk(self, chunk: str) -> list[int]:
        return [i for word in self.basic_tokenizer.tokenize(chunk) for i in self._encode_word(word)]

    def _encode_word(self, word: str) -> list[int]:
        """Greedy longest match; one [UNK] if any part of the word has no piece."""
        if len(word) > self.max_input_chars_per_word:
            return [self.unk_id]
        ids, begin = [], 0
        while begin < len(word):
            match = self._longest_match(word, begin)
            if match is None:
                return [self.unk_id]
            begin, piece_id = match
            ids.append(piece_id)
        return ids

    def _longest_match(self, word: str, begin: int) -> tuple[int, int] | None:
        """Where the longest piece that starts at `begin` ends, and its id."""
        prefix = "##" if begin else ""
        for end in range(min(len(word), begin + self._longest_piece), begin, -1):
            piece_id = self.ids.get(prefix + word[begin:end])
            if piece_id is not None:
                return end, piece_id
        return None


class _ChunkMemo(dict):
    """Chunk of text -> ids, computed once.

    Memory stays bounded, at about 12 MB: long chunks are not kept, and a full memo starts anew.
    """

    LIMIT = 1 << 16
    LONGEST = 32

    def __init__(self, compute):
        super().__init__()
        self.compute = compute

    def __missing__(self, chunk: str) -> list[int]:
        ids = self.compute(chunk)
        if len(chunk) <= self.LONGEST:
            if len(self) >= self.LIMIT:
                self.clear()
            self[chunk] = ids
        return ids


def _number(vocab: list[str]) -> dict[str, int]:
    """Piece -> id, after checking that the vocabulary can serve a BERT."""
    if not vocab:
        raise InputError("the vocabulary is empty; it needs one piece a line, learn one with learn_vocab.")
    ids: dict[str, int] = {}
    for number, piece in enumerate(vocab):
        if piece in ids:
            raise InputError(
                f"the vocabulary has {piece!r} twice, as id {ids[piece]} and {number}; remove one."
            )
        ids[piece] = number
    missing = [token for token in SPECIAL_TOKENS if token not in ids]
    if missing:
        raise InputError(f"the vocabulary lacks {' '.join(missing)}; BERT needs {' '.join(SPECIAL_TOKENS)}.")
    return ids


def _truncate(
    first: list[int], second: list[int] | None, max_length: int
) -> tuple[list[int], list[int] | None]:
    """Cut a pair to what `max_length` leaves, the longer one first: what popping one by one comes to."""
    n_special = 2 if second is None else 3
    room = max_length - n_special
    if room < 0:
        raise InputError(
            f"max_length={max_length} has no room for the special tokens; give at least {n_special}."
        )
    if second is None:
        return first[:room], None
    n_first = min(len(first), max((room + 1) // 2, room - len(second)))
    return first[:n_first], second[: room - n_first]


def _vocab_file(folder: Path) -> Path:
    for name in ("vocab.txt", "tokenizer.json"):
        if (folder / name).exists():
            return folder / name
    raise InputError(f"{folder} has no vocab.txt; give a folder or file with a vocabulary, one piece a line.")


def _read_vocab(path: Path) -> list[str]:
    """Pieces of a vocabulary file, one a line.

    Only a line feed ends a line, with or without a carriage return: the released Chinese vocabulary has a
    Unicode line separator as a piece.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(
            f"{path} can't be read ({error.strerror}); give a vocabulary, one piece a line."
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8 at byte {error.start}; save the vocabulary as UTF-8."
        ) from error
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def _read_vocab_json(path: Path) -> list[str]:
    """Pieces of a Hugging Face `tokenizer.json`, by id."""
    try:
        ids = _read_json(path)["model"]["vocab"]
        vocab = sorted(ids, key=ids.get)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} holds no WordPiece vocabulary; give one of a BERT, or vocab.txt."
        ) from error
    if [ids[piece] for piece in vocab] != list(range(len(vocab))):
        raise InputError(f"{path} leaves out or repeats an id; expected ids from 0 to {len(vocab) - 1}.")
    return vocab


def _read_config(path: Path) -> dict:
    """Arguments of `Tokenizer` from a Hugging Face `tokenizer_config.json`; none if there is no file."""
    config = _read_json(path) if path.exists() else {}
    stored = {argument: config.get(name) for name, argument in _CONFIG_NAMES.items()}
    return {argument: value for argument, value in stored.items() if value is not None}


def _read_json(path: Path) -> dict:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} can't be read as JSON ({error}); restore the file or remove it.") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} holds {type(content).__name__}; expected a JSON object.")
    return content
