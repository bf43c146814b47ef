"""Read a pickle as data, with a stack machine that calls nothing and imports nothing.

A pickle is a program that may call anything. `StackMachine` follows its stack. `Machine` reads tensors with
that: it knows only the instructions that they need, and allows only a few names, which stand for placeholders
of its own.
"""

import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pickletools import OpcodeInfo, anyobject, genops, markobject
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


class StackMachine:
    """Follow the stack and the memo of a pickle; a subclass says what an instruction leaves on the stack."""

    def __init__(self) -> None:
        self._stack: list[Any] = []  # with `markobject` for each mark
        self._memo: dict[int, Any] = {}

    def run(self, file: io.BytesIO) -> Any:
        """Follow the file's next pickle; a damaged one raises ValueError or LookupError.

        Parameters
        ----------
        file : io.BytesIO
            The file, read from its current position to the end of the pickle.

        Returns
        -------
        object
            What the pickle leaves on the stack.
        """
        self._stack = []
        self._memo = {}
        for opcode, argument, _ in genops(file):
            self._step(opcode, argument)
        return self._take([anyobject])[0]

    def _step(self, opcode: OpcodeInfo, argument: Any) -> None:
        """Follow one instruction, as the table of `pickletools` describes it."""
        name = opcode.name
        if name == "MARK":
            self._stack.append(markobject)
        elif name == "MEMOIZE" or name.endswith("PUT"):
            [top] = self._take([anyobject])
            self._stack.append(top)
            self._memo[len(self._memo) if name == "MEMOIZE" else argument] = top
        elif name != "STOP":
            result = self._result(name, argument, partial(self._take, opcode.stack_before))
            self._stack.extend([result] * len(opcode.stack_after))

    def _result(self, name: str, argument: Any, take: Callable[[], list[Any]]) -> Any:
        """Return what an instruction leaves on the stack.

        Parameters
        ----------
        name : str
            Name of the instruction in `pickletools`.
        argument : object
            Argument of the instruction, if it has one.
        take : callable
            Pops what the instruction takes from the stack; what was above a mark is one list.
        """
        raise NotImplementedError

    def _take(self, kinds: list[Any]) -> list[Any]:
        """Pop what an instruction takes.

        Where the stack is too short, `_underflow` is called: it raises an error, or None stands in for each
        object that is missing.
        """
        above = []
        if markobject in kinds:
            kinds = kinds[: kinds.index(markobject)]
            above = [self._pop_mark()]
        height = max(0, len(self._stack) - len(kinds))
        items = self._stack[height:]
        del self._stack[height:]
        if len(items) < len(kinds) or markobject in items:
            self._underflow()
        return [None] * (len(kinds) - len(items)) + items + above

    def _pop_mark(self) -> list[Any]:
        """Pop everything above the last mark, and the mark itself."""
        items: list[Any] = []
        while self._stack:
            item = self._stack.pop()
            if item is markobject:
                return items[::-1]
            items.append(item)
        self._underflow()
        return items[::-1]

    def _underflow(self) -> None:
        """Raise the error for an instruction that takes more objects than there are above the last mark."""
        raise ValueError("it takes more objects than there are")


class Machine(StackMachine):
    """Read pickles: numbers, strings, lists, tuples, dictionaries with strings as keys, and tensors.

    A tensor is a `StoredTensor`. A pickle that asks for anything else raises Hostile.

    Attributes
    ----------
    storages : dict of str to Storage
        The storages to which the pickles refer, by key.
    """

    def __init__(self) -> None:
        super().__init__()
        self.storages: dict[str, Storage] = {}

    def _result(self, name: str, argument: Any, take: Callable[[], list[Any]]) -> Any:
        match name:
            case "PROTO" | "FRAME":
                return None
            case _ if name in _PUSHED:
                return argument
            case _ if name in _CONSTANTS:
                return _CONSTANTS[name]
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                return tuple(take())
            case "TUPLE":
                return tuple(take()[0])
            case "EMPTY_LIST":
                return []
            case "LIST":
                return take()[0]
            case "APPEND" | "APPENDS":
                target, items = take()
                _typed(target, list).extend([items] if name == "APPEND" else items)
                return target
            case "EMPTY_DICT":
                return {}
            case "DICT":
                return _dictionary(take()[0])
            case "SETITEM" | "SETITEMS":
                target, *items = take()
                _typed(target, dict).update(_dictionary(items if name == "SETITEM" else items[0]))
                return target
            case "GET" | "BINGET" | "LONG_BINGET":
                return self._memo[argument]
            case "GLOBAL":
                return _allowed(*argument.split(" ", 1))
            case "STACK_GLOBAL":
                return _allowed(*take())
            case "REDUCE":
                return _rebuilt(*take())
            case "BUILD":  # attributes of a dictionary: PyTorch's version numbers, not needed here
                return _typed(take()[0], dict)
            case "BINPERSID":
                return self._storage(*take())
            case _:
                raise Hostile(f"has the instruction {name}")

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


def _typed(target: Any, kind: type) -> Any:
    """Return an object that is about to be changed, after checking its type."""
    if type(target) is not kind:
        raise Hostile(f"changes a {type(target).__name__} as if it were a {kind.__name__}")
    return target


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
