"""How long minibert and Hugging Face train until their BERT is as good: loss over minutes, as a picture.

    python benchmarks/time_to_loss.py [--quick] [--minutes 30] [--size mini] [--threads 2] [--only cpp]
        [--dtype float32] [--steps N] [--out FOLDER] [--json]

Hugging Face's `BertForPreTraining` as published and minibert's engine in C++ train from the same weights on
the same instances of Wikipedia, in the same order, with the same optimizer, dropout rate and learning rate of
every step. Each takes the dtype that is faster here, tried first. How many steps there are is what Hugging
Face manages in the minutes; the schedule (warm-up, decay to zero) runs over these steps for both, so nobody's
decay is shortened, and who is twice as fast is at its end in half the time. At the same marks both are
measured on the same held-out [MASK] positions, with the clock stopped. minibert ends at the first mark at
which its loss is Hugging Face's last one or lower, or with the schedule.
"""

import argparse
import itertools
import json
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from peers import machine
from peers.bench import ended, require, say
from peers.children import Child, Unavailable
from peers.race import Course
from tokenizer_jobs.tables import table, times
from tokenizer_jobs.texts import WIKIPEDIA

from minibert.base.errors import InputError, RunError
from minibert.base.files import atomic_text, write_atomically
from minibert.base.machine import cores
from minibert.core.config import SIZES
from minibert.pretraining.evaluation import entropy_of_counts
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.preparation import prepare_text
from minibert.reports import viz

PEER, OURS = "Hugging Face", "cpp"
RUNNERS = {PEER: "race_pytorch:HuggingFace", OURS: "race_minibert:Minibert"}
COLOURS = {PEER: viz.RED, OURS: viz.BLUE}
SHORT = {"float32": "fp32", "bfloat16": "bf16"}
LENGTHS = (
    "10:0.2,16:0.2,32:0.4,64:0.2"  # longer ones learn nothing from the few tokens that Hugging Face gets
)
REHEARSAL = 0.02  # share of the minutes in which the rate of a runner and a dtype is measured
Row = dict[str, Any]


class Plan(NamedTuple):
    """How much to do."""

    minutes: float
    size: str
    pieces: int
    targets: int
    marks: int


FULL = Plan(minutes=30, size="mini", pieces=30_522, targets=10_000, marks=40)
QUICK = Plan(minutes=0.3, size="tiny", pieces=2_000, targets=500, marks=5)


