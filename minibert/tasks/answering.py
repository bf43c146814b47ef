"""Question answering: SQuAD 1.1 and 2.0, TriviaQA, and one's own questions (Devlin et al. 2019, 4.2, 4.3).

An answer is cut out of the original paragraph by the characters of its first and last token. Google's code
joins tokens to a text again and then looks for that text in the paragraph, which fails where normalising
changed its length; with characters there is nothing to look for.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minibert.base.errors import InputError, MissingFile
from minibert.base.files import atomic_json
from minibert.data import squad, tables, trivia
from minibert.data.places import where_to_get
from minibert.data.squad import Question
from minibert.tasks.answer_spans import Answers, Candidate, decode
from minibert.tasks.metrics import squad as metrics
from minibert.tasks.metrics.intervals import Statistic, mean_of
from minibert.tasks.own_files import check_columns, matching, own_file, read_own
from minibert.tasks.task import Classes, Examples, Labels, Mistake, Outputs, Predictions, Task, Tuned, softmax
from minibert.tasks.windows import Windows
from minibert.training.runlog import Progress

COLUMNS = ("question", "context", "answer", "start", "id", "delimiter", "header")  # of `read_questions`
NULL_THRESHOLD = "null_threshold"  # of the null odds, above which there is no answer
OFFICIAL = ("text", "probability", "start_logit", "end_logit")  # in nbest_predictions.json of Google's code
NO_ANSWER = "(no answer)"
AROUND = 160  # characters of the paragraph to show on each side of an answer


class Answering(Task):
    """Where in its paragraph the answer to a question stands.

    A prediction is a dictionary: `id`, `text` ("" for no answer), `begin` and `end` (its characters in the
    paragraph, or None), `probability` (among the n best), `n_best` (such dictionaries, with `start_logit` and
    `end_logit`), and where there may be no answer `null_odds`.
    """

    kind = "span"
    command = "answer"
    label_field = "impossible"
    metric = "f1"
    max_length = 384
    stride = 128  # see `Windows`, as for `max_question`
    max_question = 64
    n_best = 20  # answers that are kept
    longest = 30  # tokens of an answer
    untuned: float | None = None  # null odds above which there is no answer, where none were chosen on dev
    always_answers = False  # whatever a model was tuned for that is asked

    def features(
        self, examples: Iterable[Question], tokenizer: Any, labels: Labels, max_length: int, training: bool
    ) -> Windows:
        sizes = {"stride": self.stride, "max_question": self.max_question}
        return Windows(examples, tokenizer, max_length, **sizes, training=training)

    def may_be_none(self, examples: Examples) -> bool:
        """Tell whether some of the questions have no answer, by the rules of SQuAD 2.0."""
        return False

    def tune(self, examples: Examples, features: Windows, outputs: Outputs, labels: Labels) -> Tuned:
        if not self.may_be_none(examples):
            return {}
        odds, texts = [], {}
        for question, answers in self._decoded(examples, features, outputs):
            odds.append(answers.null_odds)
            texts[question.id] = answers.best[0].text if answers.best else ""
        answered = metrics.question_scores(examples, texts, metrics.V2).f1
        silent = np.array([not question.answers for question in examples], np.float64)
        return {NULL_THRESHOLD: best_threshold(np.array(odds), answered, silent)}

    def predict(
        self, examples: Examples, features: Windows, outputs: Outputs, labels: Labels, tuned: Tuned
    ) -> list[dict[str, Any]]:
        threshold = None if self.always_answers else tuned.get(NULL_THRESHOLD, self.untuned)
        found = self._decoded(examples, features, outputs)
        return [_prediction(question.id, answers, threshold) for question, answers in found]

    def _decoded(
        self, examples: Examples, features: Windows, outputs: Outputs
    ) -> Iterator[tuple[Question, Answers]]:
        for number, question in enumerate(examples):
            own = outputs[slice(*features.bounds[number : number + 2])]
            yield question, decode(features, number, own, question.context, self.n_best, self.longest)

    def _version(self, examples: Examples) -> str:
        return metrics.V2 if self.may_be_none(examples) else metrics.V1

    # -> (n,)
    def _f1(self, examples: Examples, predictions: Predictions) -> np.ndarray:
        return metrics.question_scores(examples, _texts(predictions), self._version(examples)).f1

    def score(self, examples: Examples, predictions: Predictions) -> dict[str, float]:
        version = self._version(examples)
        scores = metrics.score(examples, _texts(predictions), version=version)
        odds = {p["id"]: p["null_odds"] for p in predictions if "null_odds" in p}
        if version == metrics.V2 and len(odds) == len(examples):
            # The best answers, even where there should be none.
            best = {p["id"]: next((n["text"] for n in p["n_best"] if n["text"]), "") for p in predictions}
            found = metrics.score(examples, best, odds, version=version)
            scores |= {name: value for name, value in found.items() if name.startswith("best_")}
        return {k: float(v) if k.endswith(("total", "_thresh")) else v / 100 for k, v in scores.items()}

    def statistic(self, examples: Examples, predictions: Predictions) -> Statistic:
        return mean_of(self._f1(examples, predictions))

    def write(self, folder: Path, split: str, examples: Examples, predictions: Predictions) -> list[Path]:
        """Write the three files of Google's run_squad; the official scorers read the first and the last."""
        n_best = {p["id"]: [{n: one[n] for n in OFFICIAL} for one in p["n_best"]] for p in predictions}
        contents = {"predictions.json": _texts(predictions), "nbest_predictions.json": n_best}
        if odds := {p["id"]: p["null_odds"] for p in predictions if "null_odds" in p}:
            contents["null_odds.json"] = odds
        for name, content in contents.items():
            atomic_json(folder / name, content, indent=4)
        return [folder / name for name in contents]

    def _mistakes(self, examples: Examples, predictions: Predictions) -> Iterator[Mistake]:
        found = zip(examples, predictions, self._f1(examples, predictions).tolist(), strict=True)
        for number, (question, prediction, right) in enumerate(found):
            if right < 1.0:
                gold = list(dict.fromkeys(answer.text for answer in question.answers))
                starts = [answer.start for answer in question.answers if answer.start >= 0]
                begin = starts[0] if starts else prediction["begin"] or 0
                text = f"{question.question}\n{''.join(passage(question.context, begin, begin))}"
                expected, given = " | ".join(gold) or NO_ANSWER, prediction["text"] or NO_ANSWER
                yield Mistake(text, expected, given, (1.0 - right) * prediction["probability"], number)

    def classes(self, examples: Examples, predictions: Predictions) -> Classes | None:
        if not self.may_be_none(examples):
            return None
        names = ("no answer", "an answer")
        gold = [names[bool(question.answers)] for question in examples]
        return gold, [names[bool(prediction["text"])] for prediction in predictions]


