"""What tasks of fine-tuning are made of: options, batches, features, figures, files for servers."""

import itertools
import json
import math
import os
import zipfile
from collections import Counter

import numpy as np
import pytest
from small_tasks import (
    small_config,
    write_model,
    write_table,
)

from minibert.base.errors import InputError
from minibert.core.batch import Feature, Sequence
from minibert.data.choice import ChoiceExample
from minibert.data.glue import TASKS, TextExample
from minibert.data.ner import TaggedSentence
from minibert.engines.flops import step_operations, task_operations
from minibert.finetuning import predicting, splitting
from minibert.finetuning.examples import read_examples
from minibert.finetuning.options import SWEEP, FinetuneOptions
from minibert.model.batch import TaskBatch
from minibert.model.head_kinds import KINDS
from minibert.model.ops import Ops
from minibert.model.params import Head, initialise
from minibert.reports.results import metric_name, metric_number
from minibert.tasks import batches, registry, submissions
from minibert.tasks.batches import batch_outputs
from minibert.tasks.choices import Choices
from minibert.tasks.custom_files import custom_file
from minibert.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("models") / "small")


# the options


def test_options_left_out_follow_the_paper():
    def recipe(task):
        options = FinetuneOptions(task, "d", "m").resolved()
        return options.epochs, options.batch_size, options.learning_rates

    assert recipe("mnli") == recipe("squad1") == (3, 32, (5e-5,))
    assert recipe("squad2") == (2, 48, (5e-5,))
    assert recipe("swag") == (3, 16, (2e-5,))
    options = FinetuneOptions("sst2", "d", "m").resolved()
    assert (options.warmup, options.weight_decay, options.clip_norm, options.dropout) == (0.1, 0.01, 1.0, 0.1)
    assert SWEEP == (5e-5, 4e-5, 3e-5, 2e-5)
    squad = registry.create("squad1", {})
    assert (squad.max_length, squad.stride, squad.max_question) == (384, 128, 64)
    assert (squad.n_best, squad.longest) == (20, 30)


def test_given_options_win_over_the_recipe():
    options = FinetuneOptions("swag", "d", "m", epochs=1.5, learning_rates=3e-5).resolved()
    assert (options.epochs, options.batch_size, options.learning_rate) == (1.5, 16, 3e-5)


def test_a_sweep_is_a_run_for_each_rate_and_seed():
    options = FinetuneOptions("rte", "d", "m", learning_rates=(5e-5, 2e-5), restarts=2, seed=3).resolved()
    found = [(one.learning_rate, one.seed, one.restarts, name) for name, one in options.runs().items()]
    assert found == [
        (5e-5, 3, 1, "lr5e-05-seed3"),
        (5e-5, 4, 1, "lr5e-05-seed4"),
        (2e-5, 3, 1, "lr2e-05-seed3"),
        (2e-5, 4, 1, "lr2e-05-seed4"),
    ]


def test_the_grid_of_appendix_a3_is_a_run_for_each_setting_and_seed():
    given = {"batch_size": (16, 32), "learning_rates": (5e-5, 3e-5, 2e-5), "epochs": (2, 3, 4), "restarts": 3}
    options = FinetuneOptions("rte", "d", "m", **given)
    runs = options.runs()
    assert len(runs) == 2 * 3 * 3 * 3
    assert list(runs)[:4] == [
        "lr5e-05-batch16-epochs2-seed0",
        "lr5e-05-batch16-epochs2-seed1",
        "lr5e-05-batch16-epochs2-seed2",
        "lr5e-05-batch16-epochs3-seed0",
    ]
    settings = {(one.batch_size, one.learning_rate, one.epochs) for one in runs.values()}
    assert settings == set(itertools.product(*list(given.values())[:3]))
    for name, one in runs.items():
        assert name == f"lr{one.learning_rate:g}-batch{one.batch_size}-epochs{one.epochs}-seed{one.seed}"
    assert list(
        FinetuneOptions("rte", "d", "m", batch_size=16, learning_rates=3e-5, epochs=[2, 2.5]).runs()
    ) == [
        "lr3e-05-epochs2-seed0",
        "lr3e-05-epochs2.5-seed0",
    ]


