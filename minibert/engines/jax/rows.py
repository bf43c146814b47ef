"""A batch in static shapes: each sequence a row, pads behind it, rows and columns of a few sizes only.

JAX compiles for shapes. Were they those of the batch, nearly every step would be compiled anew; so sequences
are laid out as equal rows, and the numbers of rows, columns, masked positions and tags are rounded up. Pads
have weight zero in every loss, and attention does not look at them.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from minibert.core.arrays import Array
from minibert.core.batch import Batch
from minibert.model.batch import BatchPart, TaskBatch, VectorBatch

COLUMNS = 8  # the shortest row, and the unit of the shorter ones
STEPS = 4  # sizes between a power of two and the next: at most a quarter of a size is pads
PER_TOKEN = ("input_ids", "token_type_ids", "positions")
PER_SEQUENCE = ("sequence_index", "next_sentence_labels", "next_sentence_weights")
PER_MASKED = ("masked_labels", "masked_weights")


def static() -> Any:
    """Declare a field for which code is compiled anew, as no array."""
    return dataclasses.field(metadata={"static": True})


class Borders(NamedTuple):
    """What JAX passes on in place of `cu_seqlens`: sequence r is the first lengths[r] tokens of row r."""

    lengths: Array  # (R,) int32, 0 in a row of pads
    columns: Array  # (n,) int32, 0 to n - 1; its shape is what counts


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Rows:
    """What the model reads of a `Batch`, `TaskBatch` or `VectorBatch`, in R rows of `columns` tokens.

    Attributes have the names and the meaning they have there; what a kind of batch lacks is None.
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
    labels: Array  # (E,), (R,2) or (N,)
    label_weights: Array
    label_rows: Array  # (N,) of the R n
    windows: Array  # (E,W) of the R, -1 behind them
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
        return jnp.arange(self.lengths.shape[0], dtype=jnp.int32) * self.columns

    @property
    def last_rows(self) -> Array:  # (R,)
        return self.first_rows + jnp.maximum(self.lengths - 1, 0)

    @property
    def token_sequences(self) -> Array:  # (R n,)
        return jnp.repeat(self.sequence_index, self.columns)


class Shape(NamedTuple):
    """How much room a batch is given."""

    rows: int
    columns: int
    masked: int
    tagged: int
    examples: int
    windows: int  # of an example


def rounded(count: int) -> int:
    """Round up to the next size: a power of two, or one of the steps between two of them.

    Examples
    --------
    >>> [rounded(n) for n in (1, 2, 3, 5, 9, 33, 1966)]
    [1, 2, 3, 5, 10, 40, 2048]
    """
    unit = max(1, (1 << (max(count, 1) - 1).bit_length()) // (2 * STEPS))
    return max(1, -(-count // unit) * unit)


def shape_of(batch: Batch) -> Shape:
    """Return the room for a batch."""
    choices, windows = getattr(batch, "choices", 1), getattr(batch, "windows", None)
    rows = rounded(batch.S // choices)
    return Shape(
        rows * choices,
        -(-rounded(int(batch.lengths.max())) // COLUMNS) * COLUMNS,
        rounded(batch.M) if batch.M else 0,
        rounded(tagged) if (tagged := len(getattr(batch, "label_rows", ()))) else 0,
        rows if windows is None else rounded(batch.E),
        0 if windows is None else rounded(windows.shape[1]),
    )


def room(part: BatchPart, pieces: int) -> Shape:
    """Return room for each of so many pieces of any machine's part of a global batch, the same for all."""
    rows = rounded(-(-part.sequences // (part.parts * pieces)))
    columns = -(-rounded(part.longest) // COLUMNS) * COLUMNS
    return Shape(rows, columns, rounded(rows * part.most_masked), 0, rows, 0)


# -> (T,) of the R n
def places(batch: Batch, columns: int) -> np.ndarray:
    """Return where each token of a batch is in rows of so many columns."""
    return np.repeat(np.arange(batch.S, dtype=np.int32) * np.int32(columns), batch.lengths) + batch.positions


def lay_out(batch: Batch, shape: Shape, asks_next: bool | None = None) -> Rows:
    """Lay a batch out in the room of a shape; `asks_next` is that of the global batch, if it is another."""
    total = shape.rows * shape.columns
    place = places(batch, shape.columns)

    def spread(values: np.ndarray) -> np.ndarray:
        result = np.zeros(total, values.dtype)
        result[place] = values
        return result

    task: dict[str, Any] = dict.fromkeys(("labels", "label_weights", "label_rows", "windows", "vectors"))
    if isinstance(batch, TaskBatch):
        count = shape.tagged if len(batch.labels) == len(batch.label_rows) else shape.examples
        task |= {name: _padded(getattr(batch, name), count) for name in ("labels", "label_weights")}
        task["label_rows"] = _padded(place[batch.label_rows], shape.tagged)
    if (windows := getattr(batch, "windows", None)) is not None:
        task["windows"] = np.full((shape.examples, shape.windows), -1, np.int32)
        task["windows"][: len(windows), : windows.shape[1]] = windows
    if isinstance(batch, VectorBatch):
        *layers, _, width = batch.vectors.shape
        task["vectors"] = np.zeros((*layers, total, width), batch.vectors.dtype)
        task["vectors"][..., place, :] = batch.vectors
    return Rows(
        **{name: spread(getattr(batch, name)) for name in PER_TOKEN},
        lengths=_padded(batch.lengths.astype(np.int32), shape.rows),
        masked_rows=_padded(place[batch.masked_rows], shape.masked),
        **{name: _padded(getattr(batch, name), shape.rows) for name in PER_SEQUENCE},
        **{name: _padded(getattr(batch, name), shape.masked) for name in PER_MASKED},
        **task,
        columns=shape.columns,
        choices=getattr(batch, "choices", 1),
        asks_next=batch.asks_next if asks_next is None else asks_next,
    )


def _padded(values: np.ndarray, count: int) -> np.ndarray:
    result = np.zeros((count, *values.shape[1:]), values.dtype)  # np.pad takes several times as long
    result[: len(values)] = values
    return result
