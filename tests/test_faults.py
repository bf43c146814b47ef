"""Whatever the disk refuses, and wherever the power goes: going on ends with an undisturbed run's bytes."""

import json
import os
import random
import shutil
import subprocess
import sys

import pytest
from command import ROOT, environment
from faults import KILLED
from marks import seldom
from small_tasks import reviews, write_model, write_sst2

from minibert.hub.checkpoint import load_checkpoint
from minibert.model.params import Head
from minibert.tasks.stored import TaskFile
from minibert.training.runlog import SPEEDS, read_metrics

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
PRETRAIN = [
    "--seq-length=8:0.4,16:0.6", "--batch-size=2", "--held-out=0.2", "--evaluations=2", "--steps=5",
    "--save-every=2", "--engine=numpy", "--layout=sentences",
]  # fmt: skip
FINETUNE = ["--epochs=2", "--max-steps=5", "--batch-size=16", "--save-every=2", "--engine=numpy"]
TIMES = {"seconds", "training_seconds", *SPEEDS}


class Commands:
    """A process that runs commands in a folder, with faults; see `faults`."""

    def __init__(self, folder, words):
        self.folder, self.words, self.out = folder, words, folder / "run"
        self.errors, self.calls = folder / "errors", folder / "calls"
        command = [sys.executable, str(ROOT / "tests" / "support" / "faults.py")]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, env=environment(), **pipes)

    def run(self, **fault):
        """Begin the run, or go on with it: the exit status."""
        begun = any((self.out / name).exists() for name in ("training.json", "finetune.json"))
        words = [*self.words, f"--out={self.out}", *["--resume"] * begun]
        asked = {"words": words, "root": str(self.out), "errors": str(self.errors), "calls": str(self.calls)}
        self.process.stdin.write(json.dumps(asked | fault) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


def contents(out):
    """What a run leaves behind, without what a clock says."""
    found = {}
    for path in sorted(out.rglob("*")):
        if path.is_dir() or path.parent.name == "tensorboard":
            continue
        name = str(path.relative_to(out))
        if name == "metrics.jsonl":
            found[name] = [{key: line[key] for key in line.keys() - TIMES} for line in read_metrics(out)]
        elif name == "report.json":
            report = json.loads(path.read_text())
            found[name] = {key: report[key] for key in report.keys() - TIMES}
        elif path.parent.name == "checkpoints":
            held = load_checkpoint(path)
            state = {key: held.state[key] for key in held.state.keys() - TIMES}
            found[name] = [tensor.tobytes() for tensor in (held.params.flat, held.m, held.v)], state
        else:
            found[name] = path.suffix in (".png", ".html") or path.read_bytes()
    return found


def words_of(command, folder):
    """A command of less than a second, with what it reads."""
    model = write_model(folder / "model")
    if command == "finetune":
        data = write_sst2(folder / "data", 48, 20)
        return ["finetune", "sst2", f"--model={model}", f"--data={data}", *FINETUNE]
    documents = ("\n".join(text for text, _ in reviews(6, seed)) for seed in range(8))
    (folder / "text").write_text("\n\n".join(documents))
    return ["pretrain", str(folder / "text"), f"--model={model}", *PRETRAIN]


@pytest.fixture(scope="module", params=["pretrain", "finetune"])
def undisturbed(request, tmp_path_factory):
    """What runs it, what a run leaves, and its calls in their order."""
    folder = tmp_path_factory.mktemp(request.param)
    commands = Commands(folder, words_of(request.param, folder))
    with commands.process:
        assert commands.run() == 0, commands.errors.read_text()
        yield commands, contents(commands.out), json.loads(commands.calls.read_text())
        commands.process.stdin.close()


def chosen(calls, seed, count=4):
    """Some numbers of calls: the first and the last of each kind, and others by chance."""
    first = {calls.index(kind) for kind in calls}
    last = {len(calls) - 1 - calls[::-1].index(kind) for kind in calls}
    return sorted(first | last | set(random.Random(seed).sample(range(len(calls)), count)))


def meet(undisturbed, kind, at):
    """Let a run meet with one fault, go on with it, and compare."""
    commands, expected, calls = undisturbed
    shutil.rmtree(commands.out, ignore_errors=True)
    where = f"{kind} at {at}, {calls[at]}"
    status, errors = commands.run(kind=kind, at=at), commands.errors.read_text()
    if kind == "kill":
        assert status == KILLED, f"{where}: {errors}"
    else:
        assert status in (0, 1) and "Traceback" not in errors, f"{where}: {errors}"
        assert (status == 1) == (errors.splitlines()[-1].startswith("minibert: ")), f"{where}: {errors}"
    if status or "could not be removed" in errors:
        assert commands.run() == 0, f"{where}: {commands.errors.read_text()}"
    found = contents(commands.out)
    assert found.keys() == expected.keys(), where
    for name in expected:
        assert found[name] == expected[name], f"{where}: {name}"


@pytest.mark.thorough
@pytest.mark.parametrize("kind", seldom(["once", "full", "kill"], "kill"))
def test_after_a_fault_at_some_calls_a_run_goes_on_to_the_same_bytes(undisturbed, kind):
    for at in chosen(undisturbed[2], seed=kind):
        meet(undisturbed, kind, at)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["once", "full", "kill"])
def test_after_a_fault_at_any_call_a_run_goes_on_to_the_same_bytes(undisturbed, kind):
    for at in range(len(undisturbed[2])):
        meet(undisturbed, kind, at)


@pytest.mark.thorough
def test_predictions_killed_between_their_files_can_be_made_again(tmp_path):
    labels = ("bad", "good")
    model = write_model(tmp_path / "model", Head("classify", 2), 3, labels)
    TaskFile("classify", labels, 24, {}).save(model)
    (tmp_path / "dev.csv").write_text("text,label\nthe film is warm,good\na dull story,bad\n")
    words = ["predict", f"--model={model}", f"--data={tmp_path / 'dev.csv'}", "--engine=numpy", "--quiet"]
    commands = Commands(tmp_path, words)

    def files():
        return {path.name: path.read_bytes() for path in commands.out.glob("[!.]*")}

    with commands.process:
        assert commands.run() == 0, commands.errors.read_text()
        expected = files()
        calls = json.loads(commands.calls.read_text())
        assert set(expected) == {"classify-dev.jsonl", "dev_predictions.tsv"}
        assert calls.count("replace") == 2
        for at in [number for number, call in enumerate(calls) if call == "replace"]:
            shutil.rmtree(commands.out)
            assert commands.run(kind="kill", at=at) == KILLED
            assert "classify-dev.jsonl" not in files()
            assert commands.run() == 0, commands.errors.read_text()
            assert files() == expected
        commands.process.stdin.close()
