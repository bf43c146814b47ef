"""How much is measured at the end of a run, how certain that is, and how a run goes without it."""

import dataclasses
import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from html_page import Page
from small_corpus import write_corpus

import minibert
from minibert import cli
from minibert.api.runs import Run
from minibert.data.instances import InstanceOptions, Instances
from minibert.engines import create
from minibert.pretraining import budget
from minibert.pretraining.evaluation import evaluation_batches
from minibert.pretraining.objective import LEAST_TARGETS, PREVIEW_TARGETS, Pretraining
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.predict import evaluate
from minibert.pretraining.preparation import prepare_text
from minibert.pretraining.run import pretrain, report_text
from minibert.training.runlog import read_metrics


def small_options(corpus, **more):
    given = dict(
        corpus=(str(corpus),), vocab_size=120, seq_length="16", batch_size=8, max_positions=16, steps=6,
        evaluations=3, held_out=0.2, engine="numpy", size="1-32-2",
    )  # fmt: skip
    return PretrainOptions(**given | more)


def task_of(options):
    return Pretraining(options.resolved(), None, None)


@pytest.mark.parametrize("evaluations", [1, 10])
@pytest.mark.parametrize("left_to_right", [False, True])
@pytest.mark.parametrize("steps", [1000, 3000])
def test_measuring_takes_a_share_of_the_work_of_training(steps, evaluations, left_to_right):
    options = PretrainOptions(steps=steps, evaluations=evaluations, left_to_right=left_to_right, batch_size=8)
    task = task_of(options)
    state = SimpleNamespace(plan={"total_steps": steps})
    at_the_end = task.held_out_targets(state, 20_000)
    on_the_way = task.held_out_targets(state, PREVIEW_TARGETS)
    tokens_a_target = 1 if left_to_right else 1 / (0.15 * 0.8)
    scored = at_the_end * (1 if left_to_right else 2) + evaluations * on_the_way
    work = scored * tokens_a_target / 3
    assert work <= 0.151 * steps * task.options.tokens_per_step
    assert at_the_end == 20_000 or work > 0.149 * steps * task.options.tokens_per_step


def test_long_runs_measure_all_targets_and_the_shortest_some():
    options = PretrainOptions(steps=20, batch_size=8, seq_length="32")
    share = task_of(options).measured_share
    assert share(100_000) == 1.0
    assert round(20_000 * share(1)) == LEAST_TARGETS == 500


@pytest.mark.thorough
def test_share_goes_by_steps_and_not_by_a_clock(corpus, tmp_path, monkeypatch):
    reports = []
    for name, slow in (("fast", 0.0), ("slow", 1e6)):
        clock = iter(range(10**9))
        monkeypatch.setattr(budget.time, "monotonic", lambda clock=clock, slow=slow: slow * next(clock))
        reports.append(pretrain(small_options(corpus), tmp_path / name, show=False))
    monkeypatch.undo()
    assert reports[0]["held_out"] == reports[1]["held_out"]
    lines = [[line for line in read_metrics(tmp_path / name) if "held_out_loss" in line]
             for name in ("fast", "slow")]  # fmt: skip
    assert lines[0] == lines[1] and len(lines[0]) == 3


def test_short_run_measures_few_targets_and_evaluate_all(tmp_path):
    text = write_corpus(tmp_path / "text.txt", documents=400)
    report = pretrain(small_options(text), tmp_path / "run", show=False)
    assert 500 <= report["held_out"]["targets"] < 520
    plain = evaluate(tmp_path / "run", targets=3000)
    assert plain.targets >= 3000


@pytest.mark.thorough
def test_resumed_run_measures_what_it_would_have_measured(corpus, tmp_path):
    whole = pretrain(small_options(corpus, checkpoint_steps=2), tmp_path / "whole", show=False)
    seen = []

    def stop(step, values):
        seen.append(step)
        if step == 4 and len(seen) < 10:
            raise KeyboardInterrupt

    options = small_options(corpus, checkpoint_steps=2)
    with pytest.raises(KeyboardInterrupt):
        pretrain(options, tmp_path / "run", show=False, on_log=stop)
    again = pretrain(options, tmp_path / "run", show=False, resume=True)
    assert again["held_out"] == whole["held_out"]


def test_zero_evaluations_measure_nothing(corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Pretraining, "score", lambda *_: pytest.fail("something was measured"))
    run = minibert.pretrain(
        corpus, vocab_size=120, seq_length="16", steps=2, evaluations=0, out=tmp_path / "run", show=False
    )
    assert run.report["held_out"] is None
    assert not any("held_out_loss" in line for line in read_metrics(tmp_path / "run"))
    again = Run.open(tmp_path / "run")
    assert again.report["held_out"] is None and "not measured" in repr(again)
    assert "Held-out text was not measured (0 evaluations); minibert evaluate --model" in str(again)
    assert "finished" not in str(again) and (tmp_path / "run" / "report.html").exists()
    assert "It was not measured on held-out text." in card_text_of(tmp_path / "run")
    assert cli.main(["compare", str(tmp_path / "run"), str(tmp_path / "run")]) in (0, 2)


