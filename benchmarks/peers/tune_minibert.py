"""Fine-tuning as `minibert finetune` does it, by any of its engines."""

from pathlib import Path

from minibert import backends
from minibert.batch import TaskBatch
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.running import Run
from minibert.train import Loop, State, Steps, prefetch
from peers.tuning import CLIP_NORM, EPS, RATE, SEED, WEIGHT_DECAY, Epoch, Tuner


class Minibert(Tuner):
    """The training loop's own step; batches are packed a little ahead of it, as in the loop."""

    def __init__(self, epoch: Epoch, threads: int, engine: str, dtype: str) -> None:
        super().__init__(epoch)
        backends.keep_freed_memory()
        self._ops, self._head = backends.create(engine, threads, dtype), epoch.head
        self._limits = backends.limit_threads(threads, self._ops)
        options = FinetuneOptions(
            task="none", data="", model="", seed=SEED, weight_decay=WEIGHT_DECAY, clip_norm=CLIP_NORM,
            adam_eps=EPS, dropout=epoch.dropout, dtype=dtype,
        )  # fmt: skip
        run, params = Run(options, None, self._ops, Path("nowhere")), epoch.parameters()
        loop = Loop(total_steps=1 << 30, rate=lambda step: RATE, folder=run.folder)
        state = State(params, run.optimizer(params))
        self._training = Steps(self._ops, state, run.gradients(params), loop)

    def train(self, steps: list[list[int]]) -> list[float]:
        packed = (TaskBatch.pack_features([self.features[i] for i in one], self._head) for one in steps)
        return [self._training.one(parts)["loss"] for parts in prefetch(map(self._training.parts, packed))]
