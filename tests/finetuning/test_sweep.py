"""Sweeps of fine-tuning, and what finished models predict: alone, averaged, as files for servers."""

import html
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from small_tasks import (
    WORDS,
    report_in,
    reviews,
    small_options,
    write_sst2,
    write_table,
)

from minibert.base.errors import InputError, RunError
from minibert.finetuning import models, predicting, running, sweep
from minibert.finetuning.models import Finetuned
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.run import classify, evaluate, finetune, predict
from minibert.reports.results import report_text, settings, sweep_table, sweep_text
from minibert.tasks import registry


@pytest.fixture(scope="module")
def other_run(model, sst2, tmp_path_factory):
    """The same with another seed, and shorter."""
    out = tmp_path_factory.mktemp("runs") / "other"
    finetune(small_options(model, sst2, seed=7, epochs=1), out, show=False)
    return out


# sweeps


@pytest.fixture(scope="module")
def swept(model, sst2, tmp_path_factory):
    """A sweep of two rates and two seeds that was cut off in its third run and gone on with."""
    out = tmp_path_factory.mktemp("runs") / "sweep"
    options = small_options(model, sst2, max_steps=12, learning_rates=(5e-3, 1e-6), restarts=2)
    done = []

    def run_once(one, began):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(one.folder.name)
        return running.run_once(one, began)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "run_once", run_once)
        with pytest.raises(KeyboardInterrupt):
            finetune(options, out, show=False)
    before = {name: (out / name / "report.json").stat().st_mtime_ns for name in done}
    report = finetune(options, out, resume=True, show=False)
    after = {name: (out / name / "report.json").stat().st_mtime_ns for name in done}
    assert before == after  # finished runs were not run again
    return out, report


@pytest.mark.thorough
def test_a_sweep_goes_on_with_the_runs_that_are_missing(swept):
    out, report = swept
    assert [Path(one["folder"]).name for one in report["runs"]] == [
        "lr0.005-seed0",
        "lr0.005-seed1",
        "lr1e-06-seed0",
        "lr1e-06-seed1",
    ]
    assert report_in(out) == report


def test_a_sweep_does_not_go_on_with_other_data_than_its_finished_runs_had(model, tmp_path, monkeypatch):
    data = write_sst2(tmp_path / "data", 16, 8)
    options = small_options(model, data, max_steps=1, learning_rates=(5e-3, 1e-3))
    done = []

    def run_once(one, began):
        if done:
            raise KeyboardInterrupt
        done.append(one.folder)
        return running.run_once(one, began)

    monkeypatch.setattr(sweep, "run_once", run_once)
    with pytest.raises(KeyboardInterrupt):
        finetune(options, tmp_path / "out", show=False)
    train = data / "train.tsv"
    before = train.read_text()
    train.write_text(before + "one more film\t1\n")
    monkeypatch.setattr(sweep, "run_once", running.run_once)
    with pytest.raises(InputError, match="is not what the run in '.*lr0.005-seed0' began with"):
        finetune(options, tmp_path / "out", resume=True, show=False)
    train.write_text(before)
    report = finetune(options, tmp_path / "out", resume=True, show=False)
    assert len(report["runs"]) == 2


def test_every_run_of_a_sweep_has_a_folder_of_its_own(model, sst2):
    options = small_options(model, sst2, learning_rates=(5e-5, 5.0000001e-5, 0.001), restarts=2)
    names = list(options.runs())
    assert names[::2] == ["lr5e-05-seed0", "lr5.0000001e-05-seed0", "lr0.001-seed0"]
    assert len(set(names)) == 6


def test_the_best_run_of_a_sweep_stands_at_its_top(swept):
    out, report = swept
    best = max(report["runs"], key=lambda one: one["scores"]["accuracy"])
    assert report["scores"] == best["scores"] and report["learning_rate"] == best["learning_rate"] == 5e-3
    names = ("model.safetensors", "config.json", "task.json", "vocab.txt", "dev_predictions.json")
    for name in names:
        assert (out / name).read_bytes() == (Path(best["folder"]) / name).read_bytes()
    assert evaluate([out], engine="numpy")["scores"] == report["scores"]
    table = sweep_table(report["runs"], "accuracy")
    assert table.count("\n") == 4 and table.count("*") == 1
    assert sweep_table(report["runs"], "accuracy") in report_text(report)


