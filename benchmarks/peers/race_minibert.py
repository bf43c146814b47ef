"""minibert as a runner: the training loop's own step."""

from pathlib import Path

import numpy as np

from minibert import backends
from minibert.batch import Batch
from minibert.bert import pretraining_loss
from minibert.train import Loop, one_step
from peers.race import Course, Runner


class Minibert(Runner):
    """One of minibert's engines."""

    def __init__(self, course: Course, threads: int, engine: str, dtype: str) -> None:
        backends.keep_freed_memory()
        self._ops = backends.create(engine, threads, dtype)
        self._limits = backends.limit_threads(threads, self._ops)
        super().__init__(course, course.task(self._ops, dtype))
        self._state = self.task.start()
        self._grads = self._state.params.zeros_like()
        self._gradients = self.task.gradients(self._state.params.config)

    def train(self, ready: Batch, rate: float) -> float:
        loop = Loop(1 << 30, lambda step: rate, Path("nowhere"), self.task.options.accumulate)
        return one_step(self._ops, self._state, self._grads, ready, self._gradients, loop)["loss"]

    def look(self, batch: Batch) -> np.ndarray:
        params, ops = self._state.params, self._ops
        with ops.step():
            loss, _ = pretraining_loss(ops, params.config, params.tree, ops.prepare(batch), None)
            return np.array(loss.mlm_nll)
