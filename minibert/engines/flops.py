"""Count BERT's floating-point operations: those of its matrix products, where a multiply-add is two.

Only necessary work counts: tokens without padding; in the last layer, only the rows that a head reads;
vocabulary scores only at masked positions. What backward computes a second time does not count, nor does
anything that is not a matrix product.
"""

import numpy as np

from minibert.core.config import BertConfig


# lengths (S,) -> number
def attention_pairs(lengths: np.ndarray, causal: bool = False) -> int:
    """Count the (query, key) pairs that attend: quadratic in the length of a sequence (appendix A.2).

    Parameters
    ----------
    lengths : (S,) whole numbers
        Tokens of each sequence.
    causal : bool
        Whether a token attends only to itself and the tokens before it; by default it sees the whole
        sequence.

    Returns
    -------
    int
        The number of pairs in all sequences, in one head.
    """
    lengths = np.asarray(lengths, np.int64)
    pairs = lengths * (lengths + 1) // 2 if causal else lengths * lengths
    return int(pairs.sum())


# lengths rows (S,)
def layer_operations(config: BertConfig, lengths: np.ndarray, rows: np.ndarray | None = None) -> int:
    """Count the operations of one layer, forward.

    Parameters
    ----------
    config : BertConfig
        Sizes of the model.
    lengths : (S,) whole numbers
        Tokens of each sequence.
    rows : (S,) whole numbers or None
        How many tokens of each sequence are read from this layer; None, the default, for all. Keys and values
        are computed for all tokens in either case.

    Returns
    -------
    int
        Floating-point operations.
    """
    H, F = config.H, config.F
    T = int(np.sum(lengths))
    if rows is None:
        R = T
        pairs = attention_pairs(lengths, config.is_decoder)
    else:
        R = int(np.sum(rows))
        pairs = int((np.asarray(lengths, np.int64) * rows).sum())
    keys_and_values = 2 * T * 2 * H**2
    queries_and_output = 2 * R * 2 * H**2
    feed_forward = 2 * R * 2 * H * F
    scores_and_mixing = 2 * pairs * H * 2
    return keys_and_values + queries_and_output + feed_forward + scores_and_mixing


# lengths rows (S,)
def encoder_operations(config: BertConfig, lengths: np.ndarray, rows: np.ndarray | None = None) -> int:
    """Count the operations from the embeddings through the last layer, forward.

    Parameters
    ----------
    config : BertConfig
        Sizes of the model.
    lengths : (S,) whole numbers
        Tokens of each sequence.
    rows : (S,) whole numbers or None
        How many tokens of each sequence are read from the last layer; None, the default, for all.

    Returns
    -------
    int
        Floating-point operations.
    """
    whole_layers = (config.L - 1) * layer_operations(config, lengths)
    return whole_layers + layer_operations(config, lengths, rows)


def pooler_operations(config: BertConfig, n_sequences: int) -> int:
    """Count the operations of the pooler, forward, for one [CLS] in each sequence.

    Parameters
    ----------
    config : BertConfig
        Sizes of the model.
    n_sequences : int
        How many sequences are pooled.

    Returns
    -------
    int
        Floating-point operations.
    """
    return 2 * n_sequences * config.H**2


# lengths (S,) masked (S,)
def step_operations(config: BertConfig, lengths: np.ndarray, masked: np.ndarray) -> int:
    """Count the operations of a pre-training step: forward, and twice as many backward.

    In the backward pass, each product becomes two: one for the gradient of each operand.

    Parameters
    ----------
    config : BertConfig
        Sizes of the model.
    lengths : (S,) whole numbers
        Tokens of each sequence.
    masked : (S,) whole numbers
        How many tokens of each sequence are predicted.

    Returns
    -------
    int
        Floating-point operations.
    """
    H, V, S = config.H, config.V, len(lengths)
    rows = np.asarray(masked) + 1  # and [CLS]
    reads_all = config.is_decoder or rows.sum() >= np.sum(lengths)
    encoder = encoder_operations(config, lengths, None if reads_all else rows)
    pooler = pooler_operations(config, S)
    masked_lm = 2 * int(np.sum(masked)) * (H**2 + H * V)
    next_sentence = 2 * S * H * 2
    return 3 * (encoder + pooler + masked_lm + next_sentence)


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
    """Count the operations of a step of fine-tuning: forward, and twice as many backward.

    Frozen layers are computed forward only.

    Parameters
    ----------
    config : BertConfig
        Sizes of the model.
    lengths : (S,) whole numbers
        Tokens of each sequence.
    rows : (S,) whole numbers or None
        How many tokens of each sequence leave the encoder; None for all.
    read : int
        How many rows the output layer reads.
    outputs : int
        How many columns the output layer has.
    pooled : bool
        Whether the output layer is on top of a pooler.
    frozen : int or None
        How many layers, from the lowest, are not trained. None and 0 are the same here, because embeddings
        have no matrix products.

    Returns
    -------
    int
        Floating-point operations.
    """
    encoder = encoder_operations(config, lengths, rows)
    head = 2 * read * config.H * outputs
    if pooled:
        head += pooler_operations(config, len(lengths))
    below = (frozen or 0) * layer_operations(config, lengths)
    if frozen == config.L:
        below = encoder
    return encoder + 2 * (encoder - below) + 3 * head
