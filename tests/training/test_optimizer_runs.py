"""LAMB and Muon as optimizers of runs: what they keep, what flags say of them, how far they get, resuming."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from objectives import update_once
from small_corpus import write_corpus
from small_tasks import write_model, write_sst2

from minibert import cli
from minibert.base.errors import InputError
from minibert.base.options import OPTIMIZERS
from minibert.cli.shared.flags import given_fields
from minibert.core.gradcheck.cases import SIZES, config_of
from minibert.core.ops import AdamRule
from minibert.core.optim import AdamW, Lamb, Muon, optimizer_for
from minibert.finetuning.options import FinetuneOptions
from minibert.gradcheck.drawn import random_parameters
from minibert.hub.checkpoint import checkpoints, latest
from minibert.model.ops import Ops
from minibert.pretraining.options import PretrainOptions
from minibert.training.runlog import read_metrics

FLAGS = [
    "--vocab-size=120", "--seq-length=8:0.4,16:0.6", "--batch-size=16", "--accumulate=2", "--dropout=0.1",
    "--max-positions=16", "--evaluations=0", "--save-every=30", "--keep=0", "--steps=60", "--held-out=0.2",
    "--engine=numpy", "--no-unigram-bias", "--quiet",
]  # fmt: skip


@pytest.fixture(scope="module")
def parameters():
    return random_parameters(config_of(SIZES["ugly"]), np.random.default_rng(0))


# The optimizer.


def test_tensors_are_the_table_s_in_the_buffer(parameters):
    tensors = parameters.tensors
    assert tensors.dtype == np.int64
    assert tensors[0, 0] == 0 and tensors[-1, 1] == parameters.count()
    assert (tensors[1:, 0] == tensors[:-1, 1]).all()
    for (name, tensor), (begin, end, decays), entry in zip(
        parameters.items(), tensors, parameters.table, strict=True
    ):
        assert np.array_equal(parameters.flat[begin:end], tensor.ravel()), name
        assert decays == entry.decays
    decayed = [range(begin, end) for begin, end, decays in tensors.tolist() if decays]
    assert [i for one in decayed for i in one] == [
        i for b, e in parameters.decayed.tolist() for i in range(b, e)
    ]


def test_a_step_is_that_of_ops_after_clipping(parameters):
    gradient = np.random.default_rng(1).standard_normal(parameters.count())
    norm = float(np.linalg.norm(gradient))
    given = {"beta1": 0.8, "beta2": 0.95, "eps": 1e-3, "weight_decay": 0.2, "bias_correction": False}
    expected = parameters.flat.copy(), *np.zeros((2, parameters.count()))
    for step in (1, 2):
        params, m, v = expected
        rule = AdamRule(lr=0.1 / step, step=step, clip=0.5 / norm, **given)
        expected = Ops().lamb(params, gradient, m, v, parameters.tensors, rule)
    optimizer, params = (
        Lamb(parameters.flat, parameters.tensors, clip_norm=0.5, **given),
        parameters.flat.copy(),
    )
    for rate in (0.1, 0.05):
        params, found = update_once(optimizer, Ops(), params, gradient, rate)
        assert found == pytest.approx(norm, rel=1e-14)
    assert all(map(np.array_equal, (params, optimizer.m, optimizer.v), expected))
    assert optimizer.updates == 2


def test_an_update_of_the_trained_part_is_that_of_a_buffer_of_its_own():
    rng, begin = np.random.default_rng(0), 5
    flat, tensors = (
        rng.standard_normal(12),
        np.array([[0, 3, 1], [3, 5, 0], [5, 9, 1], [9, 10, 0], [10, 12, 1]]),
    )
    alone, frozen = flat[begin:].copy(), flat[:begin].copy()
    whole = Lamb(flat, tensors, weight_decay=0.1, begin=begin)
    part = Lamb(alone, np.array([[0, 4, 1], [4, 5, 0], [5, 7, 1]]), weight_decay=0.1)
    for _ in range(4):
        grads = rng.standard_normal(12)
        _, norm = update_once(whole, Ops(), flat, grads, 0.1)
        _, expected = update_once(part, Ops(), alone, grads[begin:].copy(), 0.1)
        assert norm == expected
    assert np.array_equal(flat[begin:], alone)
    assert np.array_equal(flat[:begin], frozen) and not whole.m[:begin].any()


def test_a_gradient_that_is_no_number_changes_nothing(parameters):
    optimizer, params = optimizer_for(parameters, "lamb"), parameters.flat.copy()
    _, norm = update_once(optimizer, Ops(), params, np.full_like(params, np.nan), 0.1)
    assert np.isnan(norm) and np.array_equal(params, parameters.flat)
    assert not optimizer.m.any() and optimizer.updates == 0


def test_each_kind_has_its_class(parameters):
    kinds = {kind: type(optimizer_for(parameters, kind)) for kind in OPTIMIZERS}
    assert kinds == {"adamw": AdamW, "lamb": Lamb, "muon": Muon}
    with pytest.raises(InputError, match="optimizer='paper' does not exist; use one of adamw, lamb, muon"):
        optimizer_for(parameters, "paper")


def test_muon_without_a_trained_matrix_of_a_layer_is_refused(parameters):
    every = parameters.trained_from(parameters.config.L)
    with pytest.raises(InputError, match="none is trained here; use adamw"):
        optimizer_for(parameters, "muon", begin=every)
    assert optimizer_for(parameters, "muon", begin=parameters.trained_from(0)).ranges[:, 4].any()


# What options and flags say.


def pretrain_options(*words):
    return PretrainOptions(
        **given_fields(PretrainOptions, cli.parse_arguments(["pretrain", *words]))
    ).resolved()


@pytest.mark.parametrize("size", ["tiny", "large"])
def test_lamb_is_corrected_falls_from_step_0_and_is_ten_times_as_fast(size):
    lamb, plain = (pretrain_options("--size", size, *more) for more in (["--optimizer", "lamb"], []))
    assert (plain.optimizer, lamb.optimizer) == ("adamw", "lamb")
    assert lamb.bias_correction and lamb.google_decay
    assert lamb.learning_rate == plain.learning_rate * Lamb.RATE
    assert lamb.update_rule == plain.update_rule | {"kind": "lamb", "bias_correction": True}
    assert pretrain_options("--optimizer", "lamb", "--lr", "0.003").learning_rate == 0.003


@pytest.mark.parametrize("size", ["tiny", "base"])
def test_muon_has_adamw_s_rate_and_corrected_moments(size):
    muon, plain = (pretrain_options("--size", size, *more) for more in (["--optimizer", "muon"], []))
    assert muon.learning_rate == plain.learning_rate
    assert muon.update_rule == plain.update_rule | {"kind": "muon", "bias_correction": True}


def test_lamb_of_fine_tuning_is_ten_times_as_fast():
    words = ["finetune", "sst2", "--data", "d", "--model", "m", "--out", "o"]
    lamb, plain = (
        FinetuneOptions(**given_fields(FinetuneOptions, cli.parse_arguments([*words, *more]))).resolved()
        for more in (["--optimizer", "lamb"], [])
    )
    assert lamb.update_rule == plain.update_rule | {"kind": "lamb"}
    assert lamb.learning_rate == plain.learning_rate * Lamb.RATE


@pytest.mark.parametrize(
    "kind", [PretrainOptions, lambda **given: FinetuneOptions("sst2", "d", "m", **given)]
)
def test_what_an_optimizer_cannot_do_is_refused(kind):
    with pytest.raises(InputError, match="optimizer='sgd' is not valid; give one of adamw, lamb, muon"):
        kind(optimizer="sgd")
    for name in ("lamb", "muon"):
        with pytest.raises(InputError, match=f"optimizer='{name}' can't be had with fsdp=True"):
            kind(optimizer=name, fsdp=True, engine="jax")


def test_frozen_layers_are_refused_with_fsdp():
    with pytest.raises(InputError, match="freeze=1 can't be had with fsdp=True"):
        FinetuneOptions("sst2", "d", "m", freeze=1, fsdp=True, engine="jax")


# Runs.


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run by each of the two."""
    folder = tmp_path_factory.mktemp("runs")
    corpus = str(write_corpus(folder / "animals.txt"))
    for kind in ("lamb", "muon"):
        out = str(folder / kind)
        assert cli.main(["pretrain", corpus, "--optimizer", kind, "--out", out, *FLAGS]) == 0
    return folder


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["lamb", "muon"])
def test_pretraining_learns(runs, kind):
    lines = read_metrics(runs / kind)
    losses = [line["mlm_loss"] for line in lines]
    assert np.mean(losses[:10]) > 4  # the logarithm of 120 pieces is 4.8
    assert np.mean(losses[-10:]) < 3
    assert json.loads((runs / kind / "training.json").read_text())["optimizer"] == kind
    rates = [line["learning_rate"] for line in lines]
    if kind == "lamb":
        assert (rates[0], max(rates), rates[-1]) == pytest.approx((0, 0.02 * 54 / 60, 0.02 / 60))


