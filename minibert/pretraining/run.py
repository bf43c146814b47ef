"""Pre-training from text to a run folder (Devlin et al. 2019, section 3.1 and appendix A.2).

    corpus -> vocabulary -> shards -> stages of growing sequence length -> held-out metrics -> run folder

A run folder holds `training.json` (the options), `vocab.txt`, `shards/`, `checkpoints/`, `metrics.jsonl`,
what Hugging Face reads besides (`config.json`, `model.safetensors`, `tokenizer_config.json` and
`tokenizer.json`), `report.html` from the first step on, and at the end `report.json`, with `trace.json` and
`trace-events.json` where a trace was asked for. The report has checksums of the model, for `minibert verify`.
"""

import dataclasses
import math
import shlex
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from minibert import engines
from minibert.ask.inference import Bert
from minibert.base.errors import InputError, RunError, warn
from minibert.base.files import (
    RUN_FILES,
    atomic_json,
    crc32_of,
    remove_leftovers,
    require_inside,
    sole_writer,
)
from minibert.base.machine import cores
from minibert.base.model_names import (
    CHECKPOINTS,
    MODEL_FILES,
    TOKENIZER_CONFIG_FILE,
    VOCABULARY_FILE,
    WEIGHTS_FILE,
)
from minibert.base.options import PRETRAINING_FILE, other_command
from minibert.base.paths import path_of
from minibert.base.terminal import counted, duration, printable
from minibert.engines.flops import step_operations
from minibert.engines.runtime import runtime_of
from minibert.engines.trace import Trace, watch
from minibert.hub import save_hf, stored_config
from minibert.hub.checkpoint import checkpoints, latest
from minibert.model.ops import Ops
from minibert.model.params import Parameters
from minibert.pretraining.budget import (
    correct,
    next_correction,
    plan_steps,
    resolve_auto,
)
from minibert.pretraining.evaluation import score_with_shuffled
from minibert.pretraining.objective import Pretraining, timetable_of
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.page import RunPage
from minibert.pretraining.predict import held_out_gaps
from minibert.pretraining.preparation import TEXTS, keep_texts, prepare_text, require_segments
from minibert.reports import doctor
from minibert.reports.contents import HeldOutBefore
from minibert.reports.held_out import held_out_text
from minibert.reports.results import REPORT
from minibert.training.loop import Batches, Loop, State, train
from minibert.training.runlog import Log, NoLog, OnLog, RunLog, info_if, logger, read_metrics

EVALUATIONS = "evaluations of held-out text"
TRACE_NOTE = "GFLOP/s: useful operations of matrix products. GB/s: every array read or written once."
FAR_ABOVE = 2.0  # a held-out loss is warned of from so many times that of guessing at random on
RECENT_STEPS = 10  # whose mean loss is the training loss at the end of the run
REPEATED = 0.001  # the headline mentions repeated lines from this share on
N_EXAMPLES = 3  # gaps in held-out sentences that the report shows
WORTH_TELLING = 0.1  # the report mentions a change of the number of steps beyond this share of them
MADE_FIRST = (TOKENIZER_CONFIG_FILE, VOCABULARY_FILE, "shards", TEXTS)  # made before the first step
EXAMPLES = ("It came to [MASK].", "The heaven and the [MASK].", "The white [MASK] swam round the ship.")


