"""Runs of fine-tuning: what they start from, learn, leave behind and refuse."""

import csv
import dataclasses
import json
import math
import os
import shutil
import warnings
from pathlib import Path

import google_folder
import numpy as np
import pytest
from one_text import fill_masks
from small_tasks import (
    report_in,
    reviews,
    small_options,
    write_model,
    write_sst2,
    write_swag,
    write_table,
)

from minibert import hub
from minibert.ask.inference import Bert
from minibert.base import files
from minibert.base.errors import InputError, RunError
from minibert.base.files import RUN_FILES
from minibert.base.machine import cores
from minibert.core import heads
from minibert.core.gradcheck.cases import SIZES, config_of
from minibert.core.optim import Lamb
from minibert.data.glue import TextExample
from minibert.finetuning import predicting, running, whole_model
from minibert.finetuning.models import Finetuned, TaskFile, start_from
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.preparation import prepare
from minibert.finetuning.run import classify, evaluate, finetune, predict, predicted_text
from minibert.gradcheck.drawn import random_parameters, random_task_batch
from minibert.model.ops import Ops
from minibert.model.params import Head
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.run import pretrain
from minibert.reports.results import measured_text, report_text
from minibert.tasks import registry
from minibert.tasks.batches import epoch_order
from minibert.tasks.sentences import Sentences
from minibert.tokenizer import Tokenizer
from minibert.training.runlog import read_metrics

# what a run starts from


@pytest.mark.thorough
def test_a_head_is_kept_for_the_same_thing_and_fresh_for_another(model, run, tmp_path):
    def start(folder, head, task, labels):
        return start_from(FinetuneOptions(task, folder, folder, seed=3, dropout=0.1), head, labels)

    trained = hub.load(run)[1]
    two = Head("classify", 2)
    params, fresh = start(run, two, "sst2", ("0", "1"))
    assert fresh == [] and np.array_equal(params["head.weight"], trained["head.weight"])
    params, fresh = start(run, two, "cola", ("0", "1"))
    assert fresh == ["output layer"]
    assert not np.array_equal(params["head.weight"], trained["head.weight"])
    assert np.array_equal(params["layers.1.attention.qkv_weight"], trained["layers.1.attention.qkv_weight"])
    assert start(run, Head("classify", 3), "mnli", ("a", "b", "c"))[1] == ["output layer"]
    assert start(run, Head("span", 2), "squad1", ())[1] == ["output layer"]
    assert start(model, two, "sst2", ("0", "1"))[1] == ["output layer"]
    assert start(model, two, "sst2", ("0", "1"))[0].config.hidden_dropout_prob == 0.1
    # a folder of Hugging Face's says with its labels what its head is for
    theirs = write_model(tmp_path / "theirs", two, labels=("entailment", "not_entailment"))
    assert start(theirs, two, "rte", ("entailment", "not_entailment"))[1] == []
    assert start(theirs, two, "sst2", ("0", "1"))[1] == ["output layer"]
    # numbers are those of one task, as STS-B's, or SICK's in its place
    one = Head("regress", 1)
    for task, kept in (("stsb", ("stsb", "sick-score")), ("regress", ("regress",))):
        numbers = write_model(tmp_path / task, one)
        TaskFile(task, (), 64, {"text": "a", "label": "b"} if task == "regress" else {}).save(numbers)
        for asked in ("stsb", "sick-score", "regress"):
            assert start(numbers, one, asked, ())[1] == ([] if asked in kept else ["output layer"])
    spans = write_model(tmp_path / "spans", Head("span", 2))
    assert start(spans, Head("span", 2), "squad2", ())[1] == []
    assert start(spans, two, "rte", ("entailment", "not_entailment"))[1] == ["pooler", "output layer"]


def test_fresh_heads_differ_by_seed_only(model):
    def start(seed):
        options = FinetuneOptions("rte", model, model, seed=seed).resolved()
        return start_from(options, Head("classify", 2), ("a", "b"))[0].flat

    assert np.array_equal(start(1), start(1)) and not np.array_equal(start(1), start(2))


def test_a_left_to_right_model_starts_left_to_right(tmp_path):
    folder = write_model(tmp_path / "ltr", is_decoder=True)
    config = start_from(FinetuneOptions("rte", folder, folder).resolved(), Head("classify", 2), ("a", "b"))[
        0
    ].config
    assert config.is_decoder and config.hidden_dropout_prob == 0.1


