"""One run of fine-tuning: one learning rate and one seed; the best epoch on dev is kept.

A run folder holds `finetune.json` (the options), `metrics.jsonl` and, during the run, `checkpoints/` and
`best/`, the model of the best epoch so far. At the end these two are removed, and there are the model's
files, `dev_predictions.json`, `report.html` and, written last, `report.json`.
"""

import dataclasses
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

from minibert.base.errors import InputError
from minibert.base.files import atomic_json, atomic_text, crc32_of, remove_leftovers
from minibert.base.json_files import parse_json
from minibert.base.machine import cores
from minibert.base.model_names import CHECKPOINTS, MODEL_FILES
from minibert.base.reading import byte_pieces
from minibert.base.terminal import counted
from minibert.core.optim import Optimizer, optimizer_for, warmup_linear
from minibert.core.params import FlatParameters
from minibert.finetuning.best import BEST, CHECKSUMS, best_epoch, check_resumed, save_best
from minibert.finetuning.examples import TRAINED_TEXTS, fingerprint
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.preparation import Prepared
from minibert.hub.checkpoint import Checkpoint, latest
from minibert.model.batch import TaskBatch
from minibert.reports.doctor import Finding, Record, examine, summary
from minibert.reports.page import facts_of, page as page_of, save_report
from minibert.reports.results import Measured, metrics_text, remove_spent, report_of, sweep_text
from minibert.tasks.stored import OPTIONS_FILE, TAGGER_FILE, TASK_FILE
from minibert.tasks.task import Mistake, Tuned
from minibert.training.loop import Loop, State, train
from minibert.training.runlog import OnLog, RunLog, info_if, logger

DEV_PREDICTIONS = "dev_predictions.json"
# Files whose checksums are in the report, beside the `FILES` of a run.
DIGESTED = (*MODEL_FILES, TASK_FILE, TAGGER_FILE, DEV_PREDICTIONS, TRAINED_TEXTS)


