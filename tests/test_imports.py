"""Who may import whom in minibert, and which libraries: read from the sources, lazy imports included."""

import ast
import fnmatch
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parent.parent / "minibert"

# File (without .py; * stands for any name) -> what it may import of minibert | of other libraries.
# A row without a name continues the one above; of two rows that match, the first counts. Open to
# everyone: `errors`, `files`, `json_files`, `machine`, `reading`, `terminal`, the standard library.
TABLE = """
errors                  |                                                     |
files                   |                                                     |
json_files              |                                                     |
machine                 |                                                     |
options                 |                                                     | numpy
reading                 |                                                     |
terminal                |                                                     |
__init__                | any                                                 |
__main__                | cli/__init__                                        |

config                  |                                                     | numpy
params                  | config                                              | numpy
batch                   | config params                                       | numpy
ops/*                   | ops/*                                               | numpy

bert                    | config batch                                        |
heads                   | bert config batch params                            | numpy
bilstm                  | heads params batch                                  | numpy
optim                   | ops/updates                                         | numpy
flops                   | config                                              | numpy
backends/__init__       | ops/* backends/*                                    | numpy threadpoolctl
backends/trial          | bert batch config params                            | numpy
backends/numba_*        | ops/* backends/numba_*                              | numpy numba
backends/jax_*          | ops/* batch params backends/jax_* errors            | numpy jax
backends/cpp_primitives | ops/* backends/_kernels                             | numpy
backends/cpp_ops        | ops/* backends/cpp_primitives                       | numpy
backends/jax_devices    |                                                     | jax

tokenizer/__init__      | tokenizer/*                                         |
tokenizer/unicode       |                                                     |
tokenizer/normalize     | tokenizer/unicode                                   |
tokenizer/native        | tokenizer/_wordpiece                                | numpy
tokenizer/greedy        | tokenizer/normalize tokenizer/native                | numpy
tokenizer/encoding      | tokenizer/native                                    | numpy
tokenizer/formats       |                                                     |
tokenizer/wordpiece     | tokenizer/formats tokenizer/encoding                |
                        | tokenizer/greedy tokenizer/normalize                |
                        | tokenizer/native                                    | numpy
tokenizer/counting      | tokenizer/normalize tokenizer/native                | numpy
tokenizer/merging       |                                                     | numpy
tokenizer/learner       | tokenizer/counting tokenizer/merging                |
                        | tokenizer/formats tokenizer/normalize               |
                        | tokenizer/encoding tokenizer/native                 |
                        | tokenizer/unicode                                   | numpy
tokenizer/report        | tokenizer/counting tokenizer/wordpiece              | numpy
data/*                  | data/* tokenizer/* batch                            | numpy
corpora/*               | data/*                                              |
checkpoint              | bilstm params config                                | numpy safetensors
hub/*                   | hub/* params config                                 | numpy safetensors
model                   | bert hub/* params config batch backends/__init__    |
                        | tokenizer/*                                         | numpy

metrics/*               | metrics/*                                           | numpy
trace                   | flops                                               | numpy
gradcases/*             | gradcases/* bert heads bilstm params config batch   | numpy
gradcheck               | ops/* gradcases/* params                            | numpy

runlog                  |                                                     | tqdm tensorboardX
viz                     | runlog                                              | numpy matplotlib
train                   | optim checkpoint metrics/* runlog params config     |
                        | batch                                               | numpy
pretraining/recipes     |                                                     | numpy
pretraining/options     | pretraining/recipes config data/* options           |
pretraining/preparation | pretraining/options data/* tokenizer/* hub/* runlog | numpy tqdm
pretraining/evaluation  | bert config batch data/*                            | numpy
pretraining/task        | pretraining/preparation pretraining/evaluation      |
                        | pretraining/options pretraining/recipes train bert  |
                        | optim hub/* params config batch data/* flops        | numpy
pretraining/budget      | pretraining/task pretraining/evaluation             |
                        | pretraining/recipes train params                    |
pretraining/predict     | pretraining/preparation pretraining/evaluation      |
                        | pretraining/options model backends/__init__         |
                        | data/* tokenizer/*                                  | numpy
pretraining/__init__    |                                                     |
pretrain                | pretraining/* train runlog viz model hub/* trace    |
                        | checkpoint backends/__init__ data/* tokenizer/*     | numpy
finetuning/task         | batch params                                        | numpy
finetuning/report       | metrics/* finetuning/results finetuning/markup      | numpy
                        | finetuning/pictures                                 |
finetuning/pictures     | viz finetuning/markup                               | numpy
finetuning/markup       |                                                     | numpy
finetuning/feature_tagger | finetuning/* bilstm hub/* model backends/__init__  |
                        | tokenizer/* params batch                            | numpy safetensors
finetuning/*            | finetuning/* train runlog heads bert bilstm optim   |
                        | metrics/* viz model hub/* checkpoint flops          |
                        | backends/__init__ data/* tokenizer/* params         |
                        | config batch options                                | numpy tqdm
finetune                | finetuning/* train runlog heads optim metrics/* viz |
                        | model hub/* checkpoint                              |
                        | backends/__init__ data/* tokenizer/* params         |
                        | config batch options                                | numpy tqdm
experiments/*           | experiments/* pretrain pretraining/* finetune       |
                        | finetuning/* backends/__init__ runlog               |
                        | metrics/* viz model config data/* tokenizer/*       | numpy tqdm

corpora/make_books      | data/*                                              |
cli/*                   | any                                                 | numpy
"""
OPEN_TO_ALL = {"errors", "files", "json_files", "machine", "reading", "terminal"}
# Compiled, each with the one file that imports it; no * stands for one of them.
EXTENSIONS = {"tokenizer/_wordpiece": "tokenizer/native", "backends/_kernels": "backends/cpp_primitives"}


