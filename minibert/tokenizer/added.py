"""Added tokens: strings that are one piece wherever they occur in a text, found before words are split.

The rules are those of Hugging Face's `tokenizers` (`added_vocabulary.rs`). First come the tokens that are
found in the text as it is written, among them special tokens; then, in the stretches between those, the
tokens that are found in normalised text. At each position the longest token wins. The stretches that remain
are split into words as if each were a separate text.

The cores themselves find ASCII special tokens that begin with a punctuation mark, as BERT's do, many times
faster. `AddedTokensCore`, which wraps another core, finds all others.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from minibert.tokenizer.native import Encoded, Wanted
from minibert.tokenizer.normalize import BasicTokenizer, decoded, is_punctuation

_JOINERS = "\u200c\u200d"


class AddedToken(NamedTuple):
    """Describe a string that is always one piece, with the names of Hugging Face's `AddedToken`."""

    content: str
    special: bool = False  # a control token, such as [SEP]: with `split_special_tokens` it is ordinary text
    normalized: bool = True  # found in normalised text, whatever its case and accents; else only as written
    single_word: bool = False  # not found next to a letter or digit
    lstrip: bool = False  # includes the white space before it; no effect here, where that makes no piece
    rstrip: bool = False  # includes the white space after it; no effect either


def is_found_by_cores(token: str) -> bool:
    """Return whether the cores find a special token themselves.

    Parameters
    ----------
    token : str
        The special token.

    Returns
    -------
    bool
        True for ASCII that begins with a punctuation mark.
    """
    return token != "" and token.isascii() and is_punctuation(token[0])


class _Core(Protocol):
    """The interface of a core, which splits texts into pieces."""

    def encode_texts(self, texts: Any, wanted: Wanted, threads: int | None = None) -> Encoded: ...


class _Found(NamedTuple):
    """An occurrence of an added token in a text."""

    begin: int  # its span, in code points
    end: int
    token_id: int


class AddedTokensCore:
    """Find added tokens, and let another core split the text between them.

    Parameters
    ----------
    core : Core or GreedyCore
        The core that splits words; it does not look for special tokens itself.
    tokens : mapping of int to AddedToken
        Added tokens by id.
    basic_tokenizer : BasicTokenizer
        The rules that normalise text before normalized tokens are found in it.
    """

    def __init__(
        self, core: _Core, tokens: Mapping[int, AddedToken], basic_tokenizer: BasicTokenizer
    ) -> None:
        self._core = core
        self._basic_tokenizer = basic_tokenizer
        written: dict[int, AddedToken] = {}
        normalized: dict[int, AddedToken] = {}
        for token_id, token in tokens.items():
            if token.normalized:
                spelt, _, _ = basic_tokenizer.normalize(token.content)
                normalized[token_id] = token._replace(content=spelt)
            else:
                written[token_id] = token
        # One finder for each value of `special`: whether special tokens are kept whole.
        self._written = {special: _Finder(_kept(written, special)) for special in (False, True)}
        self._normalized = {special: _Finder(_kept(normalized, special)) for special in (False, True)}

    def encode(self, text: str, special: bool) -> list[int]:
        """Return the ids of the pieces of one text.

        Parameters
        ----------
        text : str
            The text.
        special : bool
            Whether special tokens that are written out in it are kept whole.

        Returns
        -------
        list of int
            Ids, without [CLS] and [SEP] around them.
        """
        ids: list[int] = self.encode_texts([text], Wanted(special=special), threads=1).ids.tolist()
        return ids

    def encode_texts(
        self, texts: Iterable[str | bytes], wanted: Wanted, threads: int | None = None
    ) -> Encoded:
        """Encode many texts end to end, as the inner core does.

        Parameters
        ----------
        texts : iterable of str or bytes
            Bytes are UTF-8; each invalid stretch is read as U+FFFD, and counted.
        wanted : Wanted
            What to find, and which ids to put around each text.
        threads : int or None
            How many threads share the work of the inner core; by default one for each processor core.

        Returns
        -------
        Encoded
            In the order of the texts.
        """
        strings = []
        n_invalid = 0
        for text in texts:
            string, invalid = decoded(text)
            strings.append(string)
            n_invalid += invalid
        tokens_of_texts = [self._find(string, wanted.special) for string in strings]
        if not any(tokens_of_texts):
            encoded = self._core.encode_texts(strings, wanted._replace(special=False), threads)
            return encoded._replace(n_invalid=n_invalid)
        between: list[str] = []
        for text, tokens in zip(strings, tokens_of_texts, strict=True):
            between += _between(text, tokens)
        encoded = self._core.encode_texts(between, Wanted(offsets=wanted.offsets), threads)
        rows = _Rows(encoded, wanted)
        for tokens in tokens_of_texts:
            rows.add_text(tokens)
        return rows.encoded(n_invalid)

    def _find(self, text: str, special: bool) -> list[_Found]:
        """Find the added tokens of a text, in order.

        Those that are found as they are written come first: they divide the text, and only between them are
        others found in normalized text.
        """
        written = list(self._written[special].find(text))
        if not self._normalized[special]:
            return written
        tokens: list[_Found] = []
        begin = 0
        for token in written:
            tokens += self._find_normalized(text, begin, token.begin, special)
            tokens.append(token)
            begin = token.end
        return tokens + self._find_normalized(text, begin, len(text), special)

    def _find_normalized(self, text: str, begin: int, end: int, special: bool) -> list[_Found]:
        """Find the added tokens of normalized text in text[begin:end]; offsets are those in `text`."""
        spelt, begins, ends = self._basic_tokenizer.normalize(text[begin:end])
        tokens: list[_Found] = []
        for token in self._normalized[special].find(spelt):
            first = begin + min(begins[token.begin : token.end])
            last = begin + max(ends[token.begin : token.end])
            tokens.append(_Found(first, last, token.token_id))
        return tokens


