"""How many floating-point operations BERT takes: those of its matrix products, a multiply-add being two.

Only what has to be done counts: real tokens, no padding; vocabulary scores of masked positions only. What is
computed a second time for backward does not count, nor does anything that is no matrix product.
"""

import numpy as np

from minibert.config import BertConfig


# lengths (S,) -> number
def attention_pairs(lengths: np.ndarray, causal: bool = False) -> int:
    """How many (query, key) pairs look at each other in sequences of these lengths."""
    lengths = np.asarray(lengths, np.int64)
    return int((lengths * (lengths + 1) // 2 if causal else lengths * lengths).sum())


# lengths (S,)
def encoder_operations(config: BertConfig, lengths: np.ndarray) -> int:
    """Forward, from the embeddings to the last layer."""
    T = int(lengths.sum())
    projections = 2 * T * (4 * config.H**2 + 2 * config.H * config.F)  # qkv, output; in, out
    attention = 2 * attention_pairs(lengths, config.is_decoder) * config.H * 2  # scores; sum of values
    return config.L * (projections + attention)


def pooler_operations(config: BertConfig, n_sequences: int) -> int:
    """Forward through the pooler, one [CLS] a sequence."""
    return 2 * n_sequences * config.H**2


# lengths (S,)
def step_operations(config: BertConfig, lengths: np.ndarray, n_masked: int) -> int:
    """Of a pre-training step: forward, and twice as many backward, for each operand's gradient."""
    head = 2 * n_masked * (config.H**2 + config.H * config.V)
    next_sentence = 2 * len(lengths) * config.H * 2
    forward = encoder_operations(config, lengths) + pooler_operations(config, len(lengths))
    return 3 * (forward + head + next_sentence)


# lengths (S,)
def task_operations(
    config: BertConfig,
    lengths: np.ndarray,
    rows: int,
    outputs: int,
    pooled: bool,
    frozen: int | None = None,
) -> int:
    """Of a step of fine-tuning: forward, and twice as many backward.

    Parameters
    ----------
    config, lengths : the model; of each sequence of the batch.
    rows, outputs : of the output layer.
    pooled : whether there is a pooler below it.
    frozen : layers that backward does not reach.
    """
    encoder = encoder_operations(config, lengths)
    head = 2 * rows * config.H * outputs + pooled * pooler_operations(config, len(lengths))
    reached = encoder * (config.L - (frozen or 0)) // config.L
    return encoder + 2 * reached + 3 * head
