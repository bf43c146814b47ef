"""LAMB against numbers worked out by hand, against optax's, and against what its formula promises."""

import json
import math
from dataclasses import dataclass

import numpy as np
import pytest
from engines import ENGINES
from hypothesis import given, strategies as st
from paths import GOLDEN as FOLDER

from minibert import engines
from minibert.core.gradcheck.complex_step import worst
from minibert.core.ops import AdamRule
from minibert.core.ops.updates import CHUNK
from minibert.engines.runtime import runtime_of
from minibert.model.ops import Ops

GOLDEN = json.loads((FOLDER / "lamb.json").read_text(encoding="utf-8"))
VARIANTS = {"every": (), "weights": tuple(GOLDEN["left_out"])}
STEPS = len(GOLDEN["rates"])
PLAIN = {"step": 1, "weight_decay": 0.0, "eps": 0.0}
every_engine = pytest.mark.parametrize("ops", ENGINES, indirect=True)
every_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])


@pytest.fixture(scope="module")
def ops(request):
    return engines.create(request.param, threads=2, dtype="float64")  # takes float32 as well


def rows(*sizes, left_out=()):
    """Tensors of these sizes, one after another; which of them do not decay."""
    ends = np.cumsum(sizes).tolist()
    borders = zip([0, *ends], ends, strict=False)
    return np.array([(begin, end, i not in left_out) for i, (begin, end) in enumerate(borders)], np.int64)


def start(params, dtype="float64"):
    """Parameters, and moments that begin at zero."""
    params = np.array(params, dtype)
    return params, np.zeros_like(params), np.zeros_like(params)


@dataclass(frozen=True)
class Rule:
    """What an engine that compiles has to know of an update: which tensors, and the numbers that stay."""

    tensors: tuple
    given: tuple


def update(ops, rule, params, grads, m, v, lr, step):
    tensors = np.array(rule.tensors, np.int64).reshape(-1, 3)
    return ops.lamb(params, grads, m, v, tensors, AdamRule(lr, step, **dict(rule.given)))


def lamb(ops, params, grads, m, v, tensors, *, lr, step, **given):
    """One update, compiled by engines that compile."""
    rule = Rule(tuple(map(tuple, tensors.tolist())), tuple(sorted(given.items())))
    return runtime_of(ops).call(ops, update, (rule,), params, grads, m, v, lr, step)


def one_update(ops, params, grads, tensors, dtype="float64", **given):
    """Parameters after the first step."""
    params, m, v = start(params, dtype)
    found, _, _ = lamb(ops, params, np.array(grads, dtype), m, v, tensors, **{**PLAIN, **given})
    return np.asarray(found)


def distance(found, expected):
    return np.abs(np.asarray(found, float) - expected).max() / np.abs(expected).max()


# One number at a time.


def test_a_tensor_moves_by_the_rate_times_its_length_in_the_direction_of_adam():
    # Adam's first step is the sign of the gradient, whose length is the root of 2; |(3, 4)| = 5.
    found = one_update(Ops(), [3, 4], [0.02, -7], rows(2), lr=0.1)
    np.testing.assert_allclose(found, [3 - 0.5 / math.sqrt(2), 4 + 0.5 / math.sqrt(2)], rtol=1e-15)


def test_weight_decay_is_inside_the_length():
    # u = (1, -1) + 0.5 (3, 4) = (2.5, 1), whose square is 7.25.
    found = one_update(Ops(), [3, 4], [0.02, -7], rows(2), lr=0.1, weight_decay=0.5)
    share = 0.5 / math.sqrt(7.25)
    np.testing.assert_allclose(found, [3 - 2.5 * share, 4 - share], rtol=1e-15)


def test_every_tensor_has_a_ratio_of_its_own():
    found = one_update(Ops(), [3, 4, 0.3, 0.4], [1, 1, 1, 1], rows(2, 2), lr=0.1)
    np.testing.assert_allclose(found[:2] - [3, 4], -0.5 / math.sqrt(2), rtol=1e-14)
    np.testing.assert_allclose(found[2:] - [0.3, 0.4], -0.05 / math.sqrt(2), rtol=1e-14)


def test_what_does_not_decay_takes_the_step_of_adam():
    buffers, tensors = draw(4, 5), rows(2, 3, left_out=(0, 1))
    buffers[3] **= 2
    adam = Ops().adamw(*(one.copy() for one in buffers), np.empty((0, 2), np.int64), AdamRule(0.1, 3))
    lamb = Ops().lamb(*(one.copy() for one in buffers), tensors, AdamRule(0.1, 3, weight_decay=0.5))
    assert all(map(np.array_equal, lamb, adam))


