"""The core by itself: copied alone beside NumPy it learns, proves its gradients, and is read by others."""

import math
import os
import re
import runpy
import shutil
import subprocess
import sys

import numpy as np
import pytest
from paths import PACKAGE
from small_corpus import write_corpus

import minibert
from minibert.core import __main__ as road, wordpiece
from minibert.core.gradcheck import __main__ as sheet
from minibert.core.gradcheck.cases import SIZES
from minibert.core.ops import Ops
from minibert.core.params import FlatParameters


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A package of nothing but the core, and a text to learn from."""
    folder = tmp_path_factory.mktemp("alone")
    (folder / "minibert").mkdir()
    (folder / "minibert" / "__init__.py").touch()
    skipped = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE / "core", folder / "minibert" / "core", ignore=skipped)
    write_corpus(folder / "text.txt", documents=80)
    return folder


def run(alone, *arguments):
    """Run a module of the package that is alone, where nothing else of minibert can be found."""
    guard = "import sys; sys.meta_path = [f for f in sys.meta_path if 'editable' not in repr(f)]\n"
    code = guard + "import runpy; sys.argv = sys.argv[1:]; runpy.run_module(sys.argv[0], run_name='__main__')"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(
        command, cwd=alone, env=environment | {"PYTHONPATH": str(alone)}, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def trained(alone):
    done = run(alone, "minibert.core", "text.txt", "--steps", 120, "--out", "model")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.thorough
def test_road_learns_more_than_frequencies(trained):
    assert "120 steps" in trained
    gain = re.search(r"(-?\d+\.\d+) under the", trained)
    assert float(gain[1]) > 0.3
    assert trained.count("[MASK]") == 3


@pytest.mark.thorough
def test_folder_of_the_road_is_a_model(alone, trained):
    model = minibert.load(alone / "model")
    guesses = model.fill_mask("The whale sleeps in the [MASK].")[0]
    assert sum(guess.probability for guess in guesses) <= 1
    assert (alone / "model" / "vocab.txt").read_text().splitlines()[:5] == [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
    ]
    assert isinstance(model.params, FlatParameters)
    assert np.isfinite(model.params.flat).all()


@pytest.mark.thorough
def test_gradients_of_the_core_are_proven_alone(alone):
    done = run(alone, "minibert.core.gradcheck")
    assert done.returncode == 0, done.stderr
    counts = re.search(r"(\d+) of (\d+) gradients", done.stdout)
    assert counts[1] == counts[2]
    assert int(counts[1]) > 80


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere.txt"], "nowhere.txt cannot be read"),
        (["text.txt", "--steps", "0"], "give a number above 0"),
        (["text.txt", "--minutes", "-1"], "give a number above 0"),
        (["few.txt"], "give a text of at least"),
        (["text.txt", "--steps", "1", "--minutes", "1"], "not allowed with argument --steps"),
        (["text.txt", "--steps", "1", "--out", "few.txt"], "few.txt cannot be written to"),
        (["text.txt", "--steps", "1", "--out", "few.txt/model"], "few.txt/model cannot be written to"),
        (["text.txt", "--steps", "1", "--out", "/proc"], "/proc cannot be written to"),  # not by root either
    ],
)
def test_road_refuses_in_one_sentence(alone, arguments, sentence):
    (alone / "few.txt").write_text("one sentence\n\nanother\n")
    done = run(alone, "minibert.core", *arguments)
    assert done.returncode != 0
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_blank_lines_divide_documents_whatever_the_line_ends(tmp_path, end):
    path = tmp_path / "text.txt"
    documents = [[["first", str(number)], ["second", "."]] for number in range(40)]
    lines = [line for number in range(40) for line in (f"First {number}", "Second.", " " * (number % 2))]
    path.write_bytes(b"\xef\xbb\xbf" + end.join(lines).encode())
    assert road.read_documents(path) == documents


def test_a_text_that_is_cut_short_is_refused_in_one_sentence(tmp_path):
    path = tmp_path / "books.txt.xz"
    path.write_bytes(road.BOOKS.read_bytes()[:1000])
    with pytest.raises(SystemExit, match="books.txt.xz cannot be read .* give a text in UTF-8"):
        road.read_documents(path)


def test_ctrl_c_before_the_training_ends_the_road_without_a_traceback(alone, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["core", str(alone / "text.txt")])
    monkeypatch.setattr(wordpiece, "learn", interrupted)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(road.__file__, run_name="__main__")
    assert ended.value.code == 130


@pytest.mark.thorough
def test_road_runs_in_this_process(alone, tmp_path, monkeypatch, capsys):
    words = ["core", alone / "text.txt", "--steps", 6, "--out", tmp_path / "m"]
    monkeypatch.setattr(sys, "argv", list(map(str, words)))
    learn_from, measure = road.sequences, road.held_out_loss
    used = {}

    def sequences(documents, *more):
        used.setdefault("learnt from", documents)  # and then those that are measured, too
        return learn_from(documents, *more)

    def held_out_loss(config, params, documents, *more):
        used["measured"] = documents
        return measure(config, params, documents, *more)

    monkeypatch.setattr(road, "sequences", sequences)
    monkeypatch.setattr(road, "held_out_loss", held_out_loss)
    road.main()
    assert "6 steps" in capsys.readouterr().out
    config = minibert.load(tmp_path / "m").config
    assert config.L == 2 and config.hidden_dropout_prob == config.attention_probs_dropout_prob == 0
    assert {name: len(documents) for name, documents in used.items()} == {"learnt from": 76, "measured": 4}
    assert len({id(document) for documents in used.values() for document in documents}) == 80


def test_every_gradient_of_the_core_is_within_its_bound(monkeypatch, capsys):
    monkeypatch.setattr(sheet, "SIZES", {"aligned": sheet.SIZES["aligned"]})
    assert sheet.main() == 0
    assert "FAIL" not in capsys.readouterr().out


def test_a_gradient_that_is_not_a_number_fails(monkeypatch, capsys):
    class NotANumber(Ops):
        def linear_backward(self, dy, saved):
            dx, dweight, dbias = super().linear_backward(dy, saved)
            return dx, math.nan * dweight, dbias

    [linear] = [case for case in sheet.cases(SIZES["ugly"]) if case.operation == "linear"]
    monkeypatch.setattr(sheet, "SIZES", {"ugly": SIZES["ugly"]})
    monkeypatch.setattr(sheet, "cases", lambda size: [linear])
    monkeypatch.setattr(sheet, "Ops", NotANumber)
    assert sheet.main() == 1
    assert "0 of 1 gradients are those of the complex step" in capsys.readouterr().out
