"""Kill and disturb every kind of run on every engine, and see whether anything is lost.

    make soak                    every cell of the matrix once; it goes on where it was stopped
    make soak ARGS='--jobs pre-training --engines numpy --disturbances SIGKILL --count 20'
    make soak ARGS='--long 240'  four hours of one training: memory, open files, speed; see `long_run`
    make soak ARGS=--table       add what was found to the record, and write docs/reliability.md's table

A finished cell is a line of JSON in build/soak.jsonl, and after `--table` in benchmarks/recorded/soak.jsonl,
where lines with `times` have the counts of cells whose own lines are lost. After a disturbance the
checkpoints have to load; then the command is given again, and has to end with the bytes, the log and the
files of an undisturbed run.
"""

import argparse
import collections
import itertools
import json
import random
import signal
import sys
import tempfile
import time
import zlib
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "support")]

from disturbances import DISTURBANCES, Source, Undisturbed  # noqa: E402
from disturbed import HUNG, JOBS, SAVE_EVERY, Commands, Server, contents  # noqa: E402
from long_run import long_run  # noqa: E402
from paths import ROOT  # noqa: E402

from minibert.base.errors import InputError  # noqa: E402
from minibert.base.files import is_in_use  # noqa: E402
from minibert.hub.checkpoint import checkpoints, load_checkpoint  # noqa: E402
from minibert.training.runlog import METRICS, read_metrics  # noqa: E402

ENGINES = ("numpy", "numba", "cpp", "jax")
ANY = "none"  # the engine of jobs in which none computes
COLUMNS = (*ENGINES, ANY)
RESULTS = ROOT / "build" / "soak.jsonl"
RECORD = ROOT / "benchmarks" / "recorded" / "soak.jsonl"
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- soak: begin -->", "<!-- soak: end -->"
KEY = ("job", "engine", "disturbance", "number", "seed")  # of a cell
FAULTS = ("lost", "differing", "traceback", "left", "refused")  # what a cell may be found with
SENTENCES = (
    "minibert: ",
    "OpenBLAS error: Memory allocation",
)  # the second is OpenBLAS's own, which ends the process
TRIES = 8  # to reach a run with a signal before it ends


class Scene:
    """A job on an engine: its command, and what it leaves when nothing happens to it."""

    def __init__(self, job: str, server: Server, folder: Path) -> None:
        self.job = JOBS[job]
        self.commands = Commands.of(job, folder, server)
        self.source = Source(folder / self.job.source)
        self._run_well()  # compiles, imports
        began = time.monotonic()
        expected = self._run_well()
        seconds = time.monotonic() - began
        counted = json.loads(self.commands.calls.read_text())
        self.usual = Undisturbed(counted["calls"], seconds, counted["memory"])
        self.source.change()
        self.allowed = [expected, self._run_well()]  # of the text as it was, and as it is once it was changed
        self.source.restore()

    def _run_well(self):
        self.commands.clear()
        status = self.commands.run()
        assert status == 0, self.commands.said()
        return contents(self.commands.root)

    def meet(self, disturbance: str, rng: random.Random) -> dict | None:
        """Let a run meet with a disturbance, and go on with it; return what was found, None if it can't."""
        kind = DISTURBANCES[disturbance]
        sooner = 1.0
        for _ in range(TRIES):
            self.commands.clear()
            self.source.restore()
            asked = kind.draw(rng, self.usual)
            if asked is None:
                return None
            if "after" in asked:
                asked["after"] *= sooner
            meeting = Meeting(self, kind, rng)
            meeting.disturb(asked)
            if "after" not in asked or meeting.found["statuses"] != [0]:
                break
            sooner *= 0.7  # it had ended by then
        meeting.go_on()
        return {"asked": asked, **meeting.found}