def by_hand(params, gradients, rates, tensors, *, bias_correction, weight_decay, eps, clip):
    """Algorithm 2, one number at a time."""
    x, m, v = [float(one) for one in params], [0.0] * len(params), [0.0] * len(params)
    for t, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        for begin, end, decays in tensors.tolist():
            update = []
            for i in range(begin, end):
                g = float(gradient[i]) * clip
                m[i] = 0.9 * m[i] + 0.1 * g
                v[i] = 0.999 * v[i] + 0.001 * g * g
                m_hat, v_hat = m[i], v[i]
                if bias_correction:
                    m_hat, v_hat = m_hat / (1 - 0.9**t), v_hat / (1 - 0.999**t)
                update.append(m_hat / (math.sqrt(v_hat) + eps) + (weight_decay * x[i] if decays else 0))
            lengths = math.hypot(*x[begin:end]), math.hypot(*update)
            ratio = lengths[0] / lengths[1] if decays and all(lengths) else 1.0
            x[begin:end] = [x[i] - rate * ratio * update[i - begin] for i in range(begin, end)]
    return np.array(x)


@every_engine
@every_dtype
@pytest.mark.parametrize("bias_correction", [True, False])
def test_ten_updates_equal_the_algorithm_written_out(ops, dtype, bias_correction):
    tensors = rows(4, 1, 5, 3, left_out=(1, 3))
    given = {"weight_decay": 0.1, "eps": 1e-3, "clip": 0.5, "bias_correction": bias_correction}
    params, m, v = start(draw(13), dtype)
    gradients, rates = draw(10, 13, seed=1).astype(dtype), np.linspace(1e-3, 1e-1, 10).tolist()
    expected = by_hand(params, gradients, rates, tensors, **given)
    for step, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        params, m, v = lamb(ops, params, gradient, m, v, tensors, lr=rate, step=step, **given)
    assert distance(params, expected) < 40 * np.finfo(dtype).eps


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


# Fifty updates of optax's.


def errors(ops, variant, dtype="float64"):
    """How far fifty updates are from optax's, looked at now and then, relative to the largest number."""
    expected, begins = GOLDEN[variant], GOLDEN["begins"]
    tensors = rows(*np.diff(begins), left_out=VARIANTS[variant])
    params, m, v = start(GOLDEN["params"], dtype)
    gradients, found = (np.array(GOLDEN["thousandths"]) / 1000).astype(dtype), []
    for step, (gradient, rate) in enumerate(zip(gradients, GOLDEN["rates"], strict=True), 1):
        params, m, v = lamb(ops, params, gradient, m, v, tensors, lr=rate, step=step, **GOLDEN["given"])
        if str(step) in expected:
            found.append(distance(params, np.array(expected[str(step)])))
    return [*found, distance(m, np.array(expected["m"])), distance(v, np.array(expected["v"]))]


@every_engine
@pytest.mark.parametrize("variant", VARIANTS)
def test_fifty_updates_are_those_of_optax(ops, variant):
    found = errors(ops, variant)
    assert len(found) == 5
    assert worst(found) <= 1e-12


@every_engine
@pytest.mark.parametrize("variant", VARIANTS)
def test_fifty_updates_in_single_precision_are_those_of_optax(ops, variant):
    # A rounding of a half every update and in every moment: 50 of them, with room for what they do to others.
    assert worst(errors(ops, variant, "float32")) <= 100 * np.finfo("float32").eps


# What the formula promises.


@every_engine
@every_dtype
@pytest.mark.parametrize("scale", [2.0**-20, 2.0**20])
def test_how_long_a_gradient_is_changes_nothing(ops, dtype, scale):
    tensors, scales = rows(40, 8, 30), np.repeat([1, scale, 1], [40, 8, 30]).astype(dtype)
    plain, scaled = start(draw(78), dtype), start(draw(78), dtype)
    for step in range(1, 6):
        gradient = draw(78, seed=step).astype(dtype)
        given = {"lr": 0.01, "step": step, "eps": 0.0}
        plain = lamb(ops, plain[0], gradient, *plain[1:], tensors, **given)
        scaled = lamb(ops, scaled[0], gradient * scales, *scaled[1:], tensors, **given)
    assert np.array_equal(np.asarray(plain[0]), np.asarray(scaled[0]))
    assert not np.array_equal(np.asarray(plain[1]), np.asarray(scaled[1]))


