"""Choose one of several endings: SWAG (Zellers et al. 2018) as distributed; HellaSwag, COPA, CommonsenseQA.

For each ending the model reads the context and, as a second segment, `start` with the ending.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from minibert.base.errors import InputError
from minibert.base.terminal import counted
from minibert.data.lines import field_of, json_lines, shown, table_rows

ENDINGS = [f"ending{i}" for i in range(4)]
SWAG = ["", "video-id", "fold-ind", "startphrase", "sent1", "sent2", "gold-source", *ENDINGS, "label"]
_COPA_QUESTIONS = {"cause": "What was the cause?", "effect": "What happened as a result?"}


class ChoiceExample(NamedTuple):
    """A context and its endings."""

    id: str
    context: str
    start: str  # how every ending begins; "" if they share nothing
    endings: tuple[str, ...]
    label: int | None  # index of the right ending, from 0; None if it is not known


def read_swag(path: str | Path) -> list[ChoiceExample]:
    """Read SWAG's train.csv, val.csv or test.csv: `sent1`, and four endings that begin with `sent2`.

    The id is the number in the first column, which has no name; test has no column `label`.

    Parameters
    ----------
    path : str or Path
        Which may be compressed.

    Returns
    -------
    list of ChoiceExample
        In the order of the file.

    Raises
    ------
    InputError
        When the file can't be read, is laid out otherwise, or holds no example.
    """
    path = Path(path)
    table = table_rows(path, ",")
    _, header = next(table, (0, []))
    if missing := [name for name in SWAG[3:6] + ENDINGS if name not in header]:
        raise InputError(
            f"{path} is not a file of SWAG: it has no column {shown(missing)}, "
            f"its header is {shown(header) or 'empty'}; SWAG's is {shown(SWAG)}."
        )
    examples = []
    for number, (line, row) in enumerate(table):
        where = f"{path}, line {line}"
        if len(row) != len(header):
            message = (
                f"{counted(len(row), 'column')} where the header has {len(header)}; fetch the file again."
            )
            raise InputError(message, where=where)
        cells = dict(zip(header, row, strict=True))
        endings = tuple(cells[name] for name in ENDINGS)
        label = None
        if "label" in cells:
            label = _index(cells["label"], len(endings), where)
        id = cells.get("") or str(number)
        examples.append(ChoiceExample(id, cells["sent1"], cells["sent2"], endings, label))
    return _some(examples, path)


def read_hellaswag(path: str | Path) -> list[ChoiceExample]:
    """Read HellaSwag's JSON Lines (Zellers et al. 2019), which can replace SWAG.

    `ctx_b`, which may be "", begins the endings. The id counts lines from 0: `ind` occurs more than once.

    Parameters
    ----------
    path : str or Path
        Which may be compressed.

    Returns
    -------
    list of ChoiceExample
        In the order of the file.

    Raises
    ------
    InputError
        When the file can't be read, is laid out otherwise, or holds no example.
    """
    examples = []
    for number, (where, item) in enumerate(_items(path)):
        context = field_of(item, "ctx_a", str, where)
        start = field_of(item, "ctx_b", str, where)
        endings = _strings(item, "endings", where)
        label = _index(item.get("label", ""), len(endings), where)
        examples.append(ChoiceExample(str(number), context, start, endings, label))
    return _some(examples, path)


def read_copa(path: str | Path) -> list[ChoiceExample]:
    """Read COPA (Roemmele et al. 2011) in SuperGLUE's format: the cause or effect of a premise.

    Parameters
    ----------
    path : str or Path
        Which may be compressed.

    Returns
    -------
    list of ChoiceExample
        In the order of the file.

    Raises
    ------
    InputError
        When the file can't be read, is laid out otherwise, or holds no example.
    """
    examples = []
    for where, item in _items(path):
        kind = field_of(item, "question", str, where)
        if kind not in _COPA_QUESTIONS:
            expected = " or ".join(_COPA_QUESTIONS)
            raise InputError(f"'question' is {kind[:60]!r}, expected {expected}.", where=where)
        premise = field_of(item, "premise", str, where)
        context = f"{premise} {_COPA_QUESTIONS[kind]}"
        first = field_of(item, "choice1", str, where)
        second = field_of(item, "choice2", str, where)
        id = field_of(item, "idx", (str, int), where)
        label = _index(item.get("label"), 2, where)
        examples.append(ChoiceExample(str(id), context, "", (first, second), label))
    return _some(examples, path)


def read_commonsense_qa(path: str | Path) -> list[ChoiceExample]:
    """Read CommonsenseQA (Talmor et al. 2019): the original, and the flat layout of Hugging Face's copy.

    Parameters
    ----------
    path : str or Path
        Which may be compressed.

    Returns
    -------
    list of ChoiceExample
        In the order of the file.

    Raises
    ------
    InputError
        When the file can't be read, is laid out otherwise, or holds no example.
    """
    examples = []
    for where, item in _items(path):
        context, choices = _question_and_choices(item, where)
        letters = _strings(choices, "label", where)
        endings = _strings(choices, "text", where)
        if len(letters) != len(endings) or len(set(letters)) < len(letters):
            raise InputError(
                f"{len(endings)} answers have the letters {shown(letters)}; "
                "every answer needs its own letter.",
                where=where,
            )
        key = item.get("answerKey")
        if key not in (None, "", *letters):
            raise InputError(f"the answer {key!r} is not one of {shown(letters)}.", where=where)
        label = letters.index(key) if key in letters else None
        id = field_of(item, "id", (str, int), where)
        examples.append(ChoiceExample(str(id), context, "", endings, label))
    return _some(examples, path)


def _question_and_choices(item: dict[str, Any], where: str) -> tuple[str, dict[str, Any]]:
    """Return the question of CommonsenseQA, and its choices as lists: "label" of letters, "text"."""
    question = item.get("question")
    if not isinstance(question, dict):  # Hugging Face's copy
        context = field_of(item, "question", str, where)
        choices = field_of(item, "choices", dict, where)
        return context, choices
    context = field_of(question, "stem", str, where)
    listed = question.get("choices")
    if not isinstance(listed, list) or not all(isinstance(choice, dict) for choice in listed):
        raise InputError("'choices' is not a list of objects; check the file.", where=where)
    letters = [choice.get("label") for choice in listed]
    texts = [choice.get("text") for choice in listed]
    return context, {"label": letters, "text": texts}


def _items(path: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a file, each with its file and line."""
    for line, item in json_lines(path):
        yield f"{path}, line {line}", item


def _some(examples: list[ChoiceExample], path: str | Path) -> list[ChoiceExample]:
    if not examples:
        raise InputError(f"{path} has no examples; check the file.")
    return examples


def _strings(item: dict[str, Any], key: str, where: str) -> tuple[str, ...]:
    value = item.get(key)
    texts = value if isinstance(value, list) else []
    if len(texts) < 2 or not all(isinstance(text, str) for text in texts):
        raise InputError(f"{key!r} is not a list of two texts or more; check the file.", where=where)
    return tuple(texts)


def _index(label: Any, endings: int, where: str) -> int | None:
    """Return the index of an ending; None for "" and -1, which mean that it is unknown."""
    if label in ("", -1, "-1", None):
        return None
    if str(label) not in map(str, range(endings)):
        raise InputError(f"the label {label!r} is not a number from 0 to {endings - 1}.", where=where)
    return int(label)