class Squad(Answering):
    """SQuAD, where every question has an answer (1.1), or half of them have none in their paragraph (2.0)."""

    def __init__(self, name: str) -> None:
        self.name, self._is_second, self.always_answers = name, name == "squad2", name != "squad2"
        self.untuned = 0.0 if self._is_second else None  # as in Google's code

    def read(self, data: Path, split: str) -> list[Question]:
        version = self._version(())
        path = find(
            data, (f"{split}-v{version}.json", f"*{split}*v{version}*.json", f"{split}.json"), self.name
        )
        questions = squad.read(path)
        bad = next((question for question in questions if question.impossible), None)
        if bad and not self._is_second:
            unlike = f"{path} has questions without an answer, such as {bad.id!r}"
            raise InputError(f"{unlike}, as SQuAD 2.0 does; choose the task squad2.")
        if self._is_second and split != "test" and not bad:
            advice = "choose the task squad1."
            raise InputError(f"{path} has no question without an answer, which SQuAD 2.0 has; {advice}")
        return questions

    def may_be_none(self, examples: Examples) -> bool:
        return self._is_second


class TriviaQA(Answering):
    """TriviaQA's questions about the beginnings of Wikipedia's articles, to train on before SQuAD.

    Scored with the rules of SQuAD 1.1, for each document by itself.
    """

    name = "triviaqa"
    always_answers = True

    def read(self, data: Path, split: str) -> list[Question]:
        names = f"qa/wikipedia-{split}.json", f"wikipedia-{split}.json", f"*{split}*.json"
        return trivia.read(find(data, names, self.name))


class OwnQuestions(Answering):
    """A table of one's own; where some of its questions have no answer, the rules of SQuAD 2.0 hold."""

    name = "qa"

    def __init__(self, columns: Mapping[str, Any]):
        check_columns(self.name, columns, COLUMNS)
        self.columns = dict(columns)

    def read(self, data: Path, split: str) -> list[Question]:
        unlabelled = {"answer": None, "start": None}
        return read_own(tables.read_questions, own_file(data, split), split, self.columns, unlabelled)

    def asked(self, example: Question) -> dict[str, str]:
        return {"question": example.question}

    def may_be_none(self, examples: Examples) -> bool:
        return any(question.impossible for question in examples)


