"""The feature-based approach: activations, taggers on them, the folder of a run, Table 7."""

import dataclasses
import json
import shutil
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from command import notice  # noqa: F401 (a fixture)
from small_entities import write_data, write_model

from minibert import Bert, Tokenizer, cli
from minibert.base.errors import InputError
from minibert.core.optim import Lamb
from minibert.finetuning import preparation, running
from minibert.finetuning.examples import read_examples
from minibert.finetuning.feature_based import FeatureBasedRun, prepare
from minibert.finetuning.frozen import activations
from minibert.finetuning.frozen.activations import COMBINATIONS, layers_of, stored_vectors, word_vectors
from minibert.finetuning.frozen.feature_tagger import FeatureTagger, TaggerFile
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.predicting import predict_examples
from minibert.finetuning.run import evaluate, finetune
from minibert.model import bilstm
from minibert.model.ops import Ops
from minibert.tasks.batches import epoch_order
from minibert.tasks.tagging import Tagging, sentence_bounds

QUICK = {"epochs": 30.0, "learning_rates": (2e-2,), "batch_size": 4, "engine": "numpy", "max_length": 16}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("features")


@pytest.fixture(scope="module")
def options(place):
    data, model = write_data(place / "data"), write_model(place / "model")
    return FinetuneOptions(
        task="ner", data=data, model=model, feature_based="last", width=12, **QUICK
    ).resolved()


@pytest.fixture(scope="module")
def model(options):
    return Bert.from_pretrained(options.model, "numpy")


@pytest.fixture(scope="module")
def tokenizer(options):
    return Tokenizer.from_pretrained(options.model)


@pytest.fixture(scope="module")
def examples(options):
    return Tagging().read(options.data, "train")


@pytest.fixture(scope="module")
def finished(place, options):
    """Folder and report of a run."""
    return place / "run", finetune(options, place / "run", show=False)


def asked(examples, tokenizer, **kind):
    task = Tagging(**kind)
    return list(task.features(examples, tokenizer, task.labels(examples), 16, training=False))


# Activations


def test_combinations_are_the_rows_of_table_7():
    numbers = {name: layers_of(name, 12).numbers for name in COMBINATIONS}
    assert numbers == {
        "embeddings": (0,),
        "second-to-last": (11,),
        "last": (12,),
        "sum-last-4": (9, 10, 11, 12),
        "concat-last-4": (9, 10, 11, 12),
        "sum-all": tuple(range(1, 13)),
    }
    assert {name for name, one in COMBINATIONS.items() if one.mixed} == {"sum-last-4", "sum-all"}
    with pytest.raises(InputError, match="takes 4 layers, and the model has 3"):
        layers_of("concat-last-4", 3)
    with pytest.raises(InputError, match="feature_based='middle' is unknown; choose one of embeddings"):
        layers_of("middle", 12)


@pytest.mark.parametrize("by_document", [True, False])
def test_the_vector_of_a_word_is_that_of_its_first_piece(
    model, tokenizer, examples, by_document, monkeypatch
):
    monkeypatch.setattr(activations, "TOKEN_BUDGET", 40)
    windows = asked(examples, tokenizer, by_document=by_document)
    found = word_vectors(model, windows, sentence_bounds(examples), (0, 2))
    expected = {0: [], 2: []}
    for window in windows:
        states = model.encode([_Encoding(window.sequences[0])]).hidden_states
        for number, rows in expected.items():
            rows.append(states[number][window.rows])
    for number, rows in expected.items():
        np.testing.assert_allclose(found.layers[number], np.concatenate(rows), rtol=0, atol=1e-6)
    assert found.seen.all()
    assert len(found.bounds) - 1 == len(examples)


class _Encoding:
    """A sequence as a tokenizer gives it."""

    def __init__(self, sequence):
        self.ids, self.token_type_ids = sequence.input_ids, sequence.token_type_ids


def test_sentences_take_their_layers_side_by_side_or_to_be_mixed(model, tokenizer, examples):
    found = word_vectors(model, asked(examples, tokenizer), sentence_bounds(examples), (1, 2))
    n = len(examples[0].words) + len(examples[1].words)
    words = slice(len(examples[0].words), n)
    beside, mixed = found.sentence(1, (2, 1), False), found.sentence(1, (2, 1), True)
    np.testing.assert_array_equal(beside, np.hstack([found.layers[2][words], found.layers[1][words]]))
    np.testing.assert_array_equal(mixed, np.stack([found.layers[2][words], found.layers[1][words]]))


