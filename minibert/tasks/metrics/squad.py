"""Exact match and F1 of answers by the rules of SQuAD's official scripts, evaluate-v1.1.py and -v2.0.py.

Answers are compared without case, punctuation, articles and extra white space. F1 is that of the two bags of
words, and the best of the gold answers counts. In 2.0 a question may have no answer: then only "" is right.
Metrics are percentages, and agree with the scripts to the last bit because they are added in the same order.
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
# Gold: objects with `id`, `answers` (each with `text`) and `impossible`, which is None if it is not known.
Questions: TypeAlias = Sequence[Any]
Answers: TypeAlias = Mapping[str, str]  # answers by the id of the question
NullOdds: TypeAlias = Mapping[str, float]
LARGEST = 1e308  # largest null odds: integers in JSON are unbounded, and not-a-number can't be compared
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


class Scores(NamedTuple):
    """Exact match, 0 or 1, and F1, from 0 to 1, of each question: (n,) float64 both."""

    exact: np.ndarray
    f1: np.ndarray


def normalize(text: str) -> str:
    """Lower-case an answer and drop ASCII punctuation, articles and extra white space.

    Parameters
    ----------
    text : str
        An answer.

    Returns
    -------
    str
        Its words, with one space between them.
    """
    without_punctuation = text.lower().translate(_NO_PUNCTUATION)
    words = _ARTICLES.sub(" ", without_punctuation).split()
    return " ".join(words)


def exact_and_f1(
    prediction: str,
    answers: Sequence[str],
    version: str = V1,
) -> tuple[int, float]:
    """Return whether a prediction is a gold answer, and its F1 with the gold answer that fits best.

    The versions differ if `normalize` leaves nothing of either answer: in 2.0 two answers without words
    agree, in 1.1 they share nothing.

    Parameters
    ----------
    prediction : str
        The predicted answer; "" for no answer.
    answers : sequence of str
        Gold answers; at least one in 1.1.
    version : str, default "1.1"
        "1.1" or "2.0".

    Returns
    -------
    exact : int
        0 or 1.
    f1 : float
        From 0 to 1.

    Raises
    ------
    InputError
        When there is no gold answer in 1.1.
    """
    candidates = [normalize(answer) for answer in answers]
    if version == V2:
        candidates = [answer for answer in candidates if answer] or [""]
    if not candidates:
        raise InputError("A question has no gold answer, as only in SQuAD 2.0; score it with version 2.0.")
    normalized = normalize(prediction)
    words = Counter(normalized.split())
    n_words = words.total()
    f1 = max(_overlap(answer.split(), words, n_words, version) for answer in set(candidates))
    return int(normalized in candidates), f1


def _overlap(gold: list[str], predicted: Counter[str], n_predicted: int, version: str) -> float:
    """Return the F1 of two bags of words."""
    if not gold or not predicted:
        return float(version == V2 and not gold and not predicted)
    shared = (Counter(gold) & predicted).total()
    if not shared:
        return 0.0
    precision = shared / n_predicted
    recall = shared / len(gold)
    return 2 * precision * recall / (precision + recall)


def question_scores(
    questions: Questions,
    predictions: Answers,
    version: str = AUTO,
) -> Scores:
    """Compute exact match and F1 of every question; 0 for a question without a prediction.

    Use `bootstrap(lambda rows: scores.f1[rows].mean(), n)` for confidence intervals.

    Parameters
    ----------
    questions : sequence of Question
        Questions with gold answers.
    predictions : mapping of str to str
        An answer for each id; "" for no answer.
    version : str, default "auto"
        "1.1", "2.0" or "auto", see `score`.

    Returns
    -------
    Scores
        For n questions, in order.

    Raises
    ------
    InputError
        When there is no question, none has an answer or is marked as unanswerable, no prediction belongs to
        any of them, a prediction is not a text, or the version does not fit.
    """
    version = version_of(questions, version)
    if not questions:
        raise InputError("There is no question to score; give one at least.")
    if not any(_has_text(question) or question.impossible for question in questions):
        problem = f"None of the {len(questions):,} questions has an answer or is said to have none"
        raise InputError(f"{problem}; give the gold file, with answers.")
    if not any(question.id in predictions for question in questions):
        counts = f"the {len(predictions):,} predictions is for one of the {len(questions):,} questions"
        first = f"the first of which has the id {questions[0].id}"
        raise InputError(f"None of {counts}, {first}; give the predictions for these questions.")
    for question in questions:
        given = predictions.get(question.id, "")
        if not isinstance(given, str):
            problem = f"The prediction for question {question.id} is {given!r:.50}"
            raise InputError(f'{problem}; give a text, "" where there is no answer.')
    exact, f1 = np.zeros((2, len(questions)))
    for row, question in enumerate(questions):
        prediction = predictions.get(question.id)
        if prediction is not None:
            answers = [answer.text for answer in question.answers]
            exact[row], f1[row] = exact_and_f1(prediction, answers, version)
    return Scores(exact, f1)


def with_threshold(
    scores: Scores,
    questions: Questions,
    predictions: Answers,
    null_odds: NullOdds,
    threshold: float,
) -> Scores:
    """Return the scores of SQuAD 2.0 if questions with null odds above a threshold are left unanswered.

    Parameters
    ----------
    scores : Scores
        Scores of the predictions, (n,).
    questions : sequence of Question
        Questions with gold answers, (n,).
    predictions : mapping of str to str
        An answer for each id. Only whether there is one matters here.
    null_odds : mapping of str to float
        How likely it is that each question has no answer, by id: a probability, or a difference of scores.
    threshold : float
        In the unit of the null odds.

    Returns
    -------
    Scores
        For n questions; 1 if a question without an answer is left unanswered.

    Raises
    ------
    InputError
        When the null odds of a question with a prediction are missing or not a number.
    """
    odds = np.full(len(questions), np.nan)  # (n,), not-a-number for questions without a prediction
    for row, question in enumerate(questions):
        if question.id in predictions:
            odds[row] = _number(question.id, null_odds.get(question.id))
    silent = odds > threshold
    right = np.array([not question.answers for question in questions], np.float64)
    return Scores(np.where(silent, right, scores.exact), np.where(silent, right, scores.f1))


def _number(id: str, value: Any) -> float:
    """Return the null odds of a question; raise InputError if they are not a number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not abs(value) <= LARGEST:
        advice = "give a number for every question that has a prediction."
        raise InputError(f"The null odds of question {id} are {value!r:.50}; {advice}")
    return value


