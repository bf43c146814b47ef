"""Engines by name, and what they are run with."""

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest
from engines import EVERY

from minibert import backends
from minibert.errors import InputError


def test_unknown_engine_is_refused_with_the_ones_there_are():
    with pytest.raises(InputError, match="backend='cuda' is not an engine; use auto or one of numpy"):
        backends.create("cuda")


@pytest.mark.parametrize("name", ["auto", *EVERY])
def test_every_engine_multiplies(name):
    x, weight, bias = np.eye(2, dtype="f4"), np.array([[1, 2], [3, 4]], "f4"), np.ones(2, "f4")
    y, _ = backends.create(name).linear(x, weight, bias)
    assert np.asarray(y).tolist() == [[2, 3], [4, 5]]


@pytest.mark.parametrize("name", EVERY)
def test_every_engine_says_what_it_is_and_refuses_what_it_does_not_compute_in(name):
    ops, said = backends.choose(name)
    assert ops.name == name
    assert said.startswith(f"{name}: {backends.ENGINES[name]}")
    with pytest.raises(InputError, match="dtype='int8' is not one to compute in; use float32, bfloat16 or"):
        backends.create(name, dtype="int8")
    with pytest.raises(InputError, match="threads=0 is not a positive number"):
        backends.create(name, threads=0)


@pytest.mark.parametrize(("engine", "expected"), [("cpp", 1), ("numpy", 2)])
def test_beside_an_engine_with_threads_of_its_own_the_matrix_library_has_one(engine, expected):
    limit = backends.limit_threads(2, SimpleNamespace(name=engine))
    try:
        blas = [one for one in backends.blas_libraries() if one["user_api"] == "blas"]
        assert blas and {one["num_threads"] for one in blas} == {expected}
    finally:
        limit.restore_original_limits()


def test_a_c_library_without_the_switch_is_left_as_it_is(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert backends.keep_freed_memory() is False


def test_bfloat16_is_the_quickest_only_where_the_processor_multiplies_it(monkeypatch):
    def found(*sets, forced=None):
        monkeypatch.setattr(backends, "instruction_sets", lambda: list(sets))
        monkeypatch.setattr(backends, "_forced", {"isa": forced} if forced else {})
        monkeypatch.setattr(backends, "_rate", lambda isa, dtype: rates[isa][dtype == "bfloat16"])
        return [backends.quickest_dtype(name) for name in ("auto", "cpp", "numba", "numpy")]

    rates = {"avx512_bf16": (128, 235), "amx": (135, 1100)}  # of float32 and of bfloat16
    wide, narrow = ["float32"] * 4, ["bfloat16", "bfloat16", "float32", "float32"]
    assert found("avx512_bf16", "avx512", "portable") == narrow
    assert found("amx", "avx512_bf16", "avx512", "portable") == narrow
    assert found("avx512", "portable") == found() == wide  # and without the kernels in C++
    assert found("avx512_bf16", "avx2", forced="avx2") == wide
    assert found("avx512", "portable", forced="amx") == found(forced="amx") == wide  # which is not here
    rates["avx512_bf16"] = (135, 70)  # as Sapphire Rapids does
    assert found("avx512_bf16", "avx512") == wide
    assert found("amx", "avx512_bf16") == narrow
    assert found("amx", "avx512_bf16", forced="avx512_bf16") == wide


def test_rates_of_a_dtype_are_those_of_the_instruction_set():
    sets = backends.instruction_sets()
    if not sets:
        pytest.skip("the kernels in C++ are not built")
    assert all(backends._rate(isa, dtype) > 0 for isa in sets for dtype in ("float32", "bfloat16"))
