"""Train a small model for long, and see whether memory or open files grow, or the speed falls.

    make soak ARGS='--long 240'     minutes; the engine is the first of --engines

Memory and speed are those of the process: resident bytes, and tokens for each second of processor time, so
that what else the machine does counts as little as possible.

NumPy keeps freed arrays of fewer than 1024 bytes for the next one of their size, seven of each size in each
thread (`_npy_free_cache` in numpy/_core/src/multiarray/alloc.cpp): up to 3.7 MB a thread, which `malloc`
counts as used and `tracemalloc` as free. Training makes arrays of many sizes, so that this memory fills up
for hours, and would look like a leak. Here it is filled before the first step.
"""

import gc
import os
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from small_corpus import write_corpus

import minibert
from minibert.training import loop

WARM_UP = 0.2  # share of the time after which memory is not to grow any more
PERIODS = 10  # in which the time after it is cut; memory is compared between the first and the last
SAMPLES = 2000  # at most so many are kept, whatever the number of steps
# All sequences have one length: longer ones need more memory.
SIZES = {"size": "2-32-2", "vocab_size": 120, "seq_length": "32", "batch_size": 8, "dropout": 0.1}


CACHED_BYTES, CACHED_TIMES = 1024, 7  # NumPy keeps so many freed arrays of each size below that many bytes


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


def fill_cache_of_numpy() -> None:
    """Let NumPy keep as many freed arrays as it ever will in this thread."""
    for size in range(1, CACHED_BYTES):
        [np.zeros(size, np.uint8) for _ in range(CACHED_TIMES)]


def prefetch_filled(items: Iterable[Any], *more: Any) -> Any:
    """Call `loop.prefetch`, whose thread fills NumPy's cache before its first item."""

    def after_filling() -> Iterator[Any]:
        fill_cache_of_numpy()
        yield from items

    return PREFETCH(after_filling(), *more)


PREFETCH = loop.prefetch


def held() -> dict[int, int]:
    """Count what each container and object holds, by its `id`: a list with three elements holds three."""
    gc.collect()
    return {id(one): len(gc.get_referents(one)) for one in gc.get_objects()}


def train(minutes: float, engine: str) -> tuple[int, list[Sample]]:
    """Train for so many minutes; return the number of steps, and samples."""
    measured = np.ones((SAMPLES + 1, len(Sample._fields)))  # made at once, so that it does not grow
    count = 0
    steps = 0
    began = time.monotonic()
    pause = 60 * minutes / SAMPLES

    def note(step, values):
        nonlocal steps, count
        steps = step
        now = time.monotonic() - began
        due = not count or now - measured[count - 1, 0] >= pause
        if "train/tokens" in values and due and count < len(measured):
            measured[count] = measure(began, values["train/tokens"])
            count += 1

    with tempfile.TemporaryDirectory() as folder:
        corpus = write_corpus(Path(folder, "animals.txt"), documents=200)
        often = {"evaluations": 20, "checkpoint_seconds": 10.0}
        given = {"minutes": minutes, "engine": engine, "out": Path(folder, "run"), "on_log": note}
        fill_cache_of_numpy()
        with patch.object(loop, "prefetch", prefetch_filled):
            minibert.pretrain(str(corpus), show=False, **given, **often, **SIZES)
    return steps, [Sample(*row) for row in measured[:count].tolist()]


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
    handles = [int(max(one.handles for one in part)) for part in (warm[:tenth], warm[-tenth:])]
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
