"""The error for input that can't be used. The core raises it, and everything that stands on the core."""

from typing import Any


class InputError(ValueError):
    """Report input that can't be used: a file, an argument, a configuration.

    The message is a sentence for a caller from Python. It writes an argument as `name` in backticks or, with
    its value, as name=value, which is what f"{name=}" makes; the name of a folder stands in quotation marks.
    The arguments are also kept as data, so that the command line can write flags in their place
    (`minibert/cli/shared/messages.py`). It exits with 2.

    Parameters
    ----------
    message : str
        The sentence.
    where : str, default ""
        The place in the data, such as a file and a line; it stands before the sentence.
    **arguments
        The arguments whose values stand in the sentence, by name.
    """

    def __init__(self, message: str = "", /, *, where: str = "", **arguments: Any) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.arguments = arguments

    def __str__(self) -> str:
        if self.where:
            return f"{self.where}: {self.message}"
        return self.message
