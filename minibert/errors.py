"""The two ways in which a command can end badly, told apart by whose fault it was."""

from collections.abc import Iterator
from contextlib import contextmanager


class InputError(ValueError):
    """What was given can't be used: a file, an argument, a configuration. The command line exits with 2."""


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


class DivergedError(RunError):
    """The loss or a gradient is no longer finite; with a lower learning rate it may stay so."""
