"""The training loop, the same for every task: batches, and what is minimised, are given to it.

What a step does is in `step.py`. A run stops at the end of a step only, and a checkpoint holds all that the
next step depends on, so a resumed run is exactly the same run.
"""

import math
import signal
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minibert.base.errors import STOPPED_BY, DivergedError, RunError, Stopped, handle_signals, restore_signals
from minibert.base.model_names import kept_steps
from minibert.core.batch import Batch
from minibert.core.optim import Optimizer
from minibert.core.params import FlatParameters
from minibert.core.step import Objective
from minibert.engines.runtime import runtime_of
from minibert.hub.checkpoint import STATE, Checkpoint, checkpoint_path, prune, save_checkpoint
from minibert.training.runlog import Log, say
from minibert.training.step import Steps, start

Batches = Iterable[tuple[Batch, Any]]  # with the position in the data after each
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
    """How far, how fast, and what to do on the way."""

    total_steps: int  # the step to end with
    rate: Callable[[int], float]  # learning rate of each step, from 0
    folder: Path  # where checkpoints go
    accumulate: int = 1  # micro-batches a step
    save_seconds: float = 300.0  # a checkpoint after so long
    save_steps: int = 0  # and every so many steps; 0: never
    keep: int = 2  # how many checkpoints are kept
    evaluate_steps: int = 0  # call `evaluate` every so many steps; 0: never
    evaluate_at_end: bool = False  # and after the last one
    evaluate: Callable[[State], dict[str, float]] | None = None  # returns metrics, of held-out text perhaps
    after_checkpoint: Callable[[State], None] | None = None
    operations: Callable[[Batch], float] | None = None  # the useful ones of a batch, in floating point
    # Called before a step, with the position after its batch; returns what changes the state then, or None.
    change: Callable[[State, Any], Callable[[], None] | None] | None = None
    reusable: bool = True  # whether a new run can start from the weights of a checkpoint
    review_step: int | None = None  # call `review` after this step; None: never
    # Returns the batches and the loop to go on with.
    review: Callable[[State], tuple[Batches, "Loop"]] | None = None


def train(ops: Any, state: State, batches: Batches, objective: Objective, loop: Loop, log: Log) -> None:
    """Train from `state.step` to `loop.total_steps`, in place.

    Raise DivergedError when the loss or the gradient is not a finite number: the parameters are not touched
    by it, and the last checkpoint, if there is one, is intact; RunError when a checkpoint or the metrics
    cannot be written, or a step needs more memory than there is; KeyboardInterrupt after Ctrl-C, or SIGTERM
    or SIGHUP where they are handled, once the step is finished and a checkpoint is written.

    The `state` is brought up to date for evaluations and checkpoints, and at the end; `batches` has the batch
    of each step from `state.step` on, with the position in the data after it.
    """
    if (runtime := runtime_of(ops)).is_main_process:
        prune(loop.folder, loop.keep, state.step)  # of a run that ended before it could
    steps = start(ops, state.params, state.optimizer, objective)
    clock = saved_at = since = time.monotonic()
    # Steps whose metrics have not been read: number (from 1), batch, rate, whether it compiles, metrics.
    unread: deque[tuple[int, Batch, float, bool, Mapping[str, float]]] = deque()

    def prepared(batch: Batch, loop: Loop) -> Any:
        with memory_explained(batch, loop):
            return steps.prepare(batch, loop.accumulate)

    def ahead(batches: Batches, loop: Loop) -> Generator[Any, None, None]:
        items = ((batch, prepared(batch, loop), position) for batch, position in batches)
        return open_ones.enter_context(closing(prefetch(items)))

    def read(all_but: int = 0) -> None:
        """Wait for the metrics of steps, and log them."""
        nonlocal clock, since
        while len(unread) > all_but:
            number, batch, rate, compiling, values = unread.popleft()
            try:
                with memory_explained(batch, loop):
                    metrics = dict(values)
                require_finite(metrics, number, rate, loop)
            except RunError:
                state.step = number - 1  # the last that succeeded
                raise
            tokens = round(metrics.pop("tokens", batch.T))
            state.tokens += tokens
            clock, before = time.monotonic(), clock
            state.seconds += clock - before
            metrics |= {"learning_rate": rate, "tokens": state.tokens, "seconds": round(state.seconds, 3)}
            operations = loop.operations(batch) if loop.operations else 0.0
            log.step(number, tokens, metrics, 0.0 if compiling else clock - since, operations)
            since = clock

    with fetched_at_the_end(steps, state), ExitStack() as open_ones, Interrupt() as interrupt:
        waiting = ahead(batches, loop)
        while state.step < loop.total_steps:
            if loop.review and state.step == loop.review_step:
                read()
                waiting.close()
                batches, loop = loop.review(state)
                waiting = ahead(batches, loop)
            if not unread:
                since = time.monotonic()  # evaluations and checkpoints of the step before are not counted
            batch, micro_batches, position = next(waiting)
            if compiling := steps.needs_compiling(micro_batches):
                read()
                log.tell(compiling_text(batch))
            rate = loop.rate(state.step)
            with memory_explained(batch, loop):
                if loop.change and (change := loop.change(state, position)):
                    read()
                    state.params = steps.fetch()
                    change()
                    steps.renew()
                values = steps.step(micro_batches, state.step, rate)
            state.step, state.position = state.step + 1, position
            unread.append((state.step, batch, rate, compiling, values))
            read(steps.behind)
            at_end = state.step == loop.total_steps
            look = loop.evaluate_steps and state.step % loop.evaluate_steps == 0
            if loop.evaluate and (look or (at_end and loop.evaluate_at_end)):
                read()
                state.params = steps.fetch()
                log.record(state.step, loop.evaluate(state))
            stop = runtime.any_rank(bool(interrupt.asked))
            due = at_end or (loop.save_steps and state.step % loop.save_steps == 0)  # by the count
            if runtime.any_rank(bool(stop or due or clock - saved_at >= loop.save_seconds)):
                read()
                state.params = steps.fetch()
                if runtime.is_main_process:
                    log.keep()
                    state.save(loop.folder)
                    prune(loop.folder, loop.keep, state.step)
                    if loop.after_checkpoint:
                        loop.after_checkpoint(state)
                saved_at = time.monotonic()
            if stop and runtime.is_main_process:
                say(f"Stopped after step {state.step:,} of {loop.total_steps:,}; a checkpoint is saved.")
            if stop:
                raise Stopped(interrupt.asked)


