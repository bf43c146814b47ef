"""Plant each fault of `paper.ROWS` in a copy of the package, and see that its test turns red.

    python tests/support/equations.py            all of them, six minutes of processor time
    python tests/support/equations.py 3 4.2-c    those of section 3, and a row
    python tests/support/equations.py --write    writes docs/equations.md, and plants nothing

The working tree is left alone. A fault is found when its test fails, and not the import of the package. All
tests are run without a fault as well, where they have to pass.
"""

import argparse
import ast
import compileall
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from paper import ROWS, SECTIONS, Row
from paths import PACKAGE, ROOT, TESTS
from patterns import Match, matches, replaced

PAGE = ROOT / "docs" / "equations.md"
BEGIN = "<!-- written by `python tests/support/equations.py --write` from tests/support/paper.py -->"
END = "<!-- end of what is written -->"
AT_ONCE = 2
SECONDS = 600  # at most, of a test
FAILED = 1  # pytest's exit status where tests have failed; others tell of errors before any test
FAULTY = tuple(row for row in ROWS if row.old)


def definitions(tree: ast.Module) -> dict[str, ast.stmt]:
    """Return the functions, classes and constants of a file, methods behind their class."""
    found: dict[str, ast.stmt] = {}

    def look(body: Sequence[ast.stmt], before: str) -> None:
        for node in body:
            names: list[str] = []
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names = [node.name]
            elif isinstance(node, ast.Assign | ast.AnnAssign) and not before:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                every = (name for target in targets for name in ast.walk(target))
                names = [name.id for name in every if isinstance(name, ast.Name)]
            found.update({before + name: node for name in names})
            if isinstance(node, ast.ClassDef):
                look(node.body, f"{node.name}.")

    look(tree.body, "")
    return found


def match(row: Row) -> tuple[ast.Module, Match]:
    """Return the tree of a row's file, and the one place in the row's code that its fault replaces."""
    file, _, name = row.code.partition(":")
    tree = ast.parse((PACKAGE / file).read_text("utf-8"))
    found = matches(row.old, definitions(tree)[name])
    if len(found) != 1:
        raise ValueError(f"{row.number}: {row.old!r} is {len(found)} times in {row.code}, expected once.")
    return tree, found[0]


def place(row: Row) -> tuple[Path, int]:
    """Return the file of a row's code, from the package's folder on, and the line that its fault changes."""
    return Path(row.code.partition(":")[0]), match(row)[1].line


def with_fault(row: Row) -> str:
    """Return the source of the row's file, without its comments, with the fault in it."""
    return ast.unparse(replaced(*match(row), row.new))


def chosen(wanted: Sequence[str]) -> list[Row]:
    """Return the rows with a fault of some sections, or of some numbers; all of them where none is named."""
    rows = [row for row in FAULTY if not wanted or {row.number, row.number.partition("-")[0]} & set(wanted)]
    if unknown := set(wanted) - {name for row in rows for name in (row.number, row.number.partition("-")[0])}:
        raise SystemExit(f"There is no row with a fault by the name of {', '.join(sorted(unknown))}.")
    return rows


