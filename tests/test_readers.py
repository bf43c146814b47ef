"""Every reader, on any bytes, returns or says in one sentence what is wrong with the file."""

import ast
import json
import re
import shutil
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
from mutations import DEEP, spoiled
from paths import TESTS
from readers import READERS, command, doctored, numbered, write_genuine

from minibert.api.runs import Run
from minibert.base.errors import InputError, RunError
from minibert.pretraining.options import PretrainOptions
from minibert.reports.doctor import resolved
from minibert.training.runlog import read_metrics

PACKAGE = TESTS.parent / "minibert"
FEW, SOME, MANY = 3, 40, 1_000  # mutations of every file, the first the same; more than a few are slow


@pytest.fixture(scope="module")
def genuine(tmp_path_factory, run) -> Path:
    """A folder with one of everything."""
    return write_genuine(tmp_path_factory.mktemp("genuine") / "all", run)


@pytest.fixture
def place(genuine, request, tmp_path) -> Path:
    """The folder of genuine files, of which one may be spoiled."""
    at = tmp_path / "all"
    shutil.copytree(genuine, at)
    return at


@pytest.mark.representatives(reader=READERS[::3])  # a copy of all files takes a tenth of a second
@pytest.mark.parametrize(
    "count",
    [
        FEW,
        pytest.param(SOME, marks=pytest.mark.slow),
        pytest.param(MANY, marks=[pytest.mark.slow, pytest.mark.exhaustive]),
    ],
    ids=["few", "some", "many"],
)
@pytest.mark.parametrize("reader", READERS, ids=numbered)
def test_a_spoiled_file_is_read_or_refused_in_a_sentence(reader, count, place):
    file = place / reader.file
    sound = file.read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("error", RuntimeWarning)  # NumPy's, of what should have been refused
        reader.read(place)
        for number, data in enumerate(spoiled(sound, file.name, count)):
            file.unlink()  # and not written over: it may be mapped
            file.write_bytes(data)
            try:
                reader.read(place)
            except (InputError, RunError) as error:
                assert str(error) and "\n" not in str(error)
            except BaseException as error:
                error.add_note(f"mutation {number} of {reader.file}: {data[:300]!r}")
                raise


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (
            "slow/tokenizer_config.json",
            '{"added_tokens_decoder": {"%s": {"content": "[X]"}}}' % ("9" * 5_000),
        ),
        ("parts/00001-of-00002/meta.json", "[" * DEEP + "]" * DEEP),
        ("parts/00001-of-00002/part.json", "[" * DEEP + "]" * DEEP),
        *(
            ("tuned/report.json", text)
            for text in ("[]", "null", "{}", '{"page": 5}', "[" * DEEP + "]" * DEEP)
        ),
        ("failed/failed.json", "[]"),
        ("tuned/finetune.json", {"beta2": {}}),
        ("tuned/finetune.json", {"task": {}}),
        ("tuned/task.json", {"tuned": {"threshold": 10**400}}),
        ("pretrained/training.json", {"mask_rates": [0.8, 1e40, 0.1]}),
        ("pretrained/training.json", {"dropout": "9"}),
        ("linked/elsewhere.json", {"folder": "long" * 2_000}),
    ],
)
def test_what_was_seen_to_end_in_a_traceback_is_refused(file, text, place):
    path = place / file
    path.write_text(text if isinstance(text, str) else json.dumps(json.loads(path.read_text()) | text))
    refused = [refuses(reader, place) for reader in READERS if reader.file == file]
    assert any(refused)


@pytest.mark.parametrize("name", ["data", "model"])
def test_options_with_names_that_are_too_long_are_compared_and_judged(name, place):
    path = place / "tuned/finetune.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: "/" + "long " * 2_000}))
    for words in (("compare", place / "tuned", place / "again"), ("doctor", place / "tuned")):
        command(*words)


def test_a_held_out_loss_whose_documents_are_not_known_keeps_its_error(place):
    path = place / "pretrained/report.json"
    report = json.loads(path.read_text())
    del report["held_out"]["documents"]
    path.write_text(json.dumps(report | {"held_out": report["held_out"] | {"standard_error": 0.25}}))
    targets = report["held_out"]["targets"]
    assert f"nats ({targets} targets, standard error 0.250)\n" in str(Run.open(place / "pretrained"))


