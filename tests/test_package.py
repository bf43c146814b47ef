"""The package as a newcomer meets it: quick to import, whole when installed, in no need of a compiler."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import minibert

ROOT = Path(__file__).parent.parent
SHIPPED = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "minibert")


def run_python(*arguments, **options):
    """The output of a Python of its own that sees this source tree."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)} | options.pop("env", {})
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_loads_no_library_and_takes_under_150_ms():
    script = """
import sys, time
begin = time.perf_counter()
import minibert
print(time.perf_counter() - begin, sorted({"numpy", "numba", "jax", "matplotlib"} & set(sys.modules)))
"""
    spent, loaded = run_python("-c", script).split(maxsplit=1)
    assert loaded.strip() == "[]"
    assert float(spent) < 0.150


def test_every_public_name_resolves_to_the_object_of_its_module():
    for name in minibert.__all__:
        assert getattr(minibert, name) is not None
        assert name in dir(minibert)
    from minibert.config import BertConfig

    assert minibert.BertConfig is BertConfig


def test_unknown_public_name_is_an_attribute_error_that_lists_what_there_is():
    with pytest.raises(AttributeError, match="'Bart'; it offers Bert"):
        minibert.Bart  # noqa: B018


@pytest.fixture(scope="module")
def no_compiler(tmp_path_factory):
    """An environment in which no compiler, nor anything else but Python itself, is on PATH."""
    folder = tmp_path_factory.mktemp("empty-path")
    return {"PATH": str(folder), "CC": "no-compiler-here", "CXX": "no-compiler-here"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory, no_compiler):
    """The wheel of this source tree, built without a compiler."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in SHIPPED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet")
    run_python("-m", "pip", "wheel", *options, "--wheel-dir", target, source, env=no_compiler)
    [path] = target.glob("*.whl")
    return path


def test_wheel_holds_every_source_and_the_corpus(wheel):
    inside = set(zipfile.ZipFile(wheel).namelist())
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "minibert").rglob("*.py")}
    assert sources <= inside
    assert any(name.startswith("minibert/corpora/") for name in inside)


def test_wheel_carries_the_licence_and_no_tests(wheel):
    inside = zipfile.ZipFile(wheel).namelist()
    assert any(name.endswith("licenses/LICENSE") for name in inside)
    assert not [name for name in inside if name.startswith(("tests", "notebooks", "benchmarks"))]


def test_installed_without_a_compiler_the_command_runs(wheel, no_compiler, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    installed = {**no_compiler, "PYTHONPATH": str(tmp_path)}
    output = run_python("-m", "minibert", "info", env=installed, cwd=tmp_path)
    assert output.split()[:2] == ["minibert", minibert.__version__]
