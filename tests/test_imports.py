"""Who may import whom in minibert, and which libraries: read from the sources, lazy imports included."""

import ast
import functools
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from paths import GOLDEN, PACKAGE

# The rooms of the package, floor by floor: a room imports itself and the rooms of lower floors. The files of
# the package itself, `__init__` and `__main__`, are above all.
FLOORS = """
cli
course experiments explorer verification
api
pretraining finetuning
ask gradcheck
reports
tasks
training
hub data engines
model tokenizer
base
core
"""
# What a room imports beside NumPy and the standard library; a longer path goes before a shorter one.
LIBRARIES = {
    "api/encoder": ["pandas", "polars"],
    "core": [],
    "base": ["compression", "backports"],
    "data/wikipedia": ["mwparserfromhell"],
    "engines/cpp": [],
    "engines/hardware": ["threadpoolctl"],
    "engines/jax": ["jax"],
    "engines/numba": ["numba"],
    "hub": ["safetensors"],
    "hub/onnx": ["onnxruntime", "torch", "transformers"],
    "finetuning/frozen": ["safetensors"],
    "experiments": ["scipy"],
    "training": ["tqdm", "tensorboardX", "safetensors"],
    "pretraining": ["tqdm"],
    "reports": ["jinja2", "markupsafe", "matplotlib"],
    "course": ["matplotlib", "IPython"],
    "cli/shared/parser": ["shtab"],
}
# Compiled, each with the one file that imports it; no * stands for one of them.
EXTENSIONS = {"tokenizer/_wordpiece": "tokenizer/native", "engines/cpp/_kernels": "engines/cpp/primitives"}


class Import(NamedTuple):
    """One import as it stands in a source."""

    line: int
    name: str  # dotted and absolute: "numpy", "minibert.core.ops.dropout_bits"


