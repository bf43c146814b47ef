"""What JAX makes of batches, functions and processes: rows on devices, compiled code, a mesh."""

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
    """Arrays for a backward, and what it has to know when it is compiled."""

    arrays: Any
    how: Any = jax_rows.static()


class JaxRuntime(Runtime):
    """Devices, and what runs on them.

    `devices` and `shard` are as for `JaxOps`; raise InputError when there are not so many devices.
    """

    def __init__(self, devices: int | None, shard: bool, steps: Any) -> None:
        self.steps = steps  # what a training is made of, see `training.step.start`
        there = jax.devices()
        count = len(there) if devices is None else devices
        if not 1 <= count <= len(there):
            kinds = ", ".join(sorted({device.platform for device in there}))
            raise InputError(f"$devices: JAX sees {len(there)} ({kinds}); give as many.", devices=devices)
        if jax.process_count() > 1 and count < len(there):
            message = f"$devices with {jax.process_count()} processes: all {len(there)} of theirs train; "
            raise InputError(message + "leave it out, or let JAX see fewer of them.", devices=devices)
        self.rank, self.world_size = jax.process_index(), jax.process_count()
        self.device = jax.local_devices()[0]  # where what is no training is computed
        self.mesh = Mesh(np.array(there[:count]), (DATA,)) if count > 1 else None  # None: one device trains
        self.shard = shard and self.mesh is not None
        self.layout: Layout | None = None  # how parameters are spread, if they are, once training begins
        self.compiled: dict[Any, Callable[..., Any]] = {}  # functions by what they are compiled for

    @property
    def partition(self) -> P:
        """Return how buffers lie on the mesh: row d of a spread one is device d's, others are everyone's."""
        return P(DATA) if self.shard else P()

    def any_rank(self, flag: bool) -> bool:
        if self.world_size == 1:
            return flag
        with jax_failures.translated():
            return bool(multihost_utils.process_allgather(np.array(flag)).any())

    def barrier(self, where: str, alike: dict[str, Any] | None = None) -> None:
        if self.world_size > 1:
            jax_cluster.barrier(where, alike)

    def prepare(self, batch: Any) -> jax_rows.Rows:
        """Lay a batch out as rows, on the device."""
        return jax.device_put(jax_rows.lay_out(batch, jax_rows.shape_of(batch)), self.device)

    def in_order(self, values: Any, batch: Any, per: str) -> np.ndarray:
        values = np.asarray(values)
        if per == "tokens":
            return values[jax_rows.places(batch, jax_rows.shape_of(batch).columns)]
        count = {"sequences": batch.S, "masked": batch.M, "examples": batch.E}
        return values[: count[per] if per in count else len(batch.label_rows)]

    def to_device(self, tree: Any) -> Any:
        return jax.device_put(tree, self.device)

    def call(self, ops: Any, function: Callable[..., Any], static: tuple[Any, ...], *arrays: Any) -> Any:
        if function not in self.compiled:
            self.compiled[function] = jax.jit(function, static_argnums=tuple(range(1 + len(static))))
        with jax_failures.translated():
            return jax.block_until_ready(self.compiled[function](ops, *static, *arrays))
