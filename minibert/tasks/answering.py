"""Question answering: SQuAD 1.1 and 2.0, TriviaQA, and custom questions (Devlin et al. 2019, 4.2, 4.3).

An answer is cut out of the original paragraph by the character offsets of its first and last token. Google's
code joins the tokens to a text again and then looks for it in the paragraph, which fails where normalisation
changed its length.
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
from minibert.tasks.batches import lengths
from minibert.tasks.custom_files import check_columns, custom_file, matching, read_custom
from minibert.tasks.metrics import squad as metrics
from minibert.tasks.metrics.intervals import Statistic, mean_of
from minibert.tasks.task import (
    Classes,
    Examples,
    Labels,
    Mistake,
    Outputs,
    Predictions,
    Task,
    TrainedModel,
    Tuned,
    softmax,
)
from minibert.tasks.windows import Windows
from minibert.training.runlog import Progress

# Arguments of `tables.read_questions`.
COLUMNS = ("question", "context", "answer", "start", "id", "delimiter", "header")
NULL_THRESHOLD = "null_threshold"  # name of the tuned value: the null odds above which there is no answer
OFFICIAL = ("text", "probability", "start_logit", "end_logit")  # keys in Google's nbest_predictions.json
NO_ANSWER = "(no answer)"
AROUND = 160  # characters of the paragraph to show on each side of an answer


class Answering(Task):
    """Find the answer to a question in a paragraph.

    A prediction is a dictionary: `id`, `text` ("" for no answer), `begin` and `end` (characters of the
    paragraph, or None), `probability` (among the n best), `n_best` (dictionaries of the same form, with
    `start_logit` and `end_logit`) and, if there may be no answer, `null_odds`.
    """

    kind = "span"
    command = "answer"
    label_field = "impossible"
    metric = "f1"
    max_length = 384
    stride = 128  # see `Windows`
    max_question = 64  # see `Windows`
    n_best = 20  # how many answers a prediction holds
    longest = 30  # most tokens of an answer
    untuned: float | None = None  # null odds above which there is no answer, for a model without tuned ones
    always_answers = False  # whether to answer even if the model has a tuned threshold

    def features(
        self,
        examples: Iterable[Question],
        tokenizer: Any,
        labels: Labels,
        max_length: int,
        training: bool,
    ) -> Windows:
        """Lay windows over the paragraphs of questions, with the task's `stride` and `max_question`.

        In training, questions whose answer is not in their paragraph are left out.
        """
        return Windows(
            examples,
            tokenizer,
            max_length,
            stride=self.stride,
            max_question=self.max_question,
            training=training,
        )

    def may_be_none(self, examples: Examples) -> bool:
        """Return whether a question may have no answer, by the rules of SQuAD 2.0.

        Parameters
        ----------
        examples : sequence of Question
            The questions.

        Returns
        -------
        bool
            False by default.
        """
        return False

    def tune(
        self,
        examples: Examples,
        features: Windows,
        outputs: Outputs,
        labels: Labels,
    ) -> Tuned:
        """Choose the null odds above which there is no answer (Devlin et al. 2019, section 4.3).

        Parameters
        ----------
        outputs : sequence of numpy.ndarray
            Scores of every token as start and as end, (n,2) for each window.

        Returns
        -------
        dict
            `null_threshold`, with which F1 is the highest; {} if every question has an answer.
        """
        if not self.may_be_none(examples):
            return {}
        odds = []
        texts = {}
        for question, answers in self._decoded(examples, features, outputs):
            odds.append(answers.null_odds)
            texts[question.id] = answers.best[0].text if answers.best else ""
        answered = metrics.question_scores(examples, texts, metrics.V2).f1
        silent = np.array([not question.answers for question in examples], np.float64)
        return {NULL_THRESHOLD: best_threshold(np.array(odds), answered, silent)}

    def predict(
        self,
        examples: Examples,
        features: Windows,
        outputs: Outputs,
        labels: Labels,
        tuned: Tuned,
    ) -> list[dict[str, Any]]:
        """Choose the answer to every question.

        Parameters
        ----------
        outputs : sequence of numpy.ndarray
            Scores of every token as start and as end, (n,2) for each window.
        tuned : dict
            `null_threshold`, if one was chosen on dev.

        Returns
        -------
        list of dict
            A prediction for each question, see `Answering`.
        """
        threshold = None if self.always_answers else tuned.get(NULL_THRESHOLD, self.untuned)
        decoded = self._decoded(examples, features, outputs)
        return [_prediction(question.id, answers, threshold) for question, answers in decoded]

    def _decoded(
        self,
        examples: Examples,
        features: Windows,
        outputs: Outputs,
    ) -> Iterator[tuple[Question, Answers]]:
        """Yield each question with its best answers."""
        for index, question in enumerate(examples):
            windows = slice(*features.bounds[index : index + 2])
            answers = decode(features, index, outputs[windows], question.context, self.n_best, self.longest)
            yield question, answers

    def _version(self, examples: Examples) -> str:
        """Return the version of SQuAD by whose rules the answers to some questions are scored."""
        return metrics.V2 if self.may_be_none(examples) else metrics.V1

    # -> (n,)
    def _f1(self, examples: Examples, predictions: Predictions) -> np.ndarray:
        """Return the F1 of the answer to each question, from 0 to 1."""
        version = self._version(examples)
        return metrics.question_scores(examples, _texts(predictions), version).f1

    def score(self, examples: Examples, predictions: Predictions) -> dict[str, float]:
        """Compute the metrics of SQuAD's official scripts.

        Returns
        -------
        dict
            `exact`, `f1` and `total`; if there may be no answer, all metrics of `metrics.squad.score`. They
            are fractions of one, except those whose names end with "total" or "_thresh".
        """
        version = self._version(examples)
        scores = metrics.score(examples, _texts(predictions), version=version)
        odds = _null_odds(predictions)
        if version == metrics.V2 and len(odds) == len(examples):
            # The best answers, also to questions that the model left unanswered.
            best = {prediction["id"]: _best_text(prediction) for prediction in predictions}
            with_odds = metrics.score(examples, best, odds, version=version)
            for name, value in with_odds.items():
                if name.startswith("best_"):
                    scores[name] = value
        fractions = {}
        for name, value in scores.items():
            is_percentage = not name.endswith(("total", "_thresh"))
            fractions[name] = value / 100 if is_percentage else float(value)
        return fractions

    def statistic(self, examples: Examples, predictions: Predictions) -> Statistic:
        """Return the mean F1 of questions as a function of their indices, for its confidence interval.

        Returns
        -------
        Mean
            The F1 of each question, from 0 to 1.
        """
        return mean_of(self._f1(examples, predictions))

    def write(
        self,
        folder: Path,
        split: str,
        examples: Examples,
        predictions: Predictions,
    ) -> list[Path]:
        """Write the three files of Google's run_squad; the official scorers read the first and the last.

        Returns
        -------
        list of Path
            predictions.json, nbest_predictions.json and, if there are null odds, null_odds.json.
        """
        n_best = {}
        for prediction in predictions:
            answers = prediction["n_best"]
            n_best[prediction["id"]] = [{name: answer[name] for name in OFFICIAL} for answer in answers]
        contents = {"predictions.json": _texts(predictions), "nbest_predictions.json": n_best}
        odds = _null_odds(predictions)
        if odds:
            contents["null_odds.json"] = odds
        for name, content in contents.items():
            atomic_json(folder / name, content, indent=4)
        return [folder / name for name in contents]

    def _mistakes(self, examples: Examples, predictions: Predictions) -> Iterator[Mistake]:
        """Yield answers whose F1 is below 1; the lower it is, and the more probable the answer, the worse."""
        scored = zip(examples, predictions, self._f1(examples, predictions).tolist(), strict=True)
        for index, (question, prediction, f1) in enumerate(scored):
            if f1 < 1.0:
                gold = dict.fromkeys(answer.text for answer in question.answers)
                starts = [answer.start for answer in question.answers if answer.start >= 0]
                begin = starts[0] if starts else prediction["begin"] or 0
                around = "".join(passage(question.context, begin, begin))
                yield Mistake(
                    text=f"{question.question}\n{around}",
                    expected=" | ".join(gold) or NO_ANSWER,
                    found=prediction["text"] or NO_ANSWER,
                    severity=(1.0 - f1) * prediction["probability"],
                    example=index,
                )

    def classes(self, examples: Examples, predictions: Predictions) -> Classes | None:
        """Return for each question whether it has an answer, and whether one was predicted.

        Returns
        -------
        tuple of two lists, or None
            "no answer" or "an answer"; None if every question has an answer.
        """
        if not self.may_be_none(examples):
            return None
        names = ("no answer", "an answer")
        has_answer = [bool(question.answers) for question in examples]
        is_answered = [bool(prediction["text"]) for prediction in predictions]
        return [names[value] for value in has_answer], [names[value] for value in is_answered]


class Squad(Answering):
    """SQuAD 1.1, where every question has an answer, or 2.0, where half of them have none in their paragraph.

    Parameters
    ----------
    name : str
        "squad1" or "squad2".
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._is_second = name == "squad2"
        self.always_answers = not self._is_second
        self.untuned = 0.0 if self._is_second else None  # the default of Google's code

    def read(self, data: Path, split: str) -> list[Question]:
        """Read the questions of one split.

        Parameters
        ----------
        data : Path
            A folder with a file such as train-v1.1.json (SQuAD 1.1) or train-v2.0.json (SQuAD 2.0), or the
            file.
        split : str
            "train", "dev" or "test".

        Returns
        -------
        list of Question
            In the order of the file.

        Raises
        ------
        InputError
            When the file is missing, or is one of the other version.
        """
        version = self._version(())
        patterns = (f"{split}-v{version}.json", f"*{split}*v{version}*.json", f"{split}.json")
        path = find(data, patterns, self.name)
        questions = squad.read(path)
        impossible = next((question for question in questions if question.impossible), None)
        if impossible and not self._is_second:
            problem = f"{path} has questions without an answer, such as {impossible.id!r}"
            raise InputError(f"{problem}, as SQuAD 2.0 does; choose the task squad2.")
        if self._is_second and split != "test" and not impossible:
            advice = "choose the task squad1."
            raise InputError(f"{path} has no question without an answer, which SQuAD 2.0 has; {advice}")
        return questions

    def may_be_none(self, examples: Examples) -> bool:
        """Return whether this is the task "squad2"."""
        return self._is_second


