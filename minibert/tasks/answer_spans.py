"""Choose answers by the scores of tokens: the best spans of all windows of a question, and "no answer".

The score of a span is S.Ti + E.Tj with j >= i (Devlin et al. 2019, section 4.2); that of no answer is
S.C + E.C at [CLS] (section 4.3). Google's run_squad combines the 20 best starts with the 20 best ends. Here
every span up to the longest is scored, so that none better than the answer is overlooked.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from minibert.tasks.windows import Windows

MARGIN = 4  # factor by which more spans are found than are needed, since some have the same text


class Candidate(NamedTuple):
    """A possible answer, as its paragraph spells it. No answer is "", without a position."""

    text: str
    start_logit: float
    end_logit: float
    begin: int | None = None  # first character
    end: int | None = None  # the one after the last

    @property
    def score(self) -> float:
        """Score of the span, comparable with those of other spans and windows of the same question."""
        return self.start_logit + self.end_logit


class Answers(NamedTuple):
    """The answers of a model to one question."""

    best: list[Candidate]  # with different texts, the best first; [] if the paragraph has no token
    null: Candidate  # "no answer", with its score

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
    """Find the spans with the highest scores, the best first.

    Of spans with equal scores, the one that begins first comes first, then the shortest.

    Parameters
    ----------
    starts : numpy.ndarray
        Score of each token as the first one of a span, (n,); -inf where no span may begin.
    ends : numpy.ndarray
        Score of each token as the last one, (n,); -inf where no span may end.
    count : int
        Most spans to find.
    longest : int
        Most tokens of a span.

    Returns
    -------
    first : numpy.ndarray
        Index of the first token of each span, (k,) int64.
    last : numpy.ndarray
        Index of its last token, (k,) int64.
    """
    padded = np.concatenate([ends, np.full(longest, -np.inf)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, longest)
    ends_after = windows[: len(starts)]  # (n, longest)
    span_scores = starts[:, None] + ends_after  # (n, longest), by first token and length
    scores = span_scores.ravel()
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

    A span can begin only in the window in which its first token has most context. The score of no answer is
    the lowest that any window gives it, because then no window may hold an answer.

    Parameters
    ----------
    windows : Windows
        Windows of many questions.
    example : int
        Index of the question.
    outputs : sequence of numpy.ndarray
        Scores of every token as start and as end, (n,2) for each window of the question.
    text : str
        The paragraph.
    count : int
        Most answers to find, all with different texts.
    longest : int
        Most tokens of an answer.

    Returns
    -------
    Answers
        The best answers, and the score of no answer.
    """
    outputs = [np.asarray(output, np.float64) for output in outputs]
    lowest = min(outputs, key=lambda output: output[0].sum())
    null = Candidate("", *lowest[0].tolist())
    indices = range(*windows.bounds[example : example + 2].tolist())
    sources = []  # for each window: scores of starts (n,) and of ends (n,), characters (n,2)
    for index, most, output in zip(indices, windows.most_context(example), outputs, strict=True):
        row = windows.first_row(index)
        tokens = output[row : row + len(most)]
        starts = np.where(most, tokens[:, 0], -np.inf)
        ends = tokens[:, 1]
        sources.append((starts, ends, windows.offsets(index)))
    wanted = count * MARGIN
    while True:
        spans = []  # for each window (k,4): start score, end score, first character, the one after the last
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
        # A window that gave as many spans as were asked for may have more, no better than its last.
        unseen = -np.inf
        for span in spans:
            if len(span) == wanted:
                last_score = float(span[-1, :2].sum())
                unseen = max(unseen, last_score)
        if worst_kept >= unseen:  # nothing better was left out
            return Answers(best, null)
        wanted *= MARGIN


def _different(rows: np.ndarray, text: str, count: int) -> list[Candidate]:
    """Return the first `count` spans with different texts."""
    candidates: dict[str, Candidate] = {}
    for start_logit, end_logit, *characters in rows.tolist():
        begin, end = map(int, characters)
        words = text[begin:end]
        candidate = Candidate(words, start_logit, end_logit, begin, end)
        candidates.setdefault(words, candidate)
        if len(candidates) == count:
            break
    return list(candidates.values())
