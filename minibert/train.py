"""The training loop. It is blind to what it trains on: batches and gradients are given to it.

One step: the gradients of all micro-batches added up, clipped, one update. A run stops at the end of a step
only, and a checkpoint holds all that the next step depends on, so that going on is exact.
"""

import math
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from minibert.batch import Batch
from minibert.checkpoint import Checkpoint, checkpoint_path, checkpoints, prune, save_checkpoint
from minibert.errors import DivergedError
from minibert.optim import AdamW
from minibert.params import FlatParameters
from minibert.runlog import RunLog, say

# (params tree, grads tree, batch, step) -> figures; adds the gradient into grads. Figures of micro-batches,
# like their losses, add up to those of the batch; so do "operations", the useful ones in floating point.
Gradients = Callable[[dict, dict, Batch, int], dict[str, float]]
_END = object()


@dataclass
class State:
    """All that the next step depends on."""

    params: FlatParameters
    optimizer: AdamW
    step: int = 0  # steps done
    position: Any = None  # where the next batch begins in the data; JSON
    seconds: float = 0.0  # spent training, all sittings together
    tokens: int = 0  # taken in so far
    plan: dict[str, Any] = field(default_factory=dict)  # what the run decided once and keeps to; JSON

    def save(self, folder: str | Path) -> Path:
        """Write a checkpoint into `folder`, atomically."""
        path = checkpoint_path(folder, self.step)
        names = ("step", "position", "seconds", "tokens", "plan")
        save_checkpoint(path, self.params, self.optimizer, {name: getattr(self, name) for name in names})
        return path

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take over everything from a checkpoint."""
        self.params, self.optimizer.updates = checkpoint.params, checkpoint.updates
        self.optimizer.m, self.optimizer.v = checkpoint.m, checkpoint.v
        for name, value in checkpoint.state.items():
            setattr(self, name, value)


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
    look_steps : call `look` every so many steps (0: never).
    look : returns figures to record, of the held-out text for instance.
    saved : called after every checkpoint.
    from_weights : how to start a new run from the weights of a checkpoint; "" where there is no way.
    """

    total_steps: int
    rate: Callable[[int], float]
    folder: Path
    accumulate: int = 1
    save_seconds: float = 300.0
    save_steps: int = 0
    keep: int = 2
    look_steps: int = 0
    look: Callable[[State], dict[str, float]] | None = None
    saved: Callable[[State], None] | None = None
    from_weights: str = "--init-from with this folder"


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
    state : what to go on from; it is brought up to date by every step.
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
        When a checkpoint cannot be written.
    KeyboardInterrupt
        After Ctrl-C, once the step is finished and a checkpoint is written.
    """
    grads = state.params.zeros_like()
    clock = saved_at = time.monotonic()
    with closing(prefetch(batches)) as waiting, Interrupt() as interrupt:
        while state.step < loop.total_steps:
            began = time.monotonic()  # behind looks and checkpoints
            batch, position = next(waiting)
            figures = one_step(ops, state, grads, batch, gradients, loop)
            state.position, state.tokens = position, state.tokens + batch.T
            clock, before = time.monotonic(), clock
            state.seconds += clock - before
            progress = {"tokens": state.tokens, "seconds": round(state.seconds, 3)}
            operations = figures.pop("operations", 0.0)
            log.step(state.step, batch.T, figures | progress, clock - began, operations)
            if loop.look and loop.look_steps and state.step % loop.look_steps == 0:
                log.record(state.step, loop.look(state))
            if interrupt.asked or _due(loop, state, clock - saved_at):
                _save(state, loop)
                saved_at = time.monotonic()
            if interrupt.asked:
                say(f"Stopped after step {state.step:,} of {loop.total_steps:,}; a checkpoint is saved.")
                raise KeyboardInterrupt


def one_step(
    ops: Any, state: State, grads: FlatParameters, batch: Batch, gradients: Gradients, loop: Loop
) -> dict[str, float]:
    """Gradients of all micro-batches, one update, the figures of the whole batch."""
    rate = loop.rate(state.step)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # one sentence says it, below
        figures = add_gradients(state.params, grads, batch, gradients, state.step, loop.accumulate)
        _require_finite("loss", figures["loss"], state, rate, loop)
        _, norm = state.optimizer.step(ops, state.params.flat, grads.flat, rate)
    _require_finite("gradient", norm, state, rate, loop)
    state.step += 1
    return {**figures, "learning_rate": rate, "gradient_norm": norm}


def add_gradients(
    params: FlatParameters,
    grads: FlatParameters,
    batch: Batch,
    gradients: Gradients,
    step: int,
    accumulate: int,
) -> dict[str, float]:
    """The gradient of a batch, micro-batch by micro-batch, in place of what stood in `grads`.

    The weights of a `Batch` count the whole of it, so sums of micro-batches are the sums of the batch.
    """
    grads.flat.fill(0)
    figures: dict[str, float] = {}
    for part in batch.split(min(accumulate, batch.E)):
        for name, value in gradients(params.tree, grads.tree, part, step).items():
            figures[name] = figures.get(name, 0.0) + float(value)
    return figures


def _require_finite(what: str, value: float, state: State, rate: float, loop: Loop) -> None:
    if not math.isfinite(value):
        advice = "Start again in another --out with a lower learning rate or a longer warm-up"
        saved = checkpoints(loop.folder)[-1:]
        begun = saved not in ([], [checkpoint_path(loop.folder, 0)])
        kept = "the last checkpoint is intact" if saved else "there is no checkpoint yet"
        if begun and loop.from_weights:
            advice += f", if you like from the weights of that checkpoint: {loop.from_weights}"
        raise DivergedError(
            f"The {what} of step {state.step + 1} is {value} at learning rate {rate:.2e}; {kept}. {advice}."
        )


def _due(loop: Loop, state: State, since: float) -> bool:
    """Whether it is time for a checkpoint: the clock, the count, or the end."""
    counted = loop.save_steps and state.step % loop.save_steps == 0
    return bool(since >= loop.save_seconds or counted or state.step == loop.total_steps)


def _save(state: State, loop: Loop) -> None:
    state.save(loop.folder)
    prune(loop.folder, loop.keep, state.step)
    if loop.saved:
        loop.saved(state)


def prefetch(items: Iterable[Any], depth: int = 4) -> Iterator[Any]:
    """The same items in the same order, made by one thread a little ahead of their use."""
    source = iter(items)
    with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as worker:
        waiting = deque(worker.submit(next, source, _END) for _ in range(depth))
        while (item := waiting.popleft().result()) is not _END:
            waiting.append(worker.submit(next, source, _END))
            yield item


class Interrupt:
    """Turns Ctrl-C into a wish that the loop looks at between two steps; a second Ctrl-C stops at once."""

    asked = False

    def __enter__(self) -> "Interrupt":
        self._before = None
        here = threading.current_thread() is threading.main_thread()  # only there are signals delivered
        if here and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # in the background
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: Any) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _note(self, *_: Any) -> None:
        self.asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
