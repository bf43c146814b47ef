"""The runtime of JAX: batches as rows on devices, compiled functions, and a mesh of devices."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, PartitionSpec as P

from minibert.base.errors import InputError
from minibert.engines.jax import cluster as jax_cluster, failures as jax_failures, rows as jax_rows
from minibert.engines.jax.fsdp import DATA, Layout
from minibert.engines.runtime import Runtime


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Kept:
    """What a forward pass saves for backward: arrays, and compile-time constants."""

    arrays: Any  # a tree of arrays
    how: Any = jax_rows.static()  # the constants, hashable


class JaxRuntime(Runtime):
    """The devices of a run, its batches on them, and the functions compiled for them.

    Parameters
    ----------
    devices : int or None
        How many devices train; None for all that JAX sees.
    shard : bool
        Whether parameters and moments are spread over them; ignored with one device.
    steps : type
        The class that makes training steps; see `training.step.start`.

    Raises
    ------
    InputError
        When there are fewer devices than that, or when several processes train and not all devices are used.
    """

    def __init__(self, devices: int | None, shard: bool, steps: Any) -> None:
        self.steps = steps
        available = jax.devices()
        most = len(available)
        count = most if devices is None else devices
        if not 1 <= count <= most:
            kinds = ", ".join(sorted({device.platform for device in available}))
            raise InputError(f"{devices=}: JAX sees {most} ({kinds}); give as many.", devices=devices)
        self.rank = jax.process_index()
        self.world_size = jax.process_count()
        if self.world_size > 1 and count < most:
            raise InputError(
                f"{devices=} with {self.world_size} processes: all {most} of theirs train; "
                "leave it out, or let JAX see fewer of them.",
                devices=devices,
            )
        self.device = jax.local_devices()[0]  # for everything except training
        self.mesh = None  # stays None if one device trains
        if count > 1:
            self.mesh = Mesh(np.array(available[:count]), (DATA,))
        self.shard = shard and self.mesh is not None
        self.layout: Layout | None = None  # how parameters are spread, if they are; set when training begins
        self.compiled: dict[Any, Callable[..., Any]] = {}  # compiled functions, by what they compute

    @property
    def partition(self) -> P:
        """Return the placement of buffers: row d of a sharded one is on device d, others are on all."""
        return P(DATA) if self.shard else P()

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
        if self.world_size == 1:
            return flag
        with jax_failures.translated():
            return bool(multihost_utils.process_allgather(np.array(flag)).any())

    def barrier(self, where: str, alike: dict[str, Any] | None = None) -> None:
        """Wait until the other processes reach this point, as `cluster.barrier` does; alone, continue.

        Parameters
        ----------
        where : str
            The name of this point, the same in all processes.
        alike : dict or None
            Values of JSON types that must be the same in all processes.
        """
        if self.world_size > 1:
            jax_cluster.barrier(where, alike)

    def prepare(self, batch: Any) -> jax_rows.Rows:
        """Convert a batch to padded rows on the device.

        Parameters
        ----------
        batch : Batch
            The batch as it was packed.

        Returns
        -------
        Rows
            Its arrays on the device.
        """
        rows = jax_rows.lay_out(batch, jax_rows.shape_of(batch))
        return jax.device_put(rows, self.device)

    def in_order(self, values: Any, batch: Any, per: str) -> np.ndarray:
        """Put results for rows back into the order of the batch as it was packed.

        Parameters
        ----------
        values : array
            A row for each token, sequence or other item, according to `per`, with padding among or after
            them.
        batch : Batch
            The batch as it was packed.
        per : str
            What the rows stand for: "tokens", "sequences", "examples", "masked" (positions) or "labels" (rows
            with a tag).

        Returns
        -------
        np.ndarray
            The same rows in the order of the batch, without padding.
        """
        values = np.asarray(values)
        if per == "tokens":
            columns = jax_rows.shape_of(batch).columns
            return values[jax_rows.places(batch, columns)]
        counts = {"sequences": batch.S, "masked": batch.M, "examples": batch.E}
        count = counts[per] if per in counts else len(batch.label_rows)
        return values[:count]

    def to_device(self, tree: Any) -> Any:
        """Copy parameters, or any tree of arrays, to the device for everything except training.

        Parameters
        ----------
        tree : Any
            Arrays in nested dictionaries and lists.

        Returns
        -------
        Any
            A tree of the same shape.
        """
        return jax.device_put(tree, self.device)

    def call(self, ops: Any, function: Callable[..., Any], static: tuple[Any, ...], *arrays: Any) -> Any:
        """Call a function, compiled at its first call with these values and shapes; wait for the result.

        Parameters
        ----------
        ops : JaxOps
            The engine.
        function : callable
            Called as `function(ops, *static, *arrays)`; pure.
        static : tuple
            Hashable values, for which it is compiled.
        *arrays : Any
            Arrays, or trees of them.

        Returns
        -------
        Any
            The result of the function, on the device.
        """
        if function not in self.compiled:
            arguments = tuple(range(1 + len(static)))
            self.compiled[function] = jax.jit(function, static_argnums=arguments)
        with jax_failures.translated():
            result = self.compiled[function](ops, *static, *arrays)
            return jax.block_until_ready(result)
