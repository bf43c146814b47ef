"""What JAX raises while it compiles and computes, as errors of this package."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import jax
from jax.errors import JaxRuntimeError

from minibert.base.errors import OutOfMemory, RunError
from minibert.engines.jax.devices import memory

# "Out of memory while trying to allocate 34359738368 bytes.", on some devices "... allocate 32.00GiB."
WANTED = re.compile(r"allocat\w{,4}\s+([\d.]+)\s*([KMGT]?)(?:iB|B|bytes)")
CODE = re.compile("[A-Z_]+: ")  # with which errors of XLA's begin, those without a class of their own as well
LONGEST = 300  # characters of a message, which may be a page


@contextmanager
def translated() -> Iterator[None]:
    """Raise OutOfMemory in a block where a device has no room, RunError where JAX fails otherwise."""
    try:
        yield
    except (JaxRuntimeError, ValueError) as error:
        if not isinstance(error, JaxRuntimeError) and not CODE.match(str(error)):
            raise
        raise _ours(str(error)) from error


def _ours(message: str) -> Exception:
    """Make the error for a message of JAX's, which begins with a code such as RESOURCE_EXHAUSTED."""
    reason = (message.splitlines() or ["it does not say why"])[0][:LONGEST].rstrip(".")
    if "RESOURCE_EXHAUSTED" in message:
        return _out_of_memory(message, reason)
    if jax.process_count() > 1:
        advice = "the last checkpoint is intact: start them all again with --resume."
        return RunError(f"Another process of this run has ended or can't be reached ({reason}); {advice}")
    return RunError(f"JAX could not compute this: {reason}.")


def _out_of_memory(message: str, reason: str) -> OutOfMemory:
    device = jax.local_devices()[0]
    told = memory(device)
    has = f", with {told['bytes_limit'] / 1e9:.1f} GB for JAX," if "bytes_limit" in told else ""
    found = WANTED.search(message)
    error = OutOfMemory(f"{device.device_kind}{has} has no room: {reason}")
    if found and has:
        wanted = float(found[1]) * 1024 ** " KMGT".index(found[2] or " ")
        error.times = max(1.0, wanted / max(1, told["bytes_limit"] - told["bytes_in_use"]))
    return error
