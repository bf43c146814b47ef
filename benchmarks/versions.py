"""Two or more checkouts of minibert against each other, step about step: what did a change bring?

    python benchmarks/versions.py BEFORE AFTER [--size 2-128-4] [--seq 64] [--batch 32] [--vocab-size 8192]
        [--dtype bfloat16] [--threads 2] [--rounds 30] [--json]

Each folder holds a checkout whose kernels are built (`python setup.py build_ext --inplace`), and is a process
of its own that takes a few pre-training steps whenever it is its turn. The model and the batch come from the
checkout's own benchmarks, so its rooms may be the old or the new ones. A machine that is lent to others is
twice as fast in one minute as in the next; so no time is compared but with that of the same round, and the
ratio is the median over rounds, its quartiles beside it. First everyone says the loss and the gradient norm
of the same step: versions that differ there compute something else.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

STEPS = 4  # a turn; the first, which finds caches full of others' work, is not timed
WARM_UP = 5
SHAPE = ("size", "seq", "batch", "vocab_size", "dtype", "threads", "dropout")


class Version(NamedTuple):
    """What was measured of a checkout.

    Attributes
    ----------
    loss, gradient_norm : of the first step.
    milliseconds : of a step, by rounds.
    """

    folder: str
    loss: float
    gradient_norm: float
    milliseconds: list[float]


class Checkout:
    """A process that computes with the minibert of one folder."""

    def __init__(self, folder: str, shape: dict[str, Any]) -> None:
        path = Path(folder).resolve()
        if not list(path.glob("minibert/**/_kernels.*")):
            raise SystemExit(
                f"{folder} is not a checkout of minibert with kernels; build them there: "
                "python setup.py build_ext --inplace."
            )
        # -P, or the peers beside this file would come before the checkout's own.
        command = [sys.executable, "-P", __file__, "--serve", json.dumps(shape)]
        variables = os.environ | {"PYTHONPATH": os.pathsep.join([str(path), str(path / "benchmarks")])}
        self._process = subprocess.Popen(
            command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.folder = folder

    def answer(self) -> Any:
        """What it says next."""
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.folder} can't be measured; its process ended, see above.")
        return json.loads(line)

    def turn(self) -> float:
        """Milliseconds of a step."""
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self.answer()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def measure(folders: list[str], shape: dict[str, Any], rounds: int) -> list[Version]:
    """Everyone's steps, in rounds that each begins with another."""
    checkouts: list[Checkout] = []
    try:
        for folder in folders:
            checkouts.append(Checkout(folder, shape))
        found = [Version(one.folder, *one.answer(), []) for one in checkouts]
        for number in range(rounds):
            for place in range(len(found)):
                which = (number + place) % len(found)
                found[which].milliseconds.append(checkouts[which].turn())
            say(f"\rround {number + 1} of {rounds}")
        say("\n")
    finally:
        for one in checkouts:
            one.close()
    return found


def ratios(first: Version, other: Version) -> list[float]:
    """The times of one over those of the first, round by round, ascending."""
    return sorted(b / a for a, b in zip(first.milliseconds, other.milliseconds, strict=True))


def table(found: list[Version]) -> str:
    """A line for each version."""
    lines = ["  loss   norm  ms, median (least)   time / first (quartiles)"]
    for one in found:
        of = ratios(found[0], one)
        lines.append(
            f"{one.loss:6.4f} {one.gradient_norm:6.3f} {statistics.median(one.milliseconds):8.2f} "
            f"({min(one.milliseconds):.2f}){'':6}{statistics.median(of):8.3f} "
            f"({of[len(of) // 4]:.3f} to {of[-1 - len(of) // 4]:.3f})  {one.folder}"
        )
    return "\n".join(lines)


def serve(shape: dict[str, Any]) -> None:
    """The process of a checkout: a step's loss and gradient norm, then times whenever a line comes."""
    work = import_module("peers.work")
    dropout = shape["dropout"]
    config = work.BertConfig.from_size(
        shape["size"],
        vocab_size=shape["vocab_size"],
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    batch = work.Work(shape["size"], shape["seq"], shape["batch"]).make_batch(config)
    trainer = import_module("peers.train_minibert").Minibert
    trains = trainer(config, batch, work.weights(config), shape["threads"], "cpp", shape["dtype"])
    first = trains.run()
    for _ in range(WARM_UP):
        trains.run()
    print(json.dumps([float(first.loss), float(first.gradient_norm)]), flush=True)
    for _ in sys.stdin:
        trains.run()
        began = time.perf_counter()
        for _ in range(STEPS - 1):
            trains.run()
        print((time.perf_counter() - began) / (STEPS - 1) * 1e3, flush=True)


def say(text: str) -> None:
    """To whoever watches."""
    if sys.stderr.isatty():
        print(text, end="", file=sys.stderr, flush=True)


def options() -> argparse.ArgumentParser:
    """Of the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help="checkouts, the first to compare with")
    parser.add_argument("--size", default="2-128-4", help="tiny, mini, ... or layers-hidden-heads")
    parser.add_argument("--seq", type=int, default=64, metavar="N", help="tokens of a sequence")
    parser.add_argument("--batch", type=int, default=32, metavar="N", help="sequences")
    parser.add_argument("--vocab-size", type=int, default=8192, metavar="N")
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "bfloat16"))
    parser.add_argument("--threads", type=int, default=2, metavar="N")
    parser.add_argument("--dropout", type=float, default=0.0, metavar="RATE")
    parser.add_argument("--rounds", type=int, default=30, metavar="N", help="how often everyone has a turn")
    parser.add_argument("--json", action="store_true", help="print everything that was measured")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    parser = options()
    given = parser.parse_args()
    if given.serve:
        serve(json.loads(given.serve))
    elif len(given.folders) < 2 or given.rounds < 1:
        parser.error("give two folders or more, and at least one round.")
    else:
        measured = measure(given.folders, {name: getattr(given, name) for name in SHAPE}, given.rounds)
        print(json.dumps([one._asdict() for one in measured], indent=1) if given.json else table(measured))
