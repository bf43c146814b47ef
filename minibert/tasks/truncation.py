"""Warn of texts that are longer than a model reads: how many are cut, how much of them, and where."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from minibert.base.errors import warn
from minibert.core.batch import Sequence
from minibert.tasks.long_texts import LongTexts
from minibert.tasks.task import Features
from minibert.tasks.windows import Windows
from minibert.tokenizer.encoding import BatchEncoding

MARK = " [the model reads no further: {:,} more tokens] "


class Truncation:
    """Counts what is cut, for examples that are read in one sequence, in one for each choice, or in windows.

    Parameters
    ----------
    max_length : int
        Most tokens in a sequence.
    features : sequence of Feature, optional
        The first features to count.
    long : LongTexts, optional
        How long texts are split into windows, if they are.
    """

    def __init__(
        self,
        max_length: int,
        features: Features = (),
        long: LongTexts | None = None,
    ) -> None:
        self.max_length = max_length
        self.long = long
        self._parts = [np.empty((0, 3), np.int64)]
        self.add(features)

    def add(self, features: Features) -> None:
        """Count more features.

        Parameters
        ----------
        features : sequence of Feature
            More features. `Windows` are not counted, since they hold the whole paragraph.
        """
        if isinstance(features, Windows):
            return
        rows = []
        for feature in features:
            sequences = feature.sequences
            read = sum(len(sequence.input_ids) for sequence in sequences)
            cut = sum(sequence.cut for sequence in sequences)
            if self.long:
                wanted = len(sequences) + self.long.windows_of(cut, self.max_length)
            else:
                wanted = max(len(sequence.input_ids) + sequence.cut for sequence in sequences)
            rows.append((read, cut, wanted))
        self._parts.append(np.array(rows, np.int64).reshape(-1, 3))

    @property
    def counts(self) -> np.ndarray:
        """The counts of each example, (n,3) int64.

        The columns are the number of tokens that are read, the number that are cut, and the length that the
        example's longest sequence would have if nothing were cut; with windows, how many windows there would
        be.
        """
        return np.concatenate(self._parts)

    def summary(self) -> dict[str, int]:
        """Return the counts, for JSON: `examples`, how many of them are `cut`, `tokens`, `tokens_cut`."""
        read, cut, _ = self.counts.T
        return {
            "examples": len(cut),
            "cut": int((cut > 0).sum()),
            "tokens": int((read + cut).sum()),
            "tokens_cut": int(cut.sum()),
        }


def sequences_of(encoded: BatchEncoding) -> Iterator[Sequence]:
    """Yield the sequences of some texts, or pairs, with how many of their pieces were cut.

    Parameters
    ----------
    encoded : BatchEncoding
        What the tokenizer made of them.

    Yields
    ------
    Sequence
    """
    for encoding, cut in zip(encoded, encoded.n_cut.tolist(), strict=True):
        yield Sequence(encoding.ids, encoding.token_type_ids, cut=cut)


def warn_of_truncation(parts: Mapping[str, Truncation], positions: int) -> dict[str, Any]:
    """Warn of what was cut, and suggest lengths with which less would be.

    Parameters
    ----------
    parts : mapping of str to Truncation
        Counts by split, or with the key "" for texts without a split. There is at least one, and all have the
        same `max_length` and `long`.
    positions : int
        Number of the model's positions: no longer sequence is suggested.

    Returns
    -------
    dict
        For a report: `max_length`, the counts of each part by its split, and the `warning`; {} if nothing was
        cut.
    """
    first = next(iter(parts.values()))
    max_length = first.max_length
    long = first.long
    counts = np.concatenate([part.counts for part in parts.values()])
    read, cut, lengths = counts.T
    if not cut.any():
        return {}
    summaries = {split: part.summary() for split, part in parts.items()}
    windows = f"fit into {long.most_windows:,} windows of {max_length:,} tokens" if long else ""
    if len(lengths) > 1:
        shares = " and ".join(_share_cut(split, summary) for split, summary in summaries.items())
        problem = f"do not {windows}" if long else f"are longer than {max_length:,} tokens"
        lost = _percent(cut.sum() / (read + cut).sum())
        text = f"{shares} {problem} and lose their ends, {lost} of all tokens."
    elif long:
        text = f"The text does not {windows}; the model does not read its last {cut[0]:,} tokens."
    else:
        text = f"The text has {lengths[0]:,} tokens, of which the model reads {max_length:,}."
    if offers := _offers(first, positions, lengths):
        text += f" When fine-tuning, {', '.join(offers)}."
    else:
        text += " The model has no more positions."
    warn(text)
    return {"max_length": max_length, **summaries, "warning": text}


# lengths (n,)
def _offers(truncation: Truncation, positions: int, lengths: np.ndarray) -> list[str]:
    """Say which options would let a model read more; nothing if it has no more positions."""
    if truncation.long:
        return [f"most_windows={lengths.max()} would read more"]
    longer = _longer(truncation.max_length, positions, lengths)
    if len(lengths) == 1:
        return [f"max_length={n} would read {min(n, lengths[0]):,}" for n in longer[-1:]]
    return [f"max_length={n} would cut {_percent((lengths > n).mean())}" for n in longer]


# lengths (n,)
def _longer(max_length: int, positions: int, lengths: np.ndarray) -> list[int]:
    """Return lengths to suggest: `max_length` times 2, 4 and so on, up to the first that cuts nothing."""
    longest = lengths.max()
    suggested = []
    length = max_length
    while length < min(longest, positions):
        length = min(2 * length, positions)
        suggested.append(length)
    return suggested


def _share_cut(split: str, summary: dict[str, int]) -> str:
    """Say how many examples of a split are cut."""
    examples = f"{summary['examples']:,} examples"
    if split:
        examples += f" of {split}"
    share = _percent(summary["cut"] / summary["examples"])
    return f"{summary['cut']:,} of {examples} ({share})"


def _percent(share: float) -> str:
    """Write a share in words: only 0 is "none"."""
    if not share:
        return "none"
    return "less than 1%" if share < 0.01 else f"{share:.0%}"


def with_marks(
    tokenizer: Any,
    max_length: int,
    first: str,
    second: str | None = None,
) -> list[str]:
    """Mark where the model stops reading a text, or each text of a pair.

    Parameters
    ----------
    tokenizer : Tokenizer
        The model's tokenizer.
    max_length : int
        Most tokens in a sequence.
    first : str
        The text.
    second : str, optional
        The other text of a pair.

    Returns
    -------
    list of str
        The text, or both texts, with `MARK` where tokens are cut.
    """
    texts = [first] if second is None else [first, second]
    seconds = None if second is None else [second]
    encoding = tokenizer.encode_batch([first], seconds, max_length=max_length, offsets=True)[0]
    is_piece = ~encoding.special_tokens_mask
    shown = []
    for segment, text in enumerate(texts):
        ends = encoding.offsets[is_piece & (encoding.token_type_ids == segment), 1]
        end = ends.max(initial=0)
        unread = len(tokenizer.encode(text, add_special_tokens=False)) - len(ends)
        if unread:
            text = text[:end] + MARK.format(unread) + text[end:]
        shown.append(text)
    return shown
