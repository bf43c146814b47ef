"""The JAX engine's attention alone: its kernels, and the fused one cut into other blocks."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from minibert.base.machine import cores
from minibert.engines.jax import attention, flash
from minibert.engines.jax.flash import Blocks, Plan
from peers.children import seconds_of

CHAIN = 8  # calls in one, each of what the one before gave: to begin one takes longer than some last
# queries, keys; each with so many warps and stages.
SWEPT = {
    "forward": ([(64, 64), (64, 128), (128, 64), (128, 128), (128, 32), (64, 32)], (4, 8), (2, 3)),
    "backward": ([(16, 128), (32, 64), (32, 128), (64, 64), (64, 128), (64, 32), (128, 64)], (4, 8), (1, 2)),
}


class Kernels:
    """Every kernel for one case at a time, compiled for the first device."""

    def __init__(self, threads: int) -> None:
        self._device = jax.devices()[0]

    def device(self) -> str:
        return f"{self._device.device_kind}, jax {jax.__version__}"

    def prepare(self, dtype: str, given: np.ndarray, keys: np.ndarray, rate: float, sweep: bool) -> list[str]:
        """Compile what there is for the case; the names of it."""
        R, n, _, D = given.shape[1:]
        self._given = [jnp.asarray(one, dtype) for one in given]
        self._keys = jnp.asarray(keys) if rate else None
        self._lengths = jnp.full(R, n, jnp.int32)
        interpret = self._device.platform == "cpu"
        plans = {
            "plain": Plan(False, rate, "plain"),
            "pallas": Plan(False, rate, "pallas", interpret),
        }
        if sweep:
            plans |= self._cuts(plans["pallas"], dtype, D)
        with ThreadPoolExecutor(cores()) as pool:
            made = list(pool.map(self._compiled, plans.values()))
        self._made = dict(zip(plans, made, strict=True))
        return list(self._made)

    def _cuts(self, plan: Plan, dtype: str, D: int) -> dict[str, Plan]:
        found = {}
        known = dict(zip(SWEPT, flash.cuts(dtype, D), strict=True))
        for way, (blocks, warps, stages) in SWEPT.items():
            for (queries, keys), w, s in product(blocks, warps, stages):
                cut = Blocks(queries, keys, w, s)
                if cut != known[way]:
                    name = f"pallas {way} {queries}x{keys}, {w} warps, {s} stages"
                    found[name] = plan._replace(**{f"{way}_blocks": cut})
        return found

    def _compiled(self, plan: Plan) -> Any:
        """Forward and backward, and chains of them."""

        def forwards(q: Any, *rest: Any) -> Any:
            for _ in range(CHAIN):
                q, _ = attention.forward(plan, q, *rest)
            return q

        def backwards(dy: Any, saved: Any) -> Any:
            for _ in range(CHAIN):  # all three are wanted
                dq, dk, dv = attention.backward(plan, dy, saved)
                dy = dq + dk + dv
            return dy

        try:
            q, k, v, dy = self._given
            forward = jax.jit(partial(attention.forward, plan))
            given = q, k, v, self._lengths, self._keys
            _, saved = jax.eval_shape(forward, *given)
            backward = jax.jit(partial(attention.backward, plan))
            made = [forward.lower(*given), backward.lower(dy, saved)]
            made += [jax.jit(forwards).lower(*given), jax.jit(backwards).lower(dy, saved)]
            return [one.compile() for one in made]
        except Exception as error:
            return f"{type(error).__name__}: {str(error)[:300]}"

    def results(self, name: str, rows: int) -> list[np.ndarray] | str:
        """y dq dk dv of the first rows, or why there is nothing."""
        if isinstance(self._made[name], str):
            return self._made[name]
        try:
            q, k, v, dy = self._given
            forward, backward, *_ = self._made[name]
            y, saved = forward(q, k, v, self._lengths, self._keys)
            return [np.asarray(one[:rows], np.float64) for one in (y, *backward(dy, saved))]
        except Exception as error:
            return f"{type(error).__name__}: {str(error)[:300]}"

    def times(self, name: str) -> dict[str, float]:
        """Seconds of a call in a chain, which share what does not change; of a cut, where it differs."""
        q, k, v, dy = self._given
        forward, _, forwards, backwards = self._made[name]
        given = q, k, v, self._lengths, self._keys
        _, saved = forward(*given)
        calls = {"forward": partial(forwards, *given), "backward": partial(backwards, dy, saved)}
        only = next((way for way in SWEPT if way in name), None)
        wait = jax.block_until_ready
        return {way: seconds_of(call, wait) / CHAIN for way, call in calls.items() if only in (None, way)}
