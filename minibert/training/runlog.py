"""The log of a run: lines in `metrics.jsonl`, TensorBoard events, and what a person watching sees."""

import inspect
import json
import logging
import os
import socket
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias, cast

from tqdm import tqdm

from minibert.base.errors import StopTraining
from minibert.base.files import atomic_text, require_same, writing
from minibert.base.json_files import fits, parse_json
from minibert.base.reading import byte_pieces
from minibert.base.terminal import printable_text

METRICS = "metrics.jsonl"
SMOOTHING = 0.95  # decay of the moving averages on the screen; the files hold the values of every step
SPEEDS = {  # names in the files, and formats on the screen
    "tokens_per_second": "{:,.0f} tokens/s",
    "useful_gflops": "{:,.0f} GFLOP/s",
    "peak_share": "{:.0%} of peak",
}
BAR = "{n_fmt}/{total_fmt}  {remaining} left{postfix}"
PROGRESS_BAR = "{{l_bar}}{{bar}}| {{n_fmt}}/{{total_fmt}} {}, {{rate_fmt}}, {{remaining}} left"
MEASURED = ("held_out_", "dev_")  # prefixes of the names of evaluation metrics
OnLog: TypeAlias = Callable[[int, dict[str, float]], Any]
ON_LOG = "a function of the number of a step and its values"
LogMessage: TypeAlias = Callable[[str], None]
LAST_LINES = 100  # of training, which `read_metrics` keeps in any case
QUIET_SECONDS = 10.0  # between two lines if there is no terminal, and between two flushes for TensorBoard
tqdm.set_lock(threading.RLock())  # tqdm makes its own at the first line; Ctrl-C at that moment leaves none


def takes_log(function: Any) -> bool:
    """Return whether a value is a function that can be called as `on_log` is.

    Parameters
    ----------
    function : object

    Returns
    -------
    bool
        False for a class, which would only make an object, and for a function whose signature is not known:
        what it takes would show only in the middle of a run.
    """
    if not callable(function) or isinstance(function, type):
        return False
    try:
        inspect.signature(function).bind(1, {})
    except (TypeError, ValueError):
        return False
    return True


