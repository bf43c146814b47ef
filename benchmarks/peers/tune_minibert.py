"""Fine-tuning as `minibert finetune` does it, by any of its engines."""

from pathlib import Path

from minibert import engines
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.whole_model import WholeRun
from minibert.model.batch import TaskBatch
from minibert.training.loop import prefetch
from minibert.training.step import start
from peers.tuning import CLIP_NORM, EPS, RATE, SEED, WEIGHT_DECAY, Epoch, Tuner


class Minibert(Tuner):
    """The training loop's own step; batches are packed a little ahead of it, as in the loop."""

    def __init__(self, epoch: Epoch, threads: int, engine: str, dtype: str) -> None:
        super().__init__(epoch)
        engines.keep_freed_memory()
        self._ops, self._head = engines.create(engine, threads, dtype), epoch.head
        self._limits = engines.limited_threads(threads, self._ops)
        options = FinetuneOptions(
            task="none", data=".", model=".", seed=SEED, weight_decay=WEIGHT_DECAY, clip_norm=CLIP_NORM,
            optimizer="adamw", adam_eps=EPS, dropout=epoch.dropout, dtype=dtype,
        )  # fmt: skip
        run, params = WholeRun(options, None, self._ops, Path("nowhere")), epoch.parameters()
        self._training = start(self._ops, params, run.optimizer(params), run.objective(params))
        self._taken = 0

    def train(self, steps: list[list[int]]) -> list[float]:
        packed = (TaskBatch.pack_features([self.features[i] for i in one], self._head) for one in steps)
        losses = []
        for parts in prefetch(self._training.prepare(batch, 1) for batch in packed):
            losses.append(self._training.step(parts, self._taken, RATE)["loss"])
            self._taken += 1
        return losses
