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
    """Raise Plain after `SECONDS`, where there is such a timer; print at most `SHOWN` characters."""

    def over(*_: Any) -> None:
        if not _compiles():
            raise _TimeOver
        signal.setitimer(signal.ITIMER_VIRTUAL, LATER)

    timed = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
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
        if text := printed.getvalue().rstrip("\n"):
            if printed.dropped:
                text += f"\n… and {counted(printed.dropped, 'more character')}, left out"
            print(text)


def _compiles() -> bool:
    """Tell whether Numba is compiling in this thread: cut off there, it would lose its types for good."""
    lock = getattr(sys.modules.get("numba.core.compiler_lock"), "global_compiler_lock", None)
    return lock is not None and lock.is_locked()


def refusing(error: type[Exception], text: str) -> Callable[..., Any]:
    """Make a function that only raises an error."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise error(text)

    return refuse


@contextmanager
def barred(classes: list[type], *names: str) -> Iterator[None]:
    """Let methods of these classes raise Rejected, wherever they are called from."""
    originals = [(one, name, vars(one)[name]) for one in classes for name in names if name in vars(one)]
    for one, name, _ in originals:
        text = f"it calls minibert's own {name}, which is what you are asked to write."
        setattr(one, name, refusing(Rejected, text))
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

    code = function.__code__
    empty = code.co_code in (bare.__code__.co_code, described.__code__.co_code)
    return empty and set(code.co_consts) <= {None, ..., function.__doc__}


def call(function: FunctionType, *args: Any, **kwargs: Any) -> Any:
    """Call it; whatever it raises, or that it returns nothing, becomes a sentence."""
    try:
        with np.errstate(all="ignore"):
            result = function(*args, **kwargs)
    except Rejected:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [one.line for one in frames if one.filename == function.__code__.co_filename and one.line]
        where = f" (at `{own[-1]}`)" if own else ""
        raise Rejected(f"it raises {type(error).__name__}: {error}{where}.") from None
    if result is None or result is ...:
        raise Rejected("it returns nothing.")
    return result


def require_parameters(function: FunctionType, method: Any) -> None:
    """Raise Rejected where a function can't stand in for a method, because its parameters differ."""
    ours, theirs = (list(inspect.signature(one).parameters) for one in (function, method))
    if ours != theirs:
        raise Rejected(f"its parameters are ({', '.join(ours)}); expected ({', '.join(theirs)}).")
