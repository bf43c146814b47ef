"""Of the last layer only the rows are computed that a head reads, and nothing that anyone sees changes."""

import dataclasses

import numpy as np
import pytest
from engines import ENGINES

from minibert import engines
from minibert.core import bert, heads
from minibert.core.batch import Feature, Sequence
from minibert.core.gradcheck.cases import SIZES, config_of, dropout_of, random_batch
from minibert.core.gradcheck.complex_step import distance
from minibert.gradcheck.drawn import random_parameters
from minibert.model.batch import TaskBatch
from minibert.model.ops import Ops
from minibert.model.params import Head, Parameters
from minibert.tasks.batches import batch_outputs, functions_of

UGLY = SIZES["ugly"]
KINDS = (("classify", 3), ("regress", 1), ("choice", 1), ("tag", 4))
HEADS = [*(Head(*kind) for kind in KINDS), Head("tag", 4, lstm=True)]


class Seen(Ops):
    """Notes how many rows each feed-forward sublayer is given."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def feed_forward_block(self, x, *rest):
        self.rows.append(len(x))
        return super().feed_forward_block(x, *rest)


def model(size=UGLY, head=None, **changes):
    rng = np.random.default_rng(0)
    config = config_of(size, **changes)
    if head is None:
        return config, random_parameters(config, rng), random_batch(size, size.M, rng)
    parameters = Parameters(config, head=head).astype(np.float64)
    parameters.flat[...] = 0.3 * rng.standard_normal(parameters.flat.size)
    return config, parameters, task_batch(head, size, rng)


def task_batch(head, size, rng):
    """Lengths of the size; of every sequence some rows have a tag, of one none."""
    choices, features = 2 if head.kind == "choice" else 1, []
    for n in size.lengths:
        sequences = tuple(
            Sequence(rng.integers(0, size.V, n), np.zeros(n, np.int32), [], []) for _ in range(choices)
        )
        rows = np.arange(0, n, 3)[n % 2 :] if head.kind == "tag" else None
        label = np.zeros(len(rows), np.int32) if head.kind == "tag" else 0
        features.append(Feature(sequences, label, rows))
    return TaskBatch.pack_features(features, head)


def pretraining(ops, config, parameters, batch):
    drop, grads = dropout_of(ops, batch), parameters.zeros_like()
    loss, saved = bert.pretraining_loss(ops, config, parameters.tree, batch, drop)
    bert.pretraining_loss_backward(ops, config, saved, parameters.tree, grads.tree)
    return loss, grads.flat


def fine_tuning(ops, config, head, parameters, batch):
    drop, grads, functions = dropout_of(ops, batch), parameters.zeros_like(), functions_of(head)
    loss, saved = functions.loss(ops, config, head, parameters.tree, batch, drop)
    functions.loss_backward(ops, config, head, saved, parameters.tree, grads.tree)
    return loss, grads.flat


def all_rows(monkeypatch):
    """From here on every row of the last layer is computed."""

    def every(ops, config, batch):
        return None, batch.first_rows, batch.masked_rows

    def all_and_read(ops, config, head, batch):
        return None, heads.rows_read(config, head, batch)

    monkeypatch.setattr(bert, "_last_layer_rows", every)
    monkeypatch.setattr(heads, "last_layer_rows", all_and_read)


@pytest.mark.parametrize("size", SIZES)
def test_pretraining_computes_the_rows_of_its_heads_and_nothing_else_changes(size, monkeypatch):
    config, parameters, batch = model(SIZES[size])
    ops = Seen()
    loss, grads = pretraining(ops, config, parameters, batch)
    assert ops.rows == [batch.T] * (config.L - 1) + [batch.S + batch.M]
    all_rows(monkeypatch)
    ops = Seen()
    expected, whole = pretraining(ops, config, parameters, batch)
    assert ops.rows == [batch.T] * config.L
    for one, other in zip(loss, expected, strict=True):
        assert distance(np.asarray(one, float), np.asarray(other, float)) <= 1e-13
    assert distance(grads, whole) <= 1e-13


@pytest.mark.parametrize("head", HEADS, ids=str)
@pytest.mark.parametrize("causal", [False, True], ids=["both ways", "left to right"])
def test_fine_tuning_computes_the_rows_of_its_head_and_nothing_else_changes(head, causal, monkeypatch):
    config, parameters, batch = model(head=head, is_decoder=causal)
    ops = Seen()
    loss, grads = fine_tuning(ops, config, head, parameters, batch)
    read = len(batch.label_rows) if head.kind == "tag" else batch.S
    left = batch.T if causal or head.lstm else read
    assert ops.rows == [batch.T] * (config.L - 1) + [left]
    ops = Seen()
    said = batch_outputs(ops, config, head, parameters.tree, batch)
    assert ops.rows == [batch.T] * (config.L - 1) + [left]
    all_rows(monkeypatch)
    expected, whole = fine_tuning(Ops(), config, head, parameters, batch)
    assert distance(loss.logits, expected.logits) <= 1e-13
    assert distance(grads, whole) <= 1e-13
    for one, other in zip(said, batch_outputs(Ops(), config, head, parameters.tree, batch), strict=True):
        assert distance(one, other) <= 1e-13


def test_a_span_reads_every_token():
    head = Head("span", 2)
    config, parameters, batch = model(head=head)
    batch = dataclasses.replace(batch, labels=np.zeros((batch.E, 2), np.int32))
    ops = Seen()
    fine_tuning(ops, config, head, parameters, batch)
    assert ops.rows == [batch.T] * config.L


ODD = {
    "none masked": lambda T: [],
    "one": lambda T: [5],
    "twice, out of order": lambda T: [8, 3, 8],
    "a first token": lambda T: [0, 1, 3, 9],
    "nearly all": lambda T: list(range(7, T)),
    "all": lambda T: list(range(T)),
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", ENGINES)
def test_masked_rows_of_any_kind(name, odd, monkeypatch):
    config, parameters, batch = model()
    parameters = parameters.astype(np.float32)
    rows = np.array(ODD[odd](batch.T), np.int32)
    batch = dataclasses.replace(
        batch,
        masked_rows=rows,
        masked_labels=(7 * rows) % config.V,
        masked_weights=np.full(len(rows), 1 / max(1, len(rows))),
    )
    loss, grads = pretraining(engines.create(name, threads=2), config, parameters, batch)
    all_rows(monkeypatch)
    expected, whole = pretraining(Ops(), config, parameters.astype(np.float64), batch)
    assert abs(loss.loss - expected.loss) <= 1e-5 * expected.loss
    assert distance(grads, whole) <= 1e-5


@pytest.mark.parametrize("causal", [False, True], ids=["both ways", "left to right"])
@pytest.mark.parametrize("name", ENGINES)
def test_rows_of_the_encoder_may_come_in_any_order(name, causal):
    """Kernels take them in order only; others go the way of the reference."""
    config, parameters, batch = model(is_decoder=causal)
    parameters, ops = parameters.astype(np.float32), engines.create(name, threads=2)
    rows = np.array([40, 2, 2, 17, 0], np.int32)
    found, saved = bert.encoder(ops, config, parameters.tree, batch, dropout_of(ops, batch), rows)
    double = parameters.astype(np.float64)
    drop = dropout_of(Ops(), batch)
    whole, saved_whole = bert.encoder(Ops(), config, double.tree, batch, drop)
    assert found.shape == (5, config.H)
    assert distance(found, whole[rows]) <= 1e-5
    dy = np.random.default_rng(1).standard_normal(found.shape)
    d_whole = np.zeros_like(whole)
    np.add.at(d_whole, rows, dy)
    grads, expected = parameters.zeros_like(), double.zeros_like()
    bert.encoder_backward(ops, config, dy.astype(np.float32), saved, parameters.tree, grads.tree)
    bert.encoder_backward(Ops(), config, d_whole, saved_whole, double.tree, expected.tree)
    assert distance(grads.flat, expected.flat) <= 1e-5


def test_the_rows_that_leave_an_encoder_are_hidden_states():
    config, parameters, batch = model()
    rows = np.array([0, 4, 60], np.int32)
    lower, some = bert.hidden_states(Ops(), config, (1, config.L), parameters.tree, batch, rows)
    whole_lower, whole = bert.hidden_states(Ops(), config, (1, config.L), parameters.tree, batch)
    assert np.array_equal(lower, whole_lower)
    assert distance(some, whole[rows]) <= 1e-13
