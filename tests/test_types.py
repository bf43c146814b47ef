"""Types: what a checker reports to whoever uses the package, and how often it is silenced inside."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile

import pytest
from docs_programs import write_programs
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


@pytest.mark.thorough
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


USER = """\
from minibert import Bert, TextClassifier, finetune
from minibert.pretraining.options import PretrainOptions
PretrainOptions(steps=3)
PretrainOptions(setps=3)
Bert.laod('runs/1')
TextClassifier('model', epochs=2, learning_rates=1e-3).set_params(epochs=3).epochs = 4
TextClassifier('model', epochs='2')
finetune('classify', 'data', 'model', epochs=2, learning_rates=1e-3, columns={'text': 'review'}, out='runs/2')
finetune('sst2', 'data', 'model', epochs='2')
finetune('sst2', 'data', 'model', epoch=2)
finetune('sst2', 'data', 'model').report['scroes']
Bert.from_pretrained('model').fill_mask('a [MASK]')[0][0].tokens
"""


def errors_of_user(folder, *flags, **variables):
    """What mypy says of a program that has a name or a type wrong in lines 4, 5, 7 and 9 to 12."""
    pytest.importorskip("mypy")
    # Elsewhere than in the sources: mypy takes types from an installed package only if it has py.typed.
    (folder / "user.py").write_text(USER)
    cache = f"--cache-dir={folder / 'cache'}"
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=", cache, *flags, "user.py"],
        cwd=folder,
        env=os.environ | variables,
        capture_output=True,
        text=True,
    )
    errors = [line for line in checked.stdout.splitlines() if "error:" in line]
    assert [line.split(":")[1] for line in errors] == ["4", "5", "7", "9", "10", "11", "12"], (
        checked.stdout + checked.stderr
    )
    return errors


@pytest.mark.thorough
def test_wrong_names_and_types_are_reported_to_users_of_the_package(tmp_path):
    misspelt, method, of_estimator, of_run, unknown, field, attribute = errors_of_user(
        tmp_path, PYTHONPATH=str(ROOT)
    )
    assert '"setps"' in misspelt
    assert '"laod"' in method
    for error, called in ((of_estimator, "TextClassifier"), (of_run, "finetune")):
        wanted = 'has incompatible type "str"; expected "float | tuple[float, ...] | None"'
        assert f'Argument "epochs" to "{called}" {wanted}' in error
    assert '"epoch"' in unknown
    assert 'TypedDict "FinetuneReport" has no key "scroes"' in field
    assert '"Guess" has no attribute "tokens"' in attribute


@pytest.mark.thorough
def test_programs_of_the_docs_have_no_type_errors(tmp_path):
    """Strictly; what comes without types, such as scikit-learn, is Any. Pyright: tests/oracle."""
    pytest.importorskip("mypy")
    names = write_programs(tmp_path)
    (tmp_path / "wrong.py").write_text("import minibert\nminibert.TextEncoder('model', pool=3)\n")
    strictly = "--strict --disable-error-code=import-untyped --disable-error-code=import-not-found"
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=", *strictly.split(), *names, "wrong.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    errors = [line for line in checked.stdout.splitlines() if "error:" in line]
    assert len(names) == 21
    assert [line.partition(":")[0] for line in errors] == ["wrong.py"], checked.stdout + checked.stderr


@pytest.mark.slow
def test_type_checkers_find_an_editable_install(tmp_path):
    """As `make` makes it: a path in site-packages, which mypy and pyright read, and no hook of imports."""
    source, wheels = tmp_path / "minibert-source", tmp_path / "wheels"
    source.mkdir()
    wheels.mkdir()
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source)
    for name in ("LICENSES", "minibert"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    build = f"from setuptools.build_meta import build_editable; build_editable({str(wheels)!r})"
    made = subprocess.run(
        [sys.executable, "-c", build],
        cwd=source,
        env=os.environ | {"MINIBERT_PURE": "1"},
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    venv.create(tmp_path / "venv")
    site = next((tmp_path / "venv").glob("lib/python*/site-packages"))
    [wheel] = wheels.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    [path] = [path.read_text().split() for path in site.glob("*.pth")]
    assert path == [str(source)]
    python = tmp_path / "venv" / "bin" / "python"
    errors_of_user(tmp_path, f"--python-executable={python}", PYTHONPATH="")