class Meeting:
    """One run, what happened to it, and what was found then."""

    def __init__(self, scene, kind, rng):
        self.scene, self.kind, self.rng, self.commands = scene, kind, rng, scene.commands
        self.found = dict.fromkeys(FAULTS, 0) | {"statuses": [], "why": []}
        self.allowed = scene.allowed if kind.meanwhile == "changed" else scene.allowed[:1]

    def blame(self, fault, why):
        self.found[fault] += 1
        self.found["why"].append(f"{fault}: {why[-2000:]}")

    def disturb(self, asked):
        """Run the command once, and let the disturbance happen."""
        status = self.commands.run(meanwhile=self.meanwhile, **asked)
        self.judge_ending(status, self.kind.statuses, explained="terminal" not in asked)
        self.judge_checkpoints()

    def meanwhile(self):
        """Do what happens while the run waits; return the signal that it gets then."""
        source = self.scene.source
        if self.kind.meanwhile == "second":
            errors = self.commands.errors.with_name("second")
            self.judge_ending(self.commands.run(errors=errors), (0, 1, 2), errors)
            return int(signal.SIGCONT)
        (source.change if self.kind.meanwhile == "changed" else source.move)()
        return int(self.rng.choice((signal.SIGCONT, signal.SIGKILL)))

    def judge_ending(self, status, statuses, errors=None, explained=True):
        """Judge an exit status, and what was printed: a sentence, if it failed and somebody can read it."""
        said = (errors or self.commands.errors).read_text("utf-8", "replace")
        self.found["statuses"].append(status)
        if "Traceback" in said or "Exception ignored" in said or status == HUNG:
            self.blame("traceback", said)
        elif status not in statuses:
            self.blame("traceback", f"status {status}: {said}")
        elif explained and status in (1, 2) and not any(f"\n{start}" in f"\n{said}" for start in SENTENCES):
            self.blame("traceback", f"no sentence: {said}")

    def judge_checkpoints(self):
        """Load every checkpoint; the last one has to be that of the last save before the log's end."""
        for folder in self.commands.out.rglob("checkpoints"):
            steps = []
            for path in checkpoints(folder):
                try:
                    steps.append(load_checkpoint(path).state["step"])
                except (InputError, OSError) as error:
                    self.blame("lost", str(error))
            if (folder.parent / METRICS).exists():
                logged = max((line["step"] for line in read_metrics(folder.parent)), default=0)
                saved = (logged - 1) // SAVE_EVERY * SAVE_EVERY
                if saved > max(steps, default=0):
                    self.blame("lost", f"step {saved} was saved, {steps} are there")

    def go_on(self):
        """Give the command again until it ends well; then compare all that is there."""
        commands, source = self.commands, self.scene.source
        if is_in_use(commands.out):
            self.blame("left", "the folder is still locked")
        done = contents(commands.root) in self.allowed
        if not done or self.scene.job.resumes and self.found["statuses"][-1]:
            status = commands.run()
            if status and self.kind.meanwhile in ("changed", "moved"):
                self.judge_ending(status, (0, 1, 2))
                source.restore()
                status = commands.run()
                if status and self.kind.meanwhile == "changed":
                    self.judge_ending(status, (0, 1, 2))
                    source.change()
                    status = commands.run()
            self.judge_ending(status, (0,))
            if status:
                self.blame("refused", commands.said())
        self.compare(contents(commands.root))

    def compare(self, found):
        """Compare what is there with what has to be."""
        if found in self.allowed:
            return
        expected = self.allowed[0]
        for name in sorted(found.keys() - expected.keys()):
            self.blame("left", name)
        for name in sorted(expected):
            if found.get(name) != expected[name]:
                self.blame("differing", f"{name}{'' if name in found else ' is missing'}")


def cells(jobs, engines, disturbances, count):
    """Yield the cells of the matrix, one job on one engine after the other."""
    for engine in engines:
        for job in jobs:
            if JOBS[job].engine == (engine != ANY):
                for number in range(count):
                    for disturbance in disturbances:
                        yield job, engine, disturbance, number


def stored(path):
    """Return the lines of a file by their key: cells, or counts of cells that lack a part of it."""
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return {tuple(row.get(name) for name in KEY): row for row in rows}


