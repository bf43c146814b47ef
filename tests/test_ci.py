"""CI and the Makefile: they run as on a machine where nothing was set up for them, and as they were told."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from paths import ROOT, TESTS

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="a shell that not every machine has")
# What somebody may have set, and tests would then pass, or fail, because of it.
SET = {
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONOPTIMIZE": "1",
    "PYTHONPATH": "/nowhere",
    "PYTEST_ADDOPTS": "--nonsense",
    "LC_ALL": "tr_TR.UTF-8",
    "TERM": "xterm",
    "MINIBERT_ISA": "portable",
    "COLUMNS": "20",
}
KEPT = {
    "PIP_CERT": "/some file",
    "https_proxy": "http://p",
    "OPENBLAS_CORETYPE": "Haswell",
    "MINIBERT_DATA": "/d",
}

NOTING = """
[ "$1" = oracle-installed ] || exit 0
env -0 > "$HOME/found"
exit 1
"""


def variables(text):
    """The variables that `env -0` prints."""
    return dict(line.split("=", 1) for line in text.split("\0") if line)


def test_bare_environment_keeps_what_the_machine_needs():
    command = [ROOT / ".ci" / "bare", "COURSE_SHARE=1", "env", "-0"]
    done = subprocess.run(command, env=os.environ | SET | KEPT, capture_output=True, text=True, check=True)
    found = variables(done.stdout)
    assert {name: found.get(name) for name in KEPT} == KEPT
    assert found["COURSE_SHARE"] == "1" and found["PATH"] == os.environ["PATH"]
    assert not found.keys() & SET.keys()


def test_ci_begins_in_a_bare_environment(tmp_path):
    """Its first command is `make`; here that is one which notes its environment and fails.

    The one that compiles kernels beside it is stopped when CI ends, so its notes might end in the middle.
    """
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, script in (("make", NOTING), ("chromium", "exit 0")):
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | SET | KEPT | {"HOME": str(tmp_path), "PATH": path}
    assert subprocess.run([ROOT / ".ci" / "run"], env=environment, capture_output=True).returncode != 0
    found = variables((tmp_path / "found").read_text())
    assert found.keys() >= KEPT.keys() and not found.keys() & SET.keys()


def test_tests_start_processes_as_on_an_ordinary_machine():
    """`conftest.py` takes back what would hide that a process leaves its output unwritten."""
    code = "import sys; print(sys.flags.dont_write_bytecode, sys.flags.optimize, sys.stdout.write_through)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "0", "False"]


@pytest.mark.skipif(shutil.which("make") is None, reason="a program that not every machine has")
@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ("", "--size 2-128-4 --dtype auto --minutes 8"),
        ("--minutes 1", "--size 2-128-4 --dtype auto --minutes 1"),
        ("--minutes=1 --dtype float32", "--size 2-128-4 --minutes=1 --dtype float32"),
        ("--steps 20 --size mini --seed 3", "--dtype auto --steps 20 --size mini --seed 3"),
    ],
)
def test_make_pretrain_gives_each_flag_once(tmp_path, arguments, command):
    words = ["make", "-n", "pretrain", f"ARGS={arguments}", f"VENV={tmp_path}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = done.stdout.replace("\\\n", " ").splitlines()
    [line] = [line for line in lines if "minibert pretrain" in line]
    assert " ".join(line.split()) == f"{tmp_path}/bin/minibert pretrain {command}"


BUSY = """
import time

import pytest

def test_idle():
    pass

def test_busy():
    began = time.process_time()
    while time.process_time() < began + 2.1:
        pass

@pytest.mark.thorough
def test_less_busy():
    began = time.process_time()
    while time.process_time() < began + 1:
        pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["0", "1"])
def test_the_dearest_tests_are_printed_by_processor_time(tmp_path, processes):
    shutil.copy(TESTS / "conftest.py", tmp_path)
    (tmp_path / "test_both.py").write_text(BUSY)
    command = [sys.executable, "-m", "pytest", "-n", processes, "--dearest", "1", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, tmp_path], cwd=tmp_path, capture_output=True, text=True)
    [(whole, quick)] = re.findall(r"(\d+) processor seconds, (\d+) of quick tests; the dearest", done.stdout)
    [(seconds, name)] = re.findall(r"^ +(\d+\.\d\d) s  (.+)", done.stdout, re.MULTILINE)
    assert name == "test_both.py::test_busy"
    assert 2 <= float(seconds) <= float(quick) + 0.5
    assert float(quick) + 1 <= float(whole) + 0.5  # what is thorough is not quick


REPRESENTED = """
import pytest

@pytest.mark.representatives(engine="numpy")
@pytest.mark.representatives(engine=["cpp", "numba"], size=1)
@pytest.mark.parametrize("engine", ["numpy", "cpp", "numba", "jax"])
@pytest.mark.parametrize("size", [1, 2])
def test(engine, size):
    pass
"""


def collected(folder, text):
    """What pytest says of the tests that are not thorough."""
    shutil.copy(TESTS / "conftest.py", folder)
    (folder / "test_some.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qm", "not thorough", f"-c{os.devnull}"]
    done = subprocess.run([*command, "--rootdir", folder, folder], capture_output=True, text=True)
    return done.stdout + done.stderr


@pytest.mark.slow
def test_representatives_are_run_each_time_and_others_are_thorough(tmp_path):
    names = re.findall(r"::test\[(.+)\]", collected(tmp_path, REPRESENTED))
    assert names == ["1-numpy", "1-cpp", "1-numba", "2-numpy"]


@pytest.mark.slow
def test_representatives_by_a_parameter_that_is_not_there_are_refused(tmp_path):
    assert "has no parameter size to represent" in collected(
        tmp_path,
        REPRESENTED.replace('("size"', '("width"').replace("test(engine, size", "test(engine, width"),
    )
