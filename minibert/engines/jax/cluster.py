"""Many processes as one training, by JAX's own distributed runtime.

Each process has some devices and makes its own part of every batch; the first one coordinates the others
and writes. This file is imported before anything else of JAX: devices are looked for once.
"""

import atexit
import ctypes
import itertools
import json
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import Any

import jax
from jax._src import distributed  # what there is of it in public only works where all are alive

from minibert.base.errors import InputError, RunError
from minibert.base.terminal import emit

BEAT, SILENCE = 2, 30  # seconds between signs of life, and without one until a process counts as gone
ABORT = 100  # seconds until JAX itself ends a process that lost the others, with a message that helps nobody
WAIT = 120  # seconds in which all processes have to come
LOOK = 0.05  # seconds between two checks whether all have met
STATUS = {InputError: 2, KeyboardInterrupt: 130}  # exit status of the command line; 1 after other errors
ADVICE = "The last checkpoint is intact: start the processes again, as many as you like, to resume it."
_barriers = itertools.count()
_over = threading.Event()  # set when this process no longer watches the others
_last_words: list[str] = []  # the sentence to print when JAX aborts


def join(coordinator: str, processes: int | None = None, process_id: int | None = None) -> None:
    """Connect to the other processes of a training; see `registry.join`.

    Parameters
    ----------
    coordinator : str
        HOST:PORT where process 0 listens, or "auto" where the environment of a cluster says everything.
    processes : int or None
        How many train together; None where the environment says so.
    process_id : int or None
        The number of this one, from 0; None where the environment says so.

    Raises
    ------
    InputError
        When the address can't be used, or the environment does not say enough.
    RunError
        When the others do not come within `WAIT` seconds.
    """
    auto = coordinator == "auto"
    address = None if auto else coordinator
    name = "the coordinator" if auto else coordinator
    late = (
        f"Not all of the processes came to {name} within {WAIT} seconds; "
        "start every one, and see that they reach that address."
    )
    if process_id == 0 and not auto:
        _require_free(coordinator)
    _say_of_aborts(late)
    try:
        jax.distributed.initialize(
            address,
            processes,
            process_id,
            initialization_timeout=WAIT,
            heartbeat_timeout_seconds=ABORT,
        )
    except ValueError as error:
        problem = "the environment says too little" if auto else "it can't be used"
        raise InputError(
            f"{coordinator=}: {problem} ({error}); "
            "give every process `coordinator` as HOST:PORT, `processes` and a `process_id` of its own.",
            coordinator=coordinator,
        ) from error
    except RuntimeError as error:  # the type of XLA's own errors
        raise RunError(f"{late} JAX says: {str(error).splitlines()[0]}.") from error
    if distributed.global_state.num_processes > 1:
        problem = "can't be reached, or JAX has failed otherwise, as it says above"
        _say_of_aborts(f"{_sentence(0, problem)} {ADVICE}")
        _keep_output_ours()
        _watcher.start()
        atexit.register(_watch_no_longer)  # before JAX's own, which closes the table


def _require_free(coordinator: str) -> None:
    """Raise InputError if the first process can't listen, since JAX may crash then."""
    _, _, port = coordinator.rpartition(":")
    try:
        socket.create_server(("", int(port))).close()
    except (OSError, ValueError, OverflowError) as error:
        message = f"{coordinator=}: process 0 can't listen there ({error}); choose another port."
        raise InputError(message, coordinator=coordinator) from error


def barrier(where: str, alike: dict[str, Any] | None = None) -> None:
    """Wait until all other processes reach this point.

    Parameters
    ----------
    where : str
        The name of the place, the same in all of them.
    alike : dict or None
        Values that have to be the same in all processes, of types that JSON has.

    Raises
    ------
    InputError
        In every process, when the values, or the versions of JAX, are not the same.
    RunError
        When the first process has gone.
    """
    state = distributed.global_state
    folder = f"minibert/barrier/{next(_barriers)} {where}/"
    values = {"jax": jax.__version__, **(alike or {})}
    try:
        state.client.key_value_set(f"{folder}{state.process_id}", json.dumps(values))
        # Not by a barrier of JAX's: one that is waited for too long fails, and no Ctrl-C gets through to it.
        while len(entries := state.client.key_value_dir_get(folder)) < state.num_processes:
            time.sleep(LOOK)
    except RuntimeError as error:
        problem = f"can not be reached ({error})"
        raise RunError(f"{_sentence(0, problem)} {ADVICE}") from error
    by_rank = {}
    for key, text in entries:
        _, _, rank = key.rpartition("/")
        by_rank[int(rank)] = json.loads(text)
    first = by_rank[0]
    for rank in range(1, state.num_processes):
        other = by_rank[rank]
        names = [name for name in sorted(first | other) if first.get(name) != other.get(name)]
        if names:
            of_first = ", ".join(f"{name}={first.get(name)!r}" for name in names)
            of_other = ", ".join(f"{name}={other.get(name)!r}" for name in names)
            both = f"Process 0 has {of_first}, and process {rank} has {of_other}"
            raise InputError(f"{both}; give all of them the same.")