def test_a_finished_sweep_is_not_run_again(swept, model, sst2, monkeypatch):
    out, report = swept
    monkeypatch.setattr(sweep, "run_once", None)
    options = FinetuneOptions.load(out / "finetune.json")
    assert finetune(options, out, resume=True, show=False) == report


def test_a_sweep_that_was_moved_says_where_it_is_now(swept, tmp_path, monkeypatch):
    examined = []
    monkeypatch.setattr(running, "examine", lambda record: examined.append(record) or [])
    out = shutil.copytree(swept[0], tmp_path / "moved")
    options = FinetuneOptions.load(out / "finetune.json")
    for whole in (True, False):  # as it is, and with its runs alone
        report = finetune(options, out, resume=True, show=False)
        assert (report["folder"], report["page"]) == (str(out), str(out / "report.html"))
        assert all(Path(one["folder"]).parent == out for one in report["runs"])
        if whole:
            (out / "report.json").unlink()
    [best] = examined  # for the page that was written anew
    assert best.folder.parent == out and best.options.learning_rates == (5e-3,)


def test_a_run_that_diverges_does_not_end_the_sweep(model, sst2, tmp_path, monkeypatch, capsys):
    options = small_options(model, sst2, max_steps=4, learning_rates=(1e300, 5e-3))
    report = finetune(options, tmp_path, show=True)
    assert "Given up: The " in capsys.readouterr().err
    failed, fine = report["runs"]
    assert failed["learning_rate"] == 1e300 and "at learning rate" in failed["failed"]
    assert report["scores"] == fine["scores"] and report["learning_rate"] == 5e-3
    assert json.loads((tmp_path / "lr1e+300-seed0" / "failed.json").read_text())["failed"] == failed["failed"]
    assert not (tmp_path / "lr1e+300-seed0" / "best").exists()
    rows = [line.split() for line in sweep_table(report["runs"], "accuracy").splitlines()]
    assert rows[1] == ["1e+300", "0", "failed", "-", "lr1e+300-seed0"] and rows[2][3] == "*"
    (tmp_path / "report.json").unlink()
    monkeypatch.setattr(sweep, "run_once", None)  # neither is run again
    assert finetune(options, tmp_path, resume=True, show=False)["runs"] == report["runs"]


@pytest.mark.slow
def test_a_grid_says_of_each_setting_its_mean_and_deviation(model, sst2, tmp_path):
    given = {"batch_size": (8, 16), "learning_rates": (5e-3, 1e-6), "epochs": (0.5, 1), "restarts": 2}
    options = small_options(model, sst2, **given)
    report = finetune(options, tmp_path, show=False)
    assert len(report["runs"]) == 16 and len(report["settings"]) == 8
    for setting in report["settings"]:
        keys = ("learning_rate", "batch_size", "epochs")
        scores = [
            one["scores"]["accuracy"]
            for one in report["runs"]
            if all(one[key] == setting[key] for key in keys)
        ]
        assert setting["runs"] == len(scores) == 2
        assert setting["mean"] == pytest.approx(np.mean(scores))
        assert setting["sd"] == pytest.approx(np.std(scores, ddof=1))
    best = max(report["runs"], key=lambda one: one["scores"]["accuracy"])
    assert {key: report[key] for key in ("batch_size", "epochs")} == {
        key: best[key] for key in ("batch_size", "epochs")
    }
    for one in report["runs"]:  # the steps that its setting makes of 160 examples
        steps = round(one["epochs"] * 160 / one["batch_size"])
        assert report_in(Path(one["folder"]))["steps"] == steps
        assert one["folder"].endswith(f"-batch{one['batch_size']}-epochs{one['epochs']:g}-seed{one['seed']}")
    text = report_text(report)
    rows = [line.split() for line in text.splitlines()]
    header = rows.index("learning rate batch size epochs runs accuracy, mean +- s.d.".split())
    first = report["settings"][0]
    said = f"0.005 8 0.5 2 {100 * first['mean']:.2f} +- {100 * first['sd']:.2f}"
    assert rows[header + 1] == said.split()
    page = (tmp_path / "report.html").read_text()
    assert page.count("<h2>The sweep</h2>") == 1 and sweep_text(report) in html.unescape(page)
    of_best, (before, sweep_block, _) = (
        (Path(best["folder"]) / "report.html").read_text(), page.partition("<h2>The sweep</h2>"),
    )  # fmt: skip
    assert sweep_block and sweep_block not in of_best and of_best.startswith(before)  # nothing else differs
    (tmp_path / "report.json").unlink()
    again = finetune(options, tmp_path, resume=True, show=False)
    assert {**again, "seconds": 0} == {**report, "seconds": 0}
    assert (tmp_path / "report.html").read_text() == page


