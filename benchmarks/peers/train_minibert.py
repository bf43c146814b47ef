"""A pre-training step as `minibert pretrain` does it, by any of its engines."""

from pathlib import Path

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
    ) -> None:
        backends.keep_freed_memory()
        self._ops, self._batch = backends.create(engine, threads, dtype), batch
        self._limits = backends.limit_threads(threads, self._ops)
        options = PretrainOptions(seed=3, bias_correction=True)
        task = Pretraining(options, None, self._ops)
        params = Parameters(config, flat)
        loop = Loop(total_steps=1 << 30, rate=lambda step: RATE, folder=Path("nowhere"))
        state = State(params, task.optimizer(params))
        self._steps = Steps(self._ops, state, task.gradients(config), loop)

    def run(self) -> TrainingStep:
        figures = self._steps.one(self._steps.parts(self._batch))
        return TrainingStep(figures["loss"], figures["gradient_norm"])
