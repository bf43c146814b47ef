"""Translate what JAX raises while it compiles and computes into errors of this package."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import jax
from jax.errors import JaxRuntimeError

from minibert.base.errors import OutOfMemory, RunError
from minibert.engines.jax.cluster import ADVICE
from minibert.engines.jax.devices import memory

# "Out of memory while trying to allocate 34359738368 bytes.", on some devices "... allocate 32.00GiB."
WANTED = re.compile(r"allocat\w{,4}\s+([\d.]+)\s*([KMGT]?)(?:iB|B|bytes)")
CODE = re.compile("[A-Z_]+: ")  # the beginning of errors from XLA, some of which are plain ValueErrors
LONGEST = 300  # characters of JAX's message that are shown: it may be a page long


@contextmanager
def translated() -> Iterator[None]:
    """Raise errors of this package in place of JAX's in a block.

    Yields
    ------
    None
        Control to the block.

    Raises
    ------
    OutOfMemory
        When a device runs out of memory.
    RunError
        When JAX fails otherwise: it can't compute this, or another process has ended.
    """
    try:
        yield
    except (JaxRuntimeError, ValueError) as error:
        if not isinstance(error, JaxRuntimeError) and not CODE.match(str(error)):
            raise
        raise _ours(str(error)) from error


def _ours(message: str) -> Exception:
    """Make the error for a message from JAX, which begins with a code such as RESOURCE_EXHAUSTED."""
    lines = message.splitlines() or ["it does not say why"]
    reason = lines[0][:LONGEST].rstrip(".")
    if "RESOURCE_EXHAUSTED" in message:
        return _out_of_memory(message, reason)
    if jax.process_count() > 1:
        return RunError(f"Another process of this run has ended or can't be reached ({reason}). {ADVICE}")
    return RunError(f"JAX could not compute this: {reason}.")


def _out_of_memory(message: str, reason: str) -> OutOfMemory:
    """Make the error for a device out of memory; if known, it says how many times too much was needed."""
    device = jax.local_devices()[0]
    usage = memory(device)
    if "bytes_limit" not in usage:
        return OutOfMemory(f"{device.device_kind} has no room: {reason}")
    limit = usage["bytes_limit"]
    error = OutOfMemory(f"{device.device_kind}, with {limit / 1e9:.1f} GB for JAX, has no room: {reason}")
    request = WANTED.search(message)
    if request:
        power = " KMGT".index(request[2] or " ")
        wanted = float(request[1]) * 1024**power
        free = max(1, limit - usage["bytes_in_use"])
        error.times = max(1.0, wanted / free)
    return error
