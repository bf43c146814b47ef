"""One training step, in the open: loss, backward, clip, update.

`HostSteps.step` is what every engine on a host does, from the zeroed gradients to the changed parameters. Its
twin for accelerators, compiled and spread over devices and processes, is `engines/jax/training.py`. The loop
knows neither, only the few methods that both have.
"""

import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from minibert.core.arrays import Grads, Params
from minibert.core.batch import Batch
from minibert.core.optim import Optimizer
from minibert.core.params import FlatParameters
from minibert.engines.runtime import runtime_of


class Objective(Protocol):
    """What is minimised; hashable, so that an engine that compiles does so once for equal objectives."""

    def forward(self, ops: Any, params: Params, batch: Any, step: Any) -> tuple[dict[str, Any], Any]:
        """Return metrics of a micro-batch, "loss" among them, and what `backward` needs.

        Losses are sums weighted by counts of the whole batch, so those of micro-batches add up to its own;
        `step` is where the draws of dropout come from.
        """

    def backward(self, ops: Any, saved: Any, params: Params, grads: Grads) -> Grads:
        """Add the gradient of the loss to the accumulators, which are consumed and returned."""


class Steps(Protocol):
    """The steps of a training, one after another; `start` makes them."""

    behind: int  # how many steps may be unread, so that a device always has work

    def prepare(self, batch: Batch, count: int) -> Any:
        """Cut a batch into `count` micro-batches, or one for each example if these are fewer."""

    def needs_compiling(self, micro_batches: Any) -> bool:
        """Tell whether `step` would have to compile first, which may take a minute."""

    def step(self, micro_batches: Any, number: int, rate: float) -> Mapping[str, float]:
        """Take step `number`, from 0, at this learning rate, and return the metrics of the whole batch.

        On a device it is only dispatched: reading the metrics waits for it, and raises what failed.
        "gradient_norm" is among them, before clipping. Where it or the loss is not finite, training is over:
        on a host nothing has been changed then.
        """

    def fetch(self) -> FlatParameters:
        """Bring the optimizer's moments up to date, and return the parameters as they are now."""

    def renew(self) -> None:
        """Take up what was changed in parameters and moments since `fetch` returned them."""


def start(ops: Any, params: FlatParameters, optimizer: Optimizer, objective: Objective) -> Steps:
    """Begin, or go on, from parameters and moments; the host's steps, unless the engine has its own."""
    own = getattr(runtime_of(ops), "steps", HostSteps)
    return own(ops, params, optimizer, objective)


class HostSteps:
    """Steps on arrays in memory: parameters and moments are changed in place."""

    behind = 0

    def __init__(self, ops: Any, params: FlatParameters, optimizer: Optimizer, objective: Objective) -> None:
        self.ops, self.params, self.optimizer, self.objective = ops, params, optimizer, objective
        self.grads = params.zeros_like()

    def prepare(self, batch: Batch, count: int) -> tuple[Batch, ...]:
        return tuple(batch.split(min(count, batch.E)))

    def needs_compiling(self, micro_batches: tuple[Batch, ...]) -> bool:
        return False

    def step(self, micro_batches: tuple[Batch, ...], number: int, rate: float) -> dict[str, float]:
        """Take one step: gradients, their norm, clipping, update."""
        ops, params, grads, optimizer = self.ops, self.params, self.grads, self.optimizer
        metrics: dict[str, Any] = {}
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # the loop reports it
            ops.zero(grads.flat)
            for batch in micro_batches:
                values, saved = self.objective.forward(ops, params.tree, batch, number)
                self.objective.backward(ops, saved, params.tree, grads.tree)
                del saved  # before the next micro-batch makes its own
                metrics = {name: metrics.get(name, 0) + value for name, value in values.items()}
            norm = ops.global_norm(optimizer.trained(grads.flat))
            if math.isfinite(metrics["loss"]) and math.isfinite(norm):
                optimizer.updates += 1
                rule = optimizer.rule(optimizer.updates, rate, ops.clip_factor(norm, optimizer.clip_norm))
                buffers = params.flat, grads.flat, optimizer.m, optimizer.v
                p, g, m, v = map(optimizer.trained, buffers)
                optimizer.update(ops, p, g, m, v, rule)
        return {name: float(value) for name, value in (metrics | {"gradient_norm": norm}).items()}

    def fetch(self) -> FlatParameters:
        """Return the parameters, which are never anywhere else."""
        return self.params

    def renew(self) -> None:
        """Do nothing: what was changed is what steps change."""
