"""How a command can end badly: errors, told apart by whose fault it was, and signals."""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any


class InputError(ValueError):
    """What was given can't be used: a file, an argument, a configuration. The command line exits with 2."""


class MissingFile(InputError):
    """A file is not there: another matter than one that is there and can't be read."""


@contextmanager
def naming(source: str) -> Iterator[None]:
    """Begin what an InputError from here says with the source of the data; with "" it stays as it is."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{source}: {error}" if source else str(error)) from error


class RunError(RuntimeError):
    """The work itself failed: a full disk, a loss that is not a number. The command line exits with 1."""


class OutOfMemory(MemoryError):
    """A device has no room for what is to be computed."""

    times = 2.0  # how much more it wanted than there was, where that is known


class Stopped(KeyboardInterrupt):
    """A signal, the argument, has ended the training, after the same step in all processes."""


# Of signals that stop a command as Ctrl-C does: its exit status then. Windows has no SIGHUP, which a terminal
# sends when it is closed.
STOPPED_BY = {"SIGTERM": 143, "SIGHUP": 129}


def handle_signals(
    names: Iterable[str], handler: Callable[[int, Any], Any], replaces: Callable[[Any], bool]
) -> dict[int, Any]:
    """Let a function handle some signals, as far as this thread may.

    Parameters
    ----------
    names : of the signals; one that this system lacks is passed over.
    handler : called with the number of the signal, and a frame.
    replaces : whether to take the place of what handles a signal now.

    Returns
    -------
    What handled each of them before, by number; nothing in other threads than the main one, as only there are
    signals delivered.
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
