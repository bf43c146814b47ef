"""Options of runs: what becomes of values, and which are refused."""

import copy
import dataclasses
import json
import pickle
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import minibert
from minibert.api.runs import Run
from minibert.base.errors import InputError, OtherOptions
from minibert.finetuning.options import FinetuneOptions
from minibert.pretraining.options import PretrainOptions


def test_a_run_that_has_no_corpus_says_so_when_one_is_given():
    error = OtherOptions({"corpus": (("other.txt",), ())})
    assert "with corpus=('other.txt',) (the run has none); leave that out" in str(error)


TUNED = partial(FinetuneOptions, "rte", "/data", "/model")


@pytest.mark.parametrize("kind", [PretrainOptions, TUNED])
def test_options_of_a_run_do_not_change_once_they_are_made(kind):
    options = kind(seed=3)
    for name in ("seed", "optimizer", "anything"):
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field '{name}'"):
            setattr(options, name, 4)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'seed'"):
        del options.seed
    assert options.seed == 3 and options == kind(seed=3) != kind(seed=4)
    other = dataclasses.replace(options, seed=4)
    assert (other.seed, options.seed) == (4, 3) and other == kind(seed=4)
    for copied in (pickle.loads(pickle.dumps(options)), copy.copy(options), copy.deepcopy(options)):
        assert copied == options
        with pytest.raises(dataclasses.FrozenInstanceError):
            copied.seed = 4


def test_defaults_of_fine_tuning_are_its_own_and_the_same_in_estimators():
    own = {"accumulate": 1, "warmup": 0.1, "bias_correction": True, "google_decay": False}
    for made in (TUNED(), minibert.TextClassifier("model"), minibert.TokenTagger("model")):
        assert {name: getattr(made, name) for name in own} == own
    assert [getattr(PretrainOptions(), name) for name in own] == [None] * 4
    assert (TUNED().keep, PretrainOptions().keep) == (1, 2)


