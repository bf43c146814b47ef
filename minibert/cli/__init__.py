"""The command line, `minibert COMMAND`: all that reads argv.

Each command is a file in this folder. The first line of its docstring is the summary in `minibert --help`,
the rest its own help; `add` declares its flags; `run` calls the library, and returns the exit status, or None
for `arguments.status`. Exit status: 0 success, 1 the work failed, 2 something that was given can't be used,
130 Ctrl-C, 143 SIGTERM, 129 SIGHUP.
"""

import errno
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, NoReturn, cast

from minibert.base.errors import STOPPED_BY, InputError, RunError, handle_signals, restore_signals
from minibert.base.terminal import emit, flush_errors, flush_output, printable, write_what_can_be_written
from minibert.cli.shared.messages import on_command_line
from minibert.cli.shared.parser import parse_arguments

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
NO_THREAD = "can't start new thread"  # what Python's RuntimeError says, which has no class of its own


@contextmanager
def _stopped_as_by_ctrl_c() -> Iterator[None]:
    """Let SIGTERM and SIGHUP clean up as Ctrl-C does, unless they are already handled or ignored."""

    def stop(number: int, _: Any) -> NoReturn:
        name = signal.Signals(number).name
        if name == "SIGHUP":  # a terminal that is closed may send it twice
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt(name)

    before = handle_signals(STOPPED_BY, stop, replaces=lambda handler: handler is signal.SIG_DFL)
    try:
        yield
    finally:
        restore_signals(before)


@_stopped_as_by_ctrl_c()
def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    However a command ends, its output is flushed here, where a failure can be reported. Otherwise Python
    would do so at the end of the process, and exit with 120 and a message of its own.

    Parameters
    ----------
    argv : sequence of str, optional
        The words after `minibert`; by default, those of this process.

    Returns
    -------
    int
        The exit status. One line on the error stream says what was wrong.

    Raises
    ------
    SystemExit
        After printing help, the version or a completion script (status 0), or when a word is refused (2).
    """
    write_what_can_be_written()
    ending: SystemExit | None = None
    try:
        status = _status_of(lambda: _run(argv))
    except SystemExit as stop:
        ending = stop
        status = int(stop.code or DONE)
    if status == DONE:
        status = _status_of(flush_output)
    else:
        with suppress(OSError):  # one reason is enough
            flush_output()
    flush_errors()
    if ending is not None and ending.code == status:
        raise ending
    return status


def _run(argv: Sequence[str] | None) -> int:
    """Run a command and return its status; errors of the operating system are raised."""
    arguments = parse_arguments(argv)

    def show(warning: Any, *_: Any) -> None:
        _complain(on_command_line(warning, arguments.parser))

    try:
        with warnings.catch_warnings():
            warnings.showwarning = cast(Any, show)
            if "device" in arguments:
                import_module("minibert.engines").force_device(arguments.device)
            return arguments.run(arguments) or arguments.status
    except (InputError, RunError) as error:
        status = BAD_INPUT if isinstance(error, InputError) else FAILED
        return _complain(on_command_line(error, arguments.parser), status)


def _status_of(work: Callable[[], int | None]) -> int:
    """Do the work and return its status; report exceptions, and return the status for them."""
    try:
        return work() or DONE
    except PermissionError as error:  # a folder that may not be listed, for instance
        where = error.filename or "A file"
        text = f"{where}: permission denied; change its permissions or name another."
        return _complain(text, BAD_INPUT)
    except BrokenPipeError:  # the reader of the output, such as `head`, has stopped
        return FAILED
    except MemoryError as error:
        return _complain(str(error) or "there is not enough memory", FAILED)
    except RuntimeError as error:
        if str(error) != NO_THREAD:
            raise
        return _complain("another thread could not be started: memory or threads have run out", FAILED)
    except OSError as error:
        where = f"{error.filename} could" if error.filename else "The output, or a file, could"
        status = BAD_INPUT if error.errno == errno.ENAMETOOLONG else FAILED
        return _complain(f"{where} not be read or written: {error.strerror or error}.", status)
    except KeyboardInterrupt as stop:
        return next((STOPPED_BY[name] for name in stop.args if name in STOPPED_BY), INTERRUPTED)


def _complain(message: Any, status: int = DONE) -> int:
    text = " ".join(str(message).split()) or type(message).__name__
    with suppress(OSError):  # nobody is left to read it
        emit(f"minibert: {printable(text)}", file=sys.stderr)
    return status
