"""The error for input that can't be used, raised by the core and by everything built on it."""

from typing import Any


class InputError(ValueError):
    """Report input that can't be used: a file, an argument, a configuration.

    The message is a sentence for somebody who calls the library from Python. It writes an argument as `name`
    in backticks or, with its value, as name=value, which is what f"{name=}" gives; a folder's name is put in
    quotation marks. The arguments are also kept as data, so that the command line can replace them with its
    flags (`minibert/cli/shared/messages.py`); it then exits with status 2.

    Parameters
    ----------
    message : str
        The sentence.
    where : str, default ""
        The place in the data, such as a file and a line; printed before the sentence.
    **arguments
        The arguments whose values the sentence quotes, by name.
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
