"""A sample of `make soak`, and that it notices what it is there to find."""

import json
import os
import random
import signal
import time
from functools import partial

import faults
import pytest
import soak
from disturbances import DISTURBANCES
from disturbed import JOBS, Server
from long_run import Sample, judge
from soak import ANY, FAULTS, Meeting, Scene, cells, faults_of, table

from minibert.hub.checkpoint import checkpoints

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="a system without /proc")


@pytest.fixture(scope="module")
def server():
    with Server() as server:
        yield server


@pytest.fixture(scope="module")
def vocabulary(server, tmp_path_factory):
    return Scene("vocabulary", server, tmp_path_factory.mktemp("vocabulary"))


@pytest.fixture(scope="module")
def pretraining(server, tmp_path_factory):
    return Scene("pre-training", server, tmp_path_factory.mktemp("pretraining"))


def finished(scene, disturbance="failing unlink"):
    """A meeting with a run that has ended well."""
    scene.commands.clear()
    scene.source.restore()
    meeting = Meeting(scene, DISTURBANCES[disturbance], random.Random(0))
    meeting.disturb({})
    assert faults_of(meeting.found) == 0
    return meeting


@pytest.mark.slow
@pytest.mark.parametrize("disturbance", DISTURBANCES)
def test_a_disturbed_vocabulary_is_whole_or_not_there(vocabulary, disturbance):
    found = vocabulary.meet(disturbance, random.Random(disturbance))
    assert found and faults_of(found) == 0, found["why"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "disturbance", ["SIGKILL", "Ctrl-C", "closed terminal", "read-only folder", "power loss"]
)
def test_a_disturbed_pretraining_loses_nothing(pretraining, disturbance):
    found = pretraining.meet(disturbance, random.Random(disturbance))
    assert found and faults_of(found) == 0, found["why"]


@pytest.mark.slow
def test_a_byte_that_differs_is_noticed(vocabulary):
    meeting = finished(vocabulary)
    path = vocabulary.commands.out / "vocab.txt"
    path.write_bytes(path.read_bytes() + b"\n")
    meeting.compare(soak.contents(vocabulary.commands.root))
    assert meeting.found["differing"] == 1 and "vocab.txt" in meeting.found["why"][0]


@pytest.mark.slow
def test_a_file_that_is_left_and_one_that_is_missing_are_noticed(vocabulary):
    meeting = finished(vocabulary)
    (vocabulary.commands.root / ".run.k1ll3d_x.tmp").touch()
    (vocabulary.commands.out / "tokenizer.json").unlink()
    meeting.compare(soak.contents(vocabulary.commands.root))
    assert (meeting.found["left"], meeting.found["differing"]) == (1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["damaged", "removed"])
def test_a_lost_checkpoint_is_noticed(pretraining, way):
    meeting = finished(pretraining)
    for path in checkpoints(pretraining.commands.out / "checkpoints"):
        if way == "removed":
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:-9])
    meeting.judge_checkpoints()
    assert meeting.found["lost"] >= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "said"),
    [
        (1, "Traceback (most recent call last):\nOSError"),
        (1, "something went wrong"),
        (0, "Exception ignored in: <file>"),
        (3, "minibert: a sentence."),
        (-int(signal.SIGSEGV), ""),
        (soak.HUNG, ""),
    ],
)
def test_a_bad_end_is_noticed(vocabulary, tmp_path, status, said):
    meeting = Meeting(vocabulary, DISTURBANCES["full disk"], random.Random(0))
    (tmp_path / "errors").write_text(said)
    meeting.judge_ending(status, (0, 1), tmp_path / "errors")
    assert meeting.found["traceback"] == 1


def spin():
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass
    signal.pause()


@pytest.mark.parametrize(
    ("does", "longest", "status"),
    [(spin, 1e9, faults.HUNG), (partial(time.sleep, 0.05), 1e9, 0), (signal.pause, 0.5, faults.HUNG)],
)
def test_a_command_hangs_by_its_processor_time_or_very_long_by_the_clock(does, longest, status, monkeypatch):
    monkeypatch.setattr(faults, "PATIENCE", 0.03)
    monkeypatch.setattr(faults, "LONGEST", longest)
    watch = faults.Watch()
    process = os.fork()
    if not process:
        does()
        os._exit(0)
    watch.began = time.monotonic() - 1
    assert watch.wait(process, os.devnull) == status


def test_jobs_without_an_engine_are_run_once():
    drawn = list(cells(JOBS, soak.COLUMNS, ["SIGKILL"], 2))
    assert len(drawn) == len(set(drawn)) == 2 * (6 * 4 + 3)
    assert {job for job, engine, *_ in drawn if engine == ANY} == {"vocabulary", "shards", "export"}


def test_the_table_counts_what_was_found():
    clean = dict.fromkeys(FAULTS, 0) | {"asked": {}, "number": 0, "seed": 0}
    rows = [
        {"job": "sweep", "engine": "jax", "disturbance": "SIGKILL", **clean},
        {"job": "sweep", "engine": "jax", "disturbance": "Ctrl-C", **clean, "lost": 2},
        {"job": "export", "engine": ANY, "disturbance": "Ctrl-C", **clean, "asked": None},
    ]
    lines = table(rows).splitlines()
    assert "| sweep | – | – | – | 2 | – |" in lines and "| together | 0 | 0 | 0 | 2 | 0 |" in lines
    assert "| together | | 2 | 2 | 0 | 0 | 0 | 0 |" in lines
    assert any(line.startswith("| Ctrl-C |") and line.endswith("| 1 | 2 | 0 | 0 | 0 | 0 |") for line in lines)


def test_cells_are_added_to_the_record_once_and_earlier_counts_stay(tmp_path, monkeypatch):
    clean = dict.fromkeys(FAULTS, 0)
    earlier = {"job": "sweep", "engine": "jax", "times": 5}, {"disturbance": "SIGKILL", "times": 5, **clean}
    cell = {"job": "sweep", "engine": "jax", "disturbance": "SIGKILL", "number": 0, "seed": 0, "asked": {}}
    page = tmp_path / "page.md"
    page.write_text(f"above\n{soak.BEGIN}\nto be replaced\n{soak.END}\nbelow\n")
    for name in ("page", "record", "results"):
        monkeypatch.setattr(soak, name.upper(), tmp_path / (name if name != "page" else "page.md"))
    (tmp_path / "record").write_text("".join(json.dumps(row) + "\n" for row in earlier))
    (tmp_path / "results").write_text(json.dumps(cell | clean) + "\n")
    for _ in range(2):
        soak.write_table()
    assert [json.loads(line) for line in (tmp_path / "record").read_text().splitlines()] == [
        *earlier,
        cell | clean,
    ]
    text = page.read_text()
    assert "| sweep | – | – | – | 6 | – |" in text and "| together | | 6 | 0 | 0 | 0 | 0 | 0 |" in text
    assert text.startswith("above\n") and text.endswith("\nbelow\n") and "to be replaced" not in text


def test_a_long_run_is_judged_after_its_warm_up():
    steady = []
    for second in range(100):
        steady.append(Sample(second, 10**6 if second > 9 else second, 8, 2.0 * second, 50.0 * second))
    found = judge(steady)
    assert (found["growth"], found["handles"], found["tokens_per_processor_second"]) == (0, [8, 8], [25, 25])
    for number, sample in enumerate(steady):
        steady[number] = sample._replace(memory=10**6 + 1000 * number, handles=8 + number)
    found = judge(steady)
    assert found["growth"] > 0.05 and found["handles"][1] > found["handles"][0]
