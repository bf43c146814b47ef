"""Muon against its formula by singular values, and against what the formula promises."""

from dataclasses import dataclass

import numpy as np
import pytest
from engines import ENGINES, missing
from hypothesis import given, strategies as st

from minibert import engines
from minibert.core.gradcheck.cases import SIZES, config_of
from minibert.core.ops import AdamRule
from minibert.core.optim import AdamW, optimizer_for
from minibert.engines.runtime import runtime_of
from minibert.gradcheck.drawn import random_parameters
from minibert.model.ops import Ops

every_engine = pytest.mark.parametrize("ops", ENGINES, indirect=True)
every_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])
every_shape = pytest.mark.parametrize(
    "shape", [(6, 6, 1), (5, 12, 1), (12, 5, 1), (8, 24, 3)], ids=["square", "wide", "tall", "three abreast"]
)
GIVEN = {"weight_decay": 0.1, "beta1": 0.8, "clip": 0.5}


@pytest.fixture(scope="module")
def ops(request):
    return engines.create(request.param, threads=2, dtype="float64")  # takes float32 as well


@dataclass(frozen=True)
class Rule:
    """What an engine that compiles has to know of an update."""

    tensor: tuple
    given: tuple


def update(ops, rule, params, grads, m, v, lr, step):
    return ops.muon(params, grads, m, v, np.array([rule.tensor]), AdamRule(lr, step, **dict(rule.given)))


def muon(ops, params, grads, m, v, tensor, *, lr, step, **given):
    """One update of a single tensor, compiled by engines that compile."""
    rule = Rule(tensor, tuple(sorted(given.items())))
    found = runtime_of(ops).call(ops, update, (rule,), params, grads, m, v, lr, step)
    return [np.asarray(one) for one in found]


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def near_one(values):
    """What five of the steps make of singular values."""
    for _ in range(5):
        values = 3.4445 * values - 4.775 * values**3 + 2.0315 * values**5
    return values


def by_singular_values(x, gradients, rates, matrices):
    """Parameters and momentum of matrices side by side, with nothing but NumPy's decomposition."""
    m = np.zeros_like(x)
    for gradient, rate in zip(gradients, rates, strict=True):
        g = GIVEN["clip"] * gradient
        m = GIVEN["beta1"] * m + (1 - GIVEN["beta1"]) * g
        ahead = GIVEN["beta1"] * m + (1 - GIVEN["beta1"]) * g
        directions = []
        for one in np.hsplit(ahead, matrices):
            u, s, vt = np.linalg.svd(one, full_matrices=False)
            directions.append(max(one.shape) ** 0.5 * (u * near_one(s / np.sqrt((s * s).sum()))) @ vt)
        x = x - rate * (np.hstack(directions) + GIVEN["weight_decay"] * x)
    return x, m


@every_engine
@every_dtype
@every_shape
def test_ten_updates_are_those_of_the_singular_values(ops, dtype, shape):
    *size, matrices = shape
    start, gradients = draw(*size), draw(10, *size, seed=1)
    rates = np.linspace(1e-3, 1e-1, 10).tolist()
    expected, momentum = by_singular_values(start, gradients, rates, matrices)
    params = start.astype(dtype).ravel()
    m, v = np.zeros_like(params), np.zeros_like(params)
    tensor = (0, start.size, 1, size[0], matrices)
    for step, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        grads = gradient.astype(dtype).ravel()
        params, m, v = muon(ops, params, grads, m, v, tensor, lr=rate, step=step, **GIVEN)
    # Steps that take small singular values apart do so to their roundings, up to 3.4445^5 times.
    tolerance = 500 * np.finfo(dtype).eps
    assert np.abs(params - expected.ravel()).max() <= tolerance * np.abs(expected).max()
    assert np.abs(m - momentum.ravel()).max() <= tolerance * np.abs(momentum).max()
    assert not v.any()
    assert params.dtype == m.dtype == dtype


def test_the_polynomial_ends_near_one():
    ends = near_one(np.geomspace(0.002, 1, 10_001))
    assert 0.68 < ends.min() < 0.7 and 1.2 < ends.max() < 1.21
    assert near_one(0.001) < 0.68


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 99), st.sampled_from([2.0**-9, 1.0, 2.0**20]))
def test_how_long_a_gradient_is_changes_nothing(rows, columns, seed, scale):
    count = rows * columns
    still, gradient = np.zeros(count), draw(count, seed=seed)
    tensor, rule = (0, count, 1, rows, 1), {"lr": 1.0, "step": 1}
    one, _, _ = muon(Ops(), still.copy(), gradient, still.copy(), still.copy(), tensor, **rule)
    other, _, _ = muon(Ops(), still.copy(), scale * gradient, still.copy(), still.copy(), tensor, **rule)
    assert np.abs(one).max() > 0.01
    np.testing.assert_allclose(other, one, rtol=0, atol=1e-11)


def test_numbers_change_by_as_much_as_in_a_first_step_of_adam():
    for shape in ((64, 64), (64, 256), (256, 64)):
        count = shape[0] * shape[1]
        still = np.zeros(count)
        tensor = (0, count, 1, shape[0], 1)
        moved, _, _ = muon(Ops(), still.copy(), draw(count), still.copy(), still.copy(), tensor, lr=1, step=1)
        assert 0.68 < np.sqrt((moved**2).mean()) < 1.21