def test_mean_and_deviation_are_those_of_finished_runs():
    def run(rate, seed, score):
        found = {"learning_rate": rate, "seed": seed, "folder": f"f{seed}", "best_epoch": 1.0}
        return found | ({"failed": "it"} if score is None else {"scores": {"accuracy": score}})

    runs = [run(1e-5, 0, 0.5), run(1e-5, 1, 0.7), run(1e-5, 2, None), run(2e-5, 0, 0.25), run(3e-5, 0, None)]
    assert settings(runs, "accuracy") == [
        {"learning_rate": 1e-5, "runs": 2, "mean": pytest.approx(0.6), "sd": pytest.approx(0.02**0.5)},
        {"learning_rate": 2e-5, "runs": 1, "mean": 0.25},
    ]
    assert sweep_text({"runs": runs, "metric": "accuracy"}) == (
        "learning rate  seed  accuracy  best epoch  folder\n"
        "1e-05          0     50.00     1           f0\n"
        "1e-05          1     70.00 *   1           f1\n"
        "1e-05          2     failed    -           f2\n"
        "2e-05          0     25.00     1           f0\n"
        "3e-05          0     failed    -           f0\n"
        "\n"
        "learning rate  runs  accuracy, mean +- s.d.\n"
        "1e-05          2     60.00 +- 14.14\n"
        "2e-05          1     25.00"
    )


def test_a_sweep_of_which_every_run_diverges_has_failed(model, sst2, tmp_path):
    options = small_options(model, sst2, max_steps=4, learning_rates=(1e300, 1e301))
    for resume in (False, True):
        with pytest.raises(RunError, match=r"All 2 runs .* have diverged; try lower .* The first: The "):
            finetune(options, tmp_path, resume=resume, show=False)
    assert not (tmp_path / "report.json").exists()


# predictions, ensembles


def test_an_ensemble_is_the_mean_of_its_outputs(run, other_run, sst2):
    pair = [Finetuned.from_pretrained(folder, "numpy") for folder in (run, other_run)]
    examples = pair[0].task.read(sst2, "dev")
    said = [model.outputs(model.features(examples)) for model in pair]
    mean = [np.mean(each, axis=0) for each in zip(*said, strict=True)]
    expected = pair[0].task.predict(examples, [], mean, ("0", "1"), {})
    assert list(predicting.predict_examples(pair, examples)) == expected
    singles = [list(predicting.predict_examples([model], examples)) for model in pair]
    assert expected not in singles
    report = evaluate([run, other_run], sst2, engine="numpy")
    assert report["scores"] == pair[0].task.score(examples, expected)


def test_predict_writes_the_official_file_and_every_prediction(run, tmp_path):
    out = tmp_path / "submission"
    report = predict([run], None, "test", out, engine="numpy")
    assert sorted(path.name for path in out.iterdir()) == ["SST-2.tsv", "sst2-test.jsonl"]
    assert report["scores"] is None and report["examples"] == 30
    lines = [json.loads(line) for line in (out / "sst2-test.jsonl").read_text().splitlines()]
    rows = (out / "SST-2.tsv").read_text().splitlines()
    assert rows == ["index\tprediction", *(f"{line['id']}\t{line['label']}" for line in lines)]
    right = [line["label"] == label for line, (_, label) in zip(lines, reviews(30, 3), strict=True)]
    assert np.mean(right) > 0.9


def test_predicting_in_small_chunks_changes_nothing(run, sst2, monkeypatch):
    model = Finetuned.from_pretrained(run, "numpy")
    examples = model.task.read(sst2, "dev")
    whole = list(predicting.predict_examples([model], examples))
    monkeypatch.setattr(predicting.chunks, "__defaults__", (7,))
    monkeypatch.setattr(models, "TOKEN_BUDGET", 30)
    parts = list(predicting.predict_examples([model], examples))
    for one, other in zip(whole, parts, strict=True):
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-6)


def test_the_majority_is_predicted_where_it_is_asked_for(run, tmp_path):
    predict([run], None, "test", tmp_path, majority=True, engine="numpy")
    answers = {line.split("\t")[1] for line in (tmp_path / "SST-2.tsv").read_text().splitlines()[1:]}
    labels = [label for _, label in reviews(160, 1)]
    assert answers == {max(sorted(set(labels)), key=labels.count)}


