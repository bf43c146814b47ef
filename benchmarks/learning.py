"""What pre-training learns in so many minutes: held-out loss at equal time, by optimizer and by task.

    python benchmarks/learning.py [--out runs/learning] [--minutes 1 2 4 8] [--arms adamw muon no-nsp]
        [--seeds 3] [--size 2-128-4] [--dtype auto] [--jobs 2]

The first seed of an arm is trained by the clock and alone: its minutes are those of the whole command, on
all cores. Other seeds take as many steps as that one did, on the same lengths, `--jobs` of them at a time
with one thread each, as what is learnt depends on steps and not on threads. What is done is kept in --out,
and the same command goes on from there.

"Under" is by how many nats the held-out loss is below the entropy of its targets, at the longest length of
the run; what is held out is read as the arm was trained, in pairs or as one text. The loss per byte is of
whole words in their context, and asks the same of every arm.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from peers import machine

from minibert.base.json_files import read_json

ARMS = {"adamw": [], "muon": ["--optimizer", "muon"], "no-nsp": ["--no-nsp"]}
MINIBERT = [sys.executable, "-m", "minibert"]


def main() -> None:
    """Train what is missing, and print a line for each arm and time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/learning"))
    parser.add_argument("--minutes", type=float, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--size", default="2-128-4")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    common = ["--size", given.size, "--dtype", given.dtype]
    print(f"{machine.description()}; {given.size}\n", flush=True)
    print("| arm | minutes | steps | tokens | under the entropy of the targets | nats per byte |")
    print("|---|---|---|---|---|---|", flush=True)
    for minutes in given.minutes:
        for arm in given.arms:
            print(line_of(arm, minutes, trained(given, arm, minutes, common)), flush=True)


def trained(given: argparse.Namespace, arm: str, minutes: float, common: list[str]) -> list[dict[str, Any]]:
    """Train an arm for so long with every seed, and return what came of each."""
    name = f"{given.size}-{given.dtype}-{arm}-{minutes:g}"
    folders = [given.out / f"{name}-{seed}" for seed in range(given.seeds)]
    first = folders[0]
    if not (first / "report.json").exists() and (disturbed := machine.what_disturbs()):
        sys.exit(f"learning.py: {disturbed}")
    train(first, [*common, *ARMS[arm], "--minutes", f"{minutes:g}"])
    steps = str(read_json(first / "report.json")["steps"])
    lengths = read_json(first / "training.json")["seq_length"]
    same = [*common, *ARMS[arm], "--steps", steps, "--seq-length", lengths, "--evaluations", "1"]

    def again(seed: int) -> None:
        train(folders[seed], [*same, "--threads", "1", "--seed", str(seed)])

    with ThreadPoolExecutor(given.jobs) as pool:
        list(pool.map(again, range(1, given.seeds)))
    return [result_of(folder) for folder in folders]


def train(folder: Path, flags: list[str]) -> None:
    """Pre-train into a folder, unless that has been done; a run that was stopped is begun again."""
    if not (folder / "report.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        command = [*MINIBERT, "pretrain", "--out", str(folder), "--quiet", *flags]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def result_of(folder: Path) -> dict[str, Any]:
    """What a run has learnt: tokens read, nats under the entropy of its targets, nats per byte."""
    kept = folder / "per_byte.json"
    if not kept.exists():
        command = [*MINIBERT, "evaluate", "--model", str(folder), "--per-byte", "--json", "--quiet"]
        kept.write_text(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    report = read_json(folder / "report.json")
    under = report["held_out"]["unigram"] - report["held_out"]["loss"]
    found = {name: report[name] for name in ("tokens", "steps", "training_seconds")}
    return found | {"under": under, "per_byte": read_json(kept)["nats_per_byte"]}


def line_of(arm: str, minutes: float, results: list[dict[str, Any]]) -> str:
    """A line of the table: of several seeds the mean, and their standard deviation."""
    first = results[0]
    pace = f"{first['steps']:,} of {1000 * first['training_seconds'] / first['steps']:.0f} ms"
    found = " | ".join(spread_of(results, name) for name in ("under", "per_byte"))
    return f"| {arm} | {minutes:g} | {pace} | {first['tokens'] / 1e6:.1f}M | {found} |"


def spread_of(results: list[dict[str, Any]], name: str) -> str:
    """A mean, with the standard deviation where there are several."""
    values = [one[name] for one in results]
    return f"{statistics.mean(values):.3f}" + (f" ±{statistics.stdev(values):.3f}" if values[1:] else "")


if __name__ == "__main__":
    main()
