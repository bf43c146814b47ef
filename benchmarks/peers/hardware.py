"""Devices and links that `scale_plan.py` knows by name, and how long others took on some of them."""

import os
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from minibert import backends
from minibert.config import BertConfig
from minibert.machine import cores
from minibert.pretraining.recipes import RECIPES, parse_lengths
from peers.scaling import Device, Stage, implied_mfu

GB, GIB = 1e9, 2**30
THIS = "this"
# Multiply-adds of dense bfloat16, without the sparsity that doubles them on data sheets.
DEVICES = {
    "h200": Device("H200 SXM", 989e12, 141 * GB, 4.8e12, "NVIDIA's data sheet", fused=True),
    "h100": Device("H100 SXM", 989e12, 80 * GB, 3.35e12, "NVIDIA's data sheet", fused=True),
    "a100": Device("A100 SXM 80 GB", 312e12, 80 * GB, 2.039e12, "NVIDIA's data sheet", fused=True),
    # Each chip, as cloud.google.com/tpu/docs/v4 and /v3 have it.
    "tpu-v4": Device("TPU v4 chip", 275e12, 32 * GIB, 1.2e12, "Google's documentation"),
    "tpu-v3": Device("TPU v3 chip", 123e12, 32 * GIB, 0.9e12, "Google's documentation"),
    # Google announced 180 TFLOP/s and 64 GB for a Cloud TPU, four chips; the bandwidth: Jouppi et al. 2020.
    "tpu-v2": Device("TPU v2 chip", 45e12, 16 * GIB, 0.7e12, "Google's announcement"),
}
LINKS = {  # GB/s that a device sends while it receives as many
    "nvlink": 450.0,  # fourth generation: data sheets say 900, both directions together
    "nvlink-3": 300.0,  # of an A100
    "tpu-v4": 50.0,  # one of a chip's six links (Jouppi et al. 2023)
    "ib-400": 50.0,  # InfiniBand NDR, 400 Gb/s, an adapter for each device
    "eth-100": 12.5,
    "eth-10": 1.25,
}
# The paper's schedule: its steps, sequences of 512 a step, lengths with their shares of the steps.
STEPS, BATCH = 1_000_000, RECIPES["base"].batch_size
LENGTHS = parse_lengths(RECIPES["base"].seq_length)


class Published(NamedTuple):
    """A training that others report."""

    who: str
    size: str
    device: str
    devices: int
    hours: float
    steps: float
    sequences: tuple[int, int]  # of a step at 128, and at 512

    @property
    def stages(self) -> list[Stage]:
        """Nine tenths of the steps at 128, one at 512."""
        pairs = zip(LENGTHS, self.sequences, strict=True)
        return [Stage(seq, n, share * self.steps) for (seq, share), n in pairs]

    @property
    def mfu(self) -> float:
        """What share of the device's rate it took."""
        config, flops = BertConfig.from_size(self.size), DEVICES[self.device].flops
        return implied_mfu(config, self.stages, self.devices, flops, 3600 * self.hours)


# Devlin et al. 2019, A.2: four days on 4 and on 16 Cloud TPUs, of four chips each. It does not say of which
# generation: the README of the released code gives a Cloud TPU 64 GB, which is v2. Nor does it say whether a
# step at 128 had as many tokens as one at 512, as its 40 epochs want, or as many sequences.
# You et al. 2020, "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", table 1.
PUBLISHED = (
    Published("Devlin et al., as many tokens a step", "base", "tpu-v2", 16, 96.0, 1e6, (1024, 256)),
    Published("Devlin et al., as many tokens a step", "large", "tpu-v2", 64, 96.0, 1e6, (1024, 256)),
    Published("Devlin et al., as many sequences a step", "base", "tpu-v2", 16, 96.0, 1e6, (256, 256)),
    Published("Devlin et al., as many sequences a step", "large", "tpu-v2", 64, 96.0, 1e6, (256, 256)),
    Published("You et al., 512 sequences a step", "large", "tpu-v3", 16, 81.4, 1e6, (512, 512)),
    Published(
        "You et al., 32,768 sequences a step", "large", "tpu-v3", 1024, 1.687, 15_625, (32_768, 32_768)
    ),
)


def this_machine() -> Device:
    """What this machine can do, measured in about half a second."""
    dtype = backends.quickest_dtype()
    gflops, how = backends.peak(cores(), dtype), "multiply-adds from registers"
    if gflops is None:
        gflops, dtype, how = _product(), "float32", "a product of NumPy's"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    width = 2 if dtype == "bfloat16" else 4
    return Device("this machine", gflops * 1e9, memory, _copying(), f"{how} in {dtype}, a copy", width)


def _product(n: int = 1024) -> float:
    """GFLOP/s."""
    a = np.ones((n, n), np.float32)
    return 2 * n**3 / _quickest(lambda: a @ a) / 1e9


def _copying(n_bytes: int = 100_000_000) -> float:
    """Bytes read and written a second."""
    source, target = np.ones(n_bytes, np.uint8), np.zeros(n_bytes, np.uint8)
    return 2 * n_bytes / _quickest(lambda: np.copyto(target, source))


def _quickest(run: Callable[[], object], times: int = 5) -> float:
    """Seconds."""

    def once() -> float:
        began = time.perf_counter()
        run()
        return time.perf_counter() - began

    return min(once() for _ in range(times))
