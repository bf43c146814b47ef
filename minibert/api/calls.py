"""Functions that take every option of a run as an argument of its own, by name, type and description."""

import dataclasses
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar, get_type_hints

from minibert.base.errors import did_you_mean
from minibert.base.foreign_names import advice_for
from minibert.base.options import RunOptions

P = ParamSpec("P")
A = TypeVar("A")
R = TypeVar("R")


def called_with(arguments: Callable[P, A]) -> Callable[[Callable[[A], R]], Callable[P, R]]:
    """Let a function of one object be called with what the object is made of.

    Type checkers, `help` and editors see the fields of the object as arguments of the function, and the
    docstring gets a section that describes them, before its "Returns".

    Parameters
    ----------
    arguments : type
        The dataclass of that object, under `RunOptions`.

    Returns
    -------
    function
        A decorator.
    """
    signature = inspect.signature(arguments)

    def decorate(function: Callable[[A], R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            require_known(function.__name__, kwargs, signature.parameters)
            return function(arguments(*args, **kwargs))

        returned = inspect.signature(function).return_annotation
        vars(call)["__signature__"] = signature.replace(return_annotation=returned)
        about, mark, rest = inspect.cleandoc(function.__doc__ or "").partition("Returns\n")
        call.__doc__ = f"{about}{parameters_text(arguments, list(signature.parameters))}\n{mark}{rest}"
        return call

    return decorate


def require_known(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse an argument that a function does not have, and name the nearest that it has.

    Parameters
    ----------
    function : str
        Its name, for the message.
    given : iterable of str
        The names that it was called with.
    known : iterable of str
        Those that it has.

    Raises
    ------
    TypeError
        For the first that it does not have, as Python raises for functions of its own.
    """
    known = list(known)
    for name in given:
        if name not in known:
            advice = advice_for(name, known) or did_you_mean(name, known, "leave it out.")
            raise TypeError(f"{function}() has no argument {name!r}; {advice}")


def parameters_text(options: Any, names: Sequence[str]) -> str:
    """Describe fields of a run's options as a section of a docstring in numpydoc's style.

    Parameters
    ----------
    options : type
        A dataclass under `RunOptions`.
    names : sequence of str
        The fields, in the order of the section.

    Returns
    -------
    str
        The section with its heading, ending in a line end.
    """
    hints = get_type_hints(options)
    lines = ["Parameters", "----------"]
    for name in names:
        hint = hints[name]
        kind = hint.__name__ if isinstance(hint, type) else str(hint)
        kind = kind.replace("typing.", "").replace("pathlib._local.", "")
        text = textwrap.fill(description(options, name), 102)
        lines.append(f"{name} : {kind}")
        lines.append(textwrap.indent(text, " " * 4))
    return "\n".join(lines) + "\n"


def description(options: type[RunOptions], name: str) -> str:
    """Say what a field of a run's options is: as its flag does, in the words of Python.

    Parameters
    ----------
    options : type
        A dataclass under `RunOptions`.
    name : str
        Of the field.

    Returns
    -------
    str
        A sentence or two, with the default at the end where there is one.
    """
    about = options.about(name)
    default = getattr(options, name, dataclasses.MISSING)
    text = about.get("in_python") or about.get("help", "")
    in_words = options.UNDECIDED if default is None else repr(default)
    usual = about.get("default", in_words)
    if usual and default is not dataclasses.MISSING:
        return f"{text} (default: {usual})."
    return f"{text}."
