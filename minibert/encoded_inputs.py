"""What other tokenizers return, as sequences of token ids: dictionaries of arrays, padded or not.

`transformers` returns a `BatchEncoding`, a mapping of `input_ids`, `attention_mask` and `token_type_ids` to lists or
arrays whose rows are filled up to one length. A `Batch` has no padding, so tokens that the mask leaves out are dropped.
"""

from collections.abc import Iterable, Iterator, Mapping
from reprlib import repr as short
from typing import Any

import numpy as np

from minibert.errors import InputError, warn
from minibert.model.batch import Sequence

IDS, MASK, SEGMENTS = "input_ids", "attention_mask", "token_type_ids"
# What changes the result of a model and has no counterpart in a `Sequence`.
UNREAD = ("inputs_embeds", "position_ids", "encoder_hidden_states", "past_key_values")
PAD_ID = 0  # of every released vocabulary, and of ours


def is_encoded(inputs: Any) -> bool:
    """Tell whether an object has token ids under the name `input_ids`: a mapping or a table with such a column."""
    names = inputs if isinstance(inputs, Mapping) else getattr(inputs, "column_names", None)
    names = getattr(inputs, "columns", ()) if names is None else names
    return not callable(names) and IDS in names


def sequences_of(inputs: Any) -> list[Sequence]:
    """Return the sequences of a mapping or a table for which `is_encoded` holds.

    Parameters
    ----------
    inputs : mapping or table
        `input_ids`, (S,n) or S lists of different lengths, or (n,) for one sequence; optionally `attention_mask` and
        `token_type_ids` of the same shape. Lists, or arrays of NumPy, PyTorch, TensorFlow or JAX.

    Returns
    -------
    list of Sequence
        Of each row the tokens whose mask is 1: all of them without a mask, as in `transformers`.

    Raises
    ------
    InputError
        When the parts have different shapes, a mask is not ones in a row, or there is something in `UNREAD`.
    """
    for name in UNREAD:
        if isinstance(inputs, Mapping) and inputs.get(name) is not None:
            raise InputError(f"inputs: {name} is not read; give {IDS}, {MASK} and {SEGMENTS}, and leave it out.")
    ids = _rows(inputs[IDS], IDS)
    masks = _like(ids, inputs, MASK)
    segments = _like(ids, inputs, SEGMENTS)
    if masks is None:
        _warn_of_padding(ids)
    sequences = []
    for number, row in enumerate(ids):
        kept = slice(None) if masks is None else _kept(masks[number], number)
        types = np.zeros(len(row), np.int32) if segments is None else segments[number]
        sequences.append(Sequence(row[kept], types[kept]))
    return sequences


def sequence_of(encoding: Any) -> Sequence:
    """Return the tokens of one `Encoding` of the library `tokenizers`, without its padding."""
    mask = np.asarray(encoding.attention_mask)
    kept = _kept(mask, 0)
    return Sequence(np.asarray(encoding.ids)[kept], np.asarray(encoding.type_ids)[kept])


def _rows(values: Any, name: str) -> list[np.ndarray]:
    """Return a part of an encoding as rows of numbers, one for each sequence."""
    if callable(getattr(values, "cpu", None)):  # of PyTorch, perhaps on a GPU
        values = values.cpu()
    if hasattr(values, "__array__") and np.asarray(values).dtype != object:
        rows = np.asarray(values)
        dimensions = rows.ndim
    elif isinstance(values, Iterable) and not isinstance(values, str | bytes):
        rows = [np.asarray(row.cpu() if callable(getattr(row, "cpu", None)) else row) for row in _flat(values, name)]
        dimensions = 1 + max((row.ndim for row in rows), default=1)
        if all(row.ndim == 0 for row in rows) and rows:
            rows, dimensions = np.array(rows), 1
    else:
        rows, dimensions = values, 0
    if dimensions == 1:
        return [np.asarray(rows)]
    if dimensions != 2 or any(np.ndim(row) != 1 for row in rows):
        raise InputError(f"inputs: {name} is {short(values)}; give a row of numbers for each sequence.")
    return list(rows)


def _flat(values: Iterable[Any], name: str) -> Iterator[Any]:
    """Yield rows; raise InputError for one that is itself ragged, which is no row of numbers."""
    for row in values:
        parts = row if isinstance(row, list | tuple) else ()
        if any(isinstance(part, list | tuple) for part in parts):
            raise InputError(f"inputs: {name} has the row {short(row)}; give a row of numbers for each sequence.")
        yield row


def _like(ids: list[np.ndarray], inputs: Any, name: str) -> list[np.ndarray] | None:
    """Return another part of an encoding if it is there; raise InputError when its shape is not that of the ids."""
    names = inputs if isinstance(inputs, Mapping) else getattr(inputs, "column_names", None) or inputs.columns
    if name not in names or inputs[name] is None:
        return None
    rows = _rows(inputs[name], name)
    if len(rows) != len(ids):
        raise InputError(f"inputs: {name} has {len(rows):,} rows and {IDS} {len(ids):,}; give both of one call.")
    for number, (row, own) in enumerate(zip(rows, ids, strict=True)):
        if len(row) != len(own):
            both = f"{name} of sequence {number:,} has {len(row):,} numbers and {IDS} {len(own):,}"
            raise InputError(f"inputs: {both}; give both of one call of the tokenizer.")
    return rows


def _kept(mask: np.ndarray, number: int) -> slice:
    """Return where the ones of a mask stand, which have to be next to one another."""
    if not np.isin(mask, (0, 1)).all():
        raise InputError(f"inputs: {MASK} of sequence {number:,} has other values than 0 and 1; give these.")
    ones = np.flatnonzero(mask)
    if not len(ones):
        raise InputError(f"inputs: {MASK} of sequence {number:,} leaves out every token; leave that row out.")
    begin, end = int(ones[0]), int(ones[-1]) + 1
    if end - begin != len(ones):
        what = f"{MASK} of sequence {number:,} leaves out tokens between others"
        raise InputError(f"inputs: {what}; leave out padding at the beginning or the end only.")
    return slice(begin, end)


def _warn_of_padding(ids: list[np.ndarray]) -> None:
    """Warn of rows that end in [PAD] where no mask says that it is not to be read."""
    ending = [number for number, row in enumerate(ids) if len(row) > 1 and row[-1] == PAD_ID]
    if ending:
        what = f"{IDS} of sequence {ending[0]:,} ends in id {PAD_ID}, which is [PAD], and there is no {MASK}"
        warn(f"inputs: {what}: the padding is read as tokens. Give the mask that the tokenizer returned.")