@pytest.mark.thorough
def test_muon_keeps_no_second_moment_of_a_layer_s_matrices(runs):
    state = latest(runs / "muon" / "checkpoints")
    matrices = state.params.matrices
    begin, end = matrices[matrices[:, 4] > 0][0, :2]
    assert state.m[begin:end].any() and not state.v[begin:end].any()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lamb", "muon"])
def test_going_on_from_the_middle_ends_with_the_same_bytes(runs, kind, tmp_path):
    run, out = runs / kind, tmp_path / "again"
    shutil.copytree(run, out)
    checkpoints(out / "checkpoints")[-1].unlink()
    assert latest(out / "checkpoints").state["step"] == 30
    assert cli.main(["pretrain", "--out", str(out), "--resume", "--quiet"]) == 0
    assert (out / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()
    here, there = (latest(one / "checkpoints") for one in (out, run))
    assert here.updates == there.updates == 60
    for mine, theirs in ((here.params.flat, there.params.flat), (here.m, there.m), (here.v, there.v)):
        assert mine.tobytes() == theirs.tobytes()


@pytest.mark.thorough
def test_a_run_by_lamb_does_not_go_on_by_adamw(runs, capsys):
    assert cli.main(["pretrain", "--out", str(runs / "lamb"), "--resume", "--optimizer", "adamw"]) == 2
    assert "cannot be resumed with --optimizer adamw (the run has lamb)" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "rate"), [("lamb", "0.05"), ("muon", "0.01")])
