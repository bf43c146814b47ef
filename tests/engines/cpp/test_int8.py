"""Products of 8-bit integers: NumPy's, to the bit; what they change in a model; who can't have them."""

import copy
import pickle

import numpy as np
import pytest
from paths import GOLDEN

from minibert.ask.inference import Bert
from minibert.base.errors import InputError
from minibert.core.batch import Batch, Sequence
from minibert.model.ops import Ops

_kernels = pytest.importorskip("minibert.engines.cpp._kernels", reason="the kernels in C++ are not built")

from minibert.engines.cpp.ops import CppOps  # noqa: E402

ABLE = [isa for isa in _kernels.available() if _kernels.Engine(isa, 1).has_int8]
UNABLE = [isa for isa in _kernels.available() if isa not in ABLE]
on_able = pytest.mark.parametrize("isa", ABLE or [pytest.param("", marks=pytest.mark.skip("no AVX512-VNNI"))])
SHAPES = [(1, 1, 1), (3, 5, 7), (6, 64, 4), (7, 65, 9), (37, 130, 4099), (500, 70, 33), (170, 200, 768)]


def normals(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def read_only(x):
    x.flags.writeable = False
    return x


# x (m,n) -> whole numbers (m,n), scales of rows or columns
def rounded(x, axis):
    most = np.abs(x).max(axis, keepdims=True, initial=0)
    inverse = np.divide(np.float32(127), most, out=np.zeros_like(most), where=most > 0)
    return np.rint(x * inverse).astype(np.int64), most / np.float32(127)


def product(a, b):
    (q, s), (r, t) = rounded(a, 1), rounded(b, 0)
    return (q @ r).astype(np.float32) * (s * t)


def widened(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


@on_able
@pytest.mark.parametrize("shape", SHAPES)
def test_products_are_those_of_the_rounded_numbers_to_the_bit(isa, shape):
    M, N, K = shape
    a, b, bias = normals(M, K), read_only(normals(K, N, seed=1)), normals(N, seed=2)
    for threads in (1, 2, 7):
        run = _kernels.Engine(isa, threads)
        run.keep(b, True)
        out, y, u, active = (np.full((M, N), np.nan, np.float32) for _ in range(4))
        run.gemm(a, b, out, False)
        run.linear(a, b, bias, y)
        run.linear_gelu(a, b, bias, False, u, active)
        expected = product(a, b)
        np.testing.assert_array_equal(out, expected)
        np.testing.assert_array_equal(y, expected + bias)
        np.testing.assert_array_equal(u, y)
        gelu, _ = Ops().gelu(y.astype(np.float64), "erf")
        np.testing.assert_allclose(active, gelu, rtol=1e-5, atol=1e-6)


@on_able
def test_bfloat16_activations_are_rounded_as_they_are(isa):
    run, b = _kernels.Engine(isa, 2, True), read_only(normals(70, 90, seed=1))
    bits = (normals(33, 70).view(np.uint32) >> 16).astype(np.uint16)
    run.keep(b, True)
    y = np.zeros((33, 90), np.uint16)
    run.linear(bits, b, None, y)
    np.testing.assert_allclose(widened(y), product(widened(bits), b), rtol=2**-8, atol=0)


@on_able
def test_rounding_costs_a_percent_and_no_more(isa):
    a, b = normals(200, 768), read_only(normals(768, 300, seed=1))
    run, out = _kernels.Engine(isa, 1), np.zeros((200, 300), np.float32)
    run.keep(b, True)
    run.gemm(a, b, out, False)
    exact = a.astype(np.float64) @ b
    assert 0.003 < np.linalg.norm(out - exact) / np.linalg.norm(exact) < 0.02


@on_able
def test_rows_and_columns_of_zeros_of_large_and_of_no_numbers(isa):
    a, b = normals(8, 20), normals(20, 70, seed=1)
    a[1], a[2], b[:, 3] = 0, a[2] * np.float32(1e30), 0
    a[4, 5], a[5, 6], b[7, 9] = np.nan, np.inf, np.nan
    run, out = _kernels.Engine(isa, 1), np.zeros((8, 70), np.float32)
    run.keep(read_only(b), True)
    run.gemm(a, b, out, False)
    fine = np.ones((8, 70), bool)
    fine[[4, 5]] = fine[:, 9] = False
    assert np.isnan(out[~fine]).all()
    clean_a, clean_b = np.where(np.isfinite(a), a, 0), np.where(np.isfinite(b), b, 0)
    np.testing.assert_array_equal(out[fine], product(clean_a, clean_b)[fine])
    assert not out[1][fine[1]].any() and not out[0, 3] and np.abs(out[2][fine[2]]).max() > 1e29


@on_able
def test_what_is_added_to_and_what_lies_otherwise_is_multiplied_exactly(isa):
    """Gradients and parts of a matrix never meet its rounded twin."""
    a, b = normals(9, 20), read_only(normals(20, 70, seed=1))
    run, plain = _kernels.Engine(isa, 1), _kernels.Engine(isa, 1)
    run.keep(b, True)
    cases = [
        (a, b, True),
        (np.asfortranarray(a), b, False),
        (a, b[:, :50], False),
        (normals(9, 70), b.T, False),
    ]
    for left, right, add in cases:
        found, expected = (np.ones((9, right.shape[1]), np.float32) for _ in range(2))
        run.gemm(left, right, found, add)
        plain.gemm(left, right, expected, add)
        np.testing.assert_array_equal(found, expected)


@on_able
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_hidden_states_of_a_model_change_by_percents_and_its_heads_are_not_rounded(isa, dtype, monkeypatch):
    monkeypatch.setenv("MINIBERT_ISA", isa)
    batch = Batch.pack([Sequence([2, 7 + i % 5, 9, 3], [0, 0, 1, 1]) for i in range(40)])
    exact, model = (Bert.from_pretrained(GOLDEN / "hf_tiny", "cpp", dtype=dtype, threads=2) for _ in range(2))
    assert model.optimize_for_inference(int8=True) is model
    states = [one.encode(batch).hidden_states for one in (exact, model)]
    for number, (right, found) in enumerate(zip(*states, strict=True)):
        off = np.linalg.norm(found - right) / np.linalg.norm(right)
        assert (off > 1e-4) == (number > 0) and off < 0.05
    kept = []
    monkeypatch.setattr(CppOps, "prepack", lambda _, weight, int8=False: kept.append((weight.shape, int8)))
    model.optimize_for_inference(int8=True)
    config = model.config
    assert sum(int8 for _, int8 in kept) == 4 * config.L
    assert (((config.H, config.V), False) in kept) and (((config.H, config.H), False) in kept)


@on_able
def test_strips_of_columns_behind_each_other_are_finished_in_their_place(isa):
    """More than one of 128 columns, with sums that only the epilogue sees."""
    run, b, bias = _kernels.Engine(isa, 2, True), read_only(normals(70, 300, seed=1)), normals(300, seed=2)
    bits = (normals(33, 70).view(np.uint32) >> 16).astype(np.uint16)
    run.keep(b, True)
    u, y = np.zeros((33, 300), np.uint16), np.zeros((33, 300), np.uint16)
    run.linear_gelu(bits, b, bias, False, u, y)
    sums = product(widened(bits), b) + bias
    np.testing.assert_allclose(widened(u), sums, rtol=2**-8, atol=1e-6)
    np.testing.assert_allclose(
        widened(y), Ops().gelu(sums.astype(np.float64), "erf")[0], rtol=2**-7, atol=1e-4
    )


@on_able
def test_a_matrix_is_kept_as_it_was_kept_last(isa):
    a, b = normals(9, 20), read_only(normals(20, 70, seed=1))
    run, found = _kernels.Engine(isa, 1), []
    for int8 in (False, True, False):
        run.keep(b, int8)
        found.append(np.zeros((9, 70), np.float32))
        run.gemm(a, b, found[-1], False)
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_array_equal(found[1], product(a, b))
    with pytest.raises(ValueError, match="weight has too many rows for sums of 32 bits"):
        run.keep(read_only(np.zeros((65_537, 1), np.float32)), True)


@on_able
def test_a_copy_of_a_quantized_model_is_exact_again(isa, monkeypatch):
    monkeypatch.setenv("MINIBERT_ISA", isa)
    batch = Batch.pack([Sequence([2, 7, 9, 3], [0, 0, 1, 1])])
    model = Bert.from_pretrained(GOLDEN / "hf_tiny", "cpp")
    exact = model.encode(batch).pooled
    assert (model.optimize_for_inference(int8=True).encode(batch).pooled != exact).any()
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.encode(batch).pooled, exact)


CANNOT = [
    pytest.param("numpy", "float32", "", id="another engine"),
    pytest.param("cpp", "float32", UNABLE[-1], id="another instruction set"),
    pytest.param("cpp", "float64", "", id="another type"),
]


@pytest.mark.parametrize(("engine", "dtype", "isa"), CANNOT)
def test_unsupported_int8_is_refused_and_nothing_is_changed(engine, dtype, isa, monkeypatch):
    monkeypatch.setenv("MINIBERT_ISA", isa)
    model = Bert.from_pretrained(GOLDEN / "hf_tiny", engine, dtype=dtype)
    told = f"int8=True needs the engine cpp, .* leave it out with {engine} in {dtype} on this processor"
    with pytest.raises(InputError, match=told):
        model.optimize_for_inference(int8=True)
    assert model.params.flat.flags.writeable


def test_a_set_of_instructions_without_it_refuses_it():
    with pytest.raises(ValueError, match="int8 can't be multiplied by portable"):
        _kernels.Engine("portable", 1).keep(read_only(normals(2, 2)), True)
