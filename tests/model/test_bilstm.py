"""The tagger of LSTMs: layout never matters, initial values, training with the loop that trains all else."""

import dataclasses
import math

import numpy as np
import pytest
from engines import ENGINES

from minibert import engines
from minibert.base.errors import InputError
from minibert.core.gradcheck.complex_step import distance
from minibert.core.optim import AdamW
from minibert.finetuning.feature_based import LstmObjective
from minibert.finetuning.frozen.feature_tagger import batch_scores, load_tagger, save_tagger
from minibert.hub.checkpoint import load_checkpoint
from minibert.model import bilstm
from minibert.model.batch import VectorBatch
from minibert.model.bilstm import BilstmConfig, BilstmParameters
from minibert.model.ops import Ops
from minibert.training.loop import Loop, State, train
from minibert.training.runlog import RunLog, read_metrics

CONFIG = BilstmConfig(inputs=6, outputs=5, width=7)
LENGTHS = (1, 2, 7, 13, 7, 20)
every_engine = pytest.mark.parametrize("engine", ENGINES)
mixed_or_not = pytest.mark.parametrize("mixed", [0, 3], ids=["vectors", "layers"])


def batch(config=CONFIG, seed=0, lengths=LENGTHS, dtype=np.float64):
    """Random vectors, tags for some of them."""
    rng = np.random.default_rng(seed)
    layers = (config.mixed,) if config.mixed else ()
    rows = [np.flatnonzero(rng.random(n) < 0.6) for n in lengths]
    vectors = [rng.standard_normal((*layers, n, config.inputs)).astype(dtype) for n in lengths]
    tags = [rng.integers(config.outputs, size=len(own)) for own in rows]
    return VectorBatch.pack_vectors(vectors, tags, rows)


def tagger(config=CONFIG, dtype=np.float64):
    """Parameters with no zero among them."""
    params = bilstm.initialise(config, 3, dtype)
    params.flat += np.random.default_rng(1).normal(0, 0.2, len(params.flat)).astype(dtype)
    return params


def run(params, *batches, ops=None, dropout=0.2):
    """Losses of micro-batches, gradients of the vectors, and of the parameters from the sum."""
    ops, grads, losses, vectors = ops or Ops(), params.zeros_like(), [], []
    for one in batches:
        drop = ops.dropout(one, dropout, 0.0, seed=7, step=3)
        result, saved = bilstm.loss(ops, params.config, params.tree, one, drop)
        losses.append(float(result.loss))
        vectors.append(bilstm.loss_backward(ops, params.config, saved, params.tree, grads.tree)[0])
    return sum(losses), np.concatenate(vectors, axis=-2), grads


@mixed_or_not
@pytest.mark.parametrize("parts", [2, 6])
def test_micro_batches_have_the_loss_and_the_gradients_of_the_whole_batch(mixed, parts):
    config = dataclasses.replace(CONFIG, mixed=mixed)
    params, whole = tagger(config), batch(config)
    loss, vectors, grads = run(params, whole)
    micro_loss, micro_vectors, micro_grads = run(params, *whole.split(parts))
    assert micro_loss == pytest.approx(loss, rel=1e-12)
    assert vectors.shape == whole.vectors.shape
    assert distance(micro_vectors, vectors) <= 1e-12
    assert distance(micro_grads.flat, grads.flat) <= 1e-12
    assert all(np.abs(grad).max() > 1e-4 for _, grad in grads.items())


@every_engine
@mixed_or_not
def test_frozen_vectors_get_no_gradient_and_the_parameters_the_same(engine, mixed, monkeypatch):
    config = dataclasses.replace(CONFIG, mixed=mixed)
    params, whole = tagger(config, np.float32), batch(config, dtype=np.float32)
    ops, found, computed = engines.create(engine, 1), [], []
    linear_backward = type(ops).linear_backward
    monkeypatch.setattr(
        type(ops), "linear_backward", lambda *one: computed.append(1) or linear_backward(*one)
    )
    for frozen in (False, True):
        grads = params.zeros_like()
        _, saved = bilstm.loss(ops, config, params.tree, whole)
        computed.clear()
        dx, tree = bilstm.loss_backward(ops, config, saved, params.tree, grads.tree, frozen)
        found.append(
            [np.asarray(one) for layer in tree["lstm"] for way in layer.values() for one in way.values()]
        )
        found[-1] += [np.asarray(one) for one in (*tree["head"].values(), *tree.get("mix", {}).values())]
        assert (dx is None) == frozen
        if engine != "jax":  # compiled, it leaves out what nobody reads
            assert len(computed) == (3 if frozen and not mixed else 5)
    for one, other in zip(*found, strict=True):
        assert distance(one, other) <= 1e-6


