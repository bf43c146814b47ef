"""Every hand-written gradient against the complex step, dropout on, at ugly sizes and an aligned one."""

import json
from typing import NamedTuple

import numpy as np
import pytest
from engines import ENGINES

from minibert import engines
from minibert.core.gradcheck.cases import SIZES
from minibert.core.gradcheck.complex_step import (
    complex_step,
    directional_derivative,
    distance,
    engine_gradients,
    gradient_errors,
    upstream,
    worst,
)
from minibert.core.ops.primitives import LinearSaved
from minibert.gradcheck import sheet
from minibert.gradcheck.sheet import Row, cases, check, format_sheet, proof_sheet
from minibert.model.ops import Ops

CASES = {(size, case.label): case for size, shape in SIZES.items() for case in cases(shape)}
UGLY = {label: case for (size, label), case in CASES.items() if size == "ugly"}
# Without the losses of the heads, which take seconds and are made of these.
QUICK = ["pretraining_loss dropout", *(label for label in UGLY if "_loss" not in label)]


class Located(NamedTuple):
    """One element of a gradient, and what the complex step says it should be."""

    argument: str
    place: tuple[int, ...]
    gradient: float
    derivative: float


def locate(engine, case, seed=0):
    """Find the element whose gradient is furthest from its derivative, where the worst argument fails."""
    errors = gradient_errors(engine, case, seed)
    known = [name for name in case.arguments if name in errors]
    argument = max(known, key=lambda name: np.nan_to_num(errors[name], nan=np.inf))
    u = upstream(case, np.random.default_rng(seed))
    gradient = engine_gradients(engine, case, case.arguments, u)[argument]
    derivative = np.empty(gradient.shape)
    for index in np.ndindex(gradient.shape):
        direction = np.zeros(gradient.shape)
        direction[index] = 1
        derivative[index] = directional_derivative(case, u, {argument: direction})
    difference = np.nan_to_num(np.abs(gradient - derivative), nan=np.inf)
    index = tuple(int(i) for i in np.unravel_index(difference.argmax(), gradient.shape))
    return Located(argument, index, float(gradient[index]), float(derivative[index]))


@pytest.mark.representatives(engine="numpy", size="ugly")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("size", "label"), CASES)
def test_gradient_equals_the_complex_step(engine, size, label):
    ops, case = engines.create(engine), CASES[size, label]
    [row] = check([ops], case, "float64", size)
    assert row.verdict == "ok", f"{row}: {locate(ops, case)}"


@pytest.mark.representatives(engine=["numba", "cpp"], size="ugly", label=QUICK)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("size", "label"), CASES)
def test_float32_errs_no_more_than_its_rounding(engine, size, label):
    [row] = check([engines.create(engine)], CASES[size, label], "float32", size)
    assert row.verdict == "ok", row


def test_every_operation_that_has_a_backward_is_on_the_sheet():
    backward = "_backward"
    public = {name for name in dir(Ops) if not name.startswith("_")}
    with_backward = {name.removesuffix(backward) for name in public if name.endswith(backward)}
    assert with_backward <= public
    others = {"dropout_mask", "pretraining_loss", "head_loss", "tagger_loss"}
    assert with_backward | others == {case.operation for case in UGLY.values()}


@pytest.mark.parametrize("label", UGLY)
def test_gradients_are_of_a_size_that_a_check_can_see(label):
    case = UGLY[label]
    u = upstream(case, np.random.default_rng(0))
    total = sum((g * g).sum() for g in engine_gradients(Ops(), case, case.arguments, u).values())
    asks_nothing = ("softmax_cross_entropy no rows", "masked_lm_head M=0", "head_loss tag no rows dropout")
    assert total == 0 if label in asks_nothing else total > 1e-3


@pytest.mark.parametrize(
    ("f", "x", "derivative"),
    [(np.exp, 0.3, np.exp(0.3)), (np.sin, 2.0, np.cos(2.0)), (lambda x: x * x * x, 5.0, 75.0)],
)
def test_complex_step_is_exact_where_the_derivative_is_known(f, x, derivative):
    assert complex_step(f, x, 2.0) == pytest.approx(2 * derivative, rel=4e-16)


def test_error_is_relative_to_gradient_and_direction_whatever_their_scale():
    case = UGLY["linear"]
    small = case._replace(inputs={name: 1e-6 * one for name, one in case.inputs.items()})

    class Slightly(Ops):
        def linear_backward(self, dy, saved):
            dx, dweight, dbias = super().linear_backward(dy, saved)
            return dx * (1 + 1e-6), dweight, dbias

    for scaled in (case, small):
        assert 1e-9 < gradient_errors(Slightly(), scaled)["x"] < 1e-6


def test_locate_names_the_argument_and_the_element():
    class OneElementOff(Ops):
        def layer_norm_backward(self, dy, saved):
            dx, dgamma, dbeta = super().layer_norm_backward(dy, saved)
            dgamma[5] += 0.25
            return dx, dgamma, dbeta

    found = locate(OneElementOff(), UGLY["layer_norm"])
    assert (found.argument, found.place) == ("gamma", (5,))
    assert found.gradient - found.derivative == pytest.approx(0.25)


@pytest.mark.thorough
def test_locate_points_into_the_whole_model():
    class OneElementOff(Ops):
        def pooler_backward(self, dy, saved, params, grads):
            dx, grads = super().pooler_backward(dy, saved, params, grads)
            grads["weight"][2, 3] += 1e-3
            return dx, grads

    found = locate(OneElementOff(), UGLY["pretraining_loss dropout"])
    assert (found.argument, found.place) == ("pooler.weight", (2, 3))


