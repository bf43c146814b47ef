"""The optimizer against its formula written out in float64, and the two schedules against their values."""

import math

import numpy as np
import pytest
from engines import EVERY
from objectives import update_once

from minibert import engines
from minibert.base.errors import InputError
from minibert.core.ops import AdamRule
from minibert.core.optim import AdamW, Lamb, warmup_linear
from minibert.engines.runtime import runtime_of
from minibert.model.ops import Ops

N = 7
DECAYED = np.array([[0, 2], [4, 6]])


def by_hand(params, gradients, rates, *, bias_correction, decay=0.1, eps=1e-6, clip=1.0):
    """Adam one number at a time, as the papers print it."""
    params = [float(value) for value in params]
    m, v = [0.0] * N, [0.0] * N
    for t, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        norm = math.sqrt(sum(float(g) ** 2 for g in gradient))
        for i in range(N):
            g = float(gradient[i]) * min(1.0, clip / norm)
            m[i] = 0.9 * m[i] + 0.1 * g
            v[i] = 0.999 * v[i] + 0.001 * g * g
            m_hat = m[i] / (1 - 0.9**t) if bias_correction else m[i]
            v_hat = v[i] / (1 - 0.999**t) if bias_correction else v[i]
            decays = i in (0, 1, 4, 5)
            params[i] -= rate * (m_hat / (math.sqrt(v_hat) + eps) + (decay * params[i] if decays else 0))
    return np.array(params)


@pytest.mark.parametrize("bias_correction", [True, False])
def test_ten_updates_equal_the_formula_written_out(bias_correction):
    rng = np.random.default_rng(0)
    params = rng.standard_normal(N)
    gradients = rng.standard_normal((10, N)) * np.linspace(0.01, 2, 10)[:, None]  # some clipped, some not
    rates = np.linspace(1e-3, 1e-1, 10)
    expected = by_hand(params, gradients, rates, bias_correction=bias_correction)

    optimizer = AdamW(params, DECAYED, weight_decay=0.1, bias_correction=bias_correction)
    for gradient, rate in zip(gradients, rates, strict=True):
        params, norm = update_once(optimizer, Ops(), params, gradient.copy(), rate)
        assert norm == pytest.approx(np.linalg.norm(gradient), rel=1e-14)
    np.testing.assert_allclose(params, expected, rtol=1e-13)
    assert optimizer.updates == 10


def updated(ops, bias_correction, params, grads, m, v, decay, clip):
    """One update, of which everything but whether moments are corrected may be traced."""
    rule = AdamRule(lr=0.1, step=3, weight_decay=decay, clip=clip, bias_correction=bias_correction)
    return ops.adamw(params, grads, m, v, DECAYED, rule)


@pytest.mark.parametrize("bias_correction", [True, False])
@pytest.mark.parametrize("engine", EVERY)
def test_an_update_by_any_engine_is_that_of_the_reference(engine, bias_correction):
    params, grads, m, v = np.random.default_rng(0).standard_normal((4, N)).astype(np.float32)
    buffers, ops = (params, grads, m, v * v), engines.create(engine, 2)
    for decay, clip in ((0.0, 1.0), (0.1, 1.0), (0.1, 0.3)):
        found, expected = (
            runtime_of(one).call(
                one, updated, (bias_correction,), *(buffer.copy() for buffer in buffers), decay, clip
            )
            for one in (ops, Ops())
        )
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_first_update_of_the_papers_adam_is_ten_over_root_thousand_times_the_rate():
    # Without correction m = 0.1 g and v = 0.001 g^2, so m / sqrt(v) = 0.1 / sqrt(0.001), whatever g is.
    params = np.zeros(N)
    optimizer = AdamW(params, DECAYED, bias_correction=False, eps=1e-30, clip_norm=0)
    params, _ = update_once(optimizer, Ops(), params, np.full(N, 0.3), 0.01)
    np.testing.assert_allclose(params, -0.01 * 0.1 / math.sqrt(0.001), rtol=1e-12)


def test_weight_decay_leaves_layer_norm_and_biases_alone():
    params = np.ones(N)
    optimizer = AdamW(params, DECAYED, weight_decay=0.5)
    params, _ = update_once(optimizer, Ops(), params, np.zeros(N), 0.1)
    np.testing.assert_allclose(params, [0.95, 0.95, 1, 1, 0.95, 0.95, 1], rtol=1e-15)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_gradient_that_is_no_number_changes_nothing(bad):
    params, gradient = np.ones(N), np.ones(N)
    gradient[3] = bad
    optimizer = AdamW(params, DECAYED)
    params, norm = update_once(optimizer, Ops(), params, gradient, 0.1)
    assert not math.isfinite(norm)
    assert (params == 1).all() and not optimizer.m.any() and not optimizer.v.any() and optimizer.updates == 0


