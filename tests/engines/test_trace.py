"""Where the time of a run goes: what is counted, what is timed, and that looking changes nothing."""

import json
import re
import signal
import sys
from collections import Counter

import numpy as np
import pytest
from command import PATIENCE, notice, start, wait_for_step  # noqa: F401 (a fixture)
from engines import ENGINES
from marks import seldom
from objectives import update_once
from small_corpus import write_corpus

from minibert import cli, engines
from minibert.core import bert
from minibert.core.gradcheck.cases import SIZES, config_of, dropout_of, random_batch
from minibert.core.optim import AdamW
from minibert.engines import flops, trace
from minibert.engines.trace import watch
from minibert.gradcheck.drawn import random_parameters
from minibert.model.ops import Ops
from minibert.training.runlog import RunLog, read_metrics

every_engine = pytest.mark.parametrize(
    "engine", [*ENGINES, "cpp without blocks", "cpp in bfloat16"], indirect=True
)
FLAGS = "--vocab-size 120 --seq-length 16 --batch-size 8 --held-out 0.2 --threads 1".split()


@pytest.fixture
def engine(request):
    name, _, how = request.param.partition(" ")
    if not how:
        return engines.create(name, threads=1)
    made = pytest.importorskip("minibert.engines.cpp.ops", reason="the kernels in C++ are not built")
    return made.CppOps(fuse=how != "without blocks", dtype="bfloat16" if "bfloat16" in how else "float32")


def one_step(ops, causal=False, size="ugly"):
    """A step of training with dropout; parameters and gradient at its end."""
    config, rng = config_of(SIZES[size], is_decoder=causal), np.random.default_rng(0)
    batch = random_batch(SIZES[size], SIZES[size].M, rng)
    params = random_parameters(config, rng).astype(np.float32)
    grads, optimizer = params.zeros_like(), AdamW(params.flat, params.decayed)
    _, saved = bert.pretraining_loss(ops, config, params.tree, batch, dropout_of(ops, batch))
    bert.pretraining_loss_backward(ops, config, saved, params.tree, grads.tree)
    update_once(optimizer, ops, params.flat, grads.flat, 1e-3)
    return config, batch, params.flat, grads.flat


def by_name(seen):
    return {(row.op, row.direction): row for row in seen.rows()}


def numbers(*shape, dtype="float32"):
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


# What is counted


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_linear_counts_its_multiply_adds_twice_and_its_arrays_once(dtype):
    ops, (x, weight, bias) = Ops(), (numbers(*shape, dtype=dtype) for shape in ((3, 2), (2, 5), (5,)))
    with watch(ops) as seen:
        y, saved = ops.linear(x, weight, bias)
        ops.linear_backward(y, saved)
    rows, wide = by_name(seen), x.itemsize
    assert rows["linear", "forward"].operations == 2 * 3 * 2 * 5
    assert rows["linear", "forward"].moved == (6 + 10 + 5 + 15) * wide  # x, weight, bias; y
    assert rows["linear", "backward"].operations == 2 * 2 * 3 * 2 * 5
    assert rows["linear", "backward"].moved == (15 + 6 + 10 + 6 + 10 + 5) * wide  # dy, x, weight; gradients