@mixed_or_not
def test_outputs_of_a_packed_batch_are_those_of_each_sequence_alone(mixed):
    config = dataclasses.replace(CONFIG, mixed=mixed)
    params, whole = tagger(config), batch(config)
    packed = batch_scores(Ops(), config, params.tree, whole)
    assert [one.shape for one in packed] == [(n, 5) for n in whole.row_counts]
    for number, expected in enumerate(packed):
        [alone] = batch_scores(Ops(), config, params.tree, whole.take(number, number + 1))
        assert distance(alone, expected) <= 1e-12


def test_every_token_sees_the_first_and_the_last():
    params, whole = tagger(), batch(lengths=(9,))
    every = dataclasses.replace(whole, label_rows=np.arange(9, dtype=np.int32))
    before = bilstm.logits(Ops(), CONFIG, params.tree, every)[0]
    for changed in (0, 8):
        vectors = every.vectors.copy()
        vectors[changed] += 1
        moved = dataclasses.replace(every, vectors=vectors)
        assert (bilstm.logits(Ops(), CONFIG, params.tree, moved)[0] != before).any(1).all()


def test_layers_have_equal_shares_to_begin_with():
    config = dataclasses.replace(CONFIG, mixed=3)
    params, layers = bilstm.initialise(config, 0, np.float64), batch(config)
    alone = bilstm.initialise(CONFIG, 0, np.float64)
    mean = dataclasses.replace(layers, vectors=layers.vectors.mean(0))
    found = bilstm.logits(Ops(), config, params.tree, layers)[0]
    assert distance(found, bilstm.logits(Ops(), CONFIG, alone.tree, mean)[0]) <= 1e-14


def test_dropout_stands_behind_every_lstm():
    config = BilstmConfig(inputs=6, outputs=5, width=50)
    params, whole = tagger(config), batch(config)
    dropped = {}

    class Watching(Ops):
        def dropout_mask(self, drop, site, columns, dtype):
            mask = super().dropout_mask(drop, site, columns, dtype)
            dropped[site] = (columns, (mask == 0).mean())
            return mask

    run(params, whole, ops=Watching(), dropout=0.25)
    assert dropped.keys() == {0, 1}
    for columns, share in dropped.values():
        assert columns == 100
        assert share == pytest.approx(0.25, abs=4 * math.sqrt(0.25 * 0.75 / (100 * whole.T)))


def test_initial_values_are_uniform_and_every_cell_remembers():
    params = bilstm.initialise(BilstmConfig(inputs=30, outputs=5, width=64, mixed=4), 0)
    bound = 1 / math.sqrt(64)
    for name, value in params.items():
        last = name.split(".")[-1]
        if last in ("w_in", "w_state"):
            assert 0.999 * bound < np.abs(value).max() <= bound
            assert value.std() == pytest.approx(bound / math.sqrt(3), rel=0.03)
        elif name.startswith("lstm"):
            assert value.tolist() == [0] * 64 + [1] * 64 + [0] * 128
        elif name == "head.weight":
            assert 0.015 < value.std() < 0.02
        else:
            assert not value.any()
    again = bilstm.initialise(params.config, 0)
    assert again.flat.tobytes() == params.flat.tobytes()
    assert bilstm.initialise(params.config, 1).flat.tobytes() != params.flat.tobytes()


def test_the_papers_tagger_has_so_many_parameters():
    table = bilstm.parameter_table(BilstmConfig(inputs=768, outputs=9))
    H, lstm = 768, lambda inputs: 4 * 768 * (inputs + 768 + 1)
    assert sum(entry.size for entry in table) == 2 * lstm(H) + 2 * lstm(2 * H) + (2 * H + 1) * 9


def test_weights_decay_and_biases_and_shares_do_not():
    config = dataclasses.replace(CONFIG, mixed=3)
    decays = np.zeros(len(BilstmParameters(config).flat), bool)
    for begin, end in BilstmParameters(config).decayed:
        decays[begin:end] = True
    for name, view in BilstmParameters(config, decays).items():
        assert (view == name.endswith(("w_in", "w_state", "head.weight"))).all(), name


