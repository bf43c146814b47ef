"""Check the texts that users give."""

from typing import Any

from minibert.base.errors import InputError


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
        if any(isinstance(part, str) and not part.strip() for part in parts):
            which = f"The text at index {index}" if has_index else "A text"
            raise InputError(f"{which} is empty; give one with words in it.")