@every_engine
@every_dtype
def test_a_tensor_twice_as_long_moves_twice_as_far(ops, dtype):
    short = one_update(ops, draw(50), draw(50, seed=1), rows(50), dtype, lr=0.01)
    long = one_update(ops, 2 * draw(50), draw(50, seed=1), rows(50), dtype, lr=0.01)
    assert np.array_equal(long, 2 * short)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.floats(1e-4, 0.5), st.integers(0, 99))
def test_the_rate_is_the_share_of_its_length_by_which_a_tensor_moves(sizes, rate, seed):
    tensors, (params, gradient) = rows(*sizes), draw(2, sum(sizes), seed=seed)
    moved = one_update(Ops(), params, gradient, tensors, lr=rate, weight_decay=0.3, eps=1e-6) - params
    for begin, end, _ in tensors.tolist():
        share = np.linalg.norm(moved[begin:end]) / np.linalg.norm(params[begin:end])
        assert share == pytest.approx(rate, rel=1e-10)


@every_engine
@every_dtype
def test_a_tensor_of_zeros_takes_the_step_of_adam(ops, dtype):
    found = one_update(ops, [0, 0, 0, 5], [3, -0.5, 2, 1], rows(3, 1), dtype, lr=0.25)
    np.testing.assert_allclose(found, [-0.25, 0.25, -0.25, 3.75], rtol=4 * np.finfo(dtype).eps)


@every_engine
@every_dtype
def test_without_memory_only_signs_count(ops, dtype):
    params, gradient = np.array([3, 4], dtype), [-1e-3, 17]
    for step in (1, 5):
        found = one_update(ops, params, gradient, rows(2), dtype, lr=0.1, step=step, beta1=0.0, beta2=0.0)
        expected = params + 0.5 / math.sqrt(2) * np.array([1, -1])
        np.testing.assert_allclose(found, expected, rtol=4 * np.finfo(dtype).eps)


@every_engine
@every_dtype
def test_without_a_gradient_nothing_moves_but_for_weight_decay(ops, dtype):
    params = np.array([3, 4, 1], dtype)
    given = {"dtype": dtype, "lr": 0.25, "eps": 1e-6}
    still = one_update(ops, params, [0, 0, 0], rows(2, 1), **given)
    assert np.array_equal(still, params)
    # The update is along the parameters, and as long as them: they shrink by the rate, whatever the decay is.
    for decay in (0.01, 0.5):
        shrunk = one_update(ops, params, [0, 0, 0], rows(2, 1, left_out=(1,)), weight_decay=decay, **given)
        np.testing.assert_allclose(shrunk, [2.25, 3, 1], rtol=4 * np.finfo(dtype).eps)


@every_engine
def test_an_empty_tensor_and_an_empty_buffer_do_no_harm(ops):
    found = one_update(ops, [3, 4], [1, -1], rows(0, 2, 0), lr=0.1)
    assert found.tolist() == one_update(Ops(), [3, 4], [1, -1], rows(2), lr=0.1).tolist()
    assert one_update(ops, [], [], rows(0), lr=0.1).shape == (0,)


# Lengths.


def share_moved(ops, size):
    """How far a long tensor of single precision moves at a rate of 1/8, of its length."""
    count = 3 * CHUNK + 7
    params, gradient = (size * draw(count + 2)).astype("float32"), draw(count + 2, seed=1).astype("float32")
    found = one_update(ops, params, gradient, rows(2, count), "float32", lr=0.125)
    moved, length = found[2:].astype(float) - params[2:], np.linalg.norm(params[2:].astype(float))
    assert (np.sign(moved) == -np.sign(gradient[2:])).all()
    return np.linalg.norm(moved) / length


SIZES = (1e-30, 1.0, 1e25)  # squares of the first and the last are not in single precision


@every_engine
@pytest.mark.parametrize("size", SIZES)
def test_lengths_in_single_precision_are_right_however_large_the_numbers_are(ops, size):
    assert share_moved(ops, size) == pytest.approx(0.125, rel=1e-6)


def test_squares_in_single_precision_are_caught():
    class Narrow(Ops):
        def _squares(self, x):
            return x @ x

    with np.errstate(over="ignore", invalid="ignore"):
        found = [share_moved(Narrow(), size) == pytest.approx(0.125, rel=1e-6) for size in SIZES]
    assert found == [False, True, False]


# The contract of an engine.


