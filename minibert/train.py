"""The training loop, the same for every task: batches, and a function for gradients, are given to it.

One step: the gradients of all micro-batches added up, clipped, one update. A run stops at the end of a step
only, and a checkpoint holds all that the next step depends on, so a resumed run is exactly the same run.
"""

import math
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from minibert.batch import Batch
from minibert.checkpoint import STATE, Checkpoint, checkpoint_path, checkpoints, prune, save_checkpoint
from minibert.errors import (
    STOPPED_BY,
    DivergedError,
    RunError,
    Stopped,
    handle_signals,
    restore_signals,
)
from minibert.optim import Optimizer
from minibert.params import FlatParameters
from minibert.runlog import RunLog, say

# (ops, params tree, grads tree, batch, step) -> grads tree, figures. A pure function, but that accumulators
# are consumed; `batch` is a prepared micro-batch. Figures of micro-batches, like their losses, add up to
# those of the batch.
Gradients = Callable[[Any, dict, dict, Any, Any], tuple[dict, dict[str, Any]]]
_END = object()


@dataclass
class State:
    """All that the next step depends on."""

    params: FlatParameters
    optimizer: Optimizer
    step: int = 0  # steps done
    position: Any = None  # where the next batch begins in the data; JSON
    seconds: float = 0.0  # spent training, all sittings together
    tokens: int = 0  # taken in so far
    plan: dict[str, Any] = field(default_factory=dict)  # what the run decided once and keeps to; JSON

    def save(self, folder: str | Path) -> Path:
        """Write a checkpoint into `folder`, atomically."""
        path = checkpoint_path(folder, self.step)
        save_checkpoint(path, self.params, self.optimizer, {name: getattr(self, name) for name in STATE})
        return path

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take over everything from a checkpoint."""
        self.params, self.optimizer.updates = checkpoint.params, checkpoint.updates
        self.optimizer.m, self.optimizer.v = checkpoint.m, checkpoint.v
        vars(self).update(checkpoint.state)


@dataclass(frozen=True)
class Loop:
    """How far, how fast, and what to do on the way.

    Attributes
    ----------
    total_steps : the step to end with.
    rate : learning rate of each step, from 0.
    accumulate : micro-batches a step.
    folder : where checkpoints go.
    save_seconds, save_steps : a checkpoint after so long, and every so many steps (0: never).
    keep : how many checkpoints are kept.
    look_steps, look_at_end : call `look` every so many steps (0: never), and after the last one.
    look : returns figures to record, of the held-out text for instance.
    after_checkpoint : called after every checkpoint.
    operations : the useful ones of a batch, in floating point.
    from_weights : how to start a new run from the weights of a checkpoint; "" where there is no way.
    review_step, review : call `review` after this step (None: never); it returns the batches and the loop to
        go on with.
    """

    total_steps: int
    rate: Callable[[int], float]
    folder: Path
    accumulate: int = 1
    save_seconds: float = 300.0
    save_steps: int = 0
    keep: int = 2
    look_steps: int = 0
    look_at_end: bool = False
    look: Callable[[State], dict[str, float]] | None = None
    after_checkpoint: Callable[[State], None] | None = None
    operations: Callable[[Batch], float] | None = None
    from_weights: str = "--init-from with this folder"
    review_step: int | None = None
    review: Callable[[State], tuple[Iterable[tuple[Batch, Any]], "Loop"]] | None = None


def train(
    ops: Any,
    state: State,
    batches: Iterable[tuple[Batch, Any]],
    gradients: Gradients,
    loop: Loop,
    log: RunLog,
) -> None:
    """Train from `state.step` to `loop.total_steps`, in place.

    Parameters
    ----------
    ops : the engine.
    state : where to start; it is brought up to date whenever `look` or a checkpoint needs it, and at the end.
    batches : the batch of each step from `state.step` on, with the position in the data after it.
    gradients : adds the gradient of one micro-batch and returns its figures, `loss` among them.
    loop : how far, how fast, and what to do on the way.
    log : where figures go.

    Raises
    ------
    DivergedError
        When the loss or the gradient is not a finite number: the parameters are not touched by it, and the
        last checkpoint, if there is one, is intact.
    RunError
        When a checkpoint or the metrics cannot be written, or a step needs more memory than there is.
    KeyboardInterrupt
        After Ctrl-C, or SIGTERM or SIGHUP where they are handled, once the step is finished and a checkpoint
        is written.
    """
    if ops.leads:
        prune(loop.folder, loop.keep, state.step)  # of a run that ended before it could
    steps = Steps(ops, state, gradients, loop)
    clock = saved_at = time.monotonic()

    def ahead(batches: Iterable[tuple[Batch, Any]]) -> Iterator[tuple]:
        return open_ones.enter_context(
            closing(prefetch((batch, steps.parts(batch), position) for batch, position in batches))
        )

    with steps, ExitStack() as open_ones, Interrupt() as interrupt:
        waiting = ahead(batches)
        while state.step < loop.total_steps:
            if state.step == loop.review_step:
                waiting.close()
                batches, loop = loop.review(state)
                waiting, steps.loop = ahead(batches), loop
            began = time.monotonic()  # looks and checkpoints of the step before are not counted
            batch, parts, position = next(waiting)
            if compiling := steps.compiles(parts):
                log.tell(compiling_text(batch))
            with memory_explained(batch, loop):
                figures = steps.one(parts)
            tokens = round(figures.pop("tokens", batch.T))
            state.position, state.tokens = position, state.tokens + tokens
            clock, before = time.monotonic(), clock
            state.seconds += clock - before
            progress = {"tokens": state.tokens, "seconds": round(state.seconds, 3)}
            operations = loop.operations(batch) if loop.operations else 0.0
            log.step(state.step, tokens, figures | progress, 0.0 if compiling else clock - began, operations)
            at_end = loop.look_at_end and state.step == loop.total_steps
            if loop.look and (at_end or (loop.look_steps and state.step % loop.look_steps == 0)):
                steps.fetch()
                log.record(state.step, loop.look(state))
            stop = ops.agreed(bool(interrupt.asked))
            if ops.agreed(stop or _due(loop, state, clock - saved_at)):
                steps.fetch()
                if ops.leads:
                    log.keep()
                    _save(state, loop)
                saved_at = time.monotonic()
            if stop and ops.leads:
                say(f"Stopped after step {state.step:,} of {loop.total_steps:,}; a checkpoint is saved.")
            if stop:
                raise Stopped(interrupt.asked)


@dataclass(frozen=True, eq=False)
class Learner:
    """What all steps of a run have in common. Learners of the same three objects are equal: compiled once."""

    names: FlatParameters  # what lies where in the buffers; the values are not looked at
    optimizer: Optimizer
    gradients: Gradients

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Learner) and self._three == other._three

    def __hash__(self) -> int:
        return hash(self._three)

    @property
    def _three(self) -> tuple[int, int, Gradients]:
        return id(self.names), id(self.optimizer), self.gradients


# buffers: params m v (N,)
def whole_step(
    ops: Any, learner: Learner, buffers: tuple, parts: tuple, step: Any, number: Any, rate: Any
) -> tuple[tuple, dict[str, Any]]:
    """The gradients of all micro-batches added up, clipped, one update: a pure function, compiled whole.

    Parameters
    ----------
    ops, learner : the engine, and what does not change from step to step.
    buffers : parameters and moments, consumed.
    parts : prepared micro-batches. The weights in them count the whole batch, so sums of micro-batches are
        the sums of the batch.
    step, number, rate : number of the step from 0 and of the update from 1; the learning rate.
    """
    grads, figures = whole_gradient(ops, learner, buffers[0], parts, step)
    norm = learner.optimizer.norm(ops, grads)
    buffers = ops.only_if_finite(
        (figures["loss"], norm),
        lambda: learner.optimizer.update(ops, buffers, grads, norm, number, rate),
        buffers,
    )
    return buffers, {**figures, "gradient_norm": norm}


# flat (N,) -> grads (N,), figures
def whole_gradient(
    ops: Any, learner: Learner, flat: Any, parts: tuple, step: Any
) -> tuple[Any, dict[str, Any]]:
    """Gradient and figures of a batch, micro-batch by micro-batch."""
    names = learner.names
    params = ops.tree(names, flat)

    def add(total: Any, part: Any) -> tuple[Any, dict[str, Any]]:
        tree, figures = learner.gradients(ops, params, ops.tree(names, total), part, step)
        return ops.collected(names, total, tree), figures

    return ops.summed(*ops.fold(add, ops.accumulators(names, flat), parts))


class Steps:
    """The steps of a training, one after another, on an engine.

    Meanwhile the engine holds the current parameters and moments, and those in `state` are older; `fetch`
    brings `state` up to date, and so does the end of a `with` block.

    Parameters
    ----------
    ops, state, gradients, loop : as for `train`.
    rehearsed : in a rehearsal, the state that `state` is a copy of; what is compiled in the rehearsal then
        serves the real steps too.
    """

    def __init__(
        self, ops: Any, state: State, gradients: Gradients, loop: Loop, rehearsed: State | None = None
    ) -> None:
        self._ops, self._state, self.loop = ops, state, loop
        known = rehearsed or state
        self._learner = Learner(known.params, known.optimizer, gradients)
        flat, optimizer = state.params.flat, state.optimizer
        self._buffers = ops.enter(state.params, (flat, optimizer.m, optimizer.v))

    def __enter__(self) -> "Steps":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind in (None, Stopped, KeyboardInterrupt):  # after a failure the buffers may be gone
            self.fetch()

    def parts(self, batch: Batch) -> tuple:
        """A batch as `one` takes it."""
        with memory_explained(batch, self.loop):
            return self._ops.parts(batch, self.loop.accumulate)

    def compiles(self, parts: tuple) -> bool:
        """Whether `one` has to compile first."""
        return self._ops.compiles(whole_step, (self._learner,), parts)

    def one(self, parts: tuple) -> dict[str, float]:
        """Take the next step.

        Returns
        -------
        The figures of the whole batch, with `learning_rate` and `gradient_norm`.

        Raises
        ------
        DivergedError
            When one of them is not finite; nothing has been changed.
        """
        state, loop = self._state, self.loop
        rate, number = loop.rate(state.step), state.optimizer.updates + 1
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # one sentence says it, below
            self._buffers, figures = self._ops.train(
                whole_step, (self._learner,), self._buffers, parts, state.step, number, rate
            )
        found = {name: float(value) for name, value in figures.items()}
        _require_finite("loss", found["loss"], state, rate, loop)
        _require_finite("gradient", found["gradient_norm"], state, rate, loop)
        state.optimizer.updates, state.step = number, state.step + 1
        return found | {"learning_rate": rate}

    def fetch(self) -> None:
        """Bring parameters and moments of the state up to date."""
        state = self._state
        flat, state.optimizer.m, state.optimizer.v = self._ops.leave(self._learner.names, self._buffers)
        if flat is not state.params.flat:
            state.params = state.params.like(flat)


@contextmanager
def memory_explained(batch: Batch, loop: Loop) -> Iterator[None]:
    """Turn a MemoryError of a step into an error that says how large the step is and what would fit.

    Raises
    ------
    RunError
        In place of a MemoryError.
    """
    try:
        yield
    except MemoryError as error:
        count = min(loop.accumulate, batch.E)
        more = count * 2 ** math.ceil(math.log2(max(2, getattr(error, "times", 2))))
        advice = f"--accumulate {min(more, batch.E)}" if count < batch.E else "shorter sequences"
        raise RunError(
            f"There is not enough memory for a step of {batch.S:,} sequences of up to {batch.lengths.max()} "
            f"tokens in {count:,} micro-batches of up to {-(-batch.E // count):,}: "
            f"{error or 'the system has none left'}. Try {advice}, or --backend jax with --recompute, or on "
            f"several devices with --fsdp; {_kept(loop)}."
        ) from error


def compiling_text(batch: Batch) -> str:
    """What to say before a step that has to be compiled."""
    return (
        f"Compiling a step of {batch.S:,} sequences of up to {batch.lengths.max()} tokens, which may take a "
        "minute the first time."
    )


def _kept(loop: Loop) -> str:
    saved = checkpoints(loop.folder)
    return "the last checkpoint is intact" if saved else "there is no checkpoint yet"


def _require_finite(what: str, value: float, state: State, rate: float, loop: Loop) -> None:
    if not math.isfinite(value):
        advice = "Start again in another --out with a lower learning rate or a longer warm-up"
        saved = checkpoints(loop.folder)[-1:]
        begun = saved not in ([], [checkpoint_path(loop.folder, 0)])
        if begun and loop.from_weights:
            advice += f", if you like from the weights of that checkpoint: {loop.from_weights}"
        raise DivergedError(
            f"The {what} of step {state.step + 1} is {value} at learning rate {rate:.2e}; {_kept(loop)}. "
            f"{advice}."
        )


def _due(loop: Loop, state: State, since: float) -> bool:
    """Whether it is time for a checkpoint: the clock, the count, or the end."""
    counted = loop.save_steps and state.step % loop.save_steps == 0
    return bool(since >= loop.save_seconds or counted or state.step == loop.total_steps)


def _save(state: State, loop: Loop) -> None:
    state.save(loop.folder)
    prune(loop.folder, loop.keep, state.step)
    if loop.after_checkpoint:
        loop.after_checkpoint(state)


def prefetch(items: Iterable[Any], depth: int = 4) -> Iterator[Any]:
    """The same items in the same order, made by one thread a little ahead of their use."""
    source = iter(items)
    with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as worker:
        waiting = deque(worker.submit(next, source, _END) for _ in range(depth))
        while (item := waiting.popleft().result()) is not _END:
            waiting.append(worker.submit(next, source, _END))
            yield item


class Interrupt:
    """Turns Ctrl-C into a request that the loop reads between two steps; a second Ctrl-C stops at once.

    So it does with SIGTERM and SIGHUP where they have a handler, which the command line sets. What is
    ignored, as Ctrl-C in the background, stays so. A terminal that is closed may send SIGHUP twice, so it
    never stops at once.
    """

    asked = ""  # the name of the signal

    def __enter__(self) -> "Interrupt":
        self._before: dict[int, Any] = {}  # one may come at once
        # Where a signal is ignored, or ends the process, what handles it is no function.
        self._before = handle_signals(("SIGINT", *STOPPED_BY), self._note, replaces=callable)
        return self

    def __exit__(self, *_: Any) -> None:
        restore_signals(self._before)

    def _note(self, number: int, _: Any) -> None:
        self.asked = signal.Signals(number).name
        for other, handler in self._before.items():
            if signal.Signals(other).name != "SIGHUP":
                signal.signal(other, handler)
