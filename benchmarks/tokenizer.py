"""The tokenizer and its learner side by side with Hugging Face's `tokenizers`, in one run on this machine.

    python benchmarks/tokenizer.py [--quick] [--only PART] [--rounds N] [--json] [--write-results]

Encoding: batches of lines with 1 and 2 threads, ids alone and with offsets, and one short string from Python.
Learning: 30,000 pieces from English text, each run in a process of its own, so that its peak of memory and
its threads are its own. Both sides take turns, and figures are medians. Ids are compared before anything is
timed, and the numbers of ids and of pieces afterwards.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from tokenizer_jobs import texts
from tokenizer_jobs.tables import Tables, replace_between_marks

from minibert.base.errors import InputError, RunError
from minibert.base.machine import cores
from minibert.tokenizer import native

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results.md"
PARTS = ("encode", "learn", "shards")
THREADS = (1, 2)
PIECES = 30_000

# Megabytes, rounds, and calls with one short string.
FULL = {
    "encode": 8,
    "encode rounds": 5,
    "calls": 20_000,
    "learn": (115, 500),
    "learn rounds": 3,
    "large": 1000,
    "shards": 500,
}
QUICK = {
    "encode": 2,
    "encode rounds": 3,
    "calls": 5_000,
    "learn": (20,),
    "learn rounds": 1,
    "large": 50,
    "shards": 20,
}


def run_job(job: str, threads: int, arguments: dict[str, Any]) -> Any:
    """What a function of `tokenizer_jobs` returns, called in a Python of its own with so many threads."""
    environment = {
        **os.environ,
        "RAYON_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "true",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, __file__, "--task", job],
        input=json.dumps(arguments),
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        raise RunError(f"the job {job} ended with status {done.returncode}; its message is above.")
    return json.loads(done.stdout.splitlines()[-1])


def do_job(job: str) -> None:
    """The other side of `run_job`."""
    module, _, function = job.partition(".")
    result = getattr(import_module(f"tokenizer_jobs.{module}"), function)(**json.load(sys.stdin))
    print(json.dumps(result))


def measure_encoding(size: dict[str, Any]) -> dict[str, Any]:
    """Batches of every kind of text, then short strings."""
    batches = []
    for case in texts.cases():
        for threads in THREADS:
            say(f"encoding {case.title}, {threads} threads")
            sized = {"case": list(case), "megabytes": size["encode"], "rounds": size["encode rounds"]}
            batches.append(run_job("encode.batch", threads, {**sized, "threads": threads}))
    say("encoding short strings")
    short = run_job("encode.short", 1, {"rounds": size["encode rounds"], "calls": size["calls"]})
    return {"batches": batches, "short": short}


def measure_learning(size: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Both objectives and Hugging Face's trainer by turns, then a large corpus."""
    found = []
    for megabytes in size["learn"]:
        corpus = corpus_file(folder, megabytes)
        for threads in THREADS:
            task = {"path": str(corpus), "pieces": PIECES, "threads": threads}
            ways = {
                "hf": ("learn.hugging_face", task),
                "frequency": ("learn.minibert", {**task, "objective": "frequency"}),
                "likelihood": ("learn.minibert", {**task, "objective": "likelihood"}),
            }
            runs: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
            for number in range(size["learn rounds"]):
                for way, (job, arguments) in ways.items():
                    say(f"learning from {megabytes} MB, {threads} threads, round {number + 1}: {way}")
                    runs[way].append(run_job(job, threads, arguments))
            found.append({"megabytes": megabytes, "threads": threads, **summary(runs)})
        corpus.unlink()
    large = []
    for new_words in (False, True):
        corpus = corpus_file(folder, size["large"], new_words)
        say(f"learning from {size['large']} MB{', new words in every repetition' * new_words}")
        task = {"path": str(corpus), "pieces": PIECES, "threads": 2, "objective": "likelihood"}
        run = without_vocab(run_job("learn.minibert", 2, task))
        large.append({"megabytes": size["large"], "new_words": new_words, **run})
        corpus.unlink()
    return {"learning": found, "large": large}


