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

    max_unread: int  # steps whose metrics may be unread, so that a device always has work

    def prepare(self, batch: Batch, count: int) -> Any:
        """Cut a batch into micro-batches, laid out as the engine computes them.

        Parameters
        ----------
        batch : Batch
            Of one step.
        count : int
            How many micro-batches; one for each example if these are fewer.

        Returns
        -------
        Any
            What `step` takes.
        """

    def needs_compiling(self, micro_batches: Any) -> bool:
        """Return whether `step` would have to compile first, which may take a minute.

        Parameters
        ----------
        micro_batches : Any
            As `prepare` returns them.

        Returns
        -------
        bool
            Always False where nothing is compiled.
        """

    def step(self, micro_batches: Any, number: int, rate: float) -> Mapping[str, float]:
        """Take a step: gradients, their norm, clipping, update.

        On a device it is only dispatched: reading the metrics waits for it, and raises what failed. Where the
        loss or the gradient is not finite, training is over: on a host nothing has been changed then.

        Parameters
        ----------
        micro_batches : Any
            As `prepare` returns them.
        number : int
            Number of the step, from 0.
        rate : float
            Its learning rate.

        Returns
        -------
        mapping from str to float
            The metrics of the whole batch, among them "loss" and "gradient_norm", before clipping.
        """

    def fetch(self) -> FlatParameters:
        """Update the optimizer's moments from the device, and return the present parameters."""

    def renew(self) -> None:
        """Copy changed parameters and moments to the device."""


def start(ops: Any, params: FlatParameters, optimizer: Optimizer, objective: Objective) -> Steps:
    """Begin, or go on, from parameters and moments.

    Parameters
    ----------
    ops : Ops
        The engine.
    params : FlatParameters
        Changed in place by steps on a host.
    optimizer : Optimizer
        With its moments, and how many updates it has made.
    objective : Objective
        What is minimised.

    Returns
    -------
    Steps
        Those of the host, unless the engine has its own.
    """
    steps_type = getattr(runtime_of(ops), "steps", HostSteps)
    return steps_type(ops, params, optimizer, objective)
