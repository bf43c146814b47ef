"""The course of a benchmark: everyone is compared with the reference, then everyone is timed by turns."""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizer_jobs.tables import replace_between_marks

from minibert.base.errors import InputError, RunError
from minibert.base.machine import cores
from minibert.core.config import BertConfig
from minibert.model.params import parameter_table
from peers import machine, report
from peers.children import Child, Job, Unavailable, each, take_turns
from peers.ways import REFERENCE, Way, on
from peers.work import Work, weights

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results.md"
VARIABLES = {  # for JAX, which otherwise takes whatever there is, and nearly all of its memory
    "cpu": {"JAX_PLATFORMS": "cpu"},
    "gpu": {"JAX_PLATFORMS": "cuda", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
}
COMPARED = 512  # tokens at most that the reference computes beside a GPU


class Case(NamedTuple):
    """Work, and whom it would keep busy for too long or is not meant for."""

    work: Work
    without: tuple[str, ...] = ()
    only: tuple[str, ...] = ()

    def takes(self, way: Way) -> bool:
        return way.engine not in self.without and (not self.only or way.engine in self.only)


class Kind(NamedTuple):
    """What one benchmark does and another does not."""

    ways: list[Way]
    plan: tuple[Case, ...]
    quick: tuple[Case, ...]
    dropout: float
    kept_bytes: int  # for each parameter
    operations: Callable[[Work], int]
    compare: Callable[[Any, Any, str], str | None]  # what a way found and the reference, dtype -> complaint
    limits: str
    mark: str  # the line of docs/results.md after which its tables stand
    errors: Callable[[Any, Any], dict[str, float]] | None = None  # of what a way found, for --json


class Size(NamedTuple):
    """How long to measure."""

    rounds: int
    seconds: float  # of everyone in a round


FULL, QUICK = Size(5, 1.0), Size(2, 0.1)


class Bench:
    """One run of a benchmark.

    Attributes
    ----------
    rows : what --json prints.
    complaints : whom nothing was measured of, and why.
    wrong : whether a complaint is that someone found something else than the reference.
    on_gpu : whether that is where it happens. Compiling takes longest there, so everyone does it at once.
    """

    def __init__(self, kind: Kind, options: argparse.Namespace, folder: Path) -> None:
        self.folder = folder
        self.kind, self.options = kind, options
        self.on_gpu = options.device == "gpu"
        self.ways, self.variables = on(options.device, kind.ways), VARIABLES[options.device]
        self.size = QUICK if options.quick else FULL
        if options.rounds:
            self.size = self.size._replace(rounds=options.rounds)
        self.rows: list[report.Row] = []
        self.complaints: list[str] = []
        self.errors: dict[str, dict[str, float]] = {}  # of those who agree, by their title
        self.wrong = False

    def run(self) -> None:
        """Every case, every dtype, every number of threads."""
        if not self.on_gpu:
            machine.units()  # before anything takes long, complain of a missing compiler
        cases = chosen_cases(self.kind, self.options)
        for number, case in enumerate(cases):
            for dtype in self.options.dtype:
                ways = [way for way in self.ways if way.dtype == dtype and case.takes(way)]
                ways = [way for way in ways if not self.options.only or way.engine in self.options.only]
                if self.on_gpu:
                    ways = [way for way in ways if way.engine != REFERENCE]
                say(f"case {number + 1} of {len(cases)}: {case.work.title}, {dtype}")
                self.measure(case.work, ways)

    def measure(self, work: Work, ways: list[Way]) -> None:
        """Compare, then time those who agree."""
        path = self.folder / f"{work.size}.npy"
        if not path.exists():
            np.save(path, weights(work.config(0.0)))
        agreeing = self.agreeing(work, ways, str(path))
        for threads in self.options.threads:
            for attention_dropout in self.options.attention_dropout or [self.kind.dropout]:
                if agreeing:
                    self.rows += self.timed(work, agreeing, threads, str(path), attention_dropout)

    def agreeing(self, work: Work, ways: list[Way], path: str) -> list[Way]:
        """The ways that find what the reference finds, without dropout."""
        if self.on_gpu:
            work = work._replace(batch=min(work.batch, max(1, COMPARED // work.seq)))
        job, threads = Job(work, path, 0.0), max(self.options.threads)
        [reference] = [way for way in self.ways if way.engine == REFERENCE]
        found = each(
            lambda way: self.result_of(way, job, threads),
            {way.title: way for way in ([reference, *ways] if ways else [])},
            self.on_gpu,
        )
        expected, kept = found.get(reference.title), []
        if isinstance(expected, Unavailable):
            self.complain(f"{work.title}: there is no reference to compare with: {expected}.")
            return []
        for way in ways:
            result = found[way.title]
            if isinstance(result, Unavailable):
                self.complain(f"{work.title}: {way.title} is left out: {result}.")
            elif complaint := self.kind.compare(result, expected, way.dtype):
                self.wrong = True
                self.complain(f"{work.title}: {way.title} is left out, {complaint}.")
            else:
                kept.append(way)
                self.errors[way.title] = self.kind.errors(result, expected) if self.kind.errors else {}
        return kept

    def result_of(self, way: Way, job: Job, threads: int) -> Any:
        child = Child(way.factory, job, threads, way.options, self.variables)
        try:
            return child.ask("result")
        finally:
            child.close()

    def timed(
        self, work: Work, ways: list[Way], threads: int, path: str, attention_dropout: float
    ) -> list[report.Row]:
        """Rounds of everyone."""
        job, children, peaks = Job(work, path, self.kind.dropout, attention_dropout), {}, []
        named = {way.title: way for way in ways}

        def begun(way: Way) -> Child:
            return Child(way.factory, job, threads, way.options, self.variables)

        def failed(title: str, error: Unavailable) -> None:
            self.complain(f"{work.title}, {threads} threads: {title} is left out: {error}.")

        def between() -> None:
            if not self.on_gpu:
                peaks.append(machine.peak(ways[0].dtype, threads))

        busy = machine.what_disturbs()
        try:
            for title, child in each(begun, named, self.on_gpu).items():
                if isinstance(child, Unavailable):
                    failed(title, child)
                else:
                    children[title] = child
            runs = take_turns(children, self.size.rounds, self.size.seconds, between, failed, self.on_gpu)
            peak = None if None in peaks or not peaks else statistics.median(peaks)
            facts = {title: children[title].ask("facts") for title in runs}
            if self.on_gpu:
                peak = max((known.get("matmul_gflops", 0.0) for known in facts.values()), default=0.0) or None
            rows = [
                self.row(work, named[title], threads, found, peak, busy, children[title])
                | {"attention_dropout": attention_dropout if self.kind.dropout else None}
                | {"errors": self.errors[title]}
                | report.of_one(
                    found, children[title].ask("first_run"), facts[title], self.kind.operations(work)
                )
                for title, found in runs.items()
            ]
        finally:
            for child in children.values():
                child.close()
        for row in rows:
            say(f"    {threads} threads, {row['engine']}: {report.speed(row)}, memory {report.memory(row)}")
        return rows

    def row(
        self,
        work: Work,
        way: Way,
        threads: int,
        runs: list[tuple[float, float]],
        peak: float | None,
        busy: str | None,
        child: Child,
    ) -> report.Row:
        return report.row(
            work,
            way.engine,
            way.dtype,
            threads,
            runs,
            self.kind.operations(work),
            int(work.sequence_lengths().sum()),
            peak,
            peak_rss_mb=child.ask("memory") / 1e6,
            imported_rss_mb=child.imported / 1e6,
            kept_bytes=self.kind.kept_bytes,
            parameters=n_parameters(work.config(0.0)),
            machine=machine.description(),
            quick=self.options.quick,
            busy=busy,
        )

    def complain(self, sentence: str) -> None:
        say(sentence)
        self.complaints.append(sentence)


def n_parameters(config: BertConfig) -> int:
    """Of the whole model with its heads."""
    return sum(entry.size for entry in parameter_table(config))


def chosen_cases(kind: Kind, options: argparse.Namespace) -> list[Case]:
    """The plan, what is asked for of it, or other work altogether."""
    plan = kind.quick if options.quick else kind.plan
    named = {"size": options.size, "seq": options.seq, "batch": options.batch, "lengths": options.lengths}

    def wanted(work: Work) -> bool:
        return all(not values or getattr(work, name) in values for name, values in named.items())

    if not options.seq and not options.batch:
        cases = [case for case in plan if wanted(case.work)]
    else:
        standard = list(dict.fromkeys(case.work for case in plan))
        sizes = options.size or list(dict.fromkeys(work.size for work in standard))
        cases = [
            Case(Work(size, seq, batch, lengths))
            for lengths in options.lengths or ["full"]
            for size in sizes
            for seq in options.seq or [128]
            for batch in options.batch or [next((w.batch for w in standard if w.size == size), 8)]
        ]
    if not cases:
        raise InputError(
            "nothing of the plan is left; name other sizes or lengths, or give --seq or --batch."
        )
    return cases


def parser(description: str, dtypes: Iterable[str] = ("float32", "bfloat16")) -> argparse.ArgumentParser:
    """The options that both benchmarks have; all of the dtypes are measured when none is asked for."""
    found = argparse.ArgumentParser(description=description)
    found.add_argument("--quick", action="store_true", help="small work, few rounds: does it work at all?")
    found.add_argument("--size", nargs="+", metavar="NAME", help="tiny, mini, small, base, ...")
    found.add_argument("--seq", nargs="+", type=int, metavar="N", help="tokens of a sequence")
    found.add_argument("--batch", nargs="+", type=int, metavar="N", help="sequences")
    found.add_argument("--lengths", nargs="+", choices=tuple(report.LENGTHS), help="full, or as in SST-2")
    found.add_argument("--dtype", nargs="+", choices=tuple(dtypes), default=list(dtypes))
    found.add_argument("--threads", nargs="+", type=int, metavar="N", help="default: 1 and 2")
    found.add_argument(
        "--engine", "--only", nargs="+", dest="only", metavar="NAME", help="engines and peers, in quotes"
    )
    found.add_argument("--rounds", type=int, metavar="N", help="how often everyone has a turn")
    found.add_argument("--json", action="store_true", help="print a list of rows")
    found.add_argument("--rows", metavar="FILE", help="measure nothing: tables of what --json has printed")
    found.add_argument(
        "--write-results", dest="write", action="store_true", help="put the tables into docs/results.md"
    )
    found.set_defaults(device="cpu", attention_dropout=None)
    return found


def main(kind: Kind, options: argparse.Namespace) -> int:
    """Run and print; the exit status."""
    return ended(lambda: _main(kind, options))


def _main(kind: Kind, options: argparse.Namespace) -> int:
    if options.threads is None:
        options.threads = sorted({1, min(2, cores())}) if options.device == "cpu" else [cores()]
    require("--threads", options.threads, range(1, cores() + 1))
    require("--engine", options.only or [], sorted({way.engine for way in on(options.device, kind.ways)}))
    for rate in options.attention_dropout or []:
        if not 0 <= rate < 1:
            raise InputError(
                f"--attention-dropout {rate:g} is not a probability below 1; the paper's is 0.1."
            )
    return measured_or_read(
        options, partial(Bench, kind, options), lambda rows: report.tables(rows, kind.limits), kind.mark
    )


def measured_or_read(
    options: argparse.Namespace,
    make: Callable[[Path], Any],
    tables: Callable[[list[dict[str, Any]]], str],
    mark: str,
    page: Path | None = None,
) -> int:
    """Measure, or read what --rows names; print it, and put it into a page if that is asked for.

    Parameters
    ----------
    options : with `rows`, `json` and `write`.
    make : of a folder for what comes up on the way; its result measures by `run()`, and then has `rows` and,
        where something was not right, `wrong`.
    tables : of rows, as Markdown.
    mark : the line of the page after which they stand.
    page : where to write them, docs/results.md when left out.

    Returns
    -------
    The exit status.
    """
    status = 0
    if options.rows:
        rows = read_rows(options.rows)
    else:
        if busy := machine.what_disturbs():
            say(busy)
        with tempfile.TemporaryDirectory() as folder:
            bench = make(Path(folder))
            try:
                bench.run()
                status = int(bench.wrong or not bench.rows)
            except KeyboardInterrupt:
                say("stopped; what follows was measured before.")
                status = 130
        rows = bench.rows
    try:
        disturbed = any(row["quick"] or row["busy"] for row in rows)
        text = tables(rows)
    except (KeyError, TypeError) as error:
        if not options.rows:
            raise
        raise InputError(
            f"--rows {options.rows} holds rows of something else ({error} is not there, or of another kind); "
            "name what this benchmark has printed with --json."
        ) from error
    page = page or RESULTS
    if options.write and (status or disturbed):
        raise InputError(f"{page.name} takes only full rows from a quiet machine; it is as it was.")
    print(json.dumps(rows, indent=1) if options.json else text)
    if options.write:
        page.write_text(replace_between_marks(page.read_text("utf-8"), text, mark, page.name), "utf-8")
    return status


def read_rows(file: str) -> list[dict[str, Any]]:
    """What a benchmark has printed with --json.

    Raises
    ------
    InputError
        When there is no such file, or it holds no rows.
    """
    try:
        rows = json.loads(Path(file).read_text("utf-8"))
    except OSError as error:
        raise InputError(f"--rows {file} can't be read ({error.strerror}); check the name.") from error
    except ValueError as error:
        raise InputError(f"--rows {file} is not JSON ({error}); name what --json has printed.") from error
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"--rows {file} holds no list of rows; name what --json has printed.")
    return rows


def ended(run: Callable[[], int]) -> int:
    """The exit status that a run returns, or that of what went wrong in it, which is told in a sentence."""
    try:
        return run()
    except (InputError, RunError) as error:
        say(str(error))
        return 2 if isinstance(error, InputError) else 1


def require(option: str, given: Iterable[Any], possible: Iterable[Any]) -> None:
    """Raise InputError for a value that cannot be."""
    for value in given:
        if value not in possible:
            raise InputError(f"{option} {value} is none of {', '.join(map(str, possible))}.")


def say(text: str) -> None:
    print(f"minibert: {text}", file=sys.stderr, flush=True)
