"""Time a real step of a small BERT, to compare two engines on this machine."""

import time
from typing import Any

import numpy as np

from minibert.core import bert
from minibert.core.batch import Batch, Sequence
from minibert.core.config import BertConfig
from minibert.model.params import initialise

TRIES = 3  # the fastest one counts, because other programs can only make a step slower


def seconds_per_step(ops: Any, dtype: str) -> float:
    """Time forward and backward of two layers of size 256 on 8 sequences of 64 tokens, after a warm-up step.

    Parameters
    ----------
    ops : Ops
        The engine.
    dtype : str
        The type of parameters and gradients, "float32" or "float64".

    Returns
    -------
    float
        The seconds that the fastest of `TRIES` steps took.
    """
    config = BertConfig.from_size("tiny", vocab_size=1024, hidden_size=256, intermediate_size=1024)
    params = initialise(config, seed=0).astype(dtype)
    grads = params.zeros_like()
    generator = np.random.default_rng(0)
    ids = generator.integers(0, config.V, (8, 64))
    masked = np.arange(0, 64, 7)
    sequences = [Sequence(row, np.zeros_like(row), masked, row[masked], 0) for row in ids]
    batch = Batch.pack(sequences)
    times = []
    for _ in range(1 + TRIES):
        began = time.perf_counter()
        _, saved = bert.pretraining_loss(ops, config, params.tree, batch)
        bert.pretraining_loss_backward(ops, config, saved, params.tree, grads.tree)
        times.append(time.perf_counter() - began)
    return min(times[1:])
