"""The error that says: what was given cannot be used. The core raises it, and all that stands on the core."""

import re
from collections.abc import Callable
from typing import Any


class InputError(ValueError):
    """What was given can't be used: a file, an argument, a configuration. The command line exits with 2.

    Parameters
    ----------
    message : a sentence, in which `$name` stands for one of the arguments with its value: as `name=value` in
        Python, as its flag on the command line.
    **arguments : the arguments that the sentence is about, by name.
    """

    def __init__(self, message: str = "", /, **arguments: Any) -> None:
        self.message = message
        self.arguments = arguments
        super().__init__(self.formatted(in_python))

    def formatted(self, shown: Callable[[str, Any], str]) -> str:
        """Return the message with each argument as `shown` writes its name and value.

        Parameters
        ----------
        shown : `shown(name, value)` writes an argument: `in_python`, or the command line's way.

        Returns
        -------
        str. A `$name` that is none of the arguments stays as it is.
        """

        def put(match: re.Match[str]) -> str:
            name = match[1]
            if name not in self.arguments:
                return match[0]
            return shown(name, self.arguments[name])

        return re.sub(r"\$(\w+)", put, self.message)


def in_python(name: str, value: Any) -> str:
    """Write an argument as Python has it; several, or differences between two runs, are sentences already.

    Parameters
    ----------
    name : of the argument.
    value : its value. One with an attribute `is_sentence` that is true is written by itself.
    """
    return str(value) if getattr(value, "is_sentence", False) else f"{name}={value!r}"