def score(
    questions: Questions,
    predictions: Answers,
    null_odds: NullOdds | None = None,
    threshold: float = 1.0,
    version: str = AUTO,
) -> dict[str, Any]:
    """Compute the metrics of the official scripts, with the names of evaluate-v2.0.py, in percent.

    Parameters
    ----------
    questions : sequence of Question
        Questions with gold answers.
    predictions : mapping of str to str
        An answer for each id; "" for no answer. Questions without a prediction are wrong, and a warning
        counts them; the script of 2.0 crashes then. Predictions for other ids are ignored.
    null_odds : mapping of str to float, optional
        For each id with a prediction, how likely it is that there is no answer; only in 2.0.
    threshold : float, default 1
        Null odds above which the prediction counts as "". The script has the same default.
    version : str, default "auto"
        "1.1", "2.0", or "auto": 2.0 if a question has no answer.

    Returns
    -------
    dict
        `exact`, `f1`, `total`. In 2.0 also the same for the questions with and without an answer, prefixed
        with HasAns_ and NoAns_. With null odds also `best_exact`, `best_exact_thresh`, `best_f1`,
        `best_f1_thresh`.

    Raises
    ------
    InputError
        When a prediction is not a text, null odds are not numbers or belong to no question, or the version
        does not fit.
    """
    version = version_of(questions, version)
    raw = scores = question_scores(questions, predictions, version)
    missing = [question.id for question in questions if question.id not in predictions]
    if missing:
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
            for key, value in _metrics(scores, rows).items():
                metrics[f"{name}_{key}"] = value
    if null_odds is not None:
        for name, values in raw._asdict().items():
            best, best_at = _best_threshold(values, questions, predictions, null_odds)
            metrics[f"best_{name}"] = best
            metrics[f"best_{name}_thresh"] = best_at
    return metrics


def _metrics(scores: Scores, rows: Any) -> dict[str, Any]:
    """Average from left to right, as the scripts do: the order of NumPy's sum has another last digit."""
    n = len(scores.exact[rows])
    metrics: dict[str, Any] = {}
    for name, values in scores._asdict().items():
        total = np.add.accumulate(values[rows])[-1]
        metrics[name] = 100.0 * float(total) / n
    metrics["total"] = n
    return metrics


def _best_threshold(
    values: np.ndarray,
    questions: Questions,
    predictions: Answers,
    null_odds: NullOdds,
) -> tuple[float, float]:
    """Return the best percentage that a threshold of the null odds reaches, and the lowest such threshold.

    It starts with answering nothing, which is right for every question without an answer, and adds one
    question at a time in the order of the odds. Like the script it may stop between equal odds, where no
    threshold can.
    """
    rows = {question.id: row for row, question in enumerate(questions) if question.id in predictions}
    order = sorted((id for id in null_odds if id in rows), key=null_odds.__getitem__)
    n_without_answer = sum(not questions[row].answers for row in rows.values())
    sums = [float(n_without_answer)]
    for id in order:
        row = rows[id]
        has_answer = bool(questions[row].answers)
        sums.append(values[row] if has_answer else -bool(predictions[id]))
    reached = np.add.accumulate(sums)
    best = int(reached.argmax())
    percentage = 100.0 * float(reached[best]) / len(questions)
    threshold = null_odds[order[best - 1]] if best else 0.0
    return percentage, threshold


def version_of(questions: Questions, version: str = AUTO) -> str:
    """Return the version whose rules apply.

    Parameters
    ----------
    questions : sequence of Question
        Questions with gold answers.
    version : str, default "auto"
        "1.1", "2.0" or "auto".

    Returns
    -------
    str
        "1.1" or "2.0", as given; for "auto" it is 2.0 if a question has no answer.

    Raises
    ------
    InputError
        For any other version.
    """
    if version not in VERSIONS:
        known = ", ".join(VERSIONS)
        raise InputError(f"{version=} is not a version of SQuAD; give one of {known}.", version=version)
    if version != AUTO:
        return version
    return V1 if all(_has_text(question) and not question.impossible for question in questions) else V2


def _has_text(question: Any) -> bool:
    """Return whether a question has a gold answer with any text in it."""
    return any(answer.text.strip() for answer in question.answers)


def official_text(metrics: Mapping[str, Any]) -> str:
    """Format the metrics of `score` as the official script of the version prints them.

    Parameters
    ----------
    metrics : mapping
        Metrics that `score` returned.

    Returns
    -------
    str
        JSON: in 2.0 all metrics, indented; in 1.1 exact match and F1 in one line.
    """
    if "HasAns_total" in metrics or "NoAns_total" in metrics:
        return json.dumps(dict(metrics), indent=2)
    return json.dumps({"exact_match": metrics["exact"], "f1": metrics["f1"]})
