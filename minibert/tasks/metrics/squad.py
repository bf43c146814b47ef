"""Exact match and F1 of answers by the rules of SQuAD's official scripts, evaluate-v1.1.py and -v2.0.py.

An answer is compared without case, punctuation, articles and surplus white space; F1 is that of the two bags
of words; the best of the gold answers counts. In 2.0 a question may have no answer: then only "" is right.
Metrics are percentages and agree with the scripts to the last bit, for they are added in the same order.
"""

import json
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from minibert.base.errors import InputError, warn

AUTO, V1, V2 = VERSIONS = ("auto", "1.1", "2.0")
# Gold: objects with `id`, `answers` (each with `text`) and `impossible`, which is None where it is not known.
Questions: TypeAlias = Sequence[Any]
Answers: TypeAlias = Mapping[str, str]  # by the id of the question
NullOdds: TypeAlias = Mapping[str, float]
LARGEST = 1e308  # of null odds: integers of JSON have no bound, and not-a-number is below none
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


class Scores(NamedTuple):
    """Exact match, 0 or 1, and F1, from 0 to 1, of each question: (n,) float64 both."""

    exact: np.ndarray
    f1: np.ndarray


def normalize(text: str) -> str:
    """Lower-case an answer and drop ASCII punctuation, articles and extra white space."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_and_f1(prediction: str, answers: Sequence[str], version: str = V1) -> tuple[int, float]:
    """Return whether a prediction, "" for none, is a gold answer, 0 or 1, and F1 with the one that fits best.

    Where nothing is left of either answer after `normalize` the versions differ: two answers without words
    agree in 2.0, and share nothing in 1.1. No gold answer at all is for 2.0 only.
    """
    candidates = [normalize(answer) for answer in answers]
    if version == V2:
        candidates = [answer for answer in candidates if answer] or [""]
    if not candidates:
        raise InputError("A question has no gold answer, as only in SQuAD 2.0; score it with version 2.0.")
    found = normalize(prediction)
    words = Counter(found.split())
    f1 = max(_overlap(answer.split(), words, words.total(), version) for answer in set(candidates))
    return int(found in candidates), f1


def _overlap(gold: list[str], found: Counter[str], n_found: int, version: str) -> float:
    if not gold or not found:
        return float(version == V2 and not gold and not found)
    if not (shared := (Counter(gold) & found).total()):
        return 0.0
    precision, recall = shared / n_found, shared / len(gold)
    return 2 * precision * recall / (precision + recall)


def question_scores(questions: Questions, predictions: Answers, version: str = AUTO) -> Scores:
    """Compute exact match and F1 of every question in turn; 0 for one that has no prediction.

    See `score` for parameters and errors. For intervals: `bootstrap(lambda rows: scores.f1[rows].mean(), n)`.
    """
    version = version_of(questions, version)
    if not questions:
        raise InputError("There is no question to score; give one at least.")
    if not any(_has_text(question) or question.impossible for question in questions):
        none = f"None of the {len(questions):,} questions has an answer or is said to have none"
        raise InputError(f"{none}; give the gold file, with answers.")
    if not any(question.id in predictions for question in questions):
        none = f"None of the {len(predictions):,} predictions is for one of the {len(questions):,} questions"
        advice = f"the first of which has the id {questions[0].id}; give the predictions for these questions."
        raise InputError(f"{none}, {advice}")
    for question in questions:
        if not isinstance(given := predictions.get(question.id, ""), str):
            found = f"The prediction for question {question.id} is {given!r:.50}"
            raise InputError(f'{found}; give a text, "" where there is no answer.')
    exact, f1 = np.zeros((2, len(questions)))
    for row, question in enumerate(questions):
        if (prediction := predictions.get(question.id)) is not None:
            answers = [answer.text for answer in question.answers]
            exact[row], f1[row] = exact_and_f1(prediction, answers, version)
    return Scores(exact, f1)


def with_threshold(
    scores: Scores, questions: Questions, predictions: Answers, null_odds: NullOdds, threshold: float
) -> Scores:
    """Return the scores of SQuAD 2.0 when nothing is answered where the null odds are above a threshold.

    The odds tell how likely each question has no answer: a probability, or a difference of scores.
    """
    odds = np.full(len(questions), np.nan)  # (n,), not-a-number for questions without a prediction
    for row, question in enumerate(questions):
        if question.id in predictions:
            value = null_odds.get(question.id)
            if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:
                advice = "give a number for every question that has a prediction."
                raise InputError(f"The null odds of question {question.id} are {value!r:.50}; {advice}")
            odds[row] = value
    silent = odds > threshold
    right = np.array([not question.answers for question in questions], np.float64)
    return Scores(np.where(silent, right, scores.exact), np.where(silent, right, scores.f1))


def score(
    questions: Questions,
    predictions: Answers,
    null_odds: NullOdds | None = None,
    threshold: float = 1.0,
    version: str = AUTO,
) -> dict[str, Any]:
    """Compute the metrics of the official scripts, under the names of evaluate-v2.0.py, in percent.

    Return exact, f1, total; in 2.0 the same of the questions with and without an answer, HasAns_ and NoAns_
    in front; with null odds best_exact, best_exact_thresh, best_f1, best_f1_thresh as well. Raise InputError
    when a prediction is no text, null odds are no number, none belongs to any question, or the version does
    not fit.

    Parameters
    ----------
    questions, predictions : gold, and an answer for each id, "" for none. A warning counts questions without
        one, which are wrong; the script of 2.0 breaks down there. Predictions for other ids are left alone.
    null_odds : for each id that has a prediction, how likely it has no answer; 2.0 only.
    threshold : where the null odds are above it, "" is taken for the prediction; 1 in the script as well.
    version : "1.1", "2.0", or "auto": 2.0 where a question has no answer.
    """
    version = version_of(questions, version)
    raw = scores = question_scores(questions, predictions, version)
    if missing := [question.id for question in questions if question.id not in predictions]:
        some = f"{len(missing):,} of {len(questions):,} questions"
        warn(f"{some} have no prediction and count as wrong; the first is {missing[0]}.")
    if null_odds is not None:
        if version == V1:
            advice = "leave them out, or score with version 2.0."
            raise InputError(f"Null odds are for SQuAD 2.0, and here every question has an answer; {advice}")
        scores = with_threshold(raw, questions, predictions, null_odds, threshold)
    metrics = _metrics(scores, slice(None))
    if version == V1:
        return metrics
    answerable = np.array([bool(question.answers) for question in questions])
    for name, rows in (("HasAns", answerable), ("NoAns", ~answerable)):
        if rows.any():
            metrics |= {f"{name}_{key}": value for key, value in _metrics(scores, rows).items()}
    if null_odds is not None:
        for name, values in raw._asdict().items():
            best, at = _best_threshold(values, questions, predictions, null_odds)
            metrics |= {f"best_{name}": best, f"best_{name}_thresh": at}
    return metrics


def _metrics(scores: Scores, rows: Any) -> dict[str, Any]:
    """Average from left to right, as the scripts do; NumPy's sum has another order and last digit."""
    n = len(scores.exact[rows])
    sums = {name: np.add.accumulate(values[rows])[-1] for name, values in scores._asdict().items()}
    return {name: 100.0 * float(total) / n for name, total in sums.items()} | {"total": n}


