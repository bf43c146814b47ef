"""Carry values out of a confined process as data alone, so that reading them can run no code."""

import json
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from minibert.course.memory import Contents, Traced

NUMBERS = "biufcSUmM"  # kinds of dtypes whose arrays are fully described by their bytes
_LENGTH_BYTES = 8  # size of the length, little-endian, that `with_length` puts in front of a part

# Packed data is the length of a tree, the tree as JSON, and the bytes of all arrays and `bytes` in the order
# in which the tree names them. In the tree None, truth values, integers and texts stand for themselves; every
# other value is a dictionary with a single entry, {tag: contents}. A `Traced` array is written as its
# `Contents`, a named tuple:
#
# | tag | value                                           | contents                                        |
# |-----|-------------------------------------------------|-------------------------------------------------|
# | `a` | array, or number of NumPy's                     | dtype, shape, number of bytes, whether an array |
# | `b` | bytes                                           | number of bytes                                 |
# | `c` | complex number                                  | real and imaginary part, in hexadecimal         |
# | `d` | dictionary                                      | pairs of a key and a value                      |
# | `e` | `...`                                           | 0                                               |
# | `f` | float                                           | in hexadecimal, which loses no bit              |
# | `l` | list                                            | members                                         |
# | `m` | named tuple of a class that only the writer has | name of the class, members, index of the leaf   |
# | `n` | named tuple of minibert's                       | module and name of the class, members           |
# | `o` | anything else; the reader gets an `Opaque`      | name of the class, index of the leaf            |
# | `p` | value that the reader has already               | its index in `given`                            |
# | `s` | set or frozenset                                | which of the two, members                       |
# | `t` | tuple                                           | members                                         |
_ARRAY = "a"
_BYTES = "b"
_COMPLEX = "c"
_DICT = "d"
_ELLIPSIS = "e"
_FLOAT = "f"
_LIST = "l"
_STUDENTS_TUPLE = "m"
_NAMED_TUPLE = "n"
_OPAQUE = "o"
_GIVEN = "p"
_SET = "s"
_TUPLE = "t"


class Opaque:
    """Stand in for a value that is not data, and so stayed in the process that made it.

    `unpacked` makes one; where the value is needed, `made_again` repeats the call that returned it.
    """

    earlier_call: Any = None  # the call that returned the value
    leaf: int = 0  # index of the value among the leaves of what that call returned


def leaves_of(value: Any) -> Iterator[Any]:
    """List what nested containers hold, in an order that is the same in every process.

    Parameters
    ----------
    value : object

    Yields
    ------
    object
        Everything that is not a dictionary, list or tuple, and each named tuple of a student's class.
    """
    if isinstance(value, dict):
        for inner in value.values():
            yield from leaves_of(inner)
    elif isinstance(value, list | tuple) and not _is_students_tuple(value):
        for inner in value:
            yield from leaves_of(inner)
    else:
        yield value


def _is_students_tuple(value: Any) -> bool:
    """Tell whether a value is a named tuple of a class that only the process that made it has."""
    kind = type(value)
    return isinstance(value, tuple) and kind is not tuple and not kind.__module__.startswith("minibert.")


def packed(value: Any, given: list[Any]) -> bytes:
    """Write a value as bytes.

    Parameters
    ----------
    value : object
        Numbers, texts and arrays, possibly in containers. Anything else arrives as an `Opaque`.
    given : list of object
        What the reader has already, in the same order: these are sent as references.

    Returns
    -------
    bytes
    """
    writer = _Writer(given)
    tree = json.dumps(writer.node(value)).encode()
    return with_length(tree) + b"".join(writer.data)


def with_length(part: bytes) -> bytes:
    """Put the length of a part in front of it.

    Parameters
    ----------
    part : bytes

    Returns
    -------
    bytes
    """
    return len(part).to_bytes(_LENGTH_BYTES, "little") + part


def first_part(data: bytes) -> tuple[bytes, bytes]:
    """Split data after its first part, which `with_length` wrote.

    Parameters
    ----------
    data : bytes

    Returns
    -------
    part, rest : bytes
    """
    end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
    return data[_LENGTH_BYTES:end], data[end:]