def test_an_optimizer_of_ones_own_takes_the_steps():
    class Momentum(AdamW):
        def update(self, ops, params, grads, m, v, rule):
            m += rule.clip * grads
            params -= rule.lr * m
            return params, m, v

    params, gradient = np.zeros(N), np.arange(1.0, N + 1)
    optimizer = Momentum(params, DECAYED, clip_norm=0)
    for _ in range(2):
        params, _ = update_once(optimizer, Ops(), params, gradient, 0.1)
    assert np.allclose(params, -0.3 * gradient)  # 0.1 (g + 2 g)


def test_moments_keep_the_dtype_of_the_parameters():
    optimizer = AdamW(np.zeros(N, np.float32), DECAYED)
    update_once(optimizer, Ops(), np.zeros(N, np.float32), np.ones(N, np.float32), 0.1)
    assert optimizer.m.dtype == optimizer.v.dtype == np.float32


def test_an_update_gives_the_buffers_back_themselves():
    """So the step on a host, which looks at nothing that it returns, has changed parameters and moments."""
    params, m, v = buffers = np.zeros(N), np.zeros(N), np.zeros(N)
    optimizer = AdamW(params, DECAYED)
    after = optimizer.update(Ops(), params, np.ones(N), m, v, optimizer.rule(1, 0.1, 1.0))
    assert params.any() and m.any() and v.any()
    assert all(one is other for one, other in zip(after, buffers, strict=True))


def test_clipping_shortens_what_is_too_long_and_nothing_else():
    assert Ops().clip_factor(4.0, 1.0) == 0.25
    assert Ops().clip_factor(0.5, 1.0) == 1.0
    assert Ops().clip_factor(4.0, 0.0) == 1.0  # no limit
    assert Ops().clip_factor(0.0, 1.0) == 1.0


@pytest.mark.representatives(engine=["numpy", "cpp", "numba"])
@pytest.mark.parametrize("kind", ["adamw", "lamb"])
@pytest.mark.parametrize("engine", EVERY)
def test_a_gradient_of_nothing_leaves_nothing_but_weight_decay_to_a_step(engine, kind):
    ops, params = engines.create(engine, 2), np.arange(1, N + 1, dtype=np.float32)
    tensors = np.array([[0, 2, 1], [2, 4, 0], [4, N, 1]])
    decayed = tensors[tensors[:, 2] == 1, :2]
    make, ranges = (AdamW, decayed) if kind == "adamw" else (Lamb, tensors)
    optimizer = make(params, ranges, weight_decay=0.5)
    found, norm = update_once(optimizer, ops, params.copy(), np.zeros(N, np.float32), 0.1)
    shrunk = 1 - 0.1 * (0.5 if kind == "adamw" else 1.0)  # LAMB's step is as long as the tensor
    expected = np.where([True, True, False, False, True, True, True], shrunk * params, params)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert (norm, optimizer.updates) == (0.0, 1)


@pytest.mark.parametrize("engine", EVERY)
def test_clipping_is_the_same_for_every_engine(engine):
    ops = engines.create(engine, 2)
    for norm in (0.0, 1e-30, 0.5, 1.0, 4.0, 1e30):
        for clip in (0.0, 0.5, 1.0):
            expected = Ops().clip_factor(norm, clip)
            assert float(ops.clip_factor(norm, clip)) == pytest.approx(expected, rel=1e-6)


def test_hugging_face_schedule_decays_from_the_end_of_warm_up():
    rates = [warmup_linear(step, total=100, warmup=10, peak=2.0) for step in (0, 5, 10, 55, 99, 100, 200)]
    assert rates == pytest.approx([0.0, 1.0, 2.0, 1.0, 2 / 90, 0.0, 0.0])


def test_googles_schedule_decays_from_step_zero_and_drops_where_warm_up_ends():
    rates = [warmup_linear(step, total=100, warmup=10, peak=2.0, google=True) for step in (0, 9, 10, 50, 100)]
    assert rates == pytest.approx([0.0, 1.8, 1.8, 1.0, 0.0])


def test_no_warm_up_begins_at_the_peak():
    assert warmup_linear(0, total=10, warmup=0, peak=0.5) == 0.5
    assert warmup_linear(0, total=1, warmup=0, peak=0.5) == 0.5  # a run of a single step


def test_warm_up_that_lasts_to_the_end_leaves_one_full_step_or_none():
    assert [warmup_linear(step, total=4, warmup=3, peak=3.0) for step in (2, 3, 4)] == [2, 3, 0]
    assert [warmup_linear(step, total=4, warmup=4, peak=4.0) for step in (3, 4)] == [3, 0]


@pytest.mark.parametrize("arguments", [(0, 0, 0), (-1, 10, 2), (0, 10, -2)])
def test_a_schedule_that_makes_no_sense_is_refused(arguments):
    with pytest.raises(InputError, match="not a schedule"):
        warmup_linear(*arguments, peak=1.0)
