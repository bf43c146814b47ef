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

from minibert.base.errors import Arguments, InputError, RunError
from minibert.base.terminal import emit

BEAT, SILENCE = 2, 30  # seconds between signs of life, and without one until a process counts as gone
ABORT = 100  # seconds until JAX itself ends a process that lost the others, without a word of use
WAIT = 120  # seconds in which all processes have to come
LOOK = 0.05  # seconds between two looks whether all have met
STATUS = {InputError: 2, KeyboardInterrupt: 130}  # with which the command line exits; 1 after other errors
ADVICE = "The last checkpoint is intact: start the processes again, as many as you like, with --resume."
_barriers = itertools.count()
_over = threading.Event()  # set when this process watches the others no longer
_last_words: list[str] = []  # what to say when JAX aborts


def join(coordinator: str, processes: int | None = None, process_id: int | None = None) -> None:
    """Wait for the other processes of a training, and be one of them from here on; see `registry.join`."""
    auto = coordinator == "auto"
    place, named = (None, "the coordinator") if auto else (coordinator, coordinator)
    late = f"Not all of the processes came to {named} within {WAIT} seconds; start every one, and see that "
    late += "they reach that address."
    if process_id == 0 and not auto:
        _require_free(coordinator)
    _say_of_aborts(late)
    try:
        jax.distributed.initialize(
            place, processes, process_id, initialization_timeout=WAIT, heartbeat_timeout_seconds=ABORT
        )
    except ValueError as error:
        what = "the environment says too little" if auto else "it can't be used"
        give = "give --coordinator HOST:PORT --processes N --process-id I to every process."
        raise InputError(f"$coordinator: {what} ({error}); {give}", coordinator=coordinator) from error
    except RuntimeError as error:  # what XLA's own errors are
        raise RunError(f"{late} JAX says: {str(error).splitlines()[0]}.") from error
    if distributed.global_state.num_processes > 1:
        what = "can't be reached, or JAX has failed otherwise, as it says above"
        _say_of_aborts(f"{_sentence(0, what)} {ADVICE}")
        _keep_output_ours()
        _watcher.start()
        atexit.register(_watch_no_longer)  # before JAX's own, which closes the table


def _require_free(coordinator: str) -> None:
    """Raise InputError where the first process can't listen: JAX has died of that at times."""
    try:
        socket.create_server(("", int(coordinator.rpartition(":")[2]))).close()
    except (OSError, ValueError, OverflowError) as error:
        message = f"$coordinator: process 0 can't listen there ({error}); choose another port."
        raise InputError(message, coordinator=coordinator) from error


def barrier(where: str, alike: dict[str, Any] | None = None) -> None:
    """Wait for the other processes, which come here as well; RunError where the first one has gone.

    Values of `alike`, for JSON, have to be the same for all: InputError in every process where they are not.
    """
    state = distributed.global_state
    place, own = f"minibert/barrier/{next(_barriers)} {where}/", {"jax": jax.__version__, **(alike or {})}
    try:
        state.client.key_value_set(f"{place}{state.process_id}", json.dumps(own))
        # Not by a barrier of JAX's: one that is waited for too long fails, and no Ctrl-C gets through to it.
        while len(found := state.client.key_value_dir_get(place)) < state.num_processes:
            time.sleep(LOOK)
    except RuntimeError as error:
        raise RunError(f"{_sentence(0, f'can not be reached ({error})')} {ADVICE}") from error
    said = {int(key.rpartition("/")[2]): json.loads(text) for key, text in found}
    for one in range(1, state.num_processes):
        names = [name for name in sorted(said[0] | said[one]) if said[0].get(name) != said[one].get(name)]
        if names:
            first, other = (Arguments({name: said[rank].get(name) for name in names}) for rank in (0, one))
            message = f"Process 0 has $first, and process {one} $other; give all of them the same."
            raise InputError(message, first=first, other=other)


def leave(error: BaseException) -> None:
    """Tell the other processes why this one stops; it exits by the error's status, and waits for none."""
    if not _watcher.ident:  # as where this process is the only one
        return
    _watch_no_longer()
    state, why = distributed.global_state, str(error).strip() or type(error).__name__
    with suppress(RuntimeError):  # the first has gone, and the table with it
        state.client.key_value_set(f"minibert/left/{state.process_id}", why, allow_overwrite=True)
    status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 1)
    atexit.register(_exit, status, 2 * BEAT if state.process_id == 0 else 0)


def _exit(status: int, seconds: float) -> None:
    time.sleep(seconds)  # in which the others read what is lost with this process
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def _sentence(one: int, what: str) -> str:
    own, count = distributed.global_state.process_id, distributed.global_state.num_processes
    return f"Process {one} of {count} {what}, so this one, {own}, stops as well."


def _watch() -> None:
    """End this process, with a sentence, when another one of the training has gone.

    A sum over all devices would wait for the missing ones for ever, and JAX ends that by aborting with the
    stack of its C++. Every process counts in a table that the first one keeps; who stops counting is gone.
    """
    client, own = distributed.global_state.client, distributed.global_state.process_id
    others = (one for one in range(distributed.global_state.num_processes) if one != own)
    seen = {one: ("", time.monotonic()) for one in others}
    for beat in itertools.count():
        try:
            client.key_value_set(f"minibert/beat/{own}", str(beat), allow_overwrite=True)
            found = dict(client.key_value_dir_get("minibert/"))
        except RuntimeError:
            if _over.is_set():
                return
            _give_up(0, "can't be reached", ADVICE)  # it is the first one that keeps the table
        for one, (count, since) in seen.items():
            if why := found.get(f"minibert/left/{one}"):
                _give_up(one, f"has stopped ({why.rstrip('.')})")
            if (now := found.get(f"minibert/beat/{one}", "")) != count:
                seen[one] = now, time.monotonic()
            elif time.monotonic() - since > SILENCE:
                _give_up(one, f"has not been heard of for {SILENCE} seconds", ADVICE)
        if _over.wait(BEAT):
            return


def _watch_no_longer() -> None:
    _over.set()
    _watcher.join(BEAT)


_watcher = threading.Thread(target=_watch, name="watch", daemon=True)


def _give_up(one: int, what: str, advice: str = "") -> None:
    emit(f"minibert: {_sentence(one, what)} {advice}".rstrip(), file=sys.stderr, flush=True)
    os._exit(1)  # the way out through Python waits for the others


def _keep_output_ours() -> None:
    """Send to the error stream what JAX's C++ prints about connections: standard output is for the report."""
    if (own := sys.stdout) is not sys.__stdout__ or own is None:
        return
    own.flush()
    sys.stdout = os.fdopen(os.dup(1), "w", buffering=1, encoding=own.encoding, errors=own.errors)
    os.dup2(2, 1)


def _say_of_aborts(text: str) -> None:
    """Print this sentence after the C++ stack trace with which JAX aborts a process."""
    _last_words[:] = [text]
    if os.name != "posix":
        return
    library = ctypes.CDLL(None)
    library.signal.restype, library.signal.argtypes = ctypes.c_void_p, (ctypes.c_int, ctypes.c_void_p)
    library.signal(signal.SIGABRT, ctypes.cast(_handler, ctypes.c_void_p))


def _aborted(_: int) -> None:
    """End the process, for C, in whichever thread: Python's own handlers would wait for the main one."""
    os.write(2, f"minibert: {_last_words[0]}\n".encode())
    os._exit(1)


_handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(_aborted)  # kept for as long as C may call it
