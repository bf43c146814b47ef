"""A pickle read as data: by Python's own machine in Python, with all taken out that calls or imports.

A pickle is a program that may call anything. What is left of the machine are the instructions that stored
tensors need; the few names that it admits stand for our own three forms, a dictionary, a storage, a tensor.
"""

import io
import math
import pickle
import pickletools
import struct
from dataclasses import dataclass
from functools import partial
from reprlib import repr as short
from typing import Any, ClassVar, NamedTuple

import numpy as np

BFLOAT16 = "bfloat16"
_STORAGES = {
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "HalfStorage": "<f2",
    "BFloat16Storage": BFLOAT16,
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "?",
}
_LARGEST = 1 << 48  # of any size, offset or stride
# What a pickle may do: mark, push and gather values, remember them, and name what `find_class` admits.
_INSTRUCTIONS = """
    PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT
    STRING BINSTRING SHORT_BINSTRING UNICODE SHORT_BINUNICODE BINUNICODE BINUNICODE8 TUPLE EMPTY_TUPLE TUPLE1
    TUPLE2 TUPLE3 LIST EMPTY_LIST APPEND APPENDS DICT EMPTY_DICT SETITEM SETITEMS PUT BINPUT LONG_BINPUT
    MEMOIZE GET BINGET LONG_BINGET GLOBAL STACK_GLOBAL BINPERSID
""".split()


class Hostile(Exception):
    """The pickle asks for something that no tensor needs."""


@dataclass(frozen=True)
class Storage:
    """A row of numbers somewhere outside of the pickle."""

    key: str
    dtype: str  # as NumPy writes it, or BFLOAT16
    count: int

    @property
    def itemsize(self) -> int:
        """Bytes of a number."""
        return 2 if self.dtype == BFLOAT16 else np.dtype(self.dtype).itemsize

    @property
    def size(self) -> int:
        """Bytes."""
        return self.count * self.itemsize


class StoredTensor(NamedTuple):
    """A view of a storage, in elements."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Name(NamedTuple):
    """What stands on the stack for an admitted name."""

    kind: str  # "dictionary", "size", "tensor", "parameter" or "storage"
    dtype: str = ""  # of a storage


_ADMITTED = {
    ("collections", "OrderedDict"): _Name("dictionary"),
    ("torch", "Size"): _Name("size"),
    ("torch._utils", "_rebuild_tensor_v2"): _Name("tensor"),
    ("torch._utils", "_rebuild_parameter"): _Name("parameter"),
    **{
        (module, name): _Name("storage", dtype)
        for module in ("torch", "torch.cuda")
        for name, dtype in _STORAGES.items()
    },
}


def _refuse(_: Any, instruction: str) -> None:
    raise Hostile(f"has the instruction {instruction}")


class Machine(pickle._Unpickler):
    """Reads pickles: numbers, strings, lists, tuples, dictionaries and tensors.

    Attributes
    ----------
    storages : those that the pickles named, by their keys.
    """

    stack: list[Any]
    dispatch: ClassVar[dict[int, Any]]

    def __init__(self) -> None:
        self.storages: dict[str, Storage] = {}

    def run(self, file: io.BytesIO) -> Any:
        """Read the object that the next pickle of the file describes.

        Raises
        ------
        Hostile
            When it has an instruction, a name or a call that stored tensors do not need.
        ValueError, OverflowError
            When it is damaged.
        """
        super().__init__(file)
        try:
            return self.load()
        except EOFError as error:
            raise ValueError("it ends too early") from error
        except (AttributeError, LookupError, TypeError, pickle.UnpicklingError, struct.error) as error:
            raise ValueError(f"an instruction has no use for what it is given: {error}") from error

    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for an import."""
        if (module, name) not in _ADMITTED:
            raise Hostile(f"asks for {short(f'{module}.{name}')}")
        return _ADMITTED[module, name]

    def _reduce(self) -> None:
        arguments = self.stack.pop()
        self.stack[-1] = _called(self.stack[-1], arguments)

    def _build(self) -> None:
        """Pass over attributes of a dictionary, PyTorch's version numbers: of no use here."""
        del self.stack[-1]
        if type(self.stack[-1]) is not dict:
            raise Hostile(f"changes a {type(self.stack[-1]).__name__} as if it were a dict")

    def persistent_load(self, identity: Any) -> Storage:
        """Check ("storage", kind, key, device, count), in older files with None at the end."""
        if type(identity) is not tuple or len(identity) not in (5, 6) or identity[0] != "storage":
            raise Hostile("refers to something outside of it that is no storage")
        kind, key, count, view = identity[1], identity[2], identity[4], identity[5:]
        is_kind = type(kind) is _Name and kind.kind == "storage"
        if not is_kind or type(key) is not str or view not in ((), (None,)):
            raise ValueError("a storage is not described as PyTorch does")
        storage = Storage(key, kind.dtype, *_sizes((count,)))
        if self.storages.setdefault(key, storage) != storage:
            raise ValueError(f"storage {short(key)} is described in two ways")
        return storage

    # How each instruction is worked off: as in the class above where nothing is called or imported by it.
    dispatch = {
        ord(one.code): (
            pickle._Unpickler.dispatch[ord(one.code)]
            if one.name in _INSTRUCTIONS
            else partial(_refuse, instruction=one.name)
        )
        for one in pickletools.opcodes
    }
    dispatch[pickle.REDUCE[0]] = _reduce
    dispatch[pickle.BUILD[0]] = _build


def _called(name: Any, arguments: Any) -> Any:
    """Return what stands for a call: arguments of something admitted become one of our own forms."""
    if type(name) is not _Name or type(arguments) is not tuple:
        raise Hostile("calls something that is no function for tensors")
    match name.kind, arguments:
        case "dictionary", ():
            return {}
        case "size", (sizes,):
            return _sizes(sizes)
        case "tensor", (storage, offset, shape, strides, _, _, *_):
            return _tensor(storage, offset, shape, strides)
        case "parameter", (StoredTensor() as tensor, _, _):
            return tensor
    raise Hostile(f"calls the function for a {name.kind} with other things than that takes")


def _sizes(values: Any) -> tuple[int, ...]:
    """Check that these are sizes, strides or counts, and return them."""
    if type(values) is not tuple or len(values) > 8:
        raise ValueError("a tensor has more dimensions than any needs")
    if not all(type(one) is int and 0 <= one < _LARGEST for one in values):
        raise ValueError("a size or place is no whole number from 0 on")
    return values


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any) -> StoredTensor:
    """Return a tensor whose elements all lie in its storage, and which has no more of them than that."""
    if type(storage) is not Storage:
        raise ValueError("a tensor has no storage")
    [offset], shape, strides = _sizes((offset,)), _sizes(shape), _sizes(strides)
    if len(shape) != len(strides):
        raise ValueError("a tensor has more or fewer strides than sizes")
    elements = math.prod(shape)
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    inside = last < storage.count if elements else offset <= storage.count
    if not inside or elements > storage.count:
        raise ValueError("a tensor reaches beyond its storage")
    return StoredTensor(storage, offset, shape, strides)
