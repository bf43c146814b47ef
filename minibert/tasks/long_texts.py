"""Read texts that are longer than a sequence as overlapping windows, instead of cutting them.

Every window has [CLS] and [SEP], and begins with the last pieces of the window before. In a pair, the longer
text is windowed, and every window holds the whole shorter text as well.
"""

from typing import NamedTuple

import numpy as np

from minibert.base.errors import InputError
from minibert.core.batch import Sequence
from minibert.model.head_kinds import POOLS
from minibert.tokenizer.encoding import Encoding, whole_number

SINGLE, PAIR = 2, 3  # number of special tokens in a sequence with one text, and with two


class LongTexts(NamedTuple):
    """How to split long texts into windows, and how to make one answer of them."""

    pool: str  # how the windows' vectors become one; one of `POOLS`
    stride: int | None  # pieces that a window shares with the one before; None: a quarter of the window
    most_windows: int  # most windows of a text; the rest of it is cut

    def resolved(self, max_length: int) -> "LongTexts":
        """Return a copy with a stride for windows of a given length.

        Parameters
        ----------
        max_length : int
            Most tokens in a window, [CLS] and [SEP] included.

        Returns
        -------
        LongTexts
            With the given stride, or else a quarter of the pieces that fit into a window.

        Raises
        ------
        InputError
            When there is no such pool, a number is out of range, or the stride leaves no room for a new
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
        """Return how many more windows a single text would need to hold the pieces that were cut.

        Parameters
        ----------
        lost : int
            Number of pieces that were cut.
        max_length : int
            Most tokens in a window, [CLS] and [SEP] included.

        Returns
        -------
        int
            0 if nothing was cut.
        """
        return -(-lost // (max_length - SINGLE - (self.stride or 0)))

    def reach(self, max_length: int) -> int:
        """Return the length of one sequence that would hold as much of a text as all windows together.

        Parameters
        ----------
        max_length : int
            Most tokens in a window, [CLS] and [SEP] included.

        Returns
        -------
        int
            Number of tokens, [CLS] and [SEP] included.
        """
        room = max_length - SINGLE
        step = room - (self.stride or 0)
        return SINGLE + room + (self.most_windows - 1) * step

    def sequences(self, encoding: Encoding, max_length: int) -> tuple[Sequence, ...]:
        """Return the windows of a text or pair; the last one says how many pieces were cut.

        The shorter text of a pair keeps at most half of a window. If the stride would leave no room for new
        pieces next to it, windows overlap by half.

        Parameters
        ----------
        encoding : Encoding
            Encoding of a text or a pair of any length, with its special tokens.
        max_length : int
            Most tokens in a window, [CLS] and [SEP] included.

        Returns
        -------
        tuple of Sequence
            At least one, and at most `most_windows`.
        """
        rows = np.arange(len(encoding))  # rows of the encoding to keep
        begin, end = 1, len(encoding) - 1  # range of `rows` to split into windows
        first = encoding.n_first
        cut = 0
        if first < len(encoding):  # it is a pair
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