@pytest.mark.parametrize("kind", [PretrainOptions, TUNED])
def test_attention_has_the_dropout_of_the_rest_unless_it_is_given_its_own(kind):
    for given, attention in ((None, 0.3), (0.0, 0.0), (0.2, 0.2)):
        rates = kind(dropout=0.3, attention_dropout=given).dropouts
        assert rates == {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": attention}


@pytest.mark.parametrize(
    ("kind", "name", "given", "kept"),
    [
        (PretrainOptions, "model", Run(Path("/runs/a"), {}), "/runs/a"),
        (PretrainOptions, "vocab", Run(Path("/runs/a"), {}), "/runs/a"),
        (PretrainOptions, "corpus", [Path("a"), Run(Path("/b"), {})], ("a", "/b")),
        (PretrainOptions, "corpus", 5, ("5",)),
        (PretrainOptions, "mask_rates", np.array([0.5, 0.25, 0.25], np.float32), (0.5, 0.25, 0.25)),
        (TUNED, "epochs", np.arange(1, 3), (1, 2)),
        (TUNED, "learning_rates", np.array([0.5], np.float32), (0.5,)),
        (TUNED, "batch_size", np.array([2, 4]), (2, 4)),
        (TUNED, "batch_size", (np.int64(2), 4), (2, 4)),
        (TUNED, "batch_size", np.array(2), 2),
        (TUNED, "stratified", np.bool_(False), False),
        (PretrainOptions, "bias_correction", None, None),
        (TUNED, "class_weights", {"good": np.float32(2.5), "bad": 1}, "good=2.5,bad=1"),
    ],
)
def test_paths_and_what_is_numpys_become_what_json_has(tmp_path, kind, name, given, kept):
    options = kind(**{name: given})
    assert getattr(options, name) == kept
    options.save(tmp_path / "options.json")
    assert type(options).load(tmp_path / "options.json") == options
    assert json.loads((tmp_path / "options.json").read_text())[name] == json.loads(json.dumps(kept))


@pytest.mark.parametrize(
    ("kind", "name", "value", "wanted"),
    [
        (PretrainOptions, "seed", None, "a whole number, 0 or more"),
        (PretrainOptions, "weight_decay", None, "a finite number, 0 or more"),
        (PretrainOptions, "clip_norm", None, "a number, 0 or more"),
        (PretrainOptions, "keep", None, "a whole number, 0 or more"),
        (PretrainOptions, "hidden_act", 5, "a string"),
        (PretrainOptions, "checkpoint_seconds", None, "a number, 0 or more"),
        (PretrainOptions, "corpus", None, "a string"),
        (PretrainOptions, "lower_case", "false", "True or False"),
        (PretrainOptions, "next_sentence", 0, "True or False"),
        (PretrainOptions, "whole_word_mask", None, "True or False"),
        (PretrainOptions, "unigram_bias", "no", "True or False"),
        (PretrainOptions, "fsdp", 1.0, "True or False"),
        (TUNED, "bilstm", "", "True or False"),
        (TUNED, "google_decay", 1, "True or False"),
        (TUNED, "accumulate", None, "a whole number of at least 1"),
        (TUNED, "warmup", None, "a number of at least 0 and below 1"),
        (PretrainOptions, "masked_lm_prob", "0.15", "a number"),
        (PretrainOptions, "short_seq_prob", "0.1", "a number"),
        (PretrainOptions, "mask_rates", 5, "three numbers"),
        (PretrainOptions, "mask_rates", ("a", 1, 0), "three numbers"),
        (PretrainOptions, "dupe_factor", 1.5, "a whole number, 0 or more"),
        (PretrainOptions, "steps", True, "a whole number of at least 1"),
        (TUNED, "freeze", True, "a whole number, 0 or more"),
        (TUNED, "most_windows", True, "a whole number of at least 1"),
        (PretrainOptions, "minutes", True, "a finite number above 0"),
        (PretrainOptions, "masked_lm_prob", True, "a number"),
        (PretrainOptions, "mask_rates", (True, False, False), "three numbers"),
        (PretrainOptions, "dropout", False, "a number of at least 0 and below 1"),
        (PretrainOptions, "weight_decay", True, "a finite number, 0 or more"),
        (PretrainOptions, "checkpoint_seconds", True, "a number, 0 or more"),
        (TUNED, "learning_rates", (True,), "finite numbers above 0"),
        (TUNED, "epochs", True, "a number above 0 and at most 1,000,000"),
        (TUNED, "span_weight", True, "a number above 0 and at most 1"),
        (
            TUNED,
            "class_weights",
            "a=2,a=3",
            "balanced, or NAME=WEIGHT,... with finite weights above 0, each once",
        ),
        (TUNED, "class_weights", 5, "'balanced', or a number above 0 for each class, such as {'spam': 5}"),
    ],
)
def test_a_value_that_means_nothing_is_refused_by_a_sentence(kind, name, value, wanted):
    with pytest.raises(InputError) as error:
        kind(**{name: value})
    assert str(error.value).startswith(f"{name}={value!r} is not valid; give {wanted}")


def test_what_one_engine_has_does_not_stay_where_a_run_goes_on_with_another(tmp_path):
    several = {"devices": 4, "fsdp": True, "recompute": True}
    stored = PretrainOptions(corpus="a.txt", size="tiny", steps=9, engine="jax", **several).resolved()
    stored.save(tmp_path / "training.json")
    for given, kept in (({}, several), ({"engine": "jax", "steps": 10}, several)):
        assert PretrainOptions.resumed(tmp_path / "training.json", **given).extras == kept
    for more in ({}, {"devices": 2}):
        resumed = PretrainOptions.resumed(tmp_path / "training.json", engine="numpy", **more)
        assert resumed.extras == {"devices": None, "fsdp": False, "recompute": False} | more


def test_none_is_for_what_a_recipe_or_the_run_decides():
    assert PretrainOptions(warmup=None, accumulate=None).resolved().accumulate == 1
    assert TUNED(epochs=None).resolved().epochs == 3


def test_a_table_in_memory_is_named_by_its_type_alone():
    with pytest.raises(InputError) as raised:
        FinetuneOptions("classify", {"text": ["a"] * 99}, "model")
    assert str(raised.value).startswith(
        "data is a dict; give a file or a folder; for data in memory there is Te"
    )
    with pytest.raises(InputError, match="^model is a list; give the folder of a model"):
        FinetuneOptions("classify", "data", ["a"] * 99)


@pytest.mark.parametrize(
    ("kind", "name", "command", "own"),
    [
        (PretrainOptions, "finetune.json", "finetune", "training.json"),
        (FinetuneOptions, "training.json", "pretrain", "finetune.json"),
    ],
)
def test_the_options_of_the_other_command_are_told(tmp_path, kind, name, command, own):
    path = tmp_path / name
    (TUNED() if command == "finetune" else PretrainOptions()).save(path)
    with pytest.raises(InputError, match=f"holds the options of minibert {command}; give a {own}"):
        kind.configured(path, {})
