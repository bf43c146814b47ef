"""A process for each way of doing the work: its memory, its threads and its libraries are its own.

All of them stay alive and take turns, so that a change of the machine's mood meets everyone.
"""

import contextlib
import math
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizer_jobs.learn import peak_memory

from minibert.base.errors import RunError
from minibert.core.batch import Batch
from minibert.core.config import BertConfig
from peers.work import Work

POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
PATIENCE = 1800  # seconds for an answer: torch.compile takes its time
SETTLE = 1.0  # seconds; after a pause, what is faster than this runs once without being timed


class Unavailable(RunError):
    """A way that cannot be gone here, and why."""


class Job(NamedTuple):
    """What a process is to work on: a model and a batch."""

    work: Work
    weights: str  # path of a .npy
    dropout: float
    attention_dropout: float | None = None  # as `dropout`

    def arguments(self) -> tuple[BertConfig, Batch, np.ndarray]:
        """What the object is made with, before threads and options."""
        config = self.work.config(self.dropout, self.attention_dropout)
        return config, self.work.make_batch(config), np.load(self.weights)


class NoJob(NamedTuple):
    """For an object that is told later what to work on."""

    def arguments(self) -> tuple:
        """Nothing."""
        return ()


class Child:
    """A process that has made one object and answers calls of its methods.

    Parameters
    ----------
    factory : "module:class" within `peers`. It is given what `job.arguments()` returns, a number of threads
        and the options; its method `run()` does one unit of the work.
    job : what the work is.
    threads : of everything in the process; it is held to as many cores.
    options : more arguments of the class.
    variables : of the environment, beside those that say how many threads.
    """

    def __init__(
        self,
        factory: str,
        job: Job | NoJob,
        threads: int,
        options: dict[str, Any],
        variables: dict[str, str] | None = None,
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._log = tempfile.NamedTemporaryFile("r", errors="replace")
        self._pipe, theirs = context.Pipe()
        task = (theirs, self._log.name, factory, job, threads, options)
        self._process = context.Process(target=_serve, args=task, daemon=True)
        with _starting, _environment(dict.fromkeys(POOLS, str(threads)) | (variables or {})):
            self._process.start()
        theirs.close()
        try:
            self.imported = self._answer()  # bytes, with libraries but without model
            self._answer()
        except BaseException:
            self.close()
            raise

    def ask(self, method: str, *arguments: Any) -> Any:
        """What a method of the object, or a function of this module that takes it first, returns."""
        self._pipe.send((method, arguments))
        return self._answer()

    def _answer(self) -> Any:
        if not self._pipe.poll(PATIENCE):
            raise Unavailable(f"no answer within {PATIENCE} seconds")
        try:
            kind, value = self._pipe.recv()
        except EOFError:
            self._process.join(10)
            last = " | ".join(self._log.read().strip().splitlines()[-3:])
            status = self._process.exitcode
            why = "killed, perhaps for want of memory" if status == -9 else f"ended with status {status}"
            raise Unavailable(f"its process was {why} {last}".strip()) from None
        if kind == "failed":
            raise Unavailable(value)
        return value

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(OSError):  # it has ended already
            self._pipe.send(None)
        self._process.join(20)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._pipe.close()
        self._log.close()


@contextmanager
def _environment(variables: dict[str, str]) -> Any:
    """Variables that libraries read when they are imported."""
    before = dict(os.environ)
    os.environ |= variables | {"TOKENIZERS_PARALLELISM": "false"}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _serve(
    pipe: Any, log: str, factory: str, job: Job | NoJob, threads: int, options: dict[str, Any]
) -> None:
    """The child's side."""
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    sys.stdout.flush()
    os.dup2(output, 1)
    os.dup2(output, 2)
    try:
        if hasattr(os, "sched_setaffinity"):  # for those whose threads go by the number of cores
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
        module, _, name = factory.partition(":")
        make = getattr(import_module(f"peers.{module}"), name)
        pipe.send(("done", resident_memory()))
        made = make(*job.arguments(), threads, **options)
        forget_peak()
        pipe.send(("done", None))
        while (request := pipe.recv()) is not None:
            method, given = request
            own = FUNCTIONS.get(method)
            pipe.send(("done", own(made, *given) if own else getattr(made, method)(*given)))
    except EOFError:
        pass
    except ModuleNotFoundError as error:
        pipe.send(("failed", f"{error.name} is not installed: pip install .[bench,oracle]"))
    except Exception as error:
        pipe.send(("failed", f"{type(error).__name__}: {str(error)[:400]}"))


def result(made: Any) -> Any:
    """What two runs return, or the hidden states where every run returns the same."""
    return made.result() if hasattr(made, "result") else [tuple(made.run().read()) for _ in range(2)]


def warm_up(made: Any) -> float:
    """Run until everything is compiled and allocated; seconds of the last run."""
    _first.append(_seconds(made.run))
    seconds = _seconds(made.run)
    return _seconds(made.run) if seconds < 5 else seconds


def first_run(made: Any) -> float:
    """Seconds of the first run, with all that happens once: compiling above all."""
    return _first[0]


def facts(made: Any) -> dict[str, Any]:
    """What it tells of the device that it computes on; nothing where that is this processor."""
    return made.facts() if hasattr(made, "facts") else {}


def measure(made: Any, times: int) -> tuple[float, float]:
    """Seconds of one run, the mean of so many, and how many cores were busy."""
    if times > 1:
        done(made.run())
    began, used = time.perf_counter(), time.process_time()
    before = None
    for _ in range(times):
        now = made.run()
        done(before)  # a step late, as in a training: a device then has work all the time
        before = now if hasattr(now, "read") else None
    done(before)
    took = time.perf_counter() - began
    return took / times, (time.process_time() - used) / took


def done(result: Any) -> None:
    """Wait for a result where it is one that can be waited for."""
    if hasattr(result, "read"):
        result.read()


def _seconds(run: Callable[[], Any]) -> float:
    began = time.perf_counter()
    done(run())
    return time.perf_counter() - began


def memory(made: Any) -> int:
    """Bytes at most since the model was made."""
    return peak_memory()


FUNCTIONS = {one.__name__: one for one in (result, warm_up, first_run, facts, measure, memory)}
_first: list[float] = []  # what `first_run` tells
_starting = threading.Lock()  # of one process at a time: they get their variables from this one's


def resident_memory() -> int:
    """Bytes in memory now; 0 where the system does not tell."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS")), 0)


def forget_peak() -> None:
    """Let the highest memory be counted from now; where the system cannot, from the beginning."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def take_turns(
    children: dict[Any, Child],
    rounds: int,
    seconds: float,
    between: Callable[[], Any],
    failed: Callable[[Any, Unavailable], None],
    at_once: bool = False,
) -> dict[Any, list[tuple[float, float]]]:
    """Rounds in which everyone runs for about so many seconds.

    Parameters
    ----------
    between : called at the beginning of every round.
    failed : told whose process failed; that one is left out from there on.
    at_once : warm all of them up at once, for those who compile for minutes.

    Returns
    -------
    Of each, by round: seconds of one run, and busy cores.
    """
    found: dict[Any, list[tuple[float, float]]] = {}
    times: dict[Any, int] = {}
    for name, once in each(lambda child: child.ask("warm_up"), children, at_once).items():
        if isinstance(once, Unavailable):
            failed(name, once)
            continue
        times[name] = max(1, math.ceil(seconds / once)) if once < SETTLE else 1
        found[name] = []
    for _ in range(rounds):
        between()
        for name in list(found):
            try:
                found[name].append(children[name].ask("measure", times[name]))
            except Unavailable as error:
                failed(name, error)
                del found[name]
    return found


def each(function: Callable[[Any], Any], items: dict[Any, Any], at_once: bool) -> dict[Any, Any]:
    """What a function returns for each item, or the Unavailable that it raised."""

    def found(item: Any) -> Any:
        try:
            return function(item)
        except Unavailable as error:
            return error

    with ThreadPoolExecutor(max(1, len(items)) if at_once else 1) as pool:
        return dict(zip(items, pool.map(found, items.values()), strict=True))


def seconds_of(call: Callable[[], Any], wait: Callable[[Any], Any], least: float = 0.05) -> float:
    """Seconds of one call, as many being on their way at once as take so long; `wait` waits for a result."""
    wait(call())
    began = time.perf_counter()
    wait(call())
    count = max(3, round(least / (time.perf_counter() - began)))
    began = time.perf_counter()
    for _ in range(count):
        last = call()
    wait(last)
    return (time.perf_counter() - began) / count
