"""The devices that JAX computes on: what they are, how much memory they use, and how fast they multiply."""

import time
from typing import Any

import jax
import jax.numpy as jnp

from minibert.base.errors import InputError, RunError

SIDES = (512, 1024, 2048, 4096, 8192)  # rows of the square matrices that are multiplied
CHAIN = 8  # products in one call, each with the result of the one before
LARGE, QUICK_SECONDS = (4096, 8192), 0.05  # for a quick measurement: accelerators are near their peak
REMEDIES = {"gpu": "install jax[cuda13] for one of NVIDIA's", "tpu": "install jax[tpu]"}


def use(device: str | None) -> None:
    """Compute on one kind of device from now on.

    Parameters
    ----------
    device : str or None
        "cpu", "gpu" or "tpu"; None leaves it to JAX.

    Raises
    ------
    InputError
        When there is no such device, or JAX finds nothing to compute on.
    """
    wanted = jax.config.jax_platforms
    if device == "cpu" and wanted != "cpu":
        jax.config.update("jax_platforms", "cpu")  # JAX then does not touch a GPU and its memory
    try:
        present = platform()
    except RunError as error:
        raise InputError(str(error)) from None
    if device in (None, present):
        return
    setting = _setting(wanted)
    advice = "leave it out."
    if device in REMEDIES:
        advice = f"{REMEDIES[device]} where there is one, or leave it out."
    message = f"{device=} is not what JAX computes on here: it sees only {present}{setting}; {advice}"
    raise InputError(message, device=device)


def _setting(wanted: str | None) -> str:
    """Say which platforms JAX was restricted to, as the end of a sentence; "" if it was not."""
    return f" with JAX_PLATFORMS={wanted}" if wanted else ""


def platform() -> str:
    """Return what JAX computes on, "cpu", "gpu" or "tpu"; RunError when it finds nothing."""
    return _found()[0].platform


def devices() -> dict[str, str]:
    """Describe each device that JAX finds: its kind, its memory if known, and its process."""
    return {f"{device.platform} {device.id}": _described(device) for device in _found()}


def _found() -> list[Any]:
    """List the devices of all processes; raise RunError if JAX finds none."""
    try:
        return jax.devices()
    except Exception as error:
        # JAX raises RuntimeError, or AssertionError if JAX_PLATFORMS names a platform that is not there.
        setting = _setting(jax.config.jax_platforms)
        reason = f" ({str(error).splitlines()[0]})" if str(error) else ""
        raise RunError(f"JAX finds no device{setting}{reason}.") from None


def _described(device: Any) -> str:
    """Describe a device in one line."""
    limit = memory(device).get("bytes_limit")
    held = f"{limit / 1e9:.1f} GB for JAX" if limit else "memory unknown"
    return f"{device.device_kind}, {held}, process {device.process_index} of {jax.process_count()}"


def memory(device: Any = None) -> dict[str, int]:
    """Return the statistics of a device's allocator, in bytes.

    Parameters
    ----------
    device : jax.Device or None
        The device; None, the default, for the first one.

    Returns
    -------
    dict of str to int
        `bytes_in_use`, `peak_bytes_in_use`, `bytes_limit` and others; nothing on a CPU.
    """
    return (device or jax.devices()[0]).memory_stats() or {}


def matmul_rate(dtype: str, seconds: float = 0.5, sides: tuple[int, ...] = SIDES) -> float:
    """Measure how fast the first device multiplies square matrices; model FLOP/s utilization refers to that.

    Parameters
    ----------
    dtype : str
        The type of the operands.
    seconds : float, default 0.5
        How long to measure at each size. Once one call takes longer, larger sizes are left out.
    sides : tuple of int
        The numbers of rows to try; `SIDES` by default.

    Returns
    -------
    float
        GFLOP/s at the fastest size, a multiply-add counting as two operations.
    """
    best = 0.0
    for side in sides:
        a, b = _operands(side, dtype)
        _chain(a, b).block_until_ready()  # compiles
        times: list[float] = []
        began = time.perf_counter()
        while not times or time.perf_counter() - began < seconds:
            begin = time.perf_counter()
            _chain(a, b).block_until_ready()
            times.append(time.perf_counter() - begin)
        operations = CHAIN * 2 * side**3
        best = max(best, operations / min(times) / 1e9)
        if times[-1] > seconds:
            break  # larger sizes would take too long
    return best


# -> a b (side,side)
def _operands(side: int, dtype: str) -> tuple[Any, Any]:
    """Draw standard normal matrices, scaled so that products of products keep their size."""
    keys = jax.random.split(jax.random.key(0))
    a, b = (jax.random.normal(key, (side, side), jnp.float32) for key in keys)
    return a.astype(dtype), (b / side**0.5).astype(dtype)


# Each product needs the result of the one before, so that XLA can't leave any out.
_chain = jax.jit(lambda a, b: jax.lax.fori_loop(0, CHAIN, lambda _, x: x @ b, a))
