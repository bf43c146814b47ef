"""Whatever the disk refuses, and wherever the power goes: going on ends with an undisturbed run's bytes."""

import os
import random

import pytest
from disturbed import KILLED, Commands, Server, contents
from marks import seldom
from small_tasks import write_model

from minibert.model.params import Head
from minibert.tasks.stored import TaskFile

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


@pytest.fixture(scope="module", params=["pre-training", "fine-tuning"])
def undisturbed(request, tmp_path_factory):
    """What runs it, what a run leaves, and its calls in their order."""
    folder = tmp_path_factory.mktemp(request.param)
    with Server() as server:
        commands = Commands.of(request.param, folder, server)
        assert commands.run() == 0, commands.said()
        yield commands, contents(commands.root), commands.counted()


def chosen(calls, seed, count=4):
    """Some numbers of calls: the first and the last of each kind, and others by chance."""
    first = {calls.index(kind) for kind in calls}
    last = {len(calls) - 1 - calls[::-1].index(kind) for kind in calls}
    return sorted(first | last | set(random.Random(seed).sample(range(len(calls)), count)))


def meet(undisturbed, kind, at):
    """Let a run meet with one fault, go on with it, and compare."""
    commands, expected, calls = undisturbed
    commands.clear()
    where = f"{kind} at {at}, {calls[at]}"
    status, errors = commands.run(kind=kind, at=at), commands.said()
    if kind == "kill":
        assert status == KILLED, f"{where}: {errors}"
    else:
        no_folder = status == 2 and "can't be made in" in errors  # another one may be named
        assert status in (0, 1) or no_folder, f"{where}: {errors}"
        assert "Traceback" not in errors, f"{where}: {errors}"
        assert bool(status) == (errors.splitlines()[-1].startswith("minibert: ")), f"{where}: {errors}"
    if status or "could not be removed" in errors:
        assert commands.run() == 0, f"{where}: {commands.said()}"
    found = contents(commands.root)
    assert found.keys() == expected.keys(), where
    for name in expected:
        assert found[name] == expected[name], f"{where}: {name}"


@pytest.mark.thorough
@pytest.mark.parametrize("kind", seldom(["once", "full", "kill"], "kill"))
def test_after_a_fault_at_some_calls_a_run_goes_on_to_the_same_bytes(undisturbed, kind):
    for at in chosen(undisturbed[2], seed=kind):
        meet(undisturbed, kind, at)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["once", "full", "kill"])
def test_after_a_fault_at_any_call_a_run_goes_on_to_the_same_bytes(undisturbed, kind):
    for at in range(len(undisturbed[2])):
        meet(undisturbed, kind, at)


@pytest.mark.thorough
def test_predictions_killed_between_their_files_can_be_made_again(tmp_path):
    labels = ("bad", "good")
    model = write_model(tmp_path / "model", Head("classify", 2), 3, labels)
    TaskFile("classify", labels, 24, {}).save(model)
    (tmp_path / "dev.csv").write_text("text,label\nthe film is warm,good\na dull story,bad\n")
    words = ["predict", f"--model={model}", f"--data={tmp_path / 'dev.csv'}", "--engine=numpy", "--quiet"]

    def files():
        return {path.name: path.read_bytes() for path in commands.out.glob("[!.]*")}

    with Server() as server:
        commands = Commands(tmp_path, words, server)
        assert commands.run() == 0, commands.said()
        expected = files()
        calls = commands.counted()
        assert set(expected) == {"classify-dev.jsonl", "dev_predictions.tsv"}
        assert calls.count("replace") == 2
        for at in [number for number, call in enumerate(calls) if call == "replace"]:
            commands.clear()
            assert commands.run(kind="kill", at=at) == KILLED
            assert "classify-dev.jsonl" not in files()
            assert commands.run() == 0, commands.said()
            assert files() == expected
