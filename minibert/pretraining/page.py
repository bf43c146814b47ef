"""`report.html` of a pre-training run: its progress during training, and its results at the end."""

import dataclasses
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import numpy as np

from minibert.base.errors import RunError
from minibert.base.files import atomic_text
from minibert.base.terminal import counted, duration
from minibert.pretraining.evaluation import entropy_of_counts
from minibert.pretraining.objective import Pretraining, timetable_of
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.preparation import repeated_share
from minibert.pretraining.recipes import FURTHER, RECIPES, SCHEDULES, Timetable
from minibert.reports.doctor import Finding
from minibert.reports.held_out import held_out_rows
from minibert.reports.markup import rendered
from minibert.reports.page import REPORT_FILE, option_rows
from minibert.reports.pictures import Curve, StepChart, picture, points, step_charts
from minibert.tokenizer.report import piece_facts
from minibert.training.loop import State
from minibert.training.runlog import METRICS, OnLog, read_metrics

Metrics: TypeAlias = list[dict[str, float]]  # the logged metrics, one dictionary per line
Lines: TypeAlias = Sequence[tuple[float, str]]  # horizontal lines in a picture: value, name
REFRESH = 15  # seconds after which a browser reloads the page of a run that is training
SHARE = 0.01  # most of the time that may be spent on writing the page
MOST_LINES = 1000  # of the log that are drawn while a run trains, so that memory does not grow with it
LAST = 50  # number of last steps over which the training loss is averaged
SPEEDS = (  # name of the metric, title on the page, format
    ("useful_gflops", "useful operations, median of the steps", "{:,.0f} GFLOP/s"),
    ("peak_share", "share of the peak, median of the steps", "{:.0%}"),
)


