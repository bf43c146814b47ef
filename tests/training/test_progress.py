"""What the person watching sees of long work: how much is done, how fast, and the time that is left."""

import json
import re

import pytest
from small_tasks import small_options, write_sst2

from minibert.finetuning.run import finetune
from minibert.training import runlog
from minibert.training.runlog import LAST_LINES, METRICS, Progress, RunLog, read_metrics


@pytest.fixture
def clock(monkeypatch):
    """Time as the tests have it, and a line at every step of it."""
    now = [100.0]
    monkeypatch.setattr(runlog.time, "monotonic", lambda: now[0])
    return now


def test_without_a_terminal_a_line_now_and_then_has_share_speed_and_time_left(clock, capsys):
    with Progress(2000, "tokens of dev") as shown:
        for _ in range(3):
            clock[0] += 8
            shown.add(400)
    assert capsys.readouterr().err == "800 of 2,000 tokens of dev, 50 a second, 00:24 left\n"


def test_without_a_total_there_is_no_time_left(clock, capsys):
    with Progress(None, "lines") as shown:
        clock[0] += 16
        shown.add(4000)
    assert capsys.readouterr().err == "4,000 lines, 250 a second\n"


def test_nothing_is_shown_where_nobody_watches(clock, capsys):
    with Progress(10, "tokens", show=False) as shown:
        clock[0] += 99
        shown.add(5)
    assert capsys.readouterr().err == ""


def test_without_a_terminal_a_run_has_a_line_now_and_then_and_at_its_end(clock, tmp_path, capsys):
    with RunLog(tmp_path, 0, 10) as log:
        for step in range(1, 11):
            clock[0] += 4
            log.step(step, 8, {"loss": 1.0, "learning_rate": 1e-3}, seconds=4.0)
    found = re.findall(r"step (\d+)/10 .* (\S+) left\n", capsys.readouterr().err)
    assert found == [("3", "00:28"), ("6", "00:16"), ("9", "00:04"), ("10", "00:00")]


@pytest.mark.parametrize(
    ("total", "seen"), [(2000, "1.20k/2.00k tokens of dev, "), (None, "1.20k tokens of dev ")]
)
def test_a_terminal_has_a_bar(monkeypatch, capsys, total, seen):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with Progress(total, "tokens of dev") as shown:
        shown._bar.mininterval = 0
        shown.add(1200)
        assert seen in capsys.readouterr().err


def test_a_run_that_mostly_measures_says_so_before_it_begins(model, sst2, tmp_path, capsys):
    """Each token of dev costs a third of one that is learnt from."""
    said = r"Measuring takes most of the time: ([\d,]+) tokens of dev beside ([\d,]+) of train. Fewer"
    finetune(small_options(model, sst2, max_steps=1), tmp_path / "one")
    before, _, after = capsys.readouterr().err.partition("step 1/1")
    dev, learnt = (int(number.replace(",", "")) for number in re.search(said, before).groups())
    assert dev > 3 * learnt and "Measuring" not in after
    finetune(small_options(model, sst2, max_steps=1, dev_examples=5), tmp_path / "other")
    assert "Measuring" not in capsys.readouterr().err


def test_every_time_that_is_measured_counts(model, tmp_path, capsys):
    data = write_sst2(tmp_path / "data", n_train=16, n_dev=60)
    finetune(small_options(model, data, epochs=2), tmp_path / "run")
    assert re.search(r"tokens of dev, 2 times, beside [\d,]+ of train", capsys.readouterr().err)


def test_a_long_log_is_read_at_even_distances(tmp_path):
    lines = []
    for step in range(1, 5001):
        lines.append({"step": step, "loss": 1 / step})
        if step % 1000 == 0:
            lines.append({"step": step, "held_out_loss": 2 / step})
    (tmp_path / METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 5')
    assert read_metrics(tmp_path) == read_metrics(tmp_path, most=5000) == lines
    found = read_metrics(tmp_path, most=300)
    evaluations = [line for line in found if "held_out_loss" in line]
    assert evaluations == [line for line in lines if "held_out_loss" in line]
    training = [line for line in found if "loss" in line]
    assert training[-LAST_LINES:] == [line for line in lines if "loss" in line][-LAST_LINES:]
    assert 150 <= len(training) - LAST_LINES <= 300 and all(line in lines for line in training)
    places = [lines.index(line) for line in training[:-LAST_LINES]]
    assert {after - before for before, after in zip(places, places[1:], strict=False)} <= {32, 64}
    assert [line["step"] for line in found] == sorted(line["step"] for line in found)
