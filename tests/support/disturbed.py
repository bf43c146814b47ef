"""Small jobs of the command line, a process that disturbs them, and what they leave behind."""

import json
import shutil
import string
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import small_entities
from command import environment
from paths import ROOT
from small_tasks import reviews, write_model, write_sst2

from minibert.hub.checkpoint import load_checkpoint
from minibert.training.runlog import METRICS, SPEEDS, read_metrics

KILLED = 137
HUNG = 124  # the status of a command that had to be killed because it did not end
TIMES = {"seconds", "training_seconds", *SPEEDS}
SAVE_EVERY = 2
PRETRAIN = [
    "--seq-length=8:0.4,16:0.6", "--batch-size=2", "--held-out=0.2", "--evaluations=2", "--steps=5",
    f"--save-every={SAVE_EVERY}", "--layout=sentences",
]  # fmt: skip
FINETUNE = ["--epochs=2", "--max-steps=5", "--batch-size=16", f"--save-every={SAVE_EVERY}"]


class Job(NamedTuple):
    """A command of about a second, without --out and --engine."""

    prepare: Callable[[Path], list[str]]  # writes what it reads into a folder, and returns its words
    source: str  # the file in that folder that it reads
    engine: bool = True  # whether an engine computes in it
    resumes: bool = False  # whether it goes on with --resume; otherwise the same words again do


def text_of(seeds) -> str:
    """Documents of six sentences."""
    return "\n\n".join("\n".join(text for text, _ in reviews(6, seed)) for seed in seeds) + "\n"


def write_text(folder: Path) -> Path:
    """The file of some documents."""
    path = folder / "text"
    path.write_text(text_of(range(8)))
    return path


def write_facts(folder: Path) -> Path:
    """The same of names and places, with words that no model knows."""
    path = folder / "text"
    documents = []
    for name in small_entities.NAMES * 4:
        lines = [
            f"{name} {verb}ed in {place}." for place in small_entities.PLACES for verb in ("walk", "talk")
        ]
        documents.append("\n".join(lines))
    path.write_text("\n\n".join(documents) + "\n")
    return path


def pretraining(folder: Path) -> list[str]:
    return ["pretrain", str(write_text(folder)), f"--model={write_model(folder / 'model')}", *PRETRAIN]


def finetuning(folder: Path) -> list[str]:
    model, data = write_model(folder / "model"), write_sst2(folder / "data", 48, 20)
    return ["finetune", "sst2", f"--model={model}", f"--data={data}", *FINETUNE]


def sweep(folder: Path) -> list[str]:
    return [*finetuning(folder), "--lr=5e-3,1e-3", "--max-steps=3"]


def feature_based(folder: Path) -> list[str]:
    model, data = small_entities.write_model(folder / "model"), small_entities.write_data(folder / "data")
    sizes = ["--width=8", "--batch-size=8", "--max-length=16", "--epochs=2", f"--save-every={SAVE_EVERY}"]
    return ["finetune", "ner", "--feature-based=last", f"--model={model}", f"--data={data}", *sizes]


def vocabulary(folder: Path) -> list[str]:
    return ["vocab", str(write_text(folder)), "--vocab-size=60", "--held-out=0.1"]


def shards(folder: Path) -> list[str]:
    vocab = write_model(folder / "model") / "vocab.txt"
    return ["data", str(write_text(folder)), f"--vocab={vocab}", "--layout=sentences"]


def reproduce(folder: Path) -> list[str]:
    """The tables and scales that `small_experiment` puts in place."""
    data = write_sst2(folder / "data", 32, 16)
    return [
        "reproduce",
        "table5",
        "--scale=smoke",
        "--seeds=1",
        f"--text={write_facts(folder)}",
        f"--data={data}",
    ]


def extend(folder: Path) -> list[str]:
    letters = [mark + letter for letter in string.ascii_lowercase for mark in ("", "##")]
    words = [*small_entities.WORDS, *(letter for letter in letters if letter not in small_entities.WORDS)]
    text, model = write_facts(folder), small_entities.write_model(folder / "model", words)
    other = folder / "other"
    other.write_text(text.read_text())
    learning = [f"--learn-from={text}", "--n=4", f"--measure-on={other}"]
    return ["extend", f"--model={model}", *learning, "--special-token=[FILM]"]


