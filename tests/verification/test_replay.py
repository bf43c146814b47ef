"""A step that is computed again has the bits of the log, and says which of both was altered."""

import json
import shutil
import zlib

import pytest
from command import ends_badly
from safetensors import safe_open
from small_runs import change_json, change_record, run_options

import minibert
from minibert import cli
from minibert.base.errors import InputError
from minibert.base.files import atomic_tensors
from minibert.hub.checkpoint import BUFFERS, _checksum
from minibert.pretraining import evaluation
from minibert.pretraining.run import pretrain
from minibert.training.runlog import read_metrics
from minibert.verification import replay


def found(folder, step):
    return [tuple(finding) for finding in minibert.verify(folder, replay=step).findings]


def recorded(folder, step):
    return next(line for line in read_metrics(folder) if line["step"] == step)


# Steps 1 to 3 have 8 tokens a sequence, the later ones 16 and pairs; step 4 begins with longer positions.
@pytest.mark.parametrize("step, begin", [(1, "the beginning"), (4, "the checkpoint of step 2")])
def test_a_step_has_the_bits_of_the_log(trained, step, begin):
    verified = minibert.verify(trained, replay=step)
    assert verified.findings == []
    loss = recorded(trained, step)["loss"]
    expected = f"step {step}, computed again from {begin} by numpy in float32: loss {loss!r} and all other"
    assert verified.checked[-1].startswith(expected)


def test_without_checkpoints_before_it_a_step_is_computed_from_the_beginning(copied):
    for step in (0, 2, 4):
        (copied / f"checkpoints/step-{step:09d}.safetensors").unlink()
    verified = minibert.verify(copied, replay=5)
    assert verified.findings == []
    assert "step 5, computed again from the beginning by numpy" in verified.checked[-1]


@pytest.mark.parametrize("name", ["loss", "mlm_accuracy", "learning_rate", "tokens"])
def test_an_altered_number_of_the_log_is_named(copied, name):
    value = recorded(copied, 5)[name]
    altered = value + 1 if name == "tokens" else value * (1 + 2**-50) + 2**-60
    change_record(copied, 5, **{name: altered})
    [(place, message)] = found(copied, 6)
    assert place == "metrics.jsonl"
    assert message.startswith(f"step 5 has {name} {altered!r} in the log, and {value!r} when computed again")
    assert "numbers beside these have the same bits, so the log was altered; restore" in message


def test_a_step_that_is_not_asked_for_is_not_computed(copied):
    change_record(copied, 5, loss=1.0)
    assert found(copied, 4) == []
    assert found(copied, 2) == []


def change_parameters(path, change):
    """Change the weights of a checkpoint, and give it the checksums that it then has."""
    with safe_open(path, framework="numpy") as file:
        header = json.loads(file.metadata()["minibert"])
        tensors = {name: file.get_tensor(name) for name in BUFFERS}
    change(tensors["params"])
    header["crc32"] = {name: zlib.crc32(tensor.data) for name, tensor in tensors.items()}
    header["crc32"]["header"] = _checksum(header)
    atomic_tensors(path, tensors, {"minibert": json.dumps(header)})


@pytest.mark.parametrize(
    "factor, expected",
    [
        (1 + 1e-6, "as another processor, another number"),
        (3.0, "is more than rounding: the log"),
    ],
)
def test_a_difference_that_is_not_the_logs_says_why(copied, factor, expected):
    def scaled(params):
        params *= factor

    change_parameters(copied / "checkpoints/step-000000004.safetensors", scaled)
    [(place, message)] = found(copied, 5)
    assert place == "metrics.jsonl"
    assert f"step 5 has loss {recorded(copied, 5)['loss']!r} in the log, and" in message
    assert expected in message


@pytest.mark.parametrize("name, value", [("engine", "numba"), ("dtype", "float64")])
def test_another_engine_or_precision_is_given_as_the_reason(copied, name, value):
    def scaled(params):
        params *= 1.5

    change_parameters(copied / "checkpoints/step-000000004.safetensors", scaled)
    change_json(copied / "report.json", **{name: value})
    [(_, message)] = found(copied, 5)
    assert (
        f"the run computed with {name} {value}, which rounds differently; replay it where that {name} works"
        in message
    )


