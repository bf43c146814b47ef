"""Signatures of functions and estimators that take every option as an argument, and its description."""

import dataclasses
import functools
import inspect
import re
import textwrap
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, get_type_hints

from minibert.base.errors import did_you_mean
from minibert.base.foreign_names import advice_for, answering_unknown
from minibert.base.options import metadata_of

P = ParamSpec("P")
A = TypeVar("A")
R = TypeVar("R")
Kind = TypeVar("Kind")


def called_with(arguments: Callable[P, A]) -> Callable[[Callable[[A], R]], Callable[P, R]]:
    """Let a function of one object be called with what the object is made of.

    Type checkers, `help` and editors see the fields of the object as arguments of the function, and the
    docstring gets a section that describes them.

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
            return function(arguments(*args, **kwargs))

        returned = inspect.signature(function).return_annotation
        vars(call)["__signature__"] = signature.replace(return_annotation=returned)  # a class returns None
        call.__doc__ = with_parameters(function.__doc__, arguments)
        return refusing_unknown(call)

    return decorate


def documented(estimator: type[Kind]) -> type[Kind]:
    """Describe in the docstring of an estimator each of its parameters, and refuse others by name.

    Parameters
    ----------
    estimator : type
        A dataclass whose fields `option` declares.

    Returns
    -------
    type
        The same one, changed.
    """
    estimator.__doc__ = with_parameters(estimator.__doc__, estimator)
    # Not by `__new__` or a metaclass, whose arguments `help` would show in place of the fields.
    type.__setattr__(estimator, "__init__", refusing_unknown(vars(estimator)["__init__"]))
    return estimator


def refusing_unknown(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function refuse an argument that it does not have, and name the nearest that it has.

    Parameters
    ----------
    function : callable
        Also the `__init__` of a class, whose name is then that of the class.

    Returns
    -------
    callable
        The same with the same signature. It raises TypeError for the first such argument, as Python does, and
        for one that is lacking or has to have a name.
    """
    parameters = inspect.signature(function).parameters
    known = list(parameters)
    name = function.__qualname__.removesuffix(".__init__")
    positional = [one.name for one in parameters.values() if one.kind is one.POSITIONAL_OR_KEYWORD]
    required = [one.name for one in parameters.values() if one.default is one.empty]

    def advise(unknown: str) -> str:
        return advice_for(unknown, known) or did_you_mean(unknown, known, "leave it out.")

    answering = answering_unknown(function, name, advise)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if len(args) > len(positional):
            such = ", ".join(one for one in positional if one != "self")
            raise TypeError(f"{name}() takes only {such} without a name; give the others by their names.")
        lacking = [one for one in required if one not in positional[: len(args)] and one not in kwargs]
        if lacking and kwargs.keys() <= parameters.keys():
            raise TypeError(f"{name}() needs {', '.join(lacking)}; give a value for each.")
        return answering(*args, **kwargs)

    return call


def with_parameters(text: str | None, kind: Any) -> str:
    """Describe the fields of a dataclass in a docstring, as a section in numpydoc's style.

    Parameters
    ----------
    text : str or None
        The docstring; the section becomes its first.
    kind : type
        A dataclass whose fields `option` declares. Positional fields come first, then those of the class
        itself before those of its bases.

    Returns
    -------
    str
    """
    hints = get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    names = [name for name, field in fields.items() if not field.kw_only]
    for part in kind.__mro__:
        names += [name for name in inspect.get_annotations(part) if name in fields]
    wrapper = textwrap.TextWrapper(
        106, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False
    )
    lines = ["Parameters", "----------"]
    for name in dict.fromkeys(names):
        hint = hints[name]
        shown = hint.__name__ if isinstance(hint, type) else str(hint)
        without_modules = re.sub(r"\w[\w.]*", lambda found: found[0].rpartition(".")[2], shown)
        lines.append(f"{name} : {without_modules}")
        lines.append(wrapper.fill(description(kind, name)))
    section = "\n".join(lines)
    about, *others = re.split(r"\n(?=\w+\n---)", inspect.cleandoc(text or ""), maxsplit=1)
    return "\n".join([about.rstrip(), "", section, "", *others])


def description(kind: type, name: str) -> str:
    """Say what an option is: as its flag does, in the words of Python.

    Parameters
    ----------
    kind : type
        A dataclass whose fields `option` declares.
    name : str
        Of the field.

    Returns
    -------
    str
        A sentence or two, with the default at the end where there is one.
    """
    about = metadata_of(kind, name)
    default = getattr(kind, name, dataclasses.MISSING)
    text = about.get("in_python") or about.get("help", "")
    in_words = getattr(kind, "UNDECIDED", "") if default is None else repr(default)
    usual = about.get("default", in_words)
    if usual and default is not dataclasses.MISSING:
        return f"{text} (default: {usual})."
    return f"{text}."
