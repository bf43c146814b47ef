"""A reader's function, run so that nothing it does ends the notebook: time and output are limited."""

import inspect
import io
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from types import FunctionType
from typing import Any

import numpy as np

from minibert.base.terminal import counted

SECONDS = 10.0  # of processor time that one check may take
LATER = 0.01  # seconds until it is looked again whether Numba is still compiling
SHOWN = 1_000  # characters of what a function prints


class Rejected(Exception):
    """An answer is wrong; the argument is a sentence that says how."""

    error = float("inf")  # relative, where numbers were compared


class Plain(Rejected):
    """An answer is wrong in a way that the sentence names: no likelier mistake is looked for."""


class _TimeOver(BaseException):
    """Not an Exception, so that no `except Exception` in the function swallows it."""


class _Capped(io.StringIO):
    """Keeps the first characters that are written, and counts the others."""

    dropped = 0

    def write(self, text: str) -> int:
        room = max(0, SHOWN - self.tell())
        self.dropped += len(text[room:])
        return super().write(text[:room])


@contextmanager
def limits() -> Iterator[None]:
    """Limit the time and the output of what is run inside.

    At most `SHOWN` characters are printed, afterwards.

    Yields
    ------
    None

    Raises
    ------
    Plain
        After `SECONDS` of processor time, in the main thread of a system with such a timer.
    """

    def over(*_: Any) -> None:
        if not _compiles():
            raise _TimeOver
        signal.setitimer(signal.ITIMER_VIRTUAL, LATER)

    in_main_thread = threading.current_thread() is threading.main_thread()
    timed = hasattr(signal, "setitimer") and in_main_thread
    before = signal.signal(signal.SIGVTALRM, over) if timed else None
    printed = _Capped()
    try:
        with redirect_stdout(printed):
            if timed:
                signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
            yield
    except _TimeOver:
        raise Plain(f"it has no end after {SECONDS:g} seconds; is there an endless loop?") from None
    finally:
        if timed:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)
        text = printed.getvalue().rstrip("\n")
        if text:
            if printed.dropped:
                text += f"\n… and {counted(printed.dropped, 'more character')}, left out"
            print(text)


def _compiles() -> bool:
    """Tell whether Numba is compiling in this thread: cut off there, it would lose its types for good."""
    lock = getattr(sys.modules.get("numba.core.compiler_lock"), "global_compiler_lock", None)
    return lock is not None and lock.is_locked()


def refusing(error: type[Exception], text: str) -> Callable[..., Any]:
    """Make a function that only raises an error.

    Parameters
    ----------
    error : type of exception
    text : str
        Its argument.

    Returns
    -------
    function
        Of any arguments.

    Raises
    ------
    error
        By the function, when it is called.
    """

    def refuse(*_: Any, **__: Any) -> Any:
        raise error(text)

    return refuse


@contextmanager
def barred(classes: list[type], *names: str) -> Iterator[None]:
    """Let methods of some classes raise Rejected, wherever they are called from.

    Parameters
    ----------
    classes : list of class
        Each method is replaced in those that define it, and put back at the end.
    *names : str
        Of the methods.

    Yields
    ------
    None
    """
    originals = []
    for owner in classes:
        for name in names:
            if name in vars(owner):
                originals.append((owner, name, vars(owner)[name]))
    for owner, name, _ in originals:
        text = f"it calls minibert's own {name}, which is what you are asked to write."
        setattr(owner, name, refusing(Rejected, text))
    try:
        yield
    finally:
        for owner, name, method in originals:
            setattr(owner, name, method)


def is_open(function: FunctionType) -> bool:
    """Tell whether nothing has been written yet: a docstring and three dots.

    Parameters
    ----------
    function : function
        The reader's.

    Returns
    -------
    bool
    """

    def bare() -> None: ...

    def described() -> None:
        """Nothing."""

    code = function.__code__
    empty = code.co_code in (bare.__code__.co_code, described.__code__.co_code)
    return empty and set(code.co_consts) <= {None, ..., function.__doc__}


def call(function: FunctionType, *args: Any, **kwargs: Any) -> Any:
    """Call a function of the reader's, and turn whatever goes wrong into a sentence.

    Parameters
    ----------
    function : function
    *args, **kwargs
        What it is called with; NumPy's warnings of what is not finite are off.

    Returns
    -------
    Any
        What it returns.

    Raises
    ------
    Rejected
        When it raises, with the last line of its own that was reached, or returns nothing.
    """
    try:
        with np.errstate(all="ignore"):
            result = function(*args, **kwargs)
    except Rejected:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        file = function.__code__.co_filename
        lines = [frame.line for frame in frames if frame.filename == file and frame.line]
        where = f" (at `{lines[-1]}`)" if lines else ""
        raise Rejected(f"it raises {type(error).__name__}: {error}{where}.") from None
    if result is None or result is ...:
        raise Rejected("it returns nothing.")
    return result


def require_parameters(function: FunctionType, method: Any) -> None:
    """Refuse a function that can't stand in for a method.

    Parameters
    ----------
    function : function
    method : function
        With `self`, as the class has it.

    Raises
    ------
    Rejected
        When the names of their parameters differ.
    """
    ours = list(inspect.signature(function).parameters)
    theirs = list(inspect.signature(method).parameters)
    if ours != theirs:
        raise Rejected(f"its parameters are ({', '.join(ours)}); expected ({', '.join(theirs)}).")
