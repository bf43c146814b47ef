"""docs/equations.md and the faults behind it: every name is there, every fault fits, a few are planted."""

import ast
import functools
import random

import equations
import pytest
from equations import FAULTY, PAGE, TESTS, definitions, page, place, run_tests, seen, with_fault
from paper import ROWS, SECTIONS
from patterns import matches, replaced

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


@functools.cache  # many rows have their test in one file
def names_in(test):
    """The names that a file of tests defines."""
    return definitions(ast.parse((TESTS / test).read_text("utf-8")))


@every_fault
def test_the_code_and_the_test_are_there_and_the_fault_fits_in_one_place(row):
    file, _ = place(row)
    compile(with_fault(row), file, "exec")
    test, _, name = row.test.partition("::")
    assert name.partition("[")[0] in names_in(test)


def planted(code, old, new):
    """Return the code with its one match of a pattern replaced."""
    tree = ast.parse(code)
    [match] = matches(old, tree)
    return ast.unparse(replaced(tree, match, new))


@pytest.mark.parametrize(
    "code",
    [
        "def f(x, out): return norm(x + out, scale['gamma'], eps=1, ddof=0)",
        'def f(x, out):\n return norm((x\n + out),  # both\n scale["gamma"], ddof=0, eps=1)',
    ],
)
def test_a_pattern_is_found_however_the_code_is_laid_out(code):
    for old, new in (
        ("norm(x + out, ...)", "norm(out, ...)"),
        ("x + out", "out"),
        ('norm(x + out, scale["gamma"], eps=1, ddof=0)', 'norm(out, scale["gamma"], eps=1, ddof=0)'),
    ):
        assert planted(code, old, new).replace("ddof=0, eps=1", "eps=1, ddof=0") == (
            "def f(x, out):\n    return norm(out, scale['gamma'], eps=1, ddof=0)"
        )


def test_a_pattern_outlives_the_renaming_of_a_variable():
    code = "def f(x, y):\n    return norm(x + y)"
    assert planted(code, "norm(x + out)", "norm(out)") == "def f(x, y):\n    return norm(y)"
    assert not matches("norm(out + out)", ast.parse(code))  # one name is one variable


def test_a_pattern_takes_any_body_and_entries_of_dictionaries():
    code = "if a:\n    b = 1\n    c = {'d': (1, 2), 'e': (1, 2)}"
    assert planted(code, "if a: ...", "if True: ...") == code.replace("if a", "if True")
    assert planted(code, '"e": (1, 2)', '"e": (1, 3)') == code.replace("'e': (1, 2)", "'e': (1, 3)")
    assert len(matches("(1, 2)", ast.parse(code))) == 2


def test_a_fault_that_fits_nowhere_or_twice_is_refused():
    [row] = (row for row in FAULTY if row.number == "A.2-c")  # excess = a_length + b_length - room
    for old, times in (("a_length * b_length", "0"), ("a_length", "[2-9]")):
        with pytest.raises(ValueError, match=f"A.2-c: .* is {times} times in data/nsp_spans.py:truncated"):
            with_fault(row._replace(old=old, new="0"))


def test_a_fault_with_a_name_that_its_file_lacks_is_refused():
    [row] = (row for row in FAULTY if row.number == "A.2-c")
    with pytest.raises(ValueError, match="'excess = place' has names that its file does not have: place"):
        with_fault(row._replace(new="excess = place"))


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
def test_neither_harmless_changes_nor_broken_imports_count(package):
    [row] = (row for row in FAULTY if row.number == "4.3-d")
    assert seen(row._replace(new="threshold < answers.null_odds"), package) == (False, "SURVIVES")
    broken = row._replace(code="tasks/answering.py:NULL_THRESHOLD", old='"null_threshold"', new="1 / 0")
    found, how = seen(broken, package)
    assert not found and "pytest ended with" in how
