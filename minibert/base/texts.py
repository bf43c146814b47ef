"""Texts that users give."""

from typing import Any

from minibert.base.errors import InputError


def refuse_empty(*texts: Any) -> None:
    """Refuse a text that is empty, or blanks alone.

    Parameters
    ----------
    *texts
        Texts, or pairs of texts as tuples; what is neither passes.

    Raises
    ------
    InputError
        For the first one without words.
    """
    for text in texts:
        parts = text if isinstance(text, tuple) else (text,)
        if any(isinstance(part, str) and not part.strip() for part in parts):
            raise InputError("A text is empty; give one with words in it.")