@pytest.mark.thorough
def test_steps_on_both_sides_of_a_new_length_have_the_bits_of_the_log(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation, "PASSES", 1)
    out = tmp_path / "run"
    pretrain(run_options(corpus, steps=4), out, show=False)
    pretrain(run_options(corpus, steps=8), out, resume=True, show=False)
    for step in (3, 4, 5, 8):
        assert found(out, step) == []
    for step in (0, 2):
        (out / f"checkpoints/step-{step:09d}.safetensors").unlink()
    with pytest.raises(
        InputError, match="^replay=3 can't be computed again: the run was given another length"
    ):
        found(out, 3)


def test_a_checkpoint_that_the_run_removes_meanwhile_gives_way_to_an_earlier_one(copied, monkeypatch):
    listed = replay.kept_steps(copied / "checkpoints")
    monkeypatch.setattr(replay, "kept_steps", lambda folder: listed)
    (copied / "checkpoints/step-000000004.safetensors").unlink()
    verified = minibert.verify(copied, replay=5)
    assert verified.findings == []
    assert "step 5, computed again from the checkpoint of step 2 by numpy" in verified.checked[-1]


# What can't be computed


def test_without_a_log_all_that_is_wrong_is_listed(copied):
    (copied / "metrics.jsonl").unlink()
    (copied / "vocab.txt").write_text("altered")
    without = minibert.verify(copied).findings
    assert {"metrics.jsonl", "vocab.txt"} <= {place for place, _ in without}
    assert minibert.verify(copied, replay=5).findings == without


@pytest.mark.parametrize("kind", [ValueError, LookupError, TypeError])
def test_a_mistake_of_the_program_is_not_taken_for_a_finding(copied, monkeypatch, kind):
    def mistaken(found):
        raise kind("a mistake")

    monkeypatch.setattr(replay, "_task", mistaken)
    with pytest.raises(kind, match="a mistake"):
        minibert.verify(copied, replay=5)


def test_a_step_of_a_run_whose_text_is_gone_or_altered_is_refused(copied):
    shutil.rmtree(copied / "shards")
    [(_, message)] = found(copied, 5)
    assert message.startswith("step 5 can't be computed again: 'shards' is not there, so it holds no token")


def test_a_step_far_from_any_checkpoint_is_refused(copied, monkeypatch):
    monkeypatch.setattr(replay, "MOST_MINUTES", 0)
    with pytest.raises(InputError, match="^replay=5 can't be computed again: from step 5 on, the run took"):
        found(copied, 5)


def test_a_step_without_its_plan_is_refused(copied):
    shutil.rmtree(copied / "checkpoints")
    change_json(copied / "training.json", steps=None, minutes=2.0)
    with pytest.raises(InputError, match="^replay=5 can't be computed again: no checkpoint has the plan"):
        found(copied, 5)


def test_a_step_that_is_not_in_the_log_is_refused(trained, run, capsys):
    with pytest.raises(InputError, match="replay=7 is not a step in metrics.jsonl; it has 1 to 6"):
        minibert.verify(trained, replay=7)
    with pytest.raises(InputError, match="replay=1 is for a pre-training run, and '.*' is a fine-tuning run"):
        minibert.verify(run, replay=1)
    said = ends_badly(capsys, 2, "verify", str(trained), "--replay", "0")
    assert said == "minibert: --replay 0 is not a step in metrics.jsonl; it has 1 to 6.\n"


@pytest.mark.thorough
def test_token_shards_in_another_folder_are_read_by_a_replay_alone(trained, corpus, tmp_path, capsys):
    shards, out = tmp_path / "shards", tmp_path / "run"
    assert cli.main(["data", str(corpus), "--vocab", str(trained), "--out", str(shards), "--quiet"]) == 0
    pretrain(run_options(None, vocab_size=8192, shards=str(shards), evaluations=0), out, show=False)
    verified = minibert.verify(out, replay=5)
    assert verified.findings == []
    assert "shards: in another folder, which is not read" in verified.checked
    shutil.rmtree(shards)
    assert minibert.verify(out).findings == []
    [(_, message)] = found(out, 5)
    assert "step 5 can't be computed again: " in message and "is not there" in message
