"""What help() shows of the public names: those of the package, and those of the pages on the API."""

import ast
import importlib
import inspect
import re
import textwrap
from functools import cached_property
from typing import Any, NamedTuple

import pytest
from paths import ROOT

import minibert
from minibert.core.ops import Ops

PAGES = sorted((ROOT / "docs" / "api").glob("*.md"))
SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)
ENTRY = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: : (.*))?$")
SOURCE = re.compile(r"\b(19|20)\d\d\b")  # the year of a paper
# Classes whose options a function describes, which their docstring names.
DESCRIBED_BY = {"PretrainOptions": minibert.pretrain, "FinetuneOptions": minibert.finetune}
# What public functions return, which the pages leave to their text.
RETURNED = [
    "minibert.ask.gaps.Guess",
    "minibert.ask.inference.Encoded",
    "minibert.experiments.comparison.Comparison",
]
# Operations with a backward that are no more than their first line says.
PLAIN = {"linear", "tanh", "embedding", "take_rows", "layers", "sigmoid_cross_entropy", "squared_error"}

# Methods of the package's own names that take arguments and accept whatever they are given.
NEVER_FAIL = {"get_params", "get_feature_names_out", "take", "warn_untrained"}


class Public(NamedTuple):
    """A documented name, and what it stands for."""

    name: str
    value: Any


def documented() -> dict[str, dict[str, list[str]]]:
    """What the pages name, and the options under each name, such as `:members: tree, like`."""
    found: dict[str, dict[str, list[str]]] = {}
    for page in PAGES:
        module = "minibert"
        lines = page.read_text("utf-8").splitlines()
        for number, line in enumerate(lines):
            directive = re.match(r"\.\. (currentmodule|auto\w+):: (\S+)", line)
            if directive is None:
                continue
            if directive[1] == "currentmodule":
                module = directive[2]
                continue
            name = directive[2] if directive[2].startswith("minibert.") else f"{module}.{directive[2]}"
            found[name] = options_below(lines[number + 1 :])
    return found


def options_below(lines: list[str]) -> dict[str, list[str]]:
    """The options of a directive, from the lines below it."""
    options = {}
    for line in lines:
        option = re.match(r"\s+:([\w-]+):\s*(.*)", line)
        if option is None:
            break
        options[option[1]] = re.findall(r"\w+", option[2])
    return options


def public_names() -> list[Public]:
    """Each documented function and class, and the methods and properties that are shown of a class."""
    exported = [f"minibert.{name}" for name in minibert.__all__ if name != "__version__"]
    names = documented() | {name: {"members": []} for name in [*exported, *RETURNED]}
    found = []
    for name, options in sorted(names.items()):
        value = getattr(importlib.import_module(name.rpartition(".")[0]), last(name))
        found.append(Public(name, value))
        if isinstance(value, type) and ("members" in options or "inherited-members" in options):
            shown = options.get("members") or own_members(value)
            hidden = options.get("exclude-members", [])
            found += [Public(f"{name}.{one}", member(value, one)) for one in shown if one not in hidden]
    return found


def last(name: str) -> str:
    """The last part of a dotted name."""
    return name.rpartition(".")[2]


def own_members(kind: type) -> list[str]:
    """The names of public methods and properties that a class has from the package."""
    bases = [base for base in kind.__mro__ if base.__module__.startswith("minibert")]
    names = dict.fromkeys(name for base in bases for name in vars(base) if name[0] != "_")
    return [name for name in names if callable(member(kind, name)) or is_property(member(kind, name))]


def member(kind: type, name: str) -> Any:
    """A member of a class: a property itself, a method as it is called."""
    static = inspect.getattr_static(kind, name)
    return static if is_property(static) else getattr(kind, name)


def is_property(value: Any) -> bool:
    return isinstance(value, property | cached_property)


def sections(text: str) -> dict[str, str]:
    """The sections of a docstring by their titles."""
    _, *parts = SECTION.split(text)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def entries(text: str) -> dict[str, str]:
    """What a section says of each name in it: the type, or the description, or both."""
    found: dict[str, str] = {}
    names: list[str] = []
    for line in text.splitlines():
        if entry := ENTRY.match(line):
            names = [name.strip("* ") for name in entry[1].split(",")]
            found |= dict.fromkeys(names, entry[2] or "")
        elif line.startswith(" "):
            for name in names:
                found[name] = f"{found[name]} {line.strip()}".strip()
    return found


