"""An option that does not exist is added by one line, and everything that options are for knows it."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from paths import PACKAGE
from small_tasks import reviews, write_model

# By the folder of `options.py` and the class in it: of all fine-tuning, and of all training.
LINES = {
    ("finetuning", "FinetuneArguments"): '    hyperness: float = option(0.25, "how hyper it is", RATE)\n',
    ("base", "TrainingArguments"): '    turboness: int = option(3, "how turbo it is", COUNT)\n',
}

# What a person sees who has the package with that line: each kind of place is printed as JSON.
PROGRAM = """\
import inspect, json, sys
import minibert
from minibert import cli
from minibert.base.errors import InputError
from minibert.finetuning.options import FinetuneOptions

model, out, texts, labels = json.load(sys.stdin)
seen = {}
for name in ("TextClassifier", "TokenTagger", "QuestionAnswerer", "finetune", "pretrain"):
    called = getattr(minibert, name)
    parameters = inspect.signature(called).parameters
    added = [str(parameters.get(option)) for option in ("hyperness", "turboness")]
    seen[name] = [*added, " ".join(called.__doc__.split())]
given = cli.parse_arguments(["finetune", "--hyperness", "0.5", "--out", "o"])
seen["flag"] = vars(given)["hyperness"]
classifier = minibert.TextClassifier(model, hyperness=0.75, engine="numpy", max_steps=1, out=out)
seen["get_params"] = classifier.get_params()["hyperness"]
classifier.fit(texts, labels)
seen["loaded"] = minibert.load(out, "numpy").hyperness
seen["options"] = FinetuneOptions.load(out + "/finetune.json").hyperness
try:
    FinetuneOptions("sst2", "d", "m", hyperness=2)
except InputError as error:
    seen["refused"] = str(error)
try:
    minibert.TextClassifier(model, hypernes=1)
except TypeError as error:
    seen["misspelt"] = str(error)
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A folder with the package, and one line more in each of two files; of all others there are links."""
    folder = tmp_path_factory.mktemp("package")
    copy = folder / "minibert"
    copy.mkdir()
    changed = [room for room, _ in LINES]
    for path in PACKAGE.iterdir():
        if path.name in changed:
            shutil.copytree(path, copy / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (copy / path.name).symlink_to(path)
    for (room, name), line in LINES.items():
        options = copy / room / "options.py"
        before, heading, body = options.read_text(encoding="utf-8").partition(f"class {name}")
        docstring, end, fields = body.partition('"""\n\n')
        assert heading and end
        options.write_text(before + heading + docstring + end + line + fields, encoding="utf-8")
    return folder


def run(package, *words, given=""):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *words],
        cwd=package,
        env=os.environ | {"PYTHONPATH": str(package), "COLUMNS": "110"},
        input=given,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("command", "is_finetuning"), [("finetune", True), ("pretrain", False)])
def test_one_line_adds_a_flag(package, command, is_finetuning):
    text = " ".join(run(package, "-m", "minibert", command, "--help").split())
    assert ("--hyperness N how hyper it is (default: 0.25)" in text) is is_finetuning
    assert "--turboness N how turbo it is (default: 3)" in text


def test_one_line_adds_an_argument_a_parameter_and_a_stored_field(package, tmp_path):
    texts, labels = zip(*reviews(24, 1), strict=True)
    model, out = str(write_model(tmp_path / "model")), str(tmp_path / "run")
    seen = json.loads(run(package, "-c", PROGRAM, given=json.dumps([model, out, texts, labels])))
    for name in ("TextClassifier", "TokenTagger", "QuestionAnswerer", "finetune", "pretrain"):
        hyperness, turboness, docstring = seen[name]
        assert turboness == "turboness: int = 3"
        assert "turboness : int how turbo it is (default: 3)." in docstring
        if name == "pretrain":
            assert hyperness == "None"
        else:
            assert hyperness == "hyperness: float = 0.25"
            assert "hyperness : float how hyper it is (default: 0.25)." in docstring
    assert (seen["flag"], seen["get_params"], seen["loaded"], seen["options"]) == (0.5, 0.75, 0.75, 0.75)
    assert json.loads((tmp_path / "run" / "finetune.json").read_text())["hyperness"] == 0.75
    assert json.loads((tmp_path / "run" / "finetune.json").read_text())["turboness"] == 3
    assert json.loads((tmp_path / "run" / "estimator.json").read_text())["parameters"]["hyperness"] == 0.75
    assert seen["refused"] == "hyperness=2 is not valid; give a number of at least 0 and below 1."
    assert seen["misspelt"] == "TextClassifier() has no argument 'hypernes'; did you mean hyperness?"


def test_the_package_itself_has_no_such_option():
    source = "import minibert; minibert.TextClassifier('model', hyperness=0.5)"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, cwd=PACKAGE.parent)
    assert done.stderr.splitlines()[-1].startswith("TypeError: TextClassifier() has no argument 'hyperness'")
