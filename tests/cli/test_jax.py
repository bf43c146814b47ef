"""`--engine jax` as a command: what it is told, what it says, and how it ends where it can't."""

import json
import re
import tomllib
from importlib import metadata
from types import SimpleNamespace

import numpy as np
import pytest
from command import ROOT, ends_badly
from loop_cases import batch, state
from small_corpus import write_corpus
from small_tasks import small_config, write_model, write_sst2

from minibert import cli, engines
from minibert.base.errors import InputError, OutOfMemory, RunError
from minibert.cli.shared.accelerators import CLUSTER
from minibert.engines import hardware, registry
from minibert.finetuning.models import start_from
from minibert.finetuning.options import FinetuneOptions
from minibert.model.ops import Ops
from minibert.model.params import Head
from minibert.pretraining.options import PretrainOptions
from minibert.training.loop import Loop, train
from minibert.training.runlog import SPEEDS, RunLog, read_metrics

jax = pytest.importorskip("jax")

from objectives import OfFunction  # noqa: E402

from minibert.core.optim import AdamW  # noqa: E402
from minibert.engines.jax import devices as jax_devices, failures as jax_failures  # noqa: E402
from minibert.engines.jax.ops import JaxOps  # noqa: E402
from minibert.engines.runtime import runtime_of  # noqa: E402
from minibert.training.step import start  # noqa: E402

OTHERS = ("auto", "numpy", "numba")
HUGE = 1 << 45  # bytes
FINETUNE = dict(task="sst2", data="d", model="m")


@pytest.fixture(autouse=True)
def no_device_forced():
    yield
    engines.force_device(None)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("text") / "animals.txt")


def platform(monkeypatch, name):
    """Let JAX seem to compute on this kind of device."""
    monkeypatch.setattr(jax_devices, "platform", lambda: name)


# What the engine alone is told.


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("extra", [{"devices": 4}, {"fsdp": True}, {"recompute": True}])
def test_what_only_jax_hears_is_refused_by_other_engines(name, extra):
    ((option, value),) = extra.items()
    sentence = f"{option}={value!r} is for engine='jax'; leave it out, or choose that engine."
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        engines.create(name, **extra)
    assert engines.create(name, devices=None, fsdp=False, recompute=False).name in engines.ENGINES
    with pytest.raises(TypeError, match="'colour' is not an option of an engine"):
        engines.create(name, colour="red")


def test_what_is_said_reaches_the_engine():
    assert engines.create("jax", recompute=True)._recompute
    assert not engines.create("jax", devices=1, fsdp=True)._recompute  # nothing is spread over one
    with pytest.raises(InputError, match=r"devices=99: JAX sees \d+ \(cpu\); give as many"):
        engines.create("jax", devices=99)
    _, said = engines.choose("jax", devices=1)
    assert said == "jax: the reference compiled by XLA, for accelerators, on cpu"


def test_a_device_that_is_not_there_is_a_sentence():
    engines.force_device("cpu")
    assert engines.create("jax").name == "jax"
    with pytest.raises(
        InputError, match="device='cpu' is for engine='jax'; leave it out, or choose that engine"
    ):
        engines.create("numpy")
    for device, remedy in (("gpu", r"install jax\[cuda13\]"), ("tpu", r"install jax\[tpu\]")):
        engines.force_device(device)
        message = f"device='{device}' is not what JAX computes on here: it sees only cpu.*; {remedy}"
        for ask in (engines.create, engines.quickest_dtype):
            with pytest.raises(InputError, match=message):
                ask("jax")


def test_a_gpu_is_what_is_computed_on_until_the_processor_is_asked_for(monkeypatch):
    platform(monkeypatch, "gpu")
    jax_devices.use(None)
    jax_devices.use("gpu")
    with pytest.raises(InputError, match="device='tpu' is not .* it sees only gpu"):
        jax_devices.use("tpu")