class RunLog(AbstractContextManager["RunLog"]):
    """Record a run in files, and show its progress.

    `metrics.jsonl` is appended to, after lines later than `step` have been removed. A run that is resumed
    from a checkpoint therefore has one line for every step, as if it had never stopped.

    Parameters
    ----------
    folder : str or Path
        Folder of the run; made if it does not exist.
    step : int
        Number of steps that the run has taken.
    total : int
        Number of steps after which it ends.
    show : bool, default True
        Whether to show the progress; otherwise there are only files.
    peak : float, optional
        Peak GFLOP/s of the machine, to show speeds as shares of it as well.
    on_log : callable, optional
        Called with the number of each step and its values, named as `grouped` does. It may raise
        StopTraining, which sets `stop_requested`.
    """

    def __init__(
        self,
        folder: str | Path,
        step: int,
        total: int,
        show: bool = True,
        peak: float | None = None,
        on_log: OnLog | None = None,
    ) -> None:
        self._path = path = Path(folder) / METRICS
        if path.exists():
            kept = [line for line in read_metrics(folder) if line["step"] <= step]
            atomic_text(path, "".join(f"{json.dumps(line)}\n" for line in kept))
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(path, "a", encoding="utf-8", newline="\n")  # noqa: SIM115 (closed in __exit__)
            self._events: Any = None
            try:
                with suppress(ImportError):  # if tensorboardX is not installed
                    self._events = EventFile(path.parent / "tensorboard", step)
            except OSError:
                self._file.close()
                raise
        self._bar = bar(show, total=total, initial=step, bar_format=BAR)
        self._lines = show and self._bar.disable  # without a terminal there is a line now and then
        self._peak = peak
        self._info = info_if(show)
        self._on_log = on_log
        self.stop_requested = False  # whether `on_log` has raised StopTraining
        self._first = step  # first step from which to estimate the remaining time
        self._began = self._shown = time.monotonic()
        self._smooth: dict[str, float] = {}

    def __exit__(self, kind: Any, *_: Any) -> None:
        self._bar.close()
        try:
            if kind is None:
                self.sync()
        finally:
            for file in filter(None, (self._file, self._events)):
                with suppress(OSError):  # a full disk was reported when the line was written
                    file.close()

    def record(self, step: int, values: dict[str, float]) -> None:
        """Append a line to `metrics.jsonl` and flush it, in case of a crash; raise RunError if that fails.

        Parameters
        ----------
        step : int
            Number of steps taken.
        values : dict from str to float
            Values to record, by name.
        """
        with writing(self._path):
            self._file.write(json.dumps({"step": step, **values}) + "\n")
            self._file.flush()
            if self._events:
                self._events.write(step, grouped(values))
        if self._on_log:
            try:
                self._on_log(step, grouped(values))
            except StopTraining:
                self.stop_requested = True

    def sync(self) -> None:
        """Write `metrics.jsonl` to disk, so that no checkpoint is ahead of it.

        Raise RunError when the disk is full, or the file was moved or replaced.
        """
        with writing(self._path):
            os.fsync(self._file.fileno())
        require_same(self._path, os.fstat(self._file.fileno()))

    def end_at(self, total: int) -> None:
        """Change the number of steps after which the run ends.

        Parameters
        ----------
        total : int
            The new number.
        """
        self._bar.total = total

    def info(self, text: str) -> None:
        """Log a message.

        Parameters
        ----------
        text : str
            A sentence.
        """
        self._info(text)

    def step(
        self, step: int, tokens: int, values: dict[str, float], seconds: float = 0.0, operations: float = 0.0
    ) -> None:
        """Record a training step, and show its losses, accuracies and learning rate.

        Parameters
        ----------
        step : int
            Number of the step, from 1.
        tokens : int
            Number of tokens of the step.
        values : dict from str to float
            Metrics of the step, among them "learning_rate".
        seconds : float, default 0.0
            Duration of the step; 0 if it says nothing about other steps.
        operations : float, default 0.0
            Useful floating-point operations of the step; 0 if they are not counted.
        """
        spent: dict[str, float] = {}
        if seconds:
            spent = {"step_tokens": tokens, "step_operations": operations, "step_seconds": seconds}
        for name, value in (values | spent).items():
            before = self._smooth.get(name, value)
            self._smooth[name] = SMOOTHING * before + (1 - SMOOTHING) * value
        self._smooth["learning_rate"] = values["learning_rate"]
        self.record(step, values | self._speed(spent))
        if not seconds:  # such a step says nothing about the remaining time either
            self._first = step
            self._began = time.monotonic()
        if not self._bar.disable:
            self._bar.set_postfix_str(self._values_text(), refresh=False)
            self._bar.update(step - self._bar.n)
        elif self._lines and (time.monotonic() - self._shown > QUIET_SECONDS or step == self._bar.total):
            self._shown = time.monotonic()
            left = ""
            if step > self._first:
                seconds_a_step = (self._shown - self._began) / (step - self._first)
                rest = seconds_a_step * (self._bar.total - step)
                left = f"  {tqdm.format_interval(rest)} left"
            logger.info(f"step {step:,}/{self._bar.total:,}  {self._values_text()}{left}")

    def _values_text(self) -> str:
        """Format losses (accuracies), speed and, last, as narrow terminals cut it off, the learning rate."""
        losses = [name for name in self._smooth if name.endswith("loss")]
        parts = [name for name in losses if name != "loss"]  # they say more than their sum, "loss"
        shown = []
        for name in parts or losses:
            accuracy = self._smooth.get(name.removesuffix("loss") + "accuracy")
            text = f"{name.replace('_', ' ')} {self._smooth[name]:.3f}"
            if accuracy is not None:
                text += f" ({accuracy:.0%})"
            shown.append(text)
        speed = self._speed(self._smooth)
        for name, form in SPEEDS.items():
            if name in speed:
                shown.append(form.format(speed[name]))
        shown.append(f"rate {self._smooth['learning_rate']:.1e}")
        return "  ".join(shown)

    def _speed(self, spent: dict[str, float]) -> dict[str, float]:
        """Compute tokens and operations per second, and the share of the machine's peak, where known."""
        if "step_seconds" not in spent:
            return {}
        seconds = spent["step_seconds"]
        speed = {"tokens_per_second": round(spent["step_tokens"] / seconds, 1)}
        if spent["step_operations"]:
            rate = spent["step_operations"] / seconds / 1e9
            speed["useful_gflops"] = round(rate, 2)
            if self._peak:
                speed["peak_share"] = round(rate / self._peak, 4)
        return speed


