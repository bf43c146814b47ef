"""Plant one-line faults in all rooms of the package, and count how many of them the quick tests notice.

    python tests/support/mutants.py --count 100 --seed 1              lines of the whole package
    python tests/support/mutants.py --count 400 --rooms api,tasks     those of 400 that lie in these rooms
    python tests/support/mutants.py --count 100 --native              lines of the C core and of the kernels
    python tests/support/mutants.py --count 100 --summary             what has been counted so far
    python tests/support/mutants.py --count 100 --again --thorough    those that survived, with more tests

The seed chooses the lines and their faults (`line_faults`). They are planted in a copy of the working tree.
A mutant meets first the few files of tests that name its function, or one that calls it, and those that
import its module most directly; then the others of its room's folder and those about all rooms. Each file
runs in a process of its own, and the first failure ends it. One that takes more than the limit of processor
time counts as noticed, too. Each mutant is written to a file of JSON lines as soon as it is known, and the
same command goes on there; `since` marks what survived before and is noticed now. At last, every test that
has noticed a fault is run without one, where it has to pass. Mutants that change nothing are named, each
with the reason, in tests/equivalent_mutants.md, and not counted.

A fault in C or C++ meets the native tests (`native_tests`). One in a kernel is compiled for one of the
instruction sets that this machine runs, which the seed chooses, and meets the test of its file, then all.
One in the C core meets all, and then the quick tests of the tokenizer, with the extension made anew. What
does not compile, or makes the same machine code, is written down and not counted.
"""

import argparse
import ast
import importlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import native_tests
from line_faults import Fault, faults, faults_in_c
from paths import ROOT, TESTS

OF_ALL_ROOMS = ("tests/test_defaults.py", "tests/test_examples.py", "tests/misuse/test_misuse.py")
NEAREST = 2  # how many files of tests a mutant meets first by names in them, and how many by imports
SECONDS = 300  # of processor time, at most, for a file of tests
PATIENCE = 20  # how many times longer a process may take by the clock, on a busy machine
PRELOADED = ("numpy", "hypothesis", "pytest", "pytest_timeout", "numba", "jinja2")
LEFT_OUT = (".*_cache", ".git", ".venv", ".hypothesis", "_build", "build", "runs")
PLUGINS = ("pytest_timeout", "_hypothesis_pytestplugin")
QUICK, THOROUGH = "not slow and not thorough", "not slow"  # which tests a mutant meets
FEW_EXAMPLES = ("--hypothesis-profile", "quick", "--hypothesis-seed", "0")
IMPORTED_FROM = (TESTS / "support", TESTS / "misuse", ROOT / "benchmarks")
OF_THE_WORKING_TREE = {
    "minibert",
    "tests",
    *(path.stem for folder in IMPORTED_FROM for path in folder.glob("*.py")),
}
NOTICED = ("killed", "timed out")
NOT_COUNTED = ("not compiled", "same code")
REBUILD = """
import pathlib, sys
sys.path.insert(0, "csrc/wordpiece")
import build, setuptools
core = build.ffi_builder(pathlib.Path("build/wordpiece")).distutils_extension(tmpdir="build/wordpiece")
setuptools.setup(name="core", packages=[], ext_modules=[core], script_args=["-q", "build_ext", "--inplace"])
"""


# Tests