class _Writer:
    """Turn a value into a tree, and collect the bytes that follow it."""

    def __init__(self, given: list[Any]) -> None:
        self.data: list[bytes] = []
        self._given = {id(value): index for index, value in enumerate(given) if not _is_plain(value)}
        self._leaves = 0  # how many leaves have been written, in the order of `leaves_of`

    def node(self, value: Any) -> Any:
        """Return the node of any value."""
        if isinstance(value, dict):
            return {_DICT: [[self._scalar(key), self.node(inner)] for key, inner in value.items()]}
        if _is_students_tuple(value):
            leaf = self._leaves
            members = [self.node(inner) for inner in value]
            self._leaves = leaf + 1  # to `leaves_of` the whole tuple is one leaf
            return {_STUDENTS_TUPLE: [type(value).__name__, members, leaf]}
        if isinstance(value, tuple) and type(value) is not tuple:
            members = [self.node(inner) for inner in value]
            return {_NAMED_TUPLE: [type(value).__module__, type(value).__qualname__, members]}
        if isinstance(value, list | tuple):
            tag = _LIST if isinstance(value, list) else _TUPLE
            return {tag: [self.node(inner) for inner in value]}
        self._leaves += 1
        if id(value) in self._given:
            return {_GIVEN: self._given[id(value)]}
        if isinstance(value, Traced):
            leaves = self._leaves
            contents = self.node(value.contents())
            self._leaves = leaves  # the whole array is one leaf
            return contents
        if isinstance(value, set | frozenset):
            return {_SET: [type(value).__name__, [self._scalar(inner) for inner in value]]}
        return self._scalar(value)

    def _scalar(self, value: Any) -> Any:
        """Return the node of a leaf, a key of a dictionary or a member of a set."""
        if value is None or type(value) in (bool, int, str):
            return value
        if value is ...:
            return {_ELLIPSIS: 0}
        if type(value) is float:
            return {_FLOAT: value.hex()}
        if type(value) is complex:
            return {_COMPLEX: [value.real.hex(), value.imag.hex()]}
        if type(value) is bytes:
            self.data.append(value)
            return {_BYTES: len(value)}
        if type(value) is tuple:
            return {_TUPLE: [self._scalar(inner) for inner in value]}
        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in NUMBERS:
            data = value.tobytes()
            self.data.append(data)
            return {_ARRAY: [value.dtype.str, list(value.shape), len(data), isinstance(value, np.ndarray)]}
        return {_OPAQUE: [type(value).__name__, self._leaves - 1]}


def unpacked(data: bytes, given: list[Any], again: Any) -> Any:
    """Read what `packed` wrote.

    Parameters
    ----------
    data : bytes
        From a process that may have written anything.
    given : list of object
        What the reader has already, in the writer's order.
    again : object
        The call that returned the value: each `Opaque` keeps it for `made_again`.

    Returns
    -------
    object

    Raises
    ------
    ValueError
        When `packed` does not write such data.
    """
    try:
        tree, rest = first_part(data)
        return _Reader(rest, given, again).value(json.loads(tree))
    except (TypeError, KeyError, IndexError, AttributeError, RecursionError, OverflowError) as error:
        raise ValueError(f"what came back can't be read ({error})") from None


class _Reader:
    """Turn a tree, and the bytes that follow it, into a value."""

    def __init__(self, data: bytes, given: list[Any], call: Any) -> None:
        self._data = data
        self._begin = 0  # offset of the bytes that have not been used yet
        self._given = given
        self._call = call
        self._by_tag: dict[str, Callable[[Any], Any]] = {
            _ARRAY: self._array,
            _BYTES: self._next_bytes,
            _COMPLEX: lambda parts: complex(*map(float.fromhex, parts)),
            _DICT: lambda pairs: {self.value(key): self.value(inner) for key, inner in pairs},
            _ELLIPSIS: lambda _: ...,
            _FLOAT: float.fromhex,
            _LIST: self._members,
            _STUDENTS_TUPLE: self._students_tuple,
            _NAMED_TUPLE: self._named_tuple,
            _OPAQUE: self._opaque,
            _GIVEN: lambda index: self._given[index],
            _SET: self._set,
            _TUPLE: lambda nodes: tuple(self._members(nodes)),
        }

    def value(self, node: Any) -> Any:
        """Return the value of a node."""
        if not isinstance(node, dict):
            return node
        ((tag, contents),) = node.items()
        return self._by_tag[tag](contents)

    def _members(self, nodes: Any) -> list[Any]:
        return [self.value(node) for node in nodes]

    def _next_bytes(self, count: int) -> bytes:
        taken = self._data[self._begin : self._begin + count]
        if count < 0 or len(taken) != count:
            raise ValueError("what came back was cut short")
        self._begin += count
        return taken

    def _array(self, contents: Any) -> Any:
        name, shape, count, is_array = contents
        dtype = np.dtype(name)
        if dtype.kind not in NUMBERS or not dtype.itemsize or math.prod(shape) * dtype.itemsize != count:
            raise ValueError("what came back is not an array of numbers")
        array = np.empty(shape, dtype)
        if count:
            array = np.ndarray(shape, dtype, self._next_bytes(count)).copy()
        return array if is_array else array[()]

    def _set(self, contents: Any) -> Any:
        kind, nodes = contents
        return {"set": set, "frozenset": frozenset}[kind](self._members(nodes))

    def _named_tuple(self, contents: Any) -> Any:
        """Make a named tuple of minibert's; no other class may be named, so that reading runs no code."""
        module, name, nodes = contents
        kind = getattr(sys.modules[module], name)
        if not (module.startswith("minibert.") and issubclass(kind, tuple) and hasattr(kind, "_fields")):
            raise ValueError("what came back is not a named tuple of minibert's")
        return kind(*self._members(nodes))

    def _students_tuple(self, contents: Any) -> Any:
        """Make a tuple that has the members, and like an `Opaque` can be made again."""
        name, nodes, leaf = contents
        kind = type(str(name), (tuple,), {"earlier_call": self._call, "leaf": leaf})
        return kind(self._members(nodes))

    def _opaque(self, contents: Any) -> Opaque:
        name, leaf = contents
        opaque = type(str(name), (Opaque,), {})()
        opaque.earlier_call, opaque.leaf = self._call, leaf
        return opaque


