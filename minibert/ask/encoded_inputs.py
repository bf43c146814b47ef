"""Read the output of other tokenizers, such as dictionaries of padded arrays, as sequences of token ids.

`transformers` returns a `BatchEncoding`: a mapping from `input_ids`, `attention_mask` and `token_type_ids` to
lists or arrays whose rows are padded to one length. A `Batch` has no padding, so tokens that the mask leaves
out are dropped.
"""

from collections.abc import Mapping
from reprlib import repr as short
from typing import Any

import numpy as np

from minibert.base.errors import InputError, warn
from minibert.core.batch import Sequence

IDS, MASK, SEGMENTS = "input_ids", "attention_mask", "token_type_ids"
# These would change the result of the model, but a `Sequence` can't hold them.
UNSUPPORTED = ("inputs_embeds", "position_ids", "encoder_hidden_states", "past_key_values")
PAD_ID = 0  # the id of [PAD] in every released vocabulary, and in those of minibert


def is_encoded(inputs: Any) -> bool:
    """Return whether an object is a mapping or a table that has token ids, named `input_ids`.

    Parameters
    ----------
    inputs : object
        What the user gave.

    Returns
    -------
    bool
    """
    return IDS in _names(inputs)


def sequences_of(inputs: Any) -> list[Sequence]:
    """Return the sequences of a mapping or a table for which `is_encoded` holds.

    Parameters
    ----------
    inputs : mapping or table
        `input_ids`, (S,n) or S lists of different lengths, or (n,) for one sequence; optionally
        `attention_mask` and `token_type_ids` of the same shape. Lists, or arrays of NumPy, PyTorch,
        TensorFlow or JAX.

    Returns
    -------
    list of Sequence
        For each row, the tokens whose mask is 1; without a mask all tokens, as in `transformers`.

    Raises
    ------
    InputError
        If the shapes differ; if a mask has other values than 0 and 1, keeps no token or has a gap; or if a
        mapping has one of `UNSUPPORTED`.
    """
    for name in UNSUPPORTED:
        if isinstance(inputs, Mapping) and inputs.get(name) is not None:
            raise InputError(
                f"inputs: {name} is not supported; leave it out, and give {IDS}, {MASK} and {SEGMENTS}."
            )
    ids = _rows(inputs[IDS], IDS)
    masks = _like(ids, inputs, MASK)
    segments = _like(ids, inputs, SEGMENTS)
    if masks is None:
        _warn_of_padding(ids)
    sequences = []
    for index, row in enumerate(ids):
        kept = slice(None)
        if masks is not None:
            kept = _kept(masks[index], index)
        types = np.zeros(len(row), np.int32) if segments is None else segments[index]
        sequences.append(Sequence(row[kept], types[kept]))
    return sequences


def sequence_of(encoding: Any) -> Sequence:
    """Return the tokens of one `Encoding` of the library `tokenizers`, without its padding.

    Parameters
    ----------
    encoding : tokenizers.Encoding
        An encoding whose `ids`, `type_ids` and `attention_mask` have shape (n,).

    Returns
    -------
    Sequence
    """
    mask = np.asarray(encoding.attention_mask)
    kept = _kept(mask, 0)
    return Sequence(np.asarray(encoding.ids)[kept], np.asarray(encoding.type_ids)[kept])


def _names(inputs: Any) -> list[Any]:
    """Return the keys of a mapping or the columns of a table; [] for anything else."""
    if isinstance(inputs, Mapping):
        return list(inputs)
    names = getattr(inputs, "column_names", None)  # datasets.Dataset
    if names is None:
        names = getattr(inputs, "columns", None)  # pandas and polars
    if names is None or callable(names):
        return []
    return list(names)


def _rows(values: Any, name: str) -> list[np.ndarray]:
    """Return a part of an encoding as rows of numbers, one for each sequence."""
    rows: list[np.ndarray] | None = None
    try:
        whole = _array(values)
        if whole.ndim == 1:
            rows = [whole] if whole.size else []
        elif whole.ndim == 2:
            rows = list(whole)
    except ValueError:  # rows of different lengths
        rows = _ragged_rows(values)
    if rows is not None and any(row.dtype == object for row in rows):  # the same from pandas or older NumPy
        rows = _ragged_rows(values)
    if rows is None or any(row.ndim != 1 for row in rows):
        raise InputError(f"inputs: {name} is {short(values)}; give a row of numbers for each sequence.")
    return rows


def _ragged_rows(values: Any) -> list[np.ndarray] | None:
    """Return rows of different lengths as arrays, or None if a row is nested."""
    if not all(map(_is_flat, values)):
        return None
    return [_array(row) for row in values]


def _array(values: Any) -> np.ndarray:
    """Return values as an array; raise ValueError if rows have different lengths."""
    if callable(getattr(values, "cpu", None)):  # a PyTorch tensor, which may be on a GPU
        values = values.cpu()
    return np.asarray(values)


def _is_flat(row: Any) -> bool:
    """Return whether a value is a row without rows in it."""
    if hasattr(row, "ndim"):
        return bool(row.ndim == 1)
    if not isinstance(row, list | tuple):
        return False
    return not any(isinstance(part, list | tuple) for part in row)


def _like(ids: list[np.ndarray], inputs: Any, name: str) -> list[np.ndarray] | None:
    """Return another part of the encoding, or None; raise InputError if its shape is not that of the ids."""
    if name not in _names(inputs) or inputs[name] is None:
        return None
    rows = _rows(inputs[name], name)
    if len(rows) != len(ids):
        raise InputError(
            f"inputs: {name} has {len(rows):,} rows and {IDS} {len(ids):,}; give both from one call."
        )
    for index, (row, row_ids) in enumerate(zip(rows, ids, strict=True)):
        if len(row) != len(row_ids):
            counts = f"{name} of sequence {index:,} has {len(row):,} numbers and {IDS} {len(row_ids):,}"
            raise InputError(f"inputs: {counts}; give both from one call of the tokenizer.")
    return rows


def _kept(mask: np.ndarray, index: int) -> slice:
    """Return the range where a mask is 1, which has to be contiguous; `index` is that of the sequence."""
    if not np.isin(mask, (0, 1)).all():
        what = f"{MASK} of sequence {index:,} has values other than 0 and 1"
        raise InputError(f"inputs: {what}; give only these.")
    ones = np.flatnonzero(mask)
    if not len(ones):
        raise InputError(f"inputs: {MASK} of sequence {index:,} leaves out every token; leave that row out.")
    begin, end = int(ones[0]), int(ones[-1]) + 1
    if end - begin != len(ones):
        what = f"{MASK} of sequence {index:,} leaves out tokens between others"
        raise InputError(f"inputs: {what}; leave out padding only at the beginning or the end.")
    return slice(begin, end)


def _warn_of_padding(ids: list[np.ndarray]) -> None:
    """Warn if rows end in [PAD], since there is no mask."""
    padded = [index for index, row in enumerate(ids) if len(row) > 1 and row[-1] == PAD_ID]
    if padded:
        what = f"{IDS} of sequence {padded[0]:,} ends in id {PAD_ID}, which is [PAD], and there is no {MASK}"
        warn(f"inputs: {what}: the padding is read as tokens. Give the mask that the tokenizer returned.")
