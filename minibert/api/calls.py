"""Functions and estimators that take every option as an argument: signatures, docstrings, wrong arguments."""

import dataclasses
import functools
import inspect
import re
import textwrap
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar, get_type_hints

from minibert.base.errors import did_you_mean
from minibert.base.foreign_names import (
    DEV_ARGUMENTS,
    IN_BATCHES,
    METHOD_ARGUMENTS,
    advice_for,
    name_here,
    refuse_unknown,
)
from minibert.base.options import metadata_of

P = ParamSpec("P")
A = TypeVar("A")
R = TypeVar("R")
Kind = TypeVar("Kind")


def called_with(arguments: Callable[P, A]) -> Callable[[Callable[[A], R]], Callable[P, R]]:
    """Let a function that takes a dataclass be called with the fields of the dataclass as its arguments.

    The function finds the names of the arguments that were given in the attribute `given` of the dataclass.
    Type checkers, `help` and editors see the fields as arguments of the function, and its docstring gets a
    section that describes them.

    Parameters
    ----------
    arguments : type
        The dataclass, a subclass of `RunOptions`.

    Returns
    -------
    function
        A decorator.
    """
    signature = inspect.signature(arguments)

    def decorate(function: Callable[[A], R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            values = arguments(*args, **kwargs)
            vars(values)["given"] = frozenset(signature.bind(*args, **kwargs).arguments)
            return function(values)

        returned = inspect.signature(function).return_annotation
        vars(call)["__signature__"] = signature.replace(return_annotation=returned)  # a class returns None
        call.__doc__ = with_parameters(function.__doc__, arguments)
        return checking_arguments(call)

    return decorate


def explains_arguments(estimator: type[Kind]) -> type[Kind]:
    """Describe the arguments of an estimator in its docstring, and let it explain wrong ones.

    Parameters
    ----------
    estimator : type
        A dataclass whose fields are declared by `option`.

    Returns
    -------
    type
        The same class, changed in place.
    """
    estimator.__doc__ = with_parameters(estimator.__doc__, estimator)
    # The dataclass has written `__init__`, so that it can only be wrapped here.
    estimator.__init__ = checking_arguments(estimator.__init__)  # type: ignore[method-assign]
    return estimator


def checking_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Check the names of the arguments before each call of a function, and explain what is wrong.

    Python's own errors would speak of `__init__` and of positions, and know no similar names.

    Parameters
    ----------
    function : callable
        A function, or the `__init__` of a class, which is then called by the name of the class.

    Returns
    -------
    callable
        The same with the same signature. It raises TypeError for a positional argument that needs a name,
        for an unknown argument, for one that is given twice, and for missing ones.
    """
    parameters = inspect.signature(function).parameters
    names = [each for each in parameters if each != "self"]
    name = function.__qualname__.removesuffix(".__init__")
    positional = [each.name for each in parameters.values() if each.kind is each.POSITIONAL_OR_KEYWORD]
    required = [each.name for each in parameters.values() if each.default is each.empty]

    def advise(unknown: str) -> str:
        return advice_for(unknown, names) or did_you_mean(unknown, names, "leave it out.")

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if len(args) > len(positional):
            allowed = ", ".join(each for each in positional if each != "self")
            raise TypeError(f"{name}() takes only {allowed} without a name; give the others by their names.")
        refuse_unknown(kwargs, names, name, advise)
        by_place = positional[: len(args)]
        if twice := [each for each in by_place if each in kwargs]:
            raise TypeError(f"{name}() got {twice[0]} twice; give it once.")
        given = {*by_place, *kwargs}
        missing = [each for each in required if each not in given]
        if missing:
            each = "each" if len(missing) > 1 else "it"
            raise TypeError(f"{name}() needs {', '.join(missing)}; give a value for {each}.")
        return function(*args, **kwargs)

    return call


def explains_unknown_arguments(
    method: Callable[Concatenate[Kind, P], R],
) -> Callable[Concatenate[Kind, P], R]:
    """Make a method of an estimator refuse unknown arguments and say what to do instead.

    Options belong to the estimator itself: `TextClassifier(folder, epochs=3)`, not `fit(X, y, epochs=3)`.

    Parameters
    ----------
    method : function
        A method of a dataclass whose fields are the options.

    Returns
    -------
    function
        The method, with the same signature; it raises TypeError for any other argument.
    """
    name = method.__name__
    parameters = list(inspect.signature(method).parameters.values())[1:]  # without self
    names = [each.name for each in parameters]
    positional = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]

    @functools.wraps(method)
    def call(self: Kind, /, *args: P.args, **kwargs: P.kwargs) -> R:
        def advise(unknown: str) -> str:
            return _advice_for_method(type(self), name, names, unknown)

        if len(args) > len(positional):
            how = "leave the others out."
            if len(names) > len(positional):
                how = "give the others by their names."
            elif len(positional) == 1:
                how = "give pairs as tuples."
            raise TypeError(f"{name}() takes only {', '.join(positional)} without a name; {how}")
        refuse_unknown(kwargs, names, name, advise)
        return method(self, *args, **kwargs)

    return call


def _advice_for_method(estimator: Any, method: str, names: list[str], unknown: str) -> str:
    """Say what to do instead of giving a method an argument that it does not have."""
    advice = METHOD_ARGUMENTS.get(method, {}).get(unknown, "")
    if advice and _is_possible(advice, estimator, method, names):
        return advice
    if unknown in DEV_ARGUMENTS and "dev" in names:
        return f"{method} takes dev=(X_dev, y_dev)."
    if unknown == "batch_size" and method != "fit":
        return IN_BATCHES
    options = [field.name for field in dataclasses.fields(estimator)]
    if unknown in options:
        return f"give it to {estimator.__name__}(...)."
    if option := name_here(unknown, options):
        return f"give {option} to {estimator.__name__}(...)."
    return advice_for(unknown, options) or did_you_mean(unknown, names, "leave it out.")


def _is_possible(advice: str, estimator: Any, method: str, names: list[str]) -> bool:
    """Return whether the method or argument that an advice names is there, and is another one."""
    if "predict_proba" in advice:
        return method != "predict_proba" and hasattr(estimator, "predict_proba")
    return "y" in names or "mean y?" not in advice


def with_parameters(text: str | None, kind: Any) -> str:
    """Describe the fields of a dataclass in a docstring, as a section in numpydoc's style.

    Parameters
    ----------
    text : str or None
        The docstring; the section is put before its other sections.
    kind : type
        A dataclass whose fields are declared by `option`. Positional fields are listed first, then those of
        the class itself, then those of its bases.

    Returns
    -------
    str
    """
    hints = get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    names = [name for name, field in fields.items() if not field.kw_only]
    for base in kind.__mro__:
        names += [name for name in inspect.get_annotations(base) if name in fields]
    wrapper = textwrap.TextWrapper(
        106, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False
    )
    lines = ["Parameters", "----------"]
    for name in dict.fromkeys(names):
        hint = hints[name]
        shown = hint.__name__ if isinstance(hint, type) else str(hint)
        without_modules = re.sub(r"\w[\w.]*", lambda match: match[0].rpartition(".")[2], shown)
        lines.append(f"{name} : {without_modules}")
        lines.append(wrapper.fill(description(kind, name)))
    section = "\n".join(lines)
    summary, *sections = re.split(r"\n(?=\w+\n---)", inspect.cleandoc(text or ""), maxsplit=1)
    return "\n".join([summary.rstrip(), "", section, "", *sections])


def description(kind: type, name: str) -> str:
    """Describe an option for a caller from Python, as its flag is described on the command line.

    Parameters
    ----------
    kind : type
        A dataclass whose fields are declared by `option`.
    name : str
        The name of the field.

    Returns
    -------
    str
        One or two sentences, with the default at the end if there is one.
    """
    metadata = metadata_of(kind, name)
    default = getattr(kind, name, dataclasses.MISSING)
    text = metadata.get("in_python") or metadata.get("help", "")
    in_words = getattr(kind, "UNDECIDED", "") if default is None else repr(default)
    shown_default = metadata.get("default", in_words)
    if shown_default and default is not dataclasses.MISSING:
        return f"{text} (default: {shown_default})."
    return f"{text}."
