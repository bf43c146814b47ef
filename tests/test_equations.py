"""docs/equations.md and the faults behind it: every name is there, every fault fits, a few are planted."""

import random

import equations
import pytest
from equations import FAULTY, PAGE, TESTS, definitions, page, place, run_tests, seen, with_fault
from paper import ROWS, SECTIONS

every_fault = pytest.mark.parametrize("row", FAULTY, ids=lambda row: row.number)
SAMPLE = random.Random(20181011).sample(FAULTY, 3)


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A copy of the package."""
    return equations.copied(tmp_path_factory.mktemp("copy"))


def test_rows_are_numbered_in_order_under_their_sections():
    numbers = [row.number.partition("-") for row in ROWS]
    assert list(dict.fromkeys(section for section, *_ in numbers)) == list(SECTIONS)
    for name in SECTIONS:
        letters = [letter for section, _, letter in numbers if section == name]
        assert letters == [chr(ord("a") + place) for place in range(len(letters))]


def test_a_row_has_code_and_a_fault_and_a_test_or_says_why_not():
    for row in ROWS:
        assert bool(row.code) == bool(row.test) == bool(row.old), row.number
        assert row.code or row.note, row.number


@every_fault
def test_the_code_and_the_test_are_there_and_the_fault_fits_in_one_place(row):
    file, _ = place(row)
    compile(with_fault(row), file, "exec")
    test, _, name = row.test.partition("::")
    assert name.partition("[")[0] in definitions(TESTS / test)


def test_a_fault_that_fits_nowhere_or_twice_is_refused():
    for old, times in (("no such text", 0), ("x", 17)):
        with pytest.raises(ValueError, match=f"{times} times in core/ops/blocks.py:Blocks.attention_block"):
            with_fault(FAULTY[0]._replace(code="core/ops/blocks.py:Blocks.attention_block", old=old))


def test_the_page_is_that_of_the_rows():
    assert PAGE.read_text("utf-8") == page(), "run python tests/support/equations.py --write"


def test_rows_are_chosen_by_number_and_by_section():
    assert [row.number for row in equations.chosen(["4.3", "3-d"])] == [
        "3-d", *(row.number for row in FAULTY if row.number.startswith("4.3-")),
    ]  # fmt: skip
    assert equations.chosen([]) == list(FAULTY)
    with pytest.raises(SystemExit, match="no row with a fault by the name of 3.1-k, x"):
        equations.chosen(["3", "x", "3.1-k"])


@pytest.mark.slow
def test_a_sample_of_the_faults_turns_its_tests_red(package):
    assert run_tests(package, [row.test for row in SAMPLE])[0] == 0
    for row in SAMPLE:
        found, how = seen(row, package)
        assert found, f"{row.number}: {how}"
    assert run_tests(package, [row.test for row in SAMPLE])[0] == 0  # every fault was taken out again


@pytest.mark.slow
def test_a_change_that_breaks_nothing_survives_and_one_that_breaks_the_import_does_not_count(package):
    [row] = (row for row in FAULTY if row.number == "4.3-d")
    assert seen(row._replace(new="threshold < answers.null_odds"), package) == (False, "SURVIVES")
    found, how = seen(row._replace(code="tasks/answering.py:NULL_THRESHOLD", old="=", new="= 1 /"), package)
    assert not found and "pytest ended with" in how
