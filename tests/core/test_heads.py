"""The heads of fine-tuning: layout never matters, frozen layers stay, faults are caught, engines learn."""

import dataclasses

import numpy as np
import pytest
from engines import ENGINES
from objectives import update_once

from minibert import engines
from minibert.core import bert
from minibert.core.gradcheck.cases import SIZES, config_of
from minibert.core.gradcheck.complex_step import distance
from minibert.core.optim import AdamW
from minibert.gradcheck.drawn import random_parameters, random_task_batch
from minibert.gradcheck.sheet import cases, check
from minibert.model.ops import Ops
from minibert.model.params import Head, initialise
from minibert.tasks.batches import batch_outputs, functions_of

SIZE = SIZES["ugly"]
HEADS = {
    "classify": Head("classify", 3),
    "multilabel": Head("multilabel", 4),
    "regress": Head("regress", 1),
    "choice": Head("choice", 1),
    "span": Head("span", 2),
    "tag": Head("tag", 5),
    "classify on LSTMs": Head("classify", 3, lstm=True),
    "tag on LSTMs": Head("tag", 5, lstm=True),
    "mean of windows": Head("classify", 3, pool="mean"),
    "max of windows": Head("regress", 1, pool="max"),
    "attention over windows": Head("classify", 3, pool="attention"),
    "several labels for windows": Head("multilabel", 4, pool="max"),
}
every_head = pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
every_engine = pytest.mark.parametrize("engine", ENGINES)


def model(head, dtype=np.float64, seed=1, **fields):
    """A configuration of two layers and parameters in general position."""
    config = config_of(SIZE, **fields)
    return config, random_parameters(config, np.random.default_rng(seed), head).astype(dtype)


def ugly(head, seed=2):
    """A batch of ugly lengths, every label with a weight of its own."""
    return random_task_batch(SIZE, head, np.random.default_rng(seed))


def run(config, params, *batches, ops=None, dropout=True, frozen=None, **options):
    """Results of some micro-batches and the gradient of their sum."""
    ops, grads, results, heads = ops or Ops(), params.zeros_like(), [], functions_of(params.head)
    for batch in batches:
        drop = ops.dropout(batch, 0.1, 0.2, seed=7, step=3) if dropout else None
        result, saved = heads.loss(ops, config, params.head, params.tree, batch, drop, **options)
        heads.loss_backward(ops, config, params.head, saved, params.tree, grads.tree, frozen)
        results.append(result)
    return results, grads


def total(results):
    """The loss of all micro-batches together."""
    return sum(float(result.loss) for result in results)


# Layout.


@every_head
@pytest.mark.parametrize("causal", [False, True], ids=["both ways", "causal"])
def test_micro_batches_have_the_loss_and_the_gradient_of_the_whole_batch(head, causal):
    config, params = model(head, is_decoder=causal)
    batch = ugly(head)
    whole, whole_grads = run(config, params, batch)
    assert np.abs(whole_grads.flat).max() > 1e-3
    for parts in (2, batch.E):
        micro, micro_grads = run(config, params, *batch.split(parts))
        assert total(micro) == pytest.approx(total(whole), rel=1e-12)
        assert distance(micro_grads.flat, whole_grads.flat) <= 1e-12
        assert distance(np.concatenate([one.nll for one in micro]), whole[0].nll) <= 1e-12


@every_head
def test_outputs_of_a_packed_batch_are_those_of_each_example_alone(head):
    config, params = model(head)
    batch = ugly(head)
    packed = batch_outputs(Ops(), config, head, params.tree, batch)
    assert len(packed) == batch.E
    for example, expected in enumerate(packed):
        [alone] = batch_outputs(Ops(), config, head, params.tree, batch.take(example, example + 1))
        assert distance(alone, expected) <= 1e-12