def test_the_doctor_judges_by_the_recipe_where_the_batch_size_is_lost(place):
    path = place / "pretrained/training.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"batch_size": None}))
    doctored(place / "pretrained")
    assert resolved(PretrainOptions.load(path), place).batch_size == PretrainOptions().resolved().batch_size


def refuses(reader, place):
    """Whether a reader refuses its file. `minibert verify` doesn't: it lists what is wrong."""
    try:
        reader.read(place)
    except InputError:
        return True
    return False


def test_a_line_of_the_record_that_is_none_is_left_out(place):
    path = place / "tuned" / "metrics.jsonl"
    lines = path.read_text().splitlines()
    for strange in (
        "[" * 100_000,
        '{"step": %s}' % ("9" * 5_000),
        '{"step": 1, "loss": {}}',
        '{"step": true}',
    ):
        path.write_text("\n".join([*lines, strange]))
        assert read_metrics(place / "tuned") == [json.loads(line) for line in lines]


# Nothing is left out

READING = {
    *("open", "read_text", "read_bytes", "fromfile", "loads", "memmap", "open_memmap"),
    *("open_file", "safe_open", "deserialize", "byte_pieces", "read_json", "parse_json", "raw_decode"),
}
OF_NO_USER = {
    "core/__main__.py": "a text; `tests/core/test_road.py` has one that is not there",
    "__main__.py": "the null device",
    "cli/course.py": "notebooks of the package",
    "course/animations.py": "the player of the package",
    "course/answers.py": "what students hand in, of which tests/course/test_grading.py has broken ones",
    "course/carried.py": "what a process of an answer writes; tests/course/test_grading.py has broken ones",
    "course/confined.py": "the same, and the kernel's files",
    "course/exercises.py": "notebooks of the package",
    "course/notes.py": "notebooks of the package",
    "course/mine.py": "the reader's own Python, which is run; tests/course has broken ones",
    "hub/onnx.py": "the configuration that `save_hf` has just written",
    "engines/numba/jit.py": "sources of the package",
    "explorer/page.py": "scripts and styles of the package; `read_model` reads what a user has",
    "engines/jax/cluster.py": "what the processes of a run tell each other",
    "base/bundled_models.py": "a model of the package; tests/base/test_bundled_models.py has damaged ones",
    "base/machine.py": "the kernel's files",
    "tokenizer/unicode.py": "a file of the package",
}


def reading_functions() -> set[str]:
    """The functions of the package that call something of `READING`, as `file.py: Class.function`."""
    found = set()

    def visit(node: ast.AST, file: str, names: tuple[str, ...]) -> None:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names = (*names, node.name, *(["<locals>"] if isinstance(node, ast.FunctionDef) else []))
        if isinstance(node, ast.Call) and names and _reads(node):
            found.add(f"{file}: {'.'.join(names[:-1])}")
        for inner in ast.iter_child_nodes(node):
            visit(inner, file, names)

    for path in PACKAGE.rglob("*.py"):
        visit(ast.parse(path.read_text(encoding="utf-8")), path.relative_to(PACKAGE).as_posix(), ())
    return {name for name in found if name.partition(":")[0] not in OF_NO_USER}


def _reads(call: ast.Call) -> bool:
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    owner = getattr(getattr(call.func, "value", None), "id", "")
    modes = [one.value for one in call.args[1:2] if isinstance(one, ast.Constant)]
    copies = call.args and getattr(getattr(call.args[0], "func", None), "attr", "") == "dumps"
    writes = name.startswith("open") and modes and modes[0] not in ("r", "rb")
    return name in READING and owner != "os" and not writes and not copies


def test_the_page_has_no_more_readers_and_damages_than_there_are():
    page = (PACKAGE.parent / "docs" / "what-is-proven.md").read_text("utf-8")
    told = re.search(r"over (\d+) readers of files, each given a file damaged in ([\d,]+) ways", page)
    assert int(told[1]) < len(READERS) < 1.25 * int(told[1])
    assert int(told[2].replace(",", "")) == MANY


@pytest.mark.slow
def test_every_function_that_reads_a_file_is_called_by_a_reader_of_these(place):
    called = set()

    def note(frame: Any, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and PACKAGE in path.parents:
            called.add(f"{path.relative_to(PACKAGE).as_posix()}: {frame.f_code.co_qualname}")

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            for reader in READERS:
                reader.read(place)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert sorted(reading_functions() - called) == []