def summary(runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """The runs without their vocabularies, after checking that all did the same work."""
    vocab = {way: rounds[0]["vocab"] for way, rounds in runs.items()}
    for way in ("frequency", "likelihood"):
        if any(run["vocab"] != vocab[way] for run in runs[way]):
            raise RunError(f"{way} learnt different vocabularies from one corpus.")
    sizes = {way: {len(run["vocab"]) for run in rounds} for way, rounds in runs.items()}
    if len(set.union(*sizes.values())) != 1:
        raise RunError(f"the vocabularies have different sizes: {sizes}.")
    return {
        "pieces": len(vocab["hf"]),
        "pieces_in_common": len(set(vocab["hf"]) & set(vocab["frequency"])),
        **{way: [without_vocab(run) for run in rounds] for way, rounds in runs.items()},
    }


def without_vocab(run: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in run.items() if name != "vocab"}


def measure_shards(size: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A small corpus and a large one: memory must not grow."""
    vocab, found = texts.vocab_of(texts.cases()[0]), []
    for megabytes in (size["shards"] / 10, size["shards"]):
        corpus = corpus_file(folder, megabytes)
        say(f"writing shards of {megabytes:g} MB")
        found.append(run_job("learn.shards", cores(), {"path": str(corpus), "vocab": vocab}))
        corpus.unlink()
    return {"shards": found}


def corpus_file(folder: Path, megabytes: float, new_words: bool = False) -> Path:
    free = shutil.disk_usage(folder).free / 1e6
    if free < 1.5 * megabytes:
        raise RunError(
            f"{folder} has {free:,.0f} MB left for a corpus of {megabytes:g} MB; free some space, "
            "or name another folder: TMPDIR=..."
        )
    return texts.write_repeated(folder / "corpus.txt", megabytes, new_words)


def machine() -> str:
    """What the figures were measured on."""
    model = platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), model)
    return (
        f"{model}, {cores()} cores, Python {platform.python_version()}, "
        f"tokenizers {metadata.version('tokenizers')}"
    )


def say(text: str) -> None:
    print(f"minibert: {text}", file=sys.stderr, flush=True)


def run(options: argparse.Namespace) -> None:
    native.choose("c")
    missing = texts.what_is_missing()
    for sentence in missing:
        say(sentence)
    if options.write_results and (options.only or options.quick or missing):
        raise InputError("--write-results needs the whole benchmark with its data; leave out other options.")
    size, found = QUICK if options.quick else FULL, {"machine": machine(), "quick": options.quick}
    if options.rounds is not None:
        if options.rounds < 1:
            raise InputError(f"--rounds {options.rounds} measures nothing; give 1 or more.")
        size = size | {"encode rounds": options.rounds, "learn rounds": options.rounds}
    parts = [options.only] if options.only else PARTS
    with tempfile.TemporaryDirectory() as folder:
        if "encode" in parts:
            found |= measure_encoding(size)
        if "learn" in parts:
            found |= measure_learning(size, Path(folder))
        if "shards" in parts:
            found |= measure_shards(size, Path(folder))
    text = Tables(found).text()
    print(json.dumps(found, indent=1) if options.json else text)
    if options.write_results:
        RESULTS.write_text(replace_between_marks(RESULTS.read_text("utf-8"), text), "utf-8")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small texts, few rounds: does it work at all?")
    parser.add_argument("--only", choices=PARTS, help="a part of it")
    parser.add_argument("--rounds", type=int, help="of everything; by default 5 of encoding, 3 of learning")
    parser.add_argument("--json", action="store_true", help="print everything that was measured as JSON")
    parser.add_argument("--write-results", action="store_true", help="put the tables into docs/results.md")
    parser.add_argument("--task", metavar="JOB", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.task:
        do_job(options.task)
        return 0
    try:
        run(options)
    except (InputError, RunError) as error:
        say(str(error))
        return 2 if isinstance(error, InputError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