class Race:
    """One run of the benchmark.

    Attributes
    ----------
    rows : a point of a curve each, in the order in which they were measured; what --json prints.
    """

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder = options, folder
        self.plan = QUICK if options.quick else FULL
        given = {"minutes": options.minutes, "size": options.size}
        self.plan = self.plan._replace(**{name: value for name, value in given.items() if value is not None})
        self.rows: list[Row] = []
        self.final: np.ndarray | None = None  # (K,) what Hugging Face ends with

    def run(self) -> None:
        """Prepare, rehearse, race."""
        self.prepare()
        names = self.options.only or list(RUNNERS)
        chosen = {name: self.fastest(name) for name in RUNNERS if name in names}
        steps = self.options.steps or self.affordable(chosen)
        say(f"{steps:,} steps for everyone.")
        for name, (dtype, _) in chosen.items():
            self.race(name, dtype, steps)

    def prepare(self) -> None:
        """Vocabulary, shards, and the options that everyone reads."""
        plan = self.plan
        if not WIKIPEDIA.exists():
            say(
                f"{WIKIPEDIA} is not there: the text is that of the package. Name a folder: MINIBERT_DATA=..."
            )
        self.settings = PretrainOptions(
            corpus=(str(WIKIPEDIA),) if WIKIPEDIA.exists() else (),
            size=plan.size,
            vocab_size=plan.pieces,
            seq_length=LENGTHS,
            dropout=0.1,
            steps=1,
        ).resolved()
        self.settings.save(self.folder / "training.json")
        text = prepare_text(self.settings, self.folder)
        self.pieces = text.tokenizer.vocab_size
        say(
            f"BERT-{plan.size}, {self.pieces:,} pieces, {self.settings.tokens_per_step:,} tokens a step, "
            f"lengths {LENGTHS}, rate {self.settings.learning_rate:g}; {text.shards.n_tokens:,} tokens."
        )

    def fastest(self, name: str) -> tuple[str, float]:
        """The dtype in which a runner is fastest here, and its seconds for a step."""
        found, why = {}, ""
        for dtype in [self.options.dtype] if self.options.dtype else SHORT:
            try:
                child = self.child(name, dtype, steps=1)
                try:
                    seconds = child.ask("seconds_per_step", REHEARSAL * 60 * self.plan.minutes)
                finally:
                    child.close()
            except Unavailable as error:
                why = str(error)
                say(f"{name}, {dtype}, is left out: {why}")
                continue
            found[dtype] = seconds
            say(f"{name}, {dtype}: {1000 * seconds:,.0f} ms a step.")
        if not found:
            raise RunError(f"{name} can't run here: {why}")
        return min(found.items(), key=lambda one: one[1])

    def affordable(self, chosen: dict[str, tuple[str, float]]) -> int:
        """The steps of the schedule: what Hugging Face, or who runs without it, manages in the minutes."""
        _, seconds = next(iter(chosen.values()))
        return max(self.plan.marks, round(60 * self.plan.minutes / seconds))

    def race(self, name: str, dtype: str, steps: int) -> None:
        """Train one runner from mark to mark."""
        busy, child = machine.what_disturbs(), self.child(name, dtype, steps)
        if busy:
            say(busy)
        try:
            unigram = entropy_of_counts(np.bincount(child.ask("targets")))
            began = time.monotonic()
            for mark in range(self.plan.marks + 1):
                passed = child.ask("advance", round(steps * mark / self.plan.marks))
                found = child.ask("held_out")
                row = self.row(name, dtype, steps, passed, found, unigram, busy)
                self.rows.append(row)
                left = (time.monotonic() - began) * (self.plan.marks - mark) / mark if mark else math.nan
                self.tell(row, left)
                if mark and name != PEER and self.final is not None and row["difference"] <= 0:
                    break
            if name == PEER:
                self.final = found
        finally:
            child.close()

    def child(self, name: str, dtype: str, steps: int) -> Child:
        settings = {"dtype": dtype} | ({"engine": name} if name == OURS else {})
        course = Course(str(self.folder), steps, self.plan.targets)
        return Child(RUNNERS[name], course, self.options.threads, settings)

    def row(
        self,
        name: str,
        dtype: str,
        steps: int,
        passed: dict[str, float],
        found: np.ndarray,
        unigram: float,
        busy: str | None,
    ) -> Row:
        """A point of a curve; how far it is from Hugging Face's last one, on the very same targets."""
        apart = None if self.final is None else found - self.final
        return {
            "engine": name,
            "dtype": dtype,
            "size": self.plan.size,
            "seq": self.settings.longest,
            "batch": self.settings.batch_size,
            "vocab_size": self.pieces,
            "threads": self.options.threads,
            "steps": steps,
            **passed,
            "minutes": passed["seconds"] / 60,
            "loss": float(found.mean()),
            "unigram": unigram,
            "targets": len(found),
            "difference": None if apart is None else float(apart.mean()),
            "difference_error": None if apart is None else float(apart.std() / math.sqrt(len(apart))),
            "machine": machine.description(),
            "quick": self.options.quick,
            "busy": busy,
        }

    def tell(self, row: Row, left: float) -> None:
        """One line on the way."""
        rate = row["tokens"] / row["seconds"] if row["tokens"] else 0.0
        going = "" if math.isnan(left) or not left else f"; about {left / 60:.1f} minutes to go"
        say(
            f"{row['engine']}, {SHORT[row['dtype']]}: step {row['step']:,} of {row['steps']:,}, "
            f"{row['minutes']:.2f} minutes, {rate:,.0f} tokens/s, held-out loss {row['loss']:.3f}{going}"
        )


def curves(rows: list[Row]) -> dict[str, list[Row]]:
    """The rows of each runner."""
    return {name: list(own) for name, own in itertools.groupby(rows, key=lambda row: row["engine"])}


def text(rows: list[Row]) -> str:
    """What a race came to."""
    if not rows:
        return "Nothing was measured."
    first, found = rows[0], curves(rows)
    lines = [
        f"BERT-{first['size']}, {first['vocab_size']:,} pieces, {first['steps']:,} steps, {first['threads']} "
        f"threads, {first['machine']}; unigram entropy of the {first['targets']:,} targets "
        f"{first['unigram']:.3f} nats."
    ]
    if busy := next((row["busy"] for row in rows if row["busy"]), None):
        lines.append(f"No figure to quote: {busy}")
    if first["quick"]:
        lines.append("Run with --quick: no figure to quote.")
    cells = [
        [
            f"{name}, {SHORT[own[-1]['dtype']]}",
            f"{own[-1]['step']:,}",
            f"{own[-1]['minutes']:.1f}",
            f"{own[-1]['tokens'] / max(1e-9, own[-1]['seconds']):,.0f}",
            f"{own[-1]['loss']:.3f}",
        ]
        for name, own in found.items()
    ]
    lines.append(table("|steps|minutes|tokens/s|held-out loss", iter(cells)))
    if {PEER, OURS} <= found.keys():
        lines.append(verdict(found[PEER], found[OURS]))
    return "\n\n".join(lines)


