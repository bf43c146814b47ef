"""Extend the position table of a trained model, and fill its untrained rows."""

from dataclasses import replace

import numpy as np

from minibert.base.errors import InputError
from minibert.core.config import BertConfig
from minibert.core.params import FlatParameters
from minibert.model.params import Parameters

TABLE = "embeddings.position"


# Layers that know what to do with trained rows take others for noise: without this, the loss is half a nat
# higher at first, and 0.15 after 300 steps ("new positions" in the log). Moments stay 0, so copies soon part.
def copy_trained_positions(params: FlatParameters, known: int, length: int) -> None:
    """Fill the untrained rows `known` to `length` of the positions' table by repeating the others.

    Parameters
    ----------
    params : FlatParameters
        Changed in place.
    known : int
        Rows that were trained, from the first on.
    length : int
        Up to which row to fill.
    """
    rows = params[TABLE]
    count = max(0, length - known)
    rows[known:length] = np.resize(rows[:known], (count, rows.shape[1]))


def check_extension(config: BertConfig, positions: int, source: str) -> None:
    """Check that an extension does not take positions from a trained model.

    Parameters
    ----------
    config : BertConfig
        Configuration of the model.
    positions : int
        How many it is to have.
    source : str
        What errors call the model.

    Raises
    ------
    InputError
        When they are fewer.
    """
    if positions < config.P:
        message = f"extend_positions={positions!r} is less than the {config.P} positions of '{source}'"
        raise InputError(f"{message}; give more, or leave it out.", extend_positions=positions)


def with_positions(params: Parameters, positions: int, source: str) -> Parameters:
    """Return a trained model with more positions than it has.

    Parameters
    ----------
    params : Parameters
        Parameters of the model.
    positions : int
        How many it is to have; as many as it has change nothing.
    source : str
        What errors call the model.

    Returns
    -------
    model.params.Parameters
        With the same head. Rows that were trained are as they were; all beyond them repeat them from the
        first one on. Where the model does not say how long its sequences were in pre-training, every row
        counts as trained, and from then on it says so.

    Raises
    ------
    InputError
        When it is to have fewer.
    """
    config = params.config
    check_extension(config, positions, source)
    if positions == config.P:
        return params
    known = min(config.trained_length or config.P, config.P)
    longer = replace(config, max_position_embeddings=positions, trained_length=known)
    grown = Parameters(longer, dtype=params.flat.dtype, head=params.head)
    for name, value in params.items():
        grown[name][: len(value)] = value  # all but that table are of the same shape
    copy_trained_positions(grown, known, positions)
    return grown
