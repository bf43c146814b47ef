"""The best epoch of a run: whatever happens to its files before they are delivered is noticed."""

import os
import shutil
from pathlib import Path

import pytest
import small_entities
from small_tasks import report_in, small_options

from minibert.base.errors import InputError
from minibert.finetuning import running, whole_model
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.run import finetune
from minibert.hub.checkpoint import checkpoints
from minibert.reports import results


class Cut(Exception):
    """In place of a kill."""


def cut(*_):
    raise Cut


@pytest.fixture(scope="module")
def entities(tmp_path_factory):
    """Options of a feature-based run."""
    folder = tmp_path_factory.mktemp("entities")
    data, model = small_entities.write_data(folder / "data"), small_entities.write_model(folder / "model")
    given = {"epochs": 4.0, "learning_rates": (2e-2,), "batch_size": 4, "engine": "numpy", "max_length": 16}
    return FinetuneOptions("ner", data, model, feature_based="last", width=12, **given)


@pytest.fixture(scope="module")
def before_delivery(model, sst2, entities, tmp_path_factory):
    """Of either approach, options and a run that was cut off after its last step, to be copied."""
    folder = tmp_path_factory.mktemp("cut")
    found = {}
    for name, options in (
        ("whole", small_options(model, sst2, epochs=4)),
        ("feature-based", entities),
    ):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Cut):
            patch.setattr(running, "best_epoch", cut)
            finetune(options, folder / name, show=False)
        found[name] = options, folder / name
    return found


def flip(path):
    """Change one bit in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def halve(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def names_in(out):
    """All files of a run but the events, of which each sitting writes its own."""
    return {path for path in out.rglob("*") if "tensorboard" not in path.parts}


FILES = [
    ("whole", "model.safetensors"),
    ("whole", "config.json"),
    ("whole", "dev.json"),
    ("feature-based", "tagger.safetensors"),
    ("feature-based", "dev.json"),
]


@pytest.mark.representatives(approach="whole", name="model.safetensors", damage=flip)
@pytest.mark.parametrize("damage", [flip, halve, os.unlink], ids=["flipped", "cut", "missing"])
@pytest.mark.parametrize(("approach", "name"), FILES)
def test_a_damaged_best_epoch_is_not_delivered_and_nothing_is_deleted(
    before_delivery, tmp_path, capsys, approach, name, damage
):
    options, run = before_delivery[approach]
    out = shutil.copytree(run, tmp_path / "run")
    damage(out / "best" / name)
    there = names_in(out)
    with pytest.raises(
        InputError, match=rf"best/{name} .*; put an intact copy there and continue with resume=True"
    ):
        finetune(options, out, resume=True, show=False)
    assert names_in(out) == there and "goes on" not in capsys.readouterr().err  # no epoch is left
    shutil.copy(run / "best" / name, out / "best")  # as the message has it
    assert finetune(options, out, resume=True, show=False)["steps"] and not (out / "best").exists()


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_what_is_damaged_between_delivery_and_report_is_noticed(before_delivery, tmp_path, monkeypatch, name):
    options, run = before_delivery["whole"]
    out = shutil.copytree(run, tmp_path / "run")
    with monkeypatch.context() as patch, pytest.raises(Cut):
        patch.setattr(running, "save_report", cut)
        finetune(options, out, resume=True, show=False)
    assert not (out / "best" / name).exists()
    flip(out / name)
    with pytest.raises(InputError, match=f"{out / name} is damaged"):
        finetune(options, out, resume=True, show=False)
    assert checkpoints(out / "checkpoints")


# in the middle of a run


def scores(monkeypatch, *values):
    """Let the epochs have these figures, and whatever else is scored 0."""
    said = iter(values)
    monkeypatch.setattr("minibert.tasks.sentences.Sentences.score", lambda *_: {"accuracy": next(said, 0.0)})


def stop_at(monkeypatch, step, done):
    """Cut a run off at a step: before its epoch is measured, while the best one is written, or after it."""
    real_evaluate, real_save = running.Run.evaluate, whole_model.hub.save_hf

    def evaluate(self, state):
        if state.step == step and done == "nothing":
            raise Cut
        found = real_evaluate(self, state)
        if state.step == step:
            raise Cut
        return found

    def save(folder, *rest):
        real_save(folder, *rest)
        if done == "weights" and f'"step": {step},' in (Path(folder) / "dev.json").read_text():
            raise Cut

    monkeypatch.setattr(running.Run, "evaluate", evaluate)
    monkeypatch.setattr(whole_model.hub, "save_hf", save)


@pytest.mark.thorough
def test_a_run_cut_off_around_its_best_epoch_ends_with_the_same_bytes(model, sst2, tmp_path, monkeypatch):
    options, figures = small_options(model, sst2, epochs=3, checkpoint_steps=4), (0.5, 0.9, 0.7)
    with monkeypatch.context() as patch:
        scores(patch, *figures)
        finetune(options, tmp_path / "whole", show=False)
    for done in ("nothing", "weights", "all"):
        out = tmp_path / done
        with monkeypatch.context() as patch, pytest.raises(Cut):
            scores(patch, *figures)
            stop_at(patch, 20, done)
            finetune(options, out, show=False)
        with monkeypatch.context() as patch:
            scores(patch, *figures[1:])
            assert finetune(options, out, resume=True, show=False)["best_step"] == 20
        for name in ("model.safetensors", "config.json", "dev_predictions.json", "task.json"):
            assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.thorough
def test_an_epoch_replaced_after_the_checkpoint_counts_as_sound(model, sst2, tmp_path, monkeypatch, capsys):
    """Another machine may round otherwise: there the epoch that took the best one's place is not better."""
    options, out = small_options(model, sst2, epochs=4, checkpoint_steps=4), tmp_path / "run"
    with monkeypatch.context() as patch, pytest.raises(Cut):
        scores(patch, 0.8, 0.9)
        stop_at(patch, 20, "all")
        finetune(options, out, show=False)
    scores(monkeypatch, 0.79, 0.7, 0.6)
    report = finetune(options, out, resume=True, show=False)
    assert (report["best_step"], report["scores"]) == (20, {"accuracy": 0.79})
    assert "damaged" not in capsys.readouterr().err


