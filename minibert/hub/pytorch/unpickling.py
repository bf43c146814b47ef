"""Read a pickle as data, with a stack machine that calls nothing and imports nothing.

A pickle is a program that may call anything. This machine knows only the instructions that stored tensors
need. It allows only a few names, which stand for placeholders of its own.
"""

import io
import math
from dataclasses import dataclass
from pickletools import genops
from reprlib import repr as short
from typing import Any, NamedTuple

import numpy as np

BFLOAT16 = "bfloat16"
_STORAGES = {
    "FloatStorage": "<f4", "DoubleStorage": "<f8", "HalfStorage": "<f2", "BFloat16Storage": BFLOAT16,
    "LongStorage": "<i8", "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "i1",
    "ByteStorage": "u1", "BoolStorage": "?",
}  # fmt: skip
_LARGEST = 1 << 48  # upper bound of any size, offset or stride
_PUSHED = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}


class Hostile(Exception):
    """Report a pickle that asks for something that no tensor needs."""


@dataclass(frozen=True)
class Storage:
    """Describe a row of numbers that is stored outside the pickle."""

    key: str
    dtype: str  # NumPy's name, or BFLOAT16
    count: int

    @property
    def itemsize(self) -> int:
        """Return the number of bytes of one element."""
        return 2 if self.dtype == BFLOAT16 else np.dtype(self.dtype).itemsize

    @property
    def size(self) -> int:
        """Return the number of bytes of all elements."""
        return self.count * self.itemsize


class StoredTensor(NamedTuple):
    """Describe a view of a storage."""

    storage: Storage
    offset: int  # of the first element, in elements, like the strides
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Name(NamedTuple):
    """Represent an allowed name on the stack."""

    kind: str  # "dictionary", "size", "tensor", "parameter" or "storage"
    dtype: str = ""  # of a storage


ALLOWED = {
    ("collections", "OrderedDict"): _Name("dictionary"),
    ("torch", "Size"): _Name("size"),
    ("torch._utils", "_rebuild_tensor_v2"): _Name("tensor"),
    ("torch._utils", "_rebuild_parameter"): _Name("parameter"),
}
for _module in ("torch", "torch.cuda"):
    ALLOWED |= {(_module, name): _Name("storage", dtype) for name, dtype in _STORAGES.items()}