# a run


@pytest.mark.slow
def test_a_model_pretrained_left_to_right_stays_so_when_it_is_fine_tuned(tmp_path):
    corpus = tmp_path / "reviews.txt"
    texts = [sentence for sentence, _ in reviews(400, 7)]
    corpus.write_text("\n\n".join("\n".join(texts[i : i + 8]) for i in range(0, 400, 8)), encoding="utf-8")
    pretraining = PretrainOptions(
        corpus=(str(corpus),), layout="sentences", vocab_size=80, size="tiny", seq_length="16",
        batch_size=8, steps=40, max_positions=24, left_to_right=True, held_out=0.2, engine="numpy",
        evaluations=1,
    )  # fmt: skip
    pretrain(pretraining, tmp_path / "model", show=False)
    out = tmp_path / "tuned"
    finetune(small_options(tmp_path / "model", write_sst2(tmp_path / "data")), out, show=False)
    report = report_in(out)
    assert report["scores"]["accuracy"] > 0.9 > 0.6
    assert hub.load(out)[0].is_decoder
    model, tokenizer = Bert.from_pretrained(out, "numpy"), Tokenizer.from_pretrained(out)
    texts = [tokenizer(f"the film was {word}") for word in ("warm", "dark")]
    assert len(texts[0]) == len(texts[1])  # sums of one length are rounded alike
    one, other = map(model.encode, texts)
    assert np.array_equal(one.hidden_states[-1][:4], other.hidden_states[-1][:4])  # no look ahead
    assert not np.allclose(one.pooled, other.pooled)
    with pytest.raises(InputError, match=f"^The model in '{out}' has no trained masked-LM head"):
        fill_masks(model, "the film was [MASK]")


def test_a_run_learns_its_task(run):
    report = report_in(run)
    assert report["scores"]["accuracy"] > 0.95
    low, high = report["interval"]
    assert low <= report["scores"]["accuracy"] <= high
    assert report["steps"] == 6 * 10 and report["train_examples"] == 160 and report["examples"] == 60
    assert (report["engine"], report["dtype"], report["cores"]) == ("numpy", "float32", cores())