def card_text_of(run):
    folder = run.parent / "exported"
    assert cli.main(["export", "--model", str(run), "--out", str(folder)]) == 0
    return (folder / "README.md").read_text()


def test_zero_evaluations_leave_all_minutes_to_training(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "seconds_per_step", lambda *_: 1.0)
    options = small_options(corpus, steps=None, minutes=1.0, evaluations=0).resolved()
    task = Pretraining(options, prepare_text(options, tmp_path, show=False), create("numpy"))
    said = []
    found = budget.affordable_steps(task, task.start(), budget.time.monotonic(), said.append)
    assert 50 <= found.steps <= 53 and found.held_out_share == 1.0
    assert said[-1].endswith("fit into 1 minute.")


def test_a_rehearsal_says_nothing_of_compiling_where_nothing_is(corpus, tmp_path):
    options = small_options(corpus).resolved()
    task = Pretraining(options, prepare_text(options, tmp_path, show=False), create("numpy"))
    said = []
    assert budget.seconds_per_step(task, task.start(), 8, 0.0, said.append) > 0
    assert said == []


def test_zero_evaluations_keep_the_bits_of_training(corpus, tmp_path):
    for evaluations in (0, 3):
        pretrain(small_options(corpus, evaluations=evaluations), tmp_path / f"{evaluations}", show=False)
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in "03"]
    assert models[0] == models[1]


