"""Run a reader's function with limits of time and output, so that nothing it does ends the notebook."""

import inspect
import io
import signal
import sys
import textwrap
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from types import FunctionType
from typing import Any

import numpy as np

from minibert.base.terminal import counted

SECONDS = 10.0  # limit of processor time for one check
LATER = 0.01  # seconds between two looks at whether Numba is still compiling
SOURCE = "__course_source__"  # attribute with the source of a function that was made from text
SHOWN = 1_000  # characters that are shown of what a function prints


class Rejected(Exception):
    """An answer is wrong; the argument is a sentence that says how."""

    error = float("inf")  # relative error, if numbers were compared


class Plain(Rejected):
    """An answer is wrong, and the sentence explains it: no further explanation is looked for."""


class _TimeOver(BaseException):
    """The time of a check is over; not an Exception, so that the reader's own code does not catch it."""


class _Capped(io.StringIO):
    """A text that keeps the first characters that are written, and counts the rest."""

    dropped = 0

    def write(self, text: str) -> int:
        room = max(0, SHOWN - self.tell())
        self.dropped += len(text[room:])
        return super().write(text[:room])


@contextmanager
def limits() -> Iterator[None]:
    """Limit the time and the output of the code in a `with` block.

    At most `SHOWN` characters of the output are printed, at the end of the block.

    Yields
    ------
    None

    Raises
    ------
    Plain
        After `SECONDS` of processor time; only in the main thread, on a system that has such a timer.
    """

    def stop_or_wait(*_: Any) -> None:
        if not _numba_compiles():
            raise _TimeOver
        signal.setitimer(signal.ITIMER_VIRTUAL, LATER)

    in_main_thread = threading.current_thread() is threading.main_thread()
    is_timed = hasattr(signal, "setitimer") and in_main_thread
    handler_before = signal.signal(signal.SIGVTALRM, stop_or_wait) if is_timed else None
    printed = _Capped()
    try:
        with redirect_stdout(printed):
            if is_timed:
                signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
            yield
    except _TimeOver:
        raise Plain(f"it does not end within {SECONDS:g} seconds; is there an endless loop?") from None
    finally:
        if is_timed:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, handler_before)
        text = printed.getvalue().rstrip("\n")
        if text:
            if printed.dropped:
                text += f"\n… and {counted(printed.dropped, 'more character')}, left out"
            print(text)


def _numba_compiles() -> bool:
    """Tell whether Numba is compiling in this thread; an interruption would corrupt its types for good."""
    lock = getattr(sys.modules.get("numba.core.compiler_lock"), "global_compiler_lock", None)
    return lock is not None and lock.is_locked()


def refusing(error: type[Exception], text: str) -> Callable[..., Any]:
    """Make a function that only raises an error.

    Parameters
    ----------
    error : type of exception
    text : str
        Message of the error.

    Returns
    -------
    function
        It takes any arguments.

    Raises
    ------
    error
        When the function is called.
    """

    def refuse(*_: Any, **__: Any) -> Any:
        raise error(text)

    return refuse


@contextmanager
def barred(classes: list[type], *names: str) -> Iterator[None]:
    """Make methods of some classes raise Rejected during a `with` block, whoever calls them.

    Parameters
    ----------
    classes : list of class
        Classes in which a method is replaced, if they define it, until the end of the block.
    *names : str
        Names of the methods.

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
    """Tell whether a function is still a stub: a docstring and three dots.

    Parameters
    ----------
    function : function
        The reader's function.

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


def source_of(function: FunctionType) -> str:
    """Return the source of a function as it was when it was defined: a file may change later.

    Parameters
    ----------
    function : function
        Whoever made it from text may have kept its source as the attribute `SOURCE`.

    Returns
    -------
    str
        Python, without the indentation of a method.

    Raises
    ------
    OSError, TypeError
        When it has no source that can be read.
    """
    kept = getattr(function, SOURCE, "")
    return str(kept or textwrap.dedent(inspect.getsource(function))).strip("\n")


def call(function: FunctionType, *args: Any, **kwargs: Any) -> Any:
    """Call a function of the reader's, and turn whatever goes wrong into a sentence.

    Parameters
    ----------
    function : function
    *args, **kwargs
        Arguments of the call, during which NumPy does not warn of infinite numbers and NaN.

    Returns
    -------
    Any
        The function's result.

    Raises
    ------
    Rejected
        When the function raises, with its last line that was reached, or returns nothing.
    """
    try:
        with np.errstate(all="ignore"):
            result = function(*args, **kwargs)
    except Rejected:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        file = function.__code__.co_filename
        own_lines = [frame.line for frame in frames if frame.filename == file and frame.line]
        where = f" (at `{own_lines[-1]}`)" if own_lines else ""
        raise Rejected(f"it raises {type(error).__name__}: {error}{where}.") from None
    if result is None or result is ...:
        raise Rejected("it returns nothing.")
    return result


def require_parameters(function: FunctionType, method: Any) -> None:
    """Refuse a function that can't stand in for a method.

    Parameters
    ----------
    function : function
        The reader's function.
    method : function
        The method as its class defines it, with `self`.

    Raises
    ------
    Rejected
        When the names of their parameters differ.
    """
    names = list(inspect.signature(function).parameters)
    expected = list(inspect.signature(method).parameters)
    if names != expected:
        raise Rejected(f"its parameters are ({', '.join(names)}); expected ({', '.join(expected)}).")
