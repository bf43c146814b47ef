"""Training with many processes, by JAX's own distributed runtime.

Each process has some of the devices and makes its own part of every batch; the first one coordinates the
others and writes files. This file is imported before JAX looks for devices, which it does only once.
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

BEAT, SILENCE = 2, 30  # seconds between heartbeats, and without one until a process counts as gone
ABORT = 100  # seconds until JAX itself ends a process that has lost the others, with an unhelpful message
WAIT = 120  # seconds in which all processes must join
LOOK = 0.05  # seconds between two checks whether all processes have reached a barrier
STATUS = {InputError: 2, KeyboardInterrupt: 130}  # exit status of the command line; 1 after other errors
# Other processes print this as it is; on the command line of this one, `resume` becomes a flag.
ADVICE = (
    "The last checkpoint is intact: "
    "start the processes again, as many as you like, to resume it (with `resume`)."
)
_barriers = itertools.count()
_over = threading.Event()  # set when this process no longer watches the others
_last_words: list[str] = []  # the sentence to print when JAX aborts


def join(coordinator: str, processes: int | None = None, process_id: int | None = None) -> None:
    """Connect to the other processes of a training; see `registry.join`.

    Parameters
    ----------
    coordinator : str
        HOST:PORT where process 0 listens; or "auto" if the environment of a cluster provides everything.
    processes : int or None
        How many processes train together; None if the environment says so.
    process_id : int or None
        The index of this process, from 0; None if the environment says so.

    Raises
    ------
    InputError
        When the address can't be used, or the environment does not say enough.
    RunError
        When the others do not join within `WAIT` seconds.
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
        atexit.register(_watch_no_longer)  # runs before JAX's own handler, which closes the table


def _require_free(coordinator: str) -> None:
    """Raise InputError if the first process can't listen: JAX may crash in that case."""
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
        The name of this point, the same in all processes.
    alike : dict or None
        Values of JSON types that must be the same in all processes.

    Raises
    ------
    InputError
        In every process, when the values, or the versions of JAX, differ.
    RunError
        When the first process is gone.
    """
    state = distributed.global_state
    folder = f"minibert/barrier/{next(_barriers)} {where}/"
    values = {"jax": jax.__version__, **(alike or {})}
    try:
        state.client.key_value_set(f"{folder}{state.process_id}", json.dumps(values))
        # JAX's own barrier is not used: it fails after a timeout, and Ctrl-C does not interrupt it.
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
            difference = f"Process 0 has {of_first}, and process {rank} has {of_other}"
            raise InputError(f"{difference}; give all of them the same.")


def leave(error: BaseException) -> None:
    """Tell the other processes why this one stops, and exit with the error's status, without waiting.

    Parameters
    ----------
    error : BaseException
        The error, whose sentence the others print. If this process is the only one, nothing happens.
    """
    if not _watcher.ident:
        return  # the watcher was never started: this process is the only one
    _watch_no_longer()
    state = distributed.global_state
    why = str(error).strip() or type(error).__name__
    with suppress(RuntimeError):  # the first process is gone, and the table with it
        state.client.key_value_set(f"minibert/left/{state.process_id}", why, allow_overwrite=True)
    codes = (code for kind, code in STATUS.items() if isinstance(error, kind))
    status = next(codes, 1)
    seconds = 2 * BEAT if state.process_id == 0 else 0
    atexit.register(_exit, status, seconds)


def _exit(status: int, seconds: float) -> None:
    """End this process without JAX's exit handler, which waits for the others."""
    time.sleep(seconds)  # lets the others read the table, which disappears with this process
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def _sentence(rank: int, what: str) -> str:
    """Say that this process stops because of another one."""
    state = distributed.global_state
    return f"Process {rank} of {state.num_processes} {what}, so this one, {state.process_id}, stops as well."


def _watch() -> None:
    """End this process, with a sentence, when another process of the training has ended.

    Otherwise a sum over all devices would wait for the missing ones forever, until JAX aborts with a stack
    trace of its C++. Every process increments a count in a table that the first process keeps; a process
    whose count stands still is gone.
    """
    state = distributed.global_state
    client = state.client
    own_rank = state.process_id
    seen = {}  # rank -> the count of that process, and when it last changed
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
            _give_up(0, "can't be reached", ADVICE)  # the first process keeps the table
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
    os._exit(1)  # a normal exit would wait for the others


def _keep_output_ours() -> None:
    """Send what JAX's C++ prints about connections to the error stream, to keep it out of the report."""
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
    """End the process when C calls this, in any thread: Python's handlers would wait for the main thread."""
    os.write(2, f"minibert: {_last_words[0]}\n".encode())
    os._exit(1)


# A global, so that it lives as long as C may call it.
_handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(_aborted)
