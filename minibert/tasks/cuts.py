"""Texts longer than a model reads: how many are cut, how much of them is not read, and where they are cut."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from minibert.base.errors import warn
from minibert.tasks.long_texts import LongTexts
from minibert.tasks.task import Features
from minibert.tasks.windows import Windows

MARK = " [the model reads no further: {:,} more tokens] "


class Cuts:
    """Counts what is cut of examples that are read in one sequence each, or in one for every choice."""

    def __init__(self, max_length: int, features: Features = (), long: LongTexts | None = None) -> None:
        self.max_length, self.long, self._parts = max_length, long, [np.empty((0, 3), np.int64)]
        self.add(features)

    def add(self, features: Features) -> None:
        """Count some features."""
        if isinstance(features, Windows):  # which hold all of a paragraph
            return
        rows = []
        for feature in features:
            cut = sum(one.cut for one in feature.sequences)
            wanted = max(len(one.input_ids) + one.cut for one in feature.sequences)
            if self.long:
                wanted = len(feature.sequences) + self.long.windows_of(cut, self.max_length)
            rows.append((sum(len(one.input_ids) for one in feature.sequences), cut, wanted))
        self._parts.append(np.array(rows, np.int64).reshape(-1, 3))

    @property
    def counts(self) -> np.ndarray:
        """(n,3) int64, of each example the tokens that are read, those that are cut, and the length of its
        longest sequence if nothing were cut; of texts in windows, how many these then were."""
        return np.concatenate(self._parts)

    def summary(self) -> dict[str, int]:
        """Return what was counted, for JSON."""
        read, cut, _ = self.counts.T
        counts = len(cut), (cut > 0).sum(), (read + cut).sum(), cut.sum()
        return dict(zip(("examples", "cut", "tokens", "tokens_cut"), map(int, counts), strict=True))


def warn_of_cuts(parts: Mapping[str, Cuts], positions: int) -> dict[str, Any]:
    """Warn of what was cut, and name lengths that cut less, up to the `positions` of the model.

    The parts are of equal `max_length`, by split, "" for texts of none. Return what a report keeps:
    `max_length`, the counts of each part and the `warning`; {} where nothing was cut.
    """
    first = next(iter(parts.values()))
    max_length, long = first.max_length, first.long
    read, cut, lengths = np.concatenate([one.counts for one in parts.values()]).T
    if not cut.any():
        return {}
    summaries = {split: one.summary() for split, one in parts.items()}
    longer = sorted({min(max_length << n, positions) for n in range(1, 12)} - {max_length})
    longer = longer[: 1 + sum(length < lengths.max() for length in longer)]  # up to the first that cuts none
    if long:
        limit = f"fit into {long.most_windows:,} windows of {max_length:,} tokens"
        offers = [f"--most-windows {lengths.max()} would read more"]
    if long and len(lengths) == 1:
        text = f"The text does not {limit}; the model does not read its last {cut[0]:,} tokens."
    elif len(lengths) == 1:
        text = f"The text has {lengths[0]:,} tokens, of which the model reads {max_length:,}."
        offers = [f"--max-length {n} would read {min(n, lengths[0]):,}" for n in longer[-1:]]
    else:
        counts = (
            f"{one['cut']:,} of {one['examples']:,} examples{' of ' * bool(split)}{split} "
            f"({_percent(one['cut'] / one['examples'])})"
            for split, one in summaries.items()
        )
        what = f"do not {limit}" if long else f"are longer than {max_length:,} tokens"
        lost = _percent(cut.sum() / (read + cut).sum())
        text = f"{' and '.join(counts)} {what} and lose their ends, {lost} of all tokens."
        if not long:
            offers = [f"--max-length {n} would cut {_percent((lengths > n).mean())}" for n in longer]
    text += f" When fine-tuning, {', '.join(offers)}." if offers else " The model has no more positions."
    warn(text)
    return {"max_length": max_length, **summaries, "warning": text}


def _percent(share: float) -> str:
    """Write a share in words: nothing but 0 is "none"."""
    return "none" if not share else "less than 1%" if share < 0.01 else f"{share:.0%}"


def with_marks(tokenizer: Any, max_length: int, first: str, second: str | None = None) -> list[str]:
    """Mark where the model stops reading a text, or each of a pair."""
    seconds = None if second is None else [second]
    one = tokenizer.encode_batch([first], seconds, max_length=max_length, offsets=True)[0]
    pieces = ~one.special_tokens_mask
    shown = []
    for segment, text in enumerate([first] if second is None else [first, second]):
        ends = one.offsets[pieces & (one.token_type_ids == segment), 1]
        end = ends.max(initial=0)
        if more := len(tokenizer.encode(text, add_special_tokens=False)) - len(ends):
            text = text[:end] + MARK.format(more) + text[end:]
        shown.append(text)
    return shown
