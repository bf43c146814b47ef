"""Experiments: every cell once, nothing lost when stopped, the same tables to the byte."""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from paths import ROOT, TESTS
from small_tasks import write_model

from minibert import cli
from minibert.base.errors import DivergedError, InputError
from minibert.base.files import sole_writer
from minibert.cli.reproduce import NAMES, SIZES
from minibert.experiments import cells, runner, smoke_tasks
from minibert.experiments.cells import Cell, Plan
from minibert.experiments.judged import judge
from minibert.experiments.page import table_text
from minibert.experiments.runner import RESULTS, TIMES, Results, digest, reproduce
from minibert.experiments.scales import ROLES, SCALES, SHAPES, find_source
from minibert.experiments.tables import MODELS, TABLES, Column, Ordering, Row, Table
from minibert.experiments.verdicts import Outcomes

TINY = SCALES["smoke"]._replace(
    pretraining={**SCALES["smoke"].pretraining, "steps": 20},
    tasks={"": {**SCALES["smoke"].tasks[""], "train_examples": 16, "dev_examples": 16}},
)
ROWS = (
    Row("BERT", "bert", {"sst2": 92.7}),
    Row("halfway", "bert", share=0.4),
    Row("+ BiLSTM", "ltr", {"sst2": 91.6}, {"bilstm": True}),
    Row("Untrained", "untrained"),
)
COLUMNS = (Column("ppl", "LM (ppl)", "held-out"), Column("sst2", "SST-2 (acc)", "sst2"))
SMALL = Table("small", "A small one", ROWS, COLUMNS, (Ordering("BERT", "+ BiLSTM", "sst2"),))
SEEDS = (0, 1)
FILES_OF_TEST = {
    "QQP.tsv": "QQP/test.tsv",
    "MNLI-m.tsv": "MNLI/test_matched.tsv",
    "MNLI-mm.tsv": "MNLI/test_mismatched.tsv",
    "QNLI.tsv": "QNLI/test.tsv",
    "AX.tsv": "AX/diagnostic.tsv",
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of an experiment that nothing disturbed."""
    plan = Plan(tmp_path_factory.mktemp("experiments") / "whole", TINY)
    reproduce(plan, [SMALL], SEEDS, show=False)
    return plan


def results_of(plan):
    return (plan.out / RESULTS).read_text()


@pytest.mark.thorough
def test_each_cell_is_run_once_and_shared(whole):
    names = [json.loads(line)["cell"] for line in results_of(whole).splitlines()]
    of_a_seed = "bert ltr untrained bert/sentence bert@40%/sentence ltr+bilstm/sentence untrained/sentence"
    wanted = [f"{name}/seed{seed}" for seed in SEEDS for name in of_a_seed.split()]
    assert sorted(names) == sorted([*wanted, "baseline/sentence"])
    assert names == [cell.name for cell in whole.cells([SMALL], SEEDS)]
    assert not any((whole.out / "cells").iterdir())  # what was fine-tuned is not kept


@pytest.mark.thorough
def test_table_has_the_metrics_of_its_cells(whole):
    results = Results(whole.out, [])
    judged = judge(whole, SMALL, results, SEEDS)
    assert set(judged.estimates) == {(row.title, "sst2") for row in ROWS} | {
        (row.title, "ppl") for row in ROWS if row.title not in ("halfway", "Untrained")
    }
    report = json.loads((whole.out / "models/bert-seed1/report.json").read_text())
    perplexities = judged.estimates["BERT", "ppl"].seeds
    assert perplexities[1] == pytest.approx(report["held_out"]["perplexity"], rel=1e-6)
    digits = results.get("ltr+bilstm/sentence/seed0")["dev"]["values"]
    assert judged.estimates["+ BiLSTM", "sst2"].seeds[0] == digits.count("1") / 16
    assert judged.baselines["sst2"][1] == results.get("baseline/sentence")["dev"]["values"].count("1") / 16
    unigram = report["held_out"]["text_unigram"]
    assert judged.baselines["ppl"] == ("unigram", pytest.approx(math.exp(unigram)))
    assert f"{math.exp(unigram):.2f}" in table_text(judged) and "(the paper's)" in table_text(judged)
    only = judge(whole, SMALL._replace(columns=COLUMNS[:1], orderings=()), results, SEEDS)
    assert "(the paper's)" not in table_text(only)  # which has no figure of this column
    ((ordering, verdict),) = judged.verdicts
    assert judged.paper(ordering) == (92.7, 91.6) and verdict.answer in ("undecided", "at the floor")
    assert json.loads(json.dumps(judged.to_json()))["verdicts"][0]["answer"] == verdict.answer


@pytest.mark.thorough
def test_it_goes_on_where_it_was_stopped(whole, tmp_path, monkeypatch):
    plan, kept = Plan(tmp_path / "stopped", TINY), cells.finetune
    asked = []

    def stopped(options, folder, **named):
        asked.append(folder.name)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return kept(options, folder, **named)

    monkeypatch.setattr(cells, "finetune", stopped)
    with pytest.raises(KeyboardInterrupt):
        reproduce(plan, [SMALL], SEEDS, show=False)
    done = len(results_of(plan).splitlines())
    reproduce(plan, [SMALL], SEEDS, show=False)
    assert results_of(plan) == results_of(whole)
    assert len(asked) == 1 + 4 * len(SEEDS)  # the third one twice
    reproduce(plan, [SMALL], SEEDS, show=False)
    assert len(asked) == 1 + 4 * len(SEEDS) and done < len(results_of(plan).splitlines())


@pytest.mark.thorough
def test_a_damaged_cell_is_named_and_run_again(whole, tmp_path, capsys):
    plan = Plan(tmp_path / "damaged", TINY)
    shutil.copytree(whole.out, plan.out)
    lines = results_of(plan).splitlines()
    lines[3] = lines[3].replace("1", "0", 1)
    (plan.out / RESULTS).write_text("\n".join(lines)[:-20])
    reproduce(plan, [SMALL], SEEDS)
    told = capsys.readouterr().err
    assert "results.jsonl, line 4 is damaged" in told and "line 15 is damaged" in told
    assert "2 of 15 cells are to be run" in told and re.search(r"about \d+ seconds\.\n", told)
    assert results_of(plan) == results_of(whole)


@pytest.mark.slow
def test_a_training_that_diverges_is_marked_and_not_run_again(tmp_path, monkeypatch):
    plan, kept = Plan(tmp_path / "diverging", TINY), cells.finetune

    def diverging(options, folder, **named):
        if options.bilstm:
            raise DivergedError("The loss of step 7 is nan.")
        return kept(options, folder, **named)

    monkeypatch.setattr(cells, "finetune", diverging)
    results = reproduce(plan, [SMALL], [0], show=False)
    judged = judge(plan, SMALL, results, [0])
    assert judged.failed == {"ltr+bilstm/sentence/seed0": "The loss of step 7 is nan."}
    assert ("+ BiLSTM", "sst2") not in judged.estimates and not judged.verdicts
    assert judged.not_run == [(SMALL.orderings[0], "no result of + BiLSTM, see what was given up")]
    said = "BERT > + BiLSTM on SST-2 (paper 92.7 > 91.6): not run, no result of + BiLSTM"
    assert said in table_text(judged) and judged.to_json()["verdicts"][0]["answer"] == "not run"
    monkeypatch.setattr(cells, "finetune", None)
    reproduce(plan, [SMALL], [0], show=False)


@pytest.mark.thorough
def test_a_column_whose_trainings_were_all_given_up_leaves_the_others(whole):
    results = Results(whole.out, [])
    for name in [one for one in results.lines if one.count("/") == 2]:
        results.lines[name] = results.lines[name] | {"result": {"failed": "The loss of step 7 is nan."}}
    judged = judge(whole, SMALL, results, SEEDS)
    assert {column for _, column in judged.estimates} == {"ppl"} and not judged.verdicts
    assert len(judged.failed) == 4 * len(SEEDS) and "7 is nan" in table_text(judged)


@pytest.mark.thorough
def test_impossible_runs_are_refused_before_training(whole, tmp_path):
    other = Plan(whole.out, TINY._replace(pretraining={**TINY.pretraining, "steps": 30}))
    with pytest.raises(InputError, match="results.jsonl holds bert/seed0 of other settings"):
        reproduce(other, [SMALL], SEEDS, show=False)
    day = Plan(tmp_path / "day", SCALES["day"]._replace(pretraining={**TINY.pretraining, "steps": 10**6}))
    with pytest.raises(InputError, match=r"minutes=1 is too little for small at the scale day, .* about \d+"):
        reproduce(day, [SMALL], [0], minutes=1, show=False)
    assert not day.out.exists()  # nor does anything stand in the way of another scale
    with sole_writer(tmp_path / "taken"), pytest.raises(InputError, match="Another process is writing into"):
        reproduce(Plan(tmp_path / "taken", TINY), [SMALL], [0], show=False)


@pytest.mark.parametrize(
    "files",
    [
        {"index.html": "mine", "tables.txt": "mine", "results.jsonl": '{"mine": 1}\n'},
        {"notes.txt": "mine"},
        {"vocabulary.json": '{"mine": 1}'},
        {"vocabulary.json": '{"vocab_size": 500}', "training.json": "{}"},  # of a pre-training
    ],
)
def test_a_folder_of_something_else_is_refused_and_left_as_it_is(tmp_path, files):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=f"holds {', '.join(sorted(files))} of something else; choose"):
        reproduce(Plan(tmp_path, TINY), [SMALL], SEEDS, show=False)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == files


@pytest.mark.thorough
@pytest.mark.parametrize("left", ["vocabulary.json", "made-tasks", ".made-tasks.0a.tmp"])
def test_a_folder_where_an_earlier_call_was_killed_is_gone_on_with(whole, tmp_path, left):
    source, made = whole.out / left, tmp_path / left
    if left.startswith("."):
        made.write_text("{")
    else:
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, made)
    runner._check_folder(tmp_path)


@pytest.mark.thorough
def test_results_of_other_examples_are_not_gone_on_with(whole, monkeypatch):
    source = find_source("sst2", None, whole.out / "made-tasks")
    monkeypatch.setattr(cells, "find_source", lambda *args: source._replace(fingerprint=1))
    with pytest.raises(InputError, match=r"results.jsonl holds \S+/sentence\S* of other settings"):
        reproduce(Plan(whole.out, TINY), [SMALL], SEEDS, show=False)


def test_other_examples_have_another_fingerprint(tmp_path):
    shutil.copytree(TESTS / "fixtures" / "tasks" / "QQP", tmp_path / "QQP")
    with pytest.warns(UserWarning, match="lack columns"):
        before = find_source("qqp", tmp_path, tmp_path)
    file = tmp_path / "QQP" / "dev.tsv"
    file.write_text(file.read_text().replace("\t1\n", "\t0\n", 1))
    with pytest.warns(UserWarning, match="lack columns"):
        after = find_source("qqp", tmp_path, tmp_path)
    assert before.fingerprint and after == before._replace(fingerprint=after.fingerprint) != before


def test_missing_tasks_are_named_with_what_stands_in(tmp_path):
    source = find_source("qqp", TESTS / "fixtures" / "tasks", tmp_path)
    assert (source.key, source.title) == ("qqp", "QQP")
    assert find_source("stsb", tmp_path, tmp_path) is None
    stands_in = find_source("mnli", tmp_path, tmp_path)
    title = "pair (made from the books, which BERT has read), in place of MNLI"
    assert (stands_in.task, stands_in.title) == ("classify", title)
    assert f"no train.tsv in '{tmp_path}', nor" in stands_in.missing and not source.missing
    said = Plan(tmp_path, TINY, tmp_path).title(TABLES["table1"].columns[0])
    assert said == f"{title}. {stands_in.missing}"
    other = find_source("mnli", None, tmp_path, known=False)
    assert (other.title, other.missing) == ("pair (made from the books), in place of MNLI", "")


def copied(whole, out):
    shutil.copytree(whole.out, out)
    return Plan(out, TINY)


def test_a_divided_file_is_found_in_a_folder_below(tmp_path):
    folder = tmp_path / "glue" / "QNLI"
    folder.mkdir(parents=True)
    rows = (f"{n}\twho is {n}?\tIt is {n}.\t{'not_' * (n % 2)}entailment" for n in range(40))
    (folder / "dev.tsv").write_text("\n".join(["index\tquestion\tsentence\tlabel", *rows, ""]))
    found = find_source("qnli", tmp_path, tmp_path)
    assert (found.key, found.data) == ("qnli-dev", tmp_path / "glue") and 20 < found.train < 40


def test_a_vocabulary_of_another_size_is_refused(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"one small text of number {n}\nand its second line" for n in range(40)))
    asked = {
        size: TINY._replace(pretraining={**TINY.pretraining, "vocab_size": size}) for size in (150, 1000)
    }
    for _ in range(2):  # it has fewer pieces, as the text has no more, and is gone on with
        Plan(tmp_path / "out", asked[1000], text=(str(text),)).prepare_text(show=False)
    with pytest.raises(InputError, match="text' was learnt for 1000 pieces, and the scale smoke asks for"):
        Plan(tmp_path / "out", asked[150], text=(str(text),)).prepare_text(show=False)
    (tmp_path / "out" / "vocabulary.json").unlink()  # as earlier versions left it
    with pytest.raises(InputError, match="choose another `out`"):
        Plan(tmp_path / "out", asked[1000], text=(str(text),)).prepare_text(show=False)


@pytest.mark.thorough
def test_tasks_that_were_half_made_are_made_anew(whole, tmp_path, monkeypatch):
    plan, make = copied(whole, tmp_path / "half"), smoke_tasks.make
    shutil.rmtree(plan.out / "made-tasks")

    def stopped(folder):
        make(folder)
        raise KeyboardInterrupt

    monkeypatch.setattr(smoke_tasks, "make", stopped)
    with pytest.raises(KeyboardInterrupt):
        reproduce(plan, [SMALL], SEEDS, show=False)
    assert not [path for path in plan.out.iterdir() if "made-tasks" in path.name]


@pytest.mark.thorough
def test_what_is_left_out_is_named_and_every_ordering_is_listed(whole):
    table, told = TABLES["table5"], []
    runner._log_sources(whole, [table], told.append)
    said = "no files of its own; the same examples as MNLI's column, left out"
    assert f"QNLI: {said}." in told
    assert "MNLI: pair (made from the books, which BERT has read), in place of MNLI." in told
    judged = judge(whole, table, Results(whole.out, []), SEEDS)
    assert judged.left_out == {"QNLI (acc)": said, "MRPC (acc)": said}
    listed = [one for one, _ in judged.verdicts] + [one for one, _ in judged.not_run]
    assert sorted(listed) == sorted(table.orderings)
    assert f"BERT > No NSP on QNLI (paper 88.4 > 84.9): not run, {said}" in " ".join(
        table_text(judged).split()
    )


def test_work_is_that_of_the_examples_and_the_model_that_there_are(tmp_path, monkeypatch):
    fixtures = TESTS / "fixtures" / "tasks"
    assert find_source("qqp", fixtures, tmp_path).train == 5  # of the rows that are whole
    work = []
    (tmp_path / "text").mkdir()
    for train, layers in ((10_000, 2), (393_000, 2), (393_000, 4)):
        source = find_source("sst2", None, tmp_path)._replace(train=train)
        monkeypatch.setattr(cells, "find_source", lambda *args, source=source: source)
        model = write_model(
            tmp_path / f"model{layers}", num_hidden_layers=layers, max_position_embeddings=128
        )
        plan = Plan(tmp_path, SCALES["day"], model=str(model))
        [cell] = [one for one in plan.cells([TABLES["table1"]], [0]) if one.name == "bert/sentence/seed0"]
        work.append(cell.work)
    settings = cell.settings().keys()
    assert {"task", "learning_rates", "batch_size", "epochs", "seed", "max_length", "start"} <= settings
    assert not {"data", "model", "engine", "threads", "keep"} & settings
    assert work[1] == pytest.approx(39.3 * work[0]) and work[2] == pytest.approx(2 * work[1])
    assert (runner._duration(119.4), runner._duration(150.0)) == ("119 seconds", "2 minutes")
    cells_of_nothing = [Cell(f"c{n}", "fine-tuning", dict, 1.0, dict) for n in range(60)]
    assert 60 <= Results(tmp_path / "none", []).estimate(cells_of_nothing) <= 300  # each takes its time


def test_work_of_a_pre_training_is_that_of_its_steps_and_of_its_batches(tmp_path):
    day = SCALES["day"]
    work = []
    for more in ({}, {"steps": 80_000}, {"batch_size": 128}, {"steps": 80_000, "batch_size": 128}):
        plan = Plan(tmp_path, day._replace(pretraining=day.pretraining | more))
        [cell, *_] = [one for one in plan.cells([TABLES["table5"]], [0]) if one.kind == "pre-training"]
        work.append(cell.work)
    assert np.array(work) / work[0] == pytest.approx([1, 2, 2, 4], rel=1e-3)


@pytest.mark.thorough
def test_seconds_of_earlier_sittings_count(whole, tmp_path):
    plan = copied(whole, tmp_path / "resumed")
    report = json.loads((plan.out / "models/bert-seed0/report.json").read_text())
    cell = next(one for one in plan.cells([SMALL], [0]) if one.name == "bert/seed0")
    assert cell.run(False)["seconds"] == report["training_seconds"] > 0
    results = Results(plan.out, [])
    slow = cell._replace(run=lambda show: {"loss": 1.0, "seconds": 500.0})
    assert runner._run(slow, results, False) == ({"loss": 1.0}, 500.0)
    assert "seconds" not in results.get("bert/seed0") and "seconds" not in results.get("bert/sentence/seed0")


@pytest.mark.thorough
def test_a_damaged_time_is_not_said_to_be_measured_again(whole, tmp_path, capsys):
    plan = copied(whole, tmp_path / "damaged")
    with (plan.out / TIMES).open("a") as file:
        file.write("{\n")
    reproduce(plan, [SMALL], SEEDS)
    told = capsys.readouterr().err
    assert "times.jsonl, line 16 is damaged: '{'; how long its cell took" in told and "run again" not in told


@pytest.mark.thorough
def test_each_split_has_the_name_of_its_baseline(whole, monkeypatch):
    names = iter(("of dev", "of test"))
    monkeypatch.setattr(cells, "read_examples", lambda *args: ([], []))
    monkeypatch.setattr(cells, "_measured_on", lambda *args: [])
    monkeypatch.setattr(cells, "strongest", lambda *args: (next(names), []))
    monkeypatch.setattr(cells, "measured", lambda *args: Outcomes("mean", np.ones(16)))
    column = COLUMNS[1]._replace(split="test")
    result = cells._baseline(whole.finetuning(ROWS[0], column, 0), with_test=True)
    results, table = (
        Results(whole.out, []),
        SMALL._replace(columns=(COLUMNS[1], column._replace(name="test"))),
    )
    monkeypatch.setattr(cells, "WITH_TEST", ("sentence",))
    results.lines["baseline/sentence"] = {"result": result}
    judged = judge(whole, table, results, SEEDS)
    assert [judged.baselines[name][0] for name in ("sst2", "test")] == ["of dev", "of test"]


def test_a_model_that_does_not_fit_is_refused_before_any_work(tmp_path):
    table, out = TABLES["table7"], tmp_path / "out"
    small = write_model(tmp_path / "small", num_hidden_layers=2, max_position_embeddings=128)
    for model, said in (
        (tmp_path / "none", "There is no folder"),
        (small, "takes 4 layers, and the model has 2"),
    ):
        with pytest.raises(InputError, match=said):
            reproduce(Plan(out, TINY, model=str(model)), [table], [0], show=False)
        assert not out.exists()


@pytest.mark.thorough
def test_a_given_model_is_known_by_its_weights_and_untrained_has_its_shape(tmp_path):
    plans = []
    for name, seed in (("one", 0), ("same", 0), ("other", 1)):
        model = write_model(tmp_path / name, seed=seed, num_hidden_layers=1, max_position_embeddings=128)
        plans.append(Plan(tmp_path / "out", TINY, model=str(model)))
    table = TABLES["table1"]._replace(columns=COLUMNS[1:], orderings=())
    one, same, other = ([digest(cell.settings()) for cell in plan.cells([table], [0])] for plan in plans)
    assert one == same and one != other
    results = reproduce(plans[0], [table], [0], show=False)
    config = json.loads((tmp_path / "out/models/untrained-seed0/config.json").read_text())
    assert config["vocab_size"] == plans[0].given[0].V and config["num_hidden_layers"] == 1
    assert results.get("untrained/sentence/seed0")["dev"] and not (tmp_path / "out" / "text").exists()


@pytest.mark.thorough
def test_tables_are_written_when_it_is_stopped_and_before_another_may_write(whole, tmp_path, monkeypatch):
    plan, written = copied(whole, tmp_path / "stopped"), []

    def stopped(*args, **named):
        raise KeyboardInterrupt

    def write(results):
        with pytest.raises(InputError, match="Another process"), sole_writer(plan.out):
            pass
        written.append(results)

    monkeypatch.setattr(cells, "pretrain", stopped)
    with pytest.raises(KeyboardInterrupt):
        reproduce(plan, [SMALL], (0, 1, 2), show=False, write=write)
    reproduce(plan, [SMALL], SEEDS, show=False, write=write)
    assert len(written) == 2


@pytest.mark.thorough
def test_of_checkpoints_on_the_way_those_of_figure_5_are_kept(whole):
    kept = sorted(path.name for path in (whole.out / "models/bert-seed0/checkpoints").iterdir())
    assert kept == [f"step-{step:09}.safetensors" for step in (1, 2, 4, 8, 14, 20)]


@pytest.mark.thorough
def test_what_needs_a_pre_training_that_diverged_is_given_up_at_once(whole, tmp_path, monkeypatch):
    plan, asked = copied(whole, tmp_path / "diverging"), []

    def diverging(options, folder, **named):
        asked.append(folder.name)
        raise DivergedError("The loss of step 7 is nan.")

    monkeypatch.setattr(cells, "pretrain", diverging)
    table = SMALL._replace(rows=ROWS[:3])
    results = reproduce(plan, [table], (2,), show=False)
    assert asked == ["bert-seed2", "ltr-seed2"]
    given_up = "bert/seed2 was given up: The loss of step 7 is nan."
    assert (
        results.get("bert@40%/sentence/seed2") == {"failed": given_up} == results.get("bert/sentence/seed2")
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of tasks that are missing, and rows of QQP that lack columns
def test_table_1_has_an_average_and_the_zip_that_glue_takes(tmp_path):
    plan = Plan(tmp_path, TINY, TESTS / "fixtures" / "tasks")
    table = TABLES["table1"]
    judged = judge(plan, table, reproduce(plan, [table], [0], show=False), [0])
    stored = tmp_path / "results.jsonl"
    lines = stored.read_text().splitlines(keepends=True)
    kept = [line for line in lines if '"task": "qnli"' not in line]
    assert len(kept) < len(lines)  # of a cell whose predictions were written when the call was stopped
    stored.write_text("".join(kept))
    judged = judge(plan, table, reproduce(plan, [table], [0], show=False), [0])
    with zipfile.ZipFile(tmp_path / "submission" / "seed0" / "submission.zip") as archive:
        tables = {name: archive.read(name).decode().splitlines() for name in archive.namelist()}
    assert list(tables) == ["QQP.tsv", "MNLI-m.tsv", "MNLI-mm.tsv", "QNLI.tsv", "AX.tsv"]
    for name, lines in tables.items():
        rows = (plan.data / FILES_OF_TEST[name]).read_text().splitlines()
        assert lines[0] == "index\tprediction"
        assert [line.split("\t")[0] for line in lines[1:]] == [row.split("\t")[0] for row in rows[1:]]
    assert {line.split("\t")[1] for line in tables["AX.tsv"][1:]} <= {
        "entailment", "neutral", "contradiction"
    }  # fmt: skip
    scores = [judged.estimates["BERT", column.name].value for column in judged.columns]
    assert len(scores) == 5 and f"BERT {100 * sum(scores) / 5:.1f}, Untrained" in table_text(judged)


def test_tables_are_declared_whole():
    for table in TABLES.values():
        rows, columns = {row.title for row in table.rows}, {column.name for column in table.columns}
        assert {row.model for row in table.rows} <= MODELS.keys()
        assert {column.task for column in table.columns} <= ROLES.keys() | {"held-out"}
        for one in table.orderings:
            assert {one.better, one.worse} <= rows and one.column in columns
        for row in table.rows:
            assert row.paper.keys() <= columns
    assert tuple(TABLES) == NAMES and tuple(SCALES) == SIZES  # as the command line has them
    assert all(scale.shapes.keys() == set(SHAPES) for scale in SCALES.values())


def test_orderings_are_those_of_the_papers_figures():
    """A claim is not declared the wrong way round: the paper's figures agree with it."""
    agree = [
        (better > worse) != (one.column == "ppl")
        for table in TABLES.values()
        for one in table.orderings
        for rows in [{row.title: row.paper for row in table.rows}]
        for better, worse in [(rows[one.better].get(one.column), rows[one.worse].get(one.column))]
        if better is not None and worse is not None
    ]
    assert len(agree) >= 20 and all(agree)


def run_command(out: Path) -> subprocess.Popen:
    words = [sys.executable, "-m", "minibert", "reproduce", "all", "--scale", "smoke", "--seeds", "1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([*words, "--out", str(out)], env=environment, stdout=-3, stderr=-3)


def killed_after(out: Path, cells: int) -> None:
    """Kill the command without warning when so many more cells are done."""
    path = out / RESULTS
    wanted = cells + (len(path.read_text().splitlines()) if path.exists() else 0)
    running = run_command(out)
    while running.poll() is None and not (path.exists() and len(path.read_text().splitlines()) >= wanted):
        time.sleep(0.05)
    time.sleep(0.3)  # into the next one
    running.send_signal(signal.SIGKILL)
    running.wait()


@pytest.mark.slow
@pytest.mark.exhaustive  # a minute and a half for a single kill
@pytest.mark.parametrize("kills", [1, 10])
def test_killed_at_any_moment_all_tables_are_the_same_to_the_byte(tmp_path, kills):
    assert run_command(tmp_path / "whole").wait() == 0
    for _ in range(kills):
        killed_after(tmp_path / "killed", 60 // kills)
    done = len((tmp_path / "killed" / RESULTS).read_text().splitlines())
    assert run_command(tmp_path / "killed").wait() == 0
    for name in (RESULTS, "tables.txt"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    times = [json.loads(line) for line in (tmp_path / "killed" / TIMES).read_text().splitlines()]
    assert len(times) == len({one["cell"] for one in times}) > done


@pytest.mark.thorough
def test_command_makes_a_table(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(SCALES, "smoke", TINY)
    monkeypatch.setitem(TABLES, "table5", SMALL._replace(name="table5"))
    words = ["reproduce", "table5", "--seeds", "1", "--out", str(tmp_path / "t"), "--quiet"]
    assert cli.main(words) == 0
    shown = capsys.readouterr().out
    assert "A small one" in shown and "BERT" in shown and "LM (ppl)" in shown
    assert (tmp_path / "t/tables.txt").exists() and (tmp_path / "t/index.html").exists()
    assert cli.main([*words, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)  # JSON has no -Infinity
    assert shown[0]["table"] == "table5" and shown[0]["cells"][0]["high"] is None
    other = SMALL._replace(
        name="table7", title="Another", rows=(ROWS[0], Row("frozen", "bert", finetuning={"freeze": 1}))
    )
    monkeypatch.setitem(TABLES, "table7", other._replace(orderings=()))
    assert cli.main([words[0], "table7", *words[2:]]) == 0
    assert "A small one" not in capsys.readouterr().out
    for name in ("tables.txt", "index.html"):
        text = (tmp_path / "t" / name).read_text()
        assert "A small one" in text and "Another" in text
    assert cli.main([*words, "--model", "m"]) == 2
    assert "table5 compares several" in capsys.readouterr().err


def test_lines_of_results_stand_in_the_order_of_cells_and_those_of_others_before(tmp_path):
    def cell(name):
        return SimpleNamespace(name=name, kind="", work=1.0, settings=dict)

    Results(tmp_path, []).add(cell("of another run"), {}, 1.0)
    names = ["c", "a", "b"]
    results = Results(tmp_path, [cell(name) for name in names])
    for name in "abc":
        results.add(cell(name), {}, 1.0)
    for file in (RESULTS, TIMES):
        lines = (tmp_path / file).read_text().splitlines()
        assert [json.loads(line)["cell"] for line in lines] == ["of another run", *names]