def test_platforms_named_in_the_environment_that_are_not_there_are_bad_input(monkeypatch):
    def fail():
        raise RuntimeError("Unable to initialize backend 'cuda'")

    monkeypatch.setattr(jax, "devices", fail)
    with pytest.raises(InputError, match="JAX finds no device.*Unable to initialize backend 'cuda'"):
        engines.create("jax")


@pytest.mark.parametrize("library", ["jax", "jaxlib"])
def test_a_jax_that_is_too_old_is_named_with_what_to_install(monkeypatch, library):
    version = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "0.4.30" if name == library else version(name))
    sentence = f"{library} 0.4.30 is older than {registry.JAX_MINIMUM}, .*: pip install -U jax jaxlib"
    with pytest.raises(InputError, match=sentence):
        engines.create("jax")


def test_versions_are_compared_as_numbers():
    assert registry._numbers("0.10.2") > registry._numbers("0.9.0.1") > registry._numbers("0.9")
    assert registry._numbers("0.10.0.dev7") == [0, 10, 0]


def test_a_jaxlib_of_another_version_is_a_sentence(monkeypatch):
    def mismatched(name):
        raise RuntimeError("jaxlib is version 0.8, but this version of jax requires version >= 0.9.")

    monkeypatch.setattr(registry, "import_module", mismatched)
    with pytest.raises(InputError, match="JAX does not start .jaxlib is version 0.8.*pip install -U jax"):
        engines.create("jax")


def test_the_oldest_jax_is_the_one_that_is_declared():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["jax"] == [f"jax>={registry.JAX_MINIMUM}"]


def test_jax_is_asked_for_its_device_only_where_it_is_the_engine(monkeypatch):
    for name, dtype in (("gpu", "bfloat16"), ("tpu", "bfloat16"), ("cpu", "float32")):
        platform(monkeypatch, name)
        assert engines.quickest_dtype("jax") == dtype
    monkeypatch.setattr(registry, "_jax_module", lambda name: pytest.fail("JAX was looked at"))
    assert engines.quickest_dtype("numpy") == "float32"
    engines.peak(1, seconds=0.001, ops=Ops())


def test_the_peak_of_an_accelerator_is_that_of_all_its_devices_in_matrix_products(monkeypatch):
    monkeypatch.setattr(hardware, "instruction_sets", lambda: [])
    monkeypatch.setattr(jax_devices, "matmul_rate", lambda dtype, *_: {"bfloat16": 700.0}[dtype])
    ops = SimpleNamespace(name="jax", runtime=SimpleNamespace(mesh=None))
    platform(monkeypatch, "gpu")
    assert engines.peak(1, "bfloat16", ops=ops) == 700
    ops.runtime.mesh = SimpleNamespace(size=4)
    assert engines.peak(1, "bfloat16", ops=ops) == 2800
    platform(monkeypatch, "cpu")  # whose own is measured
    assert engines.peak(1, "float32", 0.001, ops) not in (700, 2800)


# What a run keeps of it.


@pytest.mark.parametrize(
    "kind, given",
    [(PretrainOptions, {"steps": 9}), (FinetuneOptions, FINETUNE)],
    ids=["pretrain", "finetune"],
)
def test_a_run_may_go_on_with_other_devices_and_another_engine(kind, given, tmp_path):
    path = tmp_path / "options.json"
    kind(**given, engine="jax", devices=4, fsdp=True, recompute=True).resolved().save(path)
    same = kind.resumed(path)
    assert same.extras == {"devices": 4, "fsdp": True, "recompute": True}
    fewer = kind.resumed(path, devices=1, fsdp=False, accumulate=8)
    assert (fewer.engine, fewer.accumulate) == ("jax", 8)
    assert fewer.extras == {"devices": 1, "fsdp": False, "recompute": True}
    other = kind.resumed(path, engine="numpy")
    assert other.extras == {"devices": None, "fsdp": False, "recompute": False}
    with pytest.raises(InputError, match=r"attention_dropout=0.5 \(the run has None\)"):
        kind.resumed(path, attention_dropout=0.5)
    for wrong, message in (
        ({"devices": 0}, "devices=0"),
        ({"attention_dropout": 1.0}, "attention_dropout=1"),
    ):
        with pytest.raises(InputError, match=message):
            kind(**given, **wrong)


