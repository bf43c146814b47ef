"""Fine-tuning: options, batches, runs, sweeps, ensembles, files, and what each part refuses."""

import csv
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
from small_tasks import (
    GOOD,
    WORDS,
    reviews,
    small_config,
    write_model,
    write_rte,
    write_sst2,
    write_table,
)

from minibert import files, finetune as finetuning, heads, hub
from minibert.batch import Feature, Sequence, TaskBatch
from minibert.data.choice import ChoiceExample
from minibert.data.glue import TextExample
from minibert.data.ner import TaggedSentence
from minibert.errors import InputError, RunError
from minibert.finetune import classify, evaluate, finetune, measured_text, predict, report_text
from minibert.finetuning import batches, predicting, preparation, registry, running, submissions
from minibert.finetuning.choices import Choices
from minibert.finetuning.models import Finetuned, TaskFile, start_from
from minibert.finetuning.options import SWEEP, FinetuneOptions
from minibert.finetuning.results import figure_text, sweep_table
from minibert.finetuning.sentences import Sentences, own_file
from minibert.flops import step_operations, task_operations
from minibert.ops import Ops
from minibert.params import Head, initialise
from minibert.runlog import read_metrics
from minibert.tokenizer import Tokenizer

QUICK = dict(backend="numpy", batch_size=16, learning_rates=(5e-3,), dropout=0.1)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The folder of a pre-trained model, so to say."""
    return write_model(tmp_path_factory.mktemp("models") / "small")


@pytest.fixture(scope="module")
def sst2(tmp_path_factory):
    return write_sst2(tmp_path_factory.mktemp("data") / "SST-2")


@pytest.fixture(scope="module")
def rte(tmp_path_factory):
    return write_rte(tmp_path_factory.mktemp("data") / "RTE")


def small_options(model, data, task="sst2", **more):
    return FinetuneOptions(**dict(task=task, data=data, model=model, epochs=6) | QUICK | more)


@pytest.fixture(scope="module")
def run(model, sst2, tmp_path_factory):
    """A run folder, finished, that has learnt its task."""
    out = tmp_path_factory.mktemp("runs") / "sst2"
    finetune(small_options(model, sst2), out, show=False)
    return out


@pytest.fixture(scope="module")
def other_run(model, sst2, tmp_path_factory):
    """The same with another seed, and shorter."""
    out = tmp_path_factory.mktemp("runs") / "other"
    finetune(small_options(model, sst2, seed=7, epochs=1), out, show=False)
    return out


def report_in(folder):
    return json.loads((folder / "report.json").read_text())


# the options


def test_what_is_not_said_follows_the_paper():
    def recipe(task):
        options = FinetuneOptions(task, "d", "m").resolved()
        return options.epochs, options.batch_size, options.learning_rates

    assert recipe("mnli") == recipe("squad1") == (3, 32, (5e-5,))
    assert recipe("squad2") == (2, 48, (5e-5,))
    assert recipe("swag") == (3, 16, (2e-5,))
    options = FinetuneOptions("sst2", "d", "m")
    assert (options.warmup, options.weight_decay, options.clip_norm, options.dropout) == (0.1, 0.01, 1.0, 0.1)
    assert SWEEP == (5e-5, 4e-5, 3e-5, 2e-5)


def test_what_is_said_wins_over_the_recipe():
    options = FinetuneOptions("swag", "d", "m", epochs=1.5, learning_rates=3e-5).resolved()
    assert (options.epochs, options.batch_size, options.learning_rate) == (1.5, 16, 3e-5)


def test_a_sweep_is_a_run_for_each_rate_and_seed():
    options = FinetuneOptions("rte", "d", "m", learning_rates=(5e-5, 2e-5), restarts=2, seed=3).resolved()
    found = [(one.learning_rate, one.seed, one.restarts, one.run_name) for one in options.runs()]
    assert found == [
        (5e-5, 3, 1, "lr5e-05-seed3"),
        (5e-5, 4, 1, "lr5e-05-seed4"),
        (2e-5, 3, 1, "lr2e-05-seed3"),
        (2e-5, 4, 1, "lr2e-05-seed4"),
    ]


def test_options_survive_json(tmp_path):
    options = FinetuneOptions(
        "classify", "d", "m", columns={"text": "review"}, learning_rates=[1e-4, 1e-5], freeze=1
    )
    options.save(tmp_path / "finetune.json")
    assert FinetuneOptions.load(tmp_path / "finetune.json") == options
    assert options.columns == (("text", "review"),)


def test_going_on_with_other_options_names_those_that_differ(tmp_path):
    path = tmp_path / "finetune.json"
    FinetuneOptions("rte", "d", "m").resolved().save(path)
    with pytest.raises(InputError, match=r"epochs=9 \(the run has 3.0\), seed=2 \(the run has 0\)"):
        FinetuneOptions.resumed(path, seed=2, epochs=9)
    assert FinetuneOptions.resumed(path, keep=5, dtype="auto").keep == 5
    with pytest.raises(InputError, match="finetune.json is missing"):
        FinetuneOptions.resumed(tmp_path / "nowhere" / "finetune.json")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epochs": 0}, "epochs=0"),
        ({"epochs": math.inf}, "epochs=inf"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"learning_rates": ()}, r"learning_rates=\(\)"),
        ({"learning_rates": (1e-5, 1e-5)}, "each once"),
        ({"learning_rates": (1e-5, -1.0)}, "learning_rates"),
        ({"dropout": 1.0}, "dropout=1.0"),
        ({"restarts": 0}, "restarts=0"),
        ({"split_dev": 1.0}, "split_dev=1.0"),
        ({"max_length": 3}, "max_length=3"),
        ({"freeze": -1}, "freeze=-1"),
        ({"dtype": "int8"}, "dtype='int8'"),
        ({"span_weight": 0.0}, "span_weight=0.0"),
        ({"width": 0}, "width=0"),
    ],
)
def test_options_out_of_range_are_refused_by_name(wrong, message):
    with pytest.raises(InputError, match=message):
        FinetuneOptions("sst2", "d", "m", **wrong)


# batches


def some_features(sizes, n_choices=1):
    ids = iter(range(10_000))
    return [
        Feature(
            tuple(
                Sequence(np.array([next(ids) % 20 for _ in range(size)]), np.zeros(size, int), [], [])
                for _ in range(n_choices)
            ),
            label=number % 2,
            example=number,
        )
        for number, size in enumerate(sizes)
    ]


def test_every_epoch_shows_each_feature_once_in_an_order_of_its_own():
    orders = [batches.epoch_order(50, 3, epoch) for epoch in range(3)]
    for order in orders:
        assert sorted(order.tolist()) == list(range(50))
    assert len({tuple(order.tolist()) for order in orders}) == 3
    assert not np.array_equal(batches.epoch_order(50, 4, 0), orders[0])
    # the same on every machine and with every version of NumPy
    assert batches.epoch_order(8, 0, 0).tolist() == [1, 3, 6, 5, 0, 7, 4, 2]


def test_training_batches_go_on_from_any_position():
    features, head = some_features(range(2, 13)), Head("classify", 2)
    stream = batches.training_batches(features, head, 4, seed=5)
    whole = [next(stream) for _ in range(8)]
    assert [batch.E for batch, _ in whole] == [4, 4, 3, 4, 4, 3, 4, 4]  # nothing is dropped, nothing padded
    assert [position for _, position in whole[:4]] == [[0, 4], [0, 8], [1, 0], [1, 4]]
    for number, (_, position) in enumerate(whole[:-1]):
        batch, after = next(batches.training_batches(features, head, 4, 5, position))
        expected, expected_after = whole[number + 1]
        assert after == expected_after
        assert batch.input_ids.tobytes() == expected.input_ids.tobytes()
        assert batch.labels.tolist() == expected.labels.tolist()


def test_batches_to_predict_keep_to_their_budget_longest_first():
    tokens = np.array([5, 30, 7, 7, 2, 9, 1, 12])
    found = batches.token_budget_batches(tokens, 16)
    assert [part.tolist() for part in found] == [[1], [7], [5, 2], [3, 0, 4, 6]]
    assert batches.token_budget_batches(np.array([], int), 16) == []


@pytest.mark.parametrize(("kind", "n_choices"), [("classify", 1), ("choice", 3)])
def test_outputs_are_those_of_each_feature_by_itself_in_order(kind, n_choices):
    config = small_config()
    head = Head(kind, 1 if kind == "choice" else 2)
    params = initialise(config, 1, np.float64, head)
    features = some_features([3, 9, 2, 14, 5, 5], n_choices)
    told = []
    found = batches.outputs(Ops(), params, features, 20, told.append)
    assert sum(told) == sum(batches.lengths(features)) == n_choices * 38
    for feature, one in zip(features, found, strict=True):
        alone = TaskBatch.pack_features([feature], head)
        (expected,) = heads.outputs(Ops(), config, head, params.tree, alone)
        np.testing.assert_allclose(one, expected, rtol=0, atol=1e-13)


# what is learnt from and measured on


def test_a_subset_is_always_the_same_and_in_order():
    examples = list(range(100))
    chosen = preparation.subset(examples, 10)
    assert len(chosen) == 10 and chosen == sorted(chosen) and chosen == preparation.subset(examples, 10)
    assert chosen != list(range(10))
    assert preparation.subset(examples, None) == preparation.subset(examples, 500) == examples
    train, dev = preparation.split(examples, 0.2)
    assert len(dev) == 20 and sorted(train + dev) == examples
    with pytest.raises(InputError, match="split_dev=0.001 of 100 examples leaves one part empty"):
        preparation.split(examples, 0.001)


def test_sentences_are_drawn_with_their_documents():
    sentences = [TaggedSentence((str(n),), ("O",), n // 5) for n in range(60)]
    chosen = preparation.subset(sentences, 17)
    assert len(chosen) == 20
    documents = {sentence.document for sentence in chosen}
    assert chosen == [sentence for sentence in sentences if sentence.document in documents]


def test_chunks_of_examples_do_not_tear_a_document():
    sentences = [TaggedSentence((str(n),), None, n // 5) for n in range(12)]
    assert [len(chunk) for chunk in predicting.chunks(sentences, 6)] == [10, 2]
    assert [len(chunk) for chunk in predicting.chunks(range(12), 5)] == [5, 5, 2]


# tasks of sentences


def a_task(name="classify", **columns):
    return registry.create(name, columns)


@pytest.fixture(scope="module")
def tokenizer(model):
    return Tokenizer.from_pretrained(model)


def test_a_pair_is_read_as_two_segments_the_longer_one_cut(tokenizer):
    task = registry.create("rte")
    example = TextExample("0", "the film is a journey", "it was warm", "entailment")
    (feature,) = task.features([example], tokenizer, task.labels([]), 9, training=True)
    (sequence,) = feature.sequences
    pieces = [tokenizer.vocab[i] for i in sequence.input_ids]
    assert pieces == "[CLS] the film is [SEP] it was warm [SEP]".split()
    assert sequence.token_type_ids.tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1]
    assert feature.label == 0


def test_classes_of_ones_own_are_in_natural_order():
    def labels(*names):
        return a_task().labels([TextExample("0", "x", None, name) for name in names])

    assert labels("10", "9", "-1", "9") == ("-1", "9", "10")
    assert labels("spam", "ham", "eggs") == ("eggs", "ham", "spam")
    with pytest.raises(InputError, match=r"have 1 label \(spam\); a class needs another one"):
        labels("spam", "spam")


def test_predictions_of_classes_are_probabilities_and_of_scores_numbers():
    outputs = [np.array([0.0, math.log(3.0)], np.float32)]
    (found,) = a_task().predict([None], [None], outputs, ("no", "yes"), {})
    assert found["label"] == "yes"
    assert found["probabilities"] == pytest.approx({"no": 0.25, "yes": 0.75})
    assert registry.create("stsb").predict([None], [None], [np.array([2.5])], (), {}) == [{"value": 2.5}]


def scored(task, gold, found):
    examples = [TextExample(str(n), "x", None, label) for n, label in enumerate(gold)]
    key = "value" if task.kind == "regress" else "label"
    return task.score(examples, [{key: label} for label in found])


def test_every_task_has_its_official_figures():
    gold, found = ["1", "1", "0", "0", "1"], ["1", "0", "0", "1", "1"]
    assert scored(registry.create("mrpc"), gold, found) == pytest.approx({"f1": 4 / 6, "accuracy": 0.6})
    assert scored(registry.create("cola"), gold, found) == pytest.approx({"matthews": 1 / 6})
    assert scored(registry.create("sst2"), gold, found) == pytest.approx({"accuracy": 0.6})
    figures = scored(registry.create("stsb"), [0.0, 1.0, 5.0], [0.1, 0.2, 9.0])
    assert figures["spearman"] == pytest.approx(1.0) and 0.9 < figures["pearson"] < 1.0
    assert scored(registry.create("stsb"), [0.0, 1.0], [2.0, 2.0]) == {"spearman": 0.0, "pearson": 0.0}


def test_the_figure_of_a_resample_is_that_of_the_score():
    task = registry.create("mrpc")
    examples = [TextExample(str(n), "x", "y", label) for n, label in enumerate("110010110")]
    predictions = [{"label": label} for label in "100110101"]
    chosen = np.array([0, 0, 3, 8, 5, 5, 1])
    expected = task.score([examples[i] for i in chosen], [predictions[i] for i in chosen])["f1"]
    assert task.statistic(examples, predictions)(chosen) == pytest.approx(expected)


def test_the_worst_mistake_is_the_surest():
    examples = [TextExample(str(n), f"text {n}", None, "a") for n in range(3)]
    predictions = [
        {"label": "b", "probabilities": {"a": 0.4, "b": 0.6}},
        {"label": "b", "probabilities": {"a": 0.1, "b": 0.9}},
        {"label": "a", "probabilities": {"a": 0.8, "b": 0.2}},
    ]
    found = a_task().mistakes(examples, predictions)
    assert [(one.text, one.expected, one.found) for one in found] == [
        ("text 1", "a", "b"),
        ("text 0", "a", "b"),
    ]
    assert a_task().classes(examples, predictions) == (["a", "a", "a"], ["b", "b", "a"])


def test_own_tables_are_read_by_their_columns(tmp_path):
    path = tmp_path / "train.csv"
    path.write_text('stars,review\n5,"warm, and funny"\n1,cold\n')
    (tmp_path / "test.csv").write_text("review\nloud\n")
    task = a_task(text="review", label="stars")
    assert [(e.first, e.label) for e in task.read(tmp_path, "train")] == [
        ("warm, and funny", "5"),
        ("cold", "1"),
    ]
    assert [(e.first, e.label) for e in task.read(tmp_path, "test")] == [("loud", None)]
    numbers = registry.create("regress", {"text": "review", "label": "stars"}).read(tmp_path, "train")
    assert [e.label for e in numbers] == [5.0, 1.0]
    bare = tmp_path / "bare.csv"
    bare.write_text("1;cold\n5;warm\n")
    task = a_task(text="2", label="1", delimiter=";", header="no")
    assert [(e.first, e.label) for e in task.read(bare, "dev")] == [("cold", "1"), ("warm", "5")]


def test_own_files_are_one_for_each_split(tmp_path):
    with pytest.raises(InputError, match="has no train.csv"):
        own_file(tmp_path, "train")
    for name in ("train.csv", "train.jsonl"):
        (tmp_path / name).touch()
    with pytest.raises(InputError, match="has train.csv and train.jsonl"):
        own_file(tmp_path, "train")
    assert own_file(tmp_path / "train.csv", "dev") == tmp_path / "train.csv"


# choices


def test_each_ending_is_a_sequence_with_the_context(tokenizer):
    task = Choices("swag", "SWAG")
    examples = [ChoiceExample("7", "the film", "it was", ("warm", "very dull"), 1)]
    (feature,) = task.features(examples, tokenizer, (), 24, training=True)
    read = [" ".join(tokenizer.vocab[i] for i in one.input_ids) for one in feature.sequences]
    assert read == [
        "[CLS] the film [SEP] it was warm [SEP]",
        "[CLS] the film [SEP] it was very dull [SEP]",
    ]
    assert feature.label == 1
    assert feature.sequences[1].token_type_ids.tolist() == [0] * 4 + [1] * 5
    (found,) = task.predict(examples, [feature], [np.array([0.0, math.log(4.0)])], (), {})
    assert found["choice"] == 1 and found["probabilities"] == pytest.approx([0.2, 0.8])
    assert task.score(examples, [found]) == {"accuracy": 1.0}
    assert task.mistakes(examples, [found]) == []
    with pytest.raises(InputError, match="Example 8 has 3 endings and others 2"):
        other = ChoiceExample("8", "a", "b", ("c", "d", "e"), 0)
        list(task.features([*examples, other], tokenizer, (), 24, training=True))


def write_swag(folder, count=64):
    """The ending that goes on is the one with a good word."""
    header = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source".split(",")
    header += [f"ending{n}" for n in range(4)] + ["label"]
    for split, seed in (("train", 1), ("val", 2)):
        with open(folder / f"{split}.csv", "w", newline="") as file:
            table = csv.writer(file)
            table.writerow(header)
            for number, (good, _) in enumerate(reviews(count, seed)):
                endings, label = ["dull", "cold", "loud", "the"], number % 4
                endings[label] = GOOD[number % 3]
                table.writerow([number, "v", "f", "x", good[:8], "it was", "gold", *endings, label])
    return folder


def test_swag_runs_from_its_files_to_its_figures(model, tmp_path):
    data, out = write_swag(tmp_path), tmp_path / "run"
    report = finetune(small_options(model, data, "swag", epochs=4), out, show=False)
    assert report["scores"]["accuracy"] > 0.95
    assert hub.load(out)[1].head == Head("choice", 1)
    found = predict([out], None, "dev", tmp_path / "said", backend="numpy")
    assert found["scores"] == report["scores"]
    lines = Path(found["files"][0]).read_text().splitlines()
    assert lines[0] == "id,pred" and len(lines) == 65


# files for GLUE's server


def texts(*labels):
    return [TextExample(str(n), "x", None, label) for n, label in enumerate(labels)]


@pytest.mark.parametrize(
    ("task", "predictions", "name", "content"),
    [
        ("cola", [{"label": "1"}, {"label": "0"}], "CoLA.tsv", "index\tprediction\n0\t1\n1\t0\n"),
        ("mnli-mm", [{"label": "neutral"}], "MNLI-mm.tsv", "index\tprediction\n0\tneutral\n"),
        ("ax", [{"label": "entailment"}], "AX.tsv", "index\tprediction\n0\tentailment\n"),
        (
            "stsb",
            [{"value": -0.25}, {"value": 3.14159}, {"value": 5.5}],
            "STS-B.tsv",
            "index\tprediction\n0\t0.000\n1\t3.142\n2\t5.000\n",
        ),
    ],
)
def test_submissions_are_spelled_as_the_server_wants(tmp_path, task, predictions, name, content):
    path = submissions.write(tmp_path, task, "test", texts(*predictions), predictions)
    assert path == tmp_path / name
    assert path.read_text() == content


def test_submission_files_have_their_official_names():
    names = "CoLA SST-2 MRPC STS-B QQP MNLI-m MNLI-mm QNLI RTE WNLI AX"
    assert list(submissions.FILES.values()) == names.split()


def test_the_index_is_that_of_the_file_or_else_the_row():
    assert submissions.indices([TextExample("7", "", None, None), TextExample("3", "", None, None)]) == [
        "7",
        "3",
    ]
    assert submissions.indices([TextExample("1-2", "", None, None)]) == ["0"]


def test_the_most_frequent_class_is_that_of_the_examples():
    assert [one["label"] for one in submissions.majority(texts("0", "1", "0"), 2)] == ["0", "0"]
    assert submissions.majority(texts("1", "0"), 1)[0]["label"] == "0"
    with pytest.raises(InputError, match="no most frequent class"):
        submissions.majority([TextExample("0", "", None, 2.5)], 1)


# registry


def test_an_unknown_task_suggests_names():
    with pytest.raises(InputError, match="task='sst-2' is not known; did you mean sst2"):
        registry.create("sst-2")
    with pytest.raises(InputError, match="there are cola, sst2, mrpc"):
        registry.create("xyz")
    with pytest.raises(InputError, match="columns=.* are for classify, regress, tag, qa"):
        registry.create("rte", {"text": "a"})
    with pytest.raises(InputError, match=r"columns=\['words'\] are not known to classify"):
        registry.create("classify", {"words": "a"})
    with pytest.raises(InputError, match="header='maybe' is neither yes nor no"):
        registry.create("classify", {"header": "maybe"})


# what a run starts from


def test_a_head_is_kept_for_the_same_thing_and_fresh_for_another(model, run, tmp_path):
    def start(folder, head, task, labels):
        return start_from(folder, head, task, labels, "float32", 0.1, seed=3)

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
    spans = write_model(tmp_path / "spans", Head("span", 2))
    assert start(spans, Head("span", 2), "squad2", ())[1] == []
    assert start(spans, two, "rte", ("entailment", "not_entailment"))[1] == ["pooler", "output layer"]


def test_fresh_heads_differ_by_seed_only(model):
    def start(seed):
        return start_from(model, Head("classify", 2), "rte", ("a", "b"), "float32", 0.1, seed)[0].flat

    assert np.array_equal(start(1), start(1)) and not np.array_equal(start(1), start(2))


# a run


def test_a_run_learns_its_task(run):
    report = report_in(run)
    assert report["scores"]["accuracy"] > 0.95
    low, high = report["interval"]
    assert low <= report["scores"]["accuracy"] <= high
    assert report["steps"] == 6 * 10 and report["train_examples"] == 160 and report["examples"] == 60


def test_a_run_folder_holds_what_it_says_and_nothing_of_the_way_there(run):
    names = {path.name for path in run.iterdir()} - {"tensorboard"}
    assert names == {
        "finetune.json", "metrics.jsonl", "config.json", "model.safetensors", "vocab.txt", "tokenizer.json",
        "tokenizer_config.json", "task.json", "dev_predictions.json", "report.html", "report.json",
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
        found = evaluate([run], data, backend="numpy")
        assert found["scores"] == report["scores"] and found["interval"] == report["interval"]
    assert "accuracy" in measured_text(found) and "95% of bootstrap samples" in measured_text(found)


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


def test_the_best_epoch_is_kept(model, sst2, tmp_path, monkeypatch):
    said, weights = iter([0.5, 0.9, 0.7]), []
    monkeypatch.setattr(Sentences, "score", lambda *_: {"accuracy": next(said)})
    look = running.Run.look

    def watched(self, state):
        weights.append(state.params.flat.copy())
        return look(self, state)

    monkeypatch.setattr(running.Run, "look", watched)
    report = finetune(small_options(model, sst2, epochs=3), tmp_path / "run", show=False)
    assert report["best_epoch"] == 2 and report["best_step"] == 20 and report["scores"] == {"accuracy": 0.9}
    assert len(weights) == 3
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


def test_micro_batches_give_the_same_run(model, sst2, tmp_path):
    for accumulate in (1, 3):
        options = small_options(model, sst2, max_steps=5, accumulate=accumulate, dtype="float64")
        finetune(options, tmp_path / str(accumulate), show=False)
    one, other = (hub.load(tmp_path / name, np.float64)[1].flat for name in ("1", "3"))
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)  # what Adam makes of rounding


def test_a_model_that_is_fine_tuned_can_be_fine_tuned_for_something_else(run, rte, tmp_path, capsys):
    finetune(small_options(run, rte, "rte", max_steps=2), tmp_path / "run", show=True)
    said = capsys.readouterr().err
    assert (
        "output layer with initial values" in said and "40 examples to learn from, 40 to measure on" in said
    )
    assert json.loads((tmp_path / "run" / "task.json").read_text())["labels"] == [
        "entailment",
        "not_entailment",
    ]


def test_a_table_of_ones_own_is_split_learnt_and_asked(model, tmp_path):
    rows = [(text, "liked" if label == "1" else "hated") for text, label in reviews(200, 9)]
    data = write_table(tmp_path / "all.tsv", ("review", "verdict"), rows)
    options = small_options(
        model, data, "classify", columns={"text": "review", "label": "verdict"}, split_dev=0.25
    )
    report = finetune(options, tmp_path / "run", show=False)
    assert report["train_examples"] == 150 and report["examples"] == 50
    assert report["scores"]["accuracy"] > 0.95 and report["labels"] == ["hated", "liked"]
    # measured on what was held out, not on the file
    assert evaluate([tmp_path / "run"], backend="numpy")["scores"] == report["scores"]
    found = classify(tmp_path / "run", [("the film was very charming", None)], backend="numpy")
    assert found[0]["label"] == "liked"
    assert sum(found[0]["probabilities"].values()) == pytest.approx(1.0)


def test_the_operations_of_a_step_are_those_of_pretraining_without_the_decoder():
    config, sizes = small_config(), np.array([4, 9, 20])
    assert task_operations(config, sizes, 3, 2, True) == step_operations(config, sizes, 0)
    whole = task_operations(config, sizes, 33, 2, False)
    frozen = [task_operations(config, sizes, 33, 2, False, n) for n in range(3)]
    assert frozen[0] == whole > frozen[1] > frozen[2] > whole // 3


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
        patch.setattr(finetuning, "run_once", run_once)
        with pytest.raises(KeyboardInterrupt):
            finetune(options, out, show=False)
    before = {name: (out / name / "report.json").stat().st_mtime_ns for name in done}
    report = finetune(options, out, resume=True, show=False)
    after = {name: (out / name / "report.json").stat().st_mtime_ns for name in done}
    assert before == after  # finished runs were not run again
    return out, report


def test_a_sweep_goes_on_with_the_runs_that_are_missing(swept):
    out, report = swept
    assert [Path(one["folder"]).name for one in report["runs"]] == [
        "lr0.005-seed0",
        "lr0.005-seed1",
        "lr1e-06-seed0",
        "lr1e-06-seed1",
    ]
    assert report_in(out) == report


def test_the_best_run_of_a_sweep_stands_at_its_top(swept):
    out, report = swept
    best = max(report["runs"], key=lambda one: one["scores"]["accuracy"])
    assert report["scores"] == best["scores"] and report["learning_rate"] == best["learning_rate"] == 5e-3
    names = ("model.safetensors", "config.json", "task.json", "vocab.txt", "dev_predictions.json")
    for name in names:
        assert (out / name).read_bytes() == (Path(best["folder"]) / name).read_bytes()
    assert evaluate([out], backend="numpy")["scores"] == report["scores"]
    table = sweep_table(report["runs"], "accuracy")
    assert table.count("\n") == 4 and table.count("*") == 1
    assert sweep_table(report["runs"], "accuracy") in report_text(report)


def test_a_finished_sweep_is_not_run_again(swept, model, sst2, monkeypatch):
    out, report = swept
    monkeypatch.setattr(finetuning, "run_once", None)
    options = FinetuneOptions.load(out / "finetune.json")
    assert finetune(options, out, resume=True, show=False) == report


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
    report = evaluate([run, other_run], sst2, backend="numpy")
    assert report["scores"] == pair[0].task.score(examples, expected)


def test_predict_writes_the_official_file_and_every_prediction(run, tmp_path):
    out = tmp_path / "submission"
    report = predict([run], None, "test", out, backend="numpy")
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
    parts = list(predicting.predict_examples([model], examples, budget=30))
    for one, other in zip(whole, parts, strict=True):
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-6)


def test_the_majority_is_predicted_where_it_is_asked_for(run, tmp_path):
    predict([run], None, "test", tmp_path, majority=True, backend="numpy")
    answers = {line.split("\t")[1] for line in (tmp_path / "SST-2.tsv").read_text().splitlines()[1:]}
    labels = [label for _, label in reviews(160, 1)]
    assert answers == {max(sorted(set(labels)), key=labels.count)}


def test_only_models_of_the_same_kind_are_averaged(run, rte, tmp_path):
    out = tmp_path / "rte"
    finetune(small_options(run, rte, "rte", max_steps=1), out, show=False)
    with pytest.raises(InputError, match="differ in their labels"):
        evaluate([run, out], backend="numpy")


def test_a_model_answers_other_files_of_the_same_classes_only(run, tmp_path):
    write_table(
        tmp_path / "dev.tsv", ("source", "label", "star", "sentence"), [("s", 1, "", text) for text in WORDS]
    )
    (tmp_path / "dev.tsv").write_text("".join(f"s\t1\t\tthe {word}\n" for word in WORDS))
    assert evaluate([run], tmp_path, task="cola", backend="numpy")["examples"] == len(WORDS)
    with pytest.raises(InputError, match="was fine-tuned for sst2, which has other answers than rte"):
        evaluate([run], tmp_path, task="rte", backend="numpy")
    with pytest.raises(InputError, match="was fine-tuned for sst2, which has other answers than stsb"):
        evaluate([run], tmp_path, task="stsb", backend="numpy")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([("  ", None)], "A text is empty"),
        ([("the film", "")], "A text is empty"),
        ([("the film", "it was warm")], "was fine-tuned for single texts; leave the second one out"),
    ],
)
def test_classify_says_what_it_was_given_wrongly(run, texts, message):
    with pytest.raises(InputError, match=message):
        classify(run, texts, backend="numpy")


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
    fails(small_options(model, sst2, freeze=3), out, "freeze=3 is more than the 2 layers")
    fails(small_options(model, sst2, "sst3"), out, "did you mean sst2")
    fails(small_options(model, sst2, backend="abacus"), out, "backend='abacus' is not an engine")
    fails(small_options(model, sst2 / "dev.tsv", "classify"), out, "is one file; say with split_dev")


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
        small_options(model, data, "classify"), out, r"Example 0 has the label 'c', which no example to learn"
    )
    data = own([*two, (" ", "a")], two)
    fails(small_options(model, data, "classify"), out, "has no text")
    data = own([*two, ("\u200b", "a")], two)
    fails(small_options(model, data, "classify"), out, "Example 2 has an empty sentence")
    data = own([("the film", "x")], two)
    fails(small_options(model, data, "regress"), out, "expected a number")
    data = own([("the film", "a")], two)
    fails(small_options(model, data, "classify"), out, "have 1 label")


def test_blank_sentences_of_official_files_are_told_of(model, tmp_path, tokenizer):
    task = registry.create("sst2")
    examples = [TextExample("4", "", None, "1"), TextExample("5", "warm", None, "1")]
    with pytest.warns(UserWarning, match="1 of 2 examples have an empty sentence, the first is 4"):
        found = list(task.features(examples, tokenizer, ("0", "1"), 24, training=True))
    assert found[0].sequences[0].input_ids.tolist() == [tokenizer.cls_id, tokenizer.sep_id]


def test_a_vocabulary_larger_than_the_models_is_refused(sst2, tmp_path):
    folder = write_model(tmp_path / "model", vocab_size=20)
    fails(small_options(folder, sst2), tmp_path / "run", "has 23 pieces, but its model was trained with 20")


def test_a_folder_with_something_in_it_is_not_written_over(model, sst2, run):
    before = (run / "report.json").read_bytes()
    with pytest.raises(InputError, match="already holds a run: go on with it by --resume"):
        finetune(small_options(model, sst2), run, show=False)
    with pytest.raises(InputError, match="holds config.json, model.safetensors, vocab.txt of something else"):
        finetune(small_options(model, sst2), model, show=False)
    with pytest.raises(InputError, match="is a file"):
        finetune(small_options(model, sst2), sst2 / "dev.tsv", show=False)
    with pytest.raises(InputError, match=r"seed=9 \(the run has 0\)"):
        finetune(small_options(model, sst2, seed=9), run, resume=True, show=False)
    assert (run / "report.json").read_bytes() == before


def test_going_on_with_other_data_is_refused(model, tmp_path, monkeypatch):
    data, out = write_sst2(tmp_path / "data"), tmp_path / "run"
    options = small_options(model, data, checkpoint_steps=2)
    with monkeypatch.context() as patch:
        patch.setattr(running.Run, "look", lambda self, state: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            finetune(options, out, show=False)
    write_sst2(data, n_train=150)
    with pytest.raises(InputError, match="there were 160 features to learn from, now there are 150"):
        finetune(options, out, resume=True, show=False)


def test_a_folder_without_a_finished_model_says_so(model, run, tmp_path):
    with pytest.raises(InputError, match="holds no fine-tuned model .*; make one with minibert finetune"):
        Finetuned.from_pretrained(model, "numpy")
    with pytest.raises(InputError, match="There is no folder"):
        Finetuned.from_pretrained(tmp_path / "nowhere", "numpy")
    FinetuneOptions("rte", "d", "m").save(tmp_path / "half" / "finetune.json")
    with pytest.raises(InputError, match="its fine-tuning is not finished: minibert finetune --resume"):
        Finetuned.from_pretrained(tmp_path / "half", "numpy")
    (tmp_path / "half" / "task.json").write_text('{"task": "rte"}')
    with pytest.raises(InputError, match="task.json can't be read"):
        Finetuned.from_pretrained(tmp_path / "half", "numpy")
    TaskFile("mnli", ("a", "b", "c"), 24).save(tmp_path / "half")
    for name in ("config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json"):
        (tmp_path / "half" / name).write_bytes((run / name).read_bytes())
    with pytest.raises(InputError):
        Finetuned.from_pretrained(tmp_path / "half", "numpy")


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
        predict([run], None, "test", out, backend="numpy")
    assert not out.exists()


def test_a_loss_that_is_no_number_is_a_failed_run(model, sst2, tmp_path, monkeypatch):
    loss = heads.loss

    def broken(*given):
        found, saved = loss(*given)
        return found._replace(loss=math.nan), saved

    monkeypatch.setattr(running.heads, "loss", broken)
    with pytest.raises(RunError, match="The loss of step 1 is nan"):
        finetune(small_options(model, sst2), tmp_path / "run", show=False)
    assert not (tmp_path / "run" / "model.safetensors").exists()


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


def test_figures_read_as_percentages_unless_they_are_counts():
    assert figure_text("accuracy", 0.91284) == "accuracy 91.28"
    assert figure_text("total", 11873.0) == "total 11873"
    assert figure_text("best_f1_thresh", -2.5) == "best f1 thresh -2.5"


def test_every_name_of_the_registry_makes_a_task_with_that_name():
    for name in registry.TASKS:
        task = registry.create(name)
        assert task.name == name and task.title and task.head(("a", "b")).kind == task.kind
