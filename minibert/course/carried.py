"""Values on their way from a confined process: only data, so that reading them can run nothing."""

import json
import math
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

NUMBERS = "biufcSUmM"  # kinds of arrays whose bytes are their values


class Opaque:
    """Something that stays in the process that made it: `again` says how to make it there once more."""

    again: Any = None  # the call that returned it
    place: int = 0  # among the leaves of what that returned


def leaves_of(value: Any) -> Iterator[Any]:
    """List what nested containers hold, in an order that two processes agree on.

    Parameters
    ----------
    value : object

    Yields
    ------
    object
        Everything that is not a container itself, and each array.
    """
    if isinstance(value, dict):
        for one in value.values():
            yield from leaves_of(one)
    elif isinstance(value, list | tuple) and not _is_of_students(value):
        for one in value:
            yield from leaves_of(one)
    else:
        yield value


def _is_of_students(value: Any) -> bool:
    """Tell whether a value is a named tuple of a class that only the process that made it knows."""
    kind = type(value)
    return isinstance(value, tuple) and kind is not tuple and not kind.__module__.startswith("minibert.")


def packed(value: Any, given: list[Any]) -> bytes:
    """Write a value down as bytes.

    Parameters
    ----------
    value : object
        Numbers, texts and arrays, in containers perhaps; anything else becomes `Opaque`.
    given : list of object
        What the reader has already: it gets its own.

    Returns
    -------
    bytes
    """
    known = {id(one): place for place, one in enumerate(given) if not _is_plain(one)}
    data: list[bytes] = []
    counted = [0]  # leaves so far

    def write(one: Any) -> Any:
        if isinstance(one, dict):
            return {"d": [[write_key(key), write(inner)] for key, inner in one.items()]}
        if _is_of_students(one):
            place = counted[0]
            parts = [write(inner) for inner in one]
            counted[0] = place + 1
            return {"m": [type(one).__name__, parts, place]}
        if isinstance(one, tuple) and type(one) is not tuple:
            parts = [write(inner) for inner in one]
            return {"n": [type(one).__module__, type(one).__qualname__, parts]}
        if isinstance(one, list | tuple):
            return {"l" if isinstance(one, list) else "t": [write(inner) for inner in one]}
        counted[0] += 1
        if id(one) in known:
            return {"p": known[id(one)]}
        if isinstance(one, set | frozenset):
            return {"s": [type(one).__name__, [write_key(inner) for inner in one]]}
        return write_key(one)

    def write_key(one: Any) -> Any:
        if one is None or one is ... or type(one) in (bool, int, str):
            return {"e": 0} if one is ... else one
        if type(one) is float:
            return {"f": one.hex()}
        if type(one) is complex:
            return {"c": [one.real.hex(), one.imag.hex()]}
        if type(one) is bytes:
            data.append(one)
            return {"b": len(one)}
        if type(one) is tuple:
            return {"t": [write_key(inner) for inner in one]}
        if isinstance(one, np.ndarray | np.generic) and one.dtype.kind in NUMBERS:
            data.append(one.tobytes())
            return {"a": [one.dtype.str, list(one.shape), len(data[-1]), isinstance(one, np.ndarray)]}
        return {"o": [type(one).__name__, counted[0] - 1]}

    head = json.dumps(write(value)).encode()
    return len(head).to_bytes(8, "little") + head + b"".join(data)


def unpacked(data: bytes, given: list[Any], again: Any) -> Any:
    """Read what `packed` wrote down.

    Parameters
    ----------
    data : bytes
        From a process that may have written anything.
    given : list of object
        As the writer had it.
    again : object
        The call that returned the value, for what is `Opaque`.

    Returns
    -------
    object

    Raises
    ------
    ValueError
        When this is not what `packed` writes.
    """
    try:
        behind = 8 + int.from_bytes(data[:8], "little")
        tree = json.loads(data[8:behind])
        return _Reader(data, behind, given, again).read(tree)
    except (TypeError, KeyError, IndexError, AttributeError, RecursionError, OverflowError) as error:
        raise ValueError(f"what came back can't be read ({error})") from None


