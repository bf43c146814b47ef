"""What counts mutants: which faults it plants, in which order, and what it says of them."""

import ast
import json
import re
import shutil

import line_faults
import mutants
import native_faults
import native_tests
import pytest
from line_faults import Fault, edited, faults, faults_in_c, places, planted, variants
from paths import ROOT

SOURCE = '''
"""A file."""

def low(x: int = 3, *, word: str = "four") -> int:
    """Return a number; 55 is none of it."""
    try:
        if isinstance(x, (int, float)) and x < 6:
            x += 7
    except (ValueError, TypeError):
        raise ValueError(f"give {min(x, 8)}, not 99")
    return max(x, 10)
'''


IN_C = """
/* a < 1 */
#define LIMIT 2
template <typename X> int64_t low(const float *p, int64_t n) { // n + 3
    static_assert(n < 4);
    const char *text = "5 + n";
    for (int64_t i = 0; i < n; ++i) {
        sums[i] = take(p, n) * 0.25f;
    }
    if (whole && !text) {
        return n == 8u ? -n : std::min(n, 16);
    }
}
"""


def changes(source, file="a.py"):
    """Every fault of a file, as what was there and what is there now."""
    found = (planted(file, source, one, new) for one in places(file, source) for new in variants(one.node))
    return [fault for fault in found if fault]


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of two files in place of the real one."""
    monkeypatch.setattr(line_faults, "PACKAGE", tmp_path)
    monkeypatch.setattr(line_faults, "EQUIVALENT", tmp_path / "equivalent.md")
    (tmp_path / "equivalent.md").write_text("")
    for name in "ab":
        (tmp_path / f"{name}.py").write_text("".join(f"{name}{n} = {n}\n" for n in range(9)))
    return tmp_path


def test_faults_are_in_code_and_not_in_words_or_types():
    found = {f"{fault.before} -> {fault.after}" for fault in changes(SOURCE)}
    assert {"3 -> 4", "x < 6 -> x <= 6", "x += 7 -> nothing", "min(x, 8) -> max(x, 8)", "8 -> 9"} <= found
    assert "isinstance(x, (int, float)) and x < 6 -> not (isinstance(x, (int, float)) and x < 6)" in found
    assert "max(x, 10) -> min(x, 10)" in found
    for text in ("55", "99", "four", "TypeError", "A file"):
        assert not any(text in change for change in found), text


def test_a_file_has_its_fault_in_one_line_and_is_else_the_same():
    before = SOURCE.splitlines()
    for fault in changes(SOURCE):
        after = fault.source.splitlines()
        ast.parse(fault.source)
        assert [number for number, line in enumerate(after, 1) if line != before[number - 1]] == [fault.line]


def test_what_only_states_something_has_no_fault():
    source = "@overload\ndef f(x=1): ...\nif TYPE_CHECKING:\n    y = 2\n"
    source += "Log: TypeAlias = Callable[[str], None]\nx = zip(a, 'b', strict=True)\n"
    source += "Result = dict[str, Any]\nColumn = str | int\n"
    source += "@dataclass(frozen=True)\nclass A: ...\n"
    assert changes(source) == []


def test_a_larger_count_goes_on_with_the_sample_and_each_line_comes_once(package):
    whole = list(faults(100, 1))
    assert len({(one.file, one.line) for one in whole}) == len(whole) == 18
    assert list(faults(7, 1)) == whole[:7] and list(faults(7, 2)) != whole[:7]


def test_other_lines_may_change_without_another_sample(package):
    before = [one.entry for one in faults(100, 1)]
    lines = (package / "a.py").read_text()
    (package / "a.py").write_text("import os\n\n" + lines.replace("a4 = 4\n", ""))
    removed = [entry for entry in before if "4 -> " in entry and entry.startswith("a.py")]
    assert [one.entry for one in faults(100, 1)] == [one for one in before if one not in removed]


def test_equivalent_mutants_are_replaced_by_others_of_their_line(package):
    first = next(faults(1, 1))
    assert first.entry.endswith(f"{first.after}` in `{first.text}`")
    entry = first.entry.replace(" in ", "\n  in ")
    (package / "equivalent.md").write_text(f"- {entry}: nobody reads it.\n")
    [other] = [one for one in faults(100, 1) if (one.file, one.line) == (first.file, first.line)]
    assert other.before == first.before and other.after != first.after


def test_what_is_listed_as_equivalent_can_still_be_planted():
    listed = " ".join(line_faults.EQUIVALENT.read_text("utf-8").split()).split(" - ")[2:]
    for entry in listed:
        file, _, change = entry.partition(": `")
        if file.startswith("csrc/"):
            assert change.partition(" -> ")[0] in " ".join((ROOT / file).read_text("utf-8").split()), entry
            continue
        source = (line_faults.PACKAGE / file).read_text("utf-8")
        found = [one for one in places(file, source) if change.startswith(f"{ast.unparse(one.node)} -> ")]
        faults = [planted(file, source, one, new) for one in found for new in variants(one.node)]
        assert any(fault and entry.startswith(fault.entry) for fault in faults), entry


@pytest.mark.thorough
def test_tests_of_a_module_begin_with_its_own_and_go_on_with_its_room():
    assert mutants.tests_of("base/options.py")[0][0] == "tests/base/test_options.py"
    nearest, others = mutants.tests_of("tasks/metrics/squad.py")
    every = [*nearest, *others]
    assert nearest[0] == "tests/tasks/metrics/test_squad.py" and "tests/tasks/test_answering.py" in others
    assert not any("oracle" in one for one in every) and len(set(every)) == len(every)
    assert "tests/gradcheck/test_gradients.py" in mutants.tests_of("core/gradcheck/losses.py")[1]
    nearest, _ = mutants.tests_of("tasks/metrics/squad.py", ["exact_match"])
    assert nearest[0] == "tests/tasks/metrics/test_squad.py" and len(nearest) <= 2 * mutants.NEAREST


def test_a_line_is_meant_by_its_function_and_by_those_that_call_it():
    source = """
