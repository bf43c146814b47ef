"""Every operation by itself: the kernels in C++ beside Numba, NumPy and PyTorch, in one run.

    python benchmarks/ops.py [--quick] [--only gemm attention] [--dtype float32] [--threads 1 2]
        [--engines cpp PyTorch] [--rounds 7] [--json] [--rows FILE] [--write-results]

Everyone is a process of its own with the same arguments and number of threads. First, results have to be
those of the reference in float64, dropout included where it is minibert's; then everyone takes turns, and
figures are medians of the rounds.

What multiplies (gemm, attention) is shown in GFLOP/s and its share of the multiply-adds from registers that
the machine did in the same rounds. What moves memory is shown in GB/s, every argument counted once and every
result once, and its share of what a copy of as many bytes reached in the same rounds. So 100% is a good
implementation, and above it one whose arrays were in cache already.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from peers import machine, ops_report
from peers.bench import ended, measured_or_read, require, say
from peers.children import Child, NoJob, Unavailable, take_turns
from peers.operations import Case, plan
from peers.ops_minibert import Reference

from minibert import engines
from minibert.base.machine import cores

MARK = "<!-- written by `python benchmarks/ops.py --write-results` -->"
RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results-operations.md"
ROUNDS = {False: (7, 0.2), True: (2, 0.01)}  # quick -> rounds, seconds of everyone in a round
WIDE = {"float32": 4, "bfloat16": 2}  # bytes
# Largest relative error, of all elements together and of the largest one. float32 rounds by 6e-8, bfloat16 by
# 4e-3 in each element it stores. A single wrong element among 20 million is an error of 2e-4.
TOLERANCES = {"float32": 2e-5, "bfloat16": 2e-2}
# PyTorch adds millions of squares up in float32, and the gradients of gamma and beta in bfloat16.
OF_PYTORCH = {("global_norm", "float32"): 1e-3} | {
    (op, "bfloat16"): 0.2 for op in ("layer_norm_backward", "residual_norm_backward")
}


class Way(NamedTuple):
    """Who does it, in which precision."""

    engine: str
    dtype: str
    factory: str
    options: dict[str, Any]

    @property
    def own_dropout(self) -> bool:
        """Whether its dropout is minibert's, bit for bit."""
        return self.engine in engines.ENGINES

    def does(self, case: Case) -> bool:
        """Numba multiplies rows with rows only and leaves other products to NumPy's library.

        In bfloat16 the engine in C++ has GELU and LayerNorm as parts of what they belong to, never alone.
        """
        if self.engine == "numba":
            return case.op != "gemm" or case.sizes["turned"] == "b"
        alone = case.op.startswith(("gelu", "layer_norm"))
        return not (self.engine == "cpp" and self.dtype == "bfloat16" and alone)


WAYS = (
    Way("cpp", "float32", "ops_minibert:Cpp", {}),
    Way("cpp", "bfloat16", "ops_minibert:Cpp", {"dtype": "bfloat16"}),
    Way("numba", "float32", "ops_minibert:Reference", {"engine": "numba"}),
    Way("numpy", "float32", "ops_minibert:Reference", {}),
    Way("PyTorch", "float32", "ops_pytorch:PyTorch", {}),
    Way("PyTorch", "bfloat16", "ops_pytorch:PyTorch", {"dtype": "bfloat16"}),
)


