"""Decide the number of steps: as given, or as many as fit into a number of minutes.

The plan for minutes is made once, before the first step:

1. Some steps of every sequence length are rehearsed on a copy of the parameters and thrown away, and a little
   held-out text is measured. This gives the seconds of a step and of an evaluation (`seconds_per_step`,
   `evaluation_seconds`). If no lengths were given, they are chosen by how many tokens the minutes pay for
   (`resolve_auto`).
2. `affordable_steps` computes how many steps fit into the remaining time, and the schedule of rates and
   lengths is laid over them. This is the plan, a `Timetable`.

The plan is corrected a few times, when the run has passed the shares of its schedule in `CORRECTIONS`: if
steps have become faster or slower than planned, the rest of the schedule is stretched or shortened so that
the run ends on time (`correct`).

The decisions are stored in `training.json` and in every checkpoint, and nothing else depends on a clock.
"""

import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

from minibert.base.errors import InputError
from minibert.base.terminal import counted
from minibert.engines.runtime import runtime_of
from minibert.model.params import Parameters
from minibert.pretraining.evaluation import TARGETS
from minibert.pretraining.objective import PREVIEW_TARGETS, Pretraining, timetable_of
from minibert.pretraining.recipes import Timetable
from minibert.training.loop import Loop, State, compiling_text, memory_explained, prefetch, require_finite
from minibert.training.runlog import LogMessage
from minibert.training.step import start

REHEARSAL = 0.03  # share of the minutes that a rehearsal may take
MOST_REHEARSAL = 20.0  # seconds that it may take at most
HELD_OUT = 0.15  # share of the minutes that may go to held-out text, during the run and at its end
MARGIN = 0.97  # share of the time that is planned, as the speed of a machine varies
CORRECTIONS = (0.2, 0.4, 0.6, 0.8, 0.9, 0.96)  # shares of the schedule after which the plan is corrected
NO_CHANGE = 0.01  # the schedule stays as it is if a smaller share of the remaining steps would change
FINISHING_SECONDS = 5.0  # for writing the page and the files
KEPT = ("new_head", "held_out_before")  # facts about the weights before step 1, which a new plan takes over
REHEARSED_RATE = 1e-6  # so low that a rehearsal hardly changes the numbers that it computes with


class Afforded(NamedTuple):
    """The steps and the measuring that fit into a number of minutes."""

    steps: int
    seconds: float  # that the steps may take, with their evaluations
    per_step: dict[int, float]  # seconds at each sequence length
    held_out_share: float = 1.0  # share of the usual held-out targets that there is time to measure


def resolve_auto(
    task: Pretraining,
    state: State,
    began: float,
    info: LogMessage,
) -> Pretraining:
    """Decide what the options have left open: the learning rate, and the lengths that the minutes pay for.

    Parameters
    ----------
    task : Pretraining
        Task of a new or a resumed run.
    state : State
        State of the run; its plan says whether the masked-LM head is new.
    began : float
        `time.monotonic()` when the minutes began.
    info : callable
        Logs a message when something is measured.

    Returns
    -------
    Pretraining
        The same task with both in its options.
    """
    options = task.options
    rate = options.rate_from(state.plan.get("new_head", False), state.params.config)
    lengths = options.seq_length
    if lengths is None:
        (per_step,) = _step_seconds(task, state, [options.longest], info)  # its throughput stands for all
        left = MARGIN * (60 * _minutes(task) - (time.monotonic() - began))
        tokens = left / per_step * options.tokens_per_step
        lengths = options.schedule_for(lambda longest: tokens)
    return replace(task, options=replace(options, learning_rate=rate, seq_length=lengths))


def _minutes(task: Pretraining) -> float:
    minutes = task.options.minutes
    assert minutes is not None  # where there are no steps
    count = runtime_of(task.ops).world_size
    if count > 1:
        what = f"{minutes=} does not work with {count} processes, whose clocks differ"
        raise InputError(f"{what}; give `steps` instead.", minutes=minutes)
    return minutes


