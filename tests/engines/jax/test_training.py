"""Training on JAX: whole steps equal NumPy's, and one engine goes on with the run of another."""

import dataclasses
import math
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import small_tasks
from command import PATIENCE, ROOT
from engines import missing
from objectives import BertObjective
from small_corpus import write_corpus
from small_entities import write_data, write_model

from minibert.base.errors import DivergedError
from minibert.core.batch import Batch, Feature, Sequence
from minibert.core.gradcheck.cases import Size, config_of
from minibert.core.gradcheck.complex_step import distance, worst
from minibert.core.optim import optimizer_for
from minibert.core.params import leaf_of, unflatten
from minibert.finetuning.options import FinetuneOptions
from minibert.finetuning.run import finetune
from minibert.gradcheck.drawn import random_parameters
from minibert.hub.checkpoint import checkpoints, load_checkpoint
from minibert.model.batch import TaskBatch
from minibert.model.ops import Ops
from minibert.model.params import PRETRAINING, Head
from minibert.pretraining import evaluation
from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.run import pretrain
from minibert.training.loop import Loop, State, train
from minibert.training.runlog import SPEEDS, RunLog, read_metrics
from minibert.training.step import start

jax = pytest.importorskip("jax")
jnp = jax.numpy

from minibert.engines.jax import training  # noqa: E402
from minibert.engines.jax.ops import JaxOps  # noqa: E402

LENGTHS = (1, 5, 9, 16, 12, 7)
SIZE = Size(LENGTHS, H=24, A=3, F=37, V=99, M=0)
STEPS, SAME = 20, 1e-10
CLASSIFY = Head("classify", 3)


@pytest.fixture(autouse=True)
def double_precision():
    """64 bits, which JAX wants to be asked for; and less of what takes it time to compile."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
    jax.config.update("jax_enable_x64", before)


@pytest.fixture(scope="module", autouse=True)
def few_passes():
    """The held-out part of so small a text is read a few times only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "PASSES", 2)
        yield


