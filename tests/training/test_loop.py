"""The loop by itself, on a task small enough to know the answer of, and micro-batches on the real loss."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import UserDict
from types import SimpleNamespace

import numpy as np
import pytest
from command import ROOT
from loop_cases import CONFIG, batch, state
from objectives import BertObjective, OfFunction

from minibert.base.errors import DivergedError, RunError
from minibert.engines.runtime import Runtime
from minibert.hub.checkpoint import checkpoints, load_checkpoint
from minibert.model.ops import Ops
from minibert.training.loop import (
    Interrupt,
    Loop,
    memory_explained,
    prefetch,
    train,
)
from minibert.training.runlog import SPEEDS, RunLog, read_metrics
from minibert.training.step import LoopSteps, start

MEASURED = {"seconds", *SPEEDS}


def batches(step=0):
    """Batches and positions without end; the position after step n is n."""
    while True:
        yield batch(step), step + 1
        step += 1


def bert_objective(dropout=0.1):
    return BertObjective(CONFIG, rates=(dropout, dropout), seed=7)


def bert_gradients(ops, params, grads, part, step):
    metrics, saved = bert_objective().forward(ops, params, part, step)
    return bert_objective().backward(ops, saved, params, grads), metrics


def run(folder, total, gradients=None, begin=None, **loop):
    """Train to `total` steps, from the beginning or from a checkpoint."""
    now = state()
    if begin is not None:
        now.restore(load_checkpoint(begin))
    loop = Loop(total, lambda step: 1e-3, folder / "checkpoints", **loop)
    with RunLog(folder, now.step, total, show=False) as log:
        train(
            Ops(),
            now,
            batches(now.position or 0),
            OfFunction(gradients) if gradients else bert_objective(),
            loop,
            log,
        )
    return now


def gradient(batch, step, parts=1, steps=None):
    """Gradient and metrics of a batch in so many parts."""
    now = state(np.float64)
    steps = steps or start(Ops(), now.params, now.optimizer, bert_objective())
    metrics = steps.step(steps.prepare(batch, parts), step, 0.0)
    return steps.grads.flat, metrics


@pytest.mark.parametrize("parts", [4, 8, 32])
def test_micro_batches_have_the_gradient_of_the_whole_batch(parts):
    big = batch(3, sequences=32)
    one_gradient, one = gradient(big, 5)
    many_gradient, many = gradient(big, 5, parts)
    assert many["loss"] == pytest.approx(one["loss"], rel=1e-13)
    error = np.linalg.norm(many_gradient - one_gradient) / np.linalg.norm(one_gradient)
    assert error <= 1e-12


def test_gradients_of_the_step_before_are_not_added_to():
    now = state(np.float64)
    steps = start(Ops(), now.params, now.optimizer, bert_objective())
    first, _ = gradient(batch(1), 0, steps=steps)
    first = first.copy()
    again, _ = gradient(batch(1), 0, steps=steps)
    assert (again == first).all() and first.any()


def test_accumulators_have_the_precision_of_the_parameters():
    for dtype in (np.float32, np.float64):
        now = state(dtype)
        assert start(Ops(), now.params, now.optimizer, bert_objective()).grads.flat.dtype == dtype


def test_a_run_in_two_halves_ends_with_the_bytes_of_one_run(tmp_path):
    whole = run(tmp_path / "whole", 8)
    run(tmp_path / "halves", 3)
    second = run(tmp_path / "halves", 8, begin=checkpoints(tmp_path / "halves" / "checkpoints")[-1])
    assert second.params.flat.tobytes() == whole.params.flat.tobytes()
    assert (second.step, second.position, second.tokens) == (whole.step, whole.position, whole.tokens) == (
        8, 8, sum(batch(n).T for n in range(8)),
    )  # fmt: skip


def test_training_lowers_the_loss_of_a_batch_seen_again_and_again(tmp_path):
    now = state()
    with RunLog(tmp_path, 0, 60, show=False) as log:
        loop = Loop(60, lambda step: 3e-3, tmp_path / "checkpoints")
        train(Ops(), now, ((batch(0), 0) for _ in range(60)), bert_objective(dropout=0.0), loop, log)
    losses = [line["loss"] for line in read_metrics(tmp_path)]
    assert losses[0] > 4.5 and losses[-1] < 0.5


class Told(UserDict):
    """Metrics, and a note when they are read."""

    def __init__(self, metrics, read):
        super().__init__(metrics)
        self.read = read

    def keys(self):
        self.read()
        return super().keys()


def on_a_device(events):
    """An engine that is given a step before the metrics of the one before are read, and notes both."""

    class OnADevice(LoopSteps):
        max_unread = 1

        def step(self, micro_batches, number, rate):
            events.append(f"give {number + 1}")
            metrics = super().step(micro_batches, number, rate)
            return Told(metrics, lambda: events.append(f"read {number + 1}"))

    device = Ops()
    device.runtime = Runtime()
    device.runtime.steps = OnADevice
    return device


def test_nothing_is_replanned_or_changed_while_a_step_is_unread(tmp_path):
    events, now = [], state()

    def change(before, position):
        events.append(f"change before {position}")

    def replan(before):
        events.append(f"replan at {before.step}")
        return batches(before.position), dataclasses.replace(loop, replan_at=None)

    loop = Loop(
        6, lambda step: 1e-3, tmp_path,
        change_before={4}, change=change, replan_at=2, replan=replan,
    )  # fmt: skip
    with RunLog(tmp_path, 0, 6, show=False) as log:
        train(on_a_device(events), now, batches(), bert_objective(), loop, log)
    assert " ".join(events) == (
        "give 1 give 2 read 1 read 2 replan at 2 give 3 give 4 read 3 read 4 "
        "change before 5 give 5 give 6 read 5 read 6"
    )


@pytest.mark.parametrize("device", [False, True])
def test_nothing_is_changed_after_a_step_that_came_to_no_number(tmp_path, device):
    def gradients(ops, params, grads, part, step):
        return (
            (grads, {"loss": float("nan")}) if step == 2 else bert_gradients(ops, params, grads, part, step)
        )

    def change(before, position):
        events.append("change")

    events, now = [], state()
    loop = Loop(6, lambda step: 1e-3, tmp_path, change_before={3}, change=change)
    ops = on_a_device(events) if device else Ops()
    with (
        RunLog(tmp_path, 0, 6, show=False) as log,
        pytest.raises(DivergedError, match="loss of step 3 is nan"),
    ):
        train(ops, now, batches(), OfFunction(gradients), loop, log)
    assert now.step == 2 and "change" not in events


def test_the_next_step_begins_before_metrics_are_read(tmp_path):
    """But nothing is saved or evaluated while a step is unread; and what is learnt is the same."""
    events = []

    def trained(folder, ops):
        now, loss = state(), {"held_out_loss": 1.0}
        loop = Loop(
            6, lambda step: 1e-3, folder, save_steps=4, evaluate_steps=3,
            evaluate=lambda now: events.append(f"evaluate {now.step}") or loss,
            after_checkpoint=lambda now: events.append(f"save {now.step}"),
        )  # fmt: skip
        with RunLog(folder, 0, 6, show=False) as log:
            train(ops, now, batches(), bert_objective(), loop, log)
        lines = [{name: one[name] for name in one if name not in MEASURED} for one in read_metrics(folder)]
        return now, lines

    found, lines = trained(tmp_path / "device", on_a_device(events))
    assert " ".join(events).replace("evaluate", "\nevaluate").replace("save", "\nsave").splitlines() == [
        "give 1 give 2 read 1 give 3 read 2 read 3 ",
        "evaluate 3 give 4 read 4 ",
        "save 4 give 5 give 6 read 5 read 6 ",
        "evaluate 6 ",
        "save 6",
    ]
    expected, as_ever = trained(tmp_path / "host", Ops())
    assert found.params.flat.tobytes() == expected.params.flat.tobytes()
    assert (found.step, found.position, found.tokens) == (expected.step, expected.position, expected.tokens)
    assert lines == as_ever and len(lines) == 8


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_stops_the_run_and_leaves_the_checkpoint_intact(tmp_path, bad):
    def gradients(ops, params, grads, part, step):
        return (grads, {"loss": bad}) if step == 5 else bert_gradients(ops, params, grads, part, step)

    with pytest.raises(
        RunError, match=r"The loss of step 6 is (nan|inf) at learning rate 1.00e-03.*lower learning rate"
    ):
        run(tmp_path, 9, gradients, save_steps=2)
    last = load_checkpoint(checkpoints(tmp_path / "checkpoints")[-1])
    assert last.state["step"] == 4
    assert last.params.flat.tobytes() == run(tmp_path / "other", 4).params.flat.tobytes()


def test_only_weights_that_have_learnt_something_are_advised_to_start_from(tmp_path):
    def gradients(ops, params, grads, part, step):
        return (
            (grads, {"loss": float("nan")}) if step == 2 else bert_gradients(ops, params, grads, part, step)
        )

    with pytest.raises(RunError, match="from the weights of that checkpoint: model="):
        run(tmp_path / "a", 9, gradients, save_steps=1)
    state().save(tmp_path / "b" / "checkpoints")
    with pytest.raises(RunError, match="checkpoint is intact. Start again in another `out` .* warm-up.$"):
        run(tmp_path / "b", 9, gradients)


@pytest.mark.filterwarnings("error")
def test_what_overflows_is_said_once(tmp_path):
    def gradients(ops, params, grads, part, step):
        return grads, {"loss": float(np.exp(np.full(1, 1000.0))[0])}

    with pytest.raises(RunError, match=r"The loss of step 1 is inf .*; there is no checkpoint yet\. Start"):
        run(tmp_path, 2, gradients)


def test_a_gradient_that_is_no_number_stops_the_run_before_it_reaches_the_weights(tmp_path):
    def gradients(ops, params, grads, part, step):
        grads["pooler"]["bias"][0] = np.nan
        return grads, {"loss": 1.0}

    now = state()
    before = now.params.flat.copy()
    with (
        RunLog(tmp_path, 0, 3, show=False) as log,
        pytest.raises(RunError, match="The gradient of step 1 is nan"),
    ):
        train(Ops(), now, batches(), OfFunction(gradients), Loop(3, lambda step: 1e-3, tmp_path), log)
    assert (now.params.flat == before).all()


@pytest.mark.parametrize("times", [None, 1, 2, 3, 5.5, 8])
@pytest.mark.parametrize("accumulate", [1, 3, 8, 31])
def test_without_memory_the_advice_is_the_least_doubling_that_fits(tmp_path, accumulate, times):
    loop = Loop(1, lambda step: 1e-3, tmp_path, accumulate)
    error = MemoryError("too much")
    if times:
        error.times = times
    with pytest.raises(RunError) as caught, memory_explained(batch(0, sequences=32), loop):
        raise error
    advised = int(re.search(r"Try accumulate=(\d+),", str(caught.value))[1])
    needed = accumulate * max(2, times or 2)
    assert needed <= advised < 2 * needed or advised == 32 < needed
    assert advised == 32 or (advised // accumulate).bit_count() == 1


def test_without_memory_for_one_sequence_shorter_ones_are_advised(tmp_path):
    loop = Loop(1, lambda step: 1e-3, tmp_path, 40)
    sentence = "in 32 micro-batches of up to 1: .* Try shorter sequences, or"
    with pytest.raises(RunError, match=sentence), memory_explained(batch(0, sequences=32), loop):
        raise MemoryError


def test_checkpoints_come_by_count_and_at_the_end_and_old_ones_go(tmp_path):
    steps = []
    run(tmp_path, 7, save_steps=2, max_checkpoints=2, after_checkpoint=lambda state: steps.append(state.step))
    assert steps == [2, 4, 6, 7]
    assert [load_checkpoint(path).state["step"] for path in checkpoints(tmp_path / "checkpoints")] == [6, 7]


def test_checkpoints_come_by_the_clock(tmp_path):
    steps = []
    run(tmp_path, 3, save_seconds=0.0, after_checkpoint=lambda state: steps.append(state.step))
    assert steps == [1, 2, 3]


def test_looks_are_recorded_beside_the_steps(tmp_path):
    run(tmp_path, 5, evaluate_steps=2, evaluate=lambda state: {"held_out_loss": float(state.step)})
    looks = [
        (line["step"], line["held_out_loss"]) for line in read_metrics(tmp_path) if "held_out_loss" in line
    ]
    assert looks == [(2, 2.0), (4, 4.0)]


def test_the_speed_of_a_step_is_without_looks_and_checkpoints(tmp_path, monkeypatch):
    now = 0.0

    def passing(seconds, value=None):
        nonlocal now
        now += seconds
        return value

    def gradients(*given):
        return passing(2.0, bert_gradients(*given))

    monkeypatch.setattr("minibert.training.loop.time", SimpleNamespace(monotonic=lambda: now))
    looks = {"evaluate_steps": 1, "evaluate": lambda state: passing(60.0, {})}
    run(tmp_path, 3, gradients, save_steps=1, after_checkpoint=lambda state: passing(600.0), **looks)
    speeds = [line["tokens_per_second"] for line in read_metrics(tmp_path) if "loss" in line]
    assert speeds == [batch(n).T / 2.0 for n in range(3)]


def timeless(line):
    """A line of metrics that has nothing of the clock."""
    return {name: value for name, value in line.items() if name not in ("seconds", *SPEEDS)}


def test_metrics_have_one_line_a_step_after_going_on(tmp_path):
    whole = tmp_path / "whole"
    run(whole, 8)
    run(tmp_path, 6, save_steps=4, max_checkpoints=0)
    with open(tmp_path / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write('5\n{"note": 1}\n{"step": 7, "lo')  # lines of others, a crash in the middle of a line
    run(tmp_path, 8, begin=checkpoints(tmp_path / "checkpoints")[0])
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 9))
    for ours, theirs in zip(lines, read_metrics(whole), strict=True):
        assert timeless(ours) == timeless(theirs)


def test_a_full_disk_ends_the_record_with_a_sentence(tmp_path):
    script = f"""