class TriviaQA(Answering):
    """TriviaQA's questions about the beginnings of Wikipedia's articles, to train on before SQuAD.

    Every document of a question is scored separately, by the rules of SQuAD 1.1.
    """

    name = "triviaqa"
    always_answers = True

    def read(self, data: Path, split: str) -> list[Question]:
        """Read the questions of one split.

        Parameters
        ----------
        data : Path
            Folder of the official files, with that of the split in it or in its folder `qa`; or the file.
        split : str
            "train", "dev" or "test".

        Returns
        -------
        list of Question
            One for each document of a question.
        """
        patterns = (f"qa/wikipedia-{split}.json", f"wikipedia-{split}.json", f"*{split}*.json")
        return trivia.read(find(data, patterns, self.name))


class CustomQuestions(Answering):
    """A custom table. If one of its questions has no answer, the rules of SQuAD 2.0 hold.

    Parameters
    ----------
    columns : mapping
        Names of the columns by their role, one of `COLUMNS`.
    """

    name = "qa"

    def __init__(self, columns: Mapping[str, Any]):
        check_columns(self.name, columns, COLUMNS)
        self.columns = dict(columns)

    def read(self, data: Path, split: str) -> list[Question]:
        """Read the table of one split.

        Parameters
        ----------
        data : Path
            A folder with one table for each split, see `custom_file`, or a table.
        split : str
            "train", "dev" or "test". A "test" table may lack its answers.

        Returns
        -------
        list of Question
            In the order of the rows.
        """
        unlabelled = {"answer": None, "start": None}
        return read_custom(tables.read_questions, custom_file(data, split), split, self.columns, unlabelled)

    def asked(self, example: Question) -> dict[str, str]:
        """Return the question as `question`, to write next to its prediction in JSON."""
        return {"question": example.question}

    def may_be_none(self, examples: Examples) -> bool:
        """Return whether the table says of a question that it has no answer."""
        return any(question.impossible for question in examples)