def create(name: str, title: str, columns: Mapping[str, Any]) -> Answering:
    """Make the task of that name."""
    task = OwnQuestions(columns) if name == "qa" else TriviaQA() if name == "triviaqa" else Squad(name)
    task.title = title
    return task


def answer(model: Any, question: str, text: str, show: bool = False) -> dict[str, Any]:
    """Answer a question about a text of any length: make a prediction, see `Answering`.

    The model is one of a task of this module; `show` tells progress on the error stream. Raise InputError
    when the model is one of another task, or the question or the text is empty.
    """
    if model.head.kind != Answering.kind:
        trained = f"The model was fine-tuned for {model.task.name}, which answers no questions"
        raise InputError(f"{trained}; give one of squad1, squad2, triviaqa or qa.")
    for name, value in (("question", question), ("text", text)):
        if not value.strip():
            raise InputError(f"The {name} is empty; give one.")
    asked = [Question("question", question, text, (), None)]
    windows = model.features(asked)
    with Progress(int(windows.lengths.sum()), "tokens", show) as progress:
        outputs = model.outputs(windows, done=progress.add)
    return model.task.predict(asked, windows, outputs, model.labels, model.tuned)[0]


# odds (Q,) answered (Q,) silent (Q,) -> threshold
def best_threshold(odds: np.ndarray, answered: np.ndarray, silent: np.ndarray) -> float:
    """Choose the null odds up to which questions are answered: those of the largest sum of scores.

    Return the odds of the last question that is answered, as the official script of SQuAD 2.0 has it;
    questions of equal odds are answered together. Just below all of them where it is best to answer none.
    `odds` tell how much better no answer is than the best one, `answered` and `silent` the score of each
    question with its best answer, and with none.
    """
    order = np.argsort(odds, kind="stable")
    odds = odds[order]
    reached = np.concatenate([[0.0], np.cumsum((answered - silent)[order])])
    between = np.concatenate([[True], odds[1:] != odds[:-1], [True]])
    n_answered = int(np.where(between, reached, -np.inf).argmax())
    return float(odds[n_answered - 1] if n_answered else np.nextafter(odds[0], -np.inf))


def passage(text: str, begin: int, end: int, around: int = AROUND) -> tuple[str, str, str]:
    """Return what stands before a part of a text, the part, and what follows; in one line, whole words."""
    first, last = max(0, begin - around), min(len(text), end + around)
    parts = text[first:begin], text[begin:end], text[end:last]
    before, words, behind = (re.sub(r"\s+", " ", part) for part in parts)
    if first:
        before = "… " + (before.partition(" ")[2] or before).lstrip()
    if last < len(text):
        behind = (behind.rpartition(" ")[0] or behind).rstrip() + " …"
    return before, words, behind


def find(folder: Path, patterns: Sequence[str], task: str = "") -> Path:
    """Find the file, compressed or not, of the first pattern that fits; a path to a file is taken as it is.

    Raise InputError when there is no such file, or several fit one pattern; it says where those of a task are
    to be had.
    """
    place = where_to_get(task)
    if folder.is_file():
        return folder
    if not folder.is_dir():
        raise InputError(f"There is no file or folder {folder}; name the one with the questions{place}.")
    for pattern in patterns:
        found = matching(folder, pattern)
        if len(found) > 1:
            names = ", ".join(sorted(path.name for path in found))
            raise InputError(f"{folder} has {names}, of which only one can be meant; name the file.")
        if found:
            return found[0]
    plain = [pattern for pattern in patterns if "*" not in pattern]
    raise MissingFile(
        f"{folder} has no {' or '.join(plain)}; name the folder that it is in, or the file{place}."
    )


def _prediction(id: str, answers: Answers, threshold: float | None) -> dict[str, Any]:
    """Return a prediction as it is kept; without a threshold there is an answer in any case."""
    candidates, odds = answers.best or [Candidate("", 0.0, 0.0)], {}
    chosen = candidates[0]
    if threshold is not None:
        odds = {"null_odds": answers.null_odds}
        candidates = sorted([*answers.best, answers.null], key=lambda one: -one.score)
        if not answers.best or answers.null_odds > threshold:
            chosen = answers.null
    chances = softmax([one.score for one in candidates]).tolist()
    pairs = zip(candidates, chances, strict=True)
    n_best = [one._asdict() | {"probability": chance} for one, chance in pairs]
    answer = {"id": id, "text": chosen.text, "begin": chosen.begin, "end": chosen.end}
    return answer | {"probability": chances[candidates.index(chosen)], **odds, "n_best": n_best}


def _texts(predictions: Predictions) -> dict[str, str]:
    return {prediction["id"]: prediction["text"] for prediction in predictions}
