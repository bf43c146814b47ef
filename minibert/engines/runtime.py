"""How functions are run and batches come in, and the processes that train together.

On a host there is next to nothing to it: functions are called, batches are what they are, and one process is
alone. An engine that compiles, that wants other shapes, or that spreads a batch over many devices carries a
`runtime` of its own (`engines/jax/runtime.py`).
"""

from collections.abc import Callable
from typing import Any

import numpy as np


class Runtime:
    """A process alone, on arrays in its memory."""

    rank = 0  # number of this process, from 0
    world_size = 1  # how many processes train together

    @property
    def is_main_process(self) -> bool:
        """Whether this process is the one that writes."""
        return self.rank == 0

    def any_rank(self, flag: bool) -> bool:
        """Tell whether the flag is set in any of the processes."""
        return flag

    def barrier(self, where: str, alike: dict[str, Any] | None = None) -> None:
        """Wait for the other processes to come here; raise InputError where they do not say the same."""

    def prepare(self, batch: Any) -> Any:
        """Lay a batch out as the engine computes it."""
        return batch

    def in_order(self, values: Any, batch: Any, per: str) -> np.ndarray:
        """Put what was computed from a prepared batch into the order of the batch as it was before.

        `per` says what has a row: "tokens", "sequences", "examples", "masked" (positions) or "labels" (rows
        with a tag).
        """
        return np.asarray(values)

    def to_device(self, tree: Any) -> Any:
        """Copy parameters, or any tree of arrays, to where they are computed with."""
        return tree

    def call(self, ops: Any, function: Callable[..., Any], static: tuple[Any, ...], *arrays: Any) -> Any:
        """Return `function(ops, *static, *arrays)`, compiled for each `static` and all shapes if at all."""
        return function(ops, *static, *arrays)


HOST = Runtime()


def runtime_of(ops: Any) -> Any:
    """Return the runtime that an engine carries, or the host's."""
    return getattr(ops, "runtime", HOST)