def create(name: str, title: str, columns: Mapping[str, Any]) -> Answering:
    """Make a task by its name.

    Parameters
    ----------
    name : str
        "squad1", "squad2", "triviaqa" or "qa".
    title : str
        A one-line description.
    columns : mapping
        For "qa", names of the columns of its table, by their role.

    Returns
    -------
    Answering
        The task.
    """
    task: Answering
    if name == "qa":
        task = CustomQuestions(columns)
    elif name == "triviaqa":
        task = TriviaQA()
    else:
        task = Squad(name)
    task.title = title
    return task


def answer(model: TrainedModel, question: str, text: str, show: bool = False) -> dict[str, Any]:
    """Answer a question about a text of any length.

    Parameters
    ----------
    model : TrainedModel
        A model for one of the tasks of this module.
    question : str
        The question. After `max_question` pieces it is cut.
    text : str
        The text that the answer is cut out of.
    show : bool, default False
        Whether to show progress on the error stream.

    Returns
    -------
    dict
        A prediction, see `Answering`.

    Raises
    ------
    InputError
        When the model is for another task, or the question or the text is empty.
    """
    if model.head.kind != Answering.kind:
        trained = f"The model in '{model.folder}' was fine-tuned for {model.task.name}"
        advice = "give one that was fine-tuned for squad1, squad2, triviaqa or qa."
        raise InputError(f"{trained}, which answers no questions; {advice}")
    for name, value in (("question", question), ("text", text)):
        if not value.strip():
            raise InputError(f"The {name} is empty; give one with words in it.")
    questions = [Question("question", question, text, (), None)]
    windows = model.features(questions)
    n_tokens = int(lengths(windows).sum())
    with Progress(n_tokens, "tokens", show) as progress:
        outputs = model.outputs(windows, done=progress.add)
    predictions = model.task.predict(questions, windows, outputs, model.labels, model.tuned)
    return predictions[0]


