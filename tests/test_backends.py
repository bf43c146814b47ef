"""Engines by name, and what they are run with."""

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest
from engines import EVERY
from small_corpus import write_corpus

from minibert import backends
from minibert.backends import trial
from minibert.errors import InputError
from minibert.pretrain import pretrain
from minibert.pretraining.options import PretrainOptions


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


@pytest.fixture
def trials(monkeypatch):
    """Planted seconds of a step by engine, the portable kernels forced; also which engines were tried."""
    if "portable" not in backends.instruction_sets():
        pytest.skip("the kernels in C++ are not built")
    seconds, tried = {"cpp": 0.08, "numpy": 0.03}, []

    def planted(ops, dtype):
        tried.append(ops.name)
        return seconds[ops.name]

    backends._trial.cache_clear()
    monkeypatch.setattr(backends, "_forced", {"isa": "portable"})
    monkeypatch.setattr("minibert.backends.trial.seconds_per_step", planted)
    yield seconds, tried
    backends._trial.cache_clear()


def test_with_portable_kernels_a_step_of_cpp_and_of_numpy_decides(trials):
    seconds, tried = trials
    ops, text = backends.choose("auto")
    assert ops.name == "numpy"
    assert text.endswith("the fastest here: a small step took 80 ms with cpp, 30 ms with numpy")
    assert backends.create("auto").name == "numpy" and tried == ["cpp", "numpy"]  # tried once for a process
    assert backends.create("cpp").name == "cpp" and tried == ["cpp", "numpy"]
    backends._trial.cache_clear()
    seconds["numpy"] = 0.09
    assert backends.create("auto").name == "cpp"


def test_with_kernels_for_the_processor_nothing_is_tried(trials, monkeypatch):
    monkeypatch.setattr(backends, "_forced", {})
    monkeypatch.setattr(backends, "instruction_sets", lambda: ["avx2", "portable"])
    assert backends.choose("auto")[1].endswith("the fastest engine installed")
    options = PretrainOptions(steps=1, dtype="float32")
    assert backends.settled(options) == options and trials[1] == []


def test_the_engine_that_a_trial_chose_is_stored_with_the_run(trials, tmp_path):
    seconds, _ = trials
    text = write_corpus(tmp_path / "text.txt")
    options = PretrainOptions(
        corpus=(str(text),), vocab_size=120, seq_length="16", batch_size=4, steps=1, held_out=0.2
    )
    pretrain(options, tmp_path / "run", show=False)
    assert PretrainOptions.load(tmp_path / "run" / "training.json").backend == "numpy"
    seconds["cpp"] = 0.01
    backends._trial.cache_clear()
    assert PretrainOptions.resumed(tmp_path / "run" / "training.json", steps=2).backend == "numpy"
    assert backends.settled(options.resolved()).backend == "cpp"


def test_a_trial_takes_a_step_of_each_engine():
    for name in ("numpy", "cpp"):
        if name in EVERY:
            assert 0 < trial.seconds_per_step(backends.create(name), "float32") < 60


def test_rates_of_a_dtype_are_those_of_the_instruction_set():
    sets = backends.instruction_sets()
    if not sets:
        pytest.skip("the kernels in C++ are not built")
    assert all(backends._rate(isa, dtype) > 0 for isa in sets for dtype in ("float32", "bfloat16"))