def _kept(tokens: Mapping[int, AddedToken], special: bool) -> dict[int, AddedToken]:
    """Return the tokens to look for: all of them, or all except special ones."""
    return {token_id: token for token_id, token in tokens.items() if special or not token.special}


class _Finder:
    """Find tokens in a string from left to right, the longest at each position."""

    def __init__(self, tokens: Mapping[int, AddedToken]) -> None:
        self._ids: dict[str, int] = {}
        for token_id, token in sorted(tokens.items()):
            if token.content:
                self._ids.setdefault(token.content, token_id)
        self._single = {token.content for token in tokens.values() if token.single_word}
        self._pattern: re.Pattern[str] | None = None
        if self._ids:
            longest_first = sorted(self._ids, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def __bool__(self) -> bool:
        return self._pattern is not None

    def find(self, text: str) -> Iterator[_Found]:
        """Yield the tokens of a string, in order."""
        if self._pattern is None:
            return
        for match in self._pattern.finditer(text):
            begin, end = match.span()
            if match[0] in self._single:
                before = text[max(0, begin - 1) : begin]
                after = text[end : end + 1]
                if any(map(_is_in_word, before + after)):
                    continue
            yield _Found(begin, end, self._ids[match[0]])


def _is_in_word(character: str) -> bool:
    """Return whether a character can be part of a word, as `\\w` in Rust's regular expressions defines it."""
    return f"a{character}".isidentifier() or character in _JOINERS


def _between(text: str, tokens: list[_Found]) -> Iterator[str]:
    """Yield the parts of a text before, between and after its tokens: one more than there are tokens."""
    begin = 0
    for token in tokens:
        yield text[begin : token.begin]
        begin = token.end
    yield text[begin:]


class _Rows:
    """Assemble texts from encoded parts and the tokens between them.

    A row is the id of a piece; with offsets, it is the id, begin, end and index of the word.
    """

    def __init__(self, parts: Encoded, wanted: Wanted) -> None:
        self._wanted = wanted
        self._bounds = parts.bounds.tolist()
        columns = [parts.ids[:, None]]
        if parts.alignment is not None:
            offsets, word_ids = parts.alignment
            columns += [offsets, word_ids[:, None]]
        self._parts = np.hstack(columns)  # (n,1) or (n,4)
        self._rows: list[Any] = []
        self._n_rows = self._next_part = self._next_text = 0
        self._ends = [0]

    def add_text(self, tokens: list[_Found]) -> None:
        """Append the rows of the next text: its tokens, with its encoded parts before, between and after."""
        wanted = self._wanted
        if wanted.first_id >= 0 and self._next_text % wanted.period == 0:  # of a pair, the first alone
            self._add([[wanted.first_id, 0, 0, -1]])
        begin = 0  # where the next part begins in the text
        word = 0  # the index of its first word
        for token in [*tokens, None]:  # no token follows the last part
            first, last = self._bounds[self._next_part : self._next_part + 2]
            part = self._parts[first:last]
            if wanted.offsets and len(part):
                part = part + np.array([0, begin, begin, word], part.dtype)
                word = int(part[-1, 3]) + 1
            self._add(part)
            self._next_part += 1
            if token is not None:
                self._add([[token.token_id, token.begin, token.end, word]])
                begin = token.end
                word += 1
        if wanted.last_id >= 0:
            self._add([[wanted.last_id, 0, 0, -1]])
        self._next_text += 1
        self._ends.append(self._n_rows)

    def _add(self, rows: Any) -> None:
        """Add rows of four columns; only the first is kept if no offsets are wanted."""
        rows = np.asarray(rows, np.int32)[:, : self._parts.shape[1]]
        self._rows.append(rows)
        self._n_rows += len(rows)

    def encoded(self, n_invalid: int) -> Encoded:
        """Return all texts added so far, end to end."""
        table = np.concatenate(self._rows)
        alignment = None
        if self._wanted.offsets:
            alignment = table[:, 1:3].copy(), table[:, 3].copy()
        return Encoded(table[:, 0].copy(), np.array(self._ends, np.int64), alignment, n_invalid)