@pytest.mark.representatives(dtype="float32")
@every_engine
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_engines_agree(engine, dtype):
    config = BilstmConfig(inputs=24, outputs=5, width=33, mixed=2)
    params, whole = tagger(config), batch(config)
    expected, expected_vectors, expected_grads = run(params, whole)
    ops = engines.create(engine, 2, dtype)
    cast = dataclasses.replace(whole, vectors=whole.vectors.astype(dtype))
    loss, vectors, grads = run(params.astype(dtype), cast, ops=ops)
    tolerance = 1e-12 if dtype == "float64" else 1e-5
    assert loss == pytest.approx(expected, rel=tolerance)
    assert vectors.dtype == grads.flat.dtype == dtype
    assert distance(vectors, expected_vectors) <= tolerance
    assert distance(grads.flat, expected_grads.flat) <= tolerance


def trained(folder, engine, steps=60, config=CONFIG, start=None):
    """A tagger trained on one batch by the loop of `train.py`."""
    ops, data = engines.create(engine, 2), batch(config, dtype=np.float32)
    params = bilstm.initialise(config, 0)
    state = State(params, AdamW(params.flat, params.decayed))
    if start is not None:
        state.restore(load_checkpoint(start, config))
    loop = Loop(steps, lambda step: 2e-2, folder, accumulate=2)
    with RunLog(folder, state.step, steps, show=False) as log:
        train(ops, state, ((data, None) for _ in range(steps)), LstmObjective(config, 0), loop, log)
    return state


@pytest.mark.representatives(engine="numpy")
@every_engine
def test_it_learns_a_batch_by_heart(engine, tmp_path):
    trained(tmp_path, engine)
    losses = [line["loss"] for line in read_metrics(tmp_path)]
    assert losses[0] == pytest.approx(math.log(5), rel=0.05)
    assert np.mean(losses[-5:]) < 0.2 * losses[0]


def test_a_run_in_two_halves_ends_with_the_bytes_of_one_run(tmp_path):
    whole = trained(tmp_path / "whole", "numpy", steps=8)
    trained(tmp_path / "halves", "numpy", steps=5)
    second = trained(
        tmp_path / "halves", "numpy", steps=8, start=tmp_path / "halves" / "step-000000005.safetensors"
    )
    assert second.params.flat.tobytes() == whole.params.flat.tobytes()
    assert (second.step, second.tokens) == (whole.step, whole.tokens) == (8, 8 * sum(LENGTHS))


def test_a_checkpoint_of_another_tagger_or_of_a_bert_is_refused(tmp_path):
    params = bilstm.initialise(CONFIG, 0)
    path = State(params, AdamW(params.flat, params.decayed)).save(tmp_path)
    found = load_checkpoint(path)
    assert (found.params.config, found.params.flat.tobytes()) == (CONFIG, params.flat.tobytes())
    with pytest.raises(InputError, match="another configuration .width=7 there, 8 here.; use the folder"):
        load_checkpoint(path, dataclasses.replace(CONFIG, width=8))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("inputs", 0, "inputs=0 is not a whole number from 1 on"),
        ("outputs", 2.0, "outputs=2.0 is not a whole number"),
        ("width", True, "width=True is not a whole number"),
        ("depth", -1, "depth=-1 is not a whole number from 1"),
        ("mixed", -1, "mixed=-1 is not a whole number from 0"),
        ("dropout", 1.0, r"dropout=1.0 is not a probability in \[0, 1\)"),
        ("initializer_range", 0, "initializer_range=0 is not positive"),
    ],
)
def test_a_shape_that_makes_no_sense_is_refused_by_the_name_of_the_field(field, value, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(CONFIG, **{field: value})


def test_a_configuration_comes_back_from_json_and_another_s_does_not():
    assert BilstmConfig.from_dict(CONFIG.to_dict() | {"transformers_version": "5"}) == CONFIG
    for other in ({}, {"model_type": "bert"}, {"model_type": "bilstm", "inputs": 3}):
        with pytest.raises(InputError, match="is not a tagger of LSTMs; expected 'bilstm' with inputs"):
            BilstmConfig.from_dict(other)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_a_tagger_with_a_weight_that_is_no_number_is_refused(odd, tmp_path):
    config = BilstmConfig(inputs=4, outputs=2, width=3)
    params = bilstm.initialise(config, seed=0)
    save_tagger(tmp_path, params)
    assert np.array_equal(load_tagger(tmp_path, config).flat, params.flat)
    params["head.weight"][1, 1] = odd
    save_tagger(tmp_path, params)
    with pytest.raises(InputError, match=r"head\.weight has numbers that are not finite"):
        load_tagger(tmp_path, config)
