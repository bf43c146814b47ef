"""SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, 2018) as distributed: articles, paragraphs, questions, answers.

XQuAD and other conversions to the same layout read alike. One article at a time is in memory.
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
    """Words of a paragraph that answer a question."""

    text: str
    start: int  # characters before it in the paragraph; -1 where the file says a place and it isn't there


class Question(NamedTuple):
    """A question about a paragraph, and what people answered."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]  # () when there is none, or it is not known
    impossible: bool | None  # whether the paragraph has no answer; None where it is not known
    title: str = ""


def read(path: str | Path, *, listed: bool = False) -> list[Question]:
    """Return every question of a file in its order.

    Parameters
    ----------
    path, listed
        As of `stream`, whose errors and warning it has, too.

    Returns
    -------
    list of Question
    """
    return list(stream(path, listed=listed))


def stream(path: str | Path, *, listed: bool = False) -> Iterator[Question]:
    """Yield the questions of a file one by one, with memory for a few times the longest article.

    The offset of an answer may be wrong. As in Google's release an answer counts as found when it stands
    within the whole words that its offset and length touch, white space apart, and is then given as it stands
    there; any other gets `start` -1, is good for scoring and not for training, and a warning counts them.

    `impossible` is the file's `is_impossible` (2.0), else False for a question with answers and None for one
    without, as in a test set.

    Parameters
    ----------
    path : str or Path
        Which may be compressed.
    listed : bool, default False
        Give every answer in the file's list, blank ones and those beside `is_impossible` too, which the
        official scripts score by and nothing is trained on.

    Yields
    ------
    Question
        In the order of the file.

    Raises
    ------
    InputError
        When the file can't be read, is laid out otherwise, holds no question, or two with the same id.
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
        Its place, with which errors begin.
    listed : bool, default False
        As of `stream`.

    Yields
    ------
    Question
        In the order of the article.

    Raises
    ------
    InputError
        When the article is laid out otherwise, or a paragraph is empty.
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
        if listed or text.strip():  # some files write no answer as an empty one
            start = field_of(answer, "answer_start", int, where)
            answers.append(locate(context, text, start))
    if impossible is None and answers:
        impossible = False
    question = field_of(item, "question", str, where)
    return Question(str(id), question, context, tuple(answers), impossible, title)


def locate(context: str, text: str, start: int) -> Answer:
    """Return an answer as it stands in its paragraph at a place, or near it by the rule of `stream`.

    Parameters
    ----------
    context : str
        The paragraph.
    text : str
        The answer; white space around it does not count.
    start : int
        Characters before it, as the file has it.

    Returns
    -------
    Answer
        With the `start` at which it stands, the nearest if there are several; -1 where it does not.

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
    """Yield the places of some words in a part of a text, with any white space between them."""
    # The part with one space between words, and where each character of that stands in the text.
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
