"""Train a small model for long, and see whether memory or open files grow, or the speed falls.

    make soak ARGS='--long 240'     minutes; the engine is the first of --engines

Memory and speed are those of the process: resident bytes, and tokens for each second of processor time, so
that what else the machine does counts as little as possible.
"""

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from small_corpus import write_corpus

import minibert

WARM_UP = 0.2  # share of the time after which memory is not to grow any more
PERIODS = 10  # in which the time after it is cut; memory is compared between the first and the last
SAMPLES = 2000  # at most so many are kept, whatever the number of steps
# All sequences have one length: longer ones need more memory.
SIZES = {"size": "2-32-2", "vocab_size": 120, "seq_length": "32", "batch_size": 8, "dropout": 0.1}


class Sample(NamedTuple):
    """What was measured after a step."""

    seconds: float  # since the beginning
    memory: int  # resident bytes
    handles: int  # open files, sockets and pipes
    processor: float  # seconds of processor time
    tokens: float  # read so far


def measure(began: float, tokens: float) -> Sample:
    """Measure this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    memory = pages * os.sysconf("SC_PAGE_SIZE")
    handles = len(os.listdir("/proc/self/fd"))
    return Sample(time.monotonic() - began, memory, handles, time.process_time(), tokens)


def train(minutes: float, engine: str) -> tuple[int, list[Sample]]:
    """Train for so many minutes; return the number of steps, and samples."""
    samples: list[Sample] = []
    steps = 0
    began = time.monotonic()
    pause = 60 * minutes / SAMPLES

    def note(step, values):
        nonlocal steps
        steps = step
        now = time.monotonic() - began
        if "train/tokens" in values and (not samples or now - samples[-1].seconds >= pause):
            samples.append(measure(began, values["train/tokens"]))

    with tempfile.TemporaryDirectory() as folder:
        corpus = write_corpus(Path(folder, "animals.txt"), documents=200)
        often = {"evaluations": 20, "checkpoint_seconds": 10.0}
        given = {"minutes": minutes, "engine": engine, "out": Path(folder, "run"), "on_log": note}
        minibert.pretrain(str(corpus), show=False, **given, **often, **SIZES)
    return steps, samples


def speed(samples: list[Sample]) -> float:
    """Return the tokens for a second of processor time."""
    first, last = samples[0], samples[-1]
    return (last.tokens - first.tokens) / (last.processor - first.processor)


def judge(samples: list[Sample]) -> dict:
    """Compare the beginning, after the warm-up, with the end."""
    length = samples[-1].seconds - samples[0].seconds
    warm = [sample for sample in samples if sample.seconds - samples[0].seconds >= WARM_UP * length]
    tenth = max(1, len(warm) // PERIODS)
    quarter = max(2, len(samples) // 4)
    memory = [statistics.median(one.memory for one in part) for part in (warm[:tenth], warm[-tenth:])]
    handles = [max(one.handles for one in part) for part in (warm[:tenth], warm[-tenth:])]
    return {
        "minutes": round(length / 60, 1),
        "memory_mib": [round(one / 2**20, 1) for one in memory],
        "growth": round(memory[1] / memory[0] - 1, 4),
        "handles": handles,
        "tokens_per_processor_second": [round(speed(samples[:quarter])), round(speed(samples[-quarter:]))],
    }


def long_run(minutes: float, engine: str) -> dict:
    """Train, and judge it."""
    steps, samples = train(minutes, engine)
    return {"engine": engine, "steps": steps, **judge(samples)}