def test_a_run_folder_holds_what_it_says_and_nothing_of_the_way_there(run):
    names = {path.name for path in run.iterdir()} - {"tensorboard"}
    assert names == {
        "finetune.json", "metrics.jsonl", "config.json", "model.safetensors", "vocab.txt", "tokenizer.json",
        "tokenizer_config.json", "task.json", "dev_predictions.json", "trained_texts.json", "report.html",
        "report.json",
    }  # fmt: skip
    assert json.loads((run / "task.json").read_text()) == {
        "task": "sst2",
        "labels": ["0", "1"],
        "max_length": 24,
        "columns": {},
        "tuned": {},
    }
    config = json.loads((run / "config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["id2label"] == {"0": "0", "1": "1"}


def test_figures_of_dev_stand_in_the_metrics_after_every_epoch(run):
    lines = read_metrics(run)
    looks = [line["step"] for line in lines if "dev_accuracy" in line]
    assert looks == [10, 20, 30, 40, 50, 60]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert len(losses) == 60 and np.mean(losses[-10:]) < 0.3 < np.mean(losses[:5])
    best = max(line["dev_accuracy"] for line in lines if "dev_accuracy" in line)
    assert report_in(run)["scores"]["accuracy"] == best


def test_evaluating_a_run_gives_the_figures_of_its_report(run, sst2):
    report = report_in(run)
    for data in (None, sst2):
        found = evaluate([run], data, engine="numpy")
        assert found["scores"] == report["scores"] and found["interval"] == report["interval"]
    assert "accuracy" in measured_text(found) and "95% interval (Wilson): " in measured_text(found)


def test_evaluating_on_data_without_a_name_is_refused(run):
    with pytest.raises(InputError, match="^data='' names no file or folder; give one[.]$"):
        evaluate(run, "", engine="numpy")


def test_one_model_and_single_texts_are_asked_as_they_are(run, sst2):
    assert evaluate(run, sst2, engine="numpy") == evaluate([run], sst2, engine="numpy")
    texts = ["the film was very charming", "no"]
    found = classify(run, texts, engine="numpy")
    assert found == classify(run, [(text, None) for text in texts], engine="numpy")
    with pytest.raises(InputError, match=r"texts='no' is one text; give a list"):
        classify(run, "no", engine="numpy")


def test_the_stored_predictions_are_those_of_the_stored_model(run, sst2):
    model = Finetuned.from_pretrained(run, "numpy")
    examples = model.task.read(sst2, "dev")
    found = list(predicting.predict_examples([model], examples))
    assert found == json.loads((run / "dev_predictions.json").read_text())


def test_the_report_reads_like_a_report(run):
    text = report_text(report_in(run))
    assert "SST-2: is the film review good, 60 examples" in text
    assert "The best epoch on dev was" in text and f"Run folder: {run}" in text
    page = (run / "report.html").read_text()
    assert "SST-2" in page and "training loss" in page
    options = json.loads((run / "finetune.json").read_text())
    for name in ("data", "model"):  # by name only: a page is passed on
        assert str(Path(options[name]).parent) not in page and Path(options[name]).name in page


@pytest.mark.thorough
def test_the_best_epoch_is_kept(model, sst2, tmp_path, monkeypatch):
    said, weights = (
        iter([0.5, 0.9, 0.9, 0.7, 0.6, 0.6, 0.6]),
        [],
    )  # of two that are as good, the first; what is simpler
    monkeypatch.setattr(Sentences, "score", lambda *_: {"accuracy": next(said)})
    evaluate = running.Run.evaluate

    def watched(self, state):
        weights.append(state.params.flat.copy())
        return evaluate(self, state)

    monkeypatch.setattr(running.Run, "evaluate", watched)
    report = finetune(small_options(model, sst2, epochs=4), tmp_path / "run", show=False)
    assert report["best_epoch"] == 2 and report["best_step"] == 20 and report["scores"] == {"accuracy": 0.9}
    assert len(weights) == 4
    assert np.array_equal(hub.load(tmp_path / "run")[1].flat, weights[1])


def test_a_run_of_less_than_an_epoch_is_measured_at_its_end(model, sst2, tmp_path):
    report = finetune(small_options(model, sst2, epochs=2.5, max_steps=13), tmp_path / "run", show=False)
    assert report["steps"] == 13
    looks = [line["step"] for line in read_metrics(tmp_path / "run") if "dev_accuracy" in line]
    assert looks == [10, 13]


def test_frozen_layers_stay_as_they_are(model, sst2, tmp_path):
    before = hub.load(model)[1]
    finetune(
        small_options(model, sst2, freeze=1, max_steps=4, weight_decay=0.5), tmp_path / "run", show=False
    )
    after = hub.load(tmp_path / "run")[1]
    for name, value in after.items():
        if name.startswith("head"):
            continue
        frozen = name.startswith(("embeddings", "layers.0."))
        assert np.array_equal(value, before[name]) == frozen, name


def test_rates_rise_and_fall_over_the_whole_run(model, sst2, tmp_path):
    finetune(small_options(model, sst2, max_steps=10, warmup=0.2), tmp_path / "run", show=False)
    rates = [line["learning_rate"] for line in read_metrics(tmp_path / "run") if "learning_rate" in line]
    assert rates == pytest.approx(
        [5e-3 * x for x in (0, 0.5, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8)]
    )


@pytest.mark.thorough
def test_micro_batches_give_the_same_run(model, sst2, tmp_path):
    for accumulate in (1, 3):
        options = small_options(model, sst2, max_steps=5, accumulate=accumulate, dtype="float64")
        finetune(options, tmp_path / str(accumulate), show=False)
    one, other = (hub.load(tmp_path / name, np.float64)[1].flat for name in ("1", "3"))
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)  # what Adam makes of rounding


def test_a_model_that_is_fine_tuned_can_be_fine_tuned_for_something_else(run, rte, tmp_path, capsys):
    finetune(small_options(run, rte, "rte", max_steps=2), tmp_path / "run", show=True)
    said = capsys.readouterr().err
    assert "output layer with initial values" in said and "40 training examples, 40 in dev" in said
    assert json.loads((tmp_path / "run" / "task.json").read_text())["labels"] == [
        "entailment",
        "not_entailment",
    ]


def test_a_custom_table_is_split_learnt_and_asked(model, tmp_path):
    rows = [(text, "liked" if label == "1" else "hated") for text, label in reviews(200, 9)]
    data = write_table(tmp_path / "all.tsv", ("review", "verdict"), rows)
    other = write_table(tmp_path / "other.tsv", ("review", "verdict"), rows[:50])
    options = small_options(
        model, data, "classify", columns={"text": "review", "label": "verdict"}, split_dev=0.25
    )
    report = finetune(options, tmp_path / "run", show=False)
    assert report["train_examples"] == 150 and report["examples"] == 50
    assert report["scores"]["accuracy"] > 0.95 and report["labels"] == ["hated", "liked"]
    # measured on what was held out, not on the file
    again = evaluate([tmp_path / "run"], engine="numpy")
    shared = ("scores", "macro_f1", "classes", "majority", "bag_of_words")
    assert {name: again[name] for name in shared} == {name: report[name] for name in shared}
    liked = sum(label == "liked" for _, label in rows)
    of_dev, of_train = report["classes"], report["train_classes"]
    assert abs(of_dev["liked"] - liked / 4) <= 0.5 and of_dev["liked"] + of_train["liked"] == liked
    usual = max(of_dev, key=of_dev.get)
    accuracy = of_dev[usual] / 50
    assert report["majority"] == {
        "label": usual,
        "scores": {"accuracy": accuracy, "matthews": 0.0},
        "macro_f1": pytest.approx(accuracy / (1 + accuracy)),  # F1 of 2a / (1 + a), and of 0
    }
    assert report["bag_of_words"]["scores"]["accuracy"] == 1  # a word tells the class
    assert (
        json.loads((tmp_path / "run" / "report.json").read_text())["bag_of_words"] == report["bag_of_words"]
    )
    worth = (
        "Not better than a bag of words (naive Bayes), as far as these examples show: is BERT worth it here?"
    )
    assert "  bag of words\n  accuracy" in report_text(report) and worth in report_text(report)
    html = (tmp_path / "run" / "report.html").read_text()
    assert "bag of words: 100.00" in html and worth in html
    told = predicted_text(predict([tmp_path / "run"], None, "dev", tmp_path / "said", engine="numpy"))
    assert "bag of words" in told and worth not in told
    assert (
        f"always {usual!r}  bag of words\n" in told
        and f"examples measured: {usual!r} {of_dev[usual]}" in told
    )
    found = classify(tmp_path / "run", [("the film was very charming", None)], engine="numpy")
    assert found[0]["label"] == "liked"
    data.unlink()  # without what was learnt from, nobody knows its words
    assert "bag_of_words" not in evaluate([tmp_path / "run"], other, engine="numpy")
    assert sum(found[0]["probabilities"].values()) == pytest.approx(1.0)


# what the options reach


class Captured(Exception):
    """In place of training."""


@pytest.fixture
def unusual(model, sst2, tmp_path):
    """A run of a hundred steps with options of which none is the default."""
    options = small_options(
        model, sst2, epochs=10, seed=6, dropout=0.3, attention_dropout=0.2, learning_rates=(0.5,), warmup=0.2,
        google_decay=True, bias_correction=False, beta1=0.8, beta2=0.95, adam_eps=1e-3, weight_decay=0.07,
        clip_norm=2.5, optimizer="lamb", freeze=1, span_weight=1.0, accumulate=3, checkpoint_seconds=7.0,
        checkpoint_steps=9, keep=5,
    )  # fmt: skip
    return whole_model.WholeRun(options, prepare(options), Ops(), tmp_path / "run", show=False)


def test_options_reach_the_model_the_optimizer_and_the_learning_rate(unusual):
    state = unusual.start()
    config, optimizer = state.params.config, state.optimizer
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.3, 0.2)
    assert isinstance(optimizer, Lamb) and optimizer.begin == state.params.trained_from(1) > 0
    assert (optimizer.beta1, optimizer.beta2, optimizer.eps) == (0.8, 0.95, 1e-3)
    assert (optimizer.weight_decay, optimizer.clip_norm, optimizer.bias_correction) == (0.07, 2.5, False)
    rates = [unusual.rate(step) for step in (0, 10, 19, 20, 60)]
    assert rates == pytest.approx([0, 0.25, 0.475, 0.4, 0.2])
    options = FinetuneOptions("sst2", unusual.options.data, unusual.options.model, seed=6).resolved()
    begun, _ = start_from(options, unusual.prepared.data.head, ("0", "1"))
    np.testing.assert_array_equal(state.params.flat, begun.flat)