# odds (Q,) answered (Q,) silent (Q,) -> threshold
def best_threshold(odds: np.ndarray, answered: np.ndarray, silent: np.ndarray) -> float:
    """Choose the null odds up to which questions are answered, so that the sum of the metric is largest.

    Questions with equal odds are either all answered or all not.

    Parameters
    ----------
    odds : numpy.ndarray
        Null odds of each question, (Q,), at least one: the score of no answer minus that of the best answer.
    answered : numpy.ndarray
        Metric of each question if it is answered, (Q,).
    silent : numpy.ndarray
        Metric of each question if it is not answered, (Q,).

    Returns
    -------
    float
        The odds of the last question that is answered, as in the official script of SQuAD 2.0; just below the
        lowest odds if it is best to answer none.
    """
    order = np.argsort(odds, kind="stable")
    odds = odds[order]
    gains = (answered - silent)[order]
    reached = np.concatenate([[0.0], np.cumsum(gains)])  # gain if the first n questions are answered
    differs = odds[1:] != odds[:-1]
    is_possible = np.concatenate([[True], differs, [True]])  # no threshold separates equal odds
    sums = np.where(is_possible, reached, -np.inf)
    n_answered = int(sums.argmax())
    if not n_answered:
        return float(np.nextafter(odds[0], -np.inf))
    return float(odds[n_answered - 1])


