"""The devices that JAX computes on: what they are, what they have in use, and how fast they multiply."""

import time
from typing import Any

import jax
import jax.numpy as jnp

from minibert.base.errors import InputError, RunError

SIDES = (512, 1024, 2048, 4096, 8192)  # of the matrices that are multiplied
CHAIN = 8  # products in one call, each of what the one before gave
LARGE, QUICK_SECONDS = (4096, 8192), 0.05  # at which accelerators are near their best, and soon done


def use(device: str | None) -> None:
    """Compute on a "cpu", "gpu" or "tpu" from now on, or for None on what JAX chooses.

    Raise InputError when there is none of the kind, or JAX finds nothing to compute on.
    """
    wanted = jax.config.jax_platforms
    if device == "cpu" != wanted:
        jax.config.update("jax_platforms", "cpu")  # which leaves a GPU and its memory alone
    try:
        found = platform()
    except RunError as error:
        raise InputError(str(error)) from None
    if device not in (None, found):
        told = f" with JAX_PLATFORMS={wanted}" if wanted else ""
        remedy = {"gpu": "install jax[cuda13] for one of NVIDIA's", "tpu": "install jax[tpu]"}.get(device)
        advice = f"{remedy} where there is one, or leave it out." if remedy else "leave it out."
        what = f"$device is not what JAX computes on here: it sees only {found}{told}"
        raise InputError(f"{what}; {advice}", device=device)


def platform() -> str:
    """Return what JAX computes on, "cpu", "gpu" or "tpu"; RunError when it finds nothing."""
    return _found()[0].platform


def devices() -> dict[str, str]:
    """Describe each device that JAX finds: its kind, its memory where it tells, and the process it is of."""
    return {f"{one.platform} {one.id}": _described(one) for one in _found()}


def _found() -> list[Any]:
    try:
        return jax.devices()
    except Exception as error:  # RuntimeError; AssertionError where JAX_PLATFORMS names what is not there
        wanted = jax.config.jax_platforms
        told = f" with JAX_PLATFORMS={wanted}" if wanted else ""
        reason = f" ({str(error).splitlines()[0]})" if str(error) else ""
        raise RunError(f"JAX finds no device{told}{reason}.") from None


def _described(device: Any) -> str:
    limit = memory(device).get("bytes_limit")
    held = f"{limit / 1e9:.1f} GB for JAX" if limit else "memory unknown"
    return f"{device.device_kind}, {held}, process {device.process_index} of {jax.process_count()}"


def memory(device: Any = None) -> dict[str, int]:
    """Return what a device's allocator counts: `peak_bytes_in_use`, `bytes_limit`; nothing on a CPU."""
    return (device or jax.devices()[0]).memory_stats() or {}


def matmul_rate(dtype: str, seconds: float = 0.5, sides: tuple[int, ...] = SIDES) -> float:
    """Measure how fast the first device multiplies square matrices, in GFLOP/s: an MFU is a share of that."""
    best = 0.0
    for side in sides:
        a, b = _operands(side, dtype)
        _chain(a, b).block_until_ready()  # which compiles
        times: list[float] = []
        began = time.perf_counter()
        while not times or time.perf_counter() - began < seconds:
            begin = time.perf_counter()
            _chain(a, b).block_until_ready()
            times.append(time.perf_counter() - begin)
        best = max(best, CHAIN * 2 * side**3 / min(times) / 1e9)
        if times[-1] > seconds:  # then no larger ones are tried
            break
    return best


# -> a b (side,side)
def _operands(side: int, dtype: str) -> tuple[Any, Any]:
    """Draw standard normal matrices, scaled so that products of products keep their size."""
    keys = jax.random.split(jax.random.key(0))
    a, b = (jax.random.normal(key, (side, side), jnp.float32) for key in keys)
    return a.astype(dtype), (b / side**0.5).astype(dtype)


# A product needs the one before, so none can be left out.
_chain = jax.jit(lambda a, b: jax.lax.fori_loop(0, CHAIN, lambda _, x: x @ b, a))