def grouped(values: dict[str, float]) -> dict[str, float]:
    """Name values by groups, as loggers show them: `train/`, `eval/` and `speed/`.

    Parameters
    ----------
    values : dict from str to float
        Values by their names in `metrics.jsonl`.

    Returns
    -------
    dict from str to float
        The same values in the same order. A prefix such as "held_out_" is replaced by `eval/`.

    Examples
    --------
    >>> grouped({"loss": 2.0, "held_out_loss": 2.5, "tokens_per_second": 9e4})
    {'train/loss': 2.0, 'eval/loss': 2.5, 'speed/tokens_per_second': 90000.0}
    """
    named = {}
    for name, value in values.items():
        group = "speed/" if name in SPEEDS else "train/"
        for beginning in MEASURED:
            if name.startswith(beginning):
                group = "eval/"
                name = name.removeprefix(beginning)
        named[group + name] = value
    return named


def bar(show: bool, **options: Any) -> Any:
    """Make a progress bar of tqdm's: a widget in a notebook that has widgets.

    Parameters
    ----------
    show : bool
        Whether to show the bar. Without a terminal it is hidden in any case.
    **options
        Other arguments of tqdm.

    Returns
    -------
    tqdm
        Its attribute `disable` says whether it is hidden.
    """
    kind: Any = tqdm
    if "ipykernel" in sys.modules:
        with warnings.catch_warnings(action="ignore"):  # a notebook without ipywidgets gets a plain bar
            kind = import_module("tqdm.auto").tqdm
    disable = None if show else True  # None: disabled if there is no terminal
    return kind(disable=disable, leave=False, **options)


class DefaultHandler(logging.Handler):
    """Write messages to the error stream, above a progress bar if there is one.

    Where a program has handlers of its own, of the root logger or of "minibert", they get every message, and
    this one writes nothing: no message is shown twice.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write one message; what can't be read on a terminal is escaped, as `printable_text` does.

        Parameters
        ----------
        record : LogRecord
            The message.
        """
        others = [handler for handler in logger.handlers if handler is not self]
        if logger.propagate:
            others += logging.getLogger().handlers
        if others:
            return
        with suppress(OSError):  # of a terminal that was closed: nobody is watching
            tqdm.write(printable_text(self.format(record)), file=sys.stderr)
            sys.stderr.flush()


# All messages about progress: where they go, and which, is the caller's choice by the means of `logging`.
logger = logging.getLogger("minibert")
for handler in list(logger.handlers):  # where this module is loaded again, as by %autoreload
    if type(handler).__name__ == DefaultHandler.__name__:
        logger.removeHandler(handler)
logger.addHandler(DefaultHandler())
if logger.level == logging.NOTSET:  # nobody has chosen one; that of the root shows warnings only
    logger.setLevel(logging.INFO)


def info_if(show: bool) -> LogMessage:
    """Return the function that logs the messages of a run.

    Parameters
    ----------
    show : bool
        Whether somebody watches. Otherwise the messages have the level DEBUG, which is not shown by default.

    Returns
    -------
    callable
        Called with a sentence.
    """
    return logger.info if show else logger.debug


class Progress(AbstractContextManager["Progress"]):
    """Show how much work is done, and how long the rest will take.

    Parameters
    ----------
    total : int or None
        How much work there is; None if that is not known.
    unit : str
        The unit of the work, such as "tokens".
    show : bool, default True
        Whether to show anything.
    """

    def __init__(self, total: int | None, unit: str, show: bool = True) -> None:
        self._unit = unit
        form = {"unit": f" {unit}"}
        if total:
            form = {"unit": "", "bar_format": PROGRESS_BAR.format(unit)}
        self._bar = bar(show, total=total, unit_scale=True, **form)
        self._lines = show and self._bar.disable  # without a terminal there is a line now and then
        self._total = total
        self._done = 0
        self._began = self._shown = time.monotonic()

    def __exit__(self, *_: Any) -> None:
        self._bar.close()

    def add(self, count: int) -> None:
        """Count more work as done.

        Parameters
        ----------
        count : int
            Units of work since the last call.
        """
        self._done += count
        self._bar.update(count)
        now = time.monotonic()
        if self._lines and now - self._shown > QUIET_SECONDS:
            self._shown = now
            rate = self._done / (now - self._began)
            share = ""
            left = ""
            if self._total and self._done:
                share = f" of {self._total:,}"
                rest = (self._total - self._done) / rate
                left = f", {tqdm.format_interval(rest)} left"
            logger.info(f"{self._done:,}{share} {self._unit}, {rate:,.0f} a second{left}")