class Machine:
    """Read pickles: numbers, strings, lists, tuples, dictionaries with strings as keys, and tensors.

    Attributes
    ----------
    storages : dict of str to Storage
        The storages to which the pickles refer, by key.
    """

    def __init__(self) -> None:
        self.storages: dict[str, Storage] = {}
        self._stack: list[Any] = []
        self._marks: list[int] = []  # heights of the stack at the marks
        self._memo: dict[int, Any] = {}

    def run(self, file: io.BytesIO) -> Any:
        """Read the object of the file's next pickle.

        A pickle that asks for anything other than tensors raises Hostile; a damaged one raises ValueError or
        LookupError.

        Parameters
        ----------
        file : io.BytesIO
            The file, read from its current position to the end of the pickle.

        Returns
        -------
        object
            A number, string, list, tuple or dictionary, with `StoredTensor` for each tensor.
        """
        self._stack = []
        self._marks = []
        self._memo = {}
        for opcode, argument, _ in genops(file):
            self._step(opcode.name, argument)
        return self._pop(1)[0]

    def _step(self, name: str, argument: Any) -> None:
        """Execute one instruction of the pickle, on a stack and a memo.

        Parameters
        ----------
        name : str
            Name of the instruction in `pickletools`. One that is not listed here raises Hostile.
        argument : object
            Argument of the instruction, if it has one.
        """
        push = self._stack.append
        match name:
            case "PROTO" | "FRAME" | "STOP":
                pass
            case _ if name in _PUSHED:
                push(argument)
            case _ if name in _CONSTANTS:
                push(_CONSTANTS[name])
            case "MARK":
                self._marks.append(len(self._stack))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                push(tuple(self._pop(int(name[-1]))))
            case "TUPLE":
                push(tuple(self._pop_mark()))
            case "EMPTY_LIST":
                push([])
            case "LIST":
                push(self._pop_mark())
            case "APPEND" | "APPENDS":
                items = self._pop(1) if name == "APPEND" else self._pop_mark()
                self._top(list).extend(items)
            case "EMPTY_DICT":
                push({})
            case "DICT":
                push(_dictionary(self._pop_mark()))
            case "SETITEM" | "SETITEMS":
                items = self._pop(2) if name == "SETITEM" else self._pop_mark()
                self._top(dict).update(_dictionary(items))
            case "PUT" | "BINPUT" | "LONG_BINPUT":
                self._memo[argument] = self._top()
            case "MEMOIZE":
                self._memo[len(self._memo)] = self._top()
            case "GET" | "BINGET" | "LONG_BINGET":
                push(self._memo[argument])
            case "GLOBAL":
                push(_allowed(*argument.split(" ", 1)))
            case "STACK_GLOBAL":
                push(_allowed(*self._pop(2)))
            case "REDUCE":
                push(_rebuilt(*self._pop(2)))
            case "BUILD":  # attributes of a dictionary: PyTorch's version numbers, not needed here
                self._pop(1)
                self._top(dict)
            case "BINPERSID":
                push(self._storage(*self._pop(1)))
            case _:
                raise Hostile(f"has the instruction {name}")

    def _pop(self, count: int) -> list[Any]:
        """Pop the top objects of the stack, from above the last mark."""
        height = len(self._stack) - count
        floor = self._marks[-1] if self._marks else 0
        if height < floor:
            raise ValueError("it takes more objects than there are")
        items = self._stack[height:]
        del self._stack[height:]
        return items

    def _pop_mark(self) -> list[Any]:
        """Pop everything above the last mark, and the mark itself."""
        items = self._pop(len(self._stack) - self._marks[-1])
        self._marks.pop()
        return items

    def _top(self, kind: type | None = None) -> Any:
        """Return the top object without popping it, after checking its type."""
        [target] = self._pop(1)
        if kind is not None and type(target) is not kind:
            raise Hostile(f"changes a {type(target).__name__} as if it were a {kind.__name__}")
        self._stack.append(target)
        return target

    def _storage(self, identity: Any) -> Storage:
        """Return the storage of ("storage", kind, key, device, count); older files have None at the end."""
        if type(identity) is not tuple or len(identity) not in (5, 6) or identity[0] != "storage":
            raise Hostile("refers to something outside of it that is not a storage")
        _, kind, key, _, count, *view = identity
        is_kind = type(kind) is _Name and kind.kind == "storage"
        if not is_kind or type(key) is not str or view not in ([], [None]):
            raise ValueError("a storage is not described as PyTorch does")
        [count] = _sizes((count,))
        storage = Storage(key, kind.dtype, count)
        if self.storages.setdefault(key, storage) != storage:
            raise ValueError(f"storage {short(key)} is described in two ways")
        return storage


def _allowed(module: Any, name: Any) -> _Name:
    """Return the placeholder for a name that tensors need; raise Hostile for any other."""
    if type(module) is not str or type(name) is not str:
        raise Hostile("asks for something without a name")
    if (module, name) not in ALLOWED:
        raise Hostile(f"asks for {short(f'{module}.{name}')}")
    return ALLOWED[module, name]


def _rebuilt(name: Any, arguments: Any) -> Any:
    """Return a description of the result of a call, instead of making the call as PyTorch would."""
    if type(name) is not _Name or type(arguments) is not tuple:
        raise Hostile("calls something that is not a function for tensors")
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


def _dictionary(items: list[Any]) -> dict[str, Any]:
    """Return a dictionary of alternating keys and values."""
    keys = items[::2]
    values = items[1::2]
    if len(keys) != len(values) or not all(type(key) is str for key in keys):
        raise ValueError("a dictionary has keys that are not strings")
    return dict(zip(keys, values, strict=True))


def _sizes(values: Any) -> tuple[int, ...]:
    """Return sizes, strides or counts, after checking that they are valid."""
    if type(values) is not tuple or len(values) > 8:
        raise ValueError("a tensor has more dimensions than any needs")
    if not all(type(value) is int and 0 <= value < _LARGEST for value in values):
        raise ValueError("a size or place is not a whole number from 0 on")
    return values


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any) -> StoredTensor:
    """Return a tensor, after checking that it is within its storage and has no more elements than that."""
    if type(storage) is not Storage:
        raise ValueError("a tensor has no storage")
    [offset] = _sizes((offset,))
    shape = _sizes(shape)
    strides = _sizes(strides)
    if len(shape) != len(strides):
        raise ValueError("a tensor has more or fewer strides than sizes")
    elements = math.prod(shape)
    last = offset  # index of its last element in the storage
    for size, stride in zip(shape, strides, strict=True):
        last += (size - 1) * stride
    is_inside = last < storage.count if elements else offset <= storage.count
    if not is_inside or elements > storage.count:
        raise ValueError("a tensor reaches beyond its storage")
    return StoredTensor(storage, offset, shape, strides)
