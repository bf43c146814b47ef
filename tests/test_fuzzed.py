"""What fuzzing has kept is read again (`make fuzz-readers`), and proof that fuzzing would notice a fault."""

import os
import random
from types import SimpleNamespace

import fuzz_readers
import pytest
from fuzz_readers import Target, Watch, kept_inputs, mutated, named, remembered
from parsers import PARSERS, write_small
from readers import Reader, write_genuine

from minibert.base.errors import InputError

pytestmark = pytest.mark.thorough
SEALED = [parser for parser in PARSERS if parser.seal]


@pytest.fixture(scope="module")
def watch():
    """One for all tests: what listens to audit events can't be taken away."""
    return Watch()


@pytest.fixture(scope="module")
def genuine(tmp_path_factory, run):
    """The genuine files of all readers."""
    at = write_genuine(tmp_path_factory.mktemp("genuine") / "all", run)
    write_small(at / "small")
    return at


@pytest.mark.parametrize("name", [parser.name for parser in PARSERS])
def test_what_was_kept_is_still_read_or_refused(name, genuine, watch):
    inputs = kept_inputs(name, genuine)
    assert inputs, "nothing was kept"
    target = Target(named()[name], genuine, watch)
    try:
        assert [found for data in inputs if (found := target.judge(data))] == []
        assert target.judge(target.seed) is None
    finally:
        target.file.write_bytes(target.seed)


# That it would notice


def raise_two_lines():
    raise InputError("one\ntwo")


FAULTS = {
    "KeyError": lambda: {}["x"],
    "RecursionError": lambda: (lambda f: f(f))(lambda f: f(f)),
    "a sentence of several lines": raise_two_lines,
    "os.system": lambda: os.system("true"),
    "open '/etc/hostname'": lambda: open("/etc/hostname").close(),
}


@pytest.mark.parametrize("told", FAULTS)
def test_a_fault_of_a_reader_is_noticed(told, tmp_path, watch):
    (tmp_path / "file").write_bytes(b"genuine")
    target = Target(Reader("file", lambda at: FAULTS[told]()), tmp_path, watch)
    assert target.judge(b"anything").what.startswith(told)


def test_a_slow_reader_is_noticed_and_a_quick_one_is_not(tmp_path, watch, monkeypatch):
    (tmp_path / "file").write_bytes(b"genuine")
    target = Target(Reader("file", lambda at: (at / "file").read_bytes()), tmp_path, watch)
    assert target.judge(b"anything") is None
    monkeypatch.setattr(fuzz_readers, "MOST_SECONDS", -1)
    assert target.judge(b"anything").what == "more than 2 seconds"


@pytest.mark.parametrize("parser", SEALED, ids=lambda parser: parser.name)
def test_mutated_files_get_good_checksums_and_are_read_past_them(parser, genuine):
    place, sound = genuine / parser.file, (genuine / parser.file).read_bytes()
    rng, refusals = random.Random(0), set()

    def flipped(data, size):  # instead of libFuzzer
        changed = bytearray(data)
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        return bytes(changed)

    try:
        place.write_bytes(parser.seal(sound))
        parser.read(genuine)
        for seed in range(200):
            place.write_bytes(mutated(sound, 2 * len(sound), seed, parser, flipped))
            try:
                parser.read(genuine)
            except InputError as error:
                refusals.add("checksum" in str(error) or "CRC" in str(error))
    finally:
        place.write_bytes(sound)
    assert refusals == {True, False}  # some are left as they are


# That it is quick


def test_words_are_parsed_once_and_each_command_gets_its_own_copy():
    parsed = []

    def parse(words):
        parsed.append(words)
        return SimpleNamespace(words=words)

    parse_once = remembered(parse)
    first, second, other = parse_once(["a"]), parse_once(["a"]), parse_once(["b"])
    assert (first.words, second.words, other.words) == (["a"], ["a"], ["b"])
    assert first is not second and parsed == [["a"], ["b"]]


# The record


def test_the_table_adds_up_runs_and_findings():
    def run(reader, inputs, **found):
        return {"reader": reader, "inputs": inputs, "found": found}

    runs = [
        run("npy", 1000),
        run("npy", 500, a="b"),
        run("one", 3),
        run("two", 7, a="b", c="d"),
        run("two", 5),
    ]
    lines = fuzz_readers.table(runs, ["one", "two", "three"]).splitlines()
    assert "| stored activations (`.npy`) | 1,500 | 1 |" in lines
    assert "| 2 of the 3 others, 3 to 12 each, half of them 12 or more | 15 | 2 |" in lines
    assert lines[-1] == "| together | 1,515 | 3 |"


def test_every_quick_reader_has_its_line_on_the_page():
    assert list(fuzz_readers.TITLES) == [parser.name for parser in PARSERS]


def test_runs_are_added_to_the_record_once(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text(f"above\n{fuzz_readers.BEGIN}\nto be replaced\n{fuzz_readers.END}\nbelow\n")
    monkeypatch.setattr(fuzz_readers, "PAGE", page)
    monkeypatch.setattr(fuzz_readers, "RECORD", tmp_path / "record")
    line = '{"reader": "wiki.xml", "ended": "1", "inputs": 7, "found": {}}\n'
    (tmp_path / fuzz_readers.RUNS).write_text(line)
    for _ in range(2):
        fuzz_readers.write_table(tmp_path)
    assert (tmp_path / "record").read_text() == line
    text = page.read_text()
    assert "| together | 7 | 0 |" in text and "to be replaced" not in text
    assert text.startswith("above\n") and text.endswith("\nbelow\n")