@functools.cache  # several tests ask of all files
def imports(source: str, file: str, package: Path = PACKAGE) -> list[Import]:
    """Every import statement and every `import_module("literal")` of a source, wherever it stands."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [Import(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, file)
            found += [Import(node.lineno, _deepest(base, alias.name, package)) for alias in node.names]
        elif isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__") and node.args:
            name = node.args[0]
            found.append(Import(node.lineno, name.value if isinstance(name, ast.Constant) else "(computed)"))
    return found


def _absolute(node: ast.ImportFrom, file: str) -> str:
    """The dotted module of `from . import x` and its relatives."""
    if not node.level:
        return node.module
    folder = ["minibert", *file.split("/")][: -node.level]
    return ".".join(folder + ([node.module] if node.module else []))


def _deepest(base: str, name: str, package: Path) -> str:
    """`from minibert.core.ops import dropout_bits` imports a module, `from … import Ops` a name from one."""
    if base.split(".")[0] != "minibert":
        return base
    folders = base.split(".")[1:]
    inside = package.joinpath(*folders, name)
    module = inside.is_dir() or inside.with_suffix(".py").exists() or "/".join([*folders, name]) in EXTENSIONS
    return f"{base}.{name}" if module else base


def _called(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def file_of(module: str, package: Path = PACKAGE) -> str:
    """`minibert.core.ops.dropout_bits` -> `ops/dropout_bits`; a package is its `__init__`."""
    parts = module.split(".")[1:]
    return "/".join([*parts, "__init__"] if package.joinpath(*parts).is_dir() else parts)


def room_of(file: str) -> str:
    """`core/ops/losses` -> `core`; `__init__` and `__main__` are rooms of their own, above all floors."""
    return file.split("/")[0]


def floor_of(room: str) -> int:
    """The number of the floor that a room is on, from the top; 0 for the files of the package itself."""
    for number, floor in enumerate(FLOORS.split("\n")):
        if room in floor.split():
            return number
    if room in ("__init__", "__main__"):
        return 0
    raise LookupError(room)


def libraries_of(file: str) -> list[str]:
    """The libraries that a file may import beside NumPy."""
    matching = [path for path in LIBRARIES if f"{file}/".startswith(f"{path}/")]
    return LIBRARIES[max(matching, key=len)] if matching else []


def violations(source: str, file: str, package: Path = PACKAGE) -> list[str]:
    """What a source imports against the floors, as sentences."""
    try:
        floor_of(room_of(file))
    except LookupError:
        return [f"{file}.py is in a room that is on no floor; give it one"]
    return [
        f"{file}.py:{line} imports {name}"
        for line, name in imports(source, file, package)
        if not _allowed(name, file, package)
    ]


def _allowed(name: str, file: str, package: Path) -> bool:
    library = name.split(".")[0]
    if library != "minibert":
        known = library in sys.stdlib_module_names or library == "numpy" or library in libraries_of(file)
        return known or name == "(computed)"
    other = file_of(name, package)
    if other in EXTENSIONS:
        return file == EXTENSIONS[other]
    if other == "__init__":  # for the version and the place of the package
        return room_of(file) in ("__main__", "cli", "course", "experiments")
    room, other_room = room_of(file), room_of(other)
    if room == other_room == "engines":  # an engine knows what all have in common, and no other engine
        folders = {path.split("/")[1] for path in (file, other) if path.count("/") > 1}
        return len(folders) < 2 or file.count("/") == 1
    return room == other_room or floor_of(room) < floor_of(other_room)


def sources() -> list[str]:
    """Every file of the package, as the table names it."""
    return sorted(str(path.relative_to(PACKAGE).with_suffix("")) for path in PACKAGE.rglob("*.py"))


def test_files_import_only_lower_floors():
    assert [
        wrong
        for file in sources()
        for wrong in violations((PACKAGE / f"{file}.py").read_text(encoding="utf-8"), file)
    ] == []


def arrows(package: Path = PACKAGE) -> dict[str, set[str]]:
    """What each file of the package imports of it, wherever the statement stands."""
    found = {}
    for path in package.rglob("*.py"):
        file = path.relative_to(package).with_suffix("").as_posix()
        said = imports(path.read_text(encoding="utf-8"), file, package)
        found[file] = {file_of(one.name, package) for one in said if one.name.split(".")[0] == "minibert"}
    return found


def circle(arrows: dict[str, set[str]]) -> list[str]:
    """Files that import one another in a circle, if there are any."""
    done: set[str] = set()

    def search(file: str, path: list[str]) -> list[str]:
        if file in path:
            return path[path.index(file) :]
        if file not in done:
            for other in sorted(arrows.get(file, ())):
                if found := search(other, [*path, file]):
                    return found
            done.add(file)
        return []

    return next((found for file in sorted(arrows) if (found := search(file, []))), [])


def test_no_file_imports_itself_by_way_of_others():
    assert circle(arrows()) == []


def test_a_planted_circle_is_found_inside_a_room_and_in_a_function(tmp_path):
    package = tmp_path / "minibert"
    sources = {
        "hub/__init__": "",
        "hub/a": "from minibert.hub.b import B",
        "hub/b": "from minibert.hub import c",
        "hub/c": "def late():\n    from minibert.hub.a import A",
        "hub/d": "import minibert.hub.a",
    }
    for file, source in sources.items():
        path = package / f"{file}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    assert circle(arrows(package)) == ["hub/a", "hub/b", "hub/c"]
    (package / "hub/c.py").write_text("")
    assert circle(arrows(package)) == []


def test_words_do_not_depend_on_the_unicode_of_the_running_python():
    for file in sources():
        if file.startswith("tokenizer/"):
            found = imports((PACKAGE / f"{file}.py").read_text(encoding="utf-8"), file)
            assert "unicodedata" not in {name for _, name in found}, file


def test_only_the_facade_computes_what_it_imports():
    computing = {
        file
        for file in sources()
        for found in imports((PACKAGE / f"{file}.py").read_text(encoding="utf-8"), file)
        if found.name == "(computed)"
    }
    assert computing <= {"__init__", "cli/shared/parser", "engines/registry", "tasks/registry"}


@pytest.mark.parametrize("extension", sorted(EXTENSIONS))
def test_one_file_alone_imports_the_extension(extension):
    importing = {
        file
        for file in sources()
        for found in imports((PACKAGE / f"{file}.py").read_text(encoding="utf-8"), file)
        if found.name.startswith("minibert.") and file_of(found.name) == extension
    }
    assert importing == {EXTENSIONS[extension]}


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("tokenizer/wordpiece", "from minibert.tokenizer import _wordpiece"),
        ("tokenizer/wordpiece", "from ._wordpiece import lib"),
        ("tokenizer/__init__", "import minibert.tokenizer._wordpiece"),
        ("cli/__init__", "import importlib\nimportlib.import_module('minibert.tokenizer._wordpiece')"),
        ("tokenizer/native", "import cffi"),
        ("tokenizer/wordpiece", "from minibert.data import corpus"),
        ("tokenizer/wordpiece", "from ..data.corpus import sentences"),
        ("tokenizer/wordpiece", "import torch"),
        ("tokenizer/wordpiece", "from minibert.model.ops import Ops"),
        ("data/instances", "def draw():\n    from minibert import engines"),
        ("core/ops/primitives", "import scipy.special"),
        ("core/ops/primitives", "import jax.numpy"),
        ("core/ops/primitives", "from minibert.model.params import Parameters"),
        ("core/params", "from minibert.base.errors import InputError"),
        ("core/gradcheck/cases", "from minibert import Tokenizer"),
        ("base/files", "from minibert.hub import load"),
        ("model/heads", "from minibert.engines import create"),
        ("engines/numba/ops", "from minibert.engines.jax.ops import JaxOps"),
        ("engines/numba/ops", "from ..jax.ops import JaxOps"),
        ("engines/cpp/ops", "import numba"),
        ("engines/__init__", "from minibert.engines.cpp import _kernels"),
        ("hub/names", "from minibert.data.corpus import sentences"),
        ("pretraining/run", "from minibert.cli import main"),
        ("pretraining/run", "from minibert.finetuning.run import finetune"),
        ("pretraining/run", "from minibert import Tokenizer"),
        ("training/loop", "from minibert.pretraining import run"),
        ("training/loop", "import transformers"),
        ("cli/__init__", "from matplotlib import pyplot"),
        ("helpers", ""),
    ],
)
def test_planted_wrong_import_is_found(file, source):
    assert len(violations(source, file)) == 1


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("tokenizer/wordpiece", "from .normalize import BasicTokenizer\nimport json, numpy as np"),
        ("tokenizer/native", "from minibert.tokenizer import _wordpiece"),
        ("data/instances", "from minibert.core.batch import Batch\nfrom minibert.tokenizer import Tokenizer"),
        ("core/ops/primitives", "from minibert.core.ops import dropout_bits\nimport numpy as np"),
        ("engines/registry", "from minibert.engines.cpp.ops import CppOps\nimport minibert.engines.jax"),
        ("reports/viz", "def picture():\n    from matplotlib import pyplot"),
        ("cli/__init__", "def main():\n    from minibert.pretraining.run import pretrain"),
    ],
)
def test_proper_import_passes(file, source):
    assert violations(source, file) == []


def test_relative_and_lazy_imports_are_read_with_their_lines():
    source = "import os\ndef f():\n    from ...model.params import Head\n    from . import dropout_bits\n"
    assert imports(source, "core/ops/primitives") == [
        Import(1, "os"),
        Import(3, "minibert.model.params"),
        Import(4, "minibert.core.ops.dropout_bits"),
    ]


@pytest.mark.parametrize("script", sorted(GOLDEN.glob("*.py")), ids=lambda path: path.name)
def test_scripts_that_are_run_by_hand_import_modules_that_exist(script):
    names = [each.name for each in imports(script.read_text("utf-8"), f"golden/{script.stem}")]
    ours = [name for name in names if name.startswith("minibert.")]
    assert [name for name in ours if not (PACKAGE / f"{file_of(name)}.py").exists()] == []
