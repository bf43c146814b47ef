"""SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, 2018) as distributed: articles, paragraphs, questions, answers.

XQuAD and other data sets in the same layout can be read, too. One article at a time is in memory.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from minibert.base.errors import InputError, warn
from minibert.data.json_items import array_items
from minibert.data.lines import field_of

_WORD = re.compile(r"\S+")


class Answer(NamedTuple):
    """A passage of a paragraph that answers a question."""

    text: str
    start: int  # characters before it in the paragraph; -1: it is not at the position in the file


class Question(NamedTuple):
    """A question about a paragraph, and the answers that people gave."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]  # () when there is none, or it is unknown
    impossible: bool | None  # whether the paragraph has no answer; None where unknown
    title: str = ""


def read(path: str | Path, *, listed: bool = False) -> list[Question]:
    """Return all questions of a file.

    Parameters
    ----------
    path, listed
        As for `stream`, whose errors and warning apply here, too.

    Returns
    -------
    list of Question
        In the order of the file.
    """
    return list(stream(path, listed=listed))


def stream(path: str | Path, *, listed: bool = False) -> Iterator[Question]:
    """Yield the questions of a file one by one, in memory for a few times the longest article.

    The offset of an answer may be wrong. As in Google's release, an answer counts as found if, apart from
    white space, it occurs within the whole words that its offset and length touch; its text and offset are
    then those of the occurrence. Any other answer gets `start` -1 and can be used for scoring, but not for
    training; a warning counts these questions.

    `impossible` is `is_impossible` in the file (2.0) or, without that, False for a question with answers and
    None for one without, as in a test set.

    Parameters
    ----------
    path : str or Path
        The file, which may be compressed.
    listed : bool, default False
        Whether to return every answer in the file, including blank ones and those of questions with
        `is_impossible`. The official scripts use these for scoring; they are not for training.

    Yields
    ------
    Question
        In the order of the file.

    Raises
    ------
    InputError
        When the file can't be read, has another layout, has no question, or two with the same id.
    """
    path = Path(path)
    ids: set[str] = set()
    lost = []
    for number, (_, article) in enumerate(array_items(path, ("data",)), 1):
        where = f"{path}: article {number}"
        for question in article_questions(article, where, listed=listed):
            if question.id in ids:
                raise InputError(
                    f"two questions have the id {question.id!r}; give each its own.", where=str(path)
                )
            ids.add(question.id)
            if not listed and any(answer.start < 0 for answer in question.answers):
                lost.append(question.id)
            yield question
    if not ids:
        raise InputError(f"{path} has no questions; check the file.")
    if lost:
        warn(
            f"{path}: {len(lost):,} of {len(ids):,} questions have an answer that is not in the paragraph "
            f"where the file says, the first is {lost[0]}; they can't be trained on."
        )


def article_questions(article: Any, where: str, *, listed: bool = False) -> Iterator[Question]:
    """Yield the questions of an article.

    Parameters
    ----------
    article : Any
        An item of the array "data", read from JSON.
    where : str
        Its position in the file, with which errors begin.
    listed : bool, default False
        As for `stream`.

    Yields
    ------
    Question
        In the order of the article.

    Raises
    ------
    InputError
        When the article has another layout, or a paragraph is empty.
    """
    title = field_of(article, "title", str, where, "")
    paragraphs = field_of(article, "paragraphs", list, where)
    for n, paragraph in enumerate(paragraphs, 1):
        place = f"{where}, paragraph {n}"
        context = field_of(paragraph, "context", str, place)
        if not context.strip():
            raise InputError("the context is empty; every paragraph needs its text.", where=place)
        items = field_of(paragraph, "qas", list, place)
        for m, item in enumerate(items, 1):
            yield _question(item, context, title, f"{place}, question {m}", listed)


def _question(item: Any, context: str, title: str, where: str, listed: bool) -> Question:
    id = field_of(item, "id", (str, int), where)
    impossible = field_of(item, "is_impossible", bool, where, None)
    given = []
    if listed or not impossible:
        given = field_of(item, "answers", list, where, [])
    answers = []
    for answer in given:
        text = field_of(answer, "text", str, where)
        if listed or text.strip():  # in some files an empty answer means that there is none
            start = field_of(answer, "answer_start", int, where)
            answers.append(locate(context, text, start))
    if impossible is None and answers:
        impossible = False
    question = field_of(item, "question", str, where)
    return Question(str(id), question, context, tuple(answers), impossible, title)


def locate(context: str, text: str, start: int) -> Answer:
    """Find an answer in its paragraph, at an offset or near it, by the rule of `stream`.

    Parameters
    ----------
    context : str
        The paragraph.
    text : str
        The answer; white space around it is ignored.
    start : int
        Its offset in characters, from the file.

    Returns
    -------
    Answer
        The occurrence, the nearest if there are several; if there is none, the given text with `start` -1.

    Examples
    --------
    >>> locate("in the late  1990s (then)", "late 1990s", 8)
    Answer(text='late  1990s', start=7)
    """
    start += len(text) - len(text.lstrip())
    text = text.strip()
    if start >= 0 and context.startswith(text, start):
        return Answer(text, start)
    if 0 <= start < len(context):
        begin = start
        end = min(start + len(text) - 1, len(context))
        while begin > 0 and context[begin].isspace():
            begin -= 1
        while begin > 0 and not context[begin - 1].isspace():
            begin -= 1
        while end < len(context) and not context[end].isspace():
            end += 1
        spans = _occurrences(context, begin, end, text.split())
        nearest = min(spans, key=lambda span: abs(span[0] - start), default=None)
        if nearest:
            begin, end = nearest
            return Answer(context[begin:end], begin)
    return Answer(text, -1)


def _occurrences(context: str, begin: int, end: int, words: list[str]) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each occurrence of words in part of a text, with any space between them."""
    # The part with single spaces between words, and the offset in the text of each of its characters.
    part = " ".join(context[begin:end].split())
    places: list[int] = []
    for word in _WORD.finditer(context, begin, end):
        places += range(word.start(), word.end() + 1)
    answer = " ".join(words)
    at = part.find(answer)
    while at >= 0:
        after = at + len(answer)
        yield places[at], places[after - 1] + 1
        at = part.find(answer, after)
