"""Who may import whom in minibert, and which libraries: read from the sources, lazy imports included."""

import ast
import fnmatch
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from paths import PACKAGE

# File (without .py; * stands for any name) -> what it may import of minibert | of other libraries.
# A row without a name continues the one above; of two rows that match, the first counts. Open to
# everyone: `arrays`, `errors`, `files`, `foreign_names`, `json_files`, `machine`, `model_names`, `reading`,
# `terminal`, the standard library.
TABLE = """
arrays                  |                                                     |
errors                  |                                                     |
files                   |                                                     |
foreign_names           |                                                     |
json_files              |                                                     |
machine                 |                                                     |
options                 |                                                     | numpy
model_names             |                                                     |
reading                 |                                                     | compression backports
terminal                |                                                     |
__init__                | any                                                 |
__main__                | cli/__init__                                        |

ops/*                   | ops/*                                               | numpy
model/__init__          |                                                     |
model/config            |                                                     | numpy
model/head_kinds        |                                                     |
model/params            | model/config model/head_kinds                        | numpy
model/positions         | model/config model/params                           | numpy
model/targets           | model/params                                        | numpy
model/batch             | model/config model/params model/head_kinds          | numpy
model/bert              | model/config model/batch ops/*                      |
model/heads             | model/bert model/config model/batch model/params    |
                        | model/head_kinds ops/*                              | numpy
model/bilstm            | model/heads model/params model/batch ops/*          | numpy
model/flops             | model/config                                        | numpy

tokenizer/__init__      | tokenizer/*                                         |
tokenizer/simple        |                                                     |
tokenizer/unicode       |                                                     |
tokenizer/normalize     | tokenizer/unicode                                   |
tokenizer/native        | tokenizer/_wordpiece tokenizer/normalize            | numpy
tokenizer/greedy        | tokenizer/normalize tokenizer/native                | numpy
tokenizer/encoding      | tokenizer/native tokenizer/simple                   | numpy
tokenizer/added         | tokenizer/native tokenizer/normalize                | numpy
tokenizer/written       | tokenizer/encoding tokenizer/simple                 | numpy
tokenizer/formats       | tokenizer/simple tokenizer/added                    |
tokenizer/wordpiece     | tokenizer/formats tokenizer/encoding                |
                        | tokenizer/added                                     |
                        | tokenizer/greedy tokenizer/normalize                |
                        | tokenizer/native tokenizer/simple                   | numpy
tokenizer/counting      | tokenizer/normalize tokenizer/native                |
                        | tokenizer/encoding tokenizer/simple                 | numpy
tokenizer/merging       | tokenizer/simple tokenizer/native                   | numpy
tokenizer/learner       | tokenizer/counting tokenizer/merging                |
                        | tokenizer/simple tokenizer/normalize                |
                        | tokenizer/encoding tokenizer/native                 |
                        | tokenizer/unicode                                   | numpy
tokenizer/extending     | tokenizer/counting tokenizer/merging                |
                        | tokenizer/encoding tokenizer/native                 |
                        | tokenizer/wordpiece tokenizer/simple                | numpy
tokenizer/report        | tokenizer/counting tokenizer/wordpiece              |
                        | tokenizer/simple                                    | numpy
metrics/*               | metrics/*                                           | numpy

engines/__init__        | engines/registry engines/hardware                   |
engines/registry        | ops/* engines/*                                     | numpy
engines/hardware        | ops/* engines/cpp/primitives engines/jax/devices    | threadpoolctl
engines/runtime         |                                                     | numpy
engines/trial           | model/* engines/runtime                             | numpy
engines/numba/*         | ops/* engines/numba/*                               | numpy numba
engines/jax/devices     |                                                     | jax
engines/jax/*           | ops/* model/batch model/params engines/jax/*        |
                        | engines/runtime                                     | numpy jax
engines/cpp/__init__    |                                                     |
engines/cpp/primitives  | ops/* engines/cpp/_kernels                          | numpy
engines/cpp/ops         | ops/* engines/cpp/primitives                        | numpy
data/wikipedia          |                                                     | mwparserfromhell
data/*                  | data/* tokenizer/* model/batch                      | numpy
hub/__init__            | hub/* model/params model/config model/targets       |
                        | training/checkpoint                                 | numpy
hub/onnx                | hub/hugging_face                                    | numpy torch
                        |                                                     | transformers
                        |                                                     | onnxruntime
hub/*                   | hub/* model/params model/config model/head_kinds    | numpy safetensors
trace                   | model/flops                                         | numpy
vocabularies            | model/config tokenizer/*                            |
gaps                    | model/batch tokenizer/* vocabularies                | numpy
encoded_inputs          | model/batch                                         | numpy
inference               | gaps vocabularies model/* hub/* engines/__init__    |
                        | encoded_inputs                                      |
                        | engines/runtime tokenizer/* reports/encoded         | numpy

training/optim          | ops/updates                                         | numpy
training/runlog         |                                                     | tqdm tensorboardX
training/checkpoint     | model/*                                             | numpy safetensors
training/*              | training/* model/* engines/runtime                  | numpy
gradcheck/page          | gradcheck/sheet ops/* model/* tasks/batches         |
                        | reports/markup                                      |
gradcheck/*             | gradcheck/* ops/* model/* engines/runtime           |
                        | tasks/batches tasks/similarity_losses               | numpy
viz                     |                                                     | numpy matplotlib
tasks/similarity_losses | model/* ops/*                                       |
tasks/*                 | tasks/* data/* model/* metrics/* tokenizer/*        |
                        | training/runlog engines/runtime                     | numpy
explorer/packing        | hub/* model/* tokenizer/* training/runlog           |
                        | inference vocabularies                              | numpy
explorer/*              | explorer/* reports/markup inference                 |
reports/encoded         | reports/markup                                      | numpy
reports/card            | reports/results tasks/stored model/config            |
reports/*               | reports/* tasks/* metrics/* viz training/runlog     | numpy jinja2 markupsafe

pretraining/__init__    |                                                     |
pretraining/recipes     | model/config                                        | numpy
pretraining/options     | pretraining/recipes model/config data/* options     |
pretraining/preparation | pretraining/options data/* tokenizer/* hub/*        |
                        | training/runlog                                     | numpy tqdm
pretraining/evaluation  | model/* data/* engines/runtime training/runlog      | numpy
pretraining/objective   | pretraining/preparation pretraining/evaluation      |
                        | pretraining/options pretraining/recipes             |
                        | training/* model/* hub/* data/* engines/runtime     | numpy
pretraining/budget      | pretraining/objective pretraining/evaluation        |
                        | pretraining/recipes training/* model/params         |
                        | engines/runtime                                     |
pretraining/scoring     | gaps inference vocabularies tokenizer/*             | numpy
pretraining/whole_words | pretraining/preparation pretraining/evaluation      |
                        | model/* tokenizer/*                                 | numpy
pretraining/extension   | pretraining/preparation pretraining/predict         |
                        | inference hub/* model/params data/* tokenizer/*     |
                        | vocabularies                                        | numpy
pretraining/predict     | pretraining/preparation pretraining/evaluation      |
                        | pretraining/options pretraining/whole_words gaps    |
                        | model/batch                                         |
                        | inference vocabularies                              |
                        | engines/__init__ data/* tokenizer/*                 | numpy
pretraining/page        | pretraining/* training/* reports/*                  | numpy
pretraining/run         | pretraining/* training/* inference hub/* trace      |
                        | gaps                                                |
                        | engines/__init__ engines/runtime data/* tokenizer/* |
                        | model/batch model/flops model/params ops/*          | numpy
frozen/*                | frozen/* tasks/* training/runlog                    |
                        | vocabularies                                        |
                        | model/* inference hub/* engines/__init__            |
                        | engines/runtime tokenizer/*                         | numpy safetensors
calls                   | options                                             |
finetuning/*            | finetuning/* frozen/* tasks/* reports/* training/*  |
                        | model/* inference hub/* engines/__init__ data/*     |
                        | tokenizer/* options ops/* engines/runtime           |
                        | vocabularies                                        | numpy
estimators/*            | estimators/* calls finetuning/* inference tasks/*   |
                        | hub/* reports/* data/* training/runlog engines/__init__   |
                        | model/params tokenizer/* metrics/*                  | numpy
runs                    | calls options estimators/loading estimators/corpora |
                        | pretraining/*                                       |
                        | finetuning/* tokenizer/* training/runlog ops/*      |
                        | reports/results reports/page reports/markup         |
                        | tasks/stored engines/__init__                       |
comparison              | runs pretraining/options finetuning/* tasks/*       |
                        | reports/* metrics/* training/runlog                 | numpy

experiments/*           | experiments/* pretraining/* finetuning/* frozen/*   |
                        | tasks/* reports/* training/* metrics/* viz hub/*    |
                        | inference model/* data/* tokenizer/* options        |
                        | vocabularies engines/__init__ __init__              | numpy
course/exercises        | __init__                                            |
course/*                | course/* gradcheck/* ops/* metrics/*                | numpy matplotlib IPython
cli/shared/parser       | any                                                 | shtab
cli/*                   | any                                                 | numpy
"""
OPEN_TO_ALL = {
    "arrays",
    "errors",
    "files",
    "foreign_names",
    "json_files",
    "machine",
    "model_names",
    "reading",
    "terminal",
}
# Compiled, each with the one file that imports it; no * stands for one of them.
EXTENSIONS = {"tokenizer/_wordpiece": "tokenizer/native", "engines/cpp/_kernels": "engines/cpp/primitives"}


