"""How a training step would use more cores than this machine has: simulated from what one core takes.

    python benchmarks/cores.py [--quick] [--size tiny mini small base] [--batch 64 32 32 8] [--seq 128]
        [--dtype bfloat16] [--cores 2 4 16 64] [--hand-over 100] [--wake 50] [--json]

The kernels are built a second time, with a pool that claims to have N threads, runs the parts of every loop
one after another on a single one, and tells how long each took. From these the step is put together again.
What lies between loops (Python, and what is not shared out) stays as it is, and the parts of a loop go to N
threads as csrc/kernels/threads.cpp hands them out: their own first, then those of the next. Beside it
stands what this machine's own cores bring, as far as there are any: a simulation can be wrong, and there it
shows.

It assumes what can't be measured here: that each waiting thread learns of a loop `--hand-over` nanoseconds
after the one before it, and is waited for as long at its end, and that one asleep takes `--wake`
microseconds. It knows nothing of memory: cores that share its bandwidth or a cache are slower than this, as
are those whose clock falls when all are busy.
"""

import argparse
import ctypes
import heapq
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from minibert.base.machine import cores

ROOT = Path(__file__).resolve().parent.parent
NEEDED = ("csrc", "minibert", "setup.py", "pyproject.toml", "README.md", "LICENSE", "NOTICE", "LICENSES")
POOL = Path(__file__).with_name("peers") / "recording_pool.cpp"
WARM_UP, STEPS = 3, 7
SPINNING = 30_000  # ns for which a waiting thread looks before it sleeps: kSpins of threads.cpp, on a Zen 4
WORKS = {"tiny": 64, "mini": 32, "small": 32, "base": 8}  # sequences


class Loop(NamedTuple):
    """A loop as one core took it.

    Attributes
    ----------
    gap : ns since the loop before it, or since the step began.
    parts : (count,) ns of each of its parts.
    """

    gap: float
    parts: np.ndarray


class Step(NamedTuple):
    """A training step: its loops, and the ns after the last of them."""

    loops: list[Loop]
    rest: float

    @classmethod
    def median(cls, steps: list["Step"]) -> "Step":
        """Of steps with the same loops, number by number, so that what disturbed one of them is left out."""
        if len({tuple(len(loop.parts) for loop in step.loops) for step in steps}) > 1:
            raise SystemExit("The steps had different loops.")
        loops = [
            Loop(
                statistics.median(loop.gap for loop in same),
                np.median([loop.parts for loop in same], axis=0),
            )
            for same in zip(*(step.loops for step in steps), strict=True)
        ]
        return cls(loops, statistics.median(step.rest for step in steps))

    @property
    def wall(self) -> float:
        """ns on one core."""
        return self.rest + sum(loop.gap + float(loop.parts.sum()) for loop in self.loops)


class Simulated(NamedTuple):
    """A step on N threads, in ns."""

    wall: float
    serial: float  # between loops, and in loops of one part
    ideal: float  # of the others, were their work shared out to the nanosecond


