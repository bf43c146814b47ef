"""Words to pieces by greedy longest match: WordPiece as it is in Google's `tokenization.py`, to be read.

The longest piece that begins the word, then the longest "##" piece that goes on, and so forth; a word that
can't be finished, or is longer than the limit, is one [UNK]. (Devlin et al. 2018, released code.) The core in
C finds the same pieces in one pass over the bytes, and is tested against this file.
"""

import re
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import numpy as np

from minibert.tokenizer.native import Encoded, Pieces, Wanted
from minibert.tokenizer.normalize import split_at_whitespace


class GreedyCore:
    """Words of `BasicTokenizer`, each cut into the longest piece that fits, and so on: the core to read."""

    def __init__(self, given: Pieces) -> None:
        vocab, self.basic_tokenizer, self.unk_id, special_ids, self.max_input_chars_per_word = given
        self.ids = {piece: number for number, piece in enumerate(vocab)}
        special = [vocab[i] for i in special_ids]
        self._special = frozenset(special)
        self._special_in_text = re.compile("(" + "|".join(map(re.escape, special)) + ")")
        self._longest_piece = max(map(len, vocab))
        self._chunk_ids = _ChunkMemo(self._encode_chunk)

    def match(self, word: str) -> list[tuple[int, int, int]]:
        """Find id, begin and end of each piece of a word; one [UNK] if any part of it has no piece."""
        whole = [(self.unk_id, 0, len(word))]
        if len(word) > self.max_input_chars_per_word:
            return whole
        pieces: list[tuple[int, int, int]] = []
        begin = 0
        while begin < len(word):
            prefix = "##" if begin else ""
            for end in range(min(len(word), begin + self._longest_piece), begin, -1):
                if (piece_id := self.ids.get(prefix + word[begin:end])) is not None:
                    break
            else:
                return whole
            pieces.append((piece_id, begin, end))
            begin = end
        return pieces

    def encode(self, text: str, special: bool) -> list[int]:
        """Return the ids of the pieces of one text."""
        if special:
            parts = ((part, part in self._special) for part in self._special_in_text.split(text))
            ids = ([self.ids[part]] if kept else self.encode(part, False) for part, kept in parts)
            return list(chain.from_iterable(ids))
        # A chunk between spaces tokenizes alone, and chunks repeat: nearly all are answered from memory.
        return list(chain.from_iterable(map(self._chunk_ids.__getitem__, split_at_whitespace(text))))

    def align(self, text: str, special: bool) -> Iterator[tuple[int, int, int, int]]:
        """Yield id, begin and end in the text, and number of the word, of each piece of one text."""
        begin = number = 0  # of the part, of the word
        for part in self._special_in_text.split(text) if special else [text]:
            if special and part in self._special:
                yield self.ids[part], begin, begin + len(part), number
                number += 1
            else:
                for word in self.basic_tokenizer.align(part):
                    whole = [(self.ids.get(word.text, self.unk_id), 0, len(word.text))]
                    for piece_id, first, last in whole if word.kept else self.match(word.text):
                        source = min(word.begins[first:last]), max(word.ends[first:last])
                        yield piece_id, begin + source[0], begin + source[1], number
                    number += 1
            begin += len(part)

    def encode_texts(self, texts: list[str | bytes], wanted: Wanted, threads: int | None = None) -> Encoded:
        """Encode many texts end to end, by one thread."""
        offsets, special, *wrapping, period = wanted
        rows: list[Any] = []
        bounds, n_invalid = [0], 0  # a row is an id, or all four numbers of a piece
        first, last = ([(i, 0, 0, -1) if offsets else i] if i >= 0 else [] for i in wrapping)
        for number, text in enumerate(texts):
            if isinstance(text, bytes):
                raw, text = text, text.decode("utf-8", "replace")
                n_invalid += text.count("\ufffd") - raw.count("\ufffd".encode())
            rows += first if number % period == 0 else ()
            rows += self.align(text, special) if offsets else self.encode(text, special)
            rows += last
            bounds.append(len(rows))
        table = np.array(rows, np.int32).reshape(len(rows), 4 if offsets else 1)
        alignment = (table[:, 1:3].copy(), table[:, 3].copy()) if offsets else None
        return Encoded(table[:, 0].copy(), np.array(bounds, np.int64), alignment, n_invalid)

    def _encode_chunk(self, chunk: str) -> list[int]:
        if self.basic_tokenizer.never_split:
            return [piece[0] for piece in self.align(chunk, False)]
        return [piece[0] for word in self.basic_tokenizer.tokenize(chunk) for piece in self.match(word)]


class _ChunkMemo(dict[str, list[int]]):
    """Chunk of text -> ids, computed once; of about 12 MB at most, then it starts anew."""

    LIMIT = 1 << 16
    LONGEST = 32

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
