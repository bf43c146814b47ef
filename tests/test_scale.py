"""The tables of docs/scale.md follow from the formula above them."""

import re
from typing import NamedTuple

import pytest
from paths import ROOT

from minibert.core.config import BertConfig
from minibert.model.params import initialise

PEAK, MFU = 989e12, 0.4  # operations a second of an H200 in bfloat16, and the share of them that is reached
BANDWIDTH, MEMORY, LINK = 4800e9, 141e9, 50e9  # bytes a second, bytes, bytes a second
TOKENS = 131_072  # in a step
SCHEDULE = {128: (0.9e6, 19), 512: (0.1e6, 77)}  # length -> its steps, and the masked positions of a sequence
MODELS = {name: BertConfig.from_size(name.lower()) for name in ("BASE", "LARGE")}
PARAMETERS = {"BASE": 110_106_428, "LARGE": 336_226_108}
ROW = r"^\| {} \| (.*) \|$"


class Step(NamedTuple):
    """Seconds of a step."""

    computing: float
    updating: float
    waiting: float


def operations(config: BertConfig, length: int) -> float:
    """Operations of the matrix products of a sequence, forward and backward."""
    L, H, F, V = config.L, config.H, config.F, config.V
    layers = length * L * (2 * (4 * H**2 + 2 * H * F) + 4 * length * H)
    ends = SCHEDULE[length][1] * 2 * (H**2 + H * V) + 2 * H**2
    return 3 * (layers + ends)


def step_of(name: str, length: int, devices: int, link: float = LINK, overlap: float = 0.0) -> Step:
    computing = TOKENS / length / devices * operations(MODELS[name], length) / (MFU * PEAK)
    traffic = 2 * (devices - 1) / devices * 4 * PARAMETERS[name] / link
    waiting = traffic - min(overlap * traffic, 2 / 3 * computing)
    return Step(computing, 32 * PARAMETERS[name] / BANDWIDTH, waiting)


def memory_of(name: str, length: int, devices: int) -> float:
    """Bytes on a device, in as few micro-batches as fit."""
    config, tokens = MODELS[name], TOKENS / devices
    kept = config.L * tokens * (2 * (10 * config.H + 2 * config.F) + 4 * (config.A + 4))
    ends = tokens / length * SCHEDULE[length][1] * 2 * config.V * 4
    parts = 1
    while (total := 18 * PARAMETERS[name] + (kept + ends) / parts) > 0.9 * MEMORY:
        parts *= 2
    return total


def training_of(name: str, **how) -> tuple[float, Step]:
    """Seconds of the whole training, and the share that each part of a step has in it."""
    parts = [0.0, 0.0, 0.0]
    for length, (steps, _) in SCHEDULE.items():
        parts = [all_ + steps * one for all_, one in zip(parts, step_of(name, length, **how), strict=True)]
    return sum(parts), Step(*(part / sum(parts) for part in parts))


def duration(seconds: float) -> str:
    for unit, size, least in (("days", 86400, 48 * 3600), ("hours", 3600, 2 * 3600)):
        if seconds >= least:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 60:.1f} minutes"


def rows(beginning: str) -> list[list[str]]:
    text = (ROOT / "docs" / "scale.md").read_text("utf-8")
    return [found.split(" | ") for found in re.findall(ROW.format(beginning), text, re.MULTILINE)]


def test_models_of_the_page_have_these_parameters():
    config = BertConfig(60, 8, 2, 2, 12, max_position_embeddings=6)  # the count of which is quick to see

    def count(L, H, F, V, P):
        layer = 4 * H**2 + 2 * H * F + 9 * H + F
        heads = (H**2 + H) + (H**2 + H) + 2 * H + V + (2 * H + 2)
        return (V + P + 4) * H + L * layer + heads

    assert initialise(config, seed=0).flat.size == count(config.L, config.H, config.F, config.V, config.P)
    for name, one in MODELS.items():
        assert count(one.L, one.H, one.F, one.V, one.P) == PARAMETERS[name]


def test_schedule_of_the_paper_needs_the_operations_of_the_page():
    needed = [
        sum(steps * TOKENS / length * operations(config, length) for length, (steps, _) in SCHEDULE.items())
        for config in MODELS.values()
    ]
    sentence = f"needs {needed[0]:.1e} for BASE and {needed[1]:.1e} for LARGE".replace("e+", "e")
    assert sentence in " ".join((ROOT / "docs" / "scale.md").read_text("utf-8").split())


@pytest.mark.parametrize("devices", [1, 2, 4, 8, 16, 64, 256])
def test_rows_of_devices_follow_from_the_formula(devices):
    for name, row in zip(MODELS, rows(str(devices)), strict=True):
        memory, milliseconds, computing, waiting, whole = row
        for told, length in zip(memory.split(" · "), SCHEDULE, strict=True):
            found = memory_of(name, length, devices) / 1e9
            assert 0.97 * float(told) <= found <= float(told) + 0.05  # without "a few H" a token
        steps = [sum(step_of(name, length, devices)) for length in SCHEDULE]
        assert milliseconds == " · ".join(f"{1000 * seconds:.0f}" for seconds in steps)
        seconds, share = training_of(name, devices=devices)
        assert [computing, waiting] == [f"{share.computing:.0%}", f"{share.waiting:.0%}"]
        assert whole == duration(seconds)


@pytest.mark.parametrize(
    ("change", "how"),
    [
        ("8 devices in one node, NVLink at 450 GB/s", {"devices": 8, "link": 450e9}),
        ("64 devices in nodes of eight[^|]*", {"devices": 64, "link": 400e9}),
        ("8 devices, half of the traffic hidden[^|]*", {"devices": 8, "overlap": 0.5}),
        ("8 devices over Ethernet at 10 Gb/s", {"devices": 8, "link": 1.25e9}),
    ],
)
def test_changes_follow_from_the_formula(change, how):
    [cells] = rows(change)
    for name, cell in zip(MODELS, cells, strict=False):  # the last row has none for LARGE
        seconds, share = training_of(name, **how)
        assert cell.strip(" |").replace("computing ", "") == f"{duration(seconds)}, {share.computing:.0%}"
