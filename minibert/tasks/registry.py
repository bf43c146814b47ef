"""The tasks by name. The code of a task is imported when the task is created."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import PurePath
from typing import Any, NamedTuple

from minibert.base.errors import InputError, did_you_mean
from minibert.base.foreign_names import FOREIGN_TASKS
from minibert.tasks.long_texts import LongTexts
from minibert.tasks.task import Task


class TaskSpec(NamedTuple):
    """A task that has not been created yet."""

    about: str  # description in the list of all tasks
    module: str  # module in this folder with a function `create(name, title, columns)`


# The tasks with official files: what the list of all tasks says of each, by the module in this folder.
OFFICIAL = {
    "sentences": {
        "cola": "CoLA: is the sentence acceptable English",
        "sst2": "SST-2: is the film review good",
        "mrpc": "MRPC: do two sentences say the same",
        "stsb": "STS-B: how similar are two sentences, 0 to 5",
        "qqp": "QQP: do two questions ask the same",
        "mnli": "MNLI: does one sentence follow from another (matched)",
        "mnli-mm": "MNLI, mismatched dev and test",
        "qnli": "QNLI: does the sentence answer the question",
        "rte": "RTE: does one sentence follow from another",
        "wnli": "WNLI: does a sentence with its pronoun replaced follow",
        "ax": "AX: GLUE's diagnostic sentences, for a model of MNLI",
        "quora": "Quora's question pairs, in place of QQP",
        "snli": "SNLI, in place of MNLI",
        "scitail": "SciTail, in place of QNLI or RTE",
        "sick": "SICK, in place of MNLI or RTE",
        "sick-score": "SICK's scores of relatedness, in place of STS-B",
        "qnli-dev": "QNLI's dev file divided, where there is no train file",
    },
    "choices": {
        "swag": "SWAG: which of four endings continues the text",
        "hellaswag": "HellaSwag: which of four endings continues the text",
        "hellaswag-dev": "HellaSwag's dev file divided, where there is no train file",
        "copa": "COPA: which of two is the cause, or the effect",
        "csqa": "CommonsenseQA: which of five answers is right",
    },
    "answering": {
        "squad1": "SQuAD 1.1: where in the paragraph is the answer",
        "squad2": "SQuAD 2.0: the same, where there may be none",
        "triviaqa": "TriviaQA, to train on before SQuAD",
    },
    "tagging": {
        "ner": "CoNLL-2003: who and what is named",
        "ner-sentences": "CoNLL-2003, each sentence without its document",
    },
    "similarity": {
        "stsb-similarity": "STS-B, its sentences read one by one: their cosine",
    },
}
CUSTOM = {
    "classify": TaskSpec("your own table: a class for a text or a pair of texts", "sentences"),
    "multilabel": TaskSpec("your own table: any number of classes for a text or a pair", "multilabel"),
    "regress": TaskSpec("your own table: a number for a text or a pair of texts", "sentences"),
    "tag": TaskSpec("your own table: a tag for every word", "tagging"),
    "qa": TaskSpec("your own table: questions and paragraphs", "answering"),
    "similarity": TaskSpec("your own table: pairs with a score, read one by one", "similarity"),
    "similar-pairs": TaskSpec("your own table: pairs that belong together", "similarity"),
}
CUSTOM_TABLES = tuple(CUSTOM)
TASKS = {name: TaskSpec(about, module) for module in OFFICIAL for name, about in OFFICIAL[module].items()}
TASKS |= CUSTOM
TITLES = {  # titles of reports, for tasks whose `about` makes no title
    "qnli-dev": "QNLI, its dev file divided",
    "hellaswag-dev": "HellaSwag, its dev file divided",
    "classify": "Your own table, classes of texts",
    "multilabel": "Your own table, any number of classes for a text",
    "regress": "Your own table, numbers for texts",
    "qa": "Your own table, questions about paragraphs",
    "similarity": "Your own table, scores of pairs",
    "similar-pairs": "Your own table, pairs that belong together",
}
# The task for a custom table, by the kind of the head.
BY_KIND = {
    "classify": "classify",
    "multilabel": "multilabel",
    "regress": "regress",
    "tag": "tag",
    "span": "qa",
}
# Tasks whose answers mean the same, so that one model can answer them all.
SAME_ANSWERS = (
    ("mnli", "mnli-mm", "ax", "snli", "sick"),
    ("qqp", "quora"),
    ("qnli", "qnli-dev", "scitail"),
    ("rte", "scitail"),
    ("stsb", "sick-score"),
    ("swag", "hellaswag", "hellaswag-dev"),
    ("squad1", "squad2", "triviaqa", "qa"),
    ("ner", "ner-sentences"),
    ("stsb-similarity", "similarity", "similar-pairs"),
)
# New names for the answers to the first task, and to tasks with the same answers, that answer the second.
RENAMED_ANSWERS = {("mnli", "rte"): dict.fromkeys(("neutral", "contradiction"), "not_entailment")}
# Factor and summand to turn one task's numbers into another's: those of STS-B are 0 to 5, of SICK 1 to 5.
RESCALED = {("sick-score", "stsb"): (1.25, -1.25), ("stsb", "sick-score"): (0.8, 1.0)}


def same_answers(name: str, other: str) -> bool:
    """Return whether the answers to two tasks mean the same.

    Parameters
    ----------
    name, other : str
        Names of tasks, in either order.

    Returns
    -------
    bool
        True for the same task, and for two in the same row of `SAME_ANSWERS`.

    Examples
    --------
    >>> same_answers("mnli", "mnli-mm"), same_answers("cola", "mrpc")
    (True, False)
    """
    return name == other or any(name in tasks and other in tasks for tasks in SAME_ANSWERS)


def answers_as(source: str, target: str) -> Mapping[str, str] | None:
    """Return how to rename the answers to one task so that they answer another.

    Parameters
    ----------
    source : str
        The task that the answers are from.
    target : str
        The task to use them for.

    Returns
    -------
    mapping or None
        New names by old ones; {} if the answers mean the same already, None if they mean something else.

    Examples
    --------
    >>> answers_as("snli", "rte")["neutral"], answers_as("triviaqa", "squad1"), answers_as("rte", "mnli")
    ('not_entailment', {}, None)
    """
    if same_answers(source, target):
        return {}
    for (first, second), names in RENAMED_ANSWERS.items():
        if same_answers(source, first) and same_answers(target, second):
            return names
    return None


def create(
    name: str,
    columns: Mapping[str, Any] | None = None,
    long: LongTexts | None = None,
) -> Task:
    """Create a task by its name.

    Parameters
    ----------
    name : str
        One of `TASKS`.
    columns : mapping, optional
        Columns of a custom table by their role, each by name or number; also "delimiter" and "header" (yes or
        no).
    long : LongTexts, optional
        How to split long texts into windows; by default they are cut.

    Returns
    -------
    Task
        Only the module of this task is imported.

    Raises
    ------
    InputError
        When there is no such task, or it can't use `long`; when columns are given for official files, which
        have their own; when the task's tables do not have such columns.
    """
    if name not in TASKS:
        word = name.lower()
        versions = [task for task in TASKS if task.startswith(word)][:3] if word else []
        official = [task for task in TASKS if task not in CUSTOM_TABLES]
        all_tasks = f"for a table of your own give {', '.join(CUSTOM_TABLES)}; "
        all_tasks += f"for official files there are {', '.join(official)}."
        advice = did_you_mean(word, TASKS.keys(), all_tasks, n=3, cutoff=0.7)
        if ours := FOREIGN_TASKS.get(word.replace("_", "-")):
            advice = f"did you mean {ours}?"
        if versions:
            advice = f"did you mean {' or '.join(versions)}?"
        stem = PurePath(word).stem
        if stem != word:  # a file, or a folder in another
            advice = f"for a table of your own give classify and data={name!r}"
            advice += f"; for official files give {stem}." if stem in official else "."
        raise InputError(f"task={name!r} is not known; {advice}", task=name)
    if columns and name not in CUSTOM_TABLES:
        columns = dict(columns)
        custom = f"{columns=} is for custom tables ({', '.join(CUSTOM_TABLES)})"
        raise InputError(f"{custom}; the files of {name} have their own columns.", columns=columns)
    module = TASKS[name].module
    if long and module not in ("sentences", "multilabel"):
        reasons = {
            "choices": "reads each choice whole",
            "similarity": "compares vectors of whole texts",
        }
        reason = reasons.get(module, "has its own windows")
        problem = "long='windows' is for tasks with one answer per text, such as classify"
        raise InputError(f"{problem}, but {name} {reason}; leave it out.", long="windows")
    columns = dict(columns or {})
    if "header" in columns:
        columns["header"] = _yes_or_no(columns["header"])
    room: Any = import_module(f"minibert.tasks.{module}")
    title = TITLES.get(name, TASKS[name].about)
    task: Task = room.create(name, title, columns)
    task.long = long
    return task


def _yes_or_no(header: Any) -> bool:
    """Return whether a table has a header, from what a person wrote."""
    answers = {"yes": True, "true": True, "no": False, "false": False}
    answer = str(header).lower()
    if answer not in answers:
        columns = {"header": header}
        raise InputError(f"{columns=} is neither yes nor no; give one of them.", columns=columns)
    return answers[answer]