@every_head
def test_outputs_are_the_scores_of_the_loss_without_dropout(head):
    config, params = model(head)
    batch = ugly(head)
    [result], _ = run(config, params, batch, dropout=False)
    found = batch_outputs(Ops(), config, head, params.tree, batch)
    assert np.array_equal(np.concatenate([one.ravel() for one in found]), result.logits.ravel())
    assert not any(np.shares_memory(one, result.logits) for one in found)
    shapes = {
        "classify": [(3,)] * 6,
        "multilabel": [(4,)] * 6,
        "regress": [(1,)] * 6,
        "choice": [(2,)] * 3,
        "span": [(n, 2) for n in SIZE.lengths],
        "tag": [(n, 5) for n in batch.row_counts],
    }
    assert [one.shape for one in found] == shapes[head.kind][: batch.E]


@pytest.mark.representatives(engine="numpy", pool="mean")
@every_engine
@pytest.mark.parametrize("pool", ["mean", "max", "attention"])
@pytest.mark.parametrize("causal", [False, True], ids=["both ways", "causal"])
def test_with_one_window_for_a_text_pooling_changes_no_bit(engine, pool, causal):
    config, plain = model(Head("classify", 3), np.float32, is_decoder=causal)
    batch, ops = ugly(plain.head), engines.create(engine)
    pooled = plain.with_head(plain.head._replace(pool=pool), 0)[0]
    for name in plain:
        pooled[name][...] = plain[name]
    numbers = np.arange(batch.E, dtype=np.int32)[:, None]
    for windows in (numbers, np.pad(numbers, ((0, 0), (0, 2)), constant_values=-1)):
        windowed = dataclasses.replace(batch, windows=windows)
        [one], grads = run(config, plain, batch, ops=ops)
        [other], pooled_grads = run(config, pooled, windowed, ops=ops)
        assert one.loss == other.loss and np.array_equal(one.logits, other.logits)
        assert all(np.array_equal(grads[name], pooled_grads[name]) for name in plain)


# Values, written out.


def encoded(config, params, batch):
    return bert.encoder(Ops(), config, params.tree, batch)[0]


@pytest.mark.parametrize("causal", [False, True], ids=["first token", "last token"])
def test_a_class_is_read_from_cls_and_under_causal_attention_from_the_last_token(causal):
    head = Head("classify", 3)
    config, params = model(head, is_decoder=causal)
    batch = ugly(head)
    x = encoded(config, params, batch)
    rows = np.cumsum(SIZE.lengths) - (1 if causal else SIZE.lengths)
    pooled = np.tanh(x[rows] @ params["pooler.weight"] + params["pooler.bias"])
    scores = pooled @ params["head.weight"] + params["head.bias"]
    found = batch_outputs(Ops(), config, head, params.tree, batch)
    assert distance(np.stack(found), scores) <= 1e-13
    log_p = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    [result], _ = run(config, params, batch, dropout=False)
    assert distance(result.nll, -log_p[np.arange(6), batch.labels]) <= 1e-12
    assert float(result.loss) == pytest.approx(batch.label_weights @ result.nll, rel=1e-14)


def test_a_number_is_compared_by_its_squared_error():
    config, params = model(HEADS["regress"])
    batch = ugly(HEADS["regress"])
    [result], _ = run(config, params, batch, dropout=False)
    assert distance(result.nll, (result.logits[:, 0] - batch.labels) ** 2) <= 1e-14


def test_each_class_is_a_weighted_yes_or_no():
    config, params = model(HEADS["multilabel"])
    batch = ugly(HEADS["multilabel"])
    [result], _ = run(config, params, batch, dropout=False)
    chances = 1 / (1 + np.exp(-result.logits))
    wrong = np.where(batch.labels > 0, -np.log(chances) * batch.labels, -np.log(1 - chances))
    assert (batch.labels > 0).any() and (batch.labels == 0).any()
    assert distance(result.nll, wrong.mean(1)) <= 1e-13


def test_choices_compete_within_their_example():
    config, params = model(HEADS["choice"])
    batch = ugly(HEADS["choice"])
    [result], grads = run(config, params, batch, dropout=False)
    scores = result.logits.reshape(3, 2)
    log_p = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    assert distance(result.nll, -log_p[np.arange(3), batch.labels]) <= 1e-13
    assert abs(grads["head.bias"][0]) < 1e-15  # the same for every choice, softmax does not see it