def test_measuring_shows_a_bar(corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("minibert.training.runlog.QUIET_SECONDS", 0.0)  # where a line stands for the bar
    pretrain(small_options(corpus), tmp_path / "run")
    said = capsys.readouterr().err
    assert "tokens measured" in said.partition("Measuring the held-out loss.")[2]


def test_report_states_the_standard_error_and_its_documents(tmp_path):
    text = write_corpus(tmp_path / "text.txt", documents=100)
    report = pretrain(small_options(text), tmp_path / "run", show=False)
    held_out = report["held_out"]
    assert held_out["documents"] == 20 and 0 < held_out["standard_error"] < 0.5
    expected = f"targets, standard error {held_out['standard_error']:.3f} over 20 documents)"
    assert expected in report_text(report)
    assert f"{held_out['standard_error']:.3f}" in (tmp_path / "run" / "report.html").read_text()
    assert json.loads((tmp_path / "run" / "report.json").read_text())["held_out"] == held_out


@pytest.mark.parametrize("pairs, left_to_right", [(True, False), (False, False), (False, True)])
def test_targets_stand_in_the_documents_that_batches_say(tmp_path, pairs, left_to_right):
    documents = [f"{word} " * 5 for word in ("cat", "dog", "horse", "sheep", "whale", "rabbit")]
    (tmp_path / "text.txt").write_text("\n\n".join("\n".join([line] * 4) for line in documents))
    options = small_options(tmp_path / "text.txt", layout="sentences", next_sentence=pairs)
    text = prepare_text(options, tmp_path / "run", show=False)
    how = InstanceOptions(seq_length=16, next_sentence=pairs, left_to_right=left_to_right)
    instances = Instances(text.shards, np.arange(6), text.tokenizer, how)
    words = [text.shards.document(number)[0][0] for number in range(6)]
    mask_id = None if left_to_right else text.tokenizer.mask_id
    pieces = [set(text.shards.document(number)[0].tolist()) for number in range(6)]
    assert len(set(words)) == 6
    seen = set()
    for batch in evaluation_batches(instances, mask_id, 300):
        for label, document in zip(batch.masked_labels.tolist(), batch.documents.tolist(), strict=True):
            assert label in pieces[document] or label == text.tokenizer.sep_id
            seen.add(document)
    assert seen == set(range(6))


@pytest.mark.thorough
def test_stated_error_is_that_of_other_texts_of_the_same_kind(tmp_path):
    """Forty texts of eight documents, each about an animal in its place, and read many times over."""
    text = write_corpus(tmp_path / "text.txt", documents=60)
    pretrain(small_options(text, steps=40, evaluations=0), tmp_path / "run", show=False)
    rng = np.random.default_rng(3)
    documents = text.read_text().strip().split("\n\n")
    losses, errors = [], []
    for number in range(40):
        chosen = rng.choice(len(documents), 8)
        sample = tmp_path / f"{number}.txt"
        sample.write_text("\n\n".join(documents[one] for one in chosen))
        found = evaluate(tmp_path / "run", (str(sample),), targets=1500, engine="cpp")
        losses.append(found.loss)
        errors.append(found.standard_error)
        assert found.documents == 8
    true = np.std(losses, ddof=1)  # known to 11%
    assert 0.65 * true < np.sqrt(np.mean(np.square(errors))) < 1.5 * true


def test_one_document_has_no_standard_error(tmp_path):
    text = write_corpus(tmp_path / "text.txt", documents=20)
    pretrain(small_options(text, evaluations=0), tmp_path / "run", show=False)
    one = write_corpus(tmp_path / "one.txt", documents=1)
    found = evaluate(tmp_path / "run", (str(one),), targets=100)
    assert found.standard_error is None and found.documents == 1
    assert dataclasses.asdict(found)["standard_error"] is None


def further(corpus, trained, **more):
    return small_options(corpus, **{"model": str(trained), "vocab_size": 8192, "size": None} | more)


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    out = tmp_path_factory.mktemp("trained") / "run"
    pretrain(small_options(corpus, steps=2), out, show=False)
    return out


@pytest.fixture
def scored_tokens(monkeypatch):
    """The number of tokens of every evaluation."""
    tokens = []
    score = Pretraining.score

    def counted(task, params, batches):
        metrics = score(task, params, batches)
        tokens.append(metrics.tokens)
        return metrics

    monkeypatch.setattr(Pretraining, "score", counted)
    return tokens


@pytest.mark.usefixtures("few_passes")
def test_trained_weights_are_measured_before_further_training(corpus, trained, tmp_path, scored_tokens):
    out = tmp_path / "run"
    report = pretrain(further(corpus, trained, learning_rate=1e-2), out, show=False)
    before, after = report["held_out_before"], report["held_out"]
    assert before["targets"] == after["targets"] and after["loss"] < before["loss"]
    first, *_, plain, _ = scored_tokens
    assert first == plain and len(scored_tokens) == 1 + 3 + 2  # before, during, and twice at the end
    change = f"the loss has fallen by {before['loss'] - after['loss']:.3f}"
    assert f"  before this training              {before['loss']:.3f} nats ({change})" in report_text(report)
    rows = Page((out / "report.html").read_text("utf-8")).rows
    assert ["loss, nats, before this training", f"{before['loss']:.3f}"] in rows
    assert ["accuracy, before this training", f"{before['accuracy']:.1%}"] in rows
    assert ["by this training", change] in rows
    assert f"held-out, step 0: {before['loss']:.3f}" in Page((out / "report.html").read_text()).said("title")
    assert str(Run.open(out)) == report_text(report)


@pytest.mark.usefixtures("few_passes")
def test_value_before_training_is_that_of_the_weights_it_began_with(corpus, trained, tmp_path):
    report = pretrain(further(corpus, trained, learning_rate=1e-12), tmp_path / "run", show=False)
    before, after = report["held_out_before"], report["held_out"]
    assert {name: after[name] for name in before} == pytest.approx(before)


@pytest.mark.usefixtures("few_passes")
def test_resumed_run_keeps_the_value_before_training(corpus, trained, tmp_path, scored_tokens):
    text = write_corpus(tmp_path / "text.txt", documents=400)  # of which a longer run measures more
    options = further(text, trained, batch_size=64, steps=2)
    first = pretrain(options, tmp_path / "run", show=False)
    scored_tokens.clear()
    longer = PretrainOptions.resumed(tmp_path / "run" / "training.json", steps=40, evaluations=1)
    again = pretrain(longer, tmp_path / "run", show=False, resume=True)
    assert again["held_out_before"] == first["held_out_before"]
    assert again["held_out"]["targets"] == again["held_out_before"]["targets"]
    assert len(scored_tokens) == 1 + 2


@pytest.mark.usefixtures("few_passes")
def test_new_weights_and_unmeasured_runs_have_no_value_before_training(corpus, trained, tmp_path):
    report = pretrain(small_options(corpus), tmp_path / "new", show=False)
    assert report["held_out_before"] is None and "before this training" not in report_text(report)
    report = pretrain(further(corpus, trained, evaluations=0), tmp_path / "unmeasured", show=False)
    assert report["held_out_before"] is None and "before this training" not in report_text(report)


def test_damaged_value_before_training_is_reported(trained, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    report = json.loads((folder / "report.json").read_text())
    (folder / "report.json").write_text(json.dumps(report | {"held_out_before": {"loss": "low"}}))
    with pytest.raises(minibert.InputError, match="in 'held_out_before' 'loss' is 'low', expected a number"):
        Run.open(folder)