@cache
def imported(test: Path) -> frozenset[str]:
    """Return the modules of the package that a file of tests names in its imports."""
    found = set()
    for node in ast.walk(ast.parse(test.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(name for name in found if name.startswith("minibert"))


@cache
def words_of(test: Path) -> frozenset[str]:
    """Return the words of a file of tests."""
    return frozenset(re.findall(r"\w+", test.read_text("utf-8")))


def names_around(source: str, line: int) -> set[str]:
    """Return the names by which tests may mean a line: of its definition, and of those that use that one.

    A definition is a function, a class, or what stands at the top of the module. Of methods that Python
    calls, such as `__init__`, it is the class's name.
    """
    words: dict[str, set[str]] = {}
    own = set()

    def look(node: ast.AST, owner: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = owner
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                name = owner if child.name.startswith("__") else child.name
            elif not owner and isinstance(child, ast.Assign) and isinstance(child.targets[0], ast.Name):
                name = child.targets[0].id
            if getattr(child, "lineno", line + 1) <= line <= child.end_lineno:  # type: ignore[attr-defined]
                own.add(name)
            if isinstance(child, ast.Name | ast.Attribute):
                words.setdefault(owner, set()).add(getattr(child, "id", getattr(child, "attr", "")))
            look(child, name)

    look(ast.parse(source), "")
    names = own - {""}
    while found := {name for name, used in words.items() if name and used & names} - names:
        names |= found
    return names


def by_names(tests: Sequence[Path], names: Iterable[str]) -> list[Path]:
    """Return the files of tests that have names, first those that have the rarest."""
    weights = dict.fromkeys(tests, 0.0)
    for name in sorted(names):
        having = [test for test in tests if name in words_of(test)]
        for test in having:
            weights[test] += 1 / len(having) ** 2
    return sorted((test for test in tests if weights[test]), key=lambda test: (-weights[test], str(test)))


def tests_of(file: str, names: Iterable[str] = ()) -> tuple[list[str], list[str]]:
    """Return the files of tests for a module: the nearest; and the others of its room, and of all rooms.

    Nearest are those that have `names` in them, and those that import the module most directly.
    """
    path = Path(file)
    module = ".".join(("minibert", *path.with_suffix("").parts)).removesuffix(".__init__")
    every = [one for one in TESTS.rglob("test_*.py") if "oracle" not in one.parts]

    folders = dict.fromkeys((*path.parents, Path(path.parent.name)))  # core/gradcheck has tests/gradcheck
    mirrored = [TESTS / folder for folder in folders if (TESTS / folder) != TESTS]

    def is_of_the_room(test: Path) -> bool:
        return any(folder in test.parents for folder in mirrored)

    def is_named_so(test: Path) -> bool:
        return test.stem == f"test_{path.stem}" and is_of_the_room(test)

    def distance(test: Path) -> tuple[bool, bool, int, str]:
        return not is_named_so(test), not is_of_the_room(test), len(imported(test)), str(test)

    near = [one for one in every if module in imported(one) or is_named_so(one)]
    rest = [one for folder in mirrored for one in sorted(every, key=distance) if folder in one.parents]

    def shares_a_word(test: Path) -> bool:
        return not {*test.stem.split("_")}.isdisjoint(path.stem.split("_"))

    near = sorted(near, key=distance) or sorted(rest, key=lambda one: not shares_a_word(one))
    named = by_names(list(dict.fromkeys([*near, *rest])), names) or by_names(every, names)
    nearest = [*near[:1], *named[:NEAREST], *near[1:NEAREST]]
    first = dict.fromkeys(str(one.relative_to(ROOT)) for one in nearest)
    others = dict.fromkeys(str(one.relative_to(ROOT)) for one in (*near[NEAREST:], *rest))
    return list(first), [one for one in dict.fromkeys([*others, *OF_ALL_ROOMS]) if one not in first]


class Verdict(NamedTuple):
    """What became of the tests of a mutant."""

    outcome: str  # killed, timed out or survived
    by: str  # the test that failed first, or the file that could not be collected
    seconds: float  # of processor time


class _First:
    """A plugin of pytest that writes down what fails first."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.place.write_text(report.nodeid)
            self.pytest_runtest_logreport = lambda report: None  # type: ignore[method-assign]

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.place.write_text(f"import: {report.nodeid}")


def run(tree: Path, tests: Sequence[str]) -> Verdict:
    """Run files of tests on a copy of the tree, each in a process of its own, until one fails."""
    seconds = 0.0
    for test in tests:
        verdict = _run(tree, [test])
        seconds += verdict.seconds
        if verdict.outcome != "survived":
            return verdict._replace(seconds=round(seconds, 1))
    return Verdict("survived", "", round(seconds, 1))


def _run(tree: Path, tests: Sequence[str]) -> Verdict:
    """Run tests on a copy of the tree, in a process of its own."""
    place = tree.parent / "first"
    place.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        _test(tree, tests, place)
    deadline = time.monotonic() + PATIENCE * SECONDS
    ended, status, used = os.wait4(child, os.WNOHANG)
    while not ended and time.monotonic() < deadline:
        time.sleep(0.05)
        ended, status, used = os.wait4(child, os.WNOHANG)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # and what its tests have left running
    if not ended:
        _, status, used = os.wait4(child, 0)
    by = place.read_text() if place.exists() else ""
    code = os.waitstatus_to_exitcode(status)
    outcome = "timed out" if code < 0 else "survived" if code in (0, 5) else "killed"  # 5: there are no tests
    return Verdict(outcome, by, round(used.ru_utime + used.ru_stime, 1))


def _test(tree: Path, tests: Sequence[str], place: Path) -> None:
    """Become a process that runs tests, and end it."""
    try:
        os.setsid()
        os.chdir(tree)
        quiet = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(quiet, number)
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
        os.environ |= {"PYTHONPATH": str(tree), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        sys.path = [str(tree), *(one for one in sys.path if not one.startswith(str(ROOT / "tests")))]
        for name in [name for name in sys.modules if name.partition(".")[0] in OF_THE_WORKING_TREE]:
            del sys.modules[name]
        words = ["-q", "-x", "--tb=no", "-p", "no:cacheprovider", f"--basetemp={tree.parent / 'temporary'}"]
        words += [word for plugin in PLUGINS for word in ("-p", plugin)]
        pytest = importlib.import_module("pytest")
        os._exit(int(pytest.main([*words, "-m", _marks, *FEW_EXAMPLES, *tests], plugins=[_First(place)])))
    finally:
        os._exit(1)


_tree: Path  # of this process: a copy of the working tree
_marks = QUICK


def _begin(folder: str, marks: str = QUICK) -> None:
    """Copy the working tree for one process, which loads what every test does."""
    global _tree, _marks
    _marks = marks
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    _tree = Path(folder) / str(os.getpid()) / "tree"
    shutil.copytree(ROOT, _tree, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
    for name in PRELOADED:
        importlib.import_module(name)


def _judge(asked: tuple[Fault, list[str]]) -> tuple[Fault, Verdict]:
    """Plant a fault, run tests, and take it out again."""
    fault, tests = asked
    path = _tree / fault.path
    own = path.read_bytes(), path.stat()
    path.write_text(fault.source, "utf-8")
    try:
        return fault, run(_tree, tests) if path.suffix == ".py" else run_native(_tree, fault, tests)
    finally:
        path.write_bytes(own[0])
        os.utime(path, ns=(own[1].st_atime_ns, own[1].st_mtime_ns))
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            compiled.unlink()


def run_native(tree: Path, fault: Fault, tests: Sequence[str]) -> Verdict:
    """Run tests of a tree with a fault in C or C++: Python's, or those of the native program."""
    part = str(fault.path.parent)
    program = native_tests.program(part, fault.isa)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    if tests and tests[0].startswith("tests/"):
        [own] = (tree / "minibert" / "tokenizer").glob("_wordpiece.*.so")
        contents = own.read_bytes()
        subprocess.run([sys.executable, "-c", REBUILD], cwd=tree, capture_output=True, check=True)
        verdict = run(tree, tests)
        own.write_bytes(contents)
        return verdict
    same = program.same_code(tree, fault.file)
    outcome, by = {True: ("same code", ""), None: ("not compiled", "")}.get(same) or program.run(tree, tests)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Verdict(outcome, by, round(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, 1))


def native_tests_of(fault: Fault, stage: str) -> list[str]:
    """Return the tests of a fault in C or C++ for a stage; an empty list is the whole native program."""
    if stage == "nearest":
        return [native_tests.NEAREST[fault.path.stem]] if fault.path.stem in native_tests.NEAREST else []
    return (
        [] if fault.isa else [str(one.relative_to(ROOT)) for one in sorted(TESTS.glob("tokenizer/test_*.py"))]
    )


def _pass(tests: Sequence[str]) -> Verdict:
    return _run(_tree, tests)


# The count


def key(fault: Any) -> tuple[str, ...]:
    """Return what a mutant is recognised by, of a `Fault` or of a line that was written."""
    fields = fault._asdict() if isinstance(fault, Fault) else fault
    return (*(fields[name] for name in ("file", "operator", "before", "after")), fields.get("isa", ""))


def judged(place: Path) -> dict[tuple[str, ...], dict[str, Any]]:
    """Return what has been written so far; of a mutant, the last line."""
    lines = place.read_text("utf-8").splitlines() if place.exists() else []
    return {key(one): one for one in map(json.loads, lines)}


def summary(lines: Sequence[dict[str, Any]]) -> str:
    """Return a table by room, with the 95% interval of the share that is noticed."""
    from minibert.tasks.metrics import wilson

    lines = [one for one in lines if one["outcome"] not in NOT_COUNTED]
    table = f"{'room':16} {'mutants':>8} {'noticed':>8} {'survived':>8}   share, 95% interval\n"
    whole = Counter(one["room"] for one in lines)
    noticed = Counter(one["room"] for one in lines if one["outcome"] in NOTICED)
    for name in [*sorted(whole), "all"]:
        n, right = (whole.total(), noticed.total()) if name == "all" else (whole[name], noticed[name])
        if n:
            low, high = wilson(right, n)
            shares = f"{right / n:6.1%}  {low:.1%} to {high:.1%}"
            table += f"{name:16} {n:8} {right:8} {n - right:8}   {shares}\n"
    return table


def main() -> int:
    """Plant what the command line asks for."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--count", type=int, default=100, metavar="N", help="how many mutants of the package")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="which ones")
    parser.add_argument(
        "--rooms", default="", metavar="NAMES", help="only those in these rooms, such as api,tasks"
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="how many at once")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="where lines are added: build/mutants-S.jsonl"
    )
    parser.add_argument("--native", action="store_true", help="lines of C and C++ instead of Python")
    parser.add_argument("--nearest", action="store_true", help="only the nearest files of tests")
    parser.add_argument("--thorough", action="store_true", help="the thorough tests of each file, too")
    parser.add_argument("--again", action="store_true", help="let those meet tests again that survived")
    parser.add_argument("--summary", action="store_true", help="plant nothing")
    asked = parser.parse_args()
    name = f"{'native-' if asked.native else ''}mutants-{asked.seed}.jsonl"
    out = asked.out or ROOT / "build" / name
    out.parent.mkdir(parents=True, exist_ok=True)
    rooms = asked.rooms.split(",") if asked.rooms else []
    every = native_sample(asked.count, asked.seed) if asked.native else faults(asked.count, asked.seed)
    sample = [one for one in every if not rooms or one.room in rooms]
    clean = True
    with tempfile.TemporaryDirectory() as folder:
        if not asked.summary:
            marks = THOROUGH if asked.thorough else QUICK
            with get_context("fork").Pool(asked.jobs, _begin, (folder, marks)) as pool:
                _meet(pool, sample, out, "nearest", asked.again)
                if not asked.nearest:
                    _meet(pool, sample, out, "room", asked.again)
                clean = _pass_without_a_fault(pool, sample, out)
    known = judged(out)
    lines = [known[key(fault)] for fault in sample if key(fault) in known]
    for one in lines:
        if one["outcome"] == "survived":
            print(f"{one['file']}:{one['line']}: {one['before']} -> {one['after']} ({one['operator']})")
    print(summary(lines), end="")
    return 0 if clean else 1


def native_sample(count: int, seed: int) -> Iterator[Fault]:
    """Yield faults of lines of C and C++, each for an instruction set that this machine runs."""
    sets = list(native_tests.instruction_sets())
    programs = [native_tests.program(native_tests.WORDPIECE, "")]
    programs += [native_tests.program(native_tests.KERNELS, isa) for isa in sets]
    files = {file for one in programs for file in one.files if file.startswith("csrc/")}
    return faults_in_c(count, seed, files, sets)


def _meet(pool: Any, sample: Sequence[Fault], out: Path, stage: str, again: bool) -> None:
    """Let every mutant that is not noticed yet meet some of its tests."""
    known = judged(out)
    stages = {"nearest": ("nearest", "room"), "room": ("room",)}[stage]
    waiting = []
    for fault in sample:
        before = known.get(key(fault))
        if before is None or (before["outcome"] == "survived" and (again or before["tests"] not in stages)):
            waiting.append((fault, _tests(fault, stage)))
    for fault, verdict in pool.imap_unordered(_judge, waiting):
        line = {"room": fault.room, **fault._asdict(), **verdict._asdict(), "tests": stage}
        line["since"] = again and verdict.outcome in NOTICED
        del line["source"]
        with out.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(line, ensure_ascii=False) + "\n")
        print(f"{verdict.outcome:9} {verdict.seconds:6.1f} s  {fault.entry}  {verdict.by}"[:200], flush=True)


def _tests(fault: Fault, stage: str) -> list[str]:
    """Return the tests that a mutant meets at a stage."""
    if fault.file.startswith("csrc/"):
        return native_tests_of(fault, stage)
    nearest, others = tests_of(fault.file, names_around(fault.source, fault.line))
    return nearest if stage == "nearest" else others


def _pass_without_a_fault(pool: Any, sample: Sequence[Fault], out: Path) -> bool:
    """Tell whether all tests that have noticed a fault pass without one."""
    known = judged(out)
    names = {known[key(fault)]["by"].removeprefix("import: ") for fault in sample if key(fault) in known}
    names = {name for name in names if name.startswith("tests/") and not name.startswith("tests/native/")}
    outcome, by, _ = pool.apply(_pass, [sorted(names)]) if names else Verdict("survived", "", 0.0)
    if outcome != "survived":
        print(f"Without a fault, {by or 'a test'} fails as well: what it has noticed does not count.")
    return outcome == "survived"


if __name__ == "__main__":
    sys.exit(main())
