"""Objectives for tests: one made of a single function, and the losses of a BERT with any dropout."""

import math
from dataclasses import dataclass
from typing import Any

from minibert.core import bert
from minibert.model import heads
from minibert.model.params import PRETRAINING


class OfFunction:
    """An objective made of `function(ops, params, grads, batch, step) -> grads, metrics`."""

    def __init__(self, function):
        self.function = function

    def forward(self, ops, params, batch, step):
        grads, metrics = self.function(ops, params, _each(ops.xp.zeros_like, params), batch, step)
        return metrics, grads

    def backward(self, ops, saved, params, grads):
        return _each(ops.accumulate, grads, saved)


def _each(function, *trees):
    if isinstance(trees[0], dict):
        return {name: _each(function, *(tree[name] for tree in trees)) for name in trees[0]}
    if isinstance(trees[0], list):
        return [_each(function, *children) for children in zip(*trees, strict=True)]
    return function(*trees)


@dataclass(frozen=True)
class BertObjective:
    """The loss of pre-training, or of a head; `called` gets an element whenever it is asked for."""

    config: Any
    head: Any = PRETRAINING
    rates: tuple[float, float] = (0.1, 0.2)
    seed: int = 3
    frozen: int | None = None
    called: Any = None

    def __hash__(self):
        return hash((self.config, self.head, self.rates, self.seed, self.frozen))

    def forward(self, ops, params, batch, step):
        if self.called is not None:
            self.called.append(step)
        drop = ops.dropout(batch, *self.rates, self.seed, step)
        if self.head is PRETRAINING:
            loss, saved = bert.pretraining_loss(ops, self.config, params, batch, drop)
        else:
            loss, saved = heads.loss(ops, self.config, self.head, params, batch, drop)
        return {"loss": loss.loss}, saved

    def backward(self, ops, saved, params, grads):
        if self.head is PRETRAINING:
            return bert.pretraining_loss_backward(ops, self.config, saved, params, grads)
        return heads.loss_backward(ops, self.config, self.head, saved, params, grads, self.frozen)


def update_once(optimizer, ops, params, grads, rate):
    """One update of parameters (N,) by the moments of an optimizer, as a step does it.

    Returns
    -------
    params : (N,) updated in place.
    norm : length of the gradient before clipping.
    """
    norm = float(ops.global_norm(optimizer.trained(grads)))
    if math.isfinite(norm):
        optimizer.updates += 1
        rule = optimizer.rule(optimizer.updates, rate, ops.clip_factor(norm, optimizer.clip_norm))
        trained = map(optimizer.trained, (params, grads, optimizer.m, optimizer.v))
        changed = optimizer.update(ops, *trained, rule)
        if not optimizer.begin:  # arrays of JAX are made anew
            params, optimizer.m, optimizer.v = changed
    return params, norm
