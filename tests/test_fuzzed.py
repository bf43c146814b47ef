"""What fuzzing has kept is read again (`make fuzz-readers`), and proof that fuzzing would notice a fault."""

import os
import random

import fuzz_readers
import pytest
from fuzz_readers import Target, Watch, kept_inputs, mutated, named
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
