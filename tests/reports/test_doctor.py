"""The rules of `minibert doctor`: trainings with one fault each, healthy ones, and what it prints."""

import dataclasses
import json
import math
import shutil
from unittest import mock

import numpy as np
import pytest
from faulty_runs import FAULTS, HEALTHY, SlowingClock, tuned

from minibert import cli, hub
from minibert.base.files import is_in_use, sole_writer
from minibert.experiments.comparison import read_run
from minibert.finetuning import running
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.run import finetune
from minibert.pretraining import run as pretraining
from minibert.pretraining.options import PretrainOptions
from minibert.reports import doctor, page
from minibert.reports.doctor import Record, examine
from minibert.tokenizer import SPECIAL_TOKENS, Tokenizer
from minibert.tokenizer.report import piece_facts
from minibert.training import loop

MAKERS = {make.__name__: make for make in FAULTS}
SEED, SIZE = 0, "1-32-2"  # `slow` has other seeds and sizes


def findings_in(folder):
    read = read_run(folder)
    return examine(Record(folder, read.options, read.lines, read.report or {}))


def write_log(folder, lines):
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


@pytest.fixture(autouse=True)
def steady_clock(monkeypatch):
    """A machine on which every step takes as long, whatever else it does."""
    monkeypatch.setattr(loop, "time", SlowingClock())


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return the folder of a run, trained when it is first asked for."""
    trained = {}

    def run(make, seed=SEED, size=SIZE):
        key = make, seed, size
        if key not in trained:
            with mock.patch.object(loop, "time", SlowingClock()):
                trained[key] = make(tmp_path_factory.mktemp("run"), seed, size)
        return trained[key]

    return run


@pytest.mark.filterwarnings("ignore:At least 50% of the text is repeated")
@pytest.mark.parametrize("make", FAULTS, ids=lambda make: make.__name__)
def test_the_first_finding_names_the_planted_fault(runs, make):
    first, *_ = findings_in(runs(make))
    assert first.rule == FAULTS[make]
    assert any(letter.isdigit() for letter in first.evidence) and first.advice


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_found_in_a_healthy_run(runs, name):
    assert findings_in(runs(HEALTHY[name])) == []


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "size"), [(3, "2-64-2"), (5, "1-16-1")])
def test_other_seeds_and_sizes_are_judged_the_same(runs, seed, size):
    missed = []
    for make, rule in FAULTS.items():
        findings = findings_in(runs(make, seed, size))
        if not findings or findings[0].rule != rule:
            missed.append(make.__name__)
    assert len(missed) <= 1, missed
    assert [findings_in(runs(make, seed, size)) for make in HEALTHY.values()] == len(HEALTHY) * [[]]


# How it speaks


def test_the_command_prints_evidence_and_advice_and_exits_with_1(runs, capsys):
    folder = runs(MAKERS["few_targets"])
    first, *others = findings_in(folder)
    assert cli.main(["doctor", str(folder)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"{first.rule}: {first.evidence}", f"  {first.advice}"]
    assert len(lines) == 2 + 2 * len(others)
    assert cli.main(["doctor", str(folder), "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["folder"] == str(folder) and facts["findings"][0] == first._asdict()


def test_the_command_says_so_if_nothing_is_wrong(runs, capsys):
    folder = runs(HEALTHY["classes"])
    assert cli.main(["doctor", str(folder)]) == 0
    assert capsys.readouterr().out == "Nothing was found in 104 steps.\n"
    assert cli.main(["doctor", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["findings"] == []


def test_a_folder_without_a_run_is_refused(tmp_path, capsys):
    assert cli.main(["doctor", str(tmp_path)]) == 2
    assert f"'{tmp_path}' holds no run" in capsys.readouterr().err


@pytest.mark.parametrize("fault", ["rate_too_high", "rate_too_low_tuned"])
def test_the_page_of_a_run_has_its_findings(runs, fault):
    make = MAKERS[fault]
    page = (runs(make) / "report.html").read_text("utf-8")
    assert "What is wrong with the training" in page and FAULTS[make] in page
    healthy = runs(HEALTHY["pre-training" if fault == "rate_too_high" else "classes"])
    assert "What is wrong" not in (healthy / "report.html").read_text("utf-8")


@pytest.mark.parametrize(("make", "module"), [("rate_too_low_tuned", running), ("few_targets", pretraining)])
def test_a_run_ends_with_a_line_about_its_findings(make, module, tmp_path, monkeypatch):
    spoken = []
    monkeypatch.setattr(module, "info_if", lambda show: spoken.append)
    folder = MAKERS[make](tmp_path, SEED, SIZE)
    about = [line for line in spoken if line.startswith("doctor: ")]
    assert about == [doctor.summary(findings_in(folder), folder)]
    assert about[0].startswith(f"doctor: {FAULTS[MAKERS[make]]}")


def test_a_run_that_is_training_has_not_stopped(runs):
    stopped = runs(MAKERS["stopped"])
    read = read_run(stopped)
    assert not is_in_use(stopped)
    with sole_writer(stopped):
        assert is_in_use(stopped)
    record = Record(stopped, read.options, read.lines, {}, is_training=True)
    assert "stopped before its end" not in [finding.rule for finding in examine(record)]


# Quantities, and what is too little to judge


def test_too_few_steps_are_not_judged(runs, tmp_path, capsys):
    read = read_run(shutil.copytree(runs(MAKERS["few_targets"]), tmp_path / "run"))
    assert examine(Record(read.folder, read.options, read.lines[:40], read.report)) == []
    for count, begins in ((40, "40 steps are"), (1, "1 step is"), (0, "0 steps are")):
        write_log(read.folder, [line for line in read.lines if "mlm_loss" in line][:count])
        assert cli.main(["doctor", str(read.folder)]) == 0
        said = capsys.readouterr().out
        assert said == f"{begins} too few to judge; at least 50 are needed.\n"
        assert cli.main(["doctor", str(read.folder), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["judged"] is False


@pytest.mark.parametrize("count", [10, 80])
def test_a_loss_that_is_not_a_number_is_a_finding(runs, count):
    read = read_run(runs(MAKERS["few_targets"]))
    lines = [line for line in read.lines if "mlm_loss" in line][:count]
    lines[-1] = {**lines[-1], "mlm_loss": math.nan}
    (found,) = examine(Record(read.folder, read.options, lines, {}))
    assert found.rule == "diverged"
    assert found.evidence.startswith(f"The loss of step {lines[-1]['step']} is nan; the learning rate of")


def test_a_run_that_prepares_its_text_has_no_steps_yet(runs, tmp_path, capsys):
    folder = shutil.copytree(runs(MAKERS["stopped"]), tmp_path / "run")
    (folder / "metrics.jsonl").unlink()
    assert cli.main(["doctor", str(folder)]) == 2
    assert f"The run in '{folder}' has no steps yet" in capsys.readouterr().err


def test_options_that_a_recipe_fills_in_are_judged_by_it(runs, tmp_path, capsys):
    """A run may have been stored before it had chosen its batch size."""
    folder = shutil.copytree(runs(MAKERS["rate_too_low"]), tmp_path / "run")
    stored = json.loads((folder / "training.json").read_text())
    (folder / "training.json").write_text(json.dumps(stored | {"batch_size": None}))
    assert cli.main(["doctor", str(folder)]) == 1
    assert capsys.readouterr().out.startswith("learning rate too low: ")


@pytest.mark.parametrize("make", ["rate_too_low", "rate_too_low_tuned"])
def test_an_error_of_the_doctor_does_not_cost_the_report(make, tmp_path, monkeypatch):
    monkeypatch.setitem(doctor.RULES, "too few targets", lambda run: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        MAKERS[make](tmp_path, SEED, SIZE)
    assert read_run(tmp_path / "run").report["steps"] > 50
    assert (tmp_path / "run" / "report.html").exists()


def test_the_lowest_mean_is_that_of_a_moving_average(runs):
    read = read_run(runs(MAKERS["few_targets"]))
    record = Record(read.folder, read.options, read.lines, {})
    moving = np.convolve(record.losses, np.ones(record.averaged) / record.averaged, "valid")
    np.testing.assert_allclose(record.lowest_loss, moving.min(), rtol=1e-12)


@pytest.mark.parametrize(
    ("length", "millions", "advice"),
    [
        ("8", 0.3, "; train longer."),
        ("8", 0.5, "; this run should have left it, too: look at its learning rate, its batch size and"),
        ("10", 0.5, "; train longer."),
        ("16", 0.5, "; train longer, or begin with sequences of 10, as shorter ones leave it sooner."),
        ("32", 5.0, "; train longer, or begin with sequences of 10, as shorter ones leave it sooner."),
    ],
)
def test_the_advice_on_the_plateau_fits_length_and_tokens(runs, length, millions, advice):
    read = read_run(runs(MAKERS["plateau"]))
    options = dataclasses.replace(read.options, seq_length=length)
    lines = [line | {"tokens": 1e6 * millions} if "tokens" in line else line for line in read.lines]
    _, said = doctor.on_the_plateau(Record(read.folder, options, lines, read.report))
    assert advice in said
    training = doctor.on_the_plateau(Record(read.folder, options, lines, read.report, is_training=True))
    assert (training is None) == ("; train longer" in advice)


def test_trained_weights_with_a_new_head_may_begin_high(runs):
    read = read_run(runs(MAKERS["few_targets"]))
    usual = dict(vocab_size=PretrainOptions.vocab_size, unigram_bias=False)
    options = dataclasses.replace(read.options, model="bert", **usual)
    unigram = read.report["held_out"]["text_unigram"]
    lines = [line | {"mlm_loss": unigram + 2} if "mlm_loss" in line else line for line in read.lines]
    report = {**read.report, "text": {}}
    evidence, _ = doctor.foreign_vocabulary(Record(read.folder, options, lines, report))
    assert evidence.startswith("Trained weights begin 2.0 nats above")
    assert report["new_head"] is False
    report["new_head"] = True
    assert doctor.foreign_vocabulary(Record(read.folder, options, lines, report)) is None


def test_only_biases_are_compared_and_no_model_is_made(runs, monkeypatch):
    folder = runs(MAKERS["dead_layer"])
    monkeypatch.setattr(hub, "load", None)
    found = findings_in(folder)[0]
    assert found.rule == "dead layer"
    biases = "biases of the feed-forward units of layer 1"
    assert found.evidence == f"100% of the {biases} never received a gradient."


def test_initial_biases_are_found_in_a_checkpoint_of_a_run(runs):
    folder = runs(HEALTHY["pre-training"])
    tensors = hub.encoder_tensors(folder)
    kept = hub.encoder_tensors(f"{folder}@200")  # whose file has other names and the optimizer's state
    for name in ("bert.encoder.layer.0.attention.self.value.bias", "bert.encoder.layer.0.output.dense.bias"):
        np.testing.assert_array_equal(kept[name], tensors[name])


def test_a_sweep_shows_the_findings_of_its_best_run(tmp_path, monkeypatch):
    examined = []
    examine_one = page.examine
    monkeypatch.setattr(page, "examine", lambda run: examined.append(run.folder.name) or examine_one(run))
    monkeypatch.setattr(running, "examine", None)  # the page of the sweep examines nothing again
    folder = tuned(tmp_path, SEED, SIZE, learning_rates=(1e-6, 2e-6))
    assert len(examined) == 2
    assert "learning rate too low" in (folder / "report.html").read_text("utf-8")
    monkeypatch.setattr(running, "examine", examine_one)  # but for runs that were finished before
    (folder / "report.json").unlink()
    finetune(FinetuneOptions.load(folder / "finetune.json"), folder, resume=True, show=False)
    assert len(examined) == 2
    assert "learning rate too low" in (folder / "report.html").read_text("utf-8")


def test_the_last_line_of_a_run_names_the_command_for_the_other_findings(tmp_path):
    first, second = (doctor.Finding(name, "Seen.", "Do.") for name in ("one", "two"))
    assert doctor.summary([first], tmp_path) == "doctor: one. Seen. Do."
    folder = tmp_path / "a run"
    said = doctor.summary([first, second], folder)
    assert said == f"doctor: one. Seen. Do. (1 more: minibert doctor '{folder}')"


def test_a_stopped_run_is_told_the_command_that_resumes_it(runs):
    folder = runs(MAKERS["stopped"])
    advice = {found.rule: found.advice for found in findings_in(folder)}["stopped before its end"]
    assert advice == f"Resume it: minibert pretrain --resume --out {folder}"


def test_pieces_are_counted_without_special_tokens():
    tokenizer = Tokenizer([*SPECIAL_TOKENS, "film", "##s", "is"])
    counts = np.bincount([2, 5, 6, 7, 1, 3], minlength=8)  # [CLS] film ##s is [UNK] [SEP]
    assert piece_facts(counts, tokenizer) == {"unknown": 0.25, "pieces_a_word": 4 / 3, "vocabulary": 8}


def test_a_lucky_epoch_does_not_hide_labels_that_were_learnt_by_heart(runs):
    read = read_run(runs(MAKERS["shuffled_labels"]))
    lucky = {**read.report, "scores": {**read.report["scores"], "accuracy": 0.66}, "interval": [0.6, 0.72]}
    assert doctor.trivial_remark(lucky) == ""
    rules = [finding.rule for finding in examine(Record(read.folder, read.options, read.lines, lucky))]
    assert "learnt by heart" in rules


def by_heart(read, lines, **more):
    return doctor.learnt_by_heart(Record(read.folder, read.options, lines, {**read.report, **more}))


def test_a_metric_far_above_the_constant_is_not_learnt_by_heart(runs):
    """A small dev set may not tell 70% ± 14 from 60%, which is no sign of wrong labels."""
    read = read_run(runs(MAKERS["shuffled_labels"]))
    majority = {**read.report["majority"], "scores": {"accuracy": 0.6}}
    lines = [line for line in read.lines if "dev_accuracy" not in line]
    small = dict(majority=majority, interval=[0.56, 0.84])
    assert by_heart(read, lines, **small, scores={"accuracy": 0.7}) is None
    evidence, _ = by_heart(read, lines, **small, scores={"accuracy": 0.66})
    said = f"accuracy on dev is 66.00, and that of always answering {majority['label']!r} 60.00."
    assert evidence.endswith(f", but {said}")


def test_a_good_metric_without_evaluations_in_the_log_is_not_learnt_by_heart(runs):
    read = read_run(runs(MAKERS["shuffled_labels"]))
    lines = [line for line in read.lines if "dev_accuracy" not in line]
    assert by_heart(read, lines, scores={"accuracy": 0.9}, interval=[0.85, 0.95]) is None


def test_without_a_report_a_new_model_begins_with_the_unigram_entropy(tmp_path):
    lines = [{"loss": 9.0, "mlm_loss": loss, "learning_rate": 0.0, "gradient_norm": 1.0} for loss in range(9)]
    known = {"held_out": {"text_unigram": 6.5}}
    own = [{"unigram_bias": True}, {"unigram_bias": False}, {"model": "a-model"}]
    for report, expected in (({}, [2.0, None, None]), (known, [6.5, 6.5, 6.5])):
        runs = [Record(tmp_path, PretrainOptions(**more), lines, report) for more in own]
        assert [run.unigram for run in runs] == expected
