"""minibert as a runner: the training loop's own step."""

import numpy as np

from minibert import engines
from minibert.core.batch import Batch
from minibert.engines.runtime import runtime_of
from minibert.pretraining.evaluation import per_position
from minibert.training.step import start
from peers.race import Course, Runner


class Minibert(Runner):
    """One of minibert's engines."""

    def __init__(self, course: Course, threads: int, engine: str, dtype: str) -> None:
        engines.keep_freed_memory()
        self._ops = engines.create(engine, threads, dtype)
        self._limits = engines.limited_threads(threads, self._ops)
        super().__init__(course, course.task(self._ops, dtype))
        state, self._taken = self.task.start(), 0
        objective = self.task.objective(state.params.config)
        self._training = start(self._ops, state.params, state.optimizer, objective)

    def train(self, ready: Batch, rate: float) -> float:
        parts = self._training.prepare(ready, self.task.options.accumulate)
        self._taken += 1
        return self._training.step(parts, self._taken - 1, rate)["loss"]

    def look(self, batch: Batch) -> np.ndarray:
        params, ops = self._training.fetch(), self._ops
        runtime = runtime_of(ops)
        tree = runtime.to_device(params.tree)
        (nll, _), _ = runtime.call(ops, per_position, (params.config,), tree, runtime.prepare(batch))
        return runtime.in_order(nll, batch, "masked").copy()
