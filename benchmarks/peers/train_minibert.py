"""A pre-training step as `minibert pretrain` does it, by any of its engines."""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from minibert import backends
from minibert.batch import Batch
from minibert.config import BertConfig
from minibert.params import Parameters
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.task import Pretraining
from minibert.train import Loop, State, Steps
from peers.schedule import RATE, TrainingStep


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
        backends.keep_freed_memory()
        self._ops = backends.create(engine, threads, dtype, **extras)
        self._limits = backends.limit_threads(threads, self._ops)
        options = PretrainOptions(seed=3, bias_correction=True)
        task = Pretraining(options, None, self._ops)
        params = Parameters(config, flat)
        loop = Loop(total_steps=1 << 30, rate=lambda step: RATE, folder=Path("nowhere"))
        state = State(params, task.optimizer(params))
        self._steps, self._dtype = Steps(self._ops, state, task.gradients(config), loop), dtype
        self._parts = self._steps.parts(batch)  # a thread beside the training makes them

    def run(self) -> TrainingStep:
        figures = self._steps.one(self._parts)
        return TrainingStep(figures["loss"], figures["gradient_norm"])

    def facts(self) -> dict[str, Any]:
        """JAX's device: what it is, how fast it multiplies at best, what it had in use at most."""
        if self._ops.name != "jax":
            return {}
        jax_devices = import_module("minibert.backends.jax_devices")
        name, kind = next(iter(jax_devices.devices().items()))
        peak = jax_devices.memory().get("peak_bytes_in_use")
        return {
            "device": f"{name}, {kind}",
            "device_peak_mb": peak and peak / 1e6,
            "matmul_gflops": jax_devices.matmul_rate(self._dtype),
        }
