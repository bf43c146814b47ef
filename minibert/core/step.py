"""One training step, in the open: loss, backward, clip, update.

`HostSteps.step` is what every engine on a host does, from the zeroed gradients to the changed parameters. Its
twin for accelerators, compiled and spread over devices and processes, is `engines/jax/training.py`.

Read next: `bert`, which has the loss and its backward; `optim`, which sets the rule of an update; and
`ops.updates`, which applies it.
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
    """The loss to minimise; hashable, so that an engine that compiles does so once for equal objectives."""

    def forward(
        self,
        ops: Any,
        params: Params,
        batch: Any,
        step: Any,
    ) -> tuple[dict[str, Any], Any]:
        """Return metrics of a micro-batch, "loss" among them, and what `backward` needs.

        A loss is a sum with weights that count the whole batch, so the losses of the micro-batches add up to
        the loss of the batch.

        Parameters
        ----------
        ops : the engine.
        params : tree of parameters.
        batch : the micro-batch, as the engine lays it out.
        step : index of the step, from 0, which determines the draws of dropout.

        Returns
        -------
        metrics : dict of scalars.
        saved : for `backward`.
        """

    def backward(
        self,
        ops: Any,
        saved: Any,
        params: Params,
        grads: Grads,
    ) -> Grads:
        """Add the gradient of the loss to the accumulators, which are consumed and returned.

        Parameters
        ----------
        ops : the engine.
        saved : what `forward` kept.
        params : tree of parameters.
        grads : tree of accumulators.

        Returns
        -------
        grads : the accumulators with the gradient added.
        """


@dataclass(frozen=True)
class MaskedAndNext:
    """The loss of both pre-training tasks, with dropout.

    Attributes
    ----------
    config : the shape of the model, and its dropout rates.
    seed : seed of dropout.
    """

    config: BertConfig
    seed: int

    def forward(
        self,
        ops: Any,
        params: Params,
        batch: Any,
        step: Array,
    ) -> tuple[dict[str, Array], Any]:
        """Return loss and accuracy of both tasks, and what `backward` needs.

        Parameters
        ----------
        ops : the engine.
        params : tree of parameters.
        batch : the micro-batch, with weights of the whole batch.
        step : index of the step, which determines the draws of dropout.

        Returns
        -------
        metrics : "loss", "mlm_loss", "mlm_accuracy"; with next-sentence prediction also "nsp_loss" and
            "nsp_accuracy".
        saved : for `backward`.
        """
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

    def backward(
        self,
        ops: Any,
        saved: Any,
        params: Params,
        grads: Grads,
    ) -> Grads:
        """Add the gradient to the accumulators.

        Parameters
        ----------
        ops : the engine.
        saved : what `forward` kept.
        params : tree of parameters.
        grads : tree of accumulators, consumed.

        Returns
        -------
        grads : the accumulators with the gradient added.
        """
        return pretraining_loss_backward(ops, self.config, saved, params, grads)


class HostSteps:
    """Steps on arrays in memory: parameters and moments are changed in place.

    Parameters
    ----------
    ops : the engine.
    params : the parameters to train.
    optimizer : the optimizer of these parameters, with its moments.
    objective : the loss to minimise.

    Attributes
    ----------
    grads : gradients of all parameters; what they hold between steps is up to the engine.
    """

    def __init__(
        self,
        ops: Any,
        params: FlatParameters,
        optimizer: Optimizer,
        objective: Objective,
    ) -> None:
        self.ops = ops
        self.params = params
        self.optimizer = optimizer
        self.objective = objective
        self.grads = params.zeros_like()

    def prepare(self, batch: Batch, count: int) -> tuple[Batch, ...]:
        """Split a batch into micro-batches, as `step` takes them.

        Parameters
        ----------
        batch : one global batch.
        count : how many micro-batches; a batch of fewer examples is split into single examples.

        Returns
        -------
        tuple of batches, whose losses and gradients add up to those of the whole.
        """
        return tuple(batch.split(min(count, batch.E)))

    def step(
        self,
        micro_batches: tuple[Batch, ...],
        number: int,
        rate: float,
    ) -> dict[str, float]:
        """Take one step: gradients, their norm, clipping, update.

        Parameters
        ----------
        micro_batches : parts of one global batch, as `prepare` makes them.
        number : index of the step, from 0, which determines the draws of dropout.
        rate : learning rate of this update.

        Returns
        -------
        metrics : those of the objective, and "gradient_norm", before clipping. If loss or norm is not
            finite, the parameters are left alone, and the loop reports it.
        """
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
                clip = ops.clip_factor(norm, optimizer.clip_norm)
                rule = optimizer.rule(optimizer.updates, rate, clip)  # the update applies the factor
                buffers = params.flat, grads.flat, optimizer.m, optimizer.v
                p, g, m, v = map(optimizer.trained, buffers)
                optimizer.update(ops, p, g, m, v, rule)
        metrics["gradient_norm"] = norm
        return {name: float(value) for name, value in metrics.items()}
