"""Two training steps by the engine in C++, as bits: to compare processors with one another.

    python tests/support/emulated_steps.py [INSTRUCTION_SET]

Prints the instruction set that was chosen (or asked for) and a digest of every number that came out, for
float32 and bfloat16. `make emulate` runs it on processors that QEMU imitates.
"""

import hashlib
import os
import sys

import numpy as np

from minibert import engines
from minibert.core import bert
from minibert.core.batch import Batch, Sequence
from minibert.core.config import BertConfig
from minibert.core.ops import AdamRule
from minibert.model.params import initialise

CONFIG = BertConfig(
    vocab_size=99,
    hidden_size=72,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=133,
    max_position_embeddings=80,
)
LENGTHS = (1, 2, 7, 24, 70)


def batch() -> Batch:
    """Sequences of all lengths, some of whose tokens are masked."""
    generator = np.random.default_rng(1)

    def sequence(n: int) -> Sequence:
        masked = np.flatnonzero(generator.random(n) < 0.3)
        ids, labels = generator.integers(1, 99, n), generator.integers(0, 99, len(masked))
        return Sequence(ids, np.arange(n) >= n // 2, masked, labels, int(generator.integers(2)))

    return Batch.pack([sequence(n) for n in LENGTHS])


def bits(dtype: str, threads: int) -> str:
    """What two steps with dropout leave behind."""
    ops, given = engines.create("cpp", threads, dtype), batch()
    params = initialise(CONFIG, 1)
    params.flat += np.random.default_rng(2).standard_normal(len(params.flat), np.float32) * np.float32(0.1)
    m, v, grads = np.zeros_like(params.flat), np.zeros_like(params.flat), params.zeros_like()
    digest = hashlib.blake2b(digest_size=12)
    for step in (1, 2):
        grads.flat[:] = 0
        drop = ops.dropout(given, 0.1, 0.1, 5, step)
        loss, saved = bert.pretraining_loss(ops, CONFIG, params.tree, given, drop)
        bert.pretraining_loss_backward(ops, CONFIG, saved, params.tree, grads.tree)
        norm = ops.global_norm(grads.flat)
        rule = AdamRule(lr=1e-3, step=step, clip=min(1.0, 1 / norm))
        ops.adamw(params.flat, grads.flat, m, v, params.decayed, rule)
        digest.update(np.float64(loss.loss).tobytes() + np.float64(norm).tobytes())
    for array in (grads.flat, params.flat, m, v):
        assert np.isfinite(array).all()
        digest.update(array.tobytes())
    return digest.hexdigest()


def main() -> None:
    if len(sys.argv) > 1:
        os.environ["MINIBERT_ISA"] = sys.argv[1]
    chosen = engines.create("cpp", 1)._run.isa
    found = {dtype: bits(dtype, 1) for dtype in ("float32", "bfloat16")}
    assert bits("float32", 2) == found["float32"]
    print(chosen, *found.values())


if __name__ == "__main__":
    main()