@engines.abort_peers_on_error()
def pretrain(
    options: PretrainOptions,
    out: str | Path,
    *,
    resume: bool = False,
    show: bool = True,
    began: float | None = None,
    trace: bool = False,
    ops: Ops | None = None,
    on_log: OnLog | None = None,
    texts: Sequence[str] | None = None,
    go_on: str | None = None,
) -> dict[str, Any]:
    """Pre-train a BERT into the run folder `out`, and return the contents of its `report.json`.

    Parameters
    ----------
    options : PretrainOptions
        Options of the run; those that are None follow the recipe of the size.
    out : str or Path
        The run folder. With `resume` it must hold the run, otherwise no other run may be in it.
    resume : bool, default False
        Continue exactly from the last checkpoint of the folder. The options must equal those stored there,
        except for the length of the run.
    show : bool, default True
        Log progress, and show progress bars on the error stream.
    began : float, optional
        `time.monotonic()` when `minutes` begin to count, such as at the start of the command; by default now.
    trace : bool, default False
        Print on the error stream, when training ends or is stopped, where its time went. `trace.json` in the
        run folder has the same, `trace-events.json` the calls of the first steps for a trace viewer.
    ops : Ops, optional
        A custom engine instead of the one that the options name; it computes in their `dtype`.
    on_log : callable, optional
        Called with the number of a step and its records, by names such as "train/loss".
    texts : sequence of str, optional
        Documents in memory; their `preparation.name_of_texts` is the `corpus` of the options.
    go_on : str, optional
        The command that resumes the run, which is shown if Ctrl-C stops it; by default nothing is shown.

    Returns
    -------
    dict
        The report, which `report_text` formats; empty in every process except the main one.

    Raises
    ------
    InputError
        When options, corpus, vocabulary or folder can't be used.
    RunError
        When the loss is not a number, or the disk is full.
    KeyboardInterrupt
        After Ctrl-C: what was finished is kept, and `resume` goes on from there.
    """
    run = path_of(out, "out")
    began = time.monotonic() if began is None else began
    options = _completed(options, run, resume)
    ops, engine = engines.choose_for(options, ops)
    engines.keep_freed_memory()
    runtime = runtime_of(ops)
    runtime.barrier("options", dataclasses.asdict(options) | {"threads": None})
    if trace and ops.name == "jax":
        message = "trace=True times each operation, but JAX compiles all of them into one; leave it out."
        raise InputError(message, trace=True)
    fresh = not run.exists()
    show = show and runtime.is_main_process
    call = _Call(run, resume, show, began, engine, trace, on_log)
    with ExitStack() as resources:
        if runtime.is_main_process:
            resources.enter_context(sole_writer(run))
            _claim_folder(options, run, resume)
            if texts is not None and not (run / "shards").exists():
                keep_texts(texts, run)
        threads = options.threads or options.recipe.threads
        resources.enter_context(engines.limited_threads(threads, ops))
        try:
            return _from_text_to_report(options, ops, call)
        except KeyboardInterrupt:
            if go_on:
                call.info(f"What was finished is kept; go on with: {go_on}")
            raise
        except RunError:
            raise
        except Exception:  # the input can't be used; that may become clear late
            if runtime.is_main_process and fresh and not checkpoints(run / CHECKPOINTS):
                _remove(run.iterdir())  # nothing was trained, so leave nothing behind
            raise


@dataclass(frozen=True)
class _Call:
    """What a call of `pretrain` asks for beside the options of the run."""

    run: Path  # the run folder
    resume: bool
    show: bool  # whether to show progress; not in processes other than the main one
    began: float  # when `minutes` begin to count
    engine: str  # its name, as people are shown it
    trace: bool = False
    on_log: OnLog | None = None

    def info(self, text: str) -> None:
        """Log a sentence, if progress is shown."""
        info_if(self.show)(text)


def _from_text_to_report(options: PretrainOptions, ops: Ops, call: _Call) -> dict[str, Any]:
    """Prepare the text, plan the steps, take them, and measure the model; return the report."""
    task = _prepared(options, ops, call)
    call.info(f"Engine {call.engine}.")
    state = _started(task, call)
    task = _planned(task, state, call)
    call.info(_headline(task, state))
    if state.step == timetable_of(state).total:
        call.info("All of these steps are done; to go on, give more steps or minutes.")
    _measure_before(task, state, call)
    page = _train(task, state, call)
    report = _finish(task, state, page, call) if page else {}
    runtime_of(ops).barrier("end")
    return report


def _completed(options: PretrainOptions, run: Path, resume: bool) -> PretrainOptions:
    """Fill in what the stored run, the recipe and the machine decide, before any text is read."""
    stored = run / PRETRAINING_FILE
    if resume and stored.exists():  # `_claim_folder` raises the error if it does not exist
        options = options.decided_as(PretrainOptions.load(stored))
    model = stored_config(options.model) if options.model and options.dropout is None else None
    options = engines.resolve_auto(options.resolved(model))
    if not resume:  # a resumed run has passed these checks, and its model may be gone
        options.check_positions()
        options.check_masking()
        require_segments(options)
    return options