def test_options_reach_the_loop_and_the_order_of_the_examples(unusual, monkeypatch):
    def captured(ops, state, batches, objective, loop, log):
        raise Captured(batches, loop)

    monkeypatch.setattr(running, "train", captured)
    with pytest.raises(Captured) as caught:
        running.run_once(unusual, 0.0)
    batches, loop = caught.value.args
    assert (loop.total_steps, loop.evaluate_steps, loop.accumulate, loop.max_checkpoints) == (100, 10, 3, 5)
    assert (loop.save_seconds, loop.save_steps) == (7.0, 9)
    features = unusual.prepared.train
    chosen = [features[i].sequences[0].input_ids for i in epoch_order(len(features), seed=6, epoch=0)[:16]]
    np.testing.assert_array_equal(next(batches)[0].input_ids, np.concatenate(chosen))


@pytest.mark.parametrize(
    "head",
    [Head("classify", 3), Head("choice", 1), Head("span", 2), Head("tag", 5)],
    ids=lambda head: head.kind,
)
def test_figures_of_a_step_follow_from_seed_and_step(unusual, head):
    rng = np.random.default_rng(0)
    config = config_of(SIZES["ugly"], hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.2)
    params, batch = random_parameters(config, rng, head), random_task_batch(SIZES["ugly"], head, rng)
    drop = Ops().dropout(batch, 0.3, 0.2, seed=6, step=5)
    loss, _ = heads.loss(Ops(), config, head, params.tree, batch, drop, span_weight=1.0)

    def figures(batch):
        grads = params.zeros_like()
        objective = unusual.objective(params)
        found, saved = objective.forward(Ops(), params.tree, batch, 5)
        objective.backward(Ops(), saved, params.tree, grads.tree)
        frozen, trained = np.split(grads.flat, [params.trained_from(1)])
        assert not frozen.any() and trained.any()
        return found

    assert figures(batch)["loss"] == float(loss.loss)
    if head.kind == "span":
        return
    scores = loss.logits.reshape(len(batch.labels), -1)
    for labels, share in ((scores.argmax(1), 1), (scores.argmin(1), 0)):
        right = figures(dataclasses.replace(batch, labels=labels))["accuracy"]
        assert right == pytest.approx(share * batch.label_weights.sum())


