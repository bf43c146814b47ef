"""Files spoiled on purpose, always in the same ways: bits, cuts, splices, and JSON that nobody expects."""

import gzip
import json
import lzma
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

DEEP = 1_000
# As they stand in a file: Python's json writes some of them only.
STRANGE = (
    *("null", "true", "false", "[]", "{}", '""', '"x"', "-1", "0", "1", "0.5", "2", "[[]]", '{"": null}'),
    *("NaN", "-Infinity", "1e40", "1e400", str(2**31), str(2**63), "9" * 400, "9" * 5_000, '"\\ud800"'),
    *("[null]", '"\\u0000"', '"../../x"', '"\\u001b[2J"', '"' + "long " * 2_000 + '"'),
    *("[" * DEEP + "]" * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP),
)  # fmt: skip
# What text may have and its readers stumble over.
BYTES = (
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\r",
    b"\n\n\n",
    b"\t" * 40,
    b'"',
    b"\xed\xa0\x80",
    b"[" * DEEP,
    b"9" * 5_000,
)


class Split(NamedTuple):
    """JSON that lies within a file, and how to put other JSON into its place."""

    text: bytes
    join: Callable[[bytes], bytes]


def spoiled(data: bytes, name: str, count: int) -> Iterator[bytes]:
    """So many mutations of a file's bytes, the same for the same name."""
    parts = list(_json_in(data, name))
    for number in range(count):
        rng = random.Random(f"{name} {number}")
        if parts and number % 4:
            yield _with_other_json(parts, rng)
        elif (packer := _packer(name)) and number % 2:
            yield packer.compress(_other_bytes(packer.decompress(data), rng))
        else:
            yield _other_bytes(data, rng)


def one_spoiled(data: bytes, name: str, rng: random.Random) -> bytes | None:
    """The bytes with another value in their JSON; None without any. Damaged ones may raise a ValueError."""
    parts = list(_json_in(data, name))
    return _with_other_json(parts, rng) if parts else None


def _with_other_json(parts: list[Split], rng: random.Random) -> bytes:
    part = rng.choice(parts)
    return part.join(_other_json(part.text, rng))


def _json_in(data: bytes, name: str) -> Iterator[Split]:
    """All of a JSON file, the lines of JSON Lines, the header of a safetensors file and JSON within that."""
    if name.endswith(".safetensors"):
        size = int.from_bytes(data[:8], "little")
        header, tensors = data[8 : 8 + size], data[8 + size :]

        def headed(text: bytes) -> bytes:
            return len(text).to_bytes(8, "little") + text + tensors

        yield Split(header, headed)
        fields = json.loads(header)
        if "minibert" in (within := fields.get("__metadata__", {})):

            def stated(text: bytes) -> bytes:
                fields["__metadata__"] = {"minibert": text.decode()}
                return headed(json.dumps(fields).encode())

            yield Split(within["minibert"].encode(), stated)
    elif name.endswith(".jsonl"):
        lines = data.splitlines(keepends=True)
        for place in range(min(len(lines), 20)):
            yield Split(
                lines[place],
                lambda text, place=place: b"".join([*lines[:place], text + b"\n", *lines[place + 1 :]]),
            )
    elif name.endswith(".json"):
        yield Split(data, bytes)


def _packer(name: str) -> Any:
    return {".gz": gzip, ".xz": lzma}.get(Path(name).suffix)


def _other_bytes(data: bytes, rng: random.Random) -> bytes:
    """The bytes with one thing wrong."""
    first, second = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    match rng.randrange(8):
        case 0 | 1:  # a bit
            changed = bytearray(data)
            changed[min(first, len(data) - 1)] ^= 1 << rng.randrange(8)
            return bytes(changed)
        case 2:
            return data[:first]
        case 3:
            return data[:first] + data[second:]
        case 4:  # a part of it twice
            return data[:second] + data[first:]
        case 5:
            return data[:first] + rng.randbytes(rng.randrange(1, 9)) + data[first:]
        case 6:
            return data[:first] + rng.choice(BYTES) + data[first:]
        case _:  # two parts have changed places
            return data[second:] + data[first:second] + data[:first]


def _other_json(text: bytes, rng: random.Random) -> bytes:
    """The JSON with one value replaced, removed or added."""
    value = json.loads(text)
    places = list(_places(value))
    # Not at random among all of them: there may be thousands of pieces beside ten options.
    depth = rng.choice(sorted({len(place) for place in places}))
    place = rng.choice([place for place in places if len(place) == depth])
    strange, mark = rng.choice(STRANGE), "\x1a mark \x1a"
    if not place:
        return strange.encode()
    inside = value
    for key in place[:-1]:
        inside = inside[key]
    last, kind = place[-1], rng.randrange(8)
    if kind == 0:
        del inside[last]
    elif kind == 1 and isinstance(inside, dict):
        inside["strange"] = mark
    elif kind == 1:
        inside.insert(last, mark)
    elif kind == 2 and isinstance(inside, dict):
        inside[rng.choice(["", "\x1b", "-1", "9" * 5_000, "²"])] = inside.pop(last)
    else:
        inside[last] = mark
    return json.dumps(value).replace(json.dumps(mark), strange).encode()


def _places(value: Any, place: tuple = ()) -> Iterator[tuple]:
    yield place
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _places(inner, (*place, key))
