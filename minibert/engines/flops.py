"""How many floating-point operations BERT takes: those of its matrix products, a multiply-add being two.

Only what has to be done counts: real tokens, no padding; of the last layer the rows that a head reads;
vocabulary scores of masked positions only. What is computed a second time for backward does not count, nor
does anything that is no matrix product.
"""

import numpy as np

from minibert.core.config import BertConfig


# lengths (S,) -> number
def attention_pairs(lengths: np.ndarray, causal: bool = False) -> int:
    """Return how many (query, key) pairs attend in sequences of these lengths."""
    lengths = np.asarray(lengths, np.int64)
    return int((lengths * (lengths + 1) // 2 if causal else lengths * lengths).sum())


# lengths rows (S,)
def layer_operations(config: BertConfig, lengths: np.ndarray, rows: np.ndarray | None = None) -> int:
    """Count forward through a layer; `rows`: how many tokens of each sequence are read of it, None: all."""
    H, T, R = config.H, int(np.sum(lengths)), int(np.sum(lengths if rows is None else rows))
    of_tokens = 2 * T * 2 * H**2  # keys, values
    of_rows = 2 * R * (2 * H**2 + 2 * H * config.F)  # queries, output; in, out
    pairs = attention_pairs(lengths, config.is_decoder)
    if rows is not None:
        pairs = int((np.asarray(lengths, np.int64) * rows).sum())
    return of_tokens + of_rows + 2 * pairs * H * 2  # scores; sum of values


# lengths rows (S,)
def encoder_operations(config: BertConfig, lengths: np.ndarray, rows: np.ndarray | None = None) -> int:
    """Count forward, from the embeddings to the last layer, of which `rows` are read; None: all."""
    return (config.L - 1) * layer_operations(config, lengths) + layer_operations(config, lengths, rows)


def pooler_operations(config: BertConfig, n_sequences: int) -> int:
    """Count forward through the pooler, one [CLS] a sequence."""
    return 2 * n_sequences * config.H**2


# lengths (S,) masked (S,), how many of the tokens of each sequence are to be predicted
def step_operations(config: BertConfig, lengths: np.ndarray, masked: np.ndarray) -> int:
    """Count a pre-training step: forward, and twice as many backward, for each operand's gradient."""
    rows = np.asarray(masked) + 1  # and the first
    every = config.is_decoder or rows.sum() >= np.sum(lengths)
    encoder = encoder_operations(config, lengths, None if every else rows)
    head = 2 * int(np.sum(masked)) * (config.H**2 + config.H * config.V)
    next_sentence = 2 * len(lengths) * config.H * 2
    return 3 * (encoder + pooler_operations(config, len(lengths)) + head + next_sentence)


# lengths rows (S,)
def task_operations(
    config: BertConfig,
    lengths: np.ndarray,
    rows: np.ndarray | None,
    read: int,
    outputs: int,
    pooled: bool,
    frozen: int | None = None,
) -> int:
    """Count a step of fine-tuning: forward, and twice as many backward, but for `frozen` layers.

    Of each sequence so many `rows` leave the encoder, None: all. The output layer, perhaps on a pooler, has
    `read` rows and `outputs` columns.
    """
    encoder = encoder_operations(config, lengths, rows)
    head = 2 * read * config.H * outputs + pooled * pooler_operations(config, len(lengths))
    below = encoder if frozen == config.L else (frozen or 0) * layer_operations(config, lengths)
    return encoder + 2 * (encoder - below) + 3 * head