# bad input: a clear sentence, and nothing is written


def fails(options, out, message, error=InputError):
    with pytest.raises(error, match=message):
        finetune(options, out, show=False)
    assert not out.exists()


def test_bad_input_is_found_before_anything_is_written(model, sst2, rte, tmp_path):
    out = tmp_path / "run"
    fails(small_options(model, rte), out, "is not the train file of SST-2")
    fails(small_options(model, tmp_path / "nowhere"), out, "There is no folder")
    fails(small_options(tmp_path / "nowhere", sst2), out, "nowhere")
    fails(small_options(model, sst2, max_length=25), out, "max_length=25 is longer than the 24 positions")
    fails(small_options(model, sst2, freeze=3), out, "freeze=3 is too many: .* has 2 layers; give at most 2")
    fails(small_options(model, sst2, "sst3"), out, "did you mean sst2")
    fails(small_options(model, sst2, engine="abacus"), out, "engine='abacus' is not an engine")
    fails(
        small_options(model, sst2 / "dev.tsv", "classify"),
        out,
        "say which share of it is for dev, such as split_dev=0.1",
    )


def test_a_dev_file_without_labels_is_found_before_anything_is_learnt(model, tmp_path):
    (tmp_path / "eng.train").write_text("the B-X\nfilm O\n")
    (tmp_path / "eng.testa").write_text("the\nfilm\n")
    fails(small_options(model, tmp_path, "ner"), tmp_path / "run", "1 of 1 dev examples have no label")
    asked = {"id": "1", "question": "the", "answers": [{"text": "a film", "answer_start": 0}]}
    for split in ("train", "dev"):
        paragraph = {"context": "a film is warm", "qas": [asked]}
        (tmp_path / f"{split}-v1.1.json").write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
        asked = asked | {"answers": []}
    fails(small_options(model, tmp_path, "squad1"), tmp_path / "run", "the first is number 1")
    both = [asked | {"id": "2", "answers": [{"text": "a film", "answer_start": 0}]}, asked]
    paragraph = {"context": "a film is warm", "qas": both}
    (tmp_path / "dev-v1.1.json").write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    fails(small_options(model, tmp_path, "squad1"), tmp_path / "run", "1 of 2 dev examples have no label")


