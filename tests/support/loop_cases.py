"""A model, batches and a state that the loop is tried on."""

import numpy as np

from minibert.core.batch import Batch, Sequence
from minibert.core.config import BertConfig
from minibert.core.optim import AdamW
from minibert.model.params import initialise
from minibert.training.loop import State

CONFIG = BertConfig.from_size(
    "tiny",
    vocab_size=99,
    hidden_size=24,
    num_attention_heads=3,
    intermediate_size=37,
    max_position_embeddings=16,
)


def batch(number, sequences=4):
    """A random batch of its own for every number."""
    rng = np.random.default_rng(number)
    return Batch.pack([sequence(rng, n) for n in rng.integers(5, 16, sequences)])


def sequence(rng, n):
    masked = np.sort(rng.choice(n, rng.integers(0, 4), replace=False))
    ids, labels = rng.integers(5, 99, n), rng.integers(5, 99, len(masked))
    return Sequence(ids, np.arange(n) // (n // 2 + 1), masked, labels, int(rng.integers(2)))


def state(dtype=np.float32):
    params = initialise(CONFIG, 0, dtype)
    return State(params, AdamW(params.flat, params.decayed))