def _step_seconds(
    task: Pretraining,
    state: State,
    lengths: Iterable[int],
    info: LogMessage,
) -> list[float]:
    """Return the seconds of a step at each of some lengths, measuring those that are not known yet."""
    measured = task.seconds_per_step
    missing = dict.fromkeys(length for length in lengths if length not in measured)
    if missing:
        rehearsal = min(REHEARSAL * 60 * _minutes(task), MOST_REHEARSAL)
        seconds = rehearsal / len(task.options.lengths)
        shown = ", ".join(map(str, missing))
        info(f"Measuring the speed at lengths of {shown}, for some {len(missing) * seconds:.2g} s.")
        for length in missing:
            measured[length] = seconds_per_step(task, state, length, seconds, info)
    return [measured[length] for length in lengths]


def plan_steps(
    task: Pretraining,
    state: State,
    folder: Path,
    began: float,
    info: LogMessage,
) -> None:
    """Decide the steps of the whole run, and store the decision in a checkpoint.

    A run that is resumed with the same `steps` or `minutes` keeps its plan.

    Parameters
    ----------
    task : Pretraining
        The task; its options have `steps` or `minutes`.
    state : State
        State of the run; its plan is changed.
    folder : Path
        Folder of the checkpoints.
    began : float
        `time.monotonic()` when the minutes began.
    info : callable
        Logs a message.

    Raises
    ------
    InputError
        When `steps` is less than the number of steps already done.
    """
    budget = {"steps": task.options.steps, "minutes": task.options.minutes}
    if state.plan.get("budget") == budget:
        return
    trained = 0
    if state.step:
        trained = task.longest_so_far(state)
    kept = {name: state.plan[name] for name in KEPT if name in state.plan}
    state.plan = {"budget": budget, "replanned": (state.step, trained)} | kept
    if task.options.steps:
        timetable = Timetable.of(task.options.steps)
    else:
        afforded = affordable_steps(task, state, began, info)
        timetable = Timetable.of(state.step + afforded.steps)
        state.plan["until_seconds"] = state.seconds + afforded.seconds
        state.plan["per_step"] = [[length, seconds] for length, seconds in afforded.per_step.items()]
        state.plan["held_out_share"] = afforded.held_out_share
    if timetable.total < state.step:
        steps = timetable.total
        done = f"the {counted(state.step, 'step')} done by this run"
        raise InputError(f"{steps=} is less than {done}; give more.", steps=steps)
    _write_plan(state, timetable)
    if runtime_of(task.ops).is_main_process:
        state.save(folder)


def _write_plan(state: State, timetable: Timetable) -> None:
    state.plan |= {"total_steps": timetable.total, "timetable": timetable.knots}


def next_correction(state: State) -> int | None:
    """Return the step after which the plan is corrected next; None if it won't be.

    Parameters
    ----------
    state : State
        State of the run.
    """
    if "until_seconds" not in state.plan:
        return None
    timetable = timetable_of(state)
    ahead = (timetable.step_at(share * timetable.planned_total) for share in CORRECTIONS)
    return next((step for step in ahead if state.step < step < timetable.total), None)


def correct(task: Pretraining, state: State, paced_from: tuple[int, float]) -> None:
    """Correct the plan of a run, so that it ends when its time does, at the pace of the last steps.

    It stays as it is if less than 1% of the remaining steps would change.

    Parameters
    ----------
    task : Pretraining
        Task of the run.
    state : State
        State of the run; its plan is changed.
    paced_from : (int, float)
        The step from which the pace is taken, and the seconds that the run had trained by then.
    """
    timetable = timetable_of(state)
    step, total = state.step, timetable.total

    # How many times slower than in the rehearsal the last steps were.
    first, seconds_before = paced_from
    slowness = (state.seconds - seconds_before) / _rehearsed_seconds(task, state, first, step)

    # How many steps fit, at that pace, into the time that is left.
    seconds_left = state.plan["until_seconds"] - state.seconds
    seconds_needed = slowness * _rehearsed_seconds(task, state, step, total)
    planned = total - step
    steps = max(1, int(planned * seconds_left / seconds_needed))
    if abs(steps - planned) > NO_CHANGE * planned:
        _write_plan(state, timetable.rescheduled(end=step + steps, from_step=step))


def _rehearsed_seconds(task: Pretraining, state: State, begin: int, end: int) -> float:
    """Estimate the seconds of steps `begin` to `end` from the throughput of the rehearsal."""
    per_step = dict(state.plan["per_step"])
    seconds = 0.0
    for stage in task.stages(timetable_of(state)):
        steps = max(0, min(end, stage.end) - max(begin, stage.begin))
        seconds += per_step[stage.seq_length] * steps
    return seconds


