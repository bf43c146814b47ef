"""An option that does not exist is added by one line, and everything that options are for knows it."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from paths import PACKAGE
from small_tasks import reviews, write_model

LINE = '    hyperness: float = option(0.25, "how hyper the training is", RATE)\n'

# What a person sees who has the package with that line: each kind of place is printed as JSON.
PROGRAM = """\
import inspect, json, sys
import minibert
from minibert import cli
from minibert.base.errors import InputError
from minibert.finetuning.options import FinetuneOptions

model, out, texts, labels = json.load(sys.stdin)
seen = {}
for name in ("TextClassifier", "TokenTagger", "QuestionAnswerer", "finetune"):
    called = getattr(minibert, name)
    parameter = inspect.signature(called).parameters.get("hyperness")
    seen[name] = [str(parameter), " ".join(called.__doc__.split())]
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


def package_with(folder, line):
    """Copy the package with one line more in one file; of all others there are links."""
    copy = folder / "minibert"
    copy.mkdir()
    for path in PACKAGE.iterdir():
        if path.name != "finetuning":
            (copy / path.name).symlink_to(path)
    shutil.copytree(PACKAGE / "finetuning", copy / "finetuning", ignore=shutil.ignore_patterns("__pycache__"))
    options = copy / "finetuning" / "options.py"
    before, heading, fields = options.read_text(encoding="utf-8").partition("class FinetuneArguments")
    doc, end, rest = fields.partition('"""\n\n')
    assert heading and end
    options.write_text(before + heading + doc + end + line + rest, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return package_with(tmp_path_factory.mktemp("package"), LINE)


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


def test_one_line_makes_a_flag(package):
    text = " ".join(run(package, "-m", "minibert", "finetune", "--help").split())
    assert "--hyperness N how hyper the training is (default: 0.25)" in text


def test_one_line_makes_an_argument_a_parameter_and_a_stored_field(package, tmp_path):
    texts, labels = zip(*reviews(24, 1), strict=True)
    model, out = str(write_model(tmp_path / "model")), str(tmp_path / "run")
    seen = json.loads(run(package, "-c", PROGRAM, given=json.dumps([model, out, texts, labels])))
    for name in ("TextClassifier", "TokenTagger", "QuestionAnswerer", "finetune"):
        parameter, docstring = seen[name]
        assert parameter == "hyperness: float = 0.25"
        assert "hyperness : float how hyper the training is (default: 0.25)." in docstring
    assert (seen["flag"], seen["get_params"], seen["loaded"], seen["options"]) == (0.5, 0.75, 0.75, 0.75)
    assert json.loads((tmp_path / "run" / "finetune.json").read_text())["hyperness"] == 0.75
    assert json.loads((tmp_path / "run" / "estimator.json").read_text())["parameters"]["hyperness"] == 0.75
    assert seen["refused"] == "hyperness=2 is not valid; give at least 0 and below 1."
    assert seen["misspelt"] == "TextClassifier() has no argument 'hypernes'; did you mean hyperness?"


def test_the_package_itself_has_no_such_option():
    source = "import minibert; minibert.TextClassifier('model', hyperness=0.5)"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, cwd=PACKAGE.parent)
    assert done.stderr.splitlines()[-1].startswith("TypeError: TextClassifier() has no argument 'hyperness'")
