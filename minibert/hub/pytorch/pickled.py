"""Read PyTorch's `pytorch_model.bin` without PyTorch and without unpickling; see `unpickling.py`.

There are two layouts: a zip archive with `data.pkl` and one member for each storage (PyTorch 1.6 and later),
and the older one, five pickles followed by the storages end to end. Every length in the file is checked
against the size of the file before memory is allocated for it.
"""

import io
import math
import os
import zipfile
from collections.abc import Callable, Collection
from pathlib import Path
from reprlib import repr as short
from typing import Any, BinaryIO

import numpy as np

from minibert.base.errors import InputError
from minibert.base.files import open_file
from minibert.hub.precisions import widened
from minibert.hub.pytorch.unpickling import BFLOAT16, Hostile, Machine, Storage, StoredTensor

MOST_VIEWS = 4  # of each stored number, on average; tied weights have two
PICKLE_LIMIT = 1 << 20  # bytes; the pickle of a BERT-large has some 60,000
MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001  # at the beginning of the older layout
# zipfile raises RuntimeError for passwords and for unknown compression methods.
DAMAGED = (ValueError, LookupError, EOFError, OverflowError, RuntimeError, zipfile.BadZipFile)
_FLOATS = ("<f4", "<f8", "<f2", BFLOAT16)

Read = tuple[dict[str, np.ndarray], dict[str, str]]


def read_pickled(path: Path) -> Read:
    """Read the floating-point tensors of a state dictionary, and the types of others, such as position_ids.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    tensors : dict of str to array
        The tensors by name, read-only and in the precision of the file, but bfloat16 as float32. Tensors that
        share a storage share memory.
    others : dict of str to str
        NumPy's names for the types of the other tensors, by name.

    Raises
    ------
    InputError
        When the file cannot be read, is damaged, contains no tensors, or asks for a call that stored tensors
        do not need.
    """
    try:
        with open_file(path) as file:
            is_archive = file.read(4) == b"PK\x03\x04"
            file.seek(0)
            return _read_archive(file) if is_archive else _read_older(file)
    except InputError:  # already says what the file is
        raise
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error}); check the file.") from error
    except Hostile as error:
        what = f"{error}, which stored tensors do not need and may be hostile; nothing of it was run"
        advice = "get the model as model.safetensors, or from somebody you trust."
        raise InputError(f"{path} {what}: {advice}") from error
    except DAMAGED as error:
        what = f"is damaged or no dictionary of tensors ({str(error)[:200]})"  # some quote all of it
        raise InputError(f"{path} {what}; copy or save it again.") from error


def _read_archive(file: BinaryIO) -> Read:
    """Read the newer layout, a zip archive."""
    with zipfile.ZipFile(file) as archive:
        pickles = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise ValueError(f"the archive has {len(pickles)} members data.pkl in place of one")
        folder = pickles[0].removesuffix("data.pkl")

        def read(member: str, size: int | None = None) -> bytes:
            info = archive.getinfo(folder + member)
            if info.compress_type != zipfile.ZIP_STORED:  # a small file could expand to a huge one
                raise ValueError(f"{member} is compressed")
            is_wrong = info.file_size > PICKLE_LIMIT if size is None else info.file_size != size
            if is_wrong:
                raise ValueError(f"{member} has {info.file_size} bytes in place of {size or PICKLE_LIMIT}")
            if info.compress_size != info.file_size:  # so many bytes would be allocated
                raise ValueError(f"{member} has two lengths, {info.file_size} and {info.compress_size}")
            return archive.read(info)

        if folder + "byteorder" in archive.NameToInfo and read("byteorder") != b"little":
            raise ValueError("its numbers are not little-endian")
        machine = Machine()
        tensors = machine.run(io.BytesIO(read("data.pkl")))
        n_bytes = sum(storage.size for storage in machine.storages.values())
        if n_bytes > os.fstat(file.fileno()).st_size:
            raise ValueError("its storages are longer than the file")
        return _arrays(tensors, lambda storage: read(f"data/{storage.key}", storage.size))


def _read_older(file: BinaryIO) -> Read:
    """Read the older layout: magic number, version, facts about the machine, tensors, list of storages."""
    head = io.BytesIO(file.read(PICKLE_LIMIT))
    machine = Machine()
    if machine.run(head) != MAGIC or machine.run(head) != PROTOCOL:
        raise ValueError("it does not begin as PyTorch's files do")
    system = machine.run(head)
    if type(system) is not dict or system.get("little_endian") is not True:
        raise ValueError("its numbers are not little-endian")
    tensors = machine.run(head)
    keys = machine.run(head)
    if type(keys) is not list or any(type(key) is not str for key in keys):
        raise ValueError("it does not list its storages")
    if set(keys) != set(machine.storages):
        raise ValueError("it lists other storages than its tensors lie in")
    length = os.fstat(file.fileno()).st_size
    at = head.tell()
    places = {}
    for key in keys:
        storage = machine.storages[key]
        file.seek(at)
        if int.from_bytes(file.read(8), "little") != storage.count:
            raise ValueError(f"storage {short(key)} does not have the expected {storage.count} numbers")
        places[key] = at + 8
        at += 8 + storage.size
        if at > length:
            raise ValueError("it ends too early")

    def read(storage: Storage) -> bytes:
        file.seek(places[storage.key])
        return file.read(storage.size)

    return _arrays(tensors, read)


def _arrays(tensors: Any, read: Callable[[Storage], bytes]) -> Read:
    """Read floating-point tensors as arrays; each storage is read, and converted from bfloat16, only once."""
    if type(tensors) is not dict:
        raise ValueError("its outermost part holds no tensors")
    floats: dict[str, StoredTensor] = {}
    others: dict[str, str] = {}
    for name, tensor in tensors.items():
        if type(tensor) is not StoredTensor:
            continue
        if tensor.storage.dtype in _FLOATS:
            floats[name] = tensor
        else:
            others[name] = np.dtype(tensor.storage.dtype).name
    if not floats and not others:
        raise ValueError("its outermost part holds no tensors")
    _require_few_views(floats.values())
    rows: dict[str, np.ndarray] = {}  # by key of the storage
    arrays = {}
    for name, (storage, offset, shape, strides) in floats.items():
        if storage.key not in rows:
            rows[storage.key] = _row(storage, read(storage))
        row = rows[storage.key][offset:]
        steps = [stride * row.itemsize for stride in strides]
        arrays[name] = np.lib.stride_tricks.as_strided(row, shape, steps, writeable=False)
    return arrays, others


def _require_few_views(tensors: Collection[StoredTensor]) -> None:
    """Reject tensors that overlap a lot: with them a small file could ask for any amount of memory."""
    seen = sum(math.prod(tensor.shape) * tensor.storage.itemsize for tensor in tensors)
    storages = {tensor.storage for tensor in tensors}
    stored = sum(storage.size for storage in storages)
    if seen > MOST_VIEWS * stored:
        raise ValueError(f"its tensors are views of {seen:,} bytes in storages of {stored:,}")


def _row(storage: Storage, data: bytes) -> np.ndarray:
    """Return the numbers of a storage, after checking its size: later views of it are not checked."""
    if len(data) != storage.size:
        raise ValueError("it ends too early")
    if storage.dtype == BFLOAT16:
        return widened(np.frombuffer(data, "<u2"))
    return np.frombuffer(data, storage.dtype)
