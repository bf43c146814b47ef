"""How a command can end badly: errors, told apart by whose fault it was, warnings, and signals."""

import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

from minibert.core.errors import InputError as InputError


class MissingFile(InputError):
    """A file is not there: another matter than one that is there and can't be read."""


class OtherOptions(InputError):
    """Report options that a run can't be resumed with.

    Parameters
    ----------
    differing : dict of str to (object, object)
        The options, by name: the value asked for, and that of the run.
    """

    def __init__(self, differing: Mapping[str, tuple[Any, Any]]) -> None:
        asked = {name: wanted for name, (wanted, _) in differing.items()}
        parts = []
        for name, (wanted, stored) in differing.items():
            parts.append(f"{name}={wanted!r} (the run has {stored!r})")
        which = "that" if len(differing) == 1 else "them"
        advice = f"leave {which} out, or start a new run in another folder."
        super().__init__(f"The run cannot be resumed with {', '.join(parts)}; {advice}", **asked)
        self.differing = dict(differing)

    def __reduce__(self) -> tuple[Any, ...]:  # `args` is the sentence
        return type(self), (self.differing,), vars(self)


class InputWarning(UserWarning):
    """Warn of something that was given and can be used, but probably not as intended.

    Parameters
    ----------
    message : str
        A sentence, which names arguments as that of an `InputError` does.
    **arguments
        The arguments whose values stand in it, by name.
    """

    def __init__(self, message: str, **arguments: Any) -> None:
        super().__init__(message)
        self.arguments = arguments


def warn(message: str, **arguments: Any) -> None:
    """Warn whoever has called the package, by an `InputWarning` that shows their line and not one of ours.

    Parameters
    ----------
    message : str
        The warning.
    **arguments
        The arguments whose values stand in it, by name.
    """
    level = 2
    caller = sys._getframe(1)
    while caller.f_back and caller.f_globals.get("__name__", "").startswith(("minibert.", "contextlib")):
        level += 1
        caller = caller.f_back
    warnings.warn(InputWarning(message, **arguments), stacklevel=level)


def did_you_mean(
    word: str,
    known: Mapping[str, str] | Iterable[str],
    otherwise: str = "",
    n: int = 1,
    cutoff: float = 0.6,
) -> str:
    """Ask whether the nearest of the known words was meant.

    Parameters
    ----------
    word : str
        As it was typed.
    known : iterable of str, or mapping of str to str
        The words that there are. Of a mapping the keys are compared, and its values shown.
    otherwise : str, default ""
        What to return where none is near.
    n : int, default 1
        How many to name at most, the nearest first.
    cutoff : float, default 0.6
        How alike they have to be, from 0 to 1, by `difflib`'s ratio.

    Returns
    -------
    str
        A question, such as "did you mean steps?", or `otherwise`.
    """
    shown = known if isinstance(known, Mapping) else {name: name for name in known}
    near = [shown[name] for name in get_close_matches(word, shown, n, cutoff)]
    if not near:
        return otherwise
    return f"did you mean {' or '.join(near)}?"


@contextmanager
def naming(source: str) -> Iterator[None]:
    """Say of an InputError from here where it happened.

    Parameters
    ----------
    source : str
        Of what is read in the block, such as the name of a file. It goes before the place that the error has
        already.

    Yields
    ------
    None

    Raises
    ------
    InputError
        The same one, with `where`.
    """
    try:
        yield
    except InputError as error:
        error.where = ": ".join(filter(None, (source, error.where)))
        raise


class RunError(RuntimeError):
    """The work itself failed: a full disk, a loss that is not a number. The command line exits with 1."""


class StopTraining(Exception):
    """Raise this in `on_log`: the run ends with that step, and is finished like any other."""


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
    names: Iterable[str],
    handler: Callable[[int, Any], Any],
    replaces: Callable[[Any], bool],
) -> dict[int, Any]:
    """Let a function handle some signals, in the main thread, which alone gets them.

    Parameters
    ----------
    names : iterable of str
        Such as "SIGTERM"; those that the system does not have are left out.
    handler : function
        Of the number of a signal and a frame, as `signal.signal` takes it.
    replaces : function
        Whether what handles a signal now may go.

    Returns
    -------
    dict of int to handler
        What handled each of them before, by the signal's number, for `restore_signals`; empty in other
        threads.
    """
    before: dict[int, Any] = {}
    if threading.current_thread() is not threading.main_thread():
        return before
    for name in names:
        number = getattr(signal, name, None)
        if number is not None and replaces(signal.getsignal(number)):
            before[number] = signal.signal(number, handler)
    return before


def restore_signals(before: dict[int, Any]) -> None:
    """Undo `handle_signals`.

    Parameters
    ----------
    before : dict of int to handler
        What that returned.
    """
    for number, handler in before.items():
        signal.signal(number, handler)


class DivergedError(RunError):
    """The loss or a gradient is no longer finite; with a lower learning rate it may stay so."""
