"""Read TensorFlow checkpoints of version 2 without TensorFlow.

`NAME.index` is a sorted table. For the name of each tensor it has type and shape, the position in the data
files `NAME.data-00000-of-00001`, and a CRC-32C; for the empty name it has the number of data files
(tensorflow/core/protobuf/tensor_bundle.proto).
"""

import math
import os
from itertools import pairwise
from pathlib import Path
from reprlib import repr as short
from typing import NamedTuple

import numpy as np

from minibert.base.errors import InputError
from minibert.base.files import open_file
from minibert.hub.precisions import widened
from minibert.hub.tensorflow import sstable
from minibert.hub.tensorflow.checksums import crc32c, masked

_BFLOAT16 = 14  # these numbers of types are from tensorflow/core/framework/types.proto
FLOATS = {1: "<f4", 2: "<f8", 19: "<f2", _BFLOAT16: "<u2"}
_DTYPES = FLOATS | {3: "<i4", 4: "u1", 5: "<i2", 6: "i1", 9: "<i8", 10: "?", 17: "<u2", 22: "<u4", 23: "<u8"}


class Entry(NamedTuple):
    """Hold the index entry of a tensor."""

    dtype: int  # TensorFlow's number of the type
    shape: tuple[int, ...]
    file: int  # index of the data file
    offset: int  # where the tensor begins in that file, in bytes
    size: int  # in bytes
    check: int  # masked CRC-32C of the bytes
    is_sliced: bool


class Bundle:
    """Open a checkpoint.

    Parameters
    ----------
    prefix : str or Path
        The path of its files without their endings.

    Attributes
    ----------
    entries : dict of str to Entry
        The index entry of each tensor, by name.
    files : int
        Number of data files.
    index : Path
        The index file, for errors.

    Raises
    ------
    InputError
        When the index cannot be read or is damaged.
    """

    entries: dict[str, Entry]

    def __init__(self, prefix: str | Path) -> None:
        self.prefix = Path(prefix)
        self.index = self._beside(".index")
        try:
            with open_file(self.index) as file:
                data = file.read(sstable.LIMIT + 1)
            table = sstable.read_table(data)
            self.files = _count_files(table.pop(b"", None))
            self.entries = {key.decode(): _entry(value, self.files) for key, value in table.items()}
            _require_apart(self.entries)
        except InputError:  # already says what is wrong; it is a ValueError, too
            raise
        except OSError as error:
            raise InputError(f"{self.index} cannot be read ({error.strerror}); check the file.") from error
        except ValueError as error:
            what = f"is damaged or no index of a checkpoint ({error})"
            raise InputError(f"{self.index} {what}; copy it again.") from error

    def read(self, name: str) -> np.ndarray:
        """Read a tensor.

        Parameters
        ----------
        name : str
            A key of `entries`.

        Returns
        -------
        array
            The tensor in the precision of the file, except that bfloat16 becomes float32.

        Raises
        ------
        InputError
            When the tensor is not plain numbers, or a data file is missing, too short or damaged.
        """
        entry = self.entries[name]
        if entry.is_sliced or entry.dtype not in _DTYPES:
            what = f"is of type {entry.dtype}, not a plain number"
            if entry.is_sliced:
                what = "is stored in slices"
            raise InputError(f"{name} {what}; save the checkpoint again without that.", where=str(self.index))
        path = self._beside(f".data-{entry.file:05}-of-{self.files:05}")
        try:
            with open_file(path) as file:
                if entry.offset + entry.size > os.fstat(file.fileno()).st_size:
                    raise InputError(f"{path} ends before {name} does; copy the checkpoint again.")
                file.seek(entry.offset)
                data = file.read(entry.size)
        except FileNotFoundError as error:
            all_files = f"a checkpoint is its index and all {self.files} data files"
            raise InputError(f"{path} is missing; {all_files}: copy it, too.") from error
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror}); check the file.") from error
        if masked(crc32c(data)) != entry.check:
            raise InputError(
                f"{name} does not match its checksum; copy the checkpoint again.", where=str(path)
            )
        values = np.frombuffer(data, _DTYPES[entry.dtype])
        if entry.dtype == _BFLOAT16:
            values = widened(values)
        return values.reshape(entry.shape)

    def _beside(self, ending: str) -> Path:
        """Return the path of a file of the checkpoint."""
        return self.prefix.with_name(self.prefix.name + ending)


def _count_files(header: bytes | None) -> int:
    """Return the number of data files, from the entry about the checkpoint as a whole."""
    if header is None:
        raise ValueError("it does not say how many data files there are")
    fields = dict(sstable.fields(header))
    files = fields.get(1, 0)
    is_big_endian = fields.get(2, 0)
    if is_big_endian:
        raise ValueError("its numbers are big-endian")
    if not isinstance(files, int) or not 0 < files <= 99_999:  # their names have five digits
        raise ValueError(f"it claims {short(files)} data files")
    return files


def _entry(message: bytes, files: int) -> Entry:
    """Read a BundleEntryProto, and check that its numbers fit together."""
    numbers = dict.fromkeys((1, 3, 4, 5, 6), 0)
    shape: tuple[int, ...] = ()
    is_sliced = False
    for number, value in sstable.fields(message):
        if number in numbers and isinstance(value, int):
            numbers[number] = value
        elif number == 2 and isinstance(value, bytes):
            shape = _shape(value)
        elif number == 7:
            is_sliced = True
        else:
            raise ValueError(f"an entry has the unknown field {number}")
    dtype, file, offset, size, check = numbers.values()
    if file >= files:
        raise ValueError(f"a tensor is said to lie in data file {file} of {files}")
    if dtype in _DTYPES and not is_sliced:
        itemsize = np.dtype(_DTYPES[dtype]).itemsize
        if size != math.prod(shape) * itemsize:
            raise ValueError(f"a tensor of shape {short(shape)} is said to have {size} bytes")
    return Entry(dtype, shape, file, offset, size, check, is_sliced)


def _require_apart(entries: dict[str, Entry]) -> None:
    """Refuse tensors that share bytes: with them a small file could ask for any amount of memory."""
    extents = []
    for name, entry in entries.items():
        if entry.size:
            extents.append((entry.file, entry.offset, entry.offset + entry.size, name))
    for (file, _, end, name), (next_file, begin, _, other) in pairwise(sorted(extents)):
        if file == next_file and begin < end:
            raise ValueError(f"{short(name)} and {short(other)} lie in the same bytes")


def _shape(message: bytes) -> tuple[int, ...]:
    """Read a TensorShapeProto."""
    shape: list[int] = []
    for number, value in sstable.fields(message):
        if number == 2 and isinstance(value, bytes):
            size = dict(sstable.fields(value)).get(1, 0)
            if not isinstance(size, int) or size >= 1 << 48 or len(shape) == 8:
                raise ValueError("a tensor has an impossible shape")
            shape.append(size)
        elif number == 3 and value:
            raise ValueError("a tensor has no shape")
    if math.prod(filter(None, shape)) >= 1 << 48:  # NumPy multiplies the other sizes even if one is zero
        raise ValueError("a tensor has an impossible shape")
    return tuple(shape)
