"""How the JAX engine trains: one compiled step, on one device, on many, or on those of many machines.

The twin of `core/step.py`. Data parallel: every device has a part of the batch, all have the same
parameters, and one sum over the devices makes the gradients those of the whole batch. With `shard`,
parameters and moments are spread as well (Rajbhandari et al. 2020, "ZeRO", stage 3): a device keeps its piece
of every layer, and a layer is brought together when it is computed, and again when going back. Nothing that
is learnt depends on how many there are.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from itertools import accumulate
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec as P

from minibert.core.arrays import Params
from minibert.core.params import Entry, leaf_of, nest, unflatten
from minibert.engines.jax import failures as jax_failures, rows as jax_rows
from minibert.engines.jax.fsdp import DATA, Layout, Shard
from minibert.engines.jax.runtime import JaxRuntime, Kept
from minibert.model.batch import BatchPart
from minibert.model.ops import Ops

Buffers: TypeAlias = tuple[Any, ...]
Table: TypeAlias = tuple[Entry, ...]

# By platform. With cuBLAS alone a step compiles in two thirds of the time, and base is 2% faster on an H200.
COMPILER_OPTIONS = {"gpu": {"xla_gpu_enable_triton_gemm": False}}


# buffers: params m v, lists of tensors; where they are spread, of the one piece that a device has (n,)
def whole_step(
    ops: Any, table: Table, optimizer: Any, objective: Any, buffers: Buffers, parts: Any, *numbers: Any
) -> tuple[Buffers, dict[str, Any]]:
    """Take one step: gradients, their norm, clipping, update. A pure function, compiled whole.

    The buffers are consumed; `parts` are its micro-batches, one upon another. `numbers` are that of the step
    from 0 and of the update from 1, and the learning rate.
    """
    number, update, rate = numbers
    layout = ops.runtime.layout
    params = _tree(table, buffers[0]) if layout is None else layout.tree(*buffers[0])

    def add(grads: Any, batch: Any) -> tuple[Any, dict[str, Any]]:
        metrics, saved = objective.forward(ops, params, batch, number)
        if layout is None:
            tree = objective.backward(ops, saved, params, _tree(table, grads))
            return _tensors(table, tree), metrics
        tree = objective.backward(ops, saved, params, layout.tree(*grads, zeros=True))
        return [grads[0] + layout.reduce_scatter(tree)], metrics

    grads, metrics = scan(add, jax.tree.map(jnp.zeros_like, buffers[0]), parts)
    if layout is not None:  # gradients have been summed over the devices already
        metrics = jax.lax.psum(metrics, DATA)
    elif ops.runtime.mesh is not None:
        grads, metrics = jax.lax.psum((grads, metrics), DATA)
    updaters = [optimizer] if layout is not None else _updaters(table, optimizer)
    norm = ops.global_norm([gradient for gradient, updater in zip(grads, updaters, strict=True) if updater])
    rule = optimizer.rule(update, rate, ops.clip_factor(norm, optimizer.clip_norm))
    changed = updated(ops, updaters, rule, list(zip(buffers[0], grads, *buffers[1:], strict=True)))
    return tuple(map(list, zip(*changed, strict=True))), metrics | {"gradient_norm": norm}


def updated(ops: Any, updaters: list[Any], rule: Any, tensors: list[Buffers]) -> list[Buffers]:
    """Return parameter and moments of each tensor, given with its gradient, after an update.

    Muon's matrices of one shape, all layers', are updated at once: one at a time cannot fill a GPU.
    """
    alike: dict[Any, list[int]] = {}
    for place, (updater, (param, *_)) in enumerate(zip(updaters, tensors, strict=True)):
        if updater is not None:
            together = updater.KIND == "muon" and updater.ranges[0, 4]
            alike.setdefault((param.shape, *updater.ranges[0]) if together else place, []).append(place)
    found: list[Any] = [(param, m, v) for param, _, m, v in tensors]  # of frozen ones that is all
    for places in alike.values():
        own, update = [tensors[i] for i in places], partial(updaters[places[0]].update, ops, rule=rule)
        if len(own) == 1:
            found[places[0]] = update(*own[0])
            continue
        results = jax.vmap(update)(*map(jnp.stack, zip(*own, strict=True)))
        for place, *one in zip(places, *results, strict=True):
            found[place] = tuple(one)
    return found


def _tree(table: Table, tensors: Iterable[Any]) -> Params:
    return nest({entry.name: one for entry, one in zip(table, tensors, strict=True)})


def _tensors(table: Table, tree: Params) -> list[Any]:
    return [leaf_of(tree, entry.name) for entry in table]


def _updaters(table: Table, optimizer: Any) -> list[Any]:
    """Return for each tensor what updates it alone; None where it is frozen."""
    ends = accumulate(entry.size for entry in table)
    places = [(end - entry.size, end) for entry, end in zip(table, ends, strict=True)]
    return [optimizer.within(*place) if place[0] >= optimizer.begin else None for place in places]


def scan(function: Callable[..., Any], carry: Any, items: Any) -> tuple[Any, dict[str, Any]]:
    """Apply `carry, metrics = function(carry, item)` to one item after another, and add the metrics up."""
    if jax.tree.leaves(items)[0].shape[0] == 1:
        return function(carry, jax.tree.map(lambda leaf: leaf[0], items))
    carry, metrics = jax.lax.scan(function, carry, items)
    return carry, jax.tree.map(lambda values: values.sum(0), metrics)


class LateMetrics(Mapping[str, float]):
    """Metrics of a dispatched step; reading any of them waits until the device has finished it."""

    def __init__(self, metrics: dict[str, Any]) -> None:
        self._metrics = metrics

    @cached_property
    def _found(self) -> dict[str, float]:
        with jax_failures.translated():
            # What fails, fails here; to copy from what failed, without this, hangs or ends the process.
            found = jax.device_get(jax.block_until_ready(self._metrics))
        return {name: float(value) for name, value in found.items()}

    def __getitem__(self, name: str) -> float:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._metrics)

    def __len__(self) -> int:
        return len(self._metrics)


class JaxSteps:
    """Twin of `core.step.HostSteps` on devices, compiled whole; the host is behind until it fetches."""

    behind = 1

    def __init__(self, ops: Any, params: Any, optimizer: Any, objective: Any) -> None:
        self.ops, self.params, self.optimizer, self.objective = ops, params, optimizer, objective
        self._runtime: JaxRuntime = ops.runtime
        self._table = tuple(params.table)
        if self._runtime.shard:
            self._runtime.layout = Layout.of(params, self._runtime.mesh.size)
        self._buffers: Buffers = ()
        self.renew()

    def prepare(self, batch: Any, count: int) -> Any:
        """Lay micro-batches out in one shape, those of a device one upon another, on their devices."""
        mesh = self._runtime.mesh
        here = 1 if mesh is None else len(mesh.local_devices)
        split = list(batch.split(min(here * count, batch.E)))
        sizes = zip(*map(jax_rows.shape_of, split), strict=True)
        shape = jax_rows.Shape(*map(max, sizes))  # room for each of them
        if isinstance(batch, BatchPart):  # other processes may have a sequence more: all make as many parts
            shape = jax_rows.room(batch, here * count)
            split += [batch.take(0, 0)] * (here * count - len(split))
        split += [batch.take(0, 0)] * (-len(split) % here)
        laid_out = [jax_rows.lay_out(part, shape, batch.asks_next) for part in split]
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *laid_out)
        if mesh is None:
            return jax.device_put(stacked, self._runtime.device)
        rows = jax.tree.map(lambda leaf: leaf.reshape(here, len(leaf) // here, *leaf.shape[1:]), stacked)
        spread = NamedSharding(mesh, P(DATA))
        return jax.tree.map(partial(jax.make_array_from_process_local_data, spread), rows)

    def needs_compiling(self, micro_batches: Any) -> bool:
        return self._key(micro_batches) not in self._runtime.compiled

    def step(self, micro_batches: Any, number: int, rate: float) -> LateMetrics:
        """Begin a step; the buffers of the one before are consumed."""
        key, update, compiled = self._key(micro_batches), self.optimizer.updates + 1, self._runtime.compiled
        if key not in compiled:
            compiled[key] = self._for_devices()
        with jax_failures.translated():
            self._buffers, metrics = compiled[key](self._buffers, micro_batches, number, update, rate)
        self.optimizer.updates = update
        return LateMetrics(metrics)

    def fetch(self) -> Any:
        """Copy parameters and moments to the host; what the devices have will be overwritten."""
        with jax_failures.translated():
            jax.block_until_ready(self._buffers)
        flat, self.optimizer.m, self.optimizer.v = self._to_host(self._buffers)
        self.params = self.params.like(flat)
        return self.params

    def renew(self) -> None:
        """Copy parameters and moments to the devices."""
        self._buffers = ()  # whose memory is wanted
        with jax_failures.translated():
            self._buffers = self._to_devices(self.params.flat, self.optimizer.m, self.optimizer.v)

    def _key(self, micro_batches: Any) -> Buffers:
        """Return everything that a step is compiled for."""
        shapes = tuple(np.shape(leaf) for leaf in jax.tree.leaves(micro_batches))
        static = self._table, self.params.flat.dtype, self.optimizer.identity, self.objective
        return JaxSteps, *static, jax.tree.structure(micro_batches), shapes

    def _for_devices(self) -> Callable[..., Any]:
        """Make the function that a step calls, to be compiled at its first call, its buffers donated."""
        rule = copy.copy(self.optimizer)
        rule.m = rule.v = None  # what is compiled lasts longer than a training
        step: Callable[..., Any] = partial(whole_step, self.ops, self._table, rule, self.objective)
        if (mesh := self._runtime.mesh) is not None:
            kept, one = self._runtime.partition, partial(_on_each, self._runtime, step)
            given, results = (kept, P(DATA), P(), P(), P()), (kept, P())
            step = jax.shard_map(one, mesh=mesh, in_specs=given, out_specs=results, check_vma=False)
        options = COMPILER_OPTIONS.get(self._runtime.device.platform)
        return jax.jit(step, donate_argnums=0, compiler_options=options)

    def _to_devices(self, *buffers: np.ndarray) -> Buffers:
        mesh, layout = self._runtime.mesh, self._runtime.layout
        sharding = None if mesh is None else NamedSharding(mesh, self._runtime.partition)

        def placed(one: np.ndarray) -> Any:
            if sharding is None:
                return jnp.array(one, device=self._runtime.device)
            return jax.make_array_from_callback(one.shape, sharding, one.__getitem__)

        if layout is not None:
            return tuple([placed(layout.spread(buffer))] for buffer in buffers)
        # Tensors, not one buffer: XLA would copy each out of it, and its gradient into another one.
        cut = [_tensors(self._table, unflatten(self._table, buffer)) for buffer in buffers]
        return tuple(list(map(placed, tensors)) for tensors in cut)

    def _to_host(self, buffers: Buffers) -> Buffers:
        if (layout := self._runtime.layout) is None:
            return tuple(np.concatenate([*map(np.ravel, jax.device_get(tensors))]) for tensors in buffers)
        with jax_failures.translated():
            whole = [multihost_utils.process_allgather(one, tiled=True) for (one,) in buffers]
        return tuple(layout.joined(np.asarray(one)) for one in whole)


def _on_each(
    runtime: JaxRuntime, step: Callable[..., Any], buffers: Buffers, micro_batches: Any, *numbers: Any
) -> tuple[Buffers, dict[str, Any]]:
    """Take the step on one device, on its own part of the batch."""
    micro_batches = jax.tree.map(lambda leaf: leaf[0], micro_batches)
    if runtime.world_size > 1:
        micro_batches = _weighted(micro_batches)
    if runtime.shard:
        buffers = tuple([one[0]] for (one,) in buffers)
    buffers, metrics = step(buffers, micro_batches, *numbers)
    if runtime.shard:
        buffers = tuple([one[None]] for (one,) in buffers)
    return buffers, {**metrics, "tokens": jax.lax.psum(micro_batches.lengths.sum(), DATA)}


def _weighted(rows: jax_rows.Rows) -> jax_rows.Rows:
    """Give the batch of a process weights that count the batches of all."""
    changed = {}
    for name in ("masked_weights", "next_sentence_weights"):
        known = getattr(rows, name) > 0
        changed[name] = known / jnp.maximum(1, jax.lax.psum(known.sum(), DATA))
    return replace(rows, **changed)


class LayersOnDevices(Ops):
    """Layers whose weights may be spread, and of which only what enters them may be kept; see `JaxOps`."""

    def __init__(self, runtime: JaxRuntime, recompute: bool) -> None:
        super().__init__(jnp)
        self.runtime = runtime
        # Of a spread layer only what entered it is kept: with the rest its weights would be kept, whole.
        self._recompute = recompute or runtime.shard

    def layers(self, layer: Callable[..., Any], params: Any, x: Any) -> tuple[Any, Any]:
        if not self._recompute:
            return super().layers(layer, params, x)
        kept = []
        for number, one in enumerate(params):
            kept.append(Kept(x, (layer, number)))
            x, _ = layer(x, self._whole(one), number)
        return x, tuple(kept)

    def layers_backward(
        self, layer_backward: Callable[..., Any], dy: Any, saved: Any, params: Any, grads: Any, first: int = 0
    ) -> tuple[Any, list[Any]]:
        """Send dy back through the layers, computed again where no more than what entered them is kept."""
        if not self._recompute:
            return super().layers_backward(layer_backward, dy, saved, params, grads, first)

        def again(dy: Any, kept: Kept, one: Any, one_grads: Any) -> tuple[Any, Any]:
            layer, number = kept.how
            # The barrier keeps XLA from seeing that this was computed before, and from keeping it after all.
            x, dy, one = jax.lax.optimization_barrier((kept.arrays, dy, one))
            one = self._whole(one)
            _, saved = layer(x, one, number)
            dx, one_grads = layer_backward(dy, saved, one, self._whole(one_grads))
            layout = self.runtime.layout
            return dx, one_grads if layout is None else layout.reduce_scatter_layer(number, one_grads)

        return super().layers_backward(again, dy, saved, params, grads, first)

    def _whole(self, one: Any) -> Any:
        """Return a layer's tree, brought together where it is spread."""
        return one.gather() if isinstance(one, Shard) else one