def _prepared(options: PretrainOptions, ops: Ops, call: _Call) -> Pretraining:
    """Prepare the text of a run, and decide whether next sentences are learnt from it."""
    runtime = runtime_of(ops)
    if not runtime.is_main_process:  # it waits for the text that the main one prepares
        runtime.barrier("text")
    has_begun = call.resume and bool(checkpoints(call.run / CHECKPOINTS))
    text = prepare_text(options, call.run, call.show, has_begun)
    if options.pairs and not text.next_sentence:  # the decision is stored, and a resumed run keeps it
        options = dataclasses.replace(options, next_sentence=False)
        if runtime.is_main_process:
            options.save(call.run / PRETRAINING_FILE)
    if runtime.is_main_process:
        runtime.barrier("text")
    return Pretraining(options, text, ops)


def _claim_folder(options: PretrainOptions, run: Path, resume: bool) -> None:
    """Raise InputError unless the run may use the folder; prepare the folder of a new run.

    For a new run, remove what an attempt left behind that never reached its first step (`MADE_FIRST`), and
    store the options. Remove temporary files in any case.
    """
    require_inside(run)
    stored = run / PRETRAINING_FILE
    if resume:
        options.require_same_run(PretrainOptions.load(stored))
        if (run / WEIGHTS_FILE).exists() and not checkpoints(run / CHECKPOINTS):
            advice = f"start a new run from its weights: model={str(run)!r} and another `out`."
            raise InputError(f"'{run}' holds a model but no checkpoint to resume from; {advice}")
        remove_leftovers(run, run / CHECKPOINTS)
        return
    if command := other_command(stored):
        raise InputError(f"'{run}' holds a run of minibert {command}; choose another `out`.")
    if checkpoints(run / CHECKPOINTS) or (stored.exists() and (run / WEIGHTS_FILE).exists()):
        raise InputError(f"'{run}' already holds a run; resume it with resume=True, or choose another `out`.")
    present = [name for name in RUN_FILES if (run / name).exists()]
    if present:
        try:
            PretrainOptions.load(stored)  # only the files of a pre-training may be removed
        except InputError as error:
            what = f"{', '.join(present)} of something that is not a run"
            raise InputError(f"'{run}' holds {what}; choose another `out`.") from error
    # An earlier attempt, perhaps with another corpus, may have left these before its first step.
    _remove(run / name for name in MADE_FIRST if (run / name).exists())
    remove_leftovers(run)
    options.save(stored)


def _remove(paths: Iterable[Path]) -> None:
    """Remove files, and folders with all that is in them."""
    for path in paths:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _started(task: Pretraining, call: _Call) -> State:
    """Return the state of the last checkpoint, or that of a new run."""
    for length, _ in task.options.lengths:  # raises now any error that a later stage would raise
        task.text.training(task.options, length)
        task.held_out(length)
    checkpoint = None
    if call.resume:
        # Every process warns of a damaged one. A checkpoint stores the position in the text as 4 numbers.
        checkpoint = latest(call.run / CHECKPOINTS, task.config, logger.warning, numbers=4)
    state = task.start(checkpoint)
    if checkpoint:
        call.info(f"Resuming from step {state.step:,}.")
    runtime_of(task.ops).barrier("checkpoint")
    return state


def _planned(task: Pretraining, state: State, call: _Call) -> Pretraining:
    """Plan the steps, and return the task with everything decided that its options left open.

    training.json is complete before the first checkpoint is written, because resuming compares with it.
    """
    resolved = resolve_auto(task, state, call.began, call.info)
    is_main_process = runtime_of(task.ops).is_main_process
    if is_main_process and resolved.options != task.options:  # before the first checkpoint
        resolved.options.save(call.run / PRETRAINING_FILE)
    plan_steps(resolved, state, call.run / CHECKPOINTS, call.began, call.info)
    if is_main_process:
        resolved.options.save(call.run / PRETRAINING_FILE)  # with a new length of the run, which is checked
    return resolved


