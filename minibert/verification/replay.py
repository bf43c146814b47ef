"""Compute a step of a pre-training run again, and compare it with the log bit by bit.

A run repeats: checkpoint, text, options and engine determine all later steps. So a step is computed from the
last checkpoint before it, or from the beginning; what differs was altered, or is rounded in another way here.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from minibert import engines
from minibert.base.errors import InputError, RunError
from minibert.base.json_files import read_json
from minibert.base.model_names import CHECKPOINTS, kept_steps
from minibert.base.options import PRETRAINING_FILE
from minibert.base.terminal import counted
from minibert.data.instances import split_documents
from minibert.data.shards.joined import open_shards
from minibert.hub.checkpoint import Checkpoint
from minibert.pretraining.objective import Pretraining, timetable_of
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.preparation import Text
from minibert.reports.results import REPORT
from minibert.tokenizer import Tokenizer
from minibert.training.loop import State
from minibert.training.runlog import METRICS, SPEEDS, read_metrics
from minibert.training.step import start
from minibert.verification.findings import Verification
from minibert.verification.folders import load_kept

MOST_MINUTES = 10  # that the steps up to the one asked for took in the run
ROUNDING = 1e-3  # the largest relative difference that is taken for another rounding
TIMES = {"step", "seconds", *SPEEDS}  # what is in the log and is not computed from the data
PROOF = "gradient_norm"  # a sum over all gradients: it is equal to the bit only where all is computed alike

Log = Mapping[int, Mapping[str, float]]  # the numbers in the log, by step


class _NotKept(InputError):
    """Report that the folder, though nothing is wrong with it, does not keep what a step is computed from."""


def replay_step(found: Verification, step: int) -> None:
    """Compute a step again, and note whether it is what the log says.

    Parameters
    ----------
    found : Verification
        Of the folder of a pre-training run.
    step : int
        The step, from 1.

    Raises
    ------
    InputError
        When the log has no such step, or the run has not kept what it is computed from.
    """
    log: Log | None = None
    with found.reading(METRICS):
        lines = read_metrics(found.folder)
        log = {int(line["step"]): line for line in lines if "learning_rate" in line}
    if log is None:
        return
    if step not in log:
        has = f"it has {min(log):,} to {max(log):,}" if log else "it has none"
        raise InputError(f"replay={step} is not a step in {METRICS}; {has}.", replay=step)
    try:
        _compare(found, step, log)
    except _NotKept as error:
        raise InputError(f"replay={step} can't be computed again: {error}", replay=step) from error
    except (InputError, RunError) as error:
        found.wrong(METRICS, f"step {step:,} can't be computed again: {error}")


def _compare(found: Verification, step: int, log: Log) -> None:
    """Compute the steps from the last checkpoint on, and compare each with the log."""
    task = _task(found)
    state = _state_before(found, task, step)
    first = state.step + 1
    seconds = log[step].get("seconds", 0.0) - log.get(state.step, {}).get("seconds", 0.0)
    if seconds > 60 * MOST_MINUTES:
        took = f"from step {first:,} on, the run took {seconds / 60:,.0f} minutes, more than {MOST_MINUTES}"
        raise _NotKept(f"{took}; name a step sooner after a checkpoint, of which `keep` keeps more.")
    differing: dict[int, dict[str, tuple[float, float]]] = {}  # by step and name: recorded, computed
    proven = False  # whether this machine computes what that of the run did, bit by bit
    for number, values in _computed(task, state, step):
        logged = {name: value for name, value in log.get(number, {}).items() if name not in TIMES}
        pairs = {name: (value, values.get(name, math.nan)) for name, value in logged.items()}
        unequal = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
        proven |= PROOF in pairs and PROOF not in unequal
        if unequal:
            differing[number] = unequal
    if state.step < step:
        raise InputError(f"the checkpoints have a plan up to step {state.step:,} only; restore the newest.")
    begin = f"the checkpoint of step {first - 1:,}" if first > 1 else "the beginning"
    how = f"computed again from {begin} by {task.ops.name} in {task.options.dtype}"
    if not differing:
        same = f"loss {log[step].get('loss')!r} and all other numbers have the same bits"
        found.right(f"step {step:,}, {how}: {same}")
        return
    number = min(differing)
    name, (logged_value, computed) = next(iter(differing[number].items()))
    what = f"step {number:,} has {name} {logged_value!r} in the log, and {computed!r} when {how}"
    others = len(differing[number]) - 1
    more = f" (and {counted(others, 'other number')} of it)" if others else ""
    found.wrong(METRICS, f"{what}{more}: {_reason(found, task, differing, proven)}.")


def _reason(found: Verification, task: Pretraining, differing: Mapping[int, Any], proven: bool) -> str:
    """Say why bits may differ, as the end of a sentence."""
    if proven:
        return "numbers beside these have the same bits, so the log was altered; restore it from a copy"
    report = found.folder / REPORT
    before = read_json(report) if report.is_file() else {}
    for field, value in (("engine", task.ops.name), ("dtype", task.options.dtype)):
        if before.get(field, value) != value:
            what = f"the run computed with {field} {before[field]}, which rounds differently"
            return f"{what}; replay it where that {field} works"
    pairs = [pair for unequal in differing.values() for pair in unequal.values()]
    largest = max(abs(logged - computed) / max(abs(logged), 1e-9) for logged, computed in pairs)
    if largest <= ROUNDING:
        return (
            f"a relative difference of {largest:.0e}, as another processor, another number of threads with "
            "numpy, or another version of a library makes by rounding; replay it where the run was"
        )
    return (
        f"a relative difference of {largest:.0e} is more than rounding: the log, the checkpoint, the text or "
        "the options were altered, or another version of minibert trained; restore them from a copy"
    )


def _task(found: Verification) -> Pretraining:
    """Make the task of a run from its folder, without writing anything."""
    folder = found.folder
    options = engines.resolve_auto(PretrainOptions.load(folder / PRETRAINING_FILE).resolved())
    tokenizer = Tokenizer.from_pretrained(folder)
    shards = open_shards(folder / "shards", tokenizer)
    parts = split_documents(shards.n_documents, options.held_out, options.pairs)
    text = Text(tokenizer, shards, *parts, next_sentence=options.pairs)
    ops, _ = engines.choose_for(options, None)
    return Pretraining(options, text, ops)


def _state_before(found: Verification, task: Pretraining, step: int) -> State:
    """Return the last state before a step that the folder has, with the plan of the steps after it."""
    checkpoint = _last_before(found, task, step)
    state = task.start(checkpoint)
    newest = _last_before(found, task, math.inf)
    if newest is not None:
        since, _ = newest.state.get("plan", {}).get("replanned", (0, 0))
        if since <= state.step:
            state.plan = newest.state["plan"]  # with corrections after this state, which leave earlier steps
        elif step > since or checkpoint is None:
            what = f"the run was given another length at step {since:,}, and its plan before that is not kept"
            raise _NotKept(f"{what}; name a later step.")
    if "total_steps" not in state.plan:
        if not task.options.steps:
            raise _NotKept("no checkpoint has the plan of the run; name a step of a run that kept one.")
        state.plan["total_steps"] = task.options.steps
    return state


def _last_before(found: Verification, task: Pretraining, step: float) -> Checkpoint | None:
    """Load the last checkpoint before a step; None if there is none."""
    for number, path in reversed(kept_steps(found.folder / CHECKPOINTS)):
        if number < step and (checkpoint := load_kept(path, task.config, 4)):
            return checkpoint
    return None


def _computed(task: Pretraining, state: State, last: int) -> Iterator[tuple[int, dict[str, float]]]:
    """Take the steps up to `last` as the training loop does; yield the number and the metrics of each."""
    options = task.options
    steps = start(task.ops, state.params, state.optimizer, task.objective(state.params.config))
    timetable = timetable_of(state)
    rate = task.rate(timetable)
    longer = task.lengthening_steps(state)
    with engines.limited_threads(options.threads or options.recipe.threads, task.ops):
        for batch, position in task.batches(timetable, state.step, state.position):
            if state.step in longer:
                state.params = steps.fetch()
                task.lengthen(state, position)
                steps.renew()
            learning_rate = rate(state.step)
            micro_batches = steps.prepare(batch, options.accumulate or 1)
            metrics = dict(steps.step(micro_batches, state.step, learning_rate))
            state.tokens += round(metrics.pop("tokens", batch.T))
            state.step += 1
            state.position = position
            yield state.step, metrics | {"learning_rate": learning_rate, "tokens": state.tokens}
            if state.step == last:
                return