def verdict(theirs: list[Row], own: list[Row]) -> str:
    """When minibert was as good as Hugging Face at its end."""
    final, last = theirs[-1], own[-1]
    if final["step"] < final["steps"] or last["difference"] is None:
        return f"{PEER} did not come to the end of its schedule."
    if final["loss"] >= theirs[0]["loss"]:
        return f"{PEER} has learnt nothing that shows; its first weights are as good. Give more time."
    share = f"{last['seconds'] / final['seconds']:.0%} of its time"
    faster = times(final["seconds"] / last["seconds"])
    if last["difference"] <= 0:
        return (
            f"minibert has {PEER}'s last loss, {final['loss']:.3f}, after {last['minutes']:.1f} minutes: "
            f"{share} ({faster})."
        )
    apart = f"{last['difference']:.4f} nats (standard error {last['difference_error']:.4f})"
    if last["step"] < last["steps"]:
        return f"minibert was stopped after {last['minutes']:.1f} minutes, {apart} above {PEER}'s last loss."
    unclear = last["difference"] < 2 * last["difference_error"]
    return (
        f"minibert never has {PEER}'s last loss, {final['loss']:.3f}: at the end of the schedule, after "
        f"{last['minutes']:.1f} minutes, {share} ({faster}), it is {apart} above it"
        f"{', which so few targets do not tell from none' * unclear}."
    )


def draw(rows: list[Row], path: Path) -> None:
    """Held-out loss over minutes of training.

    Raises
    ------
    ImportError
        When matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.8), dpi=150, layout="constrained")
    axes, found = figure.subplots(), curves(rows)
    for name, own in found.items():
        title = "minibert" if name == OURS else name
        last = own[-1]
        label = f"{title}, {SHORT[last['dtype']]}: {last['loss']:.3f} after {last['minutes']:.1f} minutes"
        points = [row["minutes"] for row in own], [row["loss"] for row in own]
        axes.plot(*points, "o-", color=COLOURS[name], ms=3, lw=1.4, label=label)
    if PEER in found:
        axes.axhline(found[PEER][-1]["loss"], color=COLOURS[PEER], lw=0.8, ls=":")
    axes.axhline(
        rows[0]["unigram"], color=viz.INK, lw=0.8, ls="--", label="unigram entropy of the same targets"
    )
    axes.set_xlabel(f"minutes of training, {rows[0]['threads']} threads; measuring does not count")
    axes.set_ylabel("held-out loss on [MASK] positions, nats")
    axes.set_title(f"BERT-{rows[0]['size']}, the same {rows[0]['steps']:,} steps for both", fontsize=10)
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    write_atomically(path, lambda temporary: figure.savefig(temporary, format="png"))


def run(options: argparse.Namespace) -> int:
    options.threads = options.threads or min(2, cores())
    require("--threads", [options.threads], range(1, cores() + 1))
    require("--only", options.only or [], sorted(RUNNERS))
    require("--size", [options.size or FULL.size], sorted(SIZES))
    for name in ("minutes", "steps"):
        value = getattr(options, name)
        if value is not None and not 0 < value < math.inf:
            raise InputError(f"--{name} {value} is not a time to race; give a number above 0.")
    out, status = Path(options.out), 0
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        race = Race(options, Path(folder))
        try:
            race.run()
        except KeyboardInterrupt:
            say("stopped; what follows was measured before.")
            status = 130
    atomic_text(out / "rows.json", json.dumps(race.rows, indent=1) + "\n")
    written = [out / "rows.json"]
    if race.rows:
        try:
            draw(race.rows, out / "curves.png")
            written.append(out / "curves.png")
        except ImportError:
            say("there is no picture without matplotlib: pip install matplotlib")
    print(json.dumps(race.rows, indent=1) if options.json else text(race.rows))
    say(f"written: {', '.join(map(str, written))}")
    return status


def main(arguments: list[str] | None = None) -> int:
    """Run and print; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="tiny, seconds: does it work at all?")
    parser.add_argument(
        "--minutes", type=float, metavar="N", help=f"of Hugging Face (default: {FULL.minutes})"
    )
    parser.add_argument("--size", metavar="NAME", help=f"tiny, mini, small, ... (default: {FULL.size})")
    parser.add_argument("--threads", type=int, metavar="N", help="of everyone (default: 2)")
    parser.add_argument("--only", nargs="+", metavar="ENGINE", help=" or ".join(map(repr, RUNNERS)))
    parser.add_argument("--dtype", choices=tuple(SHORT), help="of everyone (default: each one's faster one)")
    parser.add_argument(
        "--steps", type=int, metavar="N", help="of the schedule, instead of what the minutes allow"
    )
    parser.add_argument(
        "--out", metavar="FOLDER", default="runs/time-to-loss", help="for rows.json and curves.png"
    )
    parser.add_argument("--json", action="store_true", help="print a list of rows")
    return ended(lambda: run(parser.parse_args(arguments)))


if __name__ == "__main__":
    sys.exit(main())
