"""The steps of a training, whatever the engine: those of the core on a host, or the engine's own."""

from collections.abc import Mapping
from typing import Any, Protocol

from minibert.core.batch import Batch
from minibert.core.optim import Optimizer
from minibert.core.params import FlatParameters
from minibert.core.step import HostSteps, Objective
from minibert.engines.runtime import runtime_of


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