class Row(NamedTuple):
    """What the files of one row may import."""

    pattern: str
    modules: list[str]
    libraries: list[str]


class Import(NamedTuple):
    """One import as it stands in a source."""

    line: int
    name: str  # dotted and absolute: "numpy", "minibert.ops.random"


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
    """`from minibert.ops import random` imports a module, `from minibert.ops import Ops` a name from one."""
    if base.split(".")[0] != "minibert":
        return base
    folders = base.split(".")[1:]
    inside = package.joinpath(*folders, name)
    module = inside.is_dir() or inside.with_suffix(".py").exists() or "/".join([*folders, name]) in EXTENSIONS
    return f"{base}.{name}" if module else base


def _called(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def file_of(module: str, package: Path = PACKAGE) -> str:
    """`minibert.ops.random` -> `ops/random`; a package is its `__init__`."""
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
    assert computing <= {"__init__", "backends/__init__"}


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
        ("data/instances", "from minibert.ops import Ops"),
        ("data/instances", "def draw():\n    from minibert import ops"),
        ("data/instances", "import importlib\nimportlib.import_module('minibert.ops.random')"),
        ("ops/primitives", "import scipy.special"),
        ("ops/primitives", "from minibert.params import Parameters"),
        ("ops/primitives", "import jax.numpy"),
        ("bert", "import numpy as np"),
        ("bert", "from minibert.ops import Ops"),
        ("backends/numba_ops", "from minibert.backends.jax_ops import JaxOps"),
        ("backends/numba_ops", "from .jax_ops import JaxOps"),
        ("backends/__init__", "from minibert.backends import _kernels"),
        ("params", "from minibert.bert import encoder"),
        ("pretrain", "from minibert.cli import main"),
        ("pretrain", "from minibert import Tokenizer"),
        ("train", "from minibert import pretrain"),
        ("train", "import transformers"),
        ("viz", "from minibert.data.shards import TokenShards"),
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
        ("data/instances", "from minibert.batch import Batch\nfrom minibert.tokenizer import Tokenizer"),
        ("ops/primitives", "from minibert.ops import random\nfrom minibert.errors import InputError"),
        ("viz", "def picture():\n    from matplotlib import pyplot"),
        ("cli/__init__", "def main():\n    from minibert import pretrain, __version__"),
    ],
)
def test_proper_import_passes(file, source):
    assert violations(source, file) == []


def test_relative_and_lazy_imports_are_read_with_their_lines():
    source = "import os\ndef f():\n    from ..config import BertConfig\n    from . import random\n"
    assert imports(source, "ops/primitives") == [
        Import(1, "os"),
        Import(3, "minibert.config"),
        Import(4, "minibert.ops.random"),
    ]