def read_metrics(folder: str | Path, most: int | None = None) -> list[dict[str, float]]:
    """Return the lines of `metrics.jsonl`; what is not one, such as a line cut short by a crash, is left out.

    Parameters
    ----------
    folder : str or Path
        Folder of the run.
    most : int, default None
        If there are more lines, keep at most so many at even distances, all evaluations, and the last
        `LAST_LINES`; None: all. The lines are read one by one, so the memory does not grow with the run.

    Returns
    -------
    list of dict from str to float
        In the order of the file, each with its "step".

    Raises
    ------
    InputError
        When the file can't be read; a `MissingFile` when it does not exist.
    """
    kept: dict[int, dict[str, float]] = {}
    evaluations: dict[int, dict[str, float]] = {}
    last: deque[tuple[int, dict[str, float]]] = deque(maxlen=LAST_LINES)
    distance = 1
    for number, values in enumerate(_metrics(Path(folder) / METRICS)):
        if is_evaluation(values):
            evaluations[number] = values
            continue
        if most is None or number % distance == 0:
            kept[number] = values
        if most is not None and len(kept) > most:
            distance *= 2
            kept = {at: line for at, line in kept.items() if at % distance == 0}
        last.append((number, values))
    kept |= evaluations | dict(last)
    return [kept[number] for number in sorted(kept)]


def is_evaluation(values: dict[str, float]) -> bool:
    """Return whether a line of `metrics.jsonl` has the metrics of an evaluation.

    Parameters
    ----------
    values : dict from str to float
        The line.

    Returns
    -------
    bool
    """
    return any(name.startswith(MEASURED) for name in values)


def _metrics(path: Path) -> Iterator[dict[str, float]]:
    """Yield the lines of a file of metrics, one by one."""
    for line in _lines(path):
        with suppress(ValueError):
            values = parse_json(line.decode("utf-8"))
            if fits(values, dict[str, float]) and fits(values, {"step": int}):
                yield values


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, without their ends."""
    unfinished: list[bytes] = []  # pieces of a line that may be very long, and are joined only once
    for piece in byte_pieces(path, streams=False):
        first, *others = piece.split(b"\n")
        unfinished.append(first)
        if others:
            yield b"".join(unfinished)
            yield from others[:-1]
            unfinished = others[-1:]
    yield b"".join(unfinished)


class EventFile:
    """Write TensorBoard events directly: SummaryWriter, with its queue, would wait for ever on a full disk.

    TensorBoard forgets what earlier files say about steps after `step`.

    Parameters
    ----------
    folder : Path
        Folder of the events; made if it does not exist.
    step : int
        Number of steps that the run has taken.
    """

    def __init__(self, folder: Path, step: int) -> None:
        hides = "torch" not in sys.modules  # tensorboardX would import it, which takes seconds
        sys.modules.setdefault("torch", cast(Any, None))
        try:
            from tensorboardX.proto import event_pb2, summary_pb2
            from tensorboardX.record_writer import RecordWriter
        finally:
            if hides:
                del sys.modules["torch"]
        self._event = event_pb2.Event
        self._summary = summary_pb2.Summary
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}"
        self._writer = RecordWriter(str(folder / name))
        self._flushed = 0.0
        self._append(file_version="brain.Event:2")
        begins = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._append(step=step + 1, session_log=begins)

    def write(self, step: int, values: dict[str, float]) -> None:
        """Write one event with all values of a step.

        Parameters
        ----------
        step : int
            Number of steps taken.
        values : dict from str to float
            Values by the names that TensorBoard shows.
        """
        scalars = []
        for name, value in values.items():
            scalars.append(self._summary.Value(tag=name, simple_value=value))
        self._append(step=step, summary=self._summary(value=scalars))
        if time.monotonic() - self._flushed > QUIET_SECONDS:  # flushing waits for the disk
            self._writer.flush()
            self._flushed = time.monotonic()

    def close(self) -> None:
        """Close the file even if the disk is full; tensorboardX would leave it open."""
        self._writer.close()

    def _append(self, **fields: Any) -> None:
        event = self._event(wall_time=time.time(), **fields)
        self._writer.write(event.SerializeToString())


class NoLog:
    """A log that does nothing, for processes other than the one with the `RunLog`."""

    def _nothing(self, *_: Any) -> None: ...

    info = step = record = sync = end_at = _nothing
    stop_requested = False


Log: TypeAlias = RunLog | NoLog
