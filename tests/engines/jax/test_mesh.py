"""Training on 1, 2, 4 and 8 devices, forced upon JAX in a Python of its own, is the training of NumPy."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from mesh_steps import HEADS, LENGTHS, STEPS, trained
from paths import TESTS

pytest.importorskip("jax")
pytestmark = pytest.mark.slow

SAME = 1e-10
PLANS = [
    {"devices": 1},
    {"devices": 2, "recompute": True},
    {"devices": 2, "fsdp": True},
    {"devices": 4, "accumulate": 3},
    {"devices": 8},  # more than sequences
    {"devices": 8, "fsdp": True, "accumulate": 2},
    {"devices": 4, "task": "tag"},
    {"devices": 8, "task": "classify"},
]


def test_fifty_steps_on_any_number_of_devices_are_numpy_s():
    flags = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
    path = f"{TESTS.parent}{os.pathsep}{TESTS}"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": path}
    command = [sys.executable, str(TESTS / "support" / "mesh_steps.py"), *map(json.dumps, PLANS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    expected = {task: trained("numpy", task) for task in HEADS}
    for plan, line in zip(PLANS, done.stdout.splitlines(), strict=True):
        found, right = json.loads(line), expected[plan.get("task", "")]
        for name, values in right.items():
            np.testing.assert_allclose(found[name], values, rtol=SAME, atol=SAME, err_msg=f"{plan} {name}")
    for one in expected.values():
        assert len(set(one["loss"])) == STEPS and one["loss"][-1] < one["loss"][0]
    assert len(LENGTHS) < max(plan["devices"] for plan in PLANS)
