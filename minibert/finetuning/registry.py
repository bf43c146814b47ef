"""The tasks by name. What a task is made of is loaded when it is asked for."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from minibert.errors import InputError
from minibert.finetuning.task import Task

Columns = Mapping[str, Any]


def _sentences(name: str, columns: Columns) -> Task:
    from minibert.finetuning import sentences

    return sentences.create(name, columns)


def _choices(name: str, columns: Columns) -> Task:
    from minibert.finetuning import choices

    return choices.create(name, columns)


def _answering(name: str, columns: Columns) -> Task:
    from minibert.finetuning import answering

    return answering.create(name, columns)


def _tagging(name: str, columns: Columns) -> Task:
    from minibert.finetuning import tagging

    return tagging.create(name, columns)


class Known(NamedTuple):
    """A task before it is made."""

    about: str  # for the list of all
    make: Callable[[str, Columns], Task]
    name: str = ""  # where `about` is no title for what came of it

    @property
    def title(self) -> str:
        """A line for people."""
        return self.name or self.about


TASKS = {
    "cola": Known("CoLA: is the sentence acceptable English", _sentences),
    "sst2": Known("SST-2: is the film review good", _sentences),
    "mrpc": Known("MRPC: do two sentences say the same", _sentences),
    "stsb": Known("STS-B: how similar are two sentences, 0 to 5", _sentences),
    "qqp": Known("QQP: do two questions ask the same", _sentences),
    "mnli": Known("MNLI: does one sentence follow from another (matched)", _sentences),
    "mnli-mm": Known("MNLI, mismatched dev and test", _sentences),
    "qnli": Known("QNLI: does the sentence answer the question", _sentences),
    "rte": Known("RTE: does one sentence follow from another", _sentences),
    "wnli": Known("WNLI: does a sentence with its pronoun replaced follow", _sentences),
    "ax": Known("AX: GLUE's diagnostic sentences, for a model of MNLI", _sentences),
    "quora": Known("Quora's question pairs, in place of QQP", _sentences),
    "snli": Known("SNLI, in place of MNLI", _sentences),
    "scitail": Known("SciTail, in place of QNLI or RTE", _sentences),
    "sick": Known("SICK, in place of MNLI or RTE", _sentences),
    "sick-score": Known("SICK's scores of relatedness, in place of STS-B", _sentences),
    "qnli-dev": Known(
        "QNLI's dev file divided, where there is no train file", _sentences, "QNLI, its dev file divided"
    ),
    "swag": Known("SWAG: which of four endings continues the text", _choices),
    "hellaswag": Known("HellaSwag: which of four endings continues the text", _choices),
    "hellaswag-dev": Known(
        "HellaSwag's dev file divided, where there is no train file",
        _choices,
        "HellaSwag, its dev file divided",
    ),
    "copa": Known("COPA: which of two is the cause, or the effect", _choices),
    "csqa": Known("CommonsenseQA: which of five answers is right", _choices),
    "squad1": Known("SQuAD 1.1: where in the paragraph is the answer", _answering),
    "squad2": Known("SQuAD 2.0: the same, where there may be none", _answering),
    "triviaqa": Known("TriviaQA, to train on before SQuAD", _answering),
    "ner": Known("CoNLL-2003: who and what is named", _tagging),
    "ner-sentences": Known("CoNLL-2003, each sentence without its document", _tagging),
    "classify": Known(
        "your own table: a class for a text or a pair of texts",
        _sentences,
        "Your own table, classes of texts",
    ),
    "regress": Known(
        "your own table: a number for a text or a pair of texts",
        _sentences,
        "Your own table, numbers for texts",
    ),
    "tag": Known("your own table: a tag for every word", _tagging),
    "qa": Known(
        "your own table: questions and paragraphs", _answering, "Your own table, questions about paragraphs"
    ),
}
OWN_TABLES = ("classify", "regress", "tag", "qa")
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
)


def same_answers(one: str, other: str) -> bool:
    """Whether what two tasks answer means the same.

    Examples
    --------
    >>> same_answers("mnli", "mnli-mm"), same_answers("cola", "mrpc")
    (True, False)
    """
    return one == other or any(one in tasks and other in tasks for tasks in SAME_ANSWERS)


def create(name: str, columns: Columns | None = None) -> Task:
    """The task of that name.

    Parameters
    ----------
    name : one of `TASKS`.
    columns : of your own table, what each column that is wanted is called or its number; "delimiter" and
        "header" (yes or no) too.

    Raises
    ------
    InputError
        When there is no such task; when columns are named of official files, which have their own.
    """
    if name not in TASKS:
        near = get_close_matches(name.lower(), TASKS, n=3, cutoff=0.5)
        meant = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(TASKS)}."
        raise InputError(f"task={name!r} is not known; {meant}")
    if columns and name not in OWN_TABLES:
        raise InputError(
            f"columns={dict(columns)!r} are for {', '.join(OWN_TABLES)}; the files of {name} have their own."
        )
    columns = dict(columns or {})
    if "header" in columns:
        columns["header"] = _yes_or_no("header", columns["header"])
    return TASKS[name].make(name, columns)


def _yes_or_no(column: str, said: Any) -> bool:
    answers = {"yes": True, "true": True, "no": False, "false": False}
    if str(said).lower() not in answers:
        raise InputError(f"{column}={said!r} is neither yes nor no; give one of them.")
    return answers[str(said).lower()]
