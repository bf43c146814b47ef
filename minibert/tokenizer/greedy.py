"""Words to pieces by greedy longest match: WordPiece as in Google's `tokenization.py`, in readable form.

A word is split into the longest piece that begins it, then the longest "##" piece that continues it, and so
on; a word that can't be finished, or is longer than the limit, is one [UNK] (Devlin et al. 2018, released
code). The core in C finds the same pieces in one pass over the bytes, and is tested against this file.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from minibert.tokenizer.native import Encoded, Pieces, Wanted
from minibert.tokenizer.normalize import Word, decoded, split_at_whitespace


class GreedyCore:
    """Split the words of `BasicTokenizer` into pieces by longest match: the readable core.

    Parameters
    ----------
    given : Pieces
        The vocabulary and the rules.
    """

    def __init__(self, given: Pieces) -> None:
        self.basic_tokenizer = given.basic_tokenizer
        self.unk_id = given.unk_id
        self.max_input_chars_per_word = given.max_input_chars_per_word
        self.ids = {piece: piece_id for piece_id, piece in enumerate(given.vocab)}
        special = [given.vocab[piece_id] for piece_id in given.special_ids]
        self._special = frozenset(special)
        alternatives = "|".join(map(re.escape, special))
        self._special_in_text = re.compile(f"({alternatives})")
        self._longest_piece = max(map(len, given.vocab))
        self._chunk_ids = _ChunkMemo(self._encode_chunk)

    def match(self, word: str) -> list[tuple[int, int, int]]:
        """Split a word into the longest piece that begins it, the longest that continues it, and so on.

        Parameters
        ----------
        word : str
            A normalised word, as `BasicTokenizer` makes it.

        Returns
        -------
        list of tuples of three int
            Id, begin and end of each piece, in characters of the word; one [UNK] for the whole word if some
            part of it has no piece, or if it is longer than the limit.
        """
        unknown = [(self.unk_id, 0, len(word))]
        if len(word) > self.max_input_chars_per_word:
            return unknown
        pieces: list[tuple[int, int, int]] = []
        begin = 0
        while begin < len(word):
            prefix = "##" if begin else ""
            for end in range(min(len(word), begin + self._longest_piece), begin, -1):
                piece_id = self.ids.get(prefix + word[begin:end])
                if piece_id is not None:
                    break
            else:
                return unknown
            pieces.append((piece_id, begin, end))
            begin = end
        return pieces

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
        ids: list[int] = []
        if special:
            for part in self._special_in_text.split(text):
                if part in self._special:
                    ids.append(self.ids[part])
                else:
                    ids += self.encode(part, False)
            return ids
        # A chunk between spaces does not depend on its neighbours, and chunks repeat: most are in the cache.
        for chunk in split_at_whitespace(text):
            ids += self._chunk_ids[chunk]
        return ids

    def align(self, text: str, special: bool) -> Iterator[tuple[int, int, int, int]]:
        """Find the pieces of one text and where each comes from.

        Parameters
        ----------
        text, special
            As for `encode`.

        Yields
        ------
        tuple of four int
            Id, begin and end in the text (code points), and index of the word, for each piece. A special
            token counts as a word.
        """
        begin = 0  # where the part begins in the text
        word_index = 0
        parts = self._special_in_text.split(text) if special else [text]
        for part in parts:
            if special and part in self._special:
                yield self.ids[part], begin, begin + len(part), word_index
                word_index += 1
            else:
                for word in self.basic_tokenizer.align(part):
                    for piece_id, first, last in self._pieces_of(word):
                        source_begin = min(word.begins[first:last])
                        source_end = max(word.ends[first:last])
                        yield piece_id, begin + source_begin, begin + source_end, word_index
                    word_index += 1
            begin += len(part)

    def _pieces_of(self, word: Word) -> list[tuple[int, int, int]]:
        """Match a word; those of never_split are not split."""
        if word.kept:
            return [(self.ids.get(word.text, self.unk_id), 0, len(word.text))]
        return self.match(word.text)

    def encode_texts(self, texts: list[str | bytes], wanted: Wanted, threads: int | None = None) -> Encoded:
        """Encode many texts end to end, in one thread.

        Parameters
        ----------
        texts : list of str or bytes
            Bytes are UTF-8; each invalid stretch is read as U+FFFD, and counted.
        wanted : Wanted
            What to find, and which ids to put around each text.
        threads : int or None
            Not used: Python runs one thread at a time.

        Returns
        -------
        Encoded
            In the order of the texts.
        """
        # A row for each piece: its id or, with offsets, (id, begin, end, index of the word).
        rows: list[Any] = []
        first: list[Any] = []
        last: list[Any] = []
        if wanted.first_id >= 0:
            first.append((wanted.first_id, 0, 0, -1) if wanted.offsets else wanted.first_id)
        if wanted.last_id >= 0:
            last.append((wanted.last_id, 0, 0, -1) if wanted.offsets else wanted.last_id)
        bounds = [0]
        n_invalid = 0
        for i, text in enumerate(texts):
            string, invalid = decoded(text)
            n_invalid += invalid
            if i % wanted.period == 0:
                rows += first
            if wanted.offsets:
                rows += self.align(string, wanted.special)
            else:
                rows += self.encode(string, wanted.special)
            rows += last
            bounds.append(len(rows))
        n_columns = 4 if wanted.offsets else 1
        table = np.array(rows, np.int32).reshape(len(rows), n_columns)
        alignment = None
        if wanted.offsets:
            alignment = table[:, 1:3].copy(), table[:, 3].copy()
        return Encoded(table[:, 0].copy(), np.array(bounds, np.int64), alignment, n_invalid)

    def _encode_chunk(self, chunk: str) -> list[int]:
        """Return the ids of a stretch of text without white space."""
        if self.basic_tokenizer.never_split:
            return [piece_id for piece_id, *_ in self.align(chunk, False)]
        ids = []
        for word in self.basic_tokenizer.tokenize(chunk):
            ids += [piece_id for piece_id, _, _ in self.match(word)]
        return ids


class _ChunkMemo(dict[str, list[int]]):
    """A cache of the ids of chunks of text; when it has about 12 MB, it starts again from empty."""

    LIMIT = 1 << 16  # chunks
    LONGEST = 32  # characters; longer chunks seldom repeat

    def __init__(self, compute: Callable[[str], list[int]]) -> None:
        super().__init__()
        self.compute = compute

    def __missing__(self, chunk: str) -> list[int]:
        ids = self.compute(chunk)
        if len(chunk) <= self.LONGEST:
            if len(self) >= self.LIMIT:
                self.clear()
            self[chunk] = ids
        return ids
