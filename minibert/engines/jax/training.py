"""Training with the JAX engine: one compiled step, on one device, on many, or on those of many machines.

The twin of `core/step.py`. Training is data parallel: every device has a part of the batch, all have the same
parameters, and one sum over the devices makes the gradients those of the whole batch. With `shard`,
parameters and moments are spread as well (Rajbhandari et al. 2020, "ZeRO", stage 3): a device keeps its piece
of every layer, and a layer is gathered when it is computed, and again in the backward pass. What is learnt
does not depend on the number of devices.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
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

# By platform. With cuBLAS only, a step compiles in two thirds of the time, and base is 2% faster on an H200.
COMPILER_OPTIONS = {"gpu": {"xla_gpu_enable_triton_gemm": False}}


def whole_step(
    ops: Any,
    table: Table,
    optimizer: Any,
    objective: Any,
    buffers: Buffers,
    parts: Any,
    *numbers: Any,
) -> tuple[Buffers, dict[str, Any]]:
    """Take one step: gradients, their norm, clipping, update. This is a pure function, compiled as a whole.

    Parameters
    ----------
    ops : JaxOps
        The engine.
    table : tuple of Entry
        The parameters, in the order of the buffer.
    optimizer : Optimizer
        The optimizer, for its hyperparameters; its moments are not read.
    objective : Objective
        The objective to minimise.
    buffers : tuple of three lists
        Parameters and both moments, a tensor for each entry; if they are sharded, the one shard (n,) of this
        device. They are consumed.
    parts : Rows
        Micro-batches, one upon another: every array has them as its first axis.
    *numbers : three scalars
        The number of the step, from 0, and of the update, from 1, and the learning rate.

    Returns
    -------
    tuple of Buffers and dict
        The buffers after the update; metrics of the batch, the norm of the gradient among them.
    """
    number, update, rate = numbers
    params_buffers, *moments = buffers
    layout = ops.runtime.layout
    if layout is None:
        params = _tree(table, params_buffers)
    else:
        params = layout.tree(*params_buffers)

    def add(grads: Any, batch: Any) -> tuple[Any, dict[str, Any]]:
        """Add the gradients of one micro-batch, in the form of `params_buffers`; also return its metrics."""
        metrics, saved = objective.forward(ops, params, batch, number)
        if layout is None:
            tree = objective.backward(ops, saved, params, _tree(table, grads))
            return _tensors(table, tree), metrics
        accumulators = layout.tree(*grads, zeros=True)
        tree = objective.backward(ops, saved, params, accumulators)
        return [grads[0] + layout.reduce_scatter(tree)], metrics

    zeros = jax.tree.map(jnp.zeros_like, params_buffers)
    grads, metrics = scan(add, zeros, parts)
    if layout is not None:  # gradients have been summed over the devices already
        metrics = jax.lax.psum(metrics, DATA)
    elif ops.runtime.mesh is not None:
        grads, metrics = jax.lax.psum((grads, metrics), DATA)
    updaters = [optimizer] if layout is not None else _updaters(table, optimizer)
    trained = [gradient for gradient, updater in zip(grads, updaters, strict=True) if updater]
    norm = ops.global_norm(trained)
    clip = ops.clip_factor(norm, optimizer.clip_norm)
    rule = optimizer.rule(update, rate, clip)
    tensors = list(zip(params_buffers, grads, *moments, strict=True))
    changed = updated(ops, updaters, rule, tensors)
    new_buffers = tuple(map(list, zip(*changed, strict=True)))
    return new_buffers, metrics | {"gradient_norm": norm}


def updated(ops: Any, updaters: list[Any], rule: Any, tensors: list[Buffers]) -> list[Buffers]:
    """Return parameter and moments of each tensor after an update.

    Muon's matrices of the same shape are updated together, for all layers: a single one can't fill a GPU.

    Parameters
    ----------
    ops : JaxOps
        The engine.
    updaters : list of Optimizer or None
        For each tensor an optimizer of it alone; None where it is frozen.
    rule : AdamRule
        The numbers of this update.
    tensors : list of four arrays each
        Parameter, gradient and both moments.

    Returns
    -------
    list of three arrays each
        Parameter and both moments; those of frozen tensors as they were.
    """
    groups: dict[Any, list[int]] = {}  # indices in the list
    for place, (updater, tensor) in enumerate(zip(updaters, tensors, strict=True)):
        if updater is None:
            continue
        key: Any = place
        if updater.KIND == "muon" and updater.ranges[0, 4]:
            param = tensor[0]
            key = (param.shape, *updater.ranges[0])
        groups.setdefault(key, []).append(place)
    results: list[Any] = [(param, m, v) for param, _, m, v in tensors]
    for places in groups.values():
        first = places[0]
        update = partial(updaters[first].update, ops, rule=rule)
        if len(places) == 1:
            results[first] = update(*tensors[first])
            continue
        members = [tensors[place] for place in places]
        stacked = map(jnp.stack, zip(*members, strict=True))
        params, m, v = jax.vmap(update)(*stacked)
        for place, *buffers in zip(places, params, m, v, strict=True):
            results[place] = tuple(buffers)
    return results


def _tree(table: Table, tensors: Iterable[Any]) -> Params:
    """Nest tensors by their names, as the model takes them."""
    return nest({entry.name: tensor for entry, tensor in zip(table, tensors, strict=True)})


def _tensors(table: Table, tree: Params) -> list[Any]:
    """Undo `_tree`."""
    return [leaf_of(tree, entry.name) for entry in table]


def _updaters(table: Table, optimizer: Any) -> list[Any]:
    """Return the update function of each tensor; None if it is frozen."""
    updaters = []
    begin = 0
    for entry in table:
        end = begin + entry.size
        is_trained = begin >= optimizer.begin
        updaters.append(optimizer.within(begin, end) if is_trained else None)
        begin = end
    return updaters


def scan(function: Callable[..., Any], carry: Any, items: Any) -> tuple[Any, dict[str, Any]]:
    """Apply a function to one item after another, and add the metrics up.

    Parameters
    ----------
    function : callable
        `carry, metrics = function(carry, item)`; pure.
    carry : Any
        A tree of arrays, the argument of the first call.
    items : Any
        A tree of arrays whose first axis is that of the items, of which there is at least one.

    Returns
    -------
    tuple of Any and dict
        What the last call returned; the sums of the metrics.
    """
    first, *_ = jax.tree.leaves(items)
    count = first.shape[0]
    if count == 1:
        only = jax.tree.map(lambda leaf: leaf[0], items)
        return function(carry, only)
    carry, metrics = jax.lax.scan(function, carry, items)
    totals = jax.tree.map(lambda values: values.sum(0), metrics)
    return carry, totals


class LateMetrics(Mapping[str, float]):
    """Metrics of a dispatched step; reading any of them waits until the device has finished it.

    Parameters
    ----------
    metrics : dict of str to scalars on the device
        What the compiled step returned.
    """

    def __init__(self, metrics: dict[str, Any]) -> None:
        self._metrics = metrics

    @cached_property
    def _values(self) -> dict[str, float]:
        """The metrics on the host."""
        with jax_failures.translated():
            # A failed step raises here. Without this, copying its results hangs or ends the process.
            finished = jax.block_until_ready(self._metrics)
            values = jax.device_get(finished)
        return {name: float(value) for name, value in values.items()}

    def __getitem__(self, name: str) -> float:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._metrics)

    def __len__(self) -> int:
        return len(self._metrics)


class JaxSteps:
    """The twin of `core.step.HostSteps` on devices; the host has old parameters until it fetches new ones.

    Parameters
    ----------
    ops : JaxOps
        The engine.
    params : FlatParameters
        Parameters on the host, which are copied to the devices.
    optimizer : Optimizer
        The optimizer; its moments are copied as well.
    objective : Objective
        The objective to minimise.

    Attributes
    ----------
    max_unread : int
        For how many steps the metrics may be unread when the loop begins the next step.
    """

    max_unread = 1

    def __init__(self, ops: Any, params: Any, optimizer: Any, objective: Any) -> None:
        self.ops = ops
        self.params = params
        self.optimizer = optimizer
        self.objective = objective
        self._runtime: JaxRuntime = ops.runtime
        self._table = tuple(params.table)
        if self._runtime.shard:
            self._runtime.layout = Layout.of(params, self._runtime.mesh.size)
        self._buffers: Buffers = ()
        self.renew()

    def prepare(self, batch: Any, count: int) -> Any:
        """Split a batch into micro-batches of one shape, stack those of each device, and copy them there.

        Parameters
        ----------
        batch : Batch
            This process's part of a batch, or all of it.
        count : int
            How many micro-batches each device's share is split into, if there are that many examples.

        Returns
        -------
        Rows
            Arrays on the devices. The first axis is that of devices, if there are several; the next is that
            of micro-batches.
        """
        mesh = self._runtime.mesh
        n_devices = 1 if mesh is None else len(mesh.local_devices)
        most = n_devices * count
        parts = list(batch.split(min(most, batch.E)))
        sizes = zip(*map(jax_rows.shape_of, parts), strict=True)
        shape = jax_rows.Shape(*map(max, sizes))  # large enough for each part
        per_device = -(-len(parts) // n_devices)
        if isinstance(batch, BatchPart):
            # Other processes may have one sequence more, so that all make the same number of parts.
            shape = jax_rows.room(batch, most)
            per_device = count
        laid_out = [jax_rows.lay_out(part, shape, batch.asks_next) for part in parts]
        nothing = jax.tree.map(np.zeros_like, laid_out[0])  # a part of padding, with weights of zero
        laid_out += [nothing] * (n_devices * per_device - len(parts))
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *laid_out)
        if mesh is None:
            return jax.device_put(stacked, self._runtime.device)
        by_device = jax.tree.map(lambda leaf: leaf.reshape(n_devices, per_device, *leaf.shape[1:]), stacked)
        spread = NamedSharding(mesh, P(DATA))
        return jax.tree.map(partial(jax.make_array_from_process_local_data, spread), by_device)

    def needs_compiling(self, micro_batches: Any) -> bool:
        """Return whether a step on these micro-batches would have to be compiled first.

        Parameters
        ----------
        micro_batches : Rows
            As `prepare` returns them.

        Returns
        -------
        bool
            False if this runtime has already compiled a step for the same shapes.
        """
        return self._key(micro_batches) not in self._runtime.compiled

    def step(self, micro_batches: Any, number: int, rate: float) -> LateMetrics:
        """Begin a step; the buffers of the previous one are consumed.

        Parameters
        ----------
        micro_batches : Rows
            As `prepare` returns them.
        number : int
            The index of the step, from 0, which determines the draws of dropout.
        rate : float
            The learning rate.

        Returns
        -------
        LateMetrics
            The metrics; reading them waits for the step.
        """
        key = self._key(micro_batches)
        update = self.optimizer.updates + 1
        compiled = self._runtime.compiled
        if key not in compiled:
            compiled[key] = self._for_devices()
        with jax_failures.translated():
            self._buffers, metrics = compiled[key](self._buffers, micro_batches, number, update, rate)
        self.optimizer.updates = update
        return LateMetrics(metrics)

    def fetch(self) -> Any:
        """Copy parameters and moments to the host, since those on the devices will be overwritten."""
        with jax_failures.translated():
            jax.block_until_ready(self._buffers)
        flat, self.optimizer.m, self.optimizer.v = self._to_host(self._buffers)
        self.params = self.params.like(flat)
        return self.params

    def renew(self) -> None:
        """Copy parameters and moments to the devices."""
        self._buffers = ()  # frees their memory
        with jax_failures.translated():
            self._buffers = self._to_devices(self.params.flat, self.optimizer.m, self.optimizer.v)

    def _key(self, micro_batches: Any) -> Buffers:
        """Return everything that the compilation of a step depends on."""
        shapes = tuple(np.shape(leaf) for leaf in jax.tree.leaves(micro_batches))
        structure = jax.tree.structure(micro_batches)
        dtype = self.params.flat.dtype
        return JaxSteps, self._table, dtype, self.optimizer.identity, self.objective, structure, shapes

    def _for_devices(self) -> Callable[..., Any]:
        """Make the function for a step, which is compiled at its first call and whose buffers are donated."""
        rule = copy.copy(self.optimizer)
        rule.m = rule.v = None  # the compiled function outlives a training, and would keep the moments alive
        step: Callable[..., Any] = partial(whole_step, self.ops, self._table, rule, self.objective)
        mesh = self._runtime.mesh
        if mesh is not None:
            partition = self._runtime.partition
            step = jax.shard_map(
                partial(_on_each, self._runtime, step),
                mesh=mesh,
                in_specs=(partition, P(DATA), P(), P(), P()),
                out_specs=(partition, P()),
                check_vma=False,
            )
        options = COMPILER_OPTIONS.get(self._runtime.device.platform)
        return jax.jit(step, donate_argnums=0, compiler_options=options)

    def _to_devices(self, *buffers: np.ndarray) -> Buffers:
        """Copy flat buffers of the host to the devices, as lists of tensors or as shards."""
        mesh, layout = self._runtime.mesh, self._runtime.layout
        sharding = None
        if mesh is not None:
            sharding = NamedSharding(mesh, self._runtime.partition)

        def placed(array: np.ndarray) -> Any:
            if sharding is None:
                return jnp.array(array, device=self._runtime.device)
            return jax.make_array_from_callback(array.shape, sharding, array.__getitem__)

        if layout is not None:
            return tuple([placed(layout.spread(buffer))] for buffer in buffers)
        # Separate tensors, because XLA would copy each one out of a flat buffer, and its gradient into
        # another.
        trees = [unflatten(self._table, buffer) for buffer in buffers]
        return tuple([placed(tensor) for tensor in _tensors(self._table, tree)] for tree in trees)

    def _to_host(self, buffers: Buffers) -> Buffers:
        """Copy buffers of the devices to the host, each as one flat array."""
        layout = self._runtime.layout
        flat = []
        if layout is None:
            for tensors in buffers:
                on_host = jax.device_get(tensors)
                flat.append(np.concatenate([tensor.ravel() for tensor in on_host]))
            return tuple(flat)
        with jax_failures.translated():
            spread = [multihost_utils.process_allgather(pieces, tiled=True) for (pieces,) in buffers]
        for pieces in spread:
            flat.append(layout.joined(np.asarray(pieces)))
        return tuple(flat)


def _on_each(
    runtime: JaxRuntime,
    step: Callable[..., Any],
    buffers: Buffers,
    micro_batches: Any,
    *numbers: Any,
) -> tuple[Buffers, dict[str, Any]]:
    """Take the step on one device, with its part of the batch."""
    micro_batches = jax.tree.map(lambda leaf: leaf[0], micro_batches)
    if runtime.world_size > 1:
        micro_batches = _weighted(micro_batches)
    if runtime.shard:
        buffers = tuple([pieces[0]] for (pieces,) in buffers)
    buffers, metrics = step(buffers, micro_batches, *numbers)
    if runtime.shard:
        buffers = tuple([pieces[None]] for (pieces,) in buffers)
    tokens = jax.lax.psum(micro_batches.lengths.sum(), DATA)
    return buffers, metrics | {"tokens": tokens}


def _weighted(rows: jax_rows.Rows) -> jax_rows.Rows:
    """Give the batch of a process weights that are normalised over the batches of all processes."""
    changed = {}
    for name in ("masked_weights", "next_sentence_weights"):
        counts = getattr(rows, name) > 0
        total = jax.lax.psum(counts.sum(), DATA)
        changed[name] = counts / jnp.maximum(1, total)
    return replace(rows, **changed)


class LayersOnDevices(Ops):
    """Layers whose weights may be sharded, and which may save only their inputs; see `JaxOps`.

    Parameters
    ----------
    runtime : JaxRuntime
        The devices.
    recompute : bool
        Whether only the input of each layer is kept for backward.
    """

    def __init__(self, runtime: JaxRuntime, recompute: bool) -> None:
        super().__init__(jnp)
        self.runtime = runtime
        # A sharded layer saves only its input: anything else that it saves would include its gathered
        # weights.
        self._recompute = recompute or runtime.shard

    def layers(self, layer: Callable[..., Any], params: Any, x: Any) -> tuple[Any, Any]:
        """Send x through all layers, as `Blocks.layers` does.

        Parameters
        ----------
        layer : callable
            `layer(x, params, number) -> x, saved`.
        params : list
            The parameters of each layer: a dictionary, or the `Shard` of one.
        x : (T,H) array
            The output of the embeddings.

        Returns
        -------
        tuple of array and tuple
            The output of the last layer; what each layer saves, or only its input.
        """
        if not self._recompute:
            return super().layers(layer, params, x)
        kept = []
        for number, layer_params in enumerate(params):
            kept.append(Kept(x, (layer, number)))
            x, _ = layer(x, self._whole(layer_params), number)
        return x, tuple(kept)

    def layers_backward(
        self,
        layer_backward: Callable[..., Any],
        dy: Any,
        saved: Any,
        params: Any,
        grads: Any,
        first: int = 0,
    ) -> tuple[Any, list[Any]]:
        """Send dy back through the layers, which are recomputed if only their inputs were saved.

        Parameters
        ----------
        layer_backward : callable
            `layer_backward(dy, saved, params, grads) -> dx, grads`.
        dy : array
            Gradient of the output of the last layer.
        saved : tuple
            What `layers` kept.
        params, grads : list
            The parameters and the gradient accumulators of each layer: dictionaries, or the `Shard` of one.
        first : int
            The lowest layer to go back through; 0, the default, for all.

        Returns
        -------
        tuple of array and list
            Gradient of the input of layer `first`; the accumulators.
        """
        if not self._recompute:
            return super().layers_backward(layer_backward, dy, saved, params, grads, first)

        def recomputed_backward(dy: Any, kept: Kept, layer_params: Any, layer_grads: Any) -> tuple[Any, Any]:
            layer, number = kept.how
            # The barrier hides from XLA that this was computed before; it would keep the results after all.
            x, dy, layer_params = jax.lax.optimization_barrier((kept.arrays, dy, layer_params))
            layer_params = self._whole(layer_params)
            _, saved = layer(x, layer_params, number)
            dx, layer_grads = layer_backward(dy, saved, layer_params, self._whole(layer_grads))
            layout = self.runtime.layout
            if layout is not None:
                layer_grads = layout.reduce_scatter_layer(number, layer_grads)
            return dx, layer_grads

        return super().layers_backward(recomputed_backward, dy, saved, params, grads, first)

    def _whole(self, tree: Any) -> Any:
        """Return a layer's tree, gathered from all devices if it is spread."""
        return tree.gather() if isinstance(tree, Shard) else tree