def test_a_span_is_a_start_and_an_end_among_the_tokens_of_its_sequence():
    config, params = model(HEADS["span"])
    batch = ugly(HEADS["span"])
    [mean], mean_grads = run(config, params, batch, dropout=False)
    [both], both_grads = run(config, params, batch, dropout=False, span_weight=1)
    expected = []
    for scores, label in zip(np.split(mean.logits, batch.cu_seqlens[1:-1]), batch.labels, strict=True):
        log_p = scores - np.log(np.exp(scores).sum(0))
        expected.append(-log_p[label[0], 0] - log_p[label[1], 1])
    assert distance(both.nll, expected) <= 1e-13
    assert distance(mean.nll, np.array(expected) / 2) <= 1e-13
    assert distance(both_grads.flat, 2 * mean_grads.flat) <= 1e-14


def test_tags_are_asked_at_their_rows_alone():
    config, params = model(HEADS["tag"])
    batch = ugly(HEADS["tag"])
    scores = encoded(config, params, batch)[batch.label_rows] @ params["head.weight"] + params["head.bias"]
    found = batch_outputs(Ops(), config, HEADS["tag"], params.tree, batch)
    assert distance(np.concatenate(found), scores) <= 1e-13
    assert 0 < len(scores) < batch.T


def test_start_and_end_scores_are_products_with_two_vectors():
    config, params = model(HEADS["span"])
    batch = ugly(HEADS["span"])
    start, end = params["head.weight"].T
    x = encoded(config, params, batch)
    found = np.concatenate(batch_outputs(Ops(), config, HEADS["span"], params.tree, batch))
    assert distance(found, np.stack([x @ start, x @ end], 1) + params["head.bias"]) <= 1e-13


def test_the_score_of_a_choice_is_cls_times_a_vector():
    config, params = model(HEADS["choice"])
    batch = ugly(HEADS["choice"])
    cls = encoded(config, params, batch)[batch.cu_seqlens[:-1]]
    pooled = np.tanh(cls @ params["pooler.weight"] + params["pooler.bias"])
    expected = (pooled @ params["head.weight"][:, 0] + params["head.bias"]).reshape(3, 2)
    assert (
        distance(np.stack(batch_outputs(Ops(), config, HEADS["choice"], params.tree, batch)), expected)
        <= 1e-13
    )


def test_lstms_stand_between_the_encoder_and_the_output_layer():
    head = HEADS["tag on LSTMs"]
    config, params = model(head)
    batch = ugly(head)
    x = encoded(config, params, batch)
    for layer in params.tree["lstm"]:
        left, _ = Ops().lstm(x, **layer["left_to_right"], cu_seqlens=batch.cu_seqlens)
        right, _ = Ops().lstm(x, **layer["right_to_left"], cu_seqlens=batch.cu_seqlens, reverse=True)
        x = np.concatenate([left, right], 1)
    scores = x[batch.label_rows] @ params["head.weight"] + params["head.bias"]
    found = np.concatenate(batch_outputs(Ops(), config, head, params.tree, batch))
    assert distance(found, scores) <= 1e-13


def test_examples_without_a_label_teach_nothing():
    config, params = model(HEADS["classify"])
    batch = ugly(HEADS["classify"])
    half = dataclasses.replace(batch, label_weights=batch.label_weights * (np.arange(6) < 3))
    _, expected = run(config, params, batch.take(0, 3))
    _, found = run(config, params, half)
    assert distance(found.flat, expected.flat) <= 1e-12


def test_other_steps_drop_other_elements_in_front_of_the_head():
    config, params = model(HEADS["classify"])
    batch, ops = ugly(HEADS["classify"]), Ops()
    losses = set()
    for step in range(3):
        drop = ops.dropout(batch, 0.1, 0, seed=7, step=step)
        loss, _ = functions_of(params.head).loss(ops, config, params.head, params.tree, batch, drop)
        losses.add(float(loss.loss))
    assert len(losses) == 3


