"""A pre-training step as `minibert pretrain` does it, by any of its engines."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from minibert import engines
from minibert.core.batch import Batch
from minibert.core.config import BertConfig
from minibert.model.params import Parameters
from minibert.pretraining.objective import Pretraining
from minibert.pretraining.options import PretrainOptions
from minibert.training.step import start
from peers.schedule import RATE, TrainingStep

COPIES = 4  # of the batch


class Late(NamedTuple):
    """A metric that may be waited for."""

    figures: Mapping[str, float]
    name: str

    def __float__(self) -> float:
        return self.figures[self.name]


class Minibert:
    """The training loop's own step: gradients, clipping, AdamW."""

    def __init__(
        self,
        config: BertConfig,
        batch: Batch,
        flat: np.ndarray,
        threads: int,
        engine: str,
        dtype: str = "float32",
        **extras: Any,
    ) -> None:
        engines.keep_freed_memory()
        self._ops = engines.create(engine, threads, dtype, **extras)
        self._limits = engines.limited_threads(threads, self._ops)
        options = PretrainOptions(seed=3, bias_correction=True)
        task = Pretraining(options, None, self._ops)
        params = Parameters(config, flat)
        self._steps = start(self._ops, params, task.optimizer(params), task.objective(config))
        self._dtype, self._taken = dtype, 0
        # A thread beside the training makes them; the next one lies elsewhere, which matters to a device.
        self._parts = [self._steps.prepare(batch, 1) for _ in range(COPIES)]

    def run(self) -> TrainingStep:
        figures = self._steps.step(self._parts[self._taken % COPIES], self._taken, RATE)
        self._taken += 1
        return TrainingStep(Late(figures, "loss"), Late(figures, "gradient_norm"))

    def facts(self) -> dict[str, Any]:
        """JAX's device: what it is, how fast it multiplies at best, what it had in use at most."""
        if self._ops.name != "jax":
            return {}
        jax_devices = import_module("minibert.engines.jax.devices")
        name, kind = next(iter(jax_devices.devices().items()))
        peak = jax_devices.memory().get("peak_bytes_in_use")
        return {
            "device": f"{name}, {kind}",
            "device_peak_mb": peak and peak / 1e6,
            "matmul_gflops": jax_devices.matmul_rate(self._dtype, sides=jax_devices.LARGE),
        }