@pytest.mark.parametrize(("causal", "pairs"), [(False, 3 * 3 + 5 * 5), (True, 3 * 4 // 2 + 5 * 6 // 2)])
@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_attention_counts_the_pairs_of_real_lengths(engine, causal, pairs):
    q, k, v = (numbers(8, 2, 4) for _ in "qkv")
    with watch(engine) as seen:
        y, saved = engine.attention(q, k, v, np.array([0, 3, 8], np.int32), causal)
        engine.attention_backward(y, saved)
    forward, backward = (by_name(seen)["attention", direction] for direction in ("forward", "backward"))
    assert (forward.calls, backward.calls) == (1, 1)
    assert forward.operations == 2 * 2 * pairs * 2 * 4  # scores, and the sum of values; two heads of four
    assert backward.operations == 2 * forward.operations


@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_of_tables_only_the_rows_taken_count(engine):
    table, ids, rows = numbers(1000, 4), np.array([7, 7, 9], np.int32), numbers(3, 4)
    with watch(engine) as seen:
        engine.embedding(ids, table)
        engine.scatter_add(table, ids, rows)
    moved = {row.op: row.moved for row in seen.rows() if row.moved}
    scattered = moved.pop("scatter_add")
    assert list(moved.values()) == [12 + 48 + 48]  # ids; three rows read and written
    assert scattered == 12 + 48 + 2 * 48  # ids, rows; three rows of the table read and written


class Kernels:
    """Kernels that do nothing, as the extension offers them: with the names of their arguments."""

    arguments = {"gemm": ("a", "b", "out", "add"), "adamw": ("params", "grads", "m", "v"), "novelty": "abcd"}

    def gemm(self, *given):
        pass

    adamw = novelty = gemm


def test_bytes_are_those_of_the_dtype_whatever_it_is():
    ops, narrow = Ops(), np.zeros((6, 4), np.uint16)  # how bfloat16 is carried
    ops._run = Kernels()
    with watch(ops) as seen:
        ops._run.gemm(narrow, narrow.T, np.zeros((6, 6), np.float32), True)
        ops._run.adamw(*(np.zeros(10, np.float32) for _ in range(4)))
        ops._run.novelty(narrow, (narrow, None), 3, np.zeros(2))
    rows = by_name(seen)
    assert rows["gemm", "forward"].operations == 2 * 6 * 6 * 4
    assert rows["gemm", "forward"].moved == 2 * (24 + 24) + 2 * 4 * 36  # added to: read and written
    assert rows["adamw", "update"].moved == 4 * 10 * (4 + 3)
    assert rows["novelty", "forward"].moved == 2 * (24 + 24) + 16


def test_a_custom_engine_may_rename_its_arguments():
    class Renamed(Ops):
        def linear(self, a, w, b):
            return super().linear(a, w, b)

    with watch(ops := Renamed()) as seen:
        ops.linear(numbers(3, 2), numbers(2, 5), numbers(5))
    row = by_name(seen)["linear", "forward"]
    assert (row.calls, row.operations) == (1, 0)


def test_the_kernels_and_arguments_that_a_trace_knows_are_there():
    kernels = pytest.importorskip("minibert.engines.cpp._kernels").Engine.arguments
    assert {*trace.UPDATED, *trace.ADDED_TO} <= set(kernels)
    for name, updated in trace.UPDATED.items():
        assert set(updated) <= set(kernels[name])
    for name, updated in trace.ADDED_TO.items():
        assert {updated, "add"} <= set(kernels[name])
    for name in {*trace.OPERATIONS, *trace.TABLES} - set(kernels):
        assert callable(getattr(Ops, name))
    for name in {*trace.OPERATIONS, *trace.TABLES} & set(kernels):
        assert set(trace.TABLES.get(name, ())) & {*kernels[name]} or name in trace.OPERATIONS


@every_engine
@pytest.mark.parametrize("causal", [False, True], ids=["both ways", "left to right"])
def test_operations_of_a_step_are_the_useful_ones(engine, causal):
    with watch(engine) as seen:
        config, batch, *_ = one_step(engine, causal)
    expected = flops.step_operations(config, batch.lengths, batch.masked_counts)
    if not causal and not getattr(engine, "_fuse", False):
        expected += asked_in_vain(config, batch)
    assert sum(row.operations for row in seen.rows()) == expected


def asked_in_vain(config, batch):
    """What it costs to let tokens of the last layer ask of which nobody reads the answer."""
    vain = batch.lengths - batch.masked_counts - 1
    assert (vain >= 0).all() and vain.any()
    return 3 * (2 * int(vain.sum()) * config.H**2 + 2 * int((vain * batch.lengths).sum()) * config.H * 2)


def test_left_to_right_half_of_the_pairs_are_useful():
    assert flops.attention_pairs([1, 4, 7]) == 1 + 16 + 49
    assert flops.attention_pairs([1, 4, 7], causal=True) == 1 + 10 + 28


# What is timed


class Clock:
    """Stands still but for `passes`."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(trace, "perf_counter", lambda: self.now)

    def passes(self, seconds):
        self.now += seconds


def test_time_is_exclusive_and_adds_up(monkeypatch):
    clock = Clock(monkeypatch)

    class Slow(Ops):
        def linear(self, x, weight, bias):
            clock.passes(3)
            return super().linear(x, weight, bias)

        def tanh(self, x):
            clock.passes(2)
            return super().tanh(x)

        def pooler(self, x, first_rows, params):
            clock.passes(7)
            return super().pooler(x, first_rows, params)

    ops, x, params = Slow(), numbers(4, 3), {"weight": numbers(3, 3), "bias": numbers(3)}
    with watch(ops) as seen:
        clock.passes(10)
        ops.pooler(x, np.array([0, 2]), params)
        ops.tanh(x)
        seen.as_one("a look", lambda: (clock.passes(1), ops.tanh(x)))()
    clock.passes(1000)
    assert seen.seconds == 10 + 7 + 3 + 2 + 2 + 3
    rows = {row.op: (row.calls, row.seconds) for row in seen.rows() if row.seconds}
    assert rows == {
        trace.OUTSIDE: (0, 10),
        "pooler": (1, 7),
        "tanh": (2, 4),
        "linear": (1, 3),
        "a look": (1, 3),  # what it calls has no row
    }


def nested(events):
    """For each event, as (begin, end) in nanoseconds, those that stand directly in it."""
    spans = [(round(1e3 * one["ts"]), round(1e3 * one["ts"]) + round(1e3 * one["dur"])) for one in events]
    assert spans == sorted(spans, key=lambda span: (span[0], -span[1]))
    inside, around = [[] for _ in spans], []
    for place, (begin, end) in enumerate(spans):
        while around and spans[around[-1]][1] <= begin and spans[around[-1]] != (begin, end):
            around.pop()
        if around:
            assert end <= spans[around[-1]][1], "two events overlap, and neither holds the other"
            inside[around[-1]].append(place)
        around.append(place)
    return spans, inside


def exclusive(events):
    """The seconds of each operation and direction on a timeline, without what is nested in it."""
    spans, inside = nested(events)
    sums = Counter()
    for event, (begin, end), own in zip(events, spans, inside, strict=True):
        key = event["name"], "" if event["cat"] == trace.OTHER else event["cat"]
        sums[key] += end - begin - sum(spans[place][1] - spans[place][0] for place in own)
    return {key: nanoseconds / 1e9 for key, nanoseconds in sums.items() if key[1] != "step"}


def saved_events(seen, folder):
    seen.save_events(folder / "events.json")
    return json.loads((folder / "events.json").read_text("utf-8"))


class Ticking(Ops):
    """An engine whose operations take a time of their own before and after those that they call."""

    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    def linear(self, x, weight, bias):
        self.clock.passes(3)
        return super().linear(x, weight, bias)

    def feed_forward_block(self, *given):
        self.clock.passes(0.25)
        result = super().feed_forward_block(*given)
        self.clock.passes(0.125)
        return result

    def layer_norm_backward(self, dy, saved):
        self.clock.passes(2)
        return super().layer_norm_backward(dy, saved)

    def adamw(self, *given):
        self.clock.passes(5)
        return super().adamw(*given)


def test_timeline_is_nested_and_adds_up_to_the_rows(monkeypatch, tmp_path):
    clock = Clock(monkeypatch)
    ops = Ticking(clock)
    with watch(ops) as seen:
        clock.passes(0.5)
        one_step(ops)
        seen.as_one("a look", lambda: clock.passes(1))()
        one_step(ops)
    events = saved_events(seen, tmp_path)
    rows = {(row.op, row.direction): row for row in seen.rows() if row.calls}
    sums = exclusive(events)
    assert sums.keys() == rows.keys()
    assert {key: sums[key] for key in rows} == pytest.approx({key: row.seconds for key, row in rows.items()})
    assert sums["adamw", "update"] == 10 and sums["a look", ""] == 1
    for count in ("operations", "bytes"):
        shown = sum(event["args"].get(count, 0) for event in events)
        assert shown == sum(row.operations if count == "operations" else row.moved for row in rows.values())
    steps = [(one["name"], one["ts"], one["dur"]) for one in events if one["cat"] == "step"]
    length = (seen.seconds - 0.5 - 1) / 2 * 1e6
    assert steps == [("step 1", 0.5e6, length), ("step 2", 1.5e6 + length, length)]


@every_engine
def test_events_are_complete_ones_in_microseconds_of_a_few_steps(engine, tmp_path):
    with watch(engine) as seen:
        for _ in range(trace.STEPS_SHOWN + 2):
            one_step(engine)
    events = saved_events(seen, tmp_path)
    for event in events:
        assert event.keys() == {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"}
        assert event["ph"] == "X" and event["dur"] >= 0 and 0 <= event["ts"] <= 1e6 * seen.seconds
        assert (type(event["pid"]), type(event["tid"])) == (int, int)
    spans, inside = nested(events)
    assert max(end for _, end in spans) <= 1e9 * seen.seconds + 1
    names = [f"step {number + 1}" for number in range(trace.STEPS_SHOWN)]
    assert [event["name"] for event in events if event["cat"] == "step"] == names
    assert seen.steps_shown == trace.STEPS_SHOWN
    [*_, last] = [place for place, event in enumerate(events) if event["cat"] == "step"]
    assert {"forward", "backward", "update"} <= {events[place]["cat"] for place in inside[last]}
    assert (tmp_path / "events.json").read_text("utf-8").startswith("[{")


@every_engine
def test_rows_add_up_to_the_time_watched(engine):
    one_step(engine, size="aligned")
    with watch(engine) as seen:
        for _ in range(5):
            one_step(engine, size="aligned")
    rows = seen.rows()
    assert sum(row.seconds for row in rows) == pytest.approx(seen.seconds, rel=1e-9)
    assert min(row.seconds for row in rows) >= 0
    assert {row.direction for row in rows} == {"forward", "backward", "update", ""}
    assert [row.calls for row in rows if row.op == "adamw"] == [5]


@every_engine
def test_looking_changes_no_bit_and_leaves_the_engine_as_it_was(engine):
    before = dict(vars(engine))
    *_, params, grads = one_step(engine)
    with watch(engine):
        *_, watched_params, watched_grads = one_step(engine)
    assert params.tobytes() == watched_params.tobytes()
    assert grads.tobytes() == watched_grads.tobytes()
    assert vars(engine) == before
    with pytest.raises(KeyboardInterrupt), watch(engine):
        raise KeyboardInterrupt
    assert vars(engine) == before


# What is shown


def test_the_table_is_aligned_in_a_hundred_columns_and_gathers_what_is_small(monkeypatch):
    clock = Clock(monkeypatch)
    with watch(Ops()) as seen:
        for op in ("dropout_residual_layer_norm", "gemm", "attention"):
            seen.as_one(op, lambda: clock.passes(400))()
        for op in ("tiny", "tinier"):
            seen.as_one(op, lambda: clock.passes(0.5))()
    head, *rows = seen.table(peak=230.0).splitlines()
    assert head.split() == "op direction calls ms share GFLOP/s of peak GB/s".split()
    assert max(map(len, [head, *rows])) <= 100
    ends = {line.rfind("%") for line in rows}
    assert ends == {head.index("share") + len("share") - 1}
    assert [line.split("  ")[0] for line in rows[3:]] == [
        "2 others, each under 0.5%", trace.ITSELF, trace.OUTSIDE, "all",
    ]  # fmt: skip
    assert rows[-1].split() == ["all", "1,201,000.0", "100.0%"]
    assert "of peak" not in seen.table()


def test_speeds_are_shown_of_steps_that_were_timed(tmp_path, capsys):
    with RunLog(tmp_path, 0, 3, peak=200.0) as log:
        log.step(1, 1000, {"loss": 1.5, "learning_rate": 1e-3}, seconds=0.5, operations=50e9)
        log.step(2, 1000, {"loss": 1.5, "learning_rate": 1e-3}, seconds=0.25, operations=100e9)
        log.step(3, 1000, {"loss": 1.5, "learning_rate": 1e-3})
    first, second, third = read_metrics(tmp_path)
    assert (first["tokens_per_second"], first["useful_gflops"], first["peak_share"]) == (2000, 100, 0.5)
    assert (second["tokens_per_second"], second["useful_gflops"], second["peak_share"]) == (4000, 400, 2)
    assert "tokens_per_second" not in third
    # Shown are 0.95 of what came before and 0.05 of the last: 1000 tokens and 52.5 operations in 0.4875 s.
    assert "2,051 tokens/s  108 GFLOP/s  54% of peak" in capsys.readouterr().err


# A run


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("text") / "animals.txt")


@pytest.mark.thorough
@pytest.mark.parametrize("name", seldom(ENGINES, "cpp"))
def test_pretrain_traces_and_ends_with_the_same_weights(name, corpus, tmp_path, capsys):
    command = ["pretrain", str(corpus), *FLAGS, "--steps", "6", "--evaluations", "2", "--quiet"]
    for out, more in (("plain", []), ("traced", ["--trace"])):
        assert cli.main([*command, "--engine", name, "--out", str(tmp_path / out), *more]) == 0
    weights = [(tmp_path / out / "model.safetensors").read_bytes() for out in ("plain", "traced")]
    assert weights[0] == weights[1]
    errors = capsys.readouterr().err
    assert errors.count("s of 6 steps went:") == 1
    found = json.loads((tmp_path / "traced" / "trace.json").read_text())
    assert (found["engine"], found["steps"]) == (name, 6)
    calls = {(row["op"], row["direction"]): row["calls"] for row in found["rows"]}
    assert calls["adamw", "update"] == 6 and calls["attention", "backward"] == 12
    assert calls["evaluations of held-out text", ""] == 2
    assert sum(row["share"] for row in found["rows"]) == pytest.approx(1, abs=1e-4)
    events = json.loads((tmp_path / "traced" / "trace-events.json").read_text("utf-8"))
    assert sum(one["cat"] == "step" for one in events) == trace.STEPS_SHOWN < 6
    assert (
        sum(one["name"] == "attention" and one["cat"] == "backward" for one in events)
        >= 2 * trace.STEPS_SHOWN
    )
    assert nested(events) and f"trace-events.json has the first {trace.STEPS_SHOWN} steps" in errors
    assert not (tmp_path / "plain" / "trace.json").exists()
    assert cli.main(["pretrain", "--out", str(tmp_path / "traced"), "--resume", "--trace", "--quiet"]) == 0
    assert "steps went" not in capsys.readouterr().err  # there were none


def test_the_log_of_a_run_has_its_speed(corpus, tmp_path, capsys):
    assert cli.main(["pretrain", str(corpus), *FLAGS, "--steps", "2", "--out", str(tmp_path / "run")]) == 0
    assert "GFLOP/s" in capsys.readouterr().err
    lines = [line for line in read_metrics(tmp_path / "run") if "loss" in line]
    assert len(lines) == 2 and all(line["useful_gflops"] > 0 for line in lines)
    if engines.peak(1):
        assert all(0 < line["peak_share"] < 1.5 for line in lines)


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is sent as a signal")
def test_ctrl_c_prints_the_trace_of_what_was_done(corpus, tmp_path):
    out = tmp_path / "run"
    process = start("pretrain", corpus, "--out", out, "--steps", "100000", *FLAGS, "--trace")
    wait_for_step(process, out, 2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, errors
    found = json.loads((out / "trace.json").read_text())
    assert f"s of {found['steps']:,} steps went:" in errors
    assert re.search(r"\nall +[\d,]+\.\d +100\.0% ", errors) and "Traceback" not in errors


# The machine


def test_the_peak_is_a_speed_that_a_processor_can_have():
    one = engines.peak(1)
    if one is None:
        pytest.skip("the kernels in C++ are not built")
    # Two units of 16 lanes, two operations each, 6 GHz: 384. bfloat16 does twice that with vectors, and with
    # tiles 16 x 16 x 32 products in 16 cycles: 6,144. A loop that the compiler took out shows more.
    tiles = "amx" in engines.instruction_sets()
    assert 0.1 < one < 400 and 0.1 < engines.peak(1, "bfloat16") < (6200 if tiles else 800)
    assert engines.peak(1, "float64") < 200


def test_info_tells_of_the_engine_that_is_chosen(capsys):
    assert cli.main(["info", "--json", "--engine", "numpy", "--threads", "1"]) == 0
    engine = json.loads(capsys.readouterr().out)["engine"]
    assert (engine["name"], engine["threads"]) == ("numpy", 1)
    assert "peak in float32, GFLOP/s" in engine
    if sets := engines.instruction_sets():
        assert cli.main(["info", "--json", "--engine", "cpp", "--threads", "2"]) == 0
        engine = json.loads(capsys.readouterr().out)["engine"]
        assert engine["instruction set"] == sets[0]
