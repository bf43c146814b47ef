"""Whatever ends a run, going on ends with the same bytes. These runs are processes of their own."""

import random
import signal
import subprocess
import sys
import time

import pytest
from command import PATIENCE, wait_for_step
from small_corpus import write_corpus

from minibert.hub.checkpoint import checkpoints, latest
from minibert.training.runlog import SPEEDS, read_metrics

STEPS = 60
FLAGS = [
    "--vocab-size=120", "--seq-length=8:0.4,16:0.6", "--batch-size=4", "--dropout=0.1", "--max-positions=16",
    "--evaluations=2", "--save-every=4", f"--steps={STEPS}", "--held-out=0.2",
]  # fmt: skip


def start(corpus, out, *more):
    """`minibert pretrain` on its way."""
    command = [sys.executable, "-m", "minibert", "pretrain", str(corpus), f"--out={out}", *FLAGS, *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(process):
    """Wait for the end, which is to be a good one."""
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, output
    return output


def resuming(out):
    """The flag for a folder that has begun a run."""
    return ["--resume"] if (out / "training.json").exists() else []


def wait_for_file(process, path):
    """Until a file is there, or the run has ended."""
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and not path.exists() and time.monotonic() < deadline:
        time.sleep(0.001)


def killed(process):
    """Kill a run; tell whether it was still running."""
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return process.returncode == -signal.SIGKILL


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("text") / "animals.txt")


@pytest.fixture(scope="module")
def uninterrupted(corpus, tmp_path_factory):
    """The folder of a run that nothing happened to."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    finish(start(corpus, out))
    return out


def assert_same_run(out, other):
    assert (out / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    last, last_other = checkpoints(out / "checkpoints")[-1], checkpoints(other / "checkpoints")[-1]
    assert last.name == last_other.name
    assert latest(last.parent).m.tobytes() == latest(last_other.parent).m.tobytes()
    timeless = [
        [line | dict.fromkeys(("seconds", *SPEEDS), 0) for line in read_metrics(folder)]
        for folder in (out, other)
    ]
    assert timeless[0] == timeless[1]


@pytest.mark.slow
def test_killed_at_random_moments_and_resumed_a_run_ends_with_the_same_bytes(corpus, uninterrupted, tmp_path):
    rng = random.Random(11)
    out = tmp_path / "killed"
    for written in ("training.json", "vocab.txt"):  # before the vocabulary, and before the shards
        process = start(corpus, out, *resuming(out))
        wait_for_file(process, out / written)
        assert killed(process)
    kills = 0
    for step in sorted(rng.sample(range(1, STEPS - 15), 8)):
        process = start(corpus, out, *resuming(out))
        wait_for_step(process, out, step)
        time.sleep(rng.uniform(0, 0.03))
        kills += killed(process)
    assert kills >= 4  # where the machine is busy, a run may end before this process gets to kill it
    (out / "checkpoints" / ".step-000000002.safetensors.k1ll3d_x.tmp").touch()  # by a kill while saving
    finish(start(corpus, out, "--resume"))
    assert_same_run(out, uninterrupted)
    assert not list(out.rglob(".*"))


@pytest.mark.thorough
def test_two_runs_of_one_seed_are_byte_identical(corpus, uninterrupted, tmp_path):
    finish(start(corpus, tmp_path / "again"))
    assert_same_run(tmp_path / "again", uninterrupted)


@pytest.mark.slow
def test_another_seed_is_another_run(corpus, uninterrupted, tmp_path):
    finish(start(corpus, tmp_path / "other", "--seed=1"))
    one, other = tmp_path / "other" / "model.safetensors", uninterrupted / "model.safetensors"
    assert one.read_bytes() != other.read_bytes()


@pytest.mark.slow
def test_ctrl_c_exits_with_130_and_going_on_is_exact(corpus, uninterrupted, tmp_path):
    out = tmp_path / "stopped"
    process = start(corpus, out)
    wait_for_step(process, out, 10)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, output
    assert "a checkpoint is saved" in output and f"minibert pretrain --resume --out {out}" in output
    assert "Traceback" not in output
    finish(start(corpus, out, "--resume"))
    assert_same_run(out, uninterrupted)


@pytest.mark.slow
def test_a_finished_run_resumed_is_measured_again_and_not_changed(corpus, uninterrupted):
    weights = (uninterrupted / "model.safetensors").read_bytes()
    report = (uninterrupted / "report.json").read_text()
    finish(start(corpus, uninterrupted, "--resume"))
    assert (uninterrupted / "model.safetensors").read_bytes() == weights
    clockless = [line for line in report.splitlines() if "seconds" not in line]
    again = (uninterrupted / "report.json").read_text().splitlines()
    assert [line for line in again if "seconds" not in line] == clockless
