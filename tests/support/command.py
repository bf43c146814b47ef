"""Running `minibert` in tests: in this process, or in one of its own."""

import os
import subprocess
import sys
import time
import warnings

import pytest
from paths import ROOT

from minibert import cli
from minibert.base.errors import MissingFile
from minibert.tokenizer import native
from minibert.training.runlog import read_metrics

PATIENCE = 300  # seconds that a process may take which takes two; a busy machine is no failure


def ends_badly(capsys, status, *words):
    """The single line on the error stream of a command that ends with `status` and prints nothing."""
    try:
        assert cli.main(list(words)) == status
    except SystemExit as stop:  # argparse's own way out
        assert stop.code == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def environment():
    """Of a process of its own."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def start(*words, **options):
    """A process of its own that runs the command."""
    command = [sys.executable, "-m", "minibert", *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **{"env": environment()} | pipes | options)


def wait_for_step(process, out, step):
    """Until the record of a run has that step, or the run has ended."""
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and steps_done(out) < step and time.monotonic() < deadline:
        time.sleep(0.002)


def steps_done(out):
    """The last step in the record of a run; 0 where there is none."""
    try:
        return read_metrics(out)[-1]["step"]
    except (MissingFile, IndexError):
        return 0


def without_notice(errors):
    """An error stream without the line that says that the C core of the tokenizer was not built."""
    return "".join(line for line in errors.splitlines(True) if "C core of the tokenizer" not in line)


@pytest.fixture(scope="module", autouse=True)
def notice():
    """Where it was not built, this process has said so before the first test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        native.load()