class Row(NamedTuple):
    """What the files of one row may import."""

    pattern: str
    modules: list[str]
    libraries: list[str]


class Import(NamedTuple):
    """One import as it stands in a source."""

    line: int
    name: str  # dotted and absolute: "numpy", "minibert.core.ops.random"


def rows() -> list[Row]:
    """`TABLE`, read."""
    found: list[Row] = []
    for line in filter(str.strip, TABLE.splitlines()):
        pattern, modules, libraries = line.split("|")
        if pattern.strip():
            found.append(Row(pattern.strip(), [], []))
        found[-1].modules.extend(modules.split())
        found[-1].libraries.extend(libraries.split())
    return found


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
    """`from minibert.core.ops import random` imports a module, `from minibert.core.ops import Ops` a name from one."""
    if base.split(".")[0] != "minibert":
        return base
    folders = base.split(".")[1:]
    inside = package.joinpath(*folders, name)
    module = inside.is_dir() or inside.with_suffix(".py").exists() or "/".join([*folders, name]) in EXTENSIONS
    return f"{base}.{name}" if module else base


def _called(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def file_of(module: str, package: Path = PACKAGE) -> str:
    """`minibert.core.ops.random` -> `ops/random`; a package is its `__init__`."""
    parts = module.split(".")[1:]
    return "/".join([*parts, "__init__"] if package.joinpath(*parts).is_dir() else parts)


def violations(source: str, file: str, package: Path = PACKAGE) -> list[str]:
    """What a source imports against the table, as sentences."""
    row = next((row for row in rows() if fnmatch.fnmatch(file, row.pattern)), None)
    if row is None:
        return [f"{file}.py is absent from the table; give it a row that says what it may import"]
    return [
        f"{file}.py:{line} imports {name}"
        for line, name in imports(source, file, package)
        if not _allowed(name, row, package)
    ]


def _allowed(name: str, row: Row, package: Path) -> bool:
    library = name.split(".")[0]
    if library != "minibert":
        return library in sys.stdlib_module_names or library in row.libraries or name == "(computed)"
    file = file_of(name, package)
    if file in EXTENSIONS:
        return file in row.modules
    return (
        file in OPEN_TO_ALL
        or row.modules == ["any"]
        or any(fnmatch.fnmatch(file, pattern) for pattern in row.modules)
    )


def sources() -> list[str]:
    """Every file of the package, as the table names it."""
    return sorted(str(path.relative_to(PACKAGE).with_suffix("")) for path in PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("file", sources())
def test_file_imports_only_what_its_row_allows(file):
    source = (PACKAGE / f"{file}.py").read_text(encoding="utf-8")
    assert violations(source, file) == []


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
        "ops/__init__": "",
        "ops/a": "from minibert.core.ops.b import B",
        "ops/b": "from minibert.core.ops import c",
        "ops/c": "def late():\n    from minibert.core.ops.a import A",
        "ops/d": "import minibert.core.ops.a",
    }
    for file, source in sources.items():
        path = package / f"{file}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    assert circle(arrows(package)) == ["ops/a", "ops/b", "ops/c"]
    (package / "ops/c.py").write_text("")
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
        ("tokenizer/normalize", "from minibert.tokenizer import native"),
        ("tokenizer/greedy", "from minibert.tokenizer.wordpiece import Tokenizer"),
        ("tokenizer/wordpiece", "from minibert.data import corpus"),
        ("tokenizer/wordpiece", "from ..data.corpus import sentences"),
        ("tokenizer/wordpiece", "import torch"),
        ("data/instances", "from minibert.core.ops import Ops"),
        ("data/instances", "def draw():\n    from minibert import ops"),
        ("data/instances", "import importlib\nimportlib.import_module('minibert.core.ops.random')"),
        ("ops/primitives", "import scipy.special"),
        ("ops/primitives", "from minibert.core.params import Parameters"),
        ("ops/primitives", "import jax.numpy"),
        ("model/bert", "import numpy as np"),
        ("model/bert", "from minibert.engines import create"),
        ("engines/numba/ops", "from minibert.engines.jax.ops import JaxOps"),
        ("engines/numba/ops", "from ..jax.ops import JaxOps"),
        ("engines/__init__", "from minibert.engines.cpp import _kernels"),
        ("model/params", "from minibert.core.bert import encoder"),
        ("pretraining/run", "from minibert.cli import main"),
        ("pretraining/run", "from minibert import Tokenizer"),
        ("training/loop", "from minibert.pretraining import run"),
        ("training/loop", "import transformers"),
        ("viz", "from minibert.data.shards.store import TokenShards"),
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
        (
            "data/instances",
            "from minibert.core.batch import Batch\nfrom minibert.tokenizer import Tokenizer",
        ),
        ("ops/primitives", "from minibert.core.ops import random\nfrom minibert.base.errors import InputError"),
        ("viz", "def picture():\n    from matplotlib import pyplot"),
        ("cli/__init__", "def main():\n    from minibert.pretraining.run import pretrain"),
    ],
)
def test_proper_import_passes(file, source):
    assert violations(source, file) == []


def test_relative_and_lazy_imports_are_read_with_their_lines():
    source = "import os\ndef f():\n    from ..model.config import BertConfig\n    from . import random\n"
    assert imports(source, "ops/primitives") == [
        Import(1, "os"),
        Import(3, "minibert.core.config"),
        Import(4, "minibert.core.ops.random"),
    ]
