"""Constants of mathematics, of the system and of file formats, against sources that are not the package."""

import math
import signal
import sys
from statistics import NormalDist

import numpy as np
import pytest

from minibert.ask import scoring
from minibert.base import errors
from minibert.course import routes
from minibert.data import marks
from minibert.experiments import verdicts
from minibert.explorer import packing
from minibert.hub import sentence_transformers
from minibert.hub.tensorflow import bundle
from minibert.pretraining import evaluation
from minibert.tokenizer import learner, merging

# tensorflow/core/framework/types.proto, without strings, complex, quantized and resource types.
TENSORFLOW = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 9: "int64", 10: "bool",
    17: "uint16", 19: "float16", 22: "uint32", 23: "uint64",
}  # fmt: skip


def test_quantiles_are_those_of_the_normal_distribution():
    for found, probability in ((verdicts.NORMAL_975, 0.975), (verdicts.NORMAL_80, 0.8)):
        assert found == pytest.approx(NormalDist().inv_cdf(probability), abs=5e-7)


def test_parts_of_the_logarithm_are_exact():
    assert sum(merging._LOG_2) == math.log(2) and merging._LOG_2[0].hex().endswith("00000p-1")
    assert pytest.approx(math.sqrt(0.5), abs=1e-15) == merging._SQRT_HALF
    odd = np.arange(len(merging._INVERSE_ODD)) * 2 + 3
    assert (np.array(merging._INVERSE_ODD) * odd == 1).all()


def test_largest_numbers_are_those_of_their_types():
    assert np.finfo(np.float16).max == packing.LARGEST_HALF
    assert np.iinfo(np.int8).max == packing.LARGEST_INT8
    assert sys.maxunicode + 1 == marks.CODE_POINTS == learner._N_FORMS / 2
    assert learner._MAX_COUNT == np.iinfo(np.int64).max >= 2 * learner._MAX_TOTAL


@pytest.mark.parametrize("largest", [scoring.LARGEST_EXPONENT, evaluation.MOST_NATS])
def test_exponentials_are_capped_just_below_infinity(largest):
    assert math.isfinite(math.exp(largest))
    with pytest.raises(OverflowError):
        math.exp(1.02 * largest)


def test_the_status_of_a_stopped_command_is_that_of_its_signal():
    assert {name: 128 + getattr(signal, name) for name in ("SIGTERM", "SIGHUP")} == errors.STOPPED_BY


def test_types_of_tensors_are_those_that_tensorflow_numbers():
    found = {number: np.dtype(name).name for number, name in bundle._DTYPES.items()}
    bfloat16 = found.pop(14)
    assert found == TENSORFLOW and bfloat16 == "uint16"  # NumPy has no type for it


def test_the_tanh_form_of_gelu_is_as_near_as_its_paper_says():
    x = np.linspace(-6, 6, 2001)
    exact = x * np.array([NormalDist().cdf(value) for value in x.tolist()])
    near = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + routes.CUBIC * x**3)))
    assert np.abs(near - exact).max() < 5e-4


def test_the_layer_norm_of_sentence_transformers_is_that_of_pytorch():
    assert sentence_transformers._LAYER_NORM_EPS == 1e-5  # torch.nn.LayerNorm(eps=1e-05)