import resource
from minibert.training.runlog import RunLog
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
with RunLog({str(tmp_path)!r}, 0, 10_000, show=False) as log:
    for step in range(1, 10_000):
        log.step(step, 64, {{"loss": 1.5, "learning_rate": 1e-3}})
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    sentence = "metrics.jsonl could not be written: File too large; choose another folder."
    assert ended.stderr.splitlines()[-1].endswith(sentence)
    assert "Exception ignored" not in ended.stderr
    assert len(read_metrics(tmp_path)) > 100


def test_writing_for_tensorboard_leaves_pytorch_alone(tmp_path):
    pytest.importorskip("tensorboardX")
    (tmp_path / "torch.py").write_text("print('imported')\n")
    code = (
        "import sys; from pathlib import Path; from minibert.training.runlog import EventFile; "
        "EventFile(Path('events'), 0).close(); assert 'torch' not in sys.modules; import torch"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True)
    assert (done.stdout.split(), done.returncode) == ([b"imported"], 0), done.stderr  # by itself, at the end
    assert len(list((tmp_path / "events").iterdir())) == 1


def test_tensorboard_is_given_every_figure_and_forgets_later_steps(tmp_path):
    protocol = pytest.importorskip("tensorboardX.proto.event_pb2")
    with RunLog(tmp_path, 4, 9, show=False) as log:
        log.record(5, {"loss": 1.5, "rate": 0.25})
    (path,) = (tmp_path / "tensorboard").iterdir()
    data, events = path.read_bytes(), []
    while data:  # length, checksum, event, checksum
        size = int.from_bytes(data[:8], "little")
        events.append(protocol.Event.FromString(data[12 : 12 + size]))
        data = data[16 + size :]
    assert [event.step for event in events] == [0, 5, 5]
    assert events[1].session_log.status == protocol.SessionLog.START
    found = {value.tag: value.simple_value for value in events[2].summary.value}
    assert found == {"train/loss": 1.5, "train/rate": 0.25}