class _Reader:
    """Makes values of a tree and the bytes behind it."""

    def __init__(self, data: bytes, begin: int, given: list[Any], again: Any) -> None:
        self.data, self.begin, self.given, self.again = data, begin, given, again

    def read(self, one: Any) -> Any:
        """Return the value of a node."""
        if not isinstance(one, dict):
            return one
        ((kind, of),) = one.items()
        return getattr(self, f"_{kind}")(of)

    def _taken(self, count: int) -> bytes:
        taken = self.data[self.begin : self.begin + count]
        if count < 0 or len(taken) != count:
            raise ValueError("what came back was cut short")
        self.begin += count
        return taken

    def _d(self, of: Any) -> Any:
        return {self.read(key): self.read(value) for key, value in of}

    def _l(self, of: Any) -> Any:
        return [self.read(one) for one in of]

    def _t(self, of: Any) -> Any:
        return tuple(self.read(one) for one in of)

    def _n(self, of: Any) -> Any:
        module, name, parts = of
        kind = getattr(sys.modules[module], name)
        if not (module.startswith("minibert.") and issubclass(kind, tuple) and hasattr(kind, "_fields")):
            raise ValueError("what came back is not a named tuple of minibert's")
        return kind(*[self.read(one) for one in parts])

    def _m(self, of: Any) -> Any:
        name, parts, place = of
        kind = type(str(name), (tuple,), {"again": self.again, "place": place})
        return kind([self.read(one) for one in parts])

    def _p(self, of: Any) -> Any:
        return self.given[of]

    def _s(self, of: Any) -> Any:
        kind, values = of
        return {"set": set, "frozenset": frozenset}[kind](self.read(one) for one in values)

    def _e(self, _: Any) -> Any:
        return ...

    def _f(self, of: Any) -> Any:
        return float.fromhex(of)

    def _c(self, of: Any) -> Any:
        return complex(*map(float.fromhex, of))

    def _b(self, of: Any) -> Any:
        return self._taken(of)

    def _a(self, of: Any) -> Any:
        kind, shape, count, is_array = of
        dtype = np.dtype(kind)
        if dtype.kind not in NUMBERS or not dtype.itemsize or math.prod(shape) * dtype.itemsize != count:
            raise ValueError("what came back is not an array of numbers")
        array = np.ndarray(shape, dtype, self._taken(count)).copy() if count else np.empty(shape, dtype)
        return array if is_array else array[()]

    def _o(self, of: Any) -> Any:
        name, place = of
        opaque = type(str(name), (Opaque,), {})()
        opaque.again, opaque.place = self.again, place
        return opaque


def _is_plain(one: Any) -> bool:
    """Tell whether a value is the same wherever it comes from."""
    return (
        one is None or one is ... or isinstance(one, bool | int | float | complex | str | bytes | np.generic)
    )


def restore(original: Any, changed: Any) -> None:
    """Give containers and arrays the contents that they have after a call.

    Parameters
    ----------
    original : object
        Changed in place.
    changed : object
        The same in another process, after the call.

    Raises
    ------
    ValueError
        When the two are not alike.
    """
    if isinstance(original, np.ndarray):
        if isinstance(changed, np.ndarray) and changed is not original:
            original[...] = changed
    elif isinstance(original, dict):
        for key, value in changed.items():
            if key in original and _alike(original[key], value):
                restore(original[key], value)
            else:
                original[key] = value
        for key in set(original) - set(changed):
            del original[key]
    elif isinstance(original, list):
        original[:] = changed
    elif isinstance(original, tuple):
        for one, other in zip(original, changed, strict=True):
            restore(one, other)


def _alike(one: Any, other: Any) -> bool:
    """Tell whether one value can be given the contents of the other."""
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and (one.shape, one.dtype) == (other.shape, other.dtype)
    return isinstance(one, dict | list | tuple) and type(one) is type(other)


def made_again(value: Any, call: Any) -> Any:
    """Return a value with everything in it that stayed in another process made once more.

    Parameters
    ----------
    value : object
    call : function
        Which repeats a call.

    Returns
    -------
    object
    """
    again = getattr(value, "again", None)
    if isinstance(value, Opaque | tuple) and again is not None:
        return list(leaves_of(call(again)))[value.place]  # type: ignore[union-attr]
    if type(value) is dict:
        return {key: made_again(one, call) for key, one in value.items()}
    if type(value) is list:
        return [made_again(one, call) for one in value]
    if isinstance(value, tuple):
        parts = [made_again(one, call) for one in value]
        if all(new is old for new, old in zip(parts, value, strict=True)):
            return value
        return tuple(parts) if type(value) is tuple else type(value)(*parts)
    return value
