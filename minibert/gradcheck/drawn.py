"""Draw parameters and batches for the heads of the product."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from minibert.core.config import BertConfig
from minibert.core.gradcheck import cases
from minibert.core.gradcheck.cases import Size
from minibert.model.batch import TaskBatch
from minibert.model.params import PRETRAINING, Head, Parameters
from minibert.tasks import similarity_losses


def random_parameters(config: BertConfig, rng: np.random.Generator, head: Head = PRETRAINING) -> Any:
    """Draw parameters in general position, as the core's `random_parameters` does, for any head."""
    return cases.random_parameters(config, rng, head, Parameters)


def random_task_batch(size: Size, head: Head, rng: np.random.Generator, tagged: float = 0.4) -> Any:
    """Draw tokens and labels for any head, as the core's `random_task_batch` does.

    With `head.pool` examples have one, two and all other windows; vectors are those of two texts.
    """
    count = len(size.lengths)
    borders: Sequence[int] | None = None
    if head.pool:
        borders = sorted({0, 1, min(3, count), count})
    elif head.kind in similarity_losses.KINDS:
        borders = range(0, count + 1, 2)
    texts = size.V if head.kind == "contrastive" else None
    return cases.random_task_batch(size, head, rng, tagged, borders, texts, TaskBatch)
