"""An epoch of fine-tuning, the same for everyone: examples as ids, and which of them make each step."""

import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from minibert.core.batch import Feature, Sequence
from minibert.core.config import BertConfig
from minibert.model.params import Head, Parameters, initialise
from minibert.tasks.batches import epoch_order
from peers.work import SPREAD

SEED = 0
RATE = 5e-5
EPS = 1e-6
WEIGHT_DECAY = 0.01
CLIP_NORM = 1.0
_NONE = np.empty(0, np.int32)


class Epoch(NamedTuple):
    """What is trained on what: a shape with random weights, and the examples of a task."""

    size: str
    head: Head
    examples: str  # path of what `store` wrote
    batch: int = 32  # examples a step
    dropout: float = 0.1

    def arguments(self) -> tuple["Epoch"]:
        """Itself; examples are read in the process that uses them."""
        return (self,)

    @property
    def config(self) -> BertConfig:
        """The published shape, vocabulary of 30,522, with this dropout everywhere."""
        return BertConfig.from_size(
            self.size, hidden_dropout_prob=self.dropout, attention_probs_dropout_prob=self.dropout
        )

    def parameters(self) -> Parameters:
        """In general position: with initial weights alone everyone's loss is log K, right or wrong."""
        found = initialise(self.config, seed=1, head=self.head)
        noise = np.random.default_rng(2).standard_normal(len(found.flat), np.float32)
        found.flat += noise * np.float32(SPREAD)
        return found

    def features(self) -> list[Feature]:
        """Every example of the task."""
        with np.load(self.examples) as stored:
            ids, types, lengths, labels = (stored[name] for name in ("ids", "types", "lengths", "labels"))
        ends = np.cumsum(lengths)
        return [
            Feature((Sequence(ids[end - n : end], types[end - n : end], _NONE, _NONE),), label)
            for n, end, label in zip(lengths.tolist(), ends.tolist(), labels.tolist(), strict=True)
        ]

    def steps(self) -> list[list[int]]:
        """The examples of each step of the epoch, in the order that `minibert finetune` takes them."""
        with np.load(self.examples) as stored:
            order = epoch_order(len(stored["lengths"]), SEED, 0).tolist()
        return [order[at : at + self.batch] for at in range(0, len(order), self.batch)]


def store(path: Path, features: list[Feature]) -> None:
    """Write features of one sequence each, for `Epoch` to read."""
    sequences = [feature.sequences[0] for feature in features]
    np.savez(
        path,
        ids=np.concatenate([sequence.input_ids for sequence in sequences]).astype(np.int32),
        types=np.concatenate([sequence.token_type_ids for sequence in sequences]).astype(np.int32),
        lengths=np.array([len(sequence.input_ids) for sequence in sequences]),
        labels=np.array([feature.label for feature in features]),
    )


class Tuner:
    """Trains on steps of the epoch; subclasses say how.

    Parameters
    ----------
    epoch : what is trained on what.
    """

    def __init__(self, epoch: Epoch) -> None:
        self.features, self._steps = epoch.features(), epoch.steps()

    def train(self, steps: list[list[int]]) -> list[float]:
        """The loss before each of these steps."""
        raise NotImplementedError

    def advance(self, first: int, last: int) -> dict[str, Any]:
        """Steps `first` to `last` (exclusive), over and over the epoch: how long they took."""
        steps = [self._steps[at % len(self._steps)] for at in range(first, last)]
        began, used = time.perf_counter(), time.process_time()
        losses = self.train(steps)
        took = time.perf_counter() - began
        lengths = [[len(self.features[at].sequences[0].input_ids) for at in step] for step in steps]
        return {
            "seconds": took,
            "busy_cores": (time.process_time() - used) / took,
            "tokens": sum(map(sum, lengths)),
            "places": sum(len(own) * max(own) for own in lengths),  # what padding makes of them
            "losses": losses,
        }
