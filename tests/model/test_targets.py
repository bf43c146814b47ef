"""Targets of regression at mean 0 and standard deviation 1."""

import numpy as np
import pytest
from small_tasks import small_config

from minibert.base.errors import InputError
from minibert.model.params import Head, initialise
from minibert.model.targets import Targets, targets_of


def test_targets_have_mean_0_and_deviation_1():
    labels = [150000.0, 450000.0, 150000.0, 300000.0]
    targets = Targets.of(labels)
    found = np.array([targets.standardised(label) for label in labels])
    assert found.mean() == pytest.approx(0, abs=1e-12) and found.std() == pytest.approx(1)
    assert targets.restored(found) == pytest.approx(labels)


def test_equal_targets_are_only_shifted():
    assert Targets.of([0.1] * 7) == (0.1, 1.0)
    assert Targets.of([-3.0]).standardised(-3.0) == 0.0


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1e300, 0.0], r"reach 1e\+300, more than .* float32 can predict; divide"),
        ([0.0, 1e-35], "lie within 1e-35, less than .* tell apart; multiply"),
        ([1.7e9, 1.7e9 + 10], "rounded to 128 in float32; subtract one number, such as 1700000000, from all"),
    ],
)
def test_numbers_beyond_float32_are_refused(labels, message):
    with pytest.raises(InputError, match=message):
        Targets.of(labels)


def test_a_folded_head_predicts_numbers():
    params = initialise(small_config(), 0, head=Head("regress", 1))
    params["head.bias"][...] = 0.25
    targets, before = Targets(300000.0, 150000.0), params.flat.copy()
    folded = targets.folded(params)
    x = np.linspace(-1, 1, 24)
    z = x @ params["head.weight"].astype(np.float64) + params["head.bias"]
    y = x @ folded["head.weight"].astype(np.float64) + folded["head.bias"]
    assert y == pytest.approx(z * 150000 + 300000, rel=1e-6)
    assert np.array_equal(params.flat, before)
    targets.unfold(folded)
    assert folded["head.weight"] == pytest.approx(params["head.weight"], rel=1e-6)
    assert folded["head.bias"] == pytest.approx(params["head.bias"], abs=1e-6)


def test_runs_of_before_have_no_targets():
    assert targets_of({"features": 3}) is None
    assert targets_of({"targets": [2.0, 0.5]}) == Targets(2.0, 0.5)
