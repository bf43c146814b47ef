"""Fine-tuning: minibert beside Hugging Face's Trainer, on SST-2, MRPC and SQuAD, in one run.

    python benchmarks/finetune.py [--quick] [--task sst2 mrpc squad1] [--size mini base]
        [--dtype float32 bfloat16] [--threads 2] [--only cpp "Hugging Face"] [--rounds 3] [--seconds 20]
        [--json] [--rows FILE] [--write-results]

Everyone trains on the same steps of one epoch: 32 examples each, in the order that `minibert finetune` takes
them. minibert lays them end to end, Trainer pads each step to its longest (dynamic padding). The weights are
random, which costs as much as trained ones. Everyone is a process of its own with as many threads. First,
without dropout, the losses of a few small steps have to be the same; then everyone takes turns, a turn being
as many of the next steps as take the slower one some seconds. Figures are tokens of real text a second,
medians of the turns.
"""

import argparse
import math
import statistics
import sys
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from peers import machine, tuning
from peers.bench import ended, measured_or_read, require, say
from peers.children import Child, Unavailable
from peers.report import SHORT, made_on
from peers.tuning import Epoch
from tokenizer_jobs.tables import table, times
from tokenizer_jobs.texts import DATA, VOCABULARIES

from minibert.base.errors import InputError
from minibert.base.machine import cores
from minibert.core.config import SIZES
from minibert.tasks import registry
from minibert.tokenizer import Tokenizer

OURS, PEER = "cpp", "Hugging Face"
RUNNERS = {PEER: "tune_pytorch:HuggingFace", OURS: "tune_minibert:Minibert"}
TASKS = {"sst2": "SST-2", "mrpc": "MRPC", "squad1": "SQuAD"}
FOLDERS = {"sst2": DATA / "glue", "mrpc": DATA / "glue", "squad1": DATA / "squad"}
VOCABULARY = VOCABULARIES / "bert-base-uncased"
# Largest relative error of the losses of a few steps. bfloat16 has eight bits, and every layer rounds often.
TOLERANCES = {"float32": 1e-4, "bfloat16": 5e-2}
CHECKED = 3  # steps that are compared
# Examples of such a step. Hugging Face's span loss treats padding as a possible position of the answer, so
# the two losses differ wherever there is padding.
FEW = {"classify": 4, "span": 1}
MARK = "<!-- written by `python benchmarks/finetune.py --write-results` -->"
LIMITS = """\
Not covered: other machines, lengths and batches, more threads; evaluation and saving, which are not timed on
either side. Trainer is as published, with scaled_dot_product_attention, fused AdamW and, in bf16, autocast;
its time runs from its first batch to its last update. Before the timing, the losses of small steps without
dropout were the same on both sides."""
SPAN_LIMITS = """\
The epoch of SQuAD has all 4,000 questions of the data used here. Its losses were compared without padding,
because Hugging Face's span loss treats padding as a possible position of the answer."""
Row = dict[str, Any]


class Size(NamedTuple):
    """How much to do."""

    sizes: list[str]
    rounds: int
    seconds: float  # of the slower one in a round


FULL, QUICK = Size(["mini", "base"], 3, 20.0), Size(["tiny"], 2, 0.1)


