"""Someone else's function, run so that nothing it does ends the notebook: time, output and inputs are watched."""

import inspect
import io
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import numpy as np

SECONDS = 10.0  # of processor time that one check may take
SHOWN = 1_000  # characters of what a function prints


class Rejected(Exception):
    """An answer is wrong; the argument is a sentence that says how."""


class TooLong(Rejected):
    """It would go on for ever."""


class _TimeOver(BaseException):
    """The time is over. Not an Exception, so that no `except Exception` in the function swallows it."""


@contextmanager
def time_limit(seconds: float = SECONDS) -> Iterator[None]:
    """Raise Rejected after so much processor time; where the system has no such timer, there is no limit."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(*_: Any) -> None:
        raise _TimeOver

    before = signal.signal(signal.SIGVTALRM, over)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    except _TimeOver:
        raise TooLong(f"it has no end after {seconds:g} seconds; is there an endless loop?") from None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


class _Capped(io.TextIOBase):
    """Keeps the first characters that are written, and counts the others."""

    def __init__(self) -> None:
        self.text, self.dropped = "", 0

    def write(self, text: str) -> int:
        """Take some text."""
        room = SHOWN - len(self.text)
        self.text += text[:room]
        self.dropped += len(text[room:])
        return len(text)


@contextmanager
def output_limit() -> Iterator[None]:
    """Print what is printed inside when all is over, its first thousand characters."""
    capped, before = _Capped(), sys.stdout
    sys.stdout = capped
    try:
        yield
    finally:
        sys.stdout = before
        if capped.text:
            more = f"\n… and {capped.dropped:,} more characters, left out" if capped.dropped else ""
            print(capped.text.rstrip("\n") + more)


@contextmanager
def barred(classes: list[type], names: tuple[str, ...]) -> Iterator[None]:
    """Let methods of these classes raise Rejected, wherever they are called from."""

    def replacement(name: str) -> Callable[..., Any]:
        def refuse(*_: Any, **__: Any) -> Any:
            raise Rejected(f"it calls minibert's own {name}, which is what you are asked to write.")

        return refuse

    originals = [(one, name, vars(one)[name]) for one in classes for name in names if name in vars(one)]
    for one, name, _ in originals:
        setattr(one, name, replacement(name))
    try:
        yield
    finally:
        for one, name, method in originals:
            setattr(one, name, method)


def is_open(function: FunctionType) -> bool:
    """Tell whether nothing has been written yet: a docstring and three dots."""

    def bare() -> None: ...

    def described() -> None:
        """Nothing."""

    return function.__code__.co_code in (bare.__code__.co_code, described.__code__.co_code)


def call(function: FunctionType, *args: Any, **kwargs: Any) -> Any:
    """Call it; whatever it raises becomes a sentence that names the line."""
    try:
        with np.errstate(all="ignore"):
            return function(*args, **kwargs)
    except Rejected:
        raise
    except Exception as error:
        raise Rejected(f"it raises {type(error).__name__}: {error}{_line(function, error)}.") from None


def _line(function: FunctionType, error: Exception) -> str:
    """Name the last line of the function's file that an error came through."""
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == function.__code__.co_filename
    ]
    return f" (at `{own[-1].line}`)" if own and own[-1].line else ""


def leaves(value: Any) -> list[Any]:
    """List the arrays, numbers and strings in nested lists, tuples and dictionaries, in order."""
    if isinstance(value, dict):
        return [leaf for name in sorted(value, key=repr) for leaf in leaves(value[name])]
    if isinstance(value, list | tuple):
        return [leaf for one in value for leaf in leaves(one)]
    return [value]


def copy(value: Any) -> Any:
    """Copy arrays, lists, tuples and dictionaries; anything else stays the same object."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {name: copy(one) for name, one in value.items()}
    if isinstance(value, list):
        return [copy(one) for one in value]
    if isinstance(value, tuple):
        own = [copy(one) for one in value]
        return type(value)(*own) if hasattr(value, "_fields") else tuple(own)
    return value


def same_parameters(function: FunctionType, method: Any) -> None:
    """Raise Rejected where a function can't stand in for a method, because its parameters differ."""
    ours, theirs = (list(inspect.signature(one).parameters) for one in (function, method))
    if ours != theirs:
        raise Rejected(f"its parameters are ({', '.join(ours)}); expected ({', '.join(theirs)}).")
