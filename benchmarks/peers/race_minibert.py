"""minibert as a runner: the training loop's own step."""

from pathlib import Path

import numpy as np

from minibert import backends
from minibert.batch import Batch
from minibert.pretraining.evaluation import per_position
from minibert.train import Loop, Steps
from peers.race import Course, Runner


class Minibert(Runner):
    """One of minibert's engines."""

    def __init__(self, course: Course, threads: int, engine: str, dtype: str) -> None:
        backends.keep_freed_memory()
        self._ops = backends.create(engine, threads, dtype)
        self._limits = backends.limit_threads(threads, self._ops)
        super().__init__(course, course.task(self._ops, dtype))
        self._state, self._now = self.task.start(), 0.0  # the rate of the step that is on
        loop = Loop(1 << 30, lambda step: self._now, Path("nowhere"), self.task.options.accumulate)
        self._training = Steps(self._ops, self._state, self.task.gradients(self._state.params.config), loop)

    def train(self, ready: Batch, rate: float) -> float:
        self._now = rate
        return self._training.one(self._training.parts(ready))["loss"]

    def look(self, batch: Batch) -> np.ndarray:
        self._training.fetch()
        params, ops = self._state.params, self._ops
        with ops.step():
            (nll, _), _ = ops.call(per_position, (params.config,), ops.place(params.tree), ops.prepare(batch))
            return ops.restored(nll, batch, "masked").copy()
