"""Choose answers by the scores of tokens: the best spans of all windows of a question, and "no answer".

The score of a span is S.Ti + E.Tj with j >= i (Devlin et al. 2019, section 4.2), that of no answer
S.C + E.C at [CLS] (section 4.3). Google's run_squad combines the 20 best starts with the 20 best ends; here
every span up to the longest is scored, so that none better than the answer is overlooked.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from minibert.tasks.windows import Windows

MARGIN = 4  # times as many spans as are wanted, since some have the same text


class Candidate(NamedTuple):
    """A possible answer, as its paragraph has it; no answer is "", without a place."""

    text: str
    start_logit: float
    end_logit: float
    begin: int | None = None  # first character
    end: int | None = None  # the one after the last

    @property
    def score(self) -> float:
        """Score of the span, to be compared with those of other spans and windows of the same question."""
        return self.start_logit + self.end_logit


class Answers(NamedTuple):
    """What a model says about one question."""

    best: list[Candidate]  # of different texts, the best first; [] if the paragraph has no token
    null: Candidate  # no answer

    @property
    def null_odds(self) -> float:
        """The score of no answer minus that of the best answer."""
        return self.null.score - self.best[0].score if self.best else 0.0


# starts (n,) ends (n,) -> (k,) (k,)
def best_spans(
    starts: np.ndarray,
    ends: np.ndarray,
    count: int,
    longest: int,
) -> tuple[np.ndarray, ...]:
    """Find the spans of highest score, the best first; of equal ones the first to begin, then the shortest.

    Parameters
    ----------
    starts : numpy.ndarray
        Score of each token as the first one of a span, (n,); -inf where it must not be.
    ends : numpy.ndarray
        Score of each token as the last one, (n,); -inf where it must not be.
    count : int
        Most spans to find.
    longest : int
        Most tokens of a span.

    Returns
    -------
    first : numpy.ndarray
        Number of the first token of each span, (k,) int64.
    last : numpy.ndarray
        Number of its last token, (k,) int64.
    """
    padded = np.concatenate([ends, np.full(longest, -np.inf)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, longest)
    ends_after = windows[: len(starts)]  # (n, longest)
    by_place = starts[:, None] + ends_after
    scores = by_place.ravel()
    least = -np.inf
    if count < len(scores):
        partitioned = np.partition(scores, -count)
        least = partitioned[-count]
    is_allowed = scores > -np.inf
    is_good = (scores >= least) & is_allowed
    good = np.flatnonzero(is_good)
    order = np.argsort(-scores[good], kind="stable")
    chosen = good[order][:count]
    first, more = np.divmod(chosen, longest)
    return first, first + more


# outputs (n,2) of each window
def decode(
    windows: Windows,
    example: int,
    outputs: Sequence[np.ndarray],
    text: str,
    count: int,
    longest: int,
) -> Answers:
    """Find the best answers to a question in all its windows.

    A span begins only in the window in which its first token has most context. The score of no answer is the
    lowest that any window gives it, since no window may hold an answer then.

    Parameters
    ----------
    windows : Windows
        Windows of many questions.
    example : int
        Number of the question.
    outputs : sequence of numpy.ndarray
        Scores of every token as start and as end, (n,2) of each of its windows.
    text : str
        The paragraph.
    count : int
        Most answers to find, of different texts.
    longest : int
        Most tokens of an answer.

    Returns
    -------
    Answers
        The best ones, and the score of no answer.
    """
    outputs = [np.asarray(output, np.float64) for output in outputs]
    lowest = min(outputs, key=lambda output: output[0].sum())
    null = Candidate("", *lowest[0].tolist())
    numbers = range(*windows.bounds[example : example + 2].tolist())
    sources = []  # of each window: scores of starts (n,) and of ends (n,), characters (n,2)
    for number, most, output in zip(numbers, windows.most_context(example), outputs, strict=True):
        row = windows.first_row(number)
        tokens = output[row : row + len(most)]
        starts = np.where(most, tokens[:, 0], -np.inf)
        ends = tokens[:, 1]
        sources.append((starts, ends, windows.offsets(number)))
    wanted = count * MARGIN
    while True:
        spans = []  # (k,4) of each window: start score, end score, first character, the one after the last
        for starts, ends, offsets in sources:
            first, last = best_spans(starts, ends, wanted, longest)
            begins = offsets[first, 0]
            stops = offsets[last, 1]
            spans.append(np.stack([starts[first], ends[last], begins, stops], axis=1))
        rows = np.concatenate(spans)
        scores = rows[:, :2].sum(1)
        order = np.argsort(-scores, kind="stable")
        best = _different(rows[order], text, count)
        worst_kept = best[-1].score if len(best) == count else -np.inf
        # A window that gave as many spans as were wanted may have more, no better than its last.
        unseen = -np.inf
        for span in spans:
            if len(span) == wanted:
                last_score = float(span[-1, :2].sum())
                unseen = max(unseen, last_score)
        if worst_kept >= unseen:  # nothing better was left out
            return Answers(best, null)
        wanted *= MARGIN


def _different(rows: np.ndarray, text: str, count: int) -> list[Candidate]:
    """Return the first spans whose texts differ."""
    candidates: dict[str, Candidate] = {}
    for start_logit, end_logit, *characters in rows.tolist():
        begin, end = map(int, characters)
        words = text[begin:end]
        candidate = Candidate(words, start_logit, end_logit, begin, end)
        candidates.setdefault(words, candidate)
        if len(candidates) == count:
            break
    return list(candidates.values())
