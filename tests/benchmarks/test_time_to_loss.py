"""The race of benchmarks/time_to_loss.py: clock, marks, verdict; its runners are compared in tests/oracle."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
import time_to_loss
from peers.children import Unavailable
from peers.race import Course
from peers.race_minibert import Minibert
from small_corpus import write_corpus

from minibert.pretraining.options import PretrainOptions
from minibert.pretraining.preparation import prepare_text
from minibert.pretraining.recipes import Timetable

PEER, OURS = time_to_loss.PEER, time_to_loss.OURS


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """Ten steps of a small corpus, in two stages."""
    folder = tmp_path_factory.mktemp("course")
    options = PretrainOptions(
        corpus=(str(write_corpus(folder / "animals.txt")),),
        vocab_size=80,
        seq_length="12:0.4,32:0.6",
        batch_size=4,
        steps=1,
    ).resolved()
    options.save(folder / "training.json")
    prepare_text(options, folder, show=False)
    return Course(str(folder), steps=10, targets=60)


def point(name, step, seconds, loss, difference=None, error=0.001, steps=100):
    return {
        "engine": name,
        "dtype": "float32",
        "size": "mini",
        "vocab_size": 99,
        "threads": 2,
        "steps": steps,
        "step": step,
        "seconds": seconds,
        "minutes": seconds / 60,
        "tokens": 1000 * step,
        "loss": loss,
        "unigram": 6.0,
        "targets": 500,
        "difference": difference,
        "difference_error": error,
        "machine": "a machine",
        "quick": False,
        "busy": None,
    }


PEERS = [point(PEER, 0, 0.0, 7.0), point(PEER, 100, 1800.0, 5.0)]


def test_the_parts_of_a_race_are_the_whole(course):
    one, other = Minibert(course, 1, "numpy", "float32"), Minibert(course, 1, "numpy", "float32")
    begun = one.held_out()
    assert one.advance(3)["step"] == 3
    for step in (4, 10):
        found = one.advance(step)
    whole = other.advance(10)
    assert (found["step"], found["tokens"]) == (whole["step"], whole["tokens"])
    np.testing.assert_array_equal(one.held_out(), other.held_out())
    assert abs(one.held_out() - begun).max() > 0.01
    assert len(begun) == len(one.targets()) >= 60


def test_looking_stops_the_clock_and_waiting_for_a_batch_does_not(course, monkeypatch):
    runner, clock, look = Minibert(course, 1, "numpy", "float32"), [0.0], Minibert.look
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    def after(seconds, result):
        clock[0] += seconds
        return result

    monkeypatch.setattr(runner, "train", lambda ready, rate: after(1.0, 5.0))
    monkeypatch.setattr(runner, "look", lambda batch: after(100.0, look(runner, batch)))
    assert runner.advance(2)["seconds"] == 2
    runner.held_out()
    assert clock[0] > 100 and runner.advance(3)["seconds"] == 3
    runner._batches = (after(10.0, one) for one in [(7, None)])
    found = runner.advance(4)
    assert found["seconds"] == 3 + 10 + 1 and found["training_loss"] == 5.0


def test_the_rate_follows_the_schedule(course, monkeypatch):
    runner, rates = Minibert(course, 1, "numpy", "float32"), []
    monkeypatch.setattr(runner, "train", lambda ready, rate: rates.append(rate) or 0.0)
    runner.advance(4)
    runner.advance(10)
    assert rates == [runner.task.rate(Timetable.of(10))(step) for step in range(10)] and max(rates) == 2e-3


def test_seconds_of_a_step_are_those_of_each_length_by_its_share(course, monkeypatch):
    runner, clock = Minibert(course, 1, "numpy", "float32"), [0.0]

    def train(batch, rate):
        clock[0] += 1.0 if np.diff(batch.cu_seqlens).max() <= 12 else 2.0

    monkeypatch.setattr(runner, "train", train)
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    assert runner.seconds_per_step(20.0) == pytest.approx(0.4 * 1.0 + 0.6 * 2.0)


def test_verdict_when_minibert_gets_there():
    own = [point(OURS, 0, 0.0, 7.0, 2.0), point(OURS, 95, 450.0, 4.99, -0.01)]
    said = time_to_loss.text(PEERS + own)
    assert "minibert has Hugging Face's last loss, 5.000, after 7.5 minutes: 25% of its time (4.0×)." in said


def test_verdict_when_minibert_never_gets_there():
    own = [point(OURS, 0, 0.0, 7.0, 2.0), point(OURS, 100, 450.0, 5.1, 0.1)]
    said = time_to_loss.text(PEERS + own)
    assert "never has" in said and "25% of its time (4.0×), it is 0.1000 nats (standard error 0.0010)" in said
    assert "do not tell" not in said
    own[-1]["difference_error"] = 0.06
    assert "which so few targets do not tell from none" in time_to_loss.text(PEERS + own)


def test_verdict_of_races_that_did_not_end():
    assert "did not come to the end" in time_to_loss.text([PEERS[0], point(OURS, 9, 9.0, 6.5)])
    stopped = time_to_loss.text([*PEERS, point(OURS, 50, 225.0, 6.0, 1.0)])
    assert "minibert was stopped after 3.8 minutes, 1.0000 nats" in stopped


def test_there_is_no_verdict_where_nothing_was_learned():
    theirs = [point(PEER, 0, 0.0, 5.0), point(PEER, 100, 1800.0, 5.01)]
    said = time_to_loss.text([*theirs, point(OURS, 10, 45.0, 5.0, -0.01)])
    assert "has learnt nothing" in said and "25%" not in said


def test_figures_of_a_busy_machine_are_marked():
    rows = [dict(row, busy="other programs keep 2.0 cores busy") for row in PEERS]
    assert "No figure to quote: other programs" in time_to_loss.text(rows)


@pytest.mark.slow
def test_a_race_alone_leaves_rows_and_a_picture(course, monkeypatch, tmp_path):
    """Through the command, with the runner in this process: what ends at a mark, what is written."""
    made = []

    class Here:
        def __init__(self, factory, course, threads, options):
            if options["dtype"] == "bfloat16":
                raise Unavailable("not here")
            self.runner = Minibert(course, threads, "numpy", "float32")
            made.append(self)

        def ask(self, method, *given):
            return 1.0 if method == "seconds_per_step" else getattr(self.runner, method)(*given)

        def close(self):
            made.remove(self)

    monkeypatch.setattr(time_to_loss, "Child", Here)
    monkeypatch.setattr(time_to_loss, "QUICK", time_to_loss.QUICK._replace(targets=50))
    monkeypatch.setattr(time_to_loss, "WIKIPEDIA", Path(course.folder) / "animals.txt")
    out = tmp_path / "out"
    assert time_to_loss.main(["--quick", "--steps", "10", "--out", str(out)]) == 0
    rows = json.loads((out / "rows.json").read_text("utf-8"))
    theirs = [row["step"] for row in rows if row["engine"] == PEER]
    ours = [row["step"] for row in rows if row["engine"] == OURS]
    assert theirs == [0, 2, 4, 6, 8, 10] and ours == [0, 2, 4, 6, 8, 10]
    assert rows[-1]["difference"] == 0.0 and not made  # the same program twice
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "nobody"], "--only nobody is none of"),
        (["--minutes", "0"], "--minutes 0.0 is not a time to race"),
        (["--size", "huge"], "--size huge is none of"),
        (["--threads", "-1"], "--threads -1 is none of"),
    ],
)
def test_what_cannot_be_is_refused_at_once(words, said, capsys, tmp_path):
    assert time_to_loss.main([*words, "--out", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "out").exists()