def makespan(parts: np.ndarray, late: list[float]) -> float:
    """When the last of a loop's parts is done; thread t begins `late[t]` after the loop does."""
    count, threads = len(parts), len(late)
    ends = [count * (t + 1) // threads for t in range(threads)]
    following = [count * t // threads for t in range(threads)]
    free = [(begin, t) for t, begin in enumerate(late)]
    heapq.heapify(free)
    done = 0.0
    for _ in range(count):
        now, thread = heapq.heappop(free)
        shares = (share % threads for share in range(thread, thread + threads))
        share = next(share for share in shares if following[share] < ends[share])
        end = now + float(parts[following[share]])
        following[share] += 1
        done = max(done, end)
        heapq.heappush(free, (end, thread))
    return done


def simulate(step: Step, threads: int, hand_over: float, wake: float) -> Simulated:
    """Put a step together again for N threads.

    Parameters
    ----------
    hand_over : ns after which the next thread knows of a loop, and for which each is waited for at its end.
    wake : ns that threads need to wake up, where they have waited for so long that they sleep.
    """
    if threads == 1:
        return Simulated(step.wall, step.wall, 0.0)
    # now, and when the others had their last part and will be awake; one step follows another.
    now, worked, awake = 0.0, -step.rest, 0.0
    serial, ideal = step.rest, 0.0
    for gap, parts in step.loops:
        alone = float(parts.sum())
        if len(parts) == 1:
            now, serial = now + gap + alone, serial + gap + alone
            continue
        now, serial, ideal = now + gap, serial + gap, ideal + alone / threads
        if now - worked > SPINNING:
            awake = now + wake
        late = [max(0.0, awake - now) + hand_over * t for t in range(threads)]
        worked = now = now + makespan(parts, [0.0, *late[1:]]) + hand_over * (threads - 1)
    return Simulated(now + step.rest, serial, ideal)


class Recorder:
    """A copy of this checkout whose kernels record."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.path = Path(self._folder.name)
        for name in NEEDED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, self.path / name)
        for built in self.path.glob("minibert/engines/cpp/_kernels.*"):
            built.unlink()
        shutil.copy(POOL, self.path / "csrc" / "kernels" / "threads.cpp")
        build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
        variables = os.environ | {"MINIBERT_BUILD_ISAS": "native"}
        done = subprocess.run(build, cwd=self.path, env=variables, capture_output=True, text=True)
        if done.returncode or not list(self.path.glob("minibert/engines/cpp/_kernels.*")):
            raise SystemExit(f"The kernels that record could not be built: {done.stderr[-500:]}")

    def step(self, work: dict[str, Any]) -> Step:
        """A step of a work, from a process of its own."""
        taken = answer(self.path, work | {"record": True})
        return Step.median(
            [Step([Loop(gap, np.array(parts)) for gap, parts in loops], rest) for loops, rest in taken]
        )


def answer(path: Path, work: dict[str, Any]) -> Any:
    """What `serve` says in the checkout at `path`."""
    command = [sys.executable, __file__, "--serve", json.dumps(work)]
    variables = os.environ | {"PYTHONPATH": os.pathsep.join([str(path), str(ROOT / "benchmarks")])}
    done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit("The process of a measurement ended, see above.")
    return json.loads(done.stdout)


def serve(work: dict[str, Any]) -> None:
    """Take steps; print, for each, its loops (if recorded) and the ns outside them."""
    made = import_module("peers.work").Work(work["size"], work["seq"], work["batch"])
    config = made.config(0.1)
    trainer = import_module("peers.train_minibert").Minibert
    weights = import_module("peers.work").weights(config)
    trains = trainer(config, made.make_batch(config), weights, work["threads"], "cpp", work["dtype"])
    library = ctypes.CDLL(import_module("minibert.engines.cpp._kernels").__file__)
    found: list[Any] = []
    for number in range(WARM_UP + STEPS):
        if work["record"]:
            library.mb_forget()
        began = time.perf_counter_ns()
        trains.run()
        wall = time.perf_counter_ns() - began
        if number >= WARM_UP:
            loops = recorded(library) if work["record"] else []
            found.append((loops, wall - sum(gap + sum(parts) for gap, parts in loops)))
    print(json.dumps(found))


def recorded(library: ctypes.CDLL) -> list[tuple[int, list[int]]]:
    """The loops since the last `mb_forget`, as of `Loop`."""
    size = ctypes.c_int64()
    library.mb_loops.restype = ctypes.POINTER(ctypes.c_int64)
    at = library.mb_loops(ctypes.byref(size))
    numbers, loops, begin = at[: size.value], [], 0
    while begin < len(numbers):
        end = begin + 2 + numbers[begin + 1]
        loops.append((numbers[begin], numbers[begin + 2 : end]))
        begin = end
    return loops


def measure(recorder: Recorder, work: dict[str, Any], given: argparse.Namespace) -> dict[str, Any]:
    """Simulate a work on every number of cores, and take its steps on those that there are."""
    here = {}
    for n in {1, *(n for n in given.cores if n <= cores())}:
        taken = answer(ROOT, work | {"threads": n, "record": False})
        here[n] = statistics.median(wall for _, wall in taken)
    rows, alone = [], recorder.step(work | {"threads": 1}).wall
    for n in given.cores:
        print(f"minibert: {work['size']} as for {n} cores", file=sys.stderr, flush=True)
        step = recorder.step(work | {"threads": n})
        made = simulate(step, n, given.hand_over, given.wake * 1e3)
        shared = [len(loop.parts) for loop in step.loops if len(loop.parts) > 1]
        rows.append(
            {
                "cores": n,
                "milliseconds": made.wall / 1e6,
                "speedup": alone / made.wall,
                "seen": here[1] / here[n] if n in here else None,
                "cutting": step.wall / alone - 1,  # what it costs to cut loops for so many
                "recording": alone / here[1] - 1,
                "serial": made.serial / made.wall,
                "waiting": 1 - (made.serial + made.ideal) / made.wall,
                "loops": len(shared),
                "parts": sum(shared),
            }
        )
    return {"work": work, "rows": rows}


def table(found: list[dict[str, Any]]) -> str:
    """Lines of Markdown."""
    lines = [
        "| | cores | times as fast | seen here | serial | waiting | work added | loops | parts |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in found:
        title = f"{one['work']['size']}, {one['work']['batch']} × {one['work']['seq']}"
        for row in one["rows"]:
            seen = f"{row['seen']:.2f}" if row["seen"] else ""
            lines.append(
                f"| {title} | {row['cores']} | {row['speedup']:.{2 if row['cores'] < 10 else 1}f} | {seen} | "
                f"{row['serial']:.0%} | {row['waiting']:.0%} | {row['cutting']:.0%} | "
                f"{row['loops']:,} | {row['parts']:,} |"
            )
            title = ""
    return "\n".join(lines)


def options() -> argparse.ArgumentParser:
    """Of the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", nargs="+", default=list(WORKS), help="tiny, mini, ...")
    parser.add_argument("--batch", type=int, nargs="+", metavar="N", help="sequences, a number for each size")
    parser.add_argument("--seq", type=int, default=128, metavar="N", help="tokens of a sequence")
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "bfloat16"))
    parser.add_argument("--cores", type=int, nargs="+", default=[2, 4, 16, 64], metavar="N")
    parser.add_argument(
        "--hand-over", type=float, default=100, metavar="NS", help="from thread to thread (100)"
    )
    parser.add_argument("--wake", type=float, default=50, metavar="US", help="of threads asleep (50)")
    parser.add_argument("--quick", action="store_true", help="tiny alone: does it work at all?")
    parser.add_argument("--json", action="store_true", help="print everything that was found")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    parser = options()
    given = parser.parse_args()
    if given.serve:
        serve(json.loads(given.serve))
    else:
        if given.quick:
            given.size, given.batch = ["tiny"], [8]
        batches = given.batch or [WORKS.get(size, 32) for size in given.size]
        if len(batches) != len(given.size):
            parser.error(f"--batch has {len(batches)} numbers, --size {len(given.size)}; give one for each.")
        recorder = Recorder()
        found = [
            measure(recorder, {"size": size, "seq": given.seq, "batch": n, "dtype": given.dtype}, given)
            for size, n in zip(given.size, batches, strict=True)
        ]
        print(json.dumps(found, indent=1) if given.json else table(found))