def affordable_steps(
    task: Pretraining,
    state: State,
    began: float,
    info: LogMessage,
) -> Afforded:
    """Return how many steps fit into the rest of the minutes, together with the last evaluation.

    Parameters
    ----------
    task : Pretraining
        The task; its options have `minutes`.
    state : State
        The model to rehearse with; it is not changed.
    began : float
        `time.monotonic()` when the minutes began.
    info : callable
        Logs a message.
    """
    minutes = _minutes(task)
    lengths, shares = zip(*task.options.lengths, strict=True)
    seconds = _step_seconds(task, state, lengths, info)
    per_step = sum(part * at_length for part, at_length in zip(shares, seconds, strict=True))
    on_the_way, whole = evaluation_seconds(task, state)
    measuring = on_the_way + whole
    share = min(1.0, HELD_OUT * 60 * minutes / measuring) if measuring else 1.0
    left = MARGIN * (60 * minutes - (time.monotonic() - began))
    left = left - share * whole - FINISHING_SECONDS
    steps = max(len(lengths), int((left - share * on_the_way) / per_step))

    fit = f"{counted(steps, 'step')} of {1000 * per_step:.0f} ms fit into {counted(minutes, 'minute')}"
    if measuring:
        fit += f"; {share * measuring:.0f} s of these are for measuring held-out text"
        if share < 1:
            fit += f", on {share:.0%} of the usual targets"
    info(f"{fit}.")
    return Afforded(steps, left, dict(zip(lengths, seconds, strict=True)), share)


def seconds_per_step(
    task: Pretraining,
    state: State,
    seq_length: int,
    seconds: float,
    info: LogMessage,
) -> float:
    """Rehearse steps of one length for about `seconds`, on copies that are thrown away, and time them.

    Parameters
    ----------
    task : Pretraining
        The task.
    state : State
        The model to rehearse with; it is not changed.
    seq_length : int
        Tokens in a sequence.
    seconds : float
        How long to rehearse; at least three steps are taken.
    info : callable
        Logs a message when something is compiled.

    Returns
    -------
    float
        The median of the seconds of a step.
    """
    params = Parameters(state.params.config, state.params.flat.copy())
    loop = Loop(1, lambda step: REHEARSED_RATE, Path(), task.options.accumulate or 1)
    steps = start(task.ops, params, task.optimizer(params), task.objective(params.config))
    times = [time.monotonic()]
    unread: deque[Mapping[str, float]] = deque()
    batches = task.stage_batches(seq_length)
    prepared = ((batch, steps.prepare(batch, loop.accumulate)) for batch, _ in batches)
    with closing(prefetch(prepared)) as ahead:
        while len(times) < 4 or times[-1] - times[0] < seconds:
            batch, micro_batches = next(ahead)
            if steps.needs_compiling(micro_batches):
                info(compiling_text(batch))
            unread.append(steps.step(micro_batches, len(times) - 1, REHEARSED_RATE))
            if len(unread) > steps.max_unread:  # as the training loop does
                with memory_explained(batch, loop):
                    metrics = dict(unread.popleft())
                require_finite(metrics, state.step + 1, REHEARSED_RATE, loop)
                times.append(time.monotonic())
    # The first step also warms up, and an engine that compiles does so in some others.
    return median(after - before for before, after in pairwise(times[1:]))


def evaluation_seconds(task: Pretraining, state: State) -> tuple[float, float]:
    """Estimate the seconds of the evaluations during the run, and of all targets, by timing a short one.

    Parameters
    ----------
    task : Pretraining
        The task, with its held-out text.
    state : State
        The model to evaluate.

    Returns
    -------
    on_the_way : float
        Of the evaluations during the run; 0 if nothing is evaluated.
    whole : float
        Of those of all targets, at the end of the run and, with `model`, before its first step.
    """
    if not task.options.evaluations:
        return 0.0, 0.0
    batches = task.held_out_batches(task.options.longest, PREVIEW_TARGETS // 4)
    task.score(state.params, batches)  # the first one also warms up
    began = time.monotonic()
    task.score(state.params, batches)
    once = 4 * (time.monotonic() - began)
    on_the_way = task.options.evaluations * once
    whole = task.whole_evaluations * TARGETS / PREVIEW_TARGETS * once
    return on_the_way, whole
