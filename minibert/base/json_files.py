"""JSON files, read with bounds on size, depth and numbers, and checked for the types of their fields."""

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from reprlib import repr as short
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from minibert.base.errors import InputError
from minibert.base.reading import byte_pieces

LARGEST = 1 << 26  # bytes of a file; a vocabulary of a million pieces takes half of it
DEEPEST = 64  # lists and objects in one another: Python itself gives up at a depth that depends on its stack
MOST_DIGITS = 300  # of a whole number: any of these is a finite float, too
_TYPES = {
    bool: ("true or false", "true or false"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("a string", "strings"),
    list: ("a list", "lists"),
    tuple: ("a list", "lists"),
    dict: ("an object", "objects"),
    type(None): ("null", "null"),
}


def read_json(
    path: str | Path,
    fields: Mapping[str, Any] | None = None,
    advice: str = "restore it",
    largest: int = LARGEST,
    streams: bool = False,
) -> dict[str, Any]:
    """Return the object in a JSON file, which may be .gz or .xz; MissingFile is raised when it is not there.

    Of `fields` each has to be there, of a type as `fits` takes it; there may be others. `advice` says what to
    do where the file is damaged or has more than `largest` bytes. With `streams` it may be a pipe.
    """
    data = bytearray()
    for piece in byte_pieces(Path(path), kept=True, streams=streams):
        data += piece
        if len(data) > largest:
            raise InputError(f"{path} has more than {largest >> 20} MiB, too many for such a file; {advice}.")
    try:
        value = parse_json(data.decode("utf-8-sig"))
    except ValueError as error:
        raise InputError(f"{path} can't be read as JSON ({error}); {advice}.") from error
    if wrong := misfit(value, fields or {}):
        raise InputError(f"{path} can't be read: {wrong}; {advice}.")
    return value


def parse_json(text: str) -> Any:
    """Return the value that a text of JSON stands for, with NaN and infinities as Python writes them.

    ValueError is raised for a key twice in an object, too, and for more than DEEPEST or MOST_DIGITS.
    """
    with suppress(RecursionError):
        value = _DECODER.decode(text)
        if text.count("[") + text.count("{") <= DEEPEST:
            return value
        level = [value]
        for _ in range(DEEPEST + 1):
            outer = (one for one in level if isinstance(one, dict | list))
            level = [inner for one in outer for inner in (one.values() if isinstance(one, dict) else one)]
            if not level:
                return value
    raise ValueError(f"it is nested more than {DEEPEST} deep")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        [[twice, _]] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the key {short(twice)} stands in an object twice")
    return found


def _whole_number(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number has {len(digits):,} digits")
    return int(digits)


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_whole_number)


def misfit_of(kind: type, value: dict[str, Any]) -> str | None:
    """Return in words why an object of JSON has not the fields of a dataclass, or None where it has."""
    known = {field.name: field for field in dataclasses.fields(kind)}
    if unknown := [name for name in value if name not in known]:
        return f"{short(unknown[0])} is none of its fields"
    kinds = get_type_hints(kind)
    missing = dataclasses.MISSING
    needed = (n for n, one in known.items() if n in value or one.default is one.default_factory is missing)
    return misfit(value, {name: kinds[name] for name in needed})


def misfit(value: Any, fields: Mapping[str, Any]) -> str | None:
    """Return in words why a value of JSON is no object with such fields, or None where it is one."""
    if not isinstance(value, dict):
        return f"it is {short(value)}, expected an object"
    for name, kind in fields.items():
        if not fits(value.get(name), kind):
            found = short(value[name]) if name in value else "missing"
            return f"{name!r} is {found}, expected {words(kind)}"
    return None


def fits(value: Any, kind: Any) -> bool:
    """Return whether a value of JSON is of a type, as annotations write it: `int | None`, `dict[str, float]`.

    A list is a tuple, too, a whole number is a float, null stands for a field that is missing, and a mapping
    of names to types is an object with these fields.
    """
    if kind is float:
        return type(value) in (int, float)
    if isinstance(kind, type):
        return type(value) is kind
    if isinstance(kind, Mapping):
        return misfit(value, kind) is None
    origin, parts = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return any(fits(value, part) for part in parts)
    if origin is dict:
        return isinstance(value, dict) and all(fits(one, parts[1]) for one in value.values())
    if origin is tuple and parts[-1] is not ...:
        return isinstance(value, list) and len(value) == len(parts) and all(map(fits, value, parts))
    return isinstance(value, list) and all(fits(one, parts[0]) for one in value)


def words(kind: Any, many: bool = False) -> str:
    """Return a type, as `fits` takes it, in words."""
    if isinstance(kind, Mapping):
        return "an object with " + " and ".join(f"{name!r}, {words(one)}" for name, one in kind.items())
    origin, parts = get_origin(kind) or kind, get_args(kind)
    if origin is UnionType:
        return " or ".join(words(part, many) for part in parts)
    inner = [part for part in parts if part is not ...]
    if not inner:
        return _TYPES[origin][many]
    if origin is tuple and len(set(inner)) > 1:
        return f"{_TYPES[origin][many]} of {' and '.join(map(words, inner))}"
    count = f"{len(inner)} " * (origin is tuple and parts[-1] is not ...)
    return f"{_TYPES[origin][many]} of {count}{words(inner[-1], many=True)}"
