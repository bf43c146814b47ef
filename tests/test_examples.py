"""The examples in docstrings: what stands behind `>>>` is what a reader sees who tries it."""

import doctest
import importlib
import re
from pathlib import Path

import pytest
from paths import PACKAGE, ROOT


def modules():
    """The dotted name of every module of the package that shows an example."""
    paths = sorted(path for path in PACKAGE.rglob("*.py") if ">>> " in path.read_text("utf-8"))
    names = (".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths)
    return [name.removesuffix(".__init__") for name in names]


def test_examples_are_found_in_many_modules():
    assert len(modules()) > 20 and "minibert.tokenizer.normalize" in modules()


@pytest.mark.parametrize("name", modules())
def test_every_example_of_the_module_shows_what_it_computes(name):
    if ".jax." in name:
        pytest.importorskip("jax")
    module = importlib.import_module(name)
    found = doctest.DocTestFinder().find(module)
    written = re.findall(r"^\s*>>> ", Path(module.__file__).read_text("utf-8"), re.M)
    assert sum(len(test.examples) for test in found) == len(written)
    runner = doctest.DocTestRunner()
    for test in found:
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0
