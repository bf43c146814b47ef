"""Training against the clock on one text: the course that everyone runs, and how a runner's time is taken."""

import dataclasses
import math
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from minibert.core.batch import Batch
from minibert.model.ops import Ops
from minibert.pretraining.evaluation import scored_positions
from minibert.pretraining.objective import Pretraining
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.preparation import prepare_text
from minibert.pretraining.recipes import Timetable
from minibert.training.loop import prefetch

REHEARSED = 2  # steps of a length before its time counts


class Course(NamedTuple):
    """What is to be trained: options, vocabulary and shards of a prepared folder, and how many steps."""

    folder: str
    steps: int
    targets: int  # held-out [MASK] positions to be measured on

    def arguments(self) -> tuple["Course"]:
        """Itself; the text is opened in the runner's process."""
        return (self,)

    def task(self, ops: Ops | None = None, dtype: str = "float32") -> Pretraining:
        """The batches, the schedule and the initial weights, the same for every runner."""
        options = PretrainOptions.load(Path(self.folder) / "training.json")
        options = dataclasses.replace(options, dtype=dtype)
        return Pretraining(options, prepare_text(options, Path(self.folder), show=False), ops or Ops())


class Runner:
    """Steps of training with the time they take; evaluations of held-out text between them take none.

    Subclasses train and look. Batches come from one thread that makes them a little ahead, for everyone the
    same; waiting for one counts.

    Parameters
    ----------
    course, task : what is trained.
    """

    def __init__(self, course: Course, task: Pretraining) -> None:
        self.task = task
        timetable = Timetable.of(course.steps)
        self._rate = task.rate(timetable)
        self._batches = prefetch(self._ready(task.batches(timetable)))
        self._step = self._tokens = 0
        self._seconds = 0.0
        self._looks = task.held_out_batches(task.options.longest, course.targets)

    def ready(self, batch: Batch) -> Any:
        """What `train` takes, made beside the training."""
        return batch

    def train(self, ready: Any, rate: float) -> float:
        """One step at this learning rate; the loss before it."""
        raise NotImplementedError

    # -> (M,)
    def look(self, batch: Batch) -> np.ndarray:
        """The negative log-likelihood of every target of a held-out batch, without dropout."""
        raise NotImplementedError

    def advance(self, step: int) -> dict[str, float]:
        """Train until so many steps are done; how long all of them took, and what they read."""
        began, losses = time.perf_counter(), []
        for tokens, batch in islice(self._batches, max(0, step - self._step)):
            losses.append(self.train(batch, self._rate(self._step)))
            self._step, self._tokens = self._step + 1, self._tokens + tokens
        self._seconds += time.perf_counter() - began
        mean = float(np.mean(losses)) if losses else math.nan
        return {"step": self._step, "seconds": self._seconds, "tokens": self._tokens, "training_loss": mean}

    # -> (K,)
    def held_out(self) -> np.ndarray:
        """The negative log-likelihood of every held-out target that shows [MASK], always the same ones."""
        found = []
        for batch in self._looks:
            scored = scored_positions(batch.input_ids[batch.masked_rows], self.task.mask_id)
            found.append(np.asarray(self.look(batch), np.float64)[scored])
        return np.concatenate(found)

    # -> (K,)
    def targets(self) -> np.ndarray:
        """The ids that stood there."""
        masks = (scored_positions(b.input_ids[b.masked_rows], self.task.mask_id) for b in self._looks)
        return np.concatenate([b.masked_labels[mask] for b, mask in zip(self._looks, masks, strict=True)])

    def seconds_per_step(self, seconds: float) -> float:
        """Of the whole schedule, from steps of every length at no learning rate worth speaking of.

        The weights are not fit for the race afterwards.
        """
        lengths = self.task.options.lengths
        return sum(share * self._seconds_at(length, seconds / len(lengths)) for length, share in lengths)

    def _seconds_at(self, length: int, seconds: float) -> float:
        times: list[float] = []
        for _, batch in prefetch(self._ready(self.task.stage_batches(length))):
            times.append(time.perf_counter())
            if len(times) > REHEARSED + 2 and times[-1] - times[REHEARSED] >= seconds:
                break
            self.train(batch, 1e-9)
        return (times[-1] - times[REHEARSED]) / (len(times) - 1 - REHEARSED)

    def _ready(self, batches: Iterator[tuple[Batch, list]]) -> Iterator[tuple[int, Any]]:
        return ((batch.T, self.ready(batch)) for batch, _ in batches)