def has_contents(leaf: Any) -> bool:
    """Tell whether a leaf is an array, which a call may change in place.

    Parameters
    ----------
    leaf : object

    Returns
    -------
    bool
    """
    return hasattr(leaf, "dtype") or isinstance(leaf, Traced)


def _is_plain(value: Any) -> bool:
    """Tell whether a value is as good as an equal one: it is written out and never sent as a reference."""
    if value is None or value is ...:
        return True
    return isinstance(value, bool | int | float | complex | str | bytes | np.generic)


def restore(original: Any, changed: Any) -> None:
    """Give containers and arrays the contents that they had after a call in another process.

    Parameters
    ----------
    original : object
        The arguments of the call; changed in place.
    changed : object
        What the call made of its copy of them.

    Raises
    ------
    ValueError
        When a tuple has another length, or a traced array another shape.
    """
    if isinstance(original, np.ndarray):
        if isinstance(changed, np.ndarray) and changed is not original:
            original[...] = changed
    elif isinstance(original, Traced):
        if isinstance(changed, Contents):
            original.restore(changed)
    elif isinstance(original, dict):
        for key, value in changed.items():
            if key in original and _can_take_contents(original[key], value):
                restore(original[key], value)
            else:
                original[key] = value
        for key in set(original) - set(changed):
            del original[key]
    elif isinstance(original, list):
        original[:] = changed
    elif isinstance(original, tuple):
        for old, new in zip(original, changed, strict=True):
            restore(old, new)


def _can_take_contents(original: Any, changed: Any) -> bool:
    """Tell whether one value can be given the contents of the other in place."""
    if isinstance(original, np.ndarray):
        same_form = (original.shape, original.dtype)
        return isinstance(changed, np.ndarray) and same_form == (changed.shape, changed.dtype)
    if isinstance(original, Traced):
        return isinstance(changed, Contents)
    return isinstance(original, dict | list | tuple) and type(original) is type(changed)


def made_again(value: Any, call: Any) -> Any:
    """Return a value in which every stand-in is replaced by what it stands for.

    Parameters
    ----------
    value : object
        Something that `unpacked` returned, or containers of it.
    call : function
        Repeats a call that a stand-in keeps, and returns its result.

    Returns
    -------
    object
        The value itself where it has no stand-ins.
    """
    earlier_call = getattr(value, "earlier_call", None)
    if isinstance(value, Opaque | tuple) and earlier_call is not None:
        return list(leaves_of(call(earlier_call)))[value.leaf]  # type: ignore[union-attr]
    if type(value) is dict:
        return {key: made_again(inner, call) for key, inner in value.items()}
    if type(value) is list:
        return [made_again(inner, call) for inner in value]
    if isinstance(value, tuple):
        members = [made_again(inner, call) for inner in value]
        if all(new is old for new, old in zip(members, value, strict=True)):
            return value
        return tuple(members) if type(value) is tuple else type(value)(*members)
    return value
