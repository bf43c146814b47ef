"""Compare what two commits of minibert compute, byte for byte: did a change keep every bit?

    python benchmarks/same_bits.py OLD [NEW] [--quick] [--engine numpy cpp ...] [--keep FOLDER] [--json]

Each commit (NEW is HEAD by default) gets a temporary git worktree, with its extensions. With every engine
and precision, both versions then run the same commands (`commands`) on small cuts of real data: they
pre-train a BERT on text, fine-tune it for six tasks, resume what the old version left in the middle, and
use its vocabulary, shards and models. Whatever a command reads was written by the old version, so that each
row of the table judges its own command alone.

The data are those in the folder that MINIBERT_DATA names (by default ../shared/data); the examples of SWAG
are HellaSwag's, in SWAG's columns. Files are compared whole, except for what `LEFT_OUT` and `KEYS_LEFT_OUT`
list. The exit status is 1 if any file differs and 125 if the versions can't be compared, as `git bisect run`
expects. --quick (NumPy and two tasks)
takes half a minute of one core, everything takes some ten minutes.
"""

import argparse
import csv
import json
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("MINIBERT_DATA", ROOT.parent / "shared" / "data"))

PRECISIONS = {
    "numpy": ["float32"],
    "numba": ["float32"],
    "cpp": ["float32", "bfloat16"],
    "jax": ["float32", "bfloat16"],
}
TASKS = ["sst2", "mrpc", "stsb", "squad1", "ner", "swag"]
QUICK_TASKS = ["sst2", "ner"]