def test_ctrl_c_finishes_the_step_and_saves(tmp_path):
    def gradients(ops, params, grads, part, step):
        if step == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return bert_gradients(ops, params, grads, part, step)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, 9, gradients)
    last = checkpoints(tmp_path / "checkpoints")[-1]
    assert load_checkpoint(last).state["step"] == 4
    assert run(tmp_path, 9, begin=last).params.flat.tobytes() == run(tmp_path / "b", 9).params.flat.tobytes()


def test_sigterm_is_noted_where_it_has_a_handler_and_ends_the_process_elsewhere():
    with Interrupt():
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        mine = signal.getsignal(signal.SIGTERM)
        with Interrupt() as interrupt:
            os.kill(os.getpid(), signal.SIGTERM)
            assert interrupt.signal_name == "SIGTERM"
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_second_ctrl_c_does_not_wait():
    before = signal.getsignal(signal.SIGINT)
    with Interrupt() as interrupt:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.signal_name
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
    assert signal.getsignal(signal.SIGINT) is before


def test_where_ctrl_c_is_ignored_it_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupt() as interrupt:
            os.kill(os.getpid(), signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN and not interrupt.signal_name
    finally:
        signal.signal(signal.SIGINT, before)


def test_prefetching_changes_neither_items_nor_order_and_works_ahead():
    made = []

    def items():
        for number in range(20):
            made.append(number)
            yield number

    ahead = prefetch(items(), depth=3)
    assert next(ahead) == 0
    deadline = time.monotonic() + 60
    while len(made) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert made == [0, 1, 2, 3]  # what was taken, and three ahead
    assert list(ahead) == list(range(1, 20))


def test_what_fails_while_prefetching_fails_where_it_is_used():
    def items():
        yield 1
        raise RunError("no more")

    ahead = prefetch(items())
    assert next(ahead) == 1
    with pytest.raises(RunError, match="no more"):
        next(ahead)


def test_closing_a_prefetch_ends_its_thread():
    before = set(threading.enumerate())  # other tests' may still be there
    ahead = prefetch(iter(range(1000)))
    next(ahead)
    assert [thread.name for thread in set(threading.enumerate()) - before] == ["prefetch_0"]
    ahead.close()
    assert set(threading.enumerate()) <= before


def test_what_is_no_line_of_metrics_is_passed_over(tmp_path):
    good = b'{"step": 1, "loss": 2.0}\n'
    (tmp_path / "metrics.jsonl").write_bytes(
        good + b'\xff\xfe\n[1]\n{"step": "x"}\n{"step": null}\n' + b"9" * 5000 + b'\n{"step": 2, "lo'
    )
    assert read_metrics(tmp_path) == [{"step": 1, "loss": 2.0}]


def test_the_lock_of_progress_bars_is_there_before_the_first_line():
    code = "import sys, minibert.training.runlog as r; r.logger.info('x'); "
    code += "print('multiprocessing.synchronize' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"
