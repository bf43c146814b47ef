"""The default rate goes with the width of the model, and its dropout stays; base has the paper's."""

import dataclasses

import google_folder
import numpy as np
import pytest
from small_tasks import reviews, small_options

import minibert
from minibert import hub
from minibert.core.config import SIZES, BertConfig
from minibert.finetuning.options import SWEEP, FinetuneOptions
from minibert.finetuning.run import finetune, resolved
from minibert.model.params import initialise


def of_width(width, **fields):
    """Return the configuration of a small BERT of this width."""
    return BertConfig(vocab_size=20, hidden_size=width, num_attention_heads=1, **fields)


@pytest.mark.parametrize(
    ("width", "adamw", "muon"),
    [
        (1024, 5e-5, None),
        (768, 5e-5, None),
        (512, 1e-4, None),
        (384, 2e-4, None),
        (320, 2e-4, 3e-4),
        (256, 2e-4, 3e-4),
        (192, 2e-4, 5e-4),
        (160, 3e-4, 7e-4),
        (128, 5e-4, 1e-3),
        (64, 5e-4, 2e-3),
        (24, 5e-4, 3e-3),
    ],
)
def test_narrower_models_learn_at_higher_rates_the_narrowest_with_muon(width, adamw, muon):
    by_default = FinetuneOptions("sst2", "d", "m").resolved(of_width(width))
    expected = ("muon", (muon,)) if muon else ("adamw", (adamw,))
    assert (by_default.optimizer, by_default.learning_rates) == expected
    chosen = FinetuneOptions("sst2", "d", "m", optimizer="adamw").resolved(of_width(width))
    assert (chosen.optimizer, chosen.learning_rates) == ("adamw", (adamw,))
    lamb = FinetuneOptions("sst2", "d", "m", optimizer="lamb").resolved(of_width(width))
    assert lamb.learning_rates == (pytest.approx(10 * adamw),)


@pytest.mark.parametrize("given", [{"freeze": 2}, {"fsdp": True}, {"feature_based": "last"}])
def test_muon_is_left_where_no_whole_matrix_of_a_layer_is_trained(given):
    shallow = of_width(24, num_hidden_layers=2)
    assert FinetuneOptions("ner", "d", "m", freeze=1).resolved(shallow).optimizer == "muon"
    assert FinetuneOptions("ner", "d", "m", **given).resolved(shallow).optimizer == "adamw"


@pytest.mark.parametrize(
    ("tasks", "epochs", "batch_size", "rate"),
    [
        (("mnli", "sst2", "cola", "squad1", "tag"), 3, 32, 5e-5),
        (("squad2",), 2, 48, 5e-5),
        (("swag", "hellaswag", "hellaswag-dev"), 3, 16, 2e-5),
        (("ner",), 3, 2, 5e-5),  # windows over documents, of some 13 sentences each
        (("stsb-similarity", "similarity"), 4, 16, 2e-5),  # these and the next as in sentence-transformers
        (("similar-pairs",), 1, 64, 2e-5),
    ],
)
def test_each_task_has_its_recipe(tasks, epochs, batch_size, rate):
    for task in tasks:
        options = FinetuneOptions(task, "d", "m").resolved(of_width(768))
        assert (options.epochs, options.batch_size, options.learning_rate) == (epochs, batch_size, rate), task
    frozen = FinetuneOptions("ner", "d", "m", feature_based="last").resolved(of_width(768))
    assert (frozen.epochs, frozen.learning_rate) == (10, 1e-3)


@pytest.mark.parametrize("size", ["base", "large"])
def test_sizes_of_the_paper_keep_its_rates(size):
    paper = of_width(SIZES[size][1])
    for task, rate in (("sst2", 5e-5), ("squad2", 5e-5), ("swag", 2e-5), ("similarity", 2e-5)):
        assert FinetuneOptions(task, "d", "m").resolved(paper).learning_rates == (rate,)


