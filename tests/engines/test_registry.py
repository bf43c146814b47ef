"""Engines by name, and what they are run with."""

import ctypes
import re
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from engines import EVERY
from small_corpus import write_corpus

from minibert import engines
from minibert.base.errors import InputError
from minibert.engines import hardware, registry, trial
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.run import pretrain


def test_unknown_engine_is_refused_with_the_ones_there_are():
    with pytest.raises(InputError, match="engine='cuda' is not an engine; use auto or one of numpy"):
        engines.create("cuda")


def test_processes_join_by_what_they_are_given_if_jax_is_there(monkeypatch):
    given = []
    jax = SimpleNamespace(join=lambda *words: given.append(words))
    monkeypatch.setattr(registry, "_jax_module", {"cluster": jax}.get)
    registry.join("host:1234", 4, 3)
    assert given == [("host:1234", 4, 3)]
    monkeypatch.setattr(registry, "_jax_module", lambda name: exec("import no_such_module"))
    with pytest.raises(InputError, match="engine='jax' is not installed"):
        registry.join("host:1234")


@pytest.mark.parametrize("name", ["auto", *EVERY])
def test_every_engine_multiplies(name):
    x, weight, bias = np.eye(2, dtype="f4"), np.array([[1, 2], [3, 4]], "f4"), np.ones(2, "f4")
    y, _ = engines.create(name).linear(x, weight, bias)
    assert np.asarray(y).tolist() == [[2, 3], [4, 5]]


@pytest.mark.parametrize("name", EVERY)
def test_every_engine_says_what_it_is_and_refuses_what_it_does_not_compute_in(name):
    ops, said = engines.choose(name)
    assert ops.name == name
    assert said.startswith(f"{name}: {engines.ENGINES[name]}")
    with pytest.raises(InputError, match="dtype='int8' is not one to compute in; use float32, bfloat16 or"):
        engines.create(name, dtype="int8")


@pytest.mark.parametrize("threads", ["2", 2.0, True, 0, -1, [2]])
def test_what_is_no_number_of_threads_is_refused_wherever_it_is_given(threads):
    expected = f"threads={threads!r} is not a positive whole number; leave it out for one thread a core."
    for take in (partial(engines.create, "numpy"), engines.choose, engines.limited_threads):
        with pytest.raises(InputError, match=f"^{re.escape(expected)}$"):
            take(threads=threads)
    with pytest.raises(InputError, match="threads=5000 is more than 4,096"):
        engines.limited_threads(5000)
    engines.limited_threads(np.int64(2)).restore_original_limits()


@pytest.mark.parametrize(("engine", "expected"), [("cpp", 1), ("numpy", 2)])
def test_beside_an_engine_with_threads_of_its_own_the_matrix_library_has_one(engine, expected):
    limit = engines.limited_threads(2, SimpleNamespace(name=engine))
    try:
        blas = [one for one in engines.blas_libraries() if one["user_api"] == "blas"]
        assert blas and {one["num_threads"] for one in blas} == {expected}
    finally:
        limit.restore_original_limits()


