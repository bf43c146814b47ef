"""Fifty steps on meshes of forced devices, as JSON: run in a Python of its own, with JAX told of the devices.

python tests/support/mesh_steps.py, with XLA_FLAGS=--xla_force_host_platform_device_count=8; every argument
is a plan, JSON of what `trained` takes.
"""

import json
import sys

import numpy as np
from objectives import BertObjective

from minibert import engines
from minibert.core.batch import Batch, Feature, Sequence
from minibert.core.gradcheck.cases import Size, config_of
from minibert.core.optim import AdamW
from minibert.gradcheck.drawn import random_parameters
from minibert.model.batch import TaskBatch
from minibert.model.params import PRETRAINING, Head
from minibert.training.step import start

STEPS = 50
LENGTHS = (3, 9, 16, 12, 7, 5)  # fewer than eight devices
SIZE = Size(LENGTHS, H=24, A=3, F=37, V=99, M=0)
HEADS = {"": PRETRAINING, "tag": Head("tag", 4), "classify": Head("classify", 3)}


def batch_of(step, head):
    """One of four batches: in whichever order, the sequences fill rows of the same size."""
    rng = np.random.default_rng(step % 4)

    def sequence(n):
        masked = np.sort(rng.permutation(n)[:2]) if head is PRETRAINING else []
        labels = rng.integers(SIZE.V, size=len(masked))
        return Sequence(rng.integers(SIZE.V, size=n), np.arange(n) * 2 // n, masked, labels, rng.integers(2))

    sequences = [sequence(n) for n in rng.permutation(LENGTHS)]
    if head is PRETRAINING:
        return Batch.pack(sequences)
    if head.kind == "classify":
        features = [Feature((one,), rng.integers(head.outputs)) for one in sequences]
        return TaskBatch.pack_features(features, head)
    rows = [np.sort(rng.permutation(len(one.input_ids))[:2]) for one in sequences]
    tags = [rng.integers(head.outputs, size=2) for _ in sequences]
    return TaskBatch.pack_features(
        [Feature((one,), tag, row) for one, tag, row in zip(sequences, tags, rows, strict=True)], head
    )


def trained(engine, task="", accumulate=1, **extras):
    """Losses, norms and final parameters of 50 steps with dropout.

    Parameters
    ----------
    engine : its name.
    task : "tag" or "classify" to fine-tune instead of pre-training.
    accumulate : micro-batches a step.
    extras : what the engine is told.
    """
    ops, head = engines.create(engine, 1, "float64", **extras), HEADS[task]
    config = config_of(SIZE, num_hidden_layers=2)
    params = random_parameters(config, np.random.default_rng(0), head)

    optimizer = AdamW(params.flat, params.decayed)
    steps = start(ops, params, optimizer, BertObjective(config, head))
    found = []
    for step in range(STEPS):
        if step == STEPS // 2:  # what is changed on the way
            steps.fetch()["embeddings.position"][3:] *= -1
            steps.renew()
        batch = steps.prepare(batch_of(step, head), accumulate)
        found.append(steps.step(batch, step, 1e-3 * (1 - step / 100)))
    params = steps.fetch()
    return {
        "loss": [one["loss"] for one in found],
        "norm": [one["gradient_norm"] for one in found],
        "parameters": params.flat.tolist(),
    }


if __name__ == "__main__":
    for plan in sys.argv[1:]:
        print(json.dumps(trained("jax", **json.loads(plan))), flush=True)
