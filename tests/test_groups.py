"""What `make test` installs is enough for the tests that it runs."""

import ast
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from paths import ROOT, TESTS

ELSEWHERE = {"oracle", "golden"}  # folders of tests that have a group of their own, or are run by hand


def with_dependencies(requirements):
    """The names of distributions that installing these brings."""
    names = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in names or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        names.add(name)
        try:
            waiting += [Requirement(text) for text in requires(name) or ()]
        except PackageNotFoundError:
            continue
    return names


def imported_at_the_top(path):
    """The top-level names of what a file imports whenever it is imported itself."""
    names = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


@pytest.mark.thorough
def test_collecting_needs_the_test_group_alone():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    installed = with_dependencies(project["project"]["dependencies"] + project["dependency-groups"]["test"])
    providers = packages_distributions()
    missing = []
    for path in sorted(TESTS.rglob("*.py")):
        folders = set(path.relative_to(TESTS).parts)
        helps_others = path.parent.name == "support" and "hugging_face" in path.name
        if folders & ELSEWHERE or helps_others:
            continue
        for name in sorted(imported_at_the_top(path) - sys.stdlib_module_names):
            bringing = {canonicalize_name(name) for name in providers.get(name, ())}
            if bringing and not bringing & installed and "minibert-scratch" not in bringing:
                missing.append(f"{path.relative_to(TESTS)} imports {name}")
    assert missing == []
    assert "pandas" in installed and "torch" not in installed