@dataclass(frozen=True)
class Run(ABC):
    """What to train, on which data, and where to write; a subclass is one approach to fine-tuning.

    `finetune` makes a run and hands it to `run_once`, which calls `fit`, `deliver`, and writes the report.
    `fit` makes or restores a state (`start`), and gives the training loop the batches and the objective;
    after each epoch the loop calls `evaluate`, which predicts dev (`predict`) and saves the best model so far
    (`save`).

    Attributes
    ----------
    options : FinetuneOptions
        Options of a single run.
    prepared : Prepared
        Task and data.
    ops : Ops
        The engine.
    folder : Path
        Folder of the run.
    peak : float or None
        Peak GFLOP/s of the machine, if known.
    show : bool
        Whether to log the progress for a person watching.
    on_log : callable or None
        Called with whatever is logged.
    FILES : tuple of str
        Names of the files that hold what is trained; each approach has its own.
    config : object or None
        The configuration that a checkpoint has to have, if it is known before one is read.
    """

    options: FinetuneOptions
    prepared: Prepared
    ops: Any
    folder: Path
    peak: float | None = None
    show: bool = True
    on_log: OnLog | None = None

    FILES: ClassVar[tuple[str, ...]]
    config: ClassVar[Any] = None

    @property
    @abstractmethod
    def epoch_size(self) -> int:
        """Return the size of an epoch, in the units of `batch_size`."""

    @abstractmethod
    def initial(self) -> tuple[FlatParameters, dict[str, Any]]:
        """Return the initial parameters, and the plan that every checkpoint stores."""

    @abstractmethod
    def batches(self, state: State) -> Iterator[tuple[TaskBatch, list[int]]]:
        """Yield endless batches from the position of a state on, with the position after each batch.

        Parameters
        ----------
        state : State
            The state to go on from.

        Yields
        ------
        batch : TaskBatch
        position : list of int
        """

    @abstractmethod
    def objective(self, params: Any) -> Any:
        """Return the loss function.

        Parameters
        ----------
        params : FlatParameters
            The parameters to train.
        """

    @abstractmethod
    def predict(self, state: State) -> dict[str, Any]:
        """Return the `predictions` for dev, and anything else to store for the best epoch.

        Parameters
        ----------
        state : State
            The state whose parameters predict.

        Returns
        -------
        dict
            JSON can hold it.
        """

    @abstractmethod
    def save(self, folder: Path, state: State) -> None:
        """Write `FILES` into a folder.

        Parameters
        ----------
        folder : Path
            Where to write; files of these names are replaced.
        state : State
            The state with the parameters.
        """

    @abstractmethod
    def deliver(self, state: State, best: dict[str, Any]) -> dict[str, Any]:
        """Write the other files of a finished model; return what this approach adds to the report.

        Parameters
        ----------
        state : State
            The last state of the run.
        best : dict
            What was stored for the best epoch.

        Returns
        -------
        dict
            JSON can hold it. "baselines", if it is there, holds scores by name.
        """

    @abstractmethod
    def headline(self, state: State) -> str:
        """Describe the run that is about to begin, for the person watching.

        Parameters
        ----------
        state : State
            State of the run, before its first or next step.
        """

    def operations(self, params: Any) -> Callable[[Any], float] | None:
        """Return a function that counts the useful operations of a batch, or None if they are not known.

        Parameters
        ----------
        params : FlatParameters
            The parameters to train.

        Returns
        -------
        callable or None
            Takes a batch and returns a number.
        """
        return None

    @property
    def batch_size(self) -> int:
        """Return the number of examples in a step, from the options or the recipe of the task."""
        return cast(int, self.options.batch_size) or 1  # a single number: only a sweep has several

    @property
    def epochs(self) -> float:
        """Return the number of epochs, from the options or the recipe of the task."""
        return cast(float, self.options.epochs) or 0

    @property
    def epoch_steps(self) -> int:
        """Return the steps of an epoch."""
        return -(-self.epoch_size // self.batch_size)

    @property
    def total_steps(self) -> int:
        """Return the steps of the run."""
        wanted = max(1, round(self.epochs * self.epoch_steps))
        return min(wanted, self.options.max_steps or wanted)

    @property
    def plan_text(self) -> str:
        """Describe the number of steps, the optimizer and its rate in a sentence."""
        o = self.options
        return (
            f"{counted(self.epochs, 'epoch')} of {counted(self.epoch_steps, 'step')} of {o.batch_size}: "
            f"{counted(self.total_steps, 'step')}, {o.optimizer} at learning rate {o.learning_rate:g}, "
            f"seed {o.seed}."
        )

    def rate(self, step: int) -> float:
        """Return the learning rate of a step.

        Parameters
        ----------
        step : int
            Index of the step, from 0.
        """
        o = self.options
        total = self.total_steps
        warmup = round(total * o.warmup)
        return warmup_linear(step, total, warmup, o.learning_rate, o.google_decay)

    def optimizer(self, params: Any) -> Optimizer:
        """Return a new optimizer with the update rule of the options.

        Parameters
        ----------
        params : FlatParameters
            The parameters to update.
        """
        return optimizer_for(params, **self.options.update_rule)

    def start(self, checkpoint: Checkpoint | None = None) -> State:
        """Return the state of a checkpoint or, without one, that of a new run.

        Parameters
        ----------
        checkpoint : Checkpoint, optional
            The checkpoint to go on from.

        Returns
        -------
        State

        Raises
        ------
        InputError
            When the run began with other data.
        """
        if checkpoint is None:
            params, plan = self.initial()
            return State(params, self.optimizer(params), plan=plan)
        state = State(checkpoint.params, self.optimizer(checkpoint.params))
        state.restore(checkpoint)
        self.require_same_data(state.plan.get("data"))
        return state

    def require_same_data(self, fingerprint: Any) -> None:
        """Raise InputError if a run began with other data than there are now.

        Parameters
        ----------
        fingerprint : object
            That of the data it began with, an int; None if it is lost.

        Raises
        ------
        InputError
            When labels or examples differ.
        """
        if fingerprint != self.prepared.data.fingerprint:
            raise self.other_data("there were other examples or labels")

    def other_data(self, why: str) -> InputError:
        """Make the error for a run that is resumed with other data than it began with.

        Parameters
        ----------
        why : str
            What differs.

        Returns
        -------
        InputError
            To be raised.
        """
        begun = f"'{self.options.data}' is not what the run in '{self.folder}' began with"
        return InputError(f"{begun}: {why}; give it the same data.")

    def evaluate(self, state: State) -> dict[str, float]:
        """Evaluate on dev, and save the model if its metric is the best so far.

        Parameters
        ----------
        state : State
            The state to evaluate. Its plan is updated.

        Returns
        -------
        dict
            The scores; their names begin with "dev_".
        """
        task = self.prepared.data.task
        plan = state.plan
        predicted = self.predict(state)
        scores = task.score(self.prepared.data.dev_examples, predicted["predictions"])
        score = scores[task.metric]
        epoch = round(state.step / self.epoch_steps, 2)
        before = plan.get("best")
        remark = ""
        plan["looked"] = state.step
        if before is None or score > before:
            best = {"step": state.step, "epoch": epoch, "scores": scores} | predicted
            plan[CHECKSUMS] = save_best(self.folder / BEST, best, lambda place: self.save(place, state))
            plan["best"] = score
            plan["best_step"] = state.step
            if before is not None:
                remark = ", the best so far"
        info_if(self.show)(f"Epoch {epoch:g}: {metrics_text(scores)} on dev{remark}.")
        return {f"dev_{name}": value for name, value in scores.items()}

    def has_converged(self, state: State) -> bool:
        """Return whether the last `patience` epochs were no better than the best one before them.

        Parameters
        ----------
        state : State
            A state whose plan says at which step the best evaluation was.
        """
        patience = self.options.patience
        if patience is None or "best_step" not in state.plan:
            return False
        epochs_since = (state.plan["looked"] - state.plan["best_step"]) / self.epoch_steps
        return bool(epochs_since >= patience)

    def fit(self) -> tuple[State, dict[str, Any]]:
        """Train, and evaluate after every epoch; go on from the folder's last checkpoint, if there is one.

        Returns
        -------
        state : State
            The last state.
        best : dict
            What was stored for the best epoch: `step`, `epoch`, `scores` and what `predict` returned. Its
            model is in the folder `best`.
        """
        o = self.options
        folder = self.folder
        remove_leftovers(folder, folder / CHECKPOINTS, folder / BEST)
        state = self.start(latest(folder / CHECKPOINTS, self.config, logger.warning, numbers=2))
        total = state.step if self.has_converged(state) else self.total_steps
        if state.step < total:
            check_resumed(folder, state, self.FILES)
        info = info_if(self.show)
        info(self.headline(state))
        if state.step:
            info(f"Resuming from step {state.step:,}.")
        loop = Loop(
            total_steps=total,
            rate=self.rate,
            folder=folder / CHECKPOINTS,
            accumulate=o.accumulate,
            save_seconds=o.checkpoint_seconds,
            save_steps=o.checkpoint_steps,
            max_checkpoints=o.keep,
            evaluate_steps=self.epoch_steps,
            evaluate_at_end=True,
            evaluate=self.evaluate,
            converged=self.has_converged,
            reusable=False,
            operations=self.operations(state.params),
        )
        batches = self.batches(state)
        with RunLog(folder, state.step, total, self.show, self.peak, self.on_log) as log:
            train(self.ops, state, batches, self.objective(state.params), loop, log)
        return state, best_epoch(folder, state, self.FILES)


def run_once(run: Run, began: float) -> tuple[dict[str, Any], Sequence[Finding]]:
    """Train, or go on training, until the folder is finished.

    What follows the training can be repeated if it was interrupted.

    Parameters
    ----------
    run : Run
        The run.
    began : float
        `time.monotonic()` at its beginning.

    Returns
    -------
    report : dict
        The contents of `report.json`.
    findings : sequence of Finding
        What is wrong with the training.
    """
    folder = run.folder
    data = run.prepared.data
    if not (folder / OPTIONS_FILE).exists():
        run.options.save(folder / OPTIONS_FILE)
    state, best = run.fit()
    for name in run.FILES:
        if (folder / BEST / name).exists():  # else it was moved before an interruption
            os.replace(folder / BEST / name, folder / name)
    approach_report = run.deliver(state, best)
    measured, mistakes = _measured(run.prepared, best["predictions"], best.get("tuned", {}))
    atomic_json(folder / DEV_PREDICTIONS, measured.predictions, indent=None)
    atomic_json(folder / TRAINED_TEXTS, {"crc32": data.trained_texts}, indent=None)
    digested = (*run.FILES, *DIGESTED)
    report: dict[str, Any] = {**report_of(measured, mistakes, best["scores"])}
    baselines = approach_report.pop("baselines", {})
    if baselines:
        report["baselines"] |= baselines
    report |= {
        "best_epoch": best["epoch"],
        "best_step": best["step"],
        "parameters": state.params.count(),
        "train_examples": sum(data.train_tasks.values()),
        "train_tasks": data.train_tasks,
        "data_crc32": data.fingerprint,
        "dev_crc32": fingerprint(data.dev_examples),
        "engine": run.ops.name,
        "dtype": run.options.dtype,
        "cores": cores(),
        "steps": state.step,
        "tokens": state.tokens,
        "training_seconds": round(state.seconds, 1),
        "seconds": round(time.monotonic() - began, 1),
        "crc32": {name: crc32_of(folder / name) for name in digested if (folder / name).is_file()},
    }
    report |= approach_report
    findings = save_report(folder, run.options, measured, mistakes, report)
    if findings:
        info_if(run.show)(summary(findings, folder))
    remove_spent(folder)
    return report, findings


def _measured(prepared: Prepared, predictions: Sequence[Any], tuned: Tuned) -> tuple[Measured, list[Mistake]]:
    """Return predictions for dev with what they are compared with, and the mistakes, the worst first."""
    data = prepared.data
    measured = Measured(data.task, data.labels, data.dev_examples, predictions, prepared.bag_of_words, tuned)
    return measured, measured.mistakes(prepared.tokenizer, prepared.max_length)


def write_sweep_page(
    best: Run, report: dict[str, Any], page: Path, findings: Sequence[Finding] | None = None
) -> None:
    """Write the page of a sweep's best run, with the tables of the sweep.

    Parameters
    ----------
    best : Run
        The best run, which is finished.
    report : dict
        Report of the sweep.
    page : Path
        The file to write.
    findings : sequence of Finding, optional
        What is wrong with the training of the best run; by default it is examined.
    """
    folder, options, prepared = best.folder, best.options, best.prepared
    predictions = stored_predictions(folder, len(prepared.data.dev_examples))
    measured, mistakes = _measured(prepared, predictions, report.get("thresholds", {}))
    facts = facts_of(folder, options, measured, mistakes, report, sweep_text(report))
    if findings is None:
        record = Record(folder, options, facts.curve, report)
        findings = examine(record)
    facts = dataclasses.replace(facts, findings=findings)
    atomic_text(page, page_of(facts))


def stored_predictions(folder: Path, examples: int) -> list[Any]:
    """Return the predictions for dev that a finished run has stored.

    Parameters
    ----------
    folder : Path
        Folder of the run.
    examples : int
        Number of examples in dev.

    Returns
    -------
    list
        One prediction for each example, as JSON holds them.

    Raises
    ------
    InputError
        When the file is missing, or holds another number of predictions.
    """
    path = folder / DEV_PREDICTIONS
    predictions = None
    with suppress(ValueError):
        data = b"".join(byte_pieces(path, in_memory=True, streams=False))
        predictions = parse_json(data.decode("utf-8"))
    if not isinstance(predictions, list) or len(predictions) != examples:
        raise InputError(f"{path} does not hold the predictions of {examples:,} examples; restore it.")
    return predictions