class RunPage(AbstractContextManager["RunPage"]):
    """Context manager that keeps the page of a run up to date.

    The page is written after every evaluation and every REFRESH seconds; less often where many steps make
    writing slow. If an error ends the block, the page says that the run has stopped.

    Parameters
    ----------
    task : Pretraining
        The model to train, and the data.
    state : State
        State of the run, which changes during training.
    run : Path
        The run folder, to which the page is written.
    engine : str
        Name of the engine on the page.
    peak : float or None
        Peak GFLOP/s of the machine, if known.

    Attributes
    ----------
    text_unigram : float
        Unigram entropy of the pieces of the whole text, in nats.
    """

    def __init__(
        self,
        task: Pretraining,
        state: State,
        run: Path,
        engine: str,
        peak: float | None,
    ) -> None:
        self._task = task
        self._state = state
        self._run = run
        self._engine = engine
        self._peak = peak
        self._piece_counts = task.text.piece_counts()
        self.text_unigram = entropy_of_counts(self._piece_counts)
        self._due = -math.inf

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is not None:
            with suppress(RunError):  # perhaps for the full disk that ended the run
                self.write("stopped")

    @contextmanager
    def stopped_by_errors(self) -> Iterator[None]:
        """Make the page say that the run has stopped, if the block ends with an error or Ctrl-C."""
        try:
            yield
        except BaseException as error:
            self.__exit__(type(error))
            raise

    def refreshed_by(self, on_log: OnLog | None) -> OnLog:
        """Return a function for the log to call at each step; it writes the page when due.

        Parameters
        ----------
        on_log : callable or None
            A further function to call, with the number of each step and its metrics.

        Returns
        -------
        callable
            A function with the same arguments.
        """

        def refresh(step: int, values: dict[str, float]) -> None:
            is_evaluated = any(name.startswith("eval/") for name in values)
            if time.monotonic() >= self._due or is_evaluated:
                began = time.monotonic()
                self.write("training")
                spent = time.monotonic() - began
                self._due = time.monotonic() + max(REFRESH, spent / SHARE)
            if on_log:
                on_log(step, values)

        return refresh

    def text_facts(self) -> dict[str, float]:
        """Return how well the vocabulary suits the text, and how much of it is repeated, for the report."""
        text = self._task.text
        sentences, repeated = repeated_share(text.shards)
        return piece_facts(self._piece_counts, text.tokenizer) | {"lines": sentences, "repeated": repeated}

    def write(
        self, status: str, report: dict[str, Any] | None = None, findings: Sequence[Finding] = ()
    ) -> Path:
        """Write the page of a run.

        Parameters
        ----------
        status : str
            "training", "stopped" or "finished".
        report : dict, optional
            Report of a finished run: the content of `report.json`.
        findings : sequence of Finding
            What is wrong with a finished run.

        Returns
        -------
        Path
            Path of the page.
        """
        task, state = self._task, self._state
        path = self._run / REPORT_FILE
        most = MOST_LINES if status == "training" else None
        metrics = read_metrics(self._run, most) if (self._run / METRICS).exists() else []
        held_out = report and report["held_out"]
        total = timetable_of(state).total
        pace = state.seconds / state.step if state.step else 0.0
        losses = [line["mlm_loss"] for line in metrics if "mlm_loss" in line][-LAST:]
        page = rendered(
            "pretraining.html.j2",
            title=f"Pre-training of BERT-{state.params.config.size}",
            refresh=REFRESH if status == "training" else None,
            status=status,
            what="next words" if task.options.left_to_right else "masked words",
            steps=(state.step, total),
            tokens=state.tokens,
            duration=duration(state.seconds),
            left=duration(pace * (total - state.step)),
            held_out=held_out,
            loss=f"{sum(losses) / len(losses):.3f}" if losses else None,
            last=len(losses),
            findings=findings,
            figures=held_out_rows(held_out, report["held_out_before"]) if report and held_out else [],
            loss_curve=[self._losses(metrics, held_out)],
            examples=report["examples"] if report else [],
            step_charts=self._step_charts(metrics),
            speeds=self._speeds(metrics),
            speed_curve=[self._curve(metrics, "tokens_per_second", "tokens a second", "{:,.0f}")],
            decisions=decisions(task, state, self._engine),
            options=option_rows(dataclasses.asdict(task.options) | named_paths(task.options)),
        )
        atomic_text(path, page)
        return path

    def _losses(self, metrics: Metrics, held_out: dict[str, Any] | None) -> dict[str, Any] | None:
        """Draw the training and held-out loss, with lines for predictions without context."""
        evaluations = points(metrics, "held_out_loss").tolist()
        if before := self._state.plan.get("held_out_before"):
            evaluations.insert(0, (0, before["loss"]))
        floors = [(self.text_unigram, "unigram entropy of the text")]
        if held_out:
            evaluations.append((self._state.step, held_out["loss"]))
            floors = [(held_out["unigram"], "unigram entropy of the held-out targets")]
            if held_out["shuffled_loss"] is not None:
                floors.append((held_out["shuffled_loss"], "held out, its context shuffled"))
        lines = [(value, f"{name}: {value:.2f}") for value, name in floors]
        curve = Curve("metric", np.reshape(evaluations, (-1, 2)), "held-out", style="dots")
        return self._curve(metrics, "mlm_loss", "loss", "{:.3f}", "nats", lines, [curve])

    def _curve(
        self,
        metrics: Metrics,
        name: str,
        title: str,
        form: str,
        unit: str = "",
        lines: Lines = (),
        more: Sequence[Curve] = (),
    ) -> dict[str, Any] | None:
        """Draw a metric of the steps, and perhaps other curves."""
        breaks, marks = self._stages()
        training = Curve("loss", points(metrics, name), "training", breaks=breaks)
        last = self._state.step
        return picture(title, [training, *more], form.format, last, unit=unit, lines=lines, marks=marks)

    def _step_charts(self, metrics: Metrics) -> list[StepChart]:
        """Draw the gradient norm and the learning rate."""
        options = self._task.options
        warmup = _warmup_steps(options, timetable_of(self._state))
        return step_charts(metrics, self._state.step, options.clip_norm, warmup, *self._stages())

    def _stages(self) -> tuple[list[float], list[tuple[float, str]]]:
        """Return where stages begin after the first one, and a mark for each stage that has begun."""
        breaks: list[float] = []
        marks: list[tuple[float, str]] = []
        for number, stage in enumerate(self._task.stages(timetable_of(self._state))):
            if number > 0:
                breaks.append(stage.begin)
            if stage.begin <= self._state.step:
                marks.append((stage.begin, str(stage.seq_length)))
        return breaks, marks

    def _speeds(self, metrics: Metrics) -> list[tuple[str, str]]:
        """Return the throughput of the whole run, and the median over steps of the other measurements."""
        state, dtype = self._state, self._task.options.dtype
        rows = [("tokens a second", f"{state.tokens / max(state.seconds, 1e-9):,.0f}")]
        for name, title, form in SPEEDS:
            values = [line[name] for line in metrics if name in line]
            if values:
                rows.append((title, form.format(median(values))))
        if self._peak:
            rows.append((f"peak of the machine in {dtype}", f"{self._peak:,.0f} GFLOP/s"))
        return rows


def named_paths(options: PretrainOptions) -> dict[str, Any]:
    """Return the last parts of the options that are paths; the page shows nothing else of them.

    Parameters
    ----------
    options : PretrainOptions
        Options of the run.

    Returns
    -------
    dict
        "corpus" with a tuple of names; "shards", "vocab" and "model", each with a name or the empty value of
        the option.
    """
    named: dict[str, Any] = {"corpus": tuple(Path(path).name for path in options.corpus)}
    for name in ("shards", "vocab", "model"):
        path = getattr(options, name)
        named[name] = path and Path(path).name
    return named