def test_gradient_that_is_not_a_number_fails_and_is_located():
    class NotANumber(Ops):
        def tanh_backward(self, dy, saved):
            dx = super().tanh_backward(dy, saved)
            dx[1, 4] = np.nan
            return dx

    for dtype in ("float64", "float32"):
        assert [row.verdict for row in check([NotANumber(), Ops()], UGLY["tanh"], dtype)] == ["FAIL", "ok"]
    assert locate(NotANumber(), UGLY["tanh"]).place == (1, 4)
    assert np.isnan(worst([1.0, np.nan, 2.0]))


def test_what_should_be_zero_has_to_be():
    assert distance(np.zeros(3), np.zeros(3)) == 0
    assert distance(np.full(3, 1e-30), np.zeros(3)) == np.inf


def test_wrong_result_fails_even_when_its_gradient_is_right():
    class OffByAConstant(Ops):
        def linear(self, x, weight, bias):
            y, saved = super().linear(x, weight, bias)
            return y + 1e-9, saved

    assert [row.verdict for row in check([OffByAConstant()], UGLY["linear"])] == ["FAIL"]


def test_another_engine_may_err_twice_as_much_as_numpy_and_no_more():
    class AnotherOrder(Ops):  # of summation
        def linear(self, x, weight, bias):
            return x[:, ::-1] @ weight[::-1] + bias, LinearSaved(x, weight)

    class FewerBits(Ops):
        def linear(self, x, weight, bias):
            y, saved = super().linear(x, weight, bias)
            return y * y.dtype.type(1 + 1e-6), saved

    class AllZero(Ops):
        def linear(self, x, weight, bias):
            y, saved = super().linear(x, weight, bias)
            return 0 * y, saved

    engines = (AnotherOrder(), FewerBits(), AllZero())
    assert [row.verdict for row in check(engines, UGLY["linear"], "float32")] == ["ok", "FAIL", "FAIL"]


@pytest.mark.parametrize(("label", "draws"), [("linear", 1), ("masked_lm_head", 8), ("pretraining_loss", 8)])
def test_an_error_of_few_numbers_is_the_root_mean_square_of_eight_draws(label, draws, monkeypatch):
    case = next(case for name, case in UGLY.items() if name.split()[0] == label)
    seen = []

    def errors(engines, draw, dtype, u):
        seen.append(draw)
        return [float(len(seen))]

    monkeypatch.setattr(sheet, "_rounding_errors", errors)
    assert sheet.rounding_errors([Ops()], case, "float32") == [np.sqrt(np.mean(np.arange(1, draws + 1) ** 2))]
    assert seen[0] is case and len(seen) == draws
    for draw in seen[1:]:
        for name, array in draw.arguments.items():
            moved = np.abs(array - case.arguments[name])
            assert 0 < moved.max() <= 6 * 2.0**-10 * np.abs(case.arguments[name]).max()


@pytest.mark.parametrize(("label", "is_reversed"), [("lstm", False), ("lstm reverse", True)])
def test_the_case_of_an_lstm_reads_in_the_direction_of_its_name(label, is_reversed):
    case = UGLY[label]
    changed = {**case.inputs, "x": case.inputs["x"].copy()}
    changed["x"][-1] += 1  # the last token of the last sequence
    before, after = (case.forward(Ops(), inputs, case.params)[0] for inputs in (case.inputs, changed))
    assert not np.array_equal(before[-1], after[-1])
    assert np.array_equal(before[-2], after[-2]) is not is_reversed


def test_sheet_selects_operations_and_precisions():
    rows = proof_sheet([Ops()], dtypes=["float64"], operations=["gelu", "pooler"])
    assert {row.operation for row in rows} == {"gelu erf", "gelu tanh", "pooler"}
    assert {(row.dtype, row.size) for row in rows} == {("float64", "ugly"), ("float64", "aligned")}


def test_other_seeds_draw_other_inputs():
    first, second = (cases(SIZES["ugly"], seed)[0].inputs["x"] for seed in (0, 1))
    assert not np.array_equal(first, second)


def test_rows_are_plain_json():
    [row, *_] = proof_sheet([Ops()], operations=["tanh"])
    assert json.loads(json.dumps(row._asdict())) == row._asdict()


def test_sheet_reads_as_an_aligned_table_with_a_verdict_below():
    good = Row("tanh", "numpy", "float64", "ugly", 1.2e-17, 1e-12, "ok")
    bad = Row("feed_forward_block erf", "numpy", "float64", "ugly", 0.25, 1e-12, "FAIL")
    assert format_sheet([good]) == (
        "operation  engine  dtype    size  error    bound    verdict\n"
        "---------  ------  -------  ----  -------  -------  -------\n"
        "tanh       numpy   float64  ugly  1.2e-17  1.0e-12  ok\n"
        "\n"
        "1 checks, every one within its bound"
    )
    header, _, *lines, _, verdict = format_sheet([good, bad]).splitlines()
    assert verdict == "1 of 2 checks FAIL"
    assert {line.index("numpy") for line in lines} == {header.index("engine")}


def test_all_arguments_are_measured_together_as_well():
    class Wrong(Ops):
        def gelu_backward(self, dy, saved, form):
            return 2 * super().gelu_backward(dy, saved, form)

    case = UGLY["gelu tanh"]
    assert gradient_errors(Ops(), case)["all"] < 1e-12 < 1e-3 < gradient_errors(Wrong(), case)["all"]