def test_vectors_on_the_disk_are_those_in_memory(model, tokenizer, examples, tmp_path):
    windows, bounds = asked(examples, tokenizer), sentence_bounds(examples)
    memory = word_vectors(model, windows, bounds, (0, 2))
    for _ in range(2):  # computed, then found
        disk = stored_vectors(model, windows, bounds, (0, 2), tmp_path / "train")
        for number in (0, 2):
            np.testing.assert_array_equal(disk.layers[number], memory.layers[number])
    names = sorted(path.name for path in (tmp_path / "train").iterdir())
    assert names == ["crc32.json", "layer-00.npy", "layer-02.npy"]
    with pytest.raises(InputError, match="from other data or another model; remove"):
        stored_vectors(model, windows, bounds[:-1], (0, 2), tmp_path / "train")
    with pytest.raises(InputError, match="layer-01.npy is missing; remove .* and continue with resume=True"):
        stored_vectors(model, windows, bounds, (1,), tmp_path / "train")


@pytest.mark.parametrize("name", ["layer-02.npy", "crc32.json"])
def test_vectors_on_the_disk_that_were_damaged_are_refused(model, tokenizer, examples, tmp_path, name):
    given = asked(examples, tokenizer), sentence_bounds(examples), (0, 2), tmp_path / "train"
    stored_vectors(model, *given)
    data = bytearray((tmp_path / "train" / name).read_bytes())
    data[-9] ^= 1
    (tmp_path / "train" / name).write_bytes(data)
    with pytest.raises(InputError, match=f"remove '{tmp_path / 'train'}'"):
        stored_vectors(model, *given)


