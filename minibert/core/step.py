"""One training step, in the open: loss, backward, clip, update.

`HostSteps.step` is what every engine on a host does, from the zeroed gradients to the changed parameters. Its
twin for accelerators, compiled and spread over devices and processes, is `engines/jax/training.py`.
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from minibert.core.arrays import Array, Grads, Params
from minibert.core.batch import Batch
from minibert.core.bert import pretraining_loss, pretraining_loss_backward
from minibert.core.config import BertConfig
from minibert.core.optim import Optimizer
from minibert.core.params import FlatParameters


class Objective(Protocol):
    """What is minimised; hashable, so that an engine that compiles does so once for equal objectives."""

    def forward(self, ops: Any, params: Params, batch: Any, step: Any) -> tuple[dict[str, Any], Any]:
        """Return metrics of a micro-batch, "loss" among them, and what `backward` needs.

        Losses are sums weighted by counts of the whole batch, so those of micro-batches add up to its own;
        `step` is where the draws of dropout come from.
        """

    def backward(self, ops: Any, saved: Any, params: Params, grads: Grads) -> Grads:
        """Add the gradient of the loss to the accumulators, which are consumed and returned."""


@dataclass(frozen=True)
class MaskedAndNext:
    """The loss of both tasks, with dropout."""

    config: BertConfig
    seed: int  # of dropout

    def forward(self, ops: Any, params: Params, batch: Any, step: Array) -> tuple[dict[str, Array], Any]:
        """Return loss and accuracy of both tasks, and what `backward` needs."""
        rates = self.config.hidden_dropout_prob, self.config.attention_probs_dropout_prob
        drop = ops.dropout(batch, *rates, self.seed, step)
        loss, saved = pretraining_loss(ops, self.config, params, batch, drop)
        metrics = {"loss": loss.loss, "mlm_loss": loss.mlm_loss}
        right = loss.mlm_predicted == batch.masked_labels
        metrics["mlm_accuracy"] = (batch.masked_weights * right).sum()
        if batch.asks_next:
            right = loss.nsp_predicted == batch.next_sentence_labels
            metrics["nsp_loss"] = loss.nsp_loss
            metrics["nsp_accuracy"] = (batch.next_sentence_weights * right).sum()
        return metrics, saved

    def backward(self, ops: Any, saved: Any, params: Params, grads: Grads) -> Grads:
        """Add the gradient to the accumulators."""
        return pretraining_loss_backward(ops, self.config, saved, params, grads)


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
