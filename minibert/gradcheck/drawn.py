"""Draw parameters and batches for all heads, also those that the core does not have."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from minibert.core.config import BertConfig
from minibert.core.gradcheck import cases
from minibert.core.gradcheck.cases import Size
from minibert.model.batch import TaskBatch
from minibert.model.head_kinds import SIMILARITY
from minibert.model.params import PRETRAINING, Head, Parameters


def random_parameters(config: BertConfig, rng: np.random.Generator, head: Head = PRETRAINING) -> Any:
    """Draw parameters in general position for any head, as the core's `random_parameters` does.

    Parameters
    ----------
    config : BertConfig
    rng : np.random.Generator
        Source of all draws.
    head : Head
        Head on the encoder; the heads of pre-training by default.

    Returns
    -------
    Parameters float64
    """
    return cases.random_parameters(config, rng, head, Parameters)


def random_task_batch(size: Size, head: Head, rng: np.random.Generator, tagged: float = 0.4) -> Any:
    """Draw tokens and labels for any head, as the core's `random_task_batch` does.

    Parameters
    ----------
    size : Size
        Only the lengths of the sequences and V are used.
    head : Head
        With `pool`, the examples have one window, two windows, and all other windows. With a head of
        similarity, each example has two sequences.
    rng : np.random.Generator
        Source of all draws.
    tagged : float, default 0.4
        Share of the tokens that have a tag.

    Returns
    -------
    TaskBatch
    """
    count = len(size.lengths)
    borders: Sequence[int] | None = None
    if head.pool:
        borders = sorted({0, 1, min(3, count), count})
    elif head.kind in SIMILARITY:
        borders = range(0, count + 1, 2)
    label_limit = size.V if head.kind == "contrastive" else None
    return cases.random_task_batch(
        size,
        head,
        rng,
        tagged,
        borders=borders,
        label_limit=label_limit,
        batches=TaskBatch,
    )