def test_what_does_not_fit_into_memory_goes_to_the_disk(
    model, tokenizer, examples, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(activations, "MOST_MEMORY", 1000)
    parts = examples, examples[:3]
    windows, bounds = [asked(part, tokenizer) for part in parts], [sentence_bounds(part) for part in parts]
    train, dev = activations.activations(model, windows, bounds, (1,), tmp_path / "a")
    assert isinstance(train.layers[1], np.memmap)
    np.testing.assert_allclose(dev.layers[1], train.layers[1][: len(dev.layers[1])], rtol=0, atol=1e-6)
    n_words = int(sentence_bounds(examples)[-1] + sentence_bounds(examples[:3])[-1])
    said = f"Activations of {n_words} words, 1 x 32 numbers each: {n_words * 128 / 1e6:.0f} MB in {tmp_path}"
    assert said in capsys.readouterr().err


def test_taggers_on_frozen_layers_have_a_recipe_of_their_own():
    told = {"task": "ner", "data": "d", "model": "m"}
    frozen = FinetuneOptions(**told, feature_based="last", epochs=4.0).resolved()
    assert (frozen.learning_rates, frozen.batch_size, frozen.epochs) == ((1e-3,), 32, 4.0)
    assert FinetuneOptions(**told).resolved().batch_size == 2  # windows over documents


# What the options reach


class Captured(Exception):
    """In place of training."""


def test_options_reach_the_tagger_the_optimizer_the_loop_and_the_figures_of_a_step(
    options, model, tokenizer, examples, tmp_path, monkeypatch
):
    options = dataclasses.replace(
        options, epochs=40.0, batch_size=11, seed=6, dropout=0.3, learning_rates=(0.5,), warmup=0.2,
        google_decay=True, bias_correction=False, beta1=0.8, beta2=0.95, adam_eps=1e-3, weight_decay=0.07,
        clip_norm=2.5, optimizer="lamb", accumulate=3, checkpoint_seconds=7.0, checkpoint_steps=9, keep=5,
    )  # fmt: skip
    bounds = sentence_bounds(examples)
    vectors = word_vectors(model, asked(examples, tokenizer), bounds, (2,))
    prepared = prepare(options, Ops(), tmp_path, show=False)
    training = FeatureBasedRun(options, prepared, Ops(), tmp_path, show=False)

    def captured(ops, state, batches, objective, loop, log):
        raise Captured(state, batches, objective, loop)

    monkeypatch.setattr(running, "train", captured)
    with pytest.raises(Captured) as caught:
        training.fit()
    state, batches, objective, loop = caught.value.args

    config, params, optimizer = training.config, state.params, state.optimizer
    assert (config.width, config.dropout) == (12, 0.3)
    np.testing.assert_array_equal(params.flat, bilstm.initialise(config, 6).flat)
    assert isinstance(optimizer, Lamb)
    assert (optimizer.beta1, optimizer.beta2, optimizer.eps) == (0.8, 0.95, 1e-3)
    assert (optimizer.weight_decay, optimizer.clip_norm, optimizer.bias_correction) == (0.07, 2.5, False)

    assert len(examples) == 27
    assert (loop.total_steps, loop.evaluate_steps, loop.accumulate, loop.max_checkpoints) == (120, 3, 3, 5)
    assert (loop.save_seconds, loop.save_steps) == (7.0, 9)
    rates = [loop.rate(step) for step in (0, 12, 24, 60)]
    assert rates == pytest.approx([0, 0.25, 0.4, 0.25])

    batch, _ = next(batches)
    chosen = epoch_order(27, seed=6, epoch=0)[:11]
    expected = np.concatenate([vectors.layers[2][bounds[i] : bounds[i + 1]] for i in chosen])
    np.testing.assert_array_equal(batch.vectors, expected)

    drop = Ops().dropout(batch, 0.3, 0.0, seed=6, step=5)
    loss, _ = bilstm.loss(Ops(), config, params.tree, batch, drop)
    found = objective.forward(Ops(), params.tree, batch, 5)[0]
    assert found["loss"] == loss.loss
    for labels, share in ((loss.logits.argmax(1), 1), (loss.logits.argmin(1), 0)):
        other = dataclasses.replace(batch, labels=labels)
        right = objective.forward(Ops(), params.tree, other, 5)[0]["accuracy"]
        assert right == pytest.approx(share * batch.label_weights.sum())


# A run


@pytest.mark.thorough
def test_a_tagger_on_frozen_layers_learns_who_and_where(finished, model):
    folder, report = finished
    assert report["scores"]["f1"] == 1.0
    assert report["feature_based"] == "last"
    assert report["train_examples"] == 27
    names = {path.name for path in folder.iterdir()}
    assert {"tagger.json", "tagger.safetensors", "config.json", "model.safetensors", "vocab.txt"} <= names
    assert not {"checkpoints", "best", "activations"} & names
    assert TaggerFile.load(folder).labels == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    frozen = Bert.from_pretrained(folder, "numpy")
    np.testing.assert_array_equal(frozen.params["layers.1.feed_forward.in_weight"], _weight(model))


def _weight(model):
    return model.params["layers.1.feed_forward.in_weight"]


def test_a_finished_tagger_says_again_what_it_said_of_dev(finished, options):
    folder, _ = finished
    tagger = FeatureTagger.from_pretrained(folder, "numpy")
    dev = Tagging().read(options.data, "dev")
    stored = json.loads((folder / "dev_predictions.json").read_text("utf-8"))
    assert list(predict_examples([tagger], dev)) == stored


def test_command_tags_with_a_feature_based_model(finished, capsys):
    assert cli.main(["tag", "--model", str(finished[0]), "Anna lives in Rome", "--engine", "numpy"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == ["PER  Anna", "LOC  Rome"]


def test_commands_measure_and_predict_with_a_feature_based_model(finished, options, tmp_path, capsys):
    folder, report = finished
    assert cli.main(["evaluate", "--model", str(folder), "--engine", "numpy", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scores"] == report["scores"]
    words = [
        "predict",
        "--model",
        str(folder),
        "--split",
        "dev",
        "--out",
        str(tmp_path),
        "--engine",
        "numpy",
    ]
    assert cli.main(words) == 0
    gold, found = str(Path(options.data) / "eng.testa"), str(tmp_path / "dev_predictions.conll")
    capsys.readouterr()
    assert cli.main(["score", "conll", gold, found]) == 0
    assert "FB1: 100.00" in capsys.readouterr().out


def test_lstms_and_whole_models_are_averaged_in_neither_order(finished, options, tmp_path):
    whole = dataclasses.replace(options, feature_based=None, max_steps=1)
    finetune(whole, tmp_path / "whole", show=False)
    for folders in permutations([finished[0], tmp_path / "whole"]):
        with pytest.raises(InputError, match="can't be averaged: they differ in their approach"):
            evaluate(folders, engine="numpy")


def test_command_finetunes_on_frozen_layers(options, tmp_path, capsys):
    words = [
        "finetune",
        "ner",
        "--data",
        options.data,
        "--model",
        options.model,
        "--out",
        str(tmp_path / "r"),
    ]
    words += ["--feature-based", "sum-all", "--width", "8", "--epochs", "1", "--engine", "numpy", "--quiet"]
    assert cli.main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["width"] == 8
    assert (tmp_path / "r/tagger.json").exists()


@pytest.mark.thorough
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(options, tmp_path, monkeypatch):
    options = dataclasses.replace(options, epochs=3.0, checkpoint_steps=1, feature_based="sum-all")
    whole = finetune(options, tmp_path / "whole", show=False)
    evaluate, steps = FeatureBasedRun.evaluate, []

    def stopped(self, state):
        steps.append(state.step)
        if len(steps) == 2:
            raise KeyboardInterrupt
        return evaluate(self, state)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(FeatureBasedRun, "evaluate", stopped)
        finetune(options, tmp_path / "parts", show=False)
    with monkeypatch.context() as patch:
        patch.setattr(
            preparation, "read_examples", lambda *given: [one[:-1] for one in read_examples(*given)]
        )
        with pytest.raises(InputError, match="there were other examples or labels"):
            finetune(options, tmp_path / "parts", resume=True, show=False)
    report = finetune(options, tmp_path / "parts", resume=True, show=False)
    assert report["scores"] == whole["scores"]
    assert report["steps"] == whole["steps"]
    one, other = (tmp_path / name / "tagger.safetensors" for name in ("whole", "parts"))
    assert one.read_bytes() == other.read_bytes()
    again = finetune(options, tmp_path / "parts", resume=True, show=False)
    assert again["scores"] == whole["scores"]


def test_impossible_runs_are_refused(options, finished, tmp_path):
    with pytest.raises(InputError, match="already holds a run"):
        finetune(options, finished[0], show=False)
    other = dataclasses.replace(options, feature_based="sum-last-4")
    with pytest.raises(InputError, match="takes 4 layers, and the model has 2"):
        finetune(other, tmp_path / "a", show=False)
    (tmp_path / "train.txt").write_text("Anna\n\n")
    (tmp_path / "dev.txt").write_text("Anna B-PER\n\n")
    untagged = dataclasses.replace(options, data=tmp_path)
    with pytest.raises(InputError, match=f"^{tmp_path}, train: The sentence 'Anna' has no tags to train on"):
        finetune(untagged, tmp_path / "a", show=False)
    other = dataclasses.replace(options, task="sst2")
    with pytest.raises(
        InputError, match="feature_based='last' is for tasks that tag words, which sst2 does not"
    ):
        finetune(other, tmp_path / "a", show=False)
    assert not (tmp_path / "a").exists()


def test_a_sweep_that_cannot_be_leaves_its_folder_as_it_was(options, tmp_path):
    rates = {"learning_rates": (1e-3, 2e-3), "epochs": 1.0}
    wrong = dataclasses.replace(options, feature_based="sum-last-4", **rates)
    with pytest.raises(InputError, match="takes 4 layers, and the model has 2"):
        finetune(wrong, tmp_path / "a", show=False)
    assert not (tmp_path / "a").exists()
    assert len(finetune(dataclasses.replace(options, **rates), tmp_path / "a", show=False)["runs"]) == 2


def test_an_incomplete_folder_is_refused(finished, tmp_path):
    broken = shutil.copytree(finished[0], tmp_path / "copy")
    weights = (broken / "tagger.safetensors").read_bytes()
    (broken / "tagger.safetensors").write_bytes(weights[:-10])
    with pytest.raises(InputError, match="tagger.safetensors is damaged or not a safetensors file"):
        FeatureTagger.from_pretrained(broken, "numpy")
    (broken / "tagger.safetensors").write_bytes(weights)
    stored = json.loads((broken / "tagger.json").read_text("utf-8"))
    for change, message in (
        ({"config": stored["config"] | {"width": 13}}, "has other tensors than tagger.json says"),
        ({"config": stored["config"] | {"width": 10**9}}, "has other tensors than tagger.json says"),
        ({"config": stored["config"] | {"depth": 10**18}}, "has other tensors than tagger.json says"),
        ({"combination": "sum-all"}, "is of a tagger on another BERT"),
        ({"combination": "sum-last-4"}, "is of a tagger on another BERT"),
        (
            {"max_length": 9999},
            "tagger.json asks for sequences of 9999 tokens, but the model has 64 positions",
        ),
        ({"labels": ["O"]}, "is of a tagger on another BERT"),
        ({"strange": 1}, "tagger.json can't be read"),
    ):
        (broken / "tagger.json").write_text(json.dumps(stored | change), "utf-8")
        with pytest.raises(InputError, match=message):
            FeatureTagger.from_pretrained(broken, "numpy")


def test_engines_train_alike(options, tmp_path):
    """The LSTMs of the fastest engine go the way of the reference."""
    found = []
    for backend in ("numpy", "auto"):
        one = dataclasses.replace(options, engine=backend, epochs=2.0)
        finetune(one, tmp_path / backend, show=False)
        lines = (tmp_path / backend / "metrics.jsonl").read_text("utf-8").splitlines()
        found.append([json.loads(line)["loss"] for line in lines if "loss" in json.loads(line)])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4)
