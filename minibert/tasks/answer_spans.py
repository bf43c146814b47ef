"""From the scores of tokens to answers: the best spans of all windows of a question, and "no answer".

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
    """A possible answer, as it stands in its paragraph; no answer is "" at no place."""

    text: str
    start_logit: float
    end_logit: float
    begin: int | None = None  # first character
    end: int | None = None  # the one behind the last

    @property
    def score(self) -> float:
        """Of the span, to be compared with those of other spans and windows of the same question."""
        return self.start_logit + self.end_logit


class Answers(NamedTuple):
    """What a model says about one question."""

    best: list[Candidate]  # of different texts, the best first; [] if the paragraph has no token
    null: Candidate  # no answer

    @property
    def null_odds(self) -> float:
        """How much better no answer is than the best one: the difference of their scores."""
        return self.null.score - self.best[0].score if self.best else 0.0


# starts (n,) ends (n,) -> (k,) (k,)
def best_spans(starts: np.ndarray, ends: np.ndarray, count: int, longest: int) -> tuple[np.ndarray, ...]:
    """Find the spans of highest score, the best first; of equal ones the first to begin, then the shortest.

    Return the numbers of their first and last tokens, int64. Scores of a span's first token and of its last
    are -inf where it must not be. There are up to `count` spans, of `longest` tokens at most.
    """
    padded = np.concatenate([ends, np.full(longest, -np.inf)])
    behind = np.lib.stride_tricks.sliding_window_view(padded, longest)[: len(starts)]  # (n, longest)
    scores = (starts[:, None] + behind).ravel()
    least = np.partition(scores, -count)[-count] if count < len(scores) else -np.inf
    chosen = np.flatnonzero((scores >= least) & (scores > -np.inf))
    chosen = chosen[np.argsort(-scores[chosen], kind="stable")][:count]
    first, more = np.divmod(chosen, longest)
    return first, first + more


# outputs (n,2) of each window
def decode(
    windows: Windows, example: int, outputs: Sequence[np.ndarray], text: str, count: int, longest: int
) -> Answers:
    """Find up to `count` answers of at most `longest` tokens to a question, `example` being its number.

    `outputs` are scores of every token as start and as end, for each of its windows; `text` the paragraph.
    A span begins only in the window in which its first token has most context. The score of no answer is the
    lowest that any window gives it, since no window may hold an answer then.
    """
    outputs = [np.asarray(output, np.float64) for output in outputs]
    lowest = min(outputs, key=lambda output: output[0].sum())
    null = Candidate("", *lowest[0].tolist())
    sources, numbers = [], range(*windows.bounds[example : example + 2].tolist())
    for number, most, output in zip(numbers, windows.most_context(example), outputs, strict=True):
        row = windows.first_row(number)
        starts, ends = output[row : row + len(most)].T
        sources.append((np.where(most, starts, -np.inf), ends, windows.offsets(number)))
    wanted = count * MARGIN
    while True:
        spans = []  # (k,4) of each window: start score, end score, first character, the one behind the last
        for starts, ends, offsets in sources:
            first, last = best_spans(starts, ends, wanted, longest)
            spans.append(np.stack([starts[first], ends[last], offsets[first, 0], offsets[last, 1]], axis=1))
        rows = np.concatenate(spans)
        best = _different(rows[np.argsort(-rows[:, :2].sum(1), kind="stable")], text, count)
        unseen = max((float(s[-1, :2].sum()) for s in spans if len(s) == wanted), default=-np.inf)
        if (best[-1].score if len(best) == count else -np.inf) >= unseen:  # nothing better was left out
            return Answers(best, null)
        wanted *= MARGIN


def _different(rows: np.ndarray, text: str, count: int) -> list[Candidate]:
    """Return the first spans whose texts differ."""
    found: dict[str, Candidate] = {}
    for start, end, begin, behind in rows.tolist():
        words = text[int(begin) : int(behind)]
        found.setdefault(words, Candidate(words, start, end, int(begin), int(behind)))
        if len(found) == count:
            break
    return list(found.values())