@pytest.mark.thorough
@pytest.mark.parametrize("later", [0.95, 0.7])
def test_a_better_epoch_saves_a_run_whose_best_is_damaged(model, sst2, tmp_path, monkeypatch, capsys, later):
    options, out = small_options(model, sst2, epochs=3, checkpoint_steps=4), tmp_path / "run"
    with monkeypatch.context() as patch, pytest.raises(Cut):
        scores(patch, 0.9)
        stop_at(patch, 20, "nothing")
        finetune(options, out, show=False)
    flip(out / "best" / "model.safetensors")
    scores(monkeypatch, 0.8, later)
    if later > 0.9:
        assert finetune(options, out, resume=True, show=False)["best_step"] == 30
    else:
        with pytest.raises(InputError, match="model.safetensors is damaged"):
            finetune(options, out, resume=True, show=False)
        assert checkpoints(out / "checkpoints") and (out / "best" / "dev.json").exists()
    assert capsys.readouterr().err.count("The run goes on, since a later epoch may be better.") == 1


# sweeps


@pytest.mark.thorough
@pytest.mark.parametrize("damage", [flip, os.unlink], ids=["flipped", "missing"])
def test_a_sweep_does_not_deliver_a_finished_run_that_was_damaged(model, sst2, tmp_path, monkeypatch, damage):
    options = small_options(model, sst2, epochs=1, restarts=2)
    out = tmp_path / "sweep"
    with monkeypatch.context() as patch, pytest.raises(Cut):
        patch.setattr("minibert.finetuning.sweep._link", cut)
        finetune(options, out, show=False)
    best = max(
        (results.load_report(path) for path in sorted(out.glob("lr*"))), key=lambda r: r["scores"]["accuracy"]
    )
    folder = Path(best["folder"])
    sound = (folder / "model.safetensors").read_bytes()
    damage(folder / "model.safetensors")
    with pytest.raises(
        InputError, match=f"model.safetensors is .*; remove '{folder}' and continue with resume=True"
    ):
        finetune(options, out, resume=True, show=False)
    assert not (out / "model.safetensors").exists()
    shutil.rmtree(folder)  # as the message has it
    assert finetune(options, out, resume=True, show=False)["scores"] == best["scores"]
    assert (out / "model.safetensors").read_bytes() == sound and report_in(out)["runs"]