@every_engine
@every_dtype
def test_buffers_are_consumed_and_returned(ops, dtype):
    params, gradient = draw(2, 20).astype(dtype)
    m, v, before = np.zeros_like(params), np.zeros_like(params), (params.copy(), gradient.copy())
    found = lamb(ops, params, gradient, m, v, rows(15, 5), lr=0.1, step=1)
    assert [one.dtype for one in found] == [dtype] * 3
    assert np.array_equal(gradient, before[1])
    assert (np.asarray(found[0]) != before[0]).all()
    if ops.xp is np:  # in place; other libraries are free to
        assert all(one is other for one, other in zip(found, (params, m, v), strict=True))


@every_engine
@every_dtype
def test_what_is_in_no_tensor_stays_as_it_is(ops, dtype):
    params, gradient = draw(2, 9).astype(dtype)
    found = one_update(ops, params, gradient, np.array([[2, 6, 1]]), dtype, lr=0.1)
    assert np.array_equal(found[[0, 1, 6, 7, 8]], params[[0, 1, 6, 7, 8]])
    assert (found[2:6] != params[2:6]).all()


# Faults that the numbers of optax have to find. Each is an engine with one thing wrong.


def ratio_of(change):
    """An engine whose ratio is another."""

    class Other(Ops):
        def _trust_ratio(self, length, update_length):
            return change(super()._trust_ratio, length, update_length)

    return Other()


class Rearranged(Ops):
    """An engine that hands on something else than it was given."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    def lamb(self, params, grads, m, v, tensors, rule):
        return super().lamb(params, grads, m, v, *self.change(tensors, rule))


class LengthAfterwards(Ops):
    """The ratio is taken with the parameters that plain Adam would have made."""

    def lamb(self, params, grads, m, v, tensors, rule):
        adam = Rearranged(lambda tensors, rule: (tensors * [1, 1, 0], rule))
        moved, *_ = adam.lamb(params.copy(), grads, m.copy(), v.copy(), tensors, rule)
        self._length = iter([np.linalg.norm(moved[b:e]) for b, e, decays in tensors.tolist() if decays])
        return super().lamb(params, grads, m, v, tensors, rule)

    def _trust_ratio(self, length, update_length):
        return super()._trust_ratio(next(self._length), update_length)


def joined(tensors, rule):
    """Neighbours that decay, as one tensor."""
    ends = [end for _, end, decays in tensors.tolist() if decays]
    begins = [begin for begin, _, decays in tensors.tolist() if decays]
    first = [b for b in begins if b not in ends]
    last = [e for e in ends if e not in begins]
    rest = [row for row in tensors.tolist() if not row[2]]
    return np.array(sorted([*([b, e, 1] for b, e in zip(first, last, strict=True)), *rest])), rule


def with_given(**changed):
    return Rearranged(lambda tensors, rule: (tensors, rule._replace(**changed)))


FAULTS = {
    "no ratio": ratio_of(lambda own, length, update_length: 1.0),
    "ratio upside down": ratio_of(lambda own, length, update_length: own(update_length, length)),
    "ratio at most 1": ratio_of(lambda own, *lengths: min(1.0, own(*lengths))),
    "ratio of squares": ratio_of(lambda own, length, update_length: own(length**2, update_length**2)),
    "length at most 3": ratio_of(lambda own, length, update_length: own(min(length, 3.0), update_length)),
    "no ratio for short updates": ratio_of(lambda own, length, u: own(length, u) if u > 1 else 1.0),
    "zero length does not move": ratio_of(lambda own, length, u: own(length, u) if length else 0.0),
    "length afterwards": LengthAfterwards(),
    "neighbours share a ratio": Rearranged(joined),
    "one tensor too few": Rearranged(lambda tensors, rule: (tensors[:-1], rule)),
    "no weight decay": with_given(weight_decay=0.0),
    "no correction": with_given(bias_correction=False),
    "moments of the first step": with_given(step=1),
    "another eps": with_given(eps=1e-8),
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_is_caught(fault, variant):
    assert max(errors(FAULTS[fault], variant)) > 1e-9


@pytest.mark.parametrize(("decays", "variant"), [(1, "weights"), (0, "every"), (0, "weights")])
def test_scaling_the_wrong_tensors_is_caught(decays, variant):
    wrong = Rearranged(lambda tensors, rule: (np.c_[tensors[:, :2], tensors[:, 2] * 0 + decays], rule))
    assert max(errors(wrong, variant)) > 1e-9