# Frozen layers.


@pytest.mark.representatives(engine="cpp")
@every_head
@every_engine
@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_frozen_layers_have_no_gradient_and_the_others_the_same_bits_as_ever(head, engine, frozen):
    config, params = model(head, np.float32)
    ops, batch = engines.create(engine, threads=2), ugly(head)
    _, whole = run(config, params, batch, ops=ops)
    _, found = run(config, params, batch, ops=ops, frozen=frozen)
    begin = params.trained_from(frozen)
    assert begin == params.count("embeddings.", *(f"layers.{i}." for i in range(frozen)))
    assert not found.flat[:begin].any()
    assert np.array_equal(found.flat[begin:], whole.flat[begin:])
    assert whole.flat[:begin].any() and found.flat[begin:].any()


@every_engine
def test_weight_decay_leaves_frozen_layers_as_they_are_to_the_bit(engine):
    head, ops = HEADS["classify"], engines.create(engine, threads=2)
    config, params = model(head, np.float32)
    before, begin = params.flat.copy(), params.trained_from(1)
    optimizer = AdamW(params.flat, params.decayed, weight_decay=0.5, clip_norm=0.01, begin=begin)
    for seed in range(5):
        _, grads = run(config, params, ugly(head, seed), ops=ops, frozen=1)
        update_once(optimizer, ops, params.flat, grads.flat, 1e-2)
    assert params.flat[:begin].tobytes() == before[:begin].tobytes()
    changed = params.flat[begin:] != before[begin:]
    assert changed.mean() > 0.99
    assert not optimizer.m[:begin].any() and not optimizer.v[:begin].any()
    careless = AdamW(params.flat, params.decayed, weight_decay=0.5)
    update_once(careless, ops, params.flat, grads.flat, 1e-2)
    assert (params.flat[:begin] != before[:begin]).mean() > 0.9  # the decay that must not reach them


def test_an_update_of_the_trained_part_is_that_of_a_buffer_of_its_own():
    rng, begin = np.random.default_rng(0), 5
    flat, decayed = rng.standard_normal(12), np.array([[0, 3], [4, 8], [10, 11]])
    alone = flat[begin:].copy()
    whole = AdamW(flat, decayed, weight_decay=0.1, begin=begin)
    part = AdamW(alone, np.array([[0, 3], [5, 6]]), weight_decay=0.1)
    for _ in range(4):
        grads = rng.standard_normal(12)
        _, norm = update_once(whole, Ops(), flat, grads, 0.1)
        _, expected = update_once(part, Ops(), alone, grads[begin:].copy(), 0.1)
        assert norm == expected
    assert np.array_equal(flat[begin:], alone)
    assert (whole.m.shape, whole.updates) == (flat.shape, 4)


# Faults that the proof sheet has to catch, planted between forward and backward.

CASES = {case.label: case for case in cases(SIZE)}


def tampered(label, change):
    """A case whose backward is given something else than its forward kept."""
    case = CASES[label]

    def backward(ops, dy, saved, params, grads):
        return case.backward(ops, dy, change(saved), params, grads)

    return case._replace(backward=backward)


def put(saved, path, change):
    """What was saved, but for what stands at the end of these names."""
    name, *rest = path.split(".", 1)
    old = getattr(saved, name)
    return saved._replace(**{name: put(old, rest[0], change) if rest else change(old)})


