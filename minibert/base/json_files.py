"""Read JSON and TOML with limits on size, depth and numbers, and check the types of fields."""

import dataclasses
import json
import math
import tomllib
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from reprlib import repr as short
from types import MappingProxyType, UnionType
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

from minibert.base.errors import InputError
from minibert.base.reading import byte_pieces

LARGEST_TOML = 1 << 20  # bytes
LARGEST = 1 << 26  # bytes of a file; a vocabulary of a million pieces takes half of it
DEEPEST = 64  # levels of lists and objects; Python gives up at a depth that depends on its stack
MOST_DIGITS = 300  # of a whole number, so that it is a finite float as well
NO_FIELDS: Mapping[str, Any] = MappingProxyType({})
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
    fields: Mapping[str, Any] | type = NO_FIELDS,
    advice: str = "restore it",
    largest: int = LARGEST,
    streams: bool = False,
) -> dict[str, Any]:
    """Return the object in a JSON file, which may be .gz or .xz.

    Parameters
    ----------
    path : str or path
        The file.
    fields : mapping of str to type, or TypedDict, optional
        Required fields and their types, as for `schema_error`; others are allowed.
    advice : str, default "restore it"
        What to do if the file is damaged or too large, for the error.
    largest : int, default 64 MiB
        Largest size in bytes, decompressed.
    streams : bool, default False
        Read a pipe or a terminal as well.

    Returns
    -------
    dict
        The object; a byte order mark is skipped.

    Raises
    ------
    MissingFile
        When the file is not there.
    InputError
        When it can't be read, is not JSON in UTF-8, has more than `largest` bytes, or is not an object with
        such fields.
    """
    data = _bytes_in(path, advice, largest, streams)
    try:
        value = parse_json(data.decode("utf-8-sig"))
    except ValueError as error:
        raise InputError(f"{path} can't be read as JSON ({error}); {advice}.") from error
    if wrong := schema_error(value, fields):
        raise InputError(f"{path} can't be read: {wrong}; {advice}.")
    return value


def read_toml(path: str | Path) -> dict[str, Any]:
    """Return the table in a TOML file (https://toml.io, version 1.0).

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    dict
        The table.

    Raises
    ------
    MissingFile
        When the file is not there.
    InputError
        When it can't be read, is not TOML in UTF-8, or has more than 1 MiB: such a file is written by hand.
    """
    data = _bytes_in(path, "correct it", LARGEST_TOML, streams=False)
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} can't be read as TOML ({error}); correct it.") from error


def _bytes_in(path: str | Path, advice: str, largest: int, streams: bool) -> bytearray:
    """Read a file, decompressed; raise InputError if it has more than `largest` bytes."""
    data = bytearray()
    for piece in byte_pieces(Path(path), in_memory=True, streams=streams):
        data += piece
        if len(data) > largest:
            raise InputError(f"{path} has more than {largest >> 20} MiB, too many for such a file; {advice}.")
    return data


def parse_json(text: str) -> Any:
    """Parse a JSON text, with NaN and infinities as Python writes them.

    Parameters
    ----------
    text : str
        A whole JSON text.

    Returns
    -------
    object
        Of Python's types, as `json.loads` makes it.

    Raises
    ------
    ValueError
        When the text is not JSON, an object has the same key twice, the value is nested more than DEEPEST
        deep, or a whole number has more than MOST_DIGITS.
    """
    with suppress(RecursionError):
        value = _DECODER.decode(text)
        if _is_shallow(text, value):
            return value
    raise ValueError(f"it is nested more than {DEEPEST} deep")


def _is_shallow(text: str, value: Any) -> bool:
    """Return whether a value, parsed from a JSON text, is nested at most DEEPEST deep."""
    brackets = text.count("[") + text.count("{")
    if brackets <= DEEPEST:  # true of nearly every file, and quick to check
        return True
    level = [value]
    for _ in range(DEEPEST + 1):
        level = _parts_of(level)
        if not level:
            return True
    return False


def _parts_of(values: list[Any]) -> list[Any]:
    """Return the items of all lists and objects among some values."""
    parts: list[Any] = []
    for value in values:
        if isinstance(value, dict):
            parts += value.values()
        elif isinstance(value, list):
            parts += value
    return parts


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object from its keys and values; raise ValueError if a key occurs twice."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        [[twice, _]] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the key {short(twice)} occurs twice in an object")
    return fields


def _whole_number(digits: str) -> int:
    """Parse a whole number; raise ValueError beyond MOST_DIGITS, which would take Python long."""
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number has {len(digits):,} digits")
    return int(digits)


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_whole_number)