# Whole steps.


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is trained, and how."""

    head: Head = PRETRAINING
    layers: int = 1
    accumulate: int = 1
    recompute: bool = False
    optimizer: str = "adamw"
    frozen: int | None = None


def batch_of(step, head):
    """The batch of a step: in whichever order, the sequences fill rows of the same size."""
    rng = np.random.default_rng(step)
    lengths = [LENGTHS[0], *rng.permutation(LENGTHS[1:])]

    def sequence(n):
        masked = np.sort(rng.permutation(n)[:2]) if head is PRETRAINING else []
        labels = rng.integers(SIZE.V, size=len(masked))
        return Sequence(rng.integers(SIZE.V, size=n), np.arange(n) * 2 // n, masked, labels, rng.integers(2))

    sequences = [sequence(n) for n in lengths]
    if head is PRETRAINING:
        return Batch.pack(sequences)
    return TaskBatch.pack_features([Feature((one,), rng.integers(head.outputs)) for one in sequences], head)


def steps_of(plan, ops, called=None):
    """Steps of a plan from the same beginning, and their rates; `called` gets an element for every call."""
    config = config_of(SIZE, num_hidden_layers=plan.layers)
    params = random_parameters(config, np.random.default_rng(0), plan.head)
    optimizer = optimizer_for(params, plan.optimizer, begin=params.trained_from(plan.frozen))

    objective = BertObjective(config, plan.head, frozen=plan.frozen, called=called)
    rate = 1e-2 if plan.optimizer == "lamb" else 1e-3
    return start(ops, params, optimizer, objective), lambda step: rate * (1 - step / 40)


def taken(steps, rate, batch, step, count=1):
    """The metrics of one step."""
    return steps.step(steps.prepare(batch, count), step, rate(step))


def trained(plan, ops):
    """Loss and norm of every step, the state behind the last, and how often gradients were asked for."""
    found, called, calls = [], [], []
    steps, rate = steps_of(plan, ops, called)
    for step in range(STEPS):
        one = taken(steps, rate, batch_of(step, plan.head), step, plan.accumulate)
        found.append([one["loss"], one["gradient_norm"]])
        calls.append(len(called))
    return np.array(found), State(steps.fetch(), steps.optimizer), calls


def buffers(state):
    return state.params.flat, state.optimizer.m, state.optimizer.v


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(Plan(), id="a step"),
        pytest.param(
            Plan(accumulate=3, layers=2, recompute=True),
            id="micro-batches, recomputing",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            Plan(accumulate=2, layers=2, head=CLASSIFY, optimizer="lamb", frozen=1),
            id="a head, LAMB, frozen layers",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            Plan(layers=3, optimizer="muon"),
            id="Muon, matrices of three layers at once",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            Plan(layers=2, head=CLASSIFY, optimizer="muon", frozen=1),
            id="a head, Muon, frozen layers",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_twenty_steps_are_numpy_s_and_are_compiled_for_once(plan):
    found, state, calls = trained(plan, JaxOps("float64", recompute=plan.recompute))
    assert len(set(calls)) == 1
    expected, expected_state, calls = trained(plan, Ops())
    assert calls[-1] == STEPS * plan.accumulate
    assert np.abs(found / expected - 1).max() <= SAME
    assert len(set(found[:, 0])) == STEPS
    for one, right in zip(buffers(state), buffers(expected_state), strict=True):
        assert one.dtype == right.dtype and distance(one, right) <= SAME
    assert state.optimizer.updates == STEPS
    begin = state.optimizer.begin
    first = random_parameters(state.params.config, np.random.default_rng(0), plan.head).flat
    assert (begin > 0) == (plan.frozen is not None)
    assert np.array_equal(state.params.flat[:begin], first[:begin])
    assert distance(state.params.flat[begin:], first[begin:]) > 1e-3


@pytest.mark.slow
def test_a_micro_batch_left_out_is_found(monkeypatch):
    def forgetful(function, carry, items):
        return real(function, carry, jax.tree.map(lambda leaf: leaf[:-1], items))

    real, losses = training.scan, []
    monkeypatch.setattr(training, "scan", forgetful)
    for ops in (JaxOps("float64"), Ops()):
        steps, rate = steps_of(Plan(accumulate=2), ops)
        losses.append(taken(steps, rate, batch_of(0, PRETRAINING), 0, 2)["loss"])
    assert abs(losses[0] / losses[1] - 1) > 1e-3


@pytest.mark.slow
def test_what_is_not_a_number_ends_training_with_the_same_words_and_changes_nothing(tmp_path):
    said, ended = [], []
    bad = batch_of(2, PRETRAINING)
    bad = dataclasses.replace(bad, masked_weights=np.where(np.arange(bad.M) == 3, np.nan, bad.masked_weights))
    good = [(batch_of(i, PRETRAINING), i + 1) for i in (0, 1, 3)]
    batches = [*good[:2], (bad, 3), good[2]]  # a device is given one more before what came of it is read
    for ops in (JaxOps("float64"), Ops()):
        steps, rate = steps_of(Plan(), ops)
        state, folder = State(steps.params, steps.optimizer), tmp_path / f"{ops.name}"
        loop = Loop(STEPS, rate, folder, save_steps=2)
        with RunLog(folder, 0, STEPS, show=False) as log, pytest.raises(DivergedError) as caught:
            train(ops, state, iter(batches), steps.objective, loop, log)
        said.append(str(caught.value))
        assert state.step == 2
        last = load_checkpoint(checkpoints(folder)[-1])
        assert (last.state["step"], last.updates) == (2, 2)
        ended.append(last.params.flat)
    assert said[0] == said[1]
    assert "The loss of step 3 is nan" in said[0]
    assert distance(*ended) <= SAME


@pytest.mark.slow
def test_a_step_consumes_its_buffers_and_writes_to_nothing_that_was_given_or_fetched():
    steps, rate = steps_of(Plan(), JaxOps("float64"))
    state = State(steps.params, steps.optimizer)
    for step in range(2):
        had, on_the_device = buffers(state), jax.tree.leaves(steps._buffers)
        kept = [one.copy() for one in had]
        for _ in range(2):
            taken(steps, rate, batch_of(step, PRETRAINING), step)
        assert all(map(np.array_equal, had, kept))
        state.params = steps.fetch()  # behind which both steps are done: JAX promises nothing of it before
        assert all(one.is_deleted() for one in on_the_device)  # their memory holds what came of them
        assert all(map(np.array_equal, had, kept))
        assert not any(map(np.array_equal, buffers(state), kept))
        assert all(one.flags.writeable and one.flags.owndata for one in buffers(state))


@pytest.mark.slow
def test_what_is_changed_between_two_steps_is_taken_up():
    found = []
    for ops in (Ops(), JaxOps("float64")):
        steps, rate = steps_of(Plan(), ops)
        taken(steps, rate, batch_of(0, PRETRAINING), 0)
        params = steps.fetch()
        params["embeddings.word"][3:] = 0.5
        steps.optimizer.m[:] = steps.optimizer.v[:] = 0
        steps.renew()
        loss = taken(steps, rate, batch_of(1, PRETRAINING), 1)["loss"]
        found.append([loss, *steps.fetch().flat, *steps.optimizer.m])
    assert distance(*map(np.array, found)) <= SAME


MOVES = "copy", "concatenate", "slice", "dynamic-slice", "dynamic-update-slice", "transpose", "pad"


def moved(compiled, elements):
    """Instructions of compiled code that move as many elements or more and compute nothing."""
    pattern = rf"^\s*(?:ROOT )?%?\S+ = \w+\[([\d,]+)\]\S* ({'|'.join(MOVES)})\("
    found = re.findall(pattern, compiled.as_text(), re.MULTILINE)
    return [(shape, name) for shape, name in found if math.prod(map(int, shape.split(","))) >= elements]


@pytest.mark.slow
def test_a_step_copies_neither_parameters_nor_gradients():
    jax.config.update("jax_disable_most_optimizations", False)  # what is looked at
    config = config_of(SIZE, num_hidden_layers=2, vocab_size=5000)
    params = random_parameters(config, np.random.default_rng(0))
    steps = start(
        JaxOps("float64"), params, optimizer_for(params, "adamw"), BertObjective(config, PRETRAINING)
    )
    batch = steps.prepare(batch_of(0, PRETRAINING), 1)
    compiled = steps._for_devices().lower(steps._buffers, batch, 0, 1, 1e-3).compile()
    assert not moved(compiled, params["embeddings.word"].size)
    # What all tensors have to come out of, or go into, would be seen.
    whole = jax.ShapeDtypeStruct(params.flat.shape, "float32")

    def there_and_back(flat):
        tree = unflatten(params.table, flat)
        return jnp.concatenate([2 * leaf_of(tree, entry.name).reshape(-1) for entry in params.table])

    assert moved(jax.jit(there_and_back).lower(whole).compile(), params["embeddings.word"].size)


def products_of(optimizer, layers):
    """How many matrix products a step has, as it is given to the compiler."""
    steps, _ = steps_of(Plan(layers=layers, optimizer=optimizer), JaxOps("float64"))
    lowered = steps._for_devices().lower(
        steps._buffers, steps.prepare(batch_of(0, PRETRAINING), 1), 0, 1, 1e-3
    )
    return lowered.as_text().count("stablehlo.dot_general")


@pytest.mark.slow
def test_muon_multiplies_the_matrices_of_all_layers_at_once():
    added = [products_of("muon", layers) - products_of("adamw", layers) for layers in (1, 3)]
    # Queries, keys, values, what follows them, two of the feed-forward network: five times three products.
    assert added == [6 * 15, 6 * 15]


# Checkpoints: a run of one engine that another goes on with.


def options_for(corpus, **more):
    """A run of seconds, of one length: each length is compiled for by itself."""
    given = dict(
        corpus=(str(corpus),), vocab_size=120, seq_length="16", batch_size=8, max_positions=16, steps=6,
        evaluations=1, held_out=0.2, learning_rate=5e-3, dropout=0.1, keep=9, checkpoint_steps=2,
    )  # fmt: skip
    return PretrainOptions(**given | more)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("text") / "animals.txt")


def go_on(run, step, backend):
    """Go on from the checkpoint of a step with an engine, as if nothing had come behind it."""
    for path in checkpoints(run / "checkpoints"):
        if load_checkpoint(path).state["step"] > step:
            path.unlink()
    options = PretrainOptions.resumed(run / "training.json", engine=backend)
    pretrain(options, run, resume=True, show=False)
    return figures_of(run)


def figures_of(run):
    """What the log says of every step, without what the clock has measured."""
    clock = ("seconds", *SPEEDS)
    return [{name: one for name, one in line.items() if name not in clock} for line in read_metrics(run)]


def furthest(found, expected):
    """The largest difference of two logs, in units of the figures where they are above 1."""
    assert [line.keys() for line in found] == [line.keys() for line in expected]
    pairs = [(line[name], was[name]) for line, was in zip(found, expected, strict=True) for name in line]
    return worst(abs(one - other) / max(1, abs(other)) for one, other in pairs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "dtype", "tolerance"), [("numpy", "float64", SAME), ("cpp", "float32", 1e-5)]
)
def test_a_run_goes_on_with_another_engine_and_back(engine, dtype, tolerance, corpus, tmp_path):
    if reason := missing(engine):
        pytest.skip(reason)
    jax.config.update("jax_enable_x64", dtype == "float64")  # as it is where nobody asks for it
    straight, changing = tmp_path / "straight", tmp_path / "changing"
    pretrain(options_for(corpus, dtype=dtype, engine=engine), straight, show=False)
    shutil.copytree(straight, changing)
    expected = figures_of(straight)
    assert furthest(go_on(changing, 2, "jax"), expected) <= tolerance
    between = load_checkpoint(changing / "checkpoints" / "step-000000004.safetensors")
    assert furthest(go_on(changing, 4, engine), expected) <= tolerance

    numpy_s = load_checkpoint(straight / "checkpoints" / "step-000000004.safetensors")
    timeless = [one.state | {"seconds": 0} for one in (between, numpy_s)]
    assert timeless[0] == timeless[1]
    assert (between.updates, between.params.config) == (numpy_s.updates, numpy_s.params.config)
    for name in ("m", "v"):
        one, other = getattr(between, name), getattr(numpy_s, name)
        assert one.dtype == other.dtype == dtype and 0 < distance(one, other) <= 100 * tolerance
    names = [[path.name for path in checkpoints(run / "checkpoints")] for run in (straight, changing)]
    assert names[0] == names[1] == [f"step-{step:09d}.safetensors" for step in (0, 2, 4, 6)]
    for name in ("vocab.txt", "config.json", "tokenizer_config.json", f"checkpoints/{names[0][1]}"):
        assert (changing / name).read_bytes() == (straight / name).read_bytes()


@pytest.mark.slow
def test_taggers_on_a_frozen_encoder_learn_the_same_with_numpy(tmp_path):
    jax.config.update("jax_enable_x64", False)
    data, model = write_data(tmp_path / "data"), write_model(tmp_path / "model")
    given = dict(feature_based="sum-all", width=6, epochs=1.0, learning_rates=(2e-2,), batch_size=4)
    logs = []
    for name in ("numpy", "jax"):
        options = FinetuneOptions("ner", data, model, engine=name, max_length=16, **given)
        finetune(options, tmp_path / name, show=False)
        logs.append([line["loss"] for line in figures_of(tmp_path / name) if "loss" in line])
    assert len(logs[0]) > 1
    assert logs[1] == pytest.approx(logs[0], rel=1e-5)


@pytest.mark.slow
def test_windows_of_long_texts_are_learnt_from_the_same_with_numpy(tmp_path):
    jax.config.update("jax_enable_x64", False)
    model, rows = small_tasks.write_model(tmp_path / "model"), small_tasks.reviews(24, 1)
    for split in ("train", "dev"):
        texts = [(" ".join([text] * (1 + n % 4)), label) for n, (text, label) in enumerate(rows)]
        small_tasks.write_table(tmp_path / "data" / f"{split}.tsv", ("text", "label"), texts)
    given = dict(long="windows", max_length=12, most_windows=3, pool="attention", max_steps=3, accumulate=2)
    logs = []
    for name in ("numpy", "jax"):
        options = small_tasks.small_options(model, tmp_path / "data", "classify", engine=name, **given)
        finetune(options, tmp_path / name, show=False)
        logs.append([line["loss"] for line in figures_of(tmp_path / name) if "loss" in line])
    assert len(logs[0]) > 1
    assert logs[1] == pytest.approx(logs[0], rel=1e-5)


@pytest.mark.representatives(dtype="float32")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_parameters_and_moments_go_in_and_out_bit_for_bit(dtype):
    rng = np.random.default_rng(0)
    names = random_parameters(config_of(SIZE), rng).astype(dtype)
    given = tuple(rng.standard_normal((3, names.count())).astype(dtype))
    given[0][:4] = -0.0, np.inf, np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max
    ops = JaxOps(dtype)
    flat, m, v = given
    optimizer = optimizer_for(names, "adamw")
    optimizer.m, optimizer.v = m, v
    steps = start(ops, names.like(flat), optimizer, BertObjective(names.config))
    back = steps.fetch().flat, optimizer.m, optimizer.v
    assert [one.tobytes() for one in back] == [one.tobytes() for one in given]
    assert {one.dtype for one in back} == {np.dtype(dtype)}


# Those who do not use JAX.


def python(script, *arguments):
    """What a Python of its own prints, both streams."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    done = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