def export(folder: Path) -> list[str]:
    return ["export", f"--model={write_model(folder / 'model')}", "--dtype=float16"]


JOBS = {
    "pre-training": Job(pretraining, "text", resumes=True),
    "fine-tuning": Job(finetuning, "data/train.tsv", resumes=True),
    "sweep": Job(sweep, "data/train.tsv", resumes=True),
    "feature-based": Job(feature_based, "data/eng.train", resumes=True),
    "vocabulary": Job(vocabulary, "text", engine=False),
    "shards": Job(shards, "text", engine=False),
    "reproduce": Job(reproduce, "text"),
    "extend": Job(extend, "text"),
    "export": Job(export, "model/model.safetensors", engine=False),
}


class Server:
    """A process that runs commands, and disturbs them; see `faults`."""

    def __init__(self, engine: str = "numpy") -> None:
        self.engine = engine
        self.cache = tempfile.TemporaryDirectory()  # of what JAX compiles, which every fork would do again
        command = [sys.executable, str(ROOT / "tests" / "support" / "faults.py"), engine]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        jax = {
            "JAX_COMPILATION_CACHE_DIR": self.cache.name,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        self.process = subprocess.Popen(command, env=environment() | jax, **pipes)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.cache.cleanup()

    def ask(self, **asked):
        """Send a request, and return the answer."""
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


class Commands:
    """A command in a folder of its own, which a `Server` runs."""

    def __init__(self, folder: Path, words: list[str], server: Server, resumes: bool = True) -> None:
        self.words, self.server, self.resumes = words, server, resumes
        self.root = folder / "place"
        self.out = self.root / "run"
        self.errors, self.calls = folder / "errors", folder / "calls"
        self.clear()

    @classmethod
    def of(cls, name: str, folder: Path, server: Server) -> "Commands":
        """Return that of a row of `JOBS`."""
        job = JOBS[name]
        words = job.prepare(folder)
        if job.engine and name != "reproduce":  # which has no such flag
            words.append(f"--engine={server.engine}")
        return cls(folder, words, server, job.resumes)

    def clear(self):
        """Remove whatever a run has left."""
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()

    def run(self, meanwhile=None, errors=None, **disturbance):
        """Begin the run, or go on with it: its exit status.

        `meanwhile` is called once the run has stopped itself, and returns the signal that it gets then.
        """
        begun = any((self.out / name).exists() for name in ("training.json", "finetune.json"))
        words = [*self.words, f"--out={self.out}", *["--resume"] * (begun and self.resumes)]
        files = {"root": str(self.root), "errors": str(errors or self.errors), "calls": str(self.calls)}
        found = self.server.ask(words=words, engine=self.server.engine, **files, **disturbance)
        while "stopped" in found:
            found = self.server.ask(signal=meanwhile())
        return found["status"]

    def said(self):
        """What the last run has printed."""
        return self.errors.read_text("utf-8", "replace")

    def counted(self):
        """The calls of the last run, which ended well, in their order."""
        return json.loads(self.calls.read_text())["calls"]


def contents(out: Path) -> dict:
    """What a run leaves behind, without what a clock says."""
    found = {}
    for path in sorted(out.rglob("*")):
        if path.is_dir() or path.parent.name == "tensorboard":
            continue
        name = str(path.relative_to(out))
        if path.name == METRICS:
            found[name] = [
                {key: line[key] for key in line.keys() - TIMES} for line in read_metrics(path.parent)
            ]
        elif path.name == "report.json":
            found[name] = without_times(json.loads(path.read_text()))
        elif path.parent.name == "checkpoints" and not path.name.startswith("."):
            held = load_checkpoint(path)
            found[name] = (
                [tensor.tobytes() for tensor in (held.params.flat, held.m, held.v)],
                {key: held.state[key] for key in held.state.keys() - TIMES},
            )
        elif path.name == "times.jsonl":
            found[name] = True
        else:
            found[name] = path.suffix in (".png", ".html") or path.read_bytes()
    return found


def without_times(value):
    """A report without what a clock says."""
    if isinstance(value, dict):
        return {key: without_times(part) for key, part in value.items() if key not in TIMES}
    return [without_times(part) for part in value] if isinstance(value, list) else value
