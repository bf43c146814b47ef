"""The error that says: what was given cannot be used. The core raises it, and all that stands on the core."""

import re
from collections.abc import Callable
from typing import Any


class InputError(ValueError):
    """What was given can't be used: a file, an argument, a configuration. The command line exits with 2.

    In the message, a sentence, `$name` stands for one of the arguments with its value: as `name=value` in
    Python, as its flag on the command line.
    """

    def __init__(self, message: str = "", /, **arguments: Any) -> None:
        self.message, self.arguments = message, arguments
        super().__init__(self.formatted(in_python))

    def formatted(self, shown: Callable[[str, Any], str]) -> str:
        """Return the message with each argument as `shown` writes its name and value."""

        def put(found: re.Match[str]) -> str:
            return shown(found[1], self.arguments[found[1]]) if found[1] in self.arguments else found[0]

        return re.sub(r"\$(\w+)", put, self.message)


def in_python(name: str, value: Any) -> str:
    """Write an argument as Python has it; several, or differences between two runs, are sentences already."""
    return str(value) if getattr(value, "is_sentence", False) else f"{name}={value!r}"
