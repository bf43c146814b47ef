"""Read texts that are longer than a sequence as overlapping windows, in place of cutting them.

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
    most_windows: int  # of a text, whose end is cut after them

    def resolved(self, max_length: int) -> "LongTexts":
        """Return a copy with a stride for windows of some length.

        Parameters
        ----------
        max_length : int
            Most tokens of a window, [CLS] and [SEP] included.

        Returns
        -------
        LongTexts
            With the stride that was given, or else a quarter of the pieces that a window has room for.

        Raises
        ------
        InputError
            When there is no such pool, a number is not possible, or the stride leaves no room for a new
            piece.
        """
        if self.pool not in POOLS:
            known = ", ".join(POOLS)
            raise InputError(f"pool={self.pool!r} is unknown; choose one of {known}.", pool=self.pool)
        room = max_length - SINGLE
        stride = room // 4 if self.stride is None else self.stride
        whole_number("stride", stride, 0)
        whole_number("most_windows", self.most_windows, 1)
        if stride >= room:
            problem = f"{stride=} is not less than the {room} pieces that a window has room for"
            advice = f"give less, or raise {max_length=}."
            raise InputError(f"{problem}; {advice}", stride=stride, max_length=max_length)
        return self._replace(stride=stride)

    def windows_of(self, lost: int, max_length: int) -> int:
        """Return how many more windows so many pieces would need, without a second text.

        Parameters
        ----------
        lost : int
            Pieces that there was no room for.
        max_length : int
            Most tokens of a window, [CLS] and [SEP] included.

        Returns
        -------
        int
            0 where nothing was lost.
        """
        return -(-lost // (max_length - SINGLE - (self.stride or 0)))

    def reach(self, max_length: int) -> int:
        """Return the length of a sequence that has as much of a text as all windows together.

        Parameters
        ----------
        max_length : int
            Most tokens of a window, [CLS] and [SEP] included.

        Returns
        -------
        int
            Tokens, [CLS] and [SEP] included.
        """
        room = max_length - SINGLE
        step = room - (self.stride or 0)
        return SINGLE + room + (self.most_windows - 1) * step

    def sequences(self, encoding: Encoding, max_length: int) -> tuple[Sequence, ...]:
        """Return the windows of a text or pair, of which the last tells how many pieces were cut.

        The shorter text of a pair keeps at most half of a window; if the stride would leave no room for
        new pieces beside it, windows overlap by half.

        Parameters
        ----------
        encoding : Encoding
            Encoding of a text or a pair, with its special tokens, of any length.
        max_length : int
            Most tokens of a window, [CLS] and [SEP] included.

        Returns
        -------
        tuple of Sequence
            At least one, and at most `most_windows`.
        """
        rows = np.arange(len(encoding))  # of the encoding that are kept
        begin, end = 1, len(encoding) - 1  # of what is windowed, among the rows
        first = encoding.n_first
        cut = 0
        if first < len(encoding):  # a pair
            n_first, n_second = first - 2, len(encoding) - first - 1
            along_first = n_first > n_second
            if along_first:
                end = first - 1
            else:
                begin = first
            half = (max_length - PAIR) // 2
            if len(encoding) > max_length:
                cut = max(0, min(n_first, n_second) - half)
            if cut:
                begin_of_cut = half + (first if along_first else 1)
                rows = np.delete(rows, slice(begin_of_cut, begin_of_cut + cut))
                if not along_first:
                    begin -= cut
                    end -= cut
        length = end - begin
        room = max_length - (len(rows) - length)
        if length <= room:
            return (Sequence(encoding.ids[rows], encoding.token_type_ids[rows], cut=cut),)
        stride = room // 2
        if self.stride is not None and self.stride < room:
            stride = self.stride
        starts = range(0, length - stride, room - stride)[: self.most_windows]
        windows = []
        for start in starts:
            stop = min(begin + start + room, end)
            part = np.concatenate([rows[:begin], rows[begin + start : stop], rows[end:]])
            windows.append(Sequence(encoding.ids[part], encoding.token_type_ids[part]))
        cut += max(0, length - room - starts[-1])
        windows[-1] = windows[-1]._replace(cut=cut)
        return tuple(windows)
