"""The benchmark of what is learnt at equal time: who gets how many steps, what is done again, the table."""

import json
from argparse import Namespace

import learning
import pytest


@pytest.fixture
def ran(monkeypatch):
    """Commands that were run, as words; a run leaves the files that are read, its loss less by its seed."""
    found = []

    def run(command, **given):
        words = command[len(learning.MINIBERT) :]
        found.append(words)
        if words[0] == "evaluate":
            return Namespace(stdout='{"nats_per_byte": 1.5}')
        folder = learning.Path(words[words.index("--out") + 1])
        seed = int(words[words.index("--seed") + 1]) if "--seed" in words else 0
        folder.mkdir(parents=True)
        (folder / "training.json").write_text('{"seq_length": "10:0.5,32:0.5"}')
        report = {
            "steps": 70,
            "training_seconds": 7.0,
            "tokens": 1_234_567,
            "held_out": {"unigram": 6.0, "loss": 4.0 - 0.1 * seed},
        }
        (folder / "report.json").write_text(json.dumps(report))
        return None

    monkeypatch.setattr(learning.subprocess, "run", run)
    monkeypatch.setattr(learning.machine, "what_disturbs", lambda: None)
    return found


def test_other_seeds_take_the_steps_of_the_first_and_nothing_is_done_twice(ran, tmp_path):
    given = Namespace(out=tmp_path, seeds=3, jobs=1, size="tiny", dtype="auto")
    results = learning.trained(given, "muon", 2.0, ["--size", "tiny"])
    first, *others = [words for words in ran if words[0] == "pretrain"]
    assert first[-4:] == ["--optimizer", "muon", "--minutes", "2"] and "--seed" not in first
    for seed, words in enumerate(others, 1):
        assert "--minutes" not in words and words[-4:] == ["--threads", "1", "--seed", str(seed)]
        assert words[words.index("--steps") + 1] == "70"
        assert words[words.index("--seq-length") + 1] == "10:0.5,32:0.5"
    line = "| muon | 2 | 70 of 100 ms | 1.2M | 2.100 ±0.100 | 1.500 ±0.000 |"
    assert learning.line_of("muon", 2.0, results) == line
    assert learning.line_of("muon", 2.0, results[:1]) == "| muon | 2 | 70 of 100 ms | 1.2M | 2.000 | 1.500 |"
    count = len(ran)
    assert count == 6
    (tmp_path / "tiny-auto-muon-2-1" / "report.json").unlink()  # as if it had been stopped
    assert learning.trained(given, "muon", 2.0, ["--size", "tiny"]) == results
    assert [words[0] for words in ran[count:]] == ["pretrain", "evaluate"]


def test_a_busy_machine_is_refused_before_the_clock_runs(ran, tmp_path, monkeypatch):
    monkeypatch.setattr(learning.machine, "what_disturbs", lambda: "others are busy")
    with pytest.raises(SystemExit, match="others are busy"):
        learning.trained(
            Namespace(out=tmp_path, seeds=1, jobs=1, size="tiny", dtype="auto"), "adamw", 2.0, []
        )
    assert not ran
