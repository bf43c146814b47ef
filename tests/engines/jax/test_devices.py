"""What `minibert info` tells of JAX's devices, and how fast they are said to multiply."""

import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from paths import ROOT

from minibert.cli.info import information


@pytest.fixture
def jax_devices():
    pytest.importorskip("jax")
    from minibert.engines.jax import devices as jax_devices

    return jax_devices


@pytest.mark.thorough
def test_info_lists_every_device_of_jax():
    pytest.importorskip("jax")
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=3",
    }
    code = "from minibert.cli.info import _jax_devices; print(_jax_devices())"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    expected = {f"cpu {i}": "cpu, memory unknown, process 0 of 1" for i in range(3)}
    assert done.stdout.strip() == str(expected), done.stderr


def test_info_says_how_jax_is_installed_where_it_is_absent(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)  # as `find_spec` sees what is not installed
    monkeypatch.delitem(sys.modules, "minibert.engines.jax.devices", raising=False)
    told = information("numpy", 1)["devices of JAX"]
    assert told == "not installed: pip install jax, or jax[cuda13] for a GPU"
    assert "minibert.engines.jax.devices" not in sys.modules


@pytest.mark.parametrize("error", [RuntimeError("no such backend\nmore of it"), AssertionError()])
def test_info_says_why_jax_finds_no_device(jax_devices, monkeypatch, error):
    def fail():
        raise error

    monkeypatch.setattr(jax_devices.jax, "devices", fail)
    line = information("numpy", 1)["devices of JAX"]
    assert line.startswith("none: JAX finds no device") and "\n" not in line and line.endswith(".")
    assert ("no such backend" in line) == bool(str(error))


def test_a_device_tells_its_memory_where_it_counts_it(jax_devices, monkeypatch):
    device = SimpleNamespace(
        id=1,
        platform="gpu",
        device_kind="A kind",
        process_index=0,
        memory_stats=lambda: {"bytes_limit": 24 * 10**9},
    )
    monkeypatch.setattr(jax_devices.jax, "devices", lambda: [device])
    assert jax_devices.devices() == {"gpu 1": "A kind, 24.0 GB for JAX, process 0 of 1"}
    assert jax_devices.memory() == {"bytes_limit": 24 * 10**9}
    device.memory_stats = lambda: None
    assert jax_devices.memory() == {} and "memory unknown" in jax_devices.devices()["gpu 1"]


@pytest.mark.thorough
def test_every_product_of_the_measured_chain_is_computed(jax_devices):
    a, b = jax_devices._operands(32, "float32")
    expected = np.asarray(a, np.float64)
    for _ in range(jax_devices.CHAIN):
        expected = expected @ np.asarray(b, np.float64)
    found = np.asarray(jax_devices._chain(a, b))
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())
    assert 0.1 < np.abs(found).mean() < 10  # neither grows nor dies away


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_rate_of_products_is_one_that_a_device_can_have(jax_devices, dtype):
    assert 1e-3 < jax_devices.matmul_rate(dtype, seconds=0.01, sides=(64, 128)) < 1e7  # GFLOP/s
