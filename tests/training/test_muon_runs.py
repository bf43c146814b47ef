"""Muon as an optimizer of runs: how far it gets, how it goes on, what flags say of it."""

import json
import shutil

import numpy as np
import pytest
from small_corpus import write_corpus
from small_tasks import write_model, write_sst2

from minibert import cli
from minibert.errors import InputError
from minibert.finetuning.options import FinetuneOptions
from minibert.gradcheck.cases import SIZES, config_of, random_parameters
from minibert.pretraining.options import PretrainOptions
from minibert.training.checkpoint import checkpoints, latest
from minibert.training.optim import optimizer_for
from minibert.training.runlog import read_metrics

FLAGS = [
    "--vocab-size=120", "--seq-length=8:0.4,16:0.6", "--batch-size=16", "--accumulate=2", "--dropout=0.1",
    "--max-positions=16", "--evaluations=0", "--save-every=30", "--keep=0", "--steps=60", "--held-out=0.2",
    "--engine=numpy", "--no-unigram-bias", "--quiet",
]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    corpus = str(write_corpus(folder / "animals.txt"))
    assert cli.main(["pretrain", corpus, "--optimizer", "muon", "--out", str(folder / "muon"), *FLAGS]) == 0
    return folder / "muon"


def test_pretraining_by_muon_learns(run):
    losses = [line["mlm_loss"] for line in read_metrics(run)]
    assert np.mean(losses[:10]) > 4  # the logarithm of 120 pieces is 4.8
    assert np.mean(losses[-10:]) < 3
    assert json.loads((run / "training.json").read_text())["optimizer"] == "muon"
    state = latest(run / "checkpoints")
    matrices = state.params.matrices
    begin, end = matrices[matrices[:, 4] > 0][0, :2]
    assert state.m[begin:end].any() and not state.v[begin:end].any()


@pytest.mark.parametrize("size", ["tiny", "base"])
def test_the_rate_is_adamw_s_and_moments_are_corrected(size):
    ours, plain = (PretrainOptions(size=size, optimizer=kind).resolved() for kind in ("muon", "adamw"))
    assert ours.learning_rate == plain.learning_rate
    assert ours.update_rule == plain.update_rule | {"kind": "muon", "bias_correction": True}


def test_where_no_matrix_of_a_layer_is_trained_it_is_refused():
    parameters = random_parameters(config_of(SIZES["ugly"]), np.random.default_rng(0))
    every = parameters.trained_from(parameters.config.L)
    with pytest.raises(InputError, match="none is trained here; use adamw"):
        optimizer_for(parameters, "muon", begin=every)
    assert optimizer_for(parameters, "muon", begin=parameters.trained_from(0)).ranges[:, 4].any()


@pytest.mark.parametrize(
    "kind", [PretrainOptions, lambda **given: FinetuneOptions("sst2", "d", "m", **given)]
)
def test_tensors_that_are_spread_are_refused(kind):
    with pytest.raises(InputError, match="optimizer='muon' can't be had with fsdp=True"):
        kind(optimizer="muon", fsdp=True, engine="jax")


@pytest.mark.slow
def test_going_on_from_the_middle_ends_with_the_same_bytes(run, tmp_path):
    out = tmp_path / "again"
    shutil.copytree(run, out)
    checkpoints(out / "checkpoints")[-1].unlink()
    assert latest(out / "checkpoints").state["step"] == 30
    assert cli.main(["pretrain", "--out", str(out), "--resume", "--quiet"]) == 0
    assert (out / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()


def test_fine_tuning_by_muon_learns(tmp_path):
    model, data, out = write_model(tmp_path / "model"), tmp_path / "data", tmp_path / "out"
    write_sst2(data)
    line = "--batch-size 16 --epochs 12 --optimizer muon --lr 0.01 --engine numpy --quiet"
    words = ["finetune", "sst2", "--model", str(model), "--data", str(data), "--out", str(out), *line.split()]
    assert cli.main(words) == 0
    assert json.loads((out / "report.json").read_text())["scores"]["accuracy"] > 0.9
