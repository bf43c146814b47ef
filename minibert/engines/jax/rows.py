"""A batch in static shapes: each sequence is a row with padding after it, and sizes are rounded up.

JAX compiles for shapes. With the shapes of the batches themselves, it would compile nearly every step again.
So sequences become rows of equal length, and the numbers of rows, columns, masked positions and tags are
rounded up to a few sizes. Padding has weight zero in every loss, and attention ignores it.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from minibert.core.arrays import Array
from minibert.core.batch import Batch, TaskBatch
from minibert.model.batch import BatchPart, VectorBatch

COLUMNS = 8  # the length of a row is a multiple of this
STEPS = 4  # sizes between a power of two and the next: at most a quarter of a size is padding
PER_TOKEN = ("input_ids", "token_type_ids", "positions")
PER_SEQUENCE = ("sequence_index", "next_sentence_labels", "next_sentence_weights")
PER_MASKED = ("masked_labels", "masked_weights")
OF_TASKS = ("labels", "label_weights", "label_rows", "windows", "vectors")


def static() -> Any:
    """Declare a dataclass field that is not an array: code is compiled separately for each of its values."""
    return dataclasses.field(metadata={"static": True})


class Borders(NamedTuple):
    """The counterpart of `cu_seqlens` under JAX: sequence r is the first lengths[r] tokens of row r."""

    lengths: Array  # (R,) int32, 0 for a row of padding
    columns: Array  # (n,) int32, 0 to n - 1; its shape gives the number of columns


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Rows:
    """The inputs of a `Batch`, `TaskBatch` or `VectorBatch`, in R rows of `columns` tokens.

    Attributes have the names and the meaning that they have there; those that a kind of batch lacks are None.
    """

    input_ids: Array  # (R n,)
    token_type_ids: Array  # (R n,)
    positions: Array  # (R n,)
    lengths: Array  # (R,)
    sequence_index: Array  # (R,)
    masked_rows: Array  # (M,) of the R n
    masked_labels: Array  # (M,)
    masked_weights: Array  # (M,)
    next_sentence_labels: Array  # (R,)
    next_sentence_weights: Array  # (R,)
    labels: Array  # (E,), (E,K), (R,2) or (N,)
    label_weights: Array
    label_rows: Array  # (N,) of the R n
    windows: Array  # (E,W) of the R, -1 after them
    vectors: Array  # (R n,I) or (layers,R n,I)
    columns: int = static()
    choices: int = static()
    asks_next: bool = static()

    @property
    def cu_seqlens(self) -> Borders:
        """Return where sequences begin, and where they end."""
        return Borders(self.lengths, jnp.arange(self.columns, dtype=jnp.int32))

    @property
    def first_rows(self) -> Array:  # (R,)
        """Return the row of each sequence's first token."""
        return jnp.arange(self.lengths.shape[0], dtype=jnp.int32) * self.columns

    @property
    def last_rows(self) -> Array:  # (R,)
        """Return the row of each sequence's last token, or of its first padding if it has no token."""
        return self.first_rows + jnp.maximum(self.lengths - 1, 0)

    @property
    def token_sequences(self) -> Array:  # (R n,)
        """Return the index in the global batch of each token's sequence."""
        return jnp.repeat(self.sequence_index, self.columns)


class Shape(NamedTuple):
    """The padded sizes of a batch."""

    rows: int
    columns: int
    masked: int  # positions to predict
    tagged: int  # rows with a tag
    examples: int
    windows: int  # of an example