def _best_threshold(
    values: np.ndarray, questions: Questions, predictions: Answers, null_odds: NullOdds
) -> tuple[float, float]:
    """Return the best percentage that a threshold of the null odds reaches, and the lowest such threshold.

    From answering nothing, which is right for every question without an answer, on by one question at a time
    in the order of the odds. Like the script it may stop among equal odds, where no threshold can.
    """
    rows = {question.id: row for row, question in enumerate(questions) if question.id in predictions}
    order = sorted((id for id in null_odds if id in rows), key=null_odds.__getitem__)
    nothing = sum(not questions[row].answers for row in rows.values())
    gains = [values[rows[id]] if questions[rows[id]].answers else -bool(predictions[id]) for id in order]
    reached = np.add.accumulate([float(nothing), *gains])
    best = int(reached.argmax())
    return 100.0 * float(reached[best]) / len(questions), null_odds[order[best - 1]] if best else 0.0


def version_of(questions: Questions, version: str = AUTO) -> str:
    """Return whose rules hold: "1.1" or "2.0", as given or seen from the questions."""
    if version not in VERSIONS:
        raise InputError(f"version={version!r} is no version of SQuAD; give one of {', '.join(VERSIONS)}.")
    if version != AUTO:
        return version
    return V1 if all(_has_text(question) and not question.impossible for question in questions) else V2


def _has_text(question: Any) -> bool:
    return any(answer.text.strip() for answer in question.answers)


def official_text(metrics: Mapping[str, Any]) -> str:
    """Format the metrics of `score` as the official script of the version prints them."""
    if "HasAns_total" in metrics or "NoAns_total" in metrics:
        return json.dumps(dict(metrics), indent=2)
    return json.dumps({"exact_match": metrics["exact"], "f1": metrics["f1"]})