class Bench:
    """One run of the benchmark.

    Attributes
    ----------
    rows : what --json prints.
    wrong : whether two found different losses.
    """

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder = options, folder
        given = {"sizes": options.size, "rounds": options.rounds, "seconds": options.seconds}
        self.size = QUICK if options.quick else FULL
        self.size = self.size._replace(**{name: value for name, value in given.items() if value})
        self.engines = options.only or list(RUNNERS)
        self.rows: list[Row] = []
        self.wrong = False

    def run(self) -> None:
        """Every task, size and dtype."""
        tasks = [task for task in TASKS if task in self.options.task]
        for task in tasks:
            epoch = self.prepare(task)
            for size in self.size.sizes:
                for dtype in self.options.dtype:
                    say(f"{TASKS[task]}, {size}, {SHORT[dtype]}")
                    self.tune(task, epoch._replace(size=size), dtype)

    def prepare(self, task: str) -> Epoch:
        """The features of a task, as `minibert finetune` makes them, in a file."""
        job, tokenizer = registry.create(task), Tokenizer.from_pretrained(VOCABULARY)
        examples = job.read(FOLDERS[task], "train")
        labels = job.labels(examples)
        features = list(job.features(examples, tokenizer, labels, job.max_length, True))
        path = self.folder / f"{task}.npz"
        tuning.store(path, features)
        return Epoch("", job.head(labels), str(path))

    def tune(self, task: str, epoch: Epoch, dtype: str) -> None:
        """Compare everyone, then time who agrees."""
        engines = self.agreeing(epoch._replace(batch=FEW[epoch.head.kind], dropout=0.0), dtype)
        for threads in self.options.threads if engines else ():
            try:
                rows = self.measure(task, epoch, dtype, threads, engines)
            except Unavailable as error:
                say(f"nothing was measured: {error}.")
                continue
            self.rows += rows
            for row in rows:
                speed = f"{row['tokens_per_second']:,.0f} tokens/s, {row['peak_rss_mb']:,.0f} MB"
                say(f"    {threads} threads, {row['engine']}: {speed}")

    def agreeing(self, epoch: Epoch, dtype: str) -> list[str]:
        """Who finds the losses of the other; nobody, where they differ."""
        found: dict[str, list[float]] = {}
        for engine in self.engines:
            try:
                with closing(self.child(engine, epoch, dtype, max(self.options.threads))) as child:
                    found[engine] = child.ask("advance", 0, CHECKED)["losses"]
            except Unavailable as error:
                say(f"{engine}, {SHORT[dtype]}, is left out: {error}.")
        if complaint := difference(found, TOLERANCES[dtype]):
            self.wrong = True
            say(f"nothing is measured: {complaint}.")
            return []
        return list(found)

    def child(self, engine: str, epoch: Epoch, dtype: str, threads: int) -> Child:
        settings = {"dtype": dtype} | ({"engine": engine} if engine == OURS else {})
        return Child(RUNNERS[engine], epoch, threads, settings)

    def measure(self, task: str, epoch: Epoch, dtype: str, threads: int, engines: list[str]) -> list[Row]:
        """Turns of everyone on the same steps."""
        busy = machine.what_disturbs()
        with ExitStack() as stack:
            children = {
                engine: stack.enter_context(closing(self.child(engine, epoch, dtype, threads)))
                for engine in engines
            }
            slowest = max(child.ask("advance", 0, 2)["seconds"] for child in children.values()) / 2
            steps = max(1, math.ceil(self.size.seconds / slowest))
            turns: dict[str, list[Row]] = {engine: [] for engine in engines}
            for number in range(self.size.rounds):
                first = 2 + number * steps
                for engine in engines[:: -1 if number % 2 else 1]:
                    turns[engine].append(children[engine].ask("advance", first, first + steps))
            rows = [
                self.row(engine, task, threads, busy, children[engine])
                | {"dtype": dtype, "size": epoch.size, "batch": epoch.batch}
                | summary(turns[engine])
                for engine in engines
            ]
        return with_ratios(rows)

    def row(self, engine: str, task: str, threads: int, busy: str | None, child: Child) -> Row:
        """What every row says."""
        return {
            "engine": engine,
            "task": task,
            "threads": threads,
            "peak_rss_mb": child.ask("memory") / 1e6,
            "imported_rss_mb": child.imported / 1e6,
            "machine": machine.description(),
            "quick": self.options.quick,
            "busy": busy,
        }


def difference(found: dict[str, list[float]], tolerance: float) -> str | None:
    """What two engines' losses of the same steps differ by, if by more than rounding."""
    if len(found) < 2:
        return None
    (one, losses), (other, others) = found.items()
    for step, (loss, expected) in enumerate(zip(losses, others, strict=True)):
        if not abs(loss - expected) <= tolerance * abs(expected):
            return f"the loss of step {step} is {loss:.6g} with {one} and {expected:.6g} with {other}"
    return None


def summary(turns: list[Row]) -> Row:
    """All turns of one engine in one."""
    tokens, places = (sum(turn[name] for turn in turns) for name in ("tokens", "places"))
    return {
        "steps": sum(len(turn["losses"]) for turn in turns),
        "tokens": tokens,
        "padding": 1 - tokens / places,
        "seconds": [turn["seconds"] for turn in turns],
        "tokens_per_second": statistics.median(turn["tokens"] / turn["seconds"] for turn in turns),
        "busy_cores": statistics.median(turn["busy_cores"] for turn in turns),
    }


def with_ratios(rows: list[Row]) -> list[Row]:
    """The same rows, with how many times as fast as Hugging Face each is; None without it."""
    theirs = next((row["tokens_per_second"] for row in rows if row["engine"] == PEER), None)
    return [row | {"ratio": theirs and row["tokens_per_second"] / theirs} for row in rows]