def _measure_before(task: Pretraining, state: State, call: _Call) -> None:
    """Measure trained weights on held-out text before the first step; the plan keeps the result."""
    if state.step or not (task.options.model and task.options.evaluations):
        return
    batches = task.held_out_whole(state)
    before = score_with_shuffled(partial(task.score, state.params), batches, None, call.show)
    state.plan["held_out_before"] = {name: getattr(before, name) for name in HeldOutBefore.__annotations__}
    call.info(f"Before training, the held-out loss is {before.loss:.3f} nats.")


def _train(task: Pretraining, state: State, call: _Call) -> RunPage | None:
    """Take the steps, and return the page of the run, which only the main process has."""
    page = None
    log: Log = NoLog()
    trace = None
    peak = _peak(task, call)
    with ExitStack() as contexts:
        if runtime_of(task.ops).is_main_process:
            page = contexts.enter_context(RunPage(task, state, call.run, call.engine, peak))
            on_log = page.refreshed_by(call.on_log)
            total = timetable_of(state).total
            log = contexts.enter_context(RunLog(call.run, state.step, total, call.show, peak, on_log))
        if call.trace:
            trace = contexts.enter_context(_traced(task, state, call.run, peak))
        planned = _PlannedRun(task, call.run, log, trace, (state.step, state.seconds))
        batches, loop = planned.ahead(state)
        train(task.ops, state, batches, task.objective(state.params.config), loop, log)
    return page


