"""LAMB and norms for XLA: what comes out is the reference's."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from minibert import engines
from minibert.core.gradcheck.cases import SIZES, config_of
from minibert.core.ops import AdamRule
from minibert.core.optim import optimizer_for
from minibert.gradcheck.drawn import random_parameters
from minibert.model.ops import Ops

jax = pytest.importorskip("jax")

from minibert.engines.jax.ops import CHUNK, length, sum_of_squares  # noqa: E402
from minibert.engines.runtime import runtime_of  # noqa: E402

kinds = st.tuples(st.integers(0, 3), st.booleans())
layers = st.tuples(st.lists(kinds, min_size=1, max_size=3), st.integers(1, 4), st.integers(0, 2))


def rows(groups):
    """Tensors of groups that repeat, each group after a gap."""
    found, at = [], 0
    for group, repeats, gap in groups:
        at += gap
        for size, decays in group * repeats:
            found.append([at, at + size, decays])
            at += size
    return np.array(found, np.int64).reshape(-1, 3)


def ten_updates(ops, parameters, tensors, gradients):
    """Parameters and moments after as many updates as there are gradients."""
    buffers = parameters.copy(), *np.zeros((2, len(parameters)))
    for step, gradient in enumerate(gradients, 1):
        buffers = runtime_of(ops).call(ops, update, (Tensors(tensors),), *buffers, gradient, 0.01, step)
    return [np.asarray(one) for one in buffers]


class Tensors:
    """Rows that a compiled function is for."""

    def __init__(self, rows):
        self.rows = rows

    def __hash__(self):
        return hash(self.rows.tobytes())

    def __eq__(self, other):
        return np.array_equal(self.rows, other.rows)


def update(ops, tensors, params, m, v, grads, lr, step):
    return ops.lamb(params, grads, m, v, tensors.rows, AdamRule(lr, step, weight_decay=0.1))


@settings(max_examples=3)
@given(st.lists(layers, min_size=1, max_size=4))
def test_updates_of_any_tensors_are_the_reference_s(groups):
    tensors, rng = rows(groups), np.random.default_rng(0)
    count = int(tensors[-1, 1])
    jax_ops, params, gradients = (
        engines.create("jax", dtype="float64"),
        rng.standard_normal(count),
        rng.standard_normal((3, count)),
    )
    found, _, _ = ten_updates(jax_ops, params, tensors, gradients)
    expected, _, _ = ten_updates(Ops(), params, tensors, gradients)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)


@pytest.mark.thorough
def test_an_optimizer_compiled_updates_what_is_trained_of_a_bert_as_the_reference_does():
    rng, begin = np.random.default_rng(0), 2000
    parameters = random_parameters(config_of(SIZES["ugly"]), rng)
    gradients = rng.standard_normal((3, parameters.count()))
    found = {}
    for ops in (Ops(), engines.create("jax", dtype="float64")):
        optimizer = optimizer_for(parameters, "lamb", clip_norm=5.0, begin=begin)
        buffers = parameters.flat.copy(), *np.zeros((2, parameters.count()))
        for number, gradient in enumerate(gradients, 1):
            buffers = runtime_of(ops).call(ops, whole_update, (optimizer,), buffers, gradient, number, 0.02)
        found[ops.name] = [np.asarray(one) for one in buffers]
    for mine, expected in zip(found["jax"], found["numpy"], strict=True):
        assert np.abs(mine - expected).max() <= 1e-12 * np.abs(expected).max()
    assert np.array_equal(found["jax"][0][:begin], parameters.flat[:begin])
    assert (found["jax"][0][begin:] != parameters.flat[begin:]).mean() > 0.99


def whole_update(ops, optimizer, buffers, grads, number, rate):
    flat, m, v = buffers
    norm = ops.global_norm(optimizer.trained(grads))
    rule = optimizer.rule(number, rate, ops.clip_factor(norm, optimizer.clip_norm))
    changed = optimizer.update(ops, *map(optimizer.trained, (flat, grads, m, v)), rule)
    pairs = zip(buffers, changed, strict=True)
    return tuple(ops.xp.concatenate([whole[: optimizer.begin], tail]) for whole, tail in pairs)


@pytest.mark.representatives(size=1e30)
@pytest.mark.parametrize("shape", [(2 * CHUNK + 5,), (3, 40), (5000, 3), (2, 3, CHUNK)])
@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_length_of_an_array_is_that_of_double_precision(size, shape):
    x = (size * np.random.default_rng(0).standard_normal(shape)).astype(np.float32)
    np.testing.assert_allclose(jax.jit(length)(x), np.linalg.norm(x.astype(float)), rtol=1e-6)
    assert jax.jit(length)(0 * x) == 0


def test_a_long_sum_of_squares_loses_no_digits():
    x = np.full((1 << 21, 3), 0.1, np.float32)
    expected = x.size * float(x[0, 0]) ** 2
    np.testing.assert_allclose(jax.jit(sum_of_squares)(x), expected, rtol=1e-6)