def finite(value: Any) -> Any:
    """Return a value with None for every number that JSON lacks: NaN and the infinities.

    Parameters
    ----------
    value : object
        A number, or lists and dictionaries of such; anything else is returned as it is.

    Returns
    -------
    object

    Examples
    --------
    >>> finite({"mean": 0.5, "interval": [0.25, float("inf")]})
    {'mean': 0.5, 'interval': [0.25, None]}
    """
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return value


def dataclass_error(kind: type, value: dict[str, Any]) -> str | None:
    """Say why a JSON object does not have the fields of a dataclass.

    Parameters
    ----------
    kind : dataclass
        Its annotations give the type of each field; a field with a default may be missing.
    value : dict
        The object; no other fields are allowed.

    Returns
    -------
    str or None
        None if it fits.
    """
    fields = {field.name: field for field in dataclasses.fields(kind)}
    unknown = [name for name in value if name not in fields]
    if unknown:
        return f"{short(unknown[0])} is not one of its fields"
    kinds = get_type_hints(kind)
    expected = {}
    for name, field in fields.items():
        has_no_default = field.default is field.default_factory is dataclasses.MISSING
        if name in value or has_no_default:
            expected[name] = kinds[name]
    return schema_error(value, expected)


def schema_error(value: Any, fields: Mapping[str, Any] | type) -> str | None:
    """Say why a JSON value is not an object with such fields.

    Parameters
    ----------
    value : object
        As `parse_json` returns it.
    fields : mapping of str to type, or TypedDict
        Types as `fits` takes them; other fields are allowed. A field may be missing where null fits, or where
        it is NotRequired in a TypedDict.

    Returns
    -------
    str or None
        The reason, for the first wrong field; None if the value fits.
    """
    if not isinstance(value, dict):
        return f"it is {short(value)}, expected an object"
    optional = getattr(fields, "__optional_keys__", ())
    kinds = fields if isinstance(fields, Mapping) else get_type_hints(fields)
    for name, kind in kinds.items():
        may_be_missing = name in optional and name not in value
        if not may_be_missing and not fits(value.get(name), kind):
            return _field_error(value, name, kind)
    return None


def _field_error(value: dict[str, Any], name: str, kind: Any) -> str:
    """Say what is wrong with a field, or with a field of the object in it."""
    item = value.get(name)
    objects = [part for part in (kind, *get_args(kind)) if is_typeddict(part)]
    if isinstance(item, dict) and objects:
        return f"in {name!r} {schema_error(item, objects[0])}"
    actual = short(item) if name in value else "missing"
    return f"{name!r} is {actual}, expected {words(kind)}"


def fits(value: Any, kind: Any) -> bool:
    """Return whether a JSON value is of a type written as an annotation: `int | None`, `dict[str, float]`.

    A list counts as a tuple too, a whole number as a float, and null as a missing field. A mapping of names
    to types, or a TypedDict, describes an object with these fields.

    Parameters
    ----------
    value : object
        As `parse_json` returns it.
    kind : type, generic of one, union, TypedDict, or mapping of str to these

    Returns
    -------
    bool
    """
    if kind is Any:
        return True
    if kind is float:
        return type(value) in (int, float)
    if isinstance(kind, Mapping) or is_typeddict(kind):
        return schema_error(value, kind) is None
    if isinstance(kind, type):
        return type(value) is kind
    origin = get_origin(kind)
    parts = get_args(kind)
    if origin is UnionType:
        return any(fits(value, part) for part in parts)
    if origin is dict:
        return isinstance(value, dict) and all(fits(item, parts[1]) for item in value.values())
    if not isinstance(value, list):
        return False
    if origin is tuple and parts[-1] is not ...:
        return len(value) == len(parts) and all(map(fits, value, parts))
    return all(fits(item, parts[0]) for item in value)


def words(kind: Any, many: bool = False) -> str:
    """Describe a type, as `fits` takes it, in words.

    Parameters
    ----------
    kind : type, generic of one, union, TypedDict, or mapping of str to these
    many : bool, default False
        Use the plural: "numbers" for "a number".

    Returns
    -------
    str
        Such as "a list of 2 numbers".
    """
    if isinstance(kind, Mapping):
        fields = [f"{name!r}, {words(field)}" for name, field in kind.items()]
        return "an object with " + " and ".join(fields)
    origin = dict if is_typeddict(kind) else get_origin(kind) or kind
    parts = get_args(kind)
    if origin is UnionType:
        return " or ".join(words(part, many) for part in parts)
    inner = [part for part in parts if part is not ...]
    noun = _TYPES[origin][many]
    if not inner or inner[-1] is Any:
        return noun
    is_tuple = origin is tuple
    if is_tuple and len(set(inner)) > 1:
        return f"{noun} of {' and '.join(map(words, inner))}"
    items = words(inner[-1], many=True)
    if is_tuple and parts[-1] is not ...:
        return f"{noun} of {len(inner)} {items}"
    return f"{noun} of {items}"