def test_rates_that_are_given_and_those_of_frozen_features_stay():
    given = FinetuneOptions("sst2", "d", "m", learning_rates=SWEEP)
    assert given.resolved(of_width(128)).learning_rates == SWEEP
    frozen = FinetuneOptions("ner", "d", "m", feature_based="last")
    assert frozen.resolved(of_width(128)).learning_rates == frozen.resolved().learning_rates == (1e-3,)
    assert FinetuneOptions("swag", "d", "m").resolved(of_width(128)).learning_rates == (4e-4,)


@pytest.mark.parametrize(
    ("given", "dropouts"),
    [
        ({}, (0.2, 0.3)),
        ({"dropout": 0.0}, (0.0, 0.0)),
        ({"attention_dropout": 0.4}, (0.2, 0.4)),
        ({"dropout": 0.5, "attention_dropout": 0.0}, (0.5, 0.0)),
        ({"feature_based": "last"}, (0.1, 0.1)),
    ],
)
def test_dropout_is_the_models_own_unless_it_is_given(given, dropouts):
    model = of_width(24, hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.3)
    options = FinetuneOptions("ner", "d", "m", **given).resolved(model)
    assert tuple(options.dropouts.values()) == dropouts


def test_a_model_that_was_trained_without_dropout_is_tuned_without_it(tmp_path, model, sst2):
    source = minibert.load(model)
    config = dataclasses.replace(source.config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    hub.save_hf(tmp_path / "model", config, source.params)
    source.tokenizer.save_pretrained(tmp_path / "model")
    options = dataclasses.replace(small_options(tmp_path / "model", sst2), dropout=None, max_steps=1)
    finetune(options, tmp_path / "run", show=False)
    assert hub.stored_config(tmp_path / "run").hidden_dropout_prob == 0
    # A run of before, with the paper's dropout, goes on with that.
    dataclasses.replace(options, dropout=0.1, attention_dropout=None).save(tmp_path / "before.json")
    assert resolved(options, tmp_path / "before.json").dropout == 0.1


def test_the_shape_of_a_model_is_read_from_its_configuration(model, tmp_path):
    assert hub.stored_config(model).H == 24
    config = BertConfig.from_size("1-32-2", vocab_size=20, max_position_embeddings=8)
    google_folder.write(tmp_path / "google", config, initialise(config, seed=0))
    assert hub.stored_config(tmp_path / "google") == config
    assert hub.stored_config(tmp_path / "nowhere") is None
    (tmp_path / "empty").mkdir()
    assert hub.stored_config(tmp_path / "empty") is None


def test_a_run_stores_the_rate_for_its_model_and_goes_on_with_it(model, sst2, tmp_path):
    options = dataclasses.replace(
        small_options(model, sst2), optimizer=None, learning_rates=None, max_steps=1
    )
    report = finetune(options, tmp_path / "run", show=False)
    assert report["learning_rate"] == 3e-3
    stored = FinetuneOptions.load(tmp_path / "run" / "finetune.json")
    assert (stored.optimizer, stored.learning_rates) == ("muon", (3e-3,))
    # A run of before, with AdamW and at the rate of before, goes on so.
    before = dataclasses.replace(stored, optimizer="adamw", learning_rates=(5e-5,))
    before.save(tmp_path / "before.json")
    resumed = resolved(options, tmp_path / "before.json")
    assert (resumed.optimizer, resumed.learning_rates) == ("adamw", (5e-5,))
    begun = resolved(options, tmp_path / "absent.json")
    assert (begun.optimizer, begun.learning_rates) == ("muon", (3e-3,))


@pytest.mark.thorough
def test_a_small_model_learns_without_a_rate_being_given(model):
    texts, labels = zip(*reviews(300, 1), strict=True)
    others, theirs = zip(*reviews(100, 2), strict=True)
    classifier = minibert.TextClassifier(model, engine="numpy", epochs=8, batch_size=16).fit(texts, labels)
    assert classifier.report_["learning_rate"] == 3e-3
    assert np.mean(classifier.predict(others) == np.array(theirs)) > 0.8
