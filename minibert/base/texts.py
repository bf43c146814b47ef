"""Check the texts that users give, and keep the places of lines that are not texts."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from minibert.base.errors import InputError

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Empty = TypeVar("Empty")


def is_blank(text: str) -> bool:
    """Return whether a text is empty or only white space.

    Parameters
    ----------
    text : str
        A text, or a line without its end.

    Returns
    -------
    bool
    """
    return not text.strip()


def answers_in_place(
    items: Iterable[Item | None],
    ask: Callable[[Iterator[Item]], Iterable[Answer]],
    nothing: Empty,
) -> Iterator[Answer | Empty]:
    """Yield the answer to each item, and an empty answer in the place of None.

    Parameters
    ----------
    items : iterable
        What to ask about; None for a line that is not a text.
    ask : function of an iterator
        Answers the items that are not None, one by one and in order. It may read on before it answers.
    nothing : object
        The empty answer.

    Yields
    ------
    answer
    """
    waiting: deque[bool] = deque()  # of each item that was read and not answered, whether it is None

    def read() -> Iterator[Item]:
        for item in items:
            waiting.append(item is None)
            if item is not None:
                yield item

    for answer in ask(read()):
        while waiting.popleft():
            yield nothing
        yield answer
    yield from (nothing for _ in waiting)


def refuse_empty(*texts: Any, first: int | None = None) -> None:
    """Refuse a text that is empty or only white space.

    Parameters
    ----------
    *texts
        Texts, or pairs of texts as tuples; anything else passes.
    first : int or None, default None
        Index of the first of them among all texts, for the error. None: 0, and a single text has no index.

    Raises
    ------
    InputError
        For the first text without words.
    """
    has_index = first is not None or len(texts) > 1
    for index, text in enumerate(texts, first or 0):
        parts = text if isinstance(text, tuple) else (text,)
        if any(isinstance(part, str) and is_blank(part) for part in parts):
            which = f"The text at index {index}" if has_index else "A text"
            raise InputError(f"{which} is empty; give one with words in it.")