def soak(wanted, seed):
    """Run the cells that are missing, and add each to the file."""
    done = stored(RESULTS)
    missing = [cell for cell in wanted if (*cell, seed) not in done]
    print(f"{len(missing)} of {len(wanted)} cells are to be run", flush=True)
    RESULTS.parent.mkdir(exist_ok=True)
    began, failed = time.monotonic(), 0
    number = 0
    for engine, of_engine in itertools.groupby(missing, lambda cell: cell[1]):
        with Server("numpy" if engine == ANY else engine) as server:
            for job, of_job in itertools.groupby(of_engine, lambda cell: cell[0]):
                with tempfile.TemporaryDirectory(prefix="soak-") as folder:
                    scene = Scene(job, server, Path(folder))
                    for cell in of_job:
                        row = meet(scene, cell, seed)
                        failed += bool(faults_of(row))
                        number += 1
                        rate = number / (time.monotonic() - began) * 60
                        told = "; ".join(row.get("why", ())) or "well"
                        told = f"{job} x {cell[2]} x {engine}: {told}"
                        print(f"{number}/{len(missing)}  {rate:.1f} a minute  {told}", flush=True)
    return failed


def meet(scene, cell, seed):
    """Run a cell, and add it to the file."""
    row = dict(zip(KEY, (*cell, seed), strict=True))
    rng = random.Random(zlib.crc32(" ".join(map(str, row.values())).encode()))
    row |= scene.meet(row["disturbance"], rng) or {"asked": None}
    with open(RESULTS, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    return row


def faults_of(row):
    """Count what was found wrong in a cell."""
    return sum(row.get(fault, 0) for fault in FAULTS)


def table(rows):
    """Make the Markdown of the page."""
    rows = [row for row in rows if row.get("asked", True) is not None]
    counts = collections.Counter()
    for row in rows:
        counts[row.get("job"), row.get("engine")] += row.get("times", 1)
    lines = ["| job | " + " | ".join(COLUMNS) + " |", "|---|" + "---:|" * len(COLUMNS)]
    for job in JOBS:
        shown = [str(counts[job, engine] or "–") for engine in COLUMNS]
        lines.append(f"| {job} | {' | '.join(shown)} |")
    totals = [str(sum(counts[job, engine] for job in JOBS)) for engine in COLUMNS]
    lines.append(f"| together | {' | '.join(totals)} |")
    lines += ["", "| disturbance | how | times | lost | differing | tracebacks | left behind | not resumed |"]
    lines.append("|---|---|" + "---:|" * 6)
    for name, kind in DISTURBANCES.items():
        met = [row for row in rows if row.get("disturbance") == name]
        lines.append(f"| {name} | {kind.about} | {sums_of(met)} |")
    met = [row for row in rows if "disturbance" in row]
    lines.append(f"| together | | {sums_of(met)} |")
    return "\n".join(lines)


def sums_of(rows):
    """Return the cells of a line of the table: how often, and what was found."""
    sums = [sum(row.get("times", 1) for row in rows)]
    sums += [sum(row[fault] for row in rows) for fault in FAULTS]
    return " | ".join(map(str, sums))


def write_table():
    """Add the cells that were run to the record; write the table between the two marks of the page."""
    rows = stored(RECORD) | stored(RESULTS)
    RECORD.write_text("".join(f"{json.dumps(row)}\n" for row in rows.values()), "utf-8")
    page = PAGE.read_text("utf-8")
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n\n{table(rows.values())}\n\n{END}{after}", "utf-8")


def listed(known):
    """Return a type of argparse for names between commas."""

    def parse(text):
        names = text.split(",")
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(
                f"{', '.join(unknown)} is not known; choose from {', '.join(known)}"
            )
        return names

    return parse


def main(argv=None):
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=listed(JOBS), default=list(JOBS), metavar="NAME,...")
    parser.add_argument("--engines", type=listed(COLUMNS), default=list(COLUMNS), metavar="NAME,...")
    parser.add_argument(
        "--disturbances", type=listed(DISTURBANCES), default=list(DISTURBANCES), metavar="NAME,..."
    )
    parser.add_argument("--count", type=int, default=1, help="how often each cell is run (default: 1)")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn (default: 0)")
    parser.add_argument("--table", action="store_true", help="add to the record, renew docs/reliability.md")
    parser.add_argument("--long", type=float, metavar="MINUTES", help="train once, for so long")
    arguments = parser.parse_args(argv)
    if arguments.long:
        return print(json.dumps(long_run(arguments.long, arguments.engines[0])))
    if arguments.table:
        return write_table()
    wanted = list(cells(arguments.jobs, arguments.engines, arguments.disturbances, arguments.count))
    return int(soak(wanted, arguments.seed) > 0)


if __name__ == "__main__":
    sys.exit(main())
