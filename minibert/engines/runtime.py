"""Runtimes: how an engine runs functions and lays out batches, and the processes that train together.

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
        """Return whether this process is the one that writes."""
        return self.rank == 0

    def any_rank(self, flag: bool) -> bool:
        """Return whether a flag is set in any of the processes, all of which have to ask.

        Parameters
        ----------
        flag : bool
            The flag of this process.

        Returns
        -------
        bool
            The same in all of them.
        """
        return flag

    def barrier(self, where: str, alike: dict[str, Any] | None = None) -> None:
        """Wait until the other processes reach this point.

        Parameters
        ----------
        where : str
            The name of the place, the same in all of them.
        alike : dict or None
            Values that have to be the same in all processes, of types that JSON has. Where they are not, an
            engine of several processes raises InputError.
        """

    def prepare(self, batch: Any) -> Any:
        """Lay a batch out as the engine computes it.

        Parameters
        ----------
        batch : Batch
            As it was packed: flat tokens.

        Returns
        -------
        Any
            What operations take in its place; here the batch itself.
        """
        return batch

    def in_order(self, values: Any, batch: Any, per: str) -> np.ndarray:
        """Put results for a prepared batch back into the order of the original batch.

        Parameters
        ----------
        values : array
            A row for each token, sequence or whatever `per` names, in the engine's layout.
        batch : Batch
            As it was packed, before `prepare`.
        per : str
            What has a row: "tokens", "sequences", "examples", "masked" (positions) or "labels" (rows with a
            tag).

        Returns
        -------
        np.ndarray
            The same rows in the order of the batch, without padding.
        """
        return np.asarray(values)

    def to_device(self, tree: Any) -> Any:
        """Copy parameters, or any tree of arrays, to the device that computes.

        Parameters
        ----------
        tree : Any
            Arrays in nested dictionaries and lists.

        Returns
        -------
        Any
            A tree of the same shape; here the argument itself.
        """
        return tree

    def call(self, ops: Any, function: Callable[..., Any], static: tuple[Any, ...], *arrays: Any) -> Any:
        """Call a function, compiled first where the engine compiles.

        Parameters
        ----------
        ops : Ops
            The engine.
        function : callable
            Called as `function(ops, *static, *arrays)`.
        static : tuple
            Hashable values; an engine that compiles does so for each of them and for all shapes of arrays.
        *arrays : Any
            Arrays, or trees of them.

        Returns
        -------
        Any
            What the function returns.
        """
        return function(ops, *static, *arrays)


HOST = Runtime()


def runtime_of(ops: Any) -> Any:
    """Return the runtime that an engine carries, or the host's.

    Parameters
    ----------
    ops : Ops
        The engine; one with a runtime has it as its attribute `runtime`.

    Returns
    -------
    Runtime
        `HOST` for an engine without one.
    """
    return getattr(ops, "runtime", HOST)