def tables(rows: list[Row]) -> str:
    """Everything that was measured, as Markdown."""
    if not rows:
        return "Nothing was measured."
    parts = [made_on(rows, "turns")]
    if busy := max((row["busy"] or "" for row in rows), default=""):
        parts.append(f"No figure to quote: {busy}")
    if any(row["quick"] for row in rows):
        parts.append("Measured with --quick: a tiny model, few steps; no figure to quote.")
    for threads in dict.fromkeys(row["threads"] for row in rows):
        own = [row for row in rows if row["threads"] == threads]
        head = f"{threads} thread{'s' * (threads > 1)}"
        parts.append(f"**Fine-tuning, tokens of real text a second (peak memory, MB)**, {head}:")
        parts.append(grid(own))
    spans = [SPAN_LIMITS] if any(row["task"] == "squad1" for row in rows) else []
    return "\n\n".join([*parts, "\n".join([LIMITS, *spans])])


def grid(rows: list[Row]) -> str:
    """A line for each engine and dtype and one for their ratio, a column for each task and size."""
    cases = list(dict.fromkeys((row["task"], row["size"]) for row in rows))
    lines = []
    for dtype in dict.fromkeys(row["dtype"] for row in rows):
        ratios: list[str] = []
        for engine in dict.fromkeys(row["engine"] for row in rows):
            own = {(r["task"], r["size"]): r for r in rows if (r["dtype"], r["engine"]) == (dtype, engine)}
            cells = [
                f"{own[case]['tokens_per_second']:,.0f} ({own[case]['peak_rss_mb']:,.0f})"
                if case in own
                else ""
                for case in cases
            ]
            if own:
                lines.append([f"{engine}, {SHORT[dtype]}", *cells])
            if engine == OURS and any(row["ratio"] for row in own.values()):
                title = f"**minibert / {PEER}, {SHORT[dtype]}**"
                ratios = [title, *(against(own[case]) if case in own else "" for case in cases)]
        lines += [ratios] if ratios else []
    heads = [f"{TASKS[task]}, {size}" for task, size in cases]
    return table("|".join(["", *heads]), iter(lines))


def against(row: Row) -> str:
    return f"**{times(row['ratio'])}**" if row["ratio"] else ""


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    found.add_argument("--quick", action="store_true", help="a tiny model, few steps: does it work at all?")
    found.add_argument("--task", nargs="+", choices=tuple(TASKS), default=list(TASKS))
    found.add_argument("--size", nargs="+", metavar="NAME", help="tiny, mini, ... (default: mini base)")
    found.add_argument("--dtype", nargs="+", choices=tuple(TOLERANCES), default=list(TOLERANCES))
    found.add_argument("--threads", nargs="+", type=int, metavar="N", help="of everyone (default: 2)")
    found.add_argument("--only", nargs="+", metavar="ENGINE", help=f"{OURS}, or in quotes {PEER!r}")
    found.add_argument("--rounds", type=int, metavar="N", help=f"turns of everyone (default: {FULL.rounds})")
    found.add_argument(
        "--seconds", type=float, metavar="N", help=f"of a turn of the slower one (default: {FULL.seconds:g})"
    )
    found.add_argument("--json", action="store_true", help="print a list of rows")
    found.add_argument("--rows", metavar="FILE", help="measure nothing: tables of what --json has printed")
    found.add_argument(
        "--write-results", dest="write", action="store_true", help="put the tables into docs/results.md"
    )
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run and print; the exit status."""
    return ended(lambda: run(parser().parse_args(arguments)))


def run(options: argparse.Namespace) -> int:
    if options.threads is None:
        options.threads = [min(2, cores())]
    require("--threads", options.threads, range(1, cores() + 1))
    require("--only", options.only or [], list(RUNNERS))
    require("--size", options.size or [], sorted(SIZES))
    if not options.rows:
        require_data(options.task)
    return measured_or_read(options, partial(Bench, options), tables, MARK)


def require_data(tasks: list[str]) -> None:
    """Raise InputError when the files of a task, or the vocabulary, are not there."""
    needed = {FOLDERS[task] for task in tasks} | {VOCABULARY}
    if missing := sorted(str(folder) for folder in needed if not folder.is_dir()):
        raise InputError(
            f"{' and '.join(missing)} are not there; name the folder that has them: MINIBERT_DATA=..."
        )


if __name__ == "__main__":
    sys.exit(main())
