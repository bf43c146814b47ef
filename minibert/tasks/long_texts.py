"""Texts longer than a model reads as overlapping windows, each a sequence, in place of a cut.

Every window has [CLS] and [SEP] and begins with the last pieces of the one before. Of a pair the longer text
is windowed, with the whole shorter one beside it in every window.
"""

from typing import NamedTuple

import numpy as np

from minibert.base.errors import InputError
from minibert.core.batch import Sequence
from minibert.model.head_kinds import POOLS
from minibert.tokenizer.encoding import Encoding, whole_number

SINGLE, PAIR = 2, 3  # [CLS] and [SEP] of a sequence


class LongTexts(NamedTuple):
    """How long texts become windows, and windows one answer."""

    pool: str  # one of `POOLS`
    stride: int | None  # pieces that a window has in common with the one before; None: a quarter of them
    most_windows: int  # of a text, whose end is cut behind them

    def settled(self, max_length: int) -> "LongTexts":
        """Return the same with a stride for `max_length` tokens; raise InputError when no windows fit."""
        if self.pool not in POOLS:
            raise InputError(f"$pool is unknown; choose one of {', '.join(POOLS)}.", pool=self.pool)
        room = max_length - SINGLE
        stride = room // 4 if self.stride is None else self.stride
        whole_number("stride", stride, 0)
        whole_number("most_windows", self.most_windows, 1)
        if stride >= room:
            small = f"a window that has room for {room}; give less, or raise $max_length."
            raise InputError(f"$stride leaves no new piece to {small}", stride=stride, max_length=max_length)
        return self._replace(stride=stride)

    def windows_of(self, lost: int, max_length: int) -> int:
        """Return how many more windows would hold so many pieces, beside no second text."""
        return -(-lost // (max_length - SINGLE - (self.stride or 0)))

    def reach(self, max_length: int) -> int:
        """Return the length of the sequence that would show as much of a text as all windows do."""
        room = max_length - SINGLE
        return SINGLE + room + (self.most_windows - 1) * (room - (self.stride or 0))

    def sequences(self, one: Encoding, max_length: int) -> tuple[Sequence, ...]:
        """Return the windows of a text or pair, of which the last tells how many pieces were cut.

        The shorter text of a pair keeps at most half of a window; where the stride would leave no new piece
        beside it, windows have half of their room in common.
        """
        rows, first, cut = np.arange(len(one)), one.n_first, 0
        begin, end = 1, len(one) - 1  # of what is windowed
        if first < len(one):
            lengths, half = (first - 2, len(one) - first - 1), (max_length - PAIR) // 2
            along_first = lengths[0] > lengths[1]
            begin, end = (1, first - 1) if along_first else (first, len(one) - 1)
            if len(one) > max_length and (cut := max(0, min(lengths) - half)):
                shorter = (first if along_first else 1) + half
                rows = np.delete(rows, slice(shorter, shorter + cut))
                begin, end = (begin, end) if along_first else (begin - cut, end - cut)
        length, room = end - begin, max_length - (len(rows) - (end - begin))
        if length <= room:
            return (Sequence(one.ids[rows], one.token_type_ids[rows], cut=cut),)
        stride = self.stride if self.stride is not None and self.stride < room else room // 2
        starts = range(0, length - stride, room - stride)
        parts = [
            np.concatenate([rows[:begin], rows[begin + at : min(begin + at + room, end)], rows[end:]])
            for at in starts[: self.most_windows]
        ]
        cut += max(0, length - room - starts[len(parts) - 1])
        found = [Sequence(one.ids[part], one.token_type_ids[part]) for part in parts]
        return *found[:-1], found[-1]._replace(cut=cut)