def rounded(count: int) -> int:
    """Round up to the next size: a power of two, or one of the steps between two of them.

    Parameters
    ----------
    count : int
        A number that is not negative.

    Returns
    -------
    int
        The size, at least 1.

    Examples
    --------
    >>> [rounded(n) for n in (1, 2, 3, 5, 9, 33, 1966)]
    [1, 2, 3, 5, 10, 40, 2048]
    """
    power = 1 << (max(count, 1) - 1).bit_length()
    unit = max(1, power // (2 * STEPS))
    return max(1, -(-count // unit) * unit)


def shape_of(batch: Batch) -> Shape:
    """Return the padded sizes of a batch.

    Parameters
    ----------
    batch : Batch
        A batch of any kind, on the host.

    Returns
    -------
    Shape
        The sizes, rounded up so that there are few different shapes.
    """
    choices = getattr(batch, "choices", 1)
    tagged = len(getattr(batch, "label_rows", ()))
    windows = getattr(batch, "windows", None)
    groups = rounded(batch.S // choices)
    longest = int(batch.lengths.max())
    return Shape(
        rows=groups * choices,
        columns=_columns(longest),
        masked=rounded(batch.M) if batch.M else 0,
        tagged=rounded(tagged) if tagged else 0,
        examples=groups if windows is None else rounded(batch.E),
        windows=0 if windows is None else rounded(windows.shape[1]),
    )


def _columns(longest: int) -> int:
    """Return the number of columns for sequences of at most `longest` tokens."""
    return -(-rounded(longest) // COLUMNS) * COLUMNS


def room(part: BatchPart, pieces: int) -> Shape:
    """Return sizes that every piece of every machine's part of a global batch fits in.

    Parameters
    ----------
    part : BatchPart
        The part of one machine, which has the limits of the whole batch.
    pieces : int
        How many pieces each part is split into.

    Returns
    -------
    Shape
        The shape of every piece on every machine.
    """
    sequences = -(-part.sequences // (part.parts * pieces))
    rows = rounded(sequences)
    return Shape(
        rows=rows,
        columns=_columns(part.longest),
        masked=rounded(rows * part.most_masked),
        tagged=0,
        examples=rows,
        windows=0,
    )


# -> (T,) of the R n
def places(batch: Batch, columns: int) -> np.ndarray:
    """Return the index of each token of a batch once its sequences are rows.

    Parameters
    ----------
    batch : Batch
        The batch, on the host.
    columns : int
        The length of a row, including padding.

    Returns
    -------
    (T,) int32
        Indices below R n.
    """
    begins = np.arange(batch.S, dtype=np.int32) * np.int32(columns)
    return np.repeat(begins, batch.lengths) + batch.positions


def lay_out(batch: Batch, shape: Shape, asks_next: bool | None = None) -> Rows:
    """Pad a batch to a shape.

    Parameters
    ----------
    batch : Batch
        The batch, on the host.
    shape : Shape
        The padded sizes. The padding is zeros, with weight zero.
    asks_next : bool or None
        Whether the global batch asks about next sentences; None, the default, if this batch is the global
        one.

    Returns
    -------
    Rows
        The padded batch, as NumPy arrays.
    """
    total = shape.rows * shape.columns
    place = places(batch, shape.columns)

    def spread(values: np.ndarray) -> np.ndarray:
        result = np.zeros(total, values.dtype)
        result[place] = values
        return result

    arrays: dict[str, Any] = _task_arrays(batch, shape, place)
    arrays["lengths"] = _padded(batch.lengths.astype(np.int32), shape.rows)
    arrays["masked_rows"] = _padded(place[batch.masked_rows], shape.masked)
    for name in PER_TOKEN:
        arrays[name] = spread(getattr(batch, name))
    for name in PER_SEQUENCE:
        arrays[name] = _padded(getattr(batch, name), shape.rows)
    for name in PER_MASKED:
        arrays[name] = _padded(getattr(batch, name), shape.masked)
    return Rows(
        **arrays,
        columns=shape.columns,
        choices=getattr(batch, "choices", 1),
        asks_next=batch.asks_next if asks_next is None else asks_next,
    )


# place (T,) of the R n
def _task_arrays(batch: Batch, shape: Shape, place: np.ndarray) -> dict[str, Any]:
    """Pad the arrays that only batches of tasks have; those that this batch lacks are None."""
    arrays: dict[str, Any] = dict.fromkeys(OF_TASKS)
    if isinstance(batch, TaskBatch):
        has_tags = len(batch.labels) == len(batch.label_rows)
        count = shape.tagged if has_tags else shape.examples
        arrays["labels"] = _padded(batch.labels, count)
        arrays["label_weights"] = _padded(batch.label_weights, count)
        arrays["label_rows"] = _padded(place[batch.label_rows], shape.tagged)
    windows = getattr(batch, "windows", None)
    if windows is not None:
        padded = np.full((shape.examples, shape.windows), -1, np.int32)
        padded[: len(windows), : windows.shape[1]] = windows
        arrays["windows"] = padded
    if isinstance(batch, VectorBatch):
        *layers, _, width = batch.vectors.shape
        vectors = np.zeros((*layers, shape.rows * shape.columns, width), batch.vectors.dtype)
        vectors[..., place, :] = batch.vectors
        arrays["vectors"] = vectors
    return arrays


def _padded(values: np.ndarray, count: int) -> np.ndarray:
    """Pad values with zeros to a length."""
    result = np.zeros((count, *values.shape[1:]), values.dtype)  # np.pad takes several times as long
    result[: len(values)] = values
    return result