def decisions(task: Pretraining, state: State, engine: str) -> list[tuple[str, str, str]]:
    """List the decisions about size, text, recipe and length of a run.

    Parameters
    ----------
    task : Pretraining
        The model to train, and the data.
    state : State
        State of the run, for its plan.
    engine : str
        Name of the engine on the page.

    Returns
    -------
    list of (str, str, str)
        For each decision its subject, its outcome, and the reason.
    """
    o = task.options
    text = task.text
    config = state.params.config
    named = named_paths(o)
    timetable = timetable_of(state)
    recipe = _recipe_name(o)

    def by_recipe(value: Any, usual: Any) -> str:
        return recipe if value == usual else "given"

    millions = state.params.count() / 1e6
    shape = (
        f"{counted(config.L, 'layer')} of {config.H} in {counted(config.A, 'head')}, "
        f"{millions:.1f}M parameters"
    )
    tokens = f"{text.shards.n_tokens:,} tokens in {counted(text.shards.n_documents, 'document')}"
    sources = {"vocab": o.vocab, "model": o.model, "shards": o.shards}
    source = next((f"from --{name}" for name, path in sources.items() if path), "learnt from the text")
    corpus = ", ".join(named["corpus"]) or named["shards"] or "the books in the package"
    lengths = ", then ".join(
        f"{stage.seq_length} for {counted(stage.end - stage.begin, 'step')}"
        for stage in task.stages(timetable)
    )
    without_rate = dataclasses.replace(o, learning_rate=None)
    usual_rate = without_rate.rate_from(state.plan.get("new_head", False), config)
    why_lengths = by_recipe(o.seq_length, o.recipe.seq_length)
    if o.recipe.seq_length is None and o.seq_length in {schedule.lengths for schedule in SCHEDULES}:
        why_lengths = "what the tokens of the run pay for"
    return [
        ("size", shape, f"the weights of {named['model']}" if o.model else f"--size {o.size}"),
        ("vocabulary", f"{config.V:,} pieces", source),
        ("text", tokens, corpus),
        ("held out", counted(len(text.held_out_ids), "document"), _held_out(task, timetable)),
        ("steps", f"{timetable.total:,}", _budget(o, state.plan, timetable)),
        ("sequence lengths", lengths, why_lengths),
        ("tokens a step", _tokens_per_step(o, state), by_recipe(o.batch_size, o.recipe.batch_size)),
        ("optimizer", o.optimizer, by_recipe(o.optimizer, "adamw")),
        ("learning rate", f"{o.learning_rate:g}", by_recipe(o.learning_rate, usual_rate)),
        ("warm-up", _warmup_text(o, timetable), by_recipe(o.warmup, o.recipe.warmup)),
        ("dropout", f"{o.dropout:g}", _why_dropout(o, recipe)),
        ("engine", f"{engine}, {o.dtype}", f"--engine {o.engine}"),
    ]


def _tokens_per_step(options: PretrainOptions, state: State) -> str:
    """Say how many tokens a step has: fewer than fit, as documents end before their sequences are full."""
    most = f"at most {options.tokens_per_step:,}"
    if not state.step:
        return most
    return f"{state.tokens / state.step:,.0f} on average, {most}"


def _why_dropout(options: PretrainOptions, recipe: str) -> str:
    """Say where the dropout comes from."""
    if options.recipe is FURTHER:
        return "that of the model, unless it was given"
    return recipe if options.dropout == options.recipe.dropout else "given"


def _recipe_name(options: PretrainOptions) -> str:
    """Say which recipe a run follows."""
    name = next((name for name, recipe in RECIPES.items() if recipe is options.recipe), "further training")
    if options.size in (name, None):
        return f"recipe of {name}"
    return f"recipe of {name}, the nearest to {options.size}"


def _held_out(task: Pretraining, timetable: Timetable) -> str:
    """Say how much is held out and, for a run with few steps, how little of it is measured."""
    options = task.options
    why = f"a share of {options.held_out:g}"
    if task.text.holds_out_least(options.held_out):
        why = f"the least that has to be; {why} is less"
    if options.minutes is None and options.evaluations:
        share = task.measured_share(timetable.planned_total)
        if share < 1:
            why += f"; so few steps measure {share:.1%} of the usual targets"
    return why


def _warmup_steps(options: PretrainOptions, timetable: Timetable) -> int:
    """Return the number of steps in which the learning rate rises, as the schedule of a run has it."""
    assert options.warmup is not None  # since the run was planned
    return timetable.step_at(round(timetable.planned_total * options.warmup))


def _warmup_text(options: PretrainOptions, timetable: Timetable) -> str:
    """Say how long the learning rate rises: in steps, and as the share that was asked for."""
    return f"{counted(_warmup_steps(options, timetable), 'step')}, a share of {options.warmup:g}"


def _budget(options: PretrainOptions, plan: dict[str, Any], timetable: Timetable) -> str:
    """Say why a run has as many steps as it has."""
    if options.minutes is None:
        return "--steps"
    times = [f"{1000 * seconds:.3g} ms at length {length}" for length, seconds in plan.get("per_step", ())]
    why = f"what fits into {counted(options.minutes, 'minute')}"
    if times:
        why += f": a step took {', '.join(times)}"
    if timetable.total != timetable.planned_total:
        why += f"; {timetable.planned_total:,} were planned, before the speed changed on the way"
    share = plan.get("held_out_share", 1)
    if share < 1:
        why += f"; held-out text is measured on {share:.0%} of the usual targets"
    return why
