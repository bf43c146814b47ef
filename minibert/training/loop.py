"""The training loop, the same for every task: it takes batches and a loss.

`core/step.py` has what a step does. A run stops only at the end of a step, and a checkpoint holds all that
the next step depends on, so a resumed run is exactly the same run.
"""

import dataclasses
import math
import signal
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from minibert.base.errors import STOPPED_BY, DivergedError, RunError, Stopped, handle_signals, restore_signals
from minibert.base.model_names import kept_steps
from minibert.core.batch import Batch
from minibert.core.optim import Optimizer
from minibert.core.params import FlatParameters
from minibert.core.step import Objective
from minibert.engines.runtime import runtime_of
from minibert.hub.checkpoint import STATE, Checkpoint, checkpoint_path, prune, save_checkpoint
from minibert.training.runlog import Log, logger
from minibert.training.step import Steps, start

Batches = Iterable[tuple[Batch, Any]]  # batches, each with the position in the data after it
_END = object()


@dataclass
class State:
    """All that the next step depends on."""

    params: FlatParameters
    optimizer: Optimizer
    step: int = 0  # number of steps taken
    position: Any = None  # where the next batch begins in the data; JSON can hold it
    seconds: float = 0.0  # time spent training, before interruptions as well
    tokens: int = 0  # number of tokens read so far
    plan: dict[str, Any] = field(default_factory=dict)  # decisions for the whole run; JSON can hold it

    def save(self, folder: str | Path) -> Path:
        """Write a checkpoint into a folder, atomically.

        Parameters
        ----------
        folder : str or Path
            Folder of the run's checkpoints; the name of the file gives the step.

        Returns
        -------
        Path
            The file that was written.
        """
        path = checkpoint_path(folder, self.step)
        fields = {name: getattr(self, name) for name in STATE}
        save_checkpoint(path, self.params, self.optimizer, fields)
        return path

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore everything from a checkpoint.

        Parameters
        ----------
        checkpoint : Checkpoint
            A checkpoint that `load_checkpoint` read. Its arrays are not copied: they become those of this
            state.
        """
        self.params = checkpoint.params
        self.optimizer.updates = checkpoint.updates
        self.optimizer.m = checkpoint.m
        self.optimizer.v = checkpoint.v
        vars(self).update(checkpoint.state)


@dataclass(frozen=True)
class Loop:
    """When to stop, how fast to learn, and what to do on the way."""

    total_steps: int  # number of steps after which to end
    rate: Callable[[int], float]  # learning rate by the index of the step, from 0
    folder: Path  # folder for checkpoints
    accumulate: int = 1  # micro-batches in a step
    save_seconds: float = 300.0  # seconds between two checkpoints
    save_steps: int = 0  # also write a checkpoint every so many steps; 0: never
    max_checkpoints: int = 2  # how many checkpoints to keep; 0: all of them
    evaluate_steps: int = 0  # call `evaluate` every so many steps; 0: never
    evaluate_at_end: bool = False  # call `evaluate` after the last step as well
    evaluate: Callable[[State], dict[str, float]] | None = None  # returns metrics
    converged: Callable[[State], bool] | None = None  # called after an evaluation; returns whether to stop
    after_checkpoint: Callable[[State], None] | None = None
    operations: Callable[[Batch], float] | None = None  # useful floating-point operations of a batch
    reusable: bool = True  # whether a new run can start from the weights of a checkpoint

    # `change` is called before these steps, counted from 0, with the position after their batch.
    change_before: frozenset[int] = frozenset()
    change: Callable[[State, Any], None] | None = None

    # `replan` is called after so many steps, and returns the batches and the loop to continue with.
    replan_at: int | None = None
    replan: Callable[[State], tuple[Batches, "Loop"]] | None = None


def train(ops: Any, state: State, batches: Batches, objective: Objective, loop: Loop, log: Log) -> None:
    """Train from `state.step` to `loop.total_steps`, in place.

    The state is up to date at evaluations, at checkpoints, and at the end.

    Parameters
    ----------
    ops : Ops
        The engine. Its runtime decides what takes the steps, and which process writes.
    state : State
        The state to train, new or restored from a checkpoint.
    batches : iterable of (Batch, position)
        The batch of each step from `state.step` on, and the position in the data after it. A thread reads
        them slightly ahead of their use.
    objective : Objective
        What to minimise.
    loop : Loop
        When to stop, how fast to learn, and what to do on the way.
    log : Log
        Records every step and every evaluation.

    Raises
    ------
    DivergedError
        When the loss or the gradient is not finite. The parameters are left as they were before that step,
        and the last checkpoint, if there is one, is intact.
    RunError
        When a checkpoint or the metrics cannot be written, or a step needs more memory than there is.
    Stopped
        After Ctrl-C (it is a KeyboardInterrupt), or SIGTERM or SIGHUP where they are handled, when the step
        is finished and a checkpoint is written.
    """
    runtime = runtime_of(ops)
    if runtime.is_main_process:
        prune(loop.folder, loop.max_checkpoints, state.step)  # if the run was interrupted before it could
    steps = start(ops, state.params, state.optimizer, objective)
    unread = _UnreadSteps(state, log)
    saved_at = unread.last_read

    with fetched_at_the_end(steps, state), ExitStack() as threads, Interrupt() as interrupt:
        prepared = threads.enter_context(_prepared_ahead(steps, batches, loop))
        while state.step < loop.total_steps:
            # A new plan, if it is time for one: other batches, another loop.
            if loop.replan and state.step == loop.replan_at:
                unread.read(loop)
                prepared.close()
                batches, loop = loop.replan(state)
                prepared = threads.enter_context(_prepared_ahead(steps, batches, loop))

            # The batch, cut into micro-batches.
            unread.begin_step()
            batch, micro_batches, position = next(prepared)
            compiling = steps.needs_compiling(micro_batches)
            if compiling:
                unread.read(loop)
                log.info(compiling_text(batch))

            # The step.
            rate = loop.rate(state.step)
            with memory_explained(batch, loop):
                if loop.change and state.step in loop.change_before:
                    unread.read(loop)
                    state.params = steps.fetch()
                    loop.change(state, position)
                    steps.renew()
                metrics = steps.step(micro_batches, state.step, rate)
            state.step += 1
            state.position = position

            # The metrics; a device gets the next step before they are read.
            unread.add(_UnreadStep(state.step, batch, rate, compiling, metrics))
            unread.read(loop, all_but=steps.max_unread)

            # An early end, if the callback asked for it: this step becomes the last.
            if runtime.any_rank(log.stop_requested):
                unread.read(loop)
                loop = _ended_early(state, loop, log)

            # Evaluation, after which training may stop early.
            if loop.evaluate and _is_evaluated(state.step, loop):
                unread.read(loop)
                state.params = steps.fetch()
                log.record(state.step, loop.evaluate(state))
                if loop.converged and loop.converged(state):
                    loop = _ended_early(state, loop, log)

            # The checkpoint: by the number of steps, by the clock, or because the run stops. All processes
            # have to agree, since their clocks differ and a signal may reach only one of them.
            stops = runtime.any_rank(bool(interrupt.signal_name))
            is_due = _is_saved(state.step, loop) or unread.last_read - saved_at >= loop.save_seconds
            if runtime.any_rank(bool(stops or is_due)):
                unread.read(loop)
                state.params = steps.fetch()
                if runtime.is_main_process:
                    _save(state, loop, log)
                saved_at = time.monotonic()
            if stops:
                if runtime.is_main_process:
                    stopped = f"Stopped after step {state.step:,} of {loop.total_steps:,}"
                    logger.info(f"{stopped}; a checkpoint is saved.")
                raise Stopped(interrupt.signal_name)


class _UnreadStep(NamedTuple):
    """A step that was taken, or only dispatched to a device; reading its metrics waits for the device."""

    number: int  # counted from 1
    batch: Batch
    rate: float
    compiling: bool  # whether it was compiled first: its time says nothing about other steps
    metrics: Mapping[str, float]


class _UnreadSteps:
    """Steps whose metrics have not been read; reading logs them, and counts tokens and time in the state.

    `train` adds each step after taking it. It reads all steps before anything that needs the current state,
    such as an evaluation or a checkpoint, and otherwise leaves as many unread as keep a device busy.
    """

    def __init__(self, state: State, log: Log) -> None:
        self._state = state
        self._log = log
        self._steps: deque[_UnreadStep] = deque()
        self.last_read = time.monotonic()  # when the metrics of a step were last read
        self._step_began = self.last_read  # when the next step began

    def begin_step(self) -> None:
        """Start timing a step now, so that evaluations and checkpoints before it do not count."""
        if not self._steps:
            self._step_began = time.monotonic()

    def add(self, step: _UnreadStep) -> None:
        """Add the step that was taken last."""
        self._steps.append(step)

    def read(self, loop: Loop, all_but: int = 0) -> None:
        """Wait for the metrics of all steps except the last `all_but`, and log them."""
        while len(self._steps) > all_but:
            self._read_one(self._steps.popleft(), loop)

    def _read_one(self, step: _UnreadStep, loop: Loop) -> None:
        state = self._state
        try:
            with memory_explained(step.batch, loop):
                metrics = dict(step.metrics)
            require_finite(metrics, step.number, step.rate, loop)
        except RunError:
            state.step = step.number - 1  # the last step that succeeded
            raise
        tokens = round(metrics.pop("tokens", step.batch.T))
        state.tokens += tokens
        now = time.monotonic()
        state.seconds += now - self.last_read
        metrics["learning_rate"] = step.rate
        metrics["tokens"] = state.tokens
        metrics["seconds"] = round(state.seconds, 3)

        seconds = 0.0 if step.compiling else now - self._step_began
        operations = loop.operations(step.batch) if loop.operations else 0.0
        self._log.step(step.number, tokens, metrics, seconds, operations)
        self.last_read = now
        self._step_began = now


def _prepared_ahead(
    steps: Steps, batches: Batches, loop: Loop
) -> AbstractContextManager[Generator[Any, None, None]]:
    """Return a context in which a thread prepares batches ahead of the steps: batch, micro-batches, position.

    Leaving it, or closing the generator, ends the thread.
    """

    def prepare(batch: Batch) -> Any:
        with memory_explained(batch, loop):
            return steps.prepare(batch, loop.accumulate)

    return closing(prefetch((batch, prepare(batch), position) for batch, position in batches))


def _ended_early(state: State, loop: Loop, log: Log) -> Loop:
    """Return the loop, changed so that the step just taken is its last."""
    if state.step < loop.total_steps:
        log.info(f"Ended early, after step {state.step:,} of {loop.total_steps:,}.")
        log.end_at(state.step)
    return dataclasses.replace(loop, total_steps=state.step, replan=None)


def _is_evaluated(step: int, loop: Loop) -> bool:
    """Return whether there is an evaluation after a step, counted from 1."""
    if step == loop.total_steps and loop.evaluate_at_end:
        return True
    return loop.evaluate_steps != 0 and step % loop.evaluate_steps == 0


def _is_saved(step: int, loop: Loop) -> bool:
    """Return whether there is a checkpoint after a step, counted from 1, whatever the clock says."""
    if step == loop.total_steps:
        return True
    return loop.save_steps != 0 and step % loop.save_steps == 0


def _save(state: State, loop: Loop, log: Log) -> None:
    """Write a checkpoint and remove old ones. First the log is written to disk up to this step."""
    log.sync()
    state.save(loop.folder)
    prune(loop.folder, loop.max_checkpoints, state.step)
    if loop.after_checkpoint:
        loop.after_checkpoint(state)


@contextmanager
def fetched_at_the_end(steps: Steps, state: State) -> Iterator[None]:
    """Bring the state up to date when training ends, unless it failed: its parameters may be lost then.

    Parameters
    ----------
    steps : Steps
        The steps of the training, which hold the parameters.
    state : State
        Its `params` are set, at the end or after a KeyboardInterrupt.

    Yields
    ------
    None
    """
    try:
        yield
    except KeyboardInterrupt:
        state.params = steps.fetch()
        raise
    state.params = steps.fetch()


@contextmanager
def memory_explained(batch: Batch, loop: Loop) -> Iterator[None]:
    """Turn a MemoryError of a step into a RunError that says how large the step is and what would fit.

    Parameters
    ----------
    batch : Batch
        Batch of the step. A MemoryError may have an attribute `times`: by which factor the step is too large.
    loop : Loop
        Gives `accumulate` and `folder`.

    Yields
    ------
    None

    Raises
    ------
    RunError
        Instead of a MemoryError.
    """
    try:
        yield
    except MemoryError as error:
        micro_batches = min(loop.accumulate, batch.E)
        times = max(2, getattr(error, "times", 2))
        more = micro_batches * 2 ** math.ceil(math.log2(times))
        advice = "shorter sequences"
        if micro_batches < batch.E:
            advice = f"accumulate={min(more, batch.E)}"
        raise RunError(
            f"There is not enough memory for a step of {batch.S:,} sequences of up to {batch.lengths.max()} "
            f"tokens in {micro_batches:,} micro-batches of up to {-(-batch.E // micro_batches):,}: "
            f"{error or 'the system has none left'}. Try {advice}, or engine='jax' with recompute=True, or "
            f"on several devices with fsdp=True; {_last_checkpoint(loop)}."
        ) from error


def compiling_text(batch: Batch) -> str:
    """Return what to report before a step that has to be compiled.

    Parameters
    ----------
    batch : Batch
        Batch of the step.

    Returns
    -------
    str
        A sentence.
    """
    return (
        f"Compiling a step of {batch.S:,} sequences of up to {batch.lengths.max()} tokens, "
        "which may take a minute the first time."
    )


def _last_checkpoint(loop: Loop) -> str:
    """Return what errors say about the checkpoints of a run."""
    if kept_steps(loop.folder):
        return "the last checkpoint is intact"
    return "there is no checkpoint yet"


def require_finite(metrics: Mapping[str, float], step: int, rate: float, loop: Loop) -> None:
    """Refuse to go on after a step whose loss or gradient is not finite.

    Parameters
    ----------
    metrics : mapping from str to float
        Metrics of the step, among them "loss" and "gradient_norm".
    step : int
        Number of the step, from 1.
    rate : float
        Learning rate of the step.
    loop : Loop
        For the advice: where checkpoints are, and whether a new run can start from one.

    Raises
    ------
    DivergedError
        When one of them is infinite or not a number.
    """
    for what, value in (("loss", metrics["loss"]), ("gradient", metrics["gradient_norm"])):
        if math.isfinite(value):
            continue
        advice = "Start again in another `out` with a lower learning rate or a longer warm-up"
        if loop.reusable and any(number for number, _ in kept_steps(loop.folder)):
            advice += f", if you like from the weights of that checkpoint: model={str(loop.folder.parent)!r}"
        raise DivergedError(
            f"The {what} of step {step} is {value} at learning rate {rate:.2e}; "
            f"{_last_checkpoint(loop)}. {advice}."
        )


def prefetch(items: Iterable[Any], depth: int = 4) -> Generator[Any, None, None]:
    """Yield the same items in the same order, made by one thread slightly ahead of their use.

    An error while an item is made is raised where the item is asked for.

    Parameters
    ----------
    items : iterable
        Iterated over only in the thread.
    depth : int, default 4
        How many items to make ahead.

    Yields
    ------
    Any
        The items. Closing the generator ends the thread.
    """
    source = iter(items)
    with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as worker:
        waiting = deque(worker.submit(next, source, _END) for _ in range(depth))
        while True:
            item = waiting.popleft().result()
            if item is _END:
                return
            waiting.append(worker.submit(next, source, _END))
            yield item


class Interrupt:
    """Turn Ctrl-C into a request that the loop reads between two steps; a second Ctrl-C stops at once.

    The same holds for SIGTERM and SIGHUP if they have a handler, which the command line sets. An ignored
    signal, such as Ctrl-C in the background, stays ignored. A closed terminal may send SIGHUP twice, so
    SIGHUP never stops at once.
    """

    signal_name = ""  # the signal that asked the run to stop; "" for none

    def __enter__(self) -> "Interrupt":
        self._before: dict[int, Any] = {}  # needed at once: a signal may arrive in the next line
        # Only handlers that are functions are replaced: others ignore the signal, or end the process.
        self._before = handle_signals(("SIGINT", *STOPPED_BY), self._request, replaces=callable)
        return self

    def __exit__(self, *_: Any) -> None:
        restore_signals(self._before)

    def _request(self, number: int, _: Any) -> None:
        self.signal_name = signal.Signals(number).name
        for other, handler in self._before.items():
            if signal.Signals(other).name != "SIGHUP":
                signal.signal(other, handler)