def run_tests(package: Path, names: Sequence[str]) -> tuple[int, str]:
    """Run tests on the package in a folder; return pytest's exit status, and what it said."""
    environment = os.environ | {"PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # a second for each test
    # -P: the package of the working tree is not to be found first.
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-x", "--tb=short", "-p", "pytest_timeout"]
    command += ["-p", "no:cacheprovider", f"--rootdir={ROOT}", "-c", str(ROOT / "pyproject.toml")]
    command += [str(TESTS / name) for name in names]
    try:
        done = subprocess.run(
            command, cwd=package.parent, env=environment, capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return -1, f"no answer within {SECONDS} seconds"
    return done.returncode, done.stdout + done.stderr


def copied(folder: Path) -> Path:
    """Copy the package into a folder, compiled."""
    package = Path(
        shutil.copytree(PACKAGE, folder / "minibert", ignore=shutil.ignore_patterns("__pycache__"))
    )
    compileall.compile_dir(package, quiet=1)
    return package


def seen(row: Row, package: Path) -> tuple[bool, str]:
    """Plant a row's fault in a copy of the package, then remove it; whether its test failed, and how."""
    file, _ = place(row)
    planted = package / file
    planted.write_text(with_fault(row), "utf-8")
    try:
        status, said = run_tests(package, [row.test])
    finally:
        shutil.copy2(PACKAGE / file, planted)
    if status != FAILED:
        return False, "SURVIVES" if status == 0 else f"pytest ended with {status}: {said[-300:]}"
    errors = re.findall(r"^E +(.*)", said, re.MULTILINE)
    return True, errors[0] if errors else "failed"


def verdicts(rows: Sequence[Row]) -> Iterator[tuple[Row, bool, str, float]]:
    """Yield rows in order with whether their fault was found, how, and after how many seconds."""
    with tempfile.TemporaryDirectory() as place:
        copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(AT_ONCE):
            copies.put(copied(Path(place) / str(number)))

        def one(row: Row) -> tuple[Row, bool, str, float]:
            package, began = copies.get(), time.monotonic()
            try:
                return row, *seen(row, package), time.monotonic() - began
            finally:
                copies.put(package)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            yield from pool.map(one, rows)


def page(lines: bool = False) -> str:
    """Return docs/equations.md with its tables made anew; with `lines`, they say in which line code is."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    return before + BEGIN + "\n\n" + tables(lines) + END + rest.partition(END)[2]


def tables(lines: bool = False) -> str:
    """Write how many rows there are, and a table for each section."""
    text = f"{len(ROWS)} rows, {len(FAULTY)} of which have a fault.\n"
    for section, title in SECTIONS.items():
        kind = "Appendix" if section[0].isalpha() else "Section"
        text += f"\n## {kind} {section}: {title}\n\n"
        text += "| | the paper | in minibert | turns red |\n|---|---|---|---|\n"
        for row in ROWS:
            if row.number.partition("-")[0] == section:
                text += f"| {row.number} | {row.paper} | {_code(row, lines)} | {_test(row)} |\n"
    return text + "\n"


def _code(row: Row, lines: bool) -> str:
    if not row.code:
        return row.note
    file, number = place(row)
    line = f", line {number}" if lines else ""
    return f"[`{row.code}`](../minibert/{file.as_posix()}){line}" + (f". {row.note}" if row.note else "")


def _test(row: Row) -> str:
    file, _, name = row.test.partition("::")
    return f"[`{name.partition('[')[0]}`](../tests/{file})" if row.test else "–"


def main() -> int:
    """Plant what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", nargs="*", help="numbers of rows, or sections; all where none is given")
    parser.add_argument("--write", action="store_true", help="write docs/equations.md")
    arguments = parser.parse_args()
    if arguments.write:
        PAGE.write_text(page(), "utf-8")
        return 0
    rows, began = chosen(arguments.rows), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tests = list(dict.fromkeys(row.test for row in rows))
        status, said = run_tests(copied(Path(folder)), tests)
    if status or re.search(r"\d+ skipped", said):
        print(said, "Without a fault these tests have to pass, and none may be skipped.", sep="\n")
        return 1
    print(f"{len(tests)} tests pass without a fault ({time.monotonic() - began:.0f} s).", flush=True)
    survived = 0
    for row, found, how, seconds in verdicts(rows):
        survived += not found
        _, line = place(row)
        where = f"minibert/{row.code.partition(':')[0]}:{line}"
        print(
            f"{'ok  ' if found else 'FAIL'} {row.number:7} {where:40} {seconds:4.0f} s  {how[:110]}",
            flush=True,
        )
    minutes = (time.monotonic() - began) / 60
    without = len(ROWS) - len(FAULTY)
    print(f"{len(rows) - survived} of {len(rows)} faults turn their test red ({minutes:.1f} minutes).")
    if not arguments.rows:
        print(f"{without} of {len(ROWS)} rows have no fault: docs/equations.md says why.")
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main())
