"""The error function: on the real line against Python's own, in the complex plane against recorded values."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from paths import GOLDEN as FOLDER

from minibert.core.gradcheck.complex_step import complex_step
from minibert.core.ops.erf import PIECE, erfc

GOLDEN = np.array(json.loads((FOLDER / "erf.json").read_text(encoding="utf-8")))
POINTS, VALUES = GOLDEN[:, 0] + 1j * GOLDEN[:, 1], GOLDEN[:, 2] + 1j * GOLDEN[:, 3]


def rounding(x, dtype):
    """A few units of the last place, and what rounding x^2 does to exp(-x^2), relative to the result."""
    return (5 + np.abs(x) ** 2) * np.finfo(dtype).eps


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_erfc_keeps_its_relative_precision_far_into_the_tail(dtype):
    x = np.linspace(-6, 9, 30_011).astype(dtype)
    exact = np.array([math.erfc(one) for one in x.tolist()])
    assert (np.abs(erfc(np, x) - exact) <= rounding(np.maximum(x, 0), dtype) * exact).all()


def test_erfc_reaches_down_to_the_smallest_numbers():
    x = np.linspace(9, 26, 1_001)
    exact = np.array([math.erfc(one) for one in x.tolist()])
    assert (np.abs(erfc(np, x) - exact) <= rounding(x, "float64") * exact).all()
    assert erfc(np, np.array([28.0, 1e3, 1e150])).tolist() == [0, 0, 0]
    assert erfc(np, np.array([-28.0, -1e3, -1e150])).tolist() == [2, 2, 2]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_erf_is_right_to_a_few_units_of_the_last_place_of_one(dtype):
    x = np.linspace(-6, 6, 10_007).astype(dtype)
    exact = np.array([math.erf(one) for one in x.tolist()])
    assert np.abs(1 - erfc(np, x) - exact).max() <= 5 * np.finfo(dtype).eps


@given(st.floats(-30, 30))
def test_erfc_of_x_and_of_minus_x_add_up_to_two(x):
    one, other = erfc(np, np.array([x, -x]))
    assert one + other == pytest.approx(2, abs=1e-15)


@pytest.mark.parametrize(("point", "value"), list(zip(POINTS, VALUES, strict=True)))
def test_erfc_equals_the_recorded_value_in_the_complex_plane(point, value):
    found = erfc(np, np.array([point]))[0]
    assert abs(found - value) <= rounding(point, "float64") * max(abs(value), abs(2 - value))


def test_single_precision_complex_arguments_work_too():
    near = np.abs(POINTS.imag) < 1
    found = erfc(np, POINTS[near].astype(np.complex64))
    assert found.dtype == np.complex64
    error = np.abs(found - VALUES[near])
    assert (error <= rounding(POINTS[near], "float32") * np.abs(2 - VALUES[near]).clip(1)).all()


def test_imaginary_part_of_a_complex_step_is_the_derivative():
    x = np.linspace(-5, 8, 2_003)
    derivative = complex_step(lambda z: erfc(np, z), x, 1.0)
    exact = np.array([-2 / math.sqrt(math.pi) * math.exp(-one * one) for one in x])
    assert (np.abs(derivative - exact) <= 4 * rounding(x, "float64") * np.abs(exact)).all()


def test_no_jump_where_the_two_halves_of_the_plane_meet():
    tiny = np.array([-1e-300, -0.0, 0.0, 1e-300])
    assert erfc(np, tiny).tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("shape", [(0,), (), (3, 0), (2, 3, 5), (PIECE,), (PIECE + 1,), (7, PIECE)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_every_shape_and_type_comes_back_as_it_went_in(shape, dtype):
    x = np.linspace(-3, 3, math.prod(shape)).reshape(shape).astype(dtype)
    found = erfc(np, x)
    assert (found.shape, found.dtype) == (x.shape, x.dtype)
    if x.size:
        assert found.ravel()[-1] == erfc(np, x.ravel()[-1:])[0]
