"""Runs that learn numbers: far from zero, resumed, continued, and with their errors in every report."""

import json

import numpy as np
import pytest
from small_tasks import report_in, reviews, small_options, write_model, write_table

import minibert
from minibert import hub
from minibert.finetuning import running, whole_model
from minibert.finetuning.models import Finetuned
from minibert.finetuning.run import classify, evaluate, finetune, predict, predicted_text
from minibert.reports.results import measured_text
from minibert.tasks import registry

BAD, GOOD = 150_000.0, 450_000.0


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model"))


def write_prices(folder, low=BAD, high=GOOD):
    """Numbers far from zero, which a good or a bad word tells."""
    for split, count, seed in (("train", 120, 1), ("dev", 40, 2)):
        rows = [(text, low if label == "0" else high) for text, label in reviews(count, seed)]
        write_table(folder / f"{split}.tsv", ("text", "label"), rows)
    return folder


@pytest.fixture(scope="module")
def run(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("prices")
    options = small_options(model, write_prices(folder), "regress", epochs=8, dropout=0.0)
    finetune(options, folder / "run", show=False)
    return folder / "run"


def asked(folder, text="the film is charming"):
    return classify(Finetuned.from_pretrained(folder, "numpy"), [text])[0]["value"]


@pytest.mark.thorough
@pytest.mark.parametrize(("low", "high"), [(BAD, GOOD), (-2030.0, -1990.0), (1e-6, 3e-6), (0.0, 1.0)])
def test_numbers_of_any_size_are_learnt(model, tmp_path, low, high):
    options = small_options(model, write_prices(tmp_path, low, high), "regress", epochs=8, dropout=0.0)
    report = finetune(options, tmp_path / "run", show=False)
    assert report["scores"]["r2"] > 0.7
    assert asked(tmp_path / "run") == pytest.approx(high, abs=0.4 * (high - low))
    assert asked(tmp_path / "run", "the film is dull") == pytest.approx(low, abs=0.4 * (high - low))


@pytest.mark.thorough
def test_reports_hold_errors_beside_those_of_the_mean(run):
    report = report_in(run)
    predictions = [one["value"] for one in json.loads((run / "dev_predictions.json").read_text())]
    gold = np.array([BAD if label == "0" else GOOD for _, label in reviews(40, 2)])
    assert report["scores"]["mae"] == pytest.approx(np.abs(gold - predictions).mean())
    assert report["scores"]["rmse"] == pytest.approx(np.sqrt(np.square(gold - predictions).mean()))
    constant = report["constant"]
    assert constant["value"] == pytest.approx(gold.mean()) and constant["scores"]["r2"] == pytest.approx(0)
    assert constant["scores"]["rmse"] == pytest.approx(gold.std()) and constant["is_beaten"]
    text, page = measured_text(report), (run / "report.html").read_text()
    assert f"always {gold.mean():.6g}" in text and "Not better" not in text
    assert f"always {gold.mean():.6g}" in page and f"{constant['scores']['mae']:,.0f}" in page
    assert evaluate(run)["constant"] == constant


@pytest.mark.thorough
def test_predictions_of_the_folder_are_those_of_the_run(run):
    predictions = [one["value"] for one in json.loads((run / "dev_predictions.json").read_text())]
    found = classify(run, [text for text, _ in reviews(40, 2)], engine="numpy")
    assert [one["value"] for one in found] == pytest.approx(predictions, rel=1e-5)


@pytest.mark.thorough
def test_a_model_that_is_no_better_than_the_mean_says_so(model, tmp_path):
    write_prices(tmp_path)
    options = small_options(model, tmp_path, "regress", epochs=1, learning_rates=(1e-9,))
    report = finetune(options, tmp_path / "run", show=False)
    assert not report["constant"]["is_beaten"]
    remark = "Not better than always answering the mean of these examples"
    assert remark in measured_text(report) and remark in (tmp_path / "run" / "report.html").read_text()
    written = predict(tmp_path / "run", tmp_path / "dev.tsv", "dev", tmp_path / "out")
    assert remark in predicted_text(written) and "rmse" in predicted_text(written)


@pytest.mark.thorough
def test_a_continued_run_begins_with_the_same_numbers(run, tmp_path):
    write_prices(tmp_path, 7 + 2 * BAD, 7 + 2 * GOOD)  # numbers with another mean and scale
    options = small_options(run, tmp_path, "regress", epochs=1, learning_rates=(1e-9,))
    assert finetune(options, tmp_path / "run", show=False)["fresh"] == []
    assert asked(tmp_path / "run") == pytest.approx(asked(run), rel=1e-5)


@pytest.mark.thorough
def test_an_interrupted_run_resumes_to_the_same_bytes(run, tmp_path, monkeypatch, model):
    options = small_options(model, run.parent, "regress", epochs=8, dropout=0.0, checkpoint_steps=1, keep=3)
    _stop_after(monkeypatch, 13)
    with pytest.raises(KeyboardInterrupt):
        finetune(options, tmp_path / "half", show=False)
    params = hub.load(f"{tmp_path / 'half'}@13")[1]  # a checkpoint on the way predicts numbers as well
    assert params["head.bias"] == pytest.approx(300_000, rel=0.2)
    monkeypatch.undo()
    finetune(options, tmp_path / "half", resume=True, show=False)
    names = ("model.safetensors", "dev_predictions.json")
    assert all((tmp_path / "half" / name).read_bytes() == (run / name).read_bytes() for name in names)


@pytest.mark.thorough
def test_a_run_begun_before_targets_were_scaled_ends_without(model, tmp_path, monkeypatch):
    # What an earlier version began: its plan has no targets.
    data = write_prices(tmp_path, 0.0, 5.0)
    options = small_options(model, data, "regress", epochs=3, checkpoint_steps=1, keep=3)
    monkeypatch.setattr(whole_model, "TARGETS", "of another name")
    finetune(options, tmp_path / "whole", show=False)
    _stop_after(monkeypatch, 10)
    with pytest.raises(KeyboardInterrupt):
        finetune(options, tmp_path / "half", show=False)
    monkeypatch.undo()
    finetune(options, tmp_path / "half", resume=True, show=False)
    name = "model.safetensors"
    assert (tmp_path / "half" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_official_scores_are_learnt_as_they_are():
    names = ("stsb", "sick-score", "regress", "similarity", "classify")
    assert [name for name in names if registry.create(name).standardise] == ["regress"]


def test_an_estimator_warns_where_the_mean_is_as_good(model):
    texts, labels = zip(*reviews(60, 1), strict=True)
    regressor = minibert.TextRegressor(model, epochs=1, learning_rates=1e-9, engine="numpy")
    with pytest.warns(UserWarning, match="Not better than always answering the mean"):
        regressor.fit(texts, [BAD + 3e5 * int(label) for label in labels])
    assert regressor.predict(["the film is warm"]) == pytest.approx(300_000, rel=0.3)


def _stop_after(monkeypatch, step):
    """Interrupt the training when so many steps are done and saved."""
    rate = running.Run.rate

    def stopping(self, number):
        if number == step:
            raise KeyboardInterrupt
        return rate(self, number)

    monkeypatch.setattr(running.Run, "rate", stopping)
