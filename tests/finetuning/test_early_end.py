"""A run that ends early, by patience or because a callback asks for it, is finished like any other."""

import pytest
from small_corpus import write_corpus
from small_tasks import reviews, small_options, write_model, write_sst2

import minibert
from minibert.finetuning import running
from minibert.finetuning.run import finetune

STUCK = {"epochs": 9, "learning_rates": (1e-9,), "patience": 2}  # no epoch is better than the first


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_sst2(tmp_path_factory.mktemp("data") / "SST-2")


def recorded_steps(folder):
    return [line["step"] for line in minibert.Run.open(folder).metrics() if "loss" in line]


@pytest.fixture(scope="module")
def stuck(model, data, tmp_path_factory):
    """A run that patience has ended, and its report."""
    folder = tmp_path_factory.mktemp("runs") / "stuck"
    return folder, finetune(small_options(model, data, **STUCK), folder, show=False)


def test_patience_ends_a_run_after_epochs_without_a_better_one(stuck):
    folder, report = stuck
    epoch_steps = report["best_step"]
    assert report["best_epoch"] == 1 and report["steps"] == 3 * epoch_steps
    assert recorded_steps(folder) == list(range(1, 3 * epoch_steps + 1))
    assert minibert.load(folder).predict(["a fine film"]).shape == (1,)


@pytest.mark.thorough
def test_a_run_goes_on_while_epochs_are_better_or_patience_is_not_asked_for(model, data, stuck, tmp_path):
    epoch_steps = stuck[1]["best_step"]
    patient = small_options(model, data, **STUCK | {"patience": None, "epochs": 4})
    assert finetune(patient, tmp_path / "patient", show=False)["steps"] == 4 * epoch_steps


@pytest.mark.thorough
def test_a_run_that_patience_ended_is_resumed_without_another_step(model, data, stuck, tmp_path, monkeypatch):
    folder, report = stuck
    options = small_options(model, data, **STUCK)
    with monkeypatch.context() as patch:
        patch.setattr(running, "report_of", lambda *_: 1 / 0)  # cut off before it is finished
        with pytest.raises(ZeroDivisionError):
            finetune(options, tmp_path / "run", show=False)
    again = finetune(options, tmp_path / "run", resume=True, show=False)
    assert (again["steps"], again["scores"]) == (report["steps"], report["scores"])
    for name in ("model.safetensors", "vocab.txt"):
        assert (tmp_path / "run" / name).read_bytes() == (folder / name).read_bytes()


def stop_at(last):
    """Return a callback that ends the run with a step."""

    def on_log(step, values):
        if step == last and "train/loss" in values:
            raise minibert.StopTraining

    return on_log


def test_a_callback_ends_fine_tuning_which_measures_and_finishes(model, data, tmp_path):
    folder = tmp_path / "run"
    report = finetune(small_options(model, data, epochs=3), folder, show=False, on_log=stop_at(2))
    assert report["steps"] == 2 and report["best_step"] == 2
    assert recorded_steps(folder) == [1, 2]
    texts, labels = zip(*reviews(60, 1), strict=True)
    classifier = minibert.TextClassifier(model, engine="numpy", on_log=stop_at(1)).fit(texts, labels)
    assert classifier.report_["steps"] == 1 and classifier.predict(texts[:2]).shape == (2,)


def test_a_callback_ends_pretraining_and_resume_goes_on(tmp_path):
    corpus = str(write_corpus(tmp_path / "animals.txt"))
    given = dict(
        size="1-8-2", vocab_size=60, seq_length="16", batch_size=2, steps=6, engine="numpy", threads=1,
        max_positions=16, show=False,
    )  # fmt: skip
    run = minibert.pretrain(corpus, out=tmp_path / "short", on_log=stop_at(3), **given)
    assert run.report["steps"] == 3 and run.report["held_out"]["loss"] > 0
    assert [line["step"] for line in run.metrics() if "mlm_loss" in line] == [1, 2, 3]
    whole = minibert.pretrain(corpus, out=tmp_path / "whole", **given)
    longer = minibert.pretrain(corpus, out=tmp_path / "short", resume=True, **given)
    assert longer.report["steps"] == 6
    weights = [(folder / "model.safetensors").read_bytes() for folder in (whole.folder, longer.folder)]
    assert weights[0] == weights[1]