@contextmanager
def fetched_at_the_end(steps: Steps, state: State) -> Iterator[None]:
    """Bring the state up to date when training ends, unless it failed: what it has then may be gone."""
    try:
        yield
    except KeyboardInterrupt:
        state.params = steps.fetch()
        raise
    state.params = steps.fetch()


@contextmanager
def memory_explained(batch: Batch, loop: Loop) -> Iterator[None]:
    """Turn a MemoryError of a step into a RunError that says how large the step is and what would fit."""
    try:
        yield
    except MemoryError as error:
        count = min(loop.accumulate, batch.E)
        more = count * 2 ** math.ceil(math.log2(max(2, getattr(error, "times", 2))))
        advice = f"--accumulate {min(more, batch.E)}" if count < batch.E else "shorter sequences"
        raise RunError(
            f"There is not enough memory for a step of {batch.S:,} sequences of up to {batch.lengths.max()} "
            f"tokens in {count:,} micro-batches of up to {-(-batch.E // count):,}: "
            f"{error or 'the system has none left'}. Try {advice}, or --engine jax with --recompute, or on "
            f"several devices with --fsdp; {_kept(loop)}."
        ) from error


def compiling_text(batch: Batch) -> str:
    """Return what is reported before a step that has to be compiled."""
    what = f"Compiling a step of {batch.S:,} sequences of up to {batch.lengths.max()} tokens"
    return f"{what}, which may take a minute the first time."


def _kept(loop: Loop) -> str:
    return "the last checkpoint is intact" if kept_steps(loop.folder) else "there is no checkpoint yet"


def require_finite(metrics: Mapping[str, float], step: int, rate: float, loop: Loop) -> None:
    """Raise DivergedError where the loss or the gradient of a step, from 1, is not finite."""
    for what, value in (("loss", metrics["loss"]), ("gradient", metrics["gradient_norm"])):
        if not math.isfinite(value):
            advice = "Start again in another --out with a lower learning rate or a longer warm-up"
            if loop.reusable and any(step for step, _ in kept_steps(loop.folder)):
                advice += f", if you like from the weights of that checkpoint: --model {loop.folder.parent}"
            how = f"The {what} of step {step} is {value} at learning rate {rate:.2e}"
            raise DivergedError(f"{how}; {_kept(loop)}. {advice}.")


def prefetch(items: Iterable[Any], depth: int = 4) -> Generator[Any, None, None]:
    """Yield the same items in the same order, made by one thread a little ahead of their use."""
    source = iter(items)
    with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as worker:
        waiting = deque(worker.submit(next, source, _END) for _ in range(depth))
        while (item := waiting.popleft().result()) is not _END:
            waiting.append(worker.submit(next, source, _END))
            yield item


class Interrupt:
    """Turn Ctrl-C into a request that the loop reads between two steps; a second Ctrl-C stops at once.

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