FAULTS = {
    "dropout in front of the head forgotten": (
        "head_loss classify dropout",
        lambda saved: put(saved, "logits.output.dropout", lambda drop: None),
    ),
    "dropout drawn from the rows of other sequences": (
        "head_loss tag dropout",
        lambda saved: put(saved, "logits.output.dropout.mask", lambda mask: mask[::-1]),
    ),
    "weights of the labels forgotten": (
        "head_loss classify",
        lambda saved: put(saved, "dnll", lambda weights: np.full_like(weights, 1 / len(weights))),
    ),
    "sum in place of the mean of start and end": (
        "head_loss span",
        lambda saved: put(saved, "dnll", lambda weights: 2 * weights),
    ),
    "start and end exchanged": (
        "head_loss span causal dropout",
        lambda saved: put(saved, "loss", lambda both: both._replace(start=both.end, end=both.start)),
    ),
    "first token pooled under causal attention": (
        "head_loss choice causal dropout",
        lambda saved: put(saved, "logits.output.rows.rows.rows", lambda rows: rows * 0),
    ),
    "tags sent to the rows before theirs": (
        "head_loss tag",
        lambda saved: put(saved, "logits.output.rows.rows", lambda rows: np.maximum(rows - 1, 0)),
    ),
    "layers of an LSTM exchanged": (
        "head_loss classify LSTM dropout",
        lambda saved: put(saved, "logits.output.lstm", lambda lstm: lstm[::-1]),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_is_caught(fault):
    label, change = FAULTS[fault]
    assert [row.verdict for row in check([Ops()], tampered(label, lambda saved: saved))] == ["ok"]
    assert [row.verdict for row in check([Ops()], tampered(label, change))] == ["FAIL"]


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_gradient_of_the_head_that_is_not_accumulated_is_caught(name):
    case = CASES["head_loss regress"]

    def backward(ops, dy, saved, params, grads):
        before = grads["head"][name].copy()
        inputs, grads = case.backward(ops, dy, saved, params, grads)
        return inputs, grads | {"head": grads["head"] | {name: before}}

    assert [row.verdict for row in check([Ops()], case._replace(backward=backward))] == ["FAIL"]


# Precisions and learning.


@every_head
def test_bfloat16_errs_as_bfloat16_does(head):
    ops = engine_in("bfloat16")
    config, params = model(head)
    params.flat *= 0.5
    params = params.astype(np.float32)
    batch = ugly(head)
    [exact], exact_grads = run(config, params.astype(np.float64), batch)
    [found], grads = run(config, params, batch, ops=ops)
    assert found.logits.dtype == found.nll.dtype == grads.flat.dtype == np.float32
    assert 0 < distance(found.logits, exact.logits) < 0.03
    assert 0 < distance(grads.flat, exact_grads.flat) < 0.05
    for one, expected in zip(
        batch_outputs(ops, config, head, params.tree, batch),
        batch_outputs(Ops(), config, head, params.astype(np.float64).tree, batch),
        strict=True,
    ):
        assert one.dtype == np.float32
        assert distance(one, expected, least=np.sqrt(expected.size)) < 0.03


def engine_in(dtype):
    pytest.importorskip("minibert.engines.cpp.ops", reason="the kernels in C++ are not built")
    return engines.create("cpp", 2, dtype)


@pytest.mark.representatives(head=HEADS["classify"])
@pytest.mark.representatives(engine="numpy", head=[HEADS["span"], HEADS["tag"], HEADS["regress"]])
@every_engine
@every_head
def test_every_head_learns_a_batch_by_heart(head, engine):
    learn(engines.create(engine, threads=2), head)


@pytest.mark.representatives(head=HEADS["classify"])
@every_head
def test_every_head_learns_in_bfloat16(head):
    learn(engine_in("bfloat16"), head)


def learn(ops, head):
    """Train from the initial values of a model with dropout until it knows one batch."""
    config = config_of(SIZE, num_hidden_layers=1)
    params = initialise(config, 0, np.float32, head)
    batch = ugly(head).take(1, 3)
    optimizer = AdamW(params.flat, params.decayed)
    losses = []
    for step in range(60):
        grads = params.zeros_like()
        drop = ops.dropout(batch, 0.05, 0.05, seed=0, step=step)
        result, saved = functions_of(head).loss(ops, config, head, params.tree, batch, drop)
        functions_of(head).loss_backward(ops, config, head, saved, params.tree, grads.tree)
        losses.append(float(result.loss))
        update_once(optimizer, ops, params.flat, grads.flat, 5e-3)
    assert np.mean(losses[-5:]) < 0.2 * losses[0], (losses[0], losses[-5:])