def test_fine_tuning_learns(tmp_path, kind, rate):
    model, data, out = write_model(tmp_path / "model"), tmp_path / "data", tmp_path / "out"
    write_sst2(data)
    line = f"--batch-size 16 --epochs 12 --optimizer {kind} --lr {rate} --engine numpy --quiet"
    words = ["finetune", "sst2", "--model", str(model), "--data", str(data), "--out", str(out), *line.split()]
    assert cli.main(words) == 0
    assert json.loads((out / "finetune.json").read_text())["optimizer"] == kind
    assert json.loads((out / "report.json").read_text())["scores"]["accuracy"] > 0.9


@pytest.mark.thorough
def test_a_run_from_before_there_was_a_choice_is_one_by_adamw(runs, tmp_path):
    stored = json.loads((runs / "lamb" / "training.json").read_text())
    assert stored.pop("optimizer") == "lamb"
    (tmp_path / "training.json").write_text(json.dumps(stored))
    assert PretrainOptions.load(tmp_path / "training.json").optimizer == "adamw"


@pytest.mark.thorough
def test_an_optimizer_in_the_table_is_known_to_options_help_and_traces(tmp_path):
    """It is added before the rest of the package is imported: in a process of its own."""
    corpus = write_corpus(tmp_path / "text.txt", 12, 4)
    program = f"""
from minibert.core import optim
from minibert.core.ops.updates import Updates

class Fake(optim.AdamW):
    KIND, ABOUT, WHOLE, RATE = "fake", "for a test", True, 7

def fake(self, *given):
    return Updates.adamw(self, *given)

optim.KINDS["fake"] = Fake
Updates.fake = fake

from minibert import cli
from minibert.pretraining.options import PretrainOptions

words = "--steps 3 --vocab-size 90 --seq-length 16 --batch-size 4 --evaluations 0 --engine numpy --quiet"
words += " --optimizer fake --trace"
status = cli.main(["pretrain", {str(corpus)!r}, "--out", {str(tmp_path / "run")!r}, *words.split()])
assert status == 0, status
adamw, fake = (PretrainOptions(("x",), optimizer=name).rate_from() for name in ("adamw", "fake"))
print(fake / adamw)
cli.main(["pretrain", "--help"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "7.0" in done.stdout and "fake: for a test" in " ".join(done.stdout.split())
    assert json.loads((tmp_path / "run" / "training.json").read_text())["optimizer"] == "fake"
    rows = json.loads((tmp_path / "run" / "trace.json").read_text())["rows"]
    assert {row["direction"] for row in rows if row["op"] == "fake"} == {"update"}
    events = json.loads((tmp_path / "run" / "trace-events.json").read_text())
    assert [event["name"] for event in events if event["cat"] == "step"] == ["step 1", "step 2", "step 3"]