def test_a_c_library_without_the_switch_is_left_as_it_is(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert engines.keep_freed_memory() is False


def test_bfloat16_is_the_quickest_only_where_the_processor_multiplies_it(monkeypatch):
    def found(chosen=""):
        monkeypatch.setattr(registry, "chosen_isa", lambda: chosen)
        narrow = "bfloat16"
        monkeypatch.setattr(registry, "rate_of_one_thread", lambda isa, dtype: rates[isa][dtype == narrow])
        return [engines.quickest_dtype(name) for name in ("auto", "cpp", "numba", "numpy")]

    rates = {"avx512_bf16": (128, 235), "amx": (135, 1100)}  # of float32 and of bfloat16
    wide, narrow = ["float32"] * 4, ["bfloat16", "bfloat16", "float32", "float32"]
    assert found("avx512_bf16") == found("amx") == narrow
    assert found("avx512") == found("avx2") == found() == wide  # and without the kernels in C++
    rates["avx512_bf16"] = (135, 70)  # as Sapphire Rapids does
    assert found("avx512_bf16") == wide
    assert found("amx") == narrow


def test_the_instruction_set_is_the_fastest_or_the_one_of_the_environment(monkeypatch):
    if not (sets := engines.instruction_sets()):
        pytest.skip("the kernels in C++ are not built")
    for forced, chosen in [("", sets[0]), *((name, name) for name in sets)]:
        monkeypatch.setenv("MINIBERT_ISA", forced)
        assert hardware.chosen_isa() == engines.create("cpp")._run.isa == chosen
        assert f"instruction set {chosen} " in engines.choose("cpp")[1]
    monkeypatch.setenv("MINIBERT_ISA", "mmx")
    for chooses in (engines.quickest_dtype, engines.create, lambda: engines.create("cpp")):
        with pytest.raises(InputError, match="^MINIBERT_ISA='mmx' can't run here; choose from .*portable.$"):
            chooses()
    assert engines.quickest_dtype("numpy") == "float32" and engines.create("numpy").name == "numpy"
    monkeypatch.setattr(hardware, "instruction_sets", lambda: [])
    assert hardware.chosen_isa() == ""


@pytest.fixture
def trials(monkeypatch):
    """Planted seconds of a step by engine, the portable kernels forced; also which engines were tried."""
    if "portable" not in engines.instruction_sets():
        pytest.skip("the kernels in C++ are not built")
    seconds, tried = {"cpp": 0.08, "numpy": 0.03}, []

    def planted(ops, dtype):
        tried.append(ops.name)
        return seconds[ops.name]

    registry._trial.cache_clear()
    monkeypatch.setenv("MINIBERT_ISA", "portable")
    monkeypatch.setattr("minibert.engines.trial.seconds_per_step", planted)
    yield seconds, tried
    registry._trial.cache_clear()


def test_with_portable_kernels_a_step_of_cpp_and_of_numpy_decides(trials):
    seconds, tried = trials
    ops, text = engines.choose("auto")
    assert ops.name == "numpy"
    assert text.endswith("the fastest here: a small step took 80 ms with cpp, 30 ms with numpy")
    assert engines.create("auto").name == "numpy" and tried == ["cpp", "numpy"]  # tried once for a process
    assert engines.create("cpp").name == "cpp" and tried == ["cpp", "numpy"]
    registry._trial.cache_clear()
    seconds["numpy"] = 0.09
    assert engines.create("auto").name == "cpp"


def test_with_kernels_for_the_processor_nothing_is_tried(trials, monkeypatch):
    monkeypatch.delenv("MINIBERT_ISA")
    monkeypatch.setattr(hardware, "instruction_sets", lambda: ["avx2", "portable"])
    assert engines.choose("auto")[1].endswith("the fastest engine installed")
    options = PretrainOptions(steps=1, dtype="float32")
    assert engines.resolve_auto(options) == options and trials[1] == []


@pytest.mark.thorough
def test_the_engine_that_a_trial_chose_is_stored_with_the_run(trials, tmp_path):
    seconds, _ = trials
    text = write_corpus(tmp_path / "text.txt")
    options = PretrainOptions(
        corpus=(str(text),), vocab_size=120, seq_length="16", batch_size=4, steps=1, held_out=0.2
    )
    pretrain(options, tmp_path / "run", show=False)
    assert PretrainOptions.load(tmp_path / "run" / "training.json").engine == "numpy"
    seconds["cpp"] = 0.01
    registry._trial.cache_clear()
    assert PretrainOptions.resumed(tmp_path / "run" / "training.json", steps=2).engine == "numpy"
    assert engines.resolve_auto(options.resolved()).engine == "cpp"


def test_a_trial_takes_a_step_of_each_engine():
    for name in ("numpy", "cpp"):
        if name in EVERY:
            assert 0 < trial.seconds_per_step(engines.create(name), "float32") < 60


def test_rates_of_a_dtype_are_those_of_the_instruction_set():
    sets = engines.instruction_sets()
    if not sets:
        pytest.skip("the kernels in C++ are not built")
    for dtype in ("float32", "bfloat16"):
        assert all(hardware.rate_of_one_thread(isa, dtype) > 0 for isa in sets)