def passage(text: str, begin: int, end: int, around: int = AROUND) -> tuple[str, str, str]:
    """Return a part of a text and its surroundings, in one line and in whole words.

    Parameters
    ----------
    text : str
        A text of any length.
    begin, end : int
        First character of the part, and the one after its last.
    around : int, default 160
        Most characters to show on each side.

    Returns
    -------
    tuple of str
        What precedes the part, the part, and what follows it. "…" marks where the text goes on.
    """
    first = max(0, begin - around)
    last = min(len(text), end + around)
    before = re.sub(r"\s+", " ", text[first:begin])
    part = re.sub(r"\s+", " ", text[begin:end])
    after = re.sub(r"\s+", " ", text[end:last])
    if first:
        whole_words = before.partition(" ")[2] or before
        before = "… " + whole_words.lstrip()
    if last < len(text):
        whole_words = after.rpartition(" ")[0] or after
        after = whole_words.rstrip() + " …"
    return before, part, after


def find(folder: Path, patterns: Sequence[str], task: str = "") -> Path:
    """Find a file, compressed or not, by the first pattern that matches; a path to a file is taken as it is.

    Parameters
    ----------
    folder : Path
        Where to look, or the file.
    patterns : sequence of str
        Patterns for `Path.glob`. If nothing matches, the error names those without "*".
    task : str, optional
        A task, so that the error can say where to get its files.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    InputError
        When there is no such folder, or several files match a pattern.
    MissingFile
        When no file matches.
    """
    place = where_to_get(task)
    if folder.is_file():
        return folder
    if not folder.is_dir():
        raise InputError(f"There is no file or folder '{folder}'; name the one with the questions{place}.")
    for pattern in patterns:
        paths = matching(folder, pattern)
        if len(paths) > 1:
            names = ", ".join(sorted(path.name for path in paths))
            raise InputError(f"'{folder}' has {names}, and only one file is expected; name it.")
        if paths:
            return paths[0]
    plain = " or ".join(pattern for pattern in patterns if "*" not in pattern)
    raise MissingFile(f"'{folder}' has no {plain}; name the folder that it is in, or the file{place}.")


def _prediction(id: str, answers: Answers, threshold: float | None) -> dict[str, Any]:
    """Return the prediction for a question. Without a threshold, it is an answer in any case."""
    candidates = answers.best or [Candidate("", 0.0, 0.0)]
    chosen = candidates[0]
    odds = {}
    if threshold is not None:
        odds = {"null_odds": answers.null_odds}
        candidates = [*answers.best, answers.null]
        candidates.sort(key=lambda candidate: -candidate.score)
        if not answers.best or answers.null_odds > threshold:
            chosen = answers.null
    probabilities = softmax([candidate.score for candidate in candidates]).tolist()
    n_best = []
    for candidate, probability in zip(candidates, probabilities, strict=True):
        n_best.append(candidate._asdict() | {"probability": probability})
    return {
        "id": id,
        "text": chosen.text,
        "begin": chosen.begin,
        "end": chosen.end,
        "probability": probabilities[candidates.index(chosen)],
        **odds,
        "n_best": n_best,
    }


def _texts(predictions: Predictions) -> dict[str, str]:
    """Return the predicted answers by the ids of their questions; "" for no answer."""
    return {prediction["id"]: prediction["text"] for prediction in predictions}


def _null_odds(predictions: Predictions) -> dict[str, float]:
    """Return the null odds of questions that may have no answer, by id."""
    odds = {}
    for prediction in predictions:
        if "null_odds" in prediction:
            odds[prediction["id"]] = prediction["null_odds"]
    return odds


def _best_text(prediction: dict[str, Any]) -> str:
    """Return the best answer that is not empty, whether or not the model gave it."""
    texts = (answer["text"] for answer in prediction["n_best"] if answer["text"])
    return next(texts, "")