def descriptions(value: Any) -> dict[str, str]:
    """What is said of the parameters of a function, or of a class and those that it derives from."""
    kinds = value.__mro__ if isinstance(value, type) else [value]
    described: dict[str, str] = {}
    for kind in reversed(kinds):
        parts = sections(inspect.getdoc(kind) or "")
        for title in ("Parameters", "Attributes"):
            described |= entries(parts.get(title, ""))
    if isinstance(value, type) and (function := DESCRIBED_BY.get(value.__name__)):
        assert f"minibert.{function.__name__}" in value.__doc__
        described |= descriptions(function)
    return described


def raised(value: Any) -> set[str]:
    """The errors that the body of a function raises itself."""
    try:
        source = inspect.getsource(inspect.unwrap(value))
        tree = ast.parse(textwrap.dedent(source))
    except (TypeError, OSError):
        return set()
    errors = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc]
    called = {ast.unparse(error.func) for error in errors if isinstance(error, ast.Call)}
    return {name for name in called if name[0].isupper()}  # and no function that makes an error


def faults(value: Any) -> list[str]:
    """What the docstring of a name lacks."""
    text = inspect.getdoc(value) or ""
    if not text.strip():
        return ["no docstring"]
    if not text.partition("\n")[0].endswith((".", ":")):
        return ["the first line is not a sentence"]
    if is_property(value) or getattr(value, "_is_protocol", False):
        return []
    if isinstance(value, type) and issubclass(value, dict | Exception):
        return []
    signature = inspect.signature(value)
    parameters = [name for name in signature.parameters if name != "self"]
    described = descriptions(value)
    found = [f"{name} is not described" for name in parameters if name[0] != "_" and not described.get(name)]
    if isinstance(value, type):
        return found
    parts = sections(text)
    found += [f"has no {name}" for name in entries(parts.get("Parameters", "")) if name not in parameters]
    returned = signature.return_annotation
    if returned not in (None, "None", inspect.Signature.empty) and not {"Returns", "Yields"} & set(parts):
        found.append("Returns is missing")
    listed = parts.get("Raises", "")
    return found + [f"{error} is not in Raises" for error in raised(value) if error not in listed]


def test_many_names_are_public():
    names = [name for name, _ in public_names()]
    assert len(names) > 250
    assert {"minibert.pretrain", "minibert.Bert.encode", "minibert.core.ops.blocks.Blocks.pooler"} <= set(
        names
    )


def test_help_describes_every_parameter_result_and_error():
    assert {name: found for name, value in public_names() if (found := faults(value))} == {}


def test_help_of_an_operation_names_its_source():
    operations = [(name, value) for name, value in public_names() if hasattr(Ops, f"{last(name)}_backward")]
    assert len(operations) > 15
    assert PLAIN <= {last(name) for name, _ in operations}
    without = [name for name, value in operations if not SOURCE.search(inspect.getdoc(value) or "")]
    assert [name for name in without if last(name) not in PLAIN] == []


def test_help_of_what_users_call_names_its_errors():
    called = [
        (name, value)
        for name, value in public_names()
        if name.count(".") <= 2 and callable(value) and not isinstance(value, type)
    ]
    assert len(called) > 50
    taking = {name: value for name, value in called if set(inspect.signature(value).parameters) - {"self"}}
    without = [
        name for name, value in taking.items() if "Raises" not in sections(inspect.getdoc(value) or "")
    ]
    assert [name for name in without if last(name) not in NEVER_FAIL] == []


def complete(rows: int) -> int:
    """Count.

    Parameters
    ----------
    rows : how many.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        When there is none.
    """
    if not rows:
        raise ValueError("none")
    return rows


@pytest.mark.parametrize(
    ("left_out", "fault"),
    [
        ("rows : how many.", "rows is not described"),
        ("Returns\n-------\nint\n", "Returns is missing"),
        ("ValueError\n    When there is none.", "ValueError is not in Raises"),
    ],
)
def test_what_a_docstring_lacks_is_found(monkeypatch, left_out, fault):
    assert faults(complete) == []
    text = inspect.getdoc(complete)
    assert left_out in text
    monkeypatch.setattr(complete, "__doc__", text.replace(left_out, ""))
    assert faults(complete) == [fault]
    monkeypatch.setattr(complete, "__doc__", text.replace("rows :", "row, rows :"))
    assert faults(complete) == ["has no row"]