def test_one_value_in_a_list_is_that_value():
    one = FinetuneOptions("rte", "d", "m", batch_size=[16], epochs=(2,))
    assert (one.batch_size, one.epochs, one.varied) == (16, 2, {})
    assert one == FinetuneOptions("rte", "d", "m", batch_size=16, epochs=2)


def test_options_survive_json(tmp_path):
    options = FinetuneOptions(
        "classify",
        "d",
        "m",
        columns={"text": "review"},
        learning_rates=[1e-4, 1e-5],
        freeze=1,
        batch_size=(16, 32),
        epochs=(2, 3.5),
        also={"classify": "e"},
        also_examples=5,
    )
    options.save(tmp_path / "finetune.json")
    assert FinetuneOptions.load(tmp_path / "finetune.json") == options
    assert options.columns == (("text", "review"),)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"task": "rte"}, "'data' is missing, expected a string"),
        ({"batchsize": 3}, "'batchsize' is not one of its fields"),
        (
            {"task": "rte", "data": "d", "model": "m", "batch_size": "x"},
            "'batch_size' is 'x', expected a whole number or a list of whole numbers or null",
        ),
        ({"task": "rte", "data": "d", "model": "m", "beta2": {}}, "'beta2' is {}, expected a number"),
        (
            {"task": "rte", "data": "d", "model": "m", "learning_rates": [1, "x"]},
            r"'learning_rates' is \[1, 'x.*",
        ),
        (
            {"task": "rte", "data": "d", "model": "m", "beta2": -1},
            "beta2=-1 is not valid; give a number of at least 0 and below 1",
        ),
    ],
)
def test_damaged_options_are_refused(tmp_path, fields, said):
    (tmp_path / "finetune.json").write_text(json.dumps(fields))
    with pytest.raises(
        InputError, match=rf"finetune.json does not hold the options of a run \({said}\); name"
    ):
        FinetuneOptions.load(tmp_path / "finetune.json")


def test_going_on_with_other_options_names_those_that_differ(tmp_path):
    path = tmp_path / "finetune.json"
    FinetuneOptions("rte", "d", "m").resolved().save(path)
    with pytest.raises(InputError, match=r"epochs=9 \(the run has 3.0\), seed=2 \(the run has 0\)"):
        FinetuneOptions.resumed(path, seed=2, epochs=9)
    assert FinetuneOptions.resumed(path, keep=5, dtype="auto").keep == 5
    assert FinetuneOptions.resumed(path, engine="jax", threads=3).engine == "jax"
    with pytest.raises(InputError, match="There is no run in '.*nowhere'; check `out`"):
        FinetuneOptions.resumed(tmp_path / "nowhere" / "finetune.json")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epochs": 0}, "epochs=0"),
        ({"epochs": math.inf}, "epochs=inf"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"batch_size": (8, 0)}, r"batch_size=\(8, 0\) is not valid; give a whole number of at least 1"),
        ({"batch_size": (8, 8)}, r"batch_size=\(8, 8\) is not valid; give each value once"),
        ({"epochs": ()}, r"epochs=\(\) is not valid; give each value once"),
        ({"epochs": (2, -3)}, r"epochs=\(2, -3\) is not valid; give a number above 0"),
        (
            {"epochs": (2, 3), "max_steps": 9},
            r"max_steps=9 ends every run .* epochs=\(2, 3\) would make no difference; leave one of them out",
        ),
        ({"also_examples": 5}, "also_examples=5 is for examples of other tasks; name them"),
        ({"also": ["snli"]}, r"also=\['snli'\] are not names with folders; give such as {'snli': 'pairs'}"),
        ({"learning_rates": ()}, r"learning_rates=\(\)"),
        ({"learning_rates": (1e-5, 1e-5)}, "each value once"),
        ({"learning_rates": (1e-5, -1.0)}, "learning_rates"),
        ({"dropout": 1.0}, "dropout=1.0"),
        ({"restarts": 0}, "restarts=0"),
        ({"split_dev": 1.0}, "split_dev=1.0"),
        ({"max_length": 3}, "max_length=3"),
        ({"freeze": -1}, "freeze=-1"),
        ({"dtype": "int8"}, "dtype='int8'"),
        ({"span_weight": 0.0}, "span_weight=0.0"),
        ({"feature_based": ""}, "feature_based='' is not valid; give the layers that LSTMs are to read"),
        ({"width": 0}, "width=0"),
        ({"batch_size": 8.0}, "batch_size=8.0 is not valid; give a whole number"),
        ({"restarts": 2**64}, "restarts=18446744073709551616 is not valid; give at most 2,147,483,647"),
        (
            {"restarts": 10_001},
            "restarts=10001 would make 10,001 runs, and a sweep has at most 10,000; give fewer",
        ),
        ({"restarts": 3334, "learning_rates": (1, 2, 3)}, "restarts=3334 would make 10,002 runs"),
        (
            {"restarts": 1667, "batch_size": (1, 2), "epochs": (1, 2, 3)},
            "restarts=1667 would make 10,002 runs",
        ),
        ({"width": 2**64}, "width=18446744073709551616 is not valid; give at most"),
        ({"seed": 1.5}, "seed=1.5 is not valid; give a whole number"),
        ({"columns": ["text=review"]}, r"columns=\['text=review'\] are not names with columns"),
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
        (expected,) = batch_outputs(Ops(), config, head, params.tree, alone)
        np.testing.assert_allclose(one, expected, rtol=0, atol=1e-13)