class Bench:
    """One run: everyone is compared with float64, then timed by turns.

    Attributes
    ----------
    rows : what --json prints.
    wrong : whether someone found something else than the reference.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.rounds, self.seconds = ROUNDS[options.quick]
        self.rounds = options.rounds or self.rounds
        self.rows: list[dict] = []
        self.wrong = False
        self.began, self.done, self.left = time.time(), 0, 0  # cases

    def run(self) -> None:
        """Every dtype, every number of threads, every case."""
        machine.units()  # before anything takes long, complain of a missing compiler
        wanted = [case for case in plan(self.options.quick) if case.op in (self.options.only or [case.op])]
        cases = {dtype: [case for case in wanted if case.comes_in(dtype)] for dtype in self.options.dtype}
        self.left = sum(map(len, cases.values())) * len(self.options.threads)
        for dtype in self.options.dtype:
            for threads in self.options.threads:
                if cases[dtype]:
                    self.by_turns(cases[dtype], dtype, threads)

    def by_turns(self, cases: list[Case], dtype: str, threads: int) -> None:
        """All cases in one precision."""
        reference, children = Reference(threads, dtype="float64"), self.children(dtype, threads)
        busy = machine.what_disturbs()
        try:
            for case in cases:
                rows = self.measure(case, dtype, threads, children, reference, busy)
                self.rows += rows
                self.done, self.left = self.done + 1, self.left - 1
                seconds = (time.time() - self.began) / self.done * self.left
                shown = ", ".join(f"{row['engine']} {ops_report.figure(row)}" for row in rows)
                say(
                    f"{case.title}, {dtype}, {threads} threads: {shown or 'nobody'}; {duration(seconds)} left"
                )
        finally:
            for child, _ in children.values():
                child.close()

    def children(self, dtype: str, threads: int) -> dict[str, tuple[Child, Way]]:
        """A process for everyone who is there."""
        found = {}
        for way in WAYS:
            if way.dtype == dtype and way.engine in (self.options.engines or [way.engine]):
                try:
                    found[way.engine] = Child(way.factory, NoJob(), threads, way.options), way
                except Unavailable as error:
                    say(f"{way.engine}, {dtype} is left out: {error}.")
        return found

    def measure(
        self,
        case: Case,
        dtype: str,
        threads: int,
        children: dict[str, tuple[Child, Way]],
        reference: Reference,
        busy: str | None,
    ) -> list[dict]:
        """Rows of one case, by those who agree with the reference."""
        expected = {drops: self.expected(case._replace(dropout=drops), dtype, reference) for drops in
                    {False, case.dropout}}  # fmt: skip
        agreeing = {}
        for name, (child, way) in list(children.items()):
            if not way.does(case):
                continue
            try:
                if self.agrees(case, child, way, expected):
                    child.ask("choose", case)
                    agreeing[name] = child
            except Unavailable as error:
                self.lost(name, error, children)
        limits = []

        def between() -> None:
            bytes_ = case.moved(WIDE[dtype]) // 2 if not case.multiplies else 0
            limits.append(
                machine.peak(dtype, threads, 100)
                if case.multiplies
                else machine.copying(max(1, bytes_ // threads), threads, 100)
            )

        runs = take_turns(
            agreeing, self.rounds, self.seconds, between, lambda name, error: self.lost(name, error, children)
        )
        limit = None if None in limits or not limits else statistics.median(limits)
        return [
            self.row(case, children[name][1], threads, found, limit, busy) for name, found in runs.items()
        ]

    def lost(self, name: str, error: Unavailable, children: dict[str, tuple[Child, Way]]) -> None:
        """Go on without someone whose process has ended."""
        say(f"{name} is left out from here on: {error}.")
        self.wrong = True
        children.pop(name)[0].close()

    @staticmethod
    def expected(case: Case, dtype: str, reference: Reference) -> list[np.ndarray]:
        """What is right for arguments that have this precision, in float64."""
        reference.choose(case, dtype)
        return reference.result()

    def agrees(self, case: Case, child: Child, way: Way, expected: dict[bool, list]) -> bool:
        """Whether it finds what is right, with dropout as well if that is minibert's."""
        bound = TOLERANCES[way.dtype]
        if way.engine == "PyTorch":
            bound = OF_PYTORCH.get((case.op, way.dtype), bound)
        for drops, right in expected.items():
            if drops and not way.own_dropout:
                continue
            child.ask("choose", case._replace(dropout=drops))
            if complaint := wrongness(child.ask("result"), right, bound):
                self.wrong = True
                say(f"{case.title}: {way.engine}, {way.dtype} is left out, {complaint}.")
                return False
        return True

    def row(
        self,
        case: Case,
        way: Way,
        threads: int,
        runs: list[tuple[float, float]],
        limit: float | None,
        busy: str | None,
    ) -> dict:
        """One line of --json. Keys that mean nothing for this case are null."""
        seconds = statistics.median(one for one, _ in runs)
        gflops = case.operations / seconds / 1e9 if case.multiplies else None
        rate = None if case.multiplies else case.moved(WIDE[way.dtype]) / seconds / 1e9
        return {
            "engine": way.engine,
            "dtype": way.dtype,
            "op": case.op,
            "title": case.title,
            "sizes": case.sizes,
            "seq": case.seq,
            "dropout": case.dropout,
            "threads": threads,
            "useful_gflops": gflops,
            "peak_gflops": limit if case.multiplies else None,
            "peak_share": gflops / limit if gflops and limit else None,
            "gigabytes_per_second": rate,
            "copy_gigabytes_per_second": None if case.multiplies else limit,
            "copy_share": rate / limit if rate and limit else None,
            "seconds": [one for one, _ in runs],
            "busy_cores": statistics.median(cores for _, cores in runs),
            "machine": machine.description(),
            "quick": self.options.quick,
            "busy": busy,
        }


