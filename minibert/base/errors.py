"""Errors, warnings, and signals that stop a command; the class of an error says whose fault it was."""

import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from types import FrameType
from typing import Any

from minibert.core.errors import InputError as InputError


class MissingFile(InputError):
    """Report a file that is missing, as opposed to one that is there and can't be read."""


class OtherOptions(InputError):
    """Report options that a run can't be resumed with.

    Parameters
    ----------
    differing : dict of str to (object, object)
        For each option, by name: the value asked for, and the run's.
    """

    def __init__(self, differing: Mapping[str, tuple[Any, Any]]) -> None:
        values = {name: wanted for name, (wanted, _) in differing.items()}
        parts = []
        for name, (wanted, stored) in differing.items():
            shown = "none" if stored == () else repr(stored)
            parts.append(f"{name}={wanted!r} (the run has {shown})")
        which = "that" if len(differing) == 1 else "them"
        advice = f"leave {which} out, or start a new run in another folder."
        super().__init__(f"The run cannot be resumed with {', '.join(parts)}; {advice}", **values)
        self.differing = dict(differing)

    def __reduce__(self) -> tuple[Any, ...]:  # `args` is the sentence
        return type(self), (self.differing,), vars(self)


class InputWarning(UserWarning):
    """Warn that something given can be used, but is probably not what was meant.

    Parameters
    ----------
    message : str
        A sentence; it names arguments as that of an `InputError` does.
    **arguments
        The arguments whose values the sentence shows, by name.
    """

    def __init__(self, message: str, **arguments: Any) -> None:
        super().__init__(message)
        self.arguments = arguments


# Modules whose lines say nothing to the user of this package. scikit-learn and joblib fit one estimator again
# and again.
REPEATING = ("sklearn.", "joblib.")
INSIDE = ("minibert.", "contextlib", *REPEATING)
SHOWN_ONCE = ("default", "module", "once")  # actions of Python's filters that show a warning once for a line
# Text, file and line of each warning that was shown -> the registry of its module.
_shown: dict[tuple[str, str, int], Any] = {}


def warn(message: str, **arguments: Any) -> None:
    """Warn with an `InputWarning` that points at the caller's line, outside this package.

    Called by way of scikit-learn, it is shown once for that line, as Python's filters have it: scikit-learn
    changes the filters for every fold, upon which Python forgets what it has shown.

    Parameters
    ----------
    message : str
        The warning.
    **arguments
        The arguments whose values the sentence shows, by name.
    """
    level = 2
    caller = sys._getframe(1)
    is_repeating = False
    while caller.f_back and caller.f_globals.get("__name__", "").startswith(INSIDE):
        is_repeating |= caller.f_globals["__name__"].startswith(REPEATING)
        level += 1
        caller = caller.f_back
    warning = InputWarning(message, **arguments)
    if not is_repeating or not _was_shown(warning, caller):
        warnings.warn(warning, stacklevel=level)


def _was_shown(warning: Warning, caller: FrameType) -> bool:
    """Return whether a warning that is to be shown once for a line was shown for the line of a frame.

    A module's registry is compared by identity, as IPython makes a new one for every cell.
    """
    registry = caller.f_globals.setdefault("__warningregistry__", {})
    place = str(warning), caller.f_code.co_filename, caller.f_lineno
    action = _action_for(warning, caller)
    was_shown = _shown.get(place) is registry
    if action not in ("ignore", "error"):
        _shown[place] = registry
    return was_shown and action in SHOWN_ONCE


def _action_for(warning: Warning, caller: FrameType) -> str:
    """Return the action of the first of Python's filters that fits a warning."""
    name = caller.f_globals.get("__name__", "")
    filters: Iterable[tuple[str, Any, Any, Any, int]] = warnings.filters
    for action, text, category, module, line in filters:
        fits = isinstance(warning, category) and line in (0, caller.f_lineno)
        if fits and _matches(text, str(warning)) and _matches(module, name):
            return action
    return "default"


def _matches(pattern: Any, text: str) -> bool:
    """Return whether a pattern of a filter fits, which may be None, a compiled pattern or a string."""
    if pattern is None or isinstance(pattern, str):
        return pattern in (None, text)
    return pattern.match(text) is not None


def did_you_mean(
    word: str,
    known: Mapping[str, str] | Iterable[str],
    otherwise: str = "",
    n: int = 1,
    cutoff: float = 0.6,
) -> str:
    """Suggest known words that are similar to an unknown one.

    Parameters
    ----------
    word : str
        The unknown word, as it was typed.
    known : iterable of str, or mapping of str to str
        The words to choose from. The keys of a mapping are compared, and its values shown.
    otherwise : str, default ""
        What to return if none is similar.
    n : int, default 1
        How many to suggest at most, the most similar first.
    cutoff : float, default 0.6
        How similar they have to be, from 0 to 1, by `difflib`'s ratio.

    Returns
    -------
    str
        A question, such as "did you mean steps?", or `otherwise`.
    """
    shown = known if isinstance(known, Mapping) else {name: name for name in known}
    similar = [shown[name] for name in get_close_matches(word, shown, n, cutoff)]
    if not similar:
        return otherwise
    return f"did you mean {' or '.join(similar)}?"


@contextmanager
def naming(source: str) -> Iterator[None]:
    """Add a place to an InputError that is raised in the block.

    Parameters
    ----------
    source : str
        What the block reads, such as a file, or a folder and a split: "films, dev". It precedes the place in
        the error, unless that begins with the same file or folder.

    Yields
    ------
    None

    Raises
    ------
    InputError
        The same error, with `where` completed.
    """
    try:
        yield
    except InputError as error:
        file_or_folder = source.partition(",")[0]
        if not error.where.startswith(file_or_folder):
            error.where = ": ".join(filter(None, (source, error.where)))
        raise


class RunError(RuntimeError):
    """Report that the work itself failed: a full disk, a loss that is not a number.

    The command line exits with 1.
    """


class StopTraining(Exception):
    """Raise this in `on_log`: the run ends after that step, and is finished like any other."""


class OutOfMemory(MemoryError):
    """Report that a device has too little memory for a computation."""

    times = 2.0  # memory needed, as a multiple of what there was, if known


class Stopped(KeyboardInterrupt):
    """End training because of a signal (the argument), after the same step in every process."""


class Interrupted(KeyboardInterrupt):
    """End a call because of Ctrl-C or a notebook's stop button; the argument says how to resume it."""

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows in place of a traceback: whoever pressed the button knows where."""
        return [str(self)]


# The exit status of a command that was stopped by a signal. Windows has no SIGHUP, which a terminal sends
# when it is closed.
STOPPED_BY = {"SIGTERM": 143, "SIGHUP": 129}


def handle_signals(
    names: Iterable[str],
    handler: Callable[[int, Any], Any],
    replaces: Callable[[Any], bool],
) -> dict[int, Any]:
    """Install a handler for some signals; do nothing outside the main thread, which alone receives them.

    Parameters
    ----------
    names : iterable of str
        Such as "SIGTERM"; those that the system lacks are skipped.
    handler : function
        Called with the number of the signal and a frame, as `signal.signal` wants it.
    replaces : function
        Called with the current handler of a signal; returns whether it may be replaced.

    Returns
    -------
    dict of int to handler
        The previous handler of each signal, by its number, for `restore_signals`; empty in other threads.
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
        What `handle_signals` returned.
    """
    for number, handler in before.items():
        signal.signal(number, handler)


class DivergedError(RunError):
    """Report a loss or a gradient that is no longer finite; a lower learning rate may help."""