LIMIT = 3
class Box:
    def __init__(self): self.size = LIMIT
    def _area(self):
        return self.size
    def shown(self):
        return self._area()
def unrelated():
    return 5
"""
    lines = {6: {"_area", "shown", "Box"}, 10: {"unrelated"}, 2: {"LIMIT", "Box"}}
    assert {line: mutants.names_around(source, line) for line in lines} == lines


def test_files_of_tests_that_have_the_rarest_names_come_first(tmp_path):
    texts = {"a": "from x import common", "b": "common(rare)", "c": "nothing_rare", "d": "common"}
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    found = mutants.by_names(sorted(tmp_path.glob("*.py")), ["common", "rare"])
    assert [path.stem for path in found] == ["b", "a", "d"]


def test_the_summary_has_a_row_for_each_room_and_the_interval_of_wilson():
    outcomes = ["killed"] * 7 + ["timed out", "survived", "survived"]
    lines = [{"room": "api" if n < 4 else "base", "outcome": one} for n, one in enumerate(outcomes)]
    rows = [line.split() for line in mutants.summary(lines).splitlines()[1:]]
    assert rows[0][:4] == ["api", "4", "4", "0"] and rows[1][:4] == ["base", "6", "4", "2"]
    assert rows[2] == ["all", "10", "8", "2", "80.0%", "49.0%", "to", "94.3%"]


RECORDED = ROOT / "benchmarks" / "recorded" / "mutants"


@pytest.mark.parametrize("record", sorted(RECORDED.glob("*.jsonl")), ids=lambda path: path.stem)
def test_the_page_says_what_was_recorded(record):
    lines = [json.loads(line) for line in record.read_text("utf-8").splitlines()]
    for line in lines:  # what only later tests notice did survive
        line["outcome"] = "survived" if line["since"] else line["outcome"]
    whole, noticed, survived, share, low, _, high = mutants.summary(lines).splitlines()[-1].split()[1:]
    page = (ROOT / "docs" / "reliability.md").read_text("utf-8")
    row = f"| {whole} | {noticed} | {survived} | {share} ({low[:-1]} to {high[:-1]}) |"
    option = f"{'--native ' if 'native' in record.stem else ''}--seed {record.stem.rpartition('-')[2]}"
    assert re.search(rf"{option}`[^|]* {re.escape(row)}", page)


def test_faults_in_c_are_in_code_and_not_in_comments_or_declarations():
    found = {IN_C[edit.begin : edit.end] + " -> " + edit.text for edit in native_faults.edits(IN_C)}
    assert {"< -> <=", "0 -> 1", "* -> /", "&& -> ||", "! -> ", "== -> !=", "8u -> 9u", "min -> max"} <= found
    assert {"0.25f -> (0.25f + 1)", "p, n -> n, p", "n, 16 -> 16, n", "- -> "} <= found
    assert {"sums[i] = take(p, n) * 0.25f; -> ;", "n == 8u -> !(n == 8u)"} <= found
    assert "whole && !text -> !(whole && !text)" in found
    lines = [IN_C.count("\n", 0, edit.begin) for edit in native_faults.edits(IN_C)]
    assert set(lines) == {6, 7, 9, 10}


def test_a_file_in_c_has_its_fault_in_one_line():
    before = IN_C.splitlines()
    for edit in native_faults.edits(IN_C):
        fault = edited("csrc/kernels/a.cpp", IN_C, edit, "avx2")
        after = fault.source.splitlines()
        assert [n for n, line in enumerate(after, 1) if line != before[n - 1]] == [fault.line]
        assert (fault.before, fault.after) == (before[fault.line - 1].strip(), after[fault.line - 1].strip())
        assert fault.room == "kernels/avx2" and fault.path.as_posix() == fault.file


def test_a_sample_in_c_has_each_line_once_and_a_set_for_kernels(tmp_path, monkeypatch):
    monkeypatch.setattr(line_faults, "ROOT", tmp_path)
    files = ["csrc/kernels/a.cpp", "csrc/wordpiece/b.c"]
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text("".join(f"a{n} = {n};\n" for n in range(9)))
    whole = list(faults_in_c(100, 1, files, ["avx2", "portable"]))
    assert len({(one.file, one.line) for one in whole}) == len(whole) == 18
    assert list(faults_in_c(7, 1, files, ["avx2", "portable"])) == whole[:7]
    assert {one.room for one in whole} == {"kernels/avx2", "kernels/portable", "wordpiece"}


def test_what_is_not_a_change_of_the_machine_code_is_not_counted():
    outcomes = ["killed", "same code", "not compiled", "survived"]
    lines = [{"room": "wordpiece", "outcome": one} for one in outcomes]
    assert mutants.summary(lines).splitlines()[-1].split()[:4] == ["all", "2", "1", "1"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="a compiler that not every machine has")
def test_faults_in_c_are_noticed_as_a_failed_check_a_bad_access_or_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(native_tests, "ROOT", tmp_path)
    monkeypatch.setattr(native_tests, "SECONDS", 2)
    file = "csrc/wordpiece/one.c"
    contents = {
        file: "int one(int *p) { return p[0]; }\n",
        "csrc/wordpiece/unicode_tables.py": "",
        "tests/native/allocator.c": "int unused;\n",
        "tests/native/allocator.h": "",
        "tests/native/test_one.c": """
            #include <stdio.h>
            #include <stdlib.h>
            int one(int *p);
            int main(void) {
                int *p = malloc(sizeof *p);
                *p = 1;
                if (one(p) != 1) { fprintf(stderr, "tests/native/test_one.c:8: not so\\n"); abort(); }
                free(p);
            }""",
    }
    for name, text in contents.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    program = native_tests.Program(native_tests.WORDPIECE)
    tree = tmp_path / "work" / "tree"
    shutil.copytree(tmp_path / "csrc", tree / "csrc")
    shutil.copytree(tmp_path / "tests", tree / "tests")

    def met(text):
        (tree / file).write_text(text)
        return program.same_code(tree, file), *program.run(tree, [])

    assert met("int one(int *p) { return *p; }\n") == (True, "survived", "")
    assert met("int one(int *p) { return p[0] + 1; }\n") == (
        False,
        "killed",
        "tests/native/test_one.c:8: not so",
    )
    assert met("int one(int *p) { return p[1], p[0]; }\n")[1:2] == ("survived",)  # nothing reads it
    assert met("int one(int *p) { return p[1]; }\n")[2] == "ERROR: AddressSanitizer: heap-buffer-overflow"
    assert met("int one(int *p) { for (;;) { *(volatile int *)p; } }\n") == (False, "timed out", "")
    assert met("int one(int *p) { return q; }\n") == (None, "not compiled", "")


@pytest.mark.slow
def test_faults_are_noticed_harmless_changes_are_not_and_endless_ones_stop(tmp_path, monkeypatch):
    file, test = "model/targets.py", ["tests/model/test_targets.py"]
    source = (line_faults.PACKAGE / file).read_text("utf-8")
    monkeypatch.setattr(mutants, "_tree", None, raising=False)
    mutants._begin(str(tmp_path))
    harmless = Fault(file, 1, "", "", "", source + "\n")
    broken = Fault(file, 1, "", "", "", source + "\nTargets.of = lambda labels: Targets(0.0, 1.0)\n")
    endless = Fault(file, 1, "", "", "", source + "\nwhile True: pass\n")
    assert mutants._judge((harmless, test))[1].outcome == "survived"
    _, verdict = mutants._judge((broken, test))
    assert verdict.outcome == "killed" and verdict.by.startswith("tests/model/test_targets.py::")
    monkeypatch.setattr(mutants, "SECONDS", 3)
    assert mutants._judge((endless, test))[1].outcome == "timed out"
    monkeypatch.setattr(mutants, "SECONDS", 300)
    assert mutants._judge((harmless, test))[1].outcome == "survived"