def leave(error: BaseException) -> None:
    """Tell the other processes why this one stops, and exit with the error's status, without waiting.

    Parameters
    ----------
    error : BaseException
        Its sentence is what the others print. Nothing is done where this process is the only one.
    """
    if not _watcher.ident:  # as where this process is the only one
        return
    _watch_no_longer()
    state = distributed.global_state
    why = str(error).strip() or type(error).__name__
    with suppress(RuntimeError):  # the first has gone, and the table with it
        state.client.key_value_set(f"minibert/left/{state.process_id}", why, allow_overwrite=True)
    codes = (code for kind, code in STATUS.items() if isinstance(error, kind))
    status = next(codes, 1)
    seconds = 2 * BEAT if state.process_id == 0 else 0
    atexit.register(_exit, status, seconds)


def _exit(status: int, seconds: float) -> None:
    """End this process without JAX's exit handler, which waits for the others."""
    time.sleep(seconds)  # in which the others read what is lost with this process
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def _sentence(rank: int, what: str) -> str:
    """Return a sentence that says that this process stops because of another one."""
    state = distributed.global_state
    return f"Process {rank} of {state.num_processes} {what}, so this one, {state.process_id}, stops as well."


def _watch() -> None:
    """End this process, with a sentence, when another process of the training has ended.

    A sum over all devices would wait for the missing ones for ever, and JAX ends that by aborting with the
    stack of its C++. Every process counts in a table that the first one keeps; who stops counting is gone.
    """
    state = distributed.global_state
    client, own_rank = state.client, state.process_id
    seen = {}  # by process: its count, and when that last changed
    for rank in range(state.num_processes):
        if rank != own_rank:
            seen[rank] = ("", time.monotonic())
    for beat in itertools.count():
        try:
            client.key_value_set(f"minibert/beat/{own_rank}", str(beat), allow_overwrite=True)
            table = dict(client.key_value_dir_get("minibert/"))
        except RuntimeError:
            if _over.is_set():
                return
            _give_up(0, "can't be reached", ADVICE)  # it is the first one that keeps the table
        for rank, (count, since) in seen.items():
            why = table.get(f"minibert/left/{rank}")
            if why:
                _give_up(rank, f"has stopped ({why.rstrip('.')})")
            new_count = table.get(f"minibert/beat/{rank}", "")
            if new_count != count:
                seen[rank] = new_count, time.monotonic()
            elif time.monotonic() - since > SILENCE:
                _give_up(rank, f"has not been heard of for {SILENCE} seconds", ADVICE)
        if _over.wait(BEAT):
            return


def _watch_no_longer() -> None:
    """Stop the watcher, and wait briefly until it has ended."""
    _over.set()
    _watcher.join(BEAT)


_watcher = threading.Thread(target=_watch, name="watch", daemon=True)


def _give_up(rank: int, what: str, advice: str = "") -> None:
    """Print why, and end this process at once."""
    emit(f"minibert: {_sentence(rank, what)} {advice}".rstrip(), file=sys.stderr, flush=True)
    os._exit(1)  # the way out through Python waits for the others


def _keep_output_ours() -> None:
    """Send to the error stream what JAX's C++ prints about connections: standard output is for the report."""
    output = sys.stdout
    if output is not sys.__stdout__ or output is None:
        return
    output.flush()
    sys.stdout = os.fdopen(os.dup(1), "w", buffering=1, encoding=output.encoding, errors=output.errors)
    os.dup2(2, 1)


def _say_of_aborts(text: str) -> None:
    """Print this sentence after the C++ stack trace with which JAX aborts a process."""
    _last_words[:] = [text]
    if os.name != "posix":
        return
    set_handler = ctypes.CDLL(None).signal
    set_handler.restype = ctypes.c_void_p
    set_handler.argtypes = (ctypes.c_int, ctypes.c_void_p)
    set_handler(signal.SIGABRT, ctypes.cast(_handler, ctypes.c_void_p))


def _aborted(_: int) -> None:
    """End the process, for C, in whichever thread: Python's own handlers would wait for the main one."""
    os.write(2, f"minibert: {_last_words[0]}\n".encode())
    os._exit(1)


_handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(_aborted)  # kept for as long as C may call it