def test_only_models_of_the_same_kind_are_averaged(run, rte, tmp_path):
    out = tmp_path / "rte"
    finetune(small_options(run, rte, "rte", max_steps=1), out, show=False)
    with pytest.raises(InputError, match="differ in their task"):
        evaluate([run, out], engine="numpy")


def renamed(folder, task, target):
    """A copy of a fine-tuned model that says that it is of another task."""
    shutil.copytree(folder, target)
    stored = json.loads((target / "task.json").read_text())
    (target / "task.json").write_text(json.dumps(stored | {"task": task}))
    return target


def test_equal_labels_alone_make_no_ensemble(run, tmp_path):
    cola, quora, qqp = (renamed(run, name, tmp_path / name) for name in ("cola", "quora", "qqp"))
    for other in (cola, qqp):
        with pytest.raises(InputError, match="differ in their task"):
            evaluate([run, other], engine="numpy")
    models = [Finetuned.from_pretrained(folder, "numpy") for folder in (quora, qqp)]
    predicting.check_ensemble(models)


def test_a_model_of_texts_and_one_of_pairs_make_no_ensemble(run, tmp_path):
    single, pair = (renamed(run, "classify", tmp_path / name) for name in ("single", "pair"))
    said = json.loads((pair / "task.json").read_text())
    (pair / "task.json").write_text(json.dumps(said | {"columns": {"second": "b"}}))
    models = [Finetuned.from_pretrained(folder, "numpy") for folder in (single, pair)]
    with pytest.raises(
        InputError, match="single' and '.*pair' can't be averaged.* texts, single or in pairs"
    ):
        predicting.check_ensemble(models)
    predicting.check_ensemble(models[:1] * 2)


def test_a_model_answers_other_files_that_mean_the_same_only(run, tmp_path):
    (tmp_path / "dev.tsv").write_text("".join(f"s\t1\t\tthe {word}\n" for word in WORDS))
    for task in ("cola", "rte", "stsb", "mrpc"):
        with pytest.raises(InputError, match=f"was fine-tuned for sst2, which has other answers than {task}"):
            evaluate([run], tmp_path, task=task, engine="numpy")
    own = write_table(tmp_path / "own.tsv", ("text", "label"), reviews(12, 5))
    assert evaluate([run], own, task="classify", engine="numpy")["examples"] == 12
    qqp = renamed(run, "qqp", tmp_path / "qqp")
    assert Finetuned.from_pretrained(qqp, "numpy", task=registry.create("quora")).task.name == "quora"


def test_a_model_of_pairs_reads_both_texts_of_a_table(model, rte, tmp_path):
    def said(folder, data, task=None):
        said = tmp_path / f"said{len(list(tmp_path.glob('said*')))}"
        files = predict([folder], data, "dev", said, task=task, engine="numpy")["files"]
        return [json.loads(line)["probabilities"] for line in Path(files[-1]).read_text().splitlines()]

    run, own = tmp_path / "run", tmp_path / "own"
    finetune(small_options(model, rte, "rte", max_steps=1), run, show=False)
    rows = [(one.first, one.second, one.label) for one in registry.create("rte").read(rte, "dev")]
    table = write_table(tmp_path / "table.tsv", ("text", "second", "label"), rows)
    assert said(run, table, "classify") == said(run, rte)
    named = write_table(tmp_path / "named.tsv", ("premise", "claim", "label"), rows)
    columns = {"text": "premise", "second": "claim"}
    finetune(
        small_options(model, named, "classify", columns=columns, split_dev=0.5, max_steps=1), own, show=False
    )
    assert said(own, named, "classify") == said(own, named)
    single = write_table(tmp_path / "single.tsv", ("text", "label"), [(row[0], row[2]) for row in rows])
    with pytest.raises(InputError, match="has no column 'second'"):
        said(run, single, "classify")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([("  ", None)], "A text is empty"),
        ([("the film", "")], "A text is empty"),
        ([("the film", "it was warm")], "was fine-tuned for single texts; leave the second one out"),
        (
            ("the film", "it was warm"),
            r"may be a pair or two texts; give \[\(first, second\)\] for the pair, or",
        ),
        (["the film", ("a", "b", "c")], r"texts.1.=.* is neither a text nor a pair; give strings"),
        ([7], r"texts.0.=7 is neither a text nor a pair; give strings"),
    ],
)
def test_classify_says_what_it_was_given_wrongly(run, texts, message):
    with pytest.raises(InputError, match=message):
        classify(run, texts, engine="numpy")
