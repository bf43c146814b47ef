"""Types: what a checker reports to whoever uses the package, and how often it is silenced inside."""

import ast
import os
import re
import subprocess
import sys
import tomllib

import pytest
from paths import PACKAGE

ROOT = PACKAGE.parent
MOST = 40  # suppressions


def suppressions(source: str) -> int:
    """How often a source silences the type checker, by a comment or a cast."""
    casts = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("cast", "typing.cast")
    ]
    return len(casts) + len(re.findall(r"#\s*(?:type:\s*ignore|mypy:)", source))


def silenced(settings: dict) -> list[str]:
    """The modules for which settings of mypy switch errors off."""
    return [
        module
        for override in settings.get("overrides", ())
        for module in override["module"]
        if set(override) - {"module", "follow_imports", "ignore_missing_imports"}
    ]


def test_the_type_checker_is_silenced_at_most_forty_times():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
    assert settings["strict"]
    found = {
        path.relative_to(PACKAGE).as_posix(): suppressions(path.read_text(encoding="utf-8"))
        for path in PACKAGE.rglob("*.py")
    }
    assert sum(found.values()) + len(silenced(settings)) <= MOST, {file: n for file, n in found.items() if n}


def test_suppressions_of_each_kind_are_counted():
    assert suppressions("x = f()  # type: ignore[misc]\ny = cast(int, x)\nz = ops.cast(x, y)\n") == 2
    assert suppressions("# mypy: ignore-errors\nimport typing\nx = typing.cast(int, 1)\n") == 2
    overrides = [
        {"module": ["jax.*"], "follow_imports": "skip"},
        {"module": ["minibert.a", "minibert.b.*"], "ignore_errors": True},
        {"module": ["minibert.c"], "disallow_untyped_defs": False},
    ]
    assert silenced({"overrides": overrides}) == ["minibert.a", "minibert.b.*", "minibert.c"]


def test_a_misspelt_option_is_reported_to_whoever_uses_the_package(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "user.py").write_text(
        "from minibert import Bert\n"
        "from minibert.pretraining.options import PretrainOptions\n"
        "PretrainOptions(steps=3)\n"
        "PretrainOptions(setps=3)\n"
        "Bert.laod('runs/1')\n"
    )
    # Elsewhere than in the sources: mypy takes types from an installed package only if it has py.typed.
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=", f"--cache-dir={tmp_path / 'cache'}", "user.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    errors = [line for line in checked.stdout.splitlines() if "error:" in line]
    assert [line.split(":")[1] for line in errors] == ["4", "5"], checked.stdout + checked.stderr
    assert '"setps"' in errors[0]
    assert '"laod"' in errors[1]
