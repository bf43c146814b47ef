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
    """Return every question of a file in its order; see `stream`."""
    return list(stream(path, listed=listed))


def stream(path: str | Path, *, listed: bool = False) -> Iterator[Question]:
    """Yield the questions of a file one by one, with memory for a few times the longest article.

    The offset of an answer may be wrong. As in Google's release an answer counts as found when it stands
    within the whole words that its offset and length touch, white space apart, and is then given as it stands
    there; any other gets `start` -1, is good for scoring and not for training, and a warning counts them.

    `impossible` is the file's `is_impossible` (2.0), else False for a question with answers and None for one
    without, as in a test set. With `listed` every answer in the file's list is given, blank ones and those
    beside `is_impossible` too, which the official scripts score by and nothing is trained on.
    """
    path = Path(path)
    ids: set[str] = set()
    lost = []
    for number, (_, article) in enumerate(array_items(path, ("data",)), 1):
        for question in article_questions(article, f"{path}: article {number}", listed=listed):
            if question.id in ids:
                raise InputError(f"{path}: two questions have the id {question.id!r}; give each its own.")
            ids.add(question.id)
            if not listed and any(answer.start < 0 for answer in question.answers):
                lost.append(question.id)
            yield question
    if not ids:
        raise InputError(f"{path} holds no question; check the file.")
    if lost:
        some = f"{len(lost):,} of {len(ids):,} questions have an answer that is not in the paragraph"
        warn(f"{path}: {some} where the file says, the first is {lost[0]}; they can't be trained on.")


def article_questions(article: Any, where: str, *, listed: bool = False) -> Iterator[Question]:
    """Yield the questions of an article, an item of the array "data"; errors begin with `where`."""
    title = field_of(article, "title", str, where, "")
    for n, paragraph in enumerate(field_of(article, "paragraphs", list, where), 1):
        place = f"{where}, paragraph {n}"
        if not (context := field_of(paragraph, "context", str, place)).strip():
            raise InputError(f"{place} has an empty context; every paragraph needs its text.")
        for m, item in enumerate(field_of(paragraph, "qas", list, place), 1):
            yield _question(item, context, title, f"{place}, question {m}", listed)


def _question(item: Any, context: str, title: str, where: str, listed: bool) -> Question:
    id = field_of(item, "id", (str, int), where)
    impossible = field_of(item, "is_impossible", bool, where, None)
    answers = []
    for answer in [] if impossible and not listed else field_of(item, "answers", list, where, []):
        text = field_of(answer, "text", str, where)
        if listed or text.strip():  # some files write no answer as an empty one
            answers.append(locate(context, text, field_of(answer, "answer_start", int, where)))
    if impossible is None and answers:
        impossible = False
    question = field_of(item, "question", str, where)
    return Question(str(id), question, context, tuple(answers), impossible, title)


def locate(context: str, text: str, start: int) -> Answer:
    """Return an answer as it stands in its paragraph at, or by the rule of `stream` about, `start`; else -1.

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
        begin, end = start, min(start + len(text) - 1, len(context))
        while begin > 0 and context[begin].isspace():
            begin -= 1
        while begin > 0 and not context[begin - 1].isspace():
            begin -= 1
        while end < len(context) and not context[end].isspace():
            end += 1
        spans = _occurrences(context, begin, end, text.split())
        if nearest := min(spans, key=lambda span: abs(span[0] - start), default=None):
            return Answer(context[slice(*nearest)], nearest[0])
    return Answer(text, -1)


def _occurrences(context: str, begin: int, end: int, words: list[str]) -> Iterator[tuple[int, int]]:
    """Yield where some words stand within a part of a text, with any white space between them."""
    # The part with one space between words, and where each character of that stands in the text.
    found = _WORD.finditer(context, begin, end)
    places = [at for word in found for at in range(word.start(), word.end() + 1)]
    part, wanted = " ".join(context[begin:end].split()), " ".join(words)
    at = part.find(wanted)
    while at >= 0:
        yield places[at], places[at + len(wanted) - 1] + 1
        at = part.find(wanted, at + len(wanted))
