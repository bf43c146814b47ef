"""How a command can end badly: errors, told apart by whose fault it was, warnings, and signals."""

import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from typing import Any

from minibert.core.errors import InputError as InputError


class Arguments(dict[str, Any]):
    """Arguments by name, which a sentence lists one after another as name=value."""

    is_sentence = True

    def __str__(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.items())


class Differences(dict[str, tuple[Any, Any]]):
    """Options that a run can't go on with, by name: the value asked for, and the run's own."""

    is_sentence = True

    def __str__(self) -> str:
        return ", ".join(f"{name}={one!r} (the run has {its!r})" for name, (one, its) in self.items())


class MissingFile(InputError):
    """A file is not there: another matter than one that is there and can't be read."""


def flags_as_arguments(text: str) -> str:
    """Return a sentence with `out` for --out and batch=8 for --batch 8; a whole command stays as it is."""

    def argument(flag: re.Match[str]) -> str:
        name = flag[1].replace("-", "_")
        return f"{name}={flag[2]}" if flag[2] else f"`{name}`"

    return text if "minibert " in text else re.sub(r"(?<!\S)--([a-z][a-z-]*)(?: (\d+))?", argument, text)


class Advice(UserWarning):
    """A warning that names flags, as the command line shows it; to Python they are arguments."""

    def __str__(self) -> str:
        return flags_as_arguments(str(self.args[0]))


_wording: ContextVar[Callable[[str], str]] = ContextVar("wording", default=str)


@contextmanager
def wording(words: Callable[[str], str]) -> Iterator[None]:
    """Let `words` rewrite the text of every warning that is given by the block."""
    token = _wording.set(words)
    try:
        yield
    finally:
        _wording.reset(token)


def warn(text: str) -> None:
    """Warn whoever has called the package, with an `Advice` that shows their line and not one of ours."""
    text = _wording.get()(text)
    level, caller = 2, sys._getframe(1)
    while caller.f_back and caller.f_globals.get("__name__", "").startswith(("minibert.", "contextlib")):
        level, caller = level + 1, caller.f_back
    warnings.warn(Advice(text), stacklevel=level)


def did_you_mean(
    word: str, known: Mapping[str, str] | Iterable[str], otherwise: str = "", n: int = 1, cutoff: float = 0.6
) -> str:
    """Ask whether the nearest of the known words was meant, up to `n`; `otherwise` where none is near.

    Of a mapping the keys are compared, and its values shown.
    """
    shown = known if isinstance(known, Mapping) else {one: one for one in known}
    near = [shown[one] for one in get_close_matches(word, shown, n, cutoff)]
    return f"did you mean {' or '.join(near)}?" if near else otherwise


@contextmanager
def naming(source: str) -> Iterator[None]:
    """Begin what an InputError from here says with the source of the data; with "" it stays as it is."""
    try:
        yield
    except InputError as error:
        message = f"{source}: {error.message}" if source else error.message
        raise InputError(message, **error.arguments) from error


class RunError(RuntimeError):
    """The work itself failed: a full disk, a loss that is not a number. The command line exits with 1."""


class OutOfMemory(MemoryError):
    """A device has no room for what is to be computed."""

    times = 2.0  # how much more it wanted than there was, where that is known


class Stopped(KeyboardInterrupt):
    """A signal, the argument, has ended the training, after the same step in all processes."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, or a notebook's button, has stopped a call; the argument says what is kept and how to go on."""

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows in place of a traceback: whoever pressed the button knows where."""
        return [str(self)]


# Of signals that stop a command as Ctrl-C does: its exit status then. Windows has no SIGHUP, which a terminal
# sends when it is closed.
STOPPED_BY = {"SIGTERM": 143, "SIGHUP": 129}


def handle_signals(
    names: Iterable[str], handler: Callable[[int, Any], Any], replaces: Callable[[Any], bool]
) -> dict[int, Any]:
    """Let a function handle some signals in place of what `replaces` says may go.

    Return what handled each of them before, by number: nothing but in the main thread, which alone gets them.
    """
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for name in names:
            number = getattr(signal, name, None)
            if number is not None and replaces(signal.getsignal(number)):
                before[number] = signal.signal(number, handler)
    return before


def restore_signals(before: dict[int, Any]) -> None:
    """Undo `handle_signals`, which returned this."""
    for number, handler in before.items():
        signal.signal(number, handler)


class DivergedError(RunError):
    """The loss or a gradient is no longer finite; with a lower learning rate it may stay so."""