SMALL = "--vocab-size 120 --seq-length 16 --batch-size 4 --steps 1 --evaluations 0 --held-out 0.2 --quiet"
WITHOUT = """
import sys
from minibert import cli
corpus, out, *small = sys.argv[1:]
assert cli.main(["pretrain", corpus, "--out", out, "--engine", "numpy", *small]) == 0
for command in ("info", "pretrain"):
    try:
        cli.main([command, "--help"])
    except SystemExit:
        pass
print("jax loaded:", "jax" in sys.modules)
"""


@pytest.mark.thorough
def test_who_trains_with_numpy_never_imports_jax(corpus, tmp_path):
    said = python(WITHOUT, corpus, tmp_path / "run", *SMALL.split())
    assert said.endswith("jax loaded: False\n")
    assert (tmp_path / "run" / "report.json").exists()


BLOCKED = """
import sys
sys.modules["jax"] = None
from minibert import cli
corpus, out, *small = sys.argv[1:]
print(cli.main(["pretrain", corpus, "--out", out, "--engine", "jax", *small]))
sys.path.insert(0, "tests/support")
sys.modules.pop("engines", None)
import engines
print([(one.values, mark.kwargs["reason"]) for one in engines.EVERY if not isinstance(one, str)
       for mark in one.marks if one.values == ("jax",)])
import pytest
pytest.main(["-q", "-rs", "-p", "no:cacheprovider", *__import__("glob").glob("tests/engines/jax/test_*.py")])
"""


@pytest.mark.slow
def test_without_jax_there_is_a_sentence_and_tests_are_skipped_with_a_reason(corpus, tmp_path):
    said = python(BLOCKED, corpus, tmp_path / "run", *SMALL.split())
    sentence = r" is not installed \(.*\): pip install jax, or jax\[cuda13\] for a GPU\."
    code, skipped, *tests = said.splitlines()
    assert code == "2" and not (tmp_path / "run").exists()
    assert re.fullmatch(rf"minibert: --engine jax{sentence}", tests.pop(-1))
    assert re.search(f"engine='jax'{sentence}", skipped)
    for path in ROOT.glob("tests/engines/jax/test_*.py"):
        assert any(path.name in line and "could not import 'jax'" in line for line in tests), path.name
    assert " failed" not in said and " error" not in said