# Reports, pages, stored options, logs of TensorBoard: they hold times and paths, and their wording changes.
# part.json has a hash of the rules for splitting text, to which 0.2 added that special tokens stay whole.
LEFT_OUT = [
    "report.*",
    "explorer.html",
    "training.json",
    "finetune.json",
    "events.out.tfevents.*",
    "part.json",
]
# JAX keeps what it has compiled, for all commands in which the same program is compiled.
JAX_CACHE = {
    "JAX_COMPILATION_CACHE_DIR": "../../jax-cache",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
# In checkpoints and metrics.jsonl: times, held-out losses of pre-training, for which 0.2 reads less text than
# 0.1, and the metrics of numbers that 0.2 adds.
KEYS_LEFT_OUT = [
    "seconds",
    "tokens_per_second",
    "useful_gflops",
    "peak_share",
    "held_out_loss",
    "held_out_accuracy",
    "dev_r2",
    "dev_rmse",
    "dev_mae",
]


class Command(NamedTuple):
    """One command that both versions run.

    Attributes
    ----------
    title : str
        What the table calls it.
    arguments : str
        Its arguments. It runs in the folder `old` or `new`, beside the folder `data`.
    out : str
        The folder that it writes, in which files are compared.
    begin : str
        The arguments of a command of the old version that begins the folder, if any; each version then
        continues a copy.
    stop_at : int or None
        If given, the old version is interrupted when it writes the checkpoint of this step.
    """

    title: str
    arguments: str
    out: str
    begin: str = ""
    stop_at: int | None = None


class Row(NamedTuple):
    """One row of the table.

    Attributes
    ----------
    title, engine, dtype : str
        What was run, on which engine and in which precision.
    files : int
        Number of files that were compared.
    differing : list of str
        The files that differ or that only one version wrote.
    """

    title: str
    engine: str
    dtype: str
    files: int
    differing: list[str]


def commands(engine: str, dtype: str, tasks: list[str]) -> list[Command]:
    """Return the commands in the order in which they run.

    All flags are older than 0.2. What has no flag here has a default that did not change.

    Parameters
    ----------
    engine, dtype : str
        The engine and the precision of all commands.
    tasks : list of str
        The tasks to fine-tune for.

    Returns
    -------
    list of Command
    """
    compute = f"--engine {engine} --dtype {dtype} --threads 1"
    pretrain = (
        "pretrain --size 2-32-2 --dropout 0.1 --seq-length 16:0.5,32:0.5 --steps 12 --batch-size 8 --lr 2e-3 "
        f"--seed 3 --evaluations 1 --save-every 6 --keep 0 {compute}"
    )
    from_text = f"{pretrain} ../data/text --vocab-size 600"
    finetune = (
        f"--model ../old/pretrain --epochs 2 --max-steps 8 --batch-size 8 --max-length 64 --lr 1e-3 --seed 5 "
        f"--save-every 3 --keep 0 {compute}"
    )
    predict = f"predict --data ../data/{{0}} --model ../old/{{0}} --out predict-{{0}} {compute}"
    result = [
        Command("pretrain", f"{from_text} --out pretrain", "pretrain"),
        Command("pretrain --resume", "pretrain --resume --out half", "half", f"{from_text} --out half", 6),
        Command("data, old vocabulary", "data ../data/text --vocab ../old/pretrain --out data", "data"),
        Command("pretrain, old shards", f"{pretrain} --shards ../old/data --out from-shards", "from-shards"),
    ]
    for task in tasks:
        begin = f"finetune {task} --data ../data/{task} {finetune}"
        result += [
            Command(f"finetune {task}, old model", f"{begin} --out {task}", task),
            Command(f"predict {task}, old model", predict.format(task), f"predict-{task}"),
        ]
        if task == tasks[0]:
            resume, half = "finetune --resume --out half-tuned", f"{begin} --out half-tuned"
            result.append(Command(f"finetune {task} --resume", resume, "half-tuned", half, 3))
    return result


# Comparing two folders.


def differences(old: Path, new: Path) -> tuple[int, list[str]]:
    """Compare the files of two folders.

    Parameters
    ----------
    old, new : Path
        The folders.

    Returns
    -------
    int
        Number of files in either of them, without those in `LEFT_OUT`.
    list of str
        The paths of those that differ or are missing in one folder, relative to the folder, sorted.
    """
    paths = sorted(
        {path.relative_to(folder) for folder in (old, new) for path in folder.rglob("*") if path.is_file()}
    )
    paths = [path for path in paths if not any(path.match(pattern) for pattern in LEFT_OUT)]
    differing = []
    for path in paths:
        in_both = (old / path).exists() and (new / path).exists()
        if not in_both or content(old / path) != content(new / path):
            differing.append(path.as_posix())
    return len(paths), differing


def content(path: Path) -> bytes:
    """Return what is compared of a file.

    Parameters
    ----------
    path : Path
        Any file. A checkpoint is a .safetensors file whose header has the state of the run as JSON, and a
        checksum of that state.

    Returns
    -------
    bytes
    """
    data = path.read_bytes()
    if path.name == "metrics.jsonl":
        return json.dumps([without_keys(json.loads(line)) for line in data.splitlines()]).encode()
    if path.suffix == ".safetensors":
        start = 8 + int.from_bytes(data[:8], "little")  # of the tensors, whose bytes end the file
        header = json.loads(data[8:start])
        metadata = header.get("__metadata__", {})
        if "minibert" in metadata:
            state = without_keys(json.loads(metadata["minibert"]))
            del state["crc32"]["header"]
            metadata["minibert"] = state
        return json.dumps(header).encode() + data[start:]
    return data


def without_keys(value: Any) -> Any:
    """Return a JSON value without the keys in `KEYS_LEFT_OUT`, at any depth."""
    if isinstance(value, dict):
        return {key: without_keys(inner) for key, inner in value.items() if key not in KEYS_LEFT_OUT}
    if isinstance(value, list):
        return [without_keys(inner) for inner in value]
    return value


# The two versions.


def skip(message: str) -> NoReturn:
    """End with 125, which tells `git bisect run` to skip a commit.

    Parameters
    ----------
    message : str
        Why the versions can't be compared.
    """
    print(message, file=sys.stderr)
    raise SystemExit(125)


@contextmanager
def checkouts(old: str, new: str, folder: Path) -> Iterator[list[Path]]:
    """Check out two commits into worktrees below a folder and build them; remove them at the end."""
    paths = [folder / "checkout-old", folder / "checkout-new"]
    try:
        for path, commit in zip(paths, (old, new), strict=True):
            if not git("worktree", "add", "--quiet", "--detach", str(path), commit):
                skip(f"{commit} can't be checked out, see above.")
            build(path, commit)
        yield paths
    finally:
        for path in paths:
            if path.exists():
                git("worktree", "remove", "--force", str(path))


def git(*arguments: str) -> bool:
    """Run git in this repository; return whether it succeeded."""
    return subprocess.run(["git", *arguments], cwd=ROOT).returncode == 0


def modified(path: Path) -> float:
    """Return when a file was last written."""
    return path.stat().st_mtime


def build(checkout: Path, commit: str) -> None:
    """Put the extensions into a checkout.

    Those of the folder that this script is in are copied if they are newer than all its sources, and these
    are the commit's but for lines of comments. Otherwise they are compiled, for this processor alone.

    Parameters
    ----------
    checkout : Path
        The checkout.
    commit : str
        The commit that it is of.

    Raises
    ------
    SystemExit
        When they can't be compiled.
    """
    built = list(ROOT.glob("minibert/**/*.so"))
    sources = [path for path in ROOT.glob("csrc/*/*") if path.is_file()]
    is_newer = built and min(map(modified, built)) > max(map(modified, sources))
    if is_newer and git("diff", "--quiet", "--ignore-matching-lines=^ *//", commit, "--", "csrc"):
        for path in built:
            shutil.copy(path, checkout / path.relative_to(ROOT))
        return
    say(f"building {checkout.name}")
    variables = {"MINIBERT_BUILD_ISAS": "native"} | os.environ
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    result = subprocess.run(command, cwd=checkout, env=variables, capture_output=True, text=True)
    if not list(checkout.glob("minibert/**/_kernels.*")):
        skip(f"{result.stderr}\nThe extensions of {commit} can't be built.")


INTERRUPTED_STATUS = 130  # of a command that Ctrl-C has stopped

# Runs the command line, and presses Ctrl-C when a file whose name contains the first argument is renamed into
# place: checkpoints are written under another name first.
INTERRUPTED = """
import os, runpy, signal, sys
name = sys.argv.pop(1)
def stop(event, arguments):
    if event == "os.rename" and name in str(arguments[1]):
        os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(stop)
runpy.run_module("minibert", run_name="__main__", alter_sys=True)
"""


def run(checkout: Path, folder: Path, arguments: str, stop_at: int | None = None) -> None:
    """Run a command of one version.

    Parameters
    ----------
    checkout : Path
        The version.
    folder : Path
        The folder to run it in.
    arguments : str
        The arguments of the command.
    stop_at : int, optional
        Interrupt it at the checkpoint of this step.

    Raises
    ------
    SystemExit
        When the command fails, or was not interrupted though it should have been.
    """
    # -P keeps the working directory and the folder of this script off the path of modules.
    start = ["-m", "minibert"] if stop_at is None else ["-c", INTERRUPTED, f"step-{stop_at:09d}"]
    command = [sys.executable, "-P", *start, *arguments.split()]
    variables = os.environ | {"PYTHONPATH": str(checkout)} | JAX_CACHE
    result = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    expected = 0 if stop_at is None else INTERRUPTED_STATUS
    if result.returncode != expected:
        skip(f"{result.stderr}\n{checkout.name}: minibert {arguments} ended with {result.returncode}.")


def compare(old: Path, new: Path, folder: Path, engine: str, dtype: str, tasks: list[str]) -> Iterator[Row]:
    """Run all commands on one engine and in one precision.

    Parameters
    ----------
    old, new : Path
        Checkouts of the two versions.
    folder : Path
        Where to write, beside the folder `data`.
    engine, dtype : str
        The engine and the precision.
    tasks : list of str
        The tasks to fine-tune for.

    Yields
    ------
    Row
        One for each command.
    """
    folders = [folder / "old", folder / "new"]
    for path in folders:
        path.mkdir(parents=True)
    for command in commands(engine, dtype, tasks):
        if command.begin:
            run(old, folders[0], command.begin, command.stop_at)
            shutil.copytree(folders[0] / command.out, folders[1] / command.out)
        for checkout, path in zip((old, new), folders, strict=True):
            run(checkout, path, command.arguments)
        count, differing = differences(*(path / command.out for path in folders))
        say(f"{engine} {dtype}: {command.title}: {len(differing)} of {count} files differ")
        yield Row(command.title, engine, dtype, count, differing)


# The data.


def write_data(folder: Path, source: Path) -> None:
    """Write small cuts of real data in their official layouts, a folder for each task.

    Parameters
    ----------
    folder : Path
        The folder to write.
    source : Path
        The folder of the whole data.
    """
    for name in ("text", *TASKS):
        (folder / name).mkdir(parents=True)
    with lzma.open(ROOT / "minibert" / "corpora" / "books.txt.xz", "rt", encoding="utf-8") as books:
        documents = [document.splitlines()[:30] for document in books.read(400_000).split("\n\n")[:10]]
    for name, part in (("1.txt", documents[:5]), ("2.txt", documents[5:])):
        text = "\n\n".join("\n".join(lines) for lines in part)
        (folder / "text" / name).write_text(text + "\n", encoding="utf-8")
    for task, name in (("sst2", "SST-2"), ("mrpc", "MRPC"), ("stsb", "STS-B")):
        for part, rows in (("train.tsv", 48), ("dev.tsv", 16)):
            write_lines(source / "glue" / name / part, folder / task / part, rows + 1)
    for part, lines in (("eng.train", 400), ("eng.testa", 200)):
        write_lines(source / "ner" / part, folder / "ner" / part, lines)
    for name, part, paragraphs in (("train-subset-v1.1", "train", 4), ("dev-v1.1", "dev", 1)):
        squad = json.loads((source / "squad" / f"{name}.json").read_bytes())
        article = squad["data"][0]
        squad["data"] = [article | {"paragraphs": article["paragraphs"][:paragraphs]}]
        (folder / "squad1" / f"{part}-v1.1.json").write_text(json.dumps(squad), encoding="utf-8")
    with open(source / "choice" / "hellaswag__none__validation.jsonl", encoding="utf-8") as lines:
        choices = [json.loads(line) for line in islice(lines, 48)]
    write_swag(folder / "swag" / "train.csv", choices[:32])
    write_swag(folder / "swag" / "val.csv", choices[32:])


def write_lines(source: Path, path: Path, count: int) -> None:
    """Write the first lines of a file; a sentence of CoNLL-2003 that is cut there ends early."""
    with open(source, encoding="utf-8", newline="") as lines:
        path.write_text("".join(islice(lines, count)), encoding="utf-8", newline="")


def write_swag(path: Path, choices: list[dict[str, Any]]) -> None:
    """Write questions of HellaSwag in the columns of SWAG."""
    endings = [f"ending{i}" for i in range(4)]
    with open(path, "w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(
            ["", "video-id", "fold-ind", "startphrase", "sent1", "sent2", "gold-source", *endings, "label"]
        )
        for index, choice in enumerate(choices):
            texts = [choice["ctx"], choice["ctx_a"], choice["ctx_b"], "gold", *choice["endings"]]
            table.writerow([index, choice["source_id"], choice["ind"], *texts, choice["label"]])


# The command.


def table(rows: list[Row]) -> str:
    """Return a row for each command, then the files that differ."""
    lines = ["| what | engine | dtype | files compared | files that differ |", "|---|---|---|---|---|"]
    for row in rows:
        lines.append(f"| {row.title} | {row.engine} | {row.dtype} | {row.files} | {len(row.differing)} |")
    differing = sum(len(row.differing) for row in rows)
    lines.append(f"| all | | | {sum(row.files for row in rows)} | {differing} |")
    for row in rows:
        lines += [f"differs: {row.title}, {row.engine}, {row.dtype}: {path}" for path in row.differing]
    return "\n".join(lines)


def say(text: str) -> None:
    """Report progress on the error stream."""
    print(text, file=sys.stderr, flush=True)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    result = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    result.add_argument("old", metavar="OLD", help="the commit to compare with")
    result.add_argument(
        "new", metavar="NEW", nargs="?", default="HEAD", help="the other commit (default: HEAD)"
    )
    result.add_argument("--quick", action="store_true", help=f"NumPy alone, and {' and '.join(QUICK_TASKS)}")
    result.add_argument("--engine", nargs="+", choices=PRECISIONS, help="these engines (default: all)")
    result.add_argument(
        "--keep", metavar="FOLDER", type=Path, help="a new folder in which to leave all files"
    )
    result.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return result


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    given = parser().parse_args(arguments)
    if not DATA.is_dir():
        skip(f"{DATA} is not there; name the folder of the data: MINIBERT_DATA=...")
    engines = given.engine or (["numpy"] if given.quick else list(PRECISIONS))
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.keep or Path(temporary)
        with checkouts(given.old, given.new, Path(temporary).resolve()) as (old, new):
            for engine in engines:
                for dtype in PRECISIONS[engine]:
                    place = folder.resolve() / f"{engine}-{dtype}"
                    write_data(place / "data", DATA)
                    rows += compare(old, new, place, engine, dtype, QUICK_TASKS if given.quick else TASKS)
    print(json.dumps([row._asdict() for row in rows], indent=1) if given.json else table(rows))
    return int(any(row.differing for row in rows))


if __name__ == "__main__":
    sys.exit(main())
