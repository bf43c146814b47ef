"""Runtimes: how an engine runs functions and lays out batches, and the processes that train together.

On a host this is trivial: functions are called directly, batches keep their layout, and there is one process.
An engine that compiles, needs other shapes, or spreads a batch over many devices has its own `runtime`
(`engines/jax/runtime.py`).
"""

from collections.abc import Callable
from typing import Any

import numpy as np


class Runtime:
    """A single process that computes on arrays in its memory."""

    rank = 0  # the index of this process, from 0
    world_size = 1  # how many processes train together

    @property
    def is_main_process(self) -> bool:
        """Return whether this is the process that writes files."""
        return self.rank == 0

    def any_rank(self, flag: bool) -> bool:
        """Return whether a flag is set in any of the processes, all of which must call this.

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
            The name of this point, the same in all processes.
        alike : dict or None
            Values of JSON types that must be the same in all processes. If they are not, an engine with
            several processes raises InputError.
        """

    def prepare(self, batch: Any) -> Any:
        """Convert a batch to the layout in which the engine computes.

        Parameters
        ----------
        batch : Batch
            The batch as it was packed, with flat tokens.

        Returns
        -------
        Any
            The batch that operations take; here the argument itself.
        """
        return batch

    def in_order(self, values: Any, batch: Any, per: str) -> np.ndarray:
        """Put results for a prepared batch back into the order of the original batch.

        Parameters
        ----------
        values : array
            A row for each token, sequence or other item, according to `per`, in the engine's layout.
        batch : Batch
            The batch as it was packed, before `prepare`.
        per : str
            What the rows stand for: "tokens", "sequences", "examples", "masked" (positions) or "labels" (rows
            with a tag).

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
        """Call a function, which an engine that compiles compiles first.

        Parameters
        ----------
        ops : Ops
            The engine.
        function : callable
            Called as `function(ops, *static, *arrays)`.
        static : tuple
            Hashable values; an engine that compiles does so for each combination of them and of array shapes.
        *arrays : Any
            Arrays, or trees of them.

        Returns
        -------
        Any
            The result of the function.
        """
        return function(ops, *static, *arrays)


HOST = Runtime()


def runtime_of(ops: Any) -> Any:
    """Return the runtime of an engine, or the host's.

    Parameters
    ----------
    ops : Ops
        The engine, which may have a runtime as its attribute `runtime`.

    Returns
    -------
    Runtime
        That attribute; `HOST` for an engine without one.
    """
    return getattr(ops, "runtime", HOST)
