"""Runs that are asked from another folder than they were started in, or that have been moved."""

import dataclasses

import pytest
from small_tasks import reviews, write_model, write_table

from minibert.base.errors import InputError
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.run import evaluate, finetune

QUICK = dict(engine="numpy", batch_size=16, learning_rates=(5e-3,), max_steps=2)


@pytest.fixture
def start(tmp_path, monkeypatch):
    """A folder that runs are started in, with a model and data."""
    folder = tmp_path / "start"
    write_model(folder / "model")
    for split in ("train", "dev"):
        write_table(folder / "own" / f"{split}.tsv", ("text", "label"), reviews(40, 4))
    monkeypatch.chdir(folder)
    return folder


def test_a_run_started_with_relative_folders_is_measured_from_anywhere(start, tmp_path, monkeypatch):
    options = FinetuneOptions("classify", "own", "model", **QUICK)
    report = finetune(options, "run", show=False)
    monkeypatch.chdir(tmp_path)
    assert evaluate(["start/run"], engine="numpy")["scores"] == report["scores"]
    assert FinetuneOptions.load("start/run/finetune.json").data == str(start / "own")
    (start / "own").rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="own', are not there; give their present folder as `data`"):
        evaluate(["start/run"], engine="numpy")
    assert evaluate(["start/run"], "elsewhere", engine="numpy")["scores"] == report["scores"]


@pytest.mark.thorough
def test_a_sweep_that_was_moved_takes_its_best_run_from_where_it_is(start, tmp_path):
    options = FinetuneOptions("classify", "own", "model", **QUICK)
    options = dataclasses.replace(options, restarts=2)
    report = finetune(options, "sweep", show=False)
    for path in start.joinpath("sweep").iterdir():
        if path.is_file() and path.name != "finetune.json":
            path.unlink()
    moved = start.joinpath("sweep").rename(tmp_path / "moved")
    again = finetune(options, moved, resume=True, show=False)
    assert again["scores"] == report["scores"]
    assert again["page"] == str(moved / "report.html")
    assert (moved / "model.safetensors").exists() and (moved / "report.html").exists()