def test_a_task_file_that_cannot_be_read_is_found_before_anything_is_written(run, sst2, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(run, model)
    (model / "task.json").write_text("{")
    fails(small_options(model, sst2), tmp_path / "run", "task.json can't be read as JSON")
    fails(small_options(model, sst2, restarts=2), tmp_path / "run", "task.json can't be read as JSON")


def test_a_checkpoint_of_tensorflow_is_begun_with_by_its_folder_or_its_path(run, sst2, tmp_path):
    folder = tmp_path / "tf"
    config, params, _ = hub.load(run)
    google_folder.write(folder, config, params, ("0", "1"))
    Tokenizer.from_pretrained(run).save_pretrained(folder)
    said = []
    for number, model in enumerate((folder, folder / "bert_model.ckpt")):
        out = tmp_path / str(number)
        finetune(small_options(model, sst2, max_steps=1), out, show=False)
        said.append((out / "model.safetensors").read_bytes())
    assert said[0] == said[1]


@pytest.fixture
def own(tmp_path):
    """Writes a table of one's own."""

    def write(train, dev):
        write_table(tmp_path / "own" / "train.tsv", ("text", "label"), train)
        write_table(tmp_path / "own" / "dev.tsv", ("text", "label"), dev)
        return tmp_path / "own"

    return write


def test_labels_and_sentences_that_make_no_sense_are_refused(model, tmp_path, own):
    out = tmp_path / "run"
    two = [("the film", "a"), ("a story", "b")]
    data = own(two, [("a film", "c")])
    fails(
        small_options(model, data, "classify"),
        out,
        f"^{data}/dev.tsv, line 2: the label 'c' is not one of the training examples",
    )
    data = own(two, [("the film", "c")])  # a text of train.tsv, too
    fails(small_options(model, data, "classify"), out, "dev.tsv, line 2: the label 'c'")
    data = own([*two, (" ", "a")], two)
    fails(small_options(model, data, "classify"), out, "has no text")
    data = own([*two, ("\u200b", "a")], two)
    fails(small_options(model, data, "classify"), out, f"^{data}/train.tsv, line 4: a text is empty")
    data = own([("the film", "x")], two)
    fails(small_options(model, data, "regress"), out, "'label' is 'x', not a number; correct it, or")
    data = own([("the film", 1), ("a story", 2)], [("a film", 1)])
    fails(small_options(model, data, "regress"), out, "dev has one example, and a correlation needs two")
    data = own([("the film", "a")], two)
    fails(small_options(model, data, "classify"), out, "train: every training example has the label 'a'; ")


def test_classes_with_too_few_examples_are_named_in_the_words_of_the_file(model, tmp_path):
    rows = [{"said": f"the film\n{n}", "kind": "ab"[n % 2]} for n in range(40)]
    rows[30]["kind"] = "once"
    rows[35]["kind"] = rows[37]["kind"] = "twice"
    path = tmp_path / "all.csv"
    with open(path, "w", newline="") as file:  # each row over two lines
        writer = csv.DictWriter(file, ("said", "kind"))
        writer.writeheader()
        writer.writerows(rows)
    columns = {"text": "said", "label": "kind"}
    options = small_options(model, path, "classify", columns=columns, split_dev=0.1, max_steps=1)
    sentence = (
        r"2 of 4 classes have too few examples: 'once' has 1 in train \(.*all.csv, line 62\) and 0 in dev; "
        "'twice' has 2 in train and 0 in dev. The metrics say nothing about a class"
    )
    with pytest.warns(UserWarning, match=sentence):
        finetune(options, tmp_path / "run", show=False)


def test_classes_with_enough_examples_are_not_named(model, tmp_path, own):
    data = own(reviews(40, 1), reviews(20, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        finetune(small_options(model, data, "classify", max_steps=1), tmp_path / "run", show=False)


def test_labels_are_ordered_as_numbers_only_where_all_are_that():
    examples = [TextExample(str(n), "a film", None, label) for n, label in enumerate(("10", "9", "-1"))]
    task = registry.create("classify")
    assert task.labels(examples) == ("-1", "9", "10")
    assert task.labels([*examples, TextExample("3", "a film", None, "²")]) == ("-1", "10", "9", "²")


def test_half_a_character_is_written_as_json_has_it(model, tmp_path):
    rows = [{"text": f"a film {half}", "label": half} for half in ("\ud83d", "b")]
    for split in ("train", "dev"):
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "run"
    report = finetune(small_options(model, tmp_path, "classify", epochs=1), out, show=False)
    assert report_in(out) == report and report["labels"] == ["b", "\ud83d"]
    assert (out / "report.html").read_bytes().decode()
    predict([out], None, "dev", tmp_path / "said", engine="numpy")
    lines = (tmp_path / "said" / "classify-dev.jsonl").read_text("utf-8").splitlines()
    assert set(json.loads(lines[0])["probabilities"]) == {"b", "\ud83d"}


def test_a_vocabulary_larger_than_the_models_is_refused(sst2, tmp_path):
    folder = write_model(tmp_path / "model", vocab_size=20)
    fails(small_options(folder, sst2), tmp_path / "run", "has 23 pieces, but the model was trained with 20")


def test_a_model_of_one_segment_reads_no_pairs(sst2, rte, tmp_path):
    folder = write_model(tmp_path / "model", type_vocab_size=1)
    fails(small_options(folder, rte, "rte"), tmp_path / "run", "knows one segment only")
    options = small_options(folder, sst2, max_steps=1, train_examples=1)
    with pytest.warns(UserWarning, match="'1' has 0 in train"):
        assert finetune(options, tmp_path / "run", show=False)["steps"] == 1


def test_a_folder_with_something_in_it_is_not_written_over(model, sst2, run, tmp_path):
    before = (run / "report.json").read_bytes()
    with pytest.raises(InputError, match="already holds a run; resume it with resume=True"):
        finetune(small_options(model, sst2), run, show=False)
    with pytest.raises(
        InputError, match="holds config.json, model.safetensors, tokenizer_config.json, vocab.txt.* of some"
    ):
        finetune(small_options(model, sst2), model, show=False)
    (tmp_path / "training.json").write_text('{"corpus": []}')
    with pytest.raises(InputError, match="' holds a run of minibert pretrain; choose another `out`"):
        finetune(small_options(model, sst2), tmp_path, show=False)
    with pytest.raises(InputError, match="is a file"):
        finetune(small_options(model, sst2), sst2 / "dev.tsv", show=False)
    with pytest.raises(InputError, match=r"seed=9 \(the run has 0\)"):
        finetune(small_options(model, sst2, seed=9), run, resume=True, show=False)
    assert (run / "report.json").read_bytes() == before


@pytest.mark.parametrize("name", sorted({*RUN_FILES} - {"finetune.json"}))
def test_what_the_run_would_write_or_remove_is_left_alone(model, sst2, tmp_path, name):
    """In its own folder, and in that of a run of a sweep."""
    for out, rates in ((tmp_path / "one", (0.1,)), (tmp_path / "sweep", (0.1, 0.2))):
        place = out / name if len(rates) == 1 else out / "lr0.2-seed0" / name
        file = place if "." in name else place / "x"
        file.parent.mkdir(parents=True)
        file.write_text("mine")
        with pytest.raises(InputError, match=f"'{place.parent}' holds {name} of something that is not a run"):
            finetune(small_options(model, sst2, learning_rates=rates), out, show=False)
        assert [path for path in out.rglob("*") if path.is_file()] == [file] and file.read_text() == "mine"


@pytest.mark.thorough
def test_going_on_with_other_data_is_refused(model, tmp_path, monkeypatch):
    data, out = write_sst2(tmp_path / "data"), tmp_path / "run"
    options = small_options(model, data, checkpoint_steps=2)
    with monkeypatch.context() as patch:
        patch.setattr(running.Run, "evaluate", lambda self, state: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            finetune(options, out, show=False)
    write_sst2(data, n_train=150)
    with pytest.raises(InputError, match="there were 160 training examples or windows, now there are 150"):
        finetune(options, out, resume=True, show=False)
    write_sst2(data, n_dev=61)  # what was best on dev would be compared with figures of another
    with pytest.raises(InputError, match="there were other examples or labels"):
        finetune(options, out, resume=True, show=False)
    write_sst2(data)
    finetune(options, out, resume=True, show=False)


def test_a_folder_without_a_finished_model_says_so(model, run, tmp_path):
    with pytest.raises(InputError, match="holds no fine-tuned model .*; make one with minibert finetune"):
        Finetuned.from_pretrained(model, "numpy")
    with pytest.raises(InputError, match="There is no folder"):
        Finetuned.from_pretrained(tmp_path / "nowhere", "numpy")
    half = tmp_path / "half done"
    FinetuneOptions("rte", "d", "m").save(half / "finetune.json")
    with pytest.raises(InputError, match="not finished: minibert finetune --resume --out '.*half done'[.]$"):
        Finetuned.from_pretrained(half, "numpy")
    (half / "task.json").write_text('{"task": "rte"}')
    with pytest.raises(InputError, match="task.json can't be read"):
        Finetuned.from_pretrained(half, "numpy")
    TaskFile("mnli", ("a", "b", "c"), 24).save(half)
    for name in ("config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json"):
        (half / name).write_bytes((run / name).read_bytes())
    with pytest.raises(InputError):
        Finetuned.from_pretrained(half, "numpy")


@pytest.mark.thorough
def test_a_full_disk_leaves_no_half_file(model, sst2, tmp_path, monkeypatch):
    out, real = tmp_path / "run", files._flush_to_disk

    def full(path):
        if path.name.startswith(".model.safetensors"):
            raise OSError(28, os.strerror(28))
        real(path)

    with monkeypatch.context() as patch:
        patch.setattr(files, "_flush_to_disk", full)
        with pytest.raises(RunError, match="No space left on device"):
            finetune(small_options(model, sst2, max_steps=11, checkpoint_steps=5), out, show=False)
    assert not list(out.rglob(".*.tmp")) and not list(out.rglob("model.safetensors"))
    report = finetune(
        small_options(model, sst2, max_steps=11, checkpoint_steps=5), out, resume=True, show=False
    )
    assert report["steps"] == 11 and (out / "model.safetensors").exists()


def test_a_disk_that_is_full_of_predictions_leaves_none(run, tmp_path, monkeypatch):
    out = tmp_path / "said"

    def full(*_):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(files.os, "replace", full)
    with pytest.raises(RunError, match="No space left"):
        predict([run], None, "test", out, engine="numpy")
    assert not out.exists()


def test_a_loss_that_is_no_number_is_a_failed_run(model, sst2, tmp_path, monkeypatch):
    loss = heads.loss

    def broken(*given):
        found, saved = loss(*given)
        return found._replace(loss=math.nan), saved

    monkeypatch.setattr(heads, "loss", broken)
    with pytest.raises(RunError, match="The loss of step 1 is nan"):
        finetune(small_options(model, sst2), tmp_path / "run", show=False)
    assert not (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_last_step_that_leaves_the_numbers_is_a_failed_run(model, sst2, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(RunError, match="After step 1 the scores of dev are not finite"):
        finetune(small_options(model, sst2, max_steps=1, learning_rates=(1e38,)), out, show=False)
    assert not (out / "model.safetensors").exists() and not (out / "best").exists()


@pytest.mark.thorough
def test_a_run_cut_off_while_it_is_finished_is_finished_later(model, sst2, run, tmp_path, monkeypatch):
    out = tmp_path / "run"
    options = small_options(model, sst2)
    with monkeypatch.context() as patch:
        patch.setattr(running, "save_report", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            finetune(options, out, show=False)
    assert not (out / "report.json").exists()
    finetune(options, out, resume=True, show=False)
    for name in ("model.safetensors", "task.json", "dev_predictions.json"):
        assert (out / name).read_bytes() == (run / name).read_bytes()
    assert report_in(out)["scores"] == report_in(run)["scores"]


def test_a_dev_file_alone_is_divided_by_its_contexts(tmp_path):
    rows = [
        {"ind": n, "ctx_a": f"the film {n // 2}", "ctx_b": "it", "endings": ["a", "b"], "label": "0"}
        for n in range(60)
    ]
    (tmp_path / "hellaswag_val.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = registry.create("hellaswag-dev")
    train, dev = task.read(tmp_path, "train"), task.read(tmp_path, "dev")
    assert len(train) + len(dev) == 60 and 0 < len(dev) < 30
    assert {e.context for e in train}.isdisjoint(e.context for e in dev)


def test_swag_runs_from_its_files_to_its_figures(model, tmp_path):
    data, out = write_swag(tmp_path), tmp_path / "run"
    report = finetune(small_options(model, data, "swag", epochs=4), out, show=False)
    assert report["scores"]["accuracy"] > 0.95
    assert hub.load(out)[1].head == Head("choice", 1)
    found = predict([out], None, "dev", tmp_path / "said", engine="numpy")
    assert found["scores"] == report["scores"]
    lines = Path(found["files"][0]).read_text().splitlines()
    assert lines[0] == "id,pred" and len(lines) == 65
