"""How many steps a run takes: a number that was given, or as many as fit into a number of minutes.

For minutes, some first steps of every stage are rehearsed on a copy of the parameters and thrown away; from
the rates that they show the steps are counted out, once. The number goes into the first checkpoint, and
nothing depends on a clock from there on: a run of M minutes that came to N steps is, bit for bit, the run of
N steps.
"""

import time
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from statistics import median

from minibert.errors import InputError
from minibert.params import Parameters
from minibert.pretraining.evaluation import TARGETS
from minibert.pretraining.task import GLANCE_TARGETS, Pretraining
from minibert.train import Loop, State, Steps, compiling_text, memory_explained, prefetch

REHEARSAL = 0.03  # share of the minutes that measuring may take
MARGIN = 0.96  # a machine is not equally fast all the time
FINISHING_SECONDS = 5.0  # for the picture and the files


def plan_steps(
    task: Pretraining, state: State, folder: Path, began: float, tell: Callable[[str], None]
) -> int:
    """Fix the number of steps of the whole run, and write it into a checkpoint.

    A run that goes on with the length it had keeps to what was fixed before.

    Parameters
    ----------
    task : what is trained; its options have `steps` or `minutes`.
    state : where the run stands.
    folder : of the checkpoints.
    began : `time.monotonic()` from where `minutes` count.
    tell : called with sentences for the person watching.
    """
    budget = {"steps": task.options.steps, "minutes": task.options.minutes}
    if state.plan.get("budget") != budget:
        if task.ops.part[1] > 1 and not task.options.steps:
            raise InputError(
                f"minutes={task.options.minutes:g} with {task.ops.part[1]} processes, whose clocks differ; "
                "give --steps instead."
            )
        total = task.options.steps or state.step + affordable_steps(task, state, began, tell)
        if total < state.step:
            raise InputError(
                f"steps={total} is less than the {state.step:,} steps that this run has done; give more."
            )
        state.plan = {"budget": budget, "total_steps": total}
        if task.ops.leads:
            state.save(folder)
    return state.plan["total_steps"]


def affordable_steps(task: Pretraining, state: State, began: float, tell: Callable[[str], None]) -> int:
    """How many steps fit into what is left of the minutes, the last evaluation included."""
    seconds = 60 * task.options.minutes
    lengths = task.options.lengths
    trial = REHEARSAL * seconds / len(lengths)
    per_step = sum(share * seconds_per_step(task, state, length, trial, tell) for length, share in lengths)
    left = MARGIN * (seconds - (time.monotonic() - began)) - looking_seconds(task, state) - FINISHING_SECONDS
    steps = max(len(lengths), int(left / per_step))
    tell(f"{steps:,} steps of {1000 * per_step:.0f} ms fit into {task.options.minutes:g} minutes.")
    return steps


def seconds_per_step(
    task: Pretraining, state: State, seq_length: int, seconds: float, tell: Callable[[str], None]
) -> float:
    """Rehearse steps of one length for about so many seconds, on copies that are thrown away."""
    params = Parameters(state.params.config, state.params.flat.copy())
    trial = State(params, task.optimizer(params))
    loop = Loop(1, lambda step: 1e-6, Path(), task.options.accumulate)
    steps, times = Steps(task.ops, trial, task.gradients(params.config), loop, state), [time.monotonic()]
    ready = ((batch, steps.parts(batch)) for batch, _ in task.stage_batches(seq_length))
    with closing(prefetch(ready)) as waiting:
        while len(times) < 4 or times[-1] - times[0] < seconds:
            batch, parts = next(waiting)
            if steps.compiles(parts):
                tell(compiling_text(batch))
            with memory_explained(batch, loop):
                steps.one(parts)
            times.append(time.monotonic())
    # The first step also warms up, and an engine that compiles does so in some others.
    return median(after - before for before, after in pairwise(times[1:]))


def looking_seconds(task: Pretraining, state: State) -> float:
    """What all looks at the held-out text will take, from a short one."""
    batches = task.held_out_batches(task.options.longest, GLANCE_TARGETS // 4)
    task.score(state.params, batches)  # the first look also warms up
    began = time.monotonic()
    task.score(state.params, batches)
    glances = task.options.evaluations + 2 * TARGETS / GLANCE_TARGETS  # the last look is at shuffled text too
    return 4 * glances * (time.monotonic() - began)
