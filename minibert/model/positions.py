"""Extend the position table of a trained model, and fill its untrained rows."""

from dataclasses import replace

import numpy as np

from minibert.base.errors import InputError
from minibert.core.config import BertConfig
from minibert.core.params import FlatParameters
from minibert.model.params import Parameters

TABLE = "embeddings.position"


# To layers that were trained with trained rows, random rows are noise: without this, the loss is half a nat
# higher at first, and still 0.15 nats after 300 steps ("new positions" in the log). The optimizer's moments
# of the copies stay 0, so copies soon differ from their originals.
def copy_trained_positions(params: FlatParameters, known: int, length: int) -> None:
    """Fill the untrained rows `known` to `length` (exclusive) of the position table by repeating the others.

    Parameters
    ----------
    params : FlatParameters
        The parameters, which are changed in place.
    known : int
        Number of trained rows; they are the first ones.
    length : int
        Number of rows that are filled afterwards.
    """
    rows = params[TABLE]
    count = max(0, length - known)
    rows[known:length] = np.resize(rows[:known], (count, rows.shape[1]))


def check_extension(config: BertConfig, positions: int, source: str) -> None:
    """Check that an extension does not take positions away from a trained model.

    Parameters
    ----------
    config : BertConfig
        Configuration of the model.
    positions : int
        The number of positions after the extension.
    source : str
        Name of the model, for errors.

    Raises
    ------
    InputError
        When `positions` is less than the model has.
    """
    if positions < config.P:
        message = f"extend_positions={positions!r} is less than the {config.P} positions of '{source}'"
        raise InputError(f"{message}; give more, or leave it out.", extend_positions=positions)


def with_positions(params: Parameters, positions: int, source: str) -> Parameters:
    """Return a trained model with more positions.

    Parameters
    ----------
    params : Parameters
        Parameters of the model.
    positions : int
        The new number of positions; if it is the old one, nothing changes.
    source : str
        Name of the model, for errors.

    Returns
    -------
    model.params.Parameters
        Parameters with the same head. Trained rows stay as they were; all rows after them repeat them from
        the first one on. If the configuration does not record the longest sequence of pre-training, every old
        row counts as trained, and the new configuration records their number.

    Raises
    ------
    InputError
        When `positions` is less than the model has.
    """
    config = params.config
    check_extension(config, positions, source)
    if positions == config.P:
        return params
    known = min(config.trained_length or config.P, config.P)
    longer = replace(config, max_position_embeddings=positions, trained_length=known)
    grown = Parameters(longer, dtype=params.flat.dtype, head=params.head)
    for name, value in params.items():
        grown[name][: len(value)] = value  # all except the position table keep their shape
    copy_trained_positions(grown, known, positions)
    return grown
