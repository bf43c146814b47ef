"""Training steps here and on processors that QEMU imitates; `make emulate` does the same with the wheel."""

import os
import platform
import shutil
import subprocess
import sys

import pytest
from paths import ROOT

kernels = pytest.importorskip("minibert.engines.cpp._kernels")


def steps(*words, before=()):
    """(instruction set, digest of float32, digest of bfloat16), in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [*before, sys.executable, str(ROOT / "tests" / "support" / "emulated_steps.py"), *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return tuple(done.stdout.split())


@pytest.mark.thorough
def test_steps_tell_instruction_sets_and_precisions_apart_and_repeat_themselves():
    best, *others = kernels.available()
    found = steps()
    assert found[0] == best and found == steps(best) and found[1] != found[2]
    for isa in others:
        assert steps(isa)[0] == isa


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize(("processor", "isa"), [("Haswell", "avx2"), ("Nehalem", "portable")])
def test_older_processor_chooses_what_it_has_with_the_same_bits_as_here(processor, isa):
    qemu = shutil.which("qemu-x86_64")
    if platform.machine() != "x86_64" or qemu is None:
        pytest.skip("no x86, or no qemu-x86_64")
    assert steps(before=(qemu, "-cpu", processor)) == steps(isa)
