"""How the JAX engine trains: one compiled step, on one device, on many, or on those of many machines.

Data parallel: every device has a part of the batch, all have the same parameters, and one sum over the
devices makes the gradients those of the whole batch. With `shard`, parameters and moments are spread as well
(Rajbhandari et al. 2020, "ZeRO", stage 3): a device keeps its piece of every layer, and a layer is brought
together when it is computed, and again when going back. Nothing that is learnt depends on how many there are.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from minibert.backends import jax_cluster, jax_errors, jax_rows
from minibert.backends.jax_shards import Layout, Shard
from minibert.batch import BatchPart
from minibert.errors import InputError
from minibert.ops import Ops
from minibert.ops.hooks import Figures

DATA = "data"  # the one axis of the mesh


@partial(jax.tree_util.register_dataclass, data_fields=["arrays"], meta_fields=["how"])
@dataclass(frozen=True)
class Kept:
    """Arrays for a backward, and what it has to know when it is compiled."""

    arrays: Any
    how: Any


class JaxTraining(Ops):
    """The hooks around training.

    Parameters
    ----------
    devices : how many devices of all processes train; all there are when left out.
    shard : spread parameters and moments over them.
    recompute : keep of each layer only what enters it, and compute the rest again when going back.

    Raises
    ------
    InputError
        When there are not so many devices.
    """

    def __init__(self, devices: int | None, shard: bool, recompute: bool) -> None:
        super().__init__(jnp)
        there = jax.devices()
        count = len(there) if devices is None else devices
        if not 1 <= count <= len(there):
            kinds = ", ".join(sorted({device.platform for device in there}))
            raise InputError(f"devices={devices} is not possible: JAX sees {len(there)} ({kinds}).")
        if jax.process_count() > 1 and count < len(there):
            raise InputError(
                f"devices={devices} with {jax.process_count()} processes: all {len(there)} of theirs train; "
                "leave it out, or let JAX see fewer of them."
            )
        self._device = jax.local_devices()[0]
        self._mesh = Mesh(np.array(there[:count]), (DATA,)) if count > 1 else None
        self._layout: Layout | None = None
        self._shard = shard and self._mesh is not None
        # Of a spread layer only what entered it is kept: with the rest its weights would be kept, whole.
        self._recompute = recompute or self._shard
        self._compiled: dict[Any, Callable] = {}
        self._known: set[tuple] = set()  # what has been compiled

    @property
    def leads(self) -> bool:
        """Whether this process is the first, the one that writes."""
        return jax.process_index() == 0

    @property
    def part(self) -> tuple[int, int]:
        """The number of this process, from 0, and how many there are."""
        return jax.process_index(), jax.process_count()

    def agreed(self, wish: bool) -> bool:
        """Whether any of the processes wishes so."""
        if self.part[1] == 1:
            return wish
        with jax_errors.translated():
            return bool(multihost_utils.process_allgather(np.array(wish)).any())

    def meet(self, where: str, alike: dict[str, Any] | None = None) -> None:
        """Wait for the other processes; complain where they do not say the same."""
        if self.part[1] > 1:
            jax_cluster.meet(where, alike)

    # Batches.

    def parts(self, batch: Any, count: int) -> Any:
        """Micro-batches in one shape, those of a device one upon another, on their devices."""
        here = 1 if self._mesh is None else len(self._mesh.local_devices)
        split = list(batch.split(min(here * count, batch.E)))
        shape = jax_rows.common([jax_rows.shape_of(part) for part in split])
        if isinstance(batch, BatchPart):  # other processes may have a sequence more: all make as many parts
            shape = jax_rows.room(batch, here * count)
            split += [batch.take(0, 0)] * (here * count - len(split))
        split += [batch.take(0, 0)] * (-len(split) % here)
        laid_out = [jax_rows.lay_out(part, shape, batch.asks_next) for part in split]
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *laid_out)
        if self._mesh is None:
            return jax.device_put(stacked, self._device)
        spread = NamedSharding(self._mesh, P(DATA))
        return jax.tree.map(
            lambda leaf: jax.make_array_from_process_local_data(
                spread, leaf.reshape(here, len(leaf) // here, *leaf.shape[1:])
            ),
            stacked,
        )

    # Parameters and moments.

    def enter(self, names: Any, buffers: tuple) -> tuple:
        """Copies on the devices."""
        if self._mesh is None:
            return tuple(jnp.array(buffer, device=self._device) for buffer in buffers)
        if self._shard:
            self._layout = Layout.of(names, self._mesh.size)
            buffers = tuple(self._layout.spread(buffer) for buffer in buffers)
        sharding = NamedSharding(self._mesh, self._kept)
        return tuple(
            jax.make_array_from_callback(buffer.shape, sharding, lambda piece, buffer=buffer: buffer[piece])
            for buffer in buffers
        )

    def leave(self, names: Any, buffers: tuple) -> tuple:
        """Copies in host memory; what the devices have will be overwritten."""
        if self._shard:
            with jax_errors.translated():
                whole = [multihost_utils.process_allgather(buffer, tiled=True) for buffer in buffers]
            return tuple(self._layout.joined(np.asarray(buffer)) for buffer in whole)
        return tuple(np.array(buffer) for buffer in buffers)

    @property
    def _kept(self) -> P:
        """How buffers lie on the mesh: row d of a spread one is the device's, others are everyone's."""
        return P(DATA) if self._shard else P()

    # The step.

    def train(self, function: Callable, static: tuple, buffers: tuple, *arrays: Any) -> tuple[tuple, Figures]:
        """The function, compiled, its buffers donated."""
        key = (function, *static)
        if key not in self._compiled:
            step = partial(function, self, *static)
            if self._mesh is not None:
                step = jax.shard_map(
                    partial(self._on_each, step),
                    mesh=self._mesh,
                    in_specs=(self._kept, P(DATA), *(P() for _ in arrays[1:])),
                    out_specs=(self._kept, P()),
                    check_vma=False,
                )
            self._compiled[key] = jax.jit(step, donate_argnums=0)
        self._known.add(_sight(function, static, arrays[0]))
        with jax_errors.translated():
            buffers, figures = self._compiled[key](buffers, *arrays)
            # What fails, fails here; to copy from what failed, without this, hangs or ends the process.
            return buffers, jax.device_get(jax.block_until_ready(figures))

    def compiles(self, function: Callable, static: tuple, parts: Any) -> bool:
        """Whether `train` has not been called with these shapes yet."""
        return _sight(function, static, parts) not in self._known

    def _on_each(self, step: Callable, buffers: tuple, parts: Any, *arrays: Any) -> tuple[tuple, Figures]:
        """What one device does: the step, on its own part of the batch."""
        parts = jax.tree.map(lambda leaf: leaf[0], parts)
        if jax.process_count() > 1:
            parts = self._weighted(parts)
        if self._shard:
            buffers = tuple(buffer[0] for buffer in buffers)
        buffers, figures = step(buffers, parts, *arrays)
        if self._shard:
            buffers = tuple(buffer[None] for buffer in buffers)
        tokens = jax.lax.psum(parts.lengths.sum(), DATA)
        return buffers, {**figures, "tokens": tokens}

    def _weighted(self, parts: jax_rows.Rows) -> jax_rows.Rows:
        """The batch of a process with weights that count the batches of all."""
        changed = {}
        for name in ("masked_weights", "next_sentence_weights"):
            known = getattr(parts, name) > 0
            changed[name] = known / jnp.maximum(1, jax.lax.psum(known.sum(), DATA))
        return replace(parts, **changed)

    def tree(self, names: Any, flat: Any) -> dict:
        """Slices of a buffer; of a spread one the layers as their shards."""
        if self._layout is None:
            return names.like(flat).tree
        if isinstance(flat, Kept):
            return self._layout.zeros(flat.arrays)
        return self._layout.tree(flat, DATA)

    def accumulators(self, names: Any, flat: Any) -> Any:
        """Zeros."""
        zeros = jnp.zeros_like(flat)
        return zeros if self._layout is None else Kept(zeros, "gradients")

    def collected(self, names: Any, flat: Any, tree: dict) -> Any:
        """The leaves of a tree in one buffer; of a spread one, summed over the devices and added to it."""
        if self._layout is None:
            return jnp.concatenate([leaf.reshape(-1) for leaf in names.leaves(tree)])
        return Kept(flat.arrays + self._layout.collected(tree, DATA), flat.how)

    def fold(self, function: Callable, carry: Any, items: Iterable) -> tuple[Any, Figures]:
        """`carry, figures = function(carry, item)` for one item after another, the figures added up."""
        if jax.tree.leaves(items)[0].shape[0] == 1:
            return function(carry, jax.tree.map(lambda leaf: leaf[0], items))
        carry, figures = jax.lax.scan(function, carry, items)
        return carry, jax.tree.map(lambda values: values.sum(0), figures)

    def summed(self, grads: Any, figures: Figures) -> tuple[Any, Figures]:
        """The gradients and figures of all devices together."""
        if self._mesh is None:
            return grads, figures
        if isinstance(grads, Kept):
            return grads.arrays, jax.lax.psum(figures, DATA)
        return jax.lax.psum((grads, figures), DATA)

    def only_if_finite(self, numbers: Iterable, change: Callable, unchanged: Any) -> Any:
        """What `change()` gives. Where a number is not finite training ends, and nothing is fetched any more;
        to keep what was there beside what is new would cost copies of it all."""
        return change()

    def spliced(self, whole: Any, begin: int, end: Any) -> Any:
        """A buffer with `end` from `begin` on. Options refuse frozen layers where they would be spread."""
        return whole.at[begin:].set(end)

    def layers(self, block: Callable, params: list, x: Any) -> tuple[Any, Any]:
        """x through all layers; with `recompute`, what enters each is all that is kept."""
        if not self._recompute:
            return super().layers(block, params, x)
        entering = []
        for number, one in enumerate(params):
            entering.append(x)
            x, _ = block(x, self._whole(one), number)
        return x, tuple(Kept(one, (block, number)) for number, one in enumerate(entering))

    def layers_backward(
        self,
        block_backward: Callable,
        dy: Any,
        saved: Any,
        params: list[dict],
        grads: list[dict],
        first: int = 0,
    ) -> tuple[Any, list[dict]]:
        """dy back through layers, down to `first`."""
        if not self._recompute:
            return super().layers_backward(block_backward, dy, saved, params, grads, first)

        def again(dy: Any, kept: Kept, one: Any, one_grads: Any) -> tuple[Any, Any]:
            block, number = kept.how
            # The barrier keeps XLA from seeing that this was computed before, and from keeping it after all.
            x, dy, one = jax.lax.optimization_barrier((kept.arrays, dy, one))
            one = self._whole(one)
            _, saved = block(x, one, number)
            dx, one_grads = block_backward(dy, saved, one, self._whole(one_grads))
            return dx, one_grads if self._layout is None else self._layout.scattered(number, one_grads, DATA)

        return super().layers_backward(again, dy, saved, params, grads, first)

    def _whole(self, one: Any) -> Any:
        """A layer's tree, brought together where it is spread."""
        return one.whole(DATA) if isinstance(one, Shard) else one


def _sight(function: Callable, static: tuple, parts: Any) -> tuple:
    """What JAX compiles a step for."""
    shapes = tuple(np.shape(leaf) for leaf in jax.tree.leaves(parts))
    return function, static, jax.tree.structure(parts), shapes
