"""`minibert.export`, the Python side of `minibert export`, whose files tests/cli/test_export.py reads."""

import json

import numpy as np
import pytest
from small_tasks import write_model

import minibert
from minibert import cli
from minibert.base.errors import InputError


@pytest.fixture
def model(tmp_path):
    return write_model(tmp_path / "model")


def test_it_writes_and_returns_what_the_command_does(model, tmp_path, capsys):
    report = minibert.export(model, out=tmp_path / "a" / "shared", dtype="float16")
    words = ["export", "--model", str(model), "--out", str(tmp_path / "b" / "shared"), "--dtype", "float16"]
    assert cli.main([*words, "--json"]) == 0
    assert report == json.loads(capsys.readouterr().out)
    for name in report["written"]:
        ours, theirs = (tmp_path / parent / "shared" / name for parent in "ab")
        assert ours.read_bytes() == theirs.read_bytes()


def test_without_a_name_it_is_the_model_in_the_package(tmp_path):
    report = minibert.export(out=tmp_path / "english")
    bundled, exported = minibert.load("english"), minibert.load(tmp_path / "english")
    assert report["layers"] == bundled.config.L
    np.testing.assert_array_equal(exported.params.flat, bundled.params.flat)


def test_a_home_folder_is_expanded(model, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    minibert.export("~/model", out="~/shared")
    assert (tmp_path / "shared" / "README.md").is_file()


@pytest.mark.parametrize(
    "given", [{"sentence_transformers": "max"}, {"dtype": "int8"}, {"out": ""}, {"out": "model"}]
)
def test_what_is_not_possible_is_named_and_leaves_nothing(model, tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError) as raised:
        minibert.export(model, **{"out": "shared"} | given)
    (name,) = given
    assert name in raised.value.arguments
    assert sorted(tmp_path.rglob("*")) == before