# what is learnt from and measured on


def test_a_subset_is_always_the_same_and_in_order():
    examples = list(range(100))
    chosen = splitting.subset(examples, 10)
    assert len(chosen) == 10 and chosen == sorted(chosen) and chosen == splitting.subset(examples, 10)
    assert chosen != list(range(10))
    assert splitting.subset(examples, None) == splitting.subset(examples, 500) == examples
    train, dev = splitting.split(examples, 0.2)
    assert len(dev) == 20 and sorted(train + dev) == examples
    with pytest.raises(InputError, match="split_dev=0.001 of 100 examples leaves train or dev empty"):
        splitting.split(examples, 0.001)
    alone = [TextExample(str(n), f"text {n}", None, str(n)) for n in range(9)]
    with pytest.raises(InputError, match="Each of the 9 examples has a class of its own, such as '0'; check"):
        splitting.split(alone, 0.2, stratified=True)
    one_document = [TaggedSentence((str(n),), ("O",), 0) for n in range(100)]
    with pytest.raises(InputError, match="of one document are not divided: put lines -DOCSTART- between"):
        splitting.split(one_document, 0.5)


def test_sentences_are_drawn_with_their_documents():
    sentences = [TaggedSentence((str(n),), ("O",), n // 5) for n in range(60)]
    chosen = splitting.subset(sentences, 17)
    assert len(chosen) == 20
    documents = {sentence.document for sentence in chosen}
    assert chosen == [sentence for sentence in sentences if sentence.document in documents]


def test_questions_about_one_paragraph_come_to_one_part():
    examples = [ChoiceExample(str(n), f"paragraph {n // 4}", "", ("a", "b"), 0) for n in range(40)]
    train, dev = splitting.split(examples, 0.3)
    assert len(dev) == 12 and len(train) == 28
    assert {e.context for e in train}.isdisjoint(e.context for e in dev)


def test_the_only_file_is_divided_be_it_dev_or_train(tmp_path):
    rows = [(f"text {number}", "ab"[number % 2]) for number in range(10)]
    options = FinetuneOptions("classify", tmp_path, "m", split_dev=0.3)
    with pytest.raises(InputError, match="has no dev.csv"):
        read_examples(registry.create("classify"), options)
    write_table(tmp_path / "train.tsv", ("text", "label"), rows)
    train, dev = read_examples(registry.create("classify"), options)
    assert (len(train), len(dev)) == (7, 3)
    with pytest.raises(
        InputError, match="has no dev.csv; .*Add one, or give split_dev=0.1 to evaluate on a part of the"
    ):
        read_examples(registry.create("classify"), FinetuneOptions("classify", tmp_path, "m"))
    (tmp_path / "train.tsv").rename(tmp_path / "dev.tsv")
    assert read_examples(registry.create("classify"), options) == (train, dev)
    write_table(tmp_path / "train.tsv", ("text", "label"), rows)
    with pytest.raises(
        InputError, match="has a train and a dev file, and split_dev=0.3 divides one file; leave it"
    ):
        read_examples(registry.create("classify"), options)
    one = FinetuneOptions("classify", tmp_path / "dev.tsv", "m", split_dev=0.3)
    assert read_examples(registry.create("classify"), one) == (train, dev)


def labelled(**counts):
    """Examples of these classes, as many as is said, taking turns."""
    names = [name for number in range(max(counts.values())) for name in counts if number < counts[name]]
    return [TextExample(str(number), f"text {number}", None, name) for number, name in enumerate(names)]


def counted(examples):
    return Counter(example.label for example in examples)


@pytest.mark.parametrize(
    ("counts", "share", "of_dev"),
    [
        (dict(no=270, yes=30), 0.1, dict(no=27, yes=3)),
        (dict(no=292, yes=8), 0.25, dict(no=73, yes=2)),
        (dict(a=5, b=5, c=5), 0.3, dict(a=2, b=1, c=1)),  # of 1.5 each the first is rounded up
        (dict(a=40, b=1), 0.5, dict(a=20)),  # the only example is learnt from
        (dict(a=40, b=3), 0.1, dict(a=4)),
        (dict(a=2, b=2), 0.9, dict(a=1, b=1)),  # one of each class is learnt from
    ],
)
def test_both_parts_of_a_divided_table_have_the_shares_of_its_classes(counts, share, of_dev):
    examples = labelled(**counts)
    train, dev = splitting.split(examples, share, stratified=True)
    assert counted(dev) == of_dev
    assert set(counted(train)) == set(counts)
    assert sorted(train + dev, key=examples.index) == examples  # each in one part, in the order of the file
    assert (train, dev) == splitting.split(examples, share, stratified=True)


def test_classes_without_a_second_example_leave_nothing_to_measure_on():
    with pytest.raises(
        InputError, match="train or dev empty; give another share. At least one example of each class stays"
    ):
        splitting.split(labelled(a=1, b=1), 0.5, stratified=True)


@pytest.mark.parametrize("damaged", ["train", "dev"])
@pytest.mark.parametrize("other", [False, True])
def test_a_damaged_file_is_refused_and_not_passed_over_for_another(tmp_path, damaged, other):
    rows = [(f"text {number}", "ab"[number % 2]) for number in range(10)]
    if other:
        write_table(tmp_path / f"{'dev' if damaged == 'train' else 'train'}.tsv", ("text", "label"), rows)
    write_table(tmp_path / f"{damaged}.tsv", ("text", "label"), [*rows, ("one column",)])
    options = FinetuneOptions("classify", tmp_path, "m", split_dev=0.3)
    with pytest.raises(InputError, match=rf"{damaged}\.tsv, line 12: 1 column "):
        read_examples(registry.create("classify"), options)
    write_table(tmp_path / f"{damaged}.tsv", ("text", "stars"), rows)
    if other:  # the one with labels is divided
        train, dev = read_examples(registry.create("classify"), options)
        assert (len(train), len(dev)) == (7, 3)
    else:
        with pytest.raises(InputError, match=rf"{damaged}\.tsv has no column 'label'"):
            read_examples(registry.create("classify"), options)


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


@pytest.mark.parametrize("name", ["sst2", "rte"])
@pytest.mark.parametrize("split", [False, True])
def test_a_mask_in_a_text_is_one_unless_split(tokenizer, name, split, recwarn):
    second = None if name == "sst2" else "[MASK] [SEP]"
    reader = Tokenizer(tokenizer.vocab, split_special_tokens=split)
    [feature] = registry.create(name).features(
        [TextExample("0", "the [MASK] film", second, None)], reader, (), 24, training=False
    )
    ids = feature.sequences[0].input_ids
    n_texts = 1 if second is None else 2
    assert (ids == reader.mask_id).sum() == (0 if split else n_texts)
    assert (ids == reader.sep_id).sum() == n_texts + (not split and second is not None)
    assert len(recwarn) == (not split)


def test_custom_classes_are_in_natural_order():
    def labels(*names):
        return a_task().labels([TextExample("0", "x", None, name) for name in names])

    assert labels("10", "9", "-1", "9") == ("-1", "9", "10")
    assert labels("spam", "ham", "eggs") == ("eggs", "ham", "spam")
    with pytest.raises(
        InputError,
        match=r"^every training example has the label 'spam'; give examples of at least two classes\.$",
    ):
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
    constant = scored(registry.create("stsb"), [0.0, 1.0], [2.0, 2.0])
    assert constant["spearman"] == constant["pearson"] == 0.0
    assert (constant["r2"], constant["rmse"], constant["mae"]) == (-9.0, pytest.approx(2.5**0.5), 1.5)


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
    assert [one.probabilities for one in found] == [[0.1, 0.9], [0.4, 0.6]]  # of the expected and the found
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


@pytest.mark.parametrize(
    ("name", "columns", "file", "text", "message"),
    [
        ("classify", {}, "test.csv", "text,label\nwarm,1\ncold,\n", "line 3: the column 'label' is empty"),
        ("classify", {}, "test.csv", "word,label\nwarm,1\n", "no column 'text'"),
        (
            "classify",
            {},
            "test.jsonl",
            '{"text": "a", "label": 1}\n{"text": "b"}\n',
            "line 2: there is no 'label'",
        ),
        ("regress", {}, "test.csv", "text,label\nwarm,abc\n", "line 2: the column 'label' is 'abc'"),
        ("tag", {}, "test.csv", "words,tags\na b,NN\n", "line 2: 2 words and 1 tag;"),
        ("qa", {}, "test.csv", "question,context,answer\nwho,Anna left,Peter\n", "'Peter' does not stand"),
    ],
)
def test_a_broken_test_table_is_not_taken_for_one_without_labels(
    tmp_path, name, columns, file, text, message
):
    (tmp_path / file).write_text(text)
    with pytest.raises(InputError, match=message):
        registry.create(name, columns).read(tmp_path, "test")


def test_test_tables_need_no_labels(tmp_path):
    (tmp_path / "test.csv").write_text("question,context\nwho,Anna left\n")
    (question,) = registry.create("qa").read(tmp_path, "test")
    assert question.answers == () and question.impossible is None
    (tmp_path / "test.csv").unlink()
    (tmp_path / "test.jsonl").write_text('{"text": "warm"}\n')
    assert [example.label for example in a_task().read(tmp_path, "test")] == [None]


@pytest.mark.parametrize("name", ["cola", "swag", "squad1", "triviaqa", "ner", "classify", "tag", "qa"])
def test_a_folder_that_is_not_there_is_named(tmp_path, name):
    with pytest.raises(InputError, match=f"^There is no .*folder '?{tmp_path / 'nowhere'}'?;"):
        registry.create(name).read(tmp_path / "nowhere", "train")


@pytest.mark.parametrize("name", ["swag", "squad1", "squad2", "triviaqa", "ner", "classify", "qa"])
def test_a_missing_file_is_named_without_patterns(tmp_path, name):
    with pytest.raises(InputError, match="^[^*]*train[^*]*$"):
        registry.create(name).read(tmp_path, "train")


def test_tasks_that_divide_a_dev_file_are_advised(tmp_path):
    for name in ("qnli", "hellaswag"):
        with pytest.raises(InputError, match=f"Without a train file the task {name}-dev learns from a part"):
            read_examples(registry.create(name), FinetuneOptions(name, tmp_path, "m"))
    with pytest.raises(InputError, match="folder SST-2 inside it; name the folder with the files of"):
        read_examples(registry.create("sst2"), FinetuneOptions("sst2", tmp_path, "m"))


def test_own_files_are_one_for_each_split(tmp_path):
    with pytest.raises(InputError, match="has no train.csv"):
        custom_file(tmp_path, "train")
    (tmp_path / "train.xlsx").touch()
    with pytest.raises(InputError, match=r"has no train\.csv but train\.xlsx; there should be one file of"):
        custom_file(tmp_path, "train")
    for name in ("train.csv", "train.jsonl"):
        (tmp_path / name).touch()
    with pytest.raises(InputError, match="has train.csv and train.jsonl"):
        custom_file(tmp_path, "train")
    assert custom_file(tmp_path / "train.csv", "dev") == tmp_path / "train.csv"


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
    with pytest.raises(InputError, match="example 8: 3 endings, where other examples have 2"):
        other = ChoiceExample("8", "a", "b", ("c", "d", "e"), 0)
        list(task.features([*examples, other], tokenizer, (), 24, training=True))


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


def test_a_submission_has_an_answer_for_every_example(tmp_path):
    for answers in ([], [{"label": "1"}] * 3):
        with pytest.raises(ValueError, match="argument 2 is (shorter|longer)"):
            submissions.write(tmp_path, "rte", "test", texts("0", "1"), answers)
    assert not list(tmp_path.iterdir())


def test_submission_files_have_their_official_names(tmp_path):
    names = "CoLA SST-2 MRPC STS-B QQP MNLI-m MNLI-mm QNLI RTE WNLI AX"
    found = [submissions.write(tmp_path, task, "test", [], []).stem for task in TASKS]
    assert found == names.split()


def test_the_index_is_that_of_the_file_or_else_the_row():
    assert submissions.indices([TextExample("7", "", None, None), TextExample("3", "", None, None)]) == [
        "7",
        "3",
    ]
    assert submissions.indices([TextExample("1-2", "", None, None)]) == ["0"]


def test_one_zip_has_the_tables_of_all_tasks_in_one_order(tmp_path):
    tables = [submissions.write(tmp_path, task, "test", texts("0"), [{"label": task}]) for task in TASKS]
    path = submissions.pack(tmp_path, tables)
    content = path.read_bytes()
    assert path == tmp_path / "submission.zip"
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        names = "CoLA SST-2 MRPC STS-B QQP MNLI-m MNLI-mm QNLI RTE WNLI AX"
        assert archive.namelist() == [f"{name}.tsv" for name in names.split()]
        assert archive.read("MNLI-mm.tsv") == b"index\tprediction\n0\tmnli-mm\n"
        assert {one.date_time for one in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert {one.external_attr >> 16 for one in archive.infolist()} == {0o644}
    for table in tables:
        os.utime(table, (1e9, 1e9))
    assert submissions.pack(tmp_path / "again", tables[::-1]).read_bytes() == content


def test_a_zip_without_some_tasks_says_so(tmp_path):
    tables = [
        submissions.write(tmp_path, task, "test", [], []) for task in TASKS if task not in ("ax", "rte")
    ]
    with pytest.warns(UserWarning, match=r"submission.zip lacks RTE.tsv, AX.tsv, which GLUE's server"):
        submissions.pack(tmp_path, tables)
    dev = submissions.write(tmp_path, "rte", "dev", [], [])
    wrong = {"'RTE-dev.tsv'": [dev], "'CoLA.tsv'": [tables[0], tables[0]], "''": []}
    for named, given in wrong.items():
        with pytest.raises(
            InputError, match=f"{named} is not a table of GLUE's test sets, or is given twice; give CoLA"
        ):
            submissions.pack(tmp_path / "out", given)
    with pytest.raises(InputError, match=r"AX\.tsv"):
        submissions.pack(tmp_path / "out", [tmp_path / "AX.tsv"])
    assert not (tmp_path / "out").exists()


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
    with pytest.raises(
        InputError, match="columns=.* is for custom tables .classify, multilabel, regress, tag, qa"
    ):
        registry.create("rte", {"text": "a"})
    with pytest.raises(InputError, match=r"'words' in `columns` is not a column of classify; choose from"):
        registry.create("classify", {"words": "a"})
    with pytest.raises(InputError, match="columns={'header': 'maybe'} is neither yes nor no"):
        registry.create("classify", {"header": "maybe"})


def test_blank_sentences_of_official_files_are_warned_of(model, tmp_path, tokenizer):
    task = registry.create("sst2")
    examples = [TextExample("4", "", None, "1"), TextExample("5", "warm", None, "1")]
    with pytest.warns(UserWarning, match="1 of 2 examples have an empty text, the first is 4"):
        found = list(task.features(examples, tokenizer, ("0", "1"), 24, training=True))
    assert found[0].sequences[0].input_ids.tolist() == [tokenizer.cls_id, tokenizer.sep_id]


def test_figures_read_as_percentages_unless_they_are_counts():
    found = {"accuracy": 0.91284, "total": 11873.0, "best_f1_thresh": -2.5}
    shown = [f"{metric_name(name)} {metric_number(name, value)}" for name, value in found.items()]
    assert shown == ["accuracy 91.28", "total 11,873", "best f1 thresh -2.5"]


def test_every_name_of_the_registry_makes_a_task_with_that_name():
    for name in registry.TASKS:
        task = registry.create(name)
        assert task.name == name and task.title and task.head(("a", "b")).kind == task.kind


ENTAILED, BINARY = ("entailment", "not_entailment"), ("0", "1")


@pytest.mark.parametrize(
    ("name", "kind", "classes", "pair", "metric"),
    [
        ("mnli", "classify", ("entailment", "neutral", "contradiction"), True, "accuracy"),
        ("qqp", "classify", BINARY, True, "f1"),
        ("qnli", "classify", ENTAILED, True, "accuracy"),
        ("sst2", "classify", BINARY, False, "accuracy"),
        ("cola", "classify", BINARY, False, "matthews"),
        ("stsb", "regress", (), True, "spearman"),
        ("mrpc", "classify", BINARY, True, "f1"),
        ("rte", "classify", ENTAILED, True, "accuracy"),
        ("squad1", "span", (), None, "f1"),
        ("squad2", "span", (), None, "f1"),
        ("swag", "choice", (), None, "accuracy"),
    ],
)
def test_the_eleven_tasks_of_the_paper_have_its_heads_classes_and_metrics(name, kind, classes, pair, metric):
    task = registry.create(name)
    assert (task.kind, task.labels(()), task.pair, task.metric) == (kind, classes, pair, metric)
    assert task.head(task.labels(())).outputs == {"span": 2}.get(kind, max(1, len(classes)))


@pytest.mark.parametrize(
    ("kind", "reads"),
    [("classify", "sequences"), ("choice", "sequences"), ("span", "tokens"), ("tag", "labels")],
)
def test_sequence_level_heads_read_cls_and_token_level_heads_read_tokens(kind, reads):
    assert KINDS[kind].reads == reads
    assert Head(kind, KINDS[kind].outputs or 2).pooled == (reads == "sequences")


@pytest.mark.parametrize("reads_all", [True, False])
@pytest.mark.parametrize("pooled", [True, False])
def test_operations_of_fine_tuning_are_those_counted_by_hand(pooled, reads_all):
    config, lengths = small_config(), np.array([4, 9, 20])
    H, F, L, T = config.H, config.F, config.L, 33
    rows = None if reads_all else np.array([1, 2, 1])
    asking, pairs = (33, 4 * 4 + 9 * 9 + 20 * 20) if reads_all else (4, 4 + 2 * 9 + 20)

    def layer(asking, pairs):
        keys_and_values, queries_and_output = 2 * T * H * 2 * H, 2 * asking * H * 2 * H
        return keys_and_values + queries_and_output + 2 * asking * 2 * H * F + 2 * pairs * 2 * H

    layers = [layer(33, 4 * 4 + 9 * 9 + 20 * 20)] * (L - 1) + [layer(asking, pairs)]
    head = 2 * 7 * H * 5 + (2 * 3 * H * H if pooled else 0)
    for frozen in (None, *range(L + 1)):
        expected = sum(layers) + 2 * sum(layers[frozen or 0 :]) + 3 * head
        assert task_operations(config, lengths, rows, 7, 5, pooled, frozen) == expected


def test_the_operations_of_a_step_are_those_of_pretraining_without_the_decoder():
    config, sizes = small_config(), np.array([4, 9, 20])
    none, one = np.zeros(3, int), np.ones(3, int)
    assert task_operations(config, sizes, one, 3, 2, True) == step_operations(config, sizes, none)
    for rows in (None, one):
        whole = task_operations(config, sizes, rows, 33, 2, False)
        frozen = [task_operations(config, sizes, rows, 33, 2, False, n) for n in range(3)]
        assert frozen[0] == whole > frozen[1] > frozen[2] > whole // 3
    assert frozen[0] < task_operations(config, sizes, None, 33, 2, False)
