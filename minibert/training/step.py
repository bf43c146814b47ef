"""The steps of a training run, whatever the engine: the core's, on a host, or the engine's own."""

from collections.abc import Mapping
from typing import Any, Protocol

from minibert.core.batch import Batch
from minibert.core.optim import Optimizer
from minibert.core.params import FlatParameters
from minibert.core.step import HostSteps, Objective
from minibert.engines.runtime import runtime_of


class Steps(Protocol):
    """What takes the training steps of a run, one after another; `start` makes it.

    For each step the loop calls `prepare` (in a thread, ahead of time), `needs_compiling` and `step`. It
    calls `fetch` before it reads the parameters, and `renew` after it has changed them.
    """

    max_unread: int  # how many steps may have unread metrics, so that a device always has work

    def prepare(self, batch: Batch, count: int) -> Any:
        """Cut a batch into micro-batches, in the form that the engine computes with.

        Parameters
        ----------
        batch : Batch
            Batch of one step.
        count : int
            How many micro-batches to make; at most one for each example.

        Returns
        -------
        Any
            Micro-batches for `step`.
        """

    def needs_compiling(self, micro_batches: Any) -> bool:
        """Return whether `step` would have to compile first, which may take a minute.

        Parameters
        ----------
        micro_batches : Any
            Micro-batches that `prepare` made.

        Returns
        -------
        bool
            Always False for an engine that does not compile.
        """

    def step(self, micro_batches: Any, number: int, rate: float) -> Mapping[str, float]:
        """Take a step: gradients, their norm, clipping, update.

        On a device the step is only dispatched: reading the metrics waits for it, and raises its errors. If
        the loss or the gradient is not finite, training is over; on a host nothing has been changed then.

        Parameters
        ----------
        micro_batches : Any
            Micro-batches that `prepare` made.
        number : int
            Index of the step, from 0.
        rate : float
            Learning rate of the step.

        Returns
        -------
        mapping from str to float
            Metrics of the whole batch, among them "loss" and "gradient_norm", before clipping.
        """

    def fetch(self) -> FlatParameters:
        """Copy the optimizer's moments from the device, and return the current parameters."""

    def renew(self) -> None:
        """Copy changed parameters and moments to the device."""


class LoopSteps(HostSteps):
    """The core's steps, with the rest of what the loop asks for: on a host there is nothing to wait for.

    Nothing is compiled, and parameters and moments are never anywhere but in the arrays of the caller.
    """

    max_unread = 0

    def needs_compiling(self, micro_batches: tuple[Batch, ...]) -> bool:
        """Return False, whatever the micro-batches.

        Parameters
        ----------
        micro_batches : tuple of Batch
            As `prepare` makes them.

        Returns
        -------
        bool
            False.
        """
        return False

    def fetch(self) -> FlatParameters:
        """Return the parameters, which every step changes in place."""
        return self.params

    def renew(self) -> None:
        """Do nothing: the next step reads what the caller has changed."""


def start(ops: Any, params: FlatParameters, optimizer: Optimizer, objective: Objective) -> Steps:
    """Start or resume training from parameters and moments.

    Parameters
    ----------
    ops : Ops
        The engine.
    params : FlatParameters
        The parameters; steps on a host change them in place.
    optimizer : Optimizer
        The optimizer, with its moments and its number of updates.
    objective : Objective
        What to minimise.

    Returns
    -------
    Steps
        Those of the host, unless the engine has its own.
    """
    steps_type = getattr(runtime_of(ops), "steps", LoopSteps)
    return steps_type(ops, params, optimizer, objective)