def duration(seconds: float) -> str:
    """For people who wait."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def wrongness(found: list[np.ndarray], expected: list[np.ndarray], bound: float) -> str | None:
    """Which result differs from what is right, and how much."""
    if len(found) != len(expected):
        return f"it has {len(found)} results, not {len(expected)}"
    for number, (one, right) in enumerate(zip(found, expected, strict=True), 1):
        if one.shape != right.shape:
            return f"its result {number} has shape {one.shape}, not {right.shape}"
        apart = np.abs(one - right)
        error = max(
            float(np.linalg.norm(apart) / np.linalg.norm(right)), float(apart.max() / np.abs(right).max())
        )
        if not error <= bound:
            return f"its result {number} is {error:.2g} away from what is right"
    return None


def parser() -> argparse.ArgumentParser:
    """The options."""
    first, rest = __doc__.split("\n\n", 1)
    found = argparse.ArgumentParser(
        description=first,
        epilog=rest.split("\n\n", 1)[1],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    ops = list(dict.fromkeys(case.op for case in plan(True)))
    engines = list(dict.fromkeys(way.engine for way in WAYS))
    found.add_argument("--quick", action="store_true", help="small work, few rounds: does it work at all?")
    found.add_argument("--only", nargs="+", metavar="OP", help="operations: " + ", ".join(ops))
    found.add_argument("--engines", nargs="+", metavar="NAME", help=", ".join(engines))
    found.add_argument("--dtype", nargs="+", choices=tuple(WIDE), default=list(WIDE))
    found.add_argument("--threads", nargs="+", type=int, metavar="N", help="default: 1 and 2")
    found.add_argument("--rounds", type=int, metavar="N", help="how often everyone has a turn")
    found.add_argument("--json", action="store_true", help="print a list of rows")
    found.add_argument("--rows", metavar="FILE", help="measure nothing: tables of what --json has printed")
    found.add_argument(
        "--write-results",
        dest="write",
        action="store_true",
        help="put the tables into docs/results-operations.md",
    )
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run and print; the exit status."""
    return ended(lambda: _main(parser().parse_args(arguments)))


def _main(options: argparse.Namespace) -> int:
    if options.threads is None:
        options.threads = sorted({1, min(2, cores())})
    require("--threads", options.threads, range(1, cores() + 1))
    require("--only", options.only or [], list(dict.fromkeys(case.op for case in plan(True))))
    require("--engines", options.engines or [], list(dict.fromkeys(way.engine for way in WAYS)))
    return measured_or_read(options, lambda folder: Bench(options), ops_report.tables, MARK, RESULTS)


if __name__ == "__main__":
    sys.exit(main())
