"""The rules of `minibert doctor`: trainings with one fault each, healthy ones, and what it prints."""

import json
from unittest import mock

import numpy as np
import pytest
from faulty_runs import FAULTS, HEALTHY, SlowingClock

from minibert import cli
from minibert.base.files import is_in_use, sole_writer
from minibert.experiments.comparison import read_run
from minibert.finetuning import running
from minibert.pretraining import run as pretraining
from minibert.reports import doctor
from minibert.reports.doctor import Record, examine
from minibert.tokenizer import SPECIAL_TOKENS, Tokenizer
from minibert.tokenizer.report import piece_facts
from minibert.training import loop

MAKERS = {make.__name__: make for make in FAULTS}
SEED, SIZE = 0, "1-32-2"  # `slow` has other seeds and sizes


def findings_in(folder):
    read = read_run(folder)
    return examine(Record(folder, read.options, read.lines, read.report or {}))


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
    assert about == [doctor.summary(findings_in(folder))]
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


def test_too_few_steps_are_not_judged(runs):
    folder = runs(MAKERS["few_targets"])
    read = read_run(folder)
    assert examine(Record(folder, read.options, read.lines[:40], read.report)) == []


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