@dataclass
class _PlannedRun:
    """A run with its plan: it gives the loop its batches, and corrects the plan during the run."""

    task: Pretraining
    run: Path  # the run folder
    log: Log  # learns when the end of the run changes
    trace: Trace | None  # counts each evaluation as one operation
    paced_from: tuple[int, float]  # the step and the seconds from which the pace is measured

    def ahead(self, state: State) -> tuple[Batches, Loop]:
        """Return the batches from the current position on, and the loop for them."""
        task = self.task
        timetable = timetable_of(state)
        options = task.options
        config = state.params.config
        evaluate_steps = 0
        if options.evaluations:
            evaluate_steps = -(-timetable.planned_total // options.evaluations)
        evaluate = task.evaluator()
        if self.trace:
            evaluate = self.trace.as_one(EVALUATIONS, evaluate)
        loop = Loop(
            total_steps=timetable.total,
            rate=task.rate(timetable),
            folder=self.run / CHECKPOINTS,
            accumulate=options.accumulate or 1,
            save_seconds=options.checkpoint_seconds,
            save_steps=options.checkpoint_steps,
            max_checkpoints=options.keep,
            evaluate_steps=evaluate_steps,
            evaluate=evaluate,
            after_checkpoint=self._save_model,
            operations=lambda batch: step_operations(config, batch.lengths, batch.masked_counts),
            change_before=task.lengthening_steps(state),
            change=task.lengthen,
            replan_at=next_correction(state),
            replan=self._replan,
        )
        return task.batches(timetable, state.step, state.position), loop

    def _replan(self, state: State) -> tuple[Batches, Loop]:
        """Correct the plan, and return the batches and the loop of the rest of the run."""
        correct(self.task, state, self.paced_from)
        self.paced_from = state.step, state.seconds
        self.log.end_at(timetable_of(state).total)
        return self.ahead(state)

    def _save_model(self, state: State) -> None:
        """Write the model along with a new checkpoint, and check that the token shards still exist."""
        task = self.task
        assert isinstance(state.params, Parameters)  # and not those of an LSTM tagger
        save_hf(self.run, task.config_after(state), state.params)
        for folder in (self.run / "shards", task.text.shards.folder):
            if not folder.exists():
                what = f"'{folder}' was removed or moved while the run was reading its token shards"
                advice = "put the folder back, or let resume=True make it again."
                raise RunError(f"{what}. Step {state.step:,} and its model are saved; {advice}")


def _peak(task: Pretraining, call: _Call) -> float | None:
    """Return the machine's peak for the run's precision, with as many threads as compute."""
    options = task.options
    threads = options.threads
    if not threads and task.ops.name == "numpy":
        threads = options.recipe.threads
    peak = engines.peak(threads or cores(), options.dtype, ops=task.ops)
    if peak:
        call.info(f"This machine's peak is {peak:,.0f} GFLOP/s ({options.dtype}).")
    return peak


@contextmanager
def _traced(task: Pretraining, state: State, run: Path, peak: float | None) -> Iterator[Trace]:
    """Watch the engine; however the block ends, print where the time went and save it."""
    first = state.step
    try:
        with watch(task.ops) as trace:
            yield trace
    finally:
        steps = state.step - first
        if steps:
            title = f"Where the {trace.seconds:,.1f} s of {counted(steps, 'step')} went"
            logger.info(f"{title}:\n{trace.table(peak)}\n{TRACE_NOTE}")
            trace.save(run / "trace.json", engine=task.ops.name, steps=steps, peak_gflops=peak)
            events = run / "trace-events.json"
            trace.save_events(events)
            shown = counted(trace.steps_shown, "step")
            viewers = "ui.perfetto.dev or chrome://tracing"
            logger.info(f"{events} has the first {shown} call by call, for {viewers}.")


def _headline(task: Pretraining, state: State) -> str:
    """Describe the model, the text and the steps of a run that is about to train."""
    text = task.text
    timetable = timetable_of(state)
    repeated = ""
    if text.repeated >= REPEATED:
        repeated = f", at least {text.repeated:.1%} in repeated lines"
    stages = [f"{stage.end - stage.begin:,} of {stage.seq_length}" for stage in task.stages(timetable)]
    millions = state.params.count() / 1e6
    held_out = f"{len(text.held_out_ids):,} held out"
    if text.holds_out_least(task.options.held_out):
        held_out += " (the least that has to be, whatever the share)"
    return (
        f"BERT-{state.params.config.size}, {millions:.1f}M parameters, "
        f"{text.tokenizer.vocab_size:,} pieces; "
        f"{counted(len(text.train_ids), 'document')} to train on, {held_out}, "
        f"{text.shards.n_tokens:,} tokens{repeated}; "
        f"{counted(timetable.total, 'step')} of up to {task.options.tokens_per_step:,} tokens "
        f"({', then '.join(stages)} long)."
    )


def _finish(task: Pretraining, state: State, page: RunPage, call: _Call) -> dict[str, Any]:
    """Write the model, measure it, and write the report, its page, and what is wrong with the run."""
    run, options, params = call.run, task.options, state.params
    timetable = timetable_of(state)
    assert isinstance(params, Parameters)
    config = params.config
    save_hf(run, task.config_after(state), params)
    held_out = None
    with page.stopped_by_errors():
        if options.evaluations:
            call.info("Measuring the held-out loss.")
            held_out = _measured(task, state, call.show)
            held_out["text_unigram"] = page.text_unigram
        model = Bert(config, params, task.ops, task.text.tokenizer)
        examples = _examples(task, model)
    report = {
        "held_out": held_out,
        "held_out_before": state.plan.get("held_out_before"),
        "left_to_right": options.left_to_right,
        "size": config.size,
        "parameters": params.count(),
        "vocab_size": config.vocab_size,
        "steps": state.step,
        "planned_steps": timetable.planned_total,
        "stages": [(stage.begin, stage.seq_length) for stage in task.stages(timetable)],
        "ended_early": state.step < timetable.total,
        "trained_length": task.longest_so_far(state),
        "tokens": state.tokens,
        "engine": task.ops.name,
        "dtype": options.dtype,
        "cores": cores(),
        "training_seconds": round(state.seconds, 1),
        "seconds": round(time.monotonic() - call.began, 1),
        "examples": examples,
        "text": page.text_facts(),
        "new_head": state.plan.get("new_head", False),
        "crc32": {name: crc32_of(run / name) for name in MODEL_FILES if (run / name).is_file()},
        "folder": str(run),
    }
    report["page"] = str(page.write("finished", report))
    atomic_json(run / REPORT, report)
    lines = read_metrics(run)
    if held_out:
        _warn_of_high_loss(held_out["loss"], config.vocab_size, lines)
    findings = doctor.examine(doctor.Record(run, options, lines, report))
    if findings:
        call.info(doctor.summary(findings, run))
        page.write("finished", report, findings)
    return report


def _warn_of_high_loss(loss: float, n_pieces: int, lines: Sequence[Mapping[str, float]]) -> None:
    """Warn of a held-out loss far above that of a model that finds all pieces equally likely.

    The last lines of the log tell the two reasons apart: a diverged run has lost its training text, too.
    """
    chance = math.log(n_pieces)
    if loss <= FAR_ABOVE * chance:
        return
    what = f"The held-out loss of {loss:,.1f} nats is far above the {chance:.1f} of guessing at random"
    recent = [line["mlm_loss"] for line in lines if "mlm_loss" in line][-RECENT_STEPS:]
    training_loss = sum(recent) / len(recent)
    if training_loss > chance:
        warn(f"{what}: the run has diverged; start it again with a lower `learning_rate`.")
        return
    learnt = f"{what}, but the training loss is {training_loss:.1f}: the run has learnt its text by heart"
    warn(f"{learnt}; train on more text, or for fewer steps.")


def _measured(task: Pretraining, state: State, show: bool) -> dict[str, Any]:
    """Measure a trained model on held-out text, and with the contexts of its targets shuffled."""
    batches = task.held_out_whole(state)
    special_ids = None if task.mask_id is None else task.text.tokenizer.special_ids
    scored = partial(task.score, state.params)
    return score_with_shuffled(scored, batches, special_ids, show).to_dict()


def _examples(task: Pretraining, model: Bert) -> list[dict[str, Any]]:
    """Predict gaps in held-out sentences, with the right words, and in lines from the books."""
    if task.options.left_to_right:
        return []
    gaps: list[tuple[str, str | None]] = []
    if not (task.options.corpus or task.options.shards):
        gaps += [(text, None) for text in EXAMPLES]
    gaps += islice(held_out_gaps(task.text, model.config.P), N_EXAMPLES)
    return [
        {"text": text, "answer": answer, "guesses": model.fill_mask(text)[0]}
        for text, answer in gaps
        if len(model.tokenizer(text, special=True).ids) <= model.config.P
    ]


def report_text(report: Mapping[str, Any]) -> str:
    """Format a report for people.

    Parameters
    ----------
    report : dict
        As `pretrain` returns it.

    Returns
    -------
    str
        Several lines.
    """
    if report["held_out"]:
        lines = [held_out_text(report["held_out"], before=report["held_out_before"])]
    else:
        again = f"minibert evaluate --model {shlex.quote(report['folder'])} measures it"
        lines = [f"Held-out text was not measured (0 evaluations); {again}."]
    speed = report["tokens"] / max(1e-9, report["training_seconds"])
    done = f"{counted(report['steps'], 'step')}, {report['tokens']:,} tokens, {speed:,.0f} tokens/s"
    lines.append(f"{done}; {duration(report['seconds'])} for this command.")
    steps, planned = report["steps"], report["planned_steps"]
    if report.get("ended_early"):
        lines.append(f"It was ended early: {counted(planned, 'step')} had been planned.")
    elif abs(steps - planned) > WORTH_TELLING * planned:
        became = "faster" if steps > planned else "slower"
        lines.append(f"The machine became {became} on the way: {counted(planned, 'step')} had been planned.")
    lines.append(f"Trained on sequences of up to {report['trained_length']} tokens.")
    for example in report["examples"]:
        text = example["text"]
        if example["answer"]:
            text += f" ({example['answer']})"
        guesses = [f"{printable(piece)} {100 * chance:.0f}%" for piece, chance in example["guesses"]]
        lines.append(f"  {printable(text)}")
        lines.append(f"      {'  '.join(guesses)}")
    lines.append(f"Run folder: {report['folder']}")
    if report["page"]:
        lines.append(f"Report: {report['page']}")
    return "\n".join(lines)