def test_attention_has_its_own_dropout_where_it_is_given(tmp_path):
    def rates(config):
        return config.hidden_dropout_prob, config.attention_probs_dropout_prob

    assert rates(PretrainOptions(dropout=0.2).resolved().model_config(99)) == (0.2, 0.2)
    apart = PretrainOptions(dropout=0.2, attention_dropout=0.0)
    assert rates(apart.resolved().model_config(99)) == (0.2, 0.0)
    model = write_model(tmp_path / "model")
    for attention, expected in ((None, 0.3), (0.0, 0.0)):
        options = FinetuneOptions("sst2", model, model, dropout=0.3, attention_dropout=attention)
        begun, _ = start_from(options, Head("classify", 2), ("0", "1"))
        assert rates(begun.config) == (0.3, expected)


# Many processes.

ALL = "--coordinator node0:9876 --processes 2 --process-id 1"


@pytest.mark.parametrize(
    "flags, message",
    [
        ("--coordinator node0:9876", "--coordinator node0:9876 needs --processes and --process-id too"),
        (
            "--processes 2 --process-id 1",
            "--processes 2 and --process-id 1 needs --coordinator too; give all three",
        ),
        (ALL.replace(":9876", ""), "--coordinator node0 is not HOST:PORT"),
        (ALL.replace("9876", "99999"), "--coordinator node0:99999 is not HOST:PORT"),
        (ALL.replace("--processes 2", "--processes 0"), "--processes 0 is not a positive number"),
        (ALL.replace("id 1", "id 2"), "--process-id 2 is not one of the 2 processes; count them from 0 to 1"),
        (ALL.replace("id 1", "id -1"), "--process-id -1 is not one of the 2 processes"),
        (f"{ALL} --engine numpy", "is for --engine jax; leave it out, or choose that engine"),
    ],
)
def test_half_said_or_impossible_processes_are_refused(flags, message, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(engines, "join", lambda *said: pytest.fail("tried to join"))
    out = ("--out", str(tmp_path / "run"))
    assert message in ends_badly(capsys, 2, "pretrain", "--engine", "jax", *out, *flags.split())
    assert not (tmp_path / "run").exists()


def test_processes_join_before_anything_is_computed(capsys, monkeypatch, tmp_path):
    said = []

    def join(*given):
        said.append(given)
        raise RunError("Not all came.")

    monkeypatch.setattr(engines, "join", join)
    monkeypatch.setattr(engines, "choose", lambda *_, **__: pytest.fail("chose an engine first"))
    out = ("--engine", "jax", "--out", str(tmp_path / "run"))
    for flags in (ALL, f"--coordinator {CLUSTER}"):
        assert ends_badly(capsys, 1, "pretrain", *out, *flags.split()) == "minibert: Not all came.\n"
    assert said == [("node0:9876", 2, 1), (CLUSTER,)]
    task = ("sst2", "--data", str(tmp_path), "--model", str(tmp_path))  # whose processes would not share it
    assert "--coordinator" in ends_badly(capsys, 2, "finetune", *task, *out, *ALL.split())


# What JAX raises.


def huge(ops, like):
    """More than any memory has."""
    return ops.xp.zeros(HUGE // 4, "float32") + like


def test_a_full_device_is_a_memory_error_with_the_size():
    with pytest.raises(OutOfMemory, match=f"cpu has no room: RESOURCE_EXHAUSTED: .*{HUGE}") as caught:
        runtime_of(ops := JaxOps()).call(ops, huge, (), np.float32(1))
    assert caught.value.times == 2


def test_where_the_device_tells_its_memory_so_does_the_error(monkeypatch):
    monkeypatch.setattr(jax_failures, "memory", lambda _: {"bytes_limit": 6 << 30, "bytes_in_use": 2 << 30})
    for wanted in ("12.00GiB", f"{12 << 30} bytes"):
        with pytest.raises(OutOfMemory, match=r"with 6\.4 GB for JAX, has no room") as caught:
            fail(f"RESOURCE_EXHAUSTED: Out of memory while trying to allocate {wanted}.")
        assert caught.value.times == 3


def fail(message):
    with jax_failures.translated():
        raise jax.errors.JaxRuntimeError(message)


def test_other_errors_of_jax_are_a_sentence_with_advice(monkeypatch):
    with pytest.raises(RunError, match=r"^JAX could not compute this: INTERNAL: a kernel\.$"):
        fail("INTERNAL: a kernel.\nand a page of it")
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(
        RunError, match=r"Another process of this run .*connection closed.* to resume it \(with `resume`\)\.$"
    ):
        fail("INTERNAL: Gloo: connection closed")
    with pytest.raises(ValueError, match="^ours$"), jax_failures.translated():
        raise ValueError("ours")


# Steps.


def counting(ops, params, grads, part, step):
    """No gradient, and how many positions are predicted."""
    return grads, {"loss": (part.masked_weights > 0).sum()}


def greedy(ops, params, grads, part, step):
    """A figure that no memory holds."""
    return grads, {"loss": part.masked_weights.sum(), "huge": huge(ops, part.masked_weights.sum())}


def starved(ops, params, grads, part, step):
    """What NumPy raises."""
    raise MemoryError


@pytest.mark.thorough
@pytest.mark.parametrize(
    "ops, gradients, accumulate, advice",
    [
        (JaxOps, greedy, 1, "accumulate=2"),
        (Ops, starved, 1, "accumulate=2"),
        (Ops, starved, 3, "accumulate=4"),
        (Ops, starved, 9, "shorter sequences"),
    ],
)
def test_a_step_without_memory_says_how_large_it_is_and_what_would_fit(
    ops, gradients, accumulate, advice, tmp_path
):
    now, one = state(), batch(0)
    now.save(tmp_path)
    loop = Loop(3, lambda step: 1e-3, tmp_path, accumulate)
    parts = min(accumulate, 4)
    sentence = (
        f"not enough memory for a step of 4 sequences of up to {one.lengths.max()} tokens in {parts} "
        rf"micro-batches of up to {-(-4 // parts)}: .*\. Try {advice}.*recompute=True.*fsdp=True; the last "
        "checkpoint is intact"
    )
    with RunLog(tmp_path, 0, 3, show=False) as log, pytest.raises(RunError, match=sentence):
        train(ops(), now, iter([(one, 1), (one, 2)]), OfFunction(gradients), loop, log)
    assert now.step == 0


@pytest.mark.thorough
def test_what_is_compiled_in_a_rehearsal_does_for_the_run():
    now, trial, ops, objective = state(), state(), JaxOps(), OfFunction(counting)
    rehearsal = start(ops, trial.params, trial.optimizer, objective)
    parts = rehearsal.prepare(batch(0), 1)
    assert rehearsal.needs_compiling(parts)
    first = rehearsal.step(parts, 0, 1e-3)
    run = start(ops, now.params, now.optimizer, objective)
    assert not run.needs_compiling(parts)
    assert run.needs_compiling(run.prepare(batch(0, sequences=9), 1))  # another shape
    other = AdamW(now.params.flat, now.params.decayed, beta1=0.5)
    assert start(ops, now.params, other, objective).needs_compiling(parts)  # another optimizer
    assert run.step(parts, 0, 1e-3) == first and first["loss"] == batch(0).M
    assert [one._cache_size() for one in ops.runtime.compiled.values()] == [1]
    assert not start(Ops(), now.params, now.optimizer, objective).needs_compiling(())


def test_a_step_that_compiled_counts_for_no_speed(tmp_path, capsys):
    with RunLog(tmp_path, 0, 2) as log:
        log.info("Compiling.")
        log.step(1, 100, {"loss": 1.0, "learning_rate": 0.1}, 0.0, 1e9)
        log.step(2, 100, {"loss": 1.0, "learning_rate": 0.1}, 0.5, 1e9)
    first, second = read_metrics(tmp_path)
    assert not set(SPEEDS) & set(first) and second["tokens_per_second"] == 200
    with RunLog(tmp_path, 0, 1) as log:
        log.step(1, 100, {"loss": 1.0, "learning_rate": 0.1})
    with RunLog(tmp_path, 0, 1, show=False) as log:
        log.info("Nobody is there.")
    shown = capsys.readouterr().err.splitlines()
    assert shown[0] == "Compiling." and "200 tokens/s" in shown[1] and shown[1].endswith(" left")
    assert shown[2:] == ["step 1/1  loss 1.000  rate 1.0e-01"]


# The commands.


@pytest.mark.slow
def test_pretrain_compiles_once_and_goes_on_with_another_engine(corpus, tmp_path, capsys):
    out = tmp_path / "run"
    small = (
        "--vocab-size 120 --seq-length 16 --batch-size 8 --max-positions 16 --held-out 0.2 --evaluations 1"
    )
    words = ["pretrain", str(corpus), "--engine", "jax", "--out", str(out), "--dtype", "auto", "--recompute"]
    assert cli.main([*words, *small.split(), "--steps", "4"]) == 0
    shown = capsys.readouterr()
    assert shown.err.count("Compiling a step of 8 sequences of up to 16 tokens") == 1
    assert "for accelerators, on cpu" in shown.err and "Held-out loss" in shown.out
    options = json.loads((out / "training.json").read_text())
    assert (options["dtype"], options["recompute"], options["devices"]) == ("float32", True, None)
    steps = [line for line in read_metrics(out) if "loss" in line]
    assert ["tokens_per_second" in line for line in steps] == [False, True, True, True]
    assert cli.main(["pretrain", "--resume", "--out", str(out), "--engine", "numpy", "--steps", "5"]) == 0
    shown = capsys.readouterr().err
    assert "Engine numpy" in shown and "Resuming from step 4" in shown and "Compiling" not in shown
    assert json.loads((out / "training.json").read_text())["recompute"] is False
    assert [line["step"] for line in read_metrics(out) if "loss" in line] == [1, 2, 3, 4, 5]


@pytest.mark.slow
def test_finetuning_and_asking_with_jax_gives_numpy_s_answers(tmp_path, capsys):
    model, data, out = write_model(tmp_path / "model"), write_sst2(tmp_path / "sst2"), str(tmp_path / "run")
    words = ["finetune", "sst2", "--data", str(data), "--model", str(model), "--out", out]
    tuning = "--engine jax --batch-size 16 --lr 5e-3 --max-steps 20 --attention-dropout 0 --quiet"
    assert cli.main([*words, *tuning.split()]) == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["hidden_dropout_prob"], config["attention_probs_dropout_prob"]) == (0.1, 0.0)
    assert config["hidden_size"] == small_config().H
    answers = []
    for engine in ("jax", "numpy"):
        capsys.readouterr()
        asking = ["--engine", engine, "--json"]
        assert cli.main(["classify", "--model", out, "the film was very charming", *asking]) == 0
        answers.append(json.loads(capsys.readouterr().out)["probabilities"])
    assert answers[0] == pytest.approx(answers[1], abs=1e-6)
    line = ends_badly(capsys, 2, "classify", "--model", out, "a story", "--engine", "jax", "--device", "gpu")
    assert "--device gpu is not what JAX computes on here" in line