def test_a_gradient_of_zeros_leaves_weight_decay_alone():
    still = np.zeros(20)
    found, m, _ = muon(
        Ops(),
        still + 3,
        still,
        still.copy(),
        still.copy(),
        (0, 20, 1, 4, 1),
        lr=0.1,
        step=1,
        weight_decay=0.5,
    )
    np.testing.assert_allclose(found, 3 * (1 - 0.05), rtol=1e-15)
    assert not m.any()


# A whole BERT.


@pytest.fixture(scope="module")
def parameters():
    return random_parameters(config_of(SIZES["ugly"]), np.random.default_rng(0))


def test_matrices_are_the_weights_of_the_layers(parameters):
    rows = dict(zip(parameters, parameters.matrices.tolist(), strict=True))
    assert parameters.matrices.dtype == np.int64
    assert np.array_equal(parameters.matrices[:, :3], parameters.tensors)
    shapes = {name: tuple(shape) for name, (_, _, _, *shape) in rows.items() if any(shape)}
    H, F = parameters.config.H, parameters.config.F
    assert shapes == {
        f"layers.{i}.{name}": shape
        for i in range(parameters.config.L)
        for name, shape in {
            "attention.qkv_weight": (H, 3),
            "attention.output_weight": (H, 1),
            "feed_forward.in_weight": (H, 1),
            "feed_forward.out_weight": (F, 1),
        }.items()
    }


@every_engine
@pytest.mark.parametrize("begin", [0, 3216])
def test_what_is_no_matrix_of_a_layer_takes_the_step_of_adam(ops, parameters, begin):
    assert begin in parameters.tensors[:, 0]
    ended = {}
    for kind in ("adamw", "muon"):
        params, optimizer = parameters.flat.copy(), optimizer_for(parameters, kind, begin=begin)
        for step in (1, 2, 3):
            buffers = (params, draw(len(params), seed=step), optimizer.m, optimizer.v)
            rule = optimizer.rule(step, 0.01, 0.3)
            optimizer.update(ops, *map(optimizer.trained, buffers), rule)
        ended[kind] = params, optimizer.m, optimizer.v
    inside = np.zeros(len(parameters.flat), bool)
    for low, high, _, rows, _ in parameters.matrices.tolist():
        inside[low:high] = rows > 0
    assert 0.3 < inside.mean() < 0.9
    for mine, adam in zip(ended["muon"], ended["adamw"], strict=True):
        assert np.array_equal(mine[~inside], adam[~inside])
    assert np.array_equal(ended["muon"][0][:begin], parameters.flat[:begin])
    moved = ended["muon"][0] != ended["adamw"][0]
    assert moved[begin:][inside[begin:]].mean() > 0.99
    assert type(optimizer_for(parameters, "adamw")) is AdamW


@pytest.mark.parametrize(
    ("name", "dtype", "tolerance"),
    [("numba", "float32", 1e-4), ("cpp", "float32", 1e-4), ("cpp", "bfloat16", 0.05)],
)
def test_steps_in_low_precision_are_the_reference_s_and_leave_accumulators_usable(
    name, dtype, tolerance, parameters
):
    if reason := missing(name):
        pytest.skip(reason)
    ended = []
    for ops in (engines.create(name, threads=2, dtype=dtype), Ops()):
        params = parameters.astype("float32")
        optimizer, grads = optimizer_for(params, "muon"), np.zeros_like(params.flat)
        for step in (1, 2, 3):
            ops.zero(grads)  # an engine may have cleared its accumulators in the update before
            grads += draw(len(grads), seed=step).astype("float32")
            rule = optimizer.rule(step, 0.01, 0.3)
            optimizer.update(ops, params.flat, grads, optimizer.m, optimizer.v, rule)
        ended.append(params.flat - parameters.flat)
    mine, reference = ended
    assert np.linalg.norm(mine - reference) <= tolerance * np.linalg.norm(reference)


def test_three_matrices_abreast_are_three_matrices():
    x, gradient = draw(6, 18), draw(6, 18, seed=1)
    still = np.zeros(108)
    rule = {"lr": 0.1, "step": 1, "weight_decay": 0.01}
    whole, _, _ = muon(
        Ops(), x.ravel().copy(), gradient.ravel(), still.copy(), still.copy(), (0, 108, 1, 6, 3), **rule
    )
    for i, part in enumerate(np.hsplit(whole.reshape(6, 18), 3)):
        columns = np.s_[:, 6 * i : 6 * i + 6]
        alone, _, _ = muon(
            Ops(),
            x[columns].ravel(),
            gradient[columns].ravel(),
            np.zeros(36),
            np.zeros(36),
            (0, 36, 1, 6, 1),
            **rule,
        )
        assert np.array_equal(part.ravel(), alone)
    together, _, _ = muon(
        Ops(), x.ravel().copy(), gradient.ravel(), still.copy(), still.copy(), (0, 108, 1, 6, 1), **rule
    )
    assert np.abs(together - whole).max() > 1e-3
