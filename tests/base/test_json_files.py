"""JSON files: what is read, what is refused with which words, and how types are told."""

import gzip
import json
import math

import pytest

from minibert.base import json_files
from minibert.base.errors import InputError, MissingFile
from minibert.base.json_files import DEEPEST, MOST_DIGITS, fits, read_json, schema_error


def refused(path, text, *arguments, **more):
    """The reason that is given, between the name of the file and the advice."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError) as error:
        read_json(path, *arguments, advice="do that", **more)
    assert str(error.value).startswith(f"{path} ") and str(error.value).endswith("; do that.")
    return str(error.value).removeprefix(f"{path} ").removesuffix("; do that.")


def test_an_object_is_read_plain_or_compressed_with_a_mark_or_without(tmp_path):
    value = {"a": [1, 2.5, None, True, "é"], "b": {"c": -3}}
    text = json.dumps(value).encode()
    (tmp_path / "a.json").write_bytes(text)
    (tmp_path / "b.json").write_bytes(b"\xef\xbb\xbf" + text)
    (tmp_path / "c.json.gz").write_bytes(gzip.compress(text))
    assert all(read_json(path) == value for path in tmp_path.iterdir())


def test_what_python_writes_for_numbers_that_are_none_is_read(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"f1": math.nan, "low": -math.inf}))
    found = read_json(tmp_path / "a.json", {"f1": float, "low": float})
    assert math.isnan(found["f1"]) and found["low"] == -math.inf


def test_missing_and_damaged_files_are_different_errors(tmp_path):
    with pytest.raises(MissingFile, match=r"^There is no file '.*a\.json'; check its name\.$"):
        read_json(tmp_path / "a.json")
    (tmp_path / "a.json").write_text("")
    with pytest.raises(InputError) as error:
        read_json(tmp_path / "a.json")
    assert not isinstance(error.value, MissingFile)
    with pytest.raises(InputError, match="can't be read: Is a directory"):
        read_json(tmp_path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "can't be read as JSON (Expecting value: line 1 column 1 (char 0))"),
        (b'{"a": "\xff"}', "can't be read as JSON ('utf-8' codec can't decode byte 0xff"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "can't be read as JSON (the key 'c' occurs twice in an object)"),
        ('{"a": %s}' % ("9" * 5_000), "can't be read as JSON (a number has 5,000 digits)"),
        (
            '{"a": -%s}' % ("9" * MOST_DIGITS),
            f"can't be read as JSON (a number has {MOST_DIGITS + 1} digits)",
        ),
        ("[" * 1_000_000, f"can't be read as JSON (it is nested more than {DEEPEST} deep)"),
        ('{"a":' * 65 + "1" + "}" * 65, f"can't be read as JSON (it is nested more than {DEEPEST} deep)"),
        ("[]", "can't be read: it is [], expected an object"),
        ("null", "can't be read: it is None, expected an object"),
    ],
)
def test_json_that_is_not_an_object_is_refused_with_its_reason(tmp_path, text, reason):
    assert refused(tmp_path / "a.json", text).startswith(reason)


def test_the_bounds_are_where_they_are_said_to_be(tmp_path):
    path, number = tmp_path / "a.json", 10**MOST_DIGITS - 1
    path.write_text('{"a":' * 64 + str(number) + "}" * 64)
    value = read_json(path)
    for _ in range(DEEPEST):
        value = value["a"]
    assert value == number and math.isfinite(float(value))
    size = path.stat().st_size
    assert read_json(path, largest=size)
    assert "has more than 0 MiB" in refused(path, path.read_bytes(), largest=size - 1)


def test_a_large_file_is_left_before_it_is_whole(tmp_path, monkeypatch):
    pieces = []

    def endless(path, **_):
        while True:
            pieces.append(path)
            yield b" " * (1 << 20)

    monkeypatch.setattr(json_files, "byte_pieces", endless)
    with pytest.raises(InputError, match="has more than 64 MiB"):
        read_json(tmp_path / "a.json")
    assert len(pieces) == 65


@pytest.mark.parametrize(
    ("kind", "is_one", "is_none"),
    [
        (int, [0, -3], [True, 1.0, "1", None]),
        (float, [0, 2.5, math.nan], [True, "1", None, []]),
        (bool, [True, False], [0, 1, None]),
        (str, [""], [1, None, ["a"]]),
        (list, [[], [1, "a"]], [{}, "ab", None]),
        (dict, [{}, {"a": 1}], [[], None]),
        (float | None, [1, None], ["1", False]),
        (list[str], [[], ["a"]], [["a", 1], "a"]),
        (tuple[float, ...], [[], [1, 2.5]], [[True], {}]),
        (tuple[str, int], [["a", 1]], [["a"], [1, "a"], ["a", 1, 2]]),
        (tuple[tuple[str, str], ...], [[], [["a", "b"]]], [["ab"], [["a"]]]),
        (dict[str, float], [{}, {"a": 1}], [{"a": None}, {"a": {}}]),
        (list[dict] | None, [None, [{}]], [{}, [[]]]),
        ({"a": int}, [{"a": 1}, {"a": 1, "b": 2}], [{}, {"a": None}, []]),
        ({"a": int | None}, [{}, {"a": None}], [{"a": "1"}]),
        (dict[str, list[int]], [{"a": [1]}], [{"a": 1}]),
    ],
)
def test_values_fit_their_type_only(kind, is_one, is_none):
    assert [fits(value, kind) for value in is_one] == [True] * len(is_one)
    assert [fits(value, kind) for value in is_none] == [False] * len(is_none)


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        ("x", int, "'a' is 'x', expected a whole number"),
        (None, float, "'a' is None, expected a number"),
        (1, bool | None, "'a' is 1, expected true or false or null"),
        ("x", tuple[float, ...], "'a' is 'x', expected a list of numbers"),
        ([1], tuple[float, float], "'a' is [1], expected a list of 2 numbers"),
        ([1], tuple[str, int], "'a' is [1], expected a list of a string and a whole number"),
        ([1], tuple[tuple[str, str], ...], "'a' is [1], expected a list of lists of 2 strings"),
        ({"b": None}, dict[str, float], "'a' is {'b': None}, expected an object of numbers"),
        ([1], list[dict] | None, "'a' is [1], expected a list of objects or null"),
        ({}, {"b": int}, "'a' is {}, expected an object with 'b', a whole number"),
        ("y" * 10_000, list, "'a' is 'yyyyyyyyyyyy...yyyyyyyyyyyyy', expected a list"),
    ],
)
def test_a_field_of_another_type_is_described_in_words(value, kind, words):
    assert schema_error({"a": value}, {"a": kind}) == words


def test_a_missing_field_is_named():
    assert schema_error({"b": 1}, {"b": int, "a": str}) == "'a' is missing, expected a string"
    assert schema_error({"b": 1}, {"b": int, "a": str | None}) is None
