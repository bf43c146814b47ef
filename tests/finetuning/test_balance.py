"""Rare classes, several labels for a text and LSTMs below the output layer: whole runs of them."""

import html
import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from small_tasks import report_in, small_options, write_several, write_table

from minibert import cli, hub
from minibert.base.errors import InputError
from minibert.core.batch import Feature, Sequence
from minibert.data.glue import TextExample
from minibert.finetuning import balance, splitting
from minibert.finetuning.models import Finetuned
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.run import classify, evaluate, finetune, predict, predicted_text
from minibert.model.batch import TaskBatch
from minibert.model.params import Head
from minibert.reports.results import measured_text, report_text
from minibert.tasks import batches, registry


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Texts with several labels."""
    return write_several(tmp_path_factory.mktemp("data") / "several")


@pytest.fixture(scope="module")
def several(model, data, tmp_path_factory):
    """A run that has learnt them."""
    out = tmp_path_factory.mktemp("runs") / "several"
    finetune(small_options(model, data, "multilabel"), out, show=False)
    return out


def options(task="classify", **given):
    return FinetuneOptions(task, "data", "model", **given)


def labelled(*labels):
    return [TextExample(str(n), "text", None, label) for n, label in enumerate(labels)]


# several labels


def test_several_labels_are_learnt_measured_and_reported(several):
    report = report_in(several)
    assert report["scores"]["macro_f1"] > report["majority"]["macro_f1"] + 0.2
    assert report["interval"][0] > report["majority"]["macro_f1"]
    assert report["scores"]["macro_f1"] >= report["untuned"]["macro_f1"]
    assert report["labels"] == ["blame", "long", "praise"]
    page = (several / "report.html").read_text()
    assert "threshold 0.5" in page and "praise (F1)" in page
    stored = json.loads((several / "task.json").read_text())
    assert stored["tuned"].keys() == set(report["labels"])
    fields = json.loads((several / "config.json").read_text())
    assert fields["problem_type"] == "multi_label_classification"


def test_a_model_of_several_labels_is_measured_and_asked_by_its_thresholds(several, data, tmp_path, capsys):
    report = evaluate(several, engine="numpy")
    assert report["scores"] == pytest.approx(report_in(several)["scores"])
    (one,) = classify(several, ["a charming film"], engine="numpy")
    tuned = Finetuned.from_pretrained(several, "numpy").tuned
    assert one["labels"] == [name for name, p in one["probabilities"].items() if p >= tuned[name]]
    words = ["classify", "--model", str(several), "--engine", "numpy", "a charming film"]
    assert cli.main(words) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert sorted(line[1] for line in lines if "*" in line) == one["labels"]
    assert {line[1]: " ".join(line[-2:]) for line in lines} == {
        name: f"(from {100 * threshold:.2f}%)" for name, threshold in tuned.items()
    }
    assert report["thresholds"] == report_in(several)["thresholds"] == tuned
    (tmp_path / "texts.csv").write_text("text\na charming film\n")
    predicted = predict(several, tmp_path / "texts.csv", "dev", tmp_path / "out", engine="numpy")
    told = ", ".join(f"{name!r} from {threshold:.3f}" for name, threshold in tuned.items())
    for text in (report_text(report_in(several)), measured_text(report), predicted_text(predicted)):
        assert f"  Thresholds of the probabilities: {told}.\n" in text
    page = html.unescape((several / "report.html").read_text())
    assert f"Thresholds of the probabilities: {told}." in page
    (tmp_path / "lines.txt").write_text("a charming film\n")
    assert cli.main([*words[:-1], "--file", str(tmp_path / "lines.txt")]) == 0
    assert capsys.readouterr().out == "|".join(one["labels"]) + "\n"
    found = predict(several, data, "test", tmp_path / "out", engine="numpy")
    assert found["scores"]["macro_f1"] > 0.5 and found["untuned"]["micro_f1"] > 0
    with pytest.raises(InputError, match="is for one class of each text, which multilabel does not predict"):
        predict(several, data, "test", tmp_path / "out", majority=True, engine="numpy")


def test_a_label_seen_only_in_dev_is_refused_before_anything_is_written(model, tmp_path):
    write_table(tmp_path / "train.tsv", ("text", "label"), [("the film", "a|b"), ("a story", "b")])
    write_table(tmp_path / "dev.tsv", ("text", "label"), [("a film", "a"), ("the story", "b|c")])
    with pytest.raises(
        InputError, match="dev.tsv, line 3: the label 'c' is not one of the training examples"
    ):
        finetune(small_options(model, tmp_path, "multilabel"), tmp_path / "run", show=False)
    assert not (tmp_path / "run" / "finetune.json").exists()


def test_a_divided_table_keeps_its_rare_labels_in_both_parts():
    examples = labelled(*[("often",)] * 20, *[("often", "rare")] * 10, *[()] * 10, ("once",))
    train, dev = splitting.split(examples, 0.2, stratified=True)
    assert Counter(one.label for one in dev) == {("often",): 4, ("often", "rare"): 2, (): 2}
    assert ("once",) in [one.label for one in train]


@pytest.mark.parametrize("stratified", [False, True])
def test_pairs_with_the_same_first_text_are_not_divided(stratified):
    rng = np.random.default_rng(0)
    pairs = [TextExample(str(n), f"premise {n // 3}", f"h {n}", "abc"[rng.integers(3)]) for n in range(300)]
    train, dev = splitting.split(pairs, 0.2, stratified)
    assert not {one.first for one in train} & {one.first for one in dev}
    assert sorted(train + dev, key=lambda one: int(one.id)) == pairs
    assert 54 <= len(dev) <= 63
    if stratified:
        counts, taken = (Counter(one.label for one in part) for part in (pairs, dev))
        assert all(abs(taken[label] - 0.2 * counts[label]) <= 3 for label in counts)
    assert splitting.split(pairs, 0.2, stratified) == (train, dev)


# weights of classes


def test_balanced_weights_are_the_inverse_of_how_often_a_class_comes():
    task, examples = registry.create("classify"), labelled("a", "a", "a", "b")
    found = balance.class_weights(options(class_weights="balanced"), task, examples, ("a", "b"))
    assert found.tolist() == pytest.approx([4 / 6, 4 / 2])
    task, examples = registry.create("multilabel"), labelled(("a",), ("a", "b"), ("a",), ())
    found = balance.class_weights(options(class_weights="balanced"), task, examples, ("a", "b"))
    assert found.tolist() == pytest.approx([1 / 3, 3])
    found = balance.class_weights(options(class_weights="b=2.5"), task, examples, ("a", "b"))
    assert found.tolist() == [1, 2.5]
    assert balance.class_weights(options(), task, examples, ("a", "b")) is None


def test_the_first_weight_of_no_class_is_named_beside_the_classes():
    task, examples = registry.create("classify"), labelled("a", "b")
    with pytest.raises(InputError, match="names 'c', which is not a class .*; the classes are a, b"):
        balance.class_weights(options(class_weights="b=2,c=3,d=4"), task, examples, ("a", "b"))


@pytest.mark.parametrize("weights", ["a=0", "a=-1", "a=nan", "a=inf", "a", "a=b", "=2", "", "even"])
def test_weights_that_are_none_are_refused(weights):
    with pytest.raises(InputError, match="class_weights=.* is not valid; give balanced, or NAME=WEIGHT,"):
        options(class_weights=weights)


def test_weights_of_no_class_and_of_no_classes_are_refused(model, sst2, tmp_path):
    with pytest.raises(InputError, match="names 'good', which is not a class .*; the classes are 0, 1"):
        finetune(small_options(model, sst2, class_weights="good=2"), tmp_path / "run", show=False)
    task = registry.create("regress")
    for given in ({"class_weights": "a=1"}, {"sampling": "balanced"}):
        with pytest.raises(
            InputError, match=f"{next(iter(given))}=.* is for tasks that classify texts, which regress"
        ):
            balance.check_balance(options("regress", **given), task)
    assert not (tmp_path / "run" / "finetune.json").exists()


@pytest.mark.thorough
def test_weights_change_what_a_step_learns_and_what_is_unknown_still_weighs_nothing(model, sst2, tmp_path):
    head, sequence = Head("classify", 2), Sequence([2, 3], [0, 0])
    batch = TaskBatch.pack_features([Feature((sequence,), label, None) for label in (1, None, 0, 1)], head)
    found = batches.weighted(batch, head, np.array([1.0, 3.0]))
    assert found.label_weights.tolist() == pytest.approx([3 / 7, 0, 1 / 7, 3 / 7])
    weights = {}
    for name in (None, "0=1,1=1", "1=5"):
        out = tmp_path / str(name)
        finetune(small_options(model, sst2, class_weights=name, max_steps=3, dev_examples=9), out, show=False)
        weights[name] = (out / "model.safetensors").read_bytes()
    assert weights[None] == weights["0=1,1=1"] != weights["1=5"]


# sampling


def test_balanced_epochs_show_classes_equally_and_no_example_early_again():
    groups = np.array([0] * 90 + [1] * 8 + [2] * 2)
    seen = Counter()
    for epoch in range(6):
        order = batches.balanced_order(groups, 7, epoch)
        assert sorted(Counter(groups[order].tolist()).values()) == [33, 33, 34]
        assert (order == batches.balanced_order(groups, 7, epoch)).all()
        seen.update(order.tolist())
        for group in range(3):
            times = [seen[int(one)] for one in np.flatnonzero(groups == group)]
            assert max(times) - min(times) <= 1
    orders = [batches.balanced_order(groups, seed, 0).tolist() for seed in (7, 8)]
    assert orders[0] != orders[1]


def test_a_text_of_several_classes_counts_as_its_rarest():
    examples = labelled(("a",), ("a", "b"), ("a",), ("a", "b", "c"), ())
    assert balance.strata(examples) == ["a", "b", "a", "c", None]
    found = balance.groups(options("multilabel", sampling="balanced"), examples)
    assert found.tolist() == [0, 1, 0, 2, 3]
    assert balance.groups(options("multilabel"), examples) is None


@pytest.mark.thorough
@pytest.mark.parametrize("bilstm", [False, True])
def test_a_balanced_run_that_was_stopped_ends_with_the_same_bytes(model, data, tmp_path, monkeypatch, bilstm):
    given = dict(sampling="balanced", class_weights="blame=2", bilstm=bilstm, max_steps=9, epochs=3)
    given |= dict(train_examples=60, dev_examples=20, checkpoint_steps=2)
    whole = small_options(model, data, "multilabel", **given)
    finetune(whole, tmp_path / "whole", show=False)
    stops = iter([False] * 5 + [True] + [False] * 99)
    from minibert.training import loop

    real = loop.train

    def stopped(ops, state, stream, *rest):
        def cut():
            for one in stream:
                if next(stops):
                    raise KeyboardInterrupt
                yield one

        return real(ops, state, cut(), *rest)

    monkeypatch.setattr("minibert.finetuning.running.train", stopped)
    with pytest.raises(KeyboardInterrupt):
        finetune(whole, tmp_path / "run", show=False)
    finetune(whole, tmp_path / "run", resume=True, show=False)
    for name in ("model.safetensors", "task.json", "dev_predictions.json"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


# LSTMs


@pytest.mark.thorough
def test_lstms_are_trained_saved_and_loaded_again(model, sst2, tmp_path, capsys):
    out = tmp_path / "run"
    finetune(small_options(model, sst2, bilstm=True, epochs=6), out)
    told = capsys.readouterr().err
    assert "LSTMs below the output layer, which only minibert reads and not transformers" in told
    assert "pooler" not in report_in(out)["fresh"] and "LSTMs" in report_in(out)["fresh"]
    params = hub.load(out)[1]
    assert params.head == Head("classify", 2, lstm=True)
    found = Finetuned.from_pretrained(out, "numpy")
    assert found.head == params.head and (found.params.flat == params.flat).all()
    again = evaluate(out, engine="numpy")
    assert again["scores"] == pytest.approx(report_in(out)["scores"])
    assert report_in(out)["scores"]["accuracy"] > 0.8
    plain = small_options(model, sst2, max_steps=1)
    finetune(plain, tmp_path / "plain", show=False)
    assert report_in(tmp_path / "plain")["parameters"] < report_in(out)["parameters"]
    finetune(replace(plain, model=str(out), bilstm=True), tmp_path / "further", show=False)
    assert report_in(tmp_path / "further")["fresh"] == []


@pytest.mark.parametrize("given", [{"bilstm": True}, {"class_weights": "a=2"}, {"sampling": "balanced"}])
def test_what_a_frozen_model_has_no_use_for_is_refused(given):
    with pytest.raises(InputError, match=f"{next(iter(given))}=.* has no effect with feature_based='last'"):
        options("ner", feature_based="last", **given)


def test_classes_are_not_balanced_twice():
    both = options(class_weights="balanced", sampling="balanced")
    message = "class_weights='balanced' and sampling='balanced' both even out the classes; give one of them"
    with pytest.raises(InputError, match=f"^{message}"):
        balance.check_balance(both, registry.create("classify"))
    balance.check_balance(options(class_weights="good=2", sampling="balanced"), registry.create("classify"))
